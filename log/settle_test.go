package log

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// Who waits for the stable end is told once the batches are durable, not after what is written beside them.
func TestWaitersAreToldBeforeTheFlushSettles(t *testing.T) {
	for what, path := range map[string]string{"epoch checkpoint": EpochFile + ".tmp", "window": "*.window.tmp", "index of an ended segment": "*.index"} {
		t.Run(what, func(t *testing.T) {
			faulty := vfs.NewFaulty(vfs.NewMem())
			r := newRig(t, faulty)
			r.config = smallSegments()
			l := r.log(0)
			r.add(l, sent{id: 7, size: 3000})
			stall := make(chan struct{})
			in := faulty.Inject(vfs.Fault{Ops: []vfs.Op{vfs.OpSync, vfs.OpSyncData}, Path: path, Stall: stall})
			var told atomic.Int64
			l.OnProgress(func() { told.Store(int64(l.StableEnd())) })
			must(t, l.StartEpoch(5))
			end := record.Offset(0)
			for i := range 3 { // over a roll
				a, _, err := r.write(l, sent{id: 7, seq: record.Sequence(i + 1), size: 3000})
				must(t, err)
				end = a.Last + 1
			}
			flushed := make(chan error)
			go func() { flushed <- r.step.Run() }()
			for in.Hits() == 0 {
				runtime.Gosched()
			}
			if got := told.Load(); got != int64(end) {
				t.Errorf("told of %d while the flush settles, the end is %d", got, end)
			}
			if m := l.mark.Offset; m >= end {
				t.Errorf("the mark is at %d before the flush has settled", m)
			}
			close(stall)
			must(t, <-flushed)
			if l.mark.Offset != end || l.mark.Epoch != 5 {
				t.Errorf("then the mark is %+v", l.mark)
			}
			must(t, r.dir.Close())
		})
	}
}

// A flush that comes while the last one tells its waiters settles that one first: marks never go back.
func TestFlushBetweenPublishAndSettle(t *testing.T) {
	r := newRig(t, vfs.NewCrash())
	r.config = smallSegments()
	l := r.log(0)
	r.add(l, sent{id: 7, size: 3000})
	var marks []record.Offset
	again := true
	l.OnProgress(func() {
		marks = append(marks, l.mark.Offset)
		if again {
			again = false
			r.fill(l, 3)
			marks = append(marks, l.mark.Offset)
		}
	})
	for i := range 3 {
		_, _, err := r.write(l, sent{id: 7, seq: record.Sequence(i + 1), size: 3000})
		must(t, err)
	}
	must(t, r.step.Run())
	if !slices.IsSorted(marks) || l.mark.Offset != l.DurableEnd() || l.DurableEnd() != l.WrittenEnd() {
		t.Fatalf("marks %v, the last %d, durable %d, written %d", marks, l.mark.Offset, l.DurableEnd(), l.WrittenEnd())
	}
	end := l.WrittenEnd()
	r.crash(vfs.Policy{Kind: vfs.KeepNone}, 1)
	if l = r.log(0); l.WrittenEnd() != end {
		t.Fatalf("the log ends at %d, durable was %d", l.WrittenEnd(), end)
	}
	must(t, l.Audit())
}

// A log that is deleted while a flush tells its waiters gets no mark again.
func TestDeleteBetweenPublishAndSettle(t *testing.T) {
	r := newRig(t, vfs.NewCrash())
	r.config = smallSegments()
	l := r.log(0)
	r.add(l, sent{id: 7, size: 3000})
	l.OnProgress(func() {
		l.OnProgress(nil)
		must(t, r.dir.DeleteLog(l))
	})
	for i := range 3 {
		_, _, err := r.write(l, sent{id: 7, seq: record.Sequence(i + 1), size: 3000})
		must(t, err)
	}
	_ = r.step.Run()
	if m, ok := r.dir.marks.slots[markKey{testTopic, 0}]; ok {
		t.Fatalf("the deleted log has slot %+v", m)
	}
	must(t, r.dir.Close())
}

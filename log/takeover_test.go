package log

import (
	"errors"
	"runtime"
	"slices"
	"testing"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// caughtUp begins a move of a log with some records from /data to /data2, and copies all of it.
func caughtUp(t *testing.T, d *twoDirs) (*Log, *Move) {
	t.Helper()
	l := d.r.log(0)
	for i := range 20 {
		d.r.add(l, sent{id: 7, seq: record.Sequence(i), size: 200})
	}
	m, err := BeginMove(l, d.s.dir, nil)
	must(t, err)
	for done := false; !done; {
		_, done, err = m.Step(make([]byte, 2000))
		must(t, err)
	}
	return l, m
}

// A log that is deleted while its copy takes over, on a disk that hangs, is deleted wherever it is by then, and its name is free in both.
func TestTakeOverOfALogThatIsDeleted(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.NewMem())
	d := newTwoDirs(t, faulty, crashConfig())
	l, m := caughtUp(t, d)
	on := make(chan struct{})
	hung := faulty.Inject(vfs.Fault{Ops: []vfs.Op{vfs.OpRename}, Path: "/data2/t-0", Stall: on})
	taken, deleted := make(chan error, 1), make(chan error, 1)
	go func() {
		taken <- m.TakeOver(make([]byte, 2000), func(*Log) { t.Error("a log that is deleted is published") })
	}()
	for hung.Hits() == 0 {
		runtime.Gosched()
	}
	go func() { deleted <- l.Delete() }()
	for l.Err() == nil {
		runtime.Gosched()
	}
	close(on)
	if err := <-taken; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	must(t, <-deleted)
	must(t, m.Drop())
	if got := d.names(); !slices.Equal(got, []string{"1:t-0-delete", "2:t-0-delete"}) {
		t.Error(got)
	}
	for _, r := range d.rigs() {
		if again := r.log(0); again.WrittenEnd() != 0 {
			t.Errorf("what comes under its name begins at %d", again.WrittenEnd())
		}
	}
	for _, r := range d.rigs() {
		must(t, r.dir.Close())
		if _, err := r.fs.Stat(r.dir.path + "/" + CleanFile); err != nil {
			t.Error("no clean stop:", err)
		}
	}
}

// A log whose copy has taken over is not deleted any more: who wanted that is told when the copy can be asked.
func TestDeleteOfALogThatHasMoved(t *testing.T) {
	d := newTwoDirs(t, vfs.NewMem(), crashConfig())
	l, m := caughtUp(t, d)
	var next *Log
	deleted := make(chan error, 1)
	must(t, m.TakeOver(make([]byte, 2000), func(n *Log) {
		go func() { deleted <- l.Delete() }()
		next = n
	}))
	if err := <-deleted; !errors.Is(err, ErrMoved) {
		t.Fatal(err)
	}
	if next.Err() != nil {
		t.Fatal(next.Err())
	}
	must(t, next.Delete())
	if got := d.names(); !slices.Equal(got, []string{"1:t-0-delete", "2:t-0-delete"}) {
		t.Error(got)
	}
}

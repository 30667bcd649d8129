package log

import (
	"errors"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/segment"
	"github.com/keeplog/keeplog/vfs"
)

// hookFS calls a hook once, in the middle of the first read of a log file after it was set.
type hookFS struct {
	vfs.FS
	hook atomic.Pointer[func()]
}

type hookFile struct {
	vfs.File
	fs *hookFS
}

func (h *hookFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := h.FS.OpenFile(name, flag, perm)
	if err == nil && strings.HasSuffix(name, ".log") {
		return hookFile{f, h}, nil
	}
	return f, err
}

func (f hookFile) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(b, off)
	if hook := f.fs.hook.Swap(nil); hook != nil {
		(*hook)()
	}
	return n, err
}

// lateRecord is a log whose records are all expired, opened anew, and a function that has a fresh record acknowledged while
// somebody reads the active segment.
func lateRecord(t *testing.T) (r *rig, l *Log, fresh *Appended, hooked func() bool) {
	t.Helper()
	fsys := &hookFS{FS: vfs.NewMem()}
	r = newRig(t, fsys)
	r.config.Retention.Age = time.Hour
	l = r.log(0)
	for range 3 {
		r.add(l, sent{count: 1, size: 100})
	}
	r.restart()
	l = r.log(0)
	r.now = r.now.Add(3 * time.Hour)
	fresh = &Appended{}
	hook := func() {
		a, _, err := r.write(l, sent{count: 1, size: 100})
		must(t, err)
		must(t, r.step.Run())
		*fresh = a
	}
	fsys.hook.Store(&hook)
	return r, l, fresh, func() bool { return fsys.hook.Load() == nil }
}

// A record that is acknowledged while retention looks at the active segment is not judged by the records before it.
func TestRetentionSparesWhatArrives(t *testing.T) {
	r, l, fresh, hooked := lateRecord(t)
	must(t, l.Retain(r.now))
	if !hooked() {
		t.Fatal("retention read nothing: the record did not arrive in the middle")
	}
	if l.StartOffset() > fresh.Base {
		t.Errorf("the acknowledged record %d was deleted: the log starts at %d", fresh.Base, l.StartOffset())
	}
}

// What was appended while the newest time of the active segment was looked for is part of it.
func TestNewestTimeOfWhatArrives(t *testing.T) {
	r, l, fresh, hooked := lateRecord(t)
	_, err := l.newest(l.view.Load().segments[0], r.now)
	must(t, err)
	if !hooked() {
		t.Fatal("nothing was read: the record did not arrive in the middle")
	}
	o, ok, err := l.OffsetForTime(r.now.UnixMilli(), l.StableEnd())
	if err != nil || !ok || o.Offset != fresh.Base {
		t.Errorf("the first record from now on: %v %v %v, want %d", o, ok, err, fresh.Base)
	}
	must(t, l.Retain(r.now.Add(time.Minute)))
	if l.StartOffset() > fresh.Base {
		t.Errorf("the acknowledged record %d was deleted: the log starts at %d", fresh.Base, l.StartOffset())
	}
}

// DeleteRecords up to the end beside a producer: retention takes nothing that was not asked for.
func TestTrimBesideProducer(t *testing.T) {
	r := newRig(t, vfs.NewMem())
	l := r.log(0)
	var done atomic.Bool
	var writer sync.WaitGroup
	batch := r.batch(sent{count: 1, size: 10})
	writer.Go(func() {
		for !done.Load() {
			if _, err := l.Append(Append{Batch: append(record.Batch(nil), batch...), NowMs: 1}); err != nil {
				t.Error(err)
				return
			}
			if err := l.Flush(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for until := time.Now().Add(300 * time.Millisecond); time.Now().Before(until); {
		end := l.StableEnd()
		must(t, l.AdvanceStart(end))
		must(t, l.Retain(r.now))
		if start := l.StartOffset(); start > end {
			t.Errorf("the log starts at %d, asked for %d", start, end)
			break
		}
	}
	done.Store(true)
	writer.Wait()
}

// Lookups by time beside retention answer, whatever goes meanwhile.
func TestTimeBesideRetention(t *testing.T) {
	r := newRig(t, vfs.NewMem())
	r.config.Segment.Bytes = 3000
	r.config.Retention.Bytes = 6000
	l := r.log(0)
	var done atomic.Bool
	var wg sync.WaitGroup
	gone := 0
	wg.Go(func() {
		for !done.Load() {
			_, _, err := l.MaxTimestamp(l.StableEnd())
			if err == nil {
				_, _, err = l.OffsetForTime(0, l.StableEnd())
			}
			if errors.Is(err, segment.ErrGone) {
				gone++
			}
		}
	})
	for i := range 1500 {
		r.now = r.now.Add(-time.Millisecond) // the first segment has the largest timestamp
		r.add(l, sent{count: 1, size: 500})
		if i%3 == 0 {
			must(t, l.Retain(r.now))
		}
	}
	done.Store(true)
	wg.Wait()
	if gone > 0 {
		t.Errorf("%d lookups by time answered that the segment is gone", gone)
	}
}

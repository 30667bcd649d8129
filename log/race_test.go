package log

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// Readers of every kind beside a writer that rolls and retention: for the race detector.
func TestReadersBesideRolls(t *testing.T) {
	r := newRig(t, vfs.NewMem())
	r.config.Segment.Bytes = 4000
	l := r.log(0)
	for range 20 {
		r.add(l, sent{count: 1, size: 1000})
	}
	r.restart()
	l = r.log(0)
	var done atomic.Bool
	var wg sync.WaitGroup
	b := r.batch(sent{count: 1, size: 1000})
	wg.Go(func() {
		for i := 0; i < 300; i++ {
			if _, err := l.Append(Append{Batch: append(record.Batch(nil), b...), NowMs: 1}); err != nil {
				t.Error(err)
			}
			_ = l.Flush()
		}
		done.Store(true)
	})
	wg.Go(func() {
		for !done.Load() {
			_, _, _ = l.OffsetForTime(r.now.UnixMilli(), l.StableEnd())
			_, _, _ = l.MaxTimestamp(l.StableEnd())
		}
	})
	wg.Go(func() {
		for !done.Load() {
			for o := l.StartOffset(); o < l.StableEnd(); o += 7 {
				sp, err := l.Read(ReadRequest{Offset: o, Bound: l.StableEnd(), MaxBytes: 100000, AtLeastOne: true})
				if err == nil {
					sp.Release()
				}
			}
		}
	})
	wg.Go(func() {
		for !done.Load() {
			r.dir.Tick(r.now.Add(time.Minute))
		}
	})
	wg.Wait()
}

// Readers of a segment that was opened without its successor, while a roll gives it one: for the race detector.
func TestReadersBesideTheFirstRoll(t *testing.T) {
	for range 10 {
		r := newRig(t, vfs.NewMem())
		r.config.Segment.Bytes = 40000
		l := r.log(0)
		for range 20 {
			r.add(l, sent{count: 1, size: 1000})
		}
		r.restart()
		l = r.log(0)
		var wg sync.WaitGroup
		b := r.batch(sent{count: 1, size: 1000})
		wg.Go(func() {
			for i := 0; i < 30; i++ {
				if _, err := l.Append(Append{Batch: append(record.Batch(nil), b...), NowMs: 1}); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for o := record.Offset(0); o < 20; o++ {
				sp, err := l.Read(ReadRequest{Offset: o, Bound: 20, MaxBytes: 1000, AtLeastOne: true})
				if err == nil {
					sp.Release()
				}
			}
		})
		wg.Wait()
		r.dir.Close()
	}
}

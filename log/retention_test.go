package log

import (
	"errors"
	"strings"
	"testing"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/segment"
	"github.com/keeplog/keeplog/vfs"
)

// A segment that a recovery ended, and that no flush has taken, may hold the only batches of a producer: they are in a window
// file before it goes.
func TestProducersOutliveTheirSegments(t *testing.T) {
	for _, truncate := range []bool{false, true} {
		r := newRig(t, vfs.NewCrash())
		r.config = smallSegments()
		l := r.log(0)
		r.add(l, sent{id: 7, size: 3000})
		if truncate { // takes the window with it
			for i := range 4 {
				r.add(l, sent{id: 7, seq: record.Sequence(i + 1), size: 3000})
			}
			must(t, l.TruncateTo(3))
			r.add(l, sent{size: 3000})
			r.add(l, sent{size: 3000})
		} else {
			for range 4 {
				_, _, err := r.write(l, sent{size: 3000})
				must(t, err)
			}
			r.kill()
			l = r.log(0)
		}
		want := l.Producers()[0]
		must(t, l.AdvanceStart(3))
		must(t, l.Retain(r.now))
		if n := len(l.Segments()); n != 1 {
			t.Fatalf("%d segments are left", n)
		}
		r.kill()
		l = r.log(0)
		if got := l.Producers(); len(got) != 1 || got[0] != want {
			t.Errorf("after a truncation %v: producers %+v, want %+v", truncate, got, want)
		}
	}
}

// A disk that is full to the last block gets room by retention and by DeleteRecords, and no producer is forgotten for it.
func TestRetentionMakesRoomOnAFullDisk(t *testing.T) {
	for what, full := range map[string]int{"from the start on": 1, "after some windows": 6} {
		for _, delete := range []bool{false, true} {
			crash := vfs.NewCrash()
			faulty := vfs.NewFaulty(crash)
			r := newRig(t, faulty)
			r.config = smallSegments()
			r.config.Segment.IndexBytes = 4096
			l := r.log(0)
			seq := record.Sequence(0)
			for range full {
				r.add(l, sent{id: 7, seq: seq, size: 3000})
				seq++
			}
			r.add(l, sent{id: 8, size: 3000})
			faulty.SetFree(14 * 4096) // for two or three more segments
			for range 10 {
				if _, _, err := r.write(l, sent{id: 7, seq: seq, size: 3000}); err != nil {
					if !errors.Is(err, ErrReserve) {
						t.Fatal(err)
					}
					break
				}
				seq++
			}
			faulty.SetFree(0)
			must(t, r.step.Run())
			if !l.f.owed {
				t.Fatalf("%s: nothing is owed: the disk was not full\n%v\n%s", what, r.names("t-0"), r.logs.String())
			}
			end, segments := l.StableEnd(), len(l.Segments())
			if delete {
				must(t, l.AdvanceStart(end-1))
			} else {
				c := r.config
				c.Retention.Bytes = 1
				l.SetConfig(c)
			}
			if err := l.Retain(r.now); err != nil {
				t.Fatalf("%s: %v\n%s", what, err, r.logs.String())
			}
			disk := crash.ForkKilled() // the process ends right now
			r.dir.Tick(r.now)
			if n := len(l.Segments()); n > 2 || n >= segments {
				t.Errorf("%s: %d segments of %d are left", what, n, segments)
			}
			if names := strings.Join(r.names("t-0"), " "); strings.Contains(names, segment.DeletedExt) {
				t.Errorf("%s: the room is not given back: %s", what, names)
			}
			before := l.Producers()
			if len(before) != 2 {
				t.Fatalf("%s: producers %+v", what, before)
			}
			r.fs = disk
			r.open()
			l = r.log(0)
			if l.StableEnd() != end {
				t.Errorf("%s: the end is %d, was %d", what, l.StableEnd(), end)
			}
			if got := l.Producers(); len(got) != 2 || got[0] != before[0] || got[1] != before[1] {
				t.Errorf("%s: producers %+v, want %+v", what, got, before)
			}
			a, _, err := r.write(l, sent{id: 7, seq: seq - 1, size: 3000})
			must(t, err)
			if !a.Duplicate {
				t.Errorf("%s: a batch that was sent again is appended: %+v", what, a)
			}
			r.add(l, sent{id: 7, seq: seq, size: 3000})
			must(t, r.dir.Close())
		}
	}
}

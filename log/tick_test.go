package log

import (
	"testing"
	"time"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// What the start finds is looked at for old segments after log.initial.task.delay.ms, what is made or comes later after a whole interval: old data that
// is written anew is there for that long.
func TestFirstLookForOldSegments(t *testing.T) {
	for name, c := range map[string]struct {
		delay         time.Duration
		restart, move bool
		after         time.Duration
	}{
		"made":               {after: time.Hour},
		"made, other delay":  {delay: 2 * time.Hour, after: time.Hour},
		"found":              {restart: true, after: 30 * time.Second},
		"found, other delay": {restart: true, delay: 2 * time.Hour, after: 2 * time.Hour},
		"found, no delay":    {restart: true, delay: -1},
		"moved":              {restart: true, move: true, after: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTwoDirs(t, vfs.NewMem(), smallSegments())
			for _, r := range d.rigs() {
				must(t, r.dir.Close())
				r.config.Retention.Age = 10 * time.Minute
				r.settings.RetentionCheckInterval, r.settings.InitialTaskDelay = time.Hour, c.delay
			}
			must(t, d.open(d.r.fs))
			r, l := d.r, d.r.log(0)
			for i := range 50 {
				r.add(l, sent{id: 7, seq: record.Sequence(i), size: 1000, ts: r.now.Add(-24 * time.Hour).UnixMilli()})
			}
			if c.restart {
				for _, r := range d.rigs() {
					must(t, r.dir.Close())
				}
				must(t, d.open(r.fs))
				l = r.log(0)
			}
			l.SetWatermark(l.WrittenEnd())
			if c.move {
				m, err := BeginMove(l, d.s.dir, nil)
				must(t, err)
				r, l = d.s, through(t, m)
			}
			begun := r.now
			r.dir.Tick(begun)
			for _, after := range []time.Duration{10 * time.Second, 30 * time.Second, time.Minute, time.Hour, 2 * time.Hour} {
				if after > c.after {
					break
				}
				r.dir.Tick(begun.Add(after - time.Millisecond))
				if start := l.StartOffset(); start != 0 {
					t.Fatalf("after %v the log begins at %d", after-time.Millisecond, start)
				}
			}
			r.dir.Tick(begun.Add(c.after))
			if start := l.StartOffset(); start == 0 {
				t.Errorf("after %v the old segments are there", c.after)
			}
		})
	}
}

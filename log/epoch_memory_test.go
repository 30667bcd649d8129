package log

import (
	"path"
	"testing"
	"time"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// A log without records still knows the epoch of its last one, however it lost them and whatever happens to the checkpoint:
// without it a follower whose records have all expired could not tell that another's history is not its own.
func TestEmptyLogRemembersItsEpoch(t *testing.T) {
	for name, empty := range map[string]func(*rig, *Log){
		"retention": func(r *rig, l *Log) {
			r.now = r.now.Add(time.Hour)
			r.config.Retention.Age = time.Minute
			l.SetConfig(r.config)
			l.SetWatermark(l.StableEnd())
			must(t, l.Retain(r.now))
		},
		"delete records": func(_ *rig, l *Log) { must(t, l.AdvanceStart(l.StableEnd())) },
		"truncation": func(r *rig, l *Log) {
			must(t, l.AdvanceStart(l.StableEnd()))
			at := l.WrittenEnd()
			must(t, l.StartEpoch(9))
			r.add(l, sent{})
			must(t, l.TruncateTo(at))
		},
	} {
		for what, then := range map[string]func(*rig){
			"stop": func(r *rig) { r.restart() },
			"kill": func(r *rig) { r.crash(vfs.Policy{Kind: vfs.KeepNone}, 0) },
			"checkpoint is lost": func(r *rig) {
				r.fs = r.fs.(*vfs.CrashFS).Kill()
				must(t, removeFile(r.fs, path.Join("/data", "t-0", EpochFile)))
				r.open()
			},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				r := newRig(t, vfs.NewCrash())
				l := r.log(0)
				must(t, l.StartEpoch(3))
				r.fill(l, 5)
				must(t, l.StartEpoch(5))
				r.fill(l, 5)
				end := l.WrittenEnd()
				empty(r, l)
				r.dir.Tick(r.now)
				check := func(when string) {
					t.Helper()
					if l.StartOffset() != end || l.WrittenEnd() != end {
						t.Fatalf("%s: offsets %d to %d, want none at %d", when, l.StartOffset(), l.WrittenEnd(), end)
					}
					if e := l.LatestEpoch(); e != 5 {
						t.Errorf("%s: the newest epoch is %d", when, e)
					}
					for asked, want := range map[record.Epoch]record.Offset{3: end, 5: end, 6: -1} {
						if _, got := l.EndOffsetForEpoch(asked); got != want {
							t.Errorf("%s: epoch %d ends at %d, want %d", when, asked, got, want)
						}
					}
				}
				check("before")
				for range 2 {
					then(r)
					l = r.log(0)
					check("after")
				}
				must(t, l.StartEpoch(7))
				if e, at := l.EndOffsetForEpoch(6); at != end {
					t.Errorf("leading in 7: epoch 6 ends at %d in %d", at, e)
				}
				r.model = map[string]*model{}
				r.modelOf(l).start = end
				r.add(l, sent{})
				if e, at := l.EndOffsetForEpoch(7); e != 7 || at != end+1 {
					t.Errorf("epoch 7 ends at %d in %d", at, e)
				}
				r.restart()
				if l = r.log(0); l.LatestEpoch() != 7 {
					t.Errorf("after a batch of epoch 7: %d", l.LatestEpoch())
				}
			})
		}
	}
}

// A log that is cut below its high watermark, which an unclean election brings about, does not start with the old one: what is
// written in place of the old records is not committed yet.
func TestCutLowersTheCheckpointedWatermark(t *testing.T) {
	for name, cut := range map[string]func(*Log) error{
		"to":  func(l *Log) error { return l.TruncateTo(4) },
		"all": func(l *Log) error { return l.TruncateFullyAndStartAt(4) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, vfs.NewCrash())
			l := r.log(0)
			for range 10 {
				r.add(l, sent{})
			}
			l.SetWatermark(10)
			r.dir.Tick(r.now.Add(time.Minute))
			must(t, cut(l))
			l.SetWatermark(4)
			r.model = map[string]*model{}
			for range 10 {
				r.add(l, sent{})
			}
			r.crash(vfs.Policy{Kind: vfs.KeepNone}, 0)
			if got := r.log(0).CheckpointedWatermark(); got > 4 {
				t.Errorf("the watermark is %d after a cut to 4", got)
			}
		})
	}
}

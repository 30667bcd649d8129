package log

import (
	"slices"
	"testing"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// What a broker found at its start is put aside by an image that may be old by then: the name may belong to a new topic, whose
// log is open or in the middle of being opened.
func TestWhatIsOpenIsNotPutAside(t *testing.T) {
	for name, other := range map[string][16]byte{"another topic's": {9}, "its own": testTopic} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, vfs.NewCrash())
			r.fill(r.log(0), 3)
			r.restart()
			found := r.dir.Found()
			id := Identity{"t", 0, other}
			must(t, r.dir.SetAside(id))
			l, err := r.dir.OpenLog(id, r.config)
			must(t, err)
			must(t, r.dir.Quarantine(found[0], "an old image has no such topic"))
			r.model = map[string]*model{}
			r.modelOf(l).start = l.WrittenEnd()
			r.add(l, sent{})
			end := l.StableEnd()
			if names := r.names(""); !slices.Contains(names, "t-0") {
				t.Fatalf("the directory of an open log is gone: %q", names)
			}
			r.crash(vfs.Policy{Kind: vfs.KeepNone}, 0)
			l, err = r.dir.OpenLog(id, r.config)
			must(t, err)
			if m, lost := l.MissingData(); lost || l.StableEnd() != end {
				t.Errorf("it ends at %d instead of %d, missing %+v", l.StableEnd(), end, m)
			}
		})
	}
}

// A directory changes its owner between the look of one and the deed of the other.
func TestPutAsideBesideAnOpening(t *testing.T) {
	for i := range 50 {
		r := newRig(t, vfs.NewMem())
		r.fill(r.log(0), 1)
		must(t, r.dir.Close())
		r.open()
		found, id := r.dir.Found(), Identity{"t", 0, [16]byte{9}}
		done := make(chan error)
		go func() { done <- r.dir.Quarantine(found[0], "an old image has no such topic") }()
		l, err := r.dir.OpenLog(id, r.config)
		if err != nil {
			if err = r.dir.SetAside(id); err == nil {
				l, err = r.dir.OpenLog(id, r.config)
			}
		}
		other := <-done
		if err != nil || l == nil {
			t.Fatalf("round %d: %v, beside %v", i, err, other)
		}
		if names := r.names(""); !slices.Contains(names, "t-0") {
			t.Fatalf("round %d: the directory of an open log is gone: %q", i, names)
		}
		if l.WrittenEnd() != record.Offset(0) {
			t.Fatalf("round %d: the new topic's log ends at %d", i, l.WrittenEnd())
		}
		must(t, r.dir.Close())
	}
}

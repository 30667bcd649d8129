package torture

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// groupScene is a group that read six records: a to the third, and b, which came in the next generation, the rest.
type groupScene struct {
	c    *Checker
	g    Share
	late CommitFloor // the floor of a question that was sent before everything else
}

func newGroupScene() *groupScene {
	s := &groupScene{c: NewChecker(), g: Share{"g", part}}
	s.late = s.c.CommitFloor(s.g)
	for i := range int64(6) {
		s.c.Acked(part, i, NewID(1, i+1))
	}
	r := s.c.Replica(part, "node 1")
	for i := range int64(6) {
		r.Record(i, NewID(1, i+1), true)
		r.Batch(i, 0, uint64(i))
	}
	return s
}

// first is what a does: it is given three records, commits two, and, without an answer, the third.
func (s *groupScene) first() {
	s.c.Owns(s.g, "a", 1)
	s.c.Resumed(s.g, 0)
	for i := range int64(3) {
		s.c.Given(s.g, i)
	}
	s.c.Committed(s.g, Commit{"a", 1, 2})
	s.c.Unsure(s.g, Commit{"a", 1, 3})
}

// second is what b does, from the offset that it was told.
func (s *groupScene) second(from int64) {
	s.c.Owns(s.g, "b", 2)
	s.shown(from)
	s.c.Resumed(s.g, from)
	for i := from; i < 6; i++ {
		s.c.Given(s.g, i)
	}
	s.c.Committed(s.g, Commit{"b", 2, 6})
	s.shown(6)
}

func (s *groupScene) shown(offset int64) { s.c.CommitShown(s.g, s.c.CommitFloor(s.g), offset) }

// TestPlantedGroups plants one violation each in a run of a group.
func TestPlantedGroups(t *testing.T) {
	for _, tc := range []struct {
		name string
		run  func(*groupScene)
		want map[Kind]int
	}{
		{"nothing wrong", func(s *groupScene) { s.first(); s.second(2) }, nil},
		{"a commit without an answer was carried out", func(s *groupScene) { s.first(); s.second(3) }, nil},
		{"an answer to an early question", func(s *groupScene) { s.first(); s.second(2); s.c.CommitShown(s.g, s.late, 1) }, nil},
		{"a commit without an answer is carried out behind a later one of the same member", func(s *groupScene) {
			s.first()
			s.c.Committed(s.g, Commit{"a", 1, 4})
			s.c.Given(s.g, 3)
			s.shown(3)
			s.second(3)
		}, nil},
		{"an acknowledged commit is gone", func(s *groupScene) { s.first(); s.second(-1); s.c.Given(s.g, 0) }, map[Kind]int{CommitLost: 1}},
		{"an acknowledged commit is gone, an older one is there", func(s *groupScene) { s.first(); s.second(1) }, map[Kind]int{CommitLost: 1}},
		{"all commits are gone in the end", func(s *groupScene) { s.first(); s.second(2); s.shown(-1) }, map[Kind]int{CommitLost: 1}},
		{"a commit without an answer was told, and is gone", func(s *groupScene) { s.first(); s.shown(3); s.second(2) }, map[Kind]int{CommitWentBack: 1}},
		{"a commit of a member that is out is carried out behind one of the next owner", func(s *groupScene) { s.first(); s.second(2); s.shown(3) }, map[Kind]int{CommitLost: 1}},
		{"two members have a partition in one generation", func(s *groupScene) { s.first(); s.second(2); s.c.Owns(s.g, "c", 2) }, map[Kind]int{TwoOwners: 1}},
		{"a member is told twice what it has", func(s *groupScene) { s.first(); s.second(2); s.c.Owns(s.g, "b", 2) }, nil},
		{"a partition is given out while another member has it", func(s *groupScene) {
			s.first()
			s.c.Holds(s.g, Hold{"a", 0, time.Second})
			s.second(2)
			s.c.Holds(s.g, Hold{"b", 2 * time.Second, 3 * time.Second})
		}, map[Kind]int{TwoOwners: 1}},
		{"a partition is given out when another member gave it up", func(s *groupScene) {
			s.first()
			s.c.Holds(s.g, Hold{"a", 0, time.Second})
			s.c.Released(s.g, "a")
			s.second(2)
			s.c.Holds(s.g, Hold{"b", 2 * time.Second, 3 * time.Second})
			s.c.Holds(s.g, Hold{"b", 3 * time.Second, 4 * time.Second})
		}, nil},
		{"a partition is given out when another member was not in touch", func(s *groupScene) {
			s.first()
			s.c.Holds(s.g, Hold{"a", 0, time.Second})
			s.second(2)
			s.c.Holds(s.g, Hold{"b", 2 * time.Second, holdTime})
		}, nil},
		{"a member begins behind what was read", func(s *groupScene) { s.first(); s.second(5) }, map[Kind]int{Missed: 2}},
		{"records are committed that nobody was given", func(s *groupScene) { s.first(); s.c.Committed(s.g, Commit{"a", 1, 5}) }, map[Kind]int{Missed: 2}},
		{"a record that is not read yet", func(s *groupScene) {
			s.first()
			s.c.Acked(part, 6, NewID(1, 7))
			s.c.Replica(part, "node 1").Record(6, NewID(1, 7), true)
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newGroupScene()
			tc.run(s)
			v := s.c.Verdict()
			got := map[Kind]int{}
			for _, k := range groupKinds() {
				if v.Counts[k] > 0 {
					got[k] = v.Counts[k]
				}
			}
			want := tc.want
			if want == nil {
				want = map[Kind]int{}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("violations (-want +got):\n%s\n%v", d, v.Told)
			}
			if sums := v.Sums(); !strings.Contains(sums, "  commits ") || !strings.Contains(sums, "  missed ") {
				t.Errorf("the sums do not tell of groups: %s", sums)
			}
		})
	}
}

package torture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keeplog/keeplog/internal/dump"
)

// stage is a cluster without processes, which writes down what is done to it.
type stage struct {
	mu    sync.Mutex
	up    map[int32]bool
	calls []string
	fails error
}

func newStage() *stage { return &stage{up: map[int32]bool{1: true, 2: true, 3: true}} }

func (s *stage) Nodes() []Node { return []Node{{ID: 1}, {ID: 2}, {ID: 3}} }

func (s *stage) call(what string, node int32, up bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf("%s %d", what, node))
	if s.fails == nil {
		s.up[node] = up
	}
	return s.fails
}

func (s *stage) Start(node int32) error  { return s.call("start", node, true) }
func (s *stage) Kill(node int32) error   { return s.call("kill", node, false) }
func (s *stage) Pause(node int32) error  { return s.call("pause", node, true) }
func (s *stage) Resume(node int32) error { return s.call("resume", node, true) }
func (s *stage) Stop(node int32) error   { return s.call("stop", node, false) }

func (s *stage) Running(node int32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up[node]
}

func (s *stage) LastWords(int32) string { return "panic: a hole" }
func (s *stage) NoDisk() string         { return "" }
func (s *stage) NoPower() string        { return "" }
func (s *stage) FailSync(_ context.Context, node int32) error {
	return s.call("fail the fsyncs of", node, false)
}

func (s *stage) SlowSync(node int32, each time.Duration) (func(), error) {
	err := s.call(fmt.Sprintf("slow by %s", each), node, true)
	return func() { _ = s.call("let go", node, true) }, err
}

func (s *stage) PowerFail(nodes []int32, _ uint64) error {
	for _, n := range nodes {
		_ = s.call("power of", n, false)
	}
	return s.fails
}

func newNemesis(s *stage) *nemesis {
	n := &nemesis{cluster: s, check: NewChecker(), places: &places{}, began: time.Now(), say: func(string) {}}
	n.init()
	return n
}

// TestDo: what each step does to a node that runs and to one that does not, and what is a violation.
func TestDo(t *testing.T) {
	at := []int32{2}
	for _, tc := range []struct {
		name    string
		step    step
		down    bool // the node has ended by itself before
		fails   error
		calls   []string
		changes []bool // of node 2: up or not
		counts  map[Kind]int
	}{
		{"kill", step{act: actKill, nodes: at}, false, nil, []string{"kill 2"}, []bool{false}, nil},
		{"stop", step{act: actStop, nodes: at}, false, nil, []string{"stop 2"}, []bool{false}, nil},
		{"pause", step{act: actPause, nodes: at}, false, nil, []string{"pause 2"}, []bool{false}, nil},
		{"resume", step{act: actResume, nodes: at}, false, nil, []string{"resume 2"}, []bool{true}, nil},
		{"fail fsyncs", step{act: actSync, nodes: at}, false, nil, []string{"fail the fsyncs of 2"}, []bool{false}, nil},
		{"slow fsyncs", step{act: actStall, nodes: at, hold: time.Second}, false, nil, []string{"slow by 1s 2"}, nil, nil},
		{"power", step{act: actPower, nodes: []int32{1, 2}}, false, nil, []string{"power of 1", "power of 2"}, []bool{false}, nil},
		{"start what is down", step{act: actStart, nodes: at}, true, nil, []string{"start 2"}, []bool{true}, nil},
		{"start what runs", step{act: actStart, nodes: at}, false, nil, nil, nil, nil},
		{"nobody", step{act: actKill}, false, nil, nil, nil, nil},
		{"kill what has ended", step{act: actKill, nodes: at}, true, nil, []string{"start 2"}, []bool{true}, map[Kind]int{Ended: 1}},
		{"pause what has ended", step{act: actPause, nodes: at}, true, nil, []string{"start 2"}, []bool{true}, map[Kind]int{Ended: 1}},
		{"resume what has ended", step{act: actResume, nodes: at}, true, nil, []string{"start 2"}, []bool{true}, map[Kind]int{Ended: 1}},
		{"stop does not work", step{act: actStop, nodes: at}, false, errors.New("hangs"), []string{"stop 2"}, []bool{false}, map[Kind]int{NotHealed: 1}},
		{"a node survives that should not", step{act: actSync, nodes: at}, false, errors.New("went on"), []string{"fail the fsyncs of 2"}, []bool{false}, map[Kind]int{NotHealed: 1}},
		{"it does not start", step{act: actStart, nodes: at}, true, errors.New("no"), []string{"start 2"}, []bool{true}, map[Kind]int{NotHealed: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStage()
			s.up[2], s.fails = !tc.down, tc.fails
			n := newNemesis(s)
			n.do(t.Context(), tc.step, job{})
			if d := cmp.Diff(tc.calls, s.calls); d != "" {
				t.Errorf("calls (-want +got):\n%s", d)
			}
			var ups []bool
			for _, c := range n.changes {
				if c.Node == 2 {
					ups = append(ups, c.Up)
				}
			}
			if d := cmp.Diff(tc.changes, ups); d != "" {
				t.Errorf("changes (-want +got):\n%s", d)
			}
			want := tc.counts
			if want == nil {
				want = map[Kind]int{}
			}
			if d := cmp.Diff(want, n.check.counts); d != "" {
				t.Errorf("violations (-want +got):\n%s", d)
			}
		})
	}
}

// TestHeal: whatever state a plan was left in, every node runs afterwards, and only what nobody has ended is told.
func TestHeal(t *testing.T) {
	s := newStage()
	n := newNemesis(s)
	n.do(t.Context(), step{act: actPause, nodes: []int32{1}}, job{})
	n.do(t.Context(), step{act: actKill, nodes: []int32{2}}, job{})
	n.do(t.Context(), step{act: actStall, nodes: []int32{3}, hold: time.Second}, job{})
	s.up[3] = false // its disk hung for too long: it ends itself, as promised
	n.heal()
	slices.Sort(s.calls)
	want := []string{"kill 2", "let go 3", "pause 1", "resume 1", "slow by 1s 3", "start 2"}
	if d := cmp.Diff(want, s.calls); d != "" { // "let go" brings the stage's node back
		t.Errorf("calls (-want +got):\n%s", d)
	}
	if len(n.check.counts) > 0 {
		t.Errorf("violations: %v", n.check.told)
	}
	n = newNemesis(s)
	s.up[1] = false
	n.heal()
	if n.check.counts[Ended] != 1 || !s.up[1] {
		t.Errorf("a node that ended by itself: %v, up %v", n.check.counts, s.up)
	}
}

// TestStepsInOrder: steps that the end of the run has pushed together are done in their order, and those of one kind for all nodes.
func TestStepsInOrder(t *testing.T) {
	s := newStage()
	n := newNemesis(s)
	at := []int32{2}
	n.carry(t.Context(), job{fault: FaultKill, nodes: at, steps: []step{
		{act: actKill, nodes: at}, {act: actStart, nodes: at}, {act: actKill, nodes: at}, {act: actStart, nodes: at},
	}})
	if d := cmp.Diff([]string{"kill 2", "start 2", "kill 2", "start 2"}, s.calls); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
	s.calls = nil
	all := []int32{1, 2, 3}
	var steps []step
	for _, a := range []act{actKill, actStart} {
		for _, id := range all {
			steps = append(steps, step{act: a, nodes: []int32{id}})
		}
	}
	n.carry(t.Context(), job{fault: FaultKillAll, nodes: all, steps: steps})
	slices.Sort(s.calls[:3])
	slices.Sort(s.calls[3:])
	if d := cmp.Diff([]string{"kill 1", "kill 2", "kill 3", "start 1", "start 2", "start 3"}, s.calls); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
	if len(n.check.counts) > 0 {
		t.Errorf("violations: %v", n.check.told)
	}
}

// TestHold: a node is in one hand at a time.
func TestHold(t *testing.T) {
	n := newNemesis(newStage())
	if got := n.hold(t.Context(), []int32{1, 2}, 0); !slices.Equal(got, []int32{1, 2}) {
		t.Fatalf("free nodes: %v", got)
	}
	if got := n.hold(t.Context(), []int32{2, 3}, 0); !slices.Equal(got, []int32{3}) {
		t.Fatalf("one of them is taken: %v", got)
	}
	n.release([]int32{2})
	if got := n.hold(t.Context(), []int32{2}, 0); !slices.Equal(got, []int32{2}) {
		t.Fatalf("it was given back: %v", got)
	}
}

// TestDamaged: what the check of the files finds is a violation, unless it was done on purpose there; and then it must be found.
func TestDamaged(t *testing.T) {
	planted := &rot{node: 2, part: part, file: "/d/t-0/0.log", at: 130, from: 100, to: 200}
	for _, tc := range []struct {
		name    string
		problem dump.Problem
		damaged int
		found   bool
	}{
		{"damage", dump.Problem{Severity: dump.Damage, File: "/d/t-0/1.log", Position: 100, End: 200}, 1, false},
		{"on purpose", dump.Problem{Severity: dump.Damage, File: "/d/t-0/0.log", Position: 100, End: 200}, 0, true},
		{"elsewhere in the file", dump.Problem{Severity: dump.Damage, File: "/d/t-0/0.log", Position: 200, End: 300}, 1, false},
		{"the whole file", dump.Problem{Severity: dump.Damage, File: "/d/t-0/0.log", Position: -1, End: -1}, 1, false},
		{"a note", dump.Problem{Severity: dump.Note, File: "/d/t-0/1.log", Position: 1, End: 2}, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			again := *planted
			r := &run{check: NewChecker()}
			s := &fileSink{run: r, node: Node{ID: 2, DataDir: "/d"}, planted: []*rot{&again}}
			if err := s.Put(&tc.problem); err != nil {
				t.Fatal(err)
			}
			if got := r.check.counts[Damaged]; got != tc.damaged || again.found != tc.found {
				t.Errorf("%d damaged, found %v", got, again.found)
			}
		})
	}
}

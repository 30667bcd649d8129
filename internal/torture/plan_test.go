package torture

import (
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"testing"
	"time"
)

func seed(t *testing.T) uint64 {
	s, err := strconv.ParseUint(os.Getenv("KEEPLOG_SEED"), 10, 64)
	if err != nil {
		s = rand.Uint64()
	}
	t.Logf("seed %d", s)
	return s
}

// TestPlan: whatever the seed, a node that a plan ends or pauses runs again no later than the end, and only what runs is ended.
func TestPlan(t *testing.T) {
	first := seed(t)
	for i := range uint64(300) {
		o := planOptions{seed: first + i, duration: 60 * time.Second, interval: 4 * time.Second, nodes: []int32{1, 2, 3}, faults: FaultNames()}
		p := newPlan(o)
		if !reflect.DeepEqual(p, newPlan(o)) {
			t.Fatalf("seed %d: two plans of one seed", o.seed)
		}
		faults := 0
		for _, n := range p.faults {
			faults += n
		}
		if faults < 3 || faults > 40 {
			t.Errorf("seed %d: %d faults in 60 s at a mean interval of 4 s", o.seed, faults)
		}
		for node, steps := range p.steps {
			checkSteps(t, o, node, steps)
		}
	}
}

func checkSteps(t *testing.T, o planOptions, node int32, steps []step) {
	t.Helper()
	state := actStart
	var at time.Duration
	for i, s := range steps {
		if s.node != node || s.at < at || s.at > o.duration {
			t.Fatalf("seed %d: step %d of node %d: %+v after %v", o.seed, i, node, s, at)
		}
		if s.act == actResume && s.at < o.duration && (s.at-at < 500*time.Millisecond || s.at-at > 15*time.Second) {
			t.Errorf("seed %d: node %d is paused for %v", o.seed, node, s.at-at)
		}
		allowed := map[act][]act{
			actStart: {actKill, actPause, actStop}, actResume: {actKill, actPause, actStop},
			actKill: {actStart}, actStop: {actStart}, actPause: {actResume},
		}[state]
		ok := false
		for _, a := range allowed {
			ok = ok || a == s.act
		}
		if !ok {
			t.Fatalf("seed %d: node %d: %s after %s", o.seed, node, s.act, state)
		}
		state, at = s.act, s.at
	}
	if state != actStart && state != actResume {
		t.Errorf("seed %d: the plan leaves node %d after %s", o.seed, node, state)
	}
}

// TestPlanHasEveryFault: each fault comes in time, and one that was not asked for never.
func TestPlanHasEveryFault(t *testing.T) {
	for _, fault := range FaultNames() {
		p := newPlan(planOptions{seed: seed(t), duration: time.Minute, interval: time.Second, nodes: []int32{1, 2, 3}, faults: []string{fault}})
		if len(p.faults) != 1 || p.faults[fault] == 0 {
			t.Errorf("%s: %v", fault, p.faults)
		}
	}
	if p := newPlan(planOptions{seed: 1, duration: time.Minute, interval: time.Second, nodes: []int32{1}}); len(p.steps) != 0 {
		t.Errorf("no faults were asked for: %v", p)
	}
}

func TestParseFaults(t *testing.T) {
	if got, err := ParseFaults("kill, pause-all,kill"); err != nil || !reflect.DeepEqual(got, []string{FaultKill, FaultPauseAll}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := ParseFaults(""); err != nil || len(got) != len(FaultNames()) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := ParseFaults("kill,fire"); err == nil {
		t.Error("an unknown fault is taken")
	}
}

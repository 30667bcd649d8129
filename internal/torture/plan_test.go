package torture

import (
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
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

// TestPlan: whatever the seed, what a plan ends, pauses or cuts runs again and is whole no later than the end, and only what runs is ended.
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
		if faults < 3 || faults > 40 || faults != len(p.jobs) {
			t.Errorf("seed %d: %d faults in %d jobs in 60 s at a mean interval of 4 s", o.seed, faults, len(p.jobs))
		}
		checkJobs(t, o, p.jobs)
	}
}

// checkJobs: the steps of jobs lie in the run and in order; of one node, of the network and of the operator one job follows another.
func checkJobs(t *testing.T, o planOptions, jobs []job) {
	t.Helper()
	until := map[any]time.Duration{}
	for i, j := range jobs {
		at := j.at()
		if i > 0 && at < jobs[i-1].at() {
			t.Fatalf("seed %d: job %d is before the one before it", o.seed, i)
		}
		last := at
		for _, s := range j.steps {
			if s.at < last || s.at > o.duration {
				t.Fatalf("seed %d: %s: %+v after %v", o.seed, j.fault, s, last)
			}
			last = s.at
		}
		lane := faultNamed(j.fault).lane
		keys := []any{lane}
		if lane == laneNode {
			keys = nil
			for _, n := range j.nodes {
				keys = append(keys, n)
				checkSteps(t, o, j, n)
			}
		}
		for _, k := range keys {
			if at < until[k] {
				t.Errorf("seed %d: %s begins at %v, and %v is taken until %v", o.seed, j.fault, at, k, until[k])
			}
			until[k] = last
		}
		if lane == laneNetwork && j.fault != FaultDrop && j.steps[len(j.steps)-1].act != actMend {
			t.Errorf("seed %d: %s leaves the network broken", o.seed, j.fault)
		}
	}
}

// checkSteps follows one node through a job.
func checkSteps(t *testing.T, o planOptions, j job, node int32) {
	t.Helper()
	ends := []act{actKill, actPause, actStop, actSync, actStall, actPower}
	state, at := actStart, time.Duration(0)
	for _, s := range j.steps {
		if !slices.Contains(s.nodes, node) {
			continue
		}
		allowed := map[act][]act{
			actStart: ends, actKill: {actStart}, actStop: {actStart}, actPause: {actResume}, actSync: {actStart}, actPower: {actStart}, actStall: {actMend},
		}[state]
		if !slices.Contains(allowed, s.act) {
			t.Fatalf("seed %d: node %d: %s after %s", o.seed, node, s.act, state)
		}
		if s.act == actResume && s.at < o.duration && (s.at-at < 500*time.Millisecond || s.at-at > 15*time.Second) {
			t.Errorf("seed %d: node %d is paused for %v", o.seed, node, s.at-at)
		}
		state, at = s.act, s.at
	}
	if !slices.Contains([]act{actStart, actResume, actMend}, state) {
		t.Errorf("seed %d: %s leaves node %d after %s", o.seed, j.fault, node, state)
	}
}

// TestNetworkPlans: what each fault of the network cuts.
func TestNetworkPlans(t *testing.T) {
	nodes := []int32{1, 2, 3}
	first := seed(t)
	reached := map[string]bool{}
	for i := range uint64(200) {
		for _, fault := range []string{FaultIsolate, FaultSplit, FaultBridge, FaultOneWay, FaultSlow} {
			p := newPlan(planOptions{seed: first + i, duration: 20 * time.Second, interval: 2 * time.Second, nodes: nodes, faults: []string{fault}})
			for _, j := range p.jobs {
				links := j.steps[0].net.links
				cut := map[Link]bool{}
				for _, l := range links {
					cut[l] = true
					if l.From == l.To {
						t.Fatalf("%s cuts %v", fault, links)
					}
				}
				both := 0
				for l := range cut {
					if cut[Link{l.To, l.From}] {
						both++
					}
				}
				group := together(nodes, nil, both2(cut))
				switch {
				case len(links) == 0:
					t.Errorf("%s does nothing", fault)
				case fault == FaultOneWay && (both > 0 || j.steps[0].net.refuse):
					t.Errorf("one way is both ways: %v", links)
				case fault == FaultBridge && (group != 2 || len(links) != 2):
					t.Errorf("bridge: %v", links)
				case fault == FaultIsolate && group != 2:
					t.Errorf("isolate: a group of %d: %v", group, links)
				case fault == FaultSplit:
					reached["split "+strconv.Itoa(group)] = true
				}
			}
		}
	}
	if !reached["split 1"] || !reached["split 2"] {
		t.Errorf("splits with and without a majority: %v", reached)
	}
}

func both2(cut map[Link]bool) map[Link]bool {
	out := map[Link]bool{}
	for l := range cut {
		out[l], out[Link{l.To, l.From}] = true, true
	}
	return out
}

// TestPlanHasEveryFault: each fault comes in time, and one that was not asked for never.
func TestPlanHasEveryFault(t *testing.T) {
	for _, fault := range FaultNames() {
		p := newPlan(planOptions{seed: seed(t), duration: time.Minute, interval: time.Second, nodes: []int32{1, 2, 3}, faults: []string{fault}})
		if len(p.faults) != 1 || p.faults[fault] == 0 {
			t.Errorf("%s: %v", fault, p.faults)
		}
	}
	if p := newPlan(planOptions{seed: 1, duration: time.Minute, interval: time.Second, nodes: []int32{1}}); len(p.jobs) != 0 {
		t.Errorf("no faults were asked for: %v", p)
	}
}

// TestPlanIsMixed: in the time that a check before each change has, nearly every kind is dealt.
func TestPlanIsMixed(t *testing.T) {
	first := seed(t)
	for i := range uint64(50) {
		p := newPlan(planOptions{seed: first + i, duration: 2 * time.Minute, interval: 3 * time.Second, nodes: []int32{1, 2, 3}, faults: FaultNames()})
		if len(p.faults) < 14 {
			t.Errorf("seed %d: only %v", first+i, p.faults)
		}
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

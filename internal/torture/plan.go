package torture

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// The faults that a plan may hold.
const (
	FaultKill       = "kill"        // kill -9 one node; now and then again while it recovers
	FaultKillAll    = "kill-all"    // kill -9 all nodes at once
	FaultPause      = "pause"       // SIGSTOP one node for 0.5 to 15 s
	FaultPauseAll   = "pause-all"   // SIGSTOP all nodes
	FaultRestart    = "restart"     // stop one node cleanly and start it again
	FaultRestartAll = "restart-all" // stop all nodes cleanly at once
)

// FaultNames are all faults, in the order in which they are told.
func FaultNames() []string {
	return []string{FaultKill, FaultKillAll, FaultPause, FaultPauseAll, FaultRestart, FaultRestartAll}
}

// weights say how often each fault is chosen, against the others of a run.
var weights = map[string]int{
	FaultKill: 10, FaultKillAll: 3, FaultPause: 8, FaultPauseAll: 2, FaultRestart: 6, FaultRestartAll: 1,
}

// ParseFaults reads a list such as "kill,pause"; an empty one is all.
func ParseFaults(list string) ([]string, error) {
	if strings.TrimSpace(list) == "" {
		return FaultNames(), nil
	}
	var out []string
	for _, f := range strings.Split(list, ",") {
		f = strings.TrimSpace(f)
		if !slices.Contains(FaultNames(), f) {
			return nil, fmt.Errorf("unknown fault %q", f)
		}
		if !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out, nil
}

// act is what is done to a node.
type act uint8

const (
	actKill act = iota
	actStart
	actPause
	actResume
	actStop
)

func (a act) String() string { return [...]string{"kill -9", "start", "pause", "resume", "stop"}[a] }

// step is one thing done to one node.
type step struct {
	at   time.Duration // since the start of the run
	node int32
	act  act
}

// plan is what a run will do: the steps of each node in order, and how often each fault is in it.
type plan struct {
	steps  map[int32][]step
	faults map[string]int
}

// planOptions are what a plan follows from.
type planOptions struct {
	seed     uint64
	duration time.Duration
	interval time.Duration // mean time between the beginnings of faults
	nodes    []int32
	faults   []string
}

// calm is how long the run begins without faults.
const calm = 500 * time.Millisecond

// newPlan decides everything ahead. Every node that a step ends or pauses is started or resumed by a later one, no later than the
// end of the run; faults of different nodes overlap.
func newPlan(o planOptions) plan {
	rng := rand.New(rand.NewPCG(o.seed, 0x6e656d65))
	p := plan{steps: map[int32][]step{}, faults: map[string]int{}}
	free := map[int32]time.Duration{} // from when on nothing is planned for the node
	for at := calm; len(o.faults) > 0; {
		at += time.Duration((0.5 + rng.ExpFloat64()/2) * float64(o.interval))
		if at >= o.duration {
			return p
		}
		fault := choose(rng, o.faults)
		var victims []int32
		if strings.HasSuffix(fault, "-all") {
			victims = o.nodes
			for _, n := range o.nodes {
				at = max(at, free[n])
			}
		} else if n, ok := oneFree(rng, o.nodes, free, at); ok {
			victims = []int32{n}
		}
		if len(victims) == 0 || at >= o.duration {
			continue
		}
		p.faults[fault]++
		for _, n := range victims {
			steps := stepsOf(rng, fault, at, n)
			for i := range steps {
				steps[i].at = min(steps[i].at, o.duration)
			}
			p.steps[n] = append(p.steps[n], steps...)
			free[n] = steps[len(steps)-1].at + 300*time.Millisecond
		}
	}
	return p
}

func choose(rng *rand.Rand, faults []string) string {
	all := 0
	for _, f := range faults {
		all += weights[f]
	}
	at := rng.IntN(all)
	for _, f := range faults {
		if at -= weights[f]; at < 0 {
			return f
		}
	}
	return faults[0]
}

func oneFree(rng *rand.Rand, nodes []int32, free map[int32]time.Duration, at time.Duration) (int32, bool) {
	for _, i := range rng.Perm(len(nodes)) {
		if n := nodes[i]; free[n] <= at {
			return n, true
		}
	}
	return 0, false
}

// stepsOf is what a fault that begins at a time does to one node.
func stepsOf(rng *rand.Rand, fault string, at time.Duration, node int32) []step {
	upTo := func(ms int) time.Duration { return time.Duration(rng.IntN(ms)) * time.Millisecond }
	switch fault {
	case FaultPause, FaultPauseAll:
		most := 15.0
		if fault == FaultPauseAll {
			most = 8
		}
		// As many pauses between 0.5 and 1 s as between 1 and 2, 2 and 4 …
		hold := time.Duration(0.5 * math.Pow(most/0.5, rng.Float64()) * float64(time.Second))
		return []step{{at, node, actPause}, {at + hold, node, actResume}}
	case FaultRestart, FaultRestartAll:
		return []step{{at, node, actStop}, {at + upTo(1000), node, actStart}}
	}
	steps := []step{{at, node, actKill}, {at + upTo(4000), node, actStart}}
	if fault == FaultKill && rng.IntN(4) == 0 {
		again := steps[1].at + upTo(300)
		steps = append(steps, step{again, node, actKill}, step{again + upTo(1000), node, actStart})
	}
	return steps
}

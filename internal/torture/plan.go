package torture

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// act is a single thing that is done.
type act uint8

const (
	actKill act = iota
	actStart
	actPause
	actResume
	actStop
	actCut
	actSlow
	actDrop
	actMend
	actSync
	actStall
	actPower
	actOperate
)

func (a act) String() string {
	return [...]string{
		"kill -9", "start", "pause", "resume", "stop", "cut", "slow", "drop", "mend",
		"fail the fsyncs of", "slow the fsyncs of", "cut the power of", "operate",
	}[a]
}

// step is one thing done, to a node or to links.
type step struct {
	at    time.Duration // since the start of the run
	act   act
	nodes []int32
	net   change
	hold  time.Duration // of actStall and actOperate: how long
}

// change is what a step does to the network.
type change struct {
	links   []Link
	refuse  bool
	latency time.Duration
	rate    int // bytes a second
}

// job is one fault: its steps in the order of their times, and the nodes that it needs for itself.
type job struct {
	fault string
	nodes []int32
	steps []step
	seed  uint64 // of what can only be chosen then
}

func (j *job) at() time.Duration { return j.steps[0].at }

// plan is what a run will do, by the time at which it begins.
type plan struct {
	jobs   []job
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

// planner makes a plan.
type planner struct {
	planOptions
	rng  *rand.Rand
	free map[int32]time.Duration // from when on nothing is planned for the node
	lane map[lane]time.Duration
	deck []string
}

// newPlan decides ahead what can be. Whatever a step ends, pauses or cuts is started, resumed or mended by a later one, no later than
// the end of the run. Faults are dealt like cards, so that also a short run has many kinds.
func newPlan(o planOptions) plan {
	b := &planner{
		planOptions: o, rng: rand.New(rand.NewPCG(o.seed, 0x6e656d65)), free: map[int32]time.Duration{}, lane: map[lane]time.Duration{},
	}
	p := plan{faults: map[string]int{}}
	for at := calm; len(o.faults) > 0; {
		at += time.Duration((0.5 + b.rng.ExpFloat64()/2) * float64(o.interval))
		if at >= o.duration {
			break
		}
		f := b.deal()
		j, ok := b.job(f, at)
		if !ok {
			continue
		}
		p.faults[f.Name]++
		for i := range j.steps {
			j.steps[i].at = min(j.steps[i].at, o.duration)
		}
		p.jobs = append(p.jobs, j)
	}
	slices.SortStableFunc(p.jobs, func(a, b job) int { return cmp.Compare(a.at(), b.at()) })
	return p
}

// deal is the next card. A fault whose lane is taken now is put back.
func (b *planner) deal() Fault {
	if len(b.deck) == 0 {
		for _, name := range b.faults {
			for range faultNamed(name).weight {
				b.deck = append(b.deck, name)
			}
		}
		b.rng.Shuffle(len(b.deck), func(i, j int) { b.deck[i], b.deck[j] = b.deck[j], b.deck[i] })
	}
	name := b.deck[len(b.deck)-1]
	b.deck = b.deck[:len(b.deck)-1]
	return faultNamed(name)
}

// job plans a fault that begins at a time or, where everybody must be free, soon after; false when that does not go.
func (b *planner) job(f Fault, at time.Duration) (job, bool) {
	j := job{fault: f.Name, seed: b.rng.Uint64()}
	switch {
	case f.lane != laneNode:
		at = max(at, b.lane[f.lane])
	case f.all:
		j.nodes = b.nodes
		for _, n := range b.nodes {
			at = max(at, b.free[n])
		}
	default:
		n, ok := b.oneFree(at)
		if !ok {
			b.deck = append(b.deck, f.Name)
			return j, false
		}
		j.nodes = []int32{n}
	}
	if at >= b.duration {
		return j, false
	}
	switch f.lane {
	case laneNode:
		j.steps = b.nodeSteps(f.Name, at, j.nodes)
	case laneNetwork:
		j.steps = b.networkSteps(f.Name, at)
	case laneOperator:
		hold := b.between(1500, 8000)
		j.steps = []step{{at: at, act: actOperate, hold: hold}, {at: at + hold, act: actMend}}
		if f.Name == FaultFull {
			j.nodes = b.some()
		}
	}
	slices.SortStableFunc(j.steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	end := j.steps[len(j.steps)-1].at + 300*time.Millisecond
	b.lane[f.lane] = end
	if f.lane == laneNode {
		for _, n := range j.nodes {
			b.free[n] = end
		}
	}
	return j, true
}

// some is mostly one node, else all.
func (b *planner) some() []int32 {
	if b.rng.IntN(4) == 0 {
		return b.nodes
	}
	return []int32{b.nodes[b.rng.IntN(len(b.nodes))]}
}

func (b *planner) oneFree(at time.Duration) (int32, bool) {
	for _, i := range b.rng.Perm(len(b.nodes)) {
		if n := b.nodes[i]; b.free[n] <= at {
			return n, true
		}
	}
	return 0, false
}

func (b *planner) upTo(ms int) time.Duration { return time.Duration(b.rng.IntN(ms)) * time.Millisecond }

// between is a time with as much chance between 1 and 2 s as between 2 and 4.
func (b *planner) between(low, high float64) time.Duration {
	return time.Duration(low * math.Pow(high/low, b.rng.Float64()) * float64(time.Millisecond))
}

// nodeSteps is what a fault that begins at a time does to nodes.
func (b *planner) nodeSteps(fault string, at time.Duration, nodes []int32) []step {
	var steps []step
	each := func(first act, then act, after func() time.Duration) {
		for _, n := range nodes {
			one := []int32{n}
			steps = append(steps, step{at: at, act: first, nodes: one}, step{at: at + after(), act: then, nodes: one})
		}
	}
	switch fault {
	case FaultPause:
		each(actPause, actResume, func() time.Duration { return b.between(500, 15000) })
	case FaultPauseAll:
		each(actPause, actResume, func() time.Duration { return b.between(500, 8000) })
	case FaultRestart, FaultRestartAll:
		each(actStop, actStart, func() time.Duration { return b.upTo(1000) })
	case FaultSync:
		each(actSync, actStart, func() time.Duration { return time.Second + b.upTo(3000) })
	case FaultStall:
		hold := b.between(1500, 8000)
		steps = append(steps, step{at: at, act: actStall, nodes: nodes, hold: b.between(300, 3000)}, step{at: at + hold, act: actMend, nodes: nodes})
	case FaultPower, FaultPowerAll:
		each(actPower, actStart, func() time.Duration { return 500*time.Millisecond + b.upTo(2000) })
		// The power goes for all at the same time.
		together := step{at: at, act: actPower, nodes: nodes}
		steps = append(slices.DeleteFunc(steps, func(s step) bool { return s.act == actPower }), together)
	case FaultKillAll:
		each(actKill, actStart, func() time.Duration { return b.upTo(4000) })
	default:
		each(actKill, actStart, func() time.Duration { return b.upTo(4000) })
		if b.rng.IntN(4) == 0 {
			again := steps[1].at + b.upTo(300)
			steps = append(steps, step{at: again, act: actKill, nodes: nodes}, step{at: again + b.upTo(1000), act: actStart, nodes: nodes})
		}
	}
	return steps
}

// networkSteps is what a fault that begins at a time does to the network.
func (b *planner) networkSteps(fault string, at time.Duration) []step {
	hold := b.between(1000, 12000)
	c := change{refuse: b.rng.IntN(3) == 0}
	one := b.nodes[b.rng.IntN(len(b.nodes))]
	first := actCut
	switch fault {
	case FaultIsolate:
		for _, n := range b.nodes {
			if n != one {
				c.links = append(c.links, Link{one, n}, Link{n, one})
			}
		}
		if b.rng.IntN(3) == 0 {
			c.links = append(c.links, Link{one, Clients}, Link{Clients, one})
		}
	case FaultSplit:
		c.links = b.split()
	case FaultBridge:
		for _, n := range b.nodes {
			for _, m := range b.nodes {
				if n != m && n != one && m != one {
					c.links = append(c.links, Link{n, m})
				}
			}
		}
	case FaultOneWay:
		c.links, c.refuse = b.oneWay(one), false
	case FaultSlow:
		first, c.refuse = actSlow, false
		c.latency, c.rate = b.between(5, 500), int(float64(256<<10)*math.Pow(16, b.rng.Float64()))
		whole := b.rng.IntN(3) == 0
		for _, l := range b.links() {
			if whole || l.From == one || l.To == one {
				c.links = append(c.links, l)
			}
		}
	case FaultDrop:
		return b.drops(at, one)
	}
	return []step{{at: at, act: first, net: c}, {at: at + hold, act: actMend}}
}

// links are all directions between nodes.
func (b *planner) links() []Link {
	var out []Link
	for _, n := range b.nodes {
		for _, m := range b.nodes {
			if n != m {
				out = append(out, Link{n, m})
			}
		}
	}
	return out
}

// split parts the nodes into groups: two, or each for itself.
func (b *planner) split() []Link {
	group := map[int32]int{}
	order := b.rng.Perm(len(b.nodes))
	first := 1 + b.rng.IntN(len(b.nodes)-1)
	alone := b.rng.IntN(3) == 0
	for i, at := range order {
		switch {
		case alone:
			group[b.nodes[at]] = i
		case i >= first:
			group[b.nodes[at]] = 1
		}
	}
	return slices.DeleteFunc(b.links(), func(l Link) bool { return group[l.From] == group[l.To] })
}

// oneWay cuts one direction: all that a node sends to others, all that is sent to it, or a single link.
func (b *planner) oneWay(one int32) []Link {
	all := b.links()
	switch b.rng.IntN(3) {
	case 0:
		return slices.DeleteFunc(all, func(l Link) bool { return l.From != one })
	case 1:
		return slices.DeleteFunc(all, func(l Link) bool { return l.To != one })
	}
	at := b.rng.IntN(len(all))
	return all[at : at+1]
}

// drops break the connections of a node or of all, several times.
func (b *planner) drops(at time.Duration, one int32) []step {
	links := b.links()
	for _, n := range b.nodes {
		links = append(links, Link{Clients, n})
	}
	if b.rng.IntN(2) == 0 {
		links = slices.DeleteFunc(links, func(l Link) bool { return l.From != one && l.To != one })
	}
	var steps []step
	for range 1 + b.rng.IntN(4) {
		steps = append(steps, step{at: at, act: actDrop, net: change{links: links}})
		at += b.upTo(700)
	}
	return steps
}

package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// nemesis carries a plan out.
type nemesis struct {
	cluster Cluster
	network *Network // nil: the nodes talk without gates
	check   *Checker
	places  *places
	client  *kgo.Client // of the operator
	began   time.Time
	say     func(string)

	// over is closed when the time of the faults is over: what is held is let go.
	over chan struct{}
	// operating is taken by who does what an operator does.
	operating chan struct{}
	operators sync.WaitGroup

	mu      sync.Mutex
	changes []Change
	excused []Span
	held    map[int32]bool
	done    map[string]int
	stalled map[int32]func()
	rots    []*rot
}

func (n *nemesis) init() {
	n.over, n.operating = make(chan struct{}), make(chan struct{}, 1)
	n.held, n.done, n.stalled = map[int32]bool{}, map[string]int{}, map[int32]func(){}
}

func (n *nemesis) tell(format string, args ...any) {
	n.say(fmt.Sprintf("%6.1fs  ", time.Since(n.began).Seconds()) + fmt.Sprintf(format, args...))
}

// run does every job at its time, and returns when all are done but those of operators, which heal waits for. What is ended, paused or
// cut when ctx is done stays so: heal comes next.
func (n *nemesis) run(ctx, operators context.Context, p plan) {
	var wg sync.WaitGroup
	for _, j := range p.jobs {
		if faultNamed(j.fault).lane == laneOperator {
			n.operators.Go(func() {
				if n.until(ctx, j.at()) {
					n.operate(operators, j)
				}
			})
			continue
		}
		wg.Go(func() {
			if n.until(ctx, j.at()) {
				n.carry(ctx, j)
			}
		})
	}
	wg.Wait()
}

// until waits for a moment of the run; false when ctx is done before.
func (n *nemesis) until(ctx context.Context, at time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Until(n.began.Add(at))):
		return ctx.Err() == nil
	}
}

// pause waits, no longer than the faults go on.
func (n *nemesis) pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-n.over:
	case <-time.After(d):
	}
}

// holdLimit is how long a fault waits for a node that another one has; then it leaves it out.
const holdLimit = 3 * time.Second

// hold takes nodes, those that it gets in time.
func (n *nemesis) hold(ctx context.Context, nodes []int32, limit time.Duration) []int32 {
	var got []int32
	for deadline := time.Now().Add(limit); ; {
		n.mu.Lock()
		for _, id := range nodes {
			if !n.held[id] {
				n.held[id] = true
				got = append(got, id)
			}
		}
		n.mu.Unlock()
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(id int32) bool { return slices.Contains(got, id) })
		if len(nodes) == 0 || time.Now().After(deadline) || ctx.Err() != nil {
			return got
		}
		<-time.After(20 * time.Millisecond)
	}
}

func (n *nemesis) release(nodes []int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range nodes {
		delete(n.held, id)
	}
}

func (n *nemesis) count(fault string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.done[fault]++
}

// carry does the steps of a job: those of one kind and time at once, all others in their order, also where the end of the run has pushed them
// together.
func (n *nemesis) carry(ctx context.Context, j job) {
	if len(j.nodes) > 0 {
		got := n.hold(ctx, j.nodes, holdLimit)
		defer n.release(got)
		if len(got) == 0 {
			n.tell("no %s: node %v is taken", j.fault, j.nodes)
			return
		}
		j.nodes = got
	}
	n.count(j.fault)
	if j.fault == FaultSlow || j.fault == FaultStall {
		defer n.excuse()()
	}
	for len(j.steps) > 0 {
		first := j.steps[0]
		if !n.until(ctx, first.at) {
			return
		}
		var wg sync.WaitGroup
		for len(j.steps) > 0 && j.steps[0].at == first.at && j.steps[0].act == first.act {
			s := j.steps[0]
			j.steps = j.steps[1:]
			s.nodes = slices.DeleteFunc(slices.Clone(s.nodes), func(id int32) bool { return !slices.Contains(j.nodes, id) })
			of := j
			wg.Go(func() { n.do(ctx, s, of) })
		}
		wg.Wait()
	}
}

// do does one step.
func (n *nemesis) do(ctx context.Context, s step, j job) {
	switch s.act {
	case actCut, actSlow, actDrop:
		n.change(s, j)
		return
	case actMend:
		n.mend(s.nodes)
		return
	case actPower:
		n.power(s.nodes, j.seed)
		return
	}
	var wg sync.WaitGroup
	for _, node := range s.nodes {
		wg.Go(func() { n.toNode(ctx, s, node) })
	}
	wg.Wait()
}

// toNode does a step to one node.
func (n *nemesis) toNode(ctx context.Context, s step, node int32) {
	running := n.cluster.Running(node)
	switch {
	case s.act == actStart && running: // what should have ended it has not
		return
	case s.act != actStart && !running:
		n.endedByItself(node)
		return
	}
	n.tell("%s node %d", s.act, node)
	var err error
	switch s.act {
	case actKill:
		n.changed(node, false)
		err = n.cluster.Kill(node)
	case actStop:
		n.changed(node, false)
		err = n.cluster.Stop(node)
	case actPause:
		n.changed(node, false)
		err = n.cluster.Pause(node)
	case actResume:
		n.changed(node, true)
		err = n.cluster.Resume(node)
	case actStart:
		n.changed(node, true)
		err = n.cluster.Start(node)
	case actSync:
		n.changed(node, false)
		err = n.cluster.(Disk).FailSync(ctx, node)
	case actStall:
		err = n.stall(node, s.hold)
	}
	if err != nil {
		n.check.Violated(NotHealed, "%s node %d: %v", s.act, node, err)
	}
}

// change changes the network.
func (n *nemesis) change(s step, j job) {
	c := s.net
	how := ""
	switch {
	case s.act == actSlow:
		how = fmt.Sprintf(": %s, %d KiB/s", c.latency.Round(time.Millisecond), c.rate>>10)
	case c.refuse:
		how = ", refused"
	}
	n.tell("%s %s%s", j.fault, linksText(c.links), how)
	switch s.act {
	case actCut:
		n.record(Change{Links: c.links})
		n.network.Cut(c.links, c.refuse)
	case actSlow:
		n.network.Slow(c.links, c.latency, c.rate)
	case actDrop:
		n.network.Drop(among(c.links))
	}
}

// linksText is "1⇄2 2→3".
func linksText(links []Link) string {
	name := func(id int32) string {
		if id == Clients {
			return "clients"
		}
		return fmt.Sprint(id)
	}
	var text string
	for _, l := range links {
		both := slices.Contains(links, Link{l.To, l.From})
		if both && l.From > l.To {
			continue
		}
		arrow := "→"
		if both {
			arrow = "⇄"
		}
		if text != "" {
			text += " "
		}
		text += name(l.From) + arrow + name(l.To)
	}
	return text
}

// mend ends what was done to the network, or to the disks of nodes.
func (n *nemesis) mend(nodes []int32) {
	if len(nodes) == 0 {
		n.tell("the network is whole")
		n.network.Heal()
		n.record(Change{Up: true})
		return
	}
	for _, node := range nodes {
		n.mu.Lock()
		stop := n.stalled[node]
		delete(n.stalled, node)
		n.mu.Unlock()
		if stop != nil {
			stop()
		}
		if !n.cluster.Running(node) { // a node whose disk hangs ends, after a while: that is promised
			n.changed(node, false)
			n.toNode(context.Background(), step{act: actStart}, node)
		}
	}
}

func (n *nemesis) stall(node int32, each time.Duration) error {
	stop, err := n.cluster.(Disk).SlowSync(node, each)
	if err == nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.stalled[node] = stop
	}
	return err
}

func (n *nemesis) power(nodes []int32, seed uint64) {
	n.tell("%s node %v", actPower, nodes)
	for _, node := range nodes {
		n.changed(node, false)
	}
	// One time in three nothing that was not fsynced survives, else a random part of it.
	rng := rand.New(rand.NewPCG(seed, 1))
	if rng.IntN(3) == 0 {
		seed = 0
	}
	if err := n.cluster.(Power).PowerFail(nodes, seed>>34); err != nil {
		n.check.Violated(NotHealed, "%s node %v: %v", actPower, nodes, err)
	}
}

// endedByItself counts a process that nobody ended, and starts it again.
func (n *nemesis) endedByItself(node int32) {
	words := n.cluster.LastWords(node)
	if words == "" {
		words = "it said nothing"
	}
	n.check.Violated(Ended, "node %d: %s", node, words)
	n.tell("node %d has ended by itself: %s", node, words)
	n.changed(node, true)
	if err := n.cluster.Start(node); err != nil {
		n.check.Violated(NotHealed, "start node %d: %v", node, err)
	}
}

func (n *nemesis) changed(node int32, up bool) { n.record(Change{Node: node, Up: up}) }

func (n *nemesis) record(c Change) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c.At = time.Since(n.began)
	n.changes = append(n.changes, c)
}

// excuse takes the time from now until end is called out of the times without a leader.
func (n *nemesis) excuse() (end func()) {
	from := time.Since(n.began)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.excused = append(n.excused, Span{from, time.Since(n.began)})
	}
}

// heal mends everything and lets every node run. It waits for what operators have begun.
func (n *nemesis) heal() {
	close(n.over)
	if n.network != nil {
		n.network.Heal()
		n.record(Change{Up: true})
	}
	n.mu.Lock()
	var stalled []int32
	for node := range n.stalled {
		stalled = append(stalled, node)
	}
	n.mu.Unlock()
	if len(stalled) > 0 {
		n.mend(stalled)
	}
	n.runAll()
	n.operators.Wait()
	n.runAll()
}

// runAll lets every node run that no operator has in hand.
func (n *nemesis) runAll() {
	n.mu.Lock()
	last := map[int32]bool{} // by the changes, whether we left it up
	for _, node := range n.cluster.Nodes() {
		last[node.ID] = true
	}
	for _, ch := range n.changes {
		if ch.Node != Clients {
			last[ch.Node] = ch.Up
		}
	}
	held := map[int32]bool{}
	for id := range n.held {
		held[id] = true
	}
	n.mu.Unlock()
	for _, node := range n.cluster.Nodes() {
		up, running := last[node.ID], n.cluster.Running(node.ID)
		switch {
		case held[node.ID]:
		case running && !up:
			n.toNode(context.Background(), step{act: actResume}, node.ID)
		case !running && !up:
			n.toNode(context.Background(), step{act: actStart}, node.ID)
		case !running:
			n.endedByItself(node.ID)
		}
	}
}

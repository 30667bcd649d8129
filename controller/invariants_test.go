package controller

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/keeplog/keeplog/metadata"
)

// cluster drives a controller with random events and keeps, beside it, what the replicas would have: a number of committed
// writes for each partition, and how many of them each replica has.
type cluster struct {
	*world
	t   testing.TB
	rnd *rand.Rand
	// failed, if set, is told of a failure instead of the test; it does not return.
	failed func(string)
	// wishes are changes that leaders asked for before; some are asked for again.
	wishes []wish
	// up are the running incarnations; incarnations counts them.
	up           map[int32]bool
	incarnations map[int32]byte
	// clean are the epochs that clean stops have left behind, lastLife the epochs before the present ones.
	clean, lastLife map[int32]int64
	committed       map[PartitionRef]int
	has             map[PartitionRef]map[int32]int
	// out are the replicas of the running incarnations that are out of order.
	out    map[int32][]PartitionRef
	before *metadata.Image
	log    []string
}

const brokersInModel = 4

// wish is what a leader once asked for.
type wish struct {
	by int32
	ch ISRChange
}

func newCluster(t testing.TB, seed uint64) *cluster {
	c := &cluster{
		world: newWorld(), t: t, rnd: rand.New(rand.NewPCG(seed, 7)), up: map[int32]bool{}, incarnations: map[int32]byte{},
		clean: map[int32]int64{}, lastLife: map[int32]int64{}, committed: map[PartitionRef]int{}, has: map[PartitionRef]map[int32]int{},
		out: map[int32][]PartitionRef{},
	}
	for id := int32(1); id <= brokersInModel; id++ {
		c.start(id)
		c.beat(id, Heartbeat{})
	}
	_, err := c.c.CreateTopics(context.Background(), CreateTopicsRequest{Topics: []CreateTopic{
		{Name: "three", Partitions: 3, Replicas: 3}, {Name: "two", Partitions: 2, Replicas: 2}, {Name: "one", Partitions: 1, Replicas: 1},
	}})
	c.must(err)
	c.before = c.img
	return c
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.fail("%v", err)
	}
}

func (c *cluster) fail(format string, args ...any) {
	c.t.Helper()
	if c.failed != nil {
		c.failed(fmt.Sprintf(format, args...))
	}
	for _, l := range c.log {
		c.t.Log(l)
	}
	c.t.Fatalf(format, args...)
}

func (c *cluster) say(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf(format, args...))
}

// start begins a new incarnation, with the data of the last one.
func (c *cluster) start(id int32) {
	c.incarnations[id]++
	previous := int64(-1)
	if e, ok := c.clean[id]; ok {
		previous = e
		delete(c.clean, id)
	}
	c.lastLife[id] = c.epoch(id)
	_, err := c.c.RegisterBroker(context.Background(), Registration{
		ID: id, Incarnation: [16]byte{byte(id), c.incarnations[id]}, Directories: []metadata.DirectoryID{{byte(id)}}, PreviousEpoch: previous, Features: SupportedFeatures(),
	})
	if err != nil {
		c.say("start %d: %v", id, err)
		return
	}
	c.up[id], c.out[id] = true, nil
	c.say("start %d", id)
	if c.rnd.IntN(6) == 0 {
		c.putOut(id)
	}
}

func (c *cluster) epoch(id int32) int64 {
	if b, ok := c.img.Broker(id); ok {
		return b.Epoch
	}
	return 0
}

// live takes steps, in lives that end with everybody back.
func (c *cluster) live(steps int) {
	for n := range steps {
		c.step()
		if n%50 == 49 {
			c.heal()
		}
	}
}

// step does one thing and checks.
func (c *cluster) step() {
	id := 1 + c.rnd.Int32N(brokersInModel)
	ctx := context.Background()
	if elapsed := c.rnd.IntN(3); elapsed == 0 {
		c.now += time.Duration(c.rnd.IntN(900)) * time.Millisecond
	}
	switch c.rnd.IntN(15) {
	case 0, 1, 2:
		if c.up[id] {
			c.beat(id, Heartbeat{})
		} else {
			c.start(id)
		}
	case 3:
		c.say("kill %d", id)
		c.up[id] = false
		if c.rnd.IntN(2) == 0 {
			_ = c.c.Dropped(ctx, id, c.epoch(id))
		}
	case 4:
		c.say("tick %v", c.now)
		c.must(c.c.Tick(ctx, c.now))
	case 5:
		c.say("another controller")
		c.term++
	case 6:
		if c.up[id] {
			c.beat(id, Heartbeat{WantShutdown: true})
		}
	case 7:
		if c.up[id] {
			c.loseSome(id)
		}
	case 8:
		c.reassign()
	case 9:
		c.say("elect")
		_, err := c.c.ElectLeaders(ctx, ElectLeadersRequest{})
		c.must(err)
	case 10:
		on := c.rnd.IntN(2) == 0
		c.say("drain %d %v", id, on)
		_ = c.c.Drain(ctx, id, on)
	case 11:
		if c.up[id] && c.out[id] == nil {
			c.putOut(id)
		} else {
			c.out[id] = nil
		}
		if c.up[id] {
			c.beat(id, Heartbeat{})
		}
	default:
		c.replicate()
	}
	c.check()
}

func (c *cluster) beat(id int32, h Heartbeat) {
	h.ID, h.Epoch, h.Applied, h.OutOfOrder = id, c.epoch(id), c.img.Index(), c.out[id]
	a, err := c.c.Heartbeat(context.Background(), c.now, h)
	c.say("beat %d shutdown %v out of order %v: %+v %v", id, h.WantShutdown, h.OutOfOrder, a, err)
	for _, ref := range h.OutOfOrder {
		if p, ok := c.img.Partition(ref.Topic, ref.Partition); ok && err == nil && c.img.LeaderOf(p) == id && len(p.Replicas) > 1 {
			c.fail("%v-%d %+v: broker %d leads with a replica that is out of order", ref.Topic[0], ref.Partition, *p, id)
		}
	}
	if err == nil && a.ShutDown {
		c.up[id], c.clean[id] = false, h.Epoch
	}
}

// putOut puts some of a broker's replicas out of order until it starts again, or they are found in order.
func (c *cluster) putOut(id int32) {
	for t := range c.img.Topics() {
		for i, p := range t.Partitions {
			if slices.Contains(p.Replicas, id) && c.rnd.IntN(3) == 0 {
				c.out[id] = append(c.out[id], PartitionRef{t.ID, int32(i)})
			}
		}
	}
	c.say("out of order at %d: %v", id, c.out[id])
}

// works says that a broker runs, and its replica is in order.
func (c *cluster) works(id int32, ref PartitionRef) bool {
	return c.up[id] && !slices.Contains(c.out[id], ref)
}

// loseSome loses a replica's data and says so, as a broker does before it is unfenced.
func (c *cluster) loseSome(id int32) {
	var lost []PartitionRef
	for t := range c.img.Topics() {
		for i, p := range t.Partitions {
			ref := PartitionRef{t.ID, int32(i)}
			if len(p.Replicas) > 1 && slices.Contains(p.Replicas, id) && c.rnd.IntN(4) == 0 && c.spare(ref, id) {
				lost = append(lost, ref)
			}
		}
	}
	if c.img.Alive(id) {
		return // its log would still be open: data is found missing at a start
	}
	c.say("broker %d lost %v", id, lost)
	c.beat(id, Heartbeat{Lost: lost})
	for _, ref := range lost {
		delete(c.has[ref], id)
	}
}

// spare says that another replica, one that may lead, has everything: losing the last copy is nobody's fault.
func (c *cluster) spare(ref PartitionRef, id int32) bool {
	p, _ := c.img.Partition(ref.Topic, ref.Partition)
	for other, n := range c.has[ref] {
		if other != id && n == c.committed[ref] && (slices.Contains(p.ISR, other) || slices.Contains(p.ELR, other)) {
			return true
		}
	}
	return false
}

func (c *cluster) reassign() {
	topics := slices.Collect(c.img.Topics())
	t := topics[c.rnd.IntN(len(topics))]
	r := Reassignment{Topic: t.Name, Partition: c.rnd.Int32N(int32(len(t.Partitions)))}
	if c.rnd.IntN(4) > 0 {
		for _, i := range c.rnd.Perm(brokersInModel)[:1+c.rnd.IntN(3)] {
			r.Replicas = append(r.Replicas, int32(i+1))
		}
	}
	answers, err := c.c.Reassign(context.Background(), ReassignRequest{Partitions: []Reassignment{r}})
	c.must(err)
	c.say("reassign %+v: %v", r, answers[0].Err)
}

// replicate lets every leader that runs write, its followers fetch, and the in-sync set change as a leader would.
func (c *cluster) replicate() {
	for t := range c.img.Topics() {
		for i := range t.Partitions {
			ref := PartitionRef{t.ID, int32(i)}
			p, _ := c.img.Partition(ref.Topic, ref.Partition)
			leader := c.img.LeaderOf(p)
			if leader == metadata.NoLeader || !c.works(leader, ref) || c.rnd.IntN(2) == 0 {
				continue
			}
			c.changeInSync(ref, leader)
			c.write(ref)
		}
	}
}

// write commits one write, if the in-sync set is large enough and all of it is up; else it may reach some of them.
func (c *cluster) write(ref PartitionRef) {
	t, _ := c.img.TopicByID(ref.Topic)
	p, _ := c.img.Partition(ref.Topic, ref.Partition)
	min := (&planner{img: c.img, static: c.c.o.Static}).topicRules(t).MinInsync(p.Settled())
	leader := c.img.LeaderOf(p)
	if leader == metadata.NoLeader || !c.works(leader, ref) || len(p.ISR) < min {
		return
	}
	for _, id := range p.ISR {
		if !c.works(id, ref) {
			return
		}
	}
	c.committed[ref]++
	if c.has[ref] == nil {
		c.has[ref] = map[int32]int{}
	}
	for _, id := range p.ISR {
		c.has[ref][id] = c.committed[ref]
	}
}

// changeInSync asks, as the leader, for a random set; members that join have caught up first.
func (c *cluster) changeInSync(ref PartitionRef, leader int32) {
	p, _ := c.img.Partition(ref.Topic, ref.Partition)
	if len(c.wishes) > 0 && c.rnd.IntN(8) == 0 {
		c.askAgain(c.wishes[c.rnd.IntN(len(c.wishes))])
		return
	}
	ch := ISRChange{Topic: ref.Topic, Partition: ref.Partition, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Recovered: true}
	for _, id := range p.Replicas {
		in := slices.Contains(p.ISR, id)
		if id != leader && (c.rnd.IntN(3) == 0 || !in && !c.works(id, ref)) {
			continue
		}
		member := InSyncMember{id, c.epoch(id)}
		switch {
		case !in && c.lastLife[id] > 0 && c.rnd.IntN(6) == 0:
			member.Epoch = c.lastLife[id] // the leader has heard of its last life only
		case !in && c.has[ref] != nil:
			c.has[ref][id] = c.committed[ref] // it has fetched everything, wanted or not
		}
		ch.ISR = append(ch.ISR, member)
	}
	answers, err := c.c.AlterPartition(context.Background(), AlterPartitionRequest{Broker: leader, Epoch: c.epoch(leader), Changes: []ISRChange{ch}})
	c.must(err)
	if answers[0].Err == nil { // a leader counts who is to join until it is refused, and asks no more then
		c.wishes = append(c.wishes, wish{leader, ch})
	}
	if len(c.wishes) > 40 {
		c.wishes = c.wishes[20:]
	}
	c.say("in-sync %v-%d by %d: %v: %v", ref.Topic[0], ref.Partition, leader, ch.ISR, answers[0].Err)
}

// askAgain sends an old wish, as a network may.
func (c *cluster) askAgain(w wish) {
	answers, err := c.c.AlterPartition(context.Background(), AlterPartitionRequest{Broker: w.by, Epoch: c.epoch(w.by), Changes: []ISRChange{w.ch}})
	c.must(err)
	c.say("again: in-sync %v-%d by %d: %v: %v", w.ch.Topic[0], w.ch.Partition, w.by, w.ch.ISR, answers[0].Err)
}

// heal brings everybody back, and looks whether every partition finds a leader.
func (c *cluster) heal() {
	c.say("heal")
	pass := func() {
		for range 12 {
			c.now += 400 * time.Millisecond
			c.must(c.c.Tick(context.Background(), c.now))
		}
	}
	for id := int32(1); id <= brokersInModel; id++ {
		if b, ok := c.img.Broker(id); ok && b.ShuttingDown {
			c.up[id] = false
		}
	}
	pass()
	for id := int32(1); id <= brokersInModel; id++ {
		if !c.up[id] {
			c.start(id)
		}
	}
	for id := int32(1); id <= brokersInModel; id++ {
		c.out[id] = nil
		c.beat(id, Heartbeat{})
	}
	c.must(c.c.Tick(context.Background(), c.now))
	c.before = c.img
	c.check()
	for t := range c.img.Topics() {
		for i, p := range t.Partitions {
			if c.img.LeaderOf(p) == metadata.NoLeader {
				c.fail("%s-%d has no leader although everybody is back: %+v", t.Name, i, *p)
			}
		}
	}
}

// check holds after every step, and after what the controller makes of it.
func (c *cluster) check() {
	c.compare()
	p := c.c.planner()
	if records := p.planReconcile(false, nil); len(records) > 0 {
		_, _, err := c.ProposeAt(context.Background(), c.term, records)
		c.must(err)
		c.compare()
		p := c.c.planner()
		if again := p.planReconcile(false, nil); len(again) > 0 {
			c.fail("reconciled twice: %+v", again)
		}
	}
}

// compare looks at all partitions, and at what has changed.
func (c *cluster) compare() {
	for t := range c.img.Topics() {
		for i, p := range t.Partitions {
			c.checkPartition(t, i, p)
			if was, ok := c.before.Partition(t.ID, int32(i)); ok {
				c.checkChange(fmt.Sprintf("%s-%d", t.Name, i), was, p)
			}
		}
	}
	for t := range c.img.Topics() {
		for i, p := range t.Partitions {
			if was, ok := c.before.Partition(t.ID, int32(i)); ok && was.PartitionEpoch != p.PartitionEpoch {
				c.say("  %s-%d %+v has %v", t.Name, i, *p, c.has[PartitionRef{t.ID, int32(i)}])
			}
		}
	}
	c.before = c.img
}

func (c *cluster) checkPartition(t *metadata.Topic, i int, p *metadata.Partition) {
	name := fmt.Sprintf("%s-%d %+v", t.Name, i, *p)
	ref := PartitionRef{t.ID, int32(i)}
	min := (&planner{img: c.img, static: c.c.o.Static}).topicRules(t).MinInsync(p.Settled())
	switch {
	case len(within(p.ISR, p.Replicas)) < len(p.ISR), len(within(p.ELR, p.Replicas)) < len(p.ELR):
		c.fail("%s: a member is no replica", name)
	case len(within(p.ISR, p.ELR)) > 0:
		c.fail("%s: in both sets", name)
	case len(p.ISR) >= min && len(p.ELR) > 0 && p.Leader != metadata.NoLeader:
		c.fail("%s: eligible replicas although %d in sync are enough", name, min)
	case len(within(p.Adding, p.Replicas)) < len(p.Adding), len(within(p.Removing, p.Replicas)) < len(p.Removing):
		c.fail("%s: comes or goes, and is no replica", name)
	case p.Unclean:
		c.fail("%s: nobody asked for an unclean election", name)
	}
	if leader := c.img.LeaderOf(p); leader != metadata.NoLeader {
		if !slices.Contains(p.ISR, leader) {
			c.fail("%s: the leader is not in sync", name)
		}
		if c.has[ref][leader] < c.committed[ref] {
			c.fail("%s: the leader has %d of %d committed writes", name, c.has[ref][leader], c.committed[ref])
		}
	}
	for _, id := range p.ISR {
		if c.has[ref][id] < c.committed[ref] {
			c.fail("%s: broker %d is in sync with %d of %d committed writes", name, id, c.has[ref][id], c.committed[ref])
		}
	}
	for _, id := range p.ELR {
		if len(p.Replicas) > 1 && c.has[ref][id] < c.committed[ref] {
			c.fail("%s: broker %d is eligible with %d of %d committed writes", name, id, c.has[ref][id], c.committed[ref])
		}
	}
}

// alive says that all are unfenced.
func (c *cluster) alive(ids []int32) bool {
	return !slices.ContainsFunc(ids, func(id int32) bool { return !c.img.Alive(id) && !c.before.Alive(id) })
}

// checkChange: epochs go up, and who leads in an epoch is one incarnation that received it.
func (c *cluster) checkChange(name string, was, p *metadata.Partition) {
	switch {
	case p.LeaderEpoch < was.LeaderEpoch, p.PartitionEpoch < was.PartitionEpoch:
		c.fail("%s: epochs fell: %+v, then %+v", name, was, p)
	case p.LeaderEpoch == was.LeaderEpoch && p.Leader != was.Leader:
		c.fail("%s: another leader in the same epoch: %+v, then %+v", name, was, p)
	case len(was.Adding) > 0 && len(p.Adding)+len(p.Removing) == 0 && len(without(within(was.Adding, p.Replicas), p.ISR...)) > 0:
		c.fail("%s: reassigned before all were in sync: %+v, then %+v", name, was, p)
	case !c.alive(without(p.ISR, was.ISR...)):
		c.fail("%s: joined while fenced: %v, then %v", name, was.ISR, p.ISR)
	case p.PartitionEpoch == was.PartitionEpoch && !slices.Equal(p.ISR, was.ISR):
		c.fail("%s: another in-sync set in the same partition epoch", name)
	}
	if p.Leader == metadata.NoLeader || p.Leader != was.Leader || p.LeaderEpoch != was.LeaderEpoch {
		return
	}
	before, had := c.before.Broker(p.Leader)
	if now, ok := c.img.Broker(p.Leader); had && ok && now.Incarnation != before.Incarnation {
		c.fail("%s: a new incarnation leads in epoch %d of the old one", name, p.LeaderEpoch)
	}
}

// TestPlansKeepWhatIsCommitted drives the plans through random lives of a cluster and compares with what its replicas have:
// KEEPLOG_HARNESS_COUNT seeds from KEEPLOG_SEED on, or a few from a random one.
func TestPlansKeepWhatIsCommitted(t *testing.T) {
	const steps = 250
	seeds := 12
	if n, err := strconv.Atoi(os.Getenv("KEEPLOG_HARNESS_COUNT")); err == nil {
		seeds = n
	}
	base, err := strconv.ParseUint(os.Getenv("KEEPLOG_SEED"), 10, 64)
	if err != nil {
		base = rand.Uint64()
	}
	for n := range seeds {
		seed := base + uint64(n)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			c := newCluster(t, seed)
			c.live(steps)
		})
	}
}

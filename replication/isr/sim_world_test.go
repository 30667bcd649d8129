package isr

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/metadata"
)

// The simulation is a whole cluster on one thread: the cores of leaders and followers and the real controller over the real
// image, on a virtual clock, with disks that forget what was not flushed and a network that delays, cuts one way, and breaks
// connections. Everything follows from the seed. After each step the invariants of sim_check_test.go hold.
//
//	event heap ─► broker: heartbeats, roles, fetches, flushes ─► cores ─► disk, network ─► events
//	          └─► quorum: who leads, commits at once, applied late ─► controller ─► records
//	          └─► clients: produce acks=all and acks=1, latest offset, delete records; retention, of each replica for itself
//	          └─► operator: reassignments, preferred elections, min.insync.replicas, throttles; unclean elections in a third of the seeds,
//	              topics deleted and made again in a fourth
//	          └─► nemesis: kill, power loss, pause of one and of all, cut, stall, stop, late images, lost data; for 40 s, then peace

// event is something that happens at a time. Events of one time happen in the order in which they were made.
type simEvent struct {
	at  time.Duration
	seq int
	run func()
}

func (e *simEvent) before(o *simEvent) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// simHeap has the next event first; each event is before the four below it.
type simHeap []simEvent

func (h *simHeap) push(e simEvent) {
	*h = append(*h, e)
	s := *h
	i := len(s) - 1
	for i > 0 && e.before(&s[(i-1)/4]) {
		s[i] = s[(i-1)/4]
		i = (i - 1) / 4
	}
	s[i] = e
}

func (h *simHeap) pop() simEvent {
	s := *h
	first, last := s[0], s[len(s)-1]
	s[len(s)-1] = simEvent{}
	s = s[:len(s)-1]
	*h = s
	if len(s) == 0 {
		return first
	}
	i := 0
	for {
		least, end := 4*i+1, min(4*i+5, len(s))
		if least >= len(s) {
			break
		}
		for c := least + 1; c < end; c++ {
			if s[c].before(&s[least]) {
				least = c
			}
		}
		if last.before(&s[least]) {
			break
		}
		s[i] = s[least]
		i = least
	}
	s[i] = last
	return first
}

const (
	simNodes      = 4
	simVoters     = 3 // the first ones; the others only hear what is committed
	simPartitions = 2
	simWar        = 40 * time.Second
	simPeace      = 60 * time.Second
)

// simName is the name of the one topic; it has another id each time it is made.
const simName = "events"

// world is one simulated cluster.
type simWorld struct {
	seed uint64
	rng  *rand.Rand
	simTime
	nodes  []*simNode
	static *config.Broker
	// images[i] is the image at index i+1: what the quorum has committed.
	images []*metadata.Image
	simQuorum
	simHarm
	peace bool
	quiet bool // nothing is written any more
	// topic is the id of the topic in the newest image, zero for none; topics counts the ids.
	topic   metadata.TopicID
	topics  int
	truth   [simPartitions]simTruth
	mercy   simMercy
	byOrder bool // an unclean election is being asked for
	trace   []string
	values  int
	loud    bool
	err     error
	stats   simStats
}

type simTime struct {
	now   time.Duration
	queue simHeap
	made  int
}

// quorum is who leads the metadata log: term and chief are the newest leadership, chief −1 for none.
type simQuorum struct {
	term   uint64
	chief  int
	alone  time.Duration // since when the chief has had no majority
	vacant time.Duration // since when there has been none
	frozen time.Duration // until when nobody counts the time
}

// simHarm is what the nemesis has done to network and disks.
type simHarm struct {
	// cut[i][j] says that nothing gets from i to j.
	cut   [simNodes][simNodes]bool
	slow  time.Duration           // more delay of the network
	lull  time.Duration           // until when nothing else is done
	stall [simNodes]time.Duration // more delay of a disk
	late  [simNodes]time.Duration // more delay until an image is applied
	// throttled says that replicas outside of the in-sync set get nothing from a leader, held that they ask for nothing.
	throttled, held [simNodes]bool
}

// simStats says what a run has reached.
type simStats struct {
	steps, acked, refused, elections, faults, truncations, lost, deletes, restarts, reassigned, unclean, retained, topics, shut int
}

func newSimWorld(seed uint64, loud bool) *simWorld {
	w := &simWorld{seed: seed, rng: rand.New(rand.NewPCG(seed, 0x6b65657)), simQuorum: simQuorum{chief: -1}, loud: loud, static: config.Default()}
	img := metadata.New()
	start := metadata.ClusterStarted{ClusterID: "AAAAAAAAAAAAAAAAAAAAAA"}
	for i := range simVoters {
		start.Voters = append(start.Voters, metadata.Voter{ID: int32(i), Directory: metadata.DirectoryID{byte(i + 1)}})
	}
	w.images = []*metadata.Image{}
	w.commit(img, 1, []metadata.Record{start})
	for i := range simNodes {
		w.nodes = append(w.nodes, newSimNode(w, i))
	}
	for _, n := range w.nodes {
		n.start()
	}
	w.after(0, w.quorumTick)
	return w
}

// after makes an event.
func (w *simWorld) after(d time.Duration, run func()) {
	w.made++
	w.queue.push(simEvent{w.now + d, w.made, run})
}

// between is a random time.
func (w *simWorld) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.rng.Int64N(int64(high-low)+1))
}

func (w *simWorld) chance(percent int) bool { return w.rng.IntN(100) < percent }

func (w *simWorld) note(format string, args ...any) {
	line := fmt.Sprintf("%9.3f ", w.now.Seconds()) + fmt.Sprintf(format, args...)
	if w.loud {
		fmt.Println(line)
	}
	w.trace = append(w.trace, line)
	if len(w.trace) > 4000 {
		w.trace = slices.Clone(w.trace[2000:])
	}
}

// broken notes the first violation.
func (w *simWorld) broken(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
		w.note("VIOLATION %v", w.err)
	}
}

// run lets the world go on until a time, or the first violation.
func (w *simWorld) run(until time.Duration) {
	for w.err == nil && len(w.queue) > 0 && w.queue[0].at <= until {
		e := w.queue.pop()
		w.now = e.at
		w.stats.steps++
		e.run()
		if w.err == nil {
			w.check()
		}
	}
	w.now = max(w.now, until)
}

// reach says that two nodes hear each other.
func (w *simWorld) reach(i, j int) bool {
	a, b := w.nodes[i], w.nodes[j]
	return i == j && a.up || a.up && b.up && !a.paused && !b.paused && !w.cut[i][j] && !w.cut[j][i]
}

func (w *simWorld) majority(i int) bool {
	n := 0
	for j := range simVoters {
		if w.reach(i, j) {
			n++
		}
	}
	return n > simVoters/2
}

// quorumTick is Raft's part: a chief without a majority steps down after its lease, and later another is elected.
func (w *simWorld) quorumTick() {
	w.after(100*time.Millisecond, w.quorumTick)
	if w.now < w.frozen {
		w.alone = w.now
		return
	}
	if w.chief >= 0 {
		if c := w.nodes[w.chief]; c.up && !c.paused && c.leads == w.term && w.majority(w.chief) {
			w.alone = w.now
			return
		}
		if c := w.nodes[w.chief]; c.up && !c.paused && w.now-w.alone > 500*time.Millisecond {
			c.leads = 0
		}
		if w.now-w.alone > w.between(time.Second, 2*time.Second) {
			w.note("node %d is no longer chief", w.chief)
			w.chief, w.vacant = -1, w.now
		}
		return
	}
	var may []int
	for i := range simVoters {
		if w.nodes[i].up && !w.nodes[i].paused && w.majority(i) {
			may = append(may, i)
		}
	}
	if len(may) == 0 || w.chance(70) {
		return
	}
	w.term++
	w.chief, w.alone = may[w.rng.IntN(len(may))], w.now
	c := w.nodes[w.chief]
	c.leads = w.term
	c.image = w.newest()
	w.note("node %d is chief in term %d", w.chief, w.term)
	c.applied()
}

func (w *simWorld) newest() *metadata.Image { return w.images[len(w.images)-1] }

// commit makes an entry of records on top of an image.
func (w *simWorld) commit(img *metadata.Image, term uint64, records []metadata.Record) (uint64, []metadata.Result) {
	index := uint64(len(w.images) + 1)
	payload := metadata.AppendCommand(nil, &metadata.Command{
		Session: metadata.Session{Epoch: metadata.NoEpoch}, Groups: []metadata.Group{{Records: records}},
	})
	next, _, out, err := metadata.Apply(img, nil, metadata.Entry{Index: index, Term: term, Payload: payload})
	if err != nil {
		panic(err)
	}
	w.images = append(w.images, next)
	w.renewed(next)
	w.uncleanly(img, next)
	w.leftAlone(img, next)
	for _, rec := range records {
		w.fencing(rec)
		if c, ok := rec.(metadata.PartitionChanged); ok {
			part, _ := next.Partition(c.TopicID, c.Partition)
			w.note("partition %d at index %d: leader %d epoch %d.%d replicas %v in sync %v eligible %v", c.Partition, index, part.Leader,
				part.LeaderEpoch, part.PartitionEpoch, part.Replicas, part.ISR, part.ELR)
			w.decided(c.TopicID, c.Partition, img, next)
		}
	}
	return index, out.Results[0]
}

// seat is the metadata log as the controller of a node sees it.
type simSeat struct{ n *simNode }

// Image is the newest image that the node has applied.
func (s simSeat) Image() *metadata.Image { return s.n.image }

var errNoChief = errors.New("not the chief")

// Lead is the term in which the node believes to lead.
func (s simSeat) Lead() (uint64, error) {
	if s.n.leads == 0 {
		return 0, errNoChief
	}
	return s.n.leads, nil
}

// ProposeAt commits at once, if the node still leads and reaches a majority. The answer may get lost all the same.
func (s simSeat) ProposeAt(_ context.Context, term uint64, records []metadata.Record) (uint64, []metadata.Result, error) {
	w := s.n.w
	if w.chief != s.n.id || w.term != term || !w.majority(s.n.id) {
		return 0, nil, errNoChief
	}
	index, results := w.commit(w.newest(), term, records)
	s.n.image = w.newest()
	s.n.laterApplied()
	for _, n := range w.nodes {
		if n.id != s.n.id {
			n.follow()
		}
	}
	if !w.peace && w.chance(2) {
		return 0, nil, errors.New("outcome unknown")
	}
	return index, results, nil
}

// follow has a node apply what is committed, a little later; one that is away catches up when it is back.
func (n *simNode) follow() {
	if n.following {
		return
	}
	n.following = true
	n.later(n.w.between(time.Millisecond, 60*time.Millisecond)+n.w.late[n.id], func() {
		n.following = false
		chief := n.w.chief
		if chief < 0 || !n.w.reach(n.id, chief) {
			n.later(50*time.Millisecond, n.follow)
			return
		}
		if n.image.Index() < n.w.newest().Index() {
			n.image = n.w.images[n.image.Index()+uint64(n.w.rng.Int64N(int64(n.w.newest().Index()-n.image.Index())))]
			n.applied()
			n.follow()
		}
	})
}

// dump is the end of the trace.
func (w *simWorld) dump() string {
	return strings.Join(w.trace[max(0, len(w.trace)-120):], "\n")
}

func newSimController(n *simNode) *controller.Controller {
	return controller.New(controller.Options{
		Proposer: simSeat{n}, Static: n.w.static, Rand: rand.New(rand.NewPCG(n.w.seed, uint64(n.incarnations))),
		NewID: n.w.newTopicID,
		Verify: func(context.Context) error {
			if n.w.chief != n.id || n.w.term != n.leads || !n.w.majority(n.id) {
				return errNoChief
			}
			return nil
		},
	})
}

// simulate runs one seed.
func simulate(tb testing.TB, seed uint64, loud bool) (*simWorld, error) {
	tb.Helper()
	w := newSimWorld(seed, loud)
	w.after(0, w.createTopic)
	w.after(2*time.Second, w.nemesis)
	w.after(2*time.Second, w.operator)
	w.after(2*time.Second, w.deleter)
	w.after(2*time.Second, w.retainer)
	if w.mayBeUnclean() {
		w.after(4*time.Second, w.ambush)
	}
	for range 3 {
		w.after(w.between(0, time.Second), w.producer)
	}
	w.run(simWar)
	w.calm()
	w.after(0, w.createTopic)
	for at := simWar + time.Second; w.err == nil && at < simWar+simPeace-10*time.Second && !w.whole(); at += time.Second {
		w.run(at)
	}
	w.run(w.now + 3*time.Second)
	w.quiet = true
	w.run(w.now + 5*time.Second)
	if w.err == nil {
		w.settled()
	}
	return w, w.err
}

package isr

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
)

// node is one process of the simulated cluster, and the disk under it.
type simNode struct {
	w  *simWorld
	id int
	simProcess
	skew     time.Duration // of its clock
	image    *metadata.Image
	replicas [simPartitions]*simReplica
	// links are this node's fetches from others, sessions those of others from it.
	links    [simNodes]*simLink
	sessions [simNodes]*simSession
	ids      int32
}

// process is what is in the memory of a node, but for clean.
type simProcess struct {
	up, paused   bool
	incarnations int
	held         []func() // what waits while it is paused
	leads        uint64   // term of the metadata log that it believes to lead, 0 for none
	following    bool
	control      *controller.Controller
	taken        uint64 // index of the image that the partitions follow
	epoch        int64  // broker epoch, 0 before the registration is applied
	clean        int64  // broker epoch in the clean-stop marker, −1 for none
	lost         []controller.PartitionRef
	fenced       bool
	lease        time.Duration
	stopping     bool
}

func newSimNode(w *simWorld, id int) *simNode {
	n := &simNode{w: w, id: id, image: w.newest(), simProcess: simProcess{clean: -1}, skew: w.between(0, time.Hour)}
	for p := range n.replicas {
		n.replicas[p] = &simReplica{n: n, p: p, simDisk: simDisk{below: -1}, uncleanFrom: -1}
	}
	return n
}

// now is the time of the node's own clock, which is right but for where it began.
func (n *simNode) now() time.Duration { return n.w.now + n.skew }

// do runs f in an incarnation of the process: later when it is paused, never when it is gone.
func (n *simNode) do(incarnation int, f func()) {
	switch {
	case !n.up || n.incarnations != incarnation:
	case n.paused:
		n.held = append(n.held, func() { n.do(incarnation, f) })
	default:
		f()
	}
}

// later is after for what the process does.
func (n *simNode) later(d time.Duration, f func()) {
	incarnation := n.incarnations
	n.w.after(d, func() { n.do(incarnation, f) })
}

func (w *simWorld) delay() time.Duration {
	d := w.between(100*time.Microsecond, 3*time.Millisecond) + w.slow
	if !w.peace && w.chance(3) {
		d += w.between(0, 300*time.Millisecond)
	}
	return d
}

// call is a request to another process: serve runs there and returns what runs here with the answer; fail runs when there is
// none. Just one of the two runs, or neither.
func (n *simNode) call(to int, serve func(*simNode) func(), fail func()) {
	w, incarnation, done := n.w, n.incarnations, false
	finish := func(f func()) {
		n.do(incarnation, func() {
			if !done {
				done = true
				f()
			}
		})
	}
	w.after(2*time.Second, func() { finish(fail) })
	way := w.delay()
	if !w.peace && w.chance(4) { // it lies somewhere, and arrives when its sender has given it up
		way += w.between(0, 6*time.Second)
	}
	w.after(way, func() {
		t := w.nodes[to]
		switch {
		case w.cut[n.id][to]:
			return
		case !t.up:
			w.after(w.delay(), func() { finish(fail) })
			return
		}
		t.do(t.incarnations, func() {
			reply := serve(t)
			w.after(w.delay(), func() {
				if !w.cut[to][n.id] {
					finish(reply)
				}
			})
		})
	})
}

// callChief is call to whom this node takes for the leader of the metadata log.
func (n *simNode) callChief(serve func(*simNode) func(), fail func()) {
	if to := n.w.chief; to >= 0 {
		n.call(to, serve, fail)
		return
	}
	n.later(100*time.Millisecond, fail)
}

// start begins an incarnation, unless the process runs: logs are recovered, then it registers.
func (n *simNode) start() {
	if n.up {
		return
	}
	n.up, n.paused, n.held, n.leads, n.following = true, false, nil, 0, false
	n.incarnations++
	n.epoch, n.fenced, n.lease, n.stopping = 0, true, 0, false
	n.links, n.sessions, n.taken = [simNodes]*simLink{}, [simNodes]*simSession{}, 0
	n.control = newSimController(n)
	for _, r := range n.replicas {
		r.recover()
	}
	n.w.note("node %d starts, ends %v", n.id, n.ends())
	n.later(n.w.between(5*time.Millisecond, 300*time.Millisecond), n.register)
	n.later(0, n.tick)
}

// shut says that some log did not open.
func (n *simNode) shut() bool {
	return slices.ContainsFunc(n.replicas[:], func(r *simReplica) bool { return r.shut })
}

func (n *simNode) ends() (ends []int) {
	for _, r := range n.replicas {
		ends = append(ends, len(r.log))
	}
	return ends
}

// tick is the periodic work of a process.
func (n *simNode) tick() {
	n.later(100*time.Millisecond, n.tick)
	// A controller whose lease has run out while it was paused finds that out with its first timer.
	if n.leads != 0 && (n.w.chief != n.id || n.w.term != n.leads) {
		n.leads = 0
	}
	_ = n.control.Tick(context.Background(), n.now()) //nolint:errcheck // it is tried again
	for _, r := range n.replicas {
		if r.lead != nil {
			if r.lead.tick(record.Offset(len(r.log)), n.now()) {
				r.advanced()
			}
			r.propose()
		}
	}
	n.throttle()
	for _, l := range n.links {
		if l != nil {
			l.expire()
			l.pump()
		}
	}
	for _, r := range n.replicas {
		if n.w.chance(2) {
			r.hwFile = r.hw
		}
	}
}

func (n *simNode) register() {
	incarnation := [16]byte{byte(n.id), byte(n.incarnations), byte(n.incarnations >> 8)}
	reg := controller.Registration{
		ID: int32(n.id), ClusterID: n.image.ClusterID(), Incarnation: incarnation, PreviousEpoch: n.clean,
		Directories: []metadata.DirectoryID{{byte(n.id + 1)}}, Features: controller.SupportedFeatures(),
	}
	again := func() { n.later(200*time.Millisecond, n.register) }
	n.callChief(func(t *simNode) func() {
		epoch, err := t.control.RegisterBroker(context.Background(), reg)
		return func() {
			if err != nil {
				again()
				return
			}
			n.clean = -1
			n.registered(epoch)
		}
	}, again)
}

// registered waits until the registration is applied here, and begins to report.
func (n *simNode) registered(epoch int64) {
	if n.image.Index() < uint64(epoch) {
		n.follow()
		n.later(20*time.Millisecond, func() { n.registered(epoch) })
		return
	}
	if b, ok := n.image.Broker(int32(n.id)); !ok || b.Epoch != epoch {
		n.kill(false) // another registration came behind: nothing can be done in this epoch
		n.w.after(300*time.Millisecond, n.start)
		return
	}
	n.epoch = epoch
	n.applied()
	n.lost = nil
	for p, r := range n.replicas {
		if r.missing && !r.shut {
			n.lost = append(n.lost, controller.PartitionRef{Topic: r.topic, Partition: int32(p)})
		}
	}
	n.w.note("node %d is registered with epoch %d, lost %v", n.id, epoch, n.lost)
	n.heartbeat()
}

func (n *simNode) heartbeat() {
	n.later(500*time.Millisecond, n.heartbeat)
	sent := n.now()
	h := controller.Heartbeat{ID: int32(n.id), Epoch: n.epoch, Applied: n.taken, WantShutdown: n.stopping, Lost: n.lost, Features: controller.SupportedFeatures()}
	for p, r := range n.replicas {
		if r.shut {
			h.OutOfOrder = append(h.OutOfOrder, controller.PartitionRef{Topic: r.topic, Partition: int32(p)})
		}
	}
	n.callChief(func(t *simNode) func() {
		answer, err := t.control.Heartbeat(context.Background(), t.now(), h)
		return func() { n.beaten(sent, answer, err) }
	}, func() {})
}

func (n *simNode) beaten(sent time.Duration, a controller.HeartbeatAnswer, err error) {
	switch {
	case errors.Is(err, controller.ErrStaleBrokerEpoch), errors.Is(err, controller.ErrBrokerNotRegistered):
		n.kill(false)
		n.w.after(300*time.Millisecond, n.start)
		return
	case err != nil:
		return
	}
	n.lost = nil
	for _, r := range n.replicas {
		r.missing = r.missing && r.shut
	}
	if !a.Fenced && a.CaughtUp {
		n.lease = max(n.lease, sent+2*time.Second)
	}
	if a.ShutDown && n.stopping {
		n.stop()
	}
}

// kill ends the process; power takes what was not flushed along.
func (n *simNode) kill(power bool) {
	if !n.up {
		return
	}
	n.up, n.leads = false, 0
	for _, r := range n.replicas {
		r.crash(power)
	}
	n.w.note("node %d dies (power %v), ends %v", n.id, power, n.ends())
}

// stop ends the process cleanly.
func (n *simNode) stop() {
	for _, r := range n.replicas {
		r.synced, r.hwFile = len(r.log), r.hw
	}
	n.clean = n.epoch
	n.kill(false)
	n.w.note("node %d stopped cleanly", n.id)
	if !n.w.peace {
		n.w.after(n.w.between(100*time.Millisecond, 3*time.Second), n.start)
		return
	}
	n.w.after(100*time.Millisecond, n.start)
}

func (n *simNode) pause(d time.Duration) {
	if !n.up || n.paused {
		return
	}
	n.paused = true
	incarnation := n.incarnations
	n.w.note("node %d is paused for %v", n.id, d)
	n.w.after(d, func() {
		if n.incarnations == incarnation {
			n.resume()
		}
	})
}

func (n *simNode) resume() {
	if !n.up || !n.paused {
		return
	}
	n.paused = false
	n.w.note("node %d goes on", n.id)
	held := n.held
	n.held = nil
	for _, f := range held {
		f()
	}
}

// laterApplied has the partitions follow the image on a goroutine of their own.
func (n *simNode) laterApplied() { n.later(n.w.between(0, 5*time.Millisecond), n.applied) }

// applied brings the partitions in line with the image, once this incarnation's registration is in it.
func (n *simNode) applied() {
	if n.epoch == 0 || n.image.Index() < uint64(n.epoch) {
		return
	}
	if b, ok := n.image.Broker(int32(n.id)); ok {
		n.fenced = b.Fenced || b.Epoch != n.epoch
	}
	n.taken = n.image.Index()
	for p, r := range n.replicas {
		r.belong(topicOf(n.image))
		if part, ok := n.image.Partition(r.topic, int32(p)); ok {
			r.setRole(part)
		}
	}
}

func (w *simWorld) members(img *metadata.Image) (members []Member) {
	for _, b := range img.Brokers() {
		if !b.Fenced && !b.ShuttingDown {
			members = append(members, Member{ID: b.ID, Epoch: b.Epoch})
		}
	}
	return members
}

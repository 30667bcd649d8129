package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/internal/grid"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/peer"
)

// register makes this incarnation known to the controller, fenced, and waits until one answers. Another process with this node's id is
// waited for a while: it may be the one that this replaces.
func (c *cluster) register(ctx context.Context) error {
	r := &c.registration
	out := &peer.Registration{
		ClusterID: r.ClusterID, Incarnation: r.Incarnation, Listeners: r.Listeners, Rack: r.Rack, Directories: r.Directories, PreviousEpoch: metadata.NoEpoch,
		Features: peerFeatures(r.Features),
	}
	begun, told := time.Now(), false
	for {
		changed := c.node.quorum.LeaderChanged()
		var epoch int64
		attempt, cancel := context.WithTimeout(ctx, decideTime)
		err := c.ask(attempt, func(ctx context.Context) (err error) {
			epoch, err = c.node.control.RegisterBroker(ctx, *r)
			return err
		}, func(ctx context.Context, leader metadata.BrokerID) (err error) {
			epoch, err = c.peer.Register(ctx, leader, out)
			return err
		})
		cancel()
		if err == nil {
			return c.registered(ctx, epoch)
		}
		duplicate := errors.Is(err, peer.ErrDuplicateBroker) || errors.Is(err, controller.ErrDuplicateBroker)
		switch {
		case duplicate && time.Since(begun) > duplicateTime:
			return fmt.Errorf("another process runs as node %d: %w", r.ID, err)
		case errors.Is(err, peer.ErrInconsistentClusterID), errors.Is(err, controller.ErrInconsistentClusterID):
			return err
		case errors.Is(err, peer.ErrInvalidRegistration), errors.Is(err, controller.ErrInvalidRegistration):
			return fmt.Errorf("inter.broker.listener.name=%s is none of the cluster's: its brokers have the listeners %s, and reach each other by one name: %w",
				c.node.cfg.InternalName(), strings.Join(c.listenersOfOthers(), ", "), err)
		case errors.Is(err, peer.ErrUnsupported), errors.Is(err, controller.ErrUnsupportedFeature):
			return fmt.Errorf("the cluster uses what this version does not know, run a newer one: %w", err)
		case !told && time.Since(begun) > 2*time.Second:
			told = true
			c.node.log.Info("waiting for the controller", "event", "broker.register.wait", "error", err)
		}
		if err := c.pause(ctx, changed); err != nil {
			return err
		}
	}
}

// listenersOfOthers names the listeners of the other brokers, as far as this node has heard of them.
func (c *cluster) listenersOfOthers() []string {
	var names []string
	for _, b := range c.node.quorum.Image().Brokers() {
		for _, l := range b.Listeners {
			if b.ID != c.registration.ID && !slices.Contains(names, l.Name) {
				names = append(names, l.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// registered takes the epoch over, and waits until this node has applied it.
func (c *cluster) registered(ctx context.Context, epoch int64) error {
	n := c.node
	c.epoch.Store(epoch)
	n.quorum.SetBrokerEpoch(epoch)
	n.replicas.SetBrokerEpoch(epoch)
	for _, d := range n.dirs {
		d.SetBrokerEpoch(epoch)
	}
	return n.applier.wait(ctx, uint64(epoch))
}

// beat reports to the controller once. An answer that finds this broker unfenced renews the lease, from the moment that the report was sent.
func (c *cluster) beat(ctx context.Context, h controller.Heartbeat) (a controller.HeartbeatAnswer, err error) {
	n := c.node
	h.ID, h.Epoch, h.Applied, h.Features = n.cfg.NodeID(), c.epoch.Load(), c.applied(), c.registration.Features
	for _, d := range n.dirs {
		if d.Offline() != nil {
			h.Offline = append(h.Offline, d.id)
		}
	}
	h.OutOfOrder = n.broken()
	late := n.replicas.Untold() // after that: a log that opens meanwhile is out of order, or has lost what it has lost, or both
	for _, id := range late {
		h.Lost = append(slices.Clip(h.Lost), controller.PartitionRef{Topic: id.TopicID, Partition: id.Partition})
	}
	at, sent := n.o.Now(), time.Now()
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	err = c.ask(ctx, func(ctx context.Context) (err error) {
		a, err = n.control.Heartbeat(ctx, c.Now(), h)
		return err
	}, func(ctx context.Context, leader metadata.BrokerID) error {
		got, err := c.peer.Heartbeat(ctx, leader, peerHeartbeat(&h))
		a = controller.HeartbeatAnswer(got)
		return err
	})
	if err == nil {
		n.replicas.Told(late)
	}
	if err == nil && !a.Fenced && a.CaughtUp && !h.WantFence && !h.WantShutdown {
		n.replicas.SetLease(sent.Add(leaseTime))
		n.lease.Store(&acknowledged{at, sent})
	}
	return a, err
}

// broken are the partitions that this broker can neither lead nor follow any more, and for which the cluster still counts on it, or may turn to
// it because nobody leads: which directory they were in nobody else knows.
func (n *Node) broken() (out []controller.PartitionRef) {
	img := n.quorum.Image()
	for _, id := range n.replicas.Broken() {
		part, ok := img.Partition(id.TopicID, id.Partition)
		if !ok || len(part.Replicas) == 1 {
			continue
		}
		self := n.cfg.NodeID()
		if slices.Contains(part.ISR, self) || slices.Contains(part.ELR, self) || img.LeaderOf(part) == metadata.NoLeader {
			out = append(out, controller.PartitionRef{Topic: id.TopicID, Partition: id.Partition})
		}
	}
	return out
}

func peerHeartbeat(h *controller.Heartbeat) *peer.Heartbeat {
	out := &peer.Heartbeat{Epoch: h.Epoch, Applied: h.Applied, WantFence: h.WantFence, WantShutdown: h.WantShutdown, OfflineDirs: h.Offline}
	out.Features = peerFeatures(h.Features)
	for _, l := range h.Lost {
		out.Lost = append(out.Lost, peer.PartitionRef(l))
	}
	for _, o := range h.OutOfOrder {
		out.OutOfOrder = append(out.OutOfOrder, peer.PartitionRef(o))
	}
	return out
}

func peerFeatures(features []controller.Feature) (out []peer.Feature) {
	for _, f := range features {
		out = append(out, peer.Feature(f))
	}
	return out
}

// insist reports until the controller's answer is the one wanted.
func (c *cluster) insist(ctx context.Context, h controller.Heartbeat, enough func(controller.HeartbeatAnswer) bool) error {
	for {
		changed := c.node.quorum.LeaderChanged()
		a, err := c.beat(ctx, h)
		switch {
		case err == nil && enough(a):
			return nil
		case stale(err):
			if err := c.register(ctx); err != nil {
				return err
			}
		}
		if err := c.pause(ctx, changed); err != nil {
			return err
		}
	}
}

// settle says what is lost, still fenced, and then that this broker is ready; it waits until the controller has unfenced it.
func (c *cluster) settle(ctx context.Context, lost []controller.PartitionRef) error {
	any := func(controller.HeartbeatAnswer) bool { return true }
	if len(lost) > 0 {
		if err := c.insist(ctx, controller.Heartbeat{WantFence: true, Lost: lost}, any); err != nil {
			return fmt.Errorf("reporting lost data to the controller: %w", err)
		}
	}
	if err := c.insist(ctx, controller.Heartbeat{}, func(a controller.HeartbeatAnswer) bool { return !a.Fenced }); err != nil {
		return fmt.Errorf("unfencing this broker: %w", err)
	}
	return nil
}

// stale says that the controller knows another incarnation of this broker.
func stale(err error) bool {
	return errors.Is(err, peer.ErrStaleBrokerEpoch) || errors.Is(err, controller.ErrStaleBrokerEpoch)
}

// removed says that the controller knows no broker of this id any more.
func removed(err error) bool {
	return errors.Is(err, peer.ErrBrokerNotRegistered) || errors.Is(err, controller.ErrBrokerNotRegistered)
}

// due asks for a heartbeat at once.
func (c *cluster) due() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// report sends heartbeats until the node stops: each half second, and at once when changes of topics were applied or another node leads.
func (c *cluster) report() {
	ctx, cancel := c.node.untilStop()
	defer cancel()
	t := time.NewTimer(heartbeatEvery)
	defer t.Stop()
	quiet := false
	for {
		changed := c.node.quorum.LeaderChanged()
		select {
		case <-c.node.stop:
			return
		case <-t.C:
		case <-c.kick:
		case <-changed:
		}
		if c.leaving.Load() {
			return
		}
		_, err := c.beat(ctx, controller.Heartbeat{})
		next := grid.Until(heartbeatEvery, heartbeatAhead)
		switch {
		case stale(err):
			c.node.log.Warn("the controller knows another incarnation of this broker; registering again", "event", "broker.register.again", "error", err)
			if err := c.register(ctx); err != nil && ctx.Err() == nil {
				c.node.log.Error("this broker could not register again", "event", "broker.register.failed", "error", err)
			}
			next = retryEvery
		case removed(err) && !quiet:
			quiet = true
			c.node.log.Error("this broker was removed from the cluster; stop it", "event", "broker.removed", "error", err)
		case err != nil:
			next = retryEvery
		}
		t.Reset(next)
	}
}

// tick has the controller do what is due, when this node is it.
func (c *cluster) tick() {
	ctx, cancel := c.node.untilStop()
	defer cancel()
	t := time.NewTimer(tickEvery)
	defer t.Stop()
	last := uint64(0)
	for ; ; t.Reset(grid.Until(tickEvery, 0)) {
		select {
		case <-c.node.stop:
			return
		case <-t.C:
		}
		if term, err := c.node.quorum.Lead(); err == nil && term != last {
			last = term
			c.takeOver()
		}
		limited, done := context.WithTimeout(ctx, decideTime)
		if err := c.node.control.Tick(limited, c.Now()); err != nil && ctx.Err() == nil {
			c.node.log.Debug("the controller's round failed", "event", "controller.tick", "error", err)
		}
		done()
	}
}

// leave asks to be relieved of what this broker leads, until that is done, nobody can do it, or ctx ends.
func (c *cluster) leave(ctx context.Context) {
	c.leaving.Store(true)
	if !c.node.cfg.Bool("controlled.shutdown.enable") {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, decideTime)
	defer cancel()
	answered := time.Now()
	for {
		a, err := c.beat(ctx, controller.Heartbeat{WantShutdown: true})
		switch {
		case err == nil && a.ShutDown:
			return
		case err == nil:
			answered = time.Now()
		case stale(err), removed(err), time.Since(answered) > attemptTime:
			c.node.log.Warn("stopping without having handed over what this broker leads", "event", "broker.leave.failed", "error", err)
			return
		}
		t := time.NewTimer(retryEvery / 2)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// handOver has another node lead the metadata log before this one stops: the others would take a while to see that nobody does.
func (c *cluster) handOver(ctx context.Context) {
	if !c.Leading() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, handOverTime)
	defer cancel()
	if err := c.node.quorum.Transfer(ctx); err != nil {
		c.node.log.Info("stopping without having handed over the metadata log", "event", "controller.leave.failed", "error", err)
	}
}

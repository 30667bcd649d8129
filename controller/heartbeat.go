package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/keeplog/keeplog/metadata"
)

// Heartbeat is what a broker says of itself twice a second, and at once when it has applied changes of topics.
type Heartbeat struct {
	ID    metadata.BrokerID
	Epoch int64
	// Applied is the newest log index that the broker has applied, its partitions included.
	Applied uint64
	// WantFence says that the broker is not ready, as between registration and the comparison of its directories with the image.
	// WantShutdown asks for a controlled shutdown; once asked for, there is no way back in this epoch.
	WantFence, WantShutdown bool
	// Lost are partitions whose replica here misses data that it had. They leave the sets before the broker is unfenced.
	Lost []PartitionRef
	// OutOfOrder are partitions whose replica here can be neither led nor followed for now, with everything that it had as far as is known.
	OutOfOrder []PartitionRef
	// Offline are data directories that have failed: all in them is out of order.
	Offline []metadata.DirectoryID
	// Features are those that the broker's version knows; none, it does not say.
	Features []Feature
}

// HeartbeatAnswer is the controller's view. Only an answer with Fenced false and CaughtUp true renews the broker's lease.
type HeartbeatAnswer struct {
	// CaughtUp says that the broker has applied all that it must know to be unfenced, and to have its lease renewed.
	CaughtUp bool
	Fenced   bool
	// ShutDown says that the broker may stop: it leads nothing that another could, and the others know.
	ShutDown bool
}

// appliedPatience is the longest that WaitApplied waits.
const appliedPatience = time.Second

// Heartbeat takes a broker's report. now is of the monotonic clock that Tick gets, too. Errors: ErrNotController,
// ErrBrokerNotRegistered, ErrStaleBrokerEpoch.
func (c *Controller) Heartbeat(ctx context.Context, now time.Duration, h Heartbeat) (HeartbeatAnswer, error) {
	term, err := c.o.Proposer.Lead()
	if err != nil {
		return HeartbeatAnswer{}, fmt.Errorf("%w: %w", ErrNotController, err)
	}
	img := c.o.Proposer.Image()
	b, err := (&planner{img: img}).brokerAt(h.ID, h.Epoch)
	if err != nil {
		return HeartbeatAnswer{}, err
	}
	c.liveMu.Lock()
	c.live.observe(term, img, now, false)
	var p pulse
	reported := c.live.report(&h, now)
	if reported != nil {
		p = *reported
	}
	c.liveMu.Unlock()
	if reported == nil {
		return HeartbeatAnswer{}, answer(ErrStaleBrokerEpoch, "Broker %d has registered again.", h.ID)
	}
	c.noteFeatures(h.ID, h.Epoch, h.Features)
	c.woken()
	if err := c.broken(ctx, &h); err != nil {
		return HeartbeatAnswer{}, err
	}
	if h.WantShutdown || b.ShuttingDown {
		a, err := c.shutDown(ctx, b, p)
		if err != nil || a.Fenced || h.WantShutdown { // a broker that wants to go takes no lease from the answer
			return a, err
		}
		return c.renew(ctx, h.ID, h.Epoch)
	}
	a := HeartbeatAnswer{CaughtUp: p.caughtUp(), Fenced: b.Fenced}
	switch {
	case h.WantFence && !b.Fenced:
		a.Fenced = true
		err = c.fence(ctx, h.ID, h.Epoch)
	case !h.WantFence && b.Fenced && a.CaughtUp:
		a.Fenced = false
		err = c.ready(ctx, h.ID, h.Epoch)
	}
	if err != nil || a.Fenced {
		return a, err
	}
	return c.renew(ctx, h.ID, h.Epoch)
}

// broken decides what follows from what a report says of replicas. What is out of order is told with every report: no turn is taken for what
// has been decided already.
func (c *Controller) broken(ctx context.Context, h *Heartbeat) error {
	if len(h.Lost) == 0 {
		if records, err := c.planner().planBroken(h); err == nil && len(records) == 0 {
			return nil
		}
	}
	_, err := c.all(ctx, func(p *planner) ([]metadata.Record, error) { return p.planBroken(h) })
	return err
}

// ready unfences a broker that knows everything that was taken away from it, when the decision is made.
func (c *Controller) ready(ctx context.Context, id metadata.BrokerID, epoch int64) error {
	_, err := c.all(ctx, func(p *planner) ([]metadata.Record, error) {
		if !c.caughtUp(id, epoch) {
			return nil, nil
		}
		return p.planUnfence(id, epoch)
	})
	return err
}

// renew is the answer that renews a broker's lease, if nothing was taken away from it while a majority was asked whether this node leads.
func (c *Controller) renew(ctx context.Context, id metadata.BrokerID, epoch int64) (HeartbeatAnswer, error) {
	if c.o.Verify != nil {
		if err := c.o.Verify(ctx); err != nil {
			return HeartbeatAnswer{}, fmt.Errorf("%w: %w", ErrNotController, err)
		}
	}
	caughtUp := c.caughtUp(id, epoch) // before the image: what is decided behind this has found the report
	b, err := (&planner{img: c.o.Proposer.Image()}).brokerAt(id, epoch)
	if err != nil {
		return HeartbeatAnswer{}, err
	}
	return HeartbeatAnswer{CaughtUp: caughtUp, Fenced: b.Fenced}, nil
}

// caughtUp says that an incarnation of a broker knows everything that was taken away from it.
func (c *Controller) caughtUp(id metadata.BrokerID, epoch int64) bool {
	c.liveMu.Lock()
	defer c.liveMu.Unlock()
	p := c.live.pulses[id]
	return p != nil && p.epoch == epoch && p.caughtUp()
}

// shutDown goes on with a controlled shutdown: leaderships are moved, all brokers hear of it, the broker is fenced.
func (c *Controller) shutDown(ctx context.Context, b *metadata.Broker, p pulse) (HeartbeatAnswer, error) {
	a := HeartbeatAnswer{CaughtUp: p.caughtUp(), Fenced: b.Fenced, ShutDown: b.Fenced}
	if b.Fenced {
		return a, nil
	}
	moved, err := c.all(ctx, func(pl *planner) ([]metadata.Record, error) { return pl.planShutdown(b.ID, b.Epoch) })
	if err != nil {
		return HeartbeatAnswer{}, err
	}
	img := c.o.Proposer.Image()
	c.liveMu.Lock()
	told := false
	if now := c.live.pulses[b.ID]; now != nil && now.epoch == b.Epoch {
		switch {
		case moved.index > 0:
			now.leaving = moved.index
		case now.leaving == 0:
			now.leaving = img.Index()
		}
		told = c.live.applied(img, now.leaving, metadata.NoLeader)
	}
	c.liveMu.Unlock()
	if !told {
		return a, nil
	}
	a.Fenced, a.ShutDown = true, true
	return a, c.fence(ctx, b.ID, b.Epoch)
}

// fence takes one broker for dead.
func (c *Controller) fence(ctx context.Context, id metadata.BrokerID, epoch int64) error {
	done, err := c.all(ctx, func(p *planner) ([]metadata.Record, error) { return p.planFence(id, epoch) })
	if err == nil {
		c.taken(done.index, id)
	}
	return err
}

// taken notes who was taken for dead.
func (c *Controller) taken(index uint64, ids ...metadata.BrokerID) {
	if index == 0 {
		index = c.o.Proposer.Image().Index()
	}
	c.liveMu.Lock()
	c.live.dead(index, ids...)
	c.liveMu.Unlock()
	c.woken()
}

// Dropped says that the process of a broker is gone: a connection to it was dropped, and the next dial refused. epoch is the
// broker's at that time; a newer incarnation is left alone. Nothing happens when this node is not the controller.
func (c *Controller) Dropped(ctx context.Context, id metadata.BrokerID, epoch int64) error {
	if _, err := c.o.Proposer.Lead(); err != nil {
		return nil //nolint:nilerr // the controller has its own connections
	}
	return c.fence(ctx, id, epoch)
}

// Tick does what is due, when this node is the controller: fences whose session has ended, gives partitions leaders,
// completes reassignments, brings leaderships back to preferred replicas. It is called every 100 ms on every node of a cluster;
// a node alone does not call it. now is of any monotonic clock.
func (c *Controller) Tick(ctx context.Context, now time.Duration) error {
	c.liveMu.Lock()
	c.live.ticked = true
	term, err := c.o.Proposer.Lead()
	if err != nil {
		c.live = liveness{ticked: true, heardFormer: c.o.HeardFormer}
		c.liveMu.Unlock()
		return nil //nolint:nilerr // another node's business
	}
	img := c.o.Proposer.Image()
	c.live.observe(term, img, now, true)
	expired, tardy := c.live.expired(now), c.live.tardy(img, now)
	c.liveMu.Unlock()
	if len(expired) > 0 {
		done, err := c.all(ctx, func(p *planner) ([]metadata.Record, error) {
			c.liveMu.Lock()
			expired = c.live.doom(p.img, now) // some may have reported while others were being decided
			c.liveMu.Unlock()
			if len(expired) == 0 {
				return nil, nil
			}
			return p.planExpired(expired), nil
		})
		if err != nil {
			return err
		}
		if done.index > 0 {
			c.o.Logger.Warn("brokers that did not report are fenced", "event", "broker.fenced", "brokers", fmt.Sprint(expired))
		}
		c.taken(done.index, expired...)
	}
	if len(tardy) > 0 {
		if _, err := c.all(ctx, func(p *planner) ([]metadata.Record, error) { return p.planTardy(tardy), nil }); err != nil {
			return err
		}
	}
	if err := c.tendShards(ctx, now); err != nil {
		return err
	}
	return c.reconcile(ctx, now)
}

// reconcile looks at all partitions when the image is another than last time, or something is due.
func (c *Controller) reconcile(ctx context.Context, now time.Duration) error {
	index := c.o.Proposer.Image().Changed()
	c.liveMu.Lock()
	every := c.balanceEvery()
	balance := every > 0 && now-c.live.balanced >= every
	if balance {
		c.live.balanced = now
	}
	news := c.live.news
	idle := !balance && c.live.looked == index && c.live.lookedNews == news && len(c.live.leaderless)+len(c.live.told) == 0
	c.liveMu.Unlock()
	if idle {
		return nil
	}
	var seen uint64
	_, err := c.all(ctx, func(p *planner) ([]metadata.Record, error) {
		seen = p.img.Changed()
		wanting := p.leaderless()
		c.liveMu.Lock()
		due := c.live.due(wanting, now)
		c.liveMu.Unlock()
		return p.planReconcile(balance, due), nil
	})
	if err != nil {
		return err
	}
	c.liveMu.Lock()
	c.live.looked, c.live.lookedNews = seen, news
	c.liveMu.Unlock()
	return nil
}

// balanceEvery is the time between two preferred elections, 0 for never.
func (c *Controller) balanceEvery() time.Duration {
	if !c.o.Static.Bool("auto.leader.rebalance.enable") {
		return 0
	}
	return c.o.Static.Duration("leader.imbalance.check.interval.seconds")
}

// WaitApplied waits until every live broker but this one has reported that it has applied an index, at most one second, and
// says whether they have. On a node alone there is nothing to wait for.
func (c *Controller) WaitApplied(ctx context.Context, index uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, appliedPatience)
	defer cancel()
	for {
		c.liveMu.Lock()
		done := !c.live.ticked || c.live.applied(c.o.Proposer.Image(), index, c.o.Node)
		wake := c.wake
		c.liveMu.Unlock()
		if done {
			return true
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return false
		}
	}
}

// woken wakes those who wait for reports.
func (c *Controller) woken() {
	c.liveMu.Lock()
	defer c.liveMu.Unlock()
	close(c.wake)
	c.wake = make(chan struct{})
}

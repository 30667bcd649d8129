package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keeplog/keeplog/internal/invariant"
	"github.com/keeplog/keeplog/metadata"
)

// InSyncMember is a replica that a leader wants in the in-sync set, with the broker epoch in which it fetches. An epoch of −1
// (not known) will do for a member that is in the set already.
type InSyncMember struct {
	ID    metadata.BrokerID
	Epoch int64
}

// ISRChange is a leader's wish for another in-sync set, made when the partition was at these epochs.
type ISRChange struct {
	Topic                       metadata.TopicID
	Partition                   int32
	LeaderEpoch, PartitionEpoch int32
	ISR                         []InSyncMember
	// Recovered is true except while the leader is still busy with an unclean election: then the set is the leader alone.
	Recovered bool
}

// AlterPartitionRequest is sent by a leader, of itself and its epoch.
type AlterPartitionRequest struct {
	Broker  metadata.BrokerID
	Epoch   int64
	Changes []ISRChange
}

// ISRChanged is the answer for one partition. Without Err the rest is the partition as it now is.
type ISRChanged struct {
	Topic                       metadata.TopicID
	Partition                   int32
	Err                         error
	Leader                      metadata.BrokerID
	LeaderEpoch, PartitionEpoch int32
	ISR                         []metadata.BrokerID
	Unclean                     bool
}

// inSyncCall is a request that waits for its turn. Requests that wait together are decided and committed together.
type inSyncCall struct {
	req AlterPartitionRequest
	// The rest is written by the one that decides, before done is closed.
	answers []ISRChanged
	err     error
	done    chan struct{}
}

// inSyncPatience bounds the commit of requests that were decided together: it does not end with the first caller's patience.
const inSyncPatience = 10 * time.Second

// AlterPartition changes in-sync sets. The error is of the request as a whole: ErrNotController, ErrBrokerNotRegistered,
// ErrStaleBrokerEpoch. A change that moves the leadership away (it ends a reassignment, or the sender is drained or
// shutting down) is made, and answered with ErrNewLeaderElected.
func (c *Controller) AlterPartition(ctx context.Context, req AlterPartitionRequest) ([]ISRChanged, error) {
	call := &inSyncCall{req: req, done: make(chan struct{})}
	c.liveMu.Lock()
	c.waiting = append(c.waiting, call)
	c.liveMu.Unlock()
	if err := c.decideInSync(ctx); err != nil && c.withdraw(call) {
		return nil, err
	}
	select {
	case <-call.done:
		return call.answers, call.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrNotCommitted, context.Cause(ctx))
	}
}

// withdraw takes a call back; false when somebody is deciding it.
func (c *Controller) withdraw(call *inSyncCall) bool {
	c.liveMu.Lock()
	defer c.liveMu.Unlock()
	i := slices.Index(c.waiting, call)
	if i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
	return i >= 0
}

// decideInSync decides all calls that wait when its turn comes.
func (c *Controller) decideInSync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), inSyncPatience)
	defer cancel()
	var calls []*inSyncCall
	var of []*ISRChanged
	var plan *planner
	_, err := c.plan(ctx, func(p *planner) (records []metadata.Record) {
		plan = p
		c.liveMu.Lock()
		calls, c.waiting = c.waiting, nil
		c.liveMu.Unlock()
		seen := map[PartitionRef]*inSyncCall{}
		for _, call := range calls {
			if _, call.err = p.brokerAt(call.req.Broker, call.req.Epoch); call.err != nil {
				continue
			}
			planned, at := p.planInSync(call, seen)
			records = append(records, planned...)
			for _, i := range at {
				of = append(of, &call.answers[i])
			}
		}
		return records
	}, func(i int, _ metadata.Result, err error) {
		if err != nil {
			of[i].Err = err
		}
	})
	for _, call := range calls {
		call.fill(plan.after)
		close(call.done)
	}
	return err
}

// fill tells the state after the change, and before the next decision.
func (call *inSyncCall) fill(after *metadata.Image) {
	for i := range call.answers {
		a := &call.answers[i]
		if a.Err != nil {
			continue
		}
		if part, ok := after.Partition(a.Topic, a.Partition); ok {
			a.Leader, a.LeaderEpoch, a.PartitionEpoch = part.Leader, part.LeaderEpoch, part.PartitionEpoch
			a.ISR, a.Unclean = part.ISR, part.Unclean
		}
	}
}

// planInSync plans the changes of one request. records[i] belongs to the answer at index of[i]. seen are the partitions that
// this plan has changed already.
func (p *planner) planInSync(call *inSyncCall, seen map[PartitionRef]*inSyncCall) (records []metadata.Record, of []int) {
	for i := range call.req.Changes {
		ch := &call.req.Changes[i]
		ref := PartitionRef{ch.Topic, ch.Partition}
		a := ISRChanged{Topic: ch.Topic, Partition: ch.Partition}
		var rec metadata.PartitionChanged
		var changed bool
		switch by := seen[ref]; by {
		case nil:
			rec, changed, a.Err = p.inSyncOne(call.req.Broker, ch)
			seen[ref] = call
		case call:
			a.Err = answer(ErrInvalidRequest, "Partition %d of topic %s appears more than once.", ch.Partition, ch.Topic)
		default:
			a.Err = answer(ErrInvalidUpdateVersion, "Partition %d of topic %s is being changed.", ch.Partition, ch.Topic)
		}
		if changed {
			records, of = append(records, rec), append(of, i)
		}
		call.answers = append(call.answers, a)
	}
	return records, of
}

// inSyncOne plans one change. With ErrNewLeaderElected the record is to be proposed all the same.
func (p *planner) inSyncOne(sender metadata.BrokerID, ch *ISRChange) (rec metadata.PartitionChanged, changed bool, err error) {
	t, ok := p.img.TopicByID(ch.Topic)
	switch {
	case !ok:
		return rec, false, answer(ErrUnknownTopicID, "No topic has the id %s.", ch.Topic)
	case ch.Partition < 0 || int(ch.Partition) >= len(t.Partitions):
		return rec, false, answer(ErrUnknownTopic, "Topic %s has no partition %d.", t.Name, ch.Partition)
	}
	e := p.edit(t, int(ch.Partition))
	if err := e.checkEpochs(sender, ch); err != nil {
		return rec, false, err
	}
	if err := e.checkMembers(ch); err != nil {
		return rec, false, err
	}
	e.next.ISR = nil
	for _, m := range ch.ISR {
		e.next.ISR = append(e.next.ISR, m.ID)
	}
	if ch.Recovered {
		e.next.Unclean = false
	}
	rec, changed = e.finish()
	if !changed { // the partition's epoch moves all the same: a leader asks for what is there to void an earlier wish of its own
		rec.ISR, changed = &e.was.ISR, true
	}
	if e.next.Leader != sender {
		err = answer(ErrNewLeaderElected, "Broker %d leads %s-%d from now on.", e.next.Leader, t.Name, ch.Partition)
	}
	return rec, changed, err
}

// checkEpochs refuses a wish that was made before the last change of the partition, or by somebody else than its leader.
func (e *edit) checkEpochs(sender metadata.BrokerID, ch *ISRChange) error {
	part := e.was
	switch {
	case invariant.Seeded(invariant.StaleInSync) && part.Leader == sender:
	case ch.LeaderEpoch > part.LeaderEpoch || ch.PartitionEpoch > part.PartitionEpoch:
		return answer(ErrNotController, "Epochs %d and %d of %s-%d are newer than %d and %d.", ch.LeaderEpoch, ch.PartitionEpoch, e.topic.Name, e.index, part.LeaderEpoch, part.PartitionEpoch)
	case ch.LeaderEpoch < part.LeaderEpoch:
		return answer(ErrFencedLeaderEpoch, "The leader epoch of %s-%d is %d, not %d.", e.topic.Name, e.index, part.LeaderEpoch, ch.LeaderEpoch)
	case part.Leader != sender:
		return answer(ErrInvalidRequest, "Broker %d does not lead %s-%d.", sender, e.topic.Name, e.index)
	case ch.PartitionEpoch < part.PartitionEpoch:
		return answer(ErrInvalidUpdateVersion, "The partition epoch of %s-%d is %d, not %d.", e.topic.Name, e.index, part.PartitionEpoch, ch.PartitionEpoch)
	}
	return nil
}

// checkMembers looks at the set itself. Who is in the set now may stay, whatever became of its broker since: only the
// leader and the fencing of a broker take it out.
func (e *edit) checkMembers(ch *ISRChange) error {
	bad := func(format string, args ...any) error {
		return answer(ErrInvalidRequest, "In-sync set of "+e.topic.Name+"-%d: "+format, append([]any{e.index}, args...)...)
	}
	led := false
	for i, m := range ch.ISR {
		if !slices.Contains(e.was.Replicas, m.ID) {
			return bad("broker %d is no replica.", m.ID)
		}
		if slices.ContainsFunc(ch.ISR[:i], func(o InSyncMember) bool { return o.ID == m.ID }) {
			return bad("broker %d is in it twice.", m.ID)
		}
		led = led || m.ID == e.was.Leader
	}
	switch {
	case !led:
		return bad("the leader is not in it.")
	case !ch.Recovered && !e.was.Unclean:
		return bad("the partition has recovered.")
	case !ch.Recovered && len(ch.ISR) > 1:
		return bad("%d members, while the leader has not recovered.", len(ch.ISR))
	}
	for _, m := range ch.ISR {
		if slices.Contains(e.was.ISR, m.ID) {
			continue
		}
		if err := e.p.mayJoin(m); err != nil {
			return err
		}
		if e.p.outOfOrder(m.ID, e.ref(), e.was) {
			return answer(ErrIneligibleReplica, "The replica of broker %d is out of order.", m.ID)
		}
	}
	return nil
}

// mayJoin says why a broker may not join an in-sync set.
func (p *planner) mayJoin(m InSyncMember) error {
	b, ok := p.img.Broker(m.ID)
	switch {
	case !ok:
		return answer(ErrIneligibleReplica, "Broker %d is not registered.", m.ID)
	case b.Epoch != m.Epoch && !invariant.Seeded(invariant.OldIncarnation):
		return answer(ErrIneligibleReplica, "The epoch of broker %d is %d, not %d.", m.ID, b.Epoch, m.Epoch)
	case b.Fenced && !invariant.Seeded(invariant.FencedJoins):
		return answer(ErrIneligibleReplica, "Broker %d is fenced.", m.ID)
	case b.ShuttingDown:
		return answer(ErrIneligibleReplica, "Broker %d is shutting down.", m.ID)
	}
	return nil
}

package group

import (
	"time"

	"github.com/keeplog/keeplog/internal/invariant"
)

// consumerLeave takes a member out for good, or notes that a static member is away for a while.
func (c *consumer) consumerLeave(r *ConsumerHeartbeatRequest, env Env) Effects {
	member := c.members[r.MemberID]
	if r.InstanceID != nil {
		member = c.static(*r.InstanceID)
		if err := c.checkStatic(member, r.MemberID, *r.InstanceID); err != nil {
			return refusedHeartbeat(env, err)
		}
	} else if member == nil {
		return refusedHeartbeat(env, refuse(ErrUnknownMember, "Member %s is not a member of group %s.", r.MemberID, c.id))
	}
	reply := Reply{env.Ticket, &ConsumerHeartbeatResponse{MemberID: r.MemberID, MemberEpoch: r.MemberEpoch}}
	if r.MemberEpoch == leftForNow {
		away := *member
		away.epoch, away.revoking = leftForNow, make(grants)
		c.put(&away)
		c.arm(away.id, func(t *memberTimers) { t.rebalance = time.Time{} })
		return Effects{Entries: c.flush(), Replies: []Reply{reply}}
	}
	effects := c.fence([]*consumerMember{member}, env)
	effects.Replies = append(effects.Replies, reply)
	return effects
}

// fence takes members out, whatever they hold. Where only members that speak the classic protocol stay, the group becomes a
// classic one.
func (c *consumer) fence(out []*consumerMember, env Env) Effects {
	for _, m := range out {
		c.remove(m.id)
	}
	c.dropRegexes()
	if invariant.Seeded(invariant.EpochReused) {
		return Effects{Entries: c.flush()}
	}
	c.refresh(true, true, env)
	if c.Vacant() {
		// There is nothing to assign, and the next member need not wait for the assignment interval.
		c.assignmentEpoch, c.assignedMs = c.epoch, 0
	}
	if c.mayDowngrade(env) {
		return c.downgrade("", c.epoch-1, env)
	}
	return Effects{Entries: c.flush()}
}

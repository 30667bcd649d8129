package group

import (
	"time"

	"github.com/keeplog/keeplog/internal/invariant"
)

// onSync hands out a member's part of the assignment. The leader brings all parts; the others wait for it.
func (c *classic) onSync(r *SyncGroupRequest, f *effects) {
	t := f.env.Ticket
	m, err := c.find(r.MemberID, r.InstanceID)
	switch {
	case r.Group == "":
		err = ErrInvalidGroupID
	case err != nil:
	case r.Generation != c.generation:
		err = ErrIllegalGeneration
	case differs(r.ProtocolType, c.protocolType) || differs(r.Protocol, c.protocol):
		err = ErrInconsistentProtocol
	case c.state == classicEmpty:
		err = ErrUnknownMember
	case c.state == classicPreparing:
		err = ErrRebalanceInProgress
	}
	if err != nil {
		f.reply(t, &SyncGroupResponse{Err: err})
		return
	}
	c.hasSynced(m)
	if c.state == classicStable { // who has its assignment sends heartbeats: its session goes on as it was, as in Kafka
		if invariant.Seeded(invariant.AssignedTwice) && m.id == c.leader && len(r.Assignments) > 0 {
			c.assign(r.Assignments, f)
		}
		f.reply(t, c.part(m))
		return
	}
	c.extend(m, f.env.Now)
	f.reply(m.syncing, &SyncGroupResponse{Err: ErrRebalanceInProgress})
	m.syncing = t
	if m.id == c.leader {
		c.assign(r.Assignments, f)
	}
}

func differs(asked, own *string) bool { return asked != nil && own != nil && *asked != *own }

func (c *classic) part(m *member) *SyncGroupResponse {
	return &SyncGroupResponse{ProtocolType: c.protocolType, Protocol: c.protocol, Assignment: m.assignment}
}

// hasSynced: who asks for its assignment is there. When all have, nobody is waited for.
func (c *classic) hasSynced(m *member) {
	m.unsynced = false
	for _, o := range c.members {
		if o.unsynced {
			return
		}
	}
	c.synced = time.Time{}
}

// assign takes the leader's assignment. A member that the leader has forgotten gets nothing. What cannot be stored ends the
// generation.
func (c *classic) assign(parts []Assigned, f *effects) {
	byID := make(map[string][]byte, len(parts))
	for _, p := range parts {
		byID[p.MemberID] = p.Assignment
	}
	for _, m := range c.members {
		c.size -= 2 * len(m.assignment)
		m.assignment = byID[m.id]
		c.size += 2 * len(m.assignment)
	}
	c.enter(classicStable, f.env.Now)
	if !c.store(f) {
		c.state = classicCompleting
		for _, m := range c.members {
			f.reply(m.syncing, &SyncGroupResponse{Err: ErrTooLarge})
			if m.syncing != 0 {
				m.syncing = 0
				c.extend(m, f.env.Now)
			}
		}
		c.prepare(f)
		return
	}
	for _, m := range c.members {
		if m.syncing != 0 {
			f.reply(m.syncing, c.part(m))
			m.syncing = 0
			c.extend(m, f.env.Now)
		}
	}
}

// syncTimeout: who joined and has not asked for its assignment in all the time is out.
func (c *classic) syncTimeout(f *effects) {
	c.synced = time.Time{}
	silent := map[*member]bool{}
	for _, m := range c.members {
		if m.unsynced {
			silent[m] = true
		}
	}
	c.removeAll(silent, f)
	if len(silent) > 0 {
		c.prepare(f)
	}
}

// onHeartbeat extends a session, and tells of a rebalance.
func (c *classic) onHeartbeat(r *HeartbeatRequest, f *effects) error {
	if r.Group == "" {
		return ErrInvalidGroupID
	}
	m, err := c.find(r.MemberID, r.InstanceID)
	switch {
	case err != nil:
		return err
	case r.Generation != c.generation:
		return ErrIllegalGeneration
	case c.state == classicEmpty:
		return ErrUnknownMember
	}
	c.extend(m, f.env.Now)
	if c.state == classicPreparing {
		return ErrRebalanceInProgress
	}
	return nil
}

// onLeave takes members out, by member id, or by instance id alone for those who administer static members.
func (c *classic) onLeave(r *LeaveGroupRequest, f *effects) {
	response := &LeaveGroupResponse{}
	switch {
	case r.Group == "":
		response.Err = ErrInvalidGroupID
	case !f.env.Known && c.Disposable():
		response.Err = ErrUnknownMember
	}
	if response.Err != nil {
		f.reply(f.env.Ticket, response)
		return
	}
	left := false
	for _, l := range r.Members {
		err := c.leave(l, f)
		left = left || err == nil
		response.Members = append(response.Members, Left{l.MemberID, l.InstanceID, err})
	}
	switch {
	case !left:
	case c.state == classicCompleting, c.state == classicStable:
		c.prepare(f)
	case c.state == classicPreparing:
		c.completeIfJoined(f, true)
	}
	f.reply(f.env.Ticket, response)
}

func (c *classic) leave(l Leaver, f *effects) error {
	if l.MemberID == "" {
		if l.InstanceID == nil || c.static[*l.InstanceID] == nil {
			return ErrUnknownMember
		}
		c.remove(c.static[*l.InstanceID], f)
		return nil
	}
	if c.forgetPending(l.MemberID) {
		return nil
	}
	m, err := c.find(l.MemberID, l.InstanceID)
	if err != nil {
		return err
	}
	c.remove(m, f)
	return nil
}

package group

import (
	"slices"
	"time"
)

func refuseJoin(id string, err error) *JoinGroupResponse {
	return &JoinGroupResponse{Err: err, Generation: -1, MemberID: id}
}

// onJoin takes a member in, or in again. The answer comes with the next generation, unless nothing changes.
func (c *classic) onJoin(r *JoinGroupRequest, f *effects) {
	t, s := f.env.Ticket, f.env.Settings
	switch {
	case r.Group == "":
		f.reply(t, refuseJoin(r.MemberID, ErrInvalidGroupID))
	case r.SessionTimeout < s.MinSessionTimeout || r.SessionTimeout > s.MaxSessionTimeout:
		f.reply(t, refuseJoin(r.MemberID, ErrInvalidSessionTimeout))
	case tooLarge(r):
		f.reply(t, refuseJoin(r.MemberID, ErrTooLarge))
	case r.MemberID != "" && c.Disposable():
		f.reply(t, refuseJoin(r.MemberID, ErrUnknownMember))
	case !c.accepts(r.MemberID, s.MaxSize):
		c.forgetPending(r.MemberID)
		if m := c.byID[r.MemberID]; m != nil {
			c.remove(m, f)
		}
		f.reply(t, refuseJoin("", ErrMaxSize))
		c.completeIfJoined(f, true)
	case !c.fits(r.ProtocolType, r.Protocols):
		f.reply(t, refuseJoin(r.MemberID, ErrInconsistentProtocol))
	case r.MemberID == "":
		c.joinNew(r, f)
	default:
		c.joinAgain(r, f)
	}
}

func tooLarge(r *JoinGroupRequest) bool {
	sum := 0
	for _, p := range r.Protocols {
		if len(p.Metadata) > maxMetadata {
			return true
		}
		sum += len(p.Name) + len(p.Metadata)
	}
	return sum > maxProtocols
}

// accepts says whether there is room. While members gather, those that wait count: who comes last finds no room, also when
// the limit was lowered.
func (c *classic) accepts(id string, limit int) bool {
	m := c.byID[id]
	switch c.state {
	case classicPreparing:
		return m != nil && m.joining != 0 || c.awaiting() < limit
	case classicCompleting, classicStable:
		return m != nil || len(c.members) < limit
	}
	return true
}

// fits says whether the protocol type is the group's, and every member speaks one of the protocols.
func (c *classic) fits(protocolType string, protocols []Protocol) bool {
	if c.state == classicEmpty {
		return protocolType != "" && len(protocols) > 0
	}
	if c.protocolType == nil || *c.protocolType != protocolType {
		return false
	}
	if len(protocols) <= 1 || len(c.members) == 0 {
		return len(protocols) > 0 && !slices.ContainsFunc(c.members, func(m *member) bool { return !m.speaks(protocols[0].Name) })
	}
	common := c.common()
	return slices.ContainsFunc(protocols, func(p Protocol) bool { return common[p.Name] })
}

// common are the protocols that every member speaks. Each list is gone through once, for there may be many long ones.
func (c *classic) common() map[string]bool {
	type count struct{ members, last int }
	spoken, common := map[string]count{}, map[string]bool{}
	for i, m := range c.members {
		for _, p := range m.protocols {
			n := spoken[p.Name]
			if n.last == i+1 {
				continue
			}
			spoken[p.Name] = count{n.members + 1, i + 1}
			if n.members+1 == len(c.members) {
				common[p.Name] = true
			}
		}
	}
	return common
}

// joinNew: a member without an id. A dynamic one of a newer client is told its id first, so that an answer that is lost leaves
// no member behind; a static one takes its instance's place.
func (c *classic) joinNew(r *JoinGroupRequest, f *effects) {
	prefix := r.ClientID
	if r.InstanceID != nil {
		prefix = *r.InstanceID
	}
	id := prefix + "-" + f.env.NewID()
	switch {
	case r.InstanceID != nil && c.static[*r.InstanceID] != nil:
		c.replace(c.static[*r.InstanceID], id, r, f)
	case r.InstanceID == nil && r.RequireKnownID && len(c.pending) >= maxPending:
		f.reply(f.env.Ticket, refuseJoin("", ErrMaxSize))
	case r.InstanceID == nil && r.RequireKnownID:
		c.pending[id] = f.env.Now.Add(r.SessionTimeout)
		c.pendingSize += pendingCost + len(id)
		c.wake(c.pending[id])
		f.reply(f.env.Ticket, refuseJoin(id, ErrMemberIDRequired))
	default:
		c.add(id, r, f)
	}
}

// joinAgain: a member with an id.
func (c *classic) joinAgain(r *JoinGroupRequest, f *effects) {
	t := f.env.Ticket
	if _, ok := c.pending[r.MemberID]; ok && r.InstanceID == nil {
		c.add(r.MemberID, r, f)
		return
	}
	m, err := c.find(r.MemberID, r.InstanceID)
	if err != nil {
		f.reply(t, refuseJoin(r.MemberID, err))
		return
	}
	same := m.same(r.Protocols)
	switch {
	case c.state == classicEmpty:
		f.reply(t, refuseJoin(r.MemberID, ErrUnknownMember))
	case c.state == classicCompleting && same, c.state == classicStable && same && m.id != c.leader:
		// Its answer was lost, or it asks what it knows: nothing changes. The leader of a stable group that joins again wants
		// a new assignment, though its metadata may be the same.
		c.extend(m, f.env.Now)
		f.reply(t, c.joined(m))
	default:
		c.update(m, r, f)
		c.gather(f)
	}
}

// add makes a member. It knows its id only with the answer, so it can not send heartbeats: its patience is the limit.
func (c *classic) add(id string, r *JoinGroupRequest, f *effects) {
	m := &member{
		id: id, instance: r.InstanceID, clientID: r.ClientID, clientHost: r.ClientHost, fresh: true,
		anonymous: r.MemberID == "" && r.InstanceID == nil,
	}
	if c.state == classicPreparing && c.join.initial {
		c.join.grown = true
	}
	if len(c.members) == 0 {
		kind := r.ProtocolType
		c.protocolType = &kind
	}
	c.forgetPending(id)
	c.members = append(c.members, m)
	c.byID[id] = m
	if m.instance != nil {
		c.static[*m.instance] = m
	}
	if c.leader == "" {
		c.leader = id
	}
	c.size += m.memory()
	c.update(m, r, f)
	m.expires = f.env.Now.Add(newMemberPatience)
	c.wake(m.expires)
	c.gather(f)
}

// update takes over what a join says, and keeps it waiting.
func (c *classic) update(m *member, r *JoinGroupRequest, f *effects) {
	c.size -= m.memory()
	m.protocols, m.session, m.rebalance = r.Protocols, r.SessionTimeout, max(r.RebalanceTimeout, 0)
	c.size += m.memory()
	// A client that asks twice reads the second answer.
	f.reply(m.joining, refuseJoin(m.id, ErrRebalanceInProgress))
	m.joining = f.env.Ticket
}

// gather begins a rebalance, or goes on with the one that runs.
func (c *classic) gather(f *effects) {
	if c.state != classicPreparing {
		c.prepare(f)
		return
	}
	c.completeIfJoined(f, true)
}

// replace gives a static member's place to its new incarnation. Where the group is stable and its protocol stays, the
// assignment does too.
func (c *classic) replace(old *member, id string, r *JoinGroupRequest, f *effects) {
	before := c.leader
	f.reply(old.joining, refuseJoin(old.id, ErrFencedInstance))
	f.reply(old.syncing, &SyncGroupResponse{Err: ErrFencedInstance})
	m := &member{}
	*m = *old
	m.id, m.joining, m.syncing, m.fresh = id, 0, 0, false
	m.clientID, m.clientHost = r.ClientID, r.ClientHost
	c.size += m.memory() - old.memory()
	c.members[slices.Index(c.members, old)] = m
	delete(c.byID, old.id)
	c.byID[id] = m
	c.static[*m.instance] = m
	if c.leader == old.id {
		c.leader = id
	}
	c.update(m, r, f)
	c.extend(m, f.env.Now)
	switch c.state {
	case classicStable:
		if c.protocol == nil || c.choose() != *c.protocol {
			c.prepare(f)
			return
		}
		c.keepPlace(m, before, r.CanSkipAssignment, f)
	case classicCompleting:
		// The leader may be assigning to the old id.
		c.prepare(f)
	default:
		c.completeIfJoined(f, true)
	}
}

// keepPlace answers a static member that is back in a stable group.
func (c *classic) keepPlace(m *member, leader string, canSkip bool, f *effects) {
	if !c.store(f) {
		f.reply(m.joining, refuseJoin(m.id, ErrTooLarge))
		m.joining = 0
		return
	}
	response := c.joined(m)
	switch {
	case canSkip:
		response.SkipAssignment = m.id == c.leader
	default:
		// An older client that finds itself leader would assign anew. It is told the old name of the leader.
		response.Leader, response.Members = leader, nil
	}
	f.reply(m.joining, response)
	m.joining = 0
}

// joined is the answer that tells a member the generation.
func (c *classic) joined(m *member) *JoinGroupResponse {
	r := &JoinGroupResponse{
		Generation: c.generation, ProtocolType: c.protocolType, Protocol: c.protocol, Leader: c.leader, MemberID: m.id,
	}
	if m.id == c.leader {
		r.Members = make([]JoinedMember, len(c.members))
		for i, o := range c.members {
			r.Members[i] = JoinedMember{o.id, o.instance, o.metadata(c.protocol)}
		}
	}
	return r
}

// prepare begins a rebalance: all members have to join again.
func (c *classic) prepare(f *effects) {
	now := f.env.Now
	if c.state == classicCompleting {
		for _, m := range c.members {
			m.assignment = nil
			if m.syncing != 0 {
				f.reply(m.syncing, &SyncGroupResponse{Err: ErrRebalanceInProgress})
				m.syncing = 0
				c.extend(m, now)
			}
		}
	}
	for _, m := range c.members {
		m.unsynced = false
	}
	c.synced = time.Time{}
	first := c.state == classicEmpty
	c.enter(classicPreparing, now)
	if first {
		delay := f.env.Settings.InitialRebalanceDelay
		c.join = joinTimer{at: now.Add(delay), initial: true, step: delay, left: max(c.rebalanceTimeout()-delay, 0)}
		c.wake(c.join.at)
		return
	}
	c.join = joinTimer{at: now.Add(c.rebalanceTimeout())}
	c.wake(c.join.at)
	c.completeIfJoined(f, false)
}

// completeIfJoined ends the waiting when nobody is waited for. The first rebalance of a group waits for members that nobody
// knows of: what is patient does not end it.
func (c *classic) completeIfJoined(f *effects, patient bool) {
	if c.state != classicPreparing || patient && c.join.initial || len(c.pending) > 0 || c.awaiting() < len(c.members) {
		return
	}
	c.complete(f)
}

func (c *classic) joinTimeout(f *effects) {
	j := &c.join
	if j.initial && j.grown && j.left > 0 {
		step := min(f.env.Settings.InitialRebalanceDelay, j.left)
		*j = joinTimer{at: f.env.Now.Add(step), initial: true, step: step, left: max(j.left-j.step, 0)}
		return
	}
	c.complete(f)
}

// complete makes a generation of those that have joined. Dynamic members that have not are out; static ones stay until their
// session is over.
func (c *classic) complete(f *effects) {
	now := f.env.Now
	c.join = joinTimer{}
	out := map[*member]bool{}
	for _, m := range c.members {
		if m.joining == 0 && m.instance == nil {
			out[m] = true
		}
	}
	c.removeAll(out, f)
	if len(c.members) > 0 && !c.elect() {
		// Only static members are left, and none is back. They are waited for until their sessions end.
		c.join = joinTimer{at: now.Add(max(c.rebalanceTimeout(), time.Second))}
		c.wake(c.join.at)
		return
	}
	c.generation++
	if len(c.members) == 0 {
		c.protocol, c.leader = nil, ""
		c.enter(classicEmpty, now)
		c.learnTopics()
		c.store(f)
		return
	}
	chosen := c.choose()
	c.protocol = &chosen
	c.enter(classicCompleting, now)
	c.learnTopics()
	for _, m := range c.members {
		f.reply(m.joining, c.joined(m))
		m.joining, m.fresh, m.anonymous, m.unsynced = 0, false, false, true
		c.extend(m, now)
	}
	c.synced = now.Add(c.rebalanceTimeout())
	c.wake(c.synced)
}

// elect makes sure that the leader is one of those that have joined.
func (c *classic) elect() bool {
	if m := c.byID[c.leader]; m != nil && m.joining != 0 {
		return true
	}
	for _, m := range c.members {
		if m.joining != 0 {
			c.leader = m.id
			return true
		}
	}
	return false
}

// choose counts votes: every member votes for the first of its protocols that all speak. Of equals the one that comes first
// in the first member's list is taken.
func (c *classic) choose() string {
	votes, common := map[string]int{}, c.common()
	for _, m := range c.members {
		for _, p := range m.protocols {
			if common[p.Name] {
				votes[p.Name]++
				break
			}
		}
	}
	best := ""
	for _, p := range c.members[0].protocols {
		if votes[p.Name] > votes[best] {
			best = p.Name
		}
	}
	return best
}

// onGone: the client that waits for a ticket is not there any more. Nobody knows the id of one that came without, so it is
// out; another one has its session to come back.
func (c *classic) onGone(t Ticket, f *effects) {
	for _, m := range c.members {
		switch {
		case t == 0:
		case m.joining == t && m.anonymous && m.fresh:
			c.remove(m, f)
			c.completeIfJoined(f, true)
			return
		case m.joining == t:
			f.reply(m.joining, refuseJoin(m.id, ErrRebalanceInProgress))
			m.joining = 0
			c.extend(m, f.env.Now)
			return
		case m.syncing == t:
			f.reply(m.syncing, &SyncGroupResponse{Err: ErrRebalanceInProgress})
			m.syncing = 0
			c.extend(m, f.env.Now)
			return
		}
	}
}

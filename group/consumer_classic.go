package group

import (
	"slices"
	"time"
)

// Members that speak the classic protocol inside of a consumer group. They are told their assignment by SyncGroup, their member
// epoch is their generation, and REBALANCE_IN_PROGRESS at a heartbeat makes them join again, which is how they report what
// they hold and learn what they are given.

// joinGroup answers a classic member. An empty group becomes a classic one for it.
func (c *consumer) joinGroup(r *JoinGroupRequest, env Env) Effects {
	if c.Vacant() {
		k := newClassic(c.id)
		effects := k.Step(r, env)
		effects.Entries = append(append(c.flush(), Replacing(c.stored(), nil)...), effects.Entries...)
		effects.Become = k
		return effects
	}
	if err := c.checkJoin(r, env); err != nil {
		id := r.MemberID
		if err == ErrMemberIDRequired {
			id = c.promise(r, env)
		}
		return Effects{Replies: []Reply{{env.Ticket, refuseJoin(id, err)}}}
	}
	told, err := parseSubscription(r.Protocols[0].Metadata)
	if err != nil {
		return Effects{Replies: []Reply{{env.Ticket, refuseJoin(r.MemberID, ErrInconsistentProtocol)}}}
	}
	return c.admit(r, told, env)
}

// checkJoin judges a classic member that wants in.
func (c *consumer) checkJoin(r *JoinGroupRequest, env Env) error {
	s := env.Settings
	static := c.staticOf(r.InstanceID)
	switch {
	case r.Group == "":
		return ErrInvalidGroupID
	case r.SessionTimeout < s.MinSessionTimeout || r.SessionTimeout > s.MaxSessionTimeout:
		return ErrInvalidSessionTimeout
	case tooLarge(r):
		return ErrTooLarge
	case s.Consumer.Migration == migrationDisabled:
		return ErrInconsistentProtocol
	case len(c.members) >= s.Consumer.MaxSize && c.members[r.MemberID] == nil && static == nil:
		return ErrMaxSize
	case !c.speaks(r.ProtocolType, r.Protocols):
		return ErrInconsistentProtocol
	case r.MemberID == "" && r.InstanceID == nil && r.RequireKnownID:
		return ErrMemberIDRequired
	case r.MemberID == "":
		return nil
	case r.InstanceID == nil:
		// Whoever was put out while it was away must hear of it, because it still reads what is another's now.
		if _, promised := c.promised[r.MemberID]; !promised && c.members[r.MemberID] == nil {
			return ErrUnknownMember
		}
		return nil
	case static == nil:
		return ErrUnknownMember
	case static.id != r.MemberID:
		return ErrFencedInstance
	}
	return nil
}

// promise gives a new member its id, with which it is to join again within its session timeout.
func (c *consumer) promise(r *JoinGroupRequest, env Env) string {
	for id, until := range c.promised {
		if until.Before(env.Now) || len(c.promised) >= maxPending {
			delete(c.promised, id)
		}
	}
	id := env.NewID()
	c.promised[id] = env.Now.Add(r.SessionTimeout)
	return id
}

// speaks says whether one of the protocols is known to all classic members.
func (c *consumer) speaks(kind string, protocols []Protocol) bool {
	if kind != consumerProtocol {
		return false
	}
	return slices.ContainsFunc(protocols, func(p Protocol) bool {
		for _, m := range c.members {
			if m.classic != nil && !slices.ContainsFunc(m.classic.protocols, func(q Protocol) bool { return q.Name == p.Name }) {
				return false
			}
		}
		return true
	})
}

// admit takes a classic member in, or in again, and gives it what it can have now.
func (c *consumer) admit(r *JoinGroupRequest, told subscription, env Env) Effects {
	id := r.MemberID
	if id == "" {
		id = env.NewID()
	}
	delete(c.promised, id)
	old := c.staticOf(r.InstanceID)
	before := c.find(id)
	if old != nil && r.MemberID == "" {
		before = c.rename(old, id)
	}
	member := *before
	if r.InstanceID != nil {
		member.instance = *r.InstanceID
	}
	if told.rack != "" {
		member.rack = told.rack
	}
	member.topics, member.regex, member.assignor = sortedTopics(told.topics), "", ""
	member.clientID, member.clientHost = r.ClientID, r.ClientHost
	member.rebalanceTimeoutMs = int32(r.RebalanceTimeout.Milliseconds())
	member.classic = &classicSide{sessionTimeoutMs: int32(r.SessionTimeout.Milliseconds()), protocols: r.Protocols}
	assignor := c.assignorName()
	c.put(&member)

	changed := !slices.Equal(member.topics, before.topics) || before.regex != ""
	c.dropRegexes()
	c.refresh(changed, changed || c.assignorName() != assignor, env)
	if old != nil && old.classic == nil && c.mayDowngrade(env) {
		return c.downgrade(id, c.epoch, env)
	}
	c.lookUp(nil, env)
	c.assign(env)
	after := c.reconcile(&member, reportedBy(identified(told.owned, env.Topics)), changed, env)
	c.settle(after, env)
	c.arm(id, func(t *memberTimers) {
		t.join, t.rebalance, t.sync = time.Time{}, time.Time{}, env.Now.Add(max(r.RebalanceTimeout, 0))
	})
	return Effects{Entries: c.flush(), Replies: []Reply{{env.Ticket, joinedClassic(after)}}}
}

func joinedClassic(m *consumerMember) *JoinGroupResponse {
	kind, protocol := consumerProtocol, m.classic.protocols[0].Name
	return &JoinGroupResponse{Generation: m.epoch, ProtocolType: &kind, Protocol: &protocol, MemberID: m.id}
}

// identified gives topics their ids; those that do not exist are left out. It is never nil: a classic member that reports
// nothing holds nothing.
func identified(named []namedPartitions, topics Topics) []TopicPartitions {
	list := make([]TopicPartitions, 0, len(named))
	for _, t := range named {
		if id, _, ok := topics.Topic(t.topic); ok {
			list = append(list, TopicPartitions{Topic: id, Partitions: t.partitions})
		}
	}
	return list
}

// named gives topics their names; those that do not exist are left out.
func named(p Partitions, topics Topics) []namedPartitions {
	list := make([]namedPartitions, 0, len(p))
	for _, id := range p.topics() {
		if name, _, ok := topics.TopicName(id); ok {
			list = append(list, namedPartitions{topic: name, partitions: p[id]})
		}
	}
	return list
}

// classicMember is the member that a classic request comes from.
func (c *consumer) classicMember(id string, instance *string, generation int32) (*consumerMember, error) {
	m := c.members[id]
	if instance != nil {
		switch m = c.static(*instance); {
		case m == nil:
			return nil, ErrUnknownMember
		case m.id != id:
			return nil, ErrFencedInstance
		}
	}
	switch {
	case m == nil || m.classic == nil:
		return nil, ErrUnknownMember
	case m.epoch != generation:
		return nil, ErrIllegalGeneration
	}
	return m, nil
}

// syncGroup tells a classic member its assignment.
func (c *consumer) syncGroup(r *SyncGroupRequest, env Env) *SyncGroupResponse {
	if r.Group == "" {
		return &SyncGroupResponse{Err: ErrInvalidGroupID}
	}
	m, err := c.classicMember(r.MemberID, r.InstanceID, r.Generation)
	if err != nil {
		return &SyncGroupResponse{Err: err}
	}
	first := m.classic.protocols[0]
	switch {
	case r.ProtocolType != nil && *r.ProtocolType != consumerProtocol, r.Protocol != nil && *r.Protocol != first.Name:
		return &SyncGroupResponse{Err: ErrInconsistentProtocol}
	case c.assignmentEpoch > m.epoch && m.state != unrevoked:
		c.awaitJoin(m, env)
		return &SyncGroupResponse{Err: ErrRebalanceInProgress}
	}
	c.extend(m, env)
	c.arm(m.id, func(t *memberTimers) { t.sync = time.Time{} })
	told, err := parseSubscription(first.Metadata)
	if err != nil {
		return &SyncGroupResponse{Err: ErrInconsistentProtocol}
	}
	return &SyncGroupResponse{
		ProtocolType: r.ProtocolType, Protocol: r.Protocol,
		Assignment: appendAssignment(nil, told.version, named(m.assigned.partitions(), env.Topics)),
	}
}

// heartbeat extends the session of a classic member, and has it join again when there is something to learn or to give up.
func (c *consumer) heartbeat(r *HeartbeatRequest, env Env) error {
	if r.Group == "" {
		return ErrInvalidGroupID
	}
	m, err := c.classicMember(r.MemberID, r.InstanceID, r.Generation)
	if err != nil {
		return err
	}
	c.extend(m, env)
	// Nobody else may come to compute the target.
	c.refresh(false, false, env)
	c.assign(env)
	if m.epoch < c.assignmentEpoch || m.state == unrevoked || m.state == unreleased && !c.waitsForOthers(m) {
		c.awaitJoin(m, env)
		return ErrRebalanceInProgress
	}
	return nil
}

// awaitJoin gives a classic member its rebalance timeout to join again, from the first time it was told to.
func (c *consumer) awaitJoin(m *consumerMember, env Env) {
	c.arm(m.id, func(t *memberTimers) {
		if t.join.IsZero() {
			t.join = env.Now.Add(milliseconds(m.rebalanceTimeoutMs))
		}
	})
}

// leaveGroup takes members out, of whichever protocol: an administrator may remove any.
func (c *consumer) leaveGroup(r *LeaveGroupRequest, env Env) Effects {
	response := &LeaveGroupResponse{}
	if r.Group == "" {
		response.Err = ErrInvalidGroupID
		return Effects{Replies: []Reply{{env.Ticket, response}}}
	}
	var out []*consumerMember
	for _, l := range r.Members {
		m := c.members[l.MemberID]
		answer := Left{MemberID: l.MemberID, InstanceID: l.InstanceID}
		if l.InstanceID != nil {
			m = c.static(*l.InstanceID)
		}
		switch {
		case m == nil:
			answer.Err = ErrUnknownMember
		case l.InstanceID != nil && l.MemberID != "" && m.id != l.MemberID:
			answer.Err = ErrFencedInstance
		case !slices.Contains(out, m):
			out = append(out, m)
		}
		response.Members = append(response.Members, answer)
	}
	var effects Effects
	if len(out) > 0 {
		effects = c.fence(out, env)
	}
	effects.Replies = append(effects.Replies, Reply{env.Ticket, response})
	return effects
}

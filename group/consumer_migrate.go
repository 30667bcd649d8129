package group

import (
	"slices"
	"time"
)

// The values of group.consumer.migration.policy.
const (
	migrationDisabled      = "disabled"
	migrationUpgrade       = "upgrade"
	migrationDowngrade     = "downgrade"
	migrationBidirectional = "bidirectional"
)

// joinConsumer answers a consumer heartbeat that meets a classic core, which may be one that was just made because the
// group does not exist. A group without members, and one whose members are consumers, become a consumer group.
func joinConsumer(old *classic, r *ConsumerHeartbeatRequest, env Env) Effects {
	if err := checkConsumerHeartbeat(r, env.Settings); err != nil {
		return refusedHeartbeat(env, err)
	}
	c := newConsumer(old.id)
	switch {
	case r.MemberEpoch != joining && !env.Known && r.MemberEpoch < 0:
		return refusedHeartbeat(env, refuse(ErrGroupNotFound, "Group %s not found.", old.id))
	case r.MemberEpoch != joining && !env.Known:
		return refusedHeartbeat(env, refuse(ErrGroupNotFound, "Consumer group %s not found.", old.id))
	case r.MemberEpoch != joining:
		return refusedHeartbeat(env, refuse(ErrGroupNotFound, "Group %s is not a consumer group.", old.id))
	case old.state == classicEmpty:
	default:
		if err := upgrade(old, c, env); err != nil {
			return refusedHeartbeat(env, err)
		}
	}
	effects := c.Step(r, env)
	if refused(effects) {
		return Effects{Replies: effects.Replies}
	}
	effects.Entries = Replacing(old.Stored(), c.stored())
	size := 0
	for _, e := range effects.Entries {
		size += storedSize(e)
	}
	if size > maxStored {
		return refusedHeartbeat(env, refuse(ErrTooLarge, "The group is too large to become a consumer group."))
	}
	effects.Replies = append(old.Fail(ErrRebalanceInProgress), effects.Replies...)
	effects.Become = c
	return effects
}

// refused says whether a step did nothing but refuse a heartbeat.
func refused(e Effects) bool {
	for _, reply := range e.Replies {
		if r, ok := reply.Response.(*ConsumerHeartbeatResponse); ok && r.Err != nil {
			return true
		}
	}
	return false
}

// upgrade makes a consumer group of a classic one. Its members go on as they are: their generation is their epoch, their
// assignment both what they hold and the target.
func upgrade(old *classic, c *consumer, env Env) *refusal {
	policy := env.Settings.Consumer.Migration
	if policy != migrationBidirectional && policy != migrationUpgrade || !old.consumers() || len(old.members) > env.Settings.Consumer.MaxSize {
		return refuse(ErrGroupNotFound, "Group %s is not a consumer group.", old.id)
	}
	c.epoch, c.assignmentEpoch = old.generation, old.generation
	members := make([]*consumerMember, len(old.members))
	claims := make([]grants, len(old.members))
	for i, from := range old.members {
		var err error
		if members[i], claims[i], err = upgraded(from, old, env.Topics); err != nil {
			return refuse(ErrGroupNotFound, "Cannot upgrade the classic group %s to consumer group because the embedded consumer protocol is malformed.", old.id)
		}
	}
	// What members were assigned comes first, then what they said they hold: where the last generation had no assignment yet,
	// cooperative members go on with what they had before.
	for _, m := range members {
		c.withoutHeld(m)
		c.put(m)
	}
	for i, m := range members {
		more := *m
		more.assigned = make(grants)
		for id, list := range m.assigned {
			more.assigned.add(id, list...)
		}
		for id, list := range claims[i] {
			for _, g := range list {
				if _, has := m.assigned.find(id, g.partition); !has {
					more.assigned.add(id, g)
				}
			}
		}
		c.withoutHeld(&more)
		c.put(&more)
		c.setTarget(m.id, more.assigned.partitions())
		c.extend(&more, env)
	}
	// The hash is left at none: whatever the clients made of their topics, the first step computes a target of its own.
	return nil
}

// upgraded is a classic member as a member of a consumer group, and what it said it holds.
func upgraded(from *member, old *classic, topics Topics) (*consumerMember, grants, error) {
	protocol := old.protocol
	if protocol == nil && len(from.protocols) > 0 {
		protocol = &from.protocols[0].Name
	}
	subscribed, err := parseSubscription(from.metadata(protocol))
	if err != nil {
		return nil, nil, err
	}
	assigned, err := parseAssignment(from.assignment)
	if err != nil {
		return nil, nil, err
	}
	m := newConsumerMember(from.id)
	m.instance, m.rack, m.clientID, m.clientHost = text(from.instance), subscribed.rack, from.clientID, from.clientHost
	m.rebalanceTimeoutMs = int32(from.rebalance.Milliseconds())
	m.topics = sortedTopics(subscribed.topics)
	m.epoch, m.previous = old.generation, old.generation
	m.classic = &classicSide{sessionTimeoutMs: int32(from.session.Milliseconds()), protocols: from.protocols}
	m.assigned = granted(assigned, old.generation, topics)
	return m, granted(subscribed.owned, old.generation, topics), nil
}

// granted are the partitions that exist of those that a client named.
func granted(named []namedPartitions, epoch int32, topics Topics) grants {
	g := make(grants)
	for _, t := range named {
		id, partitions, ok := topics.Topic(t.topic)
		if !ok {
			continue
		}
		for _, p := range sortedPartitions(t.partitions) {
			if _, has := g.find(id, p); !has && p >= 0 && int(p) < partitions {
				g.add(id, grant{p, epoch})
			}
		}
	}
	return g
}

func sortedPartitions(list []int32) []int32 {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}

// withoutHeld takes from a member what another one holds: assignments that clients made may give a partition twice.
func (c *consumer) withoutHeld(m *consumerMember) {
	for id, list := range m.assigned {
		free := slices.DeleteFunc(slices.Clone(list), func(g grant) bool {
			who, held := c.holders[place{id, g.partition}]
			return held && who != m.id
		})
		m.assigned[id] = free
		if len(free) == 0 {
			delete(m.assigned, id)
		}
	}
}

// mayDowngrade says whether the group is to become a classic one, because all its members speak the classic protocol.
func (c *consumer) mayDowngrade(env Env) bool {
	policy := env.Settings.Consumer.Migration
	return len(c.members) > 0 && c.classics == len(c.members) && len(c.members) <= env.Settings.MaxSize &&
		(policy == migrationBidirectional || policy == migrationDowngrade)
}

// downgrade makes a classic group of the members, all of which speak the classic protocol. What they hold becomes their
// assignment, and all are to join again: a classic group needs a leader that knows it is one, to look after the topics. A
// joiner is already there and waits for its answer.
//
// What is stored stays a consumer group until the first classic generation has its assignment. A coordinator that takes over
// before goes on with that one.
func (c *consumer) downgrade(joiner string, generation int32, env Env) Effects {
	k := newClassic(c.id)
	k.stored = c.stored()
	kind := consumerProtocol
	k.protocolType, k.generation = &kind, generation
	for _, id := range c.memberIDs() {
		from := c.members[id]
		to := downgraded(from)
		to.assignment = appendAssignment(nil, subscriptionVersion(to), named(from.assigned.partitions(), env.Topics))
		k.members = append(k.members, to)
		k.byID[to.id] = to
		if to.instance != nil {
			k.static[*to.instance] = to
		}
		k.size += to.memory()
		k.extend(to, env.Now)
	}
	k.leader = k.members[0].id
	chosen := k.choose()
	k.protocol = &chosen
	k.enter(classicStable, env.Now)
	k.learnTopics()
	f := &effects{c: k, env: env}
	if joiner != "" {
		k.byID[joiner].joining = env.Ticket
	}
	k.prepare(f)
	f.Entries = append(c.flush(), f.Entries...)
	f.Become = k
	return f.Effects
}

func downgraded(from *consumerMember) *member {
	m := &member{
		id: from.id, clientID: from.clientID, clientHost: from.clientHost,
		session: milliseconds(from.classic.sessionTimeoutMs), rebalance: max(milliseconds(from.rebalanceTimeoutMs), time.Duration(0)),
		protocols: from.classic.protocols,
	}
	if from.instance != "" {
		m.instance = &from.instance
	}
	return m
}

// subscriptionVersion is the layout of the consumer protocol that a member speaks.
func subscriptionVersion(m *member) int16 {
	if len(m.protocols) == 0 {
		return 0
	}
	s, err := parseSubscription(m.protocols[0].Metadata)
	if err != nil {
		return 0
	}
	return s.version
}

package group

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// refusal is an error with the words for the client.
type refusal struct {
	err  error
	text string
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.err }

func refuse(err error, format string, args ...any) *refusal {
	return &refusal{err, fmt.Sprintf(format, args...)}
}

// maxSubscription bounds what a member's heartbeat may have stored.
const maxSubscription = 256 << 10

// checkConsumerHeartbeat judges what a heartbeat says by itself, whatever the group.
func checkConsumerHeartbeat(r *ConsumerHeartbeatRequest, s *Settings) *refusal {
	switch {
	case !s.Consumer.Enabled:
		return refuse(ErrUnsupportedVersion, "The consumer group protocol is not enabled.")
	case (r.Version >= 1 || r.MemberEpoch > 0 || r.MemberEpoch < 0) && strings.TrimSpace(r.MemberID) == "":
		return refuse(ErrInvalidRequest, "MemberId can't be empty.")
	case strings.TrimSpace(r.Group) == "":
		return refuse(ErrInvalidRequest, "GroupId can't be empty.")
	case r.InstanceID != nil && strings.TrimSpace(*r.InstanceID) == "":
		return refuse(ErrInvalidRequest, "InstanceId can't be empty.")
	case r.RackID != nil && strings.TrimSpace(*r.RackID) == "":
		return refuse(ErrInvalidRequest, "RackId can't be empty.")
	}
	switch r.MemberEpoch {
	case joining:
		switch {
		case r.RebalanceTimeoutMs == -1:
			return refuse(ErrInvalidRequest, "RebalanceTimeoutMs must be provided in first request.")
		case r.TopicPartitions == nil || len(r.TopicPartitions) > 0:
			return refuse(ErrInvalidRequest, "TopicPartitions must be empty when (re-)joining.")
		case r.SubscribedTopics == nil && r.Regex == nil:
			return refuse(ErrInvalidRequest, "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
		}
	case leftForNow:
		if r.InstanceID == nil {
			return refuse(ErrInvalidRequest, "InstanceId can't be null.")
		}
	default:
		if r.MemberEpoch < leftForNow {
			return refuse(ErrInvalidRequest, "MemberEpoch is invalid.")
		}
	}
	size := len(text(r.InstanceID)) + len(text(r.RackID)) + len(r.ClientID) + len(r.MemberID)
	for _, name := range r.SubscribedTopics {
		size += len(name) + 2
	}
	if size > maxSubscription {
		return refuse(ErrTooLarge, "The subscription is larger than %d bytes.", maxSubscription)
	}
	if a := r.ServerAssignor; a != nil && (findAssignor(*a) == nil || !slices.Contains(s.Consumer.Assignors, *a)) {
		return refuse(ErrUnsupportedAssignor, "ServerAssignor %s is not supported. Supported assignors: %s.", *a, strings.Join(s.Consumer.Assignors, ", "))
	}
	return nil
}

func refusedHeartbeat(env Env, err *refusal) Effects {
	return Effects{Replies: []Reply{{env.Ticket, &ConsumerHeartbeatResponse{Err: err.err, Message: err.text}}}}
}

// consumerHeartbeat answers the request of a member that speaks the consumer protocol.
func (c *consumer) consumerHeartbeat(r *ConsumerHeartbeatRequest, env Env) Effects {
	if err := checkConsumerHeartbeat(r, env.Settings); err != nil {
		return refusedHeartbeat(env, err)
	}
	if r.MemberEpoch < 0 {
		return c.consumerLeave(r, env)
	}
	if err := c.checkMember(r, env); err != nil {
		return refusedHeartbeat(env, err)
	}
	response := c.serve(r, env)
	return Effects{Entries: c.flush(), Replies: []Reply{{env.Ticket, response}}}
}

// checkMember judges whether the group has the member, or may have it, in the epoch that it says.
func (c *consumer) checkMember(r *ConsumerHeartbeatRequest, env Env) *refusal {
	known := c.members[r.MemberID]
	static := c.staticOf(r.InstanceID)
	if len(c.members) >= env.Settings.Consumer.MaxSize && known == nil && static == nil {
		return refuse(ErrMaxSize, "The consumer group has reached its maximum capacity of %d members.", env.Settings.Consumer.MaxSize)
	}
	switch {
	case r.MemberEpoch == joining && static != nil && static.classic == nil && static.epoch != leftForNow:
		return refuse(ErrUnreleasedInstance, "Static member %s with instance id %s cannot join the group because the instance id is owned by %s member.", r.MemberID, *r.InstanceID, static.id)
	case r.MemberEpoch == joining:
		return c.checkPattern(r)
	case r.InstanceID == nil && known == nil:
		return refuse(ErrUnknownMember, "Member %s is not a member of group %s.", r.MemberID, c.id)
	case r.InstanceID == nil:
		return c.checkEpoch(known, r)
	}
	if err := c.checkStatic(static, r.MemberID, *r.InstanceID); err != nil {
		return err
	}
	return c.checkEpoch(static, r)
}

// checkStatic judges whether a member that names its instance id is the one that has it.
func (c *consumer) checkStatic(static *consumerMember, member, instance string) *refusal {
	switch {
	case static == nil:
		return refuse(ErrUnknownMember, "Instance id %s is unknown.", instance)
	case static.id != member:
		return refuse(ErrFencedInstance, "Static member %s with instance id %s was fenced by member %s.", member, instance, static.id)
	}
	return nil
}

// checkEpoch judges a member's epoch. The one before is accepted from a member that reports nothing but what it was given: the
// answer that told it the new one was lost.
func (c *consumer) checkEpoch(m *consumerMember, r *ConsumerHeartbeatRequest) *refusal {
	switch {
	case r.MemberEpoch > m.epoch:
		return refuse(ErrFencedMemberEpoch, "The consumer group member has a greater member epoch (%d) than the one known by the group coordinator (%d). The member must abandon all its partitions and rejoin.", r.MemberEpoch, m.epoch)
	case r.MemberEpoch < m.epoch && (r.MemberEpoch != m.previous || !reportedBy(r.TopicPartitions).within(m.assigned)):
		return refuse(ErrFencedMemberEpoch, "The consumer group member has a smaller member epoch (%d) than the one known by the group coordinator (%d). The member must abandon all its partitions and rejoin.", r.MemberEpoch, m.epoch)
	}
	return c.checkPattern(r)
}

// checkPattern judges a regular expression that the group does not know yet.
func (c *consumer) checkPattern(r *ConsumerHeartbeatRequest) *refusal {
	if r.Regex == nil || *r.Regex == "" || c.patterns[*r.Regex] > 0 {
		return nil
	}
	if len(c.patterns) >= maxPatterns {
		return refuse(ErrInvalidRegex, "The group has %d regular expressions already.", maxPatterns)
	}
	if _, _, err := compilePattern(*r.Regex); err != nil {
		return refuse(ErrInvalidRegex, "SubscribedTopicRegex `%s` is not a valid regular expression: %s.", *r.Regex, strings.TrimPrefix(err.Error(), ErrInvalidRegex.Error()+": "))
	}
	return nil
}

// serve takes a heartbeat in that was found good.
func (c *consumer) serve(r *ConsumerHeartbeatRequest, env Env) *ConsumerHeartbeatResponse {
	id := r.MemberID
	if id == "" {
		id = env.NewID()
	}
	before := c.find(id)
	if old := c.staticOf(r.InstanceID); r.MemberEpoch == joining && old != nil {
		before = c.rename(old, id)
	}
	member := updated(before, r)
	assignor := c.assignorName()
	c.put(member)

	names := !slices.Equal(member.topics, before.topics)
	// A pattern that was not looked up yet changes nothing until then.
	_, resolved := c.regexes[member.regex]
	regex := member.regex != before.regex && (member.regex == "" || resolved)
	raise := names || regex || c.assignorName() != assignor
	if c.epoch == 0 {
		c.bump()
	}
	c.dropRegexes()
	c.refresh(names || regex, raise, env)
	c.lookUp(r.MayDescribe, env)
	c.assign(env)

	after := c.reconcile(member, reportedBy(r.TopicPartitions), names || member.regex != before.regex, env)
	c.settle(after, env)

	full := r.RebalanceTimeoutMs != -1 && (r.SubscribedTopics != nil || r.Regex != nil) && r.TopicPartitions != nil
	response := &ConsumerHeartbeatResponse{
		MemberID: id, MemberEpoch: after.epoch, HeartbeatIntervalMs: int32(env.Settings.Consumer.HeartbeatInterval.Milliseconds()),
	}
	if r.MemberEpoch == joining || full || !samePartitions(before.assigned, after.assigned) {
		list := told(after.assigned)
		response.Assignment = &list
	}
	return response
}

// find is the member with an id, or a new one.
func (c *consumer) find(id string) *consumerMember {
	if m := c.members[id]; m != nil {
		return m
	}
	return newConsumerMember(id)
}

// staticOf is the member that has an instance id; nil for none.
func (c *consumer) staticOf(instance *string) *consumerMember {
	if instance == nil {
		return nil
	}
	return c.static(*instance)
}

// rename gives what a static member has to its next incarnation.
func (c *consumer) rename(old *consumerMember, id string) *consumerMember {
	target, has := c.target[old.id]
	c.remove(old.id)
	c.rest = nil
	m := *old
	m.id, m.epoch, m.previous = id, 0, 0
	c.put(&m)
	c.changed[currentKey+id] = true
	c.changed[memberKey+id] = true
	if has {
		c.setTarget(id, target)
		c.changed[targetKey+id] = true
	}
	return &m
}

// updated is a member with what a heartbeat says about it; nil fields stay as they are.
func updated(before *consumerMember, r *ConsumerHeartbeatRequest) *consumerMember {
	m := *before
	for _, field := range []struct {
		from *string
		to   *string
	}{{r.InstanceID, &m.instance}, {r.RackID, &m.rack}, {r.Regex, &m.regex}, {r.ServerAssignor, &m.assignor}} {
		if field.from != nil {
			*field.to = *field.from
		}
	}
	if r.RebalanceTimeoutMs != -1 {
		m.rebalanceTimeoutMs = r.RebalanceTimeoutMs
	}
	if r.SubscribedTopics != nil {
		m.topics = sortedTopics(r.SubscribedTopics)
	}
	m.clientID, m.clientHost, m.classic = r.ClientID, r.ClientHost, nil
	return &m
}

// settle stores where a member has got to, and sets its timers by it.
func (c *consumer) settle(m *consumerMember, env Env) {
	moved := !sameCurrent(c.members[m.id], m)
	c.put(m)
	c.extend(m, env)
	if m.classic != nil {
		return
	}
	c.arm(m.id, func(t *memberTimers) {
		t.join, t.sync = time.Time{}, time.Time{}
		switch {
		case m.state != unrevoked:
			t.rebalance = time.Time{}
		case moved || t.rebalance.IsZero():
			t.rebalance = env.Now.Add(milliseconds(m.rebalanceTimeoutMs))
		}
	})
}

// lookUp begins to look up the group's regular expressions where that is due.
func (c *consumer) lookUp(may func(string) bool, env Env) {
	if c.lookup != nil || len(c.patterns) == 0 {
		return
	}
	last, index, missing := int64(0), ^uint64(0), false
	for pattern := range c.patterns {
		r, ok := c.regexes[pattern]
		if !ok {
			missing = true
			continue
		}
		last, index = max(last, r.atMs), min(index, r.index)
	}
	age := milliseconds(env.Now.UnixMilli() - last)
	if last != 0 && age >= 0 && age < resolveGap {
		return
	}
	if !missing && index >= env.Topics.Index() && age < env.Settings.Consumer.RegexRefreshInterval {
		return
	}
	patterns := make([]string, 0, len(c.patterns))
	for pattern := range c.patterns {
		patterns = append(patterns, pattern)
	}
	slices.Sort(patterns)
	c.lookup = beginLookup(patterns, env.Topics, may)
	c.soonest(env.Now)
}

// resolve goes on with a look-up, and takes in what it found.
func (c *consumer) resolve(env Env) {
	if !c.lookup.run() {
		return
	}
	done := c.lookup
	c.lookup = nil
	changed := false
	for _, pattern := range done.patterns {
		if c.patterns[pattern] == 0 {
			continue
		}
		before, known := c.regexes[pattern]
		topics := done.found[pattern]
		changed = changed || !known && len(topics) > 0 || known && !slices.Equal(before.topics, topics)
		c.regexes[pattern] = resolvedRegex{topics: topics, index: done.index, atMs: env.Now.UnixMilli()}
		c.changed[regexKey+pattern] = true
	}
	c.refresh(true, changed, env)
}

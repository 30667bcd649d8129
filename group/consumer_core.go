package group

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// consumer is a group whose assignment the broker computes (KIP-848). Its members come with one kind of request, the
// heartbeat, that joins, reports what they hold, and leaves.
//
// Nouns. The group's epoch counts the changes that need another assignment. The target is the assignment that is aimed at, the
// assignment epoch the group's epoch that it was computed for. A member's epoch is the assignment epoch whose target it
// has got to; on the way there it first gives up what is not its own any more, and gets what others have given up:
//
//	                 target has moved                        reported that it is revoked
//	STABLE ──────────────────────────────► UNREVOKED_PARTITIONS ─────────────────────────┐
//	   ▲  │ nothing to give up                (member's epoch stays,                      │ member's epoch := assignment epoch
//	   │  └────────────────────────────────┐   or it is out after its rebalance timeout)  │
//	   │                                   ▼                                              ▼
//	   └───────────────────────── UNRELEASED_PARTITIONS ◄─────────────────────────────────┘
//	     all of it is free            (others still hold some of it)
//
// No partition is held by two: what a member was given is its own until it reports that it has given it up, leaves, or is put
// out.
type consumer struct {
	id string
	consumerState
	// sessions and the rest below are not stored; a new coordinator starts them anew.
	timers map[string]memberTimers
	// wake is at or before the first of the timers; zero for none.
	wake time.Time
	// hashIndex is the index of the topics that hash was last compared with; hashed is false before the first time.
	hashIndex uint64
	hashed    bool
	lookup    *lookup
	// rest is the part of a target that did not fit into one record; restOf is the group epoch that it is for.
	rest   []memberTarget
	restOf int32
	// promised are ids that were given to classic members that are to join again with them, and until when.
	promised map[string]time.Time
	// changed are the keys whose entries the step under way writes.
	changed map[string]bool
}

// memberTimers are when a member is put out unless it is heard of: by its session; for not giving up what it was told to
// (rebalance), and for not coming back with JoinGroup (join) or SyncGroup (sync) where it speaks the classic protocol.
type memberTimers struct{ session, rebalance, join, sync time.Time }

func (t memberTimers) first() (first time.Time) {
	for _, at := range []time.Time{t.session, t.rebalance, t.join, t.sync} {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// memberTarget is what one member is to have.
type memberTarget struct {
	member string
	target Partitions
}

func newConsumer(group string) *consumer {
	return &consumer{
		id: group, consumerState: newConsumerState(), timers: make(map[string]memberTimers), changed: make(map[string]bool),
		promised: make(map[string]time.Time),
	}
}

// loadConsumer makes the core of a consumer group from its entries.
func loadConsumer(group string, entries []Entry, env Env) (Core, error) {
	state, left, err := foldConsumer(group, entries)
	if err != nil {
		return nil, err
	}
	c := newConsumer(group)
	c.consumerState = state
	if len(left) > 0 {
		// Whoever put these members out did not come to the end of it. The others must get what they held.
		c.bump()
		for _, key := range left {
			c.changed[key] = true
		}
	}
	for _, m := range c.members {
		c.extend(m, env)
		if m.state == unrevoked && m.classic == nil {
			c.arm(m.id, func(t *memberTimers) { t.rebalance = env.Now.Add(milliseconds(m.rebalanceTimeoutMs)) })
		}
	}
	return c, nil
}

func milliseconds[T int32 | int64](n T) time.Duration { return time.Duration(n) * time.Millisecond }

// Type implements [Core].
func (c *consumer) Type() Type { return Consumer }

// Step implements [Core].
func (c *consumer) Step(ev Event, env Env) Effects {
	switch r := ev.(type) {
	case *ConsumerHeartbeatRequest:
		return c.consumerHeartbeat(r, env)
	case *JoinGroupRequest:
		return c.joinGroup(r, env)
	case *SyncGroupRequest:
		return Effects{Replies: []Reply{{env.Ticket, c.syncGroup(r, env)}}}
	case *HeartbeatRequest:
		err := c.heartbeat(r, env)
		return Effects{Entries: c.flush(), Replies: []Reply{{env.Ticket, &HeartbeatResponse{Err: err}}}}
	case *LeaveGroupRequest:
		return c.leaveGroup(r, env)
	case Wake:
		return c.woken(env)
	}
	return Effects{}
}

// Deadline implements [Core].
func (c *consumer) Deadline() time.Time { return c.wake }

// Fail implements [Core]. Nothing waits in a consumer group.
func (c *consumer) Fail(error) []Reply { return nil }

// Vacant implements [Core].
func (c *consumer) Vacant() bool { return len(c.members) == 0 }

// Disposable implements [Core].
func (c *consumer) Disposable() bool { return len(c.members) == 0 && c.epoch == 0 }

// Stored implements [Core].
func (c *consumer) Stored() []Entry { return c.stored() }

// woken puts out the members whose time is over and goes on with a look-up of regular expressions.
func (c *consumer) woken(env Env) Effects {
	var out []*consumerMember
	for _, id := range c.memberIDs() {
		if first := c.timers[id].first(); !first.IsZero() && !first.After(env.Now) {
			out = append(out, c.members[id])
		}
	}
	var effects Effects
	if len(out) > 0 {
		effects = c.fence(out, env)
	}
	if effects.Become == nil && len(out) == 0 {
		if c.lookup != nil {
			c.resolve(env)
		}
		if len(c.rest) > 0 {
			c.assign(env)
		}
		effects.Entries = c.flush()
	}
	c.wake = time.Time{}
	for _, t := range c.timers {
		c.soonest(t.first())
	}
	if c.lookup != nil || len(c.rest) > 0 {
		c.soonest(env.Now)
	}
	return effects
}

// soonest moves the time of waking to at when that is earlier.
func (c *consumer) soonest(at time.Time) {
	if !at.IsZero() && (c.wake.IsZero() || at.Before(c.wake)) {
		c.wake = at
	}
}

// arm changes timers of a member.
func (c *consumer) arm(id string, change func(*memberTimers)) {
	t := c.timers[id]
	change(&t)
	c.timers[id] = t
	c.soonest(t.first())
}

// extend begins a new session of a member.
func (c *consumer) extend(m *consumerMember, env Env) {
	session := env.Settings.Consumer.SessionTimeout
	if m.classic != nil {
		session = milliseconds(m.classic.sessionTimeoutMs)
	}
	c.arm(m.id, func(t *memberTimers) { t.session = env.Now.Add(session) })
}

// put stores a member in the place of its former value.
func (c *consumer) put(m *consumerMember) {
	before := c.members[m.id]
	if before == nil || !sameSubscription(before, m) {
		c.changed[memberKey+m.id] = true
	}
	if before == nil || !sameCurrent(before, m) {
		c.changed[currentKey+m.id] = true
	}
	if !c.set(m) {
		panic(fmt.Sprintf("group %q: member %q would hold what another one holds", c.id, m.id))
	}
}

// remove takes a member out, with its target and its timers.
func (c *consumer) remove(id string) {
	c.drop(id)
	delete(c.target, id)
	delete(c.timers, id)
	for _, kind := range []string{memberKey, currentKey, targetKey} {
		c.changed[kind+id] = true
	}
}

func (c *consumer) setTarget(id string, p Partitions) {
	if before, ok := c.target[id]; !ok || !before.Equal(p) {
		c.target[id] = p
		c.changed[targetKey+id] = true
	}
}

// dropRegexes forgets what regular expressions stand for that nobody uses any more.
func (c *consumer) dropRegexes() {
	for pattern := range c.regexes {
		if c.patterns[pattern] == 0 {
			delete(c.regexes, pattern)
			c.changed[regexKey+pattern] = true
		}
	}
}

// flush gives the entries of all that the step has changed.
func (c *consumer) flush() []Entry {
	if len(c.changed) == 0 {
		return nil
	}
	keys := slices.Sorted(maps.Keys(c.changed))
	clear(c.changed)
	entries := make([]Entry, len(keys))
	for i, key := range keys {
		entries[i] = Entry{Key: key, Value: c.value(key)}
	}
	return entries
}

// value is what is stored under a key; nil for nothing.
func (c *consumer) value(key string) []byte {
	if key == headKey {
		return c.appendHead(nil)
	}
	kind, name := key[:len(memberKey)], key[len(memberKey):]
	switch m := c.members[name]; {
	case kind == memberKey && m != nil:
		return appendMember(nil, m)
	case kind == currentKey && m != nil:
		return appendCurrent(nil, m)
	}
	if p, ok := c.target[name]; ok && kind == targetKey {
		return appendTarget(nil, p)
	}
	if r, ok := c.regexes[name]; ok && kind == regexKey {
		return appendRegex(nil, r)
	}
	return nil
}

// bump raises the group's epoch.
func (c *consumer) bump() {
	c.epoch++
	c.changed[headKey] = true
}

// refresh compares what members are subscribed to with what they were, where it may differ, and raises the group's epoch when
// a change needs another assignment: raise says that one does anyway, stale that subscriptions may have changed.
func (c *consumer) refresh(stale, raise bool, env Env) {
	if stale || raise || !c.hashed || c.hashIndex != env.Topics.Index() {
		hash := hashTopics(c.topicNames(), env.Topics)
		raise = raise || hash != c.hash
		c.hash, c.hashed, c.hashIndex = hash, true, env.Topics.Index()
	}
	if raise {
		c.bump()
	}
}

// hashTopics stands for what an assignment depends on: which of the topics exist, how many partitions they have, in which
// racks. It is FNV-1a over all of it, and 0 where there is nothing.
func hashTopics(names []string, topics Topics) uint64 {
	h, some := newHash(), false
	for _, name := range names {
		id, partitions, ok := topics.Topic(name)
		if !ok {
			continue
		}
		some = true
		h.text(name)
		h.text(string(id[:]))
		h.number(uint64(partitions))
		for p := range partitions {
			racks := slices.Clone(topics.Racks(id, int32(p)))
			slices.Sort(racks)
			for _, rack := range slices.Compact(racks) {
				h.text(rack)
			}
			h.number(uint64(p))
		}
	}
	if !some {
		return 0
	}
	return uint64(h)
}

type hash uint64

func newHash() hash { return 14695981039346656037 }

func (h *hash) byte(b byte) { *h = (*h ^ hash(b)) * 1099511628211 }

func (h *hash) number(n uint64) {
	for range 8 {
		h.byte(byte(n))
		n >>= 8
	}
}

func (h *hash) text(s string) {
	h.number(uint64(len(s)))
	for i := range len(s) {
		h.byte(s[i])
	}
}

// assign computes the target anew when the group's epoch is ahead of it, at most once in the assignment interval. A target that
// does not fit into one record is written in parts, and counts once the last one is.
func (c *consumer) assign(env Env) {
	if c.epoch == c.assignmentEpoch {
		return
	}
	nowMs, interval := env.Now.UnixMilli(), env.Settings.Consumer.AssignmentInterval.Milliseconds()
	if c.restOf != c.epoch {
		c.rest = nil
	}
	if len(c.rest) == 0 {
		if c.assignedMs != 0 && nowMs >= c.assignedMs && nowMs < c.assignedMs+interval {
			return
		}
		a := findAssignor(c.assignorName())
		if a == nil {
			a = defaultAssignor(env.Settings)
		}
		spec := c.assignSpec(env.Topics)
		c.restOf = c.epoch
		for i, p := range a.assign(spec) {
			c.rest = append(c.rest, memberTarget{spec.members[i].id, p})
		}
	}
	for room, first := maxTargetPart, true; len(c.rest) > 0; c.rest = c.rest[1:] {
		next := c.rest[0]
		if c.target[next.member].Equal(next.target) && c.target[next.member] != nil {
			continue
		}
		room -= len(next.member) + 24*len(next.target) + 5*next.target.Count()
		if room < 0 && !first {
			c.soonest(env.Now)
			return
		}
		first = false
		c.setTarget(next.member, next.target)
	}
	c.assignmentEpoch, c.assignedMs = c.epoch, nowMs
	c.changed[headKey] = true
}

// maxTargetPart bounds the target that one step writes; beside it go the entries of the member whose step it is.
const maxTargetPart = 400 << 10

// defaultAssignor is the first one that the settings name.
func defaultAssignor(s *Settings) assignor {
	for _, name := range s.Consumer.Assignors {
		if a := findAssignor(name); a != nil {
			return a
		}
	}
	return assignors()[0]
}

func (c *consumer) assignSpec(topics Topics) *assignSpec {
	spec := &assignSpec{topics: make(map[TopicID]assignTopic)}
	racks := false
	for _, id := range c.memberIDs() {
		m := c.members[id]
		racks = racks || m.rack != ""
		spec.members = append(spec.members, assignMember{
			id: id, instance: m.instance, rack: m.rack, topics: c.subscription(m, topics), now: c.target[id],
		})
	}
	for i := range spec.members {
		for _, id := range spec.members[i].topics {
			if _, known := spec.topics[id]; known {
				continue
			}
			_, partitions, _ := topics.TopicName(id)
			t := assignTopic{partitions: int32(partitions)}
			for p := range partitions {
				if racks {
					t.racks = append(t.racks, topics.Racks(id, int32(p)))
				}
			}
			spec.topics[id] = t
		}
	}
	return spec
}

// sortedTopics is a subscription as it is kept: sorted, each name once.
func sortedTopics(names []string) []string {
	names = slices.Clone(names)
	slices.SortFunc(names, strings.Compare)
	return slices.Compact(names)
}

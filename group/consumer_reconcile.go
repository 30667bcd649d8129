package group

import (
	"slices"

	"github.com/keeplog/keeplog/internal/invariant"
)

// reported is what a member says it holds; nil where it says nothing, which counts as everything.
type reported struct {
	given      bool
	partitions map[place]bool
}

func reportedBy(list []TopicPartitions) reported {
	if list == nil {
		return reported{}
	}
	r := reported{given: true, partitions: make(map[place]bool)}
	for _, t := range list {
		for _, p := range t.Partitions {
			r.partitions[place{t.Topic, p}] = true
		}
	}
	return r
}

// any says whether the member may still hold one of these.
func (r reported) any(g grants) bool {
	if invariant.Seeded(invariant.RevokedOnTrust) {
		return false
	}
	if !r.given {
		return len(g) > 0
	}
	for id, list := range g {
		for _, one := range list {
			if r.partitions[place{id, one.partition}] {
				return true
			}
		}
	}
	return false
}

// within says whether all that the member reports is among these.
func (r reported) within(g grants) bool {
	if !r.given {
		return false
	}
	for p := range r.partitions {
		if _, ok := g.find(p.topic, p.partition); !ok {
			return false
		}
	}
	return true
}

// reconcile takes a member as far towards the target as it can go now. resubscribed says that its subscription has changed in
// this step: what it is not subscribed to any more it must give up at once, also while the target is not computed yet.
func (c *consumer) reconcile(m *consumerMember, owned reported, resubscribed bool, env Env) *consumerMember {
	switch m.state {
	case stable:
		if m.epoch != c.assignmentEpoch {
			return c.advance(m, owned, env)
		}
	case unrevoked:
		if !owned.any(m.revoking) {
			return c.advance(m, owned, env)
		}
	case unreleased:
		return c.advance(m, owned, env)
	}
	if resubscribed {
		return c.unsubscribe(m, owned, env)
	}
	return m
}

// advance compares what a member has with its target.
func (c *consumer) advance(m *consumerMember, owned reported, env Env) *consumerMember {
	target := make(Partitions)
	for _, id := range c.subscription(m, env.Topics) {
		if list := c.target[m.id][id]; len(list) > 0 {
			target[id] = list
		}
	}
	next := *m
	next.assigned, next.revoking = make(grants), make(grants)
	for id, list := range m.assigned {
		for _, g := range list {
			if target.Has(id, g.partition) {
				next.assigned[id] = append(next.assigned[id], g)
			} else {
				next.revoking[id] = append(next.revoking[id], g)
			}
		}
	}
	if len(next.revoking) > 0 && owned.any(next.revoking) {
		next.state = unrevoked
		return &next
	}

	next.state, next.revoking = stable, make(grants)
	next.inEpoch(c.assignmentEpoch)
	for id, list := range target {
		var free []grant
		for _, p := range list {
			if _, has := m.assigned.find(id, p); has {
				continue
			}
			if _, held := c.holders[place{id, p}]; held && !invariant.Seeded(invariant.TwoOwners) {
				next.state = unreleased
				continue
			}
			free = append(free, grant{p, c.assignmentEpoch})
		}
		next.assigned.add(id, free...)
	}
	return &next
}

// unsubscribe makes a member give up what it is not subscribed to any more, in the epoch that it is in.
func (c *consumer) unsubscribe(m *consumerMember, owned reported, env Env) *consumerMember {
	subscribed := c.subscription(m, env.Topics)
	next := *m
	next.assigned, next.revoking = make(grants), make(grants)
	for id, list := range m.revoking {
		next.revoking.add(id, list...)
	}
	lost := false
	for id, list := range m.assigned {
		if _, found := slices.BinarySearchFunc(subscribed, id, compareTopics); found {
			next.assigned.add(id, list...)
		} else {
			next.revoking.add(id, list...)
			lost = true
		}
	}
	switch {
	case !lost:
		return m
	case owned.any(next.revoking):
		next.state = unrevoked
	default:
		next.revoking = make(grants)
	}
	return &next
}

// told is an assignment as members are told it: topics by id.
func told(g grants) []TopicPartitions {
	list := make([]TopicPartitions, 0, len(g))
	for _, id := range g.topics() {
		t := TopicPartitions{Topic: id}
		for _, one := range g[id] {
			t.Partitions = append(t.Partitions, one.partition)
		}
		list = append(list, t)
	}
	return list
}

// waitsForOthers says whether something of a member's target is still held.
func (c *consumer) waitsForOthers(m *consumerMember) bool {
	if m.state != unreleased {
		return false
	}
	for id, list := range c.target[m.id] {
		for _, p := range list {
			if _, has := m.assigned.find(id, p); has {
				continue
			}
			if _, held := c.holders[place{id, p}]; held {
				return true
			}
		}
	}
	return false
}

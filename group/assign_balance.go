package group

import (
	"cmp"
	"slices"

	"github.com/keeplog/keeplog/metadata"
)

// maxBalanceSteps bounds the search for better places, in subscriptions looked at: about a tenth of a second. What is assigned
// then is whole, and the next assignment goes on from it.
const maxBalanceSteps = 20_000_000

// balance assigns where subscriptions differ. Members keep what they had, what nobody has goes to the subscriber with the
// least, and then partitions move along chains: from a member to another subscriber of one of its topics, whose partition of
// another topic moves on, and so forth, to a member that has at least two less than the first. Where no such chain is left, no
// other assignment is more even.
func (l *ledger) balance() {
	subscribers := make(map[metadata.TopicID][]int, len(l.owner))
	for m := range l.spec.members {
		for _, id := range l.spec.members[m].topics {
			subscribers[id] = append(subscribers[id], m)
		}
	}
	for m := range l.spec.members {
		for _, p := range l.former(m) {
			l.give(m, p.topic, p.partition)
		}
	}
	l.placeRest(subscribers)

	c := newChains(l, subscribers)
	for moved := true; moved; {
		moved = false
		for _, m := range c.heaviestFirst() {
			for c.relieve(m) {
				moved = true
			}
		}
	}
}

// placeRest gives what nobody has to the subscriber with the least, topics with the fewest subscribers first.
func (l *ledger) placeRest(subscribers map[metadata.TopicID][]int) {
	ids := l.topics()
	slices.SortStableFunc(ids, func(a, b metadata.TopicID) int { return cmp.Compare(len(subscribers[a]), len(subscribers[b])) })
	for _, id := range ids {
		for p, owner := range l.owner[id] {
			if owner >= 0 || len(subscribers[id]) == 0 {
				continue
			}
			best := -1
			for _, m := range subscribers[id] {
				if best < 0 || l.load[m] < l.load[best] ||
					l.load[m] == l.load[best] && l.spec.near(m, id, int32(p)) && !l.spec.near(best, id, int32(p)) {
					best = m
				}
			}
			l.give(best, id, int32(p))
		}
	}
}

// chains searches for moves that make a ledger more even.
type chains struct {
	*ledger
	subscribers map[metadata.TopicID][]int
	// has counts a member's partitions of each topic.
	has []map[metadata.TopicID]int
	// from says how the search came to a member: from whom, over which topic.
	from  []step
	seen  map[metadata.TopicID]bool
	steps int
}

type step struct {
	member int
	topic  metadata.TopicID
}

func newChains(l *ledger, subscribers map[metadata.TopicID][]int) *chains {
	c := &chains{ledger: l, subscribers: subscribers, has: make([]map[metadata.TopicID]int, len(l.load)), from: make([]step, len(l.load))}
	for m := range c.has {
		c.has[m] = make(map[metadata.TopicID]int)
	}
	for id, owners := range l.owner {
		for _, m := range owners {
			if m >= 0 {
				c.has[m][id]++
			}
		}
	}
	return c
}

func (c *chains) heaviestFirst() []int {
	order := make([]int, len(c.load))
	for m := range order {
		order[m] = m
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(c.load[b], c.load[a]) })
	return order
}

// relieve moves one partition off a member along the shortest chain to one that has at least two less.
func (c *chains) relieve(first int) bool {
	for m := range c.from {
		c.from[m].member = -1
	}
	c.seen = make(map[metadata.TopicID]bool)
	c.from[first].member = first
	queue := []int{first}
	for len(queue) > 0 && c.steps < maxBalanceSteps {
		var next []int
		best := -1
		for _, m := range queue {
			next = c.reach(m, next)
		}
		for _, m := range next {
			if c.load[m] <= c.load[first]-2 && (best < 0 || c.load[m] < c.load[best]) {
				best = m
			}
		}
		if best >= 0 {
			c.shift(first, best)
			return true
		}
		queue = next
	}
	return false
}

// reach appends the members that could take a partition from m.
func (c *chains) reach(m int, next []int) []int {
	ids := make([]metadata.TopicID, 0, len(c.has[m]))
	for id := range c.has[m] {
		if !c.seen[id] {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, compareTopics)
	for _, id := range ids {
		c.seen[id] = true
		c.steps += len(c.subscribers[id])
		for _, other := range c.subscribers[id] {
			if c.from[other].member < 0 {
				c.from[other] = step{m, id}
				next = append(next, other)
			}
		}
	}
	return next
}

// shift moves one partition over each link of the chain that ends at last.
func (c *chains) shift(first, last int) {
	for to := last; to != first; to = c.from[to].member {
		from, id := c.from[to].member, c.from[to].topic
		c.give(to, id, c.choose(from, to, id))
		if c.has[from][id]--; c.has[from][id] == 0 {
			delete(c.has[from], id)
		}
		c.has[to][id]++
	}
}

// choose picks the partition of a topic that moves: one that the taker had before, else one in its rack that the giver had
// not, else one that the giver had not, else the last.
func (c *chains) choose(from, to int, id metadata.TopicID) int32 {
	best, bestRank := int32(-1), -1
	for p, owner := range c.owner[id] {
		if owner != from {
			continue
		}
		rank := 0
		if c.spec.members[to].now.Has(id, int32(p)) {
			rank += 4
		}
		if !c.spec.members[from].now.Has(id, int32(p)) {
			rank += 2
		}
		if c.spec.near(to, id, int32(p)) {
			rank++
		}
		if rank >= bestRank {
			best, bestRank = int32(p), rank
		}
	}
	return best
}

package group

import (
	"slices"

	"github.com/keeplog/keeplog/metadata"
)

// uniformAssignor gives members as many partitions as each other, as near as their subscriptions allow, moves as few as that
// needs, and prefers members in the rack of a replica for those that move.
//
// Where all have the same subscription, shares are known beforehand and nobody loses a partition that its share has room for.
// Elsewhere see balance.
type uniformAssignor struct{}

func (uniformAssignor) name() string { return "uniform" }

func (uniformAssignor) assign(s *assignSpec) []Partitions {
	if len(s.members) == 0 {
		return nil
	}
	l := newLedger(s)
	if s.homogeneous() {
		l.shareOut()
	} else {
		l.balance()
	}
	return l.result()
}

// shareOut assigns where all members have the same subscription.
func (l *ledger) shareOut() {
	total := 0
	for _, owners := range l.owner {
		total += len(owners)
	}
	n := len(l.spec.members)
	base, extra := total/n, total%n
	share := make([]int, n)
	for m := range share {
		share[m] = base
		for _, p := range l.former(m) {
			if l.load[m] == share[m] {
				if extra == 0 || share[m] > base {
					break
				}
				share[m]++
				extra--
			}
			l.give(m, p.topic, p.partition)
		}
	}
	for m := range share {
		if extra > 0 && share[m] == base {
			share[m]++
			extra--
		}
	}
	l.fill(share)
}

// former lists what a member was to have and nobody has taken yet: first what is in its rack, else by topic and number.
func (l *ledger) former(m int) []place {
	member := &l.spec.members[m]
	var near, far []place
	for _, id := range member.now.topics() {
		owners := l.owner[id]
		if _, subscribed := slices.BinarySearchFunc(member.topics, id, compareTopics); !subscribed {
			continue
		}
		for _, p := range member.now[id] {
			switch {
			case p < 0 || int(p) >= len(owners) || owners[p] >= 0:
			case l.spec.near(m, id, p):
				near = append(near, place{id, p})
			default:
				far = append(far, place{id, p})
			}
		}
	}
	return append(near, far...)
}

// fill gives what nobody has to members below their share: those in the rack of a replica first, else round after round, so
// that the partitions of one topic go to different members.
func (l *ledger) fill(share []int) {
	racks := make(map[string][]int)
	for m := range l.spec.members {
		if rack := l.spec.members[m].rack; rack != "" {
			racks[rack] = append(racks[rack], m)
		}
	}
	var rest []place
	for _, id := range l.topics() {
		for p, m := range l.owner[id] {
			if m >= 0 {
				continue
			}
			if m := l.nearMember(racks, share, id, int32(p)); m >= 0 {
				l.give(m, id, int32(p))
			} else {
				rest = append(rest, place{id, int32(p)})
			}
		}
	}
	next := 0
	for _, p := range rest {
		for l.load[next] >= share[next] {
			next = (next + 1) % len(share)
		}
		l.give(next, p.topic, p.partition)
		next = (next + 1) % len(share)
	}
}

// nearMember is the member in the rack of one of a partition's replicas with the most room in its share; −1 for none.
func (l *ledger) nearMember(racks map[string][]int, share []int, topic metadata.TopicID, partition int32) int {
	best, room := -1, 0
	t := l.spec.topics[topic]
	if int(partition) >= len(t.racks) {
		return -1
	}
	for _, rack := range t.racks[partition] {
		for _, m := range racks[rack] {
			if left := share[m] - l.load[m]; left > room || left == room && left > 0 && m < best {
				best, room = m, left
			}
		}
	}
	return best
}

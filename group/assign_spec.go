package group

import (
	"slices"

	"github.com/keeplog/keeplog/metadata"
)

// Partitions are partitions by topic. Each list is sorted and not empty; a topic without partitions is absent.
type Partitions map[metadata.TopicID][]int32

// Count is the number of partitions.
func (p Partitions) Count() int {
	n := 0
	for _, list := range p {
		n += len(list)
	}
	return n
}

// Has says whether a partition is among them.
func (p Partitions) Has(topic metadata.TopicID, partition int32) bool {
	_, found := slices.BinarySearch(p[topic], partition)
	return found
}

// Equal says whether both hold the same partitions.
func (p Partitions) Equal(q Partitions) bool {
	if len(p) != len(q) {
		return false
	}
	for topic, list := range p {
		if !slices.Equal(list, q[topic]) {
			return false
		}
	}
	return true
}

// topics lists the topics by id.
func (p Partitions) topics() []metadata.TopicID {
	ids := make([]metadata.TopicID, 0, len(p))
	for id := range p {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, compareTopics)
	return ids
}

func compareTopics(a, b metadata.TopicID) int { return slices.Compare(a[:], b[:]) }

// An assignor says who should have which partition. It is a pure function of its input: the same members, topics and former
// assignment give the same answer on every node.
type assignor interface {
	name() string
	// assign gives the partitions of each member, in the order of s.members. Every partition of a topic that anybody is
	// subscribed to is given to exactly one subscriber.
	assign(s *assignSpec) []Partitions
}

// assignors are the assignors that members may ask for; the first is used where nobody asks.
func assignors() []assignor { return []assignor{uniformAssignor{}, rangeAssignor{}} }

func findAssignor(name string) assignor {
	for _, a := range assignors() {
		if a.name() == name {
			return a
		}
	}
	return nil
}

// assignSpec is what an assignor decides on.
type assignSpec struct {
	// members are sorted by id.
	members []assignMember
	// topics are those that a member is subscribed to; all of them exist.
	topics map[metadata.TopicID]assignTopic
}

type assignMember struct {
	id, instance, rack string
	// topics are the member's subscription, sorted.
	topics []metadata.TopicID
	// now is what the member was to have until now; it may name what is no longer there.
	now Partitions
}

type assignTopic struct {
	partitions int32
	// racks are the racks of each partition's replicas; nil where no member has a rack.
	racks [][]string
}

// homogeneous says that all members are subscribed to the same topics.
func (s *assignSpec) homogeneous() bool {
	for i := range s.members {
		if !slices.Equal(s.members[i].topics, s.members[0].topics) {
			return false
		}
	}
	return true
}

// near says whether a partition has a replica in the rack of a member.
func (s *assignSpec) near(m int, topic metadata.TopicID, partition int32) bool {
	racks := s.topics[topic].racks
	return s.members[m].rack != "" && int(partition) < len(racks) && slices.Contains(racks[partition], s.members[m].rack)
}

// ledger is an assignment in the making: who has each partition.
type ledger struct {
	spec *assignSpec
	// owner has the member of each partition, −1 for nobody.
	owner map[metadata.TopicID][]int
	load  []int
}

func newLedger(s *assignSpec) *ledger {
	l := &ledger{spec: s, owner: make(map[metadata.TopicID][]int, len(s.topics)), load: make([]int, len(s.members))}
	for id, t := range s.topics {
		owners := make([]int, t.partitions)
		for p := range owners {
			owners[p] = -1
		}
		l.owner[id] = owners
	}
	return l
}

func (l *ledger) give(m int, topic metadata.TopicID, partition int32) {
	if before := l.owner[topic][partition]; before >= 0 {
		l.load[before]--
	}
	l.owner[topic][partition] = m
	l.load[m]++
}

// topics lists the topics by id.
func (l *ledger) topics() []metadata.TopicID {
	ids := make([]metadata.TopicID, 0, len(l.owner))
	for id := range l.owner {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, compareTopics)
	return ids
}

// result turns the ledger into each member's partitions.
func (l *ledger) result() []Partitions {
	out := make([]Partitions, len(l.spec.members))
	for i := range out {
		out[i] = make(Partitions)
	}
	for id, owners := range l.owner {
		for p, m := range owners {
			if m >= 0 {
				out[m][id] = append(out[m][id], int32(p))
			}
		}
	}
	return out
}

// place is one partition.
type place struct {
	topic     metadata.TopicID
	partition int32
}

package group

import (
	"cmp"
	"slices"
)

// rangeAssignor gives each subscriber of a topic one range of consecutive partitions. Where all topics have as many partitions
// and all members the same subscription, a member gets the same partition numbers of each topic, which joins need. It looks
// neither at the former assignment nor at racks; a static member keeps its place among the others by its instance id.
type rangeAssignor struct{}

func (rangeAssignor) name() string { return "range" }

func (rangeAssignor) assign(s *assignSpec) []Partitions {
	order := make([]int, len(s.members))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return compareRangeMembers(&s.members[a], &s.members[b]) })

	l := newLedger(s)
	for id, t := range s.topics {
		var subscribers []int
		for _, m := range order {
			if _, found := slices.BinarySearchFunc(s.members[m].topics, id, compareTopics); found {
				subscribers = append(subscribers, m)
			}
		}
		next := int32(0)
		for i, m := range subscribers {
			size := t.partitions / int32(len(subscribers))
			if int32(i) < t.partitions%int32(len(subscribers)) {
				size++
			}
			for ; size > 0; size-- {
				l.give(m, id, next)
				next++
			}
		}
	}
	return l.result()
}

// compareRangeMembers puts static members first, by instance id, then the others by member id.
func compareRangeMembers(a, b *assignMember) int {
	switch {
	case a.instance != "" && b.instance != "":
		return cmp.Compare(a.instance, b.instance)
	case a.instance != "":
		return -1
	case b.instance != "":
		return 1
	}
	return cmp.Compare(a.id, b.id)
}

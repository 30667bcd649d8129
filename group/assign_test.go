package group

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/keeplog/keeplog/metadata"
)

func numberedTopic(n int) metadata.TopicID { return metadata.TopicID{byte(n >> 8), byte(n), 1} }

// randomSpec makes members and topics. With same, all have one subscription.
func randomSpec(rnd *rand.Rand, same bool) *assignSpec {
	s := &assignSpec{topics: make(map[metadata.TopicID]assignTopic)}
	topics := 1 + rnd.IntN(8)
	for t := range topics {
		s.topics[numberedTopic(t)] = assignTopic{partitions: int32(1 + rnd.IntN(12))}
	}
	all := func() []metadata.TopicID {
		var ids []metadata.TopicID
		for t := range topics {
			if same || rnd.IntN(2) == 0 {
				ids = append(ids, numberedTopic(t))
			}
		}
		return ids
	}
	used := make(map[metadata.TopicID]bool)
	for m := range 1 + rnd.IntN(9) {
		member := assignMember{id: fmt.Sprintf("m%02d", m), topics: all()}
		if rnd.IntN(4) == 0 {
			member.instance = fmt.Sprintf("i%02d", 20-m)
		}
		for _, id := range member.topics {
			used[id] = true
		}
		s.members = append(s.members, member)
	}
	for id := range s.topics {
		if !used[id] {
			delete(s.topics, id)
		}
	}
	return s
}

// remember makes an assignment the former one.
func remember(s *assignSpec, assigned []Partitions) {
	for m := range s.members {
		s.members[m].now = assigned[m]
	}
}

// checkWhole fails unless every partition has exactly one owner, who is subscribed to it.
func checkWhole(t *testing.T, s *assignSpec, assigned []Partitions) {
	t.Helper()
	owners := make(map[place]int)
	for m, p := range assigned {
		for id, list := range p {
			if len(list) == 0 || !slices.IsSorted(list) {
				t.Fatalf("member %d: topic %x has %v", m, id, list)
			}
			if !slices.Contains(s.members[m].topics, id) {
				t.Fatalf("member %d is not subscribed to %x", m, id)
			}
			for _, one := range list {
				owners[place{id, one}]++
			}
		}
	}
	for id, topic := range s.topics {
		for p := range topic.partitions {
			if owners[place{id, p}] != 1 {
				t.Fatalf("partition %x-%d has %d owners", id, p, owners[place{id, p}])
			}
		}
	}
}

func eachSeed(t *testing.T, n int, run func(t *testing.T, rnd *rand.Rand)) {
	t.Helper()
	first, err := strconv.ParseUint(os.Getenv("KEEPLOG_SEED"), 10, 64)
	if err != nil {
		first = uint64(time.Now().UnixNano())
	}
	for i := range n {
		seed := first + uint64(i)
		rnd := rand.New(rand.NewPCG(seed, 1))
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { run(t, rnd) }) {
			t.Logf("KEEPLOG_SEED=%d", seed)
			return
		}
	}
}

func loadsOf(assigned []Partitions) (load []int, squares int) {
	for _, p := range assigned {
		load = append(load, p.Count())
		squares += p.Count() * p.Count()
	}
	return load, squares
}

func movedPartitions(s *assignSpec, assigned []Partitions) int {
	n := 0
	for m, p := range assigned {
		for id, list := range p {
			for _, one := range list {
				if !s.members[m].now.Has(id, one) {
					n++
				}
			}
		}
	}
	return n
}

// TestUniformSameSubscription: shares differ by one at most, and no more moves than shares demand.
func TestUniformSameSubscription(t *testing.T) {
	eachSeed(t, 300, func(t *testing.T, rnd *rand.Rand) {
		s := randomSpec(rnd, true)
		for range 6 {
			assigned := uniformAssignor{}.assign(s)
			checkWhole(t, s, assigned)
			load, _ := loadsOf(assigned)
			if slices.Max(load)-slices.Min(load) > 1 {
				t.Fatalf("loads %v", load)
			}
			if got, most := allPartitions(s)-movedPartitions(s, assigned), keepable(s); got != most {
				t.Fatalf("%d partitions stay, %d could", got, most)
			}
			remember(s, assigned)
			changeSpec(rnd, s)
		}
	})
}

// changeSpec adds or takes away a member, or grows a topic.
func changeSpec(rnd *rand.Rand, s *assignSpec) {
	switch rnd.IntN(3) {
	case 0:
		topics := s.members[0].topics
		s.members = append(s.members, assignMember{id: fmt.Sprintf("n%d", len(s.members)), topics: topics})
	case 1:
		if len(s.members) > 1 {
			i := rnd.IntN(len(s.members))
			s.members = slices.Delete(s.members, i, i+1)
		}
	default:
		ids := slices.SortedFunc(maps.Keys(s.topics), compareTopics)
		if len(ids) > 0 {
			id := ids[rnd.IntN(len(ids))]
			s.topics[id] = assignTopic{partitions: s.topics[id].partitions + int32(rnd.IntN(3))}
		}
	}
	used := make(map[metadata.TopicID]bool)
	for _, m := range s.members {
		for _, id := range m.topics {
			used[id] = true
		}
	}
	for id := range s.topics {
		if !used[id] {
			delete(s.topics, id)
		}
	}
}

func allPartitions(s *assignSpec) int {
	n := 0
	for _, topic := range s.topics {
		n += int(topic.partitions)
	}
	return n
}

// keepable is how many partitions can stay where they are when shares differ by one at most: each member keeps up to the
// smaller share, and as many as there are larger shares keep one more.
func keepable(s *assignSpec) int {
	n, base := 0, allPartitions(s)/len(s.members)
	extra := allPartitions(s) % len(s.members)
	for _, m := range s.members {
		has := 0
		for id, list := range m.now {
			for _, p := range list {
				if topic, ok := s.topics[id]; ok && p < topic.partitions {
					has++
				}
			}
		}
		n += min(has, base)
		if has > base && extra > 0 {
			n++
			extra--
		}
	}
	return n
}

// TestUniformDifferentSubscriptions: no assignment is more even (the sum of the squares of the loads is least, which a search
// that knows nothing of former assignments confirms), and nothing moves that need not.
func TestUniformDifferentSubscriptions(t *testing.T) {
	eachSeed(t, 300, func(t *testing.T, rnd *rand.Rand) {
		s := randomSpec(rnd, false)
		for range 5 {
			assigned := uniformAssignor{}.assign(s)
			checkWhole(t, s, assigned)
			_, squares := loadsOf(assigned)
			if best := leastSquares(s); squares != best {
				t.Fatalf("sum of squares %d, possible %d", squares, best)
			}
			remember(s, assigned)
			if again := (uniformAssignor{}).assign(s); movedPartitions(s, again) != 0 {
				t.Fatalf("%d partitions move though nothing has changed", movedPartitions(s, again))
			}
			changeSpec(rnd, s)
		}
	})
}

// leastSquares places partitions one at a time, each along the cheapest augmenting path to the member with the least, which is
// known to give an optimal semi-matching.
func leastSquares(s *assignSpec) int {
	type part struct {
		topic metadata.TopicID
		owner int
	}
	var parts []*part
	load := make([]int, len(s.members))
	subscribed := func(m int, id metadata.TopicID) bool { return slices.Contains(s.members[m].topics, id) }
	for id, topic := range s.topics {
		for range topic.partitions {
			p := &part{id, -1}
			parts = append(parts, p)
			// Breadth first from the new partition over members and what they own.
			via := make(map[int]*part)
			reached := make([]int, 0, len(load))
			queue := []*part{p}
			for len(queue) > 0 {
				q := queue[0]
				queue = queue[1:]
				for m := range load {
					if via[m] != nil || !subscribed(m, q.topic) {
						continue
					}
					via[m] = q
					reached = append(reached, m)
					for _, o := range parts {
						if o.owner == m {
							queue = append(queue, o)
						}
					}
				}
			}
			best := slices.MinFunc(reached, func(a, b int) int { return load[a] - load[b] })
			load[best]++
			for m := best; ; {
				q := via[m]
				before := q.owner
				q.owner = m
				if q == p {
					break
				}
				m = before
			}
		}
	}
	squares := 0
	for _, n := range load {
		squares += n * n
	}
	return squares
}

// TestUniformRacks: where shares allow, partitions go to members in a rack of their replicas.
func TestUniformRacks(t *testing.T) {
	s := &assignSpec{topics: map[metadata.TopicID]assignTopic{}}
	racks := []string{"a", "b", "c"}
	topic := assignTopic{partitions: 12}
	for p := range 12 {
		topic.racks = append(topic.racks, []string{racks[p%3]})
	}
	s.topics[numberedTopic(1)] = topic
	for m, rack := range racks {
		s.members = append(s.members, assignMember{id: fmt.Sprint(m), rack: rack, topics: []metadata.TopicID{numberedTopic(1)}})
	}
	for m, p := range (uniformAssignor{}).assign(s) {
		for _, one := range p[numberedTopic(1)] {
			if one%3 != int32(m) {
				t.Errorf("member in rack %s has partition %d", racks[m], one)
			}
		}
	}
}

// TestRange: ranges follow one another; with equal topics, members get the same numbers of each; static members come first, by
// instance id.
func TestRange(t *testing.T) {
	both := []metadata.TopicID{numberedTopic(1), numberedTopic(2)}
	s := &assignSpec{
		topics: map[metadata.TopicID]assignTopic{numberedTopic(1): {partitions: 5}, numberedTopic(2): {partitions: 5}},
		members: []assignMember{
			{id: "a", topics: both}, {id: "b", instance: "z", topics: both}, {id: "c", instance: "y", topics: both[:1]},
		},
	}
	want := []string{"map[1:[4] 2:[3 4]]", "map[1:[2 3] 2:[0 1 2]]", "map[1:[0 1]]"}
	for m, p := range (rangeAssignor{}).assign(s) {
		short := make(map[int][]int32)
		for id, list := range p {
			short[int(id[1])] = list
		}
		if got := fmt.Sprint(short); got != want[m] {
			t.Errorf("member %s: %s, want %s", s.members[m].id, got, want[m])
		}
	}
	eachSeed(t, 100, func(t *testing.T, rnd *rand.Rand) {
		s := randomSpec(rnd, rnd.IntN(2) == 0)
		assigned := rangeAssignor{}.assign(s)
		checkWhole(t, s, assigned)
		for m, p := range assigned {
			for id, list := range p {
				if int(list[len(list)-1]-list[0]) != len(list)-1 {
					t.Errorf("member %d: topic %x has %v", m, id, list)
				}
			}
		}
	})
}

// TestUniformLarge: a big group is even, within the bound on the search.
func TestUniformLarge(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	s := &assignSpec{topics: make(map[metadata.TopicID]assignTopic)}
	for n := range 200 {
		s.topics[numberedTopic(n)] = assignTopic{partitions: 10}
	}
	for m := range 100 {
		member := assignMember{id: fmt.Sprintf("%04d", m)}
		for n := range 200 {
			if rnd.IntN(10) == 0 || n%100 == m {
				member.topics = append(member.topics, numberedTopic(n))
			}
		}
		s.members = append(s.members, member)
	}
	began := time.Now()
	assigned := uniformAssignor{}.assign(s)
	checkWhole(t, s, assigned)
	load, _ := loadsOf(assigned)
	t.Logf("2,000 partitions, 100 members: %v, loads %d to %d", time.Since(began), slices.Min(load), slices.Max(load))
	if slices.Max(load)-slices.Min(load) > 1 {
		t.Errorf("loads %v", load)
	}
}

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
)

// move is a partition and its replicas, before and after. to is nil for a move that is to be cancelled.
type move struct {
	topic     string
	partition int32
	from, to  []int32
}

func (m move) name() string { return fmt.Sprintf("%s-%d", m.topic, m.partition) }

// moveRow is a move for programs.
type moveRow struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	From      []int32 `json:"from"`
	To        []int32 `json:"to"`
	Error     string  `json:"error,omitempty"`
}

// spreadOptions say how partitions are to lie on brokers.
type spreadOptions struct {
	brokers []int32          // that may hold replicas
	holders []int32          // that keep the replicas they have, and take none
	racks   map[int32]string // of brokers
	factor  int              // replicas of each partition; 0: as many as it has
	held    map[int32]int    // replicas on each broker now
	even    bool             // also move what could stay, until brokers hold and lead about the same
}

// spread plans where the replicas of partitions go: each stays where it may, what must go or is added goes to the broker with
// the least to hold, in a rack of its own if there is one. What need not move is left out, unless it must for an even load. short lists the partitions that get fewer
// replicas than they should, because there are no more brokers.
func spread(parts []kadm.PartitionDetail, o spreadOptions) (moves []move, short []string) {
	held := map[int32]int{}
	for _, id := range o.brokers {
		held[id] = o.held[id]
	}
	first := map[int32]int{} // partitions whose preferred leader the broker is
	for _, p := range parts {
		if len(p.Replicas) > 0 && slices.Contains(o.brokers, p.Replicas[0]) {
			first[p.Replicas[0]]++
		}
	}
	for _, p := range parts {
		want := o.factor
		if want == 0 {
			want = len(p.Replicas)
		}
		to := slices.DeleteFunc(slices.Clone(p.Replicas), func(id int32) bool { return !slices.Contains(o.brokers, id) && !slices.Contains(o.holders, id) })
		for len(to) > want {
			at := o.leaves(to, held)
			held[to[at]]--
			to = slices.Delete(to, at, at+1)
		}
		for len(to) < want {
			id, ok := o.next(to, held)
			if !ok {
				short = append(short, fmt.Sprintf("%s-%d", p.Topic, p.Partition))
				break
			}
			held[id]++
			to = append(to, id)
		}
		if len(to) > 0 && (len(p.Replicas) == 0 || to[0] != p.Replicas[0]) {
			lead := slices.MinFunc(to, func(a, b int32) int { return cmp.Or(o.burden(a)-o.burden(b), first[a]-first[b]) })
			first[lead]++
			to = append([]int32{lead}, slices.DeleteFunc(to, func(id int32) bool { return id == lead })...)
		}
		moves = append(moves, move{p.Topic, p.Partition, p.Replicas, to})
	}
	if o.even {
		o.level(moves, held)
		o.levelLeaders(moves)
	}
	return slices.DeleteFunc(moves, func(m move) bool { return slices.Equal(m.from, m.to) }), short
}

// burden is 1 for a broker that takes nothing, 0 for others.
func (o *spreadOptions) burden(id int32) int {
	if slices.Contains(o.holders, id) {
		return 1
	}
	return 0
}

// leaves is the place of the replica that goes where there are too many: one on a broker that takes none, else on the one that has most to
// hold, but not the preferred leader.
func (o *spreadOptions) leaves(to []int32, held map[int32]int) int {
	for i := len(to) - 1; i >= 0; i-- {
		if slices.Contains(o.holders, to[i]) {
			return i
		}
	}
	at := 1
	for i := 1; i < len(to); i++ {
		if held[to[i]] > held[to[at]] {
			at = i
		}
	}
	return at
}

// level moves replicas from the broker with the most to the one with the least, until none has two more than another that could
// take one. Leaders move last.
func (o *spreadOptions) level(moves []move, held map[int32]int) {
	for {
		byLoad := slices.Clone(o.brokers)
		slices.SortStableFunc(byLoad, func(a, b int32) int { return held[b] - held[a] })
		if !o.levelOne(moves, held, byLoad) {
			return
		}
	}
}

// levelOne moves one replica.
func (o *spreadOptions) levelOne(moves []move, held map[int32]int, byLoad []int32) bool {
	for _, full := range byLoad {
		for _, free := range slices.Backward(byLoad) {
			if held[full]-held[free] < 2 {
				break
			}
			best, place := -1, 0
			for i := range moves {
				to := moves[i].to
				at := slices.Index(to, full)
				if at < 0 || slices.Contains(to, free) || o.rackCount(replaced(to, at, free)) < o.rackCount(to) {
					continue
				}
				if best < 0 || at > place {
					best, place = i, at
				}
			}
			if best >= 0 {
				moves[best].to = replaced(moves[best].to, place, free)
				held[full]--
				held[free]++
				return true
			}
		}
	}
	return false
}

// levelLeaders makes another replica the preferred leader where a broker would lead two more than that one.
func (o *spreadOptions) levelLeaders(moves []move) {
	first := map[int32]int{}
	for _, m := range moves {
		if len(m.to) > 0 {
			first[m.to[0]]++
		}
	}
	for changed := true; changed; {
		changed = false
		for i := range moves {
			to := moves[i].to
			if len(to) < 2 {
				continue
			}
			least := slices.MinFunc(to, func(a, b int32) int { return first[a] - first[b] })
			if first[to[0]]-first[least] < 2 {
				continue
			}
			first[to[0]]--
			first[least]++
			moves[i].to = append([]int32{least}, slices.DeleteFunc(slices.Clone(to), func(id int32) bool { return id == least })...)
			changed = true
		}
	}
}

func replaced(ids []int32, at int, by int32) []int32 {
	out := slices.Clone(ids)
	out[at] = by
	return out
}

// rackCount is the number of racks that brokers are in.
func (o *spreadOptions) rackCount(ids []int32) int {
	racks := map[string]bool{}
	for _, id := range ids {
		if r := o.racks[id]; r != "" {
			racks[r] = true
		}
	}
	return len(racks)
}

// next is the broker that a further replica goes to.
func (o *spreadOptions) next(have []int32, held map[int32]int) (int32, bool) {
	best, found := int32(0), false
	newRack := func(id int32) bool {
		return o.racks[id] != "" && !slices.ContainsFunc(have, func(h int32) bool { return o.racks[h] == o.racks[id] })
	}
	for _, id := range o.brokers {
		if slices.Contains(have, id) {
			continue
		}
		better := !found || newRack(id) && !newRack(best) || newRack(id) == newRack(best) && held[id] < held[best]
		if better {
			best, found = id, true
		}
	}
	return best, found
}

// held counts the replicas on each broker.
func (v *clusterView) held() map[int32]int {
	out := map[int32]int{}
	v.each(func(p kadm.PartitionDetail) {
		for _, id := range p.Replicas {
			out[id]++
		}
	})
	return out
}

// spreadOver are the options for the brokers that may take replicas, alive and not drained, and for those that only keep what they have; without
// those left out.
func (v *clusterView) spreadOver(without ...int32) spreadOptions {
	o := spreadOptions{racks: map[int32]string{}, held: v.held()}
	for i := range v.brokers {
		b := &v.brokers[i]
		switch {
		case slices.Contains(without, b.id):
			continue
		case v.alive(b.id) && !b.drained:
			o.brokers = append(o.brokers, b.id)
		default:
			o.holders = append(o.holders, b.id)
		}
		o.racks[b.id] = b.rack
	}
	return o
}

// selected are the partitions that the words name, all when there are none: TOPIC, or TOPIC:0,2.
func (v *clusterView) selected(words []string) ([]kadm.PartitionDetail, error) {
	var out []kadm.PartitionDetail
	if len(words) == 0 {
		v.each(func(p kadm.PartitionDetail) { out = append(out, p) })
		return out, nil
	}
	for _, w := range words {
		topic, list, some := strings.Cut(w, ":")
		d, ok := v.topics[topic]
		if !ok {
			e := failf("topic %s: UNKNOWN_TOPIC_OR_PARTITION (no such topic)", topic)
			e.code, e.try = "UNKNOWN_TOPIC_OR_PARTITION", "keeplog topic list"
			return nil, e
		}
		if !some {
			out = append(out, d.Partitions.Sorted()...)
			continue
		}
		for _, n := range strings.Split(list, ",") {
			number, err := strconv.ParseInt(n, 10, 32)
			p, ok := d.Partitions[int32(number)]
			if err != nil || !ok {
				e := usagef("%s: topic %s has no partition %s", w, topic, n)
				e.why = "it has " + count(int64(len(d.Partitions)), "partition")
				return nil, e
			}
			out = append(out, p)
		}
	}
	return out, nil
}

// brokerList reads "1,2,3".
func brokerList(flag, list string) ([]int32, error) {
	var out []int32
	for _, w := range strings.Split(list, ",") {
		id, err := strconv.ParseInt(strings.TrimSpace(w), 10, 32)
		if err != nil || id < 0 {
			return nil, usagef("%s %s: not a list of brokers such as 1,2,3", flag, list)
		}
		if slices.Contains(out, int32(id)) {
			return nil, usagef("%s %s: broker %d stands twice", flag, list, id)
		}
		out = append(out, int32(id))
	}
	return out, nil
}

// previewMoves tells what will move, a line each as far as that can be read.
func (a *app) previewMoves(moves []move) {
	const most = 20
	for i, m := range moves {
		if i == most && !a.flags.verbose {
			a.say("and %d more (-v shows them)", len(moves)-most)
			return
		}
		if m.to == nil {
			a.say("%s: stop the move, stay with %s", m.name(), numbers(m.from))
			continue
		}
		a.say("%s: %s -> %s", m.name(), numbers(m.from), numbers(m.to))
	}
}

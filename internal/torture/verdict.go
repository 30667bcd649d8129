package torture

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Verdict is what a run found.
type Verdict struct {
	Seed       uint64
	Nodes      int
	Partitions int
	Took       time.Duration
	// Faults counts what was done, by the fault's name.
	Faults map[string]int
	// Acknowledged and Read count records; Read counts one once for each reader that was given it.
	Acknowledged, Read int64
	// Commits counts acknowledged offsets of groups.
	Commits int64
	// Counts are the violations of each kind, Told some of them in words.
	Counts map[Kind]int
	Told   map[Kind][]string
	// Rotten is how many batches were damaged on purpose and found damaged.
	Rotten int
	// WithoutLeader are the times for which a partition took no write while a majority of the nodes was up and together, sorted. Times
	// in which writes were made slow or refused on purpose are taken out.
	WithoutLeader []time.Duration
	// Notes are things to know that are no violations.
	Notes []string
}

// Verdict judges the replicas that were told and returns what was found. It is called once.
func (c *Checker) Verdict() Verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.partitions() {
		c.judge(p, c.parts[p])
	}
	c.judgeGroups()
	return Verdict{Acknowledged: c.acked, Read: c.read, Commits: c.commits, Counts: c.counts, Told: c.told, Partitions: len(c.parts)}
}

// Violations is how many there are, of all kinds.
func (v *Verdict) Violations() int {
	n := 0
	for _, count := range v.Counts {
		n += count
	}
	return n
}

// Percentile is the time without a leader that share of the outages do not exceed, 0 when there was none. share is 0 to 1.
func (v *Verdict) Percentile(share float64) time.Duration {
	if len(v.WithoutLeader) == 0 {
		return 0
	}
	at := int(math.Ceil(share*float64(len(v.WithoutLeader)))) - 1
	return v.WithoutLeader[min(max(at, 0), len(v.WithoutLeader)-1)]
}

// Sums is the verdict in one line.
func (v *Verdict) Sums() string {
	var b strings.Builder
	fmt.Fprintf(&b, "acknowledged %d", v.Acknowledged)
	for _, k := range Kinds() {
		always := slices.Contains([]Kind{Lost, Duplicated, Reordered, Reused, Differs, WentBack}, k) || v.Commits > 0 && slices.Contains(groupKinds(), k)
		if k == CommitLost && v.Commits > 0 {
			fmt.Fprintf(&b, "  commits %d", v.Commits)
		}
		if always || v.Counts[k] > 0 {
			fmt.Fprintf(&b, "  %s %d", k, v.Counts[k])
		}
	}
	fmt.Fprintf(&b, "  without leader p50 %s p99 %s max %s", shortTime(v.Percentile(0.5)), shortTime(v.Percentile(0.99)), shortTime(v.Percentile(1)))
	return b.String()
}

func shortTime(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }

// Span is a time between two moments of a run, counted from its start.
type Span struct{ From, To time.Duration }

// Outage is how long a write took that was sent at s.From and acknowledged at s.To, the spans taken out in which no majority of
// the nodes was up. The spans are sorted and do not overlap.
func Outage(s Span, minority []Span) time.Duration {
	d := s.To - s.From
	for _, m := range minority {
		if from, to := max(s.From, m.From), min(s.To, m.To); to > from {
			d -= to - from
		}
	}
	return d
}

// Minorities are the spans in which no majority of the nodes was up and could talk among itself and to clients, by the changes in order;
// an open one ends at end. There are at most 16 nodes.
func Minorities(changes []Change, nodes []int32, end time.Duration) []Span {
	var out []Span
	down, cut := map[int32]bool{}, map[Link]bool{}
	began := time.Duration(-1)
	need := len(nodes)/2 + 1
	for _, ch := range changes {
		switch {
		case ch.Node != Clients:
			down[ch.Node] = !ch.Up
		case ch.Up:
			clear(cut)
		default:
			for _, l := range ch.Links {
				cut[l], cut[Link{l.To, l.From}] = true, true
			}
		}
		up := together(nodes, down, cut)
		switch {
		case up < need && began < 0:
			began = ch.At
		case up >= need && began >= 0:
			out = append(out, Span{began, ch.At})
			began = -1
		}
	}
	if began >= 0 {
		out = append(out, Span{began, max(began, end)})
	}
	return out
}

// together is the size of the largest group of nodes that are up and all reach each other.
func together(nodes []int32, down map[int32]bool, cut map[Link]bool) int {
	most := 0
	for set := range uint(1) << len(nodes) {
		most = max(most, groupOf(set, nodes, down, cut))
	}
	return most
}

// groupOf is the size of a set of nodes, a bit each, 0 when one is down or two do not reach each other.
func groupOf(set uint, nodes []int32, down map[int32]bool, cut map[Link]bool) int {
	var in []int32
	for i, id := range nodes {
		if set&(1<<i) == 0 {
			continue
		}
		if down[id] || cut[Link{Clients, id}] || slices.ContainsFunc(in, func(other int32) bool { return cut[Link{id, other}] }) {
			return 0
		}
		in = append(in, id)
	}
	return len(in)
}

// Change says that a node went down or came up, or, where Node is Clients, that links were cut or that all of them are whole again.
type Change struct {
	At    time.Duration
	Node  int32
	Up    bool
	Links []Link
}

// union joins spans that touch, and sorts them.
func union(spans []Span) []Span {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	var out []Span
	for _, s := range spans {
		if last := len(out) - 1; last >= 0 && s.From <= out[last].To {
			out[last].To = max(out[last].To, s.To)
			continue
		}
		out = append(out, s)
	}
	return out
}

package torture

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var part = Partition{"t", 0}

// scene is a small run without a fault: producers 1 and 2 wrote in turn, everything was acknowledged and read, and three replicas
// hold it. Tests change one thing of it.
type scene struct {
	ids      []ID // by offset
	acks     map[int64]ID
	reads    map[int64]ID
	replicas map[string][]ID
	ends     []int64 // answers to questions, each sent after the one before was answered
	epochs   map[string]uint64
	rotten   bool // offset 3 was damaged on purpose on node 2
	lies     []Kind
}

func newScene() *scene {
	ids := []ID{NewID(1, 1), NewID(2, 1), NewID(1, 2), NewID(2, 2), NewID(1, 3), NewID(2, 3)}
	s := &scene{ids: ids, acks: map[int64]ID{}, reads: map[int64]ID{}, replicas: map[string][]ID{}, ends: []int64{0, 2, 2, 6}, epochs: map[string]uint64{}}
	for o, id := range ids {
		s.acks[int64(o)], s.reads[int64(o)] = id, id
	}
	for _, node := range []string{"node 1", "node 2", "node 3"} {
		s.replicas[node] = slices.Clone(ids)
	}
	return s
}

// all changes every replica.
func (s *scene) all(change func([]ID) []ID) {
	for node, ids := range s.replicas {
		s.replicas[node] = change(ids)
	}
}

func (s *scene) judge() Verdict {
	c := NewChecker()
	for _, o := range slices.Sorted(maps.Keys(s.acks)) {
		c.Acked(part, o, s.acks[o])
	}
	for _, o := range slices.Sorted(maps.Keys(s.reads)) {
		c.Read(part, o, s.reads[o])
	}
	// The questions come from somebody who does not know what was acknowledged.
	asked := NewChecker()
	for _, end := range s.ends {
		asked.End(part, asked.Floor(part), end, "latest offset")
	}
	for _, node := range slices.Sorted(maps.Keys(s.replicas)) {
		r := c.Replica(part, node)
		r.Node = int32(node[len(node)-1] - '0')
		for o, id := range s.replicas[node] {
			if id != 0 {
				r.Record(int64(o), id, id.Producer() != 99)
				r.Batch(int64(o), s.epochs[node], uint64(id))
			}
		}
	}
	if s.rotten {
		c.Rotten(part, 2, 3, 4)
	}
	for _, k := range s.lies {
		c.Violated(k, "seen elsewhere")
	}
	v := c.Verdict()
	for k, n := range asked.Verdict().Counts {
		if k == WentBack {
			v.Counts[k] += n
		}
	}
	return v
}

func TestCleanRun(t *testing.T) {
	v := newScene().judge()
	if v.Violations() != 0 || v.Acknowledged != 6 || v.Read != 6 {
		t.Fatalf("%d violations, %d acknowledged, %d read: %v", v.Violations(), v.Acknowledged, v.Read, v.Told)
	}
	want := "acknowledged 6  lost 0  duplicated 0  reordered 0  offset reused 0  replicas differ 0  went back 0  without leader p50 0.0s p99 0.0s max 0.0s"
	if got := v.Sums(); got != want {
		t.Errorf("sums:\n%s\n%s", got, want)
	}
}

// TestPlanted plants one violation each and demands that it is found, counted right, and called by its name.
func TestPlanted(t *testing.T) {
	cut := func(n int) func([]ID) []ID { return func(ids []ID) []ID { return ids[:len(ids)-n] } }
	set := func(at int, id ID) func([]ID) []ID { return func(ids []ID) []ID { ids[at] = id; return ids } }
	add := func(more ...ID) func([]ID) []ID { return func(ids []ID) []ID { return append(ids, more...) } }
	for _, tc := range []struct {
		name  string
		plant func(*scene)
		want  map[Kind]int
	}{
		{"an acknowledged tail is gone on all replicas", func(s *scene) { s.reads = nil; s.all(cut(2)) }, map[Kind]int{Lost: 2}},
		{"an acknowledged record is gone on one replica", func(s *scene) { s.replicas["node 2"] = s.replicas["node 2"][:5] }, map[Kind]int{Lost: 1, Differs: 1}},
		{"an acknowledged record in the middle is gone", func(s *scene) { s.all(set(3, 0)) }, map[Kind]int{Lost: 1}},
		{"a record that was only read is gone", func(s *scene) { delete(s.acks, 5); s.all(cut(1)) }, map[Kind]int{Lost: 1}},
		{"stored twice", func(s *scene) { s.all(add(NewID(2, 3))) }, map[Kind]int{Duplicated: 1}},
		{"an older one stored twice", func(s *scene) { s.all(add(NewID(1, 1), NewID(2, 1))) }, map[Kind]int{Duplicated: 2}},
		{"behind its successor", func(s *scene) { s.all(add(NewID(3, 2), NewID(3, 1))) }, map[Kind]int{Reordered: 1}},
		{"an acknowledged offset holds another record", func(s *scene) { s.reads = nil; s.all(set(3, NewID(3, 1))) }, map[Kind]int{Reused: 1, Lost: 1}},
		{"an offset was read as another record", func(s *scene) { s.reads[3] = NewID(3, 1) }, map[Kind]int{Reused: 1}},
		{"an offset was given twice", func(s *scene) { s.acks[6] = NewID(3, 1); s.reads[6] = NewID(3, 2); s.all(add(NewID(3, 1))) }, map[Kind]int{Reused: 1}},
		{"a record stands at another offset", func(s *scene) {
			s.reads = nil
			s.acks = map[int64]ID{7: NewID(2, 4)}
			s.all(add(NewID(2, 4)))
		}, map[Kind]int{Reused: 1}},
		{"a replica has another batch at the same place", func(s *scene) { s.epochs["node 3"] = 7 }, map[Kind]int{Differs: 1}},
		{"a replica is empty", func(s *scene) { s.acks, s.reads = nil, nil; s.replicas["node 1"] = nil }, map[Kind]int{Differs: 1}},
		{"a latest offset goes back", func(s *scene) { s.ends = []int64{3, 2, 3} }, map[Kind]int{WentBack: 1}},
		{"nobody wrote it", func(s *scene) { s.all(add(NewID(99, 1))) }, map[Kind]int{Strange: 1}},
		{"acknowledged without an offset and not there", func(s *scene) { s.acks[-1] = NewID(4, 1) }, map[Kind]int{Lost: 1}},
		{"acknowledged without an offset and there", func(s *scene) { s.acks[-1] = NewID(4, 1); s.all(add(NewID(4, 1))) }, nil},
		{"not acknowledged and there", func(s *scene) { s.all(add(NewID(4, 1))) }, nil},
		{"a batch that was damaged on purpose is not given out", func(s *scene) { s.rotten = true; s.replicas["node 2"][3] = 0 }, nil},
		{"a batch that was damaged on purpose is given out as another record", func(s *scene) { s.rotten = true; s.replicas["node 2"][3] = NewID(3, 1) }, map[Kind]int{Reused: 1, Lost: 1}},
		{"the damage is on another replica", func(s *scene) { s.rotten = true; s.replicas["node 1"][3] = 0 }, map[Kind]int{Lost: 1, Differs: 1}},
		{"more is gone than was damaged", func(s *scene) { s.rotten = true; s.replicas["node 2"][3], s.replicas["node 2"][4] = 0, 0 }, map[Kind]int{Lost: 1, Differs: 1}},
		{"a producer was told that a record failed", func(s *scene) { s.lies = []Kind{GivenUp} }, map[Kind]int{GivenUp: 1}},
		{"the cluster did not become whole", func(s *scene) { s.lies = []Kind{NotHealed} }, map[Kind]int{NotHealed: 1}},
		{"a process ended", func(s *scene) { s.lies = []Kind{Ended} }, map[Kind]int{Ended: 1}},
		{"a file is damaged", func(s *scene) { s.lies = []Kind{Damaged} }, map[Kind]int{Damaged: 1}},
		{"not acknowledged, not read and gone", func(s *scene) { delete(s.acks, 5); delete(s.reads, 5); s.all(cut(1)) }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene()
			tc.plant(s)
			v := s.judge()
			want := tc.want
			if want == nil {
				want = map[Kind]int{}
			}
			if d := cmp.Diff(want, v.Counts); d != "" {
				t.Errorf("violations (-want +got):\n%s\n%v", d, v.Told)
			}
			for k := range want {
				if k != WentBack && len(v.Told[k]) == 0 || !strings.Contains(v.Sums(), string(k)) {
					t.Errorf("%s is not told: %v", k, v.Told)
				}
			}
		})
	}
}

// TestFloor: an answer counts as lower than an earlier one only if its question was sent after that one had come.
func TestFloor(t *testing.T) {
	c := NewChecker()
	early := c.Floor(part)
	c.End(part, c.Floor(part), 10, "latest offset")
	c.End(part, early, 4, "watermark") // asked before: both orders are right
	if n := c.counts[WentBack]; n != 0 {
		t.Fatalf("%d violations: %v", n, c.told)
	}
	c.End(part, c.Floor(part), -1, "watermark") // not known now
	c.End(part, c.Floor(part), 9, "watermark")
	if n := c.counts[WentBack]; n != 1 {
		t.Fatalf("%d violations: %v", n, c.told)
	}
	// What was acknowledged is below every later end.
	c = NewChecker()
	c.Acked(part, 5, NewID(1, 1))
	c.End(part, c.Floor(part), 5, "latest offset")
	if n := c.counts[WentBack]; n != 1 {
		t.Fatalf("an end below an acknowledged record: %d violations", n)
	}
	// An end that nothing in the replicas reaches was a promise too.
	c = NewChecker()
	c.End(part, 0, 3, "latest offset")
	r := c.Replica(part, "node 1")
	r.Record(0, NewID(1, 1), true)
	if v := c.Verdict(); v.Counts[WentBack] != 1 {
		t.Fatalf("a replica below an end that was told: %v", v.Counts)
	}
}

func TestNoReplicaIsNoProof(t *testing.T) {
	c := NewChecker()
	c.Acked(part, 0, NewID(1, 1))
	if v := c.Verdict(); v.Counts[NotHealed] != 1 {
		t.Fatalf("a partition without any replica passes: %v", v.Counts)
	}
}

func TestOutage(t *testing.T) {
	ms := time.Millisecond
	changes := []Change{
		{At: 100 * ms, Node: 1, Up: false},
		{At: 200 * ms, Node: 2, Up: false},
		{At: 500 * ms, Node: 1, Up: true},
		{At: 900 * ms, Node: 3, Up: false},
	}
	minority := Minorities(changes, []int32{1, 2, 3}, 1000*ms)
	if d := cmp.Diff([]Span{{200 * ms, 500 * ms}, {900 * ms, 1000 * ms}}, minority); d != "" {
		t.Fatal(d)
	}
	for _, tc := range []struct {
		span Span
		want time.Duration
	}{
		{Span{0, 150 * ms}, 150 * ms},
		{Span{0, 300 * ms}, 200 * ms},
		{Span{250 * ms, 450 * ms}, 0},
		{Span{150 * ms, 950 * ms}, 450 * ms},
	} {
		if got := Outage(tc.span, minority); got != tc.want {
			t.Errorf("%v: %v, want %v", tc.span, got, tc.want)
		}
	}
	links := []Change{
		{At: 100 * ms, Links: []Link{{1, 2}, {2, 1}, {1, 3}, {3, 1}}}, // 2 and 3 are together
		{At: 200 * ms, Node: 3, Up: false},
		{At: 300 * ms, Up: true}, // 1 and 2
		{At: 400 * ms, Links: []Link{{2, 1}}},
		{At: 500 * ms, Node: 3, Up: true}, // 3 and either
		{At: 600 * ms, Links: []Link{{Clients, 3}}},
	}
	if d := cmp.Diff([]Span{{200 * ms, 300 * ms}, {400 * ms, 500 * ms}, {600 * ms, 700 * ms}}, Minorities(links, []int32{1, 2, 3}, 700*ms)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]Span{{1, 6}, {7, 8}}, union([]Span{{7, 8}, {3, 6}, {1, 4}, {2, 3}})); d != "" {
		t.Error(d)
	}
	v := Verdict{WithoutLeader: []time.Duration{1 * ms, 2 * ms, 3 * ms, 4 * ms}}
	if p50, p99, most := v.Percentile(0.5), v.Percentile(0.99), v.Percentile(1); p50 != 2*ms || p99 != 4*ms || most != 4*ms {
		t.Errorf("p50 %v p99 %v max %v", p50, p99, most)
	}
}

func TestValue(t *testing.T) {
	for _, id := range []ID{NewID(0, 1), NewID(7, 42), NewID(maxProducer, maxSequence)} {
		got, number, ok := parseValue(appendValue(nil, id, 11, []byte("some - filler")))
		if got != id || number != 11 || !ok {
			t.Errorf("%s: %s, partition %d, %v", id, got, number, ok)
		}
	}
	for _, v := range []string{"", " ", "x", "t1-2-3", "t1-2-0 ", "t1-2 ", "t-1-2-3 ", "t70000-1-1 ", "t1-2-3-4 x", "1-2-3 x", "t1-99999999999-3 "} {
		if id, number, ok := parseValue([]byte(v)); ok {
			t.Errorf("%q: %s, partition %d", v, id, number)
		}
	}
}

package lag

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
)

// world is a broker with partitions that a test moves, and groups in them.
type world struct {
	t       *testing.T
	now     time.Time
	led     map[Partition]Extent
	nobody  map[Partition]bool
	commits [metadata.Shards]map[string]map[Partition]metadata.OffsetCommit
	moved   uint64
	walks   int // looks at all offsets
	lookups int
	broken  bool // logs cannot be read
	s       *Sampler
}

var start = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: start, led: map[Partition]Extent{}, nobody: map[Partition]bool{}}
	for i := range w.commits {
		w.commits[i] = map[string]map[Partition]metadata.OffsetCommit{}
	}
	w.s = New(w, w)
	return w
}

func (w *world) Led(f func(p Partition, e Extent) bool) {
	for p, e := range w.led {
		if !f(p, e) {
			return
		}
	}
}

func (w *world) Find(p Partition) (Extent, Place) {
	if e, ok := w.led[p]; ok {
		return e, Here
	}
	if w.nobody[p] {
		return Extent{}, Nowhere
	}
	return Extent{}, Elsewhere
}

// TimeOf: record o was written o seconds after the start.
func (w *world) TimeOf(p Partition, o record.Offset) (int64, bool, error) {
	w.lookups++
	if w.broken {
		return 0, false, errors.New("broken")
	}
	e := w.led[p]
	return start.UnixMilli() + 1000*int64(max(o, e.Start)), o < e.End, nil
}

func (w *world) Committed() uint64 { return w.moved }

func (w *world) Offsets(group string, f func(metadata.OffsetCommit) bool) {
	for _, c := range w.commits[metadata.ShardOf(group)][group] {
		if !f(c) {
			return
		}
	}
}

func (w *world) EachOffset(shard int32, f func(group string, c metadata.OffsetCommit) bool) {
	if shard == 0 {
		w.walks++
	}
	for group, all := range w.commits[shard] {
		for _, c := range all {
			if !f(group, c) {
				return
			}
		}
	}
}

func part(n int) Partition { return Partition{Topic: metadata.TopicID{1}, Partition: int32(n)} }

func (w *world) commit(group string, p Partition, offset int64) {
	shard := w.commits[metadata.ShardOf(group)]
	if shard[group] == nil {
		shard[group] = map[Partition]metadata.OffsetCommit{}
	}
	shard[group][p] = metadata.OffsetCommit{GroupPartition: p, Offset: offset, Committed: w.now.UnixMilli()}
	w.moved++
}

// pass lets time go by, a second a step.
func (w *world) pass(d time.Duration, step func(second int)) {
	for i := range int(d / time.Second) {
		w.now = w.now.Add(time.Second)
		if step != nil {
			step(i + 1)
		}
		w.s.Tick(w.now)
	}
}

func (w *world) one(group string) Line {
	w.t.Helper()
	a := w.s.Ask(&Query{Groups: []string{group}}, w.now)
	if len(a.Lines) != 1 {
		w.t.Fatalf("%d lines: %+v", len(a.Lines), a.Lines)
	}
	return a.Lines[0]
}

func TestLine(t *testing.T) {
	w := newWorld(t)
	p := part(3)
	w.led[p] = Extent{0, 100}
	w.commit("g", p, 100)
	w.s.Tick(w.now)
	if l := w.one("g"); l.Lag() != 0 || l.Behind != 0 || l.In != Unknown || l.Out != Unknown || l.Trend != TrendUnknown {
		t.Fatalf("at the start: %+v", l)
	}
	if w.lookups != 0 {
		t.Fatal("a log was read for a group that has read all")
	}
	// Ten a second come in, four are read, for two minutes; record n is of second n.
	w.pass(2*time.Minute, func(s int) {
		w.led[p] = Extent{0, record.Offset(100 + 10*s)}
		w.commit("g", p, int64(100+4*s))
	})
	l := w.one("g")
	want := Line{
		Group: "g", Partition: p, Committed: 580, CommittedAt: w.now.UnixMilli(), Extent: Extent{0, 1300},
		Behind: 0, In: 10, Out: 4, Trend: TrendUp, Moved: w.now.UnixMilli(),
	}
	if d := cmp.Diff(want, l); d != "" {
		t.Fatal(d)
	}
	// Nothing comes any more, twenty a second are read.
	w.pass(30*time.Second, func(s int) { w.commit("g", p, int64(580+20*s)) })
	if l = w.one("g"); l.Trend != TrendDown || l.In < 4.9 || l.In > 5.1 || l.Out < 11.9 || l.Out > 12.1 {
		t.Fatalf("a minute that was half and half: %+v", l)
	}
	w.pass(70*time.Second, nil)
	if l = w.one("g"); l.In != 0 || l.Out != 0 || l.Trend != TrendFlat || l.Lag() != 120 {
		t.Fatalf("at rest: %+v", l)
	}
	if d, ok := Drain(120, l.In, l.Out); ok {
		t.Fatalf("drained in %v", d)
	}
	if rest := w.now.UnixMilli() - l.Moved; rest < 60_000 || rest > 80_000 {
		t.Fatalf("at rest for %d ms", rest)
	}
}

// The time at an offset is read once, again when the offset has moved, and anew when it could not be read.
func TestBehind(t *testing.T) {
	w := newWorld(t)
	w.led[part(0)] = Extent{10, 1000}
	w.commit("g", part(0), 20)
	w.commit("old", part(0), 5) // its records are gone
	w.s.Tick(w.now)
	w.now = start.Add(100 * time.Second)
	w.broken = true
	if l := w.one("g"); l.Behind != Unknown {
		t.Fatalf("%+v", l)
	}
	w.broken, w.lookups = false, 0
	for range 3 {
		if l := w.one("g"); l.Behind != 80_000 || w.lookups != 1 {
			t.Fatalf("%+v, %d lookups", l, w.lookups)
		}
	}
	if l := w.one("old"); l.Behind != 90_000 || l.Lag() != 990 {
		t.Fatalf("%+v", l)
	}
	w.commit("g", part(0), 50)
	if l := w.one("g"); l.Behind != 50_000 || w.lookups != 3 {
		t.Fatalf("%+v, %d lookups", l, w.lookups)
	}
}

// What does not move costs no look at the offsets; what is not led any more, or gone, is forgotten.
func TestIdle(t *testing.T) {
	w := newWorld(t)
	for i := range 10 {
		w.led[part(i)] = Extent{0, 10}
		for g := range 5 {
			w.commit(fmt.Sprint("g", g), part(i), 5)
		}
	}
	w.pass(time.Minute, nil)
	if w.walks != 1 || len(w.s.groups) != 50 {
		t.Fatalf("%d walks, %d groups", w.walks, len(w.s.groups))
	}
	delete(w.led, part(3))
	w.pass(time.Minute, nil)
	if w.walks != 2 || len(w.s.groups) != 45 || len(w.s.ends) != 9 {
		t.Fatalf("%d walks, %d groups, %d ends", w.walks, len(w.s.groups), len(w.s.ends))
	}
	delete(w.commits[metadata.ShardOf("g2")], "g2")
	w.moved++
	w.pass(time.Minute, nil)
	if w.walks != 3 || len(w.s.groups) != 36 {
		t.Fatalf("%d walks, %d groups", w.walks, len(w.s.groups))
	}
}

func TestPlaces(t *testing.T) {
	w := newWorld(t)
	w.led[part(0)], w.nobody[part(1)] = Extent{0, 10}, true
	for i := range 3 {
		w.commit("g", part(i), 4)
		w.commit("h", part(i), 10)
	}
	a := w.s.Ask(&Query{}, w.now)
	if len(a.Lines) != 4 || a.Lines[0].Lag() != 6 || !a.Lines[2].Leaderless || a.Lines[2].Lag() != Unknown || a.Lines[3].Behind != Unknown {
		t.Fatalf("%+v", a.Lines)
	}
	if a = w.s.Ask(&Query{Others: true, Groups: []string{"h", "none"}}, w.now); len(a.Lines) != 3 || a.Lines[2].Leaderless || a.Lines[2].End != Unknown {
		t.Fatalf("%+v", a.Lines)
	}
	a = w.s.Ask(&Query{Sums: true}, w.now)
	if d := cmp.Diff(&Answer{Sums: []Sum{{"g", 6, 1}, {"h", 0, 1}}, Nowhere: 2, Missing: map[string]int{"g": 1, "h": 1}}, a); d != "" {
		t.Fatal(d)
	}
}

// A partition that is led here but whose end cannot be told has a line without an end, and is missing in the sums; so is one that nobody leads.
func TestUnknownEnds(t *testing.T) {
	w := newWorld(t)
	w.led[part(0)], w.led[part(1)], w.nobody[part(2)] = Extent{0, 10}, Extent{Unknown, Unknown}, true
	for i := range 4 {
		w.commit("g", part(i), 4)
	}
	w.commit("h", part(1), 1)
	w.s.Tick(w.now)
	w.now = w.now.Add(time.Minute)
	a := w.s.Ask(&Query{}, w.now)
	var got []string
	for i := range a.Lines {
		l := &a.Lines[i]
		got = append(got, fmt.Sprint(l.Group, l.Partition.Partition, " lag ", l.Lag(), " behind ", l.Behind, " in ", l.In, " out ", l.Out, " leaderless ", l.Leaderless))
	}
	want := []string{
		"g0 lag 6 behind 56000 in 0 out 0 leaderless false", "g1 lag -1 behind -1 in -1 out -1 leaderless false",
		"h1 lag -1 behind -1 in -1 out -1 leaderless false", "g2 lag -1 behind -1 in -1 out -1 leaderless true",
	}
	if d := cmp.Diff(want, got); d != "" || a.Nowhere != 3 || a.Missing != nil {
		t.Fatalf("%d without an end, %v\n%s", a.Nowhere, a.Missing, d)
	}
	a = w.s.Ask(&Query{Sums: true}, w.now)
	if d := cmp.Diff(&Answer{Sums: []Sum{{"g", 6, 1}}, Nowhere: 3, Missing: map[string]int{"g": 2, "h": 1}}, a); d != "" {
		t.Fatal(d)
	}
}

// A negative offset, which any client may commit, stands for none: the answer has the other lines, and can be read.
func TestNegativeCommit(t *testing.T) {
	for _, q := range []Query{{}, {Others: true}, {Sums: true}} {
		w := newWorld(t)
		for i := range 3 {
			w.led[part(i)] = Extent{0, 10}
			w.commit("g", part(i), int64(3*i-1))
		}
		w.commit("h", part(0), -1<<63)
		w.pass(2*time.Minute, nil)
		a := w.s.Ask(&q, w.now)
		got, err := ParseAnswer(AppendAnswer(nil, a))
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		if d := cmp.Diff(a, got); d != "" {
			t.Fatalf("%+v: %s", q, d)
		}
		if lines, sums := len(got.Lines), len(got.Sums); !q.Sums && lines != 2 || q.Sums && (sums != 1 || got.Sums[0] != Sum{"g", 8 + 5, 2}) {
			t.Fatalf("%+v: %+v", q, got)
		}
	}
}

// The rates of a series are right whatever it did before, and however rarely it moved.
func TestSeries(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		var s series
		born := uint32(1 + r.IntN(10))
		truth := map[uint32]int64{}
		v := int64(0)
		for n := born; n < born+40; n++ {
			if r.IntN(6) == 0 {
				v += int64(r.IntN(100)) - 20
			}
			s.put(n, v)
			truth[n] = v
			oldest := s.oldest(n)
			if oldest < born || n >= born+slots && n-oldest != slots-1 {
				t.Fatalf("seed %d: the oldest of %d is %d", seed, n, oldest)
			}
			for k := oldest; k <= n; k++ {
				if s.at(k) != truth[k] {
					t.Fatalf("seed %d: sample %d at %d is %d, want %d", seed, k, n, s.at(k), truth[k])
				}
			}
		}
	}
}

func TestTrendAndDrain(t *testing.T) {
	for _, c := range []struct {
		before, now int64
		in          float64
		want        Trend
	}{
		{0, 0, 0, TrendFlat},
		{0, 5, 10, TrendFlat}, // what comes in within a second
		{0, 50, 10, TrendUp},
		{1000, 990, 0, TrendFlat},
		{1000, 900, 0, TrendDown},
		{1000, 1030, 1, TrendUp},
	} {
		if got := trend(c.before, c.now, c.in); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	if d, ok := Drain(600, 10, 20); !ok || d != time.Minute {
		t.Errorf("%v %v", d, ok)
	}
	if d, ok := Drain(1<<62, 0, 0.001); !ok || d < 24*time.Hour {
		t.Errorf("%v %v", d, ok)
	}
	for _, bad := range [][3]float64{{5, 10, 10}, {5, Unknown, 3}, {5, 1, Unknown}, {-1, 0, 5}} {
		if d, ok := Drain(int64(bad[0]), bad[1], bad[2]); ok {
			t.Errorf("%v: %v", bad, d)
		}
	}
}

// A question names a group once, however often it says its name.
func TestGroupsAreNamedOnce(t *testing.T) {
	q, err := ParseQuery(AppendQuery(nil, &Query{Groups: []string{"b", "a", "b", "b", "a"}}))
	if want := []string{"a", "b"}; err != nil || cmp.Diff(want, q.Groups) != "" {
		t.Fatal(err, cmp.Diff(want, q.Groups))
	}
}

// A question goes through so many offsets and no more, also where it tells nothing of them, and the answer says that there are more.
func TestOffsetsVisitedAreBounded(t *testing.T) {
	w := newWorld(t)
	for i := range 10 {
		w.commit("g", part(i), 1) // led elsewhere
		w.commit("h", part(i), -1)
	}
	for _, q := range []Query{{}, {Sums: true}, {Groups: []string{"g", "h"}}, {Sums: true, Groups: []string{"g", "h"}}} {
		for most, more := range map[int]bool{5: true, 19: true, 20: false} {
			w.s.mostVisited = most
			if a := w.s.Ask(&q, w.now); a.More != more || len(a.Lines)+len(a.Sums) != 0 {
				t.Errorf("%+v, %d: %+v", q, most, a)
			}
		}
	}
}

func TestWire(t *testing.T) {
	for _, q := range []Query{{}, {Sums: true}, {Others: true, Groups: []string{"", "a", "ü"}}} {
		got, err := ParseQuery(AppendQuery(nil, &q))
		if err != nil || cmp.Diff(&q, got) != "" {
			t.Fatalf("%v %s", err, cmp.Diff(&q, got))
		}
	}
	w := newWorld(t)
	for i := range 4 {
		w.led[part(i)] = Extent{record.Offset(i), 1000}
	}
	w.nobody[part(9)] = true
	for i := range 10 {
		for g := range 3 {
			w.commit(fmt.Sprint("g", g), part(i), int64(40*i+g))
		}
	}
	w.pass(90*time.Second, func(s int) { w.commit("g1", part(2), int64(s)) })
	a := w.s.Ask(&Query{Others: true}, w.now)
	a.Sums = []Sum{{"g1", 17, 3}, {"alone", 1 << 60, 1}}
	a.Missing = map[string]int{"g2": 3, "gone": 1}
	a.More = true
	b := AppendAnswer(nil, a)
	got, err := ParseAnswer(append(b[:len(b):len(b)], 1, 2, 3))
	if err != nil || len(a.Lines) != 30 || a.Nowhere != 3 {
		t.Fatal(err, len(a.Lines), a.Nowhere)
	}
	near := cmp.Comparer(func(x, y float64) bool { return x-y < 0.001 && y-x < 0.001 })
	if d := cmp.Diff(a, got, near); d != "" {
		t.Fatal(d)
	}
	// A version before Nowhere ended behind the sums.
	older := len(b) - 6 // two numbers, and two missing ones of two each
	got, err = ParseAnswer(b[:older])
	a.Nowhere, a.Missing = 0, nil
	if d := cmp.Diff(a, got, near); err != nil || d != "" {
		t.Fatal(err, d)
	}
	// Nothing that is cut short or changed panics, or takes more memory than its size warrants.
	for i := range b {
		if _, err := ParseAnswer(b[:i]); err == nil && i != older {
			t.Fatalf("the first %d bytes are an answer", i)
		}
		for _, v := range []byte{0, 0xff, 0x80, b[i] + 1} {
			changed := append([]byte{}, b...)
			changed[i] = v
			_, _ = ParseAnswer(changed)
			_, _ = ParseQuery(changed)
		}
	}
	if _, err := ParseQuery([]byte{0, 0xff, 0xff, 0xff, 0xff, 0x0f}); !errors.Is(err, ErrMalformed) {
		t.Fatal(err)
	}
}

// A hundred thousand group-partitions, all of which move: what a sample and a question take.
func BenchmarkCrowd(b *testing.B) {
	w := newWorld(nil)
	for i := range 10 {
		w.led[part(i)] = Extent{0, 1 << 40}
		for g := range 10_000 {
			w.commit(fmt.Sprint("g", g), part(i), 5)
		}
	}
	b.Run("tick", func(b *testing.B) {
		for b.Loop() {
			w.moved++
			w.now = w.now.Add(Interval)
			w.s.Tick(w.now)
		}
	})
	b.Run("idle", func(b *testing.B) {
		for b.Loop() {
			w.now = w.now.Add(Interval)
			w.s.Tick(w.now)
		}
	})
	b.Run("sums", func(b *testing.B) {
		for b.Loop() {
			w.s.Ask(&Query{Sums: true}, w.now)
		}
	})
	b.Run("lines", func(b *testing.B) {
		for b.Loop() {
			AppendAnswer(nil, w.s.Ask(&Query{}, w.now))
		}
	})
}

package metadata

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

// The shards are those that Kafka's coordinators compute: hashes of Java, of characters beyond the basic plane too.
func TestShardOf(t *testing.T) {
	for group, want := range map[string]int32{
		"": 0, "a": 47, "orders": 31, "console-consumer-12345": 6, "größe": 7, "群": 26,
		"🚀 group": 16, "polygenelubricants": 0 /* the least number, whose absolute value is none */, "billing": 9,
	} {
		if got := ShardOf(group); got != want {
			t.Errorf("%q: %d, want %d", group, got, want)
		}
	}
}

// life is a state machine with groups, and a model of them.
type life struct {
	t      testing.TB
	seed   uint64
	r      *rand.Rand
	img    *Image
	tables *Tables
	log    []Entry
	// model is what each group should have.
	model map[string]*modelGroup
	// frozen are freezes under way, with the entries that they should have.
	frozen []frozenAt
}

type modelGroup struct {
	offsets map[GroupPartition]OffsetCommit
	entries map[string]string
}

type frozenAt struct {
	f       *Frozen
	img     *Image
	entries int
}

func newLife(t testing.TB, seed uint64) *life {
	l := &life{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 7)), img: New(), tables: NewTables(), model: map[string]*modelGroup{}}
	l.apply(BrokerRegistered{ID: 1, Incarnation: [16]byte{1}}, BrokerRegistered{ID: 2, Incarnation: [16]byte{2}})
	return l
}

func (l *life) fail(format string, a ...any) {
	l.t.Helper()
	l.t.Fatalf("seed %d, entry %d: %s", l.seed, len(l.log), fmt.Sprintf(format, a...))
}

func (l *life) apply(records ...Record) []Result {
	l.t.Helper()
	e := Entry{
		Index: l.img.Index() + 1, Term: 1,
		Payload: AppendCommand(nil, &Command{Session: Session{Epoch: NoEpoch}, Groups: []Group{{Records: records}}}),
	}
	l.log = append(l.log, e)
	next, _, out, err := Apply(l.img, l.tables, e)
	if err != nil {
		l.fail("%v", err)
	}
	l.img = next
	return out.Results[0]
}

var lifeGroups = []string{"a", "b", "orders", "billing", "群", "🚀 group", "connect-cluster", "x1", "x2", "x3"}

func (l *life) group() string { return lifeGroups[l.r.IntN(len(lifeGroups))] }

func (l *life) partition() GroupPartition {
	return GroupPartition{TopicID{byte(l.r.IntN(4)) + 1}, int32(l.r.IntN(4))}
}

// claim gives a group's shard to a broker.
func (l *life) claim(group string) (shard int32, epoch int64) {
	shard = ShardOf(group)
	if l.img.Shard(shard).Owner == NoLeader {
		l.apply(ShardAssigned{Shard: shard, Epoch: l.img.Shard(shard).Epoch, Owner: BrokerID(1 + l.r.IntN(2))})
	}
	return shard, l.img.Shard(shard).Epoch
}

// steps applies random entries, and keeps the model.
func (l *life) steps(n int) {
	l.t.Helper()
	for range n {
		switch l.r.IntN(20) {
		case 0:
			id := TopicID{byte(l.r.IntN(4)) + 1}
			l.apply(TopicCreated{Name: fmt.Sprint("t", id[0]), ID: id, Partitions: make([]Partition, 1+l.r.IntN(4))})
		case 1:
			id := TopicID{byte(l.r.IntN(4)) + 1}
			l.apply(TopicDeleted{ID: id})
			for _, g := range l.model {
				maps.DeleteFunc(g.offsets, func(p GroupPartition, _ OffsetCommit) bool { return p.Topic == id })
			}
		case 2:
			l.apply(BrokerRegistered{ID: BrokerID(1 + l.r.IntN(2)), Incarnation: [16]byte{byte(l.r.IntN(256)), 1}})
		case 3:
			l.freeze()
		case 4:
			l.thaw()
		case 5:
			l.restore()
		default:
			l.change(l.group())
		}
		maps.DeleteFunc(l.model, func(_ string, g *modelGroup) bool { return len(g.offsets)+len(g.entries) == 0 })
	}
}

// change applies one or two records of a group; one in six comes from a coordinator that has lost the shard.
func (l *life) change(group string) {
	l.t.Helper()
	shard, epoch := l.claim(group)
	old := l.r.IntN(6) == 0
	if old {
		epoch -= int64(1 + l.r.IntN(3))
	}
	var records []Record
	for range 1 + l.r.IntN(2) {
		records = append(records, l.record(group, shard, epoch, old))
	}
	for _, r := range l.apply(records...) {
		if (r.Refusal == RefusedShardEpoch) != old || r.Refusal != Accepted && !old {
			l.fail("%v of an old shard %v: %v", records, old, r.Err())
		}
	}
}

func (l *life) record(group string, shard int32, epoch int64, old bool) Record {
	m := l.model[group]
	if m == nil {
		m = &modelGroup{map[GroupPartition]OffsetCommit{}, map[string]string{}}
	}
	if old {
		m = &modelGroup{map[GroupPartition]OffsetCommit{}, map[string]string{}} // forgotten
	} else {
		l.model[group] = m
	}
	switch l.r.IntN(8) {
	case 0:
		clear(m.offsets)
		clear(m.entries)
		return GroupRemoved{shard, epoch, group}
	case 1:
		rec := OffsetsRemoved{Shard: shard, ShardEpoch: epoch, Group: group}
		for range l.r.IntN(4) {
			p := l.partition()
			rec.Partitions = append(rec.Partitions, p)
			delete(m.offsets, p)
		}
		return rec
	case 2, 3:
		rec := GroupChanged{Shard: shard, ShardEpoch: epoch, Group: group}
		for range l.r.IntN(4) {
			e := GroupEntry{Key: fmt.Sprint("k", l.r.IntN(5))}
			delete(m.entries, e.Key)
			if l.r.IntN(3) > 0 {
				e.Value = []byte(fmt.Sprint(l.r.IntN(3)))
				m.entries[e.Key] = string(e.Value)
			}
			rec.Entries = append(rec.Entries, e)
		}
		return rec
	}
	rec := OffsetsCommitted{Shard: shard, ShardEpoch: epoch, Group: group}
	for range l.r.IntN(5) {
		c := OffsetCommit{GroupPartition: l.partition(), Offset: l.r.Int64N(1000), LeaderEpoch: -1, Metadata: "m", Committed: int64(len(l.log)), Expires: -1}
		rec.Offsets = append(rec.Offsets, c)
		if _, ok := l.img.Partition(c.Topic, c.Partition); ok {
			m.offsets[c.GroupPartition] = c
		}
	}
	return rec
}

func (l *life) freeze() {
	l.frozen = append(l.frozen, frozenAt{l.tables.Freeze(), l.img, len(l.log)})
}

// thaw writes the oldest freeze: it has what was there then.
func (l *life) thaw() {
	l.t.Helper()
	if len(l.frozen) == 0 {
		return
	}
	f := l.frozen[0]
	l.frozen = l.frozen[1:]
	var got bytes.Buffer
	if err := f.img.WriteSnapshot(&got, f.f); err != nil {
		l.fail("%v", err)
	}
	f.f.Release()
	if want := replay(l.t, l.log[:f.entries]).snapshot(); !bytes.Equal(got.Bytes(), want) {
		l.fail("a snapshot of entry %d was written with what came later", f.entries)
	}
}

// restore goes on from a snapshot, as a node that was away does.
func (l *life) restore() {
	l.t.Helper()
	img, tables, err := ReadSnapshot(bytes.NewReader(l.snapshot()))
	if err != nil {
		l.fail("%v", err)
	}
	l.img = img
	l.tables.Replace(tables)
}

// replay makes the state from the log.
func replay(t testing.TB, log []Entry) *life {
	t.Helper()
	l := &life{t: t, img: New(), tables: NewTables()}
	for _, e := range log {
		next, _, _, err := Apply(l.img, l.tables, e)
		if err != nil {
			t.Fatal(err)
		}
		l.img = next
	}
	return l
}

func (l *life) snapshot() []byte {
	l.t.Helper()
	f := l.tables.Freeze()
	defer f.Release()
	var b bytes.Buffer
	if err := l.img.WriteSnapshot(&b, f); err != nil {
		l.t.Fatal(err)
	}
	return b.Bytes()
}

// check compares the tables with the model, by every way to read them.
func (l *life) check() {
	l.t.Helper()
	var names []string
	for i := range int32(Shards) {
		names = append(names, l.tables.Groups(i)...)
		if l.tables.Count(i) != len(l.tables.Groups(i)) {
			l.fail("count of shard %d", i)
		}
	}
	slices.Sort(names)
	if d := gocmp.Diff(slices.Sorted(maps.Keys(l.model)), names); d != "" {
		l.fail("groups: %s", d)
	}
	at := map[GroupPartition][]string{}
	for name, want := range l.model {
		got := map[GroupPartition]OffsetCommit{}
		l.tables.Offsets(name, func(c OffsetCommit) bool { got[c.GroupPartition] = c; return true })
		if d := gocmp.Diff(want.offsets, got); d != "" {
			l.fail("offsets of %s: %s", name, d)
		}
		for p, c := range want.offsets {
			at[p] = append(at[p], name)
			if one, ok := l.tables.Offset(name, p); !ok || one != c {
				l.fail("%s %v: %v", name, p, one)
			}
		}
		entries := map[string]string{}
		for _, e := range l.tables.Entries(name) {
			entries[e.Key] = string(e.Value)
		}
		if d := gocmp.Diff(want.entries, entries); d != "" || !l.tables.Has(name) {
			l.fail("entries of %s: %s", name, d)
		}
	}
	for topic := range byte(5) {
		for n := range int32(4) {
			p := GroupPartition{TopicID{topic}, n}
			var groups []string
			l.tables.ByPartition(p, func(g string, c OffsetCommit) bool {
				if c != l.model[g].offsets[p] {
					l.fail("%s in %v: %v", g, p, c)
				}
				groups = append(groups, g)
				return true
			})
			slices.Sort(groups)
			slices.Sort(at[p])
			if !slices.Equal(groups, at[p]) {
				l.fail("groups in %v: %v, want %v", p, groups, at[p])
			}
		}
	}
}

// TestCatalogue49_LiveTablesAreReplayedTables: what commits, removals, deleted topics, lost shards, snapshots that are written meanwhile
// and restarts have made of the groups is what the log makes of them, and what it should be.
func TestCatalogue49_LiveTablesAreReplayedTables(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("KEEPLOG_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("seed %d", seed)
	for i := range uint64(12) {
		l := newLife(t, seed+i)
		for range 10 {
			l.steps(30)
			l.check()
			if live, again := l.snapshot(), replay(t, l.log).snapshot(); !bytes.Equal(live, again) {
				l.fail("the live tables are not those of the log")
			}
		}
		for len(l.frozen) > 0 {
			l.thaw()
		}
	}
}

// What a coordinator may and may not do.
func TestGroupRules(t *testing.T) {
	l := newLife(t, 1)
	one := func(want error, rec Record) Result {
		t.Helper()
		r := l.apply(rec)[0]
		if !errors.Is(r.Err(), want) {
			t.Errorf("%+v: %v, want %v", rec, r.Err(), want)
		}
		return r
	}
	shard := ShardOf("orders")
	topic := TopicID{1}
	l.apply(TopicCreated{Name: "t", ID: topic, Partitions: make([]Partition, 2)})
	commit := func(epoch int64, p int32) OffsetsCommitted {
		return OffsetsCommitted{shard, epoch, "orders", []OffsetCommit{{GroupPartition: GroupPartition{topic, p}, Offset: 5}}}
	}
	one(ErrStaleShard, commit(0, 0)) // nobody has it
	one(ErrUnknownBroker, ShardAssigned{shard, 0, 9})
	one(ErrInvalidRecord, ShardAssigned{Shards, 0, 1})
	one(ErrInvalidRecord, ShardAssigned{-1, 0, 1})
	one(ErrInvalidRecord, ShardAssigned{shard, 0, -2})
	first := one(nil, ShardAssigned{shard, 0, 1}).Value
	if first != int64(l.img.Index()) || l.img.Shard(shard) != (Shard{1, first}) || l.img.Changed() != l.img.Index() {
		t.Errorf("%+v, epoch %d", l.img.Shard(shard), first)
	}
	if r := one(ErrStaleShard, ShardAssigned{shard, 0, 2}); r.Value != first {
		t.Error("a refusal does not tell the epoch: ", r)
	}
	changed := l.img.Changed()
	one(nil, commit(first, 1))
	one(nil, commit(first, 7)) // a partition that is not there is dropped
	one(ErrStaleShard, commit(first+1, 0))
	one(ErrStaleShard, OffsetsCommitted{shard + 1, first, "orders", nil})
	one(ErrStaleShard, GroupChanged{shard, first, "of another shard", []GroupEntry{{"k", []byte("v")}}})
	one(ErrStaleShard, GroupRemoved{-7, first, "orders"})
	one(ErrStaleShard, OffsetsRemoved{1 << 30, first, "orders", nil})
	if l.img.Changed() != changed {
		t.Error("commits change what the deltas tell of")
	}
	if _, ok := l.tables.Offset("orders", GroupPartition{topic, 1}); !ok || l.tables.Has("of another shard") {
		t.Error("the offset is not there, or another is")
	}
	released := one(nil, ShardAssigned{shard, first, NoLeader}).Value
	one(ErrStaleShard, commit(released, 0)) // nobody has it
	second := one(nil, ShardAssigned{shard, released, 2}).Value
	one(ErrStaleShard, commit(first, 0))
	one(nil, commit(second, 0))

	// A new incarnation, and one that is removed, have nothing.
	l.apply(BrokerRegistered{ID: 2, Incarnation: [16]byte{9}})
	if got := l.img.Shard(shard); got != (Shard{NoLeader, int64(l.img.Index())}) {
		t.Errorf("after a registration: %+v", got)
	}
	one(ErrStaleShard, commit(second, 0))
	one(nil, ShardAssigned{shard, l.img.Shard(shard).Epoch, 2})
	b, _ := l.img.Broker(2)
	one(nil, BrokerRemoved{2, b.Epoch})
	if got := l.img.Shard(shard); got != (Shard{NoLeader, int64(l.img.Index())}) {
		t.Errorf("after a removal: %+v", got)
	}
	before := l.tables.Committed()
	one(nil, TopicDeleted{topic})
	if l.tables.Has("orders") || l.tables.Committed() == before {
		t.Error("a topic is gone, and its offsets are there")
	}
}

// The delta of an entry tells whose shards changed.
func TestShardsInTheDelta(t *testing.T) {
	img := apply(t, New(), 1, BrokerRegistered{ID: 1, Incarnation: [16]byte{1}})
	next, delta, _, err := Apply(img, nil, Entry{2, 1, payload(t, ShardAssigned{7, 0, 1}, ShardAssigned{3, 0, 1})})
	if err != nil || delta.Empty() {
		t.Fatal(err)
	}
	want := []ShardChange{{3, Shard{NoLeader, 0}, Shard{1, 2}}, {7, Shard{NoLeader, 0}, Shard{1, 2}}}
	if d := gocmp.Diff(want, delta.Shards); d != "" {
		t.Error(d)
	}
	if d := gocmp.Diff(want, Diff(img, next).Shards); d != "" {
		t.Error(d)
	}
	if img.Shard(3).Owner != NoLeader {
		t.Error("the image before has changed")
	}
}

// What was written once is read for ever, and written the same: the records of groups, and snapshots of each version.
func TestGoldenBytes(t *testing.T) {
	groups := payload(t, all()[14:19]...)
	images := map[string]func() []byte{
		"groups-records": func() []byte { return groups },
		"snapshot-1":     func() []byte { return snapshotBytes(t, apply(t, New(), 1, all()[0:3]...)) },
		"snapshot-2": func() []byte {
			return snapshotBytes(t, apply(t, New(), 1, all()[0], all()[1], all()[2], all()[5], MemberChanged{ID: 3, Directory: DirectoryID{3}}))
		},
		"snapshot-3": func() []byte {
			l := newLife(t, 49)
			l.steps(80)
			return l.snapshot()
		},
	}
	for name, write := range images {
		t.Run(name, func(t *testing.T) {
			file := "testdata/" + name + ".hex"
			if os.Getenv("KEEPLOG_GOLDEN") == name { // a new version's file is made once
				if err := os.WriteFile(file, []byte(folded(write())), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want, err := hex.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
			if err != nil {
				t.Fatal(err)
			}
			if got := write(); !bytes.Equal(got, want) {
				t.Errorf("written now:\n%s", folded(got))
			}
			if name == "groups-records" {
				c, err := DecodeCommand(want)
				if err != nil {
					t.Fatal(err)
				}
				if d := gocmp.Diff(all()[14:19], c.Groups[0].Records); d != "" {
					t.Error(d)
				}
				return
			}
			img, tables, err := ReadSnapshot(bytes.NewReader(want))
			if err != nil {
				t.Fatal(err)
			}
			if again := (&life{t: t, img: img, tables: tables}).snapshot(); !bytes.Equal(again, want) {
				t.Errorf("read and written again:\n%s", folded(again))
			}
			if version := want[len(snapshotMagic)]; fmt.Sprint("snapshot-", version) != name {
				t.Errorf("version %d", version)
			}
		})
	}
}

// folded is hex in lines.
func folded(b []byte) string {
	var out strings.Builder
	for line := range slices.Chunk(b, 64) {
		fmt.Fprintf(&out, "%x\n", line)
	}
	return out.String()
}

// A group that is larger than a frame should be comes back whole.
func TestLargeGroupInASnapshot(t *testing.T) {
	l := newLife(t, 1)
	shard, epoch := l.claim("large")
	l.apply(TopicCreated{Name: "t", ID: TopicID{1}, Partitions: make([]Partition, 3000)})
	commit := OffsetsCommitted{Shard: shard, ShardEpoch: epoch, Group: "large"}
	for i := range int32(3000) {
		commit.Offsets = append(commit.Offsets, OffsetCommit{GroupPartition: GroupPartition{TopicID{1}, i}, Offset: int64(i), Metadata: strings.Repeat("m", 900)})
	}
	change := GroupChanged{Shard: shard, ShardEpoch: epoch, Group: "large"}
	for i := range 300 {
		change.Entries = append(change.Entries, GroupEntry{fmt.Sprint(i), bytes.Repeat([]byte{1}, 5000)})
	}
	l.apply(commit, change)
	b := l.snapshot()
	img, tables, err := ReadSnapshot(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if again := (&life{t: t, img: img, tables: tables}).snapshot(); !bytes.Equal(again, b) || len(tables.Entries("large")) != 300 {
		t.Error("it came back as another")
	}
	n := 0
	tables.Offsets("large", func(OffsetCommit) bool { n++; return true })
	if n != 3000 {
		t.Error(n, " offsets")
	}
}

// TestOutcome survives its way from one node to another; garbage does not pass for one.
func TestOutcome(t *testing.T) {
	want := Outcome{Index: 1 << 40, Duplicate: true, Results: [][]Result{{{}, {RefusedShardEpoch, 7}}, {}, {{Value: -1}}}}
	b := AppendOutcome(nil, &want)
	got, err := DecodeOutcome(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := gocmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for i := range b {
		if _, err := DecodeOutcome(b[:i]); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Error(i, err)
		}
		c := slices.Clone(b)
		c[i] ^= 0xff
		_, _ = DecodeOutcome(c)
	}
	if _, err := DecodeOutcome(nil); !errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
}

// Readers and a snapshot work beside the state machine: the race detector looks on, and the snapshot is of one moment.
func TestTablesBesideTheStateMachine(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	l := newLife(t, seed)
	l.steps(200)
	for len(l.frozen) > 0 {
		l.thaw()
	}
	var work sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		work.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for i := range int32(Shards) {
					for _, g := range l.tables.Groups(i) {
						l.tables.Offsets(g, func(c OffsetCommit) bool { return c.Offset >= 0 })
						l.tables.Entries(g)
					}
				}
				l.tables.ByPartition(GroupPartition{TopicID{1}, 0}, func(string, OffsetCommit) bool { return true })
			}
		})
	}
	for range 10 {
		img, f, entries := l.img, l.tables.Freeze(), len(l.log)
		done := make(chan []byte)
		go func() {
			defer f.Release()
			var b bytes.Buffer
			_ = img.WriteSnapshot(&b, f)
			done <- b.Bytes()
		}()
		for range 40 {
			l.change(l.group())
		}
		if got := <-done; !bytes.Equal(got, replay(t, l.log[:entries]).snapshot()) {
			l.fail("the snapshot of entry %d is not what was there", entries)
		}
	}
	close(stop)
	work.Wait()
}

// manyGroups has 10,000 groups of ten partitions.
func manyGroups(t testing.TB) *life {
	l := newLife(t, 1)
	var claims []Record
	for i := range int32(Shards) {
		claims = append(claims, ShardAssigned{i, 0, 1})
	}
	l.apply(append(claims, TopicCreated{Name: "t", ID: TopicID{1}, Partitions: make([]Partition, 10)})...)
	var records []Record
	for i := range 10_000 {
		g := fmt.Sprint("group-", i)
		rec := OffsetsCommitted{Shard: ShardOf(g), Group: g}
		rec.ShardEpoch = l.img.Shard(rec.Shard).Epoch
		for p := range int32(10) {
			rec.Offsets = append(rec.Offsets, OffsetCommit{GroupPartition: GroupPartition{TopicID{1}, p}, Offset: int64(i), LeaderEpoch: -1, Expires: -1})
		}
		if records = append(records, rec); len(records) == 100 {
			l.apply(records...)
			records = records[:0]
		}
	}
	return l
}

// BenchmarkFreeze is how long a snapshot holds up the state machine.
func BenchmarkFreeze(b *testing.B) {
	l := manyGroups(b)
	for b.Loop() {
		l.tables.Freeze().Release()
	}
}

// BenchmarkSnapshotOfGroups is the rest of it, in the background.
func BenchmarkSnapshotOfGroups(b *testing.B) {
	l := manyGroups(b)
	for b.Loop() {
		b.SetBytes(int64(len(l.snapshot())))
	}
}

// BenchmarkCommit is the apply of an entry of 512 commits of as many groups.
func BenchmarkCommit(b *testing.B) {
	l := manyGroups(b)
	var groups []Group
	for i := range 512 {
		g := fmt.Sprint("group-", i)
		groups = append(groups, Group{Records: []Record{OffsetsCommitted{
			Shard: ShardOf(g), ShardEpoch: l.img.Shard(ShardOf(g)).Epoch, Group: g,
			Offsets: []OffsetCommit{{GroupPartition: GroupPartition{TopicID{1}, int32(i % 10)}, Offset: 5, LeaderEpoch: -1, Committed: 1_700_000_000_000, Expires: -1}},
		}}})
	}
	b.ReportAllocs()
	seq := uint64(0)
	for b.Loop() {
		seq++
		e := Entry{Index: l.img.Index() + 1, Term: 1, Payload: AppendCommand(nil, &Command{Session: Session{1, 1, LaneOffsets, seq}, Groups: groups})}
		next, _, _, err := Apply(l.img, l.tables, e)
		if err != nil {
			b.Fatal(err)
		}
		l.img = next
	}
}

package metadata

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

// all has a record of each kind, every field set.
func all() []Record {
	part := Partition{
		Replicas: []BrokerID{1, 2, 3}, Adding: []BrokerID{3}, Removing: []BrokerID{1}, Directories: []DirectoryID{{1}, {2}, {3}},
		ISR: []BrokerID{1, 2}, ELR: []BrokerID{3}, Leader: 2, LeaderEpoch: 7, PartitionEpoch: 9, Unclean: true,
	}
	return []Record{
		ClusterStarted{ClusterID: "abcdefghijklmnopqrstuv", Voters: []Voter{{1, DirectoryID{7}}, {2, DirectoryID{8}}}},
		FeatureLevel{Name: "group.version", Level: 1},
		BrokerRegistered{
			ID: 1, Incarnation: [16]byte{4}, Rack: "r", Directories: []DirectoryID{{9}},
			Listeners: []Endpoint{{Name: "PLAINTEXT", Host: "h", Port: 65535, Protocol: 3}},
		},
		BrokerFenced{ID: 1, Epoch: 5, Fenced: true, ShuttingDown: true},
		BrokerRemoved{ID: 1, Epoch: 5},
		TopicCreated{Name: "t", ID: TopicID{1}, Partitions: []Partition{part, part}, Configs: []Setting{{"a", new("b")}, {"c", nil}}},
		TopicDeleted{ID: TopicID{1}},
		PartitionsAdded{TopicID: TopicID{1}, First: 2, Partitions: []Partition{part}},
		PartitionChanged{
			TopicID: TopicID{1}, Partition: 1, PartitionEpoch: 9, Leader: new(BrokerID(-1)), NewLeaderEpoch: true,
			ISR: &[]BrokerID{1}, ELR: &[]BrokerID{2, 3}, Unclean: new(true),
			Assignment: &Assignment{[]BrokerID{1, 2}, []BrokerID{2}, []BrokerID{1}, []DirectoryID{{1}, {2}}},
		},
		PartitionChanged{TopicID: TopicID{1}, ISR: new([]BrokerID(nil)), Unclean: new(false)},
		ConfigChanged{Resource: Resource{ResourceGroup, "g"}, Settings: []Setting{{"k", new("")}, {"l", nil}}},
		ProducerIDsGranted{Broker: 1, Epoch: 5, Count: 1000},
		MemberChanged{ID: 2, Directory: DirectoryID{7}, Controller: Endpoint{Name: "C", Host: "h", Port: 1}, Voter: true, Removed: true},
		ChainCheckpoint{Index: 77, Hash: [32]byte{1, 2, 3}},
		ShardAssigned{Shard: 49, Epoch: 1 << 40, Owner: -1},
		OffsetsCommitted{Shard: 3, ShardEpoch: 9, Group: "g", Offsets: []OffsetCommit{
			{GroupPartition{TopicID{1}, 2}, 1 << 50, 7, "text", 1_700_000_000_000, -1}, {Offset: -1, LeaderEpoch: -1, Expires: 9},
		}},
		OffsetsRemoved{Shard: 3, ShardEpoch: 9, Group: "g", Partitions: []GroupPartition{{TopicID{1}, 2}, {TopicID{2}, 0}}},
		GroupChanged{Shard: 3, ShardEpoch: 9, Group: "g", Entries: []GroupEntry{{"k", []byte{1, 2}}, {"empty", []byte{}}, {"gone", nil}}},
		GroupRemoved{Shard: 3, ShardEpoch: 9, Group: "g"},
		Unknown{Number: 999, Body: []byte{1, 2, 3}},
	}
}

func payload(t *testing.T, records ...Record) []byte {
	t.Helper()
	return AppendCommand(nil, &Command{Session: Session{Epoch: NoEpoch}, Groups: []Group{{Records: records}}})
}

func TestCommandRoundTrip(t *testing.T) {
	want := &Command{Session: Session{3, 1 << 40, LaneOffsets, 77}, Groups: []Group{{Term: 5, Records: all()}, {Records: []Record{}}}}
	b := AppendCommand([]byte("before"), want)[6:]
	got, err := DecodeCommand(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := gocmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	seen := map[reflect.Type]bool{}
	size := 0
	for _, r := range all() {
		seen[reflect.TypeOf(r)] = true
		size += RecordSize(r)
	}
	if len(seen) != len(decoders)+1 {
		t.Errorf("%d of %d kinds tested", len(seen)-1, len(decoders))
	}
	if body := len(b) - len(AppendCommand(nil, &Command{Session: want.Session, Groups: []Group{{Term: 5}, {}}})); size != body {
		t.Errorf("sizes add up to %d, the records take %d", size, body)
	}
}

// seal writes the CRC of a changed command.
func seal(b []byte) []byte {
	binary.BigEndian.PutUint32(b[2:], crc32.Update(crc32.Checksum(b[1:2], castagnoli), castagnoli, b[commandHead:]))
	return b
}

// TestDamage: a flipped bit or a cut is damage, a newer version is not.
func TestDamage(t *testing.T) {
	b := payload(t, all()...)
	for i := range b {
		c := slices.Clone(b)
		c[i] ^= 0x10
		if _, err := DecodeCommand(c); !errors.Is(err, ErrCorrupt) {
			t.Errorf("byte %d: %v", i, err)
		}
		if _, err := DecodeCommand(b[:i]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
	c := slices.Clone(b)
	c[1]++
	if _, err := DecodeCommand(seal(c)); !errors.Is(err, ErrNewerVersion) || errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
	c = payload(t, FeatureLevel{Name: "f", Level: 1})
	at := bytes.LastIndexByte(c, 'f') - 2 // version of the record
	c[at]++
	if _, err := DecodeCommand(seal(c)); !errors.Is(err, ErrNewerVersion) || errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
	// Behind a valid CRC every byte is tried with every value that matters: no panic, no memory without bound.
	for i := commandHead; i < len(b); i++ {
		for _, v := range []byte{0, 1, 0x7f, 0x80, 0xff} {
			c := slices.Clone(b)
			c[i] = v
			_, _ = DecodeCommand(seal(c))
		}
	}
}

func FuzzDecodeCommand(f *testing.F) {
	f.Add(AppendCommand(nil, &Command{Groups: []Group{{Records: all()}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < commandHead {
			return
		}
		b[0], b[1] = commandMagic, commandVersion
		c, err := DecodeCommand(seal(b))
		if err != nil {
			return
		}
		again, err := DecodeCommand(AppendCommand(nil, c))
		if err != nil {
			t.Fatal(err)
		}
		if d := gocmp.Diff(c, again); d != "" {
			t.Fatal(d)
		}
		if _, _, _, err := Apply(New(), NewTables(), Entry{Index: 1, Term: 1, Payload: b}); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzReadSnapshot(f *testing.F) {
	var b bytes.Buffer
	img, _ := history(f, 1, 30)
	if err := img.WriteSnapshot(&b, nil); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	withGroups := newLife(f, 1)
	withGroups.steps(60)
	f.Add(withGroups.snapshot())
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 13 {
			binary.BigEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b[:len(b)-4], castagnoli))
		}
		img, _, err := ReadSnapshot(bytes.NewReader(b))
		if err == nil {
			img.PartitionCount()
		}
	})
}

// random makes a record that fits the image about as often as not.
func random(r *rand.Rand, img *Image) Record {
	id := func() TopicID { return TopicID{byte(r.IntN(12)) + 1} }
	broker := BrokerID(r.IntN(4))
	epoch := int64(0)
	if b, ok := img.Broker(broker); ok {
		epoch = b.Epoch - int64(r.IntN(8)/7)
	}
	parts := func() (p []Partition) {
		for range r.IntN(3) + 1 {
			p = append(p, Partition{Replicas: []BrokerID{0, 1}, ISR: []BrokerID{0}, Leader: BrokerID(r.IntN(3))})
		}
		return p
	}
	switch r.IntN(14) {
	case 12, 13:
		s := ShardAssigned{Shard: int32(r.IntN(4)), Owner: broker - int32(r.IntN(2))}
		s.Epoch = img.Shard(s.Shard).Epoch - int64(r.IntN(6)/5)
		return s
	case 10, 11:
		return MemberChanged{ID: broker, Directory: DirectoryID{byte(r.IntN(2)) + 1}, Voter: r.IntN(2) == 0, Removed: r.IntN(3) == 0}
	case 0:
		return BrokerRegistered{ID: broker, Incarnation: [16]byte{byte(r.IntN(3))}}
	case 1:
		return BrokerFenced{ID: broker, Epoch: epoch, Fenced: r.IntN(2) == 0}
	case 2:
		return TopicDeleted{ID: id()}
	case 3:
		t, _ := img.TopicByID(id())
		if t == nil {
			return PartitionsAdded{TopicID: id(), Partitions: parts()}
		}
		return PartitionsAdded{TopicID: t.ID, First: int32(len(t.Partitions)), Partitions: parts()}
	case 4, 5:
		c := PartitionChanged{TopicID: id(), Partition: int32(r.IntN(3)), Leader: new(BrokerID(r.IntN(3)))}
		if p, ok := img.Partition(c.TopicID, c.Partition); ok {
			c.PartitionEpoch = p.PartitionEpoch
		}
		return c
	case 6:
		return ConfigChanged{Resource: Resource{ResourceTopic, fmt.Sprint("t", r.IntN(12)+1)}, Settings: []Setting{{"k", new(fmt.Sprint(r.IntN(3)))}}}
	case 7:
		return ConfigChanged{Resource: Resource{ResourceBroker, ""}, Settings: []Setting{{"k", nil}, {"l", new(fmt.Sprint(r.IntN(2)))}}}
	case 8:
		return ProducerIDsGranted{Broker: broker, Epoch: epoch, Count: 10}
	}
	t := id()
	return TopicCreated{Name: fmt.Sprint("t", t[0]), ID: t, Partitions: parts(), Configs: []Setting{{"c", new("1")}}}
}

// step is one applied entry.
type step struct {
	img   *Image
	delta Delta
	entry Entry
}

// history applies random commands.
func history(t testing.TB, seed uint64, n int) (*Image, []step) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	img := New()
	var steps []step
	for i := range n {
		c := &Command{Session: Session{Broker: BrokerID(r.IntN(2)), Epoch: 1, Sequence: uint64(i)}}
		for range r.IntN(4) + 1 {
			c.Groups = append(c.Groups, Group{Records: []Record{random(r, img), random(r, img)}})
		}
		e := Entry{Index: uint64(i + 1), Term: 1, Payload: AppendCommand(nil, c)}
		next, delta, _, err := Apply(img, nil, e)
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, step{next, delta, e})
		img = next
	}
	return img, steps
}

func snapshotBytes(t testing.TB, img *Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := img.WriteSnapshot(&b, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// describe writes a delta in words that do not depend on sharing.
func describe(d Delta) string {
	var b strings.Builder
	fmt.Fprintln(&b, d.From, d.To, d.Cluster)
	for _, c := range d.Topics {
		fmt.Fprintln(&b, c.Topic().Name, c.Topic().ID, c.Before != nil, c.After != nil, c.Partitions())
	}
	for _, c := range d.Brokers {
		fmt.Fprintln(&b, c.id(), c.Before != nil, c.After != nil)
	}
	for _, c := range d.Configs {
		fmt.Fprintln(&b, c.Resource, c.Before, c.After)
	}
	fmt.Fprintln(&b, d.Shards)
	return b.String()
}

// TestRandomHistory: every image survives a snapshot; the delta of an entry is the difference of the images; old images do
// not change; the partition count and the two topic trees agree; applying again gives the same bytes.
func TestRandomHistory(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	_, steps := history(t, seed, 400)
	prev, before := New(), snapshotBytes(t, New())
	for _, s := range steps {
		b := snapshotBytes(t, s.img)
		back, _, err := ReadSnapshot(bytes.NewReader(b))
		if err != nil {
			t.Fatalf("seed %d, entry %d: %v", seed, s.entry.Index, err)
		}
		if !bytes.Equal(snapshotBytes(t, back), b) {
			t.Fatalf("seed %d, entry %d: a snapshot read back is another", seed, s.entry.Index)
		}
		again, _, _, err := Apply(prev, nil, s.entry)
		if err != nil || !bytes.Equal(snapshotBytes(t, again), b) {
			t.Fatalf("seed %d, entry %d: applied twice gives two images", seed, s.entry.Index)
		}
		if d := gocmp.Diff(describe(Diff(prev, s.img)), describe(s.delta)); d != "" {
			t.Fatalf("seed %d, entry %d: %s", seed, s.entry.Index, d)
		}
		if d := gocmp.Diff(describe(Diff(prev, back)), describe(s.delta)); d != "" {
			t.Fatalf("seed %d, entry %d, restored: %s", seed, s.entry.Index, d)
		}
		if !bytes.Equal(snapshotBytes(t, prev), before) {
			t.Fatalf("seed %d, entry %d: changed the image before it", seed, s.entry.Index)
		}
		n := 0
		for topic := range s.img.Topics() {
			n += len(topic.Partitions)
			if byID, ok := s.img.TopicByID(topic.ID); !ok || byID != topic {
				t.Fatalf("seed %d, entry %d: topic %s is two", seed, s.entry.Index, topic.Name)
			}
		}
		if n != s.img.PartitionCount() || s.img.topics.len() != s.img.ids.len() {
			t.Fatalf("seed %d, entry %d: counts", seed, s.entry.Index)
		}
		prev, before = s.img, b
	}
}

// TestChain: the chain depends on index, term and payload of every entry.
func TestChain(t *testing.T) {
	p, other := payload(t, FeatureLevel{Name: "f", Level: 1}), payload(t, FeatureLevel{Name: "f", Level: 2})
	seen := map[[32]byte]string{}
	for _, e := range []Entry{{1, 1, p}, {2, 1, p}, {1, 2, p}, {1, 1, other}} {
		img, _, _, err := Apply(New(), nil, e)
		if err != nil {
			t.Fatal(err)
		}
		if was, ok := seen[img.Chain()]; ok {
			t.Errorf("%d.%d has the chain of %s", e.Term, e.Index, was)
		}
		seen[img.Chain()] = fmt.Sprintf("%d.%d", e.Term, e.Index)
	}
}

// TestSession: a repeated command is answered and not applied; an old one is refused.
func TestSession(t *testing.T) {
	img, index := New(), uint64(0)
	do := func(s Session, records ...Record) Outcome {
		t.Helper()
		index++
		b := AppendCommand(nil, &Command{Session: s, Groups: []Group{{Records: records}, {Term: 9, Records: records}}})
		next, _, out, err := Apply(img, nil, Entry{Index: index, Term: 1, Payload: b})
		if err != nil {
			t.Fatal(err)
		}
		// What a lane remembers survives a snapshot.
		if img, _, err = ReadSnapshot(bytes.NewReader(snapshotBytes(t, next))); err != nil {
			t.Fatal(err)
		}
		return out
	}
	do(Session{Epoch: NoEpoch}, BrokerRegistered{ID: 1, Incarnation: [16]byte{1}})
	grant := ProducerIDsGranted{Broker: 1, Epoch: 1, Count: 10}
	s := Session{Broker: 1, Epoch: 1, Sequence: 1}
	first := do(s, grant)
	if first.Duplicate || first.Results[0][0].Value != 0 || !errors.Is(first.Results[1][0].Err(), ErrStaleTerm) {
		t.Fatalf("%+v", first)
	}
	again := do(s, grant)
	if !again.Duplicate || again.Index != first.Index || img.NextProducerID() != 10 {
		t.Fatalf("%+v, next id %d", again, img.NextProducerID())
	}
	if d := gocmp.Diff(first.Results, again.Results); d != "" {
		t.Error(d)
	}
	s.Sequence = 2
	if out := do(s, grant); out.Duplicate || out.Results[0][0].Value != 10 {
		t.Fatalf("%+v", out)
	}
	s.Sequence = 1
	if out := do(s, grant); !errors.Is(out.Results[0][0].Err(), ErrStaleSession) || img.NextProducerID() != 20 {
		t.Fatalf("an old sequence: %+v", out)
	}
	if out := do(Session{Broker: 1, Epoch: 7, Sequence: 1}, grant); out.Duplicate || out.Results[0][0].Value != 20 {
		t.Fatalf("a new epoch: %+v", out)
	}
	s.Sequence = 3
	if out := do(s, grant); !errors.Is(out.Results[0][0].Err(), ErrStaleSession) {
		t.Fatalf("an old epoch: %+v", out)
	}
	if out := do(Session{Broker: 1, Epoch: 1, Lane: LaneOffsets, Sequence: 1}, grant); out.Results[0][0].Value != 30 {
		t.Fatalf("another lane: %+v", out)
	}
}

// TestUnknownKind: a record of a newer version is ignored with an alarm, those around it are applied.
func TestUnknownKind(t *testing.T) {
	img, _, out, err := Apply(New(), nil, Entry{1, 1, payload(t, FeatureLevel{Name: "a", Level: 1}, Unknown{Number: 4711}, FeatureLevel{Name: "b", Level: 2})})
	if err != nil {
		t.Fatal(err)
	}
	if img.Feature("a") != 1 || img.Feature("b") != 2 || img.Ignored() != 1 || len(out.Ignored) != 1 || out.Ignored[0] != 4711 ||
		!errors.Is(out.Results[0][1].Err(), ErrUnknownKind) {
		t.Errorf("%+v", out)
	}
}

// TestRegistrationRaisesEpochs is the rule that an incarnation never leads in an epoch that it did not itself receive.
func TestRegistrationRaisesEpochs(t *testing.T) {
	img := apply(t, New(), 1, BrokerRegistered{ID: 1, Incarnation: [16]byte{1}}, BrokerRegistered{ID: 2, Incarnation: [16]byte{2}},
		TopicCreated{Name: "t", ID: TopicID{1}, Partitions: []Partition{{Leader: 1}, {Leader: 2}, {Leader: 1, LeaderEpoch: 5}}})
	epochs := func() (e []int32) {
		topic, _ := img.TopicByName("t")
		for _, p := range topic.Partitions {
			e = append(e, p.LeaderEpoch)
		}
		return e
	}
	img = apply(t, img, 2, BrokerRegistered{ID: 1, Incarnation: [16]byte{3}})
	if b, _ := img.Broker(1); b.Epoch != 2 || !b.Fenced || !slices.Equal(epochs(), []int32{1, 0, 6}) {
		t.Errorf("%+v %v", b, epochs())
	}
	img = apply(t, img, 3, BrokerRegistered{ID: 1, Incarnation: [16]byte{3}})
	if b, _ := img.Broker(1); b.Epoch != 2 || !slices.Equal(epochs(), []int32{1, 0, 6}) {
		t.Errorf("the same incarnation again: %+v %v", b, epochs())
	}
}

func apply(t testing.TB, img *Image, index uint64, records ...Record) *Image {
	t.Helper()
	b := AppendCommand(nil, &Command{Session: Session{Epoch: NoEpoch}, Groups: []Group{{Records: records}}})
	next, _, _, err := Apply(img, nil, Entry{Index: index, Term: 1, Payload: b})
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// TestSharing: an entry that changes one partition leaves all others where they are.
func TestSharing(t *testing.T) {
	img := large(t)
	b := AppendCommand(nil, &Command{Session: Session{Epoch: NoEpoch}, Groups: []Group{{Records: []Record{
		PartitionChanged{TopicID: largeID(500), Partition: 3, NewLeaderEpoch: true},
	}}}})
	next, delta, _, err := Apply(img, nil, Entry{Index: 2, Term: 1, Payload: b})
	if err != nil || len(delta.Topics) != 1 || !slices.Equal(delta.Topics[0].Partitions(), []int32{3}) {
		t.Fatalf("%+v %v", delta, err)
	}
	other, _ := img.TopicByID(largeID(7))
	if same, _ := next.TopicByID(largeID(7)); same != other {
		t.Error("another topic was copied")
	}
	changed, _ := next.TopicByID(largeID(500))
	was, _ := img.TopicByID(largeID(500))
	if changed.Partitions[2] != was.Partitions[2] || changed.Partitions[3] == was.Partitions[3] {
		t.Error("another partition was copied, or the changed one was not")
	}
}

func largeID(i int) TopicID { return TopicID{byte(i >> 8), byte(i), 1} }

// large has 1,000 topics of ten partitions.
func large(t testing.TB) *Image {
	records := make([]Record, 1000)
	for i := range records {
		records[i] = TopicCreated{Name: fmt.Sprint("t", i), ID: largeID(i), Partitions: make([]Partition, 10)}
	}
	return apply(t, New(), 1, records...)
}

func BenchmarkChangeOfPartition(b *testing.B) {
	img := large(b)
	index := uint64(1)
	b.ReportAllocs()
	for b.Loop() {
		index++
		p, _ := img.Partition(largeID(500), 3)
		img = apply(b, img, index, PartitionChanged{TopicID: largeID(500), Partition: 3, PartitionEpoch: p.PartitionEpoch, NewLeaderEpoch: true})
	}
}

// TestSnapshotDamage: a flipped bit or a cut is never believed.
func TestSnapshotDamage(t *testing.T) {
	img, _ := history(t, 5, 40)
	b := snapshotBytes(t, img)
	for i := range b {
		c := slices.Clone(b)
		c[i] ^= 4
		if got, _, err := ReadSnapshot(bytes.NewReader(c)); got != nil || !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewerVersion) {
			t.Fatalf("byte %d: %v", i, err)
		}
		if got, _, err := ReadSnapshot(bytes.NewReader(b[:i])); got != nil || !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
	if _, _, err := ReadSnapshot(bytes.NewReader(append(b, 0))); !errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
}

// TestTree compares with a map, and keeps the balance.
func TestTree(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	tr, want := newTree[int, int](cmp.Compare[int]), map[int]int{}
	for i := range 3000 {
		k := r.IntN(500)
		if r.IntN(3) == 0 {
			tr = tr.without(k)
			delete(want, k)
		} else {
			tr = tr.put(k, i)
			want[k] = i
		}
	}
	for i := range 2000 {
		tr, want[1000+i] = tr.put(1000+i, i), i
	}
	if got := maps.Collect(tr.all()); !maps.Equal(got, want) || tr.len() != len(want) {
		t.Fatalf("seed %d: %d keys, want %d", seed, tr.len(), len(want))
	}
	var keys []int
	for k := range tr.all() {
		keys = append(keys, k)
	}
	if !slices.IsSorted(keys) || tr.root.height > 16 {
		t.Errorf("seed %d: height %d", seed, tr.root.height)
	}
	for range tr.all() {
		break
	}
}

func TestIDs(t *testing.T) {
	id := TopicID{0xfb, 0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}
	back, err := ParseTopicID(id.String())
	if err != nil || back != id || len(id.String()) != 22 || strings.ContainsAny(id.String(), "+/=") {
		t.Error(id, back, err)
	}
	for _, bad := range []string{"", "x", strings.Repeat("!", 22), strings.Repeat("A", 23)} {
		if _, err := ParseTopicID(bad); err == nil {
			t.Error(bad)
		}
	}
}

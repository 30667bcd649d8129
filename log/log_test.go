package log

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/segment"
	"github.com/keeplog/keeplog/vfs"
)

// TestRotAnywhere flips one bit anywhere in the log files, at rest: the end stays, one batch is refused, the rest is read.
func TestRotAnywhere(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	rounds := 120
	if raceDetector {
		rounds = 12
	}
	for round := range rounds {
		clean := round%2 == 0
		r := newRig(t, vfs.NewCrash())
		r.config = smallSegments()
		l := r.log(0)
		for i := range 30 {
			r.add(l, sent{id: 4, seq: record.Sequence(3 * i), count: 3, size: 300})
		}
		want := map[record.Offset]string{}
		for _, b := range r.modelOf(l).batches {
			want[b.BaseOffset()] = string(b)
		}
		segs := l.Segments()
		if clean {
			must(t, r.dir.Close())
		} else {
			r.fs = r.fs.(*vfs.CrashFS).Kill()
		}
		s := segs[rnd.IntN(len(segs))]
		if round%3 == 0 {
			s = segs[len(segs)-1]
		}
		at := rnd.IntN(int(s.Size))
		if at%1000 >= 12 && at%1000 < 16 { // a leader epoch is covered by no checksum
			at += 4
		}
		r.flip(logName(s.Base, segment.LogExt), at)
		r.open()
		where := fmt.Sprintf("seed %d round %d: segment %d of %d bytes, byte %d, clean %v", seed, round, s.Base, s.Size, at, clean)
		l = r.log(0)
		if l.WrittenEnd() != 90 {
			t.Fatalf("%s: the end is %d\n%s", where, l.WrittenEnd(), r.logs.String())
		}
		if _, lost := l.MissingData(); lost {
			t.Fatalf("%s: counts as missing", where)
		}
		bad := 0
		for o := record.Offset(0); o < 90; o += 3 {
			sp, err := l.Read(ReadRequest{Offset: o, Bound: 90, MaxBytes: 1, AtLeastOne: true})
			if errors.Is(err, ErrCorruptBatch) {
				bad++
				continue
			}
			if err != nil || sp == nil {
				t.Fatalf("%s: offset %d: %v %v\n%s", where, o, sp, err, r.logs.String())
			}
			b := make([]byte, sp.Len())
			_, err = sp.ReadAt(b, 0)
			must(t, err)
			sp.Release()
			head := record.Batch(b)
			if string(b) != want[o] && head[12]|head[13]|head[14]|head[15] == 0 {
				t.Fatalf("%s: offset %d: other bytes\n%s", where, o, r.logs.String())
			}
		}
		if bad > 1 {
			t.Fatalf("%s: %d batches are refused\n%s", where, bad, r.logs.String())
		}
		if a := r.add(l, sent{}); a.Base != 90 {
			t.Fatalf("%s: the next offset is %d", where, a.Base)
		}
	}
}

func TestTruncateWaitsForReadersAndThenClosesThem(t *testing.T) {
	r, l := rolledRig(t, vfs.NewCrash())
	abandoned := make(chan struct{})
	above, err := l.Read(ReadRequest{Offset: 140, Bound: 150, MaxBytes: 2000, Abandon: func() { close(abandoned) }})
	must(t, err)
	below, err := l.Read(ReadRequest{Offset: 3, Bound: 150, MaxBytes: 2000, Abandon: func() { t.Error("a reader below the cut is closed") }})
	must(t, err)
	done := make(chan error, 1)
	go func() { done <- l.TruncateTo(100) }()
	<-abandoned // after TruncateWait
	select {
	case err := <-done:
		t.Fatalf("cut under a reader: %v", err)
	default:
	}
	before := make([]byte, above.Len())
	_, err = above.ReadAt(before, 0)
	must(t, err)
	above.Release()
	must(t, <-done)
	below.Release()
	if l.WrittenEnd() != 99 || l.StableEnd() != 99 { // 100 lies inside of the batch from 99
		t.Fatalf("written %d, stable %d", l.WrittenEnd(), l.StableEnd())
	}
	m := r.modelOf(l)
	m.batches = m.batches[:33]
	r.verify(l)
	must(t, l.Audit())
	r.fill(l, 30)
	r.verify(l)
	r.crash(vfs.Policy{Kind: vfs.KeepNone}, 0)
	l = r.log(0)
	r.verify(l)
	must(t, l.Audit())
}

func TestTruncateDropsEpochsAndProducers(t *testing.T) {
	r := newRig(t, vfs.NewCrash())
	r.config = smallSegments()
	l := r.log(0)
	for e := range record.Epoch(5) {
		must(t, l.StartEpoch(e))
		for i := range 10 {
			r.add(l, sent{id: record.ProducerID(10 + e), seq: record.Sequence(i), size: 800})
		}
	}
	must(t, l.TruncateTo(25))
	if l.LatestEpoch() != 2 {
		t.Fatalf("latest epoch %d", l.LatestEpoch())
	}
	ps := l.Producers()
	if len(ps) != 3 || ps[2].ID != 12 || ps[2].LastSequence != 4 || ps[2].Batches != 5 {
		t.Fatalf("%+v", ps)
	}
	if a := r.add(l, sent{id: 12, seq: 5}); a.Base != 25 {
		t.Fatalf("%+v", a)
	}
	must(t, l.TruncateFullyAndStartAt(1000))
	if l.StartOffset() != 1000 || l.WrittenEnd() != 1000 || len(l.Producers()) != 0 || l.LatestEpoch() != -1 {
		t.Fatalf("start %d end %d producers %v epoch %d", l.StartOffset(), l.WrittenEnd(), l.Producers(), l.LatestEpoch())
	}
	r.crash(vfs.Policy{Kind: vfs.KeepNone}, 0)
	l = r.log(0)
	if l.StartOffset() != 1000 || l.WrittenEnd() != 1000 {
		t.Fatalf("after a crash: start %d end %d\n%s", l.StartOffset(), l.WrittenEnd(), r.logs.String())
	}
	if a, _, err := r.write(l, sent{}); err != nil || a.Base != 1000 {
		t.Fatalf("%+v %v", a, err)
	}
}

func TestOffsetForTime(t *testing.T) {
	for _, step := range []int{1, 100} {
		r := newRig(t, vfs.NewMem())
		r.config = smallSegments()
		l := r.log(0)
		base := int64(1_600_000_000_000)
		for i := range 50 {
			b := record.NewBuilder(record.NewOptions())
			for k := range 3 {
				b.Append(base+int64(step*(3*i+k)), nil, make([]byte, 300))
			}
			batch, err := b.Batch(r.codecs)
			must(t, err)
			_, err = l.Append(Append{Batch: batch, NowMs: 1})
			must(t, err)
		}
		must(t, r.step.Run())
		check := func(l *Log) {
			t.Helper()
			for o := range record.Offset(150) {
				ts := base + int64(step)*int64(o)
				got, ok, err := l.OffsetForTime(ts, 150)
				if err != nil || !ok || got.Offset != o || got.Timestamp != ts || got.Epoch != 0 {
					t.Fatalf("time of %d: %+v %v %v", o, got, ok, err)
				}
			}
			if got, ok, err := l.OffsetForTime(0, 150); !ok || err != nil || got.Offset != l.StartOffset() {
				t.Fatalf("long ago: %+v %v %v", got, ok, err)
			}
			if _, ok, err := l.OffsetForTime(base+int64(step*150), 150); ok || err != nil {
				t.Fatalf("in the future: %v %v", ok, err)
			}
			if _, ok, _ := l.OffsetForTime(base+int64(step*100), 100); ok {
				t.Fatal("found at the bound")
			}
			if got, ok, err := l.MaxTimestamp(150); !ok || err != nil || got.Offset != 149 {
				t.Fatalf("largest: %+v %v %v", got, ok, err)
			}
			if got, ok, err := l.MaxTimestamp(90); !ok || err != nil || got.Offset != 89 {
				t.Fatalf("largest below 90: %+v %v %v", got, ok, err)
			}
		}
		check(l)
		r.restart()
		check(r.log(0))
		must(t, r.dir.Close())
	}
}

func TestDuplicatesOfFiveBatchesInFlight(t *testing.T) {
	r := newRig(t, vfs.NewCrash())
	r.config = smallSegments()
	l := r.log(0)
	restart := []func(){func() {}, func() { r.restart() }, func() { r.kill() }, func() { r.crash(vfs.Policy{Kind: vfs.KeepNone}, 0) }}
	seq := record.Sequence(0)
	for round := range 12 {
		for range 7 {
			r.add(l, sent{id: 3, seq: seq, size: 800})
			seq++
		}
		restart[round%len(restart)]()
		if round%len(restart) != 0 {
			l = r.log(0)
		}
		for i := seq - 5; i < seq; i++ {
			a, _, err := r.write(l, sent{id: 3, seq: i, size: 800})
			if err != nil || !a.Duplicate || a.Base != record.Offset(i) {
				t.Fatalf("round %d: sequence %d again: %+v %v\n%s", round, i, a, err, r.logs.String())
			}
		}
		for _, bad := range []record.Sequence{seq + 1, seq - 6, 0} {
			if _, _, err := r.write(l, sent{id: 3, seq: bad, size: 800}); !errors.Is(err, ErrOutOfOrderSequence) {
				t.Fatalf("round %d: sequence %d instead of %d: %v", round, bad, seq, err)
			}
		}
		if l.WrittenEnd() != record.Offset(seq) {
			t.Fatalf("end %d", l.WrittenEnd())
		}
	}
	if _, _, err := r.write(l, sent{id: 3, epoch: 1, seq: 9}); !errors.Is(err, ErrOutOfOrderSequence) {
		t.Fatalf("a new epoch begins at 0: %v", err)
	}
	r.add(l, sent{id: 3, epoch: 1, seq: 0})
	if _, _, err := r.write(l, sent{id: 3, epoch: 0, seq: seq}); !errors.Is(err, ErrProducerFenced) {
		t.Fatalf("the old epoch: %v", err)
	}
}

func TestSequencesWrap(t *testing.T) {
	r := newRig(t, vfs.NewMem())
	l := r.log(0)
	r.add(l, sent{id: 3, seq: math.MaxInt32 - 1, count: 2})
	a := r.add(l, sent{id: 3, seq: 0, count: 1})
	if a.Base != 2 {
		t.Fatalf("%+v", a)
	}
	r.restart()
	l = r.log(0)
	if a, _, err := r.write(l, sent{id: 3, seq: math.MaxInt32 - 1, count: 2}); err != nil || !a.Duplicate || a.Base != 0 {
		t.Fatalf("%+v %v", a, err)
	}
	must(t, r.dir.Close())
}

func TestAppendReplica(t *testing.T) {
	leader := newRig(t, vfs.NewMem())
	from := leader.log(0)
	must(t, from.StartEpoch(2))
	leader.fill(from, 20)
	all := leader.readAll(from, 0)
	r := newRig(t, vfs.NewMem())
	r.config = smallSegments()
	l := r.log(0)
	if a, err := l.AppendReplica(all[:5500], 2); err != nil || a.Base != 0 || a.Last != 14 {
		t.Fatalf("a cut answer: %+v %v", a, err)
	}
	if a, err := l.AppendReplica(all[:8000], 2); err != nil || a.Base != 15 || a.Last < 20 {
		t.Fatalf("what is known already is skipped: %+v %v", a, err)
	}
	if a, err := l.AppendReplica(all, 1); err != nil || a.Last >= a.Base {
		t.Fatalf("batches of a later epoch: %+v %v", a, err)
	}
	bad := slices.Clone(all)
	bad[len(bad)-3] ^= 1
	a, err := l.AppendReplica(bad, 2)
	if !errors.Is(err, record.ErrCorrupt) || a.Last != 56 {
		t.Fatalf("a damaged batch: %+v %v", a, err)
	}
	_, err = l.AppendReplica(all, 2)
	must(t, err)
	must(t, r.step.Run())
	if got := r.readAll(l, 0); string(got) != string(all) {
		t.Fatal("the copy differs")
	}
	if e, end := l.EndOffsetForEpoch(2); e != 2 || end != 60 {
		t.Fatalf("epoch %d ends at %d", e, end)
	}
	must(t, r.dir.Close())
}

func TestDeleteLogAndCreateAgain(t *testing.T) {
	r, l := rolledRig(t, vfs.NewCrash())
	must(t, r.dir.DeleteLog(l))
	if _, _, err := r.write(l, sent{}); !errors.Is(err, ErrClosed) {
		t.Fatalf("append to a deleted log: %v", err)
	}
	if _, err := l.Read(ReadRequest{Offset: 0, Bound: 10, MaxBytes: 10}); !errors.Is(err, ErrClosed) {
		t.Fatalf("read of a deleted log: %v", err)
	}
	delete(r.model, "t-0")
	l = r.log(0)
	if l.WrittenEnd() != 0 {
		t.Fatal("the new log has the old one's records")
	}
	r.fill(l, 2)
	r.dir.Tick(r.now.Add(time.Hour))
	for _, name := range r.names("") {
		if strings.HasSuffix(name, deleteSuffix) {
			t.Fatalf("%s is still there", name)
		}
	}
	r.crash(vfs.Policy{Kind: vfs.KeepNone}, 0)
	r.verify(r.log(0))
	if _, err := r.dir.OpenLog(Identity{"t", 0, [16]byte{9}}, r.config); err == nil {
		t.Fatal("opened twice")
	}
}

func TestAnotherTopicID(t *testing.T) {
	r, _ := rolledRig(t, vfs.NewMem())
	r.restart()
	if _, err := r.dir.OpenLog(Identity{"t", 0, [16]byte{9}}, r.config); !errors.Is(err, ErrTopicID) {
		t.Fatal(err)
	}
	l, err := r.dir.OpenLog(Identity{"t", 0, [16]byte{}}, r.config)
	must(t, err)
	if l.Identity().TopicID != testTopic {
		t.Fatalf("%x", l.Identity().TopicID)
	}
	must(t, r.dir.Close())
}

func TestHostileNames(t *testing.T) {
	r := newRig(t, vfs.NewMem())
	for _, name := range []string{"", ".", "..", "a/b", "../x", "a\x00b", "a b", "é", strings.Repeat("x", 250)} {
		if _, err := r.dir.OpenLog(Identity{name, 0, testTopic}, r.config); !errors.Is(err, ErrName) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, want := range map[string]bool{"a-0": true, "a-b-12": true, "-0": false, "a-01": false, "a-": false, "a--1": true, "a-4294967296": false, "lost+found": false} {
		if _, _, ok := ParseDirName(name); ok != want {
			t.Errorf("%q: %v", name, ok)
		}
	}
	long := retiredName(strings.Repeat("x", 249), 12, [16]byte{}, deleteSuffix)
	if suffix, ok := isRetired(long); len(long) > 255 || !ok || suffix != deleteSuffix {
		t.Errorf("%d %v", len(long), ok)
	}
	must(t, r.dir.Close())
}

func TestReserve(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.NewMem())
	r := newRig(t, faulty)
	must(t, r.dir.Close())
	r.settings.Reserve = 1 << 20
	faulty.SetFree(64 << 20)
	r.open()
	l := r.log(0)
	r.fill(l, 3)
	faulty.SetFree(100 << 10)
	r.dir.Tick(r.now)
	if _, _, err := r.write(l, sent{}); !errors.Is(err, ErrReserve) {
		t.Fatalf("append below the reserve: %v", err)
	}
	if _, err := r.dir.OpenLog(Identity{"u", 0, testTopic}, r.config); !errors.Is(err, ErrReserve) {
		t.Fatalf("creation below the reserve: %v", err)
	}
	if a, _, err := r.write(l, sent{id: 1, seq: 0}); err == nil || a.Duplicate {
		t.Fatal("written")
	}
	r.verify(l)
	must(t, l.AdvanceStart(3))
	faulty.SetFree(64 << 20)
	r.dir.Tick(r.now)
	r.fill(l, 3)
	r.verify(l)
	must(t, r.dir.Close())
}

func TestRetentionByAgeAndSize(t *testing.T) {
	r, l := rolledRig(t, vfs.NewMem())
	segs := l.Segments()
	c := r.config
	c.Retention.Bytes = l.Size() - segs[0].Size - 1
	l.SetConfig(c)
	must(t, l.Retain(r.now))
	if l.StartOffset() != segs[1].Base {
		t.Fatalf("one byte over the first segment: start %d, want %d", l.StartOffset(), segs[1].Base)
	}
	c.Retention.Bytes = -1
	c.Retention.Age = 20 * time.Second
	l.SetConfig(c)
	must(t, l.Retain(r.now))
	if s := l.StartOffset(); s <= segs[1].Base || s >= 150 {
		t.Fatalf("by age: start %d", s)
	}
	l.SetWatermark(l.StartOffset() + 1)
	before := l.StartOffset()
	must(t, l.Retain(r.now.Add(time.Hour)))
	if l.StartOffset() != before {
		t.Fatalf("records above the watermark are deleted: start %d", l.StartOffset())
	}
	l.SetWatermark(150)
	must(t, l.Retain(r.now.Add(time.Hour)))
	if l.StartOffset() != 150 || l.WrittenEnd() != 150 || len(l.Segments()) != 1 {
		t.Fatalf("all expired: %d to %d in %d segments", l.StartOffset(), l.WrittenEnd(), len(l.Segments()))
	}
	r.modelOf(l).batches, r.modelOf(l).start = nil, 150
	r.fill(l, 3)
	r.restart()
	l = r.log(0)
	if l.StartOffset() != 150 {
		t.Fatalf("start %d after a restart", l.StartOffset())
	}
	r.verify(l)
	must(t, r.dir.Close())
}

func TestRollByAge(t *testing.T) {
	r := newRig(t, vfs.NewMem())
	r.config.Segment.Age = time.Minute
	l := r.log(0)
	r.add(l, sent{})
	r.now = r.now.Add(50 * time.Second)
	r.add(l, sent{})
	if n := len(l.Segments()); n != 1 {
		t.Fatalf("%d segments", n)
	}
	r.now = r.now.Add(11 * time.Second)
	r.add(l, sent{})
	if n := len(l.Segments()); n != 2 {
		t.Fatalf("%d segments after a minute", n)
	}
	r.now = r.now.Add(time.Hour)
	r.dir.Tick(r.now)
	must(t, r.step.Run())
	if n := len(l.Segments()); n != 3 {
		t.Fatalf("%d segments after an hour without records", n)
	}
	r.dir.Tick(r.now.Add(time.Hour))
	if n := len(l.Segments()); n != 3 {
		t.Fatalf("an empty segment is rolled: %d", n)
	}
	must(t, r.dir.Close())
}

func TestCheckpointsOfKafka(t *testing.T) {
	r, l := rolledRig(t, vfs.NewMem())
	l.SetWatermark(140)
	must(t, l.AdvanceStart(5))
	r.dir.SetBrokerEpoch(77)
	must(t, r.dir.SetMeta(Meta{ClusterID: "c", NodeID: 4, DirectoryID: "d", Other: map[string]string{"x": "y"}}))
	must(t, r.dir.Close())
	for name, want := range map[string]string{
		RecoveryPointFile: "0\n1\nt 0 150\n", LogStartFile: "0\n1\nt 0 5\n", WatermarkFile: "0\n1\nt 0 140\n", CleanerFile: "0\n0\n",
		CleanFile: `{"version":0,"brokerEpoch":77}`, MetaFile: "cluster.id=c\ndirectory.id=d\nnode.id=4\nversion=1\nx=y\n",
	} {
		if got := string(r.file(name)); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	r.open()
	if e, clean := r.dir.CleanStop(); !clean || e != 77 {
		t.Fatalf("%d %v", e, clean)
	}
	if m, ok := r.dir.Meta(); !ok || m.NodeID != 4 || m.Other["x"] != "y" {
		t.Fatalf("%+v", m)
	}
	l = r.log(0)
	if l.CheckpointedWatermark() != 140 || l.StartOffset() != 5 {
		t.Fatalf("watermark %d, start %d", l.CheckpointedWatermark(), l.StartOffset())
	}
	must(t, r.dir.Close())
	must(t, removeFile(r.fs, path.Join("/data", MarksFile))) // then Kafka's files count
	r.open()
	if l = r.log(0); l.StartOffset() != 5 || l.WrittenEnd() != 150 {
		t.Fatalf("without marks: %d to %d", l.StartOffset(), l.WrittenEnd())
	}
	must(t, r.dir.Close())
}

func TestSmallFileFormats(t *testing.T) {
	ps := []Producer{
		{ID: 7, Epoch: 2, CoordinatorEpoch: -1, LastTimestamp: 55, TxnStart: -1},
		{ID: 9, Epoch: 0, CoordinatorEpoch: 3, LastTimestamp: 99, TxnStart: 12},
	}
	for i := range 7 {
		ps[1].push(SentBatch{First: record.Sequence(3 * i), Last: record.Sequence(3*i + 2), LastOffset: record.Offset(100 + i), OffsetDelta: 2, Timestamp: 99})
	}
	off, got, err := DecodeWindow(EncodeWindow(123, ps))
	if err != nil || off != 123 || !cmp.Equal(got, ps, cmp.AllowUnexported(Producer{})) {
		t.Fatalf("%v %v", err, cmp.Diff(got, ps, cmp.AllowUnexported(Producer{})))
	}
	snap, err := DecodeSnapshot(EncodeSnapshot(ps))
	if err != nil || len(snap) != 2 || snap[1].Count != 1 || snap[1].last() != ps[1].last() || snap[1].TxnStart != 12 || snap[0].Count != 0 {
		t.Fatalf("%v %+v", err, snap)
	}
	m := Mark{
		TopicID: testTopic, Partition: 3, Epoch: 5, Segment: 100, Position: 4096, Offset: 140, LogStart: 7,
		OffsetEntries: 8, TimeEntries: 9, Counter: 44, NoProducers: true, Gaps: true, EpochsCRC: 77,
		Movement: Movement{Moves: 3, Lineage: 1<<63 | 5, Leaving: true, Arrived: true},
	}
	b := m.Encode()
	if got, ok, err := DecodeMark(b[:]); err != nil || !ok || got != m {
		t.Fatalf("%+v %v %v", got, ok, err)
	}
	b[50] ^= 4
	if _, _, err := DecodeMark(b[:]); !errors.Is(err, ErrBadFile) {
		t.Fatal(err)
	}
	for name, bad := range map[string]string{"count": "0\n2\na 0 1\n", "offset": "0\n1\na 0 -1\n", "fields": "0\n1\na 0\n", "empty": "", "words": "a\nb\n"} {
		if _, err := DecodeOffsets([]byte(bad)); !errors.Is(err, ErrBadFile) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := DecodeOffsets([]byte("1\n0\n")); !errors.Is(err, ErrNewerVersion) {
		t.Error(err)
	}
	if _, err := DecodeEpochs([]byte("0\n2\n1 0\n1 5\n")); !errors.Is(err, ErrBadFile) {
		t.Error("epochs that do not grow")
	}
}

func FuzzDecodeSmallFiles(f *testing.F) {
	f.Add(EncodeWindow(9, []Producer{{ID: 7}}))
	f.Add(EncodeSnapshot([]Producer{{ID: 7}}))
	f.Add([]byte("0\n1\na 0 1\n"))
	f.Add((&Marks{Head: MarksHead{Version: 2, Complete: true}, Slots: []MarksSlot{{Mark: Mark{Offset: 4}, Used: true}}}).again()[:3*MarkBytes])
	f.Add([]byte("cluster.id=x\nversion=1\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if off, all, err := DecodeWindow(b); err == nil && string(EncodeWindow(off, all)) != string(b) {
			t.Fatal("window")
		}
		if all, err := DecodeSnapshot(b); err == nil && len(all)*snapshotEntry > len(b) {
			t.Fatal("snapshot")
		}
		_, _ = DecodeOffsets(b)
		_, _ = DecodeEpochs(b)
		_, _ = DecodeMeta(b)
		_, _ = DecodePartition(b)
		_, _, _ = DecodeMark(b)
		if m, err := DecodeMarks(b); err == nil {
			again, err := DecodeMarks(m.again())
			if err != nil || again.Complete() != m.Complete() || len(again.Live()) != len(m.Live()) {
				t.Fatalf("%+v, again: %+v %v", m, again, err)
			}
		}
	})
}

func TestEpochs(t *testing.T) {
	var e epochs
	e.assign(0, 0)
	e.assign(0, 10) // known
	e.assign(3, 20)
	e.assign(5, 50)
	for _, c := range []struct {
		asked, epoch record.Epoch
		end          record.Offset
	}{{0, 0, 20}, {1, 0, 20}, {3, 3, 50}, {4, 3, 50}, {5, 5, 90}, {6, -1, -1}, {-1, -1, -1}} {
		if epoch, end := e.endOf(c.asked, 90); epoch != c.epoch || end != c.end {
			t.Errorf("endOf(%d) = %d, %d", c.asked, epoch, end)
		}
	}
	e.truncateStart(30)
	if !slices.Equal(e.entries, []EpochEntry{{3, 30}, {5, 50}}) || e.at(29) != -1 || e.at(30) != 3 {
		t.Errorf("%v", e.entries)
	}
	if epoch, end := e.endOf(1, 90); epoch != 1 || end != 30 {
		t.Errorf("below all: %d %d", epoch, end)
	}
	e.truncateEnd(50)
	e.assign(6, 40) // what a truncation left open
	if !slices.Equal(e.entries, []EpochEntry{{3, 30}, {6, 40}}) {
		t.Errorf("%v", e.entries)
	}
	e.assign(7, 35)
	if !slices.Equal(e.entries, []EpochEntry{{3, 30}, {7, 35}}) {
		t.Errorf("%v", e.entries)
	}
}

func TestErrorsOfEveryCall(t *testing.T) {
	work := func(fsys vfs.FS) (err error) {
		r := &rig{t: t, fs: fsys, codecs: record.NewCodecs(), config: smallSegments(), now: time.UnixMilli(1_700_000_000_000), settings: Settings{Reserve: -1}, model: map[string]*model{}}
		if err := r.tryOpen(); err != nil {
			return err
		}
		l, err := r.dir.OpenLog(Identity{"t", 0, testTopic}, r.config)
		if err != nil {
			return errors.Join(err, r.dir.Close())
		}
		var acked []record.Batch
		for i := range 25 {
			_, b, err := r.write(l, sent{id: 8, seq: record.Sequence(i), size: 900})
			if err != nil {
				break
			}
			if r.step.Run() != nil && l.StableEnd() <= b.LastOffset() {
				break
			}
			if l.StableEnd() > b.LastOffset() {
				acked = append(acked, b)
			}
		}
		_ = r.dir.Close()
		back := &rig{t: t, fs: fsys.(*vfs.FaultyFS), codecs: r.codecs, config: r.config, now: r.now, settings: r.settings, model: map[string]*model{}}
		back.fs.(*vfs.FaultyFS).Heal()
		back.open()
		l = back.log(0)
		if len(acked) > 0 {
			back.modelOf(l).batches = acked
		}
		back.verify(l)
		return back.dir.Close()
	}
	probe := vfs.NewFaulty(vfs.NewCrash())
	must(t, work(probe))
	calls := probe.Calls()
	points := 0
	for _, fault := range []error{syscall.EIO, syscall.ENOSPC} {
		step := 1 + calls/400
		if raceDetector {
			step *= 12
		}
		for k := int64(1); k <= calls; k += step {
			f := vfs.NewFaulty(vfs.NewCrash(), vfs.Fault{Nth: k, Err: fault})
			_ = work(f)
			points++
		}
	}
	t.Logf("%d error points of %d calls", points, calls)
}

func TestMain(m *testing.M) { os.Exit(m.Run()) }

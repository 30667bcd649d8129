package log

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/segment"
	"github.com/keeplog/keeplog/vfs"
)

// Each test here keeps one bug of docs/bugs.md away.

// fresh opens partition 0 under another topic id.
func (r *rig) fresh(id byte) *Log {
	r.t.Helper()
	l, err := r.dir.OpenLog(Identity{"t", 0, [16]byte{id}}, r.config)
	must(r.t, err)
	return l
}

func (r *rig) remove(name string) {
	r.t.Helper()
	must(r.t, r.fs.Remove(path.Join("/data", name)))
}

// refused says how reading at an offset ends.
func refused(t testing.TB, l *Log, o record.Offset) bool {
	t.Helper()
	sp, err := l.Read(ReadRequest{Offset: o, Bound: l.WrittenEnd(), MaxBytes: 1, AtLeastOne: true})
	if errors.Is(err, ErrCorruptBatch) {
		return true
	}
	must(t, err)
	if sp == nil {
		t.Fatalf("nothing is read at %d, and no error", o)
	}
	b := make([]byte, sp.Len())
	_, err = sp.ReadAt(b, 0)
	must(t, err)
	if got := record.Batch(b); o < got.BaseOffset() || o > got.LastOffset() {
		t.Fatalf("read at %d gives %d to %d", o, got.BaseOffset(), got.LastOffset())
	}
	sp.Release()
	return false
}

func TestSuccessorDoesNotInheritCheckpoints(t *testing.T) {
	for _, torn := range []bool{false, true} {
		r := newRig(t, vfs.NewCrash())
		l := r.log(0)
		for range 15 {
			r.add(l, sent{})
		}
		l.SetWatermark(15)
		must(t, l.AdvanceStart(7))
		r.dir.Tick(r.now)
		r.dir.Tick(r.now.Add(2 * time.Minute))
		if got := string(r.file(RecoveryPointFile)); got != "0\n1\nt 0 15\n" {
			t.Fatalf("%q", got)
		}
		must(t, r.dir.DeleteLog(l))
		l = r.fresh(9)
		for range 3 {
			r.add(l, sent{})
		}
		if torn { // its slot never reached the disk whole
			r.overwrite(MarksFile, append(r.file(MarksFile)[:2*MarkBytes], bytes.Repeat([]byte{7}, 2*MarkBytes)...))
		}
		r.kill()
		l = r.fresh(9)
		if l.StartOffset() != 0 || l.WrittenEnd() != 3 || l.CheckpointedWatermark() != 0 {
			t.Fatalf("torn %v: the new partition has %d to %d, watermark %d", torn, l.StartOffset(), l.WrittenEnd(), l.CheckpointedWatermark())
		}
		must(t, r.dir.Close())
	}
}

func TestCheckpointOlderThanATruncation(t *testing.T) {
	r := newRig(t, vfs.NewCrash())
	l := r.log(0)
	for range 10 {
		r.add(l, sent{})
	}
	r.dir.Tick(r.now)
	r.dir.Tick(r.now.Add(2 * time.Minute))
	must(t, l.TruncateTo(6))
	r.flip(MarksFile, 2*MarkBytes+3) // the slot rots: the recovery point of 10 is what is left
	r.flip(MarksFile, 3*MarkBytes+3)
	r.kill()
	if l = r.log(0); l.WrittenEnd() != 6 {
		t.Fatalf("the end is %d, the log has 6 records", l.WrittenEnd())
	}
}

// kafkaRig is a directory as Kafka leaves it: no marks, holes between segments (compacted), a log start of 5.
func kafkaRig(t *testing.T) *rig {
	r, l := rolledRig(t, vfs.NewCrash())
	must(t, l.AdvanceStart(5))
	segs := l.Segments()
	must(t, r.dir.Close())
	r.remove(logName(segs[1].Base, segment.LogExt))
	r.remove(MarksFile)
	return r
}

func TestAdoptionSurvivesACrashInBetween(t *testing.T) {
	r := kafkaRig(t)
	must(t, r.fs.Mkdir("/data/u-0", 0o755))
	must(t, r.fs.SyncDir("/data"))
	for round := range 3 { // t-0 is never opened, only what else is there
		r.open()
		if l, err := r.dir.OpenLog(Identity{"u", 0, [16]byte{5}}, r.config); err != nil {
			t.Fatal(err)
		} else if round == 0 {
			r.add(l, sent{})
		}
		r.dir.Tick(r.now)
		r.dir.Tick(r.now.Add(2 * time.Minute))
		r.crash(vfs.Policy{Kind: vfs.KeepNone}, 1)
		must(t, r.dir.Abandon())
	}
	r.open()
	l := r.log(0)
	if l.StartOffset() != 5 || l.WrittenEnd() != 150 {
		t.Fatalf("adopted after crashes: %d to %d\n%s", l.StartOffset(), l.WrittenEnd(), r.logs.String())
	}
	if d := l.Damages(); len(d) > 0 {
		t.Fatal(d)
	}
	_, err := r.dir.OpenLog(Identity{"u", 0, [16]byte{5}}, r.config)
	must(t, err)
	if m, err := DecodeMarks(r.file(MarksFile)); err != nil || !m.Complete() {
		t.Fatal("all is open, and the marks are not complete")
	}
	r.kill() // from now on by the marks: the holes stay legal
	if l = r.log(0); l.StartOffset() != 5 || l.WrittenEnd() != 150 || len(l.Segments()) < 3 {
		t.Fatalf("adopted, then killed: %d to %d", l.StartOffset(), l.WrittenEnd())
	}
	if refused(t, l, 6); len(l.readAll(t)) == 0 {
		t.Fatal("nothing is read over a legal hole")
	}
}

// readAll reads from the log start to the end, and fails at an error.
func (l *Log) readAll(t testing.TB) []byte {
	r := &rig{t: t}
	return r.readAll(l, l.StartOffset())
}

func TestDamagedBatchesBelowTheLogStart(t *testing.T) {
	for _, clean := range []bool{true, false} {
		r := newRig(t, vfs.NewCrash())
		l := r.log(0)
		for range 6 {
			r.add(l, sent{})
		}
		must(t, l.AdvanceStart(4))
		size := l.w.active.Size()
		if clean {
			must(t, r.dir.Close())
		} else {
			r.fs = r.fs.(*vfs.CrashFS).Kill()
		}
		r.overwrite(logName(0, segment.LogExt), make([]byte, size))
		r.open()
		l = r.log(0)
		if l.StartOffset() != 4 || l.WrittenEnd() != 6 {
			t.Fatalf("clean %v: %d to %d", clean, l.StartOffset(), l.WrittenEnd())
		}
		if !refused(t, l, 4) || !refused(t, l, 5) {
			t.Fatalf("clean %v: damaged records are read", clean)
		}
		if a := r.add(l, sent{}); a.Base != 6 || refused(t, l, 6) {
			t.Fatalf("clean %v: appended at %d", clean, a.Base)
		}
	}
}

func TestFlippedEpochCheckpoint(t *testing.T) {
	for _, clean := range []bool{true, false} {
		r := newRig(t, vfs.NewCrash())
		l := r.log(0)
		for e := range record.Epoch(3) {
			must(t, l.StartEpoch(e))
			for range 6 {
				r.add(l, sent{})
			}
		}
		if clean {
			must(t, r.dir.Close())
		} else {
			r.fs = r.fs.(*vfs.CrashFS).Kill()
		}
		text := string(r.file("t-0/" + EpochFile))
		if text != "0\n3\n0 0\n1 6\n2 12\n" {
			t.Fatalf("%q", text)
		}
		for _, bad := range []string{strings.Replace(text, "1 6", "1 4", 1), strings.Replace(text, "1 6", "1 7", 1), strings.Replace(text, "2 12", "2 10", 1), "0\n2\n0 0\n2 12\n"} {
			q := &rig{t: t, fs: r.fs.(*vfs.CrashFS).ForkKilled(), codecs: r.codecs, settings: r.settings, config: r.config, now: r.now, model: map[string]*model{}}
			q.overwrite("t-0/"+EpochFile, []byte(bad))
			q.open()
			l = q.log(0)
			for o := range record.Offset(18) {
				if got := l.EpochAt(o); got != record.Epoch(o/6) {
					t.Fatalf("clean %v, %q: epoch %d at %d", clean, bad, got, o)
				}
			}
			if e, end := l.EndOffsetForEpoch(0); e != 0 || end != 6 {
				t.Fatalf("clean %v, %q: epoch %d ends at %d", clean, bad, e, end)
			}
		}
	}
}

func TestProducerStateAboveACutStaysGone(t *testing.T) {
	r := newRig(t, vfs.NewCrash())
	r.settings.MarkBytes = 1 // each flush writes a window
	r.dir.o.Settings.MarkBytes = 1
	l := r.log(0)
	for i := range 15 {
		r.add(l, sent{id: 7, seq: record.Sequence(i)})
	}
	must(t, l.TruncateTo(13))
	for i := range 2 { // two others up to 15, of another producer
		r.write(l, sent{id: 8, seq: record.Sequence(i)})
	}
	must(t, l.w.active.SyncLog()) // they reach the disk before the flush
	r.crash(vfs.Policy{Kind: vfs.KeepData}, 1)
	l = r.log(0)
	for _, p := range l.Producers() {
		if want := map[record.ProducerID]record.Sequence{7: 12, 8: 1}[p.ID]; p.LastSequence != want {
			t.Fatalf("producer %d is at %d, the log at %d", p.ID, p.LastSequence, want)
		}
	}
	if n := len(l.Producers()); n != 2 {
		t.Fatalf("%d producers", n)
	}
}

func TestMarksThatAFailedFlushLeftInTheCache(t *testing.T) {
	crash := vfs.NewCrash()
	faulty := vfs.NewFaulty(crash)
	r := newRig(t, faulty)
	l := r.log(0)
	for range 10 {
		r.add(l, sent{})
	}
	must(t, r.dir.syncMarks())
	faulty.Inject(vfs.Fault{Ops: []vfs.Op{vfs.OpSyncData}, Path: MarksFile, Err: syscall.EIO, LoseDirty: true})
	if err := l.AdvanceStart(9); !errors.Is(err, ErrOffline) {
		t.Fatal(err)
	}
	r.fs = crash
	r.kill()
	shown := r.log(0).StartOffset()
	r.crash(vfs.Policy{Kind: vfs.KeepNone}, 1)
	if got := r.log(0).StartOffset(); got < shown {
		t.Fatalf("the start was shown as %d and is %d after a power failure", shown, got)
	}
}

func TestNoHoleInALogOfOurs(t *testing.T) {
	r := newRig(t, vfs.NewCrash())
	r.config = smallSegments()
	l := r.log(0)
	for range 20 { // several rolls, and no flush yet
		_, _, err := r.write(l, sent{size: 3000})
		must(t, err)
	}
	segs := l.Segments()
	r.fs = r.fs.(*vfs.CrashFS).Kill()
	r.remove(logName(segs[2].Base, segment.LogExt))
	r.open()
	if l = r.log(0); l.WrittenEnd() != segs[2].Base {
		t.Fatalf("the end is %d, the first lost record was %d", l.WrittenEnd(), segs[2].Base)
	}
}

func TestFlippedBaseOffsetOfTheLastBatch(t *testing.T) {
	for _, clean := range []bool{true, false} {
		r := newRig(t, vfs.NewCrash())
		l := r.log(0)
		for range 6 {
			r.add(l, sent{})
		}
		last := int(l.w.active.Size()) / 6 * 5
		if clean {
			must(t, r.dir.Close())
		} else {
			r.fs = r.fs.(*vfs.CrashFS).Kill()
		}
		b := r.file(logName(0, segment.LogExt))
		b[last+6] ^= 4 // base offset + 1024
		r.overwrite(logName(0, segment.LogExt), b)
		r.open()
		l = r.log(0)
		if l.WrittenEnd() != 6 {
			t.Fatalf("clean %v: the end is %d", clean, l.WrittenEnd())
		}
		if refused(t, l, 4) || !refused(t, l, 5) {
			t.Fatalf("clean %v: only the last batch is damaged", clean)
		}
		if a := r.add(l, sent{}); a.Base != 6 || refused(t, l, 6) {
			t.Fatalf("clean %v: the next offset is %d", clean, a.Base)
		}
		must(t, r.dir.Close())
	}
}

func TestMarkAloneTellsTheStart(t *testing.T) {
	r := newRig(t, vfs.NewCrash())
	l := r.log(0)
	for range 10 {
		r.add(l, sent{})
	}
	must(t, l.AdvanceStart(3))
	must(t, r.dir.Close())
	r.overwrite(LogStartFile, []byte("0\n1\nt 0 7\n"))
	r.open()
	if l = r.log(0); l.StartOffset() != 3 {
		t.Fatalf("the start is %d", l.StartOffset())
	}
	must(t, r.dir.Close())
}

func TestLostWindowBesideASnapshot(t *testing.T) {
	r := newRig(t, vfs.NewCrash())
	r.config = smallSegments()
	l := r.log(0)
	for i := range 4 {
		r.add(l, sent{id: 7, seq: record.Sequence(i), size: 3000})
	}
	if n := len(l.Segments()); n != 2 {
		t.Fatalf("%d segments", n)
	}
	r.fs = r.fs.(*vfs.CrashFS).Kill()
	for _, name := range r.names("t-0") {
		if strings.HasSuffix(name, WindowExt) {
			r.remove("t-0/" + name)
		}
	}
	r.open()
	l = r.log(0)
	for i := range 4 {
		if a, _, err := r.write(l, sent{id: 7, seq: record.Sequence(i), size: 3000}); err != nil || !a.Duplicate {
			t.Fatalf("batch %d sent again: %+v %v", i, a, err)
		}
	}
}

func TestCleanStopCoversEveryPartition(t *testing.T) {
	r := newRig(t, vfs.NewCrash())
	l, other := r.log(0), r.log(1)
	r.add(l, sent{})
	r.add(other, sent{})
	r.write(other, sent{}) // written, not flushed: the next start has to recover it
	r.kill()
	r.log(0)
	must(t, r.dir.Close())
	r.open()
	if _, clean := r.dir.CleanStop(); clean {
		t.Fatal("a partition that nobody recovered is covered by the clean-stop marker")
	}
	r.log(0)
	r.log(1)
	must(t, r.dir.Close())
	r.open()
	if _, clean := r.dir.CleanStop(); !clean {
		t.Fatal("all were opened and closed, and the stop is not clean")
	}
	r.log(0)
	for _, f := range r.dir.Found() {
		if f.Partition == 1 {
			must(t, r.dir.Quarantine(f, "test"))
		}
	}
	must(t, r.dir.Close())
	r.open()
	if _, clean := r.dir.CleanStop(); !clean {
		t.Fatal("a partition that was put aside spoils the clean stop")
	}
	r.log(0)
	must(t, r.dir.Abandon())
	r.open()
	if _, clean := r.dir.CleanStop(); clean {
		t.Fatal("a start that failed counts as a clean stop")
	}
	must(t, r.dir.Close())
}

func TestFailedStartKeepsTheCheckpoints(t *testing.T) {
	r := newRig(t, vfs.NewCrash())
	l := r.log(0)
	r.add(l, sent{})
	l.SetWatermark(1)
	must(t, r.dir.Close())
	want := string(r.file(WatermarkFile))
	r.open()
	r.dir.Tick(r.now)
	r.dir.Tick(r.now.Add(2 * time.Minute))
	must(t, r.dir.Abandon())
	if got := string(r.file(WatermarkFile)); got != want {
		t.Fatalf("a start without its logs wrote %q over %q", got, want)
	}
	r.open()
	if l = r.log(0); l.CheckpointedWatermark() != 1 {
		t.Fatalf("watermark %d", l.CheckpointedWatermark())
	}
	must(t, r.dir.Close())
}

// A sealed segment that is cut at the border of a batch, or gone, is damage: no reader jumps over what is missing.
func TestHolesBetweenSegmentsAreDamage(t *testing.T) {
	for name, harm := range map[string]func(r *rig, segs []SegmentInfo) (lost record.Offset){
		"cut": func(r *rig, segs []SegmentInfo) record.Offset {
			b := r.file(logName(segs[1].Base, segment.LogExt))
			r.overwrite(logName(segs[1].Base, segment.LogExt), b[:len(b)-988])
			return segs[2].Base - 3
		},
		"gone": func(r *rig, segs []SegmentInfo) record.Offset {
			r.remove(logName(segs[1].Base, segment.LogExt))
			return segs[1].Base
		},
		"first gone": func(r *rig, segs []SegmentInfo) record.Offset {
			r.remove(logName(segs[0].Base, segment.LogExt))
			return 0
		},
	} {
		for _, clean := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, clean %v", name, clean), func(t *testing.T) {
				r, l := rolledRig(t, vfs.NewCrash())
				segs, end := l.Segments(), l.WrittenEnd()
				if clean {
					must(t, r.dir.Close())
				} else {
					r.fs = r.fs.(*vfs.CrashFS).Kill()
				}
				lost := harm(r, segs)
				r.open()
				l = r.log(0)
				if l.StartOffset() != 0 || l.WrittenEnd() != end {
					t.Fatalf("%d to %d", l.StartOffset(), l.WrittenEnd())
				}
				r.dir.Tick(r.now)
				if d := l.Damages(); len(d) != 1 || !strings.Contains(d[0], "missing") {
					t.Errorf("damages: %v", d)
				}
				if !strings.Contains(r.logs.String(), "missing") {
					t.Error("no line in the log")
				}
				for _, s := range segs {
					if refused(t, l, s.Base) != (s.Base == lost) {
						t.Errorf("offset %d, lost is %d", s.Base, lost)
					}
				}
				if !refused(t, l, lost) || !refused(t, l, lost+2) {
					t.Error("lost offsets are read")
				}
				if a := r.add(l, sent{}); a.Base != end {
					t.Errorf("the next offset is %d", a.Base)
				}
			})
		}
	}
}

// The last entry of the time index is there after a clean stop, for a log without appends too.
func TestLastTimeEntryAfterACleanStop(t *testing.T) {
	r := newRig(t, vfs.NewCrash())
	r.config.Segment.IndexInterval = 1000
	l := r.log(0)
	r.fill(l, 20)
	r.kill()
	r.log(0)
	must(t, r.dir.Close())
	b := r.file(logName(0, segment.TimeExt))
	if ts := int64(binary.BigEndian.Uint64(b[len(b)-12:])); ts != r.now.UnixMilli() {
		t.Fatalf("the last time is %d, the newest %d", ts, r.now.UnixMilli())
	}
	r.open()
	l = r.log(0)
	r.fill(l, 20)
	must(t, l.Audit())
	r.verify(l)
	must(t, r.dir.Close())
}

// A log that ends at its mark costs no flush at a start after a kill.
func TestIdleLogsCostNoFlush(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.NewCrash())
	r := newRig(t, faulty)
	for i := range int32(20) {
		r.add(r.log(i), sent{id: 7})
	}
	r.dir.Tick(r.now)
	r.dir.Tick(r.now.Add(time.Minute))
	must(t, r.dir.syncMarks())
	old := r.dir
	must(t, old.lock.Close()) // as a kill does
	r.open()
	before := faulty.Calls(vfs.OpSync, vfs.OpSyncData, vfs.OpSyncDir, vfs.OpDropCache)
	for i := range int32(20) {
		if l := r.log(i); l.WrittenEnd() != 1 || len(l.Producers()) != 1 {
			t.Fatalf("log %d ends at %d", i, l.WrittenEnd())
		}
	}
	if n := faulty.Calls(vfs.OpSync, vfs.OpSyncData, vfs.OpSyncDir, vfs.OpDropCache) - before; n > 0 {
		t.Fatalf("%d flushes for 20 idle logs", n)
	}
}

// A truncation whose cut is in the page cache only is made durable before the end is shown.
func TestKillInATruncation(t *testing.T) {
	fs := vfs.NewCrash()
	r := newRig(t, fs)
	l := r.log(0)
	for range 15 {
		r.add(l, sent{})
	}
	var killed *vfs.CrashFS
	fs.SetHook(func(e vfs.Event) {
		if killed == nil && e.Phase == vfs.After && e.Op == vfs.OpTruncate && strings.HasSuffix(e.Path, ".log") {
			killed = fs.ForkKilled()
		}
	})
	must(t, l.TruncateTo(12))
	r.fs = killed
	r.open()
	if l = r.log(0); l.WrittenEnd() != 12 {
		t.Fatalf("the end is %d", l.WrittenEnd())
	}
	r.crash(vfs.Policy{Kind: vfs.KeepNone}, 1)
	if l = r.log(0); l.WrittenEnd() != 12 {
		t.Fatalf("the end was shown as 12 and is %d after a power failure", l.WrittenEnd())
	}
}

// What a full disk kept from being written is written later, and until then no clean stop is claimed, and no segment deleted
// whose producers are nowhere else.
func TestFullDiskIsMadeUpFor(t *testing.T) {
	for _, file := range []string{EpochFile + ".tmp", "*.window.tmp", MarksFile} {
		faulty := vfs.NewFaulty(vfs.NewCrash())
		r := newRig(t, faulty)
		r.config = smallSegments()
		l := r.log(0)
		r.add(l, sent{id: 7, size: 3000})
		must(t, l.StartEpoch(4))
		in := faulty.Inject(vfs.Fault{Ops: []vfs.Op{vfs.OpWrite}, Path: file, Err: syscall.ENOSPC, Sticky: true})
		for i := range 4 {
			_, _, err := r.write(l, sent{id: 7, seq: record.Sequence(i + 1), size: 3000})
			must(t, err)
		}
		must(t, r.step.Run())
		if l.StableEnd() != 5 || in.Hits() == 0 {
			t.Fatalf("%s: stable end %d", file, l.StableEnd())
		}
		if file != MarksFile {
			must(t, l.AdvanceStart(4))
			if err := l.Retain(r.now); (err == nil) != (file == EpochFile+".tmp") || err != nil && !errors.Is(err, ErrReserve) {
				t.Errorf("%s: retention answers %v", file, err)
			}
		}
		faulty.Heal(in)
		must(t, l.Flush())
		if l.f.owed || l.mark.Offset != 5 || l.mark.Epoch != 4 {
			t.Errorf("%s: %+v", file, l.mark)
		}
		if n := len(l.f.windows); n == 0 || l.f.windows[n-1] != 5 || !strings.Contains(strings.Join(r.names("t-0"), " "), segment.FileName(5, WindowExt)) {
			t.Errorf("%s: windows %v of %v", file, l.f.windows, r.names("t-0"))
		}
		must(t, r.dir.Close())
		r.open()
		l = r.log(0)
		if l.LatestEpoch() != 4 || len(l.Producers()) != 1 || l.Producers()[0].Batches != 5 {
			t.Errorf("%s: epoch %d, producers %+v", file, l.LatestEpoch(), l.Producers())
		}
		must(t, r.dir.Close())
	}
}

// Retention that got no mark to disk does not make the log look as if it had lost data.
func TestMarkedSegmentBelowTheLogStart(t *testing.T) {
	r := newRig(t, vfs.NewCrash())
	r.config = smallSegments()
	l := r.log(0)
	r.fill(l, 20)
	old := l.mark
	old.Segment, old.Position, old.Offset, old.LogStart = 0, 988, 3, l.Segments()[1].Base
	must(t, l.AdvanceStart(old.LogStart))
	must(t, l.Retain(r.now))
	must(t, r.dir.marks.put(old))
	must(t, r.dir.syncMarks())
	end := l.WrittenEnd()
	r.kill()
	l = r.log(0)
	if m, lost := l.MissingData(); lost || l.WrittenEnd() != end {
		t.Fatalf("end %d, was %d; missing %+v", l.WrittenEnd(), end, m)
	}
}

// A mark without a position is found again by its offset, before and after the file was replaced.
func TestUnplacedMark(t *testing.T) {
	r := newRig(t, vfs.NewCrash())
	r.config.Segment.IndexInterval = 1000
	l := r.log(0)
	r.fill(l, 20)
	must(t, l.AdvanceStart(7))
	m := l.mark
	m.Unplaced, m.Position, m.OffsetEntries, m.TimeEntries = true, 0, 0, 0
	must(t, r.dir.marks.put(m))
	must(t, r.dir.syncMarks())
	r.fs = r.fs.(*vfs.CrashFS).Kill()
	b := r.file(logName(0, segment.LogExt))
	b[len(b)-10] ^= 1
	r.overwrite(logName(0, segment.LogExt), b)
	r.open()
	l = r.log(0)
	if l.StartOffset() != 7 || l.WrittenEnd() != 60 {
		t.Fatalf("%d to %d", l.StartOffset(), l.WrittenEnd())
	}
	if !refused(t, l, 58) || refused(t, l, 56) {
		t.Fatal("damage below the mark is one batch")
	}
	r.kill()
	if l = r.log(0); l.WrittenEnd() != 60 || l.mark.Unplaced {
		t.Fatalf("then: %d, %+v", l.WrittenEnd(), l.mark)
	}
}

// A truncation that takes the batch around the log start leaves no end below the start.
func TestTruncateToAStartInsideABatch(t *testing.T) {
	r := newRig(t, vfs.NewCrash())
	l := r.log(0)
	r.fill(l, 3)
	must(t, l.AdvanceStart(7))
	must(t, l.TruncateTo(7))
	for range 2 {
		if l.StartOffset() != 7 || l.WrittenEnd() != 7 || l.StableEnd() != 7 {
			t.Fatalf("%d to %d, stable %d", l.StartOffset(), l.WrittenEnd(), l.StableEnd())
		}
		r.kill()
		l = r.log(0)
	}
	if a := r.add(l, sent{}); a.Base != 7 || refused(t, l, 7) {
		t.Fatalf("appended at %d", a.Base)
	}
	must(t, l.AdvanceStart(8))
	must(t, l.Audit())
}

// No checksum covers a base offset: each flip of each batch's costs that batch alone, wherever reading begins.
func TestEveryFlipOfABaseOffset(t *testing.T) {
	r := newRig(t, vfs.NewCrash())
	r.config.Segment.IndexInterval = 300
	l := r.log(0)
	for range 8 {
		r.add(l, sent{count: 2, size: 30})
	}
	size := int(l.w.active.Size()) / 8
	must(t, r.dir.Close())
	for batch := range 8 {
		for bit := range 12 {
			for _, clean := range []bool{true, false} {
				for first := range 8 {
					q := &rig{t: t, fs: r.fs.(*vfs.CrashFS).ForkKilled(), codecs: r.codecs, settings: r.settings, config: r.config, now: r.now, model: map[string]*model{}}
					b := q.file(logName(0, segment.LogExt))
					b[batch*size+7-bit/8] ^= 1 << (bit % 8)
					q.overwrite(logName(0, segment.LogExt), b)
					if !clean {
						q.remove(CleanFile)
					}
					q.open()
					l := q.log(0)
					for i := range 8 {
						n := (first + i) % 8
						if got := refused(t, l, record.Offset(2*n)); got != (n == batch) {
							t.Fatalf("batch %d, bit %d, clean %v, read from %d: batch %d refused: %v, damages %v", batch, bit, clean, first, n, got, l.Damages())
						}
					}
				}
			}
		}
	}
}

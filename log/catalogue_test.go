package log

import (
	"errors"
	"math"
	"path"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/segment"
	"github.com/keeplog/keeplog/vfs"
)

// fill appends n batches of 3 records and 1 kB.
func (r *rig) fill(l *Log, n int) {
	r.t.Helper()
	for range n {
		r.now = r.now.Add(time.Second)
		r.add(l, sent{count: 3, size: 300})
	}
}

func smallSegments() Config {
	c := testConfig()
	c.Segment.Bytes = 10_000
	c.Segment.IndexInterval = 1000
	return c
}

// rolledRig has a log of several segments.
func rolledRig(t testing.TB, fs vfs.FS) (*rig, *Log) {
	r := newRig(t, fs)
	r.config = smallSegments()
	l := r.log(0)
	r.fill(l, 50)
	if n := len(l.Segments()); n < 4 {
		t.Fatalf("%d segments", n)
	}
	return r, l
}

func TestCatalogue01_IndexSizeAfterKill(t *testing.T) {
	r, l := rolledRig(t, vfs.NewCrash())
	if n := len(r.file(logName(l.w.active.Base(), segment.IndexExt))); n < 8000 {
		t.Fatalf("the active index has %d bytes, it should be larger than its entries", n)
	}
	r.kill()
	l = r.log(0)
	must(t, l.Audit())
	r.fill(l, 20)
	r.verify(l)
}

func TestCatalogue02_CorruptIndexIsRebuiltAtStart(t *testing.T) {
	r, l := rolledRig(t, vfs.NewCrash())
	base := l.w.active.Base()
	r.kill()
	r.overwrite(logName(base, segment.IndexExt), []byte(strings.Repeat("\xff\x00\x12", 777)))
	r.overwrite(logName(0, segment.IndexExt), []byte("junk"))
	r.overwrite(logName(0, segment.TimeExt), []byte("junk"))
	l = r.log(0)
	r.verify(l)
	must(t, l.Audit())
}

func TestCatalogue03_FullDiskWhileAnIndexGrows(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.NewMem())
	r := newRig(t, faulty)
	r.config.Segment.IndexInterval = 10
	l := r.log(0)
	r.add(l, sent{})
	in := faulty.Inject(vfs.Fault{Ops: []vfs.Op{vfs.OpAllocate}, Path: "*index", Err: syscall.ENOSPC, Sticky: true})
	if _, _, err := r.write(l, sent{}); !errors.Is(err, ErrReserve) {
		t.Fatalf("append without room for the index: %v", err)
	}
	r.verify(l)
	faulty.Heal(in)
	r.add(l, sent{})
	r.verify(l)
	must(t, l.Audit())
	must(t, r.dir.Close())
}

func TestCatalogue04_EndIsFoundByBatchesNotByHoles(t *testing.T) {
	r, l := rolledRig(t, vfs.NewCrash())
	name := logName(l.w.active.Base(), segment.LogExt)
	r.kill()
	r.overwrite(name, append(r.file(name), make([]byte, 5000)...)) // blocks that were never written
	l = r.log(0)
	r.verify(l)
	r.fill(l, 5)
	r.verify(l)
	must(t, l.Audit())
}

func TestCatalogue05_SegmentDirectoryFsynced(t *testing.T) {
	r, _ := rolledRig(t, vfs.NewCrash())
	r.crash(vfs.Policy{Kind: vfs.KeepNone}, 0)
	l := r.log(0)
	r.verify(l)
	if n := len(l.Segments()); n < 4 {
		t.Fatalf("%d segments are left", n)
	}
}

func TestCatalogue06_CleanMarkerIsGoneBeforeLoading(t *testing.T) {
	r, l := rolledRig(t, vfs.NewCrash())
	_ = l
	r.restart()
	if _, clean := r.dir.CleanStop(); !clean {
		t.Fatal("not clean")
	}
	r.crash(vfs.Policy{Kind: vfs.KeepNone}, 0) // before any log is opened
	if _, clean := r.dir.CleanStop(); clean {
		t.Fatal("a crash while loading passes for a clean stop")
	}
	r.verify(r.log(0))
}

func TestCatalogue07_EpochCheckpoint(t *testing.T) {
	for name, spoil := range map[string]func(r *rig){
		"garbage": func(r *rig) { r.overwrite("t-0/"+EpochFile, []byte("\x00\x00garbage")) },
		"empty":   func(r *rig) { r.overwrite("t-0/"+EpochFile, nil) },
		"missing": func(r *rig) { must(r.t, r.fs.Remove("/data/t-0/"+EpochFile)) },
		"stale":   func(r *rig) { r.overwrite("t-0/"+EpochFile, EncodeEpochs([]EpochEntry{{0, 0}})) },
		"none":    func(*rig) {},
	} {
		for _, clean := range []bool{true, false} {
			r := newRig(t, vfs.NewCrash())
			l := r.log(0)
			for e := range record.Epoch(4) {
				must(t, l.StartEpoch(e))
				r.fill(l, 5)
			}
			want := []EpochEntry{{0, 0}, {1, 15}, {2, 30}, {3, 45}}
			if got, err := DecodeEpochs(r.file("t-0/" + EpochFile)); err != nil || len(got) != 4 || got[3] != want[3] {
				t.Fatalf("%v %v", got, err)
			}
			if clean {
				must(t, r.dir.Close())
			} else {
				r.fs = r.fs.(*vfs.CrashFS).Kill()
			}
			spoil(r)
			r.open()
			l = r.log(0)
			for _, w := range want {
				if e, end := l.EndOffsetForEpoch(w.Epoch); e != w.Epoch || end != w.Start+15 {
					t.Fatalf("%s, clean %v: epoch %d ends at %d (%d)", name, clean, w.Epoch, end, e)
				}
			}
			if l.LatestEpoch() != 3 || l.EpochAt(44) != 2 {
				t.Fatalf("%s: latest %d, at 44 %d", name, l.LatestEpoch(), l.EpochAt(44))
			}
		}
	}
}

func TestCatalogue08_NoAppendAfterFailedFsync(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.NewCrash())
	r := newRig(t, faulty)
	l, other := r.log(0), r.log(1)
	r.add(l, sent{})
	faulty.Inject(vfs.Fault{Ops: []vfs.Op{vfs.OpSyncData, vfs.OpSync}, Path: "*.log", Err: syscall.EIO})
	a, _, err := r.write(l, sent{})
	must(t, err)
	if err := r.step.Run(); !errors.Is(err, ErrOffline) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("failed fsync: %v", err)
	}
	if l.StableEnd() > a.Base {
		t.Fatal("the batch counts as stable")
	}
	if err := l.Flush(); !errors.Is(err, ErrOffline) || l.StableEnd() > a.Base {
		t.Fatalf("a flush after it: %v", err)
	}
	for _, log := range []*Log{l, other} {
		if _, _, err := r.write(log, sent{}); !errors.Is(err, ErrOffline) {
			t.Fatalf("append after a failed fsync: %v", err)
		}
		if _, err := log.Read(ReadRequest{Offset: 0, Bound: 9, MaxBytes: 1}); !errors.Is(err, ErrOffline) {
			t.Fatalf("read after a failed fsync: %v", err)
		}
	}
	if err := r.dir.Close(); !errors.Is(err, ErrOffline) {
		t.Fatal(err)
	}
	for _, name := range r.names("") {
		if name == CleanFile {
			t.Fatal("a failed directory is marked as clean")
		}
	}
}

func TestCatalogue09_SlowFsyncBlocksNeitherAppendsNorReads(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.NewMem())
	r := newRig(t, faulty)
	l := r.log(0)
	r.add(l, sent{})
	stall := make(chan struct{})
	in := faulty.Inject(vfs.Fault{Ops: []vfs.Op{vfs.OpSyncData}, Path: "*.log", Stall: stall})
	_, _, err := r.write(l, sent{})
	must(t, err)
	flushed := make(chan error)
	go func() { flushed <- r.step.Run() }()
	for in.Hits() == 0 {
		runtime.Gosched()
	}
	for range 10 { // all of this while the disk hangs
		_, _, err := r.write(l, sent{})
		must(t, err)
		sp, err := l.Read(ReadRequest{Offset: 0, Bound: 1, MaxBytes: 1000})
		must(t, err)
		sp.Release()
	}
	if l.StableEnd() != 1 || l.WrittenEnd() != 12 {
		t.Fatalf("stable %d, written %d", l.StableEnd(), l.WrittenEnd())
	}
	close(stall)
	must(t, <-flushed)
	must(t, r.step.Run())
	must(t, r.dir.Close())
}

func TestCatalogue10_RollOntoAnEmptySegment(t *testing.T) {
	r, l := rolledRig(t, vfs.NewCrash())
	end := l.WrittenEnd()
	r.overwrite(logName(end, segment.LogExt), nil) // left by a crash between creating and writing
	r.kill()
	l = r.log(0)
	r.verify(l)
	if got := l.w.active.Base(); got != end {
		t.Fatalf("active segment %d", got)
	}
	r.fill(l, 20)
	r.verify(l)
}

func TestCatalogue11_RollByOffsetSpan(t *testing.T) {
	r := newRig(t, vfs.NewMem())
	l := r.log(0)
	b := r.batch(sent{})
	b.SetBaseOffset(5)
	b.SetPartitionLeaderEpoch(0)
	_, err := l.AppendReplica(b, 0)
	must(t, err)
	far := r.batch(sent{})
	far.SetBaseOffset(5 + math.MaxInt32)
	far.SetPartitionLeaderEpoch(0)
	_, err = l.AppendReplica(far, 0)
	must(t, err)
	must(t, r.step.Run())
	if n := len(l.Segments()); n != 2 {
		t.Fatalf("%d segments for a span of more than 2³¹", n)
	}
	r.restart()
	l = r.log(0)
	if got := r.readAll(l, 0); len(got) != len(b)+len(far) || l.WrittenEnd() != 6+math.MaxInt32 {
		t.Fatalf("%d bytes, end %d", len(got), l.WrittenEnd())
	}
	must(t, r.dir.Close())
}

func TestCatalogue12_ZeroTailOfAPreallocatedFile(t *testing.T) {
	TestCatalogue04_EndIsFoundByBatchesNotByHoles(t)
	r, l := rolledRig(t, vfs.NewMem())
	for _, s := range l.Segments() { // what is allocated ahead never shows
		if n := int64(len(r.file(logName(s.Base, segment.LogExt)))); n != s.Size {
			t.Fatalf("segment %d: the file has %d bytes, the data %d", s.Base, n, s.Size)
		}
	}
	must(t, r.dir.Close())
}

func TestCatalogue13_FirstEpochSurvivesRecovery(t *testing.T) {
	r := newRig(t, vfs.NewCrash())
	l := r.log(0)
	must(t, l.StartEpoch(0))
	r.fill(l, 1)
	r.crash(vfs.Policy{Kind: vfs.KeepNone}, 0)
	l = r.log(0)
	if e, end := l.EndOffsetForEpoch(0); e != 0 || end != 3 {
		t.Fatalf("epoch %d ends at %d", e, end)
	}
	must(t, l.StartEpoch(1))
	if e, end := l.EndOffsetForEpoch(0); e != 0 || end != 3 {
		t.Fatalf("with a new leader epoch: %d ends at %d", e, end)
	}
	if e, end := l.EndOffsetForEpoch(1); e != 1 || end != 3 {
		t.Fatalf("the new one: %d ends at %d", e, end)
	}
}

func TestCatalogue14_FailedWriteMovesNothing(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.NewMem())
	r := newRig(t, faulty)
	l := r.log(0)
	r.add(l, sent{id: 7, seq: 0})
	short := 40
	in := faulty.Inject(vfs.Fault{Ops: []vfs.Op{vfs.OpWrite}, Path: "*.log", Err: syscall.ENOSPC, Short: &short})
	if _, _, err := r.write(l, sent{id: 7, seq: 1}); !errors.Is(err, ErrReserve) {
		t.Fatal(err)
	}
	faulty.Heal(in)
	if l.WrittenEnd() != 1 {
		t.Fatalf("end %d", l.WrittenEnd())
	}
	if a := r.add(l, sent{id: 7, seq: 1}); a.Base != 1 || a.Duplicate {
		t.Fatalf("the sequence of the failed write: %+v", a)
	}
	r.verify(l)
	r.restart()
	r.verify(r.log(0))
	must(t, r.dir.Close())
}

func TestCatalogue15_RetentionBesideShutdown(t *testing.T) {
	r, l := rolledRig(t, vfs.NewMem())
	c := r.config
	c.Retention.Bytes = 0
	l.SetConfig(c)
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() {
			for range 20 {
				r.dir.Tick(r.now.Add(time.Hour))
			}
		})
	}
	err := r.dir.Close()
	wait.Wait()
	must(t, err)
	r.open()
	if _, clean := r.dir.CleanStop(); !clean {
		t.Fatal("the stop was not clean")
	}
	l = r.log(0)
	if l.WrittenEnd() != 150 {
		t.Fatalf("end %d", l.WrittenEnd())
	}
	must(t, r.dir.Close())
}

func TestCatalogue16_DeletionWorksOnASnapshot(t *testing.T) {
	r, l := rolledRig(t, vfs.NewMem())
	segs := l.Segments()
	sp, err := l.Read(ReadRequest{Offset: 0, Bound: 150, MaxBytes: 5000})
	must(t, err)
	before := make([]byte, sp.Len())
	_, err = sp.ReadAt(before, 0)
	must(t, err)
	must(t, l.AdvanceStart(segs[2].Base))
	r.dir.Tick(r.now)
	if got := l.Segments()[0].Base; got != segs[2].Base {
		t.Fatalf("first segment %d, want %d", got, segs[2].Base)
	}
	r.dir.Tick(r.now.Add(time.Hour)) // the reader still holds the first one
	after := make([]byte, sp.Len())
	_, err = sp.ReadAt(after, 0)
	must(t, err)
	if string(before) != string(after) {
		t.Fatal("bytes changed under a reader")
	}
	if names := strings.Join(r.names("t-0"), " "); !strings.Contains(names, path.Base(logName(0, segment.LogExt))+segment.DeletedExt) {
		t.Fatalf("unlinked under a reader: %s", names)
	}
	sp.Release()
	r.dir.Tick(r.now.Add(time.Hour))
	if names := strings.Join(r.names("t-0"), " "); strings.Contains(names, segment.DeletedExt) {
		t.Fatalf("not unlinked: %s", names)
	}
	r.verify(l)
	must(t, r.dir.Close())
}

func TestCatalogue17_ManyReadersOpenOneSegment(t *testing.T) {
	r, _ := rolledRig(t, vfs.NewMem())
	r.settings.OpenSegments = 1
	r.restart()
	l := r.log(0)
	var wait sync.WaitGroup
	for w := range 8 {
		wait.Go(func() {
			for i := range 100 {
				o := record.Offset((i*37 + w*11) % 150)
				sp, err := l.Read(ReadRequest{Offset: o, Bound: 150, MaxBytes: 5000})
				if err != nil {
					t.Error(err)
					return
				}
				head := make([]byte, record.HeaderSize)
				if _, err := sp.ReadAt(head, 0); err != nil {
					t.Error(err)
				}
				if b := record.Batch(head); b.BaseOffset() != o/3*3 {
					t.Errorf("offset %d: batch %d", o, b.BaseOffset())
				}
				sp.Release()
			}
		})
	}
	wait.Wait()
	r.verify(l)
	must(t, r.dir.Close())
}

func TestCatalogue18_TwoProcessesOnOneDirectory(t *testing.T) {
	r := newRig(t, vfs.NewMem())
	first := r.dir
	if err := r.tryOpen(); !errors.Is(err, vfs.ErrLocked) {
		t.Fatalf("the second opening: %v", err)
	}
	must(t, first.Close())
	r.open()
	must(t, r.dir.Close())
}

func TestCatalogue20_OneBadBitCostsOneBatch(t *testing.T) {
	for _, clean := range []bool{true, false} {
		r, l := rolledRig(t, vfs.NewCrash())
		segs := l.Segments()
		if clean {
			must(t, r.dir.Close())
		} else {
			r.dir.Tick(r.now)
			r.now = r.now.Add(time.Minute)
			r.dir.Tick(r.now)
			r.fs = r.fs.(*vfs.CrashFS).Kill()
		}
		r.flip(logName(segs[1].Base, segment.LogExt), 2500)          // in a closed segment
		r.flip(logName(segs[len(segs)-1].Base, segment.LogExt), 100) // in the active one, below the mark
		r.open()
		l = r.log(0)
		if l.WrittenEnd() != 150 {
			t.Fatalf("clean %v: the log ends at %d\n%s", clean, l.WrittenEnd(), r.logs.String())
		}
		bad := 0
		for o := record.Offset(0); o < 150; o += 3 {
			sp, err := l.Read(ReadRequest{Offset: o, Bound: 150, MaxBytes: 500, AtLeastOne: true})
			if errors.Is(err, ErrCorruptBatch) {
				bad++
				continue
			}
			must(t, err)
			sp.Release()
		}
		if bad != 2 {
			t.Fatalf("clean %v: %d batches cannot be read, 2 are damaged", clean, bad)
		}
		r.add(l, sent{})
		if l.WrittenEnd() != 151 {
			t.Fatalf("the next offset was %d", l.WrittenEnd()-1)
		}
	}
}

func TestCatalogue21_UnknownDirectoriesAreQuarantined(t *testing.T) {
	r, _ := rolledRig(t, vfs.NewMem())
	r.restart()
	found := r.dir.Found()
	if len(found) != 1 || found[0].Topic != "t" || found[0].TopicID != testTopic {
		t.Fatalf("%+v", found)
	}
	must(t, r.dir.Quarantine(found[0], "a test"))
	r.restart()
	if n := len(r.dir.Found()); n != 0 {
		t.Fatalf("%d directories are found after the quarantine", n)
	}
	r.dir.Tick(r.now.Add(1000 * time.Hour))
	kept := false
	for _, name := range r.names("") {
		kept = kept || strings.HasSuffix(name, straySuffix)
	}
	if !kept {
		t.Fatal("the directory is gone")
	}
	must(t, r.dir.Close())
}

func TestCatalogue22_NoAckBeforeFsync(t *testing.T) {
	r := newRig(t, vfs.NewCrash())
	l := r.log(0)
	a, _, err := r.write(l, sent{})
	must(t, err)
	if l.WrittenEnd() != 1 || l.StableEnd() != 0 {
		t.Fatalf("written %d, stable %d before the flush", l.WrittenEnd(), l.StableEnd())
	}
	must(t, r.step.Run())
	if l.StableEnd() != a.Last+1 {
		t.Fatalf("stable %d after it", l.StableEnd())
	}
	r.crash(vfs.Policy{Kind: vfs.KeepNone}, 0)
	if l = r.log(0); l.WrittenEnd() != 1 {
		t.Fatal("lost")
	}
}

func TestCatalogue23_ReadOnlyFileSystemFreezes(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.NewMem())
	r := newRig(t, faulty)
	l := r.log(0)
	r.fill(l, 5)
	end := l.WrittenEnd()
	ops := []vfs.Op{vfs.OpWrite, vfs.OpTruncate, vfs.OpAllocate, vfs.OpRename, vfs.OpRemove, vfs.OpCreate}
	in := faulty.Inject(vfs.Fault{Ops: ops, Err: syscall.EROFS, Sticky: true})
	if _, _, err := r.write(l, sent{}); !errors.Is(err, ErrOffline) {
		t.Fatalf("append to a read-only file system: %v", err)
	}
	if l.WrittenEnd() != end || l.StartOffset() != 0 {
		t.Fatalf("the log has %d to %d now", l.StartOffset(), l.WrittenEnd())
	}
	_ = r.dir.Close()
	faulty.Heal(in)
	r.open()
	r.verify(r.log(0))
	must(t, r.dir.Close())
}

func TestCatalogue24_OffsetsAreNotReused(t *testing.T) {
	r := newRig(t, vfs.NewCrash())
	l := r.log(0)
	r.fill(l, 10)
	r.dir.Tick(r.now)
	r.now = r.now.Add(time.Minute)
	r.dir.Tick(r.now) // the mark is durable
	// the disk loses durable data: the file is shorter than its mark
	r.fs = r.fs.(*vfs.CrashFS).Kill()
	r.overwrite(logName(0, segment.LogExt), r.file(logName(0, segment.LogExt))[:2500])
	for range 2 { // also after another start
		r.open()
		l = r.log(0)
		m, lost := l.MissingData()
		if !lost || m.Mark != 30 || m.End != 6 {
			t.Fatalf("%+v %v\n%s", m, lost, r.logs.String())
		}
		r.fs = r.fs.(*vfs.CrashFS).Kill()
	}
	r.open()
	l = r.log(0)
	must(t, l.StartEpoch(1))
	if a := r.add(l, sent{}); a.Base != 30 {
		t.Fatalf("offset %d is given twice", a.Base)
	}
	if _, lost := l.MissingData(); lost {
		t.Fatal("still missing")
	}
	sp, err := l.Read(ReadRequest{Offset: 12, Bound: 31, MaxBytes: 1000})
	must(t, err)
	head := make([]byte, record.HeaderSize)
	_, err = sp.ReadAt(head, 0)
	must(t, err)
	if o := record.Batch(head).BaseOffset(); o != 30 {
		t.Fatalf("behind the gap: %d", o)
	}
	sp.Release()
	r.crash(vfs.Policy{Kind: vfs.KeepNone}, 0)
	l = r.log(0)
	if _, lost := l.MissingData(); lost || l.WrittenEnd() != 31 {
		t.Fatalf("after the next crash: lost %v, end %d", lost, l.WrittenEnd())
	}
}

// What Apache Kafka 4.4 gets wrong.

func retentionConfig() Config {
	c := smallSegments()
	c.Retention.Age = time.Hour
	return c
}

func TestKafkaWrong1_RetentionBelievesNoTimeIndex(t *testing.T) {
	for name, spoil := range map[string]func(r *rig, file string){
		"zeroed": func(r *rig, file string) { r.overwrite(file, make([]byte, len(r.file(file)))) },
		"padded": func(r *rig, file string) { r.overwrite(file, append(r.file(file), make([]byte, 120)...)) },
		"stale":  func(r *rig, file string) { r.overwrite(file, r.file(file)[:12]) },
		"empty":  func(r *rig, file string) { r.overwrite(file, nil) },
		"wrong": func(r *rig, file string) {
			b := r.file(file)
			for i := 0; i < len(b); i += 12 {
				b[i+5]-- // years ago
			}
			r.overwrite(file, b)
		},
	} {
		r := newRig(t, vfs.NewMem())
		r.config = retentionConfig()
		l := r.log(0)
		r.fill(l, 50)
		segs := l.Segments()
		must(t, r.dir.Close())
		for _, s := range segs[:len(segs)-1] {
			spoil(r, logName(s.Base, segment.TimeExt))
		}
		r.open()
		l = r.log(0)
		must(t, l.Retain(r.now))
		if l.StartOffset() != 0 {
			t.Fatalf("%s: fresh records are deleted up to %d\n%s", name, l.StartOffset(), r.logs.String())
		}
		r.verify(l)
		must(t, l.Retain(r.now.Add(2*time.Hour)))
		if l.StartOffset() != 150 {
			t.Fatalf("%s: old records are kept from %d", name, l.StartOffset())
		}
		must(t, r.dir.Close())
	}
}

func TestKafkaWrong2_OneBitCutsNothing(t *testing.T) { TestCatalogue20_OneBadBitCostsOneBatch(t) }

func TestKafkaWrong3_PartitionMetadataIsWrittenAgain(t *testing.T) {
	for name, spoil := range map[string]func(r *rig){
		"missing": func(r *rig) { must(r.t, r.fs.Remove("/data/t-0/"+PartitionFile)) },
		"empty":   func(r *rig) { r.overwrite("t-0/"+PartitionFile, nil) },
		"garbage": func(r *rig) { r.overwrite("t-0/"+PartitionFile, []byte("\x00\x01")) },
	} {
		r, _ := rolledRig(t, vfs.NewMem())
		must(t, r.dir.Close())
		spoil(r)
		r.open()
		if f := r.dir.Found(); len(f) != 1 || f[0].TopicID != ([16]byte{}) {
			t.Fatalf("%s: %+v", name, f)
		}
		l := r.log(0)
		r.verify(l)
		must(t, l.Flush())
		if id, err := DecodePartition(r.file("t-0/" + PartitionFile)); err != nil || id != testTopic {
			t.Fatalf("%s: %x %v", name, id, err)
		}
		must(t, r.dir.Close())
	}
}

func TestKafkaWrong4_DeleteRecordsSurvivesPowerLoss(t *testing.T) {
	r, l := rolledRig(t, vfs.NewCrash())
	must(t, l.AdvanceStart(40))
	r.crash(vfs.Policy{Kind: vfs.KeepNone}, 0)
	if l = r.log(0); l.StartOffset() != 40 {
		t.Fatalf("log start %d", l.StartOffset())
	}
	if _, err := l.Read(ReadRequest{Offset: 39, Bound: 150, MaxBytes: 1}); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Fatal(err)
	}
	r.verify(l)
}

func TestKafkaWrong5_ProducersWithoutTheirFiles(t *testing.T) {
	for _, kinds := range []string{SnapshotExt, WindowExt, SnapshotExt + WindowExt} {
		r := newRig(t, vfs.NewMem())
		r.config = smallSegments()
		l := r.log(0)
		for i := range 60 {
			r.add(l, sent{id: 9, seq: record.Sequence(i), size: 900})
		}
		must(t, r.dir.Close())
		removed := 0
		for _, name := range r.names("t-0") {
			if strings.Contains(kinds, path.Ext(name)) && path.Ext(name) != "" {
				must(t, r.fs.Remove("/data/t-0/"+name))
				removed++
			}
		}
		if removed == 0 {
			t.Fatalf("nothing to remove: %v", r.names("t-0"))
		}
		r.open()
		l = r.log(0)
		for i := 55; i < 60; i++ {
			a, _, err := r.write(l, sent{id: 9, seq: record.Sequence(i), size: 900})
			if err != nil || !a.Duplicate || a.Base != record.Offset(i) {
				t.Fatalf("without %s: batch %d sent again: %+v, %v", kinds, i, a, err)
			}
		}
		must(t, r.dir.Close())
	}
}

func TestKafkaWrong6_JunkIndexAfterACleanStop(t *testing.T) {
	r, l := rolledRig(t, vfs.NewMem())
	segs := l.Segments()
	must(t, r.dir.Close())
	for _, s := range segs[:len(segs)-1] {
		b := r.file(logName(s.Base, segment.IndexExt))
		for i := 7; i < len(b); i += 8 {
			b[i] += 13 // monotonic, and beside every batch
		}
		r.overwrite(logName(s.Base, segment.IndexExt), b)
	}
	r.open()
	l = r.log(0)
	r.verify(l)
	for o := record.Offset(0); o < 150; o++ {
		sp, err := l.Read(ReadRequest{Offset: o, Bound: 150, MaxBytes: 2000})
		must(t, err)
		head := make([]byte, record.HeaderSize)
		_, err = sp.ReadAt(head, 0)
		must(t, err)
		if b := record.Batch(head); b.BaseOffset() != o/3*3 {
			t.Fatalf("offset %d: batch %d", o, b.BaseOffset())
		}
		sp.Release()
	}
	must(t, r.dir.Close())
}

func TestKafkaWrong7_OnePartitionsTroubleIsItsOwn(t *testing.T) {
	r, _ := rolledRig(t, vfs.NewMem())
	other := r.log(1)
	r.fill(other, 5)
	must(t, r.dir.Close())
	r.overwrite("t-0/"+EpochFile, []byte("nonsense"))
	r.overwrite("t-0/copy.log", []byte("a foreign file"))
	r.overwrite("t-0/00000000000000000007.log.cleaned", []byte("left over"))
	r.overwrite("t-0/00000000000000000001.index", []byte("orphan"))
	r.overwrite("t-0/00000000000000000001.log.deleted", []byte("left over"))
	r.overwrite("stray-file", []byte("x"))
	r.overwrite(RecoveryPointFile, []byte("nonsense"))
	r.overwrite(WatermarkFile, []byte("0\n1\nt 0 x\n"))
	r.overwrite("t-1/"+PartitionFile, []byte("version: 9\n"))
	r.open()
	r.verify(r.log(0))
	if _, err := r.dir.OpenLog(Identity{"t", 1, testTopic}, r.config); !errors.Is(err, ErrNewerVersion) {
		t.Fatalf("a file of a newer version: %v", err)
	}
	if names := strings.Join(r.names("t-0"), " "); strings.Contains(names, "cleaned") || strings.Contains(names, "deleted") || !strings.Contains(names, "copy.log") {
		t.Fatalf("left: %s", names)
	}
	must(t, r.dir.Close())
}

func TestFlushEachNAndByTime(t *testing.T) {
	r := newRig(t, vfs.NewMem())
	r.config.Flush = config.Flush{Messages: 10, Interval: time.Minute}
	l := r.log(0)
	for i := range 9 {
		_, _, err := r.write(l, sent{})
		must(t, err)
		if l.StableEnd() != record.Offset(i+1) {
			t.Fatalf("stable end %d: it is the written end here", l.StableEnd())
		}
	}
	must(t, r.step.Run())
	if l.DurableEnd() != 0 {
		t.Fatalf("durable end %d after 9 records", l.DurableEnd())
	}
	_, _, err := r.write(l, sent{})
	must(t, err)
	must(t, r.step.Run())
	if l.DurableEnd() != 10 {
		t.Fatalf("durable end %d after 10 records", l.DurableEnd())
	}
	_, _, err = r.write(l, sent{})
	must(t, err)
	r.now = r.now.Add(2 * time.Minute)
	r.dir.Tick(r.now)
	must(t, r.step.Run())
	if l.DurableEnd() != 11 {
		t.Fatalf("durable end %d after flush.ms", l.DurableEnd())
	}
	_, _, err = r.write(l, sent{})
	must(t, err)
	l.SetConfig(testConfig()) // to 1: a flush comes first
	must(t, r.step.Run())
	if l.DurableEnd() != 12 {
		t.Fatalf("durable end %d after the change", l.DurableEnd())
	}
	_, _, err = r.write(l, sent{})
	must(t, err)
	if l.StableEnd() != 12 {
		t.Fatalf("stable end %d before the flush", l.StableEnd())
	}
	must(t, r.dir.Close())
}

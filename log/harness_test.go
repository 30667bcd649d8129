package log

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rig is a data directory under test, with a model of what must be in each log.
type rig struct {
	t        testing.TB
	fs       vfs.FS
	dir      *Dir
	step     *Stepped
	codecs   *record.Codecs
	settings Settings
	config   Config
	now      time.Time
	logs     strings.Builder
	model    map[string]*model
}

// model is the batches of a log that were acknowledged, as bytes.
type model struct {
	start   record.Offset
	batches []record.Batch
}

func (m *model) end() record.Offset {
	if len(m.batches) == 0 {
		return m.start
	}
	return m.batches[len(m.batches)-1].NextOffset()
}

var testTopic = [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

func testConfig() Config {
	return Config{
		Cleanup:   config.Cleanup{Delete: true},
		Flush:     config.Flush{Messages: 1, Interval: config.Forever},
		Retention: config.Retention{Bytes: -1, Age: config.Forever},
		Segment:   config.Segment{Bytes: 1 << 20, Age: config.Forever, IndexBytes: 1 << 20, IndexInterval: 4096},
		Timestamp: config.Timestamp{BeforeMax: config.Forever, AfterMax: config.Forever},
	}
}

// newRig opens /data on a file system, with a commit coordinator that is stepped by hand.
func newRig(t testing.TB, fs vfs.FS) *rig {
	r := &rig{
		t: t, fs: fs, codecs: record.NewCodecs(), config: testConfig(), now: time.UnixMilli(1_700_000_000_000),
		settings: Settings{Reserve: -1, TruncateWait: 50 * time.Millisecond}, model: map[string]*model{},
	}
	r.open()
	return r
}

func (r *rig) open() {
	r.t.Helper()
	must(r.t, r.tryOpen())
}

func (r *rig) tryOpen() error {
	r.step = new(Stepped)
	var err error
	r.dir, err = OpenDir(DirOptions{
		FS: r.fs, Path: "/data", Logger: slog.New(slog.NewTextHandler(&r.logs, nil)), Codecs: r.codecs,
		Now: func() time.Time { return r.now }, Committer: r.step, Settings: r.settings,
	})
	return err
}

// log opens a partition of topic t.
func (r *rig) log(partition int32) *Log {
	r.t.Helper()
	l, err := r.dir.OpenLog(Identity{"t", partition, testTopic}, r.config)
	must(r.t, err)
	return l
}

// restart closes cleanly and opens again.
func (r *rig) restart() {
	r.t.Helper()
	must(r.t, r.dir.Close())
	r.open()
}

// crash loses the power, keeping what the policy says, and opens again. The file system must be a CrashFS.
func (r *rig) crash(p vfs.Policy, seed uint64) {
	r.t.Helper()
	r.fs = r.fs.(*vfs.CrashFS).Crash(p, seed)
	r.open()
}

// kill ends the process, keeping the page cache, and opens again.
func (r *rig) kill() {
	r.t.Helper()
	r.fs = r.fs.(*vfs.CrashFS).Kill()
	r.open()
}

type sent struct {
	id    record.ProducerID
	epoch record.ProducerEpoch
	seq   record.Sequence
	count int
	size  int
	ts    int64
}

func (r *rig) batch(s sent) record.Batch {
	r.t.Helper()
	o := record.NewOptions()
	if s.id > 0 {
		o.ProducerID, o.ProducerEpoch, o.BaseSequence = s.id, s.epoch, s.seq
	}
	if s.ts == 0 {
		s.ts = r.now.UnixMilli()
	}
	b := record.NewBuilder(o)
	for i := range max(s.count, 1) {
		b.Append(s.ts, nil, bytes.Repeat([]byte{byte('a' + (int(s.seq)+i)%26)}, max(s.size, 10)))
	}
	batch, err := b.Batch(r.codecs)
	must(r.t, err)
	return batch
}

// add appends a batch and flushes it; it is then acknowledged and must never be lost.
func (r *rig) add(l *Log, s sent) Appended {
	r.t.Helper()
	a, b, err := r.write(l, s)
	must(r.t, err)
	must(r.t, r.step.Run())
	if l.StableEnd() <= a.Last {
		r.t.Fatalf("stable end %d after a flush of %d", l.StableEnd(), a.Last)
	}
	if !a.Duplicate {
		m := r.modelOf(l)
		m.batches = append(m.batches, b)
	}
	return a
}

func (r *rig) write(l *Log, s sent) (Appended, record.Batch, error) {
	r.t.Helper()
	b := r.batch(s)
	a, err := l.Append(Append{Batch: b, Epoch: max(l.LatestEpoch(), 0), NowMs: r.now.UnixMilli()})
	return a, b, err
}

func (r *rig) modelOf(l *Log) *model {
	key := DirName(l.id.Topic, l.id.Partition)
	if r.model[key] == nil {
		r.model[key] = &model{start: l.StartOffset()}
	}
	return r.model[key]
}

// verify reads the whole log and compares it with the model: every acknowledged batch byte for byte, at its offset.
func (r *rig) verify(l *Log) {
	r.t.Helper()
	m := r.modelOf(l)
	got := r.readAll(l, l.StartOffset())
	var want []byte
	for _, b := range m.batches {
		if b.LastOffset() >= l.StartOffset() {
			want = append(want, b...)
		}
	}
	if !bytes.HasPrefix(got, want) {
		r.t.Fatalf("log %s has %d bytes in %d to %d; the %d acknowledged bytes up to %d are not there\n%s", l.path, len(got), l.StartOffset(), l.WrittenEnd(), len(want), m.end(), r.logs.String())
	}
	if l.WrittenEnd() < m.end() {
		r.t.Fatalf("log ends at %d, acknowledged was %d", l.WrittenEnd(), m.end())
	}
}

func (r *rig) readAll(l *Log, from record.Offset) []byte {
	r.t.Helper()
	var all []byte
	for from < l.WrittenEnd() {
		sp, err := l.Read(ReadRequest{Offset: from, Bound: l.WrittenEnd(), MaxBytes: 1 << 20, AtLeastOne: true})
		must(r.t, err)
		if sp == nil {
			break
		}
		b := make([]byte, sp.Len())
		_, err = sp.ReadAt(b, 0)
		must(r.t, err)
		sp.Release()
		for len(b) > 0 {
			batch, rest, err := record.Next(b)
			if errors.Is(err, record.ErrTorn) {
				break
			}
			must(r.t, err)
			must(r.t, batch.CheckCRC())
			if batch.LastOffset() >= from {
				if batch.BaseOffset() > from && len(all) > 0 && batch.BaseOffset() != from {
					r.t.Logf("gap before %d", batch.BaseOffset())
				}
				all = append(all, batch...)
				from = batch.NextOffset()
			}
			b = rest
		}
	}
	return all
}

func (r *rig) file(name string) []byte {
	r.t.Helper()
	b, err := readFile(r.fs, path.Join("/data", name))
	must(r.t, err)
	return b
}

func (r *rig) overwrite(name string, content []byte) {
	r.t.Helper()
	f, err := r.fs.OpenFile(path.Join("/data", name), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	must(r.t, err)
	if len(content) > 0 {
		_, err = f.WriteAt(content, 0)
		must(r.t, err)
	}
	must(r.t, f.Sync())
	must(r.t, f.Close())
}

func (r *rig) flip(name string, at int) {
	r.t.Helper()
	b := r.file(name)
	b[at] ^= 1
	r.overwrite(name, b)
}

func (r *rig) names(dir string) []string {
	r.t.Helper()
	entries, err := r.fs.ReadDir(path.Join("/data", dir))
	must(r.t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	slices.Sort(out)
	return out
}

func logName(base record.Offset, ext string) string { return fmt.Sprintf("t-0/%020d%s", base, ext) }

func TestAppendReadCloseOpen(t *testing.T) {
	r := newRig(t, vfs.NewMem())
	l := r.log(0)
	var progress atomic.Int64
	l.OnProgress(func() { progress.Add(1) })
	for i := range 500 {
		a := r.add(l, sent{count: 3, size: 1000})
		if a.Base != record.Offset(3*i) || a.Last != record.Offset(3*i+2) || a.AppendTimeMs != -1 {
			t.Fatalf("%+v", a)
		}
	}
	if progress.Load() != 500 {
		t.Fatalf("%d notices of progress", progress.Load())
	}
	if n := len(l.Segments()); n != 2 {
		t.Fatalf("%d segments of 1 MiB for 1.5 MB", n)
	}
	r.verify(l)
	r.restart()
	if _, clean := r.dir.CleanStop(); !clean {
		t.Fatal("not a clean stop")
	}
	l = r.log(0)
	r.verify(l)
	for range 500 {
		r.add(l, sent{count: 3, size: 1000})
	}
	r.verify(l)
	must(t, r.dir.Close())
}

func TestKillLosesNothingAcknowledged(t *testing.T) {
	r := newRig(t, vfs.NewCrash())
	l := r.log(0)
	for range 400 {
		r.add(l, sent{count: 3, size: 1000})
	}
	r.kill()
	l = r.log(0)
	if _, clean := r.dir.CleanStop(); clean {
		t.Fatal("a kill passes for a clean stop")
	}
	r.verify(l)
	for range 400 {
		r.add(l, sent{count: 3, size: 1000})
	}
	r.verify(l)
}

func TestReadAtEveryBoundAndSize(t *testing.T) {
	r := newRig(t, vfs.NewMem())
	r.config.Segment.Bytes = 5000
	l := r.log(0)
	for range 60 {
		r.add(l, sent{count: 3, size: 100})
	}
	check := func(l *Log) {
		for bound := record.Offset(0); bound <= 180; bound++ {
			for _, from := range []record.Offset{0, 1, 50, 100, 170} {
				for _, size := range []int{1, 500, 3000, 100_000} {
					sp, err := l.Read(ReadRequest{Offset: from, Bound: bound, MaxBytes: size, AtLeastOne: true})
					must(t, err)
					if from >= bound {
						if sp != nil {
							t.Fatal("a span above the bound")
						}
						continue
					}
					if sp == nil {
						if bound%3 != 0 && from/3 == bound/3 {
							continue // the bound is inside of the only batch
						}
						t.Fatalf("no span for %d below %d", from, bound)
					}
					b := make([]byte, sp.Len())
					_, err = sp.ReadAt(b, 0)
					must(t, err)
					first := record.Batch(b)
					if first.BaseOffset() != from/3*3 {
						t.Fatalf("span for %d begins at %d", from, first.BaseOffset())
					}
					for rest := b; len(rest) > 0; {
						batch, more, err := record.Next(rest)
						if errors.Is(err, record.ErrTorn) {
							break
						}
						must(t, err)
						if batch.LastOffset() >= bound {
							t.Fatalf("span below %d has a batch that ends at %d", bound, batch.LastOffset())
						}
						rest = more
					}
					sp.Release()
				}
			}
		}
	}
	check(l)
	r.restart()
	check(r.log(0))
	must(t, r.dir.Close())
}

func TestOutOfRange(t *testing.T) {
	r := newRig(t, vfs.NewMem())
	l := r.log(0)
	r.add(l, sent{count: 5})
	for _, o := range []record.Offset{-1, 6, math.MaxInt64} {
		if _, err := l.Read(ReadRequest{Offset: o, Bound: math.MaxInt64, MaxBytes: 1}); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Fatalf("offset %d: %v", o, err)
		}
	}
	if sp, err := l.Read(ReadRequest{Offset: 5, Bound: math.MaxInt64, MaxBytes: 1}); sp != nil || err != nil {
		t.Fatalf("at the end: %v %v", sp, err)
	}
	must(t, r.dir.Close())
}

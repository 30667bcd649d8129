package logtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// rotted is a disk with several partitions, before anything is damaged.
type rotted struct {
	name  string
	w     *world
	disk  *vfs.CrashFS
	files []string
	older map[string][]byte // what some files held before
}

// rotWorld makes three partitions with segments, epochs, producers, a moved log start and all kinds of files.
func rotWorld(t testing.TB, stopped bool) *rotted {
	t.Helper()
	w := newWorld(99)
	r := &rotted{name: "after a kill", w: w, older: map[string][]byte{}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(w.open())
	must(w.setMeta(log.Meta{ClusterID: "cluster", NodeID: 7, DirectoryID: "AAAAAAAAAAAAAAAAAAAAAA"}))
	var all []actor
	for range 3 {
		a, err := start(w, partConfig(1))
		must(err)
		all = append(all, a)
	}
	a, b, c := all[0], all[1], all[2]
	must(steps(
		a.sendSynced(3, 1), a.epoch, a.sendSynced(3, 2), a.roll(1), w.sync, b.sendSynced(2, 1), c.sendSynced(3, -1), a.tick(2*time.Minute),
		func() error { r.keepOlder(); return nil },
		a.sendSynced(5, 1), a.epoch, a.roll(2), w.sync, a.sendSynced(4, 1), b.epoch, b.sendSynced(3, 2), b.roll(1), w.sync, c.advance(2),
		func() error { r.keepOlder(); return nil },
		a.sendSynced(1, 2), b.sendSynced(2, 1), a.tick(2*time.Minute), a.sendSynced(2, 1), w.observe,
	))
	if stopped {
		r.name = "after a clean stop"
		must(w.stop())
	} else {
		must(a.send(1, 1)())
		must(w.stepped.Run())
		must(w.observe())
	}
	must(writeAll(w.disk, root+"/events-0/"+log.SpareFile, nil))
	r.disk = w.disk.Fork(vfs.Policy{Kind: vfs.KeepAll}, 0)
	r.files = listFiles(r.disk, root)
	w.closed()
	w.hooked(nil)
	return r
}

// keepOlder remembers all files as they are now.
func (r *rotted) keepOlder() {
	for _, name := range listFiles(r.w.disk, root) {
		r.older[name] = readAll(r.w.disk, name)
	}
}

func listFiles(fs vfs.FS, dir string) []string {
	entries, err := fs.ReadDir(dir)
	if err != nil {
		panic(err)
	}
	var all []string
	for _, e := range entries {
		name := dir + "/" + e.Name()
		switch {
		case e.IsDir():
			all = append(all, listFiles(fs, name)...)
		case e.Name() != log.LockFile:
			all = append(all, name)
		}
	}
	return all
}

func writeAll(fs vfs.FS, name string, content []byte) error {
	f, err := fs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if len(content) > 0 {
		_, err = f.WriteAt(content, 0)
	}
	return errors.Join(err, f.Close())
}

// rots are the ways a file can be damaged. A nil answer takes the file away.
var rots = []struct {
	name string
	do   func(r *rotted, file string, b []byte, rng *rand.Rand) []byte
}{
	{"a bit is flipped", func(_ *rotted, _ string, b []byte, rng *rand.Rand) []byte {
		if len(b) > 0 {
			b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
		}
		return b
	}},
	{"a sector is zero", func(_ *rotted, _ string, b []byte, rng *rand.Rand) []byte {
		if len(b) > 0 {
			at := rng.IntN(len(b)) &^ 511
			clear(b[at:min(at+512, len(b))])
		}
		return b
	}},
	{"two sectors are swapped", func(_ *rotted, _ string, b []byte, rng *rand.Rand) []byte {
		if n := len(b) / 512; n > 1 {
			i, j := rng.IntN(n)*512, rng.IntN(n)*512
			swap := bytes.Clone(b[i : i+512])
			copy(b[i:i+512], b[j:j+512])
			copy(b[j:j+512], swap)
		}
		return b
	}},
	{"an older version is back", func(r *rotted, file string, b []byte, _ *rand.Rand) []byte {
		if old, ok := r.older[file]; ok {
			return bytes.Clone(old)
		}
		for _, name := range r.files { // another one of its kind
			if path.Ext(name) == path.Ext(file) && name != file {
				return readAll(r.disk, name)
			}
		}
		return b
	}},
	{"the end is gone", func(_ *rotted, _ string, b []byte, rng *rand.Rand) []byte {
		return b[:rng.IntN(len(b)+1)]
	}},
	{"garbage follows", func(_ *rotted, _ string, b []byte, rng *rand.Rand) []byte {
		for range 1 + rng.IntN(600) {
			b = append(b, byte(rng.Uint32()))
		}
		return b
	}},
	{"it is missing", func(*rotted, string, []byte, *rand.Rand) []byte { return nil }},
}

// damage is what a mutation did.
type damage struct {
	r    *rotted
	file string
	rot  string
	base string // name of the file without its directory
	was  []byte
	is   []byte // nil: missing
	disk *vfs.CrashFS
	mark map[[16]byte]log.Mark
}

// spoil applies a mutation to a copy of the disk.
func (r *rotted) spoil(file string, rot int, rng *rand.Rand) (*damage, error) {
	disk := r.disk.ForkKilled()
	was := readAll(disk, file)
	is := rots[rot].do(r, file, bytes.Clone(was), rng)
	d := &damage{r: r, file: file, rot: rots[rot].name, base: path.Base(file), was: was, is: is, mark: r.marks()}
	var err error
	if is == nil && rots[rot].name == "it is missing" {
		err = disk.Remove(file)
	} else {
		d.is = append([]byte{}, is...)
		err = writeAll(disk, file, is)
	}
	d.disk = disk.Fork(vfs.Policy{Kind: vfs.KeepAll}, 0)
	return d, err
}

// marks are the marks before the damage.
func (r *rotted) marks() map[[16]byte]log.Mark {
	all := map[[16]byte]log.Mark{}
	found, err := log.DecodeMarks(readAll(r.disk, root+"/"+log.MarksFile))
	if err != nil {
		return all
	}
	for _, s := range found.Live() {
		all[s.Mark.TopicID] = s.Mark
	}
	return all
}

// hits are the batches of a partition that the damage changed, by index.
func (d *damage) hits(p *part) map[int]bool {
	hit := map[int]bool{}
	if path.Dir(d.file) != d.r.dir(p) || path.Ext(d.file) != ".log" {
		return hit
	}
	var base record.Offset
	_, _ = fmt.Sscanf(d.base, "%d", &base)
	at := 0
	for i := range p.m.batches {
		b := &p.m.batches[i]
		if b.base < base {
			continue
		}
		if at+len(b.stored) > len(d.was) {
			break
		}
		if at+len(b.stored) > len(d.is) || !bytes.Equal(d.is[at:at+len(b.stored)], b.stored) {
			hit[i] = true
		}
		at += len(b.stored)
	}
	return hit
}

func (r *rotted) dir(p *part) string { return root + "/" + log.DirName(p.id.Topic, p.id.Partition) }

// check opens the damaged directory.
func (d *damage) check() error {
	w := d.r.w
	promises := w.promises(false)
	r := &reopened{w: w, fs: d.disk, stepped: newStepped()}
	r.reset()
	dir, err := log.OpenDir(dirOptions(d.disk, r.stepped, w.now.Add(time.Minute)))
	if d.base == log.MetaFile && (errors.Is(err, log.ErrBadFile) || errors.Is(err, log.ErrNewerVersion)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the directory does not open: %w", err)
	}
	r.dir = dir
	for _, p := range w.parts {
		l, err := dir.OpenLog(p.id, p.c)
		if d.mayRefuse(p, err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s does not open: %w", p, err)
		}
		r.logs[p], r.ends[p], r.starts[p] = l, l.StableEnd(), l.StartOffset()
		want := promises[p]
		if err := d.checkPart(p, l, want); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	return d.use(r)
}

// mayRefuse says that an error of opening is one that the damage allows: the file reads as one of another topic, or as one
// of a later version.
func (d *damage) mayRefuse(p *part, err error) bool {
	if path.Dir(d.file) != d.r.dir(p) {
		return false
	}
	switch d.base {
	case log.PartitionFile:
		return errors.Is(err, log.ErrTopicID) || errors.Is(err, log.ErrNewerVersion)
	case log.EpochFile:
		return errors.Is(err, log.ErrNewerVersion)
	}
	return false
}

func (d *damage) checkPart(p *part, l *log.Log, want promise) error {
	hit := d.hits(p)
	short := path.Ext(d.file) == ".log" && path.Dir(d.file) == d.r.dir(p) && len(d.is) < len(d.was)
	if d.base == log.MarksFile && l.StartOffset() < want.startMin && d.rot != "a bit is flipped" { // no slot is left that has the log start
		batches, _ := p.m.upTo(l.WrittenEnd())
		return errors.Join(checkContent(l, batches), checkProducers(l, batches, batches))
	}
	if len(hit) == 0 && !short {
		if err := checkLog(p, l, want); err != nil {
			return err
		}
		return checkTimes(p, l)
	}
	return d.checkHit(p, l, hit)
}

// checkHit checks a log with damaged batches: they alone are lost, and nothing wrong is read.
func (d *damage) checkHit(p *part, l *log.Log, hit map[int]bool) error {
	mark := d.mark[p.id.TopicID].Offset
	end, want := l.WrittenEnd(), p.m.end()
	for i := range p.m.batches {
		if b := &p.m.batches[i]; hit[i] && b.base >= mark {
			want = min(want, b.base)
		}
	}
	gone := len(d.is) < len(d.was) // bytes are missing, not wrong
	missing, lost := l.MissingData()
	switch {
	case end == want:
	case gone && lost && end < want && missing.Mark == mark:
	case gone && end < want && end >= mark:
	default:
		return fmt.Errorf("the end is %d, want %d (mark %d, missing %+v %v)", end, want, mark, missing, lost)
	}
	for i := range p.m.batches {
		b := &p.m.batches[i]
		if b.last < l.StartOffset() || b.base >= end {
			continue
		}
		got, err := first(l, max(b.base, l.StartOffset()))
		switch {
		case err == nil && got == nil && gone:
		case err == nil && got == nil:
			return fmt.Errorf("nothing is read at %d, and no error", b.base)
		case err == nil && d.same(got, b):
		case err == nil && hit[i] && gone && d.isOther(p, got, i): // the hole is hopped over
		case err == nil:
			return fmt.Errorf("WRONG: reading at %d gives a batch from %d to %d with a right checksum (damaged: %v)", b.base, got.BaseOffset(), got.LastOffset(), hit[i])
		case !hit[i]:
			return fmt.Errorf("a sound batch at %d is not read: %w", b.base, err)
		case gone:
		case !errors.Is(err, log.ErrCorruptBatch):
			return fmt.Errorf("the damaged batch at %d answers %w", b.base, err)
		}
	}
	return nil
}

// same compares a batch that was read, but for the leader epoch where that is the damage: no checksum covers it.
func (d *damage) same(got record.Batch, b *sent) bool {
	want := bytes.Clone(b.stored)
	copy(want[12:16], got[12:16])
	return bytes.Equal(got, want)
}

// isOther says that a batch is a later one of the partition.
func (d *damage) isOther(p *part, got record.Batch, after int) bool {
	return slices.ContainsFunc(p.m.batches[after+1:], func(s sent) bool { return bytes.Equal(s.stored, got) })
}

// first reads one batch, as a consumer that checks its CRC does; nil where there is none.
func first(l *log.Log, o record.Offset) (record.Batch, error) {
	sp, err := l.Read(log.ReadRequest{Offset: o, Bound: l.WrittenEnd(), MaxBytes: 1 << 20, AtLeastOne: true})
	if err != nil || sp == nil {
		return nil, err
	}
	defer sp.Release()
	b := make([]byte, sp.Len())
	if _, err := sp.ReadAt(b, 0); err != nil {
		return nil, err
	}
	if len(b) < record.HeaderSize {
		return nil, fmt.Errorf("%d bytes are no batch", len(b))
	}
	n := int(binary.BigEndian.Uint32(b[8:])) + 12
	if n > len(b) || n < record.HeaderSize {
		return nil, fmt.Errorf("a batch of %d bytes in %d", n, len(b))
	}
	batch := record.Batch(b[:n])
	return batch, batch.CheckCRC()
}

// checkTimes looks up the time of every batch.
func checkTimes(p *part, l *log.Log) error {
	for i := range p.m.batches {
		b := &p.m.batches[i]
		if b.base < l.StartOffset() || b.base >= l.WrittenEnd() {
			continue
		}
		got, ok, err := l.OffsetForTime(b.firstMs, l.WrittenEnd())
		if err != nil || !ok || got.Offset != b.base {
			return fmt.Errorf("the time %d is found at %+v (%v, %v), want %d", b.firstMs, got, ok, err, b.base)
		}
	}
	return nil
}

// use lets retention run and appends to what opened.
func (d *damage) use(r *reopened) error {
	w := *r.w
	w.dir, w.stepped = r.dir, r.stepped
	w.parts = nil
	for _, p := range r.w.parts {
		if l := r.logs[p]; l != nil {
			c := p.c
			c.Retention.Age = 24 * time.Hour
			l.SetConfig(c)
		}
	}
	now := w.now.Add(time.Minute)
	r.dir.Tick(now)
	r.dir.Tick(now.Add(6 * time.Minute))
	for _, p := range r.w.parts {
		l := r.logs[p]
		if l == nil {
			continue
		}
		if len(d.hits(p)) == 0 && l.StartOffset() != r.starts[p] {
			return fmt.Errorf("%s: retention moved the start of fresh records from %d to %d", p, r.starts[p], l.StartOffset())
		}
		q := *p
		q.l = l
		batches, whole := q.m.upTo(l.WrittenEnd())
		q.m.batches = slices.Clone(batches)
		if len(d.hits(p)) == 0 && whole {
			if err := resend(&q); err != nil {
				return fmt.Errorf("%s: %w", p, err)
			}
		}
		if err := w.lead(&q); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		o := record.NewOptions()
		b := record.NewBuilder(o)
		b.Append(now.UnixMilli(), nil, []byte("after"))
		batch, err := b.Batch(w.codecs)
		if err != nil {
			return err
		}
		got, err := l.Append(log.Append{Batch: batch, Epoch: q.epoch, NowMs: now.UnixMilli(), Checked: record.Result{MaxTimestamp: now.UnixMilli()}})
		if err != nil {
			return fmt.Errorf("%s: append after damage: %w", p, err)
		}
		if mark := d.mark[p.id.TopicID].Offset; got.Base < mark {
			return fmt.Errorf("%s: offset %d is given out again, the mark was %d", p, got.Base, mark)
		}
	}
	return r.stepped.Run()
}

// rotter damages directories.
type rotter struct {
	seed    uint64
	budget  budget
	targets []rotTarget
	at      atomic.Int64

	mu       sync.Mutex
	failures []string
	kinds    map[string]bool
	most     int // failures after which it stops
}

type rotTarget struct {
	r    *rotted
	file string
	rot  int
}

func newRotter(t testing.TB, seed uint64, b budget) *rotter {
	x := &rotter{seed: seed, budget: b, kinds: map[string]bool{}, most: 12}
	for _, r := range []*rotted{rotWorld(t, false), rotWorld(t, true)} {
		for _, f := range r.files {
			for i := range rots {
				x.targets = append(x.targets, rotTarget{r, f, i})
			}
		}
	}
	rand.New(rand.NewPCG(seed, 1)).Shuffle(len(x.targets), func(i, j int) { x.targets[i], x.targets[j] = x.targets[j], x.targets[i] })
	return x
}

func (x *rotter) run() {
	var wait sync.WaitGroup
	for range workers() {
		wait.Go(func() {
			for {
				i := int(x.at.Add(1)) - 1
				if x.budget.spent(i) || !x.one(i) {
					return
				}
			}
		})
	}
	wait.Wait()
}

// one damages a directory; false says that enough was found.
func (x *rotter) one(i int) bool {
	c := x.targets[i%len(x.targets)]
	d, err := c.r.spoil(c.file, c.rot, rand.New(rand.NewPCG(x.seed, uint64(i))))
	if err == nil {
		err = guard(d.check)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if err == nil {
		return len(x.failures) < x.most
	}
	kind := path.Ext(c.file) + " " + withoutDigits(err)
	if kind = kind[:min(len(kind), 100)]; !x.kinds[kind] {
		x.kinds[kind] = true
		x.failures = append(x.failures, fmt.Sprintf("%s: %s: %s (number %d, KEEPLOG_SEED=%d): %v", c.r.name, c.file, rots[c.rot].name, i, x.seed, err))
	}
	return len(x.failures) < x.most
}

// TestRot damages every kind of file in every way, after a kill and after a clean stop.
func TestRot(t *testing.T) {
	x := newRotter(t, seedOf(t), newBudget(1500*time.Millisecond))
	x.run()
	for _, f := range x.failures {
		t.Error(f)
	}
	t.Logf("%d damaged directories, %d kinds of damage of %d files", x.at.Load(), len(x.targets), len(x.targets)/len(rots))
}

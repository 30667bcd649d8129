package logtest

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

const root = "/data"

var began = time.UnixMilli(1_800_000_000_000)

// world is a data directory and the model of it.
type world struct {
	disk    *vfs.CrashFS
	below   *swapFS       // what faulty stands on
	faulty  *vfs.FaultyFS // nil: the log writes to disk itself
	dir     *log.Dir      // nil while closed
	stepped *log.Stepped
	codecs  *record.Codecs
	shared  *sync.Mutex // guards now and rng
	now     time.Time
	parts   []*part
	ids     byte // topic ids given so far
	rng     *rand.Rand
	meta    [2]log.Meta // what may be in meta.properties: the old one and the new one
	trace   []string    // the operations so far
	// at is called at every crash point; may be nil.
	at func(point string)
	// strict says that no call is broken: every error is a failure.
	strict bool
}

func newWorld(seed uint64) *world {
	w := &world{disk: vfs.NewCrash(), codecs: sharedCodecs, now: began, rng: rand.New(rand.NewPCG(seed, 7)), shared: new(sync.Mutex), strict: true}
	w.meta = [2]log.Meta{{NodeID: -1}, {NodeID: -1}}
	return w
}

// sharedCodecs holds no state that matters; making one for each state would cost more than the rest.
var sharedCodecs = record.NewCodecs()

// clone is the same world on a copy of the disk after a process kill; it is closed.
func (w *world) clone() *world {
	c := *w
	c.disk, c.below, c.faulty, c.dir, c.stepped, c.at = w.disk.ForkKilled(), nil, nil, nil, nil, nil
	c.parts = nil
	for _, p := range w.parts {
		q := *p
		q.l = nil
		q.m.batches = q.m.batches[:len(q.m.batches):len(q.m.batches)]
		c.parts = append(c.parts, &q)
	}
	c.trace = nil
	c.rng = rand.New(rand.NewPCG(uint64(len(w.trace)), 11))
	return &c
}

func (w *world) fs() vfs.FS {
	if w.faulty != nil {
		return w.faulty
	}
	return w.disk
}

// dirOptions are the same for the workload and for the oracle.
func dirOptions(fs vfs.FS, c log.Committer, now time.Time) log.DirOptions {
	return log.DirOptions{
		FS: fs, Path: root, Logger: quiet, Codecs: sharedCodecs, Now: func() time.Time { return now }, Committer: c,
		Settings: log.Settings{Reserve: -1, RecoveryThreads: 1, FlushConcurrency: 1, OpenSegments: 2, Seed: 1},
	}
}

var quiet = slog.New(slog.DiscardHandler)

// partConfig is a topic with tiny indexes and without retention.
func partConfig(flushMessages int64) log.Config {
	c := config.Topic{Cleanup: config.Cleanup{Delete: true}, MaxMessageBytes: 1 << 20, MinInsyncReplicas: 1}
	c.Compression.Type = "producer"
	c.Flush = config.Flush{Messages: flushMessages, Interval: config.Forever}
	c.Retention = config.Retention{Bytes: -1, Age: config.Forever}
	c.Segment = config.Segment{Bytes: 1 << 20, Age: config.Forever, IndexBytes: 96, IndexInterval: 150}
	c.FileDeleteDelay = time.Second
	return c
}

// hooked calls at before every call that changes the disk.
func (w *world) hooked(at func(string)) {
	w.at = at
	w.disk.SetHook(nil)
	if at == nil {
		return
	}
	w.disk.SetHook(func(e vfs.Event) {
		if e.Phase == vfs.Before {
			at(fmt.Sprintf("before call %d, %s %s", e.Index, e.Op, e.Path))
		}
	})
}

// observe takes what is published into the model.
func (w *world) observe() error {
	for _, p := range w.parts {
		if p.l == nil || p.state != live {
			continue
		}
		stable := p.l.StableEnd()
		if !p.c.Flush.DurableOnAck() {
			stable = p.l.DurableEnd()
		}
		if p.m.renewed >= 0 {
			continue
		}
		if p.m.cut >= 0 {
			stable = min(stable, p.m.cut)
		} else if stable < p.m.floor {
			return fmt.Errorf("%s: the stable end went back from %d to %d", p, p.m.floor, stable)
		}
		p.m.floor = max(p.m.floor, stable)
	}
	return nil
}

// open opens the directory and all partitions that are not deleted.
func (w *world) open() error {
	w.stepped = new(log.Stepped)
	d, err := log.OpenDir(dirOptions(w.fs(), w.stepped, w.now))
	if err != nil {
		return err
	}
	w.dir = d
	var errs []error
	for _, p := range w.parts {
		if p.state == deleted {
			continue
		}
		errs = append(errs, w.openPart(p))
	}
	return errors.Join(errs...)
}

func (w *world) openPart(p *part) error {
	l, err := w.dir.OpenLog(p.id, p.c)
	if err != nil {
		return err
	}
	if p.state == deleting {
		return w.deletePart(p, l)
	}
	p.state = live
	// an append that failed with the directory is decided now
	if batches, ok := p.m.upTo(l.WrittenEnd()); ok && len(batches) > len(p.m.batches) {
		p.m.batches = batches
	}
	p.m.pending = nil
	if end := l.WrittenEnd(); end < p.m.end() {
		p.m.truncate(end)
	}
	p.l = l
	return w.lead(p)
}

// lead begins a leader epoch that was never used.
func (w *world) lead(p *part) error {
	p.epoch = max(p.epoch, p.l.LatestEpoch()) + 1
	return p.l.StartEpoch(p.epoch)
}

// addPart creates a partition.
func (w *world) addPart(topic string, partition int32, c log.Config) (*part, error) {
	w.ids++
	p := &part{id: log.Identity{Topic: topic, Partition: partition, TopicID: [16]byte{w.ids, 0xAA, 15: w.ids}}, c: c, m: newModel()}
	w.parts = append(w.parts, p)
	return p, w.openPart(p)
}

func (w *world) deletePart(p *part, l *log.Log) error {
	p.state, p.l = deleting, nil
	if err := w.dir.DeleteLog(l); err != nil {
		return err
	}
	p.state = deleted
	return nil
}

// live are the partitions that can be worked on.
func (w *world) live() []*part {
	var all []*part
	for _, p := range w.parts {
		if p.state == live && p.l != nil {
			all = append(all, p)
		}
	}
	return all
}

// shape is what a batch looks like.
type shape struct {
	producer record.ProducerID // −1: none
	bump     bool              // the producer begins a new epoch
	records  int
	size     int // bytes of each value
}

// build makes the next batch for a partition.
func (w *world) build(p *part, s shape) sent {
	o := record.NewOptions()
	if s.producer >= 0 {
		o.ProducerID, o.ProducerEpoch, o.BaseSequence = s.producer, 0, 0
		if known := producers(p.m.batches)[s.producer]; known != nil {
			o.ProducerEpoch, o.BaseSequence = known.epoch, known.next
			if s.bump {
				o.ProducerEpoch, o.BaseSequence = known.epoch+1, 0
			}
		}
	}
	b := record.NewBuilder(o)
	first := w.pass(time.Second).UnixMilli()
	value := w.bytes(s.size)
	for i := range s.records {
		b.Append(first+int64(i), nil, value)
	}
	batch, err := b.Batch(w.codecs)
	if err != nil {
		panic(err)
	}
	base := p.m.end()
	stored := record.Batch(bytes.Clone(batch))
	stored.SetBaseOffset(base)
	return sent{base: base, last: base + record.Offset(s.records) - 1, stored: stored, firstMs: first}
}

// pass lets time pass, and says what it is then. Where a call hangs, two goroutines use a world.
func (w *world) pass(d time.Duration) time.Time {
	w.shared.Lock()
	defer w.shared.Unlock()
	w.now = w.now.Add(d)
	return w.now
}

// bytes are random.
func (w *world) bytes(n int) []byte {
	w.shared.Lock()
	defer w.shared.Unlock()
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(w.rng.Uint32())
	}
	return b
}

// append gives one batch to the log.
func (w *world) append(p *part, s shape) error {
	if p.m.pending != nil {
		return w.dir.Offline()
	}
	b := w.build(p, s)
	epoch := p.l.LatestEpoch()
	b.stored.SetPartitionLeaderEpoch(epoch)
	p.m.pending = []sent{b}
	given := record.Batch(bytes.Clone(b.stored))
	given.SetBaseOffset(0)
	r, err := p.l.Append(log.Append{Batch: given, Checked: record.Result{MaxTimestamp: b.stored.MaxTimestamp()}, Epoch: epoch, NowMs: b.firstMs})
	if err != nil {
		if !errors.Is(err, log.ErrOffline) { // with the directory down nobody knows what is on disk
			p.m.pending = nil
		}
		return err
	}
	if r.Base != b.base || r.Last != b.last || r.Duplicate {
		return fmt.Errorf("%s: append at %d answered %+v", p, b.base, r)
	}
	p.m.batches = append(p.m.batches, b)
	p.m.pending = nil
	return nil
}

// sync flushes all that is dirty.
func (w *world) sync() error {
	err := w.stepped.Run()
	for _, p := range w.live() {
		p.l.SetWatermark(p.l.StableEnd())
		if err == nil && p.l.StableEnd() != p.m.end() {
			return fmt.Errorf("%s: the stable end is %d after a flush of %d", p, p.l.StableEnd(), p.m.end())
		}
	}
	return err
}

// tick lets the periodic work be done.
func (w *world) tick(d time.Duration) error {
	w.now = w.now.Add(d)
	w.dir.Tick(w.now)
	err := w.stepped.Run()
	return errors.Join(err, w.dir.Offline())
}

// truncate cuts the last n batches off.
func (w *world) truncate(p *part, n int) error {
	if err := w.stepped.Run(); err != nil {
		return err
	}
	at := len(p.m.batches) - n
	if at < 0 || len(p.m.batches) == 0 {
		return nil
	}
	to := p.m.origin
	if at > 0 {
		to = p.m.batches[at-1].next()
	}
	to = max(to, p.m.startMin)
	if p.m.cut < 0 || to < p.m.cut { // an earlier one may have failed half way
		p.m.cut = to
	}
	p.m.wasCut = true
	err := p.l.TruncateTo(to)
	if err != nil {
		return err
	}
	p.m.truncate(to)
	p.m.cut = -1
	if p.m.end() < to {
		p.m.gap = to
	}
	if end := p.l.WrittenEnd(); end != p.m.end() {
		return fmt.Errorf("%s: end %d after a truncation to %d", p, end, to)
	}
	return w.lead(p)
}

// renew empties the log and lets it begin at an offset.
func (w *world) renew(p *part, o record.Offset) error {
	p.m.renewed = o
	if err := p.l.TruncateFullyAndStartAt(o); err != nil {
		return err
	}
	p.m = newModel()
	p.m.origin, p.m.floor, p.m.startMin, p.m.startMax = o, o, o, o
	return w.lead(p)
}

// advance moves the log start to the middle of what is stable.
func (w *world) advance(p *part, o record.Offset) error {
	p.m.startMax = max(p.m.startMax, o)
	if err := p.l.AdvanceStart(o); err != nil {
		return err
	}
	p.m.startMin = max(p.m.startMin, o)
	if p.l.StartOffset() < o {
		return fmt.Errorf("%s: log start %d after DeleteRecords to %d", p, p.l.StartOffset(), o)
	}
	return nil
}

// roll appends a batch that begins a new segment.
func (w *world) roll(p *part, s shape) error {
	small := p.c
	small.Segment.Bytes = s.size*s.records + 200
	p.l.SetConfig(small)
	err := w.append(p, s)
	p.l.SetConfig(p.c)
	return err
}

// rollByAge ends the segment with nothing behind it.
func (w *world) rollByAge(p *part) error {
	aged := p.c
	aged.Segment.Age = time.Millisecond
	p.l.SetConfig(aged)
	w.now = w.now.Add(2 * time.Second)
	w.dir.Tick(w.now)
	p.l.SetConfig(p.c)
	return w.dir.Offline()
}

// stop closes the directory cleanly.
func (w *world) stop() error {
	err := w.dir.Close()
	if oerr := w.observe(); oerr != nil {
		err = oerr
	}
	w.closed()
	return err
}

func (w *world) closed() {
	w.dir = nil
	for _, p := range w.parts {
		p.l = nil
	}
}

// kill ends the process; the machine goes on.
func (w *world) kill() {
	at := w.at
	w.disk = w.disk.Kill()
	if w.below != nil {
		w.below.FS = w.disk
	}
	w.closed()
	w.hooked(at)
}

// setMeta writes meta.properties.
func (w *world) setMeta(m log.Meta) error {
	w.meta[1] = m
	if err := w.dir.SetMeta(m); err != nil {
		return err
	}
	w.meta[0] = m
	return nil
}

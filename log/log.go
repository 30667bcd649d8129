package log

import (
	"fmt"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/segment"
)

// Log is one partition's log.
type Log struct {
	dir      *Dir
	id       Identity
	path     string
	progress func()

	config    atomic.Pointer[Config]
	view      atomic.Pointer[view]
	start     atomic.Int64 // log start offset
	watermark atomic.Int64 // −1: never told
	failure   atomic.Pointer[error]
	ends      ends

	mu sync.Mutex // the writer's: guards w
	w  writer

	flushMu sync.Mutex // one flush, truncation or closing at a time; taken before mu
	f       flusher
	markMu  sync.Mutex // guards mark and its slot; taken after flushMu, never with mu
	mark    Mark
	moving

	commit   commitState // the coordinator's
	schedule logSchedule // Tick's
	loaded   record.Offset
}

// moving is what a log knows of moves to another directory.
type moving struct {
	future atomic.Bool // this is a copy under way: the replica is elsewhere
	mover  atomic.Pointer[Move]
	// what the mark says of them; guarded by markMu
	moves            uint32
	lineage          uint64
	leaving, arrived bool
	fate             atomic.Int32
}

// A log ends in one way. Its deletion and the takeover by its copy may come at the same time: the first of them is its fate.
const (
	fateOpen = iota
	fateMoved
	fateDeleted
)

// meets says that a fate is the log's.
func (l *Log) meets(fate int32) bool {
	return l.fate.CompareAndSwap(fateOpen, fate) || l.fate.Load() == fate
}

// view is the list of segments, the oldest first; the last is active. It never changes; a new one replaces it.
type view struct {
	segments []*segment.Segment
	// changing is closed when a truncation that this view is part of has ended; nil outside of one.
	changing chan struct{}
}

// find is the index of the segment whose range holds o: the first where o is before all.
func (v *view) find(o record.Offset) int {
	i := sort.Search(len(v.segments), func(i int) bool { return v.segments[i].Base() > o }) - 1
	return max(i, 0)
}

// writer is what appending changes; guarded by Log.mu.
type writer struct {
	active    *segment.Segment
	next      record.Offset
	producers producers
	epochs    epochs
	leading   EpochEntry   // told by StartEpoch and not yet in a batch; epoch −1 for none
	fence     record.Epoch // told by Follow: what this broker leads in an older epoch is refused
	rolled    []rolled     // ended segments that no flush has taken yet
	newNames  bool         // the directory has names that are not durable
	newLog    bool         // made by this process and not yet durable: partition.metadata, and its name in the data directory
	born      uint64       // when it was made, in the order of the directory's new names
	createdMs int64        // when the active segment was made
	jitterMs  int64
	spare     bool
	unflushed int64 // records since the last flush took them
	sinceMs   int64 // when the first of them came
	missing   Missing
	lost      bool // missing holds
	cutting   chan struct{}
}

// rolled is a segment that ended, and the producer state at its end.
type rolled struct {
	seg       *segment.Segment
	next      record.Offset
	producers []Producer
}

// flusher is what flushing remembers; guarded by Log.flushMu.
type flusher struct {
	epochs   []EpochEntry // what leader-epoch-checkpoint holds
	unmarked int64        // bytes made durable since the mark was
	windowAt record.Offset
	windows  []record.Offset // offsets of the window files, the newest last
	dirty    bool            // the mark's slot is not durable
	// owed says that the disk was full when a flush was to be settled, refused is that flush, and ended are the segments that
	// are not sealed since: the next flush makes up for it.
	owed    bool
	refused *flushJob
	ended   []rolled
	// unsettled is the flush whose end is published, and whose epochs, indexes, producers and mark are not written.
	unsettled *flushJob
}

// place is an end: an offset, and where it is.
type place struct {
	offset record.Offset
	at     record.Position
	seg    *segment.Segment
}

// ends are the ends of a log and where its last batches begin. The mutex is held for some loads and stores.
type ends struct {
	mu      sync.Mutex
	written place
	durable place
	tail    *tail

	writtenEnd, stableEnd atomic.Int64
}

// tail remembers where the last batches of the active segment begin, so that who keeps up reads no headers.
type tail struct {
	seg   *segment.Segment
	count uint64 // batches ever noted; the last tailSize are in the ring
	ring  [tailSize]tailEntry
}

const tailSize = 32

type tailEntry struct {
	base record.Offset
	at   record.Position
}

// wrote notes a batch and moves the written end, and with it the stable end unless that waits for a flush.
func (e *ends) wrote(b tailEntry, end place, strict bool) {
	e.mu.Lock()
	if e.tail == nil {
		e.tail = new(tail)
	}
	if e.tail.seg != end.seg {
		*e.tail = tail{seg: end.seg}
	}
	e.tail.ring[e.tail.count%tailSize] = b
	e.tail.count++
	e.written = end
	e.writtenEnd.Store(int64(end.offset))
	if !strict {
		e.stableEnd.Store(int64(end.offset))
	}
	e.mu.Unlock()
}

// find is where the batch that holds o begins and how long it is, if it is one of the last in seg. At the written end the
// size is 0.
func (e *ends) find(seg *segment.Segment, o record.Offset) (at, size record.Position, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.written.seg != seg {
		return 0, 0, false
	}
	if o >= e.written.offset {
		return e.written.at, 0, true
	}
	if e.tail == nil || e.tail.seg != seg {
		return 0, 0, false
	}
	end := e.written.at
	for i := e.tail.count; i > 0 && i+tailSize > e.tail.count; i-- {
		entry := e.tail.ring[(i-1)%tailSize]
		if entry.base <= o {
			return entry.at, end - entry.at, true
		}
		end = entry.at
	}
	return 0, 0, false
}

// set puts all ends at one place, which is durable.
func (e *ends) set(p place) {
	e.mu.Lock()
	e.written, e.durable, e.tail = p, p, nil
	e.writtenEnd.Store(int64(p.offset))
	e.stableEnd.Store(int64(p.offset))
	e.mu.Unlock()
}

// Identity names the partition.
func (l *Log) Identity() Identity { return l.id }

// Path is the partition's directory.
func (l *Log) Path() string { return l.path }

// StartOffset is the log start offset.
func (l *Log) StartOffset() record.Offset { return record.Offset(l.start.Load()) }

// WrittenEnd is the log end offset: the one after the last batch in the page cache.
func (l *Log) WrittenEnd() record.Offset { return record.Offset(l.ends.writtenEnd.Load()) }

// StableEnd is what acknowledgements wait for: the durable end where flush.messages is 1, else the written end.
func (l *Log) StableEnd() record.Offset { return record.Offset(l.ends.stableEnd.Load()) }

// DurableEnd is the offset up to which the disk has everything.
func (l *Log) DurableEnd() record.Offset {
	l.ends.mu.Lock()
	defer l.ends.mu.Unlock()
	return l.ends.durable.offset
}

// OnProgress sets the function that is called, without a lock and perhaps by several goroutines at once, after the stable
// end or the start moved or the log went offline. Set it once, before use.
func (l *Log) OnProgress(f func()) { l.progress = f }

func (l *Log) notify() {
	if l.progress != nil {
		l.progress()
	}
}

// Err is non-nil when the log is offline (ErrOffline) or closed (ErrClosed).
func (l *Log) Err() error {
	if p := l.failure.Load(); p != nil {
		return *p
	}
	return l.dir.Offline()
}

// close stops the log with a reason; the first one stays.
func (l *Log) stop(err error) { l.failure.CompareAndSwap(nil, &err) }

// Config is the configuration in use.
func (l *Log) Config() Config { return *l.config.Load() }

// SetConfig replaces the configuration. A change to flush.messages=1 takes effect after a flush.
func (l *Log) SetConfig(c Config) {
	l.mu.Lock()
	old := l.config.Swap(&c)
	l.w.active.SetOptions(segmentOptions(&c))
	if !c.Flush.DurableOnAck() {
		l.ends.mu.Lock()
		l.ends.stableEnd.Store(l.ends.writtenEnd.Load())
		l.ends.mu.Unlock()
	}
	l.mu.Unlock()
	if c.Flush.DurableOnAck() && !old.Flush.DurableOnAck() {
		l.dir.committer.Dirty(l)
	} else {
		l.notify()
	}
}

func segmentOptions(c *Config) segment.Options {
	return segment.Options{
		MaxBytes: int64(c.Segment.Bytes), IndexBytes: c.Segment.IndexBytes, IndexInterval: int64(c.Segment.IndexInterval),
	}
}

// Size is the bytes of all segments.
func (l *Log) Size() int64 {
	var n int64
	for _, s := range l.view.Load().segments {
		n += s.Size()
	}
	return n
}

// Segments describes the segments, oldest first.
func (l *Log) Segments() []SegmentInfo {
	v := l.view.Load()
	out := make([]SegmentInfo, len(v.segments))
	for i, s := range v.segments {
		out[i] = SegmentInfo{Base: s.Base(), Size: s.Size(), Active: i == len(v.segments)-1}
	}
	return out
}

// Producers lists the idempotent producers known here, by id.
func (l *Log) Producers() []ProducerState {
	l.mu.Lock()
	all := l.w.producers.list()
	l.mu.Unlock()
	out := make([]ProducerState, len(all))
	for i := range all {
		p := &all[i]
		out[i] = ProducerState{
			ID: p.ID, Epoch: p.Epoch, LastSequence: p.last().Last, LastTimestamp: p.LastTimestamp,
			CoordinatorEpoch: p.CoordinatorEpoch, TxnStartOffset: p.TxnStart,
			LastOffset: p.last().LastOffset, LastOffsetDelta: p.last().OffsetDelta, Batches: p.Count,
		}
	}
	return out
}

// EndOffsetForEpoch answers OffsetForLeaderEpoch: the largest known epoch that is at most e, and its end; (−1, −1) when
// unknown. The end of the newest epoch is the log end.
func (l *Log) EndOffsetForEpoch(e record.Epoch) (record.Epoch, record.Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.w.epochs
	if l.w.leading.Epoch >= 0 {
		all.entries = append(all.entries[:len(all.entries):len(all.entries)], l.w.leading)
	}
	return all.endOf(e, l.w.next)
}

// LatestEpoch is the newest leader epoch of the log, that of StartEpoch included; −1 for none.
func (l *Log) LatestEpoch() record.Epoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.w.epochs.latest(), l.w.leading.Epoch)
}

// EpochAt is the leader epoch of the record at o, −1 when unknown.
func (l *Log) EpochAt(o record.Offset) record.Epoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.epochs.at(o)
}

// MissingData says that the log ended below its mark when it was opened: the disk lost durable data. StartEpoch accepts
// that: the next offset is then the mark's, a gap.
func (l *Log) MissingData() (Missing, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.missing, l.w.lost
}

// SetWatermark tells the high watermark: retention stays below it, and replication-offset-checkpoint keeps it.
func (l *Log) SetWatermark(o record.Offset) { l.watermark.Store(int64(o)) }

// CheckpointedWatermark is the high watermark that was read at the opening, 0 for none.
func (l *Log) CheckpointedWatermark() record.Offset { return l.loaded }

// Damages lists the damaged ranges that reading has met, as text for people.
func (l *Log) Damages() []string {
	var out []string
	segments := l.view.Load().segments
	if start, first := l.StartOffset(), segments[0].Base(); start < first {
		out = append(out, fmt.Sprintf("offsets %d to %d are missing", start, first-1))
	}
	for _, s := range segments {
		for _, d := range s.Damages() {
			name := segment.FileName(s.Base(), segment.LogExt)
			if d.From == d.To {
				out = append(out, fmt.Sprintf("%s: batches are missing at the end, up to offset %d", name, d.Next-1))
			} else {
				out = append(out, fmt.Sprintf("%s: bytes %d to %d", name, d.From, d.To))
			}
		}
	}
	return out
}

// Audit reads the whole log and compares it with its indexes. It returns the first thing that is wrong.
func (l *Log) Audit() error {
	for _, s := range l.view.Load().segments {
		if err := s.Audit(); err != nil {
			return err
		}
	}
	return nil
}

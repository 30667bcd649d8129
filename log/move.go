package log

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"sync"
	"time"

	"github.com/keeplog/keeplog/internal/invariant"
	"github.com/keeplog/keeplog/record"
)

// Move copies a log to another data directory of the same node while it is used, and then lets the copy take its place.
//
//	current directory                        target directory
//	t-0        ──Step: durable batches──►    t-0.<32 hex>-future     its mark says that it is a copy
//	  │  TakeOver: no append, cut, start or flush; the rest is copied, producers and epochs handed over, all of it flushed
//	  │                                      the mark says that it is the replica, with a larger number of moves: durable
//	  ▼                                      t-0
//	t-0.<32 hex>-delete                      what waited goes on here
//
// That mark is the one step that decides: before it a start goes on with t-0 of the current directory, after it with the other
// one, whatever the directories are called by then (see SettleMoves). Where it is not known whether that mark has reached the
// disk, the current directory's mark gets a larger number still, before anything is acknowledged there again.
//
// One caller at a time.
type Move struct {
	from   *Log
	to     *Dir
	future *Log
	at     string        // the copy's directory
	behind int64         // bytes copied since the copy was flushed
	held   time.Duration // how long the log was held up
	undone bool          // it took over, and was deleted with the log

	mu      sync.Mutex
	pending cutNote // a truncation that the copy has not followed yet
}

// cutNote is where the copied log was truncated to, the lowest of several.
type cutNote struct {
	due, all bool // all: it began anew at
	at       record.Offset
}

// Errors of a move.
var (
	// ErrNotYet says that the copy cannot take over at the moment.
	ErrNotYet = errors.New("log: the copy is not complete")
	// ErrInTheWay says that the target directory has another directory of the partition's name.
	ErrInTheWay = errors.New("log: the target directory holds a directory of that name")
)

const (
	copyFlush = 16 << 20 // bytes after which a copy is flushed, so that it does not fill the page cache
	lastPart  = 4 << 20  // how much may be left to copy when the log is held up
)

// FutureName is what the directory of a copy is called; ok is false where the topic's name is too long for that.
func FutureName(topic string, partition int32, random [16]byte) (name string, ok bool) {
	name = fmt.Sprintf("%s.%x%s", DirName(topic, partition), random, futureSuffix)
	return name, len(name) <= 255
}

// BeginMove makes the directory of a copy of l, or goes on with one that was under way at the last stop (found). Errors: ErrOffline,
// ErrReserve, ErrInTheWay, ErrName, and those of the file system.
func BeginMove(l *Log, to *Dir, found *Found) (*Move, error) {
	m := &Move{from: l, to: to}
	if !l.mover.CompareAndSwap(nil, m) {
		return nil, fmt.Errorf("log: %s is being moved", l.path)
	}
	if err := m.begin(found); err != nil {
		m.Stop()
		return nil, err
	}
	if found == nil {
		return m, nil
	}
	if err := m.align(); err != nil {
		return nil, errors.Join(err, m.Drop())
	}
	return m, nil
}

func (m *Move) begin(found *Found) (err error) {
	l, to := m.from, m.to
	if err := l.Err(); err != nil {
		return err
	}
	if err := l.markNow(); err != nil { // with its lineage, before anything else has that
		return err
	}
	l.markMu.Lock()
	moves, lineage, start := l.moves+1, l.lineage, max(l.mark.LogStart, l.StartOffset())
	l.markMu.Unlock()
	o := openOptions{Identity: l.id, config: l.Config()}
	switch {
	case to == l.dir:
		return fmt.Errorf("%w: %s", ErrInTheWay, l.path)
	case found != nil:
		o.name, o.bring = path.Base(found.Path), (*Log).openOrCreate
	default:
		if o.name, err = newFutureName(l.id); err != nil {
			return err
		}
		if _, err := to.fs.Stat(path.Join(to.path, DirName(l.id.Topic, l.id.Partition))); err == nil {
			return fmt.Errorf("%w: %s", ErrInTheWay, to.path)
		}
		if err := to.dropCopies(l.id); err != nil {
			return err
		}
		o.bring = func(f *Log) error { return f.create(start) }
	}
	bring := o.bring
	o.bring = func(f *Log) error {
		f.future.Store(true)
		if err := bring(f); err != nil {
			return err
		}
		other := found != nil && f.lineage != lineage
		f.moves, f.lineage = moves, lineage
		if other {
			return f.markNow()
		}
		return nil
	}
	m.at = path.Join(to.path, o.name)
	m.future, err = to.openLog(o)
	return err
}

func newFutureName(id Identity) (string, error) {
	var random [16]byte
	rand.Read(random[:])
	name, ok := FutureName(id.Topic, id.Partition, random)
	if !ok {
		return "", fmt.Errorf("%w: %q is too long to be moved", ErrName, id.Topic)
	}
	return name, nil
}

// Held is for how long appends waited while the copy took over.
func (m *Move) Held() time.Duration { return m.held }

// Target is the directory that the log moves to.
func (m *Move) Target() *Dir { return m.to }

// Copied is the copy's end, and its size in bytes.
func (m *Move) Copied() (end record.Offset, size int64) {
	return m.future.WrittenEnd(), m.future.Size()
}

// cut notes a truncation of the log that is copied. It does not wait for the copy.
func (m *Move) cut(at record.Offset, all bool) {
	if invariant.Seeded(invariant.CutNotFollowed) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch p := &m.pending; {
	case all:
		*p = cutNote{due: true, all: true, at: at}
	case !p.due:
		*p = cutNote{due: true, at: at}
	case !p.all:
		p.at = min(p.at, at)
	}
}

func (m *Move) takeCut() cutNote {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.pending
	m.pending = cutNote{}
	return c
}

// Step copies up to so many bytes of what is durable, at least one batch where there is one, in buf where that is large enough.
// caughtUp says that nothing was left.
func (m *Move) Step(buf []byte) (copied int, caughtUp bool, err error) {
	if err := m.follow(); err != nil {
		return 0, false, err
	}
	return m.copy(buf, m.from.DurableEnd())
}

// follow brings the copy's two ends in line with a truncation and a new log start.
func (m *Move) follow() error {
	switch c := m.takeCut(); {
	case c.all:
		if err := m.future.TruncateFullyAndStartAt(c.at); err != nil {
			m.cut(c.at, true)
			return err
		}
	case c.due && c.at < m.future.WrittenEnd():
		if err := m.future.TruncateTo(c.at); err != nil {
			m.cut(c.at, false)
			return err
		}
	}
	return m.moveStart(m.from.StartOffset())
}

func (m *Move) moveStart(start record.Offset) error {
	switch {
	case start <= m.future.StartOffset():
		return nil
	case start > m.future.WrittenEnd():
		return m.future.TruncateFullyAndStartAt(start)
	}
	if err := m.future.Flush(); err != nil {
		return err
	}
	return m.future.AdvanceStart(start)
}

// copy appends what lies between the copy's end and bound.
func (m *Move) copy(buf []byte, bound record.Offset) (copied int, caughtUp bool, err error) {
	at := m.future.WrittenEnd()
	if at >= bound {
		return 0, true, m.future.Err()
	}
	span, err := m.from.Read(ReadRequest{Offset: at, Bound: bound, MaxBytes: max(len(buf), 1), AtLeastOne: true})
	if errors.Is(err, ErrOffsetOutOfRange) && m.from.Err() == nil { // the start has moved, or it is being cut
		return 0, false, nil
	}
	if err != nil || span == nil {
		return 0, err == nil, err
	}
	if span.Len() > len(buf) {
		buf = make([]byte, span.Len())
	}
	n, err := span.ReadAt(buf[:span.Len()], 0)
	whole := n == span.Len()
	span.Release()
	if err != nil && (!whole || !errors.Is(err, io.EOF)) {
		return 0, false, fmt.Errorf("log: reading %s: %w", m.from.path, m.from.failed(err))
	}
	a, err := m.future.AppendReplica(buf[:n], math.MaxInt32)
	if err != nil && !m.cutComes() {
		return 0, false, fmt.Errorf("log: copying to %s: %w", m.future.path, err)
	}
	if a.Last < a.Base && !m.cutComes() {
		return 0, false, fmt.Errorf("%w: nothing could be read of %s at offset %d", ErrCorruptBatch, m.from.path, at)
	}
	m.future.SetWatermark(min(record.Offset(m.from.watermark.Load()), m.future.WrittenEnd()))
	if m.behind += int64(n); m.behind >= copyFlush {
		m.behind = 0
		err = m.future.Flush()
	}
	return n, false, err
}

// cutComes says that the copied log was truncated since the copy has followed.
func (m *Move) cutComes() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pending.due
}

// align cuts a copy that was made before the last stop to what it has in common with the log: a truncation, or the loss of a tail
// that was not flushed, may have come in between. Logs of one replica are compared by epochs, as those of different ones are.
func (m *Move) align() error {
	f, l := m.future, m.from
	for f.WrittenEnd() > f.StartOffset() {
		epoch := f.LatestEpoch()
		known, end := l.EndOffsetForEpoch(epoch)
		to := min(end, l.WrittenEnd())
		if epoch < 0 || end < 0 {
			return f.TruncateFullyAndStartAt(l.StartOffset())
		}
		if known < epoch {
			_, own := f.EndOffsetForEpoch(known)
			if to = min(to, own); own < 0 {
				return f.TruncateFullyAndStartAt(l.StartOffset())
			}
		}
		if to < f.WrittenEnd() {
			if err := f.TruncateTo(to); err != nil {
				return err
			}
		}
		if known == epoch {
			break
		}
	}
	return m.compareLast()
}

// compareLast begins the copy anew where its last batch is not the log's.
func (m *Move) compareLast() error {
	f, l := m.future, m.from
	end := f.WrittenEnd()
	if end > l.WrittenEnd() || end < l.StartOffset() {
		return f.TruncateFullyAndStartAt(l.StartOffset())
	}
	if end <= max(f.StartOffset(), l.StartOffset()) {
		return nil
	}
	mine, err := f.batchAt(end - 1)
	if err != nil {
		return err
	}
	theirs, err := l.batchAt(end - 1)
	if err != nil {
		return err
	}
	if (mine == nil) != (theirs == nil) || mine != nil && !bytes.Equal(mine[:record.HeaderSize], theirs[:record.HeaderSize]) {
		return f.TruncateFullyAndStartAt(l.StartOffset())
	}
	return nil
}

// Spent says that the copy cannot be gone on with: it was closed to take over, and did not.
func (m *Move) Spent() bool { return m.future.Err() != nil }

// Stop ends a move and leaves the copy as it is: its log stays open.
func (m *Move) Stop() { m.from.mover.CompareAndSwap(m, nil) }

// Drop ends a move and deletes the copy.
func (m *Move) Drop() error {
	m.Stop()
	if m.undone {
		return nil
	}
	return m.to.deleteLog(m.future, m.at)
}

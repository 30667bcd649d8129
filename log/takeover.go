package log

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"github.com/keeplog/keeplog/index"
	"github.com/keeplog/keeplog/internal/invariant"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/segment"
)

// TakeOver lets the copy take the log's place. publish is called with the log of the target directory, which is open, has
// everything, and is durable; calls that come to the old one from then on are answered with ErrMoved, and none was answered since
// the two were compared. The old log is deleted after that; an error of that is told by ErrMoved, and a later start deletes it.
// ErrNotYet leaves all as it was. After any other error the log goes on where it was, and the copy is of no use: Drop it. A log that is being
// deleted is not taken over, however far the copy is: the error is ErrClosed, and the copy is deleted.
func (m *Move) TakeOver(buf []byte, publish func(*Log)) error {
	if err := m.approach(); err != nil {
		return err
	}
	l := m.from
	begun := time.Now()
	thaw, err := l.freeze()
	if err != nil {
		return err
	}
	next, err := m.exchange(buf)
	if err != nil {
		thaw()
		l.notify() // of what the freeze has flushed
		return err
	}
	if !l.meets(fateMoved) {
		err := m.undo(next)
		thaw()
		l.notify()
		return err
	}
	publish(next)
	l.dir.marks.remember(l.mark) // that it is leaving
	l.stop(fmt.Errorf("%w: %s", ErrMoved, m.to.path))
	l.mover.Store(nil)
	thaw()
	m.held = time.Since(begun)
	l.notify()
	next.notify()
	if err := l.dir.deleteLog(l, l.path); err != nil {
		return fmt.Errorf("%w: the old directory is not deleted: %w", ErrMoved, err)
	}
	return nil
}

// undo deletes the log that should have taken over, because the one that it comes from is being deleted.
func (m *Move) undo(next *Log) error {
	m.Stop()
	m.undone = true
	return errors.Join(fmt.Errorf("%w: %s is deleted", ErrClosed, m.from.path), m.to.DeleteLog(next))
}

// approach does what can be done before the log is held up.
func (m *Move) approach() error {
	if _, lost := m.from.MissingData(); lost {
		return fmt.Errorf("%w: %s misses data that was durable", ErrNotYet, m.from.path)
	}
	if _, lost := m.future.MissingData(); lost { // its mark stays where it was: it would be taken for a replica that has lost data
		m.cut(m.from.StartOffset(), true)
		return fmt.Errorf("%w: %s misses data that was durable", ErrNotYet, m.future.path)
	}
	for _, l := range []*Log{m.from, m.future} {
		if err := l.Flush(); err != nil {
			return err
		}
	}
	if m.cutComes() || m.future.WrittenEnd() < m.from.StartOffset() {
		return ErrNotYet
	}
	if left, _ := m.from.Available(m.future.WrittenEnd(), m.from.WrittenEnd()); left > lastPart {
		return ErrNotYet
	}
	return m.to.writeWatermarks(m.to.open())
}

// freeze flushes a log and keeps it as it is: appends, truncations, flushes and new log starts wait for the thaw. Reads go on.
func (l *Log) freeze() (thaw func(), err error) {
	l.flushMu.Lock()
	release := l.hold()
	err = l.flushLocked(flushData)
	l.markMu.Lock()
	thaw = func() {
		l.markMu.Unlock()
		release()
		l.flushMu.Unlock()
	}
	if err != nil {
		thaw()
		return nil, err
	}
	return thaw, nil
}

// hold lets appends, truncations and rolls wait for the release. The caller holds flushMu.
func (l *Log) hold() (release func()) {
	if invariant.Seeded(invariant.LogNotHeld) {
		return func() {}
	}
	l.lockWriter()
	changing := make(chan struct{})
	l.w.cutting = changing
	l.mu.Unlock()
	return func() {
		l.mu.Lock()
		l.w.cutting = nil
		l.mu.Unlock()
		close(changing)
	}
}

// exchange does the part during which the log is frozen, and returns the log that takes over.
func (m *Move) exchange(buf []byte) (*Log, error) {
	l := m.from
	if m.cutComes() || l.w.lost {
		return nil, ErrNotYet
	}
	if err := m.complete(buf); err != nil {
		return nil, err
	}
	if err := m.handOver(); err != nil {
		return nil, err
	}
	if err := m.future.closeClean(); err != nil {
		return nil, err
	}
	if err := m.leave(); err != nil {
		return nil, err
	}
	next, err := m.decide()
	if err == nil {
		return next, nil
	}
	l.leaving = false
	if invariant.Seeded(invariant.OutcomeNotOutdone) {
		return nil, err
	}
	// the mark that decides may be on the disk, or come there: the one here outdoes it before anything else is written
	l.moves = m.future.moves + 1
	if perr := l.putFirmLocked(); perr != nil {
		return nil, errors.Join(err, l.dir.fail(perr))
	}
	return nil, errors.Join(err, l.dir.syncMarks())
}

// complete copies the rest.
func (m *Move) complete(buf []byte) error {
	l := m.from
	if err := m.moveStart(max(l.mark.LogStart, l.StartOffset())); err != nil {
		return err
	}
	for left := int64(2 * lastPart); ; {
		n, done, err := m.copy(buf, l.WrittenEnd())
		if err != nil {
			return err
		}
		if done {
			return m.compare()
		}
		if left -= int64(n); left < 0 || n == 0 {
			return ErrNotYet
		}
	}
}

// compare looks whether both logs have the same ends now.
func (m *Move) compare() error {
	l, f := m.from, m.future
	if start := max(l.mark.LogStart, l.StartOffset()); f.StartOffset() != start {
		m.cut(start, true)
		return ErrNotYet
	}
	if f.WrittenEnd() > l.WrittenEnd() {
		m.cut(l.WrittenEnd(), false)
		return ErrNotYet
	}
	return nil
}

// handOver gives the copy what the batches alone do not tell, and makes all of it durable.
func (m *Move) handOver() error {
	l, f := m.from, m.future
	l.mu.Lock()
	next, producers := l.w.next, l.w.producers.list()
	known := epochs{entries: slices.Clone(l.w.epochs.entries), first: l.w.epochs.first, before: l.w.epochs.before, changed: true}
	l.mu.Unlock()
	f.flushMu.Lock()
	defer f.flushMu.Unlock()
	if err := f.flushLocked(flushData); err != nil {
		return err
	}
	f.mu.Lock()
	seen := f.dir.o.Now().UnixMilli()
	if !invariant.Seeded(invariant.ProducersNotHanded) {
		f.w.producers.load(producers, seen)
	}
	f.w.producers.changed = true
	f.w.epochs = known
	gap := f.w.next < next
	if f.w.next = next; gap {
		f.ends.set(place{next, record.Position(f.w.active.Size()), f.w.active})
	}
	f.mu.Unlock()
	if err := m.copyAborted(); err != nil {
		return f.failed(err)
	}
	f.f.windowAt = 0 // one that is there for this offset knows less
	f.markMu.Lock()
	f.mark.Lost, f.mark.Gaps = l.mark.Lost, f.mark.Gaps || l.mark.Gaps || gap
	f.markMu.Unlock()
	if err := f.flushLocked(flushMarked); err != nil {
		return err
	}
	if f.f.owed {
		return fmt.Errorf("%w: what belongs beside the batches of %s is not written", ErrReserve, f.path)
	}
	return f.dir.syncMarks()
}

// leave notes in the mark here, durably, that the other one is about to decide: who goes on from this one without having seen the other
// goes on apart from it. It decides nothing.
func (m *Move) leave() error {
	l := m.from
	l.leaving = true
	err := l.putFirmLocked()
	if err == nil {
		err = l.dir.syncMarks()
	}
	if err != nil {
		l.leaving = false
		return l.failed(err)
	}
	return nil
}

// copyAborted gives the copy's segments the aborted transactions that the log's know: they are in a log that comes from Kafka. An abort belongs to
// the segment that holds its marker, and the segments of the two do not begin at the same offsets.
func (m *Move) copyAborted() error {
	l, f := m.from, m.future
	entries, err := l.dir.fs.ReadDir(l.path)
	if err != nil {
		return fmt.Errorf("log: reading %s: %w", l.path, l.failed(err))
	}
	v := f.view.Load()
	written := map[*segment.Segment]*index.TxnIndex{}
	for _, e := range entries { // in the order of their offsets
		base, ext, ok := segment.ParseName(e.Name())
		if !ok || ext != segment.TxnExt {
			continue
		}
		aborted, err := index.NewTxnIndex(index.Options{FS: l.dir.fs, Name: path.Join(l.path, e.Name()), Base: base}).All()
		if errors.Is(err, index.ErrCorrupt) { // nobody can read the rest of it, here or there
			l.dir.log.Warn("an index of aborted transactions does not check: what follows is not copied", "file", path.Join(l.path, e.Name()), "err", err)
		} else if err != nil {
			return fmt.Errorf("log: reading %s: %w", l.path, l.failed(err))
		}
		for _, a := range aborted {
			if a.Last < f.StartOffset() || a.Last >= f.WrittenEnd() {
				continue
			}
			s := v.segments[v.find(a.Last)]
			if written[s] == nil {
				name := path.Join(f.path, segment.FileName(s.Base(), segment.TxnExt))
				if err := removeFile(f.dir.fs, name); err != nil { // of an earlier try
					return err
				}
				written[s] = index.NewTxnIndex(index.Options{FS: f.dir.fs, Name: name, Base: s.Base()})
			}
			if err := written[s].Append(a); err != nil {
				return err
			}
		}
	}
	return m.syncAborted(written)
}

// syncAborted makes the files durable; the names become so with the flush that follows.
func (m *Move) syncAborted(written map[*segment.Segment]*index.TxnIndex) error {
	f := m.future
	for _, x := range written {
		file, err := f.dir.fs.OpenFile(x.Name(), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		err = file.Sync()
		if cerr := file.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return f.dir.fail(fmt.Errorf("log: flush of %s: %w", x.Name(), err))
		}
	}
	if len(written) > 0 {
		f.mu.Lock()
		f.w.newNames = true
		f.mu.Unlock()
	}
	return nil
}

// decide makes the copy, which is closed, the replica, and opens it as such.
func (m *Move) decide() (*Log, error) {
	l, f := m.from, m.future
	final := path.Join(f.dir.path, DirName(f.id.Topic, f.id.Partition))
	f.markMu.Lock()
	f.future.Store(false)
	f.arrived = true
	err := f.putFirmLocked()
	mark := f.mark
	mark.Arrived = false // the log goes on here and now
	f.markMu.Unlock()
	if err != nil {
		return nil, f.failed(err)
	}
	if !invariant.Seeded(invariant.MoveNotDurable) {
		if err := f.dir.syncMarks(); err != nil {
			return nil, err
		}
	}
	named, err := f.dir.takeName(f.path, final)
	if named {
		m.at = final
	}
	if err != nil {
		return nil, err
	}
	f.dir.marks.remember(mark)
	f.dir.mu.Lock()
	delete(f.dir.logs, f.key())
	f.dir.mu.Unlock()
	return f.dir.openLog(openOptions{
		Identity: l.id, config: l.Config(), name: path.Base(final), bring: (*Log).openOrCreate,
		ready: func(next *Log) {
			l.mu.Lock()
			next.w.leading, next.w.fence = l.w.leading, l.w.fence
			l.mu.Unlock()
			next.schedule.found = false
			next.loaded, next.progress = l.loaded, l.progress
			next.watermark.Store(l.watermark.Load())
		},
	})
}

// takeName gives a directory another name, durably. named says that it has it, durable or not.
func (d *Dir) takeName(from, to string) (named bool, err error) {
	if _, err := d.fs.Stat(to); err == nil {
		return false, fmt.Errorf("%w: %s", ErrInTheWay, to)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err := d.fs.Rename(from, to); err != nil {
		return false, err
	}
	if err := d.fs.SyncDir(d.path); err != nil {
		return true, d.fail(fmt.Errorf("log: %s: %w", d.path, err))
	}
	return true, nil
}

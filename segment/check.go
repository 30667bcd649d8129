package segment

import (
	"errors"
	"syscall"

	"github.com/keeplog/keeplog/index"
	"github.com/keeplog/keeplog/record"
)

// loadIndexes opens the indexes of a sealed segment, and makes them anew where they do not agree with the log.
func (s *Segment) loadIndexes() error {
	if s.checked {
		if err := s.offsets.Load(); err != nil {
			return err
		}
		return s.times.Load()
	}
	err := s.tryIndexes()
	if err == nil {
		s.checked = true
	} else {
		s.env.Logger.Warn("rebuilding the indexes of a segment", "segment", s.name(LogExt), "err", err)
		err = s.withoutRoom(s.Reindex())
	}
	if upper := record.Offset(s.upper.Load()); err == nil && s.gapless && s.w.next < upper {
		s.env.Logger.Error("batches are missing at the end of a segment", "segment", s.name(LogExt), "from", s.w.next, "to", upper)
		s.addDamage(Damage{From: record.Position(s.Size()), To: record.Position(s.Size()), Next: upper})
	}
	return err
}

// withoutRoom lets a segment go on without an index where the disk has no room for one: reading then starts at the start
// of the segment. Other errors stay.
func (s *Segment) withoutRoom(err error) error {
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	s.env.Logger.Error("no room to rebuild the indexes of a segment", "segment", s.name(LogExt), "err", err)
	if err := errors.Join(s.offsets.Unload(), s.times.Unload()); err != nil {
		return err
	}
	fresh := newSegment(s.env, s.dir, s.base, s.w.opts.IndexBytes)
	s.offsets, s.times = fresh.offsets, fresh.times
	size := record.Position(s.size.Load())
	s.resume(0)
	return s.walk(0, size, func(h header) bool {
		s.observe(h)
		return true
	})
}

func (s *Segment) tryIndexes() error {
	if err := s.offsets.Open(-1); err != nil {
		return err
	}
	if err := s.times.Open(-1); err != nil {
		return err
	}
	if err := s.offsets.Load(); err != nil {
		return err
	}
	if err := s.times.Load(); err != nil {
		return err
	}
	if err := s.offsets.Check(record.Position(s.size.Load())); err != nil {
		return err
	}
	if err := s.times.Check(); err != nil {
		return err
	}
	return s.agree()
}

// indexTail is how many bytes may follow the last index entry before the index counts as incomplete.
const indexTail = 4 << 20

// agree tests that the last entry points at a batch that ends with its offset, that little follows it, that the newest
// time is that of its batch, and that no later batch is newer. It sets the writer's state on the way.
func (s *Segment) agree() error {
	size := record.Position(s.size.Load())
	last, any := s.offsets.Last()
	if any {
		if err := s.checkEntry(last.Position, last.Offset); err != nil {
			return err
		}
	}
	if _, err := s.examine(last.Position, min(size, last.Position+indexTail), size); err != nil {
		return err
	}
	newest, count, firstSize, end := int64(record.NoTimestamp), 0, record.Position(0), last.Position
	s.resume(last.Position)
	err := s.walk(last.Position, size, func(h header) bool {
		newest, count, end = max(newest, h.maxTimestamp), count+1, h.end()
		if count <= 2 {
			firstSize += h.size
		}
		s.observe(h)
		return true
	})
	if err != nil {
		return err
	}
	if end != size { // damage at the end: reading all of it tells what is left
		return s.place(end, record.ErrTorn)
	}
	if size-last.Position > indexTail+firstSize {
		return index.ErrCorrupt
	}
	t, timed := s.times.Last()
	if timed && size == 0 {
		return index.ErrCorrupt
	}
	// the active segment has no entry yet for what came after the last one
	if !s.active && newest > t.Timestamp && (timed || newest >= 0) {
		return index.ErrCorrupt
	}
	if !timed {
		return nil
	}
	return s.checkTime(t)
}

// resume sets the writer's state to that at an index entry, or at the start of the log file.
func (s *Segment) resume(at record.Position) {
	s.w = writer{opts: s.w.opts, newest: index.TimeEntry{Timestamp: record.NoTimestamp, Offset: s.base}, next: s.base}
	if t, ok := s.times.Last(); ok && at > 0 {
		s.w.newest = t
	}
}

// checkTime tests that the batch of a time entry has its timestamp, and that none of those shortly before it has.
func (s *Segment) checkTime(t index.TimeEntry) error {
	wrong := error(index.ErrCorrupt)
	err := s.walk(s.offsets.Lookup(t.Offset).Position, record.Position(s.size.Load()), func(h header) bool {
		if h.last < t.Offset {
			return h.maxTimestamp < t.Timestamp
		}
		if h.base <= t.Offset && h.maxTimestamp == t.Timestamp {
			wrong = nil
		}
		return false
	})
	return errors.Join(err, wrong)
}

// Reindex makes both indexes anew from the log, comparing all checksums on the way. Where the disk has no room for them
// the segment goes on without.
func (s *Segment) Reindex() error {
	size := record.Position(s.size.Load())
	if _, err := s.examine(0, size, size); err != nil {
		return err
	}
	active := s.active
	if err := s.rebuild(0, size); err != nil {
		return err
	}
	s.checked = true
	if active {
		return nil
	}
	return s.finishIndexes()
}

func (s *Segment) finishIndexes() error {
	if err := s.Finish(); err != nil {
		return err
	}
	return errors.Join(s.offsets.Seal(), s.times.Seal(), s.offsets.Load(), s.times.Load())
}

// rebuild adds the entries of the batches in [from, to) and takes them into the writer's state. With from 0 it starts anew.
func (s *Segment) rebuild(from, to record.Position) error {
	if from == 0 {
		for _, create := range []func() error{s.offsets.Unload, s.times.Unload, s.createOffsets, s.createTimes} {
			if err := create(); err != nil {
				return err
			}
		}
		if err := errors.Join(s.offsets.Open(0), s.times.Open(0)); err != nil {
			return err
		}
		if s.w.opts.IndexInterval == 0 {
			s.w.opts.IndexInterval = defaultInterval
		}
		s.resume(0)
		s.ownIndex = true
	}
	var failed error
	err := s.walk(from, to, func(h header) bool {
		failed = s.enter(h)
		return failed == nil
	})
	return errors.Join(err, failed)
}

// defaultInterval is index.interval.bytes where the configuration is not at hand.
const defaultInterval = 4096

// enter takes a batch of the log into the indexes, as if it were just written.
func (s *Segment) enter(h header) error {
	if s.w.sinceEntry > s.w.opts.IndexInterval {
		if err := errors.Join(s.offsets.Reserve(), s.times.Reserve()); err != nil && !errors.Is(err, index.ErrFull) {
			return err
		} else if err == nil {
			if err := s.addEntry(h); err != nil {
				return err
			}
		}
	}
	s.observe(h)
	return nil
}

// Audit reads the whole segment and compares it with its indexes: every checksum, offsets that grow, every index entry at
// a batch that ends with its offset, every time entry the timestamp of its batch and the largest up to it. It returns the
// first thing that is wrong.
func (s *Segment) Audit() error {
	if err := s.acquire(); err != nil {
		return err
	}
	defer s.release()
	size := record.Position(s.size.Load())
	if _, err := s.examine(0, size, size); err != nil {
		return err
	}
	if d := s.Damages(); len(d) > 0 {
		return s.place(d[0].From, ErrDamaged)
	}
	if err := errors.Join(s.offsets.Check(size), s.times.Check()); err != nil {
		return err
	}
	i, k, next := 0, 0, s.base
	newest := int64(record.NoTimestamp)
	entry, any := s.offsets.Entry(0)
	timed, anyTime := s.times.Entry(0)
	var wrong error
	err := s.walk(0, size, func(h header) bool {
		if h.base < next {
			wrong = s.place(h.at, ErrDamaged)
		}
		if any && entry.Position <= h.at {
			if entry.Position != h.at || entry.Offset != h.last {
				wrong = s.place(h.at, index.ErrCorrupt)
			}
			i++
			entry, any = s.offsets.Entry(i)
		}
		newest = max(newest, h.maxTimestamp)
		if anyTime && timed.Offset <= h.last {
			if timed.Timestamp != newest || timed.Timestamp != h.maxTimestamp {
				wrong = s.place(h.at, index.ErrCorrupt)
			}
			k++
			timed, anyTime = s.times.Entry(k)
		}
		next = h.next()
		return wrong == nil
	})
	if wrong == nil && err == nil && (any || anyTime) {
		wrong = s.place(size, index.ErrCorrupt)
	}
	return errors.Join(err, wrong)
}

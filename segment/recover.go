package segment

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path"

	"github.com/keeplog/keeplog/internal/invariant"
	"github.com/keeplog/keeplog/record"
)

// CleanOptions say what is known of a segment that is opened after a clean stop.
type CleanOptions struct {
	Options
	// Known bounds what may be in it.
	Known Bound
}

// OpenClean opens the active segment after a clean stop: the log file is whole, the indexes are checked against it. next is
// the offset after the last sound batch.
func OpenClean(env *Env, dir string, base record.Offset, o CleanOptions) (s *Segment, next record.Offset, err error) {
	s, err = openWritable(env, dir, base, o.Options)
	if err != nil {
		return nil, 0, err
	}
	s.bound = o.Known
	if err = s.loadIndexes(); err != nil {
		s.drop()
		return nil, 0, err
	}
	s.active, s.ready = true, true
	return s, s.w.next, nil
}

// drop lets go of a segment that did not open: no mapping may outlive it, the next try makes the index files anew.
func (s *Segment) drop() {
	_ = s.offsets.Unload()
	_ = s.times.Unload()
	_ = s.file.Close()
}

// openWritable opens the log file for writing, with nothing examined and no index loaded.
func openWritable(env *Env, dir string, base record.Offset, o Options) (*Segment, error) {
	s := newSegment(env, dir, base, o.IndexBytes)
	f, err := env.FS.OpenFile(s.name(LogExt), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	s.file = f
	s.active = true // its indexes stay open for writing
	s.w.opts, s.w.next = o, base
	s.newest.Store(record.NoTimestamp)
	s.size.Store(size)
	s.fresh = record.Position(size)
	return s, nil
}

// RecoverOptions say what is known of a segment before it is recovered.
type RecoverOptions struct {
	Options
	// From is the mark: everything below was durable and is never cut. Above MaxInt32: the file is too short, whatever it has.
	From record.Position
	// Next is the smallest base offset a batch at From may have.
	Next record.Offset
	// Settled says that the file ends at From and that all of it is durable: nothing is read again.
	Settled bool
	// Offsets and Times are the index entries that were durable.
	Offsets, Times int
	// Each is shown every batch that is accepted at or above From, in order. It may be a header only.
	Each func(record.Batch)
}

// Recovered says how a recovery ended.
type Recovered struct {
	// Next is the offset after the last batch.
	Next record.Offset
	// Short says that the file ended below the mark: durable data is gone.
	Short bool
	// Cut is how many bytes above the last good batch were cut off, Torn the name of the file with their copy, which is
	// made where good batches were among them.
	Cut  int64
	Torn string
	// Kept says that the index entries that were durable are still used.
	Kept bool
}

// Recover opens the active segment after an unclean stop. What the page cache holds is made durable, then forgotten, so
// that everything is read from the disk. From the mark on, the first batch that is not sound ends the segment; the rest is
// cut off. When it returns, what it accepted is durable.
func Recover(env *Env, dir string, base record.Offset, o RecoverOptions) (*Segment, Recovered, error) {
	s, err := openWritable(env, dir, base, o.Options)
	if err != nil {
		return nil, Recovered{}, err
	}
	r, err := s.recover(&o)
	if err != nil {
		s.drop()
		return nil, Recovered{}, err
	}
	s.checked, s.ready = true, true
	return s, r, nil
}

func (s *Segment) recover(o *RecoverOptions) (Recovered, error) {
	cached := invariant.Seeded(invariant.EndBeforeFsync) || o.Settled
	if o.From <= math.MaxInt32 {
		s.bound = Bound{At: o.From, End: o.Next}
	}
	if !cached {
		if err := s.file.SyncData(); err != nil {
			return Recovered{}, err
		}
		if err := s.file.DropCache(); err != nil {
			s.env.Logger.Warn("cannot drop cached pages before recovery", "segment", s.name(LogExt), "err", err)
		}
	}
	size := record.Position(s.size.Load())
	r := Recovered{Next: max(o.Next, s.base)}
	from := o.From
	if size < from {
		r.Short = true
		var err error
		if from, r.Next, err = s.lastWhole(size); err != nil {
			return r, err
		}
	}
	end, next, err := s.accept(from, size, r.Next, o.Each)
	if err != nil {
		return r, err
	}
	r.Next, r.Cut = next, int64(size-end)
	if r.Cut > 0 {
		if r.Torn, err = s.keepTorn(end, size, next); err != nil {
			return r, err
		}
	}
	if err := s.file.Truncate(int64(end)); err != nil { // also gives back the blocks allocated ahead
		return r, err
	}
	if !cached {
		if err := s.file.SyncData(); err != nil {
			return r, err
		}
	}
	s.size.Store(int64(end))
	s.forgetFrom(min(from, end), end)
	r.Kept, err = s.recoverIndexes(o, min(from, end), end)
	return r, err
}

// lastWhole is the end of the last batch of a file that is shorter than its mark, and the offset after it. Damage before
// the end is hopped over; damage at the end is not the end of a batch.
func (s *Segment) lastWhole(size record.Position) (record.Position, record.Offset, error) {
	if _, err := s.examine(0, size, size); err != nil {
		return 0, 0, err
	}
	at, next := record.Position(0), s.base
	err := s.walk(0, size, func(h header) bool {
		at, next = h.end(), h.next()
		return true
	})
	return at, next, err
}

// accept reads from a batch's start on and returns where the last sound batch ends.
func (s *Segment) accept(from, size record.Position, next record.Offset, each func(record.Batch)) (record.Position, record.Offset, error) {
	pool := s.env.pool(size - from)
	pooled := pool.Get().(*[]byte)
	defer pool.Put(pooled)
	sc := record.NewScanner(s.file, record.ScanOptions{File: s.name(LogExt), Start: from, End: size, Buffer: *pooled, CRC: true})
	end := from
	for sc.Scan() {
		b := sc.Batch()
		if b.BaseOffset() < next || !s.plausible(b, end) {
			return end, next, nil
		}
		if each != nil {
			each(b)
		}
		end, next = sc.Next(), b.NextOffset()
	}
	if err := sc.Err(); err != nil && !IsDamage(err) {
		return end, next, err
	} else if errors.Is(err, record.ErrNewerVersion) && s.intact(end, size) {
		return end, next, err
	}
	return end, next, nil
}

// intact says that the bytes at a position are a batch with a right checksum, whatever its version: no tear makes that.
func (s *Segment) intact(at, size record.Position) bool {
	var h [record.HeaderSize]byte
	if at+record.HeaderSize > size {
		return false
	}
	if _, err := s.file.ReadAt(h[:], int64(at)); err != nil {
		return false
	}
	n := record.Position(record.Batch(h[:]).Size())
	if n < record.HeaderSize || at+n > size {
		return false
	}
	whole := make([]byte, n)
	if _, err := s.file.ReadAt(whole, int64(at)); err != nil {
		return false
	}
	return record.Batch(whole).CheckCRC() == nil
}

// TornName is the name of the copy of what followed the last good batch.
func TornName(base record.Offset, at record.Position) string {
	return fmt.Sprintf("%020d.%d%s", int64(base), int64(at), TornExt)
}

// keepTorn copies [end, size) if sound batches are in it, durably. Unsynced blocks reach the disk in any order, so this is
// no damage; but nothing that can be read is thrown away.
func (s *Segment) keepTorn(end, size record.Position, next record.Offset) (string, error) {
	beyond, _, err := s.resync(end, size, next)
	if err != nil || beyond >= size {
		return "", err
	}
	name := path.Join(s.dir, TornName(s.base, end))
	if err := s.copyRange(name, int64(end), int64(size)); err != nil {
		s.env.Logger.Warn("no copy of what followed the last good batch", "segment", s.name(LogExt), "position", end, "err", err)
		_ = s.env.FS.Remove(name)
		return "", nil
	}
	return name, s.env.FS.SyncDir(s.dir)
}

// copyRange copies bytes of the log file to a new file, durably.
func (s *Segment) copyRange(name string, begin, end int64) error {
	to, err := s.env.FS.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	buf := make([]byte, 256<<10)
	for at := begin; at < end && err == nil; {
		part := buf[:min(int64(len(buf)), end-at)]
		if _, err = s.file.ReadAt(part, at); err == nil {
			_, err = to.WriteAt(part, at-begin)
		}
		at += int64(len(part))
	}
	if err == nil {
		err = to.SyncData()
	}
	if cerr := to.Close(); err == nil {
		err = cerr
	}
	return err
}

// recoverIndexes keeps the entries that were durable, if they fit the log, and makes those above the mark anew.
func (s *Segment) recoverIndexes(o *RecoverOptions, from, end record.Position) (kept bool, err error) {
	if invariant.Seeded(invariant.IndexSizeTrusted) {
		if err := errors.Join(s.offsets.Open(-1), s.times.Open(-1), s.offsets.Load(), s.times.Load()); err == nil {
			s.resume(0)
			s.ownIndex = true
			return true, nil
		}
	}
	if err = s.keepEntries(o, from); err == nil {
		return true, s.withoutRoom(s.rebuild(from, end))
	}
	if from > 0 {
		s.env.Logger.Info("rebuilding the indexes of the active segment", "segment", s.name(LogExt), "err", err)
		if _, err := s.examine(0, from, from); err != nil {
			return false, err
		}
	}
	return false, s.withoutRoom(s.rebuild(0, end))
}

func (s *Segment) keepEntries(o *RecoverOptions, from record.Position) error {
	if from == 0 || o.Offsets == 0 {
		return errors.New("no entries are known to be durable")
	}
	if err := errors.Join(s.offsets.Open(o.Offsets), s.times.Open(o.Times)); err != nil {
		return err
	}
	if err := errors.Join(s.offsets.Load(), s.times.Load(), s.offsets.Check(from), s.times.Check()); err != nil {
		return err
	}
	last, _ := s.offsets.Last()
	if err := s.checkEntry(last.Position, last.Offset); err != nil {
		return err
	}
	if t, ok := s.times.Last(); ok && s.checkTime(t) != nil {
		return s.place(last.Position, ErrDamaged)
	}
	if _, err := s.examine(last.Position, from, from); err != nil {
		return err
	}
	s.resume(last.Position)
	return s.walk(last.Position, from, func(h header) bool {
		s.observe(h)
		return true
	})
}

// CutOptions say where a segment is cut.
type CutOptions struct {
	Options
	Size record.Position // new size: the end of a batch
	End  record.Offset   // offset after the batches that stay
}

// CutBack cuts a segment that is retired and has no readers left, durably, and opens it as the active one.
func CutBack(env *Env, dir string, base record.Offset, o CutOptions) (*Segment, error) {
	s, err := openWritable(env, dir, base, o.Options)
	if err != nil {
		return nil, err
	}
	err = s.file.Truncate(int64(o.Size))
	if err == nil {
		err = s.file.SyncData()
	}
	if err == nil {
		s.size.Store(int64(o.Size))
		s.fresh = o.Size
		err = s.cutIndexes(o)
	}
	if err != nil {
		s.drop()
		return nil, err
	}
	s.ready, s.checked = true, true
	return s, nil
}

func (s *Segment) cutIndexes(o CutOptions) error {
	if err := s.txns.Cut(o.End); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	fits := func() error {
		if err := errors.Join(s.offsets.Open(-1), s.times.Open(-1)); err != nil {
			return err
		}
		if err := errors.Join(s.offsets.Load(), s.times.Load()); err != nil {
			return err
		}
		if err := errors.Join(s.offsets.Cut(s.offsets.CountTo(o.Size)), s.times.Cut(s.times.CountTo(o.End))); err != nil {
			return err
		}
		if err := errors.Join(s.offsets.Load(), s.times.Load(), s.offsets.Check(o.Size), s.times.Check()); err != nil {
			return err
		}
		last, any := s.offsets.Last()
		if any {
			if err := s.checkEntry(last.Position, last.Offset); err != nil {
				return err
			}
		}
		s.resume(last.Position)
		return s.walk(last.Position, o.Size, func(h header) bool {
			s.observe(h)
			return true
		})
	}
	if err := fits(); err != nil {
		s.env.Logger.Warn("rebuilding the indexes of a segment that was cut", "segment", s.name(LogExt), "err", err)
		return s.withoutRoom(s.Reindex())
	}
	return nil
}

package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"syscall"

	"github.com/keeplog/keeplog/index"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// ErrFull says that the segment has no room for the batch; the log must roll.
var ErrFull = errors.New("segment is full")

const (
	firstStep = 64 << 10 // blocks allocated ahead at first
	lastStep  = 32 << 20 // and at most
)

// writer is the state of appending. It belongs to the log's writer.
type writer struct {
	opts       Options
	sinceEntry int64 // bytes of log since the batch of the last index entry began
	newest     index.TimeEntry
	next       record.Offset // after the last batch
	first      int64         // largest timestamp of the first batch, ms
	hasFirst   bool
	allocated  int64
	step       int64 // of the next allocation; negative: the file system cannot
}

// Create makes a new, empty segment and opens it for writing. An empty file of that name is taken over. Where Spare is set,
// that file becomes the log file by renaming. The names are not durable yet.
func Create(env *Env, dir string, base record.Offset, o Options) (*Segment, error) {
	s := newSegment(env, dir, base, o.IndexBytes)
	name := s.name(LogExt)
	if o.Spare != "" {
		if err := env.FS.Rename(o.Spare, name); err != nil {
			return nil, err
		}
	}
	f, err := env.FS.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err == nil && size != 0 {
		err = fmt.Errorf("segment: %s is in the way, with %d bytes", name, size)
	}
	for _, ext := range []string{IndexExt, TimeExt} { // made with the first entry; a leftover of that name is none
		if rerr := env.FS.Remove(s.name(ext)); err == nil && rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = rerr
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	s.file, s.active, s.ready = f, true, true
	s.checked, s.ownIndex = true, true
	s.w = writer{opts: o, newest: index.TimeEntry{Timestamp: record.NoTimestamp, Offset: base}, next: base}
	s.newest.Store(record.NoTimestamp)
	s.known.Store(true)
	return s, nil
}

func (s *Segment) createOffsets() error { return s.createIndex(IndexExt) }
func (s *Segment) createTimes() error   { return s.createIndex(TimeExt) }

func (s *Segment) createIndex(ext string) error {
	f, err := s.env.FS.OpenFile(s.name(ext), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// MakeSpare makes an empty file with its first blocks, to become a segment at the next roll.
func MakeSpare(fs vfs.FS, name string) error {
	f, err := fs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	err = f.Allocate(0, firstStep, true)
	if noAllocation(err) {
		err = nil
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = fs.Remove(name)
	}
	return err
}

func noAllocation(err error) bool {
	return errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS)
}

// SetOptions changes the limits for what follows. The limit of the indexes holds from the next segment on.
func (s *Segment) SetOptions(o Options) { s.w.opts = o }

// IndexFull says that an index has no room for another entry.
func (s *Segment) IndexFull() bool { return s.offsets.Full() || s.times.Full() }

// FirstTimestamp is the largest timestamp of the first batch in ms; ok is false where there is none.
func (s *Segment) FirstTimestamp() (ms int64, ok bool, err error) {
	if s.w.hasFirst || s.Size() == 0 {
		return s.w.first, s.w.hasFirst && s.w.first >= 0, nil
	}
	if err := s.acquire(); err != nil {
		return 0, false, err
	}
	defer s.release()
	h, err := s.header(0)
	if err != nil {
		return 0, false, err
	}
	s.w.first, s.w.hasFirst = h.maxTimestamp, true
	return h.maxTimestamp, h.maxTimestamp >= 0, nil
}

// Append writes one batch, whose offsets are set, at the end. On an error nothing of it is in the segment, unless Cut is
// named in the error: then the file could not be cut back and must not be used any more.
func (s *Segment) Append(b record.Batch) error {
	at, n := s.size.Load(), int64(len(b))
	if at+n > math.MaxInt32 || int64(b.LastOffset()-s.base) > math.MaxInt32 {
		return fmt.Errorf("%w: %s", ErrFull, s.name(LogExt))
	}
	entry := s.w.sinceEntry > s.w.opts.IndexInterval
	if entry {
		if err := errors.Join(s.offsets.Reserve(), s.times.Reserve()); err != nil {
			if errors.Is(err, index.ErrFull) {
				return fmt.Errorf("%w: %w", ErrFull, err)
			}
			return err
		}
	}
	if at+n > s.w.allocated {
		if err := s.allocate(at + n); err != nil {
			return err
		}
	}
	if _, err := s.file.WriteAt(b, at); err != nil {
		if cut := s.file.Truncate(at); cut != nil {
			return &CutError{Write: err, Cut: cut}
		}
		s.w.allocated = at
		return err
	}
	s.note(b, record.Position(at), entry)
	s.size.Store(at + n)
	return nil
}

// CutError says that a write failed and that what it left could not be removed.
type CutError struct{ Write, Cut error }

func (e *CutError) Error() string {
	return fmt.Sprintf("segment: write failed (%v), and cutting it off too: %v", e.Write, e.Cut)
}

// Unwrap gives both errors.
func (e *CutError) Unwrap() []error { return []error{e.Write, e.Cut} }

// note takes a written batch into the writer's state and, where entry says so, into the indexes, which have room.
func (s *Segment) note(b record.Batch, at record.Position, entry bool) {
	h := headerOf(b, at)
	if entry {
		if err := s.addEntry(h); err != nil {
			panic("segment: no room in a reserved index: " + err.Error())
		}
	}
	s.observe(h)
}

// addEntry puts a batch into the indexes.
func (s *Segment) addEntry(h header) error {
	if err := s.offsets.Append(h.last, h.at); err != nil {
		return err
	}
	newest := s.w.newest
	if h.maxTimestamp > newest.Timestamp {
		newest = index.TimeEntry{Timestamp: h.maxTimestamp, Offset: h.last}
	}
	s.w.sinceEntry = 0
	if newest.Timestamp < 0 {
		return nil
	}
	// the time index may be full before: its last slot is for the end of the segment
	if err := s.times.Append(newest.Timestamp, newest.Offset, false); err != nil && !errors.Is(err, index.ErrFull) {
		return err
	}
	return nil
}

// observe takes a batch into the writer's state.
func (s *Segment) observe(h header) {
	if h.maxTimestamp > s.w.newest.Timestamp {
		s.w.newest = index.TimeEntry{Timestamp: h.maxTimestamp, Offset: h.last}
	}
	if h.at == 0 {
		s.w.first, s.w.hasFirst = h.maxTimestamp, true
	}
	s.newest.Store(s.w.newest.Timestamp)
	s.w.next = h.next()
	s.w.sinceEntry += int64(h.size)
}

// allocate reserves blocks ahead in steps, without changing the size.
func (s *Segment) allocate(end int64) error {
	if s.w.step < 0 {
		return nil
	}
	s.w.allocated = max(s.w.allocated, s.size.Load())
	limit := max(min(s.w.opts.MaxBytes/4, lastStep), 4<<10)
	s.w.step = min(max(s.w.step, firstStep), limit)
	if s.env.Room != nil && s.w.step > firstStep { // a small or nearly full disk is not eaten by what nobody has written yet
		s.w.step = max(min(s.w.step, s.env.Room()/16), firstStep)
	}
	n := max(s.w.step, end-s.w.allocated)
	if err := s.file.Allocate(s.w.allocated, n, true); err != nil {
		if noAllocation(err) {
			s.w.step = -1
			return nil
		}
		return err
	}
	s.w.allocated += n
	s.w.step = min(s.w.step*2, limit)
	return nil
}

// SyncLog makes the written batches durable; for the active segment, or one that Finish has ended. The log's flush calls it.
func (s *Segment) SyncLog() error {
	s.mu.Lock()
	f := s.file
	s.mu.Unlock()
	if f == nil {
		return fmt.Errorf("%w: %s", ErrGone, s.name(LogExt))
	}
	return f.SyncData()
}

// SyncIndexes makes the entries so far durable.
func (s *Segment) SyncIndexes() error {
	if err := s.offsets.Sync(); err != nil {
		return err
	}
	return s.times.Sync()
}

// Entries counts the index entries.
func (s *Segment) Entries() (offsets, times int) { return s.offsets.Len(), s.times.Len() }

// EntriesBelow counts the index entries for batches below an end.
func (s *Segment) EntriesBelow(at record.Position, end record.Offset) (offsets, times int) {
	return s.offsets.CountTo(at), s.times.CountTo(end)
}

// Finish ends writing in memory: the final time entry goes in. Seal does the rest. Only the writer calls it.
func (s *Segment) Finish() error {
	if s.w.newest.Timestamp < 0 && s.times.Len() == 0 {
		return nil
	}
	return s.times.Append(s.w.newest.Timestamp, s.w.newest.Offset, true)
}

// Seal cuts the log file and the indexes to what is used, and makes all durable. From now on the segment may be closed
// when it is not read. No writer may be in it.
func (s *Segment) Seal() error {
	s.mu.Lock()
	f := s.file
	s.mu.Unlock()
	if f == nil {
		return nil // retired meanwhile
	}
	if s.w.allocated > s.size.Load() {
		if err := f.Truncate(s.size.Load()); err != nil {
			return err
		}
	}
	if err := f.SyncData(); err != nil {
		return err
	}
	if err := s.sealIndexes(); err != nil {
		return err
	}
	if err := s.SyncIndexes(); err != nil {
		return err
	}
	s.mu.Lock()
	s.active = false
	dead := s.dead
	s.mu.Unlock()
	if !dead {
		s.env.touch(s)
	}
	return nil
}

func (s *Segment) sealIndexes() error {
	if err := s.offsets.Seal(); err != nil {
		return err
	}
	if err := s.times.Seal(); err != nil {
		return err
	}
	if s.offsets.Len() == 0 { // a sealed segment has all its files
		if err := s.createOffsets(); err != nil {
			return err
		}
	}
	if s.times.Len() == 0 {
		if err := s.createTimes(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return nil
	}
	if err := s.offsets.Load(); err != nil {
		return err
	}
	return s.times.Load()
}

// CloseClean trims the files of the active segment at a clean stop, makes the indexes durable and closes it. The batches
// must be durable already.
func (s *Segment) CloseClean() error {
	var errs []error
	s.mu.Lock()
	f, active := s.file, s.active
	s.mu.Unlock()
	if f != nil && active {
		if s.w.allocated > s.size.Load() {
			errs = append(errs, f.Truncate(s.size.Load()))
		}
		dirty := s.offsets.Len() > 0 || s.times.Len() > 0
		if dirty { // the newest time, as in an ended segment; a small one is read through anyway
			errs = append(errs, s.Finish())
		}
		errs = append(errs, s.offsets.Seal(), s.times.Seal())
		if dirty {
			errs = append(errs, s.SyncIndexes())
		}
	}
	<-s.Retire()
	return errors.Join(errs...)
}

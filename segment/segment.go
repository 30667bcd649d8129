// Package segment is one segment of a partition's log: its log file, and the indexes that find places in it.
//
// Nouns. A [Segment] holds the batches from its base offset on. The newest segment of a log is active: it has a writer. The
// others are sealed: known by name and size, opened and mapped at the first read, and closed again when too many are open
// ([Env] keeps that count). A [Span] is a range of the log file that a reader holds. A range is examined when every
// checksum in it was compared since the start of the process; batches that did not match are remembered as damage.
//
// Who owns what. The writer's fields belong to the log's writer. The mutex guards the open file, the count of its readers
// and what was examined; it is never held across I/O. Readers see batches below Size, which is stored after the bytes are
// written.
//
//	00000000000000004711.log    ┌───────┬───────┬───┬───────┐
//	                            │ batch │ batch │ … │ batch │  one after the other; blocks are allocated beyond the end, the
//	                            └───────┴───────┴───┴───────┘  size is the end of the data
//	      .index .timeindex .txnindex: package index
package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/keeplog/keeplog/index"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

var (
	// ErrGone says that the segment was deleted or truncated away; the caller looks again at the log's list.
	ErrGone = errors.New("segment is gone")
	// ErrDamaged says that the batch which holds the offset does not match its checksum.
	ErrDamaged = errors.New("damaged batch")
)

// File name endings.
const (
	LogExt     = ".log"
	IndexExt   = ".index"
	TimeExt    = ".timeindex"
	TxnExt     = ".txnindex"
	DeletedExt = ".deleted"
	TornExt    = ".torn"
)

// FileName is the name of the file of a base offset.
func FileName(base record.Offset, ext string) string { return fmt.Sprintf("%020d%s", int64(base), ext) }

// ParseName splits a file name into base offset and ending; ok is false for names of another form.
func ParseName(name string) (base record.Offset, ext string, ok bool) {
	digits, rest, _ := strings.Cut(name, ".")
	if len(digits) != 20 || rest == "" {
		return 0, "", false
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil {
		return 0, "", false
	}
	return record.Offset(n), "." + rest, true
}

// Options are the limits that a segment is written with.
type Options struct {
	MaxBytes      int64 // segment.bytes
	IndexBytes    int   // segment.index.bytes
	IndexInterval int64 // index.interval.bytes
	// Spare, for Create only, is the path of an empty file with blocks (MakeSpare) to take; empty: none.
	Spare string
}

// Segment is one segment.
type Segment struct {
	env  *Env
	dir  string
	base record.Offset
	size atomic.Int64 // end of the batches that readers may see
	// upper is the base of the next segment, 0 while not known: a roll tells it while readers are there. gapless says that the
	// batches reach up to it, and is set before readers come.
	upper   atomic.Int64
	gapless bool
	bound   Bound
	// newest is the largest timestamp; exact for the active segment and where known says so.
	newest atomic.Int64
	known  atomic.Bool

	offsets *index.OffsetIndex
	times   *index.TimeIndex
	txns    *index.TxnIndex

	opening sync.Mutex // one opener at a time; taken before mu
	// checked: the indexes agreed with the log; ownIndex: this process made them from it. Set before readers come in.
	checked, ownIndex bool
	gate

	examining sync.Mutex // one examination at a time; taken before mu
	examined
	w writer
}

// gate lets readers in and out.
type gate struct {
	mu      sync.Mutex
	file    vfs.File      // nil while closed
	ready   bool          // file and indexes are open
	active  bool          // has a writer: stays open
	dead    bool          // no new readers
	refs    int           // readers inside
	spans   *Span         // ring of the spans that are out
	drained chan struct{} // closed with the last reader of a dead segment
}

func newSegment(env *Env, dir string, base record.Offset, indexBytes int) *Segment {
	s := &Segment{env: env, dir: dir, base: base}
	o := index.Options{FS: env.FS, Base: base, MaxBytes: indexBytes}
	o.Name = s.name(IndexExt)
	s.offsets = index.NewOffsetIndex(o)
	o.Name = s.name(TimeExt)
	s.times = index.NewTimeIndex(o)
	o.Name = s.name(TxnExt)
	s.txns = index.NewTxnIndex(o)
	return s
}

// Sealed is a segment that nobody writes to, known by name and size. No file is touched.
func Sealed(env *Env, dir string, base record.Offset, size int64) *Segment {
	s := newSegment(env, dir, base, int(min(size, 1<<31-1))) // an index is never larger than its log
	s.size.Store(size)
	s.fresh = record.Position(size)
	return s
}

// SetUpper tells the base of the next segment.
func (s *Segment) SetUpper(o record.Offset) { s.upper.Store(int64(o)) }

// SetGapless says that the batches reach up to the next segment: where they do not, some are lost. Call it after SetUpper,
// before readers come.
func (s *Segment) SetGapless() { s.gapless = true }

// Bound says that the batches which begin below a position end below an offset. No checksum covers the base offset of a
// batch, and the last one has no successor that would contradict it. The zero value says nothing.
type Bound struct {
	At  record.Position
	End record.Offset
}

func (s *Segment) name(ext string) string { return path.Join(s.dir, FileName(s.base, ext)) }

// Base is the offset of the segment's first possible record.
func (s *Segment) Base() record.Offset { return s.base }

// Size is the bytes of the log file that hold batches.
func (s *Segment) Size() int64 { return s.size.Load() }

// acquire opens the segment if need be, and keeps it open until release.
func (s *Segment) acquire() error {
	s.mu.Lock()
	ready, active, err := s.ready, s.active, s.enterLocked()
	s.mu.Unlock()
	if err == nil && !ready {
		err = s.open()
	}
	if err == nil && !active {
		s.env.touch(s)
	}
	return err
}

func (s *Segment) enterLocked() error {
	if s.dead {
		return fmt.Errorf("%w: %s", ErrGone, s.name(LogExt))
	}
	s.refs++
	return nil
}

// open makes a sealed segment ready for a reader that has entered: it opens the file, and makes sure that the indexes
// belong to it. One caller does it, the others wait.
func (s *Segment) open() error {
	s.opening.Lock()
	defer s.opening.Unlock()
	s.mu.Lock()
	ready := s.ready
	s.mu.Unlock()
	if ready {
		return nil
	}
	f, err := s.env.FS.OpenFile(s.name(LogExt), os.O_RDONLY, 0)
	if err != nil {
		s.release()
		return err
	}
	s.file = f
	size, err := f.Size()
	if err == nil && size < s.size.Load() {
		err = &record.PlaceError{File: s.name(LogExt), Position: record.Position(size), Err: record.ErrTorn}
	}
	if err == nil {
		err = s.loadIndexes()
	}
	s.mu.Lock()
	if err != nil {
		closing := s.detach()
		s.mu.Unlock()
		s.closeFile(closing)
		s.release()
		return err
	}
	s.ready = true
	s.mu.Unlock()
	return nil
}

func (s *Segment) release() {
	s.mu.Lock()
	closing, drained := s.leave()
	s.mu.Unlock()
	s.drain(closing, drained)
}

// leave takes a reader out. What it returns is for drain, without the lock. The caller holds mu.
func (s *Segment) leave() (closing vfs.File, drained chan struct{}) {
	s.refs--
	if s.refs < 0 {
		panic("segment: released twice: " + s.name(LogExt))
	}
	if s.refs == 0 && s.dead {
		closing, drained = s.detach(), s.drained
		s.drained = nil
	}
	return closing, drained
}

// drain closes the file after the last reader of a dead segment, and then tells who waits for that.
func (s *Segment) drain(closing vfs.File, drained chan struct{}) {
	s.closeFile(closing)
	if drained != nil {
		close(drained)
	}
}

// closeIdle closes a sealed segment that nobody reads, and says whether it did.
func (s *Segment) closeIdle() bool {
	if !s.mu.TryLock() {
		return false
	}
	if s.refs > 0 || s.active {
		s.mu.Unlock()
		return false
	}
	closing := s.detach()
	s.mu.Unlock()
	s.closeFile(closing)
	return true
}

// detach takes the file, to be closed without the lock, and the indexes out of a segment that nobody reads. The caller holds mu.
func (s *Segment) detach() vfs.File {
	closing := s.file
	if closing == nil {
		return nil
	}
	for what, err := range map[string]error{"offset index": s.offsets.Unload(), "time index": s.times.Unload()} {
		s.closed(what, err)
	}
	s.file, s.ready = nil, false
	return closing
}

// closeFile closes what detach returned: a system call that may hang.
func (s *Segment) closeFile(f vfs.File) {
	if f != nil {
		s.closed("log file", f.Close())
	}
}

func (s *Segment) closed(what string, err error) {
	if err != nil {
		s.env.Logger.Warn("closing a segment", "segment", s.name(LogExt), "what", what, "err", err)
	}
}

// Retire lets no new reader in. The channel is closed once the last reader is out and the files are closed.
func (s *Segment) Retire() <-chan struct{} {
	done := make(chan struct{})
	s.mu.Lock()
	s.dead, s.active = true, false
	s.env.forget(s)
	if s.refs == 0 {
		closing := s.detach()
		s.mu.Unlock()
		s.drain(closing, done)
		return done
	}
	defer s.mu.Unlock()
	if s.drained == nil {
		s.drained = done
	}
	return s.drained
}

// Extensions are the endings of the files a segment may have.
func Extensions() []string { return []string{LogExt, IndexExt, TimeExt, TxnExt} }

// MarkDeleted renames the files so that no start takes them for the segment. Call Retire first; readers inside keep the
// open file. Unlink removes them for good.
func (s *Segment) MarkDeleted() error {
	for _, ext := range Extensions() {
		err := s.env.FS.Rename(s.name(ext), s.name(ext)+DeletedExt)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Unlink removes the files that MarkDeleted renamed.
func (s *Segment) Unlink() error {
	for _, ext := range Extensions() {
		err := s.env.FS.Remove(s.name(ext) + DeletedExt)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// ModTimeMs is when the log file was last written, ms since 1970.
func (s *Segment) ModTimeMs() (int64, error) {
	info, err := s.env.FS.Stat(s.name(LogExt))
	if err != nil {
		return 0, err
	}
	return info.ModTime().UnixMilli(), nil
}

package dump

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	plog "github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// ErrRunning says that a server has the data directory open: it cannot be repaired now.
var ErrRunning = errors.New("dump: a server is running on the data directory")

// Repair mends a data directory that no server has open. It never shortens a log below its stable mark: a bad batch becomes an empty one that
// covers the same offsets, its bytes are kept in a file beside; what the server makes anew from the log is removed.
//
// Order, so that a power loss at any point leaves a directory that can be started: the clean stop marker goes first; bytes are kept before they
// are replaced; indexes go before the segment whose positions they hold changes; a mark that holds a position in that segment loses it before and
// keeps its offset, because a position would be wrong either before or after.
type Repair struct {
	fs       vfs.FS
	dir      string // the data directory
	lock     io.Closer
	d        *Dump
	problems []Problem
}

// NewRepair takes the lock of the data directory that holds path, which may be one of its partitions. Errors: ErrRunning. Close releases it.
func NewRepair(files vfs.FS, path string) (*Repair, error) {
	dir := path
	if list, err := files.ReadDir(path); err != nil {
		return nil, err
	} else if isPartition(path, list) && !IsDataDir(files, path) {
		dir = filepath.Dir(filepath.Clean(path))
	}
	if !IsDataDir(files, dir) {
		return nil, fmt.Errorf("%s: no data directory", dir)
	}
	lock, err := files.Lock(filepath.Join(dir, ".lock"))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("%w: %s", ErrRunning, dir)
	}
	if err != nil {
		return nil, err
	}
	return &Repair{fs: files, dir: dir, lock: lock}, nil
}

// Close releases the lock.
func (r *Repair) Close() error { return r.lock.Close() }

// Look checks path and remembers what can be mended.
func (r *Repair) Look(ctx context.Context, o Options, sink Sink, path string) (Total, error) {
	o.FS, o.Verify, o.Summary = r.fs, true, true
	r.problems = nil
	r.d = newDump(ctx, o, sink)
	r.d.keep = func(p Problem) {
		if r.can(&p) {
			r.problems = append(r.problems, p)
		}
	}
	return r.d.run([]string{path})
}

// can says whether the fix of a problem may be done here.
func (r *Repair) can(p *Problem) bool {
	switch p.fix.what {
	case fixNone:
		return false
	case fixBatch, fixTopicID:
		return true
	}
	data := r.d.dataDirOf(r.dir)
	typ := parseName(p.File).typ
	return typ != TypeOffsets || data != nil && data.own // without marks the recovery point is the only line there is
}

// job is everything to be done to one file.
type job struct {
	path  string
	fixes []fix
}

// jobs sorts the fixes by file, each file once.
func (r *Repair) jobs() []job {
	var jobs []job
	at := map[string]int{}
	for _, p := range r.problems {
		i, ok := at[p.File]
		if !ok {
			i = len(jobs)
			at[p.File] = i
			jobs = append(jobs, job{path: p.File})
		}
		if p.fix.what == fixBatch || len(jobs[i].fixes) == 0 {
			jobs[i].fixes = append(jobs[i].fixes, p.fix)
		}
	}
	for i := range jobs {
		slices.SortFunc(jobs[i].fixes, func(a, b fix) int { return cmp.Compare(a.pos, b.pos) })
	}
	return jobs
}

// Steps says in words what Do will do.
func (r *Repair) Steps() []string {
	var steps []string
	for _, j := range r.jobs() {
		for _, f := range j.fixes {
			switch f.what {
			case fixBatch:
				steps = append(steps, fmt.Sprintf("%s: replace pos %d..%d by an empty batch for %s, keep the bytes in %d.bad", j.path, f.pos, f.end-1, offsetRange(f.first, f.last), f.pos))
			case fixRemove:
				steps = append(steps, j.path+": remove it; the server makes it anew from the log")
			case fixTopicID:
				steps = append(steps, fmt.Sprintf("%s: write it anew with topic id %s", j.path, base64.RawURLEncoding.EncodeToString(f.id[:])))
			}
		}
	}
	return steps
}

// Do does what Steps says; told is called after each file.
func (r *Repair) Do(told func(string)) error {
	jobs := r.jobs()
	if len(jobs) == 0 {
		return nil
	}
	if err := r.remove(filepath.Join(r.dir, ".kafka_cleanshutdown")); err != nil {
		return err
	}
	for _, j := range jobs {
		var err error
		switch j.fixes[0].what {
		case fixBatch:
			err = r.segment(j)
		case fixTopicID:
			err = r.replace(j.path, []byte("version: 0\ntopic_id: "+base64.RawURLEncoding.EncodeToString(j.fixes[0].id[:])))
		default:
			err = r.remove(j.path)
			if stem, ok := strings.CutSuffix(j.path, ".txnindex"); ok && err == nil {
				err = r.remove(stem + ".index") // a segment without it is read and indexed at the next start
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", j.path, err)
		}
		told(j.path)
	}
	return nil
}

// remove unlinks a file durably; a missing one is no error.
func (r *Repair) remove(paths ...string) error {
	for _, p := range paths {
		if err := r.fs.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return r.fs.SyncDir(filepath.Dir(paths[0]))
}

// replace puts content in the place of a file, durably.
func (r *Repair) replace(path string, content []byte) error {
	if err := r.create(path+".tmp", func(w io.Writer) error { _, err := w.Write(content); return err }); err != nil {
		return err
	}
	if err := r.fs.Rename(path+".tmp", path); err != nil {
		return err
	}
	return r.fs.SyncDir(filepath.Dir(path))
}

// create writes a file and makes its bytes and its name durable.
func (r *Repair) create(path string, write func(io.Writer) error) error {
	f, err := r.fs.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	err = write(io.NewOffsetWriter(f, 0))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return r.fs.SyncDir(filepath.Dir(path))
}

// segment rewrites a log file with empty batches in the places of the bad ones.
func (r *Repair) segment(j job) error {
	from, err := r.fs.OpenFile(j.path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	size, err := from.Size()
	if err != nil {
		return err
	}
	for _, f := range j.fixes {
		if f.end <= f.pos {
			continue
		}
		part := io.NewSectionReader(from, f.pos, f.end-f.pos)
		if err := r.create(r.badName(j.path, f.pos), func(w io.Writer) error { _, err := io.Copy(w, part); return err }); err != nil {
			return err
		}
	}
	fresh := j.path + ".cleaned" // a leftover of this name is removed at the next start
	if err := r.create(fresh, func(w io.Writer) error { return rewrite(w, from, size, j.fixes) }); err != nil {
		return err
	}
	if err := r.loosen(j.path); err != nil {
		return err
	}
	stem := strings.TrimSuffix(j.path, ".log")
	if err := r.remove(stem+".index", stem+".timeindex"); err != nil {
		return err
	}
	if err := r.fs.Rename(fresh, j.path); err != nil {
		return err
	}
	return r.fs.SyncDir(filepath.Dir(j.path))
}

// badName is where the bytes at pos are kept: POS.bad, or with the segment's offset before it if that name is taken.
func (r *Repair) badName(log string, pos int64) string {
	dir := filepath.Dir(log)
	short := filepath.Join(dir, decimal(pos)+".bad")
	if _, err := r.fs.Stat(short); errors.Is(err, fs.ErrNotExist) {
		return short
	}
	return fmt.Sprintf("%s.%d.bad", strings.TrimSuffix(log, ".log"), pos)
}

func rewrite(w io.Writer, from io.ReaderAt, size int64, fixes []fix) error {
	pos := int64(0)
	for _, f := range fixes {
		if _, err := io.Copy(w, io.NewSectionReader(from, pos, f.pos-pos)); err != nil {
			return err
		}
		if err := emptyBatches(w, f); err != nil {
			return err
		}
		pos = f.end
	}
	_, err := io.Copy(w, io.NewSectionReader(from, pos, max(0, size-pos)))
	return err
}

// emptyBatches writes batches without records for the offsets of a fix, as compaction leaves them.
func emptyBatches(w io.Writer, f fix) error {
	for first := f.first; first <= f.last; {
		last := min(f.last, first+math.MaxInt32-1)
		if _, err := w.Write(emptyBatch(first, last, max(f.epoch, 0))); err != nil {
			return err
		}
		first = last + 1
	}
	return nil
}

func emptyBatch(first, last record.Offset, epoch record.Epoch) []byte {
	b := make([]byte, record.HeaderSize)
	be := binary.BigEndian
	be.PutUint64(b, uint64(first))
	be.PutUint32(b[8:], record.HeaderSize-12)
	be.PutUint32(b[12:], uint32(epoch))
	b[16] = record.Magic
	be.PutUint32(b[23:], uint32(last-first))
	for i := 27; i < 57; i++ { // timestamps, producer id, epoch and sequence: −1
		b[i] = 0xff
	}
	be.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
	return b
}

// loosen takes the position out of the partition's mark, if it lies in this segment: it stays the offset that it is, and the server finds its
// place again, in the old file and in the new one.
func (r *Repair) loosen(log string) error {
	dir := filepath.Dir(log)
	_, partition, _, ok := partitionName(dir)
	data := r.d.dataDirOf(r.dir)
	if !ok || data == nil || data.marks == nil {
		return nil
	}
	id, err := r.d.topicID(filepath.Join(dir, "partition.metadata"))
	if err != nil {
		return nil //nolint:nilerr // without an id there is no mark of it
	}
	slot := data.marks.find(id, partition)
	if slot == nil || slot.segment != parseName(log).base {
		return nil
	}
	f, err := r.fs.OpenFile(filepath.Join(r.dir, plog.MarksFile), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	var b [plog.MarkBytes]byte
	_, err = f.ReadAt(b[:], slot.at)
	if err == nil {
		var m plog.Mark
		if m, _, err = plog.DecodeMark(b[:]); err == nil {
			m.Unplaced, m.Position, m.OffsetEntries, m.TimeEntries = true, 0, 0, 0
			m.Counter++
			b = m.Encode()
			_, err = f.WriteAt(b[:], slot.spare)
		}
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

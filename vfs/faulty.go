package vfs

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Fault says which call fails, and how. The zero value matches every call and does nothing.
type Fault struct {
	// Ops are the calls it counts; none means all of them.
	Ops []Op
	// Path is a glob (path.Match) over the last element of the path, or over the whole path if it has a slash; "" is any.
	// For a rename either name may match.
	Path string
	// Nth is the first matching call that is hit, counted from 1 since Inject; 0 means 1.
	Nth int64
	// Sticky hits all matching calls from the Nth on, not it alone.
	Sticky bool
	// Err is what the call returns, usually an errno (EIO, ENOSPC, EROFS) or io.EOF. Nil lets the call go through, after
	// Stall and Short.
	Err error
	// Short, when set, lets that many bytes through: a WriteAt then returns them with Err (EIO if nil, since a short write
	// without an error breaks io.WriterAt), a ReadAt returns them with Err (io.ErrUnexpectedEOF if nil).
	Short *int
	// Stall makes the call wait until the channel is closed.
	Stall <-chan struct{}
	// LoseDirty, for OpSync, OpSyncData and OpMapSync with an Err over a CrashFS, is what kernels do after an I/O error: the
	// file's unsynced bytes stay in the cache, clean, so that a later sync succeeds without writing them; DropCache or a
	// power failure uncovers what the disk has. Without it a failed sync leaves everything as unsynced as before.
	LoseDirty bool
}

// Injection is a Fault in force.
type Injection struct {
	fault Fault
	ops   uint64 // set of Op; 0: all
	seen  atomic.Int64
	hits  atomic.Int64
	where atomic.Pointer[hitCall]
}

type hitCall struct {
	op   Op
	path string
}

// Hits is the number of calls that it hit, stalled ones included.
func (i *Injection) Hits() int64 { return i.hits.Load() }

// Where is the call that it hit first; ok is false where it hit none.
func (i *Injection) Where() (op Op, path string, ok bool) {
	if c := i.where.Load(); c != nil {
		return c.op, c.path, true
	}
	return 0, "", false
}

// Seen is the number of calls that matched, hit or not.
func (i *Injection) Seen() int64 { return i.seen.Load() }

func (i *Injection) matches(op Op, names ...string) bool {
	if i.ops != 0 && i.ops&(1<<op) == 0 {
		return false
	}
	if i.fault.Path == "" {
		return true
	}
	for _, name := range names {
		if !strings.Contains(i.fault.Path, "/") {
			name = path.Base(name)
		}
		if ok, _ := path.Match(i.fault.Path, name); ok {
			return true
		}
	}
	return false
}

// FaultyFS passes calls to another file system, except those that it was told to break. No lock is held while a call
// stalls or runs. Files have no Fd, so that no byte goes around it.
type FaultyFS struct {
	inner FS
	calls atomic.Int64
	byOp  [opEnd]atomic.Int64

	mu     sync.Mutex
	faults []*Injection

	space space
}

// NewFaulty wraps inner; until told otherwise it changes nothing. To break the k-th of all calls of a workload, run it
// once for the number of Calls, then again for each k with
//
//	fsys := vfs.NewFaulty(inner, vfs.Fault{Nth: k, Err: syscall.EIO})
func NewFaulty(inner FS, faults ...Fault) *FaultyFS {
	f := &FaultyFS{inner: inner, space: space{inner: inner, held: map[string]*hold{}}}
	for _, fault := range faults {
		f.Inject(fault)
	}
	return f
}

// Inject puts a fault in force. It panics on a bad glob.
func (f *FaultyFS) Inject(fault Fault) *Injection {
	if _, err := path.Match(fault.Path, ""); err != nil {
		panic("vfs: " + err.Error() + ": " + fault.Path)
	}
	inj := &Injection{fault: fault}
	for _, op := range fault.Ops {
		inj.ops |= 1 << op
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, inj)
	return inj
}

// Heal takes the given faults out of force, or all of them.
func (f *FaultyFS) Heal(injections ...*Injection) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var left []*Injection
	for _, i := range f.faults {
		for _, gone := range injections {
			if i == gone {
				i = nil
				break
			}
		}
		if i != nil && len(injections) > 0 {
			left = append(left, i)
		}
	}
	f.faults = left
}

// Calls counts the calls so far: of the given kinds, or all.
func (f *FaultyFS) Calls(ops ...Op) int64 {
	if len(ops) == 0 {
		return f.calls.Load()
	}
	var sum int64
	for _, op := range ops {
		sum += f.byOp[op].Load()
	}
	return sum
}

// enter counts a call and returns the fault that hits it, if one does, after its stall.
func (f *FaultyFS) enter(op Op, names ...string) *Fault {
	f.calls.Add(1)
	f.byOp[op].Add(1)
	var hit *Fault
	f.mu.Lock()
	for _, i := range f.faults {
		if !i.matches(op, names...) {
			continue
		}
		n, nth := i.seen.Add(1), max(1, i.fault.Nth)
		if hit == nil && (n == nth || n > nth && i.fault.Sticky) {
			i.where.CompareAndSwap(nil, &hitCall{op, names[0]})
			i.hits.Add(1)
			hit = &i.fault
		}
	}
	f.mu.Unlock()
	if hit != nil && hit.Stall != nil {
		<-hit.Stall
	}
	return hit
}

// fail is enter for calls that can only fail or go through.
func (f *FaultyFS) fail(op Op, names ...string) error {
	if hit := f.enter(op, names...); hit != nil && hit.Err != nil {
		return pathError(op.String(), names[0], hit.Err)
	}
	return nil
}

// OpenFile opens a file of the inner file system; a creation counts as OpCreate.
func (f *FaultyFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	op := OpOpen
	if flag&syscall.O_CREAT != 0 {
		if _, err := f.inner.Stat(name); errors.Is(err, fs.ErrNotExist) {
			op = OpCreate
		}
	}
	if err := f.fail(op, name); err != nil {
		return nil, err
	}
	hold := f.space.of(name)
	inner, err := f.inner.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	if flag&syscall.O_TRUNC != 0 {
		f.space.cut(hold, 0)
	}
	return &faultyFile{fs: f, inner: inner, hold: hold}, nil
}

// Mkdir implements FS.
func (f *FaultyFS) Mkdir(name string, perm fs.FileMode) error {
	if err := f.fail(OpMkdir, name); err != nil {
		return err
	}
	return f.inner.Mkdir(name, perm)
}

// MkdirAll implements FS; each directory is a Stat, a Mkdir and a SyncDir of its own.
func (f *FaultyFS) MkdirAll(name string, perm fs.FileMode) error {
	return mkdirAll(f, path.Clean(name), perm, path.Dir)
}

// Remove implements FS.
func (f *FaultyFS) Remove(name string) error {
	if err := f.fail(OpRemove, name); err != nil {
		return err
	}
	hold := f.space.of(name)
	err := f.inner.Remove(name)
	if err == nil {
		f.space.drop(name, hold)
	}
	return err
}

// RemoveAll implements FS, one Remove after the other from the leaves up.
func (f *FaultyFS) RemoveAll(name string) error { return removeAll(f, name) }

// Rename implements FS.
func (f *FaultyFS) Rename(oldname, newname string) error {
	if err := f.fail(OpRename, newname, oldname); err != nil {
		return err
	}
	replaced := f.space.of(newname)
	err := f.inner.Rename(oldname, newname)
	if err == nil {
		f.space.move(oldname, newname, replaced)
	}
	return err
}

// ReadDir implements FS.
func (f *FaultyFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := f.fail(OpReadDir, name); err != nil {
		return nil, err
	}
	return f.inner.ReadDir(name)
}

// Stat implements FS.
func (f *FaultyFS) Stat(name string) (fs.FileInfo, error) {
	if err := f.fail(OpStat, name); err != nil {
		return nil, err
	}
	return f.inner.Stat(name)
}

// SyncDir implements FS.
func (f *FaultyFS) SyncDir(name string) error {
	if err := f.fail(OpSyncDir, name); err != nil {
		return err
	}
	return f.inner.SyncDir(name)
}

// Lock implements FS.
func (f *FaultyFS) Lock(name string) (io.Closer, error) {
	if err := f.fail(OpLock, name); err != nil {
		return nil, err
	}
	return f.inner.Lock(name)
}

// Usage implements FS; after SetFree, Free is what is left of that.
func (f *FaultyFS) Usage(name string) (Usage, error) {
	if err := f.fail(OpUsage, name); err != nil {
		return Usage{}, err
	}
	u, err := f.inner.Usage(name)
	if free, limited := f.space.left(); limited && err == nil {
		u.Free = free
		u.Total = max(u.Total, free)
	}
	return u, err
}

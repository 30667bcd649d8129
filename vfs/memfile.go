package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"
)

// memFile is an open file in memory.
type memFile struct {
	fs     *memFS
	node   *node
	name   string
	flag   int
	closed atomic.Bool
}

func (f *memFile) Name() string        { return f.name }
func (f *memFile) Fd() (uintptr, bool) { return 0, false }

func (f *memFile) Close() error {
	if f.closed.Swap(true) {
		return pathError("close", f.name, fs.ErrClosed)
	}
	if f.fs.dead.Load() {
		return pathError("close", f.name, ErrPowerOff)
	}
	return nil
}

// usable refuses a call on a closed file, after a power failure, and (with errno) where the open flags forbid it.
func (f *memFile) usable(op string, allowed bool, errno syscall.Errno) error {
	switch {
	case f.fs.dead.Load():
		return pathError(op, f.name, ErrPowerOff)
	case f.closed.Load():
		return pathError(op, f.name, fs.ErrClosed)
	case !allowed:
		return pathError(op, f.name, errno)
	}
	return nil
}

func (f *memFile) writable() bool { return f.flag&(os.O_WRONLY|os.O_RDWR) != 0 }

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.usable("read", f.flag&os.O_WRONLY == 0, syscall.EBADF); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("read", f.name, syscall.EINVAL)
	}
	n := f.node
	n.mu.RLock()
	if len(n.stale) > 0 {
		n.mu.RUnlock()
		n.mu.Lock()
		n.settle()
		n.mu.Unlock()
		n.mu.RLock()
	}
	defer n.mu.RUnlock()
	got := int(max(0, min(int64(len(p)), n.data.size-off)))
	n.data.read(p[:got], off)
	if got < len(p) {
		return got, io.EOF
	}
	return got, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.usable("write", f.writable(), syscall.EBADF); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("write", f.name, syscall.EINVAL)
	}
	if off > maxMemFile-int64(len(p)) {
		return 0, pathError("write", f.name, syscall.EFBIG)
	}
	if len(p) == 0 {
		return 0, nil
	}
	err := f.fs.change(OpWrite, f.name, false, func() error {
		f.write(p, off)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *memFile) write(p []byte, off int64) {
	n := f.node
	n.mu.Lock()
	defer n.mu.Unlock()
	n.settle()
	f.fs.journal.touch(n)
	grown := int64(-1)
	if end := off + int64(len(p)); end > n.data.size {
		n.data.size, grown = end, end
	}
	n.data.write(p, off)
	n.settle()
	n.slab.seen(off, int64(len(p)))
	f.fs.journal.wrote(f.name, n, extent{off, int64(len(p))}, grown)
}

func (f *memFile) Size() (int64, error) {
	if err := f.usable("stat", true, 0); err != nil {
		return 0, err
	}
	f.node.mu.RLock()
	defer f.node.mu.RUnlock()
	return f.node.data.size, nil
}

func (f *memFile) Truncate(size int64) error {
	if err := f.usable("truncate", f.writable() && size >= 0, syscall.EINVAL); err != nil {
		return err
	}
	if size > maxMemFile {
		return pathError("truncate", f.name, syscall.EFBIG)
	}
	return f.fs.change(OpTruncate, f.name, false, func() error { return f.fs.truncate(f.node, f.name, size) })
}

// truncate sets the size of n. To cut a live mapping is a bug of the caller: on the real file system the next access to
// the lost part ends the process.
func (m *memFS) truncate(n *node, name string, size int64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range append(n.stale, n.slab) {
		if s != nil && size < s.longest {
			panic(fmt.Sprintf("vfs: truncate of %s to %d bytes cuts a live mapping of %d", name, size, s.longest))
		}
	}
	if size == n.data.size && n.alloc <= size {
		return nil
	}
	n.settle()
	m.journal.touch(n)
	n.data.resize(size)
	n.alloc = min(n.alloc, size)
	if n.slab != nil {
		n.slab.seen(0, int64(len(n.slab.mem)))
	}
	m.journal.resized(name, n, size)
	return nil
}

func (f *memFile) Allocate(off, length int64, keepSize bool) error {
	if err := f.usable("fallocate", f.writable(), syscall.EBADF); err != nil {
		return err
	}
	if off < 0 || length <= 0 {
		return pathError("fallocate", f.name, syscall.EINVAL)
	}
	if off > maxMemFile-length {
		return pathError("fallocate", f.name, syscall.EFBIG)
	}
	return f.fs.change(OpAllocate, f.name, false, func() error {
		n := f.node
		n.mu.Lock()
		defer n.mu.Unlock()
		f.fs.journal.touch(n)
		grown := int64(-1)
		n.alloc = max(n.alloc, off+length)
		if !keepSize && off+length > n.data.size {
			n.data.size, grown = off+length, off+length
		}
		f.fs.journal.allocated(f.name, n, grown)
		return nil
	})
}

func (f *memFile) Sync() error { return f.sync(OpSync) }

func (f *memFile) SyncData() error { return f.sync(OpSyncData) }

func (f *memFile) sync(op Op) error {
	if err := f.usable(op.String(), true, 0); err != nil {
		return err
	}
	return f.fs.change(op, f.name, false, func() error {
		f.fs.journal.syncFile(f.node)
		return nil
	})
}

// DropCache matters after a failed sync only (loseDirty): it uncovers what the disk has.
func (f *memFile) DropCache() error {
	if err := f.usable("fadvise", true, 0); err != nil {
		return err
	}
	return f.fs.look("fadvise", f.name, func() error {
		f.fs.journal.dropCache(f.node)
		return nil
	})
}

func (f *memFile) Map(length int64, writable bool) (*Mapping, error) {
	allowed := f.flag&os.O_WRONLY == 0 && (!writable || f.flag&os.O_RDWR != 0)
	if err := f.usable("mmap", allowed, syscall.EACCES); err != nil {
		return nil, err
	}
	var m *Mapping
	err := f.fs.look("mmap", f.name, func() error {
		n := f.node
		n.mu.Lock()
		defer n.mu.Unlock()
		if length < 1 || length > n.data.size {
			return pathError("mmap", f.name, syscall.EINVAL)
		}
		n.settle()
		if writable {
			f.fs.journal.touch(n)
		}
		s := n.mapPages(f.name, length, writable, f.fs.journal != nil)
		f.fs.journal.watch(n)
		m = newMapping(s.mem[:length], writable, &memMapping{file: f, slab: s})
		return nil
	})
	return m, err
}

// syncMapped makes stores to the first length bytes durable; the file may be closed.
func (f *memFile) syncMapped(length int64) error {
	return f.fs.change(OpMapSync, f.name, false, func() error {
		f.fs.journal.syncRange(f.node, length)
		return nil
	})
}

// unmap drops a mapping; its stores are seen first, so that they count as unsynced.
func (m *memFS) unmap(n *node, s *slab) {
	if m.journal != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.journal.scan(n)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unmapPages(s)
}

// loseDirty is a failed sync: the pages are clean from now on, but the disk does not have them. It reports false where
// nothing is recorded.
func (f *memFile) loseDirty() bool {
	if f.fs.journal == nil {
		return false
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.fs.journal.scan(f.node)
	f.fs.journal.lose(f.node)
	return true
}

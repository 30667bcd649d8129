package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"github.com/tysonmote/gommap"
	"golang.org/x/sys/unix"
)

// OS returns the machine's file system.
func OS() FS { return osFS{} }

type osFS struct{}

// openFlags are the flags that OpenFile understands; positions are explicit, so O_APPEND is not among them.
const openFlags = os.O_RDONLY | os.O_WRONLY | os.O_RDWR | os.O_CREATE | os.O_EXCL | os.O_TRUNC

func (osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	if flag&^openFlags != 0 {
		return nil, pathError("open", name, syscall.EINVAL)
	}
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = pathError("open", name, syscall.EISDIR)
	}
	var raw syscall.RawConn
	if err == nil {
		raw, err = f.SyscallConn()
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &osFile{f: f, raw: raw, fd: f.Fd()}, nil
}

func (osFS) Mkdir(name string, perm fs.FileMode) error { return os.Mkdir(name, perm) }

func (o osFS) MkdirAll(name string, perm fs.FileMode) error {
	return mkdirAll(o, filepath.Clean(name), perm, filepath.Dir)
}

func (osFS) Remove(name string) error { return os.Remove(name) }

func (osFS) RemoveAll(name string) error { return os.RemoveAll(name) }

func (osFS) Rename(oldname, newname string) error {
	err := os.Rename(oldname, newname)
	if link, ok := errors.AsType[*os.LinkError](err); ok {
		return renameError(oldname, newname, link.Err)
	}
	return err
}

func (osFS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

func (osFS) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }

func (osFS) SyncDir(name string) error {
	dir, err := os.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	err = dir.Sync()
	if cerr := dir.Close(); err == nil {
		err = cerr
	}
	return err
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	err = retryEINTR(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if err == nil {
		return f, nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrLocked
	}
	_ = f.Close()
	return nil, pathError("lock", name, err)
}

func (osFS) Usage(name string) (Usage, error) {
	var st unix.Statfs_t
	if err := retryEINTR(func() error { return unix.Statfs(name, &st) }); err != nil {
		return Usage{}, pathError("statfs", name, err)
	}
	unit := int64(st.Frsize)
	if unit <= 0 {
		unit = int64(st.Bsize)
	}
	return Usage{Total: int64(st.Blocks) * unit, Free: int64(st.Bavail) * unit}, nil
}

// osFile is one descriptor. Everything that is no plain read or write goes through raw, which keeps the descriptor open
// for the time of the call.
type osFile struct {
	f   *os.File
	raw syscall.RawConn
	fd  uintptr
}

func (f *osFile) ReadAt(p []byte, off int64) (int, error)  { return f.f.ReadAt(p, off) }
func (f *osFile) WriteAt(p []byte, off int64) (int, error) { return f.f.WriteAt(p, off) }
func (f *osFile) Close() error                             { return f.f.Close() }
func (f *osFile) Name() string                             { return f.f.Name() }
func (f *osFile) Truncate(size int64) error                { return f.f.Truncate(size) }
func (f *osFile) Sync() error                              { return f.f.Sync() }
func (f *osFile) Fd() (uintptr, bool)                      { return f.fd, true }

func (f *osFile) Size() (int64, error) {
	var st unix.Stat_t
	err := f.control("stat", func(fd int) error { return unix.Fstat(fd, &st) })
	return st.Size, err
}

func (f *osFile) SyncData() error { return f.control("fdatasync", unix.Fdatasync) }

func (f *osFile) DropCache() error {
	return f.control("fadvise", func(fd int) error { return unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED) })
}

func (f *osFile) Allocate(off, n int64, keepSize bool) error {
	var mode uint32
	if keepSize {
		mode = unix.FALLOC_FL_KEEP_SIZE
	}
	before, err := f.Size()
	if err != nil {
		return err
	}
	err = f.control("fallocate", func(fd int) error { return unix.Fallocate(fd, mode, off, n) })
	if err == nil || keepSize {
		return err
	}
	// A full disk may leave the file part-grown.
	if after, serr := f.Size(); serr == nil && after == before {
		return err
	}
	if terr := f.Truncate(before); terr != nil {
		return errors.Join(err, terr)
	}
	return err
}

func (f *osFile) Map(length int64, writable bool) (*Mapping, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if length < 1 || length > size || length != int64(int(length)) {
		return nil, pathError("mmap", f.Name(), syscall.EINVAL)
	}
	prot := gommap.PROT_READ
	if writable {
		prot |= gommap.PROT_WRITE
	}
	back := &osMapping{name: f.Name()}
	err = f.control("mmap", func(fd int) error {
		var merr error
		back.mem, merr = gommap.MapRegion(uintptr(fd), 0, length, prot, gommap.MAP_SHARED)
		return merr
	})
	if err != nil {
		return nil, err
	}
	return newMapping(back.mem, writable, back), nil
}

// control runs fn with the descriptor held open, again when a signal interrupts it, and dresses its error.
func (f *osFile) control(op string, fn func(fd int) error) error {
	var err error
	cerr := f.raw.Control(func(fd uintptr) {
		err = retryEINTR(func() error { return fn(int(fd)) })
	})
	if cerr != nil {
		err = fs.ErrClosed
	}
	if err != nil {
		return pathError(op, f.Name(), err)
	}
	return nil
}

// osMapping owns the pages of one mmap.
type osMapping struct {
	name string
	mem  gommap.MMap
	gone atomic.Bool
}

func (m *osMapping) syncMapped() error {
	err := retryEINTR(func() error { return m.mem.Sync(gommap.MS_SYNC) })
	if err != nil {
		return pathError("msync", m.name, err)
	}
	return nil
}

// unmap must not reach the kernel twice: by then the address may be another mapping's.
func (m *osMapping) unmap() error {
	if m.gone.Swap(true) {
		panic("vfs: second munmap of " + m.name)
	}
	if err := m.mem.UnsafeUnmap(); err != nil {
		return pathError("munmap", m.name, err)
	}
	return nil
}

func retryEINTR(fn func() error) error {
	for {
		if err := fn(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func renameError(oldname, newname string, err error) error {
	return pathError("rename", oldname+" -> "+newname, err)
}

// mkdirAll makes the missing directories of name from the top down, each name durable before the next is made. A process
// that is killed in between leaves at most one directory whose name is not durable, the deepest; so the name of the
// deepest one that exists is made durable as well, where its parent may be read.
func mkdirAll(fsys FS, name string, perm fs.FileMode, parentOf func(string) string) error {
	parent := parentOf(name)
	info, err := fsys.Stat(name)
	if err == nil {
		if !info.IsDir() {
			return pathError("mkdir", name, syscall.ENOTDIR)
		}
		if parent == name {
			return nil
		}
		if err := fsys.SyncDir(parent); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) || parent == name {
		return err
	}
	if err := mkdirAll(fsys, parent, perm, parentOf); err != nil {
		return err
	}
	if err := fsys.Mkdir(name, perm); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return fsys.SyncDir(parent)
}

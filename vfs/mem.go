package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// ErrPowerOff says that the machine of a [CrashFS], or the process on it, is gone.
var ErrPowerOff = errors.New("vfs: the power is off")

// NewMem returns an empty file system in memory. All paths start at its root, relative ones too. It knows no owners,
// links, umask or clock: a file's modification time is the zero time. Removed but open files live on, as on Unix. It never
// runs full; wrap it with [NewFaulty] for that.
func NewMem() FS { return newMemFS() }

// memTotal is the size that a file system in memory claims to have.
const memTotal = 1 << 40

// memFS is a tree of nodes. With a journal it is the model under CrashFS: every change then happens under mu.
type memFS struct {
	mu      sync.RWMutex // the tree; taken before any node.mu
	root    *node
	journal *journal // nil: nothing is recorded
	dead    atomic.Bool
}

// node is a directory or a file, alive as long as a name or an open file leads to it.
type node struct {
	mode fs.FileMode

	// Guarded by memFS.mu.
	names       []dirent // a directory's, sorted
	namesShared bool     // another slice header has the same array
	links       int32    // names that lead here
	locked      bool     // by Lock
	crash       crashNode

	mu    sync.RWMutex // the file's bytes, below
	data  content
	alloc int64 // end of the blocks reserved by Allocate
	slab  *slab // while mapped
	stale []*slab
}

type dirent struct {
	name string
	node *node
}

func newMemFS() *memFS {
	return &memFS{root: &node{mode: fs.ModeDir | 0o755, links: 1}}
}

func (m *memFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	if flag&^openFlags != 0 || flag&(os.O_WRONLY|os.O_RDWR) == os.O_WRONLY|os.O_RDWR {
		return nil, pathError("open", name, syscall.EINVAL)
	}
	f := &memFile{fs: m, name: name, flag: flag}
	open := func() error {
		n, err := m.open(name, flag, perm)
		f.node = n
		return err
	}
	if err := m.openCall(name, flag, open); err != nil {
		return nil, err
	}
	return f, nil
}

// openCall runs open as the call that it is going to be: a creation, a truncation, or no change at all.
func (m *memFS) openCall(name string, flag int, open func() error) error {
	if m.journal == nil || flag&(os.O_CREATE|os.O_TRUNC) == 0 {
		return m.look("open", name, open)
	}
	m.mu.RLock()
	_, err := m.lookup(name)
	m.mu.RUnlock()
	switch {
	case err != nil && flag&os.O_CREATE != 0:
		return m.change(OpCreate, name, true, open)
	case err == nil && flag&os.O_TRUNC != 0:
		return m.change(OpTruncate, name, true, open)
	}
	return m.look("open", name, open)
}

// open finds or makes the file; the caller holds m.mu.
func (m *memFS) open(name string, flag int, perm fs.FileMode) (*node, error) {
	n, err := m.lookup(name)
	switch {
	case err == nil && flag&(os.O_CREATE|os.O_EXCL) == os.O_CREATE|os.O_EXCL:
		return nil, pathError("open", name, syscall.EEXIST)
	case err == nil && n.mode.IsDir():
		return nil, pathError("open", name, syscall.EISDIR)
	case err == nil:
		if flag&os.O_TRUNC != 0 {
			err = m.truncate(n, name, 0)
		}
		return n, err
	case flag&os.O_CREATE == 0 || !errors.Is(err, syscall.ENOENT):
		return nil, pathError("open", name, err)
	}
	dir, base, err := m.parent(name)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	n = &node{mode: perm & fs.ModePerm}
	m.setName(dir, base, n)
	m.journal.linked(OpCreate, name, edit{dir, base, n})
	return n, nil
}

func (m *memFS) Mkdir(name string, perm fs.FileMode) error {
	return m.change(OpMkdir, name, true, func() error {
		if _, err := m.lookup(name); err == nil {
			return pathError("mkdir", name, syscall.EEXIST)
		}
		dir, base, err := m.parent(name)
		if err != nil {
			return pathError("mkdir", name, err)
		}
		n := &node{mode: fs.ModeDir | perm&fs.ModePerm}
		m.setName(dir, base, n)
		m.journal.linked(OpMkdir, name, edit{dir, base, n})
		return nil
	})
}

func (m *memFS) MkdirAll(name string, perm fs.FileMode) error {
	return mkdirAll(m, path.Clean("/"+name), perm, path.Dir)
}

func (m *memFS) Remove(name string) error {
	return m.change(OpRemove, name, true, func() error {
		n, err := m.lookup(name)
		if err == nil && n == m.root {
			err = syscall.EBUSY
		}
		if err == nil && len(n.names) > 0 {
			err = syscall.ENOTEMPTY
		}
		if err != nil {
			return pathError("remove", name, err)
		}
		dir, base, _ := m.parent(name)
		m.setName(dir, base, nil)
		m.journal.linked(OpRemove, name, edit{dir, base, nil})
		return nil
	})
}

// RemoveAll removes from the leaves up, one Remove after the other.
func (m *memFS) RemoveAll(name string) error { return removeAll(m, name) }

func removeAll(fsys FS, name string) error {
	info, err := fsys.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		entries, err := fsys.ReadDir(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			if err := removeAll(fsys, path.Join(name, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := fsys.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (m *memFS) Rename(oldname, newname string) error {
	return m.change(OpRename, newname, true, func() error {
		if err := m.rename(oldname, newname); err != nil {
			return renameError(oldname, newname, err)
		}
		return nil
	})
}

func (m *memFS) rename(oldname, newname string) error {
	n, err := m.lookup(oldname)
	if err != nil {
		return err
	}
	toDir, toBase, err := m.parent(newname)
	if err != nil {
		return err
	}
	if n == m.root {
		return syscall.EBUSY
	}
	from, to := path.Clean("/"+oldname), path.Clean("/"+newname)
	replaced, _ := m.lookup(newname)
	switch {
	case replaced == n: // also when both are names of one file
		return nil
	case replaced != nil && replaced.mode.IsDir():
		return syscall.EEXIST
	case replaced != nil && n.mode.IsDir():
		return syscall.ENOTDIR
	case strings.HasPrefix(to, from+"/"):
		return syscall.EINVAL
	}
	fromDir, fromBase, _ := m.parent(oldname)
	m.setName(toDir, toBase, n)
	m.setName(fromDir, fromBase, nil)
	m.journal.linked(OpRename, newname, edit{fromDir, fromBase, nil}, edit{toDir, toBase, n})
	return nil
}

func (m *memFS) ReadDir(name string) (entries []fs.DirEntry, err error) {
	err = m.look("readdir", name, func() error {
		n, err := m.lookup(name)
		if err == nil && !n.mode.IsDir() {
			err = syscall.ENOTDIR
		}
		if err != nil {
			return pathError("readdir", name, err)
		}
		entries = make([]fs.DirEntry, len(n.names))
		for i, e := range n.names {
			entries[i] = fs.FileInfoToDirEntry(e.node.info(e.name))
		}
		return nil
	})
	return entries, err
}

func (m *memFS) Stat(name string) (info fs.FileInfo, err error) {
	err = m.look("stat", name, func() error {
		n, err := m.lookup(name)
		if err != nil {
			return pathError("stat", name, err)
		}
		info = n.info(path.Base(path.Clean("/" + name)))
		return nil
	})
	return info, err
}

func (m *memFS) SyncDir(name string) error {
	return m.change(OpSyncDir, name, true, func() error {
		n, err := m.lookup(name)
		if err == nil && !n.mode.IsDir() {
			err = syscall.ENOTDIR
		}
		if err != nil {
			return pathError("open", name, err)
		}
		m.journal.syncDir(n)
		return nil
	})
}

func (m *memFS) Lock(name string) (io.Closer, error) {
	var n *node
	err := m.openCall(name, os.O_CREATE, func() (err error) {
		n, err = m.open(name, os.O_RDWR|os.O_CREATE, 0o644)
		if err == nil && n.locked {
			err = pathError("lock", name, ErrLocked)
		}
		if err == nil {
			n.locked = true
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &memLock{fs: m, node: n, name: name}, nil
}

// memLock is a held lock file.
type memLock struct {
	fs   *memFS
	node *node
	name string
	done bool
}

func (l *memLock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	if l.done {
		return pathError("close", l.name, fs.ErrClosed)
	}
	l.done, l.node.locked = true, false
	return nil
}

func (m *memFS) Usage(name string) (u Usage, err error) {
	err = m.look("statfs", name, func() error {
		if _, err := m.lookup(name); err != nil {
			return pathError("statfs", name, err)
		}
		u = Usage{Total: memTotal, Free: memTotal - m.root.used()}
		return nil
	})
	return u, err
}

// used is the space of all files below n; the caller holds memFS.mu.
func (n *node) used() int64 {
	var sum int64
	for _, e := range n.names {
		sum += e.node.used()
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	return sum + roundUp(max(n.data.size, n.alloc))
}

// roundUp is a length in whole blocks.
func roundUp(n int64) int64 { return (n + pageSize - 1) &^ (pageSize - 1) }

// look runs fn, which changes nothing that is recorded, under the tree lock.
func (m *memFS) look(op, name string, fn func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead.Load() {
		return pathError(op, name, ErrPowerOff)
	}
	return fn()
}

// change runs fn, which changes something. A journal brings its own lock, and the hook; otherwise tree says whether fn
// needs the tree lock.
func (m *memFS) change(op Op, name string, tree bool, fn func() error) error {
	if m.journal != nil {
		return m.journal.around(op, name, fn)
	}
	if tree {
		m.mu.Lock()
		defer m.mu.Unlock()
	}
	return fn()
}

// lookup walks to a node; the caller holds m.mu. Its errors are bare.
func (m *memFS) lookup(name string) (*node, error) {
	if name == "" {
		return nil, syscall.ENOENT
	}
	n := m.root
	for rest := path.Clean("/" + name)[1:]; rest != ""; {
		var part string
		part, rest, _ = strings.Cut(rest, "/")
		if !n.mode.IsDir() {
			return nil, syscall.ENOTDIR
		}
		i, ok := findName(n.names, part)
		if !ok {
			return nil, syscall.ENOENT
		}
		n = n.names[i].node
	}
	return n, nil
}

// parent walks to the directory of name.
func (m *memFS) parent(name string) (dir *node, base string, err error) {
	if name == "" {
		return nil, "", syscall.ENOENT
	}
	d, base := path.Split(path.Clean("/" + name))
	dir, err = m.lookup(d)
	if err == nil && !dir.mode.IsDir() {
		err = syscall.ENOTDIR
	}
	return dir, base, err
}

// setName makes name in dir lead to n, nowhere if n is nil; the caller holds m.mu.
func (m *memFS) setName(dir *node, name string, n *node) {
	if m.journal != nil {
		dir.split()
	}
	if dir.namesShared {
		dir.names, dir.namesShared = slices.Clone(dir.names), false
	}
	if old := putName(&dir.names, name, n); old != nil {
		old.links--
	}
	if n != nil {
		n.links++
	}
}

func findName(names []dirent, name string) (int, bool) {
	return slices.BinarySearchFunc(names, name, func(e dirent, name string) int { return strings.Compare(e.name, name) })
}

// putName sets or (n nil) deletes a name in a sorted list, and returns the node that it led to before.
func putName(names *[]dirent, name string, n *node) (old *node) {
	i, ok := findName(*names, name)
	switch {
	case ok && n != nil:
		old, (*names)[i].node = (*names)[i].node, n
	case ok:
		old = (*names)[i].node
		*names = slices.Delete(*names, i, i+1)
	case n != nil:
		*names = slices.Insert(*names, i, dirent{name, n})
	}
	return old
}

// info describes n.
func (n *node) info(name string) fs.FileInfo {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return memInfo{name: name, size: n.data.size, mode: n.mode}
}

type memInfo struct {
	name string
	size int64
	mode fs.FileMode
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) Mode() fs.FileMode  { return i.mode }
func (i memInfo) ModTime() time.Time { return time.Time{} }
func (i memInfo) IsDir() bool        { return i.mode.IsDir() }
func (i memInfo) Sys() any           { return nil }

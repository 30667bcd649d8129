package vfs

import (
	"io"
	"syscall"
)

// faultyFile is an open file of a FaultyFS.
type faultyFile struct {
	fs    *FaultyFS
	inner File
	hold  *hold
}

func (f *faultyFile) Name() string        { return f.inner.Name() }
func (f *faultyFile) Fd() (uintptr, bool) { return 0, false }

// Close always closes the inner file, as the kernel does.
func (f *faultyFile) Close() error {
	ferr := f.fs.fail(OpClose, f.Name())
	if err := f.inner.Close(); err != nil {
		return err
	}
	return ferr
}

func (f *faultyFile) ReadAt(p []byte, off int64) (int, error) {
	hit := f.fs.enter(OpRead, f.Name())
	if hit == nil || hit.Short == nil && hit.Err == nil {
		return f.inner.ReadAt(p, off)
	}
	n, err := 0, hit.Err
	if hit.Short != nil {
		var rerr error
		if n, rerr = f.inner.ReadAt(p[:min(*hit.Short, len(p))], off); rerr != nil {
			return n, rerr
		}
		if err == nil {
			if n == len(p) {
				return n, nil
			}
			err = io.ErrUnexpectedEOF
		}
	}
	if err == io.EOF { // io.ReaderAt wants the bare value
		return n, err
	}
	return n, pathError("read", f.Name(), err)
}

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	hit := f.fs.enter(OpWrite, f.Name())
	fits, fault := len(p), error(nil)
	if hit != nil {
		if fault = hit.Err; fault != nil {
			fits = 0
		}
		if hit.Short != nil && *hit.Short < len(p) {
			fits = *hit.Short
			if fault == nil {
				fault = syscall.EIO
			}
		}
	}
	if room := f.fs.space.take(f.hold, off, int64(fits)); room < int64(fits) {
		fits, fault = int(room), syscall.ENOSPC
	}
	n := 0
	if fits > 0 || fault == nil {
		var err error
		if n, err = f.inner.WriteAt(p[:fits], off); err != nil {
			return n, err
		}
	}
	if fault != nil {
		return n, pathError("write", f.Name(), fault)
	}
	return n, nil
}

func (f *faultyFile) Size() (int64, error) {
	if err := f.fs.fail(OpSize, f.Name()); err != nil {
		return 0, err
	}
	return f.inner.Size()
}

func (f *faultyFile) Truncate(size int64) error {
	if err := f.fs.fail(OpTruncate, f.Name()); err != nil {
		return err
	}
	err := f.inner.Truncate(size)
	if err == nil {
		f.fs.space.cut(f.hold, size)
	}
	return err
}

func (f *faultyFile) Allocate(off, n int64, keepSize bool) error {
	if err := f.fs.fail(OpAllocate, f.Name()); err != nil {
		return err
	}
	if !f.fs.space.reserve(f.hold, off, n) {
		return pathError("fallocate", f.Name(), syscall.ENOSPC)
	}
	return f.inner.Allocate(off, n, keepSize)
}

func (f *faultyFile) Sync() error { return f.sync(OpSync, f.inner.Sync) }

func (f *faultyFile) SyncData() error { return f.sync(OpSyncData, f.inner.SyncData) }

func (f *faultyFile) sync(op Op, sync func() error) error {
	hit := f.fs.enter(op, f.Name())
	if hit == nil || hit.Err == nil {
		return sync()
	}
	if hit.LoseDirty {
		loser, ok := f.inner.(interface{ loseDirty() bool })
		if !ok || !loser.loseDirty() {
			panic("vfs: Fault.LoseDirty needs a CrashFS directly below")
		}
	}
	return pathError(op.String(), f.Name(), hit.Err)
}

func (f *faultyFile) DropCache() error {
	if err := f.fs.fail(OpDropCache, f.Name()); err != nil {
		return err
	}
	return f.inner.DropCache()
}

func (f *faultyFile) Map(length int64, writable bool) (*Mapping, error) {
	if err := f.fs.fail(OpMap, f.Name()); err != nil {
		return nil, err
	}
	m, err := f.inner.Map(length, writable)
	if err != nil {
		return nil, err
	}
	return newMapping(m.Bytes(), writable, &faultyMapping{file: f, inner: m}), nil
}

// faultyMapping is the backing of a mapping whose Sync can be broken.
type faultyMapping struct {
	file  *faultyFile
	inner *Mapping
}

func (m *faultyMapping) syncMapped() error { return m.file.sync(OpMapSync, m.inner.Sync) }
func (m *faultyMapping) unmap() error      { return m.inner.Release() }

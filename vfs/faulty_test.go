package vfs_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/keeplog/keeplog/vfs"
)

// session uses every kind of call once or more, and returns the first error.
func session(fsys vfs.FS) error {
	if err := fsys.MkdirAll("/d/e", 0o755); err != nil {
		return err
	}
	lock, err := fsys.Lock("/d/.lock")
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if _, err := fsys.Usage("/d"); err != nil {
		return err
	}
	f, err := fsys.OpenFile("/d/e/f", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	if err := useFile(f); err != nil {
		_ = f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := errors.Join(fsys.Rename("/d/e/f", "/d/e/g"), fsys.SyncDir("/d/e")); err != nil {
		return err
	}
	if f, err = fsys.OpenFile("/d/e/g", os.O_RDONLY, 0); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return fsys.RemoveAll("/d/e")
}

func useFile(f vfs.File) error {
	if _, err := f.WriteAt(make([]byte, 100), 0); err != nil {
		return err
	}
	if _, err := f.ReadAt(make([]byte, 100), 0); err != nil {
		return err
	}
	if _, err := f.Size(); err != nil {
		return err
	}
	m, err := f.Map(100, true)
	if err != nil {
		return err
	}
	if err := m.Sync(); err != nil {
		_ = m.Release()
		return err
	}
	if err := m.Release(); err != nil {
		return err
	}
	for _, call := range []func() error{
		f.Sync, f.SyncData, f.DropCache,
		func() error { return f.Allocate(0, 200, false) },
		func() error { return f.Truncate(50) },
	} {
		if err := call(); err != nil {
			return err
		}
	}
	return nil
}

// TestEveryCallCanFail breaks the k-th call for every k: the session must meet exactly that error.
func TestEveryCallCanFail(t *testing.T) {
	for _, inner := range []func() vfs.FS{vfs.NewMem, func() vfs.FS { return vfs.NewCrash() }} {
		count := vfs.NewFaulty(inner())
		must(t, session(count))
		if count.Calls() < 25 {
			t.Fatalf("the session has only %d calls", count.Calls())
		}
		for k := int64(1); k <= count.Calls(); k++ {
			for _, sticky := range []bool{false, true} {
				for _, errno := range []error{syscall.EIO, syscall.ENOSPC, syscall.EROFS} {
					fsys := vfs.NewFaulty(inner(), vfs.Fault{Nth: k, Err: errno, Sticky: sticky})
					want(t, session(fsys), errno, "")
				}
			}
		}
		healthy := vfs.NewFaulty(inner(), vfs.Fault{Nth: count.Calls() + 1, Err: syscall.EIO})
		must(t, session(healthy))
	}
}

func TestFaultSelects(t *testing.T) {
	fsys := vfs.NewFaulty(vfs.NewMem())
	must(t, fsys.MkdirAll("/p", 0o755))
	a, b := create(t, fsys, "/p/a.log"), create(t, fsys, "/p/b.index")
	inj := fsys.Inject(vfs.Fault{Ops: []vfs.Op{vfs.OpWrite, vfs.OpSync}, Path: "*.log", Nth: 2, Err: syscall.EIO})
	write(t, a, "1", 0)
	write(t, b, "2", 0)
	must(t, b.Sync())
	must(t, a.SyncData())
	want(t, a.Sync(), syscall.EIO, "/p/a.log")
	must(t, a.Sync())
	equal(t, "seen", inj.Seen(), 3)
	equal(t, "hits", inj.Hits(), 1)
	sticky := fsys.Inject(vfs.Fault{Path: "/p/*", Ops: []vfs.Op{vfs.OpRead}, Err: syscall.EIO, Sticky: true})
	for range 3 {
		_, err := b.ReadAt(make([]byte, 1), 0)
		want(t, err, syscall.EIO, "/p/b.index")
	}
	other := fsys.Inject(vfs.Fault{Ops: []vfs.Op{vfs.OpRename}, Path: "a.log", Err: syscall.EROFS})
	want(t, fsys.Rename("/p/a.log", "/p/c.log"), syscall.EROFS, "")
	fsys.Heal(sticky)
	_, err := b.ReadAt(make([]byte, 1), 0)
	must(t, err)
	equal(t, "renames", other.Hits(), 1)
	equal(t, "writes", fsys.Calls(vfs.OpWrite), 2)
	equal(t, "reads and syncs", fsys.Calls(vfs.OpRead, vfs.OpSync), 7)
	fsys.Inject(vfs.Fault{Err: syscall.EIO, Sticky: true})
	fsys.Heal()
	must(t, a.Sync())
}

func TestShortCalls(t *testing.T) {
	fsys := vfs.NewFaulty(vfs.NewMem())
	f := create(t, fsys, "f")
	short := func(op vfs.Op, n int, err error) {
		fsys.Heal()
		fsys.Inject(vfs.Fault{Ops: []vfs.Op{op}, Short: &n, Err: err})
	}
	short(vfs.OpWrite, 3, syscall.ENOSPC)
	n, err := f.WriteAt([]byte("abcdef"), 0)
	want(t, err, syscall.ENOSPC, "f")
	equal(t, "written", n, 3)
	equal(t, "reached the file", contents(t, f), "abc")
	short(vfs.OpWrite, 1, nil)
	n, err = f.WriteAt([]byte("xyz"), 3)
	want(t, err, syscall.EIO, "f")
	equal(t, "written", n, 1)
	short(vfs.OpRead, 2, nil)
	p := make([]byte, 4)
	n, err = f.ReadAt(p, 0)
	want(t, err, io.ErrUnexpectedEOF, "f")
	equal(t, "read", string(p[:n]), "ab")
	short(vfs.OpRead, 2, io.EOF)
	if n, err = f.ReadAt(p, 0); n != 2 || err != io.EOF {
		t.Fatalf("short read: %d %v", n, err)
	}
	n, err = f.ReadAt(p, 0)
	must(t, err)
	equal(t, "healed", string(p[:n]), "abcx")
}

func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewFaulty(vfs.NewCrash())
		f := create(t, fsys, "f")
		gate := make(chan struct{})
		inj := fsys.Inject(vfs.Fault{Ops: []vfs.Op{vfs.OpSyncData}, Stall: gate, Err: syscall.EIO})
		done := make(chan error, 1)
		go func() { done <- f.SyncData() }()
		synctest.Wait()
		equal(t, "hit", inj.Hits(), 1)
		op, path, ok := inj.Where()
		equal(t, "where", fmt.Sprint(op, " ", path, " ", ok), "fdatasync "+f.Name()+" true")
		write(t, f, "others go on", 0)
		must(t, f.Sync())
		select {
		case err := <-done:
			t.Fatalf("did not stall: %v", err)
		default:
		}
		close(gate)
		want(t, <-done, syscall.EIO, "f")
	})
}

func TestFullDisk(t *testing.T) {
	for _, impl := range []string{"mem", "os"} {
		t.Run(impl, func(t *testing.T) {
			inner, dir := vfs.NewMem(), "/"
			if impl == "os" {
				inner, dir = vfs.OS(), t.TempDir()
			}
			fullDisk(t, vfs.NewFaulty(inner), dir)
		})
	}
}

func fullDisk(t *testing.T, fsys *vfs.FaultyFS, dir string) {
	in := func(name string) string { return filepath.Join(dir, name) }
	free := func(n int64) {
		t.Helper()
		u, err := fsys.Usage(dir)
		must(t, err)
		equal(t, "free", u.Free, n)
	}
	old := put(t, fsys, in("old"), fill("o", 5000))
	fsys.SetFree(3 * 4096)
	free(3 * 4096)
	f := create(t, fsys, in("spare"))
	must(t, f.Allocate(0, 4096, true))
	free(2 * 4096)
	want(t, f.Allocate(0, 4*4096, false), syscall.ENOSPC, in("spare"))
	size, err := f.Size()
	must(t, err)
	equal(t, "size after the failed allocation", size, 0)
	write(t, f, fill("x", 4000), 0)
	free(2 * 4096)
	must(t, fsys.Rename(in("spare"), in("log")))
	n, err := f.WriteAt([]byte(fill("y", 10000)), 4000)
	want(t, err, syscall.ENOSPC, in("spare"))
	equal(t, "what fits", n, 3*4096-4000)
	free(0)
	_, err = f.WriteAt([]byte("z"), 3*4096)
	want(t, err, syscall.ENOSPC, "")
	write(t, f, "overwrite", 0)
	write(t, old, "fits in its block", 5000)
	must(t, f.Truncate(4000))
	free(2 * 4096)
	must(t, old.Truncate(0))
	free(4 * 4096)
	must(t, fsys.Rename(in("log"), in("old")))
	free(4 * 4096)
	must(t, fsys.Remove(in("old")))
	free(5 * 4096)
	write(t, f, fill("removed", 3000), 0)
	free(5 * 4096)
	fsys.SetFree(-1)
	write(t, create(t, fsys, in("big")), fill("b", 100000), 0)
}

// TestFailedSync is what kernels do: after a failed fsync the next one succeeds and the bytes are not on the disk.
func TestFailedSync(t *testing.T) {
	for _, op := range []vfs.Op{vfs.OpSync, vfs.OpSyncData, vfs.OpMapSync} {
		t.Run(fmt.Sprint(op), func(t *testing.T) {
			crash := vfs.NewCrash()
			fsys := vfs.NewFaulty(crash)
			f := create(t, fsys, "f")
			must(t, fsys.SyncDir("/"))
			write(t, f, "good", 0)
			must(t, f.Sync())
			write(t, f, fill("L", 600), 4)
			m, err := f.Map(604, true)
			must(t, err)
			copy(m.Bytes(), "STOR")
			fsys.Inject(vfs.Fault{Ops: []vfs.Op{op}, Err: syscall.EIO, LoseDirty: true})
			sync := map[vfs.Op]func() error{vfs.OpSync: f.Sync, vfs.OpSyncData: f.SyncData, vfs.OpMapSync: m.Sync}[op]
			want(t, sync(), syscall.EIO, "f")
			equal(t, "the cache has it", contents(t, f), "STOR"+fill("L", 600))
			equal(t, "the disk does not", tree(t, crash.Fork(all, 0)), "f=good0*600")
			equal(t, "nor its size", tree(t, crash.Fork(none, 0)), "f=good")
			must(t, sync()) // the retry lies
			must(t, f.Sync())
			equal(t, "nor after a good sync", tree(t, crash.Fork(none, 0)), "f=good0*600")
			write(t, f, "after", 600)
			must(t, f.Sync())
			equal(t, "only sectors written again are", tree(t, crash.Fork(none, 0)), "f=good0*508,L*88,after")
			must(t, m.Release())

			killed := crash.Kill()
			g := open(t, killed, "f", os.O_RDWR)
			equal(t, "a new process believes the cache", contents(t, g)[:8], "STORLLLL")
			must(t, g.SyncData())
			must(t, g.DropCache())
			equal(t, "until it drops it", runs(contents(t, g)), "good0*508,L*88,after")
		})
	}
}

// TestFailedSyncKeepsDirty: without LoseDirty a failed sync changed nothing.
func TestFailedSyncKeepsDirty(t *testing.T) {
	crash := vfs.NewCrash()
	fsys := vfs.NewFaulty(crash, vfs.Fault{Ops: []vfs.Op{vfs.OpSync}, Err: syscall.EIO})
	f := put(t, fsys, "f", "abc")
	want(t, f.Sync(), syscall.EIO, "f")
	must(t, f.Sync())
	must(t, fsys.SyncDir("/"))
	equal(t, "synced late", tree(t, crash.Crash(none, 0)), "f=abc")
}

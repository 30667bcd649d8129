package vfs_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/keeplog/keeplog/vfs"
)

// implementations are all file systems; each gives an empty directory that exists durably.
var implementations = []struct {
	name string
	open func(t *testing.T) (vfs.FS, string)
}{
	{"os", func(t *testing.T) (vfs.FS, string) { return vfs.OS(), t.TempDir() }},
	{"mem", func(*testing.T) (vfs.FS, string) { return vfs.NewMem(), "/" }},
	{"crash", func(*testing.T) (vfs.FS, string) { return vfs.NewCrash(), "/" }},
	{"fork", func(t *testing.T) (vfs.FS, string) {
		base := vfs.NewCrash()
		must(t, base.MkdirAll("/a/other", 0o755))
		must(t, base.MkdirAll("/a/sub", 0o755))
		put(t, base, "/a/other/f", "x")
		return base.Fork(vfs.Policy{Kind: vfs.KeepAll}, 0), "/a/sub"
	}},
	{"faulty-mem", func(*testing.T) (vfs.FS, string) { return vfs.NewFaulty(vfs.NewMem()), "/" }},
	{"faulty-os", func(t *testing.T) (vfs.FS, string) { return vfs.NewFaulty(vfs.OS()), t.TempDir() }},
}

// conformance is the contract that all implementations share.
var conformance = []struct {
	name string
	test func(t *testing.T, fsys vfs.FS, dir string)
}{
	{"read and write", testReadWrite},
	{"open flags", testOpenFlags},
	{"errors carry path and errno", testErrors},
	{"truncate", testTruncate},
	{"allocate", testAllocate},
	{"names", testNames},
	{"directories", testDirectories},
	{"open files outlive their names", testUnlinked},
	{"closed", testClosed},
	{"mapping shares bytes", testMapping},
	{"mapping counts", testMappingCounts},
	{"mapping limits", testMappingLimits},
	{"mapping outgrown", testMappingOutgrown},
	{"lock", testLock},
	{"sync and drop", testSyncDrop},
	{"usage", testUsage},
	{"concurrent", testConcurrent},
}

func TestConformance(t *testing.T) {
	for _, impl := range implementations {
		t.Run(impl.name, func(t *testing.T) {
			for _, c := range conformance {
				t.Run(c.name, func(t *testing.T) {
					fsys, dir := impl.open(t)
					c.test(t, fsys, dir)
				})
			}
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// want checks that err is a path error of the kind, about name.
func want(t testing.TB, err, kind error, name string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("error %v, want %v", err, kind)
	}
	pe, ok := errors.AsType[*fs.PathError](err)
	if !ok {
		t.Fatalf("error %v (%T) is no *fs.PathError", err, err)
	}
	if name != "" && pe.Path != name {
		t.Fatalf("error %v is about %q, want %q", err, pe.Path, name)
	}
}

func open(t testing.TB, fsys vfs.FS, name string, flag int) vfs.File {
	t.Helper()
	f, err := fsys.OpenFile(name, flag, 0o644)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func create(t testing.TB, fsys vfs.FS, name string) vfs.File {
	t.Helper()
	return open(t, fsys, name, os.O_RDWR|os.O_CREATE)
}

func write(t testing.TB, f vfs.File, s string, off int64) {
	t.Helper()
	n, err := f.WriteAt([]byte(s), off)
	must(t, err)
	if n != len(s) {
		t.Fatalf("wrote %d of %d bytes", n, len(s))
	}
}

func put(t testing.TB, fsys vfs.FS, name, s string) vfs.File {
	t.Helper()
	f := create(t, fsys, name)
	write(t, f, s, 0)
	return f
}

func contents(t testing.TB, f vfs.File) string {
	t.Helper()
	size, err := f.Size()
	must(t, err)
	p := make([]byte, size)
	if n, err := f.ReadAt(p, 0); err != nil || int64(n) != size {
		t.Fatalf("read %d of %d bytes: %v", n, size, err)
	}
	return string(p)
}

func get(t testing.TB, fsys vfs.FS, name string) string {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	must(t, err)
	s := contents(t, f)
	must(t, f.Close())
	return s
}

func list(t testing.TB, fsys vfs.FS, dir string) string {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	must(t, err)
	var b bytes.Buffer
	for _, e := range entries {
		b.WriteString(e.Name())
		if e.IsDir() {
			b.WriteByte('/')
		}
		b.WriteByte(' ')
	}
	return b.String()
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

func testReadWrite(t *testing.T, fsys vfs.FS, dir string) {
	f := create(t, fsys, filepath.Join(dir, "f"))
	write(t, f, "hello", 0)
	write(t, f, "world", 9000) // across pages, over a hole
	equal(t, "contents", contents(t, f), "hello"+string(make([]byte, 8995))+"world")
	write(t, f, "J", 0)
	p := make([]byte, 10)
	n, err := f.ReadAt(p, 9000)
	if n != 5 || err != io.EOF || string(p[:5]) != "world" {
		t.Fatalf("read over the end: %d %v %q", n, err, p[:n])
	}
	if n, err := f.ReadAt(p, 9005); n != 0 || err != io.EOF {
		t.Fatalf("read at the end: %d %v", n, err)
	}
	if n, err := f.ReadAt(p, 1<<40); n != 0 || err != io.EOF {
		t.Fatalf("read far behind the end: %d %v", n, err)
	}
	if n, err := f.ReadAt(nil, 9005); n != 0 || err != nil {
		t.Fatalf("empty read: %d %v", n, err)
	}
	if n, err := f.WriteAt(nil, 1<<20); n != 0 || err != nil {
		t.Fatalf("empty write: %d %v", n, err)
	}
	size, err := f.Size()
	must(t, err)
	equal(t, "size", size, 9005)
	if _, err := f.ReadAt(p, -1); err == nil {
		t.Fatal("read at a negative position")
	}
	if _, err := f.WriteAt(p, -1); err == nil {
		t.Fatal("write at a negative position")
	}
	equal(t, "name", f.Name(), filepath.Join(dir, "f"))
	big := bytes.Repeat([]byte("0123456789abcdef"), 5000)
	write(t, f, string(big), 123)
	equal(t, "big", contents(t, f)[123:], string(big))
}

func testOpenFlags(t *testing.T, fsys vfs.FS, dir string) {
	name := filepath.Join(dir, "f")
	_, err := fsys.OpenFile(name, os.O_RDWR, 0)
	want(t, err, fs.ErrNotExist, name)
	put(t, fsys, name, "abc")
	_, err = fsys.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	want(t, err, fs.ErrExist, name)
	_, err = fsys.OpenFile(name, os.O_RDWR|os.O_APPEND, 0o644)
	want(t, err, syscall.EINVAL, name)
	ro := open(t, fsys, name, os.O_RDONLY)
	_, err = ro.WriteAt([]byte("x"), 0)
	want(t, err, syscall.EBADF, name)
	want(t, ro.Truncate(0), syscall.EINVAL, name)
	want(t, ro.Allocate(0, 1, false), syscall.EBADF, name)
	wo := open(t, fsys, name, os.O_WRONLY)
	_, err = wo.ReadAt(make([]byte, 1), 0)
	want(t, err, syscall.EBADF, name)
	equal(t, "untouched", contents(t, ro), "abc")
	open(t, fsys, name, os.O_RDWR|os.O_TRUNC)
	equal(t, "truncated", contents(t, ro), "")
	_, err = fsys.OpenFile(dir, os.O_RDONLY, 0)
	want(t, err, syscall.EISDIR, dir)
	info, err := fsys.Stat(name)
	must(t, err)
	equal(t, "mode", info.Mode().IsRegular(), true)
}

func testErrors(t *testing.T, fsys vfs.FS, dir string) {
	missing, file := filepath.Join(dir, "missing"), filepath.Join(dir, "file")
	put(t, fsys, file, "x")
	_, err := fsys.Stat(missing)
	want(t, err, fs.ErrNotExist, missing)
	want(t, fsys.Remove(missing), fs.ErrNotExist, missing)
	want(t, fsys.Rename(missing, file), fs.ErrNotExist, "")
	want(t, fsys.Rename(file, filepath.Join(missing, "x")), fs.ErrNotExist, "")
	want(t, fsys.SyncDir(missing), fs.ErrNotExist, missing)
	want(t, fsys.SyncDir(file), syscall.ENOTDIR, file)
	_, err = fsys.ReadDir(missing)
	want(t, err, fs.ErrNotExist, missing)
	_, err = fsys.ReadDir(file)
	want(t, err, syscall.ENOTDIR, "")
	want(t, fsys.Mkdir(file, 0o755), fs.ErrExist, file)
	want(t, fsys.Mkdir(filepath.Join(missing, "x"), 0o755), fs.ErrNotExist, "")
	want(t, fsys.Mkdir(filepath.Join(file, "x"), 0o755), syscall.ENOTDIR, "")
	want(t, fsys.MkdirAll(file, 0o755), syscall.ENOTDIR, "")
	want(t, fsys.MkdirAll(filepath.Join(file, "x"), 0o755), syscall.ENOTDIR, "")
	_, err = fsys.OpenFile(filepath.Join(file, "x"), os.O_RDWR|os.O_CREATE, 0o644)
	want(t, err, syscall.ENOTDIR, "")
	_, err = fsys.OpenFile(filepath.Join(missing, "x"), os.O_RDWR|os.O_CREATE, 0o644)
	want(t, err, fs.ErrNotExist, "")
	_, err = fsys.OpenFile("", os.O_RDWR|os.O_CREATE, 0o644)
	want(t, err, fs.ErrNotExist, "")
	_, err = fsys.Lock(filepath.Join(missing, "x"))
	want(t, err, fs.ErrNotExist, "")
	_, err = fsys.Usage(missing)
	want(t, err, fs.ErrNotExist, missing)
}

func testTruncate(t *testing.T, fsys vfs.FS, dir string) {
	f := put(t, fsys, filepath.Join(dir, "f"), "0123456789")
	must(t, f.Truncate(4))
	equal(t, "cut", contents(t, f), "0123")
	must(t, f.Truncate(8))
	equal(t, "grown again", contents(t, f), "0123\x00\x00\x00\x00")
	write(t, f, "x", 5000)
	must(t, f.Truncate(4096))
	must(t, f.Truncate(0))
	must(t, f.Truncate(5001))
	equal(t, "nothing comes back", contents(t, f), string(make([]byte, 5001)))
	want(t, f.Truncate(-1), syscall.EINVAL, f.Name())
}

func testAllocate(t *testing.T, fsys vfs.FS, dir string) {
	f := put(t, fsys, filepath.Join(dir, "f"), "abc")
	must(t, f.Allocate(0, 1<<16, true))
	equal(t, "size kept", contents(t, f), "abc")
	write(t, f, "def", 3)
	equal(t, "written in the reserve", contents(t, f), "abcdef")
	must(t, f.Allocate(4, 10, false))
	equal(t, "size grown", contents(t, f), "abcdef"+string(make([]byte, 8)))
	must(t, f.Allocate(0, 3, false))
	equal(t, "never shrinks", len(contents(t, f)), 14)
	want(t, f.Allocate(-1, 3, false), syscall.EINVAL, f.Name())
	want(t, f.Allocate(0, 0, false), syscall.EINVAL, f.Name())
}

func testNames(t *testing.T, fsys vfs.FS, dir string) {
	in := func(name string) string { return filepath.Join(dir, name) }
	put(t, fsys, in("a"), "A")
	put(t, fsys, in("b"), "B")
	must(t, fsys.Rename(in("a"), in("c")))
	equal(t, "renamed", get(t, fsys, in("c")), "A")
	must(t, fsys.Rename(in("c"), in("b")))
	equal(t, "replaced", get(t, fsys, in("b")), "A")
	must(t, fsys.Rename(in("b"), in("b")))
	equal(t, "onto itself", get(t, fsys, in("b")), "A")
	must(t, fsys.Mkdir(in("d"), 0o755))
	put(t, fsys, in("d/x"), "X")
	want(t, fsys.Remove(in("d")), syscall.ENOTEMPTY, in("d"))
	want(t, fsys.Rename(in("b"), in("d")), fs.ErrExist, "")
	want(t, fsys.Rename(in("d"), in("b")), syscall.ENOTDIR, "")
	want(t, fsys.Rename(in("d"), in("d/sub")), syscall.EINVAL, "")
	must(t, fsys.Rename(in("d"), in("e")))
	equal(t, "directory moved", get(t, fsys, in("e/x")), "X")
	must(t, fsys.Rename(in("e/x"), in("y")))
	equal(t, "across directories", get(t, fsys, in("y")), "X")
	must(t, fsys.Remove(in("e")))
	must(t, fsys.SyncDir(dir))
	must(t, fsys.Remove(in("y")))
	must(t, fsys.Remove(in("b")))
	_, err := fsys.Stat(in("b"))
	want(t, err, fs.ErrNotExist, in("b"))
}

func testDirectories(t *testing.T, fsys vfs.FS, dir string) {
	in := func(name string) string { return filepath.Join(dir, name) }
	must(t, fsys.MkdirAll(in("t/u/v"), 0o755))
	must(t, fsys.MkdirAll(in("t/u/v"), 0o755))
	for _, name := range []string{"t/z", "t/b", "t/u/1", "t/u/v/2"} {
		put(t, fsys, in(name), name)
	}
	equal(t, "sorted", list(t, fsys, in("t")), "b u/ z ")
	info, err := fsys.Stat(in("t/u"))
	must(t, err)
	if !info.IsDir() || info.Name() != "u" {
		t.Fatalf("Stat of a directory: %v %s", info.IsDir(), info.Name())
	}
	entries, err := fsys.ReadDir(in("t"))
	must(t, err)
	info, err = entries[0].Info()
	must(t, err)
	equal(t, "entry size", info.Size(), 3)
	must(t, fsys.RemoveAll(in("t")))
	must(t, fsys.RemoveAll(in("t")))
	_, err = fsys.Stat(in("t"))
	want(t, err, fs.ErrNotExist, in("t"))
}

func testUnlinked(t *testing.T, fsys vfs.FS, dir string) {
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	f := put(t, fsys, a, "first")
	m, err := f.Map(5, true)
	must(t, err)
	must(t, fsys.Remove(a))
	g := put(t, fsys, a, "second")
	write(t, f, "F", 0)
	equal(t, "removed", contents(t, f), "First")
	equal(t, "mapped", string(m.Bytes()), "First")
	must(t, m.Sync())
	must(t, m.Release())
	must(t, f.Sync())
	equal(t, "new file", contents(t, g), "second")
	put(t, fsys, b, "third")
	must(t, fsys.Rename(b, a))
	equal(t, "replaced", contents(t, g), "second")
	equal(t, "by", get(t, fsys, a), "third")
}

func testClosed(t *testing.T, fsys vfs.FS, dir string) {
	f := put(t, fsys, filepath.Join(dir, "f"), "abc")
	must(t, f.Close())
	want(t, f.Close(), fs.ErrClosed, f.Name())
	_, err := f.ReadAt(make([]byte, 1), 0)
	want(t, err, fs.ErrClosed, f.Name())
	_, err = f.WriteAt(make([]byte, 1), 0)
	want(t, err, fs.ErrClosed, f.Name())
	_, err = f.Size()
	want(t, err, fs.ErrClosed, f.Name())
	_, err = f.Map(1, false)
	want(t, err, fs.ErrClosed, f.Name())
	want(t, f.Sync(), fs.ErrClosed, f.Name())
	want(t, f.SyncData(), fs.ErrClosed, f.Name())
	want(t, f.DropCache(), fs.ErrClosed, f.Name())
	want(t, f.Truncate(1), fs.ErrClosed, f.Name())
	want(t, f.Allocate(0, 1, true), fs.ErrClosed, f.Name())
}

func testMapping(t *testing.T, fsys vfs.FS, dir string) {
	f := put(t, fsys, filepath.Join(dir, "f"), "0123456789")
	must(t, f.Allocate(0, 10000, false))
	m, err := f.Map(8192, true)
	must(t, err)
	ro, err := f.Map(100, false)
	must(t, err)
	equal(t, "length", len(m.Bytes()), 8192)
	equal(t, "writable", m.Writable() && !ro.Writable(), true)
	copy(m.Bytes()[2:], "MAP")
	equal(t, "store seen by read", contents(t, f)[:10], "01MAP56789")
	equal(t, "store seen by the other", string(ro.Bytes()[:10]), "01MAP56789")
	write(t, f, "WRITE", 4094)
	equal(t, "write seen by mapping", string(m.Bytes()[4094:4099]), "WRITE")
	write(t, f, "beyond", 9000)
	must(t, m.Sync())
	must(t, ro.Sync())
	must(t, f.Sync())
	must(t, f.Truncate(8192))
	must(t, f.Close())
	copy(m.Bytes(), "after close")
	must(t, m.Sync())
	must(t, m.Release())
	must(t, ro.Release())
	equal(t, "kept", get(t, fsys, f.Name())[:11], "after close")
	equal(t, "all of it", len(get(t, fsys, f.Name())), 8192)
}

func testMappingCounts(t *testing.T, fsys vfs.FS, dir string) {
	f := put(t, fsys, filepath.Join(dir, "f"), "0123456789")
	m, err := f.Map(10, false)
	must(t, err)
	m.Retain()
	equal(t, "retained", m.TryRetain(), true)
	must(t, m.Release())
	must(t, m.Release())
	equal(t, "still there", string(m.Bytes()), "0123456789")
	must(t, m.Release())
	equal(t, "gone", m.TryRetain(), false)
	for name, call := range map[string]func(){
		"Release": func() { _ = m.Release() },
		"Retain":  func() { m.Retain() },
		"Bytes":   func() { _ = m.Bytes() },
		"Sync":    func() { _ = m.Sync() },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s after the last Release did not panic", name)
				}
			}()
			call()
		}()
	}
}

func testMappingLimits(t *testing.T, fsys vfs.FS, dir string) {
	name := filepath.Join(dir, "f")
	f := put(t, fsys, name, "0123456789")
	for _, length := range []int64{-1, 0, 11} {
		_, err := f.Map(length, false)
		want(t, err, syscall.EINVAL, name)
	}
	ro := open(t, fsys, name, os.O_RDONLY)
	_, err := ro.Map(10, true)
	want(t, err, syscall.EACCES, name)
	m, err := ro.Map(10, false)
	must(t, err)
	must(t, m.Release())
	_, err = open(t, fsys, name, os.O_WRONLY).Map(10, false)
	want(t, err, syscall.EACCES, name)
}

// testMappingOutgrown maps more of a file while less of it is mapped: what an index does that grows under its readers.
func testMappingOutgrown(t *testing.T, fsys vfs.FS, dir string) {
	f := put(t, fsys, filepath.Join(dir, "f"), "0123456789")
	old, err := f.Map(10, true)
	must(t, err)
	must(t, f.Allocate(0, 20000, false))
	grown, err := f.Map(20000, true)
	must(t, err)
	copy(old.Bytes(), "OLD")
	equal(t, "old store in the file", contents(t, f)[:6], "OLD345")
	equal(t, "old store in the new mapping", string(grown.Bytes()[:6]), "OLD345")
	copy(grown.Bytes()[4:], "NEW")
	copy(grown.Bytes()[15000:], "far")
	equal(t, "new store in the file", contents(t, f)[:8], "OLD3NEW7")
	equal(t, "new store in the old mapping", string(old.Bytes()), "OLD3NEW789")
	write(t, f, "w", 9)
	equal(t, "write in both", string(old.Bytes()[9:])+string(grown.Bytes()[9:10]), "ww")
	copy(old.Bytes(), "L")
	must(t, old.Sync())
	must(t, old.Release())
	equal(t, "last old store", contents(t, f)[:3], "LLD")
	must(t, grown.Release())
	equal(t, "far store", contents(t, f)[15000:15003], "far")
}

func testLock(t *testing.T, fsys vfs.FS, dir string) {
	name := filepath.Join(dir, ".lock")
	held, err := fsys.Lock(name)
	must(t, err)
	_, err = fsys.Lock(name)
	want(t, err, vfs.ErrLocked, name)
	must(t, held.Close())
	again, err := fsys.Lock(name)
	must(t, err)
	if err := held.Close(); err == nil {
		t.Fatal("second Close of a lock")
	}
	_, err = fsys.Lock(name)
	want(t, err, vfs.ErrLocked, name)
	must(t, again.Close())
	_, err = fsys.Lock(dir)
	want(t, err, syscall.EISDIR, "")
}

func testSyncDrop(t *testing.T, fsys vfs.FS, dir string) {
	f := put(t, fsys, filepath.Join(dir, "f"), "kept")
	must(t, f.SyncData())
	must(t, f.DropCache())
	equal(t, "from the disk", contents(t, f), "kept")
	must(t, f.Sync())
	must(t, fsys.SyncDir(dir))
	if fd, ok := f.Fd(); ok && fd == 0 {
		t.Fatal("descriptor 0")
	}
}

func testUsage(t *testing.T, fsys vfs.FS, dir string) {
	u, err := fsys.Usage(dir)
	must(t, err)
	if u.Total <= 0 || u.Free <= 0 || u.Free > u.Total {
		t.Fatalf("usage %+v", u)
	}
}

func testConcurrent(t *testing.T, fsys vfs.FS, dir string) {
	shared := put(t, fsys, filepath.Join(dir, "shared"), string(make([]byte, 8*512)))
	m, err := shared.Map(8*512, true)
	must(t, err)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			name := filepath.Join(dir, string(rune('a'+g)))
			f := create(t, fsys, name)
			for i := range 20 {
				m.Bytes()[g*512+i] = byte(i + 1)
				if _, err := f.WriteAt([]byte{byte(i)}, int64(i)); err != nil {
					t.Error(err)
				}
				if _, err := shared.WriteAt([]byte{byte(i + 1)}, int64((g+4)*512+i)); err != nil {
					t.Error(err)
				}
				if err := errors.Join(f.SyncData(), fsys.Rename(name, name+"'"), fsys.Rename(name+"'", name)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s := contents(t, shared)
	for i := range 8 {
		equal(t, "stored and written", s[i*512+19], 20)
	}
	must(t, m.Release())
	equal(t, "names", list(t, fsys, dir)[:8], "a b c d ")
}

package vfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/keeplog/keeplog/vfs"
)

var (
	none = vfs.Policy{Kind: vfs.KeepNone}
	all  = vfs.Policy{Kind: vfs.KeepAll}
)

// tree draws a file system: every path, a file's bytes in quotes, runs of more than 8 equal ones shortened.
func tree(t testing.TB, fsys vfs.FS) string {
	t.Helper()
	var b strings.Builder
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := fsys.ReadDir("/" + dir)
		must(t, err)
		for _, e := range entries {
			name := dir + e.Name()
			if e.IsDir() {
				fmt.Fprintf(&b, "%s/ ", name)
				walk(name + "/")
				continue
			}
			fmt.Fprintf(&b, "%s=%s ", name, runs(get(t, fsys, name)))
		}
	}
	walk("")
	return strings.TrimSpace(b.String())
}

func runs(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		n := len(s[i:]) - len(strings.TrimLeft(s[i:], s[i:i+1]))
		c := s[i : i+1]
		if c == "\x00" {
			c = "0"
		}
		if n > 8 {
			fmt.Fprintf(&b, "%s*%d,", c, n)
		} else {
			b.WriteString(strings.Repeat(c, n))
		}
		i += n
	}
	return strings.TrimSuffix(b.String(), ",")
}

func fill(c string, n int) string { return strings.Repeat(c, n) }

// step is one line of a crash script.
type step func(t *testing.T, fsys *vfs.CrashFS)

func wr(name, s string, off int64) step {
	return func(t *testing.T, fsys *vfs.CrashFS) { write(t, create(t, fsys, name), s, off) }
}

func fsync(name string) step {
	return func(t *testing.T, fsys *vfs.CrashFS) { must(t, create(t, fsys, name).Sync()) }
}

func trunc(name string, size int64) step {
	return func(t *testing.T, fsys *vfs.CrashFS) { must(t, create(t, fsys, name).Truncate(size)) }
}

func alloc(name string, n int64, keep bool) step {
	return func(t *testing.T, fsys *vfs.CrashFS) { must(t, create(t, fsys, name).Allocate(0, n, keep)) }
}

func syncDir(name string) step {
	return func(t *testing.T, fsys *vfs.CrashFS) { must(t, fsys.SyncDir(name)) }
}

func mkdir(name string) step {
	return func(t *testing.T, fsys *vfs.CrashFS) { must(t, fsys.Mkdir(name, 0o755)) }
}

func mkdirAll(name string) step {
	return func(t *testing.T, fsys *vfs.CrashFS) { must(t, fsys.MkdirAll(name, 0o755)) }
}

func rename(from, to string) step {
	return func(t *testing.T, fsys *vfs.CrashFS) { must(t, fsys.Rename(from, to)) }
}

func remove(name string) step {
	return func(t *testing.T, fsys *vfs.CrashFS) { must(t, fsys.Remove(name)) }
}

// durable makes a file with its name and bytes on the disk.
func durable(name, s string) step {
	return func(t *testing.T, fsys *vfs.CrashFS) {
		for _, do := range []step{wr(name, s, 0), fsync(name), syncDir("/")} {
			do(t, fsys)
		}
	}
}

// store maps the file, stores, and syncs the mapping if told so.
func store(name, s string, off int, sync bool) step {
	return func(t *testing.T, fsys *vfs.CrashFS) {
		f := create(t, fsys, name)
		size, err := f.Size()
		must(t, err)
		m, err := f.Map(size, true)
		must(t, err)
		copy(m.Bytes()[off:], s)
		if sync {
			must(t, m.Sync())
		}
		must(t, m.Release())
	}
}

type left map[vfs.Policy]string

func k(kind vfs.PolicyKind, n int) vfs.Policy { return vfs.Policy{Kind: kind, N: n} }

// crashTests: what was done, what the crash leaves. In trees c*n is a run, 0 a zero byte.
var crashTests = []struct {
	name  string
	steps []step
	want  left
}{
	{"nothing", nil, left{none: "", all: ""}},
	{
		"synced bytes and name",
		[]step{durable("f", "abc")},
		left{none: "f=abc", all: "f=abc", k(vfs.KeepNames, 0): "f=abc", k(vfs.KeepPrefix, 0): "f=abc"},
	},
	{
		"bytes synced, name not",
		[]step{wr("f", "abc", 0), fsync("f")},
		left{none: "", all: "f=abc", k(vfs.KeepNames, 0): "f=abc", k(vfs.KeepData, 0): ""},
	},
	{
		"name synced, bytes not",
		[]step{wr("f", "abc", 0), syncDir("/")},
		left{
			none: "f=", all: "f=abc", k(vfs.KeepNames, 0): "f=", k(vfs.KeepData, 0): "f=abc",
			k(vfs.KeepSizes, 0): "f=000", k(vfs.TearLast, 0): "f=", k(vfs.TearLastSized, 0): "f=000",
		},
	},
	{
		"neither",
		[]step{wr("f", "abc", 0)},
		left{
			none: "", all: "f=abc", k(vfs.KeepPrefix, 1): "f=", k(vfs.KeepAllBut, 0): "", k(vfs.KeepAllBut, 1): "f=",
			k(vfs.KeepNames, 0): "f=", k(vfs.KeepData, 0): "", k(vfs.KeepSizes, 0): "f=000",
		},
	},
	{
		"three appends in sectors of their own",
		[]step{durable("f", fill("a", 512)), wr("f", fill("b", 512), 512), wr("f", fill("c", 512), 1024), wr("f", fill("d", 512), 1536)},
		left{
			none: "f=a*512", k(vfs.KeepPrefix, 1): "f=a*512,b*512", k(vfs.KeepPrefix, 2): "f=a*512,b*512,c*512",
			k(vfs.KeepAllBut, 0): "f=a*512,0*512,c*512,d*512", k(vfs.KeepAllBut, 1): "f=a*512,b*512,0*512,d*512",
			k(vfs.KeepAllBut, 2): "f=a*512,b*512,c*512", all: "f=a*512,b*512,c*512,d*512",
			k(vfs.KeepSizes, 0): "f=a*512,0*1536", k(vfs.KeepNames, 0): "f=a*512",
		},
	},
	{
		"a sector holds all earlier writes to it",
		[]step{durable("f", fill("a", 500)), wr("f", fill("b", 100), 500), wr("f", fill("c", 10), 600)},
		left{
			// Without the first append its second sector still arrives with the second one; its first does not.
			k(vfs.KeepAllBut, 0): "f=a*500,0*12,b*88,c*10", k(vfs.KeepPrefix, 1): "f=a*500,b*100", none: "f=a*500",
		},
	},
	{
		"torn last write",
		[]step{durable("f", fill("a", 100)), wr("f", fill("b", 1500), 100)},
		left{
			k(vfs.TearLast, 0): "f=a*100", k(vfs.TearLast, 1): "f=a*100,b*412", k(vfs.TearLast, 2): "f=a*100,b*924",
			k(vfs.TearLast, 3): "f=a*100,b*1436", k(vfs.TearLastSized, 0): "f=a*100,0*1500",
			k(vfs.TearLastSized, 1): "f=a*100,b*412,0*1088", k(vfs.TearLastSized, 3): "f=a*100,b*1436,0*64",
			all: "f=a*100,b*1500",
		},
	},
	{
		"torn overwrite",
		[]step{durable("f", fill("a", 1024)), wr("f", fill("b", 1024), 0)},
		left{k(vfs.TearLast, 1): "f=b*512,a*512", k(vfs.TearLastSized, 1): "f=b*512,a*512", k(vfs.TearLast, 0): "f=a*1024"},
	},
	{
		"truncate",
		[]step{durable("f", fill("a", 1000)), trunc("f", 10), wr("f", "bbb", 10)},
		left{
			none: "f=a*1000", k(vfs.KeepPrefix, 1): "f=a*10", all: "f=a*10,bbb",
			// The write without the truncate: its sector is the cache's, the rest and the size are old.
			k(vfs.KeepAllBut, 0): "f=a*10,bbb0*499,a*488", k(vfs.KeepSizes, 0): "f=a*10,000",
		},
	},
	{
		"truncate synced",
		[]step{durable("f", fill("a", 1000)), trunc("f", 10), fsync("f"), trunc("f", 20)},
		left{none: "f=a*10", all: "f=a*10,0*10"},
	},
	{
		"allocate",
		[]step{durable("f", "abc"), alloc("f", 1<<16, true), alloc("f", 20, false)},
		left{none: "f=abc", k(vfs.KeepPrefix, 1): "f=abc", all: "f=abc0*17"},
	},
	{
		"write into allocated sector, sync, size not missing",
		[]step{durable("f", ""), alloc("f", 4096, true), wr("f", "abc", 0), fsync("f")},
		left{none: "f=abc"},
	},
	{
		"mkdir",
		[]step{mkdir("d"), wr("d/f", "abc", 0), fsync("d/f"), syncDir("d")},
		left{none: "", all: "d/ d/f=abc", k(vfs.KeepData, 0): ""},
	},
	{
		"mkdirall is durable",
		[]step{mkdirAll("/a/b"), wr("a/b/f", "x", 0), syncDir("a/b")},
		left{none: "a/ a/b/ a/b/f=", all: "a/ a/b/ a/b/f=x"},
	},
	{
		"remove",
		[]step{durable("f", "abc"), remove("f")},
		left{none: "f=abc", all: "", k(vfs.KeepNames, 0): "", k(vfs.KeepData, 0): "f=abc"},
	},
	{
		"remove synced",
		[]step{durable("f", "abc"), remove("f"), syncDir("/")},
		left{none: "", all: ""},
	},
	{
		"rename over",
		[]step{durable("f", "old"), wr("tmp", "new", 0), fsync("tmp"), rename("tmp", "f")},
		left{
			none: "f=old", all: "f=new", k(vfs.UndoRenames, 0): "f=old tmp=new", k(vfs.KeepPrefix, 1): "f=old tmp=new",
			// The rename without the creation before it: it carries the file.
			k(vfs.KeepAllBut, 0): "f=new",
		},
	},
	{
		"rename over without syncing the bytes",
		[]step{durable("f", "old"), wr("tmp", "new", 0), rename("tmp", "f"), syncDir("/")},
		left{none: "f=", all: "f=new", k(vfs.KeepSizes, 0): "f=000"},
	},
	{
		"rename synced",
		[]step{durable("a", "A"), rename("a", "b"), syncDir("/")},
		left{none: "b=A", all: "b=A"},
	},
	{
		"rename across directories, nothing synced: all or nothing",
		[]step{mkdirAll("/d"), durable("a", "A"), rename("a", "d/b")},
		left{none: "a=A d/", all: "d/ d/b=A", k(vfs.UndoRenames, 0): "a=A d/"},
	},
	{
		"rename across directories, new one synced: both names",
		[]step{mkdirAll("/d"), durable("a", "A"), rename("a", "d/b"), syncDir("d")},
		left{none: "a=A d/ d/b=A", all: "d/ d/b=A"},
	},
	{
		"rename across directories, old one synced: lost",
		[]step{mkdirAll("/d"), durable("a", "A"), rename("a", "d/b"), syncDir("/")},
		left{none: "d/", all: "d/ d/b=A"},
	},
	{
		"directory renamed",
		[]step{mkdirAll("/p"), wr("p/f", "x", 0), fsync("p/f"), syncDir("p"), rename("p", "p-delete")},
		left{none: "p/ p/f=x", all: "p-delete/ p-delete/f=x"},
	},
	{
		"stores to a mapping",
		[]step{durable("f", fill("a", 1024)), store("f", "XX", 511, false)},
		left{none: "f=a*1024", all: "f=a*511,XXa*511", k(vfs.TearLast, 1): "f=a*511,Xa*512", k(vfs.KeepSizes, 0): "f=a*1024"},
	},
	{
		"mapping synced",
		[]step{durable("f", fill("a", 1024)), store("f", "XX", 511, true), store("f", "Y", 0, false)},
		left{none: "f=a*511,XXa*511", all: "f=Ya*510,XXa*511"},
	},
	{
		"mapping synced over an unsynced truncate",
		[]step{durable("f", "abc"), trunc("f", 0), trunc("f", 20), store("f", "X", 10, true)},
		left{none: "f=0*10,X0*9"},
	},
	{
		"shorter mapping synced, the write goes on behind it",
		[]step{durable("f", fill("a", 5000)), func(t *testing.T, fsys *vfs.CrashFS) {
			f := open(t, fsys, "f", os.O_RDWR)
			m, err := f.Map(10, true)
			must(t, err)
			write(t, f, fill("b", 4990), 5)
			must(t, m.Sync())
			must(t, m.Release())
		}},
		left{none: "f=aaaaab*4091,a*904", all: "f=aaaaab*4990,aaaaa"},
	},
	{
		"mapping synced, size not",
		[]step{durable("f", "abc"), alloc("f", 20, false), store("f", "X", 10, true)},
		left{none: "f=abc", all: "f=abc0000000X0*9"},
	},
}

// TestCrashPolicies holds each policy, the fork of each survivor, and the same after a kill to crashTests.
func TestCrashPolicies(t *testing.T) {
	for _, test := range crashTests {
		t.Run(test.name, func(t *testing.T) {
			fsys := vfs.NewCrash()
			for _, do := range test.steps {
				do(t, fsys)
			}
			for p, want := range test.want {
				got := fsys.Fork(p, 0)
				if got := tree(t, got); got != want {
					t.Errorf("%s leaves %q, want %q", p, got, want)
				}
				if n := len(got.Unsynced()); n != 0 {
					t.Errorf("%s: %d changes unsynced in the new file system", p, n)
				}
				if again := got.Fork(none, 0); !again.Same(got) {
					t.Errorf("%s: a second crash changed %q to %q", p, tree(t, got), tree(t, again))
				}
				if killed := fsys.ForkKilled(); tree(t, killed.Fork(p, 0)) != want {
					t.Errorf("%s after a kill leaves %q, want %q", p, tree(t, killed.Fork(p, 0)), want)
				}
			}
		})
	}
}

func TestCrashStopsOldHandles(t *testing.T) {
	fsys := vfs.NewCrash()
	f := put(t, fsys, "f", "abc")
	m, err := f.Map(3, true)
	must(t, err)
	after := fsys.Crash(all, 0)
	for name, err := range map[string]error{
		"Sync": f.Sync(), "SyncData": f.SyncData(), "Truncate": f.Truncate(0), "Allocate": f.Allocate(0, 1, true),
		"DropCache": f.DropCache(), "msync": m.Sync(), "SyncDir": fsys.SyncDir("/"), "Mkdir": fsys.Mkdir("d", 0o755),
		"MkdirAll": fsys.MkdirAll("d", 0o755), "Remove": fsys.Remove("f"), "RemoveAll": fsys.RemoveAll("f"),
		"Rename": fsys.Rename("f", "g"),
	} {
		if !errors.Is(err, vfs.ErrPowerOff) {
			t.Errorf("%s after the crash: %v", name, err)
		}
	}
	_, err = f.ReadAt(make([]byte, 1), 0)
	want(t, err, vfs.ErrPowerOff, "f")
	_, err = f.WriteAt(make([]byte, 1), 0)
	want(t, err, vfs.ErrPowerOff, "f")
	_, err = fsys.OpenFile("f", os.O_RDWR|os.O_CREATE, 0)
	want(t, err, vfs.ErrPowerOff, "f")
	_, err = fsys.Stat("f")
	want(t, err, vfs.ErrPowerOff, "f")
	want(t, f.Close(), vfs.ErrPowerOff, "f")
	copy(m.Bytes(), "XYZ") // harmless
	must(t, m.Release())
	equal(t, "survivors", tree(t, after), "f=abc")
}

func TestKillKeepsTheCacheUnsynced(t *testing.T) {
	fsys := vfs.NewCrash()
	durable("f", "old")(t, fsys)
	lock, err := fsys.Lock(".lock")
	must(t, err)
	f := open(t, fsys, "f", os.O_RDWR)
	write(t, f, "NEW", 0)
	m, err := f.Map(3, true)
	must(t, err)
	m.Bytes()[2] = '!'
	killed := fsys.Kill()
	want(t, f.Sync(), vfs.ErrPowerOff, "f")
	equal(t, "cache", get(t, killed, "f"), "NE!")
	equal(t, "power loss after the kill", tree(t, killed.Fork(none, 0)), "f=old")
	again, err := killed.Lock(".lock")
	must(t, err)
	must(t, again.Close())
	must(t, open(t, killed, "f", os.O_RDWR).Sync())
	equal(t, "synced by the next process", tree(t, killed.Crash(none, 0)), "f=NE!")
	_ = lock.Close()
}

// TestRenameBetweenNamesOfOneFile does nothing, as POSIX says: a crash between the syncs of a rename across directories
// leaves two names, and to rename again does not remove one.
func TestRenameBetweenNamesOfOneFile(t *testing.T) {
	fsys := vfs.NewCrash()
	for _, do := range []step{mkdirAll("/d"), durable("a", "A"), rename("a", "d/b"), syncDir("d")} {
		do(t, fsys)
	}
	after := fsys.Crash(none, 0)
	must(t, after.Rename("a", "d/b"))
	equal(t, "both", tree(t, after), "a=A d/ d/b=A")
	write(t, open(t, after, "a", os.O_RDWR), "X", 0)
	equal(t, "one file", tree(t, after), "a=X d/ d/b=X")
	must(t, after.Remove("a"))
	equal(t, "one name", tree(t, after), "d/ d/b=X")
}

func TestForksAreIndependent(t *testing.T) {
	fsys := vfs.NewCrash()
	durable("f", fill("a", 10000))(t, fsys)
	f := open(t, fsys, "f", os.O_RDWR)
	m, err := f.Map(5000, true)
	must(t, err)
	one, two := fsys.Fork(all, 0), fsys.Fork(all, 0)
	write(t, open(t, one, "f", os.O_RDWR), "ONE", 4095)
	write(t, open(t, two, "f", os.O_RDWR), "TWO", 9000)
	write(t, f, "BASE", 9990)
	m.Bytes()[0] = 'M'
	must(t, one.Remove("f"))
	must(t, one.Mkdir("f", 0o755))
	equal(t, "one", tree(t, one), "f/")
	equal(t, "two", tree(t, two), "f=a*9000,TWOa*997")
	equal(t, "base", tree(t, fsys), "f=Ma*9989,BASEaaaaaa")
	equal(t, "one after power loss", tree(t, one.Fork(none, 0)), "f=a*10000")
	must(t, m.Release())
}

// TestForkUnderAMapping: a store in the parent is none in what was forked before, with the cache or without.
func TestForkUnderAMapping(t *testing.T) {
	for _, writable := range []bool{true, false} {
		fsys := vfs.NewCrash()
		durable("f", fill("a", 13000))(t, fsys)
		fsys = fsys.Fork(all, 0)
		f := open(t, fsys, "f", os.O_RDWR)
		m, err := f.Map(4097, writable)
		must(t, err)
		write(t, f, "V", 12998)
		killed, crashed := fsys.ForkKilled(), fsys.Fork(none, 0)
		if writable {
			m.Bytes()[4096] = 'M'
		} else {
			write(t, f, "M", 4096)
		}
		write(t, f, "W", 12999)
		equal(t, "parent", tree(t, fsys), "f=a*4096,Ma*8901,VW")
		equal(t, "mapping", m.Bytes()[4096], 'M')
		equal(t, "killed before", tree(t, killed), "f=a*12998,Va")
		equal(t, "crashed before", tree(t, crashed), "f=a*13000")
		must(t, m.Release())
	}
}

// TestWriteToAMappedFile is one change, and not a store too.
func TestWriteToAMappedFile(t *testing.T) {
	fsys := vfs.NewCrash()
	durable("f", fill("a", 5000))(t, fsys)
	f := open(t, fsys, "f", os.O_RDWR)
	m, err := f.Map(5000, true)
	must(t, err)
	write(t, f, "write", 4094)
	must(t, f.Truncate(5001))
	m.Bytes()[600] = 'X'
	equal(t, "changes", fmt.Sprint(fsys.Unsynced()),
		"[write f [3584,+1024) size -1 truncate f [0,+0) size 5001 store f [512,+512) size -1]")
	must(t, m.Sync())
	must(t, m.Release())
}

// TestMemUsage counts blocks in use: sizes and what is allocated behind them.
func TestMemUsage(t *testing.T) {
	fsys := vfs.NewMem()
	used := func(want int64) {
		t.Helper()
		u, err := fsys.Usage("/")
		must(t, err)
		equal(t, "used", u.Total-u.Free, want)
	}
	f := put(t, fsys, "f", "x")
	must(t, fsys.MkdirAll("/d", 0o755))
	put(t, fsys, "/d/g", fill("y", 4097))
	used(3 * 4096)
	must(t, f.Allocate(4000, 5000, true))
	used(5 * 4096)
	must(t, f.Truncate(1))
	used(3 * 4096)
	must(t, fsys.Remove("f"))
	used(2 * 4096)
}

func TestHook(t *testing.T) {
	fsys := vfs.NewCrash()
	var log []string
	fsys.SetHook(func(e vfs.Event) {
		if e.Phase == vfs.After {
			log = append(log, fmt.Sprintf("%d %s %s %d", e.Index, e.Op, e.Path, len(fsys.Unsynced())))
		}
	})
	must(t, fsys.MkdirAll("/d", 0o755))
	f := create(t, fsys, "/d/f")
	write(t, f, "abc", 0)
	must(t, f.Allocate(0, 100, true))
	must(t, f.SyncData())
	must(t, f.Truncate(1))
	m, err := f.Map(1, true)
	must(t, err)
	m.Bytes()[0] = 'x'
	must(t, m.Sync())
	must(t, m.Release())
	must(t, fsys.Rename("/d/f", "/d/g"))
	must(t, fsys.SyncDir("/d"))
	must(t, fsys.RemoveAll("/d"))
	want := []string{
		"1 mkdir /d 1", "2 syncdir / 0", "3 create /d/f 1", "4 write /d/f 2", "5 fallocate /d/f 3", "6 fdatasync /d/f 1",
		"7 truncate /d/f 2", "8 msync /d/f 1", "9 rename /d/g 2", "10 syncdir /d 0", "11 remove /d/g 1", "12 remove /d 2",
	}
	if got := strings.Join(log, "\n"); got != strings.Join(want, "\n") {
		t.Fatalf("calls and unsynced changes after each:\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	equal(t, "calls", fsys.Calls(), 12)

	fsys.SetHook(func(e vfs.Event) {
		if e.Phase == vfs.Before && e.Op == vfs.OpWrite {
			fsys.PowerOff()
		}
	})
	g := create(t, fsys, "h")
	_, err = g.WriteAt([]byte("x"), 0)
	want2 := vfs.ErrPowerOff
	if !errors.Is(err, want2) {
		t.Fatalf("write while the power goes: %v", err)
	}
	equal(t, "not written", tree(t, fsys.Fork(all, 0)), "h=")
}

// TestForgotten: what no crash can bring back is no unsynced change any more.
func TestForgotten(t *testing.T) {
	fsys := vfs.NewCrash()
	f := put(t, fsys, "tmp", "bytes")
	must(t, fsys.Remove("tmp"))
	must(t, fsys.SyncDir("/"))
	equal(t, "removed file", len(fsys.Unsynced()), 0)
	write(t, f, "more", 0)
	equal(t, "written when removed", len(fsys.Unsynced()), 0)
	equal(t, "but readable", contents(t, f), "mores")

	must(t, fsys.MkdirAll("/p/q", 0o755))
	put(t, fsys, "/p/synced", "x")
	must(t, fsys.SyncDir("/p"))
	put(t, fsys, "/p/unsynced", "x")
	put(t, fsys, "/p/q/deep", "x")
	must(t, fsys.RemoveAll("/p"))
	equal(t, "until the removal is synced", len(fsys.Unsynced()) > 0, true)
	must(t, fsys.SyncDir("/"))
	equal(t, "removed tree", fmt.Sprint(fsys.Unsynced()), "[]")
}

// TestPoliciesAreAll: the list has what a harness needs, each once.
func TestPoliciesAreAll(t *testing.T) {
	fsys := vfs.NewCrash()
	equal(t, "synced", fmt.Sprint(fsys.Policies()), "[none]")
	durable("f", "")(t, fsys)
	write(t, create(t, fsys, "g"), fill("x", 600), 0)
	must(t, fsys.Rename("g", "f"))
	equal(t, "all", fmt.Sprint(fsys.Policies()), "[none all prefix(1) prefix(2) all-but(0) all-but(1) tear(0) tear-sized(0)"+
		" tear(1) tear-sized(1) sizes-only names-only no-names random renames-undone]")
	_, err := fsys.Fork(vfs.Policy{Kind: vfs.KeepPrefix, N: 1}, 0).Stat("g")
	must(t, err)
	_, err = fsys.Fork(none, 0).Stat("g")
	want(t, err, fs.ErrNotExist, "g")
}

// TestRandomIsBySeed: the same seed the same state; many seeds many states, each a mixture of sectors.
func TestRandomIsBySeed(t *testing.T) {
	fsys := vfs.NewCrash()
	durable("f", fill("a", 2048))(t, fsys)
	write(t, open(t, fsys, "f", os.O_RDWR), fill("b", 2048), 0)
	seen := map[string]bool{}
	for seed := range uint64(2000) {
		p := vfs.Policy{Kind: vfs.KeepRandom}
		one := fsys.Fork(p, seed)
		equal(t, "same seed", one.Same(fsys.Fork(p, seed)), true)
		s := get(t, one, "f")
		for i := 0; i < 2048; i += 512 {
			if s[i:i+512] != fill("a", 512) && s[i:i+512] != fill("b", 512) {
				t.Fatalf("seed %d tears a sector", seed)
			}
		}
		seen[runs(s)] = true
	}
	equal(t, "all mixtures of four sectors", len(seen), 16)
}

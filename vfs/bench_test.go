package vfs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/keeplog/keeplog/vfs"
)

// smallTree is a data directory as a crash harness has it: two partitions of three segments with two indexes each.
func smallTree(tb testing.TB) *vfs.CrashFS {
	fsys := vfs.NewCrash()
	for p := range 2 {
		dir := fmt.Sprintf("/data/t-%d", p)
		must(tb, fsys.MkdirAll(dir, 0o755))
		for s := range 3 {
			for _, kind := range []struct {
				ext  string
				size int
			}{{"log", 8000}, {"index", 512}, {"timeindex", 512}} {
				f := put(tb, fsys, fmt.Sprintf("%s/%020d.%s", dir, s*100, kind.ext), fill("x", kind.size))
				must(tb, f.Sync())
			}
		}
		must(tb, fsys.SyncDir(dir))
	}
	return fsys
}

func BenchmarkFork(b *testing.B) {
	for _, p := range []vfs.Policy{none, all, {Kind: vfs.KeepPrefix, N: 3}, {Kind: vfs.KeepRandom}, {Kind: vfs.TearLast, N: 1}} {
		b.Run(p.String(), func(b *testing.B) {
			fsys := smallTree(b)
			f := open(b, fsys, "/data/t-0/00000000000000000200.log", os.O_RDWR)
			for i := range int64(5) {
				write(b, f, fill("y", 700), 8000+i*700)
			}
			create(b, fsys, "/data/t-0/next.spare")
			b.ReportAllocs()
			for b.Loop() {
				fsys.Fork(p, 1)
			}
		})
	}
	b.Run("killed", func(b *testing.B) {
		fsys := smallTree(b)
		b.ReportAllocs()
		for b.Loop() {
			fsys.ForkKilled()
		}
	})
}

func BenchmarkWriteAt(b *testing.B) {
	for _, impl := range []struct {
		name string
		fsys vfs.FS
		dir  string
	}{{"os", vfs.OS(), b.TempDir()}, {"mem", vfs.NewMem(), "/"}, {"faulty-mem", vfs.NewFaulty(vfs.NewMem()), "/"}} {
		f := create(b, impl.fsys, filepath.Join(impl.dir, "f"))
		p := make([]byte, 1024)
		b.Run(impl.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := int64(0); b.Loop(); i++ {
				if _, err := f.WriteAt(p, i%4096*1024); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(impl.name+"/read", func(b *testing.B) {
			b.ReportAllocs()
			for i := int64(0); b.Loop(); i++ {
				if _, err := f.ReadAt(p, i%1024*1024); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCrashAppend is the workload side of a crash harness: append and sync.
func BenchmarkCrashAppend(b *testing.B) {
	fsys := smallTree(b)
	f := open(b, fsys, "/data/t-0/00000000000000000200.log", os.O_RDWR)
	p := make([]byte, 200)
	b.ReportAllocs()
	for i := int64(0); b.Loop(); i++ {
		if _, err := f.WriteAt(p, 8000+i%500*200); err != nil {
			b.Fatal(err)
		}
		if err := f.SyncData(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMapping(b *testing.B) {
	f := put(b, vfs.OS(), filepath.Join(b.TempDir(), "f"), fill("x", 1<<16))
	b.Run("map and release", func(b *testing.B) {
		for b.Loop() {
			m, err := f.Map(1<<16, true)
			must(b, err)
			must(b, m.Release())
		}
	})
	b.Run("bytes", func(b *testing.B) {
		m, err := f.Map(1<<16, false)
		must(b, err)
		for b.Loop() {
			_ = m.Bytes()
		}
		must(b, m.Release())
	})
	b.Run("retain and release", func(b *testing.B) {
		m, err := f.Map(1<<16, false)
		must(b, err)
		for b.Loop() {
			m.Retain()
			_ = m.Release()
		}
		must(b, m.Release())
	})
}

// TestHotCallsDoNotAllocate holds for the calls of the append and fetch paths.
func TestHotCallsDoNotAllocate(t *testing.T) {
	p := make([]byte, 1024)
	for _, impl := range []struct {
		name string
		fsys vfs.FS
		dir  string
	}{{"os", vfs.OS(), t.TempDir()}, {"mem", vfs.NewMem(), "/"}} {
		f := create(t, impl.fsys, filepath.Join(impl.dir, "f"))
		write(t, f, fill("x", 8192), 0)
		m, err := f.Map(4096, false)
		must(t, err)
		for name, call := range map[string]func(){
			"WriteAt": func() { _, _ = f.WriteAt(p, 4096) },
			"ReadAt":  func() { _, _ = f.ReadAt(p, 100) },
			"Bytes":   func() { m.Retain(); _ = m.Bytes(); _ = m.Release() },
		} {
			if n := testing.AllocsPerRun(100, call); n != 0 {
				t.Errorf("%s: %s allocates %v times", impl.name, name, n)
			}
		}
		must(t, m.Release())
	}
}

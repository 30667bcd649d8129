package vfs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/keeplog/keeplog/vfs"
	"golang.org/x/sys/unix"
)

// smallDisk mounts a file system of 4 MiB that only this test's thread sees and that goes with the thread. It skips where
// that is not allowed.
func smallDisk(t *testing.T, kind string) string {
	t.Helper()
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Skip("no mount namespace: ", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Skip("no private mounts: ", err)
	}
	if kind == "tmpfs" {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
			t.Skip("no tmpfs: ", err)
		}
		t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })
		return dir
	}
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, 4<<20))
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-F", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%v: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })
	return dir
}

// TestAllocateOnAFullDisk: a failed allocation leaves the length alone and a later write goes on.
func TestAllocateOnAFullDisk(t *testing.T) {
	for _, kind := range []string{"tmpfs", "ext4"} {
		t.Run(kind, func(t *testing.T) {
			dir := smallDisk(t, kind)
			fsys := vfs.OS()
			name := filepath.Join(dir, "f")
			f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
			must(t, err)
			defer func() { must(t, f.Close()) }()
			write(t, f, "abc", 0)
			before, err := fsys.Usage(dir)
			must(t, err)
			for _, keep := range []bool{true, false} {
				want(t, f.Allocate(0, 64<<20, keep), syscall.ENOSPC, name)
				equal(t, "contents", contents(t, f), "abc")
			}
			after, err := fsys.Usage(dir)
			must(t, err)
			t.Logf("free before %d, after %d of %d", before.Free, after.Free, after.Total)
			must(t, f.Allocate(0, 1<<16, true))
			write(t, f, "def", 3)
			must(t, f.Sync())
			equal(t, "contents", contents(t, f), "abcdef")
		})
	}
}

// TestMappingsAreUnmapped counts this process's mappings of a file.
func TestMappingsAreUnmapped(t *testing.T) {
	fsys := vfs.OS()
	name := filepath.Join(t.TempDir(), "mapped-file")
	f := put(t, fsys, name, fill("x", 9000))
	count := func() (n int) {
		maps, err := os.ReadFile("/proc/self/maps")
		must(t, err)
		for i := 0; i+len(name) <= len(maps); i++ {
			if string(maps[i:i+len(name)]) == name {
				n++
			}
		}
		return n
	}
	m, err := f.Map(9000, true)
	must(t, err)
	ro, err := f.Map(4096, false)
	must(t, err)
	equal(t, "mapped", count(), 2)
	m.Retain()
	must(t, m.Release())
	equal(t, "retained", count(), 2)
	must(t, m.Release())
	equal(t, "released", count(), 1)
	must(t, ro.Release())
	equal(t, "all released", count(), 0)
}

// TestLockIsTheKernels: another process, here another descriptor by flock, meets the same lock.
func TestLockIsTheKernels(t *testing.T) {
	name := filepath.Join(t.TempDir(), ".lock")
	held, err := vfs.OS().Lock(name)
	must(t, err)
	other, err := os.Open(name)
	must(t, err)
	defer func() { _ = other.Close() }()
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != syscall.EWOULDBLOCK {
		t.Fatalf("flock of a held lock: %v", err)
	}
	must(t, held.Close())
	must(t, unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	_, err = vfs.OS().Lock(name)
	want(t, err, vfs.ErrLocked, name)
}

// TestMkdirAllAfterAKill: a process is killed at each call of MkdirAll; the next process's MkdirAll makes the names
// durable all the same.
func TestMkdirAllAfterAKill(t *testing.T) {
	for k := int64(1); ; k++ {
		fsys := vfs.NewCrash()
		fsys.SetHook(func(e vfs.Event) {
			if e.Index == k && e.Phase == vfs.Before {
				fsys.PowerOff()
			}
		})
		first := fsys.MkdirAll("a/b/c", 0o755)
		killed := fsys.Kill()
		must(t, killed.MkdirAll("a/b/c", 0o755))
		equal(t, "after the second", tree(t, killed.Crash(none, 0)), "a/ a/b/ a/b/c/")
		if first == nil {
			equal(t, "calls", k, 7)
			break
		}
	}
}

// TestTruncateOfAMapping: in memory the mistake that is SIGBUS later on the real file system is found at once.
func TestTruncateOfAMapping(t *testing.T) {
	for _, fsys := range []vfs.FS{vfs.NewMem(), vfs.NewCrash()} {
		f := put(t, fsys, "f", fill("x", 5000))
		m, err := f.Map(4097, false)
		must(t, err)
		must(t, f.Truncate(4097))
		func() {
			defer func() {
				if recover() == nil {
					t.Error("cut a live mapping")
				}
			}()
			_ = f.Truncate(4096)
		}()
		bytes := m.Bytes()
		must(t, m.Release())
		must(t, f.Truncate(4096))
		equal(t, "a reader without a reference reads junk", bytes[0], 0xDB)
		equal(t, "the file is fine", contents(t, f), fill("x", 4096))
	}
}

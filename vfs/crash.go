package vfs

import (
	"fmt"
	"math/rand/v2"
)

// Phase says on which side of a call a hook runs.
type Phase uint8

// The phases.
const (
	Before Phase = iota + 1
	After
)

// Event is one call that changes the cache or the disk: create, mkdir, remove, rename, write, truncate, fallocate, every
// kind of sync. MkdirAll and RemoveAll are the calls that they consist of.
type Event struct {
	Index int64 // from 1, counted for each CrashFS
	Op    Op
	Path  string // of a rename the new path
	Phase Phase
	Err   error // After: what the call returned
}

// CrashFS is a file system in memory whose power can be taken away. See the package comment for what survives.
//
// A harness runs a workload on it and, in a hook around every call, forks the states that a crash at that moment could
// leave:
//
//	fsys := vfs.NewCrash()
//	fsys.SetHook(func(e vfs.Event) {
//		for _, p := range fsys.Policies() {
//			reopen(fsys.Fork(p, seed)) // a CrashFS again: crash it during its recovery
//		}
//	})
//	workload(fsys)
type CrashFS struct{ *memFS }

// NewCrash returns an empty crashable file system. Its root directory needs no sync.
func NewCrash() *CrashFS { return newCrashFS(newMemFS()) }

func newCrashFS(m *memFS) *CrashFS {
	m.root.crash.links = 1
	m.journal = &journal{fs: m}
	return &CrashFS{m}
}

// SetHook has fn run before and after every call that changes something, on the goroutine of the call and without any
// lock, so that fn may fork, crash or stop the file system. Concurrent calls run it concurrently. Nil removes it. When fn
// takes the power away before a call, the call fails with ErrPowerOff and has no After.
func (c *CrashFS) SetHook(fn func(Event)) {
	if fn == nil {
		c.journal.hook.Store(nil)
		return
	}
	c.journal.hook.Store(&fn)
}

// Calls is the number of changing calls so far: the Index of the latest.
func (c *CrashFS) Calls() int64 { return c.journal.calls.Load() }

// PowerOff stops the file system: from now on every call on it, its files and mappings fails with ErrPowerOff. The memory
// of its mappings stays readable, and Release works. Fork, Crash and Kill still do.
func (c *CrashFS) PowerOff() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scanLive()
	c.dead.Store(true)
}

// scanLive records the stores so far, but for those after the power went. The caller holds mu.
func (c *CrashFS) scanLive() {
	if !c.dead.Load() {
		c.journal.scanAll()
	}
}

// Change describes something that is not on the disk yet.
type Change struct {
	Op   Op
	Path string
	Off  int64 // first byte of the sectors
	Len  int   // bytes in whole sectors; 0 where only names or sizes change
	Size int64 // the new size; -1: unchanged
}

func (c Change) String() string {
	return fmt.Sprintf("%s %s [%d,+%d) size %d", c.Op, c.Path, c.Off, c.Len, c.Size)
}

// Unsynced lists the changes that a power failure now could take, in the order they were made. Their index is the N of a
// Policy.
func (c *CrashFS) Unsynced() []Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scanLive()
	out := make([]Change, len(c.journal.pending))
	for i, ch := range c.journal.pending {
		out[i] = Change{Op: ch.op, Path: ch.path, Off: ch.off, Len: len(ch.data), Size: ch.size}
	}
	return out
}

// Crash takes the power away: what survives under p is returned as a new file system, all of it synced, and this one
// stops. seed is used by KeepRandom only.
func (c *CrashFS) Crash(p Policy, seed uint64) *CrashFS {
	c.PowerOff()
	return c.Fork(p, seed)
}

// Fork returns what would survive a crash now, and leaves this file system running.
func (c *CrashFS) Fork(p Policy, seed uint64) *CrashFS {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.journal
	c.scanLive()
	k := j.forker()
	m := &memFS{root: k.survivor(c.root)}
	var rng *rand.Rand
	if p.Kind == KeepRandom {
		rng = rand.New(rand.NewPCG(seed, uint64(len(j.pending))))
	}
	tear := -1
	if p.Kind == TearLast || p.Kind == TearLastSized {
		tear = j.lastWrite()
	}
	for i, ch := range j.pending {
		k.apply(ch, p.fate(i, i == tear, ch, rng))
	}
	k.done(j)
	return newCrashFS(m)
}

// Kill ends the process and not the machine: the result has the same cache, with the same unsynced changes, and this file
// system stops. Open files, mappings and locks are gone.
func (c *CrashFS) Kill() *CrashFS {
	c.PowerOff()
	return c.ForkKilled()
}

// ForkKilled returns what a Kill now would, and leaves this file system running.
func (c *CrashFS) ForkKilled() *CrashFS {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.journal
	c.scanLive()
	k := j.forker()
	out := newCrashFS(&memFS{root: k.copy(c.root)})
	out.journal.pending = make([]*change, len(j.pending))
	for i, ch := range j.pending {
		out.journal.pending[i] = k.copyChange(ch)
	}
	return out
}

// Same says whether two file systems show the same: names, sizes and bytes.
func (c *CrashFS) Same(other *CrashFS) bool {
	if c == other {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	other.mu.Lock()
	defer other.mu.Unlock()
	return c.root.same(other.root)
}

func (n *node) same(o *node) bool {
	if n.mode != o.mode || len(n.names) != len(o.names) || n.data.size != o.data.size {
		return false
	}
	for i, e := range n.names {
		if e.name != o.names[i].name || !e.node.same(o.names[i].node) {
			return false
		}
	}
	for i := range max(len(n.data.pages), len(o.data.pages)) {
		if !samePage(n.data.page(i), o.data.page(i)) {
			return false
		}
	}
	return true
}

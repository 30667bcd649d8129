package vfs

import (
	"slices"
	"sync/atomic"
)

// crashNode is what a journal knows of a node. Guarded by memFS.mu.
type crashNode struct {
	disk   *diskNode // nil: the disk has what the cache has
	orphan bool      // no name in the cache, on the disk or on its way leads here: no crash can bring it back
	lost   bool      // a sync failed: the cache has bytes that neither the disk nor a change has
	links  int32     // names on the disk that lead here
	due    int32     // unsynced edits that make a name lead here

	memo *node // the copy in the fork number gen
	gen  uint64
}

// diskNode is the state of a node on the disk: a file's bytes or a directory's names.
type diskNode struct {
	data  content
	alloc int64
	names []dirent // an array that was the cache's: setName copies before it changes one
}

// extent is a range of bytes of a file.
type extent struct{ off, length int64 }

// edit sets a name of a directory, or removes it (node nil).
type edit struct {
	dir  *node
	name string
	node *node
}

// change is something that is in the cache and not yet on the disk: bytes and size of one file, or edits of names.
//
//	off   data                            size                edits
//	512 k ├ sector ┼ sector ┼ … ┤         -1: unchanged       {directory, name, node} …
//	      whole sectors as the cache      cut: exactly this   one per directory that must be synced
//	      had them after the call         else: at least this
type change struct {
	op    Op
	path  string
	node  *node
	off   int64
	data  []byte
	size  int64
	cut   bool
	alloc int64 // end of the reserved blocks; -1: unchanged
	edits []edit
}

// journal records, in order, what a power failure may take. A nil journal records nothing. All methods but around, and
// the hook, are called with fs.mu held.
type journal struct {
	fs      *memFS
	pending []*change
	mapped  []*node // files with mappings, to look for stores
	nodes   int     // about as many as a fork copies
	hook    atomic.Pointer[func(Event)]
	calls   atomic.Int64
	gen     uint64 // of the last fork
}

// around runs fn as one recorded call, with the hook before and after it.
func (j *journal) around(op Op, path string, fn func() error) error {
	if j.fs.dead.Load() {
		return pathError(op.String(), path, ErrPowerOff)
	}
	event := Event{Index: j.calls.Add(1), Op: op, Path: path, Phase: Before}
	hook := j.hook.Load()
	if hook != nil {
		(*hook)(event)
	}
	err := j.run(op, path, fn)
	if hook != nil && !j.fs.dead.Load() {
		event.Phase, event.Err = After, err
		(*hook)(event)
	}
	return err
}

func (j *journal) run(op Op, path string, fn func() error) error {
	j.fs.mu.Lock()
	defer j.fs.mu.Unlock()
	if j.fs.dead.Load() {
		return pathError(op.String(), path, ErrPowerOff)
	}
	j.scanAll()
	return fn()
}

// split gives the directory n its own list of names on the disk.
func (n *node) split() {
	if n.crash.disk == nil {
		n.crash.disk = &diskNode{names: n.names}
		n.namesShared = true
	}
}

// touch gives the file n its own bytes on the disk, before the cache changes; the caller holds n.mu too.
func (j *journal) touch(n *node) {
	if j != nil && n.crash.disk == nil {
		n.crash.disk = &diskNode{data: n.data.share(n.pinned()), alloc: n.alloc}
	}
}

func (j *journal) add(c *change) {
	if c.node == nil || !c.node.crash.orphan {
		j.pending = append(j.pending, c)
	}
}

// wrote records the sectors of a write, as they are now; the caller holds n.mu too. size is the new size, or -1.
func (j *journal) wrote(path string, n *node, x extent, size int64) {
	if j == nil {
		return
	}
	start := x.off &^ (sectorSize - 1)
	end := (x.off + x.length + sectorSize - 1) &^ (sectorSize - 1)
	c := &change{op: OpWrite, path: path, node: n, off: start, data: make([]byte, end-start), size: size, alloc: -1}
	n.data.image(c.data, start)
	j.add(c)
}

func (j *journal) resized(path string, n *node, size int64) {
	if j != nil {
		j.add(&change{op: OpTruncate, path: path, node: n, size: size, cut: true, alloc: n.alloc})
	}
}

func (j *journal) allocated(path string, n *node, size int64) {
	if j != nil {
		j.add(&change{op: OpAllocate, path: path, node: n, size: size, alloc: n.alloc})
	}
}

func (j *journal) linked(op Op, path string, edits ...edit) {
	if j == nil {
		return
	}
	for _, e := range edits {
		if e.node != nil {
			e.node.crash.due++
		}
	}
	j.add(&change{op: op, path: path, size: -1, alloc: -1, edits: edits})
}

// watch looks for stores to n from now on.
func (j *journal) watch(n *node) {
	if j != nil && !slices.Contains(j.mapped, n) {
		j.mapped = append(j.mapped, n)
	}
}

func (j *journal) scanAll() {
	for i := len(j.mapped) - 1; i >= 0; i-- {
		n := j.mapped[i]
		if j.scan(n); n.slab == nil && len(n.stale) == 0 {
			j.mapped = slices.Delete(j.mapped, i, i+1)
		}
	}
}

// scan records the stores to n's mappings since the last look: a change for each run of sectors within a page.
func (j *journal) scan(n *node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.settle()
	s := n.slab
	if s == nil || s.shadow == nil {
		return
	}
	for at := nextChange(s.mem, s.shadow, 0, sectorSize); at < len(s.mem); {
		end := at + sectorSize
		for end%pageSize != 0 && nextChange(s.mem[:end+sectorSize], s.shadow, end, sectorSize) == end {
			end += sectorSize
		}
		c := &change{op: OpStore, path: s.name, node: n, off: int64(at), data: make([]byte, end-at), size: -1, alloc: -1}
		copyUnseen(c.data, s.mem[at:end])
		copy(s.shadow[at:end], c.data)
		j.add(c)
		at = nextChange(s.mem, s.shadow, end, sectorSize)
	}
}

// filter keeps the pending changes that keep approves of.
func (j *journal) filter(keep func(*change) bool) {
	j.pending = slices.DeleteFunc(j.pending, func(c *change) bool { return !keep(c) })
}

// syncFile moves all changes of n to the disk.
func (j *journal) syncFile(n *node) {
	if j == nil {
		return
	}
	j.filter(func(c *change) bool {
		if c.node == n {
			c.apply(&n.crash.disk.data, &n.crash.disk.alloc, wholly)
		}
		return c.node != n
	})
	if n.crash.disk != nil {
		n.crash.disk.data.trim()
	}
}

// syncRange moves the sectors of the first length bytes to the disk, with every change if n was resized meanwhile.
func (j *journal) syncRange(n *node, length int64) {
	if j == nil {
		return
	}
	for _, c := range j.pending {
		if c.node == n && c.cut {
			j.syncFile(n)
			return
		}
	}
	j.filter(func(c *change) bool {
		if c.node != n {
			return true
		}
		in := max(0, min(length-c.off, int64(len(c.data))))
		n.crash.disk.data.write(c.data[:in], c.off)
		c.off, c.data = c.off+in, c.data[in:]
		return c.holds()
	})
}

// holds says whether anything is left of c.
func (c *change) holds() bool {
	return len(c.data) > 0 || c.size >= 0 || c.alloc >= 0 || len(c.edits) > 0
}

// lose drops the bytes of all changes of n: the cache keeps them, no later sync writes them. Sizes stay to be synced.
func (j *journal) lose(n *node) {
	j.filter(func(c *change) bool {
		if c.node != n {
			return true
		}
		n.crash.lost = n.crash.lost || len(c.data) > 0
		c.data = nil
		return c.holds()
	})
}

// dropCache makes the cache of n the disk's bytes with the unsynced changes on top.
func (j *journal) dropCache(n *node) {
	if j == nil || !n.crash.lost || n.slab != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	fresh := n.crash.disk.data.share(0)
	for _, c := range j.pending {
		if c.node == n {
			c.apply(&fresh, new(int64), wholly)
		}
	}
	fresh.trim()
	n.data, n.crash.lost = fresh, false
}

// syncDir moves the names of dir to the disk. Of a rename across directories that is one half.
func (j *journal) syncDir(dir *node) {
	if j == nil {
		return
	}
	var moved []*node
	j.filter(func(c *change) bool {
		c.edits = slices.DeleteFunc(c.edits, func(e edit) bool {
			if e.dir != dir {
				return false
			}
			if old := e.applyToDisk(); old != nil {
				moved = append(moved, old)
			}
			return true
		})
		return c.holds()
	})
	for _, n := range moved {
		j.forget(n)
	}
}

// applyToDisk makes the edit durable and returns the node that the name led to before.
func (e edit) applyToDisk() (old *node) {
	d := e.dir
	d.split()
	if old = putName(&d.crash.disk.names, e.name, e.node); old != nil {
		old.crash.links--
	}
	if e.node != nil {
		e.node.crash.links++
		e.node.crash.due--
	}
	return old
}

// forget drops the changes of n, and of what is only below n, when no crash can bring n back.
func (j *journal) forget(n *node) {
	if n.links > 0 || n.crash.links > 0 || n.crash.due > 0 || n.crash.orphan {
		return
	}
	n.crash.orphan = true
	var below []*node
	if n.mode.IsDir() {
		n.split()
		for _, e := range n.crash.disk.names {
			e.node.crash.links--
			below = append(below, e.node)
		}
		n.crash.disk.names = nil
	}
	j.filter(func(c *change) bool {
		c.edits = slices.DeleteFunc(c.edits, func(e edit) bool {
			if e.dir == n && e.node != nil {
				e.node.crash.due--
				below = append(below, e.node)
			}
			return e.dir == n
		})
		return c.node != n && c.holds()
	})
	for _, child := range below {
		j.forget(child)
	}
}

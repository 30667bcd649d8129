package vfs

import "slices"

// forker copies a tree. Its copies are found through the memo of each node, valid for its gen.
type forker struct {
	gen    uint64
	hint   int // how many copies are expected
	chunk  []node
	copies []*node
}

// forker starts a fork; the caller ends it with done.
func (j *journal) forker() *forker {
	j.gen++
	return &forker{gen: j.gen, hint: j.nodes, copies: make([]*node, 0, j.nodes)}
}

// done makes all copied contents proper.
func (k *forker) done(j *journal) {
	for _, c := range k.copies {
		c.data.trim()
	}
	j.nodes = len(k.copies)
}

func (k *forker) make(n *node) *node {
	if len(k.chunk) == 0 {
		k.chunk = make([]node, max(4, k.hint-len(k.copies)))
	}
	c := &k.chunk[0]
	k.chunk = k.chunk[1:]
	c.mode = n.mode
	n.crash.memo, n.crash.gen = c, k.gen
	k.copies = append(k.copies, c)
	return c
}

// survivor returns the copy of n as it is on the disk, with everything below it; cache and disk are the same.
func (k *forker) survivor(n *node) *node {
	if n.crash.gen == k.gen {
		return n.crash.memo
	}
	c := k.make(n)
	if !n.mode.IsDir() {
		c.data, c.alloc = n.diskContent()
		return c
	}
	names := n.names
	if n.crash.disk != nil {
		names = n.crash.disk.names
	}
	if len(names) > 0 {
		c.names = make([]dirent, len(names), len(names)+2)
	}
	for i, e := range names {
		to := k.survivor(e.node)
		c.names[i] = dirent{e.name, to}
		to.links++
		to.crash.links++
	}
	return c
}

// diskContent shares what the disk has of the file n.
func (n *node) diskContent() (content, int64) {
	if d := n.crash.disk; d != nil {
		return d.data.share(0), d.alloc
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.data.share(n.pinned()), n.alloc
}

// apply brings what survives of ch to the copies.
func (k *forker) apply(ch *change, f fate) {
	if ch.node != nil {
		c := k.survivor(ch.node)
		ch.apply(&c.data, &c.alloc, f)
	}
	if !f.names {
		return
	}
	for _, e := range ch.edits {
		dir := k.survivor(e.dir)
		var to *node
		if e.node != nil {
			to = k.survivor(e.node)
			to.links++
			to.crash.links++
		}
		if old := putName(&dir.names, e.name, to); old != nil {
			old.links--
			old.crash.links--
		}
	}
}

// copy returns the copy of n as it is in the cache and on the disk, with everything below it in either.
func (k *forker) copy(n *node) *node {
	if n.crash.gen == k.gen {
		return n.crash.memo
	}
	c := k.make(n)
	c.links = n.links
	c.crash.orphan, c.crash.lost = n.crash.orphan, n.crash.lost
	c.crash.links, c.crash.due = n.crash.links, n.crash.due
	if d := n.crash.disk; d != nil {
		c.crash.disk = &diskNode{data: d.data.share(0), alloc: d.alloc, names: k.copyNames(d.names)}
	}
	if n.mode.IsDir() {
		c.names = k.copyNames(n.names)
		return c
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	c.data, c.alloc = n.data.share(n.pinned()), n.alloc
	return c
}

func (k *forker) copyNames(names []dirent) []dirent {
	out := slices.Clone(names)
	for i, e := range out {
		out[i].node = k.copy(e.node)
	}
	return out
}

func (k *forker) copyChange(ch *change) *change {
	out := *ch
	if ch.node != nil {
		out.node = k.copy(ch.node)
	}
	out.edits = slices.Clone(ch.edits)
	for i, e := range out.edits {
		out.edits[i].dir = k.copy(e.dir)
		if e.node != nil {
			out.edits[i].node = k.copy(e.node)
		}
	}
	return &out
}

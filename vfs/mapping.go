package vfs

import "sync/atomic"

// Mapping is the first bytes of a file in memory, shared with the file. It is counted: Map returns it with one reference,
// Retain adds one, Release takes one, and the last Release unmaps, once. A reference taken too often, or used after the
// last one went, is a bug of the caller and panics.
//
//	Map ──▶ refs 1 ──Retain──▶ 2 … ──Release──▶ 1 ──Release──▶ 0: unmapped, for good
//
// The owner of the file decides who stores; readers on other goroutines need their own ordering with those stores. The
// bytes must not be touched by anyone who holds no reference.
type Mapping struct {
	bytes    []byte
	writable bool
	refs     atomic.Int64
	back     backing
}

// backing is what an implementation does for its mappings.
type backing interface {
	// syncMapped makes the stores so far durable.
	syncMapped() error
	// unmap gives the memory back; called once.
	unmap() error
}

func newMapping(bytes []byte, writable bool, back backing) *Mapping {
	m := &Mapping{bytes: bytes[:len(bytes):len(bytes)], writable: writable, back: back}
	m.refs.Store(1)
	return m
}

// Bytes is the mapped memory, valid while the caller holds a reference. Storing into a read-only mapping is a fault that
// ends the process on the real file system.
func (m *Mapping) Bytes() []byte {
	if m.refs.Load() <= 0 {
		panic("vfs: Mapping.Bytes after the last Release")
	}
	return m.bytes
}

// Len is the number of mapped bytes. It needs no reference.
func (m *Mapping) Len() int { return len(m.bytes) }

// Writable says whether stores are allowed.
func (m *Mapping) Writable() bool { return m.writable }

// Retain adds a reference. The caller must already hold one, or know that another holder keeps it meanwhile.
func (m *Mapping) Retain() {
	if !m.TryRetain() {
		panic("vfs: Mapping.Retain after the last Release")
	}
}

// TryRetain adds a reference unless the last one is gone, and says whether it did.
func (m *Mapping) TryRetain() bool {
	for {
		n := m.refs.Load()
		if n <= 0 {
			return false
		}
		if m.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release takes a reference away; the last one unmaps and returns the error of that. Stores that were not synced stay in
// the file's cache, not yet durable.
func (m *Mapping) Release() error {
	for {
		n := m.refs.Load()
		if n <= 0 {
			panic("vfs: Mapping.Release after the last Release")
		}
		if !m.refs.CompareAndSwap(n, n-1) {
			continue
		}
		if n > 1 {
			return nil
		}
		return m.back.unmap()
	}
}

// Sync makes the stores so far durable (msync with MS_SYNC); a read-only mapping has none. After an error nothing is known
// of any unsynced byte of the file: never retry. The caller holds a reference.
func (m *Mapping) Sync() error {
	if m.refs.Load() <= 0 {
		panic("vfs: Mapping.Sync after the last Release")
	}
	if !m.writable {
		return nil
	}
	return m.back.syncMapped()
}

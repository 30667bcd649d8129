package vfs

import "encoding/binary"

// slab is the contiguous memory behind a file's mappings: the file's first pages live in it as long as one is mapped.
type slab struct {
	name     string // of the file, when it was mapped first
	mem      []byte
	shadow   []byte // the bytes as last seen by a call; nil: nobody looks for stores
	longest  int64  // the longest mapping
	refs     int
	writable bool // one of the mappings is
}

// memMapping ties a Mapping to its slab.
type memMapping struct {
	file *memFile
	slab *slab
}

func (b *memMapping) syncMapped() error { return b.file.syncMapped(int64(len(b.slab.mem))) }

func (b *memMapping) unmap() error {
	b.file.fs.unmap(b.file.node, b.slab)
	return nil
}

// mapPages returns the slab for a mapping of the first length bytes; the caller holds n.mu. A mapping that outgrows the
// slab under live ones gets a new slab; the old ones are then kept the same by every call on the file (settle).
func (n *node) mapPages(name string, length int64, writable, watch bool) *slab {
	s := n.slab
	if s == nil || length > int64(len(s.mem)) {
		pages := (length + pageSize - 1) / pageSize
		grown := &slab{name: name, mem: make([]byte, pages*pageSize)}
		n.data.home(grown.mem)
		if s != nil {
			if s.shadow == nil {
				s.shadow = cloneUnseen(s.mem)
			}
			n.stale = append(n.stale, s)
		}
		s, n.slab = grown, grown
	}
	s.refs++
	s.longest = max(s.longest, length)
	s.writable = s.writable || writable
	if watch && (writable || len(n.stale) > 0) && s.shadow == nil {
		s.shadow = cloneUnseen(s.mem)
	}
	return s
}

// unmapPages drops one mapping of s; the caller holds n.mu. The file moves out with the last one, and the memory is
// overwritten, so that a reader without a reference is found out.
func (n *node) unmapPages(s *slab) {
	n.settle()
	if s.refs--; s.refs > 0 {
		return
	}
	if s == n.slab {
		n.slab = nil
		n.data.home(make([]byte, len(s.mem)))
		n.data.loose = true
		n.data.trim()
	} else {
		for i, t := range n.stale {
			if t == s {
				n.stale = append(n.stale[:i], n.stale[i+1:]...)
				break
			}
		}
	}
	for i := range s.mem {
		s.mem[i] = 0xDB
	}
}

// pinned is the number of pages that a mapping may write to.
func (n *node) pinned() int {
	if n.slab == nil {
		return 0
	}
	return len(n.slab.mem) / pageSize
}

// settle makes outgrown slabs and the file the same; the caller holds n.mu.
func (n *node) settle() {
	if len(n.stale) == 0 {
		return
	}
	for _, s := range n.stale {
		for at := nextChange(s.mem, s.shadow, 0, 1); at < len(s.mem); at = nextChange(s.mem, s.shadow, at+1, 1) {
			copyUnseen(n.slab.mem[at:at+1], s.mem[at:at+1])
		}
	}
	for _, s := range n.stale {
		for at := nextChange(s.mem, n.slab.mem, 0, 1); at < len(s.mem); at = nextChange(s.mem, n.slab.mem, at+1, 1) {
			copyUnseen(s.mem[at:at+1], n.slab.mem[at:at+1])
		}
		copyUnseen(s.shadow, n.slab.mem)
	}
}

// seen says that the calls know the mapped bytes of [off, off+length).
func (s *slab) seen(off, length int64) {
	if s == nil || s.shadow == nil {
		return
	}
	end := min(off+length, int64(len(s.mem)))
	if off < end {
		copyUnseen(s.shadow[off:end], s.mem[off:end])
	}
}

// nextChange returns the first multiple of step, from at on, where mem and shadow differ within step bytes; len(mem) if
// there is none.
func nextChange(mem, shadow []byte, at, step int) int {
	for at < len(mem) {
		if at%pageSize == 0 && at+pageSize <= len(mem) && sameUnseen(mem[at:at+pageSize], shadow[at:at+pageSize]) {
			at += pageSize
			continue
		}
		if !sameUnseen(mem[at:at+step], shadow[at:at+step]) {
			return at
		}
		at += step
	}
	return len(mem)
}

// sameUnseen compares mapped memory. The owner of a mapping may be storing meanwhile, as it may while a kernel writes the
// page out, so the race detector is kept out, and with it bytes.Equal, which reports to it.
//
//go:norace
func sameUnseen(a, b []byte) bool {
	b = b[:len(a)]
	for len(a) >= 32 {
		x := binary.LittleEndian.Uint64(a) ^ binary.LittleEndian.Uint64(b)
		x |= binary.LittleEndian.Uint64(a[8:]) ^ binary.LittleEndian.Uint64(b[8:])
		x |= binary.LittleEndian.Uint64(a[16:]) ^ binary.LittleEndian.Uint64(b[16:])
		x |= binary.LittleEndian.Uint64(a[24:]) ^ binary.LittleEndian.Uint64(b[24:])
		if x != 0 {
			return false
		}
		a, b = a[32:], b[32:]
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// copyUnseen copies the shorter length of mapped memory, out of the race detector's sight for the same reason.
//
//go:norace
func copyUnseen(dst, src []byte) {
	n := min(len(dst), len(src))
	dst, src = dst[:n], src[:n]
	for len(dst) >= 8 {
		binary.LittleEndian.PutUint64(dst, binary.LittleEndian.Uint64(src))
		dst, src = dst[8:], src[8:]
	}
	for i := range dst {
		dst[i] = src[i]
	}
}

func cloneUnseen(src []byte) []byte {
	dst := make([]byte, len(src))
	copyUnseen(dst, src)
	return dst
}

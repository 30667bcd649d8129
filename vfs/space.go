package vfs

import (
	"path"
	"strings"
	"sync"
)

// SetFree limits the space that may still be taken to n bytes from now on; a negative n lifts the limit. Space is counted
// in blocks of 4 KiB from a file's start to the end of what was ever written or allocated in it, so that a write into
// allocated blocks costs nothing and a hole costs only when something behind it is written. Truncating, removing and
// replacing give space back, an open file's too. Directories cost nothing.
//
// A write that does not fit stores what does and fails with ENOSPC; an Allocate that does not fit changes nothing.
func (f *FaultyFS) SetFree(n int64) {
	f.space.mu.Lock()
	defer f.space.mu.Unlock()
	f.space.limited, f.space.free = n >= 0, max(n, 0)
}

// space keeps the books of SetFree, also while there is no limit.
type space struct {
	inner FS

	mu      sync.Mutex
	limited bool
	free    int64            // where limited
	held    map[string]*hold // by path
}

// hold is the end of the blocks that a file holds. Guarded by space.mu; open files keep it across renames.
type hold struct {
	end  int64
	gone bool // removed: what it held has been given back
}

// left is the free space, if there is a limit.
func (s *space) left() (free int64, limited bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free, s.limited
}

// of returns the hold of the file called name; one not met before holds its size.
func (s *space) of(name string) *hold {
	name = path.Clean(name)
	s.mu.Lock()
	h := s.held[name]
	s.mu.Unlock()
	if h != nil {
		return h
	}
	fresh := &hold{}
	if info, err := s.inner.Stat(name); err == nil && !info.IsDir() {
		fresh.end = roundUp(info.Size())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[name]; h != nil {
		return h
	}
	s.held[name] = fresh
	return fresh
}

// fits says whether h may grow to end; a removed file may. The caller holds s.mu.
func (s *space) fits(h *hold, end int64) bool { return !s.limited || h.gone || end-h.end <= s.free }

// grow moves the end of h, at a price if there is a limit. The caller holds s.mu and knows that it fits.
func (s *space) grow(h *hold, end int64) {
	if !h.gone && s.limited {
		s.free -= end - h.end
	}
	h.end = end
}

// take pays for a write of n bytes at off, and returns how many of them fit.
func (s *space) take(h *hold, off, n int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n == 0 || off < 0 {
		return n
	}
	end := max(h.end, roundUp(off+n))
	if !s.fits(h, end) {
		end = h.end + s.free&^(pageSize-1)
		if n = max(0, min(n, end-off)); n == 0 {
			return 0
		}
	}
	s.grow(h, end)
	return n
}

// reserve pays for the blocks of [off, off+n), or for nothing.
func (s *space) reserve(h *hold, off, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if off < 0 || n <= 0 {
		return true
	}
	end := max(h.end, roundUp(off+n))
	if !s.fits(h, end) {
		return false
	}
	s.grow(h, end)
	return true
}

// cut gives back what h holds behind size.
func (s *space) cut(h *hold, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if end := roundUp(size); end < h.end {
		s.grow(h, end)
	}
}

// drop books the removal of name, whose hold was h.
func (s *space) drop(name string, h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(h)
	delete(s.held, path.Clean(name))
}

// end gives back all that h holds; the caller holds s.mu.
func (s *space) end(h *hold) {
	s.grow(h, 0)
	h.gone = true
}

// move books a rename, of a directory with all below it; replaced is the hold of the file that was at newname.
func (s *space) move(oldname, newname string, replaced *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from, to := path.Clean(oldname), path.Clean(newname)
	if from == to {
		return
	}
	s.end(replaced)
	delete(s.held, to)
	moved := map[string]*hold{}
	for name, h := range s.held {
		if name == from || strings.HasPrefix(name, from+"/") {
			moved[to+name[len(from):]] = h
			delete(s.held, name)
		}
	}
	for name, h := range moved {
		s.held[name] = h
	}
}

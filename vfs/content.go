package vfs

const (
	sectorSize = 512  // what a disk writes whole or not at all
	pageSize   = 4096 // what contents share and copy
	maxMemFile = 8 << 30
)

type page [pageSize]byte

// content is the bytes of a file in memory. Pages are shared between contents until one of them writes.
//
//	size   ├──────────────────────────────────┤
//	pages  │ page 0 │ page 1 │  nil  │ page 3 │     nil, and what lies behind the last page, reads as zeros
//	owned  │ yes    │ no     │       │ yes    │     only an owned page is written in place
//
// Bytes behind size are zero, but for a loose content, which trim makes proper. The zero value is an empty file. A content
// is guarded by its holder's lock; shared pages are never written, so that sharers need no common lock.
type content struct {
	size     int64
	pages    []*page
	owned    []bool
	borrowed bool // pages belongs to another content too, and owned is empty
	loose    bool // there may be bytes behind size
}

// read fills p from off on, not looking at size.
func (c *content) read(p []byte, off int64) {
	for len(p) > 0 {
		i, at := int(off/pageSize), int(off%pageSize)
		n := min(pageSize-at, len(p))
		if i < len(c.pages) && c.pages[i] != nil {
			copy(p[:n], c.pages[i][at:])
		} else {
			clear(p[:n])
		}
		p, off = p[n:], off+int64(n)
	}
}

// image fills p like read, where a mapping's owner may be storing at the same time.
func (c *content) image(p []byte, off int64) {
	for len(p) > 0 {
		at := int(off % pageSize)
		n := min(pageSize-at, len(p))
		if from := c.page(int(off / pageSize)); from != nil {
			copyUnseen(p[:n], from[at:])
		} else {
			clear(p[:n])
		}
		p, off = p[n:], off+int64(n)
	}
}

// write stores p at off, not touching size.
func (c *content) write(p []byte, off int64) {
	if off+int64(len(p)) > c.size {
		c.loose = true
	}
	for len(p) > 0 {
		i, at := int(off/pageSize), int(off%pageSize)
		n := copy(c.own(i)[at:], p)
		p, off = p[n:], off+int64(n)
	}
}

// own returns page i, after making it this content's alone.
func (c *content) own(i int) *page {
	c.take()
	for len(c.pages) <= i {
		c.pages, c.owned = append(c.pages, nil), append(c.owned, false)
	}
	if c.owned[i] {
		return c.pages[i]
	}
	p := new(page)
	if c.pages[i] != nil {
		*p = *c.pages[i]
	}
	c.pages[i], c.owned[i] = p, true
	return p
}

// take makes the list of pages this content's alone.
func (c *content) take() {
	if !c.borrowed {
		return
	}
	pages := make([]*page, len(c.pages), len(c.pages)+2)
	copy(pages, c.pages)
	c.pages, c.owned, c.borrowed = pages, make([]bool, len(pages), cap(pages)), false
}

// resize sets the size; a cut drops the bytes behind it, growth uncovers what lies there: zeros, unless loose.
func (c *content) resize(size int64) {
	shrinks := size < c.size
	c.size = size
	if shrinks {
		c.loose = true
		c.trim()
	}
}

// trim clears what lies behind size.
func (c *content) trim() {
	if !c.loose {
		return
	}
	c.loose = false
	keep := int((c.size + pageSize - 1) / pageSize)
	if keep < len(c.pages) {
		c.take()
		clear(c.pages[keep:])
		c.pages, c.owned = c.pages[:keep], c.owned[:keep]
	}
	if at := int(c.size % pageSize); at != 0 && keep == len(c.pages) && c.pages[keep-1] != nil {
		if tail := c.pages[keep-1][at:]; !allZero(tail) {
			clear(c.own(keep - 1)[at:])
		}
	}
}

// share returns a content with the same bytes. The first pinned pages stay the sharer's own, since a mapping writes to
// them unseen, and are copied.
func (c *content) share(pinned int) content {
	out := content{size: c.size, pages: c.pages, borrowed: true, loose: c.loose}
	if pinned == 0 {
		c.borrowed, c.owned = true, nil
		return out
	}
	out.pages = make([]*page, len(c.pages))
	copy(out.pages, c.pages)
	for i := range pinned {
		p := new(page)
		copyUnseen(p[:], c.pages[i][:])
		out.pages[i] = p
	}
	c.take()
	for i := pinned; i < len(c.owned); i++ {
		c.owned[i] = false
	}
	return out
}

// home moves the first pages into mem, whose length is a multiple of the page size.
func (c *content) home(mem []byte) {
	n := len(mem) / pageSize
	c.take()
	for len(c.pages) < n {
		c.pages, c.owned = append(c.pages, nil), append(c.owned, false)
	}
	for i := range n {
		p := (*page)(mem[i*pageSize:])
		if c.pages[i] != nil {
			copyUnseen(p[:], c.pages[i][:])
		}
		c.pages[i], c.owned[i] = p, true
	}
}

func allZero(p []byte) bool {
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}

// page returns page i, nil when it is zeros.
func (c *content) page(i int) *page {
	if i >= len(c.pages) {
		return nil
	}
	return c.pages[i]
}

func samePage(a, b *page) bool {
	switch {
	case a == b:
		return true
	case a == nil:
		return *b == page{}
	case b == nil:
		return *a == page{}
	}
	return *a == *b
}

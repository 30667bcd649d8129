package segment

import (
	"fmt"
	"io"

	"github.com/keeplog/keeplog/record"
)

// Span is a range of one segment's log file. Its bytes do not change and its file stays open until Release. It may end
// inside a batch.
type Span struct {
	seg       *Segment
	at        int64
	n         int
	abandon   func()
	prev, nxt *Span
	next      record.Offset // after the last whole batch, 0 where it was not looked up
}

// Len is the number of bytes; 0 of a nil span.
func (sp *Span) Len() int {
	if sp == nil {
		return 0
	}
	return sp.n
}

// ReadAt reads bytes at off within the span.
func (sp *Span) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > int64(sp.n) {
		return 0, fmt.Errorf("segment: read at %d of a span of %d bytes", off, sp.n)
	}
	short := false
	if left := int64(sp.n) - off; int64(len(p)) > left {
		p, short = p[:left], true
	}
	n, err := sp.seg.file.ReadAt(p, sp.at+off)
	if err == nil && short {
		err = io.EOF
	}
	return n, err
}

// File is the descriptor and the position in it, for sendfile; ok is false where the file system has none. It is valid
// until Release.
func (sp *Span) File() (fd uintptr, pos int64, ok bool) {
	fd, ok = sp.seg.file.Fd()
	return fd, sp.at, ok
}

// NextOffset is the offset after the last whole batch of the span; −1 where it has none.
func (sp *Span) NextOffset() (record.Offset, error) {
	if sp.next != 0 {
		return sp.next, nil
	}
	s, begin, end := sp.seg, record.Position(sp.at), record.Position(sp.at+int64(sp.n))
	next := record.Offset(-1)
	note := func(h header) bool {
		next = h.next()
		return true
	}
	from := begin
	if e := s.offsets.LookupPosition(end - 1); e.Position > begin && (s.ownIndex || s.checkEntry(e.Position, e.Offset) == nil) {
		from = e.Position
	}
	err := s.walk(from, end, note)
	if next < 0 && err == nil && from > begin { // the batch at that entry is cut
		err = s.walk(begin, end, note)
	}
	if err == nil {
		sp.next = next
	}
	return next, err
}

// Release lets the span go; it is safe on nil. A second call panics.
func (sp *Span) Release() {
	if sp == nil {
		return
	}
	s := sp.seg
	if s == nil {
		panic("segment: span released twice")
	}
	s.mu.Lock()
	if sp.nxt == sp {
		s.spans = nil
	} else {
		sp.prev.nxt, sp.nxt.prev = sp.nxt, sp.prev
		if s.spans == sp {
			s.spans = sp.nxt
		}
	}
	closing, drained := s.leave()
	s.mu.Unlock()
	s.drain(closing, drained)
	sp.seg, sp.prev, sp.nxt = nil, nil, nil
}

// link puts the span on the segment's ring. The caller holds a reference, which the span takes over.
func (s *Segment) link(sp *Span) {
	s.mu.Lock()
	if s.spans == nil {
		sp.prev, sp.nxt = sp, sp
		s.spans = sp
	} else {
		sp.prev, sp.nxt = s.spans.prev, s.spans
		sp.prev.nxt, s.spans.prev = sp, sp
	}
	s.mu.Unlock()
}

// Abandon calls the abandon functions of the spans that are out: their readers must let go now.
func (s *Segment) Abandon() int {
	s.mu.Lock()
	var calls []func()
	n := 0
	for sp := s.spans; sp != nil; sp = sp.nxt {
		n++
		if sp.abandon != nil {
			calls = append(calls, sp.abandon)
			sp.abandon = nil
		}
		if sp.nxt == s.spans {
			break
		}
	}
	s.mu.Unlock()
	for _, f := range calls {
		f()
	}
	return n
}

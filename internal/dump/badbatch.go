package dump

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/keeplog/keeplog/record"
)

// badBatch is a batch whose header can be read and whose CRC is wrong.
type badBatch struct {
	header   [record.HeaderSize]byte
	size     int
	computed uint32
}

// bad reports the bytes at pos, which are no good batch, and returns where the next good one begins, or the end of the file.
func (s *pass) bad(pos int64, b *badBatch, cause error) int64 {
	if errors.Is(cause, record.ErrTorn) || b != nil || errors.Is(cause, record.ErrCorrupt) || errors.Is(cause, record.ErrOldVersion) ||
		errors.Is(cause, record.ErrNewerVersion) {
		return s.badRegion(pos, b, cause)
	}
	s.f.damage(pos, s.d.win.size, "cannot be read: %v", cause)
	return s.d.win.size
}

func (s *pass) badRegion(pos int64, b *badBatch, cause error) int64 {
	end := s.d.win.size
	next, found := int64(0), false
	if b != nil {
		next = pos + int64(b.size)
		_, found = s.goodAt(next)
	}
	if !found && (b == nil || next < end) {
		next, found = s.search(pos + 1)
	}
	if !found {
		next = end
	}
	if b != nil && s.f.shown {
		item := batchItem(s.f.path, pos, record.Batch(b.header[:]), b.size)
		item.CRCComputed = &b.computed
		s.d.put(item)
	}
	s.f.end.Entries++
	p := s.region(pos, next, b)
	what := fmt.Sprintf("bad bytes at pos %d..%d (%s)", pos, next-1, reason(cause))
	if b != nil && pos+int64(b.size) == next {
		what = fmt.Sprintf("1 bad batch at pos %d..%d", pos, next-1)
	}
	before := "no good batch before it in this file"
	if s.prev >= s.f.name.base {
		before = fmt.Sprintf("last good offset %d", s.prev)
	}
	after := "no good batch after it."
	if found {
		head, _ := s.goodAt(next)
		after = fmt.Sprintf("next good batch at pos %d (offset %d).", next, head.BaseOffset())
	}
	p.Text = what + "; " + before + ", " + after
	s.f.report(p)
	if p.Last >= 0 {
		s.prev = max(s.prev, p.Last)
	}
	s.prevPos, s.blind, s.p.gap = pos, true, max(s.p.gap, s.prev+1)
	if s.offsets != nil {
		s.offsets.skip(next)
	}
	return next
}

// region says what the bytes pos..end were and what they mean.
func (s *pass) region(pos, end int64, b *badBatch) Problem {
	p := Problem{Severity: Damage, Position: pos, End: end, First: s.prev + 1, Last: -1}
	atEnd := end >= s.d.win.size
	if head, ok := s.goodAt(end); ok {
		p.Last = head.BaseOffset() - 1
	} else if next, ok := s.p.nextBase(s.f.name.base); ok {
		p.Last = next - 1
	} else if mark := s.p.stable; mark.known && mark.offset != everything && mark.offset > p.First {
		p.Last = mark.offset - 1
	}
	if b != nil && p.Last < 0 {
		if h := record.Batch(b.header[:]); h.BaseOffset() == p.First && h.LastOffsetDelta() >= 0 {
			p.Last = h.LastOffset()
		}
	}
	mark := s.p.stable
	if !mark.promised(p.First) && (atEnd || mark.own) {
		p.Severity = Note
		p.Hint = fmt.Sprintf("above the stable mark (%v): the torn tail of a server that did not stop cleanly, cut at the next start; no damage", mark)
		if !atEnd {
			p.Hint = fmt.Sprintf("above the stable mark (%v): blocks reached the disk out of order; the next start ends the log here and keeps the rest in a .torn file; no damage", mark)
		}
		return p
	}
	if p.Last < p.First {
		p.Last = -1
		p.Hint = "which offsets it held is not known"
		return p
	}
	p.fix = fix{what: fixBatch, pos: pos, end: end, first: p.First, last: p.Last, epoch: s.prevEpoch}
	where := "below the stable mark"
	if !mark.known {
		where = "no stable mark is known"
	}
	p.Hint = fmt.Sprintf("%s: `keeplog check --repair` would put an empty batch for %s in its place and keep the bytes in %d.bad", where, offsetRange(p.First, p.Last), pos)
	return p
}

func offsetRange(first, last record.Offset) string {
	if first == last {
		return fmt.Sprintf("offset %d", first)
	}
	return fmt.Sprintf("offsets %d..%d", first, last)
}

func reason(cause error) string {
	switch {
	case errors.Is(cause, record.ErrTorn):
		return "a batch that is cut short"
	case errors.Is(cause, record.ErrNewerVersion), errors.Is(cause, record.ErrOldVersion):
		return "a wrong magic byte"
	}
	return "no batch header"
}

// goodAt returns the header of the batch at pos if it is one that can follow and its CRC is right.
func (s *pass) goodAt(pos int64) (record.Batch, bool) {
	w := &s.d.win
	if pos+record.HeaderSize > w.size {
		return nil, false
	}
	head, err := w.view(pos, record.HeaderSize)
	if err != nil || !s.plausible(pos, head) {
		return nil, false
	}
	var kept [record.HeaderSize]byte
	copy(kept[:], head)
	b := record.Batch(kept[:])
	sum, err := w.crc(pos, b.Size())
	return b, err == nil && sum == b.CRC()
}

// plausible is the cheap half of goodAt.
func (s *pass) plausible(pos int64, head []byte) bool {
	size, err := record.ParseHeader(head, 0)
	if err != nil || pos+int64(size) > s.d.win.size {
		return false
	}
	b := record.Batch(head)
	base, delta, count := b.BaseOffset(), b.LastOffsetDelta(), b.Count()
	return base > s.prev && int64(base)-int64(s.f.name.base) < 1<<31 && delta >= 0 && count >= 0 && int64(count) <= int64(delta)+1 &&
		b.Codec().Known() && uint16(b.Attributes())>>7 == 0
}

// search finds the next good batch from pos on. What it spends on checksums is bounded by a multiple of the file's size.
func (s *pass) search(pos int64) (int64, bool) {
	w := &s.d.win
	budget := 4*w.size + 64*windowSize
	for pos+record.HeaderSize <= w.size && !s.d.stopped() {
		buf, err := w.view(pos, int(min(windowSize, w.size-pos)))
		if err != nil || len(buf) < record.HeaderSize {
			return 0, false
		}
		hit := -1
		for i := 0; i+record.HeaderSize <= len(buf); i++ {
			if buf[i+16] == record.Magic && s.plausible(pos+int64(i), buf[i:i+record.HeaderSize]) {
				hit = i
				break
			}
		}
		if hit < 0 {
			pos += int64(len(buf) - record.HeaderSize + 1)
			continue
		}
		pos += int64(hit)
		head, ok := s.goodAt(pos)
		if ok {
			return pos, true
		}
		if head == nil {
			return 0, false
		}
		if budget -= int64(head.Size()) + windowSize; budget < 0 {
			return 0, false
		}
		pos++
	}
	return 0, false
}

// oldMessage is the start of a message set of magic 0 or 1: offset, length, CRC-32 (IEEE) of the bytes from the magic on, magic.
type oldMessage struct {
	base   record.Offset
	length int32
	crcOld uint32
	magic  int8
}

func oldHeader(head []byte) oldMessage {
	return oldMessage{
		base:   record.Offset(binary.BigEndian.Uint64(head)),
		length: int32(binary.BigEndian.Uint32(head[8:])),
		crcOld: binary.BigEndian.Uint32(head[12:]),
		magic:  int8(head[16]),
	}
}

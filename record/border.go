package record

import "io"

// border reads one record from a stream, over the borders of its windows. Lengths are compared with what the record
// says that it has left; nothing is held. With to, the bytes of the body go there too.
type border struct {
	s    *stream
	left uint64 // of the record, bytes
	err  error
	to   *packer
	one  [1]byte
}

// atBorder returns a reader for the record at the front of s. A stream has one, so that records cost no memory.
func (s *stream) atBorder(to *packer) *border {
	s.border = border{s: s, to: to}
	return &s.border
}

// fill makes sure that something can be read, up to the end of the record.
func (b *border) fill(cause error) bool {
	if b.err != nil {
		return false
	}
	if b.left == 0 {
		b.err = cause
		return false
	}
	if len(b.s.have) > 0 {
		return true
	}
	if err := b.s.more(); err != nil {
		if b.err = err; err == io.EOF {
			b.err = errRecordLength
		}
		return false
	}
	return true
}

func (b *border) byte() byte {
	if !b.fill(errVarint) {
		return 0
	}
	c := b.s.have[0]
	b.s.have = b.s.have[1:]
	b.left--
	if b.to != nil {
		b.one[0] = c
		b.to.write(b.one[:])
	}
	return c
}

// number reads a number of at most most bytes (5 or 10), not yet un-zig-zagged.
func (b *border) number(most int) (u uint64) {
	for i := range most {
		c := b.byte()
		if b.err != nil {
			return 0
		}
		u |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			if i == 4 && most == 5 && c > 0x0f || i == 9 && c > 1 {
				break
			}
			return u
		}
	}
	b.err = errVarint
	return 0
}

// skip goes over n bytes.
func (b *border) skip(n uint64, cause error) {
	if n > b.left {
		b.err = cause
		return
	}
	for n > 0 && b.fill(cause) {
		part := b.s.have[:min(n, uint64(len(b.s.have)))]
		if b.to != nil {
			b.to.write(part)
		}
		b.s.have = b.s.have[len(part):]
		b.left -= uint64(len(part))
		n -= uint64(len(part))
	}
}

// blob goes over a length and that many bytes.
func (b *border) blob(cause error) (null bool) {
	u := b.number(5)
	switch {
	case b.err != nil || u == 1:
		return true
	case u&1 != 0:
		b.err = cause
		return false
	}
	b.skip(u>>1, cause)
	return false
}

// head reads the length and the fields before the key.
func (b *border) head() (sh shape) {
	b.left = 5
	u := b.number(5)
	if b.err == nil && (u == 0 || u&1 != 0) {
		b.err = errRecordLength
	}
	b.left = u >> 1
	b.byte()
	u = b.number(10)
	sh.timestampDelta = int64(u>>1) ^ -int64(u&1)
	u = b.number(5)
	sh.offsetDelta = int32(u>>1) ^ -int32(u&1)
	return sh
}

// body reads the rest and tells whether the key is null.
func (b *border) body() (nullKey bool) {
	nullKey = b.blob(errKeyLength)
	b.blob(errValueLength)
	u := b.number(5)
	if b.err == nil && (u&1 != 0 || u > b.left) { // a header has two bytes at least, and u is twice their count
		b.err = errHeaderCount
	}
	for n := u >> 1; n > 0 && b.err == nil; n-- {
		if b.blob(errHeader) {
			b.fail(errHeader)
		}
		b.blob(errHeader)
	}
	if b.left > 0 {
		b.fail(errRecordRest)
	}
	return nullKey
}

func (b *border) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// across checks the record at the front of s as measure does, where it is not whole in the window.
func across(s *stream) (shape, error) {
	b := s.atBorder(nil)
	sh := b.head()
	if b.err == nil {
		sh.nullKey = b.body()
	}
	return sh, b.err
}

package record

import (
	"encoding/binary"
	"math/bits"

	"github.com/pierrec/lz4/v4"
)

const (
	lz4History = 64 << 10 // how far back a block refers at most
	lz4Window  = 192 << 10
)

// nextLZ4 unpacks a block whole where that is within the bound, else piece by piece.
func (s *stream) nextLZ4() ([]byte, error) {
	if s.long.open {
		return s.longLZ4()
	}
	block, stored, err := s.lz4.next()
	if err != nil {
		return nil, err
	}
	if stored {
		s.lz4.made(block)
		return block, nil
	}
	most := min(s.lz4.frame.blockSize, lz4LargestRatio*len(block))
	for room := min(most, max(lz4Block, 8*len(block), cap(s.buf))); ; room = min(most, s.most) {
		n, err := lz4.UncompressBlock(block, s.room(room)[:room])
		if err == nil && n >= 0 {
			s.lz4.made(s.buf[:n])
			return s.buf[:n], nil
		}
		if room == most {
			return nil, undecodable(LZ4, errLZ4Block)
		}
		if room >= s.most {
			break
		}
	}
	s.long = lz4Long{open: true, src: block, left: most}
	return s.longLZ4()
}

// longLZ4 gives the next piece of a block that unpacks to more than the bound.
func (s *stream) longLZ4() ([]byte, error) {
	piece, ok := s.long.next(s.room(lz4Window)[:lz4Window])
	if !ok {
		return nil, undecodable(LZ4, errLZ4Block)
	}
	s.lz4.made(piece)
	return piece, nil
}

// lz4Long unpacks one block through a window in which the last 64 KiB always stay:
//
//	│ the last 64 KiB │ new piece ………………… │
type lz4Long struct {
	open     bool // there is more
	src      []byte
	at       int // end of what is in the window
	left     int // what may still come out, bytes
	literals int // of the current sequence: still to copy
	match    int
	offset   int
	started  bool // a token was read, and its match not yet
	low      byte // its lower half
}

// next unpacks into window until it is full or the block ends. ok is false where the block is damaged.
func (l *lz4Long) next(window []byte) (piece []byte, ok bool) {
	if l.at > lz4History {
		copy(window, window[l.at-lz4History:l.at])
		l.at = lz4History
	}
	start := l.at
	for l.at < len(window) {
		switch {
		case l.literals > 0:
			n := copy(window[l.at:], l.src[:l.literals])
			l.src, l.literals, l.at = l.src[n:], l.literals-n, l.at+n
		case l.match > 0:
			// what lies between the offset and the end repeats: as much as is there goes at once
			n := min(copy(window[l.at:], window[l.at-l.offset:l.at]), l.match)
			l.match, l.at = l.match-n, l.at+n
		case l.started && len(l.src) == 0: // the last sequence has no match
			l.open = false
			return window[start:l.at], true
		default:
			if !l.sequence() {
				return nil, false
			}
		}
	}
	return window[start:l.at], true
}

// sequence reads the next token, or the match of the one that was read.
func (l *lz4Long) sequence() bool {
	if !l.started {
		if len(l.src) == 0 {
			return false
		}
		token := l.src[0]
		l.src = l.src[1:]
		l.started, l.low = true, token&15
		n, ok := l.length(int(token >> 4))
		l.literals = n
		return ok && n <= len(l.src) && l.take(n)
	}
	if len(l.src) < 2 {
		return false
	}
	l.offset = int(binary.LittleEndian.Uint16(l.src))
	l.src = l.src[2:]
	n, ok := l.length(int(l.low))
	l.match, l.started = n+4, false
	return ok && l.offset > 0 && l.offset <= l.at && l.take(n+4)
}

func (l *lz4Long) take(n int) bool {
	l.left -= n
	return l.left >= 0
}

// length reads the bytes that go on from a length of 15.
func (l *lz4Long) length(n int) (int, bool) {
	if n < 15 {
		return n, true
	}
	for i, c := range l.src {
		n += int(c)
		if c < 255 {
			l.src = l.src[i+1:]
			return n, true
		}
	}
	return 0, false
}

// xxh is the checksum of LZ4 frames, XXH32 with seed 0, as it grows.
type xxh struct {
	v    [4]uint32
	tail [16]byte
	size uint64
}

const (
	xxh1 = 2654435761
	xxh2 = 2246822519
	xxh3 = 3266489917
	xxh4 = 668265263
	xxh5 = 374761393
)

func (x *xxh) reset() {
	var one uint32 = xxh1
	*x = xxh{v: [4]uint32{one + xxh2, xxh2, 0, -one}}
}

func (x *xxh) write(b []byte) {
	held := int(x.size % 16)
	x.size += uint64(len(b))
	if held > 0 {
		n := copy(x.tail[held:], b)
		if b = b[n:]; held+n < 16 {
			return
		}
		x.stripes(x.tail[:])
	}
	n := len(b) &^ 15
	x.stripes(b[:n])
	copy(x.tail[:], b[n:])
}

func (x *xxh) stripes(b []byte) {
	v0, v1, v2, v3 := x.v[0], x.v[1], x.v[2], x.v[3]
	for ; len(b) >= 16; b = b[16:] {
		v0 = bits.RotateLeft32(v0+binary.LittleEndian.Uint32(b)*xxh2, 13) * xxh1
		v1 = bits.RotateLeft32(v1+binary.LittleEndian.Uint32(b[4:])*xxh2, 13) * xxh1
		v2 = bits.RotateLeft32(v2+binary.LittleEndian.Uint32(b[8:])*xxh2, 13) * xxh1
		v3 = bits.RotateLeft32(v3+binary.LittleEndian.Uint32(b[12:])*xxh2, 13) * xxh1
	}
	x.v = [4]uint32{v0, v1, v2, v3}
}

func (x *xxh) sum() uint32 {
	h := uint32(xxh5)
	if x.size >= 16 {
		h = bits.RotateLeft32(x.v[0], 1) + bits.RotateLeft32(x.v[1], 7) + bits.RotateLeft32(x.v[2], 12) + bits.RotateLeft32(x.v[3], 18)
	}
	h += uint32(x.size)
	b := x.tail[:x.size%16]
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(b)*xxh3, 17) * xxh4
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*xxh5, 11) * xxh1
	}
	h = (h ^ h>>15) * xxh2
	h = (h ^ h>>13) * xxh3
	return h ^ h>>16
}

func xxh32(b []byte) uint32 {
	var x xxh
	x.reset()
	x.write(b)
	return x.sum()
}

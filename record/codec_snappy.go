package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/klauspost/compress/s2"
)

// The framing of the Java library, which Kafka's clients write around snappy blocks:
//
//	│ 0x82 S N A P P Y 0 │ i32 version 1 │ i32 compatible 1 │ i32 length, block │ i32 length, block │ …
//
// Some clients send one bare block instead, and readers take that too.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const (
	xerialHeader = 16
	snappyBlock  = 32 << 10
)

var errSnappy = errors.New("damaged block")

func (c *Codecs) compressSnappy(dst, src []byte) []byte {
	dst = appendXerialHeader(dst)
	for len(src) > 0 {
		n := min(len(src), snappyBlock)
		dst = c.appendSnappyBlock(dst, src[:n])
		src = src[n:]
	}
	return dst
}

func appendXerialHeader(dst []byte) []byte {
	dst = append(dst, xerialMagic...)
	dst = binary.BigEndian.AppendUint32(dst, 1)
	return binary.BigEndian.AppendUint32(dst, 1)
}

func (c *Codecs) appendSnappyBlock(dst, src []byte) []byte {
	scratch := c.buffer()
	defer c.release(scratch)
	if most := s2.MaxEncodedLen(snappyBlock); cap(*scratch) < most {
		*scratch = make([]byte, most)
	}
	block := s2.EncodeSnappy((*scratch)[:cap(*scratch)], src)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(block)))
	return append(dst, block...)
}

// xerialBlocks tells whether src has the framing, and takes its header off.
func xerialBlocks(src []byte) (rest []byte, framed bool, err error) {
	if !bytes.HasPrefix(src, xerialMagic) {
		return src, false, nil
	}
	if len(src) < xerialHeader {
		return nil, true, undecodable(Snappy, errSnappy)
	}
	return src[xerialHeader:], true, nil
}

// xerialBlock takes the first of the framed blocks off.
func xerialBlock(src []byte) (block, rest []byte, err error) {
	if len(src) < 4 {
		return nil, nil, undecodable(Snappy, errSnappy)
	}
	n := binary.BigEndian.Uint32(src)
	if int64(n) > int64(len(src)-4) {
		return nil, nil, undecodable(Snappy, errSnappy)
	}
	return src[4 : 4+n], src[4+n:], nil
}

func decompressSnappy(dst, src []byte, limit int) ([]byte, error) {
	end := len(dst) + limit
	src, framed, err := xerialBlocks(src)
	if err != nil {
		return dst, err
	}
	if !framed {
		return snappyDecode(dst, src, end, limit)
	}
	for len(src) > 0 {
		var block []byte
		if block, src, err = xerialBlock(src); err != nil {
			return dst, err
		}
		if dst, err = snappyDecode(dst, block, end, limit); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// nextSnappy unpacks a block. It has to be there whole, as it may refer to any earlier part of itself.
func (s *stream) nextSnappy() ([]byte, error) {
	block := s.src
	if s.framed {
		if len(s.src) == 0 {
			return nil, io.EOF
		}
		var err error
		if block, s.src, err = xerialBlock(s.src); err != nil {
			return nil, err
		}
	} else if s.src == nil { // the one block was taken
		return nil, io.EOF
	} else {
		s.src = nil
	}
	size, err := snappySize(block, s.left, s.limit)
	if err != nil {
		return nil, err
	}
	return snappyBlockInto(s.room(size)[:size], block)
}

// snappySize is what a block says that it unpacks to, where that is possible: an element of 3 bytes makes at most 64.
func snappySize(block []byte, left, limit int) (int, error) {
	size, n := binary.Uvarint(block)
	switch {
	case n <= 0 || size > 1<<32-1:
		return 0, undecodable(Snappy, errSnappy)
	case size > uint64(left):
		return 0, tooLarge(limit)
	case size > 22*uint64(len(block)-n):
		return 0, undecodable(Snappy, errSnappy)
	}
	return int(size), nil
}

// snappyBlockInto unpacks a block into dst, which has the size that the block says.
func snappyBlockInto(dst, block []byte) ([]byte, error) {
	_, n := binary.Uvarint(block)
	if !plainSnappy(block[n:]) {
		return nil, undecodable(Snappy, errSnappy)
	}
	out, err := s2.Decode(dst[:len(dst):len(dst)], block)
	if err != nil {
		return nil, undecodable(Snappy, err)
	}
	return out, nil
}

// snappyDecode appends one block.
func snappyDecode(dst, block []byte, end, limit int) ([]byte, error) {
	size, err := snappySize(block, end-len(dst), limit)
	if err != nil {
		return dst, err
	}
	dst = grown(dst, size)
	if _, err := snappyBlockInto(dst[len(dst):len(dst)+size], block); err != nil {
		return dst, err
	}
	return dst[:len(dst)+size], nil
}

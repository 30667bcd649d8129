package record

import (
	"bytes"
	"encoding/binary"
	"errors"

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
	dst = append(dst, xerialMagic...)
	dst = binary.BigEndian.AppendUint32(dst, 1)
	dst = binary.BigEndian.AppendUint32(dst, 1)
	scratch := c.buffer()
	defer c.release(scratch)
	if most := s2.MaxEncodedLen(snappyBlock); cap(*scratch) < most {
		*scratch = make([]byte, most)
	}
	for len(src) > 0 {
		n := min(len(src), snappyBlock)
		block := s2.EncodeSnappy((*scratch)[:cap(*scratch)], src[:n])
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(block)))
		dst = append(dst, block...)
		src = src[n:]
	}
	return dst
}

func decompressSnappy(dst, src []byte, limit int) ([]byte, error) {
	end := len(dst) + limit
	if !bytes.HasPrefix(src, xerialMagic) {
		return snappyDecode(dst, src, end, limit)
	}
	if len(src) < xerialHeader {
		return dst, undecodable(Snappy, errSnappy)
	}
	src = src[xerialHeader:]
	for len(src) > 0 {
		if len(src) < 4 {
			return dst, undecodable(Snappy, errSnappy)
		}
		n := binary.BigEndian.Uint32(src)
		if int64(n) > int64(len(src)-4) {
			return dst, undecodable(Snappy, errSnappy)
		}
		var err error
		if dst, err = snappyDecode(dst, src[4:4+n], end, limit); err != nil {
			return dst, err
		}
		src = src[4+n:]
	}
	return dst, nil
}

// snappyDecode appends one block. It knows the plain format only, without the extensions that other readers lack.
// Memory follows the output: an element of 2 bytes makes at most 64.
func snappyDecode(dst, src []byte, end, limit int) ([]byte, error) {
	size, n := binary.Uvarint(src)
	if n <= 0 || size > 1<<32-1 {
		return dst, undecodable(Snappy, errSnappy)
	}
	src = src[n:]
	if size > uint64(end-len(dst)) {
		return dst, tooLarge(limit)
	}
	if size > 32*uint64(len(src)) {
		return dst, undecodable(Snappy, errSnappy)
	}
	start := len(dst)
	stop := start + int(size)
	dst = grown(dst, int(size))
	for len(src) > 0 {
		length, offset, used := snappyElement(src)
		if used == 0 || length > stop-len(dst) {
			return dst, undecodable(Snappy, errSnappy)
		}
		src = src[used:]
		if offset == 0 {
			if length > len(src) {
				return dst, undecodable(Snappy, errSnappy)
			}
			dst = append(dst, src[:length]...)
			src = src[length:]
			continue
		}
		if offset > len(dst)-start {
			return dst, undecodable(Snappy, errSnappy)
		}
		dst = appendCopy(dst, offset, length)
	}
	if len(dst) != stop {
		return dst, undecodable(Snappy, errSnappy)
	}
	return dst, nil
}

// snappyElement reads a tag: a literal (offset 0) or a copy. used is 0 where it is not valid.
func snappyElement(src []byte) (length, offset, used int) {
	tag := src[0]
	switch tag & 3 {
	case 0:
		n := int(tag >> 2)
		if n < 60 {
			return n + 1, 0, 1
		}
		extra := n - 59
		if len(src) < 1+extra {
			return 0, 0, 0
		}
		var v uint32
		for i := extra; i > 0; i-- {
			v = v<<8 | uint32(src[i])
		}
		if v > 1<<31-2 {
			return 0, 0, 0
		}
		return int(v) + 1, 0, 1 + extra
	case 1:
		if len(src) < 2 {
			return 0, 0, 0
		}
		length, offset, used = int(tag>>2&7)+4, int(tag>>5)<<8|int(src[1]), 2
	case 2:
		if len(src) < 3 {
			return 0, 0, 0
		}
		length, offset, used = int(tag>>2)+1, int(binary.LittleEndian.Uint16(src[1:])), 3
	case 3:
		if len(src) < 5 {
			return 0, 0, 0
		}
		length, offset, used = int(tag>>2)+1, int(binary.LittleEndian.Uint32(src[1:])), 5
	}
	if offset == 0 {
		return 0, 0, 0
	}
	return length, offset, used
}

// appendCopy repeats length bytes from offset bytes back; they may overlap.
func appendCopy(dst []byte, offset, length int) []byte {
	from := len(dst) - offset
	if offset >= length {
		return append(dst, dst[from:from+length]...)
	}
	for range length {
		dst = append(dst, dst[from])
		from++
	}
	return dst
}

package record

import (
	"encoding/binary"
	"errors"
	"math/bits"

	"github.com/pierrec/lz4/v4"
)

// One LZ4 frame:
//
//	│ u32 0x184D2204 │ FLG │ BD │ [u64 content size] │ HC │ u32 size, block │ … │ u32 0 │ [u32 content checksum] │
//
// All little-endian. FLG: version 01, block independence, block checksums, content size, content checksum. The top bit
// of a block's size says that it is stored as it is. Blocks must be independent: that is all that other readers take.
const (
	lz4Magic        = 0x184D2204
	lz4Block        = 64 << 10
	lz4Independent  = 1 << 5
	lz4BlockSums    = 1 << 4
	lz4ContentSize  = 1 << 3
	lz4ContentSum   = 1 << 2
	lz4Stored       = 1 << 31
	lz4VersionBits  = 0xC0
	lz4Version      = 0x40
	lz4Size64K      = 4 << 4
	lz4LargestRatio = 256 // a byte of a match makes at most 255
)

var (
	errLZ4Header = errors.New("damaged frame header")
	errLZ4Linked = errors.New("blocks depend on each other")
	errLZ4Block  = errors.New("damaged block")
	errLZ4Sum    = errors.New("checksum does not match")
	errLZ4Rest   = errors.New("bytes after the frame")
)

func (c *Codecs) compressLZ4(dst []byte, level int, src []byte) ([]byte, error) {
	dst = binary.LittleEndian.AppendUint32(dst, lz4Magic)
	flags := []byte{lz4Version | lz4Independent, lz4Size64K}
	dst = append(dst, flags...)
	dst = append(dst, byte(xxh32(flags)>>8))
	for len(src) > 0 {
		n := min(len(src), lz4Block)
		var err error
		if dst, err = c.appendLZ4Block(dst, level, src[:n]); err != nil {
			return dst, err
		}
		src = src[n:]
	}
	return binary.LittleEndian.AppendUint32(dst, 0), nil
}

// appendLZ4Block uses the fast compressor at the default level and the searching one, deeper with the level, at others.
func (c *Codecs) appendLZ4Block(dst []byte, level int, src []byte) (_ []byte, err error) {
	at := len(dst)
	dst = grown(dst, 4+len(src))
	room := dst[at+4 : at+4+len(src)]
	var n int
	if level == DefaultLZ4Level {
		w, ok := c.lz4Fast.Get().(*lz4.Compressor)
		if !ok {
			w = new(lz4.Compressor)
		}
		n, err = w.CompressBlock(src, room)
		c.lz4Fast.Put(w)
	} else {
		w, ok := c.lz4HC.Get().(*lz4.CompressorHC)
		if !ok {
			w = new(lz4.CompressorHC)
		}
		w.Level = lz4.CompressionLevel(1 << clampLevel(level, 1, 17))
		n, err = w.CompressBlock(src, room)
		c.lz4HC.Put(w)
	}
	if err != nil && !errors.Is(err, lz4.ErrInvalidSourceShortBuffer) {
		return dst, err
	}
	size := uint32(n)
	if err != nil || n == 0 || n >= len(src) {
		n = copy(room, src)
		size = uint32(n) | lz4Stored
	}
	binary.LittleEndian.PutUint32(dst[at:at+4], size)
	return dst[:at+4+n], nil
}

type lz4Frame struct {
	flags     byte
	blockSize int
	declared  uint64
}

func parseLZ4Header(src []byte) (f lz4Frame, used int, err error) {
	if len(src) < 7 || binary.LittleEndian.Uint32(src) != lz4Magic {
		return f, 0, errLZ4Header
	}
	f.flags = src[4]
	if f.flags&lz4VersionBits != lz4Version || f.flags&3 != 0 || src[5]&0x8F != 0 || src[5]>>4 < 4 {
		return f, 0, errLZ4Header
	}
	if f.flags&lz4Independent == 0 {
		return f, 0, errLZ4Linked
	}
	f.blockSize = 1 << (8 + 2*int(src[5]>>4))
	used = 6
	if f.flags&lz4ContentSize != 0 {
		if len(src) < 15 {
			return f, 0, errLZ4Header
		}
		f.declared = binary.LittleEndian.Uint64(src[6:])
		used = 14
	}
	if src[used] != byte(xxh32(src[4:used])>>8) {
		return f, 0, errLZ4Header
	}
	return f, used + 1, nil
}

func decompressLZ4(dst, src []byte, limit int) ([]byte, error) {
	f, n, err := parseLZ4Header(src)
	if err != nil {
		return dst, undecodable(LZ4, err)
	}
	src = src[n:]
	start, end := len(dst), len(dst)+limit
	for {
		if len(src) < 4 {
			return dst, undecodable(LZ4, errLZ4Block)
		}
		size := binary.LittleEndian.Uint32(src)
		src = src[4:]
		if size == 0 {
			break
		}
		sum := 0
		if f.flags&lz4BlockSums != 0 {
			sum = 4
		}
		length := int(size &^ lz4Stored)
		if length > f.blockSize || length+sum > len(src) {
			return dst, undecodable(LZ4, errLZ4Block)
		}
		block := src[:length]
		if sum > 0 && binary.LittleEndian.Uint32(src[length:]) != xxh32(block) {
			return dst, undecodable(LZ4, errLZ4Sum)
		}
		src = src[length+sum:]
		if dst, err = lz4Decode(dst, block, size&lz4Stored != 0, min(f.blockSize, end-len(dst)+1)); err != nil {
			return dst, undecodable(LZ4, err)
		}
		if len(dst) > end {
			return dst, tooLarge(limit)
		}
	}
	if f.flags&lz4ContentSum != 0 {
		if len(src) < 4 || binary.LittleEndian.Uint32(src) != xxh32(dst[start:]) {
			return dst, undecodable(LZ4, errLZ4Sum)
		}
		src = src[4:]
	}
	if len(src) > 0 {
		return dst, undecodable(LZ4, errLZ4Rest)
	}
	if f.flags&lz4ContentSize != 0 && f.declared != uint64(len(dst)-start) {
		return dst, undecodable(LZ4, errLZ4Block)
	}
	return dst, nil
}

// lz4Decode appends one block, of at most most bytes; what a block of its length cannot make is not allocated.
func lz4Decode(dst, block []byte, stored bool, most int) ([]byte, error) {
	if stored {
		return append(dst, block...), nil
	}
	room := min(most, lz4LargestRatio*len(block))
	dst = grown(dst, room)
	n, err := lz4.UncompressBlock(block, dst[len(dst):len(dst)+room])
	if err != nil || n < 0 {
		if room == most && most < lz4Block {
			return dst[:len(dst)+room], nil // the output is above the limit: the caller sees it
		}
		return dst, errLZ4Block
	}
	return dst[:len(dst)+n], nil
}

// xxh32 is the checksum of LZ4 frames, with seed 0.
func xxh32(b []byte) uint32 {
	const p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
	h := uint32(p5)
	size := uint32(len(b))
	if len(b) >= 16 {
		var one uint32 = p1
		v := [4]uint32{one + p2, p2, 0, -one}
		for len(b) >= 16 {
			for i := range v {
				v[i] = bits.RotateLeft32(v[i]+binary.LittleEndian.Uint32(b[4*i:])*p2, 13) * p1
			}
			b = b[16:]
		}
		h = bits.RotateLeft32(v[0], 1) + bits.RotateLeft32(v[1], 7) + bits.RotateLeft32(v[2], 12) + bits.RotateLeft32(v[3], 18)
	}
	h += size
	for len(b) >= 4 {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(b)*p3, 17) * p4
		b = b[4:]
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*p5, 11) * p1
	}
	h = (h ^ h>>15) * p2
	h = (h ^ h>>13) * p3
	return h ^ h>>16
}

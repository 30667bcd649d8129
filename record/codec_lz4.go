package record

import (
	"encoding/binary"
	"errors"
	"io"

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
	dst = appendLZ4Header(dst)
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

func appendLZ4Header(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, lz4Magic)
	flags := []byte{lz4Version | lz4Independent, lz4Size64K}
	dst = append(dst, flags...)
	return append(dst, byte(xxh32(flags)>>8))
}

// appendLZ4Block uses the fast compressor at the default level and the searching one, deeper with the level, at others.
// src has lz4Block bytes at most.
func (c *Codecs) appendLZ4Block(dst []byte, level int, src []byte) (_ []byte, err error) {
	scratch := c.buffer()
	defer c.release(scratch)
	if cap(*scratch) < len(src) {
		*scratch = make([]byte, lz4Block)
	}
	room := (*scratch)[:len(src)]
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
	if err != nil || n == 0 || n >= len(src) {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(src))|lz4Stored)
		return append(dst, src...), nil
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
	return append(dst, room[:n]...), nil
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

// lz4Blocks goes through the blocks of a frame. Whoever unpacks them says by made what came out.
type lz4Blocks struct {
	frame lz4Frame
	src   []byte
	size  uint64 // made so far, bytes
	sum   xxh    // of it, where the frame has a content checksum
}

func newLZ4Blocks(src []byte) (lz4Blocks, error) {
	f, n, err := parseLZ4Header(src)
	if err != nil {
		return lz4Blocks{}, undecodable(LZ4, err)
	}
	l := lz4Blocks{frame: f, src: src[n:]}
	l.sum.reset()
	return l, nil
}

func (l *lz4Blocks) made(b []byte) {
	l.size += uint64(len(b))
	if l.frame.flags&lz4ContentSum != 0 {
		l.sum.write(b)
	}
}

// next takes a block off. After the last one it checks what the frame says of the content and returns io.EOF.
func (l *lz4Blocks) next() (block []byte, stored bool, err error) {
	if len(l.src) < 4 {
		return nil, false, undecodable(LZ4, errLZ4Block)
	}
	size := binary.LittleEndian.Uint32(l.src)
	l.src = l.src[4:]
	if size == 0 {
		return nil, false, l.end()
	}
	sum := 0
	if l.frame.flags&lz4BlockSums != 0 {
		sum = 4
	}
	length := int(size &^ lz4Stored)
	if length > l.frame.blockSize || length+sum > len(l.src) {
		return nil, false, undecodable(LZ4, errLZ4Block)
	}
	block = l.src[:length]
	if sum > 0 && binary.LittleEndian.Uint32(l.src[length:]) != xxh32(block) {
		return nil, false, undecodable(LZ4, errLZ4Sum)
	}
	l.src = l.src[length+sum:]
	return block, size&lz4Stored != 0, nil
}

func (l *lz4Blocks) end() error {
	if l.frame.flags&lz4ContentSum != 0 {
		if len(l.src) < 4 || binary.LittleEndian.Uint32(l.src) != l.sum.sum() {
			return undecodable(LZ4, errLZ4Sum)
		}
		l.src = l.src[4:]
	}
	if len(l.src) > 0 {
		return undecodable(LZ4, errLZ4Rest)
	}
	if l.frame.flags&lz4ContentSize != 0 && l.frame.declared != l.size {
		return undecodable(LZ4, errLZ4Block)
	}
	return io.EOF
}

func decompressLZ4(dst, src []byte, limit int) ([]byte, error) {
	blocks, err := newLZ4Blocks(src)
	if err != nil {
		return dst, err
	}
	end := len(dst) + limit
	for {
		block, stored, err := blocks.next()
		if errors.Is(err, io.EOF) {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
		start := len(dst)
		if dst, err = lz4Decode(dst, block, stored, min(blocks.frame.blockSize, end-start+1)); err != nil {
			return dst, undecodable(LZ4, err)
		}
		if len(dst) > end {
			return dst, tooLarge(limit)
		}
		blocks.made(dst[start:])
	}
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

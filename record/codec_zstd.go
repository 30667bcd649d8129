package record

import (
	"errors"

	"github.com/klauspost/compress/zstd"
)

const (
	zstdLevels = 5 // the library has four, from 1
	// zstdWindow is the largest window taken, what every zstd reader takes by default. None is allocated: the output
	// itself is the window.
	zstdWindow = 128 << 20
	zstdBlock  = 128 << 10 // what a block can make at most
)

func (c *Codecs) compressZstd(dst []byte, level int, src []byte) ([]byte, error) {
	speed := zstd.EncoderLevelFromZstd(clampLevel(level, 1, 22))
	pool := &c.zstdW[speed]
	w, ok := pool.Get().(*zstd.Encoder)
	if !ok {
		var err error
		w, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(speed),
			zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false))
		if err != nil {
			return dst, err
		}
	}
	defer pool.Put(w)
	return w.EncodeAll(src, dst), nil
}

// decompressZstd goes frame by frame. A frame gets room for what its blocks can make at most, within the limit, and the
// library writes no further.
func (c *Codecs) decompressZstd(dst, src []byte, limit int) ([]byte, error) {
	r, ok := c.zstdR.Get().(*zstd.Decoder)
	if !ok {
		var err error
		r, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(zstdWindow), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			return dst, err
		}
	}
	defer c.zstdR.Put(r)
	end := len(dst) + limit
	for len(src) > 0 {
		f, err := zstdFrame(src)
		if err != nil {
			return dst, undecodable(Zstd, err)
		}
		left := uint64(end - len(dst))
		room := int(min(f.most, left))
		if f.most > left {
			room += zstdBlock
		}
		if !f.skip {
			dst = grown(dst, room)
			out, err := r.DecodeAll(src[:f.size], dst[:len(dst):len(dst)+room])
			if err != nil && f.most > left && (len(out)+zstdBlock >= end || errors.Is(err, zstd.ErrDecoderSizeExceeded)) {
				return dst, tooLarge(limit)
			} else if err != nil {
				return dst, undecodable(Zstd, err)
			}
			if len(out) > end {
				return dst, tooLarge(limit)
			}
			dst = out
		}
		src = src[f.size:]
	}
	return dst, nil
}

var (
	errZstdFrame = errors.New("damaged frame")
	errZstdSize  = errors.New("the frame announces more than its blocks can hold")
)

// frameShape is what the headers of a frame tell.
type frameShape struct {
	size int    // of the frame, bytes
	most uint64 // bytes that it can hold at most
	skip bool   // it carries no data
}

// zstdFrame measures the frame at the start of src by its block headers.
func zstdFrame(src []byte) (f frameShape, err error) {
	var h zstd.Header
	if err := h.Decode(src); err != nil {
		return f, err
	}
	f.size = h.HeaderSize
	if h.Skippable {
		if int64(h.SkippableSize) > int64(len(src)-f.size) {
			return f, errZstdFrame
		}
		f.size, f.skip = f.size+int(h.SkippableSize), true
		return f, nil
	}
	for last := false; !last; {
		if len(src)-f.size < 3 {
			return f, errZstdFrame
		}
		b := uint32(src[f.size]) | uint32(src[f.size+1])<<8 | uint32(src[f.size+2])<<16
		last = b&1 != 0
		stored, made := int(b>>3), int(b>>3)
		switch b >> 1 & 3 {
		case 1:
			stored = 1
		case 2:
			made = zstdBlock
		case 3:
			return f, errZstdFrame
		}
		f.size += 3 + stored
		f.most += uint64(min(made, zstdBlock))
		if f.size > len(src) {
			return f, errZstdFrame
		}
	}
	if h.HasCheckSum {
		f.size += 4
	}
	if f.size > len(src) {
		return f, errZstdFrame
	}
	if h.HasFCS {
		if h.FrameContentSize > f.most {
			return f, errZstdSize
		}
		f.most = h.FrameContentSize
	}
	return f, nil
}

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
	zstdSlack  = 64
)

func zstdSpeed(level int) zstd.EncoderLevel {
	return zstd.EncoderLevelFromZstd(clampLevel(level, 1, 22))
}

func newZstdWriter(speed zstd.EncoderLevel, more ...zstd.EOption) (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, append(more, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(speed),
		zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false))...)
}

func (c *Codecs) compressZstd(dst []byte, level int, src []byte) ([]byte, error) {
	speed := zstdSpeed(level)
	w, ok := c.zstdW[speed].Get().(*zstd.Encoder)
	if !ok {
		var err error
		if w, err = newZstdWriter(speed); err != nil {
			return dst, err
		}
	}
	defer c.zstdW[speed].Put(w)
	return w.EncodeAll(src, dst), nil
}

func newZstdReader() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(zstdWindow), zstd.WithDecodeAllCapLimit(true))
}

func (c *Codecs) decompressZstd(dst, src []byte, limit int) ([]byte, error) {
	r, ok := c.zstdR.Get().(*zstd.Decoder)
	if !ok {
		var err error
		if r, err = newZstdReader(); err != nil {
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
		if !f.skip {
			dst = grown(dst, f.room(end-len(dst)))
			if dst, err = f.decode(r, src, dst, end-len(dst)); err == errZstdLimit {
				return dst, tooLarge(limit)
			} else if err != nil {
				return dst, undecodable(Zstd, err)
			}
		}
		src = src[f.size:]
	}
	return dst, nil
}

// room is what unpacking the frame whole needs: what its blocks can make at most, within what is left, and a block more,
// as the decoder is faster where it has room behind its output.
func (f *frameShape) room(left int) int {
	return int(min(f.most, uint64(left))) + zstdBlock + zstdSlack
}

// decode appends what the frame at the start of src holds to dst, which must have its room, and writes no further.
func (f *frameShape) decode(r *zstd.Decoder, src, dst []byte, left int) ([]byte, error) {
	room := f.room(left)
	out, err := r.DecodeAll(src[:f.size], dst[:len(dst):len(dst)+room])
	made := len(out) - len(dst)
	switch {
	case err != nil && f.most > uint64(left) && (made+zstdBlock >= left || errors.Is(err, zstd.ErrDecoderSizeExceeded)):
		return dst, errZstdLimit
	case err != nil:
		return dst, err
	case made > left:
		return dst, errZstdLimit
	}
	return out, nil
}

var (
	errZstdFrame = errors.New("damaged frame")
	errZstdSize  = errors.New("the frame announces more than its blocks can hold")
	errZstdLimit = errors.New("above the limit")
	errZstdFar   = errors.New("the window is larger than any reader takes")
)

// frameShape is what the headers of a frame tell.
type frameShape struct {
	size   int    // of the frame, bytes
	most   uint64 // bytes that it can hold at most
	window uint64 // how far back it may refer, as it says
	head   int    // of its header, bytes
	skip   bool   // it carries no data
}

// zstdFrame measures the frame at the start of src by its block headers.
func zstdFrame(src []byte) (f frameShape, err error) {
	var h zstd.Header
	if err := h.Decode(src); err != nil {
		return f, err
	}
	f.size, f.head, f.window = h.HeaderSize, h.HeaderSize, h.WindowSize
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
	if h.WindowSize > zstdWindow {
		return f, errZstdFar
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
	if h.SingleSegment {
		f.window = f.most
	}
	return f, nil
}

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

// decompressZstd lets the library write no further than the room it gets, and gives more room only after it was filled:
// a frame that announces much and holds little costs little.
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
	room := max(min(4*len(src), limit), min(cap(dst)-len(dst), limit))
	for {
		dst = grown(dst, room)
		out, err := r.DecodeAll(src, dst[:len(dst):len(dst)+room])
		if err == nil {
			return out, nil
		}
		if !errors.Is(err, zstd.ErrDecoderSizeExceeded) {
			return dst, undecodable(Zstd, err)
		}
		if room >= limit {
			return dst, tooLarge(limit)
		}
		room = min(max(4*room, 1<<10), limit)
	}
}

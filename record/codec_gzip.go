package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// clampLevel brings a configured level into the range of a codec.
func clampLevel(level, low, high int) int { return min(max(level, low), high) }

// gzipPool is where writers of a level wait.
func (c *Codecs) gzipPool(level int) *sync.Pool { return &c.gzipW[gzipLevel(level)+1] }

func gzipLevel(level int) int {
	if level < 1 {
		return DefaultGzipLevel
	}
	return min(level, gzip.BestCompression)
}

func (c *Codecs) gzipWriter(level int, out io.Writer) (*gzip.Writer, error) {
	if w, ok := c.gzipPool(level).Get().(*gzip.Writer); ok {
		w.Reset(out)
		return w, nil
	}
	return gzip.NewWriterLevel(out, gzipLevel(level))
}

func (c *Codecs) compressGzip(dst []byte, level int, src []byte) ([]byte, error) {
	out := &appender{b: dst}
	w, err := c.gzipWriter(level, out)
	if err != nil {
		return dst, err
	}
	defer c.gzipPool(level).Put(w)
	if _, err := w.Write(src); err != nil {
		return dst, err
	}
	if err := w.Close(); err != nil {
		return dst, err
	}
	return out.b, nil
}

func (c *Codecs) decompressGzip(dst, src []byte, limit int) ([]byte, error) {
	r, ok := c.gzipR.Get().(*gzip.Reader)
	if !ok {
		r = new(gzip.Reader)
	}
	defer c.gzipR.Put(r)
	if err := r.Reset(bytes.NewReader(src)); err != nil {
		return dst, undecodable(Gzip, err)
	}
	end := len(dst) + limit
	for {
		if len(dst) == cap(dst) || cap(dst)-len(dst) < 512 {
			dst = grown(dst, max(512, min(4*len(src), 64<<10)))
		}
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		switch {
		case len(dst) > end:
			return dst, tooLarge(limit)
		case errors.Is(err, io.EOF):
			return dst, nil
		case err != nil:
			return dst, undecodable(Gzip, err)
		}
	}
}

func undecodable(codec Codec, cause error) error {
	return fmt.Errorf("%w: %v cannot be unpacked: %v", ErrInvalidRecord, codec, cause)
}

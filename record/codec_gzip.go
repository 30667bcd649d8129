package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
)

// clampLevel brings a configured level into the range of a codec.
func clampLevel(level, low, high int) int { return min(max(level, low), high) }

type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}

func (c *Codecs) compressGzip(dst []byte, level int, src []byte) ([]byte, error) {
	if level < 1 {
		level = DefaultGzipLevel
	}
	level = clampLevel(level, DefaultGzipLevel, gzip.BestCompression)
	pool := &c.gzipW[level+1]
	out := &appender{b: dst}
	w, ok := pool.Get().(*gzip.Writer)
	if !ok {
		var err error
		if w, err = gzip.NewWriterLevel(out, level); err != nil {
			return dst, err
		}
	} else {
		w.Reset(out)
	}
	defer pool.Put(w)
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

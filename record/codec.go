package record

import (
	"fmt"
	"sync"
)

// Codec is a compression codec by its number in the batch attributes.
type Codec int8

// The codecs that exist. 5 to 7 fit the attribute bits and mean nothing.
const (
	None   Codec = 0
	Gzip   Codec = 1
	Snappy Codec = 2
	LZ4    Codec = 3
	Zstd   Codec = 4
)

var codecNames = [...]string{"none", "gzip", "snappy", "lz4", "zstd"}

func (c Codec) String() string {
	if c.Known() {
		return codecNames[c]
	}
	return fmt.Sprintf("codec-%d", int8(c))
}

// Known says that the codec exists.
func (c Codec) Known() bool { return c >= None && c <= Zstd }

// ParseCodec finds a codec by its name in configurations ("none" and "uncompressed" are the same).
func ParseCodec(name string) (Codec, bool) {
	if name == "uncompressed" {
		return None, true
	}
	for i, n := range codecNames {
		if n == name {
			return Codec(i), true
		}
	}
	return None, false
}

// Default levels of the codecs that have levels.
const (
	DefaultGzipLevel = -1 // or 1 to 9
	DefaultLZ4Level  = 9  // 1 to 17
	DefaultZstdLevel = 3  // 1 to 22
)

// DefaultLevel is the level of c where none is configured.
func DefaultLevel(c Codec) int {
	switch c {
	case Gzip:
		return DefaultGzipLevel
	case LZ4:
		return DefaultLZ4Level
	case Zstd:
		return DefaultZstdLevel
	}
	return 0
}

// maxKeptBuffer is the largest scratch buffer that goes back to the pool, in bytes.
const maxKeptBuffer = 4 << 20

// Codecs owns compressors, decompressors and scratch buffers, and reuses them. One object serves a whole node; it is
// safe for concurrent use.
type Codecs struct {
	buffers sync.Pool // *[]byte
	streams [Zstd + 1]sync.Pool
	wideMu  sync.Mutex
	wide    *stream   // guarded by wideMu, held while it is open
	gzipR   sync.Pool // *gzip.Reader
	gzipW   [11]sync.Pool
	lz4Fast sync.Pool
	lz4HC   sync.Pool
	zstdR   sync.Pool
	zstdW   [zstdLevels]sync.Pool
	zstdS   [zstdLevels]sync.Pool // with a small window, for streams
}

// NewCodecs returns an empty set.
func NewCodecs() *Codecs { return &Codecs{} }

// Compress appends src, compressed, to dst. Level is clamped to what the codec has.
func (c *Codecs) Compress(dst []byte, codec Codec, level int, src []byte) ([]byte, error) {
	switch codec {
	case None:
		return append(dst, src...), nil
	case Gzip:
		return c.compressGzip(dst, level, src)
	case Snappy:
		return c.compressSnappy(dst, src), nil
	case LZ4:
		return c.compressLZ4(dst, level, src)
	case Zstd:
		return c.compressZstd(dst, level, src)
	}
	return dst, fmt.Errorf("%w: %v", ErrUnsupportedCodec, codec)
}

// Decompress appends src, unpacked, to dst; at most limit bytes. Memory grows with what really comes out, never with
// what a header announces. Errors: ErrTooLarge above the limit; ErrInvalidRecord where src cannot be unpacked.
func (c *Codecs) Decompress(dst []byte, codec Codec, src []byte, limit int) ([]byte, error) {
	if limit < 0 {
		limit = 0
	}
	switch codec {
	case None:
		if len(src) > limit {
			return dst, tooLarge(limit)
		}
		return append(dst, src...), nil
	case Gzip:
		return c.decompressGzip(dst, src, limit)
	case Snappy:
		return decompressSnappy(dst, src, limit)
	case LZ4:
		return decompressLZ4(dst, src, limit)
	case Zstd:
		return c.decompressZstd(dst, src, limit)
	}
	return dst, invalid("%v does not exist", codec)
}

// Unpack returns the records of b, one after the other. For codec none they alias b; otherwise they are appended to
// scratch[:0], which may grow up to limit bytes.
func (c *Codecs) Unpack(b Batch, scratch []byte, limit int) ([]byte, error) {
	if b.Codec() == None {
		return b.RecordsBytes(), nil
	}
	return c.Decompress(scratch[:0], b.Codec(), b.RecordsBytes(), limit)
}

func (c *Codecs) buffer() *[]byte {
	if p, ok := c.buffers.Get().(*[]byte); ok {
		return p
	}
	return new([]byte)
}

func (c *Codecs) release(p *[]byte) {
	if cap(*p) <= maxKeptBuffer {
		*p = (*p)[:0]
		c.buffers.Put(p)
	}
}

func tooLarge(limit int) error {
	return fmt.Errorf("%w: unpacks to more than %d bytes", ErrTooLarge, limit)
}

// grown returns dst with room for n more bytes, at most doubling what is there beyond need.
func grown(dst []byte, n int) []byte {
	if cap(dst)-len(dst) >= n {
		return dst
	}
	next := make([]byte, len(dst), max(len(dst)+n, 2*len(dst)))
	copy(next, dst)
	return next
}

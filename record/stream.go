package record

import (
	"bytes"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
)

// What a stream may allocate: streamRatio bytes for each packed one, and streamFloor. Its buffer and the window of its
// decoder are never larger; as buffers grow by doubling, all that it allocates stays below twice that.
const (
	streamRatio = 12
	streamFloor = 256 << 10
	streamWide  = 8 << 20  // the same for the wide stream of a set, see Codecs.openWide
	gzipWindow  = 32 << 10 // deflate hands out no more at a time
)

// stream unpacks the records of one batch piece by piece, in memory that follows the packed size, not what comes out.
// It is its opener's until close.
//
//	packed bytes ──▶ decoder of the codec ──▶ window ──▶ have: read from the front, refilled by more
type stream struct {
	codecs *Codecs
	codec  Codec
	packed []byte
	src    []byte // of packed: not yet looked at
	have   []byte // unpacked and not yet read; valid until the next call of more
	buf    []byte // the window
	limit  int    // what may come out in all, bytes
	left   int    // what may still come out
	most   int    // largest window
	wide   bool   // it is the wide one of its set
	framed bool   // snappy: blocks with lengths before them
	err    error  // what ended it; io.EOF at the regular end

	border border
	in     bytes.Reader // what gzip reads
	gzip   *gzip.Reader
	lz4    lz4Blocks
	long   lz4Long
	zstd   zstdStream
}

// open starts a stream over src; at most limit bytes may come out.
func (c *Codecs) open(codec Codec, src []byte, limit int) *stream {
	s, ok := c.streams[codec].Get().(*stream)
	if !ok {
		s = new(stream)
	}
	s.most = streamFloor + streamRatio*len(src)
	s.start(c, codec, limit, src)
	return s
}

// openWide starts a stream with a window of streamWide at least, for the few batches that unpack to much and refer far
// back in it. A set has one such stream, so that they cost its memory once: openWide waits for the one before to close.
func (c *Codecs) openWide(codec Codec, src []byte, limit int) *stream {
	c.wideMu.Lock()
	if c.wide == nil {
		c.wide = &stream{wide: true}
	}
	c.wide.most = max(streamWide, streamFloor+streamRatio*len(src))
	c.wide.start(c, codec, limit, src)
	return c.wide
}

func (s *stream) start(c *Codecs, codec Codec, limit int, src []byte) {
	s.codecs, s.codec, s.packed, s.src, s.have, s.err = c, codec, src, src, nil, nil
	s.limit, s.left = max(limit, 0), max(limit, 0)
	switch codec {
	case Gzip:
		s.room(gzipWindow)
		s.in.Reset(src)
		if s.gzip == nil {
			s.gzip = new(gzip.Reader)
		}
		if err := s.gzip.Reset(&s.in); err != nil {
			s.err = undecodable(Gzip, err)
		}
	case Snappy:
		s.src, s.framed, s.err = xerialBlocks(src)
	case LZ4:
		s.lz4, s.err = newLZ4Blocks(src)
	case Zstd:
		s.err = s.zstd.start()
	default:
		s.err = invalid("%v does not exist", codec)
	}
}

// again closes s and returns a wide stream from the start where the window was too narrow, else nil.
func (s *stream) again() *stream {
	c, codec, packed, limit, far := s.codecs, s.codec, s.packed, s.limit, s.zstd.far && !s.wide
	s.close()
	if !far {
		return nil
	}
	return c.openWide(codec, packed, limit)
}

// close gives the stream back; what was read from it is no longer valid.
func (s *stream) close() {
	s.packed, s.src, s.have, s.lz4, s.long = nil, nil, nil, lz4Blocks{}, lz4Long{}
	s.in.Reset(nil)
	s.zstd.close(s.wide)
	if s.wide {
		s.codecs.wideMu.Unlock()
		return
	}
	if cap(s.buf) > maxKeptBuffer {
		s.buf = nil
	}
	s.codecs.streams[s.codec].Put(s)
}

// more replaces have, which must be used up, by the next bytes. It returns io.EOF at the regular end. Errors:
// ErrTooLarge above the limit, ErrInvalidRecord where the rest cannot be unpacked. They stay.
func (s *stream) more() error {
	for s.err == nil {
		var piece []byte
		piece, s.err = s.next()
		if len(piece) > s.left {
			s.err = tooLarge(s.limit)
		} else if len(piece) > 0 {
			s.have = piece
			s.left -= len(piece)
			return nil
		}
	}
	s.have = nil
	return s.err
}

func (s *stream) next() ([]byte, error) {
	switch s.codec {
	case Snappy:
		return s.nextSnappy()
	case LZ4:
		return s.nextLZ4()
	case Zstd:
		return s.nextZstd()
	}
	n, err := s.gzip.Read(s.buf)
	if err != nil && !errors.Is(err, io.EOF) {
		err = undecodable(Gzip, err)
	}
	return s.buf[:n], err
}

// room makes buf at least n bytes long; what was in it is lost.
func (s *stream) room(n int) []byte {
	if cap(s.buf) < n {
		s.buf = make([]byte, max(n, min(2*cap(s.buf), s.most)))
	}
	s.buf = s.buf[:cap(s.buf)]
	return s.buf
}

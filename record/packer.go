package record

import (
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// zstdWhole is how much is compressed at once with zstd; more goes through an encoder with a window of that size.
const zstdWhole = 1 << 20

// packer compresses what is written to it piece by piece and appends it to out, up to the limit of that. The first error
// stays in err.
type packer struct {
	codecs  *Codecs
	codec   Codec
	level   int
	out     appender
	pending *[]byte // written and not yet compressed: a part of a block
	gzip    *gzip.Writer
	zstd    *zstd.Encoder // open, as more than zstdWhole was written
	err     error
}

func (p *packer) start() {
	p.pending = p.codecs.buffer()
	switch p.codec {
	case Gzip:
		p.gzip, p.err = p.codecs.gzipWriter(p.level, &p.out)
	case Snappy:
		p.out.b = appendXerialHeader(p.out.b)
	case LZ4:
		p.out.b = appendLZ4Header(p.out.b)
	}
}

// stop gives back what was borrowed; out stays. It may be called at any time, more than once.
func (p *packer) stop() {
	if p.pending != nil {
		p.codecs.release(p.pending)
	}
	if p.gzip != nil {
		p.codecs.gzipPool(p.level).Put(p.gzip)
	}
	if p.zstd != nil {
		p.zstd.Reset(nil)
		p.codecs.zstdS[zstdSpeed(p.level)].Put(p.zstd)
	}
	p.pending, p.gzip, p.zstd = nil, nil, nil
}

func (p *packer) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

func (p *packer) write(b []byte) {
	if p.err != nil {
		return
	}
	switch {
	case p.codec == None:
		_, p.err = p.out.Write(b)
	case p.gzip != nil:
		_, p.err = p.gzip.Write(b)
	case p.zstd != nil:
		_, p.err = p.zstd.Write(b)
	default:
		p.collect(b)
	}
}

// block is how much is compressed at once.
func (p *packer) block() int {
	switch p.codec {
	case Snappy:
		return snappyBlock
	case LZ4:
		return lz4Block
	}
	return zstdWhole
}

func (p *packer) collect(b []byte) {
	for block := p.block(); len(b) > 0 && p.err == nil; {
		n := min(len(b), block-len(*p.pending))
		*p.pending = append(*p.pending, b[:n]...)
		if b = b[n:]; len(*p.pending) < block {
			continue
		}
		if p.codec != Zstd {
			p.flush()
		} else if len(b) > 0 {
			p.openZstd()
			p.write(b)
			return
		}
	}
}

// flush compresses what is pending into a block of its own.
func (p *packer) flush() {
	b := *p.pending
	*p.pending = b[:0]
	switch p.codec {
	case Snappy:
		p.out.b = p.codecs.appendSnappyBlock(p.out.b, b)
	case LZ4:
		p.out.b, p.err = p.codecs.appendLZ4Block(p.out.b, p.level, b)
	case Zstd:
		p.out.b, p.err = p.codecs.compressZstd(p.out.b, p.level, b)
	}
	if p.err == nil {
		p.err = p.out.check(0)
	}
}

func (p *packer) openZstd() {
	speed := zstdSpeed(p.level)
	w, ok := p.codecs.zstdS[speed].Get().(*zstd.Encoder)
	if !ok {
		if w, p.err = newZstdWriter(speed, zstd.WithWindowSize(zstdWhole)); p.err != nil {
			return
		}
	}
	p.zstd = w
	w.Reset(&p.out)
	_, p.err = w.Write(*p.pending)
	*p.pending = (*p.pending)[:0]
}

// finish ends the compression and returns what was made.
func (p *packer) finish() ([]byte, error) {
	if p.err != nil {
		return nil, p.err
	}
	switch {
	case p.gzip != nil:
		p.err = p.gzip.Close()
	case p.zstd != nil:
		p.err = p.zstd.Close()
	case len(*p.pending) > 0:
		p.flush()
	}
	if p.codec == LZ4 {
		p.out.b = binary.LittleEndian.AppendUint32(p.out.b, 0)
	}
	p.fail(p.out.check(0))
	return p.out.b, p.err
}

// appender is a writer that appends, up to most bytes in all; 0 for no limit.
type appender struct {
	b    []byte
	most int
}

func (a *appender) check(more int) error {
	if a.most > 0 && len(a.b)+more > a.most {
		return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, a.most)
	}
	return nil
}

func (a *appender) Write(b []byte) (int, error) {
	if err := a.check(len(b)); err != nil {
		return 0, err
	}
	a.b = append(grown(a.b, len(b)), b...)
	return len(b), nil
}

package record

import (
	"errors"
	"io"
	"math/bits"

	"github.com/klauspost/compress/zstd"
)

const zstdPiece = 64 << 10 // how much is taken at a time from a frame that is not unpacked whole

// zstdStream is what a stream has for zstd. Most frames are unpacked whole: what their blocks can make is within the
// bound. Larger ones go through a window.
type zstdStream struct {
	r      *zstd.Decoder
	in     zstdInput
	open   bool // a frame is under way in a window
	narrow bool // the window is smaller than the frame wants
	far    bool // unpacking failed, perhaps for that
	ring   int  // largest window so far
}

func (z *zstdStream) start() (err error) {
	z.open, z.narrow, z.far = false, false, false
	if z.r == nil {
		z.r, err = newZstdReader()
	}
	return err
}

// close lets go of what was read, and of a large window unless it is to be kept.
func (z *zstdStream) close(keep bool) {
	if z.r == nil {
		return
	}
	z.in = zstdInput{}
	z.r.Reset(nil)
	if z.ring > maxKeptBuffer && !keep || z.ring > streamWide {
		z.r.Close()
		z.r, z.ring = nil, 0
	}
}

func (s *stream) nextZstd() ([]byte, error) {
	z := &s.zstd
	if z.open {
		n, err := z.r.Read(s.room(zstdPiece)[:zstdPiece])
		if err != nil {
			z.open = false
			if !errors.Is(err, io.EOF) {
				z.far = z.narrow
				return nil, undecodable(Zstd, err)
			}
		}
		return s.buf[:n], nil
	}
	if len(s.src) == 0 {
		return nil, io.EOF
	}
	f, err := zstdFrame(s.src)
	if err != nil {
		return nil, undecodable(Zstd, err)
	}
	frame := s.src[:f.size]
	s.src = s.src[f.size:]
	switch {
	case f.skip:
		return nil, nil
	case f.most > uint64(s.most):
		return nil, s.openZstd(&f, frame)
	}
	out, err := f.decode(z.r, frame, s.room(f.room(s.left))[:0], s.left)
	if err == errZstdLimit {
		return nil, tooLarge(s.limit)
	} else if err != nil {
		return nil, undecodable(Zstd, err)
	}
	return out, nil
}

// openZstd starts to unpack a frame through a window, of what it asks for within the bound. The decoder takes memory for
// the window that the header names, so it gets another header: encoders at high levels name 128 MiB in every frame.
func (s *stream) openZstd(f *frameShape, frame []byte) error {
	z := &s.zstd
	descriptor, window := zstdDescriptor(uint64(s.most))
	if z.narrow = window < f.window; !z.narrow {
		descriptor, window = zstdDescriptor(f.window)
	}
	z.ring = max(z.ring, int(window))
	z.in.set(frame, f.head, descriptor)
	if err := z.r.Reset(&z.in); err != nil {
		return undecodable(Zstd, err)
	}
	z.open = true
	return nil
}

// zstdDescriptor is the byte for the largest window that is not above n, which is at least 1 KiB:
// 5 bits exponent, 3 bits mantissa.
func zstdDescriptor(n uint64) (descriptor byte, window uint64) {
	exponent := bits.Len64(n) - 1
	mantissa := n >> (exponent - 3) & 7
	return byte(exponent-10)<<3 | byte(mantissa), (8 | mantissa) << (exponent - 3)
}

// zstdInput is a frame with another header.
type zstdInput struct {
	head []byte
	made [4 + 1 + 1 + 4 + 8]byte
	rest []byte
}

// set takes the single-segment flag out of the header and puts the window in.
//
//	│ u32 magic │ flags │ [window] │ [dictionary id] │ [content size] │
func (in *zstdInput) set(frame []byte, head int, descriptor byte) {
	const at, singleSegment = 4, 1 << 5
	fields := at + 1
	if frame[at]&singleSegment == 0 {
		fields++
	}
	in.head = append(in.made[:0], frame[:at]...)
	in.head = append(in.head, frame[at]&^singleSegment, descriptor)
	in.head = append(in.head, frame[fields:head]...)
	in.rest = frame[head:]
}

func (in *zstdInput) Read(p []byte) (int, error) {
	from := &in.rest
	if len(in.head) > 0 {
		from = &in.head
	}
	if len(*from) == 0 {
		return 0, io.EOF
	}
	n := copy(p, *from)
	*from = (*from)[n:]
	return n, nil
}

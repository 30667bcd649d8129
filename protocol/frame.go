package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// What can be wrong with a request. None is answered: the connection is closed, with the one exception of an unknown
// version of ApiVersions.
var (
	// ErrFrameSize means a frame too short for a header or above its limit.
	ErrFrameSize = errors.New("frame size")
	// ErrMalformed means that header or body cannot be read.
	ErrMalformed = errors.New("malformed request")
	// ErrUnknownKey means that no such API is served.
	ErrUnknownKey = errors.New("unknown api key")
	// ErrUnsupportedVersion means that the API is served, but not in this version.
	ErrUnsupportedVersion = errors.New("unsupported api version")
	// ErrTooCostly means that decoding would take more than 32 times the memory of the frame.
	ErrTooCostly = errors.New("request would take too much memory")
)

const (
	sizeBytes   = 4
	prefixBytes = 8 // size, key, version
	// headerBytes is the least that a frame holds: key, version, correlation id, the length of the client id.
	headerBytes = 10
)

// Limits bound frames, in bytes after the size field.
type Limits struct {
	Produce int // of Produce requests
	Other   int // of all others
}

// Check returns ErrFrameSize if a frame of that size and key may not be read.
func (l Limits) Check(size int32, key int16) error {
	limit := l.Other
	if key == KeyProduce {
		limit = l.Produce
	}
	if size < headerBytes || int64(size) > int64(limit) {
		return fmt.Errorf("%w: %d bytes for api key %d, the limit is %d", ErrFrameSize, size, key, limit)
	}
	return nil
}

// ReadFrame reads the next request from r: first the size and the key, and only if the limit for that key allows it, the
// rest, into the buffer that alloc gives for that many bytes (alloc may wait for memory, or refuse with an error). The
// frame is returned without its size. Errors: io.EOF where the stream ends between frames, io.ErrUnexpectedEOF inside
// of one, ErrFrameSize, those of r and alloc.
func ReadFrame(r io.Reader, limits Limits, alloc func(n int) ([]byte, error)) ([]byte, error) {
	var prefix [prefixBytes]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return nil, err
	}
	size := int32(binary.BigEndian.Uint32(prefix[:]))
	if err := limits.Check(size, int16(binary.BigEndian.Uint16(prefix[sizeBytes:]))); err != nil {
		return nil, err
	}
	frame, err := alloc(int(size))
	if err != nil {
		return nil, err
	}
	frame = frame[:size]
	n := copy(frame, prefix[sizeBytes:])
	if _, err := io.ReadFull(r, frame[n:]); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return frame, err
	}
	return frame, nil
}

// Header is what stands before the body of a request. ClientID and Body alias the frame.
type Header struct {
	Key           int16
	Version       int16
	CorrelationID int32
	ClientID      []byte // nil where it is null
	Body          []byte
}

// ParseHeader reads the header of a frame. ErrUnsupportedVersion comes with a header that has all but a body, so that
// ApiVersions can be answered; after ErrUnknownKey only the fixed fields are set. Other errors: ErrMalformed.
func (t *Table) ParseHeader(frame []byte) (Header, error) {
	var h Header
	if len(frame) < headerBytes {
		return h, fmt.Errorf("%w: a header of %d bytes", ErrMalformed, len(frame))
	}
	h.Key = int16(binary.BigEndian.Uint16(frame))
	h.Version = int16(binary.BigEndian.Uint16(frame[2:]))
	h.CorrelationID = int32(binary.BigEndian.Uint32(frame[4:]))
	api, ok := t.Lookup(h.Key)
	if !ok {
		return h, fmt.Errorf("%w: %d", ErrUnknownKey, h.Key)
	}
	rest := frame[8:]
	n := int(int16(binary.BigEndian.Uint16(rest)))
	rest = rest[2:]
	if n > len(rest) || n < -1 {
		return h, fmt.Errorf("%w: client id of %d bytes, %d are left", ErrMalformed, n, len(rest))
	}
	if n >= 0 {
		h.ClientID, rest = rest[:n:n], rest[n:]
	}
	if h.Version < api.Min || h.Version > api.Max {
		return h, fmt.Errorf("%w: %s %d, served are %d to %d", ErrUnsupportedVersion, api.Name, h.Version, api.Min, api.Max)
	}
	if api.IsFlexible(h.Version) {
		used, err := SkipTags(rest)
		if err != nil {
			return h, fmt.Errorf("header: %w", err)
		}
		rest = rest[used:]
	}
	h.Body = rest
	return h, nil
}

// SkipTags returns the size of the tag buffer at the start of b. Errors: ErrMalformed.
func SkipTags(b []byte) (size int, err error) {
	w := walker{b: b, flexible: true}
	if err := w.tags(nil); err != nil {
		return 0, err
	}
	return w.at, nil
}

// AppendTag appends one field of a tag buffer. The caller writes the count before the first one, and the tags ascending.
func AppendTag(dst []byte, tag uint32, value []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(tag))
	dst = binary.AppendUvarint(dst, uint64(len(value)))
	return append(dst, value...)
}

// AppendResponseHeader begins a response: four bytes for the size, which [FinishFrame] fills in, and the header.
func (t *Table) AppendResponseHeader(dst []byte, h Header) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.CorrelationID))
	if api, ok := t.Lookup(h.Key); ok && h.Key != KeyApiVersions && api.IsFlexible(h.Version) {
		dst = append(dst, 0)
	}
	return dst
}

// FinishFrame writes the size of a frame that begins at start and to which more bytes follow the end of b, as spans.
// It returns ErrFrameSize above 2³¹−1.
func FinishFrame(b []byte, start int, more int64) error {
	size := int64(len(b)-start-sizeBytes) + more
	if size > 1<<31-1 {
		return fmt.Errorf("%w: a response of %d bytes", ErrFrameSize, size)
	}
	binary.BigEndian.PutUint32(b[start:], uint32(size))
	return nil
}

package metadata

import (
	"encoding/binary"
	"fmt"
)

// The small encodings: unsigned and zigzag varints as in encoding/binary; a string is its length as unsigned varint, then its
// bytes; a list is its count, then its elements; a truth value is one byte, 0 or 1.

func appendUint(w []byte, v uint64) []byte { return binary.AppendUvarint(w, v) }
func appendInt(w []byte, v int64) []byte   { return binary.AppendVarint(w, v) }

func appendText(w []byte, s string) []byte { return append(appendUint(w, uint64(len(s))), s...) }

func appendBool(w []byte, b bool) []byte {
	if b {
		return append(w, 1)
	}
	return append(w, 0)
}

func appendBrokers(w []byte, ids []BrokerID) []byte {
	w = appendUint(w, uint64(len(ids)))
	for _, id := range ids {
		w = appendInt(w, int64(id))
	}
	return w
}

func appendDirectories(w []byte, ids []DirectoryID) []byte {
	w = appendUint(w, uint64(len(ids)))
	for _, id := range ids {
		w = append(w, id[:]...)
	}
	return w
}

// reader takes values from a byte slice. The first failure sticks; after it every value is zero.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(format string, a ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, a...))
	}
	r.b = nil
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.fail("%d bytes wanted, %d left", n, len(r.b))
		return nil
	}
	p := r.b[:n:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) byte() byte {
	if p := r.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (r *reader) bool() bool {
	b := r.byte()
	if b > 1 {
		r.fail("%d is no truth value", b)
	}
	return b == 1
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("no varint in the %d bytes left", len(r.b))
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail("no varint in the %d bytes left", len(r.b))
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int32() int32 {
	v := r.int()
	if v != int64(int32(v)) {
		r.fail("%d does not fit in 32 bits", v)
		return 0
	}
	return int32(v)
}

func (r *reader) int16() int16 {
	v := r.int()
	if v != int64(int16(v)) {
		r.fail("%d does not fit in 16 bits", v)
		return 0
	}
	return int16(v)
}

// count reads a number of elements that take at least size bytes each.
func (r *reader) count(size int) int {
	n := r.uint()
	if n > uint64(len(r.b)/size) {
		r.fail("%d elements in %d bytes", n, len(r.b))
		return 0
	}
	return int(n)
}

func (r *reader) text() string { return string(r.take(r.count(1))) }

func (r *reader) id() (id [16]byte) {
	copy(id[:], r.take(len(id)))
	return id
}

func (r *reader) brokers() []BrokerID {
	n := r.count(1)
	if n == 0 {
		return nil
	}
	ids := make([]BrokerID, n)
	for i := range ids {
		ids[i] = r.int32()
	}
	return ids
}

func (r *reader) directories() []DirectoryID {
	n := r.count(16)
	if n == 0 {
		return nil
	}
	ids := make([]DirectoryID, n)
	for i := range ids {
		ids[i] = r.id()
	}
	return ids
}

// end wants that nothing is left.
func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		r.fail("%d bytes too many", len(r.b))
	}
	return r.err
}

package group

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// What entries are written with: numbers as variable-length integers, texts and bytes with their length before them, what
// may be absent with one byte 0 or 1 before it.

func putUint(w []byte, v uint64) []byte { return binary.AppendUvarint(w, v) }

func putInt(w []byte, v int64) []byte { return binary.AppendVarint(w, v) }

func putText(w []byte, s string) []byte { return append(putUint(w, uint64(len(s))), s...) }

func putBytes(w, b []byte) []byte { return append(putUint(w, uint64(len(b))), b...) }

func putOptional(w []byte, s *string) []byte {
	if s == nil {
		return append(w, 0)
	}
	return putText(append(w, 1), *s)
}

// reader reads an entry. The first fault stays in err, and everything after it reads as zero.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: %w", what, ErrCorruptEntry)
	}
	r.rest = nil
}

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.fail("a byte is missing")
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail("a number is missing")
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) int() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.fail("a number is missing")
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) int32() int32 {
	v := r.int()
	if int64(int32(v)) != v {
		r.fail("a number is too large")
		return 0
	}
	return int32(v)
}

// bytes is a part of the entry, not a copy.
func (r *reader) bytes() []byte {
	n := r.uint()
	if n > uint64(len(r.rest)) {
		r.fail("bytes are missing")
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) text() string { return string(r.bytes()) }

func (r *reader) optional() *string {
	switch r.byte() {
	case 0:
		return nil
	case 1:
		s := r.text()
		return &s
	}
	r.fail("neither there nor absent")
	return nil
}

// end is the reader's fault, or that bytes are left over.
func (r *reader) end(group, key string) error {
	if r.err == nil && len(r.rest) > 0 {
		r.fail("bytes are left over")
	}
	if r.err != nil {
		return fmt.Errorf("group %q, entry %q: %w", group, key, r.err)
	}
	return nil
}

func sortEntries(entries []Entry) []Entry {
	slices.SortFunc(entries, func(a, b Entry) int {
		switch {
		case a.Key < b.Key:
			return -1
		case a.Key > b.Key:
			return 1
		}
		return 0
	})
	return entries
}

package record

import (
	"errors"
	"math"
)

// Record is one record, read in place: Key, Value and Headers alias the bytes of the batch.
type Record struct {
	Offset         Offset
	Timestamp      int64  // ms; the batch's append time where that is what the batch has
	OffsetDelta    int32  // as stored
	TimestampDelta int64  // as stored, ms
	Attributes     int8   // unused by Kafka
	Key            []byte // nil: no key
	Value          []byte // nil: no value (a tombstone where there is a key)
	Headers        Headers
}

// Headers are the headers of one record, checked but not decoded. Copy it to walk it twice.
type Headers struct {
	count int32
	raw   []byte
}

// Len is the number of headers left.
func (h *Headers) Len() int { return int(h.count) }

// Next takes the first header off; ok is false when none is left. A nil value is a null value.
func (h *Headers) Next() (key, value []byte, ok bool) {
	if h.count == 0 {
		return nil, nil, false
	}
	key, n, _ := blob(h.raw)
	value, m, _ := blob(h.raw[n:])
	h.raw, h.count = h.raw[n+m:], h.count-1
	return key, value, true
}

// What can be wrong inside a record. They are allocated once, so that refusing costs nothing.
var (
	errVarint       = errors.New("a number runs past the end")
	errRecordLength = errors.New("record length")
	errKeyLength    = errors.New("key length")
	errValueLength  = errors.New("value length")
	errHeaderCount  = errors.New("header count")
	errHeader       = errors.New("header without key or past the end")
	errRecordRest   = errors.New("bytes left over inside the record")
)

// parse reads the record at the start of b into r, all but Offset and Timestamp, and returns its size.
func (r *Record) parse(b []byte) (size int, err error) {
	length, n := varint(b)
	if n == 0 {
		return 0, errVarint
	}
	if length < 0 || int(length) > len(b)-n {
		return 0, errRecordLength
	}
	size = n + int(length)
	b = b[n:size]
	if len(b) == 0 {
		return 0, errVarint
	}
	r.Attributes = int8(b[0])
	b = b[1:]
	if r.TimestampDelta, n = varlong(b); n == 0 {
		return 0, errVarint
	}
	b = b[n:]
	if r.OffsetDelta, n = varint(b); n == 0 {
		return 0, errVarint
	}
	b = b[n:]
	var ok bool
	if r.Key, n, ok = blob(b); !ok {
		return 0, errKeyLength
	}
	b = b[n:]
	if r.Value, n, ok = blob(b); !ok {
		return 0, errValueLength
	}
	b = b[n:]
	count, n := varint(b)
	if n == 0 || count < 0 || int64(count)*2 > int64(len(b)-n) {
		return 0, errHeaderCount
	}
	r.Headers = Headers{count: count, raw: b[n:]}
	if count == 0 {
		if len(b) != n {
			return 0, errRecordRest
		}
		return size, nil
	}
	return size, checkHeaders(count, b[n:])
}

func checkHeaders(count int32, b []byte) error {
	for range count {
		key, n, ok := blob(b)
		if !ok || key == nil {
			return errHeader
		}
		b = b[n:]
		if _, n, ok = blob(b); !ok {
			return errHeader
		}
		b = b[n:]
	}
	if len(b) != 0 {
		return errRecordRest
	}
	return nil
}

// blob reads a length and that many bytes; −1 gives nil.
func blob(b []byte) (v []byte, n int, ok bool) {
	length, n := varint(b)
	if n == 0 {
		return nil, 0, false
	}
	if length < 0 {
		return nil, n, length == -1
	}
	if int(length) > len(b)-n {
		return nil, 0, false
	}
	end := n + int(length)
	return b[n:end:end], end, true
}

// varint reads a zig-zag number of 32 bits, at most 5 bytes; n is 0 where there is none.
func varint(b []byte) (v int32, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		u := uint32(b[0])
		return int32(u>>1) ^ -int32(u&1), 1
	}
	return varintLong(b)
}

func varintLong(b []byte) (v int32, n int) {
	var u uint32
	for i := 0; i < len(b) && i < 5; i++ {
		c := b[i]
		u |= uint32(c&0x7f) << (7 * i)
		if c < 0x80 {
			if i == 4 && c > 0x0f {
				return 0, 0
			}
			return int32(u>>1) ^ -int32(u&1), i + 1
		}
	}
	return 0, 0
}

// varlong reads a zig-zag number of 64 bits, at most 10 bytes; n is 0 where there is none.
func varlong(b []byte) (v int64, n int) {
	var u uint64
	for i := 0; i < len(b) && i < 10; i++ {
		c := b[i]
		u |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			if i == 9 && c > 1 {
				return 0, 0
			}
			return int64(u>>1) ^ -int64(u&1), i + 1
		}
	}
	return 0, 0
}

func appendVarint(dst []byte, v int32) []byte {
	return appendUvarint(dst, uint64(uint32(v<<1)^uint32(v>>31)))
}

func appendVarlong(dst []byte, v int64) []byte { return appendUvarint(dst, uint64(v<<1)^uint64(v>>63)) }

func appendUvarint(dst []byte, u uint64) []byte {
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}

func sizeVarint(v int32) int { return sizeUvarint(uint64(uint32(v<<1) ^ uint32(v>>31))) }

func sizeVarlong(v int64) int { return sizeUvarint(uint64(v<<1) ^ uint64(v>>63)) }

func sizeUvarint(u uint64) int {
	n := 1
	for u >= 0x80 {
		u >>= 7
		n++
	}
	return n
}

// shape is what checking needs of a record.
type shape struct {
	size           int
	timestampDelta int64
	offsetDelta    int32
	nullKey        bool
}

// measure checks the record at the start of b as parse does, without making slices of its parts. A number that cannot be
// read sets i beyond every end, which the next check finds.
func measure(b []byte) (s shape, err error) {
	if len(b) == 0 {
		return s, errVarint
	}
	u, i := uint64(b[0]), 1
	if u >= 0x80 {
		u, i = more(b, i, u, 5)
	}
	if u&1 != 0 || i >= len(b) || u>>1 > uint64(len(b)-i) || u == 0 {
		return s, errRecordLength
	}
	s.size = i + int(u>>1)
	b = b[:s.size]
	if i++; i >= len(b) {
		return s, errVarint
	}
	if u = uint64(b[i]); u < 0x80 {
		i++
	} else {
		u, i = more(b, i+1, u, 10)
	}
	s.timestampDelta = int64(u>>1) ^ -int64(u&1)
	if i >= len(b) {
		return s, errVarint
	}
	if u = uint64(b[i]); u < 0x80 {
		i++
	} else {
		u, i = more(b, i+1, u, 5)
	}
	s.offsetDelta = int32(u>>1) ^ -int32(u&1)
	if i, s.nullKey = skipBlob(b, i); i > len(b) {
		return s, errKeyLength
	}
	if i, _ = skipBlob(b, i); i > len(b) {
		return s, errValueLength
	}
	if i == len(b)-1 && b[i] == 0 {
		return s, nil
	}
	count, n := varint(b[i:])
	if n == 0 || count < 0 || int64(count)*2 > int64(len(b)-i-n) {
		return s, errHeaderCount
	}
	return s, checkHeaders(count, b[i+n:])
}

// beyond is an index above all others.
const beyond = math.MaxInt

// skipBlob goes over a length and that many bytes, to beyond where they are not there.
func skipBlob(b []byte, i int) (next int, null bool) {
	if i >= len(b) {
		return beyond, false
	}
	u := uint64(b[i])
	if i++; u >= 0x80 {
		if u, i = more(b, i, u, 5); i > len(b) {
			return beyond, false
		}
	}
	if u&1 != 0 {
		if u != 1 {
			return beyond, false
		}
		return i, true
	}
	if u>>1 > uint64(len(b)-i) {
		return beyond, false
	}
	return i + int(u>>1), false
}

// more reads the rest of a number of at most most bytes (5 or 10) whose first byte is u; b[i] is the second.
func more(b []byte, i int, u uint64, most int) (v uint64, next int) {
	u &= 0x7f
	for shift := 7; shift < 7*most && i < len(b); shift += 7 {
		c := uint64(b[i])
		i++
		u |= (c & 0x7f) << shift
		if c < 0x80 {
			if shift == 28 && most == 5 && c > 0x0f || shift == 63 && c > 1 {
				return 0, beyond
			}
			return u, i
		}
	}
	return 0, beyond
}

// Iterator yields the records of a batch in order. It allocates nothing; its zero value is at its end.
type Iterator struct {
	base          Offset
	baseTimestamp int64
	appendTime    int64
	appended      bool
	rest          []byte
	count, index  int32
	record        Record
	err           error
}

// Iterate walks records, which are those of b, unpacked ([Codecs.Unpack]). b must be at least a header.
func Iterate(b Batch, records []byte) Iterator {
	return Iterator{
		base:          b.BaseOffset(),
		baseTimestamp: b.BaseTimestamp(),
		appendTime:    b.MaxTimestamp(),
		appended:      b.TimestampType() == LogAppendTime,
		rest:          records,
		count:         b.Count(),
	}
}

// Next goes to the next record. It returns false after the last one and at the first problem; Err tells which.
func (it *Iterator) Next() bool {
	if it.err != nil {
		return false
	}
	if it.index >= it.count {
		if len(it.rest) > 0 {
			it.err = invalid("%d bytes are left after record %d, the last", len(it.rest), it.index-1)
		}
		return false
	}
	n, err := it.record.parse(it.rest)
	if err != nil {
		it.err = badRecord(it.index, err)
		return false
	}
	it.rest = it.rest[n:]
	it.index++
	it.record.Offset = it.base + Offset(it.record.OffsetDelta)
	it.record.Timestamp = it.baseTimestamp + it.record.TimestampDelta
	if it.appended {
		it.record.Timestamp = it.appendTime
	}
	return true
}

// Record is the current record, valid until the next call of Next; what it points to lives as long as the batch.
func (it *Iterator) Record() *Record { return &it.record }

// Err is what ended the walk early (ErrInvalidRecord), nil at the regular end.
func (it *Iterator) Err() error { return it.err }

func badRecord(index int32, cause error) error { return invalid("record %d: %v", index, cause) }

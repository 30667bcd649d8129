package record

import (
	"encoding/binary"
	"fmt"
)

// Header is a header of a record to build. A nil value is a null value.
type Header struct {
	Key   string
	Value []byte
}

// BuilderOptions are the header fields of the batch to build. [NewOptions] gives those of a plain batch.
type BuilderOptions struct {
	BaseOffset    Offset
	LeaderEpoch   Epoch
	Codec         Codec
	Level         int
	TimestampType TimestampType
	AppendTime    int64 // the largest timestamp under LogAppendTime, ms
	Transactional bool
	Control       bool
	ProducerID    ProducerID
	ProducerEpoch ProducerEpoch
	BaseSequence  Sequence
	DeleteHorizon int64 // ms; above 0 it becomes the base timestamp and sets its bit
	SizeHint      int   // expected bytes of records
}

// NewOptions returns options without producer, leader epoch or compression.
func NewOptions() BuilderOptions {
	return BuilderOptions{
		LeaderEpoch: NoEpoch, ProducerID: NoProducerID, ProducerEpoch: NoProducerEpoch, BaseSequence: NoSequence,
	}
}

// Builder makes one batch from records. Its memory is its own until Batch hands it over. Not for concurrent use.
type Builder struct {
	o         BuilderOptions
	buf       []byte
	count     int32
	lastDelta int32
	base, max int64
}

// NewBuilder returns a builder without records.
func NewBuilder(o BuilderOptions) *Builder {
	b := &Builder{o: o, lastDelta: -1, base: NoTimestamp, max: NoTimestamp}
	b.buf = make([]byte, HeaderSize, HeaderSize+max(o.SizeHint, 64))
	if o.DeleteHorizon > 0 {
		b.base = o.DeleteHorizon
	}
	return b
}

// Append adds a record with the next offset. Nil key and value are null. timestamp is in ms.
func (b *Builder) Append(timestamp int64, key, value []byte, headers ...Header) {
	b.AppendAt(b.o.BaseOffset+Offset(b.lastDelta)+1, timestamp, Content{Key: key, Value: value, Headers: headers})
}

// Content is what a record carries.
type Content struct {
	Key, Value []byte
	Headers    []Header
}

// AppendAt adds a record with a given offset, above the last one and at most 2³¹−1 above the base offset.
func (b *Builder) AppendAt(offset Offset, timestamp int64, c Content) {
	r := Record{Key: c.Key, Value: c.Value, Headers: HeadersOf(c.Headers)}
	b.add(int32(offset-b.o.BaseOffset), timestamp, &r)
}

// Copy adds a record of another batch, with its own offset and timestamp.
func (b *Builder) Copy(r *Record) { b.add(int32(r.Offset-b.o.BaseOffset), r.Timestamp, r) }

func (b *Builder) add(delta int32, timestamp int64, r *Record) {
	if delta <= b.lastDelta {
		panic(fmt.Sprintf("record: offset delta %d after %d", delta, b.lastDelta))
	}
	if b.count == 0 && b.o.DeleteHorizon <= 0 {
		b.base = timestamp
	}
	tsDelta := timestamp - b.base
	size := 1 + sizeVarlong(tsDelta) + sizeVarint(delta) + sizeBlob(r.Key) + sizeBlob(r.Value) +
		sizeVarint(r.Headers.count) + len(r.Headers.raw)
	b.buf = appendVarint(b.buf, int32(size))
	b.buf = append(b.buf, 0)
	b.buf = appendVarlong(b.buf, tsDelta)
	b.buf = appendVarint(b.buf, delta)
	b.buf = appendBlob(b.buf, r.Key)
	b.buf = appendBlob(b.buf, r.Value)
	b.buf = appendVarint(b.buf, r.Headers.count)
	b.buf = append(b.buf, r.Headers.raw...)
	b.count++
	b.lastDelta = delta
	b.max = max(b.max, timestamp)
}

func appendBlob(dst, v []byte) []byte {
	if v == nil {
		return appendVarint(dst, -1)
	}
	dst = appendVarint(dst, int32(len(v)))
	return append(dst, v...)
}

func sizeBlob(v []byte) int {
	if v == nil {
		return 1
	}
	return sizeVarint(int32(len(v))) + len(v)
}

// Len is the size of the batch so far in bytes, before compression.
func (b *Builder) Len() int { return len(b.buf) }

// Count is the number of records so far.
func (b *Builder) Count() int { return int(b.count) }

// KeepLastOffset raises the last offset of the batch to o, as compaction does when it drops the last records.
func (b *Builder) KeepLastOffset(o Offset) { b.lastDelta = max(b.lastDelta, int32(o-b.o.BaseOffset)) }

// Batch compresses and seals. The builder must not be used afterwards; the bytes are the caller's. A batch without
// records (what compaction leaves of a producer's last one) needs KeepLastOffset. Errors: those of the codec, and
// ErrTooLarge above 2³¹−1 bytes.
func (b *Builder) Batch(c *Codecs) (Batch, error) {
	out := b.buf
	if b.o.Codec != None && b.count > 0 {
		var err error
		out = make([]byte, HeaderSize, HeaderSize+(len(b.buf)-HeaderSize)/2+64)
		if out, err = c.Compress(out, b.o.Codec, b.o.Level, b.buf[HeaderSize:]); err != nil {
			return nil, err
		}
	}
	if len(out) > MaxBatchSize {
		return nil, sizeError(len(out), MaxBatchSize)
	}
	made := Batch(out)
	b.header(made)
	return made, nil
}

func (b *Builder) header(m Batch) {
	attributes := int16(b.o.Codec)
	if b.count == 0 {
		attributes = 0
	}
	if b.o.Transactional {
		attributes |= attrTransactional
	}
	if b.o.Control {
		attributes |= attrControl
	}
	if b.o.DeleteHorizon > 0 {
		attributes |= attrDeleteHorizon
	}
	largest := b.max
	if b.o.TimestampType == LogAppendTime {
		attributes |= attrLogAppendTime
		largest = b.o.AppendTime
	}
	m.SetBaseOffset(b.o.BaseOffset)
	binary.BigEndian.PutUint32(m[atLength:], uint32(len(m)-logOverhead))
	m.SetPartitionLeaderEpoch(b.o.LeaderEpoch)
	m[atMagic] = Magic
	binary.BigEndian.PutUint32(m[atLastDelta:], uint32(b.lastDelta))
	binary.BigEndian.PutUint64(m[atBaseTimestamp:], uint64(b.base))
	binary.BigEndian.PutUint64(m[atMaxTimestamp:], uint64(largest))
	binary.BigEndian.PutUint64(m[atProducerID:], uint64(b.o.ProducerID))
	binary.BigEndian.PutUint16(m[atProducerEpoch:], uint16(b.o.ProducerEpoch))
	binary.BigEndian.PutUint32(m[atBaseSequence:], uint32(b.o.BaseSequence))
	binary.BigEndian.PutUint32(m[atCount:], uint32(b.count))
	m.SetAttributes(attributes)
}

// Empty makes the batch without records that compaction leaves where all records of b are gone: it keeps the offsets,
// the producer's fields and the largest timestamp.
func Empty(b Batch) Batch {
	builder := NewBuilder(BuilderOptions{
		BaseOffset: b.BaseOffset(), LeaderEpoch: b.PartitionLeaderEpoch(), TimestampType: b.TimestampType(),
		AppendTime: b.MaxTimestamp(), Transactional: b.Transactional(), Control: b.Control(),
		ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(), BaseSequence: b.BaseSequence(),
	})
	builder.lastDelta, builder.max = b.LastOffsetDelta(), b.MaxTimestamp()
	made := Batch(builder.buf)
	builder.header(made)
	return made
}

// HeadersOf are headers as a record has them.
func HeadersOf(all []Header) Headers {
	var raw []byte
	for _, h := range all {
		raw = appendVarint(raw, int32(len(h.Key)))
		raw = append(raw, h.Key...)
		raw = appendBlob(raw, h.Value)
	}
	return Headers{count: int32(len(all)), raw: raw}
}

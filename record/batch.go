package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
)

// HeaderSize is the number of bytes before the records.
const HeaderSize = 61

// Magic is the only batch version that is stored.
const Magic = 2

// MaxBatchSize is the largest batch that a length field can announce, in bytes.
const MaxBatchSize = math.MaxInt32

// logOverhead is the base offset and the length, which the length does not count.
const logOverhead = 12

// Where the fields lie.
const (
	atBaseOffset    = 0
	atLength        = 8
	atLeaderEpoch   = 12
	atMagic         = 16
	atCRC           = 17
	atAttributes    = 21
	atLastDelta     = 23
	atBaseTimestamp = 27
	atMaxTimestamp  = 35
	atProducerID    = 43
	atProducerEpoch = 51
	atBaseSequence  = 53
	atCount         = 57
)

// Attribute bits of a batch.
const (
	attrCodecMask     = 0x07
	attrLogAppendTime = 1 << 3
	attrTransactional = 1 << 4
	attrControl       = 1 << 5
	attrDeleteHorizon = 1 << 6
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// TimestampType says whose clock the records' timestamps are of.
type TimestampType int8

// CreateTime is the producer's clock, LogAppendTime the broker's.
const (
	CreateTime    TimestampType = 0
	LogAppendTime TimestampType = 1
)

func (t TimestampType) String() string {
	if t == LogAppendTime {
		return "LogAppendTime"
	}
	return "CreateTime"
}

// Batch is a view of one whole batch. It owns nothing: whoever owns the bytes says how long it lives.
// The accessors need HeaderSize bytes; [ParseHeader] and [Next] check that, and a shorter Batch panics.
type Batch []byte

// ParseHeader looks at the header at the start of buf and returns the size of the whole batch in bytes, which may be
// more than buf holds. limit is the largest size to believe (0: no limit). Errors: ErrTorn (fewer bytes than a header),
// ErrNewerVersion, ErrOldVersion, ErrCorrupt (a length that no batch has, or above limit).
func ParseHeader(buf []byte, limit int) (size int, err error) {
	if len(buf) <= atMagic {
		return 0, fmt.Errorf("%w: %d bytes are left, a header has %d", ErrTorn, len(buf), HeaderSize)
	}
	length := int32(binary.BigEndian.Uint32(buf[atLength:]))
	magic := int8(buf[atMagic])
	switch {
	case length == 0 && magic == 0:
		return 0, corrupt("length 0")
	case magic > Magic:
		return 0, fmt.Errorf("%w: magic %d", ErrNewerVersion, magic)
	case magic < 0:
		return 0, corrupt("magic %d", magic)
	case magic < Magic:
		return 0, fmt.Errorf("%w: magic %d", ErrOldVersion, magic)
	case length < HeaderSize-logOverhead || length > MaxBatchSize-logOverhead:
		return 0, corrupt("length %d", length)
	case limit > 0 && int64(length)+logOverhead > int64(limit):
		return 0, corrupt("length %d is above the limit of %d", length, limit-logOverhead)
	case len(buf) < HeaderSize:
		return 0, fmt.Errorf("%w: %d bytes are left, a header has %d", ErrTorn, len(buf), HeaderSize)
	}
	return int(length) + logOverhead, nil
}

// Next cuts the first batch off buf. It checks what ParseHeader checks and that the batch is all there (ErrTorn), not
// the CRC. The batch aliases buf. At the end of buf the batch is nil and err too.
func Next(buf []byte) (batch Batch, rest []byte, err error) {
	if len(buf) == 0 {
		return nil, nil, nil
	}
	size, err := ParseHeader(buf, 0)
	if err != nil {
		return nil, buf, err
	}
	if size > len(buf) {
		return nil, buf, fmt.Errorf("%w: it has %d bytes, %d are left", ErrTorn, size, len(buf))
	}
	return Batch(buf[:size:size]), buf[size:], nil
}

// BaseOffset is the offset of the first record that the batch was made with.
func (b Batch) BaseOffset() Offset { return Offset(binary.BigEndian.Uint64(b[atBaseOffset:])) }

// Length is the field itself: the bytes after it.
func (b Batch) Length() int32 { return int32(binary.BigEndian.Uint32(b[atLength:])) }

// Size is the whole batch in bytes, by its length field.
func (b Batch) Size() int { return int(b.Length()) + logOverhead }

// PartitionLeaderEpoch is the epoch of the leader that appended the batch.
func (b Batch) PartitionLeaderEpoch() Epoch {
	return Epoch(binary.BigEndian.Uint32(b[atLeaderEpoch:]))
}

// Magic is the version of the format.
func (b Batch) Magic() int8 { return int8(b[atMagic]) }

// CRC is the checksum as stored.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[atCRC:]) }

// Attributes are the flag bits.
func (b Batch) Attributes() int16 { return int16(binary.BigEndian.Uint16(b[atAttributes:])) }

// Codec is how the records are compressed. It may be a value that does not exist (5 to 7).
func (b Batch) Codec() Codec { return Codec(b.Attributes() & attrCodecMask) }

// TimestampType says whose clock was used.
func (b Batch) TimestampType() TimestampType {
	return TimestampType(b.Attributes() & attrLogAppendTime >> 3)
}

// Transactional says that the batch belongs to a transaction.
func (b Batch) Transactional() bool { return b.Attributes()&attrTransactional != 0 }

// Control says that the batch holds a control record, which no application sees.
func (b Batch) Control() bool { return b.Attributes()&attrControl != 0 }

// HasDeleteHorizon says that the base timestamp field holds the time from which compaction may drop tombstones.
func (b Batch) HasDeleteHorizon() bool { return b.Attributes()&attrDeleteHorizon != 0 }

// DeleteHorizon is that time in ms; ok is false where there is none.
func (b Batch) DeleteHorizon() (ms int64, ok bool) {
	if !b.HasDeleteHorizon() {
		return NoTimestamp, false
	}
	return b.BaseTimestamp(), true
}

// LastOffsetDelta is the last offset, relative to the base. Compaction keeps it when it drops records.
func (b Batch) LastOffsetDelta() int32 { return int32(binary.BigEndian.Uint32(b[atLastDelta:])) }

// LastOffset is the offset of the last record that the batch was made with.
func (b Batch) LastOffset() Offset { return b.BaseOffset() + Offset(b.LastOffsetDelta()) }

// NextOffset is the offset after the batch.
func (b Batch) NextOffset() Offset { return b.LastOffset() + 1 }

// BaseTimestamp is what the records' timestamps are relative to, ms.
func (b Batch) BaseTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[atBaseTimestamp:])) }

// MaxTimestamp is the largest timestamp in the batch, ms, or the append time; −1 for none.
func (b Batch) MaxTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[atMaxTimestamp:])) }

// ProducerID is the producer, −1 for none.
func (b Batch) ProducerID() ProducerID { return ProducerID(binary.BigEndian.Uint64(b[atProducerID:])) }

// HasProducer says that the batch came from an idempotent producer.
func (b Batch) HasProducer() bool { return b.ProducerID() > NoProducerID }

// ProducerEpoch is the producer's epoch, −1 for none.
func (b Batch) ProducerEpoch() ProducerEpoch {
	return ProducerEpoch(binary.BigEndian.Uint16(b[atProducerEpoch:]))
}

// BaseSequence is the sequence of the first record, −1 for none.
func (b Batch) BaseSequence() Sequence { return Sequence(binary.BigEndian.Uint32(b[atBaseSequence:])) }

// LastSequence is the sequence of the last record, −1 for none. After 2³¹−1 comes 0.
func (b Batch) LastSequence() Sequence {
	base, delta := b.BaseSequence(), b.LastOffsetDelta()
	if base < 0 || delta < 0 {
		return NoSequence
	}
	return base.Add(delta)
}

// Count is the number of records.
func (b Batch) Count() int32 { return int32(binary.BigEndian.Uint32(b[atCount:])) }

// RecordsBytes are the records as stored: one after the other, or the compressed blob.
func (b Batch) RecordsBytes() []byte { return b[HeaderSize:] }

// ComputeCRC returns the checksum that the bytes should have.
func (b Batch) ComputeCRC() uint32 { return crc32.Checksum(b[atAttributes:], castagnoli) }

// CheckCRC returns ErrCorrupt if the stored checksum is not that of the bytes.
func (b Batch) CheckCRC() error {
	if want, got := b.CRC(), b.ComputeCRC(); want != got {
		return corrupt("CRC is %08x, the bytes have %08x", want, got)
	}
	return nil
}

// SetBaseOffset writes the base offset. The CRC does not cover it.
func (b Batch) SetBaseOffset(o Offset) { binary.BigEndian.PutUint64(b[atBaseOffset:], uint64(o)) }

// SetPartitionLeaderEpoch writes the leader epoch. The CRC does not cover it.
func (b Batch) SetPartitionLeaderEpoch(e Epoch) {
	binary.BigEndian.PutUint32(b[atLeaderEpoch:], uint32(e))
}

// SetMaxTimestamp writes timestamp type and largest timestamp (ms), and a new CRC if either changed.
func (b Batch) SetMaxTimestamp(t TimestampType, ms int64) {
	attributes := b.Attributes() &^ attrLogAppendTime
	if t == LogAppendTime {
		attributes |= attrLogAppendTime
	}
	if attributes == b.Attributes() && ms == b.MaxTimestamp() {
		return
	}
	binary.BigEndian.PutUint64(b[atMaxTimestamp:], uint64(ms))
	b.SetAttributes(attributes)
}

// SetAttributes writes the flag bits and a new CRC.
func (b Batch) SetAttributes(attributes int16) {
	binary.BigEndian.PutUint16(b[atAttributes:], uint16(attributes))
	b.updateCRC()
}

func (b Batch) updateCRC() { binary.BigEndian.PutUint32(b[atCRC:], b.ComputeCRC()) }

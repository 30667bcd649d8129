// Package record reads, checks, builds and compresses record batches, the unit in which records are sent, stored and copied.
//
// The bytes are Kafka's RecordBatch, version 2 (magic 2). Everything is big-endian; the records are zig-zag varints.
//
//	0        8        12      16 17    21     23      27         35         43     51     53      57     61
//	┌────────┬────────┬───────┬──┬─────┬──────┬───────┬──────────┬──────────┬──────┬──────┬───────┬──────┬─────────
//	│ base   │ length │leader │ 2│ CRC │ attr │ last  │ base     │ max      │ prod.│ prod.│ base  │record│ records
//	│ offset │        │epoch  │  │ 32C │      │ delta │ timestamp│ timestamp│ id   │ epoch│ seq.  │count │ or a blob
//	└────────┴────────┴───────┴──┴─────┴──────┴───────┴──────────┴──────────┴──────┴──────┴───────┴──────┴─────────
//	  i64      i32      i32    i8  u32   i16    i32     i64        i64        i64    i16    i32     i32
//
// length counts the bytes after itself. The CRC covers byte 21 to the end, so a leader writes base offset and leader
// epoch without a new CRC. Attributes: bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon.
//
// A record inside:
//
//	┌────────┬──────┬────────────────┬──────────────┬─────────┬─────┬───────────┬───────┬─────────────┬──────────┐
//	│ varint │ i8   │ varlong        │ varint       │ varint  │     │ varint    │       │ varint      │ headers  │
//	│ length │ attr │ timestampDelta │ offsetDelta  │ key len │ key │ value len │ value │ header count│ …        │
//	└────────┴──────┴────────────────┴──────────────┴─────────┴─────┴───────────┴───────┴─────────────┴──────────┘
//
// Nouns: a [Batch] is a view of bytes that somebody else owns; a [Scanner] walks batches in a file; [Validate] says
// whether a produced batch may be stored and what must be rewritten first; [Codecs] owns the compressors; an
// [Iterator] yields each [Record]; a [Builder] makes batches.
//
// Nothing here allocates by a length that it has only read: a length is compared with the bytes that are there first.
// What a batch unpacks to is never held whole to check or rebuild it: memory follows what was sent.
package record

import "math"

// Offset numbers a record within its partition, from 0.
type Offset int64

// Epoch is a leader epoch; −1 means none.
type Epoch int32

// ProducerID names an idempotent producer; −1 means none.
type ProducerID int64

// ProducerEpoch fences earlier incarnations of a producer; −1 means none.
type ProducerEpoch int16

// Sequence numbers the records of a producer in a partition, 0 to 2³¹−1, after which comes 0 again; −1 means none.
type Sequence int32

// Position is a byte position in a segment file.
type Position int64

// Values that mean "none" in a batch header.
const (
	NoEpoch         Epoch         = -1
	NoProducerID    ProducerID    = -1
	NoProducerEpoch ProducerEpoch = -1
	NoSequence      Sequence      = -1
	NoTimestamp     int64         = -1
)

// Add returns the sequence that lies n records further; after 2³¹−1 comes 0. n must not be negative.
func (s Sequence) Add(n int32) Sequence {
	if s > math.MaxInt32-Sequence(n) {
		return Sequence(n) - (math.MaxInt32 - s) - 1
	}
	return s + Sequence(n)
}

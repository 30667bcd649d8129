package log

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/keeplog/keeplog/record"
)

// MarksFile is the name of the marks in a data directory.
const MarksFile = "keeplog-marks"

// MarkBytes is the size of a mark, half a slot.
const MarkBytes = 128

// Mark is what the disk surely has of a log. It only ever lags.
//
//	          ┌──────────┬───────────┬───────┬─────────┬──────────┬────────┬───────────┬───────────┬─────────┬───────┬────────┬─────────────┬───────┬─────────┬───────┬─────────┐
//	mark      │ topic id │ partition │ epoch │ segment │ position │ offset │ log start │ entries   │ counter │ flags │ epochs │ lost        │ moves │ lineage │ zeros │ CRC-32C │
//	          │ 16       │ i32       │ i32   │ i64     │ i64      │ i64    │ i64       │ i32   i32 │ u64     │ u32   │ u32    │ i64 i64 i64 │ u32   │ u64     │ 8     │ u32     │
//	          └──────────┴───────────┴───────┴─────────┴──────────┴────────┴───────────┴───────────┴─────────┴───────┴────────┴─────────────┴───────┴─────────┴───────┴─────────┘
//	          0          16          20      24        32         40       48          56          64        72      76       80            104     108       116     124
//	                                                                                                    big-endian; the CRC covers the 124 bytes before it
type Mark struct {
	TopicID   [16]byte
	Partition int32
	// Epoch is the leader epoch of the last durable batch, −1 for none.
	Epoch record.Epoch
	// Segment and Position: all bytes below are durable. Offset is the offset there.
	Segment  record.Offset
	Position record.Position
	Offset   record.Offset
	// LogStart is the log start offset.
	LogStart record.Offset
	// OffsetEntries and TimeEntries of the segment's indexes are durable.
	OffsetEntries, TimeEntries int32
	// Counter grows with every write to the file: of the marks of a partition, and of a slot, the one with the largest counts.
	Counter uint64
	// NoProducers says that no idempotent producer is known up to Offset.
	NoProducers bool
	// Unplaced says that Position is not known: it is where the batch at Offset begins, or the end.
	Unplaced bool
	// Cutting says that a truncation to here was about to happen: the file may be longer on the disk.
	Cutting bool
	// Gaps says that offsets may be missing between a segment's last batch and the next segment: the log was adopted from
	// Kafka, or went on behind lost data. Otherwise segments follow each other without a gap.
	Gaps bool
	// EpochsCRC is the CRC-32C of leader-epoch-checkpoint as it was written last, 0 for not known.
	EpochsCRC uint32
	// Lost are offsets whose records the disk has lost, and behind which the log went on.
	Lost Lost
	Movement
}

// Movement is what a mark tells of moves between data directories.
type Movement struct {
	// Future says that the log is a copy under way: the partition's replica is in another directory.
	Future bool
	// Moves grows each time the replica goes to another directory: of two of one lineage that have it, the one with the larger number counts.
	Moves uint32
	// Lineage is a random number that a log gets when it begins, and takes along when it moves; 0 for not known: the mark is older than
	// that. Logs of one partition and of two lineages began apart, or went on apart: neither has what the other has.
	Lineage uint64
	// Leaving says that the copy in another directory was about to take over, Arrived that the log has taken over and nothing is marked
	// since. A start that finds one of both without the other gives it a lineage of its own before it goes on.
	Leaving, Arrived bool
}

const (
	flagUsed     = 1 << 0 // else the slot is free: the partition named was here
	flagNoProds  = 1 << 1
	flagUnplaced = 1 << 2
	flagGaps     = 1 << 3
	flagCutting  = 1 << 4
	flagFuture   = 1 << 5
	flagLeaving  = 1 << 6
	flagArrived  = 1 << 7
)

// castagnoli is the CRC of all our formats.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode writes a mark.
func (m *Mark) Encode() [MarkBytes]byte { return m.encode(flagUsed) }

// encode writes a mark, of a slot that is in use or free.
func (m *Mark) encode(used uint32) (b [MarkBytes]byte) {
	copy(b[:], m.TopicID[:])
	be := binary.BigEndian
	be.PutUint32(b[16:], uint32(m.Partition))
	be.PutUint32(b[20:], uint32(m.Epoch))
	be.PutUint64(b[24:], uint64(m.Segment))
	be.PutUint64(b[32:], uint64(m.Position))
	be.PutUint64(b[40:], uint64(m.Offset))
	be.PutUint64(b[48:], uint64(m.LogStart))
	be.PutUint32(b[56:], uint32(m.OffsetEntries))
	be.PutUint32(b[60:], uint32(m.TimeEntries))
	be.PutUint64(b[64:], m.Counter)
	be.PutUint32(b[72:], used|bit(m.NoProducers, flagNoProds)|bit(m.Unplaced, flagUnplaced)|bit(m.Gaps, flagGaps)|bit(m.Cutting, flagCutting)|
		bit(m.Future, flagFuture)|bit(m.Leaving, flagLeaving)|bit(m.Arrived, flagArrived))
	be.PutUint32(b[76:], m.EpochsCRC)
	be.PutUint64(b[80:], uint64(m.Lost.From))
	be.PutUint64(b[88:], uint64(m.Lost.To))
	be.PutUint64(b[96:], uint64(m.Lost.Count))
	be.PutUint32(b[104:], m.Moves)
	be.PutUint64(b[108:], m.Lineage)
	be.PutUint32(b[124:], crc32.Checksum(b[:124], castagnoli))
	return b
}

func bit(set bool, flag uint32) uint32 {
	if set {
		return flag
	}
	return 0
}

// DecodeMark reads a mark. ok is false for one of a free slot; ErrBadFile for one whose CRC does not match.
func DecodeMark(b []byte) (m Mark, ok bool, err error) {
	if len(b) < MarkBytes {
		return m, false, fmt.Errorf("%w: mark of %d bytes", ErrBadFile, len(b))
	}
	if [MarkBytes]byte(b[:MarkBytes]) == [MarkBytes]byte{} {
		return m, false, nil
	}
	be := binary.BigEndian
	if got := be.Uint32(b[124:]); got != crc32.Checksum(b[:124], castagnoli) {
		return m, false, fmt.Errorf("%w: the mark's CRC is %08x", ErrBadFile, got)
	}
	copy(m.TopicID[:], b)
	m.Partition, m.Epoch = int32(be.Uint32(b[16:])), record.Epoch(be.Uint32(b[20:]))
	m.Segment, m.Position = record.Offset(be.Uint64(b[24:])), record.Position(be.Uint64(b[32:]))
	m.Offset, m.LogStart = record.Offset(be.Uint64(b[40:])), record.Offset(be.Uint64(b[48:]))
	m.OffsetEntries, m.TimeEntries = int32(be.Uint32(b[56:])), int32(be.Uint32(b[60:]))
	m.Counter = be.Uint64(b[64:])
	flags := be.Uint32(b[72:])
	m.NoProducers, m.Unplaced = flags&flagNoProds != 0, flags&flagUnplaced != 0
	m.Gaps, m.Cutting, m.Future = flags&flagGaps != 0, flags&flagCutting != 0, flags&flagFuture != 0
	m.EpochsCRC = be.Uint32(b[76:])
	m.Lost = Lost{record.Offset(be.Uint64(b[80:])), record.Offset(be.Uint64(b[88:])), int64(be.Uint64(b[96:]))}
	m.Leaving, m.Arrived = flags&flagLeaving != 0, flags&flagArrived != 0
	m.Moves, m.Lineage = be.Uint32(b[104:]), be.Uint64(b[108:])
	return m, flags&flagUsed != 0, nil
}

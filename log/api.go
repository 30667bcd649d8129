package log

import (
	"errors"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/record"
)

var (
	// ErrOffsetOutOfRange says that the offset is below the log start or above the log end.
	ErrOffsetOutOfRange = errors.New("log: offset out of range")
	// ErrCorruptBatch says that the batch which holds the offset does not match its checksum; others can be read.
	ErrCorruptBatch = errors.New("log: corrupt batch")
	// ErrBatchTooLarge says that the batch is larger than a segment may be.
	ErrBatchTooLarge = errors.New("log: batch is larger than segment.bytes")
	// ErrOutOfOrderSequence says that the producer's sequence is not the next one.
	ErrOutOfOrderSequence = errors.New("log: out of order sequence")
	// ErrProducerFenced says that the producer's epoch is older than the one known here.
	ErrProducerFenced = errors.New("log: producer epoch is fenced")
	// ErrEpochFenced says that the leader epoch is older than the log's.
	ErrEpochFenced = errors.New("log: leader epoch is fenced")
	// ErrReserve says that the file system is full, or below the reserve; nothing was written. It heals by itself.
	ErrReserve = errors.New("log: no space above the disk reserve")
	// ErrOffline says that the data directory failed (an fsync error or EIO): nothing more is acknowledged from it.
	ErrOffline = errors.New("log: data directory is offline")
	// ErrStorage says that the file system refused this one call, as when there are no descriptors left; another may succeed.
	ErrStorage = errors.New("log: the file system refused")
	// ErrMoved says that the log was taken over by its copy in another data directory, which has everything.
	ErrMoved = errors.New("log: moved to another data directory")
	// ErrClosed says that the log or its directory was closed or deleted.
	ErrClosed = errors.New("log: closed")
	// ErrInUse says that the directory has a log of that name open: one that is on its way out, or just made.
	ErrInUse = errors.New("log: a log of that name is open")
	// ErrTopicID says that the directory belongs to another topic id than the one asked for.
	ErrTopicID = errors.New("log: directory belongs to another topic id")
	// ErrNotContiguous says that a replicated batch does not start at or after the log end.
	ErrNotContiguous = errors.New("log: batch does not follow the log end")
	// ErrNewerVersion says that a file was written by a later version of keeplog; it is not corrupt.
	ErrNewerVersion = errors.New("log: file of a newer version")
)

// Config is the effective configuration of the topic.
type Config = config.Topic

// Identity names a partition. A zero TopicID means not known; it is then taken from the directory.
type Identity struct {
	Topic     string
	Partition int32
	TopicID   [16]byte
}

// Append is one batch for the leader's log.
type Append struct {
	// Batch is one whole, validated batch in the caller's buffer: base offset, leader epoch and what the topic's time type
	// asks are patched in place. The log does not keep it after the return.
	Batch record.Batch
	// Checked is what record.Validate said; it is applied to the batch. A batch that needs a rebuild is rebuilt before.
	Checked record.Result
	// Epoch is the leader epoch under which the caller leads; stamped into the batch.
	Epoch record.Epoch
	// NowMs is wall time in ms since 1970.
	NowMs int64
}

// Appended says where a batch went.
type Appended struct {
	// Base and Last are the offsets of its first and last record.
	Base, Last record.Offset
	// AppendTimeMs is the time given to the records of a LogAppendTime topic in ms, or for a Duplicate the largest timestamp of
	// the batch that was stored, else −1.
	AppendTimeMs int64
	// LogStart is the log start offset at that moment.
	LogStart record.Offset
	// Duplicate says that the producer sent the batch before: Base and Last are those of the first time, nothing was
	// written. It is durable once the stable end passes Last, like any other.
	Duplicate bool
}

// ReadRequest asks for a span.
type ReadRequest struct {
	// Offset is the first record wanted.
	Offset record.Offset
	// Bound is where reading ends, exclusive; the caller read it once (high watermark, or the written end for followers).
	Bound record.Offset
	// MaxBytes cuts the span, perhaps inside a batch.
	MaxBytes int
	// AtLeastOne gives the whole first batch even above MaxBytes.
	AtLeastOne bool
	// Abandon is called, once and without a lock, if a truncation waited 10 s for the span: its bytes are about to be cut,
	// so its connection must be closed. May be nil.
	Abandon func()
}

// TimeOffset is the answer to a lookup by time.
type TimeOffset struct {
	Offset    record.Offset
	Timestamp int64 // ms
	Epoch     record.Epoch
}

// Missing says that the disk lost data: the log ended at End, its mark says that everything below Mark was durable.
type Missing struct {
	End, Mark record.Offset
}

// ProducerState is one idempotent producer as this log knows it.
type ProducerState struct {
	ID               record.ProducerID
	Epoch            record.ProducerEpoch
	LastSequence     record.Sequence
	LastTimestamp    int64 // ms
	CoordinatorEpoch int32 // −1: none
	TxnStartOffset   record.Offset
	LastOffset       record.Offset
	LastOffsetDelta  int32
	Batches          int // how many batches the duplicate window holds, at most 5
}

// SegmentInfo describes a segment.
type SegmentInfo struct {
	Base   record.Offset
	Size   int64 // bytes of the log file
	Active bool
}

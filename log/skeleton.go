package log

import (
	"log/slog"
	"time"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// DirOptions are what a data directory is opened with.
type DirOptions struct {
	FS     vfs.FS
	Path   string
	Logger *slog.Logger
	Codecs *record.Codecs
	// Now is the wall clock.
	Now func() time.Time
	// Committer makes appended batches durable; nil means a coordinator of the directory's own, in the background.
	Committer Committer
	// OnOffline is called once, on its own goroutine, when the directory goes offline.
	OnOffline func(error)
	Settings  Settings
}

// Settings are the numbers of a data directory. Zero means the default.
type Settings struct {
	Reserve                int64         // bytes kept free; default max(2 %, 256 MiB), at most an eighth of the file system
	RecoveryThreads        int           // logs opened at a time by OpenLogs; default 4
	RetentionCheckInterval time.Duration // log.retention.check.interval.ms; default 5 min
	ProducerExpiration     time.Duration // producer.id.expiration.ms; default 24 h
	MarkInterval           time.Duration // default 10 s
	MarkBytes              int64         // default 64 MiB
	CheckpointInterval     time.Duration // Kafka's recovery point and log start checkpoints; default 60 s
	WatermarkInterval      time.Duration // replication-offset-checkpoint; default 5 s
	OpenSegments           int           // sealed segments kept open; default 1,024
	FlushConcurrency       int           // default 16
	TruncateWait           time.Duration // how long a truncation waits for readers; default 10 s
	Seed                   uint64        // of the jitter of segment.ms
}

// Meta is meta.properties: whose directory this is.
type Meta struct {
	ClusterID   string
	NodeID      int32
	DirectoryID string            // 22 characters
	Other       map[string]string // further keys, kept as they are
}

// Found is a partition's directory on disk.
type Found struct {
	Identity // TopicID is zero where partition.metadata is missing or unreadable
	Path     string
}

// Committer makes logs durable. Dirty says that l has something to flush; it must not block on I/O. The implementation
// then calls l.Flush, one call at a time for a log, soon.
type Committer interface {
	Dirty(l *Log)
	// Close flushes what is left and stops; Dirty after Close does nothing.
	Close() error
}

// Dir is one data directory.
type Dir struct{}

// OpenDir locks and reads the directory, creating it where it is missing. The clean-stop marker is removed, durably, before it returns.
func OpenDir(o DirOptions) (*Dir, error) { panic("not yet") }

// Meta returns meta.properties; ok is false for a fresh directory.
func (d *Dir) Meta() (m Meta, ok bool) { panic("not yet") }

// SetMeta writes meta.properties, durably.
func (d *Dir) SetMeta(m Meta) error { panic("not yet") }

// CleanStop says that the directory was closed cleanly before this opening, and the broker epoch of that time (−1 none).
func (d *Dir) CleanStop() (brokerEpoch int64, clean bool) { panic("not yet") }

// SetBrokerEpoch sets what the next clean-stop marker will hold.
func (d *Dir) SetBrokerEpoch(epoch int64) { panic("not yet") }

// Found lists the partitions' directories that were there at the opening.
func (d *Dir) Found() []Found { panic("not yet") }

// OpenLog opens or creates a partition's log, with recovery. An error concerns this log only.
func (d *Dir) OpenLog(id Identity, c Config) (*Log, error) { panic("not yet") }

// OpenRequest is one log for OpenLogs.
type OpenRequest struct {
	Identity
	Config Config
}

// OpenResult is the answer to one OpenRequest.
type OpenResult struct {
	Identity
	Log *Log
	Err error
}

// OpenLogs opens many logs at once, the largest first. done is called as each is ready, from several goroutines.
func (d *Dir) OpenLogs(reqs []OpenRequest, done func(OpenResult)) { panic("not yet") }

// DeleteLog takes the log out: its mark is freed, its directory renamed, and removed later by Tick.
func (d *Dir) DeleteLog(l *Log) error { panic("not yet") }

// DeleteFound does the same for a directory that is not open.
func (d *Dir) DeleteFound(f Found) error { panic("not yet") }

// Quarantine renames a directory that no image knows; the server never deletes it.
func (d *Dir) Quarantine(f Found, why string) error { panic("not yet") }

// Usage is the space of the file system.
func (d *Dir) Usage() (vfs.Usage, error) { panic("not yet") }

// Writable is ErrReserve below the reserve, ErrOffline after a failure, else nil. It is cheap.
func (d *Dir) Writable() error { panic("not yet") }

// Offline is non-nil after a failed fsync or EIO.
func (d *Dir) Offline() error { panic("not yet") }

// Tick does the periodic work: call it about every second with the wall time.
func (d *Dir) Tick(now time.Time) { panic("not yet") }

// Close stops cleanly.
func (d *Dir) Close() error { panic("not yet") }

// Log is one partition's log.
type Log struct{}

// Identity names the partition.
func (l *Log) Identity() Identity { panic("not yet") }

// Path is the partition's directory.
func (l *Log) Path() string { panic("not yet") }

// Append adds the leader's batch. It returns when the batch is written, not flushed.
func (l *Log) Append(a Append) (Appended, error) { panic("not yet") }

// AppendReplica adds a leader's batches as they are; a partial one at the end is left out, batches below the end are
// skipped, and batches of a leader epoch above epoch are dropped with what follows them.
func (l *Log) AppendReplica(batches []byte, epoch record.Epoch) (Appended, error) { panic("not yet") }

// StartOffset is the log start offset.
func (l *Log) StartOffset() record.Offset { panic("not yet") }

// WrittenEnd is the log end offset: after the last batch in the page cache.
func (l *Log) WrittenEnd() record.Offset { panic("not yet") }

// StableEnd is what acknowledgements wait for.
func (l *Log) StableEnd() record.Offset { panic("not yet") }

// OnProgress sets the function that is called, without a lock, after the stable end or the start moved or the log went
// offline. Set it once, before use.
func (l *Log) OnProgress(f func()) { panic("not yet") }

// Err is non-nil when the log is offline (ErrOffline) or closed (ErrClosed).
func (l *Log) Err() error { panic("not yet") }

// Read finds a span of one segment. The caller must Release it.
func (l *Log) Read(r ReadRequest) (*Span, error) { panic("not yet") }

// Span is a range of one segment's log file. Its bytes do not change until Release.
type Span struct{}

// Len is the number of bytes.
func (s *Span) Len() int { panic("not yet") }

// ReadAt reads at off within the span.
func (s *Span) ReadAt(p []byte, off int64) (int, error) { panic("not yet") }

// File is the descriptor and the position in it, for sendfile. ok is false where there is none.
func (s *Span) File() (fd uintptr, pos int64, ok bool) { panic("not yet") }

// NextOffset is the offset after the last whole batch of the span.
func (s *Span) NextOffset() (record.Offset, error) { panic("not yet") }

// Release lets the span go. Call it exactly once; it is safe on nil.
func (s *Span) Release() { panic("not yet") }

// Available is about how many bytes lie between from and bound, and whether they are in one segment.
func (l *Log) Available(from, bound record.Offset) (bytes int64, sameSegment bool) { panic("not yet") }

// OffsetForTime finds the first record with a timestamp of at least ts, below bound.
func (l *Log) OffsetForTime(ts int64, bound record.Offset) (TimeOffset, bool, error) {
	panic("not yet")
}

// MaxTimestamp finds the record with the largest timestamp below bound.
func (l *Log) MaxTimestamp(bound record.Offset) (TimeOffset, bool, error) { panic("not yet") }

// EndOffsetForEpoch answers OffsetForLeaderEpoch: the largest known epoch ≤ e and its end; (−1, −1) when unknown.
func (l *Log) EndOffsetForEpoch(e record.Epoch) (record.Epoch, record.Offset) { panic("not yet") }

// LatestEpoch is the newest leader epoch of the log, −1 for none.
func (l *Log) LatestEpoch() record.Epoch { panic("not yet") }

// EpochAt is the leader epoch of the record at o, −1 when unknown.
func (l *Log) EpochAt(o record.Offset) record.Epoch { panic("not yet") }

// StartEpoch says that this broker leads under e from the written end on.
func (l *Log) StartEpoch(e record.Epoch) error { panic("not yet") }

// TruncateTo removes everything from o on, durably.
func (l *Log) TruncateTo(o record.Offset) error { panic("not yet") }

// TruncateFullyAndStartAt empties the log and lets it begin at o, durably.
func (l *Log) TruncateFullyAndStartAt(o record.Offset) error { panic("not yet") }

// AdvanceStart moves the log start (DeleteRecords), durably before it returns. ErrOffsetOutOfRange above the stable end.
func (l *Log) AdvanceStart(o record.Offset) error { panic("not yet") }

// Producers lists the idempotent producers known here, by id.
func (l *Log) Producers() []ProducerState { panic("not yet") }

// Size is the bytes of all segments.
func (l *Log) Size() int64 { panic("not yet") }

// Config is the configuration in use.
func (l *Log) Config() Config { panic("not yet") }

// SetConfig replaces the configuration.
func (l *Log) SetConfig(c Config) { panic("not yet") }

// Segments describes the segments, oldest first.
func (l *Log) Segments() []SegmentInfo { panic("not yet") }

// MissingData says that the log ended below its mark when it was opened: the disk lost durable data. StartEpoch accepts that: the next offset is then the
// mark's, a gap.
func (l *Log) MissingData() (Missing, bool) { panic("not yet") }

// SetWatermark tells the high watermark, which is what retention is bounded by and what replication-offset-checkpoint keeps.
func (l *Log) SetWatermark(o record.Offset) { panic("not yet") }

// CheckpointedWatermark is the high watermark that was read at the opening, 0 for none.
func (l *Log) CheckpointedWatermark() record.Offset { panic("not yet") }

// Flush makes everything written so far durable; the work of a Committer.
func (l *Log) Flush() error { panic("not yet") }

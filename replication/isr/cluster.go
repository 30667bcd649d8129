package isr

import (
	"time"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
)

// Changer asks the controller to change a partition's in-sync set. ChangeISR does not block; done is called once, from any
// goroutine. The error wraps ErrIneligible where the controller has surely refused the change because a member of the new
// set may not be in it; every other error leaves open whether the change was made.
type Changer interface {
	ChangeISR(c Change, done func(Changed, error))
}

// Member is a broker of an in-sync set and the broker epoch under which the leader knows it.
type Member struct {
	ID    metadata.BrokerID
	Epoch int64
}

// Change is the in-sync set that a leader wants, as AlterPartition carries it (KIP-497, KIP-903).
type Change struct {
	Topic       metadata.TopicID
	Name        string // of the topic
	Partition   int32
	LeaderEpoch record.Epoch
	// PartitionEpoch is what the leader's view is based on: the change is refused when the partition has moved on.
	PartitionEpoch int32
	InSync         []Member
	// Recovered is always true: a leader that was elected outside of the in-sync set has nothing to repair before it says so.
	Recovered bool
}

// Changed is the partition after a change.
type Changed struct {
	Leader         metadata.BrokerID
	LeaderEpoch    record.Epoch
	PartitionEpoch int32
	InSync         []metadata.BrokerID
	Unclean        bool
}

// Cluster reaches the other brokers.
type Cluster interface {
	// Fetch sends a fetch to a broker and calls done once with its answer or an error, from any goroutine, perhaps before it
	// returns. It does not wait for the network. Fetches of one broker are sent in the order of the calls, on one connection,
	// without waiting for earlier answers, and done is called in that order too. r and all in it stay unchanged.
	Fetch(leader metadata.BrokerID, r *RemoteFetch, done func(*RemoteFetched, error))
}

// RemoteFetch is a follower's fetch (Fetch version 17 with the private tag for the stable end).
type RemoteFetch struct {
	Replica     metadata.BrokerID
	BrokerEpoch int64
	// SessionID and SessionEpoch as KIP-227 has them: 0 and 0 open a session.
	SessionID, SessionEpoch int32
	MaxWait                 time.Duration
	MinBytes, MaxBytes      int
	Partitions              []RemotePartition
	// Forgotten leave the session, before Partitions come in: one that is in both begins anew.
	Forgotten []PartitionRef
	// Abandon is the leader's: it closes the follower's connection when a truncation waited too long for a span.
	Abandon func()
}

// PartitionRef names a partition.
type PartitionRef struct {
	Topic     metadata.TopicID
	Partition int32
}

// RemotePartition is one partition of a RemoteFetch.
type RemotePartition struct {
	PartitionRef
	LeaderEpoch record.Epoch
	// Offset is the follower's written end, LastFetchedEpoch the epoch of its last batch (−1: it has none), Stable its stable
	// end, LogStart its log start.
	Offset           record.Offset
	LastFetchedEpoch record.Epoch
	Stable           record.Offset
	LogStart         record.Offset
	MaxBytes         int
}

// RemoteFetched is the answer. Release gives its buffer back, once, when the records are not needed any more; it may be nil.
type RemoteFetched struct {
	// Err is ErrSession where the leader does not know the session or expects another epoch of it; else that of the whole
	// request.
	Err        error
	SessionID  int32
	Partitions []RemoteRecords
	Release    func()
}

// RemoteRecords is one partition of a RemoteFetched: partitions without news are left out.
type RemoteRecords struct {
	PartitionRef
	// Err is a sentinel of this package or of log. With log.ErrOffsetOutOfRange LogStart still holds.
	Err                     error
	HighWatermark, LogStart record.Offset
	// DivergingEpoch is −1, or where the follower's log has left the leader's.
	DivergingEpoch record.Epoch
	DivergingEnd   record.Offset
	// Records are whole batches, perhaps cut behind the last one; they alias the answer's buffer.
	Records []byte
}

// Sent is the memory of a replica's fetch session for one partition: how far the leader has sent. The zero value has
// nothing; it belongs to the session, and FetchReplica reads and writes it.
type Sent struct {
	end   record.Offset
	epoch record.Epoch
	valid bool
}

// ReplicaFetch is one partition's part of a follower's fetch, on the leader.
type ReplicaFetch struct {
	Replica     metadata.BrokerID
	BrokerEpoch int64
	// Offset is the follower's written end, Stable its stable end (−1: not said, Offset counts), LogStart its log start (−1:
	// not said).
	Offset, Stable, LogStart record.Offset
	// LastFetchedEpoch is the epoch of the follower's last batch, −1 for none.
	LastFetchedEpoch record.Epoch
	// LeaderEpoch is what the follower takes for the current one.
	LeaderEpoch record.Epoch
	MaxBytes    int
	// AtLeastOne gives the whole first batch even above MaxBytes.
	AtLeastOne bool
	// Again says that the fetch was parked and is only read again: it is no news of the follower.
	Again bool
	Sent  *Sent
	// Abandon closes the follower's connection when a truncation waited too long for its span.
	Abandon func()
}

// Limits are the settings of replication.
type Limits struct {
	// LagTime is replica.lag.time.max.ms.
	LagTime time.Duration
	// FetchWait, FetchBytes, PartitionBytes, MinBytes and Backoff are replica.fetch.wait.max.ms, .response.max.bytes,
	// .max.bytes, .min.bytes and .backoff.ms.
	FetchWait                            time.Duration
	FetchBytes, PartitionBytes, MinBytes int
	Backoff                              time.Duration
	// LeaderRate and FollowerRate are leader- and follower.replication.throttled.rate in bytes a second; 0 or less is none.
	LeaderRate, FollowerRate int64
	// MoveRate is replica.alter.log.dirs.io.max.bytes.per.second for all moves between data directories; 0 or less is none.
	MoveRate int64
	// RackAware says that replica.selector.class is the one that prefers replicas in the consumer's rack (KIP-392).
	RackAware bool
}

// DefaultLimits are Kafka's defaults.
func DefaultLimits() Limits {
	return Limits{
		LagTime: 30 * time.Second, FetchWait: 500 * time.Millisecond, FetchBytes: 10 << 20, PartitionBytes: 1 << 20, MinBytes: 1,
		Backoff: time.Second,
	}
}

package api

import (
	"context"
	"errors"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/replication/isr"
)

// Images gives the newest metadata that this broker has applied. *quorum.Quorum is one.
type Images interface{ Image() *metadata.Image }

// Replicas are the partitions of this broker. FromISR makes one.
type Replicas interface {
	// Partition fails with isr.ErrUnknownPartition where this broker holds no such replica.
	Partition(id metadata.TopicID, partition int32) (Partition, error)
	// All calls f for each partition here until it returns false.
	All(f func(id log.Identity, p Partition) bool)
	// Place asks that the replica of a partition lies in a data directory; see isr.Replicas. The id is zero where no such topic is known.
	Place(topic string, id metadata.TopicID, partition int32, dir string) error
}

// FetchResult is what a partition gives to a fetch. Span is nil without records; it is released by the receiver.
type FetchResult struct {
	HighWatermark, LastStable, LogStart record.Offset
	Span                                Span
	// DivergingEpoch is −1 unless the caller's log has left the leader's there.
	DivergingEpoch record.Epoch
	DivergingEnd   record.Offset
	// Redirect says that the caller should read from the replica on Preferred.
	Redirect  bool
	Preferred metadata.BrokerID
	Err       error
}

// Partition is one partition on this broker; *isr.Partition has these methods.
type Partition interface {
	Produce(r isr.ProduceRequest, done func(isr.ProduceResult))
	Fetch(r isr.FetchRequest) FetchResult
	Pending(offset record.Offset, epoch record.Epoch) (bytes int64, now bool)
	Watch(w *isr.Watch, watcher isr.Watcher)
	ListOffset(ts int64, epoch record.Epoch) (log.TimeOffset, error)
	EndOffsetForEpoch(asked, current record.Epoch) (record.Epoch, record.Offset, error)
	DeleteRecords(offset record.Offset, timeout time.Duration, done func(record.Offset, error))
	Producers() ([]log.ProducerState, error)
	Leadership() isr.Leadership
	Ends() (isr.Ends, bool)
	Lost() (log.Lost, bool)
	Future() (isr.Future, bool)
}

// Controller takes decisions about the cluster; *controller.Controller is one. Items carry their own errors; the error beside them is that
// of the whole request.
type Controller interface {
	CreateTopics(context.Context, controller.CreateTopicsRequest) ([]controller.CreatedTopic, error)
	DeleteTopics(context.Context, []controller.TopicRef) ([]controller.DeletedTopic, error)
	CreatePartitions(context.Context, controller.CreatePartitionsRequest) ([]controller.GrownTopic, error)
	IncrementalAlterConfigs(context.Context, controller.AlterConfigsRequest) ([]controller.AlteredResource, error)
	AlterConfigs(context.Context, controller.ReplaceConfigsRequest) ([]controller.AlteredResource, error)
	AllocateProducerIDs(ctx context.Context, id metadata.BrokerID, epoch int64) (controller.ProducerIDs, error)
	ElectLeaders(context.Context, controller.ElectLeadersRequest) ([]controller.Elected, error)
	Reassign(context.Context, controller.ReassignRequest) ([]controller.Reassigned, error)
	ListReassignments([]controller.TopicPartition) ([]controller.OngoingReassignment, error)
	UpdateFeatures(context.Context, controller.UpdateFeaturesRequest) error
	UnregisterBroker(context.Context, metadata.BrokerID) error

	// What brokers ask. now is monotonic.
	RegisterBroker(context.Context, controller.Registration) (epoch int64, err error)
	Heartbeat(ctx context.Context, now time.Duration, h controller.Heartbeat) (controller.HeartbeatAnswer, error)
	AlterPartition(context.Context, controller.AlterPartitionRequest) ([]controller.ISRChanged, error)
}

// Cluster reaches the controller where another node is it.
type Cluster interface {
	// Leading says that this node takes the decisions now.
	Leading() bool
	// Forward carries a request, a frame without its size, to the controller, and returns the answer, a frame without its size. It looks for
	// a controller until ctx ends. ErrLeading says that by now this node is it; any other error, that no answer came.
	Forward(ctx context.Context, c *Conn, frame []byte) ([]byte, error)
	// Heard says that a broker has reported over a connection, whose end is that of conn.
	Heard(conn context.Context, id metadata.BrokerID, epoch int64)
	// Now is the monotonic clock of the controller.
	Now() time.Duration
}

// ErrLeading says that this node is the controller: there is nobody to forward to.
var ErrLeading = errors.New("api: this node is the controller")

// QuorumMember is a member of the metadata quorum as the leader sees it.
type QuorumMember struct {
	ID        metadata.BrokerID
	Directory metadata.DirectoryID
	Voter     bool
	// LogEnd is the index behind its last entry, −1 when it is not known. Fetched and CaughtUp are when it last answered and when it last
	// had everything, in milliseconds since 1970, −1 when that is not known.
	LogEnd, Fetched, CaughtUp int64
	Endpoint                  metadata.Endpoint
}

// QuorumStatus is the metadata quorum. Leader is −1 where none is known.
type QuorumStatus struct {
	Leader        metadata.BrokerID
	Term          uint64
	HighWatermark int64
	Members       []QuorumMember
}

// Quorum is the members of the metadata log.
type Quorum interface {
	QuorumStatus() QuorumStatus
	// AddVoter makes a node that runs a voter; RemoveVoter takes one out. The directory tells a disk that was replaced from the one before.
	AddVoter(context.Context, QuorumMember) error
	RemoveVoter(ctx context.Context, id metadata.BrokerID, directory metadata.DirectoryID) error
	// Submit commits, as the leader, a command that another broker made: see quorum.Quorum.
	Submit(ctx context.Context, command []byte) (metadata.Outcome, error)
}

// What AddVoter and RemoveVoter say.
var (
	ErrDuplicateVoter = errors.New("api: the node is a voter")
	ErrVoterNotFound  = errors.New("api: no such voter")
)

// LogDir is one data directory of this broker.
type LogDir struct {
	Path string
	// Err is not nil when the directory is offline.
	Err error
	// Total and Usable are bytes of the file system, −1 when unknown.
	Total, Usable int64
}

// Dirs lists the data directories.
type Dirs interface{ LogDirs() []LogDir }

// Settings is the configuration that this broker runs with.
type Settings interface {
	// Static is what the process was started with.
	Static() *config.Broker
	// Live is Static with the dynamic settings laid over it.
	Live() *config.Broker
}

// FromISR gives the partitions of a *isr.Replicas.
func FromISR(r *isr.Replicas) Replicas { return replicas{r} }

type replicas struct{ r *isr.Replicas }

func (r replicas) Partition(id metadata.TopicID, partition int32) (Partition, error) {
	p, err := r.r.Partition(id, partition)
	if err != nil {
		return nil, err
	}
	return replica{p}, nil
}

func (r replicas) All(f func(id log.Identity, p Partition) bool) {
	r.r.All(func(id log.Identity, p *isr.Partition) bool { return f(id, replica{p}) })
}

func (r replicas) Place(topic string, id metadata.TopicID, partition int32, dir string) error {
	return r.r.Place(topic, id, partition, dir)
}

type replica struct{ *isr.Partition }

func (p replica) Fetch(r isr.FetchRequest) FetchResult {
	f := p.Partition.Fetch(r)
	res := FetchResult{
		HighWatermark: f.HighWatermark, LastStable: f.LastStable, LogStart: f.LogStart,
		DivergingEpoch: f.DivergingEpoch, DivergingEnd: f.DivergingEnd, Err: f.Err,
		Redirect: f.Redirect, Preferred: f.Preferred,
	}
	if f.Span != nil {
		res.Span = f.Span
	}
	return res
}

package group

import (
	"context"
	"log/slog"
	"time"

	"github.com/keeplog/keeplog/metadata"
)

// Proposer puts records into the metadata log.
type Proposer interface {
	// ProposeOffsets returns when the records are committed, or refused. It may be called from many goroutines, and gathers
	// what they bring. An error other than a refusal means that nobody knows whether they will be.
	ProposeOffsets(ctx context.Context, records []metadata.Record) (index uint64, err error)
	// Applied is the index up to which this broker's tables and image are; WaitApplied waits for one.
	Applied() uint64
	WaitApplied(ctx context.Context, index uint64) error
}

// Clock is the time, given from outside.
type Clock interface {
	Now() time.Time
	// After calls f on a goroutine of its own after d, unless stop was called before.
	After(d time.Duration, f func()) (stop func())
}

// Options are what a Coordinator is made of.
type Options struct {
	Node  metadata.BrokerID
	Log   Proposer
	Clock Clock
	// Settings are those of a group now; called for each request, so it must be cheap.
	Settings func(group string) *Settings
	// Limits bound what waits.
	Limits Limits
	// Leased gives the sending time of the last acknowledged heartbeat, and whether its lease still runs.
	Leased func() (sent time.Time, held bool)
	NewID  func() string
	Logger *slog.Logger
}

// Limits bound the memory of a coordinator. Zero fields mean the defaults.
type Limits struct {
	// Groups is the number of groups of this broker; Pending the bytes that wait to be committed, all groups together.
	Groups, Pending int
}

// Coordinator serves the groups of this broker's shards. Its methods may be called from any goroutine and do not wait; done
// is called exactly once, from any goroutine, perhaps before the method returns.
type Coordinator struct{ o Options }

// New makes a coordinator that owns no shard yet.
func New(o Options) *Coordinator { return &Coordinator{o: o} }

// Changed tells the coordinator of a new image: shards that come are loaded, those that go are dropped.
func (c *Coordinator) Changed(delta *metadata.Delta, img *metadata.Image) {}

// Close answers everybody who waits with ErrNotCoordinator and stops.
func (c *Coordinator) Close() {}

// JoinGroup is answered when the group's next generation is there, which may take minutes. The returned function says that the
// client has gone.
func (c *Coordinator) JoinGroup(r *JoinGroupRequest, done func(*JoinGroupResponse)) (gone func()) {
	done(&JoinGroupResponse{Err: ErrNotCoordinator})
	return func() {}
}

// SyncGroup is answered when the leader has brought the assignment.
func (c *Coordinator) SyncGroup(r *SyncGroupRequest, done func(*SyncGroupResponse)) {
	done(&SyncGroupResponse{Err: ErrNotCoordinator})
}

// Heartbeat extends a member's session.
func (c *Coordinator) Heartbeat(r *HeartbeatRequest, done func(*HeartbeatResponse)) {
	done(&HeartbeatResponse{Err: ErrNotCoordinator})
}

// LeaveGroup takes members out.
func (c *Coordinator) LeaveGroup(r *LeaveGroupRequest, done func(*LeaveGroupResponse)) {
	done(&LeaveGroupResponse{Err: ErrNotCoordinator})
}

// ConsumerHeartbeat joins, keeps or leaves a consumer group.
func (c *Coordinator) ConsumerHeartbeat(r *ConsumerHeartbeatRequest, done func(*ConsumerHeartbeatResponse)) {
	done(&ConsumerHeartbeatResponse{Err: ErrNotCoordinator})
}

// CommitOffsets is answered when the offsets are committed.
func (c *Coordinator) CommitOffsets(r *CommitOffsetsRequest, done func(*CommitOffsetsResponse)) {
	done(&CommitOffsetsResponse{Err: ErrNotCoordinator})
}

// FetchOffsets reads committed offsets of one group.
func (c *Coordinator) FetchOffsets(r *FetchOffsetsRequest, done func(*FetchOffsetsResponse)) {
	done(&FetchOffsetsResponse{Err: ErrNotCoordinator})
}

// DeleteOffsets forgets committed offsets.
func (c *Coordinator) DeleteOffsets(r *DeleteOffsetsRequest, done func(*DeleteOffsetsResponse)) {
	done(&DeleteOffsetsResponse{Err: ErrNotCoordinator})
}

// DeleteGroup removes a group that has no members, with its offsets.
func (c *Coordinator) DeleteGroup(group string, done func(error)) { done(ErrNotCoordinator) }

// DescribeGroup describes a classic group.
func (c *Coordinator) DescribeGroup(group string, done func(*GroupDescription)) {
	done(&GroupDescription{Group: group, Err: ErrNotCoordinator})
}

// DescribeConsumerGroup describes a consumer group.
func (c *Coordinator) DescribeConsumerGroup(group string, done func(*ConsumerGroupDescription)) {
	done(&ConsumerGroupDescription{Group: group, Err: ErrNotCoordinator})
}

// ListGroups lists the groups of this broker, ErrLoading among them while a shard is not loaded.
func (c *Coordinator) ListGroups(f Filter) *ListGroupsResponse {
	return &ListGroupsResponse{}
}

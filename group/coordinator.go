package group

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keeplog/keeplog/metadata"
)

// Proposer puts records into the metadata log.
type Proposer interface {
	// ProposeOffsets calls then, on another goroutine, when it is known what became of the records: results are in their order, index is
	// where they are. Proposals take effect in the order of the calls; one without records is answered after those before. After an error
	// nobody knows whether the records are committed. It may be called from many goroutines, and gathers what they bring. When the log is
	// closed then may not be called any more.
	ProposeOffsets(records []metadata.Record, then func(index uint64, results []metadata.Result, err error))
	// Applied is the index up to which this broker's tables are, also when nothing else has changed; WaitApplied waits for one.
	Applied() uint64
	WaitApplied(ctx context.Context, index uint64) error
}

// Clock is the time, given from outside.
type Clock interface {
	// Now never goes back.
	Now() time.Time
	// After calls f on a goroutine of its own after d, unless stop was called before.
	After(d time.Duration, f func()) (stop func())
}

// Options are what a Coordinator is made of.
type Options struct {
	Node   metadata.BrokerID
	Log    Proposer
	Tables *metadata.Tables
	Clock  Clock
	// Settings are those of a group now. It is called for each request, so it must be cheap.
	Settings func(group string) *Settings
	// Leased gives the sending time of the last heartbeat that the controller acknowledged, by Clock, and whether its lease
	// still runs. A node alone gives the time and true.
	Leased func() (sent time.Time, held bool)
	// NewID makes a random UUID in Kafka's text form.
	NewID func() string
	// ExpiryInterval is the time between two looks for offsets to expire (offsets.retention.check.interval.ms).
	// CommitTimeout is how long an answer waits for its commit (offsets.commit.timeout.ms). Both as they are now.
	ExpiryInterval, CommitTimeout func() time.Duration
	// Limits bound what waits.
	Limits Limits
	Logger *slog.Logger
}

// Limits bound the memory of a coordinator. Zero fields mean the defaults.
type Limits struct {
	// Members is the bytes that members of all groups may take (256 MiB): beyond it nobody joins.
	Members int64
	// Pending is the bytes that wait to be committed, all groups together (12 MiB): beyond it nothing is taken in. It is less than what
	// the metadata log lets wait, for what that refuses costs a shard its state.
	Pending int64
}

// Coordinator serves the groups of this broker's shards. Its methods may be called from any goroutine and do not wait; done
// is called exactly once, from any goroutine, perhaps before the method returns.
type Coordinator struct {
	o      Options
	img    atomic.Pointer[metadata.Image]
	shards [metadata.Shards]shard
	timers timers
	// members and pending are the bytes that Limits bound.
	members, pending atomic.Int64
	// tickets are never given twice: who has gone may say so after its group was read again.
	tickets atomic.Uint64
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// New makes a coordinator that owns no shard yet: see Changed.
func New(o Options) *Coordinator {
	if o.Limits.Members == 0 {
		o.Limits.Members = 256 << 20
	}
	if o.Limits.Pending == 0 {
		o.Limits.Pending = 12 << 20
	}
	c := &Coordinator{o: o}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.timers.clock = o.Clock
	c.img.Store(metadata.New())
	for i := range c.shards {
		s := &c.shards[i]
		s.c, s.number = c, int32(i)
		s.expiry.ring = s.expire
	}
	return c
}

// Close answers everybody who waits with ErrNotCoordinator and stops. Changed does nothing any more.
func (c *Coordinator) Close() {
	c.cancel()
	for i := range c.shards {
		t := c.shards[i].begin()
		t.drop(ErrNotCoordinator)
		t.end()
	}
	c.timers.close()
	c.running.Wait()
}

// Changed tells the coordinator of a new image whose entry is in the tables: shards that come are loaded, on a goroutine, and
// those that go are dropped. Calls must be in the order of the images.
func (c *Coordinator) Changed(delta *metadata.Delta, img *metadata.Image) {
	c.img.Store(img)
	for _, change := range delta.Shards { // most entries are commits, and change none
		c.shards[change.Shard].follow(img.Shard(change.Shard))
	}
	topics := len(delta.Topics) > 0 || len(delta.Brokers) > 0
	all := false
	var settings map[string]bool
	for _, change := range delta.Configs {
		switch change.Resource.Kind {
		case metadata.ResourceGroup:
			if settings == nil {
				settings = map[string]bool{}
			}
			settings[change.Resource.Name] = true
		case metadata.ResourceBroker:
			all = true
		}
	}
	if topics || all || settings != nil {
		for i := range c.shards {
			c.shards[i].nudge(topics, func(group string) bool { return all || settings[group] })
		}
	}
}

// waiter is who gets an answer: a response, or an error in its place.
type waiter func(response any, err error)

// waits makes a waiter of a request's done.
func waits[T any](done func(*T), refusal func(error) *T) waiter {
	return func(response any, err error) {
		if err != nil {
			done(refusal(err))
			return
		}
		done(response.(*T))
	}
}

// step brings a request to the core of its group.
func (c *Coordinator) step(name string, request any, w waiter) Ticket {
	t, g, err := c.open(name)
	if err != nil {
		w(nil, err)
		return 0
	}
	defer t.end()
	if c.pending.Load() > c.o.Limits.Pending {
		t.fail(w, ErrNotAvailable)
		t.settle(g)
		return 0
	}
	return t.step(g, request, w)
}

// JoinGroup is answered when the group's next generation is there, which may take minutes. The function that it returns says
// that the client has gone.
func (c *Coordinator) JoinGroup(r *JoinGroupRequest, done func(*JoinGroupResponse)) (gone func()) {
	w := waits(done, func(err error) *JoinGroupResponse { return refuseJoin(r.MemberID, err) })
	if c.members.Load() > c.o.Limits.Members {
		w(nil, ErrNotAvailable)
		return func() {}
	}
	ticket := c.step(r.Group, r, w)
	return func() {
		if ticket != 0 {
			c.gone(r.Group, ticket)
		}
	}
}

// gone tells the group that nobody reads a ticket's answer.
func (c *Coordinator) gone(group string, ticket Ticket) {
	if t, g, err := c.open(group); err == nil {
		if _, waits := g.waiting[ticket]; waits {
			t.step(g, Gone{ticket}, nil)
		} else {
			t.settle(g)
		}
		t.end()
	}
}

// SyncGroup is answered when the leader has brought the assignment.
func (c *Coordinator) SyncGroup(r *SyncGroupRequest, done func(*SyncGroupResponse)) {
	c.step(r.Group, r, waits(done, func(err error) *SyncGroupResponse { return &SyncGroupResponse{Err: err} }))
}

// Heartbeat extends a member's session. While the group is being loaded nobody can be missed, so everybody is welcome.
func (c *Coordinator) Heartbeat(r *HeartbeatRequest, done func(*HeartbeatResponse)) {
	c.step(r.Group, r, waits(done, func(err error) *HeartbeatResponse {
		if err == ErrLoading { //nolint:errorlint // it is ours, and never wrapped
			err = nil
		}
		return &HeartbeatResponse{Err: err}
	}))
}

// LeaveGroup takes members out.
func (c *Coordinator) LeaveGroup(r *LeaveGroupRequest, done func(*LeaveGroupResponse)) {
	c.step(r.Group, r, waits(done, func(err error) *LeaveGroupResponse { return &LeaveGroupResponse{Err: err} }))
}

// ConsumerHeartbeat joins, keeps or leaves a consumer group.
func (c *Coordinator) ConsumerHeartbeat(r *ConsumerHeartbeatRequest, done func(*ConsumerHeartbeatResponse)) {
	w := waits(done, func(err error) *ConsumerHeartbeatResponse {
		return &ConsumerHeartbeatResponse{Err: err, MemberID: r.MemberID, MemberEpoch: r.MemberEpoch}
	})
	if r.MemberEpoch == 0 && c.members.Load() > c.o.Limits.Members {
		w(nil, ErrNotAvailable)
		return
	}
	c.step(r.Group, r, w)
}

// DescribeGroup describes a classic group. What is not committed yet is not shown before it is.
func (c *Coordinator) DescribeGroup(group string, done func(*GroupDescription)) {
	t, g, err := c.open(group)
	if err != nil {
		done(&GroupDescription{Group: group, Err: err})
		return
	}
	defer t.end()
	defer t.settle(g)
	d := g.core.DescribeClassic()
	if !g.known() && g.core.Disposable() {
		d = &GroupDescription{Group: group, State: "Dead", Err: ErrGroupNotFound, Message: "Group " + group + " not found."}
	}
	t.answer(g, waits(done, func(err error) *GroupDescription { return &GroupDescription{Group: group, Err: err} }), d)
}

// DescribeConsumerGroup describes a consumer group.
func (c *Coordinator) DescribeConsumerGroup(group string, done func(*ConsumerGroupDescription)) {
	t, g, err := c.open(group)
	if err != nil {
		done(&ConsumerGroupDescription{Group: group, Err: err})
		return
	}
	defer t.end()
	defer t.settle(g)
	d := g.core.DescribeConsumer(t.env(g))
	if !g.known() && g.core.Disposable() {
		d = &ConsumerGroupDescription{Group: group, Err: ErrGroupNotFound, Message: "Group " + group + " not found."}
	}
	t.answer(g, waits(done, func(err error) *ConsumerGroupDescription {
		return &ConsumerGroupDescription{Group: group, Err: err}
	}), d)
}

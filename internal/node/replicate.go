package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/internal/grid"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/peer"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/replication/isr"
)

// changes are in-sync sets that leaders here want changed. What gathers while a request is under way goes with the next.
type changes struct {
	mu   sync.Mutex
	list []change // guarded by mu
	more chan struct{}
}

type change struct {
	isr.Change
	done func(isr.Changed, error)
}

// ChangeISR asks for one change; done is called when the controller has answered.
func (c *cluster) ChangeISR(ch isr.Change, done func(isr.Changed, error)) {
	c.changes.mu.Lock()
	c.changes.list = append(c.changes.list, change{ch, done})
	c.changes.mu.Unlock()
	select {
	case c.changes.more <- struct{}{}:
	default:
	}
}

// change sends changes until the node stops; then they end with an error.
func (c *cluster) change() {
	ctx, cancel := c.node.untilStop()
	defer cancel()
	for {
		select {
		case <-c.node.stop:
			c.changes.fail(context.Canceled)
			return
		case <-c.changes.more:
		}
		if list := c.changes.take(); len(list) > 0 {
			c.send(ctx, list)
		}
	}
}

func (q *changes) take() []change {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.list
	q.list = nil
	return list
}

func (q *changes) fail(err error) {
	for _, ch := range q.take() {
		ch.done(isr.Changed{}, err)
	}
}

// send asks the controller once. Changes of one partition are never under way twice, so that the answers are told apart by partition.
func (c *cluster) send(ctx context.Context, list []change) {
	ctx, cancel := context.WithTimeout(ctx, decideTime)
	defer cancel()
	answers := make(map[isr.PartitionRef]outcome, len(list))
	err := c.ask(ctx, func(ctx context.Context) error { return c.changeHere(ctx, list, answers) }, func(ctx context.Context, id metadata.BrokerID) error {
		return c.changeThere(ctx, id, list, answers)
	})
	for _, ch := range list {
		a, ok := answers[isr.PartitionRef{Topic: ch.Topic, Partition: ch.Partition}]
		switch {
		case err != nil:
			ch.done(isr.Changed{}, err)
		case !ok:
			ch.done(isr.Changed{}, fmt.Errorf("node: the controller did not answer for partition %d of topic %s", ch.Partition, ch.Name))
		default:
			ch.done(a.changed, a.err)
		}
	}
}

type outcome struct {
	changed isr.Changed
	err     error
}

func (c *cluster) changeHere(ctx context.Context, list []change, answers map[isr.PartitionRef]outcome) error {
	req := controller.AlterPartitionRequest{Broker: c.node.cfg.NodeID(), Epoch: c.epoch.Load()}
	for i := range list {
		ch := &list[i]
		out := controller.ISRChange{
			Topic: ch.Topic, Partition: ch.Partition, LeaderEpoch: int32(ch.LeaderEpoch), PartitionEpoch: ch.PartitionEpoch, Recovered: ch.Recovered,
		}
		for _, m := range ch.InSync {
			out.ISR = append(out.ISR, controller.InSyncMember(m))
		}
		req.Changes = append(req.Changes, out)
	}
	done, err := c.node.control.AlterPartition(ctx, req)
	for i := range done {
		d := &done[i]
		o := outcome{err: d.Err}
		if errors.Is(d.Err, controller.ErrIneligibleReplica) {
			o.err = fmt.Errorf("%w: %w", isr.ErrIneligible, d.Err)
		}
		o.changed = isr.Changed{Leader: d.Leader, LeaderEpoch: record.Epoch(d.LeaderEpoch), PartitionEpoch: d.PartitionEpoch, InSync: d.ISR, Unclean: d.Unclean}
		answers[isr.PartitionRef{Topic: d.Topic, Partition: d.Partition}] = o
	}
	return err
}

func (c *cluster) changeThere(ctx context.Context, id metadata.BrokerID, list []change, answers map[isr.PartitionRef]outcome) error {
	req := make([]peer.ISRChange, 0, len(list))
	for i := range list {
		ch := &list[i]
		out := peer.ISRChange{
			PartitionRef: peer.PartitionRef{Topic: ch.Topic, Partition: ch.Partition}, LeaderEpoch: ch.LeaderEpoch, PartitionEpoch: ch.PartitionEpoch,
			Recovering: !ch.Recovered,
		}
		for _, m := range ch.InSync {
			out.ISR = append(out.ISR, peer.ISRMember(m))
		}
		req = append(req, out)
	}
	done, err := c.peer.AlterPartition(ctx, id, req)
	for i := range done {
		d := &done[i]
		o := outcome{err: d.Err}
		if errors.Is(d.Err, peer.ErrIneligibleReplica) {
			o.err = fmt.Errorf("%w: %w", isr.ErrIneligible, d.Err)
		}
		o.changed = isr.Changed{Leader: d.Leader, LeaderEpoch: d.LeaderEpoch, PartitionEpoch: d.PartitionEpoch, InSync: d.ISR, Unclean: d.Recovering}
		answers[isr.PartitionRef(d.PartitionRef)] = o
	}
	return err
}

// fetchPatience is how much longer than it may wait a follower's fetch is waited for.
const fetchPatience = 5 * time.Second

// Fetch sends a follower's fetch.
func (c *cluster) Fetch(leader metadata.BrokerID, r *isr.RemoteFetch, done func(*isr.RemoteFetched, error)) {
	// Fetches that wait for nothing come back when others do. A wait is sent in ms.
	wait := (grid.Until(r.MaxWait, 0) + time.Millisecond - 1).Truncate(time.Millisecond)
	req := &peer.FetchRequest{
		SessionID: r.SessionID, SessionEpoch: r.SessionEpoch, MaxWait: wait, MinBytes: int32(r.MinBytes), MaxBytes: clamp(r.MaxBytes),
		Partitions: make([]peer.FetchPartition, 0, len(r.Partitions)),
	}
	for i := range r.Partitions {
		p := &r.Partitions[i]
		req.Partitions = append(req.Partitions, peer.FetchPartition{
			PartitionRef: peer.PartitionRef(p.PartitionRef), LeaderEpoch: p.LeaderEpoch, LastEpoch: p.LastFetchedEpoch, Offset: p.Offset, Stable: p.Stable,
			LogStart: p.LogStart, MaxBytes: clamp(p.MaxBytes),
		})
	}
	for _, f := range r.Forgotten {
		req.Forgotten = append(req.Forgotten, peer.PartitionRef(f))
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.MaxWait+fetchPatience)
	c.peer.StartFetch(ctx, leader, req, func(resp *peer.FetchResponse, err error) {
		cancel()
		switch {
		case errors.Is(err, peer.ErrFetchSession):
			done(&isr.RemoteFetched{Err: isr.ErrSession}, nil)
		case err != nil:
			done(nil, err)
		default:
			done(remoteFetched(resp), nil)
		}
	})
}

func clamp(n int) int32 { return int32(min(n, math.MaxInt32)) }

func remoteFetched(resp *peer.FetchResponse) *isr.RemoteFetched {
	out := &isr.RemoteFetched{SessionID: resp.SessionID, Release: resp.Release, Partitions: make([]isr.RemoteRecords, 0, len(resp.Partitions))}
	for i := range resp.Partitions {
		p := &resp.Partitions[i]
		out.Partitions = append(out.Partitions, isr.RemoteRecords{
			PartitionRef: isr.PartitionRef(p.PartitionRef), Err: fetchError(p.Err), HighWatermark: p.HighWatermark, LogStart: p.LogStart,
			DivergingEpoch: p.DivergingEpoch, DivergingEnd: p.DivergingEnd, Records: p.Records,
		})
	}
	return out
}

// fetchErrors are what a leader can say of a partition, as isr calls it.
var fetchErrors = []struct{ from, to error }{
	{peer.ErrNotLeader, isr.ErrNotLeader},
	{peer.ErrFencedLeaderEpoch, isr.ErrFencedLeaderEpoch},
	{peer.ErrUnknownLeaderEpoch, isr.ErrUnknownLeaderEpoch},
	{peer.ErrUnknownTopicOrPartition, isr.ErrUnknownPartition},
	{peer.ErrUnknownTopicID, isr.ErrUnknownPartition},
	{peer.ErrInconsistentTopicID, isr.ErrInconsistentTopicID},
	{peer.ErrOffsetOutOfRange, log.ErrOffsetOutOfRange},
	{peer.ErrCorruptMessage, log.ErrCorruptBatch},
	{peer.ErrStorage, isr.ErrOffline},
	{peer.ErrOffsetNotAvailable, isr.ErrOffsetNotAvailable},
}

func fetchError(err error) error {
	if err == nil {
		return nil
	}
	for _, e := range fetchErrors {
		if errors.Is(err, e.from) {
			return fmt.Errorf("%w: %w", e.to, err)
		}
	}
	return err
}

// limits are the settings of replication in force.
func (s *settings) limits() isr.Limits {
	live := s.Live()
	rate := func(key string) int64 {
		if live.Get(key).Null {
			return 0
		}
		return live.Int64(key)
	}
	return isr.Limits{
		LagTime: live.Duration("replica.lag.time.max.ms"), FetchWait: live.Duration("replica.fetch.wait.max.ms"),
		FetchBytes: live.Int("replica.fetch.response.max.bytes"), PartitionBytes: live.Int("replica.fetch.max.bytes"),
		MinBytes: live.Int("replica.fetch.min.bytes"), Backoff: live.Duration("replica.fetch.backoff.ms"),
		LeaderRate: rate("leader.replication.throttled.rate"), FollowerRate: rate("follower.replication.throttled.rate"),
		MoveRate:  rate("replica.alter.log.dirs.io.max.bytes.per.second"),
		RackAware: rackAware(live),
	}
}

// rackAware says that replica.selector.class is the one that is served.
func rackAware(b *config.Broker) bool {
	return strings.HasSuffix(b.String("replica.selector.class"), "RackAwareReplicaSelector")
}

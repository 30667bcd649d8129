package isr

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/internal/invariant"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
)

// This file is the shell around the leader's core: it hands events in under the partition's mutex and carries out what comes
// of them without it.

// tickEvery is how often leaders look for replicas that have fallen behind, and for changes to be tried again.
const tickEvery = time.Second

// effects is what is to be done, without the partition's mutex, after an event of the leader's core, beside the answers to
// waiters: those stay out of it, for they lie on the stack.
type effects struct {
	deletes []deleteWaiter
	low     record.Offset
	change  *proposal
	epoch   record.Epoch
	moved   bool // the high watermark
}

// deleteWaiter is a DeleteRecords that waits until the live replicas have moved their log start.
type deleteWaiter struct {
	offset   record.Offset
	deadline time.Time // monotonic
	done     func(record.Offset, error)
}

// coreNow is the core's time; a leader without others has no use for it.
func (p *Partition) coreNow() time.Duration {
	if len(p.lead.others) == 0 {
		return 0
	}
	return p.replicas.now()
}

// settle gathers what follows from an event of the core, and adds the waiters that it answers to out. Called with mu held,
// while this broker leads.
func (p *Partition) settle(moved bool, now time.Duration, out []waiter) (effects, []waiter) {
	l := p.lead
	e := effects{epoch: l.epoch, moved: moved}
	if moved {
		p.publish(l.highWatermark)
		out = p.reachedAll(out)
	}
	if r := p.role.Load(); r != nil && r.leads && (r.enough != l.enough() || !slices.Equal(r.inSync, l.inSync)) {
		next := *r
		next.enough, next.inSync = l.enough(), l.inSync
		p.role.Store(&next)
	}
	if len(p.deletes) > 0 {
		e.low = l.lowWatermark()
		e.deletes = p.deleted(e.low)
	}
	if p.replicas.opts.Changer != nil {
		e.change = l.propose(p.log.WrittenEnd(), now)
	}
	return e, out
}

// deleted takes out who waits for a low watermark that is reached. Called with mu held.
func (p *Partition) deleted(low record.Offset) (done []deleteWaiter) {
	p.deletes = slices.DeleteFunc(p.deletes, func(d deleteWaiter) bool {
		if low < d.offset {
			return false
		}
		done = append(done, d)
		return true
	})
	return done
}

// perform carries effects out. Called without mu.
func (p *Partition) perform(e effects) {
	for _, d := range e.deletes {
		d.done(e.low, nil)
	}
	if e.change != nil {
		p.sendChange(e.epoch, e.change)
	}
}

func (p *Partition) sendChange(epoch record.Epoch, c *proposal) {
	p.replicas.opts.Logger.Info("asking for another in-sync set", "event", "isr.change", "topic", p.id.Topic, "partition", p.id.Partition,
		"epoch", epoch, "in_sync", fmt.Sprint(c.inSync))
	p.replicas.opts.Changer.ChangeISR(Change{
		Topic: p.id.TopicID, Name: p.id.Topic, Partition: p.id.Partition, LeaderEpoch: epoch, PartitionEpoch: c.partitionEpoch,
		InSync: c.inSync, Recovered: true,
	}, func(to Changed, err error) { p.changeAnswered(epoch, c.attempt, to, err) })
}

// event hands one event to the core, if this broker leads in epoch (NoEpoch: in any), and carries out what comes of it.
func (p *Partition) event(epoch record.Epoch, f func(l *leader, now time.Duration) bool) (led bool) {
	p.mu.Lock()
	l := p.lead
	if l == nil || epoch != record.NoEpoch && l.epoch != epoch || p.closed != nil {
		p.mu.Unlock()
		return false
	}
	now := p.replicas.now()
	p.refresh()
	e, out := p.settle(f(l, now), now, nil)
	p.mu.Unlock()
	answerAll(out)
	p.perform(e)
	if e.moved {
		p.notifyAll()
	}
	return true
}

// refresh takes the brokers' states from a newer image. Called with mu held.
func (p *Partition) refresh() {
	img := p.replicas.image.Load()
	if img == nil || img == p.members {
		return
	}
	p.members = img
	p.lead.members = membersOf(img, p.lead.assigned)
}

// membersOf are the brokers among some that may be in an in-sync set.
func membersOf(img *metadata.Image, ids []metadata.BrokerID) []Member {
	out := make([]Member, 0, len(ids))
	for _, id := range ids {
		if b, ok := img.Broker(id); ok && !b.Fenced && !b.ShuttingDown {
			out = append(out, Member{ID: id, Epoch: b.Epoch})
		}
	}
	return out
}

func (p *Partition) changeAnswered(epoch record.Epoch, attempt int, c Changed, err error) {
	if err != nil {
		p.replicas.opts.Logger.Info("the in-sync set was not changed", "event", "isr.change.failed", "topic", p.id.Topic,
			"partition", p.id.Partition, "epoch", epoch, "error", err)
	}
	forgot := false
	p.event(epoch, func(l *leader, now time.Duration) bool {
		moved := l.answered(attempt, c, err, now)
		forgot = p.askAgain()
		return moved
	})
	if forgot {
		p.notifyAll()
	}
}

// askAgain has the sessions ask for what the core has forgotten, and says whether there is something; they are to be notified then. Called with
// mu held, while this broker leads.
func (p *Partition) askAgain() bool {
	forgot := p.lead.forgot(-1)
	if forgot {
		p.forgets.Add(1)
	}
	return forgot
}

// tick is called each tickEvery, with replica.lag.time.max.ms.
func (p *Partition) tick(lag time.Duration) {
	r := p.role.Load()
	if r == nil || !r.leads {
		return
	}
	end := p.log.WrittenEnd()
	p.event(record.NoEpoch, func(l *leader, now time.Duration) bool {
		l.lag = lag
		return l.tick(end, now)
	})
}

// notifyAll tells clients and replicas that wait.
func (p *Partition) notifyAll() {
	p.watchers.notify()
	p.followers.notify()
}

// WatchReplica is Watch for the session of a replica: it is told of written batches too, before they are flushed.
func (p *Partition) WatchReplica(w *Watch, watcher Watcher) { p.followers.add(w, watcher) }

// FetchReplica answers a follower: it reads up to the written end, and unless the fetch is only read again takes it as news
// of the follower. A fetch that diverges is none: what the follower says of its log does not concern the leader's.
func (p *Partition) FetchReplica(r ReplicaFetch) FetchResult {
	failed := failedFetch(nil)
	role, err := p.leading(r.LeaderEpoch)
	if err == nil {
		err = p.checkReplica(role, &r)
	}
	if err != nil {
		failed.Err = err
		return failed
	}
	res := failed
	res.HighWatermark, res.LogStart = p.HighWatermark(), p.log.StartOffset()
	if r.LastFetchedEpoch >= 0 {
		epoch, end := p.endOf(role, r.LastFetchedEpoch)
		if end >= 0 && (epoch < r.LastFetchedEpoch || end < r.Offset || unknown(&r, p.log.LatestEpoch(), end, res.LogStart)) {
			if invariant.Seeded(invariant.DivergingCounts) {
				p.progressOf(&r, role.epoch)
			}
			*r.Sent = Sent{}
			res.DivergingEpoch, res.DivergingEnd = epoch, end
			return res
		}
	}
	end := p.log.WrittenEnd()
	if r.Offset < res.LogStart || r.Offset > end {
		failed.Err, failed.LogStart = log.ErrOffsetOutOfRange, res.LogStart
		return failed
	}
	if !r.Again && !p.progressOf(&r, role.epoch) {
		failed.Err = ErrNotLeader
		return failed
	}
	res.HighWatermark = p.HighWatermark()
	res.Span, err = p.readForReplica(&r, role, end)
	if res.Held = errors.Is(err, errHeld); err != nil && !res.Held {
		failed.Err = p.translateRead(err)
		return failed
	}
	res.LastStable = res.HighWatermark
	return res
}

// forgot says that this leader does not know any more what a replica has told.
func (p *Partition) forgot(replica metadata.BrokerID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lead != nil && p.lead.forgot(replica)
}

// leading is the role, if this broker leads and the caller knows the epoch.
func (p *Partition) leading(epoch record.Epoch) (*role, error) {
	if err := p.checkLeader(epoch); err != nil {
		return nil, err
	}
	r := p.role.Load()
	if r == nil || !r.leads || epoch >= 0 && epoch != r.epoch { // it has changed meanwhile
		return nil, ErrNotLeader
	}
	return r, nil
}

// checkReplica says whether a fetch may come from where it says: a replica of the partition, in its newest incarnation.
func (p *Partition) checkReplica(role *role, r *ReplicaFetch) error {
	if r.Replica == p.replicas.opts.BrokerID || !slices.Contains(role.replicas, r.Replica) {
		return fmt.Errorf("%w: broker %d", ErrNotReplica, r.Replica)
	}
	if img := p.replicas.image.Load(); img != nil {
		if b, ok := img.Broker(r.Replica); ok && r.BrokerEpoch < b.Epoch {
			return fmt.Errorf("%w: broker %d fetches with epoch %d, and is registered with %d", ErrStaleReplica, r.Replica, r.BrokerEpoch, b.Epoch)
		}
	}
	return nil
}

// endOf is the largest epoch at or below asked that the leader knows, and its end.
func (p *Partition) endOf(role *role, asked record.Epoch) (record.Epoch, record.Offset) {
	if asked == role.epoch {
		return asked, p.log.WrittenEnd()
	}
	return p.log.EndOffsetForEpoch(asked)
}

// unknown says that a follower with records ends where this log begins, in an epoch of which nothing is left here, where end is its
// end as far as that is known: whether the follower's records are those that were deleted here nobody can say. It has to begin anew.
func unknown(r *ReplicaFetch, newest record.Epoch, end, logStart record.Offset) bool {
	return r.LastFetchedEpoch < newest && end <= logStart && r.Offset == end && r.LogStart >= 0 && r.LogStart < r.Offset
}

// progressOf hands a fetch to the core; false where this broker does not lead in epoch any more.
func (p *Partition) progressOf(r *ReplicaFetch, epoch record.Epoch) bool {
	f := fetched{
		id: r.Replica, brokerEpoch: r.BrokerEpoch, written: r.Offset, stable: r.Stable, logStart: r.LogStart, leaderEnd: p.log.WrittenEnd(),
	}
	if f.stable < 0 {
		f.stable = f.written
	}
	return p.event(epoch, func(l *leader, now time.Duration) bool { return l.replicaFetched(f, now) })
}

// errHeld says that a throttle keeps records back.
var errHeld = errors.New("isr: held back by a throttle")

// readForReplica reads on from where the session has read to. A span without a whole batch is none.
func (p *Partition) readForReplica(r *ReplicaFetch, role *role, end record.Offset) (*log.Span, error) {
	from := r.Offset
	if s := r.Sent; s.valid && s.epoch == role.epoch && s.end > from && s.end <= end {
		from = s.end
	} else {
		*s = Sent{}
	}
	if from >= end || r.MaxBytes <= 0 {
		return nil, nil
	}
	if !p.replicas.mayServe(p, role, r.Replica) {
		return nil, errHeld
	}
	span, err := p.log.Read(log.ReadRequest{
		Offset: from, Bound: end, MaxBytes: r.MaxBytes, AtLeastOne: r.AtLeastOne, Abandon: r.Abandon,
	})
	if err != nil || span == nil {
		return nil, err
	}
	next, err := span.NextOffset()
	if err != nil || next <= from {
		span.Release()
		return nil, err
	}
	*r.Sent = Sent{end: next, epoch: role.epoch, valid: true}
	p.replicas.served(p, role, r.Replica, span.Len())
	return span, nil
}

// stateOf is what an image says of a partition, for its leader's core.
func stateOf(img *metadata.Image, part *metadata.Partition, settings config.Topic) partitionState {
	return partitionState{
		partitionEpoch: part.PartitionEpoch, inSync: part.ISR, assigned: part.Replicas, members: membersOf(img, part.Replicas),
		minInSync: settings.MinInsync(part.Settled()), unclean: part.Unclean,
	}
}

// ReplicaEnds is what a leader knows of one replica; −1 is not heard of in this epoch.
type ReplicaEnds struct {
	ID                          metadata.BrokerID
	InSync                      bool
	LogStart, StableEnd, LogEnd record.Offset
	CaughtUpAgo, HeardOfAgo     time.Duration // negative: never in this epoch
	Leader                      bool
}

// ReplicaEnds describes all replicas; nil unless this broker leads.
func (p *Partition) ReplicaEnds() []ReplicaEnds {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lead
	if l == nil {
		return nil
	}
	now := p.replicas.now()
	ago := func(t time.Duration) time.Duration {
		if t == never {
			return -1
		}
		return now - t
	}
	out := []ReplicaEnds{{
		ID: l.self, InSync: slices.Contains(l.inSync, l.self), LogStart: p.log.StartOffset(), StableEnd: l.stable, LogEnd: p.log.WrittenEnd(), Leader: true,
	}}
	for i := range l.others {
		o := &l.others[i]
		out = append(out, ReplicaEnds{
			ID: o.id, InSync: slices.Contains(l.inSync, o.id), LogStart: o.logStart, StableEnd: o.stable, LogEnd: o.written,
			CaughtUpAgo: ago(o.caughtUp), HeardOfAgo: ago(o.fetchedAt),
		})
	}
	return out
}

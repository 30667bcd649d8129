package isr

import (
	"errors"
	"slices"
	"time"

	"github.com/keeplog/keeplog/internal/invariant"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
)

// leader is the pure core of leading a partition: events in, high watermark and wanted in-sync sets out. It exists from
// election to step-down.
//
// Invariants, checked by its tests after every step:
//
//	the high watermark never falls, and stands still while |in-sync set| < min.insync.replicas
//	high watermark ≤ stable end of r, when it moves, for every r in the maximal in-sync set and every live replica that may
//	    join it and was caught up within replica.lag.time.max.ms
//	in-sync set ⊆ maximal in-sync set; they differ only while a change is pending, or newer than the image
//	a replica that is asked to join has a stable end ≥ high watermark and ≥ start of the epoch
type leader struct {
	self           metadata.BrokerID
	epoch          record.Epoch
	partitionEpoch int32
	inSync         []metadata.BrokerID // committed
	maximal        []metadata.BrokerID // and what a pending change may have added to it
	// leaving left the committed set by an answer that is newer than the image: the watermark waits for them until the image has
	// that too, and with it the min.insync.replicas by which the controller decided who of them may lead.
	leaving       []metadata.BrokerID
	assigned      []metadata.BrokerID // the effective minimum is never above their number
	members       []Member            // live brokers that may be in sync, with their registered epochs
	minInSync     int
	unclean       bool
	lag           time.Duration
	epochStart    record.Offset
	highWatermark record.Offset
	stable        record.Offset // this replica's stable end
	logStart      record.Offset // this replica's log start
	others        []other       // every other replica that is assigned or in the maximal set
	pending       *pending      // the change that is under way
	attempts      int           // changes sent so far: answers name theirs
	hold          time.Duration // no change is tried before, after a refusal
}

// other is what a leader knows of another replica in its epoch; −1 is nothing yet.
type other struct {
	id                        metadata.BrokerID
	brokerEpoch               int64 // of the incarnation that fetched last
	written, stable, logStart record.Offset
	// caughtUp is when its stable end was last known to be all of the log; never is before any time.
	caughtUp time.Duration
	// fetchedAt and leaderEnd are when it fetched last, and the log end at that moment.
	fetchedAt time.Duration
	leaderEnd record.Offset
	// forgotten: what it had told does not count any more, and it has not told it again.
	forgotten bool
}

// never lies before every time.
const never = time.Duration(-1 << 62)

// pending is a change of the in-sync set from its first attempt until the partition's epoch has moved.
type pending struct {
	base     int32 // partition epoch
	attempt  int
	set      []metadata.BrokerID
	inFlight bool
	// lost says that an attempt ended without a clear answer: it may have been, or may yet be, committed.
	lost    bool
	retryAt time.Duration
	backoff time.Duration
}

const (
	firstChangeBackoff = 50 * time.Millisecond
	lastChangeBackoff  = time.Second
)

// leaderConfig is what an election hands to the core.
type leaderConfig struct {
	self          metadata.BrokerID
	epoch         record.Epoch
	state         partitionState
	lag           time.Duration
	epochStart    record.Offset // the log's end at election
	highWatermark record.Offset // what this replica knew of it
	stable        record.Offset // this replica's own stable end
	logStart      record.Offset
	now           time.Duration
}

// partitionState is what an image says of a partition, as far as its leader's core is concerned.
type partitionState struct {
	partitionEpoch   int32
	inSync, assigned []metadata.BrokerID
	members          []Member
	minInSync        int
	unclean          bool
}

func newLeader(c leaderConfig) *leader {
	l := &leader{
		self: c.self, epoch: c.epoch, partitionEpoch: c.state.partitionEpoch, lag: c.lag, epochStart: c.epochStart,
		highWatermark: c.highWatermark, stable: c.stable, logStart: c.logStart, hold: never,
	}
	l.adopt(c.state, c.now)
	l.advance(c.now)
	return l
}

// adopt takes the image's state over; pending changes are not looked at.
func (l *leader) adopt(s partitionState, now time.Duration) {
	before := l.inSync
	l.partitionEpoch, l.inSync = s.partitionEpoch, slices.Clone(s.inSync)
	l.maximal = l.inSync
	l.unclean = s.unclean
	l.settings(s, now)
	l.welcome(before, now)
}

// welcome gives each member that was none before the whole lag time to be heard of, or to catch up: who joins under load was behind a
// moment ago, and would be taken out with the next breath.
func (l *leader) welcome(before []metadata.BrokerID, now time.Duration) {
	for i := range l.others {
		if o := &l.others[i]; slices.Contains(l.inSync, o.id) && !slices.Contains(before, o.id) {
			o.caughtUp = max(o.caughtUp, now)
		}
	}
}

// forget: whoever is not in a newer in-sync set any more, unless it is known to be this leader's own wish, may have lost what it had reported, or be
// unable to fetch. It is not waited for, nor asked back, before it has told again what it has.
func (l *leader) forget(inSync []metadata.BrokerID) {
	for i := range l.others {
		o := &l.others[i]
		if slices.Contains(l.inSync, o.id) && !slices.Contains(inSync, o.id) {
			*o = other{
				id: o.id, brokerEpoch: -1, written: -1, stable: -1, logStart: o.logStart, caughtUp: never, fetchedAt: never, leaderEnd: -1,
				forgotten: true,
			}
		}
	}
}

// settings takes over what is not the in-sync set.
func (l *leader) settings(s partitionState, now time.Duration) {
	l.assigned, l.members, l.minInSync = slices.Clone(s.assigned), s.members, s.minInSync
	kept := make([]other, 0, len(l.assigned))
	add := func(id metadata.BrokerID) {
		if id == l.self || slices.ContainsFunc(kept, func(o other) bool { return o.id == id }) {
			return
		}
		if o := l.other(id); o != nil {
			kept = append(kept, *o)
			return
		}
		kept = append(kept, other{
			id: id, brokerEpoch: -1, written: -1, stable: -1, logStart: -1, caughtUp: never, fetchedAt: never, leaderEnd: -1,
		})
	}
	for _, id := range l.assigned {
		add(id)
	}
	for _, id := range l.counted() {
		add(id)
	}
	l.others = kept
}

func (l *leader) other(id metadata.BrokerID) *other {
	for i := range l.others {
		if l.others[i].id == id {
			return &l.others[i]
		}
	}
	return nil
}

// enough says whether the in-sync set meets min.insync.replicas; more than the assigned replicas is never asked.
func (l *leader) enough() bool {
	return len(l.inSync) >= min(l.minInSync, len(l.assigned))
}

// eligible says whether a replica may be in the in-sync set: its broker is alive, does not shut down, and is the
// incarnation that fetched last.
func (l *leader) eligible(o *other) bool {
	return o.brokerEpoch >= 0 && l.registered(o.id) == o.brokerEpoch
}

// registered is the epoch of a live broker that may be in sync, −1 for none.
func (l *leader) registered(id metadata.BrokerID) int64 {
	for _, m := range l.members {
		if m.ID == id {
			return m.Epoch
		}
	}
	return -1
}

// ownStable takes this replica's stable end in and reports whether the high watermark moved.
func (l *leader) ownStable(end record.Offset, now time.Duration) bool {
	if end <= l.stable {
		return false
	}
	l.stable = end
	return l.advance(now)
}

// fetched is a fetch of another replica whose log was found to be a prefix of the leader's.
type fetched struct {
	id          metadata.BrokerID
	brokerEpoch int64
	// written and stable are its ends, stable ≤ written; logStart −1 is not told.
	written, stable, logStart record.Offset
	// leaderEnd is the leader's log end at this moment.
	leaderEnd record.Offset
}

// replicaFetched takes a fetch in and reports whether the high watermark moved. A fetch of an older incarnation is no news.
func (l *leader) replicaFetched(f fetched, now time.Duration) bool {
	o := l.other(f.id)
	if o == nil || f.brokerEpoch < o.brokerEpoch {
		return false
	}
	if f.brokerEpoch > o.brokerEpoch && o.brokerEpoch >= 0 { // it starts anew; what an earlier one reported is void
		*o = other{id: o.id, caughtUp: o.caughtUp, fetchedAt: never, leaderEnd: -1, logStart: -1}
	}
	o.brokerEpoch, o.written, o.stable, o.forgotten = f.brokerEpoch, f.written, min(f.stable, f.written), false
	if f.logStart >= 0 {
		o.logStart = f.logStart
	}
	switch {
	case o.stable >= f.leaderEnd:
		o.caughtUp = max(o.caughtUp, now)
	case o.leaderEnd >= 0 && o.stable >= o.leaderEnd:
		o.caughtUp = max(o.caughtUp, o.fetchedAt)
	}
	o.fetchedAt, o.leaderEnd = now, f.leaderEnd
	return l.advance(now)
}

// forgot says that what a replica, or with id −1 any of them, had told is forgotten: it does not tell it again by itself, where it has
// nothing new to tell.
func (l *leader) forgot(id metadata.BrokerID) bool {
	return slices.ContainsFunc(l.others, func(o other) bool { return o.forgotten && (o.id == id || id < 0) })
}

// tick notes who has all of the log, which no fetch tells while nothing is written, and reports whether the high watermark
// moved because a replica is waited for no longer.
func (l *leader) tick(leaderEnd record.Offset, now time.Duration) bool {
	for i := range l.others {
		if o := &l.others[i]; o.stable >= leaderEnd {
			o.caughtUp = max(o.caughtUp, now)
		}
	}
	return l.advance(now)
}

// changed takes the image's newest state of the same leader epoch in and reports whether the high watermark moved. An image
// older than what the controller answered changes only what is not the in-sync set.
func (l *leader) changed(s partitionState, now time.Duration) bool {
	if s.partitionEpoch >= l.partitionEpoch {
		l.leaving = nil
	}
	if s.partitionEpoch > l.partitionEpoch {
		l.forget(s.inSync)
		l.pending = nil
		l.adopt(s, now)
	} else {
		l.settings(s, now)
	}
	return l.advance(now)
}

// answered takes the answer to an attempt in and reports whether the high watermark moved. Answers to anything but the
// newest attempt are stale.
func (l *leader) answered(attempt int, c Changed, err error, now time.Duration) bool {
	p := l.pending
	if p == nil || p.attempt != attempt && !invariant.Seeded(invariant.StaleAnswerCounts) {
		return false
	}
	p.inFlight = false
	switch {
	case err == nil && c.LeaderEpoch == l.epoch && c.Leader == l.self && c.PartitionEpoch > p.base:
		if c.PartitionEpoch > p.base+1 { // others have changed it since: not all that left was asked to
			l.forget(c.InSync)
		}
		l.pending = nil
		l.leaving = union(l.leaving, l.inSync)
		before := l.inSync
		l.partitionEpoch, l.inSync, l.unclean = c.PartitionEpoch, slices.Clone(c.InSync), c.Unclean
		l.maximal = l.inSync
		l.welcome(before, now)
		return l.advance(now)
	case errors.Is(err, ErrIneligible) && !p.lost:
		l.pending = nil
		l.maximal = l.inSync
		l.hold = now + lastChangeBackoff/2
		return l.advance(now)
	}
	// Not known to be refused, or nothing was changed, so that an earlier attempt may still arrive: the union governs until the
	// partition's epoch moves.
	p.lost = true
	p.backoff = min(max(2*p.backoff, firstChangeBackoff), lastChangeBackoff)
	p.retryAt = now + p.backoff
	return false
}

// proposal is a change to send to the controller.
type proposal struct {
	attempt        int
	partitionEpoch int32
	inSync         []Member
	recovered      bool
}

// propose returns the change that is due, nil for none; the caller sends it. leaderEnd is the log end at this moment.
func (l *leader) propose(leaderEnd record.Offset, now time.Duration) *proposal {
	if p := l.pending; p != nil && (p.inFlight || now < p.retryAt) || l.pending == nil && now < l.hold {
		return nil
	}
	want, recovered := l.wanted(leaderEnd, now), false
	switch {
	case l.unclean:
		want, recovered = []metadata.BrokerID{l.self}, true
	case want == nil && l.pending == nil:
		return nil
	case want == nil: // an attempt is still open: settle it
		want = l.inSync
	}
	if l.pending == nil {
		l.pending = &pending{base: l.partitionEpoch}
	}
	l.attempts++
	l.pending.attempt, l.pending.set, l.pending.inFlight = l.attempts, want, true
	l.maximal = union(l.maximal, want)
	pr := &proposal{attempt: l.attempts, partitionEpoch: l.pending.base, recovered: recovered}
	for _, id := range want {
		epoch := l.registered(id)
		if o := l.other(id); o != nil && !slices.Contains(l.inSync, id) {
			epoch = o.brokerEpoch
		}
		pr.inSync = append(pr.inSync, Member{ID: id, Epoch: epoch})
	}
	return pr
}

// wanted is the in-sync set that should be, nil where it is that. Who may join joins before anybody leaves.
func (l *leader) wanted(leaderEnd record.Offset, now time.Duration) []metadata.BrokerID {
	var want []metadata.BrokerID
	for i := range l.others {
		if o := &l.others[i]; !slices.Contains(l.inSync, o.id) && l.mayJoin(o, leaderEnd, now) {
			if want == nil {
				want = slices.Clone(l.inSync)
			}
			want = append(want, o.id)
		}
	}
	if want != nil {
		slices.SortFunc(want, func(a, b metadata.BrokerID) int { return l.place(a) - l.place(b) })
		return want
	}
	for i := range l.others {
		o := &l.others[i]
		if slices.Contains(l.inSync, o.id) && o.stable < leaderEnd && now-o.caughtUp > l.lag {
			if want == nil {
				want = slices.Clone(l.inSync)
			}
			want = slices.DeleteFunc(want, func(id metadata.BrokerID) bool { return id == o.id })
		}
	}
	return want
}

// place is a broker's place in the assignment.
func (l *leader) place(id metadata.BrokerID) int {
	if i := slices.Index(l.assigned, id); i >= 0 {
		return i
	}
	return len(l.assigned)
}

// mayJoin: its stable end has reached the high watermark and the epoch's start, its broker is alive in the incarnation that
// said so, and it is not only that nothing moves: it has everything, or was heard of a moment ago.
func (l *leader) mayJoin(o *other, leaderEnd record.Offset, now time.Duration) bool {
	start := l.epochStart
	if invariant.Seeded(invariant.JoinBelowEpochStart) {
		start = 0
	}
	return slices.Contains(l.assigned, o.id) && o.stable >= l.highWatermark && o.stable >= start && l.eligible(o) &&
		(o.stable >= leaderEnd || now-o.fetchedAt <= min(l.lag, 2*time.Second))
}

// advance moves the high watermark as far as everyone whom it waits for allows.
func (l *leader) advance(now time.Duration) bool {
	if !l.enough() || len(l.inSync) == 0 {
		return false
	}
	low, counted := l.stable, l.counted()
	for i := range l.others {
		o := &l.others[i]
		if slices.Contains(counted, o.id) || now-o.caughtUp <= l.lag && l.eligible(o) && slices.Contains(l.assigned, o.id) {
			low = min(low, o.stable)
		}
	}
	if low <= l.highWatermark {
		return false
	}
	l.highWatermark = low
	return true
}

// counted is the set that the high watermark waits for.
func (l *leader) counted() []metadata.BrokerID {
	if invariant.Seeded(invariant.PendingNotCounted) {
		return l.inSync
	}
	return union(l.maximal, l.leaving)
}

// settled says whether the high watermark has reached the epoch's start, from where on it may be shown as "latest".
func (l *leader) settled() bool { return l.highWatermark >= l.epochStart }

// lowWatermark is the lowest log start of the live replicas, −1 while one of them has not told its own.
func (l *leader) lowWatermark() record.Offset {
	low := l.logStart
	for i := range l.others {
		if o := &l.others[i]; slices.Contains(l.assigned, o.id) && l.registered(o.id) >= 0 {
			low = min(low, o.logStart)
		}
	}
	return low
}

func union(a, b []metadata.BrokerID) []metadata.BrokerID {
	out := a
	for _, id := range b {
		if !slices.Contains(out, id) {
			out = append(out[:len(out):len(out)], id)
		}
	}
	return out
}

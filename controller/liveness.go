package controller

import (
	"maps"
	"slices"
	"time"

	"github.com/keeplog/keeplog/internal/invariant"
	"github.com/keeplog/keeplog/metadata"
)

// The times of liveness.
const (
	// SessionTimeout is how long a broker that does not report is taken for alive.
	SessionTimeout = 3 * time.Second
	// reportGrace is how long a new controller, or one that was paused, waits for a broker's first report.
	reportGrace = time.Second
	// pauseAfter is the distance of two ticks from which the controller itself must have been paused.
	pauseAfter = 500 * time.Millisecond
	// leaseTime is how long a broker may answer for what it leads after it has sent the last report that was acknowledged. reportGrace is
	// enough of it after an election, which nobody wins who has heard a leader in the last second; a leader that hands over leaves more.
	leaseTime = 2 * time.Second
	// uncleanAfter is how long a partition has no leader before unclean.leader.election.enable gives it one.
	uncleanAfter = 10 * time.Second
)

// pulse is what this controller knows of one incarnation of a broker beyond the image.
type pulse struct {
	epoch int64
	// until is when its session ends.
	until time.Duration
	// heard is true after its first report here.
	heard bool
	// applied is the newest index that it reported, need the one that it must have applied before it is unfenced or its lease is renewed: its
	// registration, or what took a leadership or a place in an in-sync set away from it, or fenced it. It must not go on, or come back, with
	// leaderships that others have by now. To a new controller it is all that was decided before.
	applied, need uint64
	// doomed says that an entry which may raise need is in flight: until it is known what became of it, the broker counts as behind.
	doomed bool
	// settled is true once it was taken for dead, until it reports again.
	settled bool
	// ready is when it must be unfenced, or it loses the places in in-sync sets that it kept when it registered: others wait
	// for it there. late is true once it has.
	ready time.Duration
	late  bool
	// leaving is the index at which its leaderships were moved for its shutdown, 0 before.
	leaving uint64
	// order is what its last report said of its replicas.
	order order
}

// order is what a broker's last report says of its replicas: which can be neither led nor followed. It is not written to once it is made.
type order struct {
	heard   bool // there was a report
	out     map[PartitionRef]bool
	offline []metadata.DirectoryID // failed
}

func orderOf(h *Heartbeat) order {
	o := order{heard: true, offline: h.Offline}
	if n := len(h.Lost) + len(h.OutOfOrder); n > 0 {
		o.out = make(map[PartitionRef]bool, n)
	}
	for _, refs := range [][]PartitionRef{h.Lost, h.OutOfOrder} {
		for _, ref := range refs {
			o.out[ref] = true
		}
	}
	return o
}

func (o *order) equal(as *order) bool {
	return o.heard == as.heard && maps.Equal(o.out, as.out) && slices.Equal(o.offline, as.offline)
}

// liveness is who has reported, and when: the part of the decisions that is not in the log. It is pure: now is an argument, of
// any monotonic clock. A controller forgets it with its term.
type liveness struct {
	term uint64
	// index is that of the newest image that was observed.
	index  uint64
	now    time.Duration
	ticked bool
	// heardFormer says how long ago the former leader was last heard of; nil where there was none.
	heardFormer func() time.Duration
	pulses      map[metadata.BrokerID]*pulse
	// leaderless are the partitions without a leader whose topic allows an unclean one, since when.
	leaderless map[PartitionRef]time.Duration
	// told are the leaderships of which somebody must hear before a reassignment ends, and the index of an image that has them.
	told map[leadership]uint64
	// looked is the index of the image that was last reconciled; balanced is the time of the last preferred election.
	looked   uint64
	balanced time.Duration
	// news counts what reports have changed about who may lead, lookedNews is that of the last reconciliation.
	news, lookedNews uint64
	// releases are the shards of groups that were taken away from live brokers; hosts are the brokers that may have some, the same ones
	// since hostsSince.
	releases   map[int32]release
	hosts      []metadata.BrokerID
	hostsSince time.Duration
}

// observe takes note of the image. The first one of a term gives every broker the grace to report; so does a pause of this
// process, because reports may have waited for it.
func (l *liveness) observe(term uint64, img *metadata.Image, now time.Duration, tick bool) {
	fresh := l.pulses == nil || term > l.term
	if fresh {
		*l = liveness{
			term: term, ticked: l.ticked, now: now, heardFormer: l.heardFormer, pulses: map[metadata.BrokerID]*pulse{},
			leaderless: map[PartitionRef]time.Duration{}, told: map[leadership]uint64{}, balanced: now,
		}
	}
	paused := now-l.now > pauseAfter
	l.now = max(l.now, now)
	l.ticked = l.ticked || tick
	if paused && !invariant.Seeded(invariant.PauseFencesAll) {
		for _, p := range l.pulses {
			p.until, p.ready = max(p.until, now+reportGrace), max(p.ready, now+reportGrace)
		}
	}
	if img.Index() < l.index {
		return
	}
	l.index = img.Index()
	for id := range l.pulses {
		if _, ok := img.Broker(id); !ok {
			delete(l.pulses, id)
		}
	}
	for _, b := range img.Brokers() {
		if p := l.pulses[b.ID]; p != nil && p.epoch == b.Epoch {
			continue
		}
		p := &pulse{epoch: b.Epoch, until: now + SessionTimeout, ready: now + SessionTimeout, need: uint64(b.Epoch)}
		if fresh { // what the controllers before have taken away from whom is not known here
			p.until, p.need = now+l.grace(), max(p.need, img.Changed())
		}
		l.pulses[b.ID] = p
	}
}

// grace is how long a controller of a new term waits for a first report: nobody is taken for dead whose lease, that the former leader has
// given, still runs.
func (l *liveness) grace() time.Duration {
	if l.heardFormer == nil {
		return reportGrace
	}
	return max(reportGrace, leaseTime-l.heardFormer())
}

// caughtUp says that the broker knows everything that was taken away from it.
func (p *pulse) caughtUp() bool { return !p.doomed && p.applied >= p.need }

// deposed are the brokers that a record takes something away from: those that it fences, that cease to lead or leave an in-sync set. One that
// does not know it yet is given no more time to answer for what it led.
func deposed(img *metadata.Image, rec metadata.Record) (ids []metadata.BrokerID) {
	switch r := rec.(type) {
	case metadata.BrokerFenced:
		if r.Fenced {
			ids = append(ids, r.ID)
		}
	case metadata.PartitionChanged:
		was, ok := img.Partition(r.TopicID, r.Partition)
		if !ok {
			return nil
		}
		for _, id := range was.ISR {
			if r.ISR != nil && !slices.Contains(*r.ISR, id) || r.Leader != nil && id == was.Leader && *r.Leader != id {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// inFlight notes that records, planned over img, are proposed, or that it is known what became of them.
func (l *liveness) inFlight(img *metadata.Image, records []metadata.Record, on bool) {
	for _, rec := range records {
		for _, id := range deposed(img, rec) {
			if p := l.pulses[id]; p != nil {
				p.doomed = on
			}
		}
	}
}

// replaced notes whom an accepted record has taken something away from.
func (l *liveness) replaced(img *metadata.Image, rec metadata.Record, r metadata.Result, index uint64) {
	if r.Refusal != metadata.Accepted {
		return
	}
	for _, id := range deposed(img, rec) {
		if p := l.pulses[id]; p != nil {
			p.need = max(p.need, index)
		}
	}
}

// report takes a heartbeat; nil when it is not of the broker's newest epoch.
func (l *liveness) report(h *Heartbeat, now time.Duration) *pulse {
	p := l.pulses[h.ID]
	if p == nil || p.epoch != h.Epoch {
		return nil
	}
	p.heard, p.settled = true, false
	p.until = max(p.until, now+SessionTimeout)
	p.applied = max(p.applied, h.Applied)
	if o := orderOf(h); !o.equal(&p.order) {
		p.order = o
		l.news++
	}
	return p
}

// orders is what the brokers have said of their replicas.
func (l *liveness) orders(img *metadata.Image) map[metadata.BrokerID]order {
	m := make(map[metadata.BrokerID]order, len(l.pulses))
	for _, b := range img.Brokers() {
		if p := l.pulse(b); p != nil {
			m[b.ID] = p.order
		}
	}
	return m
}

// expired are the brokers whose session has ended and that are not yet taken for dead, by id. A fenced one is among them
// when it has registered and then died: it may still be in in-sync sets.
func (l *liveness) expired(now time.Duration) []metadata.BrokerID {
	var ids []metadata.BrokerID
	for id, p := range l.pulses {
		if !p.settled && now > p.until {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// doom is expired when the decision is made: a report that comes behind it renews nothing. Who is live in the image gets a record that fences
// it, with which the mark ends.
func (l *liveness) doom(img *metadata.Image, now time.Duration) []metadata.BrokerID {
	ids := l.expired(now)
	for _, id := range ids {
		if img.Alive(id) {
			l.pulses[id].doomed = true
		}
	}
	return ids
}

// tardy are the brokers that have registered, report, and are not yet ready although their time is over, by id.
func (l *liveness) tardy(img *metadata.Image, now time.Duration) []metadata.BrokerID {
	var ids []metadata.BrokerID
	for _, b := range img.Brokers() {
		p := l.pulses[b.ID]
		if p == nil || p.epoch != b.Epoch {
			continue
		}
		p.late = p.late && b.Fenced
		if b.Fenced && !p.late && !p.settled && now > p.ready {
			p.late = true
			ids = append(ids, b.ID)
		}
	}
	return ids
}

// dead notes that brokers were taken for dead with the record at that index.
func (l *liveness) dead(index uint64, ids ...metadata.BrokerID) {
	for _, id := range ids {
		if p := l.pulses[id]; p != nil {
			p.settled, p.need = true, max(p.need, index)
		}
	}
}

// running says whether the process of a registered broker is running, as far as is known, when another registers in its
// place. Data directories are locked by the process that has them. So before its first report to a new controller, and while
// it is fenced, it counts as running only if the other one has none of its directories; one that has finished its controlled
// shutdown never does. A controller that has not looked at this incarnation yet knows as little; on a node alone nobody ever looks.
func (l *liveness) running(b *metadata.Broker, r *Registration) bool {
	p := l.pulse(b)
	switch {
	case !l.ticked || b.Fenced && b.ShuttingDown:
		return false
	case p == nil:
		return !share(b.Directories, r.Directories)
	case p.settled || l.now > p.until:
		return false
	}
	return p.heard && !b.Fenced || !share(b.Directories, r.Directories)
}

// pulse is what is known of the incarnation that the image has; nil where this controller has not looked at it yet.
func (l *liveness) pulse(b *metadata.Broker) *pulse {
	if p := l.pulses[b.ID]; p != nil && p.epoch == b.Epoch {
		return p
	}
	return nil
}

func share(a, b []metadata.DirectoryID) bool {
	return slices.ContainsFunc(a, func(d metadata.DirectoryID) bool { return slices.Contains(b, d) })
}

// applied says that every live broker but one has applied an index, as far as it has said so.
func (l *liveness) applied(img *metadata.Image, index uint64, except metadata.BrokerID) bool {
	for _, b := range img.Brokers() {
		if p := l.pulse(b); b.ID != except && !b.Fenced && (p == nil || p.applied < index) {
			return false
		}
	}
	return true
}

// leadership is one leader epoch of a partition.
type leadership struct {
	ref   PartitionRef
	epoch int32
}

// heard says that each of some brokers has applied an image with a leadership, or is fenced. Which entry began it is not known
// here: the first image that was seen with it will do.
func (l *liveness) heard(img *metadata.Image, of leadership, ids []metadata.BrokerID) bool {
	index, known := l.told[of]
	if !known {
		for old := range l.told {
			if part, ok := img.Partition(old.ref.Topic, old.ref.Partition); !ok || part.LeaderEpoch != old.epoch || len(part.Removing) == 0 {
				delete(l.told, old)
			}
		}
		if l.told == nil {
			l.told = map[leadership]uint64{}
		}
		index = img.Index()
		l.told[of] = index
	}
	for _, id := range ids {
		if b, ok := img.Broker(id); ok && !b.Fenced {
			if p := l.pulse(b); p == nil || p.applied < index {
				return false
			}
		}
	}
	delete(l.told, of)
	return true
}

// due are the partitions that have had no leader for long enough for an unclean election. wanting lists those that have none
// and whose topic allows it, in order.
func (l *liveness) due(wanting []PartitionRef, now time.Duration) map[PartitionRef]bool {
	due := map[PartitionRef]bool{}
	still := make(map[PartitionRef]time.Duration, len(wanting))
	for _, ref := range wanting {
		since, known := l.leaderless[ref]
		if !known {
			since = now
		}
		still[ref] = since
		if now-since >= uncleanAfter {
			due[ref] = true
		}
	}
	l.leaderless = still
	return due
}

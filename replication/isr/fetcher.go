package isr

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
)

// fetcher copies the partitions that another broker leads to this one: one goroutine and one fetch session for all of them,
// with two fetches in flight. The next fetch goes out as soon as much was appended, so that the leader sends on while this
// broker flushes, and again when the flush is through, with the new stable end: the leader answers the one that waits at once
// when the next of its session arrives. After a little the flush is waited for (linger).
type fetcher struct {
	replicas *Replicas
	leader   metadata.BrokerID
	wake     chan struct{}

	mu   sync.Mutex
	mail mail // guarded by mu

	// What follows belongs to the goroutine.
	parts     map[PartitionRef]*following
	ready     []*following // may have something to tell; queued is set
	sleeping  []*following // wait for their time; asleep is set
	forgotten []PartitionRef
	session   session
	seq       int64 // of the last fetch
	inFlight  int
	linger    linger
	backoff   time.Duration
	retryAt   time.Duration
}

// fetchers are those of a broker.
type fetchers struct {
	mu       sync.Mutex // guards the rest
	byLeader map[metadata.BrokerID]*fetcher
	ended    bool
}

// end keeps new ones from being started.
func (f *fetchers) end() {
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
}

// session is the fetch session at the leader.
type session struct {
	generation int // answers of another one are void
	id, epoch  int32
	opening    bool  // the fetch that opens it is in flight
	next       int64 // the fetch that is answered next: each answer goes on where the one before has ended
}

// mail is what happened to a fetcher's partitions.
type mail struct {
	came, gone, flushed []*following
	cut                 []cutDone
	answers             []fetchDone
}

type cutDone struct {
	of  *following
	err error
}

type fetchDone struct {
	generation int
	seq        int64
	answer     *RemoteFetched
	err        error
}

// linger keeps a fetch back that would only tell that a few records were appended: their flush is soon through, and the leader waits for
// nothing else. With much that is appended the leader should send on meanwhile.
type linger struct {
	until time.Duration // 0: nothing was appended since the last fetch
	news  bool          // there is something else to tell
}

const (
	lingerTime  = 2 * time.Millisecond
	lingerBytes = 64 << 10
)

const (
	fetchesInFlight   = 2
	firstFetchBackoff = 20 * time.Millisecond
)

// fetcher finds or starts the fetcher of a leader's partitions; nil when closing.
func (r *Replicas) fetcher(leader metadata.BrokerID) *fetcher {
	r.fetchers.mu.Lock()
	defer r.fetchers.mu.Unlock()
	if r.fetchers.ended {
		return nil
	}
	f := r.fetchers.byLeader[leader]
	if f == nil {
		f = &fetcher{replicas: r, leader: leader, wake: make(chan struct{}, 1), parts: map[PartitionRef]*following{}}
		r.fetchers.byLeader[leader] = f
		r.done.Go(f.run)
	}
	return f
}

// post tells the goroutine something.
func (f *fetcher) post(write func(*mail)) {
	f.mu.Lock()
	write(&f.mail)
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *fetcher) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		f.mu.Lock()
		m := f.mail
		f.mail = mail{}
		f.mu.Unlock()
		f.process(&m)
		f.send()
		timer.Reset(f.pause())
		select {
		case <-f.replicas.stop:
			return
		case <-f.wake:
		case <-timer.C:
		}
	}
}

func (f *fetcher) now() time.Duration { return f.replicas.now() }

// process takes mail in.
func (f *fetcher) process(m *mail) {
	f.linger.news = f.linger.news || len(m.gone)+len(m.came)+len(m.cut)+len(m.flushed) > 0
	for _, p := range m.gone {
		if f.parts[p.ref] == p {
			delete(f.parts, p.ref)
			f.forgotten = append(f.forgotten, p.ref)
		}
	}
	for _, p := range m.came {
		f.parts[p.ref] = p
		f.queue(p)
	}
	for _, d := range m.cut {
		f.cutDone(d)
	}
	for _, p := range m.flushed {
		if e := p.ends(); p.core.flushed(e.stable) || e.start != p.core.start && !p.core.busy {
			p.core.start = e.start
			f.queue(p)
		}
		if to := p.core.startDue(); to >= 0 {
			p.moveStart(to)
		}
	}
	for i := range m.answers {
		f.answered(&m.answers[i])
	}
}

// queue puts a partition in line for the next fetch.
func (f *fetcher) queue(p *following) {
	if !p.queued {
		p.queued = true
		f.ready = append(f.ready, p)
	}
}

// pause is how long nothing can be due.
func (f *fetcher) pause() time.Duration {
	now, next := f.now(), time.Hour
	if f.retryAt > now {
		next = f.retryAt - now
	}
	if f.lingers(now) {
		next = min(next, f.linger.until-now)
	}
	awake := f.sleeping[:0]
	for _, p := range f.sleeping {
		if left := p.core.wait - now; left > 0 {
			next = min(next, left)
			awake = append(awake, p)
			continue
		}
		p.asleep = false
		f.queue(p)
		next = 0
	}
	clear(f.sleeping[len(awake):])
	f.sleeping = awake
	return next
}

// sleep puts a partition back until its time has come.
func (f *fetcher) sleep(p *following) {
	if !p.asleep {
		p.asleep = true
		f.sleeping = append(f.sleeping, p)
	}
}

// lingers says that the next fetch waits for a flush.
func (f *fetcher) lingers(now time.Duration) bool { return !f.linger.news && now < f.linger.until }

// send sends what is due, as far as there is room.
func (f *fetcher) send() {
	if f.replicas.brokerEpoch.Load() == 0 || f.lingers(f.now()) {
		return
	}
	for f.inFlight < fetchesInFlight && !f.session.opening && f.now() >= f.retryAt && len(f.parts) > 0 {
		list := f.due()
		f.linger = linger{}
		if f.inFlight > 0 && len(list) == 0 && len(f.forgotten) == 0 {
			return
		}
		if f.session.id == 0 && len(list) == 0 {
			return // nothing to open a session with
		}
		f.fetch(list)
	}
}

// due lists the partitions that have something to tell: all that can in a session that is about to open.
func (f *fetcher) due() []*following {
	var list []*following
	now := f.now()
	f.hold(now)
	take := func(p *following) {
		switch {
		case f.parts[p.ref] != p:
		case p.core.due(now):
			list = append(list, p)
		case p.core.wait > now && !p.core.busy && p.core.offline == nil:
			f.sleep(p)
		}
	}
	if f.session.id == 0 {
		for _, p := range f.parts {
			take(p)
		}
	}
	for _, p := range f.ready {
		p.queued = false
		if f.session.id != 0 {
			take(p)
		}
	}
	clear(f.ready)
	f.ready = f.ready[:0]
	return list
}

// hold keeps throttled partitions back while this broker takes more than it should.
func (f *fetcher) hold(now time.Duration) {
	rate := f.replicas.opts.Limits().FollowerRate
	open := f.replicas.followerThrottle.open(rate, now)
	if rate <= 0 && !f.replicas.held.Load() {
		return
	}
	any := false
	for _, p := range f.parts {
		held := !open && p.throttled()
		any = any || held
		if p.core.held != held {
			p.core.held = held
			f.queue(p)
		}
	}
	f.replicas.held.Store(any)
}

// throttled says whether the follower's throttle concerns a partition.
func (f *following) throttled() bool {
	s, r := f.partition.settings.Load(), f.partition.role.Load()
	self := f.partition.replicas.opts.BrokerID
	return s != nil && r != nil && throttled(s.FollowerThrottled, f.ref.Partition, self) && !slices.Contains(r.inSync, self)
}

func (f *fetcher) fetch(list []*following) {
	limits := f.replicas.opts.Limits()
	f.seq++
	r := &RemoteFetch{
		Replica: f.replicas.opts.BrokerID, BrokerEpoch: f.replicas.brokerEpoch.Load(), MaxWait: limits.FetchWait,
		MinBytes: limits.MinBytes, MaxBytes: limits.FetchBytes, SessionID: f.session.id, SessionEpoch: f.session.epoch,
	}
	if f.session.id != 0 {
		// What is followed anew is forgotten and named at once: the leader's memory of what it has told is of no use any more.
		r.Forgotten = slices.Clone(f.forgotten)
		f.session.epoch = max(f.session.epoch+1, 1)
	} else {
		f.session.opening = true
	}
	f.forgotten = f.forgotten[:0]
	for _, p := range list {
		c := p.core.list(f.seq)
		part := RemotePartition{
			PartitionRef: p.ref, LeaderEpoch: c.epoch, Offset: c.offset, LastFetchedEpoch: c.lastEpoch, Stable: c.stable, LogStart: c.start,
			MaxBytes: limits.PartitionBytes,
		}
		if c.held {
			part.MaxBytes = 0
		}
		r.Partitions = append(r.Partitions, part)
	}
	if f.session.next == 0 {
		f.session.next = f.seq
	}
	f.inFlight++
	seq, generation := f.seq, f.session.generation
	f.replicas.opts.Cluster.Fetch(f.leader, r, func(a *RemoteFetched, err error) {
		f.post(func(m *mail) {
			m.answers = append(m.answers, fetchDone{generation: generation, seq: seq, answer: a, err: err})
		})
	})
}

// answered takes the answer of a fetch in.
func (f *fetcher) answered(d *fetchDone) {
	f.inFlight--
	if d.answer != nil && d.answer.Release != nil {
		defer d.answer.Release()
	}
	if d.generation != f.session.generation {
		return
	}
	err := d.err
	switch {
	case err == nil && d.seq != f.session.next:
		err = fmt.Errorf("%w: the answer to fetch %d instead of %d", ErrSession, d.seq, f.session.next)
	case err == nil:
		err = d.answer.Err
	}
	f.session.next++
	if err != nil {
		f.failed(err)
		return
	}
	f.backoff = 0
	if f.session.opening {
		f.session.opening, f.session.id, f.session.epoch = false, d.answer.SessionID, 1
		if f.session.id == 0 {
			f.restart()
		}
	}
	intact := true
	for i := range d.answer.Partitions {
		a := &d.answer.Partitions[i]
		if p := f.parts[a.PartitionRef]; p != nil {
			intact = f.take(p, a, d.seq) && intact
		}
	}
	if !intact {
		f.restart()
	}
}

// failed opens a new session, after a while where it was not only the session that was lost.
func (f *fetcher) failed(err error) {
	f.restart()
	f.backoff = min(max(2*f.backoff, firstFetchBackoff), max(f.replicas.opts.Limits().Backoff, firstFetchBackoff))
	f.retryAt = f.now() + f.backoff
	if !errors.Is(err, ErrSession) {
		f.replicas.opts.Logger.Debug("cannot fetch", "event", "replica.fetch.failed", "leader", f.leader, "error", err)
	}
}

// restart leaves the session; all partitions are told again in the next.
func (f *fetcher) restart() {
	f.session = session{generation: f.session.generation + 1}
	f.forgotten = f.forgotten[:0]
	for _, p := range f.parts {
		p.core.unlist()
		f.queue(p)
	}
}

// take does what a partition's core decides about an answer; false where not all that came was kept.
func (f *fetcher) take(p *following, r *RemoteRecords, seq int64) bool {
	now := f.now()
	s := p.core.answered(answer{
		seq: seq, err: r.Err, highWatermark: r.HighWatermark, logStart: r.LogStart, divergingEpoch: r.DivergingEpoch,
		divergingEnd: r.DivergingEnd, records: len(r.Records) > 0,
	}, p.endOf, now)
	intact := true
	switch s.do {
	case appendAll:
		intact = f.append(p, r)
	case truncate, restart:
		p.cut(s)
	case halt:
		p.halt(p.core.offline, s.at)
	}
	if s.moved {
		p.show()
	}
	if s.start >= 0 {
		p.moveStart(s.start)
	}
	f.queue(p)
	return intact
}

func (f *fetcher) append(p *following, r *RemoteRecords) bool {
	a, e, whole, err := p.append(r.Records)
	if err != nil {
		if errors.Is(err, ErrNotLeader) { // it follows somebody else by now
			return true
		}
		f.replicas.opts.Logger.Warn("cannot append what the leader sent", "event", "replica.append.failed", "log", p.partition.log.Path(), "error", err)
		p.core.take(p.ends())
		p.core.pause(f.now())
		if errors.Is(err, log.ErrOffline) || errors.Is(err, log.ErrClosed) {
			p.core.offline = err
			return true
		}
		return false
	}
	if p.throttled() {
		f.replicas.followerThrottle.spend(len(r.Records))
	}
	if f.linger.until == 0 {
		f.linger.until = f.now() + lingerTime
	}
	f.linger.news = f.linger.news || len(r.Records) > lingerBytes || e.stable >= e.end || !whole
	moved, intact := p.core.appended(a.Base, e, r.HighWatermark)
	if moved {
		p.show()
	}
	return intact && whole
}

func (f *fetcher) cutDone(d cutDone) {
	p := d.of
	p.core.cut(p.ends())
	if d.err != nil {
		f.replicas.opts.Logger.Error("cannot truncate", "event", "replica.truncate.failed", "log", p.partition.log.Path(), "error", d.err)
		p.core.pause(f.now())
	}
	f.queue(p)
}

package isr

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
)

// replicaSession is the fetch session of a follower on its leader (KIP-227): the partitions it copies from here, and what it
// has been told. A follower has one; a new one ends the last. Only partitions that something happened to are looked at.
//
//	fetch ─► news of the follower, partition by partition ─► is there anything to say? ── yes ─► answer
//	                                                            │ no: it waits
//	         append, watermark, role ─► partition is ready ──►──┘        the next fetch of the session: answer, empty
type replicaSession struct {
	replicas    *Replicas
	id          int32
	replica     metadata.BrokerID
	brokerEpoch int64

	// arrived are the partitions that something moved in: whoever appends must not wait for whoever reads for the follower.
	arriveMu sync.Mutex
	arrived  []*sessionPart // guarded by arriveMu

	mu     sync.Mutex // guards the rest; let go with unlock; not held while a partition's core is told
	epoch  int32      // that the next fetch must carry
	used   time.Duration
	closed bool
	parts  map[PartitionRef]*sessionPart
	ready  []*sessionPart // something may have happened; queued is set
	waits  *ReplicaPoll   // the newest fetch, until it is answered
	late   *time.Timer    // runs while watermarks wait to be told
	tell   bool           // they have waited long enough
}

// watermarkTime is how long a watermark alone waits for records to go with.
const watermarkTime = 10 * time.Millisecond

// sessionPart is one partition of a session; guarded by the session's mu, its place in the list of watchers too: one that is put
// there behind the back of who closes the session would stay for ever.
type sessionPart struct {
	session *replicaSession
	ref     PartitionRef
	part    *Partition // nil: not here
	watch   Watch
	asked   RemotePartition
	sent    Sent
	// outcome is what its last news led to, if that is not simply progress. Once told, the partition is silent until the
	// follower speaks of it again.
	outcome *FetchResult
	silent  bool
	queued  bool
	gone    bool
	arrived bool // guarded by arriveMu
	// What the follower has been told; −1 is nothing.
	highWatermark, logStart record.Offset
	// forgets is the partition's when the follower spoke of it last.
	forgets int64
}

// ReplicaPoll is one fetch of a follower, from its arrival to its answer.
type ReplicaPoll struct {
	// SessionID is what the answer carries.
	SessionID int32

	session  *replicaSession
	maxBytes int
	abandon  func()
	wake     func() // nil once called
}

// ReplicaPart is one partition of the answer to a follower.
type ReplicaPart struct {
	PartitionRef
	FetchResult
	// Leadership is what this broker knows of it, with an error.
	Leadership Leadership
}

// sessions are the sessions of the replicas that follow this broker.
type sessions struct {
	mu        sync.Mutex // guards the rest
	byReplica map[metadata.BrokerID]*replicaSession
	last      int32 // id
}

// randomID is where the session ids of this process begin: one of an earlier process is not taken for another.
func randomID() int32 {
	var b [4]byte
	rand.Read(b[:])
	return int32(binary.BigEndian.Uint32(b[:]) >> 2)
}

// sessionIdle is how long a session may lie unused.
const sessionIdle = 2 * time.Minute

// ReplicaFetch takes a follower's fetch in. ready says that the answer should be made now; otherwise wake is called once,
// from any goroutine and perhaps before ReplicaFetch returns, as soon as it should, and the caller makes it then, or when the
// fetch has waited long enough. Fetches of one session come one after the other. Errors: ErrSession.
func (r *Replicas) ReplicaFetch(f *RemoteFetch, wake func()) (poll *ReplicaPoll, ready bool, err error) {
	s, err := r.session(f)
	if err != nil {
		return nil, false, err
	}
	poll = &ReplicaPoll{SessionID: s.id, session: s, maxBytes: f.MaxBytes, abandon: f.Abandon, wake: wake}
	s.supersede(poll)
	for _, ref := range f.Forgotten {
		s.forget(ref)
	}
	for i := range f.Partitions {
		s.list(&f.Partitions[i])
	}
	s.mu.Lock()
	defer s.unlock()
	s.drain()
	switch {
	case poll.wake == nil: // called already
		return poll, false, nil
	case s.closed || f.MaxWait <= 0 || f.SessionEpoch <= 0 || s.anyNews():
		poll.wake = nil
		return poll, true, nil
	}
	return poll, false, nil
}

// unlock lets the session go, and looks at what arrived meanwhile.
func (s *replicaSession) unlock() {
	s.mu.Unlock()
	s.pump()
}

// pump takes in what has arrived, unless somebody holds the session: who does will, in unlock.
func (s *replicaSession) pump() {
	for {
		s.arriveMu.Lock()
		none := len(s.arrived) == 0
		s.arriveMu.Unlock()
		if none || !s.mu.TryLock() {
			return
		}
		wake := func() {}
		s.drain()
		if s.waits != nil && s.waits.wake != nil && s.anyNews() {
			wake = s.waits.takeWake()
		}
		s.mu.Unlock()
		wake()
	}
}

// drain marks what has arrived for a look. Called with mu held.
func (s *replicaSession) drain() {
	s.arriveMu.Lock()
	for i, sp := range s.arrived {
		sp.arrived = false
		sp.queue()
		s.arrived[i] = nil
	}
	s.arrived = s.arrived[:0]
	s.arriveMu.Unlock()
}

// session finds or opens the session of a fetch.
func (r *Replicas) session(f *RemoteFetch) (*replicaSession, error) {
	r.sessions.mu.Lock()
	old := r.sessions.byReplica[f.Replica]
	if f.SessionEpoch > 0 {
		defer r.sessions.mu.Unlock()
		if old == nil || old.id != f.SessionID {
			return nil, fmt.Errorf("%w: %d", ErrSession, f.SessionID)
		}
		return old, old.use(f)
	}
	r.sessions.last++
	s := &replicaSession{
		replicas: r, id: r.sessions.last, replica: f.Replica, brokerEpoch: f.BrokerEpoch, epoch: 1, used: r.now(),
		parts: map[PartitionRef]*sessionPart{},
	}
	r.sessions.byReplica[f.Replica] = s
	r.sessions.mu.Unlock()
	if old != nil {
		old.close()
	}
	return s, nil
}

// use takes the session's epoch on.
func (s *replicaSession) use(f *RemoteFetch) error {
	s.mu.Lock()
	defer s.unlock()
	if f.SessionEpoch != s.epoch || f.BrokerEpoch != s.brokerEpoch {
		return fmt.Errorf("%w: epoch %d, expected %d", ErrSession, f.SessionEpoch, s.epoch)
	}
	s.epoch = max(s.epoch+1, 1)
	s.used = s.replicas.now()
	return nil
}

// supersede makes poll the session's newest fetch: the one that waits is answered, empty.
func (s *replicaSession) supersede(poll *ReplicaPoll) {
	s.mu.Lock()
	old := s.waits
	s.waits = poll
	wake := old.takeWake()
	s.unlock()
	wake()
}

// takeWake is what to call, without the session's mutex, to have the fetch answered. Called with it held.
func (p *ReplicaPoll) takeWake() func() {
	if p == nil || p.wake == nil {
		return func() {}
	}
	w := p.wake
	p.wake = nil
	return w
}

func (s *replicaSession) forget(ref PartitionRef) {
	s.mu.Lock()
	sp := s.parts[ref]
	if sp != nil {
		sp.gone = true
		sp.watch.Stop()
		delete(s.parts, ref)
	}
	s.unlock()
}

// list takes what a fetch says of a partition.
func (s *replicaSession) list(asked *RemotePartition) {
	p, err := s.replicas.Partition(asked.Topic, asked.Partition)
	s.mu.Lock()
	if s.closed {
		s.unlock()
		return
	}
	sp := s.parts[asked.PartitionRef]
	if sp == nil {
		sp = &sessionPart{session: s, ref: asked.PartitionRef, highWatermark: -1, logStart: -1}
		s.parts[asked.PartitionRef] = sp
	}
	moved := sp.part != p
	sp.asked, sp.part, sp.silent, sp.outcome = *asked, p, false, nil
	if moved {
		sp.sent, sp.highWatermark, sp.logStart = Sent{}, -1, -1
		sp.watch.Stop()
		if err == nil {
			p.WatchReplica(&sp.watch, sp)
		}
	}
	if err == nil {
		sp.forgets = p.forgets.Load() // before it is news
	}
	req, sent := s.request(sp, false), sp.sent
	req.MaxBytes, req.Sent = 0, &sent // what is read is decided when it is answered
	s.unlock()
	res := failedFetch(err)
	if err == nil {
		res = p.FetchReplica(req)
	}
	s.mu.Lock()
	sp.sent = sent
	if res.Err != nil || res.DivergingEpoch >= 0 {
		sp.outcome = &res
	}
	sp.queue()
	s.unlock()
}

// request is the follower's state of a partition as FetchReplica wants it.
func (s *replicaSession) request(sp *sessionPart, again bool) ReplicaFetch {
	a := &sp.asked
	return ReplicaFetch{
		Replica: s.replica, BrokerEpoch: s.brokerEpoch, Offset: a.Offset, Stable: a.Stable, LogStart: a.LogStart,
		LastFetchedEpoch: a.LastFetchedEpoch, LeaderEpoch: a.LeaderEpoch, MaxBytes: a.MaxBytes, Again: again, Sent: &sp.sent,
	}
}

// queue marks a partition for a look. Called with the session's mu held.
func (sp *sessionPart) queue() {
	if !sp.queued {
		sp.queued = true
		sp.session.ready = append(sp.session.ready, sp)
	}
}

// Progress is told that something moved in the partition. It implements Watcher.
func (sp *sessionPart) Progress() {
	s := sp.session
	s.arriveMu.Lock()
	if !sp.arrived {
		sp.arrived = true
		s.arrived = append(s.arrived, sp)
	}
	s.arriveMu.Unlock()
	s.pump()
}

// anyNews looks at the ready partitions; those with nothing to tell leave the list. Called with mu held.
func (s *replicaSession) anyNews() bool {
	kept, any := s.ready[:0], false
	for _, sp := range s.ready {
		news, held := sp.news()
		if sp.queued = news || held; sp.queued {
			kept = append(kept, sp)
		}
		any = any || news
	}
	clear(s.ready[len(kept):])
	s.ready = kept
	return any
}

// news says whether there is something to tell of a partition; held, whether only a throttle stands before it. Called with
// mu held.
func (sp *sessionPart) news() (news, held bool) {
	switch {
	case sp.gone || sp.silent:
		return false, false
	case sp.outcome != nil:
		return true, false
	}
	role := sp.part.role.Load()
	if role == nil || !role.leads || role.epoch != sp.asked.LeaderEpoch || sp.part.log.Err() != nil {
		return true, false
	}
	if sp.forgotten() || sp.part.log.StartOffset() != sp.logStart {
		return true, false
	}
	watermark := sp.part.HighWatermark() != sp.highWatermark
	if watermark && sp.session.toldSoon() {
		return true, false
	}
	if sp.asked.MaxBytes <= 0 || sp.part.log.WrittenEnd() <= max(sp.asked.Offset, sp.sent.end) {
		return false, watermark
	}
	may := sp.session.replicas.mayServe(sp.part, role, sp.session.replica)
	return may, !may
}

// toldSoon says that watermarks are told now; else they are soon. Called with mu held.
func (s *replicaSession) toldSoon() bool {
	if !s.tell && s.late == nil {
		s.late = time.AfterFunc(watermarkTime, func() {
			s.mu.Lock()
			s.tell, s.late = true, nil
			wake := func() {}
			if s.waits != nil && s.waits.wake != nil && s.anyNews() {
				wake = s.waits.takeWake()
			}
			s.unlock()
			wake()
		})
	}
	return s.tell
}

// forgotten says that the leader does not know any more what the follower has told of the partition. Called with mu held.
func (sp *sessionPart) forgotten() bool {
	now := sp.part.forgets.Load()
	if now == sp.forgets {
		return false
	}
	if sp.part.forgot(sp.session.replica) {
		return true
	}
	sp.forgets = now
	return false
}

// toldAll notes that the watermarks are told. Called with mu held.
func (s *replicaSession) toldAll() {
	s.tell = false
	if s.late != nil {
		s.late.Stop()
		s.late = nil
	}
}

// Answer is what there is to tell; it is made once. It is empty where a newer fetch of the session has come: that one tells
// it, so that answers are in order. The spans are the caller's to release.
func (p *ReplicaPoll) Answer() []ReplicaPart {
	s := p.session
	s.mu.Lock()
	defer s.unlock()
	p.wake = nil
	if s.waits != p {
		return nil
	}
	s.waits = nil
	if s.closed {
		return nil
	}
	s.toldAll()
	left, total := p.maxBytes, 0
	var out []ReplicaPart
	ready := s.ready
	s.ready = nil
	for i, sp := range ready {
		if left <= 0 && total > 0 {
			s.ready = append(s.ready, ready[i:]...)
			break
		}
		sp.queued = false
		part, n, ok := p.read(sp, left, total == 0)
		if ok {
			out = append(out, part)
		}
		left, total = left-n, total+n
	}
	return out
}

// read makes the answer for one partition; ok is false where there is nothing to tell. Called with mu held.
func (p *ReplicaPoll) read(sp *sessionPart, left int, first bool) (out ReplicaPart, n int, ok bool) {
	if sp.gone || sp.silent {
		return out, 0, false
	}
	out.PartitionRef = sp.ref
	switch {
	case sp.outcome != nil:
		out.FetchResult = *sp.outcome
	case sp.forgotten():
		out.FetchResult = failedFetch(ErrForgotten)
	default:
		req := p.session.request(sp, true)
		req.Abandon = p.abandon
		req.MaxBytes = min(req.MaxBytes, max(left, 0))
		req.AtLeastOne = first && sp.asked.MaxBytes > 0
		out.FetchResult = sp.part.FetchReplica(req)
	}
	if out.Err != nil || out.DivergingEpoch >= 0 {
		sp.silent, sp.outcome = true, nil
		sp.highWatermark, sp.logStart = -1, -1
		if sp.part != nil {
			out.Leadership = sp.part.Leadership()
		}
		return out, 0, true
	}
	n = out.Span.Len()
	ok = n > 0 || out.HighWatermark != sp.highWatermark || out.LogStart != sp.logStart
	sp.highWatermark, sp.logStart = out.HighWatermark, out.LogStart
	if out.Held || sp.part.log.WrittenEnd() > max(sp.asked.Offset, sp.sent.end) {
		sp.queue() // there is more
	}
	return out, n, ok
}

// close ends a session: its fetch that waits is answered, empty.
func (s *replicaSession) close() {
	s.mu.Lock()
	s.closed = true
	s.toldAll()
	parts := s.parts
	s.parts = map[PartitionRef]*sessionPart{}
	for _, sp := range parts {
		sp.gone = true
		sp.watch.Stop()
	}
	wake := s.waits.takeWake()
	s.unlock()
	wake()
}

// closeSessions ends the sessions that lie unused for too long, or all.
func (r *Replicas) closeSessions(all bool) {
	r.sessions.mu.Lock()
	var end []*replicaSession
	for id, s := range r.sessions.byReplica {
		s.mu.Lock()
		idle := r.now()-s.used > sessionIdle
		s.unlock()
		if all || idle {
			end = append(end, s)
			delete(r.sessions.byReplica, id)
		}
	}
	r.sessions.mu.Unlock()
	for _, s := range end {
		s.close()
	}
}

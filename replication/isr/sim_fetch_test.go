package isr

import (
	"time"

	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
)

// link is a node's fetches from one leader: a connection, and a session over all partitions that it leads.
type simLink struct {
	n   *simNode
	to  int
	gen int // of the connection
	// session is the one in use, 0 for none; opening says that its first fetch is under way.
	session  int32
	opening  bool
	seq      int64
	inFlight int
	waits    []time.Duration // since when, oldest first
	// sentAt and gotAt keep the order of the connection.
	sentAt, gotAt time.Duration
}

// fetch is a request on the wire.
type simFetch struct {
	gen         int
	session     int32
	seq         int64
	brokerEpoch int64
	claims      []simClaim
}

type simClaim struct {
	topic metadata.TopicID
	p     int
	c     claim
}

// simPart is one partition of an answer.
type simPart struct {
	topic         metadata.TopicID
	p             int
	err           error
	highWatermark record.Offset
	logStart      record.Offset
	diverging     record.Epoch
	divergingEnd  record.Offset
	base          int
	records       []simEntry
}

type simAnswer struct {
	err     error
	session int32
	parts   []simPart
}

// session is a follower's session at the leader.
type simSession struct {
	id          int32
	from        int
	gen         int
	brokerEpoch int64
	parts       [simPartitions]*simSessionPart
	park        func(simAnswer) // answers the fetch that waits, nil for none
	parked      int
}

type simSessionPart struct {
	topic metadata.TopicID
	claim claim
	sent  int
	epoch record.Epoch
	valid bool
	bad   bool // the last fetch left the leader's log
	// What the follower was told, which is not told again.
	highWatermark, logStart record.Offset
}

// reset begins a new session with the next fetch; what is in flight is void.
func (l *simLink) reset() {
	l.session, l.opening = 0, false
	l.gen++
	l.inFlight, l.waits = 0, nil
	for _, r := range l.n.replicas {
		if r.fol != nil && r.leader == l.to {
			r.fol.unlist()
		}
	}
	gen := l.gen
	l.n.later(0, func() {
		if l.gen == gen {
			l.pump()
		}
	})
}

// pump sends what there is to tell; one fetch always waits at the leader, two may be under way.
func (l *simLink) pump() {
	for l.inFlight < 2 && !l.opening {
		var claims []simClaim
		followed := false
		for p, r := range l.n.replicas {
			if r.fol == nil || r.leader != l.to {
				continue
			}
			followed = true
			if r.fol.due(l.n.now()) {
				claims = append(claims, simClaim{topic: r.topic, p: p})
			}
		}
		if !followed || len(claims) == 0 && (l.inFlight > 0 || l.session == 0) {
			return
		}
		l.seq++
		for i := range claims {
			claims[i].c = l.n.replicas[claims[i].p].fol.list(l.seq)
		}
		l.send(&simFetch{l.gen, l.session, l.seq, l.n.epoch, claims})
	}
}

func (l *simLink) send(f *simFetch) {
	w, n := l.n.w, l.n
	l.inFlight++
	l.opening = f.session == 0
	incarnation := n.incarnations
	lostConn := func() {
		n.do(incarnation, func() {
			if l.gen == f.gen {
				w.note("node %d loses the connection to %d", n.id, l.to)
				l.reset()
			}
		})
	}
	l.sentAt = max(l.sentAt, w.now+w.delay())
	w.after(l.sentAt-w.now, func() {
		t := w.nodes[l.to]
		if w.cut[n.id][l.to] || !t.up {
			w.after(w.between(10*time.Millisecond, 2*time.Second), lostConn)
			return
		}
		t.do(t.incarnations, func() {
			t.serveFetch(n.id, f, func(a simAnswer) {
				if w.cut[l.to][n.id] {
					w.after(w.between(10*time.Millisecond, 2*time.Second), lostConn)
					return
				}
				l.gotAt = max(l.gotAt, w.now+w.delay())
				w.after(l.gotAt-w.now, func() { n.do(incarnation, func() { l.got(f, a) }) })
			})
		})
	})
	l.waits = append(l.waits, w.now)
}

// expire ends the connection to a leader that died or was paused, and never answers.
func (l *simLink) expire() {
	if len(l.waits) > 0 && l.n.w.now-l.waits[0] > 4*time.Second {
		l.n.w.note("node %d loses the connection to %d", l.n.id, l.to)
		l.reset()
	}
}

func (l *simLink) got(f *simFetch, a simAnswer) {
	if l.gen != f.gen {
		return
	}
	seq := f.seq
	l.waits = l.waits[1:]
	l.inFlight--
	l.opening = false
	if a.err != nil {
		l.reset()
		return
	}
	l.session = a.session
	gen := l.gen
	for _, part := range a.parts {
		r := l.n.replicas[part.p]
		if l.gen == gen && r.fol != nil && r.leader == l.to && r.topic == part.topic {
			r.answered(l, seq, part)
		}
	}
	if l.gen == gen {
		l.pump()
	}
}

// serveFetch takes a follower's fetch at the leader. A fetch ends the one of its session that waits.
func (n *simNode) serveFetch(from int, f *simFetch, reply func(simAnswer)) {
	s := n.sessions[from]
	if f.session == 0 {
		n.ids++
		s = &simSession{id: n.ids, from: from, gen: f.gen}
		n.sessions[from] = s
	} else if s == nil || s.id != f.session {
		reply(simAnswer{err: ErrSession})
		return
	}
	if s.park != nil {
		s.park(simAnswer{session: s.id, parts: n.watermarks(s)})
		s.park = nil
	}
	s.brokerEpoch = f.brokerEpoch
	var parts []simPart
	for i := range f.claims {
		c := &f.claims[i]
		sp := s.parts[c.p]
		if sp == nil || sp.topic != c.topic || sp.claim.epoch != c.c.epoch { // it was forgotten, and is followed anew
			sp = &simSessionPart{topic: c.topic, highWatermark: -1, logStart: -1}
			s.parts[c.p] = sp
		}
		sp.claim, sp.bad = c.c, false
		if part := n.replicas[c.p].fetched(from, f.brokerEpoch, c); part.err != nil || part.diverging >= 0 {
			sp.valid, sp.bad = false, true
			parts = append(parts, part)
		}
	}
	if parts = n.read(s, parts); len(parts) > 0 {
		reply(simAnswer{session: s.id, parts: parts})
		return
	}
	s.parked++
	turn := s.parked
	s.park = reply
	n.later(500*time.Millisecond, func() {
		if s.park != nil && s.parked == turn {
			s.park = nil
			reply(simAnswer{session: s.id, parts: n.watermarks(s)})
		}
	})
}

// read adds the records that a session has not been sent.
func (n *simNode) read(s *simSession, parts []simPart) []simPart {
	for p, sp := range s.parts {
		r := n.replicas[p]
		if sp == nil || sp.bad || r.lead == nil || sp.topic != r.topic || sp.claim.epoch != r.epoch || hasPart(parts, p) {
			continue
		}
		if r.lead.forgot(int32(s.from)) { // it has to say again what it has
			sp.valid, sp.bad = false, true
			parts = append(parts, simPart{topic: r.topic, p: p, err: ErrForgotten, logStart: -1, highWatermark: -1, diverging: -1})
			continue
		}
		from := int(sp.claim.offset)
		if sp.valid && sp.epoch == r.epoch && sp.sent > from {
			from = sp.sent
		}
		if int(sp.claim.offset) < r.start { // it was deleted while the fetch waited
			sp.valid, sp.bad = false, true
			parts = append(parts, simPart{topic: r.topic, p: p, err: log.ErrOffsetOutOfRange, logStart: record.Offset(r.start), highWatermark: -1, diverging: -1})
			continue
		}
		if from >= len(r.log) || sp.claim.held || r.keptBack(s.from) {
			continue
		}
		to := min(len(r.log), from+1+n.w.rng.IntN(8))
		sp.sent, sp.epoch, sp.valid = to, r.epoch, true
		part := sp.tell(r)
		part.base, part.records = from, append([]simEntry(nil), r.log[from:to]...)
		parts = append(parts, part)
	}
	return parts
}

// watermarks are what an answer without records tells: what is new.
func (n *simNode) watermarks(s *simSession) (parts []simPart) {
	for p, sp := range s.parts {
		r := n.replicas[p]
		if sp == nil || sp.bad || r.lead == nil || sp.topic != r.topic || sp.claim.epoch != r.epoch {
			continue
		}
		if sp.highWatermark != r.hw || sp.logStart != record.Offset(r.start) {
			parts = append(parts, sp.tell(r))
		}
	}
	return parts
}

// tell is a part of an answer with the leader's offsets.
func (sp *simSessionPart) tell(r *simReplica) simPart {
	sp.highWatermark, sp.logStart = r.hw, record.Offset(r.start)
	return simPart{topic: r.topic, p: r.p, highWatermark: r.hw, logStart: record.Offset(r.start), diverging: -1}
}

func hasPart(parts []simPart, p int) bool {
	for i := range parts {
		if parts[i].p == p {
			return true
		}
	}
	return false
}

// wake answers the fetches that wait for a partition.
func (n *simNode) wake(int) {
	for _, s := range n.sessions {
		if s == nil || s.park == nil {
			continue
		}
		if parts := n.read(s, nil); len(parts) > 0 {
			park := s.park
			s.park = nil
			park(simAnswer{session: s.id, parts: parts})
		}
	}
}

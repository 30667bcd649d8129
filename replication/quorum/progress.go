package quorum

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/keeplog/keeplog/metadata"
)

// progress is how far the leader knows the others to be.
type progress struct {
	mu sync.Mutex
	of map[raft.ServerID]*reach
	// answered is closed, and forgotten, with the next answer of anybody; nil when nobody waits for one.
	answered chan struct{}
}

// reach is how far one member is.
type reach struct {
	// match is the last entry that it is known to have in common with the leader of term.
	match, term uint64
	// contact is when a message that it answered was sent, caughtUp when it last had all that was committed then.
	contact, caughtUp time.Time
	// installs counts snapshots since an entry was accepted.
	installs int
}

func (p *progress) at(id raft.ServerID) *reach {
	if p.of == nil {
		p.of = map[raft.ServerID]*reach{}
	}
	r := p.of[id]
	if r == nil {
		r = &reach{}
		p.of[id] = r
	}
	return r
}

func (p *progress) appended(id raft.ServerID, m *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse, sent time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.at(id)
	if m.Term > r.term {
		*r = reach{term: m.Term, installs: r.installs}
	}
	if m.Term < r.term || resp.Term > m.Term {
		return
	}
	r.contact = sent
	if p.answered != nil {
		close(p.answered)
		p.answered = nil
	}
	if !resp.Success {
		return
	}
	if end := m.PrevLogEntry + uint64(len(m.Entries)); m.PrevLogEntry > 0 || len(m.Entries) > 0 {
		r.match, r.installs = max(r.match, end), 0
	}
	if r.match > 0 && r.match >= m.LeaderCommitIndex {
		r.caughtUp = sent
	}
}

// since says who has answered a message of a term that was sent since then, and what is closed with the next answer.
func (p *progress) since(term uint64, then time.Time) (ids []raft.ServerID, next <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, r := range p.of {
		if r.term == term && !r.contact.Before(then) {
			ids = append(ids, id)
		}
	}
	if p.answered == nil {
		p.answered = make(chan struct{})
	}
	return ids, p.answered
}

// installed counts a snapshot that was taken.
func (p *progress) installed(id raft.ServerID, _ uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at(id).installs++
}

// get is how far a member is.
func (p *progress) get(id metadata.BrokerID) reach { return p.last(serverID(id)) }

// last is get by the library's name of the member.
func (p *progress) last(id raft.ServerID) reach {
	p.mu.Lock()
	defer p.mu.Unlock()
	return *p.at(id)
}

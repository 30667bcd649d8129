package quorum

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// awayCheck is how often a message that waits for a member looks whether it is still wanted.
const awayCheck = 100 * time.Millisecond

// away holds back the entries for members that do not answer. The library waits longer after each message that failed, up to ten
// seconds, and a member that came back would have no entries for as long; its heartbeats go on twice a second. So entries
// wait here, without failing, until the member has answered one of those.
type away struct {
	// wanted says that this node still leads in a term, with that member.
	wanted func(term uint64, id raft.ServerID) bool

	mu   sync.Mutex
	gone map[raft.ServerID]*absence
}

// absence is a member that did not answer in a term. back is closed when it has answered.
type absence struct {
	term uint64
	back chan struct{}
}

func newAway(wanted func(uint64, raft.ServerID) bool) *away {
	return &away{wanted: wanted, gone: map[raft.ServerID]*absence{}}
}

// note takes the outcome of a message.
func (a *away) note(id raft.ServerID, term uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.gone[id]
	switch {
	case err == nil && g != nil:
		close(g.back)
		delete(a.gone, id)
	case err != nil && g == nil:
		a.gone[id] = &absence{term, make(chan struct{})}
	case err != nil:
		g.term = max(g.term, term)
	}
}

// wait waits while the member is away and the message is wanted.
func (a *away) wait(id raft.ServerID, term uint64, done <-chan struct{}) {
	a.mu.Lock()
	g := a.gone[id]
	old := g == nil || g.term < term
	a.mu.Unlock()
	if old {
		return
	}
	t := time.NewTicker(awayCheck)
	defer t.Stop()
	for {
		select {
		case <-g.back:
			return
		case <-done:
			return
		case <-t.C:
			if !a.wanted(term, id) {
				return
			}
		}
	}
}

// isHeartbeat says that a message is for the leader's lease only.
func isHeartbeat(m *raft.AppendEntriesRequest) bool {
	return len(m.Entries) == 0 && m.PrevLogEntry == 0 && m.LeaderCommitIndex == 0
}

// wanted says that this node leads in the term, and that the member is one.
func (q *Quorum) wanted(term uint64, id raft.ServerID) bool {
	r := q.raft()
	if r == nil || r.State() != raft.Leader || r.CurrentTerm() != term {
		return false
	}
	for _, s := range q.servers() {
		if s.ID == id {
			return true
		}
	}
	return false
}

package quorum

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/keeplog/keeplog/internal/grid"
)

// restAfter is how long nothing must have been stored before a leader with nothing new to say waits before it says so again.
const restAfter = 200 * time.Millisecond

// restTime is how long it waits: it keeps the leader's lease, and members are taken for current when they were so within the time of an
// election (see current).
func (t Timing) restTime() time.Duration { return t.Lease / 2 }

// beatEvery is how long a heartbeat waits after the last message that the member answered: so long that it is only sent where such messages
// do not come, and short enough for the lease.
func (t Timing) beatEvery() time.Duration { return 5 * t.Lease / 8 }

// idle spares messages. The library tells every member how far the log is committed, many times a second, also when it told that
// before: with nothing new such a message waits a moment here, unless an entry is stored meanwhile. Heartbeats keep the leader's
// lease, as any answer does: one that follows another message closely waits, unless the leadership is to be verified.
type idle struct {
	time, beat time.Duration

	mu     sync.Mutex
	stored time.Time
	told   map[raft.ServerID]uint64
	wake   chan struct{} // of what is said again
	// verifying counts those who verify the leadership.
	verifying int
	hurry     chan struct{} // of heartbeats
}

func newIdle(t Timing) *idle {
	return &idle{
		time: t.restTime(), beat: t.beatEvery(), stored: time.Now(), told: map[raft.ServerID]uint64{},
		wake: make(chan struct{}), hurry: make(chan struct{}),
	}
}

// store notes that an entry is stored.
func (i *idle) store() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stored = time.Now()
	close(i.wake)
	i.wake = make(chan struct{})
}

// sent notes what a member was told.
func (i *idle) sent(id raft.ServerID, m *raft.AppendEntriesRequest) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.told[id] = m.LeaderCommitIndex
}

// failed notes that a member did not answer: it may have been started again, and know nothing of what it was told.
func (i *idle) failed(id raft.ServerID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, ok := i.told[id]; !ok {
		return
	}
	delete(i.told, id)
	close(i.wake)
	i.wake = make(chan struct{})
}

// rest waits if the message has nothing new.
func (i *idle) rest(id raft.ServerID, m *raft.AppendEntriesRequest, done <-chan struct{}) {
	i.mu.Lock()
	wake := i.wake
	quiet := len(m.Entries) == 0 && m.PrevLogEntry > 0 && m.PrevLogEntry == m.LeaderCommitIndex &&
		i.told[id] == m.LeaderCommitIndex && time.Since(i.stored) > restAfter
	i.mu.Unlock()
	if quiet {
		pause(grid.Until(i.time, 0), wake, done)
	}
}

// restBeat waits while the member has answered a message of this term a moment ago.
func (i *idle) restBeat(term uint64, last func() reach, done <-chan struct{}) {
	for {
		i.mu.Lock()
		hurry, verifying := i.hurry, i.verifying > 0
		i.mu.Unlock()
		r := last()
		left := i.beat - time.Since(r.contact)
		if verifying || r.term != term || left <= 0 || !pause(grid.Until(left, 0), hurry, done) {
			return
		}
	}
}

// verify has heartbeats go out at once until the function that it returns is called.
func (i *idle) verify() (end func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.verifying++
	close(i.hurry)
	i.hurry = make(chan struct{})
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.verifying--
	}
}

// pause waits, and tells whether that was for the whole time.
func pause(d time.Duration, wake, done <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-wake:
	case <-done:
	}
	return false
}

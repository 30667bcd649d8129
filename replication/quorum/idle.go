package quorum

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// restTime is how long a leader with nothing new to say waits before it says so again.
	restTime = 100 * time.Millisecond
	// restAfter is how long nothing must have been stored before it does.
	restAfter = 200 * time.Millisecond
)

// idle spares messages. The library tells every member how far the log is committed, many times a second, also when it told that
// before: with nothing new such a message waits a moment here, unless an entry is stored meanwhile. Messages that keep a
// leader's lease or verify its leadership are others, and do not wait.
type idle struct {
	mu     sync.Mutex
	stored time.Time
	wake   chan struct{}
	told   map[raft.ServerID]uint64
}

func newIdle() *idle {
	return &idle{wake: make(chan struct{}), told: map[raft.ServerID]uint64{}, stored: time.Now()}
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

// rest waits if the message has nothing new.
func (i *idle) rest(id raft.ServerID, m *raft.AppendEntriesRequest, done <-chan struct{}) {
	i.mu.Lock()
	wake := i.wake
	quiet := len(m.Entries) == 0 && m.PrevLogEntry > 0 && m.PrevLogEntry == m.LeaderCommitIndex &&
		i.told[id] == m.LeaderCommitIndex && time.Since(i.stored) > restAfter
	i.mu.Unlock()
	if !quiet {
		return
	}
	t := time.NewTimer(restTime)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case <-done:
	}
}

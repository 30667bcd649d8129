package quorum

import (
	"time"

	"github.com/hashicorp/raft"
)

// recall keeps a voter that has just started from giving a vote away. A voter that has heard a leader in the last heartbeat time-out grants
// none to others, and leases count on that; but it remembers that in memory only. After a start it may have been so a moment ago. It costs no
// time where all have started together, because nobody stands for election sooner than that, nor where a leader hands over.
type recall struct {
	// until is when a leader that was heard before the start is heard of no more: the zero time for a member that has never had one.
	until time.Time
}

// newRecall begins with a start. known says that the member has known a term before.
func newRecall(known bool, timing Timing) recall {
	if !known {
		return recall{}
	}
	return recall{time.Now().Add(timing.Heartbeat)}
}

// refuses says that a message asks for a vote that may not be given yet, and the answer.
func (r recall) refuses(message any) (answer any, refused bool) {
	if r.until.IsZero() || time.Now().After(r.until) {
		return nil, false
	}
	switch m := message.(type) {
	case *raft.RequestVoteRequest:
		return &raft.RequestVoteResponse{RPCHeader: m.RPCHeader}, !m.LeadershipTransfer
	case *raft.RequestPreVoteRequest:
		return &raft.RequestPreVoteResponse{RPCHeader: m.RPCHeader}, true
	}
	return nil, false
}

// Consumer is where Raft takes the others' messages from.
func (t transport) Consumer() <-chan raft.RPC {
	in := t.NetworkTransport.Consumer()
	if t.recall.until.IsZero() {
		return in
	}
	out := make(chan raft.RPC)
	go func() {
		for {
			select {
			case rpc := <-in:
				if answer, refused := t.recall.refuses(rpc.Command); refused {
					rpc.Respond(answer, nil)
					continue
				}
				select {
				case out <- rpc:
				case <-t.done:
					return
				case <-t.closed:
					return
				}
			case <-t.done:
				return
			case <-t.closed:
				return
			}
		}
	}()
	return out
}

package quorum

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/keeplog/keeplog/internal/invariant"
)

// verifySoon is how long VerifySoon waits for messages that are sent anyway.
const verifySoon = 100 * time.Millisecond

// VerifyLeader asks a majority whether this node still leads. A read that must be current notes its state, then verifies,
// then answers.
func (q *Quorum) VerifyLeader(ctx context.Context) error {
	if _, err := q.Lead(); err != nil {
		return err
	}
	f := q.raft().VerifyLeader()
	defer q.store.idle.verify()()
	return wait(ctx, f, func(err error) error { return fmt.Errorf("%w: %w", ErrNotLeader, err) })
}

// VerifySoon is VerifyLeader for what can wait for a tenth of a second: the messages that members are sent anyway mostly answer it.
// A majority has answered messages of this term that were sent after the call, so nobody else led before the call.
func (q *Quorum) VerifySoon(ctx context.Context) error {
	then := time.Now()
	term, err := q.Lead()
	if err != nil || q.peers == nil || invariant.Seeded(invariant.NotVerified) {
		return err
	}
	t := time.NewTimer(verifySoon)
	defer t.Stop()
	for {
		answered, next := q.peers.seen.since(term, then)
		if majority(q.servers(), serverID(q.o.Node), answered) {
			if now, err := q.Lead(); err != nil || now != term {
				return q.notLeader()
			}
			return nil
		}
		select {
		case <-next:
		case <-t.C:
			return q.VerifyLeader(ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// majority says that this node and those that answered are more than half of the voters.
func majority(servers []raft.Server, self raft.ServerID, answered []raft.ServerID) bool {
	voters, with := 0, 0
	for _, s := range servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if s.ID == self || slices.Contains(answered, s.ID) {
			with++
		}
	}
	return with > voters/2
}

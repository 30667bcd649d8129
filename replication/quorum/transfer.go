package quorum

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/keeplog/keeplog/metadata"
)

// ErrNoSuccessor says that no other member could lead now.
var ErrNoSuccessor = errors.New("quorum: no other member can lead")

// Transfer hands the lead over, so that the cluster need not find out that this node stops: to the voter that has the most of the
// log. It returns when this node knows another one to lead; until ctx ends, or for an election's time. The error wraps ErrNotLeader
// when this node does not lead, ErrNoSuccessor when nobody answers who could; after an error this node may lead on.
func (q *Quorum) Transfer(ctx context.Context) error {
	if _, err := q.Lead(); err != nil {
		return err
	}
	to, ok := successor(q.Status().Members, q.o.Node, q.current)
	if !ok {
		return ErrNoSuccessor
	}
	ctx, cancel := context.WithTimeout(ctx, 2*q.o.Timing.Election)
	defer cancel()
	id := serverID(to.ID)
	servers := q.servers()
	at := slices.IndexFunc(servers, func(s raft.Server) bool { return s.ID == id })
	if at < 0 {
		return ErrNoSuccessor
	}
	f := q.raft().LeadershipTransferToServer(id, servers[at].Address)
	if err := wait(ctx, f, func(err error) error { return fmt.Errorf("quorum: hand the lead over to node %d: %w", to.ID, err) }); err != nil {
		return err
	}
	for {
		changed := q.changes()
		if id, ok := q.Leader(); ok && id != q.o.Node {
			return nil
		}
		if err := q.pause(ctx, changed); err != nil {
			return err
		}
	}
}

// successor is the voter that is to lead next: of those that are current the one with the most of the log, the lowest of them.
func successor(all []MemberStatus, self metadata.BrokerID, current func(MemberStatus) bool) (best MemberStatus, ok bool) {
	for _, m := range all {
		if m.ID != self && m.Voter && current(m) && (!ok || m.Match > best.Match) {
			best, ok = m, true
		}
	}
	return best, ok
}

// HeardFormer is how long ago this node, which leads, last heard of the leader before it; the longest time where it never heard of one.
func (q *Quorum) HeardFormer() time.Duration {
	last := q.raft().LastContact()
	if last.IsZero() {
		return math.MaxInt64
	}
	return time.Since(last)
}

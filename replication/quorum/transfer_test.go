package quorum

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestTransfer: a leader that stops hands over, to a member that runs, and the cluster is without one for less than a moment. Who
// does not lead, or has nobody to lead after it, says so.
func TestTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3).start().ready()
		ctx := context.Background()
		for round := range 4 {
			first := c.leader()
			if err := c.other(first).q.Transfer(ctx); !errors.Is(err, ErrNotLeader) {
				t.Fatal("a follower handed over: ", err)
			}
			first.propose(topics(10*round, 10)...)
			time.Sleep(time.Second) // all have it, virtual time
			begin := time.Now()
			if err := first.q.Transfer(ctx); err != nil {
				t.Fatal(err)
			}
			if id, ok := first.q.Leader(); !ok || id == first.o.Node {
				t.Fatalf("after it, node %d is taken for the leader (%v)", id, ok)
			}
			first.stop()
			if heard := c.leader(first.id).q.HeardFormer(); heard > 300*time.Millisecond {
				t.Errorf("round %d: the new leader heard of the one that handed over %v ago", round, heard)
			}
			if took := time.Since(begin); took > 300*time.Millisecond {
				t.Errorf("round %d: %v without a leader", round, took)
			}
			// With one away, it is the other one that is next, whichever has the lower id.
			second := c.leader()
			second.propose(topics(100+10*round, 10)...)
			time.Sleep(5 * time.Second)
			next := c.other(second)
			if err := second.q.Transfer(ctx); err != nil {
				t.Fatal(err)
			}
			if got := c.leader(); got != next {
				t.Fatalf("node %d leads instead of %d", got.id, next.id)
			}
			first.start()
			c.ready().same()
		}
		last := c.leader()
		for _, n := range c.nodes {
			if n != last {
				n.stop()
			}
		}
		if err := last.q.Transfer(ctx); err == nil {
			t.Error("the lead was handed over to nobody")
		}
		time.Sleep(10 * time.Second)
		if err := last.q.Transfer(ctx); !errors.Is(err, ErrNotLeader) {
			t.Error(err)
		}
		c.close()
	})
}

// TestSuccessor: who comes next has a vote, answers, and has the most of the log.
func TestSuccessor(t *testing.T) {
	all := []MemberStatus{
		{ID: 1, Voter: true, Match: 99},
		{ID: 2, Voter: true, Match: 90, CaughtUp: -1},
		{ID: 3, Match: 80},
		{ID: 4, Voter: true, Match: 60},
		{ID: 5, Voter: true, Match: 70},
		{ID: 6, Voter: true, Match: 70},
	}
	current := func(m MemberStatus) bool { return m.CaughtUp == 0 }
	if m, ok := successor(all, 1, current); !ok || m.ID != 5 {
		t.Error(m, ok)
	}
	if m, ok := successor(all[:3], 1, current); ok {
		t.Error(m)
	}
}

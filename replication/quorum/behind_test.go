package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/keeplog/keeplog/metadata"
)

// small takes snapshots often and keeps little log behind them.
var small = Timing{SnapshotEvery: time.Second, SnapshotEntries: 50, Trailing: 8, Commit: 100 * time.Millisecond}

func (c *cluster) timing(t Timing) *cluster {
	for _, n := range c.nodes {
		n.o.Timing = t
	}
	return c
}

// fill proposes topics one by one for a while.
func (c *cluster) fill(from, count int, not ...int) {
	c.t.Helper()
	for i := range count {
		c.leader(not...).propose(topic(from + i))
		time.Sleep(100 * time.Millisecond) // virtual time
	}
}

// TestFarBehind: a member that was away while the others cut their logs gets a snapshot, tells its subscribers all that has
// changed, and starts again with what it then has. So does a new member.
func TestFarBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3).timing(small).start().ready()
		c.fill(0, 20)
		c.same()
		away := c.other(c.leader())
		seen := map[string]bool{}
		indexes := uint64(0)
		away.q.Subscribe(func(d metadata.Delta, img *metadata.Image) {
			if d.To != img.Index() || d.From < indexes {
				t.Errorf("delta from %d to %d, image %d, after %d", d.From, d.To, img.Index(), indexes)
			}
			indexes = d.To
			for _, change := range d.Topics {
				seen[change.After.Name] = true
			}
		})
		c.isolate(away.id, true)
		c.fill(20, 400, away.id)
		last := away.q.raft().LastIndex()
		if first, _ := c.leader(away.id).store.FirstIndex(); first <= last+1 {
			t.Fatalf("the leader's log begins at %d, the member ends at %d: nothing is tested", first, last)
		}
		time.Sleep(2 * time.Minute) // virtual time
		c.isolate(away.id, false)
		c.ready(away.id)
		c.same()
		if len(seen) != 420 {
			t.Error("the subscriber saw ", len(seen), " topics of 420")
		}
		away.stop()
		away.start()
		c.ready()
		c.joiner(4, 1).o.Timing = small
		c.nodes[4].start()
		c.ready()
		c.fill(420, 10)
		c.same()
		for _, n := range c.nodes {
			n.stop()
		}
		c.start().ready().same()
		if got := c.nodes[4].q.Image().TopicCount(); got != 430 {
			t.Error(got, " topics")
		}
		c.close()
	})
}

// TestCrashWhileInstalling stops a member at each call of its store while it gets a snapshot and what follows, with and without
// what the call wrote: it starts again, and catches up. The library alone does not get over a stop between the first entry
// behind the snapshot and its answer.
func TestCrashWhileInstalling(t *testing.T) {
	for _, half := range []bool{false, true} {
		calls := 0
		for crashed := true; crashed && !t.Failed(); calls++ {
			synctest.Test(t, func(t *testing.T) { crashed = crashWhileInstalling(t, calls+1, half) })
		}
		if calls < 3 || t.Failed() {
			t.Fatalf("half %v: %d calls", half, calls)
		}
	}
}

func crashWhileInstalling(t *testing.T, at int, half bool) (crashed bool) {
	c := newCluster(t, 3).timing(small).start().ready()
	c.fill(0, 5)
	away := c.other(c.leader())
	c.isolate(away.id, true)
	c.fill(5, 120, away.id)
	away.stop()
	life := make(chan struct{})
	away.o.Fatal = exitGoroutine(life)
	away.start()
	away.store.mu.Lock()
	away.store.CrashAfter, away.store.Half = away.store.calls+at, half
	away.store.mu.Unlock()
	c.isolate(away.id, false)
	select {
	case <-life:
		crashed = true
	case <-time.After(10 * time.Second):
	}
	c.isolate(away.id, true)
	_ = away.q.Close()
	away.q, away.store = nil, away.store.Crash()
	c.isolate(away.id, false)
	away.o.Fatal = func(err error) { away.fatal <- err }
	away.start()
	c.ready()
	c.same()
	c.close()
	return crashed
}

// TestSnapshotAgainstTheLog is hashicorp/raft#697: a member has another entry where the leader's snapshot ends, and the leader's
// log begins behind it. The member takes the snapshot once, and follows.
func TestSnapshotAgainstTheLog(t *testing.T) {
	for _, beyond := range []int{0, 5} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 3).start().ready()
			c.fill(0, 30)
			for range 3 { // terms, so that an old one is another
				lead := c.leader()
				if err := lead.q.raft().LeadershipTransfer().Error(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second) // virtual time
			}
			c.fill(30, 30)
			c.same()
			for _, n := range c.nodes {
				if err := n.q.Snapshot(); err != nil {
					t.Fatal(err)
				}
			}
			at := c.nodes[1].q.snaps.newest()
			odd := c.nodes[3]
			for _, n := range c.nodes {
				n.stop()
			}
			for id, n := range c.nodes { // the leaders' logs begin behind the snapshot
				if id != odd.id {
					if err := n.store.DeleteRange(1, at.index); err != nil {
						t.Fatal(err)
					}
				}
			}
			// The odd one never had the snapshot, and has entries of an older term where it ends.
			odd.o.FS = newCluster(t, 1).nodes[1].o.FS
			last, _ := odd.store.LastIndex()
			if err := odd.store.DeleteRange(at.index-2, last); err != nil {
				t.Fatal(err)
			}
			for i := at.index - 2; i <= at.index+uint64(beyond); i++ {
				stale := metadata.AppendCommand(nil, &metadata.Command{Session: metadata.Session{Epoch: metadata.NoEpoch}})
				if err := odd.store.StoreLog(&raft.Log{Index: i, Term: 2, Type: raft.LogCommand, Data: stale}); err != nil {
					t.Fatal(err)
				}
			}
			if at.term <= 2 {
				t.Fatal("the snapshot's term is ", at.term)
			}
			c.start()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := odd.q.WaitReady(ctx); err != nil {
				t.Fatal(err)
			}
			c.fill(60, 10)
			c.same()
			c.close()
		})
	}
}

// TestQuorumFindsALeader cuts voters off, one way and both ways, one and two at a time, again and again: with a majority
// connected there is a leader within seconds (hashicorp/raft#605, #606, #609: the first pre-vote left quorums without one).
func TestQuorumFindsALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3).timing(Timing{Commit: 200 * time.Millisecond}).start().ready()
		worst := time.Duration(0)
		for round := range 16 {
			id := round%3 + 1
			switch round % 4 {
			case 0:
				c.isolate(id, true)
			case 1: // hears nobody
				for other := range c.nodes {
					c.net.cut(host(other), host(id), other != id)
				}
			case 2: // is heard by nobody
				for other := range c.nodes {
					c.net.cut(host(id), host(other), other != id)
				}
			case 3: // nobody hears anybody
				c.isolate(1, true)
				c.isolate(2, true)
			}
			time.Sleep(time.Duration(round) * time.Second) // virtual time
			for from := range c.nodes {
				for to := range c.nodes {
					c.net.cut(host(from), host(to), false)
				}
			}
			at := time.Now()
			c.leader().propose(topic(round))
			worst = max(worst, time.Since(at))
		}
		t.Log("at most ", worst, " without a leader after it was healed")
		if worst > 15*time.Second {
			t.Error(worst)
		}
		c.same()
		c.close()
	})
}

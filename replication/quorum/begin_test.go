package quorum

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/vfs"
)

// wait waits for a node to be refused.
func (n *clusterNode) refusedWith(want error, texts ...string) {
	n.c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	select {
	case <-n.q.Refused():
	case <-ctx.Done():
		n.c.t.Fatalf("node %d is not refused", n.id)
	}
	err := n.q.WaitReady(ctx)
	if !errors.Is(err, want) || !errors.Is(n.q.Err(), want) {
		n.c.t.Fatalf("node %d: %v, want %v", n.id, err, want)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			n.c.t.Errorf("node %d: %q is not in: %v", n.id, text, err)
		}
	}
}

// TestBegin: the cluster begins when all that are listed are there, with all their directories in the first record.
func TestBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		var ids atomic.Int32
		for _, n := range c.nodes {
			n.o.NewClusterID = func() string { ids.Add(1); return testCluster }
		}
		c.nodes[1].start()
		c.nodes[3].start()
		time.Sleep(time.Minute) // virtual time: two of three do not begin
		for _, id := range []int{1, 3} {
			if n := c.nodes[id]; n.q.Term() != 0 || n.q.raft().LastIndex() != 0 {
				t.Errorf("node %d: term %d, %d entries", id, n.q.Term(), n.q.raft().LastIndex())
			}
		}
		at := time.Now()
		c.nodes[2].start()
		c.ready()
		t.Log("ready after ", time.Since(at))
		if took := time.Since(at); took > 5*time.Second {
			t.Error("ready after ", took)
		}
		if ids.Load() != 1 {
			t.Error(ids.Load(), " cluster ids were made")
		}
		img := c.nodes[2].q.Image()
		for id := range 3 {
			if m, ok := img.Member(metadata.BrokerID(id + 1)); !ok || !m.Voter || m.Directory != directory(id+1) {
				t.Errorf("%+v", m)
			}
		}
		c.eventually("the image knows where the members are", func() bool {
			for _, m := range c.nodes[3].q.Image().Members() {
				if endpointAddress(m.Controller) != memAddress(int(m.ID)) {
					return false
				}
			}
			return true
		})
		c.close()
	})
}

// TestRestartOfAll: all stop at once, and start again, in any order and with other addresses.
func TestRestartOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3).start().ready()
		for round := range 3 {
			c.leader().propose(topics(round*10, 10)...)
			for _, n := range c.nodes {
				n.stop()
			}
			if round == 1 { // all move, and the lists say so
				for i := range c.list {
					c.list[i].Address = fmt.Sprintf("%s:%d", host(i+1), 7000)
				}
				for _, n := range c.nodes {
					n.o.Controller.Port = 7000
				}
			}
			c.start().ready()
		}
		c.same()
		if got := c.nodes[1].q.Image().TopicCount(); got != 30 {
			t.Error(got, " topics")
		}
		c.close()
	})
}

// TestNewAddress is rqlite's trouble (#818): a voter comes back at another address. Its id stays, the others hear of it.
func TestNewAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3).start().ready()
		for i, id := range []int{2, 1, 3} {
			n := c.nodes[id]
			n.stop()
			n.o.Controller.Port = uint16(7000 + i)
			n.start()
			c.ready()
			c.leader().propose(topics(i, 1)...)
			c.same()
			c.eventually("the image has the new address", func() bool {
				m, _ := c.leader().q.Image().Member(n.o.Node)
				return m.Controller == n.o.Controller
			})
		}
		// The old lists still name the old addresses; who restarts finds the others by what it knows.
		for _, n := range c.nodes {
			n.stop()
			n.start()
			c.ready()
		}
		c.close()
	})
}

// TestNewIDAtOldAddress is rqlite's other trouble (#2778): a new node where an old one was. Nobody takes it for the old one.
func TestNewIDAtOldAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3).start().ready()
		old := c.nodes[3]
		old.stop()
		time.Sleep(10 * time.Second) // virtual time
		n := c.add(4)
		n.o.Controller = old.o.Controller
		n.o.Join = []string{memAddress(1)}
		n.start()
		c.ready(4)
		s := c.leader().q.Status()
		if len(s.Members) != 4 || s.Members[3].Voter || s.Members[2].Contact >= 0 && s.Members[2].Contact < time.Second {
			t.Errorf("%+v", s)
		}
		c.leader().propose(topics(1, 1)...)
		delete(c.nodes, 3)
		c.same()
		c.close()
	})
}

// TestWipedVoter: a voter whose disk was wiped takes part in nothing, and says what to do; done, the cluster has three voters.
func TestWipedVoter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, id := range []int{1, 3} {
			c := newCluster(t, 3).start().ready()
			c.leader().propose(topics(0, 1)...)
			wiped := c.nodes[id]
			before := wiped.o.Directory
			wiped.stop()
			c.leader(id)
			wiped.wipe()
			wiped.start()
			wiped.refusedWith(ErrForeign, fmt.Sprintf("keeplog cluster remove %d --replace --brokers ", id),
				"keeplog serve --set keeplog.lost.directories="+before.String(), "wiped")
			if wiped.q.Term() != 0 || wiped.q.raft().LastIndex() != 0 {
				t.Error("the wiped node took part")
			}
			wiped.stop()
			ctx := context.Background()
			if err := c.leader(id).q.RemoveMember(ctx, metadata.BrokerID(id)); err != nil {
				t.Fatal(err)
			}
			delete(c.nodes, id)
			n := c.add(4)
			n.o.Join = []string{memAddress(2)}
			n.start()
			c.ready()
			c.eventually("the new node votes", func() bool { return voters(c.leader().q.Status().Members) == 3 })
			c.leader().propose(topics(1, 1)...)
			c.same()
			c.close()
		}
	})
}

// TestWipedBeforeItFollowed: a voter is wiped after its answer and before the cluster's first entry reached it.
func TestWipedBeforeItFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.start()
		c.isolate(3, true) // its answer is out
		c.eventually("the cluster begins", func() bool {
			return c.nodes[1].q.raft().LastIndex() > 0 || c.nodes[1].q.Term() == 0 && len(c.nodes[1].q.servers()) == 0
		})
		wiped := c.nodes[3]
		_ = wiped.q.Close()
		wiped.q = nil
		wiped.wipe()
		c.isolate(3, false)
		wiped.start()
		begun := len(c.nodes[1].q.servers()) > 0
		if begun {
			wiped.refusedWith(ErrForeign, "keeplog cluster remove 3")
		}
		c.ready(1, 2)
		if !begun {
			c.ready(3)
		}
		c.close()
	})
}

// TestDifferentLists: nodes that list different voters begin nothing, and say which.
func TestDifferentLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.nodes[2].o.Voters = []Voter{{1, memAddress(1)}, {2, memAddress(2)}}
		c.start()
		c.nodes[1].refusedWith(ErrVoters, "node 2 lists 1@n1:9093,2@n2:9093, this node lists 1@n1:9093,2@n2:9093,3@n3:9093")
		c.nodes[2].refusedWith(ErrVoters, "node 1 lists")
		for _, n := range c.nodes {
			if n.q.raft().LastIndex() != 0 {
				t.Errorf("node %d has begun", n.id)
			}
		}
		c.close()
	})
}

// TestForeignCluster: members of two clusters do not talk, whatever their lists say.
func TestForeignCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3).start().ready()
		other := newCluster(t, 3)
		other.net = c.net
		for id, n := range other.nodes {
			n.c = other
			n.o.NewClusterID = func() string { return "vutsrqponmlkjihgfedcba" }
			n.o.Controller.Port = 8093
			n.o.Dial = c.net.dialer("other" + host(id))
			other.list[id-1].Address = fmt.Sprintf("%s:8093", host(id))
		}
		other.start().ready()
		stranger, member := other.nodes[2], c.nodes[1]
		ctx := context.Background()
		for _, kind := range []call{callRaft, callHello, callJoin} {
			conn, err := stranger.q.peers.port.dialAt(ctx, attempt{memAddress(1), kind, identity{1, directory(1)}, 1})
			if !errors.Is(err, ErrForeign) {
				t.Errorf("kind %d: %v", kind, err)
			}
			if err == nil {
				_ = conn.Close()
			}
		}
		// A member restarts with a list that names a node of the other cluster: it hears nothing from it, and goes on.
		member.stop()
		member.o.Voters = append([]Voter(nil), c.list...)
		member.o.Voters[1].Address = fmt.Sprintf("%s:8093", host(2))
		member.start()
		c.ready()
		if got := member.q.Image().ClusterID(); got != testCluster {
			t.Error(got)
		}
		// A store of the one under the name of the other.
		member.stop()
		member.o.ClusterID = "vutsrqponmlkjihgfedcba"
		if err := member.open(); !errors.Is(err, ErrForeign) {
			t.Error(err)
		}
		other.close()
		c.close()
	})
}

// TestCrashInBeginning stops the node that begins the cluster at each call of its store, with and without what the call wrote.
// It begins once; all end in one cluster.
func TestCrashInBeginning(t *testing.T) {
	for _, half := range []bool{false, true} {
		// Raft writes its term twice when it begins; the second time is left out, because it waits for itself there.
		for _, at := range []int{1, 2, 4, 5, 6, 7, 8} {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3)
				var made atomic.Int32
				for _, n := range c.nodes {
					n.o.NewClusterID = func() string { return fmt.Sprintf("%022d", made.Add(1)) }
				}
				first := c.nodes[1]
				life := make(chan struct{})
				first.o.Fatal = exitGoroutine(life)
				if at <= 2 {
					first.o.Fatal = func(error) { close(life) } // Raft takes an error here
				}
				first.start()
				first.store.mu.Lock()
				first.store.CrashAfter, first.store.Half = first.store.calls+at, half
				first.store.mu.Unlock()
				c.nodes[2].start()
				c.nodes[3].start()
				select {
				case <-life:
				case <-time.After(20 * time.Second):
					t.Errorf("call %d: no crash", at)
				}
				c.isolate(1, true)
				_ = first.q.Close()
				c.isolate(1, false)
				first.q, first.store = nil, first.store.Crash()
				first.o.FS = vfs.NewMem()
				first.o.Fatal = func(err error) { first.fatal <- err }
				c.start().ready()
				c.leader().propose(topics(0, 1)...)
				c.same()
				for _, n := range c.nodes {
					n.o.ClusterID = n.q.Image().ClusterID()
				}
				c.close()
			})
			if t.Failed() {
				t.Fatalf("call %d, half %v", at, half)
			}
		}
	}
}

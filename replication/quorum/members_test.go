package quorum

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/vfs"
)

// word writes the members as "1V 2V 4n": voters and others, as a node knows them.
func (n *clusterNode) word() (w string) {
	for _, m := range n.q.Status().Members {
		if w != "" {
			w += " "
		}
		w += fmt.Sprint(m.ID, map[bool]string{true: "V", false: "n"}[m.Voter])
	}
	return w
}

func (c *cluster) become(want string) {
	c.t.Helper()
	got := ""
	end := time.Now().Add(60 * time.Second)
	for time.Now().Before(end) {
		if got = c.leader().word(); got == want {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	c.t.Fatalf("the members are %s, want %s", got, want)
}

// joiner adds a node that joins by the address of another.
func (c *cluster) joiner(id, by int) *clusterNode {
	n := c.add(id)
	n.o.Join = []string{memAddress(by)}
	return n
}

func (c *cluster) remove(id int) {
	c.t.Helper()
	for {
		err := c.leader().q.RemoveMember(context.Background(), metadata.BrokerID(id))
		if err == nil {
			return
		}
		if !errors.Is(err, ErrNotLeader) {
			c.t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestJoinAndLeave: a fourth node has no vote, with the fifth both get one; nodes leave one by one, the leader too; who was
// removed is told, and does not come back with the same disk.
func TestJoinAndLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3).start().ready()
		c.leader().propose(topics(0, 20)...)
		c.joiner(4, 2).start()
		c.ready()
		if got := c.nodes[4].q.Image().TopicCount(); got != 20 {
			t.Error("the new node is ready with ", got, " topics")
		}
		time.Sleep(time.Minute) // virtual time: it stays without a vote
		c.become("1V 2V 3V 4n")
		c.joiner(5, 4).start() // asks a node that neither leads nor votes
		c.ready()
		c.become("1V 2V 3V 4V 5V")
		c.leader().propose(topics(20, 20)...)
		for _, id := range []int{c.leader().id, 4} {
			c.remove(id)
			n := c.nodes[id]
			n.refusedWith(ErrRemoved, "removed", "--data-dir DIR")
			n.stop()
			n.start()
			n.refusedWith(ErrRemoved)
			n.stop()
			// Without the words to join it is told at once too.
			alone := n.o
			alone.Voters, alone.Join, alone.Listener, alone.Store, alone.ClusterID = nil, nil, nil, n.store.Crash(), testCluster
			if _, err := Open(alone); !errors.Is(err, ErrRemoved) {
				t.Error("alone: ", err)
			}
			delete(c.nodes, id)
			c.ready()
		}
		c.leader().propose(topics(40, 1)...)
		c.same()
		if got := len(c.leader().q.Status().Members); got != 3 {
			t.Error(got, " members")
		}
		// The id may come back with an empty disk.
		back := c.joiner(4, c.leader().id)
		back.o.Directory[2] = 9
		back.start()
		c.ready()
		c.same()
		c.close()
	})
}

// TestJoinTogether: several nodes join at the same time; the members change one at a time.
func TestJoinTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1).start().ready()
		for id := 2; id <= 7; id++ {
			c.joiner(id, 1).start()
		}
		c.ready()
		c.eventually("five voters of seven members", func() bool {
			s := c.leader().q.Status()
			return voters(s.Members) == 5 && len(s.Members) == 7
		})
		c.leader().propose(topics(0, 1)...)
		c.same()
		// Five are the most that vote.
		s := c.leader().q.Status()
		at := slices.IndexFunc(s.Members, func(m MemberStatus) bool { return !m.Voter })
		if err := c.leader().q.Promote(context.Background(), s.Members[at].ID); !errors.Is(err, ErrVoters) {
			t.Error(err)
		}
		c.close()
	})
}

// TestGrow: a node alone, with its history, becomes three by a longer list, and by joins.
func TestGrow(t *testing.T) {
	for _, by := range []string{"list", "join"} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 3)
			n := c.nodes[2] // not the lowest
			alone := n.o
			alone.Listener, alone.Voters, alone.Dial, alone.Store = nil, nil, nil, n.store
			q, err := Open(alone)
			if err != nil {
				t.Fatal(err)
			}
			if err := q.WaitReady(context.Background()); err != nil {
				t.Fatal(err)
			}
			if _, err := q.Propose(context.Background(), topics(0, 30)); err != nil {
				t.Fatal(err)
			}
			if err := q.AddMember(context.Background(), Member{ID: 3}, false); !errors.Is(err, ErrAlone) {
				t.Error(err)
			}
			if s := q.Status(); len(s.Members) != 1 || !s.Members[0].Voter || s.Members[0].Directory != directory(2) || s.Leader != 2 {
				t.Errorf("%+v", s)
			}
			if err := q.Close(); err != nil {
				t.Fatal(err)
			}
			n.store, n.o.ClusterID = n.store.Crash(), testCluster
			other := n.o // its files under another id
			other.Node, other.Store, other.Listener = 3, n.store, c.net.listen(host(2), "n2:1")
			if q, err := Open(other); !errors.Is(err, ErrForeign) {
				t.Error(q, err)
			}
			n.store = n.store.Crash()
			if by == "join" {
				n.o.Voters = []Voter{{2, memAddress(2)}}
				for _, id := range []int{1, 3} {
					c.nodes[id].o.Voters, c.nodes[id].o.Join = nil, []string{memAddress(2)}
				}
			}
			n.start()
			c.ready(2)
			if n.q.o.Timing.Election != time.Second {
				t.Error("a lone node's timing among others: ", n.q.o.Timing.Election)
			}
			c.start().ready()
			c.become("1V 2V 3V")
			c.isolate(2, true)
			c.leader(2).propose(topics(30, 1)...)
			c.isolate(2, false)
			c.same()
			// Started alone again it would never lead.
			n.stop()
			alone.Store, alone.ClusterID = n.store, testCluster
			if q, err := Open(alone); !errors.Is(err, ErrAlone) {
				t.Error(q, err)
			}
			n.store = n.store.Crash()
			n.start()
			c.ready()
			c.close()
		})
	}
}

// TestMajority: no change of the members leaves a minority of the voters alive (nats-server#7545).
func TestMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3).start().ready()
		ctx := context.Background()
		lead := c.leader()
		dead := c.other(lead)
		c.isolate(dead.id, true)
		time.Sleep(10 * time.Second) // virtual time
		var up metadata.BrokerID
		for id := range c.nodes {
			if id != lead.id && id != dead.id {
				up = metadata.BrokerID(id)
			}
		}
		if err := lead.q.RemoveMember(ctx, up); !errors.Is(err, ErrMajority) {
			t.Error(err)
		}
		if err := lead.q.RemoveMember(ctx, 9); !errors.Is(err, ErrUnknownMember) {
			t.Error(err)
		}
		if err := c.nodes[int(up)].q.RemoveMember(ctx, dead.o.Node); !errors.Is(err, ErrNotLeader) {
			t.Error(err)
		}
		if err := lead.q.RemoveMember(ctx, dead.o.Node); err != nil {
			t.Error(err)
		}
		c.become(word(lead.id, int(up)))
		c.isolate(dead.id, false)
		dead.refusedWith(ErrRemoved)
		c.close()
	})
}

func word(a, b int) string { return fmt.Sprintf("%dV %dV", min(a, b), max(a, b)) }

// TestAddVoter: a voter asked for gets its vote when it has the whole log, whatever their number.
func TestAddVoter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3).start().ready()
		n := c.joiner(4, 1)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		m := Member{4, directory(4), n.o.Controller}
		lead := c.leader()
		if err := lead.q.AddMember(ctx, m, true); !errors.Is(err, ErrBehind) {
			t.Error("a voter that does not run: ", err)
		}
		m.Directory[5]++
		if err := lead.q.AddMember(context.Background(), m, true); !errors.Is(err, ErrForeign) {
			t.Error("another disk: ", err)
		}
		m.Directory[5]--
		n.start()
		if err := lead.q.AddMember(context.Background(), m, true); err != nil {
			t.Error(err)
		}
		c.become("1V 2V 3V 4V")
		c.ready()
		c.close()
	})
}

// TestUnfinishedChange: a change that a leader recorded and did not carry out is carried out by the next.
func TestUnfinishedChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3).start().ready()
		n := c.joiner(4, 1)
		lead := c.leader()
		lead.q.peers.changing <- struct{}{} // nobody on this leader changes members
		lead.propose(metadata.MemberChanged{ID: 4, Directory: directory(4), Controller: n.o.Controller})
		c.same()
		c.isolate(lead.id, true)
		c.leader(lead.id)
		n.start()
		c.ready(4)
		c.isolate(lead.id, false)
		<-lead.q.peers.changing
		c.become("1V 2V 3V 4n")
		c.close()
	})
}

// TestNextStep goes from any configuration to what the image says.
func TestNextStep(t *testing.T) {
	img := metadata.New()
	at := uint64(0)
	apply := func(rec metadata.Record) {
		at++
		payload := metadata.AppendCommand(nil, &metadata.Command{Session: metadata.Session{Epoch: metadata.NoEpoch}, Groups: []metadata.Group{{Records: []metadata.Record{rec}}}})
		next, _, _, err := metadata.Apply(img, nil, metadata.Entry{Index: at, Term: 1, Payload: payload})
		if err != nil {
			t.Fatal(err)
		}
		img = next
	}
	apply(metadata.ClusterStarted{ClusterID: "c", Voters: []metadata.Voter{{ID: 1, Directory: directory(1)}}})
	servers := []raft.Server{{Suffrage: raft.Voter, ID: "1", Address: "1"}} // as a node alone wrote it before
	settle := func(want string) {
		t.Helper()
		got := ""
		for range 10 {
			s, ok := nextStep(img, servers)
			if !ok {
				break
			}
			got += fmt.Sprintf("%d %s, ", s.who.id, s.do)
			servers = slices.DeleteFunc(servers, func(x raft.Server) bool { return x.ID == serverID(s.who.id) })
			if s.do != stepRemove {
				servers = append(servers, raft.Server{Suffrage: map[stepKind]raft.ServerSuffrage{stepVoter: raft.Voter, stepNonvoter: raft.Nonvoter}[s.do], ID: serverID(s.who.id), Address: s.who.address()})
			}
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	settle("1 voter, ")
	apply(metadata.MemberChanged{ID: 2, Directory: directory(2)})
	settle("2 member, ")
	apply(metadata.MemberChanged{ID: 2, Directory: directory(2), Voter: true})
	settle("2 voter, ")
	apply(metadata.MemberChanged{ID: 1, Directory: directory(1), Removed: true})
	settle("1 removed, ")
	apply(metadata.MemberChanged{ID: 2, Directory: directory(2), Removed: true})
	apply(metadata.MemberChanged{ID: 2, Directory: metadata.DirectoryID{77}})
	settle("2 removed, 2 member, ")
	settle("")
}

// TestReadyFollower: a follower is ready when it has what the leader had committed; the leader's address is known before and
// after its broker registers, and after it moves.
func TestReadyFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.start()
		ctx := context.Background()
		var wg sync.WaitGroup
		for _, n := range c.nodes {
			wg.Go(func() {
				id, e, err := n.q.LeaderAddress(ctx)
				if err != nil || endpointAddress(e) != fmt.Sprintf("n%d:9094", id) {
					t.Errorf("node %d: %d %+v %v", n.id, id, e, err)
				}
			})
		}
		wg.Wait()
		c.ready()
		lead := c.leader()
		behind := c.other(lead)
		c.isolate(behind.id, true)
		a := lead.propose(topics(0, 50)...)
		short, cancel := context.WithTimeout(ctx, 20*time.Second)
		if err := behind.q.WaitReady(short); !errors.Is(err, ErrNotLeader) {
			t.Error("ready without a leader: ", err)
		}
		cancel()
		c.isolate(behind.id, false)
		c.ready(behind.id)
		if got := behind.q.Image().Index(); got < a.Index {
			t.Errorf("ready at %d, the leader had %d", got, a.Index)
		}
		lead = c.leader()
		lead.propose(metadata.BrokerRegistered{ID: lead.o.Node, Incarnation: [16]byte{1}, Listeners: []metadata.Endpoint{{Name: "REPLICATION", Host: "registered", Port: 1}}})
		c.same()
		if _, e, err := c.other(lead).q.LeaderAddress(ctx); err != nil || e.Host != "registered" {
			t.Error(e, err)
		}
		lead.stop()
		lead.o.Internal.Host = "moved"
		lead.start()
		c.ready()
		for c.leader() != lead {
			_ = c.leader().q.raft().LeadershipTransferToServer(serverID(lead.o.Node), lead.q.self().address()).Error()
			time.Sleep(time.Second) // virtual time
		}
		c.eventually("the others know that the leader has moved", func() bool {
			_, e, err := c.other(lead).q.LeaderAddress(ctx)
			return err == nil && e.Host == "moved"
		})
		c.close()
	})
}

// TestLeaderChanged tells of a change.
func TestLeaderChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3).start().ready()
		lead := c.leader()
		n := c.other(lead)
		c.isolate(lead.id, true)
		for {
			changed := n.q.LeaderChanged()
			if id, ok := n.q.Leader(); ok && id != lead.o.Node {
				break
			}
			select {
			case <-changed:
			case <-time.After(30 * time.Second):
				t.Fatal("not told of the new leader")
			}
		}
		c.close()
	})
}

// TestOptions refuses what does not fit together.
func TestOptions(t *testing.T) {
	base := func() Options {
		return Options{FS: vfs.NewMem(), Dir: "/", Node: 1, Directory: testDirectory, Store: &MemStore{}, Fatal: func(error) {}, NewClusterID: func() string { return testCluster }}
	}
	for name, x := range map[string]struct {
		change func(o *Options)
		want   error
	}{
		"voters without a listener": {func(o *Options) { o.Voters = []Voter{{1, "a:1"}, {2, "b:1"}} }, nil},
		"a listener without voters": {func(o *Options) { o.Listener = newMemnet().listen("x", "x:1") }, nil},
		"twice": {func(o *Options) {
			o.Listener = newMemnet().listen("x", "x:1")
			o.Voters = []Voter{{1, "a:1"}, {1, "b:1"}}
		}, ErrVoters},
		"six": {func(o *Options) {
			o.Listener = newMemnet().listen("x", "x:1")
			o.Voters = []Voter{{1, "a:1"}, {2, "b:1"}, {3, "c:1"}, {4, "d:1"}, {5, "e:1"}, {6, "f:1"}}
		}, ErrVoters},
	} {
		o := base()
		x.change(&o)
		q, err := Open(o)
		if err == nil {
			_ = q.Close()
		}
		if err == nil || x.want != nil && !errors.Is(err, x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestJoinWithoutAnAnswer: who joins, and reaches nobody, says whom it has asked and why that failed, once.
func TestJoinWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		var out bytes.Buffer
		n := c.nodes[2]
		n.o.Voters, n.o.Join, n.o.Logger = nil, []string{memAddress(1)}, slog.New(slog.NewTextHandler(&out, nil))
		n.start()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := out.String(); strings.Count(got, "no_answer") != 1 || !strings.Contains(got, memAddress(1)+": ") || !strings.Contains(got, "level=WARN") {
			t.Errorf("while nobody answers:\n%s", got)
		}
	})
}

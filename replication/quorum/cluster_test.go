package quorum

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/vfs"
)

// cluster is three voters, connected in memory.
type cluster struct {
	t     *testing.T
	nodes [3]*Quorum
	wires [3]*raft.InmemTransport
	fatal chan error
}

func voters() []Voter {
	return []Voter{{1, metadata.DirectoryID{1}}, {2, metadata.DirectoryID{2}}, {3, metadata.DirectoryID{3}}}
}

func (c *cluster) options(i int) Options {
	return Options{
		FS: vfs.NewMem(), Dir: "/", Node: int32(i + 1), Directory: metadata.DirectoryID{byte(i + 1)}, Voters: voters(),
		Bootstrap: i == 0, NewClusterID: func() string { return testCluster }, Store: &MemStore{},
		Fatal: fatal(c.fatal),
	}
}

func fatal(to chan error) func(error) { return func(err error) { to <- err } }

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, fatal: make(chan error, 3)}
	for i := range c.nodes {
		_, c.wires[i] = raft.NewInmemTransport(raft.ServerAddress(fmt.Sprint(i + 1)))
	}
	for i := range c.nodes {
		for j := range c.nodes {
			if i != j {
				c.wires[i].Connect(c.wires[j].LocalAddr(), c.wires[j])
			}
		}
	}
	for i := range c.nodes {
		o := c.options(i)
		o.Network = &Network{wire: c.wires[i]}
		q, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		c.nodes[i] = q
	}
	return c
}

func (c *cluster) close() {
	for i, q := range c.nodes {
		if err := q.Close(); err != nil {
			c.t.Errorf("node %d: %v", i+1, err)
		}
	}
	select {
	case err := <-c.fatal:
		c.t.Error("fatal: ", err)
	default:
	}
}

// leader waits until one of the nodes, other than not, leads.
func (c *cluster) leader(not int) int {
	c.t.Helper()
	for range 200 {
		for i, q := range c.nodes {
			if _, err := q.Lead(); err == nil && i != not {
				return i
			}
		}
		time.Sleep(50 * time.Millisecond) // virtual time
	}
	c.t.Fatal("no leader in 10 s")
	return 0
}

// TestChangeOfLeader cuts the leader off: the others go on, it cannot commit, and after it is back all have one history.
func TestChangeOfLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ctx := context.Background()
		first := c.leader(-1)
		term, _ := c.nodes[first].Lead()
		for i, q := range c.nodes {
			q.SetBrokerEpoch(int64(i + 1))
		}
		if _, err := c.nodes[first].Propose(ctx, topics(0, 10)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.nodes[(first+1)%3].Propose(ctx, topics(0, 1)); !errors.Is(err, ErrNotLeader) {
			t.Fatal(err)
		}
		// Cut off: what it proposes now is not committed, and its outcome is not known to it.
		c.wires[first].DisconnectAll()
		for i, w := range c.wires {
			if i != first {
				w.Disconnect(c.wires[first].LocalAddr())
			}
		}
		lost := make(chan error, 1)
		go func() {
			_, err := c.nodes[first].Propose(ctx, topics(500, 1))
			lost <- err
		}()
		second := c.leader(first)
		if err := <-lost; !errors.Is(err, ErrUnknownOutcome) {
			t.Fatal("cut off leader: ", err)
		}
		if _, err := c.nodes[second].Propose(ctx, topics(10, 10)); err != nil {
			t.Fatal(err)
		}
		// A plan of the old term is refused in the new one.
		_, results, err := c.nodes[second].ProposeAt(ctx, term, topics(30, 1))
		if err != nil || !errors.Is(results[0].Err(), metadata.ErrStaleTerm) {
			t.Fatal(results, err)
		}
		for i, w := range c.wires {
			if i != first {
				w.Connect(c.wires[first].LocalAddr(), c.wires[first])
				c.wires[first].Connect(w.LocalAddr(), w)
			}
		}
		third := c.leader(-1)
		a, err := c.nodes[third].Propose(ctx, topics(20, 10))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second) // virtual time: all have applied
		want := c.nodes[third].Image()
		for i, q := range c.nodes {
			img := q.Image()
			if img.Index() < a.Index || img.Chain() != want.Chain() || img.TopicCount() != 30 {
				t.Errorf("node %d: index %d, %d topics, chain %x, want %x", i+1, img.Index(), img.TopicCount(), img.Chain(), want.Chain())
			}
		}
		c.close()
	})
}

// loopback is the listeners of three voters on loopback.
type loopback struct{ listeners [4]net.Listener }

func newLoopback(t *testing.T) *loopback {
	l := &loopback{}
	for i := range l.listeners {
		var err error
		if l.listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func (l *loopback) network(i int) *Network {
	return &Network{Listener: l.listeners[i], Dial: func(to metadata.BrokerID, timeout time.Duration) (net.Conn, error) {
		return net.DialTimeout("tcp", l.listeners[to-1].Addr().String(), timeout)
	}}
}

// hostile sends the leader a heartbeat of the next term in another member's name, as a new leader that it does not know of
// would, and has it apply an entry at the same time. It returns the entries that the node stored under a term that it never
// led.
func hostile(t *testing.T, fastPath bool) (wrong int) {
	c := &cluster{t: t, fatal: make(chan error, 3)}
	l := newLoopback(t)
	stores := [3]*MemStore{}
	for i := range c.nodes {
		o := c.options(i)
		stores[i] = o.Store.(*MemStore)
		o.Timing = Timing{Heartbeat: 300 * time.Millisecond, Election: 300 * time.Millisecond, Lease: 300 * time.Millisecond}
		o.Network = l.network(i)
		if fastPath {
			o.Network.wire = raft.NewNetworkTransport(newStream(l.network(i)), 3, time.Second, io.Discard)
		}
		q, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		c.nodes[i] = q
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	leader := make(chan int, 3)
	for i, q := range c.nodes {
		go func() {
			if q.WaitLeader(ctx) == nil {
				leader <- i
			}
		}()
	}
	at := <-leader
	led, err := c.nodes[at].Lead()
	for err != nil && ctx.Err() == nil { // the leader changed: the one that leads now will do
		runtime.Gosched()
		at = (at + 1) % len(c.nodes)
		led, err = c.nodes[at].Lead()
	}
	if err != nil {
		t.Fatal(err)
	}
	// The fourth transport speaks in another member's name.
	other := raft.ServerAddress(serverID(int32((at+1)%3 + 1)))
	evil := raft.NewNetworkTransport(newStream(l.network(3)), 1, time.Second, io.Discard)
	defer evil.Close()
	var resp raft.AppendEntriesResponse
	req := &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte(other), Addr: []byte(other)}, Term: led + 1,
	}
	if err := evil.AppendEntries(serverID(int32(at+1)), raft.ServerAddress(serverID(int32(at+1))), req, &resp); err != nil {
		t.Fatal(err)
	}
	mark := []byte("entry of the deposed leader")
	_ = c.nodes[at].raft.Apply(mark, time.Second).Error()
	first, _ := stores[at].FirstIndex()
	last, _ := stores[at].LastIndex()
	var e raft.Log
	for i := first; i <= last; i++ {
		if stores[at].GetLog(i, &e) == nil && bytes.Equal(e.Data, mark) && e.Term != led {
			wrong++
		}
	}
	if fastPath {
		c.fatal = make(chan error, 1) // the mark is no command: a node that applies it has stopped
	}
	return wrong
}

// TestHeartbeatOfNextTerm is the test of the transport without the fast path (hashicorp/raft#695): no entry of a deposed
// leader is ever stored under a term that it did not lead.
func TestHeartbeatOfNextTerm(t *testing.T) {
	for i := range 3 {
		if n := hostile(t, false); n > 0 {
			t.Fatalf("round %d: %d entries stored under a term that the node never led", i, n)
		}
	}
}

// TestFastPath shows that the test above would see the fault: with the library's own transport entries do go wrong.
func TestFastPath(t *testing.T) {
	for range 5 {
		if hostile(t, true) > 0 {
			return
		}
	}
	t.Error("the fast path did no harm in 5 rounds: the library may be mended, or this test is not")
}

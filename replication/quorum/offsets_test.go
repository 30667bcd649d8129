package quorum

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/vfs"
)

var offsetsTopic = metadata.TopicCreated{Name: "t", ID: metadata.TopicID{1}, Partitions: make([]metadata.Partition, 4)}

// commitOf commits one offset of a group in a partition.
func commitOf(group string, epoch int64, partition int32, offset int64) metadata.OffsetsCommitted {
	return metadata.OffsetsCommitted{
		Shard: metadata.ShardOf(group), ShardEpoch: epoch, Group: group, Offsets: []metadata.OffsetCommit{{
			GroupPartition: metadata.GroupPartition{Topic: offsetsTopic.ID, Partition: partition}, Offset: offset, LeaderEpoch: -1, Expires: -1,
		}},
	}
}

// committed is the offset of a group in partition 0 as a node has it, −1 for none.
func committed(q *Quorum, group string) int64 {
	c, ok := q.Tables().Offset(group, metadata.GroupPartition{Topic: offsetsTopic.ID})
	if !ok {
		return -1
	}
	return c.Offset
}

// groupsOn prepares a single node for groups: shards are its own at the returned epoch.
func groupsOn(n *node, groups ...string) (epoch int64) {
	n.t.Helper()
	a := n.propose(metadata.BrokerRegistered{ID: 1, Incarnation: [16]byte{byte(n.q.Image().Index())}}, offsetsTopic)
	n.q.SetBrokerEpoch(a.Results[0].Value)
	var claims []metadata.Record
	for _, g := range groups {
		claims = append(claims, metadata.ShardAssigned{Shard: metadata.ShardOf(g), Epoch: n.q.Image().Shard(metadata.ShardOf(g)).Epoch, Owner: 1})
	}
	return n.propose(claims...).Results[0].Value
}

// carrier takes the commands of the nodes to the leader, over the links of the network.
type carrier struct {
	c  *cluster
	mu sync.Mutex
	qs map[int]*Quorum
	// lose, if set, is asked after a command was carried out whether the answer is lost.
	lose func(from, to int) bool
}

// withGroups gives the nodes a way to carry commands.
func withGroups(c *cluster) *carrier {
	w := &carrier{c: c, qs: map[int]*Quorum{}}
	for id, n := range c.nodes {
		n.o.Remote = func(ctx context.Context, leader metadata.BrokerID, payload []byte) (metadata.Outcome, error) {
			return w.carry(ctx, [2]int{id, int(leader)}, payload)
		}
	}
	return w
}

// runs notes which nodes run.
func (w *carrier) runs() *carrier {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, n := range w.c.nodes {
		w.qs[id] = n.q
	}
	return w
}

func (w *carrier) quorum(id int) *Quorum {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.qs[id]
}

// pass waits while a link is cut.
func (w *carrier) pass(ctx context.Context, from, to int) error {
	for {
		cut, changed := w.c.net.way(host(from), host(to))
		if !cut {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (w *carrier) carry(ctx context.Context, link [2]int, payload []byte) (metadata.Outcome, error) {
	if err := w.pass(ctx, link[0], link[1]); err != nil {
		return metadata.Outcome{}, err
	}
	q := w.quorum(link[1])
	if q == nil {
		return metadata.Outcome{}, errors.New("connection refused")
	}
	payload = bytes.Clone(payload)
	out, err := q.Submit(ctx, payload)
	for i := range payload {
		payload[i] = 0xff // as a server's buffer, which the next request is read into
	}
	if err != nil {
		return metadata.Outcome{}, err
	}
	if out, err = metadata.DecodeOutcome(metadata.AppendOutcome(nil, &out)); err != nil {
		w.c.t.Error(err)
	}
	if w.lose != nil && w.lose(link[0], link[1]) {
		return metadata.Outcome{}, errors.New("connection lost")
	}
	return out, w.pass(ctx, link[1], link[0])
}

// register registers a running node as a broker, in a new incarnation.
func (w *carrier) register(id int, incarnation uint64) {
	a := w.c.leader().propose(metadata.BrokerRegistered{ID: metadata.BrokerID(id), Incarnation: [16]byte{byte(incarnation), byte(incarnation >> 8), byte(incarnation >> 16), 1}})
	w.quorum(id).SetBrokerEpoch(a.Results[0].Value)
}

// give gives a group's shard to a node, and returns its new epoch once that node knows.
func (w *carrier) give(group string, id int) int64 {
	w.c.t.Helper()
	lead := w.c.leader()
	s := metadata.ShardOf(group)
	a := lead.propose(metadata.ShardAssigned{Shard: s, Epoch: lead.q.Image().Shard(s).Epoch, Owner: metadata.BrokerID(id)})
	if err := a.Results[0].Err(); err != nil {
		w.c.t.Fatal(err)
	}
	if err := w.quorum(id).WaitIndex(context.Background(), a.Index); err != nil {
		w.c.t.Fatal(err)
	}
	return a.Results[0].Value
}

// tablesOf are the bytes of a node's groups.
func tablesOf(t testing.TB, q *Quorum) []byte {
	f := q.Tables().Freeze()
	defer f.Release()
	var b bytes.Buffer
	if err := q.Image().WriteSnapshot(&b, f); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// sameTables waits until all running nodes have one image, and wants one state of groups.
func (w *carrier) sameTables() {
	w.c.t.Helper()
	w.c.same()
	var first []byte
	for id, n := range w.c.nodes {
		if n.q == nil {
			continue
		}
		b := tablesOf(w.c.t, n.q)
		if first == nil {
			first = b
		}
		if !bytes.Equal(first, b) {
			w.c.t.Errorf("node %d has other groups", id)
		}
	}
}

// TestSubmittedBytesAreTheCallers uses the bytes of a command again once it is answered, while a follower has not heard of it yet.
func TestSubmittedBytesAreTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		w := withGroups(c)
		c.start().ready()
		w.runs()
		c.leader().propose(offsetsTopic)
		var from, behind int
		for id := range c.nodes {
			w.register(id, 1)
			switch {
			case id == c.leader().id:
			case from == 0:
				from = id
			default:
				behind = id
			}
		}
		epoch := w.give("group", from)
		c.isolate(behind, true)
		for offset := range int64(20) {
			if _, err := c.nodes[from].q.ProposeOffsets(t.Context(), []metadata.Record{commitOf("group", epoch, 0, offset)}); err != nil {
				t.Fatal(err)
			}
		}
		c.isolate(behind, false)
		w.sameTables()
		c.close()
	})
}

// TestOffsetsFromEveryNode commits on the leader and on others, reads it everywhere, and an old coordinator is refused.
func TestOffsetsFromEveryNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		w := withGroups(c)
		c.start().ready()
		w.runs()
		ctx := context.Background()
		c.leader().propose(offsetsTopic)
		if _, err := c.nodes[1].q.ProposeOffsets(ctx, nil); !errors.Is(err, ErrNotProposed) {
			t.Error("before this broker is registered: ", err)
		}
		for id, n := range c.nodes {
			w.register(id, 1)
			epoch := w.give("group", id)
			a, err := n.q.ProposeOffsets(ctx, []metadata.Record{commitOf("group", epoch, 0, int64(id)), commitOf("group", epoch-1, 0, 99)})
			if err != nil || a.Results[0].Err() != nil || !errors.Is(a.Results[1].Err(), metadata.ErrStaleShard) {
				t.Fatal(a, err)
			}
			for other, o := range c.nodes {
				if err := o.q.WaitIndex(ctx, a.Index); err != nil {
					t.Fatal(err)
				}
				if got := committed(o.q, "group"); got != int64(id) {
					t.Errorf("node %d committed %d, node %d has %d", id, id, other, got)
				}
			}
			before := a.Index
			if a, err = n.q.ProposeOffsets(ctx, nil); err != nil || a.Index <= before || len(a.Results) > 0 {
				t.Error("nothing to commit, but to wait for: ", a, err)
			}
		}
		w.sameTables()
		c.close()
	})
}

// TestOffsetsThroughAChangeOfLeader: the answer of the leader is lost, and the leader with it. The entry is carried to the next one, and is
// applied once; so are those that wait behind it.
func TestOffsetsThroughAChangeOfLeader(t *testing.T) {
	for _, reached := range []bool{true, false} {
		t.Run(fmt.Sprint("reached the others ", reached), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3)
				w := withGroups(c)
				c.start().ready()
				w.runs()
				c.leader().propose(offsetsTopic)
				for id := range c.nodes {
					w.register(id, 1)
				}
				lead := c.leader()
				from := c.other(lead)
				epoch := w.give("group", from.id)
				var lost atomic.Bool
				w.lose = func(_, to int) bool {
					if to != lead.id || lost.Swap(true) {
						return false
					}
					c.isolate(lead.id, true)
					return true
				}
				if !reached { // what the leader has stored reaches nobody
					for other := range c.nodes {
						c.net.cut(host(lead.id), host(other), other != lead.id && other != from.id)
					}
				}
				var work sync.WaitGroup
				for i := range 20 {
					time.Sleep(time.Millisecond) // virtual: in order
					work.Go(func() {
						a, err := from.q.ProposeOffsets(context.Background(), []metadata.Record{commitOf("group", epoch, 0, int64(i))})
						if err != nil || a.Results[0].Err() != nil {
							t.Error(i, a, err)
						}
					})
				}
				work.Wait()
				if !lost.Load() {
					t.Fatal("no answer was lost")
				}
				c.isolate(lead.id, false)
				w.sameTables()
				for id, n := range c.nodes {
					if got, times := committed(n.q, "group"), n.q.Tables().Committed(); got != 19 || times != 20 {
						t.Errorf("node %d: offset %d after %d commits, want 19 after 20", id, got, times)
					}
				}
				c.close()
			})
		})
	}
}

// TestOffsetsGiveUp: without a majority a caller waits as long as it likes; what waited is not proposed, what was under way may be, and
// what is given up makes room.
func TestOffsetsGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		w := withGroups(c)
		c.start().ready()
		w.runs()
		c.leader().propose(offsetsTopic)
		for id := range c.nodes {
			w.register(id, 1)
		}
		lead := c.leader()
		from := c.other(lead)
		epoch := w.give("group", from.id)
		c.isolate(from.id, true)
		var errs [2]error
		var work sync.WaitGroup
		for i := range errs {
			work.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				defer cancel()
				_, errs[i] = from.q.ProposeOffsets(ctx, []metadata.Record{commitOf("group", epoch, 0, int64(i))})
			})
			synctest.Wait()
		}
		work.Wait()
		if !errors.Is(errs[0], ErrUnknownOutcome) || !errors.Is(errs[1], ErrNotProposed) {
			t.Error(errs)
		}
		big := metadata.GroupChanged{
			Shard: metadata.ShardOf("group"), ShardEpoch: epoch, Group: "group",
			Entries: []metadata.GroupEntry{{Key: "k", Value: bytes.Repeat([]byte{1}, MaxEntry-200)}},
		}
		for range 40 { // more than may wait, one after the other
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			if _, err := from.q.ProposeOffsets(ctx, []metadata.Record{big}); !errors.Is(err, ErrNotProposed) || errors.Is(err, errFull) {
				t.Error(err)
			}
			cancel()
		}
		c.isolate(from.id, false)
		if a, err := from.q.ProposeOffsets(context.Background(), nil); err != nil {
			t.Error(a, err)
		}
		w.sameTables()
		if got := committed(from.q, "group"); got != 0 {
			t.Errorf("offset %d, want that of the entry that was under way", got)
		}
		c.close()
	})
}

// gate is a store that holds up entries while it is shut.
type gate struct {
	*MemStore
	mu      sync.Mutex
	entries [][]byte
}

func (g *gate) StoreLogs(logs []*raft.Log) error {
	g.mu.Lock()
	for _, l := range logs {
		if l.Type == raft.LogCommand {
			g.entries = append(g.entries, l.Data)
		}
	}
	g.mu.Unlock()
	return g.MemStore.StoreLogs(logs)
}

// TestOffsetsTravelTogether: what waits while an entry is in flight goes in the next ones, at most 512 changes or 64 KiB each; a larger one
// alone; and what the metadata has to say does not wait for what waits here.
func TestOffsetsTravelTogether(t *testing.T) {
	g := &gate{MemStore: &MemStore{}}
	n := newNode(t, vfs.NewMem(), "/", g).open()
	epoch := groupsOn(n, "group")
	hold, held := make(chan struct{}), make(chan struct{})
	var once sync.Once
	n.q.Subscribe(func(d metadata.Delta, img *metadata.Image) {
		if d.From > 0 {
			once.Do(func() { close(held); <-hold })
		}
	})
	var work sync.WaitGroup
	commit := func(records ...metadata.Record) {
		work.Go(func() {
			if a, err := n.q.ProposeOffsets(context.Background(), records); err != nil || a.Results[0].Err() != nil {
				t.Error(a, err)
			}
		})
	}
	commit(commitOf("group", epoch, 0, 1))
	<-held
	g.mu.Lock()
	g.entries = nil
	g.mu.Unlock()
	for i := range 1100 {
		commit(commitOf("group", epoch, int32(i%4), int64(i)))
	}
	waitFor(t, n.q.lanes[metadata.LaneOffsets], 1100)
	var many metadata.OffsetsCommitted
	for i := range int32(700) {
		one := commitOf("group", epoch, i%4, int64(i))
		many.Shard, many.ShardEpoch, many.Group = one.Shard, one.ShardEpoch, one.Group
		many.Offsets = append(many.Offsets, one.Offsets...)
	}
	commit(many)
	waitFor(t, n.q.lanes[metadata.LaneOffsets], 1101)
	commit(metadata.GroupChanged{Shard: many.Shard, ShardEpoch: epoch, Group: "group", Entries: []metadata.GroupEntry{{Key: "k", Value: make([]byte, 300<<10)}}})
	waitFor(t, n.q.lanes[metadata.LaneOffsets], 1102)
	var wanted uint64
	work.Go(func() { wanted = n.propose(topic(7)).Index })
	waitForEntry(g, 1) // it is with Raft, beside the entry of offsets that is being applied
	close(hold)
	work.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	var sizes []int
	for _, b := range g.entries {
		c, err := metadata.DecodeCommand(b)
		if err != nil {
			t.Fatal(err)
		}
		total := 0
		for _, group := range c.Groups {
			total += changesIn(group.Records)
		}
		sizes = append(sizes, total*(1-2*int(1-c.Session.Lane))) // negative: the metadata's
	}
	if got := fmt.Sprint(sizes); got != "[-1 512 512 76 700 1]" {
		t.Errorf("entries of %s changes", got)
	}
	if last := n.q.Image().Index(); wanted+5 != last {
		t.Errorf("the metadata's entry is %d, the last one %d", wanted, last)
	}
	n.close()
}

func waitFor(t *testing.T, l *lane, waiting int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		l.mu.Lock()
		n := len(l.waiting)
		l.mu.Unlock()
		if n == waiting {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d wait, not %d", n, waiting)
		}
		time.Sleep(time.Millisecond)
	}
}

func waitForEntry(g *gate, n int) {
	for {
		g.mu.Lock()
		have := len(g.entries)
		g.mu.Unlock()
		if have >= n {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// TestSubmitTakesGroupsOnly: what another broker sends is read before it becomes an entry, for an entry that cannot be read ends every node.
func TestSubmitTakesGroupsOnly(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "/", &MemStore{}).open()
	epoch := groupsOn(n, "group")
	session := metadata.Session{Broker: 2, Epoch: 1, Lane: metadata.LaneOffsets, Sequence: 1}
	command := func(s metadata.Session, records ...metadata.Record) []byte {
		return metadata.AppendCommand(nil, &metadata.Command{Session: s, Groups: []metadata.Group{{Records: records}}})
	}
	good := command(session, commitOf("group", epoch, 0, 7))
	other := session
	other.Lane = metadata.LaneMetadata
	free := session
	free.Epoch = metadata.NoEpoch
	before := n.q.Image().Index()
	for name, payload := range map[string][]byte{
		"nothing": nil, "garbage": []byte("garbage"), "cut": good[:len(good)-1], "metadata": command(session, topic(1)),
		"another lane": command(other, commitOf("group", epoch, 0, 7)), "no session": command(free, commitOf("group", epoch, 0, 7)),
		"unknown": command(session, metadata.Unknown{Number: 999}), "a shard": command(session, metadata.ShardAssigned{}),
	} {
		if _, err := n.q.Submit(context.Background(), payload); !errors.Is(err, ErrForeignCommand) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := n.q.Submit(context.Background(), make([]byte, MaxEntry+1)); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if n.q.Image().Index() != before {
		t.Error("something became an entry")
	}
	first, err := n.q.Submit(context.Background(), good)
	if err != nil || first.Duplicate || committed(n.q, "group") != 7 {
		t.Error(first, err)
	}
	if again, err := n.q.Submit(context.Background(), good); err != nil || !again.Duplicate || again.Index != first.Index {
		t.Error(again, err)
	}
	n.close()
}

// TestCrashOfTheStoreKeepsOffsets crashes at each call of the store, with and without what the call wrote: an offset that was answered is
// there, from a snapshot or from the log.
func TestCrashOfTheStoreKeepsOffsets(t *testing.T) {
	for _, half := range []bool{false, true} {
		for at := 1; ; at++ {
			crashed := false
			synctest.Test(t, func(t *testing.T) {
				l := &life{fs: vfs.NewCrash(), store: bootstrapped(t), offsets: true}
				l.store.CrashAfter, l.store.Half = l.store.Calls()+at, half
				l.start(t, 10)
				crashed = l.store.Calls() >= l.store.CrashAfter
				l.store, l.fs = l.store.Crash(), l.fs.Kill()
				l.checkOffsets(t, fmt.Sprintf("call %d, half %v", at, half))
			})
			if !crashed || t.Failed() {
				t.Logf("half %v: %d calls", half, at-1)
				break
			}
		}
	}
}

// checkOffsets opens what is left and wants the newest answered offset, or a later one that was sent.
func (l *life) checkOffsets(t *testing.T, place string) {
	t.Helper()
	n := newNode(t, l.fs, "/", l.store)
	n.open()
	if got := committed(n.q, "group"); got < int64(l.acked) && l.acked > 0 || got > int64(l.sent) {
		t.Errorf("%s: offset %d, answered %d, sent %d", place, got, l.acked, l.sent)
	}
	n.close()
}

// TestRestartKeepsGroups goes through a life on a real disk.
func TestRestartKeepsGroups(t *testing.T) {
	n := newNode(t, vfs.OS(), t.TempDir(), nil).open()
	epoch := groupsOn(n, "group", strings.Repeat("g", 200))
	commit := func(i int64) {
		t.Helper()
		a, err := n.q.ProposeOffsets(context.Background(), []metadata.Record{
			commitOf("group", epoch, 0, i),
			metadata.GroupChanged{Shard: metadata.ShardOf("group"), ShardEpoch: epoch, Group: "group", Entries: []metadata.GroupEntry{{Key: "g", Value: []byte{byte(i)}}}},
		})
		if err != nil || a.Results[0].Err() != nil || a.Results[1].Err() != nil {
			t.Fatal(a, err)
		}
	}
	commit(5)
	if err := n.q.Snapshot(); err != nil {
		t.Fatal(err)
	}
	commit(6)
	want := tablesOf(t, n.q)
	n.close()
	n.o.ClusterID, n.o.NewClusterID = testCluster, nil
	n.open()
	if got := tablesOf(t, n.q); !bytes.Equal(got, want) || committed(n.q, "group") != 6 || n.q.Tables().Entries("group")[0].Value[0] != 6 {
		t.Error("a snapshot and the entry after it do not make the groups")
	}
	n.close()
}

// slow is a store that takes its time for entries, and counts the stores.
type slow struct {
	*MemStore
	takes  time.Duration
	stores atomic.Int64
}

func (s *slow) StoreLogs(logs []*raft.Log) error {
	time.Sleep(s.takes) // virtual
	s.stores.Add(1)
	return s.MemStore.StoreLogs(logs)
}

// TestManyThatCommitAreWaitedFor: where many clients commit, each as soon as it is answered and has done its work, an entry holds most of
// them; where a few do, none of them waits for another.
func TestManyThatCommitAreWaitedFor(t *testing.T) {
	for _, c := range []struct {
		clients, rounds int
		work            time.Duration // of each client, so many times its number, up to 15
		entries         int64         // at most
	}{{64, 20, time.Millisecond, 60}, {1, 20, 0, 20}, {4, 20, 12 * time.Millisecond, 80}} {
		synctest.Test(t, func(t *testing.T) {
			s := &slow{MemStore: &MemStore{}}
			n := newNode(t, vfs.NewMem(), "/", s).open()
			epoch := groupsOn(n, "group")
			s.takes = 5 * time.Millisecond
			before, began, quickest := s.stores.Load(), time.Now(), time.Duration(0)
			var work sync.WaitGroup
			for i := range c.clients {
				work.Go(func() {
					for round := range c.rounds {
						time.Sleep(time.Duration(i%16) * c.work)
						if a, err := n.q.ProposeOffsets(t.Context(), []metadata.Record{commitOf("group", epoch, int32(i%4), int64(round))}); err != nil || a.Results[0].Err() != nil {
							t.Error(a, err)
						}
					}
					if i == 0 {
						quickest = time.Since(began)
					}
				})
			}
			work.Wait()
			if entries := s.stores.Load() - before; entries > c.entries {
				t.Errorf("%d clients committed %d times each in %d entries, want at most %d", c.clients, c.rounds, entries, c.entries)
			}
			t.Logf("%d clients: quickest %v, %d entries", c.clients, quickest, s.stores.Load()-before)
			// An entry takes 5 ms, and now and then there is a part of one before its own.
			if c.clients < gatherLeast && quickest > time.Duration(c.rounds)*8*time.Millisecond {
				t.Errorf("of %d clients the quickest took %v", c.clients, quickest)
			}
			_ = n.q.Close()
		})
	}
}

// Proposals of many offsets fill an entry with few of them: it goes at once, and the lane takes as many as the disk.
func TestFullEntriesDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{MemStore: &MemStore{}}
		n := newNode(t, vfs.NewMem(), "/", s).open()
		epoch := groupsOn(n, "group")
		s.takes = 5 * time.Millisecond
		const proposals = 100
		before, began := s.stores.Load(), time.Now()
		var work sync.WaitGroup
		for range proposals {
			work.Go(func() {
				rec := commitOf("group", epoch, 0, 0)
				rec.Offsets = slices.Repeat(rec.Offsets, 500)
				for i := range rec.Offsets {
					rec.Offsets[i].Partition = int32(i)
				}
				if a, err := n.q.ProposeOffsets(t.Context(), []metadata.Record{rec}); err != nil || a.Results[0].Err() != nil {
					t.Error(a, err)
				}
			})
		}
		work.Wait()
		entries := s.stores.Load() - before
		if took := time.Since(began); took > time.Duration(entries)*s.takes*6/5 {
			t.Errorf("%d proposals of 500 offsets took %v in %d entries of %v", proposals, took, entries, s.takes)
		}
		_ = n.q.Close()
	})
}

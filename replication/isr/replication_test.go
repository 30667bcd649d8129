package isr

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// onStage runs a test with n brokers in virtual time and compares the replicas at its end.
func onStage(t *testing.T, n int, f func(t *testing.T, c *troupe)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newTroupe(t, n)
		f(t, c)
		if !t.Failed() {
			c.allInSync()
			c.verify()
		}
		c.end()
	})
}

func TestAcksAllWaitsForTheInSyncSet(t *testing.T) {
	onStage(t, 3, func(t *testing.T, c *troupe) {
		for i := range 20 {
			c.must(-1, fmt.Sprint("v", i))
		}
		c.allInSync()
		c.sever(3, 1, true)
		if r := c.produce(-1, "late"); !errors.Is(r.Err, ErrTimedOut) {
			t.Errorf("with a replica that does not fetch: %v, want a timeout", r.Err)
		}
		if r := c.produce(1, "one"); r.Err != nil {
			t.Errorf("acks=1 waits for the leader alone: %v", r.Err)
		}
		c.eventually("node 3 leaves the in-sync set", func() bool { return len(c.inSync()) == 2 })
		c.must(-1, "two")
		c.sever(3, 1, false)
	})
}

func TestLeaderKilledAndBack(t *testing.T) {
	onStage(t, 3, func(t *testing.T, c *troupe) {
		for i := range 10 {
			c.must(-1, fmt.Sprint("a", i))
		}
		c.stop(1, nil)
		for i := range 10 {
			c.must(-1, fmt.Sprint("b", i))
		}
		c.start(1)
		c.allInSync()
		c.stop(2, nil)
		for i := range 10 {
			c.must(-1, fmt.Sprint("c", i))
		}
		c.start(2)
	})
}

// Contract: kill -9 and loss of power of all nodes at once lose nothing that was acknowledged.
func TestAllLoseTheirPower(t *testing.T) {
	for _, p := range []vfs.Policy{{Kind: vfs.KeepNone}, {Kind: vfs.KeepRandom}, {Kind: vfs.TearLastSized, N: 1}} {
		onStage(t, 3, func(t *testing.T, c *troupe) {
			for i := range 5 {
				c.must(-1, fmt.Sprint("a", i))
			}
			c.produce(1, "perhaps")
			for _, id := range []int32{1, 2, 3} {
				c.halt(id, &p)
			}
			for _, id := range []int32{3, 2, 1} {
				c.start(id)
			}
			c.eventually("a leader", func() bool { return c.leader() >= 0 })
			c.allInSync()
			for i := range 5 {
				c.must(-1, fmt.Sprint("b", i))
			}
		})
	}
}

// Catalogue 25, 26 (KIP-101, KIP-279): what only the old leader has is cut off by epochs, whatever its high watermark says,
// also through two quick failovers; and nothing else is.
func TestCatalogue26UnreplicatedTailIsCut(t *testing.T) {
	onStage(t, 3, func(t *testing.T, c *troupe) {
		c.must(-1, "kept")
		c.allInSync()
		c.isolate(1, true)
		time.Sleep(2 * time.Second) // what waits is answered
		for i := range 5 {
			c.must(1, fmt.Sprint("lost", i))
		}
		c.stop(1, nil)
		c.isolate(1, false)
		c.isolate(2, true)
		c.must(1, "lost too")
		c.stop(2, nil)
		c.isolate(2, false)
		if r := c.produce(-1, "refused"); !errors.Is(r.Err, ErrNotEnoughReplicas) {
			t.Errorf("the last one of three, acks=all: %v", r.Err)
		}
		c.must(1, "kept as well")
		c.start(1)
		c.start(2)
		c.allInSync()
		c.must(-1, "new")
		c.allInSync()
		if got := c.values(1); len(got) != 3 || got[1] != "kept as well" || got[2] != "new" {
			t.Errorf("the old leader has %v", got)
		}
	})
}

// Catalogue 25 (KIP-101): a follower that restarts knows an old watermark; it keeps what it has above it, and as the leader
// still has it.
func TestCatalogue25RestartCutsNothingByTheWatermark(t *testing.T) {
	onStage(t, 2, func(t *testing.T, c *troupe) {
		c.configure(func(o *config.Topic) { o.MinInsyncReplicas, o.MinInsyncSet = 1, true })
		for i := range 5 {
			c.must(-1, fmt.Sprint("v", i))
		}
		c.allInSync()
		c.isolate(1, true) // the follower does not learn of the watermark behind the next record
		time.Sleep(time.Second)
		c.isolate(1, false)
		c.must(-1, "last")
		c.halt(2, nil)
		c.start(2) // so quickly that it keeps its place in the in-sync set
		c.stop(1, nil)
		if got := c.values(2); c.leader() != 2 || got[5] != "last" {
			t.Errorf("the new leader has %v", got)
		}
		c.start(1)
	})
}

// Catalogue 27 (KAFKA-7128) is in testdata/leader_isr.txt, 28 and 29 in testdata/follower.txt.

// Catalogue 29 (KAFKA-12460): a leader that has lost committed records is not followed below the watermark, unless the image
// tells of an unclean election.
func TestCatalogue29NoCutBelowTheWatermark(t *testing.T) {
	onStage(t, 2, func(t *testing.T, c *troupe) {
		c.configure(func(o *config.Topic) { o.MinInsyncReplicas, o.MinInsyncSet = 1, true })
		for i := range 5 {
			c.must(-1, fmt.Sprint("v", i))
		}
		c.allInSync()
		c.stop(1, nil)
		c.nodes[1].fs = vfs.NewCrash() // its disk was replaced, and the controller does not know
		c.sever(1, 2, true)
		c.start(1)
		part, _ := c.image().Partition(topicID, 0)
		one := int32(1)
		c.record(metadata.PartitionChanged{TopicID: topicID, PartitionEpoch: part.PartitionEpoch, ISR: &[]int32{1}, Leader: &one})
		c.must(1, "other")
		c.eventually("node 2 refuses to follow", func() bool { return errors.Is(c.partition(2).gone(), ErrBelowWatermark) })
		if got := c.values(2); len(got) != 5 {
			t.Errorf("it has cut its log: %v", got)
		}
		clear(c.acked) // they are on node 2 alone; the test ends with its restart after an unclean election
		c.halt(2, nil)
		c.fence(2)
		part, _ = c.image().Partition(topicID, 0)
		yes := true
		c.record(metadata.PartitionChanged{TopicID: topicID, PartitionEpoch: part.PartitionEpoch, NewLeaderEpoch: true, Unclean: &yes})
		c.start(2)
		c.allInSync()
		if got := c.values(2); len(got) != 1 || got[0] != "other" {
			t.Errorf("after an unclean election node 2 has %v", got)
		}
	})
}

// Catalogue 30 (KAFKA-13141): a fetch that must be truncated is no progress.
func TestCatalogue30DivergingFetchIsNoProgress(t *testing.T) {
	onStage(t, 2, func(t *testing.T, c *troupe) {
		c.must(-1, "a")
		c.allInSync()
		c.isolate(1, true)
		time.Sleep(time.Second)
		c.must(1, "b") // the watermark stays at 1
		p, sent := c.partition(1), Sent{}
		f := ReplicaFetch{
			Replica: 2, BrokerEpoch: c.nodes[2].epoch, Offset: 2, Stable: 2, LogStart: 0, LastFetchedEpoch: 0, LeaderEpoch: 0, Sent: &sent,
		}
		f.Offset, f.Stable = 7, 7
		if r := p.FetchReplica(f); r.DivergingEpoch != 0 || r.DivergingEnd != 2 || r.Span != nil {
			t.Errorf("a fetch from 7 of a log that ends at 2: %+v", r)
		}
		synctest.Wait()
		if hw := p.HighWatermark(); hw != 1 {
			t.Errorf("the high watermark is %d", hw)
		}
		c.isolate(1, false)
	})
}

// Catalogue 40 (CVE-2018-1288), 32: only a replica, and only its newest incarnation, moves anything.
func TestCatalogue40ForeignFetchesMoveNothing(t *testing.T) {
	onStage(t, 3, func(t *testing.T, c *troupe) {
		c.must(-1, "a")
		c.allInSync()
		c.isolate(1, true)
		time.Sleep(time.Second)
		c.must(1, "b")
		p := c.partition(1)
		for name, x := range map[string]struct {
			id    int32
			epoch int64
			role  record.Epoch
			want  error
		}{
			"no replica":        {9, 1, 0, ErrNotReplica},
			"the leader itself": {1, c.nodes[1].epoch, 0, ErrNotReplica},
			"an older run":      {2, c.nodes[2].epoch - 1, 0, ErrStaleReplica},
			"an older epoch":    {2, c.nodes[2].epoch, -7, nil},
			"an epoch to come":  {2, c.nodes[2].epoch, 1, ErrUnknownLeaderEpoch},
		} {
			r := p.FetchReplica(ReplicaFetch{
				Replica: x.id, BrokerEpoch: x.epoch, Offset: 1, Stable: 1, LogStart: 0, LastFetchedEpoch: 0, LeaderEpoch: x.role, Sent: &Sent{},
			})
			if !errors.Is(r.Err, x.want) {
				t.Errorf("%s: %v, want %v", name, r.Err, x.want)
			}
			r.Span.Release()
		}
		if hw := p.HighWatermark(); hw != 1 {
			t.Errorf("the high watermark is %d", hw)
		}
		c.isolate(1, false)
	})
}

// Catalogue 37 (Redpanda#3003): a record that was written in an epoch that ended is not acknowledged by the next one, though
// its offset is committed again.
func TestCatalogue37AcksAreOfTheirEpoch(t *testing.T) {
	onStage(t, 3, func(t *testing.T, c *troupe) {
		c.must(-1, "a")
		c.allInSync()
		c.isolate(1, true)
		time.Sleep(time.Second)
		got := make(chan ProduceResult, 1)
		c.partition(1).Produce(request(-1, "never"), func(r ProduceResult) { got <- r })
		part, _ := c.image().Partition(topicID, 0)
		two := int32(2)
		c.record(metadata.PartitionChanged{TopicID: topicID, PartitionEpoch: part.PartitionEpoch, Leader: &two})
		if r := <-got; !errors.Is(r.Err, ErrNotLeader) {
			t.Errorf("told %+v", r)
		}
		c.isolate(1, false)
		if o := c.must(-1, "b"); o != 1 {
			t.Errorf("the next record is at %d", o)
		}
	})
}

// Catalogue 36 (KIP-516): a topic of the same name with another id is another topic.
func TestCatalogue36FetchesNameTheTopicByID(t *testing.T) {
	onStage(t, 2, func(t *testing.T, c *troupe) {
		c.must(-1, "old")
		c.allInSync()
		r := c.nodes[1].replicas
		poll, ready, err := r.ReplicaFetch(&RemoteFetch{
			Replica: 2, BrokerEpoch: c.nodes[2].epoch, MaxBytes: 1 << 20,
			Partitions: []RemotePartition{{PartitionRef: PartitionRef{Topic: metadata.TopicID{9}}, MaxBytes: 1 << 20, LastFetchedEpoch: -1}},
		}, func() {})
		if err != nil || !ready {
			t.Fatalf("%v, %v", ready, err)
		}
		if a := poll.Answer(); len(a) != 1 || !errors.Is(a[0].Err, ErrUnknownPartition) || a[0].Span != nil {
			t.Errorf("a topic that is not here: %+v", a)
		}
	})
}

// Decision 21: past its lease a leader takes nothing on its own word and tells no latest offset; acks=all goes on.
func TestPastItsLease(t *testing.T) {
	onStage(t, 3, func(t *testing.T, c *troupe) {
		c.must(-1, "a")
		r, p := c.nodes[1].replicas, c.partition(1)
		r.SetLease(time.Now().Add(2 * time.Second))
		c.must(1, "b")
		time.Sleep(2*time.Second + time.Millisecond)
		for _, acks := range []int16{0, 1} {
			if got := c.produce(acks, "c"); !errors.Is(got.Err, ErrNotLeader) {
				t.Errorf("acks=%d: %v", acks, got.Err)
			}
		}
		if _, err := p.ListOffset(Latest, -1); !errors.Is(err, ErrOffsetNotAvailable) {
			t.Errorf("latest: %v", err)
		}
		if _, end, ok := p.Leads(); ok {
			t.Errorf("it tells its end, %d", end)
		}
		f := p.Fetch(FetchRequest{LeaderEpoch: -1, LastFetchedEpoch: -1, MaxBytes: 1 << 20})
		if f.Err != nil || f.Span.Len() == 0 || f.HighWatermark != -1 {
			t.Errorf("reading below the watermark: %+v", f)
		}
		f.Span.Release()
		c.must(-1, "d")
		r.SetLease(time.Now().Add(time.Hour))
		c.must(1, "e")
		c.eventually("it tells its end", func() bool { _, end, ok := p.Leads(); return ok && end == 4 })
	})
}

// A new leader answers no latest offset before its watermark has reached the start of its epoch. One follower has all of the
// log and does not know that any of its end is committed, because the other, in sync too, is away.
func TestLatestOfANewLeader(t *testing.T) {
	onStage(t, 3, func(t *testing.T, c *troupe) {
		c.must(-1, "a")
		c.allInSync()
		c.sever(3, 1, true)
		c.sever(3, 2, true)
		c.must(1, "b")
		c.eventually("the second has b", func() bool {
			e, _ := c.partition(2).Ends()
			return e.StableEnd == 2
		})
		c.isolate(1, true)
		c.stop(1, nil)
		p := c.partition(c.leader())
		if hw := p.HighWatermark(); hw >= 2 {
			t.Fatalf("the new leader knows the watermark %d already", hw)
		}
		if _, err := p.ListOffset(Latest, -1); !errors.Is(err, ErrOffsetNotAvailable) {
			t.Errorf("latest of a new leader: %v", err)
		}
		if _, end, ok := p.Leads(); ok {
			t.Errorf("a new leader tells its end, %d", end)
		}
		if f := p.Fetch(FetchRequest{LeaderEpoch: -1, LastFetchedEpoch: -1}); f.HighWatermark != -1 || f.Err != nil {
			t.Errorf("a fetch shows %+v", f)
		}
		c.sever(3, 2, false)
		c.eventually("the watermark arrives", func() bool { o, err := p.ListOffset(Latest, -1); return err == nil && o.Offset == 2 })
		if start, end, ok := p.Leads(); !ok || start != 0 || end != 2 {
			t.Errorf("the leader tells %d to %d, %v", start, end, ok)
		}
		c.isolate(1, false)
		c.sever(3, 1, false)
		c.start(1)
	})
}

// DeleteRecords answers when the live replicas have moved their log start.
func TestDeleteRecordsWaitsForTheReplicas(t *testing.T) {
	onStage(t, 3, func(t *testing.T, c *troupe) {
		for i := range 5 {
			c.must(-1, fmt.Sprint("v", i))
		}
		c.allInSync()
		type result struct {
			low record.Offset
			err error
		}
		ask := func(offset record.Offset) result {
			got := make(chan result, 1)
			c.partition(1).DeleteRecords(offset, 3*time.Second, func(low record.Offset, err error) { got <- result{low, err} })
			return <-got
		}
		if r := ask(3); r.err != nil || r.low != 3 {
			t.Errorf("delete before 3: %+v", r)
		}
		for id := range c.nodes {
			if s := c.partition(id).log.StartOffset(); s != 3 {
				t.Errorf("node %d begins at %d", id, s)
			}
		}
		c.sever(2, 1, true)
		time.Sleep(time.Second)
		if r := ask(4); !errors.Is(r.err, ErrTimedOut) {
			t.Errorf("with a replica that does not fetch: %+v", r)
		}
		c.sever(2, 1, false)
		c.acked = map[record.Offset]string{}
	})
}

// A replica that was away while the leader deleted what it would fetch next begins at the leader's log start; so does one
// that a reassignment adds.
func TestReplicaBelowTheLeadersLogStart(t *testing.T) {
	onStage(t, 3, func(t *testing.T, c *troupe) {
		for i := range 3 {
			c.must(-1, fmt.Sprint("v", i))
		}
		c.allInSync()
		c.stop(3, nil)
		for i := range 5 {
			c.must(-1, fmt.Sprint("w", i))
		}
		c.partition(1).DeleteRecords(6, time.Second, func(record.Offset, error) {})
		c.start(3)
		c.allInSync()
		if e, _ := c.partition(3).Ends(); e.LogStart != 6 || e.LogEnd != 8 {
			t.Errorf("node 3: %+v", e)
		}
		clear(c.acked)
	})
}

// KIP-392: a follower answers consumers up to its own watermark, and the leader sends those of another rack there.
func TestConsumersReadFromFollowers(t *testing.T) {
	onStage(t, 3, func(t *testing.T, c *troupe) {
		c.tune(func(o *Limits) { o.RackAware = true })
		c.must(-1, "a")
		c.allInSync()
		ask := func(id int32, offset record.Offset) FetchResult {
			f := p392(c, id, offset)
			f.Span.Release()
			return f
		}
		if f := ask(2, 0); f.Err != nil || f.HighWatermark != 1 || f.Redirect {
			t.Errorf("a follower: %+v", f)
		}
		if f := ask(2, 2); !errors.Is(f.Err, ErrOffsetNotAvailable) {
			t.Errorf("above the follower's watermark: %+v", f)
		}
		if f := c.partition(2).Fetch(FetchRequest{LeaderEpoch: -1, LastFetchedEpoch: -1}); !errors.Is(f.Err, ErrNotLeader) {
			t.Errorf("a client that knows of no followers: %v", f.Err)
		}
		if f := ask(1, 0); f.Redirect {
			t.Errorf("nobody has a rack: %+v", f)
		}
		c.racks(map[int32]string{1: "r1", 2: "r2", 3: "r2"})
		c.eventually("the leader sends consumers to their rack", func() bool { f := ask(1, 0); return f.Redirect && f.Preferred != 1 })
		if n, now := c.partition(2).Pending(1, -1); n != 0 || now {
			t.Errorf("waiting at a follower: %d, %v", n, now)
		}
	})
}

func p392(c *troupe, id int32, offset record.Offset) FetchResult {
	return c.partition(id).Fetch(FetchRequest{
		Offset: offset, LeaderEpoch: -1, LastFetchedEpoch: -1, MaxBytes: 1 << 20, AnyReplica: true, Rack: "r2",
	})
}

// racks registers every broker again, in a rack.
func (c *troupe) racks(of map[int32]string) {
	for _, id := range slices.Sorted(func(yield func(int32) bool) {
		for id := range of {
			if !yield(id) {
				return
			}
		}
	}) {
		n := c.nodes[id]
		n.runs++
		c.record(metadata.BrokerRegistered{ID: id, Incarnation: [16]byte{byte(id), n.runs}, Rack: of[id]})
		b, _ := c.image().Broker(id)
		n.epoch = b.Epoch
		n.replicas.SetBrokerEpoch(n.epoch)
		c.record(metadata.BrokerFenced{ID: id, Epoch: n.epoch})
	}
	c.allInSync()
}

// The throttle of a leader slows replicas down that are not in sync, and no others.
func TestThrottledReplicaCatchesUpSlowly(t *testing.T) {
	onStage(t, 3, func(t *testing.T, c *troupe) {
		c.configure(func(o *config.Topic) { o.LeaderThrottled = []string{"*"} })
		c.tune(func(o *Limits) { o.LeaderRate, o.PartitionBytes = 2000, 200 })
		c.stop(3, nil)
		for i := range 100 {
			c.must(-1, fmt.Sprint("v", i)) // some 70 bytes each
		}
		began := time.Now()
		c.start(3)
		c.allInSync()
		if took := time.Since(began); took < 2*time.Second || took > 10*time.Second {
			t.Errorf("7,000 bytes at 2,000 a second took %v", took)
		}
	})
}

// The answer to a change gets lost: the leader neither forgets the replica nor asks for two sets at once.
func TestLostAnswerToAChange(t *testing.T) {
	onStage(t, 3, func(t *testing.T, c *troupe) {
		c.must(-1, "a")
		c.stop(3, nil)
		c.mu.Lock()
		c.mute = true
		c.mu.Unlock()
		c.start(3)
		time.Sleep(2 * time.Second)
		c.must(-1, "b")
		c.mu.Lock()
		c.mute = false
		c.mu.Unlock()
	})
}

// A fetch outside of the log is told where the log begins.
func TestOutOfRangeTellsTheLogStart(t *testing.T) {
	onStage(t, 2, func(t *testing.T, c *troupe) {
		r := c.partition(1).FetchReplica(ReplicaFetch{
			Replica: 2, BrokerEpoch: c.nodes[2].epoch, Offset: 5, Stable: 5, LogStart: 0, LastFetchedEpoch: -1, LeaderEpoch: 0, Sent: &Sent{},
		})
		if !errors.Is(r.Err, log.ErrOffsetOutOfRange) || r.LogStart != 0 {
			t.Errorf("a fetch behind the end: %+v", r)
		}
	})
}

// Decision 9: two fetches of a session are under way; the second has the first answered at once, empty, and what was sent
// before is not sent again although the follower does not have it yet.
func TestTwoFetchesInFlight(t *testing.T) {
	onStage(t, 2, func(t *testing.T, c *troupe) {
		c.must(-1, "a")
		c.allInSync()
		c.sever(2, 1, true)
		time.Sleep(time.Second)
		r := c.nodes[1].replicas
		ask := func(session, epoch int32, offset, stable record.Offset, wake func()) (*ReplicaPoll, bool) {
			f := &RemoteFetch{Replica: 2, BrokerEpoch: c.nodes[2].epoch, SessionID: session, SessionEpoch: epoch, MaxWait: time.Minute, MaxBytes: 1 << 20}
			f.Partitions = []RemotePartition{{
				PartitionRef: PartitionRef{Topic: topicID}, Offset: offset, Stable: stable, LastFetchedEpoch: 0, MaxBytes: 1 << 20,
			}}
			poll, ready, err := r.ReplicaFetch(f, wake)
			if err != nil {
				t.Fatal(err)
			}
			return poll, ready
		}
		woken := func() { t.Error("a fetch that is answered at once was woken") }
		one, ready := ask(0, 0, 1, 1, woken)
		if a := one.Answer(); !ready || len(a) != 1 || a[0].Span != nil || a[0].HighWatermark != 1 {
			t.Fatalf("a new session: %v %+v", ready, a)
		}
		first := 0
		two, ready := ask(one.SessionID, 1, 1, 1, func() { first++ })
		if ready || first != 0 {
			t.Fatalf("nothing to tell: ready %v, woken %d times", ready, first)
		}
		c.partition(1).Produce(request(1, "b"), func(ProduceResult) {})
		if first != 1 {
			t.Fatalf("woken %d times by a batch that is not even flushed", first)
		}
		a := two.Answer()
		if len(a) != 1 || a[0].Span.Len() == 0 {
			t.Fatalf("the batch: %+v", a)
		}
		a[0].Span.Release()
		synctest.Wait() // flushed here
		second := 0
		three, ready := ask(one.SessionID, 2, 1, 1, func() { second++ }) // does not have the batch yet
		if ready {
			t.Fatalf("the batch is sent twice: %+v", three.Answer())
		}
		var told atomic.Int32 // by a timer
		four, ready := ask(one.SessionID, 3, 2, 2, func() { told.Add(1) })
		if second != 1 || len(three.Answer()) != 0 {
			t.Errorf("the fetch before was woken %d times", second)
		}
		time.Sleep(watermarkTime / 2)
		if ready || told.Load() != 0 {
			t.Error("a watermark alone is told at once")
		}
		time.Sleep(watermarkTime / 2)
		synctest.Wait()
		if a := four.Answer(); told.Load() != 1 || len(a) != 1 || a[0].HighWatermark != 2 || a[0].Span != nil {
			t.Errorf("the acknowledgement: ready %v, woken %d times, %+v", ready, told.Load(), a)
		}
		if _, _, err := r.ReplicaFetch(&RemoteFetch{Replica: 2, BrokerEpoch: c.nodes[2].epoch, SessionID: one.SessionID, SessionEpoch: 3}, nil); !errors.Is(err, ErrSession) {
			t.Errorf("an epoch of the session twice: %v", err)
		}
		c.sever(2, 1, false)
	})
}

// A small write costs one fetch and one answer for each follower: that a batch is appended, and a watermark, are not told on their own.
func TestSmallWritesCostOneFetch(t *testing.T) {
	onStage(t, 3, func(t *testing.T, c *troupe) {
		c.must(-1, "first")
		c.allInSync()
		time.Sleep(time.Second)
		const writes = 100
		begun := c.fetches.Load()
		for range writes {
			c.must(-1, "more")
			time.Sleep(watermarkTime / 2)
		}
		if n := c.fetches.Load() - begun; n > 2*writes*11/10 {
			t.Errorf("%d fetches for %d writes to two followers", n, writes)
		}
		time.Sleep(2 * watermarkTime)
		synctest.Wait()
		for id := int32(1); id <= 3; id++ {
			if hw := c.partition(id).HighWatermark(); hw != writes+1 {
				t.Errorf("node %d knows of %d records a moment later", id, hw)
			}
		}
	})
}

// A session may be closed while a fetch tells it of its partitions, by the follower's next one or for lying unused: none of them
// stays in a partition's list.
func TestClosedSessionWatchesNothing(t *testing.T) {
	onStage(t, 2, func(t *testing.T, c *troupe) {
		c.allInSync()
		c.sever(2, 1, true)
		time.Sleep(time.Second)
		r := c.nodes[1].replicas
		open := func() {
			_, _, err := r.ReplicaFetch(&RemoteFetch{
				Replica: 2, BrokerEpoch: c.nodes[2].epoch, MaxWait: time.Minute, MaxBytes: 1 << 20,
				Partitions: []RemotePartition{{PartitionRef: PartitionRef{Topic: topicID}, LastFetchedEpoch: -1, MaxBytes: 1 << 20}},
			}, func() {})
			if err != nil {
				t.Error(err)
			}
		}
		var both sync.WaitGroup
		var opened atomic.Bool
		both.Go(func() {
			for !opened.Load() {
				r.closeSessions(true)
			}
		})
		for range 20_000 {
			open()
		}
		opened.Store(true)
		both.Wait()
		r.closeSessions(true)
		list := &c.partition(1).followers
		list.mu.Lock()
		if list.count != 0 {
			t.Errorf("%d sessions that are closed watch the partition", list.count)
		}
		list.mu.Unlock()
		c.sever(2, 1, false)
	})
}

// What was told to a follower under an epoch that ended counts for nothing: the watermark is told again, also where nothing is
// written any more.
func TestWatermarkIsToldAgainInANewEpoch(t *testing.T) {
	onStage(t, 3, func(t *testing.T, c *troupe) {
		for i := range 30 {
			c.must(-1, fmt.Sprint("v", i))
			part, _ := c.image().Partition(topicID, 0)
			c.record(metadata.PartitionChanged{TopicID: topicID, PartitionEpoch: part.PartitionEpoch, NewLeaderEpoch: true})
			c.allInSync()
		}
	})
}

// A broker may learn whom it follows before it knows the epoch of its registration: it fetches as soon as it does.
func TestFollowsOnceItsEpochIsKnown(t *testing.T) {
	onStage(t, 2, func(t *testing.T, c *troupe) {
		c.must(-1, "a")
		r := c.nodes[2].replicas
		r.SetBrokerEpoch(0)
		c.sever(2, 1, true)
		time.Sleep(2 * time.Second)
		c.sever(2, 1, false)
		c.must(1, "b")
		time.Sleep(time.Minute)
		if e, _ := c.partition(2).Ends(); e.LogEnd != 1 {
			t.Errorf("it fetched without an epoch: %+v", e)
		}
		r.SetBrokerEpoch(c.nodes[2].epoch)
		time.Sleep(10 * firstReplicaBackoff) // the leader has taken it out for its silence, and asks first what it has
		if e, _ := c.partition(2).Ends(); e.LogEnd != 2 {
			t.Errorf("it does not fetch: %+v", e)
		}
	})
}

// A broker that was taken out of the in-sync set without its leader's knowledge, as it did not report for a while, fetches on in its
// session: the leader asks it again what it has, so that it is in sync again although nothing is written.
func TestFencedFollowerJoinsAgainInItsSession(t *testing.T) {
	onStage(t, 3, func(t *testing.T, c *troupe) {
		c.must(-1, "a")
		c.allInSync()
		for range 3 {
			c.fence(3)
			synctest.Wait()
			c.record(metadata.BrokerFenced{ID: 3, Epoch: c.nodes[3].epoch})
			c.allInSync()
		}
	})
}

// A reassignment adds a replica, which copies everything and joins, and takes one away, which deletes its log.
func TestReassignment(t *testing.T) {
	onStage(t, 3, func(t *testing.T, c *troupe) {
		c.reassign([]int32{1, 2})
		for i := range 5 {
			c.must(-1, fmt.Sprint("v", i))
		}
		if _, err := c.nodes[3].replicas.Partition(topicID, 0); !errors.Is(err, ErrUnknownPartition) {
			t.Errorf("node 3 holds a replica: %v", err)
		}
		c.reassign([]int32{1, 2, 3})
	})
}

// reassign sets the replicas; those that go leave the in-sync set at once.
func (c *troupe) reassign(to []int32) {
	part, _ := c.image().Partition(topicID, 0)
	stay := slices.DeleteFunc(slices.Clone(part.ISR), func(id int32) bool { return !slices.Contains(to, id) })
	c.record(metadata.PartitionChanged{
		TopicID: topicID, PartitionEpoch: part.PartitionEpoch, ISR: &stay, Assignment: &metadata.Assignment{Replicas: to}, NewLeaderEpoch: true,
	})
}

package quorum

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keeplog/keeplog/metadata"
)

// groupsRun is a cluster whose coordinators commit through faults.
type groupsRun struct {
	*bubble
	w      *carrier
	ctx    context.Context
	lives  uint64
	struck int
	// said is the first thing that was wrong.
	said atomic.Pointer[string]
	// acked is the highest offset of each group that was answered.
	ackMu sync.Mutex
	acked map[string]int64
	times int
}

var runGroups = []string{"one", "two", "three", "four"}

func (g *groupsRun) wrong(format string, a ...any) {
	s := fmt.Sprintf(format, a...)
	g.said.CompareAndSwap(nil, &s)
}

// coordinate commits for a group on a node while it thinks that the shard is its own: it learns that it is not when it is refused, as one
// that was paused does. Offsets go up with the shard's epoch, so that whatever an old coordinator gets through goes back.
func (g *groupsRun) coordinate(id int, group string) {
	shard, mine, n := metadata.ShardOf(group), int64(0), int64(0)
	for g.ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond) // virtual
		q := g.w.quorum(id)
		if q == nil {
			mine = 0
			continue
		}
		if s := q.Image().Shard(shard); mine == 0 && s.Owner == metadata.BrokerID(id) {
			mine, n = s.Epoch, 0
		}
		if mine == 0 {
			continue
		}
		n++
		offset := mine*1_000_000 + n
		ctx, cancel := context.WithTimeout(g.ctx, 3*time.Second)
		a, err := q.ProposeOffsets(ctx, []metadata.Record{commitOf(group, mine, 0, offset)})
		cancel()
		switch {
		case err != nil:
		case a.Results[0].Err() == nil:
			g.ackMu.Lock()
			g.acked[group] = max(g.acked[group], offset)
			g.times++
			g.ackMu.Unlock()
		default:
			mine = 0
		}
	}
}

// watch sees that no offset goes back on a node.
func (g *groupsRun) watch(id int, q *Quorum) {
	last := map[string]int64{}
	q.Subscribe(func(metadata.Delta, *metadata.Image) {
		for _, group := range runGroups {
			now := committed(q, group)
			if before, had := last[group]; had && now < before {
				g.wrong("node %d: the offset of %s went back from %d to %d", id, group, before, now)
			}
			last[group] = now
		}
	})
}

// offsetsThroughFaults runs one seed; it returns what went wrong.
func offsetsThroughFaults(t *testing.T, seed uint64, rounds int) (g *groupsRun) {
	g = &groupsRun{bubble: &bubble{t: t, r: rand.New(rand.NewPCG(seed, 5)), stores: map[int]*slowStore{}, groups: true}, acked: map[string]int64{}}
	g.c = newCluster(t, 3).timing(Timing{Commit: 100 * time.Millisecond, SnapshotEvery: 5 * time.Second, SnapshotEntries: 60, Trailing: 10, Checkpoint: 2 * time.Second})
	g.w = withGroups(g.c)
	for id, n := range g.c.nodes {
		n.wrap = func(s *MemStore) Store {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.stores[id] = &slowStore{MemStore: s}
			return g.stores[id]
		}
	}
	g.c.start().ready()
	g.c.leader().propose(offsetsTopic)
	g.begin()
	ctx, stop := context.WithCancel(context.Background())
	g.ctx = ctx
	var work sync.WaitGroup
	for id := range g.c.nodes {
		for _, group := range runGroups {
			work.Go(func() { g.coordinate(id, group) })
		}
	}
	for range rounds {
		g.strike()
		time.Sleep(time.Duration(g.r.IntN(8000)) * time.Millisecond)
		if g.r.IntN(2) == 0 {
			g.mend()
			time.Sleep(time.Duration(g.r.IntN(4000)) * time.Millisecond)
		}
	}
	g.mend()
	time.Sleep(5 * time.Second)
	stop()
	work.Wait()
	g.c.ready()
	g.w.sameTables()
	for group, acked := range g.acked {
		for id, n := range g.c.nodes {
			if got := committed(n.q, group); got < acked {
				g.wrong("node %d: the offset of %s is %d, and %d was answered", id, group, got, acked)
			}
		}
	}
	g.c.close()
	return g
}

// begin registers who runs and is not yet known, and gives the shards to random nodes.
func (g *groupsRun) begin() {
	g.w.runs()
	for id := 1; id <= len(g.c.nodes); id++ {
		q := g.w.quorum(id)
		if q.epoch.Load() == metadata.NoEpoch {
			g.lives++
			g.watch(id, q)
			g.w.register(id, g.lives)
		}
	}
	for _, group := range runGroups {
		g.w.give(group, 1+g.r.IntN(3))
	}
}

// strike is a fault.
func (g *groupsRun) strike() {
	g.struck++
	switch id := g.r.IntN(3) + 1; g.r.IntN(8) {
	case 7:
		g.mend()
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		_ = g.c.leader().q.Transfer(ctx)
		cancel()
	case 5:
		g.forget(id)
		g.kill(id)
	case 6:
		for id := range g.c.nodes {
			g.forget(id)
			g.kill(id)
		}
	default:
		g.fault()
		for id, n := range g.c.nodes { // it may have killed
			if n.q == nil {
				g.forget(id)
			}
		}
	}
}

func (g *groupsRun) forget(id int) {
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	g.w.qs[id] = nil
}

// mend heals everything and lets the shards move.
func (g *groupsRun) mend() {
	g.heal()
	g.c.ready()
	g.begin()
}

// TestOffsetsThroughFaults: coordinators on all nodes commit while links are cut, disks stall, nodes are killed, one and all, and shards
// move under them. No answered offset is lost or goes back, on any node, and all nodes have the same groups. KEEPLOG_SEED repeats a run's
// faults.
func TestOffsetsThroughFaults(t *testing.T) {
	end := time.Now().Add(harnessTime())
	seed := testSeed()
	t.Logf("seed %d", seed)
	runs, faults, acked := 0, 0, 0
	for ; runs == 0 || time.Now().Before(end) && !t.Failed(); runs++ {
		synctest.Test(t, func(t *testing.T) {
			g := offsetsThroughFaults(t, seed+uint64(runs), 12)
			if what := g.said.Load(); what != nil {
				t.Error(*what)
			}
			faults += g.struck
			acked += g.times
		})
	}
	t.Logf("%d runs, %d faults, %d commits answered", runs, faults, acked)
	if acked < 100*runs {
		t.Errorf("%d commits were answered: the test shows nothing", acked)
	}
}

func testSeed() uint64 {
	if s, err := strconv.ParseUint(os.Getenv("KEEPLOG_SEED"), 10, 64); err == nil {
		return s
	}
	return uint64(time.Now().UnixNano())
}

// An outcome that does not fit what was proposed is no answer, whoever tells it.
func TestOutcomesOfOthers(t *testing.T) {
	two := &proposal{records: 2}
	for _, c := range []struct {
		results [][]metadata.Result
		want    bool
	}{
		{nil, false},
		{[][]metadata.Result{{{}, {}}}, false},
		{[][]metadata.Result{{}, {{}}}, false},
		{[][]metadata.Result{{}, {{}, {}, {}}}, false},
		{[][]metadata.Result{{}, {{}, {}}}, true},
	} {
		if got := two.answeredBy(&metadata.Outcome{Results: c.results}, 1); got != c.want {
			t.Errorf("%v answers two records: %v", c.results, got)
		}
	}
}

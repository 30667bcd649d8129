package quorum

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// harnessTime is how long the harness runs: some seconds, or KEEPLOG_HARNESS_SECONDS.
func harnessTime() time.Duration {
	if n, err := strconv.Atoi(os.Getenv("KEEPLOG_HARNESS_SECONDS")); err == nil && n > 0 {
		return time.Duration(n) * time.Second
	}
	return 2 * time.Second
}

// TestBubble runs real members with the real library in virtual time, while links are cut, one way too, disks stall, and nodes
// are killed, one and all, and started again. What was acknowledged is there, once; nothing is there that nobody proposed; and
// all have one history. KEEPLOG_SEED repeats a run's faults; what the members make of them may differ.
func TestBubble(t *testing.T) {
	end := time.Now().Add(harnessTime())
	seed, fixed := uint64(time.Now().UnixNano()), false
	if s, err := strconv.ParseUint(os.Getenv("KEEPLOG_SEED"), 10, 64); err == nil {
		seed, fixed = s, true
	}
	runs, faults, acked := 0, 0, 0
	virtual := time.Duration(0)
	for ; runs == 0 || time.Now().Before(end) && !t.Failed(); runs++ {
		synctest.Test(t, func(t *testing.T) {
			b := &bubble{t: t, r: rand.New(rand.NewPCG(seed+uint64(runs), 1)), stores: map[int]*slowStore{}}
			begin := time.Now()
			b.run(15)
			virtual += time.Since(begin)
			faults += b.faults
			acked += len(b.acked)
		})
	}
	t.Logf("seed %d, fixed %v: %d runs, %.1f virtual hours, %d faults, %d proposals acknowledged", seed, fixed, runs, virtual.Hours(), faults, acked)
}

// bubble is one run.
type bubble struct {
	t      *testing.T
	r      *rand.Rand
	c      *cluster
	faults int
	// groups says that nodes register themselves after a start.
	groups bool

	mu     sync.Mutex
	acked  map[int]bool
	stores map[int]*slowStore
	next   atomic.Int64
}

func (b *bubble) run(rounds int) {
	b.acked = map[int]bool{}
	b.c = newCluster(b.t, 3).timing(Timing{Commit: 100 * time.Millisecond, SnapshotEvery: 5 * time.Second, SnapshotEntries: 60, Trailing: 10, Checkpoint: 2 * time.Second})
	for id, n := range b.c.nodes {
		n.wrap = func(s *MemStore) Store {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.stores[id] = &slowStore{MemStore: s}
			return b.stores[id]
		}
	}
	b.c.start().ready()
	stop := make(chan struct{})
	var work sync.WaitGroup
	for id := range b.c.nodes {
		work.Go(func() { b.propose(id, stop) })
	}
	for range rounds {
		b.fault()
		b.faults++
		time.Sleep(time.Duration(b.r.IntN(8000)) * time.Millisecond)
		if b.r.IntN(3) == 0 {
			b.heal()
			time.Sleep(time.Duration(b.r.IntN(8000)) * time.Millisecond)
		}
	}
	b.heal()
	b.c.ready()
	close(stop)
	work.Wait()
	b.c.ready().same()
	b.check()
	b.c.close()
}

// node is a node that may be restarted meanwhile.
func (b *bubble) quorum(id int) *Quorum {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.c.nodes[id].q
}

// propose proposes on a node whenever that leads, or thinks so.
func (b *bubble) propose(id int, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(200 * time.Millisecond):
		}
		q := b.quorum(id)
		if q == nil {
			continue
		}
		if _, err := q.Lead(); err != nil {
			continue
		}
		i := int(b.next.Add(1))
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		a, err := q.Propose(ctx, topics(i, 1))
		cancel()
		if err == nil && a.Results[0].Err() == nil {
			b.mu.Lock()
			b.acked[i] = true
			b.mu.Unlock()
		} else if err == nil {
			b.t.Errorf("topic %d: %v", i, a.Results[0].Err())
		}
	}
}

func (b *bubble) fault() {
	id := b.r.IntN(3) + 1
	switch b.r.IntN(7) {
	case 0, 1:
		b.c.isolate(id, true)
	case 2:
		for other := range b.c.nodes {
			b.c.net.cut(host(other), host(id), other != id)
		}
	case 3:
		for other := range b.c.nodes {
			b.c.net.cut(host(id), host(other), other != id)
		}
	case 4:
		b.mu.Lock()
		if s := b.stores[id]; s != nil {
			s.delay.Store(int64(time.Duration(b.r.IntN(3000)) * time.Millisecond))
		}
		b.mu.Unlock()
	case 5:
		b.kill(id)
	case 6:
		for id := range b.c.nodes {
			b.kill(id)
		}
	}
}

// kill stops a node if it runs.
func (b *bubble) kill(id int) {
	n := b.c.nodes[id]
	b.mu.Lock()
	q := n.q
	n.q = nil
	if s := b.stores[id]; s != nil {
		s.delay.Store(0)
	}
	b.mu.Unlock()
	if q == nil {
		return
	}
	if err := q.Close(); err != nil {
		b.t.Errorf("node %d: %v", id, err)
	}
	n.store, n.o.ClusterID = n.store.Crash(), testCluster
}

// heal makes all links whole and all disks fast, and starts what does not run.
func (b *bubble) heal() {
	for from := range b.c.nodes {
		for to := range b.c.nodes {
			b.c.net.cut(host(from), host(to), false)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.stores {
		s.delay.Store(0)
	}
	for id, n := range b.c.nodes {
		if n.q == nil {
			n.o.Store = nil
			s := &slowStore{MemStore: n.store}
			b.stores[id] = s
			n.wrap = func(*MemStore) Store { return s }
			n.start()
			if !b.groups {
				n.q.SetBrokerEpoch(int64(b.faults)*10 + int64(id))
			}
		}
	}
}

func (b *bubble) check() {
	img := b.c.nodes[1].q.Image()
	for i := range b.acked {
		if _, ok := img.TopicByName(topic(i).Name); !ok {
			b.t.Errorf("topic %d was acknowledged and is lost", i)
		}
	}
	seen := map[string]bool{}
	for i := range int(b.next.Load()) {
		seen[topic(i+1).Name] = true
	}
	for topic := range img.Topics() {
		if !seen[topic.Name] {
			b.t.Errorf("nobody proposed %s", topic.Name)
		}
	}
	if img.Ignored() > 0 {
		b.t.Error(img.Ignored(), " records ignored")
	}
}

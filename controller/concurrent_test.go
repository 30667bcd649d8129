package controller

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keeplog/keeplog/metadata"
)

// shared is a world for several goroutines.
type shared struct {
	mu sync.Mutex
	*world
	proposals atomic.Int32
	// held, if set, is what a proposal waits for.
	held chan struct{}
}

func (s *shared) Image() *metadata.Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.world.Image()
}

func (s *shared) Lead() (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.world.Lead()
}

func (s *shared) ProposeAt(ctx context.Context, term uint64, records []metadata.Record) (uint64, []metadata.Result, error) {
	s.proposals.Add(1)
	if s.held != nil {
		<-s.held
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.world.ProposeAt(ctx, term, records)
}

// shareWorld makes a controller over three live brokers with a topic of n partitions, all on brokers 1, 2 and 3.
func shareWorld(t *testing.T, n int) *shared {
	t.Helper()
	w, _ := three(t)
	s := &shared{world: w}
	w.c.o.Proposer = s
	topic := CreateTopic{Name: "many", Partitions: -1, Replicas: -1}
	for i := range n {
		topic.Assignment = append(topic.Assignment, PartitionAssignment{int32(i), []int32{1, 2, 3}})
	}
	answers, err := w.c.CreateTopics(t.Context(), CreateTopicsRequest{Topics: []CreateTopic{topic}})
	if err != nil || answers[0].Err != nil {
		t.Fatal(err, answers)
	}
	return s
}

// Requests that arrive while one is being committed are committed together, and each gets its own answer.
func TestInSyncChangesTravelTogether(t *testing.T) {
	const n = 50
	s := shareWorld(t, n)
	s.held = make(chan struct{})
	s.proposals.Store(0)
	topic, _ := s.Image().TopicByName("many")
	second := s.brokerEpoch(2)
	answers := make([][]ISRChanged, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			req := AlterPartitionRequest{Broker: 1, Epoch: 1, Changes: []ISRChange{{
				Topic: topic.ID, Partition: int32(i), ISR: []InSyncMember{{1, -1}, {2, -1}}, Recovered: true,
			}}}
			if i%10 == 9 {
				req.Broker, req.Epoch = 2, second
			}
			var err error
			if answers[i], err = s.c.AlterPartition(context.Background(), req); err != nil {
				t.Error(err)
			}
		})
		if i == 0 {
			for s.proposals.Load() == 0 { // the first one is being committed, the others wait for their turn
				runtime.Gosched()
			}
		}
	}
	for waiting := 0; waiting < n-1; {
		runtime.Gosched()
		s.c.liveMu.Lock()
		waiting = len(s.c.waiting)
		s.c.liveMu.Unlock()
	}
	close(s.held)
	wg.Wait()
	if got := s.proposals.Load(); got != 2 {
		t.Errorf("%d proposals, not 2", got)
	}
	for i, a := range answers {
		switch {
		case len(a) != 1 || int(a[0].Partition) != i:
			t.Errorf("%d: answer %+v", i, a)
		case i%10 == 9:
			if !errors.Is(a[0].Err, ErrInvalidRequest) {
				t.Errorf("%d: not by the leader: %v", i, a[0].Err)
			}
		case a[0].Err != nil || !slices.Equal(a[0].ISR, []int32{1, 2}) || a[0].PartitionEpoch != 1:
			t.Errorf("%d: %+v", i, a[0])
		}
	}
}

// A node that loses the lead answers everyone that waits.
func TestInSyncChangesWithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shareWorld(t, 1)
		s.leader = false
		for range 3 {
			if _, err := s.c.AlterPartition(t.Context(), AlterPartitionRequest{Broker: 1, Epoch: 1}); !errors.Is(err, ErrNotController) {
				t.Error(err)
			}
		}
		if len(s.c.waiting) > 0 {
			t.Errorf("%d calls are left behind", len(s.c.waiting))
		}
	})
}

// Creating a topic waits until the live brokers have applied it, no longer than a second, and not for the dead or for itself.
func TestWaitApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shareWorld(t, 1)
		c := s.c
		c.o.Node = 1
		start := time.Now()
		if !c.WaitApplied(t.Context(), s.index) || time.Since(start) > 0 {
			t.Fatal("a node alone waited")
		}
		w := func(id int32, applied uint64) {
			t.Helper()
			if _, err := c.Heartbeat(t.Context(), time.Since(start), Heartbeat{ID: id, Epoch: s.brokerEpoch(id), Applied: applied}); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Tick(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		for id := int32(1); id <= 3; id++ {
			w(id, s.index-1)
		}
		if c.WaitApplied(t.Context(), s.index) || time.Since(start) != time.Second {
			t.Errorf("waited %v for two that did not report", time.Since(start))
		}
		from := time.Now()
		go func() {
			time.Sleep(300 * time.Millisecond)
			w(2, s.index)
			time.Sleep(100 * time.Millisecond)
			if err := c.Dropped(t.Context(), 3, s.brokerEpoch(3)); err != nil {
				t.Error(err)
			}
		}()
		if !c.WaitApplied(t.Context(), s.index) || time.Since(from) != 400*time.Millisecond {
			t.Errorf("waited %v, not 400 ms", time.Since(from))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if c.WaitApplied(ctx, s.index+1) {
			t.Error("applied what is not there")
		}
	})
}

// Everything at once, for the race detector; the sets and epochs hold at the end.
func TestConcurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shareWorld(t, 8)
		topic, _ := s.Image().TopicByName("many")
		var wg sync.WaitGroup
		start := time.Now()
		for id := int32(1); id <= 3; id++ {
			wg.Go(func() {
				for range 20 {
					img := s.Image()
					b, _ := img.Broker(id)
					_, _ = s.c.Heartbeat(t.Context(), time.Since(start), Heartbeat{ID: id, Epoch: b.Epoch, Applied: img.Index(), WantFence: id == 3 && img.Index()%3 == 0})
					time.Sleep(50 * time.Millisecond)
				}
			})
			wg.Go(func() {
				for i := range 40 {
					img := s.Image()
					p, _ := img.Partition(topic.ID, int32(i%8))
					b, _ := img.Broker(id)
					ch := ISRChange{Topic: topic.ID, Partition: int32(i % 8), LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Recovered: true}
					for _, m := range []int32{1, 2, 3}[:1+i%3] {
						at, _ := img.Broker(m)
						ch.ISR = append(ch.ISR, InSyncMember{m, at.Epoch})
					}
					_, _ = s.c.AlterPartition(t.Context(), AlterPartitionRequest{Broker: id, Epoch: b.Epoch, Changes: []ISRChange{ch}})
					time.Sleep(20 * time.Millisecond)
				}
			})
		}
		wg.Go(func() {
			for range 20 {
				if err := s.c.Tick(t.Context(), time.Since(start)); err != nil {
					t.Error(err)
				}
				_, _ = s.c.ElectLeaders(t.Context(), ElectLeadersRequest{})
				_, _ = s.c.ListReassignments(nil)
				time.Sleep(40 * time.Millisecond)
			}
		})
		wg.Wait()
		c := &cluster{world: s.world, t: t, before: s.img}
		for i, p := range topic.Partitions {
			c.checkPartition(topic, i, p)
		}
		for t := range s.img.Topics() {
			for i, p := range t.Partitions {
				c.checkPartition(t, i, p)
			}
		}
	})
}

// Whoever waits for others' decisions waits no longer than it has time.
func TestWaitingForATurnHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shareWorld(t, 1)
		s.held = make(chan struct{})
		first := make(chan error)
		create := func(ctx context.Context, name string) error {
			_, err := s.c.CreateTopics(ctx, CreateTopicsRequest{Topics: []CreateTopic{{Name: name, Partitions: 1, Replicas: 1}}})
			return err
		}
		go func() { first <- create(t.Context(), "first") }()
		synctest.Wait() // it is being committed
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		_, err := s.c.AllocateProducerIDs(ctx, 1, 1)
		if waited := time.Since(began); !errors.Is(err, ErrNotCommitted) || !errors.Is(err, context.DeadlineExceeded) || waited != 5*time.Second {
			t.Errorf("after %v: %v", waited, err)
		}
		close(s.held)
		if err := <-first; err != nil {
			t.Error(err)
		}
		if err := create(t.Context(), "second"); err != nil {
			t.Error(err)
		}
	})
}

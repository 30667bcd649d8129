package controller

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
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

// An answer is of its own decision, also where another one is made while this node's partitions are waited for: who is taken out by that one has
// left without the leader's wish.
func TestInSyncAnswerIsOfItsOwnDecision(t *testing.T) {
	s := shareWorld(t, 1)
	topic, _ := s.Image().TopicByName("many")
	waits := 0
	s.c.o.Applied = func(context.Context, uint64) error {
		if waits++; waits == 1 {
			s.must(t, s.c.ReportLost(t.Context(), 2, s.brokerEpoch(2), []PartitionRef{{topic.ID, 0}}))
		}
		return nil
	}
	a, err := s.c.AlterPartition(t.Context(), AlterPartitionRequest{Broker: 1, Epoch: s.brokerEpoch(1), Changes: []ISRChange{{
		Topic: topic.ID, ISR: []InSyncMember{{1, -1}, {2, -1}}, Recovered: true,
	}}})
	if err != nil || a[0].Err != nil || a[0].PartitionEpoch != 1 || !slices.Equal(a[0].ISR, []int32{1, 2}) {
		t.Error(a, err)
	}
	if part, _ := s.Image().Partition(topic.ID, 0); part.PartitionEpoch != 2 || !slices.Equal(part.ISR, []int32{1}) {
		t.Errorf("%+v", part)
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

// tardyLog is a metadata log that commits when it is let, whoever has left by then.
type tardyLog struct {
	*shared
	release chan struct{}
	// fail, if set, refuses the proposal of that number.
	fail int32
}

func (l *tardyLog) ProposeAt(ctx context.Context, term uint64, records []metadata.Record) (index uint64, results []metadata.Result, err error) {
	if n := l.proposals.Add(1); n == l.fail {
		return 0, nil, errors.New("the lead is lost")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-l.release
		l.mu.Lock()
		defer l.mu.Unlock()
		index, results, err = l.world.ProposeAt(ctx, term, records)
	}()
	select {
	case <-done:
		return index, results, err
	case <-ctx.Done():
		return 0, nil, context.Cause(ctx)
	}
}

// What a caller has left behind is in the log a moment later all the same: the next decision waits until it is known, and sees it.
func TestTheTurnIsHeldWhileAProposalIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shareWorld(t, 1)
		l := &tardyLog{shared: s, release: make(chan struct{})}
		part := func() *metadata.Partition {
			topic, _ := s.Image().TopicByName("many")
			return topic.Partitions[0]
		}
		s.must(t, s.c.Fence(t.Context(), 1, s.brokerEpoch(1)))
		s.must(t, s.c.Unfence(t.Context(), 1, s.brokerEpoch(1)))
		topic, _ := s.Image().TopicByName("many")
		wish := ISRChange{Topic: topic.ID, LeaderEpoch: part().LeaderEpoch, PartitionEpoch: part().PartitionEpoch, Recovered: true}
		for id := int32(1); id <= 3; id++ {
			wish.ISR = append(wish.ISR, InSyncMember{id, s.brokerEpoch(id)})
		}
		if a, err := s.c.AlterPartition(t.Context(), AlterPartitionRequest{Broker: 2, Epoch: s.brokerEpoch(2), Changes: []ISRChange{wish}}); err != nil || a[0].Err != nil {
			t.Fatal(a, err)
		}
		s.must(t, s.c.Tick(t.Context(), 0))
		beat := func(now time.Duration, applied uint64) HeartbeatAnswer {
			t.Helper()
			a, err := s.c.Heartbeat(t.Context(), now, Heartbeat{ID: 2, Epoch: s.brokerEpoch(2), Applied: applied})
			s.must(t, err)
			return a
		}
		before := s.index
		now := time.Duration(0)
		for ; now < 2*time.Second; now += 400 * time.Millisecond { // broker 3 is gone, and nobody has said so yet
			if a := beat(now, before); !a.CaughtUp {
				t.Fatalf("%+v", a)
			}
		}
		s.c.o.Proposer = l
		short := func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			t.Cleanup(cancel)
			return ctx
		}
		answers, err := s.c.ElectLeaders(short(), ElectLeadersRequest{Partitions: []TopicPartition{{"many", 0}}})
		if err != nil || !errors.Is(answers[0].Err, ErrNotCommitted) || !errors.Is(answers[0].Err, context.DeadlineExceeded) {
			t.Fatal(answers, err)
		}
		r := Registration{ID: 3, Incarnation: [16]byte{3, 9}, Directories: []metadata.DirectoryID{{99}}, PreviousEpoch: -1, Features: SupportedFeatures()}
		if _, err := s.c.RegisterBroker(short(), r); !errors.Is(err, ErrNotCommitted) {
			t.Fatalf("registered while an election is in flight: %v", err)
		}
		close(l.release)
		synctest.Wait()
		if got := part(); got.Leader != 1 {
			t.Fatalf("%+v", got)
		}
		if a := beat(now, before); a.CaughtUp {
			t.Error("the lease of a leader is renewed that does not know of its successor, because who asked for that has left")
		}
		for range 2 { // a broker asks until it hears
			_, err = s.c.RegisterBroker(short(), r)
		}
		if got := part(); err != nil || slices.Contains(got.ISR, 3) || slices.Contains(got.ELR, 3) || got.Leader != 1 {
			t.Errorf("it has nothing, and the partition is %+v: %v", got, err)
		}
	})
}

// Behind a batch that fails nothing more is proposed: it would have been planned on what is not there.
func TestThePlanEndsWithTheFirstFailure(t *testing.T) {
	s := shareWorld(t, 1)
	released := make(chan struct{})
	close(released)
	l := &tardyLog{shared: s, release: released, fail: 2}
	s.proposals.Store(0)
	s.c.o.Proposer = l
	var records []metadata.Record
	for range 4 {
		value := strings.Repeat("x", 200<<10)
		records = append(records, metadata.ConfigChanged{Resource: metadata.Resource{Kind: metadata.ResourceBroker}, Settings: []metadata.Setting{{Key: "k", Value: &value}}})
	}
	var errs []error
	index, err := s.c.plan(t.Context(), func(*planner) []metadata.Record { return records }, func(_ int, _ metadata.Result, err error) { errs = append(errs, err) })
	if err != nil || index != s.index || s.proposals.Load() != 2 {
		t.Errorf("index %d of %d, %d proposals: %v", index, s.index, s.proposals.Load(), err)
	}
	if len(errs) != 4 || errs[0] != nil || !errors.Is(errs[1], ErrNotCommitted) || !errors.Is(errs[3], ErrNotCommitted) {
		t.Errorf("answers %v", errs)
	}
}

// A broker whose session ends while others are being decided, and that reports then, is not fenced; one whose fencing is under way has its
// lease renewed no more.
func TestNobodyIsFencedWhoseLeaseIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shareWorld(t, 1)
		begun := time.Now()
		now := func() time.Duration { return time.Since(begun) }
		beat := func(id int32) HeartbeatAnswer {
			t.Helper()
			a, err := s.c.Heartbeat(t.Context(), now(), Heartbeat{ID: id, Epoch: s.brokerEpoch(id), Applied: s.Image().Index()})
			s.must(t, err)
			return a
		}
		renewed := func(a HeartbeatAnswer) bool { return a.CaughtUp && !a.Fenced }
		s.must(t, s.c.Tick(t.Context(), now()))
		for id := int32(1); id <= 3; id++ {
			beat(id)
		}
		for range 8 { // broker 3 is late
			time.Sleep(400 * time.Millisecond)
			beat(1)
			beat(2)
		}
		l := &tardyLog{shared: s, release: make(chan struct{})}
		s.c.o.Proposer = l
		go func() {
			_, _ = s.c.ElectLeaders(t.Context(), ElectLeadersRequest{Unclean: true})
			_, _ = s.c.CreateTopics(t.Context(), CreateTopicsRequest{Topics: []CreateTopic{{Name: "more", Partitions: 1, Replicas: 1}}})
		}()
		synctest.Wait() // somebody has the turn
		ticked := make(chan error)
		go func() { ticked <- s.c.Tick(t.Context(), now()) }()
		synctest.Wait() // the session of 3 has ended, and the tick waits for its turn
		if !renewed(beat(3)) {
			t.Fatal("its lease is not renewed")
		}
		close(l.release)
		s.must(t, <-ticked)
		if !s.Image().Alive(3) {
			t.Error("fenced, with a lease of two seconds")
		}

		// Now it is fenced, and reports while that is in flight.
		l.release = make(chan struct{})
		fenced := make(chan error)
		go func() { fenced <- s.c.Fence(t.Context(), 3, s.brokerEpoch(3)) }()
		synctest.Wait()
		if renewed(beat(3)) {
			t.Error("its lease is renewed while it is being fenced")
		}
		close(l.release)
		s.must(t, <-fenced)
		if a := beat(3); !renewed(a) || !s.Image().Alive(3) {
			t.Errorf("it is not back: %+v", a)
		}

		// And when that does not come to anything, it goes on.
		l.proposals.Store(0)
		l.fail = 1
		if err := s.c.Fence(t.Context(), 3, s.brokerEpoch(3)); err == nil {
			t.Error("fenced")
		}
		if !renewed(beat(3)) {
			t.Error("a decision that came to nothing holds up its lease")
		}

		// It is fenced while a majority is asked who leads.
		asked, answered := make(chan struct{}), make(chan struct{})
		s.c.o.Verify = func(context.Context) error {
			close(asked)
			<-answered
			return nil
		}
		told := make(chan HeartbeatAnswer)
		go func() { told <- beat(3) }()
		<-asked
		s.must(t, s.c.Fence(t.Context(), 3, s.brokerEpoch(3)))
		close(answered)
		if a := <-told; renewed(a) {
			t.Errorf("its lease is renewed after it was fenced: %+v", a)
		}
	})
}

// A live broker without replicas is taken out of the cluster when it has heard that its shards are taken away, or its session has ended: until
// then it answers for them by its lease, and nobody else does.
func TestLiveBrokerHearsBeforeItIsRemoved(t *testing.T) {
	for name, c := range map[string]struct{ hears, least, most time.Duration }{
		"it hears":     {hears: time.Second, least: time.Second, most: 1500 * time.Millisecond},
		"it is silent": {hears: time.Hour, least: leaseTime, most: SessionTimeout + 500*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := shareWorld(t, 1)
				s.restart(t, 4, 1)
				begun := time.Now()
				now := func() time.Duration { return time.Since(begun) }
				known := uint64(0)
				pass := func(ids ...int32) {
					t.Helper()
					for _, id := range ids {
						if _, ok := s.Image().Broker(id); !ok {
							continue
						}
						applied := s.Image().Index()
						if id == 4 && known > 0 {
							applied = known
						}
						_, err := s.c.Heartbeat(t.Context(), now(), Heartbeat{ID: id, Epoch: s.brokerEpoch(id), Applied: applied})
						s.must(t, err)
					}
					s.must(t, s.c.Tick(t.Context(), now()))
					time.Sleep(100 * time.Millisecond)
				}
				for range 10 {
					pass(1, 2, 3, 4)
				}
				var had []int32
				for i := range int32(metadata.Shards) {
					if s.Image().Shard(i).Owner == 4 {
						had = append(had, i)
					}
				}
				if len(had) == 0 {
					t.Fatal("it has no shards")
				}
				known = s.Image().Index()
				from, removed := now(), make(chan time.Duration, 1)
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					defer cancel()
					if err := s.c.UnregisterBroker(ctx, 4); err != nil {
						t.Error(err)
					}
					removed <- now() - from
				}()
				for now()-from < 5*time.Second {
					synctest.Wait()
					_, member := s.Image().Broker(4)
					live := s.Image().Alive(4)
					if heard := now()-from >= c.hears; heard {
						known = 0
					}
					ids := []int32{1, 2, 3}
					if c.hears < time.Hour {
						ids = append(ids, 4)
					}
					for _, i := range had {
						if owner := s.Image().Shard(i).Owner; live && owner != metadata.NoLeader {
							t.Fatalf("after %v shard %d is broker %d's, while 4 answers for it", now()-from, i, owner)
						}
					}
					if !member && now()-from < c.least {
						t.Fatalf("removed after %v", now()-from)
					}
					pass(ids...)
				}
				if took := <-removed; took > c.most {
					t.Errorf("removed after %v", took)
				}
				for _, i := range had {
					if owner := s.Image().Shard(i).Owner; owner == metadata.NoLeader || owner == 4 {
						t.Errorf("shard %d is broker %d's in the end", i, owner)
					}
				}
			})
		})
	}
}

package controller

import (
	"testing"
	"time"

	"github.com/keeplog/keeplog/metadata"
)

// fencedAfterPause says how many of three brokers that report twice a second a controller fences that was stopped for a while
// and reads their reports after its first tick.
func fencedAfterPause(t *testing.T, pause time.Duration) int {
	t.Helper()
	w, _ := three(t)
	beat := func(now time.Duration) {
		for id := int32(1); id <= 3; id++ {
			_, err := w.c.Heartbeat(t.Context(), now, Heartbeat{ID: id, Epoch: w.brokerEpoch(id), Applied: w.index})
			w.must(t, err)
		}
	}
	now := time.Duration(0)
	for ; now < 5*time.Second; now += 100 * time.Millisecond {
		if now%(500*time.Millisecond) == 0 {
			beat(now)
		}
		w.must(t, w.c.Tick(t.Context(), now))
	}
	now += pause
	w.must(t, w.c.Tick(t.Context(), now))
	fenced := 0
	for _, b := range w.img.Brokers() {
		if b.Fenced {
			fenced++
		}
	}
	beat(now + 10*time.Millisecond)
	return fenced
}

func TestPausedControllerFencesNobody(t *testing.T) {
	for _, pause := range []time.Duration{0, 400 * time.Millisecond, 2 * time.Second, 10 * time.Second, time.Hour} {
		if n := fencedAfterPause(t, pause); n > 0 {
			t.Errorf("stopped for %v: %d fenced", pause, n)
		}
	}
}

// An image that is older than the last one seen, as another goroutine may hold it, takes nobody's session away.
func TestObservationsOutOfOrder(t *testing.T) {
	w, _ := three(t)
	old := w.img
	w.must(t, w.c.Fence(t.Context(), 3, w.brokerEpoch(3)))
	w.restart(t, 3, 9)
	var l liveness
	l.observe(1, w.img, 0, true)
	if l.report(&Heartbeat{ID: 3, Epoch: w.brokerEpoch(3), Applied: w.index}, 0) == nil {
		t.Fatal("not heard")
	}
	l.observe(1, old, 100*time.Millisecond, false)
	p := l.pulses[3]
	if p.epoch != w.brokerEpoch(3) || !p.heard || p.applied != w.index {
		t.Errorf("%+v", p)
	}
	if l.report(&Heartbeat{ID: 3, Epoch: 3}, 0) != nil {
		t.Error("a report of the last incarnation was taken")
	}
	l.observe(1, metadata.New(), 200*time.Millisecond, false)
	if len(l.pulses) != 3 {
		t.Errorf("%d brokers", len(l.pulses))
	}
}

// A leader that hands over may have renewed a lease a moment before: its successor waits for the end of that, and no longer after an election.
func TestNobodyIsFencedBeforeItsLeaseEnds(t *testing.T) {
	w, _ := three(t)
	for _, c := range []struct{ heard, ends time.Duration }{
		{0, 2 * time.Second}, {700 * time.Millisecond, 1300 * time.Millisecond}, {time.Second, time.Second}, {1 << 62, time.Second},
	} {
		l := liveness{heardFormer: func() time.Duration { return c.heard }}
		l.observe(7, w.img, time.Minute, true)
		if got := l.expired(time.Minute + c.ends); len(got) > 0 {
			t.Errorf("the former leader was heard of %v ago: %v are fenced after %v", c.heard, got, c.ends)
		}
		if got := l.expired(time.Minute + c.ends + 1); len(got) != 3 {
			t.Errorf("the former leader was heard of %v ago: %v are fenced behind %v", c.heard, got, c.ends)
		}
	}
}

// BenchmarkFence is the plan for the death of a broker that leads a third of 3,000 replicas, and of the look at all partitions
// that follows.
func BenchmarkFence(b *testing.B) {
	w := newWorld()
	for id := int32(1); id <= 3; id++ {
		epoch, _ := w.c.RegisterBroker(b.Context(), Registration{ID: id, Incarnation: [16]byte{byte(id)}, PreviousEpoch: -1, Features: SupportedFeatures()})
		_ = w.c.Unfence(b.Context(), id, epoch)
	}
	_, err := w.c.CreateTopics(b.Context(), CreateTopicsRequest{Topics: []CreateTopic{{Name: "t", Partitions: 1000, Replicas: 3}}})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("fence", func(b *testing.B) {
		for b.Loop() {
			p := &planner{img: w.img, static: w.c.o.Static}
			if records := p.planExpired([]int32{1}); len(records) != 1001 {
				b.Fatal(len(records))
			}
		}
	})
	b.Run("reconcile", func(b *testing.B) {
		for b.Loop() {
			p := &planner{img: w.img, static: w.c.o.Static}
			if records := p.planReconcile(false, nil); len(records) != 0 {
				b.Fatal(len(records))
			}
		}
	})
}

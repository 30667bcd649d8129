package isr

import (
	"testing"
	"time"

	"github.com/keeplog/keeplog/record"
)

type counter struct {
	n    int
	stop *Watch
}

func (c *counter) Progress() {
	c.n++
	if c.stop != nil {
		c.stop.Stop()
	}
}

func TestWatchersAreToldUntilTheyStop(t *testing.T) {
	p := &Partition{}
	var a, b, c Watch
	ca, cb, cc := &counter{}, &counter{stop: &b}, &counter{}
	p.Watch(&a, ca)
	p.Watch(&b, cb) // stops from within Progress
	p.Watch(&c, cc)
	p.watchers.notify()
	p.watchers.notify()
	a.Stop()
	a.Stop()
	p.watchers.notify()
	if ca.n != 2 || cb.n != 1 || cc.n != 3 {
		t.Errorf("told %d, %d, %d times, want 2, 1, 3", ca.n, cb.n, cc.n)
	}
	c.Stop()
	if p.watchers.head != nil || p.watchers.count != 0 {
		t.Errorf("the list still holds %d watchers", p.watchers.count)
	}
	p.Watch(&a, ca) // a stopped Watch can be used again
	p.watchers.notify()
	if ca.n != 3 {
		t.Errorf("a renewed watch was told %d times, want 3", ca.n)
	}
}

func TestWaitQueue(t *testing.T) {
	start := time.Unix(1000, 0)
	var q waitQueue
	for i := range 200 {
		// Every third deadline is early.
		q.push(waiter{end: 10 * record.Offset(i), deadline: start.Add(time.Duration(i%3) * time.Second)})
	}
	if got := q.popReached(10*49, nil); len(got) != 50 || got[49].end != 490 {
		t.Fatalf("%d waiters reached at 490", len(got))
	}
	expired := q.popExpired(start, nil)
	if len(expired) != 50 {
		t.Errorf("%d waiters expired, want 50", len(expired))
	}
	rest := q.popAll(nil)
	if len(rest) != 100 || !q.empty() {
		t.Fatalf("%d waiters left, want 100", len(rest))
	}
	for i := 1; i < len(rest); i++ {
		if rest[i].end <= rest[i-1].end {
			t.Fatalf("order lost at %d: %d after %d", i, rest[i].end, rest[i-1].end)
		}
	}
}

func TestWaitQueueGivesMemoryBack(t *testing.T) {
	var q waitQueue
	for i := range 100_000 {
		q.push(waiter{end: record.Offset(i)})
		q.popReached(record.Offset(i-10), nil)
	}
	if cap(q.items) > 4096 {
		t.Errorf("a queue of 10 waiters holds room for %d", cap(q.items))
	}
}

package group

import (
	"container/heap"
	"sync"
	"time"
)

// timers is one heap of alarms and one timer for the first of them. Without alarms nothing runs.
type timers struct {
	clock Clock

	mu     sync.Mutex
	heap   alarms
	armed  time.Time // when the timer fires; zero: it does not run
	stop   func()
	closed bool
}

// alarm calls ring at its time, on the timer's goroutine, with no lock held. The rest belongs to the timers.
type alarm struct {
	ring  func()
	at    time.Time
	place int // in the heap, from 1 on; 0: not set
}

type alarms []*alarm

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a alarms) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].place, a[j].place = i+1, j+1
}

func (a *alarms) Push(x any) {
	x.(*alarm).place = len(*a) + 1
	*a = append(*a, x.(*alarm))
}

func (a *alarms) Pop() any {
	last := (*a)[len(*a)-1]
	(*a)[len(*a)-1] = nil
	*a = (*a)[:len(*a)-1]
	last.place = 0
	return last
}

// set moves an alarm.
func (t *timers) set(a *alarm, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.put(a, at)
}

// sooner moves an alarm to an earlier time, or sets it; one that is earlier stays, and rings for nothing.
func (t *timers) sooner(a *alarm, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.place == 0 || at.Before(a.at) {
		t.put(a, at)
	}
}

func (t *timers) put(a *alarm, at time.Time) {
	if t.closed {
		return
	}
	a.at = at
	if a.place == 0 {
		heap.Push(&t.heap, a)
	} else {
		heap.Fix(&t.heap, a.place-1)
	}
	t.arm()
}

func (t *timers) cancel(a *alarm) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.place > 0 {
		heap.Remove(&t.heap, a.place-1)
		t.arm()
	}
}

// arm sees that the timer fires for the first alarm. One that fires too early finds nothing to do.
func (t *timers) arm() {
	switch {
	case len(t.heap) == 0:
		if t.stop != nil {
			t.stop()
			t.stop, t.armed = nil, time.Time{}
		}
	case t.stop == nil || t.heap[0].at.Before(t.armed):
		if t.stop != nil {
			t.stop()
		}
		t.armed = t.heap[0].at
		t.stop = t.clock.After(max(t.armed.Sub(t.clock.Now()), 0), t.fire)
	}
}

// fire rings what is due. A timer that fires late or for nothing sets itself anew.
func (t *timers) fire() {
	var due []*alarm
	t.mu.Lock()
	t.stop, t.armed = nil, time.Time{}
	now := t.clock.Now()
	for !t.closed && len(t.heap) > 0 && !now.Before(t.heap[0].at) {
		due = append(due, heap.Pop(&t.heap).(*alarm))
	}
	t.arm()
	t.mu.Unlock()
	for _, a := range due {
		a.ring()
	}
}

func (t *timers) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for len(t.heap) > 0 {
		heap.Pop(&t.heap)
	}
	t.arm()
}

package api

import (
	"sync"
	"time"

	"github.com/keeplog/keeplog/record"
)

// fetchWait is a parked fetch. It fires once: when enough bytes are there, when a partition asks for it, at its deadline, or when the
// purgatory drains.
type fetchWait struct {
	mu      sync.Mutex
	parking bool  // park is not done yet: who fires leaves the rest to it; guarded by mu
	fired   bool  // guarded by mu
	bytes   int64 // sum over the partitions; guarded by mu

	deadline time.Time // monotonic
	index    int       // place in the purgatory's heap, -1 outside; guarded by purgatory.mu
}

// purgatory holds the parked fetches by deadline, with one timer for all.
type purgatory struct {
	mu       sync.Mutex
	heap     []*fetchCall // by deadline; guarded by mu
	draining bool         // guarded by mu
	closed   bool         // guarded by mu
	wake     chan struct{}
	done     chan struct{}
}

func newPurgatory() *purgatory {
	p := &purgatory{wake: make(chan struct{}, 1), done: make(chan struct{})}
	go p.run()
	return p
}

// watched is what a parked partition looks at when something moves. A notification may still be under way when the fetch is
// being answered, so nothing here is written after park.
type watched struct {
	part     Partition
	offset   record.Offset
	epoch    record.Epoch
	maxBytes int
}

// park keeps a fetch until it fires.
func (p *purgatory) park(f *fetchCall, wait time.Duration) {
	f.wait.deadline, f.wait.parking = time.Now().Add(wait), true
	defer p.parked(f)
	p.mu.Lock()
	f.wait.index = -1
	now := p.draining
	if !now {
		p.push(f)
	}
	p.mu.Unlock()
	if now {
		p.fire(f)
		return
	}
	f.call.parked.Store(f)
	for i := range f.parts {
		part := &f.parts[i]
		if part.part == nil {
			continue
		}
		part.watched = watched{part.part, part.offset, part.epoch, part.maxBytes}
		part.part.Watch(&part.watch, part)
		part.Progress() // what came between the read and the watch
	}
}

// parked lets the fetch be answered, at once where it has fired meanwhile: not before all of it is watched, because the answer
// ends the watching and reads the partitions anew.
func (p *purgatory) parked(f *fetchCall) {
	f.wait.mu.Lock()
	f.wait.parking = false
	fired := f.wait.fired
	f.wait.mu.Unlock()
	if fired {
		p.release(f)
	}
}

// Progress is told that something moved in the partition. It implements isr.Watcher.
func (p *fetchPart) Progress() {
	n, now := p.watched.part.Pending(p.watched.offset, p.watched.epoch)
	n = min(n, int64(p.watched.maxBytes))
	f := p.fetch
	w := &f.wait
	w.mu.Lock()
	w.bytes += n - p.pending
	p.pending = n
	fire := !w.fired && (now || w.bytes >= int64(f.minBytes))
	w.mu.Unlock()
	if fire {
		f.api.purgatory.fire(f)
	}
}

// fire wakes a fetch, once. Its connection's goroutine does the rest.
func (p *purgatory) fire(f *fetchCall) {
	f.wait.mu.Lock()
	first := !f.wait.fired && !f.wait.parking
	f.wait.fired = true
	f.wait.mu.Unlock()
	if first {
		p.release(f)
	}
}

// release takes a fetch that has fired out and hands it to its connection.
func (p *purgatory) release(f *fetchCall) {
	p.mu.Lock()
	if f.wait.index >= 0 {
		p.removeAt(f.wait.index)
	}
	p.mu.Unlock()
	f.call.complete(Answer{Later: f})
}

// run fires what is due.
func (p *purgatory) run() {
	defer close(p.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, next, closed := p.due(time.Now())
		for _, f := range due {
			p.fire(f)
		}
		if closed {
			return
		}
		timer.Reset(next)
		select {
		case <-timer.C:
		case <-p.wake:
		}
	}
}

// due takes out what is past its deadline and says how long the next one has.
func (p *purgatory) due(now time.Time) (due []*fetchCall, next time.Duration, closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.heap) > 0 && (p.draining || !p.heap[0].wait.deadline.After(now)) {
		due = append(due, p.heap[0])
		p.removeAt(0)
	}
	next = time.Hour
	if len(p.heap) > 0 {
		next = p.heap[0].wait.deadline.Sub(now)
	}
	return due, next, p.closed
}

func (p *purgatory) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// drain fires everything, now and in future.
func (p *purgatory) drain() {
	p.mu.Lock()
	p.draining = true
	p.mu.Unlock()
	p.nudge()
}

func (p *purgatory) close() {
	p.mu.Lock()
	p.draining, p.closed = true, true
	p.mu.Unlock()
	p.nudge()
	<-p.done
}

// len is the number of parked fetches.
func (p *purgatory) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.heap)
}

// The heap: parents before children; mu is held.

func (p *purgatory) push(f *fetchCall) {
	p.heap = append(p.heap, f)
	f.wait.index = len(p.heap) - 1
	p.up(f.wait.index)
	if f.wait.index == 0 {
		p.nudge()
	}
}

func (p *purgatory) removeAt(i int) {
	last := len(p.heap) - 1
	p.heap[i].wait.index = -1
	if i != last {
		p.heap[i] = p.heap[last]
		p.heap[i].wait.index = i
	}
	p.heap[last] = nil
	p.heap = p.heap[:last]
	if i < last {
		p.up(i)
		p.down(i)
	}
}

func (p *purgatory) swap(i, j int) {
	p.heap[i], p.heap[j] = p.heap[j], p.heap[i]
	p.heap[i].wait.index, p.heap[j].wait.index = i, j
}

func (p *purgatory) before(i, j int) bool {
	return p.heap[i].wait.deadline.Before(p.heap[j].wait.deadline)
}

func (p *purgatory) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !p.before(i, parent) {
			return
		}
		p.swap(i, parent)
		i = parent
	}
}

func (p *purgatory) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(p.heap) {
			return
		}
		if c+1 < len(p.heap) && p.before(c+1, c) {
			c++
		}
		if !p.before(c, i) {
			return
		}
		p.swap(i, c)
		i = c
	}
}

package log

import "sync"

// Committer makes logs durable. Dirty says that l has something to flush; it does not block on I/O and holds no lock while
// it calls back. The implementation calls l.Flush soon; calls for one log follow each other.
type Committer interface {
	Dirty(l *Log)
	// Close flushes what is left and stops; Dirty after Close does nothing.
	Close() error
}

// coordinator is the commit coordinator of a directory. Logs queue up, at most limit are flushed at a time, and what is
// appended to a log while it is being flushed waits for the next flush of that log: the running flush is the batching
// window, there is no timer. Workers exist only while there is work.
type coordinator struct {
	mu      sync.Mutex
	idle    sync.Cond
	queue   []*Log
	head    int
	workers int
	limit   int
	closed  bool
}

// commitState is a log's place in the coordinator; guarded by coordinator.mu.
type commitState struct {
	queued, flushing bool
}

func newCoordinator(limit int) *coordinator {
	c := &coordinator{limit: max(limit, 1)}
	c.idle.L = &c.mu
	return c
}

// Dirty queues a log.
func (c *coordinator) Dirty(l *Log) {
	c.mu.Lock()
	if c.closed || l.commit.queued {
		c.mu.Unlock()
		return
	}
	l.commit.queued = true
	if l.commit.flushing { // its worker queues it again
		c.mu.Unlock()
		return
	}
	c.push(l)
	c.mu.Unlock()
}

// push puts a log in the queue and sees to a worker. The caller holds mu.
func (c *coordinator) push(l *Log) {
	c.queue = append(c.queue, l)
	if c.workers < c.limit {
		c.workers++
		go c.work()
	}
}

func (c *coordinator) pop() *Log {
	if c.head == len(c.queue) {
		c.queue, c.head = c.queue[:0], 0
		return nil
	}
	l := c.queue[c.head]
	c.queue[c.head] = nil
	if c.head++; c.head >= 1024 && c.head*2 > len(c.queue) {
		c.queue = c.queue[:copy(c.queue, c.queue[c.head:])]
		c.head = 0
	}
	return l
}

func (c *coordinator) work() {
	c.mu.Lock()
	for {
		l := c.pop()
		if l == nil {
			break
		}
		l.commit.queued, l.commit.flushing = false, true
		c.mu.Unlock()
		told, err := l.flush()
		if err != nil {
			l.dir.log.Debug("flush", "log", l.path, "err", err)
		}
		c.mu.Lock()
		l.commit.flushing = false
		if l.commit.queued { // the next flush runs while those of this one are told
			c.push(l)
		}
		if told {
			continue
		}
		c.mu.Unlock()
		l.notify()
		c.mu.Lock()
	}
	c.workers--
	if c.workers == 0 {
		c.idle.Broadcast()
	}
	c.mu.Unlock()
}

// Close waits for the flushes that were asked for.
func (c *coordinator) Close() error {
	c.mu.Lock()
	c.closed = true
	for c.workers > 0 {
		c.idle.Wait()
	}
	c.mu.Unlock()
	return nil
}

// Stepped is a Committer that flushes when it is told to, in the caller's goroutine: for tests and simulation.
type Stepped struct {
	mu    sync.Mutex
	dirty []*Log
}

// Dirty queues a log.
func (s *Stepped) Dirty(l *Log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.dirty {
		if d == l {
			return
		}
	}
	s.dirty = append(s.dirty, l)
}

// Step flushes the log that has waited longest; ok is false where none waits.
func (s *Stepped) Step() (l *Log, ok bool, err error) {
	s.mu.Lock()
	if len(s.dirty) == 0 {
		s.mu.Unlock()
		return nil, false, nil
	}
	l = s.dirty[0]
	s.dirty = s.dirty[1:]
	s.mu.Unlock()
	return l, true, l.Flush()
}

// Run flushes all that wait, in order, and returns the first error.
func (s *Stepped) Run() error {
	var first error
	for {
		_, ok, err := s.Step()
		if err != nil && first == nil {
			first = err
		}
		if !ok {
			return first
		}
	}
}

// Close flushes what is left.
func (s *Stepped) Close() error { return s.Run() }

package server

import (
	"errors"
	"net"
	"sync"

	"github.com/keeplog/keeplog/server/api"
)

// slot is one request from its frame to its answer.
type slot struct {
	call    api.Call
	conn    *conn
	buf     *Buffer
	charge  int64 // what it took from the server's budget
	overlap bool

	ready  bool       // the answer is there; guarded by conn.mu
	answer api.Answer // set before ready
}

// queue holds the outstanding requests of a connection in order. Everything is guarded by conn.mu.
type queue struct {
	cond     sync.Cond // signalled when the queue gets shorter, when a call without overlap is complete, and at failure
	slots    []*slot
	head     int // slots[head:] are outstanding
	bytes    int64
	alone    *slot // the call without overlap that the reader waits for
	handling *slot // the call that the reader is starting right now
	writing  bool  // the write token is taken
	writer   bool  // the writer goroutine runs
	wake     chan struct{}
	failed   error
	spare    []*slot
}

func (q *queue) len() int { return len(q.slots) - q.head }

func (q *queue) push(s *slot) {
	if q.head > 0 && q.head == len(q.slots) {
		clear(q.slots)
		q.slots, q.head = q.slots[:0], 0
	} else if q.head >= 64 {
		n := copy(q.slots, q.slots[q.head:])
		clear(q.slots[n:])
		q.slots, q.head = q.slots[:n], 0
	}
	q.slots = append(q.slots, s)
	q.bytes += s.charge
}

func (c *conn) newSlot() *slot {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.q.spare); n > 0 {
		s := c.q.spare[n-1]
		c.q.spare = c.q.spare[:n-1]
		return s
	}
	s := &slot{conn: c}
	s.call.To, s.call.Conn, s.call.Ctx = s, &c.info, c.ctx
	return s
}

func (c *conn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.q.failed
}

func (c *conn) empty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.q.len() == 0 && !c.q.writing
}

// run starts a request when its turn has come. A call without overlap is answered when run returns.
func (c *conn) run(s *slot) error {
	c.mu.Lock()
	q := &c.q
	for q.failed == nil && !c.mayStart(s) {
		q.cond.Wait()
	}
	if q.failed != nil {
		c.mu.Unlock()
		c.recycle(s)
		return net.ErrClosed
	}
	q.push(s)
	q.handling = s
	if !s.overlap {
		q.alone = s
	}
	c.mu.Unlock()

	c.srv.o.Handler.Serve(&s.call)

	c.mu.Lock()
	q.handling = nil
	if !s.overlap && !s.ready {
		c.waitSince.Store(c.now())
		for !s.ready {
			q.cond.Wait()
		}
		c.waitSince.Store(0)
	}
	q.alone = nil
	mine := !q.writing && q.len() > 0 && q.slots[q.head].ready
	if mine {
		q.writing = true
	}
	c.mu.Unlock()
	if mine {
		c.drain()
	}
	return nil
}

// mayStart says whether a request's turn has come; mu is held.
func (c *conn) mayStart(s *slot) bool {
	q := &c.q
	if q.len() == 0 {
		return !q.writing || s.overlap
	}
	if !s.overlap {
		return false
	}
	return q.len() < c.srv.o.MaxPipelined && q.bytes+s.charge <= c.srv.o.MaxPipelinedBytes
}

// Complete takes the answer of a call. It implements api.Completer.
func (s *slot) Complete(a api.Answer) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.ready {
		panic("server: call completed twice")
	}
	s.answer, s.ready = a, true
	q := &c.q
	switch {
	case q.handling == s: // the reader looks when Serve returns
	case q.alone == s:
		q.cond.Broadcast()
	case !q.writing && q.len() > 0 && q.slots[q.head] == s:
		c.wakeWriter()
	}
}

// wakeWriter hands the write token to the writer goroutine, and starts it at the first need; mu is held.
func (c *conn) wakeWriter() {
	q := &c.q
	q.writing = true
	if !q.writer {
		q.writer = true
		q.wake = make(chan struct{}, 1)
		c.srv.wg.Go(c.write)
	}
	q.wake <- struct{}{} // never blocks: one token, and only its holder's successor is told
}

// write is the writer goroutine: it has the token when it is woken.
func (c *conn) write() {
	for {
		select {
		case <-c.q.wake:
			c.drain()
		case <-c.gone:
			return
		}
	}
}

// drain writes every answer that is ready at the front of the queue, in batches, then gives the write token back.
func (c *conn) drain() {
	var batch []*slot
	for {
		c.mu.Lock()
		q := &c.q
		for _, s := range batch {
			c.keep(s)
		}
		batch = c.out.batch[:0]
		for q.len() > 0 && q.slots[q.head].ready && len(batch) < cap(c.out.batch) {
			s := q.slots[q.head]
			q.slots[q.head] = nil
			q.head++
			q.bytes -= s.charge
			batch = append(batch, s)
		}
		if len(batch) == 0 {
			q.writing = false
			q.cond.Broadcast()
			c.mu.Unlock()
			return
		}
		failed := q.failed
		q.cond.Broadcast()
		c.mu.Unlock()
		if failed == nil {
			c.build(batch)
			if err := c.send(batch); err != nil {
				c.ended(err)
			}
		}
		for _, s := range batch {
			c.free(s)
		}
	}
}

// build makes the answers that were put off.
func (c *conn) build(batch []*slot) {
	for _, s := range batch {
		if l := s.answer.Later; l != nil {
			s.answer = l.Build()
		}
	}
}

// ended fails the connection because of its answers, and says so in the log.
func (c *conn) ended(err error) {
	if !errors.Is(err, net.ErrClosed) {
		c.srv.log.Debug("connection closed", "client", c.info.Remote, "listener", c.info.Listener, "cause", err)
	}
	c.fail(err)
}

// free gives back what a request held.
func (c *conn) free(s *slot) {
	s.answer.Release()
	s.answer = api.Answer{}
	s.buf.Release()
	s.buf = nil
	c.srv.discharge(s.charge)
	s.call.Frame = nil
	if cap(s.call.Scratch) > keepScratch {
		s.call.Scratch = nil
	}
}

// keep puts a slot, freed, aside for the next request; mu is held.
func (c *conn) keep(s *slot) {
	s.ready, s.charge = false, 0
	if len(c.q.spare) < keepSlots {
		c.q.spare = append(c.q.spare, s)
	}
}

// recycle frees a request that was never started.
func (c *conn) recycle(s *slot) {
	c.free(s)
	c.mu.Lock()
	c.keep(s)
	c.mu.Unlock()
}

// fail ends the connection; the first cause counts.
func (c *conn) fail(err error) {
	if err == nil {
		err = errors.New("ended")
	}
	c.mu.Lock()
	if c.q.failed == nil {
		c.q.failed = err
		c.cancel()
		c.net.Close()
	}
	c.q.cond.Broadcast()
	c.mu.Unlock()
}

// settle waits until nothing is outstanding and nobody writes.
func (c *conn) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.q.len() > 0 || c.q.writing {
		c.q.cond.Wait()
	}
}

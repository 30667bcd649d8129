package server

import (
	"errors"
	"net"
	"time"
)

// listener accepts from one address. Its goroutine ends when the listener is closed.
type listener struct {
	srv  *Server
	name string
	net  net.Listener
}

func (l *listener) accept() {
	s := l.srv
	var pause time.Duration
	for {
		if s.slots != nil {
			if s.slots.Acquire(s.ctx, 1) != nil {
				return
			}
		}
		nc, err := l.net.Accept()
		if err == nil {
			pause = 0
			l.admit(nc)
			continue
		}
		s.freeSlot()
		if errors.Is(err, net.ErrClosed) || s.draining.Load() {
			return
		}
		// Out of file descriptors, or a client that left while it waited: wait a moment, then go on.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.log.Warn("accept failed", "listener", l.name, "cause", err, "pause", pause)
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-s.ctx.Done():
			t.Stop()
			return
		}
	}
}

func (s *Server) freeSlot() {
	if s.slots != nil {
		s.slots.Release(1)
	}
}

// admit starts a connection, or closes it when its address has too many.
func (l *listener) admit(nc net.Conn) {
	s := l.srv
	c := newConn(l, nc)
	s.mu.Lock()
	limit, own := s.o.PerIP[c.ip]
	if !own {
		limit = s.o.MaxPerIP
	}
	full := (own || limit > 0) && s.perIP[c.ip] >= limit
	if s.closed || full {
		s.mu.Unlock()
		if full {
			s.log.Debug("connection refused", "client", c.info.Remote, "listener", l.name, "cause", "too many of this address", "limit", limit)
		}
		nc.Close()
		s.freeSlot()
		return
	}
	s.conns[c] = struct{}{}
	s.perIP[c.ip]++
	s.wg.Go(c.serve)
	s.mu.Unlock()
	s.accepted.Add(1)
}

// forget takes a connection out of the books.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	if s.perIP[c.ip]--; s.perIP[c.ip] <= 0 {
		delete(s.perIP, c.ip)
	}
	s.mu.Unlock()
	s.freeSlot()
	close(c.gone)
}

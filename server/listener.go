package server

import (
	"errors"
	"net"
	"time"
)

// listener accepts from one address. Its goroutine ends when the listener is closed.
type listener struct {
	srv      *Server
	name     string
	internal bool
	net      net.Listener
}

func (l *listener) accept() {
	s := l.srv
	var pause time.Duration
	for {
		nc, err := l.net.Accept()
		if err == nil {
			pause = 0
			l.admit(nc)
			continue
		}
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

// admit starts a connection when there is room, or closes it when its address has too many.
func (l *listener) admit(nc net.Conn) {
	s := l.srv
	c := newConn(l, nc)
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed && s.o.MaxConns != nil && len(s.conns) >= max(s.o.MaxConns(), 1) {
		s.room.Wait()
	}
	full := s.o.MaxPerIP != nil && s.perIP[c.ip] >= s.o.MaxPerIP(c.ip)
	if s.closed || full {
		if full {
			s.log.Debug("connection refused", "client", c.info.Remote, "listener", l.name, "cause", "too many of this address")
		}
		nc.Close()
		c.cancel()
		return
	}
	s.conns[c] = struct{}{}
	s.perIP[c.ip]++
	s.accepted.Add(1)
	s.wg.Go(c.serve)
}

// forget takes a connection out of the books.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	if s.perIP[c.ip]--; s.perIP[c.ip] <= 0 {
		delete(s.perIP, c.ip)
	}
	s.room.Broadcast()
	s.mu.Unlock()
	close(c.gone)
}

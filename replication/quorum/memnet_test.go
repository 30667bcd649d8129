package quorum

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// memnet is a network in memory. Hosts are node names; a link from one host to another can be cut, one way too: what is sent
// then waits, as with a real network that drops packets, until the link is whole again or patience ends.
type memnet struct {
	mu        sync.Mutex
	listeners map[string]*memListener
	cuts      map[[2]string]bool
	changed   chan struct{}
	open      map[*memConn]bool
}

func newMemnet() *memnet {
	return &memnet{listeners: map[string]*memListener{}, cuts: map[[2]string]bool{}, changed: make(chan struct{}), open: map[*memConn]bool{}}
}

// cut cuts, or heals, the way from one host to another.
func (n *memnet) cut(from, to string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[[2]string{from, to}] = cut
	close(n.changed)
	n.changed = make(chan struct{})
}

// way says whether the way is cut, and what to wait for.
func (n *memnet) way(from, to string) (cut bool, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cuts[[2]string{from, to}], n.changed
}

type memListener struct {
	n     *memnet
	host  string
	addr  string
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

type memAddr string

func (memAddr) Network() string  { return "mem" }
func (a memAddr) String() string { return string(a) }

func (n *memnet) listen(host, addr string) net.Listener {
	l := &memListener{n: n, host: host, addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[addr] != nil {
		panic("address in use: " + addr)
	}
	n.listeners[addr] = l
	return l
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Close() error {
	l.once.Do(func() {
		l.n.mu.Lock()
		delete(l.n.listeners, l.addr)
		l.n.mu.Unlock()
		close(l.done)
	})
	return nil
}

func (l *memListener) Addr() net.Addr { return memAddr(l.addr) }

// dialer dials in the name of a host.
func (n *memnet) dialer(from string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		for {
			n.mu.Lock()
			l := n.listeners[addr]
			changed := n.changed
			cut := l != nil && (n.cuts[[2]string{from, l.host}] || n.cuts[[2]string{l.host, from}])
			n.mu.Unlock()
			switch {
			case l == nil:
				return nil, &net.OpError{Op: "dial", Net: "mem", Addr: memAddr(addr), Err: syscall.ECONNREFUSED}
			case !cut:
				return n.connect(ctx, from, l)
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}

func (n *memnet) connect(ctx context.Context, from string, l *memListener) (net.Conn, error) {
	a, b := net.Pipe()
	near, far := newMemConn(n, a, from, l.host), newMemConn(n, b, l.host, from)
	select {
	case l.conns <- far:
		return near, nil
	case <-l.done:
		_, _ = near.Close(), far.Close()
		return nil, fmt.Errorf("dial %s: %w", l.addr, syscall.ECONNREFUSED)
	case <-ctx.Done():
		_, _ = near.Close(), far.Close()
		return nil, ctx.Err()
	}
}

// memConn is one end of a connection. Its bytes leave it through a queue, as through a socket's buffer.
type memConn struct {
	net.Conn
	n        *memnet
	from, to string

	mu     sync.Mutex
	queue  []byte
	wake   chan struct{}
	limit  time.Time
	room   chan struct{}
	closed chan struct{}
	once   sync.Once
}

func newMemConn(n *memnet, c net.Conn, from, to string) *memConn {
	m := &memConn{Conn: c, n: n, from: from, to: to, wake: make(chan struct{}, 1), room: make(chan struct{}, 1), closed: make(chan struct{})}
	n.mu.Lock()
	n.open[m] = true
	n.mu.Unlock()
	go m.pump()
	return m
}

// maxQueue is a socket's buffer.
const maxQueue = 256 << 10

func (c *memConn) Write(p []byte) (int, error) {
	for {
		c.mu.Lock()
		room, limit := len(c.queue) < maxQueue, c.limit
		if room {
			c.queue = append(c.queue, p...)
		}
		c.mu.Unlock()
		select {
		case <-c.closed:
			return 0, io.ErrClosedPipe
		default:
		}
		if room {
			select {
			case c.wake <- struct{}{}:
			default:
			}
			return len(p), nil
		}
		var late <-chan time.Time
		if !limit.IsZero() {
			late = time.After(time.Until(limit))
		}
		select {
		case <-c.room:
		case <-c.closed:
		case <-late:
			return 0, os.ErrDeadlineExceeded
		}
	}
}

// pump sends what is in the queue while the way is not cut. After Close it sends what is left, if that goes at once.
func (c *memConn) pump() {
	defer c.Conn.Close()
	for {
		c.mu.Lock()
		p := c.queue
		c.queue = nil
		c.mu.Unlock()
		select {
		case c.room <- struct{}{}:
		default:
		}
		if len(p) == 0 {
			select {
			case <-c.wake:
				continue
			default:
			}
			select {
			case <-c.wake:
				continue
			case <-c.closed:
				return
			}
		}
		for {
			cut, changed := c.n.way(c.from, c.to)
			if !cut {
				break
			}
			select {
			case <-changed:
			case <-c.closed:
				return
			}
		}
		if _, err := c.Conn.Write(p); err != nil {
			return
		}
	}
}

func (c *memConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetWriteDeadline(t), c.Conn.SetReadDeadline(t))
}

func (c *memConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = t
	return nil
}

func (c *memConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.n.mu.Lock()
		delete(c.n.open, c)
		c.n.mu.Unlock()
		_ = c.Conn.SetReadDeadline(time.Now())
		_ = c.Conn.SetWriteDeadline(time.Now().Add(time.Second))
	})
	return nil
}

package server

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keeplog/keeplog/server/api"
)

const (
	readBuffer = 4 << 10
	// readLeast is how much of a frame must arrive within Options.ReadTimeout: a slow client is served, a trickle does not hold memory.
	readLeast = 4 << 10
	// prefix is what must be seen of a frame before its size is believed: size, key, version.
	prefix = 8
	// lookAfter is how long a call waits before the sweeper looks whether its client is still there.
	lookAfter = 500 * time.Millisecond
	// keepSlots bounds the slots a connection keeps for reuse, keepScratch the head memory that stays with one.
	keepSlots, keepScratch = 8, 64 << 10
)

var (
	errIdle     = errors.New("idle for too long")
	errSlowRead = errors.New("answer not taken in time")
	errSlowSend = errors.New("frame not sent in time")
	errDrained  = errors.New("server shuts down")
	errCut      = errors.New("the records it was reading are cut away")
)

// conn is one client. The reader goroutine runs serve; fields without a note belong to it.
type conn struct {
	srv  *Server
	net  net.Conn
	raw  syscall.RawConn // for sendfile; nil when the connection is not plain TCP
	in   *bufio.Reader
	ip   string
	info api.Conn
	gone chan struct{} // closed when the connection has left the server

	ctx    context.Context
	cancel context.CancelFunc

	// Monotonic nanoseconds since when something is under way, 0 for nothing; read by the sweeper.
	idleSince, readSince, writeSince atomic.Int64
	unsent                           int // bytes in the kernel's buffer when the sweeper looked last; the sweeper's own
	// waitSince: the reader waits for the answer to a call without overlap, so that it would not see the client leave.
	waitSince atomic.Int64

	out writerState // of whoever holds the write token

	mu sync.Mutex
	q  queue // guarded by mu
}

func newConn(l *listener, nc net.Conn) *conn {
	c := &conn{srv: l.srv, net: nc, gone: make(chan struct{})}
	c.info.Listener, c.info.Internal, c.info.Remote = l.name, l.internal, nc.RemoteAddr().String()
	c.info.Abandon = func() { c.fail(errCut) }
	c.ip = c.info.Remote
	if host, _, err := net.SplitHostPort(c.ip); err == nil {
		c.ip = host
	}
	c.in = bufio.NewReaderSize(nc, readBuffer)
	if t, ok := nc.(*net.TCPConn); ok {
		c.raw, _ = t.SyscallConn()
	}
	c.ctx, c.cancel = context.WithCancel(l.srv.ctx)
	c.q.cond.L = &c.mu
	return c
}

// now is the sweeper's clock, never 0.
func (c *conn) now() int64 { return int64(c.srv.clock()) + 1 }

// serve reads requests until the connection ends, then waits until nothing is outstanding.
func (c *conn) serve() {
	err := c.loop()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, errDrained):
		c.settle() // what was asked is still answered
	case errors.Is(err, net.ErrClosed):
	default:
		c.srv.log.Debug("connection closed", "client", c.info.Remote, "listener", c.info.Listener, "cause", err)
	}
	c.fail(err)
	c.settle()
	c.srv.forget(c)
}

func (c *conn) loop() error {
	for {
		s, err := c.read()
		if err != nil {
			return err
		}
		if err := c.run(s); err != nil {
			return err
		}
	}
}

// read returns the next request with its frame in memory. The buffer is charged to the server's budget.
func (c *conn) read() (*slot, error) {
	c.idleSince.Store(c.now())
	_, err := c.in.Peek(1)
	c.idleSince.Store(0)
	if err != nil {
		return nil, c.readError(err, true)
	}
	c.readSince.Store(c.now())
	defer c.readSince.Store(0)
	size, plan, key, version, err := c.prefix()
	if err != nil {
		return nil, err
	}
	_, charge := sizeClass(size)
	c.readSince.Store(0) // waiting for memory is not the client's fault
	if err := c.srv.charge(c.ctx, int64(charge)); err != nil {
		return nil, c.readError(err, false)
	}
	c.readSince.Store(c.now())
	buf := c.srv.pool.Get(size)
	frame := buf.Bytes()[:size]
	if err := c.fillFrame(frame); err != nil {
		buf.Release()
		c.srv.discharge(int64(charge))
		return nil, c.readError(err, false)
	}
	s := c.newSlot()
	s.buf, s.charge, s.overlap = buf, int64(charge), plan.Overlap
	s.call.Key, s.call.Version, s.call.Frame = key, version, frame
	return s, nil
}

// prefix looks at the first bytes of a frame and takes its size field off the stream.
func (c *conn) prefix() (size int, plan api.Plan, key, version int16, err error) {
	b, err := c.in.Peek(4)
	if err != nil {
		return 0, plan, 0, 0, c.readError(err, false)
	}
	n := int32(binary.BigEndian.Uint32(b))
	if n < api.MinFrame || int(n) > c.srv.o.MaxFrame {
		return 0, plan, 0, 0, fmt.Errorf("frame of %d bytes", n)
	}
	if b, err = c.in.Peek(prefix); err != nil {
		return 0, plan, 0, 0, c.readError(err, false)
	}
	key, version = int16(binary.BigEndian.Uint16(b[4:])), int16(binary.BigEndian.Uint16(b[6:]))
	plan, ok := c.srv.o.Handler.Plan(&c.info, key, version)
	if !ok {
		return 0, plan, 0, 0, fmt.Errorf("key %d version %d is not served", key, version)
	}
	if !plan.Large && int(n) > c.srv.o.MaxOther {
		return 0, plan, 0, 0, fmt.Errorf("frame of %d bytes for key %d, the limit is %d", n, key, c.srv.o.MaxOther)
	}
	_, err = c.in.Discard(4)
	return int(n), plan, key, version, err
}

// fillFrame reads the frame. Beyond what bufio already holds, the bytes go straight from the socket into the buffer.
func (c *conn) fillFrame(frame []byte) error {
	for progress := 0; len(frame) > 0; {
		n, err := c.in.Read(frame)
		frame = frame[n:]
		if progress += n; progress >= readLeast {
			progress = 0
			c.readSince.Store(c.now())
		}
		if err != nil && len(frame) > 0 {
			return err
		}
	}
	return nil
}

// readError turns the end of a read into its cause.
func (c *conn) readError(err error, between bool) error {
	var timeout net.Error
	switch {
	case c.failure() != nil:
		return net.ErrClosed
	case c.srv.draining.Load() && (errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, context.Canceled)):
		return errDrained
	case between && errors.Is(err, io.EOF):
		return io.EOF
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}

// stopReading makes the reader return after the request it is in.
func (c *conn) stopReading() { c.net.SetReadDeadline(time.Unix(1, 0)) }

// lookForClient asks the socket, without taking anything off it, whether the client of a call that waits has left.
func (c *conn) lookForClient(now time.Duration) {
	since := c.waitSince.Load()
	if since == 0 || now-time.Duration(since) < lookAfter || c.raw == nil || !left(c.raw) {
		return
	}
	c.mu.Lock()
	s := c.q.alone
	c.mu.Unlock()
	if s != nil {
		s.call.ClientGone()
	}
}

// left says that the other side has closed its connection, or only its side of it, or that the connection is broken.
func left(raw syscall.RawConn) (gone bool) {
	err := raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		gone = err == nil && n == 0 || err != nil && err != unix.EAGAIN && err != unix.EINTR
	})
	return gone || err != nil
}

// seeAcknowledged counts it as progress of a write that the client's side has taken some of what lies in the kernel's buffer, which holds
// megabytes: a write call alone goes on only when a third of it is free.
func (c *conn) seeAcknowledged(now time.Duration) {
	since := c.writeSince.Load()
	if since == 0 || c.raw == nil {
		return
	}
	unsent := 0
	err := c.raw.Control(func(fd uintptr) { unsent, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	if err == nil && unsent != c.unsent {
		c.unsent = unsent
		c.writeSince.CompareAndSwap(since, int64(now))
	}
}

// stuck says why the sweeper should end the connection, nil when it should not.
func (c *conn) stuck(now time.Duration) error {
	o := &c.srv.o
	over := func(since *atomic.Int64, limit time.Duration) bool {
		t := since.Load()
		return t != 0 && limit > 0 && now-time.Duration(t) > limit
	}
	c.seeAcknowledged(now)
	switch {
	case over(&c.writeSince, o.WriteTimeout):
		return errSlowRead
	case over(&c.readSince, o.ReadTimeout):
		return errSlowSend
	case over(&c.idleSince, o.Idle) && c.empty():
		return errIdle
	}
	return nil
}

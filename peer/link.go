package peer

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/protocol"
)

const keyApiVersions = protocol.KeyApiVersions

// link is one connection: calls go out in order, and their answers come back in that order.
//
//	┌──────┬─────────────┬──────┬──────┐
//	│ size │ correlation │ tags │ body │
//	└──────┴─────────────┴──────┴──────┘
type link struct {
	client *Client
	to     metadata.BrokerID
	limit  int
	conn   net.Conn
	raw    syscall.RawConn // nil where the connection is none of the system's
	in     *bufio.Reader   // of the reader
	room   chan struct{}   // a place for each call in flight

	mu      sync.Mutex
	waiting []*call // guarded by mu; the first one is answered next
	number  int32   // guarded by mu; correlation id of waiting[0]
	next    int32   // guarded by mu
	cause   error   // guarded by mu; why the link is broken
}

// dial connects to the lane's broker, sees that it is the one, and starts the reader.
func (c *Client) dial(ctx context.Context, l *lane) (*link, error) {
	address, err := c.o.Address(ctx, l.to)
	if err != nil {
		return nil, fmt.Errorf("%w: node %d: %w", ErrUnreachable, l.to, err)
	}
	conn, err := c.o.Dial(ctx, address)
	if err != nil {
		return nil, unreachable(l.to, address, err)
	}
	k := &link{client: c, to: l.to, limit: l.limit, conn: conn, in: bufio.NewReaderSize(conn, 4<<10), room: make(chan struct{}, inFlight)}
	if c, ok := conn.(syscall.Conn); ok {
		k.raw, _ = c.SyscallConn()
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err = k.greet(ctx)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	_ = conn.SetDeadline(time.Time{})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errors.Join(ErrClosed, conn.Close())
	}
	c.work.Go(k.read)
	return k, nil
}

// greet names the cluster and the broker that is meant; another one refuses that.
func (k *link) greet(context.Context) error {
	req := kmsg.NewPtrApiVersionsRequest()
	req.SetVersion(3)
	req.ClientSoftwareName, req.ClientSoftwareVersion, req.NodeID = clientName, clientVersion, -1
	if id := k.client.o.ClusterID(); id != "" {
		req.SetVersion(5)
		req.ClusterID, req.NodeID = &id, k.to
	}
	if _, err := k.conn.Write(formatRequest(req)); err != nil {
		return k.lost(err)
	}
	buf, body, err := k.answer(0, true)
	if err != nil {
		return err
	}
	defer buf.release()
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.SetVersion(req.GetVersion())
	if err := resp.ReadFrom(append([]byte(nil), body...)); err != nil {
		return protocolError(k.to, err)
	}
	if resp.ErrorCode != 0 {
		return fmt.Errorf("%w: node %d at %s: %w", ErrForeign, k.to, k.conn.RemoteAddr(), fromCode(resp.ErrorCode))
	}
	for _, a := range resp.ApiKeys {
		if a.ApiKey == protocol.KeyBrokerHeartbeat {
			k.next, k.number = 1, 1
			return nil
		}
	}
	return fmt.Errorf("%w: node %d at %s is not on its internal listener", ErrForeign, k.to, k.conn.RemoteAddr())
}

func (k *link) broken() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.cause != nil
}

// send puts a call in line and writes it. Once it stands in line, its answer, or the end of the link, completes it.
func (k *link) send(c *call) error {
	select {
	case k.room <- struct{}{}:
	case <-c.ctx.Done():
		return fmt.Errorf("%w: node %d: %w", ErrUnreachable, k.to, context.Cause(c.ctx))
	case <-k.client.ctx.Done():
		return ErrClosed
	}
	k.mu.Lock()
	if k.cause != nil {
		k.mu.Unlock()
		return k.cause
	}
	k.waiting = append(k.waiting, c)
	binary.BigEndian.PutUint32(c.frame[8:], uint32(k.next))
	k.next++
	k.mu.Unlock()
	c.link.Store(k)
	if c.ctx.Err() != nil {
		c.expire() // its time ended between the queue and here
	}
	_ = k.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := k.conn.Write(c.frame); err != nil {
		k.fail(k.lost(err))
	}
	c.frame = nil
	return nil
}

// late ends the link when a call whose time is over is still in line.
func (k *link) late(c *call) {
	k.mu.Lock()
	there := false
	for _, w := range k.waiting {
		there = there || w == c
	}
	k.mu.Unlock()
	if there {
		k.fail(k.lost(errors.New("no answer in time")))
	}
}

// read hands answers out until the link ends.
func (k *link) read() {
	for {
		if _, err := k.in.Peek(1); err != nil {
			k.fail(k.lost(err))
			return
		}
		k.mu.Lock()
		if len(k.waiting) == 0 {
			k.mu.Unlock()
			k.fail(fmt.Errorf("%w: node %d answers what was not asked", ErrProtocol, k.to))
			return
		}
		c, number := k.waiting[0], k.number
		k.mu.Unlock()
		buf, body, err := k.answer(number, c.simple)
		if err != nil {
			k.fail(err)
			return
		}
		k.mu.Lock()
		if k.cause != nil { // fail has answered c
			k.mu.Unlock()
			buf.release()
			return
		}
		k.waiting[0] = nil
		k.waiting = k.waiting[1:]
		k.number++
		k.mu.Unlock()
		<-k.room
		c.finish(answer{buf: buf, body: body})
	}
}

// answer reads one frame into a buffer.
func (k *link) answer(number int32, simple bool) (*buffer, []byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(k.in, head[:]); err != nil {
		return nil, nil, k.lost(err)
	}
	size := int32(binary.BigEndian.Uint32(head[:]))
	if size < 4 || int(size) > k.limit {
		return nil, nil, fmt.Errorf("%w: node %d: a frame of %d bytes", ErrProtocol, k.to, size)
	}
	if got := int32(binary.BigEndian.Uint32(head[4:])); got != number {
		return nil, nil, fmt.Errorf("%w: node %d: answer %d instead of %d", ErrProtocol, k.to, got, number)
	}
	buf := k.client.buffer(int(size) - 4)
	if err := k.fill(buf, int(size)-4); err != nil {
		buf.release()
		return nil, nil, k.lost(err)
	}
	body := buf.b
	if !simple {
		n, err := protocol.SkipTags(body)
		if err != nil {
			buf.release()
			return nil, nil, protocolError(k.to, err)
		}
		body = body[n:]
	}
	return buf, body, nil
}

// fill reads the rest of a frame into a buffer.
func (k *link) fill(buf *buffer, n int) error {
	if n < 256<<10 {
		return buf.fill(k.in, n)
	}
	p := patient{link: k, left: n}
	err := buf.fill(&p, n)
	if p.low > 1 && err == nil {
		k.lowWater(1)
	}
	return err
}

// patience is how much of a large answer is waited for before it is read: it comes in pieces of what the sender's socket takes at once, and
// to wake up for each costs more than to read it.
const patience = 1 << 20

// patient reads a frame of which so many bytes are left, a good piece at a time.
type patient struct {
	link *link
	left int
	low  int // SO_RCVLOWAT of the socket, 0 where it was not set
}

// Read never waits for more than is to come.
func (p *patient) Read(b []byte) (int, error) {
	if low := min(p.left-p.link.in.Buffered(), patience); low != p.low && low > 0 {
		p.link.lowWater(low)
		p.low = low
	}
	n, err := p.link.in.Read(b)
	p.left -= n
	return n, err
}

// lowWater sets how many bytes must have come before the reader is woken. A connection that has no such thing goes without.
func (k *link) lowWater(n int) {
	if k.raw == nil {
		return
	}
	_ = k.raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, n) })
}

// lost is the error of a broken connection.
func (k *link) lost(err error) error {
	return fmt.Errorf("%w: node %d at %s: %w", ErrDisconnected, k.to, k.conn.RemoteAddr(), err)
}

// fail ends the link, and with it the calls in line; the first cause counts.
func (k *link) fail(err error) {
	k.mu.Lock()
	if k.cause != nil {
		k.mu.Unlock()
		return
	}
	k.cause = err
	waiting := k.waiting
	k.waiting = nil
	k.mu.Unlock()
	_ = k.conn.Close()
	for _, c := range waiting {
		<-k.room
		c.finish(answer{err: err})
	}
}

// formatRequest is the frame of a request, from its size on. The correlation id, at byte 8, is 0.
func formatRequest(req kmsg.Request) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientName)).AppendRequest(nil, req, 0)
}

// buffer is memory that answers are read into, used again and again.
type buffer struct {
	client *Client
	b      []byte
}

// fillStep is how much memory is taken before bytes that need it have arrived.
const fillStep = 1 << 20

// buffer takes a buffer out of the pool, of memory that an answer of so many bytes may have left there.
func (c *Client) buffer(n int) *buffer {
	pool := &c.small
	if n > smallBuffer {
		pool = &c.large
	}
	b := pool.Get().(*buffer)
	b.client = c
	return b
}

// fill reads n bytes. What is not there yet is taken in a few steps, each not before the one before is full: 1 MiB, then as much as may be
// kept, then twice as much and twice again.
func (b *buffer) fill(r io.Reader, n int) error {
	if cap(b.b) >= n {
		b.b = b.b[:n]
		_, err := io.ReadFull(r, b.b)
		return err
	}
	b.b = b.b[:min(n, cap(b.b))]
	if len(b.b) < min(n, fillStep) {
		b.b = make([]byte, min(n, fillStep))
	}
	for at := 0; ; {
		if _, err := io.ReadFull(r, b.b[at:]); err != nil {
			return err
		}
		if at = len(b.b); at == n {
			return nil
		}
		// The next ones that are a little longer find room in it.
		room := roundUp(min(n, max(keepBuffer, 2*at)), fillStep)
		grown := make([]byte, min(n, room), room)
		copy(grown, b.b)
		b.b = grown
	}
}

// roundUp is the multiple of a step that is n or the next above it.
func roundUp(n, step int) int { return (n + step - 1) / step * step }

func (b *buffer) release() {
	switch {
	case cap(b.b) > keepBuffer:
	case cap(b.b) > smallBuffer:
		b.client.large.Put(b)
	default:
		b.client.small.Put(b)
	}
}

package quorum

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/keeplog/keeplog/metadata"
)

const (
	// handshake bounds the preamble and its answer, and a hello.
	handshake = 5 * time.Second
	// maxHandshakes bounds the connections that have not said what they are for.
	maxHandshakes = 64
)

var (
	errTarget   = errors.New("quorum: another member answered")
	errNoMember = errors.New("quorum: no address of the member is known")
)

// port takes the connections of the others and makes those to them.
type port struct {
	listener  net.Listener
	dialer    func(ctx context.Context, address string) (net.Conn, error)
	self      identity
	cluster   func() string
	image     func() *metadata.Image
	book      *book
	answer    func(ctx context.Context, kind call, request *hello) ([]byte, error)
	acceptRaw func() bool

	// raft takes the connections that carry Raft's stream.
	raft  chan net.Conn
	slots chan struct{}

	mu     sync.Mutex
	open   map[net.Conn]bool
	closed bool
	work   sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc
}

func newPort(o *Options, b *book) *port {
	ctx, cancel := context.WithCancel(context.Background())
	p := &port{
		listener: o.Listener, dialer: o.Dial, self: identity{o.Node, o.Directory}, book: b, raft: make(chan net.Conn),
		slots: make(chan struct{}, maxHandshakes), open: map[net.Conn]bool{}, ctx: ctx, cancel: cancel,
	}
	if p.dialer == nil {
		p.dialer = func(ctx context.Context, address string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", address)
		}
	}
	return p
}

// tracked is a connection that its port closes at the end: the library leaves some behind.
type tracked struct {
	net.Conn
	p *port
}

// Close closes the connection.
func (c *tracked) Close() error {
	c.p.mu.Lock()
	delete(c.p.open, c.Conn)
	c.p.mu.Unlock()
	return c.Conn.Close()
}

func (p *port) track(c net.Conn) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errors.Join(net.ErrClosed, c.Close())
	}
	p.open[c] = true
	return &tracked{c, p}, nil
}

// start accepts connections until close. The listener is one of those that close waits for: it begins others.
func (p *port) start() { p.work.Go(p.listen) }

// close ends the listener and all connections, and waits for those who serve them.
func (p *port) close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	p.cancel()
	err := p.listener.Close()
	for c := range p.open {
		_ = c.Close()
	}
	clear(p.open)
	p.mu.Unlock()
	p.work.Wait()
	return err
}

// listen serves until close.
func (p *port) listen() {
	for delay := time.Millisecond; ; {
		c, err := p.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			select {
			case <-p.ctx.Done():
				return
			case <-time.After(delay):
				delay = min(2*delay, time.Second)
			}
			continue
		}
		delay = time.Millisecond
		select {
		case p.slots <- struct{}{}:
		default:
			_ = c.Close()
			continue
		}
		if c, err = p.track(c); err != nil {
			<-p.slots
			return
		}
		p.work.Go(func() { p.serve(c) })
	}
}

// serve reads what a connection is for, and does it.
func (p *port) serve(c net.Conn) {
	keep := false
	defer func() {
		if !keep {
			_ = c.Close()
		}
		<-p.slots
	}()
	_ = c.SetDeadline(time.Now().Add(handshake))
	pre, err := readPreamble(c)
	if err != nil {
		return
	}
	v, text := p.judge(pre)
	if _, err := c.Write(sealed(byte(v), []byte(text))); err != nil || v != welcome {
		return
	}
	if pre.kind == callRaft {
		_ = c.SetDeadline(time.Time{})
		select {
		case p.raft <- c:
			keep = true
		case <-p.ctx.Done():
		}
		return
	}
	p.talk(c, pre.kind)
}

// judge decides whether a caller is welcome.
func (p *port) judge(pre preamble) (verdict, string) {
	own := p.cluster()
	other := func(d metadata.DirectoryID) bool { return d != metadata.DirectoryID{} && d != p.self.directory }
	switch {
	case own != "" && pre.cluster != "" && own != pre.cluster:
		return foreignCluster, own
	case pre.to.id >= 0 && pre.to.id != p.self.id, other(pre.to.directory):
		return notTheTarget, p.self.String()
	case pre.kind == callRaft && pre.to.directory == metadata.DirectoryID{} && !p.acceptRaw():
		return notTheTarget, "Raft names no directory, and this node has no log"
	case pre.kind != callRaft && pre.kind != callHello && pre.kind != callJoin:
		return notServed, fmt.Sprintf("kind %d", pre.kind)
	}
	return welcome, own
}

// talk answers one hello or join.
func (p *port) talk(c net.Conn, kind call) {
	b, err := readFrame(c)
	if err != nil {
		return
	}
	h, err := readHello(b)
	if err != nil {
		return
	}
	_ = c.SetDeadline(time.Now().Add(2 * handshake))
	ctx, cancel := context.WithTimeout(p.ctx, handshake)
	defer cancel()
	answer, err := p.answer(ctx, kind, h)
	if err != nil {
		return
	}
	_, _ = c.Write(frame(answer))
}

// dial connects to a member and introduces this node.
func (p *port) dial(ctx context.Context, kind call, to identity) (net.Conn, error) {
	all := p.book.addresses(to, p.image())
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: %s", errNoMember, to)
	}
	var errs []error
	for i, address := range all {
		c, err := p.dialAt(ctx, attempt{address, kind, to, len(all) - i})
		if err == nil {
			p.book.reached(to.id, address)
			return c, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	p.book.reached(to.id, "")
	return nil, errors.Join(errs...)
}

// attempt is a connection to be made: where, what for, to whom. Share says by how many the time that is left is divided.
type attempt struct {
	address string
	kind    call
	to      identity
	share   int
}

// dialAt connects to an address.
func (p *port) dialAt(ctx context.Context, a attempt) (net.Conn, error) {
	limit := handshake
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/time.Duration(a.share))
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	raw, err := p.dialer(ctx, a.address)
	if err != nil {
		return nil, fmt.Errorf("quorum: %s: %w", a.address, err)
	}
	c, err := p.track(raw)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(limit))
	if err := p.introduce(c, preamble{kind: a.kind, cluster: p.cluster(), from: p.self, to: a.to}); err != nil {
		return nil, errors.Join(fmt.Errorf("quorum: %s: %w", a.address, err), c.Close())
	}
	return c, c.SetDeadline(time.Time{})
}

func (p *port) introduce(c net.Conn, pre preamble) error {
	if _, err := c.Write(pre.append(nil)); err != nil {
		return err
	}
	v, text, err := unseal(c)
	if err != nil {
		return err
	}
	switch verdict(v) {
	case welcome:
		return nil
	case foreignCluster:
		return fmt.Errorf("%w: it belongs to cluster %s, this node to %s", ErrForeign, text, pre.cluster)
	case notTheTarget:
		return fmt.Errorf("%w: %s was meant, it is %s", errTarget, pre.to, text)
	}
	return fmt.Errorf("%w: not served: %s", errWire, text)
}

// ask sends one request over a connection, which it closes, and reads the answer.
func (p *port) ask(ctx context.Context, c net.Conn, request *hello) ([]byte, error) {
	defer c.Close()
	limit := time.Now().Add(2 * handshake)
	if end, ok := ctx.Deadline(); ok && end.Before(limit) {
		limit = end
	}
	if err := c.SetDeadline(limit); err != nil {
		return nil, err
	}
	if _, err := c.Write(frame(request.append(nil))); err != nil {
		return nil, err
	}
	return readFrame(c)
}

package torture

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Clients stands in a [Link] for everybody who is no node.
const Clients int32 = 0

// Link is a direction between two nodes, or between the clients and a node.
type Link struct{ From, To int32 }

// Network stands in front of the listeners of a cluster's nodes, with a gate for each: what a node advertises is the gate. It knows of each
// connection who made it, so that every direction between two nodes can be cut, slowed and broken by itself.
//
//	node 1 ──connects──► gate of node 2's REPLICATION ──► node 2
//	         bytes to node 2: line 1 → 2, bytes back: line 2 → 1
//
// A line that is cut holds what is sent, as TCP does, and gives it on when it is mended; a line that refuses ends its connections and
// takes no new ones. All methods may be called from any goroutine.
type Network struct {
	process func(node int32) int

	mu     sync.Mutex
	gates  []*gate
	lines  map[Link]*line
	relays map[*relay]struct{}
	closed bool
	wg     sync.WaitGroup
}

// gate is where others reach a listener of a node. listener is nil while the node is down, so that it is refused there as at the node.
type gate struct {
	node           int32
	listen, target string
	public         bool // clients come here, and no nodes
	listener       net.Listener
}

// NewNetwork returns a network without gates. process tells the process id of a node, 0 when it is down.
func NewNetwork(process func(node int32) int) *Network {
	return &Network{process: process, lines: map[Link]*line{}, relays: map[*relay]struct{}{}}
}

// Add sets a gate at listen before a listener that nodes use among themselves, at target; both are HOST:PORT on IPv4. It is open from Up on.
func (n *Network) Add(node int32, listen, target string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gates = append(n.gates, &gate{node: node, listen: listen, target: target})
}

// AddPublic is Add for a listener of clients.
func (n *Network) AddPublic(node int32, listen, target string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gates = append(n.gates, &gate{node: node, listen: listen, target: target, public: true})
}

// upLimit is how long an address may be in use by ourselves: a process that we start holds all our sockets until it is the other program.
const upLimit = 5 * time.Second

// Up opens the gates of a node that is about to start.
func (n *Network) Up(node int32) error {
	for deadline := time.Now().Add(upLimit); ; {
		err := n.open(node)
		if !errors.Is(err, unix.EADDRINUSE) || time.Now().After(deadline) {
			return err
		}
		<-time.After(20 * time.Millisecond)
	}
}

func (n *Network) open(node int32) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, g := range n.gates {
		if g.node != node || g.listener != nil || n.closed {
			continue
		}
		l, err := net.Listen("tcp", g.listen)
		if err != nil {
			return err
		}
		g.listener = l
		n.wg.Go(func() { n.accept(g, l) })
	}
	return nil
}

// Down closes the gates of a node that has ended: who dials it is refused.
func (n *Network) Down(node int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, g := range n.gates {
		if g.node == node && g.listener != nil {
			g.listener.Close()
			g.listener = nil
		}
	}
}

// Remove forgets the gates of a node that is gone for good.
func (n *Network) Remove(node int32) {
	n.Down(node)
	n.mu.Lock()
	defer n.mu.Unlock()
	kept := n.gates[:0]
	for _, g := range n.gates {
		if g.node != node {
			kept = append(kept, g)
		}
	}
	n.gates = kept
}

// Close ends every connection and closes every gate.
func (n *Network) Close() {
	n.mu.Lock()
	n.closed = true
	for _, g := range n.gates {
		if g.listener != nil {
			g.listener.Close()
			g.listener = nil
		}
	}
	n.mu.Unlock()
	n.Drop(func(Link) bool { return true })
	n.wg.Wait()
}

// Cut holds what is sent over links; with refuse their connections are ended instead, and no new ones are made in either direction.
func (n *Network) Cut(links []Link, refuse bool) {
	for _, l := range links {
		n.line(l).cut(refuse)
	}
	if refuse {
		n.Drop(among(links))
	}
}

// Slow gives links a latency in one direction and a rate in bytes a second, 0 for no limit.
func (n *Network) Slow(links []Link, latency time.Duration, rate int) {
	for _, l := range links {
		n.line(l).slow(latency, rate)
	}
}

// Heal mends every link. What was held goes on.
func (n *Network) Heal() {
	n.mu.Lock()
	lines := make([]*line, 0, len(n.lines))
	for _, l := range n.lines {
		lines = append(lines, l)
	}
	n.mu.Unlock()
	for _, l := range lines {
		l.mend()
	}
}

// Drop ends the connections that were made over links for which which says so.
func (n *Network) Drop(which func(Link) bool) {
	n.mu.Lock()
	var ended []*relay
	for r := range n.relays {
		if which(r.link) {
			ended = append(ended, r)
		}
	}
	n.mu.Unlock()
	for _, r := range ended {
		r.end()
	}
}

// among says whether a connection runs over one of links, in either direction.
func among(links []Link) func(Link) bool {
	set := map[Link]bool{}
	for _, l := range links {
		set[l], set[Link{l.To, l.From}] = true, true
	}
	return func(l Link) bool { return set[l] }
}

func (n *Network) line(l Link) *line {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lines[l] == nil {
		n.lines[l] = newLine()
	}
	return n.lines[l]
}

func (n *Network) accept(g *gate, l net.Listener) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			<-time.After(10 * time.Millisecond) // out of file descriptors, as a rule
			continue
		}
		n.wg.Go(func() { n.serve(g, conn) })
	}
}

// serve carries one connection until it ends.
func (n *Network) serve(g *gate, conn net.Conn) {
	r := &relay{link: Link{Clients, g.node}, near: conn, done: make(chan struct{})}
	if !g.public {
		r.link.From = n.whose(conn)
	}
	there, back := n.line(r.link), n.line(Link{r.link.To, r.link.From})
	if !n.enter(r) || there.refuses() || back.refuses() {
		r.end()
		n.leave(r)
		return
	}
	defer n.leave(r)
	defer r.end()
	if !there.pass(r.done) { // the first packet is held like any other
		return
	}
	far, err := net.DialTimeout("tcp", g.target, 5*time.Second)
	if err != nil || !r.reached(far) {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { r.pump(r.near, far, there) })
	wg.Go(func() { r.pump(far, r.near, back) })
	wg.Wait()
}

func (n *Network) enter(r *relay) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.relays[r] = struct{}{}
	return !n.closed
}

func (n *Network) leave(r *relay) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.relays, r)
}

// relay is one connection: near is the side of who made it.
type relay struct {
	link Link
	near net.Conn
	done chan struct{}

	mu    sync.Mutex
	far   net.Conn
	ended bool
}

// reached takes the other side; false when the connection has ended meanwhile.
func (r *relay) reached(far net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		far.Close()
		return false
	}
	r.far = far
	return true
}

// end ends both sides at once, with what is under way.
func (r *relay) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	r.ended = true
	close(r.done)
	for _, c := range []net.Conn{r.near, r.far} {
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0) // a reset: whoever waits on it hears of it
			t.Close()
		}
	}
}

const (
	pieceSize  = 16 << 10
	mostPieces = 8 // of one connection and direction, under way
)

type piece struct {
	bytes []byte
	due   time.Time
}

// pump carries bytes in one direction until either side ends it.
func (r *relay) pump(from, to net.Conn, l *line) {
	pieces, spare := make(chan piece, mostPieces), make(chan []byte, mostPieces)
	var reading sync.WaitGroup
	reading.Go(func() { r.take(from, l, pieces, spare) })
	defer reading.Wait()
	for p := range pieces {
		if wait := time.Until(p.due); wait > 0 {
			select {
			case <-time.After(wait):
			case <-r.done:
			}
		}
		if !l.pass(r.done) {
			continue // until the reader has ended
		}
		if _, err := to.Write(p.bytes); err != nil {
			r.end()
		}
		select {
		case spare <- p.bytes[:pieceSize]:
		default:
		}
	}
	if l.pass(r.done) {
		if t, ok := to.(*net.TCPConn); !ok || t.CloseWrite() != nil {
			r.end()
		}
	}
}

// take reads pieces until the side ends.
func (r *relay) take(from net.Conn, l *line, pieces chan<- piece, spare <-chan []byte) {
	defer close(pieces)
	for {
		var buf []byte
		select {
		case buf = <-spare:
		default:
			buf = make([]byte, pieceSize)
		}
		n, err := from.Read(buf)
		if n > 0 {
			select {
			case pieces <- piece{buf[:n], l.due(n)}:
			case <-r.done:
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && l.pass(r.done) {
				r.end() // a reset goes through as one
			}
			return
		}
	}
}

// line is what happens to bytes in one direction.
type line struct {
	mu      sync.Mutex
	open    chan struct{} // closed while the line is open
	refuse  bool
	latency time.Duration
	rate    int
	busy    time.Time // until when what was sent keeps the line busy
}

func newLine() *line {
	l := &line{open: make(chan struct{})}
	close(l.open)
	return l
}

func (l *line) cut(refuse bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.open:
		l.open = make(chan struct{})
	default:
	}
	l.refuse = refuse
}

func (l *line) slow(latency time.Duration, rate int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latency, l.rate = latency, rate
}

func (l *line) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.open:
	default:
		close(l.open)
	}
	l.refuse, l.latency, l.rate, l.busy = false, 0, 0, time.Time{}
}

func (l *line) refuses() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refuse
}

// pass waits until the line is open; false when done comes before.
func (l *line) pass(done <-chan struct{}) bool {
	for {
		l.mu.Lock()
		open := l.open
		l.mu.Unlock()
		select {
		case <-done:
			return false
		case <-open:
		}
		l.mu.Lock()
		same := open == l.open
		l.mu.Unlock()
		if same {
			return true
		}
	}
}

// due is when n bytes that are sent now arrive.
func (l *line) due(n int) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.latency == 0 && l.rate == 0 {
		return time.Time{}
	}
	now := time.Now()
	if l.busy.Before(now) {
		l.busy = now
	}
	if l.rate > 0 {
		l.busy = l.busy.Add(time.Duration(n) * time.Second / time.Duration(l.rate))
	}
	return l.busy.Add(l.latency)
}

// Package peer asks the other brokers, on their internal listener, what only brokers may ask, and turns their error codes back into errors.
//
// Nouns. A [Client] is this broker's side towards all others. A lane is one kind of question to one broker, with a connection of its own,
// so that a fetch that waits for data, or a change that waits for Raft, holds up no heartbeat. A link is one TCP connection of a lane;
// its first exchange names the cluster and the broker that is meant, and ends it where another one answers.
//
//	caller ─► queue of the lane (bounded) ─► writer: dial, back-off, write ─► link ─► reader: answers in order ─► caller
//	            control · heartbeat · fetch · commands · 8 × forward           64 calls in flight
//
// Calls of a lane are sent in the order in which they were queued, and answered in that order. A call that ends by its deadline ends its
// link, for those behind it wait for the same answer; one that is cancelled leaves it open. What was sent and not answered may have been
// done: [ErrDisconnected].
//
// What is private to keeplog rides in tags that the protocol leaves to whoever wants them:
//
//	Fetch, in each partition     tag 10000  i64                         stable end of the follower
//	BrokerHeartbeat              tag 10000  (uuid, i32) …               replicas whose data is lost, or that are out of order
//	                             tag 10002  (uuid, i32) …               those of them that are only out of order
//	Envelope                     tag 10000  i32                         the broker that the client asked
//	                             tag 10001  empty                       what is in it is a command of the metadata log; in the answer, its outcome
//
// Who owns what. The lane's goroutine alone dials and writes; the link's alone reads. The records of a [FetchResponse] lie in a buffer that
// Release gives back.
package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/keeplog/keeplog/metadata"
)

// Private tag numbers.
const (
	// TagStableEnd is in a partition of Fetch: 8 bytes, the follower's stable end.
	TagStableEnd uint32 = 10_000
	// TagLost is in BrokerHeartbeat: 20 bytes each, topic id and partition of a replica that is not to be counted on, because its store misses data
	// or it can be neither led nor followed. A version that does not know TagOutOfOrder takes all for lost.
	TagLost uint32 = 10_000
	// TagOutOfOrder is in BrokerHeartbeat, as TagLost: those of its replicas that may have everything.
	TagOutOfOrder uint32 = 10_002
	// TagFeatures is in BrokerHeartbeat: the features that the broker's version knows, each the length of its name (one byte), the name, the
	// lowest and the highest level (two bytes each).
	TagFeatures uint32 = 10_001
	// TagReceiver is in Envelope: 4 bytes, the broker that the client asked.
	TagReceiver uint32 = 10_000
	// TagCommand is in Envelope, empty: its bytes are a command of the metadata log.
	TagCommand uint32 = 10_001
)

const (
	queued        = 64 // calls that wait in a lane
	inFlight      = 64 // calls that wait for an answer on a link
	forwardLanes  = 8
	dialTimeout   = 5 * time.Second
	writeTimeout  = 10 * time.Second
	firstBackoff  = 20 * time.Millisecond
	lastBackoff   = time.Second
	maxAnswer     = 16 << 20  // bytes, of everything but fetches
	maxFetched    = 256 << 20 // bytes of the answer to a fetch
	smallBuffer   = 64 << 10  // bytes of an answer that takes a buffer from the pool of small ones
	keepBuffer    = 16 << 20  // larger ones are not kept
	clientName    = "keeplog"
	clientVersion = "1"
)

// Options are what a Client is made with. All but Logger are needed.
type Options struct {
	// Self is this broker.
	Self metadata.BrokerID
	// Epoch is the epoch that this broker is registered with, −1 before.
	Epoch func() int64
	// ClusterID is the cluster that this broker belongs to, empty while it does not know one.
	ClusterID func() string
	// Address finds the internal listener of a broker, as host:port.
	Address func(ctx context.Context, id metadata.BrokerID) (string, error)
	// Dial connects; nil is TCP.
	Dial   func(ctx context.Context, address string) (net.Conn, error)
	Logger *slog.Logger
}

// Client asks other brokers. It is safe for concurrent use.
type Client struct {
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	small  sync.Pool // of *buffer, hung off the client: up to smallBuffer
	large  sync.Pool // of larger ones
	work   sync.WaitGroup

	mu     sync.Mutex
	peers  map[metadata.BrokerID]*peer // guarded by mu
	closed bool                        // guarded by mu
}

// peer is another broker.
type peer struct {
	control, heartbeat, fetch, commands *lane
	forward                             [forwardLanes]*lane
}

// New makes a client that has no connection yet.
func New(o Options) *Client {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Dial == nil {
		var d net.Dialer
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) { return d.DialContext(ctx, "tcp", address) }
	}
	c := &Client{o: o, peers: map[metadata.BrokerID]*peer{}}
	c.small.New = func() any { return new(buffer) }
	c.large.New = c.small.New
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Close ends every connection; what waits for an answer ends with ErrClosed.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.work.Wait()
}

// Forget ends the connections to a broker, which has moved or was removed. The next call makes new ones.
func (c *Client) Forget(id metadata.BrokerID) {
	c.mu.Lock()
	p := c.peers[id]
	delete(c.peers, id)
	c.mu.Unlock()
	if p != nil {
		for _, l := range p.lanes() {
			l.close()
		}
	}
}

func (p *peer) lanes() []*lane {
	return append([]*lane{p.control, p.heartbeat, p.fetch, p.commands}, p.forward[:]...)
}

// peer finds or makes what there is for a broker. The goroutines of a lane start with its first call.
func (c *Client) peer(id metadata.BrokerID) (*peer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	if id < 0 || id == c.o.Self {
		return nil, fmt.Errorf("%w: node %d", ErrUnreachable, id)
	}
	p := c.peers[id]
	if p == nil {
		p = &peer{
			control: newLane(c, id, maxAnswer), heartbeat: newLane(c, id, maxAnswer), fetch: newLane(c, id, maxFetched),
			commands: newLane(c, id, maxAnswer),
		}
		for i := range p.forward {
			p.forward[i] = newLane(c, id, maxAnswer)
		}
		c.peers[id] = p
	}
	return p, nil
}

// idle is the forwarding lane with the least to do.
func (p *peer) idle() *lane {
	best := p.forward[0]
	for _, l := range p.forward {
		n := l.load.Load()
		if n == 0 {
			return l
		}
		if n < best.load.Load() {
			best = l
		}
	}
	return best
}

// Probe connects to a broker's internal listener and hangs up. ErrRefused says that nobody listens there: the process is gone.
func (c *Client) Probe(ctx context.Context, id metadata.BrokerID) error {
	address, err := c.o.Address(ctx, id)
	if err != nil {
		return fmt.Errorf("%w: node %d: %w", ErrUnreachable, id, err)
	}
	conn, err := c.o.Dial(ctx, address)
	if err != nil {
		return unreachable(id, address, err)
	}
	return conn.Close()
}

func unreachable(id metadata.BrokerID, address string, err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w: node %d at %s", ErrRefused, id, address)
	}
	return fmt.Errorf("%w: node %d at %s: %w", ErrUnreachable, id, address, err)
}

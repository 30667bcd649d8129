package quorum

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/keeplog/keeplog/metadata"
)

// Network carries Raft's messages between voters.
type Network struct {
	// Listener takes the connections of the others; the transport owns it and closes it.
	Listener net.Listener
	// Dial connects to another voter, wherever it is now.
	Dial func(to metadata.BrokerID, timeout time.Duration) (net.Conn, error)
	// wire replaces connections by memory, in tests.
	wire raft.Transport
}

// rpcTimeout bounds one message; for a snapshot the library stretches it by size.
const rpcTimeout = 10 * time.Second

func (n *Network) transport(o Options) raft.Transport {
	if n.wire != nil {
		return n.wire
	}
	return withoutFastPath{raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: newStream(n), MaxPool: 3, Timeout: rpcTimeout, Logger: newRaftLogger(o.Logger),
	})}
}

// withoutFastPath is the network transport without its fast path for heartbeats. That path changes term and state from
// another goroutine while the leader's loop is running: a deposed leader could then store an entry under the term of its
// successor, and two logs would differ under equal index and term without Raft ever noticing (hashicorp/raft#695).
// Heartbeats wait behind the disk instead, which the timing allows for.
type withoutFastPath struct{ *raft.NetworkTransport }

// SetHeartbeatHandler does nothing: heartbeats take the way of all messages.
func (withoutFastPath) SetHeartbeatHandler(func(raft.RPC)) {}

// stream makes connections by node id: ids are stable, addresses are not. It knows all connections that are open, because the
// library leaves some behind when it closes.
type stream struct {
	n *Network

	mu     sync.Mutex
	open   map[net.Conn]bool
	closed bool
}

func newStream(n *Network) *stream { return &stream{n: n, open: map[net.Conn]bool{}} }

// tracked is a connection that its stream knows.
type tracked struct {
	net.Conn
	s *stream
}

// Close closes the connection.
func (c *tracked) Close() error {
	c.s.mu.Lock()
	delete(c.s.open, c.Conn)
	c.s.mu.Unlock()
	return c.Conn.Close()
}

func (s *stream) track(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(net.ErrClosed, c.Close())
	}
	s.open[c] = true
	return &tracked{c, s}, nil
}

// Accept takes a connection.
func (s *stream) Accept() (net.Conn, error) { return s.track(s.n.Listener.Accept()) }

// Close stops listening and closes all connections.
func (s *stream) Close() error {
	err := s.n.Listener.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.open {
		err = errors.Join(err, c.Close())
	}
	clear(s.open)
	return err
}

// Addr is the address of the listener.
func (s *stream) Addr() net.Addr { return s.n.Listener.Addr() }

// Dial connects to a member. Its address is its id.
func (s *stream) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	id, err := parseServerID(string(address))
	if err != nil {
		return nil, err
	}
	return s.track(s.n.Dial(id, timeout))
}

package quorum

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/hashicorp/raft"

	"github.com/keeplog/keeplog/internal/invariant"
)

// rpcTimeout bounds one of Raft's messages; for a snapshot the library stretches it by size.
const rpcTimeout = 5 * time.Second

// transport is Raft's network transport without two of its ways. It never has two messages to one member under way, so that a
// member that is stuck is noticed, and it has no fast path for heartbeats: that path changes term and state from another
// goroutine while the leader's loop is running, and a deposed leader could then store an entry under the term of its successor,
// so that two logs would differ under equal index and term without Raft ever noticing (hashicorp/raft#695). Heartbeats wait
// behind the disk instead, which the timing allows for.
type transport struct {
	*raft.NetworkTransport
	seen   *progress
	idle   *idle
	away   *away
	recall recall
	// done is closed when the member closes, before the library waits for the messages under way.
	done <-chan struct{}
	// closed is closed with the transport itself: Raft may be opened again.
	closed <-chan struct{}
	// fastPath is on in the test that shows what it does.
	fastPath bool
}

// newTransport makes t, which has all else, a transport over s.
func newTransport(s *stream, o *Options, t transport) transport {
	t.NetworkTransport = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: s, MaxPool: 3, MaxRPCsInFlight: 1, Timeout: rpcTimeout, Logger: newRaftLogger(o.Logger),
	})
	t.fastPath, t.closed = o.fastPath, s.ctx.Done()
	return t
}

// SetHeartbeatHandler does nothing: heartbeats take the way of all messages.
func (t transport) SetHeartbeatHandler(f func(raft.RPC)) {
	if t.fastPath || invariant.Seeded(invariant.FastPath) {
		t.NetworkTransport.SetHeartbeatHandler(f)
	}
}

// AppendEntries sends entries, and remembers how far the member has come.
func (t transport) AppendEntries(id raft.ServerID, to raft.ServerAddress, m *raft.AppendEntriesRequest, r *raft.AppendEntriesResponse) error {
	t.idle.rest(id, m, t.done)
	if isHeartbeat(m) {
		t.idle.restBeat(m.Term, func() reach { return t.seen.last(id) }, t.done)
	} else {
		t.away.wait(id, m.Term, t.done)
	}
	sent := time.Now()
	err := t.NetworkTransport.AppendEntries(id, to, m, r)
	t.away.note(id, m.Term, err)
	if err != nil {
		t.idle.failed(id)
	}
	if err == nil && r.Success {
		t.idle.sent(id, m)
	}
	if err == nil {
		t.seen.appended(id, m, r, sent)
	}
	return err
}

// InstallSnapshot sends a snapshot, and remembers that.
func (t transport) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, m *raft.InstallSnapshotRequest, r *raft.InstallSnapshotResponse, data io.Reader) error {
	t.away.wait(id, m.Term, t.done)
	err := t.NetworkTransport.InstallSnapshot(id, to, m, r, data)
	if err == nil && r.Success {
		t.seen.installed(id, m.LastLogIndex)
	}
	return err
}

// stream is Raft's part of the port.
type stream struct {
	p      *port
	ctx    context.Context
	cancel context.CancelFunc
}

func newStream(p *port) *stream {
	s := &stream{p: p}
	s.ctx, s.cancel = context.WithCancel(p.ctx)
	return s
}

// Accept takes a connection that carries Raft's messages.
func (s *stream) Accept() (net.Conn, error) {
	select {
	case c := <-s.p.raft:
		return c, nil
	case <-s.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close stops accepting and dialing. The connections are the port's.
func (s *stream) Close() error {
	s.cancel()
	return nil
}

// Addr is the member's name: Raft takes a candidate's address for the candidate when it counts votes, so that two members
// must never have the same one.
func (s *stream) Addr() net.Addr { return memberAddr(s.p.self.String()) }

// Dial connects to a member. Its address is its id and directory.
func (s *stream) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	to, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	defer cancel()
	return s.p.dial(ctx, callRaft, to)
}

// memberAddr is a member's name as a network address.
type memberAddr string

// Network names the kind of address.
func (memberAddr) Network() string { return "member" }

// String is ID/DIRECTORY.
func (a memberAddr) String() string { return string(a) }

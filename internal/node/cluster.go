package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/internal/grid"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/peer"
	"github.com/keeplog/keeplog/replication/quorum"
	"github.com/keeplog/keeplog/server/api"
)

// cluster is a node's part in a cluster: it asks the controller, wherever that is, reports to it, and reaches the other brokers. It is nil
// on a node alone.
//
//	isr: change of an in-sync set ─► changes ─┐
//	api: a client's request ─► Forward ───────┼─► this node's controller, or the peer that leads
//	heartbeat, registration, producer ids ────┘
//	isr: a follower's fetch ─► peer
type cluster struct {
	node *Node
	peer *peer.Client
	born time.Time
	// registration is what this process says of itself; its epoch is −1 until the controller has answered.
	registration controller.Registration
	epoch        atomic.Int64
	// leaving is set when the node stops: it asks to be relieved and reports no more of itself.
	leaving atomic.Bool
	// kick asks for a heartbeat at once.
	kick chan struct{}
	// changes are the in-sync sets to change.
	changes changes
	// grouped is the index of the newest image that the coordinator of groups goes by.
	grouped atomic.Uint64

	watchMu sync.Mutex
	watched map[metadata.BrokerID]context.Context // guarded by watchMu: the connection that a broker reports over
}

const (
	// heartbeatEvery, leaseTime and attemptTime go with the controller's session: see there.
	heartbeatEvery = 500 * time.Millisecond
	leaseTime      = 2 * time.Second
	// attemptTime bounds one question to the controller, heartbeats above all.
	attemptTime = time.Second
	// decideTime bounds a question that waits for the metadata log.
	decideTime = 5 * time.Second
	// retryEvery is the pause before a question is asked again.
	retryEvery = 50 * time.Millisecond
	tickEvery  = grid.Step
	// heartbeatAhead is how much earlier than other things a heartbeat is sent: the messages of the metadata log that are due then tell the
	// controller that it still leads, which it answers heartbeats with.
	heartbeatAhead = 15 * time.Millisecond
	// probeTime bounds the look whether a broker whose connection ended still listens, probeEvery is the pause between two tries.
	probeTime  = 500 * time.Millisecond
	probeEvery = 20 * time.Millisecond
	// handOverTime bounds the wait for the next controller when this one stops.
	handOverTime = 1500 * time.Millisecond
	// duplicateTime is how long a start waits for the place of another process with this node's id.
	duplicateTime = 15 * time.Second
)

// errNoController says that nobody is known to lead the metadata log.
var errNoController = errors.New("node: no controller is known")

func newCluster(n *Node) *cluster {
	c := &cluster{
		node: n, born: time.Now(), kick: make(chan struct{}, 1), watched: map[metadata.BrokerID]context.Context{},
		changes: changes{more: make(chan struct{}, 1)},
	}
	c.epoch.Store(metadata.NoEpoch)
	c.peer = peer.New(peer.Options{
		Self: n.cfg.NodeID(), Epoch: c.epoch.Load, ClusterID: n.ClusterID, Address: c.address, Logger: n.loggers.room("peer"),
	})
	return c
}

// address is where another broker listens for brokers.
func (c *cluster) address(ctx context.Context, id metadata.BrokerID) (string, error) {
	q, name := c.node.quorum, c.node.cfg.InternalName()
	var e metadata.Endpoint
	if leader, ok := q.Leader(); ok && leader == id {
		if who, at, err := q.LeaderAddress(ctx); err == nil && who == id {
			e = at
		}
	}
	if b, ok := q.Image().Broker(id); ok && e.Port == 0 {
		e, _ = b.Listener(name)
	}
	if e.Port == 0 {
		return "", fmt.Errorf("node: the internal listener of node %d is not known", id)
	}
	return net.JoinHostPort(e.Host, fmt.Sprint(e.Port)), nil
}

// Leading says that this node takes the decisions now.
func (c *cluster) Leading() bool {
	_, err := c.node.quorum.Lead()
	return err == nil
}

// Now is the clock of the controller.
func (c *cluster) Now() time.Duration { return time.Since(c.born) }

// ask does something at the controller once: here, or at the node that leads. The question is given up when another leads.
func (c *cluster) ask(ctx context.Context, here func(context.Context) error, there func(context.Context, metadata.BrokerID) error) error {
	q := c.node.quorum
	changed := q.LeaderChanged()
	if c.Leading() {
		return here(ctx)
	}
	id, ok := q.Leader()
	if !ok || id == c.node.cfg.NodeID() {
		return errNoController
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-changed:
			case <-done:
				return
			}
			changed = q.LeaderChanged()
			if now, ok := q.Leader(); ok && now != id {
				cancel()
				return
			}
		}
	}()
	return there(ctx, id)
}

// pause waits a moment, or until another node leads.
func (c *cluster) pause(ctx context.Context, changed <-chan struct{}) error {
	t := time.NewTimer(retryEvery)
	defer t.Stop()
	select {
	case <-t.C:
	case <-changed:
	case <-c.node.quorum.Refused():
		return c.node.quorum.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// Forward carries a client's request to the controller and waits for one as long as ctx does.
func (c *cluster) Forward(ctx context.Context, conn *api.Conn, frame []byte) ([]byte, error) {
	e := &peer.Envelope{Request: frame, Principal: anonymous(), ClientHost: hostBytes(conn.Remote)}
	for {
		changed := c.node.quorum.LeaderChanged()
		var out []byte
		err := c.ask(ctx, func(context.Context) error { return api.ErrLeading }, func(ctx context.Context, id metadata.BrokerID) (err error) {
			out, err = c.peer.Forward(ctx, id, e)
			return err
		})
		if err == nil || errors.Is(err, api.ErrLeading) {
			return out, err
		}
		if waited := c.pause(ctx, changed); waited != nil {
			return nil, fmt.Errorf("%w: %w", waited, err)
		}
	}
}

// anonymous is the principal of a connection without authentication, as Kafka writes it: version, type, name, no token, no tags.
func anonymous() []byte { return []byte("\x00\x00\x05User\x0aANONYMOUS\x00\x00") }

// hostBytes is the address of a client, 4 or 16 bytes.
func hostBytes(remote string) []byte {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	ip := net.ParseIP(host)
	if v4 := ip.To4(); v4 != nil {
		return v4
	}
	if ip == nil {
		return []byte{}
	}
	return ip
}

// Heard notes the connection that a broker reports over. When it ends and nobody listens at the broker any more, the process is gone.
func (c *cluster) Heard(conn context.Context, id metadata.BrokerID, epoch int64) {
	c.watchMu.Lock()
	defer c.watchMu.Unlock()
	if c.watched[id] == conn {
		return
	}
	c.watched[id] = conn
	context.AfterFunc(conn, func() {
		c.watchMu.Lock()
		if c.watched[id] == conn {
			delete(c.watched, id)
		}
		c.watchMu.Unlock()
		c.dropped(id, epoch)
	})
}

// dropped looks whether a broker still listens, and has it fenced when it does not.
func (c *cluster) dropped(id metadata.BrokerID, epoch int64) {
	if !c.gone(id) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), decideTime)
	defer cancel()
	if err := c.node.control.Dropped(ctx, id, epoch); err != nil {
		c.node.log.Warn("a broker that is gone was not fenced", "event", "broker.gone", "broker", id, "error", err)
		return
	}
	c.node.log.Info("a broker is gone", "event", "broker.gone", "broker", id)
}

// gone says that nobody listens at a broker any more. A process that is killed may lose its connections a moment before its listeners, so
// one that is reached is tried again until it reports.
func (c *cluster) gone(id metadata.BrokerID) bool {
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	t := time.NewTicker(probeEvery)
	defer t.Stop()
	for c.Leading() && !c.leaving.Load() {
		if err := c.peer.Probe(ctx, id); errors.Is(err, peer.ErrRefused) {
			return true
		}
		c.watchMu.Lock()
		_, reports := c.watched[id]
		c.watchMu.Unlock()
		if reports {
			return false
		}
		select {
		case <-t.C:
		case <-c.node.stop:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return false
}

// takeOver looks, as a new controller, whether the brokers still listen: none has a connection to this node yet whose end would tell.
func (c *cluster) takeOver() {
	for _, b := range c.node.quorum.Image().Brokers() {
		if !b.Fenced && b.ID != c.node.cfg.NodeID() {
			c.node.jobs.Go(func() { c.dropped(b.ID, b.Epoch) })
		}
	}
}

// forget ends the connections to brokers that are elsewhere now.
func (c *cluster) forget(d metadata.Delta, _ *metadata.Image) {
	name := c.node.cfg.InternalName()
	for _, b := range d.Brokers {
		if b.Before == nil {
			continue
		}
		before, _ := b.Before.Listener(name)
		if b.After != nil {
			if now, _ := b.After.Listener(name); now == before {
				continue
			}
		}
		c.peer.Forget(b.Before.ID)
	}
}

// router is the controller as this broker's own requests see it: what needs the controller of the cluster is asked of that one.
type router struct {
	*controller.Controller
	cluster *cluster
}

// AllocateProducerIDs gets a block of producer ids for this broker.
func (r router) AllocateProducerIDs(ctx context.Context, id metadata.BrokerID, epoch int64) (ids controller.ProducerIDs, err error) {
	if r.cluster == nil || id != r.cluster.node.cfg.NodeID() {
		return r.Controller.AllocateProducerIDs(ctx, id, epoch)
	}
	for {
		changed := r.cluster.node.quorum.LeaderChanged()
		err = r.cluster.ask(ctx, func(ctx context.Context) (err error) {
			ids, err = r.Controller.AllocateProducerIDs(ctx, id, epoch)
			return err
		}, func(ctx context.Context, leader metadata.BrokerID) (err error) {
			ids.First, ids.Count, err = r.cluster.peer.AllocateProducerIDs(ctx, leader, epoch)
			return err
		})
		if err == nil {
			return ids, nil
		}
		if waited := r.cluster.pause(ctx, changed); waited != nil {
			return ids, fmt.Errorf("%w: %w", waited, err)
		}
	}
}

// member is the metadata quorum as the api sees it.
type member struct {
	*quorum.Quorum
	now func() time.Time
}

// QuorumStatus is the quorum as this node knows it.
func (m member) QuorumStatus() api.QuorumStatus {
	s := m.Status()
	out := api.QuorumStatus{Leader: s.Leader, Term: s.Term, HighWatermark: int64(s.Commit) + 1}
	at := func(ago time.Duration) int64 {
		if ago < 0 {
			return -1
		}
		return m.now().Add(-ago).UnixMilli()
	}
	for i := range s.Members {
		k := &s.Members[i]
		q := api.QuorumMember{ID: k.ID, Directory: k.Directory, Voter: k.Voter, LogEnd: -1, Fetched: at(k.Contact), CaughtUp: at(k.CaughtUp), Endpoint: k.Controller}
		if k.Match > 0 {
			q.LogEnd = int64(k.Match) + 1
		}
		out.Members = append(out.Members, q)
	}
	return out
}

// AddVoter makes a node that runs a voter.
func (m member) AddVoter(ctx context.Context, v api.QuorumMember) error {
	for _, k := range m.Status().Members {
		if k.ID == v.ID && k.Voter && k.Directory == v.Directory {
			return fmt.Errorf("%w: node %d", api.ErrDuplicateVoter, v.ID)
		}
	}
	return translateQuorum(m.AddMember(ctx, quorum.Member{ID: v.ID, Directory: v.Directory, Controller: v.Endpoint}, true))
}

// RemoveVoter takes a member out, if it has that directory; a zero one is not compared.
func (m member) RemoveVoter(ctx context.Context, id metadata.BrokerID, directory metadata.DirectoryID) error {
	for _, k := range m.Status().Members {
		if k.ID == id && (directory == metadata.DirectoryID{} || k.Directory == directory) {
			return translateQuorum(m.RemoveMember(ctx, id))
		}
	}
	return fmt.Errorf("%w: node %d with directory %s", api.ErrVoterNotFound, id, directory)
}

// translateQuorum gives an error of the quorum the kind that clients are told.
func translateQuorum(err error) error {
	kind := error(nil)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, quorum.ErrNotLeader):
		kind = controller.ErrNotController
	case errors.Is(err, quorum.ErrUnknownMember):
		kind = api.ErrVoterNotFound
	case errors.Is(err, quorum.ErrForeign), errors.Is(err, quorum.ErrRemoved), errors.Is(err, quorum.ErrVoters), errors.Is(err, quorum.ErrMajority),
		errors.Is(err, quorum.ErrBehind):
		kind = controller.ErrInvalidRequest
	default:
		return err
	}
	return &controller.Answer{Kind: kind, Text: err.Error()}
}

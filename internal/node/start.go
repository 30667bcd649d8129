package node

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/replication/quorum"
	"github.com/keeplog/keeplog/server"
	"github.com/keeplog/keeplog/server/api"
)

// leadTime bounds the wait for the metadata log at the start.
const leadTime = 30 * time.Second

// ErrCluster says that the configuration asks for a cluster of several nodes.
var ErrCluster = errors.New("node: a metadata quorum of several voters is not served")

// openQuorum opens the metadata log and waits until this node leads it and has its whole image.
func (n *Node) openQuorum(ctx context.Context) error {
	for _, v := range n.cfg.Voters() {
		if v.ID != n.cfg.NodeID() {
			return fmt.Errorf("%w: controller.quorum.voters names node %d, this is node %d", ErrCluster, v.ID, n.cfg.NodeID())
		}
	}
	home := n.dirs[0]
	for _, d := range n.dirs {
		if d.path == n.cfg.MetadataDir() {
			home = d
		}
	}
	q, err := quorum.Open(quorum.Options{
		FS: n.o.FS, Dir: n.cfg.MetadataDir(), Node: n.cfg.NodeID(), Directory: home.id, ClusterID: home.known, NewClusterID: newClusterID,
		Fatal: func(err error) { n.o.Fatal(fmt.Errorf("%w: metadata log: %w", ErrStorage, err)) }, Logger: n.loggers.room("quorum"),
	})
	if err != nil {
		return err
	}
	n.quorum = q
	ctx, cancel := context.WithTimeout(ctx, leadTime)
	defer cancel()
	if err := q.WaitLeader(ctx); err != nil {
		return fmt.Errorf("metadata log: %w", err)
	}
	for _, d := range n.dirs {
		if err := d.claim(q.Image().ClusterID()); err != nil {
			return fmt.Errorf("data directory %s: meta.properties: %w", d.path, err)
		}
	}
	return nil
}

// newClusterID is a random id as Kafka writes them: 22 characters of URL-safe base64.
func newClusterID() string {
	var b [16]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// register makes this incarnation known, fenced, and brings the partitions to the image that has it.
func (n *Node) register(ctx context.Context) error {
	a := newApplier(n.cfg.NodeID(), n.quorum, n.replicas, n.settings)
	n.applier = a
	n.quorum.Subscribe(a.changed)
	n.jobs.Go(func() { a.run(n.stop) })
	var s [32]byte
	rand.Read(s[:])
	n.control = controller.New(controller.Options{
		Proposer: proposer{n.quorum, a}, Static: n.cfg, Rand: mathrand.New(mathrand.NewChaCha8(s)), Logger: n.loggers.room("controller"),
	})
	reg := controller.Registration{
		ID: n.cfg.NodeID(), ClusterID: n.quorum.Image().ClusterID(), Listeners: n.advertised(), Rack: n.cfg.String("broker.rack"),
	}
	rand.Read(reg.Incarnation[:])
	for _, d := range n.dirs {
		reg.Directories = append(reg.Directories, d.id)
	}
	epoch, err := n.control.RegisterBroker(ctx, reg)
	if err != nil {
		return fmt.Errorf("registering this broker: %w", err)
	}
	n.epoch = epoch
	n.quorum.SetBrokerEpoch(epoch)
	for _, d := range n.dirs {
		d.SetBrokerEpoch(epoch)
	}
	return nil
}

// advertised are the addresses that clients are told; a port of 0 becomes the one that the listener got.
func (n *Node) advertised() []metadata.Endpoint {
	ports := map[string]int{}
	for _, b := range n.bound {
		if addr, ok := b.net.Addr().(*net.TCPAddr); ok {
			ports[b.Name] = addr.Port
		}
	}
	var out []metadata.Endpoint
	for _, l := range n.cfg.Advertised() {
		if !n.forClients(l.Name) {
			continue
		}
		port := l.Port
		if port == 0 {
			port = ports[l.Name]
		}
		out = append(out, metadata.Endpoint{Name: l.Name, Host: l.Host, Port: uint16(port)})
	}
	return out
}

// serve begins to accept.
func (n *Node) serve(context.Context) error {
	n.api = api.New(api.Options{
		NodeID: n.cfg.NodeID(), Images: n.quorum, Replicas: api.FromISR(n.replicas), Controller: n.control, Dirs: n, Settings: n.settings,
		Loggers: n.loggers, Now: n.o.Now, Logger: n.loggers.room("api"),
	})
	s, err := server.New(n.serverOptions())
	if err != nil {
		return err
	}
	n.server = s
	for _, b := range n.bound {
		if _, err := s.Start(server.Listen{Name: b.Name, Addr: b.net.Addr().String()}); err != nil {
			return err
		}
	}
	n.jobs.Go(n.tick)
	return nil
}

func (n *Node) serverOptions() server.Options {
	byAddress := map[string]net.Listener{}
	for _, b := range n.bound {
		byAddress[b.net.Addr().String()] = b.net
	}
	idle := n.cfg.Duration("connections.max.idle.ms")
	if idle == config.Forever {
		idle = -1
	}
	return server.Options{
		Handler: n.api, Logger: n.loggers.room("server"),
		Listen:   func(addr string) (net.Listener, error) { return byAddress[addr], nil },
		MaxFrame: n.cfg.Int("socket.request.max.bytes"), MaxOther: n.cfg.Int("keeplog.request.max.bytes"),
		Budget: n.cfg.Int64("keeplog.memory.max.bytes"), Idle: idle,
		MaxConns: func() int { return n.settings.Live().Int("max.connections") },
		MaxPerIP: func(ip string) int { return n.settings.Live().ConnectionLimit(ip) },
	}
}

package node

import (
	"context"
	"crypto/rand"
	"encoding/base64"
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

// leadTime bounds the wait for the metadata log of a node alone.
const leadTime = 30 * time.Second

// openQuorum opens the metadata log and waits until this node has its image. A node alone leads it; in a cluster this may have to wait for
// the others.
func (n *Node) openQuorum(ctx context.Context) error {
	home := n.dirs[0]
	for _, d := range n.dirs {
		if d.path == n.cfg.MetadataDir() {
			home = d
		}
	}
	o := quorum.Options{
		FS: n.o.FS, Dir: n.cfg.MetadataDir(), Node: n.cfg.NodeID(), Directory: home.id, ClusterID: home.known, NewClusterID: newClusterID,
		Fatal: func(err error) { n.o.Fatal(fmt.Errorf("%w: metadata log: %w", ErrStorage, err)) }, Logger: n.loggers.room("quorum"),
	}
	if !n.cfg.Alone() {
		o.Remote = n.submit // called once this broker is registered
		controller, controllerAt := n.cfg.Controller()
		_, internalAt := n.cfg.Internal()
		o.Listener, o.Join, o.Controller, o.Internal = n.listener(controller.Name), n.cfg.Join(), n.told(controllerAt), n.told(internalAt)
		for _, v := range n.cfg.Voters() {
			o.Voters = append(o.Voters, quorum.Voter{ID: v.ID, Address: v.Address()})
		}
	}
	q, err := quorum.Open(o)
	if err != nil {
		return err
	}
	n.quorum = q
	if err := n.waitQuorum(ctx); err != nil {
		return fmt.Errorf("metadata log: %w", err)
	}
	if err := n.checkAway(q.Image()); err != nil {
		return err
	}
	for _, d := range n.dirs {
		if err := d.claim(q.Image().ClusterID()); err != nil {
			return fmt.Errorf("data directory %s: meta.properties: %w", d.path, err)
		}
	}
	return nil
}

// waitQuorum waits for the image: in a cluster until ctx ends, for the others may start at any time.
func (n *Node) waitQuorum(ctx context.Context) error {
	if n.cfg.Alone() {
		ctx, cancel := context.WithTimeout(ctx, leadTime)
		defer cancel()
		return n.quorum.WaitLeader(ctx)
	}
	return n.quorum.WaitReady(ctx)
}

// newClusterID is a random id as Kafka writes them: 22 characters of URL-safe base64.
func newClusterID() string {
	var b [16]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func (n *Node) newController() *controller.Controller {
	var s [32]byte
	rand.Read(s[:])
	o := controller.Options{
		Proposer: proposer{n.quorum, n.replicas.Room}, Applied: n.applier.wait, Static: n.cfg, Rand: mathrand.New(mathrand.NewChaCha8(s)), Node: n.cfg.NodeID(),
		Logger: n.loggers.room("controller"), Busy: func(shard int32) bool { return n.quorum.Tables().Count(shard) > 0 },
	}
	if !n.cfg.Alone() {
		o.Verify, o.HeardFormer = n.quorum.VerifySoon, n.quorum.HeardFormer
	}
	return controller.New(o)
}

// register makes this incarnation known, fenced, and brings the partitions to the image that has it.
func (n *Node) register(ctx context.Context) error {
	reg := controller.Registration{
		ID: n.cfg.NodeID(), ClusterID: n.quorum.Image().ClusterID(), Listeners: n.advertised(), Rack: n.cfg.String("broker.rack"),
		Features: controller.SupportedFeatures(),
	}
	rand.Read(reg.Incarnation[:])
	for _, d := range n.dirs {
		reg.Directories = append(reg.Directories, d.id)
	}
	n.applier.start()
	n.jobs.Go(func() { n.applier.run(n.stop) })
	if n.cluster != nil {
		n.cluster.registration = reg
		if err := n.cluster.register(ctx); err != nil {
			return fmt.Errorf("registering this broker: %w", err)
		}
		return nil
	}
	epoch, err := n.control.RegisterBroker(ctx, reg)
	if err != nil {
		return fmt.Errorf("registering this broker: %w", err)
	}
	n.quorum.SetBrokerEpoch(epoch)
	for _, d := range n.dirs {
		d.SetBrokerEpoch(epoch)
	}
	return nil
}

// advertised are the addresses that the cluster knows this broker by: those of clients and that of brokers.
func (n *Node) advertised() []metadata.Endpoint {
	var out []metadata.Endpoint
	for _, l := range n.cfg.Advertised() {
		if n.cfg.ForClients(l.Name) {
			out = append(out, n.told(l))
		}
	}
	if n.cluster != nil {
		_, l := n.cfg.Internal()
		out = append(out, n.told(l))
	}
	return out
}

// newServer makes what answers requests. It does not listen yet.
func (n *Node) newServer() (err error) {
	o := api.Options{
		NodeID: n.cfg.NodeID(), Images: n.quorum, Replicas: api.FromISR(n.replicas), Controller: router{n.control, n.cluster}, Groups: n.groups, Dirs: n,
		Settings: n.settings, Loggers: n.loggers, Lag: n.startLag(), Now: n.o.Now, Logger: n.loggers.room("api"),
	}
	if n.cluster != nil {
		o.Cluster, o.Quorum = n.cluster, member{n.quorum, n.o.Now}
	}
	n.api = api.New(o)
	n.server, err = server.New(n.serverOptions())
	return err
}

// serve begins to accept clients.
func (n *Node) serve(context.Context) error {
	for _, b := range n.bound {
		if !n.cfg.ForClients(b.Name) {
			continue
		}
		if err := n.accept(b.Name); err != nil {
			return err
		}
	}
	n.jobs.Go(n.tick)
	if n.cluster != nil {
		n.jobs.Go(n.cluster.report)
	}
	return nil
}

// accept begins to accept from one listener.
func (n *Node) accept(name string) error {
	_, err := n.server.Start(server.Listen{Name: name, Addr: n.listener(name).Addr().String(), Internal: name == n.cfg.InternalName()})
	return err
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

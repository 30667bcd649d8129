// Package node opens every room of a broker in order and closes them in reverse; it has no behaviour of its own.
//
// Nouns. A [Node] is one running broker. Start order, each step needing the one before:
//
//	bind listeners ─► data directories ─► metadata log (has its image) ─► listen to brokers ─► recover every log ─► register, fenced
//	      ─► apply the image that the registration returned ─► compare it with the directories ─► report what is lost ─► unfence
//	      ─► accept clients
//
// A node alone leads the metadata log itself, has no peers and opens its clients' listeners only. In a cluster the controller may be any
// node: this one reports to it twice a second, and asks it what it may not decide itself (see cluster).
//
// Nothing is led, judged or renamed before the registration's index is applied here: an incarnation leads only in leader
// epochs that it received itself.
//
// Who owns what. The Node owns the directories, the metadata log, the partitions and the server, and closes them in this
// order: server, partitions, directories, metadata log.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/group"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/replication/isr"
	"github.com/keeplog/keeplog/replication/quorum"
	"github.com/keeplog/keeplog/server"
	"github.com/keeplog/keeplog/server/api"
	"github.com/keeplog/keeplog/vfs"
)

// ErrStorage says that the process must end because its only data directory, or the one that holds the metadata log, failed.
var ErrStorage = errors.New("node: storage failed")

// ErrNoListener says that no listener is left for clients.
var ErrNoListener = errors.New("node: no listener for clients")

// Options are what a node is started with.
type Options struct {
	Config *config.Broker
	// Logger takes every line that it is given; what is given is decided here, by levels that may change while the broker runs.
	Logger *slog.Logger
	// Level is the level that the loggers start with, INFO when it is not set.
	Level slog.Level
	// FS is the file system, [vfs.OS] when nil.
	FS vfs.FS
	// Now is the wall clock, [time.Now] when nil.
	Now func() time.Time
	// Fatal is called, from any goroutine, when the process must not go on: its only data directory, or the one with the
	// metadata log, failed. The error wraps ErrStorage. It is expected to end the process with status 74 and not to return.
	Fatal func(error)
}

// Node is a running broker.
type Node struct {
	o        Options
	cfg      *config.Broker
	loggers  *loggers
	log      *slog.Logger // of this room
	codecs   *record.Codecs
	bound    []bound
	dirs     []*directory
	quorum   *quorum.Quorum
	control  *controller.Controller
	replicas *isr.Replicas
	groups   *group.Coordinator
	applier  *applier
	settings *settings
	api      *api.API
	server   *server.Server
	// cluster is nil on a node alone.
	cluster *cluster
	// lease is the report that the controller acknowledged last.
	lease atomic.Pointer[acknowledged]

	jobs sync.WaitGroup
	stop chan struct{}
	once sync.Once
}

// bound is a listener that has its address and does not accept yet.
type bound struct {
	config.Listener
	net net.Listener
}

// Open starts a broker. It returns when clients are served, or with the first error, everything closed again.
func Open(ctx context.Context, o Options) (*Node, error) {
	if o.FS == nil {
		o.FS = vfs.OS()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	n := &Node{
		o: o, cfg: o.Config, loggers: newLoggers(o.Logger.Handler(), o.Level), codecs: record.NewCodecs(), stop: make(chan struct{}),
	}
	n.log = n.loggers.room("node")
	steps := []func(context.Context) error{n.bind, n.openDirs, n.openQuorum, n.prepare, n.recover, n.register, n.settle, n.serve}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			n.abandon()
			return nil, err
		}
	}
	return n, nil
}

// abandon closes what a failed start has opened. The clean-stop marker is not written.
func (n *Node) abandon() {
	n.once.Do(func() {
		if n.server != nil {
			cut, cancel := context.WithCancel(context.Background())
			cancel()
			_ = n.server.Shutdown(cut)
		}
		n.close(false)
	})
}

// Close stops the broker cleanly: it finishes what was asked, within ctx, then flushes and closes.
func (n *Node) Close(ctx context.Context) (err error) {
	n.once.Do(func() {
		if n.cluster != nil {
			n.cluster.leave(ctx)
			n.cluster.handOver(ctx)
		}
		n.closeGroups()
		err = n.server.Shutdown(ctx)
		err = errors.Join(err, n.close(true))
	})
	return err
}

func (n *Node) close(clean bool) error {
	var errs []error
	close(n.stop)
	n.jobs.Wait()
	n.closeGroups()
	if n.api != nil {
		n.api.Close()
	}
	if n.replicas != nil {
		errs = append(errs, n.replicas.Close())
	}
	for _, d := range n.dirs {
		errs = append(errs, d.close(clean))
	}
	if n.cluster != nil {
		n.cluster.peer.Close()
	}
	if n.quorum != nil {
		errs = append(errs, n.quorum.Close())
	}
	for _, b := range n.bound {
		_ = b.net.Close() // closed already where it was served
	}
	return errors.Join(errs...)
}

// bind takes the addresses before anything else: a port that is in use is told at once, and a port of 0 gets its number.
// A node alone opens what clients are told of, and no listener of the metadata log.
func (n *Node) bind(context.Context) error {
	var internal []bound
	controller, _ := n.cfg.Controller()
	brokers, _ := n.cfg.Internal()
	for _, l := range n.cfg.Listeners() {
		clients := n.cfg.ForClients(l.Name)
		if !clients && (n.cfg.Alone() || l.Name != controller.Name && l.Name != brokers.Name) {
			continue
		}
		nl, err := net.Listen("tcp", l.Address())
		if err != nil {
			for _, b := range internal {
				_ = b.net.Close()
			}
			return fmt.Errorf("listener %s on %s: %w", l.Name, l.Address(), err)
		}
		if clients {
			n.bound = append(n.bound, bound{l, nl})
		} else {
			internal = append(internal, bound{l, nl})
		}
	}
	clients := len(n.bound)
	n.bound = append(n.bound, internal...)
	if clients == 0 {
		return fmt.Errorf("%w: listeners has only %s", ErrNoListener, strings.Join(n.cfg.List("listeners"), ", "))
	}
	return nil
}

// listener finds a listener that has its address.
func (n *Node) listener(name string) net.Listener {
	for _, b := range n.bound {
		if b.Name == name {
			return b.net
		}
	}
	return nil
}

// told is the endpoint that others are told of a listener; a port of 0 becomes the one that it got.
func (n *Node) told(l config.Listener) metadata.Endpoint {
	port := l.Port
	if nl := n.listener(l.Name); port == 0 && nl != nil {
		if addr, ok := nl.Addr().(*net.TCPAddr); ok {
			port = addr.Port
		}
	}
	return metadata.Endpoint{Name: l.Name, Host: l.Host, Port: uint16(port)}
}

// Addresses are the addresses that the broker listens on, by listener name.
func (n *Node) Addresses() map[string]string {
	m := map[string]string{}
	for _, b := range n.bound {
		m[b.Name] = b.net.Addr().String()
	}
	return m
}

// Address is the first listener's address.
func (n *Node) Address() string { return n.bound[0].net.Addr().String() }

// ClusterID is the cluster's id.
func (n *Node) ClusterID() string { return n.quorum.Image().ClusterID() }

// Replicas are the broker's partitions.
func (n *Node) Replicas() *isr.Replicas { return n.replicas }

// Refused is closed when this node can be no member of its cluster (any more): it was removed, or its disk was replaced. Err says why and
// what to do.
func (n *Node) Refused() <-chan struct{} { return n.quorum.Refused() }

// Err is why this node can be no member of its cluster, nil while it can.
func (n *Node) Err() error { return n.quorum.Err() }

// prepare puts the rooms together, none of which does anything yet; in a cluster, brokers are answered from here on.
func (n *Node) prepare(context.Context) error {
	dirs := make([]*log.Dir, len(n.dirs))
	for i, d := range n.dirs {
		dirs[i] = d.Dir
	}
	n.settings = newSettings(n.cfg, n.quorum, dirs)
	o := isr.Options{
		BrokerID: n.cfg.NodeID(), Dirs: dirs, Settings: n.settings.topic, Codecs: n.codecs,
		SkipUnpack: !n.cfg.Bool("keeplog.records.validate"), Logger: n.loggers.room("isr"), Limits: n.settings.limits,
	}
	if v := n.cfg.Get("num.replica.alter.log.dirs.threads"); !v.Null {
		o.MoveThreads = n.cfg.Int("num.replica.alter.log.dirs.threads")
	}
	if !n.cfg.Alone() {
		n.cluster = newCluster(n)
		o.Changer, o.Cluster = n.cluster, n.cluster
	}
	n.replicas = isr.New(o)
	n.applier = newApplier(n.cfg.NodeID(), n.quorum, n.replicas, n.settings)
	n.control = n.newController()
	n.openGroups()
	if err := n.newServer(); err != nil {
		return err
	}
	if n.cluster == nil {
		return nil
	}
	n.replicas.SetLease(time.Now()) // no heartbeat, no lease
	n.applier.told = n.cluster.due
	n.quorum.Subscribe(n.cluster.forget)
	n.jobs.Go(n.cluster.tick)
	n.jobs.Go(n.cluster.change)
	return n.accept(n.cfg.InternalName())
}

// recover opens every log that the metadata knows. One that does not open is its own trouble.
func (n *Node) recover(context.Context) error {
	n.replicas.Recover(n.quorum.Image())
	return nil
}

// settle compares the directories with the image, now that it is known to be current, and takes part.
func (n *Node) settle(ctx context.Context) error {
	n.followGroups()
	img := n.quorum.Image()
	for _, d := range n.dirs {
		d.quarantineUnknown(img, n.log)
	}
	var lost []controller.PartitionRef
	for _, id := range n.replicas.Missing() {
		lost = append(lost, controller.PartitionRef{Topic: id.TopicID, Partition: id.Partition})
	}
	if n.cluster != nil {
		return n.cluster.settle(ctx, lost)
	}
	epoch := n.epoch()
	if len(lost) > 0 {
		if err := n.control.ReportLost(ctx, n.cfg.NodeID(), epoch, lost); err != nil {
			return fmt.Errorf("reporting lost data to the controller: %w", err)
		}
	}
	if err := n.control.Unfence(ctx, n.cfg.NodeID(), epoch); err != nil {
		return fmt.Errorf("unfencing this broker: %w", err)
	}
	return nil
}

// epoch is that of this broker's registration.
func (n *Node) epoch() int64 {
	b, ok := n.quorum.Image().Broker(n.cfg.NodeID())
	if !ok {
		return metadata.NoEpoch
	}
	return b.Epoch
}

// untilStop is a context that ends when the node stops.
func (n *Node) untilStop() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	n.jobs.Go(func() {
		select {
		case <-n.stop:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, cancel
}

// tick does the periodic work of the directories.
func (n *Node) tick() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-n.stop:
			return
		case <-t.C:
			for _, d := range n.dirs {
				d.Tick(n.o.Now())
			}
			n.applier.reopen()
		}
	}
}

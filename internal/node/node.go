// Package node opens every room of a broker in order and closes them in reverse; it has no behaviour of its own.
//
// Nouns. A [Node] is one running broker. Start order, each step needing the one before:
//
//	bind listeners ─► data directories ─► metadata log (leads, image) ─► recover every log ─► register, fenced
//	      ─► apply the image that the registration returned ─► compare it with the directories ─► unfence ─► accept
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
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/log"
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
	applier  *applier
	settings *settings
	api      *api.API
	server   *server.Server
	epoch    int64

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
	steps := []func(context.Context) error{n.bind, n.openDirs, n.openQuorum, n.recover, n.register, n.settle, n.serve}
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
	n.once.Do(func() { n.close(false) })
}

// Close stops the broker cleanly: it finishes what was asked, within ctx, then flushes and closes.
func (n *Node) Close(ctx context.Context) (err error) {
	n.once.Do(func() {
		if n.server != nil {
			err = n.server.Shutdown(ctx)
		}
		err = errors.Join(err, n.close(true))
	})
	return err
}

func (n *Node) close(clean bool) error {
	var errs []error
	close(n.stop)
	n.jobs.Wait()
	if n.api != nil {
		n.api.Close()
	}
	if n.replicas != nil {
		errs = append(errs, n.replicas.Close())
	}
	for _, d := range n.dirs {
		errs = append(errs, d.close(clean))
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
	for _, l := range n.cfg.Listeners() {
		if !n.forClients(l.Name) {
			continue
		}
		nl, err := net.Listen("tcp", l.Address())
		if err != nil {
			return fmt.Errorf("listener %s on %s: %w", l.Name, l.Address(), err)
		}
		n.bound = append(n.bound, bound{l, nl})
	}
	if len(n.bound) == 0 {
		return fmt.Errorf("%w: listeners has only %s", ErrNoListener, strings.Join(n.cfg.List("listeners"), ", "))
	}
	return nil
}

// forClients says whether clients use the listener of that name.
func (n *Node) forClients(name string) bool {
	named := func(s string) bool { return strings.EqualFold(s, name) }
	return !slices.ContainsFunc(n.cfg.List("controller.listener.names"), named) &&
		slices.ContainsFunc(n.cfg.Advertised(), func(l config.Listener) bool { return named(l.Name) })
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

// recover opens every log that the metadata knows. One that does not open is its own trouble.
func (n *Node) recover(context.Context) error {
	dirs := make([]*log.Dir, len(n.dirs))
	for i, d := range n.dirs {
		dirs[i] = d.Dir
	}
	n.settings = newSettings(n.cfg, n.quorum)
	n.replicas = isr.New(isr.Options{
		BrokerID: n.cfg.NodeID(), Dirs: dirs, Settings: n.settings.topic, Codecs: n.codecs,
		SkipUnpack: !n.cfg.Bool("keeplog.records.validate"), Logger: n.loggers.room("isr"),
	})
	n.replicas.Recover(n.quorum.Image())
	return nil
}

// settle compares the directories with the image, now that it is known to be current, and takes part.
func (n *Node) settle(ctx context.Context) error {
	img := n.quorum.Image()
	for _, d := range n.dirs {
		d.quarantineUnknown(img, n.log)
	}
	var lost []controller.PartitionRef
	for _, id := range n.replicas.Missing() {
		lost = append(lost, controller.PartitionRef{Topic: id.TopicID, Partition: id.Partition})
	}
	if len(lost) > 0 {
		if err := n.control.ReportLost(ctx, n.cfg.NodeID(), n.epoch, lost); err != nil {
			return fmt.Errorf("reporting lost data to the controller: %w", err)
		}
	}
	if err := n.control.Unfence(ctx, n.cfg.NodeID(), n.epoch); err != nil {
		return fmt.Errorf("unfencing this broker: %w", err)
	}
	return nil
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

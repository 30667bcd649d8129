package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/keeplog/keeplog/internal/torture"
)

// victim is the cluster of one torture.
type victim struct {
	cluster   *localCluster
	borrowed  bool // it was up before
	temporary bool
	keep      bool
	network   *torture.Network // nil: the nodes talk without gates
	power     *powerTool       // nil: the disks are as they are

	mu    sync.Mutex // of cluster.state and of guest
	guest *localNode // a further node that comes and goes; its ports are its own from the start
	here  bool       // the guest has a process
	noEIO string     // why fsyncs cannot be made to fail
}

// victim finds the cluster that is up, or starts one.
func (a *app) victim(ctx context.Context, dir string, f localTortureFlags) (*victim, error) {
	c, err := a.localDir(dir)
	if err != nil {
		return nil, err
	}
	found, err := c.load()
	if err != nil && f.dirGiven {
		return nil, err
	}
	if found {
		up := 0
		for _, n := range c.state.Nodes {
			if state, ok := c.running(n); ok && !state.paused() {
				up++
			}
		}
		if up == len(c.state.Nodes) && (!f.nodesGiven || up == f.nodes) {
			if len(f.set) > 0 || f.powerloss != "" {
				return nil, usagef("--set, --powerloss: the cluster in %s is up", c.shown)
			}
			return &victim{cluster: c, borrowed: true, noEIO: traceable()}, c.acquire()
		}
	}
	t := &victim{temporary: !f.dirGiven, keep: f.keep, noEIO: traceable()}
	if t.temporary {
		if dir, err = os.MkdirTemp("", "keeplog-torture-"); err != nil {
			return nil, failf("cannot make a temporary directory: %s", lastPart(err))
		}
	}
	if err = t.begin(ctx, a, dir, f); err != nil {
		if t.cluster != nil {
			t.unmount(false)
			t.cluster.release()
		}
		return nil, err
	}
	return t, nil
}

// begin starts a cluster with gates before its nodes.
func (t *victim) begin(ctx context.Context, a *app, dir string, f localTortureFlags) (err error) {
	up := f.localUpFlags
	up.anyPort = true
	// Members that vanish are missed soon, so that groups get on; what the user says counts.
	up.set = append([]string{
		"group.consumer.min.session.timeout.ms=6000", "group.consumer.session.timeout.ms=6000",
		"group.consumer.min.heartbeat.interval.ms=500", "group.consumer.heartbeat.interval.ms=1000",
	}, up.set...)
	if t.cluster, err = a.prepareLocal(dir, up); err != nil {
		return err
	}
	c := t.cluster
	var down []*localNode
	for _, n := range c.state.Nodes {
		if _, ok := c.running(n); !ok {
			down = append(down, n)
		}
	}
	if len(c.state.Nodes) > 1 && len(down) == len(c.state.Nodes) {
		if err := c.settlePorts(down, true); err != nil {
			return err
		}
		if err := t.raise(); err != nil {
			return err
		}
		up.anyPort = false
	}
	if f.powerloss != "" {
		if len(down) < len(c.state.Nodes) {
			return usagef("--powerloss: nodes of the cluster in %s are up", c.shown)
		}
		if t.power, err = newPowerTool(f.powerloss, c, f.seed); err != nil {
			return err
		}
	}
	_, err = c.up(ctx, up)
	return err
}

// raise puts gates before the nodes of a cluster that is down, and sets ports aside for a further node.
func (t *victim) raise() error {
	c := t.cluster
	guest := &localNode{ID: int32(len(c.state.Nodes) + 1)}
	ports := []*localNode{guest}
	for id := range guest.ID {
		ports = append(ports, &localNode{ID: id + 1})
	}
	// The nodes' own ports are free now, too: they are taken meanwhile, so that nobody is given one twice.
	var taken []net.Listener
	defer func() {
		for _, l := range taken {
			l.Close()
		}
	}()
	for _, n := range c.state.Nodes {
		for _, port := range c.ports(n) {
			l, err := net.Listen("tcp", localAddress(port))
			if err != nil {
				return failf("port %d: %s", port, lastPart(err))
			}
			taken = append(taken, l)
		}
	}
	if err := freePorts(ports); err != nil {
		return err
	}
	t.network = torture.NewNetwork(t.process)
	c.gates = map[int32]*localNode{}
	for _, g := range ports[1:] {
		c.gates[g.ID] = g
		n := guest
		if g.ID != guest.ID {
			n = c.state.Nodes[g.ID-1]
		}
		t.network.AddPublic(g.ID, g.address(), n.address())
		t.network.Add(g.ID, localAddress(g.Controller), localAddress(n.Controller))
		t.network.Add(g.ID, localAddress(g.Replication), localAddress(n.Replication))
		if g.ID != guest.ID {
			if err := t.network.Up(g.ID); err != nil {
				return failf("a gate before node %d: %s", g.ID, lastPart(err))
			}
		}
	}
	t.guest = guest
	return nil
}

// end leaves the cluster as it was found, and deletes a temporary one in which nothing was found.
func (t *victim) end(clean bool) error {
	c := t.cluster
	if t.network != nil {
		t.network.Close()
	}
	if t.borrowed {
		if err := c.acquire(); err != nil {
			return err
		}
		defer c.release()
		return c.startNodes(context.Background(), c.state.Nodes)
	}
	all := c.state.Nodes
	if t.guest != nil {
		all = append(slices.Clone(all), t.guest)
	}
	for _, n := range all {
		if _, ok := c.running(n); ok {
			c.abandon(all)
			break
		}
	}
	t.forget()
	t.unmount(true)
	if t.temporary && clean && !t.keep {
		quiet := *c.app
		quiet.flags.quiet = true
		c.app = &quiet
		return c.remove()
	}
	c.app.say("the files stay in %s", c.shown)
	return nil
}

// node is a node by its id, the guest too.
func (t *victim) node(id int32) *localNode {
	if int(id) > len(t.cluster.state.Nodes) {
		return t.guest
	}
	return t.cluster.state.Nodes[id-1]
}

// process implements what a torture.Network asks.
func (t *victim) process(id int32) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.node(id); n != nil && n.Process != nil {
		return n.Process.Pid
	}
	return 0
}

// Nodes implements torture.Cluster.
func (t *victim) Nodes() []torture.Node {
	var out []torture.Node
	for _, n := range t.cluster.state.Nodes {
		out = append(out, torture.Node{ID: n.ID, Address: n.address(), DataDir: t.cluster.dataDir(n)})
	}
	return out
}

// Start implements torture.Cluster.
func (t *victim) Start(id int32) error {
	if t.network != nil {
		if err := t.network.Up(id); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cluster.launch(t.node(id))
}

func (t *victim) signal(id int32, sig syscall.Signal) error {
	sent, err := t.cluster.signal(t.node(id), sig)
	if err == nil && !sent {
		return errors.New("it is not there")
	}
	return err
}

func (t *victim) signalAndWait(id int32, sig syscall.Signal, limit time.Duration) error {
	if err := t.signal(id, sig); err != nil {
		return err
	}
	if !t.cluster.ended(t.node(id), limit) {
		return fmt.Errorf("it has not ended after %s", limit)
	}
	t.gone(id)
	return nil
}

// gone closes the gates before a node that has ended.
func (t *victim) gone(id int32) {
	if t.network != nil {
		t.network.Down(id)
	}
}

// Kill implements torture.Cluster.
func (t *victim) Kill(id int32) error {
	return t.signalAndWait(id, syscall.SIGKILL, 10*time.Second)
}

// Stop implements torture.Cluster.
func (t *victim) Stop(id int32) error {
	err := t.signalAndWait(id, syscall.SIGTERM, localStopTimeout)
	if err != nil {
		_ = t.signal(id, syscall.SIGKILL)
	}
	return err
}

// Pause implements torture.Cluster.
func (t *victim) Pause(id int32) error { return t.signal(id, syscall.SIGSTOP) }

// Resume implements torture.Cluster.
func (t *victim) Resume(id int32) error { return t.signal(id, syscall.SIGCONT) }

// Running implements torture.Cluster.
func (t *victim) Running(id int32) bool {
	_, ok := t.cluster.running(t.node(id))
	return ok
}

// LastWords implements torture.Cluster.
func (t *victim) LastWords(id int32) string {
	msg, why, _ := lastError(readTail(t.cluster.logFile(t.node(id)), 0, 1<<20))
	if why != "" {
		msg += " (" + why + ")"
	}
	return msg
}

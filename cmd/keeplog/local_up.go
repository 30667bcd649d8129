package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/keeplog/keeplog/config"
)

type localUpFlags struct {
	nodes      int
	nodesGiven bool
	detach     bool
	fresh      bool
	anyPort    bool
	set        []string
}

func newLocalUpCommand(a *app, dir *string) *cobra.Command {
	var f localUpFlags
	cmd := &cobra.Command{
		Use: "up", Short: "Start a cluster, or what is down of the one that is there", Args: wantsArgs(0, 0),
		Long: "Starts the nodes of a cluster on this machine, each a process with ports and a data directory of its own, and waits until all\n" +
			"serve. It stays in the foreground until Ctrl-C, which stops them cleanly; with --detach they go on by themselves.\n" +
			"Run again it resumes the same cluster: what runs goes on, what is down is started.",
		Example: "  keeplog local up\n  keeplog local up -n 1 --detach --any-port --dir /tmp/try\n  eval \"$(keeplog local env)\"",
	}
	fl := cmd.Flags()
	fl.IntVarP(&f.nodes, "nodes", "n", 3, "number of nodes")
	fl.BoolVar(&f.detach, "detach", false, "return when the cluster is ready, and leave it running")
	fl.BoolVar(&f.fresh, "fresh", false, "delete what is in the directory first")
	fl.BoolVar(&f.anyPort, "any-port", false, "take ports that are free")
	fl.StringArrayVar(&f.set, "set", nil, "a server property of all nodes, `KEY=VALUE` (repeatable)")
	fl.BoolVarP(&a.flags.yes, "yes", "y", false, "do not ask before data is deleted")
	completeKeys(cmd, config.ScopeBroker, "=", "set")
	cmd.PreRun = func(cmd *cobra.Command, _ []string) { f.nodesGiven = cmd.Flags().Changed("nodes") }
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error { return a.localUp(ctx, *dir, f) })
	return cmd
}

func (a *app) localUp(ctx context.Context, dir string, f localUpFlags) error {
	if f.nodes < 1 || f.nodes > localMaxNodes {
		return usagef("-n %d: 1 to %d nodes", f.nodes, localMaxNodes)
	}
	if f.fresh {
		if err := a.localFresh(ctx, dir); err != nil {
			return err
		}
	}
	c, err := a.prepareLocal(dir, f)
	if err != nil {
		return err
	}
	defer c.release()
	up, err := c.up(ctx, f)
	if err != nil {
		return err
	}
	if err := a.showLocalStatus(c.shown, c.statuses(ctx)); err != nil {
		return err
	}
	c.sayReady(up)
	own := !f.detach && up.started == len(c.state.Nodes)
	if !own {
		if !f.detach && up.started < len(c.state.Nodes) {
			a.say("nodes that ran before go on running; to end them: %s", c.hint("stop"))
		}
		return nil
	}
	me, _, _ := readProcess(os.Getpid())
	c.state.Owner = &me
	if err := c.save(); err != nil {
		return err
	}
	c.release()
	return c.attend(ctx)
}

// prepareLocal opens or makes the directory, takes its lock and sees that the configuration is sound.
func (a *app) prepareLocal(dir string, f localUpFlags) (*localCluster, error) {
	c, err := a.localDir(dir)
	if err != nil {
		return nil, err
	}
	if strings.ContainsAny(c.dir, ",\n") {
		return nil, usagef("--dir %s: a comma in the path would part it in two", dir)
	}
	if _, err := c.load(); err != nil { // before anything is made in a foreign directory
		return nil, err
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return nil, c.fileError(err)
	}
	if err := c.acquire(); err != nil {
		return nil, err
	}
	made := len(c.state.Nodes) == 0
	if err := c.design(f); err != nil {
		if made { // leave nothing behind
			_ = os.Remove(filepath.Join(c.dir, localLockFile))
			_ = os.Remove(c.dir)
		}
		c.release()
		return nil, err
	}
	return c, nil
}

// design decides on the nodes of a new cluster, or takes those that are there, and checks --set.
func (c *localCluster) design(f localUpFlags) error {
	switch {
	case len(c.state.Nodes) == 0:
		c.state.Nodes = usualNodes(f.nodes)
		if f.anyPort {
			if err := freePorts(c.state.Nodes); err != nil {
				return err
			}
		}
	case f.nodesGiven && f.nodes != len(c.state.Nodes):
		return &cliError{
			msg: fmt.Sprintf("the cluster in %s has %s, not %d", c.shown, count(int64(len(c.state.Nodes)), "node"), f.nodes),
			why: "a second up resumes the same cluster", code: "OTHER_CLUSTER", exit: exitFailed,
			try: localCommand("DIR", "up", fmt.Sprintf("-n %d", f.nodes)),
		}
	}
	for _, kv := range f.set {
		k, _, ok := strings.Cut(kv, "=")
		if !ok || strings.TrimSpace(k) == "" {
			return usagef("--set %s: not KEY=VALUE", kv)
		}
		c.state.Set = slices.DeleteFunc(c.state.Set, func(old string) bool { return strings.HasPrefix(old, k+"=") })
		c.state.Set = append(c.state.Set, kv)
	}
	if len(f.set) > 0 {
		quiet := *c.app
		quiet.flags.quiet = true
		in := brokerFlags{set: c.state.Set}
		if _, err := quiet.load(in, nil); err != nil {
			return err
		}
	}
	return nil
}

// upDone is what an up has done.
type upDone struct {
	started int
	leader  int32
	took    time.Duration
}

// up starts what is down and waits until all serve; the caller holds the lock. If that fails, what it started is stopped.
func (c *localCluster) up(ctx context.Context, f localUpFlags) (upDone, error) {
	began := time.Now()
	var down []*localNode
	for _, n := range c.state.Nodes {
		if _, ok := c.running(n); !ok {
			down = append(down, n)
		}
	}
	if err := c.settlePorts(down, f.anyPort); err != nil {
		return upDone{}, err
	}
	if len(down) == len(c.state.Nodes) {
		c.state.Owner = nil
	}
	if err := c.save(); err != nil {
		return upDone{}, err
	}
	c.warnOfSpace()
	leader, err := c.startAll(ctx, down, c.state.Nodes)
	if err != nil {
		c.abandon(down)
		return upDone{}, err
	}
	return upDone{len(down), leader, time.Since(began)}, nil
}

// startAll launches the nodes down, all at once, and waits until those of ready serve.
func (c *localCluster) startAll(ctx context.Context, down, ready []*localNode) (leader int32, err error) {
	since := map[int32]int64{}
	for _, n := range down {
		since[n.ID] = c.logSize(n)
		if err := c.launch(n); err != nil {
			return -1, err
		}
	}
	return c.awaitReady(ctx, ready, since)
}

// settlePorts sees that the nodes which are down can listen.
func (c *localCluster) settlePorts(down []*localNode, anyPort bool) error {
	for _, n := range down {
		err := c.checkPorts(n)
		var ce *cliError
		if err == nil || !anyPort || !errors.As(err, &ce) || ce.code != "PORT_IN_USE" {
			if err != nil {
				return err
			}
			continue
		}
		if len(down) < len(c.state.Nodes) && len(c.state.Nodes) > 1 {
			ce.why, ce.try = "the other nodes know this one by its port", localCommand(c.shown, "stop")+", then: "+localCommand(c.shown, "up", "--any-port")
			return ce
		}
		if err := freePorts(down); err != nil {
			return err
		}
		return nil
	}
	return nil
}

// warnOfSpace says when the disk has so little space that the nodes refuse to write.
func (c *localCluster) warnOfSpace() {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(c.dir, &fs); err != nil {
		return
	}
	free, all := int64(fs.Bavail)*fs.Bsize, int64(fs.Blocks)*fs.Bsize
	if reserve := min(max(all/50, 256<<20), all/8); free <= reserve {
		c.app.say("warning: the disk that holds %s has %s free, below the reserve of %s: writes will be refused", c.shown, size(free), size(reserve))
	}
}

// abandon ends what a failed up has started.
func (c *localCluster) abandon(nodes []*localNode) {
	for _, n := range nodes {
		_, _ = c.signal(n, syscall.SIGTERM)
	}
	for _, n := range nodes {
		if !c.ended(n, 5*time.Second) {
			_, _ = c.signal(n, syscall.SIGKILL)
		}
	}
}

func (c *localCluster) sayReady(up upDone) {
	a := c.app
	line := "ready in " + seconds(up.took)
	if up.started == 0 {
		line = "all nodes run already"
	}
	if len(c.state.Nodes) > 1 {
		line += fmt.Sprintf(", leader of metadata: node %d", up.leader)
	}
	a.say("%s", line)
	first, then := "echo hello | keeplog produce greetings", "keeplog consume greetings --exit"
	if p := program(); p != "keeplog" {
		first, then = "echo hello | "+shellWord(p)+" produce greetings", shellWord(p)+" consume greetings --exit"
	}
	if c.state.Nodes[0].Kafka != localBasePort {
		a.say("First: eval \"$(%s)\"", c.hint("env"))
	}
	a.say("Try:  %s      then:  %s", first, then)
}

// seconds is a duration for people.
func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }

// attend stays with the nodes until the person ends it, or until they were stopped by another command.
func (c *localCluster) attend(ctx context.Context) error {
	c.app.say("Ctrl-C stops the cluster")
	hangup, done := hangups(ctx)
	defer done()
	seen := map[int32]bool{}
	for _, n := range c.state.Nodes {
		seen[n.ID] = true
	}
	for {
		select {
		case <-ctx.Done():
			return c.endAttended()
		case <-hangup:
			return c.endAttended()
		case <-time.After(300 * time.Millisecond):
		}
		if found, err := c.load(); err != nil || !found {
			c.app.say("the cluster was removed")
			return nil
		}
		if me, _, _ := readProcess(os.Getpid()); c.state.Owner == nil || *c.state.Owner != me {
			c.app.say("the cluster was stopped")
			return nil
		}
		for _, n := range c.state.Nodes {
			_, up := c.running(n)
			if up == seen[n.ID] {
				continue
			}
			seen[n.ID] = up
			if up {
				c.app.say("node %d is started again", n.ID)
			} else {
				c.app.say("node %d has ended; to start it: %s", n.ID, c.hint("start", fmt.Sprint(n.ID)))
			}
		}
	}
}

// endAttended stops the nodes at the end of an up in the foreground.
func (c *localCluster) endAttended() error {
	c.app.say("")
	if err := c.acquire(); err != nil {
		return err
	}
	defer c.release()
	c.state.Owner = nil
	if err := c.save(); err != nil {
		c.app.say("warning: %v", err)
	}
	return c.stopNodes(c.state.Nodes)
}

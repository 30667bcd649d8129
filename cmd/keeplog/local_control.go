package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// hangups tells of a terminal that went away.
func hangups(ctx context.Context) (<-chan os.Signal, func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}

// ended waits until the node's process has ended.
func (c *localCluster) ended(n *localNode, limit time.Duration) bool {
	return waitUntil(limit, func() bool { _, ok := c.running(n); return !ok })
}

// completeNodes offers the nodes of the directory.
func (a *app) completeNodes(dir *string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var out []cobra.Completion
		if c, err := a.openLocal(*dir); err == nil {
			for _, n := range c.state.Nodes {
				if id := fmt.Sprint(n.ID); !slices.Contains(args, id) {
					out = append(out, id)
				}
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

func newLocalStopCommand(a *app, dir *string) *cobra.Command {
	return &cobra.Command{
		Use: "stop [N...]", Short: "Stop nodes cleanly, all unless some are named", Args: wantsArgs(0, localMaxNodes),
		ValidArgsFunction: a.completeNodes(dir),
		RunE: a.run(func(ctx context.Context, ids []string) error {
			c, err := a.lockLocal(*dir)
			if err != nil {
				return err
			}
			defer c.release()
			nodes, err := c.named(ids)
			if err != nil {
				return err
			}
			if len(nodes) == len(c.state.Nodes) {
				c.state.Owner = nil
				if err := c.save(); err != nil {
					return err
				}
			}
			return c.stopNodes(nodes)
		}),
	}
}

// stopNodes stops nodes cleanly, all at the same time, and tells what became of each.
func (c *localCluster) stopNodes(nodes []*localNode) error {
	var stopping []*localNode
	for _, n := range nodes {
		state, ok := c.running(n)
		if !ok {
			continue
		}
		sent, err := c.signal(n, syscall.SIGTERM)
		if err != nil {
			return failf("node %d: cannot stop it (%s)", n.ID, lastPart(err))
		}
		if state.paused() {
			_, _ = c.signal(n, syscall.SIGCONT)
		}
		if sent {
			stopping = append(stopping, n)
		}
	}
	for _, n := range stopping {
		if !c.ended(n, localStopTimeout) {
			e := failf("node %d has not stopped within %s", n.ID, localStopTimeout)
			e.try = localCommand(c.shown, "kill", fmt.Sprint(n.ID))
			return e
		}
		c.app.say("stopped node %d", n.ID)
	}
	if len(stopping) == 0 {
		c.app.say("nothing to stop: %s", are(nodes, "down"))
	}
	return nil
}

// are is "node 1 is down", "nodes 1, 2 are down".
func are(nodes []*localNode, what string) string {
	ids := make([]string, len(nodes))
	for i, n := range nodes {
		ids[i] = fmt.Sprint(n.ID)
	}
	if len(ids) == 1 {
		return "node " + ids[0] + " is " + what
	}
	return "nodes " + strings.Join(ids, ", ") + " are " + what
}

func newLocalStartCommand(a *app, dir *string) *cobra.Command {
	return &cobra.Command{
		Use: "start [N...]", Short: "Start nodes that are down", Args: wantsArgs(0, localMaxNodes), ValidArgsFunction: a.completeNodes(dir),
		RunE: a.run(func(ctx context.Context, ids []string) error {
			c, err := a.lockLocal(*dir)
			if err != nil {
				return err
			}
			defer c.release()
			nodes, err := c.named(ids)
			if err != nil {
				return err
			}
			return c.startNodes(ctx, nodes)
		}),
	}
}

// startNodes starts those of nodes that are down and waits until they serve, or, where too few nodes run for a leader, until
// they are up.
func (c *localCluster) startNodes(ctx context.Context, nodes []*localNode) error {
	began := time.Now()
	var down []*localNode
	for _, n := range nodes {
		if state, ok := c.running(n); !ok {
			down = append(down, n)
		} else if state.paused() {
			c.app.say("node %d is paused; to let it go on: %s", n.ID, c.hint("kill", fmt.Sprint(n.ID), "--signal", "CONT"))
		}
	}
	if len(down) == 0 {
		c.app.say("nothing to start: %s", are(nodes, "up"))
		return nil
	}
	for _, n := range down {
		if err := c.checkPorts(n); err != nil {
			return err
		}
	}
	up := 0
	for _, n := range c.state.Nodes {
		if state, ok := c.running(n); ok && !state.paused() {
			up++
		}
	}
	if enough := len(c.state.Nodes)/2 + 1; up+len(down) < enough {
		since := map[int32]int64{}
		for _, n := range down {
			since[n.ID] = c.logSize(n)
			if err := c.launch(n); err != nil {
				return err
			}
		}
		for _, n := range down {
			if c.ended(n, 500*time.Millisecond) {
				return c.startFailure(n, since[n.ID])
			}
			c.app.say("started node %d; it serves when %d of the %d nodes run", n.ID, enough, len(c.state.Nodes))
		}
		return nil
	}
	if _, err := c.startAll(ctx, down, down); err != nil {
		return err
	}
	for _, n := range down {
		c.app.say("started node %d in %s", n.ID, seconds(time.Since(began)))
	}
	return nil
}

func newLocalKillCommand(a *app, dir *string) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "kill N...", Short: "Kill nodes, or send them another signal", Args: wantsArgs(1, localMaxNodes), ValidArgsFunction: a.completeNodes(dir),
		Long:    "Sends a signal to nodes: KILL unless --signal names another. STOP pauses a node, CONT lets it go on.",
		Example: "  keeplog local kill 2\n  keeplog local kill 1 3 --signal STOP",
		RunE: a.run(func(ctx context.Context, ids []string) error {
			sig, ok := localSignals[strings.TrimPrefix(strings.ToUpper(name), "SIG")]
			if !ok {
				return &cliError{msg: fmt.Sprintf("--signal %s: unknown", name), try: "--signal " + strings.Join(signalNames(), "|"), exit: exitUsage}
			}
			c, err := a.lockLocal(*dir)
			if err != nil {
				return err
			}
			defer c.release()
			nodes, err := c.named(ids)
			if err != nil {
				return err
			}
			return c.kill(nodes, sig)
		}),
	}
	cmd.Flags().StringVar(&name, "signal", "KILL", "`SIGNAL` to send: "+strings.Join(signalNames(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("signal", cobra.FixedCompletions(signalNames(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

var localSignals = map[string]syscall.Signal{
	"KILL": syscall.SIGKILL, "TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT,
	"QUIT": syscall.SIGQUIT, "ABRT": syscall.SIGABRT,
}

func signalNames() []string {
	var names []string
	for n := range localSignals {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func (c *localCluster) kill(nodes []*localNode, sig syscall.Signal) error {
	sent := 0
	for _, n := range nodes {
		pid := 0
		if n.Process != nil {
			pid = n.Process.Pid
		}
		ok, err := c.signal(n, sig)
		if err != nil {
			return failf("node %d: cannot send it the signal (%s)", n.ID, lastPart(err))
		}
		if !ok {
			c.app.say("node %d is down already", n.ID)
			continue
		}
		sent++
		switch sig {
		case syscall.SIGKILL:
			if !c.ended(n, 5*time.Second) {
				return failf("node %d: process %d does not end", n.ID, pid)
			}
			c.app.say("killed node %d (process %d); to start it: %s", n.ID, pid, c.hint("start", fmt.Sprint(n.ID)))
		case syscall.SIGSTOP:
			waitUntil(2*time.Second, func() bool { state, ok := c.running(n); return !ok || state.paused() })
			c.app.say("paused node %d (process %d); to let it go on: %s", n.ID, pid, c.hint("kill", fmt.Sprint(n.ID), "--signal", "CONT"))
		default:
			c.app.say("sent the signal to node %d (process %d)", n.ID, pid)
		}
	}
	if sent == 0 {
		return &cliError{msg: are(nodes, "down"), code: "DOWN", try: localCommand(c.shown, "start"), exit: exitFailed}
	}
	return nil
}

func newLocalRestartCommand(a *app, dir *string) *cobra.Command {
	return &cobra.Command{
		Use: "restart [N...]", Short: "Stop and start nodes, one after the other, all unless some are named", Args: wantsArgs(0, localMaxNodes),
		ValidArgsFunction: a.completeNodes(dir),
		RunE: a.run(func(ctx context.Context, ids []string) error {
			c, err := a.lockLocal(*dir)
			if err != nil {
				return err
			}
			defer c.release()
			nodes, err := c.named(ids)
			if err != nil {
				return err
			}
			for i, n := range nodes {
				if i > 0 {
					c.awaitInSync(ctx)
				}
				if _, ok := c.running(n); ok {
					if err := c.stopNodes([]*localNode{n}); err != nil {
						return err
					}
				}
				if err := c.startNodes(ctx, []*localNode{n}); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

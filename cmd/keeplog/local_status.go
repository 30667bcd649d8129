package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

// nodeStatus is one node as "local status" shows it.
type nodeStatus struct {
	ID    int32  `json:"id"`
	Pid   int    `json:"pid"`   // 0 when it is down
	State string `json:"state"` // up, starting, paused, down
	Kafka string `json:"kafka"`
	Data  string `json:"data"`
}

func newLocalStatusCommand(a *app, dir *string) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the nodes and whether they run", Args: wantsArgs(0, 0),
		RunE: a.run(func(ctx context.Context, _ []string) error {
			c, err := a.openLocal(*dir)
			if err != nil {
				return err
			}
			return a.showLocalTable(c.shown, c.statuses(ctx))
		}),
	}
}

// statuses asks every node that runs.
func (c *localCluster) statuses(ctx context.Context) []nodeStatus {
	probe := newLocalProbe()
	defer probe.close()
	out := make([]nodeStatus, len(c.state.Nodes))
	var wg sync.WaitGroup
	for i, n := range c.state.Nodes {
		wg.Go(func() {
			s := nodeStatus{ID: n.ID, State: "down", Kafka: n.address(), Data: filepath.Join(c.shown, strconv.Itoa(int(n.ID)))}
			if !filepath.IsAbs(s.Data) && strings.HasPrefix(c.shown, "./") {
				s.Data = "./" + s.Data
			}
			if state, ok := c.running(n); ok {
				s.Pid, s.State = n.Process.Pid, "starting"
				ask, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				if state.paused() {
					s.State = "paused"
				} else if v, err := probe.ask(ask, n.address()); err == nil && v.controller >= 0 {
					s.State = "up"
				}
			}
			out[i] = s
		})
	}
	wg.Wait()
	return out
}

func localBody(dir string, nodes []nodeStatus) (any, []any) {
	items := make([]any, len(nodes))
	for i := range nodes {
		items[i] = nodes[i]
	}
	return struct {
		Version int          `json:"version"`
		Dir     string       `json:"dir"`
		Nodes   []nodeStatus `json:"nodes"`
	}{1, dir, nodes}, items
}

// showLocalStatus prints the nodes as up does, a line each.
func (a *app) showLocalStatus(dir string, nodes []nodeStatus) error {
	body, items := localBody(dir, nodes)
	return a.show(result{body: body, items: items, text: func(t *text) {
		for _, n := range nodes {
			t.line("node %d  kafka %-16s data %s", n.ID, n.Kafka, n.Data)
		}
	}})
}

func (a *app) showLocalTable(dir string, nodes []nodeStatus) error {
	body, items := localBody(dir, nodes)
	return a.show(result{body: body, items: items, text: func(t *text) {
		rows := make([][]string, len(nodes))
		for i, n := range nodes {
			pid := "-"
			if n.Pid > 0 {
				pid = strconv.Itoa(n.Pid)
			}
			rows[i] = []string{fmt.Sprint(n.ID), n.State, pid, n.Kafka, n.Data}
		}
		t.table([]string{"NODE", "STATE", "PID", "KAFKA", "DATA"}, rows)
	}})
}

func newLocalEnvCommand(a *app, dir *string) *cobra.Command {
	return &cobra.Command{
		Use: "env", Short: "Print the shell line that points other commands at the cluster", Args: wantsArgs(0, 0),
		Example: "  eval \"$(keeplog local env)\"",
		RunE: a.run(func(context.Context, []string) error {
			c, err := a.openLocal(*dir)
			if err != nil {
				return err
			}
			body := struct {
				Version int    `json:"version"`
				Brokers string `json:"KEEPLOG_BROKERS"`
			}{1, c.addresses()}
			return a.show(result{body: body, text: func(t *text) { t.line("export KEEPLOG_BROKERS=%s", body.Brokers) }})
		}),
	}
}

func newLocalLogsCommand(a *app, dir *string) *cobra.Command {
	var follow bool
	var tail int
	cmd := &cobra.Command{
		Use: "logs N", Short: "Print what a node said", Args: wantsArgs(1, 1), ValidArgsFunction: a.completeNodes(dir),
		RunE: a.run(func(ctx context.Context, ids []string) error {
			c, err := a.openLocal(*dir)
			if err != nil {
				return err
			}
			nodes, err := c.named(ids)
			if err != nil {
				return err
			}
			return c.printLog(ctx, nodes[0], tail, follow)
		}),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on printing what comes")
	cmd.Flags().IntVar(&tail, "tail", 0, "only the last `LINES`")
	return cmd
}

// printLog prints the log of a node, with tail > 0 its last lines, and with follow what comes until ctx is done.
func (c *localCluster) printLog(ctx context.Context, n *localNode, tail int, follow bool) error {
	f, err := os.Open(c.logFile(n))
	if err != nil {
		return c.fileError(err)
	}
	defer f.Close()
	var from int64
	if tail > 0 {
		raw := readTail(c.logFile(n), 0, 16<<20)
		if info, err := f.Stat(); err == nil {
			from = info.Size() - int64(len(lastLines(raw, tail)))
		}
	}
	for {
		wrote, err := io.Copy(c.app.out, io.NewSectionReader(f, from, 1<<40))
		if err != nil {
			return failf("%s: %s", c.logFile(n), lastPart(err))
		}
		from += wrote
		if !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// lastLines is the end of b with at most n lines.
func lastLines(b []byte, n int) []byte {
	at := len(b)
	if at > 0 && b[at-1] == '\n' {
		at--
	}
	for ; n > 0 && at >= 0; n-- {
		at = bytes.LastIndexByte(b[:at], '\n')
	}
	return b[at+1:]
}

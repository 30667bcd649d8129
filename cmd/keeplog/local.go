package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// The cluster on this machine, "keeplog local":
//
//	keeplog-local/           one directory, one cluster
//	├── cluster.json         nodes, ports, processes: localState
//	├── lock                 held by the command that changes the cluster now
//	├── node-1.properties    what "keeplog serve" is started with, written anew at each start
//	├── node-1.log           what it said
//	└── 1/                   its data directory
//
// The nouns:
//
//   - localCluster is such a directory, opened by one command.
//   - localNode is a node of it: its ports, and the process that runs it now.
//   - processID names a process for good: its pid alone would name another one later.
//
// Every process is one that a command of this directory started. A signal goes only to a process that still is the one that
// was started: same pid, same start, same command line.

const (
	localDefaultDir = "keeplog-local"
	localBasePort   = 9092 // node N: 9092 + 100·(N−1), and the two ports behind it
	localPortStep   = 100
	localMaxNodes   = 9
	// localReadyTimeout is how long nodes may take to start. Recovery after a kill is part of it.
	localReadyTimeout = 60 * time.Second
	// localStopTimeout is how long a node may take to stop cleanly.
	localStopTimeout = 40 * time.Second
)

func newLocalCommand(a *app) *cobra.Command {
	var dir string
	cmd := a.group("local", "Run a cluster on this machine: start it, kill its nodes, torture it",
		newLocalUpCommand(a, &dir), newLocalStatusCommand(a, &dir), newLocalStopCommand(a, &dir), newLocalStartCommand(a, &dir),
		newLocalKillCommand(a, &dir), newLocalRestartCommand(a, &dir), newLocalLogsCommand(a, &dir), newLocalRmCommand(a, &dir),
		newLocalEnvCommand(a, &dir), newLocalTortureCommand(a, &dir))
	cmd.PersistentFlags().StringVar(&dir, "dir", "./"+localDefaultDir, "the cluster's `DIR`")
	a.outputFlags(cmd)
	return cmd
}

// localCommand is "keeplog local" and more words, with --dir where it is not the default.
func localCommand(dir string, words ...string) string {
	all := append([]string{"keeplog", "local"}, words...)
	if dir != "" && strings.TrimPrefix(dir, "./") != localDefaultDir {
		all = append(all, "--dir", shellWord(dir))
	}
	return strings.Join(all, " ")
}

func localAddress(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// hint is a command of this cluster to be pasted.
func (c *localCluster) hint(words ...string) string {
	return strings.Replace(localCommand(c.shown, words...), "keeplog", shellWord(program()), 1)
}

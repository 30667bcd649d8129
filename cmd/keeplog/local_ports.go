package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// ports are those that the node listens on.
func (c *localCluster) ports(n *localNode) []int {
	if len(c.state.Nodes) == 1 {
		return []int{n.Kafka}
	}
	return []int{n.Kafka, n.Controller, n.Replication}
}

// usualNodes are count nodes with the ports 9092, 9093, 9094, 9192 …
func usualNodes(count int) []*localNode {
	nodes := make([]*localNode, count)
	for i := range nodes {
		base := localBasePort + i*localPortStep
		nodes[i] = &localNode{ID: int32(i + 1), Kafka: base, Controller: base + 1, Replication: base + 2}
	}
	return nodes
}

// freePorts gives the nodes ports that nothing listens on. They lie below those that the system gives to outgoing
// connections, so that none of these takes the port of a node that is down for a while.
func freePorts(nodes []*localNode) error {
	const low, high = 10_000, 32_000
	taken := map[int]bool{}
	at := low + os.Getpid()*97%(high-low) // commands side by side begin to look at different places
	next := func() (int, error) {
		for range high - low {
			if at++; at >= high {
				at = low
			}
			if !taken[at] && portFree(at) == nil {
				taken[at] = true
				return at, nil
			}
		}
		return 0, failf("no free port between %d and %d", low, high)
	}
	for _, n := range nodes {
		for _, port := range []*int{&n.Kafka, &n.Controller, &n.Replication} {
			p, err := next()
			if err != nil {
				return err
			}
			*port = p
		}
	}
	return nil
}

// portFree is nil where a node could listen now.
func portFree(port int) error {
	l, err := net.Listen("tcp", localAddress(port))
	if err != nil {
		return err
	}
	return l.Close()
}

// checkPorts sees that the ports of a node that is down are free.
func (c *localCluster) checkPorts(n *localNode) error {
	for i, port := range c.ports(n) {
		err := portFree(port)
		if err == nil {
			continue
		}
		purpose := []string{"clients", "the metadata log", "replication"}[i]
		e := failf("port %d, where node %d listens for %s, cannot be used (%s)", port, n.ID, purpose, lastPart(err))
		if errors.Is(err, syscall.EADDRINUSE) {
			e.msg = fmt.Sprintf("port %d, where node %d listens for %s, is in use", port, n.ID, purpose)
			e.code, e.try = "PORT_IN_USE", localCommand(c.shown, "up", "--any-port")
			if pid := portOwner(port); pid > 0 {
				words := commandOf(pid)
				e.why = fmt.Sprintf("process %d listens there: %s", pid, short(strings.Join(words, " "), 80))
				if dir := clusterOf(words); dir != "" {
					e.why = fmt.Sprintf("a node of the cluster in %s listens there (process %d)", dir, pid)
					e.try = localCommand(dir, "stop") + ", or " + e.try
				}
			}
		}
		return e
	}
	return nil
}

// clusterOf is the directory of the local cluster that a process with this command line is a node of.
func clusterOf(words []string) string {
	for _, w := range words {
		if name := filepath.Base(w); strings.HasPrefix(name, "node-") && strings.HasSuffix(name, ".properties") && slices.Contains(words, "serve") {
			return filepath.Dir(w)
		}
	}
	return ""
}

func short(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

// portOwner finds the process that listens on a port, 0 when it cannot be seen.
func portOwner(port int) int {
	sockets := listeningSockets(port)
	if len(sockets) == 0 {
		return 0
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		to, err := os.Readlink(link)
		if err == nil && slices.Contains(sockets, to) {
			pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
			return pid
		}
	}
	return 0
}

// listeningSockets are the names that the sockets listening on port have below /proc/PID/fd.
func listeningSockets(port int) []string {
	var out []string
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		raw, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for _, line := range strings.Split(string(raw), "\n")[1:] {
			f := strings.Fields(line)
			if len(f) > 9 && f[3] == "0A" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				out = append(out, "socket:["+f[9]+"]")
			}
		}
	}
	return out
}

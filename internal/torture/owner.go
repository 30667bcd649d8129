package torture

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// whose finds the node that made a connection to a gate; Clients when it was none.
func (n *Network) whose(conn net.Conn) int32 {
	from, ok := conn.RemoteAddr().(*net.TCPAddr)
	to, also := conn.LocalAddr().(*net.TCPAddr)
	if !ok || !also {
		return Clients
	}
	// A process that was started a moment ago may connect before its id is known here.
	for deadline := time.Now().Add(100 * time.Millisecond); ; {
		name := socketName(from.Port, to.Port)
		if name == "" {
			return Clients // it has gone already
		}
		if hasSocket(os.Getpid(), name) {
			return Clients
		}
		for _, node := range n.known() {
			if pid := n.process(node); pid > 0 && hasSocket(pid, name) {
				return node
			}
		}
		if time.Now().After(deadline) {
			return Clients
		}
		<-time.After(10 * time.Millisecond)
	}
}

// known are the nodes that have gates.
func (n *Network) known() []int32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	var ids []int32
	for _, g := range n.gates {
		if !slices.Contains(ids, g.node) {
			ids = append(ids, g.node)
		}
	}
	return ids
}

// socketName is the name that a socket connected from one port of this machine to another has below /proc/PID/fd.
func socketName(from, to int) string {
	raw, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return ""
	}
	local, remote := fmt.Sprintf(":%04X", from), fmt.Sprintf(":%04X", to)
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) > 9 && strings.HasSuffix(f[1], local) && strings.HasSuffix(f[2], remote) && f[9] != "0" {
			return "socket:[" + f[9] + "]"
		}
	}
	return ""
}

// hasSocket says whether a process has the socket open.
func hasSocket(pid int, name string) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		return err == nil && to == name
	})
}

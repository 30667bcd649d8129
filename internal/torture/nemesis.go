package torture

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Node is a node of a cluster.
type Node struct {
	ID int32
	// Address is HOST:PORT for clients.
	Address string
	// DataDir is its data directory; it is read, while the node is down.
	DataDir string
}

// Cluster is a cluster of processes of the one who implements it. Calls about different nodes may come at the same time.
type Cluster interface {
	// Nodes are all nodes; they stay the same.
	Nodes() []Node
	// Start starts the node's process and does not wait until it serves.
	Start(node int32) error
	// Kill ends the process with SIGKILL and waits until it is gone.
	Kill(node int32) error
	// Pause and Resume send SIGSTOP and SIGCONT.
	Pause(node int32) error
	Resume(node int32) error
	// Stop stops the process cleanly and waits until it is gone; an error when it takes too long.
	Stop(node int32) error
	// Running says whether the process is there, paused or not.
	Running(node int32) bool
	// LastWords is the last error that the process told, empty for none.
	LastWords(node int32) string
}

// nemesis carries a plan out.
type nemesis struct {
	cluster Cluster
	check   *Checker
	began   time.Time
	say     func(string)

	mu      sync.Mutex
	changes []Change
}

// run does every step at its time, each node's in order, and returns when all are done or ctx is. What it has ended or paused by
// then stays so: heal comes next.
func (n *nemesis) run(ctx context.Context, p plan) {
	var wg sync.WaitGroup
	for _, steps := range p.steps {
		wg.Go(func() {
			for _, s := range steps {
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Until(n.began.Add(s.at))):
				}
				n.do(s)
			}
		})
	}
	wg.Wait()
}

func (n *nemesis) do(s step) {
	if s.act != actStart && !n.cluster.Running(s.node) {
		n.endedByItself(s.node)
		return
	}
	n.say(fmt.Sprintf("%6.1fs  %s node %d", time.Since(n.began).Seconds(), s.act, s.node))
	var err error
	switch s.act {
	case actKill:
		n.changed(s.node, false)
		err = n.cluster.Kill(s.node)
	case actStop:
		n.changed(s.node, false)
		err = n.cluster.Stop(s.node)
	case actPause:
		n.changed(s.node, false)
		err = n.cluster.Pause(s.node)
	case actResume:
		n.changed(s.node, true)
		err = n.cluster.Resume(s.node)
	case actStart:
		n.changed(s.node, true)
		err = n.cluster.Start(s.node)
	}
	if err != nil {
		n.check.Violated(NotHealed, "%s node %d: %v", s.act, s.node, err)
	}
}

// endedByItself counts a process that nobody ended, and starts it again.
func (n *nemesis) endedByItself(node int32) {
	words := n.cluster.LastWords(node)
	if words == "" {
		words = "it said nothing"
	}
	n.check.Violated(Ended, "node %d: %s", node, words)
	n.say(fmt.Sprintf("%6.1fs  node %d has ended by itself: %s", time.Since(n.began).Seconds(), node, words))
	if err := n.cluster.Start(node); err != nil {
		n.check.Violated(NotHealed, "start node %d: %v", node, err)
	}
}

func (n *nemesis) changed(node int32, up bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changes = append(n.changes, Change{At: time.Since(n.began), Node: node, Up: up})
}

// heal lets every node run.
func (n *nemesis) heal() {
	n.mu.Lock()
	last := map[int32]bool{} // by the changes, whether we left it up
	for _, node := range n.cluster.Nodes() {
		last[node.ID] = true
	}
	for _, ch := range n.changes {
		last[ch.Node] = ch.Up
	}
	n.mu.Unlock()
	for _, node := range n.cluster.Nodes() {
		up, running := last[node.ID], n.cluster.Running(node.ID)
		switch {
		case running && !up:
			n.do(step{node: node.ID, act: actResume})
		case !running && !up:
			n.do(step{node: node.ID, act: actStart})
		case !running:
			n.endedByItself(node.ID)
		}
	}
}

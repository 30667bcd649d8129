package torture

import (
	"context"
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

// Cluster is a cluster of processes of the one who implements it. Calls about different nodes may come at the same time. What it can do
// beyond is [Room], [Members], [Disk] and [Power].
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

// Members is a Cluster whose nodes come and go, and whose files are nobody else's.
type Members interface {
	// Fixed says why nodes and files must stay as they are; empty where they need not.
	Fixed() string
	// Join starts a further node with an empty directory, and returns when it has joined. It is not among Nodes, and can be killed and
	// started as they can.
	Join(ctx context.Context) (Node, error)
	// Leave takes such a node out of the cluster, as an operator would, and ends it.
	Leave(ctx context.Context, node int32) error
	// Replace kills a node, wipes its disk, and lets it come back with the commands that it is refused with.
	Replace(ctx context.Context, node int32) error
}

// Room is a Cluster whose nodes can be made to believe that their disks are full.
type Room interface {
	// SetFull decides it for the next start of a node.
	SetFull(node int32, full bool)
}

// Disk is a Cluster whose fsyncs can be made to fail.
type Disk interface {
	// NoDisk says why not; empty where they can.
	NoDisk() string
	// FailSync makes every fsync of a node fail, and returns when it has ended; an error when it does not, or for another reason.
	FailSync(ctx context.Context, node int32) error
	// SlowSync makes every fsync of a node take longer until stop is called.
	SlowSync(node int32, each time.Duration) (stop func(), err error)
}

// Power is a Cluster whose disks forget what was not fsynced.
type Power interface {
	// NoPower says why not; empty where they do.
	NoPower() string
	// PowerFail ends the processes of nodes at once, and what they had not fsynced is gone: all of it with seed 0, else a random part.
	PowerFail(nodes []int32, seed uint64) error
}

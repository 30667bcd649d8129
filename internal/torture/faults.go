package torture

import (
	"fmt"
	"slices"
	"strings"
)

// The faults that a plan may hold.
const (
	FaultKill       = "kill"
	FaultKillAll    = "kill-all"
	FaultPause      = "pause"
	FaultPauseAll   = "pause-all"
	FaultRestart    = "restart"
	FaultRestartAll = "restart-all"
	FaultIsolate    = "isolate"
	FaultSplit      = "split"
	FaultBridge     = "bridge"
	FaultOneWay     = "oneway"
	FaultSlow       = "slow"
	FaultDrop       = "drop"
	FaultTransfer   = "transfer"
	FaultController = "controller"
	FaultReassign   = "reassign"
	FaultMembers    = "members"
	FaultReplace    = "replace"
	FaultFull       = "full"
	FaultRot        = "rot"
	FaultSync       = "eio"
	FaultStall      = "stall"
	FaultPower      = "power"
	FaultPowerAll   = "power-all"
)

// lane is what a fault takes for itself. Faults of different lanes overlap; of one lane they do so for different nodes only.
type lane uint8

const (
	laneNode     lane = iota // nodes, each for itself
	laneNetwork              // the network as a whole
	laneOperator             // what an operator does: one thing at a time
)

// Fault is a kind of fault.
type Fault struct {
	Name string
	// Doc says what happens, in words that follow the name.
	Doc string
	// Nodes is how many nodes the cluster must have.
	Nodes int
	// Needs is what the cluster must be able to do.
	Needs Need

	lane   lane
	weight int // how many cards of a deck it is
	all    bool
}

// Need is what a fault needs of a [Cluster] beside its signals.
type Need uint8

// What faults need.
const (
	NeedsNothing  Need = iota
	NeedsNetwork       // [Options.Network]
	NeedsRoom          // [Room]
	NeedsMembers       // [Members]
	NeedsOwnFiles      // a cluster whose files may be damaged
	NeedsDisk          // [Disk]
	NeedsPower         // [Power]
)

// Faults are all faults, in the order in which they are told.
func Faults() []Fault {
	return []Fault{
		{FaultKill, "kill -9 of one node, now and then again while it recovers", 1, NeedsNothing, laneNode, 4, false},
		{FaultKillAll, "kill -9 of all nodes at once", 1, NeedsNothing, laneNode, 2, true},
		{FaultPause, "SIGSTOP of one node for 0.5 to 15 s", 1, NeedsNothing, laneNode, 3, false},
		{FaultPauseAll, "SIGSTOP of all nodes for 0.5 to 8 s each", 1, NeedsNothing, laneNode, 1, true},
		{FaultRestart, "one node is stopped cleanly and started again", 1, NeedsNothing, laneNode, 2, false},
		{FaultRestartAll, "all nodes are stopped cleanly at once", 1, NeedsNothing, laneNode, 1, true},
		{FaultIsolate, "one node and the others cannot reach each other, sometimes clients cannot reach it either", 2, NeedsNetwork, laneNetwork, 3, false},
		{FaultSplit, "the nodes fall apart into groups, a majority among them or not", 2, NeedsNetwork, laneNetwork, 2, false},
		{FaultBridge, "one node reaches all others, which do not reach each other", 3, NeedsNetwork, laneNetwork, 1, false},
		{FaultOneWay, "what one node sends does not arrive, or nothing arrives at it", 2, NeedsNetwork, laneNetwork, 3, false},
		{FaultSlow, "the links of one node or of all get a latency of 5 to 500 ms and 256 KiB/s to 4 MiB/s", 2, NeedsNetwork, laneNetwork, 2, false},
		{FaultDrop, "connections break, those of clients too", 1, NeedsNetwork, laneNetwork, 2, false},
		{FaultTransfer, "the node that leads the metadata log is stopped cleanly and hands over", 2, NeedsNothing, laneOperator, 1, false},
		{FaultController, "kill -9 of the node that leads the metadata log", 2, NeedsNothing, laneOperator, 2, false},
		{FaultReassign, "partitions get other replicas, and their former ones again; leaders are elected anew", 3, NeedsNothing, laneOperator, 2, false},
		{FaultMembers, "a further node joins, gets replicas, is killed or drained, and is removed", 3, NeedsMembers, laneOperator, 1, false},
		{FaultReplace, "the disk of one node is wiped, and the node comes back by the commands that it is refused with", 3, NeedsMembers, laneOperator, 1, false},
		{FaultFull, "one node or all are started anew with a disk that is full, and refuse writes for 2 to 8 s", 1, NeedsRoom, laneOperator, 2, false},
		{FaultRot, "a bit of a closed segment of one replica is flipped while its node is down", 3, NeedsOwnFiles, laneOperator, 1, false},
		{FaultSync, "fsync of one node fails (EIO), which must end it; needs strace", 1, NeedsDisk, laneNode, 2, false},
		{FaultStall, "fsync of one node takes 0.3 to 3 s each; needs strace", 1, NeedsDisk, laneNode, 1, false},
		{FaultPower, "power failure of one node: what was not fsynced is gone; needs --powerloss", 1, NeedsPower, laneNode, 3, false},
		{FaultPowerAll, "power failure of all nodes at once; needs --powerloss", 1, NeedsPower, laneNode, 2, true},
	}
}

// FaultNames are the names of all faults, in the order in which they are told.
func FaultNames() []string {
	var names []string
	for _, f := range Faults() {
		names = append(names, f.Name)
	}
	return names
}

func faultNamed(name string) Fault {
	all := Faults()
	return all[slices.IndexFunc(all, func(f Fault) bool { return f.Name == name })]
}

// ParseFaults reads a list such as "kill,pause"; an empty one is all.
func ParseFaults(list string) ([]string, error) {
	if strings.TrimSpace(list) == "" {
		return FaultNames(), nil
	}
	var out []string
	for _, f := range strings.Split(list, ",") {
		f = strings.TrimSpace(f)
		if !slices.Contains(FaultNames(), f) {
			return nil, fmt.Errorf("unknown fault %q", f)
		}
		if !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out, nil
}

// Lacks says why a fault cannot be done to a cluster, empty where it can.
func Lacks(name string, c Cluster, network *Network) string {
	f := faultNamed(name)
	if have := len(c.Nodes()); have < f.Nodes {
		return fmt.Sprintf("it needs %d nodes, there are %d", f.Nodes, have)
	}
	switch f.Needs {
	case NeedsNetwork:
		if network == nil {
			return "the nodes do not talk through proxies"
		}
	case NeedsRoom:
		if _, ok := c.(Room); !ok {
			return reason(false, nil)
		}
	case NeedsMembers, NeedsOwnFiles:
		if m, ok := c.(Members); !ok || m.Fixed() != "" {
			return reason(ok, func() string { return m.Fixed() })
		}
	case NeedsDisk:
		if d, ok := c.(Disk); !ok || d.NoDisk() != "" {
			return reason(ok, func() string { return d.NoDisk() })
		}
	case NeedsPower:
		if p, ok := c.(Power); !ok || p.NoPower() != "" {
			return reason(ok, func() string { return p.NoPower() })
		}
	}
	return ""
}

func reason(ok bool, why func() string) string {
	if !ok {
		return "this cluster cannot do it"
	}
	return why()
}

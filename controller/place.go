package controller

import (
	"slices"

	"github.com/keeplog/keeplog/metadata"
)

// placement spreads replicas: leaders go round the brokers, and the followers of a partition go to other racks first.
type placement struct {
	// live and fenced are brokers in an order in which neighbours are in different racks where that is possible.
	live, fenced []metadata.BrokerID
	rack         map[metadata.BrokerID]string
	next, shift  int
}

func (p *planner) newPlacement() *placement {
	pl := &placement{rack: map[metadata.BrokerID]string{}}
	var live, fenced []*metadata.Broker
	for _, b := range p.img.Brokers() {
		pl.rack[b.ID] = b.Rack
		switch {
		case p.drained(b.ID):
		case usable(b):
			live = append(live, b)
		default:
			fenced = append(fenced, b)
		}
	}
	pl.live, pl.fenced = alternate(live), alternate(fenced)
	if len(pl.live) > 1 {
		pl.next, pl.shift = p.rand.IntN(len(pl.live)), p.rand.IntN(len(pl.live)-1)
	}
	return pl
}

// alternate orders brokers by taking one of each rack in turn.
func alternate(brokers []*metadata.Broker) []metadata.BrokerID {
	var racks []string
	byRack := map[string][]metadata.BrokerID{}
	for _, b := range brokers {
		if byRack[b.Rack] == nil {
			racks = append(racks, b.Rack)
		}
		byRack[b.Rack] = append(byRack[b.Rack], b.ID)
	}
	slices.Sort(racks)
	order := make([]metadata.BrokerID, 0, len(brokers))
	for turn := 0; len(order) < len(brokers); turn++ {
		for _, r := range racks {
			if turn < len(byRack[r]) {
				order = append(order, byRack[r][turn])
			}
		}
	}
	return order
}

// take places one partition. There must be at least n brokers, one of them live.
func (pl *placement) take(n int) []metadata.BrokerID {
	size := len(pl.live)
	start := pl.next % size
	order := []metadata.BrokerID{pl.live[start]}
	for j := range size - 1 {
		order = append(order, pl.live[(start+1+(pl.shift+j)%(size-1))%size])
	}
	pl.next++
	if pl.next%size == 0 {
		pl.shift++
	}
	chosen := order[:1:1]
	racks := map[string]bool{pl.rack[chosen[0]]: true}
	for _, id := range order[1:] {
		if len(chosen) < n && !racks[pl.rack[id]] {
			chosen, racks[pl.rack[id]] = append(chosen, id), true
		}
	}
	for _, id := range append(order[1:], pl.fenced...) {
		if len(chosen) < n && !slices.Contains(chosen, id) {
			chosen = append(chosen, id)
		}
	}
	return chosen
}

// check says whether n replicas can be placed, of which minInsync must be live.
func (pl *placement) check(n, minInsync int) error {
	const cannot = "Unable to replicate the partition %d time(s): "
	switch {
	case n > len(pl.live)+len(pl.fenced) && len(pl.rack) > len(pl.live)+len(pl.fenced):
		return answer(ErrInvalidReplicationFactor, cannot+"The target replication factor of %d cannot be reached because only %d of %d registered broker(s) are not drained.", n, n, len(pl.live)+len(pl.fenced), len(pl.rack))
	case n > len(pl.live)+len(pl.fenced):
		return answer(ErrInvalidReplicationFactor, cannot+"The target replication factor of %d cannot be reached because only %d broker(s) are registered.", n, n, len(pl.live)+len(pl.fenced))
	case len(pl.live) == 0:
		return answer(ErrInvalidReplicationFactor, cannot+"All brokers are currently fenced or shutting down.", n)
	case n > len(pl.live) && len(pl.live) < minInsync:
		return answer(ErrInvalidReplicationFactor, cannot+"%d broker(s) are live, min.insync.replicas asks for %d.", n, len(pl.live), minInsync)
	}
	return nil
}

// newPartition is a partition at its birth: the live replicas are in sync, the first of them leads.
func (p *planner) newPartition(replicas []metadata.BrokerID) metadata.Partition {
	part := metadata.Partition{Replicas: replicas, Leader: metadata.NoLeader}
	for _, id := range replicas {
		if b, ok := p.img.Broker(id); ok && usable(b) {
			part.ISR = append(part.ISR, id)
		}
	}
	if len(part.ISR) > 0 {
		part.Leader = part.ISR[0]
	}
	return part
}

// checkReplicas checks one list of a manual assignment. size is the number of replicas of the other partitions, 0 for any.
func (p *planner) checkReplicas(replicas []metadata.BrokerID, size int) error {
	const the = "The manual partition assignment includes "
	if len(replicas) == 0 {
		return answer(ErrInvalidReplicaAssignment, the+"an empty replica list.")
	}
	sorted := slices.Sorted(slices.Values(replicas))
	for i, id := range sorted {
		if _, ok := p.img.Broker(id); !ok {
			return answer(ErrInvalidReplicaAssignment, the+"broker %d, but no such broker is registered.", id)
		}
		if i > 0 && sorted[i-1] == id {
			return answer(ErrInvalidReplicaAssignment, the+"the broker %d more than once.", id)
		}
	}
	if size > 0 && len(replicas) != size {
		return answer(ErrInvalidReplicaAssignment, the+"a partition with %d replica(s), but this is not consistent with previous partitions, which have %d replica(s).", len(replicas), size)
	}
	return nil
}

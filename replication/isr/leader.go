package isr

import (
	"slices"

	"github.com/keeplog/keeplog/record"
)

// leader is the pure core of leading a partition: events in, high watermark out. It exists from election to step-down.
//
// Invariants, checked by its tests after every step:
//
//	high watermark = min(stable end of r, for r in in-sync set), once that is at least what it was before
//	the high watermark never falls, and stands still while |in-sync set| < min.insync.replicas
type leader struct {
	self           int32
	epoch          record.Epoch
	partitionEpoch int32
	inSync         []int32
	replicas       int // assigned replicas: the effective minimum is never above it
	minInSync      int
	epochStart     record.Offset
	highWatermark  record.Offset
	stable         map[int32]record.Offset // stable end by in-sync replica; absent: not heard of in this epoch
}

// leaderConfig is what an election hands to the core.
type leaderConfig struct {
	self           int32
	epoch          record.Epoch
	partitionEpoch int32
	inSync         []int32
	replicas       int
	minInSync      int
	epochStart     record.Offset // the log's end at election
	highWatermark  record.Offset // what this replica knew of it
	stable         record.Offset // this replica's own stable end
}

func newLeader(c leaderConfig) *leader {
	l := &leader{
		self: c.self, epoch: c.epoch, partitionEpoch: c.partitionEpoch, inSync: slices.Clone(c.inSync), replicas: c.replicas,
		minInSync: c.minInSync, epochStart: c.epochStart, highWatermark: c.highWatermark,
		stable: map[int32]record.Offset{c.self: c.stable},
	}
	l.advance()
	return l
}

// enough says whether the in-sync set meets min.insync.replicas; more than the assigned replicas is never asked.
func (l *leader) enough() bool {
	return len(l.inSync) >= min(l.minInSync, l.replicas)
}

// replicaStable takes a replica's new stable end in and reports whether the high watermark moved.
func (l *leader) replicaStable(id int32, end record.Offset) bool {
	if old, ok := l.stable[id]; ok && old >= end {
		return false
	}
	l.stable[id] = end
	return l.advance()
}

// changed takes a new in-sync set, assignment or minimum of the same leader epoch in, and reports a move.
func (l *leader) changed(partitionEpoch int32, inSync []int32, replicas, minInSync int) bool {
	l.partitionEpoch, l.inSync, l.replicas, l.minInSync = partitionEpoch, slices.Clone(inSync), replicas, minInSync
	return l.advance()
}

func (l *leader) advance() bool {
	if !l.enough() || len(l.inSync) == 0 {
		return false
	}
	low := record.Offset(-1)
	for _, id := range l.inSync {
		end, ok := l.stable[id]
		if !ok {
			return false
		}
		if low < 0 || end < low {
			low = end
		}
	}
	if low <= l.highWatermark {
		return false
	}
	l.highWatermark = low
	return true
}

// settled says whether the high watermark has reached the epoch's start, from where on it may be shown as "latest".
func (l *leader) settled() bool { return l.highWatermark >= l.epochStart }

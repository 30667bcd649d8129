package metadata

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Tables are the groups: committed offsets, and what their coordinators keep. They are part of the state as the image is, and the same on
// every node, but change in place: an image would copy paths with every commit.
//
// The state machine alone writes, before the image of the same entry is shown; everybody may read. A group is copied before it is changed
// while a [Frozen] may still be reading it, so a snapshot stops nobody for longer than it takes to list the groups.
type Tables struct {
	shards [Shards]tableShard
	// committed counts the changes of offsets.
	committed atomic.Uint64
	// frozen counts those that read old groups; generation is that of the newest of them. The state machine alone writes generation.
	frozen     atomic.Int32
	generation uint64
}

type tableShard struct {
	mu     sync.RWMutex
	groups map[string]*groupTable
	// at are the groups that have committed in a partition, in no order.
	at map[GroupPartition][]*groupTable
}

// groupTable is one group. It changes while it is of a generation that nobody has frozen.
type groupTable struct {
	name       string
	generation uint64
	offsets    map[GroupPartition]OffsetCommit
	entries    map[string][]byte
}

// NewTables are tables without groups.
func NewTables() *Tables {
	t := &Tables{}
	for i := range t.shards {
		t.shards[i].groups, t.shards[i].at = map[string]*groupTable{}, map[GroupPartition][]*groupTable{}
	}
	return t
}

func (t *Tables) shard(group string) *tableShard { return &t.shards[ShardOf(group)] }

// Committed moves with every change of offsets.
func (t *Tables) Committed() uint64 { return t.committed.Load() }

// Has says that a group has offsets or keys.
func (t *Tables) Has(group string) bool {
	s := t.shard(group)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.groups[group] != nil
}

// Count is the number of groups of a shard.
func (t *Tables) Count(shard int32) int {
	s := &t.shards[shard]
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.groups)
}

// Groups lists the groups of a shard by name. The slice is the caller's.
func (t *Tables) Groups(shard int32) []string {
	s := &t.shards[shard]
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Sorted(maps.Keys(s.groups))
}

// Offset is what a group has committed in a partition.
func (t *Tables) Offset(group string, p GroupPartition) (OffsetCommit, bool) {
	s := t.shard(group)
	s.mu.RLock()
	defer s.mu.RUnlock()
	if g := s.groups[group]; g != nil {
		c, ok := g.offsets[p]
		return c, ok
	}
	return OffsetCommit{}, false
}

// Offsets goes through what a group has committed, in no order, until f says false. f holds up the state machine: it is short, and does
// not use the tables.
func (t *Tables) Offsets(group string, f func(OffsetCommit) bool) {
	s := t.shard(group)
	s.mu.RLock()
	defer s.mu.RUnlock()
	g := s.groups[group]
	if g == nil {
		return
	}
	for _, c := range g.offsets {
		if !f(c) {
			return
		}
	}
}

// EachOffset goes through what the groups of a shard have committed, one group after another, until f says false. f is as in Offsets.
func (t *Tables) EachOffset(shard int32, f func(group string, c OffsetCommit) bool) {
	s := &t.shards[shard]
	s.mu.RLock()
	defer s.mu.RUnlock()
	for name, g := range s.groups {
		for _, c := range g.offsets {
			if !f(name, c) {
				return
			}
		}
	}
}

// Entries lists the keys of a group in order. The slice is the caller's, the values must not be written to.
func (t *Tables) Entries(group string) []GroupEntry {
	s := t.shard(group)
	s.mu.RLock()
	defer s.mu.RUnlock()
	if g := s.groups[group]; g != nil {
		return g.sortedEntries()
	}
	return nil
}

func (g *groupTable) sortedEntries() []GroupEntry {
	all := make([]GroupEntry, 0, len(g.entries))
	for _, k := range slices.Sorted(maps.Keys(g.entries)) {
		all = append(all, GroupEntry{k, g.entries[k]})
	}
	return all
}

// ByPartition goes through the groups that have committed in a partition, in no order, until f says false. f is as in Offsets.
func (t *Tables) ByPartition(p GroupPartition, f func(group string, c OffsetCommit) bool) {
	for i := range t.shards {
		if !t.shards[i].byPartition(p, f) {
			return
		}
	}
}

func (s *tableShard) byPartition(p GroupPartition, f func(group string, c OffsetCommit) bool) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, g := range s.at[p] {
		if !f(g.name, g.offsets[p]) {
			return false
		}
	}
	return true
}

// writable gives a group that may be changed, nil where it is not there and not to be made. The shard is locked.
func (t *Tables) writable(s *tableShard, name string, create bool) *groupTable {
	g := s.groups[name]
	switch {
	case g == nil && create:
		g = &groupTable{name: name, generation: t.generation + 1, offsets: map[GroupPartition]OffsetCommit{}, entries: map[string][]byte{}}
		s.groups[name] = g
	case g != nil && g.generation <= t.generation && t.frozen.Load() > 0:
		next := &groupTable{name: name, generation: t.generation + 1, offsets: maps.Clone(g.offsets), entries: maps.Clone(g.entries)}
		for p := range g.offsets {
			s.at[p][slices.Index(s.at[p], g)] = next
		}
		s.groups[name] = next
		g = next
	}
	return g
}

// settle forgets a group that has nothing.
func (s *tableShard) settle(g *groupTable) {
	if g != nil && len(g.offsets)+len(g.entries) == 0 {
		delete(s.groups, g.name)
	}
}

func (s *tableShard) forget(g *groupTable, p GroupPartition) {
	at := s.at[p]
	i := slices.Index(at, g)
	at[i] = at[len(at)-1]
	at[len(at)-1] = nil
	if s.at[p] = at[:len(at)-1]; len(at) == 1 {
		delete(s.at, p)
	}
}

// commit takes offsets of a group; those of partitions that are not there are dropped.
func (t *Tables) commit(group string, offsets []OffsetCommit, there func(GroupPartition) bool) {
	s := t.shard(group)
	s.mu.Lock()
	defer s.mu.Unlock()
	var g *groupTable
	for _, c := range offsets {
		if !there(c.GroupPartition) {
			continue
		}
		if g == nil {
			g = t.writable(s, group, true)
		}
		if _, known := g.offsets[c.GroupPartition]; !known {
			s.at[c.GroupPartition] = append(s.at[c.GroupPartition], g)
		}
		g.offsets[c.GroupPartition] = c
	}
	if g != nil {
		t.committed.Add(1)
	}
}

func (t *Tables) removeOffsets(group string, partitions []GroupPartition) {
	s := t.shard(group)
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[group]
	if g == nil || !slices.ContainsFunc(partitions, func(p GroupPartition) bool { _, ok := g.offsets[p]; return ok }) {
		return
	}
	g = t.writable(s, group, false)
	for _, p := range partitions {
		if _, known := g.offsets[p]; known {
			delete(g.offsets, p)
			s.forget(g, p)
		}
	}
	s.settle(g)
	t.committed.Add(1)
}

func (t *Tables) change(group string, entries []GroupEntry) {
	s := t.shard(group)
	s.mu.Lock()
	defer s.mu.Unlock()
	g := t.writable(s, group, true)
	for _, e := range entries {
		if e.Value == nil {
			delete(g.entries, e.Key)
		} else {
			g.entries[e.Key] = e.Value
		}
	}
	s.settle(g)
}

func (t *Tables) remove(group string) {
	s := t.shard(group)
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[group]
	if g == nil {
		return
	}
	for p := range g.offsets {
		s.forget(g, p)
	}
	delete(s.groups, group)
	if len(g.offsets) > 0 {
		t.committed.Add(1)
	}
}

// dropTopic takes the offsets of a deleted topic away from all groups.
func (t *Tables) dropTopic(topic *Topic) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for n := range topic.Partitions {
			p := GroupPartition{topic.ID, int32(n)}
			for _, old := range slices.Clone(s.at[p]) {
				g := t.writable(s, old.name, false)
				delete(g.offsets, p)
				s.settle(g)
				t.committed.Add(1)
			}
			delete(s.at, p)
		}
		s.mu.Unlock()
	}
}

// Frozen are tables as they were at one index. They are read by one goroutine, and released once.
type Frozen struct {
	tables *Tables
	groups []*groupTable
}

// Freeze holds the tables as they are. It is called by who writes them, and takes as long as listing the groups does.
func (t *Tables) Freeze() *Frozen {
	n := 0
	for i := range t.shards {
		n += len(t.shards[i].groups)
	}
	f := &Frozen{tables: t, groups: make([]*groupTable, 0, n)}
	for i := range t.shards {
		for _, g := range t.shards[i].groups {
			f.groups = append(f.groups, g)
		}
	}
	// Groups that are made from here on are of a later generation.
	t.generation++
	t.frozen.Add(1)
	return f
}

// Release ends the freeze.
func (f *Frozen) Release() {
	if f.groups != nil {
		f.groups = nil
		f.tables.frozen.Add(-1)
	}
}

// sorted are the groups by name.
func (f *Frozen) sorted() []*groupTable {
	slices.SortFunc(f.groups, func(a, b *groupTable) int { return strings.Compare(a.name, b.name) })
	return f.groups
}

// sortedOffsets are what a group has committed, by topic and partition.
func (g *groupTable) sortedOffsets() []OffsetCommit {
	return slices.SortedFunc(maps.Values(g.offsets), func(a, b OffsetCommit) int {
		return cmp.Or(compareIDs(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}

// Replace takes over what others have, which are not used any more after it: those of a snapshot.
func (t *Tables) Replace(others *Tables) {
	for i := range t.shards {
		s, o := &t.shards[i], &others.shards[i]
		s.mu.Lock()
		s.groups, s.at = o.groups, o.at
		for _, g := range s.groups {
			g.generation = t.generation + 1
		}
		s.mu.Unlock()
	}
	t.committed.Add(1)
}

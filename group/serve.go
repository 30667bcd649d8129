package group

import (
	"time"

	"github.com/keeplog/keeplog/metadata"
)

// group is one group at its coordinator. Everything belongs to the shard's mutex.
type group struct {
	name  string
	shard *shard
	core  Core
	// broken: what is stored cannot be read.
	broken bool
	// topics and settings: the core has not been told of a change yet.
	topics, settings bool
	waiting          map[Ticket]waiter
	// batches wait to be committed; the first is under way while writing is true.
	batches []*batch
	writing bool
	overlay overlay
	alarm   alarm
	size    int
}

func (s *shard) newGroup(name string) *group {
	g := &group{name: name, shard: s, core: newClassic(name)}
	g.alarm.ring = g.ring
	return g
}

// group finds a group, or makes one that is not known. It goes again when nothing comes of it: see settle.
func (t *turn) group(name string) *group {
	g := t.groups[name]
	if g == nil {
		g = t.newGroup(name)
		t.groups[name] = g
	}
	return g
}

// known says that something of the group is stored, or on the way to be.
func (g *group) known() bool {
	return !g.core.Disposable() || len(g.batches) > 0 || g.overlay.has(g) || g.overlay.shows(g) && g.shard.c.o.Tables.Has(g.name)
}

func (t *turn) env(g *group) Env {
	return Env{
		Now: t.now, Topics: topics{t.c.img.Load()}, Settings: t.c.o.Settings(g.name), NewID: t.c.o.NewID,
		Known: !g.core.Disposable() || g.known(),
	}
}

// step brings an event to the core, and does what comes of it.
func (t *turn) step(g *group, ev Event, w waiter) Ticket {
	env := t.env(g)
	if w != nil {
		env.Ticket = Ticket(t.c.tickets.Add(1))
		if g.waiting == nil {
			g.waiting = map[Ticket]waiter{}
		}
		g.waiting[env.Ticket] = w
	}
	f := g.core.Step(ev, env)
	if f.Become != nil {
		g.core = f.Become
	}
	t.change(g, f.Entries)
	for _, r := range f.Replies {
		if w := g.waiting[r.Ticket]; w != nil {
			delete(g.waiting, r.Ticket)
			t.answer(g, w, r.Response)
		}
	}
	t.settle(g)
	return env.Ticket
}

// answer gives a response to who waits, after everything that the group has asked for is committed.
func (t *turn) answer(g *group, w waiter, response any) {
	if len(g.batches) == 0 {
		t.out = append(t.out, func() { w(response, nil) })
		return
	}
	b := g.batches[len(g.batches)-1]
	if len(b.replies) == 0 {
		b.overdue = t.now.Add(t.c.o.CommitTimeout())
	}
	b.replies = append(b.replies, func(err error) { w(response, err) })
}

func (t *turn) fail(w waiter, err error) { t.out = append(t.out, func() { w(nil, err) }) }

// settle brings what is kept about a group up to date after it was touched.
func (t *turn) settle(g *group) {
	size := g.core.Size()
	t.c.members.Add(int64(size - g.size))
	g.size = size
	t.write(g)
	g.overlay.prune(t.c.o.Log.Applied())
	if g.core.Disposable() && len(g.batches)+len(g.waiting) == 0 && g.overlay.empty() && !g.broken && t.groups[g.name] == g {
		delete(t.groups, g.name)
		t.c.members.Add(-int64(g.size))
		g.size = 0
		t.c.timers.cancel(&g.alarm)
		return
	}
	t.schedule(g)
}

// overlayPause is the time between two looks whether the tables have caught up with the overlay.
const overlayPause = time.Second

// schedule sets the group's alarm to whatever comes first.
func (t *turn) schedule(g *group) {
	at := g.core.Deadline()
	sooner := func(u time.Time) {
		if at.IsZero() || u.Before(at) {
			at = u
		}
	}
	for _, b := range g.batches {
		if len(b.replies) > 0 {
			sooner(b.overdue)
		}
	}
	if !g.overlay.empty() {
		sooner(t.now.Add(overlayPause))
	}
	if !at.IsZero() {
		t.c.timers.sooner(&g.alarm, at)
	}
}

// ring is the group's alarm.
func (g *group) ring() {
	t := g.shard.begin()
	defer t.end()
	if t.groups[g.name] != g || !t.loaded {
		return
	}
	for _, b := range g.batches {
		if len(b.replies) > 0 && !t.now.Before(b.overdue) {
			// What is under way goes on; who asked may ask again.
			for _, f := range b.replies {
				t.out = append(t.out, func() { f(ErrNotAvailable) })
			}
			b.replies = nil
		}
	}
	changed := g.topics || g.settings
	if g.topics {
		g.topics = false
		t.step(g, TopicsChanged{}, nil)
	}
	if g.settings {
		g.settings = false
		t.step(g, SettingsChanged{}, nil)
	}
	at := g.core.Deadline()
	switch {
	case changed && t.groups[g.name] != g:
	case !at.IsZero() && !t.now.Before(at):
		t.step(g, Wake{}, nil)
	default:
		t.settle(g)
	}
}

// batch is what one proposal of a group stores, and the answers that wait for it.
type batch struct {
	// gone: the group is removed first.
	gone    bool
	entries map[string][]byte
	offsets map[metadata.GroupPartition]metadata.OffsetCommit
	dropped map[metadata.GroupPartition]bool
	bytes   int
	replies []func(error)
	overdue time.Time
}

// forming is the batch that takes size bytes more.
func (t *turn) forming(g *group, size int) *batch {
	n := len(g.batches)
	if n == 0 || n == 1 && g.writing || g.batches[n-1].bytes+size > maxStored {
		g.batches = append(g.batches, &batch{})
		n++
		size += batchCost + 4*len(g.name)
	}
	b := g.batches[n-1]
	b.bytes += size
	t.c.pending.Add(int64(size))
	return b
}

// What things take in memory beside their own bytes; in a record they take less. A batch names the group in four records at most.
const (
	entryCost  = 64
	offsetCost = 64
	batchCost  = 128
)

// change asks for entries. Those of one step go together, unless they are more than one record may hold.
func (t *turn) change(g *group, entries []Entry) {
	for len(entries) > 0 {
		size, cost, n := 0, 0, 0
		for n < len(entries) && (n == 0 || size+storedSize(entries[n]) <= maxStored) {
			size += storedSize(entries[n])
			cost += len(entries[n].Key) + len(entries[n].Value) + entryCost
			n++
		}
		b := t.forming(g, cost)
		if b.entries == nil {
			b.entries = map[string][]byte{}
		}
		for _, e := range entries[:n] {
			b.entries[e.Key] = e.Value
		}
		entries = entries[n:]
	}
}

// storedSize is at least what an entry takes in a record. What a core bounds by it is one record.
func storedSize(e Entry) int { return len(e.Key) + len(e.Value) + 8 }

// records are what the batch proposes.
func (b *batch) records(g *group) []metadata.Record {
	shard, epoch := g.shard.number, g.shard.epoch
	var records []metadata.Record
	if b.gone {
		records = append(records, metadata.GroupRemoved{Shard: shard, ShardEpoch: epoch, Group: g.name})
	}
	if len(b.entries) > 0 {
		changed := metadata.GroupChanged{Shard: shard, ShardEpoch: epoch, Group: g.name}
		for k, v := range b.entries {
			changed.Entries = append(changed.Entries, Entry{Key: k, Value: v})
		}
		sortEntries(changed.Entries)
		records = append(records, changed)
	}
	if len(b.dropped) > 0 {
		removed := metadata.OffsetsRemoved{Shard: shard, ShardEpoch: epoch, Group: g.name}
		for p := range b.dropped {
			removed.Partitions = append(removed.Partitions, p)
		}
		records = append(records, removed)
	}
	if len(b.offsets) > 0 {
		committed := metadata.OffsetsCommitted{Shard: shard, ShardEpoch: epoch, Group: g.name}
		for _, o := range b.offsets {
			committed.Offsets = append(committed.Offsets, o)
		}
		records = append(records, committed)
	}
	return records
}

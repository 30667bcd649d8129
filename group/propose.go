package group

import (
	"errors"

	"github.com/keeplog/keeplog/internal/invariant"
	"github.com/keeplog/keeplog/metadata"
)

// write proposes the group's first batch, unless one is under way: what gathers meanwhile goes with the next.
func (t *turn) write(g *group) {
	if g.writing || len(g.batches) == 0 {
		return
	}
	g.writing = true
	b := g.batches[0]
	if invariant.Seeded(invariant.AnsweredEarly) {
		t.reply(b, nil)
	}
	s, records, life := t.shard, b.records(g), t.life
	if s.writing == 0 {
		s.idle = make(chan struct{})
	}
	s.writing++
	s.c.o.Log.ProposeOffsets(records, func(index uint64, results []metadata.Result, err error) {
		for _, r := range results {
			if err == nil {
				err = r.Err()
			}
		}
		s.wrote(g, life, index, err)
	})
}

// wrote takes in what became of the first batch of a group.
func (s *shard) wrote(g *group, life, index uint64, err error) {
	t := s.begin()
	defer t.end()
	if s.writing--; s.writing == 0 {
		close(s.idle)
		s.idle = nil
	}
	switch {
	case s.life != life:
		return
	case errors.Is(err, metadata.ErrStaleShard):
		s.c.o.Logger.Info("a shard of groups is another broker's by now", "shard", s.number)
		t.drop(ErrNotCoordinator)
		return
	case err != nil:
		if s.c.ctx.Err() == nil {
			s.c.o.Logger.Warn("it is not known what became of a proposal, the shard is read again", "shard", s.number, "group", g.name, "error", err)
		}
		t.forget(ErrNotAvailable)
		t.load(true)
		return
	}
	b := g.batches[0]
	g.batches[0] = nil
	g.batches, g.writing = g.batches[1:], false
	t.c.pending.Add(-int64(b.bytes))
	if s.c.o.Log.Applied() < index {
		g.overlay.add(b, index)
	}
	t.reply(b, nil)
	t.settle(g)
}

// reply answers everybody who waits for a batch.
func (t *turn) reply(b *batch, err error) {
	for _, f := range b.replies {
		t.out = append(t.out, func() { f(err) })
	}
	b.replies = nil
}

// overlay is what of a group is committed and not in the tables of this broker yet.
type overlay struct {
	offsets map[metadata.GroupPartition]overlaid
	// removed is the index at which the whole group was removed, last the newest index of all.
	removed, last uint64
}

// overlaid is a commit, or that there is none any more, and its index.
type overlaid struct {
	commit metadata.OffsetCommit
	gone   bool
	index  uint64
}

func (o *overlay) empty() bool { return o.last == 0 }

func (o *overlay) add(b *batch, index uint64) {
	o.last = index
	if b.gone {
		o.removed, o.offsets = index, nil
	}
	if o.offsets == nil && len(b.offsets)+len(b.dropped) > 0 {
		o.offsets = map[metadata.GroupPartition]overlaid{}
	}
	for p := range b.dropped {
		o.offsets[p] = overlaid{gone: true, index: index}
	}
	for p, c := range b.offsets {
		o.offsets[p] = overlaid{commit: c, index: index}
	}
}

// prune forgets what the tables have.
func (o *overlay) prune(applied uint64) {
	if o.last <= applied {
		*o = overlay{}
	}
}

// has says that there are offsets that the tables do not have yet.
func (o *overlay) has(*group) bool {
	for _, v := range o.offsets {
		if !v.gone {
			return true
		}
	}
	return false
}

// shows says that the tables' offsets of the group are still its own.
func (o *overlay) shows(g *group) bool {
	return o.removed == 0 || g.shard.c.o.Log.Applied() >= o.removed
}

// offset is what the group has committed in a partition.
func (g *group) offset(p metadata.GroupPartition) (metadata.OffsetCommit, bool) {
	if g.overlay.empty() {
		return g.shard.c.o.Tables.Offset(g.name, p)
	}
	// Reading the index first is safe: the tables may only have more.
	applied := g.shard.c.o.Log.Applied()
	if v, ok := g.overlay.offsets[p]; ok && v.index > applied {
		return v.commit, !v.gone
	}
	if g.overlay.removed > applied {
		return metadata.OffsetCommit{}, false
	}
	return g.shard.c.o.Tables.Offset(g.name, p)
}

// offsets are all that the group has committed, in no order.
func (g *group) offsets() []metadata.OffsetCommit {
	var all []metadata.OffsetCommit
	applied := g.shard.c.o.Log.Applied()
	over := func(p metadata.GroupPartition) bool {
		v, ok := g.overlay.offsets[p]
		return ok && v.index > applied
	}
	if g.overlay.removed <= applied {
		g.shard.c.o.Tables.Offsets(g.name, func(c metadata.OffsetCommit) bool {
			if !over(c.GroupPartition) {
				all = append(all, c)
			}
			return true
		})
	}
	for p, v := range g.overlay.offsets {
		if over(p) && !v.gone {
			all = append(all, v.commit)
		}
	}
	return all
}

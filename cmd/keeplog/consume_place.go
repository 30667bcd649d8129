package main

import (
	"context"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
)

// place says where reading begins: where the group is, else where -O says. An error ends the command.
func (g *grouped) place(ctx context.Context, asked map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	ends, err := g.learn(ctx, asked)
	if err != nil {
		return nil, err
	}
	for topic, parts := range asked {
		for partition, o := range parts {
			key, at := tp{topic, partition}, o.EpochOffset().Offset
			next, err := g.placeOf(ctx, key, placing{at, ends})
			if err != nil {
				return nil, err
			}
			if next >= 0 && next != at {
				parts[partition] = kgo.NewOffset().At(next)
			}
			g.mu.Lock()
			p := g.unplaced(key)
			p.next, p.committed, p.written.Offset = next, max(at, -1), next
			if g.flags.exit {
				p.stop = g.bounds.end[key] // 0 for one that was not there
			}
			g.parts[key] = p
			g.mu.Unlock()
		}
	}
	return asked, nil
}

// placing is what placeOf goes by.
type placing struct {
	committed int64        // below 0: nothing
	ends      map[tp]int64 // of the logs, where the group seems to have passed them
}

// placeOf is where reading of one partition begins; −1: at the start, wherever that is.
func (g *grouped) placeOf(ctx context.Context, key tp, by placing) (int64, error) {
	start, known := g.bounds.start[key]
	end, passed := by.ends[key]
	switch {
	case by.committed >= 0 && known && by.committed < start:
		g.app.say("%s: what the group has committed, offset %d, is gone; reading from %d", key, by.committed, start)
		return start, nil
	case by.committed >= 0 && passed && by.committed > end:
		g.app.say("%s: what the group has committed, offset %d, is past the end, %d; reading from %d", key, by.committed, end, start)
		return start, nil
	case by.committed >= 0:
		return by.committed, nil
	case g.isNew(key):
		return 0, nil
	case g.where.from.kind == pointStart && !known:
		return -1, nil
	case g.where.from.kind == pointStart:
		return start, nil
	}
	next, err := g.plan.resolve(ctx, g.bounds, key, g.where.from)
	if err != nil {
		return 0, err
	}
	if end, known = g.bounds.end[key]; !known {
		end = math.MaxInt64
	}
	return min(max(next, start), end), nil
}

// isNew says that a partition was made after the command began.
func (g *grouped) isNew(key tp) bool {
	_, started := g.bounds.start[key]
	return !started && g.bounds.failed[key] == nil
}

// learn asks again where the logs end: of those whose leaders did not answer at the start, where the place to begin depends on it, and of those
// that end before what the group has committed. Others may have read on since, so that is told only of what ends there now.
func (g *grouped) learn(ctx context.Context, asked map[string]map[int32]kgo.Offset) (map[tp]int64, error) {
	var late, passed []tp
	for topic, parts := range asked {
		for partition, o := range parts {
			key, at := tp{topic, partition}, o.EpochOffset().Offset
			end, known := g.bounds.end[key]
			switch {
			case at < 0 && g.bounds.failed[key] != nil && g.where.from.kind != pointStart:
				late = append(late, key)
			case known && at > end:
				passed = append(passed, key)
			}
		}
	}
	slices.SortFunc(late, tp.compare)
	slices.SortFunc(passed, tp.compare)
	patience := g.app.flags.timeout / 2
	b, err := g.plan.bounds(ctx, late, boundsOptions{committed: g.flags.readCommitted, wantEnd: true, patience: patience})
	if err == nil && ctx.Err() == nil {
		err = b.all(ctx, g.plan, late)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	for _, key := range late {
		g.bounds.start[key], g.bounds.end[key] = b.start[key], b.end[key]
		delete(g.bounds.failed, key)
	}
	b, err = g.plan.bounds(ctx, passed, boundsOptions{wantEnd: true, patience: patience})
	if err != nil {
		return nil, err
	}
	return b.end, nil
}

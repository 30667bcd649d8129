package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// consumePlan works out where in each partition reading begins and stops. Partitions whose leader does not answer are late: the others are read
// without them, and they join when they can, unless the command stops at the end.
type consumePlan struct {
	session   *session
	committed bool
	exit      bool
	where     span
	details   kadm.TopicDetails
	late      []tp
	unsure    []tp // partitions whose end is not known, and which were read as far as they went
	why       *cliError
}

// begin plans the partitions of topics, or some of them. None that can be read is an error.
func (pl *consumePlan) begin(ctx context.Context, topics []string, only []int32) ([]*part, error) {
	s := pl.session
	ctx, cancel := context.WithTimeout(ctx, s.app.flags.timeout)
	defer cancel()
	keys, details, err := s.partitionsOf(ctx, topics, only)
	if err != nil {
		return nil, err
	}
	pl.details = details
	parts, late, err := pl.parts(ctx, keys, s.app.flags.timeout/2)
	if err != nil {
		return nil, err
	}
	if pl.late = late; len(late) == 0 {
		return parts, nil
	}
	if pl.why == nil {
		pl.why = s.noLeader(ctx, late[0], context.DeadlineExceeded)
	}
	if len(parts) == 0 {
		return nil, pl.why
	}
	s.app.say("%s left out for now: %s", isAre(len(late), "partition"), pl.why.msg)
	return parts, nil
}

// needsEnd says whether the ends must be known to begin.
func (pl *consumePlan) needsEnd() bool {
	ahead := pl.where.from.kind
	return pl.exit || ahead != pointStart && ahead != pointOffset
}

// parts plans those partitions whose leaders answer within patience; late are the others.
func (pl *consumePlan) parts(ctx context.Context, keys []tp, patience time.Duration) (parts []*part, late []tp, err error) {
	s := pl.session
	b, err := s.bounds(ctx, keys, boundsOptions{committed: pl.committed, wantEnd: pl.needsEnd(), patience: patience})
	if err != nil {
		return nil, nil, err
	}
	for _, key := range keys {
		_, started := b.start[key]
		_, ended := b.end[key]
		if !started || pl.needsEnd() && !ended && pl.where.from.kind != pointStart && pl.where.from.kind != pointOffset {
			if pl.why == nil {
				pl.why = s.noLeader(ctx, key, b.failed[key])
			}
			late = append(late, key)
			continue
		}
		p := &part{tp: key, id: pl.details[key.topic].ID, toHere: pl.exit && !ended}
		if p.next, err = s.resolve(ctx, b, key, pl.where.from); err != nil {
			return nil, nil, err
		}
		if p.stop, err = s.resolve(ctx, b, key, pl.where.to); err != nil {
			return nil, nil, err
		}
		if err := s.fit(p, b, pl.exit); err != nil {
			return nil, nil, err
		}
		if p.toHere {
			pl.unsure = append(pl.unsure, key)
			s.app.say("%s: its leader does not know now where the end is; reading what it has", key)
		}
		parts = append(parts, p)
	}
	return parts, late, nil
}

// fit brings a partition's range into what is there. A start that has been trimmed away moves up, and is told; one
// past the end is an error, as nobody can mean it.
func (s *session) fit(p *part, b *bounds, exit bool) error {
	start := b.start[p.tp]
	if p.next < start {
		s.app.say("%s: offset %d is gone, reading from %d", p.tp, p.next, start)
		p.next = start
	}
	end, known := b.end[p.tp]
	if !known {
		return nil
	}
	if p.next > end {
		e := failf("%s: OFFSET_OUT_OF_RANGE (offset %d, the end is %d)", p.tp, p.next, end)
		e.code, e.try = "OFFSET_OUT_OF_RANGE", "-O end"
		return e
	}
	if exit {
		p.stop = min(p.stop, end)
	}
	return nil
}

// incomplete says, after a run that had an end, what was not read.
func (pl *consumePlan) incomplete() error {
	if !pl.exit && pl.where.to.kind == pointNone || len(pl.late)+len(pl.unsure) == 0 {
		return nil
	}
	e := &cliError{msg: "not all was read", code: "PARTIAL", exit: exitPart, try: "keeplog cluster health, then again"}
	switch {
	case len(pl.late) > 0:
		e.msg = fmt.Sprintf("%s not read: %s", count(int64(len(pl.late)), "partition"), someOf(names(pl.late)))
		e.why = pl.why.msg
	default:
		e.msg = "read as far as the leaders have it, and there may be more: " + someOf(names(pl.unsure))
		e.why = "without a leader of the metadata, and just after an election, a leader does not know where the end is"
	}
	return e
}

func names(keys []tp) []string {
	keys = slices.Clone(keys)
	slices.SortFunc(keys, tp.compare)
	out := make([]string, len(keys))
	for i, key := range keys {
		out[i] = fmt.Sprintf("%s-%d", key.topic, key.partition)
	}
	return out
}

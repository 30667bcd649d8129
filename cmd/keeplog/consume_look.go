package main

import (
	"context"
	"errors"
	"io"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/record"
)

// The client of a member hands out records, and nothing else: neither that a batch is damaged, which it asks for again and again, nor how far it
// has come where there are no records: in a batch that a repair has emptied, in what was aborted, in what a compaction has left of a tail. So
// where nothing comes the leader is asked here what stands next:
//
//	a batch that is damaged            the run ends, as without a group
//	batches without a record to print  the member has read them
//	a record to print                  is for the client to bring

// lookEach is after how much silence a run with an end asks what stands before it.
const lookEach = time.Second

// look asks the leaders what stands next in parts, and moves those on where nothing is to be printed; moved are these. An error is that a batch
// is damaged. Leaders that do not answer are for others to tell.
func (g *grouped) look(ctx context.Context, keys []tp) (moved map[tp]bool, err error) {
	moved = map[tp]bool{}
	if len(keys) == 0 {
		return moved, nil
	}
	ctx, cancel := context.WithTimeout(ctx, toExplain)
	defer cancel()
	leaders, err := g.plan.leadersOf(ctx, keys)
	if err != nil {
		g.lookLater(keys)
		return moved, nil
	}
	for ctx.Err() == nil {
		byLeader := map[int32][]*part{}
		g.mu.Lock()
		for _, key := range keys {
			if p := g.parts[key]; p != nil && p.next >= 0 && !p.done() {
				if leader, ok := leaders[key]; ok {
					at := p.part
					byLeader[leader] = append(byLeader[leader], &at)
				}
			}
		}
		g.mu.Unlock()
		on := false
		for leader, parts := range byLeader {
			passed, err := g.lookAt(ctx, leader, parts)
			if err != nil {
				return moved, err
			}
			for _, p := range passed {
				on = true
				moved[p.tp] = true
				g.passed(p)
			}
		}
		if !on {
			break
		}
	}
	return moved, nil
}

// lookLater leaves partitions alone until they have been quiet for --timeout: each look at a leader that is silent takes time from the others.
func (g *grouped) lookLater(keys []tp) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, key := range keys {
		if p := g.parts[key]; p != nil {
			p.looked = g.waited + g.app.flags.timeout
		}
	}
}

// passed notes that nothing is to be printed of a partition before p.next.
func (g *grouped) passed(p *part) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if own := g.parts[p.tp]; own != nil && own.next >= 0 {
		own.next, own.quiet = max(own.next, p.next), g.waited
	}
}

// lookAt asks one leader, once. passed are those of parts that were moved on.
func (g *grouped) lookAt(ctx context.Context, leader int32, parts []*part) (passed []*part, err error) {
	c := &consuming{app: g.app, session: g.plan, committed: g.flags.readCommitted}
	answer, err := g.plan.client.Broker(int(leader)).Request(ctx, c.request(parts))
	if err != nil {
		for _, p := range parts {
			g.lookLater([]tp{p.tp})
		}
		return nil, nil
	}
	resp := answer.(*kmsg.FetchResponse)
	total := batchBytes(resp)
	for _, t := range resp.Topics {
		for i := range t.Partitions {
			rp := &t.Partitions[i]
			p := answered(parts, &t, rp.Partition)
			if p == nil {
				continue
			}
			was := p.next
			if err := g.lookIn(c, p, taken{rp, total}); err != nil {
				return passed, err
			}
			if p.next > was {
				passed = append(passed, p)
			}
		}
	}
	return passed, nil
}

// lookIn moves p on behind what came of it, if nothing of that is to be printed.
func (g *grouped) lookIn(c *consuming, p *part, rp taken) error {
	why := kerr.ErrorForCode(rp.ErrorCode)
	if errors.Is(why, kerr.CorruptMessage) {
		return g.damaged(c, p, why)
	}
	if why != nil {
		return nil
	}
	next, whole, bad := scan(rp.RecordBatches, p.next)
	if bad != nil {
		whole = rp.RecordBatches
	}
	one := &printer{w: io.Discard, codecs: record.NewCodecs(), style: stylePrefixed, limit: 1, committed: c.committed}
	err := one.chunk(&chunk{p, p.next, p.stop, whole, rp.AbortedTransactions})
	end := rp.HighWatermark
	if c.committed {
		end = rp.LastStableOffset
	}
	switch {
	case errors.Is(err, errEnough): // before what may be damaged
	case bad != nil:
		return g.damaged(c, p, bad)
	case err != nil:
		return g.behind(p, failure(err))
	case len(whole) > 0:
		p.next = min(next, p.stop)
	case rp.total == 0 && p.stop != math.MaxInt64 && end >= p.stop:
		p.next = p.stop
	}
	return nil
}

func (g *grouped) damaged(c *consuming, p *part, err error) error {
	return g.behind(p, failure(c.damaged(p, err)))
}

// behind says how a group comes past what is damaged: -O counts only where it has committed nothing.
func (g *grouped) behind(p *part, e *cliError) error {
	if e.exit == exitDamaged {
		e.try = "keeplog check DATA-DIR, where the broker runs; when the group is stopped, keeplog group seek " +
			shellWord(g.flags.group) + " --to OFFSET --topic " + topicsOf([]tp{p.tp}) + " goes on behind it"
	}
	return e
}

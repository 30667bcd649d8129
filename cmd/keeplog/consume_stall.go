package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

// The client of a member tries what fails again and again, and says nothing. So that nobody waits in silence for ever, what has not moved for
// --timeout is looked into: a run with an end ends then, another one says why once and goes on.

// stall is what keeps a member out of its group.
type stall struct {
	joined bool  // it was in the group before
	told   bool  // that it waits
	why    error // what the client last heard of the group
}

// stalled looks into what has not moved for --timeout of waiting. It is called between two polls.
func (g *grouped) stalled(ctx context.Context) error {
	limit := g.app.flags.timeout
	g.mu.Lock()
	apart := !g.began && g.waited-g.moved >= limit
	if apart {
		g.moved = g.waited // to be looked into again
	}
	var quiet, still []tp
	for key, p := range g.parts {
		switch {
		case p.done():
		case g.waited-p.quiet >= limit:
			quiet = append(quiet, key)
			p.quiet, p.looked = g.waited, g.waited
		case g.flags.exit && p.next >= 0 && g.waited-max(p.quiet, p.looked) >= lookEach:
			still = append(still, key)
			p.looked = g.waited
		}
	}
	g.mu.Unlock()
	slices.SortFunc(quiet, tp.compare)
	slices.SortFunc(still, tp.compare)
	if apart {
		return g.apart(ctx)
	}
	if len(quiet) > 0 {
		if err := g.unread(ctx, quiet); err != nil {
			return err
		}
	}
	_, err := g.look(ctx, still) // the end may be near, with nothing before it
	return err
}

// apart says why the member is not in its group: who coordinates it does not answer, or the members have not all joined.
func (g *grouped) apart(ctx context.Context) error {
	unreachable := g.askGroup(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	e, served := unreachable, unreachable == nil
	var ke *kerr.Error
	switch {
	case e != nil:
	case errors.As(g.stall.why, &ke) && !memberMoved(ke):
		e, served = kafkaError("group "+g.flags.group, ke, ""), false
		e.exit = exitUnreachable
	default:
		e = &cliError{
			msg:  fmt.Sprintf("group %s: REBALANCE_IN_PROGRESS (not all of its members have joined within %s)", g.flags.group, g.app.flags.timeout),
			why:  "a member that was killed, or is busy, is waited for until its time is over",
			code: kerr.RebalanceInProgress.Message, exit: exitUnreachable, try: "keeplog group describe " + shellWord(g.flags.group) + ", or a longer --timeout",
		}
	}
	if g.flags.exit || !served && !g.stall.joined {
		return e
	}
	if !g.stall.told {
		g.stall.told = true
		g.app.say("waiting: %s", e.msg)
	}
	return nil
}

// askGroup says why nobody answers for the group; nil if somebody does.
func (g *grouped) askGroup(ctx context.Context) *cliError {
	ctx, cancel := context.WithTimeout(ctx, toExplain)
	defer cancel()
	_, err := g.plan.admin.FetchOffsets(ctx, g.flags.group)
	var ke *kerr.Error
	if err == nil || errors.As(err, &ke) && !ke.Retriable {
		return nil
	}
	e := failure(g.plan.answered("group "+g.flags.group, err, ""))
	e.exit = exitUnreachable
	return e
}

// unread says why nothing comes of partitions. Where their leaders have an answer there may be nothing, if the run has no end.
func (g *grouped) unread(ctx context.Context, quiet []tp) error {
	ask, cancel := context.WithTimeout(ctx, toExplain)
	defer cancel()
	if err := g.deleted(ask, quiet); err != nil {
		return err
	}
	moved, err := g.look(ctx, quiet)
	if err != nil {
		return err
	}
	answers := g.plan.listOffsets(ask, quiet, atEnd, g.flags.readCommitted)
	for _, key := range quiet {
		err := answers[key].err
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var e *cliError
		switch {
		case err != nil:
			e = g.plan.noLeader(ctx, key, err)
		case g.flags.exit && !moved[key]:
			if e = g.askGroup(ctx); e == nil { // who may not have told where to begin
				e = g.plan.timedOut(key.String())
			}
		}
		if e != nil && g.flags.exit {
			return e
		}
		g.tell(key, e)
	}
	return nil
}

// tell says once that nothing comes of a partition, and when its leader is there again.
func (g *grouped) tell(key tp, e *cliError) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.parts[key]
	switch {
	case p == nil || p.told == (e != nil):
		return
	case e != nil:
		g.app.say("left out for now: %s", e.msg)
	default:
		g.app.say("%s is there again", key)
	}
	p.told = e != nil
}

// deleted says that a topic is not the one any more that reading began with.
func (g *grouped) deleted(ctx context.Context, quiet []tp) error {
	var topics []string
	for _, key := range quiet {
		if !slices.Contains(topics, key.topic) {
			topics = append(topics, key.topic)
		}
	}
	m, err := g.plan.admin.Metadata(ctx, topics...)
	if err != nil {
		return nil // the leaders do not answer either
	}
	for _, topic := range topics {
		detail := m.Topics[topic]
		if errors.Is(detail.Err, kerr.UnknownTopicOrPartition) || detail.Err == nil && [16]byte(detail.ID) != g.ids[topic] {
			return kafkaError("topic "+topic, kerr.UnknownTopicOrPartition, "it was deleted")
		}
	}
	return nil
}

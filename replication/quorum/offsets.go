package quorum

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/keeplog/keeplog/internal/invariant"
	"github.com/keeplog/keeplog/metadata"
)

// The lane of offsets takes proposals on every node. Its entries are carried to whoever leads, one at a time, again and again until it is
// known what became of them; the session makes them one. An entry holds at most maxCommits changes or maxOffsets bytes, so that none of
// them keeps the metadata waiting for long; a proposal that is larger goes alone.
const (
	maxCommits = 512
	maxOffsets = 64 << 10
	// An entry is carried again after carryPause at first, later after carryPauses at most; carryTime bounds one question to the leader.
	carryPause  = 20 * time.Millisecond
	carryPauses = 320 * time.Millisecond
	carryTime   = 10 * time.Second
)

// ErrForeignCommand says that a command from another node is none of the lane of offsets.
var ErrForeignCommand = errors.New("quorum: no command of groups")

// ProposeOffsets commits records of groups, on any node, and waits until it is known what became of them: until the leader has applied
// them, this node may do so later (see WaitIndex). Records are accepted or refused one by one. What this node proposes is committed in the
// order of the calls. Without records it waits for all that this node has proposed before. The error is of the proposal: ErrNotProposed,
// ErrTooLarge and ErrClosed say that nothing was committed, ErrUnknownOutcome that it may have been, or may yet be.
func (q *Quorum) ProposeOffsets(ctx context.Context, records []metadata.Record) (Applied, error) {
	if q.epoch.Load() == metadata.NoEpoch {
		return Applied{}, fmt.Errorf("%w: this broker is not registered", ErrNotProposed)
	}
	return q.propose(ctx, metadata.LaneOffsets, metadata.Group{Records: records})
}

// OfferOffsets is ProposeOffsets for who does not wait: then is called once with what became of the records, on another goroutine and
// perhaps before OfferOffsets returns. It must not wait for another proposal. When the quorum closes meanwhile it may not be called.
func (q *Quorum) OfferOffsets(records []metadata.Record, then func(Applied, error)) {
	if q.epoch.Load() == metadata.NoEpoch {
		go then(Applied{}, fmt.Errorf("%w: this broker is not registered", ErrNotProposed))
		return
	}
	p := newProposal(&metadata.Group{Records: records})
	p.then = then
	if err := q.lanes[metadata.LaneOffsets].put(p); err != nil {
		go then(Applied{}, err)
	}
}

// changesIn counts the changes of groups in records.
func changesIn(records []metadata.Record) int {
	n := 0
	for _, rec := range records {
		switch r := rec.(type) {
		case metadata.OffsetsCommitted:
			n += len(r.Offsets)
		case metadata.OffsetsRemoved:
			n += len(r.Partitions)
		case metadata.GroupChanged:
			n += len(r.Entries)
		}
	}
	return max(n, len(records))
}

// Submit commits, as the leader, a command that another node's lane of offsets made, and waits until it is applied here. It is safe to
// repeat. The payload stays the caller's. Errors: ErrNotLeader, ErrNotProposed and one for a payload that is no such command say that nothing was proposed now,
// ErrUnknownOutcome and ErrClosed that it may have been.
func (q *Quorum) Submit(ctx context.Context, payload []byte) (metadata.Outcome, error) {
	if err := checkSubmitted(payload); err != nil {
		return metadata.Outcome{}, err
	}
	// Raft keeps what it is given for members that are behind, long after the answer.
	return q.submit(ctx, bytes.Clone(payload))
}

// checkSubmitted wants a command of the lane of offsets that every node can apply: what cannot be read would end them all.
func checkSubmitted(payload []byte) error {
	if len(payload) > MaxEntry {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(payload), MaxEntry)
	}
	c, err := metadata.DecodeCommand(payload)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrForeignCommand, err)
	case c.Session.Lane != metadata.LaneOffsets || c.Session.Epoch == metadata.NoEpoch:
		return fmt.Errorf("%w: its session is another lane's", ErrForeignCommand)
	}
	for i := range c.Groups {
		for _, rec := range c.Groups[i].Records {
			switch rec.(type) {
			case metadata.OffsetsCommitted, metadata.OffsetsRemoved, metadata.GroupChanged, metadata.GroupRemoved:
			default:
				return fmt.Errorf("%w: a record %q is in it", ErrForeignCommand, rec.Kind())
			}
		}
	}
	return nil
}

// submit hands a command to Raft, which this node leads, and waits until it is applied.
func (q *Quorum) submit(ctx context.Context, payload []byte) (metadata.Outcome, error) {
	if _, err := q.Lead(); err != nil {
		return metadata.Outcome{}, err
	}
	f := q.raft().Apply(payload, enqueueTimeout)
	switch err := waitApplied(ctx, f); {
	case err == nil:
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return metadata.Outcome{}, q.notLeader()
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return metadata.Outcome{}, fmt.Errorf("%w: %w", ErrNotProposed, err)
	default:
		return metadata.Outcome{}, fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	r := f.Response().(reply)
	if r.err != nil {
		return metadata.Outcome{}, fmt.Errorf("%w: %w", ErrClosed, r.err)
	}
	return r.outcome, nil
}

// waitApplied waits for Raft as long as the context.
func waitApplied(ctx context.Context, f raft.Future) error {
	if ctx.Done() == nil {
		return f.Error()
	}
	return wait(ctx, f, func(err error) error { return err })
}

// carry sees an entry of the lane of offsets through, whoever leads.
func (l *lane) carry(payload []byte) (metadata.Outcome, error) {
	q := l.q
	pause := carryPause
	for tried := false; ; tried = true {
		changed := q.changes()
		out, err := q.carryOnce(changed, payload)
		switch {
		case err == nil && tried && refusedSession(out):
			// Another incarnation of this broker proposes by now. It may have been applied before that.
			return metadata.Outcome{}, fmt.Errorf("%w: %w", ErrUnknownOutcome, metadata.ErrStaleSession)
		case err == nil:
			return out, nil
		case q.ctx.Err() != nil:
			return metadata.Outcome{}, fmt.Errorf("%w: %w: %w", ErrUnknownOutcome, ErrClosed, err)
		}
		t := time.NewTimer(pause)
		select {
		case <-changed:
			pause = carryPause
		case <-t.C:
			pause = min(2*pause, carryPauses)
		case <-q.ctx.Done():
		}
		t.Stop()
	}
}

// refusedSession says that the command came from a session that is over.
func refusedSession(o metadata.Outcome) bool {
	for _, g := range o.Results {
		for _, r := range g {
			return r.Refusal == metadata.RefusedSession
		}
	}
	return false
}

// carryOnce hands an entry to Raft here, or to the node that leads; it is taken back when another one does.
func (q *Quorum) carryOnce(changed <-chan struct{}, payload []byte) (metadata.Outcome, error) {
	if _, err := q.Lead(); err == nil {
		return q.submit(context.Background(), payload) // Raft answers when it loses the lead
	}
	id, ok := q.Leader()
	if !ok || id == q.o.Node || q.o.Remote == nil {
		return metadata.Outcome{}, q.notLeader()
	}
	ctx, cancel := context.WithTimeout(q.ctx, carryTime)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	go q.cancelWhenMoved(id, changed, done, cancel)
	return q.o.Remote(ctx, id, payload)
}

// cancelWhenMoved ends a question to a node that does not lead any more.
func (q *Quorum) cancelWhenMoved(id metadata.BrokerID, changed <-chan struct{}, done <-chan struct{}, cancel context.CancelFunc) {
	for {
		select {
		case <-changed:
		case <-done:
			return
		}
		changed = q.changes()
		if now, ok := q.Leader(); ok && now != id {
			cancel()
			return
		}
	}
}

// early is the planted bug that a proposal is answered before its entry is committed.
func (l *lane) early(batch []*proposal) bool {
	if l.id != metadata.LaneOffsets || !invariant.Seeded(invariant.CommitBeforeQuorum) {
		return false
	}
	for _, p := range batch {
		p.finish(Applied{Index: l.q.Image().Index() + 1, Results: make([]metadata.Result, p.records)}, nil)
	}
	return true
}

package quorum

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/keeplog/keeplog/metadata"
)

// NotLeader is the error of what only the leader can do; it wraps [ErrNotLeader].
type NotLeader struct {
	// Leader is who leads, -1 when that is not known.
	Leader metadata.BrokerID
}

// Error says who leads.
func (e NotLeader) Error() string {
	if e.Leader < 0 {
		return ErrNotLeader.Error()
	}
	return fmt.Sprintf("%v: node %d is", ErrNotLeader, e.Leader)
}

// Unwrap is ErrNotLeader.
func (e NotLeader) Unwrap() error { return ErrNotLeader }

func (q *Quorum) notLeader() error {
	if id, ok := q.Leader(); ok && id != q.o.Node {
		return NotLeader{id}
	}
	return NotLeader{-1}
}

// LeaderChanged is closed, and replaced, when another node leads as far as this one knows, when this node becomes ready to
// lead or is it no more, and when it is refused. A hint: look again at Leader, Lead and Err.
func (q *Quorum) LeaderChanged() <-chan struct{} { return q.changes() }

// Refused is closed when this node can be no member: see Err.
func (q *Quorum) Refused() <-chan struct{} { return q.refused }

// Err says why this node can be no member: its id or its disk is another's (ErrForeign), it was removed (ErrRemoved), or the
// others list other voters (ErrVoters). It says what to do. Nil while nothing is wrong.
func (q *Quorum) Err() error {
	select {
	case <-q.refused:
		return q.refusal
	default:
		return nil
	}
}

// refuse ends this node's part in the cluster.
func (q *Quorum) refuse(err error) {
	q.refuseOnce.Do(func() {
		q.refusal = err
		close(q.refused)
		q.o.Logger.Error("this node cannot be a member", "error", err)
		q.announce()
	})
}

// announce wakes who waits for a change of leader.
func (q *Quorum) announce() {
	q.changedMu.Lock()
	defer q.changedMu.Unlock()
	close(q.changed)
	q.changed = make(chan struct{})
}

// watchLeader announces what Raft observes.
func (q *Quorum) watchLeader() {
	for {
		select {
		case <-q.observed:
			q.announce()
		case <-q.ctx.Done():
			return
		}
	}
}

// observer lets changes of the leader through, and notes which members answer.
func (q *Quorum) observer() *raft.Observer {
	log := q.o.Logger.With("part", "raft")
	return raft.NewObserver(q.observed, false, func(o *raft.Observation) bool {
		q.unheard.observes(o.Data, log)
		_, leader := o.Data.(raft.LeaderObservation)
		return leader
	})
}

// look is how often a wait asks again for what nobody announces.
const look = 100 * time.Millisecond

// WaitReady waits until the image has the cluster's id and this node has applied all that the leader had committed when it was
// asked. It returns at once what Err says, when this node can be no member.
func (q *Quorum) WaitReady(ctx context.Context) error {
	for {
		changed := q.changes()
		if err := q.Err(); err != nil {
			return err
		}
		if _, err := q.Lead(); err == nil || q.follows(ctx) {
			return nil
		}
		if err := q.pause(ctx, changed); err != nil {
			return err
		}
	}
}

// pause waits for a change, or a moment.
func (q *Quorum) pause(ctx context.Context, changed <-chan struct{}) error {
	t := time.NewTimer(look)
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", q.notLeader(), context.Cause(ctx))
	case <-q.ctx.Done():
		return ErrClosed
	}
	return nil
}

// follows asks the leader how far it is, and waits until this node is as far.
func (q *Quorum) follows(ctx context.Context) bool {
	id, ok := q.Leader()
	if q.peers == nil || !ok || id == q.o.Node {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, handshake)
	defer cancel()
	h, err := q.peers.ask(limited, identity{id: id}, true)
	if err != nil || !h.leading {
		return false
	}
	return q.WaitIndex(limited, h.applied) == nil && q.Image().ClusterID() != ""
}

// WaitIndex waits until this node has applied the command at an index.
func (q *Quorum) WaitIndex(ctx context.Context, index uint64) error {
	for {
		moved := q.fsm.moves()
		if q.Image().Index() >= index {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-q.ctx.Done():
			return ErrClosed
		}
	}
}

// LeaderAddress waits until a leader is known and where its broker listens for other brokers, and returns both.
func (q *Quorum) LeaderAddress(ctx context.Context) (metadata.BrokerID, metadata.Endpoint, error) {
	for {
		changed := q.changes()
		if id, ok := q.Leader(); ok {
			if e, ok := q.internalOf(ctx, id); ok {
				return id, e, nil
			}
		}
		if err := q.Err(); err != nil {
			return 0, metadata.Endpoint{}, err
		}
		if err := q.pause(ctx, changed); err != nil {
			return 0, metadata.Endpoint{}, err
		}
	}
}

// internalOf is where a broker listens for other brokers: what it said last of itself, or its registration, whichever is newer.
func (q *Quorum) internalOf(ctx context.Context, id metadata.BrokerID) (metadata.Endpoint, bool) {
	if id == q.o.Node {
		return q.o.Internal, true
	}
	var registered metadata.Endpoint
	b, known := q.Image().Broker(id)
	if known {
		registered, known = b.Listener(q.o.Internal.Name)
	}
	if q.peers == nil {
		return registered, known
	}
	last, said := q.peers.book.last(id)
	if !said && !known {
		limited, cancel := context.WithTimeout(ctx, handshake)
		defer cancel()
		if _, err := q.peers.ask(limited, identity{id: id}, false); err != nil {
			return metadata.Endpoint{}, false
		}
		last, said = q.peers.book.last(id)
	}
	if known && (!said || uint64(b.Epoch) > last.at) {
		return registered, true
	}
	return last.hello.internal, said && last.hello.internal.Port != 0
}

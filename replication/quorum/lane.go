package quorum

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/keeplog/keeplog/metadata"
)

const (
	// maxWaiting bounds the bytes of the proposals of a lane that wait for the entry in flight.
	maxWaiting = 16 << 20
	// enqueueTimeout bounds the wait for Raft's main loop, which a slow disk holds up.
	enqueueTimeout = 10 * time.Second
)

// errFull says that too much is waiting.
var errFull = fmt.Errorf("%w: %d MiB are waiting already", ErrNotProposed, maxWaiting>>20)

// lane is a queue of proposals with one entry in flight: while it is, the next one fills.
type lane struct {
	q  *Quorum
	id metadata.Lane
	// sequence and epoch are the goroutine's own.
	sequence uint64
	epoch    int64

	mu      sync.Mutex
	waiting []*proposal
	bytes   int // of what waits
	commits int // the changes of groups in it
	closed  bool
	want    int // how many must wait for full to be told, 0 for never
	wake    chan struct{}
	full    chan struct{}
}

// proposalSize is room for the bytes of a proposal of the most frequent kind: one offset.
const proposalSize = 128

// proposal is the records of one caller.
type proposal struct {
	group []byte
	// records is their number, commits that of the changes of groups in them.
	records, commits int
	state            atomic.Int32
	// Either then is called with the outcome, or done is closed when applied and err have it.
	then    func(Applied, error)
	done    chan struct{}
	applied Applied
	err     error
}

// The states of a proposal.
const (
	waiting = iota
	taken
	givenUp
)

func newLane(q *Quorum, id metadata.Lane) *lane {
	return &lane{q: q, id: id, wake: make(chan struct{}, 1), full: make(chan struct{}, 1)}
}

// Propose commits records and waits until they are applied on this node. Each record is accepted or refused by itself; the
// error is of the proposal: ErrNotLeader, ErrNotProposed, ErrTooLarge and ErrClosed say that nothing was committed,
// ErrUnknownOutcome that it may have been.
func (q *Quorum) Propose(ctx context.Context, records []metadata.Record) (Applied, error) {
	return q.propose(ctx, metadata.LaneMetadata, metadata.Group{Records: records})
}

// ProposeAt is Propose for records that were planned in a term (see Lead): committed in another term they are refused.
func (q *Quorum) ProposeAt(ctx context.Context, term uint64, records []metadata.Record) (uint64, []metadata.Result, error) {
	a, err := q.propose(ctx, metadata.LaneMetadata, metadata.Group{Term: term, Records: records})
	return a.Index, a.Results, err
}

func newProposal(g *metadata.Group) *proposal {
	return &proposal{group: metadata.AppendGroup(make([]byte, 0, proposalSize), g), records: len(g.Records), commits: changesIn(g.Records)}
}

func (q *Quorum) propose(ctx context.Context, id metadata.Lane, g metadata.Group) (Applied, error) {
	p := newProposal(&g)
	p.done = make(chan struct{})
	if err := q.lanes[id].put(p); err != nil {
		return Applied{}, err
	}
	select {
	case <-p.done:
		return p.applied, p.err
	case <-q.gone:
		return p.afterEnd()
	case <-ctx.Done():
	}
	if p.state.CompareAndSwap(waiting, givenUp) {
		return Applied{}, fmt.Errorf("%w: %w", ErrNotProposed, context.Cause(ctx))
	}
	select {
	case <-p.done:
		return p.applied, p.err
	default:
		return Applied{}, fmt.Errorf("%w: %w", ErrUnknownOutcome, context.Cause(ctx))
	}
}

// afterEnd is the answer when Raft has shut down and nobody may be left to give one.
func (p *proposal) afterEnd() (Applied, error) {
	select {
	case <-p.done:
		return p.applied, p.err
	default:
		return Applied{}, fmt.Errorf("%w: %w", ErrUnknownOutcome, ErrClosed)
	}
}

// entryHead is more than the bytes of an entry before its groups.
const entryHead = 64

func (l *lane) put(p *proposal) error {
	if len(p.group) > MaxEntry-entryHead {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(p.group), MaxEntry-entryHead)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return ErrClosed
	case l.bytes+len(p.group) > maxWaiting && !l.drop(len(p.group)):
		return errFull
	}
	l.waiting = append(l.waiting, p)
	l.bytes += len(p.group)
	l.commits += p.commits
	tell(l.wake)
	if l.want > 0 && l.enough(l.want) {
		l.want = 0
		tell(l.full)
	}
	return nil
}

// enough says that so many proposals wait, or what fills an entry of offsets. The lock is held.
func (l *lane) enough(proposals int) bool {
	return len(l.waiting) >= proposals || l.commits >= maxCommits || l.bytes >= maxOffsets
}

// tell wakes who waits at a channel that holds one token.
func tell(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// drop drops the proposals that were given up, and says whether there is room then. The lock is held.
func (l *lane) drop(size int) bool {
	l.waiting = slices.DeleteFunc(l.waiting, func(p *proposal) bool {
		gone := p.state.Load() == givenUp
		if gone {
			l.bytes -= len(p.group)
			l.commits -= p.commits
		}
		return gone
	})
	return l.bytes+size <= maxWaiting
}

// take takes what fits in one entry, without those that were given up.
func (l *lane) take() (batch []*proposal, groups [][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size, n, count := entryHead, 0, 0
	for _, p := range l.waiting {
		if size+len(p.group) > MaxEntry || l.id == metadata.LaneOffsets && len(batch) > 0 && (count+p.commits > maxCommits || size+len(p.group) > maxOffsets) {
			break
		}
		n++
		l.bytes -= len(p.group)
		l.commits -= p.commits
		if p.state.CompareAndSwap(waiting, taken) {
			size += len(p.group)
			count += p.commits
			batch, groups = append(batch, p), append(groups, p.group)
		}
	}
	l.waiting = l.waiting[n:]
	if len(l.waiting) == 0 {
		l.waiting = nil
	}
	return batch, groups
}

func (l *lane) run() {
	for {
		batch, groups := l.take()
		if len(batch) > 0 {
			began := time.Now()
			l.send(batch, groups)
			l.gather(len(batch), time.Since(began))
			continue
		}
		select {
		case <-l.wake:
		case <-l.q.ctx.Done():
			l.close()
			return
		}
	}
}

// Where an entry and what waits behind it are gatherLeast proposals of offsets or more, the next entry waits for those that come, up to
// entryPace after the last one was sent.
const (
	gatherLeast = 16
	entryPace   = 40 * time.Millisecond
)

// gather lets those that were just answered, so many, come with what they have next, as long as more and more do: else the next entry
// holds what the quickest of them have, and the others wait for it. Of offsets it is better to wait for more a while longer: where many
// commit they need the processors for what comes before and after, and a few large entries leave them more of those than many small ones.
// Where nearly all were in the last entry, which took so long, the next one goes when they are back; else there is always somebody who comes.
func (l *lane) gather(answered int, took time.Duration) {
	behind := l.waits()
	for n, before := behind, -1; n > before; n = l.waits() {
		if l.id != metadata.LaneOffsets && n >= answered {
			return
		}
		before = n
		runtime.Gosched()
	}
	switch {
	case l.id != metadata.LaneOffsets || answered+behind < gatherLeast:
	case behind < answered/8:
		l.await(answered, entryPace-took)
	default:
		l.await(maxCommits, entryPace-took)
	}
}

// waits is how many proposals do.
func (l *lane) waits() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

// await waits until so many proposals are waiting, or the next entry is full, or for a time.
func (l *lane) await(proposals int, most time.Duration) {
	l.mu.Lock()
	enough := l.enough(proposals)
	if !enough {
		l.want = proposals
	}
	l.mu.Unlock()
	if enough {
		return
	}
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-l.full:
		return
	case <-t.C:
	case <-l.q.ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.want = 0
	select {
	case <-l.full: // told in the meantime
	default:
	}
}

// close ends what waits.
func (l *lane) close() {
	l.mu.Lock()
	l.closed = true
	left := l.waiting
	l.waiting = nil
	l.mu.Unlock()
	for _, p := range left {
		p.finish(Applied{}, ErrClosed)
	}
}

func (p *proposal) finish(a Applied, err error) {
	if p.then != nil {
		p.then(a, err)
		return
	}
	p.applied, p.err = a, err
	close(p.done)
}

// send makes one entry of a batch and sees it through.
func (l *lane) send(batch []*proposal, groups [][]byte) {
	if epoch := l.q.epoch.Load(); epoch != l.epoch {
		l.epoch, l.sequence = epoch, 0
	}
	l.sequence++
	s := metadata.Session{Broker: l.q.o.Node, Epoch: l.epoch, Lane: l.id, Sequence: l.sequence}
	size := entryHead
	for _, g := range groups {
		size += len(g)
	}
	payload := metadata.AppendEncoded(make([]byte, 0, size), s, groups)
	answered := l.early(batch)
	out, err := l.commit(payload)
	if answered {
		return
	}
	if l.id != metadata.LaneOffsets {
		finish(batch, &out, err)
		return
	}
	l.q.inFlight.Go(func() { finish(batch, &out, err) }) // the next entry does not wait for those who hear of this one
}

// finish tells the proposals of an entry what became of it.
func finish(batch []*proposal, out *metadata.Outcome, err error) {
	for i, p := range batch {
		switch {
		case err != nil:
			p.finish(Applied{}, err)
		case !p.answeredBy(out, i):
			p.finish(Applied{}, fmt.Errorf("%w: the answer is not of what was proposed", ErrUnknownOutcome))
		default:
			p.finish(Applied{Index: out.Index, Results: out.Results[i]}, nil)
		}
	}
}

// answeredBy says that an outcome has a result for each record of the proposal, the i-th of the entry. One that another node tells might not,
// and a record without a result must not count as accepted.
func (p *proposal) answeredBy(out *metadata.Outcome, i int) bool {
	return i < len(out.Results) && len(out.Results[i]) == p.records
}

// commit commits one entry. When it is not known what became of it, it is proposed again as soon as this node leads again:
// the session makes it one entry, however often it is in the log.
func (l *lane) commit(payload []byte) (metadata.Outcome, error) {
	if l.id == metadata.LaneOffsets {
		return l.carry(payload)
	}
	q := l.q
	unknown := false
	for {
		if _, err := q.Lead(); err != nil && !unknown {
			return metadata.Outcome{}, err
		}
		f := q.raft().Apply(payload, enqueueTimeout)
		err := f.Error()
		if err == nil {
			r := f.Response().(reply)
			if r.err != nil {
				return metadata.Outcome{}, fmt.Errorf("%w: %w", ErrClosed, r.err)
			}
			return r.outcome, nil
		}
		switch {
		case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
			if !unknown {
				return metadata.Outcome{}, q.notLeader()
			}
		case errors.Is(err, raft.ErrEnqueueTimeout):
			if !unknown {
				return metadata.Outcome{}, fmt.Errorf("%w: %w", ErrNotProposed, err)
			}
		default:
			unknown = true
			if l.epoch == metadata.NoEpoch {
				return metadata.Outcome{}, fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
			}
		}
		if !l.again() {
			return metadata.Outcome{}, fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
		}
	}
}

// again waits until an entry of unknown outcome can be proposed again here. It gives up when another node leads, and at the
// end.
func (l *lane) again() bool {
	q := l.q
	t := time.NewTimer(10 * q.o.Timing.Election)
	defer t.Stop()
	for {
		changed := q.changes()
		if _, err := q.Lead(); err == nil {
			return true
		}
		if _, id := q.raft().LeaderWithID(); id != "" && id != serverID(q.o.Node) {
			return false
		}
		select {
		case <-changed:
		case <-t.C:
			return false
		case <-q.ctx.Done():
			return false
		}
	}
}

package isr

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
)

// This file moves replicas between the data directories of this broker (KIP-113). The copying and what makes it safe is package
// log's: see log.Move. A partition has one move at most, on a goroutine of its own; how many copy at a time is limited.

// ErrUnknownDirectory says that this broker has no such data directory.
var ErrUnknownDirectory = errors.New("isr: no such data directory")

// moves are those of a broker.
type moves struct {
	slots    chan []byte // as many as may copy at a time, with their buffers
	throttle throttle

	mu     sync.Mutex
	wanted map[log.TopicPartition]*log.Dir // where replicas should begin that are not here yet; lost with the process
}

const (
	copyBytes  = 1 << 20
	maxWanted  = 1 << 16 // wishes for replicas that are not here
	moveRetry  = time.Second
	moveSettle = 10 * time.Millisecond // between two tries of a copy that has everything
	// stepPatience is for how long the end of partitions, and another wish, wait for the step of a move that is under way
	stepPatience = 5 * time.Second
)

func newMoves(threads int) *moves {
	m := &moves{slots: make(chan []byte, max(threads, 1)), wanted: map[log.TopicPartition]*log.Dir{}}
	for range cap(m.slots) {
		m.slots <- nil
	}
	return m
}

// moving is a partition's part in it.
type moving struct {
	turn  chan struct{}            // holds one while a move begins or makes way for another; the move itself does not take it
	mu    sync.Mutex               // guards ended, and with it that another move comes
	ended bool                     // the partition is on its way out
	now   atomic.Pointer[transfer] // nil: there is none; one that has ended stays where the replica's own directory is offline

	reopened atomic.Bool // it was shut and is not any more: its role is to be applied again

	config sync.Mutex // orders changes of the log's configuration with a change of the log
	latest *config.Topic
}

// transfer is one move.
type transfer struct {
	p    *Partition
	move *log.Move
	stop chan struct{}
	done chan struct{} // closed when it is over

	abandoned sync.Once
	gone      chan struct{} // closed when it was abandoned, and is over and the copy gone
}

// Place asks that the replica of a partition lies in a data directory. It returns when the copy has begun; where the replica is there already,
// a move to another directory is given up. Where this broker holds no such replica, it will begin in that directory when it comes, and the
// error is ErrUnknownPartition. A data directory that neither answers nor fails is waited for a few seconds, then the error is ErrOffline: a move that
// has not begun does not any more, and one that was to be given up is when the directory answers. Other errors: ErrUnknownDirectory, log.ErrName, log.ErrReserve, log.ErrInTheWay.
func (r *Replicas) Place(topic string, id metadata.TopicID, partition int32, dir string) error {
	var to *log.Dir
	for _, d := range r.opts.Dirs {
		if d.Path() == dir {
			to = d
		}
	}
	if to == nil {
		return fmt.Errorf("%w: %s", ErrUnknownDirectory, dir)
	}
	if _, ok := log.FutureName(topic, partition, [16]byte{}); !ok {
		return fmt.Errorf("%w: %q is too long to be moved", log.ErrName, topic)
	}
	if err := to.Offline(); err != nil {
		return fmt.Errorf("%w: %w", ErrOffline, err)
	}
	p, err := r.Partition(id, partition)
	if err != nil {
		r.moves.want(log.TopicPartition{Topic: topic, Partition: partition}, to)
		return err
	}
	return p.moveTo(to)
}

func (m *moves) want(key log.TopicPartition, to *log.Dir) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.wanted[key]; known || len(m.wanted) < maxWanted {
		m.wanted[key] = to
	}
}

// take is the directory that was asked for, once; nil for none.
func (m *moves) take(id log.Identity) *log.Dir {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := log.TopicPartition{Topic: id.Topic, Partition: id.Partition}
	to := m.wanted[key]
	delete(m.wanted, key)
	if to != nil && to.Offline() != nil {
		return nil
	}
	return to
}

// hangs is the error of a data directory that does not answer.
func hangs(d *log.Dir, what string) error {
	return fmt.Errorf("%w: %s does not answer: %s", ErrOffline, d.Path(), what)
}

// moveTo waits for stepPatience at most, on all data directories together.
func (p *Partition) moveTo(to *log.Dir) error {
	if p.log == nil {
		return fmt.Errorf("%w: %w", ErrOffline, p.openErr)
	}
	w := &p.moving
	patience, cancel := context.WithTimeout(context.Background(), stepPatience)
	defer cancel()
	select {
	case w.turn <- struct{}{}:
	case <-patience.Done():
		return hangs(to, "another move begins or ends")
	}
	begun, err := p.giveUpFor(to, patience.Done())
	if begun || err != nil {
		<-w.turn
		return err
	}
	a := &attempt{done: make(chan error, 1)}
	p.replicas.done.Go(func() {
		err := p.begin(a, to, nil)
		<-w.turn
		a.done <- err
	})
	select {
	case err := <-a.done:
		return err
	case <-patience.Done():
		if a.settled.CompareAndSwap(false, true) {
			return hangs(to, "the move does not begin")
		}
		return <-a.done
	}
}

// giveUpFor ends a move to another directory than the one that is wanted now. begun says that there is nothing left to do. The caller has
// the turn.
func (p *Partition) giveUpFor(to *log.Dir, patience <-chan struct{}) (begun bool, err error) {
	w := &p.moving
	w.mu.Lock()
	ended, t := w.ended, w.now.Load()
	w.mu.Unlock()
	if ended {
		return false, ErrUnknownPartition
	}
	if err := p.log.Err(); err != nil { // a copy that is there may outlive the replica: it is not given up
		return false, fmt.Errorf("%w: %w", ErrOffline, err)
	}
	if t != nil {
		if t.move.Target() == to && !t.givenUp() {
			return true, nil
		}
		p.replicas.opts.Logger.Info("a move to another data directory is given up", "event", "replica.move.cancelled", "topic", p.id.Topic,
			"partition", p.id.Partition, "to", t.move.Target().Path())
		select {
		case <-t.abandon():
		case <-patience:
			return false, hangs(t.move.Target(), "its copy is deleted once it does")
		}
	}
	if p.directory() == to {
		return true, nil
	}
	return false, to.Writable()
}

// attempt is the beginning of a move. Whoever sets settled first says what comes of it: it has begun, or is not waited for any more.
type attempt struct {
	settled atomic.Bool
	done    chan error
}

// begin makes the copy, or goes on with the one that was found, and starts its goroutine. It works on both disks, without a lock. The caller
// has the turn.
func (p *Partition) begin(a *attempt, to *log.Dir, found *log.Found) error {
	m, err := log.BeginMove(p.log.current(), to, found)
	if err != nil {
		return err
	}
	wanted := a.settled.CompareAndSwap(false, true)
	p.moving.mu.Lock()
	ended := p.moving.ended
	if wanted && !ended {
		p.transfer(m)
	}
	p.moving.mu.Unlock()
	if !wanted || ended {
		if err := m.Drop(); err != nil {
			p.replicas.opts.Logger.Error("cannot delete a copy", "event", "replica.move.failed", "topic", p.id.Topic, "partition", p.id.Partition,
				"to", to.Path(), "error", err)
		}
		return ErrUnknownPartition // who does not wait any more has another answer
	}
	p.replicas.opts.Logger.Info("a replica moves to another data directory", "event", "replica.move", "topic", p.id.Topic,
		"partition", p.id.Partition, "from", p.log.Path(), "to", to.Path())
	return nil
}

// directory is where the replica lies.
func (p *Partition) directory() *log.Dir {
	p.replicas.mu.RLock()
	defer p.replicas.mu.RUnlock()
	return p.dir
}

// transfer starts the goroutine of a move.
func (p *Partition) transfer(m *log.Move) {
	t := &transfer{p: p, move: m, stop: make(chan struct{}), done: make(chan struct{}), gone: make(chan struct{})}
	p.moving.now.Store(t)
	p.replicas.done.Go(t.run)
}

// resume goes on with a copy that was under way at the last stop. Where the replica here has lost data, the copy may be all that is left
// of it: it is put aside, which a line of the log tells.
func (p *Partition) resume() {
	w := &p.moving
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	for _, d := range p.replicas.opts.Dirs {
		found, ok := d.TakeFuture(p.id)
		if !ok {
			continue
		}
		var err error
		if _, lost := p.log.MissingData(); lost {
			err = d.Quarantine(*found, "the replica of which it is a copy has lost data")
		} else {
			err = p.begin(&attempt{}, d, found)
		}
		if err != nil {
			p.replicas.opts.Logger.Error("cannot go on with a move to another data directory", "event", "replica.move.failed", "topic", p.id.Topic,
				"partition", p.id.Partition, "to", d.Path(), "error", err)
		}
	}
}

// endMoves gives the moves of partitions up for good: they are on their way out. It does not wait for long on steps that do not return, because
// the target hangs, however many they are: the copies go when they do.
func endMoves(all []*Partition) {
	patience, cancel := context.WithTimeout(context.Background(), stepPatience)
	defer cancel()
	under := make([]*transfer, len(all))
	for i, p := range all {
		p.moving.mu.Lock()
		p.moving.ended = true
		under[i] = p.moving.now.Load()
		p.moving.mu.Unlock()
		if under[i] != nil {
			under[i].abandon()
		}
	}
	for i, p := range all {
		p.awaitMove(under[i], patience.Done())
	}
}

// awaitMove waits until no move of the partition is under way.
func (p *Partition) awaitMove(t *transfer, patience <-chan struct{}) {
	select {
	case p.moving.turn <- struct{}{}: // none begins
		<-p.moving.turn
	case <-patience:
	}
	if t == nil {
		return
	}
	select {
	case <-t.gone:
	case <-patience:
		p.replicas.opts.Logger.Warn("a data directory does not answer: a copy is deleted once it does", "event", "replica.move.hangs", "topic", p.id.Topic,
			"partition", p.id.Partition, "to", t.move.Target().Path())
	}
}

// abandon stops the move after the step that is under way, and has the copy deleted then, unless the move is through. What it returns is
// closed after that.
func (t *transfer) abandon() (gone <-chan struct{}) {
	t.abandoned.Do(func() {
		close(t.stop)
		t.p.replicas.done.Go(func() {
			defer close(t.gone)
			<-t.done
			t.drop()
		})
	})
	return t.gone
}

// givenUp says that abandon was called.
func (t *transfer) givenUp() bool {
	select {
	case <-t.stop:
		return true
	default:
		return false
	}
}

// drop deletes the copy, unless the move is through. Called by the goroutine of the move, or after it.
func (t *transfer) drop() {
	w := &t.p.moving
	if w.now.Load() != t {
		return
	}
	defer w.now.CompareAndSwap(t, nil) // only now may another begin
	if err := t.move.Drop(); err != nil {
		t.p.replicas.opts.Logger.Error("cannot delete a copy", "event", "replica.move.failed", "topic", t.p.id.Topic, "partition", t.p.id.Partition,
			"to", t.move.Target().Path(), "error", err)
	}
}

// run copies until the copy has taken over, cannot, or is stopped.
func (t *transfer) run() {
	defer close(t.done)
	settle := moveSettle
	for {
		next, through, err := t.step()
		switch {
		case through:
			return
		case errors.Is(err, log.ErrNotYet):
			next, settle = settle, min(2*settle, moveRetry)
		case err != nil && !t.again(err):
			return
		case err != nil:
			next = moveRetry
		default: // it gets on: what comes meanwhile is to stay little
			settle = moveSettle
		}
		if !t.wait(next) {
			t.move.Stop()
			return
		}
	}
}

// wait returns false when the move is to stop.
func (t *transfer) wait(d time.Duration) bool {
	if d <= 0 {
		select {
		case <-t.stop:
			return false
		case <-t.p.replicas.stop:
			return false
		default:
			return true
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-t.stop:
		return false
	case <-t.p.replicas.stop:
		return false
	case <-timer.C:
		return true
	}
}

// step copies some, in its turn, or lets the copy take over. next is after what time to go on.
func (t *transfer) step() (next time.Duration, through bool, err error) {
	r := t.p.replicas
	var buf []byte
	select {
	case <-t.stop:
		return 0, false, nil
	case <-r.stop:
		return 0, false, nil
	case buf = <-r.moves.slots:
	}
	if buf == nil {
		buf = make([]byte, copyBytes)
	}
	defer func() { r.moves.slots <- buf }()
	rate, part := r.opts.Limits().MoveRate, buf
	if rate > 0 {
		part = buf[:min(max(rate, 16<<10), copyBytes)]
	}
	if !r.moves.throttle.open(rate, r.now()) {
		return expireEvery, false, nil
	}
	n, caughtUp, err := t.move.Step(part)
	if rate > 0 {
		r.moves.throttle.spend(n)
	}
	if err != nil || !caughtUp {
		if n == 0 {
			next = moveSettle
		}
		return next, false, err
	}
	return t.finish(buf)
}

// finish lets the copy take over.
func (t *transfer) finish(buf []byte) (next time.Duration, through bool, err error) {
	p := t.p
	err = t.move.TakeOver(buf, t.publish)
	moved := errors.Is(err, log.ErrMoved)
	if err != nil && !moved {
		return 0, false, err
	}
	p.moving.now.CompareAndSwap(t, nil)
	p.moving.config.Lock()
	if c := p.moving.latest; c != nil {
		p.log.SetConfig(*c)
	}
	p.moving.config.Unlock()
	p.progress()
	p.replicas.opts.Logger.Info("a replica has moved to another data directory", "event", "replica.moved", "topic", p.id.Topic,
		"partition", p.id.Partition, "path", p.log.Path(), "held_up", t.move.Held())
	if moved {
		p.replicas.opts.Logger.Warn("what was moved away is deleted at the next start", "event", "replica.move.left", "topic", p.id.Topic,
			"partition", p.id.Partition, "error", err)
	}
	return 0, true, nil
}

// publish puts the log that takes over in the old one's place.
func (t *transfer) publish(next *log.Log) {
	p := t.p
	p.mu.Lock()
	p.log.now.Store(next)
	next.SetWatermark(record.Offset(p.highWatermark.Load()))
	p.unshut()
	p.mu.Unlock()
	r := p.replicas
	r.mu.Lock()
	defer r.mu.Unlock()
	if ps := r.topics[p.id.TopicID]; int(p.id.Partition) < len(ps) && ps[p.id.Partition] == p { // else it is on its way out, and not counted
		r.counts[p.dir]--
		r.counts[t.move.Target()]++
	}
	p.dir = t.move.Target()
}

// unshut opens a partition again that was shut because the directory it comes from has gone offline, when its log has moved to one that has not.
// Its role may be another by now: until that is applied it has none. A halt stays, for it concerns the records. Called with mu held.
func (p *Partition) unshut() {
	if !errors.Is(p.closed, ErrOffline) || errors.Is(p.closed, ErrBelowWatermark) {
		return
	}
	if r := p.role.Load(); r != nil {
		p.role.Store(&role{leader: metadata.NoLeader, epoch: r.epoch, replicas: r.replicas, inSync: r.inSync, validations: r.validations})
	}
	p.closed = nil
	p.moving.reopened.Store(true)
}

// again says whether a move that failed may be tried again. If not, it is over: the copy is deleted, unless the replica itself is out of
// order, which the copy may outlive.
func (t *transfer) again(err error) bool {
	p := t.p
	own, target := p.log.Err(), t.move.Target().Offline()
	final := own != nil || target != nil || errors.Is(err, log.ErrReserve) || errors.Is(err, log.ErrCorruptBatch) || errors.Is(err, log.ErrClosed)
	p.replicas.opts.Logger.Error("a move to another data directory fails", "event", "replica.move.failed", "topic", p.id.Topic,
		"partition", p.id.Partition, "to", t.move.Target().Path(), "final", final, "error", err)
	if !final && !t.move.Spent() {
		return true
	}
	if own == nil {
		t.drop()
	} else { // it is dropped with the partition: until then its name is taken in the target
		t.move.Stop()
	}
	return false
}

// configure hands a topic's settings to the log.
func (p *Partition) configure(settings config.Topic) {
	p.moving.config.Lock()
	defer p.moving.config.Unlock()
	p.moving.latest = &settings
	p.log.SetConfig(settings)
}

// Future is a replica's copy on its way to another data directory.
type Future struct {
	DataDir string
	// Size is in bytes; Lag is by how many offsets the copy ends before the replica.
	Size, Lag int64
}

// Future describes the copy that is under way; ok is false where there is none.
func (p *Partition) Future() (f Future, ok bool) {
	t := p.moving.now.Load()
	if t == nil || p.log == nil {
		return Future{}, false
	}
	end, size := t.move.Copied()
	return Future{DataDir: t.move.Target().Path(), Size: size, Lag: max(int64(p.log.WrittenEnd()-end), 0)}, true
}

package isr

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
)

// lodging is where a partition's log is.
type lodging struct {
	log     *shelf   // set before the Partition is shown to anyone; nil where the directory did not open
	openErr error    // why log is nil
	dir     *log.Dir // guarded by Replicas.mu; a move changes it
}

// Partition is one partition on this broker. All methods are safe for concurrent use.
type Partition struct {
	id       log.Identity
	replicas *Replicas
	lodging

	role          atomic.Pointer[role]
	highWatermark atomic.Int64
	settings      atomic.Pointer[config.Topic]
	// unsettled: the high watermark has not reached the start of the epoch that this broker leads in.
	unsettled atomic.Bool
	// forgets grows when the leader's core has forgotten what a replica told: the session of that replica asks for it again.
	forgets atomic.Int64

	mu         sync.Mutex      // guards the next ones, up to closed
	lead       *leader         // nil while this broker does not lead
	members    *metadata.Image // whose brokers lead knows
	waitStable waitQueue       // acks=1
	waitAll    waitQueue       // acks=all
	deletes    []deleteWaiter
	timed      bool  // Replicas watches over the waiters' timeouts
	closed     error // why nothing is taken any more

	follow follow // this broker's part as a follower
	moving moving // to another data directory

	watchers  watchList // clients
	followers watchList // sessions of replicas
}

// ProduceRequest is one partition's part of a produce request.
type ProduceRequest struct {
	// Records is what must be exactly one batch. It is patched in place and must stay alive until done is called.
	Records []byte
	// Acks is -1 (the in-sync set has it stable), 1 (this replica has it stable) or 0 (it was written).
	Acks int16
	// Timeout bounds the wait for acknowledgement, not the write.
	Timeout time.Duration
	// NowMs is wall time in ms since 1970.
	NowMs int64
	// NoZstd says that the request's version is too old for zstd.
	NoZstd bool
}

// ProduceResult is the answer to a ProduceRequest. With an error the offsets are −1.
type ProduceResult struct {
	Base         record.Offset
	AppendTimeMs int64 // −1 unless the topic has LogAppendTime
	LogStart     record.Offset
	// Err is nil, a sentinel of this package, of log or of record; a *record.RecordErrors names single records.
	Err error
}

func refused(err error) ProduceResult {
	return ProduceResult{Base: -1, AppendTimeMs: -1, LogStart: -1, Err: err}
}

// Produce validates and writes a batch and calls done when it is acknowledged as Acks asks, or refused. done is called
// exactly once, perhaps before Produce returns, from any goroutine and with no lock held.
func (p *Partition) Produce(r ProduceRequest, done func(ProduceResult)) {
	in, err := p.prepare(r)
	if err != nil {
		done(refused(err))
		return
	}
	a, err := p.log.Append(in)
	if err != nil {
		done(refused(p.translate(err)))
		return
	}
	if role := p.role.Load(); role.followed {
		p.followers.notify()
	}
	res := ProduceResult{Base: a.Base, AppendTimeMs: a.AppendTimeMs, LogStart: a.LogStart}
	if r.Acks == 0 {
		done(res)
		return
	}
	w := waiter{end: a.Last + 1, deadline: time.Now().Add(r.Timeout), result: res, done: done}
	if err := p.enqueue(w, r.Acks, in.Epoch); err != nil {
		if errors.Is(err, errReached) {
			done(res)
			return
		}
		done(refused(err))
	}
}

// prepare checks role and batch, and rebuilds the batch where its topic asks for that.
func (p *Partition) prepare(r ProduceRequest) (log.Append, error) {
	if r.Acks < -1 || r.Acks > 1 {
		return log.Append{}, ErrInvalidAcks
	}
	role := p.role.Load()
	if role == nil || !role.leads {
		return log.Append{}, ErrNotLeader
	}
	if p.log == nil {
		return log.Append{}, fmt.Errorf("%w: %w", ErrOffline, p.openErr)
	}
	switch {
	case r.Acks == -1 && !role.enough:
		return log.Append{}, ErrNotEnoughReplicas
	case r.Acks != -1 && !p.replicas.leased():
		return log.Append{}, fmt.Errorf("%w: no word from the controller for too long", ErrNotLeader)
	}
	o := role.validations
	o.Now, o.NoZstd = r.NowMs, r.NoZstd
	res, err := record.Validate(r.Records, &o)
	if err != nil {
		return log.Append{}, err
	}
	batch := record.Batch(r.Records)
	if batch.Transactional() {
		return log.Append{}, ErrTransactional
	}
	if res.Action == record.RebuildBatch {
		if batch, err = record.Rebuild(batch, &o); err != nil {
			return log.Append{}, err
		}
		res.Action = record.InPlace
	}
	return log.Append{Batch: batch, Checked: res, Epoch: role.epoch, NowMs: r.NowMs}, nil
}

var errReached = errors.New("isr: already reached")

// enqueue puts a written batch's waiter into its queue; errReached says that its end has been reached meanwhile.
func (p *Partition) enqueue(w waiter, acks int16, epoch record.Epoch) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil {
		return p.closed
	}
	if p.lead == nil || p.lead.epoch != epoch {
		return ErrNotLeader
	}
	if acks == 1 {
		if p.log.StableEnd() >= w.end {
			return errReached
		}
		p.waitStable.push(w)
	} else {
		if p.lead.highWatermark >= w.end {
			return errReached
		}
		p.waitAll.push(w)
	}
	p.watchTime()
	return nil
}

// progress is called by the log, without its lock, after the stable end or the start moved, or when it went offline.
func (p *Partition) progress() {
	var small [32]waiter
	if p.log.Err() != nil {
		p.shutWhere(func() error {
			err := p.log.Err()
			if err == nil { // it has moved meanwhile
				return nil
			}
			return fmt.Errorf("%w: %w", ErrOffline, err)
		})
		return
	}
	p.mu.Lock()
	stable := p.log.StableEnd()
	out := p.waitStable.popReached(stable, small[:0])
	if len(out) > 0 && !p.replicas.leased() {
		refuseAll(out, ErrNotLeader)
	}
	var e effects
	if p.lead != nil {
		now := p.coreNow()
		p.lead.logStart = p.log.StartOffset()
		e, out = p.settle(p.lead.ownStable(stable, now), now, out)
	}
	p.mu.Unlock()
	answerAll(out)
	p.perform(e)
	p.notifyAll()
	p.follow.flushed()
}

// reachedAll pops the acks=all waiters below the high watermark; the in-sync set is judged again. Called with mu held.
func (p *Partition) reachedAll(out []waiter) []waiter {
	n := len(out)
	out = p.waitAll.popReached(p.lead.highWatermark, out)
	if !p.lead.enough() {
		for i := n; i < len(out); i++ {
			out[i].result = refused(ErrNotEnoughReplicasAfterAppend)
		}
	}
	return out
}

// publish makes a high watermark visible to readers and to retention. Called with mu held.
func (p *Partition) publish(hw record.Offset) {
	p.highWatermark.Store(int64(hw))
	p.log.SetWatermark(hw)
	if p.lead != nil && p.lead.settled() {
		p.unsettled.Store(false)
	}
}

// expire answers the waiters whose time is up; it reports whether any are left.
func (p *Partition) expire(now time.Time) bool {
	p.mu.Lock()
	out := p.waitStable.popExpired(now, nil)
	out = p.waitAll.popExpired(now, out)
	var late []deleteWaiter
	p.deletes = slices.DeleteFunc(p.deletes, func(d deleteWaiter) bool {
		if d.deadline.After(now) {
			return false
		}
		late = append(late, d)
		return true
	})
	left := !p.waitStable.empty() || !p.waitAll.empty() || len(p.deletes) > 0
	p.timed = left
	p.mu.Unlock()
	refuseAll(out, ErrTimedOut)
	answerAll(out)
	for _, d := range late {
		d.done(-1, ErrTimedOut)
	}
	return left
}

// watchTime has the waiters' timeouts watched over. Called with mu held.
func (p *Partition) watchTime() {
	if !p.timed {
		p.timed = true
		p.replicas.waiting(p)
	}
}

// shut ends the partition on this broker: every waiter, now and later, gets why. What is changing the log still may be the caller.
func (p *Partition) shut(why error) changing { return p.shutWhere(func() error { return why }) }

// shutWhere is shut, unless there is no reason any more. reason is called with mu held.
func (p *Partition) shutWhere(reason func() error) changing {
	p.mu.Lock()
	why := reason()
	if why == nil {
		p.mu.Unlock()
		return changing{}
	}
	if p.closed == nil {
		p.closed = why
	}
	out, deletes := p.resign()
	p.mu.Unlock()
	c := p.follow.replace(nil)
	dismiss(out, deletes, why)
	p.notifyAll()
	return c
}

// resign takes everyone out who waits for what this broker leads, and ends the leadership. Called with mu held.
func (p *Partition) resign() ([]waiter, []deleteWaiter) {
	p.lead, p.members = nil, nil
	deletes := p.deletes
	p.deletes = nil
	return p.waitAll.popAll(p.waitStable.popAll(nil)), deletes
}

// dismiss answers those who were taken out.
func dismiss(out []waiter, deletes []deleteWaiter, why error) {
	refuseAll(out, why)
	answerAll(out)
	for _, d := range deletes {
		d.done(-1, why)
	}
}

func refuseAll(out []waiter, why error) {
	for i := range out {
		out[i].result = refused(why)
	}
}

func answerAll(out []waiter) {
	for i := range out {
		out[i].done(out[i].result)
	}
}

// translate turns the log's errors that concern the role into this package's.
func (p *Partition) translate(err error) error {
	switch {
	case errors.Is(err, log.ErrEpochFenced):
		return ErrNotLeader
	case errors.Is(err, log.ErrClosed):
		if why := p.gone(); why != nil {
			return why
		}
		return ErrNotLeader
	}
	return err
}

func (p *Partition) gone() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// validations are the rules that a produced batch must pass under the topic's settings.
func validations(t config.Topic, o Options) record.ValidateOptions {
	v := record.ValidateOptions{
		BeforeMaxMs: milliseconds(t.Timestamp.BeforeMax), AfterMaxMs: milliseconds(t.Timestamp.AfterMax),
		LogAppendTime: t.Timestamp.LogAppend, Compacted: t.Cleanup.Compact, SkipUnpack: o.SkipUnpack,
		MaxBatchBytes: t.MaxMessageBytes, MaxUnpackedSize: t.MaxDecompressedBytes, Codecs: o.Codecs,
	}
	c := t.Compression
	switch c.Type {
	case "producer":
	case "uncompressed":
		v.Recompress, v.Codec = true, record.None
	default:
		v.Recompress = true
		v.Codec, _ = record.ParseCodec(c.Type)
		switch v.Codec {
		case record.Gzip:
			v.Level = c.GzipLevel
		case record.LZ4:
			v.Level = c.LZ4Level
		case record.Zstd:
			v.Level = c.ZstdLevel
		}
	}
	return v
}

func milliseconds(d time.Duration) int64 {
	if d == config.Forever {
		return record.Any
	}
	return d.Milliseconds()
}

package isr

import (
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

// Partition is one partition on this broker. All methods are safe for concurrent use.
type Partition struct {
	id       log.Identity
	replicas *Replicas
	log      *log.Log // set before the Partition is shown to anyone; nil where the directory did not open
	openErr  error    // why log is nil
	dir      *log.Dir

	role          atomic.Pointer[role]
	highWatermark atomic.Int64
	settings      atomic.Pointer[config.Topic]

	mu         sync.Mutex // guards all below but watchers
	lead       *leader    // nil while this broker does not lead
	waitStable waitQueue  // acks=1
	waitAll    waitQueue  // acks=all
	timed      bool       // Replicas watches over the waiters' timeouts
	closed     error      // why nothing is taken any more

	watchers watchList
}

// role is what readers need to know of the leadership, immutable.
type role struct {
	leads       bool
	leader      metadata.BrokerID
	epoch       record.Epoch
	enough      bool // the in-sync set meets min.insync.replicas
	validations record.ValidateOptions
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
	if !p.timed {
		p.timed = true
		p.replicas.waiting(p)
	}
	return nil
}

// progress is called by the log, without its lock, after the stable end or the start moved, or when it went offline.
func (p *Partition) progress() {
	var small [32]waiter
	if err := p.log.Err(); err != nil {
		p.shut(fmt.Errorf("%w: %w", ErrOffline, err))
		return
	}
	p.mu.Lock()
	stable := p.log.StableEnd()
	out := p.waitStable.popReached(stable, small[:0])
	if p.lead != nil {
		if p.lead.replicaStable(p.lead.self, stable) {
			p.publish(p.lead.highWatermark)
		}
		out = p.reachedAll(out)
	}
	p.mu.Unlock()
	answer(out)
	p.watchers.notify()
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

// publish makes a high watermark visible to readers and to retention.
func (p *Partition) publish(hw record.Offset) {
	p.highWatermark.Store(int64(hw))
	p.log.SetWatermark(hw)
}

// expire answers the waiters whose time is up; it reports whether any are left.
func (p *Partition) expire(now time.Time) bool {
	p.mu.Lock()
	out := p.waitStable.popExpired(now, nil)
	out = p.waitAll.popExpired(now, out)
	left := !p.waitStable.empty() || !p.waitAll.empty()
	p.timed = left
	p.mu.Unlock()
	for i := range out {
		out[i].result = refused(ErrTimedOut)
	}
	answer(out)
	return left
}

// shut ends the partition on this broker: every waiter, now and later, gets why.
func (p *Partition) shut(why error) {
	p.mu.Lock()
	p.closed = why
	p.lead = nil
	out := p.waitAll.popAll(p.waitStable.popAll(nil))
	p.mu.Unlock()
	for i := range out {
		out[i].result = refused(why)
	}
	answer(out)
	p.watchers.notify()
}

func answer(out []waiter) {
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

// setRole takes what the image says of the partition; the caller serialises calls. A new leader epoch starts a new
// leadership, on one node too.
func (p *Partition) setRole(img *metadata.Image, part *metadata.Partition, settings config.Topic) {
	p.settings.Store(&settings)
	epoch := record.Epoch(part.LeaderEpoch)
	leader := img.LeaderOf(part) // nobody while the leader is fenced
	leads := leader == p.replicas.opts.BrokerID && p.log != nil
	elected := leads && p.leadsIn() != epoch
	if elected {
		if err := p.log.StartEpoch(epoch); err != nil {
			leads, elected = false, false
			p.replicas.opts.Logger.Error("cannot lead", "event", "election.failed", "topic", p.id.Topic,
				"partition", p.id.Partition, "epoch", epoch, "error", err)
		}
	}
	p.mu.Lock()
	if p.closed != nil {
		p.mu.Unlock()
		return
	}
	var out []waiter
	switch {
	case !leads || elected:
		out = p.waitAll.popAll(p.waitStable.popAll(nil))
		p.lead = nil
		if elected {
			p.elect(part, settings, epoch)
		}
	default:
		if p.lead.changed(part.PartitionEpoch, part.ISR, len(part.Replicas), settings.MinInsyncReplicas) {
			p.publish(p.lead.highWatermark)
		}
	}
	p.role.Store(p.newRole(leader, epoch, settings))
	p.mu.Unlock()
	for i := range out {
		out[i].result = refused(ErrNotLeader)
	}
	answer(out)
	p.watchers.notify()
}

// leadsIn is the epoch that this broker leads in, record.NoEpoch when it does not.
func (p *Partition) leadsIn() record.Epoch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lead == nil {
		return record.NoEpoch
	}
	return p.lead.epoch
}

// elect begins to lead under epoch. Called with mu held.
func (p *Partition) elect(part *metadata.Partition, settings config.Topic, epoch record.Epoch) {
	p.lead = newLeader(leaderConfig{
		self: p.replicas.opts.BrokerID, epoch: epoch, partitionEpoch: part.PartitionEpoch, inSync: part.ISR,
		replicas: len(part.Replicas), minInSync: settings.MinInsyncReplicas, epochStart: p.log.WrittenEnd(),
		highWatermark: record.Offset(p.highWatermark.Load()), stable: p.log.StableEnd(),
	})
	p.publish(p.lead.highWatermark)
}

// newRole is the immutable view of the leadership. Called with mu held.
func (p *Partition) newRole(leader metadata.BrokerID, epoch record.Epoch, settings config.Topic) *role {
	r := &role{leads: p.lead != nil, leader: leader, epoch: epoch}
	if p.lead != nil {
		r.enough = p.lead.enough()
	}
	r.validations = validations(settings, p.replicas.opts)
	return r
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

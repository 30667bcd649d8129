package isr

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/keeplog/keeplog/internal/invariant"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
)

// Leadership names who leads a partition, for answers that tell a client where to go.
type Leadership struct {
	Leader int32
	Epoch  record.Epoch
}

// Leadership is what the newest applied image says.
func (p *Partition) Leadership() Leadership {
	r := p.role.Load()
	if r == nil {
		return Leadership{Leader: -1, Epoch: record.NoEpoch}
	}
	return Leadership{Leader: r.leader, Epoch: r.epoch}
}

// checkLeader says whether this broker may answer as leader to a caller who knows epoch (−1: does not say).
func (p *Partition) checkLeader(epoch record.Epoch) error {
	r := p.role.Load()
	if r == nil {
		return ErrNotLeader
	}
	switch {
	case epoch >= 0 && epoch < r.epoch:
		return ErrFencedLeaderEpoch
	case epoch >= 0 && epoch > r.epoch:
		return ErrUnknownLeaderEpoch
	case p.log == nil:
		return fmt.Errorf("%w: %w", ErrOffline, p.openErr)
	case !r.leads:
		return ErrNotLeader
	}
	if err := p.log.Err(); err != nil {
		if why := p.gone(); why != nil {
			return why
		}
		return fmt.Errorf("%w: %w", ErrOffline, err)
	}
	return nil
}

// FetchRequest is one partition's part of a consumer's fetch.
type FetchRequest struct {
	Offset   record.Offset
	MaxBytes int
	// AtLeastOne gives the whole first batch even above MaxBytes.
	AtLeastOne bool
	// LeaderEpoch is what the caller takes for the current one, −1 unchecked.
	LeaderEpoch record.Epoch
	// LastFetchedEpoch is the epoch of the last record that the caller has, −1 unknown (KIP-595).
	LastFetchedEpoch record.Epoch
	// AnyReplica lets a follower answer (KIP-392): its own high watermark is the bound.
	AnyReplica bool
	// Rack is the caller's, empty unknown: a leader may send it to a replica in it.
	Rack string
	// Abandon closes the caller's connection when a truncation waited too long for its span.
	Abandon func()
}

// FetchResult is the answer. Span is nil without records; the caller must Release it. With Err the offsets are −1.
type FetchResult struct {
	// HighWatermark is −1 where it must not be shown: below the start of the leader's epoch, or past the broker's lease.
	HighWatermark, LastStable, LogStart record.Offset
	Span                                *log.Span
	// DivergingEpoch is −1, or the largest epoch that the leader knows at or below LastFetchedEpoch and its end: the caller's
	// log has left the leader's there.
	DivergingEpoch record.Epoch
	DivergingEnd   record.Offset
	// Redirect says that the caller should read from Preferred, a replica in its rack.
	Redirect  bool
	Preferred metadata.BrokerID
	// Held says that there are records which a throttle keeps back from a replica.
	Held bool
	Err  error
}

func failedFetch(err error) FetchResult {
	return FetchResult{HighWatermark: -1, LastStable: -1, LogStart: -1, DivergingEpoch: -1, DivergingEnd: -1, Err: err}
}

// Fetch reads below the high watermark, which it loads once.
func (p *Partition) Fetch(r FetchRequest) FetchResult {
	leads, err := p.checkReader(&r)
	if err != nil {
		return failedFetch(err)
	}
	hw := record.Offset(p.highWatermark.Load())
	res := FetchResult{HighWatermark: hw, LastStable: hw, LogStart: p.log.StartOffset(), DivergingEpoch: -1, DivergingEnd: -1}
	if leads && (p.unsettled.Load() || !p.replicas.leased()) {
		res.HighWatermark, res.LastStable = -1, -1
	}
	if r.LastFetchedEpoch >= 0 {
		epoch, end := p.log.EndOffsetForEpoch(r.LastFetchedEpoch)
		if end < 0 && !leads {
			return failedFetch(ErrOffsetNotAvailable) // records of that epoch have not come here yet
		}
		if end < 0 {
			return failedFetch(log.ErrOffsetOutOfRange)
		}
		if leads && (epoch < r.LastFetchedEpoch || end < r.Offset) {
			res.DivergingEpoch, res.DivergingEnd = epoch, end
			return res
		}
	}
	switch {
	case !leads && r.Offset > hw:
		return failedFetch(ErrOffsetNotAvailable)
	case r.Offset < res.LogStart || r.Offset > p.log.WrittenEnd():
		return failedFetch(log.ErrOffsetOutOfRange)
	}
	if r.Rack != "" && leads {
		if res.Preferred, res.Redirect = p.preferred(r.Rack, r.Offset); res.Redirect {
			return res
		}
	}
	if r.Offset >= hw || r.MaxBytes <= 0 && !r.AtLeastOne {
		return res
	}
	if invariant.Seeded(invariant.WatermarkTwice) {
		hw = p.HighWatermark()
	}
	res.Span, err = p.log.Read(log.ReadRequest{
		Offset: r.Offset, Bound: hw, MaxBytes: r.MaxBytes, AtLeastOne: r.AtLeastOne, Abandon: r.Abandon,
	})
	if err != nil {
		return failedFetch(p.translateRead(err))
	}
	return res
}

// checkReader says whether this replica may answer a consumer, and whether as leader.
func (p *Partition) checkReader(r *FetchRequest) (leads bool, err error) {
	err = p.checkLeader(r.LeaderEpoch)
	if err == nil || !r.AnyReplica || !p.readable(err) {
		return err == nil, err
	}
	return false, nil
}

// readable says whether err is only that this replica follows, so that it may answer consumers.
func (p *Partition) readable(err error) bool {
	role := p.role.Load()
	return errors.Is(err, ErrNotLeader) && role != nil && role.follows && p.log.Err() == nil
}

// preferred is the replica in a rack that a consumer should read from: in sync, with the offset in its log, the one that has
// most (KIP-392). ok is false where that is the leader itself, or nobody.
func (p *Partition) preferred(rack string, offset record.Offset) (id metadata.BrokerID, ok bool) {
	role, img := p.role.Load(), p.replicas.image.Load()
	if role == nil || !role.followed || img == nil || !p.replicas.opts.Limits().RackAware {
		return 0, false
	}
	in := func(id metadata.BrokerID) bool {
		b, known := img.Broker(id)
		return known && b.Rack == rack && !b.Fenced
	}
	if in(p.replicas.opts.BrokerID) {
		return 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lead == nil {
		return 0, false
	}
	best := record.Offset(-1)
	for i := range p.lead.others {
		o := &p.lead.others[i]
		if slices.Contains(p.lead.inSync, o.id) && o.logStart >= 0 && o.logStart <= offset && o.written >= offset && o.written > best && in(o.id) {
			id, ok, best = o.id, true, o.written
		}
	}
	return id, ok
}

func (p *Partition) translateRead(err error) error {
	if errors.Is(err, log.ErrClosed) {
		if why := p.gone(); why != nil {
			return why
		}
		return ErrNotLeader
	}
	return err
}

// Pending is what a parked fetch looks at when it was woken: how many bytes lie between offset and the high watermark,
// and whether the answer must not wait any longer (another segment, truncation, another role).
func (p *Partition) Pending(offset record.Offset, epoch record.Epoch) (bytes int64, now bool) {
	if err := p.checkLeader(epoch); err != nil && !p.readable(err) {
		return 0, true
	}
	hw := record.Offset(p.highWatermark.Load())
	switch {
	case offset > p.log.WrittenEnd() || offset < p.log.StartOffset():
		return 0, true
	case offset >= hw:
		return 0, false
	}
	n, same := p.log.Available(offset, hw)
	return n, !same
}

// HighWatermark is the offset below which everything is committed.
func (p *Partition) HighWatermark() record.Offset { return record.Offset(p.highWatermark.Load()) }

// Special timestamps of ListOffsets.
const (
	Latest         int64 = -1 // high watermark
	Earliest       int64 = -2 // log start
	MaxTimestamp   int64 = -3 // the record with the largest timestamp (KIP-734)
	EarliestLocal  int64 = -4 // log start: there is no tiered storage
	LatestTiered   int64 = -5 // none
	EarliestUpload int64 = -6 // none
)

// ListOffset answers a lookup by time or special timestamp as leader: offset, timestamp (−1 for special ones but
// MaxTimestamp) and leader epoch; offset −1 when no record is that young.
func (p *Partition) ListOffset(ts int64, epoch record.Epoch) (log.TimeOffset, error) {
	none := log.TimeOffset{Offset: -1, Timestamp: -1, Epoch: record.NoEpoch}
	if err := p.checkLeader(epoch); err != nil {
		return none, err
	}
	hw := record.Offset(p.highWatermark.Load())
	switch {
	case ts == Latest:
		return p.latest(none)
	case ts == Earliest || ts == EarliestLocal:
		start := p.log.StartOffset()
		return log.TimeOffset{Offset: start, Timestamp: -1, Epoch: p.log.EpochAt(start)}, nil
	case ts == LatestTiered || ts == EarliestUpload:
		return none, nil
	case ts < MaxTimestamp:
		return none, ErrUnsupportedTimestamp
	}
	var found log.TimeOffset
	var ok bool
	var err error
	if ts == MaxTimestamp {
		found, ok, err = p.log.MaxTimestamp(hw)
	} else {
		found, ok, err = p.log.OffsetForTime(ts, hw)
	}
	if err != nil {
		return none, p.translateRead(err)
	}
	if !ok || found.Offset >= hw {
		return none, nil
	}
	return found, nil
}

func (p *Partition) latest(none log.TimeOffset) (log.TimeOffset, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lead == nil {
		return none, ErrNotLeader
	}
	if !p.lead.settled() || !p.replicas.leased() {
		return none, ErrOffsetNotAvailable
	}
	return log.TimeOffset{Offset: p.lead.highWatermark, Timestamp: -1, Epoch: p.lead.epoch}, nil
}

// EndOffsetForEpoch answers OffsetForLeaderEpoch as leader: the largest known epoch ≤ asked and where it ends.
func (p *Partition) EndOffsetForEpoch(asked, current record.Epoch) (record.Epoch, record.Offset, error) {
	if err := p.checkLeader(current); err != nil {
		return record.NoEpoch, -1, err
	}
	if r := p.role.Load(); r != nil {
		e, end := p.endOf(r, asked)
		return e, end, nil
	}
	return record.NoEpoch, -1, ErrNotLeader
}

// DeleteRecords moves the log start to offset, −1 meaning the high watermark, and calls done with the low watermark (the
// lowest log start of the live replicas) once it is durable, or with an error. done may be called before the return.
func (p *Partition) DeleteRecords(offset record.Offset, timeout time.Duration, done func(record.Offset, error)) {
	if err := p.checkLeader(record.NoEpoch); err != nil {
		done(-1, err)
		return
	}
	if s := p.settings.Load(); s != nil && !s.Cleanup.Delete && s.Cleanup.Compact {
		done(-1, ErrDeletePolicy)
		return
	}
	hw := record.Offset(p.highWatermark.Load())
	if offset == -1 {
		offset = hw
	}
	if offset < 0 || offset > hw {
		done(-1, log.ErrOffsetOutOfRange)
		return
	}
	if offset > p.log.StartOffset() {
		if err := p.log.AdvanceStart(offset); err != nil {
			done(-1, p.translateRead(err))
			return
		}
	}
	p.notifyAll()
	p.awaitDeleted(offset, timeout, done)
}

// awaitDeleted calls done when the log of every live replica begins at or above offset.
func (p *Partition) awaitDeleted(offset record.Offset, timeout time.Duration, done func(record.Offset, error)) {
	p.mu.Lock()
	if p.lead == nil {
		p.mu.Unlock()
		done(-1, ErrNotLeader)
		return
	}
	p.refresh()
	p.lead.logStart = p.log.StartOffset()
	low := p.lead.lowWatermark()
	if low < offset {
		p.deletes = append(p.deletes, deleteWaiter{offset: offset, deadline: time.Now().Add(timeout), done: done})
		p.watchTime()
	}
	p.mu.Unlock()
	if low >= offset {
		done(low, nil)
	}
}

// Producers lists the idempotent producers known to the leader's log.
func (p *Partition) Producers() ([]log.ProducerState, error) {
	if err := p.checkLeader(record.NoEpoch); err != nil {
		return nil, err
	}
	return p.log.Producers(), nil
}

// Ends are a partition's offsets and size on this broker, in bytes.
type Ends struct {
	LogStart, HighWatermark, StableEnd, LogEnd record.Offset
	Size                                       int64
	DataDir                                    string
}

// Ends describes the replica here, whatever its role; ok is false where its log is not open.
func (p *Partition) Ends() (e Ends, ok bool) {
	if p.log == nil {
		return Ends{LogStart: -1, HighWatermark: -1, StableEnd: -1, LogEnd: -1}, false
	}
	return Ends{
		LogStart: p.log.StartOffset(), HighWatermark: p.HighWatermark(), StableEnd: p.log.StableEnd(),
		LogEnd: p.log.WrittenEnd(), Size: p.log.Size(), DataDir: path.Dir(p.log.Path()),
	}, true
}

package isr

import (
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/keeplog/keeplog/log"
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
	// Abandon closes the caller's connection when a truncation waited too long for its span.
	Abandon func()
}

// FetchResult is the answer. Span is nil without records; the caller must Release it. With Err the offsets are −1.
type FetchResult struct {
	HighWatermark, LastStable, LogStart record.Offset
	Span                                *log.Span
	// DivergingEpoch is −1, or the largest epoch that the leader knows at or below LastFetchedEpoch and its end: the caller's
	// log has left the leader's there.
	DivergingEpoch record.Epoch
	DivergingEnd   record.Offset
	Err            error
}

// Fetch reads below the high watermark, which it loads once.
func (p *Partition) Fetch(r FetchRequest) FetchResult {
	failed := FetchResult{HighWatermark: -1, LastStable: -1, LogStart: -1, DivergingEpoch: -1, DivergingEnd: -1}
	if failed.Err = p.checkLeader(r.LeaderEpoch); failed.Err != nil {
		return failed
	}
	hw := record.Offset(p.highWatermark.Load())
	res := FetchResult{HighWatermark: hw, LastStable: hw, LogStart: p.log.StartOffset(), DivergingEpoch: -1, DivergingEnd: -1}
	if r.LastFetchedEpoch >= 0 {
		epoch, end := p.log.EndOffsetForEpoch(r.LastFetchedEpoch)
		if end < 0 {
			failed.Err = log.ErrOffsetOutOfRange
			return failed
		}
		if epoch < r.LastFetchedEpoch || end < r.Offset {
			res.DivergingEpoch, res.DivergingEnd = epoch, end
			return res
		}
	}
	if r.Offset < res.LogStart || r.Offset > p.log.WrittenEnd() {
		failed.Err = log.ErrOffsetOutOfRange
		return failed
	}
	if r.Offset >= hw || r.MaxBytes <= 0 && !r.AtLeastOne {
		return res
	}
	res.Span, failed.Err = p.log.Read(log.ReadRequest{
		Offset: r.Offset, Bound: hw, MaxBytes: r.MaxBytes, AtLeastOne: r.AtLeastOne, Abandon: r.Abandon,
	})
	if failed.Err != nil {
		failed.Err = p.translateRead(failed.Err)
		return failed
	}
	return res
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
	if p.checkLeader(epoch) != nil {
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
	if !p.lead.settled() {
		return none, ErrOffsetNotAvailable
	}
	return log.TimeOffset{Offset: p.lead.highWatermark, Timestamp: -1, Epoch: p.lead.epoch}, nil
}

// EndOffsetForEpoch answers OffsetForLeaderEpoch as leader: the largest known epoch ≤ asked and where it ends.
func (p *Partition) EndOffsetForEpoch(asked, current record.Epoch) (record.Epoch, record.Offset, error) {
	if err := p.checkLeader(current); err != nil {
		return record.NoEpoch, -1, err
	}
	if r := p.role.Load(); r != nil && asked == r.epoch {
		return asked, p.log.WrittenEnd(), nil
	}
	e, end := p.log.EndOffsetForEpoch(asked)
	return e, end, nil
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
	p.watchers.notify()
	done(p.log.StartOffset(), nil)
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

package log

import (
	"errors"
	"fmt"
	"math"
	"path"
	"syscall"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/segment"
)

// Append adds the leader's batch. It returns when the batch is written, not flushed: wait for StableEnd to pass Last.
// Errors: ErrOutOfOrderSequence, ErrProducerFenced, ErrEpochFenced, ErrBatchTooLarge, ErrReserve, ErrOffline, ErrClosed;
// then nothing of the batch is in the log. One writer is inside at a time; callers may come from any goroutine.
func (l *Log) Append(a Append) (Appended, error) {
	if a.Checked.Action == record.RebuildBatch {
		return Appended{}, errors.New("log: a batch that must be rebuilt is not appended")
	}
	a.Checked.Apply(a.Batch)
	l.lockWriter()
	r, err := l.appendLocked(&a)
	due := err == nil && !r.Duplicate && l.flushDue()
	l.mu.Unlock()
	if err != nil {
		return Appended{}, l.failed(err)
	}
	if due {
		l.dir.committer.Dirty(l)
	}
	if !r.Duplicate && !l.config.Load().Flush.DurableOnAck() {
		l.notify()
	}
	return r, nil
}

// lockWriter takes mu, after a truncation that is under way.
func (l *Log) lockWriter() {
	for {
		l.mu.Lock()
		wait := l.w.cutting
		if wait == nil {
			return
		}
		l.mu.Unlock()
		<-wait
	}
}

// failed makes the directory offline where an error says that the disk is not to be trusted, and classifies the rest.
func (l *Log) failed(err error) error {
	var cut *segment.CutError
	switch {
	case errors.As(err, &cut):
		return l.dir.fail(err)
	case isNoSpace(err):
		l.dir.space.exhausted()
		return fmt.Errorf("%w: %w", ErrReserve, err)
	case isDisk(err):
		return l.dir.fail(err)
	}
	return storage(err)
}

// storage marks what the operating system said.
func storage(err error) error {
	if err == nil { // on the way of every read: nothing is allocated
		return nil
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return fmt.Errorf("%w: %w", ErrStorage, err)
	}
	return err
}

func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

func isDisk(err error) bool {
	return errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EROFS)
}

func (l *Log) appendLocked(a *Append) (Appended, error) {
	b := a.Batch
	if err := l.Err(); err != nil {
		return Appended{}, err
	}
	if known := max(l.w.epochs.latest(), l.w.leading.Epoch, l.w.fence); a.Epoch < known {
		return Appended{}, fmt.Errorf("%w: %d, the log has %d", ErrEpochFenced, a.Epoch, known)
	}
	if limit := l.config.Load().Segment.Bytes; len(b) > limit {
		return Appended{}, fmt.Errorf("%w: %d bytes, the limit is %d", ErrBatchTooLarge, len(b), limit)
	}
	r := Appended{AppendTimeMs: -1, LogStart: l.StartOffset()}
	if b.TimestampType() == record.LogAppendTime {
		r.AppendTimeMs = b.MaxTimestamp()
	}
	if b.HasProducer() {
		dup, err := l.w.producers.check(b)
		if err != nil {
			return Appended{}, err
		}
		if dup != nil {
			r.Base, r.Last, r.Duplicate = dup.base(), dup.LastOffset, true
			r.AppendTimeMs = dup.Timestamp
			return r, nil
		}
	}
	if err := l.dir.Writable(); err != nil {
		return Appended{}, err
	}
	b.SetBaseOffset(l.w.next)
	b.SetPartitionLeaderEpoch(a.Epoch)
	if err := l.write(b, a.NowMs); err != nil {
		return Appended{}, err
	}
	r.Base, r.Last = b.BaseOffset(), b.LastOffset()
	return r, nil
}

// write puts a batch with its offsets at the end of the log, rolling before it where it must.
func (l *Log) write(b record.Batch, nowMs int64) error {
	roll, err := l.mustRoll(b, nowMs)
	if err != nil {
		return err
	}
	if roll {
		if err := l.roll(nowMs); err != nil {
			return err
		}
	}
	at := record.Position(l.w.active.Size())
	err = l.w.active.Append(b)
	if errors.Is(err, segment.ErrFull) && at > 0 {
		if err = l.roll(nowMs); err == nil {
			at = 0
			err = l.w.active.Append(b)
		}
	}
	if err != nil {
		return err
	}
	l.dir.space.spend(int64(len(b)))
	if l.w.unflushed == 0 {
		l.w.sinceMs = nowMs
	}
	l.w.unflushed += int64(b.LastOffset()-b.BaseOffset()) + 1
	l.w.next = b.NextOffset()
	l.w.producers.apply(b, nowMs)
	if e := b.PartitionLeaderEpoch(); e != l.w.epochs.latest() || l.w.leading.Epoch >= 0 {
		l.w.epochs.assign(e, b.BaseOffset())
		if l.w.leading.Epoch <= e {
			l.w.leading.Epoch = record.NoEpoch
		}
	}
	end := place{l.w.next, at + record.Position(len(b)), l.w.active}
	l.ends.wrote(tailEntry{b.BaseOffset(), at}, end, l.config.Load().Flush.DurableOnAck())
	return nil
}

// flushDue says that a flush must be asked for after an append.
func (l *Log) flushDue() bool {
	return l.w.unflushed >= l.config.Load().Flush.Messages || len(l.w.rolled) > 0
}

// mustRoll says that the next batch begins a new segment.
func (l *Log) mustRoll(b record.Batch, nowMs int64) (bool, error) {
	s, c := l.w.active, l.config.Load()
	size := s.Size()
	if int64(b.LastOffset()-s.Base()) > math.MaxInt32 {
		return true, nil
	}
	if size == 0 {
		return false, nil
	}
	if size > int64(c.Segment.Bytes)-int64(len(b)) || s.IndexFull() {
		return true, nil
	}
	if c.Segment.Age == config.Forever {
		return false, nil
	}
	first, ok, err := s.FirstTimestamp()
	if err != nil && !segment.IsDamage(err) {
		return false, err
	}
	limit := c.Segment.Age.Milliseconds() - l.w.jitterMs
	if ok && b.MaxTimestamp() >= 0 {
		return b.MaxTimestamp()-first > limit, nil
	}
	return nowMs-l.w.createdMs > limit, nil
}

// roll ends the active segment and begins the next at the log end. Nothing is durable yet: the flush that takes it orders
// old file, directory, new file.
func (l *Log) roll(nowMs int64) error {
	old, c := l.w.active, l.config.Load()
	if old.Base() == l.w.next {
		return nil // an empty segment is already the next one
	}
	if err := old.Finish(); err != nil {
		return err
	}
	o := segmentOptions(c)
	if l.w.spare {
		o.Spare, l.w.spare = path.Join(l.path, SpareFile), false
	}
	seg, err := segment.Create(l.dir.env, l.path, l.w.next, o)
	if err != nil {
		return fmt.Errorf("log: %s: new segment: %w", l.path, err)
	}
	old.SetUpper(l.w.next)
	l.w.rolled = append(l.w.rolled, rolled{seg: old, next: l.w.next, producers: l.w.producers.list()})
	l.w.newNames = true
	l.begin(seg, nowMs)
	v := l.view.Load()
	segments := make([]*segment.Segment, len(v.segments)+1)
	copy(segments, v.segments)
	segments[len(v.segments)] = seg
	l.view.Store(&view{segments: segments})
	l.ends.mu.Lock()
	l.ends.written.at, l.ends.written.seg = 0, seg
	l.ends.mu.Unlock()
	return nil
}

// begin makes a segment the active one.
func (l *Log) begin(seg *segment.Segment, nowMs int64) {
	l.w.active, l.w.createdMs, l.w.jitterMs = seg, nowMs, 0
	if jitter := l.config.Load().Segment.Jitter; jitter > 0 {
		l.w.jitterMs = l.dir.random(jitter.Milliseconds())
	}
}

// AppendReplica adds a leader's batches as they are: offsets and epochs are kept, checksums compared. A batch that is cut
// at the end is left out, batches below the log end are skipped, and the first batch of an epoch above epoch ends the
// call. Appended tells the first and the last offset that were added; Last is Base−1 when none was.
func (l *Log) AppendReplica(batches []byte, epoch record.Epoch) (Appended, error) {
	nowMs := l.dir.o.Now().UnixMilli()
	l.lockWriter()
	r := Appended{Base: l.w.next, Last: l.w.next - 1, AppendTimeMs: -1, LogStart: l.StartOffset()}
	err := l.replicateLocked(batches, epoch, nowMs)
	r.Last = l.w.next - 1
	due := r.Last >= r.Base && l.flushDue()
	l.mu.Unlock()
	if due {
		l.dir.committer.Dirty(l)
	}
	if err != nil {
		return r, l.failed(err)
	}
	if r.Last >= r.Base && !l.config.Load().Flush.DurableOnAck() {
		l.notify()
	}
	return r, nil
}

func (l *Log) replicateLocked(batches []byte, epoch record.Epoch, nowMs int64) error {
	if err := l.Err(); err != nil {
		return err
	}
	for len(batches) > 0 {
		b, rest, err := record.Next(batches)
		if errors.Is(err, record.ErrTorn) || (err == nil && b == nil) {
			return nil
		}
		if err != nil {
			return err
		}
		batches = rest
		switch {
		case b.LastOffset() < l.w.next:
			continue
		case b.BaseOffset() < l.w.next && l.w.next > l.view.Load().segments[0].Base():
			return fmt.Errorf("%w: offsets %d to %d, the end is %d", ErrNotContiguous, b.BaseOffset(), b.LastOffset(), l.w.next)
		case b.PartitionLeaderEpoch() > epoch:
			return nil
		}
		if err := b.CheckCRC(); err != nil {
			return err
		}
		if err := l.dir.Writable(); err != nil {
			return err
		}
		if err := l.write(b, nowMs); err != nil {
			return err
		}
		if l.w.lost && l.w.next >= l.w.missing.Mark {
			l.w.lost = false // fetched again
		}
	}
	return nil
}

// StartEpoch says that this broker leads under e from the written end on. The first batch brings the epoch to disk. Where
// durable data is missing (MissingData), the end moves to the mark's, durably: a gap, so that no offset is used twice.
func (l *Log) StartEpoch(e record.Epoch) error {
	l.lockWriter()
	if err := l.Err(); err != nil {
		l.mu.Unlock()
		return err
	}
	if known := max(l.w.epochs.latest(), l.w.leading.Epoch); e < known {
		l.mu.Unlock()
		return fmt.Errorf("%w: %d, the log has %d", ErrEpochFenced, e, known)
	}
	gap := l.w.lost
	l.mu.Unlock()
	if gap {
		if err := l.acceptGap(); err != nil {
			return err
		}
	}
	l.lockWriter()
	defer l.mu.Unlock()
	if err := l.Err(); err != nil { // closed or moved meanwhile: the epoch would begin in a log that nobody uses
		return err
	}
	if e > l.w.epochs.latest() {
		l.w.leading = EpochEntry{e, l.w.next}
	}
	return nil
}

// acceptGap moves the log end to that of the mark.
func (l *Log) acceptGap() error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	if err := l.flushLocked(flushData); err != nil {
		return err
	}
	l.mu.Lock()
	if !l.w.lost {
		l.mu.Unlock()
		return nil
	}
	m := l.w.missing
	l.w.lost = false
	l.w.next = max(l.w.next, m.Mark)
	end := place{l.w.next, record.Position(l.w.active.Size()), l.w.active}
	l.ends.set(end)
	noProducers := len(l.w.producers.byID) == 0
	epoch := l.w.epochs.latest()
	l.mu.Unlock()
	l.dir.log.Error("durable data is missing: going on behind a gap", "log", l.path, "end", m.End, "next", end.offset)
	l.markMu.Lock()
	l.mark.Segment, l.mark.Position, l.mark.Offset, l.mark.Gaps = end.seg.Base(), end.at, end.offset, true
	l.mark.Cutting, l.mark.Lost = false, l.mark.Lost.and(m.End, end.offset)
	l.mark.OffsetEntries, l.mark.TimeEntries, l.mark.NoProducers, l.mark.Epoch = 0, 0, noProducers, epoch
	err := l.putFirmLocked()
	l.markMu.Unlock()
	if err == nil {
		err = l.dir.syncMarks()
	}
	l.notify()
	return err
}

// tickRoll ends a segment that is older than segment.ms although nothing comes.
func (l *Log) tickRoll(now time.Time) {
	l.mu.Lock()
	c := l.config.Load()
	due := c.Segment.Age != config.Forever && l.w.cutting == nil && l.w.active.Size() > 0 && l.Err() == nil &&
		now.UnixMilli()-l.w.createdMs > c.Segment.Age.Milliseconds()-l.w.jitterMs
	var err error
	if due {
		err = l.roll(now.UnixMilli())
	}
	l.mu.Unlock()
	if err != nil {
		l.dir.log.Warn("cannot roll by age", "log", l.path, "err", l.failed(err))
	} else if due {
		l.dir.committer.Dirty(l)
	}
}

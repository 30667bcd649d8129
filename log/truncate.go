package log

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keeplog/keeplog/internal/invariant"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/segment"
)

// AdvanceStart moves the log start (DeleteRecords): it is durable when the call returns. A start at or below the present
// one changes nothing. ErrOffsetOutOfRange above the stable end.
func (l *Log) AdvanceStart(o record.Offset) error {
	if err := l.Err(); err != nil {
		return err
	}
	if o > l.StableEnd() {
		return fmt.Errorf("%w: log start %d, the stable end is %d", ErrOffsetOutOfRange, o, l.StableEnd())
	}
	if o <= l.StartOffset() {
		return nil
	}
	if _, err := l.flush(); err != nil { // a new log has no mark yet; a mark's start is never above its end
		return err
	}
	if err := l.moveStart(o); err != nil {
		return err
	}
	l.mu.Lock()
	l.w.epochs.truncateStart(o)
	l.mu.Unlock()
	l.schedule.retain.Store(true)
	l.notify()
	return nil
}

// moveStart makes a new log start durable, then shows it.
func (l *Log) moveStart(o record.Offset) error {
	l.markMu.Lock()
	before := l.mark.LogStart
	l.mark.LogStart = max(before, o)
	err := l.Err() // the slot of a log that is deleted meanwhile is another's
	if err == nil {
		err = l.putFirmLocked()
	}
	if err != nil { // no later mark may carry a start that was refused
		l.mark.LogStart = before
	}
	l.markMu.Unlock()
	if err == nil && !invariant.Seeded(invariant.LogStartBeforeDurable) {
		err = l.dir.syncMarks()
	}
	if err != nil {
		return l.failed(err)
	}
	for {
		now := l.start.Load()
		if now >= int64(o) || l.start.CompareAndSwap(now, int64(o)) {
			return nil
		}
	}
}

// TruncateTo removes all batches that end above o, durably: the log then ends at or below o. New readers are refused above
// the cut at once; those inside get TruncateWait, then their Abandon is called.
func (l *Log) TruncateTo(o record.Offset) error {
	return l.cut(func(v *view) (cutPlan, error) {
		if o >= l.w.next {
			return cutPlan{}, nil
		}
		o = max(o, l.StartOffset(), v.segments[0].Base())
		i := v.find(o)
		s := v.segments[i]
		at, err := s.PositionOf(o)
		if err != nil {
			return cutPlan{}, err
		}
		end, err := s.EndBefore(at)
		if err != nil {
			return cutPlan{}, err
		}
		if at == record.Position(s.Size()) { // a gap at the end of the segment
			end = o
		}
		// the log start may be inside of a batch that goes: the end is not below it
		return cutPlan{cuts: true, keep: i, at: at, end: max(min(max(end, s.Base()), o), l.StartOffset())}, nil
	})
}

// TruncateFullyAndStartAt empties the log and lets it begin at o, durably.
func (l *Log) TruncateFullyAndStartAt(o record.Offset) error {
	return l.cut(func(*view) (cutPlan, error) {
		return cutPlan{cuts: true, keep: -1, end: o}, nil
	})
}

// cutPlan says what a truncation leaves: the segments before keep whole, keep up to a position; −1 leaves nothing.
type cutPlan struct {
	cuts bool
	keep int
	at   record.Position
	end  record.Offset
}

// cut is a truncation: stop appends, plan, turn readers away, wait for those inside, lower the mark durably, then cut.
func (l *Log) cut(plan func(*view) (cutPlan, error)) error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	if err := l.flushLocked(flushData); err != nil {
		return err
	}
	l.lockWriter()
	v := l.view.Load()
	p, err := plan(v)
	if err != nil || !p.cuts {
		l.mu.Unlock()
		return err
	}
	changing := make(chan struct{})
	l.w.cutting = changing
	kept := v.segments[:max(p.keep, 0)]
	dropped := v.segments[len(kept):]
	l.view.Store(&view{segments: v.segments, changing: changing})
	l.ends.writtenEnd.Store(min(l.ends.writtenEnd.Load(), int64(p.end)))
	l.ends.stableEnd.Store(min(l.ends.stableEnd.Load(), int64(p.end)))
	if m := l.mover.Load(); m != nil {
		m.cut(p.end, p.keep < 0)
	}
	l.mu.Unlock()

	err = l.applyCut(p, kept, dropped)
	l.mu.Lock()
	l.w.cutting = nil
	l.mu.Unlock()
	close(changing)
	if err != nil {
		return l.dir.fail(fmt.Errorf("log: truncation of %s: %w", l.path, err))
	}
	l.notify()
	return nil
}

func (l *Log) applyCut(p cutPlan, kept, dropped []*segment.Segment) error {
	for _, s := range dropped {
		l.drain(s)
	}
	if w := record.Offset(l.watermark.Load()); w > p.end || w < 0 && l.loaded > p.end {
		l.watermark.Store(int64(p.end)) // nor does the checkpoint's next writing bring the old one back
	}
	if err := l.dir.lower(l.key(), p.end); err != nil {
		return err
	}
	if err := l.lowerMark(p, dropped); err != nil {
		return err
	}
	gone := dropped
	if p.keep >= 0 {
		gone = dropped[1:]
	}
	for _, s := range slices.Backward(gone) {
		if err := s.MarkDeleted(); err != nil {
			return err
		}
		l.dir.discard(s, 0)
	}
	if err := l.dir.fs.SyncDir(l.path); err != nil {
		return err
	}
	var active *segment.Segment
	var err error
	if p.keep >= 0 {
		o := segment.CutOptions{Options: segmentOptions(l.config.Load()), Size: p.at, End: p.end}
		active, err = segment.CutBack(l.dir.env, l.path, dropped[0].Base(), o)
	} else if active, err = segment.Create(l.dir.env, l.path, p.end, segmentOptions(l.config.Load())); err == nil {
		err = l.dir.fs.SyncDir(l.path)
	}
	if err != nil {
		if active != nil {
			<-active.Retire()
		}
		return err
	}
	return l.resumeAfterCut(p, append(slices.Clone(kept), active))
}

// drain waits until nobody reads a segment any more.
func (l *Log) drain(s *segment.Segment) {
	gone := s.Retire()
	timer := time.NewTimer(l.dir.o.Settings.TruncateWait)
	defer timer.Stop()
	select {
	case <-gone:
		return
	case <-timer.C:
	}
	l.dir.log.Warn("closing readers that hold up a truncation", "log", l.path, "segment", s.Base(), "readers", s.Abandon())
	<-gone
}

// lowerMark makes a mark durable that is not above the cut.
func (l *Log) lowerMark(p cutPlan, dropped []*segment.Segment) error {
	l.markMu.Lock()
	defer l.markMu.Unlock()
	switch {
	case p.keep < 0:
		l.mark = Mark{Epoch: record.NoEpoch, Segment: p.end, Offset: p.end, LogStart: p.end, NoProducers: true}
		l.start.Store(int64(p.end))
	case p.end <= l.mark.Offset:
		l.mark.Segment, l.mark.Position, l.mark.Offset = dropped[0].Base(), p.at, p.end
		l.mark.OffsetEntries, l.mark.TimeEntries, l.mark.NoProducers = 0, 0, false
		l.mu.Lock()
		l.mark.Epoch = l.w.epochs.at(p.end - 1)
		l.mu.Unlock()
	}
	l.mark.Cutting = true
	if err := l.putFirmLocked(); err != nil {
		return err
	}
	return l.dir.syncMarks()
}

// resumeAfterCut puts the new list of segments in place, with epochs and producers as they were at the cut.
func (l *Log) resumeAfterCut(p cutPlan, segments []*segment.Segment) error {
	active := segments[len(segments)-1]
	l.mu.Lock()
	l.view.Store(&view{segments: segments})
	l.w.next, l.w.rolled, l.w.unflushed, l.w.lost = p.end, nil, 0, false
	active.SetUpper(0)
	l.begin(active, l.dir.o.Now().UnixMilli())
	l.ends.set(place{p.end, record.Position(active.Size()), active})
	l.w.epochs.truncateEnd(p.end)
	if p.keep < 0 {
		l.w.epochs = epochs{changed: true}
	}
	l.w.leading.Epoch = record.NoEpoch
	epochs := slices.Clone(l.w.epochs.entries)
	l.w.epochs.changed = false
	l.mu.Unlock()
	if !slices.Equal(epochs, l.f.epochs) {
		if err := l.writeEpochs(epochs); err != nil {
			return err
		}
	}
	return l.reloadProducers(p)
}

func (l *Log) reloadProducers(p cutPlan) error {
	entries, err := l.dir.fs.ReadDir(l.path)
	if err != nil {
		return err
	}
	n, err := l.sortNamesOnly(entries)
	if err != nil {
		return err
	}
	l.f.windows, l.f.windowAt = nil, 0
	if p.keep < 0 {
		var errs []error
		for _, s := range n.states {
			errs = append(errs, removeFile(l.dir.fs, s.name(l.path)))
		}
		n.states = nil
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	if err := l.dropStates(&n, p.end); err != nil {
		return err
	}
	if err := l.dir.fs.SyncDir(l.path); err != nil { // before other batches take the offsets
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := recovery{l: l, names: n, next: l.w.next, marked: true}
	if err := l.loadProducers(&r); err != nil {
		return err
	}
	l.w.producers.changed = true
	return nil
}

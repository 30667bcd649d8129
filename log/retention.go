package log

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/internal/invariant"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/segment"
)

// retained is what the choice of expired segments looks at.
type retained struct {
	base, next record.Offset // next: where the following segment begins, the log end for the active one
	size       int64
}

// retentionLimits are the rules. newest answers the largest timestamp of segment i in ms; it is asked only where it
// matters, oldest first.
type retentionLimits struct {
	config    *Config
	nowMs     int64
	start     record.Offset
	watermark record.Offset
	newest    func(i int) (int64, error)
}

// expired is how many of the oldest segments may go: those below the log start; with cleanup.policy delete also those
// older than retention.ms, and those beyond retention.bytes. Nothing at or above the watermark goes, and the first segment
// that stays ends the choice. Pure, but for newest.
func expired(segs []retained, r *retentionLimits) (int, error) {
	var total int64
	for _, s := range segs {
		total += s.size
	}
	over := int64(-1)
	if r.config.Cleanup.Delete && r.config.Retention.Bytes >= 0 {
		over = total - r.config.Retention.Bytes
	}
	for i, s := range segs {
		if s.next > r.watermark || (i == len(segs)-1 && s.size == 0) {
			return i, nil
		}
		if over -= s.size; over >= 0 || s.next <= r.start {
			continue
		}
		if !r.config.Cleanup.Delete || r.config.Retention.Age == config.Forever || r.config.Retention.Age < 0 {
			return i, nil
		}
		newest, err := r.newest(i)
		if err != nil || r.nowMs-newest <= r.config.Retention.Age.Milliseconds() {
			return i, err
		}
	}
	return len(segs), nil
}

// Retain takes expired segments out of the log: the new log start is durable first, then they are renamed, and unlinked
// after their last reader and file.delete.delay.ms.
func (l *Log) Retain(now time.Time) error {
	v, end := l.view.Load(), l.WrittenEnd()
	n, err := l.countExpired(v, end, now)
	if err != nil || n == 0 {
		return err
	}
	if n == len(v.segments) { // all of it: an empty segment keeps the end
		l.lockWriter()
		err := l.Err()
		if err == nil && l.w.next != end { // what came meanwhile has not been judged: the next look will
			l.mu.Unlock()
			return nil
		}
		if err == nil {
			err = l.roll(now.UnixMilli())
		}
		l.mu.Unlock()
		if err != nil {
			return l.failed(err)
		}
		if v = l.view.Load(); n >= len(v.segments) {
			return nil
		}
	}
	err = l.markNow() // the producers of what goes are in a window, names and mark durable
	l.notify()
	if err != nil {
		return err
	}
	start := v.segments[n].Base()
	if start > l.StartOffset() {
		if err := l.moveStart(start); err != nil {
			return err
		}
	}
	if err := l.keepProducers(v.segments[:n]); err != nil {
		return err
	}
	return l.takeOut(v.segments[:n], l.StartOffset())
}

// keepProducers does, where the disk was too full for what belongs beside the batches, the part of it that segments must not
// go without: only they and a window file know their producers. Where there is no room for that file either, files that can
// be made again, or that go anyway, make it.
func (l *Log) keepProducers(old []*segment.Segment) error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	job := l.f.refused
	if job == nil || !job.changed || job.none {
		return nil
	}
	err := l.writeProducers(job.end.offset, job.producers, false)
	if isNoSpace(err) {
		if err = l.makeRoom(old); err == nil {
			err = l.writeProducers(job.end.offset, job.producers, false)
		}
	}
	if err != nil {
		return l.failed(fmt.Errorf("log: %s: what its oldest segments know of producers cannot be kept: %w", l.path, err))
	}
	return nil
}

// makeRoom removes the indexes of segments below the log start, which are about to go, all snapshots, all windows but the
// newest, and the file that waits to be the next segment.
func (l *Log) makeRoom(old []*segment.Segment) error {
	l.dir.log.Warn("making room on a full disk", "log", l.path)
	l.f.ended = slices.DeleteFunc(l.f.ended, func(r rolled) bool { return slices.Contains(old, r.seg) }) // sealing wants the indexes
	var gone []string
	for _, s := range old {
		for _, ext := range []string{segment.IndexExt, segment.TimeExt} {
			gone = append(gone, segment.FileName(s.Base(), ext))
		}
	}
	for _, s := range l.view.Load().segments {
		gone = append(gone, segment.FileName(s.Base(), SnapshotExt))
	}
	for len(l.f.windows) > 1 {
		gone = append(gone, segment.FileName(l.f.windows[0], WindowExt))
		l.f.windows = l.f.windows[1:]
	}
	l.mu.Lock()
	l.w.spare = false
	l.mu.Unlock()
	for _, name := range append(gone, SpareFile) {
		if err := removeFile(l.dir.fs, path.Join(l.path, name)); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) countExpired(v *view, end record.Offset, now time.Time) (int, error) {
	segs := make([]retained, len(v.segments))
	for i, s := range v.segments {
		segs[i] = retained{base: s.Base(), next: end, size: s.Size()}
		if i > 0 {
			segs[i-1].next = s.Base()
		}
	}
	watermark := l.StableEnd()
	if w := l.watermark.Load(); w >= 0 && !invariant.Seeded(invariant.RetentionPast) {
		watermark = min(watermark, record.Offset(w))
	}
	c := l.config.Load()
	if l.future.Load() { // what expires is decided where it is copied from
		byStart := *c
		byStart.Cleanup.Delete, c = false, &byStart
	}
	return expired(segs, &retentionLimits{
		config: c, nowMs: now.UnixMilli(), start: l.StartOffset(), watermark: watermark,
		newest: func(i int) (int64, error) { return l.newest(v.segments[i], now) },
	})
}

// newest is the largest timestamp of a segment for its age. Where the index says that it is too old, the batches
// themselves have the last word; without timestamps it is when the file was written.
func (l *Log) newest(s *segment.Segment, now time.Time) (int64, error) {
	newest, err := s.NewestTimestamp()
	if err != nil {
		return 0, err
	}
	if newest >= 0 && now.UnixMilli()-newest <= l.config.Load().Retention.Age.Milliseconds() {
		return newest, nil
	}
	if newest, err = s.ConfirmNewest(); err != nil {
		return 0, err
	}
	if newest >= 0 {
		return newest, nil
	}
	return s.ModTimeMs()
}

// takeOut removes the oldest segments from the view and puts their files aside.
func (l *Log) takeOut(old []*segment.Segment, start record.Offset) error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.lockWriter()
	v := l.view.Load()
	if len(v.segments) <= len(old) || v.segments[len(old)-1] != old[len(old)-1] {
		l.mu.Unlock()
		return nil // a truncation came in between
	}
	l.view.Store(&view{segments: v.segments[len(old):]})
	l.w.epochs.truncateStart(start)
	l.mu.Unlock()
	l.f.ended = slices.DeleteFunc(l.f.ended, func(r rolled) bool { return slices.Contains(old, r.seg) })
	l.notify()
	delay := l.config.Load().FileDeleteDelay
	if l.f.owed || errors.Is(l.dir.Writable(), ErrReserve) {
		delay = 0 // the room is needed now
	}
	var errs []error
	for _, s := range old {
		s.Retire()
		if err := s.MarkDeleted(); err != nil {
			errs = append(errs, fmt.Errorf("segment %d: %w", s.Base(), err))
			continue
		}
		errs = append(errs, removeFile(l.dir.fs, path.Join(l.path, segment.FileName(s.Base(), SnapshotExt))))
		l.dir.discard(s, delay)
	}
	l.dir.log.Info("segments are deleted", "log", l.path, "count", len(old), "start", start)
	return errors.Join(errs...)
}

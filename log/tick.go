package log

import (
	"crypto/rand"
	"errors"
	"fmt"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/segment"
)

// logSchedule is when a log's periodic work is due.
type logSchedule struct {
	ready  atomic.Bool // open and Tick's to care for
	retain atomic.Bool // retention is due now
	next   struct {    // Tick's own
		retention, mark time.Time
	}
}

// dirSchedule is when the directory's work is due; guarded by Dir.ticking.
type dirSchedule struct {
	watermark, checkpoint, producers time.Time
	watermarks                       map[TopicPartition]record.Offset // as written last
}

// trash is something to unlink later.
type trash struct {
	path string           // a directory, or
	seg  *segment.Segment // a segment whose files are renamed
	gone <-chan struct{}  // closed when nobody reads it any more; nil: nobody does
	due  time.Time
}

// discard unlinks a retired, renamed segment after a delay.
func (d *Dir) discard(s *segment.Segment, delay time.Duration) {
	t := trash{seg: s, gone: s.Retire(), due: d.o.Now().Add(delay)}
	d.mu.Lock()
	d.trash = append(d.trash, t)
	d.mu.Unlock()
}

// Tick does the periodic work: rolling by age, retention, flush.ms, marks and producer state, checkpoints, delayed
// unlinks, the expiry of producers. Call it about every second with the wall time; calls that overlap are left out.
func (d *Dir) Tick(now time.Time) {
	if !d.ticking.TryLock() {
		return
	}
	defer d.ticking.Unlock()
	if d.Offline() != nil {
		return
	}
	_ = d.space.look(true)
	logs := d.open()
	expire := !now.Before(d.due.producers)
	if expire {
		d.due.producers = now.Add(10 * time.Minute)
	}
	marked := false
	for _, l := range logs {
		if l.Err() == nil {
			marked = l.tick(now, expire) || marked
		}
	}
	if marked {
		_ = d.syncMarks()
	}
	d.emptyTrash(now)
	d.tickCheckpoints(now, logs)
}

// tick does a log's work. It says whether marks were written that must be made durable.
func (l *Log) tick(now time.Time, expire bool) (marked bool) {
	settings, next := &l.dir.o.Settings, &l.schedule.next
	l.tickRoll(now)
	l.mu.Lock()
	late := l.w.unflushed > 0 && l.config.Load().Flush.Interval != config.Forever &&
		now.UnixMilli()-l.w.sinceMs >= l.config.Load().Flush.Interval.Milliseconds()
	if expire {
		l.w.producers.expire(now.UnixMilli(), settings.ProducerExpiration.Milliseconds())
	}
	l.mu.Unlock()
	if late {
		l.dir.committer.Dirty(l)
	}
	if next.mark.IsZero() {
		next.mark = now.Add(settings.MarkInterval)
	} else if !now.Before(next.mark) {
		next.mark = now.Add(settings.MarkInterval)
		marked = l.tickMark()
	}
	if next.retention.IsZero() {
		next.retention = now.Add(min(30*time.Second, settings.RetentionCheckInterval))
	}
	if l.schedule.retain.Swap(false) || !now.Before(next.retention) {
		next.retention = now.Add(settings.RetentionCheckInterval)
		if err := l.Retain(now); err != nil && !errors.Is(err, ErrClosed) {
			l.dir.log.Warn("retention", "log", l.path, "err", err)
		}
	}
	return marked
}

// tickMark makes all that the mark names durable, if it changed.
func (l *Log) tickMark() bool {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	if !l.f.dirty {
		return false
	}
	if err := l.flushLocked(flushMarked); err != nil {
		l.dir.log.Debug("mark", "log", l.path, "err", err)
		return false
	}
	return true
}

func (d *Dir) emptyTrash(now time.Time) {
	d.mu.Lock()
	all := d.trash
	d.trash = nil
	d.mu.Unlock()
	var keep []trash
	for _, t := range all {
		if now.Before(t.due) || !isClosed(t.gone) {
			keep = append(keep, t)
			continue
		}
		if err := t.remove(d); err != nil {
			d.log.Warn("cannot unlink", "path", t.path, "err", err)
		}
	}
	d.mu.Lock()
	d.trash = append(keep, d.trash...)
	d.mu.Unlock()
}

func isClosed(c <-chan struct{}) bool {
	if c == nil {
		return true
	}
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (t trash) remove(d *Dir) error {
	if t.seg != nil {
		return t.seg.Unlink()
	}
	return d.fs.RemoveAll(t.path)
}

func (d *Dir) tickCheckpoints(now time.Time, logs []*Log) {
	s := &d.o.Settings
	if !now.Before(d.due.watermark) {
		d.due.watermark = now.Add(s.WatermarkInterval)
		d.checkpointErr(d.writeWatermarks(logs))
	}
	if d.due.checkpoint.IsZero() {
		d.due.checkpoint = now.Add(s.CheckpointInterval)
	} else if !now.Before(d.due.checkpoint) {
		d.due.checkpoint = now.Add(s.CheckpointInterval)
		d.checkpointErr(d.writePoints(logs))
	}
}

func (d *Dir) checkpointErr(err error) {
	switch {
	case err == nil:
	case isDisk(err):
		_ = d.fail(err)
	default:
		d.log.Warn("cannot write a checkpoint", "path", d.path, "err", err)
	}
}

func (l *Log) key() TopicPartition { return TopicPartition{l.id.Topic, l.id.Partition} }

// writeWatermarks keeps replication-offset-checkpoint, if it changed.
func (d *Dir) writeWatermarks(logs []*Log) error {
	m := map[TopicPartition]record.Offset{}
	changed := len(logs) != len(d.due.watermarks)
	for _, l := range logs {
		o := record.Offset(l.watermark.Load())
		if o < 0 {
			o = l.loaded
		}
		m[l.key()] = o
		if old, ok := d.due.watermarks[l.key()]; !ok || old != o {
			changed = true
		}
	}
	if !changed {
		return nil
	}
	if err := replaceFile(d.fs, path.Join(d.path, WatermarkFile), EncodeOffsets(m)); err != nil {
		return err
	}
	d.due.watermarks = m
	return nil
}

// writePoints keeps Kafka's recovery points and log starts.
func (d *Dir) writePoints(logs []*Log) error {
	points, starts := map[TopicPartition]record.Offset{}, map[TopicPartition]record.Offset{}
	for _, l := range logs {
		if !l.schedule.ready.Load() {
			continue
		}
		points[l.key()] = l.DurableEnd()
		if start := l.StartOffset(); start > l.view.Load().segments[0].Base() {
			starts[l.key()] = start
		}
	}
	if err := replaceFile(d.fs, path.Join(d.path, RecoveryPointFile), EncodeOffsets(points)); err != nil {
		return err
	}
	return replaceFile(d.fs, path.Join(d.path, LogStartFile), EncodeOffsets(starts))
}

// DeleteLog takes a log out: it is closed, its mark freed durably, its directory renamed, and removed by a later Tick.
func (d *Dir) DeleteLog(l *Log) error {
	l.stop(fmt.Errorf("%w: %s is deleted", ErrClosed, l.path))
	l.notify()
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.mu.Lock()
	v := l.view.Load()
	l.mu.Unlock()
	delay := l.config.Load().FileDeleteDelay
	var gone []<-chan struct{}
	for _, s := range v.segments {
		gone = append(gone, s.Retire())
	}
	err := d.retire(Found{Identity: l.id, Path: l.path}, deleteSuffix, all(gone), delay)
	d.mu.Lock()
	delete(d.logs, l.key())
	d.mu.Unlock()
	return err
}

// all is closed when all of the channels are.
func all(channels []<-chan struct{}) <-chan struct{} {
	done := make(chan struct{})
	open := channels[:0]
	for _, c := range channels {
		if !isClosed(c) {
			open = append(open, c)
		}
	}
	if len(open) == 0 {
		close(done)
		return done
	}
	go func() {
		for _, c := range open {
			<-c
		}
		close(done)
	}()
	return done
}

// DeleteFound takes out a directory that is not open.
func (d *Dir) DeleteFound(f Found) error {
	return d.retire(f, deleteSuffix, nil, 0)
}

// Quarantine renames a directory that no image knows, or that contradicts it; the server never deletes it.
func (d *Dir) Quarantine(f Found, why string) error {
	d.log.Warn("directory is put aside", "path", f.Path, "why", why)
	return d.retire(f, straySuffix, nil, 0)
}

// retire frees the mark, durably, then renames the directory.
func (d *Dir) retire(f Found, suffix string, gone <-chan struct{}, delay time.Duration) error {
	if err := d.marks.drop(markKey{f.TopicID, f.Partition}); err != nil {
		return err
	}
	if err := d.syncMarks(); err != nil {
		return err
	}
	var random [16]byte
	if _, err := rand.Read(random[:]); err != nil {
		return err
	}
	to := path.Join(d.path, retiredName(f.Topic, f.Partition, random, suffix))
	if err := d.fs.Rename(f.Path, to); err != nil {
		return err
	}
	if err := d.fs.SyncDir(d.path); err != nil {
		return d.fail(err)
	}
	if suffix == deleteSuffix {
		d.mu.Lock()
		d.trash = append(d.trash, trash{path: to, gone: gone, due: d.o.Now().Add(delay)})
		d.mu.Unlock()
	}
	return nil
}

// Close stops cleanly: what was appended is flushed, files are trimmed, producer state, marks and checkpoints written, and
// the clean-stop marker last. After a failure the marker is left out. Nothing may be called any more.
func (d *Dir) Close() error {
	d.ticking.Lock()
	defer d.ticking.Unlock()
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	errs := []error{d.committer.Close()}
	logs := d.open()
	errs = append(errs, d.closeLogs(logs)...)
	d.emptyTrash(d.o.Now().Add(1000 * time.Hour))
	if d.Offline() == nil {
		errs = append(errs, d.syncMarks(), d.writeWatermarks(logs), d.writePoints(logs))
		if b, err := readFile(d.fs, path.Join(d.path, CleanerFile)); err != nil || len(b) == 0 {
			errs = append(errs, replaceFile(d.fs, path.Join(d.path, CleanerFile), EncodeOffsets(d.points.cleaner)))
		}
	}
	errs = append(errs, d.Offline())
	err := errors.Join(errs...)
	if err == nil {
		err = replaceFile(d.fs, path.Join(d.path, CleanFile), encodeClean(d.brokerEpoch.Load()))
	}
	return errors.Join(err, d.marks.file.Close(), d.lock.Close())
}

func (d *Dir) closeLogs(logs []*Log) []error {
	errs := make([]error, len(logs))
	limit := make(chan struct{}, d.o.Settings.FlushConcurrency)
	var wait sync.WaitGroup
	for i, l := range logs {
		limit <- struct{}{}
		wait.Go(func() {
			if err := l.closeClean(); err != nil {
				errs[i] = fmt.Errorf("log: closing %s: %w", l.path, err)
			}
			<-limit
		})
	}
	wait.Wait()
	return errs
}

// closeClean flushes and trims one log and writes its last mark.
func (l *Log) closeClean() error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	err := l.flushLocked(flushData)
	l.stop(fmt.Errorf("%w: %s", ErrClosed, l.path))
	l.mu.Lock()
	active, end := l.w.active, place{l.w.next, record.Position(l.w.active.Size()), l.w.active}
	producers := l.w.producers.list()
	lost := l.w.lost
	l.mu.Unlock()
	if err == nil && !lost && len(producers) > 0 {
		err = l.writeProducers(end.offset, producers, true)
	}
	offsets, times := active.Entries()
	errs := []error{err, active.CloseClean()}
	if offsets2, times2 := active.Entries(); offsets2 >= offsets && times2 >= times {
		offsets, times = offsets2, times2
	}
	for _, s := range l.view.Load().segments {
		<-s.Retire()
	}
	if err == nil && !lost {
		l.markMu.Lock()
		l.mark.Segment, l.mark.Position, l.mark.Offset = end.seg.Base(), end.at, end.offset
		l.mark.OffsetEntries, l.mark.TimeEntries, l.mark.NoProducers = int32(offsets), int32(times), len(producers) == 0
		errs = append(errs, l.putMarkLocked())
		l.markMu.Unlock()
	}
	return errors.Join(errs...)
}

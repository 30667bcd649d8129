package log

import (
	"errors"
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
	found  bool        // it was there at the start: retention may have been due for long
	// verified is the base of the first segment that was not looked at; Tick's own.
	verified record.Offset
	next     struct { // Tick's own
		retention, mark time.Time
	}
}

// dirSchedule is when the directory's work is due; guarded by Dir.ticking.
type dirSchedule struct {
	watermark, checkpoint, producers time.Time
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
	d.verify(logs)
	d.tickCheckpoints(now, logs)
}

// verifyPerTick bounds the ended segments that a Tick looks at.
const verifyPerTick = 64

// verify looks at the segments that were there at the opening, some at a time: where one was cut or is gone, that is known
// before a reader comes.
func (d *Dir) verify(logs []*Log) {
	budget := verifyPerTick
	for _, l := range logs {
		v := l.view.Load()
		for i := v.find(l.schedule.verified); i < len(v.segments)-1 && budget > 0; i++ {
			budget--
			if err := v.segments[i].Verify(); err != nil && !errors.Is(err, segment.ErrGone) {
				d.log.Warn("cannot look at a segment", "log", l.path, "segment", v.segments[i].Base(), "err", err)
			}
			l.schedule.verified = v.segments[i+1].Base()
		}
	}
}

// tick does a log's work. It says whether marks were written that must be made durable.
func (l *Log) tick(now time.Time, expire bool) (marked bool) {
	settings, next := &l.dir.o.Settings, &l.schedule.next
	l.tickRoll(now)
	l.mu.Lock()
	late := l.w.unflushed > 0 && l.config.Load().Flush.Interval != config.Forever &&
		now.UnixMilli()-l.w.sinceMs >= l.config.Load().Flush.Interval.Milliseconds()
	if expire {
		l.w.producers.expire(now.UnixMilli(), l.dir.tuned.producerExpirationMs.Load())
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
		next.retention = now.Add(settings.RetentionCheckInterval)
		if l.schedule.found {
			next.retention = now.Add(max(settings.InitialTaskDelay, 0))
		}
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

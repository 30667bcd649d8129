package log

import (
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/keeplog/keeplog/record"
)

// Close stops cleanly: what was appended is flushed, files are trimmed, producer state, marks and checkpoints written, and
// the clean-stop marker last. The marker says that every log can be trusted: it is left out after a failure, and where a
// partition's directory that was found at the opening was neither opened nor taken out, since nobody has recovered it.
// Nothing may be called any more. It waits for the calls of the file system that are under way, however long the disk takes:
// who cannot wait ends the process, which is a kill.
func (d *Dir) Close() error { return d.shut(true) }

// Abandon closes the directory without the mark of a clean stop, as a start that failed must.
func (d *Dir) Abandon() error { return d.shut(false) }

func (d *Dir) shut(clean bool) error {
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
		errs = append(errs, d.syncMarks())
	}
	if d.Offline() == nil && clean {
		errs = append(errs, d.writeWatermarks(logs), d.writePoints(logs))
		if b, err := readFile(d.fs, path.Join(d.path, CleanerFile)); err != nil || len(b) == 0 {
			errs = append(errs, replaceFile(d.fs, path.Join(d.path, CleanerFile), EncodeOffsets(d.points.cleaner)))
		}
	}
	errs = append(errs, d.Offline())
	err := errors.Join(errs...)
	if err == nil && clean && d.allSeen() {
		err = replaceFile(d.fs, path.Join(d.path, CleanFile), encodeClean(d.brokerEpoch.Load()))
	}
	return errors.Join(err, d.marks.file.Close(), d.lock.Close())
}

// allSeen says that no log is left that was not opened or is still being opened.
func (d *Dir) allSeen() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := len(d.unseen)
	for _, l := range d.logs {
		if !l.schedule.ready.Load() {
			left++
		}
	}
	if left > 0 {
		d.log.Warn("no clean stop: partitions were not opened and are recovered at the next start", "path", d.path, "partitions", left)
	}
	return left == 0
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
	if now, _ := l.dir.Log(l.id.Topic, l.id.Partition); now != l { // it was deleted meanwhile
		return nil
	}
	release := l.hold() // what is flushed is what the mark tells
	err := l.flushLocked(flushData)
	if err == nil && l.f.owed {
		err = fmt.Errorf("%w: what belongs beside its batches is not written", ErrReserve)
	}
	l.stop(fmt.Errorf("%w: %s", ErrClosed, l.path))
	release()
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
		l.mark.Segment, l.mark.Position, l.mark.Offset, l.mark.Cutting = end.seg.Base(), end.at, end.offset, false
		l.mark.OffsetEntries, l.mark.TimeEntries, l.mark.NoProducers = int32(offsets), int32(times), len(producers) == 0
		errs = append(errs, l.putMarkLocked())
		l.markMu.Unlock()
	}
	return errors.Join(errs...)
}

package log

import (
	"fmt"
	"hash/crc32"
	"os"
	"path"
	"slices"

	"github.com/keeplog/keeplog/internal/invariant"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/segment"
)

// flushJob is what one flush makes durable, taken under Log.mu.
type flushJob struct {
	end       place
	rolled    []rolled
	newNames  bool
	newLog    bool
	born      uint64
	full      bool // the mark is made durable too, with indexes and producer state
	shared    bool // but for the last step, which the caller does for many logs at once
	epochs    []EpochEntry
	epoch     record.Epoch
	producers []Producer // where full
	changed   bool       // they differ from the last window file
	none      bool       // no producer is known
}

// slow says that settling does more than write a slot.
func (j *flushJob) slow() bool { return j.full || j.epochs != nil || len(j.rolled) > 0 }

// Flush makes everything durable that is written when it begins: the work of a Committer. The order is old segment files,
// directory, new file; then the new end is published, then come the epoch checkpoint and the mark.
func (l *Log) Flush() error {
	told, err := l.flush()
	if !told {
		l.notify()
	}
	return err
}

// flush does that without telling the new end, unless what comes beside the batches is slow: then those who wait for the
// end are told before it, without a lock, and told is true.
func (l *Log) flush() (told bool, err error) {
	l.flushMu.Lock()
	if err = l.publishLocked(flushData); err == nil && l.f.unsettled != nil && l.f.unsettled.slow() {
		l.flushMu.Unlock()
		l.notify()
		told = true
		l.flushMu.Lock()
	}
	if err == nil { // a flush, truncation or closing that came in between has settled it
		err = l.settleLocked()
	}
	l.flushMu.Unlock()
	return told, err
}

// flushDepth is how much a flush does.
type flushDepth int

const (
	flushData   flushDepth = iota // the mark is written
	flushMarked                   // and ready to be made durable: indexes and producer state are; Dir.syncMarks comes next
)

// flushLocked is a flush with flushMu held; it tells nobody.
func (l *Log) flushLocked(depth flushDepth) error {
	if err := l.publishLocked(depth); err != nil {
		return err
	}
	return l.settleLocked()
}

// publishLocked is the first half: what is written becomes durable and the new end is published. The job is left in
// f.unsettled for settleLocked, which everybody who takes flushMu for a flush calls first.
func (l *Log) publishLocked(depth flushDepth) error {
	if err := l.settleLocked(); err != nil {
		return err
	}
	if err := l.Err(); err != nil {
		return err
	}
	job := l.takeJob(depth == flushMarked)
	before := l.durable()
	if !l.f.owed && !job.full && !job.newLog && !job.newNames && len(job.rolled) == 0 && before.offset == job.end.offset && before.seg == job.end.seg {
		return nil
	}
	if invariant.Seeded(invariant.AckBeforeFsync) {
		l.publish(job.end)
	}
	if invariant.Seeded(invariant.MarkAhead) {
		_ = l.putMark(&job)
		_ = l.dir.syncMarks()
	}
	if err := l.syncData(&job, before); err != nil {
		return l.dir.fail(fmt.Errorf("log: flush of %s: %w", l.path, err))
	}
	l.f.unmarked += int64(job.end.at)
	if before.seg == job.end.seg {
		l.f.unmarked -= int64(before.at)
	}
	l.publish(job.end)
	l.f.unsettled = &job
	return nil
}

// settleLocked is the second half, for the job that the first half left, if there is one.
func (l *Log) settleLocked() error {
	job := l.f.unsettled
	l.f.unsettled = nil
	if job == nil {
		return nil
	}
	if err := l.Err(); err != nil { // deleted meanwhile, or offline: no mark is written any more
		return err
	}
	if err := l.settle(job); err != nil {
		if !isNoSpace(err) {
			return l.dir.fail(fmt.Errorf("log: settling %s: %w", l.path, err))
		}
		l.dir.log.Warn("no room for the files beside a log", "log", l.path, "err", err)
		l.f.owed, l.f.refused, l.f.ended = true, job, append(l.f.ended, job.rolled...) // the mark lags until they are written
		l.mu.Lock()
		l.w.epochs.changed, l.w.producers.changed = true, true
		l.mu.Unlock()
	} else if job.full {
		l.f.owed, l.f.refused, l.f.ended = false, nil, nil
	}
	l.makeSpare()
	return nil
}

func (l *Log) durable() place {
	l.ends.mu.Lock()
	defer l.ends.mu.Unlock()
	return l.ends.durable
}

func (l *Log) takeJob(marked bool) flushJob {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends.mu.Lock()
	end := l.ends.written
	l.ends.mu.Unlock()
	job := flushJob{end: end, rolled: l.w.rolled, newNames: l.w.newNames, newLog: l.w.newLog, born: l.w.born, epoch: l.w.epochs.latest()}
	job.shared = marked
	job.full = marked || l.f.owed || len(job.rolled) > 0 || l.f.unmarked >= l.dir.o.Settings.MarkBytes
	if l.w.epochs.changed {
		job.epochs, l.w.epochs.changed = append([]EpochEntry{}, l.w.epochs.entries...), false
	}
	job.none = len(l.w.producers.byID) == 0
	if job.full {
		if job.changed = l.w.producers.changed; job.changed && !job.none {
			job.producers = l.w.producers.list()
		}
		l.w.producers.changed = false
	}
	l.w.rolled, l.w.newNames, l.w.newLog, l.w.unflushed = nil, false, false, 0
	return job
}

// syncData makes the batches durable, in order.
func (l *Log) syncData(job *flushJob, before place) error {
	if job.newLog {
		if err := l.syncPartitionFile(); err != nil {
			return err
		}
	}
	for _, r := range job.rolled {
		if err := r.seg.SyncLog(); err != nil {
			return err
		}
	}
	if (job.newNames || job.newLog) && !invariant.Seeded(invariant.DirectoryNotSynced) {
		if err := l.dir.fs.SyncDir(l.path); err != nil {
			return err
		}
		if job.newLog {
			if err := l.dir.syncNewNames(job.born); err != nil {
				return err
			}
		}
	}
	if job.end.at == 0 || (before.seg == job.end.seg && before.at == job.end.at) {
		return nil
	}
	return job.end.seg.SyncLog()
}

func (l *Log) syncPartitionFile() error {
	f, err := l.dir.fs.OpenFile(path.Join(l.path, PartitionFile), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// publish moves the durable end, and with it the stable end.
func (l *Log) publish(end place) {
	l.ends.mu.Lock()
	defer l.ends.mu.Unlock()
	l.ends.durable = end
	if int64(end.offset) > l.ends.stableEnd.Load() {
		l.ends.stableEnd.Store(int64(end.offset))
	}
}

// settle writes what belongs beside durable batches: indexes of ended segments, producer state, the epoch checkpoint, and
// then the mark.
func (l *Log) settle(job *flushJob) error {
	for _, r := range slices.Concat(l.f.ended, job.rolled) {
		if err := r.seg.Seal(); err != nil {
			return err
		}
		if err := l.writeProducers(r.next, r.producers, true); err != nil {
			return err
		}
	}
	if job.epochs != nil && !slices.Equal(job.epochs, l.f.epochs) {
		if err := l.writeEpochs(job.epochs); err != nil {
			return err
		}
	}
	offsets, times := 0, 0
	if job.full {
		if job.changed && !job.none {
			if err := l.writeProducers(job.end.offset, job.producers, false); err != nil {
				return err
			}
		}
		offsets, times = job.end.seg.EntriesBelow(job.end.at, job.end.offset)
		if offsets > 0 || times > 0 {
			if err := job.end.seg.SyncIndexes(); err != nil {
				return err
			}
		}
	}
	if err := l.putMarkEntries(job, offsets, times); err != nil {
		return err
	}
	if !job.full {
		return nil
	}
	l.f.unmarked = 0
	if job.shared {
		l.f.dirty = false
		return nil
	}
	if err := l.dir.syncMarks(); err != nil {
		return err
	}
	l.f.dirty = false
	return nil
}

// writeEpochs replaces the epoch checkpoint.
func (l *Log) writeEpochs(entries []EpochEntry) error {
	b := EncodeEpochs(entries)
	if err := replaceFile(l.dir.fs, path.Join(l.path, EpochFile), b); err != nil {
		return err
	}
	l.f.epochs = entries
	l.markMu.Lock()
	l.mark.EpochsCRC = crc32.Checksum(b, castagnoli)
	l.markMu.Unlock()
	return nil
}

// putMark writes the mark for what is durable now. While durable data is missing the old mark stays.
func (l *Log) putMark(job *flushJob) error { return l.putMarkEntries(job, 0, 0) }

func (l *Log) putMarkEntries(job *flushJob, offsets, times int) error {
	l.mu.Lock()
	lost := l.w.lost
	l.mu.Unlock()
	if lost {
		return nil
	}
	l.markMu.Lock()
	defer l.markMu.Unlock()
	if l.mark.Segment != job.end.seg.Base() {
		l.mark.OffsetEntries, l.mark.TimeEntries = 0, 0
	}
	if job.full {
		l.mark.OffsetEntries, l.mark.TimeEntries = int32(offsets), int32(times)
	}
	l.mark.Segment, l.mark.Position, l.mark.Offset = job.end.seg.Base(), job.end.at, job.end.offset
	l.mark.NoProducers, l.mark.Cutting = job.none, false
	l.mark.Epoch = job.epoch
	l.f.dirty = true
	return l.putMarkLocked()
}

// putMarkLocked writes the slot. The caller holds markMu.
func (l *Log) putMarkLocked() error { return l.dir.marks.put(*l.nextMark()) }

// putFirmLocked is putMarkLocked for a mark that contradicts the one before it: a cut, a new start.
func (l *Log) putFirmLocked() error { return l.dir.marks.putFirm(*l.nextMark()) }

func (l *Log) nextMark() *Mark {
	l.mark.TopicID, l.mark.Partition = l.id.TopicID, l.id.Partition
	l.mark.Moves, l.mark.Lineage, l.mark.Future = l.moves, l.lineage, l.future.Load()
	l.mark.Leaving, l.mark.Arrived = l.leaving, l.arrived
	l.mark.LogStart = max(l.mark.LogStart, l.StartOffset())
	return &l.mark
}

// writeProducers writes the window file for an offset, and Kafka's snapshot where a segment begins there, durably; older
// window files but one go. Without producers there is nothing to write: the mark says so.
func (l *Log) writeProducers(offset record.Offset, all []Producer, snapshot bool) error {
	if len(all) == 0 {
		return nil
	}
	window := stateFile{offset, true}
	if l.f.windowAt == offset && len(l.f.windows) > 0 && !snapshot {
		return nil
	}
	newest := record.Offset(-1)
	if n := len(l.f.windows); n > 0 {
		newest = l.f.windows[n-1]
	}
	if offset >= newest { // after a full disk what is owed for older offsets is made up for: then there is a newer window
		if err := replaceName(l.dir.fs, window.name(l.path), EncodeWindow(offset, all)); err != nil {
			return err
		}
	}
	if snapshot {
		if err := replaceName(l.dir.fs, stateFile{offset, false}.name(l.path), EncodeSnapshot(all)); err != nil {
			return err
		}
	}
	if err := l.dir.fs.SyncDir(l.path); err != nil {
		return err
	}
	if offset > newest {
		l.f.windows = append(l.f.windows, offset)
	}
	l.f.windowAt = max(offset, newest)
	for len(l.f.windows) > 2 {
		if err := removeFile(l.dir.fs, stateFile{l.f.windows[0], true}.name(l.path)); err != nil {
			return err
		}
		l.f.windows = l.f.windows[1:]
	}
	return nil
}

// makeSpare prepares the next segment's file when the active one is three quarters full.
func (l *Log) makeSpare() {
	limit := int64(l.config.Load().Segment.Bytes)
	l.mu.Lock()
	due := !l.w.spare && limit >= 1<<20 && l.w.active.Size() > limit/4*3
	l.mu.Unlock()
	if !due || l.dir.Writable() != nil {
		return
	}
	if err := segment.MakeSpare(l.dir.fs, path.Join(l.path, SpareFile)); err != nil {
		l.dir.log.Warn("no spare segment file", "log", l.path, "err", err)
		return
	}
	l.mu.Lock()
	l.w.spare = true
	l.mu.Unlock()
}

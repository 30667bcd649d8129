package log

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"path"
	"slices"

	"github.com/keeplog/keeplog/internal/invariant"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/segment"
)

// loadEpochs reads the epoch checkpoint and adds what recovery saw. Where it is missing, damaged or disagrees with the
// mark or the batches, the epochs come from the batches, and the last one of a log without records from the mark.
func (l *Log) loadEpochs(r *recovery) error {
	name := path.Join(l.path, EpochFile)
	b, err := readFile(l.dir.fs, name)
	var entries []EpochEntry
	if err == nil {
		entries, err = DecodeEpochs(b)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrBadFile) {
		return err
	}
	l.f.epochs = slices.Clone(entries)
	scanned := r.scannedFrom
	below := entries[:countBelow(entries, min(scanned, r.next))]
	sum := crc32.Checksum(b, castagnoli)
	if err == nil && (!r.marked || r.mark.EpochsCRC != sum) { // written after the mark, or damaged
		err = l.epochsAgree(below, min(scanned, r.next))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		if !errors.Is(err, ErrBadFile) {
			return err
		}
		l.dir.log.Warn("epoch checkpoint is not used", "file", name, "err", err)
	}
	l.mark.EpochsCRC = 0
	known := record.NoEpoch
	if err == nil {
		l.mark.EpochsCRC = sum
		l.w.epochs.entries = slices.Clone(below)
		known = l.w.epochs.latest()
	}
	if scanned > r.segments[0].Base() && (err != nil || (r.marked && !r.short && r.mark.Offset == scanned && known != r.mark.Epoch)) {
		l.w.epochs.entries = nil
		if err := l.walkHeaders(r.segments[0].Base(), scanned, func(b record.Batch) {
			l.w.epochs.assign(b.PartitionLeaderEpoch(), b.BaseOffset())
		}); err != nil {
			return err
		}
	}
	for _, e := range r.epochs {
		l.w.epochs.assign(e.Epoch, e.Start)
	}
	l.w.epochs.truncateStart(l.StartOffset())
	if len(l.w.epochs.entries) == 0 && r.marked && !r.short && r.mark.Offset == r.next && r.mark.Epoch >= 0 {
		l.w.epochs.remain(r.mark.Epoch, r.next)
	}
	l.w.epochs.changed = !slices.Equal(l.w.epochs.entries, l.f.epochs)
	return nil
}

// epochsAgree compares the lines of an epoch checkpoint with the batches at them and before them, and the last one with the
// last batch below end. Where there is no batch any more nothing can be said.
func (l *Log) epochsAgree(entries []EpochEntry, end record.Offset) error {
	start := max(l.StartOffset(), l.view.Load().segments[0].Base())
	wrong := func(e EpochEntry, b record.Batch) error {
		return fmt.Errorf("%w: epoch %d from %d, and the batch of %d to %d has %d", ErrBadFile, e.Epoch, e.Start, b.BaseOffset(), b.LastOffset(), b.PartitionLeaderEpoch())
	}
	before := record.NoEpoch
	for _, e := range entries {
		last := before
		before = e.Epoch
		b, err := l.batchAt(max(e.Start, start))
		if err != nil {
			return err
		}
		if b != nil && e.Start >= start && (b.BaseOffset() <= e.Start && b.PartitionLeaderEpoch() != e.Epoch || b.BaseOffset() < e.Start && e.Start > start) {
			return wrong(e, b)
		}
		if e.Start <= start {
			continue
		}
		if b, err = l.batchAt(max(e.Start-1, start)); err != nil {
			return err
		}
		if b != nil && b.BaseOffset() < e.Start && b.PartitionLeaderEpoch() != last {
			return wrong(e, b)
		}
	}
	if end <= start {
		return nil
	}
	b, err := l.batchAt(end - 1)
	if err == nil && b != nil && b.BaseOffset() < end && b.PartitionLeaderEpoch() != before {
		err = wrong(EpochEntry{before, end}, b)
	}
	return err
}

// batchAt is the header of the first batch that ends at or after an offset, nil where there is none.
func (l *Log) batchAt(o record.Offset) (found record.Batch, err error) {
	v := l.view.Load()
	for i := v.find(o); i < len(v.segments) && found == nil && err == nil; i++ {
		s := v.segments[i]
		err = s.Walk(max(o, s.Base()), record.Position(s.Size()), false, func(b segment.Batch) bool {
			found = slices.Clone(b.Batch)
			return false
		})
	}
	return found, err
}

// walkHeaders shows the headers of the batches that end at or after from, and begin below end. Damage is hopped over.
func (l *Log) walkHeaders(from, end record.Offset, show func(record.Batch)) error {
	v := l.view.Load()
	for i := v.find(from); i < len(v.segments); i++ {
		s := v.segments[i]
		if s.Base() >= end || s.Size() == 0 {
			continue
		}
		err := s.Walk(max(from, s.Base()), record.Position(s.Size()), false, func(b segment.Batch) bool {
			if b.BaseOffset() >= end {
				return false
			}
			show(b.Batch)
			return true
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// loadProducers takes the newest readable state and walks the batches after it.
func (l *Log) loadProducers(r *recovery) error {
	nowMs := l.dir.o.Now().UnixMilli()
	for _, s := range slices.Backward(r.names.states) {
		if s.window && s.offset <= l.w.next {
			l.f.windows = append(l.f.windows, s.offset)
		}
	}
	all, from, ok, err := l.findWindow(r.names.states, l.w.next)
	if err != nil {
		return err
	}
	var snapshot []Producer
	if !ok {
		var at record.Offset
		if snapshot, at, err = l.findSnapshot(r.names.states, l.w.next); err != nil {
			return err
		}
		from = math.MinInt64
		if r.foreign || invariant.Seeded(invariant.WindowNotRefilled) { // Kafka's directory: a window of one batch
			all, from, snapshot = snapshot, at, nil
		}
	}
	l.w.producers.load(all, nowMs)
	if from >= r.next {
		return nil
	}
	err = l.walkHeaders(from, r.next, func(b record.Batch) {
		if b.BaseOffset() >= from {
			l.w.producers.apply(b, nowMs)
		}
	})
	l.w.producers.add(snapshot, nowMs)
	return err
}

// findWindow is the newest complete state up to end, and its offset: a window file, or nothing where the mark says that
// there was no producer. Damaged files are removed.
func (l *Log) findWindow(states []stateFile, end record.Offset) ([]Producer, record.Offset, bool, error) {
	quiet := record.Offset(-1)
	if l.mark.NoProducers && l.mark.Offset <= end {
		quiet = l.mark.Offset
	}
	for _, s := range states {
		if !s.window || invariant.Seeded(invariant.WindowNotRefilled) {
			continue
		}
		if s.offset <= quiet {
			break
		}
		if all, ok, err := l.readState(s, end); ok || err != nil {
			return all, s.offset, ok, err
		}
	}
	return nil, quiet, quiet >= 0, nil
}

// findSnapshot is Kafka's newest readable snapshot up to end: one batch of each producer.
func (l *Log) findSnapshot(states []stateFile, end record.Offset) ([]Producer, record.Offset, error) {
	for _, s := range states {
		if s.window {
			continue
		}
		if all, ok, err := l.readState(s, end); ok || err != nil {
			return all, s.offset, err
		}
	}
	return nil, math.MinInt64, nil
}

// readState reads a file that is not newer than the log; ok is false where it is damaged. Other errors are returned.
func (l *Log) readState(s stateFile, end record.Offset) (all []Producer, ok bool, err error) {
	if s.offset > end {
		return nil, false, nil
	}
	all, err = s.read(l.dir.fs, l.path)
	if err == nil {
		return all, true, nil
	}
	if !errors.Is(err, ErrBadFile) && !errors.Is(err, ErrNewerVersion) && !errors.Is(err, fs.ErrNotExist) {
		return nil, false, err // not known is not missing
	}
	l.dir.log.Warn("producer state is not used", "file", s.name(l.path), "err", err)
	if errors.Is(err, ErrBadFile) {
		_ = removeFile(l.dir.fs, s.name(l.path))
	}
	return nil, false, nil
}

package log

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path"

	"github.com/keeplog/keeplog/internal/invariant"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/segment"
)

const createFlags = os.O_RDWR | os.O_CREATE | os.O_TRUNC

// recovery is the opening of the segments of one log.
//
//	segments   ┌────────────┬────────────┬───────────────┬────────────┐
//	           │ sealed     │ sealed     │ of the mark   │ newer      │
//	           └────────────┴────────────┴───────▲───────┴────────────┘
//	           durable: nothing is cut ──────────┘ read from here: the first batch that is not sound ends the log
type recovery struct {
	l      *Log
	names  dirNames
	mark   Mark
	marked bool
	// foreign: there is no mark, and Kafka's checkpoints count.
	foreign bool
	point   record.Offset // Kafka's recovery point, where foreign

	segments    []*segment.Segment
	next        record.Offset
	scannedFrom record.Offset // batches from here on were read; their epochs are in epochs
	epochs      []EpochEntry
	short       bool // durable data is missing
}

// settled says that the last file ends where the mark says that all is durable: there is nothing to recover.
func (r *recovery) settled() bool {
	last := r.names.logs[len(r.names.logs)-1]
	return r.marked && !r.mark.Unplaced && !r.mark.Cutting && r.mark.Segment == last.base && int64(r.mark.Position) == last.size
}

// cleanFits says that the last file is as the mark says it was at the clean stop. A directory without a mark (Kafka's) is
// taken at its word.
func (r *recovery) cleanFits() bool {
	if !r.marked || r.settled() {
		return true
	}
	last := r.names.logs[len(r.names.logs)-1]
	r.l.dir.log.Warn("the log is not as the clean stop left it: recovering", "log", r.l.path,
		"segment", last.base, "size", last.size, "mark", r.mark.Segment, "position", r.mark.Position)
	return false
}

func (r *recovery) openSegments(clean bool) error {
	logs, env, c := r.names.logs, r.l.dir.env, r.l.config.Load()
	if clean {
		last := logs[len(logs)-1]
		for _, f := range logs[:len(logs)-1] {
			r.segments = append(r.segments, segment.Sealed(env, r.l.path, f.base, f.size))
		}
		var known segment.Bound
		if r.marked {
			known = segment.Bound{At: r.mark.Position, End: r.mark.Offset}
		}
		active, next, err := segment.OpenClean(env, r.l.path, last.base, segment.CleanOptions{Options: segmentOptions(c), Known: known})
		if err != nil {
			return err
		}
		if r.marked {
			next = r.mark.Offset // whatever the last batch says
		}
		next = max(next, r.point) // where the last batch is damaged, Kafka's clean stop still tells the end
		r.segments, r.next, r.scannedFrom = append(r.segments, active), next, next
		return nil
	}
	at := r.markedIndex()
	for _, f := range logs[:at] {
		r.segments = append(r.segments, segment.Sealed(env, r.l.path, f.base, f.size))
	}
	return r.recover(at)
}

// markedIndex is the index of the segment from which on is read.
func (r *recovery) markedIndex() int {
	at := 0
	base := r.mark.Segment
	if !r.marked {
		base = r.point
	}
	for i, f := range r.names.logs {
		if f.base <= base {
			at = i
		}
	}
	return at
}

// recover reads the segments from index at on.
func (r *recovery) recover(at int) error {
	logs := r.names.logs
	for i := at; i < len(logs); i++ {
		o := segment.RecoverOptions{Options: segmentOptions(r.l.config.Load()), Next: max(r.next, logs[i].base), Each: r.see}
		if i == at {
			if err := r.first(&o, logs[i]); err != nil {
				return err
			}
		} else if r.hole(logs[i]) {
			return r.dropRest(i)
		}
		seg, got, err := segment.Recover(r.l.dir.env, r.l.path, logs[i].base, o)
		if err != nil {
			return err
		}
		r.report(seg, got)
		r.next = got.Next
		r.short = r.short || (i == at && got.Short)
		if !got.Kept {
			r.mark.OffsetEntries, r.mark.TimeEntries = 0, 0
		}
		r.segments = append(r.segments, seg)
		if i+1 == len(logs) {
			return nil
		}
		if got.Cut > 0 || got.Short || r.hole(logs[i+1]) {
			return r.dropRest(i + 1)
		}
		if err := r.end(seg); err != nil {
			return err
		}
	}
	return nil
}

// end seals a segment that has a successor.
func (r *recovery) end(seg *segment.Segment) error {
	if err := seg.Finish(); err != nil {
		return err
	}
	return seg.Seal()
}

// first fills in what is known of the first segment that is read.
func (r *recovery) first(o *segment.RecoverOptions, f logFile) error {
	r.scannedFrom = f.base
	switch {
	case r.marked && r.mark.Segment == f.base && r.mark.Unplaced:
		return r.from(o, f, r.mark.Offset)
	case r.marked && r.mark.Segment == f.base:
		o.Settled = r.settled()
		o.From, o.Next = r.mark.Position, r.mark.Offset
		o.Offsets, o.Times = int(r.mark.OffsetEntries), int(r.mark.TimeEntries)
		r.scannedFrom = r.mark.Offset
	case r.marked && r.mark.Offset > r.mark.LogStart: // the marked segment is gone
		o.From = math.MaxInt32 + 1
		r.scannedFrom = r.mark.Offset
		r.short = true
	case !r.marked && r.point > f.base:
		return r.from(o, f, r.point)
	}
	return nil
}

// from lets reading begin at an offset up to which all is durable.
func (r *recovery) from(o *segment.RecoverOptions, f logFile, durable record.Offset) error {
	sealed := segment.Sealed(r.l.dir.env, r.l.path, f.base, f.size)
	p, err := sealed.PositionOf(durable)
	end := durable
	if err == nil && r.foreign {
		end, err = sealed.EndBefore(record.Position(f.size))
	}
	for _, d := range sealed.Damages() { // nothing sound follows it: where the durable part of it ends is not known, so none is cut
		if !r.foreign && d.From <= p && p < d.To && d.Next == math.MaxInt64 {
			p = d.To
		}
	}
	<-sealed.Retire()
	if err != nil || end < durable { // a checkpoint older than a truncation says nothing
		return err
	}
	o.From, o.Next = p, durable
	r.scannedFrom = durable
	return nil
}

// see notes the epochs of the batches that are read.
func (r *recovery) see(b record.Batch) {
	e := b.PartitionLeaderEpoch()
	if n := len(r.epochs); e >= 0 && (n == 0 || r.epochs[n-1].Epoch != e) {
		r.epochs = append(r.epochs, EpochEntry{e, b.BaseOffset()})
	}
}

// hole says that a segment does not continue the one before it. A log of ours has none above its mark; Kafka's may.
func (r *recovery) hole(f logFile) bool {
	if invariant.Seeded(invariant.TornTailKept) {
		return false
	}
	return f.base < r.next || (!r.foreign && f.base > max(r.next, r.mark.Offset))
}

// dropRest takes the segments from index i on out of the way: they were never durable. Those with sound batches are kept
// under another name.
func (r *recovery) dropRest(i int) error {
	fsys := r.l.dir.fs
	for k := len(r.names.logs) - 1; k >= i; k-- {
		f := r.names.logs[k]
		name := func(ext string) string { return path.Join(r.l.path, segment.FileName(f.base, ext)) }
		var err error
		if f.size > 0 {
			err = fsys.Rename(name(segment.LogExt), path.Join(r.l.path, segment.TornName(f.base, 0)))
			r.l.dir.log.Warn("a segment behind the end of the log, never acknowledged, is put aside", "log", r.l.path, "segment", f.base, "bytes", f.size)
		} else {
			err = removeFile(fsys, name(segment.LogExt))
		}
		if err != nil {
			return err
		}
		for _, ext := range []string{segment.IndexExt, segment.TimeExt, segment.TxnExt} {
			if err := removeFile(fsys, name(ext)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

func (r *recovery) report(seg *segment.Segment, got segment.Recovered) {
	log := r.l.dir.log.With("log", r.l.path, "segment", seg.Base(), "end", got.Next)
	switch {
	case got.Torn != "":
		log.Warn("the log ends at a tear; what followed was never acknowledged and is copied", "bytes", got.Cut, "copy", got.Torn)
	case got.Cut > 0:
		log.Info("the log ends at a tear; what followed was never acknowledged", "bytes", got.Cut)
	}
}

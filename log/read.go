package log

import (
	"errors"
	"fmt"
	"math"
	"runtime"

	"github.com/keeplog/keeplog/internal/invariant"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/segment"
)

// Span is a range of one segment's log file; see package segment.
type Span = segment.Span

// Read finds the span that begins with the batch that holds Offset, or the first after it, and ends at the bound, at the
// end of its segment, before damage, or at MaxBytes (perhaps inside a batch). Nil where there is nothing below the bound.
// A span that is not nil must be released. Errors: ErrOffsetOutOfRange, ErrCorruptBatch, ErrOffline, ErrClosed. The bytes
// of a range that this process neither wrote nor read before are compared with their checksums first.
func (l *Log) Read(r ReadRequest) (sp *Span, err error) {
	err = l.looking(func(v *view) (err error) {
		sp, err = l.readIn(v, &r)
		return err
	})
	return sp, err
}

func (l *Log) readIn(v *view, r *ReadRequest) (*Span, error) {
	end := l.WrittenEnd()
	if r.Offset < l.StartOffset() || r.Offset > end {
		return nil, fmt.Errorf("%w: %d, the log has %d to %d", ErrOffsetOutOfRange, r.Offset, l.StartOffset(), end)
	}
	bound := min(r.Bound, end)
	if r.Offset >= bound {
		return nil, nil
	}
	if bound == end && invariant.Seeded(invariant.SizeTwice) {
		runtime.Gosched()
		bound = math.MaxInt64
	}
	return l.readView(v, r, bound)
}

// looking looks at the segments, again where one of them went meanwhile. Where the log itself went, closed or moved, that is the error, whatever
// the look has met.
func (l *Log) looking(look func(*view) error) error {
	for {
		if err := l.Err(); err != nil {
			return err
		}
		v := l.view.Load()
		err := look(v)
		if err == nil {
			return nil
		}
		again := l.moved(v, err)
		if own := l.Err(); own != nil {
			return own
		}
		if !again {
			return readError(err)
		}
	}
}

func readError(err error) error {
	if errors.Is(err, segment.ErrDamaged) {
		return fmt.Errorf("%w: %w", ErrCorruptBatch, err)
	}
	return storage(err)
}

func (l *Log) readView(v *view, r *ReadRequest, bound record.Offset) (*Span, error) {
	offset := r.Offset
	if first := v.segments[0].Base(); offset < first {
		return nil, fmt.Errorf("%w: offsets %d to %d are missing", ErrCorruptBatch, offset, first-1)
	}
	for i := v.find(offset); i < len(v.segments); i++ {
		s := v.segments[i]
		if s.Base() >= bound {
			return nil, nil
		}
		end, err := l.boundIn(v, i, bound)
		if err != nil {
			return nil, err
		}
		o := segment.ReadOptions{Offset: offset, End: end, MaxBytes: r.MaxBytes, AtLeastOne: r.AtLeastOne, Abandon: r.Abandon}
		if at, size, ok := l.ends.find(s, offset); ok && size > 0 {
			o.At, o.Size = at, size
		}
		sp, err := s.Read(o)
		if errors.Is(err, segment.ErrNone) { // a gap up to the end of the segment
			if i+1 < len(v.segments) {
				offset = v.segments[i+1].Base()
			}
			continue
		}
		if err != nil || sp.Len() > 0 {
			return sp, err
		}
		sp.Release()
		return nil, nil
	}
	return nil, nil
}

// boundIn is the position in segment i below which all batches are below bound.
func (l *Log) boundIn(v *view, i int, bound record.Offset) (record.Position, error) {
	s := v.segments[i]
	if i+1 < len(v.segments) && bound >= v.segments[i+1].Base() {
		return record.Position(s.Size()), nil
	}
	if at, _, ok := l.ends.find(s, bound); ok {
		return at, nil
	}
	return s.PositionOf(bound)
}

// Available is how many bytes lie between from and bound, about, and whether they are in one segment. It reads nothing.
func (l *Log) Available(from, bound record.Offset) (bytes int64, sameSegment bool) {
	v := l.view.Load()
	if bound = min(bound, l.WrittenEnd()); from >= bound {
		return 0, true
	}
	first, last := v.find(from), v.find(bound-1)
	for i := first; i <= last; i++ {
		s := v.segments[i]
		begin, end := int64(0), s.Size()
		if i == first {
			begin = l.about(s, from)
		}
		if i == last && (i+1 == len(v.segments) || bound < v.segments[i+1].Base()) {
			end = l.about(s, bound)
		}
		bytes += max(end-begin, 0)
	}
	return max(bytes, 1), first == last
}

// about is the position of an offset: exact for the last batches, else that of the index.
func (l *Log) about(s *segment.Segment, o record.Offset) int64 {
	if at, _, ok := l.ends.find(s, o); ok {
		return int64(at)
	}
	return int64(s.About(o))
}

// moved says that a look at a view met a segment that is gone, and that there is another view now, or soon: a truncation under
// way is waited for.
func (l *Log) moved(v *view, err error) bool {
	if !errors.Is(err, segment.ErrGone) {
		return false
	}
	if l.view.Load() != v {
		return true
	}
	if v.changing == nil {
		return false
	}
	<-v.changing
	return true
}

// OffsetForTime finds the first record with a timestamp of at least ts (ms), from the log start on and below bound.
func (l *Log) OffsetForTime(ts int64, bound record.Offset) (TimeOffset, bool, error) {
	return l.lookUp(func(v *view) (TimeOffset, bool, error) { return l.offsetForTime(v, ts, bound) })
}

func (l *Log) lookUp(in func(*view) (TimeOffset, bool, error)) (found TimeOffset, ok bool, err error) {
	err = l.looking(func(v *view) (err error) {
		found, ok, err = in(v)
		return err
	})
	return found, ok, err
}

func (l *Log) offsetForTime(v *view, ts int64, bound record.Offset) (TimeOffset, bool, error) {
	start := l.StartOffset()
	for i := v.find(start); i < len(v.segments); i++ {
		s := v.segments[i]
		if s.Base() >= bound {
			break
		}
		newest, err := s.NewestTimestamp()
		if err == nil && newest < ts {
			continue
		}
		var found TimeOffset
		ok := false
		if err == nil {
			found, ok, err = l.timeIn(s, ts, start)
		}
		if err != nil {
			return TimeOffset{}, false, err
		}
		if ok {
			if found.Offset >= bound {
				break
			}
			found.Epoch = l.EpochAt(found.Offset)
			return found, true, nil
		}
	}
	return TimeOffset{}, false, nil
}

// timeIn finds the first record of a segment with a timestamp of at least ts, from an offset on.
func (l *Log) timeIn(s *segment.Segment, ts int64, from record.Offset) (found TimeOffset, ok bool, err error) {
	var failed error
	err = s.FindTime(ts, from, record.Position(s.Size()), func(b segment.Batch) bool {
		found, ok, failed = l.timeInBatch(s, b, ts, from)
		return failed == nil && !ok
	})
	return found, ok, errors.Join(err, failed)
}

func (l *Log) timeInBatch(s *segment.Segment, b segment.Batch, ts int64, from record.Offset) (TimeOffset, bool, error) {
	if b.TimestampType() == record.LogAppendTime {
		return TimeOffset{Offset: max(b.BaseOffset(), from), Timestamp: b.MaxTimestamp()}, true, nil
	}
	batch, err := s.ReadBatch(b, nil)
	if errors.Is(err, segment.ErrDamaged) {
		return TimeOffset{}, false, nil // look behind it
	}
	if err != nil {
		return TimeOffset{}, false, err
	}
	records, err := l.dir.o.Codecs.Unpack(batch, nil, unpackLimit(l.config.Load()))
	if err != nil {
		return TimeOffset{}, false, err
	}
	it := record.Iterate(batch, records)
	for it.Next() {
		if r := it.Record(); r.Timestamp >= ts && r.Offset >= from {
			return TimeOffset{Offset: r.Offset, Timestamp: r.Timestamp}, true, nil
		}
	}
	return TimeOffset{}, false, it.Err()
}

// MaxTimestamp finds the first record with the largest timestamp, from the log start on and below bound.
func (l *Log) MaxTimestamp(bound record.Offset) (TimeOffset, bool, error) {
	return l.lookUp(func(v *view) (TimeOffset, bool, error) { return l.maxTimestamp(v, bound) })
}

func (l *Log) maxTimestamp(v *view, bound record.Offset) (TimeOffset, bool, error) {
	start := l.StartOffset()
	best, largest := -1, int64(record.NoTimestamp)
	for i := v.find(start); i < len(v.segments) && v.segments[i].Base() < bound; i++ {
		newest, err := v.segments[i].NewestTimestamp()
		if err != nil {
			return TimeOffset{}, false, err
		}
		if newest > largest {
			best, largest = i, newest
		}
	}
	if best < 0 {
		return TimeOffset{}, false, nil
	}
	found, ok, err := l.timeIn(v.segments[best], largest, start)
	if err != nil || !ok || found.Offset >= bound {
		if err == nil && largest > 0 { // it lies at or above the bound, or below the log start: look at all batches
			return l.scanMaxTimestamp(v, start, bound)
		}
		return TimeOffset{}, false, err
	}
	found.Epoch = l.EpochAt(found.Offset)
	return found, true, nil
}

// scanMaxTimestamp walks the headers of [start, bound).
func (l *Log) scanMaxTimestamp(v *view, start, bound record.Offset) (TimeOffset, bool, error) {
	var from *segment.Segment
	var at segment.Batch
	header := make([]byte, record.HeaderSize)
	largest := int64(record.NoTimestamp)
	for i := v.find(start); i < len(v.segments) && v.segments[i].Base() < bound; i++ {
		s := v.segments[i]
		err := s.Walk(start, record.Position(s.Size()), false, func(b segment.Batch) bool {
			if b.LastOffset() < bound && b.MaxTimestamp() > largest {
				from, largest, at = s, b.MaxTimestamp(), segment.Batch{Batch: header, At: b.At}
				copy(header, b.Batch)
			}
			return b.LastOffset() < bound
		})
		if err != nil {
			return TimeOffset{}, false, err
		}
	}
	if from == nil {
		return TimeOffset{}, false, nil
	}
	found, ok, err := l.timeInBatch(from, at, largest, start)
	if ok {
		found.Epoch = l.EpochAt(found.Offset)
	}
	return found, ok, err
}

// unpackLimit bounds a batch once unpacked.
func unpackLimit(c *Config) int {
	if c.MaxDecompressedBytes > 0 {
		return c.MaxDecompressedBytes
	}
	return 128 << 20
}

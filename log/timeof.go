package log

import (
	"errors"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/segment"
)

// sameTime is how far apart in time, in ms, the records of a batch may be that count as of one time: they are not read for less.
const sameTime = 200

// TimeOf is the time of the first record at or behind an offset, from the log start on and below bound; ok is false where there is none. In a
// batch whose records are of about one time it is between the first and the last by the place of the record.
func (l *Log) TimeOf(o, bound record.Offset) (TimeOffset, bool, error) {
	return l.lookUp(func(v *view) (TimeOffset, bool, error) { return l.timeOf(v, max(o, l.StartOffset()), bound) })
}

func (l *Log) timeOf(v *view, o, bound record.Offset) (found TimeOffset, ok bool, err error) {
	for i := v.find(o); i < len(v.segments) && !ok && err == nil && v.segments[i].Base() < bound; i++ {
		s := v.segments[i]
		var failed error
		err = s.Walk(max(o, s.Base()), record.Position(s.Size()), false, func(b segment.Batch) bool {
			if b.BaseOffset() >= bound {
				return false
			}
			if b.Control() {
				return true
			}
			found, ok, failed = l.timeOfBatch(s, b, o)
			return failed == nil && !ok
		})
		err = errors.Join(err, failed)
	}
	return found, ok && found.Offset < bound, err
}

func (l *Log) timeOfBatch(s *segment.Segment, b segment.Batch, o record.Offset) (TimeOffset, bool, error) {
	at := max(o, b.BaseOffset())
	first, last := b.BaseTimestamp(), b.MaxTimestamp()
	switch {
	case b.TimestampType() == record.LogAppendTime:
		return TimeOffset{Offset: at, Timestamp: last, Epoch: b.PartitionLeaderEpoch()}, true, nil
	case at == b.BaseOffset() && first <= last:
		return TimeOffset{Offset: at, Timestamp: first, Epoch: b.PartitionLeaderEpoch()}, true, nil
	case first <= last && last-first <= sameTime:
		between := (last - first) * int64(at-b.BaseOffset()) / int64(max(1, b.LastOffset()-b.BaseOffset()))
		return TimeOffset{Offset: at, Timestamp: first + between, Epoch: b.PartitionLeaderEpoch()}, true, nil
	}
	return l.timeInBatch(s, b, noTime, o)
}

// noTime is before every time.
const noTime = -1 << 63

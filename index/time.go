package index

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/keeplog/keeplog/record"
)

// TimeEntryBytes is the width of an entry of a time index.
const TimeEntryBytes = 12

// TimeEntry says that Timestamp (ms) is the largest of the segment up to Offset, the last offset of the batch that has it.
type TimeEntry struct {
	Timestamp int64
	Offset    record.Offset
}

// TimeIndex finds an offset from which to walk to a time.
type TimeIndex struct{ table }

// CreateTimeIndex makes an empty index, replacing a file of that name.
func CreateTimeIndex(o Options) (*TimeIndex, error) {
	x := NewTimeIndex(o)
	return x, x.create()
}

// NewTimeIndex is an index in memory for a file that is known to be empty, or is opened later with Open.
func NewTimeIndex(o Options) *TimeIndex {
	x := new(TimeIndex)
	x.init(o, TimeEntryBytes)
	return x
}

// Open believes the first entries of an existing file (negative: as many as its length says) and cuts the rest off.
func (x *TimeIndex) Open(entries int) error { return x.open(entries) }

// Full says that the segment must roll: only the slot of the final entry is left.
func (x *TimeIndex) Full() bool { return x.full(1) }

// Append adds an entry if its timestamp is above the last one's. final uses the slot that is kept for the end of the
// segment; without it a full index answers ErrFull.
func (x *TimeIndex) Append(ts int64, last record.Offset, final bool) error {
	if prev, ok := x.Last(); ok && ts <= prev.Timestamp {
		return nil
	}
	relative := int64(last - x.opts.Base)
	if relative < 0 || relative > math.MaxInt32 {
		panic(fmt.Sprintf("index: offset %d does not fit %s", last, x.opts.Name))
	}
	if !final && x.Full() {
		return fmt.Errorf("%w: %s", ErrFull, x.opts.Name)
	}
	b, err := x.room()
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint64(b, uint64(ts))
	binary.BigEndian.PutUint32(b[8:], uint32(relative))
	x.count.Add(1)
	return nil
}

// Lookup returns the last entry whose timestamp is at most ts; (−1, base) where there is none. It allocates nothing.
func (x *TimeIndex) Lookup(ts int64) TimeEntry {
	e := TimeEntry{Timestamp: record.NoTimestamp, Offset: x.opts.Base}
	m, b := x.enter()
	if m == nil {
		return e
	}
	low, high := 0, len(b)/TimeEntryBytes
	if warm := high - 1 - warmBytes/TimeEntryBytes; warm > 0 {
		if int64(binary.BigEndian.Uint64(b[warm*TimeEntryBytes:])) <= ts {
			low = warm
		} else {
			high = warm
		}
	}
	for low < high {
		middle := int(uint(low+high) >> 1)
		if int64(binary.BigEndian.Uint64(b[middle*TimeEntryBytes:])) <= ts {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low > 0 {
		e = x.decode(b, low-1)
	}
	_ = m.Release()
	return e
}

// Entry returns entry i; ok is false outside of the entries.
func (x *TimeIndex) Entry(i int) (e TimeEntry, ok bool) {
	m, b := x.enter()
	if m == nil {
		return TimeEntry{}, false
	}
	if i >= 0 && (i+1)*TimeEntryBytes <= len(b) {
		e, ok = x.decode(b, i), true
	}
	_ = m.Release()
	return e, ok
}

// Last returns the last entry.
func (x *TimeIndex) Last() (TimeEntry, bool) { return x.Entry(x.Len() - 1) }

// CountTo is the number of entries for offsets below end.
func (x *TimeIndex) CountTo(end record.Offset) int {
	m, b := x.enter()
	if m == nil {
		return 0
	}
	defer func() { _ = m.Release() }()
	n := len(b) / TimeEntryBytes
	for n > 0 && x.decode(b, n-1).Offset >= end {
		n--
	}
	return n
}

// Check tests that timestamps and offsets grow. It cannot tell whether the log agrees; that is for who has it.
func (x *TimeIndex) Check() error {
	m, b := x.enter()
	if m == nil {
		return nil
	}
	defer func() { _ = m.Release() }()
	last, lastOffset := int64(math.MinInt64), int64(-1)
	for i := 0; i < len(b); i += TimeEntryBytes {
		ts, offset := int64(binary.BigEndian.Uint64(b[i:])), int64(int32(binary.BigEndian.Uint32(b[i+8:])))
		if ts <= last || offset < 0 || offset < lastOffset {
			return fmt.Errorf("%w: %s, entry %d: timestamp %d, offset %d", ErrCorrupt, x.opts.Name, i/TimeEntryBytes, ts, offset)
		}
		last, lastOffset = ts, offset
	}
	return nil
}

func (x *TimeIndex) decode(b []byte, i int) TimeEntry {
	b = b[i*TimeEntryBytes:]
	return TimeEntry{Timestamp: int64(binary.BigEndian.Uint64(b)), Offset: x.opts.Base + record.Offset(binary.BigEndian.Uint32(b[8:]))}
}

package index

import (
	"encoding/binary"
	"fmt"
	"math"
	"sort"

	"github.com/keeplog/keeplog/record"
)

// OffsetEntryBytes is the width of an entry of an offset index.
const OffsetEntryBytes = 8

// OffsetEntry says that the batch whose last offset is Offset begins at Position.
type OffsetEntry struct {
	Offset   record.Offset
	Position record.Position
}

// OffsetIndex finds a position from which to walk to an offset.
type OffsetIndex struct{ table }

// CreateOffsetIndex makes an empty index, replacing a file of that name.
func CreateOffsetIndex(o Options) (*OffsetIndex, error) {
	x := NewOffsetIndex(o)
	return x, x.create()
}

// NewOffsetIndex is an index in memory for a file that is known to be empty, or is opened later with Open.
func NewOffsetIndex(o Options) *OffsetIndex {
	x := new(OffsetIndex)
	x.init(o, OffsetEntryBytes)
	return x
}

// Open believes the first entries of an existing file (negative: as many as its length says) and cuts the rest off.
func (x *OffsetIndex) Open(entries int) error { return x.open(entries) }

// Full says that the segment must roll.
func (x *OffsetIndex) Full() bool { return x.full(0) }

// Append adds an entry. Offsets and positions must grow and fit 31 bits; anything else is a bug of the caller and panics.
func (x *OffsetIndex) Append(last record.Offset, at record.Position) error {
	relative := int64(last - x.opts.Base)
	if relative < 0 || relative > math.MaxInt32 || at < 0 || at > math.MaxInt32 {
		panic(fmt.Sprintf("index: entry (%d, %d) does not fit %s", last, at, x.opts.Name))
	}
	b, err := x.room()
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint32(b, uint32(relative))
	binary.BigEndian.PutUint32(b[4:], uint32(at))
	x.count.Add(1)
	return nil
}

// Lookup returns the last entry whose offset is at most target; (base, 0) where there is none. It allocates nothing.
func (x *OffsetIndex) Lookup(target record.Offset) OffsetEntry {
	m, b := x.enter()
	if m == nil || target < x.opts.Base {
		if m != nil {
			_ = m.Release()
		}
		return OffsetEntry{Offset: x.opts.Base}
	}
	relative := uint32(min(int64(target-x.opts.Base), math.MaxInt32))
	e := OffsetEntry{Offset: x.opts.Base}
	if i := searchUint32(b, relative, OffsetEntryBytes, 0); i >= 0 {
		e = x.decode(b, i)
	}
	_ = m.Release()
	return e
}

// LookupPosition returns the last entry whose position is at most at; (base, 0) where there is none.
func (x *OffsetIndex) LookupPosition(at record.Position) OffsetEntry {
	m, b := x.enter()
	if m == nil {
		return OffsetEntry{Offset: x.opts.Base}
	}
	e := OffsetEntry{Offset: x.opts.Base}
	if i := searchUint32(b, uint32(min(int64(at), math.MaxInt32)), OffsetEntryBytes, 4); i >= 0 {
		e = x.decode(b, i)
	}
	_ = m.Release()
	return e
}

// Entry returns entry i; ok is false outside of the entries.
func (x *OffsetIndex) Entry(i int) (e OffsetEntry, ok bool) {
	m, b := x.enter()
	if m == nil {
		return OffsetEntry{}, false
	}
	if i >= 0 && (i+1)*OffsetEntryBytes <= len(b) {
		e, ok = x.decode(b, i), true
	}
	_ = m.Release()
	return e, ok
}

// Last returns the last entry.
func (x *OffsetIndex) Last() (OffsetEntry, bool) { return x.Entry(x.Len() - 1) }

// CountTo is the number of entries whose batch begins below the position end.
func (x *OffsetIndex) CountTo(end record.Position) int {
	m, b := x.enter()
	if m == nil {
		return 0
	}
	defer func() { _ = m.Release() }()
	return sort.Search(len(b)/OffsetEntryBytes, func(i int) bool { return x.decode(b, i).Position >= end })
}

// Check tests that offsets and positions grow, and that all positions are below size, the length of the log file. It
// cannot tell whether batches begin there; that is for who has the log.
func (x *OffsetIndex) Check(size record.Position) error {
	m, b := x.enter()
	if m == nil {
		return nil
	}
	defer func() { _ = m.Release() }()
	lastOffset, lastPosition := int64(-1), int64(0)
	for i := 0; i < len(b); i += OffsetEntryBytes {
		offset, at := int64(int32(binary.BigEndian.Uint32(b[i:]))), int64(int32(binary.BigEndian.Uint32(b[i+4:])))
		if offset <= lastOffset || at <= lastPosition || at >= int64(size) {
			return fmt.Errorf("%w: %s, entry %d: offset %d, position %d", ErrCorrupt, x.opts.Name, i/OffsetEntryBytes, offset, at)
		}
		lastOffset, lastPosition = offset, at
	}
	return nil
}

func (x *OffsetIndex) decode(b []byte, i int) OffsetEntry {
	return OffsetEntry{
		Offset:   x.opts.Base + record.Offset(binary.BigEndian.Uint32(b[i*OffsetEntryBytes:])),
		Position: record.Position(binary.BigEndian.Uint32(b[i*OffsetEntryBytes+4:])),
	}
}

// nearEntries are at the very end, where consumers that keep up read.
const nearEntries = 64

// searchUint32 returns the last entry whose key, the u32 at a place in the entry, is at most target, or −1. The warm end
// of the index is tried before the rest.
func searchUint32(b []byte, target uint32, width, place int) int {
	low, high := 0, len(b)/width-1
	if warm := high - warmBytes/width; warm > 0 {
		if binary.BigEndian.Uint32(b[warm*width+place:]) <= target {
			low = warm
			if near := high - nearEntries; binary.BigEndian.Uint32(b[near*width+place:]) <= target {
				low = near
			}
		} else {
			high = warm
		}
	}
	if high < 0 || binary.BigEndian.Uint32(b[low*width+place:]) > target {
		return -1
	}
	for low < high {
		middle := int(uint(low+high+1) >> 1)
		if binary.BigEndian.Uint32(b[middle*width+place:]) <= target {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low
}

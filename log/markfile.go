package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
)

// keeplog-marks is a row of slots. A slot has two halves, each a mark or zeros: the mark with the larger counter counts, and
// the next one is written over the other half. A write that is torn, by a power failure, an I/O error or a full disk, leaves
// the mark before it. Slot 0 has two heads in the same way.
//
//	          ┌───────────────────┬───────────────────┐
//	slot 0    │ head              │ head              │
//	          ├───────────────────┼───────────────────┤
//	slot n    │ mark              │ mark              │  of one partition, or free: zeros, or a mark whose flag says so
//	          └───────────────────┴───────────────────┘
//	          0                   128                 256
//
//	          ┌──────────────┬─────────────┬───────┬─────────┬───────┬─────────┐
//	head      │ "keeplogM"   │ version = 2 │ flags │ counter │ zeros │ CRC-32C │
//	          │ 8            │ u32         │ u32   │ u64     │ 100   │ u32     │
//	          └──────────────┴─────────────┴───────┴─────────┴───────┴─────────┘
//
// In version 1 a slot was one mark, and slot 0 one head without flags and counter, or zeros while not every partition had a
// slot. Such a file is read, and replaced as a whole when it is opened to be written.
const (
	marksMagic   = "keeplogM"
	marksVersion = 2
	headComplete = 1 << 0
)

// MarksHead is what slot 0 says.
type MarksHead struct {
	// Version is 1 or 2; 0 where no head checks.
	Version uint32
	// Complete says that every partition that was there has a slot.
	Complete bool
	// Torn says that one of two heads does not check, Lost that there is none and something else in its place.
	Torn, Lost bool
	counter    uint64
	half       int64
}

func (h *MarksHead) encode() (b [MarkBytes]byte) {
	be := binary.BigEndian
	copy(b[:], marksMagic)
	be.PutUint32(b[8:], h.Version)
	if h.Version > 1 {
		be.PutUint32(b[12:], bit(h.Complete, headComplete))
		be.PutUint64(b[16:], h.counter)
	}
	be.PutUint32(b[124:], crc32.Checksum(b[:124], castagnoli))
	return b
}

// decodeHead reads one head. Errors: ErrBadFile, ErrNewerVersion.
func decodeHead(b []byte) (h MarksHead, err error) {
	be := binary.BigEndian
	if len(b) < MarkBytes || string(b[:8]) != marksMagic || be.Uint32(b[124:]) != crc32.Checksum(b[:124], castagnoli) {
		return h, fmt.Errorf("%w: %s does not begin as such", ErrBadFile, MarksFile)
	}
	h.Version = be.Uint32(b[8:])
	switch {
	case h.Version > marksVersion:
		return h, fmt.Errorf("%w: %s has version %d, this program knows %d", ErrNewerVersion, MarksFile, h.Version, marksVersion)
	case h.Version <= 1:
		h.Version, h.Complete = 1, true
	default:
		h.Complete, h.counter = be.Uint32(b[12:])&headComplete != 0, be.Uint64(b[16:])
	}
	return h, nil
}

// decodeHeads reads slot 0. The only error is ErrNewerVersion.
func decodeHeads(b []byte) (newest MarksHead, err error) {
	other := b[min(len(b), MarkBytes):]
	first, err := decodeHead(b)
	if errors.Is(err, ErrNewerVersion) || err == nil && first.Version == 1 {
		return first, err
	}
	second, err2 := decodeHead(other)
	switch {
	case errors.Is(err2, ErrNewerVersion):
		return second, err2
	case err == nil && (err2 != nil || first.counter > second.counter):
		first.Torn = err2 != nil && len(other) >= MarkBytes && !zeros(other[:MarkBytes])
		return first, nil
	case err2 == nil && second.Version > 1:
		second.half = 1
		second.Torn = err != nil && !zeros(b[:MarkBytes])
		return second, nil
	}
	return MarksHead{Lost: !zeros(b[:min(len(b), MarkBytes)])}, nil
}

// MarksSlot is one slot.
type MarksSlot struct {
	// At is where it begins in the file, and Half which of its halves holds Mark.
	At, Half int64
	// Mark is the one that counts. Used says that the slot is its partition's; else it is free, and Mark is the zero mark or
	// that of the partition that was here.
	Mark Mark
	Used bool
	// Bad is the error of the last half that does not check, nil for none. Lost says that it may have been the only mark of a
	// partition.
	Bad  error
	Lost bool
}

// MarkAt is where the mark that counts is in the file.
func (s *MarksSlot) MarkAt() int64 { return s.At + s.Half*MarkBytes }

// Marks are what keeplog-marks says.
type Marks struct {
	Head  MarksHead
	Slots []MarksSlot
	// Rest is how many bytes at the end are no whole slot.
	Rest int
}

// DecodeMarks reads keeplog-marks. What does not check is told in the result; the only error is ErrNewerVersion.
func DecodeMarks(b []byte) (*Marks, error) {
	head, err := decodeHeads(b)
	if err != nil {
		return nil, err
	}
	m := &Marks{Head: head}
	size := m.SlotBytes()
	for at := size; at < len(b); at += size {
		if at+size > len(b) {
			m.Rest = len(b) - at
			break
		}
		m.Slots = append(m.Slots, decodeSlot(int64(at), b[at:at+size]))
	}
	if len(b) < size {
		m.Rest = len(b)
	}
	return m, nil
}

// SlotBytes is the size of a slot. Without a head every mark is a slot of its own: it checks by itself, whichever version it
// is of.
func (m *Marks) SlotBytes() int {
	if m.Head.Version < 2 {
		return MarkBytes
	}
	return 2 * MarkBytes
}

func decodeSlot(at int64, b []byte) MarksSlot {
	s := MarksSlot{At: at}
	bad, found := 0, false
	for half := 0; half*MarkBytes < len(b); half++ {
		if mark, used, err := DecodeMark(b[half*MarkBytes:]); err != nil {
			s.Bad = err
			bad++
		} else if !found || mark.Counter > s.Mark.Counter {
			found = true
			s.Mark, s.Used, s.Half = mark, used, int64(half)
		}
	}
	s.Lost = bad*MarkBytes == len(b) // where the other half is zeros, it is the first write that was torn
	return s
}

// Complete says that a partition without a slot is new.
func (m *Marks) Complete() bool {
	lost := slices.ContainsFunc(m.Slots, func(s MarksSlot) bool { return s.Lost })
	return m.Head.Complete && m.Rest == 0 && !lost
}

// Live are the slots of partitions. Where two are of one, the newer counts.
func (m *Marks) Live() []*MarksSlot {
	newest := map[markKey]*MarksSlot{}
	var order []markKey
	for i := range m.Slots {
		s := &m.Slots[i]
		key := markKey{s.Mark.TopicID, s.Mark.Partition}
		old := newest[key]
		if old == nil {
			order = append(order, key)
		}
		if old == nil || old.Mark.Counter < s.Mark.Counter {
			newest[key] = s
		}
	}
	var live []*MarksSlot
	for _, key := range order {
		if newest[key].Used {
			live = append(live, newest[key])
		}
	}
	return live
}

// again is a file of the present version with the same marks, each in both halves of its slot.
func (m *Marks) again() []byte {
	live := m.Live()
	counter := m.Head.counter
	for i := range m.Slots {
		counter = max(counter, m.Slots[i].Mark.Counter)
	}
	size := (1 + len(live)) * 2 * MarkBytes
	b := make([]byte, 0, (size+marksGrow-1)/marksGrow*marksGrow)
	for range 2 {
		counter++
		h := MarksHead{Version: marksVersion, Complete: m.Complete(), counter: counter}
		head := h.encode()
		b = append(b, head[:]...)
	}
	for _, s := range live {
		for range 2 {
			counter++
			mark := s.Mark
			mark.Counter = counter
			half := mark.Encode()
			b = append(b, half[:]...)
		}
	}
	return b[:cap(b)]
}

func zeros(b []byte) bool {
	return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 })
}

package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// MarksFile is the name of the marks in a data directory.
const MarksFile = "keeplog-marks"

// MarkBytes is the size of a slot.
const MarkBytes = 128

// Mark is what the disk surely has of a log. It only ever lags.
//
//	keeplog-marks: slot 0 names the format, each other slot is one partition or free (zeros). Big-endian.
//
//	slot 0   ┌──────────────┬───────────┬─────────┬─────────┐
//	         │ "keeplogM"   │ version 1 │ zeros   │ CRC-32C │ the CRC covers the 124 bytes before it
//	         │ 8            │ u32       │ 112     │ u32     │
//	         └──────────────┴───────────┴─────────┴─────────┘
//	slot n   ┌──────────┬───────────┬───────┬─────────┬──────────┬────────┬───────────┬───────────┬─────────┬───────┬────────┬─────────────┬───────┬─────────┐
//	         │ topic id │ partition │ epoch │ segment │ position │ offset │ log start │ entries   │ counter │ flags │ epochs │ lost        │ zeros │ CRC-32C │
//	         │ 16       │ i32       │ i32   │ i64     │ i64      │ i64    │ i64       │ i32   i32 │ u64     │ u32   │ u32    │ i64 i64 i64 │ 20    │ u32     │
//	         └──────────┴───────────┴───────┴─────────┴──────────┴────────┴───────────┴───────────┴─────────┴───────┴────────┴─────────────┴───────┴─────────┘
//	         0          16          20      24        32         40       48          56          64        72      76       80            104     124
type Mark struct {
	TopicID   [16]byte
	Partition int32
	// Epoch is the leader epoch of the last durable batch, −1 for none.
	Epoch record.Epoch
	// Segment and Position: all bytes below are durable. Offset is the offset there.
	Segment  record.Offset
	Position record.Position
	Offset   record.Offset
	// LogStart is the log start offset.
	LogStart record.Offset
	// OffsetEntries and TimeEntries of the segment's indexes are durable.
	OffsetEntries, TimeEntries int32
	// Counter grows with every write to the file: the newer of two slots of a partition counts.
	Counter uint64
	// NoProducers says that no idempotent producer is known up to Offset.
	NoProducers bool
	// Unplaced says that Position is not known: it is where the batch at Offset begins, or the end.
	Unplaced bool
	// Cutting says that a truncation to here was about to happen: the file may be longer on the disk.
	Cutting bool
	// Gaps says that offsets may be missing between a segment's last batch and the next segment: the log was adopted from
	// Kafka, or went on behind lost data. Otherwise segments follow each other without a gap.
	Gaps bool
	// EpochsCRC is the CRC-32C of leader-epoch-checkpoint as it was written last, 0 for not known.
	EpochsCRC uint32
	// Lost are offsets whose records the disk has lost, and behind which the log went on.
	Lost Lost
}

const (
	marksMagic   = "keeplogM"
	marksVersion = 1
	flagUsed     = 1 << 0
	flagNoProds  = 1 << 1
	flagUnplaced = 1 << 2
	flagGaps     = 1 << 3
	flagCutting  = 1 << 4
)

// castagnoli is the CRC of all our formats.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode writes a slot.
func (m *Mark) Encode() (b [MarkBytes]byte) {
	copy(b[:], m.TopicID[:])
	be := binary.BigEndian
	be.PutUint32(b[16:], uint32(m.Partition))
	be.PutUint32(b[20:], uint32(m.Epoch))
	be.PutUint64(b[24:], uint64(m.Segment))
	be.PutUint64(b[32:], uint64(m.Position))
	be.PutUint64(b[40:], uint64(m.Offset))
	be.PutUint64(b[48:], uint64(m.LogStart))
	be.PutUint32(b[56:], uint32(m.OffsetEntries))
	be.PutUint32(b[60:], uint32(m.TimeEntries))
	be.PutUint64(b[64:], m.Counter)
	be.PutUint32(b[72:], flagUsed|bit(m.NoProducers, flagNoProds)|bit(m.Unplaced, flagUnplaced)|bit(m.Gaps, flagGaps)|bit(m.Cutting, flagCutting))
	be.PutUint32(b[76:], m.EpochsCRC)
	be.PutUint64(b[80:], uint64(m.Lost.From))
	be.PutUint64(b[88:], uint64(m.Lost.To))
	be.PutUint64(b[96:], uint64(m.Lost.Count))
	be.PutUint32(b[124:], crc32.Checksum(b[:124], castagnoli))
	return b
}

func bit(set bool, flag uint32) uint32 {
	if set {
		return flag
	}
	return 0
}

// DecodeMark reads a slot. ok is false for a free one; ErrBadFile for one whose CRC does not match.
func DecodeMark(b []byte) (m Mark, ok bool, err error) {
	if len(b) < MarkBytes {
		return m, false, fmt.Errorf("%w: slot of %d bytes", ErrBadFile, len(b))
	}
	if [MarkBytes]byte(b[:MarkBytes]) == [MarkBytes]byte{} {
		return m, false, nil
	}
	be := binary.BigEndian
	if got := be.Uint32(b[124:]); got != crc32.Checksum(b[:124], castagnoli) {
		return m, false, fmt.Errorf("%w: slot CRC is %08x", ErrBadFile, got)
	}
	copy(m.TopicID[:], b)
	m.Partition, m.Epoch = int32(be.Uint32(b[16:])), record.Epoch(be.Uint32(b[20:]))
	m.Segment, m.Position = record.Offset(be.Uint64(b[24:])), record.Position(be.Uint64(b[32:]))
	m.Offset, m.LogStart = record.Offset(be.Uint64(b[40:])), record.Offset(be.Uint64(b[48:]))
	m.OffsetEntries, m.TimeEntries = int32(be.Uint32(b[56:])), int32(be.Uint32(b[60:]))
	m.Counter = be.Uint64(b[64:])
	flags := be.Uint32(b[72:])
	m.NoProducers, m.Unplaced = flags&flagNoProds != 0, flags&flagUnplaced != 0
	m.Gaps, m.Cutting = flags&flagGaps != 0, flags&flagCutting != 0
	m.EpochsCRC = be.Uint32(b[76:])
	m.Lost = Lost{record.Offset(be.Uint64(b[80:])), record.Offset(be.Uint64(b[88:])), int64(be.Uint64(b[96:]))}
	return m, flags&flagUsed != 0, nil
}

// CheckMarksHeader tests slot 0. Errors: ErrBadFile, ErrNewerVersion.
func CheckMarksHeader(b []byte) error {
	if len(b) < MarkBytes || string(b[:8]) != marksMagic || binary.BigEndian.Uint32(b[124:]) != crc32.Checksum(b[:124], castagnoli) {
		return fmt.Errorf("%w: %s does not begin as such", ErrBadFile, MarksFile)
	}
	if v := binary.BigEndian.Uint32(b[8:]); v > marksVersion {
		return fmt.Errorf("%w: %s has version %d, this program knows %d", ErrNewerVersion, MarksFile, v, marksVersion)
	}
	return nil
}

type markKey struct {
	topic     [16]byte
	partition int32
}

// marks is the file, open.
type marks struct {
	file vfs.File
	// partial says that a partition without a slot may be older than the file, or have lost its slot: then Kafka's
	// checkpoints tell its start and recovery point. Otherwise they are of a deleted partition of the same name.
	partial bool
	// headless says that slot 0 is not written: it comes once every partition that was there has a mark, so that a crash
	// in between leaves a file that is still partial.
	headless atomic.Bool

	mu      sync.Mutex
	loaded  map[markKey]Mark // as found at the opening, until taken
	slots   map[markKey]int64
	free    []int64
	end     int64 // first slot beyond the file
	counter uint64

	syncing sync.Mutex
	writes  uint64 // under mu
	synced  uint64 // under mu: writes that are durable
}

// openMarks opens or makes the file and reads all slots. Slots that do not check are counted and become free.
func openMarks(fsys vfs.FS, name string) (m *marks, bad int, err error) {
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, 0, err
	}
	m = &marks{file: f, loaded: map[markKey]Mark{}, slots: map[markKey]int64{}, end: 1}
	// a killed process may have left in the page cache what the disk does not have, and after a failed flush never will
	if err = f.SyncData(); err == nil {
		_ = f.DropCache()
		bad, err = m.load()
	}
	if err == nil && m.headless.Load() {
		err = f.SyncData()
	}
	if err != nil {
		_ = f.Close()
		return nil, bad, err
	}
	return m, bad, nil
}

func (m *marks) load() (bad int, err error) {
	size, err := m.file.Size()
	if err != nil {
		return 0, err
	}
	if size > maxSmallFile {
		return 0, fmt.Errorf("%w: %s has %d bytes", ErrBadFile, MarksFile, size)
	}
	b := make([]byte, size)
	if n, err := m.file.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	} else if n < len(b) {
		b = b[:n]
	}
	if err := CheckMarksHeader(b); errors.Is(err, ErrNewerVersion) {
		return 0, err
	} else if err != nil { // new, torn or rotten: the slots have their own checksums
		m.partial = true
		m.headless.Store(true)
		if len(b) >= MarkBytes && [MarkBytes]byte(b[:MarkBytes]) != [MarkBytes]byte{} {
			bad++
		}
	}
	m.partial = m.partial || size%MarkBytes != 0
	defer func() { // a slot that is lost may be taken by another partition before its own has a mark again
		if err == nil && m.partial && !m.headless.Load() {
			m.headless.Store(true)
			_, err = m.file.WriteAt(make([]byte, MarkBytes), 0)
		}
	}()
	for slot := int64(1); (slot+1)*MarkBytes <= int64(len(b)); slot++ {
		m.end = slot + 1
		mark, ok, err := DecodeMark(b[slot*MarkBytes:])
		if err != nil {
			bad++
			m.partial = true
		}
		key := markKey{mark.TopicID, mark.Partition}
		m.counter = max(m.counter, mark.Counter)
		if old, twice := m.loaded[key]; ok && twice {
			if mark.Counter < old.Counter {
				ok = false
			} else {
				m.free = append(m.free, m.slots[key])
			}
		}
		if !ok {
			m.free = append(m.free, slot)
			continue
		}
		m.loaded[key], m.slots[key] = mark, slot
	}
	return bad, nil
}

// complete writes slot 0, durably: from now on a partition without a slot is new.
func (m *marks) complete() error {
	if !m.headless.Load() {
		return nil
	}
	var b [MarkBytes]byte
	copy(b[:], marksMagic)
	binary.BigEndian.PutUint32(b[8:], marksVersion)
	binary.BigEndian.PutUint32(b[124:], crc32.Checksum(b[:124], castagnoli))
	if _, err := m.file.WriteAt(b[:], 0); err != nil {
		return err
	}
	m.mu.Lock()
	m.writes++
	m.mu.Unlock()
	if err := m.sync(); err != nil {
		return err
	}
	m.headless.Store(false)
	return nil
}

// get is the mark of a partition as it was at the opening.
func (m *marks) get(key markKey) (Mark, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mark, ok := m.loaded[key]
	return mark, ok
}

// put writes a partition's mark to the page cache.
func (m *marks) put(mark Mark) error {
	key := markKey{mark.TopicID, mark.Partition}
	m.mu.Lock()
	slot, ok := m.slots[key]
	if !ok {
		if n := len(m.free); n > 0 {
			slot, m.free = m.free[n-1], m.free[:n-1]
		} else {
			slot = m.end
			m.end++
		}
		m.slots[key] = slot
	}
	m.counter++
	mark.Counter = m.counter
	m.mu.Unlock()
	b := mark.Encode()
	_, err := m.file.WriteAt(b[:], slot*MarkBytes)
	m.mu.Lock()
	m.writes++ // after the write: a flush that began before does not cover it
	m.mu.Unlock()
	return err
}

// drop frees a partition's slot.
func (m *marks) drop(key markKey) error {
	m.mu.Lock()
	slot, ok := m.slots[key]
	delete(m.slots, key)
	delete(m.loaded, key)
	m.mu.Unlock()
	if !ok {
		return nil
	}
	var b [MarkBytes]byte
	_, err := m.file.WriteAt(b[:], slot*MarkBytes)
	m.mu.Lock()
	m.writes++
	m.free = append(m.free, slot)
	m.mu.Unlock()
	return err
}

// sync makes all marks that were put before the call durable. Callers that come together share one flush.
func (m *marks) sync() error {
	m.mu.Lock()
	want := m.writes
	m.mu.Unlock()
	m.syncing.Lock()
	defer m.syncing.Unlock()
	m.mu.Lock()
	now, done := m.writes, m.synced
	m.mu.Unlock()
	if done >= want {
		return nil
	}
	if err := m.file.SyncData(); err != nil {
		return err
	}
	m.mu.Lock()
	m.synced = max(m.synced, now)
	m.mu.Unlock()
	return nil
}

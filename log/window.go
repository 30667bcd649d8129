package log

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"path"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/segment"
	"github.com/keeplog/keeplog/vfs"
)

// Endings of the files with producer state. The name is the offset up to which they go, exclusive.
const (
	SnapshotExt = ".snapshot"
	WindowExt   = ".window"
)

// A snapshot is Kafka's: the last batch of each producer.
//
//	┌─────────┬─────────┬───────┬──────────────────────────────────────────────────────────────────────────────────────────┐
//	│ version │ CRC-32C │ count │ count × producer id i64, epoch i16, last sequence i32, last offset i64, offset delta i32, │
//	│ i16 = 1 │ u32     │ i32   │         timestamp i64, coordinator epoch i32, first offset of the open transaction i64    │
//	└─────────┴─────────┴───────┴──────────────────────────────────────────────────────────────────────────────────────────┘
//	the CRC covers what follows it

const (
	snapshotVersion = 1
	snapshotHead    = 10
	snapshotEntry   = 46
)

// EncodeSnapshot writes a producer snapshot.
func EncodeSnapshot(all []Producer) []byte {
	be := binary.BigEndian
	out := make([]byte, snapshotHead, snapshotHead+len(all)*snapshotEntry)
	be.PutUint16(out, snapshotVersion)
	be.PutUint32(out[6:], uint32(len(all)))
	for i := range all {
		p := &all[i]
		last := p.last()
		out = be.AppendUint64(out, uint64(p.ID))
		out = be.AppendUint16(out, uint16(p.Epoch))
		out = be.AppendUint32(out, uint32(last.Last))
		out = be.AppendUint64(out, uint64(last.LastOffset))
		out = be.AppendUint32(out, uint32(last.OffsetDelta))
		out = be.AppendUint64(out, uint64(p.LastTimestamp))
		out = be.AppendUint32(out, uint32(p.CoordinatorEpoch))
		out = be.AppendUint64(out, uint64(p.TxnStart))
	}
	be.PutUint32(out[2:], crc32.Checksum(out[6:], castagnoli))
	return out
}

// DecodeSnapshot reads a producer snapshot: windows of one batch. Errors: ErrBadFile, ErrNewerVersion.
func DecodeSnapshot(b []byte) ([]Producer, error) {
	be := binary.BigEndian
	if len(b) < snapshotHead {
		return nil, fmt.Errorf("%w: snapshot of %d bytes", ErrBadFile, len(b))
	}
	if v := int16(be.Uint16(b)); v > snapshotVersion {
		return nil, fmt.Errorf("%w: snapshot version %d", ErrNewerVersion, v)
	} else if v != snapshotVersion || be.Uint32(b[2:]) != crc32.Checksum(b[6:], castagnoli) {
		return nil, fmt.Errorf("%w: snapshot version %d, CRC %08x", ErrBadFile, v, be.Uint32(b[2:]))
	}
	n := int(int32(be.Uint32(b[6:])))
	if n < 0 || n != (len(b)-snapshotHead)/snapshotEntry || (len(b)-snapshotHead)%snapshotEntry != 0 {
		return nil, fmt.Errorf("%w: snapshot with %d producers in %d bytes", ErrBadFile, n, len(b))
	}
	all := make([]Producer, n)
	for i := range all {
		e := b[snapshotHead+i*snapshotEntry:]
		p := &all[i]
		p.ID, p.Epoch = record.ProducerID(be.Uint64(e)), record.ProducerEpoch(be.Uint16(e[8:]))
		last := SentBatch{
			Last: record.Sequence(be.Uint32(e[10:])), LastOffset: record.Offset(be.Uint64(e[14:])),
			OffsetDelta: int32(be.Uint32(e[22:])), Timestamp: int64(be.Uint64(e[26:])),
		}
		p.LastTimestamp = last.Timestamp
		p.CoordinatorEpoch, p.TxnStart = int32(be.Uint32(e[34:])), record.Offset(be.Uint64(e[38:]))
		if last.Last >= 0 {
			last.First = firstSequence(last.Last, last.OffsetDelta)
			p.push(last)
		}
	}
	return all, nil
}

// firstSequence goes back from a batch's last sequence; before 0 comes 2³¹−1.
func firstSequence(last record.Sequence, delta int32) record.Sequence {
	first := int64(last) - int64(delta)
	if first < 0 {
		first += 1 << 31
	}
	return record.Sequence(first)
}

// A window file is ours: all batches that the duplicate check remembers. Big-endian.
//
//	┌──────────┬─────────┬─────────┬────────┬───────┬───────────────────────────────────────────────────────────────────┐
//	│ "KLWD"   │ version │ CRC-32C │ offset │ count │ count × producer id i64, epoch i16, coordinator epoch i32,        │
//	│          │ u16 = 1 │ u32     │ i64    │ u32   │   transaction start i64, last timestamp i64, batches u8, then for │
//	│ 4        │ 2       │ 4       │ 8      │ 4     │   each: first i32, last i32 sequence, last offset i64, offset     │
//	│          │         │         │        │       │   delta i32, timestamp i64                                        │
//	└──────────┴─────────┴─────────┴────────┴───────┴───────────────────────────────────────────────────────────────────┘
//	the CRC covers what follows it

const (
	windowMagic   = "KLWD"
	windowVersion = 1
	windowHead    = 22
	windowEntry   = 31
	windowBatch   = 28
)

// EncodeWindow writes a window file for the state up to an offset.
func EncodeWindow(offset record.Offset, all []Producer) []byte {
	be := binary.BigEndian
	out := make([]byte, windowHead, windowHead+len(all)*(windowEntry+windowSize*windowBatch))
	copy(out, windowMagic)
	be.PutUint16(out[4:], windowVersion)
	be.PutUint64(out[10:], uint64(offset))
	be.PutUint32(out[18:], uint32(len(all)))
	for i := range all {
		p := &all[i]
		out = be.AppendUint64(out, uint64(p.ID))
		out = be.AppendUint16(out, uint16(p.Epoch))
		out = be.AppendUint32(out, uint32(p.CoordinatorEpoch))
		out = be.AppendUint64(out, uint64(p.TxnStart))
		out = be.AppendUint64(out, uint64(p.LastTimestamp))
		out = append(out, byte(p.Count))
		for _, s := range p.Window[:p.Count] {
			out = be.AppendUint32(out, uint32(s.First))
			out = be.AppendUint32(out, uint32(s.Last))
			out = be.AppendUint64(out, uint64(s.LastOffset))
			out = be.AppendUint32(out, uint32(s.OffsetDelta))
			out = be.AppendUint64(out, uint64(s.Timestamp))
		}
	}
	be.PutUint32(out[6:], crc32.Checksum(out[10:], castagnoli))
	return out
}

// DecodeWindow reads a window file. Errors: ErrBadFile, ErrNewerVersion.
func DecodeWindow(b []byte) (offset record.Offset, all []Producer, err error) {
	be := binary.BigEndian
	if len(b) < windowHead || string(b[:4]) != windowMagic {
		return 0, nil, fmt.Errorf("%w: no window file", ErrBadFile)
	}
	if v := be.Uint16(b[4:]); v > windowVersion {
		return 0, nil, fmt.Errorf("%w: window version %d", ErrNewerVersion, v)
	} else if v != windowVersion || be.Uint32(b[6:]) != crc32.Checksum(b[10:], castagnoli) {
		return 0, nil, fmt.Errorf("%w: window version %d, CRC %08x", ErrBadFile, v, be.Uint32(b[6:]))
	}
	offset = record.Offset(be.Uint64(b[10:]))
	n := int(be.Uint32(b[18:]))
	if b = b[windowHead:]; n > len(b)/windowEntry {
		return 0, nil, fmt.Errorf("%w: window with %d producers in %d bytes", ErrBadFile, n, len(b))
	}
	all = make([]Producer, n)
	for i := range all {
		if len(b) < windowEntry {
			return 0, nil, fmt.Errorf("%w: window ends in producer %d", ErrBadFile, i)
		}
		p := &all[i]
		p.ID, p.Epoch = record.ProducerID(be.Uint64(b)), record.ProducerEpoch(be.Uint16(b[8:]))
		p.CoordinatorEpoch, p.TxnStart = int32(be.Uint32(b[10:])), record.Offset(be.Uint64(b[14:]))
		p.LastTimestamp, p.Count = int64(be.Uint64(b[22:])), int(b[30])
		b = b[windowEntry:]
		if p.Count > windowSize || len(b) < p.Count*windowBatch {
			return 0, nil, fmt.Errorf("%w: producer %d with %d batches", ErrBadFile, p.ID, p.Count)
		}
		for k := range p.Count {
			p.Window[k] = SentBatch{
				First: record.Sequence(be.Uint32(b)), Last: record.Sequence(be.Uint32(b[4:])),
				LastOffset: record.Offset(be.Uint64(b[8:])), OffsetDelta: int32(be.Uint32(b[16:])), Timestamp: int64(be.Uint64(b[20:])),
			}
			b = b[windowBatch:]
		}
	}
	if len(b) > 0 {
		return 0, nil, fmt.Errorf("%w: %d bytes after the last producer", ErrBadFile, len(b))
	}
	return offset, all, nil
}

// stateFile is a file with producer state that was found.
type stateFile struct {
	offset record.Offset
	window bool // else a snapshot
}

func (s stateFile) name(dir string) string {
	if s.window {
		return path.Join(dir, segment.FileName(s.offset, WindowExt))
	}
	return path.Join(dir, segment.FileName(s.offset, SnapshotExt))
}

// read decodes the file.
func (s stateFile) read(fsys vfs.FS, dir string) ([]Producer, error) {
	b, err := readFile(fsys, s.name(dir))
	if err != nil {
		return nil, err
	}
	if !s.window {
		return DecodeSnapshot(b)
	}
	offset, all, err := DecodeWindow(b)
	if err == nil && offset != s.offset {
		err = fmt.Errorf("%w: window of offset %d under the name of %d", ErrBadFile, offset, s.offset)
	}
	return all, err
}

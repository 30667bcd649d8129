package dump

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/keeplog/keeplog/record"
)

// content dumps any file but a segment and its indexes. p is nil outside of a partition.
func (d *Dump) content(f *file, p *partition) {
	switch f.name.typ {
	case TypeSnapshot:
		f.snapshot(p)
	case TypeWindow:
		f.window(p)
	case TypeEpochs:
		f.epochs()
	case TypeTopicID:
		f.topicID(p)
	case TypeOffsets:
		f.offsets()
	case TypeProperties:
		f.properties()
	case TypeCleanStop:
		f.cleanStop()
	case TypeMarks:
		f.marks()
	case TypeKRaftSnap, TypeTorn:
		f.loose()
	case TypeKRaftVotes:
		f.votes()
	case TypeRaftStore, TypeRaftSnap:
		f.raft()
	case TypeSpare:
		f.spareSegment()
	case TypeBad:
		f.note(-1, -1, "bytes that `keeplog check --repair` took out of the log at pos %s", f.badPosition())
	case TypeLock:
	default:
		f.note(-1, -1, "no file of a log: not looked at")
	}
}

// list shows the entries of an index as they are; what is wrong with them is told by the checks.
func (f *file) list() {
	size := map[string]int64{TypeIndex: offsetEntrySize, TypeTimeIndex: timeEntrySize, TypeTxnIndex: abortEntrySize}[f.name.typ]
	var w window
	w.reset(f, f.size)
	for at := int64(0); at+size <= f.size && !f.d.stopped(); at += size {
		b, err := w.view(at, int(size))
		if err != nil || int64(len(b)) < size || allZero(b) {
			break
		}
		if !f.shown {
			f.end.Entries++
			continue
		}
		switch f.name.typ {
		case TypeIndex:
			f.entry("index", Field{"offset", int64(f.name.base) + int64(int32(binary.BigEndian.Uint32(b)))}, Field{"position", int32(binary.BigEndian.Uint32(b[4:]))})
		case TypeTimeIndex:
			f.entry("time", Field{"timestamp", int64(binary.BigEndian.Uint64(b))}, Field{"offset", int64(f.name.base) + int64(int32(binary.BigEndian.Uint32(b[8:])))})
		default:
			e := parseAbort(b)
			f.entry("aborted", Field{"producer_id", e.producer}, Field{"first_offset", e.first}, Field{"last_offset", e.last}, Field{"last_stable_offset", e.stable})
		}
	}
	if rest := f.size % size; rest != 0 && f.name.typ != TypeTxnIndex {
		f.damage(f.size-rest, f.size, "%d bytes at the end are no whole entry of %d bytes", rest, size)
	}
}

// The producer snapshot:
//
//	│ i16 version 1 │ u32 CRC-32C of the rest │ i32 count │ entries of 54 bytes:
//	│ i64 id │ i16 epoch │ i32 last sequence │ i64 last offset │ i32 offset delta │ i64 timestamp │ i32 coordinator epoch │ i64 txn start │
const (
	snapshotHead  = 10
	snapshotEntry = 46
)

func (f *file) snapshot(p *partition) {
	if f.size < snapshotHead {
		f.damage(0, f.size, "%d bytes, the head alone has %d", f.size, snapshotHead)
		return
	}
	var w window
	w.reset(f, f.size)
	head, err := w.view(0, snapshotHead)
	if err != nil || len(head) < snapshotHead {
		f.damage(0, f.size, "cannot be read: %v", err)
		return
	}
	version, stored := int16(binary.BigEndian.Uint16(head)), binary.BigEndian.Uint32(head[2:])
	count := int32(binary.BigEndian.Uint32(head[6:]))
	if version > 1 && version < 64 {
		f.unsupported(0, 2, "version %d: written by a newer version", version)
		return
	}
	if version != 1 {
		f.damage(0, 2, "version %d", version)
		return
	}
	sum := uint32(0)
	for at := int64(6); at < f.size; {
		b, err := w.view(at, int(min(windowSize, f.size-at)))
		if err != nil || len(b) == 0 {
			f.damage(at, f.size, "cannot be read: %v", err)
			return
		}
		sum = crc32.Update(sum, castagnoli, b)
		at += int64(len(b))
	}
	if sum != stored {
		f.damage(2, f.size, "crc BAD (stored %08x, computed %08x)", stored, sum)
	}
	if count < 0 || snapshotHead+int64(count)*snapshotEntry != f.size {
		f.damage(6, 10, "%d producers announced, the %d bytes after the head hold %d.%02d", count, f.size-snapshotHead, (f.size-snapshotHead)/snapshotEntry, (f.size-snapshotHead)%snapshotEntry)
	}
	for at := int64(snapshotHead); at+snapshotEntry <= f.size && !f.d.stopped(); at += snapshotEntry {
		b, err := w.view(at, snapshotEntry)
		if err != nil || len(b) < snapshotEntry {
			return
		}
		f.snapshotEntry(p, at, b, sum == stored)
	}
}

func (f *file) snapshotEntry(p *partition, at int64, b []byte, intact bool) {
	id, epoch := record.ProducerID(binary.BigEndian.Uint64(b)), record.ProducerEpoch(binary.BigEndian.Uint16(b[8:]))
	seq, last := record.Sequence(binary.BigEndian.Uint32(b[10:])), record.Offset(binary.BigEndian.Uint64(b[14:]))
	delta, ts := int32(binary.BigEndian.Uint32(b[22:])), int64(binary.BigEndian.Uint64(b[26:]))
	coordinator, txn := int32(binary.BigEndian.Uint32(b[34:])), record.Offset(binary.BigEndian.Uint64(b[38:]))
	f.entry("producer", Field{"producer_id", id}, Field{"producer_epoch", epoch}, Field{"last_sequence", seq}, Field{"last_offset", last},
		Field{"offset_delta", delta}, Field{"timestamp", ts}, Field{"coordinator_epoch", coordinator}, Field{"txn_start_offset", txn})
	if !intact {
		return
	}
	if id < 0 || seq < -1 || last >= f.name.base || delta < 0 && last >= 0 || txn >= f.name.base {
		f.damage(at, at+snapshotEntry, "producer %d is not plausible in a snapshot at offset %d: last offset %d, transaction from %d", id, f.name.base, last, txn)
		return
	}
	if p == nil || !p.d.o.Verify {
		return
	}
	st, ok := p.producers[id]
	if ok && !st.marker && st.last < f.name.base && st.last >= p.gap && (st.last != last || st.seq != seq || st.epoch != epoch) {
		f.judge(p.stable.promised(f.name.base-1), extent{at, at + snapshotEntry}, fmt.Sprintf("producer %d: last batch has epoch %d, sequence %d, offset %d here and epoch %d, sequence %d, offset %d in the log", id, epoch, seq, last, st.epoch, st.seq, st.last))
	}
}

// loose dumps batches outside of a segment: Kafka's snapshots of its metadata, and what was kept of a torn tail.
func (f *file) loose() {
	torn := f.name.typ == TypeTorn
	f.d.win.reset(f, f.size)
	base := f.name.base
	if base < 0 || !torn {
		f.name.base = 0
	}
	if torn {
		f.spared = "kept from behind the end of the log when a server started after a crash"
	}
	p := &partition{d: f.d, producers: map[record.ProducerID]follow{}, bases: []record.Offset{f.name.base}}
	p.segment(f, segmentChecks{})
	f.name.base = base
}

func (f *file) spareSegment() {
	if f.size == 0 {
		f.note(-1, -1, "waits to be the next segment: space is reserved for it, it holds no bytes")
		return
	}
	var w window
	w.reset(f, f.size)
	for at := int64(0); at < f.size; {
		b, err := w.view(at, int(min(windowSize, f.size-at)))
		if err != nil || len(b) == 0 {
			f.damage(at, f.size, "cannot be read: %v", err)
			return
		}
		if !allZero(b) {
			f.note(at, f.size, "waits to be the next segment, and holds bytes already: a roll was under way, or they are left from one")
			return
		}
		at += int64(len(b))
	}
	f.note(-1, -1, "waits to be the next segment: %d bytes of zeros", f.size)
}

func (f *file) badPosition() string {
	var base, pos int64
	n, _ := fmt.Sscanf(lastElement(f.path), "%d.%d.bad", &base, &pos)
	if n == 2 {
		return decimal(pos)
	}
	if n, _ = fmt.Sscanf(lastElement(f.path), "%d.bad", &pos); n == 1 {
		return decimal(pos)
	}
	return "?"
}

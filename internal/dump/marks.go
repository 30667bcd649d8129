package dump

import (
	"encoding/base64"
	"errors"
	"fmt"

	plog "github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/record"
)

// maxWindowFile bounds a window file that is read whole, in bytes.
const maxWindowFile = 256 << 20

// markSlot is what a partition's mark says.
type markSlot struct {
	at                         int64 // position of the slot in the file
	segment                    record.Offset
	position                   record.Position
	offset, logStart           record.Offset
	offsetEntries, timeEntries int64
	counter                    uint64
	unplaced                   bool
}

type markKey struct {
	topic     [16]byte
	partition int32
}

// markTable are the marks of a data directory.
type markTable struct {
	slots map[markKey]markSlot
	// complete says that a partition without a slot is new: Kafka's checkpoints say nothing about it.
	complete bool
}

func (t *markTable) find(id [16]byte, partition int32) *markSlot {
	if t == nil || id == [16]byte{} {
		return nil
	}
	slot, ok := t.slots[markKey{id, partition}]
	if !ok {
		return nil
	}
	return &slot
}

// eachMark walks the slots of a marks file. The header has been looked at.
func eachMark(f *window, each func(at int64, m plog.Mark, used bool, err error)) error {
	for at := int64(plog.MarkBytes); at+plog.MarkBytes <= f.size; at += plog.MarkBytes {
		b, err := f.view(at, plog.MarkBytes)
		if err != nil || len(b) < plog.MarkBytes {
			return err
		}
		m, used, err := plog.DecodeMark(b)
		each(at, m, used, err)
	}
	return nil
}

// readMarks reads the marks that other files are judged by.
func (d *Dump) readMarks(path string) *markTable {
	f, err := d.o.FS.OpenFile(path, 0, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	t := &markTable{slots: map[markKey]markSlot{}}
	size, err := f.Size()
	if err != nil {
		return t
	}
	var w window
	w.reset(f, size)
	head, err := w.view(0, plog.MarkBytes)
	if err != nil || errors.Is(plog.CheckMarksHeader(head), plog.ErrNewerVersion) {
		return t
	}
	t.complete = plog.CheckMarksHeader(head) == nil && size%plog.MarkBytes == 0
	_ = eachMark(&w, func(at int64, m plog.Mark, used bool, err error) {
		key := markKey{m.TopicID, m.Partition}
		t.complete = t.complete && err == nil
		if old, twice := t.slots[key]; err != nil || !used || twice && old.counter > m.Counter {
			return
		}
		t.slots[key] = markSlot{
			at: at, segment: m.Segment, position: m.Position, offset: m.Offset, logStart: m.LogStart, counter: m.Counter,
			offsetEntries: int64(m.OffsetEntries), timeEntries: int64(m.TimeEntries), unplaced: m.Unplaced,
		}
	})
	return t
}

// marks dumps keeplog-marks.
func (f *file) marks() {
	var w window
	w.reset(f, f.size)
	head, err := w.view(0, plog.MarkBytes)
	if err == nil {
		err = plog.CheckMarksHeader(head)
	}
	switch {
	case errors.Is(err, plog.ErrNewerVersion):
		f.unsupported(0, plog.MarkBytes, "%v", err)
		return
	case len(head) == plog.MarkBytes && [plog.MarkBytes]byte(head) == [plog.MarkBytes]byte{}:
		f.note(0, plog.MarkBytes, "the head is not written: not every partition has a slot yet, and those without fall back to recovery-point-offset-checkpoint")
	case err != nil:
		f.damage(0, plog.MarkBytes, "the head does not check; the slots are believed, they have checksums of their own")
	}
	err = eachMark(&w, func(at int64, m plog.Mark, used bool, err error) {
		switch {
		case err != nil:
			f.damage(at, at+plog.MarkBytes, "slot %d: %v; its partition falls back to recovery-point-offset-checkpoint", at/plog.MarkBytes, err)
		case used && (m.Partition < 0 || m.Segment < 0 || m.Offset < m.Segment || m.LogStart < 0 || m.Position < 0 || m.OffsetEntries < 0 || m.TimeEntries < 0):
			f.damage(at, at+plog.MarkBytes, "slot %d is not plausible: segment %d, position %d, offset %d, log start %d", at/plog.MarkBytes, m.Segment, m.Position, m.Offset, m.LogStart)
		case used:
			fields := []Field{
				{"topic_id", base64.RawURLEncoding.EncodeToString(m.TopicID[:])},
				{"partition", m.Partition},
				{"segment", m.Segment},
				{"position", m.Position},
				{"offset", m.Offset},
				{"log_start", m.LogStart},
				{"leader_epoch", m.Epoch},
				{"offset_entries", m.OffsetEntries},
				{"time_entries", m.TimeEntries},
				{"no_producers", m.NoProducers},
			}
			for _, rare := range []Field{{"unplaced", m.Unplaced}, {"cutting", m.Cutting}, {"gaps", m.Gaps}} {
				if rare.Value == true {
					fields = append(fields, rare)
				}
			}
			if m.Lost.Count > 0 {
				fields = append(fields, Field{"lost_from", m.Lost.From}, Field{"lost_to", m.Lost.To}, Field{"lost", m.Lost.Count})
			}
			f.entry("mark", fields...)
		}
	})
	if err != nil {
		f.damage(-1, -1, "cannot be read: %v", err)
	}
	if rest := f.size % plog.MarkBytes; rest != 0 {
		f.damage(f.size-rest, f.size, "%d bytes at the end are no whole slot", rest)
	}
}

// window dumps a producer window.
func (f *file) window(p *partition) {
	b, err := readAll(f, f.size, maxWindowFile)
	if err != nil {
		f.damage(-1, -1, "cannot be read: %v", err)
		return
	}
	offset, all, err := plog.DecodeWindow(b)
	switch {
	case errors.Is(err, plog.ErrNewerVersion):
		f.unsupported(-1, -1, "%v", err)
		return
	case err != nil:
		f.damage(-1, -1, "%v", err)
		return
	case offset != f.name.base:
		f.damage(-1, -1, "it says that it stands at offset %d", offset)
		return
	}
	for i := range all {
		x := &all[i]
		batches := []any{}
		for _, s := range x.Window[:x.Count] {
			batches = append(batches, &Entry{Fields: []Field{
				{"first_sequence", s.First}, {"last_sequence", s.Last}, {"last_offset", s.LastOffset}, {"offset_delta", s.OffsetDelta}, {"timestamp", s.Timestamp},
			}})
		}
		f.entry("producer", Field{"producer_id", x.ID}, Field{"producer_epoch", x.Epoch}, Field{"coordinator_epoch", x.CoordinatorEpoch},
			Field{"txn_start_offset", x.TxnStart}, Field{"timestamp", x.LastTimestamp}, Field{"batches", batches})
		f.producerWindow(p, x)
	}
}

// producerWindow tests that a producer's batches follow each other, and agree with the log.
func (f *file) producerWindow(p *partition, x *plog.Producer) {
	for i, s := range x.Window[:x.Count] {
		if s.LastOffset >= f.name.base || i > 0 && s.LastOffset <= x.Window[i-1].LastOffset || s.OffsetDelta < 0 || x.ID < 0 {
			f.damage(-1, -1, "producer %d: the batch that ends at offset %d is not plausible in a window up to offset %d", x.ID, s.LastOffset, f.name.base)
			return
		}
	}
	if p == nil || !p.d.o.Verify || x.Count == 0 {
		return
	}
	last := x.Window[x.Count-1]
	st, ok := p.producers[x.ID]
	if ok && !st.marker && st.last < f.name.base && st.last >= p.gap && (st.last != last.LastOffset || st.seq != last.Last || st.epoch != x.Epoch) {
		f.judge(p.stable.promised(f.name.base-1), nowhere, fmt.Sprintf("producer %d: last batch has epoch %d, sequence %d, offset %d here and epoch %d, sequence %d, offset %d in the log", x.ID, x.Epoch, last.Last, last.LastOffset, st.epoch, st.seq, st.last))
	}
}

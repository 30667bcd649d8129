package dump

import (
	"encoding/base64"
	"errors"
	"fmt"

	plog "github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/record"
)

// What is read whole is bounded: a window file, the marks; in bytes.
const (
	maxWindowFile = 256 << 20
	maxMarksFile  = 256 << 20
)

// markSlot is what a partition's mark says.
type markSlot struct {
	at, spare                  int64 // position of the mark in the file, and where the next one goes
	segment                    record.Offset
	position                   record.Position
	offset, logStart           record.Offset
	offsetEntries, timeEntries int64
	counter                    uint64
	unplaced                   bool
	future                     bool // of a copy that is under way, or of what was moving away: its directory may be gone
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
	b, err := readAll(f, size, maxMarksFile)
	if err != nil {
		return t
	}
	all, err := plog.DecodeMarks(b)
	if err != nil {
		return t
	}
	t.complete = all.Complete()
	for _, s := range all.Live() {
		m, spare := s.Mark, s.MarkAt()
		if all.SlotBytes() > plog.MarkBytes {
			spare = s.At + (1-s.Half)*plog.MarkBytes
		}
		t.slots[markKey{m.TopicID, m.Partition}] = markSlot{
			at: s.MarkAt(), spare: spare, segment: m.Segment, position: m.Position, offset: m.Offset, logStart: m.LogStart, counter: m.Counter,
			offsetEntries: int64(m.OffsetEntries), timeEntries: int64(m.TimeEntries), unplaced: m.Unplaced, future: m.Future || m.Leaving,
		}
	}
	return t
}

// marks dumps keeplog-marks.
func (f *file) marks() {
	b, err := readAll(f, f.size, maxMarksFile)
	if err != nil {
		f.damage(-1, -1, "cannot be read: %v", err)
		return
	}
	all, err := plog.DecodeMarks(b)
	if err != nil {
		f.unsupported(0, plog.MarkBytes, "%v", err)
		return
	}
	size := int64(all.SlotBytes())
	switch {
	case all.Head.Lost || len(b) == 0:
		f.damage(0, size, "the head does not check; the marks are believed, they have checksums of their own")
	case !all.Head.Complete:
		f.note(0, size, "the head does not say that it is complete: not every partition has a slot yet, and those without fall back to recovery-point-offset-checkpoint")
	case all.Head.Torn:
		f.note(0, size, "one of two heads does not check: torn by a crash, or rotten; the other counts")
	}
	for i := range all.Slots {
		f.markSlot(&all.Slots[i], size)
	}
	if all.Rest > 0 && len(b) > 0 {
		f.damage(f.size-int64(all.Rest), f.size, "%d bytes at the end are no whole slot", all.Rest)
	}
}

// markSlot dumps one slot.
func (f *file) markSlot(s *plog.MarksSlot, size int64) {
	n, m := s.At/size, &s.Mark
	switch {
	case s.Lost:
		f.damage(s.At, s.At+size, "slot %d: %v; its partition falls back to recovery-point-offset-checkpoint", n, s.Bad)
	case s.Bad != nil:
		f.note(s.At, s.At+size, "slot %d: one of two marks does not check: torn by a crash, or rotten; the other counts", n)
	}
	switch {
	case !s.Used:
	case m.Partition < 0 || m.Segment < 0 || m.Offset < m.Segment || m.LogStart < 0 || m.Position < 0 || m.OffsetEntries < 0 || m.TimeEntries < 0:
		f.damage(s.At, s.At+size, "slot %d is not plausible: segment %d, position %d, offset %d, log start %d", n, m.Segment, m.Position, m.Offset, m.LogStart)
	default:
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
		for _, rare := range []Field{{"unplaced", m.Unplaced}, {"cutting", m.Cutting}, {"gaps", m.Gaps}, {"future", m.Future}, {"leaving", m.Leaving}, {"arrived", m.Arrived}} {
			if rare.Value == true {
				fields = append(fields, rare)
			}
		}
		if m.Moves > 0 {
			fields = append(fields, Field{"moves", m.Moves})
		}
		if m.Lineage != 0 {
			fields = append(fields, Field{"lineage", fmt.Sprintf("%016x", m.Lineage)})
		}
		if m.Lost.Count > 0 {
			fields = append(fields, Field{"lost_from", m.Lost.From}, Field{"lost_to", m.Lost.To}, Field{"lost", m.Lost.Count})
		}
		f.entry("mark", fields...)
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

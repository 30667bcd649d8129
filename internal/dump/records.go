package dump

import (
	"errors"
	"fmt"

	"github.com/keeplog/keeplog/record"
)

// maxProducers bounds how many producers of a partition are followed.
const maxProducers = 200_000

// producerExpiry is how long, by the timestamps, Kafka remembers a producer that is silent; after that any sequence may follow.
const producerExpiry = 24 * 60 * 60 * 1000

// follow is what the batches so far say of a producer.
type follow struct {
	epoch    record.ProducerEpoch
	seq      record.Sequence // of its last record, −1 after a marker that began a new epoch
	last     record.Offset   // of its last batch
	time     int64
	txnStart record.Offset // first offset of the open transaction, −1 for none
	marker   bool          // the last batch was a marker
}

// producer checks sequences and epochs. They must be dense only as long as the offsets are: compaction takes batches out.
func (s *pass) producer(pos int64, b record.Batch) {
	if !b.HasProducer() {
		return
	}
	p := s.p
	id := b.ProducerID()
	st, seen := p.producers[id]
	now := follow{epoch: b.ProducerEpoch(), seq: b.LastSequence(), last: b.LastOffset(), time: b.MaxTimestamp(), txnStart: -1}
	if seen {
		now.txnStart = st.txnStart
	}
	if b.Control() {
		now.marker = true
		if seen && st.epoch == now.epoch {
			now.seq = st.seq
		}
		now.txnStart = -1
		s.marker(pos, b, st, seen)
	} else {
		if seen && st.last >= p.gap && b.Count() > 0 {
			s.sequence(pos, b, st)
		}
		if b.Transactional() && b.Count() > 0 && now.txnStart < 0 {
			now.txnStart = b.BaseOffset()
		}
	}
	if !seen && len(p.producers) >= maxProducers {
		clear(p.producers)
		s.f.note(pos, -1, "more than %d producers: their sequences are checked from here on anew", maxProducers)
	}
	p.producers[id] = now
}

func (s *pass) sequence(pos int64, b record.Batch, st follow) {
	wrong := func(format string, args ...any) {
		s.f.report(Problem{
			Severity: Damage, Position: pos, End: pos + int64(b.Size()), First: b.BaseOffset(), Last: b.LastOffset(),
			Text: fmt.Sprintf("batch at pos %d: producer %d: ", pos, b.ProducerID()) + fmt.Sprintf(format, args...),
		})
	}
	switch {
	case b.ProducerEpoch() < st.epoch:
		wrong("its epoch goes back: %d after %d (offset %d)", b.ProducerEpoch(), st.epoch, st.last)
	case b.ProducerEpoch() > st.epoch || st.seq < 0 || b.BaseSequence() < 0:
	case b.MaxTimestamp()-st.time > producerExpiry:
	case b.BaseSequence() != st.seq.Add(1):
		wrong("sequence %d does not follow %d (offset %d)", b.BaseSequence(), st.seq, st.last)
	}
}

// marker compares an end of a transaction with the index of aborted transactions.
func (s *pass) marker(pos int64, b record.Batch, st follow, seen bool) {
	if s.aborted == nil || !b.Transactional() || len(b) < b.Size() {
		return
	}
	it := record.Iterate(b, b.RecordsBytes())
	if !it.Next() {
		return
	}
	if c, err := record.ParseControl(it.Record()); err == nil && c.Type == record.ControlAbort {
		start := record.Offset(-1)
		if seen {
			start = st.txnStart
		}
		s.aborted.abort(abortMarker{pos: pos, producer: b.ProducerID(), offset: b.LastOffset(), start: start})
	}
}

// records walks the records of a good batch, checks and shows them.
func (s *pass) records(pos int64, b record.Batch, shown bool) {
	if !s.walks() || b.Count() == 0 {
		return
	}
	wrong := func(format string, args ...any) {
		s.f.report(Problem{
			Severity: Damage, Position: pos, End: pos + int64(b.Size()), First: b.BaseOffset(), Last: b.LastOffset(),
			Text: fmt.Sprintf("batch at pos %d: CRC ok, but ", pos) + fmt.Sprintf(format, args...),
		})
	}
	raw, err := s.d.codecs.Unpack(b, s.d.scratch, maxUnpacked)
	if errors.Is(err, record.ErrTooLarge) {
		s.f.note(pos, pos+int64(b.Size()), "batch at pos %d unpacks to more than %d bytes: its records are not looked at", pos, maxUnpacked)
		return
	}
	if err != nil {
		wrong("its records cannot be unpacked: %v", err)
		return
	}
	if b.Codec() != record.None && cap(raw) > cap(s.d.scratch) && cap(raw) <= 4*windowSize {
		s.d.scratch = raw[:0]
	}
	it := record.Iterate(b, raw)
	prev, maxTime := int32(-1), int64(-1)
	for it.Next() {
		r := it.Record()
		if r.OffsetDelta <= prev || r.OffsetDelta > b.LastOffsetDelta() {
			wrong("record offset %d is not between %d and %d", r.Offset, b.BaseOffset()+record.Offset(prev)+1, b.LastOffset())
			return
		}
		prev, maxTime = r.OffsetDelta, max(maxTime, r.Timestamp)
		if shown && s.d.o.Records && s.f.shown && s.d.o.shows(r.Offset, r.Offset, r.Timestamp, r.Timestamp) {
			s.show(pos, b, r)
		}
	}
	if err := it.Err(); err != nil {
		wrong("its records are not whole: %v", err)
		return
	}
	if maxTime != b.MaxTimestamp() && !b.Control() {
		s.f.note(pos, pos+int64(b.Size()), "batch at pos %d: its header has max timestamp %d, its records %d", pos, b.MaxTimestamp(), maxTime)
	}
}

// show hands on one record.
func (s *pass) show(pos int64, b record.Batch, r *record.Record) {
	item := &Record{
		File: s.f.path, Offset: r.Offset, Timestamp: r.Timestamp, Sequence: record.NoSequence, Key: r.Key, Value: r.Value, Headers: r.Headers,
		ProducerID: b.ProducerID(), ProdEpoch: b.ProducerEpoch(),
	}
	if b.BaseSequence() >= 0 && r.OffsetDelta >= 0 {
		item.Sequence = b.BaseSequence().Add(r.OffsetDelta)
	}
	switch {
	case b.Control():
		e, err := controlEntry(r)
		if err != nil {
			s.f.damage(pos, pos+int64(b.Size()), "batch at pos %d: control record at offset %d: %v", pos, r.Offset, err)
		}
		item.Marker = e
	case s.d.o.Decode != "":
		e, err := decodeInternal(s.d.o.Decode, r)
		if err != nil {
			s.f.note(pos, pos+int64(b.Size()), "record at offset %d: not a record of %s: %v", r.Offset, s.d.o.Decode, err)
		}
		item.Decoded = e
	}
	s.d.put(item)
}

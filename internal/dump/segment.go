package dump

import (
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/keeplog/keeplog/record"
)

// maxUnpacked bounds what one batch may unpack to, in bytes.
const maxUnpacked = 256 << 20

// pass is one walk over the batches of a segment.
type pass struct {
	d    *Dump
	p    *partition
	f    *file
	last bool // no segment follows
	// checks of the other files of the segment; nil where there is none
	offsets *offsetCheck
	times   *timeCheck
	aborted *abortCheck

	prev      record.Offset // last offset so far; base−1 at first
	prevEpoch record.Epoch
	prevPos   int64 // position of the batch before
	maxTime   int64 // so far
	blind     bool  // a batch could not be read: what it held is not known
	read      int64 // bytes reported as progress
}

// segment walks a log file and shows what is in it.
func (p *partition) segment(f *file, checks segmentChecks) {
	d := p.d
	d.win.reset(f, f.size)
	s := &pass{
		d: d, p: p, f: f, last: p.isLast(f.name.base), prev: f.name.base - 1, prevEpoch: record.NoEpoch, maxTime: -1,
		offsets: checks.offsets, times: checks.times, aborted: checks.aborted,
	}
	for pos := int64(0); pos < d.win.size && !d.stopped(); {
		pos = s.step(pos)
		if d.o.Progress != nil && pos-s.read > 32<<20 {
			s.read = pos
			d.o.Progress(d.total.Bytes + pos)
		}
	}
	if d.err == nil {
		s.ends()
	}
}

// step looks at the bytes at pos and returns where to go on.
func (s *pass) step(pos int64) int64 {
	w := &s.d.win
	head, err := w.view(pos, record.HeaderSize)
	if err != nil {
		s.f.damage(pos, w.size, "cannot be read: %v", err)
		return w.size
	}
	size, err := record.ParseHeader(head, 0)
	if errors.Is(err, record.ErrOldVersion) || errors.Is(err, record.ErrNewerVersion) {
		if next := s.otherVersion(pos, head, err); next > 0 {
			return next
		}
	}
	if err == nil && pos+int64(size) > w.size {
		err = fmt.Errorf("%w: it has %d bytes, %d are left", record.ErrTorn, size, w.size-pos)
	}
	if err != nil {
		return s.bad(pos, nil, err)
	}
	b, computed, err := s.load(pos, size)
	if err != nil {
		return s.bad(pos, nil, err)
	}
	if computed != b.CRC() {
		return s.bad(pos, &badBatch{header: [record.HeaderSize]byte(b[:record.HeaderSize]), size: size, computed: computed}, record.ErrCorrupt)
	}
	s.good(pos, b, size)
	return pos + int64(size)
}

// load returns the batch at pos, only its header where it is too large for memory, and the CRC of its bytes.
func (s *pass) load(pos int64, size int) (record.Batch, uint32, error) {
	w := &s.d.win
	if size <= windowSize {
		b, err := w.view(pos, size)
		if err == nil && len(b) < size {
			err = fmt.Errorf("%w: the file ends %d bytes into it", record.ErrTorn, len(b))
		}
		if err != nil {
			return nil, 0, err
		}
		return b, record.Batch(b).ComputeCRC(), nil
	}
	if s.walks() && size <= maxUnpacked {
		if cap(s.d.whole) < size { // not more than the file has
			s.d.whole = make([]byte, size)
		}
		b := record.Batch(s.d.whole[:size])
		if _, err := s.f.ReadAt(b, pos); err != nil {
			return nil, 0, err
		}
		return b, b.ComputeCRC(), nil
	}
	var head [record.HeaderSize]byte
	b, err := w.view(pos, record.HeaderSize)
	if err != nil || len(b) < record.HeaderSize {
		return nil, 0, fmt.Errorf("%w: %w", record.ErrTorn, err)
	}
	copy(head[:], b)
	sum, err := w.crc(pos, size)
	return head[:], sum, err
}

// walks says that the records are looked at.
func (s *pass) walks() bool { return s.d.o.Records || s.d.o.Verify }

// good takes a batch with a right CRC.
func (s *pass) good(pos int64, b record.Batch, size int) {
	base, last := b.BaseOffset(), b.LastOffset()
	item := batchItem(s.f.path, pos, b, size)
	item.OK = true
	s.f.end.Entries++
	s.d.total.Batches++
	if n := b.Count(); n > 0 {
		s.f.end.Records += int64(n)
		s.d.total.Records += int64(n)
	}
	if s.f.end.First < 0 {
		s.f.end.First = base
	}
	shown := s.f.shown && s.d.o.shows(base, last, lowTime(b), b.MaxTimestamp())
	if shown {
		s.d.put(item)
	}
	sane := s.header(pos, b, size)
	if len(b) == size && sane {
		s.records(pos, b, shown)
	} else if sane && s.walks() {
		s.f.note(pos, pos+int64(size), "batch of %d bytes: its records are not looked at", size)
	}
	if !sane {
		s.blind = true
	}
	s.producer(pos, b)
	s.maxTime = max(s.maxTime, b.MaxTimestamp())
	s.feed(pos, b)
	if t := lowTime(b); t >= 0 && (s.f.end.MinTime < 0 || t < s.f.end.MinTime) {
		s.f.end.MinTime = t
	}
	s.f.end.MaxTime = s.maxTime
	s.prev, s.prevPos = max(s.prev, last), pos
	s.f.end.Last = s.prev
	if e := b.PartitionLeaderEpoch(); e > s.prevEpoch {
		s.prevEpoch = e
	}
}

// lowTime is the smallest timestamp that the header tells of.
func lowTime(b record.Batch) int64 {
	if b.HasDeleteHorizon() || b.TimestampType() == record.LogAppendTime || b.BaseTimestamp() < 0 {
		return b.MaxTimestamp()
	}
	return min(b.BaseTimestamp(), b.MaxTimestamp())
}

// header checks what a header may say at this place; false when the records are not worth a look.
func (s *pass) header(pos int64, b record.Batch, size int) bool {
	base, delta, count := b.BaseOffset(), b.LastOffsetDelta(), b.Count()
	end := pos + int64(size)
	wrong := func(format string, args ...any) bool {
		s.f.report(Problem{
			Severity: Damage, Position: pos, End: end, First: base, Last: b.LastOffset(),
			Text: fmt.Sprintf("batch at pos %d: ", pos) + fmt.Sprintf(format, args...),
		})
		return false
	}
	switch {
	case delta < 0 || b.LastOffset() < base:
		return wrong("last offset delta %d", delta)
	case count < 0 || int64(count) > int64(delta)+1:
		return wrong("%d records for offsets %d..%d", count, base, b.LastOffset())
	case base < s.f.name.base:
		return wrong("offset %d is below the segment's base %d", base, s.f.name.base)
	case base <= s.prev:
		return wrong("offsets go back: %d after %d (pos %d)", base, s.prev, s.prevPos)
	}
	if int64(base)-int64(s.f.name.base)+int64(delta) > 1<<31-1 {
		wrong("offset %d is more than 2^31 above the segment's base", b.LastOffset())
	}
	if e := b.PartitionLeaderEpoch(); e < s.prevEpoch {
		wrong("leader epoch goes back: %d after %d", e, s.prevEpoch)
	}
	s.p.epochAgrees(s, pos, b)
	if !b.Codec().Known() {
		return wrong("codec %d does not exist", int(b.Codec()))
	}
	if base > s.prev+1 {
		s.p.gap = base
	}
	if int64(count) != int64(delta)+1 {
		s.p.gap = base
	}
	return true
}

// feed compares the other files of the segment with this batch.
func (s *pass) feed(pos int64, b record.Batch) {
	at := place{pos: pos, base: b.BaseOffset(), last: b.LastOffset(), time: b.MaxTimestamp(), maxTime: s.maxTime, blind: s.blind}
	if s.offsets != nil {
		s.offsets.batch(at)
	}
	if s.times != nil {
		s.times.batch(at)
	}
}

// otherVersion takes a message set of before magic 2, or a batch of after; 0 when it is neither but damage.
func (s *pass) otherVersion(pos int64, head []byte, cause error) int64 {
	h := oldHeader(head)
	end := pos + 12 + int64(h.length)
	if h.length < 14 || end > s.d.win.size {
		return 0
	}
	size := int(end - pos)
	newer := errors.Is(cause, record.ErrNewerVersion)
	if size <= windowSize {
		b, err := s.d.win.view(pos, size)
		if err != nil || len(b) < size {
			return 0
		}
		if !newer && crc32.ChecksumIEEE(b[16:]) != h.crcOld {
			return 0
		}
		if newer && len(b) >= record.HeaderSize && record.Batch(b).ComputeCRC() == record.Batch(b).CRC() {
			return 0 // the same bytes check as magic 2: only the magic is wrong
		}
	}
	what := "message set of magic %d, from before Kafka 0.11: this old format is not supported"
	if newer {
		what = "batch of magic %d: written by a newer version"
	}
	s.f.report(Problem{Severity: Unsupported, Position: pos, End: end, First: h.base, Last: -1, Text: fmt.Sprintf("pos %d: "+what, pos, h.magic)})
	s.blind = true
	s.prev = max(s.prev, h.base)
	s.f.end.Last, s.f.end.Entries = s.prev, s.f.end.Entries+1
	s.p.gap = h.base + 1
	return end
}

// ends checks what only the end of the segment shows.
func (s *pass) ends() {
	f := s.f
	if s.offsets != nil {
		s.offsets.ends(s)
	}
	if s.times != nil {
		s.times.ends(s)
	}
	if s.aborted != nil {
		s.aborted.ends(s)
	}
	if f.name.state != "" {
		return
	}
	if next, ok := s.p.nextBase(f.name.base); ok {
		switch {
		case s.prev >= next:
			f.damage(-1, -1, "goes on to offset %d although the next segment begins at %d", s.prev, next)
		case s.prev+1 < next:
			f.note(-1, -1, "ends at offset %d, the next segment begins at %d: offsets %d..%d are not there (normal after compaction)", s.prev, next, s.prev+1, next-1)
			s.p.gap = next
		}
		return
	}
	mark := s.p.stable
	if mark.offset == everything && mark.hasEnd && s.prev+1 > mark.end {
		f.damage(s.prevPos, s.d.win.size, "the log goes on to offset %d, at the clean stop it ended at %d", s.prev, mark.end)
	}
	if mark.offset == everything && mark.hasEnd {
		mark.offset = mark.end
	}
	slot := s.p.slot // a mark at the very end of the file, with a larger offset, is of a log that went on behind a gap
	if slot != nil && !slot.unplaced && slot.segment == f.name.base && int64(slot.position) == f.size {
		return
	}
	if mark.known && mark.offset != everything && s.prev+1 < mark.offset {
		f.report(Problem{
			Severity: Damage, Position: s.d.win.size, End: -1, First: s.prev + 1, Last: mark.offset - 1,
			Text: fmt.Sprintf("data is missing: the log ends at offset %d, the stable mark is at %d", s.prev+1, mark.offset),
			fix:  fix{what: fixBatch, pos: s.d.win.size, end: s.d.win.size, first: s.prev + 1, last: mark.offset - 1, epoch: s.prevEpoch},
		})
	}
}

func batchItem(path string, pos int64, b record.Batch, size int) *Batch {
	item := &Batch{
		File: path, Position: record.Position(pos), Size: size, Base: b.BaseOffset(), Last: b.LastOffset(), Count: b.Count(),
		Codec: b.Codec().String(), Epoch: b.PartitionLeaderEpoch(), TimeType: b.TimestampType().String(), BaseTime: b.BaseTimestamp(),
		MaxTime:  b.MaxTimestamp(),
		Producer: Producer{ProducerID: b.ProducerID(), ProdEpoch: b.ProducerEpoch(), BaseSeq: b.BaseSequence(), LastSeq: b.LastSequence()},
		Txn:      b.Transactional(), Control: b.Control(), CRC: b.CRC(),
	}
	if ms, ok := b.DeleteHorizon(); ok {
		item.Horizon, item.BaseTime = &ms, -1
	}
	return item
}

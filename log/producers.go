package log

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/keeplog/keeplog/record"
)

// windowSize is how many batches of each producer are remembered: what a client may have in flight.
const windowSize = 5

// SentBatch is one batch of a producer.
type SentBatch struct {
	First, Last record.Sequence
	LastOffset  record.Offset
	OffsetDelta int32
	Timestamp   int64 // ms
}

// base is the offset of its first record.
func (s SentBatch) base() record.Offset { return s.LastOffset - record.Offset(s.OffsetDelta) }

// Producer is what a log knows of one idempotent producer.
type Producer struct {
	ID               record.ProducerID
	Epoch            record.ProducerEpoch
	CoordinatorEpoch int32 // −1: none
	LastTimestamp    int64 // ms, of the last batch
	TxnStart         record.Offset
	// Window holds the last batches, the oldest first; the first Count count.
	Window [windowSize]SentBatch
	Count  int
	// seenMs is when the last batch came, by the wall clock.
	seenMs int64
}

func (p *Producer) last() SentBatch {
	if p.Count == 0 {
		return SentBatch{First: record.NoSequence, Last: record.NoSequence, LastOffset: -1}
	}
	return p.Window[p.Count-1]
}

func (p *Producer) push(s SentBatch) {
	if p.Count == windowSize {
		copy(p.Window[:], p.Window[1:])
		p.Count--
	}
	p.Window[p.Count] = s
	p.Count++
}

// producers is the state of all producers of a log: pure, guarded by Log.mu.
type producers struct {
	byID    map[record.ProducerID]*Producer
	changed bool // since the last window file
}

// check says what an append of b would be: a repeated batch (dup is the first one), the next one (dup nil), or an error.
func (ps *producers) check(b record.Batch) (dup *SentBatch, err error) {
	p := ps.byID[b.ProducerID()]
	epoch, first, last := b.ProducerEpoch(), b.BaseSequence(), b.LastSequence()
	if epoch < 0 {
		return nil, fmt.Errorf("%w: producer %d with the epoch %d", ErrProducerFenced, b.ProducerID(), epoch)
	}
	if p == nil {
		return nil, nil
	}
	if epoch < p.Epoch {
		return nil, fmt.Errorf("%w: producer %d has epoch %d, the batch %d", ErrProducerFenced, p.ID, p.Epoch, epoch)
	}
	if epoch == p.Epoch {
		for i := range p.Count {
			if w := &p.Window[i]; w.First == first && w.Last == last {
				return w, nil
			}
		}
	}
	if epoch > p.Epoch {
		if first != 0 && p.Epoch != record.NoProducerEpoch {
			return nil, fmt.Errorf("%w: producer %d begins epoch %d with %d instead of 0", ErrOutOfOrderSequence, p.ID, epoch, first)
		}
		return nil, nil
	}
	before := p.last().Last
	if int64(first) != int64(before)+1 && (first != 0 || before != math.MaxInt32) {
		return nil, fmt.Errorf("%w: producer %d sent %d after %d", ErrOutOfOrderSequence, p.ID, first, before)
	}
	return nil, nil
}

// apply takes a batch that is in the log. It needs the header only.
func (ps *producers) apply(b record.Batch, nowMs int64) {
	if !b.HasProducer() {
		return
	}
	ps.changed = true
	id := b.ProducerID()
	p := ps.byID[id]
	if p == nil {
		p = &Producer{ID: id, Epoch: record.NoProducerEpoch, CoordinatorEpoch: -1, TxnStart: -1}
		if ps.byID == nil {
			ps.byID = map[record.ProducerID]*Producer{}
		}
		ps.byID[id] = p
	}
	if b.ProducerEpoch() != p.Epoch {
		p.Epoch, p.Count = b.ProducerEpoch(), 0
	}
	p.LastTimestamp, p.seenMs = b.MaxTimestamp(), max(nowMs, p.seenMs)
	switch {
	case b.Control():
		p.TxnStart = -1
		return
	case b.Transactional() && p.TxnStart < 0:
		p.TxnStart = b.BaseOffset()
	}
	p.push(SentBatch{
		First: b.BaseSequence(), Last: b.LastSequence(), LastOffset: b.LastOffset(),
		OffsetDelta: b.LastOffsetDelta(), Timestamp: b.MaxTimestamp(),
	})
}

// expire forgets producers that sent nothing for longer than maxAgeMs and have no open transaction.
func (ps *producers) expire(nowMs, maxAgeMs int64) {
	for id, p := range ps.byID {
		if p.TxnStart < 0 && nowMs-p.seenMs >= maxAgeMs {
			delete(ps.byID, id)
			ps.changed = true
		}
	}
}

// list copies the state, by producer id.
func (ps *producers) list() []Producer {
	out := make([]Producer, 0, len(ps.byID))
	for _, id := range slices.Sorted(maps.Keys(ps.byID)) {
		out = append(out, *ps.byID[id])
	}
	return out
}

// load replaces the state.
func (ps *producers) load(all []Producer, nowMs int64) {
	ps.byID, ps.changed = nil, false
	if len(all) > 0 {
		ps.byID = make(map[record.ProducerID]*Producer, len(all))
	}
	for i := range all {
		p := &all[i]
		p.seenMs = nowMs
		ps.byID[p.ID] = p
	}
}

// add takes producers that the log itself does not show any more.
func (ps *producers) add(all []Producer, nowMs int64) {
	for i := range all {
		p := &all[i]
		if ps.byID[p.ID] != nil {
			continue
		}
		if ps.byID == nil {
			ps.byID = map[record.ProducerID]*Producer{}
		}
		p.seenMs = nowMs
		ps.byID[p.ID] = p
		ps.changed = true
	}
}

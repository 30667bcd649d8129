package logtest

import (
	"fmt"

	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/record"
)

// sent is a batch that was given to the log.
type sent struct {
	base, last record.Offset
	stored     record.Batch // as it must be in the log
	firstMs    int64        // timestamp of its first record; each record is 1 ms later
}

func (s *sent) next() record.Offset { return s.last + 1 }

// model is what must be in a partition.
type model struct {
	origin  record.Offset // where the log once began
	batches []sent        // from origin on, without a hole but for gap
	// gap is where the log went on after a truncation to a start that lies inside a batch: that batch went, the offsets did not.
	gap record.Offset
	// pending may or may not be in the log: they are being appended, or their append failed with the directory.
	pending []sent
	// cut is where a truncation under way cuts; −1 for none.
	cut record.Offset
	// wasCut: after a truncation producers are only known by what is still in the log.
	wasCut bool
	// renewed is where a full truncation under way begins anew; −1 for none.
	renewed record.Offset
	// floor is what a power loss must leave: everything below was published as stable.
	floor record.Offset
	// startMin was durable when DeleteRecords returned; startMax is the highest that was asked for.
	startMin, startMax record.Offset
}

func newModel() model { return model{cut: -1, renewed: -1} }

func (m *model) end() record.Offset {
	if n := len(m.batches); n > 0 {
		return max(m.batches[n-1].next(), m.gap)
	}
	return max(m.origin, m.gap)
}

// promised is the smallest end after a power loss, or after a kill.
func (m *model) promised(killed bool) record.Offset {
	least := m.floor
	if killed {
		least = m.end()
	}
	if m.cut >= 0 {
		least = min(least, m.cut)
	}
	return least
}

// all are the batches that may be in the log.
func (m *model) all() []sent {
	if m.pending == nil {
		return m.batches
	}
	return append(m.batches[:len(m.batches):len(m.batches)], m.pending...)
}

// upTo are the batches below an end; ok is false where the end is inside a batch or beyond all.
func (m *model) upTo(end record.Offset) (batches []sent, ok bool) {
	all := m.all()
	if end == m.origin {
		return nil, true
	}
	for i := range all {
		if all[i].next() == end {
			return all[:i+1], true
		}
	}
	if end > m.origin && (end == m.gap || end == m.cut) {
		n := len(all)
		for n > 0 && all[n-1].next() > end {
			n--
		}
		return all[:n], true
	}
	return nil, false
}

// truncate forgets the batches that end above o.
func (m *model) truncate(o record.Offset) {
	n := len(m.batches)
	for n > 0 && m.batches[n-1].next() > o {
		n--
	}
	m.batches = m.batches[:n:n]
	m.pending = nil
	m.floor = min(m.floor, m.end())
}

// known are the batches whose producers a log must know that starts at start.
func (m *model) known(batches []sent, start record.Offset) []sent {
	if !m.wasCut && m.floor > m.origin {
		return batches // else its first file may be lost, and the log begin with the next
	}
	for len(batches) > 0 && batches[0].last < start {
		batches = batches[1:]
	}
	return batches
}

// producer is what the newest batch of a producer says.
type producer struct {
	epoch  record.ProducerEpoch
	next   record.Sequence
	window []*sent // its last five batches of that epoch, the newest first
}

// producers are those with a batch among the given.
func producers(batches []sent) map[record.ProducerID]*producer {
	all := map[record.ProducerID]*producer{}
	for i := len(batches) - 1; i >= 0; i-- {
		b := &batches[i]
		if !b.stored.HasProducer() {
			continue
		}
		p := all[b.stored.ProducerID()]
		if p == nil {
			p = &producer{epoch: b.stored.ProducerEpoch(), next: b.stored.LastSequence() + 1}
			all[b.stored.ProducerID()] = p
		}
		if b.stored.ProducerEpoch() == p.epoch && len(p.window) < 5 {
			p.window = append(p.window, b)
		}
	}
	return all
}

// partState is where a partition is in its life.
type partState uint8

const (
	opening  partState = iota // OpenLog has not returned for the first time
	live                      // there
	deleting                  // DeleteLog was called
	deleted                   // DeleteLog returned
)

// part is a partition of the world.
type part struct {
	id    log.Identity
	c     log.Config
	l     *log.Log // nil while closed
	state partState
	m     model
	epoch record.Epoch // the newest leader epoch that was used
}

func (p *part) String() string {
	return fmt.Sprintf("%s-%d/%x", p.id.Topic, p.id.Partition, p.id.TopicID[:2])
}

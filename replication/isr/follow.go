package isr

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/keeplog/keeplog/internal/invariant"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
)

// follow is a partition's part as a follower. Its mutex is held while batches are appended, never across an fsync: when end
// returns, no batch of the former leader comes in any more, and neither a truncation nor a move of the log start is under way.
type follow struct {
	now atomic.Pointer[following]

	mu          sync.Mutex
	uncleanFrom atomic.Int32 // 1 + the newest epoch that is known to have been elected uncleanly
}

// following is one partition's following of one leader in one epoch. The core belongs to the fetcher's goroutine.
type following struct {
	partition *Partition
	ref       PartitionRef
	fetcher   *fetcher
	epoch     record.Epoch

	core   *follower
	queued bool
	asleep bool // in the fetcher's list of those that wait for their time

	// cutting is closed when a truncation is over, starting when the log start has been moved; nil outside of them; guarded by follow.mu.
	cutting, starting chan struct{}
}

// unclean notes an epoch that was elected outside of the in-sync set.
func (w *follow) unclean(epoch record.Epoch) {
	if v := int32(epoch) + 1; v > w.uncleanFrom.Load() {
		w.uncleanFrom.Store(v)
	}
}

// end stops following and waits for what is changing the log.
func (w *follow) end() { w.replace(nil).wait() }

// changing is closed by what changes a log beside the fetching; nil is nothing.
type changing [2]chan struct{}

func (c changing) wait() {
	for _, done := range c {
		if done != nil {
			<-done
		}
	}
}

// replace gives what is changing the log for the former leader.
func (w *follow) replace(next *following) (c changing) {
	w.mu.Lock()
	old := w.now.Load()
	w.now.Store(next)
	if old != nil {
		c = changing{old.cutting, old.starting}
		if invariant.Seeded(invariant.StartNotAwaited) {
			c[1] = nil
		}
	}
	w.mu.Unlock()
	if old != nil {
		old.fetcher.post(func(m *mail) { m.gone = append(m.gone, old) })
	}
	return c
}

// flushed tells the fetcher that the stable end may have moved.
func (w *follow) flushed() {
	if f := w.now.Load(); f != nil {
		f.fetcher.post(func(m *mail) { m.flushed = append(m.flushed, f) })
	}
}

// begin follows a leader in an epoch. The log takes no batches of this broker's own any more. A broker that does so already
// goes on.
func (w *follow) begin(p *Partition, leader metadata.BrokerID, epoch record.Epoch) {
	if f := w.now.Load(); f != nil && f.epoch == epoch && f.fetcher.leader == leader {
		return
	}
	w.end()
	p.log.Follow(epoch)
	f := &following{
		partition: p, ref: PartitionRef{Topic: p.id.TopicID, Partition: p.id.Partition}, epoch: epoch, fetcher: p.replicas.fetcher(leader),
	}
	if f.fetcher == nil { // closing
		return
	}
	f.core = newFollower(epoch, record.Epoch(w.uncleanFrom.Load()-1), f.ends(), p.HighWatermark())
	w.replace(f)
	f.fetcher.post(func(m *mail) { m.came = append(m.came, f) })
}

// ends reads the log.
func (f *following) ends() ends {
	l := f.partition.log
	e := ends{start: l.StartOffset(), end: l.WrittenEnd(), stable: l.StableEnd(), lastEpoch: l.LatestEpoch()}
	e.stable = min(e.stable, e.end)
	return e
}

// endOf is where this replica's batches of epochs up to the given one end.
func (f *following) endOf(epoch record.Epoch) record.Offset {
	_, end := f.partition.log.EndOffsetForEpoch(epoch)
	return end
}

// append adds an answer's records, if this is still what the partition follows. whole is false where not all of them came in.
func (f *following) append(records []byte) (a log.Appended, e ends, whole bool, err error) {
	w := &f.partition.follow
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now.Load() != f {
		return a, e, false, ErrNotLeader
	}
	a, err = f.partition.log.AppendReplica(records, f.epoch)
	e = f.ends()
	return a, e, err == nil && e.end >= endOfBatches(records), err
}

// endOfBatches is the offset after the last whole batch.
func endOfBatches(b []byte) record.Offset {
	end := record.Offset(-1)
	for {
		batch, rest, err := record.Next(b)
		if err != nil || batch == nil {
			return end
		}
		end, b = batch.NextOffset(), rest
	}
}

// cut truncates, or with restart drops everything, on a goroutine of its own: readers may hold a truncation up for seconds.
func (f *following) cut(s step) {
	w := &f.partition.follow
	w.mu.Lock()
	if w.now.Load() != f {
		w.mu.Unlock()
		return
	}
	done, starting := make(chan struct{}), f.starting
	f.cutting = done
	w.mu.Unlock()
	f.partition.replicas.done.Go(func() {
		if starting != nil {
			<-starting
		}
		l := f.partition.log
		f.partition.replicas.opts.Logger.Info("truncating to what the leader has", "event", "replica.truncate", "log", l.Path(),
			"epoch", f.epoch, "from", l.WrittenEnd(), "to", s.at, "all", s.do == restart)
		var err error
		if s.do == restart {
			err = l.TruncateFullyAndStartAt(s.at)
		} else {
			err = l.TruncateTo(s.at)
		}
		f.lower()
		w.mu.Lock()
		f.cutting = nil
		w.mu.Unlock()
		close(done)
		f.fetcher.post(func(m *mail) { m.cut = append(m.cut, cutDone{f, err}) })
	})
}

// lower brings the visible high watermark into what a cut has left of the log: an unclean election took records away, or
// the leader's log begins above.
func (f *following) lower() {
	p := f.partition
	p.mu.Lock()
	defer p.mu.Unlock()
	hw := p.HighWatermark()
	if to := max(min(hw, p.log.WrittenEnd()), p.log.StartOffset()); to != hw && p.lead == nil && !invariant.Seeded(invariant.WatermarkLeft) {
		p.publish(to)
	}
}

// show makes the core's high watermark visible.
func (f *following) show() {
	p, w := f.partition, &f.partition.follow
	w.mu.Lock()
	if w.now.Load() != f {
		w.mu.Unlock()
		return
	}
	p.mu.Lock()
	if f.core.highWatermark > p.HighWatermark() {
		p.publish(f.core.highWatermark)
	}
	p.mu.Unlock()
	w.mu.Unlock()
	p.watchers.notify()
}

// moveStart moves the log start to the leader's, durably, beside the fetching.
func (f *following) moveStart(to record.Offset) {
	p, w := f.partition, &f.partition.follow
	w.mu.Lock()
	if w.now.Load() != f || f.starting != nil || f.cutting != nil {
		w.mu.Unlock()
		return
	}
	done := make(chan struct{})
	f.starting = done
	w.mu.Unlock()
	p.replicas.done.Go(func() {
		err := p.log.AdvanceStart(to)
		w.mu.Lock()
		f.starting = nil
		w.mu.Unlock()
		close(done)
		if err != nil { // the next flush, or what the leader says next, tries again
			p.replicas.opts.Logger.Warn("cannot move the log start", "event", "replica.start.failed", "log", p.log.Path(), "to", to, "error", err)
			return
		}
		f.fetcher.post(func(m *mail) { m.flushed = append(m.flushed, f) })
	})
}

// halt takes the partition offline on this broker.
func (f *following) halt(why error, at record.Offset) {
	p := f.partition
	p.replicas.opts.Logger.Error("this replica's committed records differ from the leader's: the partition is offline here", "event",
		"replica.halted", "topic", p.id.Topic, "partition", p.id.Partition, "epoch", f.epoch, "high_watermark", p.HighWatermark(),
		"asked_to_cut_to", at)
	p.shut(fmt.Errorf("%w: %w: to %d, the high watermark is %d", ErrOffline, why, at, p.HighWatermark()))
}

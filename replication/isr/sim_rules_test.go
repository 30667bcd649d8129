package isr

import (
	"slices"
	"time"

	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/metadata"
)

// This file is what must be true of single decisions and answers.

// latest checks the answer that a leader would give now to the question for the latest offset.
func (w *simWorld) latest(r *simReplica) {
	if r.lead == nil || !r.n.up || r.n.paused || !w.counts(r) || r.n.now() > r.n.lease || !r.lead.settled() {
		return
	}
	t := &w.truth[r.p]
	if r.hw < t.latest {
		w.broken("node %d, partition %d, epoch %d: latest offset %d after %d", r.n.id, r.p, r.epoch, r.hw, t.latest)
	}
	t.latest = max(t.latest, r.hw)
}

// onEnough checks that what a leader committed just now is on min.insync.replicas disks. What an unclean election has left was
// committed before, by other rules.
func (w *simWorld) onEnough(lead *simReplica) {
	last, have := len(w.truth[lead.p].committed)-1, 0
	if w.truth[lead.p].unclean > 0 && last < int(lead.lead.epochStart) {
		return
	}
	now, known := w.newest().Partition(lead.topic, int32(lead.p))
	for _, n := range w.nodes {
		r := n.replicas[lead.p]
		if id := metadata.BrokerID(n.id); known && slices.Contains(lead.lead.assigned, id) && !slices.Contains(now.Replicas, id) {
			have++ // a reassignment has ended that the leader has not heard of: who has gone had told the leader what it had
			continue
		}
		if r.topic == lead.topic && (r.robbed || r.synced > last && (last < r.start || r.log[last] == lead.log[last])) {
			have++
		}
	}
	if want := min(lead.lead.minInSync, len(lead.lead.assigned)); have < want {
		w.broken("partition %d: offset %d is committed, and on %d disks instead of %d", lead.p, last, have, want)
	}
}

// complete checks that who joins the in-sync set has all that was committed, and nothing else in its place.
func (w *simWorld) complete(topic metadata.TopicID, p int32, before, after *metadata.Partition) {
	committed := w.truth[p].committed
	if topic != w.topic || len(committed) == 0 {
		return
	}
	last := len(committed) - 1
	for _, id := range after.ISR {
		if slices.Contains(before.ISR, id) || slices.Contains(before.ELR, id) {
			continue
		}
		r := w.nodes[id].replicas[p]
		if !r.missing && (r.topic != topic || r.synced <= last || last >= r.start && r.log[last] != committed[last]) {
			w.broken("partition %d: node %d joins the in-sync set with %d flushed, %d are committed", p, id, r.synced, len(committed))
		}
		for i := max(r.start, w.truth[p].base); !r.missing && i < min(len(r.log), len(committed)); i++ {
			if r.log[i] != committed[i] {
				w.broken("partition %d: node %d joins the in-sync set with another record at %d than was committed", p, id, i)
				return
			}
		}
	}
}

// accepted checks changes of in-sync sets that were not refused: they were made of what the partition was, and who joins is the
// incarnation that is registered, and unfenced.
func (w *simWorld) accepted(was *metadata.Image, req *controller.AlterPartitionRequest) {
	ch := &req.Changes[0]
	part, ok := was.Partition(ch.Topic, ch.Partition)
	if !ok || part.Leader != req.Broker || part.LeaderEpoch != ch.LeaderEpoch || part.PartitionEpoch != ch.PartitionEpoch {
		w.broken("partition %d: a stale change of the in-sync set is accepted: %+v", ch.Partition, ch)
		return
	}
	for _, m := range ch.ISR {
		if slices.Contains(part.ISR, m.ID) {
			continue
		}
		if b, known := was.Broker(m.ID); !known || b.Fenced || b.Epoch != m.Epoch {
			w.broken("partition %d: node %d joins the in-sync set in its epoch %d, and is %+v", ch.Partition, m.ID, m.Epoch, b)
		}
	}
}

// simMercy is the time after a pause of everybody in which nobody is fenced who runs.
type simMercy struct {
	from, until time.Duration
	term        uint64
}

// pauseAll pauses all processes, as a machine does under them all that is suspended. The metadata log may, or may not, have
// another leader afterwards.
func (w *simWorld) pauseAll(d time.Duration) {
	whole := true
	for i, n := range w.nodes {
		b, ok := w.newest().Broker(int32(i))
		whole = whole && n.up && !n.paused && !n.stopping && ok && !b.Fenced && b.Epoch == n.epoch
	}
	if !whole || w.chief < 0 {
		return
	}
	w.lull = max(w.lull, w.now+d+2*time.Second)
	if w.chance(70) {
		w.frozen = w.now + d
	}
	w.mercy = simMercy{from: w.now, until: w.now + d + 900*time.Millisecond, term: w.term}
	for _, n := range w.nodes {
		n.pause(d)
	}
}

// fencing checks a record that may fence somebody.
func (w *simWorld) fencing(rec metadata.Record) {
	f, ok := rec.(metadata.BrokerFenced)
	if !ok || w.now < w.mercy.from || w.now > w.mercy.until || w.term != w.mercy.term {
		return
	}
	if n := w.nodes[f.ID]; f.Fenced && f.Epoch == n.epoch && n.up && !n.paused && !n.stopping {
		w.broken("node %d is fenced %v after a pause of everybody", f.ID, w.now-w.mercy.until)
	}
}

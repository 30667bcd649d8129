package isr

import (
	"slices"
	"time"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
)

// truth is what must stay true of a partition, seen from outside.
type simTruth struct {
	committed []simEntry
	// base is where committed begins to count: an unclean election makes a new truth, and its leader's log may begin above 0.
	base int
	// unclean is the newest epoch that was elected uncleanly: what leaders of earlier ones do is of no account.
	unclean record.Epoch
	// deleted is the highest log start that anybody asked for.
	deleted int
	// by is the epoch of the leader that committed it.
	by []record.Epoch
	// leaders says which incarnation led in an epoch.
	leaders map[record.Epoch][2]int
	// latest is the highest answer to a latest-offset query.
	latest record.Offset
	// epoch is the newest leader epoch in an image.
	epoch int32
	// alone: its leader was left alone in the in-sync set, by min.insync.replicas with right, and nobody else need have everything; then it is
	// found to have lost data.
	alone bool
}

// committed takes note of a leader's watermark: what lies below is for ever, and on the disks of the whole in-sync set.
func (w *simWorld) committed(r *simReplica) {
	t := &w.truth[r.p]
	if !w.counts(r) {
		return
	}
	if len(t.committed) < r.start {
		t.base = r.start
	}
	for i := max(r.verified, r.start, t.base); i < min(len(t.committed), int(r.hw)); i++ {
		if i >= len(r.log) || r.log[i] != t.committed[i] {
			w.broken("node %d, partition %d, epoch %d: offset %d was committed as %v, and is another below the watermark %d",
				r.n.id, r.p, r.epoch, i, t.committed[i], r.hw)
			return
		}
	}
	r.verified = max(r.verified, min(len(t.committed), int(r.hw)))
	if int(r.hw) <= len(t.committed) {
		return
	}
	// What an unclean election has left was committed before, by other disks than this one, which may not have flushed it yet.
	if left := t.unclean > 0 && r.hw <= r.lead.epochStart; int(r.hw) > r.synced && !left {
		w.broken("node %d, partition %d: the watermark %d is above the leader's flushed end %d", r.n.id, r.p, r.hw, r.synced)
		return
	}
	t.committed = append(t.committed, r.log[len(t.committed):r.hw]...)
	for len(t.by) < len(t.committed) {
		t.by = append(t.by, r.epoch)
	}
	r.verified = len(t.committed)
	if t.unclean > 0 && r.hw <= r.lead.epochStart {
		return // what an unclean election has left was committed before, by other disks than those of now
	}
	w.onDisks(r)
	w.onEnough(r)
}

// onDisks checks that everybody whom the newest image has in sync has flushed what a leader committed just now.
func (w *simWorld) onDisks(lead *simReplica) {
	p := lead.p
	part, ok := w.newest().Partition(w.topic, int32(p))
	if !ok {
		return
	}
	t := &w.truth[p]
	for _, id := range slices.Concat(part.ISR, part.ELR) {
		r := w.nodes[id].replicas[p]
		last := len(t.committed) - 1
		if r.missing || r.topic == w.topic && last < r.start && r.synced > last {
			continue
		}
		if r.topic != w.topic || r.synced <= last || r.log[last] != t.committed[last] {
			w.broken("partition %d: %d records are committed, node %d is in sync and has %d flushed", p, len(t.committed), id, r.synced)
		}
	}
}

// acked checks a record that was acknowledged.
func (w *simWorld) acked(r *simReplica, a simWait) {
	w.stats.acked++
	t := &w.truth[r.p]
	if !w.counts(r) {
		return
	}
	if at := a.end - 1; at >= len(t.committed) || t.committed[at].value != a.value {
		w.broken("node %d, partition %d: value %d is acknowledged at %d and not committed there", r.n.id, r.p, a.value, at)
	}
}

// elected checks a leader at its election.
func (w *simWorld) elected(r *simReplica, part *metadata.Partition) {
	w.stats.elections++
	if r.topic != w.topic {
		return
	}
	t := &w.truth[r.p]
	if t.leaders == nil {
		t.leaders = map[record.Epoch][2]int{}
	}
	epoch, who := record.Epoch(part.LeaderEpoch), [2]int{r.n.id, r.n.incarnations}
	if had, ok := t.leaders[epoch]; ok && had != who {
		w.broken("partition %d: nodes %v and %v lead in epoch %d", r.p, had, who, epoch)
		return
	}
	t.leaders[epoch] = who
	w.note("node %d leads partition %d in epoch %d from %d, in sync %v, eligible %v", r.n.id, r.p, epoch, len(r.log), part.ISR, part.ELR)
	for i, by := range t.by { // what later epochs committed does not concern it
		if i >= max(r.start, t.base) && by < epoch && (i >= len(r.log) || r.log[i] != t.committed[i]) {
			w.broken("partition %d: node %d leads in epoch %d without what epoch %d committed at %d", r.p, r.n.id, epoch, by, i)
			return
		}
	}
}

// check holds after every step.
func (w *simWorld) check() {
	img := w.newest()
	for p := range simPartitions {
		part, ok := img.Partition(w.topic, int32(p))
		if !ok {
			continue
		}
		if part.LeaderEpoch < w.truth[p].epoch {
			w.broken("partition %d: the leader epoch falls to %d", p, part.LeaderEpoch)
		}
		w.truth[p].epoch = part.LeaderEpoch
		for _, id := range part.ISR {
			if !slices.Contains(part.Replicas, id) {
				w.broken("partition %d: %d is in sync and no replica", p, id)
			}
		}
		for _, n := range w.nodes {
			r := n.replicas[p]
			if n.up && int(r.hw) > len(r.log) {
				w.broken("node %d, partition %d: the watermark %d is above the end %d", n.id, p, r.hw, len(r.log))
			}
			w.latest(r)
			if r.topic == w.topic && r.start > w.truth[p].deleted {
				w.broken("node %d, partition %d: it begins at %d, and only what lies below %d was deleted", n.id, p, r.start, w.truth[p].deleted)
			}
		}
	}
}

// producer writes one value after another.
func (w *simWorld) producer() {
	if !w.quiet {
		w.after(w.between(10*time.Millisecond, 150*time.Millisecond), w.producer)
	}
	w.values++
	value, p, all := w.values, w.rng.IntN(simPartitions), w.chance(75)
	n := w.nodes[w.rng.IntN(simNodes)]
	if !n.up {
		return
	}
	topic := topicOf(n.image)
	part, ok := n.image.Partition(topic, int32(p))
	if !ok || n.image.LeaderOf(part) < 0 {
		return
	}
	to := w.nodes[n.image.LeaderOf(part)]
	w.after(w.delay(), func() {
		if to.up {
			to.do(to.incarnations, func() { to.produce(topic, p, value, all) })
		}
	})
}

// whole says that everybody is back and in sync.
func (w *simWorld) whole() bool {
	img := w.newest()
	for _, n := range w.nodes {
		if b, ok := img.Broker(int32(n.id)); !n.up || !ok || b.Fenced || n.epoch == 0 {
			return false
		}
	}
	for p := range simPartitions {
		part, ok := img.Partition(w.topic, int32(p))
		if !ok || len(part.Adding)+len(part.Removing) > 0 || len(part.ISR) != len(part.Replicas) || img.LeaderOf(part) < 0 {
			return false
		}
	}
	return true
}

// settled checks what must be true at most a minute after the last fault.
func (w *simWorld) settled() {
	img := w.newest()
	for _, n := range w.nodes {
		if b, ok := img.Broker(int32(n.id)); !n.up || !ok || b.Fenced {
			w.broken("after a minute of peace node %d is up %v, fenced or unknown", n.id, n.up)
			return
		}
	}
	for p := range simPartitions {
		part, ok := img.Partition(w.topic, int32(p))
		if !ok {
			w.broken("there is no partition %d", p)
			return
		}
		if w.truth[p].alone && img.LeaderOf(part) < 0 {
			continue // until somebody elects uncleanly
		}
		if len(part.Adding)+len(part.Removing) > 0 || len(part.ISR) != len(part.Replicas) || img.LeaderOf(part) < 0 {
			w.broken("after a minute of peace partition %d has the leader %d, replicas %v and in sync %v", p, img.LeaderOf(part), part.Replicas, part.ISR)
			return
		}
		lead := w.nodes[img.LeaderOf(part)].replicas[p]
		for _, n := range w.nodes {
			r := n.replicas[p]
			if !slices.Contains(part.Replicas, int32(n.id)) {
				continue
			}
			if from := max(r.start, lead.start); r.topic != lead.topic || len(r.log) != len(lead.log) || !slices.Equal(r.log[from:], lead.log[from:]) || r.synced != len(r.log) || int(r.hw) != len(r.log) {
				w.broken("after a minute of peace node %d, partition %d: end %d, flushed %d, watermark %d, the leader's end %d",
					n.id, p, len(r.log), r.synced, r.hw, len(lead.log))
				return
			}
			if r.start < lead.start {
				w.broken("after a minute of peace node %d, partition %d begins at %d, the leader's log at %d", n.id, p, r.start, lead.start)
			}
		}
		if len(w.truth[p].committed) != len(lead.log) {
			w.broken("partition %d: %d of %d records are committed in the end", p, len(w.truth[p].committed), len(lead.log))
		}
	}
	if w.stats.acked == 0 {
		w.broken("nothing was acknowledged")
	}
}

// decided checks one decision about a partition: who joins the in-sync set is alive, and a reassignment ends with everybody in sync
// whom it brought.
func (w *simWorld) decided(topic metadata.TopicID, p int32, was, is *metadata.Image) {
	before, had := was.Partition(topic, p)
	after, ok := is.Partition(topic, p)
	if !had || !ok {
		return
	}
	for _, id := range after.ISR {
		if b, known := was.Broker(id); !slices.Contains(before.ISR, id) && !slices.Contains(before.ELR, id) && (!known || b.Fenced) {
			w.broken("partition %d: node %d joins the in-sync set and is fenced", p, id)
		}
	}
	w.complete(topic, p, before, after)
	for _, id := range before.Adding {
		if len(after.Adding) == 0 && slices.Contains(after.Replicas, id) && !slices.Contains(after.ISR, id) && !slices.Contains(after.Removing, id) {
			w.broken("partition %d: reassigned to %v without %d in sync", p, after.Replicas, id)
		}
	}
}

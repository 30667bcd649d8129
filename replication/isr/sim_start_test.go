package isr

import (
	"slices"

	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/record"
)

// This file is what the simulated replicas do as package log does: epochs, log starts, and logs that begin anew.

// epochs are where the epochs of a log begin: of one without records, what is known of the last.
func (r *simReplica) epochs() (out []log.EpochEntry) {
	for i := r.start; i < len(r.log); i++ {
		if n := len(out); n == 0 || out[n-1].Epoch != r.log[i].epoch {
			out = append(out, log.EpochEntry{Epoch: r.log[i].epoch, Start: record.Offset(i)})
		}
	}
	if len(out) == 0 && r.below >= 0 {
		out = append(out, log.EpochEntry{Epoch: r.below, Start: record.Offset(r.start)})
	}
	return out
}

// endOf is where the entries of epochs up to e end, as far as this log knows; −1 where it knows nothing.
func (r *simReplica) endOf(e record.Epoch) record.Offset {
	_, end := endIn(r.epochs(), e, len(r.log))
	return end
}

// epochEnd is endOf as a leader answers it.
func (r *simReplica) epochEnd(e record.Epoch) (record.Epoch, record.Offset) {
	if e == r.epoch {
		return e, record.Offset(len(r.log))
	}
	entries := r.epochs()
	if n := len(entries); n == 0 || entries[n-1].Epoch < r.epoch {
		entries = append(entries, log.EpochEntry{Epoch: r.epoch, Start: r.lead.epochStart})
	}
	return endIn(entries, e, len(r.log))
}

func endIn(entries []log.EpochEntry, e record.Epoch, end int) (record.Epoch, record.Offset) {
	n := len(entries)
	switch {
	case n == 0 || e < 0 || e > entries[n-1].Epoch:
		return -1, -1
	case e == entries[n-1].Epoch:
		return e, record.Offset(end)
	case e < entries[0].Epoch:
		return e, entries[0].Start
	}
	for i := n - 2; ; i-- {
		if entries[i].Epoch <= e {
			return entries[i].Epoch, entries[i+1].Start
		}
	}
}

// unknown is what a leader cannot tell of a follower's log, because it has deleted that.
func (r *simReplica) unknown(c *claim, end record.Offset) bool {
	newest := record.Epoch(-1)
	if entries := r.epochs(); len(entries) > 0 {
		newest = entries[len(entries)-1].Epoch
	}
	return unknown(&ReplicaFetch{Offset: c.offset, LogStart: c.start, LastFetchedEpoch: c.lastEpoch}, newest, end, record.Offset(r.start))
}

// moveStart deletes what lies below an offset.
func (r *simReplica) moveStart(to int) {
	if to > r.start && to <= r.synced {
		r.start, r.below = to, r.log[to-1].epoch
	}
}

// restart drops the whole log and begins at an offset: nobody who counts as complete does that.
func (r *simReplica) restart(at int) {
	w := r.n.w
	w.note("node %d, partition %d: %d to %d are dropped, it begins anew at %d", r.n.id, r.p, r.start, len(r.log), at)
	if part, ok := w.newest().Partition(r.topic, int32(r.p)); ok && !r.missing && at < min(len(r.log), len(w.truth[r.p].committed)) &&
		(slices.Contains(part.ISR, int32(r.n.id)) || slices.Contains(part.ELR, int32(r.n.id))) {
		w.broken("node %d, partition %d: it is in sync %v or eligible %v, and drops what is committed", r.n.id, r.p, part.ISR, part.ELR)
	}
	w.stats.truncations++
	w.stats.restarts++
	r.log, r.start, r.below, r.synced, r.verified = make([]simEntry, at), at, -1, at, 0
	r.hwFile = min(r.hwFile, record.Offset(at)) // the checkpoint is lowered before the cut
}

// wipe is what becomes of a replica that a reassignment has taken away: its log is deleted.
func (r *simReplica) wipe(epoch record.Epoch) {
	if r.lead != nil || r.fol != nil || len(r.log) > 0 {
		r.n.w.note("node %d is no replica of partition %d any more", r.n.id, r.p)
		r.n.w.stats.truncations++
	}
	r.quit()
	r.epoch, r.log, r.start, r.below, r.synced, r.verified = epoch, nil, 0, -1, 0, 0
	r.hw, r.hwFile, r.missing, r.robbed, r.shut, r.uncleanFrom = 0, 0, false, false, false, -1
}

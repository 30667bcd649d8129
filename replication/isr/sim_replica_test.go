package isr

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
)

// entry is one record of a simulated log, its offset is its place.
type simEntry struct {
	topic byte // which topic of the name it was written to
	epoch record.Epoch
	value int
}

// replica is one partition on one node: a log on its disk, of which the first synced entries are flushed, and a role.
type simReplica struct {
	n *simNode
	p int
	simDisk
	missing  bool
	shut     bool // the log did not open
	lead     *leader
	fol      *follower
	leader   int
	epoch    record.Epoch
	hw       record.Offset
	reign    uint64 // counts the epochs of this process, for answers that come late
	flushing bool
	starting int // where the log start is being moved to, 0 for nowhere
	waits    []simWait
	verified int // so many entries were compared with the truth
	// uncleanFrom is the newest epoch that is known to have been elected uncleanly.
	uncleanFrom record.Epoch
}

// disk is what a replica has on it. topic is whose log it is.
type simDisk struct {
	topic  metadata.TopicID
	log    []simEntry // what lies below start is deleted
	start  int
	below  record.Epoch // of the record before start, −1 unknown
	synced int
	hwFile record.Offset
	robbed bool // the disk has lost what it had
}

// wait is a produce request that is not answered yet.
type simWait struct {
	end    int
	value  int
	answer func(ok bool)
}

func (r *simReplica) ends() ends {
	e := ends{start: record.Offset(r.start), end: record.Offset(len(r.log)), stable: record.Offset(r.synced), lastEpoch: r.below}
	if len(r.log) > r.start {
		e.lastEpoch = r.log[len(r.log)-1].epoch
	}
	return e
}

// crash loses what the memory has, and with the power some of what was not flushed.
func (r *simReplica) crash(power bool) {
	if power {
		r.log = r.log[:r.synced+r.n.w.rng.IntN(len(r.log)-r.synced+1)]
	}
	for _, w := range r.waits {
		w.answer(false)
	}
	r.waits = nil
}

// recover is what opening a log does, if it opens: what is read is made durable first.
func (r *simReplica) recover() {
	if r.shut = !r.n.w.peace && r.n.w.chance(5); r.shut {
		r.n.w.stats.shut++
		r.n.w.note("node %d, partition %d does not open", r.n.id, r.p)
	} else {
		r.synced = len(r.log)
	}
	r.lead, r.fol, r.epoch, r.leader, r.flushing, r.starting = nil, nil, -1, -1, false, 0
	r.hw = max(min(r.hwFile, record.Offset(len(r.log))), record.Offset(r.start))
	r.verified = 0
	if len(r.log) > r.start { // it is remembered of a log without records only
		r.below = -1
	}
}

func (r *simReplica) state(part *metadata.Partition) partitionState {
	return partitionState{
		partitionEpoch: part.PartitionEpoch, inSync: part.ISR, assigned: part.Replicas, members: r.n.w.members(r.n.image),
		minInSync: r.n.w.minInSyncOf(r.n.image, part), unclean: part.Unclean,
	}
}

// setRole follows the image.
func (r *simReplica) setRole(part *metadata.Partition) {
	w, now, epoch := r.n.w, r.n.now(), record.Epoch(part.LeaderEpoch)
	if epoch < r.epoch {
		w.broken("node %d, partition %d: leader epoch falls from %d to %d", r.n.id, r.p, r.epoch, epoch)
		return
	}
	if part.UncleanEpoch > 0 {
		r.uncleanFrom = record.Epoch(part.UncleanEpoch)
	}
	to := int(r.n.image.LeaderOf(part))
	switch {
	case !slices.Contains(part.Replicas, int32(r.n.id)):
		r.wipe(epoch)
		return
	case r.shut:
		r.epoch = epoch
		return
	case to == r.n.id && r.lead != nil && r.epoch == epoch:
		if r.lead.changed(r.state(part), now) {
			r.advanced()
		}
		if r.lead.forgot(-1) {
			r.n.wake(r.p)
		}
		return
	case to == r.n.id:
		r.quit()
		r.epoch, r.leader = epoch, to
		w.elected(r, part)
		r.lead = newLeader(leaderConfig{
			self: int32(r.n.id), epoch: epoch, state: r.state(part), lag: simLag, epochStart: record.Offset(len(r.log)),
			highWatermark: r.hw, stable: record.Offset(r.synced), logStart: record.Offset(r.start), now: now,
		})
		r.advanced()
		return
	case r.leader == to && r.epoch == epoch:
		return
	}
	r.quit()
	r.epoch, r.leader = epoch, to
	if to < 0 {
		return
	}
	r.fol = newFollower(epoch, r.uncleanFrom, r.ends(), r.hw)
	if r.n.links[to] == nil {
		r.n.links[to] = &simLink{n: r.n, to: to}
	}
	r.n.links[to].pump()
}

const simLag = 5 * time.Second

// quit ends the role.
func (r *simReplica) quit() {
	r.started() // whoever takes another role waits for that
	r.reign++
	for _, w := range r.waits {
		w.answer(false)
	}
	r.waits, r.lead, r.fol, r.leader = nil, nil, nil, -1
}

// produce is acks=all, or acks=1, which needs the lease and is not waited for here.
func (r *simReplica) produce(value int, all bool, answer func(ok bool)) {
	if r.lead == nil || all && !r.lead.enough() || !all && r.n.now() > r.n.lease {
		r.n.w.stats.refused++
		answer(false)
		return
	}
	r.log = append(r.log, simEntry{r.topic[1], r.epoch, value})
	if all {
		r.waits = append(r.waits, simWait{len(r.log), value, answer})
	}
	r.flush()
	r.n.wake(r.p)
}

// flush makes what is written durable, after a while.
func (r *simReplica) flush() {
	if r.flushing || r.synced == len(r.log) {
		return
	}
	r.flushing = true
	end, reign, truncations := len(r.log), r.reign, r.n.w.stats.truncations
	r.n.later(r.n.w.between(200*time.Microsecond, 10*time.Millisecond)+r.n.w.stall[r.n.id], func() {
		r.flushing = false
		if truncations != r.n.w.stats.truncations {
			end = min(end, r.synced) // the flush before a cut says nothing of what came behind it
		}
		r.synced = max(r.synced, min(end, len(r.log)))
		r.flush()
		if reign != r.reign {
			return
		}
		switch {
		case r.lead != nil && r.lead.ownStable(record.Offset(r.synced), r.n.now()):
			r.advanced()
		case r.fol != nil && r.fol.flushed(record.Offset(r.synced)):
			r.startDue()
			r.n.links[r.leader].pump()
		}
	})
}

// advanced takes the core's watermark over, and answers who waited for it.
func (r *simReplica) advanced() {
	hw := r.lead.highWatermark
	if hw < r.hw {
		r.n.w.broken("node %d, partition %d: the watermark falls from %d to %d", r.n.id, r.p, r.hw, hw)
	}
	r.hw = hw
	r.n.w.committed(r)
	left := r.waits[:0]
	for _, w := range r.waits {
		switch {
		case record.Offset(w.end) > hw:
			left = append(left, w)
		case !r.lead.enough():
			w.answer(false)
		default:
			r.n.w.acked(r, w)
			w.answer(true)
		}
	}
	r.waits = left
}

// propose asks for the in-sync set that the core wants.
func (r *simReplica) propose() {
	pr := r.lead.propose(record.Offset(len(r.log)), r.n.now())
	if pr == nil {
		return
	}
	reign, lead := r.reign, r.lead
	ch := controller.ISRChange{
		Topic: r.topic, Partition: int32(r.p), LeaderEpoch: int32(lead.epoch), PartitionEpoch: pr.partitionEpoch, Recovered: true,
	}
	for _, m := range pr.inSync {
		ch.ISR = append(ch.ISR, controller.InSyncMember(m))
	}
	req := controller.AlterPartitionRequest{Broker: int32(r.n.id), Epoch: r.n.epoch, Changes: []controller.ISRChange{ch}}
	answered := func(c Changed, err error) {
		if r.reign != reign {
			return
		}
		if lead.answered(pr.attempt, c, err, r.n.now()) {
			r.advanced()
		}
		if lead.forgot(-1) {
			r.n.wake(r.p)
		}
	}
	r.n.later(r.n.w.trap(r.lead, pr), func() { r.ask(req, answered) })
}

// ask sends a change of the in-sync set to the controller.
func (r *simReplica) ask(req controller.AlterPartitionRequest, answered func(Changed, error)) {
	r.n.callChief(func(t *simNode) func() {
		was := t.image
		answers, err := t.control.AlterPartition(context.Background(), req)
		if err == nil {
			if err = answers[0].Err; err == nil {
				r.n.w.accepted(was, &req)
			}
		}
		return func() {
			switch {
			case errors.Is(err, controller.ErrIneligibleReplica):
				answered(Changed{}, ErrIneligible)
			case err != nil:
				answered(Changed{}, err)
			default:
				a := answers[0]
				answered(Changed{a.Leader, record.Epoch(a.LeaderEpoch), a.PartitionEpoch, a.ISR, a.Unclean}, nil)
			}
		}
	}, func() { answered(Changed{}, errors.New("no answer")) })
}

// fetched is the leader's side of one partition of a fetch: where the follower's log leaves this one, or nothing.
func (r *simReplica) fetched(from int, brokerEpoch int64, sc *simClaim) (part simPart) {
	c := &sc.c
	part = simPart{p: r.p, topic: sc.topic, highWatermark: r.hw, logStart: record.Offset(r.start), diverging: -1}
	switch {
	case sc.topic != r.topic:
		part.err = ErrUnknownPartition
		return part
	case r.lead == nil || c.epoch > r.epoch:
		part.err = ErrNotLeader
		return part
	case c.epoch < r.epoch:
		part.err = ErrFencedLeaderEpoch
		return part
	}
	if e, end := r.epochEnd(c.lastEpoch); c.lastEpoch >= 0 && end >= 0 && (e < c.lastEpoch || end < c.offset || r.unknown(c, end)) {
		part.diverging, part.divergingEnd = e, end
		return part
	}
	if int(c.offset) < r.start || int(c.offset) > len(r.log) {
		part.err = log.ErrOffsetOutOfRange
		return part
	}
	if r.lead.replicaFetched(fetched{
		id: int32(from), brokerEpoch: brokerEpoch, written: c.offset, stable: c.stable, logStart: c.start, leaderEnd: record.Offset(len(r.log)),
	}, r.n.now()) {
		r.advanced()
	}
	r.propose()
	part.highWatermark = r.hw
	return part
}

// answered is the follower's side.
func (r *simReplica) answered(l *simLink, seq int64, part simPart) {
	a := answer{
		seq: seq, err: part.err, highWatermark: part.highWatermark, logStart: part.logStart, divergingEpoch: part.diverging, divergingEnd: part.divergingEnd,
		records: len(part.records) > 0,
	}
	s := r.fol.answered(a, r.endOf, r.n.now())
	switch s.do {
	case appendAll:
		r.append(l, part)
	case truncate:
		r.started()
		r.truncate(int(s.at))
		r.fol.cut(r.ends())
		l.reset()
	case restart:
		r.started()
		r.restart(int(s.at))
		r.fol.cut(r.ends())
		l.reset()
	case halt:
		r.n.w.broken("node %d, partition %d: %v: %d below %d", r.n.id, r.p, r.fol.offline, s.at, r.hw)
	case nothing:
	}
	if r.fol != nil {
		r.hw = r.fol.highWatermark
	}
	if s.start >= 0 {
		r.beginStart(int(s.start))
	}
}

func (r *simReplica) append(l *simLink, part simPart) {
	if part.base > len(r.log) {
		r.fol.unlist()
		l.reset()
		return
	}
	base := record.Offset(len(r.log))
	for i, e := range part.records {
		at := part.base + i
		if at < len(r.log) {
			if r.log[at] != e {
				r.n.w.broken("node %d, partition %d: offset %d is %v here and %v at the leader", r.n.id, r.p, at, r.log[at], e)
			}
			continue
		}
		if e.epoch > r.fol.epoch {
			break
		}
		r.log = append(r.log, e)
	}
	if _, intact := r.fol.appended(base, r.ends(), part.highWatermark); !intact {
		l.reset()
	}
	r.flush()
}

func (r *simReplica) truncate(at int) {
	w := r.n.w
	w.note("node %d, partition %d: %d is cut to %d", r.n.id, r.p, len(r.log), at)
	if at < len(w.truth[r.p].committed) && !r.missing && r.topic == w.topic {
		for i := max(at, w.truth[r.p].base); i < min(len(r.log), len(w.truth[r.p].committed)); i++ {
			if r.log[i] == w.truth[r.p].committed[i] {
				w.broken("node %d, partition %d: committed offset %d is cut", r.n.id, r.p, i)
				return
			}
		}
	}
	w.stats.truncations++
	r.log = r.log[:min(at, len(r.log))]
	r.synced, r.verified = min(r.synced, len(r.log)), min(r.verified, at)
	r.hwFile = min(r.hwFile, record.Offset(at)) // the checkpoint is lowered before the cut
}

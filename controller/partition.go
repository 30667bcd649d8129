package controller

import (
	"slices"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/internal/invariant"
	"github.com/keeplog/keeplog/metadata"
)

// edit is a change of one partition in the making. A plan says what happened by writing next; finish follows the rules for the
// rest and gives the record.
//
//	next.ISR, next.ELR, next.Replicas … ──► reassignment done? ──► eligible set ──► leader ──► PartitionChanged, or nothing
type edit struct {
	p     *planner
	topic *metadata.Topic
	index int
	was   *metadata.Partition
	// next begins as a copy of was. Its slices are replaced and never written to.
	next metadata.Partition
	// lost is a replica that misses data, and so is in no set afterwards; NoLeader for none.
	lost metadata.BrokerID
	// marked says that what follows may cut committed records: a new leader epoch begins, and it is an unclean one.
	marked bool
	// preferred moves the leadership to the first replica where that one may lead; unclean lets any live replica lead where no
	// other may.
	preferred, unclean bool
}

func (p *planner) edit(t *metadata.Topic, i int) *edit {
	return &edit{p: p, topic: t, index: i, was: t.Partitions[i], next: *t.Partitions[i], lost: metadata.NoLeader}
}

func (e *edit) ref() PartitionRef { return PartitionRef{e.topic.ID, int32(e.index)} }

// without is the set without some members; the set itself where it has none of them.
func without(set []metadata.BrokerID, ids ...metadata.BrokerID) []metadata.BrokerID {
	in := func(b metadata.BrokerID) bool { return slices.Contains(ids, b) }
	if !slices.ContainsFunc(set, in) {
		return set
	}
	return slices.DeleteFunc(slices.Clone(set), in)
}

// within is the members of a set that another has too.
func within(set, other []metadata.BrokerID) []metadata.BrokerID {
	return slices.DeleteFunc(slices.Clone(set), func(b metadata.BrokerID) bool { return !slices.Contains(other, b) })
}

func sameMembers(a, b []metadata.BrokerID) bool {
	return len(a) == len(b) && len(within(a, b)) == len(a)
}

// remove takes brokers out of the in-sync set.
func (e *edit) remove(ids ...metadata.BrokerID) { e.next.ISR = without(e.next.ISR, ids...) }

// lose takes a broker that misses data out of both sets.
func (e *edit) lose(id metadata.BrokerID) {
	e.lost = id
	if invariant.Seeded(invariant.LostStays) {
		e.lost = metadata.NoLeader
		e.remove(id)
		return
	}
	e.next.ISR, e.next.ELR = without(e.next.ISR, id), without(e.next.ELR, id)
}

// finish gives the record; false when nothing changes.
func (e *edit) finish() (metadata.PartitionChanged, bool) {
	e.completeReassignment()
	e.settle()
	e.elect()
	e.keepEligible()
	return e.record()
}

// enough is the size from which the high watermark moves, and below which no decision of ours takes the in-sync set.
func (e *edit) enough() int { return e.p.topicRules(e.topic).MinInsync(e.next.Settled()) }

// completeReassignment ends a reassignment when every replica that comes is in sync, and those that stay are enough without
// those that go.
func (e *edit) completeReassignment() {
	n := &e.next
	if len(n.Adding)+len(n.Removing) == 0 || len(within(n.Adding, n.ISR)) < len(n.Adding) && !invariant.Seeded(invariant.DropsTooEarly) {
		return
	}
	done := *n
	done.Replicas, done.Adding, done.Removing = without(n.Replicas, n.Removing...), nil, nil
	done.ISR = without(n.ISR, n.Removing...)
	// Those that go and have all that was committed are needed where those that stay are too few, in sync by now or only eligible.
	complete := len(within(n.Removing, e.was.ISR))+len(within(n.Removing, e.was.ELR)) > 0
	if len(done.ISR) == 0 || complete && len(done.ISR) < e.p.topicRules(e.topic).MinInsync(done.Settled()) {
		return
	}
	if e.handedOver(&done) {
		*n = done
	}
}

// handedOver says that those that go may go: each of them that is in sync knows who leads. Until then a new leader's watermark
// waits for them, or it would give out latest offsets above those that a former leader still answers. Where one that goes
// leads, the leadership goes first.
func (e *edit) handedOver(done *metadata.Partition) bool {
	n := &e.next
	going := within(n.Removing, n.ISR)
	if len(going) == 0 || e.p.heard == nil || invariant.Seeded(invariant.LeaderDropped) {
		return true
	}
	if !slices.Contains(going, n.Leader) || !e.able(n.Leader) {
		return e.p.heard(e.ref(), e.was.LeaderEpoch, going)
	}
	for _, drained := range []bool{false, true} {
		if i := slices.IndexFunc(done.Replicas, func(id metadata.BrokerID) bool {
			return slices.Contains(done.ISR, id) && e.able(id) && (drained || !e.p.drained(id))
		}); i >= 0 {
			n.Leader = done.Replicas[i]
			break
		}
	}
	return false
}

// settle makes the eligible set (KIP-966) follow from the in-sync set: empty where that is large enough, else all that were
// in one of the sets and have lost nothing. The high watermark stands still below min.insync.replicas, so whoever leaves the
// in-sync set there has all that was committed, and keeps it.
func (e *edit) settle() {
	n := &e.next
	if e.p.img.Feature(elrFeature) == 0 {
		if len(n.ISR) == 0 && len(n.ELR) == 0 {
			n.ISR = within(without(e.was.ISR, e.lost), n.Replicas)
		}
		return
	}
	if len(n.ISR) == len(n.Replicas) || len(n.ISR) >= e.enough() {
		if !invariant.Seeded(invariant.BehindEligible) {
			n.ELR = nil
			return
		}
	}
	n.ELR = e.eligible()
}

// eligible are those that leave the in-sync set with all that was committed.
func (e *edit) eligible() (elr []metadata.BrokerID) {
	n := &e.next
	for _, id := range n.Replicas {
		was := slices.Contains(n.ELR, id) || slices.Contains(e.was.ISR, id) || slices.Contains(e.was.ELR, id)
		if was && id != e.lost && !slices.Contains(n.ISR, id) {
			elr = append(elr, id)
		}
	}
	return elr
}

// keepEligible: where nobody leads nothing is committed, however large the in-sync set is; who leaves it there stays eligible, for those
// that are left in it may turn out to have lost data. The next leader's edit settles that: so a last leader that is dead is taken out of the
// image here, for it would lead again with nothing but its own return.
func (e *edit) keepEligible() {
	n := &e.next
	if e.p.leads(n.Leader) || e.p.img.Feature(elrFeature) == 0 || len(e.was.ISR) == 0 {
		return
	}
	if elr := e.eligible(); len(elr) > 0 {
		if len(n.ISR) >= e.enough() {
			n.Leader = metadata.NoLeader
		}
		n.ELR = elr
	}
}

// mayLead says that a replica is alive and in order, and has all that was committed. Who is not in sync, only eligible, may just be so because it is
// out of order: it has to have told this controller that it is not.
func (e *edit) mayLead(id metadata.BrokerID) bool {
	n := &e.next
	return slices.Contains(n.Replicas, id) && e.able(id) && e.complete(id) && (slices.Contains(n.ISR, id) || !e.p.reported || e.p.orders[id].heard)
}

// able says that a replica's broker is alive, and has not told that it can neither lead nor follow with it.
func (e *edit) able(id metadata.BrokerID) bool {
	return e.p.mayLead(id) && !e.p.outOfOrder(id, e.ref(), &e.next)
}

// outOfOrder says that a broker has told that its replica can be neither led nor followed. An only replica is its leader all the same.
func (p *planner) outOfOrder(id metadata.BrokerID, ref PartitionRef, part *metadata.Partition) bool {
	o := p.orders[id]
	return len(part.Replicas) > 1 && (o.out[ref] || len(o.offline) > 0 && p.offline(id, part, o.offline))
}

// offline says that a replica is in a data directory that has failed.
func (p *planner) offline(id metadata.BrokerID, part *metadata.Partition, dirs []metadata.DirectoryID) bool {
	b, ok := p.img.Broker(id)
	if !ok {
		return false
	}
	at := slices.Index(part.Replicas, id)
	return at >= 0 && at < len(part.Directories) && slices.Contains(dirs, part.Directories[at]) ||
		!slices.ContainsFunc(b.Directories, func(d metadata.DirectoryID) bool { return !slices.Contains(dirs, d) })
}

// complete says that a replica has all that was committed.
func (e *edit) complete(id metadata.BrokerID) bool {
	return slices.Contains(e.next.ISR, id) || len(e.next.ISR) == 0 && slices.Contains(e.next.ELR, id)
}

// elect chooses the leader: the one that is, while it may; else the first replica in order that may, drained ones last.
// Nobody: the last leader stays in the image while it is complete and not out of order, and leads again when it is back.
func (e *edit) elect() {
	n := &e.next
	good := func(id metadata.BrokerID) bool { return e.mayLead(id) && !e.p.drained(id) }
	if e.preferred && good(n.Replicas[0]) {
		e.lead(n.Replicas[0])
		return
	}
	for _, may := range []func(metadata.BrokerID) bool{good, e.mayLead} {
		if may(n.Leader) {
			e.lead(n.Leader)
			return
		}
		if i := slices.IndexFunc(n.Replicas, may); i >= 0 {
			e.lead(n.Replicas[i])
			return
		}
	}
	if i := slices.IndexFunc(n.Replicas, e.able); e.unclean && i >= 0 {
		n.Leader, n.ISR, n.ELR, e.marked = n.Replicas[i], n.Replicas[i:i+1:i+1], nil, true
		return
	}
	if !e.complete(n.Leader) || e.p.outOfOrder(n.Leader, e.ref(), n) {
		n.Leader = metadata.NoLeader
	}
}

// lead makes a complete replica the leader; one of the eligible set begins a new in-sync set.
func (e *edit) lead(id metadata.BrokerID) {
	e.next.Leader = id
	if len(e.next.ISR) == 0 {
		e.next.ISR, e.next.ELR = []metadata.BrokerID{id}, without(e.next.ELR, id)
		e.settle()
	}
}

// record is the difference between was and next.
func (e *edit) record() (metadata.PartitionChanged, bool) {
	was, n := e.was, &e.next
	rec := metadata.PartitionChanged{TopicID: e.topic.ID, Partition: int32(e.index), PartitionEpoch: was.PartitionEpoch}
	if n.Leader != was.Leader {
		rec.Leader = &n.Leader
	}
	if !sameMembers(n.ISR, was.ISR) {
		rec.ISR = &n.ISR
	}
	if !sameMembers(n.ELR, was.ELR) {
		rec.ELR = &n.ELR
	}
	if n.Unclean = n.Unclean || e.marked; n.Unclean != was.Unclean || e.marked {
		rec.Unclean, rec.NewLeaderEpoch = &n.Unclean, e.marked
	}
	if !slices.Equal(n.Replicas, was.Replicas) || !slices.Equal(n.Adding, was.Adding) || !slices.Equal(n.Removing, was.Removing) {
		rec.Assignment = &metadata.Assignment{Replicas: n.Replicas, Adding: n.Adding, Removing: n.Removing, Directories: e.directories()}
		rec.NewLeaderEpoch = rec.NewLeaderEpoch || len(within(was.Replicas, n.Replicas)) < len(was.Replicas)
	}
	changed := rec.Leader != nil || rec.ISR != nil || rec.ELR != nil || rec.Unclean != nil || rec.Assignment != nil
	return rec, changed
}

// directories follow their replicas.
func (e *edit) directories() []metadata.DirectoryID {
	if e.was.Directories == nil {
		return nil
	}
	dirs := make([]metadata.DirectoryID, len(e.next.Replicas))
	for i, id := range e.next.Replicas {
		if at := slices.Index(e.was.Replicas, id); at >= 0 && at < len(e.was.Directories) {
			dirs[i] = e.was.Directories[at]
		}
	}
	return dirs
}

// each edits every partition for which change says so.
func (p *planner) each(change func(*edit) bool) []metadata.Record {
	var records []metadata.Record
	for t := range p.img.Topics() {
		for i := range t.Partitions {
			e := p.edit(t, i)
			if !change(e) {
				continue
			}
			if rec, ok := e.finish(); ok {
				records = append(records, rec)
			}
		}
	}
	return records
}

// topicRules are the settings of a topic.
func (p *planner) topicRules(t *metadata.Topic) *config.Topic {
	if r, ok := p.rules[t.ID]; ok {
		return r
	}
	r := p.topicLayers(p.img.Configs(metadata.ResourceTopic, t.Name), t.ReplicationFactor()).Effective()
	if p.rules == nil {
		p.rules = map[metadata.TopicID]*config.Topic{}
	}
	p.rules[t.ID] = &r
	return &r
}

// mayLead says that a broker is alive and stays so, under what the plan assumes.
func (p *planner) mayLead(id metadata.BrokerID) bool {
	if up, ok := p.assume[id]; ok {
		return up
	}
	b, ok := p.img.Broker(id)
	return ok && usable(b)
}

// leads says that a broker, if it is a leader, goes on committing, under what the plan assumes: also one that is going does.
func (p *planner) leads(id metadata.BrokerID) bool {
	if up, ok := p.assume[id]; ok {
		return up
	}
	return p.img.Alive(id)
}

// suppose lets the rest of the plan take a broker for alive or dead, whatever the image says.
func (p *planner) suppose(id metadata.BrokerID, up bool) {
	if p.assume == nil {
		p.assume = map[metadata.BrokerID]bool{}
	}
	p.assume[id] = up
}

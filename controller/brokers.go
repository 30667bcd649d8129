package controller

import (
	"cmp"
	"maps"
	"slices"

	"github.com/keeplog/keeplog/internal/invariant"
	"github.com/keeplog/keeplog/metadata"
)

// Registration is what a process says of itself when it starts.
type Registration struct {
	ID metadata.BrokerID
	// ClusterID is the cluster that the process belongs to, empty where it does not know one.
	ClusterID   string
	Incarnation [16]byte
	Listeners   []metadata.Endpoint
	Rack        string
	Directories []metadata.DirectoryID
	// PreviousEpoch is the broker epoch that the last incarnation left behind when it stopped cleanly; −1 when it did not. Where
	// it is not the epoch of the last registration the restart was unclean.
	PreviousEpoch int64
	// Features are those that the process's version knows; none, it does not say.
	Features []Feature
}

// ProducerIDBlock is the number of producer ids given out at once, as in Kafka.
const ProducerIDBlock = 1000

// checkInternal wants a listener of the name by which this process's brokers reach each other: without one no replica would ever be fetched
// from that broker, nor by it.
func (p *planner) checkInternal(r *Registration) error {
	name := p.static.InternalName()
	if name == "" || slices.ContainsFunc(r.Listeners, func(e metadata.Endpoint) bool { return e.Name == name }) {
		return nil
	}
	return answer(ErrInvalidRegistration, "Broker %d has no listener %s, by which brokers reach each other (inter.broker.listener.name).", r.ID, name)
}

// planRegister plans a registration: what the broker led goes to other replicas where one may lead, and the registration
// raises the leader epoch of the rest. A broker without one of its former data directories may have lost any of its replicas, for
// the image does not know in which directory each was; so may one whose former directories are not known, because it was removed. It
// leaves the sets, and what it has whole joins again at once. The registration is the last record.
func (p *planner) planRegister(r Registration) ([]metadata.Record, error) {
	switch {
	case r.ID < 0:
		return nil, answer(ErrInvalidRequest, "Node id %d is negative.", r.ID)
	case r.ClusterID != "" && r.ClusterID != p.img.ClusterID():
		return nil, answer(ErrInconsistentClusterID, "Expected cluster ID %s, but got cluster ID %s", p.img.ClusterID(), r.ClusterID)
	}
	if err := cmp.Or(p.checkInternal(&r), p.checkKnows(&r)); err != nil {
		return nil, err
	}
	registered := metadata.BrokerRegistered{
		ID: r.ID, Incarnation: r.Incarnation, Listeners: r.Listeners, Rack: r.Rack, Directories: r.Directories,
	}
	b, known := p.img.Broker(r.ID)
	switch {
	case known && b.Incarnation == r.Incarnation:
		return []metadata.Record{registered}, nil
	case known && p.live(b, &r):
		return nil, answer(ErrDuplicateBroker, "Another broker is registered with that broker id.")
	}
	clean := known && b.Epoch == r.PreviousEpoch
	wiped := !known || slices.ContainsFunc(b.Directories, func(d metadata.DirectoryID) bool { return !slices.Contains(r.Directories, d) })
	p.suppose(r.ID, false)
	records := append(p.newCluster(&r), p.planLevel(&r)...)
	records = append(records, p.each(func(e *edit) bool {
		if !slices.Contains(e.was.Replicas, r.ID) {
			return false
		}
		switch {
		case invariant.Seeded(invariant.RestartEmptiesIt) && !clean && len(e.was.Replicas) > 1:
			e.lose(r.ID)
		case wiped && len(e.was.Replicas) > 1:
			e.lose(r.ID)
		case !clean && !e.durable(r.ID):
			e.unflushed(r.ID)
		}
		return true
	})...)
	records = append(records, p.planShards(r.ID)...)
	return append(records, registered), nil
}

// durable says that on this broker the topic's records are fsynced before they are acknowledged, so that the broker keeps
// its place over an unclean restart, unless it reports that data is missing.
func (e *edit) durable(id metadata.BrokerID) bool {
	l := e.p.brokerLayers(id)
	l.Topic, l.Replicas = e.p.img.Configs(metadata.ResourceTopic, e.topic.Name), e.topic.ReplicationFactor()
	return l.Effective().Flush.Messages == 1
}

// unflushed takes a replica that may have lost what it had not flushed out of the sets (KIP-966). The last one stays, as the
// last known to lead; the others may have to cut below their high watermarks then, which the unclean mark allows.
func (e *edit) unflushed(id metadata.BrokerID) {
	n := &e.next
	if len(n.Replicas) == 1 || !slices.Contains(n.ISR, id) && !slices.Contains(n.ELR, id) {
		return
	}
	if len(without(n.ISR, id)) == 0 && len(without(n.ELR, id)) == 0 {
		e.marked = true
		return
	}
	e.lose(id)
}

// planFence plans that a broker is taken for dead: it leaves the in-sync sets, and its leaderships go to others. One that is
// fenced leaves the sets that it kept when it registered.
func (p *planner) planFence(id metadata.BrokerID, epoch int64) ([]metadata.Record, error) {
	if _, err := p.brokerAt(id, epoch); err != nil {
		return nil, err
	}
	return p.planExpired([]metadata.BrokerID{id}), nil
}

// planExpired plans that brokers are taken for dead together.
func (p *planner) planExpired(ids []metadata.BrokerID) []metadata.Record {
	var records []metadata.Record
	for _, id := range ids {
		p.suppose(id, false)
		if b, ok := p.img.Broker(id); ok && !b.Fenced {
			records = append(records, metadata.BrokerFenced{ID: id, Epoch: b.Epoch, Fenced: true, ShuttingDown: b.ShuttingDown})
		}
	}
	records = append(records, p.planShards(ids...)...)
	return append(records, p.each(func(e *edit) bool {
		e.remove(ids...)
		return len(e.next.ISR) < len(e.was.ISR) || slices.Contains(ids, e.was.Leader)
	})...)
}

// planTardy plans that brokers which registered long ago and are still fenced leave the in-sync sets that they kept, where
// somebody leads and waits for them.
func (p *planner) planTardy(ids []metadata.BrokerID) []metadata.Record {
	return p.each(func(e *edit) bool {
		if p.img.LeaderOf(e.was) == metadata.NoLeader {
			return false
		}
		for _, id := range ids {
			if b, ok := p.img.Broker(id); ok && b.Fenced {
				e.remove(id)
			}
		}
		return len(e.next.ISR) < len(e.was.ISR)
	})
}

// planUnfence plans that a broker is ready: it leads the partitions without a leader for which it is complete.
func (p *planner) planUnfence(id metadata.BrokerID, epoch int64) ([]metadata.Record, error) {
	b, err := p.brokerAt(id, epoch)
	switch {
	case err != nil:
		return nil, err
	case !b.Fenced:
		return nil, nil
	case b.ShuttingDown:
		return nil, answer(ErrInvalidRequest, "Broker %d is shutting down.", id)
	}
	p.suppose(id, true)
	records := []metadata.Record{metadata.BrokerFenced{ID: id, Epoch: epoch, Fenced: false}}
	records = append(records, p.planShards()...)
	return append(records, p.each(func(e *edit) bool {
		return slices.Contains(e.was.Replicas, id) && p.img.LeaderOf(e.was) == metadata.NoLeader
	})...), nil
}

// planShutdown plans that a broker goes: its leaderships go to others. What nobody else can lead it leads to the end. It stays
// in the in-sync sets until it is fenced, which is after it has heard of this: a new leader whose watermark does not wait for
// the old one would give out latest offsets above those that the old one still answers.
func (p *planner) planShutdown(id metadata.BrokerID, epoch int64) ([]metadata.Record, error) {
	b, err := p.brokerAt(id, epoch)
	if err != nil {
		return nil, err
	}
	var records []metadata.Record
	if !b.ShuttingDown {
		records = append(records, metadata.BrokerFenced{ID: id, Epoch: epoch, Fenced: b.Fenced, ShuttingDown: true})
	}
	p.suppose(id, false)
	records = append(records, p.planLeaving(id)...)
	return append(records, p.each(func(e *edit) bool {
		return e.was.Leader == id && slices.ContainsFunc(e.was.ISR, p.mayLead)
	})...), nil
}

func (p *planner) brokerAt(id metadata.BrokerID, epoch int64) (*metadata.Broker, error) {
	b, ok := p.img.Broker(id)
	switch {
	case !ok:
		return nil, answer(ErrBrokerNotRegistered, "Broker %d is not registered.", id)
	case b.Epoch != epoch:
		return nil, answer(ErrStaleBrokerEpoch, "Expected broker epoch %d, but got broker epoch %d", b.Epoch, epoch)
	}
	return b, nil
}

// planBroken plans what a heartbeat says of replicas: those that miss data, and those that are out of order, in directories that failed or
// otherwise.
func (p *planner) planBroken(h *Heartbeat) ([]metadata.Record, error) {
	records, err := p.planLost(h.ID, h.Epoch, h.Lost)
	if err != nil {
		return nil, err
	}
	itself := func(r PartitionRef) PartitionRef { return r }
	seen := maps.Collect(once(h.Lost, itself))
	for ref := range once(append(slices.Clone(h.OutOfOrder), p.inFailed(h)...), itself) {
		if _, lost := seen[ref]; lost {
			continue
		}
		if rec, ok := p.outOne(h.ID, ref); ok {
			records = append(records, rec)
		}
	}
	return records, nil
}

// inFailed are a broker's replicas in data directories that have failed.
func (p *planner) inFailed(h *Heartbeat) (refs []PartitionRef) {
	if len(h.Offline) == 0 {
		return nil
	}
	for t := range p.img.Topics() {
		for i, part := range t.Partitions {
			if slices.Contains(part.Replicas, h.ID) && p.offline(h.ID, part, h.Offline) {
				refs = append(refs, PartitionRef{t.ID, int32(i)})
			}
		}
	}
	return refs
}

// outOne plans that a broker's replica can be neither led nor followed. That is for the partition as if the broker was dead: the replica
// leaves the in-sync set, and stays eligible where it has all that was committed and nobody goes on without it.
func (p *planner) outOne(id metadata.BrokerID, ref PartitionRef) (metadata.PartitionChanged, bool) {
	part, ok := p.img.Partition(ref.Topic, ref.Partition)
	if !ok || len(part.Replicas) == 1 || !slices.Contains(part.ISR, id) && part.Leader != id {
		return metadata.PartitionChanged{}, false
	}
	t, _ := p.img.TopicByID(ref.Topic)
	e := p.edit(t, int(ref.Partition))
	e.remove(id)
	return e.finish()
}

// planLost plans that a broker's replicas have lost data: they leave the in-sync and eligible sets, except where they are the
// only replica.
func (p *planner) planLost(id metadata.BrokerID, epoch int64, lost []PartitionRef) ([]metadata.Record, error) {
	if _, err := p.brokerAt(id, epoch); err != nil {
		return nil, err
	}
	var records []metadata.Record
	for ref := range once(lost, func(r PartitionRef) PartitionRef { return r }) {
		part, ok := p.img.Partition(ref.Topic, ref.Partition)
		if !ok || len(part.Replicas) == 1 || !slices.Contains(part.ISR, id) && !slices.Contains(part.ELR, id) {
			continue
		}
		t, _ := p.img.TopicByID(ref.Topic)
		e := p.edit(t, int(ref.Partition))
		e.lose(id)
		if rec, ok := e.finish(); ok {
			records = append(records, rec)
		}
	}
	return records, nil
}

// PartitionRef names a partition.
type PartitionRef struct {
	Topic     metadata.TopicID
	Partition int32
}

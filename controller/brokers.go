package controller

import (
	"slices"

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
}

// ProducerIDBlock is the number of producer ids given out at once, as in Kafka.
const ProducerIDBlock = 1000

// planRegister plans a registration: what the broker led goes to other replicas where one may lead, and the registration
// raises the leader epoch of the rest. The registration is the last record.
func (p *planner) planRegister(r Registration) ([]metadata.Record, error) {
	switch {
	case r.ID < 0:
		return nil, answer(ErrInvalidRequest, "Node id %d is negative.", r.ID)
	case r.ClusterID != "" && r.ClusterID != p.img.ClusterID():
		return nil, answer(ErrInconsistentClusterID, "Expected cluster ID %s, but got cluster ID %s", p.img.ClusterID(), r.ClusterID)
	}
	var records []metadata.Record
	if b, ok := p.img.Broker(r.ID); ok && b.Incarnation != r.Incarnation {
		if !b.Fenced && p.live(b) {
			return nil, answer(ErrDuplicateBroker, "Another broker is registered with that broker id.")
		}
		records = p.leave(r.ID, false)
	}
	return append(records, metadata.BrokerRegistered{
		ID: r.ID, Incarnation: r.Incarnation, Listeners: r.Listeners, Rack: r.Rack, Directories: r.Directories,
	}), nil
}

// planFence plans that a broker is taken for dead: it leaves the in-sync sets that have another member, and its leaderships
// go to others.
func (p *planner) planFence(id metadata.BrokerID, epoch int64) ([]metadata.Record, error) {
	b, err := p.brokerAt(id, epoch)
	if err != nil {
		return nil, err
	}
	if b.Fenced {
		return nil, nil
	}
	records := []metadata.Record{metadata.BrokerFenced{ID: id, Epoch: epoch, Fenced: true}}
	return append(records, p.leave(id, true)...), nil
}

// planUnfence plans that a broker is ready: it leads the partitions without a leader whose in-sync set it is in.
func (p *planner) planUnfence(id metadata.BrokerID, epoch int64) ([]metadata.Record, error) {
	b, err := p.brokerAt(id, epoch)
	if err != nil {
		return nil, err
	}
	if !b.Fenced {
		return nil, nil
	}
	records := []metadata.Record{metadata.BrokerFenced{ID: id, Epoch: epoch, Fenced: false}}
	for t := range p.img.Topics() {
		for i, part := range t.Partitions {
			if p.img.LeaderOf(part) == metadata.NoLeader && part.Leader != id && slices.Contains(part.ISR, id) {
				records = append(records, change(t, i, part, id))
			}
		}
	}
	return records, nil
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

func change(t *metadata.Topic, i int, part *metadata.Partition, leader metadata.BrokerID) metadata.PartitionChanged {
	return metadata.PartitionChanged{
		TopicID: t.ID, Partition: int32(i), PartitionEpoch: part.PartitionEpoch, Leader: &leader,
	}
}

// leave moves leaderships away from a broker where another replica may lead, and with shrink takes it out of the in-sync
// sets; the last member of a set stays in it.
func (p *planner) leave(id metadata.BrokerID, shrink bool) []metadata.Record {
	var records []metadata.Record
	for t := range p.img.Topics() {
		for i, part := range t.Partitions {
			if !slices.Contains(part.Replicas, id) {
				continue
			}
			rec := metadata.PartitionChanged{TopicID: t.ID, Partition: int32(i), PartitionEpoch: part.PartitionEpoch}
			if shrink && len(part.ISR) > 1 && slices.Contains(part.ISR, id) {
				rest := slices.DeleteFunc(slices.Clone(part.ISR), func(b metadata.BrokerID) bool { return b == id })
				rec.ISR = &rest
			}
			if part.Leader == id {
				if next, ok := p.chooseLeader(part, id); ok {
					rec.Leader = &next
				}
			}
			if rec.ISR != nil || rec.Leader != nil {
				records = append(records, rec)
			}
		}
	}
	return records
}

// chooseLeader is the clean choice: the first replica in assignment order that is in sync, or else eligible (ELR), and alive.
// not is a broker that may not lead, or NoLeader.
func (p *planner) chooseLeader(part *metadata.Partition, not metadata.BrokerID) (metadata.BrokerID, bool) {
	for _, set := range [][]metadata.BrokerID{part.ISR, part.ELR} {
		for _, id := range part.Replicas {
			if id != not && slices.Contains(set, id) && p.mayLead(id) {
				return id, true
			}
		}
		if len(part.ISR) > 0 {
			break
		}
	}
	return metadata.NoLeader, false
}

func (p *planner) mayLead(id metadata.BrokerID) bool {
	b, ok := p.img.Broker(id)
	return ok && usable(b)
}

// Elect asks for an election. Unclean lets a replica outside the in-sync set lead, which loses acknowledged records.
type Elect struct {
	Topic     string
	Partition int32
	Unclean   bool
}

// planElect plans one election.
func (p *planner) planElect(e Elect) (metadata.Record, error) {
	t, ok := p.img.TopicByName(e.Topic)
	if !ok || e.Partition < 0 || int(e.Partition) >= len(t.Partitions) {
		return nil, answer(ErrUnknownTopic, "No such partition as %s-%d", e.Topic, e.Partition)
	}
	part := t.Partitions[e.Partition]
	leader := p.img.LeaderOf(part)
	if !e.Unclean {
		want := part.Replicas[0]
		switch {
		case leader == want:
			return nil, &Answer{Kind: ErrElectionNotNeeded}
		case !slices.Contains(part.ISR, want) || !p.mayLead(want):
			return nil, &Answer{Kind: ErrPreferredLeaderNotAvailable}
		}
		return change(t, int(e.Partition), part, want), nil
	}
	if leader != metadata.NoLeader {
		return nil, &Answer{Kind: ErrElectionNotNeeded}
	}
	if id, ok := p.chooseLeader(part, metadata.NoLeader); ok {
		return change(t, int(e.Partition), part, id), nil
	}
	for _, id := range part.Replicas {
		if p.mayLead(id) {
			rec := change(t, int(e.Partition), part, id)
			rec.ISR, rec.ELR, rec.Unclean = &[]metadata.BrokerID{id}, &[]metadata.BrokerID{}, new(true)
			return rec, nil
		}
	}
	return nil, &Answer{Kind: ErrEligibleLeadersNotAvailable}
}

// planLost plans that a broker's replicas have lost data: they leave the in-sync and eligible sets, except where they are the
// only replica.
func (p *planner) planLost(id metadata.BrokerID, epoch int64, lost []PartitionRef) ([]metadata.Record, error) {
	if _, err := p.brokerAt(id, epoch); err != nil {
		return nil, err
	}
	var records []metadata.Record
	without := func(set []metadata.BrokerID) []metadata.BrokerID {
		return slices.DeleteFunc(slices.Clone(set), func(b metadata.BrokerID) bool { return b == id })
	}
	for ref := range once(lost, func(r PartitionRef) PartitionRef { return r }) {
		part, ok := p.img.Partition(ref.Topic, ref.Partition)
		if !ok || len(part.Replicas) == 1 || !slices.Contains(part.ISR, id) && !slices.Contains(part.ELR, id) {
			continue
		}
		isr, elr := without(part.ISR), without(part.ELR)
		rec := metadata.PartitionChanged{
			TopicID: ref.Topic, Partition: ref.Partition, PartitionEpoch: part.PartitionEpoch, ISR: &isr, ELR: &elr,
		}
		if part.Leader == id {
			next := metadata.NoLeader
			left := &metadata.Partition{Replicas: part.Replicas, ISR: isr, ELR: elr}
			if n, ok := p.chooseLeader(left, id); ok {
				next = n
			}
			rec.Leader = &next
		}
		records = append(records, rec)
	}
	return records, nil
}

// PartitionRef names a partition.
type PartitionRef struct {
	Topic     metadata.TopicID
	Partition int32
}

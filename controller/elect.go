package controller

import (
	"context"

	"github.com/keeplog/keeplog/metadata"
)

// TopicPartition names a partition by its topic's name.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// ElectLeadersRequest asks for elections. Unclean lets a replica lead that is in neither set where no other can, which loses
// acknowledged records; without it the preferred replica is to lead.
type ElectLeadersRequest struct {
	Unclean bool
	// Partitions is nil for all; then those that need no election are not answered for.
	Partitions []TopicPartition
}

// Elected is the answer for one partition.
type Elected struct {
	Topic     string
	Partition int32
	Err       error
}

// ElectLeaders holds elections.
func (c *Controller) ElectLeaders(ctx context.Context, req ElectLeadersRequest) (answers []Elected, err error) {
	var of []int
	_, err = c.plan(ctx, func(p *planner) (records []metadata.Record) {
		answers, records, of = p.planElect(req)
		return records
	}, func(i int, _ metadata.Result, err error) { answers[of[i]].Err = err })
	return answers, err
}

// planElect plans elections. records[i] belongs to the answer at index of[i].
func (p *planner) planElect(req ElectLeadersRequest) (answers []Elected, records []metadata.Record, of []int) {
	elect := func(name string, partition int32) {
		a := Elected{Topic: name, Partition: partition}
		rec, err := p.electOne(a.Topic, a.Partition, req.Unclean)
		if a.Err = err; err == nil {
			records, of = append(records, rec), append(of, len(answers))
		}
		if req.Partitions != nil || err == nil || kindOf(err) != ErrElectionNotNeeded {
			answers = append(answers, a)
		}
	}
	if req.Partitions == nil {
		for t := range p.img.Topics() {
			for i := range t.Partitions {
				elect(t.Name, int32(i))
			}
		}
		return answers, records, of
	}
	for tp := range once(req.Partitions, func(tp TopicPartition) TopicPartition { return tp }) {
		elect(tp.Topic, tp.Partition)
	}
	return answers, records, of
}

// kindOf is the sentinel of an answer.
func kindOf(err error) error {
	if a, ok := err.(*Answer); ok { //nolint:errorlint // plans give answers bare
		return a.Kind
	}
	return err
}

func (p *planner) electOne(name string, partition int32, unclean bool) (metadata.Record, error) {
	t, ok := p.img.TopicByName(name)
	if !ok || partition < 0 || int(partition) >= len(t.Partitions) {
		return nil, answer(ErrUnknownTopic, "No such partition as %s-%d", name, partition)
	}
	e := p.edit(t, int(partition))
	leader, want := p.img.LeaderOf(e.was), e.was.Replicas[0]
	if unclean && leader != metadata.NoLeader || !unclean && leader == want {
		return nil, &Answer{Kind: ErrElectionNotNeeded}
	}
	e.preferred, e.unclean = !unclean, unclean
	rec, changed := e.finish()
	switch {
	case !unclean && e.next.Leader != want:
		return nil, &Answer{Kind: ErrPreferredLeaderNotAvailable}
	case !changed || !p.mayLead(e.next.Leader):
		return nil, &Answer{Kind: ErrEligibleLeadersNotAvailable}
	}
	return rec, nil
}

// leaderless are the partitions without a leader whose topic lets any replica lead then.
func (p *planner) leaderless() []PartitionRef {
	var refs []PartitionRef
	for t := range p.img.Topics() {
		for i, part := range t.Partitions {
			if p.img.LeaderOf(part) == metadata.NoLeader && p.topicRules(t).UncleanLeaderElection {
				refs = append(refs, PartitionRef{t.ID, int32(i)})
			}
		}
	}
	return refs
}

// planReconcile plans what follows from the image alone: leaders for partitions that have none or one that is going, ends of
// reassignments. balance brings leaderships back to preferred replicas; unclean are the partitions that have waited long
// enough for a leader. Planned again at once it gives nothing.
func (p *planner) planReconcile(balance bool, unclean map[PartitionRef]bool) []metadata.Record {
	var records []metadata.Record
	for t := range p.img.Topics() {
		for i, part := range t.Partitions {
			leader := p.img.LeaderOf(part)
			preferred := balance && leader != part.Replicas[0]
			reassigned := len(part.Adding)+len(part.Removing) > 0
			if leader != metadata.NoLeader && p.mayLead(leader) && !p.drained(leader) && !preferred && !reassigned {
				continue
			}
			e := p.edit(t, i)
			e.preferred, e.unclean = preferred, unclean[e.ref()]
			if rec, ok := e.finish(); ok {
				records = append(records, rec)
			}
		}
	}
	return records
}

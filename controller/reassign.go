package controller

import (
	"context"
	"fmt"
	"slices"

	"github.com/keeplog/keeplog/metadata"
)

// Reassignment asks for other replicas of a partition; nil Replicas cancel what is going on.
type Reassignment struct {
	Topic     string
	Partition int32
	Replicas  []metadata.BrokerID
}

// ReassignRequest asks for reassignments. KeepFactor refuses those that change the number of replicas.
type ReassignRequest struct {
	Partitions []Reassignment
	KeepFactor bool
}

// Reassigned is the answer for one partition: the reassignment has begun, or was cancelled, or Err.
type Reassigned struct {
	Topic     string
	Partition int32
	Err       error
}

// OngoingReassignment is a partition with replicas that come or go.
type OngoingReassignment struct {
	Topic                      string
	Partition                  int32
	Replicas, Adding, Removing []metadata.BrokerID
}

// Reassign begins and cancels reassignments. A partition's replicas are the target and those that go, until all that come
// are in sync.
func (c *Controller) Reassign(ctx context.Context, req ReassignRequest) (answers []Reassigned, err error) {
	var of []int
	_, err = c.plan(ctx, func(p *planner) (records []metadata.Record) {
		answers, records, of = p.planReassign(req)
		return records
	}, func(i int, _ metadata.Result, err error) { answers[of[i]].Err = err })
	return answers, err
}

// ListReassignments lists the reassignments that are going on, of some partitions or, with nil, of all.
func (c *Controller) ListReassignments(partitions []TopicPartition) ([]OngoingReassignment, error) {
	if _, err := c.o.Proposer.Lead(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotController, err)
	}
	return Reassignments(c.o.Proposer.Image(), partitions), nil
}

// Reassignments lists the reassignments of an image, of some partitions or, with nil, of all, by topic and partition.
func Reassignments(img *metadata.Image, partitions []TopicPartition) []OngoingReassignment {
	var wanted map[TopicPartition]bool
	if partitions != nil {
		wanted = make(map[TopicPartition]bool, len(partitions))
		for _, tp := range partitions {
			wanted[tp] = true
		}
	}
	var all []OngoingReassignment
	for t := range img.Topics() {
		for i, part := range t.Partitions {
			ongoing := len(part.Adding)+len(part.Removing) > 0
			if ongoing && (wanted == nil || wanted[TopicPartition{t.Name, int32(i)}]) {
				all = append(all, OngoingReassignment{t.Name, int32(i), part.Replicas, part.Adding, part.Removing})
			}
		}
	}
	return all
}

// planReassign plans reassignments. records[i] belongs to the answer at index of[i].
func (p *planner) planReassign(req ReassignRequest) (answers []Reassigned, records []metadata.Record, of []int) {
	times := map[TopicPartition]int{}
	at := func(r Reassignment) TopicPartition { return TopicPartition{r.Topic, r.Partition} }
	for _, r := range req.Partitions {
		times[at(r)]++
	}
	for tp, r := range once(req.Partitions, at) {
		a := Reassigned{Topic: r.Topic, Partition: r.Partition}
		var rec metadata.PartitionChanged
		var changed bool
		if times[tp] > 1 {
			a.Err = answer(ErrInvalidRequest, "%s-%d appears more than once.", r.Topic, r.Partition)
		} else {
			rec, changed, a.Err = p.reassignOne(&r, req.KeepFactor)
		}
		if a.Err == nil && changed {
			records, of = append(records, rec), append(of, len(answers))
		}
		answers = append(answers, a)
	}
	return answers, records, of
}

func (p *planner) reassignOne(r *Reassignment, keepFactor bool) (rec metadata.PartitionChanged, changed bool, err error) {
	t, ok := p.img.TopicByName(r.Topic)
	switch {
	case !ok:
		return rec, false, answer(ErrUnknownTopic, "Unable to find a topic named %s.", r.Topic)
	case r.Partition < 0 || int(r.Partition) >= len(t.Partitions):
		return rec, false, answer(ErrUnknownTopic, "Unable to find partition %s:%d.", r.Topic, r.Partition)
	}
	e := p.edit(t, int(r.Partition))
	if r.Replicas == nil {
		err = e.cancel()
	} else {
		err = e.reassign(r.Replicas, keepFactor)
	}
	if err != nil {
		return rec, false, err
	}
	rec, changed = e.finish()
	return rec, changed, nil
}

// reassign gives the partition a target. A replica that an earlier reassignment was bringing in and that is not wanted any
// more goes at once when it is in neither set, else with the others that go.
func (e *edit) reassign(target []metadata.BrokerID, keepFactor bool) error {
	if err := e.p.checkReplicas(target, 0); err != nil {
		return err
	}
	n := &e.next
	before := without(e.was.Replicas, e.was.Adding...)
	if keepFactor && len(target) != len(before) {
		return answer(ErrInvalidReplicationFactor, "The replication factor of %s-%d is %d; the new assignment has %d.", e.topic.Name, e.index, len(before), len(target))
	}
	for _, id := range e.was.Adding {
		if (slices.Contains(e.was.ISR, id) || slices.Contains(e.was.ELR, id)) && !slices.Contains(target, id) {
			before = append(slices.Clip(before), id)
		}
	}
	n.Adding = without(target, before...)
	n.Removing = without(before, target...)
	n.Replicas = append(slices.Clone(target), n.Removing...)
	n.ISR, n.ELR = within(n.ISR, n.Replicas), within(n.ELR, n.Replicas)
	return nil
}

// cancel gives up the reassignment. What it brought in goes, unless too few of those that have everything would be left: the
// in-sync replicas, or where there are none the eligible ones. Of what it brought in those that have everything, in sync or only
// eligible, go as the end of a reassignment lets them: when those that stay are enough without them, and they know who leads.
func (e *edit) cancel() error {
	n := &e.next
	if len(n.Adding)+len(n.Removing) == 0 {
		return &Answer{Kind: ErrNoReassignment}
	}
	n.Replicas, n.ISR, n.ELR = without(n.Replicas, n.Adding...), without(n.ISR, n.Adding...), without(n.ELR, n.Adding...)
	n.Adding, n.Removing = nil, nil
	left, had := len(n.ISR), len(e.was.ISR)
	if had == 0 {
		left, had = len(n.ELR), len(e.was.ELR)
	}
	if enough := e.enough(); left < had && left < enough {
		return answer(ErrInvalidReplicaAssignment, "Unable to revert the assignment of %s-%d: %d of its former replicas have everything, %d are needed.", e.topic.Name, e.index, left, enough)
	}
	n.Removing = within(e.was.Adding, append(slices.Clip(e.was.ISR), e.was.ELR...))
	n.Replicas = append(slices.Clip(n.Replicas), n.Removing...)
	n.ISR, n.ELR = within(e.was.ISR, n.Replicas), within(e.was.ELR, n.Replicas)
	return nil
}

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// retryEvery is the pause between two tries of what an operator asks for.
	retryEvery = 200 * time.Millisecond
)

// operation is one job of an operator. ctx ends when the time to heal is over.
type operation struct {
	*nemesis
	ctx  context.Context
	job  job
	hold time.Duration
	rng  *rand.Rand
}

// operate does an operator's job, when the one before is done. One that would begin after the faults are over is left out.
func (n *nemesis) operate(ctx context.Context, j job) {
	select {
	case n.operating <- struct{}{}:
	case <-n.over:
		return
	case <-ctx.Done():
		return
	}
	defer func() { <-n.operating }()
	select {
	case <-n.over:
		return
	default:
	}
	o := &operation{n, ctx, j, j.steps[0].hold, rand.New(rand.NewPCG(j.seed, 2))}
	do := map[string]func() error{
		FaultTransfer: func() error { return o.leader(false) }, FaultController: func() error { return o.leader(true) },
		FaultFull: o.full, FaultReassign: o.reassign, FaultMembers: o.members, FaultReplace: o.replace, FaultRot: o.rot,
	}[j.fault]
	switch err := do(); {
	case errors.Is(err, errNotNow):
		n.tell("no %s: %v", j.fault, err)
	case err != nil && ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded): // the run was cancelled
	case err != nil:
		n.tell("%s: %v", j.fault, err)
		n.check.Violated(NotHealed, "%s: %v", j.fault, err)
	default:
		n.count(j.fault)
	}
}

// errNotNow says that a fault could not be done as things stood, which is nobody's fault.
var errNotNow = errors.New("not now")

// retry tries until it works; the error is the last one.
func (o *operation) retry(try func(ctx context.Context) error) error {
	for {
		ctx, cancel := context.WithTimeout(o.ctx, 2*askTimeout)
		err := try(ctx)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-o.ctx.Done():
			return err
		case <-time.After(retryEvery):
		}
	}
}

// leads finds the node that leads the metadata log.
func (o *operation) leads() (int32, error) {
	ctx, cancel := context.WithTimeout(o.ctx, askTimeout)
	defer cancel()
	req := kmsg.NewPtrDescribeQuorumRequest()
	t := kmsg.NewDescribeQuorumRequestTopic()
	t.Topic = "__cluster_metadata"
	t.Partitions = append(t.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, t)
	answer, err := o.client.Request(ctx, req)
	if err != nil {
		return 0, err
	}
	for _, t := range answer.(*kmsg.DescribeQuorumResponse).Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 && p.LeaderID > 0 {
				return p.LeaderID, nil
			}
		}
	}
	return 0, errors.New("no node leads the metadata log")
}

// leader ends the node that leads the metadata log, cleanly or not, and starts it again.
func (o *operation) leader(kill bool) error {
	id, err := o.leads()
	if err != nil {
		return fmt.Errorf("%w: %w", errNotNow, err)
	}
	got := o.nemesis.hold(o.ctx, []int32{id}, holdLimit)
	defer o.release(got)
	if len(got) == 0 {
		return fmt.Errorf("%w: node %d is taken", errNotNow, id)
	}
	end := step{act: actStop}
	if kill {
		end.act = actKill
	}
	o.tell("node %d leads the metadata log", id)
	o.toNode(o.ctx, end, id)
	o.pause(o.ctx, o.hold/4)
	o.toNode(o.ctx, step{act: actStart}, id)
	return nil
}

// full makes nodes refuse writes for want of room, and then gives them room again.
func (o *operation) full() error {
	defer o.excuse()()
	got := o.nemesis.hold(o.ctx, o.job.nodes, holdLimit)
	defer o.release(got)
	if len(got) == 0 {
		return fmt.Errorf("%w: node %v is taken", errNotNow, o.job.nodes)
	}
	o.fill(got, true)
	o.pause(o.ctx, o.hold)
	o.fill(got, false)
	return nil
}

// fill starts nodes anew with a disk that is full, or is not any more.
func (o *operation) fill(nodes []int32, full bool) {
	words := "room again on"
	if full {
		words = "no room on"
	}
	o.tell("%s the disk of node %v", words, nodes)
	for _, id := range nodes {
		o.toNode(o.ctx, step{act: actStop}, id)
		o.cluster.(Room).SetFull(id, full)
		o.toNode(o.ctx, step{act: actStart}, id)
	}
}

// reassign gives partitions other replicas, and later all of them back.
func (o *operation) reassign() error {
	defer o.excuse()()
	parts := o.some(1 + o.rng.IntN(4))
	if len(parts) == 0 {
		return fmt.Errorf("%w: no partition", errNotNow)
	}
	fewer := o.rng.IntN(2) == 0
	other, back := map[Partition][]int32{}, map[Partition][]int32{}
	for _, p := range parts {
		other[p], back[p] = o.shuffled(), o.shuffled()
		if fewer {
			other[p] = other[p][:len(other[p])-1]
		}
	}
	o.tell("reassign %s", movesText(other))
	if err := o.move(other); err != nil {
		return err
	}
	o.pause(o.ctx, o.hold)
	o.elect()
	o.tell("reassign %s", movesText(back))
	if err := o.move(back); err != nil {
		return err
	}
	o.elect()
	return o.moved(parts)
}

// some are partitions of which no replica is rotten.
func (o *operation) some(count int) []Partition {
	parts := slices.DeleteFunc(o.places.list(), func(p Partition) bool {
		return slices.ContainsFunc(o.rotten(), func(r *rot) bool { return r.part == p })
	})
	o.rng.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	return parts[:min(count, len(parts))]
}

// shuffled are as many nodes as a partition has replicas, in any order.
func (o *operation) shuffled() []int32 {
	var ids []int32
	for _, n := range o.cluster.Nodes() {
		ids = append(ids, n.ID)
	}
	o.rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids[:min(3, len(ids))]
}

func movesText(to map[Partition][]int32) string {
	var words []string
	for p, replicas := range to {
		words = append(words, fmt.Sprintf("%s to %v", p, replicas))
	}
	slices.Sort(words)
	return fmt.Sprint(words)
}

// move asks for replicas until every partition's are taken.
func (o *operation) move(to map[Partition][]int32) error {
	return o.retry(func(ctx context.Context) error {
		var req kadm.AlterPartitionAssignmentsReq
		for p, replicas := range to {
			req.Assign(p.Topic, p.Number, replicas)
		}
		answers, err := kadm.NewClient(o.client).AlterPartitionAssignments(ctx, req)
		if err != nil {
			return err
		}
		var failed error
		answers.Each(func(a kadm.AlterPartitionAssignmentsResponse) {
			if a.Err != nil {
				failed = fmt.Errorf("%s-%d to %v: %w: %s", a.Topic, a.Partition, to[Partition{a.Topic, a.Partition}], a.Err, a.ErrMessage)
			}
		})
		return failed
	})
}

// elect asks for the preferred leaders; what is refused stays as it is.
func (o *operation) elect() {
	ctx, cancel := context.WithTimeout(o.ctx, askTimeout)
	defer cancel()
	_, _ = kadm.NewClient(o.client).ElectLeaders(ctx, kadm.ElectPreferredReplica, nil)
}

// moved waits until nothing of partitions is on the move any more.
func (o *operation) moved(parts []Partition) error {
	return o.retry(func(ctx context.Context) error {
		var set kadm.TopicsSet
		for _, p := range parts {
			set.Add(p.Topic, p.Number)
		}
		answers, err := kadm.NewClient(o.client).ListPartitionReassignments(ctx, set)
		if err != nil {
			return err
		}
		for _, a := range answers.Sorted() {
			if len(a.AddingReplicas)+len(a.RemovingReplicas) > 0 {
				return fmt.Errorf("%s-%d is still on the move: adds %v, removes %v", a.Topic, a.Partition, a.AddingReplicas, a.RemovingReplicas)
			}
		}
		return nil
	})
}

// assigned is who has and leads what, as any node tells it.
func (o *operation) assigned() (*leadership, error) {
	l, _, err := metadata(o.ctx, o.client, topicsOf(o.places.list()))
	return l, err
}

// whole waits until every replica is in sync, no longer than limit; errNotNow when it is not.
func (o *operation) whole(limit time.Duration) error {
	for deadline := time.Now().Add(limit); ; {
		l, err := o.assigned()
		for p, at := range orEmpty(l) {
			if len(at.inSync) < len(at.replicas) || at.node < 0 {
				err = fmt.Errorf("%s: in sync are %v of %v", p, at.inSync, at.replicas)
			}
		}
		if err == nil {
			return nil
		}
		over := false
		select {
		case <-o.over:
			over = true
		default:
		}
		if over || o.ctx.Err() != nil || time.Now().After(deadline) {
			return fmt.Errorf("%w: %w", errNotNow, err)
		}
		<-time.After(retryEvery)
	}
}

func orEmpty(l *leadership) map[Partition]lead {
	if l == nil {
		return nil
	}
	return l.leaders
}

// members lets a further node join, gives it replicas, and takes it out again.
func (o *operation) members() error {
	m := o.cluster.(Members)
	if err := o.mendRot(); err != nil {
		return err
	}
	o.tell("a further node joins")
	node, err := m.Join(o.ctx)
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	l, err := o.assigned()
	to := map[Partition][]int32{}
	parts := o.some(4)
	for _, p := range parts {
		if replicas := slices.Clone(orEmpty(l)[p].replicas); err == nil && len(replicas) > 0 {
			replicas[o.rng.IntN(len(replicas))] = node.ID
			to[p] = replicas
		}
	}
	if len(to) > 0 {
		o.tell("node %d has joined; reassign %s", node.ID, movesText(to))
		if err := o.move(to); err != nil {
			return err
		}
	}
	o.pause(o.ctx, o.hold)
	if o.rng.IntN(2) == 0 {
		o.toNode(o.ctx, step{act: actKill}, node.ID)
		o.pause(o.ctx, o.hold/4)
		o.toNode(o.ctx, step{act: actStart}, node.ID)
		o.pause(o.ctx, o.hold/2)
	}
	o.tell("node %d leaves", node.ID)
	if err := m.Leave(o.ctx, node.ID); err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	o.tell("node %d has left", node.ID)
	o.changed(node.ID, true) // a node that is no more is none that is down
	return nil
}

// replace wipes the disk of a node that is one of the replicas of everything, when all others are in sync.
func (o *operation) replace() error {
	if err := o.mendRot(); err != nil {
		return err
	}
	nodes := o.cluster.Nodes()
	id := nodes[o.rng.IntN(len(nodes))].ID
	got := o.nemesis.hold(o.ctx, []int32{id}, 2*holdLimit)
	defer o.release(got)
	if len(got) == 0 {
		return fmt.Errorf("%w: node %d is taken", errNotNow, id)
	}
	if err := o.whole(15 * time.Second); err != nil {
		return err
	}
	o.tell("the disk of node %d is wiped", id)
	o.changed(id, false)
	err := o.cluster.(Members).Replace(o.ctx, id)
	o.changed(id, true)
	if err != nil {
		return fmt.Errorf("replace node %d: %w", id, err)
	}
	o.tell("node %d is back", id)
	return nil
}

package isr

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
)

// simFactor is the number of replicas of the topic.
const simFactor = 3

// mayBeUnclean says whether the topic of this seed has unclean.leader.election.enable.
func (w *simWorld) mayBeUnclean() bool { return w.seed%3 == 0 }

// minInSyncOf is min.insync.replicas as a broker that has applied an image understands it.
func (w *simWorld) minInSyncOf(img *metadata.Image, part *metadata.Partition) int {
	t, _ := img.TopicByName(simName)
	return config.Layers{
		Static: w.static, Cluster: img.Configs(metadata.ResourceBroker, ""), Topic: img.Configs(metadata.ResourceTopic, t.Name),
		Replicas: t.ReplicationFactor(), Brokers: img.Size(),
	}.Effective().MinInsync(part.Settled())
}

// operator asks the controller for something now and then.
func (w *simWorld) operator() {
	if w.peace || w.now > simWar {
		return
	}
	w.after(w.between(300*time.Millisecond, 5*time.Second), w.operator)
	if w.chief < 0 {
		return
	}
	n := w.nodes[w.chief]
	what := w.rng.IntN(8)
	n.do(n.incarnations, func() {
		switch what {
		case 0, 1, 2:
			w.reassign(n)
		case 3:
			w.elect(n)
		case 4, 5:
			w.alter(n, "min.insync.replicas", strconv.Itoa(1+w.rng.IntN(3)))
		case 6:
			if w.mayBeUnclean() {
				w.alter(n, "unclean.leader.election.enable", strconv.FormatBool(w.chance(60)))
			}
		case 7:
			if w.mayBeDeleted() {
				w.delete(n)
			}
		}
	})
}

// reassign gives a partition other replicas, or cancels that.
func (w *simWorld) reassign(n *simNode) {
	r := controller.Reassignment{Topic: simName, Partition: int32(w.rng.IntN(simPartitions))}
	if w.chance(80) {
		for _, id := range w.rng.Perm(simNodes)[:simFactor] {
			r.Replicas = append(r.Replicas, int32(id))
		}
	}
	answers, err := n.control.Reassign(context.Background(), controller.ReassignRequest{Partitions: []controller.Reassignment{r}})
	if err == nil {
		err = answers[0].Err
	}
	if err == nil {
		w.stats.reassigned++
	}
	w.note("partition %d is to be on %v: %v", r.Partition, r.Replicas, err)
}

// elect asks for the preferred leaders, or, where that may be, for any.
func (w *simWorld) elect(n *simNode) {
	w.byOrder = w.mayBeUnclean() && w.chance(30)
	_, err := n.control.ElectLeaders(context.Background(), controller.ElectLeadersRequest{Unclean: w.byOrder})
	w.note("leaders are elected, uncleanly %v: %v", w.byOrder, err)
	w.byOrder = false
}

// alter changes a setting of the topic.
func (w *simWorld) alter(n *simNode, key, value string) {
	_, err := n.control.IncrementalAlterConfigs(context.Background(), controller.AlterConfigsRequest{
		Receiver: controller.AnyBroker,
		Resources: []controller.AlterResource{{
			Resource: metadata.Resource{Kind: metadata.ResourceTopic, Name: simName},
			Ops:      []controller.ConfigOp{{Key: key, Value: &value}},
		}},
	})
	w.note("%s is to be %s: %v", key, value, err)
}

// deleter deletes records, up to the watermark or some of them.
func (w *simWorld) deleter() {
	if w.quiet {
		return
	}
	w.after(w.between(500*time.Millisecond, 6*time.Second), w.deleter)
	n, p, all := w.nodes[w.rng.IntN(simNodes)], w.rng.IntN(simPartitions), w.chance(50)
	n.do(n.incarnations, func() {
		r := n.replicas[p]
		if r.lead == nil || int(r.hw) <= r.start {
			return
		}
		to := int(r.hw)
		if !all {
			to = r.start + w.rng.IntN(to-r.start)
		}
		w.allow(r, to)
		w.stats.deletes++
		r.moveStart(to)
		r.lead.logStart = record.Offset(to)
		n.wake(p)
		w.note("node %d, partition %d: what lies below %d is deleted", n.id, p, to)
	})
}

// leftAlone notes partitions of which the only complete replica is one that has lost data, without the controller's knowledge, since a
// decision that has it lead: alone, where min.insync.replicas is 1, so that nobody else need have everything.
func (w *simWorld) leftAlone(was, img *metadata.Image) {
	robbed := func(p int, part *metadata.Partition) bool {
		for _, id := range append(slices.Clone(part.ISR), part.ELR...) {
			if !w.nodes[id].replicas[p].robbed {
				return false
			}
		}
		return true
	}
	for p := range simPartitions {
		before, known := was.Partition(w.topic, int32(p))
		after, ok := img.Partition(w.topic, int32(p))
		switch {
		case !known || !ok || !robbed(p, after):
			w.truth[p].alone = false
		case !robbed(p, before):
			w.truth[p].alone = img.LeaderOf(after) >= 0 && img.Alive(after.Leader)
		}
	}
}

// uncleanly begins a new truth with each unclean election: what was committed may be lost, and nothing that is committed from
// then on.
func (w *simWorld) uncleanly(was, img *metadata.Image) {
	for p := range simPartitions {
		part, ok := img.Partition(w.topic, int32(p))
		t := &w.truth[p]
		if !ok || record.Epoch(part.UncleanEpoch) <= t.unclean {
			continue
		}
		if !w.byOrder && !uncleanIn(was) {
			w.broken("partition %d: an unclean election in epoch %d that nobody allowed", p, part.UncleanEpoch)
		}
		w.stats.unclean++
		w.note("partition %d: %d is elected uncleanly in epoch %d", p, part.Leader, part.UncleanEpoch)
		t.unclean, t.latest, t.committed, t.by, t.base = record.Epoch(part.UncleanEpoch), 0, nil, nil, 0
		for _, n := range w.nodes {
			n.replicas[p].verified = 0
		}
	}
}

// String names what the operator and the nemesis have reached.
func (s simStats) String() string {
	return fmt.Sprintf("%d steps, %d acknowledged, %d refused, %d elections, %d of them unclean, %d faults, %d cuts, %d of them of whole logs, %d disks lost data, %d deletions, %d by retention, %d reassignments, %d topics made again, %d times a log did not open",
		s.steps, s.acked, s.refused, s.elections, s.unclean, s.faults, s.truncations, s.restarts, s.lost, s.deletes, s.retained, s.reassigned, s.topics, s.shut)
}

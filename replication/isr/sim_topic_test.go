package isr

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
)

// This file is the life of the topic: it is made, deleted and made again under the same name; its oldest records go; its
// replicas are held back.

// mayBeDeleted says whether the topic of this seed is deleted now and then.
func (w *simWorld) mayBeDeleted() bool { return w.seed%4 == 1 }

// topicOf is the id of the topic in an image, zero for none.
func topicOf(img *metadata.Image) metadata.TopicID {
	if t, ok := img.TopicByName(simName); ok {
		return t.ID
	}
	return metadata.TopicID{}
}

// uncleanIn says whether an image lets any replica lead.
func uncleanIn(img *metadata.Image) bool {
	return img.Configs(metadata.ResourceTopic, simName)["unclean.leader.election.enable"] == "true"
}

func (w *simWorld) newTopicID() metadata.TopicID {
	w.topics++
	return metadata.TopicID{1, byte(w.topics), byte(w.topics >> 8)}
}

// createTopic makes the topic unless it is there: the first time once all brokers are.
func (w *simWorld) createTopic() {
	if w.topic != (metadata.TopicID{}) {
		return
	}
	again := func() { w.after(200*time.Millisecond, w.createTopic) }
	if w.chief < 0 || w.nodes[w.chief].paused || w.topics == 0 && len(w.members(w.newest())) < simNodes {
		again()
		return
	}
	c := w.nodes[w.chief]
	answers, err := c.control.CreateTopics(hurried(), controller.CreateTopicsRequest{
		Topics: []controller.CreateTopic{{Name: simName, Partitions: simPartitions, Replicas: simFactor, Configs: []metadata.Setting{
			{Key: "unclean.leader.election.enable", Value: new(strconv.FormatBool(w.mayBeUnclean()))},
		}}},
	})
	if err != nil || answers[0].Err != nil && !errors.Is(answers[0].Err, controller.ErrTopicExists) {
		again()
	}
}

// hurried is a context whose time is over: nobody waits, in real time, until others have heard of it.
func hurried() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// delete deletes the topic, which is made again soon.
func (w *simWorld) delete(n *simNode) {
	_, err := n.control.DeleteTopics(hurried(), []controller.TopicRef{{Name: simName}})
	w.note("the topic is to be deleted: %v", err)
	w.after(w.between(0, 2*time.Second), w.createTopic)
}

// renewed begins a new truth with each new topic.
func (w *simWorld) renewed(img *metadata.Image) {
	id := topicOf(img)
	if id == w.topic {
		return
	}
	w.note("the topic has the id %v instead of %v", id[:3], w.topic[:3])
	if id != (metadata.TopicID{}) && id[1]+id[2] > 1 {
		w.stats.topics++
	}
	w.topic, w.truth = id, [simPartitions]simTruth{}
	for _, n := range w.nodes {
		for _, r := range n.replicas {
			r.verified = 0
		}
	}
}

// counts says whether what a replica does is of any account: it is not of a topic that is gone, nor before an unclean election.
func (w *simWorld) counts(r *simReplica) bool {
	return r.topic == w.topic && r.epoch >= w.truth[r.p].unclean
}

// belong is what a broker does about the topic of an image: the log of a topic that is gone is deleted.
func (r *simReplica) belong(id metadata.TopicID) {
	if r.topic == id {
		return
	}
	if r.topic != (metadata.TopicID{}) {
		r.n.w.note("node %d deletes partition %d of topic %v, with %d to %d", r.n.id, r.p, r.topic[:3], r.start, len(r.log))
		r.wipe(-1)
	}
	r.topic, r.epoch, r.leader = id, -1, -1
}

// produce is a request that names the topic by id.
func (n *simNode) produce(topic metadata.TopicID, p, value int, all bool) {
	if r := n.replicas[p]; r.topic == topic {
		r.produce(value, all, func(bool) {})
		return
	}
	n.w.stats.refused++
}

// allow notes that what lies below an offset may go.
func (w *simWorld) allow(r *simReplica, to int) {
	if r.topic == w.topic {
		w.truth[r.p].deleted = max(w.truth[r.p].deleted, to)
	}
}

// retainer has a replica delete its oldest records, as each does for itself, below its own watermark.
func (w *simWorld) retainer() {
	if w.quiet {
		return
	}
	w.after(w.between(time.Second, 8*time.Second), w.retainer)
	n, p, part := w.nodes[w.rng.IntN(simNodes)], w.rng.IntN(simPartitions), w.rng.Float64()
	n.do(n.incarnations, func() {
		r := n.replicas[p]
		to := r.start + int(part*float64(int(r.hw)-r.start+1))
		if r.leader < 0 || to <= r.start || to > int(r.hw) {
			return
		}
		w.stats.retained++
		w.allow(r, to)
		r.moveStart(to)
		r.moved()
		w.note("node %d, partition %d: retention takes what lies below %d", n.id, p, to)
	})
}

// moved tells the role of a new log start.
func (r *simReplica) moved() {
	switch {
	case r.lead != nil:
		r.lead.logStart = record.Offset(r.start)
		r.n.wake(r.p)
	case r.fol != nil && !r.fol.busy:
		r.fol.start = record.Offset(r.start)
		if r.n.links[r.leader] != nil {
			r.n.links[r.leader].pump()
		}
	}
}

// beginStart moves the log start to the leader's beside what else happens; one at a time.
func (r *simReplica) beginStart(to int) {
	if r.starting > 0 {
		return
	}
	r.starting = to
	reign := r.reign
	r.n.later(r.n.w.between(200*time.Microsecond, 10*time.Millisecond)+r.n.w.stall[r.n.id], func() {
		if reign == r.reign {
			r.started()
			r.moved()
			r.startDue()
		}
	})
}

// startDue moves the log start on, where the follower's core wants that.
func (r *simReplica) startDue() {
	if r.fol != nil {
		if to := r.fol.startDue(); to >= 0 {
			r.beginStart(int(to))
		}
	}
}

// started is the end of beginStart, for which whoever changes the log or the role waits.
func (r *simReplica) started() {
	r.moveStart(r.starting)
	r.starting = 0
}

// throttleFor holds back what a node sends to, and asks for as, a replica that is not in sync.
func (w *simWorld) throttleFor(i int, d time.Duration) {
	w.throttled[i], w.held[i] = w.chance(70), w.chance(70)
	w.note("node %d is throttled for %v, as leader %v, as follower %v", i, d, w.throttled[i], w.held[i])
	w.after(d, func() { w.throttled[i], w.held[i] = false, false })
}

// keptBack says whether a leader's throttle concerns a replica now.
func (r *simReplica) keptBack(id int) bool {
	return r.n.w.throttled[r.n.id] && r.lead != nil && !slices.Contains(r.lead.inSync, int32(id))
}

// throttle has the followers of a node ask for records again, or for none.
func (n *simNode) throttle() {
	for p, r := range n.replicas {
		if r.fol != nil {
			part, ok := n.image.Partition(r.topic, int32(p))
			r.fol.held = ok && n.w.held[n.id] && !slices.Contains(part.ISR, int32(n.id))
		}
	}
}

package controller

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/keeplog/keeplog/metadata"
)

// The tests of this file are named after failures of other systems; the comments say what went wrong there.

// three is a world of three live brokers with one topic on all of them.
func three(t *testing.T, configs ...metadata.Setting) (*world, func() *metadata.Partition) {
	t.Helper()
	w := newWorld()
	ctx := context.Background()
	for id := int32(1); id <= 3; id++ {
		epoch, err := w.c.RegisterBroker(ctx, Registration{
			ID: id, Incarnation: [16]byte{byte(id)}, Directories: []metadata.DirectoryID{{byte(id)}}, PreviousEpoch: -1, Features: SupportedFeatures(),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.c.Unfence(ctx, id, epoch); err != nil {
			t.Fatal(err)
		}
	}
	answers, err := w.c.CreateTopics(ctx, CreateTopicsRequest{Topics: []CreateTopic{{
		Name: "t", Partitions: -1, Replicas: -1, Configs: configs, Assignment: []PartitionAssignment{{0, []int32{1, 2, 3}}},
	}}})
	if err != nil || answers[0].Err != nil {
		t.Fatal(err, answers)
	}
	return w, func() *metadata.Partition {
		topic, _ := w.img.TopicByName("t")
		return topic.Partitions[0]
	}
}

func (w *world) brokerEpoch(id int32) int64 {
	b, _ := w.img.Broker(id)
	return b.Epoch
}

func (w *world) restart(t *testing.T, id int32, incarnation byte) {
	t.Helper()
	_, err := w.c.RegisterBroker(context.Background(), Registration{
		ID: id, Incarnation: [16]byte{byte(id), incarnation}, Directories: []metadata.DirectoryID{{byte(id)}}, PreviousEpoch: -1, Features: SupportedFeatures(),
	})
	if err != nil {
		t.Fatal(err)
	}
}

// wish is what the leader would ask for now.
func (w *world) wish(ids ...int32) ISRChange {
	topic, _ := w.img.TopicByName("t")
	p := topic.Partitions[0]
	ch := ISRChange{Topic: topic.ID, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Recovered: true}
	for _, id := range ids {
		ch.ISR = append(ch.ISR, InSyncMember{id, w.brokerEpoch(id)})
	}
	return ch
}

func (w *world) ask(t *testing.T, leader int32, ch ISRChange) error {
	t.Helper()
	answers, err := w.c.AlterPartition(context.Background(), AlterPartitionRequest{Broker: leader, Epoch: w.brokerEpoch(leader), Changes: []ISRChange{ch}})
	if err != nil {
		t.Fatal(err)
	}
	return answers[0].Err
}

func (w *world) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A follower that has caught up with the leader of an earlier epoch joined the in-sync set after that leadership had ended,
// though it was behind the start of the new one (KAFKA-7128). A wish is of one leadership, and dies with it.
func TestCatalogue27JoinOfAnEarlierLeadership(t *testing.T) {
	w, p := three(t)
	w.must(t, w.ask(t, 1, w.wish(1, 2)))
	join := w.wish(1, 2, 3)
	w.must(t, w.c.Fence(t.Context(), 1, w.brokerEpoch(1)))
	w.must(t, w.c.Unfence(t.Context(), 1, w.brokerEpoch(1)))
	if err := w.ask(t, 1, join); !errors.Is(err, ErrFencedLeaderEpoch) {
		t.Errorf("a wish of the old leader: %v", err)
	}
	// Nor does the same leader's wish outlive a restart of it, where nobody else could lead.
	w.must(t, w.ask(t, 2, w.wish(2)))
	join = w.wish(2, 3)
	w.restart(t, 2, 9)
	w.must(t, w.c.Unfence(t.Context(), 2, w.brokerEpoch(2)))
	if err := w.ask(t, 2, join); !errors.Is(err, ErrFencedLeaderEpoch) {
		t.Errorf("a wish of the last incarnation: %v", err)
	}
	if got := p().ISR; !slices.Equal(got, []int32{2}) {
		t.Errorf("in sync: %v", got)
	}
}

// The last replica in sync lost its tail in a crash, came back as the leader, and everybody cut their logs to it (KIP-966,
// KAFKA-15583). The high watermark stands still below min.insync.replicas, those who were there then may lead, and the one
// that lost data may not.
func TestCatalogue31LastReplicaStanding(t *testing.T) {
	w, p := three(t)
	w.must(t, w.ask(t, 1, w.wish(1, 2)))
	w.must(t, w.ask(t, 1, w.wish(1)))
	w.must(t, w.c.Fence(t.Context(), 2, w.brokerEpoch(2)))
	w.restart(t, 1, 9)
	lost := []PartitionRef{{p0(w).ID, 0}}
	w.must(t, w.c.ReportLost(t.Context(), 1, w.brokerEpoch(1), lost))
	w.must(t, w.c.Unfence(t.Context(), 1, w.brokerEpoch(1)))
	if leader := w.img.LeaderOf(p()); leader != metadata.NoLeader {
		t.Fatalf("broker %d leads; 1 has lost data, 3 was behind, 2 is down: %+v", leader, p())
	}
	w.must(t, w.c.Unfence(t.Context(), 2, w.brokerEpoch(2)))
	if got := p(); got.Leader != 2 || !slices.Equal(got.ISR, []int32{2}) || got.Unclean || got.UncleanEpoch != 0 {
		t.Errorf("2 has everything: %+v", got)
	}
	// Only a command, or a setting, lets a replica lead that does not have everything; then followers are told that they may cut.
	w.must(t, w.c.Fence(t.Context(), 2, w.brokerEpoch(2)))
	answers, err := w.c.ElectLeaders(t.Context(), ElectLeadersRequest{Unclean: true})
	w.must(t, err)
	w.must(t, answers[0].Err)
	if got := p(); got.Leader != 1 || !got.Unclean || got.UncleanEpoch != got.LeaderEpoch || len(got.ELR) > 0 {
		t.Errorf("after an unclean election: %+v", got)
	}
}

func p0(w *world) *metadata.Topic {
	topic, _ := w.img.TopicByName("t")
	return topic
}

// A replica that had restarted, and lost data, was taken back into the in-sync set by a request that was made before
// (KAFKA-15586, KAFKA-14617).
func TestCatalogue32RestartedReplicaAndAStaleRequest(t *testing.T) {
	w, p := three(t)
	w.must(t, w.ask(t, 1, w.wish(1, 2)))
	stale := w.wish(1, 2, 3)
	w.restart(t, 3, 9)
	w.must(t, w.c.Unfence(t.Context(), 3, w.brokerEpoch(3)))
	if err := w.ask(t, 1, stale); !errors.Is(err, ErrIneligibleReplica) {
		t.Errorf("with the broker epoch of the last incarnation: %v", err)
	}
	// It was in the set: losing data takes it out, and the leader's old view with it.
	w.must(t, w.ask(t, 1, w.wish(1, 2, 3)))
	stale = w.wish(1, 3)
	w.restart(t, 3, 10)
	w.must(t, w.c.ReportLost(t.Context(), 3, w.brokerEpoch(3), []PartitionRef{{p0(w).ID, 0}}))
	w.must(t, w.c.Unfence(t.Context(), 3, w.brokerEpoch(3)))
	if err := w.ask(t, 1, stale); !errors.Is(err, ErrInvalidUpdateVersion) {
		t.Errorf("with the partition epoch from before: %v", err)
	}
	if got := p().ISR; !slices.Equal(got, []int32{1, 2}) {
		t.Errorf("in sync: %v", got)
	}
	if err := w.ask(t, 1, ISRChange{
		Topic: p0(w).ID, LeaderEpoch: p().LeaderEpoch, PartitionEpoch: p().PartitionEpoch, ISR: []InSyncMember{{1, 1}, {3, -1}}, Recovered: true,
	}); !errors.Is(err, ErrIneligibleReplica) {
		t.Errorf("a joiner without a broker epoch: %v", err)
	}
}

// A fenced replica joined the in-sync set (KAFKA-13916): whoever joins is looked at when the change is decided.
func TestCatalogue33FencedReplicaJoins(t *testing.T) {
	w, p := three(t)
	w.must(t, w.ask(t, 1, w.wish(1, 2)))
	w.must(t, w.c.Fence(t.Context(), 3, w.brokerEpoch(3)))
	if err := w.ask(t, 1, w.wish(1, 2, 3)); !errors.Is(err, ErrIneligibleReplica) {
		t.Errorf("fenced: %v", err)
	}
	w.must(t, w.c.Unfence(t.Context(), 3, w.brokerEpoch(3)))
	if _, err := w.c.Heartbeat(t.Context(), 0, Heartbeat{ID: 3, Epoch: w.brokerEpoch(3), Applied: w.index, WantShutdown: true}); err != nil {
		t.Fatal(err)
	}
	if err := w.ask(t, 1, w.wish(1, 2, 3)); !errors.Is(err, ErrIneligibleReplica) {
		t.Errorf("shutting down: %v", err)
	}
	if got := p().ISR; !slices.Equal(got, []int32{1, 2}) {
		t.Errorf("in sync: %v", got)
	}
}

// A partition, kills and a change of members together lost acknowledged data (nats-server#7545). A reassignment drops nobody
// before the others are enough, a cancelled one neither, and every change is planned against the one before it.
func TestCatalogue39MembershipUnderFaults(t *testing.T) {
	w, p := three(t)
	for id := int32(4); id <= 5; id++ {
		w.restart(t, id, 1)
		w.must(t, w.c.Unfence(t.Context(), id, w.brokerEpoch(id)))
	}
	reassign := func(replicas []int32) error {
		t.Helper()
		answers, err := w.c.Reassign(t.Context(), ReassignRequest{Partitions: []Reassignment{{"t", 0, replicas}}})
		w.must(t, err)
		return answers[0].Err
	}
	w.must(t, reassign([]int32{3, 4, 5}))
	w.must(t, w.ask(t, 1, w.wish(1, 2, 4)))
	w.must(t, w.c.Fence(t.Context(), 2, w.brokerEpoch(2)))
	if got := p(); len(got.Replicas) != 5 || !slices.Equal(got.ISR, []int32{1, 4}) {
		t.Fatalf("nothing is done yet: %+v", got)
	}
	stale := w.wish(1, 4, 5)
	w.must(t, w.ask(t, 1, w.wish(1, 4)))
	if err := reassign(nil); !errors.Is(err, ErrInvalidReplicaAssignment) {
		t.Errorf("cancelled with one of the former replicas in sync: %v", err)
	}
	// The one that comes is fenced between the leader's wish and the decision.
	w.must(t, w.c.Fence(t.Context(), 5, w.brokerEpoch(5)))
	if err := w.ask(t, 1, stale); err == nil {
		t.Error("a fenced replica completed a reassignment")
	}
	w.must(t, w.c.Unfence(t.Context(), 5, w.brokerEpoch(5)))
	epoch := p().LeaderEpoch
	if err := w.ask(t, 1, w.wish(1, 4, 5)); !errors.Is(err, ErrNewLeaderElected) {
		t.Errorf("done: %v", err)
	}
	got := p()
	if !slices.Equal(got.Replicas, []int32{3, 4, 5}) || !slices.Equal(got.ISR, []int32{4, 5}) || got.Leader != 4 || got.LeaderEpoch <= epoch {
		t.Errorf("%+v", got)
	}
	// A wish of the one that is no replica any more.
	if err := w.ask(t, 1, w.wish(1, 4, 5)); err == nil {
		t.Error("a former leader was heard")
	}
}

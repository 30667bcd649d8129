package api

import (
	"encoding/binary"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/peer"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/replication/isr"
	"github.com/keeplog/keeplog/vfs"
)

// leaderWorld is a broker 1 with real partitions, leader of a topic that broker 2 follows; the test is broker 2.
type leaderWorld struct {
	*world
	id       metadata.TopicID
	replicas *isr.Replicas
	steps    *log.Stepped
	epoch    int64 // of broker 2
	session  int32
	next     int32
}

func newLeaderWorld(t *testing.T) *leaderWorld {
	t.Helper()
	w := &leaderWorld{world: newWorld(t), id: metadata.TopicID{7}, steps: &log.Stepped{}}
	codecs := record.NewCodecs()
	dir, err := log.OpenDir(log.DirOptions{
		FS: vfs.NewMem(), Path: "/data", Logger: slog.New(slog.DiscardHandler), Codecs: codecs, Now: func() time.Time { return w.now },
		Committer: w.steps, Settings: log.Settings{Reserve: -1},
	})
	if err != nil {
		t.Fatal(err)
	}
	topic := config.Layers{Static: config.Default(), Replicas: 2, Brokers: 2}.Effective()
	w.replicas = isr.New(isr.Options{
		BrokerID: 1, Dirs: []*log.Dir{dir}, Codecs: codecs, Logger: slog.New(slog.DiscardHandler),
		Settings: func(*metadata.Image, *metadata.Topic) config.Topic { return topic },
	})
	w.apply(metadata.BrokerRegistered{ID: 2, Incarnation: [16]byte{2}})
	b, _ := w.image.Broker(2)
	w.epoch = b.Epoch
	w.apply(metadata.BrokerFenced{ID: 2, Epoch: b.Epoch})
	w.apply(metadata.TopicCreated{Name: "t", ID: w.id, Partitions: []metadata.Partition{{Replicas: []int32{1, 2}, ISR: []int32{1, 2}, Leader: 1}}})
	w.replicas.ApplyAll(w.image)
	w.api.Close()
	o := w.api.o
	o.Replicas = FromISR(w.replicas)
	w.api, w.internal = New(o), true
	t.Cleanup(func() {
		w.api.Close()
		w.replicas.Close()
		dir.Close()
	})
	return w
}

// fetchAs is a follower's fetch that waits a minute: what it has written, and what is stable of it.
func (w *leaderWorld) fetchAs(written, stable int64) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.ReplicaState.ID, r.ReplicaState.Epoch = 2, w.epoch
	r.MaxWaitMillis, r.MinBytes, r.MaxBytes, r.SessionID, r.SessionEpoch = 60_000, 1, 1<<20, w.session, w.next
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch, p.LogStartOffset = written, 1<<20, 0, 0
	if written > 0 {
		p.LastFetchedEpoch = 0
	}
	if stable >= 0 {
		p.UnknownTags.Set(peer.TagStableEnd, binary.BigEndian.AppendUint64(nil, uint64(stable)))
	}
	r.Topics = []kmsg.FetchRequestTopic{{TopicID: w.id, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
	w.next++
	return r
}

func (w *leaderWorld) produce(acks int16) chan isr.ProduceResult {
	w.t.Helper()
	p, err := w.replicas.Partition(w.id, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	b := record.NewBuilder(record.NewOptions())
	b.Append(w.now.UnixMilli(), nil, []byte("v"))
	batch, err := b.Batch(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	got := make(chan isr.ProduceResult, 1)
	p.Produce(isr.ProduceRequest{Records: batch, Acks: acks, Timeout: time.Minute, NowMs: w.now.UnixMilli()}, func(r isr.ProduceResult) { got <- r })
	return got
}

// A follower's fetch over the brokers' listener: what is written is sent before it is flushed, what the follower has stable
// acknowledges, and the second fetch of a session has the first answered.
func TestFollowerFetches(t *testing.T) {
	w := newLeaderWorld(t)
	open := ask[*kmsg.FetchResponse](w.world, w.fetchAs(0, 0), 17)
	if open.ErrorCode != 0 || open.SessionID == 0 {
		t.Fatalf("a new session: %+v", open)
	}
	w.session = open.SessionID
	first := w.fetchAs(0, 0)
	_, one := w.begin(first, 17)
	equal(t, "parked", w.api.purgatory.len(), 1)
	acked := w.produce(-1)
	got := parse(t, first, one.wait(t)).(*kmsg.FetchResponse)
	if p := got.Topics[0].Partitions[0]; len(p.RecordBatches) == 0 || p.HighWatermark != 0 {
		t.Fatalf("the batch, before its flush: %+v", p)
	}
	second, third := w.fetchAs(1, 0), w.fetchAs(1, 1)
	_, two := w.begin(second, 17)
	if err := w.steps.Run(); err != nil {
		t.Fatal(err)
	}
	_, three := w.begin(third, 17)
	if got := parse(t, second, two.wait(t)).(*kmsg.FetchResponse); len(got.Topics) != 0 {
		t.Errorf("the fetch before: %+v", got)
	}
	if r := <-acked; r.Err != nil || r.Base != 0 {
		t.Errorf("acks=all: %+v", r)
	}
	got = parse(t, third, three.wait(t)).(*kmsg.FetchResponse)
	if p := got.Topics[0].Partitions[0]; p.HighWatermark != 1 || len(p.RecordBatches) != 0 {
		t.Errorf("after the acknowledgement: %+v", p)
	}
	equal(t, "parked", w.api.purgatory.len(), 0)
}

func TestFollowersAreChecked(t *testing.T) {
	w := newLeaderWorld(t)
	code := func(change func(*kmsg.FetchRequest), v int16) (whole, part int16) {
		w.session, w.next = 0, 0
		r := w.fetchAs(0, 0)
		change(r)
		resp := ask[*kmsg.FetchResponse](w.world, r, v)
		if len(resp.Topics) > 0 {
			part = resp.Topics[0].Partitions[0].ErrorCode
		}
		return resp.ErrorCode, part
	}
	for name, c := range map[string]struct {
		change      func(*kmsg.FetchRequest)
		v           int16
		whole, part int16
	}{
		"in order":              {func(*kmsg.FetchRequest) {}, 17, 0, 0},
		"no such session":       {func(r *kmsg.FetchRequest) { r.SessionID, r.SessionEpoch = 5, 7 }, 17, codeFetchSessionIDNotFound, 0},
		"no replica":            {func(r *kmsg.FetchRequest) { r.ReplicaState.ID = 9 }, 17, 0, codeUnknownLeaderEpoch},
		"an older run":          {func(r *kmsg.FetchRequest) { r.ReplicaState.Epoch-- }, 17, 0, codeStaleBrokerEpoch},
		"an epoch to come":      {func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].CurrentLeaderEpoch = 3 }, 17, 0, codeUnknownLeaderEpoch},
		"another topic":         {func(r *kmsg.FetchRequest) { r.Topics[0].TopicID[0]++ }, 17, 0, codeUnknownTopicOrPartition},
		"behind the end":        {func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].FetchOffset = 9 }, 17, 0, codeOffsetOutOfRange},
		"a version without ids": {func(r *kmsg.FetchRequest) { r.ReplicaID, r.Topics[0].Topic = 2, "t" }, 12, codeUnsupportedVersion, codeUnsupportedVersion},
	} {
		if whole, part := code(c.change, c.v); whole != c.whole || part != c.part {
			t.Errorf("%s: codes %d and %d, want %d and %d", name, whole, part, c.whole, c.part)
		}
	}
	w.internal = false // a client that says it is broker 2 moves nothing (CVE-2018-1288)
	done := w.produce(-1)
	if err := w.steps.Run(); err != nil {
		t.Fatal(err)
	}
	w.session, w.next = 0, 0
	resp := ask[*kmsg.FetchResponse](w.world, w.fetchAs(1, 1), 17)
	if c := resp.Topics[0].Partitions[0].ErrorCode; c != codeUnknownLeaderEpoch {
		t.Errorf("a client as a replica: %d", c)
	}
	select {
	case r := <-done:
		t.Errorf("a client's fetch acknowledged: %+v", r)
	default:
	}
}

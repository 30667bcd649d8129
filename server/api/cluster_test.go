package api

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/peer"
	"github.com/keeplog/keeplog/protocol"
	"github.com/keeplog/keeplog/replication/isr"
)

// filledCluster puts something into the lists of requests about the cluster.
func filledCluster(req kmsg.Request, id metadata.TopicID) {
	switch r := req.(type) {
	case *kmsg.AlterReplicaLogDirsRequest:
		r.Dirs = []kmsg.AlterReplicaLogDirsRequestDir{{Dir: "/data", Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: "t", Partitions: []int32{0}}}}}
	case *kmsg.IncrementalAlterConfigsRequest:
		r.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: 2, ResourceName: "t", Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "retention.ms"}}}}
	case *kmsg.ElectLeadersRequest:
		r.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "t", Partitions: []int32{0, 1}}}
	case *kmsg.AlterPartitionAssignmentsRequest:
		r.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: "t", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Replicas: []int32{1}}, {Partition: 1}}}}
	case *kmsg.ListPartitionReassignmentsRequest:
		r.Topics = []kmsg.ListPartitionReassignmentsRequestTopic{{Topic: "t", Partitions: []int32{0}}}
	case *kmsg.DescribeQuorumRequest:
		r.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: metadataLog, Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{}}}}
	case *kmsg.UpdateFeaturesRequest:
		r.FeatureUpdates = []kmsg.UpdateFeaturesRequestFeatureUpdate{{Feature: "f", MaxVersionLevel: 1, UpgradeType: 1}}
	case *kmsg.AddRaftVoterRequest:
		r.VoterID, r.VoterDirectoryID = 4, [16]byte{4}
		r.Listeners = []kmsg.AddRaftVoterRequestListener{{Name: "C", Host: "h", Port: 1}}
	case *kmsg.AlterPartitionRequest:
		p := kmsg.AlterPartitionRequestTopicPartition{NewISR: []int32{1}, NewEpochISR: []kmsg.AlterPartitionRequestTopicPartitionNewEpochISR{{BrokerID: 1}}}
		r.Topics = []kmsg.AlterPartitionRequestTopic{{TopicID: id, Partitions: []kmsg.AlterPartitionRequestTopicPartition{p}}}
	case *kmsg.EnvelopeRequest:
		inner := kmsg.NewPtrListPartitionReassignmentsRequest()
		r.RequestData, r.ClientHostAddress = formatter.AppendRequest(nil, inner, 7)[4:], []byte{127, 0, 0, 1}
		r.UnknownTags.Set(peer.TagReceiver, []byte{0, 0, 0, 2})
	case *kmsg.BrokerRegistrationRequest:
		r.Listeners = []kmsg.BrokerRegistrationRequestListener{{Name: "P", Host: "h", Port: 1}}
		r.LogDirs = [][16]byte{{1}}
	case *kmsg.BrokerHeartbeatRequest:
		r.UnknownTags.Set(peer.TagLost, make([]byte, 20))
	}
}

// fakeCluster is the other node: it leads until told otherwise, and answers from a world of its own.
type fakeCluster struct {
	leading bool
	to      *world
	err     error
	frames  int
	heard   []string
	wait    time.Duration
}

func (f *fakeCluster) Leading() bool      { return f.leading }
func (f *fakeCluster) Now() time.Duration { return time.Second }

func (f *fakeCluster) Heard(_ context.Context, id metadata.BrokerID, epoch int64) {
	f.heard = append(f.heard, fmt.Sprint(id, " ", epoch))
}

func (f *fakeCluster) Forward(ctx context.Context, c *Conn, frame []byte) ([]byte, error) {
	f.frames++
	if at, ok := ctx.Deadline(); ok {
		f.wait = time.Until(at)
	}
	if f.err != nil {
		return nil, f.err
	}
	env := &kmsg.EnvelopeRequest{RequestData: frame, ClientHostAddress: []byte{127, 0, 0, 1}}
	env.UnknownTags.Set(peer.TagReceiver, []byte{0, 0, 0, 1})
	f.to.internal = true
	defer func() { f.to.internal = false }()
	resp := ask[*kmsg.EnvelopeResponse](f.to, env, 0)
	if resp.ErrorCode != 0 {
		return nil, fmt.Errorf("code %d", resp.ErrorCode)
	}
	return resp.ResponseData, nil
}

// follower is a node, 1, that does not lead, and the one that does, 2.
func follower(t testing.TB) (w, leader *world, c *fakeCluster) {
	w, leader = newWorld(t), newWorld(t)
	c = &fakeCluster{to: leader}
	w.api.o.Cluster = c
	leader.api.o.Cluster = &fakeCluster{leading: true}
	leader.api.o.NodeID = 2
	return w, leader, c
}

// What the controller decides is answered by a node that is not it exactly as by the controller, to the byte; what it does not decide stays.
func TestForward(t *testing.T) {
	tables, rows := newTables()
	for _, api := range tables.APIs() {
		for v := api.Min; v <= api.Max && !api.Internal && api.Key != protocol.KeyMetadata; v++ {
			t.Run(fmt.Sprintf("%s/%d", api.Name, v), func(t *testing.T) {
				w, leader, c := follower(t)
				id := w.topic("t", 2)
				leader.topic("t", 2)
				if !rows[api.Key].forward {
					w.api.Drain()
				}
				frame := formatter.AppendRequest(nil, filled(api.Key, v, id), 42)[4:]
				_, s := w.raw(frame)
				a := s.wait(t)
				got := flat(t, &a)
				if !rows[api.Key].forward {
					equal(t, "forwarded", c.frames, 0)
					return
				}
				equal(t, "forwarded", c.frames, 1)
				straight := newWorld(t)
				straight.api.o.NodeID = 2
				straight.topic("t", 2)
				_, s = straight.raw(frame)
				b := s.wait(t)
				if d := cmp.Diff(flat(t, &b), got); d != "" {
					t.Errorf("answer (-controller's +through another node):\n%s", d)
				}
				if n := int32(binary.BigEndian.Uint32(got[4:])); n != 42 {
					t.Errorf("correlation id %d", n)
				}
			})
		}
	}
}

// Without a controller each item of a request says so when its time is over; when this node becomes the controller, it serves the request.
func TestForwardNobody(t *testing.T) {
	w, _, c := follower(t)
	c.err = errors.New("nobody leads")
	w.refuse = fmt.Errorf("%w: node 3 is", controller.ErrNotController)
	r := kmsg.NewPtrCreateTopicsRequest()
	r.TimeoutMillis = 1500
	r.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "a", NumPartitions: 1, ReplicationFactor: 1}, {Topic: "b", NumPartitions: 1, ReplicationFactor: 1}}
	for _, topic := range ask[*kmsg.CreateTopicsResponse](w, r, 7).Topics {
		equal(t, "code", topic.ErrorCode, 41)
	}
	if c.wait <= time.Second || c.wait > 1500*time.Millisecond {
		t.Errorf("waits for %s", c.wait)
	}
	c.err, w.refuse = ErrLeading, nil
	for _, topic := range ask[*kmsg.CreateTopicsResponse](w, r, 7).Topics {
		equal(t, "code", topic.ErrorCode, 0)
	}
}

// The levels of loggers are this broker's own, the rest of the request goes to the controller; it is the asked broker's name that counts there.
func TestForwardConfigs(t *testing.T) {
	w, leader, c := follower(t)
	r := kmsg.NewPtrIncrementalAlterConfigsRequest()
	level := "DEBUG"
	r.Resources = []kmsg.IncrementalAlterConfigsRequestResource{
		{ResourceType: 8, ResourceName: "1", Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "log", Value: &level}}},
		{ResourceType: 2, ResourceName: "t", Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "retention.ms", Op: 9}}},
		{ResourceType: 4, ResourceName: "1", Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "x", Value: &level}}},
	}
	resp := ask[*kmsg.IncrementalAlterConfigsResponse](w, r, 1)
	equal(t, "codes", fmt.Sprint(resp.Resources[0].ErrorCode, resp.Resources[1].ErrorCode, resp.Resources[2].ErrorCode), "0 -1 0")
	equal(t, "forwarded", c.frames, 1)
	equal(t, "asked", leader.receiver, 1)
	r.Resources = r.Resources[:1]
	ask[*kmsg.IncrementalAlterConfigsResponse](w, r, 1)
	equal(t, "forwarded", c.frames, 1)
	all := kmsg.NewPtrAlterConfigsRequest()
	all.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: 4, ResourceName: "1"}}
	leader.receiver = 0
	ask[*kmsg.AlterConfigsResponse](w, all, 1)
	equal(t, "asked", leader.receiver, 1)
}

// A topic that a client's look makes is made by the controller.
func TestForwardAutoCreate(t *testing.T) {
	w, leader, c := follower(t)
	r := kmsg.NewPtrMetadataRequest()
	r.AllowAutoTopicCreation, r.Topics = true, names("new", "bad name")
	resp := ask[*kmsg.MetadataResponse](w, r, 9)
	equal(t, "forwarded", c.frames, 1)
	if _, ok := leader.Image().TopicByName("new"); !ok {
		t.Error("no topic")
	}
	equal(t, "codes", fmt.Sprint(resp.Topics[0].ErrorCode, resp.Topics[1].ErrorCode), "3 17") // this node has not applied it
}

// What only brokers may ask is not served to clients, and an envelope holds only what the controller serves.
func TestInternalKeys(t *testing.T) {
	w := newWorld(t)
	for _, k := range []int16{protocol.KeyAlterPartition, protocol.KeyEnvelope, protocol.KeyBrokerRegistration, protocol.KeyBrokerHeartbeat, protocol.KeyAllocateProducerIDs} {
		api, _ := w.api.protocol.Lookup(k)
		_, client := w.api.Plan(&Conn{Listener: "PLAINTEXT"}, k, api.Max)
		_, broker := w.api.Plan(&Conn{Listener: "REPLICATION", Internal: true}, k, api.Max)
		if client || !broker {
			t.Errorf("key %d: clients %v, brokers %v", k, client, broker)
		}
	}
	client, _ := w.api.Plan(&Conn{}, protocol.KeyFetch, 17)
	broker, _ := w.api.Plan(&Conn{Internal: true}, protocol.KeyFetch, 17)
	equal(t, "fetches overlap", fmt.Sprint(client.Overlap, broker.Overlap), "false true")
	w.internal = true
	for name, inner := range map[string]kmsg.Request{"metadata": kmsg.NewPtrMetadataRequest(), "envelope": &kmsg.EnvelopeRequest{RequestData: []byte{}, ClientHostAddress: []byte{}}} {
		env := &kmsg.EnvelopeRequest{RequestData: formatter.AppendRequest(nil, inner, 1)[4:], ClientHostAddress: []byte{}}
		equal(t, name, ask[*kmsg.EnvelopeResponse](w, env, 0).ErrorCode, 42)
	}
	equal(t, "garbage", ask[*kmsg.EnvelopeResponse](w, &kmsg.EnvelopeRequest{RequestData: []byte{1}, ClientHostAddress: []byte{}}, 0).ErrorCode, 42)
	w.api.o.Cluster = &fakeCluster{}
	env := &kmsg.EnvelopeRequest{RequestData: formatter.AppendRequest(nil, kmsg.NewPtrListPartitionReassignmentsRequest(), 1)[4:], ClientHostAddress: []byte{}}
	equal(t, "not the controller", ask[*kmsg.EnvelopeResponse](w, env, 0).ErrorCode, 41)
}

// last is the last thing that the controller was asked.
func (w *world) last(t testing.TB) any {
	t.Helper()
	if len(w.requests) == 0 {
		t.Fatal("the controller was not asked")
	}
	return w.requests[len(w.requests)-1]
}

func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func TestElectLeaders(t *testing.T) {
	each(t, 43, func(t *testing.T, w *world, v int16) {
		r := kmsg.NewPtrElectLeadersRequest()
		r.ElectionType = 1
		r.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "a", Partitions: []int32{0, 1}}, {Topic: "b", Partitions: []int32{0}}}
		resp := ask[*kmsg.ElectLeadersResponse](w, r, v)
		same(t, "request", w.last(t), controller.ElectLeadersRequest{Unclean: v >= 1, Partitions: []controller.TopicPartition{{Topic: "a"}, {Topic: "a", Partition: 1}, {Topic: "b"}}})
		a, b := resp.Topics[0].Partitions, resp.Topics[1].Partitions
		equal(t, "codes", fmt.Sprint(resp.ErrorCode, a[0].ErrorCode, a[1].ErrorCode, b[0].ErrorCode), "0 0 84 0")
		equal(t, "text", *a[1].ErrorMessage, "Leader election not needed for topic partition.")
		r.Topics = nil
		ask[*kmsg.ElectLeadersResponse](w, r, v)
		same(t, "all", w.last(t), controller.ElectLeadersRequest{Unclean: v >= 1})
		w.refuse = controller.ErrNotController
		r.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "a", Partitions: []int32{0}}}
		resp = ask[*kmsg.ElectLeadersResponse](w, r, v)
		equal(t, "refused", resp.Topics[0].Partitions[0].ErrorCode, 41)
		if v >= 1 {
			equal(t, "refused", resp.ErrorCode, 41)
		}
	})
}

// A type of election that there is not is refused in each partition too, where clients look; version 0 has no type.
func TestElectLeadersOfAnUnknownType(t *testing.T) {
	each(t, 43, func(t *testing.T, w *world, v int16) {
		r := kmsg.NewPtrElectLeadersRequest()
		r.ElectionType = 7
		r.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "a", Partitions: []int32{0, 1}}, {Topic: "b", Partitions: []int32{0}}}
		resp := ask[*kmsg.ElectLeadersResponse](w, r, v)
		if v == 0 {
			equal(t, "asked", len(w.requests), 1)
			return
		}
		equal(t, "asked", len(w.requests), 0)
		got := words(resp.ErrorCode)
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				got += fmt.Sprintf(" %s-%d %d %q", topic.Topic, p.Partition, p.ErrorCode, *p.ErrorMessage)
			}
		}
		equal(t, "answer", got, `42 a-0 42 "Unknown election type 7" a-1 42 "Unknown election type 7" b-0 42 "Unknown election type 7"`)
		r.Topics = nil
		resp = ask[*kmsg.ElectLeadersResponse](w, r, v)
		equal(t, "all", fmt.Sprint(resp.ErrorCode, len(resp.Topics)), "42 0")
	})
}

func TestReassignments(t *testing.T) {
	each(t, 45, func(t *testing.T, w *world, v int16) {
		r := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		r.AllowReplicationFactorChange = false
		r.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: "a", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Replicas: []int32{1, 2}}, {Partition: 1}}}}
		resp := ask[*kmsg.AlterPartitionAssignmentsResponse](w, r, v)
		same(t, "request", w.last(t), controller.ReassignRequest{KeepFactor: v >= 1, Partitions: []controller.Reassignment{{Topic: "a", Replicas: []int32{1, 2}}, {Topic: "a", Partition: 1}}})
		p := resp.Topics[0].Partitions
		equal(t, "codes", fmt.Sprint(resp.ErrorCode, p[0].ErrorCode, p[1].ErrorCode), "0 0 85")
		w.refuse = controller.ErrNotController
		resp = ask[*kmsg.AlterPartitionAssignmentsResponse](w, r, v)
		equal(t, "refused", resp.ErrorCode, 41)
	})
	each(t, 46, func(t *testing.T, w *world, v int16) {
		r := kmsg.NewPtrListPartitionReassignmentsRequest()
		resp := ask[*kmsg.ListPartitionReassignmentsResponse](w, r, v)
		same(t, "all", w.last(t), []controller.TopicPartition(nil))
		p := resp.Topics[0].Partitions[0]
		equal(t, "answer", words(resp.Topics[0].Topic, p.Partition, p.Replicas, p.AddingReplicas, p.RemovingReplicas), "t 3 [1 2] [2] [1]")
		r.Topics = []kmsg.ListPartitionReassignmentsRequestTopic{}
		ask[*kmsg.ListPartitionReassignmentsResponse](w, r, v)
		same(t, "none", w.last(t), []controller.TopicPartition{})
		r.Topics = append(r.Topics, kmsg.ListPartitionReassignmentsRequestTopic{Topic: "t", Partitions: []int32{3}})
		ask[*kmsg.ListPartitionReassignmentsResponse](w, r, v)
		same(t, "one", w.last(t), []controller.TopicPartition{{Topic: "t", Partition: 3}})
		w.refuse = controller.ErrNotController
		equal(t, "refused", ask[*kmsg.ListPartitionReassignmentsResponse](w, r, v).ErrorCode, 41)
	})
}

// fakeQuorum is a quorum of two and a member that listens only.
type fakeQuorum struct {
	added   QuorumMember
	removed int32
	err     error
}

func (q *fakeQuorum) QuorumStatus() QuorumStatus {
	return QuorumStatus{Leader: 1, Term: 7, HighWatermark: 90, Members: []QuorumMember{
		{ID: 1, Directory: metadata.DirectoryID{1}, Voter: true, LogEnd: 90, Fetched: 5, CaughtUp: 5, Endpoint: metadata.Endpoint{Name: "CONTROLLER", Host: "h1", Port: 9093}},
		{ID: 2, Voter: true, LogEnd: 80, Fetched: 4, CaughtUp: 3},
		{ID: 3, LogEnd: -1, Fetched: -1, CaughtUp: -1},
	}}
}

func (q *fakeQuorum) AddVoter(_ context.Context, m QuorumMember) error {
	q.added = m
	return q.err
}

func (q *fakeQuorum) RemoveVoter(_ context.Context, id metadata.BrokerID, _ metadata.DirectoryID) error {
	q.removed = id
	return q.err
}

func TestDescribeQuorum(t *testing.T) {
	each(t, 55, func(t *testing.T, w *world, v int16) {
		r := kmsg.NewPtrDescribeQuorumRequest()
		filledCluster(r, metadata.TopicID{})
		p := ask[*kmsg.DescribeQuorumResponse](w, r, v).Topics[0].Partitions[0]
		equal(t, "alone", fmt.Sprint(p.LeaderID, len(p.CurrentVoters), p.CurrentVoters[0].ReplicaID, p.CurrentVoters[0].LogEndOffset == p.HighWatermark), "1 1 1 true")
		w.api.o.Quorum = &fakeQuorum{}
		resp := ask[*kmsg.DescribeQuorumResponse](w, r, v)
		p = resp.Topics[0].Partitions[0]
		equal(t, "quorum", fmt.Sprint(p.LeaderID, p.LeaderEpoch, p.HighWatermark, len(p.CurrentVoters), len(p.Observers), p.Observers[0].LogEndOffset), "1 7 90 2 1 -1")
		if v >= 1 {
			equal(t, "times", fmt.Sprint(p.CurrentVoters[1].LastFetchTimestamp, p.CurrentVoters[1].LastCaughtUpTimestamp), "4 3")
		}
		if v >= 2 {
			equal(t, "nodes", words(len(resp.Nodes), resp.Nodes[0].Listeners[0].Host, p.CurrentVoters[0].ReplicaDirectoryID[0]), "3 h1 1") // the observer too
		}
		r.Topics[0].Topic = "t"
		equal(t, "another topic", ask[*kmsg.DescribeQuorumResponse](w, r, v).Topics[0].Partitions[0].ErrorCode, 3)
	})
}

// Who asks about a partition that is not the metadata log's is told so, with a reason from version 2 on.
func TestDescribeQuorumOfAnotherPartition(t *testing.T) {
	each(t, 55, func(t *testing.T, w *world, v int16) {
		for _, c := range []struct {
			topic     string
			partition int32
		}{{"t", 0}, {metadataLog, 1}} {
			r := kmsg.NewPtrDescribeQuorumRequest()
			r.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: c.topic, Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{Partition: c.partition}}}}
			resp := ask[*kmsg.DescribeQuorumResponse](w, r, v)
			p := resp.Topics[0].Partitions[0]
			equal(t, "answer", fmt.Sprint(resp.ErrorCode, resp.Topics[0].Topic, p.Partition, p.ErrorCode), fmt.Sprint(0, c.topic, c.partition, 3))
			if v < 2 {
				continue
			}
			if p.ErrorMessage == nil || *p.ErrorMessage != "This server does not host this topic-partition." {
				t.Errorf("message %v", p.ErrorMessage)
			}
		}
	})
}

func TestRaftVoters(t *testing.T) {
	each(t, 80, func(t *testing.T, w *world, v int16) {
		r := kmsg.NewPtrAddRaftVoterRequest()
		r.TimeoutMillis, r.VoterID, r.VoterDirectoryID = 1000, 4, [16]byte{4}
		r.Listeners = []kmsg.AddRaftVoterRequestListener{{Name: "C", Host: "h", Port: 9}}
		equal(t, "alone", ask[*kmsg.AddRaftVoterResponse](w, r, v).ErrorCode, 35)
		q := &fakeQuorum{}
		w.api.o.Quorum = q
		equal(t, "added", ask[*kmsg.AddRaftVoterResponse](w, r, v).ErrorCode, 0)
		same(t, "member", q.added, QuorumMember{ID: 4, Directory: metadata.DirectoryID{4}, Voter: true, Endpoint: metadata.Endpoint{Name: "C", Host: "h", Port: 9}})
		q.err = ErrDuplicateVoter
		equal(t, "twice", ask[*kmsg.AddRaftVoterResponse](w, r, v).ErrorCode, 126)
		r.ClusterID = text("other")
		equal(t, "another cluster", ask[*kmsg.AddRaftVoterResponse](w, r, v).ErrorCode, 104)
	})
	each(t, 81, func(t *testing.T, w *world, v int16) {
		r := kmsg.NewPtrRemoveRaftVoterRequest()
		r.VoterID = 4
		equal(t, "alone", ask[*kmsg.RemoveRaftVoterResponse](w, r, v).ErrorCode, 35)
		q := &fakeQuorum{}
		w.api.o.Quorum = q
		equal(t, "removed", ask[*kmsg.RemoveRaftVoterResponse](w, r, v).ErrorCode, 0)
		equal(t, "who", q.removed, 4)
		q.err = ErrVoterNotFound
		equal(t, "unknown", ask[*kmsg.RemoveRaftVoterResponse](w, r, v).ErrorCode, 127)
	})
}

// A request for a voter that cannot be is refused as such, also where no voter can be added or removed; only the wrong cluster comes first.
func TestRaftVotersThatCannotBe(t *testing.T) {
	where := []metadata.Endpoint{{Name: "C", Host: "h", Port: 9}}
	for _, alone := range []bool{true, false} {
		each(t, 80, func(t *testing.T, w *world, v int16) {
			q := &fakeQuorum{}
			if !alone {
				w.api.o.Quorum = q
			}
			for _, c := range []struct {
				id        int32
				directory metadata.DirectoryID
				at        []metadata.Endpoint
			}{{-1, metadata.DirectoryID{4}, where}, {4, metadata.DirectoryID{}, where}, {4, metadata.DirectoryID{4}, nil}} {
				r := kmsg.NewPtrAddRaftVoterRequest()
				r.TimeoutMillis, r.VoterID, r.VoterDirectoryID = 1000, c.id, c.directory
				for _, e := range c.at {
					r.Listeners = append(r.Listeners, kmsg.AddRaftVoterRequestListener{Name: e.Name, Host: e.Host, Port: e.Port})
				}
				resp := ask[*kmsg.AddRaftVoterResponse](w, r, v)
				equal(t, fmt.Sprint(c), resp.ErrorCode, 42)
				if resp.ErrorMessage == nil || *resp.ErrorMessage == "" {
					t.Errorf("%v: no reason", c)
				}
				r.ClusterID = text("other")
				equal(t, "another cluster", ask[*kmsg.AddRaftVoterResponse](w, r, v).ErrorCode, 104)
			}
			same(t, "added", q.added, QuorumMember{})
		})
		each(t, 81, func(t *testing.T, w *world, v int16) {
			q := &fakeQuorum{}
			if !alone {
				w.api.o.Quorum = q
			}
			r := kmsg.NewPtrRemoveRaftVoterRequest()
			r.VoterID, r.VoterDirectoryID = -1, [16]byte{4}
			equal(t, "no node", ask[*kmsg.RemoveRaftVoterResponse](w, r, v).ErrorCode, 42)
			equal(t, "removed", q.removed, 0)
			r.ClusterID = text("other")
			equal(t, "another cluster", ask[*kmsg.RemoveRaftVoterResponse](w, r, v).ErrorCode, 104)
		})
	}
}

func TestFeaturesAndBrokers(t *testing.T) {
	each(t, 57, func(t *testing.T, w *world, v int16) {
		r := kmsg.NewPtrUpdateFeaturesRequest()
		r.ValidateOnly = true
		r.FeatureUpdates = []kmsg.UpdateFeaturesRequestFeatureUpdate{{Feature: "f", MaxVersionLevel: 2, AllowDowngrade: true, UpgradeType: 3}}
		resp := ask[*kmsg.UpdateFeaturesResponse](w, r, v)
		change := controller.UnsafeDowngrade
		if v == 0 {
			change = controller.SafeDowngrade
		}
		same(t, "request", w.last(t), controller.UpdateFeaturesRequest{ValidateOnly: v >= 1, Updates: []controller.FeatureUpdate{{Name: "f", Level: 2, Change: change}}})
		equal(t, "results", len(resp.Results), map[bool]int{true: 1, false: 0}[v < 2])
		w.refuse = &controller.Answer{Kind: controller.ErrFeatureUpdateFailed, Text: "no"}
		resp = ask[*kmsg.UpdateFeaturesResponse](w, r, v)
		equal(t, "refused", words(resp.ErrorCode, *resp.ErrorMessage), "95 The update failed for all features since the following feature had an error: no")
	})
	each(t, 64, func(t *testing.T, w *world, v int16) {
		r := &kmsg.UnregisterBrokerRequest{BrokerID: 9}
		equal(t, "code", ask[*kmsg.UnregisterBrokerResponse](w, r, v).ErrorCode, 0)
		same(t, "request", w.last(t), int32(9))
		w.refuse = &controller.Answer{Kind: controller.ErrBrokerNotRegistered, Text: "Broker ID 9 is not currently registered."}
		resp := ask[*kmsg.UnregisterBrokerResponse](w, r, v)
		equal(t, "refused", words(resp.ErrorCode, *resp.ErrorMessage), "102 Broker ID 9 is not currently registered.")
	})
}

func TestAlterReplicaLogDirs(t *testing.T) {
	each(t, 34, func(t *testing.T, w *world, v int16) {
		id := w.topic("t", 2)
		w.parts[id][1] = nil // a replica of others
		r := kmsg.NewPtrAlterReplicaLogDirsRequest()
		for _, c := range []struct {
			dir, topic string
			partition  int32
			says       error
			code       int16
		}{
			{"/data", "t", 0, nil, 0},
			{"/data", "t", 1, nil, 9},
			{"/data", "t", 2, nil, 3},
			{"/data", "u", 0, nil, 3},
			{"/data", "t", -1, nil, 3},
			{"/data", "../t", 0, nil, 3},
			{"/nowhere", "t", 0, nil, 57},
			{"/gone", "t", 0, nil, 56},
			{"/data", "t", 0, fmt.Errorf("%w: too long", log.ErrName), 17},
			{"/data", "t", 0, isr.ErrOffline, 56},
			{"/data", "t", 0, log.ErrReserve, 56},
			{"/data", "t", 0, log.ErrInTheWay, 56},
			{"/data", "t", 0, isr.ErrUnknownDirectory, 57},
		} {
			w.unplaced = c.says
			r.Dirs = []kmsg.AlterReplicaLogDirsRequestDir{{Dir: c.dir, Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: c.topic, Partitions: []int32{c.partition}}}}}
			equal(t, fmt.Sprint(c), ask[*kmsg.AlterReplicaLogDirsResponse](w, r, v).Topics[0].Partitions[0].ErrorCode, c.code)
		}
		equal(t, "asked", fmt.Sprint(w.placed[:4]), "[t-0 in /data t-1 in /data t-2 in /data u-0 in /data]") // also what is not here yet
	})
}

// A copy under way is told beside the replica, with how far it is behind.
func TestDescribeLogDirsOfAMove(t *testing.T) {
	each(t, 35, func(t *testing.T, w *world, v int16) {
		w.part(w.topic("t", 1), 0).future = isr.Future{DataDir: "/gone2", Size: 7, Lag: 3}
		resp := ask[*kmsg.DescribeLogDirsResponse](w, kmsg.NewPtrDescribeLogDirsRequest(), v)
		var told []string
		for _, d := range resp.Dirs {
			for _, topic := range d.Topics {
				for _, p := range topic.Partitions {
					told = append(told, fmt.Sprintf("%s %s-%d %d lag %d future %v", d.Dir, topic.Topic, p.Partition, p.Size, p.OffsetLag, p.IsFuture))
				}
			}
		}
		equal(t, "partitions", fmt.Sprint(told), "[/data t-0 10 lag 0 future false]") // of directories that are there
		w.part(metadata.TopicID{'t', 15: 1}, 0).future.DataDir = "/data2"
		resp = ask[*kmsg.DescribeLogDirsResponse](w, kmsg.NewPtrDescribeLogDirsRequest(), v)
		equal(t, "future", fmt.Sprint(resp.Dirs[2].Topics), fmt.Sprint([]kmsg.DescribeLogDirsResponseDirTopic{{Topic: "t", Partitions: []kmsg.DescribeLogDirsResponseDirTopicPartition{{Size: 7, OffsetLag: 3, IsFuture: true}}}}))
	})
}

// What brokers ask the controller arrives as package peer says it, and the answers have what it looks for.
func TestBrokerRequests(t *testing.T) {
	id := metadata.TopicID{1}
	eachInternal(t, 56, func(t *testing.T, w *world, v int16) {
		r := &kmsg.AlterPartitionRequest{BrokerID: 1, BrokerEpoch: 5}
		for n := range int32(2) {
			p := kmsg.AlterPartitionRequestTopicPartition{Partition: n, LeaderEpoch: 3, PartitionEpoch: 4, LeaderRecoveryState: 1}
			p.NewISR, p.NewEpochISR = []int32{1, 2}, []kmsg.AlterPartitionRequestTopicPartitionNewEpochISR{{BrokerID: 1, BrokerEpoch: 5}, {BrokerID: 2, BrokerEpoch: 6}}
			r.Topics = append(r.Topics, kmsg.AlterPartitionRequestTopic{TopicID: id, Partitions: []kmsg.AlterPartitionRequestTopicPartition{p}})
		}
		resp := ask[*kmsg.AlterPartitionResponse](w, r, v)
		members := []controller.InSyncMember{{ID: 1, Epoch: 5}, {ID: 2, Epoch: 6}}
		if v < 3 {
			members = []controller.InSyncMember{{ID: 1, Epoch: -1}, {ID: 2, Epoch: -1}}
		}
		change := controller.ISRChange{Topic: id, LeaderEpoch: 3, PartitionEpoch: 4, ISR: members}
		second := change
		second.Partition = 1
		same(t, "request", w.last(t), controller.AlterPartitionRequest{Broker: 1, Epoch: 5, Changes: []controller.ISRChange{change, second}})
		equal(t, "topics", len(resp.Topics), 1)
		a, b := resp.Topics[0].Partitions[0], resp.Topics[0].Partitions[1]
		equal(t, "answer", fmt.Sprint(a.ErrorCode, a.LeaderID, a.LeaderEpoch, a.PartitionEpoch, a.ISR, a.LeaderRecoveryState), "0 1 3 5 [1 2] 1")
		equal(t, "answer", b.ErrorCode, 107)
		w.refuse = controller.ErrStaleBrokerEpoch
		equal(t, "refused", ask[*kmsg.AlterPartitionResponse](w, r, v).ErrorCode, 77)
	})
	eachInternal(t, 62, func(t *testing.T, w *world, v int16) {
		r := &kmsg.BrokerRegistrationRequest{BrokerID: 2, ClusterID: "c", IncarnationID: [16]byte{9}, Rack: text("r"), LogDirs: [][16]byte{{8}}}
		r.Listeners = []kmsg.BrokerRegistrationRequestListener{{Name: "P", Host: "h", Port: 9, SecurityProtocol: 1}}
		equal(t, "epoch", ask[*kmsg.BrokerRegistrationResponse](w, r, v).BrokerEpoch, 71)
		want := controller.Registration{ID: 2, ClusterID: "c", Incarnation: [16]byte{9}, Rack: "r", Listeners: []metadata.Endpoint{{Name: "P", Host: "h", Port: 9, Protocol: 1}}}
		if v >= 2 {
			want.Directories = []metadata.DirectoryID{{8}}
		}
		r.Features = []kmsg.BrokerRegistrationRequestFeature{{Name: "f", MinSupportedVersion: 1, MaxSupportedVersion: 3}}
		ask[*kmsg.BrokerRegistrationResponse](w, r, v)
		want.Features = []controller.Feature{{Name: "f", Min: 1, Max: 3}}
		same(t, "request", w.last(t), want)
		for err, code := range map[error]int16{controller.ErrDuplicateBroker: 101, controller.ErrUnsupportedFeature: 35, controller.ErrInconsistentClusterID: 104, controller.ErrNotController: 41} {
			w.refuse = err
			resp := ask[*kmsg.BrokerRegistrationResponse](w, r, v)
			equal(t, "refused", fmt.Sprint(resp.ErrorCode, resp.BrokerEpoch), fmt.Sprint(code, -1))
		}
	})
	eachInternal(t, 63, func(t *testing.T, w *world, v int16) {
		r := &kmsg.BrokerHeartbeatRequest{BrokerID: 2, BrokerEpoch: 7, CurrentMetadataOffset: 50, WantFence: true, WantShutdown: true}
		equal(t, "alone", ask[*kmsg.BrokerHeartbeatResponse](w, r, v).ErrorCode, 41)
		c := &fakeCluster{leading: true}
		w.api.o.Cluster = c
		three, four := append(id[:], 0, 0, 0, 3), append(id[:], 0, 0, 0, 4)
		r.UnknownTags.Set(peer.TagLost, slices.Concat(three, four))
		r.UnknownTags.Set(peer.TagOutOfOrder, four)
		want := controller.Heartbeat{
			ID: 2, Epoch: 7, Applied: 50, WantFence: true, WantShutdown: true, Lost: []controller.PartitionRef{{Topic: id, Partition: 3}},
			OutOfOrder: []controller.PartitionRef{{Topic: id, Partition: 4}},
		}
		if v >= 1 {
			r.OfflineLogDirs = [][16]byte{{8}}
			want.Offline = []metadata.DirectoryID{{8}}
		}
		r.UnknownTags.Set(peer.TagFeatures, []byte("\x02ab\x00\x00\x01\x02\x00\x00\x07\x00\x09"))
		want.Features = []controller.Feature{{Name: "ab", Min: 0, Max: 258}, {Name: "", Min: 7, Max: 9}}
		resp := ask[*kmsg.BrokerHeartbeatResponse](w, r, v)
		same(t, "request", w.last(t), want)
		equal(t, "answer", fmt.Sprint(resp.ErrorCode, resp.IsCaughtUp, resp.IsFenced, resp.ShouldShutdown), "0 true false false")
		same(t, "heard", c.heard, []string{"2 7"})
		w.refuse = controller.ErrBrokerNotRegistered
		equal(t, "refused", ask[*kmsg.BrokerHeartbeatResponse](w, r, v).ErrorCode, 102)
		same(t, "heard", c.heard, []string{"2 7"})
	})
	eachInternal(t, 67, func(t *testing.T, w *world, v int16) {
		r := &kmsg.AllocateProducerIDsRequest{BrokerID: 1, BrokerEpoch: 2}
		resp := ask[*kmsg.AllocateProducerIDsResponse](w, r, v)
		equal(t, "ids", fmt.Sprint(resp.ErrorCode, resp.ProducerIDStart, resp.ProducerIDLen), "0 0 3")
	})
}

// eachInternal is each on the listener of brokers.
func eachInternal(t *testing.T, key int16, f func(t *testing.T, w *world, v int16)) {
	t.Helper()
	each(t, key, func(t *testing.T, w *world, v int16) {
		w.internal = true
		f(t, w, v)
	})
}

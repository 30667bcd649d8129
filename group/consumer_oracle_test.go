package group

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// oracle asks Apache Kafka.
type oracle struct {
	t       testing.TB
	addr    string
	clients map[[2]int16]*kgo.Client
}

func newOracle(t testing.TB, addr string) *oracle {
	o := &oracle{t: t, addr: addr, clients: make(map[[2]int16]*kgo.Client)}
	t.Cleanup(func() {
		for _, c := range o.clients {
			c.Close()
		}
	})
	// The first one to ask for a coordinator makes Kafka create its topic.
	for range 50 {
		k := kmsg.NewPtrFindCoordinatorRequest()
		k.CoordinatorKeys = []string{"g"}
		found := askKafka[*kmsg.FindCoordinatorResponse](o, k, -1)
		if found != nil && len(found.Coordinators) > 0 && found.Coordinators[0].ErrorCode == 0 && o.describe("g").Err == oracleError("GROUP_ID_NOT_FOUND") {
			return o
		}
		pass(200 * time.Millisecond)
	}
	t.Fatal("Kafka has no coordinator for groups")
	return nil
}

// pass lets time pass at Kafka, which has no virtual one.
func pass(d time.Duration) { <-time.After(d) }

// oracleError is an error that Kafka answered.
type oracleError string

func (e oracleError) Error() string { return string(e) }

func kafkaError(code int16) error {
	if e := kerr.TypedErrorForCode(code); e != nil {
		return oracleError(e.Message)
	}
	return nil
}

// askKafka sends a request in a version, the newest one if negative; nil is no answer within some seconds.
func askKafka[T kmsg.Response](o *oracle, r kmsg.Request, version int16) T {
	key := [2]int16{r.Key(), version}
	c := o.clients[key]
	if c == nil {
		opts := []kgo.Opt{kgo.SeedBrokers(o.addr), kgo.ClientID("c")}
		if version >= 0 {
			v := kversion.Stable()
			v.SetMaxKeyVersion(r.Key(), version)
			opts = append(opts, kgo.MaxVersions(v))
		}
		var err error
		if c, err = kgo.NewClient(opts...); err != nil {
			o.t.Fatal(err)
		}
		o.clients[key] = c
	}
	ctx, cancel := context.WithTimeout(o.t.Context(), 5*time.Second)
	defer cancel()
	answer, err := c.Broker(1).Request(ctx, r)
	if err != nil {
		var none T
		if ctx.Err() != nil {
			return none
		}
		o.t.Fatalf("%T: %v", r, err)
	}
	return answer.(T)
}

func (o *oracle) topic(name string, partitions int) TopicID {
	r := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, int32(partitions), 1
	r.Topics, r.TimeoutMillis = append(r.Topics, topic), 10_000
	answer := askKafka[*kmsg.CreateTopicsResponse](o, r, -1)
	pass(1500 * time.Millisecond)
	return answer.Topics[0].TopicID
}

func (o *oracle) grow(name string, partitions int) {
	r := kmsg.NewPtrCreatePartitionsRequest()
	topic := kmsg.NewCreatePartitionsRequestTopic()
	topic.Topic, topic.Count = name, int32(partitions)
	r.Topics, r.TimeoutMillis = append(r.Topics, topic), 10_000
	askKafka[*kmsg.CreatePartitionsResponse](o, r, -1)
	pass(1500 * time.Millisecond)
}

func (o *oracle) deleteTopic(name string) {
	r := kmsg.NewPtrDeleteTopicsRequest()
	topic := kmsg.NewDeleteTopicsRequestTopic()
	topic.Topic = &name
	r.Topics, r.TimeoutMillis = append(r.Topics, topic), 10_000
	askKafka[*kmsg.DeleteTopicsResponse](o, r, -1)
	pass(1500 * time.Millisecond)
}

func (o *oracle) config(key, _ string) error { return fmt.Errorf("%s can not be set at Kafka", key) }
func (o *oracle) wait(d time.Duration)       { pass(d) }
func (o *oracle) failover()                  { o.t.Fatal("one Kafka has no other coordinator") }

func (o *oracle) consumerHeartbeat(r *ConsumerHeartbeatRequest) *ConsumerHeartbeatResponse {
	k := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	k.Group, k.MemberID, k.MemberEpoch, k.InstanceID, k.RackID = r.Group, r.MemberID, r.MemberEpoch, r.InstanceID, r.RackID
	k.RebalanceTimeoutMillis, k.SubscribedTopicNames, k.SubscribedTopicRegex, k.ServerAssignor = r.RebalanceTimeoutMs, r.SubscribedTopics, r.Regex, r.ServerAssignor
	if r.TopicPartitions != nil {
		k.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	}
	for _, t := range r.TopicPartitions {
		k.Topics = append(k.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: t.Topic, Partitions: t.Partitions})
	}
	a := askKafka[*kmsg.ConsumerGroupHeartbeatResponse](o, k, r.Version)
	if a == nil {
		return &ConsumerHeartbeatResponse{Err: oracleError("no answer")}
	}
	response := &ConsumerHeartbeatResponse{Err: kafkaError(a.ErrorCode), Message: text(a.ErrorMessage), MemberID: text(a.MemberID), MemberEpoch: a.MemberEpoch, HeartbeatIntervalMs: a.HeartbeatIntervalMillis}
	if a.Assignment != nil {
		list := make([]TopicPartitions, 0, len(a.Assignment.Topics))
		for _, t := range a.Assignment.Topics {
			list = append(list, TopicPartitions{t.TopicID, t.Partitions})
		}
		response.Assignment = &list
	}
	return response
}

func (o *oracle) join(r *JoinGroupRequest, version int16) *JoinGroupResponse {
	k := kmsg.NewPtrJoinGroupRequest()
	k.Group, k.MemberID, k.InstanceID, k.ProtocolType = r.Group, r.MemberID, r.InstanceID, r.ProtocolType
	k.SessionTimeoutMillis, k.RebalanceTimeoutMillis = int32(r.SessionTimeout.Milliseconds()), int32(r.RebalanceTimeout.Milliseconds())
	for _, p := range r.Protocols {
		k.Protocols = append(k.Protocols, kmsg.JoinGroupRequestProtocol{Name: p.Name, Metadata: p.Metadata})
	}
	a := askKafka[*kmsg.JoinGroupResponse](o, k, version)
	if a == nil {
		return nil
	}
	response := &JoinGroupResponse{Err: kafkaError(a.ErrorCode), Generation: a.Generation, ProtocolType: a.ProtocolType, Protocol: a.Protocol, Leader: a.LeaderID, MemberID: a.MemberID, SkipAssignment: a.SkipAssignment}
	if a.ErrorCode == kerr.MemberIDRequired.Code {
		response.Err = ErrMemberIDRequired
	}
	for _, m := range a.Members {
		response.Members = append(response.Members, JoinedMember{m.MemberID, m.InstanceID, m.ProtocolMetadata})
	}
	return response
}

func (o *oracle) sync(r *SyncGroupRequest) *SyncGroupResponse {
	k := kmsg.NewPtrSyncGroupRequest()
	k.Group, k.MemberID, k.InstanceID, k.Generation, k.ProtocolType, k.Protocol = r.Group, r.MemberID, r.InstanceID, r.Generation, r.ProtocolType, r.Protocol
	for _, p := range r.Assignments {
		k.GroupAssignment = append(k.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: p.MemberID, MemberAssignment: p.Assignment})
	}
	a := askKafka[*kmsg.SyncGroupResponse](o, k, -1)
	return &SyncGroupResponse{Err: kafkaError(a.ErrorCode), ProtocolType: a.ProtocolType, Protocol: a.Protocol, Assignment: a.MemberAssignment}
}

func (o *oracle) heartbeat(r *HeartbeatRequest) *HeartbeatResponse {
	k := kmsg.NewPtrHeartbeatRequest()
	k.Group, k.MemberID, k.InstanceID, k.Generation = r.Group, r.MemberID, r.InstanceID, r.Generation
	return &HeartbeatResponse{Err: kafkaError(askKafka[*kmsg.HeartbeatResponse](o, k, -1).ErrorCode)}
}

func (o *oracle) leave(r *LeaveGroupRequest) *LeaveGroupResponse {
	k := kmsg.NewPtrLeaveGroupRequest()
	k.Group = r.Group
	for _, m := range r.Members {
		k.Members = append(k.Members, kmsg.LeaveGroupRequestMember{MemberID: m.MemberID, InstanceID: m.InstanceID})
	}
	a := askKafka[*kmsg.LeaveGroupResponse](o, k, -1)
	response := &LeaveGroupResponse{Err: kafkaError(a.ErrorCode)}
	for _, m := range a.Members {
		response.Members = append(response.Members, Left{m.MemberID, m.InstanceID, kafkaError(m.ErrorCode)})
	}
	return response
}

func (o *oracle) commit(r *CommitOffsetsRequest) *CommitOffsetsResponse {
	k := kmsg.NewPtrOffsetCommitRequest()
	k.Group, k.MemberID, k.InstanceID, k.Generation = r.Group, r.MemberID, r.InstanceID, r.Generation
	for _, c := range r.Offsets {
		k.Topics = append(k.Topics, kmsg.OffsetCommitRequestTopic{Topic: c.Topic, TopicID: c.TopicID, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{
			Partition: c.Partition, Offset: c.Offset, LeaderEpoch: c.LeaderEpoch,
		}}})
	}
	a := askKafka[*kmsg.OffsetCommitResponse](o, k, r.Version)
	response := &CommitOffsetsResponse{}
	for _, t := range a.Topics {
		for _, p := range t.Partitions {
			response.Partitions = append(response.Partitions, kafkaError(p.ErrorCode))
		}
	}
	return response
}

func (o *oracle) fetch(r *FetchOffsetsRequest) *FetchOffsetsResponse {
	k := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.MemberEpoch = r.Group, r.MemberEpoch
	if r.MemberID != "" {
		g.MemberID = &r.MemberID
	}
	for _, t := range r.Topics {
		g.Topics = append(g.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: t.Topic, TopicID: t.TopicID, Partitions: t.Partitions})
	}
	k.Groups = append(k.Groups, g)
	a := askKafka[*kmsg.OffsetFetchResponse](o, k, 9).Groups[0]
	response := &FetchOffsetsResponse{Err: kafkaError(a.ErrorCode)}
	for _, t := range a.Topics {
		topic := FetchedTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			topic.Partitions = append(topic.Partitions, FetchedOffset{Partition: p.Partition, Offset: p.Offset})
		}
		response.Topics = append(response.Topics, topic)
	}
	return response
}

func (o *oracle) describe(group string) *ConsumerGroupDescription {
	k := kmsg.NewPtrConsumerGroupDescribeRequest()
	k.Groups = []string{group}
	g := askKafka[*kmsg.ConsumerGroupDescribeResponse](o, k, -1).Groups[0]
	d := &ConsumerGroupDescription{Err: kafkaError(g.ErrorCode), Message: text(g.ErrorMessage), Group: g.Group, State: g.State, Assignor: g.AssignorName, GroupEpoch: g.Epoch, AssignmentEpoch: g.AssignmentEpoch}
	for _, m := range g.Members {
		one := ConsumerMemberDescription{MemberID: m.MemberID, InstanceID: m.InstanceID, RackID: m.RackID, MemberEpoch: m.MemberEpoch, SubscribedTopics: m.SubscribedTopics, Regex: m.SubscribedTopicRegex, Classic: m.MemberType == 0}
		for _, t := range m.Assignment.TopicPartitions {
			one.Assignment = append(one.Assignment, TopicPartitions{t.TopicID, t.Partitions})
		}
		for _, t := range m.TargetAssignment.TopicPartitions {
			one.Target = append(one.Target, TopicPartitions{t.TopicID, t.Partitions})
		}
		d.Members = append(d.Members, one)
	}
	return d
}

func (o *oracle) describeClassic(group string) *GroupDescription {
	k := kmsg.NewPtrDescribeGroupsRequest()
	k.Groups = []string{group}
	g := askKafka[*kmsg.DescribeGroupsResponse](o, k, -1).Groups[0]
	d := &GroupDescription{Err: kafkaError(g.ErrorCode), State: g.State, ProtocolType: g.ProtocolType, Protocol: g.Protocol}
	for range g.Members {
		d.Members = append(d.Members, MemberDescription{})
	}
	return d
}

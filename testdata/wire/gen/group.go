package main

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/protocol"
)

// assignment is what a consumer's leader sends for a member that gets nothing.
var assignment = []byte{0, 1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}

// joinGroup makes the group members with one member, once the broker has made what it keeps groups in.
func (s *session) joinGroup() error {
	until := time.Now().Add(30 * time.Second)
	for {
		r := kmsg.NewPtrJoinGroupRequest()
		r.Version = 3
		r.Group, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis, r.ProtocolType = "members", 1_800_000, 10_000, "consumer"
		r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: assignment}}
		if _, err := s.ask(&kmsg.FindCoordinatorRequest{Version: 1, CoordinatorKey: "members"}); err != nil {
			return err
		}
		resp, err := s.ask(r)
		if err != nil {
			return err
		}
		joined := resp.(*kmsg.JoinGroupResponse)
		if joined.ErrorCode == 0 {
			s.member, s.generation = joined.MemberID, joined.Generation
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("joining a group: error %d", joined.ErrorCode)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func (s *session) groupSample(key, version int16) kmsg.Request {
	switch key {
	case protocol.KeyFindCoordinator:
		return &kmsg.FindCoordinatorRequest{CoordinatorKey: "golden", CoordinatorKeys: []string{"golden", "other"}}
	case protocol.KeyJoinGroup:
		r := kmsg.NewPtrJoinGroupRequest()
		r.Group, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis, r.ProtocolType = "", 10000, 10000, "consumer"
		r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 1}}}
		return r
	case protocol.KeyHeartbeat:
		return &kmsg.HeartbeatRequest{Group: "members", MemberID: s.member, Generation: s.generation}
	case protocol.KeyLeaveGroup:
		instance := "nobody"
		return &kmsg.LeaveGroupRequest{Group: "members", MemberID: "nobody", Members: []kmsg.LeaveGroupRequestMember{{MemberID: "nobody"}, {InstanceID: &instance}}}
	case protocol.KeySyncGroup:
		kind, name := "consumer", "range"
		return &kmsg.SyncGroupRequest{
			Group: "members", MemberID: s.member, Generation: s.generation, ProtocolType: &kind, Protocol: &name,
			GroupAssignment: []kmsg.SyncGroupRequestGroupAssignment{{MemberID: s.member, MemberAssignment: assignment}},
		}
	case protocol.KeyDescribeGroups:
		return &kmsg.DescribeGroupsRequest{Groups: []string{"members", "unknown"}, IncludeAuthorizedOperations: true}
	case protocol.KeyListGroups:
		return &kmsg.ListGroupsRequest{StatesFilter: []string{"Stable"}, TypesFilter: []string{"classic"}}
	case protocol.KeyDeleteGroups:
		return &kmsg.DeleteGroupsRequest{Groups: []string{"members", "unknown"}}
	case protocol.KeyConsumerGroupHeartbeat:
		r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		r.Group, r.MemberID, r.RebalanceTimeoutMillis = fmt.Sprintf("consumers-%d", version), "AAAAAAAAAAAAAAAAAAAAAA", 10000
		r.SubscribedTopicNames, r.Topics = []string{"golden"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		return r
	case protocol.KeyConsumerGroupDescribe:
		return &kmsg.ConsumerGroupDescribeRequest{Groups: []string{fmt.Sprintf("consumers-%d", version), "unknown"}, IncludeAuthorizedOperations: true}
	}
	return s.offsetSample(key)
}

func (s *session) offsetSample(key int16) kmsg.Request {
	note := "note"
	switch key {
	case protocol.KeyOffsetCommit:
		r := kmsg.NewPtrOffsetCommitRequest()
		r.Group = "golden"
		for _, n := range []int32{0, 9} {
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset, p.Metadata = n, 5, &note
			r.Topics = append(r.Topics, kmsg.OffsetCommitRequestTopic{Topic: "golden", TopicID: s.topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}})
		}
		return r
	case protocol.KeyOffsetFetch:
		r := kmsg.NewPtrOffsetFetchRequest()
		r.Group = "golden"
		r.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "golden", Partitions: []int32{0, 9}}}
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group, g.Topics = "golden", []kmsg.OffsetFetchRequestGroupTopic{{Topic: "golden", TopicID: s.topic, Partitions: []int32{0, 9}}}
		all := kmsg.NewOffsetFetchRequestGroup()
		all.Group = "golden"
		r.Groups = []kmsg.OffsetFetchRequestGroup{g, all}
		return r
	case protocol.KeyOffsetDelete:
		return &kmsg.OffsetDeleteRequest{Group: "golden", Topics: []kmsg.OffsetDeleteRequestTopic{
			{Topic: "golden", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}, {Partition: 9}}},
		}}
	}
	return nil
}

package torture

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// beatClassic is a heartbeat of the classic protocol, or a join where there must be one.
func (m *member) beatClassic(ctx context.Context) {
	if topics := topicsOf(m.groups.scene.Partitions()); m.joined && len(topics) > len(m.topics) {
		m.give(ctx, nil, true)
		m.joined = false
	}
	if !m.joined {
		m.join(ctx)
		return
	}
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = m.group, m.id, m.generation
	m.sent = time.Since(m.groups.began)
	resp, err := ask[*kmsg.HeartbeatResponse](ctx, m.coordinator(), req)
	if err != nil {
		m.failed(err, codeNone)
		return
	}
	switch resp.ErrorCode {
	case codeNone:
		m.hold()
	case codeRebalancing: // an eager member gives everything up
		m.give(ctx, nil, true)
		m.joined = false
	case codeUnknownMember:
		m.give(ctx, nil, false)
		m.begin()
	case codeIllegalGeneration:
		m.give(ctx, nil, false)
		m.joined = false
	default:
		m.failed(nil, resp.ErrorCode)
	}
}

// join joins and syncs.
func (m *member) join(ctx context.Context) {
	m.topics = topicsOf(m.groups.scene.Partitions())
	subscription := kmsg.NewConsumerMemberMetadata()
	subscription.Topics = m.topics
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name, protocol.Metadata = "range", subscription.AppendTo(nil)
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.ProtocolType, req.Protocols = m.group, m.id, "consumer", []kmsg.JoinGroupRequestProtocol{protocol}
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = int32(memberSession.Milliseconds()), int32(memberRebalance.Milliseconds())
	resp, err := askFor[*kmsg.JoinGroupResponse](ctx, m.coordinator(), req)
	switch {
	case m.failed(err, codeNone):
		return
	case resp.ErrorCode == codeMemberIDRequired:
		m.id = resp.MemberID
		return
	case resp.ErrorCode == codeUnknownMember:
		m.begin()
		return
	case resp.ErrorCode != codeNone:
		m.failed(nil, resp.ErrorCode)
		return
	}
	m.id, m.generation = resp.MemberID, resp.Generation
	m.sync(ctx, resp)
}

func (m *member) sync(ctx context.Context, joined *kmsg.JoinGroupResponse) {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.Generation = m.group, m.id, m.generation
	req.ProtocolType, req.Protocol = joined.ProtocolType, joined.Protocol
	if joined.LeaderID == m.id && !joined.SkipAssignment {
		req.GroupAssignment = m.assign(joined.Members)
	}
	m.sent = time.Since(m.groups.began)
	resp, err := askFor[*kmsg.SyncGroupResponse](ctx, m.coordinator(), req)
	if m.failed(err, codeNone) {
		return
	}
	var a kmsg.ConsumerMemberAssignment
	switch {
	case resp.ErrorCode == codeUnknownMember:
		m.begin()
		return
	case resp.ErrorCode != codeNone:
		m.failed(nil, resp.ErrorCode)
		return
	case len(resp.MemberAssignment) > 0:
		if err := a.ReadFrom(resp.MemberAssignment); err != nil {
			m.groups.scene.Check.Violated(Strange, "group %s: an assignment of generation %d that nobody made: %v", m.group, m.generation, err)
			return
		}
	}
	var parts []Partition
	for _, t := range a.Topics {
		for _, n := range t.Partitions {
			parts = append(parts, Partition{t.Topic, n})
		}
	}
	m.joined = true
	m.give(ctx, parts, false)
}

// assign deals the partitions out, each to one of those that subscribe to its topic.
func (m *member) assign(members []kmsg.JoinGroupResponseMember) []kmsg.SyncGroupRequestGroupAssignment {
	parts := m.groups.scene.Partitions()
	got := make([]map[string][]int32, len(members))
	for i := range got {
		got[i] = map[string][]int32{}
	}
	for n, p := range parts {
		for off := range members {
			i := (n + off) % len(members)
			var s kmsg.ConsumerMemberMetadata
			if s.ReadFrom(members[i].ProtocolMetadata) == nil && slices.Contains(s.Topics, p.Topic) {
				got[i][p.Topic] = append(got[i][p.Topic], p.Number)
				break
			}
		}
	}
	var out []kmsg.SyncGroupRequestGroupAssignment
	for i, topics := range got {
		a := kmsg.NewConsumerMemberAssignment()
		for topic, numbers := range topics {
			t := kmsg.NewConsumerMemberAssignmentTopic()
			t.Topic, t.Partitions = topic, numbers
			a.Topics = append(a.Topics, t)
		}
		one := kmsg.NewSyncGroupRequestGroupAssignment()
		one.MemberID, one.MemberAssignment = members[i].MemberID, a.AppendTo(nil)
		out = append(out, one)
	}
	return out
}

// askFor sends a request that waits for others at the coordinator.
func askFor[R kmsg.Response](ctx context.Context, b *kgo.Broker, req kmsg.Request) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	answer, err := b.Request(ctx, req)
	if err != nil {
		var none R
		return none, err
	}
	return answer.(R), nil
}

// goodbye leaves.
func (m *member) goodbye(ctx context.Context) {
	if m.at < 0 || m.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if m.consumer {
		_, _ = ask[*kmsg.ConsumerGroupHeartbeatResponse](ctx, m.coordinator(), m.heartbeat(leaveEpoch))
		return
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	one := kmsg.NewLeaveGroupRequestMember()
	one.MemberID = m.id
	req.Group, req.Members = m.group, append(req.Members, one)
	_, _ = ask[*kmsg.LeaveGroupResponse](ctx, m.coordinator(), req)
}

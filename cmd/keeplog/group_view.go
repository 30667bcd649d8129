package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/server/api"
)

// groupView is a group as its coordinator describes it.
type groupView struct {
	listedGroup
	assignor string
	// epoch and assigned are the group epoch and the one of the newest assignment, −1 in classic groups.
	epoch, assignedEpoch int32
	members              []groupMember
	err                  error // the coordinator did not describe it
}

// groupMember is one member.
type groupMember struct {
	ID       string  `json:"member_id"`
	Instance *string `json:"instance_id"`
	ClientID string  `json:"client_id"`
	Host     string  `json:"host"`
	Epoch    *int32  `json:"epoch,omitempty"` // null: it is of a classic group
	// Partitions are those that it has, Target those that it is to have.
	Partitions []tp     `json:"-"`
	Target     []tp     `json:"-"`
	Subscribed []string `json:"subscribed_topics"`
	Regex      *string  `json:"subscribed_regex,omitempty"`
	Awaited    bool     `json:"awaited,omitempty"` // a rebalance waits for it
}

// name is what a person knows a member by.
func (m *groupMember) name() string {
	name := m.ClientID
	if m.Instance != nil {
		name = *m.Instance
	}
	return strings.TrimSpace(cmp.Or(name, m.ID) + " " + m.Host)
}

// owners are the members by the partitions that they have.
func (v *groupView) owners() map[tp]*groupMember {
	out := map[tp]*groupMember{}
	for i := range v.members {
		for _, key := range v.members[i].Partitions {
			out[key] = &v.members[i]
		}
	}
	return out
}

// describeGroups asks the coordinators of groups that are listed; those without members are known. Every name has a view. A coordinator that does
// not answer costs toExplain.
func (s *session) describeGroups(ctx context.Context, l *groupList, names []string) map[string]*groupView {
	out := map[string]*groupView{}
	classic, consumer := kmsg.NewPtrDescribeGroupsRequest(), kmsg.NewPtrConsumerGroupDescribeRequest()
	for _, name := range names {
		g := l.groups[name]
		if out[name] != nil || g == nil {
			continue
		}
		out[name] = &groupView{listedGroup: *g, epoch: -1, assignedEpoch: -1}
		switch {
		case g.empty():
		case g.kind == "consumer":
			consumer.Groups = append(consumer.Groups, name)
		default:
			classic.Groups = append(classic.Groups, name)
		}
	}
	limit(ctx, toExplain, func(ctx context.Context) {
		if len(classic.Groups) > 0 {
			s.describeClassic(ctx, classic, out)
		}
		if len(consumer.Groups) > 0 {
			s.describeConsumer(ctx, consumer, out)
		}
	})
	return out
}

func (s *session) describeClassic(ctx context.Context, req *kmsg.DescribeGroupsRequest, out map[string]*groupView) {
	for _, shard := range s.client.RequestSharded(ctx, req) {
		if shard.Err != nil {
			failGroups(out, shard.Req.(*kmsg.DescribeGroupsRequest).Groups, shard.Err)
			continue
		}
		for i := range shard.Resp.(*kmsg.DescribeGroupsResponse).Groups {
			g := &shard.Resp.(*kmsg.DescribeGroupsResponse).Groups[i]
			if v := out[g.Group]; v != nil {
				v.classic(g)
			}
		}
	}
}

func (s *session) describeConsumer(ctx context.Context, req *kmsg.ConsumerGroupDescribeRequest, out map[string]*groupView) {
	for _, shard := range s.client.RequestSharded(ctx, req) {
		if shard.Err != nil {
			failGroups(out, shard.Req.(*kmsg.ConsumerGroupDescribeRequest).Groups, shard.Err)
			continue
		}
		for i := range shard.Resp.(*kmsg.ConsumerGroupDescribeResponse).Groups {
			g := &shard.Resp.(*kmsg.ConsumerGroupDescribeResponse).Groups[i]
			if v := out[g.Group]; v != nil {
				v.consumer(g)
			}
		}
	}
}

func failGroups(out map[string]*groupView, names []string, err error) {
	for _, name := range names {
		out[name].err = err
	}
}

func (v *groupView) classic(g *kmsg.DescribeGroupsResponseGroup) {
	if v.err = kerr.ErrorForCode(g.ErrorCode); v.err != nil {
		return
	}
	v.state, v.assignor, v.protocolType = g.State, g.Protocol, g.ProtocolType
	for i := range g.Members {
		rm := &g.Members[i]
		m := groupMember{ID: rm.MemberID, Instance: rm.InstanceID, ClientID: rm.ClientID, Host: strings.TrimPrefix(rm.ClientHost, "/"), Subscribed: []string{}}
		rm.UnknownTags.Each(func(key uint32, _ []byte) { m.Awaited = m.Awaited || key == api.TagAwaited })
		if g.ProtocolType == "consumer" {
			var meta kmsg.ConsumerMemberMetadata
			if meta.ReadFrom(rm.ProtocolMetadata) == nil && meta.Topics != nil {
				m.Subscribed = meta.Topics
			}
			var assigned kmsg.ConsumerMemberAssignment
			if assigned.ReadFrom(rm.MemberAssignment) == nil {
				for _, t := range assigned.Topics {
					for _, p := range t.Partitions {
						m.Partitions = append(m.Partitions, tp{t.Topic, p})
					}
				}
			}
		}
		m.Target = m.Partitions
		v.members = append(v.members, m)
	}
	v.sort()
}

func (v *groupView) consumer(g *kmsg.ConsumerGroupDescribeResponseGroup) {
	if v.err = kerr.ErrorForCode(g.ErrorCode); v.err != nil {
		return
	}
	v.state, v.assignor, v.epoch, v.assignedEpoch = g.State, g.AssignorName, g.Epoch, g.AssignmentEpoch
	for i := range g.Members {
		rm := &g.Members[i]
		m := groupMember{
			ID: rm.MemberID, Instance: rm.InstanceID, ClientID: rm.ClientID, Host: strings.TrimPrefix(rm.ClientHost, "/"), Epoch: &rm.MemberEpoch,
			Subscribed: append([]string{}, rm.SubscribedTopics...), Regex: rm.SubscribedTopicRegex,
		}
		for _, t := range rm.Assignment.TopicPartitions {
			for _, p := range t.Partitions {
				m.Partitions = append(m.Partitions, tp{t.Topic, p})
			}
		}
		for _, t := range rm.TargetAssignment.TopicPartitions {
			for _, p := range t.Partitions {
				m.Target = append(m.Target, tp{t.Topic, p})
			}
		}
		v.members = append(v.members, m)
	}
	v.sort()
}

func (v *groupView) sort() {
	for i := range v.members {
		m := &v.members[i]
		slices.SortFunc(m.Partitions, tp.compare)
		slices.SortFunc(m.Target, tp.compare)
		slices.Sort(m.Subscribed)
	}
	slices.SortFunc(v.members, func(a, b groupMember) int { return cmp.Or(cmp.Compare(a.name(), b.name()), cmp.Compare(a.ID, b.ID)) })
}

// memberNames are the names of up to three members, and how many more.
func (v *groupView) memberNames() string {
	var all []string
	for i := range v.members {
		all = append(all, v.members[i].name())
	}
	return someOf(all)
}

package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/group"
	"github.com/keeplog/keeplog/metadata"
)

// The protocols that a member of a consumer group may speak, as version 1 tells them (KIP-1099).
const (
	memberClassic  int8 = 0
	memberConsumer int8 = 1
)

// consumerGroupDescribe describes consumer groups (KIP-848). Topics that are gone are left out of assignments.
func (a *API) consumerGroupDescribe(c *Call, req *kmsg.ConsumerGroupDescribeRequest) {
	resp := &kmsg.ConsumerGroupDescribeResponse{Groups: make([]kmsg.ConsumerGroupDescribeResponseGroup, len(req.Groups))}
	size := 0
	inTurn(len(req.Groups), func(i int, next func()) {
		out := &resp.Groups[i]
		out.Group, out.AuthorizedOperations = req.Groups[i], noOperations
		switch {
		case req.Groups[i] == "":
			out.ErrorCode = codeInvalidGroupID
		case size > maxGroupBytes:
			out.ErrorCode, out.ErrorMessage = codeInvalidRequest, text(tooLong)
		}
		if out.ErrorCode != codeNone {
			next()
			return
		}
		a.o.Groups.DescribeConsumerGroup(req.Groups[i], func(res *group.ConsumerGroupDescription) {
			size += a.describedConsumerGroup(c, out, res)
			if out.ErrorCode == codeNone && req.IncludeAuthorizedOperations {
				out.AuthorizedOperations = groupOperations
			}
			next()
		})
	}, func() { c.reply(resp) })
}

// describedConsumerGroup fills one answer in, and returns how many bytes it takes.
func (a *API) describedConsumerGroup(c *Call, out *kmsg.ConsumerGroupDescribeResponseGroup, res *group.ConsumerGroupDescription) (size int) {
	if res.Err != nil {
		out.ErrorCode, out.ErrorMessage = a.groupCode(c, res.Err), groupMessage(res.Err, res.Message)
		return 0
	}
	img := a.o.Images.Image()
	out.State, out.Epoch, out.AssignmentEpoch, out.AssignorName = res.State, res.GroupEpoch, res.AssignmentEpoch, res.Assignor
	out.Members = make([]kmsg.ConsumerGroupDescribeResponseGroupMember, len(res.Members))
	for i := range res.Members {
		m := &res.Members[i]
		out.Members[i] = kmsg.ConsumerGroupDescribeResponseGroupMember{
			MemberID: m.MemberID, InstanceID: m.InstanceID, RackID: m.RackID, MemberEpoch: m.MemberEpoch, ClientID: m.ClientID, ClientHost: m.ClientHost,
			SubscribedTopics: m.SubscribedTopics, SubscribedTopicRegex: m.Regex, MemberType: memberConsumer,
			Assignment: assignedTopics(img, m.Assignment, &size), TargetAssignment: assignedTopics(img, m.Target, &size),
		}
		if m.Regex == nil {
			out.Members[i].SubscribedTopicRegex = new(string) // as Kafka has it
		}
		if m.Classic {
			out.Members[i].MemberType = memberClassic
		}
		size += 300 + len(m.MemberID) + len(m.ClientID) + len(m.ClientHost)
		for _, t := range m.SubscribedTopics {
			size += 20 + len(t)
		}
	}
	return size
}

func assignedTopics(img *metadata.Image, assigned []group.TopicPartitions, size *int) (out kmsg.Assignment) {
	for i := range assigned {
		t, ok := img.TopicByID(assigned[i].Topic)
		if !ok {
			continue
		}
		out.TopicPartitions = append(out.TopicPartitions, kmsg.AssignmentTopicPartition{TopicID: t.ID, Topic: t.Name, Partitions: assigned[i].Partitions})
		*size += 80 + len(t.Name) + 4*len(assigned[i].Partitions)
	}
	return out
}

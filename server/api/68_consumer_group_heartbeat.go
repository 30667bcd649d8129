package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/group"
)

// consumerGroupHeartbeat is all that a member of a consumer group (KIP-848) ever sends: it joins, stays and leaves with it.
func (a *API) consumerGroupHeartbeat(c *Call, req *kmsg.ConsumerGroupHeartbeatRequest) {
	r := &group.ConsumerHeartbeatRequest{
		Version: c.Version, Group: req.Group, MemberID: req.MemberID, MemberEpoch: req.MemberEpoch, InstanceID: req.InstanceID, RackID: req.RackID,
		ClientID: string(c.ClientID), ClientHost: clientHost(c.Conn.Remote), RebalanceTimeoutMs: req.RebalanceTimeoutMillis,
		SubscribedTopics: req.SubscribedTopicNames, Regex: req.SubscribedTopicRegex, ServerAssignor: req.ServerAssignor,
	}
	if req.Topics != nil {
		r.TopicPartitions = make([]group.TopicPartitions, len(req.Topics))
		for i := range req.Topics {
			r.TopicPartitions[i] = group.TopicPartitions{Topic: req.Topics[i].TopicID, Partitions: req.Topics[i].Partitions}
		}
	}
	a.o.Groups.ConsumerHeartbeat(r, func(res *group.ConsumerHeartbeatResponse) {
		resp := &kmsg.ConsumerGroupHeartbeatResponse{}
		if res.Err != nil {
			resp.ErrorCode, resp.ErrorMessage = a.groupCode(c, res.Err), groupMessage(res.Err, res.Message)
			c.reply(resp)
			return
		}
		resp.MemberID, resp.MemberEpoch, resp.HeartbeatIntervalMillis = &res.MemberID, res.MemberEpoch, res.HeartbeatIntervalMs
		if res.Assignment != nil {
			resp.Assignment = &kmsg.ConsumerGroupHeartbeatResponseAssignment{}
			for _, t := range *res.Assignment {
				resp.Assignment.Topics = append(resp.Assignment.Topics, kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{TopicID: t.Topic, Partitions: t.Partitions})
			}
		}
		c.reply(resp)
	})
}

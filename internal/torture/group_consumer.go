package torture

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// leaveEpoch is the epoch of a heartbeat by which a member leaves.
const leaveEpoch = -1

// heartbeat is one of the consumer protocol, with everything that a member may say.
func (m *member) heartbeat(epoch int32) *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = m.group, m.id, epoch
	req.RebalanceTimeoutMillis = int32(memberRebalance.Milliseconds())
	req.SubscribedTopicNames = topicsOf(m.groups.scene.Partitions())
	req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	if epoch <= 0 {
		return req
	}
	at := map[string]int{}
	for p := range m.has {
		i, ok := at[p.Topic]
		if !ok {
			rt := kmsg.NewConsumerGroupHeartbeatRequestTopic()
			rt.TopicID = m.known.ids[p.Topic]
			i, at[p.Topic] = len(req.Topics), len(req.Topics)
			req.Topics = append(req.Topics, rt)
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p.Number)
	}
	return req
}

// beatConsumer is a heartbeat of the consumer protocol. A member that joins has nothing; what it is told to give up it has given up when it
// sends the next one.
func (m *member) beatConsumer(ctx context.Context) {
	m.sent = time.Since(m.groups.began)
	resp, err := ask[*kmsg.ConsumerGroupHeartbeatResponse](ctx, m.coordinator(), m.heartbeat(m.generation))
	if err != nil {
		m.failed(err, codeNone)
		if m.generation == 0 {
			m.begin() // it may be a member under that id
		}
		return
	}
	switch resp.ErrorCode {
	case codeNone:
	case codeUnknownMember, codeFencedEpoch:
		m.give(ctx, nil, false)
		m.begin()
		return
	default:
		m.failed(nil, resp.ErrorCode)
		return
	}
	var parts []Partition
	if resp.Assignment == nil {
		for p := range m.has {
			parts = append(parts, p)
		}
	} else {
		for _, t := range resp.Assignment.Topics {
			for topic, id := range m.known.ids {
				if id != t.TopicID {
					continue
				}
				for _, n := range t.Partitions {
					parts = append(parts, Partition{topic, n})
				}
			}
		}
	}
	m.generation = resp.MemberEpoch
	m.give(ctx, parts, true)
}

package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/group"
	"github.com/keeplog/keeplog/metadata"
)

// offsetDelete forgets offsets of a group. Topics that are not there are answered here; an error of the group is the whole answer.
func (a *API) offsetDelete(c *Call, req *kmsg.OffsetDeleteRequest) {
	resp := &kmsg.OffsetDeleteResponse{Topics: make([]kmsg.OffsetDeleteResponseTopic, len(req.Topics))}
	r := &group.DeleteOffsetsRequest{Group: req.Group}
	var at []*kmsg.OffsetDeleteResponseTopic // where the answer to each of r.Topics goes
	img := a.o.Images.Image()
	for i := range req.Topics {
		t, out := &req.Topics[i], &resp.Topics[i]
		out.Topic = t.Topic
		out.Partitions = make([]kmsg.OffsetDeleteResponseTopicPartition, len(t.Partitions))
		topic, missing := namedTopic(img, false, t.Topic, metadata.TopicID{})
		partitions := make([]int32, len(t.Partitions))
		for j := range t.Partitions {
			partitions[j] = t.Partitions[j].Partition
			out.Partitions[j] = kmsg.OffsetDeleteResponseTopicPartition{Partition: partitions[j], ErrorCode: missing}
		}
		if topic != nil {
			r.Topics, at = append(r.Topics, fetchTopic(topic, t.Topic, partitions)), append(at, out)
		}
	}
	if len(r.Topics) == 0 {
		c.reply(resp)
		return
	}
	a.o.Groups.DeleteOffsets(r, func(res *group.DeleteOffsetsResponse) {
		if res.Err != nil {
			c.reply(&kmsg.OffsetDeleteResponse{ErrorCode: a.groupCode(c, res.Err)})
			return
		}
		for i, out := range at {
			for j := range out.Partitions {
				if i < len(res.Partitions) && j < len(res.Partitions[i]) {
					out.Partitions[j].ErrorCode = a.groupCode(c, res.Partitions[i][j])
				}
			}
		}
		c.reply(resp)
	})
}

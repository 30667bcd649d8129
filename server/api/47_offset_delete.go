package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/group"
	"github.com/keeplog/keeplog/metadata"
)

// offsetDelete forgets offsets of a group. Partitions that are not there are answered here; an error of the group is the whole answer.
func (a *API) offsetDelete(c *Call, req *kmsg.OffsetDeleteRequest) {
	if req.Group == "" {
		c.reply(&kmsg.OffsetDeleteResponse{ErrorCode: codeInvalidGroupID})
		return
	}
	resp := &kmsg.OffsetDeleteResponse{Topics: make([]kmsg.OffsetDeleteResponseTopic, len(req.Topics))}
	r := &group.DeleteOffsetsRequest{Group: req.Group}
	var at [][]*int16 // where the answers to each of r.Topics go
	img := a.o.Images.Image()
	for i := range req.Topics {
		t, out := &req.Topics[i], &resp.Topics[i]
		out.Topic = t.Topic
		out.Partitions = make([]kmsg.OffsetDeleteResponseTopicPartition, len(t.Partitions))
		topic, _ := namedTopic(img, false, t.Topic, metadata.TopicID{})
		var there []int32
		var codes []*int16
		for j := range t.Partitions {
			p, o := t.Partitions[j].Partition, &out.Partitions[j]
			o.Partition, o.ErrorCode = p, codeUnknownTopicOrPartition
			if topic != nil && p >= 0 && int(p) < len(topic.Partitions) {
				there, codes = append(there, p), append(codes, &o.ErrorCode)
			}
		}
		if len(there) > 0 {
			r.Topics, at = append(r.Topics, fetchTopic(topic, t.Topic, there)), append(at, codes)
		}
	}
	a.o.Groups.DeleteOffsets(r, func(res *group.DeleteOffsetsResponse) {
		if res.Err != nil {
			c.reply(&kmsg.OffsetDeleteResponse{ErrorCode: a.groupCode(c, res.Err)})
			return
		}
		for i, codes := range at {
			for j, code := range codes {
				*code = a.groupCode(c, res.Partitions[i][j])
			}
		}
		c.reply(resp)
	})
}

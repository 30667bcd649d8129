package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/record"
)

// offsetForLeaderEpoch says where epochs end, so that a client or follower finds out whether its log has left this one.
func (a *API) offsetForLeaderEpoch(c *Call, req *kmsg.OffsetForLeaderEpochRequest) {
	img := a.o.Images.Image()
	resp := &kmsg.OffsetForLeaderEpochResponse{}
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.OffsetForLeaderEpochResponseTopic{Topic: t.Topic}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			r := kmsg.OffsetForLeaderEpochResponseTopicPartition{Partition: p.Partition, LeaderEpoch: -1, EndOffset: -1}
			part, err := a.partition(img, t.Topic, p.Partition)
			if err == nil {
				var epoch record.Epoch
				var end record.Offset
				if epoch, end, err = part.EndOffsetForEpoch(record.Epoch(p.LeaderEpoch), record.Epoch(p.CurrentLeaderEpoch)); err == nil {
					r.LeaderEpoch, r.EndOffset = int32(epoch), int64(end)
				}
			}
			r.ErrorCode = code(err)
			out.Partitions = append(out.Partitions, r)
		}
		resp.Topics = append(resp.Topics, out)
	}
	c.reply(resp)
}

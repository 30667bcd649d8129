package api

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/replication/isr"
)

// listOffsets looks offsets up by time, or the special ones.
func (a *API) listOffsets(c *Call, req *kmsg.ListOffsetsRequest) {
	img := a.o.Images.Image()
	resp := &kmsg.ListOffsetsResponse{}
	type key struct {
		topic     string
		partition int32
	}
	count := map[key]int{}
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			count[key{req.Topics[i].Topic, req.Topics[i].Partitions[j].Partition}]++
		}
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.ListOffsetsResponseTopic{Topic: t.Topic}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			r := kmsg.NewListOffsetsResponseTopicPartition()
			r.Partition, r.Timestamp, r.Offset, r.LeaderEpoch = p.Partition, -1, -1, -1
			if count[key{t.Topic, p.Partition}] > 1 {
				r.ErrorCode = codeInvalidRequest
			} else {
				a.listOffset(img, lookup{c.Version, t.Topic, p}, &r)
			}
			out.Partitions = append(out.Partitions, r)
		}
		resp.Topics = append(resp.Topics, out)
	}
	if err := a.addLag(c, req, resp); err != nil {
		c.close(err)
		return
	}
	c.reply(resp)
}

// sinceVersion is the first version that knows a special timestamp.
func sinceVersion(ts int64) int16 {
	switch ts {
	case isr.Latest, isr.Earliest:
		return 0
	case isr.MaxTimestamp:
		return 7
	case isr.EarliestLocal:
		return 8
	case isr.LatestTiered:
		return 9
	case isr.EarliestUpload:
		return 11
	}
	return 1 << 14
}

// lookup is one partition of a request.
type lookup struct {
	version int16
	topic   string
	*kmsg.ListOffsetsRequestTopicPartition
}

func (a *API) listOffset(img *metadata.Image, p lookup, r *kmsg.ListOffsetsResponseTopicPartition) {
	part, err := a.partition(img, p.topic, p.Partition)
	if err != nil {
		r.ErrorCode = code(err)
		return
	}
	if p.Timestamp < 0 && p.version < sinceVersion(p.Timestamp) {
		r.ErrorCode = codeUnsupportedVersion
		return
	}
	epoch := record.Epoch(-1)
	if p.version >= 4 {
		epoch = record.Epoch(p.CurrentLeaderEpoch)
	}
	o, err := part.ListOffset(p.Timestamp, epoch)
	switch {
	case errors.Is(err, isr.ErrOffsetNotAvailable) && p.version < 5:
		r.ErrorCode = codeLeaderNotAvailable
	case err != nil:
		if r.ErrorCode = code(err); r.ErrorCode == codeUnknownServerError {
			a.log.Error("offset lookup failed", "topic", p.topic, "partition", p.Partition, "cause", err)
		}
	default:
		r.Timestamp, r.Offset, r.LeaderEpoch = o.Timestamp, int64(o.Offset), int32(o.Epoch)
	}
}

// partition finds a partition here by the name of its topic.
func (a *API) partition(img *metadata.Image, topic string, partition int32) (Partition, error) {
	t, ok := img.TopicByName(topic)
	if !ok || partition < 0 || int(partition) >= len(t.Partitions) {
		return nil, errUnknownTopic
	}
	p, err := a.o.Replicas.Partition(t.ID, partition)
	if err != nil {
		return nil, a.misplaced(err)
	}
	return p, nil
}

package api

import (
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/group"
	"github.com/keeplog/keeplog/metadata"
)

// offsetCommit stores how far a group has read. Partitions that are not there are answered here; the coordinator sees the others.
func (a *API) offsetCommit(c *Call, req *kmsg.OffsetCommitRequest) {
	r := &group.CommitOffsetsRequest{
		Version: c.Version, Group: req.Group, MemberID: req.MemberID, InstanceID: req.InstanceID, Generation: req.Generation,
		Retention: retention(req.RetentionTimeMillis),
	}
	resp := &kmsg.OffsetCommitResponse{Topics: make([]kmsg.OffsetCommitResponseTopic, 0, len(req.Topics))}
	var at []*int16 // where the answer to each of r.Offsets goes
	img := a.o.Images.Image()
	for i := range req.Topics {
		t := &req.Topics[i]
		if len(t.Partitions) == 0 {
			continue // of which the answer says nothing, as Kafka's
		}
		topic, missing := namedTopic(img, c.Version >= 10, t.Topic, t.TopicID)
		out := kmsg.OffsetCommitResponseTopic{Topic: t.Topic, TopicID: t.TopicID, Partitions: make([]kmsg.OffsetCommitResponseTopicPartition, len(t.Partitions))}
		resp.Topics = append(resp.Topics, out)
		for j := range t.Partitions {
			p, o := &t.Partitions[j], &out.Partitions[j]
			o.Partition = p.Partition
			switch {
			case topic == nil:
				o.ErrorCode = missing
			case p.Partition < 0 || int(p.Partition) >= len(topic.Partitions):
				o.ErrorCode = codeUnknownTopicOrPartition
			default:
				commit := group.CommitOffset{Topic: topic.Name, TopicID: topic.ID, Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch}
				if p.Metadata != nil {
					commit.Metadata = *p.Metadata
				}
				r.Offsets, at = append(r.Offsets, commit), append(at, &o.ErrorCode)
			}
		}
	}
	if len(r.Offsets) == 0 {
		c.reply(resp)
		return
	}
	a.o.Groups.CommitOffsets(r, func(done *group.CommitOffsetsResponse) {
		for i, code := range at {
			err := done.Err
			if err == nil && done.Partitions != nil {
				err = done.Partitions[i]
			}
			*code = a.groupCode(c, err)
		}
		c.reply(resp)
	})
}

// namedTopic finds the topic that a request names, by id or by name. A topic that is not there has the code that says so.
func namedTopic(img *metadata.Image, byID bool, name string, id metadata.TopicID) (*metadata.Topic, int16) {
	if byID {
		if t, ok := img.TopicByID(id); ok {
			return t, codeNone
		}
		return nil, codeUnknownTopicID
	}
	if t, ok := img.TopicByName(name); ok {
		return t, codeNone
	}
	return nil, codeUnknownTopicOrPartition
}

// retention is the time of life that an old client gives its offsets: negative for the broker's rule.
func retention(ms int64) time.Duration {
	if ms < 0 {
		return -1
	}
	return time.Duration(min(ms, int64(math.MaxInt64/time.Millisecond))) * time.Millisecond
}

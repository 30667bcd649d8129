package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/group"
	"github.com/keeplog/keeplog/metadata"
)

// offsetFetch tells how far groups have read. The groups of a request are looked up one after the other, so that no request makes the server
// hold more than one answer of maxDescribed offsets.
func (a *API) offsetFetch(c *Call, req *kmsg.OffsetFetchRequest) {
	if c.Version < 8 {
		a.offsetFetchOne(c, req)
		return
	}
	resp := &kmsg.OffsetFetchResponse{Groups: make([]kmsg.OffsetFetchResponseGroup, len(req.Groups))}
	img, total := a.o.Images.Image(), 0
	inTurn(len(req.Groups), func(i int, next func()) {
		g, out := &req.Groups[i], &resp.Groups[i]
		out.Group = g.Group
		if total > maxDescribed {
			out.ErrorCode = codeInvalidRequest
			next()
			return
		}
		r := &group.FetchOffsetsRequest{Group: g.Group, MemberEpoch: g.MemberEpoch, All: g.Topics == nil, RequireStable: req.RequireStable}
		if g.MemberID != nil {
			r.MemberID = *g.MemberID
		}
		for j := range g.Topics {
			t := &g.Topics[j]
			topic, missing := namedTopic(img, c.Version >= 10, t.Topic, t.TopicID)
			if topic == nil && c.Version >= 10 {
				out.Topics = append(out.Topics, unknownOffsets(t, missing))
				continue
			}
			r.Topics = append(r.Topics, fetchTopic(topic, t.Topic, t.Partitions))
		}
		a.o.Groups.FetchOffsets(r, func(done *group.FetchOffsetsResponse) {
			if done.Err != nil {
				out.Topics, out.ErrorCode = nil, a.groupCode(c, done.Err)
			} else {
				for j := range done.Topics {
					total += len(done.Topics[j].Partitions)
					out.Topics = append(out.Topics, fetchedTopic(&done.Topics[j]))
				}
			}
			next()
		})
	}, func() { c.reply(resp) })
}

// offsetFetchOne answers the versions that ask for one group.
func (a *API) offsetFetchOne(c *Call, req *kmsg.OffsetFetchRequest) {
	img := a.o.Images.Image()
	r := &group.FetchOffsetsRequest{Group: req.Group, MemberEpoch: -1, All: req.Topics == nil && c.Version >= 2, RequireStable: req.RequireStable}
	for i := range req.Topics {
		t := &req.Topics[i]
		topic, _ := namedTopic(img, false, t.Topic, metadata.TopicID{})
		r.Topics = append(r.Topics, fetchTopic(topic, t.Topic, t.Partitions))
	}
	a.o.Groups.FetchOffsets(r, func(done *group.FetchOffsetsResponse) {
		resp := &kmsg.OffsetFetchResponse{ErrorCode: a.groupCode(c, done.Err)}
		switch {
		case done.Err == nil:
			for i := range done.Topics {
				resp.Topics = append(resp.Topics, fetchedTopicByName(&done.Topics[i]))
			}
		case c.Version < 2: // which has no error but in partitions
			for i := range req.Topics {
				t := kmsg.OffsetFetchResponseTopic{Topic: req.Topics[i].Topic}
				for _, p := range req.Topics[i].Partitions {
					t.Partitions = append(t.Partitions, kmsg.OffsetFetchResponseTopicPartition{Partition: p, Offset: -1, Metadata: new(string), ErrorCode: resp.ErrorCode})
				}
				resp.Topics = append(resp.Topics, t)
			}
		}
		c.reply(resp)
	})
}

func fetchTopic(topic *metadata.Topic, name string, partitions []int32) group.FetchTopic {
	t := group.FetchTopic{Topic: name, Partitions: partitions}
	if topic != nil {
		t.Topic, t.TopicID = topic.Name, topic.ID
	}
	return t
}

// unknownOffsets answers for a topic that no id has.
func unknownOffsets(t *kmsg.OffsetFetchRequestGroupTopic, code int16) kmsg.OffsetFetchResponseGroupTopic {
	out := kmsg.OffsetFetchResponseGroupTopic{Topic: t.Topic, TopicID: t.TopicID}
	for _, p := range t.Partitions {
		out.Partitions = append(out.Partitions, kmsg.OffsetFetchResponseGroupTopicPartition{
			Partition: p, Offset: -1, LeaderEpoch: -1, Metadata: new(string), ErrorCode: code,
		})
	}
	return out
}

func fetchedTopic(t *group.FetchedTopic) kmsg.OffsetFetchResponseGroupTopic {
	out := kmsg.OffsetFetchResponseGroupTopic{Topic: t.Topic, TopicID: t.TopicID, Partitions: make([]kmsg.OffsetFetchResponseGroupTopicPartition, len(t.Partitions))}
	for i := range t.Partitions {
		p := &t.Partitions[i]
		out.Partitions[i] = kmsg.OffsetFetchResponseGroupTopicPartition{Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: &p.Metadata}
	}
	return out
}

func fetchedTopicByName(t *group.FetchedTopic) kmsg.OffsetFetchResponseTopic {
	out := kmsg.OffsetFetchResponseTopic{Topic: t.Topic, Partitions: make([]kmsg.OffsetFetchResponseTopicPartition, len(t.Partitions))}
	for i := range t.Partitions {
		p := &t.Partitions[i]
		out.Partitions[i] = kmsg.OffsetFetchResponseTopicPartition{Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: &p.Metadata}
	}
	return out
}

package api

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/metadata"
)

// describeTopicPartitions describes topics in order of their names, at most so many partitions at once; a cursor says where to go on.
func (a *API) describeTopicPartitions(c *Call, req *kmsg.DescribeTopicPartitionsRequest) {
	img := a.o.Images.Image()
	resp := &kmsg.DescribeTopicPartitionsResponse{}
	names := a.describedNames(img, req)
	first := int32(0)
	if cur := req.Cursor; cur != nil {
		if cur.Partition < 0 {
			describeRefused(c, names)
			return
		}
		names = slices.DeleteFunc(names, func(n string) bool { return n < cur.Topic })
		if len(names) > 0 && names[0] == cur.Topic {
			first = cur.Partition
		}
	}
	left := max(min(int(req.ResponsePartitionLimit), a.o.Settings.Live().Int("max.request.partition.size.limit")), 1)
	for _, name := range names {
		if left == 0 {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: 0}
			break
		}
		t, ok := img.TopicByName(name)
		if !ok {
			r := kmsg.DescribeTopicPartitionsResponseTopic{ErrorCode: codeUnknownTopicOrPartition, Topic: &name, AuthorizedOperations: topicOperations}
			if err := controller.CheckTopicName(name); err != nil {
				r.ErrorCode = code(err)
			}
			resp.Topics = append(resp.Topics, r)
			continue
		}
		r := kmsg.DescribeTopicPartitionsResponseTopic{Topic: &t.Name, TopicID: t.ID, AuthorizedOperations: topicOperations}
		i := int(first)
		first = 0
		for ; i < len(t.Partitions) && left > 0; i++ {
			r.Partitions = append(r.Partitions, a.describedPartition(c, img, t, i))
			left--
		}
		resp.Topics = append(resp.Topics, r)
		if i < len(t.Partitions) {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: int32(i)}
			break
		}
	}
	c.reply(resp)
}

// describedNames are the topics asked for, sorted, each once; no names mean all topics.
func (a *API) describedNames(img *metadata.Image, req *kmsg.DescribeTopicPartitionsRequest) []string {
	var names []string
	for i := range req.Topics {
		names = append(names, req.Topics[i].Topic)
	}
	if len(names) == 0 {
		for t := range img.Topics() {
			names = append(names, t.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func describeRefused(c *Call, names []string) {
	resp := &kmsg.DescribeTopicPartitionsResponse{}
	for _, n := range names {
		resp.Topics = append(resp.Topics, kmsg.DescribeTopicPartitionsResponseTopic{ErrorCode: codeInvalidRequest, Topic: &n, AuthorizedOperations: noOperations})
	}
	c.reply(resp)
}

func (a *API) describedPartition(c *Call, img *metadata.Image, t *metadata.Topic, i int) kmsg.DescribeTopicPartitionsResponseTopicPartition {
	p := t.Partitions[i]
	code, leader := a.leaderFor(c, img, p)
	return kmsg.DescribeTopicPartitionsResponseTopicPartition{
		ErrorCode: code, Partition: int32(i), LeaderID: leader, LeaderEpoch: p.LeaderEpoch, Replicas: p.Replicas, ISR: p.ISR,
		EligibleLeaderReplicas: orEmpty(p.ELR), LastKnownELR: []int32{}, OfflineReplicas: offline(img, p.Replicas),
	}
}

func orEmpty(l []int32) []int32 {
	if l == nil {
		return []int32{}
	}
	return l
}

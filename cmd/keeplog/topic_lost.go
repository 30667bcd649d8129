package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/server/api"
)

type topicPartition struct {
	topic     string
	partition int32
}

// lostRecords asks every broker which records of the topics its disk has lost: a tagged field that only keeplog answers, so whatever goes wrong
// here says nothing.
func (s *session) lostRecords(ctx context.Context, topics kadm.TopicDetails) map[topicPartition][]lostRecords {
	req := kmsg.NewPtrDescribeLogDirsRequest()
	for _, t := range topics.Sorted() {
		rt := kmsg.NewDescribeLogDirsRequestTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions.Sorted() {
			rt.Partitions = append(rt.Partitions, p.Partition)
		}
		req.Topics = append(req.Topics, rt)
	}
	lost := map[topicPartition][]lostRecords{}
	for _, shard := range s.client.RequestSharded(ctx, req) {
		resp, ok := shard.Resp.(*kmsg.DescribeLogDirsResponse)
		if shard.Err != nil || !ok {
			continue
		}
		for i := range resp.Dirs {
			for _, t := range resp.Dirs[i].Topics {
				for j := range t.Partitions {
					if l, ok := lostOn(shard.Meta.NodeID, &t.Partitions[j]); ok {
						at := topicPartition{t.Topic, t.Partitions[j].Partition}
						lost[at] = append(lost[at], l)
					}
				}
			}
		}
	}
	for _, l := range lost {
		slices.SortFunc(l, func(a, b lostRecords) int { return int(a.Broker) - int(b.Broker) })
	}
	return lost
}

func lostOn(broker int32, p *kmsg.DescribeLogDirsResponseDirTopicPartition) (l lostRecords, ok bool) {
	p.UnknownTags.Each(func(key uint32, value []byte) {
		if key != api.TagLost {
			return
		}
		if o, valid := api.ParseLost(value); valid {
			l, ok = lostRecords{broker, int64(o.From), int64(o.To), o.Count}, true
		}
	})
	return l, ok
}

func (l *lostRecords) words(partition int32) string {
	if l.Count == l.To-l.From {
		return fmt.Sprintf("records lost on broker %d: partition %d, offsets %d..%d: its disk had them and lost them; it went on at offset %d", l.Broker, partition, l.From, l.To-1, l.To)
	}
	return fmt.Sprintf("records lost on broker %d: partition %d, %d of the offsets %d..%d: its disk had them and lost them", l.Broker, partition, l.Count, l.From, l.To-1)
}

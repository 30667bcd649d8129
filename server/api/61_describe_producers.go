package api

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeProducers lists the idempotent producers that the leaders of partitions know.
func (a *API) describeProducers(c *Call, req *kmsg.DescribeProducersRequest) {
	img := a.o.Images.Image()
	resp := &kmsg.DescribeProducersResponse{}
	total := 0
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.DescribeProducersResponseTopic{Topic: t.Topic}
		_, known := img.TopicByName(t.Topic)
		unknown := fmt.Sprintf("topic %s does not exist", t.Topic)
		for _, n := range t.Partitions {
			r := kmsg.DescribeProducersResponseTopicPartition{Partition: n}
			part, err := a.partition(img, t.Topic, n)
			if err == nil && total > maxDescribed {
				err = invalid("the answer would be too long: ask for fewer partitions at once")
			}
			if err == nil {
				err = describeProducers(part, &r)
				total += len(r.ActiveProducers)
			}
			if r.ErrorCode = code(err); err != nil && !known {
				r.ErrorMessage = &unknown
			}
			out.Partitions = append(out.Partitions, r)
		}
		resp.Topics = append(resp.Topics, out)
	}
	c.reply(resp)
}

func describeProducers(part Partition, r *kmsg.DescribeProducersResponseTopicPartition) error {
	l, err := part.Producers()
	for i := range l {
		p := &l[i]
		r.ActiveProducers = append(r.ActiveProducers, kmsg.DescribeProducersResponseTopicPartitionActiveProducer{
			ProducerID: int64(p.ID), ProducerEpoch: int32(p.Epoch), LastSequence: int32(p.LastSequence), LastTimestamp: p.LastTimestamp,
			CoordinatorEpoch: p.CoordinatorEpoch, CurrentTxnStartOffset: int64(p.TxnStartOffset),
		})
	}
	return err
}

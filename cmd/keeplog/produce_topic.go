package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// findTopic has the topic created by the broker if it is not there and the broker does that, and returns the largest
// batch that it takes, in bytes.
func (p *producing) findTopic(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, p.app.flags.timeout)
	defer cancel()
	s := p.session
	var partitions int
	create := false
	for try := 1; ; try++ {
		req := kmsg.NewPtrMetadataRequest()
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(p.topic)
		req.Topics = append(req.Topics, topic)
		req.AllowAutoTopicCreation = create
		resp, err := req.RequestWith(ctx, s.client)
		if err != nil {
			return 0, err
		}
		if len(resp.Topics) != 1 {
			return 0, failf("topic %s: the broker did not answer for it", p.topic)
		}
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
		unknown := errors.Is(err, kerr.UnknownTopicOrPartition)
		if err == nil {
			partitions = len(resp.Topics[0].Partitions)
			break
		}
		if !unknown && !errors.Is(err, kerr.LeaderNotAvailable) {
			return 0, s.answered("topic "+p.topic, err, "")
		}
		if unknown && create && try > 10 {
			e := s.unknownTopic(ctx, p.topic)
			if e.why == "" {
				e.why = "the broker did not make it by itself: its log tells why, or making it"
			}
			return 0, e
		}
		if create || !unknown {
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		create = create || unknown
	}
	if create {
		p.app.say("topic %s did not exist; the broker created it with %s", p.topic, count(int64(partitions), "partition"))
	}
	if int(p.flags.partition) >= partitions {
		e := failf("topic %s: UNKNOWN_TOPIC_OR_PARTITION (no partition %d)", p.topic, p.flags.partition)
		e.why, e.code = "it has "+count(int64(partitions), "partition"), "UNKNOWN_TOPIC_OR_PARTITION"
		return 0, e
	}
	p.count = partitions
	return p.messageMax(ctx), nil
}

// messageMax asks for max.message.bytes of the topic; a broker that does not tell is taken to have Kafka's default.
func (p *producing) messageMax(ctx context.Context) int {
	configs, err := p.session.admin.DescribeTopicConfigs(ctx, p.topic)
	if err != nil {
		return defaultMessageMax
	}
	rc, err := configs.On(p.topic, nil)
	if err != nil {
		return defaultMessageMax
	}
	for _, c := range rc.Configs {
		if n, err := strconv.Atoi(c.MaybeValue()); c.Key == "max.message.bytes" && err == nil && n > 0 {
			return n
		}
	}
	return defaultMessageMax
}

package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/metadata"
)

// alterPartition changes in-sync sets, as their leaders ask for it. Version 2 does not name the epochs of the members.
func (a *API) alterPartition(c *Call, req *kmsg.AlterPartitionRequest) {
	ctx, cancel := context.WithTimeout(c.Ctx, alterWait)
	defer cancel()
	r := controller.AlterPartitionRequest{Broker: req.BrokerID, Epoch: req.BrokerEpoch}
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			ch := controller.ISRChange{
				Topic: t.TopicID, Partition: p.Partition, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Recovered: p.LeaderRecoveryState == 0,
			}
			for _, m := range p.NewEpochISR {
				ch.ISR = append(ch.ISR, controller.InSyncMember{ID: m.BrokerID, Epoch: m.BrokerEpoch})
			}
			for _, id := range p.NewISR {
				ch.ISR = append(ch.ISR, controller.InSyncMember{ID: id, Epoch: -1})
			}
			r.Changes = append(r.Changes, ch)
		}
	}
	resp := kmsg.NewPtrAlterPartitionResponse()
	done, err := a.o.Controller.AlterPartition(ctx, r)
	if err != nil {
		resp.ErrorCode, _ = a.adminError(err)
		c.reply(resp)
		return
	}
	for i := range done {
		d := &done[i]
		if n := len(resp.Topics); n == 0 || metadata.TopicID(resp.Topics[n-1].TopidID) != d.Topic {
			resp.Topics = append(resp.Topics, kmsg.AlterPartitionResponseTopic{TopidID: d.Topic})
		}
		t := &resp.Topics[len(resp.Topics)-1]
		t.Partitions = append(t.Partitions, a.changedPartition(d))
	}
	c.reply(resp)
}

func (a *API) changedPartition(d *controller.ISRChanged) kmsg.AlterPartitionResponseTopicPartition {
	p := kmsg.AlterPartitionResponseTopicPartition{Partition: d.Partition}
	if d.Err != nil {
		p.ErrorCode, _ = a.adminError(d.Err)
		return p
	}
	p.LeaderID, p.LeaderEpoch, p.PartitionEpoch, p.ISR = d.Leader, d.LeaderEpoch, d.PartitionEpoch, d.ISR
	if d.Unclean {
		p.LeaderRecoveryState = 1
	}
	return p
}

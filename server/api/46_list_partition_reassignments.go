package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/controller"
)

// listReassignments lists what is being reassigned, of the partitions asked for, or with null of all.
func (a *API) listReassignments(c *Call, req *kmsg.ListPartitionReassignmentsRequest) {
	var asked []controller.TopicPartition
	if req.Topics != nil {
		asked = []controller.TopicPartition{}
	}
	for i := range req.Topics {
		for _, p := range req.Topics[i].Partitions {
			asked = append(asked, controller.TopicPartition{Topic: req.Topics[i].Topic, Partition: p})
		}
	}
	resp := kmsg.NewPtrListPartitionReassignmentsResponse()
	going, err := a.o.Controller.ListReassignments(asked)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = a.adminError(err)
	}
	for i := range going {
		g := &going[i]
		if n := len(resp.Topics); n == 0 || resp.Topics[n-1].Topic != g.Topic {
			resp.Topics = append(resp.Topics, kmsg.ListPartitionReassignmentsResponseTopic{Topic: g.Topic})
		}
		t := &resp.Topics[len(resp.Topics)-1]
		t.Partitions = append(t.Partitions, kmsg.ListPartitionReassignmentsResponseTopicPartition{
			Partition: g.Partition, Replicas: g.Replicas, AddingReplicas: g.Adding, RemovingReplicas: g.Removing,
		})
	}
	c.reply(resp)
}

package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/controller"
)

// alterReassignments begins reassignments, or with null replicas cancels them.
func (a *API) alterReassignments(c *Call, req *kmsg.AlterPartitionAssignmentsRequest) {
	ctx, cancel := withTimeout(c, req.TimeoutMillis)
	defer cancel()
	r := controller.ReassignRequest{KeepFactor: c.Version >= 1 && !req.AllowReplicationFactorChange}
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			r.Partitions = append(r.Partitions, controller.Reassignment{Topic: t.Topic, Partition: t.Partitions[j].Partition, Replicas: t.Partitions[j].Replicas})
		}
	}
	resp := kmsg.NewPtrAlterPartitionAssignmentsResponse()
	resp.AllowReplicationFactorChange = c.Version == 0 || req.AllowReplicationFactorChange
	done, err := []controller.Reassigned(nil), ctx.Err()
	if err == nil {
		done, err = a.o.Controller.Reassign(ctx, r)
	}
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = a.adminError(err)
		done = nil
	}
	for i := range done {
		d := &done[i]
		if n := len(resp.Topics); n == 0 || resp.Topics[n-1].Topic != d.Topic {
			resp.Topics = append(resp.Topics, kmsg.AlterPartitionAssignmentsResponseTopic{Topic: d.Topic})
		}
		t := &resp.Topics[len(resp.Topics)-1]
		p := kmsg.AlterPartitionAssignmentsResponseTopicPartition{Partition: d.Partition}
		if d.Err != nil {
			p.ErrorCode, p.ErrorMessage = a.adminError(d.Err)
		}
		t.Partitions = append(t.Partitions, p)
	}
	c.reply(resp)
}

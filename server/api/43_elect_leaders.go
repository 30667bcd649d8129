package api

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/controller"
)

const uncleanElection int8 = 1

// electLeaders holds elections: of the preferred replicas, or unclean ones. Without a list all partitions are meant, and those that need no
// election are left out of the answer.
func (a *API) electLeaders(c *Call, req *kmsg.ElectLeadersRequest) {
	resp := kmsg.NewPtrElectLeadersResponse()
	ctx, cancel := withTimeout(c, req.TimeoutMillis)
	defer cancel()
	r := controller.ElectLeadersRequest{Unclean: c.Version >= 1 && req.ElectionType == uncleanElection}
	if req.Topics != nil {
		r.Partitions = []controller.TopicPartition{}
	}
	for i := range req.Topics {
		for _, p := range req.Topics[i].Partitions {
			r.Partitions = append(r.Partitions, controller.TopicPartition{Topic: req.Topics[i].Topic, Partition: p})
		}
	}
	var held []controller.Elected
	err := electionType(c, req)
	if err == nil {
		held, err = a.elect(ctx, r)
	}
	if err != nil {
		if code, _ := a.adminError(err); c.Version >= 1 {
			resp.ErrorCode = code
		}
		held = held[:0]
		for _, p := range r.Partitions {
			held = append(held, controller.Elected{Topic: p.Topic, Partition: p.Partition, Err: err})
		}
	}
	for i := range held {
		e := &held[i]
		if n := len(resp.Topics); n == 0 || resp.Topics[n-1].Topic != e.Topic {
			resp.Topics = append(resp.Topics, kmsg.ElectLeadersResponseTopic{Topic: e.Topic})
		}
		t := &resp.Topics[len(resp.Topics)-1]
		p := kmsg.ElectLeadersResponseTopicPartition{Partition: e.Partition}
		if e.Err != nil {
			p.ErrorCode, p.ErrorMessage = a.adminError(e.Err)
			if errors.Is(e.Err, controller.ErrElectionNotNeeded) && p.ErrorMessage == nil {
				p.ErrorMessage = text("Leader election not needed for topic partition.")
			}
		}
		t.Partitions = append(t.Partitions, p)
	}
	c.reply(resp)
}

// electionType refuses a type that there is not; version 0 has none.
func electionType(c *Call, req *kmsg.ElectLeadersRequest) error {
	if c.Version >= 1 && req.ElectionType != 0 && req.ElectionType != uncleanElection {
		return invalid("Unknown election type %d", req.ElectionType)
	}
	return nil
}

// elect holds the elections if the client waits for them at all.
func (a *API) elect(ctx context.Context, r controller.ElectLeadersRequest) ([]controller.Elected, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return a.o.Controller.ElectLeaders(ctx, r)
}

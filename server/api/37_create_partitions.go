package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/controller"
)

// createPartitions grows topics.
func (a *API) createPartitions(c *Call, req *kmsg.CreatePartitionsRequest) {
	ctx, cancel := withTimeout(c, req.TimeoutMillis)
	defer cancel()
	r := controller.CreatePartitionsRequest{ValidateOnly: req.ValidateOnly}
	for i := range req.Topics {
		t := &req.Topics[i]
		g := controller.GrowTopic{Name: t.Topic, Count: t.Count}
		for _, as := range t.Assignment {
			g.Assignments = append(g.Assignments, as.Replicas)
		}
		r.Topics = append(r.Topics, g)
	}
	var grown []controller.GrownTopic
	err := ctx.Err()
	if err == nil {
		grown, err = a.o.Controller.CreatePartitions(ctx, r)
	}
	if err != nil {
		grown = grown[:0]
		for i := range req.Topics {
			grown = append(grown, controller.GrownTopic{Name: req.Topics[i].Topic, Err: err})
		}
	}
	resp := &kmsg.CreatePartitionsResponse{}
	for i := range grown {
		g := &grown[i]
		t := kmsg.CreatePartitionsResponseTopic{Topic: g.Name}
		if g.Err != nil {
			t.ErrorCode, t.ErrorMessage = a.adminError(g.Err)
		} else if !req.ValidateOnly {
			a.awaitTopic(ctx, g.Name)
		}
		resp.Topics = append(resp.Topics, t)
	}
	c.reply(resp)
}

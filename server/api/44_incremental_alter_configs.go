package api

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/metadata"
)

// alterWait bounds the wait for a change of settings, whose requests carry no time limit.
const alterWait = 30 * time.Second

// incrementalAlterConfigs changes single settings. Levels of loggers are this process's own and do not reach the controller.
func (a *API) incrementalAlterConfigs(c *Call, req *kmsg.IncrementalAlterConfigsRequest) {
	ctx, cancel := context.WithTimeout(c.Ctx, alterWait)
	defer cancel()
	r := controller.AlterConfigsRequest{ValidateOnly: req.ValidateOnly, Receiver: a.o.NodeID}
	answers := map[metadata.Resource]error{}
	for i := range req.Resources {
		res := &req.Resources[i]
		ar := controller.AlterResource{Resource: metadata.Resource{Kind: metadata.ResourceKind(res.ResourceType), Name: res.ResourceName}}
		for _, s := range res.Configs {
			ar.Ops = append(ar.Ops, controller.ConfigOp{Key: s.Name, Op: config.Op(s.Op), Value: s.Value})
		}
		if ar.Resource.Kind == metadata.ResourceBrokerLogger {
			answers[ar.Resource] = controller.AlterLoggers(ar, a.o.NodeID, a.o.Loggers, req.ValidateOnly)
			continue
		}
		r.Resources = append(r.Resources, ar)
	}
	if len(r.Resources) > 0 {
		done, err := a.o.Controller.IncrementalAlterConfigs(ctx, r)
		note(answers, done, err, func(f func(metadata.Resource)) {
			for i := range r.Resources {
				f(r.Resources[i].Resource)
			}
		})
	}
	resp := &kmsg.IncrementalAlterConfigsResponse{}
	for i := range req.Resources {
		res := &req.Resources[i]
		key := metadata.Resource{Kind: metadata.ResourceKind(res.ResourceType), Name: res.ResourceName}
		err, ok := answers[key]
		if !ok {
			continue // answered before: the same resource stands in the request twice
		}
		delete(answers, key)
		out := kmsg.IncrementalAlterConfigsResponseResource{ResourceType: res.ResourceType, ResourceName: res.ResourceName}
		if err != nil {
			out.ErrorCode, out.ErrorMessage = a.adminError(err)
		}
		resp.Resources = append(resp.Resources, out)
	}
	c.reply(resp)
}

// note puts the controller's answers under their resources; an error of the whole request goes to each of them.
func note(answers map[metadata.Resource]error, done []controller.AlteredResource, err error, each func(func(metadata.Resource))) {
	if err != nil {
		each(func(r metadata.Resource) { answers[r] = err })
		return
	}
	for i := range done {
		answers[done[i].Resource] = done[i].Err
	}
}

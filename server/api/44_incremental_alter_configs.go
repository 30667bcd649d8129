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

// incrementalAlterConfigs changes single settings. Levels of loggers are the asked process's own and do not reach the controller, so a request
// that has some of them goes there without them.
func (a *API) incrementalAlterConfigs(c *Call, req *kmsg.IncrementalAlterConfigsRequest) {
	ctx, cancel := context.WithTimeout(c.Ctx, alterWait)
	defer cancel()
	answers := map[metadata.Resource]error{}
	rest := *req
	rest.Resources = nil
	for i := range req.Resources {
		if metadata.ResourceKind(req.Resources[i].ResourceType) == metadata.ResourceBrokerLogger {
			r := alterResource(&req.Resources[i])
			answers[r.Resource] = controller.AlterLoggers(r, a.o.NodeID, a.o.Loggers, req.ValidateOnly)
			continue
		}
		rest.Resources = append(rest.Resources, req.Resources[i])
	}
	switch {
	case len(rest.Resources) == 0:
	case len(answers) == 0 && a.forwarded(c):
		return
	default:
		a.alterRest(ctx, c, &rest, answers)
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

func alterResource(res *kmsg.IncrementalAlterConfigsRequestResource) controller.AlterResource {
	ar := controller.AlterResource{Resource: metadata.Resource{Kind: metadata.ResourceKind(res.ResourceType), Name: res.ResourceName}}
	for _, s := range res.Configs {
		ar.Ops = append(ar.Ops, controller.ConfigOp{Key: s.Name, Op: config.Op(s.Op), Value: s.Value})
	}
	return ar
}

// alterRest changes what is the controller's: here, or with what is left of the request at the controller.
func (a *API) alterRest(ctx context.Context, c *Call, rest *kmsg.IncrementalAlterConfigsRequest, answers map[metadata.Resource]error) {
	if !a.leading() && len(answers) > 0 {
		resp, err := a.ask(ctx, c, rest)
		if err == nil {
			for _, r := range resp.(*kmsg.IncrementalAlterConfigsResponse).Resources {
				answers[metadata.Resource{Kind: metadata.ResourceKind(r.ResourceType), Name: r.ResourceName}] = remote(r.ErrorCode, r.ErrorMessage)
			}
			return
		}
		a.log.Warn("a request did not reach the controller", "key", c.Key, "cause", err)
	}
	r := controller.AlterConfigsRequest{ValidateOnly: rest.ValidateOnly, Receiver: c.asked}
	for i := range rest.Resources {
		r.Resources = append(r.Resources, alterResource(&rest.Resources[i]))
	}
	done, err := a.o.Controller.IncrementalAlterConfigs(ctx, r)
	note(answers, done, err, func(f func(metadata.Resource)) {
		for i := range r.Resources {
			f(r.Resources[i].Resource)
		}
	})
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

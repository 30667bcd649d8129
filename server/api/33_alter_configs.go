package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/metadata"
)

// alterConfigs replaces all settings of resources: the older way.
func (a *API) alterConfigs(c *Call, req *kmsg.AlterConfigsRequest) {
	ctx, cancel := context.WithTimeout(c.Ctx, alterWait)
	defer cancel()
	r := controller.ReplaceConfigsRequest{ValidateOnly: req.ValidateOnly, Receiver: c.asked}
	for i := range req.Resources {
		res := &req.Resources[i]
		rr := controller.ReplaceResource{Resource: metadata.Resource{Kind: metadata.ResourceKind(res.ResourceType), Name: res.ResourceName}}
		for _, s := range res.Configs {
			rr.Settings = append(rr.Settings, metadata.Setting{Key: s.Name, Value: s.Value})
		}
		r.Resources = append(r.Resources, rr)
	}
	answers := map[metadata.Resource]error{}
	done, err := a.o.Controller.AlterConfigs(ctx, r)
	note(answers, done, err, func(f func(metadata.Resource)) {
		for i := range r.Resources {
			f(r.Resources[i].Resource)
		}
	})
	resp := &kmsg.AlterConfigsResponse{}
	for i := range r.Resources {
		key := r.Resources[i].Resource
		err, ok := answers[key]
		if !ok {
			continue // answered before: the same resource stands in the request twice
		}
		delete(answers, key)
		out := kmsg.AlterConfigsResponseResource{ResourceType: req.Resources[i].ResourceType, ResourceName: key.Name}
		if err != nil {
			out.ErrorCode, out.ErrorMessage = a.adminError(err)
		}
		resp.Resources = append(resp.Resources, out)
	}
	c.reply(resp)
}

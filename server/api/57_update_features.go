package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/controller"
)

// updateFeatures sets levels of features: all of the request, or none.
func (a *API) updateFeatures(c *Call, req *kmsg.UpdateFeaturesRequest) {
	ctx, cancel := withTimeout(c, req.TimeoutMillis)
	defer cancel()
	r := controller.UpdateFeaturesRequest{ValidateOnly: req.ValidateOnly}
	for i := range req.FeatureUpdates {
		u := &req.FeatureUpdates[i]
		change := controller.FeatureChange(u.UpgradeType)
		if c.Version == 0 {
			change = controller.Upgrade
			if u.AllowDowngrade {
				change = controller.SafeDowngrade
			}
		}
		r.Updates = append(r.Updates, controller.FeatureUpdate{Name: u.Feature, Level: u.MaxVersionLevel, Change: change})
	}
	err := ctx.Err()
	if err == nil {
		err = a.o.Controller.UpdateFeatures(ctx, r)
	}
	resp := kmsg.NewPtrUpdateFeaturesResponse()
	switch {
	case err != nil:
		resp.ErrorCode, resp.ErrorMessage = a.adminError(err)
		if resp.ErrorCode == codeInvalidUpdateVersion && resp.ErrorMessage != nil {
			resp.ErrorMessage = text("The update failed for all features since the following feature had an error: " + *resp.ErrorMessage)
		}
	case c.Version < 2:
		for i := range req.FeatureUpdates {
			resp.Results = append(resp.Results, kmsg.UpdateFeaturesResponseResult{Feature: req.FeatureUpdates[i].Feature})
		}
	}
	c.reply(resp)
}

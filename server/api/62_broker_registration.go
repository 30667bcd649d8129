package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/metadata"
)

// brokerRegistration registers a process as a broker, fenced.
func (a *API) brokerRegistration(c *Call, req *kmsg.BrokerRegistrationRequest) {
	ctx, cancel := context.WithTimeout(c.Ctx, alterWait)
	defer cancel()
	r := controller.Registration{ID: req.BrokerID, ClusterID: req.ClusterID, Incarnation: req.IncarnationID}
	if req.Rack != nil {
		r.Rack = *req.Rack
	}
	for _, l := range req.Listeners {
		r.Listeners = append(r.Listeners, metadata.Endpoint{Name: l.Name, Host: l.Host, Port: l.Port, Protocol: l.SecurityProtocol})
	}
	for _, d := range req.LogDirs {
		r.Directories = append(r.Directories, d)
	}
	for _, f := range req.Features {
		r.Features = append(r.Features, controller.Feature{Name: f.Name, Min: f.MinSupportedVersion, Max: f.MaxSupportedVersion})
	}
	resp := kmsg.NewPtrBrokerRegistrationResponse()
	epoch, err := a.o.Controller.RegisterBroker(ctx, r)
	if err != nil {
		resp.ErrorCode, _ = a.adminError(err)
		epoch = -1
	}
	resp.BrokerEpoch = epoch
	c.reply(resp)
}

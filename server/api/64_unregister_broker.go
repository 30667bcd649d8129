package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// unregisterBroker takes a broker out of the cluster.
func (a *API) unregisterBroker(c *Call, req *kmsg.UnregisterBrokerRequest) {
	ctx, cancel := context.WithTimeout(c.Ctx, alterWait)
	defer cancel()
	resp := kmsg.NewPtrUnregisterBrokerResponse()
	if err := a.o.Controller.UnregisterBroker(ctx, req.BrokerID); err != nil {
		resp.ErrorCode, resp.ErrorMessage = a.adminError(err)
	}
	c.reply(resp)
}

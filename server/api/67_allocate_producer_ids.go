package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// allocateProducerIDs gives a broker a block of producer ids.
func (a *API) allocateProducerIDs(c *Call, req *kmsg.AllocateProducerIDsRequest) {
	ctx, cancel := context.WithTimeout(c.Ctx, alterWait)
	defer cancel()
	resp := kmsg.NewPtrAllocateProducerIDsResponse()
	ids, err := a.o.Controller.AllocateProducerIDs(ctx, req.BrokerID, req.BrokerEpoch)
	if err != nil {
		resp.ErrorCode, _ = a.adminError(err)
	}
	resp.ProducerIDStart, resp.ProducerIDLen = ids.First, ids.Count
	c.reply(resp)
}

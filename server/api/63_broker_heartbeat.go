package api

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/peer"
)

// brokerHeartbeat takes a broker's report. The end of the connection that it comes over may be the end of the process.
func (a *API) brokerHeartbeat(c *Call, req *kmsg.BrokerHeartbeatRequest) {
	resp := kmsg.NewPtrBrokerHeartbeatResponse()
	lost, outOfOrder, err := peer.Lost(req)
	features, malformed := peer.Features(req)
	if err = errors.Join(err, malformed); err != nil {
		c.close(err)
		return
	}
	if a.o.Cluster == nil {
		resp.ErrorCode = codeNotController
		c.reply(resp)
		return
	}
	ctx, cancel := context.WithTimeout(c.Ctx, alterWait)
	defer cancel()
	h := controller.Heartbeat{
		ID: req.BrokerID, Epoch: req.BrokerEpoch, Applied: uint64(max(req.CurrentMetadataOffset, 0)), WantFence: req.WantFence, WantShutdown: req.WantShutdown,
	}
	for _, l := range lost {
		h.Lost = append(h.Lost, controller.PartitionRef(l))
	}
	for _, o := range outOfOrder {
		h.OutOfOrder = append(h.OutOfOrder, controller.PartitionRef(o))
	}
	for _, d := range req.OfflineLogDirs {
		h.Offline = append(h.Offline, d)
	}
	for _, f := range features {
		h.Features = append(h.Features, controller.Feature(f))
	}
	got, err := a.o.Controller.Heartbeat(ctx, a.o.Cluster.Now(), h)
	if err != nil {
		resp.ErrorCode, _ = a.adminError(err)
	} else {
		a.o.Cluster.Heard(c.Ctx, h.ID, h.Epoch)
	}
	resp.IsCaughtUp, resp.IsFenced, resp.ShouldShutdown = got.CaughtUp, got.Fenced, got.ShutDown
	c.reply(resp)
}

package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	endpointBrokers     int8 = 1
	endpointControllers int8 = 2
)

// describeCluster lists the brokers, and with version 2 the fenced ones too when asked. Controllers have no endpoint for clients.
func (a *API) describeCluster(c *Call, req *kmsg.DescribeClusterRequest) {
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.ControllerID, resp.ClusterAuthorizedOperations, resp.EndpointType = -1, noOperations, endpointBrokers
	if c.Version >= 1 && req.EndpointType != endpointBrokers {
		text := "this endpoint is one of brokers"
		resp.ErrorCode = codeMismatchedEndpointType
		if req.EndpointType != endpointControllers {
			text = "no such endpoint type"
			resp.ErrorCode = codeUnsupportedEndpointType
		}
		resp.ErrorMessage = &text
		c.reply(resp)
		return
	}
	img := a.o.Images.Image()
	resp.ClusterID, resp.ControllerID = img.ClusterID(), a.adminNode(img)
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	for _, b := range img.Brokers() {
		if b.Fenced && !(c.Version >= 2 && req.IncludeFencedBrokers) {
			continue
		}
		e, ok := b.Listener(c.Conn.Listener)
		if !ok {
			continue
		}
		n := kmsg.DescribeClusterResponseBroker{NodeID: b.ID, Host: e.Host, Port: int32(e.Port), IsFenced: b.Fenced}
		if b.Rack != "" {
			n.Rack = &b.Rack
		}
		resp.Brokers = append(resp.Brokers, n)
	}
	c.reply(resp)
}

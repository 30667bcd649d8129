package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What a coordinator coordinates, as the request names it.
const (
	coordinatesGroup       int8 = 0
	coordinatesTransaction int8 = 1
	coordinatesShareGroup  int8 = 2
)

// noNode stands where an answer names no broker.
var noNode = node{id: -1, port: -1}

// coordinator is one answer.
type coordinator struct {
	node node
	code int16
	why  string
}

// findCoordinator names this broker for groups: to join one is refused here (see joinGroup), while clients that give a group's name and
// assign partitions by themselves go on undisturbed, as librdkafka's must. Transactions and share groups are refused at once.
//
// The key matters to more than groups: librdkafka takes from its presence that a broker knows lz4.
func (a *API) findCoordinator(c *Call, req *kmsg.FindCoordinatorRequest) {
	found := a.coordinator(c, req.CoordinatorType)
	var why *string
	if found.code != codeNone {
		why = &found.why
	}
	resp := &kmsg.FindCoordinatorResponse{}
	if c.Version < 4 {
		resp.ErrorCode, resp.ErrorMessage = found.code, why
		resp.NodeID, resp.Host, resp.Port = found.node.id, found.node.host, found.node.port
		c.reply(resp)
		return
	}
	resp.Coordinators = make([]kmsg.FindCoordinatorResponseCoordinator, len(req.CoordinatorKeys))
	for i, key := range req.CoordinatorKeys {
		resp.Coordinators[i] = kmsg.FindCoordinatorResponseCoordinator{
			Key: key, NodeID: found.node.id, Host: found.node.host, Port: found.node.port, ErrorCode: found.code, ErrorMessage: why,
		}
	}
	c.reply(resp)
}

// coordinator is the answer for a kind of coordinator. Version 0 asks for groups only.
func (a *API) coordinator(c *Call, kind int8) coordinator {
	switch {
	case kind == coordinatesGroup:
		if n, ok := a.node(c, a.o.Images.Image(), a.o.NodeID); ok {
			return coordinator{node: n}
		}
		return coordinator{noNode, codeCoordinatorNotAvailable, "this broker is about to join the cluster, or to leave it"}
	case kind == coordinatesTransaction:
		return coordinator{noNode, codeTransactionalIDAuth, "transactions are not served by this version"}
	case kind == coordinatesShareGroup && c.Version >= 6:
		return coordinator{noNode, codeUnsupportedVersion, "share groups are not served by this version"}
	default:
		return coordinator{noNode, codeInvalidRequest, "no such kind of coordinator"}
	}
}

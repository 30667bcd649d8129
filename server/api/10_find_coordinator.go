package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/metadata"
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

// findCoordinator names the broker that the shard of a group belongs to, by the newest image: at once, and also while that broker is still
// loading. There is no internal topic to be made first. Transactions and share groups are refused.
//
// The key matters to more than groups: librdkafka takes from its presence that a broker knows lz4.
func (a *API) findCoordinator(c *Call, req *kmsg.FindCoordinatorRequest) {
	resp := &kmsg.FindCoordinatorResponse{}
	img := a.o.Images.Image()
	if c.Version < 4 {
		found := a.coordinator(c, img, req.CoordinatorType, req.CoordinatorKey)
		resp.ErrorCode, resp.ErrorMessage = found.code, found.message()
		resp.NodeID, resp.Host, resp.Port = found.node.id, found.node.host, found.node.port
		c.reply(resp)
		return
	}
	resp.Coordinators = make([]kmsg.FindCoordinatorResponseCoordinator, len(req.CoordinatorKeys))
	for i, key := range req.CoordinatorKeys {
		found := a.coordinator(c, img, req.CoordinatorType, key)
		resp.Coordinators[i] = kmsg.FindCoordinatorResponseCoordinator{
			Key: key, NodeID: found.node.id, Host: found.node.host, Port: found.node.port, ErrorCode: found.code, ErrorMessage: found.message(),
		}
	}
	c.reply(resp)
}

// message is the text beside the code. As Kafka, it says "NONE" where nothing is wrong.
func (f *coordinator) message() *string {
	if f.code == codeNone {
		return text("NONE")
	}
	return &f.why
}

// coordinator is the answer for a kind of coordinator and a name. Version 0 asks for groups only.
func (a *API) coordinator(c *Call, img *metadata.Image, kind int8, name string) coordinator {
	switch {
	case kind == coordinatesGroup:
		if n, ok := a.node(c, img, img.Shard(metadata.ShardOf(name)).Owner); ok {
			return coordinator{node: n}
		}
		return coordinator{noNode, codeCoordinatorNotAvailable, "no live broker coordinates the group now; one is about to take it over"}
	case kind == coordinatesTransaction:
		return coordinator{noNode, codeTransactionalIDAuth, "transactions are not served by this version"}
	case kind == coordinatesShareGroup && c.Version >= 6:
		return coordinator{noNode, codeUnsupportedVersion, "share groups are not served by this version"}
	default:
		return coordinator{noNode, codeInvalidRequest, "no such kind of coordinator"}
	}
}

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

// noCoordinators is what clients show their users.
const (
	noGroups       = "consumer groups are not served by this version"
	noTransactions = "transactions are not served by this version"
)

// findCoordinator refuses: there are no consumer groups, and no transactions. The codes are such that clients give up and say so; to
// COORDINATOR_NOT_AVAILABLE they would come back for ever. The key is served all the same, because librdkafka takes from its presence
// that a broker knows lz4.
func (a *API) findCoordinator(c *Call, req *kmsg.FindCoordinatorRequest) {
	code, why := coordinatorCode(c.Version, req.CoordinatorType)
	resp := &kmsg.FindCoordinatorResponse{}
	if c.Version < 4 {
		resp.ErrorCode, resp.ErrorMessage, resp.NodeID, resp.Port = code, &why, -1, -1
		c.reply(resp)
		return
	}
	resp.Coordinators = make([]kmsg.FindCoordinatorResponseCoordinator, len(req.CoordinatorKeys))
	for i, key := range req.CoordinatorKeys {
		resp.Coordinators[i] = kmsg.FindCoordinatorResponseCoordinator{Key: key, NodeID: -1, Port: -1, ErrorCode: code, ErrorMessage: &why}
	}
	c.reply(resp)
}

// coordinatorCode is the answer for a kind of coordinator. Version 0 knows groups only, and the request says 0 there; share groups came
// with version 6.
func coordinatorCode(version int16, kind int8) (int16, string) {
	switch {
	case kind == coordinatesGroup, kind == coordinatesShareGroup && version >= 6:
		return codeUnsupportedVersion, noGroups
	case kind == coordinatesTransaction:
		return codeTransactionalIDAuth, noTransactions
	default:
		return codeInvalidRequest, "no such kind of coordinator"
	}
}

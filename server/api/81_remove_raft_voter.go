package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// removeRaftVoter takes a voter out of the metadata quorum.
func (a *API) removeRaftVoter(c *Call, req *kmsg.RemoveRaftVoterRequest) {
	ctx, cancel := context.WithTimeout(c.Ctx, alterWait)
	defer cancel()
	resp := kmsg.NewPtrRemoveRaftVoterResponse()
	var wrong error
	if req.VoterID < 0 {
		wrong = invalid("%d is not the id of a node", req.VoterID)
	}
	err := a.voterRequest(req.ClusterID, wrong)
	if err == nil {
		err = a.o.Quorum.RemoveVoter(ctx, req.VoterID, req.VoterDirectoryID)
	}
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = a.adminError(err)
	}
	c.reply(resp)
}

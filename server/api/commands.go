package api

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/replication/quorum"
)

// commandWait bounds how long a command of the metadata log is waited for. Who sent it sends it again when it does not know the outcome.
const commandWait = 10 * time.Second

// command commits a command that the coordinator of another broker made, as the leader of the metadata log.
func (a *API) command(c *Call, req *kmsg.EnvelopeRequest) {
	resp := kmsg.NewPtrEnvelopeResponse()
	if a.o.Quorum == nil {
		resp.ErrorCode = codeNotController
		c.reply(resp)
		return
	}
	ctx, cancel := context.WithTimeout(c.Ctx, commandWait)
	defer cancel()
	switch out, err := a.o.Quorum.Submit(ctx, req.RequestData); {
	case err == nil:
		resp.ResponseData = metadata.AppendOutcome(nil, &out)
	case errors.Is(err, quorum.ErrNotLeader):
		resp.ErrorCode = codeNotController
	case errors.Is(err, quorum.ErrForeignCommand), errors.Is(err, quorum.ErrTooLarge):
		a.log.Error("another broker sent a command that cannot be taken", "event", "command.refused", "error", err)
		resp.ErrorCode = codeInvalidRequest
	default:
		resp.ErrorCode = codeRequestTimedOut
	}
	c.reply(resp)
}

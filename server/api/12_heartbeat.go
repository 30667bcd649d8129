package api

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/group"
)

// heartbeat keeps a member of a classic group alive. While the coordinator is loading it has forgotten nobody, so it says nothing against a
// heartbeat, as Kafka's does not.
func (a *API) heartbeat(c *Call, req *kmsg.HeartbeatRequest) {
	r := &group.HeartbeatRequest{Group: req.Group, MemberID: req.MemberID, InstanceID: req.InstanceID, Generation: req.Generation}
	a.o.Groups.Heartbeat(r, func(res *group.HeartbeatResponse) {
		resp := &kmsg.HeartbeatResponse{}
		if !errors.Is(res.Err, group.ErrLoading) {
			resp.ErrorCode = a.groupCode(c, res.Err)
		}
		c.reply(resp)
	})
}

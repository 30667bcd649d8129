package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// joinGroup refuses: there are no consumer groups yet. UNSUPPORTED_VERSION is the code at which every client gives up and says so; the
// answer has no room for a reason.
func (a *API) joinGroup(c *Call, req *kmsg.JoinGroupRequest) {
	a.log.Info("a client asks for a consumer group; they are not served by this version", "group", req.Group, "client", c.Conn.Remote)
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.ErrorCode, resp.Generation = codeUnsupportedVersion, -1
	resp.MemberID = req.MemberID
	if c.Version < 7 {
		resp.Protocol = new(string)
	}
	c.reply(resp)
}

package api

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/group"
)

// leaveGroup takes members out of a classic group. Versions before 3 name one, and have its error as that of the answer.
func (a *API) leaveGroup(c *Call, req *kmsg.LeaveGroupRequest) {
	r := &group.LeaveGroupRequest{Group: req.Group, Members: make([]group.Leaver, len(req.Members))}
	for i := range req.Members {
		m := &req.Members[i]
		r.Members[i] = group.Leaver{MemberID: m.MemberID, InstanceID: m.InstanceID}
		if m.Reason != nil {
			r.Members[i].Reason = *m.Reason
		}
	}
	a.o.Groups.LeaveGroup(r, func(res *group.LeaveGroupResponse) {
		if errors.Is(res.Err, group.ErrUnknownMember) { // there is no such group, so each of them is unknown
			all := &group.LeaveGroupResponse{}
			for _, m := range r.Members {
				all.Members = append(all.Members, group.Left{MemberID: m.MemberID, InstanceID: m.InstanceID, Err: res.Err})
			}
			res = all
		}
		resp := &kmsg.LeaveGroupResponse{ErrorCode: a.groupCode(c, res.Err)}
		if res.Err == nil {
			resp.Members = make([]kmsg.LeaveGroupResponseMember, len(res.Members))
			for i := range res.Members {
				m := &res.Members[i]
				resp.Members[i] = kmsg.LeaveGroupResponseMember{MemberID: m.MemberID, InstanceID: m.InstanceID, ErrorCode: a.groupCode(c, m.Err)}
			}
			if c.Version < 3 && len(resp.Members) > 0 {
				resp.ErrorCode = resp.Members[0].ErrorCode
			}
		}
		c.reply(resp)
	})
}

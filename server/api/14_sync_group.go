package api

import (
	"bytes"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/group"
)

// syncGroup gives a member of a classic group its part of the assignment, which the leader's own request brings. From version 5 on the
// member says by which protocol it understands it.
func (a *API) syncGroup(c *Call, req *kmsg.SyncGroupRequest) {
	r := &group.SyncGroupRequest{
		Group: req.Group, MemberID: req.MemberID, InstanceID: req.InstanceID, Generation: req.Generation,
		ProtocolType: req.ProtocolType, Protocol: req.Protocol, Assignments: make([]group.Assigned, len(req.GroupAssignment)),
	}
	if c.Version >= 5 && (req.ProtocolType == nil || req.Protocol == nil) {
		c.reply(&kmsg.SyncGroupResponse{ErrorCode: codeInconsistentProtocol, MemberAssignment: []byte{}})
		return
	}
	if len(c.header.Body) > maxStored {
		c.reply(&kmsg.SyncGroupResponse{ErrorCode: a.groupCode(c, group.ErrTooLarge), MemberAssignment: []byte{}})
		return
	}
	c.lighten()
	for i := range req.GroupAssignment {
		g := &req.GroupAssignment[i]
		r.Assignments[i] = group.Assigned{MemberID: g.MemberID, Assignment: bytes.Clone(g.MemberAssignment)}
	}
	a.o.Groups.SyncGroup(r, func(res *group.SyncGroupResponse) {
		resp := &kmsg.SyncGroupResponse{ErrorCode: a.groupCode(c, res.Err), MemberAssignment: []byte{}}
		if res.Err == nil {
			resp.ProtocolType, resp.Protocol = res.ProtocolType, res.Protocol
			if res.Assignment != nil {
				resp.MemberAssignment = res.Assignment
			}
		}
		c.reply(resp)
	})
}

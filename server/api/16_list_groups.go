package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/group"
)

// listGroups lists the groups that this broker coordinates, of some states and types only from versions 4 and 5 on.
func (a *API) listGroups(c *Call, req *kmsg.ListGroupsRequest) {
	res := a.o.Groups.ListGroups(group.Filter{States: req.StatesFilter, Types: req.TypesFilter})
	resp := &kmsg.ListGroupsResponse{ErrorCode: a.groupCode(c, res.Err)}
	if res.Err == nil {
		resp.Groups = make([]kmsg.ListGroupsResponseGroup, len(res.Groups))
		for i := range res.Groups {
			g := &res.Groups[i]
			resp.Groups[i] = kmsg.ListGroupsResponseGroup{Group: g.Group, ProtocolType: g.ProtocolType, GroupState: g.State, GroupType: g.Type.String()}
		}
	}
	c.reply(resp)
}

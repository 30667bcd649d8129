package api

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// deleteGroups removes groups without members, and their offsets. A group that is named twice is answered once.
func (a *API) deleteGroups(c *Call, req *kmsg.DeleteGroupsRequest) {
	seen := make(map[string]bool, len(req.Groups))
	names := slices.DeleteFunc(req.Groups, func(name string) bool {
		twice := seen[name]
		seen[name] = true
		return twice
	})
	resp := &kmsg.DeleteGroupsResponse{Groups: make([]kmsg.DeleteGroupsResponseGroup, len(names))}
	together(len(names), func(i int, done func()) {
		out := &resp.Groups[i]
		out.Group = names[i]
		a.o.Groups.DeleteGroup(names[i], func(err error) {
			out.ErrorCode = a.groupCode(c, err)
			done()
		})
	}, func() { c.reply(resp) })
}

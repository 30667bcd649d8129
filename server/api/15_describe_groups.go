package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/group"
)

const (
	// groupOperations are the operations that somebody who may do everything may do with a group: bits by Kafka's numbers.
	groupOperations int32 = 1<<3 | 1<<6 | 1<<8 | 1<<10 | 1<<11
	// maxGroupBytes bounds what one answer tells of groups: a request may name a large one many times.
	maxGroupBytes = 32 << 20
)

// describeGroups describes classic groups. Before version 6 a group that is not there is a dead one.
func (a *API) describeGroups(c *Call, req *kmsg.DescribeGroupsRequest) {
	resp := &kmsg.DescribeGroupsResponse{Groups: make([]kmsg.DescribeGroupsResponseGroup, len(req.Groups))}
	size := 0
	inTurn(len(req.Groups), func(i int, next func()) {
		out := &resp.Groups[i]
		out.Group, out.AuthorizedOperations = req.Groups[i], noOperations
		if size > maxGroupBytes {
			out.ErrorCode, out.ErrorMessage = codeInvalidRequest, text(tooLong)
			next()
			return
		}
		a.o.Groups.DescribeGroup(req.Groups[i], func(res *group.GroupDescription) {
			size += a.describedGroup(c, out, res)
			if out.ErrorCode == codeNone && req.IncludeAuthorizedOperations {
				out.AuthorizedOperations = groupOperations
			}
			next()
		})
	}, func() { c.reply(resp) })
}

// tooLong says why the rest of a list is not described.
const tooLong = "the answer would be too long: ask for fewer groups at once"

// describedGroup fills one answer in, and returns how many bytes it takes.
func (a *API) describedGroup(c *Call, out *kmsg.DescribeGroupsResponseGroup, res *group.GroupDescription) (size int) {
	if res.Err != nil {
		out.ErrorCode, out.ErrorMessage = a.groupCode(c, res.Err), groupMessage(res.Err, res.Message)
		if out.ErrorCode == codeGroupNotFound {
			out.State = "Dead"
			if c.Version < 6 {
				out.ErrorCode = codeNone
			}
		}
		return 0
	}
	out.State, out.ProtocolType, out.Protocol = res.State, res.ProtocolType, res.Protocol
	out.Members = make([]kmsg.DescribeGroupsResponseGroupMember, len(res.Members))
	for i := range res.Members {
		m := &res.Members[i]
		out.Members[i] = kmsg.DescribeGroupsResponseGroupMember{
			MemberID: m.MemberID, InstanceID: m.InstanceID, ClientID: m.ClientID, ClientHost: m.ClientHost,
			ProtocolMetadata: notNil(m.Metadata), MemberAssignment: notNil(m.Assignment),
		}
		if m.Awaited {
			out.Members[i].UnknownTags.Set(TagAwaited, []byte{1})
		}
		size += 200 + len(m.MemberID) + len(m.ClientID) + len(m.ClientHost) + len(m.Metadata) + len(m.Assignment)
	}
	return size
}

// groupMessage is what a client is told beside a code, nil for none.
func groupMessage(err error, message string) *string {
	switch {
	case err == nil:
		return nil
	case message == "":
		message = errorText(err)
	}
	return &message
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

package api

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/group"
)

const (
	// maxStored bounds, in bytes, what a member may bring: an entry of the metadata log holds no more. Without it, what waits for a rebalance
	// could take all the memory that requests share.
	maxStored = 1 << 20
	// maxProtocols bounds the ways of assigning that a member offers.
	maxProtocols = 256
)

// joinGroup makes a client a member of a classic group, or keeps it one. The answer comes with the group's next generation. When the
// connection ends before, the coordinator is told that nobody waits.
func (a *API) joinGroup(c *Call, req *kmsg.JoinGroupRequest) {
	if len(c.header.Body) > maxStored || len(req.Protocols) > maxProtocols {
		c.reply(a.joined(c, &group.JoinGroupResponse{Err: group.ErrTooLarge, MemberID: req.MemberID}))
		return
	}
	r := &group.JoinGroupRequest{
		Group: req.Group, MemberID: req.MemberID, InstanceID: req.InstanceID, ClientID: string(c.ClientID), ClientHost: clientHost(c.Conn.Remote),
		SessionTimeout:   time.Duration(req.SessionTimeoutMillis) * time.Millisecond,
		RebalanceTimeout: time.Duration(req.RebalanceTimeoutMillis) * time.Millisecond,
		ProtocolType:     req.ProtocolType, RequireKnownID: c.Version >= 4, CanSkipAssignment: c.Version >= 9,
	}
	if req.Reason != nil {
		r.Reason = *req.Reason
	}
	for i := range req.Protocols {
		p := &req.Protocols[i]
		r.Protocols = append(r.Protocols, group.Protocol{Name: p.Name, Metadata: bytes.Clone(p.Metadata)})
	}
	ctx, w := c.Ctx, &leaving{}
	gone := a.o.Groups.JoinGroup(r, func(res *group.JoinGroupResponse) {
		w.answered()
		c.reply(a.joined(c, res))
	})
	w.watch(ctx, gone)
}

func (a *API) joined(c *Call, res *group.JoinGroupResponse) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.ErrorCode, resp.Generation, resp.MemberID = a.groupCode(c, res.Err), -1, res.MemberID
	if res.Err == nil {
		resp.Generation, resp.ProtocolType, resp.Protocol = res.Generation, res.ProtocolType, res.Protocol
		resp.LeaderID, resp.SkipAssignment = res.Leader, res.SkipAssignment
		resp.Members = make([]kmsg.JoinGroupResponseMember, len(res.Members))
		for i := range res.Members {
			m := &res.Members[i]
			resp.Members[i] = kmsg.JoinGroupResponseMember{MemberID: m.MemberID, InstanceID: m.InstanceID, ProtocolMetadata: m.Metadata}
		}
	}
	if resp.Protocol == nil && c.Version < 7 {
		resp.Protocol = new(string)
	}
	return resp
}

// leaving tells a coordinator that the connection of a request that waits has ended, unless it was answered before.
type leaving struct {
	mu   sync.Mutex
	done bool
	stop func() bool // guarded by mu
}

func (l *leaving) watch(ctx context.Context, gone func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.done {
		l.stop = context.AfterFunc(ctx, gone)
	}
}

func (l *leaving) answered() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = true
	if l.stop != nil {
		l.stop()
	}
}

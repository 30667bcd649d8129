package api

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/keeplog/keeplog/group"
)

// Groups are the groups that this broker coordinates; *group.Coordinator has these methods. None waits: done is called once, from any
// goroutine, perhaps before the method returns. What a request holds must not change after.
type Groups interface {
	// JoinGroup may be answered minutes later. The function that it returns says that nobody waits any more.
	JoinGroup(r *group.JoinGroupRequest, done func(*group.JoinGroupResponse)) (gone func())
	SyncGroup(r *group.SyncGroupRequest, done func(*group.SyncGroupResponse))
	Heartbeat(r *group.HeartbeatRequest, done func(*group.HeartbeatResponse))
	LeaveGroup(r *group.LeaveGroupRequest, done func(*group.LeaveGroupResponse))
	ConsumerHeartbeat(r *group.ConsumerHeartbeatRequest, done func(*group.ConsumerHeartbeatResponse))
	CommitOffsets(r *group.CommitOffsetsRequest, done func(*group.CommitOffsetsResponse))
	FetchOffsets(r *group.FetchOffsetsRequest, done func(*group.FetchOffsetsResponse))
	DeleteOffsets(r *group.DeleteOffsetsRequest, done func(*group.DeleteOffsetsResponse))
	DeleteGroup(group string, done func(error))
	DescribeGroup(group string, done func(*group.GroupDescription))
	DescribeConsumerGroup(group string, done func(*group.ConsumerGroupDescription))
	ListGroups(f group.Filter) *group.ListGroupsResponse
}

var _ Groups = (*group.Coordinator)(nil)

// inTurn runs a step for each of n things, the next one when the one before has called next, and at the end done. A step may call next
// before it returns, or later from another goroutine.
func inTurn(n int, step func(i int, next func()), done func()) {
	t := &turns{n: n, step: step, done: done}
	t.run()
}

// turns belongs to whoever runs the current step.
type turns struct {
	i, n int
	step func(i int, next func())
	done func()
}

func (t *turns) run() {
	for t.i < t.n {
		i := t.i
		t.i++
		// Of the step's return and its call of next, the second goes on.
		first := new(atomic.Bool)
		t.step(i, func() {
			if first.Swap(true) {
				t.run()
			}
		})
		if !first.Swap(true) {
			return
		}
	}
	t.done()
}

// together runs a step for each of n things without waiting for any, and done when all have called theirs.
func together(n int, step func(i int, done func()), done func()) {
	left := new(atomic.Int64)
	left.Store(int64(n) + 1)
	one := func() {
		if left.Add(-1) == 0 {
			done()
		}
	}
	for i := range n {
		step(i, one)
	}
	one()
}

// clientHost is a client's address as groups show it: "/" and the numbers, those of version 6 written out, as Java does.
func clientHost(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.Unmap().Is4() {
		return "/" + strings.TrimPrefix(host, "::ffff:")
	}
	b := addr.As16()
	words := make([]string, 8)
	for i := range words {
		words[i] = strconv.FormatUint(uint64(b[2*i])<<8|uint64(b[2*i+1]), 16)
	}
	host = strings.Join(words, ":")
	if zone := addr.Zone(); zone != "" {
		host += "%" + zone
	}
	return "/" + host
}

package api

import (
	"sync"

	"github.com/keeplog/keeplog/group"
)

// fakeGroups is a coordinator that answers what it was told to: with an error, for the whole request or for its items, or with the answers
// that it holds.
type fakeGroups struct {
	mu        sync.Mutex
	err, item error
	got       []any // the requests, in order
	leavers   int   // joins whose client has left
	left      chan struct{}
	held      []func()
	hold      bool // joins wait in held
	syncs     func()

	joined    group.JoinGroupResponse
	synced    group.SyncGroupResponse
	beaten    group.ConsumerHeartbeatResponse
	fetched   []group.FetchedTopic
	described group.GroupDescription
	consumers group.ConsumerGroupDescription
	listed    []group.Overview
}

func (f *fakeGroups) note(r any) { f.mu.Lock(); f.got = append(f.got, r); f.mu.Unlock() }

func (f *fakeGroups) JoinGroup(r *group.JoinGroupRequest, done func(*group.JoinGroupResponse)) func() {
	f.note(r)
	res := f.joined
	if f.err != nil {
		res.Err = f.err
	}
	if f.hold {
		f.held = append(f.held, func() { done(&res) })
	} else {
		done(&res)
	}
	return func() {
		f.mu.Lock()
		f.leavers++
		f.mu.Unlock()
		f.left <- struct{}{}
	}
}

func (f *fakeGroups) gone() int { f.mu.Lock(); defer f.mu.Unlock(); return f.leavers }

func (f *fakeGroups) SyncGroup(r *group.SyncGroupRequest, done func(*group.SyncGroupResponse)) {
	f.note(r)
	if f.syncs != nil {
		f.syncs()
	}
	res := f.synced
	res.Err = f.err
	done(&res)
}

func (f *fakeGroups) Heartbeat(r *group.HeartbeatRequest, done func(*group.HeartbeatResponse)) {
	f.note(r)
	done(&group.HeartbeatResponse{Err: f.err})
}

func (f *fakeGroups) LeaveGroup(r *group.LeaveGroupRequest, done func(*group.LeaveGroupResponse)) {
	f.note(r)
	res := &group.LeaveGroupResponse{Err: f.err}
	for _, m := range r.Members {
		res.Members = append(res.Members, group.Left{MemberID: m.MemberID, InstanceID: m.InstanceID, Err: f.item})
	}
	done(res)
}

func (f *fakeGroups) ConsumerHeartbeat(r *group.ConsumerHeartbeatRequest, done func(*group.ConsumerHeartbeatResponse)) {
	f.note(r)
	res := f.beaten
	res.Err = f.err
	done(&res)
}

func (f *fakeGroups) CommitOffsets(r *group.CommitOffsetsRequest, done func(*group.CommitOffsetsResponse)) {
	f.note(r)
	res := &group.CommitOffsetsResponse{Err: f.err}
	if f.item != nil {
		for range r.Offsets {
			res.Partitions = append(res.Partitions, f.item)
		}
	}
	go done(res)
}

func (f *fakeGroups) FetchOffsets(r *group.FetchOffsetsRequest, done func(*group.FetchOffsetsResponse)) {
	f.note(r)
	done(&group.FetchOffsetsResponse{Err: f.err, Topics: f.fetched})
}

func (f *fakeGroups) DeleteOffsets(r *group.DeleteOffsetsRequest, done func(*group.DeleteOffsetsResponse)) {
	f.note(r)
	res := &group.DeleteOffsetsResponse{Err: f.err}
	for _, t := range r.Topics {
		var l []error
		for range t.Partitions {
			l = append(l, f.item)
		}
		res.Partitions = append(res.Partitions, l)
	}
	done(res)
}

func (f *fakeGroups) DeleteGroup(name string, done func(error)) {
	f.note(name)
	go done(f.err)
}

func (f *fakeGroups) DescribeGroup(name string, done func(*group.GroupDescription)) {
	f.note(name)
	res := f.described
	res.Group, res.Err = name, f.err
	done(&res)
}

func (f *fakeGroups) DescribeConsumerGroup(name string, done func(*group.ConsumerGroupDescription)) {
	f.note(name)
	res := f.consumers
	res.Group, res.Err = name, f.err
	go done(&res)
}

func (f *fakeGroups) ListGroups(r group.Filter) *group.ListGroupsResponse {
	f.note(r)
	return &group.ListGroupsResponse{Err: f.err, Groups: f.listed}
}

package api

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/group"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/protocol"
)

// wants says which codes clients know what to do at, by key, beside 0, 14, 15 and 16.
var wants = map[int16][]int16{
	8:  {3, 12, 22, 24, 25, 27, 28, 35, 69, 82, 100, 113},
	9:  {24, 25, 42, 69, 100, 113},
	11: {23, 24, 25, 26, 27, 42, 79, 81, 82},
	12: {22, 24, 25, 27, 82},
	13: {24, 25, 82},
	14: {22, 23, 24, 25, 27, 42, 82},
	15: {24, 42, 69},
	16: {},
	42: {24, 68, 69},
	47: {3, 24, 68, 69, 86},
	68: {24, 25, 35, 42, 69, 81, 82, 110, 111, 112, 128},
	69: {24, 35, 42, 69},
}

// errorCodes finds every error code in an answer.
func errorCodes(v reflect.Value) (codes []int16) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return errorCodes(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			codes = append(codes, errorCodes(v.Index(i))...)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.Name == "ErrorCode" {
				codes = append(codes, int16(v.Field(i).Int()))
			} else if f.IsExported() {
				codes = append(codes, errorCodes(v.Field(i))...)
			}
		}
	}
	return codes
}

func groupRequest(key int16, id metadata.TopicID) kmsg.Request {
	req := kmsg.RequestForKey(key)
	reflect.ValueOf(req).MethodByName("Default").Call(nil)
	kind := "consumer"
	switch r := req.(type) {
	case *kmsg.OffsetCommitRequest:
		r.Group = "g"
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		missing := p
		missing.Partition = 7
		r.Topics = []kmsg.OffsetCommitRequestTopic{
			{Topic: "none", TopicID: [16]byte{9}, Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}},
			{Topic: "t", TopicID: id, Partitions: []kmsg.OffsetCommitRequestTopicPartition{missing, p}},
		}
	case *kmsg.OffsetFetchRequest:
		r.Group = "g"
		r.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{0}}}
		r.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "g", MemberEpoch: -1, Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", TopicID: id, Partitions: []int32{0}}}}, {Group: "h"}}
	case *kmsg.JoinGroupRequest:
		r.Group, r.MemberID, r.ProtocolType = "g", "m", "consumer"
		r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 10_000, 20_000
		r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte("meta")}}
	case *kmsg.SyncGroupRequest:
		r.Group, r.MemberID, r.ProtocolType, r.Protocol = "g", "m", &kind, text("range")
		r.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: "m", MemberAssignment: []byte("part")}}
	case *kmsg.LeaveGroupRequest:
		r.Group, r.MemberID, r.Members = "g", "m", []kmsg.LeaveGroupRequestMember{{MemberID: "m"}, {InstanceID: text("i"), Reason: text("tired")}}
	case *kmsg.DescribeGroupsRequest:
		r.Groups, r.IncludeAuthorizedOperations = []string{"g", "h"}, true
	case *kmsg.ConsumerGroupDescribeRequest:
		r.Groups, r.IncludeAuthorizedOperations = []string{"g", "h"}, true
	case *kmsg.DeleteGroupsRequest:
		r.Groups = []string{"g", "h", "g"}
	case *kmsg.OffsetDeleteRequest:
		r.Group = "g"
		part := []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}
		r.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: "none", Partitions: part}, {Topic: "t", Partitions: part}}
	}
	return req
}

// Whatever goes wrong in a coordinator, each key answers a code that its clients know, in every version; and each error of package group has
// a code.
func TestCatalogue46_CodesOfGroups(t *testing.T) {
	var all []error
	for _, c := range codes {
		all = append(all, c.err)
	}
	all = append(all, errors.New("something else"), context.Canceled, fmt.Errorf("around: %w", group.ErrMaxSize))
	for key, want := range wants {
		slices.Sort(groupCodes[key])
		if d := cmp.Diff(want, groupCodes[key]); d != "" {
			t.Errorf("key %d: %s", key, d)
		}
		allowed := append([]int16{0, 14, 15, 16}, want...)
		each(t, key, func(t *testing.T, w *world, v int16) {
			id := w.topic("t", 1)
			for _, err := range all {
				for _, whole := range []bool{true, false} {
					w.groups.err, w.groups.item = err, err
					if !whole {
						w.groups.err = nil
					}
					req := groupRequest(key, id)
					for _, code := range errorCodes(reflect.ValueOf(ask[kmsg.Response](w, req, v))) {
						if !slices.Contains(allowed, code) {
							t.Errorf("%s answers %d to %v", kmsg.NameForKey(key), code, err)
						}
					}
				}
			}
		})
	}
	if len(groupCodes) != len(wants) {
		t.Errorf("%d keys have codes, %d are known", len(groupCodes), len(wants))
	}
}

func TestEveryErrorOfGroupsHasACode(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../group/group.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	sentinels := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(v.Names[0].Name, "Err") {
			sentinels++
		}
		return true
	})
	mapped := 0
	for _, c := range codes {
		if strings.HasPrefix(c.err.Error(), "group: ") {
			mapped++
		}
	}
	equal(t, "errors with a code", mapped, sentinels)
}

// A group is looked for at the live broker that its shard belongs to, and nowhere else.
func TestFindCoordinator(t *testing.T) {
	each(t, 10, func(t *testing.T, w *world, v int16) {
		find := func(kind int8, names ...string) string {
			r := &kmsg.FindCoordinatorRequest{CoordinatorKey: names[0], CoordinatorKeys: names, CoordinatorType: kind}
			resp := ask[*kmsg.FindCoordinatorResponse](w, r, v)
			told := func(code int16, node int32, host string, port int32, why *string) string {
				if v > 0 && (why == nil || (*why == "NONE") != (code == 0)) {
					t.Errorf("code %d, message %v", code, why)
				}
				return words(code, node, host, port)
			}
			if v < 4 {
				return told(resp.ErrorCode, resp.NodeID, resp.Host, resp.Port, resp.ErrorMessage)
			}
			equal(t, "keys", len(resp.Coordinators), len(names))
			for i, x := range resp.Coordinators {
				equal(t, "of", x.Key, names[i])
			}
			x := resp.Coordinators[0]
			return told(x.ErrorCode, x.NodeID, x.Host, x.Port, x.ErrorMessage)
		}
		if v == 0 { // which cannot say why
			w.apply(metadata.ShardAssigned{Shard: metadata.ShardOf("a"), Owner: 1})
			equal(t, "owner", find(0, "a"), "0 1 localhost 9092")
			return
		}
		equal(t, "nobody", find(0, "a"), "15 -1  -1")
		w.apply(metadata.ShardAssigned{Shard: metadata.ShardOf("a"), Owner: 1})
		equal(t, "owner", find(0, "a", "", "a"), "0 1 localhost 9092")
		equal(t, "another shard", find(0, "b"), "15 -1  -1")
		b, _ := w.Image().Broker(1)
		w.apply(metadata.BrokerFenced{ID: 1, Epoch: b.Epoch, Fenced: true})
		equal(t, "fenced", find(0, "a"), "15 -1  -1")
		equal(t, "transactions", find(1, "a"), "53 -1  -1")
		share := "42 -1  -1"
		if v >= 6 {
			share = "35 -1  -1"
		}
		equal(t, "share groups", find(2, "a"), share)
		equal(t, "unknown kind", find(-1, "a"), "42 -1  -1")
	})
}

// What clients ask reaches the coordinator with the meaning that their version gives it.
func TestGroupRequests(t *testing.T) {
	for key := range wants {
		each(t, key, func(t *testing.T, w *world, v int16) {
			id := w.topic("t", 1)
			ask[kmsg.Response](w, groupRequest(key, id), v)
			switch r := w.groups.got[0].(type) {
			case *group.CommitOffsetsRequest:
				equal(t, "commit", words(r.Version, r.Group, r.Generation, r.Retention), words(v, "g", -1, time.Duration(-1)))
				o := group.CommitOffset{Topic: "t", TopicID: id, LeaderEpoch: -1}
				if d := cmp.Diff([]group.CommitOffset{o}, r.Offsets); d != "" {
					t.Error(d)
				}
			case *group.FetchOffsetsRequest:
				want := &group.FetchOffsetsRequest{Group: "g", MemberEpoch: -1, Topics: []group.FetchTopic{{Topic: "t", TopicID: id, Partitions: []int32{0}}}}
				if d := cmp.Diff(want, r); d != "" {
					t.Error(d)
				}
				if v >= 8 && !w.groups.got[1].(*group.FetchOffsetsRequest).All {
					t.Error("no list of topics means all")
				}
			case *group.JoinGroupRequest:
				rebalance := 20 * time.Second
				if v == 0 {
					rebalance = 10 * time.Second
				}
				want := &group.JoinGroupRequest{
					Group: "g", MemberID: "m", ClientID: "test", ClientHost: "/127.0.0.1", SessionTimeout: 10 * time.Second, RebalanceTimeout: rebalance,
					ProtocolType: "consumer", Protocols: []group.Protocol{{Name: "range", Metadata: []byte("meta")}}, RequireKnownID: v >= 4, CanSkipAssignment: v >= 9,
				}
				if d := cmp.Diff(want, r); d != "" {
					t.Error(d)
				}
			case *group.LeaveGroupRequest:
				n := 1
				if v >= 3 {
					n = 2
				}
				equal(t, "members", len(r.Members), n)
				if v >= 5 {
					equal(t, "reason", r.Members[1].Reason, "tired")
				}
			}
		})
	}
}

// The group without a name is one as others where it was one in old versions, and none of the consumer protocol.
func TestGroupsWithoutAName(t *testing.T) {
	each(t, 69, func(t *testing.T, w *world, v int16) {
		g := ask[*kmsg.ConsumerGroupDescribeResponse](w, &kmsg.ConsumerGroupDescribeRequest{Groups: []string{"", "g"}}, v).Groups
		equal(t, "codes", words(g[0].ErrorCode, g[0].ErrorMessage == nil, g[1].ErrorCode, len(w.groups.got)), "24 true 0 1")
	})
	each(t, 15, func(t *testing.T, w *world, v int16) {
		ask[*kmsg.DescribeGroupsResponse](w, &kmsg.DescribeGroupsRequest{Groups: []string{"", "g"}}, v)
		equal(t, "asked for", words(len(w.groups.got), w.groups.got[1]), "2 g")
	})
}

// An answer that waits is given up when the connection ends, and not after it was given.
func TestJoinGroupOfAClientThatLeaves(t *testing.T) {
	w := newWorld(t)
	for _, before := range []bool{true, false} {
		w.groups = fakeGroups{hold: true, left: make(chan struct{}, 1)}
		ctx, cancel := context.WithCancel(t.Context())
		s := &sink{got: make(chan Answer, 1)}
		req := groupRequest(11, metadata.TopicID{})
		req.SetVersion(9)
		c := &Call{Key: 11, Version: 9, Frame: formatter.AppendRequest(nil, req, 42)[4:], Conn: &Conn{Listener: "PLAINTEXT", Remote: "[::1]:5"}, Ctx: ctx, To: s}
		w.api.Serve(c)
		if before {
			w.groups.held[0]()
			s.wait(t)
		}
		cancel()
		want := 0
		if !before {
			want = 1
			select {
			case <-w.groups.left:
			case <-time.After(5 * time.Second):
				t.Fatal("nobody was told")
			}
			w.groups.held[0]()
		}
		equal(t, "told", w.groups.gone(), want)
		equal(t, "host", w.groups.got[0].(*group.JoinGroupRequest).ClientHost, "/0:0:0:0:0:0:0:1")
	}
}

func TestGroupAnswers(t *testing.T) {
	kind, name := "consumer", "range"
	each(t, 11, func(t *testing.T, w *world, v int16) {
		w.groups.joined = group.JoinGroupResponse{
			Generation: 3, ProtocolType: &kind, Protocol: &name, Leader: "l", MemberID: "l", Members: []group.JoinedMember{{MemberID: "l", Metadata: []byte("x")}},
		}
		r := ask[*kmsg.JoinGroupResponse](w, groupRequest(11, metadata.TopicID{}), v)
		equal(t, "joined", words(r.ErrorCode, r.Generation, *r.Protocol, r.LeaderID, r.MemberID, len(r.Members), string(r.Members[0].ProtocolMetadata)), "0 3 range l l 1 x")
		w.groups.joined = group.JoinGroupResponse{Err: group.ErrMemberIDRequired, MemberID: "new"}
		r = ask[*kmsg.JoinGroupResponse](w, groupRequest(11, metadata.TopicID{}), v)
		equal(t, "needs an id", words(r.ErrorCode, r.Generation, r.LeaderID, r.MemberID, len(r.Members), r.Protocol == nil), words(79, -1, "", "new", 0, v >= 7))
	})
	each(t, 14, func(t *testing.T, w *world, v int16) {
		r := ask[*kmsg.SyncGroupResponse](w, &kmsg.SyncGroupRequest{}, v)
		want := int16(0)
		if v >= 5 {
			want = 23
		}
		equal(t, "without a protocol", r.ErrorCode, want)
		w.groups.synced = group.SyncGroupResponse{ProtocolType: &kind, Protocol: &name, Assignment: []byte("mine")}
		r = ask[*kmsg.SyncGroupResponse](w, groupRequest(14, metadata.TopicID{}), v)
		equal(t, "synced", words(r.ErrorCode, string(r.MemberAssignment), r.Protocol != nil), words(0, "mine", v >= 5))
	})
	each(t, 12, func(t *testing.T, w *world, v int16) {
		w.groups.err = group.ErrLoading
		equal(t, "loading", ask[*kmsg.HeartbeatResponse](w, groupRequest(12, metadata.TopicID{}), v).ErrorCode, 0)
	})
	each(t, 13, func(t *testing.T, w *world, v int16) {
		w.groups.item = group.ErrUnknownMember
		r := ask[*kmsg.LeaveGroupResponse](w, groupRequest(13, metadata.TopicID{}), v)
		got := words(r.ErrorCode, len(r.Members))
		if v < 3 {
			equal(t, "one", got, "25 0")
			return
		}
		w.groups.err = group.ErrUnknownMember
		none := ask[*kmsg.LeaveGroupResponse](w, groupRequest(13, metadata.TopicID{}), v)
		equal(t, "of no group", words(none.ErrorCode, len(none.Members), none.Members[1].ErrorCode), "0 2 25")
		equal(t, "several", got+" "+words(r.Members[0].ErrorCode, *r.Members[1].InstanceID), "0 2 25 i")
	})
	each(t, 15, func(t *testing.T, w *world, v int16) {
		w.groups.err = group.ErrGroupNotFound
		g := ask[*kmsg.DescribeGroupsResponse](w, groupRequest(15, metadata.TopicID{}), v).Groups[1]
		want := "0 h Dead"
		if v >= 6 {
			want = "69 h Dead"
		}
		equal(t, "missing", words(g.ErrorCode, g.Group, g.State), want)
		w.groups.err, w.groups.described = nil, group.GroupDescription{State: "Stable", ProtocolType: kind, Protocol: name, Members: []group.MemberDescription{{MemberID: "m", ClientID: "c", ClientHost: "/h", Metadata: []byte("a")}}}
		g = ask[*kmsg.DescribeGroupsResponse](w, groupRequest(15, metadata.TopicID{}), v).Groups[0]
		equal(t, "described", words(g.ErrorCode, g.State, g.ProtocolType, g.Protocol, len(g.Members), g.Members[0].ClientHost, g.Members[0].MemberAssignment == nil), "0 Stable consumer range 1 /h false")
	})
}

func TestOffsetAnswers(t *testing.T) {
	each(t, 8, func(t *testing.T, w *world, v int16) {
		id := w.topic("t", 1)
		missing := int16(3)
		if v >= 10 {
			missing = 100
		}
		for _, c := range []struct {
			whole, item error
			want        int16
		}{{nil, nil, 0}, {group.ErrIllegalGeneration, nil, 22}, {nil, group.ErrMetadataTooLarge, 12}, {group.ErrTooLarge, nil, 28}} {
			w.groups.err, w.groups.item = c.whole, c.item
			r := ask[*kmsg.OffsetCommitResponse](w, groupRequest(8, id), v)
			got := words(r.Topics[0].Partitions[0].ErrorCode, r.Topics[1].Partitions[0].ErrorCode, r.Topics[1].Partitions[1].ErrorCode)
			equal(t, "codes", got, words(missing, 3, c.want))
		}
		w.groups.got = nil
		req := groupRequest(8, id).(*kmsg.OffsetCommitRequest)
		req.Topics = req.Topics[:1]
		ask[*kmsg.OffsetCommitResponse](w, req, v)
		equal(t, "asked about nothing", len(w.groups.got), 0)
		req = groupRequest(8, id).(*kmsg.OffsetCommitRequest)
		req.RetentionTimeMillis = math.MaxInt64
		ask[*kmsg.OffsetCommitResponse](w, req, v)
		if got := w.groups.got[0].(*group.CommitOffsetsRequest).Retention; (v <= 4) != (got > 1000*time.Hour) || v > 4 && got != -1 {
			t.Errorf("retention %v", got)
		}
	})
	each(t, 9, func(t *testing.T, w *world, v int16) {
		id := w.topic("t", 1)
		w.groups.fetched = []group.FetchedTopic{{Topic: "t", TopicID: id, Partitions: []group.FetchedOffset{{Partition: 0, Offset: 5, LeaderEpoch: 2, Metadata: "x"}}}}
		r := ask[*kmsg.OffsetFetchResponse](w, groupRequest(9, id), v)
		if v < 8 {
			p := r.Topics[0].Partitions[0]
			equal(t, "fetched", words(r.Topics[0].Topic, p.Offset, *p.Metadata, p.ErrorCode), "t 5 x 0")
			w.groups.err = group.ErrNotCoordinator
			r = ask[*kmsg.OffsetFetchResponse](w, groupRequest(9, id), v)
			if v < 2 {
				p = r.Topics[0].Partitions[0]
				equal(t, "elsewhere", words(p.Offset, *p.Metadata, p.ErrorCode), "-1  16")
			} else {
				equal(t, "elsewhere", words(len(r.Topics), r.ErrorCode), "0 16")
			}
			return
		}
		equal(t, "groups", words(len(r.Groups), r.Groups[1].Group, r.Groups[1].Topics[0].Partitions[0].Offset), "2 h 5")
		if v >= 10 {
			req := groupRequest(9, metadata.TopicID{9})
			r = ask[*kmsg.OffsetFetchResponse](w, req, v)
			p := r.Groups[0].Topics[0].Partitions[0]
			equal(t, "unknown id", words(p.Offset, p.LeaderEpoch, *p.Metadata, p.ErrorCode), "-1 -1  100")
		}
	})
}

func TestOffsetDeleteAnswers(t *testing.T) {
	w := newWorld(t)
	id := w.topic("t", 2)
	part := func(l ...int32) (all []kmsg.OffsetDeleteRequestTopicPartition) {
		for _, p := range l {
			all = append(all, kmsg.OffsetDeleteRequestTopicPartition{Partition: p})
		}
		return all
	}
	req := &kmsg.OffsetDeleteRequest{Group: "g", Topics: []kmsg.OffsetDeleteRequestTopic{{Topic: "none", Partitions: part(0)}, {Topic: "t", Partitions: part(7, 0, -1, 1)}}}
	w.groups.item = group.ErrSubscribedTopic
	r := ask[*kmsg.OffsetDeleteResponse](w, req, 0)
	var got []any
	for i := range r.Topics {
		for _, p := range r.Topics[i].Partitions {
			got = append(got, p.Partition, p.ErrorCode)
		}
	}
	equal(t, "codes", words(got...), "0 3 7 3 0 86 -1 3 1 86")
	want := []group.FetchTopic{{Topic: "t", TopicID: id, Partitions: []int32{0, 1}}}
	if d := cmp.Diff(want, w.groups.got[0].(*group.DeleteOffsetsRequest).Topics); d != "" {
		t.Error(d)
	}
	w.groups.err = group.ErrGroupNotFound
	req.Topics = req.Topics[:1]
	r = ask[*kmsg.OffsetDeleteResponse](w, req, 0)
	equal(t, "no group", words(r.ErrorCode, len(r.Topics)), "69 0")
	req.Group = ""
	equal(t, "no name", ask[*kmsg.OffsetDeleteResponse](w, req, 0).ErrorCode, 24)
}

// A request that names one large group many times is answered within a bound.
func TestAnswersOfGroupsAreBounded(t *testing.T) {
	w := newWorld(t)
	w.groups.described.Members = []group.MemberDescription{{Metadata: make([]byte, 8<<20)}}
	req := &kmsg.DescribeGroupsRequest{Groups: slices.Repeat([]string{"g"}, 1000)}
	r := ask[*kmsg.DescribeGroupsResponse](w, req, 6)
	equal(t, "described, and refused", words(r.Groups[3].ErrorCode, r.Groups[4].ErrorCode, r.Groups[999].ErrorCode), "0 42 42")
	w.groups.fetched = []group.FetchedTopic{{Topic: "t", Partitions: make([]group.FetchedOffset, 200_000)}}
	all := &kmsg.OffsetFetchRequest{Groups: make([]kmsg.OffsetFetchRequestGroup, 1000)}
	f := ask[*kmsg.OffsetFetchResponse](w, all, 9)
	equal(t, "fetched, and refused", words(f.Groups[2].ErrorCode, f.Groups[3].ErrorCode, f.Groups[999].ErrorCode), "0 42 42")
}

// A million topics in one request end the connection before they take the memory.
func TestAMillionTopics(t *testing.T) {
	commit := &kmsg.OffsetCommitRequest{Group: "g", Topics: make([]kmsg.OffsetCommitRequestTopic, 2_000_000)}
	fetch := &kmsg.OffsetFetchRequest{Groups: []kmsg.OffsetFetchRequestGroup{{Group: "g", Topics: make([]kmsg.OffsetFetchRequestGroupTopic, 2_000_000)}}}
	remove := &kmsg.OffsetDeleteRequest{Group: "g", Topics: make([]kmsg.OffsetDeleteRequestTopic, 1_000_000)}
	for _, c := range []struct {
		req     kmsg.Request
		version int16
	}{{commit, 8}, {fetch, 8}, {remove, 0}} {
		w := newWorld(t)
		_, s := w.begin(c.req, c.version)
		if a := s.wait(t); !errors.Is(a.Close, protocol.ErrTooCostly) {
			t.Errorf("key %d: %v", c.req.Key(), a.Close)
		}
		equal(t, "requests", len(w.groups.got), 0)
	}
}

// What a member brings and the metadata log cannot hold is refused before it waits for others, and what waits holds none of the memory that
// requests share.
func TestLargeMembers(t *testing.T) {
	w := newWorld(t)
	large := make([]byte, 2<<20)
	join := groupRequest(11, metadata.TopicID{}).(*kmsg.JoinGroupRequest)
	join.Protocols[0].Metadata = large
	equal(t, "join", ask[*kmsg.JoinGroupResponse](w, join, 9).ErrorCode, 42)
	sync := groupRequest(14, metadata.TopicID{}).(*kmsg.SyncGroupRequest)
	sync.GroupAssignment[0].MemberAssignment = large
	equal(t, "sync", ask[*kmsg.SyncGroupResponse](w, sync, 5).ErrorCode, 42)
	equal(t, "reached the coordinator", len(w.groups.got), 0)
	join.Protocols = make([]kmsg.JoinGroupRequestProtocol, maxProtocols+1)
	equal(t, "many protocols", ask[*kmsg.JoinGroupResponse](w, join, 9).ErrorCode, 42)
	free := false
	w.groups.syncs = func() {
		if free = w.api.room.TryAcquire(w.api.capacity); free {
			w.api.room.Release(w.api.capacity)
		}
	}
	sync.GroupAssignment = make([]kmsg.SyncGroupRequestGroupAssignment, 40_000)
	equal(t, "many parts", ask[*kmsg.SyncGroupResponse](w, sync, 5).ErrorCode, 0)
	equal(t, "the room is free", free, true)
}

func TestInTurn(t *testing.T) {
	const n = 300_000 // deep enough to end the process if each step nested
	var wg sync.WaitGroup
	wg.Add(1)
	at, ended := 0, false
	inTurn(n, func(i int, next func()) {
		if i != at {
			panic("out of turn")
		}
		at++
		if i%1000 == 0 {
			go next()
		} else {
			next()
		}
	}, func() { ended = true; wg.Done() })
	wg.Wait()
	equal(t, "steps", words(at, ended), words(n, true))
	inTurn(0, nil, func() { at = -1 })
	equal(t, "none", at, -1)
}

package interop

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// rawMember is a member of a classic group that sends requests by itself, on connections of its own.
type rawMember struct {
	t          *testing.T
	c          *kgo.Client
	group, id  string
	generation int32
	topic      kadm.TopicID
}

func newRawMember(t *testing.T, seeds, group string) *rawMember {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(seeds, ",")...), kgo.DialTimeout(time.Second), kgo.RequestTimeoutOverhead(time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }), kgo.AlwaysRetryEOF(), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &rawMember{t: t, c: c, group: group}
}

// join joins, with its id when it has one, and returns the answer of who leads, or nil.
func (m *rawMember) join(ctx context.Context, data string) (*kmsg.JoinGroupResponse, error) {
	for {
		req := kmsg.NewPtrJoinGroupRequest()
		req.Group, req.MemberID, req.ProtocolType = m.group, m.id, "test"
		req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 20_000, 20_000
		req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "p", Metadata: []byte(data)}}
		resp, err := req.RequestWith(ctx, m.c)
		if err != nil {
			return nil, err
		}
		m.id = resp.MemberID
		if resp.ErrorCode == kerr.MemberIDRequired.Code {
			continue
		}
		m.generation = resp.Generation
		return resp, kerr.ErrorForCode(resp.ErrorCode)
	}
}

func (m *rawMember) sync(ctx context.Context, joined *kmsg.JoinGroupResponse) error {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.Generation, req.ProtocolType, req.Protocol = m.group, m.id, m.generation, joined.ProtocolType, joined.Protocol
	for _, other := range joined.Members {
		req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: other.MemberID, MemberAssignment: []byte(other.MemberID)})
	}
	resp, err := req.RequestWith(ctx, m.c)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err == nil && string(resp.MemberAssignment) != m.id {
		err = fmt.Errorf("member %s was given %q", m.id, resp.MemberAssignment)
	}
	return err
}

// commit commits until it is acknowledged, as the generation that the member has; it is no other one's affair to give it another.
func (m *rawMember) commit(ctx context.Context, topic string, offset int64) error {
	for {
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Group, req.MemberID, req.Generation = m.group, m.id, m.generation
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Offset = offset
		req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: topic, TopicID: m.topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{rp}}}
		try, cancel := context.WithTimeout(ctx, time.Second)
		resp, err := req.RequestWith(try, m.c)
		cancel()
		if err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
		}
		if err == nil || errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.UnknownMemberID) {
			return err
		}
		select {
		case <-ctx.Done():
			return err // the last one
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// TestHundredMembers lets a hundred members rejoin at once. How long they take until all are synced is told.
func TestHundredMembers(t *testing.T) {
	const members = 100
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	all := make([]*rawMember, members)
	for i := range all {
		all[i] = newRawMember(t, addr, fmt.Sprintf("hundred.%d", time.Now().Unix()))
		all[i].group = all[0].group
	}
	round := func(data string) time.Duration {
		began := time.Now()
		var wg sync.WaitGroup
		for _, m := range all {
			wg.Go(func() {
				for ctx.Err() == nil {
					joined, err := m.join(ctx, data)
					if err == nil {
						err = m.sync(ctx, joined)
					}
					if err == nil {
						return
					}
					if err != kerr.RebalanceInProgress {
						t.Errorf("member %s: %v", m.id, err)
						return
					}
				}
			})
		}
		wg.Wait()
		return time.Since(began)
	}
	t.Logf("the first time, an initial delay of 3 s or more included: %s", round("a"))
	for i := range 3 {
		before := all[0].generation
		took := round(fmt.Sprint("b", i))
		t.Logf("all %d members rejoined and synced in %s", members, took)
		for _, m := range all {
			if m.generation != all[0].generation || m.generation == before {
				t.Fatalf("generations %d and %d after %d", m.generation, all[0].generation, before)
			}
		}
	}
}

// TestGroupsFailOver kills the coordinator of a group, and the leader of the metadata log: the member goes on in its generation, and nothing that
// was committed is lost. How long commits were not answered is told.
func TestGroupsFailOver(t *testing.T) {
	c := newCluster(t)
	c.run(0, "topic", "create", "orders", "-p", "1")
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
	defer cancel()
	m := newRawMember(t, c.addresses(), "g")
	joined, err := m.join(ctx, "x")
	if err == nil {
		err = m.sync(ctx, joined)
	}
	if err != nil {
		t.Fatal(err)
	}
	admin := kadm.NewClient(m.c)
	topics, err := admin.ListTopics(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	m.topic = topics["orders"].ID
	offset := int64(0)
	next := func() time.Duration {
		t.Helper()
		offset++
		began := time.Now()
		if err := m.commit(ctx, "orders", offset); err != nil {
			t.Fatalf("commit %d: %v", offset, err)
		}
		return time.Since(began)
	}
	coordinator := func() int {
		t.Helper()
		found := admin.FindGroupCoordinators(ctx, "g")
		return int(found["g"].NodeID)
	}
	leader := func() int {
		t.Helper()
		s := regexp.MustCompile(`metadata  leader: node (\d)`).FindStringSubmatch(c.run(0, "cluster", "info"))
		if s == nil {
			t.Fatal("no leader of the metadata")
		}
		id, _ := strconv.Atoi(s[1])
		return id
	}
	fail := func(what string, id int) {
		t.Helper()
		next()
		c.kill(id)
		longest := time.Duration(0)
		for end := time.Now().Add(6 * time.Second); time.Now().Before(end); {
			longest = max(longest, next())
		}
		t.Logf("kill -9 of %s: no commit was acknowledged for %s", what, longest)
		fetched, err := admin.FetchOffsets(ctx, "g")
		if err != nil {
			t.Fatal(err)
		}
		if o, _ := fetched.Lookup("orders", 0); o.At != offset {
			t.Errorf("committed %d, want %d", o.At, offset)
		}
		c.start(id)
		c.well()
	}
	both := func(what string) string {
		if leader() == coordinator() {
			return what + ", who is the other one too"
		}
		return what
	}
	fail(both("the coordinator"), coordinator())
	fail(both("the leader of the metadata log"), leader())
}

package group

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keeplog/keeplog/metadata"
)

// errOf asks and waits for the answer's error.
func errOf[T any](t testing.TB, call func(done func(*T)), err func(*T) error) error {
	t.Helper()
	answer := make(chan *T, 1)
	call(func(r *T) { answer <- r })
	synctest.Wait()
	select {
	case r := <-answer:
		return err(r)
	default:
		t.Fatal("no answer")
		return nil
	}
}

func commitOne(t testing.TB, n *node, group string, offset int64) error {
	t.Helper()
	return errOf(t, func(done func(*CommitOffsetsResponse)) { n.CommitOffsets(oneCommit(group, offset), done) },
		func(r *CommitOffsetsResponse) error { return r.Err })
}

func oneCommit(group string, offset int64) *CommitOffsetsRequest {
	return &CommitOffsetsRequest{
		Group: group, Generation: -1, Retention: -1,
		Offsets: []CommitOffset{{Topic: "orders", TopicID: topicNamed("orders"), Offset: offset, LeaderEpoch: -1}},
	}
}

// fetchOne is -2 when an error came.
func fetchOne(t testing.TB, n *node, group string) (int64, error) {
	t.Helper()
	offset := int64(-2)
	err := errOf(t, func(done func(*FetchOffsetsResponse)) {
		n.FetchOffsets(&FetchOffsetsRequest{Group: group, MemberEpoch: -1, Topics: []FetchTopic{{"orders", topicNamed("orders"), []int32{0}}}}, done)
	}, func(r *FetchOffsetsResponse) error {
		if r.Err == nil {
			offset = r.Topics[0].Partitions[0].Offset
		}
		return r.Err
	})
	return offset, err
}

func joinOld(n *node, group string, done func(*JoinGroupResponse)) {
	n.JoinGroup(&JoinGroupRequest{
		Group: group, SessionTimeout: 10 * time.Second, RebalanceTimeout: 10 * time.Second, ProtocolType: "consumer", Protocols: []Protocol{{"range", nil}},
	}, done)
}

func inWorld(t *testing.T, nodes int, f func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nodes)
		defer w.close()
		w.topic("orders", 4)
		f(t, w)
	})
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if got != want { //nolint:errorlint // the coordinator gives its sentinels as they are
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// A coordinator whose lease is over answers nothing; one that has just got a shard waits until it was heard of since.
func TestLease(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		n := w.nodes[0]
		wantErr(t, "commit", commitOne(t, n, "g", 1), nil)
		sent := time.Now()
		n.setLease(func() (time.Time, bool) { return sent, false })
		wantErr(t, "commit past the lease", commitOne(t, n, "g", 2), ErrNotCoordinator)
		_, err := fetchOne(t, n, "g")
		wantErr(t, "fetch past the lease", err, ErrNotCoordinator)
		wantErr(t, "list past the lease", n.ListGroups(Filter{}).Err, ErrNotAvailable)
		wantErr(t, "list of a broker without groups", w.nodes[1].ListGroups(Filter{}).Err, nil)

		second := w.nodes[1]
		second.setLease(func() (time.Time, bool) { return sent, true })
		time.Sleep(time.Second)
		w.move(2)
		_, err = fetchOne(t, second, "g")
		wantErr(t, "fetch before the lease is renewed", err, ErrLoading)
		beat := errOf(t, func(done func(*HeartbeatResponse)) {
			second.Heartbeat(&HeartbeatRequest{Group: "g", MemberID: "m"}, done)
		},
			func(r *HeartbeatResponse) error { return r.Err })
		wantErr(t, "heartbeat before the lease is renewed", beat, nil)
		wantErr(t, "list", second.ListGroups(Filter{}).Err, ErrLoading)
		second.setLease(func() (time.Time, bool) { return time.Now(), true })
		if at, err := fetchOne(t, second, "g"); at != 1 || err != nil {
			t.Errorf("fetched %d, %v", at, err)
		}
	})
}

// A coordinator that has not heard yet that its shard is another's can commit nothing any more; those who wait there are told.
func TestOldCoordinator(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		first, second := w.nodes[0], w.nodes[1]
		wantErr(t, "commit", commitOne(t, first, "g", 1), nil)
		var joined *JoinGroupResponse
		joinOld(first, "other-of-the-shard", func(r *JoinGroupResponse) { joined = r })
		if metadata.ShardOf("other-of-the-shard") != metadata.ShardOf("g") {
			joinOld(first, sameShard("g"), func(r *JoinGroupResponse) { joined = r })
		}
		first.setLag(time.Hour)
		w.move(2)
		wantErr(t, "commit at the old coordinator", commitOne(t, first, "g", 5), ErrNotCoordinator)
		if joined == nil || joined.Err != ErrNotCoordinator { //nolint:errorlint // as above
			t.Errorf("who waited got %+v", joined)
		}
		wantErr(t, "commit again", commitOne(t, first, "g", 6), ErrNotCoordinator)
		if at, err := fetchOne(t, second, "g"); at != 1 || err != nil {
			t.Errorf("the new coordinator has %d, %v", at, err)
		}
		wantErr(t, "commit at the new coordinator", commitOne(t, second, "g", 7), nil)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		_, err := fetchOne(t, first, "g")
		wantErr(t, "fetch at the old coordinator", err, ErrNotCoordinator)
		// And back again.
		first.setLag(0)
		w.move(1)
		if at, err := fetchOne(t, first, "g"); at != 7 || err != nil {
			t.Errorf("the first coordinator has %d, %v", at, err)
		}
	})
}

// sameShard is another group of a group's shard.
func sameShard(group string) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf("%s-%d", group, i); metadata.ShardOf(name) == metadata.ShardOf(group) {
			return name
		}
	}
}

// What is committed is read at once, also where this broker's tables come later.
func TestReadsItsOwnCommits(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		n := w.nodes[0]
		wantErr(t, "commit", commitOne(t, n, "g", 1), nil)
		n.setLag(3 * time.Second)
		want := func(at int64) {
			t.Helper()
			if got, err := fetchOne(t, n, "g"); got != at || err != nil {
				t.Errorf("fetched %d, %v, want %d", got, err, at)
			}
		}
		wantErr(t, "commit", commitOne(t, n, "g", 2), nil)
		want(2)
		wantErr(t, "commit of a new group", commitOne(t, n, "h", 2), nil)
		if got := len(n.ListGroups(Filter{}).Groups); got != 2 {
			t.Errorf("%d groups", got)
		}
		del := errOf(t, func(done func(*error)) { n.DeleteGroup("g", func(err error) { done(&err) }) }, func(err *error) error { return *err })
		wantErr(t, "delete", del, nil)
		want(-1)
		if got := len(n.ListGroups(Filter{}).Groups); got != 1 {
			t.Errorf("%d groups after one was deleted", got)
		}
		wantErr(t, "commit", commitOne(t, n, "g", 9), nil)
		want(9)
		off := errOf(t, func(done func(*DeleteOffsetsResponse)) {
			n.DeleteOffsets(&DeleteOffsetsRequest{Group: "g", Topics: []FetchTopic{{"orders", topicNamed("orders"), []int32{0}}}}, done)
		}, func(r *DeleteOffsetsResponse) error { return r.Err })
		wantErr(t, "delete offsets", off, nil)
		want(-1)
		wantErr(t, "commit", commitOne(t, n, "g", 11), nil)
		for range 12 {
			time.Sleep(500 * time.Millisecond)
			want(11)
		}
		turn, g, err := n.open("g")
		if err != nil || !g.overlay.empty() {
			t.Errorf("the overlay is not empty: %v %+v", err, g)
		}
		turn.end()
	})
}

// Closing answers everybody, and nothing is left running (the bubble sees to that).
func TestClose(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		n := w.nodes[0]
		var joined *JoinGroupResponse
		joinOld(n, "g", func(r *JoinGroupResponse) { joined = r })
		w.latency.Store(int64(time.Hour))
		var committed *CommitOffsetsResponse
		n.CommitOffsets(oneCommit("h", 1), func(r *CommitOffsetsResponse) { committed = r })
		n.Close()
		if joined == nil || joined.Err != ErrNotCoordinator || committed == nil || committed.Err != ErrNotCoordinator { //nolint:errorlint // as above
			t.Errorf("%+v, %+v", joined, committed)
		}
		wantErr(t, "commit after the end", commitOne(t, n, "g", 1), ErrNotCoordinator)
	})
}

// Every answer has its limit: bytes that wait to be committed, and members.
func TestLimits(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		n := w.nodes[0]
		n.o.Limits = Limits{Members: 1 << 20, Pending: 1 << 20}
		w.latency.Store(int64(time.Second))
		var mu sync.Mutex
		answers := map[error]int{}
		for i := range 40 {
			r := oneCommit(fmt.Sprintf("g%d", i), 1)
			r.Offsets = nil
			for p := range 4 {
				r.Offsets = append(r.Offsets, CommitOffset{Topic: "orders", TopicID: topicNamed("orders"), Partition: int32(p), Metadata: strings.Repeat("x", 4096)})
			}
			for range 3 {
				n.CommitOffsets(r, func(r *CommitOffsetsResponse) {
					mu.Lock()
					defer mu.Unlock()
					answers[r.Err]++
				})
			}
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if answers[nil] < 60 || answers[ErrNotAvailable] < 30 || answers[nil]+answers[ErrNotAvailable] != 120 {
			t.Errorf("answers: %v", answers)
		}
		if left := n.pending.Load(); left != 0 {
			t.Errorf("%d bytes are left", left)
		}
		r := oneCommit("g", 1)
		for i := range 30_000 {
			r.Offsets = append(r.Offsets, CommitOffset{Topic: "orders", TopicID: topicNamed("orders"), Partition: int32(i % 4), Offset: int64(i)})
		}
		n.CommitOffsets(r, func(r *CommitOffsetsResponse) { wantErr(t, "a commit of 30,000 partitions", r.Err, ErrTooLarge) })

		refused, ids := 0, 0
		for range 100 {
			n.JoinGroup(&JoinGroupRequest{
				Group: "forged", SessionTimeout: time.Minute, ProtocolType: "consumer", Protocols: []Protocol{{"range", make([]byte, 64<<10)}},
			}, func(r *JoinGroupResponse) {
				if r.Err == ErrNotAvailable { //nolint:errorlint // as above
					refused++
				}
			})
		}
		for range maxPending + 10 {
			n.JoinGroup(&JoinGroupRequest{
				Group: "ids", SessionTimeout: time.Minute, ProtocolType: "consumer", Protocols: []Protocol{{"range", nil}}, RequireKnownID: true,
			}, func(r *JoinGroupResponse) {
				if r.Err == ErrMemberIDRequired { //nolint:errorlint // as above
					ids++
				}
			})
		}
		if refused < 80 {
			t.Errorf("%d of 100 large members were refused", refused)
		}
		if ids > maxPending {
			t.Errorf("%d ids were given away", ids)
		}
	})
}

// A group that cannot be read is not served, and keeps nobody else from being served.
func TestUnreadableGroup(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		for group, value := range map[string][]byte{"newer": {entryVersion + 1, byte(Classic)}, "torn": {entryVersion, byte(Classic)}, "other": {entryVersion, 99}} {
			shard := metadata.ShardOf(group)
			w.must(metadata.GroupChanged{Shard: shard, ShardEpoch: w.img.Shard(shard).Epoch, Group: group, Entries: []Entry{{Key: headKey, Value: value}}})
		}
		w.move(2)
		for _, group := range []string{"newer", "torn", "other"} {
			wantErr(t, group, commitOne(t, w.nodes[1], group, 1), ErrNotAvailable)
			wantErr(t, sameShard(group), commitOne(t, w.nodes[1], sameShard(group), 1), nil)
			// Deleting it is the way out.
			gone := errOf(t, func(done func(*error)) { w.nodes[1].DeleteGroup(group, func(err error) { done(&err) }) }, func(err *error) error { return *err })
			wantErr(t, "delete "+group, gone, nil)
			wantErr(t, group+" again", commitOne(t, w.nodes[1], group, 1), nil)
		}
	})
}

// With nobody there, nothing runs but the look for offsets to expire.
func TestIdle(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		n := w.nodes[0]
		wantErr(t, "commit", commitOne(t, n, "g", 1), nil)
		joinOld(n, "g", func(*JoinGroupResponse) {})
		time.Sleep(time.Minute)
		synctest.Wait()
		// Nothing is kept of groups that were only asked for.
		n.DescribeGroup("x1", func(*GroupDescription) {})
		n.DescribeConsumerGroup("x2", func(*ConsumerGroupDescription) {})
		n.Heartbeat(&HeartbeatRequest{Group: "x3", MemberID: "m"}, func(*HeartbeatResponse) {})
		n.DeleteGroup("x4", func(error) {})
		n.DeleteOffsets(&DeleteOffsetsRequest{Group: "x5"}, func(*DeleteOffsetsResponse) {})
		if _, err := fetchOne(t, n, "x6"); err != nil {
			t.Error(err)
		}
		for i := range n.shards {
			for name := range n.shards[i].groups {
				if name != "g" {
					t.Errorf("group %q is kept", name)
				}
			}
		}
		for _, a := range n.timers.heap {
			if left := time.Until(a.at); left < 5*time.Minute {
				t.Errorf("an alarm rings in %v", left)
			}
		}
		w.move(2)
		if left := len(n.timers.heap); left > 0 || n.timers.stop != nil {
			t.Errorf("%d alarms without a shard", left)
		}
		if left := n.members.Load(); left != 0 {
			t.Errorf("%d bytes of members without a shard", left)
		}
	})
}

// A consumer group hears of partitions that come, and its members are told with their next heartbeat.
func TestTopicsReachConsumers(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		n := w.nodes[0]
		var last *ConsumerHeartbeatResponse
		beat := func(r *ConsumerHeartbeatRequest) *ConsumerHeartbeatResponse {
			t.Helper()
			r.Version, r.Group, r.MemberID, r.RebalanceTimeoutMs = 1, "g", "0123456789abcdefABCDEF", -1
			if last == nil {
				r.RebalanceTimeoutMs, r.SubscribedTopics, r.TopicPartitions = 60_000, []string{"orders"}, []TopicPartitions{}
			} else {
				r.MemberEpoch = last.MemberEpoch
			}
			wantErr(t, "heartbeat", errOf(t, func(done func(*ConsumerHeartbeatResponse)) {
				n.ConsumerHeartbeat(r, func(r *ConsumerHeartbeatResponse) { done(r) })
			}, func(r *ConsumerHeartbeatResponse) error { last = r; return r.Err }), nil)
			return last
		}
		partitions := func(r *ConsumerHeartbeatResponse) int {
			if r.Assignment == nil || len(*r.Assignment) == 0 {
				return -1
			}
			return len((*r.Assignment)[0].Partitions)
		}
		if got := partitions(beat(&ConsumerHeartbeatRequest{})); got != 4 {
			t.Errorf("%d partitions at first", got)
		}
		w.must(metadata.PartitionsAdded{TopicID: topicNamed("orders"), First: 4, Partitions: []metadata.Partition{
			{Replicas: []metadata.BrokerID{1}, ISR: []metadata.BrokerID{1}, Leader: 1}, {Replicas: []metadata.BrokerID{1}, ISR: []metadata.BrokerID{1}, Leader: 1},
		}})
		time.Sleep(5 * time.Second)
		if got := partitions(beat(&ConsumerHeartbeatRequest{})); got != 6 {
			t.Errorf("%d partitions after two were added", got)
		}
		// Its state is the same at another time.
		checkFold(t, n, w, "g")
	})
}

// 10,000 groups with 10 partitions each and a member: the memory of two copies of the tables and the coordinator, and a list.
func TestManyGroups(t *testing.T) {
	w := newManyGroups(t)
	defer w.close()
	n := w.nodes[0]
	n.running.Wait() // the shards are loaded
	var list *ListGroupsResponse
	took := time.Hour
	for range 3 {
		start := time.Now()
		list = n.ListGroups(Filter{})
		took = min(took, time.Since(start))
	}
	if len(list.Groups) != 10_000 || list.Err != nil {
		t.Errorf("%d groups, %v", len(list.Groups), list.Err)
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	t.Logf("%d MiB of heap, a list in %v", m.HeapAlloc>>20, took)
	if m.HeapAlloc > 200<<20 {
		t.Errorf("%d MiB of heap", m.HeapAlloc>>20)
	}
}

func newManyGroups(t *testing.T) *world {
	w := &world{t: t, img: metadata.New(), tables: metadata.NewTables(), settings: defaults(), ended: make(chan struct{})}
	w.must(metadata.BrokerRegistered{ID: 1, Incarnation: [16]byte{1}})
	topic := metadata.TopicCreated{Name: "orders", ID: topicNamed("orders")}
	for range 10 {
		topic.Partitions = append(topic.Partitions, metadata.Partition{Replicas: []metadata.BrokerID{1}, ISR: []metadata.BrokerID{1}, Leader: 1})
	}
	w.must(topic)
	for s := range int32(metadata.Shards) {
		w.assign(s, 1)
	}
	kind, protocol := "consumer", "range"
	var records []metadata.Record
	for i := range 10_000 {
		c := newClassic(fmt.Sprintf("group-%d", i))
		c.generation, c.protocolType, c.protocol, c.leader = 1, &kind, &protocol, "consumer-1-0123456789abcdef0123456789"
		c.members = []*member{{
			id: c.leader, clientID: "consumer-1", clientHost: "/127.0.0.1", session: time.Minute, rebalance: time.Minute,
			protocols: []Protocol{{protocol, make([]byte, 40)}}, assignment: make([]byte, 80),
		}}
		shard := metadata.ShardOf(c.id)
		epoch := w.img.Shard(shard).Epoch
		committed := metadata.OffsetsCommitted{Shard: shard, ShardEpoch: epoch, Group: c.id}
		for p := range int32(10) {
			committed.Offsets = append(committed.Offsets, metadata.OffsetCommit{
				GroupPartition: metadata.GroupPartition{Topic: topicNamed("orders"), Partition: p}, Offset: 1000, Expires: -1,
			})
		}
		records = append(records, metadata.GroupChanged{Shard: shard, ShardEpoch: epoch, Group: c.id, Entries: c.entries()}, committed)
	}
	for part := range slices.Chunk(records, 200) {
		w.must(part...)
	}
	n := w.start(1)
	w.nodes = []*node{n}
	n.catchUp(uint64(len(w.log)))
	w.log = nil
	return w
}

// Whatever the entries are, loading ends with a group or an error.
func FuzzLoad(f *testing.F) {
	kind := "consumer"
	c := newClassic("g")
	c.protocolType, c.protocol = &kind, &kind
	c.members = []*member{{id: "m", instance: &kind, protocols: []Protocol{{kind, []byte{0, 1}}}, assignment: []byte("x")}}
	entries := c.entries()
	f.Add(entries[0].Value, entries[1].Value)
	f.Add([]byte{entryVersion, byte(Classic)}, []byte{})
	f.Add([]byte{entryVersion, byte(Consumer)}, []byte{1, 2, 3})
	settings := defaults()
	f.Fuzz(func(t *testing.T, head, member []byte) {
		env := Env{Settings: &settings, Topics: topics{metadata.New()}, Now: time.Unix(1e9, 0), NewID: func() string { return "id" }}
		core, err := Load("g", []Entry{{Key: headKey, Value: head}, {Key: memberPrefix + "m", Value: member}}, env)
		if err == nil {
			core.DescribeClassic()
			core.Step(Wake{}, env)
		}
		readTopics(member, map[string]bool{})
	})
}

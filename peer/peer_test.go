package peer

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/protocol"
	"github.com/keeplog/keeplog/record"
)

var (
	topicA = metadata.TopicID{1}
	topicB = metadata.TopicID{2}
)

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateErrors(), cmpopts.IgnoreTypes(kmsg.Tags{})); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// A fetch says all that a follower knows, the stable end in its tag; partitions side by side travel under one topic.
func TestFetch(t *testing.T) {
	var asked *kmsg.FetchRequest
	b := newBroker(t, func(req kmsg.Request, _ int) kmsg.Response {
		asked = req.(*kmsg.FetchRequest)
		resp := kmsg.NewPtrFetchResponse()
		resp.SessionID = 9
		ok := protocol.NewFetchPartition(0, 0)
		ok.HighWatermark, ok.LogStartOffset, ok.RecordBatches = 20, 3, []byte("records")
		diverged := protocol.NewFetchPartition(1, 0)
		diverged.DivergingEpoch.Epoch, diverged.DivergingEpoch.EndOffset = 4, 17
		moved := protocol.NewFetchPartition(2, 6)
		moved.CurrentLeader.LeaderID, moved.CurrentLeader.LeaderEpoch = 3, 8
		resp.Topics = []kmsg.FetchResponseTopic{
			{TopicID: topicA, Partitions: []kmsg.FetchResponseTopicPartition{ok, diverged}},
			{TopicID: topicB, Partitions: []kmsg.FetchResponseTopicPartition{moved}},
		}
		return resp
	})
	c := b.client()
	part := func(topic metadata.TopicID, n int32, stable record.Offset) FetchPartition {
		return FetchPartition{PartitionRef: PartitionRef{topic, n}, LeaderEpoch: 5, LastEpoch: 4, Offset: 12, Stable: stable, LogStart: 2, MaxBytes: 100, Directory: metadata.DirectoryID{7}}
	}
	got, err := c.Fetch(t.Context(), 2, &FetchRequest{
		SessionID: 9, SessionEpoch: 3, MaxWait: 500 * time.Millisecond, MinBytes: 1, MaxBytes: 1000,
		Partitions: []FetchPartition{part(topicA, 0, 11), part(topicA, 1, -1), part(topicB, 2, 12)},
		Forgotten:  []PartitionRef{{topicB, 5}, {topicB, 6}},
	})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "answer", got.Partitions, []FetchedPartition{
		{PartitionRef: PartitionRef{topicA, 0}, HighWatermark: 20, LogStart: 3, DivergingEpoch: -1, DivergingEnd: -1, Leader: -1, LeaderEpoch: -1, Records: []byte("records")},
		{PartitionRef: PartitionRef{topicA, 1}, HighWatermark: -1, LogStart: -1, DivergingEpoch: 4, DivergingEnd: 17, Leader: -1, LeaderEpoch: -1},
		{PartitionRef: PartitionRef{topicB, 2}, HighWatermark: -1, LogStart: -1, DivergingEpoch: -1, DivergingEnd: -1, Leader: 3, LeaderEpoch: 8, Err: ErrNotLeader},
	})
	equal(t, "session", got.SessionID, int32(9))
	got.Release()
	equal(t, "replica", asked.ReplicaState, kmsg.FetchRequestReplicaState{ID: 1, Epoch: 55})
	equal(t, "topics", len(asked.Topics), 2)
	var stable []record.Offset
	for i := range asked.Topics {
		for j := range asked.Topics[i].Partitions {
			p := &asked.Topics[i].Partitions[j]
			end, ok := StableEnd(p)
			if !ok {
				end = -1
			}
			stable = append(stable, end)
			if p.CurrentLeaderEpoch != 5 || p.LastFetchedEpoch != 4 || p.FetchOffset != 12 || p.LogStartOffset != 2 || p.PartitionMaxBytes != 100 || p.ReplicaDirectoryID != [16]byte{7} {
				t.Errorf("partition: %+v", p)
			}
		}
	}
	equal(t, "stable ends", stable, []record.Offset{11, -1, 12})
	equal(t, "forgotten", asked.ForgottenTopics, []kmsg.FetchRequestForgottenTopic{{TopicID: topicB, Partitions: []int32{5, 6}}})
	if asked.MaxWaitMillis != 500 || asked.MinBytes != 1 || asked.MaxBytes != 1000 || asked.SessionID != 9 || asked.SessionEpoch != 3 {
		t.Errorf("request: %+v", asked)
	}
}

// What brokers tell the controller arrives as it was said, and the answer comes back.
func TestBrokerCalls(t *testing.T) {
	var asked kmsg.Request
	var answer kmsg.Response
	b := newBroker(t, func(req kmsg.Request, _ int) kmsg.Response { asked = req; return answer })
	c, ctx := b.client(), t.Context()

	answer = &kmsg.BrokerRegistrationResponse{BrokerEpoch: 70}
	rack := "r1"
	epoch, err := c.Register(ctx, 2, &Registration{
		ClusterID: cluster, Incarnation: [16]byte{9}, Listeners: []metadata.Endpoint{{Name: "P", Host: "h", Port: 9092, Protocol: 1}}, Rack: rack,
		Directories: []metadata.DirectoryID{{4}}, PreviousEpoch: 33, Features: []Feature{{"f", 0, 1}, {"g", 2, 300}},
	})
	equal(t, "epoch", epoch, int64(70))
	equal(t, "error", err, error(nil))
	equal(t, "registration", asked, kmsg.Request(&kmsg.BrokerRegistrationRequest{
		Version: 4, BrokerID: 1, ClusterID: cluster, IncarnationID: [16]byte{9}, Rack: &rack, LogDirs: [][16]byte{{4}}, PreviousBrokerEpoch: 33,
		Listeners: []kmsg.BrokerRegistrationRequestListener{{Name: "P", Host: "h", Port: 9092, SecurityProtocol: 1}},
		Features: []kmsg.BrokerRegistrationRequestFeature{
			{Name: "f", MaxSupportedVersion: 1}, {Name: "g", MinSupportedVersion: 2, MaxSupportedVersion: 300},
		},
	}))

	answer = &kmsg.BrokerHeartbeatResponse{IsCaughtUp: true, ShouldShutdown: true}
	refs := []PartitionRef{{topicA, 3}, {topicB, 1 << 30}}
	beat, err := c.Heartbeat(ctx, 2, &Heartbeat{
		Epoch: 70, Applied: 99, WantShutdown: true, Lost: refs, OfflineDirs: []metadata.DirectoryID{{8}}, Features: []Feature{{"f", 0, 1}, {"g", 2, 300}},
	})
	equal(t, "heartbeat", beat, HeartbeatAnswer{CaughtUp: true, ShutDown: true})
	equal(t, "error", err, error(nil))
	h := asked.(*kmsg.BrokerHeartbeatRequest)
	lost, outOfOrder, err := Lost(h)
	equal(t, "lost", lost, refs)
	equal(t, "out of order", outOfOrder, []PartitionRef(nil))
	equal(t, "error", err, error(nil))
	features, err := Features(h)
	equal(t, "features", features, []Feature{{"f", 0, 1}, {"g", 2, 300}})
	equal(t, "error", err, error(nil))
	if h.BrokerID != 1 || h.BrokerEpoch != 70 || h.CurrentMetadataOffset != 99 || h.WantFence || !h.WantShutdown || len(h.OfflineLogDirs) != 1 {
		t.Errorf("heartbeat: %+v", h)
	}

	answer = &kmsg.AllocateProducerIDsResponse{ProducerIDStart: 4000, ProducerIDLen: 1000}
	first, count, err := c.AllocateProducerIDs(ctx, 2, 70)
	equal(t, "ids", []any{first, count, err}, []any{int64(4000), int32(1000), error(nil)})

	answer = &kmsg.AlterPartitionResponse{Topics: []kmsg.AlterPartitionResponseTopic{{TopidID: topicA, Partitions: []kmsg.AlterPartitionResponseTopicPartition{
		{Partition: 0, LeaderID: 1, LeaderEpoch: 4, ISR: []int32{1, 2}, PartitionEpoch: 8}, {Partition: 1, ErrorCode: 107},
	}}}}
	changed, err := c.AlterPartition(ctx, 2, []ISRChange{
		{PartitionRef: PartitionRef{topicA, 0}, LeaderEpoch: 4, PartitionEpoch: 7, ISR: []ISRMember{{1, 55}, {2, 60}}},
		{PartitionRef: PartitionRef{topicA, 1}, LeaderEpoch: 4, PartitionEpoch: 7, ISR: []ISRMember{{1, 55}}, Recovering: true},
	})
	equal(t, "error", err, error(nil))
	equal(t, "in-sync sets", changed, []ISRAnswer{
		{PartitionRef: PartitionRef{topicA, 0}, Leader: 1, LeaderEpoch: 4, ISR: []int32{1, 2}, PartitionEpoch: 8},
		{PartitionRef: PartitionRef{topicA, 1}, Err: ErrIneligibleReplica},
	})
	ap := asked.(*kmsg.AlterPartitionRequest)
	if ap.BrokerID != 1 || ap.BrokerEpoch != 55 || len(ap.Topics) != 1 || ap.Topics[0].Partitions[1].LeaderRecoveryState != 1 || len(ap.Topics[0].Partitions[0].NewEpochISR) != 2 {
		t.Errorf("change: %+v", ap)
	}

	answer = &kmsg.EnvelopeResponse{ResponseData: []byte("\x00\x00\x00\x07answer")}
	out, err := c.Forward(ctx, 2, &Envelope{Request: []byte("request"), Principal: []byte("who"), ClientHost: []byte{127, 0, 0, 1}})
	equal(t, "forwarded", string(out), "\x00\x00\x00\x07answer")
	equal(t, "error", err, error(nil))
	env := asked.(*kmsg.EnvelopeRequest)
	if id, ok := Receiver(env); id != 1 || !ok || string(env.RequestData) != "request" || string(env.RequestPrincipal) != "who" {
		t.Errorf("envelope: %+v, %d", env, id)
	}
}

// What is only out of order is told apart from what is lost, and a version that does not know the difference counts on neither.
func TestHeartbeatTellsWhatIsOutOfOrder(t *testing.T) {
	var asked *kmsg.BrokerHeartbeatRequest
	b := newBroker(t, func(req kmsg.Request, _ int) kmsg.Response {
		asked = req.(*kmsg.BrokerHeartbeatRequest)
		return &kmsg.BrokerHeartbeatResponse{}
	})
	c := b.client()
	one, two, three := PartitionRef{topicA, 3}, PartitionRef{topicB, 1}, PartitionRef{topicB, 2}
	for _, h := range []Heartbeat{{Lost: []PartitionRef{one}, OutOfOrder: []PartitionRef{two, three}}, {OutOfOrder: []PartitionRef{two}}, {Lost: []PartitionRef{one, two}}, {}} {
		if _, err := c.Heartbeat(t.Context(), 2, &h); err != nil {
			t.Fatal(err)
		}
		lost, outOfOrder, err := Lost(asked)
		equal(t, "error", err, error(nil))
		equal(t, "lost", append([]PartitionRef(nil), lost...), h.Lost)
		equal(t, "out of order", outOfOrder, h.OutOfOrder)
		before := kmsg.Tags{}
		asked.UnknownTags.Each(func(tag uint32, value []byte) {
			if tag != TagOutOfOrder {
				before.Set(tag, value)
			}
		})
		asked.UnknownTags = before // as a version reads it that does not know the tag
		lost, _, _ = Lost(asked)
		equal(t, "lost to a version before", append([]PartitionRef(nil), lost...), append(append([]PartitionRef(nil), h.Lost...), h.OutOfOrder...))
	}
}

// A code of the whole request becomes its sentinel; an unknown one says its name.
func TestCodes(t *testing.T) {
	code := int16(0)
	b := newBroker(t, func(kmsg.Request, int) kmsg.Response { return &kmsg.AllocateProducerIDsResponse{ErrorCode: code} })
	c := b.client()
	for n, want := range sentinels {
		code = n
		if _, _, err := c.AllocateProducerIDs(t.Context(), 2, 1); !errors.Is(err, want) {
			t.Errorf("code %d: %v", n, err)
		}
	}
	code = 73
	if _, _, err := c.AllocateProducerIDs(t.Context(), 2, 1); !errors.Is(err, ErrRemote) || !strings.Contains(err.Error(), "TOPIC_DELETION_DISABLED") {
		t.Error(err)
	}
	short := &kmsg.BrokerHeartbeatRequest{}
	short.UnknownTags.Set(TagLost, make([]byte, 21))
	if _, _, err := Lost(short); !errors.Is(err, ErrProtocol) {
		t.Error(err)
	}
	short.UnknownTags.Set(TagLost, nil)
	short.UnknownTags.Set(TagOutOfOrder, make([]byte, 19))
	if _, _, err := Lost(short); !errors.Is(err, ErrProtocol) {
		t.Error(err)
	}
	for _, malformed := range []string{"\x00\x00\x00\x00", "\x02a", "\x01a\x00\x00\x00\x01\xff"} {
		short.UnknownTags.Set(TagFeatures, []byte(malformed))
		if _, err := Features(short); !errors.Is(err, ErrProtocol) {
			t.Errorf("%q: %v", malformed, err)
		}
	}
}

// Two fetches are in flight at once, and a fetch that waits holds up nothing else. Answers come in the order of the calls.
func TestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := newBroker(t, nil)
		b.answer = func(req kmsg.Request, _ int) kmsg.Response {
			switch r := req.(type) {
			case *kmsg.FetchRequest:
				if r.SessionEpoch == 1 {
					<-release
				}
				return &kmsg.FetchResponse{SessionID: r.SessionEpoch}
			default:
				return &kmsg.BrokerHeartbeatResponse{IsCaughtUp: true}
			}
		}
		c := b.client()
		var mu sync.Mutex
		var order []int32
		for n := range int32(3) {
			c.StartFetch(t.Context(), 2, &FetchRequest{SessionEpoch: n + 1}, func(r *FetchResponse, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, r.SessionID)
				r.Release()
			})
		}
		if _, err := c.Heartbeat(t.Context(), 2, &Heartbeat{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		equal(t, "answers", len(order), 0)
		close(release)
		synctest.Wait()
		equal(t, "order", order, []int32{1, 2, 3})
		equal(t, "connections", len(b.conns), 2)
		c.Close()
	})
}

// A call whose time ends takes its connection along: those behind it end too, and the next one gets a new connection. One that is
// cancelled harms nobody.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		defer close(stuck)
		b := newBroker(t, nil)
		b.answer = func(req kmsg.Request, conn int) kmsg.Response {
			if conn == 1 {
				<-stuck
			}
			return &kmsg.AllocateProducerIDsResponse{ProducerIDStart: int64(conn)}
		}
		c := b.client()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		behind := make(chan error, 1)
		go func() {
			time.Sleep(time.Millisecond)
			_, _, err := c.AllocateProducerIDs(t.Context(), 2, 1)
			behind <- err
		}()
		if _, _, err := c.AllocateProducerIDs(ctx, 2, 1); !errors.Is(err, ErrDisconnected) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := <-behind; !errors.Is(err, ErrDisconnected) {
			t.Error(err)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, _, err := c.AllocateProducerIDs(gone, 2, 1); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		first, _, err := c.AllocateProducerIDs(t.Context(), 2, 1)
		equal(t, "connection", []any{first, err}, []any{int64(2), error(nil)})
		c.Close()
	})
}

// A broker that does not answer is dialled less and less often; the queue of those who do not wait is bounded.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var dials []time.Duration
		b := newBroker(t, nil)
		b.refuse = func() error {
			dials = append(dials, time.Since(start))
			return &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}
		c := b.client()
		for range 9 {
			if _, err := c.Heartbeat(t.Context(), 2, &Heartbeat{}); !errors.Is(err, ErrRefused) || !errors.Is(err, ErrUnreachable) {
				t.Fatal(err)
			}
		}
		ms := func(l ...int) (d []time.Duration) {
			for _, n := range l {
				d = append(d, time.Duration(n)*time.Millisecond)
			}
			return d
		}
		equal(t, "dials", dials, ms(0, 20, 60, 140, 300, 620, 1260, 2260, 3260))
		if err := c.Probe(t.Context(), 2); !errors.Is(err, ErrRefused) {
			t.Error(err)
		}
		ended := map[bool]int{}
		var mu sync.Mutex
		for range queued + 10 {
			c.StartFetch(t.Context(), 2, &FetchRequest{}, func(_ *FetchResponse, err error) {
				mu.Lock()
				defer mu.Unlock()
				ended[errors.Is(err, ErrUnreachable)]++
			})
		}
		synctest.Wait()
		if n := ended[true]; n < 9 || n > 11 {
			t.Errorf("%d fetches were refused at once", n)
		}
		c.Close()
		synctest.Wait()
		equal(t, "all ended", ended[true]+ended[false], queued+10)
	})
}

// Another cluster, another node, and a listener for clients are seen before anything is asked.
func TestForeign(t *testing.T) {
	b := newBroker(t, func(kmsg.Request, int) kmsg.Response { return &kmsg.BrokerHeartbeatResponse{} })
	for name, change := range map[string]func(*Options){
		"cluster": func(o *Options) { o.ClusterID = func() string { return "BBBBBBBBBBBBBBBBBBBBBB" } },
	} {
		c := b.client(change)
		if _, err := c.Heartbeat(t.Context(), 2, &Heartbeat{}); !errors.Is(err, ErrForeign) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := b.client()
	if _, err := c.Heartbeat(t.Context(), 3, &Heartbeat{}); !errors.Is(err, ErrForeign) {
		t.Errorf("node: %v", err)
	}
	if _, err := c.Heartbeat(t.Context(), 1, &Heartbeat{}); !errors.Is(err, ErrUnreachable) {
		t.Errorf("this node: %v", err)
	}
	equal(t, "heartbeats", b.received(protocol.KeyBrokerHeartbeat), 0)
	unknown := b.client(func(o *Options) { o.ClusterID = func() string { return "" } })
	if _, err := unknown.Heartbeat(t.Context(), 2, &Heartbeat{}); err != nil {
		t.Errorf("a cluster that is not known yet: %v", err)
	}
	clients := newBroker(t, nil)
	clients.table = protocol.NewTable(protocol.Served())
	if _, err := clients.client().Heartbeat(t.Context(), 2, &Heartbeat{}); !errors.Is(err, ErrForeign) {
		t.Errorf("listener of clients: %v", err)
	}
}

// What is no answer ends the connection and the call.
func TestGarbage(t *testing.T) {
	b := newBroker(t, nil)
	hello := func(conn net.Conn) {
		frame, err := protocol.ReadFrame(conn, protocol.Limits{Produce: 1 << 20, Other: 1 << 20}, func(n int) ([]byte, error) { return make([]byte, n), nil })
		if err != nil {
			return
		}
		h, _ := b.table.ParseHeader(frame)
		req, _ := b.table.Decode(h.Key, h.Version, h.Body)
		out, _ := b.table.AppendResponse(nil, h, b.hello(req.(*kmsg.ApiVersionsRequest)))
		_, _ = conn.Write(out)
	}
	for name, bytes := range map[string][]byte{
		"size":              {0x7f, 0, 0, 0, 0, 0, 0, 1},
		"negative size":     {0xff, 0, 0, 0, 0, 0, 0, 1},
		"correlation":       {0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0, 0},
		"tags":              {0, 0, 0, 6, 0, 0, 0, 1, 5, 5},
		"body":              {0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0},
		"what nobody asked": {0, 0, 0, 5, 0, 0, 0, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := b.client(func(o *Options) { o.Dial = raw(t, hello, bytes) })
			if _, err := c.Heartbeat(t.Context(), 2, &Heartbeat{}); !errors.Is(err, ErrProtocol) {
				t.Error(err)
			}
		})
	}
}

// Closing ends what waits, and everything after.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, func(kmsg.Request, int) kmsg.Response { return nil })
		c := b.client()
		done := make(chan error, 2)
		go func() {
			_, err := c.Heartbeat(t.Context(), 2, &Heartbeat{})
			done <- err
		}()
		c.StartFetch(t.Context(), 2, &FetchRequest{}, func(_ *FetchResponse, err error) { done <- err })
		synctest.Wait()
		c.Close()
		for range 2 {
			if err := <-done; !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		}
		if _, err := c.Heartbeat(t.Context(), 2, &Heartbeat{}); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		c.StartFetch(t.Context(), 2, &FetchRequest{}, func(_ *FetchResponse, err error) { done <- err })
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

// Long answers of clients' requests travel beside each other.
func TestForwardLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := newBroker(t, nil)
		b.answer = func(req kmsg.Request, _ int) kmsg.Response {
			if string(req.(*kmsg.EnvelopeRequest).RequestData) == "slow" {
				<-release
			}
			return &kmsg.EnvelopeResponse{ResponseData: make([]byte, 4)}
		}
		c := b.client()
		var wg sync.WaitGroup
		for range forwardLanes - 1 {
			wg.Go(func() {
				if _, err := c.Forward(t.Context(), 2, &Envelope{Request: []byte("slow")}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if _, err := c.Forward(t.Context(), 2, &Envelope{Request: []byte("fast")}); err != nil {
			t.Error(err)
		}
		close(release)
		wg.Wait()
		c.Close()
	})
}

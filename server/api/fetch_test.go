package api

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/replication/isr"
)

type want struct {
	topic     string
	id        metadata.TopicID
	partition int32
	offset    int64
	max       int32
}

// fetchOf is a fetch without a session that does not wait.
func fetchOf(l ...want) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.MinBytes, r.MaxBytes, r.SessionEpoch = 1, 1<<20, -1
	for _, w := range l {
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = w.topic, w.id
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = w.partition, w.offset, 1<<20, -1
		if w.max > 0 {
			p.PartitionMaxBytes = w.max
		}
		t.Partitions = append(t.Partitions, p)
		r.Topics = append(r.Topics, t)
	}
	return r
}

func (w *world) fetch(r *kmsg.FetchRequest, v int16) *kmsg.FetchResponse {
	w.t.Helper()
	resp := ask[*kmsg.FetchResponse](w, r, v)
	for _, l := range w.parts {
		for _, p := range l {
			if n := p.spans.Load(); n != 0 {
				w.t.Errorf("%s-%d: %d spans were not released", p.name, p.number, n)
			}
		}
	}
	return resp
}

func TestFetch(t *testing.T) {
	each(t, 1, func(t *testing.T, w *world, v int16) {
		id := w.topic("t", 2)
		w.part(id, 0).add("aaa", "bbb", "ccc")
		r := fetchOf(want{topic: "t", id: id, offset: 1}, want{topic: "t", id: id, partition: 1})
		resp := w.fetch(r, v)
		equal(t, "topics", len(resp.Topics), 1)
		p, q := resp.Topics[0].Partitions[0], resp.Topics[0].Partitions[1]
		equal(t, "records", string(p.RecordBatches), "bbbccc")
		equal(t, "high watermark", p.HighWatermark, 3)
		equal(t, "last stable offset", p.LastStableOffset, 3)
		equal(t, "preferred replica", p.PreferredReadReplica, -1)
		equal(t, "aborted", p.AbortedTransactions == nil, true)
		equal(t, "records of the empty one", q.RecordBatches != nil && len(q.RecordBatches) == 0, true)
		r.IsolationLevel = 1
		p = w.fetch(r, v).Topics[0].Partitions[0]
		equal(t, "aborted, read committed", p.AbortedTransactions != nil, true)
		r.IsolationLevel = 7
		resp = w.fetch(r, v)
		if v >= 7 {
			equal(t, "isolation 7", resp.ErrorCode, -1)
		}
		equal(t, "topics of a refused fetch", len(resp.Topics), map[bool]int{true: 2, false: 0}[v < 13])
	})
}

func TestFetchErrors(t *testing.T) {
	each(t, 1, func(t *testing.T, w *world, v int16) {
		id := w.topic("t", 3)
		w.part(id, 1).err = isr.ErrNotLeader
		w.part(id, 1).leader = isr.Leadership{Leader: 1, Epoch: 4}
		w.part(id, 2).err = isr.ErrFencedLeaderEpoch
		r := fetchOf(
			want{topic: "t", id: id, offset: 9}, want{topic: "t", id: id, partition: 1}, want{topic: "t", id: id, partition: 2},
			want{topic: "t", id: id, partition: 9}, want{topic: "none", id: metadata.TopicID{7}},
		)
		resp := w.fetch(r, v)
		missing := int16(3)
		if v >= 13 {
			missing = 100
		}
		var got []int16
		for _, tp := range resp.Topics {
			for _, p := range tp.Partitions {
				got = append(got, p.ErrorCode)
				if p.HighWatermark != -1 || p.LastStableOffset != -1 || v >= 5 && p.LogStartOffset != -1 || p.RecordBatches == nil || len(p.RecordBatches) > 0 {
					t.Errorf("partition with an error: %+v", p)
				}
				equal(t, "aborted list of a missing partition", p.AbortedTransactions != nil, p.ErrorCode == 3 || p.ErrorCode == 100)
				if tagged := v >= 16 && (p.ErrorCode == 6 || p.ErrorCode == 74); (p.CurrentLeader.LeaderID == 1) != tagged {
					t.Errorf("code %d: current leader %+v", p.ErrorCode, p.CurrentLeader)
				}
			}
		}
		equal(t, "codes", fmt.Sprint(got), fmt.Sprint([]int16{1, 6, 74, 3, missing}))
		equal(t, "endpoints", len(resp.Brokers), map[bool]int{true: 1, false: 0}[v >= 16])
	})
}

func TestFetchDiverging(t *testing.T) {
	each(t, 1, func(t *testing.T, w *world, v int16) {
		id := w.topic("t", 1)
		w.part(id, 0).add("a", "b")
		w.part(id, 0).diverge = 2
		r := fetchOf(want{topic: "t", id: id})
		r.Topics[0].Partitions[0].LastFetchedEpoch = 1
		p := w.fetch(r, v).Topics[0].Partitions[0]
		if v < 12 {
			equal(t, "epoch", p.DivergingEpoch.Epoch, -1)
			return
		}
		equal(t, "code", p.ErrorCode, 0)
		equal(t, "epoch", p.DivergingEpoch.Epoch, 2)
		equal(t, "end", p.DivergingEpoch.EndOffset, 3)
		equal(t, "records", len(p.RecordBatches), 0)
	})
}

func TestFetchLimits(t *testing.T) {
	w := newWorld(t)
	id := w.topic("t", 3)
	for i := range 3 {
		w.part(id, i).add("0123456789", "0123456789")
	}
	sizes := func(r *kmsg.FetchRequest) string {
		var l []int
		for _, p := range w.fetch(r, 11).Topics[0].Partitions {
			l = append(l, len(p.RecordBatches))
		}
		return fmt.Sprint(l)
	}
	all := func(max int32) *kmsg.FetchRequest {
		return fetchOf(want{"t", id, 0, 0, max}, want{"t", id, 1, 0, max}, want{"t", id, 2, 0, max})
	}
	equal(t, "no limit", sizes(all(0)), "[20 20 20]")
	equal(t, "partition", sizes(all(10)), "[10 10 10]")
	equal(t, "partition, one whole batch first", sizes(all(1)), "[10 0 0]")
	r := all(0)
	r.MaxBytes = 35
	equal(t, "in all", sizes(r), "[20 10 0]")
	r.MaxBytes = 1
	equal(t, "in all, one whole batch first", sizes(r), "[10 0 0]")
	r.MaxBytes = -5
	equal(t, "negative", sizes(r), "[10 0 0]")
}

// The head laid out by hand is what kmsg encodes, for every version and many shapes.
func TestFetchAnswerIsWhatKmsgEncodes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	each(t, 1, func(t *testing.T, w *world, v int16) {
		ids := map[string]metadata.TopicID{}
		for _, n := range []string{"a", "bb", "ccc"} {
			ids[n] = w.topic(n, 4)
			for i := range 4 {
				p := w.part(ids[n], i)
				for range rnd.IntN(4) {
					p.add(string(bytes.Repeat([]byte{byte(i)}, rnd.IntN(300))))
				}
				if rnd.IntN(4) == 0 {
					p.err = isr.ErrNotLeader
				}
			}
		}
		for range 30 {
			var l []want
			for range rnd.IntN(10) {
				n := []string{"a", "bb", "ccc", "none"}[rnd.IntN(4)]
				l = append(l, want{topic: n, id: ids[n], partition: int32(rnd.IntN(5)), offset: int64(rnd.IntN(4))})
			}
			w.fetch(fetchOf(l...), v) // ask compares with kmsg byte by byte
		}
	})
}

func (w *world) park(r *kmsg.FetchRequest, v int16) *sink {
	w.t.Helper()
	_, s := w.begin(r, v)
	return s
}

func waiting(t *testing.T, s *sink) {
	t.Helper()
	select {
	case <-s.got:
		t.Fatal("answered instead of waiting")
	default:
	}
}

func TestFetchWaitsForMinBytes(t *testing.T) {
	w := newWorld(t)
	id := w.topic("t", 2)
	r := fetchOf(want{topic: "t", id: id}, want{topic: "t", id: id, partition: 1})
	r.MinBytes, r.MaxWaitMillis = 10, 60_000
	s := w.park(r, 12)
	waiting(t, s)
	w.part(id, 0).add("12345")
	waiting(t, s)
	w.part(id, 0).notify() // nothing new
	waiting(t, s)
	w.part(id, 1).add("67890")
	resp := parse(t, r, s.wait(t)).(*kmsg.FetchResponse)
	equal(t, "records", string(resp.Topics[0].Partitions[0].RecordBatches)+string(resp.Topics[0].Partitions[1].RecordBatches), "1234567890")
	equal(t, "parked", w.api.purgatory.len(), 0)
	w.part(id, 1).add("more") // late news do no harm
}

// Bytes count up to the partition's limit only.
func TestFetchMinBytesIsCapped(t *testing.T) {
	w := newWorld(t)
	id := w.topic("t", 1)
	r := fetchOf(want{topic: "t", id: id})
	r.MinBytes, r.MaxBytes, r.MaxWaitMillis = 1<<30, 5, 60_000
	s := w.park(r, 12)
	waiting(t, s)
	w.part(id, 0).add("123456")
	s.wait(t)
}

func TestFetchDeadline(t *testing.T) {
	w := newWorld(t)
	id := w.topic("t", 1)
	r := fetchOf(want{topic: "t", id: id})
	r.MaxWaitMillis = 30
	begun := time.Now()
	resp := parse(t, r, w.park(r, 12).wait(t)).(*kmsg.FetchResponse)
	if d := time.Since(begun); d < 30*time.Millisecond {
		t.Errorf("answered after %v", d)
	}
	equal(t, "records", len(resp.Topics[0].Partitions[0].RecordBatches), 0)
}

// A fetch of partitions that are missing waits its time, as in Kafka; any other error answers at once.
func TestFetchErrorsAndWaiting(t *testing.T) {
	w := newWorld(t)
	id := w.topic("t", 2)
	r := fetchOf(want{topic: "none"})
	r.MaxWaitMillis = 20
	begun := time.Now()
	parse(t, r, w.park(r, 11).wait(t))
	if time.Since(begun) < 20*time.Millisecond {
		t.Error("a missing topic was answered at once")
	}
	w.part(id, 1).err = isr.ErrOffline
	r = fetchOf(want{topic: "t", id: id}, want{topic: "t", id: id, partition: 1})
	r.MaxWaitMillis = 60_000
	equal(t, "code", w.fetch(r, 11).Topics[0].Partitions[1].ErrorCode, 56)
	r = fetchOf()
	r.MaxWaitMillis = 60_000
	w.fetch(r, 11)
}

// A partition that loses its leader wakes the fetch.
func TestFetchIsWokenByTrouble(t *testing.T) {
	w := newWorld(t)
	id := w.topic("t", 1)
	r := fetchOf(want{topic: "t", id: id})
	r.MaxWaitMillis = 60_000
	s := w.park(r, 12)
	waiting(t, s)
	p := w.part(id, 0)
	p.mu.Lock()
	p.err = isr.ErrNotLeader
	p.mu.Unlock()
	p.notify()
	equal(t, "code", parse(t, r, s.wait(t)).(*kmsg.FetchResponse).Topics[0].Partitions[0].ErrorCode, 6)
}

func TestDrainAnswersParkedFetches(t *testing.T) {
	w := newWorld(t)
	id := w.topic("t", 1)
	r := fetchOf(want{topic: "t", id: id})
	r.MaxWaitMillis = 60_000
	s := w.park(r, 12)
	waiting(t, s)
	w.api.Drain()
	parse(t, r, s.wait(t))
	parse(t, r, w.park(r, 12).wait(t)) // and the next at once
}

func TestPurgatoryOrder(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 2))
	p := &purgatory{wake: make(chan struct{}, 1)}
	var all []*fetchCall
	base := time.Now()
	for range 200 {
		f := &fetchCall{}
		f.wait.deadline = base.Add(time.Duration(rnd.IntN(1000)))
		p.push(f)
		all = append(all, f)
	}
	for range 100 {
		if f := all[rnd.IntN(len(all))]; f.wait.index >= 0 {
			p.removeAt(f.wait.index)
		}
	}
	due, _, _ := p.due(base.Add(time.Second))
	equal(t, "left", len(p.heap), 0)
	for i := 1; i < len(due); i++ {
		if due[i].wait.deadline.Before(due[i-1].wait.deadline) {
			t.Fatalf("seed %d: out of order at %d", seed, i)
		}
	}
}

// session sends fetches of one session.
type session struct {
	w     *world
	v     int16
	id    int32
	epoch int32
}

func (s *session) next(l ...want) *kmsg.FetchResponse {
	s.w.t.Helper()
	r := fetchOf(l...)
	r.SessionID, r.SessionEpoch = s.id, s.epoch
	s.epoch++
	return s.w.fetch(r, s.v)
}

// shape is an answer in short: the partitions, and their code or records.
func shape(r *kmsg.FetchResponse) string {
	if r.ErrorCode != 0 {
		return fmt.Sprint("error ", r.ErrorCode)
	}
	s := ""
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			s += fmt.Sprintf("%d:", p.Partition)
			if p.ErrorCode != 0 {
				s += fmt.Sprintf("E%d ", p.ErrorCode)
			} else {
				s += string(p.RecordBatches) + " "
			}
		}
	}
	return s
}

func TestFetchSession(t *testing.T) {
	each(t, 1, func(t *testing.T, w *world, v int16) {
		if v < 7 {
			return
		}
		id := w.topic("t", 3)
		w.part(id, 0).add("abc")
		at := func(n int32, offset int64) want { return want{topic: "t", id: id, partition: n, offset: offset} }
		s := &session{w: w, v: v}
		first := s.next(at(0, 0), at(1, 0))
		equal(t, "first", shape(first), "0:abc 1: ")
		s.id = first.SessionID
		if s.id == 0 {
			t.Fatal("no session")
		}
		step := func(what, want string, l ...want2) {
			t.Helper()
			equal(t, what, shape(s.next(l...)), want)
		}
		step("same data again", "0:abc ")
		step("moved to the end", "", at(0, 1))
		step("nothing new", "")
		w.part(id, 1).add("x")
		step("new data", "1:x ")
		s.epoch += 3
		equal(t, "wrong epoch", shape(s.next()), "error 71")
		s.epoch -= 4
		step("the right epoch still works", "1:x ")
		step("moved too", "", at(1, 1))
		step("unknown partition joins", "77:E3 ", at(77, 0))
		step("and is told again", "77:E3 ")
		w.part(id, 0).start = 1
		step("log start moved", "0: 77:E3 ")

		r := fetchOf()
		r.SessionID, r.SessionEpoch = s.id, s.epoch
		s.epoch++
		f := kmsg.NewFetchRequestForgottenTopic()
		f.Topic, f.TopicID, f.Partitions = "t", id, []int32{77, 5}
		r.ForgottenTopics = append(r.ForgottenTopics, f)
		equal(t, "forget", shape(w.fetch(r, v)), "")

		other := map[bool]int16{true: 12, false: 13}[v >= 13]
		r = fetchOf()
		r.SessionID, r.SessionEpoch = s.id, s.epoch
		equal(t, "names and ids mixed", shape(w.fetch(r, other)), "error 106")
		r.SessionEpoch = -1
		equal(t, "close", shape(w.fetch(r, v)), "")
		equal(t, "closed", shape(s.next()), "error 70")
		equal(t, "sessions", w.api.sessions.len(), 0)
	})
}

type want2 = want

// What had data goes to the end, so that a busy partition does not starve the others.
func TestFetchSessionFairness(t *testing.T) {
	w := newWorld(t)
	id := w.topic("t", 3)
	for i := range 3 {
		w.part(id, i).add("0123456789")
	}
	at := func(n int32) want { return want{topic: "t", id: id, partition: n} }
	s := &session{w: w, v: 12}
	r := fetchOf(at(0), at(1), at(2))
	r.MaxBytes, r.SessionEpoch = 10, 0
	resp := w.fetch(r, 12)
	equal(t, "first", shape(resp), "0:0123456789 1: 2: ")
	for _, want := range []string{"1:0123456789 ", "2:0123456789 ", "0:0123456789 "} {
		s.epoch++
		r := fetchOf()
		r.MaxBytes, r.SessionID, r.SessionEpoch = 10, resp.SessionID, s.epoch
		equal(t, "next", shape(w.fetch(r, 12)), want)
	}
}

// A session finds a topic that was made after it began, and one that was deleted and made again under the name.
func TestFetchSessionFollowsMetadata(t *testing.T) {
	w := newWorld(t)
	s := &session{w: w, v: 12}
	first := s.next(want{topic: "later"})
	equal(t, "missing", shape(first), "0:E3 ")
	s.id = first.SessionID
	id := w.topic("later", 1)
	w.part(id, 0).add("x")
	equal(t, "made", shape(s.next()), "0:x ")
	w.apply(metadata.TopicDeleted{ID: id})
	equal(t, "deleted", shape(s.next()), "0:E3 ")
}

func TestFetchSessionOfAParkedFetch(t *testing.T) {
	w := newWorld(t)
	id := w.topic("t", 2)
	s := &session{w: w, v: 13}
	s.id = s.next(want{topic: "t", id: id}, want{topic: "t", id: id, partition: 1}).SessionID
	r := fetchOf()
	r.SessionID, r.SessionEpoch, r.MaxWaitMillis = s.id, 1, 60_000
	k := w.park(r, 13)
	waiting(t, k)
	w.part(id, 1).add("new")
	equal(t, "woken", shape(parse(t, r, k.wait(t)).(*kmsg.FetchResponse)), "1:new ")
}

func TestFetchSessionCache(t *testing.T) {
	now := time.Unix(1000, 0)
	c := newSessionCache(2)
	parts := func(n int) []fetchPart {
		l := make([]fetchPart, n)
		for i := range l {
			l[i] = fetchPart{name: "t", partition: int32(i)}
		}
		return l
	}
	a := c.open(parts(3), false, now)
	b := c.open(parts(5), false, now)
	if a == nil || b == nil {
		t.Fatal("no room in an empty cache")
	}
	if c.open(parts(9), false, now) != nil {
		t.Error("a larger session took the place of a young one")
	}
	if c.open(nil, false, now) != nil {
		t.Error("a session without partitions")
	}
	// After two minutes a larger one may push a smaller one out.
	now = now.Add(evictAfter + time.Second)
	for _, s := range []*fetchSession{a, b} {
		if _, code := c.use(s.id, 1, false, now); code != 0 {
			t.Fatal(code)
		}
	}
	if c.open(parts(3), false, now) != nil {
		t.Error("a session pushed one out that is not smaller")
	}
	g := c.open(parts(6), false, now)
	if g == nil || c.byID[a.id] != nil || c.byID[b.id] == nil {
		t.Fatal("a larger session did not take the place of an old smaller one")
	}
	// What lay unused for two minutes goes first, however large.
	now = now.Add(evictAfter + time.Second)
	if _, code := c.use(g.id, 1, false, now); code != 0 {
		t.Fatal(code)
	}
	if c.open(parts(1), false, now) == nil || c.byID[b.id] != nil {
		t.Error("an unused session stayed")
	}
	equal(t, "partitions", c.parts, 7)
}

// The partitions of all sessions together are bounded: who would need more goes on without a session.
func TestFetchSessionsAreBounded(t *testing.T) {
	w := newWorld(t)
	id := w.topic("t", 5)
	w.api.sessions.maxParts = 4
	open := func(parts ...int32) (*kmsg.FetchRequest, *kmsg.FetchResponse) {
		var l []want
		for _, p := range parts {
			l = append(l, want{topic: "t", id: id, partition: p})
		}
		r := fetchOf(l...)
		r.SessionEpoch = 0
		resp := w.fetch(r, 13)
		return r, resp
	}
	if _, resp := open(0, 1, 2, 3, 4); resp.SessionID != 0 || len(resp.Topics[0].Partitions) != 5 {
		t.Errorf("session %d with %d partitions", resp.SessionID, len(resp.Topics[0].Partitions))
	}
	_, one := open(0, 1, 2)
	if one.SessionID == 0 {
		t.Fatal("no session")
	}
	if _, resp := open(0, 1); resp.SessionID != 0 {
		t.Error("a session above the bound")
	}
	// One that grows above it ends: the client is told by its next request, and opens another.
	r := fetchOf(want{topic: "t", id: id, partition: 3}, want{topic: "t", id: id, partition: 4})
	r.SessionID, r.SessionEpoch = one.SessionID, 1
	resp := w.fetch(r, 13)
	equal(t, "code", resp.ErrorCode, codeNone)
	equal(t, "partitions", len(resp.Topics[0].Partitions), 2)
	r = fetchOf()
	r.SessionID, r.SessionEpoch = one.SessionID, 2
	equal(t, "code", w.fetch(r, 13).ErrorCode, codeFetchSessionIDNotFound)
	equal(t, "partitions kept", w.api.sessions.parts, 0)
}

// Who says that it is a broker is refused by a listener of clients, as Kafka refuses a broker that is no replica
// (testdata/wire/fetch-replicas.txt).
func TestFetchOfAReplica(t *testing.T) {
	data, err := os.ReadFile("../../testdata/wire/fetch-replicas.txt")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	id := w.topic("t", 1)
	w.part(id, 0).add("x")
	seen := 0
	for line := range strings.Lines(string(data)) {
		var v, code int16
		var replica, epoch, leader int32
		if _, err := fmt.Sscanf(line, "%d | %d | %d | %d | %d", &v, &replica, &epoch, &code, &leader); err != nil {
			continue
		}
		seen++
		r := fetchOf(want{topic: "t", id: id})
		r.ReplicaID, r.MaxWaitMillis = replica, 60_000
		if v >= 15 {
			r.ReplicaState.ID = replica
		}
		r.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
		p := w.fetch(r, v).Topics[0].Partitions[0]
		if p.ErrorCode != code || p.CurrentLeader.LeaderID != leader || (code != 0) != (p.HighWatermark < 0) || (code != 0) != (len(p.RecordBatches) == 0) {
			t.Errorf("%s: code %d, leader %d, high watermark %d, %d bytes", line, p.ErrorCode, p.CurrentLeader.LeaderID, p.HighWatermark, len(p.RecordBatches))
		}
	}
	if seen < 100 {
		t.Errorf("%d cases", seen)
	}
}

// A client that leaves ends the wait of its fetch.
func TestClientGone(t *testing.T) {
	w := newWorld(t)
	id := w.topic("t", 1)
	r := fetchOf(want{topic: "t", id: id})
	r.MaxWaitMillis = 60_000
	r.SetVersion(13)
	c, k := w.begin(r, 13)
	waiting(t, k)
	c.ClientGone()
	equal(t, "answer", shape(parse(t, r, k.wait(t)).(*kmsg.FetchResponse)), "0: ")
	c.ClientGone() // too late, and no second answer
}

func TestFetchSessionEpochWraps(t *testing.T) {
	c := newSessionCache(1)
	s := c.open([]fetchPart{{name: "t"}}, false, time.Unix(0, 0))
	s.epoch = 1<<31 - 1
	if _, code := c.use(s.id, 1<<31-1, false, time.Unix(0, 0)); code != 0 || s.epoch != 1 {
		t.Errorf("code %d, next epoch %d", code, s.epoch)
	}
}

func TestFetchWithoutASlotHasNoSession(t *testing.T) {
	w := newWorld(t)
	w.api.sessions.slots = 0
	id := w.topic("t", 1)
	r := fetchOf(want{topic: "t", id: id})
	r.SessionEpoch = 0
	equal(t, "session", w.fetch(r, 12).SessionID, 0)
}

func BenchmarkFetchHead(b *testing.B) {
	for _, n := range []int{1, 8, 100} {
		b.Run(fmt.Sprintf("partitions=%d", n), func(b *testing.B) {
			w := newWorld(b)
			f := &fetchCall{api: w.api, full: true}
			f.call = &Call{Key: 1, Version: 12, Conn: &Conn{}, api: w.api}
			f.call.header.Key, f.call.header.Version = 1, 12
			f.parts = make([]fetchPart, n)
			sp := &benchSpan{}
			b.ReportAllocs()
			for b.Loop() {
				for i := range f.parts {
					f.parts[i] = fetchPart{name: "orders", partition: int32(i), res: FetchResult{Span: sp, DivergingEpoch: -1, HighWatermark: record.Offset(i)}}
				}
				f.answer()
			}
		})
	}
}

type benchSpan struct{ Span }

func (*benchSpan) Len() int { return 1 << 20 }
func (*benchSpan) Release() {}

// A truncation that waits for the span of a fetch can end the connection that has it.
func TestFetchCanBeAbandoned(t *testing.T) {
	w := newWorld(t)
	id := w.topic("t", 1)
	w.part(id, 0).add("abc")
	r := kmsg.NewPtrFetchRequest()
	r.Version = 12
	r.MaxBytes = 100
	r.Topics = []kmsg.FetchRequestTopic{{Topic: "t", Partitions: []kmsg.FetchRequestTopicPartition{{PartitionMaxBytes: 100, CurrentLeaderEpoch: -1, LastFetchedEpoch: -1}}}}
	ended := 0
	s := &sink{got: make(chan Answer, 1)}
	frame := formatter.AppendRequest(nil, r, 1)[4:]
	w.api.Serve(&Call{Key: 1, Version: 12, Frame: frame, Conn: &Conn{Listener: "PLAINTEXT", Abandon: func() { ended++ }}, Ctx: t.Context(), To: s})
	a := <-s.got
	defer a.Release()
	if len(a.Parts) == 0 || w.part(id, 0).abandon == nil {
		t.Fatalf("no span, or no way to end the connection: %+v", a)
	}
	w.part(id, 0).abandon()
	equal(t, "connections ended", ended, 1)
}

package killloop

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	topic      = "kill-loop"
	partitions = 3
	producers  = 2
)

// acked is what a producer was told.
type acked struct {
	offset int64
	value  string
}

// load is one idempotent producer that writes to every partition until it is stopped, across restarts of the server.
type load struct {
	id     int
	client *kgo.Client

	mu   sync.Mutex
	acks [partitions][]acked
	errs []error
}

// TestKillLoop kills and restarts KEEPLOG_HARNESS_COUNT times, or for KEEPLOG_HARNESS_SECONDS (default 8), and prints what it
// reached.
func TestKillLoop(t *testing.T) {
	seed := seedOf(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	s := newServer(t, "--set", "log.segment.bytes=1048576")
	s.start()
	createTopic(t, s.addr)
	var loads []*load
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	for id := range producers {
		l := newLoad(t, s.addr, id)
		loads = append(loads, l)
		wg.Go(func() { l.run(ctx, rand.New(rand.NewPCG(seed, uint64(id)+2))) })
	}
	kills, stops := 0, 0
	count, span := limits()
	for end := time.Now().Add(span); kills < count || count == 0 && time.Now().Before(end); {
		wait(rng.IntN(400))
		if rng.IntN(5) == 0 {
			if code := s.stop(syscall.SIGTERM); code != 0 {
				t.Errorf("clean stop: exit code %d\n%s", code, s.output())
			}
			stops++
		} else {
			s.stop(syscall.SIGKILL)
			kills++
		}
		if rng.IntN(4) == 0 { // a kill in the middle of the recovery
			s.startOnly()
			wait(rng.IntN(60))
			s.stop(syscall.SIGKILL)
			kills++
		}
		s.start()
	}
	cancel()
	wg.Wait()
	total := 0
	for _, l := range loads {
		l.finish(t)
		for p := range l.acks {
			total += len(l.acks[p])
		}
	}
	verify(t, s, loads)
	s.stop(syscall.SIGKILL)
	s.run(0, "check", s.data)
	s.run(0, "dump", s.data, "--summary")
	t.Logf("seed %d: %d kills, %d clean stops, %d acknowledged records", seed, kills, stops, total)
	if total == 0 {
		t.Error("nothing was acknowledged")
	}
}

func seedOf(t *testing.T) uint64 {
	if s := os.Getenv("KEEPLOG_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return rand.Uint64()
}

// limits is how often, or where that is 0 how long, to kill.
func limits() (count int, span time.Duration) {
	if n, err := strconv.Atoi(os.Getenv("KEEPLOG_HARNESS_COUNT")); err == nil && n > 0 {
		return n, 0
	}
	if n, err := strconv.Atoi(os.Getenv("KEEPLOG_HARNESS_SECONDS")); err == nil && n > 0 {
		return 0, time.Duration(n) * time.Second
	}
	return 0, 8 * time.Second
}

// wait passes up to ms milliseconds: the moment of a kill is meant to be any.
func wait(ms int) { <-time.After(time.Duration(ms) * time.Millisecond) }

func createTopic(t *testing.T, addr string) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := kadm.NewClient(c).CreateTopic(ctx, partitions, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
}

func newLoad(t *testing.T, addr string, id int) *load {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(32<<10),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(0),
		kgo.RetryBackoffFn(func(int) time.Duration { return 5 * time.Millisecond }), kgo.MaxBufferedRecords(5000),
		kgo.RecordDeliveryTimeout(0), kgo.UnknownTopicRetries(-1), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &load{id: id, client: c}
}

// run writes numbered records, some of them large, to random partitions.
func (l *load) run(ctx context.Context, rng *rand.Rand) {
	var next [partitions]int
	filler := bytes.Repeat([]byte("x"), 3000)
	for ctx.Err() == nil {
		p := rng.IntN(partitions)
		value := append([]byte(name(l.id, p, next[p])+" "), filler[:rng.IntN(len(filler))]...)
		next[p]++
		// The record outlives ctx: what was handed over must be acknowledged or fail in the end.
		l.client.Produce(context.Background(), &kgo.Record{Topic: topic, Partition: int32(p), Value: value}, func(r *kgo.Record, err error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if err != nil {
				l.errs = append(l.errs, err)
				return
			}
			l.acks[p] = append(l.acks[p], acked{r.Offset, string(r.Value)})
		})
	}
}

// finish waits until every record was acknowledged: the server is up, and an idempotent producer resends what it has no
// answer for.
func (l *load) finish(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := l.client.Flush(ctx); err != nil {
		t.Errorf("producer %d: not everything was acknowledged: %v", l.id, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, err := range l.errs {
		t.Errorf("producer %d: %v", l.id, err)
		break
	}
}

// verify reads every partition and compares it with what was acknowledged.
func verify(t *testing.T, s *server, loads []*load) {
	t.Helper()
	for p := range partitions {
		end := int64(0)
		want := map[int64]string{}
		for _, l := range loads {
			for _, a := range l.acks[p] {
				if other, ok := want[a.offset]; ok {
					t.Errorf("offset %d of partition %d was given to %.20q and to %.20q", a.offset, p, other, a.value)
				}
				want[a.offset] = a.value
				end = max(end, a.offset+1)
			}
		}
		if problem := check(s.readAll(topic, int32(p), end), want); problem != "" {
			t.Errorf("partition %d: %s", p, problem)
		}
	}
}

// check says what is wrong with the records of a partition: each acknowledged one at its offset, none twice, each
// producer's in order.
func check(got []*kgo.Record, want map[int64]string) string {
	seen := map[string]int64{}
	last := map[string]string{}
	next := int64(0)
	for _, r := range got {
		if r.Offset != next {
			return fmt.Sprintf("offset %d follows %d", r.Offset, next-1)
		}
		next++
		v := string(r.Value)
		if w, ok := want[r.Offset]; ok && w != v {
			return fmt.Sprintf("offset %d was acknowledged for %.20q and holds %.20q", r.Offset, w, v)
		}
		id, _, _ := strings.Cut(v, " ")
		if at, ok := seen[id]; ok {
			return fmt.Sprintf("%q is at offset %d and at %d", id, at, r.Offset)
		}
		seen[id] = r.Offset
		producer := id[:2]
		if id <= last[producer] {
			return fmt.Sprintf("%q at offset %d comes after %q", id, r.Offset, last[producer])
		}
		last[producer] = id
		delete(want, r.Offset)
	}
	for offset, v := range want {
		return fmt.Sprintf("%d acknowledged records are missing, one of them %.20q at offset %d", len(want), v, offset)
	}
	return ""
}

// TestCheckFindsWhatItNames plants each violation into a clean read.
func TestCheckFindsWhatItNames(t *testing.T) {
	values := []string{"p0-0-1 x", "p1-0-1 x", "p0-0-2 x", "p0-0-3 x"}
	clean := func() (got []*kgo.Record, want map[int64]string) {
		want = map[int64]string{}
		for i, v := range values {
			got = append(got, &kgo.Record{Offset: int64(i), Value: []byte(v)})
			want[int64(i)] = v
		}
		return got, want
	}
	got, want := clean()
	if p := check(got, want); p != "" {
		t.Errorf("a clean read: %s", p)
	}
	for name, plant := range map[string]func(got []*kgo.Record) []*kgo.Record{
		"lost tail":      func(g []*kgo.Record) []*kgo.Record { return g[:3] },
		"lost middle":    func(g []*kgo.Record) []*kgo.Record { return append(g[:1:1], g[2:]...) },
		"another record": func(g []*kgo.Record) []*kgo.Record { g[1].Value = []byte("p1-0-9 x"); return g },
		"twice": func(g []*kgo.Record) []*kgo.Record {
			return append(g, &kgo.Record{Offset: 4, Value: []byte(values[0])})
		},
		"behind its next": func(g []*kgo.Record) []*kgo.Record {
			return append(g, &kgo.Record{Offset: 4, Value: []byte("p0-0-0 x")})
		},
	} {
		got, want := clean()
		if check(plant(got), want) == "" {
			t.Errorf("%s: not found", name)
		}
	}
}

package interop

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("interop"))

// status reads a size in MiB from /proc about the server that these tests started.
func status(t *testing.T, field string) int {
	t.Helper()
	if serverPID == 0 {
		t.Skip("the server was not started here")
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", serverPID))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(field + `:\s+(\d+) kB`).FindSubmatch(b)
	if m == nil {
		t.Fatalf("/proc has no %s", field)
	}
	n, _ := strconv.Atoi(string(m[1]))
	return n >> 10
}

func dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	return c
}

// answer reads one frame and throws it away; an error is the end of the connection.
func answer(c net.Conn) error {
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return err
	}
	_, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(size[:])))
	return err
}

// healthy writes and reads beside what f does, and fails the test when a record is late by five seconds.
func healthy(t *testing.T, f func()) {
	t.Helper()
	topic := newTopic(t)
	c := franz(t, kgo.DefaultProduceTopic(topic), kgo.ConsumeTopics(topic))
	done := make(chan struct{})
	var wg sync.WaitGroup
	sent, read := 0, 0
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(2 * time.Millisecond):
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			err := c.ProduceSync(ctx, kgo.StringRecord("healthy")).FirstErr()
			cancel()
			if err != nil {
				t.Errorf("the healthy client cannot write: %v", err)
				return
			}
			for sent++; read < sent; {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				fetches := c.PollFetches(ctx)
				cancel()
				if err := fetches.Err(); err != nil {
					t.Errorf("the healthy client cannot read: %v", err)
					return
				}
				read += fetches.NumRecords()
			}
		}
	})
	f()
	close(done)
	wg.Wait()
	if sent == 0 || read != sent {
		t.Errorf("the healthy client wrote %d records and read %d", sent, read)
	}
}

// TestGarbage sends what no client sends: random bytes, requests with bytes changed, frames cut short, sizes that lie.
func TestGarbage(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	before := status(t, "VmRSS")
	var valid [][]byte
	for key := range int16(93) {
		req := kmsg.RequestForKey(key)
		if req == nil {
			continue
		}
		for v := range req.MaxVersion() + 1 {
			req.SetVersion(v)
			valid = append(valid, formatter.AppendRequest(nil, req, 1))
		}
	}
	healthy(t, func() {
		var wg sync.WaitGroup
		for worker := range 4 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(worker)))
				for range 500 {
					c, err := net.Dial("tcp", addr)
					if err != nil {
						t.Error(err)
						return
					}
					c.SetDeadline(time.Now().Add(10 * time.Second))
					c.Write(garbage(r, valid))
					if r.IntN(2) == 0 {
						c.(*net.TCPConn).CloseWrite()
						io.Copy(io.Discard, c)
					}
					c.Close()
				}
			})
		}
		wg.Wait()
	})
	if after := status(t, "VmHWM"); after > before+400 {
		t.Errorf("%d MiB became %d", before, after)
	}
}

func garbage(r *rand.Rand, valid [][]byte) []byte {
	b := append([]byte(nil), valid[r.IntN(len(valid))]...)
	switch r.IntN(5) {
	case 0: // anything
		b = make([]byte, 4+r.IntN(4000))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		if r.IntN(2) == 0 {
			binary.BigEndian.PutUint32(b, uint32(len(b)-4))
		}
	case 1: // a size that lies
		binary.BigEndian.PutUint32(b, uint32(r.IntN(1<<27)))
	case 2: // cut short
		b = b[:r.IntN(len(b))]
	default: // bytes changed
		for range 1 + r.IntN(6) {
			if i := 4 + r.IntN(len(b)-4); i > 7 || r.IntN(4) == 0 {
				b[i] = []byte{0, 1, 0x7f, 0x80, 0xff, byte(r.Uint32())}[r.IntN(6)]
			}
		}
	}
	return b
}

// TestCostlyRequests sends well-formed requests that ask for far more than they weigh.
func TestCostlyRequests(t *testing.T) {
	before := status(t, "VmRSS")
	produce := kmsg.NewPtrProduceRequest()
	produce.Version, produce.Acks = 9, 1
	produce.Topics = []kmsg.ProduceRequestTopic{{Partitions: make([]kmsg.ProduceRequestTopicPartition, 3_000_000)}}
	for i := range produce.Topics[0].Partitions {
		produce.Topics[0].Partitions[i].Records = []byte{}
	}
	names := kmsg.NewPtrDeleteTopicsRequest()
	names.Version, names.TimeoutMillis, names.TopicNames = 4, 1000, make([]string, 8_000_000)
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Version = 9
	for i := range 900_000 {
		name := strconv.FormatInt(int64(i), 36)
		metadata.Topics = append(metadata.Topics, kmsg.MetadataRequestTopic{Topic: &name})
	}
	configs := func(n int) kmsg.Request {
		r := kmsg.NewPtrDescribeConfigsRequest()
		r.Version, r.IncludeSynonyms, r.IncludeDocumentation = 4, true, true
		for range n {
			r.Resources = append(r.Resources, kmsg.DescribeConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "1"})
		}
		return r
	}
	healthy(t, func() {
		for _, req := range []kmsg.Request{produce, names, metadata, configs(1_500_000), configs(20_000)} {
			c := dial(t)
			go c.Write(formatter.AppendRequest(nil, req, 1))
			if err := answer(c); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				if _, reset := errors.AsType[*net.OpError](err); !reset {
					t.Errorf("%s: %v", kmsg.NameForKey(req.Key()), err)
				}
			}
			c.Close()
		}
	})
	if after := status(t, "VmHWM"); after > before+700 {
		t.Errorf("%d MiB became %d", before, after)
	}
}

// TestClientsThatLeave parks fetches for minutes and leaves: the server lets go of the connections within seconds.
func TestClientsThatLeave(t *testing.T) {
	if serverPID == 0 {
		t.Skip("the server was not started here")
	}
	topic := newTopic(t)
	files := func() int {
		l, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", serverPID))
		if err != nil {
			t.Fatal(err)
		}
		return len(l)
	}
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version, fetch.MaxWaitMillis, fetch.MinBytes, fetch.MaxBytes, fetch.SessionEpoch = 11, 240_000, 1, 1<<20, -1
	p := kmsg.NewFetchRequestTopicPartition()
	p.PartitionMaxBytes = 1 << 20
	fetch.Topics = []kmsg.FetchRequestTopic{{Topic: topic, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
	frame := formatter.AppendRequest(nil, fetch, 1)
	before := files()
	const n = 100
	var conns []net.Conn
	for range n {
		c := dial(t)
		c.Write(frame)
		conns = append(conns, c)
	}
	half := dial(t) // closes its side only, and still gets its answer
	half.Write(frame)
	until(t, "connections", func() bool { return files() >= before+n })
	for _, c := range conns {
		c.Close()
	}
	half.(*net.TCPConn).CloseWrite()
	if err := answer(half); err != nil {
		t.Errorf("a client that closed its side got no answer: %v", err)
	}
	until(t, "connections gone", func() bool { return files() < before+n/2 })
}

// until waits for a condition for at most ten seconds.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after 10 s", what)
		}
	}
}

package main

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// hits waits until faults have answered n requests.
func hits(t *testing.T, h *kfake.FaultHandle, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := h.Wait(ctx, n); err != nil {
		t.Fatalf("%d answers of %d", h.Hits(), n)
	}
}

// onlyTheFirstIsLed is a description of topic two in which nobody leads partition 1.
func onlyTheFirstIsLed(r kmsg.Request, addr string, id [16]byte) kmsg.Response {
	resp := r.ResponseKind().(*kmsg.MetadataResponse)
	b := kmsg.NewMetadataResponseBroker()
	host, port, _ := net.SplitHostPort(addr)
	number, _ := strconv.Atoi(port)
	b.Host, b.Port = host, int32(number)
	resp.Brokers = append(resp.Brokers, b)
	rt := kmsg.NewMetadataResponseTopic()
	rt.Topic, rt.TopicID = kmsg.StringPtr("two"), id
	for p, leader := range []int32{0, -1} {
		rp := kmsg.NewMetadataResponseTopicPartition()
		rp.Partition, rp.Leader, rp.Replicas = int32(p), leader, []int32{0}
		if leader < 0 {
			rp.ErrorCode = kerr.LeaderNotAvailable.Code
		}
		rt.Partitions = append(rt.Partitions, rp)
	}
	resp.Topics = append(resp.Topics, rt)
	return resp
}

// A partition that lost its leader while others had theirs is read again when somebody leads it.
func TestConsumeReadsAPartitionThatIsLedAgain(t *testing.T) {
	t.Parallel()
	c, addr := fakeBroker(t, kfake.SeedTopics(2, "two"))
	produced(t, addr, "a\n", "two", "-p", "0")
	produced(t, addr, "b\n", "two", "-p", "1")
	cmd := start(addr, &stdout{room: -1}, "consume", "two", "-n", "4")
	until(t, "a and b", func() bool { return len(cmd.out.String()) == 4 })
	id := c.TopicInfo("two").TopicID
	var gone atomic.Bool
	var told atomic.Int32
	gone.Store(true)
	c.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if !gone.Load() {
			return nil, nil, false
		}
		told.Add(1)
		return onlyTheFirstIsLed(r, addr, id), nil, true
	})
	hits(t, c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "two", Partitions: []int32{1}, Err: kerr.NotLeaderForPartition}), 1)
	until(t, "that it asks who leads", func() bool { return told.Load() > 0 })
	produced(t, addr, "c\n", "two", "-p", "0")
	until(t, "what the other leader has", func() bool { return len(cmd.out.String()) == 6 })
	gone.Store(false)
	produced(t, addr, "d\n", "two", "-p", "1")
	if code := cmd.wait(t); code != 0 || cmd.out.String()[4:] != "c\nd\n" {
		t.Fatalf("exit %d, %q\n%s", code, cmd.out, cmd.words)
	}
}

// A range with an end that was not read in all partitions is done in part, as --exit is.
func TestConsumeOfARangeNamesWhatItMisses(t *testing.T) {
	t.Parallel()
	c, addr := fakeBroker(t, kfake.SeedTopics(2, "two"))
	produced(t, addr, "a\n", "two", "-p", "0")
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "two", Partitions: []int32{1}, Err: kerr.LeaderNotAvailable, Count: -1})
	for _, args := range [][]string{{"-O", "0-0"}, {"-O", "@0--1d"}, {"-O", "0-0", "--exit"}} {
		code, out, words := keeplog(t, addr, "", append([]string{"consume", "two", "--timeout", "1s"}, args...)...)
		if code != exitPart || !strings.Contains(words, "error: 1 partition not read: two-1\n") {
			t.Errorf("%v: exit %d, %q\n%s", args, code, out, words)
		}
	}
	// As many as were asked for are all.
	if code, out, words := keeplog(t, addr, "", "consume", "two", "-O", "0-0", "-n", "1", "--timeout", "1s"); code != 0 || out != "a\n" {
		t.Errorf("exit %d, %q\n%s", code, out, words)
	}
}

// Ctrl-C ends the question where a log begins that was trimmed meanwhile.
func TestInterruptWhileOutOfRange(t *testing.T) {
	c, addr := fakeBroker(t)
	produced(t, addr, "a\n", "orders")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Args = []string{"keeplog", "consume", "orders", "--timeout", "60s"}
	cmd.Env = append(os.Environ(), "KEEPLOG_BROKERS="+addr)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "a\n" || err != nil {
		t.Errorf("read %q, %v", line, err)
	}
	asked := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.OffsetNotAvailable, Count: -1})
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.OffsetOutOfRange})
	hits(t, asked, 1)
	_ = cmd.Process.Signal(syscall.SIGINT)
	tooLate := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer tooLate.Stop()
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
		t.Fatalf("ended with %v", err)
	}
}

// Once all leaders have answered nobody waits.
func TestBoundsDoNotLinger(t *testing.T) {
	_, addr := fakeBroker(t)
	a := &app{streams: streams{getenv: os.Getenv}, flags: globalFlags{brokers: addr, timeout: 10 * time.Second}}
	s, err := a.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	fastest := time.Hour
	for range 10 {
		begun := time.Now()
		b, err := s.bounds(t.Context(), []tp{{"orders", 0}}, boundsOptions{patience: time.Second})
		if err != nil || len(b.start) != 1 {
			t.Fatal(b, err)
		}
		fastest = min(fastest, time.Since(begun))
	}
	if fastest >= retryPause {
		t.Errorf("%s at the least", fastest)
	}
}

// A partition that cannot be read for longer than --timeout is told once, while others are read; what is behind it in an answer comes too.
func TestConsumeTellsOfAPartitionThatFails(t *testing.T) {
	t.Parallel()
	c, addr := fakeBroker(t, kfake.SeedTopics(3, "three"))
	bad := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "three", Partitions: []int32{1}, Err: kerr.KafkaStorageError, Count: -1})
	produced(t, addr, "a\n", "three", "-p", "0")
	produced(t, addr, "b\n", "three", "-p", "1")
	produced(t, addr, "c\n", "three", "-p", "2")
	cmd := start(addr, &stdout{room: -1}, "consume", "three", "-n", "4", "--timeout", "1s")
	until(t, "what can be read", func() bool { return len(cmd.out.String()) == 4 })
	told := "topic three partition 1 left out for now: KAFKA_STORAGE_ERROR"
	until(t, "that it is told", func() bool { return strings.Contains(cmd.words.String(), told) })
	was := bad.Hits()
	hits(t, bad, was+2) // it is asked again
	produced(t, addr, "d\n", "three", "-p", "0")
	until(t, "what can be read", func() bool { return len(cmd.out.String()) == 6 })
	bad.Remove()
	if code := cmd.wait(t); code != 0 || !strings.HasSuffix(cmd.out.String(), "d\nb\n") || strings.Count(cmd.words.String(), "left out") != 1 || !strings.Contains(cmd.words.String(), "is there again") {
		t.Fatalf("exit %d, %q\n%s", code, cmd.out, cmd.words)
	}
}

// With an end, it is an error that names the partition.
func TestConsumeEndsWhereAPartitionFails(t *testing.T) {
	t.Parallel()
	c, addr := fakeBroker(t, kfake.SeedTopics(3, "three"))
	produced(t, addr, "a\n", "three", "-p", "0")
	produced(t, addr, "b\n", "three", "-p", "1")
	produced(t, addr, "c\n", "three", "-p", "2")
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "three", Partitions: []int32{1}, Err: kerr.KafkaStorageError, Count: -1})
	cmd := start(addr, &stdout{room: -1}, "consume", "three", "--exit", "--timeout", "1s")
	if code := cmd.wait(t); code != exitFailed || len(cmd.out.String()) != 4 || !strings.Contains(cmd.words.String(), "error: topic three partition 1: KAFKA_STORAGE_ERROR (") {
		t.Fatalf("exit %d, %q\n%s", code, cmd.out, cmd.words)
	}
}

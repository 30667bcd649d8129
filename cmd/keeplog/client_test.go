package main

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/lag"
)

// keeplog runs the program in this process.
func keeplog(t *testing.T, brokers, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, words bytes.Buffer
	code = run(args, streams{
		in: strings.NewReader(stdin), out: &out, err: &words,
		getenv: func(k string) string { return map[string]string{"KEEPLOG_BROKERS": brokers}[k] },
	})
	return code, out.String(), words.String()
}

func fakeBroker(t *testing.T, opts ...kfake.Opt) (*kfake.Cluster, string) {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(1, "orders")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, c.ListenAddrs()[0]
}

// A broker that sends its clients to an address that they cannot reach is told apart from one that is not there.
func TestAdvertisedAddressIsNotReachable(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"topic", "describe", "orders"},
		{"consume", "orders", "--exit"},
		{"produce", "orders"},
	} {
		t.Run(args[0], func(t *testing.T) {
			c, addr := fakeBroker(t)
			c.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				asked := req.(*kmsg.MetadataRequest)
				resp := req.ResponseKind().(*kmsg.MetadataResponse)
				b := kmsg.NewMetadataResponseBroker()
				b.NodeID, b.Host, b.Port = 1, "127.0.0.1", 1
				resp.Brokers = append(resp.Brokers, b)
				resp.ControllerID = 1
				for _, topic := range asked.Topics {
					rt := kmsg.NewMetadataResponseTopic()
					rt.Topic, rt.TopicID = topic.Topic, [16]byte{1}
					p := kmsg.NewMetadataResponseTopicPartition()
					p.Leader, p.Replicas, p.ISR = 1, []int32{1}, []int32{1}
					rt.Partitions = append(rt.Partitions, p)
					resp.Topics = append(resp.Topics, rt)
				}
				return resp, nil, true
			})
			code, out, words := keeplog(t, addr, "x\n", append(args, "--timeout", "700ms")...)
			words = words[max(0, strings.Index(words, "error:")):]
			want := "error: cannot reach broker 1 at 127.0.0.1:1 (connection refused)\n" +
				"why:   " + addr + " answered, and told this client to use the name 127.0.0.1:1\n" +
				"try:   set advertised.listeners to a name that clients can resolve and reach\n"
			if code != exitUnreachable || out != "" || words != want {
				t.Fatalf("exit %d, stdout %q\n%s", code, out, cmp.Diff(want, words))
			}
		})
	}
}

// A broker that answers every batch with an error that may pass is named when --timeout is over, not called silent.
func TestBrokerThatRefusesIsQuoted(t *testing.T) {
	t.Parallel()
	c, addr := fakeBroker(t)
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := r.ResponseKind().(*kmsg.ProduceResponse)
		for _, topic := range r.(*kmsg.ProduceRequest).Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = topic.Topic, topic.TopicID
			for _, p := range topic.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.ErrorCode, rp.BaseOffset = p.Partition, kerr.KafkaStorageError.Code, -1
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	code, _, words := keeplog(t, addr, "x\n", "produce", "orders", "--timeout", "2s")
	want := `error: topic orders: KAFKA_STORAGE_ERROR (Disk error when trying to access log file on the disk)
why:   the broker cannot write: its disk is full or broken
try:   make room on its disk (keeplog topic delete, keeplog topic trim): it goes on by itself
`
	if _, got, _ := strings.Cut(words, "\n"); code != exitFailed || got != want {
		t.Fatalf("exit %d\n%s", code, cmp.Diff(want, got))
	}
}

// Input that ends in an error is no broken connection, and what was sent before it counts.
func TestBrokenInput(t *testing.T) {
	_, addr := fakeBroker(t)
	dir := t.TempDir()
	one := filepath.Join(dir, "one")
	if err := os.WriteFile(one, []byte("a\nb\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ file, want string }{
		{dir, "error: " + dir + ": cannot read it (is a directory)\n"},
		{one + "x", "error: " + one + "x: no such file or directory\n"},
	} {
		code, _, words := keeplog(t, addr, "", "produce", "orders", one, tc.file)
		if first, rest, _ := strings.Cut(words, "\n"); code != exitPart || !strings.HasPrefix(first, "produced 2 records, 2 B in ") || rest != tc.want {
			t.Errorf("exit %d:\n%s", code, words)
		}
	}
}

// A command line that is shown to be pasted means the same to a shell.
func TestShellWord(t *testing.T) {
	for in, want := range map[string]string{
		"": "''", "orders": "orders", "-c": "-c", "a=b:1/2,3@x%y": "a=b:1/2,3@x%y", "two words": "'two words'", "it's": `'it'\''s'`, "$HOME": "'$HOME'",
	} {
		if got := shellWord(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

// A broker that accepts and never answers is given up after --timeout.
func TestSilentBrokerTimesOut(t *testing.T) {
	t.Parallel()
	c, addr := fakeBroker(t)
	over := make(chan struct{})
	defer close(over)
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		c.SleepControl(func() { <-over })
		return nil, nil, false
	})
	code, _, words := keeplog(t, addr, "x\n", "produce", "orders", "--timeout", "500ms")
	if code != exitUnreachable || !strings.Contains(words, "error: topic orders: no answer within 500ms\n") {
		t.Fatalf("exit %d\n%s", code, words)
	}
}

// What a broker refuses is told by its Kafka name, and what was sent before counts.
func TestProduceErrorNamesTheCode(t *testing.T) {
	c, addr := fakeBroker(t)
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, topic := range req.(*kmsg.ProduceRequest).Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = topic.Topic, topic.TopicID
			p := kmsg.NewProduceResponseTopicPartition()
			p.ErrorCode = kerr.InvalidRecord.Code
			rt.Partitions = append(rt.Partitions, p)
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	code, _, words := keeplog(t, addr, "x\n", "produce", "orders")
	if code != exitFailed || !strings.Contains(words, "error: topic orders: INVALID_RECORD (") {
		t.Fatalf("exit %d\n%s", code, words)
	}
}

// While a fetch fails with a retriable error consume goes on; what it then prints is whole.
func TestConsumeOutlivesAChangeOfLeader(t *testing.T) {
	c, addr := fakeBroker(t)
	if code, _, words := keeplog(t, addr, "a\nb\n", "produce", "orders"); code != 0 {
		t.Fatal(words)
	}
	var refused atomic.Int32
	c.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if refused.Add(1) > 3 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		for _, topic := range req.(*kmsg.FetchRequest).Topics {
			rt := kmsg.NewFetchResponseTopic()
			rt.Topic, rt.TopicID = topic.Topic, topic.TopicID
			p := kmsg.NewFetchResponseTopicPartition()
			p.ErrorCode = kerr.NotLeaderForPartition.Code
			rt.Partitions = append(rt.Partitions, p)
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	code, out, words := keeplog(t, addr, "", "consume", "orders", "--exit")
	if code != 0 || out != "a\nb\n" || refused.Load() < 4 {
		t.Fatalf("exit %d, refused %d, stdout %q\n%s", code, refused.Load(), out, words)
	}
}

// A batch that rotted on its way to us is an error with exit code 5, and nothing of it is printed.
func TestConsumeChecksEveryBatch(t *testing.T) {
	c, addr := fakeBroker(t)
	if code, _, words := keeplog(t, addr, "a\nb\n", "produce", "orders"); code != 0 {
		t.Fatal(words)
	}
	c.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		for _, topic := range req.(*kmsg.FetchRequest).Topics {
			rt := kmsg.NewFetchResponseTopic()
			rt.Topic, rt.TopicID = topic.Topic, topic.TopicID
			p := kmsg.NewFetchResponseTopicPartition()
			p.HighWatermark = 2
			b := kmsg.RecordBatch{Length: 49 + 4, Magic: 2, LastOffsetDelta: 1, NumRecords: 2, CRC: 7, Records: []byte{1, 2, 3, 4}}
			p.RecordBatches = b.AppendTo(nil)
			rt.Partitions = append(rt.Partitions, p)
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	code, out, words := keeplog(t, addr, "", "consume", "orders", "--exit")
	if code != exitDamaged || out != "" || !strings.HasPrefix(words, "error: topic orders partition 0 offset 0: CORRUPT_MESSAGE (") {
		t.Fatalf("exit %d, stdout %q\n%s", code, out, words)
	}
}

// Ctrl-C ends with 130, after what was read has been printed, and what is shown again and again too.
func TestInterrupt(t *testing.T) {
	_, addr := fakeBroker(t)
	if code, _, words := keeplog(t, addr, "a\n", "produce", "orders"); code != 0 {
		t.Fatal(words)
	}
	shown := lagBroker(t, func(q *lag.Query, topic [16]byte) *lag.Answer { return tellPart(q, topic, lag.Here) })
	interrupted(t, addr, "a\n", "consume", "orders")
	interrupted(t, shown, "billing  Empty  0  3  0s  -\n", "group", "lag", "--watch", "--no-headers")
}

// interrupted runs the program, sends it SIGINT after its first line, and wants the exit code for that.
func interrupted(t *testing.T, addr, first string, args ...string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Args = append([]string{"keeplog"}, args...)
	cmd.Env = append(os.Environ(), "KEEPLOG_BROKERS="+addr)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != first || err != nil {
		t.Errorf("read %q, %v", line, err)
	}
	_ = cmd.Process.Signal(syscall.SIGINT)
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
		t.Fatalf("ended with %v", err)
	}
}

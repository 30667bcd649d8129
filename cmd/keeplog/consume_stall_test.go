package main

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/record"
)

// slowOnce is a stdout whose first write takes longer than --timeout.
type slowOnce struct {
	stdout
	timeout time.Duration
	slow    atomic.Bool
}

func (w *slowOnce) Write(p []byte) (int, error) {
	if w.slow.CompareAndSwap(false, true) {
		<-time.After(w.timeout + time.Second)
	}
	return w.stdout.Write(p)
}

// While stdout takes nothing nobody is silent: the run does not end before the end.
func TestGroupExitBehindASlowReader(t *testing.T) {
	t.Parallel()
	_, addr := fakeBroker(t)
	want := numbered(30_000) // three polls
	produced(t, addr, want, "orders")
	out := &slowOnce{stdout: stdout{room: -1}, timeout: 2 * time.Second}
	var words strings.Builder
	code := run([]string{"consume", "-g", "g", "orders", "--exit", "--timeout", "2s"}, streams{
		in: strings.NewReader(""), out: out, err: &words,
		getenv: func(k string) string { return map[string]string{"KEEPLOG_BROKERS": addr}[k] },
	})
	if code != 0 || out.String() != want {
		t.Fatalf("exit %d after %d bytes of %d\n%s", code, out.taken, len(want), &words)
	}
}

// In a rebalance nothing can be committed, and reading goes on.
func TestGroupReadsOnInARebalance(t *testing.T) {
	t.Parallel()
	c, addr := fakeBroker(t)
	produced(t, addr, "a\n", "orders")
	cmd := start(addr, &stdout{room: -1}, "consume", "-g", "g", "orders", "-n", "5", "--timeout", "60s")
	until(t, "a, and its commit", func() bool { return cmd.out.String() == "a\n" && committed(c, "g") == 1 })
	joins, over := make(chan struct{}), make(chan struct{})
	c.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.DropControl()
		close(joins)
		c.SleepControl(func() { <-over })
		return nil, nil, false
	})
	hits(t, c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: "g", TopLevel: true, Err: kerr.RebalanceInProgress}), 1)
	<-joins
	want := "a\n"
	for _, line := range []string{"b\n", "c\n"} { // a commit is tried behind b
		produced(t, addr, line, "orders")
		want += line
		until(t, line, func() bool { return cmd.out.String() == want })
	}
	close(over)
	until(t, "that c is committed", func() bool { return committed(c, "g") == 3 })
	produced(t, addr, "d\ne\n", "orders")
	if code := cmd.wait(t); code != 0 {
		t.Fatalf("exit %d, %q\n%s", code, cmd.out, cmd.words)
	}
}

// A broker that is away for a while does not end a member.
func TestGroupOutlivesARestart(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"classic", "consumer"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c, addr := fakeBroker(t, kfake.DataDir(dir))
			_, number, _ := net.SplitHostPort(addr)
			port, _ := strconv.Atoi(number)
			produced(t, addr, "a\n", "orders")
			cmd := start(addr, &stdout{room: -1}, "consume", "-g", "g", "orders", "-n", "2", "--timeout", "1s", "--protocol", protocol)
			until(t, "a, and its commit", func() bool { return cmd.out.String() == "a\n" && committed(c, "g") == 1 })
			c.Close()
			until(t, "that it waits, or ends", func() bool {
				words := cmd.words.String()
				return strings.Contains(words, "waiting: ") || strings.Contains(words, "left out for now: ") || len(cmd.ended) > 0
			})
			_, addr = fakeBroker(t, kfake.DataDir(dir), kfake.Ports(port))
			produced(t, addr, "b\n", "orders")
			if code := cmd.wait(t); code != 0 || cmd.out.String() != "a\nb\n" {
				t.Fatalf("exit %d, %q\n%s", code, cmd.out, cmd.words)
			}
		})
	}
}

// answerFetch has a broker hold other batches in orders than were produced.
func answerFetch(c *kfake.Cluster, end int64, batches func(offset int64) ([]byte, *kerr.Error)) {
	c.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := r.ResponseKind().(*kmsg.FetchResponse)
		for _, topic := range r.(*kmsg.FetchRequest).Topics {
			rt := kmsg.NewFetchResponseTopic()
			rt.Topic, rt.TopicID = topic.Topic, topic.TopicID
			for _, p := range topic.Partitions {
				rp := kmsg.NewFetchResponseTopicPartition()
				rp.Partition, rp.HighWatermark, rp.LastStableOffset = p.Partition, end, end
				var failed *kerr.Error
				if rp.RecordBatches, failed = batches(p.FetchOffset); failed != nil {
					rp.ErrorCode = failed.Code
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		if len(resp.Topics) == 0 || resp.Topics[0].Partitions[0].RecordBatches == nil {
			c.SleepControl(func() { <-time.After(50 * time.Millisecond) }) // as long as there is nothing new
		}
		return resp, nil, true
	})
}

// oneRecord is a batch of offsets 0 and 1 of which only the first is left.
func oneRecord(t *testing.T) record.Batch {
	t.Helper()
	b := record.NewBuilder(record.NewOptions())
	b.Append(1, nil, []byte("a"))
	b.KeepLastOffset(1)
	batch, err := b.Batch(record.NewCodecs())
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

// A run with an end comes to it where no record stands before it: where a repair has emptied a batch, or a compaction has taken the tail, or all.
func TestGroupExitsBehindWhatHasNoRecords(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		batch []byte // of offsets 0 and 1
		want  string
	}{
		"an emptied batch":    {record.Empty(oneRecord(t)), ""},
		"a tail that is gone": {oneRecord(t), "a\n"},
		"all is gone":         {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, addr := fakeBroker(t)
			produced(t, addr, "a\nb\n", "orders")
			answerFetch(c, 2, func(offset int64) ([]byte, *kerr.Error) {
				if offset < 2 {
					return tc.batch, nil
				}
				return nil, nil
			})
			cmd := start(addr, &stdout{room: -1}, "consume", "-g", "g", "orders", "--exit")
			if code := cmd.wait(t); code != 0 || cmd.out.String() != tc.want || committed(c, "g") != 2 {
				t.Fatalf("exit %d, %q, %d committed\n%s", code, cmd.out, committed(c, "g"), cmd.words)
			}
		})
	}
}

// A damaged batch ends a member too, with 5, and its offset is told; what stands before it is printed and committed.
func TestGroupTellsOfDamage(t *testing.T) {
	t.Parallel()
	good := oneRecord(t) // 0 and 1
	bad := slices.Clone(good)
	bad.SetBaseOffset(2)
	bad[len(bad)-1] ^= 1
	for _, tc := range []struct {
		who  string
		args []string
		end  int64 // of the log
		exit int
	}{
		{"the broker", nil, 4, exitDamaged},
		{"the broker", []string{"--exit"}, 4, exitDamaged},
		{"the client", nil, 4, exitDamaged},
		{"the client", []string{"--exit"}, 4, exitDamaged},
		{"the client", []string{"--exit"}, 2, exitDone}, // it is behind the end
	} {
		t.Run(fmt.Sprint(tc.who, tc.args, tc.end), func(t *testing.T) {
			t.Parallel()
			c, addr := fakeBroker(t)
			produced(t, addr, numbered(int(tc.end)), "orders")
			answerFetch(c, 4, func(offset int64) ([]byte, *kerr.Error) {
				switch {
				case tc.who == "the client" && offset < 2:
					return append(slices.Clone(good), bad...), nil
				case tc.who == "the client":
					return bad, nil
				case offset < 2:
					return good, nil
				}
				return nil, kerr.CorruptMessage
			})
			cmd := start(addr, &stdout{room: -1}, append([]string{"consume", "-g", "g", "orders", "--timeout", "2s"}, tc.args...)...)
			code := cmd.wait(t)
			says := "error: topic orders partition 0 offset 2: CORRUPT_MESSAGE ("
			try := "keeplog group seek g --to OFFSET --topic orders:0 "
			damaged := strings.Contains(cmd.words.String(), says) && strings.Contains(cmd.words.String(), try)
			if code != tc.exit || cmd.out.String() != "a\n" || damaged != (tc.exit == exitDamaged) || committed(c, "g") < 1 {
				t.Fatalf("exit %d, %q, %d committed\n%s", code, cmd.out, committed(c, "g"), cmd.words)
			}
		})
	}
}

// A member that has waited for long before it is put out has --timeout to join again, counted from then on, not from each try that fails.
func TestGroupIsGivenTimeToJoinAgain(t *testing.T) {
	g := &grouped{app: &app{}, parts: map[tp]*owned{}, began: true, waited: time.Hour}
	g.gone(t.Context(), nil, nil)
	if g.began || g.moved != time.Hour {
		t.Fatal(g.began, g.moved)
	}
	g.waited += time.Second
	g.gone(t.Context(), nil, nil)
	if g.moved != time.Hour {
		t.Fatal(g.moved)
	}
}

// A leader that does not answer is not asked each second what stands next: meanwhile nothing would be read from others.
func TestGroupDoesNotLookAgainAtASilentLeader(t *testing.T) {
	t.Parallel()
	addr := halfSilent(t)
	a := &app{streams: streams{getenv: func(string) string { return "" }}, flags: globalFlags{brokers: addr, timeout: 10 * time.Second}}
	s, err := a.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	g := &grouped{app: a, plan: s, flags: &consumeFlags{exit: true}, parts: map[tp]*owned{}, began: true, waited: time.Second}
	silent := tp{"halves", 0} // led by the silent one
	g.parts[silent] = &owned{part: part{tp: silent, stop: 1}}
	if err := g.stalled(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := g.parts[silent]; p.looked != g.waited+a.flags.timeout || p.next != 0 {
		t.Errorf("it is looked at again after %s of %s", p.looked-g.waited, a.flags.timeout)
	}
}

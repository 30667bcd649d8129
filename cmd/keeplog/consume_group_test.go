package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// stdout is what a running command writes to. It can be read meanwhile, and made to fail.
type stdout struct {
	mu    sync.Mutex
	all   bytes.Buffer
	room  int // writes that it still takes; below 0: any number
	taken int // bytes of the writes that it took
}

var errFull = errors.New("no space left on device")

func (w *stdout) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.room == 0 {
		return 0, errFull
	}
	w.room--
	w.taken += len(p)
	return w.all.Write(p)
}

func (w *stdout) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.String()
}

// command is one that runs while a test goes on.
type command struct {
	out, words *stdout
	ended      chan int
}

// start runs the program beside the test. Whoever starts it waits for its end.
func start(brokers string, out *stdout, args ...string) *command {
	c := &command{out: out, words: &stdout{room: -1}, ended: make(chan int, 1)}
	go func() {
		c.ended <- run(args, streams{
			in: strings.NewReader(""), out: out, err: c.words,
			getenv: func(k string) string { return map[string]string{"KEEPLOG_BROKERS": brokers}[k] },
		})
	}()
	return c
}

// wait returns the exit code.
func (c *command) wait(t *testing.T) int {
	t.Helper()
	select {
	case code := <-c.ended:
		return code
	case <-time.After(30 * time.Second):
		t.Fatalf("it does not end: stdout %q\n%s", c.out, c.words)
		return 0
	}
}

// until waits for what must come.
func until(t *testing.T, what string, come func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !come(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not come: %s", what)
		}
	}
}

func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%06d\n", i)
	}
	return b.String()
}

func produced(t *testing.T, addr, text string, args ...string) {
	t.Helper()
	if code, _, words := keeplog(t, addr, text, append([]string{"produce", "-q"}, args...)...); code != 0 {
		t.Fatalf("exit %d\n%s", code, words)
	}
}

// committed is what a group has committed of partition 0 of orders; 0 is nothing too.
func committed(c *kfake.Cluster, group string) int64 {
	info := c.GroupInfo(group)
	if info == nil {
		return -1
	}
	return info.Commits["orders"][0].Offset
}

// What stdout did not take is not committed, whichever write fails.
func TestGroupCommitsNothingUnwritten(t *testing.T) {
	t.Parallel()
	const records = 100_000 // of 7 bytes: more than two writes
	c, addr := fakeBroker(t)
	produced(t, addr, numbered(records), "orders")
	for _, protocol := range []string{"classic", "consumer"} {
		for _, room := range []int{0, 1, 2} {
			group := fmt.Sprintf("%s-%d", protocol, room)
			out := &stdout{room: room}
			cmd := start(addr, out, "consume", "-g", group, "orders", "--exit", "--protocol", protocol)
			if code := cmd.wait(t); code != exitFailed || !strings.Contains(cmd.words.String(), "error: cannot write to stdout: no space left on device\n") {
				t.Errorf("%s: exit %d\n%s", group, code, cmd.words)
			}
			if got, want := committed(c, group), int64(out.taken/7); got != want || want == records || room > 0 && want == 0 {
				t.Errorf("%s: %d committed, and stdout took %d", group, got, want)
			}
		}
	}
	// What was refused comes again.
	next := committed(c, "classic-1")
	cmd := start(addr, &stdout{room: -1}, "consume", "-g", "classic-1", "orders", "--exit")
	if code := cmd.wait(t); code != 0 || !strings.HasPrefix(cmd.out.String(), fmt.Sprintf("%06d\n", next)) {
		t.Errorf("exit %d, %.20q\n%s", code, cmd.out, cmd.words)
	}
}

// A member is not at the end before it knows where the group is: neither while that is asked, nor after it was put out of the group.
func TestGroupExitWaitsForItsPlaces(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"the answer is late", "put out"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, addr := fakeBroker(t)
			produced(t, addr, "a\n", "orders")
			switch name {
			case "the answer is late":
				c.ControlKey(int16(kmsg.OffsetFetch), func(kmsg.Request) (kmsg.Response, error, bool) {
					c.DropControl()
					c.SleepControl(func() { <-time.After(settleTime + 4*pollWait) })
					return nil, nil, false
				})
			default:
				c.ControlKey(int16(kmsg.OffsetFetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
					resp := r.ResponseKind().(*kmsg.OffsetFetchResponse)
					g := kmsg.NewOffsetFetchResponseGroup()
					g.Group, g.ErrorCode = "g", kerr.IllegalGeneration.Code
					resp.Groups = append(resp.Groups, g)
					return resp, nil, true
				})
				joins := 0
				c.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
					c.KeepControl()
					if joins++; joins > 2 { // as the id comes with the first answer
						c.SleepControl(func() { <-time.After(settleTime + 4*pollWait) })
					}
					return nil, nil, false
				})
			}
			cmd := start(addr, &stdout{room: -1}, "consume", "-g", "g", "orders", "--exit")
			if code := cmd.wait(t); code != 0 || cmd.out.String() != "a\n" {
				t.Fatalf("exit %d, %q\n%s", code, cmd.out, cmd.words)
			}
		})
	}
}

// A member that the group has put out, for example as it was paused, joins again and reads on.
func TestGroupMemberJoinsAgain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		protocol string
		why      *kerr.Error
	}{{"classic", kerr.UnknownMemberID}, {"classic", kerr.IllegalGeneration}, {"consumer", kerr.FencedMemberEpoch}} {
		t.Run(tc.protocol+" "+tc.why.Message, func(t *testing.T) {
			t.Parallel()
			c, addr := fakeBroker(t)
			produced(t, addr, "a\n", "orders")
			cmd := start(addr, &stdout{room: -1}, "consume", "-g", "g", "orders", "-n", "2", "--protocol", tc.protocol)
			until(t, "a, and its commit", func() bool { return cmd.out.String() == "a\n" && committed(c, "g") == 1 })
			h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat, kmsg.ConsumerGroupHeartbeat}, Group: "g", TopLevel: true, Err: tc.why})
			hits(t, h, 1)
			until(t, "that it is told", func() bool { return strings.Contains(cmd.words.String(), "group g: lost orders:0\n") })
			produced(t, addr, "b\n", "orders")
			if code := cmd.wait(t); code != 0 || cmd.out.String() != "a\nb\n" {
				t.Fatalf("exit %d, %q\n%s", code, cmd.out, cmd.words)
			}
		})
	}
}

// Where -O says counts for a partition too whose leader was late when the command began.
func TestGroupPlacesALatePartition(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"end", "-0", "@now"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			c, addr := fakeBroker(t, kfake.SeedTopics(1, "other"))
			produced(t, addr, "a\n", "orders")
			late := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "orders", Err: kerr.LeaderNotAvailable, Count: -1})
			c.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
				c.DropControl()
				late.Remove()
				return nil, nil, false
			})
			cmd := start(addr, &stdout{room: -1}, "consume", "-g", "g", "orders", "other", "-O", where, "-n", "1", "--timeout", "2s")
			until(t, "that the group keeps its place", func() bool { return committed(c, "g") == 1 })
			produced(t, addr, "b\n", "orders")
			if code := cmd.wait(t); code != 0 || cmd.out.String() != "b\n" {
				t.Fatalf("exit %d, %q\n%s", code, cmd.out, cmd.words)
			}
		})
	}
}

// What a group has committed past the end of a log is told, and not taken for the end.
func TestGroupCommittedPastTheEnd(t *testing.T) {
	t.Parallel()
	_, addr := fakeBroker(t)
	produced(t, addr, "a\nb\n", "orders")
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var at kadm.Offsets
	at.AddOffset("orders", 0, 50, -1)
	if _, err := kadm.NewClient(client).CommitOffsets(t.Context(), "g", at); err != nil {
		t.Fatal(err)
	}
	code, out, words := keeplog(t, addr, "", "consume", "-g", "g", "orders", "--exit")
	if code != 0 || out != "a\nb\n" || !strings.Contains(words, "topic orders partition 0: what the group has committed, offset 50, is past the end, 2; reading from 0\n") {
		t.Fatalf("exit %d, %q\n%s", code, out, words)
	}
}

// A member waits in silence for nothing longer than --timeout: with --exit it ends then and says why, else it says so once and goes on.
func TestGroupTellsWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		fault kfake.Fault
		words string // stderr of a run with --exit, whose exit code is code, ends with this
		code  int
		says  string // what one without says
		dies  bool   // it ends too
	}{
		{
			"its log is offline",
			kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch, kmsg.ListOffsets}, Topic: "orders", Err: kerr.KafkaStorageError},
			"error: topic orders partition 0: KAFKA_STORAGE_ERROR (", exitFailed, "left out for now: topic orders partition 0: KAFKA_STORAGE_ERROR (", false,
		},
		{
			"the coordinator loads",
			kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup, kmsg.OffsetFetch}, Group: "g", TopLevel: true, Err: kerr.CoordinatorLoadInProgress},
			"error: group g: COORDINATOR_LOAD_IN_PROGRESS (", exitUnreachable, "error: group g: COORDINATOR_LOAD_IN_PROGRESS (", true,
		},
		{
			"the members do not agree",
			kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Group: "g", TopLevel: true, Err: kerr.RebalanceInProgress},
			"error: group g: REBALANCE_IN_PROGRESS (not all of its members have joined within 1s)\n", exitUnreachable,
			"waiting: group g: REBALANCE_IN_PROGRESS (not all of its members have joined within 1s)\n", false,
		},
		{
			"the topic goes",
			kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch, kmsg.Metadata}, Topic: "orders", Err: kerr.UnknownTopicOrPartition},
			"error: topic orders: UNKNOWN_TOPIC_OR_PARTITION (it was deleted)\n", exitFailed, "error: topic orders: UNKNOWN_TOPIC_OR_PARTITION (it was deleted)\n", true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, exit := range []bool{true, false} {
				c, addr := fakeBroker(t)
				produced(t, addr, "a\n", "orders")
				args := []string{"consume", "-g", "g", "orders", "-n", "1", "--timeout", "1s"}
				if exit {
					args = append(args, "--exit")
				}
				tc.fault.Count = -1
				faults := make(chan *kfake.FaultHandle, 1)
				c.ControlKey(int16(kmsg.FindCoordinator), func(kmsg.Request) (kmsg.Response, error, bool) {
					c.DropControl()
					faults <- c.Fault(tc.fault)
					return nil, nil, false
				})
				cmd := start(addr, &stdout{room: -1}, args...)
				if exit || tc.dies {
					words, want := tc.words, tc.code
					if code := cmd.wait(t); code != want || !strings.Contains(cmd.words.String(), words) {
						t.Fatalf("exit %d, %q\n%s", code, cmd.out, cmd.words)
					}
					continue
				}
				until(t, tc.says, func() bool { return strings.Contains(cmd.words.String(), tc.says) })
				(<-faults).Remove()
				if code := cmd.wait(t); code != 0 || cmd.out.String() != "a\n" || strings.Count(cmd.words.String(), tc.says) != 1 {
					t.Fatalf("exit %d, %q\n%s", code, cmd.out, cmd.words)
				}
			}
		})
	}
}

// A member whose reader goes, as in "| head", commits nothing more and leaves its group at once.
func TestGroupMemberLeavesAClosedPipe(t *testing.T) {
	t.Parallel()
	c, addr := fakeBroker(t)
	produced(t, addr, "a\n", "orders")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Args = []string{"keeplog", "consume", "-g", "g", "orders"}
	cmd.Env = append(os.Environ(), "KEEPLOG_BROKERS="+addr)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var words bytes.Buffer
	cmd.Stderr = &words
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "a\n" || err != nil {
		t.Errorf("read %q, %v", line, err)
	}
	_ = out.Close()
	produced(t, addr, "b\n", "orders")
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitPipe || strings.Contains(words.String(), "error") {
		t.Errorf("ended with %v\n%s", err, &words)
	}
	if info := c.GroupInfo("g"); len(info.Members) != 0 || info.Commits["orders"][0].Offset != 1 {
		t.Errorf("left behind: %+v", info)
	}
}

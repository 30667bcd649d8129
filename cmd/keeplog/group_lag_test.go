package main

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/lag"
	"github.com/keeplog/keeplog/server/api"
)

// lagBroker is a broker with two partitions of orders and an empty group, billing, that answers questions about lag as tell does.
func lagBroker(t *testing.T, tell func(q *lag.Query, topic [16]byte) *lag.Answer) string {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	listEmpty(c, "billing")
	answerLag(t, c, c.TopicInfo("orders").TopicID, tell)
	return c.ListenAddrs()[0]
}

// answerLag has a broker answer questions about lag.
func answerLag(t *testing.T, c *kfake.Cluster, topic [16]byte, tell func(q *lag.Query, topic [16]byte) *lag.Answer) {
	c.ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := r.ResponseKind().(*kmsg.ListOffsetsResponse)
		asked := false
		r.(*kmsg.ListOffsetsRequest).UnknownTags.Each(func(key uint32, value []byte) {
			q, err := lag.ParseQuery(value)
			if key != api.TagLag || err != nil {
				t.Errorf("tag %d, %v", key, err)
				return
			}
			asked = true
			if a := tell(q, topic); a != nil {
				resp.UnknownTags.Set(api.TagLag, lag.AppendAnswer(nil, a))
			}
		})
		return resp, nil, asked
	})
}

// listEmpty has a broker list an empty group.
func listEmpty(c *kfake.Cluster, name string) {
	c.ControlKey(int16(kmsg.ListGroups), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := r.ResponseKind().(*kmsg.ListGroupsResponse)
		g := kmsg.NewListGroupsResponseGroup()
		g.Group, g.ProtocolType, g.GroupState, g.GroupType = name, "consumer", "Empty", "classic"
		resp.Groups = append(resp.Groups, g)
		return resp, nil, true
	})
}

// tellPart is what a broker tells that leads partition 0 of orders, where billing is 3 behind, and not partition 1, which where says who leads.
func tellPart(q *lag.Query, topic [16]byte, where lag.Place) *lag.Answer {
	a := &lag.Answer{}
	if q.Sums {
		a.Sums = append(a.Sums, lag.Sum{Group: "billing", Lag: 3, Partitions: 1})
		if where == lag.Nowhere {
			a.Nowhere, a.Missing = 1, map[string]int{"billing": 1}
		}
		return a
	}
	line := func(p int32, e lag.Extent) lag.Line {
		return lag.Line{
			Group: "billing", Partition: lag.Partition{Topic: topic, Partition: p}, Committed: 1, Extent: e, In: lag.Unknown, Out: lag.Unknown,
		}
	}
	a.Lines = append(a.Lines, line(0, lag.Extent{Start: 0, End: 4}))
	if where == lag.Nowhere || where == lag.Elsewhere && q.Others {
		other := line(1, lag.Extent{Start: lag.Unknown, End: lag.Unknown})
		other.Leaderless, other.Behind = where == lag.Nowhere, lag.Unknown
		a.Lines = append(a.Lines, other)
	}
	return a
}

// A lag of which a part is not known is marked as such, and the exit code says that not all was told.
func TestLagOfAPartIsMarked(t *testing.T) {
	for _, tc := range []struct {
		name  string
		where lag.Place
		why   string
	}{
		{"a partition without a leader", lag.Nowhere, "no leader"},
		{"a partition whose leader changes", lag.Elsewhere, "its leader does not tell"},
	} {
		addr := lagBroker(t, func(q *lag.Query, topic [16]byte) *lag.Answer { return tellPart(q, topic, tc.where) })
		code, out, words := keeplog(t, addr, "", "group", "lag")
		if code != exitPart || !strings.Contains(out, "billing  Empty  0        ≥3   0s") || !strings.Contains(words, "error: the whole lag is not known of billing (in 1 partition)") {
			t.Errorf("%s: exit %d\n%s%s", tc.name, code, out, words)
		}
		code, out, words = keeplog(t, addr, "", "group", "lag", "billing")
		if code != exitPart || !strings.Contains(out, tc.why) || !strings.Contains(out, "≥3   0s\n") {
			t.Errorf("%s: exit %d\n%s%s", tc.name, code, out, words)
		}
		code, out, _ = keeplog(t, addr, "", "group", "lag", "billing", "--by", "member", "--no-headers")
		if code != exitPart || !strings.HasPrefix(out, "(nobody)  2  ≥3  0s\ntotal     2  ≥3  0s\n") {
			t.Errorf("%s: exit %d\n%s", tc.name, code, out)
		}
		if code, out, _ = keeplog(t, addr, "", "group", "explain", "billing"); code != exitDone || !strings.Contains(out, "lag at least 3, not known in 1 partition") {
			t.Errorf("%s: exit %d\n%s", tc.name, code, out)
		}
	}
	addr := lagBroker(t, func(q *lag.Query, topic [16]byte) *lag.Answer { return tellPart(q, topic, lag.Here) })
	if code, out, words := keeplog(t, addr, "", "group", "lag"); code != exitDone || !strings.Contains(out, "billing  Empty  0        3 ") {
		t.Errorf("exit %d\n%s%s", code, out, words)
	}
}

// group list has no number where a part of it is not known.
func TestListedLagIsTheWhole(t *testing.T) {
	for _, where := range []lag.Place{lag.Here, lag.Nowhere} {
		addr := lagBroker(t, func(q *lag.Query, topic [16]byte) *lag.Answer { return tellPart(q, topic, where) })
		code, out, words := keeplog(t, addr, "", "group", "list", "-o", "jsonl")
		var row groupRow
		if err := json.Unmarshal([]byte(out), &row); err != nil {
			t.Fatal(err, out)
		}
		if where == lag.Here {
			if code != exitDone || row.Lag == nil || *row.Lag != 3 {
				t.Errorf("exit %d\n%s%s", code, out, words)
			}
			continue
		}
		if code != exitPart || row.Lag != nil || !strings.Contains(words, "the whole lag is not known of billing") {
			t.Errorf("exit %d\n%s%s", code, out, words)
		}
	}
}

// From a broker that computes no lags, offsets are told, and what it refuses is an error. Who has read all is not behind.
func TestLagAtAnotherBroker(t *testing.T) {
	c, addr := fakeBroker(t)
	if code, _, words := keeplog(t, addr, "a\nb\nc\n", "produce", "orders"); code != exitDone {
		t.Fatal(words)
	}
	seek := func(to string) {
		t.Helper()
		if code, _, words := keeplog(t, addr, "", "group", "seek", "billing", "--to", to, "--topic", "orders", "-y"); code != exitDone {
			t.Fatal(words)
		}
	}
	seek("end")
	if code, out, words := keeplog(t, addr, "", "group", "lag", "billing", "--alert", "30s"); code != exitDone || !strings.Contains(out, "orders  0          3          3    0    0s      -      -") {
		t.Errorf("exit %d\n%s%s", code, out, words)
	}
	seek("1")
	if code, out, words := keeplog(t, addr, "", "group", "lag", "billing"); code != exitDone || !strings.Contains(out, "orders  0          1          3    2    -       -      -") {
		t.Errorf("exit %d\n%s%s", code, out, words)
	}
	if code, _, words := keeplog(t, addr, "", "group", "lag", "billing", "--alert", "30s"); code != exitPart || !strings.Contains(words, "not known whether above 30s: billing") {
		t.Errorf("exit %d\n%s", code, words)
	}
	c.ControlKey(int16(kmsg.OffsetFetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := r.ResponseKind().(*kmsg.OffsetFetchResponse)
		resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
		for _, g := range r.(*kmsg.OffsetFetchRequest).Groups {
			rg := kmsg.NewOffsetFetchResponseGroup()
			rg.Group, rg.ErrorCode = g.Group, kerr.GroupAuthorizationFailed.Code
			resp.Groups = append(resp.Groups, rg)
		}
		return resp, nil, true
	})
	code, out, words := keeplog(t, addr, "", "group", "lag", "billing")
	if code != exitFailed || out != "" || !strings.HasPrefix(words, "error: group billing: GROUP_AUTHORIZATION_FAILED") {
		t.Errorf("exit %d\n%s%s", code, out, words)
	}
}

// --watch goes on when the broker was away.
func TestWatchOutlivesARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, addr := fakeBroker(t, kfake.DataDir(dir))
	_, number, _ := net.SplitHostPort(addr)
	port, _ := strconv.Atoi(number)
	produced(t, addr, "a\n", "orders")
	if code, _, words := keeplog(t, addr, "", "group", "seek", "billing", "--to", "end", "--topic", "orders", "-y"); code != exitDone {
		t.Fatal(words)
	}
	cmd := start(addr, &stdout{room: -1}, "group", "lag", "billing", "--watch", "--every", "100ms", "--alert", "0", "--timeout", "1s")
	until(t, "the first", func() bool { return cmd.out.String() != "" })
	c.Close()
	until(t, "that it says so, or ends", func() bool { return strings.Contains(cmd.words.String(), "cannot reach ") || len(cmd.ended) > 0 })
	_, addr = fakeBroker(t, kfake.DataDir(dir), kfake.Ports(port))
	produced(t, addr, "b\n", "orders")
	if code := cmd.wait(t); code != exitPart || !strings.Contains(cmd.words.String(), "error: 1 group is above 0: billing (1)\n") {
		t.Fatalf("exit %d\n%s%s", code, cmd.out, cmd.words)
	}
}

// What is not known for a moment is told, and ends --watch when it stays so.
func TestWatchWaitsForWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		known func(round int32) bool
		last  string
		told  int // how often before the end
	}{
		"it is known again": {func(round int32) bool { return round%3 == 0 }, "error: 1 group is above 100: billing (900)\n", 6},
		"it stays so":       {func(round int32) bool { return round < 3 }, "error: not known whether above 100: billing\n", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var round atomic.Int32
			addr := lagBroker(t, func(q *lag.Query, topic [16]byte) *lag.Answer {
				a := tellPart(q, topic, lag.Here)
				switch n := round.Add(1); {
				case !tc.known(n):
					a = tellPart(q, topic, lag.Nowhere)
				case n == 9:
					a.Lines[0].End = 901
				}
				return a
			})
			cmd := start(addr, &stdout{room: -1}, "group", "lag", "billing", "--watch", "--every", "100ms", "--alert", "100")
			code := cmd.wait(t)
			words := cmd.words.String()
			if code != exitPart || !strings.Contains(words, tc.last) || strings.Count(words, "not known whether above 100: billing\n")-strings.Count(tc.last, "not known") != tc.told {
				t.Errorf("exit %d\n%s%s", code, cmd.out, words)
			}
		})
	}
}

// Commands about groups say what a silent broker keeps from them, and soon.
func TestGroupsBesideASilentBroker(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		c, addr := halfSilentCluster(t)
		listEmpty(c, "billing")
		if !foreign {
			answerLag(t, c, c.TopicInfo("halves").TopicID, func(q *lag.Query, topic [16]byte) *lag.Answer { return tellPart(q, topic, lag.Elsewhere) })
		}
		for _, tc := range []struct {
			args  string
			exit  int
			words []string
			only  string // ours, foreign or both
		}{
			{"list", exitPart, []string{"billing  Empty  classic  0        0            -", "broker 7 does not list its groups: no answer"}, "both"},
			{"lag", exitPart, []string{"≥3", "broker 7 does not answer"}, "ours"},
			{"lag billing", exitPart, []string{"its leader does not tell", "≥3", "broker 7 does not answer"}, "ours"},
			{"describe billing", exitPart, []string{"≥3", "broker 7 does not answer"}, "ours"},
			{"explain billing", exitDone, []string{"lag at least 3, not known in 1 partition", "broker 7 does not answer (no answer)"}, "ours"},
			{"explain quiet", exitDone, []string{"its coordinator cannot be reached", "broker 7 does not answer (no answer)"}, "ours"},
			{"lag quiet", exitUnreachable, []string{"group quiet: its coordinator cannot be asked", "broker 7 does not list its groups: no answer"}, "ours"},
			{"describe quiet", exitUnreachable, []string{"group quiet: its coordinator cannot be asked"}, "both"},
			{"explain quiet", exitUnreachable, []string{"cannot reach broker 7"}, "foreign"},
			{"seek quiet --to start -y", exitUnreachable, []string{"group quiet: its coordinator cannot be asked"}, "both"},
			{"delete quiet -y", exitUnreachable, []string{"group quiet: its coordinator cannot be asked"}, "both"},
		} {
			if tc.only != "both" && foreign != (tc.only == "foreign") {
				continue
			}
			t.Run(fmt.Sprintf("%s, %v", tc.args, foreign), func(t *testing.T) {
				t.Parallel()
				code, out, words := soon(t, addr, append([]string{"group"}, strings.Fields(tc.args)...)...)
				if code != tc.exit {
					t.Errorf("exit %d\n%s%s", code, out, words)
				}
				for _, want := range tc.words {
					if !strings.Contains(out+words, want) {
						t.Errorf("no %q in\n%s%s", want, out, words)
					}
				}
			})
		}
	}
}

// Without a leader of the metadata no broker lists groups. That is said, and what was committed is told all the same.
func TestNobodyListsGroups(t *testing.T) {
	t.Parallel()
	c, addr := fakeBroker(t)
	answerLag(t, c, c.TopicInfo("orders").TopicID, func(q *lag.Query, topic [16]byte) *lag.Answer { return tellPart(q, topic, lag.Here) })
	c.ControlKey(int16(kmsg.ListGroups), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := r.ResponseKind().(*kmsg.ListGroupsResponse)
		resp.ErrorCode = kerr.CoordinatorNotAvailable.Code
		return resp, nil, true
	})
	c.ControlKey(int16(kmsg.DescribeGroups), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := r.ResponseKind().(*kmsg.DescribeGroupsResponse)
		for _, name := range r.(*kmsg.DescribeGroupsRequest).Groups {
			g := kmsg.NewDescribeGroupsResponseGroup()
			g.Group, g.ErrorCode = name, kerr.CoordinatorNotAvailable.Code
			resp.Groups = append(resp.Groups, g)
		}
		return resp, nil, true
	})
	const why = "why:   broker 0 does not list its groups: COORDINATOR_NOT_AVAILABLE\ntry:   keeplog cluster health\n"
	for args, want := range map[string]struct {
		exit  int
		words string
	}{
		"list":             {exitUnreachable, "error: no groups are listed\n" + why},
		"describe billing": {exitUnreachable, "error: group billing: its coordinator cannot be asked\n" + why},
		"lag billing":      {exitPart, "orders  0          1          4    3    0s      -      -\ntotal                              3    0s\nerror: not all groups are listed\n" + why},
		"explain billing":  {exitDone, "group billing: lag 3, 0s behind\n- its coordinator cannot be reached (COORDINATOR_NOT_AVAILABLE): members can neither join nor commit\n"},
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			code, out, words := soon(t, addr, append([]string{"group"}, strings.Fields(args)...)...)
			if code != want.exit || !strings.Contains(out+words, want.words) {
				t.Errorf("exit %d\n%s%s", code, out, words)
			}
		})
	}
}

// Sums that an answer has no room for are asked for in smaller parts, and none counts twice; a group that does not fit alone has no sum.
func TestSumsThatDoNotFit(t *testing.T) {
	c, addr := fakeBroker(t)
	names := []string{"a", "b", "c", "large"}
	c.ControlKey(int16(kmsg.ListGroups), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := r.ResponseKind().(*kmsg.ListGroupsResponse)
		for _, name := range names {
			g := kmsg.NewListGroupsResponseGroup()
			g.Group, g.ProtocolType, g.GroupState, g.GroupType = name, "consumer", "Empty", "classic"
			resp.Groups = append(resp.Groups, g)
		}
		return resp, nil, true
	})
	answerLag(t, c, c.TopicInfo("orders").TopicID, func(q *lag.Query, _ [16]byte) *lag.Answer {
		if !q.Sums {
			t.Errorf("asks for lines: %+v", q)
		}
		asked := q.Groups
		if len(asked) == 0 {
			asked = names
		}
		a := &lag.Answer{More: len(asked) > 1 || asked[0] == "large"}
		a.Sums = append(a.Sums, lag.Sum{Group: asked[0], Lag: 3, Partitions: 1})
		return a
	})
	code, out, words := keeplog(t, addr, "", "group", "list", "--no-headers")
	if want := "a      Empty  classic  0  0  3\nb      Empty  classic  0  0  3\nc      Empty  classic  0  0  3\nlarge  Empty  classic  0  0  -\n"; code != exitPart || out != want {
		t.Fatalf("exit %d\n%s%s", code, out, words)
	}
}

package main

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// silentBroker takes connections and says nothing, as a process that is paused.
func silentBroker(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// soon runs the program, which must end before --timeout. It takes some seconds at most; the rest is for a busy machine.
func soon(t *testing.T, brokers string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	begun := time.Now()
	code, stdout, stderr = keeplog(t, brokers, "", append(args, "--timeout", "60s")...)
	if took := time.Since(begun); took > 45*time.Second {
		t.Errorf("%s took %s:\n%s", strings.Join(args, " "), took, stderr)
	}
	return code, stdout, stderr
}

// The first address that answers is taken, wherever it stands in the list.
func TestASilentSeedCostsNoTime(t *testing.T) {
	t.Parallel()
	_, addr := fakeBroker(t)
	for _, brokers := range []string{silentBroker(t) + "," + silentBroker(t) + "," + addr, addr + "," + silentBroker(t)} {
		if code, out, words := soon(t, brokers, "topic", "list"); code != exitDone || !strings.Contains(out, "orders") {
			t.Errorf("exit %d, %q\n%s", code, out, words)
		}
	}
}

// Nobody who answers: that is said when --timeout is over.
func TestAllAreSilent(t *testing.T) {
	t.Parallel()
	addr := silentBroker(t)
	code, _, words := keeplog(t, addr, "", "topic", "list", "--timeout", "1500ms")
	if code != exitUnreachable || !strings.Contains(words, "cannot reach "+addr+" (no answer)") {
		t.Errorf("exit %d\n%s", code, words)
	}
}

// halfSilent is a cluster of a broker that answers and one, 7, that does not: it leads partition 0 of halves and is named as the one
// for administration at first.
func halfSilent(t *testing.T) string {
	t.Helper()
	_, addr := halfSilentCluster(t)
	return addr
}

func halfSilentCluster(t *testing.T) (cluster *kfake.Cluster, addr string) {
	t.Helper()
	c, addr := fakeBroker(t, kfake.SeedTopics(2, "halves"))
	host, port, err := net.SplitHostPort(silentBroker(t))
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	_, own, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	ownPort, err := strconv.Atoi(own)
	if err != nil {
		t.Fatal(err)
	}
	asked, id := 0, c.TopicInfo("halves").TopicID
	c.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := r.ResponseKind().(*kmsg.MetadataResponse)
		for _, b := range []struct {
			id   int32
			port int
		}{{0, ownPort}, {7, number}} {
			rb := kmsg.NewMetadataResponseBroker()
			rb.NodeID, rb.Host, rb.Port = b.id, host, int32(b.port)
			resp.Brokers = append(resp.Brokers, rb)
		}
		if asked++; asked > 4 {
			resp.ControllerID = 0 // the others have missed it
		} else {
			resp.ControllerID = 7
		}
		name := "halves"
		rt := kmsg.NewMetadataResponseTopic()
		rt.Topic, rt.TopicID = &name, id
		for p, leader := range []int32{7, 0} {
			rp := kmsg.NewMetadataResponseTopicPartition()
			rp.Partition, rp.Leader, rp.Replicas, rp.ISR = int32(p), leader, []int32{0, 7}, []int32{0, 7}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	c.ControlKey(int16(kmsg.FindCoordinator), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := r.ResponseKind().(*kmsg.FindCoordinatorResponse)
		for _, key := range r.(*kmsg.FindCoordinatorRequest).CoordinatorKeys {
			rc := kmsg.NewFindCoordinatorResponseCoordinator()
			rc.Key, rc.NodeID, rc.Host, rc.Port = key, 0, host, int32(ownPort)
			if key == "quiet" { // the silent one's
				rc.NodeID, rc.Port = 7, int32(number)
			}
			resp.Coordinators = append(resp.Coordinators, rc)
		}
		return resp, nil, true
	})
	return c, addr
}

// What another broker can answer is asked of it.
func TestASilentBrokerIsPassedOver(t *testing.T) {
	t.Parallel()
	addr := halfSilent(t)
	if code, out, words := soon(t, addr, "topic", "create", "made", "-p", "1", "-r", "1"); code != exitDone {
		t.Errorf("create: exit %d, %q\n%s", code, out, words)
	}
	if code, out, words := soon(t, addr, "topic", "describe", "halves"); code != exitDone || !strings.Contains(out, "0          7       0,7       0,7  -      -") ||
		!strings.Contains(words, "topic halves partition 0: LEADER_NOT_AVAILABLE (its leader, broker 7, does not answer)") {
		t.Errorf("describe: exit %d\n%s\n%s", code, out, words)
	}
	if code, _, words := soon(t, addr, "consume", "halves", "-p", "1", "--exit"); code != exitDone {
		t.Errorf("consume of the other partition: exit %d\n%s", code, words)
	}
}

// Of several partitions those are read whose leaders answer, and the others are named.
func TestConsumeGoesOnWithoutALeader(t *testing.T) {
	t.Parallel()
	addr := halfSilent(t)
	code, _, words := keeplog(t, addr, "", "consume", "halves", "--exit", "--timeout", "4s")
	if code != exitPart || !strings.Contains(words, "error: 1 partition not read: halves-0\nwhy:   topic halves partition 0: LEADER_NOT_AVAILABLE (its leader, broker 7, does not answer)") {
		t.Errorf("exit %d\n%s", code, words)
	}
	code, _, words = keeplog(t, addr, "", "consume", "halves", "-p", "0", "--exit", "--timeout", "4s")
	if code != exitUnreachable || !strings.Contains(words, "error: topic halves partition 0: LEADER_NOT_AVAILABLE (its leader, broker 7, does not answer)\nwhy:   broker 7: no answer\ntry:   keeplog cluster health") {
		t.Errorf("exit %d\n%s", code, words)
	}
}

// A topic whose leader is gone: produce says so, not that addresses are wrong.
func TestProduceNamesTheLeaderThatIsDown(t *testing.T) {
	t.Parallel()
	addr := halfSilent(t)
	code, _, words := keeplog(t, addr, "x\n", "produce", "halves", "-p", "0", "--timeout", "2s")
	if code != exitUnreachable || !strings.Contains(words, "error: topic halves partition 0: LEADER_NOT_AVAILABLE (its leader, broker 7, does not answer)") ||
		strings.Contains(words, "advertised.listeners") {
		t.Errorf("exit %d\n%s", code, words)
	}
}

func TestParseRate(t *testing.T) {
	for word, want := range map[string]int64{"0": 0, "1048576": 1 << 20, "20MiB": 20 << 20, "20MiB/s": 20 << 20, "1.5KiB": 1536, "3MB": 3e6, "x": -1, "-1": -1, "5 MiB": -1, "9999999999GiB": -1} {
		got, err := parseRate(word)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%s: %d, %v, want %d", word, got, err, want)
		}
	}
}

// Whoever has a replica sends, whoever gets one takes, as Kafka's tool sets it.
func TestThrottleOfMoves(t *testing.T) {
	got := throttleOf([]move{{"a", 0, []int32{1, 2}, []int32{2, 3}}, {"a", 4, []int32{1}, []int32{4}}, {"b", 1, []int32{2, 3}, []int32{3, 2}}}, 1000)
	want := map[string]map[string]string{
		"a": {leaderReplicas: "0:1,0:2,4:1", followerReplicas: "0:3,4:4"},
		"b": {leaderReplicas: "1:2,1:3", followerReplicas: ""},
	}
	if d := cmp.Diff(want, got.topics); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]int32{1, 2, 3, 4}, got.brokers); d != "" || got.rate != "1000" {
		t.Error(d, got.rate)
	}
}

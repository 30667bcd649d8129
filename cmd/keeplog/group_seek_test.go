package main

import (
	"math"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Where a coordinator takes some offsets and refuses others, both are named.
func TestSeekInPart(t *testing.T) {
	for _, tc := range []struct {
		name    string
		refused map[int32]bool
		exit    int
		words   string
		rows    string
	}{
		{"all are taken", nil, exitDone, "", "pairs  0  -  0  0  -\npairs  1  -  0  0  -\n"},
		{
			"one is refused",
			map[int32]bool{1: true},
			exitPart,
			"error: group billing in pairs-1: OFFSET_METADATA_TOO_LARGE (The metadata field of the offset request was too large)\nwhy:   1 partition is moved, 1 not\n",
			"pairs  0  -  0  0  -\npairs  1  -  0  0  not moved: OFFSET_METADATA_TOO_LARGE\n",
		},
		{
			"none is taken",
			map[int32]bool{0: true, 1: true},
			exitFailed,
			"error: group billing in pairs-0, pairs-1: OFFSET_METADATA_TOO_LARGE (The metadata field of the offset request was too large)\n", "",
		},
	} {
		c, addr := fakeBroker(t, kfake.SeedTopics(2, "pairs"))
		c.ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			resp := r.ResponseKind().(*kmsg.OffsetCommitResponse)
			for _, topic := range r.(*kmsg.OffsetCommitRequest).Topics {
				rt := kmsg.NewOffsetCommitResponseTopic()
				rt.Topic, rt.TopicID = topic.Topic, topic.TopicID
				for _, p := range topic.Partitions {
					rp := kmsg.NewOffsetCommitResponseTopicPartition()
					if rp.Partition = p.Partition; tc.refused[p.Partition] {
						rp.ErrorCode = kerr.OffsetMetadataTooLarge.Code
					}
					rt.Partitions = append(rt.Partitions, rp)
				}
				resp.Topics = append(resp.Topics, rt)
			}
			return resp, nil, true
		})
		code, out, words := keeplog(t, addr, "", "group", "seek", "billing", "--to", "start", "--topic", "pairs", "-y", "--no-headers")
		if code != tc.exit || out != tc.rows || !strings.HasPrefix(words, tc.words) {
			t.Errorf("%s: exit %d\n%s%s", tc.name, code, out, words)
		}
	}
}

// What is committed is exported without the leaders of the partitions.
func TestSeekExportsWithoutLeaders(t *testing.T) {
	t.Parallel()
	c, addr := fakeBroker(t)
	produced(t, addr, "a\nb\n", "orders")
	if code, _, words := keeplog(t, addr, "", "group", "seek", "billing", "--to", "1", "--topic", "orders", "-y"); code != exitDone {
		t.Fatal(words)
	}
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.LeaderNotAvailable, Count: -1})
	if code, out, words := keeplog(t, addr, "", "group", "seek", "billing", "--export", "--timeout", "1s"); code != exitDone || out != "orders,0,1\n" {
		t.Errorf("exit %d, %q\n%s", code, out, words)
	}
	if code, out, _ := keeplog(t, addr, "", "group", "seek", "billing", "--export", "--to", "end", "--timeout", "1s"); code == exitDone || out != "" {
		t.Errorf("exit %d, %q", code, out)
	}
}

// The largest number there is leads to the end, from wherever it counts.
func TestSeekFarPastTheEnd(t *testing.T) {
	_, addr := fakeBroker(t)
	produced(t, addr, "a\nb\n", "orders")
	for _, to := range []string{"1", "+9223372036854775807", "start+9223372036854775807"} {
		code, _, words := keeplog(t, addr, "", "group", "seek", "billing", "--to", to, "--topic", "orders", "-y")
		if code != exitDone {
			t.Fatal(words)
		}
		want := map[bool]string{true: "orders,0,1\n", false: "orders,0,2\n"}[to == "1"]
		if _, out, words := keeplog(t, addr, "", "group", "seek", "billing", "--export"); out != want {
			t.Errorf("%s: %q\n%s", to, out, words)
		}
	}
	if got := addUp(1, math.MaxInt64); got != math.MaxInt64 { // where a log begins above 0
		t.Error(got)
	}
}

package main

import (
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

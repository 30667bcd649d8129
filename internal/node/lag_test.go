package node

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/lag"
	"github.com/keeplog/keeplog/metadata"
)

// The lag of a group in a partition whose leader cannot tell its end is not known; the partition is not left out, which would look like no lag.
func TestLagOfALeaderThatCannotTell(t *testing.T) {
	n, err := start(t, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	makeTopic(t, n, "t")
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Group = "g"
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = 1, 0
	commit.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", TopicID: topicID(n, "t"), Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}}
	if code := asked[*kmsg.OffsetCommitResponse](t, n, commit).Topics[0].Partitions[0].ErrorCode; code != 0 {
		t.Fatalf("commit: code %d", code)
	}
	s := lag.New(n.quorum.Tables(), lagSource{n})
	check := func(when string, want int64) {
		t.Helper()
		a, sums := s.Ask(&lag.Query{}, time.Now()), s.Ask(&lag.Query{Sums: true}, time.Now())
		if len(a.Lines) != 1 || a.Lines[0].Lag() != want || a.Lines[0].Leaderless {
			t.Errorf("%s: %+v", when, a.Lines)
		}
		missing := 0
		if want < 0 {
			missing = 1
		}
		if a.Nowhere != missing || sums.Nowhere != missing || sums.Missing["g"] != missing || len(sums.Sums) != 1-missing {
			t.Errorf("%s: %d and %d without an end; %+v", when, a.Nowhere, sums.Nowhere, sums.Sums)
		}
	}
	check("leads", 0)
	n.replicas.SetLease(time.Now().Add(-time.Second))
	check("past the lease", lag.Unknown)
	n.replicas.SetLease(time.Now().Add(time.Hour))
	check("with a lease again", 0)
	if _, where := (lagSource{n}).Find(lag.Partition{Topic: metadata.TopicID{7}}); where != lag.Elsewhere {
		t.Errorf("a topic that is not there: %v", where)
	}
}

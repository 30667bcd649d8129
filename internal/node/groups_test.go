package node

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// asked sends a request to a node and returns its answer.
func asked[R kmsg.Response](t *testing.T, n *Node, req kmsg.Request) R {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Address()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	resp, err := cl.Request(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.(R)
}

func makeTopic(t *testing.T, n *Node, name string) {
	t.Helper()
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: name, NumPartitions: 2, ReplicationFactor: 1}}
	if code := asked[*kmsg.CreateTopicsResponse](t, n, create).Topics[0].ErrorCode; code != 0 {
		t.Fatalf("topic %s: code %d", name, code)
	}
}

// What a group has committed is there after a restart, and those who wait for a group when the broker stops hold up nothing.
func TestGroupsOverARestart(t *testing.T) {
	dir := t.TempDir()
	n, err := start(t, dir, "group.initial.rebalance.delay.ms=60000")
	if err != nil {
		t.Fatal(err)
	}
	makeTopic(t, n, "t")
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Group = "g"
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = 1, 42
	commit.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", TopicID: topicID(n, "t"), Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}}
	if code := asked[*kmsg.OffsetCommitResponse](t, n, commit).Topics[0].Partitions[0].ErrorCode; code != 0 {
		t.Fatalf("commit: code %d", code)
	}
	waits := make(chan int16, 1)
	go func() {
		join := kmsg.NewPtrJoinGroupRequest()
		join.Group, join.ProtocolType, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = "waits", "consumer", 60_000, 60_000
		join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 1}}}
		old := kversion.Stable()
		old.SetMaxKeyVersion(11, 3) // which needs no member id first
		cl, err := kgo.NewClient(kgo.SeedBrokers(n.Address()), kgo.RequestRetries(0), kgo.MaxVersions(old))
		if err != nil {
			panic(err)
		}
		defer cl.Close()
		resp, err := cl.SeedBrokers()[0].Request(context.Background(), join)
		if err != nil {
			waits <- -1
			return
		}
		waits <- resp.(*kmsg.JoinGroupResponse).ErrorCode
	}()
	eventually(t, "a member waits", func() error {
		l := asked[*kmsg.ListGroupsResponse](t, n, kmsg.NewPtrListGroupsRequest())
		for _, g := range l.Groups {
			if g.Group == "waits" {
				return nil
			}
		}
		return fmt.Errorf("groups: %v", l.Groups)
	})
	begun := time.Now()
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("stopping took %v", took)
	}
	if code := <-waits; code != 16 {
		t.Errorf("who waited was told %d", code)
	}
	if n, err = start(t, dir); err != nil {
		t.Fatal(err)
	}
	fetch := kmsg.NewPtrOffsetFetchRequest()
	fetch.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "g", MemberEpoch: -1}}
	got := asked[*kmsg.OffsetFetchResponse](t, n, fetch)
	if len(got.Groups) != 1 || len(got.Groups[0].Topics) != 1 || got.Groups[0].Topics[0].Partitions[0].Offset != 42 {
		t.Errorf("committed: %+v", got.Groups)
	}
}

func topicID(n *Node, name string) [16]byte {
	topic, _ := n.quorum.Image().TopicByName(name)
	return topic.ID
}

// The settings of one group are in force for that group at once, the broker's bounds hold, and without the feature nobody joins by the
// consumer protocol.
func TestGroupSettingsAndFeature(t *testing.T) {
	n, err := start(t, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	makeTopic(t, n, "t")
	set := func(value string) int16 {
		r := kmsg.NewPtrIncrementalAlterConfigsRequest()
		r.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeGroupConfig, ResourceName: "g", Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{
			{Name: "consumer.heartbeat.interval.ms", Value: &value},
		}}}
		return asked[*kmsg.IncrementalAlterConfigsResponse](t, n, r).Resources[0].ErrorCode
	}
	beat := func(group string) string {
		r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		r.Group, r.MemberID, r.RebalanceTimeoutMillis, r.SubscribedTopicNames = group, "AAAAAAAAAAAAAAAAAAAAAA", 10_000, []string{"t"}
		r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		resp := asked[*kmsg.ConsumerGroupHeartbeatResponse](t, n, r)
		return fmt.Sprint(resp.ErrorCode, " ", resp.HeartbeatIntervalMillis)
	}
	if code := set("4999"); code != 40 {
		t.Errorf("below the broker's bound: code %d", code)
	}
	if code := set("7000"); code != 0 {
		t.Errorf("within the bounds: code %d", code)
	}
	if got := beat("g"); got != "0 7000" {
		t.Errorf("a group with settings of its own: %s", got)
	}
	if got := beat("h"); got != "0 5000" {
		t.Errorf("another group: %s", got)
	}
	off := kmsg.NewPtrUpdateFeaturesRequest()
	off.FeatureUpdates = []kmsg.UpdateFeaturesRequestFeatureUpdate{{Feature: "group.version", MaxVersionLevel: 0, UpgradeType: 2}}
	if resp := asked[*kmsg.UpdateFeaturesResponse](t, n, off); resp.ErrorCode != 0 {
		t.Fatalf("turning the feature off: code %d", resp.ErrorCode)
	}
	if got := beat("i"); got != "35 0" {
		t.Errorf("without the feature: %s", got)
	}
}

// What a broker reports as applied never runs ahead of its coordinator of groups: the controller gives shards away by it, and who had them
// could still answer with what was committed before.
func TestReportedIsWhatGroupsGoBy(t *testing.T) {
	c := &cluster{node: &Node{applier: &applier{seen: 10}}}
	c.grouped.Store(9)
	if got := c.applied(); got != 9 {
		t.Errorf("reported %d while the coordinator of groups goes by 9", got)
	}
	c.grouped.Store(12)
	if got := c.applied(); got != 10 {
		t.Errorf("reported %d while the partitions have 10", got)
	}
}

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// movingBroker is a cluster of three with partitions 0 and 1 of orders, where the first is on the move from broker 0 to 1 for as long as moving is
// set. It notes what settings are changed: "topic orders key=value".
func movingBroker(t *testing.T, moving bool) (c *kfake.Cluster, changed *[]string) {
	t.Helper()
	var err error
	c, err = kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(2, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	changed = &[]string{}
	c.ControlKey(int16(kmsg.ListPartitionReassignments), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := r.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
		if moving {
			rt := kmsg.NewListPartitionReassignmentsResponseTopic()
			rp := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
			rp.Replicas, rp.AddingReplicas, rp.RemovingReplicas = []int32{1, 0}, []int32{1}, []int32{0}
			rt.Topic, rt.Partitions = "orders", append(rt.Partitions, rp)
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	c.ControlKey(int16(kmsg.AlterPartitionAssignments), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := r.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
		for _, topic := range r.(*kmsg.AlterPartitionAssignmentsRequest).Topics {
			rt := kmsg.NewAlterPartitionAssignmentsResponseTopic()
			rt.Topic = topic.Topic
			for _, p := range topic.Partitions {
				rp := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
				rp.Partition = p.Partition
				if moving = moving && p.Replicas != nil; p.Replicas == nil {
					*changed = append(*changed, fmt.Sprintf("cancel %s-%d", topic.Topic, p.Partition))
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	c.ControlKey(int16(kmsg.IncrementalAlterConfigs), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := r.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
		for _, what := range r.(*kmsg.IncrementalAlterConfigsRequest).Resources {
			rr := kmsg.NewIncrementalAlterConfigsResponseResource()
			rr.ResourceType, rr.ResourceName = what.ResourceType, what.ResourceName
			resp.Resources = append(resp.Resources, rr)
			for _, kv := range what.Configs {
				*changed = append(*changed, fmt.Sprintf("%s %s=%s", what.ResourceName, strings.ReplaceAll(kv.Name, ".replication.throttled", ""), orEmpty(kv.Value)))
			}
		}
		return resp, nil, true
	})
	return c, changed
}

// A throttle is for the moves under way too, and stays while there are some.
func TestThrottleBesideOtherMoves(t *testing.T) {
	for _, moving := range []bool{false, true} {
		c, changed := movingBroker(t, moving)
		leader := c.LeaderFor("orders", 1)
		to := fmt.Sprintf("%d,%d", (leader+1)%3, leader) // of three replicas one goes
		code, out, words := keeplog(t, c.ListenAddrs()[0], "", "cluster", "reassign", "orders:1", "--replicas", to, "--throttle", "1MiB", "--wait", "-y")
		if code != exitDone || out != "moved 1 partition\n" {
			t.Errorf("exit %d\n%s%s", code, out, words)
		}
		got := map[string]bool{}
		for _, line := range *changed {
			got[line] = true
		}
		places := ""
		for line := range got {
			if rest, ok := strings.CutPrefix(line, "orders leader.replicas="); ok && rest != "" {
				places = rest
			}
		}
		if strings.Contains(places, "0:0") != moving || !strings.Contains(places, "1:") {
			t.Errorf("moving %v: these send slowly: %s", moving, places)
		}
		if taken := got["0 leader.rate="] || got["orders leader.replicas="]; taken == moving || strings.Contains(words, "the throttle stays") != moving {
			t.Errorf("moving %v: the throttle at the end: %v\n%s", moving, slices.Sorted(maps.Keys(got)), words)
		}
	}
}

// What is cancelled is not called moved.
func TestCancelSaysSo(t *testing.T) {
	for _, tc := range []struct {
		flags []string
		out   string
		did   []string
	}{
		{[]string{"--dry-run"}, "would cancel 1 partition\n", nil},
		{[]string{"-y"}, "cancelled 1 partition\n", []string{"cancel orders-0"}},
		{[]string{"-y", "--wait"}, "cancelled 1 partition\n", []string{"cancel orders-0"}},
	} {
		c, changed := movingBroker(t, true)
		code, out, words := keeplog(t, c.ListenAddrs()[0], "", append([]string{"cluster", "reassign", "--cancel"}, tc.flags...)...)
		if d := cmp.Diff(tc.did, *changed, cmpopts.EquateEmpty()); code != exitDone || out != tc.out || d != "" {
			t.Errorf("%v: exit %d, %q %s\n%s", tc.flags, code, out, d, words)
		}
	}
}

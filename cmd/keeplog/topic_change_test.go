package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The times that a quorumBroker says that there is no leader.
const (
	always = 1 << 30
	never  = -1 // it looks for one, and does not answer
)

// quorumBroker is a broker that tells of the metadata log: that it has no leader, until it was asked leaderless times.
func quorumBroker(t *testing.T, leaderless int32) string {
	t.Helper()
	c, addr := fakeBroker(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	versions, err := kmsg.NewPtrApiVersionsRequest().RequestWith(context.Background(), client)
	if err != nil {
		t.Fatal(err)
	}
	more := kmsg.NewApiVersionsResponseApiKey()
	more.ApiKey, more.MaxVersion = int16(kmsg.DescribeQuorum), 1
	c.ControlKey(int16(kmsg.ApiVersions), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := r.ResponseKind().(*kmsg.ApiVersionsResponse)
		resp.ApiKeys = append(append(resp.ApiKeys, versions.ApiKeys...), more)
		return resp, nil, true
	})
	var asked atomic.Int32
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	c.ControlKey(int16(kmsg.DescribeQuorum), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if leaderless == never {
			c.SleepControl(func() { <-over })
		}
		resp := r.ResponseKind().(*kmsg.DescribeQuorumResponse)
		if asked.Add(1) <= leaderless {
			resp.ErrorCode = kerr.NotController.Code
			return resp, nil, true
		}
		rt := kmsg.NewDescribeQuorumResponseTopic()
		rt.Topic, rt.Partitions = "__cluster_metadata", append(rt.Partitions, kmsg.NewDescribeQuorumResponseTopicPartition())
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	if leaderless == always { // who is down may be what a view of the cluster fails on
		c.ControlKey(int16(kmsg.DescribeCluster), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			resp := r.ResponseKind().(*kmsg.DescribeClusterResponse)
			resp.ErrorCode = kerr.BrokerNotAvailable.Code
			return resp, nil, true
		})
	}
	return addr
}

// Without a leader of the metadata a change says so, and does not wait for one for as long as --timeout; nor does it matter then what a view fails on.
func TestChangesWithoutALeaderOfTheMetadata(t *testing.T) {
	for _, tt := range []struct {
		args       string
		leaderless int32
	}{
		{"topic create more", always},
		{"topic delete orders -y", always},
		{"topic alter orders -c retention.ms=1000", always},
		{"topic grow orders -p 3", always},
		{"cluster reassign", always},
		{"topic create more", never},
	} {
		t.Run(fmt.Sprint(tt.args, " ", tt.leaderless), func(t *testing.T) {
			t.Parallel()
			code, out, words := soon(t, quorumBroker(t, tt.leaderless), strings.Fields(tt.args)...)
			if code != exitUnreachable || out != "" || !strings.Contains(words, "error: the metadata has no leader: nothing can be changed\n") {
				t.Errorf("exit %d\n%s%s", code, out, words)
			}
		})
	}
	t.Run("an election", func(t *testing.T) {
		t.Parallel()
		if code, out, words := soon(t, quorumBroker(t, 3), "topic", "create", "more"); code != exitDone || !strings.Contains(out, "created more") {
			t.Errorf("exit %d\n%s%s", code, out, words)
		}
	})
}

package main

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// never is for a quorumBroker that looks for a leader and does not answer.
const never = -1

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
	return addr
}

// Without a leader of the metadata a change of topics says so, and does not wait for one for as long as --timeout.
func TestTopicsWithoutALeaderOfTheMetadata(t *testing.T) {
	for _, args := range []string{"create more", "delete orders -y", "alter orders -c retention.ms=1000", "grow orders -p 3"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			code, out, words := soon(t, quorumBroker(t, 1<<30), append([]string{"topic"}, strings.Fields(args)...)...)
			if code != exitUnreachable || out != "" || !strings.Contains(words, "error: the metadata has no leader: nothing can be changed\n") {
				t.Errorf("exit %d\n%s%s", code, out, words)
			}
		})
	}
	code, _, words := soon(t, quorumBroker(t, never), "topic", "create", "more")
	if code != exitUnreachable || !strings.Contains(words, "error: the metadata has no leader: nothing can be changed\n") {
		t.Errorf("nobody says: exit %d\n%s", code, words)
	}
	if code, out, words := soon(t, quorumBroker(t, 3), "topic", "create", "more"); code != exitDone || !strings.Contains(out, "created more") {
		t.Errorf("an election: exit %d\n%s%s", code, out, words)
	}
}

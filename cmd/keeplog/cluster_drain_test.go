package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// While drain waits, a look that fails is none: it looks again.
func TestDrainOutlivesAFailedLook(t *testing.T) {
	t.Parallel()
	c, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	drained, failing := false, 3
	c.ControlKey(int16(kmsg.IncrementalAlterConfigs), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := r.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
		drained = true
		return resp, nil, true
	})
	c.ControlKey(int16(kmsg.DescribeCluster), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if !drained || failing == 0 {
			return nil, nil, false
		}
		failing--
		resp := r.ResponseKind().(*kmsg.DescribeClusterResponse)
		resp.ErrorCode = kerr.RequestTimedOut.Code
		return resp, nil, true
	})
	{
		idle := fmt.Sprint((c.LeaderFor("orders", 0) + 1) % 3)
		if code, out, words := keeplog(t, c.ListenAddrs()[0], "", "cluster", "drain", idle, "--wait"); code != exitDone || failing != 0 || !strings.Contains(out, "is drained: no partition depends on it") {
			t.Errorf("exit %d, %d failures left\n%s%s", code, failing, out, words)
		}
	}
}

// Who is not well says so in the format that was asked for.
func TestLocalHealthHasABody(t *testing.T) {
	c, addr := fakeBroker(t)
	for _, well := range []bool{true, false} {
		if !well {
			c.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				resp := r.ResponseKind().(*kmsg.MetadataResponse)
				resp.ControllerID = -1
				return resp, nil, true
			})
		}
		code, out, words := keeplog(t, addr, "", "cluster", "health", "--local", "-o", "json")
		var body struct{ Healthy *bool }
		if err := json.Unmarshal([]byte(out), &body); err != nil || body.Healthy == nil || *body.Healthy != well || code != map[bool]int{true: exitDone, false: exitPart}[well] {
			t.Errorf("exit %d, %v\n%s%s", code, err, out, words)
		}
	}
}

package main

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// hits waits until faults have answered n requests.
func hits(t *testing.T, h *kfake.FaultHandle, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := h.Wait(ctx, n); err != nil {
		t.Fatalf("%d answers of %d", h.Hits(), n)
	}
}

// A partition that lost its leader while others had theirs is read again when somebody leads it.
func TestConsumeReadsAPartitionThatIsLedAgain(t *testing.T) {
	c, addr := fakeBroker(t, kfake.SeedTopics(2, "two"))
	produced(t, addr, "a\n", "two", "-p", "0")
	produced(t, addr, "b\n", "two", "-p", "1")
	cmd := start(addr, &stdout{room: -1}, "consume", "two", "-n", "4")
	until(t, "a and b", func() bool { return len(cmd.out.String()) == 4 })
	gone := kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata, kmsg.Fetch}, Topic: "two", Partitions: []int32{1}, Err: kerr.LeaderNotAvailable, Count: -1}
	noLeader := c.Fault(gone)
	hits(t, noLeader, 2)
	produced(t, addr, "c\n", "two", "-p", "0")
	until(t, "what the other leader has", func() bool { return len(cmd.out.String()) == 6 })
	noLeader.Remove()
	produced(t, addr, "d\n", "two", "-p", "1")
	if code := cmd.wait(t); code != 0 || cmd.out.String()[4:] != "c\nd\n" {
		t.Fatalf("exit %d, %q\n%s", code, cmd.out, cmd.words)
	}
}

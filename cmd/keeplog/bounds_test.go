package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// forATime says that a question is about a time, not about an end of a log.
func forATime(r kmsg.Request) bool {
	for _, topic := range r.(*kmsg.ListOffsetsRequest).Topics {
		for _, p := range topic.Partitions {
			return p.Timestamp >= 0
		}
	}
	return false
}

// The first record of a time is asked for again where the answer was an error that passes, or nobody waited for it, and no error is kept.
func TestTimesAreAskedAgain(t *testing.T) {
	t.Parallel()
	c, addr := fakeBroker(t)
	produced(t, addr, "a\nb\n", "orders")
	a := &app{streams: streams{getenv: func(string) string { return "" }}, flags: globalFlags{brokers: addr, timeout: 10 * time.Second}}
	s, err := a.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	key := tp{"orders", 0}
	b, err := s.bounds(t.Context(), []tp{key}, boundsOptions{wantEnd: true, patience: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.resolve(canceled, b, key, point{pointTime, 0}); !errors.Is(err, context.Canceled) {
		t.Fatalf("nobody waited: %v", err)
	}
	passing := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.NotLeaderForPartition, Count: 2, When: forATime})
	if at, err := s.resolve(t.Context(), b, key, point{pointTime, 0}); at != 0 || err != nil || passing.Hits() != 2 {
		t.Fatal(at, err, passing.Hits())
	}
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.TopicAuthorizationFailed, Count: -1, When: forATime})
	if at, err := s.resolve(t.Context(), b, key, point{pointTime, 0}); at != 0 || err != nil { // what was answered is kept
		t.Fatal(at, err)
	}
	if _, err := s.resolve(t.Context(), b, key, point{pointTime, 1}); failure(err).code != kerr.TopicAuthorizationFailed.Message {
		t.Fatal(err)
	}
}

// A member that begins at a time outlives one answer that there is no leader now.
func TestGroupBeginsAtATime(t *testing.T) {
	t.Parallel()
	c, addr := fakeBroker(t)
	produced(t, addr, "a\n", "orders")
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.LeaderNotAvailable, Count: 2, When: forATime})
	cmd := start(addr, &stdout{room: -1}, "consume", "-g", "g", "orders", "-O", "@0", "-n", "1")
	if code := cmd.wait(t); code != exitDone || cmd.out.String() != "a\n" {
		t.Fatalf("exit %d, %q\n%s", code, cmd.out, cmd.words)
	}
}

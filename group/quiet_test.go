package group

import (
	"testing"
	"testing/synctest"
	"time"
)

// A group with a regular expression writes nothing while no topic changes, whatever else goes into the log: the expression is looked
// up again after its refresh interval, not with every entry.
func TestRegexIsQuiet(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		n, pattern, epoch := w.nodes[0], "ord.*", int32(0)
		beat := func() {
			r := &ConsumerHeartbeatRequest{Version: 1, Group: "g", MemberID: "m", MemberEpoch: epoch, RebalanceTimeoutMs: -1}
			if epoch == 0 {
				r.RebalanceTimeoutMs, r.Regex, r.TopicPartitions = 60_000, &pattern, []TopicPartitions{}
			}
			n.ConsumerHeartbeat(r, func(r *ConsumerHeartbeatResponse) {
				if r.Err != nil {
					t.Errorf("heartbeat: %v", r.Err)
				}
				epoch = r.MemberEpoch
			})
			synctest.Wait()
			time.Sleep(5 * time.Second)
		}
		for range 6 {
			beat()
		}
		wantErr(t, "commit", commitOne(t, n, "other", 1), nil)
		before := len(w.log)
		for range 60 {
			beat()
		}
		if grown := len(w.log) - before; grown > 0 {
			t.Errorf("%d entries in 5 quiet minutes", grown)
		}
		w.topic("ordinary", 2)
		for range 6 {
			beat()
		}
		turn, g, err := n.open("g")
		if err != nil {
			t.Fatal(err)
		}
		defer turn.end()
		if got := len(g.core.(*consumer).members["m"].assigned); got != 2 {
			t.Errorf("%d topics after one was added", got)
		}
	})
}

package isr

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// onStage runs a test with n brokers in virtual time and compares the replicas at its end.
func onStage(t *testing.T, n int, f func(t *testing.T, c *troupe)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newTroupe(t, n)
		f(t, c)
		if !t.Failed() {
			c.allInSync()
			c.verify()
		}
		c.end()
	})
}

func TestAcksAllWaitsForTheInSyncSet(t *testing.T) {
	onStage(t, 3, func(t *testing.T, c *troupe) {
		for i := range 20 {
			c.must(-1, fmt.Sprint("v", i))
		}
		c.allInSync()
		c.cut[[2]int32{3, 1}] = true
		if r := c.produce(-1, "late"); !errors.Is(r.Err, ErrTimedOut) {
			t.Errorf("with a replica that does not fetch: %v, want a timeout", r.Err)
		}
		if r := c.produce(1, "one"); r.Err != nil {
			t.Errorf("acks=1 waits for the leader alone: %v", r.Err)
		}
		c.eventually("node 3 leaves the in-sync set", func() bool { return len(c.inSync()) == 2 })
		c.must(-1, "two")
		c.cut[[2]int32{3, 1}] = false
	})
}

func TestLeaderKilledAndBack(t *testing.T) {
	onStage(t, 3, func(t *testing.T, c *troupe) {
		for i := range 10 {
			c.must(-1, fmt.Sprint("a", i))
		}
		c.stop(1, nil)
		for i := range 10 {
			c.must(-1, fmt.Sprint("b", i))
		}
		c.start(1)
		c.allInSync()
		c.stop(2, nil)
		for i := range 10 {
			c.must(-1, fmt.Sprint("c", i))
		}
		c.start(2)
	})
}

// Catalogue 26: what only the old leader has is cut off, by epochs, when it comes back.
func TestUnreplicatedTailIsCut(t *testing.T) {
	onStage(t, 3, func(t *testing.T, c *troupe) {
		c.must(-1, "kept")
		c.allInSync()
		c.cut[[2]int32{2, 1}], c.cut[[2]int32{3, 1}] = true, true
		time.Sleep(2 * time.Second) // what waits is answered
		for i := range 5 {
			c.must(1, fmt.Sprint("lost", i))
		}
		c.stop(1, nil)
		clear(c.cut)
		c.must(-1, "new")
		c.start(1)
		c.allInSync()
		if got := c.values(1); got[1] != "new" || len(got) != 2 {
			t.Errorf("the old leader has %v", got)
		}
	})
}

package quorum

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestBackAfterLong: however long a member was away, stopped or cut off, it has all that was committed soon after it is back; and
// so does a cluster whose leader changed meanwhile.
func TestBackAfterLong(t *testing.T) {
	for _, cut := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 3).start().ready()
			away := c.other(c.leader())
			for round := range 2 {
				if cut {
					c.isolate(away.id, true)
				} else {
					away.stop()
				}
				c.fill(20*round, 10, away.id)
				time.Sleep(5 * time.Minute) // virtual time
				if round == 1 {
					if err := c.leader(away.id).q.raft().LeadershipTransfer().Error(); err != nil {
						t.Fatal(err)
					}
				}
				c.fill(20*round+10, 10, away.id)
				last := c.leader(away.id).q.raft().LastIndex()
				if cut {
					c.isolate(away.id, false)
				} else {
					away.start()
				}
				back := time.Now()
				c.eventually("it has all", func() bool { return away.q.Image() != nil && away.q.Image().Index() >= last })
				if took := time.Since(back); took > 2*time.Second {
					t.Errorf("cut off %v, round %d: it had all after %v", cut, round, took)
				}
			}
			c.close()
		})
	}
}

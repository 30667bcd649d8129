package quorum

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keeplog/keeplog/metadata"
)

// plant gives a node another history up to where it is, as a fault in its memory or in the library would.
func (n *clusterNode) plant() {
	img := n.q.Image()
	payload := metadata.AppendCommand(nil, &metadata.Command{Session: metadata.Session{Epoch: metadata.NoEpoch}, Groups: []metadata.Group{{Records: []metadata.Record{
		metadata.ClusterStarted{ClusterID: testCluster, Voters: []metadata.Voter{{ID: n.o.Node, Directory: n.o.Directory}}},
	}}}})
	other, _, _, err := metadata.Apply(metadata.New(), nil, metadata.Entry{Index: img.Index(), Term: img.Term(), Payload: payload})
	if err != nil {
		n.c.t.Fatal(err)
	}
	n.q.fsm.image.Store(other)
	n.q.fsm.chain.add(other)
}

// TestAstray: the node whose history differs stops, a follower and a leader alike, and the others go on.
func TestAstray(t *testing.T) {
	for _, leads := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 3).timing(Timing{Commit: 100 * time.Millisecond, Checkpoint: 2 * time.Second}).start().ready()
			lead := c.leader()
			lead.propose(topics(0, 10)...)
			c.same()
			time.Sleep(15 * time.Second) // virtual time: they have compared, and nothing is wrong
			for _, n := range c.nodes {
				if len(n.fatal) > 0 {
					t.Fatal(<-n.fatal)
				}
			}
			idle := lead.q.Image().Index()
			time.Sleep(15 * time.Second) // virtual time
			if got := lead.q.Image().Index(); got != idle {
				t.Errorf("%d entries without work", got-idle)
			}
			odd := lead
			if !leads {
				odd = c.other(lead)
			}
			c.other(odd).q.Image()
			lead.propose(topics(10, 1)...)
			c.same()
			odd.plant()
			err := <-odd.fatal
			if !errors.Is(err, ErrAstray) {
				t.Error(err)
			}
			t.Log(err)
			odd.stop()
			delete(c.nodes, odd.id)
			c.leader().propose(topics(20, 1)...)
			time.Sleep(15 * time.Second) // virtual time
			c.same()
			c.close()
		})
	}
}

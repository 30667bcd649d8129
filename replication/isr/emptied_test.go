package isr

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
)

// uncleanly makes a node the leader outside of the in-sync set.
func (c *troupe) uncleanly(id int32) {
	c.t.Helper()
	part, _ := c.image().Partition(topicID, 0)
	yes := true
	c.record(metadata.PartitionChanged{TopicID: topicID, PartitionEpoch: part.PartitionEpoch, ISR: &[]int32{id}, Leader: &id, Unclean: &yes, NewLeaderEpoch: part.Leader == id})
}

// A replica whose records were all deleted comes back to a leader of an unclean election, whose log was shorter and has grown
// beyond: what that one has below this log's end is another history, and the replica must have it before it is in sync.
func TestEmptiedReplicaAfterAnUncleanElection(t *testing.T) {
	for _, deleted := range []record.Offset{8, 6} { // all, and all but a tail
		onStage(t, 2, func(t *testing.T, c *troupe) {
			c.configure(func(o *config.Topic) { o.MinInsyncReplicas, o.MinInsyncSet = 1, true })
			for i := range 3 {
				c.must(-1, fmt.Sprint("both", i))
			}
			c.allInSync()
			c.stop(2, nil)
			for i := range 5 {
				c.must(-1, fmt.Sprint("one", i))
			}
			c.partition(1).DeleteRecords(deleted, time.Second, func(record.Offset, error) {})
			c.eventually("the log start is moved", func() bool { return c.partition(1).log.StartOffset() == deleted })
			c.stop(1, nil)
			c.start(2)
			c.uncleanly(2)
			clear(c.acked)
			for i := range 10 {
				c.must(-1, fmt.Sprint("two", i))
			}
			c.start(1)
			c.allInSync()
			c.stop(2, nil)
			if got := c.values(1); c.leader() != 1 || got[3] != "two0" || len(got) != 13 {
				t.Errorf("node %d leads; node 1 has %v", c.leader(), got)
			}
			c.start(2)
		})
	}
}

// A leader without records, and without an epoch of its own, has a follower drop a tail of an older epoch that was never
// committed, and takes on one that is empty too.
func TestEmptyLeaderAndATailOfAnOlderEpoch(t *testing.T) {
	onStage(t, 3, func(t *testing.T, c *troupe) {
		for i := range 5 {
			c.must(-1, fmt.Sprint("v", i))
		}
		c.allInSync()
		c.partition(1).DeleteRecords(5, time.Second, func(record.Offset, error) {})
		c.allInSync()
		c.isolate(1, true)
		time.Sleep(time.Second) // fetches that are on their way are answered
		synctest.Wait()
		for i := range 3 {
			c.must(1, fmt.Sprint("tail", i))
		}
		for id := int32(1); id <= 3; id++ {
			c.halt(id, nil)
			c.fence(id)
		}
		c.isolate(1, false)
		c.start(2)
		part, _ := c.image().Partition(topicID, 0)
		two := int32(2)
		c.record(metadata.PartitionChanged{TopicID: topicID, PartitionEpoch: part.PartitionEpoch, ISR: &[]int32{2}, Leader: &two})
		p := c.partition(2)
		if e, end, err := p.EndOffsetForEpoch(0, record.NoEpoch); err != nil || e != 0 || end != 5 {
			t.Errorf("epoch 0 ends at %d in epoch %d, %v", end, e, err)
		}
		c.start(1)
		c.start(3)
		c.allInSync()
		clear(c.acked)
		c.must(-1, "new")
		c.allInSync()
		for id := int32(1); id <= 3; id++ {
			if got := c.values(id); len(got) != 1 || got[5] != "new" {
				t.Errorf("node %d has %v", id, got)
			}
		}
	})
}

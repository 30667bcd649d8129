package isr

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// stallMarks has a broker's marks wait for the disk until the function that it returns is called.
func (c *troupe) stallMarks(id int32) (end func()) {
	stall := make(chan struct{})
	c.nodes[id].faults.Inject(vfs.Fault{Ops: []vfs.Op{vfs.OpSync, vfs.OpSyncData}, Path: log.MarksFile, Sticky: true, Stall: stall})
	return func() { close(stall) }
}

// Who is to lead waits until the log start, which the former leader told, has been moved: a log is changed by its leader alone.
func TestLogStartIsMovedBeforeTheRoleChanges(t *testing.T) {
	onStage(t, 2, func(t *testing.T, c *troupe) {
		for range 5 {
			c.must(-1, "a")
		}
		c.allInSync()
		end := c.stallMarks(2)
		c.partition(1).DeleteRecords(3, time.Minute, func(record.Offset, error) {})
		time.Sleep(time.Second)
		synctest.Wait()
		p := c.partition(2)
		if p.log.StartOffset() != 0 {
			t.Fatal("the log start has moved")
		}
		part, _ := c.image().Partition(topicID, 0)
		to := int32(2)
		elected := make(chan struct{})
		go func() {
			defer close(elected)
			c.record(metadata.PartitionChanged{TopicID: topicID, PartitionEpoch: part.PartitionEpoch, Leader: &to})
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		if epoch := p.leadsIn(); epoch != record.NoEpoch {
			t.Errorf("it leads in epoch %d while its log start is being moved for another leader", epoch)
		}
		end()
		<-elected
		if p.leadsIn() == record.NoEpoch || p.log.StartOffset() != 3 {
			t.Errorf("then it leads in %d, from %d", p.leadsIn(), p.log.StartOffset())
		}
	})
}

// A leader tells its log start once. Who is still busy with an earlier one, or has not flushed that far, comes to it all the same.
func TestLogStartIsToldOnce(t *testing.T) {
	onStage(t, 2, func(t *testing.T, c *troupe) {
		for range 5 {
			c.must(-1, "a")
		}
		c.allInSync()
		end := c.stallMarks(2)
		answers := make(chan error, 2)
		for _, to := range []record.Offset{3, 5} {
			c.partition(1).DeleteRecords(to, 20*time.Second, func(_ record.Offset, err error) { answers <- err })
			time.Sleep(time.Second)
		}
		end()
		for range 2 {
			if err := <-answers; err != nil {
				t.Errorf("deleted records: %v", err)
			}
		}
		if start := c.partition(2).log.StartOffset(); start != 5 {
			t.Errorf("the follower's log begins at %d", start)
		}
	})
}

// The same, event by event.
func TestLogStartFollowsTheFlush(t *testing.T) {
	f := newFollower(1, -1, ends{start: 0, end: 10, stable: 4, lastEpoch: 1}, 4)
	f.list(1)
	s := f.answered(answer{seq: 1, highWatermark: 10, logStart: 8, divergingEpoch: -1, divergingEnd: -1}, func(record.Epoch) record.Offset { return 10 }, 0)
	if s.start != 4 {
		t.Errorf("told of 8, flushed to 4: the log start goes to %d", s.start)
	}
	f.start = 4
	if got := f.startDue(); got != -1 {
		t.Errorf("nothing is flushed since, and it goes on to %d", got)
	}
	f.flushed(10)
	if got := f.startDue(); got != 8 {
		t.Errorf("flushed to 10 it goes on to %d", got)
	}
	f.start = 8
	if got := f.startDue(); got != -1 {
		t.Errorf("at the leader's it goes on to %d", got)
	}
}

// Where the leader's log begins just where a replica ends, nothing is left of what the replica has below: it may be another history,
// which must not be there when the replica counts as complete.
func TestReplicaThatEndsWhereTheLeaderBegins(t *testing.T) {
	onStage(t, 2, func(t *testing.T, c *troupe) {
		for range 3 {
			c.must(-1, "a")
		}
		c.allInSync()
		c.isolate(1, true)
		time.Sleep(time.Second)
		synctest.Wait()
		for range 2 {
			c.must(1, "of the old leader")
		}
		c.configure(func(o *config.Topic) { o.MinInsyncReplicas, o.MinInsyncSet = 1, true })
		c.stop(1, nil)
		c.isolate(1, false)
		for range 3 {
			c.must(-1, "b")
		}
		c.partition(2).DeleteRecords(5, time.Second, func(record.Offset, error) {})
		clear(c.acked)
		c.sever(1, 2, true)
		c.start(1)
		end := c.stallMarks(1) // its log start cannot be moved
		c.sever(1, 2, false)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if old := c.values(1)[3]; len(c.inSync()) == 2 && old != "" {
			t.Errorf("it is in sync, and has %q at 3", old)
		}
		end()
		c.eventually("it is in sync", func() bool { return len(c.inSync()) == 2 })
		if start := c.partition(1).log.StartOffset(); start != 5 {
			t.Errorf("its log begins at %d", start)
		}
	})
}

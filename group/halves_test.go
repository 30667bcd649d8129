package group

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keeplog/keeplog/metadata"
)

// shardEpoch is that of a group's shard.
func (w *world) shardEpoch(group string) int64 { return w.image().Shard(metadata.ShardOf(group)).Epoch }

// store puts entries of a group into the log, as its coordinator would.
func (w *world) store(group string, entries []Entry) {
	for part := range slices.Chunk(entries, 1000) {
		w.must(metadata.GroupChanged{Shard: metadata.ShardOf(group), ShardEpoch: w.shardEpoch(group), Group: group, Entries: part})
	}
	synctest.Wait()
}

// halt lets the first n proposals of a group with entries through, and no more.
func (w *world) halt(group string, n int) {
	w.setFault(func(records []metadata.Record) (before, after error) {
		for _, r := range records {
			if c, ok := r.(metadata.GroupChanged); ok && c.Group == group {
				if n--; n < 0 {
					return errLost, nil
				}
			}
		}
		return nil, nil
	})
}

// So many members are put out at once that one record does not hold it, and the coordinator ends after the first: the next one serves
// the group, and gives what they held to those that are left.
func TestHalfOfAFence(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		c := newConsumer("g")
		c.epoch, c.assignmentEpoch = 7, 7
		for i := range 5000 {
			m := newConsumerMember(fmt.Sprintf("%s-%d", strings.Repeat("m", 60), i))
			m.topics, m.rebalanceTimeoutMs, m.epoch, m.previous, m.assigned = []string{"orders"}, 60_000, 7, 7, make(grants)
			if i < 3 {
				m.assigned.add(topicNamed("orders"), grant{int32(i), 7})
			}
			c.put(m)
			c.setTarget(m.id, m.assigned.partitions())
		}
		w.store("g", c.stored())
		w.move(1)
		w.move(2)
		w.halt("g", 1)
		time.Sleep(46 * time.Second) // all sessions end
		w.move(1)
		w.setFault(nil)
		epoch, held := int32(0), 0
		for range 60 {
			r := &ConsumerHeartbeatRequest{Version: 1, Group: "g", MemberID: "new", MemberEpoch: epoch, RebalanceTimeoutMs: -1}
			if epoch == 0 {
				r.RebalanceTimeoutMs, r.SubscribedTopics, r.TopicPartitions = 60_000, []string{"orders"}, []TopicPartitions{}
			}
			w.nodes[0].ConsumerHeartbeat(r, func(r *ConsumerHeartbeatResponse) {
				if r.Err != nil {
					t.Fatalf("heartbeat: %v", r.Err)
				}
				epoch = r.MemberEpoch
				if r.Assignment != nil {
					held = 0
					for _, p := range *r.Assignment {
						held += len(p.Partitions)
					}
				}
			})
			synctest.Wait()
			time.Sleep(2 * time.Second)
		}
		if held != 4 {
			t.Errorf("the only member has %d partitions of 4", held)
		}
		checkFold(t, w.nodes[0], w, "g")
	})
}

// The assignment of a generation is stored as one, also where it is nearly as large as a record may be: a coordinator that ends in the
// middle leaves no mixture.
func TestNoHalfOfAGeneration(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		n := w.nodes[0]
		var ids []string
		var leader *JoinGroupResponse
		for range 4000 {
			n.JoinGroup(&JoinGroupRequest{
				Group: "g", ClientID: "c", SessionTimeout: time.Hour / 4, RebalanceTimeout: 5 * time.Minute, ProtocolType: "consumer",
				Protocols: []Protocol{{"range", make([]byte, 40)}},
			}, func(r *JoinGroupResponse) {
				if r.Err != nil {
					t.Errorf("join: %v", r.Err)
				}
				if ids = append(ids, r.MemberID); len(r.Members) > 0 {
					leader = r
				}
			})
		}
		time.Sleep(2 * time.Minute) // longer than members are waited for
		synctest.Wait()
		if leader == nil {
			t.Fatal("nobody leads")
		}
		changes := 0
		w.setFault(func(records []metadata.Record) (before, after error) {
			for _, r := range records {
				if c, ok := r.(metadata.GroupChanged); ok && c.Group == "g" {
					changes++
				}
			}
			return nil, nil
		})
		r := &SyncGroupRequest{Group: "g", MemberID: leader.MemberID, Generation: leader.Generation}
		for _, id := range ids {
			r.Assignments = append(r.Assignments, Assigned{id, []byte(strings.Repeat("a", 120))})
		}
		synced := error(errLost)
		n.SyncGroup(r, func(r *SyncGroupResponse) { synced = r.Err })
		synctest.Wait()
		if synced != nil || changes != 1 {
			t.Errorf("sync: %v, %d records", synced, changes)
		}
	})
}

package group

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keeplog/keeplog/metadata"
)

// TestCommitsGather: while a proposal of a group is in flight its commits gather; the newest of each partition is proposed, as one record, and
// everybody who waits is answered by it.
func TestCommitsGather(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		n := w.nodes[0]
		var mu sync.Mutex
		var proposed [][]metadata.OffsetCommit
		w.setFault(func(records []metadata.Record) (before, after error) {
			mu.Lock()
			defer mu.Unlock()
			for _, r := range records {
				if c, ok := r.(metadata.OffsetsCommitted); ok {
					proposed = append(proposed, c.Offsets)
				}
			}
			return nil, nil
		})
		w.latency.Store(int64(time.Second))
		const times = 100
		var answers atomic.Int64
		began := time.Now()
		for i := range int64(times) {
			n.CommitOffsets(&CommitOffsetsRequest{Group: "g", Generation: -1, Retention: -1, Offsets: []CommitOffset{{
				Topic: "orders", TopicID: topicNamed("orders"), Partition: int32(i % 2), Offset: i, LeaderEpoch: -1,
			}}}, func(r *CommitOffsetsResponse) {
				if r.Err != nil || r.Partitions != nil {
					t.Error(r)
				}
				answers.Add(1)
			})
		}
		synctest.Wait()
		if answers := answers.Load(); answers != 0 {
			t.Errorf("%d are answered before anything is committed", answers)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if answers := answers.Load(); answers != 1 {
			t.Errorf("%d are answered by the first proposal, which has one commit", answers)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if answers := answers.Load(); answers != times || time.Since(began) != 2*time.Second {
			t.Errorf("%d of %d are answered after two proposals", answers, times)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(proposed) != 2 || len(proposed[0]) != 1 || proposed[0][0].Offset != 0 || len(proposed[1]) != 2 {
			t.Fatalf("proposed %+v", proposed)
		}
		for _, c := range proposed[1] {
			if want := int64(times-2) + int64(c.Partition); c.Offset != want {
				t.Errorf("partition %d: %d, want %d", c.Partition, c.Offset, want)
			}
		}
	})
}

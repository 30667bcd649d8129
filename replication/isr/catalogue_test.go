package isr

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/record"
)

// Catalogue 34 (KAFKA-9807, KAFKA-9835, KAFKA-9196): the watermark is read once in a fetch; nothing above the one that the answer
// shows is in it, however much is committed meanwhile and wherever segments begin.
func TestCatalogue34WatermarkIsReadOnce(t *testing.T) {
	onStage(t, 2, func(t *testing.T, c *troupe) {
		small := c.partition(1).log.Config()
		small.Segment.Bytes = 1024
		c.partition(1).log.SetConfig(small)
		p := c.partition(1)
		var writers sync.WaitGroup
		writers.Go(func() {
			for i := range 300 {
				c.produceTo(1, -1, fmt.Sprint("v", i))
			}
		})
		end := func(r FetchResult) record.Offset {
			buf := make([]byte, r.Span.Len())
			r.Span.ReadAt(buf, 0)
			r.Span.Release()
			return endOfBatches(buf)
		}
		for at := record.Offset(0); at < 300; {
			r := p.Fetch(FetchRequest{Offset: at, MaxBytes: 1 << 20, LeaderEpoch: -1, LastFetchedEpoch: -1})
			if r.Err != nil || r.LastStable != r.HighWatermark {
				t.Fatalf("at %d: %+v", at, r)
			}
			if r.Span == nil {
				time.Sleep(time.Millisecond)
				continue
			}
			next := end(r)
			if next > r.HighWatermark {
				t.Fatalf("the answer shows the watermark %d and has records up to %d", r.HighWatermark, next)
			}
			at = next
		}
		writers.Wait()
		c.allInSync()
		c.isolate(1, true)
		time.Sleep(time.Second)
		synctest.Wait()
		c.must(1, "not committed")
		if r := p.Fetch(FetchRequest{Offset: 299, MaxBytes: 1 << 20, LeaderEpoch: -1, LastFetchedEpoch: -1}); r.HighWatermark != 300 || end(r) != 300 {
			t.Errorf("with a record that is not committed: %+v", r)
		}
		c.isolate(1, false)
	})
}

// Catalogue 35 (KAFKA-5634, KAFKA-9491): retention stays below the watermark, and a log that begins anew takes its watermark along.
func TestCatalogue35RetentionAndTheWatermark(t *testing.T) {
	onStage(t, 2, func(t *testing.T, c *troupe) {
		for i := range 5 {
			c.must(-1, fmt.Sprint("v", i))
		}
		c.allInSync()
		c.isolate(1, true)
		time.Sleep(time.Second)
		synctest.Wait()
		for i := range 3 {
			c.must(1, fmt.Sprint("tail", i))
		}
		l := c.partition(1).log.current()
		if err := l.Retain(time.UnixMilli(4_000_000_000_000)); err != nil {
			t.Fatal(err)
		}
		if start := l.StartOffset(); start > 5 || len(c.values(1)) < 3 {
			t.Errorf("the log begins at %d, the watermark is 5", start)
		}
		c.isolate(1, false)
		c.allInSync()
		c.configure(func(o *config.Topic) { o.MinInsyncReplicas, o.MinInsyncSet = 1, true })
		c.stop(2, nil)
		for i := range 5 {
			c.must(-1, fmt.Sprint("w", i))
		}
		c.partition(1).DeleteRecords(12, time.Second, func(record.Offset, error) {})
		c.sever(2, 1, true)
		c.start(2)
		clear(c.acked)
		c.sever(2, 1, false)
		c.eventually("node 2 begins anew", func() bool { return c.partition(2).log.StartOffset() == 12 })
		if hw := c.partition(2).HighWatermark(); hw < 12 {
			t.Errorf("its log begins at 12, its watermark is %d", hw)
		}
	})
}

// Catalogue 34 once more: what is committed between the look at the watermark and the read is not in the answer.
func TestCatalogue34CommittedBetweenTheLooks(t *testing.T) {
	onStage(t, 2, func(t *testing.T, c *troupe) {
		c.tune(func(l *Limits) { l.RackAware = true }) // so that the limits are looked at in between
		c.must(-1, "a")
		c.allInSync()
		p := c.partition(1)
		synctest.Wait()
		once := func(int32) {
			c.hook.Store(nil)
			c.must(-1, "b")
		}
		c.hook.Store(&once)
		r := p.Fetch(FetchRequest{MaxBytes: 1 << 20, LeaderEpoch: -1, LastFetchedEpoch: -1, Rack: "of nobody"})
		if r.Err != nil || r.Span == nil || r.Redirect {
			t.Fatalf("%+v", r)
		}
		buf := make([]byte, r.Span.Len())
		r.Span.ReadAt(buf, 0)
		r.Span.Release()
		if now := p.HighWatermark(); now != 2 {
			t.Fatalf("the watermark is %d", now)
		}
		if end := endOfBatches(buf); r.HighWatermark != 1 || r.LastStable != 1 || end != 1 {
			t.Errorf("the answer shows the watermarks %d and %d and has records up to %d", r.HighWatermark, r.LastStable, end)
		}
	})
}

// Catalogue 35 once more: a log that begins anew has its watermark there before anything else happens, and after a restart; and
// a replica that has no role yet deletes nothing that is not committed.
func TestCatalogue35TheWatermarkMovesWithTheStart(t *testing.T) {
	onStage(t, 2, func(t *testing.T, c *troupe) {
		c.must(-1, "a")
		c.allInSync()
		c.configure(func(o *config.Topic) { o.MinInsyncReplicas, o.MinInsyncSet = 1, true })
		c.stop(2, nil)
		for range 5 {
			c.must(-1, "b")
		}
		c.partition(1).DeleteRecords(5, time.Second, func(record.Offset, error) {})
		clear(c.acked)
		c.sever(2, 1, true)
		c.start(2)
		p := c.partition(2)
		var looks atomic.Int32 // both fetchers look
		look := func(id int32) {
			if id == 2 && p.log.StartOffset() == 5 && p.log.WrittenEnd() == 5 && !p.follow.cuts() {
				looks.Add(1)
				if hw := p.HighWatermark(); hw < 5 {
					t.Errorf("its log begins anew at 5, its watermark is %d", hw)
				}
				c.sever(2, 1, true)
			}
		}
		c.hook.Store(&look)
		c.sever(2, 1, false)
		c.eventually("node 2 begins anew", func() bool { return looks.Load() > 0 })
		c.hook.Store(nil)
		c.stop(2, nil) // the checkpoint of the watermark was not written since
		c.start(2)
		if p := c.partition(2); p.log.StartOffset() != 5 || p.HighWatermark() < 5 {
			t.Errorf("after a restart its log begins at %d, its watermark is %d", p.log.StartOffset(), p.HighWatermark())
		}
		c.sever(2, 1, false)
	})
}

// Catalogue 35: between its start and its first role a replica does not know what of its tail is committed.
func TestCatalogue35RetentionBeforeTheRole(t *testing.T) {
	onStage(t, 2, func(t *testing.T, c *troupe) {
		for range 5 {
			c.must(-1, "a")
		}
		c.allInSync()
		c.isolate(1, true)
		time.Sleep(time.Second)
		synctest.Wait()
		for range 3 {
			c.must(1, "not committed")
		}
		n := c.nodes[1]
		n.dir.Tick(time.Now()) // the checkpoints
		c.configure(func(o *config.Topic) { o.MinInsyncReplicas, o.MinInsyncSet = 1, true })
		c.stop(1, nil)
		c.isolate(1, false)
		c.sever(1, 2, true)
		c.start(1)
		l := c.partition(1).log.current()
		if err := l.Retain(time.UnixMilli(4_000_000_000_000)); err != nil {
			t.Fatal(err)
		}
		if start := l.StartOffset(); start > 5 || l.WrittenEnd() != 8 {
			t.Errorf("it has %d to %d, and up to 5 is committed", start, l.WrittenEnd())
		}
		c.must(-1, "of another history")
		c.sever(1, 2, false)
		c.allInSync()
	})
}

// Catalogue 38 (KAFKA-7697): whoever is answered, or told of progress, may ask the partition again at once: no lock is held.
func TestCatalogue38AnswersHoldNoLock(t *testing.T) {
	onStage(t, 2, func(t *testing.T, c *troupe) {
		p := c.partition(1)
		asked := make(chan struct{}, 100)
		ask := func() {
			p.ListOffset(Latest, -1)
			p.Fetch(FetchRequest{LeaderEpoch: -1, LastFetchedEpoch: -1, MaxBytes: 100}).Span.Release()
			p.ReplicaEnds()
			select {
			case asked <- struct{}{}:
			default:
			}
		}
		var w Watch
		p.Watch(&w, watcherFunc(ask))
		defer w.Stop()
		for _, acks := range []int16{0, 1, -1} {
			done := make(chan struct{})
			r := request(acks, "a")
			r.Timeout = time.Second
			p.Produce(r, func(ProduceResult) {
				ask()
				again := request(1, "b")
				again.Timeout = time.Second
				p.Produce(again, func(ProduceResult) { ask(); close(done) })
			})
			<-done
		}
		deleted := make(chan struct{})
		p.DeleteRecords(1, time.Second, func(record.Offset, error) { ask(); close(deleted) })
		<-deleted
		c.isolate(1, true)
		late := make(chan struct{})
		r := request(-1, "late")
		r.Timeout = time.Second
		p.Produce(r, func(ProduceResult) { ask(); close(late) })
		<-late
		c.isolate(1, false)
	})
}

// watcherFunc is a Watcher.
type watcherFunc func()

func (f watcherFunc) Progress() { f() }

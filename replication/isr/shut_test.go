package isr

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keeplog/keeplog/record"
)

// Shutting a partition waits for nothing: it may be called by what is changing the log, when the data directory goes offline in the middle. Who
// deletes the log waits, for what is returned.
func TestShutWaitsForNothing(t *testing.T) {
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
		shut, idle := make(chan changing, 1), make(chan struct{})
		go func() { shut <- p.shut(ErrOffline) }()
		synctest.Wait()
		select {
		case under := <-shut:
			go func() { under.wait(); close(idle) }()
		default:
			t.Error("it waits for the move of the log start, which could be its caller")
		}
		synctest.Wait()
		select {
		case <-idle:
			t.Error("the log may be deleted while its start is being moved")
		default:
		}
		end()
		<-idle
	})
}

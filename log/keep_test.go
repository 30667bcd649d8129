package log

import (
	"os"
	"testing"
	"time"

	"github.com/keeplog/keeplog/record"
)

// TestLeaveForKafka leaves a directory as a running process has it, for Kafka's own tools: set KEEPLOG_LEAVE to its path.
func TestLeaveForKafka(t *testing.T) {
	dir := os.Getenv("KEEPLOG_LEAVE")
	if dir == "" {
		t.Skip("KEEPLOG_LEAVE is not set")
	}
	d := osDir(t, dir)
	c := benchConfig()
	c.Segment.Bytes = 1 << 20
	l, err := d.OpenLog(Identity{"t", 0, testTopic}, c)
	must(t, err)
	must(t, l.StartEpoch(3))
	r := &rig{t: t, codecs: record.NewCodecs(), now: time.Now()}
	for i := range 1500 {
		r.now = r.now.Add(time.Millisecond)
		_, err := l.Append(Append{Batch: r.batch(sent{id: 77, seq: record.Sequence(3 * i), count: 3, size: 400}), Epoch: 3, NowMs: 1})
		must(t, err)
		if i%100 == 0 {
			must(t, l.Flush())
		}
	}
	must(t, l.Flush())
}

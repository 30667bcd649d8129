package record

import (
	"testing"
	"time"
)

func BenchmarkWalk(b *testing.B) {
	batch, err := realistic(1 << 20).Batch(nil)
	if err != nil {
		b.Fatal(err)
	}
	o := options()
	best := time.Hour
	for b.Loop() {
		start := time.Now()
		w := walk{b: batch, o: o, max: NoTimestamp, sequential: true}
		if err := w.run(batch.RecordsBytes(), nil); err != nil {
			b.Fatal(err)
		}
		best = min(best, time.Since(start))
	}
	b.ReportMetric(float64(best)/float64(batch.Count()), "best-ns/record")
}

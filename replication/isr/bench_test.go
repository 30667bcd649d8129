package isr

import (
	"testing"
	"time"
)

// BenchmarkProduceAlone is the path of a node alone: validate, append, flush, acknowledge.
func BenchmarkProduceAlone(b *testing.B) {
	t := &testing.T{}
	s := newStage(t)
	p := s.partition()
	r := request(-1, "some record of the usual kind")
	r.Timeout = time.Hour
	records := append([]byte(nil), r.Records...)
	b.ReportAllocs()
	acked := 0
	for b.Loop() {
		r.Records = append(r.Records[:0], records...)
		p.Produce(r, func(res ProduceResult) {
			if res.Err == nil {
				acked++
			}
		})
		if err := s.steps.Run(); err != nil {
			b.Fatal(err)
		}
	}
	if acked != b.N {
		b.Fatalf("%d of %d acknowledged", acked, b.N)
	}
}

package log

import (
	"testing"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// The time of a record is that of the record, in batches of every codec and after a start; where one is gone it is that of the next.
func TestTimeOf(t *testing.T) {
	const base, step = int64(1_600_000_000_000), 1000
	r := newRig(t, vfs.NewMem())
	r.config = smallSegments()
	l := r.log(0)
	for i := range 50 {
		o := record.NewOptions()
		o.Codec = []record.Codec{record.None, record.Zstd, record.LZ4}[i%3]
		b := record.NewBuilder(o)
		for k := range 3 {
			b.Append(base+int64(step*(3*i+k)), nil, make([]byte, 300))
		}
		batch, err := b.Batch(r.codecs)
		must(t, err)
		_, err = l.Append(Append{Batch: batch, NowMs: 1})
		must(t, err)
	}
	must(t, r.step.Run())
	check := func(l *Log) {
		t.Helper()
		for o := record.Offset(0); o < 150; o++ {
			got, ok, err := l.TimeOf(o, 150)
			if at := max(o, l.StartOffset()); err != nil || !ok || got.Offset != at || got.Timestamp != base+step*int64(at) {
				t.Fatalf("time of %d: %+v %v %v", o, got, ok, err)
			}
		}
		for _, bound := range []record.Offset{100, 150} {
			if got, ok, err := l.TimeOf(bound, bound); ok || err != nil {
				t.Fatalf("at the bound %d: %+v %v", bound, got, err)
			}
		}
	}
	check(l)
	must(t, l.AdvanceStart(70))
	check(l)
	r.restart()
	check(r.log(0))
}

// The records of a compressed batch that are of one time need not be unpacked.
func TestTimeOfNearRecords(t *testing.T) {
	r := newRig(t, vfs.NewMem())
	l := r.log(0)
	o := record.NewOptions()
	o.Codec = record.Zstd
	b := record.NewBuilder(o)
	for k := range 11 {
		b.Append(1000+int64(10*k), nil, make([]byte, 30))
	}
	batch, err := b.Batch(r.codecs)
	must(t, err)
	_, err = l.Append(Append{Batch: batch, NowMs: 1})
	must(t, err)
	must(t, r.step.Run())
	for k := range record.Offset(11) {
		if got, ok, err := l.TimeOf(k, 11); err != nil || !ok || got.Timestamp != 1000+10*int64(k) {
			t.Fatalf("%d: %+v %v %v", k, got, ok, err)
		}
	}
}

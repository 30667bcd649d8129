package log

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// osDir opens a data directory on the machine's disk with its own coordinator.
func osDir(t testing.TB, dir string) *Dir {
	t.Helper()
	d, err := OpenDir(DirOptions{
		FS: vfs.OS(), Path: dir, Logger: slog.New(slog.DiscardHandler), Codecs: record.NewCodecs(), Now: time.Now,
		Settings: Settings{Reserve: -1},
	})
	must(t, err)
	return d
}

func benchConfig() Config {
	c := testConfig()
	c.Segment.Bytes, c.Segment.IndexBytes = 1<<30, 10<<20
	return c
}

// unflushed is a config under which appends do not ask for a flush.
func unflushed() Config {
	c := benchConfig()
	c.Flush.Messages = 1 << 62
	return c
}

func TestAppendAllocatesAtMostTwice(t *testing.T) {
	d := osDir(t, t.TempDir())
	for name, s := range map[string]sent{"plain": {size: 1000}, "idempotent": {id: 5, size: 1000}} {
		l, err := d.OpenLog(Identity{name, 0, [16]byte{name[0]}}, benchConfig())
		must(t, err)
		r := &rig{t: t, codecs: record.NewCodecs(), now: time.Now()}
		b := r.batch(s)
		seq := record.Sequence(0)
		n := testing.AllocsPerRun(2000, func() {
			if s.id > 0 {
				next := r0(b, seq)
				seq++
				b = next
			}
			if _, err := l.Append(Append{Batch: b, NowMs: 1}); err != nil {
				t.Fatal(err)
			}
		})
		if n > 2 {
			t.Errorf("%s: %v allocations an append", name, n)
		}
	}
	must(t, d.Close())
}

// r0 sets the sequence of a batch in place.
func r0(b record.Batch, seq record.Sequence) record.Batch {
	b[53], b[54], b[55], b[56] = byte(seq>>24), byte(seq>>16), byte(seq>>8), byte(seq)
	return b
}

func TestReadAllocatesAtMostOnce(t *testing.T) {
	d := osDir(t, t.TempDir())
	l, err := d.OpenLog(Identity{"t", 0, testTopic}, unflushed())
	must(t, err)
	r := &rig{t: t, codecs: record.NewCodecs(), now: time.Now()}
	for range 1000 {
		_, err := l.Append(Append{Batch: r.batch(sent{size: 1000}), NowMs: 1})
		must(t, err)
	}
	for _, o := range []record.Offset{0, 500, 990, 999} {
		n := testing.AllocsPerRun(200, func() {
			sp, err := l.Read(ReadRequest{Offset: o, Bound: 1000, MaxBytes: 100_000})
			if err != nil {
				t.Fatal(err)
			}
			sp.Release()
		})
		if n > 1 {
			t.Errorf("read at %d: %v allocations", o, n)
		}
	}
	must(t, d.Close())
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 1000, 100_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			d := osDir(b, b.TempDir())
			l, err := d.OpenLog(Identity{"t", 0, testTopic}, unflushed())
			must(b, err)
			r := &rig{t: b, codecs: record.NewCodecs(), now: time.Now()}
			batch := r.batch(sent{size: size})
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.Append(Append{Batch: batch, NowMs: 1}); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			must(b, d.Close())
		})
	}
}

func BenchmarkReadTail(b *testing.B) {
	d := osDir(b, b.TempDir())
	l, err := d.OpenLog(Identity{"t", 0, testTopic}, unflushed())
	must(b, err)
	r := &rig{t: b, codecs: record.NewCodecs(), now: time.Now()}
	for range 1000 {
		_, err := l.Append(Append{Batch: r.batch(sent{size: 1000}), NowMs: 1})
		must(b, err)
	}
	for name, o := range map[string]record.Offset{"tail": 998, "behind": 500} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sp, err := l.Read(ReadRequest{Offset: o, Bound: 1000, MaxBytes: 1 << 20})
				if err != nil {
					b.Fatal(err)
				}
				sp.Release()
			}
		})
	}
	must(b, d.Close())
}

// BenchmarkDurable appends from many goroutines, each waiting for its flush.
func BenchmarkDurable(b *testing.B) {
	for _, clients := range []int{1, 64} {
		b.Run(fmt.Sprint(clients), func(b *testing.B) {
			d := osDir(b, b.TempDir())
			l, err := d.OpenLog(Identity{"t", 0, testTopic}, benchConfig())
			must(b, err)
			moved := make(chan struct{}, 1)
			l.OnProgress(func() {
				select {
				case moved <- struct{}{}:
				default:
				}
			})
			r := &rig{t: b, codecs: record.NewCodecs(), now: time.Now()}
			batch := r.batch(sent{size: 100})
			n := 0
			for b.Loop() {
				a, err := l.Append(Append{Batch: batch, NowMs: 1})
				if err != nil {
					b.Fatal(err)
				}
				if n++; n%clients == 0 {
					for l.StableEnd() <= a.Last {
						<-moved
					}
				}
			}
			b.StopTimer()
			must(b, d.Close())
		})
	}
}

func TestThousandPartitions(t *testing.T) {
	const n = 1000
	dir := t.TempDir()
	d := osDir(t, dir)
	reqs := make([]OpenRequest, n)
	for i := range reqs {
		reqs[i] = OpenRequest{Identity{"many", int32(i), testTopic}, benchConfig()}
	}
	begin := time.Now()
	for _, q := range reqs {
		_, err := d.OpenLog(q.Identity, q.Config)
		must(t, err)
	}
	created := time.Since(begin)
	r := &rig{t: t, codecs: record.NewCodecs(), now: time.Now()}
	begin = time.Now()
	for _, l := range d.open() {
		_, err := l.Append(Append{Batch: r.batch(sent{size: 500}), NowMs: 1})
		must(t, err)
	}
	for _, l := range d.open() {
		must(t, l.Flush())
	}
	written := time.Since(begin)
	begin = time.Now()
	must(t, d.Close())
	closed := time.Since(begin)
	begin = time.Now()
	d = osDir(t, dir)
	failed := make(chan error, n)
	d.OpenLogs(reqs, func(o OpenResult) { failed <- o.Err })
	reopened := time.Since(begin)
	for range n {
		must(t, <-failed)
	}
	for _, l := range d.open() {
		if l.WrittenEnd() != 1 {
			t.Fatalf("%s ends at %d", l.Path(), l.WrittenEnd())
		}
	}
	must(t, d.Close())
	t.Logf("1,000 partitions: created in %v, first batch durable in %v, closed in %v, reopened in %v", created, written, closed, reopened)
	if reopened > 2*time.Second && !raceDetector { // the aim is half a second; this only finds a change of kind
		t.Errorf("reopening took %v", reopened)
	}
}

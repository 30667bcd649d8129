package record

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func plain(t testing.TB, codec Codec, n, size int) Batch {
	t.Helper()
	o := NewOptions()
	o.Codec, o.Level = codec, DefaultLevel(codec)
	b := NewBuilder(o)
	value := bytes.Repeat([]byte("keeplog "), (size+7)/8)[:size]
	for i := range n {
		b.Append(1_700_000_000_000+int64(i), fmt.Appendf(nil, "k%d", i), value, Header{"h", nil}, Header{"", []byte{1}})
	}
	made, err := b.Batch(NewCodecs())
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// The header fields must be where another implementation puts them.
func TestHeaderFieldsMatchKmsg(t *testing.T) {
	m := kmsg.RecordBatch{
		FirstOffset: 77, Length: 49 + 3, PartitionLeaderEpoch: 5, Magic: 2, CRC: -2, Attributes: 0x3c,
		LastOffsetDelta: 9, FirstTimestamp: 1001, MaxTimestamp: 1002, ProducerID: 1 << 40, ProducerEpoch: 12,
		FirstSequence: math.MaxInt32 - 3, NumRecords: 10, Records: []byte{1, 2, 3},
	}
	b := Batch(m.AppendTo(nil))
	got := []any{
		b.BaseOffset(), b.LastOffset(), b.NextOffset(), b.Length(), b.Size(), b.PartitionLeaderEpoch(), b.Magic(), b.CRC(),
		b.Codec(), b.TimestampType(), b.Transactional(), b.Control(), b.HasDeleteHorizon(), b.LastOffsetDelta(),
		b.BaseTimestamp(), b.MaxTimestamp(), b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.LastSequence(),
		b.Count(), string(b.RecordsBytes()),
	}
	want := []any{
		Offset(77), Offset(86), Offset(87), int32(52), 64, Epoch(5), int8(2), uint32(math.MaxUint32 - 1),
		Zstd, LogAppendTime, true, true, false, int32(9),
		int64(1001), int64(1002), ProducerID(1 << 40), ProducerEpoch(12), Sequence(math.MaxInt32 - 3), Sequence(5),
		int32(10), "\x01\x02\x03",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	size, err := ParseHeader(b, 0)
	if size != 64 || err != nil {
		t.Fatalf("ParseHeader: %d, %v", size, err)
	}
}

// Batches as franz-go sends them, for each codec, must validate, and be the bytes that the builder makes.
func TestAgainstFranzGo(t *testing.T) {
	for _, codec := range []Codec{None, Gzip, Snappy, LZ4, Zstd} {
		t.Run(codec.String(), func(t *testing.T) {
			raw := captureFranzGo(t, codec)
			codecs := NewCodecs()
			r, err := Validate(raw, &ValidateOptions{
				Now: 1_700_000_000_000, BeforeMaxMs: Any, AfterMaxMs: 3_600_000, MaxUnpackedSize: 1 << 20, Codecs: codecs,
			})
			if err != nil || r.Action != InPlace {
				t.Fatalf("Validate: %v, %v", r, err)
			}
			b := Batch(raw)
			if b.Codec() != codec {
				t.Fatalf("codec %v", b.Codec())
			}
			records, err := codecs.Unpack(b, nil, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			o := NewOptions()
			o.ProducerID, o.ProducerEpoch, o.BaseSequence = b.ProducerID(), b.ProducerEpoch(), b.BaseSequence()
			builder := NewBuilder(o)
			for i := range 50 {
				ts := int64(1_700_000_000_000 - i)
				builder.Append(ts, []byte("key"), bytes.Repeat([]byte{byte(i)}, 100), Header{"a", []byte("b")}, Header{"n", nil})
			}
			ours, err := builder.Batch(codecs)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(records, ours.RecordsBytes()) {
				t.Fatal("the records differ")
			}
			if codec == None {
				ours.SetPartitionLeaderEpoch(b.PartitionLeaderEpoch())
				if d := cmp.Diff(raw, []byte(ours)); d != "" {
					t.Fatal(d)
				}
			}
		})
	}
}

// captureFranzGo lets a franz-go producer talk to a conversation of canned answers and returns its batch of 50 records. The
// client may send the first of them alone when it learns of the topic while they are handed over; then it is asked again.
func captureFranzGo(t *testing.T, codec Codec) []byte {
	t.Helper()
	for range 50 {
		if b := Batch(captureOnce(t, codec)); b.Count() == 50 {
			return b
		}
	}
	t.Fatal("no batch of 50 records in 50 tries")
	return nil
}

func captureOnce(t *testing.T, codec Codec) []byte {
	t.Helper()
	pick := map[Codec]kgo.CompressionCodec{
		None: kgo.NoCompression(), Gzip: kgo.GzipCompression(), Snappy: kgo.SnappyCompression(),
		LZ4: kgo.Lz4Compression(), Zstd: kgo.ZstdCompression(),
	}[codec]
	broker := newCannedBroker(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.addr), kgo.ProducerBatchCompression(pick),
		kgo.DefaultProduceTopic("t"), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()), kgo.MaxVersions(cannedVersions()),
		kgo.ManualFlushing())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for i := range 50 {
		client.Produce(context.Background(), &kgo.Record{
			Timestamp: milli(1_700_000_000_000 - int64(i)), Key: []byte("key"), Value: bytes.Repeat([]byte{byte(i)}, 100),
			Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("b")}, {Key: "n", Value: nil}},
		}, nil)
	}
	if err := client.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	return <-broker.batches
}

// Every prefix of a batch is torn, and nothing else.
func TestTruncations(t *testing.T) {
	b := plain(t, None, 3, 20)
	for n := 1; n < len(b); n++ {
		if _, _, err := Next(b[:n]); !errors.Is(err, ErrTorn) {
			t.Fatalf("Next of %d bytes: %v", n, err)
		}
		s := NewScanner(bytes.NewReader(b[:n]), ScanOptions{End: Position(n), Buffer: make([]byte, 4096), CRC: true})
		if s.Scan() || !errors.Is(s.Err(), ErrTorn) {
			t.Fatalf("Scan of %d bytes: %v", n, s.Err())
		}
	}
}

func TestParseHeaderErrors(t *testing.T) {
	good := plain(t, None, 1, 1)
	change := func(at int, v ...byte) []byte {
		c := bytes.Clone(good)
		copy(c[at:], v)
		return c
	}
	for name, c := range map[string]struct {
		buf  []byte
		want error
	}{
		"newer":      {change(16, 3), ErrNewerVersion},
		"old":        {change(16, 1), ErrOldVersion},
		"negative":   {change(16, 0x80), ErrCorrupt},
		"short":      {change(8, 0, 0, 0, 48), ErrCorrupt},
		"huge":       {change(8, 0x7f, 0xff, 0xff, 0xff), ErrCorrupt},
		"minus":      {change(8, 0xff, 0xff, 0xff, 0xff), ErrCorrupt},
		"over limit": {change(8, 0, 1, 0, 0), ErrCorrupt},
		"zeroes":     {make([]byte, 100), ErrCorrupt},
	} {
		if _, err := ParseHeader(c.buf, 1000); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSequenceWraps(t *testing.T) {
	for _, c := range []struct {
		s    Sequence
		n    int32
		want Sequence
	}{{0, 0, 0}, {5, 3, 8}, {math.MaxInt32, 1, 0}, {math.MaxInt32 - 1, 3, 1}, {math.MaxInt32, math.MaxInt32, math.MaxInt32 - 1}} {
		if got := c.s.Add(c.n); got != c.want {
			t.Errorf("%d + %d = %d, want %d", c.s, c.n, got, c.want)
		}
	}
}

func TestSettersKeepCRC(t *testing.T) {
	b := plain(t, None, 4, 10)
	b.SetBaseOffset(1 << 40)
	b.SetPartitionLeaderEpoch(9)
	if err := b.CheckCRC(); err != nil {
		t.Fatal(err)
	}
	b.SetMaxTimestamp(LogAppendTime, 42)
	if err := b.CheckCRC(); err != nil || b.MaxTimestamp() != 42 || b.TimestampType() != LogAppendTime {
		t.Fatal(err, b.MaxTimestamp(), b.TimestampType())
	}
	it := Iterate(b, b.RecordsBytes())
	for it.Next() {
		if it.Record().Timestamp != 42 {
			t.Fatal(it.Record().Timestamp)
		}
	}
	if it.Err() != nil {
		t.Fatal(it.Err())
	}
}

// The scanner shows the same batches whatever the size of its buffer, and stops at a changed byte.
func TestScanner(t *testing.T) {
	var file []byte
	var starts []Position
	for i := range 40 {
		starts = append(starts, Position(len(file)))
		b := plain(t, Codec(i%5), 1+i*3, 400)
		b.SetBaseOffset(Offset(i * 1000))
		file = append(file, b...)
	}
	for _, size := range []int{4096, 5000, 64 << 10, 1 << 20} {
		for _, crc := range []bool{false, true} {
			s := NewScanner(bytes.NewReader(file), ScanOptions{End: Position(len(file)), Buffer: make([]byte, size), CRC: crc})
			n := 0
			for ; s.Scan(); n++ {
				b := s.Batch()
				if s.Position() != starts[n] || b.BaseOffset() != Offset(n*1000) || int(s.Next()-s.Position()) != b.Size() {
					t.Fatalf("buffer %d: batch %d at %d", size, n, s.Position())
				}
				if s.Whole() && len(b) != b.Size() {
					t.Fatal("not whole")
				}
				if crc && b.Size() <= size && !s.Whole() {
					t.Fatal("should be whole")
				}
			}
			if s.Err() != nil || n != 40 {
				t.Fatalf("buffer %d: %d batches, %v", size, n, s.Err())
			}
		}
		for _, i := range []int{0, 7, 39} {
			bad := bytes.Clone(file)
			bad[int(starts[i])+HeaderSize+3] ^= 1
			s := NewScanner(bytes.NewReader(bad), ScanOptions{File: "f", End: Position(len(bad)), Buffer: make([]byte, size), CRC: true})
			n := 0
			for s.Scan() {
				n++
			}
			var place *PlaceError
			if n != i || !errors.Is(s.Err(), ErrCorrupt) || !errors.As(s.Err(), &place) || place.Position != starts[i] {
				t.Fatalf("buffer %d, damage in %d: stopped after %d, %v", size, i, n, s.Err())
			}
			end := Position(len(bad))
			if i < 39 {
				end = starts[i+1]
			}
			if s.Next() != end {
				t.Fatalf("next is %d", s.Next())
			}
			for s.Resume(s.Next()); s.Scan(); {
				n++
			}
			if s.Err() != nil || n != 39 {
				t.Fatalf("after Resume: %d, %v", n, s.Err())
			}
		}
	}
}

type failingReader struct{ err error }

func (f failingReader) ReadAt([]byte, int64) (int, error) { return 0, f.err }

func TestScannerPassesReadErrors(t *testing.T) {
	s := NewScanner(failingReader{io.ErrClosedPipe}, ScanOptions{End: 100, Buffer: make([]byte, 4096)})
	if s.Scan() || !errors.Is(s.Err(), io.ErrClosedPipe) || errors.Is(s.Err(), ErrTorn) {
		t.Fatal(s.Err())
	}
}

func TestIteratorAndEmptyAndMarker(t *testing.T) {
	b := plain(t, None, 3, 5)
	b.SetBaseOffset(100)
	it := Iterate(b, b.RecordsBytes())
	for i := 0; it.Next(); i++ {
		r := it.Record()
		if r.Offset != Offset(100+i) || r.Timestamp != 1_700_000_000_000+int64(i) || string(r.Key) != fmt.Sprintf("k%d", i) {
			t.Fatalf("%+v", r)
		}
		h := r.Headers
		k, v, _ := h.Next()
		k2, v2, _ := h.Next()
		if _, _, ok := h.Next(); ok || string(k) != "h" || v != nil || string(k2) != "" || !bytes.Equal(v2, []byte{1}) {
			t.Fatal("headers")
		}
	}
	e := Empty(b)
	if e.Count() != 0 || e.LastOffset() != b.LastOffset() || e.MaxTimestamp() != b.MaxTimestamp() || e.BaseTimestamp() != -1 || e.CheckCRC() != nil || len(e) != HeaderSize {
		t.Fatalf("%x", []byte(e))
	}
	m := Marker{Commit: true, ProducerID: 5, ProducerEpoch: 2, CoordinatorEpoch: 7, Timestamp: 9}.Batch()
	it = Iterate(m, m.RecordsBytes())
	if !it.Next() || m.CheckCRC() != nil || !m.Control() || !m.Transactional() {
		t.Fatal(it.Err())
	}
	c, err := ParseControl(it.Record())
	if err != nil || c.Type != ControlCommit || c.CoordinatorEpoch != 7 {
		t.Fatal(c, err)
	}
}

// Whatever is done to the bytes, nothing panics.
func TestMutationsNeverPanic(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	codecs := NewCodecs()
	o := &ValidateOptions{BeforeMaxMs: Any, AfterMaxMs: Any, MaxUnpackedSize: 1 << 20, Codecs: codecs, Compacted: true}
	for range fewer(6000, 150) {
		b := plain(t, Codec(rng.IntN(5)), 1+rng.IntN(20), rng.IntN(100))
		for range 1 + rng.IntN(4) {
			b[rng.IntN(len(b))] = byte(rng.Uint32())
		}
		if rng.IntN(2) == 0 && len(b) > HeaderSize {
			b = b[:rng.IntN(len(b))]
		}
		exercise(b, o)
		if len(b) >= HeaderSize {
			b.updateCRC()
			exercise(b, o)
		}
	}
}

func exercise(b []byte, o *ValidateOptions) {
	r, err := Validate(b, o)
	if err == nil {
		switch r.Action {
		case RebuildBatch:
			made, err := Rebuild(b, o)
			if err != nil {
				panic(err)
			}
			if r, err := Validate(made, o); err != nil || r.Action == RebuildBatch {
				panic(fmt.Sprint(r, err))
			}
		default:
			r.Apply(b)
		}
	}
	for rest := b; len(rest) > 0; {
		batch, next, err := Next(rest)
		if err != nil {
			break
		}
		records, err := o.Codecs.Unpack(batch, nil, 1<<20)
		if err == nil {
			it := Iterate(batch, records)
			for it.Next() {
				h := it.Record().Headers
				for _, _, ok := h.Next(); ok; _, _, ok = h.Next() {
				}
				ParseControl(it.Record())
			}
		}
		rest = next
	}
}

// A batch behind damage is found wherever it begins; one below the lowest offset, or a damaged one, is not.
func TestFindBatch(t *testing.T) {
	a, b := plain(t, None, 20, 500), plain(t, Zstd, 300, 500)
	a.SetBaseOffset(10)
	b.SetBaseOffset(30)
	for _, gap := range []int{0, 1, 60, 61, 2047, 2048, 5000, 10_000} {
		file := append(bytes.Repeat([]byte{2}, gap), a...)
		first := len(file)
		file = append(append(file, b...), 1, 2, 3)
		o := ScanOptions{End: Position(len(file)), Buffer: make([]byte, 8192)}
		if at, found, err := FindBatch(bytes.NewReader(file), o, 0); at != Position(gap) || !found || err != nil {
			t.Fatalf("gap %d: %d %v %v", gap, at, found, err)
		}
		if at, found, err := FindBatch(bytes.NewReader(file), o, 11); at != Position(first) || !found || err != nil {
			t.Fatalf("gap %d: %d %v %v", gap, at, found, err)
		}
		if _, found, err := FindBatch(bytes.NewReader(file), o, 31); found || err != nil {
			t.Fatal(found, err)
		}
		file[gap+100] ^= 1
		if at, found, err := FindBatch(bytes.NewReader(file), o, 0); at != Position(first) || !found || err != nil {
			t.Fatalf("gap %d, damaged: %d %v %v", gap, at, found, err)
		}
	}
	if _, _, err := FindBatch(failingReader{io.ErrClosedPipe}, ScanOptions{End: 100, Buffer: make([]byte, 8192)}, 0); !errors.Is(err, io.ErrClosedPipe) {
		t.Fatal(err)
	}
}

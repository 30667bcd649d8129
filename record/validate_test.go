package record

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const now = 1_700_000_000_000

func options() *ValidateOptions {
	return &ValidateOptions{
		Now: now, BeforeMaxMs: Any, AfterMaxMs: 3_600_000, MaxUnpackedSize: 8 << 20, Codecs: NewCodecs(),
	}
}

type rec struct {
	delta int32
	ts    int64
	key   []byte
}

// batchOf seals records with the deltas given, in whatever order.
func batchOf(t testing.TB, codec Codec, recs ...rec) Batch {
	t.Helper()
	o := NewOptions()
	o.Codec, o.Level = codec, DefaultLevel(codec)
	b := NewBuilder(o)
	b.base, b.o.DeleteHorizon = now, now
	for _, r := range recs {
		b.lastDelta = r.delta - 1
		b.add(r.delta, r.ts, &Record{Key: r.key, Value: []byte("v")})
	}
	b.o.DeleteHorizon = 0
	b.lastDelta = int32(len(recs)) - 1
	made, err := b.Batch(NewCodecs())
	if err != nil {
		t.Fatal(err)
	}
	return made
}

type refusal struct {
	b    []byte
	o    func(*ValidateOptions)
	want error
}

func TestValidateRefusals(t *testing.T) {
	for name, c := range refusals(t) {
		t.Run(name, func(t *testing.T) {
			o := options()
			if c.o != nil {
				c.o(o)
			}
			if r, err := Validate(c.b, o); !errors.Is(err, c.want) {
				t.Fatalf("%v, %v, want %v", r, err, c.want)
			}
		})
	}
}

func refusals(t *testing.T) map[string]refusal {
	key := []byte("k")
	good := func() Batch { return batchOf(t, None, rec{0, now, key}, rec{1, now, key}) }
	put := func(at int, v ...byte) Batch {
		b := good()
		copy(b[at:], v)
		b.updateCRC()
		return b
	}
	ff := func(n int) []byte {
		return append(make([]byte, 0), []byte{255, 255, 255, 255, 255, 255, 255, 255}[:n]...)
	}
	return map[string]refusal{
		"nothing":         {nil, nil, ErrInvalidRecord},
		"a few bytes":     {good()[:16], nil, ErrInvalidRecord},
		"cut":             {good()[:70], nil, ErrInvalidRecord},
		"two batches":     {append(good(), good()...), nil, ErrInvalidRecord},
		"trailing byte":   {append(good(), 0), nil, ErrInvalidRecord},
		"magic 1":         {put(atMagic, 1), nil, ErrInvalidRecord},
		"magic 3":         {put(atMagic, 3), nil, ErrCorrupt},
		"length too low":  {put(atLength, 0, 0, 0, 48), nil, ErrCorrupt},
		"length negative": {put(atLength, ff(4)...), nil, ErrCorrupt},
		"base offset":     {put(atBaseOffset, 0, 0, 0, 0, 0, 0, 0, 1), nil, ErrInvalidRecord},
		"crc":             {func() Batch { b := good(); b[len(b)-1] ^= 1; return b }(), nil, ErrCorrupt},
		"count 0":         {put(atCount, 0, 0, 0, 0), nil, ErrInvalidRecord},
		"count negative":  {put(atCount, ff(4)...), nil, ErrInvalidRecord},
		"count low":       {put(atCount, 0, 0, 0, 1), nil, ErrInvalidRecord},
		"count high":      {put(atCount, 0, 0, 0, 3), nil, ErrInvalidRecord},
		"both high": {func() Batch {
			b := put(atCount, 0, 0, 0, 3)
			b[atLastDelta+3] = 2
			b.updateCRC()
			return b
		}(), nil, ErrInvalidRecord},
		"both low": {func() Batch {
			b := put(atCount, 0, 0, 0, 1)
			b[atLastDelta+3] = 0
			b.updateCRC()
			return b
		}(), nil, ErrInvalidRecord},
		"both negative": {func() Batch {
			b := put(atCount, 0x80, 0, 0, 0)
			copy(b[atLastDelta:], []byte{0x7f, 255, 255, 255})
			b.updateCRC()
			return b
		}(), nil, ErrInvalidRecord},
		"control":          {put(atAttributes, 0, attrControl), nil, ErrInvalidRecord},
		"codec 5":          {put(atAttributes, 0, 5), nil, ErrInvalidRecord},
		"codec 7":          {put(atAttributes, 0, 7), nil, ErrInvalidRecord},
		"not gzip":         {put(atAttributes, 0, 1), nil, ErrInvalidRecord},
		"not snappy":       {put(atAttributes, 0, 2), nil, ErrInvalidRecord},
		"not lz4":          {put(atAttributes, 0, 3), nil, ErrInvalidRecord},
		"not zstd":         {put(atAttributes, 0, 4), nil, ErrInvalidRecord},
		"zstd too early":   {batchOf(t, Zstd, rec{0, now, key}), func(o *ValidateOptions) { o.NoZstd = true }, ErrUnsupportedCodec},
		"sequence":         {put(atProducerID, 0, 0, 0, 0, 0, 0, 0, 1), nil, ErrInvalidRecord},
		"too large":        {good(), func(o *ValidateOptions) { o.MaxBatchBytes = len(good()) - 1 }, ErrTooLarge},
		"unpacks to much":  {plain(t, Gzip, 10, 10000), func(o *ValidateOptions) { o.MaxUnpackedSize = 90000 }, ErrTooLarge},
		"from the future":  {batchOf(t, None, rec{0, now + 3_600_001, key}), nil, ErrInvalidTimestamp},
		"too old":          {batchOf(t, None, rec{0, now - 11, key}), func(o *ValidateOptions) { o.BeforeMaxMs = 10 }, ErrInvalidTimestamp},
		"null key":         {batchOf(t, None, rec{0, now, nil}), func(o *ValidateOptions) { o.Compacted = true }, ErrInvalidRecord},
		"stamped, ts -1":   {func() Batch { b := batchOf(t, None, rec{0, -1, key}); b.SetAttributes(attrLogAppendTime); return b }(), nil, ErrInvalidTimestamp},
		"stamped, stamped": {put(atAttributes, 0, attrLogAppendTime), func(o *ValidateOptions) { o.LogAppendTime = true }, ErrInvalidTimestamp},
	}
}

// Every bad record is named; a bad timestamp decides the kind; a missing key goes before a bad time of the same record.
func TestValidateNamesRecords(t *testing.T) {
	o := options()
	o.Compacted = true
	_, err := Validate(batchOf(t, LZ4, rec{0, now, nil}, rec{1, now, []byte("k")}, rec{2, now + 4_000_000, []byte("k")}, rec{3, now + 4_000_000, nil}), o)
	var list *RecordErrors
	if !errors.As(err, &list) || !errors.Is(err, ErrInvalidTimestamp) {
		t.Fatal(err)
	}
	want := []RecordError{{0, now, ErrNullKey}, {2, now + 4_000_000, ErrInvalidTimestamp}, {3, now + 4_000_000, ErrNullKey}}
	if d := cmp.Diff(want, list.Records, cmp.Comparer(func(a, b error) bool { return a == b })); d != "" {
		t.Fatal(d)
	}
}

func TestValidateActions(t *testing.T) {
	key := []byte("k")
	two := func(codec Codec) Batch { return batchOf(t, codec, rec{0, now + 5, key}, rec{1, now + 2, nil}) }
	for name, c := range map[string]struct {
		b    Batch
		o    func(*ValidateOptions)
		want Result
	}{
		"as it is":      {two(None), nil, Result{InPlace, now + 5, 0}},
		"compressed":    {two(Zstd), nil, Result{InPlace, now + 5, 0}},
		"ts -1":         {batchOf(t, None, rec{0, -1, key}), nil, Result{InPlace, -1, 0}},
		"same codec":    {two(Gzip), func(o *ValidateOptions) { o.Recompress, o.Codec = true, Gzip }, Result{InPlace, now + 5, 0}},
		"other codec":   {two(Gzip), func(o *ValidateOptions) { o.Recompress, o.Codec = true, None }, Result{RebuildBatch, now + 5, 0}},
		"append time":   {two(None), func(o *ValidateOptions) { o.LogAppendTime = true }, Result{StampAppendTime, now, 1}},
		"any timestamp": {batchOf(t, None, rec{0, 1 << 60, key}), func(o *ValidateOptions) { o.LogAppendTime = true }, Result{StampAppendTime, now, 0}},
		"deltas":        {batchOf(t, Snappy, rec{3, now, key}, rec{1, now + 9, key}), nil, Result{RebuildBatch, now + 9, 1}},
		"max too low": {
			func() Batch { b := two(None); b.SetMaxTimestamp(CreateTime, now); return b }(), nil,
			Result{FixMaxTimestamp, now + 5, 0},
		},
		"stamped": {
			func() Batch { b := two(LZ4); b.SetMaxTimestamp(LogAppendTime, 7); return b }(), nil,
			Result{FixMaxTimestamp, now + 5, 0},
		},
		"not unpacked": {
			func() Batch { b := two(Gzip); b[len(b)-1] ^= 1; b.updateCRC(); return b }(),
			func(o *ValidateOptions) { o.SkipUnpack = true },
			Result{InPlace, now + 5, 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := options()
			if c.o != nil {
				c.o(o)
			}
			r, err := Validate(c.b, o)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, r); d != "" {
				t.Fatal(d)
			}
			if r.Action == RebuildBatch {
				checkRebuilt(t, c.b, o)
				return
			}
			r.Apply(c.b)
			if err := c.b.CheckCRC(); err != nil {
				t.Fatal(err)
			}
			if c.b.MaxTimestamp() != c.want.MaxTimestamp || (c.b.TimestampType() == LogAppendTime) != o.LogAppendTime {
				t.Fatalf("max %d, %v", c.b.MaxTimestamp(), c.b.TimestampType())
			}
		})
	}
}

func checkRebuilt(t *testing.T, b Batch, o *ValidateOptions) {
	t.Helper()
	made, err := Rebuild(b, o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Validate(made, o)
	if err != nil || r.Action != InPlace {
		t.Fatalf("rebuilt: %v, %v", r, err)
	}
	type row struct {
		Timestamp  int64
		Key, Value string
	}
	rows := func(b Batch) (rows []row) {
		records, err := o.Codecs.Unpack(b, nil, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		it := Iterate(b, records)
		for it.Next() {
			rows = append(rows, row{it.Record().Timestamp, string(it.Record().Key), string(it.Record().Value)})
		}
		if it.Err() != nil {
			t.Fatal(it.Err())
		}
		return rows
	}
	if d := cmp.Diff(rows(b), rows(made)); d != "" {
		t.Fatal(d)
	}
	o.MaxBatchBytes = len(made) - 1
	if _, err := Rebuild(b, o); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("limit: %v", err)
	}
}

// Each way in which a record can be malformed inside of intact lengths and CRC.
func TestMalformedRecords(t *testing.T) {
	wrap := func(body ...byte) []byte { return append([]byte{byte(len(body) * 2)}, body...) }
	for name, raw := range map[string][]byte{
		"empty record":         {0},
		"negative length":      {1},
		"length past the end":  {20, 0, 0, 0, 1, 1, 0},
		"varint without end":   {0x80, 0x80, 0x80, 0x80, 0x80, 0},
		"varint of 33 bits":    {0x80, 0x80, 0x80, 0x80, 0x10},
		"no timestamp":         wrap(0),
		"no offset":            wrap(0, 0),
		"no key":               wrap(0, 0, 0),
		"key -2":               wrap(0, 0, 0, 3, 1, 0),
		"key past the end":     wrap(0, 0, 0, 20, 1, 0),
		"no value":             wrap(0, 0, 0, 1),
		"value -2":             wrap(0, 0, 0, 1, 3, 0),
		"value past the end":   wrap(0, 0, 0, 1, 20, 0),
		"no header count":      wrap(0, 0, 0, 1, 1),
		"negative headers":     wrap(0, 0, 0, 1, 1, 1),
		"too many headers":     wrap(0, 0, 0, 1, 1, 4, 0, 1),
		"header null key":      wrap(0, 0, 0, 1, 1, 2, 1, 1),
		"header key past end":  wrap(0, 0, 0, 1, 1, 2, 8, 1),
		"header value -2":      wrap(0, 0, 0, 1, 1, 2, 0, 3),
		"rest after headers":   wrap(0, 0, 0, 1, 1, 2, 0, 1, 9),
		"rest without headers": wrap(0, 0, 0, 1, 1, 0, 9),
		"rest after records":   append(wrap(0, 0, 0, 1, 1, 0), 9),
		"nothing":              {},
	} {
		t.Run(name, func(t *testing.T) {
			b := append(batchOf(t, None, rec{0, now, nil})[:HeaderSize:HeaderSize], raw...)
			binary.BigEndian.PutUint32(b[atLength:], uint32(len(b)-logOverhead))
			b.updateCRC()
			if _, err := Validate(b, options()); !errors.Is(err, ErrInvalidRecord) {
				t.Fatal(err)
			}
			it := Iterate(b, b.RecordsBytes())
			for it.Next() {
			}
			if !errors.Is(it.Err(), ErrInvalidRecord) {
				t.Fatal(it.Err())
			}
		})
	}
}

func TestVarintsRoundTrip(t *testing.T) {
	for _, v := range []int64{0, 1, -1, 63, 64, -64, -65, 1 << 20, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64} {
		enc := appendVarlong(nil, v)
		if got, n := varlong(enc); got != v || n != len(enc) || n != sizeVarlong(v) {
			t.Errorf("%d: %d in %d bytes", v, got, n)
		}
		if int64(int32(v)) != v {
			continue
		}
		enc = appendVarint(nil, int32(v))
		if got, n := varint(enc); int64(got) != v || n != len(enc) || n != sizeVarint(int32(v)) {
			t.Errorf("%d: %d in %d bytes", v, got, n)
		}
	}
}

func TestValidateDoesNotAllocate(t *testing.T) {
	b, o := plain(t, None, 100, 100), options()
	if n := testing.AllocsPerRun(100, func() {
		if _, err := Validate(b, o); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkValidate(b *testing.B) {
	for _, c := range []struct {
		name string
		n, s int
	}{{"1KiB", 1000, 1024}, {"100B", 10000, 82}} {
		o := NewOptions()
		builder := NewBuilder(o)
		for i := range c.n {
			builder.Append(now+int64(i), nil, make([]byte, c.s))
		}
		batch, _ := builder.Batch(nil)
		vo := options()
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Validate(batch, vo); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(c.n), "ns/record")
		})
		b.Run(c.name+"/crc-only", func(b *testing.B) {
			b.SetBytes(int64(len(batch)))
			for b.Loop() {
				if err := batch.CheckCRC(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(c.n), "ns/record")
		})
	}
}

// A small compressed batch of very many bad records does not cost memory for each of them.
func TestRecordErrorsAreBounded(t *testing.T) {
	for _, codec := range []Codec{None, Zstd} {
		o := NewOptions()
		o.Codec = codec
		builder := NewBuilder(o)
		for range maxRecordErrors + 10 {
			builder.Append(now, nil, nil)
		}
		b, err := builder.Batch(NewCodecs())
		if err != nil {
			t.Fatal(err)
		}
		vo := options()
		vo.Compacted = true
		want := maxRecordErrors
		if codec != None {
			want = fewRecordErrors + len(b)/4
		}
		var list *RecordErrors
		if _, err := Validate(b, vo); !errors.As(err, &list) || len(list.Records) != want {
			t.Fatalf("%v: %v, not %d", codec, err, want)
		}
	}
}

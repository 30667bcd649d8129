package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// inPieces packs pieces so that each comes out on its own.
func inPieces(tb testing.TB, codec Codec, pieces ...[]byte) []byte {
	c := NewCodecs()
	var packed []byte
	switch codec {
	case Snappy:
		packed = appendXerialHeader(nil)
		for _, p := range pieces {
			packed = c.appendSnappyBlock(packed, p)
		}
	case LZ4:
		packed = appendLZ4Header(nil)
		for _, p := range pieces {
			if len(p) > 0 {
				packed, _ = c.appendLZ4Block(packed, DefaultLZ4Level, p)
			}
		}
		packed = binary.LittleEndian.AppendUint32(packed, 0)
	default:
		for _, p := range pieces {
			var err error
			if packed, err = c.Compress(packed, codec, DefaultLevel(codec), p); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return packed
}

// outcome is what a check says, as far as it may not differ.
type outcome struct {
	Result Result
	Kind   string
	Named  []RecordError
}

func outcomeOf(r Result, err error) outcome {
	o := outcome{Result: r, Kind: "valid"}
	for _, kind := range []error{ErrTooLarge, ErrInvalidTimestamp, ErrInvalidRecord, ErrCorrupt, ErrUnsupportedCodec} {
		if errors.Is(err, kind) {
			o.Kind = kind.Error()
		}
	}
	var list *RecordErrors
	if errors.As(err, &list) {
		o.Named = list.Records
	}
	return o
}

// wholly checks as Validate does, but unpacks the batch into memory first.
func wholly(b Batch, o *ValidateOptions) outcome {
	if _, err := single(b, o); err != nil {
		return outcomeOf(Result{}, err)
	}
	if err := checkFrame(b, o); err != nil {
		return outcomeOf(Result{}, err)
	}
	records, err := o.Codecs.Unpack(b, nil, o.MaxUnpackedSize)
	if err != nil {
		return outcomeOf(Result{}, err)
	}
	w := walk{b: b, o: o, max: NoTimestamp, sequential: true}
	if err := w.run(records, nil); err != nil {
		return outcomeOf(Result{}, err)
	}
	return outcomeOf(w.result(), nil)
}

func sameOutcome(t *testing.T, b Batch, o *ValidateOptions, what string) (valid bool) {
	t.Helper()
	want, got := wholly(b, o), outcomeOf(Validate(b, o))
	// Which of two faults is met first depends on the order.
	invalid := func(kind string) bool { return kind == ErrTooLarge.Error() || kind == ErrInvalidRecord.Error() }
	if want.Named == nil && got.Named == nil && invalid(want.Kind) && invalid(got.Kind) {
		return false
	}
	same := cmp.Comparer(func(a, b error) bool { return a == b })
	if d := cmp.Diff(want, got, same); d != "" {
		t.Fatalf("%s: %s\n%x", what, d, []byte(b))
	}
	return got.Kind == "valid"
}

// small are a few records with everything that a record can have, and numbers of every length.
func small() (records []byte, count int32) {
	b := NewBuilder(NewOptions())
	b.Append(now, []byte("key"), []byte("value"), Header{"h", nil}, Header{"", []byte("x")})
	b.Append(now+1e15, nil, bytes.Repeat([]byte("v"), 70))
	b.Append(now-5, []byte{}, nil)
	b.Append(now+70, bytes.Repeat([]byte("k"), 130), []byte{}, Header{"header", bytes.Repeat([]byte("y"), 64)})
	return b.buf[HeaderSize:], b.count
}

func smallBatch(packed []byte, codec Codec, count int32) Batch {
	b := repacked(make([]byte, HeaderSize), codec, packed)
	b[atMagic] = Magic
	binary.BigEndian.PutUint64(b[atBaseTimestamp:], uint64(now))
	binary.BigEndian.PutUint64(b[atProducerID:], 1<<64-1)
	binary.BigEndian.PutUint32(b[atCount:], uint32(count))
	binary.BigEndian.PutUint32(b[atLastDelta:], uint32(count-1))
	b.updateCRC()
	return b
}

// Records are read over the border of two windows wherever it lies, and where every byte has a window of its own: the
// same as in one piece, when they are valid, when they are cut, when any byte is another, and with a wrong count.
func TestBordersEverywhere(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	records, count := small()
	o := options()
	o.AfterMaxMs = Any
	check := func(what string, records []byte, count int32, full bool) {
		want := wholly(smallBatch(records, None, count), o)
		same := cmp.Comparer(func(a, b error) bool { return a == b })
		for _, codec := range allCodecs[1:] {
			pieces := [][][]byte{{records}}
			for at := range len(records) {
				if full || rng.IntN(40) == 0 {
					pieces = append(pieces, [][]byte{records[:at], records[at:]})
				}
			}
			if full {
				var single [][]byte
				for i := range records {
					single = append(single, records[i:i+1])
				}
				pieces = append(pieces, single)
			}
			for i, p := range pieces {
				b := smallBatch(inPieces(t, codec, p...), codec, count)
				got := outcomeOf(Validate(b, o))
				if got.Result.Action == InPlace && want.Result.Action == FixMaxTimestamp {
					t.Fatal("action")
				}
				if d := cmp.Diff(want, got, same); d != "" {
					t.Fatalf("%s, %v, pieces %d: %s\n%x", what, codec, i, d, records)
				}
			}
		}
	}
	check("valid", records, count, !raceDetector)
	if testing.Short() || raceDetector {
		return
	}
	check("one more", records, count+1, true)
	check("one less", records, count-1, true)
	for n := range len(records) {
		check(fmt.Sprintf("cut at %d", n), records[:n], count, false)
	}
	for range 80 {
		bad := bytes.Clone(records)
		for range 1 + rng.IntN(3) {
			bad[rng.IntN(len(bad))] = byte(rng.Uint32() >> (8 * rng.IntN(4)))
		}
		check("changed", bad, count, false)
	}
}

// Batches of many windows, and the same with changed bytes, get the answer that they get in one piece.
func TestWindowsAgainstWhole(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	o := options()
	o.BeforeMaxMs, o.AfterMaxMs = Any, Any
	valid := 0
	for i := range fewer(60, 4) {
		codec := allCodecs[1+i%4]
		b := *realistic(1)
		for b.Len() < 200_000 {
			b.Append(now+int64(rng.IntN(1000)), nil, bytes.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(1<<rng.IntN(18))))
		}
		ls := levels(codec)
		b.o.Codec, b.o.Level = codec, ls[rng.IntN(len(ls))]
		batch, err := b.Batch(o.Codecs)
		if err != nil {
			t.Fatal(err)
		}
		o.MaxUnpackedSize = b.Len() - HeaderSize - rng.IntN(2)*rng.IntN(1000)
		sameOutcome(t, batch, o, "as made")
		for range fewer(10, 2) {
			bad := bytes.Clone(batch)
			for range 1 + rng.IntN(3) {
				bad[HeaderSize+rng.IntN(len(bad)-HeaderSize)] ^= 1 << rng.IntN(8)
			}
			Batch(bad).updateCRC()
			if sameOutcome(t, bad, o, fmt.Sprintf("%v, changed", codec)) {
				valid++
			}
		}
	}
	t.Logf("%d changed batches are valid", valid)
}

// What another writer makes: large LZ4 blocks, one snappy block, zstd frames that name large windows.
func TestStreamsOfOtherWriters(t *testing.T) {
	for _, size := range []int{1000, 300_000, fewer(4<<20, 400_000)} {
		raw := realistic(size)
		records := raw.buf[HeaderSize:]
		plain := *raw
		plain.buf = bytes.Clone(raw.buf)
		base, err := plain.Batch(nil)
		if err != nil {
			t.Fatal(err)
		}
		var four bytes.Buffer
		w := lz4.NewWriter(&four)
		w.Apply(lz4.BlockSizeOption(lz4.Block4Mb), lz4.ChecksumOption(true))
		w.Write(records)
		w.Close()
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(8<<20))
		if err != nil {
			t.Fatal(err)
		}
		for name, b := range map[string]Batch{
			"lz4 blocks of 4 MiB":   repacked(base, LZ4, four.Bytes()),
			"snappy in one block":   repacked(base, Snappy, s2.EncodeSnappy(nil, records)),
			"zstd window of 8 MiB":  repacked(base, Zstd, streamedZstd(enc, records)),
			"zstd names 128 MiB":    repacked(base, Zstd, renamed(streamedZstd(enc, records), 17<<3)),
			"zstd, known size":      repacked(base, Zstd, enc.EncodeAll(records, nil)),
			"zstd, a skipped frame": repacked(base, Zstd, append([]byte{0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 9}, enc.EncodeAll(records, nil)...)),
		} {
			if r, err := Validate(b, options()); err != nil || r.Action != InPlace {
				t.Fatalf("%s, %d bytes: %v, %v", name, size, r, err)
			}
		}
	}
}

func streamedZstd(w *zstd.Encoder, b []byte) []byte {
	var out bytes.Buffer
	w.Reset(&out)
	w.Write(b[:len(b)/2])
	w.Write(b[len(b)/2:])
	w.Close()
	return out.Bytes()
}

// renamed is the frame with another window in its header.
func renamed(frame []byte, descriptor byte) []byte {
	var h zstd.Header
	if err := h.Decode(frame); err != nil {
		panic(err)
	}
	var in zstdInput
	in.set(frame, h.HeaderSize, descriptor)
	return append(bytes.Clone(in.head), in.rest...)
}

// one is a batch of one record with a value of size equal bytes, packed so that it unpacks to that.
func one(tb testing.TB, codec Codec, value []byte) (Batch, []byte) {
	b := NewBuilder(NewOptions())
	b.Append(now, nil, value)
	raw := b.buf[HeaderSize:]
	made, err := b.Batch(nil)
	if err != nil {
		tb.Fatal(err)
	}
	return made[:HeaderSize:HeaderSize], raw
}

const bombSize = 8 << 20

// bombs are small batches that unpack to bombSize, or say that they do to much.
func bombs(tb testing.TB) map[string]Batch {
	c := NewCodecs()
	made := map[string]Batch{}
	for _, codec := range allCodecs[1:] {
		head, raw := one(tb, codec, make([]byte, bombSize))
		packed, err := c.Compress(nil, codec, DefaultLevel(codec), raw)
		if err != nil {
			tb.Fatal(err)
		}
		made[codec.String()+", one large record"] = repacked(head, codec, packed)
		few := repacked(head, codec, packed)
		binary.BigEndian.PutUint32(few[atCount:], 1000)
		binary.BigEndian.PutUint32(few[atLastDelta:], 999)
		few.updateCRC()
		made[codec.String()+", records missing"] = few
		small, err := c.Compress(nil, codec, DefaultLevel(codec), append(raw[:0:0], append([]byte{12, 0, 0, 0, 1, 0, 0}, make([]byte, bombSize)...)...))
		if err != nil {
			tb.Fatal(err)
		}
		made[codec.String()+", bytes left over"] = repacked(head, codec, small)
	}
	head, raw := one(tb, LZ4, make([]byte, bombSize))
	var four bytes.Buffer
	w := lz4.NewWriter(&four)
	w.Apply(lz4.BlockSizeOption(lz4.Block4Mb), lz4.ChecksumOption(true))
	w.Write(raw)
	w.Close()
	made["lz4 in blocks of 4 MiB"] = repacked(head, LZ4, four.Bytes())
	w.Reset(&four)
	four.Reset()
	w.Write(raw[:4<<20])
	w.Close()
	made["lz4, one block of 4 MiB"] = repacked(head, LZ4, four.Bytes())
	made["snappy in one block"] = repacked(head, Snappy, s2.EncodeSnappy(nil, raw))
	made["snappy of 4 GiB"] = repacked(head, Snappy, []byte{255, 255, 255, 255, 15, 0, 'a'})
	made["snappy block of 4 GiB"] = repacked(head, Snappy, append(append([]byte{}, xerialMagic...), 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 7, 255, 255, 255, 255, 15, 0, 'a'))
	made["snappy block length of 4 GiB"] = repacked(head, Snappy, append(append([]byte{}, xerialMagic...), 0, 0, 0, 1, 0, 0, 0, 1, 255, 255, 255, 255, 1))
	made["zstd window of 2 GiB"] = repacked(head, Zstd, []byte{0x28, 0xB5, 0x2F, 0xFD, 0, 21 << 3, 1, 0, 0})
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(8<<20))
	if err != nil {
		tb.Fatal(err)
	}
	made["zstd, window of 128 MiB"] = repacked(head, Zstd, renamed(streamedZstd(enc, raw), 17<<3))
	made["zstd, size known"] = repacked(head, Zstd, enc.EncodeAll(raw, nil))
	made["zstd, one segment of 64 MiB"] = repacked(head, Zstd, binary.LittleEndian.AppendUint32([]byte{0x28, 0xB5, 0x2F, 0xFD, 2<<6 | 1<<5}, 64<<20))
	return made
}

// A check costs at most 32 times the batch, and what the set of codecs keeps: the first time too.
func TestCatalogue57_BombsAreChecked(t *testing.T) {
	if raceDetector {
		t.Skip("allocations are measured without the race detector")
	}
	const fixed = 1 << 20
	for name, b := range bombs(t) {
		for _, limit := range []int{128 << 20, 1 << 20} {
			o := options()
			o.MaxUnpackedSize = limit
			var err error
			n := allocated(func() { _, err = Validate(b, o) })
			if n > uint64(32*len(b)+fixed) {
				t.Errorf("%s: %d bytes allocated for a batch of %d", name, n, len(b))
			}
			t.Logf("%s: %d bytes for %d: %v", name, n, len(b), err)
		}
	}
}

// Rebuilding costs that and the new batch, and ends once that is too large.
func TestCatalogue57_BombsAreRebuilt(t *testing.T) {
	if raceDetector {
		t.Skip("allocations are measured without the race detector")
	}
	const limit, fixed = 1 << 20, 1 << 20
	for name, b := range bombs(t) {
		o := options()
		o.MaxUnpackedSize, o.MaxBatchBytes = 128<<20, limit
		if _, err := Validate(b, o); err != nil {
			continue
		}
		for _, codec := range allCodecs {
			o.Recompress, o.Codec, o.Level = true, codec, DefaultLevel(codec)
			warm, _ := smallRecords(t)
			if _, err := Rebuild(warm, o); err != nil {
				t.Fatal(err)
			}
			var made Batch
			var err error
			n := allocated(func() { made, err = Rebuild(b, o) })
			most := uint64(32*len(b) + 4*limit + fixed)
			if codec == Zstd {
				most += 4 << 20 // window and block of the encoder
			}
			if n > most {
				t.Errorf("%s to %v: %d bytes allocated for a batch of %d", name, codec, n, len(b))
			}
			switch {
			case errors.Is(err, ErrTooLarge):
			case err != nil:
				t.Errorf("%s to %v: %v", name, codec, err)
			case len(made) > limit:
				t.Errorf("%s to %v: %d bytes", name, codec, len(made))
			}
		}
	}
}

func smallRecords(tb testing.TB) (Batch, int32) {
	records, count := small()
	return smallBatch(records, None, count), count
}

// A batch that refers back further than its size allows is checked in the one wide window, and beyond 8 MiB refused.
func TestFarReferences(t *testing.T) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(16<<20))
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	part := make([]byte, 3000)
	for i := range part {
		part[i] = byte(rng.Uint32())
	}
	for _, c := range []struct {
		gap  int
		want error
	}{{100_000, nil}, {1 << 20, nil}, {7 << 20, nil}, {10 << 20, ErrInvalidRecord}} {
		value := append(append(bytes.Clone(part), make([]byte, c.gap)...), part...)
		head, raw := one(t, Zstd, value)
		b := repacked(head, Zstd, streamedZstd(enc, raw))
		o := options()
		o.MaxUnpackedSize = 32 << 20
		for range 3 {
			if _, err := Validate(b, o); !errors.Is(err, c.want) || err != nil && c.want == nil {
				t.Fatalf("%d bytes in %d: %v", len(raw), len(b), err)
			}
		}
		if n := allocated(func() { Validate(b, o) }); n > 1<<20 {
			t.Fatalf("%d bytes the fourth time", n)
		}
		o.Recompress, o.Codec, o.Level = true, LZ4, 9
		if made, err := Rebuild(b, o); !errors.Is(err, c.want) || err != nil && c.want == nil {
			t.Fatal(err)
		} else if err == nil {
			if got, err := o.Codecs.Unpack(made, nil, len(raw)); err != nil || !bytes.Equal(got, raw) {
				t.Fatal("rebuilt to something else", err)
			}
		}
	}
}

func TestValidateCompressedDoesNotAllocate(t *testing.T) {
	if raceDetector {
		t.Skip("allocations are measured without the race detector")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for name, b := range benched(t, 1) {
		o := options()
		if n := testing.AllocsPerRun(20, func() {
			if _, err := Validate(b, o); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// rebuiltWhole makes a batch anew as Rebuild does, from records that are all in memory.
func rebuiltWhole(t *testing.T, b Batch, o *ValidateOptions) Batch {
	records, err := o.Codecs.Unpack(b, nil, o.MaxUnpackedSize)
	if err != nil {
		t.Fatal(err)
	}
	options := BuilderOptions{
		LeaderEpoch: b.PartitionLeaderEpoch(), ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(),
		BaseSequence: b.BaseSequence(), Transactional: b.Transactional(), Codec: o.Codec, Level: o.Level,
	}
	builder := NewBuilder(options)
	var r Record
	for i := range b.Count() {
		n, err := r.parse(records)
		if err != nil {
			t.Fatal(err)
		}
		records = records[n:]
		builder.add(i, b.BaseTimestamp()+r.TimestampDelta, &r)
	}
	made, err := builder.Batch(o.Codecs)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// A batch that is rebuilt piece by piece is the one that is rebuilt from all of its records, to the byte; but zstd, above
// 1 MiB, is another frame of the same.
func TestRebuildAgainstWhole(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	o := options()
	o.Recompress = true
	for _, from := range allCodecs {
		for _, to := range allCodecs {
			for _, size := range []int{100, fewer(70_000, 7_000), fewer(1200<<10, 70_000)} {
				b := *realistic(size/2 + 1)
				for b.Len() < size {
					b.lastDelta += rng.Int32N(2)
					b.Append(now+int64(rng.IntN(1000)), nil, bytes.Repeat([]byte("abc"), rng.IntN(1<<rng.IntN(16))))
				}
				b.o.Codec, b.o.Level = from, DefaultLevel(from)
				batch, err := b.Batch(o.Codecs)
				if err != nil {
					t.Fatal(err)
				}
				o.Codec, o.Level = to, DefaultLevel(to)
				got, err := Rebuild(batch, o)
				if err != nil {
					t.Fatal(err)
				}
				want := rebuiltWhole(t, batch, o)
				if to == Zstd && size > zstdWhole {
					a, err := o.Codecs.Unpack(got, nil, o.MaxUnpackedSize)
					if err != nil {
						t.Fatal(err)
					}
					w, _ := o.Codecs.Unpack(want, nil, o.MaxUnpackedSize)
					got = append(got[:HeaderSize:HeaderSize], a...)
					want = append(want[:HeaderSize:HeaderSize], w...)
					copy(got[atLength:], want[atLength:atLength+4])
					got.updateCRC()
					want.updateCRC()
				}
				if !bytes.Equal(got, want) {
					t.Fatalf("%v to %v, %d bytes: differ", from, to, size)
				}
			}
		}
	}
}

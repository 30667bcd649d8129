package record

import (
	"bytes"
	"testing"
)

func addBatches(f *testing.F) {
	for _, c := range allCodecs {
		f.Add([]byte(plain(f, c, 5, 30)))
	}
	f.Add([]byte(Marker{Commit: true}.Batch()))
	f.Add([]byte(Empty(plain(f, None, 5, 30))))
}

func FuzzValidate(f *testing.F) {
	addBatches(f)
	o := options()
	o.MaxUnpackedSize = 1 << 20
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= HeaderSize {
			Batch(b).updateCRC()
		}
		sameOutcome(t, b, o, "in windows and whole")
		exercise(b, o)
	})
}

// Records that parse must be built again to the same meaning.
func FuzzRecords(f *testing.F) {
	f.Add(plain(f, None, 5, 30).RecordsBytes(), int32(5))
	f.Fuzz(func(t *testing.T, records []byte, count int32) {
		b := bytes.Clone(plain(t, None, 1, 1)[:HeaderSize])
		b[atCount], b[atCount+1], b[atCount+2], b[atCount+3] = byte(count>>24), byte(count>>16), byte(count>>8), byte(count)
		it := Iterate(b, records)
		n := int32(0)
		for ; it.Next(); n++ {
			h := it.Record().Headers
			left := h.Len()
			for _, _, ok := h.Next(); ok; _, _, ok = h.Next() {
				left--
			}
			if left != 0 {
				t.Fatal("headers")
			}
		}
		if it.Err() == nil && n != max(count, 0) {
			t.Fatalf("%d records of %d without an error", n, count)
		}
	})
}

func FuzzDecompress(f *testing.F) {
	c := NewCodecs()
	for _, codec := range allCodecs {
		p, _ := c.Compress(nil, codec, DefaultLevel(codec), bytes.Repeat([]byte("abcdefgh"), 50))
		f.Add(int8(codec), p)
	}
	f.Fuzz(func(t *testing.T, codec int8, src []byte) {
		const limit = 1 << 16
		out, err := c.Decompress(nil, Codec(codec), src, limit)
		if err != nil {
			return
		}
		if len(out) > limit {
			t.Fatalf("%d bytes", len(out))
		}
		packed, err := c.Compress(nil, Codec(codec), DefaultLevel(Codec(codec)), out)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := c.Decompress(nil, Codec(codec), packed, limit); err != nil || !bytes.Equal(again, out) {
			t.Fatal("round trip", err)
		}
	})
}

// The scanner shows the same with any buffer, and every step goes forward.
func FuzzScanner(f *testing.F) {
	addBatches(f)
	f.Add([]byte(append(plain(f, None, 200, 30), plain(f, Zstd, 5, 30)...)))
	small, large := make([]byte, minScanBuffer), make([]byte, 64<<10)
	f.Fuzz(func(t *testing.T, file []byte) {
		for _, crc := range []bool{false, true} {
			a := NewScanner(bytes.NewReader(file), ScanOptions{End: Position(len(file)), Buffer: small, CRC: crc})
			b := NewScanner(bytes.NewReader(file), ScanOptions{End: Position(len(file)), Buffer: large, CRC: crc})
			for {
				at := a.Next()
				oka, okb := a.Scan(), b.Scan()
				if oka != okb || a.Position() != b.Position() || a.Next() != b.Next() {
					t.Fatalf("crc %v: at %d: %v %v, %v %v", crc, at, oka, okb, a.Err(), b.Err())
				}
				if !oka {
					break
				}
				if a.Next() <= at || !bytes.Equal(a.Batch()[:HeaderSize], b.Batch()[:HeaderSize]) {
					t.Fatal("no step forward, or another batch")
				}
			}
			if a.Err() == nil && int(a.Next()) != len(file) {
				t.Fatal("stopped early without an error")
			}
		}
	})
}

// Both readers of a record must agree on every input.
func FuzzMeasure(f *testing.F) {
	f.Add(plain(f, None, 5, 30).RecordsBytes())
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Record
		n, err := r.parse(b)
		s, err2 := measure(b)
		if (err == nil) != (err2 == nil) {
			t.Fatalf("%v, %v", err, err2)
		}
		if err != nil {
			return
		}
		want := shape{size: n, timestampDelta: r.TimestampDelta, offsetDelta: r.OffsetDelta, nullKey: r.Key == nil}
		if s != want {
			t.Fatalf("%+v, %+v", s, want)
		}
	})
}

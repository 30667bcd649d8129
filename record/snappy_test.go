package record

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"
)

// snappyElement reads a tag: a literal (offset 0) or a copy. used is 0 where it is not valid in the plain format.
func snappyElement(src []byte) (length, offset, used int) {
	switch tag := src[0]; tag & 3 {
	case 0:
		n := int(tag >> 2)
		if n < 60 {
			return n + 1, 0, 1
		}
		extra := n - 59
		if len(src) < 1+extra {
			return 0, 0, 0
		}
		v := 0
		for i := extra; i > 0; i-- {
			v = v<<8 | int(src[i])
		}
		return v + 1, 0, 1 + extra
	case 1:
		if len(src) >= 2 {
			length, offset, used = int(tag>>2&7)+4, int(tag>>5)<<8|int(src[1]), 2
		}
	case 2:
		if len(src) >= 3 {
			length, offset, used = int(tag>>2)+1, int(binary.LittleEndian.Uint16(src[1:])), 3
		}
	case 3:
		if len(src) >= 5 {
			length, offset, used = int(tag>>2)+1, int(binary.LittleEndian.Uint32(src[1:])), 5
		}
	}
	if offset == 0 {
		return 0, 0, 0
	}
	return length, offset, used
}

// plainly unpacks a block in the simplest way; ok is false where it is not plain snappy.
func plainly(block []byte) (out []byte, ok bool) {
	size, n := binary.Uvarint(block)
	if n <= 0 || size > 1<<26 {
		return nil, false
	}
	for src := block[n:]; len(src) > 0; {
		length, offset, used := snappyElement(src)
		if used == 0 || uint64(length) > size-uint64(len(out)) {
			return nil, false
		}
		src = src[used:]
		if offset == 0 {
			if length > len(src) {
				return nil, false
			}
			out, src = append(out, src[:length]...), src[length:]
			continue
		}
		if offset > len(out) {
			return nil, false
		}
		for range length {
			out = append(out, out[len(out)-offset])
		}
	}
	return out, uint64(len(out)) == size
}

// Blocks of the plain format are unpacked, and no others: those with the extension of one reader least of all.
func TestSnappyIsPlain(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	taken, extended := 0, 0
	for i := range fewer(4000, 300) {
		text := realistic(1 + rng.IntN(20_000)).buf
		for range rng.IntN(5) {
			at := rng.IntN(len(text))
			text = append(append(text[:at:at], make([]byte, rng.IntN(300))...), text[at:]...)
		}
		block := s2.EncodeSnappy(nil, text)
		if i%4 == 1 {
			block = s2.EncodeBetter(nil, text)
		}
		for range i % 3 {
			block[2+rng.IntN(len(block)-2)] = byte(rng.Uint32() >> (rng.IntN(4) * 8))
		}
		want, ok := plainly(block)
		got, err := snappyDecode(nil, block, 1<<22, 1<<22)
		if (err == nil) != ok || ok && !bytes.Equal(got, want) {
			t.Fatalf("%v, want %v: %x", err, ok, block)
		}
		if ok {
			taken++
		} else if _, err := s2.Decode(nil, block); err == nil {
			extended++
		}
	}
	if taken < fewer(1000, 30) || extended < fewer(100, 1) {
		t.Fatalf("%d taken, %d refused that the decoder would have taken", taken, extended)
	}
}

func BenchmarkPlainSnappy(b *testing.B) {
	block := s2.EncodeSnappy(nil, realistic(1<<20).buf)
	_, n := binary.Uvarint(block)
	best, chain := time.Hour, time.Hour
	for b.Loop() {
		start := time.Now()
		if !plainSnappy(block[n:]) {
			b.Fatal("not plain")
		}
		mid := time.Now()
		snappyChain(block[n:], 0, len(block)-n)
		best, chain = min(best, mid.Sub(start)), min(chain, time.Since(mid))
	}
	b.ReportMetric(float64(best.Microseconds()), "best-µs")
	b.ReportMetric(float64(chain.Microseconds()), "chain-µs")
}

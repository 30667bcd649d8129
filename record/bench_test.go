package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// realistic makes about n bytes of records like those of a service's access log, one line each.
func realistic(n int) *Builder { return lines(n, 1) }

// lines makes records of several such lines.
func lines(n, each int) *Builder {
	rng := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	b := NewBuilder(NewOptions())
	for b.Len() < n {
		var value []byte
		for range each {
			value = fmt.Appendf(value,
				`{"ts":%d,"method":"%s","path":"%s%d","user":"%s-%08x","status":%s,"agent":"%s","region":"eu-west-1","latency_ms":%d}`,
				now+rng.IntN(100_000), pick("GET", "POST"), pick("/api/v1/orders/", "/index.html?p="), rng.IntN(100_000), pick("user", "session"),
				rng.Uint32(), pick("200", "404", "500"), pick("Mozilla/5.0 (X11; Linux x86_64)", "curl/8.1"), rng.IntN(5000))
		}
		b.Append(now+int64(rng.IntN(100)), fmt.Appendf(nil, "k%d", rng.IntN(1000)), value)
	}
	return b
}

// bare returns the decoder of the library alone, over the same bytes, reused and with room for all that comes out.
func bare(codec Codec, src []byte, size int) func() error {
	dst := make([]byte, size+zstdBlock+zstdSlack)
	switch codec {
	case Gzip:
		r := new(gzip.Reader)
		return func() error {
			if err := r.Reset(bytes.NewReader(src)); err != nil {
				return err
			}
			for at := 0; ; {
				n, err := r.Read(dst[at:])
				if at += n; errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
			}
		}
	case Snappy:
		return func() error {
			if !bytes.HasPrefix(src, xerialMagic) {
				_, err := s2.Decode(dst, src)
				return err
			}
			at := 0
			for rest := src[xerialHeader:]; len(rest) > 0; {
				n := binary.BigEndian.Uint32(rest)
				out, err := s2.Decode(dst[at:], rest[4:4+n])
				if err != nil {
					return err
				}
				at, rest = at+len(out), rest[4+n:]
			}
			return nil
		}
	case LZ4:
		return func() error {
			at := 0
			for rest := src[7:]; ; {
				n := binary.LittleEndian.Uint32(rest)
				if n == 0 {
					return nil
				}
				m, err := lz4.UncompressBlock(rest[4:4+n], dst[at:])
				if err != nil {
					return err
				}
				at, rest = at+m, rest[4+n:]
			}
		}
	}
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	return func() error {
		if err == nil {
			_, err = r.DecodeAll(src, dst[:0])
		}
		return err
	}
}

// benched are batches of 1 MiB unpacked, by codec and writer; each line is 170 bytes.
func benched(tb testing.TB, each int) map[string]Batch {
	raw := lines(1<<20, each)
	made := map[string]Batch{}
	for _, codec := range allCodecs[1:] {
		b := *raw
		b.o.Codec, b.o.Level = codec, DefaultLevel(codec)
		batch, err := b.Batch(NewCodecs())
		if err != nil {
			tb.Fatal(err)
		}
		made[codec.String()] = batch
	}
	made["snappy-raw"] = repacked(made["snappy"], Snappy, s2.EncodeSnappy(nil, raw.buf[HeaderSize:]))
	return made
}

// repacked is b with other packed bytes.
func repacked(b Batch, codec Codec, packed []byte) Batch {
	made := append(bytes.Clone(b[:HeaderSize]), packed...)
	binary.BigEndian.PutUint32(made[atLength:], uint32(len(made)-logOverhead))
	Batch(made).SetAttributes(int16(codec))
	return made
}

// What checking a compressed batch costs, beside the decoder alone: both in turn in each round. The ratio is that of the best rounds.
func BenchmarkValidateCompressed(b *testing.B) {
	for _, each := range []int{1, 6} {
		batches := benched(b, each)
		for _, name := range []string{"gzip", "snappy", "snappy-raw", "lz4", "zstd"} {
			batch := batches[name]
			b.Run(fmt.Sprintf("%s/%dB", name, 170*each), func(b *testing.B) { beside(b, batch) })
		}
	}
}

func beside(b *testing.B, batch Batch) {
	o := options()
	alone := bare(batch.Codec(), batch.RecordsBytes(), 1<<20+1<<13)
	b.ReportAllocs()
	b.SetBytes(1 << 20)
	all, decoder := time.Hour, time.Hour
	for b.Loop() {
		start := time.Now()
		if err := alone(); err != nil {
			b.Fatal(err)
		}
		mid := time.Now()
		if _, err := Validate(batch, o); err != nil {
			b.Fatal(err)
		}
		decoder, all = min(decoder, mid.Sub(start)), min(all, time.Since(mid))
	}
	b.ReportMetric(float64(all)/float64(decoder), "x-decoder")
	b.ReportMetric(float64(all.Microseconds()), "best-µs")
}

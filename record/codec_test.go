package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

var allCodecs = []Codec{None, Gzip, Snappy, LZ4, Zstd}

func levels(c Codec) []int {
	switch c {
	case Gzip:
		return []int{-1, 1, 6, 9, 100}
	case LZ4:
		return []int{1, 9, 12, 17, 100}
	case Zstd:
		return []int{-5, 1, 3, 9, 22, 100}
	}
	return []int{0}
}

func samples() [][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	random := make([]byte, 200_000)
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	return [][]byte{
		{},
		{1},
		[]byte("keeplog"), random, random[:65536], random[:65537],
		bytes.Repeat([]byte("the same again, "), 20_000), make([]byte, 1<<20),
	}
}

func TestCodecsRoundTrip(t *testing.T) {
	c := NewCodecs()
	for _, codec := range allCodecs {
		for _, level := range levels(codec) {
			for i, s := range samples() {
				if len(s) > fewer(len(s), 100<<10) {
					continue
				}
				packed, err := c.Compress([]byte("x"), codec, level, s)
				if err != nil {
					t.Fatal(codec, level, err)
				}
				out, err := c.Decompress([]byte("y"), codec, packed[1:], len(s))
				if err != nil || out[0] != 'y' || !bytes.Equal(out[1:], s) {
					t.Fatalf("%v level %d sample %d: %v", codec, level, i, err)
				}
				if len(s) == 0 {
					continue
				}
				if _, err := c.Decompress(nil, codec, packed[1:], len(s)-1); !errors.Is(err, ErrTooLarge) {
					t.Fatalf("%v level %d sample %d: limit: %v", codec, level, i, err)
				}
			}
		}
	}
}

// Our LZ4 frames must be read by another implementation, and its frames with every option by ours.
func TestLZ4AgainstLibrary(t *testing.T) {
	c := NewCodecs()
	for _, s := range samples() {
		packed, _ := c.Compress(nil, LZ4, 9, s)
		var out bytes.Buffer
		if _, err := out.ReadFrom(lz4.NewReader(bytes.NewReader(packed))); err != nil || !bytes.Equal(out.Bytes(), s) {
			t.Fatal(err)
		}
		for _, size := range []lz4.BlockSize{lz4.Block64Kb, lz4.Block256Kb, lz4.Block4Mb} {
			for i := 0; i < 8; i += fewer(1, 7) {
				var frame bytes.Buffer
				w := lz4.NewWriter(&frame)
				o := []lz4.Option{lz4.BlockSizeOption(size), lz4.BlockChecksumOption(i&1 != 0), lz4.ChecksumOption(i&2 != 0)}
				if i&4 != 0 {
					o = append(o, lz4.SizeOption(uint64(len(s))))
				}
				if err := w.Apply(o...); err != nil {
					t.Fatal(err)
				}
				w.Write(s)
				w.Close()
				got, err := c.Decompress(nil, LZ4, frame.Bytes(), len(s))
				if err != nil || !bytes.Equal(got, s) {
					t.Fatalf("%d bytes, options %d: %v", len(s), i, err)
				}
			}
		}
	}
}

func TestLZ4RefusesLinkedBlocks(t *testing.T) {
	c := NewCodecs()
	packed, _ := c.Compress(nil, LZ4, 9, []byte("hello hello hello hello"))
	packed[4] &^= lz4Independent
	packed[6] = byte(xxh32(packed[4:6]) >> 8)
	if _, err := c.Decompress(nil, LZ4, packed, 100); !errors.Is(err, ErrInvalidRecord) {
		t.Fatal(err)
	}
}

func TestSnappyRawBlock(t *testing.T) {
	// literal "abcd", then a copy of 8 bytes from 4 back, which overlaps itself
	raw := []byte{12, 3 << 2, 'a', 'b', 'c', 'd', 1 | 4<<2, 4}
	got, err := NewCodecs().Decompress(nil, Snappy, raw, 100)
	if err != nil || string(got) != "abcdabcdabcd" {
		t.Fatalf("%q, %v", got, err)
	}
	// the same with offset 0, which means "repeat" to one reader only
	raw[len(raw)-1] = 0
	if _, err := NewCodecs().Decompress(nil, Snappy, raw, 100); !errors.Is(err, ErrInvalidRecord) {
		t.Fatal(err)
	}
}

// Truncated and changed input is refused or gives something within the limit; it never panics.
func TestDamagedCompression(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	c := NewCodecs()
	s := append(bytes.Repeat([]byte("some text "), 300), samples()[3][:3000]...)
	for _, codec := range allCodecs[1:] {
		packed, _ := c.Compress(nil, codec, DefaultLevel(codec), s)
		for n := 0; n < len(packed); n += fewer(1, 29) {
			out, err := c.Decompress(nil, codec, packed[:n], len(s))
			if err == nil && (codec != Snappy && codec != Zstd || len(out) == len(s)) {
				t.Fatalf("%v: %d of %d bytes give %d bytes", codec, n, len(packed), len(out))
			}
		}
		for range fewer(3000, 60) {
			bad := bytes.Clone(packed)
			for range 1 + rng.IntN(3) {
				bad[rng.IntN(len(bad))] = byte(rng.Uint32())
			}
			if out, err := c.Decompress(nil, codec, bad, len(s)); err == nil && len(out) > len(s) {
				t.Fatalf("%v: %d bytes", codec, len(out))
			}
		}
	}
}

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A bomb costs at most about the limit, a header that lies next to nothing.
func TestCatalogue57_Bombs(t *testing.T) {
	c := NewCodecs()
	const limit = 1 << 20
	zeroes := make([]byte, fewer(64<<20, 4<<20))
	warm := func(codec Codec) {
		p, _ := c.Compress(nil, codec, DefaultLevel(codec), []byte("x"))
		c.Decompress(nil, codec, p, 10)
	}
	for _, codec := range allCodecs[1:] {
		warm(codec)
		bomb, err := c.Compress(nil, codec, DefaultLevel(codec), zeroes)
		if err != nil {
			t.Fatal(err)
		}
		n := allocated(func() {
			if _, err := c.Decompress(nil, codec, bomb, limit); !errors.Is(err, ErrTooLarge) {
				t.Fatalf("%v: %v", codec, err)
			}
		})
		if n > 8*limit {
			t.Fatalf("%v: a bomb of %d bytes allocates %d", codec, len(bomb), n)
		}
	}
	lies := map[string]struct {
		codec Codec
		src   []byte
	}{
		"snappy of 4 GiB":         {Snappy, []byte{255, 255, 255, 255, 15, 0, 'a'}},
		"snappy block of 4 GiB":   {Snappy, append(append([]byte{}, xerialMagic...), 0, 0, 0, 1, 0, 0, 0, 1, 255, 255, 255, 255, 1)},
		"snappy inside the limit": {Snappy, append(binary.AppendUvarint(nil, 64<<20), 0, 'a')},
		"zstd window of 2 GiB":    {Zstd, []byte{0x28, 0xB5, 0x2F, 0xFD, 0, 21 << 3, 1, 0, 0}},
		"zstd size of 64 MiB":     {Zstd, []byte{0x28, 0xB5, 0x2F, 0xFD, 0xA0, 0, 0, 0, 4, 0x55, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
		"lz4 block of 4 MiB": {LZ4, func() []byte {
			p, _ := c.Compress(nil, LZ4, 9, []byte("hello hello hello hello hello"))
			p[5] = 7 << 4
			p[6] = byte(xxh32(p[4:6]) >> 8)
			p[9] ^= 1
			return p
		}()},
	}
	for name, l := range lies {
		n := allocated(func() {
			if _, err := c.Decompress(nil, l.codec, l.src, 128<<20); !errors.Is(err, ErrInvalidRecord) && !errors.Is(err, ErrTooLarge) {
				t.Fatalf("%s: %v", name, err)
			}
		})
		if n > 64<<10 {
			t.Errorf("%s: %d bytes allocated", name, n)
		}
	}
}

func TestZstdOfOtherWriters(t *testing.T) {
	s := samples()[6]
	for _, o := range [][]zstd.EOption{{zstd.WithEncoderCRC(true)}, {zstd.WithWindowSize(8 << 20)}, {zstd.WithSingleSegment(true)}} {
		w, err := zstd.NewWriter(nil, o...)
		if err != nil {
			t.Fatal(err)
		}
		var streamed bytes.Buffer
		w.Reset(&streamed)
		w.Write(s)
		w.Close()
		for _, packed := range [][]byte{w.EncodeAll(s, nil), streamed.Bytes()} {
			got, err := NewCodecs().Decompress(nil, Zstd, packed, len(s))
			if err != nil || !bytes.Equal(got, s) {
				t.Fatal(err)
			}
		}
	}
}

package dump

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/keeplog/keeplog/record"
)

// oldMessageSet is one message of magic 0 or 1, as brokers stored them before 0.11.
func oldMessageSet(offset int64, magic byte, value string) []byte {
	body := []byte{magic, 0}
	if magic == 1 {
		body = binary.BigEndian.AppendUint64(body, 1_500_000_000_000)
	}
	body = binary.BigEndian.AppendUint32(body, 0xffffffff) // no key
	body = append(binary.BigEndian.AppendUint32(body, uint32(len(value))), value...)
	b := binary.BigEndian.AppendUint64(nil, uint64(offset))
	b = binary.BigEndian.AppendUint32(b, uint32(4+len(body)))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(body))
	return append(b, body...)
}

// batchOf makes a batch of n records of the given size.
func batchOf(base record.Offset, n, size int, codec record.Codec) record.Batch {
	o := record.NewOptions()
	o.Codec, o.BaseOffset = codec, base
	b := record.NewBuilder(o)
	r := rand.New(rand.NewPCG(1, uint64(base)))
	value := make([]byte, size)
	for i := range n {
		for k := range value {
			value[k] = byte(r.Uint32())
		}
		b.Append(int64(i), nil, value)
	}
	batch, err := b.Batch(record.NewCodecs())
	if err != nil {
		panic(err)
	}
	batch.SetPartitionLeaderEpoch(0)
	return batch
}

// TestOtherVersions: what another version wrote is not damage, and what only looks like it is.
func TestOtherVersions(t *testing.T) {
	batch := batchOf(2, 1, 100, record.None)
	newer := bytes.Clone(batch)
	newer[16] = 3
	newer[17] ^= 0xff // a later version may check other bytes
	flipped := bytes.Clone(batch)
	flipped[16] = 3
	broken := oldMessageSet(1, 1, "hello")
	broken[20] ^= 1
	for _, c := range []struct {
		name                string
		file                []byte
		damage, unsupported int
	}{
		{"magic 0", append(oldMessageSet(0, 0, "a"), batch...), 0, 1},
		{"magic 1", append(append(oldMessageSet(0, 1, "a"), oldMessageSet(1, 1, "b")...), batch...), 0, 2},
		{"magic 1, damaged", append(broken, batch...), 1, 0},
		{"magic 3", newer, 0, 1},
		{"magic 3 by a flipped bit", flipped, 1, 0},
	} {
		r := &rotDir{t: t, fs: memory(t), bytes: map[string][]byte{}}
		r.write("/data/t-0/00000000000000000000.log", c.file)
		total, found := r.look("/data/t-0/00000000000000000000.log")
		if total.Damage != c.damage || total.Unsupported != c.unsupported {
			t.Errorf("%s: damage %d, unsupported %d, want %d and %d: %+v", c.name, total.Damage, total.Unsupported, c.damage, c.unsupported, found)
		}
	}
}

// TestLargeBatches reads batches that are larger than the window, compressed and not, whole and with a flipped bit.
func TestLargeBatches(t *testing.T) {
	const path = "/data/t-0/00000000000000000000.log"
	for _, codec := range []record.Codec{record.None, record.Zstd} {
		log := append(append([]byte(nil), batchOf(0, 3, windowSize, codec)...), batchOf(3, 2, 10, codec)...)
		for _, records := range []bool{false, true} {
			for _, at := range []int{-1, windowSize + 7, len(log) - 3} {
				r := &rotDir{t: t, fs: memory(t), bytes: map[string][]byte{}}
				bad := bytes.Clone(log)
				if at >= 0 {
					bad[at] ^= 8
				}
				r.write(path, bad)
				total, err := Run(context.Background(), Options{FS: r.fs, Records: records}, discard{}, path)
				if err != nil {
					t.Fatal(err)
				}
				want := Total{Files: 1, Bytes: int64(len(log)), Batches: 2, Records: 5}
				switch {
				case at > 0 && at < 2*windowSize:
					want.Batches, want.Records, want.Damage = 1, 2, 1
				case at > 0:
					want.Batches, want.Records, want.Damage = 1, 3, 1
				}
				if total != want {
					t.Errorf("%v, records %t, bit at %d: %+v, want %+v", codec, records, at, total, want)
				}
			}
		}
	}
}

// TestSequences: batches of a producer that do not follow each other are damage, unless offsets are missing between them.
func TestSequences(t *testing.T) {
	made := func(base record.Offset, sequence record.Sequence) record.Batch {
		o := record.NewOptions()
		o.BaseOffset, o.ProducerID, o.ProducerEpoch, o.BaseSequence = base, 9, 0, sequence
		b := record.NewBuilder(o)
		b.Append(1, nil, []byte("x"))
		batch, err := b.Batch(record.NewCodecs())
		if err != nil {
			t.Fatal(err)
		}
		return batch
	}
	for _, c := range []struct {
		name   string
		log    []record.Batch
		damage int
		text   string
	}{
		{"dense", []record.Batch{made(0, 0), made(1, 1), made(2, 2)}, 0, ""},
		{"wraps", []record.Batch{made(0, 1<<31-1), made(1, 0)}, 0, ""},
		{"repeated", []record.Batch{made(0, 0), made(1, 1), made(2, 1)}, 1, "sequence 1 does not follow 1"},
		{"one is missing", []record.Batch{made(0, 0), made(1, 2)}, 1, "sequence 2 does not follow 0"},
		{"one is missing with its offset", []record.Batch{made(0, 0), made(2, 2), made(3, 3)}, 0, ""},
		{"offsets go back", []record.Batch{made(4, 0), made(3, 1)}, 1, "offsets go back"},
	} {
		r := &rotDir{t: t, fs: memory(t), bytes: map[string][]byte{}}
		r.write("/data/t-0/00000000000000000000.log", bytes.Join(raw(c.log), nil))
		total, found := r.look("/data/t-0/00000000000000000000.log")
		if total.Damage != c.damage || c.damage > 0 && !strings.Contains(found[len(found)-1].Text+found[0].Text, c.text) {
			t.Errorf("%s: %+v", c.name, found)
		}
	}
}

func raw(batches []record.Batch) [][]byte {
	out := make([][]byte, len(batches))
	for i := range batches {
		out[i] = batches[i]
	}
	return out
}

// BenchmarkSegment reads a segment without looking at the records; the figure that matters is MB/s.
func BenchmarkSegment(b *testing.B) {
	var log []byte
	for base := record.Offset(0); len(log) < 64<<20; base += 16 {
		log = append(log, batchOf(base, 16, 1024, record.None)...)
	}
	r := &rotDir{t: b, fs: memory(b), bytes: map[string][]byte{}}
	r.write("/data/t-0/00000000000000000000.log", log)
	b.SetBytes(int64(len(log)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Run(context.Background(), Options{FS: r.fs}, NewText(io.Discard, TextOptions{}), "/data/t-0/00000000000000000000.log"); err != nil {
			b.Fatal(err)
		}
	}
}

package dump

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	plog "github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// fuzzNames are the names that a file can be read under, one for each decoder.
var fuzzNames = []string{
	"00000000000000000000.log", "00000000000000000000.index", "00000000000000000000.timeindex", "00000000000000000000.txnindex",
	"00000000000000000000.snapshot", "00000000000000000000.window", "00000000000000000000.5.torn", "leader-epoch-checkpoint", "partition.metadata",
	"recovery-point-offset-checkpoint", "meta.properties", ".kafka_cleanshutdown", "keeplog-marks", "quorum-state", "next.spare",
	"00000000000000000000-0000000001.checkpoint",
}

// dumpBytes reads b as a file of each kind in turn, in all outputs.
func dumpBytes(t testing.TB, b []byte, names ...string) {
	t.Helper()
	files := vfs.NewMem()
	if err := files.MkdirAll("/d/t-0", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		f, err := files.OpenFile("/d/t-0/"+n, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 0 {
			if _, err := f.WriteAt(b, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, decode := range []string{"offsets", "txn"} {
		o := Options{FS: files, Records: true, Verify: true, Decode: decode}
		for _, path := range []string{"/d/t-0", "/d/t-0/" + names[0]} {
			for _, sink := range []Sink{NewText(io.Discard, TextOptions{Paths: true, Values: true}), NewData(io.Discard, DataOptions{Values: true})} {
				if _, err := Run(context.Background(), o, sink, path); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// seed adds the files of the golden directories whose type fits.
func seed(f *testing.F, types ...string) {
	f.Helper()
	for _, dir := range []string{"segments-0", "txn-0", "compacted-0", "codecs-0", "__consumer_offsets-0", "__transaction_state-1", "."} {
		list, err := os.ReadDir(filepath.Join(formats, "kafka-4.4", dir))
		if err != nil {
			f.Fatal(err)
		}
		for _, e := range list {
			for _, typ := range types {
				if e.IsDir() || parseName(e.Name()).typ != typ {
					continue
				}
				b, err := os.ReadFile(filepath.Join(formats, "kafka-4.4", dir, e.Name()))
				if err != nil {
					f.Fatal(err)
				}
				f.Add(b)
			}
		}
	}
}

// FuzzSegment reads anything as a log file.
func FuzzSegment(f *testing.F) {
	seed(f, TypeSegment)
	f.Fuzz(func(t *testing.T, b []byte) { dumpBytes(t, b, fuzzNames[0], fuzzNames[6]) })
}

// FuzzIndexes reads anything as the three indexes of a segment that is there.
func FuzzIndexes(f *testing.F) {
	seed(f, TypeIndex, TypeTimeIndex, TypeTxnIndex)
	f.Fuzz(func(t *testing.T, b []byte) { dumpBytes(t, b, fuzzNames[1:4]...) })
}

// FuzzSmallFiles reads anything as each of the other files.
func FuzzSmallFiles(f *testing.F) {
	seed(f, TypeSnapshot, TypeEpochs, TypeTopicID, TypeOffsets, TypeProperties, TypeCleanStop)
	f.Add(append(marksHead(1), slotBytes(plog.Mark{Segment: 3, Offset: 5})...))
	f.Add(plog.EncodeWindow(9, []plog.Producer{{ID: 4, Count: 1, Window: [5]plog.SentBatch{{Last: 3, LastOffset: 8, OffsetDelta: 3}}}}))
	f.Fuzz(func(t *testing.T, b []byte) { dumpBytes(t, b, fuzzNames[4:]...) })
}

// FuzzDecode reads anything as key and value of a record of an internal topic.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{0, 1, 0, 1, 'g', 0, 1, 't', 0, 0, 0, 0}, []byte{0, 3, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{0, 8, 0, 1, 'g', 0, 1, 'm'}, []byte{0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 1, 1, 1, 0})
	f.Add([]byte{0, 0, 0, 1, 'x'}, []byte{0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 0, 0, 9, 1, 1})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		for _, kind := range []string{"offsets", "txn"} {
			before := allocated()
			e, err := decodeInternal(kind, &record.Record{Key: key, Value: value})
			if grown := allocated() - before; grown > 64<<10+64*uint64(len(key)+len(value)) {
				t.Errorf("%d bytes allocated for %d", grown, len(key)+len(value))
			}
			if err == nil && e == nil {
				t.Error("neither an entry nor an error")
			}
			if e != nil {
				if _, err := e.MarshalJSON(); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// TestNothingIsBelieved: lengths and counts that announce gigabytes in tiny files allocate nothing like it, under any name.
func TestNothingIsBelieved(t *testing.T) {
	huge := [][]byte{
		[]byte("0\n2147483647\n"),
		append([]byte{0, 1, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff}, make([]byte, 46)...),
		append([]byte("KLWD\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x09\xff\xff\xff\xff"), make([]byte, 64)...),
		append([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xf0, 0, 0, 0, 0, 2}, make([]byte, 100)...),
		append([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xf0, 0, 0, 0, 0, 1}, make([]byte, 100)...),
		{},
		make([]byte, 4096),
	}
	for i, b := range huge {
		before := allocated()
		dumpBytes(t, b, fuzzNames...)
		// two decoders × (directory and file) × two sinks, each with its own window and buffers
		if grown := allocated() - before; grown > 16<<20 {
			t.Errorf("input %d: %d bytes allocated", i, grown)
		}
	}
}

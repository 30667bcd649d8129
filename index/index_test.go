package index

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

func options(t testing.TB, ext string, maxBytes int) Options {
	t.Helper()
	return Options{FS: vfs.OS(), Name: filepath.Join(t.TempDir(), "00000000000000001000"+ext), Base: 1000, MaxBytes: maxBytes}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	f, err := vfs.OS().OpenFile(name, 0, 0)
	must(t, err)
	defer func() { must(t, f.Close()) }()
	size, err := f.Size()
	must(t, err)
	b := make([]byte, size)
	if size > 0 {
		_, err = f.ReadAt(b, 0)
		must(t, err)
	}
	return b
}

func TestOffsetIndexGrowsSealsAndReopens(t *testing.T) {
	x, err := CreateOffsetIndex(options(t, ".index", 10<<20))
	must(t, err)
	if got := len(readFile(t, x.Name())); got != 0 {
		t.Fatalf("a new index has %d bytes", got)
	}
	const n = 40_000 // 320 KB: past three sizes
	for i := range n {
		must(t, x.Append(record.Offset(1005+10*i), record.Position(1+100*i)))
	}
	check := func() {
		t.Helper()
		if x.Len() != n {
			t.Fatalf("%d entries, want %d", x.Len(), n)
		}
		rnd := rand.New(rand.NewPCG(1, 2))
		for range 2000 {
			i := rnd.IntN(n)
			want := OffsetEntry{record.Offset(1005 + 10*i), record.Position(1 + 100*i)}
			for _, d := range []record.Offset{0, 1, 9} {
				if got := x.Lookup(want.Offset + d); got != want {
					t.Fatalf("Lookup(%d) = %v, want %v", want.Offset+d, got, want)
				}
			}
			for _, d := range []record.Position{0, 99} {
				if got := x.LookupPosition(want.Position + d); got != want {
					t.Fatalf("LookupPosition(%d) = %v, want %v", want.Position+d, got, want)
				}
			}
		}
		if got := x.Lookup(1004); got != (OffsetEntry{Offset: 1000}) {
			t.Fatalf("below the first entry: %v", got)
		}
		if got := x.CountTo(101); got != 1 {
			t.Fatalf("CountTo = %d", got)
		}
		must(t, x.Check(1+100*n))
	}
	check()
	must(t, x.Seal())
	if got := len(readFile(t, x.Name())); got != n*OffsetEntryBytes {
		t.Fatalf("sealed index has %d bytes, want %d", got, n*OffsetEntryBytes)
	}
	must(t, x.Load())
	check()
	must(t, x.Unload())

	y := NewOffsetIndex(x.opts)
	must(t, y.Open(-1))
	must(t, y.Load())
	x = y
	check()
	must(t, x.Append(1005+10*n, 1+100*n)) // grows again
	if e, ok := x.Last(); !ok || e.Offset != 1005+10*n {
		t.Fatalf("last entry %v", e)
	}
	must(t, x.Cut(n))
	check()
	must(t, x.Seal())
}

func TestOffsetIndexFull(t *testing.T) {
	x, err := CreateOffsetIndex(options(t, ".index", 83))
	must(t, err)
	for i := range 10 {
		if x.Full() {
			t.Fatalf("full at %d", i)
		}
		must(t, x.Append(record.Offset(1001+i), record.Position(1+i)))
	}
	if !x.Full() {
		t.Fatal("not full with 10 entries of 8 bytes in 83")
	}
	if err := x.Append(2000, 100); !errors.Is(err, ErrFull) {
		t.Fatalf("append to a full index: %v", err)
	}
	must(t, x.Unload())
}

func TestActiveIndexEndsInZeros(t *testing.T) {
	x, err := CreateOffsetIndex(options(t, ".index", 1<<20))
	must(t, err)
	must(t, x.Append(1010, 4200))
	b := readFile(t, x.Name())
	if len(b) != firstBytes {
		t.Fatalf("active index has %d bytes, want %d", len(b), firstBytes)
	}
	if binary.BigEndian.Uint32(b) != 10 || binary.BigEndian.Uint32(b[4:]) != 4200 || binary.BigEndian.Uint64(b[8:]) != 0 {
		t.Fatalf("entry % x", b[:16])
	}
	must(t, x.Append(1020, 8200))
	must(t, x.Cut(1))
	if b := readFile(t, x.Name()); binary.BigEndian.Uint64(b[8:]) != 0 {
		t.Fatal("a cut entry is still in the file")
	}
	must(t, x.Unload())
}

func TestCatalogue01_PresizedIndexAfterKill(t *testing.T) {
	o := options(t, ".index", 1<<20)
	x, err := CreateOffsetIndex(o)
	must(t, err)
	must(t, x.Append(1010, 4200))
	must(t, x.Unload()) // the process dies: the file keeps its full size

	y := NewOffsetIndex(o)
	must(t, y.Open(-1)) // what the length says: garbage
	must(t, y.Load())
	if err := y.Check(1 << 20); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("zeros pass the check: %v", err)
	}
	must(t, y.Unload())
	must(t, y.Open(1)) // what the mark says
	must(t, y.Load())
	must(t, y.Check(1<<20))
	if got := len(readFile(t, o.Name)); got != OffsetEntryBytes {
		t.Fatalf("%d bytes after opening one entry", got)
	}
	must(t, y.Append(1020, 8400))
	if got := y.Lookup(1021); got.Position != 8400 {
		t.Fatalf("appended after reopening: %v", got)
	}
	must(t, y.Seal())
}

func TestOffsetIndexCheckFindsJunk(t *testing.T) {
	for name, entries := range map[string][]OffsetEntry{
		"offset goes back":    {{1010, 100}, {1005, 200}},
		"offset repeats":      {{1010, 100}, {1010, 200}},
		"position goes back":  {{1010, 100}, {1020, 90}},
		"position at the end": {{1010, 100}, {1020, 1000}},
		"position zero":       {{1010, 0}},
	} {
		x, err := CreateOffsetIndex(options(t, ".index", 1<<20))
		must(t, err)
		for _, e := range entries {
			must(t, x.Append(e.Offset, e.Position))
		}
		if err := x.Check(1000); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		must(t, x.Unload())
	}
}

func TestTimeIndex(t *testing.T) {
	x, err := CreateTimeIndex(options(t, ".timeindex", 10<<20))
	must(t, err)
	if got := x.Lookup(5); got != (TimeEntry{Timestamp: -1, Offset: 1000}) {
		t.Fatalf("empty: %v", got)
	}
	const n = 20_000
	for i := range n {
		must(t, x.Append(int64(500+10*i), record.Offset(1003+5*i), false))
		must(t, x.Append(int64(500+10*i), record.Offset(1004+5*i), false)) // not larger: left out
	}
	for _, load := range []bool{false, true} {
		if load {
			must(t, x.Seal())
			if got := len(readFile(t, x.Name())); got != n*TimeEntryBytes {
				t.Fatalf("sealed: %d bytes", got)
			}
			must(t, x.Load())
		}
		for i := 0; i < n; i += 7 {
			want := TimeEntry{int64(500 + 10*i), record.Offset(1003 + 5*i)}
			if got := x.Lookup(want.Timestamp + 9); got != want {
				t.Fatalf("Lookup = %v, want %v", got, want)
			}
		}
		if got := x.Lookup(499); got.Timestamp != -1 {
			t.Fatalf("before the first: %v", got)
		}
		if got := x.CountTo(1003 + 5*100); got != 100 {
			t.Fatalf("CountTo = %d", got)
		}
		must(t, x.Check())
	}
	must(t, x.Unload())
}

func TestTimeIndexKeepsTheLastSlot(t *testing.T) {
	x, err := CreateTimeIndex(options(t, ".timeindex", 36))
	must(t, err)
	must(t, x.Append(1, 1001, false))
	must(t, x.Append(2, 1002, false))
	if !x.Full() {
		t.Fatal("not full")
	}
	if err := x.Append(3, 1003, false); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	must(t, x.Append(3, 1003, true))
	if e, _ := x.Last(); e != (TimeEntry{3, 1003}) {
		t.Fatal(e)
	}
	must(t, x.Unload())
}

func TestTimeIndexCheckFindsPadding(t *testing.T) {
	o := options(t, ".timeindex", 1<<20)
	x, err := CreateTimeIndex(o)
	must(t, err)
	must(t, x.Append(77, 1003, false))
	must(t, x.Unload())
	must(t, x.Open(-1))
	must(t, x.Load())
	if err := x.Check(); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("padding with zeros passes: %v", err)
	}
	must(t, x.Unload())
}

func TestTxnIndex(t *testing.T) {
	o := options(t, ".txnindex", 0)
	x := NewTxnIndex(o)
	if all, err := x.All(); err != nil || all != nil {
		t.Fatalf("missing file: %v %v", all, err)
	}
	entries := []AbortedTxn{{7, 1000, 1010, 1011}, {8, 1005, 1020, 1021}, {7, 1030, 1040, 1041}}
	for _, a := range entries {
		must(t, x.Append(a))
	}
	if got := len(readFile(t, o.Name)); got != 3*TxnEntryBytes {
		t.Fatalf("%d bytes", got)
	}
	found, more, err := x.Collect(nil, 1012, 1021)
	must(t, err)
	if len(found) != 1 || found[0] != entries[1] || more {
		t.Fatalf("Collect = %v, %v", found, more)
	}
	if _, more, _ = x.Collect(nil, 1012, 5000); !more {
		t.Fatal("the next segment must be asked")
	}
	must(t, x.Cut(1040))
	all, err := x.All()
	must(t, err)
	if len(all) != 2 {
		t.Fatalf("after Cut: %v", all)
	}
	must(t, x.Append(AbortedTxn{9, 1001, 1002, 1003})) // goes back
	if _, err := x.All(); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("marker order: %v", err)
	}
}

func TestLookupBesideGrowthAndSeal(t *testing.T) {
	x, err := CreateOffsetIndex(options(t, ".index", 4<<20))
	must(t, err)
	must(t, x.Append(1001, 1))
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			n := record.Offset(x.Len())
			if got := x.Lookup(1000 + n); got.Offset < 1000+n && got.Offset != 1000 { // base: between unmapping and mapping
				done <- errors.New("an entry that was there is not found")
				return
			}
		}
	}()
	for i := range 100_000 {
		must(t, x.Append(record.Offset(1002+i), record.Position(2+i)))
		if i%20_000 == 0 {
			must(t, x.Seal())
			must(t, x.Load())
		}
	}
	close(stop)
	must(t, <-done)
	must(t, x.Seal())
}

func TestLookupAllocatesNothing(t *testing.T) {
	x := filled(t)
	if n := testing.AllocsPerRun(100, func() { x.Lookup(1_200_000) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
	must(t, x.Unload())
}

func filled(t testing.TB) *OffsetIndex {
	x, err := CreateOffsetIndex(options(t, ".index", 10<<20))
	must(t, err)
	for i := range 1_300_000 {
		must(t, x.Append(record.Offset(1001+i), record.Position(1+i)))
	}
	return x
}

func BenchmarkLookupTail(b *testing.B) {
	x := filled(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		x.Lookup(record.Offset(1_300_999 - i%60))
	}
	b.StopTimer()
	must(b, x.Unload())
}

func BenchmarkLookupAnywhere(b *testing.B) {
	x := filled(b)
	rnd := rand.New(rand.NewPCG(1, 2))
	b.ReportAllocs()
	for b.Loop() {
		x.Lookup(record.Offset(1000 + rnd.IntN(1_300_000)))
	}
	b.StopTimer()
	must(b, x.Unload())
}

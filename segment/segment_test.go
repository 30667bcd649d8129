package segment

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"syscall"
	"testing"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// fixture is a segment under test and what must be in it.
type fixture struct {
	t       *testing.T
	fs      vfs.FS
	env     *Env
	dir     string
	options Options
	bytes   []byte // the log file that should be
	starts  []record.Position
	codecs  *record.Codecs
	next    record.Offset
}

func newFixture(t *testing.T, fs vfs.FS) *fixture {
	t.Helper()
	must(t, fs.MkdirAll("/d", 0o755))
	return &fixture{
		t: t, fs: fs, env: NewEnv(fs, slog.New(slog.DiscardHandler), 2), dir: "/d", codecs: record.NewCodecs(), next: 100,
		options: Options{MaxBytes: 1 << 20, IndexBytes: 1 << 20, IndexInterval: 4096},
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// batch builds three records.
func (f *fixture) batch(ts int64, size int) record.Batch {
	f.t.Helper()
	o := record.NewOptions()
	o.BaseOffset = f.next
	b := record.NewBuilder(o)
	for i := range 3 {
		b.Append(ts-int64(2-i), nil, bytes.Repeat([]byte{byte(f.next)}, size))
	}
	batch, err := b.Batch(f.codecs)
	must(f.t, err)
	return batch
}

// fill appends n batches of about 700 bytes with growing timestamps.
func (f *fixture) fill(s *Segment, n int) {
	f.t.Helper()
	for range n {
		b := f.batch(1000+int64(f.next), 200)
		must(f.t, s.Append(b))
		f.starts = append(f.starts, record.Position(len(f.bytes)))
		f.bytes = append(f.bytes, b...)
		f.next += 3
	}
}

// verify reads every offset and compares the bytes, and looks up every time.
func (f *fixture) verify(s *Segment) {
	f.t.Helper()
	if got := s.Size(); got != int64(len(f.bytes)) {
		f.t.Fatalf("size %d, want %d", got, len(f.bytes))
	}
	end := record.Position(len(f.bytes))
	for i, at := range f.starts {
		for d := range 3 {
			o := s.Base() + record.Offset(3*i+d)
			sp, err := s.Read(ReadOptions{Offset: o, End: end, MaxBytes: 2000})
			must(f.t, err)
			got := make([]byte, sp.Len())
			_, err = sp.ReadAt(got, 0)
			must(f.t, err)
			if want := f.bytes[at:min(int(at)+2000, len(f.bytes))]; !bytes.Equal(got, want) {
				f.t.Fatalf("offset %d: %d bytes that differ from the %d expected", o, len(got), len(want))
			}
			next, err := sp.NextOffset()
			must(f.t, err)
			if want := s.Base() + record.Offset(3*min(i+2, len(f.starts))); next != want {
				f.t.Fatalf("offset %d: next offset %d, want %d", o, next, want)
			}
			sp.Release()
		}
		var found record.Offset = -1
		must(f.t, s.FindTime(1000+int64(s.Base())+int64(3*i), 0, end, func(b Batch) bool {
			found = b.BaseOffset()
			return false
		}))
		if want := s.Base() + record.Offset(3*i); found != want {
			f.t.Fatalf("by time: %d, want %d", found, want)
		}
		p, err := s.PositionOf(s.Base() + record.Offset(3*i))
		must(f.t, err)
		if p != at {
			f.t.Fatalf("position of batch %d: %d, want %d", i, p, at)
		}
	}
	if _, err := s.Read(ReadOptions{Offset: f.next, End: end, MaxBytes: 100}); !errors.Is(err, ErrNone) {
		f.t.Fatalf("read at the end: %v", err)
	}
}

func (f *fixture) read(ext string) []byte {
	f.t.Helper()
	return readAll(f.t, f.fs, path.Join(f.dir, FileName(100, ext)))
}

func readAll(t testing.TB, fs vfs.FS, name string) []byte {
	t.Helper()
	file, err := fs.OpenFile(name, os.O_RDONLY, 0)
	must(t, err)
	size, err := file.Size()
	must(t, err)
	b := make([]byte, size)
	if size > 0 {
		_, err = file.ReadAt(b, 0)
		must(t, err)
	}
	must(t, file.Close())
	return b
}

// patch overwrites bytes of a file.
func (f *fixture) patch(ext string, at int64, b []byte) {
	f.t.Helper()
	file, err := f.fs.OpenFile(path.Join(f.dir, FileName(100, ext)), os.O_RDWR, 0)
	must(f.t, err)
	_, err = file.WriteAt(b, at)
	must(f.t, err)
	must(f.t, file.Close())
}

func (f *fixture) create() *Segment {
	f.t.Helper()
	s, err := Create(f.env, f.dir, 100, f.options)
	must(f.t, err)
	return s
}

func (f *fixture) sealed(n int) {
	f.t.Helper()
	s := f.create()
	f.fill(s, n)
	must(f.t, s.Finish())
	must(f.t, s.Seal())
	<-s.Retire()
}

func TestAppendReadSealReopen(t *testing.T) {
	f := newFixture(t, vfs.NewMem())
	s := f.create()
	f.fill(s, 300)
	f.verify(s)
	must(t, s.Finish())
	must(t, s.Seal())
	f.verify(s)
	if !bytes.Equal(f.read(LogExt), f.bytes) {
		t.Fatal("log file differs")
	}
	// an entry after more than 4096 bytes, pointing at the start of the batch that ends at the offset
	if n := s.offsets.Len(); n < 40 {
		t.Fatalf("%d index entries for %d bytes", n, len(f.bytes))
	}
	for i := range s.offsets.Len() {
		e, _ := s.offsets.Entry(i)
		if at := f.starts[(e.Offset-102)/3]; at != e.Position || (e.Offset-102)%3 != 0 {
			t.Fatalf("entry %d: %v", i, e)
		}
	}
	if newest, err := s.NewestTimestamp(); err != nil || newest != 1000+int64(f.next)-3 {
		t.Fatalf("newest timestamp %d, %v", newest, err)
	}
	<-s.Retire()
	again := Sealed(f.env, f.dir, 100, int64(len(f.bytes)))
	f.verify(again)
	if newest, err := again.ConfirmNewest(); err != nil || newest != 1000+int64(f.next)-3 {
		t.Fatalf("confirmed %d, %v", newest, err)
	}
	<-again.Retire()
	if _, err := again.PositionOf(100); !errors.Is(err, ErrGone) {
		t.Fatalf("after Retire: %v", err)
	}
}

func TestCleanStopAndOpen(t *testing.T) {
	f := newFixture(t, vfs.NewMem())
	s := f.create()
	f.fill(s, 100)
	must(t, s.SyncLog())
	must(t, s.CloseClean())
	s, next, err := OpenClean(f.env, f.dir, 100, CleanOptions{Options: f.options})
	must(t, err)
	if next != f.next {
		t.Fatalf("next offset %d, want %d", next, f.next)
	}
	f.verify(s)
	f.fill(s, 100)
	f.verify(s)
	must(t, s.CloseClean())
}

func TestCatalogue10_EmptySegmentsAreNormal(t *testing.T) {
	f := newFixture(t, vfs.NewMem())
	s := f.create()
	must(t, s.CloseClean())
	s, err := Create(f.env, f.dir, 100, f.options) // onto the existing empty one
	must(t, err)
	must(t, s.CloseClean())
	s, next, err := OpenClean(f.env, f.dir, 100, CleanOptions{Options: f.options})
	must(t, err)
	if next != 100 {
		t.Fatal(next)
	}
	f.fill(s, 20)
	f.verify(s)
	must(t, s.CloseClean())
}

func TestIndexFilesThatAreWrongAreRebuilt(t *testing.T) {
	for name, spoil := range map[string]func(f *fixture){
		"missing index":      func(f *fixture) { must(f.t, f.fs.Remove(path.Join(f.dir, FileName(100, IndexExt)))) },
		"missing time index": func(f *fixture) { must(f.t, f.fs.Remove(path.Join(f.dir, FileName(100, TimeExt)))) },
		"zeroed index":       func(f *fixture) { f.patch(IndexExt, 0, make([]byte, 8*20)) },
		"zeroed time index":  func(f *fixture) { f.patch(TimeExt, 0, make([]byte, 12*20)) },
		"junk entry at the end": func(f *fixture) {
			f.patch(IndexExt, int64(len(f.read(IndexExt))-8), []byte{0, 0, 3, 0, 0, 0, 200, 0})
		},
		"junk entry in the middle": func(f *fixture) {
			b := f.read(IndexExt)
			f.patch(IndexExt, 8*10+4, []byte{0, 0, b[8*10+6], b[8*10+7] + 9})
		},
		"junk time in the middle": func(f *fixture) { f.patch(TimeExt, 12*10+7, []byte{f.read(TimeExt)[12*10+7] + 1}) },
		"padded time index":       func(f *fixture) { f.patch(TimeExt, int64(len(f.read(TimeExt))), make([]byte, 1200)) },
		"padded index":            func(f *fixture) { f.patch(IndexExt, int64(len(f.read(IndexExt))), make([]byte, 1200)) },
		"odd length":              func(f *fixture) { f.patch(IndexExt, int64(len(f.read(IndexExt))), []byte{1, 2, 3}) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, vfs.NewMem())
			f.sealed(200)
			spoil(f)
			s := Sealed(f.env, f.dir, 100, int64(len(f.bytes)))
			f.verify(s)
			if newest, err := s.NewestTimestamp(); err != nil || newest != 1000+int64(f.next)-3 {
				t.Fatalf("newest timestamp %d, %v", newest, err)
			}
			<-s.Retire()
		})
	}
}

func TestDamageIsOneBatch(t *testing.T) {
	for name, at := range map[string]int64{"base offset": 6, "base offset high": 2, "length": 10, "length high": 8, "magic": 16, "crc": 18, "body": 100} {
		for _, victim := range []int{0, 57, 150, 199} {
			t.Run(fmt.Sprint(name, " of batch ", victim), func(t *testing.T) {
				f := newFixture(t, vfs.NewMem())
				f.sealed(200)
				pos := int64(f.starts[victim]) + at
				f.patch(LogExt, pos, []byte{f.bytes[pos] ^ 0x10})
				s := Sealed(f.env, f.dir, 100, int64(len(f.bytes)))
				s.SetUpper(f.next)
				end := record.Position(len(f.bytes))
				for i := range f.starts {
					o := record.Offset(100 + 3*i + 1)
					sp, err := s.Read(ReadOptions{Offset: o, End: end, MaxBytes: 3000})
					if i == victim {
						if !errors.Is(err, ErrDamaged) {
							t.Fatalf("the damaged batch: %v", err)
						}
						continue
					}
					must(t, err)
					want := int(min(end, f.starts[i]+3000) - f.starts[i])
					if i < victim && f.starts[victim] < f.starts[i]+3000 {
						want = int(f.starts[victim] - f.starts[i])
					}
					if sp.Len() != want {
						t.Fatalf("offset %d: %d bytes, want %d", o, sp.Len(), want)
					}
					sp.Release()
				}
				<-s.Retire()
			})
		}
	}
}

func TestRecoverKeepsWhatIsWhole(t *testing.T) {
	for _, mark := range []int{0, 40, 100} {
		t.Run(fmt.Sprint("mark at batch ", mark), func(t *testing.T) {
			f := newFixture(t, vfs.NewMem())
			s := f.create()
			f.fill(s, 40)
			offsets, times := s.Entries()
			f.fill(s, 60)
			if mark == 0 {
				offsets, times = 0, 0
			}
			torn := f.batch(9999, 200)
			at := len(f.bytes)
			f.patch(LogExt, int64(at), torn[:len(torn)-5])
			from := record.Position(at)
			if mark < 100 {
				from = f.starts[mark]
			}
			must(t, s.offsets.Unload())
			must(t, s.times.Unload())
			count := 0
			r, got, err := Recover(f.env, f.dir, 100, RecoverOptions{
				Options: f.options, From: from, Next: record.Offset(100 + 3*mark), Offsets: offsets, Times: times,
				Each: func(record.Batch) { count++ },
			})
			must(t, err)
			if got.Next != f.next || got.Cut != int64(len(torn)-5) || got.Torn != "" || got.Short || count != 100-mark {
				t.Fatalf("%+v, %d batches shown", got, count)
			}
			f.verify(r)
			f.fill(r, 50)
			f.verify(r)
			must(t, r.CloseClean())
		})
	}
}

func TestRecoverCopiesWhatFollowsATear(t *testing.T) {
	f := newFixture(t, vfs.NewMem())
	s := f.create()
	f.fill(s, 100)
	must(t, s.offsets.Unload())
	must(t, s.times.Unload())
	rest := bytes.Clone(f.bytes[f.starts[60]:])
	rest[70] ^= 1
	f.patch(LogExt, int64(f.starts[60]), rest)
	r, got, err := Recover(f.env, f.dir, 100, RecoverOptions{Options: f.options, From: f.starts[50], Next: 250})
	must(t, err)
	if got.Next != 280 || got.Torn == "" {
		t.Fatalf("%+v", got)
	}
	if !bytes.Equal(readAll(t, f.fs, got.Torn), rest) {
		t.Fatal("the copy differs")
	}
	f.bytes, f.starts, f.next = f.bytes[:f.starts[60]], f.starts[:60], 280
	f.verify(r)
	must(t, r.CloseClean())
}

func TestRecoverShortOfItsMark(t *testing.T) {
	f := newFixture(t, vfs.NewMem())
	s := f.create()
	f.fill(s, 100)
	must(t, s.CloseClean())
	file, err := f.fs.OpenFile("/d/"+FileName(100, LogExt), os.O_RDWR, 0)
	must(t, err)
	must(t, file.Truncate(int64(f.starts[60])+30))
	must(t, file.Close())
	r, got, err := Recover(f.env, f.dir, 100, RecoverOptions{Options: f.options, From: record.Position(len(f.bytes)), Next: f.next})
	must(t, err)
	if !got.Short || got.Next != 280 {
		t.Fatalf("%+v", got)
	}
	f.bytes, f.starts, f.next = f.bytes[:f.starts[60]], f.starts[:60], 280
	f.verify(r)
	must(t, r.CloseClean())
}

func TestCutBack(t *testing.T) {
	f := newFixture(t, vfs.NewMem())
	s := f.create()
	f.fill(s, 100)
	sp, err := s.Read(ReadOptions{Offset: 100, End: f.starts[99], MaxBytes: 10, AtLeastOne: true})
	must(t, err)
	gone := s.Retire()
	select {
	case <-gone:
		t.Fatal("retired with a reader inside")
	default:
	}
	sp.Release()
	<-gone
	r, err := CutBack(f.env, f.dir, 100, CutOptions{Options: f.options, Size: f.starts[70], End: 310})
	must(t, err)
	f.bytes, f.starts, f.next = f.bytes[:f.starts[70]], f.starts[:70], 310
	f.verify(r)
	f.fill(r, 70)
	f.verify(r)
	must(t, r.CloseClean())
}

func TestFailedWriteLeavesNothing(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.NewMem())
	f := newFixture(t, faulty)
	s := f.create()
	f.fill(s, 10)
	short := 100
	in := faulty.Inject(vfs.Fault{Ops: []vfs.Op{vfs.OpWrite}, Err: syscall.ENOSPC, Short: &short})
	if err := s.Append(f.batch(5000, 200)); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if in.Hits() == 0 {
		t.Fatal("the fault was not met")
	}
	faulty.Heal(in)
	if !bytes.Equal(f.read(LogExt), f.bytes) {
		t.Fatal("the file keeps bytes of the failed write")
	}
	f.fill(s, 10)
	f.verify(s)
	must(t, s.CloseClean())
}

func TestSealedSegmentsAreClosedBeyondTheLimit(t *testing.T) {
	f := newFixture(t, vfs.NewMem())
	var all []*Segment
	for i := range 5 {
		f.dir = fmt.Sprintf("/d%d", i)
		must(t, f.fs.MkdirAll(f.dir, 0o755))
		f.bytes, f.starts, f.next = nil, nil, 100
		f.sealed(20)
		all = append(all, Sealed(f.env, f.dir, 100, int64(len(f.bytes))))
	}
	for range 3 {
		for i, s := range all {
			f.dir = fmt.Sprintf("/d%d", i)
			f.verify(s)
			if n := f.env.Open(); n > 2 {
				t.Fatalf("%d sealed segments are open, the limit is 2", n)
			}
		}
	}
	for _, s := range all {
		<-s.Retire()
	}
	if f.env.Open() != 0 {
		t.Fatal("retired segments are still counted")
	}
}

// Every flip of every bit of a time index gives the right answer for every time.
func TestFlippedTimeEntries(t *testing.T) {
	f := newFixture(t, vfs.NewMem())
	f.options.IndexInterval = 100
	s := f.create()
	var times []int64
	for i := range 12 {
		b := f.batch(1000+int64(i/4)*8, 150)
		must(t, s.Append(b))
		times = append(times, b.MaxTimestamp())
		f.next += 3
	}
	must(t, s.Finish())
	must(t, s.Seal())
	size := s.Size()
	<-s.Retire()
	good := f.read(TimeExt)
	for bit := range len(good) * 8 {
		bad := append([]byte(nil), good...)
		bad[bit/8] ^= 1 << (bit % 8)
		f.patch(TimeExt, 0, bad)
		s := Sealed(f.env, f.dir, 100, size)
		for _, ts := range []int64{999, 1000, 1004, 1008, 1016} {
			want, got := -1, -1
			for i := range times {
				if times[i] >= ts {
					want = i
					break
				}
			}
			must(t, s.FindTime(ts, 100, record.Position(size), func(b Batch) bool {
				got = int(int64(b.At) * 12 / size)
				return false
			}))
			if got != want {
				t.Fatalf("bit %d: time %d is in batch %d, want %d", bit, ts, got, want)
			}
		}
		<-s.Retire()
		f.patch(TimeExt, 0, good)
	}
}

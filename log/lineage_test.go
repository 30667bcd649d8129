package log

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/segment"
	"github.com/keeplog/keeplog/vfs"
)

// disks are the data directories /0, /1, … of one node, of which some may be away.
type disks struct {
	t    *testing.T
	fs   *vfs.CrashFS
	flaw *vfs.FaultyFS
	rigs map[int]*rig
	next int // of the batches, so that no two are alike
}

func newDisks(t *testing.T, here ...int) *disks {
	s := &disks{t: t}
	s.start(vfs.NewCrash(), here...)
	return s
}

// start opens those that are here on what a stop has left.
func (s *disks) start(fs *vfs.CrashFS, here ...int) {
	s.t.Helper()
	must(s.t, s.tryStart(fs, here...))
}

func (s *disks) tryStart(fs *vfs.CrashFS, here ...int) error {
	s.t.Helper()
	s.fs, s.flaw, s.rigs = fs, vfs.NewFaulty(fs), map[int]*rig{}
	var dirs []*Dir
	for _, i := range here {
		r := &rig{
			t: s.t, fs: s.flaw, codecs: record.NewCodecs(), config: crashConfig(), now: time.UnixMilli(1_700_000_000_000),
			settings: Settings{Reserve: -1, TruncateWait: 50 * time.Millisecond}, model: map[string]*model{}, step: new(Stepped),
		}
		var err error
		r.dir, err = OpenDir(DirOptions{
			FS: s.flaw, Path: fmt.Sprintf("/%d", i), Logger: slog.New(slog.NewTextHandler(&r.logs, nil)), Codecs: r.codecs,
			Now: func() time.Time { return r.now }, Committer: r.step, Settings: r.settings,
		})
		must(s.t, err)
		s.rigs[i] = r
		dirs = append(dirs, r.dir)
	}
	return SettleMoves(dirs)
}

// add acknowledges some records in a log of directory i.
func (s *disks) add(i int, l *Log, n int) {
	s.t.Helper()
	for range n {
		s.next++
		s.rigs[i].add(l, sent{size: 100 + s.next})
	}
}

// begin opens or makes the log in directory i and acknowledges some records.
func (s *disks) begin(i, n int) *Log {
	s.t.Helper()
	l := s.rigs[i].log(0)
	s.add(i, l, n)
	return l
}

func (s *disks) move(l *Log, to int) *Log {
	s.t.Helper()
	m, err := BeginMove(l, s.rigs[to].dir, nil)
	must(s.t, err)
	return through(s.t, m)
}

// found are the directories that have the partition; what is on its way out is removed.
func (s *disks) found() (out []int) {
	for i, r := range s.rigs {
		if len(r.dir.Found()) > 0 {
			out = append(out, i)
		}
		r.dir.Tick(r.now.Add(time.Hour))
	}
	slices.Sort(out)
	return out
}

// both expects that the partition is in two directories, which the caller refuses, and that each has its records.
func (s *disks) both(want map[int]record.Offset) {
	s.t.Helper()
	if got := s.found(); len(got) != len(want) {
		s.t.Fatalf("it is found in %v, wanted in %v", got, want)
	}
	for i, end := range want {
		if l := s.rigs[i].log(0); l.WrittenEnd() != end {
			s.t.Fatalf("the log in /%d ends at %d, it was %d", i, l.WrittenEnd(), end)
		}
	}
}

// Logs that began apart are not compared by how often they have moved: whatever a start finds, no record that was acknowledged goes.
func TestLogsThatBeganApart(t *testing.T) {
	stops := map[string]func(*vfs.CrashFS) *vfs.CrashFS{
		"kill":       func(fs *vfs.CrashFS) *vfs.CrashFS { return fs.ForkKilled() },
		"power loss": func(fs *vfs.CrashFS) *vfs.CrashFS { return fs.Fork(vfs.Policy{Kind: vfs.KeepNone}, 1) },
	}
	for how, stop := range stops {
		t.Run("the one that was away has moved, "+how, func(t *testing.T) {
			s := newDisks(t, 0, 1)
			s.move(s.begin(1, 5), 0)
			s.start(stop(s.fs), 1) // 0 is away, and given up
			s.begin(1, 9)
			s.start(stop(s.fs), 0, 1)
			s.both(map[int]record.Offset{0: 5, 1: 9})
		})
		t.Run("the other one has moved, "+how, func(t *testing.T) {
			s := newDisks(t, 0, 1, 2)
			s.begin(0, 9)
			s.start(stop(s.fs), 1, 2)
			s.move(s.begin(1, 5), 2)
			s.start(stop(s.fs), 0, 1, 2)
			s.both(map[int]record.Offset{0: 9, 2: 5})
		})
		t.Run("offline, given away and begun anew, "+how, func(t *testing.T) {
			s := newDisks(t, 0, 1)
			old := s.move(s.begin(1, 5), 0)
			s.flaw.Inject(vfs.Fault{Ops: []vfs.Op{vfs.OpSyncData, vfs.OpSync}, Path: "/0/*", Err: syscall.EIO, Sticky: true})
			if _, _, err := s.rigs[0].write(old, sent{}); err != nil {
				t.Fatal(err)
			}
			_ = s.rigs[0].step.Run()
			if err := s.rigs[0].dir.DeleteLog(old); !errors.Is(err, ErrOffline) {
				t.Fatal(err)
			}
			s.begin(1, 9)
			s.flaw.Heal()
			s.start(stop(s.fs), 0, 1)
			if got := s.found(); len(got) != 2 {
				t.Fatalf("found in %v", got)
			}
			if l := s.rigs[1].log(0); l.WrittenEnd() != 9 {
				t.Fatalf("it ends at %d", l.WrittenEnd())
			}
		})
	}
}

// A log whose copy has taken over, and that a start goes on with because the copy's directory is away, has gone on apart from it.
func TestLogsThatWentOnApart(t *testing.T) {
	left := func(t *testing.T) *disks {
		s := newDisks(t, 0, 1)
		l := s.begin(0, 5)
		s.flaw.Inject(vfs.Fault{Ops: []vfs.Op{vfs.OpRename}, Path: "/0/t-0", Err: syscall.EIO})
		m, err := BeginMove(l, s.rigs[1].dir, nil)
		must(t, err)
		for done := false; !done; {
			_, done, err = m.Step(make([]byte, 2000))
			must(t, err)
		}
		var next *Log
		if err := m.TakeOver(make([]byte, 2000), func(l *Log) { next = l }); !errors.Is(err, ErrMoved) || next == nil {
			t.Fatal(err)
		}
		s.add(1, next, 2)
		return s
	}
	t.Run("both are there", func(t *testing.T) {
		s := left(t)
		s.start(s.fs.ForkKilled(), 0, 1)
		s.both(map[int]record.Offset{1: 7})
	})
	for name, here := range map[string]int{"the old one goes on": 0, "the new one goes on": 1} {
		for _, kind := range []vfs.PolicyKind{vfs.KeepNone, vfs.KeepAll} {
			t.Run(fmt.Sprint(name, kind), func(t *testing.T) {
				s := left(t)
				ends := map[int]record.Offset{0: 5, 1: 7}
				s.start(s.fs.Fork(vfs.Policy{Kind: kind}, 1), here)
				s.begin(here, 3)
				ends[here] += 3
				s.start(s.fs.Fork(vfs.Policy{Kind: kind}, 1), 0, 1)
				if got := s.found(); !slices.Contains(got, here) || here == 0 && len(got) != 2 {
					t.Fatalf("found in %v", got)
				}
				for _, i := range s.found() {
					if l := s.rigs[i].log(0); l.WrittenEnd() != ends[i] {
						t.Fatalf("the log in /%d ends at %d, it was %d", i, l.WrittenEnd(), ends[i])
					}
				}
			})
		}
	}
}

// A copy of a log that is away is not gone on with as one of the log that began anew: it is put aside, it may be all that is left.
func TestCopyOfAnotherLog(t *testing.T) {
	s := newDisks(t, 0, 1, 2)
	l := s.begin(0, 9)
	m, err := BeginMove(l, s.rigs[2].dir, nil)
	must(t, err)
	_, _, err = m.Step(make([]byte, 1<<20))
	must(t, err)
	must(t, m.future.Flush())
	s.start(s.fs.ForkKilled(), 1)
	s.begin(1, 3)
	s.start(s.fs.ForkKilled(), 1, 2)
	s.both(map[int]record.Offset{1: 3})
	if _, ok := s.rigs[2].dir.TakeFuture(Identity{"t", 0, testTopic}); ok {
		t.Fatal("it is gone on with")
	}
	entries, err := s.fs.ReadDir("/2")
	must(t, err)
	if !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), straySuffix) }) {
		t.Fatal(entries)
	}
}

// A mark of before lineages were known is read as one of no lineage, and nothing is deleted for it.
func TestUnknownLineage(t *testing.T) {
	old := Mark{TopicID: testTopic, Movement: Movement{Moves: 1}}
	b := old.Encode()
	if !zeros(b[108:124]) {
		t.Fatalf("% x", b[108:124])
	}
	a := claim{marked: true, mark: old}
	c := claim{marked: true, mark: Mark{TopicID: testTopic}}
	if a.kin(&c) || c.kin(&a) {
		t.Fatal("two logs of unknown lineage are one")
	}
}

// copies lists the copies in directory i.
func (s *disks) copies(i int) (out []string) {
	s.t.Helper()
	entries, err := s.fs.ReadDir(fmt.Sprintf("/%d", i))
	must(s.t, err)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), futureSuffix) {
			out = append(out, e.Name())
		}
	}
	return out
}

// A copy that could not be gone on with, or not be deleted, is gone before the next one begins: both would have one mark.
func TestCopyThatWasLeft(t *testing.T) {
	begun := func(t *testing.T) (*disks, *Log, *Move) {
		s := newDisks(t, 0, 1)
		l := s.begin(0, 9)
		m, err := BeginMove(l, s.rigs[1].dir, nil)
		must(t, err)
		_, _, err = m.Step(make([]byte, 500))
		must(t, err)
		must(t, m.future.Flush())
		return s, l, m
	}
	again := func(t *testing.T, s *disks, l *Log) {
		t.Helper()
		if n := len(s.copies(1)); n != 1 {
			t.Fatalf("%d copies are left", n)
		}
		m, err := BeginMove(l, s.rigs[1].dir, nil)
		must(t, err)
		if n := len(s.copies(1)); n != 1 {
			t.Fatalf("there are %d copies", n)
		}
		if next := through(t, m); next.WrittenEnd() != 9 {
			t.Fatal(next.WrittenEnd())
		}
	}
	t.Run("not opened", func(t *testing.T) {
		s, _, _ := begun(t)
		s.start(s.fs.ForkKilled(), 0, 1)
		l := s.begin(0, 0)
		found, ok := s.rigs[1].dir.TakeFuture(l.id)
		if !ok {
			t.Fatal("no copy")
		}
		s.flaw.Inject(vfs.Fault{Ops: []vfs.Op{vfs.OpOpen}, Path: found.Path + "/*", Err: syscall.EMFILE})
		if _, err := BeginMove(l, s.rigs[1].dir, found); !errors.Is(err, syscall.EMFILE) {
			t.Fatal(err)
		}
		s.flaw.Heal()
		again(t, s, l)
	})
	t.Run("not deleted", func(t *testing.T) {
		s, l, m := begun(t)
		s.flaw.Inject(vfs.Fault{Ops: []vfs.Op{vfs.OpRename}, Path: m.at, Err: syscall.ENOSPC})
		if err := m.Drop(); !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		s.flaw.Heal()
		again(t, s, l)
	})
}

// A start does not guess which of two copies has taken over.
func TestTwoCopiesAndOneMark(t *testing.T) {
	s := newDisks(t, 0, 1)
	l := s.begin(0, 9)
	m, err := BeginMove(l, s.rigs[1].dir, nil)
	must(t, err)
	_, _, err = m.Step(make([]byte, 1<<20))
	must(t, err)
	must(t, m.future.Flush())
	m.future.markMu.Lock()
	m.future.future.Store(false)
	must(t, m.future.putFirmLocked())
	m.future.markMu.Unlock()
	other := strings.Replace(m.at, ".", ".0", 1)
	other = other[:len(other)-len("x"+futureSuffix)] + futureSuffix
	must(t, s.fs.Mkdir(other, 0o755))
	b, err := readFile(s.fs, m.at+"/"+PartitionFile)
	must(t, err)
	must(t, replaceFile(s.fs, other+"/"+PartitionFile, b))
	err = s.tryStart(s.fs.ForkKilled(), 0, 1)
	if !errors.Is(err, ErrInTheWay) || !strings.Contains(err.Error(), m.at) || !strings.Contains(err.Error(), other) {
		t.Fatal(err)
	}
}

// A copy whose disk has lost some of it begins anew.
func TestCopyThatHasLostData(t *testing.T) {
	s := newDisks(t, 0, 1)
	l := s.begin(0, 30)
	m, err := BeginMove(l, s.rigs[1].dir, nil)
	must(t, err)
	_, _, err = m.Step(make([]byte, 1<<20))
	must(t, err)
	for done := false; !done; {
		_, done, err = m.Step(make([]byte, 1<<20))
		must(t, err)
	}
	must(t, m.future.Flush())
	must(t, l.TruncateTo(20))
	s.rigs[0].modelOf(l).batches = s.rigs[0].modelOf(l).batches[:20]
	model := s.rigs[0].modelOf(l)
	s.start(s.fs.ForkKilled(), 0, 1)
	l = s.begin(0, 0)
	found, ok := s.rigs[1].dir.TakeFuture(l.id)
	if !ok {
		t.Fatal("no copy")
	}
	entries, err := s.fs.ReadDir(found.Path)
	must(t, err)
	for _, e := range entries { // all but the first segment is gone
		if base, _, ok := segment.ParseName(e.Name()); ok && base > 0 {
			must(t, s.fs.Remove(path.Join(found.Path, e.Name())))
		}
	}
	m, err = BeginMove(l, s.rigs[1].dir, found)
	must(t, err)
	if _, lost := m.future.MissingData(); !lost {
		t.Fatal("nothing is lost")
	}
	next := through(t, m)
	check := func() {
		t.Helper()
		if lost, ok := next.MissingData(); ok || next.WrittenEnd() != 20 {
			t.Fatalf("it ends at %d, and misses %+v", next.WrittenEnd(), lost)
		}
		s.rigs[1].model["t-0"] = model
		s.rigs[1].verify(next)
	}
	check()
	s.start(s.fs.ForkKilled(), 0, 1)
	next = s.rigs[1].log(0)
	check()
}

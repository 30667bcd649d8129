package log

import (
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keeplog/keeplog/index"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/segment"
	"github.com/keeplog/keeplog/vfs"
)

// twoDirs are /data and /data2 of one node.
type twoDirs struct {
	r, s *rig // of each; their file system is the same
}

func (d *twoDirs) rigs() []*rig { return []*rig{d.r, d.s} }

func newTwoDirs(t testing.TB, fs vfs.FS, c Config) *twoDirs {
	t.Helper()
	d := &twoDirs{}
	for _, r := range []**rig{&d.r, &d.s} {
		*r = &rig{
			t: t, codecs: record.NewCodecs(), config: c, now: time.UnixMilli(1_700_000_000_000),
			settings: Settings{Reserve: -1, TruncateWait: 50 * time.Millisecond, MarkBytes: 4 << 10}, model: map[string]*model{},
		}
	}
	must(t, d.open(fs))
	return d
}

// open opens both and settles what a stop has interrupted.
func (d *twoDirs) open(fs vfs.FS) error {
	var dirs []*Dir
	for i, r := range d.rigs() {
		r.fs = fs
		r.step = new(Stepped)
		dir, err := OpenDir(DirOptions{
			FS: fs, Path: []string{"/data", "/data2"}[i], Logger: slog.New(slog.NewTextHandler(&r.logs, nil)), Codecs: r.codecs,
			Now: func() time.Time { return r.now }, Committer: r.step, Settings: r.settings,
		})
		if err != nil {
			return err
		}
		r.dir = dir
		dirs = append(dirs, dir)
	}
	return SettleMoves(dirs)
}

// home is the rig of the directory that has the replica: exactly one must.
func (d *twoDirs) home() (*rig, error) {
	var found []*rig
	for _, r := range d.rigs() {
		for range r.dir.Found() {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return d.r, nil // not durable yet
	}
	return nil, fmt.Errorf("%d directories hold the replica", len(found))
}

func (d *twoDirs) logs() string { return d.r.logs.String() + d.s.logs.String() }

func (d *twoDirs) other(r *rig) *rig {
	if r == d.r {
		return d.s
	}
	return d.r
}

// names lists the partitions' directories of both.
func (d *twoDirs) names() (out []string) {
	for i, r := range d.rigs() {
		entries, err := r.fs.ReadDir([]string{"/data", "/data2"}[i])
		must(r.t, err)
		for _, e := range entries {
			if name := e.Name(); e.IsDir() {
				if suffix, ok := isRetired(name); ok {
					name = "t-0" + suffix
				}
				out = append(out, fmt.Sprintf("%d:%s", i+1, name))
			}
		}
	}
	slices.Sort(out)
	return out
}

// through steps a move to its end and returns the log that took over.
func through(t testing.TB, m *Move) (next *Log) {
	t.Helper()
	for range 10_000 {
		_, done, err := m.Step(make([]byte, 2000))
		must(t, err)
		if !done {
			continue
		}
		err = m.TakeOver(make([]byte, 2000), func(l *Log) { next = l })
		if err == nil {
			return next
		}
		if !errors.Is(err, ErrNotYet) {
			t.Fatal(err)
		}
	}
	t.Fatal("the copy does not take over")
	return nil
}

func TestMove(t *testing.T) {
	d := newTwoDirs(t, vfs.NewMem(), crashConfig())
	l := d.r.log(0)
	must(t, l.StartEpoch(3))
	for i := range 30 {
		d.r.add(l, sent{id: 7, seq: record.Sequence(i), size: 200})
	}
	must(t, l.StartEpoch(5))
	for i := range 10 {
		d.r.add(l, sent{id: 8, seq: record.Sequence(i), size: 200})
	}
	must(t, l.AdvanceStart(4))
	l.SetWatermark(40)
	m, err := BeginMove(l, d.s.dir, nil)
	must(t, err)
	if _, err := BeginMove(l, d.s.dir, nil); err == nil {
		t.Fatal("two moves of one log")
	}
	before := l.Producers()
	var told int
	l.OnProgress(func() { told++ })
	next := through(t, m)
	if next.Path() != "/data2/t-0" || next.StartOffset() != 4 || next.WrittenEnd() != 40 || next.StableEnd() != 40 || told == 0 {
		t.Fatalf("%s from %d to %d, stable %d, %d notices", next.Path(), next.StartOffset(), next.WrittenEnd(), next.StableEnd(), told)
	}
	if got := next.Producers(); !slices.Equal(got, before) {
		t.Fatalf("producers %+v, before %+v", got, before)
	}
	if e, end := next.EndOffsetForEpoch(4); e != 3 || end != 30 {
		t.Fatalf("epoch %d ends at %d", e, end)
	}
	if err := next.Audit(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.r.write(l, sent{}); !errors.Is(err, ErrMoved) || !errors.Is(l.Follow(9), ErrMoved) || !errors.Is(l.TruncateTo(9), ErrMoved) || !errors.Is(l.AdvanceStart(9), ErrMoved) {
		t.Fatalf("the old log says %v", err)
	}
	d.s.model = d.r.model
	d.s.verify(next)
	for i := range 10 {
		d.s.add(next, sent{id: 8, seq: record.Sequence(10 + i), size: 200})
	}
	d.r.dir.Tick(d.r.now.Add(time.Hour))
	if got := fmt.Sprint(d.names()); got != "[2:t-0]" {
		t.Fatal(got)
	}
	for _, r := range d.rigs() {
		must(t, r.dir.Close())
	}
	must(t, d.open(d.r.fs))
	next = d.s.log(0)
	d.s.verify(next)
	if next.CheckpointedWatermark() != 40 {
		t.Fatalf("watermark %d", next.CheckpointedWatermark())
	}
	m, err = BeginMove(next, d.r.dir, nil) // and back
	must(t, err)
	back := through(t, m)
	d.r.verify(back)
	if back.Path() != "/data/t-0" || back.moves != 2 {
		t.Fatalf("%s, %d moves", back.Path(), back.moves)
	}
}

// What happens to the log while it is copied happens to the copy.
func TestMoveFollows(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(r *rig, l *Log)
		start record.Offset
	}{
		"truncation": {func(r *rig, l *Log) {
			must(r.t, l.TruncateTo(17))
			r.modelOf(l).batches = r.modelOf(l).batches[:17]
		}, 0},
		"truncation below what is copied, and other batches": {func(r *rig, l *Log) {
			must(r.t, l.TruncateTo(3))
			r.modelOf(l).batches = r.modelOf(l).batches[:3]
			must(r.t, l.StartEpoch(9))
			for range 30 {
				r.add(l, sent{size: 100})
			}
		}, 0},
		"a new beginning": {func(r *rig, l *Log) {
			must(r.t, l.TruncateFullyAndStartAt(100))
			*r.modelOf(l) = model{start: 100}
			for range 5 {
				r.add(l, sent{size: 100})
			}
		}, 100},
		"a new beginning below": {func(r *rig, l *Log) {
			must(r.t, l.TruncateFullyAndStartAt(2))
			*r.modelOf(l) = model{start: 2}
			for range 5 {
				r.add(l, sent{size: 100})
			}
		}, 2},
		"deleted records":     {func(r *rig, l *Log) { must(r.t, l.AdvanceStart(8)) }, 8},
		"all records deleted": {func(r *rig, l *Log) { must(r.t, l.AdvanceStart(30)) }, 30},
		"retention": {func(r *rig, l *Log) {
			must(r.t, l.AdvanceStart(25))
			must(r.t, l.Retain(r.now))
		}, 25},
		"batches": {func(r *rig, l *Log) {
			for range 30 {
				r.add(l, sent{size: 100})
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for copied := 0; copied < 8; copied += 3 {
				d := newTwoDirs(t, vfs.NewMem(), crashConfig())
				l := d.r.log(0)
				for range 30 {
					d.r.add(l, sent{size: 200})
				}
				m, err := BeginMove(l, d.s.dir, nil)
				must(t, err)
				for range copied {
					_, _, err := m.Step(make([]byte, 1500))
					must(t, err)
				}
				c.do(d.r, l)
				next := through(t, m)
				d.s.model = d.r.model
				d.s.verify(next)
				if next.StartOffset() != c.start || next.WrittenEnd() != l.WrittenEnd() || next.LatestEpoch() != l.LatestEpoch() {
					t.Fatalf("%d to %d in epoch %d, the log had %d to %d in %d", next.StartOffset(), next.WrittenEnd(), next.LatestEpoch(),
						l.StartOffset(), l.WrittenEnd(), l.LatestEpoch())
				}
				must(t, next.Audit())
			}
		})
	}
}

// A copy that is given up leaves nothing, and the log as it was.
func TestMoveDropped(t *testing.T) {
	d := newTwoDirs(t, vfs.NewMem(), crashConfig())
	l := d.r.log(0)
	for range 20 {
		d.r.add(l, sent{size: 200})
	}
	m, err := BeginMove(l, d.s.dir, nil)
	must(t, err)
	_, _, err = m.Step(make([]byte, 1000))
	must(t, err)
	if got := fmt.Sprint(d.names()); got != "[1:t-0 2:t-0-future]" {
		t.Fatal(got)
	}
	must(t, m.Drop())
	d.s.dir.Tick(d.s.now.Add(time.Hour))
	if got := fmt.Sprint(d.names()); got != "[1:t-0]" {
		t.Fatal(got)
	}
	d.r.add(l, sent{size: 200})
	d.r.verify(l)
	m, err = BeginMove(l, d.s.dir, nil)
	must(t, err)
	d.s.model = d.r.model
	d.s.verify(through(t, m))
}

// A file system that refuses, at any call of a move, leaves one replica with everything, now and after the next start. A run
// takes each call with one of the errors; KEEPLOG_CRASH=all with all.
func TestMoveFails(t *testing.T) {
	errnos := []syscall.Errno{syscall.EIO, syscall.ENOSPC, syscall.EMFILE}
	stride := 3 * len(errnos)
	rng := seeded(t)
	first := rng.IntN(stride)
	switch {
	case everyState:
		stride, first = 1, 0
	case raceDetector:
		stride, first = 29, rng.IntN(29)
	}
	t.Logf("from call %d on, each %d", first+1, stride)
	for i, errno := range errnos {
		t.Run(errno.Error(), func(t *testing.T) {
			call := 1 + (first+3*i)%stride
			for moveWithFault(t, call, errno) {
				call += stride
			}
			t.Logf("up to call %d", call)
		})
	}
}

// startsWhole starts with what a crash would leave now, and looks for everything in the one directory that has the replica.
func (d *twoDirs) startsWhole(disk *vfs.CrashFS) error {
	for i, after := range []*vfs.CrashFS{disk.ForkKilled(), disk.Fork(vfs.Policy{Kind: vfs.KeepNone}, 1), disk.Fork(vfs.Policy{Kind: vfs.KeepAll}, 1)} {
		r, s := *d.r, *d.s
		r.logs, s.logs = strings.Builder{}, strings.Builder{}
		again := &twoDirs{r: &r, s: &s}
		if err := again.open(after); err != nil {
			return fmt.Errorf("crash %d: %w", i, err)
		}
		home, err := again.home()
		if err != nil {
			return fmt.Errorf("crash %d: %w\n%s", i, err, again.logs())
		}
		home.verify(home.log(0))
	}
	return nil
}

// moveWithFault has one call of a move fail; false where there were fewer.
func moveWithFault(t *testing.T, call int, errno syscall.Errno) bool {
	t.Helper()
	disk := vfs.NewCrash()
	faulty := vfs.NewFaulty(disk)
	d := newTwoDirs(t, faulty, crashConfig())
	l := d.r.log(0)
	seq := record.Sequence(0)
	add := func(r *rig, l *Log) error {
		a, b, err := r.write(l, sent{id: 7, seq: seq, size: 200})
		if err != nil {
			return err
		}
		if err := r.step.Run(); err != nil {
			return err
		}
		if l.StableEnd() > a.Last {
			r.modelOf(l).batches = append(r.modelOf(l).batches, b)
			seq++
		}
		return nil
	}
	for range 8 {
		must(t, add(d.r, l))
	}
	d.s.model = d.r.model
	fault := faulty.Inject(vfs.Fault{Nth: int64(call), Err: errno, LoseDirty: errno == syscall.EIO && call%2 == 0})
	at, now := d.r, l
	m, err := BeginMove(l, d.s.dir, nil)
	for err == nil {
		var done bool
		if _, done, err = m.Step(make([]byte, 900)); err != nil || !done {
			continue
		}
		if err = m.TakeOver(make([]byte, 900), func(next *Log) { at, now = d.s, next }); err == nil || errors.Is(err, ErrMoved) {
			break
		}
		if errors.Is(err, ErrNotYet) {
			err = nil
		}
	}
	faulty.Heal()
	check := func(when string) {
		t.Helper()
		for range 3 {
			if err := add(at, now); err != nil && now.Err() == nil {
				t.Fatalf("call %d, %s: %v\n%s", call, when, err, d.logs())
			}
		}
		if err := d.startsWhole(disk); err != nil {
			t.Fatalf("call %d, %s: %v\n%s", call, when, err, d.logs())
		}
	}
	if m != nil && now == l {
		check("before the copy is dropped")
		if l.Err() == nil {
			_ = m.Drop()
		}
	}
	check("in the end")
	return fault.Hits() > 0
}

// Who looks at the segments when the copy takes over is told that the log has moved, not that a segment is gone.
func TestReadsInFlightAreToldThatItMoved(t *testing.T) {
	d := newTwoDirs(t, vfs.NewMem(), crashConfig())
	l := d.r.log(0)
	for range 30 {
		d.r.add(l, sent{size: 200})
	}
	m, err := BeginMove(l, d.s.dir, nil)
	must(t, err)
	moved := false
	move := func() {
		if !moved {
			moved = true
			through(t, m)
		}
	}
	var reads []error
	_, _, err = l.lookUp(func(v *view) (TimeOffset, bool, error) {
		move()
		for _, look := range []func() error{
			func() error {
				_, err := l.readView(v, &ReadRequest{Offset: 3, Bound: 30, MaxBytes: 100}, 30)
				return err
			},
			func() error { _, _, err := l.offsetForTime(v, 1, 30); return err },
			func() error { _, _, err := l.maxTimestamp(v, 30); return err },
			func() error { _, _, err := l.timeOf(v, 3, 30); return err },
		} {
			reads = append(reads, look())
		}
		return TimeOffset{}, false, errors.Join(reads...)
	})
	if !errors.Is(err, ErrMoved) {
		t.Fatal(err)
	}
	if !errors.Is(errors.Join(reads...), segment.ErrGone) {
		t.Fatalf("the segments were there all the time: %v", reads)
	}
}

// The aborted transactions that a log of Kafka's has beside its segments are beside those of the copy that hold their markers.
func TestMoveTakesAbortedTransactionsAlong(t *testing.T) {
	disk := vfs.NewCrash()
	d := newTwoDirs(t, disk, crashConfig())
	l := d.r.log(0)
	for range 60 {
		d.r.add(l, sent{size: 200})
	}
	var want []index.AbortedTxn
	for i, s := range l.Segments() {
		x := index.NewTxnIndex(index.Options{FS: disk, Name: path.Join(l.Path(), segment.FileName(s.Base, segment.TxnExt)), Base: s.Base})
		for n := range record.Offset(2) {
			a := index.AbortedTxn{ProducerID: record.ProducerID(i), First: max(s.Base-1, 0), Last: s.Base + n, LastStable: s.Base}
			must(t, x.Append(a))
			if a.Last >= 7 {
				want = append(want, a)
			}
		}
	}
	if len(want) < 10 {
		t.Fatalf("%d segments", len(l.Segments()))
	}
	must(t, l.AdvanceStart(7))
	c := l.Config()
	c.Segment.Bytes *= 3
	l.SetConfig(c)
	m, err := BeginMove(l, d.s.dir, nil)
	must(t, err)
	through(t, m)
	must(t, d.open(disk.Fork(vfs.Policy{Kind: vfs.KeepNone}, 1)))
	next := d.s.log(0)
	all := next.Segments()
	var got []index.AbortedTxn
	for i, s := range all {
		some, err := index.NewTxnIndex(index.Options{FS: d.s.fs, Name: path.Join(next.Path(), segment.FileName(s.Base, segment.TxnExt)), Base: s.Base}).All()
		must(t, err)
		for _, a := range some {
			if i+1 < len(all) && a.Last >= all[i+1].Base {
				t.Errorf("the abort at %d is beside the segment from %d", a.Last, s.Base)
			}
		}
		got = append(got, some...)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("there are %v\nwanted are %v", got, want)
	}
}

// From the moment on at which the log that takes over is in use, every crash leaves it whole.
func TestMoveIsDurableAtOnce(t *testing.T) {
	disk := vfs.NewCrash()
	d := newTwoDirs(t, disk, crashConfig())
	l := d.r.log(0)
	for range 20 {
		d.r.add(l, sent{size: 200})
	}
	d.s.model = d.r.model
	m, err := BeginMove(l, d.s.dir, nil)
	must(t, err)
	for done := false; !done; {
		_, done, err = m.Step(make([]byte, 2000))
		must(t, err)
	}
	must(t, m.TakeOver(make([]byte, 2000), func(*Log) { must(t, d.startsWhole(disk)) }))
	must(t, d.startsWhole(disk))
}

// Producers whose batches are all deleted are known where the log goes.
func TestMoveTakesProducersAlong(t *testing.T) {
	d := newTwoDirs(t, vfs.NewMem(), crashConfig())
	l := d.r.log(0)
	old := sent{id: 9, size: 200}
	d.r.add(l, old)
	for i := range 20 {
		d.r.add(l, sent{id: 7, seq: record.Sequence(i), size: 200})
	}
	must(t, l.AdvanceStart(5))
	before := l.Producers()
	m, err := BeginMove(l, d.s.dir, nil)
	must(t, err)
	next := through(t, m)
	if got := next.Producers(); len(got) != 2 || !slices.Equal(got, before) {
		t.Fatalf("producers %+v, before %+v", got, before)
	}
	if a, _, err := d.s.write(next, old); err != nil || !a.Duplicate || a.Base != 0 {
		t.Fatalf("sent again: %+v, %v", a, err)
	}
}

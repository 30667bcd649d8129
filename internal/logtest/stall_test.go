package logtest

import (
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// stallWorld is a directory with two partitions, flushed in the background: a disk call of the first hangs, and the second
// must not notice.
type stallWorld struct {
	*world
	a, b *part
}

func newStallWorld(t *testing.T) *stallWorld {
	t.Helper()
	w := newWorld(5)
	w.breakable()
	o := dirOptions(w.faulty, nil, w.now)
	o.Settings.FlushConcurrency, o.Settings.FlushPatience = 4, 3*time.Millisecond
	d, err := log.OpenDir(o)
	if err != nil {
		t.Fatal(err)
	}
	w.dir = d
	s := &stallWorld{world: w}
	for _, p := range []**part{&s.a, &s.b} {
		if *p, err = w.addPart("events", int32(len(w.parts)), partConfig(1)); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range w.parts {
		for range 2 {
			s.must(t, w.append(p, shape{producer: 1, records: 2, size: 30}))
			s.must(t, w.roll(p, shape{producer: 2, records: 1, size: 20}))
			s.flushed(t, p)
		}
	}
	return s
}

func (s *stallWorld) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// flushed waits until all that was appended is stable.
func (s *stallWorld) flushed(t *testing.T, p *part) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for begin := time.Now(); time.Since(begin) < 10*time.Second; <-tick.C {
		if p.l.StableEnd() == p.m.end() {
			return
		}
	}
	t.Fatalf("%s: the stable end is %d after ten seconds, %d was appended", p, p.l.StableEnd(), p.m.end())
}

type stallingStep struct {
	name string
	do   func(s *stallWorld) error
}

const opensOne = "new partition"

// stalling are the things during which a call hangs.
var stalling = []stallingStep{
	{"append", func(s *stallWorld) error {
		return steps(func() error { return s.append(s.a, shape{producer: 1, records: 2, size: 30}) }, s.a.l.Flush)
	}},
	{"roll", func(s *stallWorld) error {
		return steps(func() error { return s.roll(s.a, shape{producer: 1, records: 2, size: 30}) }, s.a.l.Flush)
	}},
	{"read", func(s *stallWorld) error { return checkContent(s.a.l, s.a.m.batches) }},
	{"DeleteRecords and retention", func(s *stallWorld) error {
		if err := s.advance(s.a, s.a.l.StableEnd()-1); err != nil {
			return err
		}
		s.dir.Tick(s.pass(time.Minute))
		s.dir.Tick(s.pass(time.Minute))
		return nil
	}},
	{"truncation", func(s *stallWorld) error {
		to := s.a.m.batches[len(s.a.m.batches)-3].next()
		s.a.m.cut = to
		err := s.a.l.TruncateTo(to)
		s.a.m.truncate(to)
		s.a.m.cut = -1
		return err
	}},
	{"checkpoints", func(s *stallWorld) error {
		for range 3 {
			s.dir.Tick(s.pass(time.Minute))
		}
		return nil
	}},
	{"delete partition", func(s *stallWorld) error { return s.deletePart(s.a, s.a.l) }},
	{opensOne, func(s *stallWorld) error {
		_, err := s.addPart("more", 0, partConfig(1))
		return err
	}},
}

// TestStalls lets each call of the file system hang, for whatever it is made: reads and appends of another partition go on,
// and where the file is not one that partitions share, nor one that was idle and is closed for another, their
// acknowledgements too. A Close waits for the call and no longer.
func TestStalls(t *testing.T) {
	stalls := 0
	for _, o := range stalling {
		for n := int64(1); ; n++ {
			name := fmt.Sprintf("%s, call %d", o.name, n)
			watch := time.AfterFunc(30*time.Second, func() {
				_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
				panic("a call that hangs holds up another partition: " + name)
			})
			met := stall(t, name, n, o)
			watch.Stop()
			if !met || t.Failed() {
				break
			}
			stalls++
		}
	}
	t.Logf("%d calls hung", stalls)
}

func stall(t *testing.T, name string, n int64, what stallingStep) bool {
	s := newStallWorld(t)
	gate, done, closed := make(chan struct{}), make(chan error, 1), make(chan error, 1)
	in := s.faulty.Inject(vfs.Fault{Nth: n, Stall: gate})
	go func() { done <- what.do(s) }()
	for in.Hits() == 0 && len(done) == 0 {
		runtime.Gosched()
	}
	op, path, met := in.Where()
	own := func(p *part) bool { return strings.HasPrefix(path, root+"/"+log.DirName("events", p.id.Partition)+"/") }
	closing := met && n%2 == 0 && what.name != opensOne          // nobody opens a log while the directory is closed
	idle := op == vfs.OpClose && strings.HasSuffix(path, ".log") // whoever opens one too many closes it, perhaps the other's flush
	if met && (!own(s.b) || idle) {
		s.other(t, name, !own(s.a) || idle)
	}
	if closing {
		go func() { closed <- s.dir.Close() }()
		for range 100 {
			runtime.Gosched()
		}
		if len(closed) > 0 {
			t.Errorf("%s (%s): Close did not wait", name, path)
		}
	}
	close(gate)
	if err := <-done; err != nil && !closing {
		t.Errorf("%s (%s): %v", name, path, err)
	}
	if !closing {
		closed <- s.dir.Close()
	}
	if err := <-closed; err != nil {
		t.Errorf("%s (%s): closing: %v", name, path, err)
	}
	s.closed()
	s.faulty.Heal()
	if closing && s.parts[0].state == deleting { // DeleteLog had begun
		return met
	}
	if _, err := s.reopen(s.disk.Fork(vfs.Policy{Kind: vfs.KeepNone}, 0), s.promises(false)); err != nil {
		t.Errorf("%s (%s): after a power loss: %v", name, path, err)
	}
	return met
}

// other uses the other partition; shared says that the call which hangs is for both.
func (s *stallWorld) other(t *testing.T, name string, shared bool) {
	t.Helper()
	if err := checkContent(s.b.l, s.b.m.batches); err != nil {
		t.Errorf("%s: reading another partition: %v", name, err)
	}
	for i := range 3 {
		if err := s.append(s.b, shape{producer: record.ProducerID(i), records: 1, size: 10}); err != nil {
			t.Errorf("%s: appending to another partition: %v", name, err)
		}
	}
	if err := s.roll(s.b, shape{producer: 1, records: 1, size: 10}); err != nil {
		t.Errorf("%s: rolling another partition: %v", name, err)
	}
	if err := checkContent(s.b.l, s.b.m.batches); err != nil {
		t.Errorf("%s: reading another partition: %v", name, err)
	}
	if !shared {
		s.flushed(t, s.b)
	}
}

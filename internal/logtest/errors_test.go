package logtest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/vfs"
)

// breakage is a way for calls to fail.
type breakage struct {
	name  string
	fault vfs.Fault
}

var seven = 7

// changing are the calls that can need space.
var changing = []vfs.Op{
	vfs.OpWrite, vfs.OpAllocate, vfs.OpCreate, vfs.OpMkdir, vfs.OpRename, vfs.OpTruncate, vfs.OpSyncDir, vfs.OpSync, vfs.OpSyncData, vfs.OpMapSync, vfs.OpClose,
}

// breakages are injected at the n-th call of their kind.
var breakages = []breakage{
	{"EIO once", vfs.Fault{Err: syscall.EIO, LoseDirty: true}},
	{"EIO from then on", vfs.Fault{Err: syscall.EIO, LoseDirty: true, Sticky: true}},
	{"ENOSPC once", vfs.Fault{Err: syscall.ENOSPC, LoseDirty: true, Ops: changing}},
	{"ENOSPC of writes from then on", vfs.Fault{Err: syscall.ENOSPC, Sticky: true, Ops: []vfs.Op{vfs.OpWrite, vfs.OpAllocate, vfs.OpCreate, vfs.OpMkdir, vfs.OpRename}}},
	{"EROFS from then on", vfs.Fault{Err: syscall.EROFS, LoseDirty: true, Sticky: true, Ops: []vfs.Op{vfs.OpWrite, vfs.OpAllocate, vfs.OpCreate, vfs.OpMkdir, vfs.OpRename, vfs.OpRemove, vfs.OpTruncate}}},
	{"short write, EIO", vfs.Fault{Err: syscall.EIO, Short: &seven, Ops: []vfs.Op{vfs.OpWrite}}},
	{"short write, ENOSPC", vfs.Fault{Err: syscall.ENOSPC, Short: &seven, Ops: []vfs.Op{vfs.OpWrite}}},
	{"short write, then EIO from then on", vfs.Fault{Err: syscall.EIO, Short: &seven, Sticky: true, Ops: []vfs.Op{vfs.OpWrite, vfs.OpTruncate}}},
	{"short read, EIO", vfs.Fault{Err: syscall.EIO, Short: &seven, Ops: []vfs.Op{vfs.OpRead}}},
	{"EIO of reads from then on", vfs.Fault{Err: syscall.EIO, Sticky: true, Ops: []vfs.Op{vfs.OpRead}}},
	{"failed flush", vfs.Fault{Err: syscall.EIO, LoseDirty: true, Ops: []vfs.Op{vfs.OpSync, vfs.OpSyncData, vfs.OpMapSync, vfs.OpSyncDir}}},
}

// swapFS lets the file system below change at a kill.
type swapFS struct{ vfs.FS }

// breakable puts a file system that can be broken between the log and the disk.
func (w *world) breakable() {
	w.below = &swapFS{w.disk}
	w.faulty = vfs.NewFaulty(w.below)
	w.strict = false
}

// clean says whether an error is one that a broken call may lead to.
func clean(err error) bool {
	for _, e := range []error{log.ErrOffline, log.ErrReserve, log.ErrClosed, syscall.EIO, syscall.ENOSPC, syscall.EROFS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// breaker runs workloads on a disk that breaks.
type breaker struct {
	seed     uint64
	budget   budget
	points   atomic.Int64
	hits     atomic.Int64
	mu       sync.Mutex
	failures []string
	kinds    map[string]bool
	most     int // failures after which it stops
}

// job is a workload that can be repeated.
type job struct {
	name string
	make func(t testing.TB) (*world, func() error)
}

// tolerant runs operations and goes on after clean errors.
func tolerant(w *world, ops []operation) error {
	for _, o := range ops {
		if err := w.do(o); err != nil && !clean(err) {
			return fmt.Errorf("%s: %w", o, err)
		}
		if err := w.observe(); err != nil {
			return err
		}
	}
	return nil
}

// jobs are the written workloads, and generated ones by number.
func (b *breaker) job(i int) job {
	if i%3 == 0 {
		s := scripts[(i/3)%len(scripts)]
		return job{s.name, func(testing.TB) (*world, func() error) {
			w := newWorld(b.seed)
			return w, func() error { return s.run(w) }
		}}
	}
	rng := rand.New(rand.NewPCG(b.seed, uint64(i)))
	ops := make([]operation, 1+rng.IntN(8))
	names := make([]string, len(ops))
	for i := range ops {
		ops[i] = operation(rng.IntN(int(opCount)))
		names[i] = ops[i].String()
	}
	from, seed := begin(rng.IntN(3)), rng.Uint64()
	return job{fmt.Sprintf("from %d: %s", from, strings.Join(names, ", ")), func(t testing.TB) (*world, func() error) {
		w := worldFrom(t, from)
		w.rng = rand.New(rand.NewPCG(seed, 5))
		return w, func() error { return tolerant(w, ops) }
	}}
}

// one breaks one call of one job.
func (b *breaker) one(t testing.TB, j job, rng *rand.Rand) {
	if !strings.Contains(j.name, os.Getenv("KEEPLOG_WORKLOAD")) {
		return
	}
	kind := breakages[rng.IntN(len(breakages))]
	w, run := j.make(t)
	w.breakable()
	if err := guard(run); err != nil {
		b.fail(w, j.name+", nothing broken", err)
		return
	}
	calls := w.faulty.Calls(kind.fault.Ops...)
	for range min(calls, 12) {
		if b.budget.spent(int(b.points.Load())) {
			return
		}
		kind.fault.Nth = 1 + rng.Int64N(calls)
		b.broken(t, j, harm{kind.fault, fmt.Sprintf("%s; %s at call %d", j.name, kind.name, kind.fault.Nth)}, rng)
	}
}

// harm is a fault, and the name of what is done with it.
type harm struct {
	fault vfs.Fault
	name  string
}

// broken does a job with a fault, and checks what is left. It says whether the job came to the fault.
func (b *breaker) broken(t testing.TB, j job, h harm, rng *rand.Rand) bool {
	fault, name := h.fault, h.name
	b.points.Add(1)
	w, run := j.make(t)
	w.breakable()
	injection := w.faulty.Inject(fault)
	if err := guard(run); err != nil && !clean(err) {
		b.fail(w, name, err)
		return true
	}
	met := injection.Hits() > 0
	if met {
		b.hits.Add(1)
	}
	if err := guard(func() error { return w.afterBreak(rng.Uint64()) }); err != nil {
		b.fail(w, name, err)
	}
	return met
}

// afterBreak checks what is left of a directory after a failure: what runs goes on, and a restart finds what was promised.
func (w *world) afterBreak(seed uint64) error {
	if err := w.observe(); err != nil {
		return err
	}
	w.faulty.Heal()
	if w.dir != nil {
		if err := w.goOn(); err != nil {
			return err
		}
	}
	// what was written and not promised may be gone: the system forgot pages that it could not write
	promises := w.promises(false)
	states := map[string]*vfs.CrashFS{
		"killed": w.disk.ForkKilled(), "none": w.disk.Fork(vfs.Policy{Kind: vfs.KeepNone}, 0),
		"all": w.disk.Fork(vfs.Policy{Kind: vfs.KeepAll}, 0), "random": w.disk.Fork(vfs.Policy{Kind: vfs.KeepRandom}, seed),
	}
	policies := []string{"killed", "none", "all", "random"}
	for i, policy := range policies {
		state := states[policy]
		r, err := w.reopen(state, promises)
		if err != nil {
			return fmt.Errorf("restart (%s): %w\n%s", policy, err, tree(state, root))
		}
		again, err := w.reopen(state.Fork(vfs.Policy{Kind: vfs.KeepNone}, 0), r.published(promises))
		if err != nil {
			return fmt.Errorf("restart (%s), then power loss: %w", policy, err)
		}
		if uint64(i) != seed%4 {
			continue
		}
		if err := again.after(); err != nil {
			return fmt.Errorf("restart (%s): %w", policy, err)
		}
	}
	return nil
}

// goOn uses the directory that is open, with the disk healed.
func (w *world) goOn() error {
	offline := w.dir.Offline()
	w.now = w.now.Add(time.Second)
	w.dir.Tick(w.now)
	for _, p := range w.live() {
		if offline != nil {
			if err := w.append(p, shape{producer: 1, records: 1, size: 5}); !errors.Is(err, log.ErrOffline) {
				return fmt.Errorf("%s: append to an offline directory answers %w", p, err)
			}
			continue
		}
		if err := w.healed(p); err != nil && w.dir.Offline() == nil {
			return fmt.Errorf("%s goes on: %w", p, err)
		}
	}
	return w.observe()
}

// healed compares a log that had a clean error with the model, and appends.
func (w *world) healed(p *part) error {
	if p.m.cut >= 0 || p.m.renewed >= 0 {
		return nil
	}
	if end := p.l.WrittenEnd(); end != p.m.end() {
		return fmt.Errorf("end %d, want %d: a failed batch is in the log, or a good one is not", end, p.m.end())
	}
	if err := checkContent(p.l, p.m.batches); err != nil {
		return err
	}
	if err := checkProducers(p.l, p.m.known(p.m.batches, p.l.StartOffset()), p.m.batches); err != nil {
		return err
	}
	return steps(
		func() error { return resend(p) },
		func() error { return w.append(p, shape{producer: 1, records: 1, size: 5}) },
		func() error { return checkContent(p.l, p.m.batches) },
		p.l.Flush,
		func() error {
			if p.l.StableEnd() != p.m.end() {
				return fmt.Errorf("stable end %d after a flush, want %d", p.l.StableEnd(), p.m.end())
			}
			return nil
		},
	)
}

func (b *breaker) fail(w *world, name string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	kind := withoutDigits(err)
	if kind = kind[:min(len(kind), 120)]; b.kinds[kind] {
		return
	}
	b.kinds[kind] = true
	var s strings.Builder
	fmt.Fprintf(&s, "workload %s\n  done: %s\n  KEEPLOG_SEED=%d\n  error: %v\n", name, strings.Join(w.trace, ", "), b.seed, err)
	for _, p := range w.parts {
		fmt.Fprintf(&s, "  %s: state %d, end %d, floor %d, start %d to %d, cut %d, pending %d\n", p, p.state, p.m.end(), p.m.floor,
			p.m.startMin, p.m.startMax, p.m.cut, len(p.m.pending))
	}
	b.failures = append(b.failures, s.String())
}

// run breaks calls until the budget is spent or enough was found.
func (b *breaker) run(t testing.TB) (workloads int64) {
	var wait sync.WaitGroup
	var at atomic.Int64
	for range workers() {
		wait.Go(func() {
			for !b.budget.spent(int(b.points.Load())) && !b.enough() {
				i := int(at.Add(1)) - 1
				b.one(t, b.job(i), rand.New(rand.NewPCG(b.seed, uint64(i)+1000)))
			}
		})
	}
	wait.Wait()
	return at.Load()
}

func (b *breaker) enough() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.failures) >= b.most
}

// TestErrorsOfShortWorkloads breaks every call of every workload of up to two operations in every way, in an order by seed:
// all of them in a run of some minutes, a part of them in a short one.
func TestErrorsOfShortWorkloads(t *testing.T) {
	b := &breaker{seed: seedOf(t), budget: newBudget(1500 * time.Millisecond), kinds: map[string]bool{}, most: 8}
	jobs := shortJobs(b.seed)
	var wait sync.WaitGroup
	var at, whole atomic.Int64
	for range workers() {
		wait.Go(func() {
			for !b.budget.spent(int(b.points.Load())) && !b.enough() {
				i := int(at.Add(1)) - 1
				if i >= len(jobs) {
					return
				}
				if b.each(t, jobs[i], rand.New(rand.NewPCG(b.seed, uint64(i)+3000))) {
					whole.Add(1)
				}
			}
		})
	}
	wait.Wait()
	for _, f := range b.failures {
		t.Error(f)
	}
	t.Logf("%d broken calls, %d were met; all of %d workloads of %d", b.points.Load(), b.hits.Load(), whole.Load(), len(jobs))
}

// shortJobs are all workloads of one operation and of two, from each start.
func shortJobs(seed uint64) []job {
	var jobs []job
	add := func(ops ...operation) {
		names := make([]string, len(ops))
		for i, o := range ops {
			names[i] = o.String()
		}
		for from := fromNothing; from <= fromStopped; from++ {
			jobs = append(jobs, job{fmt.Sprintf("from %d: %s", from, strings.Join(names, ", ")), func(t testing.TB) (*world, func() error) {
				w := worldFrom(t, from)
				w.rng = rand.New(rand.NewPCG(seed, 5))
				return w, func() error { return tolerant(w, ops) }
			}})
		}
	}
	for first := range opCount {
		add(first)
		for second := range opCount {
			add(first, second)
		}
	}
	rand.New(rand.NewPCG(seed, 6)).Shuffle(len(jobs), func(i, j int) { jobs[i], jobs[j] = jobs[j], jobs[i] })
	return jobs
}

// each breaks each call of a job in each way, and says whether it came to the end.
func (b *breaker) each(t testing.TB, j job, rng *rand.Rand) bool {
	if !strings.Contains(j.name, os.Getenv("KEEPLOG_WORKLOAD")) {
		return false
	}
	for _, kind := range breakages {
		fault := kind.fault
		for n := int64(1); ; n++ {
			if b.budget.spent(int(b.points.Load())) || b.enough() {
				return false
			}
			fault.Nth = n
			if !b.broken(t, j, harm{fault, fmt.Sprintf("%s; %s at call %d", j.name, kind.name, n)}, rng) {
				break
			}
		}
	}
	return true
}

// TestTornMarks tears each write of the marks of all written workloads, and of generated ones while there is time: the mark
// before it counts, and what a restart finds is what was promised, whether the process goes on or not.
func TestTornMarks(t *testing.T) {
	b := &breaker{seed: seedOf(t), budget: newBudget(1500 * time.Millisecond), kinds: map[string]bool{}, most: 8}
	cuts := []int{1, 40, 60, 127}
	var wait sync.WaitGroup
	var at atomic.Int64
	for range workers() {
		wait.Go(func() {
			for !b.budget.spent(int(b.points.Load())) && !b.enough() {
				i := int(at.Add(1)) - 1
				rng := rand.New(rand.NewPCG(b.seed, uint64(i)+2000))
				b.tearMarks(t, b.job(i), cuts[rng.IntN(len(cuts))], rng)
			}
		})
	}
	wait.Wait()
	for _, f := range b.failures {
		t.Error(f)
	}
	t.Logf("%d torn writes of %d workloads, %d were met", b.points.Load(), at.Load(), b.hits.Load())
}

// tearMarks does a job once for each write of its marks, and tears that one.
func (b *breaker) tearMarks(t testing.TB, j job, cut int, rng *rand.Rand) {
	fault := vfs.Fault{Ops: []vfs.Op{vfs.OpWrite}, Path: log.MarksFile, Short: &cut, Nth: math.MaxInt64}
	w, run := j.make(t)
	w.breakable()
	probe := w.faulty.Inject(fault)
	if err := guard(run); err != nil {
		b.fail(w, j.name+", nothing torn", err)
		return
	}
	for n := int64(1); n <= probe.Seen() && !b.budget.spent(int(b.points.Load())); n++ {
		for _, fault.Err = range []error{syscall.EIO, syscall.ENOSPC} {
			fault.Nth = n
			b.broken(t, j, harm{fault, fmt.Sprintf("%s; mark %d torn after %d bytes, %v", j.name, n, cut, fault.Err)}, rng)
		}
	}
}

// TestErrors breaks calls of the file system and checks what goes on, and what a restart finds.
func TestErrors(t *testing.T) {
	b := &breaker{seed: seedOf(t), budget: newBudget(1500 * time.Millisecond), kinds: map[string]bool{}, most: 8}
	n := b.run(t)
	for _, f := range b.failures {
		t.Error(f)
	}
	t.Logf("%d broken calls of %d workloads, %d were met", b.points.Load(), n, b.hits.Load())
}

package logtest

import (
	"fmt"
	"hash/fnv"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keeplog/keeplog/vfs"
)

// explorer checks the crash states of workloads.
type explorer struct {
	seed   uint64
	budget budget
	total  *atomic.Int64 // states of all explorers of a run
	rng    *rand.Rand    // of the workload: it does not depend on what ran before
	// wide is how many policies are tried at a point beyond which they are sampled, random how many random ones.
	wide, random int
	// one in deepOf states is crashed again during its recovery; one in afterOf is used afterwards; one in auditOf is
	// read by the offline check.
	deepOf, afterOf, auditOf int

	seen                                map[uint64]bool
	hashSeed                            maphash.Seed
	states, distinct, deep, points, seq int
	failures                            []string
	kinds                               map[string]bool // errors met, without their numbers
	stopAt                              int             // failures after which it stops
	must                                bool            // the workload is done whatever the time
}

func newExplorer(seed uint64, b budget) *explorer {
	return &explorer{
		seed: seed, budget: b, total: new(atomic.Int64), wide: 40, random: 3, deepOf: 60, afterOf: 4, auditOf: 16,
		seen: map[uint64]bool{}, kinds: map[string]bool{}, hashSeed: maphash.MakeSeed(), stopAt: 10,
	}
}

func (x *explorer) done() bool {
	return len(x.failures) >= x.stopAt || x.budget.spent(int(x.total.Load()))
}

func (x *explorer) String() string {
	return fmt.Sprintf("%d crash states (%d distinct) at %d points of %d workloads, %d of them crashed again during recovery",
		x.states, x.distinct, x.points, x.seq, x.deep)
}

func workers() int { return runtime.GOMAXPROCS(0) }

// workload is one job of an explorer.
type workload func(x *explorer, t testing.TB)

// explore hands workloads to as many explorers as there are processors, in order, the first ones even when the time is
// over. next returns nil when there is nothing more.
func explore(t testing.TB, first *explorer, must int, next func(i int) workload) *explorer {
	t.Helper()
	var wait sync.WaitGroup
	var at atomic.Int64
	all := make([]*explorer, workers())
	for i := range all {
		x := *first
		x.seen, x.kinds = map[uint64]bool{}, map[string]bool{}
		if !long() {
			x.wide, x.random, x.deepOf = 10, 1, 150
		}
		all[i] = &x
		wait.Go(func() {
			for {
				i := int(at.Add(1)) - 1
				x.must = i < must
				if x.done() {
					return
				}
				job := next(i)
				if job == nil {
					return
				}
				job(&x, t)
			}
		})
	}
	wait.Wait()
	sum := *first
	for _, x := range all {
		sum.states, sum.distinct, sum.deep = sum.states+x.states, sum.distinct+x.distinct, sum.deep+x.deep
		sum.points, sum.seq = sum.points+x.points, sum.seq+x.seq
		sum.failures = append(sum.failures, x.failures...)
	}
	return &sum
}

// run does a workload and checks all states on its way.
func (x *explorer) run(w *world, name string, work func() error) {
	if x.done() || !strings.Contains(name, os.Getenv("KEEPLOG_WORKLOAD")) {
		return
	}
	x.seq++
	clear(x.seen)
	x.rng = rand.New(rand.NewPCG(x.seed, nameSeed(name)))
	over := false
	w.hooked(func(point string) {
		if over || x.done() {
			return
		}
		if err := w.observe(); err != nil {
			x.fail(w, name, failure{point: point, err: err})
			over = true
			return
		}
		x.at(w, name, point)
	})
	err := guard(work)
	if err == nil && !over {
		w.at("at the end")
		err = x.closing(w)
	}
	w.hooked(nil)
	if err != nil {
		x.fail(w, name, failure{point: "no crash", err: err})
	}
}

// closing compares the logs that are open with the model.
func (x *explorer) closing(w *world) error {
	return guard(func() error {
		for _, p := range w.live() {
			if !p.c.Flush.DurableOnAck() || p.l.StableEnd() != p.l.WrittenEnd() {
				continue
			}
			if err := checkLog(p, p.l, promise{least: p.m.end(), exact: -1, startMin: p.m.startMin}); err != nil {
				return fmt.Errorf("%s: %w", p, err)
			}
		}
		return nil
	})
}

func nameSeed(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return h.Sum64()
}

func (x *explorer) count() {
	x.states++
	x.total.Add(1)
}

// one says yes once in n times.
func (x *explorer) one(n int) bool { return x.rng.IntN(n) == 0 }

// guard turns a panic into an error.
func guard(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return f()
}

// at checks the states of one crash point.
func (x *explorer) at(w *world, name, point string) {
	x.points++
	promises := w.promises(false)
	for _, p := range x.choose(w.disk.Policies()) {
		seed := x.rng.Uint64()
		x.state(w, w.disk.Fork(p, seed), attempt{name: name, point: point, policy: p.String(), seed: seed, promises: promises, power: promises})
		if x.done() {
			return
		}
	}
	x.state(w, w.disk.ForkKilled(), attempt{name: name, point: point, policy: "killed", killed: true, promises: w.promises(true), power: promises})
}

// choose takes all policies, or where there are many the telling ones and a sample.
func (x *explorer) choose(all []vfs.Policy) []vfs.Policy {
	var chosen, rest []vfs.Policy
	for _, p := range all {
		switch p.Kind {
		case vfs.KeepRandom:
			for range x.random {
				chosen = append(chosen, p)
			}
		case vfs.KeepPrefix, vfs.KeepAllBut, vfs.TearLast, vfs.TearLastSized:
			rest = append(rest, p)
		default:
			chosen = append(chosen, p)
		}
	}
	if n := x.wide - len(chosen); len(rest) > n {
		x.rng.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
		rest = rest[:max(n, 0)]
	}
	return append(chosen, rest...)
}

// attempt is one crash state.
type attempt struct {
	name, point, policy string
	seed                uint64
	killed              bool
	promises            map[*part]promise
	power               map[*part]promise // what a power loss from here on must leave
}

// state checks one crash state, unless an equal one was checked.
func (x *explorer) state(w *world, disk *vfs.CrashFS, a attempt) {
	x.count()
	if !a.killed {
		sum := x.hash(disk, a.promises)
		if x.seen[sum] {
			return
		}
		x.seen[sum] = true
	}
	x.distinct++
	deep := x.one(x.deepOf)
	var before *vfs.CrashFS
	if deep {
		before = disk.ForkKilled()
	}
	kept := disk.ForkKilled()
	err := guard(func() error { return x.judge(w, disk, a) })
	if err != nil {
		x.fail(w, a.name, failure{point: a.point, policy: a.policy, seed: a.seed, err: err, disk: kept})
		return
	}
	if deep {
		x.again(w, before, a)
	}
}

// judge opens a state, opens what a power loss leaves of that, and uses it.
func (x *explorer) judge(w *world, disk *vfs.CrashFS, a attempt) error {
	r, err := w.reopen(disk, a.promises)
	if err != nil {
		return err
	}
	if x.one(x.auditOf) && !w.anyDeleted() { // what is left of a deleted partition is not mended by an opening
		if err := audit(disk); err != nil {
			return err
		}
	}
	if a.killed || x.one(3) {
		second, err := w.reopen(disk.Fork(vfs.Policy{Kind: vfs.KeepNone}, 0), r.published(a.promises))
		if err != nil {
			return fmt.Errorf("recovered, then power loss: %w", err)
		}
		x.count()
		x.distinct++
		if !a.killed {
			r = second
		}
	}
	if x.one(x.afterOf) {
		return r.after()
	}
	return nil
}

func (w *world) anyDeleted() bool {
	return slices.ContainsFunc(w.parts, func(p *part) bool { return p.state >= deleting })
}

// published are the promises of a recovery.
func (r *reopened) published(promises map[*part]promise) map[*part]promise {
	all := maps.Clone(promises)
	for p := range r.logs {
		all[p] = promise{least: r.ends[p], exact: r.ends[p], startMin: r.starts[p]}
	}
	return all
}

// again crashes a recovery at each of its calls.
func (x *explorer) again(w *world, disk *vfs.CrashFS, a attempt) {
	var r *reopened
	failed := false
	r = &reopened{w: w, fs: disk, stepped: newStepped()}
	r.reset()
	disk.SetHook(func(e vfs.Event) {
		if e.Phase != vfs.Before || failed || x.done() {
			return
		}
		power, killed := r.published(a.power), r.published(a.promises)
		few := x.choose(disk.Policies())
		if len(few) > 12 {
			x.rng.Shuffle(len(few), func(i, j int) { few[i], few[j] = few[j], few[i] })
			few = few[:12]
		}
		try := func(state *vfs.CrashFS, promises map[*part]promise, policy string, seed uint64) {
			if failed {
				return
			}
			x.count()
			x.deep++
			kept := state.ForkKilled()
			if err := guard(func() error { _, err := w.reopen(state, promises); return err }); err != nil {
				failed = true
				policy = fmt.Sprintf("%s (seed %d), then during recovery before call %d, %s %s: %s", a.policy, a.seed, e.Index, e.Op, e.Path, policy)
				x.fail(w, a.name, failure{point: a.point, policy: policy, seed: seed, err: err, disk: kept})
			}
		}
		for _, p := range few {
			seed := x.rng.Uint64()
			try(disk.Fork(p, seed), power, p.String(), seed)
		}
		if a.killed {
			try(disk.ForkKilled(), killed, "killed", 0)
		}
	})
	if err := guard(func() error { return r.open(a.promises) }); err != nil {
		x.fail(w, a.name, failure{point: a.point, policy: a.policy, seed: a.seed, err: fmt.Errorf("second opening of one state: %w", err), disk: disk})
	}
	disk.SetHook(nil)
}

// hash is a number for what a disk holds and what was promised of it.
func (x *explorer) hash(disk *vfs.CrashFS, promises map[*part]promise) uint64 {
	var h maphash.Hash
	h.SetSeed(x.hashSeed)
	hashTree(&h, disk, root)
	keys := slices.SortedFunc(maps.Keys(promises), func(a, b *part) int { return strings.Compare(a.String(), b.String()) })
	for _, p := range keys {
		maphash.WriteComparable(&h, promises[p])
	}
	return h.Sum64()
}

func hashTree(h *maphash.Hash, fs vfs.FS, dir string) {
	entries, err := fs.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		name := dir + "/" + e.Name()
		maphash.WriteComparable(h, e.Name())
		if e.IsDir() {
			hashTree(h, fs, name)
			continue
		}
		b := readAll(fs, name)
		maphash.WriteComparable(h, len(b))
		_, _ = h.Write(b)
	}
}

func readAll(fs vfs.FS, name string) []byte {
	f, err := fs.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	size, err := f.Size()
	if err != nil {
		return nil
	}
	b := make([]byte, size)
	n, _ := f.ReadAt(b, 0)
	return b[:n]
}

// failure is what a person needs to see.
type failure struct {
	point, policy string
	seed          uint64
	err           error
	disk          *vfs.CrashFS
}

// fail notes the first failure of each kind.
func (x *explorer) fail(w *world, name string, f failure) {
	kind := withoutDigits(f.err)
	if x.kinds[kind] {
		return
	}
	x.kinds[kind] = true
	var b strings.Builder
	fmt.Fprintf(&b, "workload %s\n  done: %s\n  crash: %s\n  policy: %s, seed %d (KEEPLOG_SEED=%d)\n  error: %v\n", name,
		strings.Join(w.trace, ", "), f.point, f.policy, f.seed, x.seed, f.err)
	for _, p := range w.parts {
		fmt.Fprintf(&b, "  %s: state %d, end %d, floor %d, start %d to %d, cut %d, pending %v\n", p, p.state, p.m.end(), p.m.floor,
			p.m.startMin, p.m.startMax, p.m.cut, p.m.pending != nil)
	}
	if f.disk != nil {
		fmt.Fprintf(&b, "  files:\n%s", tree(f.disk, root))
	}
	x.failures = append(x.failures, b.String())
}

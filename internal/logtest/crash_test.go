package logtest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/record"
)

// operation is one step of a generated workload.
type operation uint8

const (
	opAppend operation = iota
	opAppendSync
	opRoll
	opRollByAge
	opTruncate
	opDeletePrefix
	opCheckpoint
	opStop
	opKill
	opDeletePartition
	opEpoch
	opCount
)

var opNames = [opCount]string{
	"append", "append+sync", "roll", "roll by age", "truncate suffix", "delete prefix", "checkpoint", "stop", "kill", "delete partition", "new epoch",
}

func (o operation) String() string { return opNames[o] }

// do applies an operation to the partition that is worked on.
func (w *world) do(o operation) error {
	w.trace = append(w.trace, o.String())
	if w.dir == nil {
		if err := w.open(); err != nil {
			return err
		}
	}
	parts := w.live()
	if len(parts) == 0 {
		if !w.strict && len(w.parts) > 0 { // what broke is closed
			return w.dir.Offline()
		}
		if _, err := w.addPart("events", 0, partConfig(1)); err != nil {
			return err
		}
		parts = w.live()
	}
	p := parts[w.rng.IntN(len(parts))]
	switch o {
	case opAppend:
		return w.append(p, w.shape())
	case opAppendSync:
		if err := w.append(p, w.shape()); err != nil {
			return err
		}
		return w.sync()
	case opRoll:
		return w.roll(p, w.shape())
	case opRollByAge:
		return w.rollByAge(p)
	case opTruncate:
		return w.truncate(p, 1+w.rng.IntN(2))
	case opDeletePrefix:
		stable := p.l.StableEnd()
		o := p.l.StartOffset() + (stable-p.l.StartOffset()+1)/2
		if err := w.advance(p, o); err != nil {
			return err
		}
		return w.tick(time.Second) // segments below go, and after a second their files
	case opCheckpoint:
		return w.tick(2 * time.Minute)
	case opStop, opKill:
		if o == opStop {
			if err := w.stop(); err != nil {
				return err
			}
		} else {
			w.kill()
		}
		return w.open()
	case opDeletePartition:
		if err := w.deletePart(p, p.l); err != nil {
			return err
		}
		_, err := w.addPart(p.id.Topic, p.id.Partition, p.c)
		return err
	case opEpoch:
		return w.lead(p)
	}
	panic("no such operation")
}

// shape chooses what the next batch looks like.
func (w *world) shape() shape {
	return shape{producer: record.ProducerID(w.rng.IntN(3) - 1), records: 1 + w.rng.IntN(3), size: 1 + w.rng.IntN(90), bump: w.rng.IntN(12) == 0}
}

// begin is where a workload starts: nothing, or a log with segments, producers and epochs, killed or stopped.
type begin uint8

const (
	fromNothing begin = iota
	fromKilled
	fromStopped
)

// worldFrom is a new world at a start.
func worldFrom(t testing.TB, from begin) *world {
	t.Helper()
	w := newWorld(uint64(from) + 1)
	if from == fromNothing {
		return w
	}
	steps := []operation{opAppend, opAppendSync, opAppend, opEpoch, opAppendSync, opRoll, opAppendSync, opAppendSync, opAppend, opAppendSync, opCheckpoint}
	for _, o := range steps {
		if err := w.do(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.observe(); err != nil {
		t.Fatal(err)
	}
	if from == fromStopped {
		if err := w.stop(); err != nil {
			t.Fatal(err)
		}
	}
	return w.clone()
}

// sequence runs operations from a start.
func (x *explorer) sequence(w *world, from begin, ops []operation) {
	names := make([]string, len(ops))
	for i, o := range ops {
		names[i] = o.String()
	}
	name := fmt.Sprintf("from %d: %s", from, strings.Join(names, ", "))
	x.run(w, name, func() error {
		for _, o := range ops {
			if err := w.do(o); err != nil {
				return fmt.Errorf("%s: %w", o, err)
			}
			w.at("after " + o.String())
		}
		return nil
	})
}

// TestCrash takes the power away at every call of generated workloads: all of one operation, then all of two, in an order
// by seed, then random longer ones.
func TestCrash(t *testing.T) {
	seed := seedOf(t)
	jobs, ones := crashJobs(seed)
	x := explore(t, newExplorer(seed, newBudget(3*time.Second)), ones, func(i int) workload {
		if i < len(jobs) {
			return jobs[i]
		}
		return longer(seed, uint64(i))
	})
	for _, f := range x.failures {
		t.Error(f)
	}
	t.Logf("%s; there are %d of one operation, %d of two", x, ones, len(jobs)-ones)
}

// crashJobs are all workloads of one operation and, in an order by seed, of two.
func crashJobs(seed uint64) (jobs []workload, ones int) {
	add := func(from begin, ops ...operation) {
		jobs = append(jobs, func(x *explorer, t testing.TB) { x.sequence(worldFrom(t, from), from, ops) })
	}
	for a := range opCount {
		for from := fromNothing; from <= fromStopped; from++ {
			add(from, a)
		}
	}
	ones = len(jobs)
	for a := range opCount {
		for b := range opCount {
			add(fromKilled, a, b)
			add(fromStopped, a, b)
		}
	}
	pairs := jobs[ones:]
	rand.New(rand.NewPCG(seed, 3)).Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
	return jobs, ones
}

// longer is a random workload of 3 to 20 operations.
func longer(seed, number uint64) workload {
	rng := rand.New(rand.NewPCG(seed, number))
	ops := make([]operation, 3+rng.IntN(18))
	for i := range ops {
		ops[i] = operation(rng.IntN(int(opCount)))
	}
	from := begin(rng.IntN(3))
	return func(x *explorer, t testing.TB) {
		w := worldFrom(t, from)
		w.rng = rng
		x.sequence(w, from, ops)
	}
}

func newStepped() *log.Stepped { return new(log.Stepped) }

// reset empties what open fills.
func (r *reopened) reset() {
	r.logs, r.ends, r.starts = map[*part]*log.Log{}, map[*part]record.Offset{}, map[*part]record.Offset{}
}

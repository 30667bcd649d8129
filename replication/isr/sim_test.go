package isr

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keeplog/keeplog/record"
)

// nemesis does the next harm.
func (w *simWorld) nemesis() {
	if w.peace || w.now > simWar {
		return
	}
	w.after(w.between(200*time.Millisecond, 4*time.Second), w.nemesis)
	if w.now < w.lull {
		return
	}
	w.stats.faults++
	i := w.rng.IntN(simNodes)
	n := w.nodes[i]
	switch w.rng.IntN(16) {
	case 0, 1, 2:
		w.kill(n, w.chance(50))
	case 3:
		power := w.chance(50)
		for _, m := range w.nodes {
			w.kill(m, power)
		}
	case 4, 5:
		n.pause(w.between(500*time.Millisecond, 15*time.Second))
	case 6:
		w.isolate(i, w.chance(50))
	case 7:
		j := w.rng.IntN(simNodes)
		w.cut[i][j] = i != j
		w.note("nothing gets from %d to %d", i, j)
		w.after(w.between(time.Second, 8*time.Second), func() { w.cut[i][j] = false })
	case 8:
		w.slow = w.between(0, 200*time.Millisecond)
		w.after(w.between(time.Second, 5*time.Second), func() { w.slow = 0 })
	case 9:
		w.stall[i] = w.between(time.Second, 5*time.Second)
		w.note("the disk of node %d is slow: %v", i, w.stall[i])
		w.after(w.between(time.Second, 6*time.Second), func() { w.stall[i] = 0 })
	case 10:
		if n.up {
			n.stopping = true
			w.note("node %d is asked to stop", i)
			incarnation := n.incarnations
			w.after(10*time.Second, func() {
				if n.up && n.incarnations == incarnation {
					n.stop()
				}
			})
		}
	case 11:
		w.loseData(n)
	case 12:
		w.pauseAll(w.between(500*time.Millisecond, 10*time.Second))
	case 13: // the leader of the metadata log does not notice that it is one no more
		if w.chief >= 0 {
			w.nodes[w.chief].pause(w.between(2*time.Second, 6*time.Second))
		}
	case 14:
		w.late[i] = w.between(100*time.Millisecond, 2*time.Second)
		w.note("node %d applies what is committed %v late", i, w.late[i])
		w.after(w.between(time.Second, 6*time.Second), func() { w.late[i] = 0 })
	case 15:
		w.throttleFor(i, w.between(500*time.Millisecond, 8*time.Second))
	}
}

// kill ends a process, which is started again soon.
func (w *simWorld) kill(n *simNode, power bool) {
	if !n.up {
		return
	}
	w.killFor(n, power, w.between(50*time.Millisecond, 5*time.Second))
}

// ambush waits until it can kill all who may lead a partition without a loss, for so long that another is elected, and the rest
// still has a majority of the voters.
func (w *simWorld) ambush() {
	if w.peace || w.now > simWar-20*time.Second {
		return
	}
	again := func() { w.after(w.between(50*time.Millisecond, time.Second), w.ambush) }
	part, ok := w.newest().Partition(w.topic, int32(w.rng.IntN(simPartitions)))
	if !ok || w.chief < 0 {
		again()
		return
	}
	may := slices.Concat(part.ISR, part.ELR)
	voters := 0
	for i := range simVoters {
		if w.nodes[i].up && !w.nodes[i].paused && !slices.Contains(may, int32(i)) {
			voters++
		}
	}
	if voters <= simVoters/2 || len(may) == len(part.Replicas) {
		again()
		return
	}
	w.note("all of %v are killed", may)
	w.lull = w.now + w.between(10*time.Second, 18*time.Second)
	for _, id := range may {
		w.killFor(w.nodes[id], w.chance(50), w.between(10*time.Second, 20*time.Second))
	}
}

// trap kills, now and then, who is to join an in-sync set, and says how long the leader's wish is held up: the controller hears
// of the death first.
func (w *simWorld) trap(lead *leader, pr *proposal) time.Duration {
	for _, m := range pr.inSync {
		if n := w.nodes[m.ID]; !w.peace && w.now > w.lull && !slices.Contains(lead.inSync, m.ID) && n.up && w.chance(5) {
			w.note("node %d is to join, and dies", n.id)
			w.killFor(n, w.chance(50), w.between(50*time.Millisecond, 5*time.Second))
			return w.between(0, time.Second)
		}
	}
	return 0
}

// killFor ends a process, which is started again later.
func (w *simWorld) killFor(n *simNode, power bool, away time.Duration) {
	if !n.up {
		return
	}
	n.kill(power)
	epoch, id := n.epoch, int32(n.id)
	if w.chance(50) && epoch > 0 { // a refused dial tells the controller
		w.after(w.between(time.Millisecond, 500*time.Millisecond), func() {
			if w.chief >= 0 {
				c := w.nodes[w.chief]
				c.do(c.incarnations, func() { _ = c.control.Dropped(context.Background(), id, epoch) }) //nolint:errcheck // it may be too late
			}
		})
	}
	w.after(away, func() {
		if !n.up {
			n.start()
		}
	})
}

func (w *simWorld) isolate(i int, oneWay bool) {
	w.note("node %d is cut off, one way %v", i, oneWay)
	for j := range simNodes {
		if j != i {
			w.cut[i][j] = true
			w.cut[j][i] = !oneWay
		}
	}
	w.after(w.between(500*time.Millisecond, 10*time.Second), func() {
		for j := range simNodes {
			w.cut[i][j], w.cut[j][i] = false, false
		}
	})
}

// loseData takes flushed records from a disk, once in a run and while the two others have everything.
func (w *simWorld) loseData(n *simNode) {
	img := w.newest()
	if w.stats.lost > 0 || !n.up {
		return
	}
	for p := range simPartitions {
		part, ok := img.Partition(w.topic, int32(p))
		if !ok || len(part.ISR) < simFactor || len(part.ISR) < len(part.Replicas) {
			return
		}
	}
	w.stats.lost++
	w.kill(n, true)
	for _, r := range n.replicas {
		if len(r.log) > r.start {
			r.log = r.log[:r.start+w.rng.IntN(len(r.log)-r.start)]
			r.synced, r.missing, r.robbed = len(r.log), true, true
			r.hwFile = min(r.hwFile, record.Offset(len(r.log)))
		}
	}
	w.note("the disk of node %d has lost data: %v", n.id, n.ends())
}

// calm ends the war.
func (w *simWorld) calm() {
	w.note("peace")
	w.peace, w.simHarm, w.mercy = true, simHarm{}, simMercy{} // a pause that ends before its time may be too short to be noticed
	for _, n := range w.nodes {
		if n.up {
			n.resume()
		}
	}
	for _, n := range w.nodes {
		if n.up && n.shut() { // what did not open does so when it is tried again
			n.kill(false)
		}
		if !n.up {
			n.start()
		}
	}
}

// TestSimulation runs seeds for a while: KEEPLOG_HARNESS_SECONDS of real time, or KEEPLOG_HARNESS_COUNT seeds, from KEEPLOG_SEED
// on. KEEPLOG_SIM_SEED runs one seed and prints what happens.
func TestSimulation(t *testing.T) {
	if s := os.Getenv("KEEPLOG_SIM_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := simulate(t, seed, true); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		return
	}
	number := func(name string, otherwise uint64) uint64 {
		if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
			return n
		}
		return otherwise
	}
	first, count := number("KEEPLOG_SEED", rand.Uint64()), number("KEEPLOG_HARNESS_COUNT", 0)
	until := time.Now().Add(time.Duration(number("KEEPLOG_HARNESS_SECONDS", 3)) * time.Second)
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	var workers sync.WaitGroup
	var mu sync.Mutex // guards the rest
	var sum simStats
	ran, failed := uint64(0), ""
	next := func() (seed uint64, more bool) {
		mu.Lock()
		defer mu.Unlock()
		if failed != "" || count > 0 && ran == count || count == 0 && ran > 0 && time.Now().After(until) {
			return 0, false
		}
		ran++
		return first + ran - 1, true
	}
	for range runtime.GOMAXPROCS(0) { // each seed on one thread
		workers.Go(func() {
			for seed, more := next(); more; seed, more = next() {
				w, err := simulate(t, seed, false)
				mu.Lock()
				sum.add(w.stats)
				if err != nil && failed == "" {
					failed = fmt.Sprintf("seed %d: %v\nKEEPLOG_SIM_SEED=%d shows all of it\n%s", seed, err, seed, w.dump())
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	if failed != "" {
		t.Fatal(failed)
	}
	fmt.Printf("simulation: %d seeds from %d, %d virtual s, %v\n", ran, first, ran*uint64((simWar+simPeace)/time.Second), sum)
	t.Logf("%d seeds from %d: %v", ran, first, sum)
}

// TestSimulationRepeats: a seed says all, or a failure could not be looked at again.
func TestSimulationRepeats(t *testing.T) {
	first, err := simulate(t, 7, false)
	if err != nil {
		t.Fatal(err)
	}
	second, err := simulate(t, 7, false)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := strings.Join(first.trace, "\n"), strings.Join(second.trace, "\n"); a != b || first.made != second.made {
		t.Errorf("two runs of one seed differ: %d and %d events", first.made, second.made)
	}
}

func (s *simStats) add(o simStats) {
	s.steps += o.steps
	s.acked += o.acked
	s.refused += o.refused
	s.elections += o.elections
	s.faults += o.faults
	s.truncations += o.truncations
	s.lost += o.lost
	s.shut += o.shut
	s.deletes += o.deletes
	s.restarts += o.restarts
	s.reassigned += o.reassigned
	s.unclean += o.unclean
	s.retained += o.retained
	s.topics += o.topics
}

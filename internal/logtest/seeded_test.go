//go:build seeded

package logtest

import (
	"testing"
	"time"

	"github.com/keeplog/keeplog/internal/invariant"
)

func firstOf(failures []string) string {
	if len(failures) == 0 {
		return ""
	}
	return failures[0]
}

func huntCrash(t testing.TB, b budget) (string, int) {
	x := newExplorer(1, b)
	x.stopAt, x.deepOf = 1, 40
	jobs, _ := crashJobs(1)
	written := writtenJobs(1)
	sum := explore(t, x, 0, func(i int) workload {
		if i%2 == 0 && i/2 < len(scripts) {
			return written(i / 2)
		}
		return jobs[i/2%len(jobs)]
	})
	return firstOf(sum.failures), sum.states
}

func huntErrors(t testing.TB, b budget) (string, int) {
	x := &breaker{seed: 1, budget: b, kinds: map[string]bool{}, most: 1}
	x.run(t)
	return firstOf(x.failures), int(x.points.Load())
}

func huntRot(t testing.TB, b budget) (string, int) {
	x := newRotter(t, 1, b)
	x.most = 1
	x.run()
	return firstOf(x.failures), int(x.at.Load())
}

// TestSeededBugs plants one bug after the other and requires that a harness finds it.
func TestSeededBugs(t *testing.T) {
	bugs := []string{
		invariant.AckBeforeFsync, invariant.IndexSizeTrusted, invariant.DirectoryNotSynced, invariant.EndBeforeFsync,
		invariant.WindowNotRefilled, invariant.MarkAhead, invariant.TornTailKept, invariant.LogStartBeforeDurable,
	}
	for _, bug := range bugs {
		t.Run(bug, func(t *testing.T) {
			invariant.Plant(bug)
			defer invariant.Plant("")
			began := time.Now()
			for _, harness := range []func(testing.TB, budget) (string, int){huntCrash, huntErrors, huntRot} {
				if found, states := harness(t, budget{end: time.Now().Add(15 * time.Second)}); found != "" {
					t.Logf("found in %v, after %d states: %s", time.Since(began).Round(time.Millisecond), states, found)
					return
				}
			}
			t.Errorf("no harness finds it")
		})
	}
}

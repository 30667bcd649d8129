//go:build seeded

package controller

import (
	"testing"
	"time"

	"github.com/keeplog/keeplog/internal/invariant"
)

// found is what a run that has found something ends with.
type found string

// finds says what the model finds wrong in the life of one seed; empty when nothing.
func finds(t *testing.T, seed uint64) (what string) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case found:
			what = string(r)
		default:
			panic(r)
		}
	}()
	c := newCluster(t, seed)
	c.failed = func(s string) { panic(found(s)) }
	c.live(250)
	return ""
}

// TestSeededDecisions plants one bug of the decisions after the other; the model must find each.
func TestSeededDecisions(t *testing.T) {
	for _, bug := range []string{
		invariant.StaleInSync, invariant.OldIncarnation, invariant.FencedJoins, invariant.OldEpochResumed, invariant.RestartEmptiesIt,
		invariant.LostStays, invariant.BehindEligible, invariant.DropsTooEarly,
	} {
		t.Run(bug, func(t *testing.T) {
			invariant.Plant(bug)
			defer invariant.Plant("")
			until := time.Now().Add(30 * time.Second)
			for seed := uint64(1); time.Now().Before(until); seed++ {
				if what := finds(t, seed); what != "" {
					t.Logf("found with seed %d: %s", seed, what)
					return
				}
			}
			t.Error("not found")
		})
	}
}

// TestSeededPause plants the bug that a pause is taken for the silence of everybody.
func TestSeededPause(t *testing.T) {
	invariant.Plant(invariant.PauseFencesAll)
	defer invariant.Plant("")
	if fencedAfterPause(t, 10*time.Second) == 0 {
		t.Error("not found")
	}
}

//go:build seeded

package isr

import (
	"testing"
	"time"

	"github.com/keeplog/keeplog/internal/invariant"
)

// TestSeededReplication plants one bug of replication or the controller after the other; the simulation must find each.
func TestSeededReplication(t *testing.T) {
	for _, bug := range []string{
		invariant.JoinBelowEpochStart, invariant.PendingNotCounted, invariant.WrittenReported, invariant.TruncateToWatermark,
		invariant.EarlyWatermark,
		invariant.OldEpochResumed, invariant.RestartEmptiesIt, invariant.LostStays, invariant.BehindEligible,
		invariant.DropsTooEarly, invariant.StaleInSync, invariant.OldIncarnation, invariant.FencedJoins, invariant.PauseFencesAll,
		invariant.LeaderDropped,
	} {
		t.Run(bug, func(t *testing.T) {
			invariant.Plant(bug)
			defer invariant.Plant("")
			until := time.Now().Add(30 * time.Second)
			for seed := uint64(1); time.Now().Before(until); seed++ {
				if _, err := simulate(t, seed, false); err != nil {
					t.Logf("found with seed %d: %v", seed, err)
					return
				}
			}
			t.Error("not found")
		})
	}
}

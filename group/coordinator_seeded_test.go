//go:build seeded

package group

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keeplog/keeplog/internal/invariant"
)

// TestSeededCoordinator plants one bug of the coordinator or of classic groups after the other; the crowd must find each.
func TestSeededCoordinator(t *testing.T) {
	for _, bug := range []string{invariant.AnsweredEarly, invariant.AssignedTwice, invariant.OldIDServed} {
		t.Run(bug, func(t *testing.T) {
			invariant.Plant(bug)
			defer invariant.Plant("")
			until := time.Now().Add(30 * time.Second)
			for seed := uint64(1); time.Now().Before(until); seed++ {
				var found []string
				synctest.Test(t, func(t *testing.T) { found = runCrowd(t, seed).found })
				if len(found) > 0 {
					t.Logf("found with seed %d: %s", seed, found[0])
					return
				}
			}
			t.Error("not found")
		})
	}
}

//go:build seeded

package quorum

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keeplog/keeplog/internal/invariant"
)

// TestSeededOffsets plants one bug of the offsets after the other; the run through faults must find each.
func TestSeededOffsets(t *testing.T) {
	for _, bug := range []string{invariant.CommitBeforeQuorum, invariant.OldShardAccepted} {
		t.Run(bug, func(t *testing.T) {
			invariant.Plant(bug)
			defer invariant.Plant("")
			until := time.Now().Add(30 * time.Second)
			for seed := uint64(1); time.Now().Before(until); seed++ {
				var what *string
				synctest.Test(t, func(t *testing.T) { what = offsetsThroughFaults(t, seed, 12).said.Load() })
				if what != nil {
					t.Logf("found with seed %d: %s", seed, *what)
					return
				}
			}
			t.Error("not found")
		})
	}
}

//go:build seeded

package group

import (
	"fmt"
	"testing"
	"time"

	"github.com/keeplog/keeplog/internal/invariant"
)

// churnFinds is what the churn finds in one life, a panic among it.
func churnFinds(t *testing.T, seed uint64) (what string) {
	defer func() {
		if r := recover(); r != nil {
			what = fmt.Sprint(r)
		}
	}()
	return newChurn(t, seed).live()
}

// TestSeededConsumers plants one bug of consumer groups after the other; the churn must find each.
func TestSeededConsumers(t *testing.T) {
	for _, bug := range []string{invariant.TwoOwners, invariant.RevokedOnTrust, invariant.EpochReused, invariant.ForgetRevoking} {
		t.Run(bug, func(t *testing.T) {
			invariant.Plant(bug)
			defer invariant.Plant("")
			until := time.Now().Add(30 * time.Second)
			for seed := uint64(1); time.Now().Before(until); seed++ {
				if found := churnFinds(t, seed); found != "" {
					t.Logf("found with seed %d: %s", seed, found)
					return
				}
			}
			t.Error("not found")
		})
	}
}

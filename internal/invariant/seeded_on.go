//go:build seeded

package invariant

import (
	"os"
	"sync/atomic"
)

var planted atomic.Pointer[string]

// Plant turns one bug on, and the others off; "" turns all off.
func Plant(name string) { planted.Store(&name) }

// Seeded says whether a planted bug is on: the one of Plant, else the one that the environment names in KEEPLOG_SEEDED.
func Seeded(name string) bool {
	if p := planted.Load(); p != nil {
		return *p == name
	}
	return os.Getenv("KEEPLOG_SEEDED") == name
}

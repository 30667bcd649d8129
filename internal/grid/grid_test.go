package grid

import (
	"testing"
	"testing/synctest"
	"time"
)

// What waits from different moments on is woken at the same one, never later than it asked for; for less than a step it may wait as long as that.
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for off := time.Duration(0); off < Step; off += 7 * time.Millisecond {
			time.Sleep(7*time.Millisecond + 3*time.Microsecond)
			for _, d := range []time.Duration{0, 1, time.Millisecond, Step - 1, Step, Step + 1, 2 * Step, 500 * time.Millisecond, 10 * time.Second} {
				for _, ahead := range []time.Duration{0, 15 * time.Millisecond} {
					got := Until(d, ahead)
					if at := time.Now().Add(got + ahead).UnixNano(); at%int64(Step) != 0 && (d >= Step || got != d) {
						t.Fatalf("%v from now is no moment", got)
					}
					if got < 0 || got > d || got < d-Step || got == 0 && d > 0 {
						t.Fatalf("Until(%v, %v) is %v", d, ahead, got)
					}
				}
			}
		}
	})
}

// Package grid lets what a process does at intervals fall on the same moments. To wake a processor that is idle costs more than most of what
// is done then, so ten things that are due together cost little more than one.
package grid

import "time"

// Step is the distance of two moments: all are multiples of it, by the wall clock.
const Step = 125 * time.Millisecond

// Until is the time to the last moment that is not later than d from now, or d where there is none: with a Step or more there is always one. What
// is to be there before the others at a moment comes so much ahead of it. A clock that is set moves the moments, but lets nothing wait longer.
func Until(d, ahead time.Duration) time.Duration {
	now := time.Now().Round(0).Add(ahead)
	then := now.Add(d).Truncate(Step)
	if !then.After(now) {
		return d
	}
	return then.Sub(now)
}

package quorum

import (
	"testing"
	"time"
)

// A process that was stopped for ten seconds has no disk that hangs; one whose calls take as long while it runs has.
func TestWatchdogAfterAPause(t *testing.T) {
	now := time.Now()
	r := newRunning(now)
	began := now // of a call
	tick := func(d time.Duration) time.Duration {
		now = now.Add(d)
		return r.bound(now, now.Sub(began))
	}
	for range 3 {
		if got := tick(time.Second); got != now.Sub(began) {
			t.Fatalf("%v counts as %v", now.Sub(began), got)
		}
	}
	if got := tick(10 * time.Second); got != 0 {
		t.Errorf("a call under way during a pause counts as %v", got)
	}
	for i := range 5 {
		if got, want := tick(time.Second), time.Duration(i+1)*time.Second; got != want {
			t.Errorf("%v after the pause a call that still hangs counts as %v", want, got)
		}
	}
	if got := tick(time.Second); got < hang {
		t.Errorf("a call that hangs on after the pause counts as %v", got)
	}
}

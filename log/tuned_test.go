package log

import (
	"testing"
	"time"

	"github.com/keeplog/keeplog/vfs"
)

// The time after which producers are forgotten changes while the directory is open.
func TestProducerExpirationChanges(t *testing.T) {
	r := newRig(t, vfs.NewMem())
	l := r.log(0)
	_, _, err := r.write(l, sent{id: 7, count: 1})
	must(t, err)
	must(t, r.step.Run())
	later := func(d time.Duration) int {
		r.now = r.now.Add(d)
		r.dir.Tick(r.now)
		return len(l.Producers())
	}
	if n := later(time.Hour); n != 1 {
		t.Fatalf("%d producers are known after an hour, of a day", n)
	}
	r.dir.SetProducerExpiration(3 * time.Hour)
	if n := later(time.Hour); n != 1 {
		t.Fatalf("%d producers are known after two hours, of three", n)
	}
	if n := later(2 * time.Hour); n != 0 {
		t.Fatalf("%d producers are known after four hours, of three", n)
	}
	must(t, r.dir.Close())
}

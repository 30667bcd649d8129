package logtest

import (
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestMain trades memory for speed, within a bound: every crash state is garbage at once, but the collector lets pooled
// buffers live for two rounds, so that without one the heap would double and double again.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(1 << 30)
	if os.Getenv("KEEPLOG_LOG") != "" { // for one failing workload
		quiet = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	os.Exit(m.Run())
}

// budget is how long a harness goes on: for a time, or up to a count of states.
type budget struct {
	count int
	end   time.Time
}

// newBudget reads the environment; standard is the time of a plain run.
func newBudget(standard time.Duration) budget {
	if n, err := strconv.Atoi(os.Getenv("KEEPLOG_HARNESS_COUNT")); err == nil && n > 0 {
		return budget{count: n}
	}
	if n, err := strconv.Atoi(os.Getenv("KEEPLOG_HARNESS_SECONDS")); err == nil && n > 0 {
		return budget{end: time.Now().Add(time.Duration(n) * time.Second)}
	}
	return budget{end: time.Now().Add(standard)}
}

// long says that the run was asked for, and is not a plain go test.
func long() bool {
	return os.Getenv("KEEPLOG_HARNESS_COUNT") != "" || os.Getenv("KEEPLOG_HARNESS_SECONDS") != ""
}

func (b budget) spent(states int) bool {
	if b.count > 0 {
		return states >= b.count
	}
	return !time.Now().Before(b.end)
}

// seedOf is KEEPLOG_SEED, or a new one; it is printed.
func seedOf(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("KEEPLOG_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Logf("KEEPLOG_SEED=%d", seed)
	return seed
}

// withoutDigits is an error's text as a kind of errors.
func withoutDigits(err error) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, err.Error())
}

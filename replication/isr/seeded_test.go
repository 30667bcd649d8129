//go:build seeded

package isr

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/keeplog/keeplog/internal/invariant"
)

// Bugs of replication that are planted one at a time turn the tests red that are there for them. The simulation has its own.
func TestPlantedBugsAreFoundByTheirTests(t *testing.T) {
	for bug, tests := range map[string]string{
		invariant.JoinBelowEpochStart: "TestLeaderScript",
		invariant.PendingNotCounted:   "TestLeaderScript",
		invariant.StaleAnswerCounts:   "TestLeaderScript",
		invariant.DivergingCounts:     "TestCatalogue30",
		invariant.CutBelowWatermark:   "TestCatalogue29|TestFollowerScript",
		invariant.TruncateToWatermark: "TestFollowerScript",
		invariant.WrittenReported:     "TestFollowerScript",
		invariant.EarlyWatermark:      "TestFollowerScript",
		invariant.WatermarkTwice:      "TestCatalogue34",
		invariant.RetentionPast:       "TestCatalogue35",
		invariant.RestartedRetention:  "TestCatalogue35",
		invariant.WatermarkLeft:       "TestCatalogue35",
		invariant.StartNotAwaited:     "TestLogStart",
	} {
		t.Run(bug, func(t *testing.T) {
			if out, err := planted(t, "none", tests); err != nil {
				t.Fatalf("without a bug: %v\n%s", err, out)
			}
			if out, err := planted(t, bug, tests); err == nil || !strings.Contains(out, "FAIL") {
				t.Errorf("%s did not find it: %v\n%s", tests, err, out)
			}
		})
	}
}

// planted runs tests of this binary with a bug.
func planted(t *testing.T, bug, tests string) (string, error) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^("+tests+")", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), "KEEPLOG_SEEDED="+bug)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

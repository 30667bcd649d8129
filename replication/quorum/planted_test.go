//go:build seeded

package quorum

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/keeplog/keeplog/internal/invariant"
)

// Bugs of the metadata log that are planted one at a time turn the tests red that are there for them.
func TestPlantedBugsAreFoundByTheirTests(t *testing.T) {
	for bug, tests := range map[string]string{
		invariant.FastPath:      "TestHeartbeatOfNextTerm",
		invariant.WipedBelieved: "TestWipedVoter",
		invariant.NotVerified:   "TestVerifySoon",
		invariant.LaneRepeats:   "TestBubble",
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
	cmd := exec.Command(os.Args[0], "-test.run", "^("+tests+")$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), "KEEPLOG_SEEDED="+bug, "KEEPLOG_HARNESS_SECONDS=3")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

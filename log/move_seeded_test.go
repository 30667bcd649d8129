//go:build seeded

package log

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/keeplog/keeplog/internal/invariant"
)

// Bugs of moves that are planted one at a time turn the tests red that are there for them.
func TestPlantedBugsOfMoves(t *testing.T) {
	run := func(bug, tests string) (string, error) {
		cmd := exec.Command(os.Args[0], "-test.run", tests, "-test.timeout=120s")
		cmd.Env = append(os.Environ(), "KEEPLOG_SEEDED="+bug, "KEEPLOG_CRASH=all")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for bug, tests := range map[string]string{
		invariant.MoveNotDurable:     "^TestMoveIsDurableAtOnce$",
		invariant.OutcomeNotOutdone:  "^TestMoveFails$",
		invariant.LineageIgnored:     "^TestLogsThatBeganApart$",
		invariant.OneLineageForTwo:   "^TestLogsThatWentOnApart$",
		invariant.CutNotFollowed:     "^TestMoveFollows$",
		invariant.ProducersNotHanded: "^TestMoveTakesProducersAlong$",
		invariant.LogNotHeld:         "^TestNothingComesBetweenTheLastFlushAndTheEnd$",
	} {
		t.Run(bug, func(t *testing.T) {
			if out, err := run("none", tests); err != nil {
				t.Fatalf("without a bug: %v\n%s", err, out)
			}
			if out, err := run(bug, tests); err == nil || !strings.Contains(out, "FAIL") {
				t.Errorf("%s did not find it: %v\n%s", tests, err, out)
			}
		})
	}
}

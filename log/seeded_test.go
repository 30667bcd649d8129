//go:build seeded

package log

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/keeplog/keeplog/internal/invariant"
)

// Bugs that only show beside a writer turn the test red that races with one.
func TestPlantedBugsOfReading(t *testing.T) {
	for bug, test := range map[string]string{invariant.SizeTwice: "TestCatalogue34_ReadsEndAtTheirBound"} {
		t.Run(bug, func(t *testing.T) {
			run := func(bug string) (string, error) {
				cmd := exec.Command(os.Args[0], "-test.run", "^"+test+"$", "-test.timeout=60s")
				cmd.Env = append(os.Environ(), "KEEPLOG_SEEDED="+bug)
				out, err := cmd.CombinedOutput()
				return string(out), err
			}
			if out, err := run("none"); err != nil {
				t.Fatalf("without a bug: %v\n%s", err, out)
			}
			for range 40 { // it is a race
				if out, err := run(bug); err != nil && strings.Contains(out, "FAIL") {
					return
				}
			}
			t.Errorf("%s did not find it", test)
		})
	}
}

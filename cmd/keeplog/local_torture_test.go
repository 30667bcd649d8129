package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keeplog/keeplog/internal/torture"
)

// A verdict with a violation of any kind ends with exit code 5, and its last line holds the sums; one without ends with 0.
func TestVerdictExit(t *testing.T) {
	kinds := append([]torture.Kind{""}, torture.Kinds()...)
	for _, k := range kinds {
		v := torture.Verdict{
			Seed: 7, Nodes: 3, Acknowledged: 5, Counts: map[torture.Kind]int{}, Told: map[torture.Kind][]string{},
			WithoutLeader: []time.Duration{time.Second},
		}
		if k != "" {
			v.Counts[k], v.Told[k] = 1, []string{"what it was"}
		}
		var out, said strings.Builder
		a := &app{streams: streams{out: &out, err: &said, getenv: func(string) string { return "" }}}
		a.flags.output = "text"
		err := a.showVerdict(v, &victim{cluster: &localCluster{app: a}, temporary: true})
		var ce *cliError
		switch {
		case k == "" && err != nil:
			t.Errorf("a clean run: %v", err)
		case k != "" && (!errors.As(err, &ce) || ce.exit != exitDamaged):
			t.Errorf("%s: %v", k, err)
		case k != "" && !strings.Contains(said.String(), "what it was"):
			t.Errorf("%s is not told: %s", k, said.String())
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		last := lines[len(lines)-1]
		for _, want := range []string{
			"acknowledged 5", "lost ", "duplicated ", "reordered ", "offset reused ", "replicas differ ", "went back ", string(k),
			"without leader p50 1.0s p99 1.0s max 1.0s",
		} {
			if !strings.Contains(last, want) {
				t.Errorf("%s: the last line has no %q: %s", k, want, last)
			}
		}
	}
}

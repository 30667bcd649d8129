package dump

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keeplog/keeplog/vfs"
)

// copyGolden copies a golden directory to where it may be changed.
func copyGolden(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(formats, name))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// damages checks dir and returns the damage in it, one line each, without the name of dir.
func damages(t *testing.T, dir string) string {
	t.Helper()
	var found problems
	if _, err := Run(t.Context(), Options{FS: vfs.OS(), Verify: true, Summary: true}, &found, dir); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, p := range found.all {
		if p.Severity != Note {
			fmt.Fprintf(&b, "%s: %s (%d..%d)\n", strings.TrimPrefix(p.File, dir+"/"), p.Text, p.First, p.Last)
		}
	}
	return b.String()
}

// A partition directory that is gone as a whole is damage, whatever still names it: its mark, a line of Kafka's checkpoint where there are no
// marks, and after a clean stop the metadata. Kafka's lines of a partition on its way out are none.
func TestCheckMissingPartitions(t *testing.T) {
	const marked = "segments-0: the partition's directory is missing; keeplog-marks promises records up to offset 63 in it (0..63)\n"
	remove := func(names ...string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			for _, n := range names {
				if err := os.RemoveAll(filepath.Join(dir, n)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, tc := range []struct {
		name, golden, want string
		change             func(*testing.T, string)
	}{
		{"nothing", "keeplog-1", "", remove()},
		{"a directory", "keeplog-1", marked, remove("segments-0")},
		{"and the metadata", "keeplog-1", strings.Replace(marked, "segments-0", "TOPICID-0", 1), remove("segments-0", "keeplog-raft.db")},
		{"and the marks", "keeplog-1", "segments-0: the partition's directory is missing; recovery-point-offset-checkpoint promises records up to offset 63 in it (-1..63)\n", remove("segments-0", "keeplog-marks")},
		{"and the checkpoint", "keeplog-1", "segments-0: the partition's directory is missing; the metadata says that it is here (-1..-1)\n", remove("segments-0", "keeplog-marks", "recovery-point-offset-checkpoint")},
		{"of a Kafka that runs", "kafka-4.4-running", "append-time-0: the partition's directory is missing; recovery-point-offset-checkpoint names it (-1..-1)\n" +
			"codecs-0: the partition's directory is missing; recovery-point-offset-checkpoint names it (-1..-1)\n", func(t *testing.T, dir string) {
			if err := os.Mkdir(filepath.Join(dir, "plain-0.0123456789abcdef0123456789abcdef-delete"), 0o755); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := copyGolden(t, tc.golden)
			id, err := os.ReadFile(filepath.Join(dir, "segments-0", "partition.metadata"))
			if err != nil {
				t.Fatal(err)
			}
			_, topicID, _ := strings.Cut(strings.TrimSpace(string(id)), "topic_id: ")
			tc.change(t, dir)
			if got, want := damages(t, dir), strings.Replace(tc.want, "TOPICID", topicID, 1); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

// The entries of an index behind the end of a segment that was cut are one problem.
func TestCheckCutSegment(t *testing.T) {
	dir := copyGolden(t, "keeplog-1")
	if err := os.Truncate(filepath.Join(dir, "segments-0", "00000000000000000016.log"), 0); err != nil {
		t.Fatal(err)
	}
	got := damages(t, dir)
	for _, want := range []string{"16.index: ", "16.timeindex: "} {
		if n := strings.Count(got, want); n != 1 {
			t.Errorf("%d problems of %q in\n%s", n, want, got)
		}
	}
	if !strings.Contains(got, " entries, from entry 0 (offset ") || !strings.Contains(got, ", point past the end of the log at 0 ") {
		t.Errorf("no count in\n%s", got)
	}
}

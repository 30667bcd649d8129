package dump

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keeplog/keeplog/vfs"
)

var update = flag.Bool("update", false, "write the golden outputs anew")

// formats is the directory of the golden directories.
const formats = "../../testdata/format"

// chdir goes to the golden directories, so that paths in outputs are short; it returns where the golden outputs are.
func chdir(t *testing.T) string {
	t.Helper()
	here, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(formats)
	return here
}

// golden compares got with a file of golden outputs.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", filepath.Base(file), diff)
	}
}

// TestGoldenDirectories reads what real servers wrote: nothing is damaged, and every byte of the output is as it was. Two of them are cut out of
// larger directories: the partitions that were left out are missed, and nothing else.
func TestGoldenDirectories(t *testing.T) {
	outputs := chdir(t)
	ctx := context.Background()
	leftOut := map[string]int{"kafka-4.4-running": 3, "keeplog-1-killed": 4, "keeplog-2-killed": 4}
	for _, dir := range []string{"kafka-4.4", "kafka-4.4-running", "keeplog-1", "keeplog-1-killed", "keeplog-2", "keeplog-2-killed"} {
		t.Run(dir, func(t *testing.T) {
			o := Options{FS: vfs.OS(), Records: true, Verify: true, Raft: true}
			var out bytes.Buffer
			total, err := Run(ctx, o, NewText(&out, TextOptions{Paths: true, Values: true, Total: true}), dir)
			if err != nil || total.Unsupported > 0 || total.Damage != leftOut[dir] {
				t.Errorf("%v, %+v", err, total)
			}
			if n := bytes.Count(out.Bytes(), []byte(": the partition's directory is missing; ")); n < leftOut[dir] {
				t.Errorf("%d directories are missed, want %d", n, leftOut[dir])
			}
			golden(t, filepath.Join(outputs, dir+".txt"), out.Bytes())

			out.Reset()
			if _, err := Run(ctx, o, NewData(&out, DataOptions{Format: JSONL, Values: true}), dir); err != nil {
				t.Error(err)
			}
			golden(t, filepath.Join(outputs, dir+".jsonl"), out.Bytes())

			out.Reset()
			if _, err := Run(ctx, Options{FS: vfs.OS(), Summary: true}, NewText(&out, TextOptions{Paths: true, Summary: true, Total: true}), dir); err != nil {
				t.Error(err)
			}
			golden(t, filepath.Join(outputs, dir+".summary.txt"), out.Bytes())
		})
	}
}

// TestGoldenInternalTopics decodes the records of Kafka's internal topics.
func TestGoldenInternalTopics(t *testing.T) {
	outputs := chdir(t)
	for decode, dir := range map[string]string{"offsets": "kafka-4.4/__consumer_offsets-0", "txn": "kafka-4.4/__transaction_state-1"} {
		var text, data bytes.Buffer
		o := Options{FS: vfs.OS(), Records: true, Decode: decode}
		total, err := Run(context.Background(), o, NewText(&text, TextOptions{Paths: true}), dir)
		if err != nil || total.Damage+total.Notes > 0 {
			t.Errorf("%s: %v, %+v", decode, err, total)
		}
		if _, err := Run(context.Background(), o, NewData(&data, DataOptions{Format: JSON}), dir); err != nil {
			t.Error(err)
		}
		golden(t, filepath.Join(outputs, decode+".txt"), text.Bytes())
		golden(t, filepath.Join(outputs, decode+".json"), data.Bytes())
	}
}

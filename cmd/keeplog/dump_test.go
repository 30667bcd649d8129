package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// offline runs a command that needs no broker; it returns the exit code, stdout and stderr.
func offline(t *testing.T, args ...string) (int, string, string) {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(args, streams{in: strings.NewReader(""), out: &out, err: &errs, getenv: func(string) string { return "" }})
	return code, out.String(), errs.String()
}

// copyDir copies a golden partition to where it may be changed.
func copyDir(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), filepath.Base(dir))
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

const goldenKafka = "../../testdata/format/kafka-4.4"

// flipByte changes one byte of a file.
func flipByte(t *testing.T, path string, at int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 0x10
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestDumpFile(t *testing.T) {
	code, out, errs := offline(t, "dump", goldenKafka+"/plain-0/00000000000000000000.log", "--records")
	want := `batch   pos 0      offsets 0..4  n 5  none  epoch 0  crc ok
  0  2026-01-01T00:00:00.000Z  key "a"  value 1 B
  1  2026-01-01T00:00:00.001Z  key "b"  value 1 B
  2  2026-01-01T00:00:00.002Z  key null  value 6 B
  3  2026-01-01T00:00:00.003Z  key "c"  value null
  4  2026-01-01T00:00:00.004Z  key ""  value 0 B
batch   pos 107    offsets 5..5  n 1  none  epoch 0  crc ok
  5  2026-01-01T00:00:01.000Z  key "h"  value 4 B  headers 3
`
	if diff := cmp.Diff(want, out); code != exitDone || diff != "" || errs != "" {
		t.Errorf("exit %d, stderr %q:\n%s", code, errs, diff)
	}
}

// TestDumpDamage prints what ux asks for: the bad batch, where the good ones go on, and what can be done.
func TestDumpDamage(t *testing.T) {
	dir := copyDir(t, goldenKafka)
	log := filepath.Join(dir, "segments-0", "00000000000000000016.log")
	flipByte(t, log, 381+100)
	code, out, errs := offline(t, "dump", log)
	for _, want := range []string{
		"batch   pos 381    offsets 18..19  n 2  none  epoch 0  producer 2/0 seq 18..19  crc BAD (stored ",
		"\n1 bad batch at pos 381..761; last good offset 17, next good batch at pos 762 (offset 20).\n",
		"\nbelow the stable mark: `keeplog check --repair` would put an empty batch for offsets 18..19 in its place and keep the bytes in 381.bad\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if code != exitDamaged || !strings.Contains(errs, "damaged") {
		t.Errorf("exit %d, stderr %q", code, errs)
	}
}

func TestDumpFormatsAndBounds(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-f", `%t/%p@%o %k=%v\n`}, "idempotent/0@0 0=0\nidempotent/0@1 0=0b\n"},
		{[]string{"-f", `%o `, "--from", "14"}, "14 15 "},
		{[]string{"-f", `%o `, "--from", "3", "--to", "5"}, "3 4 5 "},
		{[]string{"-f", `%o `, "--from", "@2026-01-01T00:00:12Z"}, "12 13 14 15 "},
		{[]string{"-f", `%o `, "--to", "@2026-01-01T00:00:01Z"}, "0 1 2 "},
	} {
		code, out, errs := offline(t, append([]string{"dump", goldenKafka + "/idempotent-0"}, c.args...)...)
		if code != exitDone || !strings.HasPrefix(out, c.want) || (len(c.args) > 2 && out != c.want) {
			t.Errorf("%q: exit %d, %q, stderr %q; want %q", c.args, code, out, errs, c.want)
		}
	}
}

// TestDumpShapes: every line of -o jsonl is an object with a kind, -o json is one document of the same.
func TestDumpShapes(t *testing.T) {
	_, lines, _ := offline(t, "dump", goldenKafka, "--records", "--values", "-o", "jsonl")
	var all []any
	for _, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil || v["kind"] == nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, v)
	}
	_, whole, _ := offline(t, "dump", goldenKafka, "--records", "--values", "-o", "json")
	var document []any
	if err := json.Unmarshal([]byte(whole), &document); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all, document); diff != "" {
		t.Error(diff)
	}
	if first := document[0].(map[string]any); first["kind"] != "dump" || first["version"] != 1.0 {
		t.Errorf("begins with %v", first)
	}
}

func TestDumpUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"dump"}, exitUsage},
		{[]string{"dump", goldenKafka, "--decode", "x"}, exitUsage},
		{[]string{"dump", goldenKafka, "--from", "yesterday"}, exitUsage},
		{[]string{"dump", goldenKafka, "-f", "%q"}, exitUsage},
		{[]string{"dump", "no-such-file"}, exitFailed},
		{[]string{"check", t.TempDir()}, exitFailed},
		{[]string{"check", goldenKafka}, exitDone},
	} {
		if code, _, errs := offline(t, c.args...); code != c.code {
			t.Errorf("%q: exit %d, want %d: %s", c.args, code, c.code, errs)
		}
	}
}

// TestCheckRepair finds damage, asks before it changes anything, mends it, and finds nothing any more.
func TestCheckRepair(t *testing.T) {
	dir := copyDir(t, goldenKafka)
	log := filepath.Join(dir, "segments-0", "00000000000000000016.log")
	flipByte(t, log, 381+100)
	flipByte(t, filepath.Join(dir, "segments-0", "00000000000000000032.timeindex"), 5)
	code, out, _ := offline(t, "check", dir)
	if code != exitDamaged || strings.Count(out, "\n") != 3 || !strings.Contains(out, log+": 1 bad batch at pos 381..761") {
		t.Errorf("check: exit %d:\n%s", code, out)
	}
	if code, _, errs := offline(t, "check", dir, "--repair"); code != exitUsage || !strings.Contains(errs, "-y") {
		t.Errorf("repair without a terminal: exit %d: %s", code, errs)
	}
	if code, _, errs := offline(t, "check", dir, "--repair", "-y"); code != exitDone || !strings.Contains(errs, "repaired, 0 damaged places left") {
		t.Errorf("repair: exit %d: %s", code, errs)
	}
	if _, err := os.Stat(filepath.Join(dir, "segments-0", "381.bad")); err != nil {
		t.Error(err)
	}
	if code, out, _ := offline(t, "check", dir); code != exitDone || !strings.HasSuffix(out, ": no damage, 1 note\n") || strings.Count(out, "\n") != 1 {
		t.Errorf("check after the repair: exit %d:\n%s", code, out)
	}
}

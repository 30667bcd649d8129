package dump

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	plog "github.com/keeplog/keeplog/log"
)

// A copy that is under way to a data directory, or has taken over and does not have its name yet, is no missing partition, and its files
// are checked like those of a partition.
func TestCheckCopies(t *testing.T) {
	const future = "segments-0.0123456789abcdef0123456789abcdef-future"
	dir := copyGolden(t, "keeplog-1")
	if err := os.Rename(filepath.Join(dir, "segments-0"), filepath.Join(dir, future)); err != nil {
		t.Fatal(err)
	}
	if got := damages(t, dir); got != "" {
		t.Fatal("one that has taken over:", got)
	}
	id, err := os.ReadFile(filepath.Join(dir, future, "partition.metadata"))
	if err != nil {
		t.Fatal(err)
	}
	topic, err := plog.DecodePartition(id)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "keeplog-marks")
	mark := func(change func(m *plog.Mark)) {
		t.Helper()
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		marks, err := plog.DecodeMarks(b)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range marks.Live() {
			if m := s.Mark; m.TopicID == topic {
				change(&m)
				half := m.Encode()
				copy(b[s.MarkAt():], half[:])
			}
		}
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mark(func(m *plog.Mark) { m.Future, m.Moves = true, 3 })
	if got := damages(t, dir); got != "" {
		t.Fatal("one that is under way:", got)
	}
	logs, err := filepath.Glob(filepath.Join(dir, future, "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	whole, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	whole[len(whole)/2] ^= 1
	if err := os.WriteFile(logs[0], whole, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := damages(t, dir); !strings.Contains(got, filepath.Join(future, filepath.Base(logs[0]))) {
		t.Fatal("a batch that does not check:", got)
	}
	if err := os.RemoveAll(filepath.Join(dir, future)); err != nil {
		t.Fatal(err)
	}
	if got := damages(t, dir); got != "" {
		t.Fatal("only the mark of a copy:", got)
	}
	mark(func(m *plog.Mark) { m.Future, m.Leaving = false, true })
	if got := damages(t, dir); got != "" {
		t.Fatal("only the mark of what has moved away:", got)
	}
	mark(func(m *plog.Mark) { m.Leaving = false })
	if got := damages(t, dir); !strings.Contains(got, "segments") {
		t.Fatal("only the mark of a replica:", got)
	}
}

package log

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"testing"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// loadGolden copies a directory of testdata/format into a file system in memory, as /data.
func loadGolden(t *testing.T, name string) *vfs.CrashFS {
	t.Helper()
	mem := vfs.NewCrash()
	root := filepath.Join("..", "testdata", "format", name)
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		must(t, err)
		rel, err := filepath.Rel(root, p)
		must(t, err)
		to := path.Join("/data", filepath.ToSlash(rel))
		if e.IsDir() {
			return mem.MkdirAll(to, 0o755)
		}
		b, err := os.ReadFile(p)
		must(t, err)
		f, err := mem.OpenFile(to, os.O_RDWR|os.O_CREATE, 0o644)
		must(t, err)
		if len(b) > 0 {
			_, err = f.WriteAt(b, 0)
			must(t, err)
		}
		must(t, f.Sync())
		must(t, f.Close())
		return mem.SyncDir(path.Dir(to))
	})
	must(t, err)
	return mem
}

// whole reads what a partition's log files hold, batch by batch.
func whole(t *testing.T, fsys vfs.FS, dir string) (batches []record.Batch) {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		if path.Ext(e.Name()) != ".log" {
			continue
		}
		b, err := readFile(fsys, path.Join(dir, e.Name()))
		must(t, err)
		for batch := range batchesOf(b) {
			batches = append(batches, batch)
		}
	}
	return batches
}

func TestGoldenDirectoriesOpen(t *testing.T) {
	for _, name := range []string{"kafka-4.4", "kafka-4.4-running", "keeplog-1", "keeplog-1-killed", "keeplog-2", "keeplog-2-killed"} {
		for _, keepMarker := range []bool{true, false} {
			for _, keepMarks := range []bool{true, false} {
				mem := loadGolden(t, name)
				if !keepMarker {
					must(t, removeFile(mem, "/data/"+CleanFile))
				}
				if !keepMarks {
					must(t, removeFile(mem, "/data/"+MarksFile))
				}
				checkGolden(t, mem, name)
			}
		}
	}
}

func checkGolden(t *testing.T, mem *vfs.CrashFS, name string) {
	t.Helper()
	r := &rig{t: t, fs: mem, codecs: record.NewCodecs(), settings: Settings{Reserve: -1}, config: testConfig(), model: map[string]*model{}}
	r.open()
	found := r.dir.Found()
	if len(found) < 3 {
		t.Fatalf("%s: %d partitions", name, len(found))
	}
	for _, f := range found {
		want := whole(t, mem, f.Path)
		l, err := r.dir.OpenLog(f.Identity, r.config)
		if err != nil && errors.Is(err, ErrTopicID) && f.TopicID == ([16]byte{}) {
			continue // Kafka's metadata log has no such file
		}
		must(t, err)
		if len(want) > 0 && l.WrittenEnd() != want[len(want)-1].NextOffset() {
			t.Fatalf("%s: %s ends at %d, want %d\n%s", name, f.Path, l.WrittenEnd(), want[len(want)-1].NextOffset(), r.logs.String())
		}
		if m, lost := l.MissingData(); lost {
			t.Fatalf("%s: %s: %+v\n%s", name, f.Path, m, r.logs.String())
		}
		must(t, l.Audit())
		got := 0
		for range batchesOf(r.readAll(l, l.StartOffset())) {
			got++
		}
		expect := 0
		for _, b := range want {
			if b.LastOffset() >= l.StartOffset() {
				expect++
			}
		}
		if got != expect {
			t.Fatalf("%s: %s has %d batches, want %d", name, f.Path, got, expect)
		}
		end := l.WrittenEnd()
		if a := r.add(l, sent{}); a.Base != end {
			t.Fatalf("%s: %s: appended at %d, want %d", name, f.Path, a.Base, end)
		}
	}
	must(t, r.dir.Close())
}

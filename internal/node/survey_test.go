package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/replication/quorum"
	"github.com/keeplog/keeplog/vfs"
)

// tree is every file below dir with its content.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		files[p] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A directory that this node is not for is refused, and not one byte in it changes.
func TestRefusedDirectoryIsNotTouched(t *testing.T) {
	const meta = "version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\ndirectory.id=AQAAAAAAAAAAAAAAAAAAAA\nnode.id="
	for _, tc := range []struct {
		name, meta string
		want       error
	}{
		{"another node's", meta + "7\n", ErrForeign},
		{"Apache Kafka's", meta + "1\n", quorum.ErrMissing},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range map[string]string{
				"meta.properties": tc.meta, ".kafka_cleanshutdown": `{"version":0,"brokerEpoch":3}`, "letter.tmp": "x", "orders-0/00000000000000000000.log": "",
			} {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			before := tree(t, dir)
			if _, err := start(t, dir); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
			if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A data directory that is away, as when its disk is not mounted, is not begun anew without being told to.
func TestDirectoryThatIsAway(t *testing.T) {
	base := t.TempDir()
	one, two := filepath.Join(base, "one"), filepath.Join(base, "two")
	open := func(set ...string) (*Node, error) { return startOn(t, vfs.OS(), one+","+two, set...) }
	n, err := open()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		answers, err := n.control.CreateTopics(t.Context(), controller.CreateTopicsRequest{
			Topics: []controller.CreateTopic{{Name: name, Partitions: 1, Replicas: 1}},
		})
		if err != nil || answers[0].Err != nil {
			t.Fatal(err, answers)
		}
	}
	id := n.dirs[1].id.String()
	if err := n.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(two, two+".away"); err != nil {
		t.Fatal(err)
	}
	_, err = open()
	if !errors.Is(err, ErrDirectories) || !strings.Contains(err.Error(), id) || !strings.Contains(err.Error(), two+" is new") {
		t.Fatalf("error %v", err)
	}
	n, err = open("keeplog.lost.directories=" + id)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	// The disk is back, beside the partition that was begun anew: nobody guesses which of the two is the right one.
	if err := os.RemoveAll(filepath.Join(two)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(two+".away", two); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(one, "b-0"), os.DirFS(filepath.Join(two, "b-0"))); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	if _, err := open(); !errors.Is(err, ErrDirectories) {
		t.Errorf("a partition in two directories: %v", err)
	}
}

package quorum

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/vfs"
)

// TestInspect reads the log of a running node, and of a stopped one.
func TestInspect(t *testing.T) {
	dir := t.TempDir()
	if in, err := Inspect(vfs.OS(), dir); !errors.Is(err, fs.ErrNotExist) || in == nil || len(in.Snapshots) != 0 {
		t.Fatal(in, err)
	}
	n := newNode(t, vfs.OS(), dir, nil).open()
	n.propose(topics(0, 30)...)
	if err := n.q.Snapshot(); err != nil {
		t.Fatal(err)
	}
	n.propose(topics(30, 3)...)
	look := func(running bool) {
		t.Helper()
		in, err := Inspect(vfs.OS(), dir)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		if in.Running != running || in.First != 1 || in.Term == 0 || in.VotedFor != "1" || len(in.Snapshots) != 1 {
			t.Errorf("%+v", in)
		}
		if s := in.Snapshots[0]; s.Err != nil || s.Image.TopicCount() != 30 {
			t.Errorf("%+v", s)
		}
		created, types := 0, map[string]int{}
		for e := range in.Entries() {
			if e.Err != nil {
				t.Errorf("entry %d: %v", e.Index, e.Err)
			}
			types[e.Type]++
			if e.Command == nil {
				continue
			}
			for _, g := range e.Command.Groups {
				for _, rec := range g.Records {
					if _, ok := rec.(metadata.TopicCreated); ok {
						created++
					}
				}
			}
		}
		if created != 33 || types["configuration"] != 1 || types["command"] != 3 {
			t.Errorf("%d topics, %v", created, types)
		}
	}
	look(true)
	n.close()
	look(false)
	// A damaged store leaves the snapshots.
	for _, damage := range []string{"", "short"} {
		if err := os.WriteFile(filepath.Join(dir, storeName), []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}
		in, err := Inspect(vfs.OS(), dir)
		if !errors.Is(err, ErrDamaged) || len(in.Snapshots) != 1 || in.Snapshots[0].Image == nil {
			t.Errorf("%q: %+v, %v", damage, in, err)
		}
		for e := range in.Entries() {
			t.Errorf("%q: entry %d", damage, e.Index)
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	}
}

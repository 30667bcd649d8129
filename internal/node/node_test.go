package node

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/vfs"
)

// start opens a node on dir with settings, and closes it when the test ends.
func start(t *testing.T, dir string, set ...string) (*Node, error) {
	t.Helper()
	return startOn(t, vfs.OS(), dir, set...)
}

func startOn(t *testing.T, fsys vfs.FS, dir string, set ...string) (*Node, error) {
	t.Helper()
	cfg, _, err := config.Load(config.Input{Set: append([]string{"listeners=PLAINTEXT://127.0.0.1:0", "log.dirs=" + dir}, set...)})
	if err != nil {
		t.Fatal(err)
	}
	n, err := Open(t.Context(), Options{Config: cfg, FS: fsys, Logger: slog.New(slog.DiscardHandler), Fatal: func(err error) { t.Error(err) }})
	if err == nil {
		t.Cleanup(func() {
			if err := n.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	return n, err
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// A directory that holds other people's files is refused, and nothing in it changes.
func TestForeignDirectoryIsLeftAlone(t *testing.T) {
	for _, tc := range []struct {
		name, path string
		dir        bool
		want       string
	}{
		{"a folder that looks like a partition", "dbus-1", true, "it has no meta.properties, and holds dbus-1"},
		{"a folder that looks like one on its way out", "x.00000000000000000000000000000000-delete", true, "holds x.0"},
		{"a temporary file", "letter.tmp", false, "holds letter.tmp"},
		{"a partition of Kafka", "orders-0", true, "holds orders-0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			at := filepath.Join(dir, tc.path)
			if tc.dir {
				if err := os.Mkdir(at, 0o755); err != nil {
					t.Fatal(err)
				}
			} else if err := os.WriteFile(at, []byte("x"), 0o644); err != nil {
				t.Fatal(err)
			}
			_, err := start(t, dir)
			if !errors.Is(err, ErrStrange) || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %v, want %q", err, tc.want)
			}
			if diff := cmp.Diff([]string{tc.path}, names(t, dir)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What a start that was cut short leaves, and the folder of a fresh file system, are no obstacle.
func TestUnfinishedDirectoryOpens(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".lock", "meta.properties.tmp"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := start(t, dir); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(names(t, dir), "lost+found") {
		t.Error("lost+found is gone")
	}
}

// A node alone opens the listeners of clients only: not the controller's, and none that clients are not told of.
func TestListenersOfANodeAlone(t *testing.T) {
	const all = "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0,REPLICATION://127.0.0.1:0,EXTERNAL://127.0.0.1:0"
	const protocols = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,REPLICATION:PLAINTEXT,EXTERNAL:PLAINTEXT"
	const controller = "controller.listener.names=CONTROLLER"
	for _, tc := range []struct {
		name       string
		advertised string
		want       []string
	}{
		{"all are advertised", "PLAINTEXT://a:1,CONTROLLER://a:2,REPLICATION://a:3,EXTERNAL://b:4", []string{"EXTERNAL", "PLAINTEXT", "REPLICATION"}},
		{"two are advertised", "PLAINTEXT://a:1,EXTERNAL://b:4", []string{"EXTERNAL", "PLAINTEXT"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n, err := start(t, t.TempDir(), all, protocols, controller, "advertised.listeners="+tc.advertised)
			if err != nil {
				t.Fatal(err)
			}
			var bound, told []string
			for name, addr := range n.Addresses() {
				bound = append(bound, name)
				c, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				// ApiVersions 0, correlation 7, no client id.
				if _, err := c.Write([]byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff}); err != nil {
					t.Fatal(err)
				}
				var head [8]byte
				if _, err := io.ReadFull(c, head[:]); err != nil || head[7] != 7 {
					t.Errorf("%s at %s: answer %x, %v", name, addr, head, err)
				}
				c.Close()
			}
			for _, e := range n.advertised() {
				told = append(told, e.Name)
			}
			slices.Sort(bound)
			slices.Sort(told)
			if diff := cmp.Diff(tc.want, bound); diff != "" {
				t.Error("bound: " + diff)
			}
			if diff := cmp.Diff(tc.want, told); diff != "" {
				t.Error("told: " + diff)
			}
		})
	}
	_, err := start(t, t.TempDir(), "listeners=CONTROLLER://127.0.0.1:0", protocols, controller)
	if !errors.Is(err, ErrNoListener) {
		t.Errorf("only a controller's listener: %v", err)
	}
}

// Below the disk reserve no topic is made; what is there goes on.
func TestNoTopicWithoutRoom(t *testing.T) {
	fsys := vfs.NewFaulty(vfs.OS())
	n, err := startOn(t, fsys, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	create := func(name string) error {
		answers, err := n.control.CreateTopics(t.Context(), controller.CreateTopicsRequest{
			Topics: []controller.CreateTopic{{Name: name, Partitions: 1, Replicas: 1}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return answers[0].Err
	}
	if err := create("one"); err != nil {
		t.Fatal(err)
	}
	fsys.SetFree(1 << 10)
	for _, d := range n.dirs {
		d.Tick(time.Now())
	}
	if err := create("two"); !errors.Is(err, log.ErrReserve) {
		t.Errorf("creation: %v", err)
	}
	if _, ok := n.quorum.Image().TopicByName("two"); ok {
		t.Error("the topic is there")
	}
	deleted, err := n.control.DeleteTopics(t.Context(), []controller.TopicRef{{Name: "one"}})
	if err != nil || deleted[0].Err != nil {
		t.Errorf("deletion: %v, %v", deleted, err)
	}
	fsys.SetFree(1 << 40)
	for _, d := range n.dirs {
		d.Tick(time.Now())
	}
	if err := create("two"); err != nil {
		t.Errorf("creation with room again: %v", err)
	}
}

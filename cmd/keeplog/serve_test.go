package main

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The two commands that serve prints work when they are pasted, also where no keeplog is on the PATH, as after make run.
func TestTheCommandsToTryWork(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "bin", "keeplog")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "bin", "keeplog"), "serve", "--listen", "127.0.0.1:0")
	cmd.Args[0], cmd.Dir, cmd.Env = "bin/keeplog", dir, []string{"PATH=/usr/bin:/bin"}
	words, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	give := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	defer func() {
		give.Stop()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()
	command := regexp.MustCompile(`^(?:Try:)? +(.*greetings.*)$`)
	var try []string
	lines := bufio.NewScanner(words)
	for len(try) < 2 && lines.Scan() {
		if m := command.FindStringSubmatch(lines.Text()); m != nil {
			try = append(try, m[1])
		}
	}
	if len(try) != 2 {
		t.Fatalf("serve printed %q to try (%v)", try, lines.Err())
	}
	for i, want := range []string{"", "hello\n"} {
		sh := exec.Command("/bin/sh", "-c", try[i])
		sh.Dir = dir
		sh.Env = []string{"PATH=/usr/bin:/bin"}
		out, err := sh.Output()
		if err != nil || string(out) != want {
			t.Errorf("%s: %q, %v", try[i], out, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "keeplog-data", "meta.properties")); err != nil {
		t.Error(err)
	}
	if !strings.HasPrefix(try[0], "echo hello | bin/keeplog produce -b 127.0.0.1:") {
		t.Errorf("%q names another program", try[0])
	}
}

// A stop that is asked for while the broker starts is a clean stop, as one is later.
func TestStopWhileStarting(t *testing.T) {
	var words bytes.Buffer
	a := &app{streams: streams{err: &words, getenv: func(string) string { return "" }}, now: time.Now}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted)
	if err := a.serve(ctx, serveFlags{dataDir: t.TempDir(), listen: []string{"127.0.0.1:0"}}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(words.String(), "\nstopped while it was starting\n") {
		t.Errorf("%q", words.String())
	}
}

// Package killloop kills the real server at random moments, again and again, while idempotent producers write to it, and then
// reads everything back: nothing acknowledged may be lost, stored twice, reordered, or found at another offset.
package killloop

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// binary builds the program once and returns its path.
func binary(t testing.TB) string {
	t.Helper()
	if b := os.Getenv("KEEPLOG_BINARY"); b != "" {
		return b
	}
	out := filepath.Join(t.TempDir(), "keeplog")
	cmd := exec.Command("go", "build", "-o", out, "github.com/keeplog/keeplog/cmd/keeplog")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, text)
	}
	return out
}

// server is one data directory and the process that serves it now.
type server struct {
	t         testing.TB
	bin, data string
	addr      string
	extra     []string

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{}
	log    *bytes.Buffer
}

func newServer(t testing.TB, extra ...string) *server {
	t.Helper()
	s := &server{t: t, bin: binary(t), data: filepath.Join(t.TempDir(), "data"), addr: freeAddr(t), extra: extra}
	t.Cleanup(func() { s.stop(syscall.SIGKILL) })
	return s
}

func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start runs the process and waits until it accepts connections; it must do so by itself, whatever the last kill left.
func (s *server) start() {
	s.t.Helper()
	s.startOnly()
	s.mu.Lock()
	cmd, exited := s.cmd, s.exited
	s.mu.Unlock()
	deadline := time.Now().Add(20 * time.Second)
	for {
		if c, err := net.Dial("tcp", s.addr); err == nil {
			c.Close()
			return
		}
		select {
		case <-exited:
			s.t.Fatalf("the server did not start (%v):\n%s", cmd.ProcessState, s.output())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			s.t.Fatal("the server does not accept connections after 20 s")
		}
	}
}

// startOnly runs the process and does not wait.
func (s *server) startOnly() {
	s.t.Helper()
	args := append([]string{"serve", "--data-dir", s.data, "--listen", s.addr}, s.extra...)
	cmd := exec.Command(s.bin, args...)
	log := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		cmd.Wait()
		close(exited)
	}()
	s.mu.Lock()
	s.cmd, s.exited, s.log = cmd, exited, log
	s.mu.Unlock()
}

// stop ends the process by its pid and returns its exit code, −1 when a signal ended it.
func (s *server) stop(sig syscall.Signal) int {
	s.mu.Lock()
	cmd, exited := s.cmd, s.exited
	s.cmd = nil
	s.mu.Unlock()
	if cmd == nil {
		return 0
	}
	cmd.Process.Signal(sig)
	select {
	case <-exited:
	case <-time.After(20 * time.Second):
		cmd.Process.Kill()
		<-exited
		s.t.Errorf("the server did not end within 20 s of %v", sig)
	}
	return cmd.ProcessState.ExitCode()
}

// output is what the last process printed.
func (s *server) output() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log == nil {
		return ""
	}
	return s.log.String()
}

// run runs a command of the program and returns its output; the exit code must be want.
func (s *server) run(want int, args ...string) string {
	s.t.Helper()
	out, err := exec.Command(s.bin, args...).CombinedOutput()
	code := 0
	if ee, ok := err.(*exec.ExitError); ok {
		code = ee.ExitCode()
	} else if err != nil {
		s.t.Fatal(err)
	}
	if code != want {
		s.t.Errorf("keeplog %s: exit code %d, want %d\n%s", strings.Join(args, " "), code, want, tail(out))
	}
	return string(out)
}

func tail(b []byte) []byte {
	if len(b) > 4000 {
		return b[len(b)-4000:]
	}
	return b
}

// readAll reads a partition from its start to end, in order.
func (s *server) readAll(topic string, partition int32, end int64) []*kgo.Record {
	t := s.t
	t.Helper()
	if end == 0 {
		return nil
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(s.addr), kgo.FetchMaxWait(200*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var out []*kgo.Record
	for len(out) == 0 || out[len(out)-1].Offset < end-1 {
		f := c.PollFetches(ctx)
		if err := f.Err0(); err != nil {
			t.Fatalf("reading %s-%d after %d records of %d: %v", topic, partition, len(out), end, err)
		}
		f.EachError(func(_ string, _ int32, err error) { t.Fatalf("reading %s-%d: %v", topic, partition, err) })
		f.EachRecord(func(r *kgo.Record) { out = append(out, r) })
	}
	return out
}

func name(producer, partition int, n int) string {
	return fmt.Sprintf("p%d-%d-%09d", producer, partition, n)
}

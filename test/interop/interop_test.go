// Package interop lets other people's clients and tools work with a running server: what one of them writes, all of them
// must read, in every codec, from the beginning, from an offset and from a time.
//
// Without INTEROP_ADDR the tests start the server themselves (KEEPLOG_BINARY names it). A client that is not installed is
// skipped, unless INTEROP_REQUIRE lists it (comma separated, or "all").
package interop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	addr string
	// serverPID is the server's, when the tests started it.
	serverPID int
	// dataDir is the server's, when the tests started it.
	dataDir string
	codecs  = []string{"none", "gzip", "snappy", "lz4", "zstd"}
)

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "32") // tests that call Parallel wait for others' timers
	addr = os.Getenv("INTEROP_ADDR")
	stop := func() {}
	if addr == "" {
		var err error
		if stop, err = startServer(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := m.Run()
	stop()
	os.Exit(code)
}

// startServer runs the server on a free port and a fresh directory.
func startServer() (stop func(), err error) {
	bin := os.Getenv("KEEPLOG_BINARY")
	if bin == "" {
		return nil, fmt.Errorf("KEEPLOG_BINARY does not name the server; `make interop` sets it")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr = l.Addr().String()
	l.Close()
	dir, err := os.MkdirTemp("", "keeplog-interop")
	if err != nil {
		return nil, err
	}
	dataDir = filepath.Join(dir, "data")
	cmd := exec.Command(bin, "serve", "--data-dir", dataDir, "--listen", addr)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	serverPID = cmd.Process.Pid
	stop = func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		os.RemoveAll(dir)
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return stop, nil
		}
		<-time.After(10 * time.Millisecond)
	}
	stop()
	return nil, fmt.Errorf("the server does not answer on %s:\n%s", addr, log.String())
}

// message is a record as every client sees it.
type message struct {
	offset     int64
	key, value string
}

// payload is n records of which some are empty, some large, and some compressible.
func payload(n int) []message {
	out := make([]message, n)
	for i := range out {
		out[i] = message{offset: int64(i), key: fmt.Sprintf("key-%04d", i), value: fmt.Sprintf("value %d %s", i, strings.Repeat("abc", i%400))}
	}
	return out
}

// newTopic makes a topic of one partition and returns its name.
func newTopic(t *testing.T, configs ...string) string {
	t.Helper()
	name := strings.NewReplacer("/", ".", "#", ".").Replace(t.Name()) + fmt.Sprintf(".%d", time.Now().UnixNano())
	c := franz(t)
	set := map[string]*string{}
	for i := 0; i+1 < len(configs); i += 2 {
		set[configs[i]] = &configs[i+1]
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := kadm.NewClient(c).CreateTopic(ctx, 1, 1, set, name); err != nil {
		t.Fatal(err)
	}
	return name
}

func franz(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// same compares what was read with what was written.
func same(t *testing.T, who string, got, want []message) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s read %d records, want %d", who, len(got), len(want))
		return
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%s read %.60q at offset %d, want %.60q at %d", who, got[i].value, got[i].offset, want[i].value, want[i].offset)
			return
		}
	}
}

// need skips the test when a program is missing, or fails it when INTEROP_REQUIRE asks for it.
func need(t *testing.T, what string, ok bool) {
	t.Helper()
	if ok {
		return
	}
	required := strings.Split(os.Getenv("INTEROP_REQUIRE"), ",")
	if slices.Contains(required, what) || slices.Contains(required, "all") {
		t.Fatalf("%s is required and not installed", what)
	}
	t.Skipf("%s is not installed", what)
}

func installed(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// command runs a program with a time limit and returns its output.
func command(t *testing.T, stdin io.Reader, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin = stdin
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String()
}

func sum(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }

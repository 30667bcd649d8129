package interop

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestKafkaToolsMoveReplicas moves a replica between two data directories with kafka-reassign-partitions, throttled, kills the server with -9 on the way,
// and lets it go on.
func TestKafkaToolsMoveReplicas(t *testing.T) {
	wantsKafkaTools(t)
	bin := os.Getenv("KEEPLOG_BINARY")
	if bin == "" {
		t.Skip("KEEPLOG_BINARY does not name the server")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at, dir := l.Addr().String(), t.TempDir()
	l.Close()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := write("server.properties", fmt.Sprintf("node.id=1\nlisteners=PLAINTEXT://%s\nadvertised.listeners=PLAINTEXT://%s\nlog.dirs=%s,%s\n", at, at, a, b))
	var node *exec.Cmd
	var logs bytes.Buffer
	start := func() {
		node = exec.Command(bin, "serve", "--config", file)
		node.Stdout, node.Stderr = &logs, &logs
		if err := node.Start(); err != nil {
			t.Fatal(err)
		}
		command(t, nil, bin, "cluster", "health", "--wait", "--timeout", "30s", "--brokers", at)
	}
	kill := func() {
		node.Process.Signal(syscall.SIGKILL)
		node.Wait()
	}
	start()
	defer func() {
		kill()
		if t.Failed() {
			t.Log(logs.String())
		}
	}()
	tool := func(class string, args ...string) string {
		return java(t, "", class, append([]string{"--bootstrap-server", at}, args...)...)
	}
	tool("TopicCommand", "--create", "--topic", "t", "--partitions", "1")
	in := strings.Repeat(strings.Repeat("x", 999)+"\n", 3000)
	command(t, strings.NewReader(in), bin, "produce", "t", "--brokers", at)
	from, to := a, b
	if _, err := os.Stat(filepath.Join(b, "t-0")); err == nil {
		from, to = b, a
	}
	plan := write("plan.json", fmt.Sprintf(`{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":[%q]}]}`, to))
	reassign := func(args ...string) string {
		return tool("reassign.ReassignPartitionsCommand", append([]string{"--reassignment-json-file", plan}, args...)...)
	}
	wants(t, "execute", reassign("--execute", "--replica-alter-log-dirs-throttle", "50000"), `Successfully started moving log directory to `+to)
	wants(t, "verify", reassign("--verify", "--preserve-throttles"), `replica t-0-1 is still in progress`)
	wants(t, "log-dirs", tool("LogDirsCommand", "--describe", "--topic-list", "t"), `"isFuture":true`)
	kill()
	start()
	wants(t, "log-dirs after a kill", tool("LogDirsCommand", "--describe", "--topic-list", "t"), `"isFuture":true`)
	tool("ConfigCommand", "--alter", "--entity-type", "brokers", "--entity-name", "1", "--delete-config", "replica.alter.log.dirs.io.max.bytes.per.second")
	for end := time.Now().Add(20 * time.Second); ; <-time.After(50 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(to, "t-0")); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it does not move")
		}
	}
	wants(t, "verify", reassign("--verify"), `replica t-0-1 completed successfully`)
	if _, err := os.Stat(filepath.Join(from, "t-0")); err == nil {
		t.Error("the replica is in both directories")
	}
	if out := command(t, nil, bin, "consume", "t", "--exit", "--brokers", at); sum(out) != sum(in) {
		t.Errorf("%d bytes come back, %d were written", len(out), len(in))
	}
}

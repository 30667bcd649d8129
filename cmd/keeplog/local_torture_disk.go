package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// traceable says why strace cannot be attached to a process; empty when it can.
func traceable() string {
	if _, err := exec.LookPath("strace"); err != nil {
		return "strace is not installed"
	}
	scope, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if err == nil && strings.TrimSpace(string(scope)) != "0" && os.Geteuid() != 0 {
		return "this user may not trace processes"
	}
	if err := exec.Command("strace", "-qq", "-o", "/dev/null", "-e", "trace=fsync", "-e", "inject=fsync:error=EIO", "true").Run(); err != nil {
		return "strace cannot trace here"
	}
	return ""
}

// NoDisk implements torture.Disk.
func (t *victim) NoDisk() string { return t.noEIO }

// inject attaches strace to a node, so that its fsyncs do what how says. stop detaches it.
func (t *victim) inject(id int32, how string) (stop func(), err error) {
	const calls = "fsync,fdatasync,sync_file_range,msync"
	pid := t.process(id)
	var said bytes.Buffer
	cmd := exec.Command("strace", "-f", "-qq", "-p", fmt.Sprint(pid), "-o", "/dev/null", "-e", "trace="+calls, "-e", "inject="+calls+":"+how)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	stop = func() {
		_ = cmd.Process.Signal(unix.SIGTERM) // it lets its processes go first
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
	}
	for !traced(pid) {
		select {
		case <-ended:
			if t.cluster.ended(t.node(id), 2*time.Second) {
				return func() {}, nil // the node was quicker
			}
			return nil, fmt.Errorf("strace: %s", strings.TrimSpace(said.String()))
		case <-time.After(5 * time.Millisecond):
		}
	}
	return stop, nil
}

// traced says whether a tracer is attached to a process.
func traced(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && !bytes.Contains(raw, []byte("\nTracerPid:\t0\n"))
}

// syncLimit is how long a node may go on whose every fsync fails.
const syncLimit = 20 * time.Second

// FailSync implements torture.Disk.
func (t *victim) FailSync(ctx context.Context, id int32) error {
	n := t.node(id)
	from := t.cluster.logSize(n)
	stop, err := t.inject(id, "error=EIO")
	if err != nil {
		return err
	}
	defer stop()
	for began := time.Now(); !t.cluster.ended(n, 100*time.Millisecond); {
		if time.Since(began) > syncLimit {
			_ = t.Kill(id)
			return fmt.Errorf("it went on for %s although every fsync failed", syncLimit)
		}
	}
	t.gone(id)
	if msg, why, _ := lastError(readTail(t.cluster.logFile(n), from, 1<<20)); !strings.Contains(why, "the disk reported an error") {
		return errors.New("after a failed fsync it ended for another reason: " + msg)
	}
	return nil
}

// SlowSync implements torture.Disk.
func (t *victim) SlowSync(id int32, each time.Duration) (stop func(), err error) {
	return t.inject(id, fmt.Sprintf("delay_enter=%d", each.Microseconds()))
}

// SetFull implements torture.Room: the node keeps free more than any disk has.
func (t *victim) SetFull(id int32, full bool) {
	n := t.node(id)
	n.set = nil
	if full {
		n.set = []string{fmt.Sprintf("keeplog.disk.reserve.bytes=%d", int64(1)<<60)}
	}
}

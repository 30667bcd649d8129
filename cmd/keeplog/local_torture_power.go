package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// powerTool mounts directories that forget what was not fsynced, with a program that --powerloss names:
//
//	PROGRAM LIVE MOUNT CONTROL MODE      serves LIVE at MOUNT; MODE: strict (a name is durable when its directory was fsynced) or ext4
//	"crash OUT SEED" to the unix socket CONTROL      writes to OUT what survives a power failure now, and answers a line
type powerTool struct {
	program, mode, dir string
	c                  *localCluster

	mu     sync.Mutex
	mounts map[int32]*exec.Cmd
}

func newPowerTool(program string, c *localCluster, seed uint64) (*powerTool, error) {
	full, err := exec.LookPath(program)
	if err == nil {
		full, err = filepath.Abs(full)
	}
	if err != nil {
		return nil, &cliError{
			msg: fmt.Sprintf("--powerloss %s: there is no such program", program), code: "NO_PROGRAM", exit: exitUsage,
			why: "power failures need a mount that forgets what was not fsynced", try: "without --powerloss, and without the faults power and power-all",
		}
	}
	for _, need := range []string{"fusermount3", "/dev/fuse"} {
		if _, err := exec.LookPath(need); err != nil && !strings.HasPrefix(need, "/") {
			return nil, failf("--powerloss: %s is not installed (package fuse3)", need)
		}
		if _, err := os.Stat(need); err != nil && strings.HasPrefix(need, "/") {
			return nil, failf("--powerloss: %s: %s", need, lastPart(err))
		}
	}
	// A socket's path is short.
	dir, err := os.MkdirTemp("", "keeplog-power-")
	if err != nil {
		return nil, err
	}
	p := &powerTool{program: full, mode: []string{"strict", "ext4"}[seed%2], dir: dir, c: c, mounts: map[int32]*exec.Cmd{}}
	for _, n := range c.state.Nodes {
		if err := os.MkdirAll(p.live(n), 0o755); err != nil {
			return nil, err
		}
		if err := p.mount(n); err != nil {
			p.end()
			return nil, err
		}
	}
	c.app.say("the disks forget what was not fsynced (%s, as on %s)", full, p.mode)
	return p, nil
}

func (p *powerTool) path(n *localNode, name string) string {
	return filepath.Join(p.dir, fmt.Sprintf("%d-%s", n.ID, name))
}
func (p *powerTool) live(n *localNode) string { return p.path(n, "live") }

func (p *powerTool) mount(n *localNode) error {
	at := p.c.dataDir(n)
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	_ = os.Remove(p.path(n, "ctl"))
	log, err := os.OpenFile(p.path(n, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.program, p.live(n), at, p.path(n, "ctl"), p.mode)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return failf("--powerloss: %s", lastPart(err))
	}
	if !waitUntil(10*time.Second, func() bool { return mounted(at) }) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return failf("--powerloss: %s is not mounted: %s", at, strings.TrimSpace(string(readTail(p.path(n, "log"), 0, 300))))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mounts[n.ID] = cmd
	return nil
}

// mounted says whether another file system begins at path.
func mounted(path string) bool {
	var here, above unix.Stat_t
	return unix.Stat(path, &here) == nil && unix.Stat(filepath.Dir(path), &above) == nil && here.Dev != above.Dev
}

func (p *powerTool) unmount(n *localNode) {
	p.mu.Lock()
	cmd := p.mounts[n.ID]
	delete(p.mounts, n.ID)
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = exec.Command("fusermount3", "-uz", p.c.dataDir(n)).Run()
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		_ = cmd.Process.Kill()
		<-ended
	}
	waitUntil(5*time.Second, func() bool { return !mounted(p.c.dataDir(n)) })
}

// crash puts what survives in the place of what was there.
func (p *powerTool) crash(n *localNode, seed uint64) error {
	out := p.path(n, "out")
	conn, err := net.Dial("unix", p.path(n, "ctl"))
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "crash %s %d\n", out, seed); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return fmt.Errorf("crash: %w", err)
	}
	if _, err := os.Stat(out); err != nil {
		return errors.New("crash: " + strings.TrimSpace(answer))
	}
	p.unmount(n)
	if err := os.RemoveAll(p.live(n)); err != nil {
		return err
	}
	if err := os.Rename(out, p.live(n)); err != nil {
		return err
	}
	return p.mount(n)
}

// end unmounts everything.
func (p *powerTool) end() {
	for _, n := range p.c.state.Nodes {
		p.unmount(n)
	}
}

// NoPower implements torture.Power.
func (t *victim) NoPower() string {
	if t.power == nil {
		return "it needs --powerloss PROGRAM, a mount that forgets what was not fsynced"
	}
	return ""
}

// PowerFail implements torture.Power.
func (t *victim) PowerFail(nodes []int32, seed uint64) error {
	for _, id := range nodes { // all at once, and only then anything else
		_ = t.signal(id, syscall.SIGKILL)
	}
	for _, id := range nodes {
		if !t.cluster.ended(t.node(id), 10*time.Second) {
			return fmt.Errorf("node %d does not end", id)
		}
		t.gone(id)
	}
	for _, id := range nodes {
		if err := t.power.crash(t.node(id), seed); err != nil {
			return fmt.Errorf("node %d: %w", id, err)
		}
	}
	return nil
}

// unmount takes the mounts away; with keep the files come to where the nodes had them.
func (t *victim) unmount(keep bool) {
	p := t.power
	if p == nil {
		return
	}
	p.end()
	for _, n := range p.c.state.Nodes {
		if keep && os.Remove(p.c.dataDir(n)) == nil {
			if err := os.Rename(p.live(n), p.c.dataDir(n)); err != nil {
				_ = exec.Command("cp", "-a", p.live(n), p.c.dataDir(n)).Run() // another file system
			}
		}
	}
	_ = os.RemoveAll(p.dir)
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// processID is a process: a pid is given to another one later, but not with the same start in the same run of the machine.
type processID struct {
	Pid   int    `json:"pid"`
	Start uint64 `json:"start"` // in ticks since the machine started, field 22 of /proc/PID/stat
	Boot  string `json:"boot"`  // of the run of the machine
}

// processState is the letter of /proc/PID/stat: R running, S sleeping, T stopped, Z ended and not waited for …
type processState byte

func (s processState) paused() bool { return s == 'T' || s == 't' }

// readProcess finds the process that has pid now.
func readProcess(pid int) (id processID, state processState, ok bool) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return id, 0, false
	}
	s, ok := parseStat(raw)
	return processID{Pid: pid, Start: s.start, Boot: bootID()}, s.state, ok && !s.ended()
}

// processStat is what is read of a /proc/PID/stat.
type processStat struct {
	state   processState
	threads int
	start   uint64
}

// ended says that the process is no more. While some of its threads still end, its files and ports are still taken.
func (s processStat) ended() bool { return s.state == 'X' || s.state == 'Z' && s.threads <= 1 }

// parseStat reads a /proc/PID/stat. The name in it may hold blanks and parentheses.
func parseStat(raw []byte) (s processStat, ok bool) {
	at := bytes.LastIndexByte(raw, ')')
	if at < 0 {
		return s, false
	}
	fields := strings.Fields(string(raw[at+1:]))
	if len(fields) < 20 || len(fields[0]) != 1 {
		return s, false
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	threads, terr := strconv.Atoi(fields[17])
	return processStat{processState(fields[0][0]), threads, start}, err == nil && terr == nil
}

func bootID() string {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

// commandOf are the words that the process was started with.
func commandOf(pid int) []string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(raw) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00")
}

// running is the state of a node's process; ok is false when it has ended.
func (c *localCluster) running(n *localNode) (processState, bool) {
	if n.Process == nil {
		return 0, false
	}
	now, state, ok := readProcess(n.Process.Pid)
	if !ok || now != *n.Process {
		return 0, false
	}
	words := commandOf(n.Process.Pid)
	if len(words) == 0 { // its memory is gone, and with it the command line: it ends, or has ended by now
		now, state, ok = readProcess(n.Process.Pid)
		return state, ok && now == *n.Process
	}
	if state == 'Z' {
		return state, true
	}
	return state, slices.Contains(words, "serve") && slices.Contains(words, c.propertiesFile(n))
}

// signal sends sig to the node's process, and to no other: the process is held by a handle before it is looked at.
func (c *localCluster) signal(n *localNode, sig syscall.Signal) (sent bool, err error) {
	if n.Process == nil {
		return false, nil
	}
	p, err := os.FindProcess(n.Process.Pid)
	if err != nil {
		return false, nil
	}
	defer p.Release()
	if _, ok := c.running(n); !ok {
		return false, nil
	}
	err = p.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) || errors.Is(err, syscall.ESRCH) {
		return false, nil
	}
	return err == nil, err
}

// launch starts the node's process and writes down which it is; the caller holds the lock.
func (c *localCluster) launch(n *localNode) error {
	if err := os.MkdirAll(c.dataDir(n), 0o755); err != nil {
		return c.fileError(err)
	}
	if err := c.write(fmt.Sprintf("node-%d.properties", n.ID), c.properties(n)); err != nil {
		return err
	}
	log, err := os.OpenFile(c.logFile(n), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return c.fileError(err)
	}
	defer log.Close()
	// The running program, also when the file it was started from has been replaced since.
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{"keeplog", "serve", "--config", c.propertiesFile(n)}
	cmd.Dir = c.dir
	cmd.Env = nodeEnvironment(os.Environ())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C in this terminal goes to us alone, who stop the nodes in order
	if err := cmd.Start(); err != nil {
		return failf("cannot start node %d: %s", n.ID, lastPart(err))
	}
	go cmd.Wait() // as long as we live nobody else can
	id, _, ok := readProcess(cmd.Process.Pid)
	if !ok {
		id = processID{Pid: cmd.Process.Pid} // it has ended already
	}
	n.Process = &id
	return c.save()
}

// nodeEnvironment leaves out what would override the properties file. The bug that a build with planted ones has on goes through.
func nodeEnvironment(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(s string) bool {
		if strings.HasPrefix(s, "KEEPLOG_SEEDED=") {
			return false
		}
		return strings.HasPrefix(s, "KEEPLOG_") || strings.HasPrefix(s, "KAFKA_")
	})
}

// properties is the node's configuration.
func (c *localCluster) properties(n *localNode) []byte {
	var b bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Written by keeplog local at each start of the node; --set is the way to change it.")
	line("node.id=%d", n.ID)
	if len(c.state.Nodes) == 1 {
		line("listeners=PLAINTEXT://%s", n.address())
	} else {
		line("listeners=PLAINTEXT://%s,CONTROLLER://%s,REPLICATION://%s", n.address(), localAddress(n.Controller), localAddress(n.Replication))
		line("controller.listener.names=CONTROLLER")
		line("inter.broker.listener.name=REPLICATION")
		if g := c.gates[n.ID]; g != nil {
			line("advertised.listeners=PLAINTEXT://%s,CONTROLLER://%s,REPLICATION://%s", g.address(), localAddress(g.Controller), localAddress(g.Replication))
		}
		voters := make([]string, len(c.state.Nodes))
		for i, v := range c.state.Nodes {
			if g := c.gates[v.ID]; g != nil {
				v = g
			}
			voters[i] = fmt.Sprintf("%d@%s", v.ID, localAddress(v.Controller))
		}
		if n.join == "" {
			line("controller.quorum.voters=%s", strings.Join(voters, ","))
		} else {
			line("keeplog.join=%s", n.join)
		}
	}
	line("log.dirs=%s", propertyValueText(c.dataDir(n)))
	for _, kv := range slices.Concat(c.state.Set, n.set) {
		k, v, _ := strings.Cut(kv, "=")
		line("%s=%s", strings.TrimSpace(k), propertyValueText(v))
	}
	return b.Bytes()
}

// propertyValueText writes a value so that a properties file gives it back.
func propertyValueText(v string) string {
	v = strings.ReplaceAll(v, `\`, `\\`)
	v = strings.ReplaceAll(v, "\n", `\n`)
	if strings.HasPrefix(v, " ") {
		v = `\` + v
	}
	return v
}

// wait waits until done, which it asks again and again, or the limit.
func waitUntil(limit time.Duration, done func() bool) bool {
	for deadline := time.Now().Add(limit); ; {
		if done() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/keeplog/keeplog/internal/torture"
)

// Fixed implements torture.Members.
func (t *victim) Fixed() string {
	switch {
	case t.borrowed:
		return "the cluster was up before: its nodes and files stay as they are"
	case t.guest == nil:
		return "the nodes do not talk through gates"
	}
	return ""
}

// command runs this program as an operator would, again and again until it works or ctx is done.
func (t *victim) command(ctx context.Context, words ...string) error {
	for {
		// The brokers are asked directly: who is at the console of the machines reaches them.
		args := append(words, "--brokers", t.cluster.addresses(), "--yes", "--quiet", "--timeout", "20s")
		cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
		cmd.Args[0] = "keeplog"
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		if err == nil {
			return nil
		}
		msg, why, _ := lastError(out.Bytes())
		err = fmt.Errorf("keeplog %s: %w: %s %s", strings.Join(words, " "), err, msg, why)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// member waits until the nodes say that a broker is there, or that it is not.
func (t *victim) member(ctx context.Context, id int32, there bool) error {
	probe := newLocalProbe()
	defer probe.close()
	for {
		for _, n := range t.cluster.state.Nodes {
			ask, cancel := context.WithTimeout(ctx, time.Second)
			v, err := probe.ask(ask, n.address())
			cancel()
			if err != nil {
				continue
			}
			found := false
			for _, b := range v.brokers {
				found = found || b == id
			}
			if found == there {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("node %d: whether it is a member is not as it should be: %w", id, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Join implements torture.Members.
func (t *victim) Join(ctx context.Context) (torture.Node, error) {
	c := t.cluster
	var members []string
	for _, n := range c.state.Nodes {
		members = append(members, localAddress(c.gates[n.ID].Controller))
	}
	t.mu.Lock()
	t.guest.join, t.here = strings.Join(members, ","), true
	t.mu.Unlock()
	id := t.guest.ID
	if err := os.RemoveAll(c.dataDir(t.guest)); err != nil {
		return torture.Node{}, err
	}
	if err := t.Start(id); err != nil {
		return torture.Node{}, err
	}
	err := t.member(ctx, id, true)
	if err != nil && !t.Running(id) {
		err = fmt.Errorf("it has ended: %s", t.LastWords(id))
	}
	return torture.Node{ID: id, Address: t.guest.address(), DataDir: c.dataDir(t.guest)}, err
}

// Leave implements torture.Members.
func (t *victim) Leave(ctx context.Context, id int32) error {
	if err := t.command(ctx, "cluster", "remove", fmt.Sprint(id)); err != nil {
		return err
	}
	if t.Running(id) { // it may have heard that it is no member and ended by itself
		if err := t.Stop(id); err != nil && t.Running(id) {
			return err
		}
	}
	t.gone(id)
	if err := t.member(ctx, id, false); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.here = false
	return os.RemoveAll(t.cluster.dataDir(t.guest))
}

// forget deletes the files of the guest.
func (t *victim) forget() {
	if t.guest == nil || t.keep {
		return
	}
	for _, path := range []string{t.cluster.dataDir(t.guest), t.cluster.propertiesFile(t.guest), t.cluster.logFile(t.guest)} {
		_ = os.RemoveAll(path)
	}
}

// lostDirectory finds the id of a directory in the commands that a node with a wiped disk is refused with.
var lostDirectory = regexp.MustCompile(`keeplog\.lost\.directories=([A-Za-z0-9_-]+)`)

// Replace implements torture.Members.
func (t *victim) Replace(ctx context.Context, id int32) error {
	c, n := t.cluster, t.node(id)
	if err := t.Kill(id); err != nil {
		return err
	}
	entries, err := os.ReadDir(c.dataDir(n))
	if err != nil {
		return err
	}
	for _, e := range entries { // the directory itself may be a mount
		if err := os.RemoveAll(filepath.Join(c.dataDir(n), e.Name())); err != nil {
			return err
		}
	}
	from := c.logSize(n)
	if err := t.Start(id); err != nil {
		return err
	}
	for !c.ended(n, 100*time.Millisecond) {
		if ctx.Err() != nil {
			return errors.New("with a wiped disk it is neither refused nor taken back")
		}
	}
	t.gone(id)
	refusal := readTail(c.logFile(n), from, 1<<20)
	found := lostDirectory.FindSubmatch(refusal)
	if found == nil || !bytes.Contains(refusal, []byte(fmt.Sprintf("cluster remove %d --replace", id))) {
		msg, why, _ := lastError(refusal)
		return fmt.Errorf("with a wiped disk it is not told how to come back: %s %s", msg, why)
	}
	if err := t.command(ctx, "cluster", "remove", fmt.Sprint(id), "--replace"); err != nil {
		return err
	}
	n.set = []string{"keeplog.lost.directories=" + string(found[1])}
	err = t.Start(id)
	if err == nil {
		err = t.returned(ctx, n)
	}
	n.set = nil
	return err
}

// returned waits until a node serves.
func (t *victim) returned(ctx context.Context, n *localNode) error {
	probe := newLocalProbe()
	defer probe.close()
	for {
		ask, cancel := context.WithTimeout(ctx, time.Second)
		v, err := probe.ask(ask, n.address())
		cancel()
		for _, b := range v.brokers {
			if err == nil && b == n.ID {
				return nil
			}
		}
		switch {
		case !t.Running(n.ID):
			return fmt.Errorf("it has ended: %s", t.LastWords(n.ID))
		case ctx.Err() != nil:
			return fmt.Errorf("it does not serve: %w", ctx.Err())
		}
		<-time.After(50 * time.Millisecond)
	}
}

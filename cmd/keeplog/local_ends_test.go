package main

import (
	"os/exec"
	"testing"
)

// A process that ends still runs, although its command line is gone already.
func TestEndingIsNotEnded(t *testing.T) {
	c := &localCluster{dir: t.TempDir(), state: localState{Nodes: usualNodes(1)}}
	n := c.state.Nodes[0]
	for range 200 {
		cmd := exec.Command("sh", "-c", "read x", "serve", c.propertiesFile(n))
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		id, _, ok := readProcess(cmd.Process.Pid)
		if !ok {
			t.Fatal("it did not start")
		}
		n.Process = &id
		_ = in.Close()
		for {
			if _, ok := c.running(n); !ok {
				break
			}
		}
		if _, state, ok := readProcess(cmd.Process.Pid); ok {
			t.Errorf("it is taken for ended in state %q", state)
		}
		_ = cmd.Wait()
		if _, ok := c.running(n); ok {
			t.Error("it was waited for, and still runs")
		}
		if t.Failed() {
			return
		}
	}
}

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const rest = " 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 7 18 4711 20 21"
	for in, want := range map[string]processStat{
		"42 (keeplog) S" + rest:      {'S', 7, 4711},
		"42 (a b) (c)) T" + rest:     {'T', 7, 4711},
		"42 (\n) R) Z" + rest + "\n": {'Z', 7, 4711},
		"42 (keeplog) S 1 2":         {},
		"":                           {},
		"42 (keeplog) S" + rest[:40]: {},
	} {
		if got, ok := parseStat([]byte(in)); ok != (want != processStat{}) || ok && got != want {
			t.Errorf("%q: %+v, %v", in, got, ok)
		}
	}
}

// A signal goes to the process that was started and to no other: not to one that has its pid now.
func TestSignalsOnlyItsOwn(t *testing.T) {
	c := &localCluster{dir: t.TempDir(), state: localState{Nodes: usualNodes(1)}}
	n := c.state.Nodes[0]
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { other.Process.Kill(); other.Wait() }()
	// Just after its start a process has no command line for a moment, as one that ends.
	for ends := time.Now().Add(10 * time.Second); commandOf(other.Process.Pid) == nil; runtime.Gosched() {
		if time.Now().After(ends) {
			t.Fatal("a process that runs has no command line")
		}
	}
	id, _, ok := readProcess(other.Process.Pid)
	if !ok {
		t.Fatal("a process that runs is not seen")
	}
	n.Process = &id // the pid and start of a process that is not "keeplog serve" of this node
	if sent, err := c.signal(n, syscall.SIGKILL); sent || err != nil {
		t.Errorf("another program was signalled: %v, %v", sent, err)
	}
	// This one has the words of a node on its command line.
	own := exec.Command("sh", "-c", "read x", "serve", "--config", c.propertiesFile(n))
	stdin, err := own.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { own.Process.Kill(); own.Wait() }()
	id, _, ok = readProcess(own.Process.Pid)
	if !ok {
		t.Fatal("a process that runs is not seen")
	}
	earlier := id
	earlier.Start--
	n.Process = &earlier // the same pid, an earlier process
	if sent, err := c.signal(n, syscall.SIGKILL); sent || err != nil {
		t.Errorf("a later process with the same pid was signalled: %v, %v", sent, err)
	}
	otherBoot := id
	otherBoot.Boot = "another run of the machine"
	n.Process = &otherBoot
	if sent, _ := c.signal(n, syscall.SIGKILL); sent {
		t.Error("a process of another run of the machine was signalled")
	}
	n.Process = &id
	if sent, err := c.signal(n, syscall.SIGKILL); !sent || err != nil || !c.ended(n, 5*time.Second) {
		t.Errorf("its own process was not ended: %v, %v", sent, err)
	}
}

func TestLastError(t *testing.T) {
	out := "error: old\nwhy:   older\n{\"level\":\"INFO\"}\nerror: cannot start: x\nwhy:   y\ntry:   z\nstopped\n"
	if msg, why, try := lastError([]byte(out)); msg != "cannot start: x" || why != "y" || try != "z" {
		t.Errorf("%q %q %q", msg, why, try)
	}
	if msg, why, _ := lastError([]byte("error: a\nwhy:   b\npanic: c\n")); msg != "panic: c" || why != "" {
		t.Errorf("%q %q", msg, why)
	}
}

func TestLastLines(t *testing.T) {
	for n, want := range map[int]string{1: "c\n", 2: "b\nc\n", 3: "a\nb\nc\n", 9: "a\nb\nc\n"} {
		if got := string(lastLines([]byte("a\nb\nc\n"), n)); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	if got := string(lastLines(nil, 3)); got != "" {
		t.Errorf("%q", got)
	}
}

func TestFreePortsAreDistinctAndBelowThoseOfClients(t *testing.T) {
	nodes := usualNodes(5)
	if err := freePorts(nodes); err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, n := range nodes {
		for _, p := range []int{n.Kafka, n.Controller, n.Replication} {
			if seen[p] || p < 1024 || p >= 32_768 {
				t.Errorf("port %d", p)
			}
			seen[p] = true
		}
	}
}

func TestNodeProperties(t *testing.T) {
	c := &localCluster{dir: "/x/c", state: localState{Nodes: usualNodes(3), Set: []string{`a.b=c\d`}}}
	got := string(c.properties(c.state.Nodes[1]))
	for _, line := range []string{
		"node.id=2", "listeners=PLAINTEXT://127.0.0.1:9192,CONTROLLER://127.0.0.1:9193,REPLICATION://127.0.0.1:9194",
		"controller.quorum.voters=1@127.0.0.1:9093,2@127.0.0.1:9193,3@127.0.0.1:9293", "log.dirs=/x/c/2", `a.b=c\\d`,
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("%s is missing in\n%s", line, got)
		}
	}
	c.state.Nodes = c.state.Nodes[:1]
	if got := string(c.properties(c.state.Nodes[0])); strings.Contains(got, "CONTROLLER") || !strings.Contains(got, "listeners=PLAINTEXT://127.0.0.1:9092\n") {
		t.Errorf("a node alone:\n%s", got)
	}
}

// What is to be done where cluster.json is damaged works: up --fresh, which has to know the nodes, is not it.
func TestDamagedClusterFile(t *testing.T) {
	for _, content := range []string{"{", `{"version":1}`} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, localStateFile), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"status"}, {"up", "--fresh", "-y"}} {
			code, _, words := offline(t, append(append([]string{"local"}, args...), "--dir", dir)...)
			if code != exitDamaged || strings.Contains(words, "--fresh") || !strings.Contains(words, "try:   end the nodes by hand, and delete "+dir+";") {
				t.Errorf("%q, %v: exit %d\n%s", content, args, code, words)
			}
		}
	}
}

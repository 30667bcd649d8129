package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// cluster is three nodes that the tests started, and those that joined.
type cluster struct {
	t     *testing.T
	dir   string
	ports map[int]int // of each node, the first of three
	nodes map[int]*exec.Cmd
	logs  map[int]*bytes.Buffer
}

// newCluster starts three processes by properties files and waits until they are well.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	if os.Getenv("KEEPLOG_BINARY") == "" {
		t.Skip("KEEPLOG_BINARY does not name the server")
	}
	c := &cluster{t: t, dir: t.TempDir(), ports: map[int]int{}, nodes: map[int]*exec.Cmd{}, logs: map[int]*bytes.Buffer{}}
	var held []net.Listener
	for id := 1; id <= 4; id++ {
		c.ports[id] = threePorts(t, &held)
	}
	for _, l := range held {
		l.Close()
	}
	var voters []string
	for id := 1; id <= 3; id++ {
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", id, c.ports[id]+1))
	}
	for id := 1; id <= 4; id++ {
		p := c.ports[id]
		lines := fmt.Sprintf("node.id=%d\nlisteners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d,REPLICATION://127.0.0.1:%d\n"+
			"advertised.listeners=PLAINTEXT://127.0.0.1:%d\ncontroller.listener.names=CONTROLLER\ninter.broker.listener.name=REPLICATION\nlog.dirs=%s\n",
			id, p, p+1, p+2, p, filepath.Join(c.dir, fmt.Sprint(id)))
		if id < 4 {
			lines += "controller.quorum.voters=" + strings.Join(voters, ",") + "\n"
		}
		if err := os.WriteFile(c.file(id), []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for id := range c.nodes {
			c.kill(id)
		}
		if t.Failed() {
			for id, l := range c.logs {
				s := l.String()
				t.Logf("node %d:\n%s", id, s[max(0, len(s)-4000):])
			}
		}
	})
	for id := 1; id <= 3; id++ {
		c.start(id)
	}
	c.well()
	return c
}

// threePorts finds three free ports in a row and holds them.
func threePorts(t *testing.T, held *[]net.Listener) int {
	t.Helper()
	for range 200 {
		var three []net.Listener
		first, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		three = append(three, first)
		p := first.Addr().(*net.TCPAddr).Port
		for i := 1; i < 3; i++ {
			if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p+i)); err == nil {
				three = append(three, l)
			}
		}
		*held = append(*held, three...)
		if len(three) == 3 {
			return p
		}
	}
	t.Fatal("no three free ports in a row")
	return 0
}

func (c *cluster) file(id int) string {
	return filepath.Join(c.dir, fmt.Sprintf("node-%d.properties", id))
}

func (c *cluster) addresses() string {
	var out []string
	for id := 1; id <= 3; id++ {
		out = append(out, fmt.Sprintf("127.0.0.1:%d", c.ports[id]))
	}
	return strings.Join(out, ",")
}

// start starts a node and does not wait for it.
func (c *cluster) start(id int, more ...string) {
	c.t.Helper()
	cmd := exec.Command(os.Getenv("KEEPLOG_BINARY"), append([]string{"serve", "--config", c.file(id)}, more...)...)
	c.logs[id] = &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = c.logs[id], c.logs[id]
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.nodes[id] = cmd
}

func (c *cluster) kill(id int) {
	if cmd := c.nodes[id]; cmd != nil {
		cmd.Process.Signal(syscall.SIGKILL)
		cmd.Wait()
		delete(c.nodes, id)
	}
}

// run runs keeplog against the cluster; it must end with the status.
func (c *cluster) run(status int, args ...string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Getenv("KEEPLOG_BINARY"), append(args, "--brokers", c.addresses())...)
	out, err := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != status {
		c.t.Fatalf("keeplog %s: status %d, want %d: %v\n%s", strings.Join(args, " "), got, status, err, out)
	}
	return string(out)
}

// well waits until the cluster is.
func (c *cluster) well() {
	c.t.Helper()
	c.run(0, "cluster", "health", "--wait", "--timeout", "60s")
}

// eventually waits until the output of a command matches.
func (c *cluster) eventually(pattern string, args ...string) {
	c.t.Helper()
	c.eventuallyFails(0, pattern, args...)
}

// eventuallyFails waits until the output of a command that ends with the status matches.
func (c *cluster) eventuallyFails(status int, pattern string, args ...string) {
	c.t.Helper()
	re, out := regexp.MustCompile(pattern), ""
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); <-time.After(100 * time.Millisecond) {
		if out = c.run(status, args...); re.MatchString(out) {
			return
		}
	}
	c.t.Fatalf("keeplog %s: no match for %q in:\n%s", strings.Join(args, " "), pattern, out)
}

// TestNodesComeAndGo does what docs promise of a cluster by properties files: a fourth node joins, takes its share, votes, is drained and
// removed, and stays away; a node whose disk was wiped is refused with commands that bring it back, pasted as they are.
func TestNodesComeAndGo(t *testing.T) {
	c := newCluster(t)
	c.run(0, "topic", "create", "orders", "-p", "8")
	c.start(4, "--join", fmt.Sprintf("127.0.0.1:%d", c.ports[2]+1))
	c.eventually(`(?m)^4\s+up\s.*observer`, "cluster", "brokers")
	c.run(0, "cluster", "reassign", "--to", "1,2,3,4", "-y", "--wait", "--timeout", "60s", "--throttle", "50MiB")
	c.eventually(`(?m)^4\s+up\s.*\s6\s+6$`, "cluster", "brokers")
	if out := c.run(0, "topic", "describe", "orders"); strings.Contains(out, "throttled") {
		t.Errorf("a throttle stays when the moves are done:\n%s", out)
	}
	c.run(0, "cluster", "add", "4", "-y", "--timeout", "30s")
	c.eventually(`(?m)^4\s+voter`, "cluster", "info")
	c.run(0, "cluster", "drain", "4", "--wait", "--timeout", "30s")
	c.run(0, "cluster", "remove", "4", "-y", "--timeout", "60s")
	c.eventually(`brokers\s+3 brokers\n`, "cluster", "info")
	wants(t, "the members", c.run(0, "cluster", "info"), `(?m)^3\s+voter(.*\n)\z`)
	c.kill(4)
	c.start(4, "--join", fmt.Sprintf("127.0.0.1:%d", c.ports[2]+1))
	if err := c.nodes[4].Wait(); err == nil || !strings.Contains(c.logs[4].String(), "removed node 4") {
		t.Errorf("a node that was removed comes back: %v", err)
	}
	begun := time.Now()
	c.start(4) // as a node alone
	if err := c.nodes[4].Wait(); err == nil || !strings.Contains(c.logs[4].String(), "removed node 4") || time.Since(begun) > 10*time.Second {
		t.Errorf("a node that was removed, started without --join: %v after %v", err, time.Since(begun))
	}
	delete(c.nodes, 4)

	c.well()
	c.kill(3)
	if err := os.RemoveAll(filepath.Join(c.dir, "3")); err != nil {
		t.Fatal(err)
	}
	c.start(3)
	if err := c.nodes[3].Wait(); err == nil {
		t.Fatal("a node with a wiped disk serves")
	}
	delete(c.nodes, 3)
	commands := regexp.MustCompile(`(?s)\ntry:\s+(\S+) (cluster remove [^\n]*)\n\s+(\S+) (serve [^\n]*)\n`).FindStringSubmatch(c.logs[3].String())
	if commands == nil {
		t.Fatalf("no commands in:\n%s", c.logs[3].String())
	}
	command(t, nil, append(append([]string{os.Getenv("KEEPLOG_BINARY")}, strings.Fields(commands[2])...), "-y")...)
	again := strings.Fields(commands[4])
	if strings.Join(again[:3], " ") != "serve --config "+c.file(3) {
		t.Fatalf("not the command that was given: %s", commands[4])
	}
	c.start(3, again[3:]...)
	c.eventually(`(?m)^3\s+up\s.*voter.*\s8\s+8$`, "cluster", "brokers")
	c.well()
}

// TestReplaceAtOnce forgets the disk of a node that fell silent a moment ago, and so still counts as up: the command waits until it is missed.
func TestReplaceAtOnce(t *testing.T) {
	c := newCluster(t)
	c.well()
	if err := c.nodes[3].Process.Signal(syscall.SIGSTOP); err != nil { // a machine that lost its power refuses no dial
		t.Fatal(err)
	}
	c.run(0, "cluster", "remove", "3", "--replace", "-y", "--timeout", "30s")
	wants(t, "the voters", c.run(0, "cluster", "info"), `(?m)^1\s+voter(.*\n)2\s+voter(.*\n)\z`)
	c.kill(3)
}

// TestCommandsWithoutANode: with one node of three paused every command works, and soon.
func TestCommandsWithoutANode(t *testing.T) {
	c := newCluster(t)
	c.run(0, "topic", "create", "orders", "-p", "3")
	c.produce("orders", 1000)
	c.readWithGroups()
	c.eventually(`(?m)^3\s+up\s.*\s1\s+3\s+3$`, "cluster", "brokers")
	if err := c.nodes[3].Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.groupsSoon()
	wants(t, "brokers", c.within(8*time.Second, 0, "cluster", "brokers"), `(?m)^3\s+(silent|down)\s`, `(?m)^1\s+up\s`)
	wants(t, "health", c.within(8*time.Second, 3, "cluster", "health"), `broker 3 (at .* does not answer|is down)`)
	wants(t, "info", c.within(8*time.Second, 0, "cluster", "info"), `metadata  leader: node [12]`)
	wants(t, "list", c.within(8*time.Second, 0, "topic", "list"), `orders`)
	wants(t, "describe", c.within(10*time.Second, 0, "topic", "describe", "orders"), `(?m)^2 `)
	wants(t, "consume", c.within(20*time.Second, 0, "consume", "orders", "--exit"), `000`)
	wants(t, "create", c.within(20*time.Second, 0, "topic", "create", "more"), `created more`)
	wants(t, "alter", c.within(20*time.Second, 0, "topic", "alter", "more", "-c", "retention.ms=1000000"), `altered more`)
	wants(t, "reassign", c.within(8*time.Second, 0, "cluster", "reassign"), `no partition is on the move`)
}

// TestTwoOfThreeGone: what a live leader has is read, and everything else says soon why it does not work.
func TestTwoOfThreeGone(t *testing.T) {
	c := newCluster(t)
	c.run(0, "topic", "create", "orders", "-p", "3")
	for p := range 3 {
		c.produceTo("orders", p, 1000)
	}
	c.readWithGroups()
	c.eventually(`(?m)^1\s+up\s.*\s1\s+3\s+3$`, "cluster", "brokers")
	var mine, gone string // a partition that node 1 leads, and one that another does
	for p := range 3 {
		if m := regexp.MustCompile(fmt.Sprintf(`(?m)^%d +(\d) `, p)).FindStringSubmatch(c.run(0, "topic", "describe", "orders")); m[1] == "1" {
			mine = fmt.Sprint(p)
		} else {
			gone = fmt.Sprint(p)
		}
	}
	for _, id := range []int{2, 3} { // paused together, they are not missed one after the other
		if err := c.nodes[id].Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []int{2, 3} {
		c.kill(id)
	}
	c.groupsSoon()
	wants(t, "health", c.within(8*time.Second, 3, "cluster", "health"), `(?s)2.*3.*(does not answer|is down)`)
	c.eventuallyFails(3, `^no leader of the metadata: nothing can be changed`, "cluster", "health")
	wants(t, "info", c.within(8*time.Second, 0, "cluster", "info"), `metadata  no leader`)
	wants(t, "describe", c.within(10*time.Second, 0, "topic", "describe", "orders"), `(?m)^2 `)
	wants(t, "consume", c.within(20*time.Second, 3, "consume", "orders", "-p", mine, "--exit"), `000`, `its leader does not know now where the end is`)
	wants(t, "consume", c.within(20*time.Second, 4, "consume", "orders", "-p", gone, "--exit"), `LEADER_NOT_AVAILABLE \(its leader, broker [23], does not answer\)`, `try: .* cluster health`)
	wants(t, "consume", c.within(20*time.Second, 0, "consume", "orders", "-p", mine, "-n", "1"), `000`)
	for _, p := range []string{mine, gone} {
		out := c.within(25*time.Second, 4, "produce", "orders", "-p", p, "--timeout", "5s", c.file(1))
		wants(t, "produce", out, `(?m)^why:`, `try: .* cluster health`)
		if strings.Contains(out, "advertised.listeners") {
			t.Errorf("produce blames the addresses:\n%s", out)
		}
	}
	wants(t, "reassign", c.within(12*time.Second, 4, "cluster", "reassign"), `the metadata has no leader: nothing can be changed`)
	wants(t, "create", c.within(8*time.Second, 4, "topic", "create", "more"), `the metadata has no leader`, `try: .* cluster health`)
	wants(t, "delete", c.within(8*time.Second, 4, "topic", "delete", "orders", "-y"), `the metadata has no leader`, `try: .* cluster health`)
	c.start(2)
	c.start(3)
	c.well()
	c.produceTo("orders", 0, 1000)
}

// readWithGroups makes groups, more than there are nodes.
func (c *cluster) readWithGroups() {
	c.t.Helper()
	for i := range 5 {
		c.run(0, "consume", "orders", "-g", fmt.Sprintf("group-%d", i), "--exit")
	}
}

// groupsSoon asks about groups while a node does not answer: what is known is told within 6 s and what a busy machine needs, and what is not
// known is told where the exit code is not 0.
func (c *cluster) groupsSoon() {
	c.t.Helper()
	ask := [][]string{{"group", "list"}, {"group", "lag"}}
	for i := range 5 {
		for _, what := range []string{"lag", "describe", "explain"} {
			ask = append(ask, []string{"group", what, fmt.Sprintf("group-%d", i)})
		}
	}
	for _, args := range ask {
		begun := time.Now()
		out, err := exec.Command(os.Getenv("KEEPLOG_BINARY"), append(args, "--brokers", c.addresses())...).CombinedOutput()
		if took := time.Since(begun); took > 8*time.Second || err != nil && !regexp.MustCompile(`(?s)broker [23].*try: .* cluster health`).Match(out) {
			c.t.Errorf("keeplog %s took %s: %v\n%s", strings.Join(args, " "), took, err, out)
		}
	}
}

// within is run, which must not take longer than most.
func (c *cluster) within(most time.Duration, status int, args ...string) string {
	c.t.Helper()
	begun := time.Now()
	out := c.run(status, args...)
	if took := time.Since(begun); took > most {
		c.t.Errorf("keeplog %s took %s:\n%s", strings.Join(args, " "), took, out)
	}
	return out
}

// TestKafkaToolsOnACluster runs Apache Kafka's tools for clusters against three nodes, of which one is down for a while.
func TestKafkaToolsOnACluster(t *testing.T) {
	wantsKafkaTools(t)
	c := newCluster(t)
	server := []string{"--bootstrap-server", c.addresses()}
	tool := func(class string, args ...string) string {
		if class == "ClusterTool" { // takes them behind the verb, others before it
			return java(t, "", class, append(args, server...)...)
		}
		return java(t, "", class, append(server, args...)...)
	}
	wants(t, "create", tool("TopicCommand", "--create", "--topic", "t", "--partitions", "6", "--replication-factor", "3"), `Created topic t`)
	wants(t, "describe", tool("TopicCommand", "--describe", "--topic", "t"), `PartitionCount: 6\s+ReplicationFactor: 3`, `Partition: 5\s+Leader: [123]\s+Replicas: [123],[123],[123]\s+Isr: [123],[123],[123]`)
	wants(t, "quorum", tool("MetadataQuorumCommand", "describe", "--status"), `MaxFollowerLag:\s+\d`, `(?s)"id": 1.*"id": 2.*"id": 3.*CONTROLLER://127`)
	wants(t, "quorum", tool("MetadataQuorumCommand", "describe", "--replication"), `(?m)Leader\s*$`, `(?m)Follower\s*$`)
	wants(t, "cluster-id", tool("ClusterTool", "cluster-id"), `Cluster ID: \S{22}\n`)
	wants(t, "log-dirs", tool("LogDirsCommand", "--describe"), `"broker":1`, `"broker":2`, `"broker":3`)
	wants(t, "features", tool("FeatureCommand", "describe"), `eligible\.leader\.replicas\.version.*FinalizedVersionLevel: 1`)
	wants(t, "api-versions", tool("BrokerApiVersionsCommand"), `\(id: 1 `, `\(id: 2 `, `\(id: 3 `)

	tool("ConfigCommand", "--alter", "--entity-type", "brokers", "--entity-default", "--add-config", "log.retention.ms=1000000")
	tool("ConfigCommand", "--alter", "--entity-type", "brokers", "--entity-name", "2", "--add-config", "log.segment.bytes=2000000")
	wants(t, "configs", tool("ConfigCommand", "--describe", "--entity-type", "brokers"), `broker 2 are:\n\s+log\.segment\.bytes=2000000`, `cluster are:\n\s+log\.retention\.ms=1000000`)

	c.run(0, "topic", "create", "moving", "-p", "1", "-r", "1")
	c.run(0, "cluster", "reassign", "--replicas", "1", "moving", "-y", "--wait", "--timeout", "30s")
	c.produce("moving", 20_000_000)
	plan := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(plan, []byte(`{"version":1,"partitions":[{"topic":"moving","partition":0,"replicas":[2,3]}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	move := func(args ...string) string { return tool("reassign.ReassignPartitionsCommand", args...) }
	wants(t, "execute", move("--execute", "--reassignment-json-file", plan, "--throttle", "100000"), `Successfully started partition reassignment for moving-0`)
	wants(t, "list", move("--list"), `moving-0: replicas: 2,3,1\. adding: 2,3\. removing: 1\.`)
	wants(t, "verify", move("--verify", "--reassignment-json-file", plan), `moving-0 is still in progress`)
	wants(t, "cancel", move("--cancel", "--reassignment-json-file", plan), `Successfully cancelled partition reassignment for: moving-0`)
	wants(t, "throttles", tool("ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", "moving"), `are:\n\z`)
	move("--execute", "--reassignment-json-file", plan)
	c.eventually(`no partition is on the move`, "cluster", "reassign")
	wants(t, "verify", move("--verify", "--reassignment-json-file", plan), `moving-0 is completed`)

	c.kill(3)
	c.eventually(`(?m)^3\s+down`, "cluster", "brokers")
	wants(t, "under-replicated", tool("TopicCommand", "--describe", "--under-replicated-partitions", "--topic", "t"), `(?s)(Partition: \d.*){6}`)
	wants(t, "at min", tool("TopicCommand", "--describe", "--at-min-isr-partitions", "--topic", "t"), `(?s)(Partition: \d.*){6}`)
	wants(t, "unavailable", tool("TopicCommand", "--describe", "--unavailable-partitions"), `\A\s*\z`)
	wants(t, "list-endpoints", tool("ClusterTool", "list-endpoints", "--include-fenced-brokers"), `(?m)^3 .*\sfenced\s`, `(?m)^1 .*\sunfenced\s`)
	c.start(3)
	c.well()
	wants(t, "leader-election", tool("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions"), `Successfully completed leader election \(PREFERRED\) for partitions .*t-\d`)
	wants(t, "unclean election", tool("LeaderElectionCommand", "--election-type", "unclean", "--topic", "t", "--partition", "0"), `Valid replica already elected`)
	c.kill(3)
	c.eventually(`(?m)^3\s+down`, "cluster", "brokers")
	wants(t, "unregister", tool("ClusterTool", "unregister", "--id", "3"), `Broker 3 is no longer registered`)
	c.start(3)
	c.well()
}

// produce writes that many bytes that cannot be compressed to partition 0 of a topic.
func (c *cluster) produce(topic string, size int) {
	c.t.Helper()
	c.produceTo(topic, 0, size)
}

func (c *cluster) produceTo(topic string, partition, size int) {
	c.t.Helper()
	var in bytes.Buffer
	e := json.NewEncoder(&in)
	for n := 0; in.Len() < size; n++ {
		e.Encode(strings.Repeat(fmt.Sprint(n), 150))
	}
	command(c.t, &in, os.Getenv("KEEPLOG_BINARY"), "produce", topic, "-p", fmt.Sprint(partition), "-z", "none", "--brokers", c.addresses())
}

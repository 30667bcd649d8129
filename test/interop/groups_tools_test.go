package interop

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// manyTools runs Apache Kafka's tools in one process.
type manyTools struct {
	t   *testing.T
	in  *bufio.Writer
	out *bufio.Scanner
}

func newManyTools(t *testing.T) *manyTools {
	t.Helper()
	wantsKafkaTools(t)
	need(t, "java", installed("javac"))
	path, _ := kafkaTools()
	args := javaArgs(path, "")
	cmd := exec.Command("java", append(args[:len(args)-1], filepath.Join("java", "Tools.java"))...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		ended := time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() })
		cmd.Wait()
		ended.Stop()
	})
	return &manyTools{t: t, in: bufio.NewWriter(in), out: bufio.NewScanner(out)}
}

// run runs a tool, which must end with the status, and returns what it printed.
func (m *manyTools) run(status int, class string, args ...string) string {
	m.t.Helper()
	fmt.Fprintln(m.in, strings.Join(append([]string{class}, args...), "\t"))
	if err := m.in.Flush(); err != nil {
		m.t.Fatal(err)
	}
	var b strings.Builder
	for m.out.Scan() {
		if s, ok := strings.CutPrefix(m.out.Text(), "\x01 "); ok {
			if s != fmt.Sprint(status) {
				m.t.Errorf("%s %s: status %s, want %d:\n%s", class, strings.Join(args, " "), s, status, b.String())
			}
			return b.String()
		}
		fmt.Fprintln(&b, m.out.Text())
	}
	m.t.Fatalf("%s %s: the process ended:\n%s", class, strings.Join(args, " "), b.String())
	return ""
}

// toolsTest is a topic of two partitions with a record each ten minutes in the last ten hours, and a group that has no members.
type toolsTest struct {
	*manyTools
	topic, group string
	began        time.Time
	admin        *kadm.Client
}

const toolsRecords = 60

func newToolsTest(t *testing.T) *toolsTest {
	x := &toolsTest{manyTools: newManyTools(t), began: time.Now().Add(-toolsRecords * 10 * time.Minute).Truncate(time.Second), admin: kadm.NewClient(franz(t))}
	x.topic = fmt.Sprintf("tools.%d", time.Now().UnixNano())
	x.group = "g." + x.topic
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if _, err := x.admin.CreateTopic(ctx, 2, 1, nil, x.topic); err != nil {
		t.Fatal(err)
	}
	c := franz(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(x.topic))
	var rs []*kgo.Record
	for i := range toolsRecords * 2 {
		rs = append(rs, &kgo.Record{Partition: int32(i % 2), Value: []byte("v"), Timestamp: x.began.Add(time.Duration(i/2) * 10 * time.Minute)})
	}
	if err := c.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	x.commit(10, 20)
	return x
}

// commit sets the group's offsets as somebody who is no member.
func (x *toolsTest) commit(at ...int64) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var os kadm.Offsets
	for p, o := range at {
		os.Add(kadm.Offset{Topic: x.topic, Partition: int32(p), At: o, LeaderEpoch: -1})
	}
	if err := x.admin.CommitAllOffsets(ctx, x.group, os); err != nil {
		x.t.Fatal(err)
	}
}

// at demands the committed offsets of both partitions, −1 for none.
func (x *toolsTest) at(what string, want ...int64) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	offsets, err := x.admin.FetchOffsetsForTopics(ctx, x.group, x.topic)
	if err != nil {
		x.t.Fatal(err)
	}
	for p, w := range want {
		if o, _ := offsets.Lookup(x.topic, int32(p)); o.At != w || o.Err != nil {
			x.t.Errorf("%s: partition %d is at %d (%v), want %d", what, p, o.At, o.Err, w)
		}
	}
}

func (x *toolsTest) groups(status int, args ...string) string {
	x.t.Helper()
	return x.run(status, "consumer.group.ConsumerGroupCommand", append([]string{"--bootstrap-server", addr}, args...)...)
}

func (x *toolsTest) describe(args ...string) string {
	x.t.Helper()
	return x.groups(0, append([]string{"--describe", "--group", x.group}, args...)...)
}

func (x *toolsTest) reset(args ...string) string {
	x.t.Helper()
	return x.groups(0, append([]string{"--reset-offsets", "--group", x.group}, args...)...)
}

// row is a pattern of a line of words.
func row(words ...any) string {
	for i, w := range words {
		words[i] = strings.ReplaceAll(fmt.Sprint(w), ".", `\.`)
	}
	return `(?m)^` + strings.Join(strings.Fields(fmt.Sprint(fmt.Sprintln(words...))), `\s+`) + `\s*$`
}

// TestKafkaGroupTools runs Apache Kafka's tools for groups.
func TestKafkaGroupTools(t *testing.T) {
	x := newToolsTest(t)
	x.withoutMembers()
	x.resets()
	x.withMembers("classic")
	x.withMembers("consumer")
	x.consumers()
	x.deletes()
}

func (x *toolsTest) withoutMembers() {
	t := x.t
	t.Helper()
	wants(t, "list", x.groups(0, "--list"), row(x.group))
	wants(t, "list --state", x.groups(0, "--list", "--state"), row("GROUP", "STATE"), row(x.group, "Empty"))
	wants(t, "list --state empty", x.groups(0, "--list", "--state", "empty"), row(x.group, "Empty"))
	wants(t, "list --type", x.groups(0, "--list", "--type"), row(x.group, "Classic"))
	if out := x.groups(0, "--list", "--type", "consumer"); strings.Contains(out, x.group) {
		t.Errorf("it is listed as a group of the consumer protocol:\n%s", out)
	}
	wants(t, "describe", x.describe(), `Consumer group '.*' has no active members\.`, row("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"),
		row(x.group, x.topic, 0, 10, 60, 50, "-", "-", "-"), row(x.group, x.topic, 1, 20, 60, 40, "-", "-", "-"))
	wants(t, "describe --members", x.describe("--members"), `Consumer group '.*' has no active members\.`)
	wants(t, "describe --state", x.describe("--state"), `(?m)^\S+\s+`+addr+`\s+\(1\)\s+-\s+Empty\s+0\s*$`)
	wants(t, "describe what is not there", x.groups(0, "--describe", "--group", "none."+x.topic), `GroupIdNotFoundException: Group none\.\S+ not found\.`)
	wants(t, "groups", x.run(0, "GroupsCommand", "--bootstrap-server", addr, "--list"), row("GROUP", "TYPE", "PROTOCOL"), `(?m)^`+x.group+`\s+Classic\s*`)
	wants(t, "groups --consumer", x.run(0, "GroupsCommand", "--bootstrap-server", addr, "--list", "--consumer"), `(?m)^`+x.group+`\s+Classic\s*`)
}

// resets sets offsets in all eight ways; without --execute nothing changes.
func (x *toolsTest) resets() {
	t := x.t
	t.Helper()
	all := []string{"--topic", x.topic}
	with := func(scope []string, args ...string) []string { return append(append([]string{}, scope...), args...) }
	wants(t, "a dry run", x.reset(with(all, "--to-earliest", "--dry-run")...), row(x.group, x.topic, 1, 0))
	x.at("after a dry run", 10, 20)
	wants(t, "--to-earliest", x.reset(with(all, "--to-earliest", "--execute")...), row("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), row(x.group, x.topic, 0, 0), row(x.group, x.topic, 1, 0))
	x.at("--to-earliest", 0, 0)
	x.reset(with(all, "--to-latest", "--execute")...)
	x.at("--to-latest", 60, 60)
	x.reset("--topic", x.topic+":0", "--to-offset", "7", "--execute")
	x.at("--to-offset of one partition", 7, 60)
	exported := x.reset("--all-topics", "--to-current", "--export", "--dry-run")
	wants(t, "--export", exported, `(?m)^"?`+x.topic+`"?,0,7$`, `(?m)^"?`+x.topic+`"?,1,60$`)
	x.reset(with(all, "--shift-by", "-5", "--execute")...)
	x.at("--shift-by -5", 2, 55)
	x.reset(with(all, "--shift-by", "30", "--execute")...)
	x.at("--shift-by, one beyond the end", 32, 60)
	file := filepath.Join(t.TempDir(), "plan.csv")
	if err := os.WriteFile(file, []byte(strings.TrimSpace(exported)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	x.reset("--from-file", file, "--execute")
	x.at("--from-file", 7, 60)
	x.reset(with(all, "--to-datetime", x.began.Add(25*10*time.Minute+5*time.Minute).UTC().Format("2006-01-02T15:04:05.000Z"), "--execute")...)
	x.at("--to-datetime", 26, 26)
	x.reset(with(all, "--by-duration", "PT5H5M", "--execute")...)
	x.at("--by-duration", 30, 30)
	x.reset(with(all, "--to-datetime", time.Now().Add(time.Hour).UTC().Format("2006-01-02T15:04:05.000Z"), "--execute")...)
	x.at("--to-datetime behind the last", 60, 60)
	x.reset("--all-topics", "--to-current", "--execute")
	x.at("--to-current", 60, 60)
	fresh := "fresh." + x.topic
	wants(t, "a group that is not there", x.groups(0, "--reset-offsets", "--group", fresh, "--topic", x.topic, "--to-latest", "--execute"), row(fresh, x.topic, 1, 60))
	x.commit(60, 60)
}

// withMembers looks at a group that has one, and tries what is refused as long as it has.
func (x *toolsTest) withMembers(kind string) {
	t := x.t
	t.Helper()
	opts := []kgo.Opt{kgo.ClientID("somebody"), kgo.InstanceID("static-" + kind)}
	strategy := "range"
	if kind == "consumer" {
		opts, strategy = append(opts, kgo.ServerSideBalancer()), "(uniform|range)"
	}
	g := &groupTest{t: t, c: groupClient{kind: kind, join: franzJoin(opts...)}, topic: x.topic, group: x.group, admin: x.admin, end: toolsRecords}
	_, stop := g.join()
	for end := time.Now().Add(groupPatience); ; <-time.After(100 * time.Millisecond) {
		if state, by := g.owners(); state == "Stable" && len(by) == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%s: the group does not settle: %s", kind, g.members())
		}
	}
	name := strings.ToUpper(kind[:1]) + kind[1:]
	wants(t, "list --state --type", x.groups(0, "--list", "--state", "--type"), row(x.group, name, "Stable"))
	wants(t, "describe --offsets", x.describe("--offsets"), `(?m)^`+x.group+`\s+`+x.topic+`\s+1\s+60\s+60\s+0\s+\S+\s+/127\.0\.0\.1\s+somebody\s*$`)
	wants(t, "describe --members", x.describe("--members"), `(?m)^`+x.group+`\s+\S+\s+static-`+kind+`\s+/127\.0\.0\.1\s+somebody\s+2\s*$`)
	wants(t, "describe --members --verbose", x.describe("--members", "--verbose"), `(?m)somebody\s+2\s.*`+x.topic+`:0,1`)
	wants(t, "describe --state", x.describe("--state"), `\(1\)\s+`+strategy+`\s+Stable\s+1\s*\n`)
	wants(t, "describe --state --verbose", x.describe("--state", "--verbose"), `\(1\)\s+`+strategy+`\s+Stable\s+`)
	wants(t, "reset with a member", x.groups(0, "--reset-offsets", "--group", x.group, "--topic", x.topic, "--to-earliest", "--execute"), `can only be reset if the group '\S+' is inactive, but the current state is Stable`)
	wants(t, "delete with a member", x.groups(0, "--delete", "--group", x.group), `GroupNotEmptyException`)
	wants(t, "delete-offsets with a member", x.groups(0, "--delete-offsets", "--group", x.group, "--topic", x.topic), `GroupSubscribedToTopicException`)
	x.at("what was refused", 60, 60)
	stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := x.admin.LeaveGroup(ctx, kadm.LeaveGroup(x.group).InstanceIDs("static-"+kind)); err != nil { // static members stay
		t.Error(err)
	}
}

// consumers runs the tools that read with groups.
func (x *toolsTest) consumers() {
	t := x.t
	t.Helper()
	wants(t, "consumer-perf", x.run(0, "ConsumerPerformance", "--bootstrap-server", addr, "--topic", x.topic, "--num-records", "120", "--group", "perf."+x.topic, "--timeout", "20000"),
		`(?m)^\d{4}-.*, 120, `)
	for _, protocol := range []string{"classic", "consumer"} {
		group := protocol + "." + x.topic
		out := x.run(0, "VerifiableConsumer", "--bootstrap-server", addr, "--topic", x.topic, "--group-id", group, "--group-protocol", protocol, "--max-messages", "120", "--verbose")
		wants(t, "verifiable-consumer", out, `"name":"partitions_assigned"`, `"name":"offsets_committed"`, `"name":"records_consumed"`, `"name":"shutdown_complete"`)
		if n := strings.Count(out, `"name":"record_data"`); n != 120 {
			t.Errorf("verifiable-consumer, %s: %d records, want 120", protocol, n)
		}
		wants(t, "describe", x.groups(0, "--describe", "--group", group), `(?m)^`+group+`\s+`+x.topic+`\s+0\s+60\s+60\s+0\s`)
	}
}

func (x *toolsTest) deletes() {
	t := x.t
	t.Helper()
	wants(t, "delete-offsets", x.groups(0, "--delete-offsets", "--group", x.group, "--topic", x.topic+":0"), `Request succeeded for deleting offsets`, row(x.topic, 0, "Successful"))
	x.at("delete-offsets", -1, 60)
	wants(t, "delete", x.groups(0, "--delete", "--group", x.group), `Deletion of requested consumer groups \('`+x.group+`'\) was successful\.`)
	x.at("delete", -1, -1)
	wants(t, "delete again", x.groups(0, "--delete", "--group", x.group), `(GroupIdNotFoundException|does not exist)`)
	if out := x.groups(0, "--list"); strings.Contains(out, x.group+"\n") {
		t.Errorf("a group that was deleted is listed:\n%s", out)
	}
}

package interop

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

// franzJoin is a member of franz-go.
func franzJoin(opts ...kgo.Opt) func(t *testing.T, topic, group string, in *inbox) func() {
	return func(t *testing.T, topic, group string, in *inbox) func() {
		t.Helper()
		c, err := kgo.NewClient(append([]kgo.Opt{
			kgo.SeedBrokers(addr), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.DisableAutoCommit(), kgo.Balancers(kgo.RangeBalancer()), kgo.FetchMaxWait(time.Second),
		}, opts...)...)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				f := c.PollFetches(ctx)
				if ctx.Err() != nil || f.IsClientClosed() {
					return
				}
				for _, e := range f.Errors() {
					t.Errorf("franz-go: %v", e.Err)
				}
				f.EachRecord(func(r *kgo.Record) { in.add(r.Partition, r.Offset) })
				if err := c.CommitUncommittedOffsets(context.WithoutCancel(ctx)); err != nil { // what the test has seen is committed, also when it stops now
					t.Errorf("franz-go: commit: %v", err)
				}
			}
		}()
		return leaves(t, func() {
			cancel()
			<-done
			c.Close()
		})
	}
}

// leaves makes stop run once, by the test or by its end.
func leaves(t *testing.T, stop func()) func() {
	once := sync.OnceFunc(stop)
	t.Cleanup(once)
	return once
}

// saramaMember hands what sarama claims to the inbox.
type saramaMember struct{ in *inbox }

func (saramaMember) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (saramaMember) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m saramaMember) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for msg := range c.Messages() {
		m.in.add(msg.Partition, msg.Offset)
		s.MarkMessage(msg, "")
	}
	return nil
}

func saramaJoin(t *testing.T, topic, group string, in *inbox) func() {
	t.Helper()
	conf := saramaConfig()
	conf.Consumer.Offsets.Initial = sarama.OffsetOldest
	conf.Consumer.Group.Heartbeat.Interval = time.Second
	g, err := sarama.NewConsumerGroup([]string{addr}, group, conf)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := g.Consume(ctx, []string{topic}, saramaMember{in}); err != nil && !errors.Is(err, sarama.ErrClosedConsumerGroup) {
				t.Errorf("sarama: %v", err)
				return
			}
		}
	}()
	return leaves(t, func() {
		cancel()
		<-done
		if err := g.Close(); err != nil {
			t.Errorf("sarama: close: %v", err)
		}
	})
}

func kafkaGoJoin(t *testing.T, topic, group string, in *inbox) func() {
	t.Helper()
	r := kafkago.NewReader(kafkago.ReaderConfig{
		Brokers: []string{addr}, GroupID: group, Topic: topic, StartOffset: kafkago.FirstOffset, MaxWait: 500 * time.Millisecond,
		HeartbeatInterval: time.Second,
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			m, err := r.FetchMessage(ctx)
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("kafka-go: %v", err)
				}
				return
			}
			in.add(int32(m.Partition), m.Offset)
			if err := r.CommitMessages(context.Background(), m); err != nil {
				t.Errorf("kafka-go: commit: %v", err)
			}
		}
	}()
	return leaves(t, func() {
		cancel()
		<-done
		r.Close()
	})
}

// member is a program that reads with a group and prints a line for each record, which the pattern takes to partition and offset. SIGTERM
// makes it commit and leave.
type memberProgram struct {
	args []string
	line *regexp.Regexp
}

var plainLine = regexp.MustCompile(`^(\d+) (\d+)`)

// processJoin runs a member that is a program.
func processJoin(program func(topic, group string) memberProgram) func(t *testing.T, topic, group string, in *inbox) func() {
	return func(t *testing.T, topic, group string, in *inbox) func() {
		t.Helper()
		p := program(topic, group)
		cmd := exec.Command(p.args[0], p.args[1:]...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var errs bytes.Buffer
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if m := p.line.FindStringSubmatch(lines.Text()); m != nil {
					partition, _ := strconv.ParseInt(m[1], 10, 32)
					offset, _ := strconv.ParseInt(m[2], 10, 64)
					in.add(int32(partition), offset)
				}
			}
		}()
		return leaves(t, func() {
			cmd.Process.Signal(syscall.SIGTERM)
			killed := time.AfterFunc(30*time.Second, func() {
				t.Errorf("%s did not leave within 30 s", p.args[0])
				cmd.Process.Kill()
			})
			<-done
			cmd.Wait() // the status is the program's own affair
			killed.Stop()
			if t.Failed() {
				t.Logf("%s said:\n%s", p.args[0], errs.String())
			}
		})
	}
}

func missingKcat() string {
	if installed("kcat") {
		return ""
	}
	return "kcat"
}

func kcatMember(topic, group string) memberProgram {
	return memberProgram{[]string{
		"kcat", "-b", addr, "-q", "-u", "-f", "%p %o\n", "-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=1000", "-G", group, topic,
	}, plainLine}
}

func missingPython(pkg, module string) func() string {
	return func() string {
		if pythonHas(module) {
			return ""
		}
		return pkg
	}
}

func pythonMember(script string) func(topic, group string) memberProgram {
	return func(topic, group string) memberProgram {
		return memberProgram{[]string{systemPython, "-u", filepath.Join("scripts", script), addr, topic, group}, plainLine}
	}
}

func missingKafkaJS() string {
	if _, err := os.Stat(filepath.Join("scripts", "node_modules", "kafkajs")); err != nil || !installed("node") {
		return "kafkajs"
	}
	return ""
}

func kafkaJSMember(topic, group string) memberProgram {
	return memberProgram{[]string{"node", filepath.Join("scripts", "kafkajs_group.js"), addr, topic, group}, plainLine}
}

func missingJava() string {
	if installed("java") && installed("mvn") {
		if _, err := kafkaTools(); err == nil {
			return ""
		}
	}
	return "java"
}

// javaMember is Kafka's console consumer.
func javaMember(protocol string) func(topic, group string) memberProgram {
	return func(topic, group string) memberProgram {
		path, _ := kafkaTools()
		args := append([]string{"java"}, javaArgs(path, "consumer.ConsoleConsumer")...)
		args = append(args, "--bootstrap-server", addr, "--topic", topic, "--group", group, "--command-property", "group.protocol="+protocol,
			"--command-property", "auto.offset.reset=earliest", "--formatter-property", "print.partition=true", "--formatter-property", "print.offset=true")
		return memberProgram{args, regexp.MustCompile(`^Partition:(\d+)\tOffset:(\d+)`)}
	}
}

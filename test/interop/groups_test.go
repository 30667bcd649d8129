package interop

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestGroups has each client read a topic as the member of a group, in two goes: the second one begins where the first has committed.
func TestGroups(t *testing.T) {
	for _, c := range groupClients {
		t.Run(c.name, func(t *testing.T) {
			topic := newTopic(t)
			var want []string
			w := franz(t, kgo.DefaultProduceTopic(topic))
			for i := range 20 {
				want = append(want, fmt.Sprintf("value-%d", i))
				if err := w.ProduceSync(t.Context(), kgo.StringRecord(want[i])).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			got := append(c.read(t, topic, 12), c.read(t, topic, 8)...)
			if a, b := strings.Join(got, " "), strings.Join(want, " "); a != b {
				t.Errorf("it read\n%s, want\n%s", a, b)
			}
		})
	}
}

// groupClients read n records as a member of the group that is named as the topic, commit what they have read, and leave.
var groupClients = []struct {
	name string
	read func(t *testing.T, topic string, n int) []string
}{
	{"franz-go", franzGroup()},
	{"franz-go-consumer", franzGroup(kgo.ServerSideBalancer())},
	{"kcat", func(t *testing.T, topic string, n int) []string {
		need(t, "kcat", installed("kcat"))
		return strings.Fields(command(t, nil, "kcat", "-b", addr, "-q", "-G", topic, "-c", fmt.Sprint(n), "-X", "auto.offset.reset=earliest", topic))
	}},
	{"python3-kafka", pythonGroup("kafka", "kafka_python_group.py")},
	{"python3-confluent-kafka", pythonGroup("confluent_kafka", "confluent_group.py")},
	{"java-classic", javaGroup("classic")},
	{"java-consumer", javaGroup("consumer")},
}

func franzGroup(opts ...kgo.Opt) func(*testing.T, string, int) []string {
	return func(t *testing.T, topic string, n int) (got []string) {
		c := franz(t, append(opts, kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())...)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for len(got) < n {
			f := c.PollRecords(ctx, n-len(got))
			if err := f.Err0(); err != nil {
				t.Fatal(err)
			}
			for _, r := range f.Records() {
				got = append(got, string(r.Value))
			}
			if err := c.CommitRecords(ctx, f.Records()...); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.LeaveGroupContext(ctx); err != nil {
			t.Fatal(err)
		}
		return got
	}
}

func pythonGroup(module, script string) func(*testing.T, string, int) []string {
	return func(t *testing.T, topic string, n int) []string {
		need(t, "python3-"+strings.ReplaceAll(module, "_", "-"), pythonHas(module))
		return strings.Fields(command(t, nil, systemPython, filepath.Join("scripts", script), addr, topic, fmt.Sprint(n)))
	}
}

func javaGroup(protocol string) func(*testing.T, string, int) []string {
	return func(t *testing.T, topic string, n int) []string {
		wantsKafkaTools(t)
		return strings.Fields(java(t, "", "consumer.ConsoleConsumer", "--bootstrap-server", addr, "--topic", topic, "--group", topic, "--from-beginning",
			"--max-messages", fmt.Sprint(n), "--timeout-ms", "40000", "--command-property", "group.protocol="+protocol))
	}
}

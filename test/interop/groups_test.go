package interop

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// outcome runs a program that is expected to end by itself, well before it is stopped, and returns all that it said.
func outcome(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var all bytes.Buffer
	cmd.Stdout, cmd.Stderr = &all, &all
	_ = cmd.Run() // the status is the program's own affair
	if ctx.Err() != nil {
		t.Errorf("%s did not end:\n%s", args[0], all.String())
	}
	return all.String()
}

// TestGroupsAreRefused asks for a consumer group with each client: it ends or reports at once, and names the cause.
func TestGroupsAreRefused(t *testing.T) {
	topic := newTopic(t)
	t.Run("franz-go", func(t *testing.T) {
		c := franz(t, kgo.ConsumerGroup("g"), kgo.ConsumeTopics(topic))
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := c.PollFetches(ctx).Err0(); !errors.Is(err, kerr.UnsupportedVersion) {
			t.Errorf("it reports %v", err)
		}
	})
	t.Run("kcat", func(t *testing.T) {
		need(t, "kcat", installed("kcat"))
		wants(t, "kcat -G", outcome(t, "kcat", "-b", addr, "-G", "g", topic), "JoinGroup failed: .*not supported")
	})
	for _, c := range []struct{ pkg, module, script, says string }{
		{"python3-kafka", "kafka", "kafka_python_group.py", "UnsupportedVersionError"},
		{"python3-confluent-kafka", "confluent_kafka", "confluent_group.py", "UNSUPPORTED_VERSION"},
	} {
		t.Run(c.pkg, func(t *testing.T) {
			need(t, c.pkg, pythonHas(c.module))
			wants(t, c.script, outcome(t, systemPython, filepath.Join("scripts", c.script), addr, topic), c.says)
		})
	}
	t.Run("java", func(t *testing.T) {
		wantsKafkaTools(t)
		path, _ := kafkaTools()
		args := append([]string{"java"}, javaArgs(path, "consumer.ConsoleConsumer")...)
		wants(t, "the console consumer", outcome(t, append(args, "--bootstrap-server", addr, "--topic", topic, "--group", "g")...), "UnsupportedVersionException")
	})
}

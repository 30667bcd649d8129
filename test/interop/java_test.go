package interop

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// kafkaTools is the class path of Apache Kafka's tools, resolved once by Maven from java/pom.xml.
var kafkaTools = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	file := filepath.Join(cache, "keeplog-interop", "kafka-4.4.0.classpath")
	if b, err := os.ReadFile(file); err == nil && len(b) > 0 {
		return strings.TrimSpace(string(b)), nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	out, err := exec.Command("mvn", "-q", "-B", "-f", filepath.Join("java", "pom.xml"), "dependency:build-classpath", "-Dmdep.outputFile="+file).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	b, err := os.ReadFile(file)
	return strings.TrimSpace(string(b)), err
})

// javaArgs starts one of Kafka's tools.
func javaArgs(path, class string) []string {
	return []string{
		"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", path,
		"org.apache.kafka.tools." + class,
	}
}

// java runs one of Kafka's tools and returns its standard output; it must end with status 0.
func java(t *testing.T, stdin, class string, args ...string) string {
	t.Helper()
	path, err := kafkaTools()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "java", append(javaArgs(path, class), args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", class, strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String()
}

func wants(t *testing.T, what, out string, patterns ...string) {
	t.Helper()
	for _, p := range patterns {
		if !regexp.MustCompile(p).MatchString(out) {
			t.Errorf("%s: no match for %q in:\n%s", what, p, out)
		}
	}
}

// wantsKafkaTools skips or fails the test where Kafka's tools cannot be had.
func wantsKafkaTools(t *testing.T) {
	t.Helper()
	need(t, "java", installed("java") && installed("mvn"))
	if _, err := kafkaTools(); err != nil {
		t.Log(err)
		need(t, "java", false)
	}
}

// TestDumpsAgree lets Apache Kafka's own dump tool and ours read the same files, and compares what they print: the golden directories, written by
// Kafka and by keeplog, and partitions that the running server has just written.
func TestDumpsAgree(t *testing.T) {
	wantsKafkaTools(t)
	path, _ := kafkaTools()
	formats, err := filepath.Abs(filepath.Join("..", "..", "testdata", "format"))
	if err != nil {
		t.Fatal(err)
	}
	dirs := []string{filepath.Join(formats, "kafka-4.4"), filepath.Join(formats, "keeplog-1")}
	if dataDir != "" {
		for _, codec := range codecs {
			t.Run(codec, func(t *testing.T) {
				topic := newTopic(t, "segment.bytes", "1048576")
				franzWrite(t, topic, codec, payload(3000))
				dirs = append(dirs, filepath.Join(dataDir, topic+"-0"))
			})
		}
	}
	cmd := exec.Command("go", "test", "-count=1", "-v", "-run", "^TestLikeKafkasTool$", "./internal/dump")
	cmd.Dir = filepath.Join("..", "..")
	tool := append([]string{"java"}, javaArgs(path, "DumpLogSegments")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "KEEPLOG_KAFKA_TOOL="+strings.Join(tool, " "), "KEEPLOG_DUMP_DIRS="+strings.Join(dirs, " "))
	out, err := cmd.CombinedOutput()
	wants(t, "the comparison", string(out), `\d{2,} files, \d{4,} lines agree`)
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestKafkaTools runs Apache Kafka's own tools against the server.
func TestKafkaTools(t *testing.T) {
	wantsKafkaTools(t)
	topic := fmt.Sprintf("kafka-tools-%d", time.Now().UnixNano())
	server := []string{"--bootstrap-server", addr}
	tool := func(stdin, class string, args ...string) string {
		return java(t, stdin, class, append(server, args...)...)
	}

	tool("", "TopicCommand", "--create", "--topic", topic, "--partitions", "2", "--replication-factor", "1", "--config", "retention.ms=3600000")
	wants(t, "topics --describe", tool("", "TopicCommand", "--describe", "--topic", topic),
		`PartitionCount: 2\s+ReplicationFactor: 1`, `retention\.ms=3600000`, `Partition: 1\s+Leader: 1\s+Replicas: 1\s+Isr: 1`)
	wants(t, "topics --list", tool("", "TopicCommand", "--list"), regexp.QuoteMeta(topic))

	in := text(500)
	tool(in, "ConsoleProducer", "--topic", topic+"-c", "--command-property", "acks=all")
	out := tool("", "consumer.ConsoleConsumer", "--topic", topic+"-c", "--partition", "0", "--offset", "earliest", "--max-messages", "500", "--timeout-ms", "15000")
	if sum(out) != sum(in) {
		t.Errorf("the console consumer read %d bytes that differ from the %d written", len(out), len(in))
	}
	for _, codec := range codecs {
		tool(in, "ConsoleProducer", "--topic", topic+"-"+codec, "--compression-codec", codec)
		storedIn(t, "the console producer", codec, storedCodecs(t, topic+"-"+codec, 0, 500))
	}
	wants(t, "get-offsets", tool("", "GetOffsetShell", "--topic", topic+"-c"), regexp.QuoteMeta(topic+"-c:0:500"))

	tool("", "ConfigCommand", "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", "retention.bytes=12345678")
	wants(t, "configs --describe", tool("", "ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", topic), `retention\.bytes=12345678`)
	wants(t, "configs of the broker", tool("", "ConfigCommand", "--describe", "--all", "--entity-type", "brokers", "--entity-name", "1"), `log\.segment\.bytes=`)
	wants(t, "log-dirs", tool("", "LogDirsCommand", "--describe", "--topic-list", topic), `"partition":"`+regexp.QuoteMeta(topic)+`-1"`)

	offsets := filepath.Join(t.TempDir(), "offsets.json")
	if err := os.WriteFile(offsets, fmt.Appendf(nil, `{"version":1,"partitions":[{"topic":%q,"partition":0,"offset":123}]}`, topic+"-c"), 0o600); err != nil {
		t.Fatal(err)
	}
	wants(t, "delete-records", tool("", "DeleteRecordsCommand", "--offset-json-file", offsets), `low_watermark: 123`)
	wants(t, "get-offsets earliest", tool("", "GetOffsetShell", "--topic", topic+"-c", "--time", "earliest"), regexp.QuoteMeta(topic+"-c:0:123"))

	perf := java(t, "", "ProducerPerformance", "--topic", topic, "--num-records", "20000", "--record-size", "500", "--throughput", "-1",
		"--command-property", "bootstrap.servers="+addr, "acks=all")
	wants(t, "producer-perf", perf, `20000 records sent`)
	tool("", "TopicCommand", "--delete", "--topic", topic)
	if out := tool("", "TopicCommand", "--list"); strings.Contains(out, topic+"\n") {
		t.Errorf("the topic is still listed after its deletion:\n%s", out)
	}
}

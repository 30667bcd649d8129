package config

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func mustLoad(t *testing.T, in Input) (*Broker, []Problem) {
	t.Helper()
	b, warnings, err := Load(in)
	if err != nil {
		t.Fatal(err)
	}
	return b, warnings
}

func TestPrecedence(t *testing.T) {
	in := Input{
		File:    "s.properties",
		Content: []byte("num.partitions=2\nlog.segment.bytes=2000000\nfetch.max.bytes=2000\nbroker.rack = a\n"),
		Env:     []string{"KAFKA_LOG_SEGMENT_BYTES=3000000", "KAFKA_FETCH_MAX_BYTES=3000", "KEEPLOG_BROKER_RACK=b", "HOME=/x"},
		Set:     []string{"fetch.max.bytes=4000", "broker.rack=c"},
		Flags:   []Flag{{Name: "--rack", Key: "broker.rack", Value: "d"}},
	}
	b, warnings := mustLoad(t, in)
	if len(warnings) > 0 {
		t.Errorf("warnings: %v", warnings)
	}
	for _, c := range []struct{ key, text, origin string }{
		{"num.partitions", "2", "s.properties:1"},
		{"log.segment.bytes", "3000000", "KAFKA_LOG_SEGMENT_BYTES"},
		{"fetch.max.bytes", "4000", "--set"},
		{"broker.rack", "d", "--rack"},
		{"message.max.bytes", "1048588", "default"},
	} {
		v := b.Get(c.key)
		if v.Text != c.text || v.Origin != c.origin {
			t.Errorf("%s is %q from %s, want %q from %s", c.key, v.Text, v.Origin, c.text, c.origin)
		}
	}
	want := []string{"broker.rack=d", "fetch.max.bytes=4000", "log.segment.bytes=3000000", "num.partitions=2"}
	if diff := cmp.Diff(want, b.NonDefault()); diff != "" {
		t.Errorf("values that differ from the defaults (-want +got):\n%s", diff)
	}
}

func TestEnvironment(t *testing.T) {
	b, warnings := mustLoad(t, Input{Env: []string{
		"KEEPLOG_ADMIN_LISTENER=127.0.0.1:9644", "KEEPLOG_NODE_ID=3", "KAFKA_NODE_ID=4", "KEEPLOG_BROKERS=a:1", "KEEPLOG_PROFILE=p",
		"KAFKA_HEAP_OPTS=-Xmx1G", "KAFKA_PORT=tcp://10.0.0.1:9092", "KAFKA_KEEPLOG_LOG_FORMAT=json", "KEEPLOG_LOG_DIRS=/a,/b",
	}})
	if b.String("keeplog.admin.listener") != "127.0.0.1:9644" || b.NodeID() != 3 || b.String("keeplog.log.format") != "json" {
		t.Errorf("values: %v", b.NonDefault())
	}
	if diff := cmp.Diff([]string{"/a", "/b"}, b.LogDirs()); diff != "" {
		t.Errorf("log.dirs (-want +got):\n%s", diff)
	}
	want := []string{
		"KEEPLOG_NODE_ID: KAFKA_NODE_ID sets node.id too and no longer counts",
		"environment: no property has these names, they are ignored: KAFKA_HEAP_OPTS, KAFKA_PORT",
	}
	if diff := cmp.Diff(want, messages(warnings)); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	for _, k := range Keys(ScopeBroker) {
		if got := envKey(EnvName(k.Name)); got != k.Name {
			t.Errorf("%s sets %q, not %s", EnvName(k.Name), got, k.Name)
		}
	}
}

func messages(ps []Problem) []string {
	var out []string
	for _, p := range ps {
		out = append(out, p.Message())
	}
	return out
}

func TestWarnings(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"a plug-in's key", "confluent.metrics.reporter=x", "f:1: unknown property confluent.metrics.reporter has no effect"},
		{"a listener's key", "listener.name.internal.ssl.key.password=x", "f:1: listener.name.internal.ssl.key.password has no effect"},
		{"a key twice", "num.partitions=2\n\nnum.partitions=3", "f:3: num.partitions is set again, line 1 no longer counts"},
		{"a comment after a value", "broker.rack=a # here", "f:1: the # is part of the value of broker.rack"},
		{"not durable", "log.flush.interval.messages=9223372036854775807", "f:1: log.flush.interval.messages=9223372036854775807: topics are not durable on acknowledgement"},
		{"batches above the frame", "message.max.bytes=200000000", "f:1: message.max.bytes (200000000) is above socket.request.max.bytes (104857600), which bounds every request"},
		{"more in sync than replicas", "default.replication.factor=1\nmin.insync.replicas=2", "f:2: min.insync.replicas (2) is above default.replication.factor (1): topics made without a count take no acks=all writes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, warnings := mustLoad(t, Input{File: "f", Content: []byte(c.file)})
			if diff := cmp.Diff([]string{c.want}, messages(warnings)); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	file := func(s string) Input { return Input{File: "server.properties", Content: []byte(s)} }
	for _, c := range []struct {
		name string
		in   Input
		want string
	}{
		{"near a key", file("\nlog.retention.hour=1"), "server.properties:2: unknown property log.retention.hour\ntry:   log.retention.hours   (keeplog config explain log.retention.hours)"},
		{"swapped letters", file("num.partitoins=1"), "server.properties:1: unknown property num.partitoins\ntry:   num.partitions   (keeplog config explain num.partitions)"},
		{"unknown with --set", Input{Set: []string{"no.such=1"}}, "--set: unknown property no.such\ntry:   keeplog config list"},
		{"--set without a value", Input{Set: []string{"num.partitions"}}, "--set: \"num.partitions\" is not key=value\ntry:   --set num.partitions=3"},
		{"no number", file("num.partitions=many"), "server.properties:1: num.partitions: \"many\" is not a whole number\ntry:   keeplog config explain num.partitions"},
		{"out of range", Input{Env: []string{"KAFKA_NUM_PARTITIONS=0"}}, "KAFKA_NUM_PARTITIONS: num.partitions: 0 is out of range: at least 1\ntry:   keeplog config explain num.partitions"},
		{"not set, yet named", file("log.retention.ms="), "server.properties:1: log.retention.ms has no value\ntry:   keeplog config explain log.retention.ms"},
		{"authorizer", file("authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"), "server.properties:1: authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer is refused\nwhy:   access control lists are not enforced yet, and an open server where a closed one is expected would be unsafe\ntry:   remove it   (keeplog config explain authorizer.class.name)"},
		{"remote tier", file("remote.log.storage.system.enable=true"), "server.properties:1: remote.log.storage.system.enable=true is refused\nwhy:   there is no remote tier: all data is local\ntry:   remove it   (keeplog config explain remote.log.storage.system.enable)"},
		{"two ids", file("node.id=1\nbroker.id=2"), "server.properties:2: broker.id is 2 and node.id is 1\ntry:   remove broker.id, the older name of node.id"},
		{"SASL listener", file("listeners=SASL_SSL://10.0.0.1:9093"), "server.properties:1: listener SASL_SSL://10.0.0.1:9093 asks for SASL_SSL, which is not served\nwhy:   only PLAINTEXT is served; opening it without encryption or authentication would be unsafe\ntry:   PLAINTEXT://10.0.0.1:9093"},
		{"a name mapped to SSL", file("listeners=OUT://10.0.0.1:9093\nlistener.security.protocol.map=OUT:SSL"), "server.properties:1: listener OUT://10.0.0.1:9093 asks for SSL, which is not served\nwhy:   only PLAINTEXT is served; opening it without encryption or authentication would be unsafe\ntry:   PLAINTEXT://10.0.0.1:9093"},
		{"a name without a protocol", file("listeners=OUT://10.0.0.1:9093"), "server.properties:1: listener OUT has no security protocol\ntry:   listener.security.protocol.map=OUT:PLAINTEXT"},
		{"all interfaces", file("listeners=PLAINTEXT://0.0.0.0:9092"), "server.properties:1: listener PLAINTEXT://0.0.0.0:9092 binds to all interfaces and nothing is advertised\nwhy:   clients are told where to connect, and this address tells them nothing\ntry:   advertised.listeners=PLAINTEXT://HOST:9092, HOST being a name that clients can reach"},
		{"advertised to nobody", file("listeners=PLAINTEXT://:9092\nadvertised.listeners=PLAINTEXT://[::]:9092"), "server.properties:2: PLAINTEXT://[::]:9092 tells clients no address to connect to\ntry:   a name or address that clients can reach"},
		{"a bad escape", file(`broker.rack=\u12`), `server.properties: line 1: "\\u12" is not \u and four hexadecimal digits`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := Load(c.in)
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("the error is %v", err)
			}
			if diff := cmp.Diff(c.want, e.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAllErrors: a file with several faults is told all of them at once.
func TestAllErrors(t *testing.T) {
	_, _, err := Load(Input{File: "f", Content: []byte("num.partitions=x\nnode.id=-1\nlog.dir=a\n"), Set: []string{"no.such=1"}})
	var e *Error
	if !errors.As(err, &e) || len(e.Problems) != 3 {
		t.Errorf("problems: %v", err)
	}
}

func TestSecretsHidden(t *testing.T) {
	b, _ := mustLoad(t, Input{Set: []string{"ssl.keystore.password=hunter2"}})
	if got := strings.Join(b.NonDefault(), " "); got != "ssl.keystore.password=[hidden]" {
		t.Errorf("shown: %s", got)
	}
	for _, e := range (Layers{Static: b}).DescribeBroker([]string{"ssl.keystore.password"}) {
		if e.Value != nil || len(e.Synonyms) != 1 || e.Synonyms[0].Value != nil || !e.Sensitive {
			t.Errorf("described: %+v", e)
		}
	}
}

// TestSampleFile: a file for a cluster, with listeners for clients, controllers and brokers.
func TestSampleFile(t *testing.T) {
	b, warnings := mustLoad(t, Input{Content: []byte(`node.id=2
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093,REPLICATION://[::1]:9094
advertised.listeners=PLAINTEXT://kafka.example:19092
controller.quorum.voters=1@10.0.0.1:9093,2@10.0.0.2:9093
controller.listener.names=CONTROLLER
inter.broker.listener.name=REPLICATION
log.dir=/var/lib/keeplog
max.connections.per.ip.overrides=10.0.0.9:7,host:3
`)})
	if len(warnings) > 0 {
		t.Errorf("warnings: %v", warnings)
	}
	want := []Listener{{"PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"}, {"CONTROLLER", "127.0.0.1", 9093, "PLAINTEXT"}, {"REPLICATION", "::1", 9094, "PLAINTEXT"}}
	if diff := cmp.Diff(want, b.Listeners()); diff != "" {
		t.Errorf("listeners (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Listener{{"PLAINTEXT", "kafka.example", 19092, "PLAINTEXT"}}, b.Advertised()); diff != "" {
		t.Errorf("advertised (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Voter{{1, "10.0.0.1", 9093}, {2, "10.0.0.2", 9093}}, b.Voters()); diff != "" {
		t.Errorf("voters (-want +got):\n%s", diff)
	}
	if b.NodeID() != 2 || b.Int("broker.id") != 2 || b.LogDirs()[0] != "/var/lib/keeplog" || b.MetadataDir() != "/var/lib/keeplog" {
		t.Errorf("node %d, directories %v, metadata %s", b.NodeID(), b.LogDirs(), b.MetadataDir())
	}
	if b.ConnectionLimit("10.0.0.9") != 7 || b.ConnectionLimit("10.0.0.8") != 2147483647 {
		t.Errorf("connection limits %d, %d", b.ConnectionLimit("10.0.0.9"), b.ConnectionLimit("10.0.0.8"))
	}
}

func TestTypedValues(t *testing.T) {
	b, _ := mustLoad(t, Input{Set: []string{"connections.max.idle.ms=-1", "log.cleaner.io.buffer.load.factor=.5", "auto.create.topics.enable= FALSE"}})
	if b.Duration("connections.max.idle.ms") != Forever || b.Duration("log.retention.hours") != 168*time.Hour {
		t.Errorf("durations %v, %v", b.Duration("connections.max.idle.ms"), b.Duration("log.retention.hours"))
	}
	if b.Duration("log.flush.scheduler.interval.ms") != Forever {
		t.Errorf("2^63-1 ms is %v", b.Duration("log.flush.scheduler.interval.ms"))
	}
	if b.Float("log.cleaner.io.buffer.load.factor") != 0.5 || b.Bool("auto.create.topics.enable") || b.Int64("message.max.bytes") != 1048588 {
		t.Error("a typed value is wrong")
	}
	for n, want := range map[int]int{1: 1, 2: 2, 3: 3, 5: 3, 0: 1} {
		if got := b.ReplicationFactor(n); got != want {
			t.Errorf("replication factor of %d brokers is %d, want %d", n, got, want)
		}
	}
}

package config

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestKafkaValues compares what is accepted and refused with what Kafka 4.4 answered.
func TestKafkaValues(t *testing.T) {
	f, err := os.Open("testdata/kafka-4.4-values.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	intended := map[string]string{
		"topic min.cleanable.dirty.ratio NaN": "not a number, and no ratio",
	}
	validate := map[string]func(key, value string) (string, error){
		"topic": ValidateTopic, "client-metrics": ValidateClientMetrics,
		"group": func(key, value string) (string, error) {
			return "", Layers{Static: Default()}.ValidateGroupSet(map[string]string{key: value})
		},
	}
	n := 0
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if strings.HasPrefix(sc.Text(), "#") {
			continue
		}
		c := strings.Split(sc.Text(), "\t")
		value, err := strconv.Unquote(c[2])
		if err != nil {
			t.Fatalf("%q: %v", sc.Text(), err)
		}
		n++
		_, err = validate[c[0]](c[1], value)
		if got := err == nil; got != (c[3] == "ok") && intended[c[0]+" "+c[1]+" "+value] == "" {
			t.Errorf("%s %s=%q: %v, Kafka: %s", c[0], c[1], value, err, c[3])
		}
	}
	if n < 900 {
		t.Errorf("only %d values compared", n)
	}
}

func TestValueLength(t *testing.T) {
	fits, long := strings.Repeat("é", MaxValueLength), strings.Repeat("x", MaxValueLength+1)
	k := Lookup(ScopeBroker, "broker.rack")
	if _, err := k.Check(fits); err != nil {
		t.Error(err)
	}
	if _, err := k.Check(long); !errors.Is(err, ErrValue) {
		t.Errorf("a value of %d characters: %v", len(long), err)
	}
	if _, err := k.Check(strings.Repeat("😀", MaxValueLength/2+1)); !errors.Is(err, ErrValue) {
		t.Errorf("surrogate pairs count twice: %v", err)
	}
}

func layersOf(t *testing.T, properties string) Layers {
	t.Helper()
	b, _ := mustLoad(t, Input{File: "f", Content: []byte(properties)})
	return Layers{Static: b, Replicas: 1, Brokers: 1}
}

// TestTimeChains: the unit with the finer grain wins, wherever it is set, as in Kafka.
func TestTimeChains(t *testing.T) {
	for _, c := range []struct {
		name, static     string
		cluster, broker  string
		topic            string
		retention, since time.Duration
	}{
		{name: "default", retention: 168 * time.Hour},
		{name: "hours", static: "log.retention.hours=1", retention: time.Hour},
		{name: "minutes over hours", static: "log.retention.minutes=5\nlog.retention.hours=1", retention: 5 * time.Minute},
		{name: "ms over all", static: "log.retention.hours=1\nlog.retention.ms=7\nlog.retention.minutes=5", retention: 7 * time.Millisecond},
		{name: "no limit in hours", static: "log.retention.hours=-1", retention: Forever},
		{name: "cluster over static", static: "log.retention.ms=7", cluster: "8", retention: 8 * time.Millisecond},
		{name: "broker over cluster", cluster: "8", broker: "9", retention: 9 * time.Millisecond},
		{name: "topic over all", static: "log.retention.ms=7", cluster: "8", broker: "9", topic: "-1", retention: Forever},
		{name: "an invalid value counts as none", cluster: "x", retention: 168 * time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := layersOf(t, c.static)
			set := func(key, v string) map[string]string {
				if v == "" {
					return nil
				}
				return map[string]string{key: v}
			}
			l.Cluster, l.Broker, l.Topic = set("log.retention.ms", c.cluster), set("log.retention.ms", c.broker), set("retention.ms", c.topic)
			if got := l.Effective().Retention.Age; got != c.retention {
				t.Errorf("retention %v, want %v", got, c.retention)
			}
		})
	}
	l := layersOf(t, "log.roll.hours=2\nlog.roll.jitter.hours=1\nlog.flush.scheduler.interval.ms=50")
	got := l.Effective()
	if got.Segment.Age != 2*time.Hour || got.Segment.Jitter != time.Hour || got.Flush.Interval != 50*time.Millisecond {
		t.Errorf("segment %+v, flush %+v", got.Segment, got.Flush)
	}
}

func TestEffective(t *testing.T) {
	l := layersOf(t, "")
	l.Topic = map[string]string{
		"cleanup.policy": "compact,delete", "compression.type": "zstd", "compression.zstd.level": "19", "flush.messages": "1000",
		"message.timestamp.type": "LogAppendTime", "min.cleanable.dirty.ratio": "0.1", "retention.bytes": "10",
		"leader.replication.throttled.replicas": "0:1,1:2", "max.decompressed.message.bytes": "5000", "file.delete.delay.ms": "0",
		"segment.index.bytes": "128", "index.interval.bytes": "64", "segment.bytes": "1048576", "preallocate": "TRUE",
	}
	l.Replicas = 3
	forever := Forever
	want := Topic{
		Cleanup:         Cleanup{Delete: true, Compact: true},
		Compression:     Compression{Type: "zstd", GzipLevel: -1, LZ4Level: 9, ZstdLevel: 19},
		Flush:           Flush{Messages: 1000, Interval: forever},
		Retention:       Retention{Bytes: 10, Age: 168 * time.Hour},
		Segment:         Segment{Bytes: 1 << 20, Age: 168 * time.Hour, IndexBytes: 128, IndexInterval: 64, Preallocate: true},
		Timestamp:       Timestamp{LogAppend: true, BeforeMax: forever, AfterMax: time.Hour},
		Compaction:      Compaction{MaxLag: forever, MinDirtyRatio: 0.1, DeleteRetention: 24 * time.Hour},
		MaxMessageBytes: 1048588, MaxDecompressedBytes: 5000, MinInsyncReplicas: 2,
		LeaderThrottled: []string{"0:1", "1:2"},
	}
	if diff := cmp.Diff(want, l.Effective()); diff != "" {
		t.Errorf("topic (-want +got):\n%s", diff)
	}
}

func TestMinInsyncReplicas(t *testing.T) {
	for _, c := range []struct{ replicas, brokers, topic, broker int }{{1, 1, 1, 1}, {2, 3, 1, 2}, {3, 3, 2, 2}, {5, 5, 2, 2}} {
		l := layersOf(t, "")
		l.Replicas, l.Brokers = c.replicas, c.brokers
		if got := l.Effective().MinInsyncReplicas; got != c.topic {
			t.Errorf("%d replicas: %d, want %d", c.replicas, got, c.topic)
		}
		if got := describeOne(l.DescribeBroker([]string{"min.insync.replicas"})); got != fmt.Sprintf("min.insync.replicas=%d 5 [min.insync.replicas=%d 5]", c.broker, c.broker) {
			t.Errorf("%d brokers: %s", c.brokers, got)
		}
	}
	l := layersOf(t, "min.insync.replicas=3")
	l.Replicas = 3
	if got := l.Effective().MinInsyncReplicas; got != 3 {
		t.Errorf("set to 3, is %d", got)
	}
}

func text(v *string) string {
	if v == nil {
		return "null"
	}
	return *v
}

func describeOne(es []Entry) string {
	var b strings.Builder
	for _, e := range es {
		fmt.Fprintf(&b, "%s=%s %d", e.Name, text(e.Value), e.Source)
		for _, s := range e.Synonyms {
			fmt.Fprintf(&b, " [%s=%s %d]", s.Name, text(s.Value), s.Source)
		}
	}
	return b.String()
}

// TestDescribe: values, sources and synonyms as Kafka 4.4 answered them in the same situation.
func TestDescribe(t *testing.T) {
	l := layersOf(t, "default.replication.factor=1\nlisteners=PLAINTEXT://127.0.0.1:19392")
	dynamic := l
	dynamic.Cluster = map[string]string{"log.retention.ms": "5000000", "message.max.bytes": "2000000"}
	dynamic.Broker = map[string]string{"log.retention.ms": "6000000"}
	own := dynamic
	own.Topic = map[string]string{"retention.ms": " 77 ", "cleanup.policy": " compact , delete", "preallocate": "TRUE", "min.cleanable.dirty.ratio": ".25"}
	for _, c := range []struct{ got, want string }{
		{describeOne(l.DescribeTopic([]string{"retention.ms"})), "retention.ms=604800000 5"},
		{describeOne(l.DescribeTopic([]string{"segment.ms"})), "segment.ms=604800000 5"},
		{describeOne(l.DescribeTopic([]string{"segment.bytes"})), "segment.bytes=1073741824 5 [log.segment.bytes=1073741824 5]"},
		{describeOne(l.DescribeTopic([]string{"remote.storage.enable"})), "remote.storage.enable=false 5"},
		{describeOne(dynamic.DescribeTopic([]string{"retention.ms"})), "retention.ms=6000000 2 [log.retention.ms=6000000 2] [log.retention.ms=5000000 3] [log.retention.hours=168 5]"},
		{describeOne(dynamic.DescribeTopic([]string{"max.message.bytes"})), "max.message.bytes=2000000 3 [message.max.bytes=2000000 3] [message.max.bytes=1048588 5]"},
		{describeOne(own.DescribeTopic([]string{"retention.ms"})), "retention.ms=77 1 [retention.ms=77 1] [log.retention.ms=6000000 2] [log.retention.ms=5000000 3] [log.retention.hours=168 5]"},
		{describeOne(own.DescribeTopic([]string{"cleanup.policy"})), "cleanup.policy=compact,delete 1 [cleanup.policy=compact,delete 1] [log.cleanup.policy=delete 5]"},
		{describeOne(own.DescribeTopic([]string{"preallocate"})), "preallocate=true 1 [preallocate=true 1] [log.preallocate=false 5]"},
		{describeOne(own.DescribeTopic([]string{"min.cleanable.dirty.ratio"})), "min.cleanable.dirty.ratio=0.25 1 [min.cleanable.dirty.ratio=0.25 1] [log.cleaner.min.cleanable.ratio=0.5 5]"},
		{describeOne(l.DescribeBroker([]string{"log.retention.ms"})), "log.retention.ms=null 5"},
		{describeOne(l.DescribeBroker([]string{"log.retention.minutes"})), "log.retention.minutes=null 5"},
		{describeOne(l.DescribeBroker([]string{"log.retention.hours"})), "log.retention.hours=168 5 [log.retention.hours=168 5]"},
		{describeOne(dynamic.DescribeBroker([]string{"log.retention.hours"})), "log.retention.hours=168 5 [log.retention.hours=168 5]"},
		{describeOne(dynamic.DescribeBroker([]string{"log.retention.ms"})), "log.retention.ms=6000000 2 [log.retention.ms=6000000 2] [log.retention.ms=5000000 3] [log.retention.hours=168 5]"},
		{describeOne(l.DescribeBroker([]string{"default.replication.factor"})), "default.replication.factor=1 4 [default.replication.factor=1 4] [default.replication.factor=1 5]"},
		{describeOne(l.DescribeBroker([]string{"no.such", "num.partitions"})), "num.partitions=1 5 [num.partitions=1 5]"},
		{describeOne(l.DescribeBroker([]string{"broker.rack"})), "broker.rack=null 5"},
		{describeOne(l.DescribeCluster(nil)), ""},
		{describeOne(dynamic.DescribeCluster([]string{"message.max.bytes"})), "message.max.bytes=2000000 3 [message.max.bytes=2000000 3]"},
		{describeOne(l.DescribeGroup(nil, []string{"consumer.session.timeout.ms"})), "consumer.session.timeout.ms=45000 5 [group.consumer.session.timeout.ms=45000 5]"},
		{describeOne(l.DescribeGroup(nil, []string{"share.isolation.level"})), "share.isolation.level=read_uncommitted 5 [share.isolation.level=read_uncommitted 5]"},
		{describeOne(DescribeClientMetrics(nil, []string{"interval.ms"})), "interval.ms=300000 5"},
	} {
		if c.got != c.want {
			t.Errorf("got  %s\nwant %s", c.got, c.want)
		}
	}
	all := l.DescribeBroker(nil)
	for _, e := range all {
		if e.Name == "super.users" {
			t.Error("super.users is described without being set")
		}
	}
	if own := len(ownKeys()); len(all) != 350+own {
		t.Errorf("%d keys of a broker are described, want Kafka's 350 and %d of our own", len(all), own)
	}
	if n := len(l.DescribeTopic(nil)); n != 37 {
		t.Errorf("%d keys of a topic are described, want 37", n)
	}
}

func TestChanges(t *testing.T) {
	ptr := func(s string) *string { return &s }
	for _, c := range []struct {
		name   string
		change Change
		want   string
		err    error
	}{
		{"set", Change{Scope: ScopeTopic, Key: "retention.ms", Operand: " 5 "}, "5", nil},
		{"set to a bad value", Change{Scope: ScopeTopic, Key: "retention.ms", Operand: "x"}, "", ErrValue},
		{"set an unknown key", Change{Scope: ScopeTopic, Key: "no.such", Operand: "1"}, "", ErrUnknownKey},
		{"append", Change{Scope: ScopeTopic, Key: "cleanup.policy", Op: OpAppend, Operand: "compact", Inherited: "delete"}, "delete,compact", nil},
		{"append what is there", Change{Scope: ScopeTopic, Key: "cleanup.policy", Op: OpAppend, Operand: "compact", Current: ptr("compact"), Inherited: "delete"}, "compact", nil},
		{"append nonsense", Change{Scope: ScopeTopic, Key: "cleanup.policy", Op: OpAppend, Operand: "x"}, "", ErrValue},
		{"subtract to nothing", Change{Scope: ScopeTopic, Key: "cleanup.policy", Op: OpSubtract, Operand: "delete,compact", Inherited: "delete"}, "", nil},
		{"subtract what is not there", Change{Scope: ScopeTopic, Key: "cleanup.policy", Op: OpSubtract, Operand: "x", Inherited: "delete"}, "delete", nil},
		{"append to a number", Change{Scope: ScopeTopic, Key: "retention.ms", Op: OpAppend, Operand: "5"}, "", ErrNotList},
		{"delete", Change{Scope: ScopeTopic, Key: "retention.ms", Op: OpDelete, Current: ptr("5")}, "null", nil},
		{"delete an unknown key", Change{Scope: ScopeTopic, Key: "no.such", Op: OpDelete}, "null", nil},
		{"remote tier", Change{Scope: ScopeTopic, Key: "remote.storage.enable", Operand: "true"}, "", ErrRefused},
		{"no remote tier", Change{Scope: ScopeTopic, Key: "remote.storage.enable", Operand: "false"}, "false", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.change.Apply()
			if !errors.Is(err, c.err) || err == nil && text(got) != c.want {
				t.Errorf("%s, %v", text(got), err)
			}
		})
	}
}

func TestDynamicBroker(t *testing.T) {
	l := layersOf(t, "")
	for _, c := range []struct {
		key, value string
		cluster    bool
		err        error
	}{
		{"log.segment.bytes", "1048576", true, nil},
		{"log.segment.bytes", "5", true, ErrValue},
		{"node.id", "5", false, ErrReadOnly},
		{"log.retention.hours", "5", false, ErrReadOnly},
		{"listeners", "PLAINTEXT://127.0.0.1:1", false, ErrReadOnly},
		{"ssl.keystore.location", "/x", false, ErrReadOnly},
		{"sasl.enabled.mechanisms", "PLAIN", true, ErrReadOnly},
		{"sasl.enabled.mechanisms", "PLAIN", false, nil},
		{"num.io.threads", "16", true, nil},
		{"num.io.threads", "17", true, ErrValue},
		{"num.io.threads", "3", true, ErrValue},
		{"no.such", "1", true, ErrUnknownKey},
		{"principal.builder.class", "x", false, ErrRefused},
		{"max.connections.per.ip.overrides", "a", false, ErrValue},
	} {
		if _, err := l.ValidateBroker(c.key, c.value, c.cluster); !errors.Is(err, c.err) {
			t.Errorf("%s=%s: %v, want %v", c.key, c.value, err, c.err)
		}
	}
	l.Cluster = map[string]string{"max.connections": "5", "node.id": "9", "log.segment.bytes": "x", "max.connections.per.ip.overrides": "a:2"}
	l.Broker = map[string]string{"max.connections": "6"}
	b := l.Dynamic()
	if b.Int("max.connections") != 6 || b.NodeID() != 1 || b.Int("log.segment.bytes") != 1<<30 || b.ConnectionLimit("a") != 2 {
		t.Errorf("dynamic values: %v", b.NonDefault())
	}
	if l.Static.Int("max.connections") != 2147483647 {
		t.Error("the static configuration changed")
	}
}

func TestTopicSet(t *testing.T) {
	l := layersOf(t, "")
	if err := l.ValidateTopicSet(map[string]string{"max.compaction.lag.ms": "1000", "min.compaction.lag.ms": "1000"}); err != nil {
		t.Error(err)
	}
	if err := l.ValidateTopicSet(map[string]string{"max.compaction.lag.ms": "1000", "min.compaction.lag.ms": "1001"}); !errors.Is(err, ErrValue) {
		t.Errorf("min above max: %v", err)
	}
	if err := l.ValidateTopicSet(map[string]string{"no.such": "1"}); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("unknown key: %v", err)
	}
}

// The default of min.insync.replicas follows the replicas of each partition; a value that somebody set does not, but for its bound.
func TestMinInsyncOfAPartition(t *testing.T) {
	for _, c := range []struct {
		set      string
		replicas int
		want     int
	}{
		{"", 1, 1},
		{"", 2, 1},
		{"", 3, 2},
		{"", 5, 2},
		{"1", 3, 1},
		{"2", 1, 1},
		{"2", 2, 2},
		{"3", 3, 3},
		{"4", 3, 3},
	} {
		l := Layers{Static: Default(), Replicas: 3}
		if c.set != "" {
			l.Topic = map[string]string{"min.insync.replicas": c.set}
		}
		if got := l.Effective().MinInsync(c.replicas); got != c.want {
			t.Errorf("set to %q, %d replicas: %d, not %d", c.set, c.replicas, got, c.want)
		}
	}
}

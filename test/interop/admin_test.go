package interop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func ok(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestFranzAdmin goes through what franz-go's admin client can ask of the APIs that are served.
func TestFranzAdmin(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	a := kadm.NewClient(franz(t))
	topic := newTopic(t, "retention.ms", "3600000")
	franzWrite(t, topic, "zstd", payload(100))

	t.Run("topics", func(t *testing.T) {
		_, err := a.ValidateCreateTopics(ctx, 3, 1, nil, topic+".dry")
		ok(t, "validate", err)
		made, err := a.CreateTopics(ctx, 3, -1, nil, topic+".a", topic+".b", topic)
		ok(t, "create", err)
		ok(t, "create a", made[topic+".a"].Err)
		if !errors.Is(made[topic].Err, kerr.TopicAlreadyExists) {
			t.Errorf("create again: %v", made[topic].Err)
		}
		grown, err := a.UpdatePartitions(ctx, 5, topic+".a")
		ok(t, "grow", errors.Join(err, grown.Error()))
		list, err := a.ListTopics(ctx)
		ok(t, "list", err)
		equal(t, "partitions of a", len(list[topic+".a"].Partitions), 5)
		equal(t, "dry", list.Has(topic+".dry"), false)
		equal(t, "id", list[topic+".a"].ID, made[topic+".a"].ID)
		gone, err := a.DeleteTopics(ctx, topic+".a", topic+".b")
		ok(t, "delete", errors.Join(err, gone.Error()))
		list, err = kadm.NewClient(franz(t)).ListTopics(ctx, topic+".a") // the first client remembers
		ok(t, "list", err)
		if err := list[topic+".a"].Err; !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Errorf("a deleted topic: %v", err)
		}
	})
	t.Run("configs", func(t *testing.T) {
		value := "12345"
		for _, alter := range []func() (kadm.AlterConfigsResponses, error){
			func() (kadm.AlterConfigsResponses, error) {
				return a.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.bytes", Value: &value}}, topic)
			},
			func() (kadm.AlterConfigsResponses, error) {
				return a.AlterBrokerConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "log.retention.ms", Value: &value}})
			},
			func() (kadm.AlterConfigsResponses, error) {
				return a.AlterBrokerConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "log.segment.bytes", Value: kadm.StringPtr("2097152")}}, 1)
			},
		} {
			r, err := alter()
			ok(t, "alter", err)
			for _, one := range r {
				ok(t, "alter "+one.Name, one.Err)
			}
		}
		defer a.AlterBrokerConfigs(ctx, []kadm.AlterConfig{{Op: kadm.DeleteConfig, Name: "log.retention.ms"}})
		defer a.AlterBrokerConfigs(ctx, []kadm.AlterConfig{{Op: kadm.DeleteConfig, Name: "log.segment.bytes"}}, 1)
		described, err := a.DescribeTopicConfigs(ctx, topic)
		ok(t, "describe", err)
		got := map[string]string{}
		for _, c := range described[0].Configs {
			got[c.Key] = c.MaybeValue() + " " + c.Source.String()
		}
		equal(t, "retention.bytes", got["retention.bytes"], "12345 DYNAMIC_TOPIC_CONFIG")
		equal(t, "retention.ms", got["retention.ms"], "3600000 DYNAMIC_TOPIC_CONFIG")
		equal(t, "segment.bytes", got["segment.bytes"], "2097152 DYNAMIC_BROKER_CONFIG")
		brokers, err := a.DescribeBrokerConfigs(ctx, 1)
		ok(t, "describe broker", errors.Join(err, brokers[0].Err))
		if len(brokers[0].Configs) < 150 {
			t.Errorf("%d settings of the broker", len(brokers[0].Configs))
		}
		bad, err := a.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "no.such.key", Value: &value}}, topic)
		ok(t, "bad key", err)
		if !errors.Is(bad[0].Err, kerr.InvalidConfig) {
			t.Errorf("an unknown key: %v", bad[0].Err)
		}
		state, err := a.AlterTopicConfigsState(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: &value}}, topic)
		ok(t, "replace", errors.Join(err, state[0].Err))
		resources, err := a.ListConfigResources(ctx)
		ok(t, "list resources", errors.Join(err, resources.Err))
		if len(resources.Resources) < 3 {
			t.Errorf("resources: %v", resources.Resources)
		}
	})
	t.Run("offsets", func(t *testing.T) {
		at := func(what string, l kadm.ListedOffsets, err error) int64 {
			t.Helper()
			ok(t, what, errors.Join(err, l.Error()))
			o, _ := l.Lookup(topic, 0)
			return o.Offset
		}
		l, err := a.ListEndOffsets(ctx, topic)
		equal(t, "end", at("end", l, err), 100)
		l, err = a.ListMaxTimestampOffsets(ctx, topic)
		if o := at("max timestamp", l, err); o < 0 || o > 99 {
			t.Errorf("max timestamp at %d", o)
		}
		l, err = a.ListLocalLogStartOffsets(ctx, topic)
		equal(t, "local start", at("local start", l, err), 0)
		l, err = a.ListCommittedOffsets(ctx, topic)
		equal(t, "committed", at("committed", l, err), 100)
		l, err = a.ListOffsetsAfterMilli(ctx, time.Now().Add(-time.Hour).UnixMilli(), topic)
		equal(t, "after", at("after", l, err), 0)
		deleted, err := a.DeleteRecords(ctx, kadm.Offsets{topic: {0: {Topic: topic, Partition: 0, At: 42}}})
		ok(t, "delete records", errors.Join(err, deleted.Error()))
		l, err = a.ListStartOffsets(ctx, topic)
		equal(t, "start", at("start", l, err), 42)
		ask := kadm.OffsetForLeaderEpochRequest{}
		ask.Add(topic, 0, 0)
		epochs, err := a.OffsetForLeaderEpoch(ctx, ask)
		ok(t, "epochs", err)
		e := epochs[topic][0]
		ok(t, "epoch", e.Err)
		equal(t, "end of epoch", e.EndOffset, 100)
	})
	t.Run("cluster", func(t *testing.T) {
		brokers, err := a.ListBrokers(ctx)
		ok(t, "brokers", err)
		equal(t, "brokers", fmt.Sprint(brokers.NodeIDs()), "[1]")
		m, err := a.BrokerMetadata(ctx)
		ok(t, "metadata", err)
		equal(t, "length of the cluster id", len(m.Cluster), 22)
		dirs, err := a.DescribeAllLogDirs(ctx, nil)
		ok(t, "log dirs", errors.Join(err, dirs[1].Error()))
		found, total := false, int64(0)
		dirs[1].EachPartition(func(p kadm.DescribedLogDirPartition) { found = found || p.Topic == topic; total += p.Size })
		equal(t, "the topic in the log dirs", found, true)
		if total <= 0 {
			t.Errorf("%d bytes in the log dirs", total)
		}
		s := kadm.TopicsSet{}
		s.Add(topic, 0)
		producers, err := a.DescribeProducers(ctx, s)
		ok(t, "producers", err)
		equal(t, "producers", len(producers[topic].Partitions[0].ActiveProducers), 1)
		versions, err := a.ApiVersions(ctx)
		ok(t, "versions", err)
		own := versions[1]
		if most, known := own.KeyMaxVersion(0); !known || most != 13 {
			t.Errorf("produce to version %d", most)
		}
	})
}

// TestSaramaAdmin does the same with sarama.
func TestSaramaAdmin(t *testing.T) {
	a, err := sarama.NewClusterAdmin([]string{addr}, saramaConfig())
	ok(t, "connect", err)
	defer a.Close()
	topic := newTopic(t)
	saramaWrite(t, topic, "snappy", payload(50))
	made := topic + ".made"
	value := "60000"
	ok(t, "create", a.CreateTopic(made, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &value}}, false))
	if err := a.CreateTopic(made, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1}, false); !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		t.Errorf("create again: %v", err)
	}
	ok(t, "grow", a.CreatePartitions(made, 4, nil, false))
	list, err := a.ListTopics()
	ok(t, "list", err)
	equal(t, "partitions", list[made].NumPartitions, 4)
	equal(t, "retention.ms", *list[made].ConfigEntries["retention.ms"], "60000")
	described, err := a.DescribeTopics([]string{made})
	ok(t, "describe", err)
	equal(t, "partitions described", len(described[0].Partitions), 4)
	for _, r := range []sarama.ConfigResource{{Type: sarama.TopicResource, Name: made}, {Type: sarama.BrokerResource, Name: "1"}} {
		entries, err := a.DescribeConfig(r)
		ok(t, "configs of "+r.Name, err)
		if len(entries) < 20 {
			t.Errorf("%d settings of %s", len(entries), r.Name)
		}
	}
	ok(t, "alter", a.AlterConfig(sarama.TopicResource, made, map[string]*string{"retention.bytes": &value}, false))
	ok(t, "alter incrementally", a.IncrementalAlterConfig(sarama.TopicResource, made, map[string]sarama.IncrementalAlterConfigsEntry{
		"cleanup.policy": {Operation: sarama.IncrementalAlterConfigsOperationAppend, Value: kadm.StringPtr("compact")},
	}, false))
	entries, err := a.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: made, ConfigNames: []string{"cleanup.policy", "retention.bytes", "retention.ms"}})
	ok(t, "describe", err)
	got := map[string]string{}
	for _, e := range entries {
		got[e.Name] = e.Value
	}
	if want := map[string]string{"cleanup.policy": "delete,compact", "retention.bytes": "60000", "retention.ms": "604800000"}; !maps.Equal(got, want) {
		t.Errorf("settings %v, want %v", got, want)
	}
	ok(t, "delete records", a.DeleteRecords(topic, map[int32]int64{0: 7}))
	offsets, err := a.ListOffsets(map[string]map[int32]int64{topic: {0: sarama.OffsetOldest}}, nil)
	ok(t, "offsets", err)
	equal(t, "oldest", offsets[topic][0].Offset, 7)
	dirs, err := a.DescribeLogDirs([]int32{1})
	ok(t, "log dirs", err)
	equal(t, "a log directory holds topics", slices.ContainsFunc(dirs[1], func(d sarama.DescribeLogDirsResponseDirMetadata) bool { return len(d.Topics) > 0 }), true)
	brokers, controller, err := a.DescribeCluster()
	ok(t, "cluster", err)
	equal(t, "brokers", len(brokers), 1)
	equal(t, "controller", controller, 1)
	ok(t, "delete", a.DeleteTopic(made))
}

// TestKafkaGoAdmin does the same with kafka-go: its newer Client and its older Conn.
func TestKafkaGoAdmin(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	topic := newTopic(t)
	made := topic + ".made"
	c := &kafkago.Client{Addr: kafkago.TCP(addr), Transport: &kafkago.Transport{MetadataTTL: 10 * time.Millisecond}}
	created, err := c.CreateTopics(ctx, &kafkago.CreateTopicsRequest{Topics: []kafkago.TopicConfig{{
		Topic: made, NumPartitions: 2, ReplicationFactor: 1, ConfigEntries: []kafkago.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: "60000"}},
	}}})
	ok(t, "create", errors.Join(err, created.Errors[made]))
	grown, err := c.CreatePartitions(ctx, &kafkago.CreatePartitionsRequest{Topics: []kafkago.TopicPartitionsConfig{{Name: made, Count: 3}}})
	ok(t, "grow", errors.Join(err, grown.Errors[made]))
	until(t, "three partitions", func() bool { // what the client remembers is 10 ms old
		m, err := c.Metadata(ctx, &kafkago.MetadataRequest{Topics: []string{made}})
		ok(t, "metadata", err)
		return len(m.Topics) == 1 && len(m.Topics[0].Partitions) == 3
	})
	produced, err := c.Produce(ctx, &kafkago.ProduceRequest{
		Topic: made, Partition: 1, RequiredAcks: kafkago.RequireAll,
		Records: kafkago.NewRecordReader(kafkago.Record{Value: kafkago.NewBytes([]byte("one"))}, kafkago.Record{Value: kafkago.NewBytes([]byte("two"))}),
	})
	ok(t, "produce", errors.Join(err, produced.Error))
	fetched, err := c.Fetch(ctx, &kafkago.FetchRequest{Topic: made, Partition: 1, Offset: 0, MinBytes: 1, MaxBytes: 1 << 20, MaxWait: time.Second})
	ok(t, "fetch", errors.Join(err, fetched.Error))
	equal(t, "high watermark", fetched.HighWatermark, 2)
	offsets, err := c.ListOffsets(ctx, &kafkago.ListOffsetsRequest{Topics: map[string][]kafkago.OffsetRequest{made: {kafkago.FirstOffsetOf(1), kafkago.LastOffsetOf(1)}}})
	ok(t, "offsets", err)
	equal(t, "first and last", fmt.Sprint(offsets.Topics[made][0].FirstOffset, offsets.Topics[made][0].LastOffset), "0 2")
	described, err := c.DescribeConfigs(ctx, &kafkago.DescribeConfigsRequest{Resources: []kafkago.DescribeConfigRequestResource{
		{ResourceType: kafkago.ResourceTypeTopic, ResourceName: made, ConfigNames: []string{"retention.ms"}},
	}})
	ok(t, "describe", errors.Join(err, described.Resources[0].Error))
	equal(t, "retention.ms", described.Resources[0].ConfigEntries[0].ConfigValue, "60000")
	altered, err := c.AlterConfigs(ctx, &kafkago.AlterConfigsRequest{Resources: []kafkago.AlterConfigRequestResource{
		{ResourceType: kafkago.ResourceTypeTopic, ResourceName: made, Configs: []kafkago.AlterConfigRequestConfig{{Name: "retention.ms", Value: "70000"}}},
	}})
	ok(t, "alter", err)
	for _, e := range altered.Errors {
		ok(t, "alter", e)
	}
	_, err = c.IncrementalAlterConfigs(ctx, &kafkago.IncrementalAlterConfigsRequest{Resources: []kafkago.IncrementalAlterConfigsRequestResource{
		{ResourceType: kafkago.ResourceTypeTopic, ResourceName: made, Configs: []kafkago.IncrementalAlterConfigsRequestConfig{{Name: "retention.ms", Value: "80000", ConfigOperation: kafkago.ConfigOperationSet}}},
	}})
	ok(t, "alter incrementally", err)
	versions, err := c.ApiVersions(ctx, &kafkago.ApiVersionsRequest{})
	ok(t, "versions", errors.Join(err, versions.Error))
	if len(versions.ApiKeys) < 19 {
		t.Errorf("%d keys", len(versions.ApiKeys))
	}

	conn, err := kafkago.DialLeader(ctx, "tcp", addr, made, 1)
	ok(t, "dial", err)
	defer conn.Close()
	_, err = conn.WriteMessages(kafkago.Message{Value: []byte("three")})
	ok(t, "write", err)
	first, last, err := conn.ReadOffsets()
	ok(t, "read offsets", err)
	equal(t, "offsets", fmt.Sprint(first, last), "0 3")
	controller, err := conn.Controller()
	ok(t, "controller", err)
	equal(t, "controller", controller.ID, 1)
	partitions, err := conn.ReadPartitions(made)
	ok(t, "partitions", err)
	equal(t, "partitions", len(partitions), 3)
	ok(t, "create by the connection", conn.CreateTopics(kafkago.TopicConfig{Topic: topic + ".conn", NumPartitions: 1, ReplicationFactor: 1}))
	ok(t, "delete by the connection", conn.DeleteTopics(topic+".conn"))
	deleted, err := c.DeleteTopics(ctx, &kafkago.DeleteTopicsRequest{Topics: []string{made}})
	ok(t, "delete", errors.Join(err, deleted.Errors[made]))
}

//go:build cgo

package interop

import (
	"testing"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

func init() {
	groupClients = append(groupClients,
		groupClient{name: "librdkafka", kind: "classic", join: rdkafkaJoin("heartbeat.interval.ms", 1000)},
		groupClient{name: "librdkafka 848", kind: "consumer", join: rdkafkaJoin("group.protocol", "consumer")})
}

func rdkafkaJoin(key string, value any) func(t *testing.T, topic, group string, in *inbox) func() {
	return func(t *testing.T, topic, group string, in *inbox) func() {
		t.Helper()
		return rdkafkaMember(t, topic, in, kafka.ConfigMap{"bootstrap.servers": addr, "group.id": group, "auto.offset.reset": "earliest", key: value})
	}
}

func rdkafkaMember(t *testing.T, topic string, in *inbox, conf kafka.ConfigMap) func() {
	t.Helper()
	c, err := kafka.NewConsumer(&conf)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Subscribe(topic, nil); err != nil {
		t.Fatal(err)
	}
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ended:
				return
			default:
			}
			switch e := c.Poll(200).(type) {
			case *kafka.Message:
				in.add(e.TopicPartition.Partition, int64(e.TopicPartition.Offset))
			case kafka.Error:
				if e.Code() != kafka.ErrTransport {
					t.Error(e)
				}
			}
		}
	}()
	return leaves(t, func() {
		close(ended)
		<-done
		if err := c.Close(); err != nil {
			t.Errorf("librdkafka: close: %v", err)
		}
	})
}

//go:build cgo

package interop

import (
	"testing"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

func init() { goClients = append(goClients, client{"librdkafka", rdkafkaWrite, rdkafkaRead}) }

func rdkafkaWrite(t *testing.T, topic, codec string, ms []message) {
	t.Helper()
	p, err := kafka.NewProducer(&kafka.ConfigMap{
		"bootstrap.servers": addr, "enable.idempotence": true, "compression.type": codec, "linger.ms": 5,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	delivered := make(chan kafka.Event, len(ms))
	for _, m := range ms {
		err := p.Produce(&kafka.Message{
			TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: 0}, Key: []byte(m.key), Value: []byte(m.value),
		}, delivered)
		if err != nil {
			t.Fatal(err)
		}
	}
	for range ms {
		if m := (<-delivered).(*kafka.Message); m.TopicPartition.Error != nil {
			t.Fatal(m.TopicPartition.Error)
		}
	}
}

func rdkafkaRead(t *testing.T, topic string, from position, end int64) (out []message) {
	t.Helper()
	c, err := kafka.NewConsumer(&kafka.ConfigMap{
		"bootstrap.servers": addr, "group.id": "unused", "enable.auto.commit": false, "auto.offset.reset": "error",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	at := kafka.TopicPartition{Topic: &topic, Partition: 0, Offset: kafka.Offset(from.offset)}
	if !from.time.IsZero() {
		at.Offset = kafka.Offset(from.time.UnixMilli())
		found, err := c.OffsetsForTimes([]kafka.TopicPartition{at}, 10_000)
		if err != nil {
			t.Fatal(err)
		}
		at = found[0]
	}
	if err := c.Assign([]kafka.TopicPartition{at}); err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(20 * time.Second); len(out) == 0 || out[len(out)-1].offset < end-1; {
		if time.Now().After(limit) {
			t.Fatalf("librdkafka read %d records in 20 s", len(out))
		}
		switch e := c.Poll(500).(type) {
		case *kafka.Message:
			out = append(out, message{int64(e.TopicPartition.Offset), string(e.Key), string(e.Value)})
		case kafka.Error:
			if e.Code() != kafka.ErrTransport {
				t.Fatal(e)
			}
		}
	}
	return out
}

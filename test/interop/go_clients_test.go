package interop

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

// client is one implementation: it writes records in a codec, and reads a partition from an offset or a time to end.
type client struct {
	name  string
	write func(t *testing.T, topic, codec string, ms []message)
	read  func(t *testing.T, topic string, from position, end int64) []message
}

// position is where reading starts: a time if it is set, else an offset.
type position struct {
	offset int64
	time   time.Time
}

var goClients = []client{
	{"franz-go", franzWrite, franzRead},
	{"sarama", saramaWrite, saramaRead},
	{"kafka-go", kafkaGoWrite, kafkaGoRead},
}

// TestEveryClientReadsEveryCodec lets each client write each codec and each client read it all back.
func TestEveryClientReadsEveryCodec(t *testing.T) {
	for _, w := range goClients {
		t.Run(w.name, func(t *testing.T) {
			topic := newTopic(t)
			var want []message
			for _, codec := range codecs {
				ms := payload(300)
				before := int64(len(want))
				w.write(t, topic, codec, ms)
				storedIn(t, w.name, codec, storedCodecs(t, topic, before, before+int64(len(ms))))
				for _, m := range ms {
					m.offset = int64(len(want))
					want = append(want, m)
				}
			}
			for _, r := range goClients {
				same(t, r.name, r.read(t, topic, position{}, int64(len(want))), want)
				same(t, r.name+" from an offset", r.read(t, topic, position{offset: 777}, int64(len(want))), want[777:])
			}
		})
	}
}

// TestEveryClientReadsFromATime writes, notes the time, writes again, and reads from that time.
func TestEveryClientReadsFromATime(t *testing.T) {
	for _, c := range goClients {
		t.Run(c.name, func(t *testing.T) {
			topic := newTopic(t)
			ms := payload(50)
			c.write(t, topic, "none", ms)
			<-time.After(20 * time.Millisecond)
			middle := time.Now()
			<-time.After(20 * time.Millisecond)
			c.write(t, topic, "lz4", ms)
			var want []message
			for _, m := range ms {
				m.offset += 50
				want = append(want, m)
			}
			for _, r := range goClients {
				same(t, r.name, r.read(t, topic, position{time: middle}, 100), want)
			}
		})
	}
}

// TestLibrdkafkaIsAmongThem says whether the Go module that carries librdkafka could be built here.
func TestLibrdkafkaIsAmongThem(t *testing.T) {
	need(t, "librdkafka", slices.ContainsFunc(goClients, func(c client) bool { return c.name == "librdkafka" }))
}

func franzWrite(t *testing.T, topic, codec string, ms []message) {
	t.Helper()
	compression := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}[codec]
	c := franz(t, kgo.ProducerBatchCompression(compression), kgo.DefaultProduceTopic(topic))
	for _, m := range ms {
		c.Produce(context.Background(), &kgo.Record{Key: []byte(m.key), Value: []byte(m.value)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := c.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func franzRead(t *testing.T, topic string, from position, end int64) (out []message) {
	t.Helper()
	at := kgo.NewOffset().At(from.offset)
	if !from.time.IsZero() {
		at = kgo.NewOffset().AfterMilli(from.time.UnixMilli())
	}
	c := franz(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: at}}))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for len(out) == 0 || out[len(out)-1].offset < end-1 {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		f.EachRecord(func(r *kgo.Record) { out = append(out, message{r.Offset, string(r.Key), string(r.Value)}) })
	}
	return out
}

func saramaConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V2_8_0_0
	c.Producer.Return.Successes = true
	c.Producer.Idempotent = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Net.MaxOpenRequests = 1
	return c
}

func saramaWrite(t *testing.T, topic, codec string, ms []message) {
	t.Helper()
	c := saramaConfig()
	c.Producer.Compression = map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}[codec]
	p, err := sarama.NewSyncProducer([]string{addr}, c)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var batch []*sarama.ProducerMessage
	for _, m := range ms {
		batch = append(batch, &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(m.key), Value: sarama.StringEncoder(m.value)})
	}
	if err := p.SendMessages(batch); err != nil {
		t.Fatal(err)
	}
}

func saramaRead(t *testing.T, topic string, from position, end int64) (out []message) {
	t.Helper()
	c, err := sarama.NewClient([]string{addr}, saramaConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if !from.time.IsZero() {
		if from.offset, err = c.GetOffset(topic, 0, from.time.UnixMilli()); err != nil {
			t.Fatal(err)
		}
	}
	consumer, err := sarama.NewConsumerFromClient(c)
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	p, err := consumer.ConsumePartition(topic, 0, from.offset)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	limit := time.After(20 * time.Second)
	for len(out) == 0 || out[len(out)-1].offset < end-1 {
		select {
		case m := <-p.Messages():
			out = append(out, message{m.Offset, string(m.Key), string(m.Value)})
		case err := <-p.Errors():
			t.Fatal(err)
		case <-limit:
			t.Fatalf("sarama read %d records in 20 s", len(out))
		}
	}
	return out
}

func kafkaGoWrite(t *testing.T, topic, codec string, ms []message) {
	t.Helper()
	w := &kafkago.Writer{
		Addr: kafkago.TCP(addr), Transport: &kafkago.Transport{}, Topic: topic, RequiredAcks: kafkago.RequireAll, BatchTimeout: 5 * time.Millisecond, BatchSize: 100,
		Compression: map[string]kafkago.Compression{"gzip": kafkago.Gzip, "snappy": kafkago.Snappy, "lz4": kafkago.Lz4, "zstd": kafkago.Zstd}[codec],
	}
	defer w.Close()
	var batch []kafkago.Message
	for _, m := range ms {
		batch = append(batch, kafkago.Message{Key: []byte(m.key), Value: []byte(m.value)})
	}
	if err := w.WriteMessages(context.Background(), batch...); err != nil {
		t.Fatal(err)
	}
}

func kafkaGoRead(t *testing.T, topic string, from position, end int64) (out []message) {
	t.Helper()
	r := kafkago.NewReader(kafkago.ReaderConfig{Brokers: []string{addr}, Topic: topic, Partition: 0, MaxWait: 200 * time.Millisecond, MaxBytes: 10 << 20})
	defer r.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err := r.SetOffset(from.offset)
	if !from.time.IsZero() {
		err = r.SetOffsetAt(ctx, from.time)
	}
	if err != nil {
		t.Fatal(err)
	}
	for len(out) == 0 || out[len(out)-1].offset < end-1 {
		m, err := r.ReadMessage(ctx)
		if err != nil {
			t.Fatalf("kafka-go after %d records: %v", len(out), errors.Unwrap(err))
		}
		out = append(out, message{m.Offset, string(m.Key), string(m.Value)})
	}
	return out
}

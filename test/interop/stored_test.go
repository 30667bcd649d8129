package interop

import (
	"context"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// storedCodecs asks for the batches of partition 0 from an offset to an end, as they are stored, and returns the codecs they are compressed
// in, each once, in the order in which they come first.
func storedCodecs(t *testing.T, topic string, from, end int64) (found []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c := franz(t)
	about, err := kadm.NewClient(c).ListTopics(ctx, topic)
	if err != nil || about[topic].Err != nil {
		t.Fatal(err, about[topic].Err)
	}
	for next := from; next < end; {
		p := kmsg.NewFetchRequestTopicPartition()
		p.FetchOffset, p.PartitionMaxBytes = next, 1<<20
		req := kmsg.NewPtrFetchRequest()
		req.MaxBytes, req.MinBytes, req.MaxWaitMillis, req.SessionEpoch = 1<<20, 1, 1000, -1
		req.Topics = []kmsg.FetchRequestTopic{{Topic: topic, TopicID: about[topic].ID, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
		resp, err := req.RequestWith(ctx, c.Broker(int(about[topic].Partitions[0].Leader)))
		if err != nil {
			t.Fatal(err)
		}
		b := resp.Topics[0].Partitions[0].RecordBatches
		if len(b) == 0 {
			t.Fatalf("no batch at offset %d of %d: code %d", next, end, resp.Topics[0].Partitions[0].ErrorCode)
		}
		for len(b) >= 61 && next < end {
			size := 12 + int(binary.BigEndian.Uint32(b[8:]))
			if size > len(b) {
				break // the answer ends within it
			}
			if codec := codecs[b[22]&7]; !slices.Contains(found, codec) {
				found = append(found, codec)
			}
			next = int64(binary.BigEndian.Uint64(b)) + int64(binary.BigEndian.Uint32(b[23:])) + 1
			b = b[size:]
		}
	}
	return found
}

// storedIn checks that a client sent what it was told to: batches in the codec. One that would not become smaller by it is sent as it is.
func storedIn(t *testing.T, who, codec string, found []string) {
	t.Helper()
	others := slices.DeleteFunc(slices.Clone(found), func(f string) bool { return f == codec || f == "none" })
	if !slices.Contains(found, codec) || len(others) > 0 {
		t.Errorf("%s was told to compress with %s; the batches are stored in %v", who, codec, found)
	}
}

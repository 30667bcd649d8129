package api

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/replication/isr"
)

// to is a Produce request for partitions of one topic.
func to(topic string, id metadata.TopicID, acks int16, parts ...int32) *kmsg.ProduceRequest {
	r := kmsg.NewPtrProduceRequest()
	r.Acks = acks
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = topic, id
	for _, n := range parts {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = n, framed(fmt.Sprintf("batch for %d", n))
		t.Partitions = append(t.Partitions, p)
	}
	r.Topics = append(r.Topics, t)
	return r
}

// framed is a batch by its length and format number only.
func framed(payload string) []byte {
	b := make([]byte, 17, 17+len(payload))
	binary.BigEndian.PutUint32(b[8:], uint32(5+len(payload)))
	b[16] = 2
	return append(b, payload...)
}

func TestProduceWantsOneBatch(t *testing.T) {
	w := newWorld(t)
	id := w.topic("t", 1)
	w.part(id, 0).start = 3 // never told for these
	good := framed("a payload of some length")
	change := func(at int, x byte) []byte {
		b := bytes.Clone(good)
		b[at] = x
		return b
	}
	for _, c := range []struct {
		name    string
		records []byte
		code    int16
		message bool
	}{
		{"good", good, 0, false},
		{"null", nil, 87, false},
		{"empty", []byte{}, 87, false},
		{"1 byte", good[:1], 87, false},
		{"cut in the header", good[:16], 87, false},
		{"cut", good[:len(good)-1], 87, false},
		{"format 0", change(16, 0), 87, false},
		{"format 1", change(16, 1), 87, false},
		{"format 3", change(16, 3), 2, true},
		{"format 255", change(16, 255), 2, true},
		{"negative length", change(8, 0xff), 2, true},
		{"length too long", change(9, 1), 87, false},
		{"two", append(bytes.Clone(good), good...), 87, false},
		{"a little more", append(bytes.Clone(good), 1, 2, 3, 4, 5), 0, false},
		{"more that is no batch", append(bytes.Clone(good), make([]byte, 20)...), 2, true},
	} {
		r := to("t", id, -1, 0)
		r.Topics[0].Partitions[0].Records = c.records
		p := ask[*kmsg.ProduceResponse](w, r, 9).Topics[0].Partitions[0]
		equal(t, c.name, p.ErrorCode, c.code)
		equal(t, c.name+": message", p.ErrorMessage != nil, c.message)
		if c.code != 0 {
			equal(t, c.name+": log start", p.LogStartOffset, -1)
		}
	}
	for _, b := range w.part(id, 0).batches {
		equal(t, "what was written", string(b), string(good))
	}
}

func TestProduce(t *testing.T) {
	each(t, 0, func(t *testing.T, w *world, v int16) {
		id := w.topic("orders", 3)
		w.part(id, 1).err = isr.ErrNotEnoughReplicas
		resp := ask[*kmsg.ProduceResponse](w, to("orders", id, -1, 2, 1, 0, 9, -1), v)
		parts := resp.Topics[0].Partitions
		for i, want := range []struct {
			partition int32
			code      int16
			base      int64
		}{{2, 0, 0}, {1, 19, -1}, {0, 0, 0}, {9, 3, -1}, {-1, 3, -1}} {
			p := parts[i]
			if p.Partition != want.partition || p.ErrorCode != want.code || p.BaseOffset != want.base || p.LogAppendTime != -1 {
				t.Errorf("partition %d: %+v", want.partition, p)
			}
			if v >= 5 && want.code != 0 {
				equal(t, "log start", p.LogStartOffset, -1)
			}
		}
		missing := ask[*kmsg.ProduceResponse](w, to("nothing", metadata.TopicID{9}, -1, 0), v)
		want := int16(3)
		if v >= 13 {
			want = 100
			equal(t, "id", missing.Topics[0].TopicID, [16]byte{9})
		}
		equal(t, "missing topic", missing.Topics[0].Partitions[0].ErrorCode, want)
		bad := ask[*kmsg.ProduceResponse](w, to("orders", id, 2, 0), v)
		equal(t, "acks 2", bad.Topics[0].Partitions[0].ErrorCode, 21)
		none := kmsg.NewPtrProduceRequest()
		none.Acks = -1
		equal(t, "nothing to do", len(ask[*kmsg.ProduceResponse](w, none, v).Topics), 0)
	})
}

// The answer names the new leader and its address (KIP-951).
func TestProduceNotLeader(t *testing.T) {
	each(t, 0, func(t *testing.T, w *world, v int16) {
		id := w.topic("orders", 2)
		w.part(id, 0).err = isr.ErrNotLeader
		w.part(id, 0).leader = isr.Leadership{Leader: 1, Epoch: 5}
		w.parts[id][1] = nil // the image knows it, this broker does not have it
		resp := ask[*kmsg.ProduceResponse](w, to("orders", id, -1, 0, 1), v)
		a, b := resp.Topics[0].Partitions[0], resp.Topics[0].Partitions[1]
		equal(t, "code", a.ErrorCode, 6)
		equal(t, "code of the one elsewhere", b.ErrorCode, 6)
		if v < 10 {
			equal(t, "leader", a.CurrentLeader.LeaderID, -1)
			return
		}
		equal(t, "leader", a.CurrentLeader.LeaderID, 1)
		equal(t, "epoch", a.CurrentLeader.LeaderEpoch, 5)
		equal(t, "leader of the one elsewhere", b.CurrentLeader.LeaderID, 1)
		if len(resp.Brokers) != 1 || resp.Brokers[0].Host != "localhost" || resp.Brokers[0].Port != 9092 || *resp.Brokers[0].Rack != "r1" {
			t.Errorf("endpoints %+v", resp.Brokers)
		}
	})
}

func TestProduceErrors(t *testing.T) {
	for err, want := range map[error]int16{
		record.ErrCorrupt: 2, record.ErrTorn: 87, record.ErrOldVersion: 87, record.ErrNewerVersion: 2, record.ErrInvalidRecord: 87,
		record.ErrInvalidTimestamp: 32, record.ErrTooLarge: 10, record.ErrUnsupportedCodec: 76, log.ErrBatchTooLarge: 18,
		log.ErrOutOfOrderSequence: 45, log.ErrProducerFenced: 47, log.ErrReserve: 56, log.ErrOffline: 56, isr.ErrTimedOut: 7,
		isr.ErrNotEnoughReplicasAfterAppend: 20, isr.ErrTransactional: 53, isr.ErrOffline: 56,
	} {
		w := newWorld(t)
		id := w.topic("t", 1)
		w.part(id, 0).start = 3
		w.part(id, 0).err = fmt.Errorf("wrapped: %w", err)
		p := ask[*kmsg.ProduceResponse](w, to("t", id, -1, 0), 12).Topics[0].Partitions[0]
		equal(t, err.Error(), p.ErrorCode, want)
		start := int64(-1)
		if want == 45 || want == 47 || want == 32 || err == record.ErrInvalidRecord {
			start = 3
		}
		equal(t, err.Error()+": log start", p.LogStartOffset, start)
	}
}

func TestProduceRecordErrors(t *testing.T) {
	each(t, 0, func(t *testing.T, w *world, v int16) {
		id := w.topic("t", 1)
		w.part(id, 0).err = &record.RecordErrors{Records: []record.RecordError{{Index: 1, Cause: record.ErrNullKey}, {Index: 4, Cause: record.ErrNullKey}}}
		p := ask[*kmsg.ProduceResponse](w, to("t", id, -1, 0), v).Topics[0].Partitions[0]
		equal(t, "code", p.ErrorCode, 87)
		if v < 8 {
			return
		}
		if len(p.ErrorRecords) != 2 || p.ErrorRecords[1].RelativeOffset != 4 || p.ErrorMessage == nil {
			t.Errorf("record errors %+v", p)
		}
	})
}

// Partitions may be acknowledged in any order and from anywhere; the answer keeps the order of the request.
func TestProduceAnswersWhenAllAreDone(t *testing.T) {
	w := newWorld(t)
	id := w.topic("t", 3)
	for i := range 3 {
		w.part(id, i).holding = true
	}
	req := to("t", id, -1, 0, 1, 2)
	_, s := w.begin(req, 9)
	for i := 2; i >= 0; i-- {
		if len(s.got) != 0 {
			t.Fatal("answered before every partition was")
		}
		w.part(id, i).release()
	}
	resp := parse(t, req, s.wait(t)).(*kmsg.ProduceResponse)
	for i, p := range resp.Topics[0].Partitions {
		equal(t, "partition", p.Partition, int32(i))
	}
}

func TestProduceAcks0(t *testing.T) {
	w := newWorld(t)
	id := w.topic("t", 1)
	_, s := w.begin(to("t", id, 0, 0), 9)
	if a := s.wait(t); !a.None || a.Close != nil {
		t.Errorf("acks=0 was answered: %+v", a)
	}
	_, s = w.begin(to("t", id, 0, 5), 9)
	if a := s.wait(t); a.Close == nil {
		t.Error("a failed acks=0 did not close the connection")
	}
}

// One Call serves many requests; nothing of one shows in the next.
func TestProduceCallIsReused(t *testing.T) {
	w := newWorld(t)
	id := w.topic("t", 3)
	c, s := w.begin(to("t", id, -1, 0, 1, 9), 9)
	s.wait(t)
	for _, parts := range [][]int32{{2}, {1, 0, 2, 7}, {}} {
		req := to("t", id, 1, parts...)
		req.SetVersion(9)
		s := &sink{got: make(chan Answer, 1)}
		c.Frame, c.To = formatter.AppendRequest(nil, req, 42)[4:], s
		w.api.Serve(c)
		resp := parse(t, req, s.wait(t)).(*kmsg.ProduceResponse)
		equal(t, "partitions", len(resp.Topics[0].Partitions), len(parts))
		for i, p := range resp.Topics[0].Partitions {
			equal(t, "partition", p.Partition, parts[i])
			equal(t, "failed", p.ErrorCode != 0, parts[i] > 2)
		}
	}
}

// nullSink forgets.
type nullSink struct{}

func (nullSink) Complete(Answer) {}

type nullPartition struct{ *fakePartition }

func (nullPartition) Produce(_ isr.ProduceRequest, done func(isr.ProduceResult)) {
	done(isr.ProduceResult{Base: 1, AppendTimeMs: -1})
}

type nullReplicas struct{ p Partition }

func (r nullReplicas) Partition(metadata.TopicID, int32) (Partition, error) { return r.p, nil }
func (nullReplicas) Place(string, metadata.TopicID, int32, string) error    { return nil }
func (r nullReplicas) All(func(log.Identity, Partition) bool)               {}

// dispatch is a produce call that can be served again and again.
func dispatch(t testing.TB, partitions int) func() {
	w := newWorld(t)
	id := w.topic("orders", partitions)
	w.api.o.Replicas = nullReplicas{nullPartition{}}
	var parts []int32
	for i := range partitions {
		parts = append(parts, int32(i))
	}
	req := to("orders", id, -1, parts...)
	req.SetVersion(11)
	frame := formatter.AppendRequest(nil, req, 1)[4:]
	c := &Call{Key: 0, Version: 11, Frame: frame, Conn: &Conn{Listener: "PLAINTEXT"}, To: nullSink{}}
	return func() { w.api.Serve(c) }
}

func TestProduceAllocations(t *testing.T) {
	for n, limit := range map[int]float64{1: 8, 8: 8} {
		f := dispatch(t, n)
		if got := testing.AllocsPerRun(100, f); got > limit {
			t.Errorf("%d partitions: %.0f allocations a request, the limit is %.0f", n, got, limit)
		}
	}
}

func BenchmarkProduceDispatch(b *testing.B) {
	for _, n := range []int{1, 8, 50} {
		b.Run(fmt.Sprintf("partitions=%d", n), func(b *testing.B) {
			f := dispatch(b, n)
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
}

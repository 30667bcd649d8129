package record

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

func milli(ms int64) time.Time { return time.UnixMilli(ms) }

func cannedVersions() *kversion.Versions {
	v := new(kversion.Versions)
	v.SetMaxKeyVersion(0, 8)
	v.SetMaxKeyVersion(3, 8)
	v.SetMaxKeyVersion(18, 2)
	return v
}

// cannedBroker answers just enough for one producer and hands out the batches it gets.
type cannedBroker struct {
	addr    string
	batches chan []byte
}

func newCannedBroker(t *testing.T) *cannedBroker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	b := &cannedBroker{addr: l.Addr().String(), batches: make(chan []byte, 8)}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go b.serve(c)
		}
	}()
	return b
}

func (b *cannedBroker) serve(c net.Conn) {
	defer c.Close()
	for {
		var size [4]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(c, frame); err != nil {
			return
		}
		key, version := int16(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:]))
		clientID := int(int16(binary.BigEndian.Uint16(frame[8:])))
		body := frame[10+max(clientID, 0):]
		req := kmsg.RequestForKey(key)
		req.SetVersion(version)
		if err := req.ReadFrom(body); err != nil {
			return
		}
		answer := append([]byte{0, 0, 0, 0}, frame[4:8]...)
		answer = b.answer(req).AppendTo(answer)
		binary.BigEndian.PutUint32(answer, uint32(len(answer)-4))
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

func (b *cannedBroker) answer(req kmsg.Request) kmsg.Response {
	resp := req.ResponseKind()
	switch r := resp.(type) {
	case *kmsg.ApiVersionsResponse:
		for key, top := range map[int16]int16{0: 8, 3: 8, 18: 2} {
			r.ApiKeys = append(r.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: key, MaxVersion: top})
		}
	case *kmsg.MetadataResponse:
		host, port, _ := net.SplitHostPort(b.addr)
		p, _ := net.LookupPort("tcp", port)
		r.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 1, Host: host, Port: int32(p)}}
		topic := "t"
		part := kmsg.NewMetadataResponseTopicPartition()
		part.Leader, part.Replicas, part.ISR = 1, []int32{1}, []int32{1}
		r.Topics = []kmsg.MetadataResponseTopic{{Topic: &topic, Partitions: []kmsg.MetadataResponseTopicPartition{part}}}
	case *kmsg.ProduceResponse:
		for _, t := range req.(*kmsg.ProduceRequest).Topics {
			topic := kmsg.ProduceResponseTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				b.batches <- p.Records
				topic.Partitions = append(topic.Partitions, kmsg.ProduceResponseTopicPartition{Partition: p.Partition})
			}
			r.Topics = append(r.Topics, topic)
		}
	}
	return resp
}

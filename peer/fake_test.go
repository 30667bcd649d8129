package peer

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/protocol"
)

const cluster = "AAAAAAAAAAAAAAAAAAAAAA"

// broker is the other side: node 2 of the cluster, over pipes.
type broker struct {
	t     *testing.T
	table *protocol.Table
	// answer makes the answer of a request; nil sends none.
	answer func(req kmsg.Request, conn int) kmsg.Response
	// refuse, when it is set, is what a dial ends with.
	refuse func() error

	mu    sync.Mutex
	conns []net.Conn
	got   []kmsg.Request
}

func newBroker(t *testing.T, answer func(req kmsg.Request, conn int) kmsg.Response) *broker {
	return &broker{t: t, table: protocol.NewTable(append(protocol.Served(), protocol.Internal()...)), answer: answer}
}

func (b *broker) dial(context.Context, string) (net.Conn, error) {
	if b.refuse != nil {
		if err := b.refuse(); err != nil {
			return nil, err
		}
	}
	here, there := net.Pipe()
	b.mu.Lock()
	b.conns = append(b.conns, there)
	n := len(b.conns)
	b.mu.Unlock()
	go b.serve(there, n)
	return here, nil
}

func (b *broker) serve(conn net.Conn, n int) {
	defer conn.Close()
	for {
		frame, err := protocol.ReadFrame(conn, protocol.Limits{Produce: 1 << 24, Other: 1 << 24}, func(n int) ([]byte, error) { return make([]byte, n), nil })
		if err != nil {
			return
		}
		h, err := b.table.ParseHeader(frame)
		if err != nil {
			b.t.Errorf("header: %v", err)
			return
		}
		req, err := b.table.Decode(h.Key, h.Version, h.Body)
		if err != nil {
			b.t.Errorf("body: %v", err)
			return
		}
		b.mu.Lock()
		b.got = append(b.got, req)
		b.mu.Unlock()
		var resp kmsg.Response
		if hello, ok := req.(*kmsg.ApiVersionsRequest); ok {
			resp = b.hello(hello)
		} else {
			resp = b.answer(req, n)
		}
		if resp == nil {
			continue
		}
		out, err := b.table.AppendResponse(nil, h, resp)
		if err != nil {
			b.t.Errorf("answer: %v", err)
		}
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

func (b *broker) hello(req *kmsg.ApiVersionsRequest) kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	if req.Version >= 5 && (*req.ClusterID != cluster || req.NodeID != 2) {
		resp.ErrorCode = 129
	}
	for _, a := range b.table.APIs() {
		resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: a.Key, MinVersion: a.AdvertisedMin, MaxVersion: a.Max})
	}
	return resp
}

// received counts the requests of a key.
func (b *broker) received(key int16) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.got {
		if r.Key() == key {
			n++
		}
	}
	return n
}

func (b *broker) client(change ...func(*Options)) *Client {
	o := Options{
		Self: 1, Epoch: func() int64 { return 55 }, ClusterID: func() string { return cluster },
		Address: func(context.Context, metadata.BrokerID) (string, error) { return "node2:9094", nil }, Dial: b.dial,
	}
	for _, f := range change {
		f(&o)
	}
	c := New(o)
	b.t.Cleanup(c.Close)
	return c
}

// raw answers every frame of a connection with fixed bytes.
func raw(t *testing.T, first func(conn net.Conn), bytes []byte) func(context.Context, string) (net.Conn, error) {
	t.Helper()
	return func(context.Context, string) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			first(there)
			var size [4]byte
			if _, err := io.ReadFull(there, size[:]); err != nil {
				return
			}
			_, _ = io.CopyN(io.Discard, there, int64(binary.BigEndian.Uint32(size[:])))
			_, _ = there.Write(bytes)
			_, _ = io.Copy(io.Discard, there)
		}()
		return here, nil
	}
}

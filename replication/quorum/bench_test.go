package quorum

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"golang.org/x/sys/unix"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/vfs"
)

// benchClients commit one offset at a time.
const benchClients = 512

// BenchmarkOffsets commits offsets of 512 clients, one at a time, on three nodes over real sockets with real files: all at the leader, and
// at all three; and the same through the library alone, which gathers what comes while an entry is in flight. The same store, flushed at
// each entry, is under all.
func BenchmarkOffsets(b *testing.B) {
	b.Run("bare", benchBare)
	b.Run("leader", func(b *testing.B) { benchOffsets(b, false) })
	b.Run("spread", func(b *testing.B) { benchOffsets(b, true) })
}

// benchCommits has the clients commit b.N times.
func benchCommits(b *testing.B, commit func(client int, offset int64) error) {
	b.Helper()
	var next atomic.Int64
	var work sync.WaitGroup
	b.ResetTimer()
	before := usedCPU()
	for client := range benchClients {
		work.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(b.N) {
					return
				}
				if err := commit(client, i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	work.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
	b.ReportMetric(float64((usedCPU()-before).Microseconds())/float64(b.N), "µs-CPU/commit") // of the clients too
}

// usedCPU is what this process has used.
func usedCPU() time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func benchOffsets(b *testing.B, spread bool) {
	var w *carrier
	c, l := loopback(b, func(o *Options) {
		o.FS, o.Dir, o.Store, o.Timing = vfs.OS(), b.TempDir(), nil, Timing{}
		id := int(o.Node)
		o.Remote = func(ctx context.Context, leader metadata.BrokerID, payload []byte) (metadata.Outcome, error) {
			return w.carry(ctx, [2]int{id, int(leader)}, payload)
		}
	})
	defer l.Close()
	w = &carrier{c: c, qs: map[int]*Quorum{}}
	c.ready()
	w.runs()
	lead := c.leader()
	lead.propose(offsetsTopic)
	for id := range c.nodes {
		w.register(id, 1)
	}
	type client struct {
		q     *Quorum
		group string
		epoch int64
	}
	clients := make([]client, benchClients)
	epochs := map[int32]int64{}
	for i := range clients {
		k := &clients[i]
		k.group = fmt.Sprint("group-", i)
		shard := metadata.ShardOf(k.group)
		id := lead.id
		if spread {
			id = int(shard)%3 + 1
		}
		if epochs[shard] == 0 {
			epochs[shard] = w.give(k.group, id)
		}
		k.q, k.epoch = c.nodes[id].q, epochs[shard]
	}
	before := lead.q.Image().Index()
	benchCommits(b, func(i int, offset int64) error {
		k := &clients[i]
		a, err := k.q.ProposeOffsets(context.Background(), []metadata.Record{commitOf(k.group, k.epoch, int32(i%4), offset)})
		if err == nil {
			err = a.Results[0].Err()
		}
		return err
	})
	b.ReportMetric(float64(b.N)/float64(lead.q.Image().Index()-before), "commits/entry")
	for _, n := range c.nodes {
		_ = n.q.Close()
		n.q = nil
	}
}

// bareState is a state machine of the least that can be: offsets by client.
type bareState struct {
	mu      sync.Mutex
	offsets map[string]int64
}

func (s *bareState) Apply(l *raft.Log) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	for b := l.Data; len(b) > 0; {
		n := int(b[0])
		s.offsets[string(b[1:1+n])] = int64(binary.BigEndian.Uint64(b[1+n:]))
		b = b[9+n:]
	}
	return nil
}

func (s *bareState) Snapshot() (raft.FSMSnapshot, error) { return nil, raft.ErrNothingNewToSnapshot }
func (s *bareState) Restore(r io.ReadCloser) error       { return r.Close() }

// bareCluster starts three members of the library alone, and gives the leader.
func bareCluster(b *testing.B) (lead *raft.Raft, stop func()) {
	var all []*raft.Raft
	var servers []raft.Server
	var stores []Store
	var transports []*raft.NetworkTransport
	for i := range 3 {
		t, err := raft.NewTCPTransportWithLogger("127.0.0.1:0", nil, 3, 5*time.Second, hclog.NewNullLogger())
		if err != nil {
			b.Fatal(err)
		}
		transports = append(transports, t)
		servers = append(servers, raft.Server{ID: raft.ServerID(fmt.Sprint(i)), Address: t.LocalAddr()})
	}
	for i, t := range transports {
		store, err := openBolt(filepath.Join(b.TempDir(), "raft.db"))
		if err != nil {
			b.Fatal(err)
		}
		stores = append(stores, store)
		config := raft.DefaultConfig()
		config.LocalID, config.Logger, config.MaxAppendEntries, config.NoLegacyTelemetry = servers[i].ID, hclog.NewNullLogger(), 256, true
		logs, err := raft.NewLogCache(128, store)
		if err != nil {
			b.Fatal(err)
		}
		snaps := raft.NewInmemSnapshotStore()
		if err := raft.BootstrapCluster(config, store, store, snaps, t, raft.Configuration{Servers: servers}); err != nil {
			b.Fatal(err)
		}
		r, err := raft.NewRaft(config, &bareState{offsets: map[string]int64{}}, logs, store, snaps, t)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, r)
	}
	for ; lead == nil; runtime.Gosched() {
		for _, r := range all {
			if r.State() == raft.Leader {
				lead = r
			}
		}
	}
	return lead, func() {
		for _, r := range all {
			_ = r.Shutdown().Error()
		}
		for i, t := range transports {
			t.CloseStreams()
			_ = t.Close()
			_ = stores[i].Close()
		}
	}
}

// benchBare gathers commits while an entry is in flight, and no more.
func benchBare(b *testing.B) {
	lead, stop := bareCluster(b)
	defer stop()
	type waiting struct {
		data []byte
		done chan error
	}
	var mu sync.Mutex
	var forming []waiting
	wake := make(chan struct{}, 1)
	end := make(chan struct{})
	defer close(end)
	go func() {
		for {
			select {
			case <-wake:
			case <-end:
				return
			}
			mu.Lock()
			batch := forming
			forming = nil
			mu.Unlock()
			var payload []byte
			for _, w := range batch {
				payload = append(payload, w.data...)
			}
			err := lead.Apply(payload, 0).Error()
			for _, w := range batch {
				w.done <- err
			}
		}
	}()
	before := lead.LastIndex()
	benchCommits(b, func(client int, offset int64) error {
		name := fmt.Sprint("group-", client)
		w := waiting{binary.BigEndian.AppendUint64(append([]byte{byte(len(name))}, name...), uint64(offset)), make(chan error, 1)}
		mu.Lock()
		forming = append(forming, w)
		mu.Unlock()
		select {
		case wake <- struct{}{}:
		default:
		}
		return <-w.done
	})
	b.ReportMetric(float64(b.N)/float64(lead.LastIndex()-before), "commits/entry")
}

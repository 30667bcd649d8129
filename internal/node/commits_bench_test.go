package node

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"

	"github.com/keeplog/keeplog/metadata"
)

// committer is a group that commits one offset at a time over a connection to its coordinator.
type committer struct {
	conn  net.Conn
	frame []byte
	// at is where the offset is in the frame.
	at  int
	got []byte
}

// newCommitter dials a group's coordinator; it commits in topic t.
func newCommitter(tb testing.TB, address, group string, partition int32) *committer {
	tb.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		tb.Fatal(err)
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = 8, group, -1
	const mark = 0x0102030405060708
	req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{{
		Partition: partition, Offset: mark, LeaderEpoch: -1,
	}}}}
	k := &committer{conn: conn, frame: kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, req, 1), got: make([]byte, 256)}
	for i := range k.frame {
		if i+8 <= len(k.frame) && binary.BigEndian.Uint64(k.frame[i:]) == mark {
			k.at = i
		}
	}
	return k
}

// errMoved says that the coordinator does not serve at the moment.
var errMoved = errors.New("no coordinator")

// commit commits an offset, and waits for the answer.
func (k *committer) commit(offset int64) error {
	binary.BigEndian.PutUint64(k.frame[k.at:], uint64(offset))
	if _, err := k.conn.Write(k.frame); err != nil {
		return err
	}
	// The answer is small: it comes in one piece, nearly always.
	n, err := io.ReadAtLeast(k.conn, k.got, 4)
	if err != nil {
		return err
	}
	size := 4 + int(binary.BigEndian.Uint32(k.got))
	if n < size {
		if _, err := io.ReadFull(k.conn, k.got[n:size]); err != nil {
			return err
		}
	}
	resp := kmsg.OffsetCommitResponse{Version: 8}
	if err := resp.ReadFrom(k.got[9:size]); err != nil { // behind the size, the correlation id and the tags
		return err
	}
	switch code := resp.Topics[0].Partitions[0].ErrorCode; code {
	case 0:
	case 14, 15, 16:
		return fmt.Errorf("%w: code %d", errMoved, code)
	default:
		return fmt.Errorf("code %d", code)
	}
	return nil
}

// commitAll has committers commit b.N offsets, one at a time each.
func commitAll(b *testing.B, all []*committer) {
	b.Helper()
	var next atomic.Int64
	var work sync.WaitGroup
	b.ResetTimer()
	for _, k := range all {
		work.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(b.N) {
					return
				}
				err := k.commit(i)
				if errors.Is(err, errMoved) { // a busy machine may lose a lease: the coordinator is back soon
					eventually(b, "the coordinator again", func() error { return k.commit(i) })
				} else if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	work.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
}

// BenchmarkCommits has 512 groups commit one offset a request, each at its coordinator, on three nodes in one process, with real files and
// sockets.
func BenchmarkCommits(b *testing.B) {
	const clients = 512
	c := newTrio(b)
	if made, err := kadm.NewClient(c.client()).CreateTopic(b.Context(), 8, 3, nil, "t"); err != nil || made.Err != nil {
		b.Fatal(err, made.Err)
	}
	all := make([]*committer, clients)
	for i := range all {
		group := fmt.Sprint("group-", i)
		eventually(b, "a coordinator", func() error {
			owner := c.nodes[0].quorum.Image().Shard(metadata.ShardOf(group)).Owner
			if owner < 1 {
				return fmt.Errorf("no owner")
			}
			if all[i] == nil {
				all[i] = newCommitter(b, fmt.Sprintf("127.0.0.1:%d", c.ports[owner-1][0]), group, int32(i%8))
			}
			err := all[i].commit(0)
			if err != nil {
				_ = all[i].conn.Close()
				all[i] = nil
			}
			return err
		})
	}
	before, used := c.nodes[0].quorum.Image().Index(), processorTime()
	commitAll(b, all)
	b.ReportMetric(float64((processorTime()-used).Microseconds())/float64(b.N), "µs-CPU/commit") // of three nodes, and of the clients
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second)
	defer cancel()
	last := c.nodes[1].quorum.Image().Index()
	if err := c.nodes[0].quorum.WaitIndex(ctx, last); err != nil {
		b.Error(err)
	}
	b.ReportMetric(float64(b.N)/float64(last-before), "commits/entry")
	for _, k := range all {
		_ = k.conn.Close()
	}
}

// BenchmarkCommitsOf is BenchmarkCommits for a running cluster of any make, which KEEPLOG_BENCH_AT names by its bootstrap servers
// (HOST:PORT,...) and KEEPLOG_BENCH_PIDS by the processes of its brokers: so keeplog and a peer are measured with the same client, which
// takes a part of the machine that is small and reported. The topic t has eight partitions, and is made when it is missing.
func BenchmarkCommitsOf(b *testing.B) {
	const clients = 512
	at := os.Getenv("KEEPLOG_BENCH_AT")
	if at == "" {
		b.Skip("KEEPLOG_BENCH_AT is not set")
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(at, ",")...))
	if err != nil {
		b.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	if made, err := adm.CreateTopic(b.Context(), 8, -1, nil, "t"); err != nil && !errors.Is(made.Err, kerr.TopicAlreadyExists) {
		b.Fatal(err)
	}
	all := make([]*committer, clients)
	for i := range all {
		group := fmt.Sprint("group-", i)
		eventually(b, "a coordinator", func() error {
			found := adm.FindGroupCoordinators(b.Context(), group)
			if err := found.Error(); err != nil {
				return err
			}
			node := found[group]
			all[i] = newCommitter(b, net.JoinHostPort(node.Host, fmt.Sprint(node.Port)), group, int32(i%8))
			if err := all[i].commit(0); err != nil {
				_ = all[i].conn.Close()
				return err
			}
			return nil
		})
	}
	own, theirs := processorTime(), timeOfAll(b, os.Getenv("KEEPLOG_BENCH_PIDS"))
	commitAll(b, all)
	b.ReportMetric(float64((timeOfAll(b, os.Getenv("KEEPLOG_BENCH_PIDS"))-theirs).Microseconds())/float64(b.N), "µs-CPU/commit")
	b.ReportMetric(float64((processorTime()-own).Microseconds())/float64(b.N), "µs-client/commit")
	for _, k := range all {
		_ = k.conn.Close()
	}
}

// timeOfAll is what processes have used, by their ids with commas between them.
func timeOfAll(tb testing.TB, pids string) time.Duration {
	tb.Helper()
	var sum time.Duration
	for pid := range strings.SplitSeq(pids, ",") {
		if pid == "" {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		if err != nil {
			tb.Fatal(err)
		}
		// Behind the name, which ends with the last parenthesis, utime and stime are fields 14 and 15, in hundredths of a second.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		for _, f := range fields[11:13] {
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				tb.Fatal(err)
			}
			sum += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return sum
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

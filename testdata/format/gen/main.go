// Command gen fills a running broker with one topic for each thing that a log directory can hold, so that its data directory can be kept as
// a golden directory:
//
//	go run ./testdata/format/gen -brokers 127.0.0.1:9092 [-txn=false] [-groups=false]
//
// The README beside it says how the directories here were made. Record times are fixed (2026-01-01 and on), which rolls segments by
// segment.ms without waiting.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func main() {
	brokers := flag.String("brokers", "127.0.0.1:9092", "bootstrap address")
	txn := flag.Bool("txn", true, "write transactions")
	groups := flag.Bool("groups", true, "commit offsets of a group")
	compact := flag.Bool("compact", true, "wait for the cleaner on the compacted topics")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	g := &gen{ctx: ctx, seeds: strings.Split(*brokers, ",")}
	g.adm = kadm.NewClient(g.client(kgo.DisableIdempotentWrite()))
	defer g.adm.Close()

	g.plain()
	g.codecs()
	g.idempotent()
	g.segments()
	g.deleted()
	if *txn {
		g.transactions()
	}
	if *groups {
		g.commits()
	}
	g.compacted(*txn, *compact)
}

type gen struct {
	ctx   context.Context
	seeds []string
	adm   *kadm.Client
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func (g *gen) client(opts ...kgo.Opt) *kgo.Client {
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(g.seeds...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
	}, opts...)...)
	must(err)
	return cl
}

// topic makes a topic of one partition; settings are pairs.
func (g *gen) topic(name string, settings ...string) {
	cfg := map[string]*string{"retention.ms": kadm.StringPtr("-1")}
	for i := 0; i < len(settings); i += 2 {
		cfg[settings[i]] = &settings[i+1]
	}
	_, err := g.adm.CreateTopic(g.ctx, 1, 1, cfg, name)
	if !errors.Is(err, kerr.TopicAlreadyExists) {
		must(err)
	}
}

// batch sends records as one batch.
func (g *gen) batch(cl *kgo.Client, topic string, at time.Time, kvs ...string) {
	var recs []*kgo.Record
	for i := 0; i < len(kvs); i += 2 {
		r := &kgo.Record{Topic: topic, Timestamp: at.Add(time.Duration(i/2) * time.Millisecond)}
		if kvs[i] != "<null>" {
			r.Key = []byte(kvs[i])
		}
		if kvs[i+1] != "<null>" {
			r.Value = []byte(kvs[i+1])
		}
		recs = append(recs, r)
	}
	must(cl.ProduceSync(g.ctx, recs...).FirstErr())
}

func (g *gen) plain() {
	g.topic("plain")
	cl := g.client(kgo.DisableIdempotentWrite())
	defer cl.Close()
	g.batch(cl, "plain", epoch, "a", "1", "b", "2", "<null>", "no key", "c", "<null>", "", "")
	must(cl.ProduceSync(g.ctx, &kgo.Record{Topic: "plain", Timestamp: epoch.Add(time.Second), Key: []byte("h"), Value: []byte{0, 0xff, '"', '\n'}, Headers: []kgo.RecordHeader{
		{Key: "trace", Value: []byte("abc")}, {Key: "empty", Value: []byte{}}, {Key: "null"},
	}}).FirstErr())
	g.topic("append-time", "message.timestamp.type", "LogAppendTime")
	g.batch(cl, "append-time", epoch, "a", "1", "b", "2")
}

func (g *gen) codecs() {
	g.topic("codecs")
	for i, c := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		cl := g.client(kgo.DisableIdempotentWrite(), kgo.ProducerBatchCompression(c))
		var kvs []string
		for j := range 4 {
			kvs = append(kvs, fmt.Sprintf("key-%d-%d", i, j), strings.Repeat(fmt.Sprintf("value %d %d ", i, j), 40))
		}
		g.batch(cl, "codecs", epoch.Add(time.Duration(i)*time.Second), kvs...)
		cl.Close()
	}
}

func (g *gen) idempotent() {
	g.topic("idempotent")
	for p := range 2 {
		cl := g.client()
		for i := range 4 {
			g.batch(cl, "idempotent", epoch.Add(time.Duration(p*10+i)*time.Second), fmt.Sprint(p), fmt.Sprint(i), fmt.Sprint(p), fmt.Sprint(i, "b"))
		}
		cl.Close()
	}
}

// segments rolls by time: an hour between batches, and enough bytes for index entries.
func (g *gen) segments() {
	g.topic("segments", "segment.ms", "1000000", "index.interval.bytes", "512")
	cl := g.client()
	defer cl.Close()
	for s := range 4 {
		for i := range 8 {
			at := epoch.Add(time.Duration(s)*time.Hour + time.Duration(i)*time.Second)
			if i == 5 {
				at = at.Add(-3 * time.Second) // late: the time index must not go back
			}
			g.batch(cl, "segments", at, fmt.Sprint(i), strings.Repeat("x", 200), fmt.Sprint(i), strings.Repeat("y", 100))
		}
	}
}

// deleted moves the log start into the middle of a segment.
func (g *gen) deleted() {
	g.topic("deleted", "segment.ms", "1000000")
	cl := g.client()
	defer cl.Close()
	for s := range 3 {
		g.batch(cl, "deleted", epoch.Add(time.Duration(s)*time.Hour), "k", "1", "k", "2", "k", "3")
	}
	_, err := g.adm.DeleteRecords(g.ctx, kadm.Offsets{"deleted": {0: {Topic: "deleted", Partition: 0, At: 4}}})
	must(err)
}

func (g *gen) transactions() {
	g.topic("txn", "segment.ms", "1000000")
	one, two := g.client(kgo.TransactionalID("txn-one")), g.client(kgo.TransactionalID("txn-two"))
	defer one.Close()
	defer two.Close()
	for s := range 2 {
		at := epoch.Add(time.Duration(s) * time.Hour)
		must(one.BeginTransaction())
		must(two.BeginTransaction())
		g.batch(one, "txn", at, "one", "kept")
		g.batch(two, "txn", at.Add(time.Second), "two", "aborted")
		g.batch(one, "txn", at.Add(2*time.Second), "one", "kept too")
		must(two.EndTransaction(g.ctx, kgo.TryAbort))
		must(one.EndTransaction(g.ctx, kgo.TryCommit))
	}
}

// commits writes offsets through the group "readers" and as a simple group without members.
func (g *gen) commits() {
	cl := g.client(kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("plain", "idempotent"), kgo.DisableAutoCommit())
	fetches := cl.PollFetches(g.ctx)
	must(fetches.Err())
	must(cl.CommitUncommittedOffsets(g.ctx))
	cl.Close()
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: "codecs", Partition: 0, At: 7, LeaderEpoch: 0, Metadata: "by hand"})
	_, err := g.adm.CommitOffsets(g.ctx, "simple", offsets)
	must(err)
}

func (g *gen) compacted(txn, wait bool) {
	for _, name := range []string{"compacted", "compacted-txn"} {
		g.topic(name, "cleanup.policy", "compact", "segment.ms", "1000000", "min.cleanable.dirty.ratio", "0.001", "index.interval.bytes", "128")
	}
	cl := g.client(kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	defer cl.Close()
	for s := range 6 {
		at := epoch.Add(time.Duration(s) * time.Hour)
		g.batch(cl, "compacted", at, "a", fmt.Sprint("a", s), "b", fmt.Sprint("b", s), fmt.Sprint("once", s), "stays")
		g.batch(cl, "compacted", at.Add(time.Second), "c", fmt.Sprint("c", s))
		g.batch(cl, "compacted", at.Add(2*time.Second), fmt.Sprint("gone", s), "<null>")
	}
	if txn {
		tx := g.client(kgo.TransactionalID("txn-compacted"))
		defer tx.Close()
		for s := range 6 {
			must(tx.BeginTransaction())
			at := epoch.Add(time.Duration(s) * time.Hour)
			g.batch(tx, "compacted-txn", at, "a", fmt.Sprint(s), fmt.Sprint("once", s), "stays or not")
			must(tx.EndTransaction(g.ctx, kgo.TransactionEndTry(s%2 == 0)))
		}
		// the markers carry the broker's clock: a record ahead of it rolls the segment that holds them
		g.batch(cl, "compacted-txn", time.Now().Add(50*time.Minute), "last", "rolled")
	}
	if wait {
		g.cleaned(cl)
	}
}

// cleaned waits until the cleaner has taken something out, then has it run once more so that delete horizons are set.
func (g *gen) cleaned(cl *kgo.Client) {
	size := func(topic string) int64 {
		dirs, err := g.adm.DescribeAllLogDirs(g.ctx, nil)
		must(err)
		var n int64
		dirs.Each(func(d kadm.DescribedLogDir) {
			d.Topics.Each(func(p kadm.DescribedLogDirPartition) {
				if p.Topic == topic {
					n += p.Size
				}
			})
		})
		return n
	}
	for round := range 2 {
		before := size("compacted")
		for size("compacted") >= before {
			select {
			case <-g.ctx.Done():
				must(g.ctx.Err())
			case <-time.After(500 * time.Millisecond):
			}
		}
		for s := range 2 {
			g.batch(cl, "compacted", epoch.Add(time.Duration(8+2*round+s)*time.Hour), "a", fmt.Sprint("after", round, s))
		}
	}
}

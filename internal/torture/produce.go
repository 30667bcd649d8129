package torture

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// produceTick is how often a producer writes.
	produceTick = 20 * time.Millisecond
	// windowTime is how long a producer writes to the same partitions.
	windowTime = 3 * time.Second
	// windowSize is to how many partitions it writes at a time.
	windowSize = 4
	// pulseEvery is the pause between two pulses of a partition.
	pulseEvery = 20 * time.Millisecond
	// outageLeast is the shortest time without an acknowledgement that counts as one without a leader.
	outageLeast = 200 * time.Millisecond
	maxFiller   = 16 << 10
	// lifeLeast and lifeMost are how long a producer lives: it goes without waiting for its answers, as a client that crashes.
	lifeLeast, lifeMost = 15 * time.Second, 45 * time.Second
)

// clientOptions are those of every client of the workload: quick to try again, and patient without end.
func clientOptions(seeds []string, name string) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.ClientID("torture-" + name), kgo.DisableClientMetrics(),
		kgo.DialTimeout(time.Second), kgo.RequestTimeoutOverhead(time.Second), kgo.ProduceRequestTimeout(time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.MetadataMinAge(50 * time.Millisecond), kgo.MetadataMaxAge(5 * time.Second),
		kgo.AlwaysRetryEOF(), // else a node that is killed right after it accepted looks like one that wants a password
	}
}

func producerOptions(seeds []string, name string) []kgo.Opt {
	return append(
		clientOptions(seeds, name),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.RecordDeliveryTimeout(0), kgo.UnknownTopicRetries(-1), kgo.StopProducerOnDataLossDetected(), kgo.MaxBufferedRecords(4000),
	)
}

// places are the partitions that are written to and read; they become more.
type places struct {
	mu  sync.Mutex
	all []Partition
}

func (p *places) list() []Partition {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}

func (p *places) add(topic string, count int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := range count {
		p.all = append(p.all, Partition{topic, n})
	}
}

// producing is one idempotent producer: one client, one producer id.
type producing struct {
	run    *run
	number int
	rng    *rand.Rand
	client *kgo.Client
	next   map[Partition]int64
	failed atomic.Bool
	rate   int // records a tick
}

// producers runs one producer after another under ever new numbers: the next begins when one has crashed, or was told that a record failed.
func (r *run) producers(ctx context.Context, slot int) {
	for ctx.Err() == nil {
		number := int(r.numbers.Add(1)) - 1
		if number > maxProducer {
			return
		}
		p := &producing{
			run: r, number: number, next: map[Partition]int64{}, rng: rand.New(rand.NewPCG(r.o.Seed, uint64(number)+1)),
			rate: max(1, r.o.Rate*int(produceTick/time.Millisecond)/1000/r.o.Producers),
		}
		if err := p.open(slot); err != nil {
			r.check.Violated(GivenUp, "producer %d: %v", number, err)
			return
		}
		p.loop(ctx)
	}
}

func (p *producing) open(slot int) error {
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(), kgo.SnappyCompression(), kgo.GzipCompression()}
	opts := append(producerOptions(p.run.seeds(), "producer"), kgo.ProducerBatchCompression(codecs[slot%len(codecs)]), kgo.ProducerBatchMaxBytes(128<<10))
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	p.client = client
	p.run.keep(client)
	return nil
}

// loop writes until ctx is done, a record failed, or its life is over. What it has handed over is waited for by run.finish, unless it crashed:
// then a record without an answer is there or not.
func (p *producing) loop(ctx context.Context) {
	tick := time.NewTicker(produceTick)
	defer tick.Stop()
	var window []Partition
	var changed time.Time
	filler := make([]byte, maxFiller)
	for i := range filler {
		filler[i] = "abcdefghijklmnop"[p.rng.IntN(16)]
	}
	life := time.After(lifeLeast + time.Duration(p.rng.Int64N(int64(lifeMost-lifeLeast))))
	for !p.failed.Load() {
		select {
		case <-ctx.Done():
			return
		case <-life:
			p.run.unkeep(p.client)
			p.client.Close()
			return
		case <-tick.C:
		}
		if time.Since(changed) > windowTime {
			window, changed = p.choose(), time.Now()
		}
		for range p.rate {
			p.write(window[p.rng.IntN(len(window))], filler)
		}
	}
}

func (p *producing) choose() []Partition {
	all := p.run.places.list()
	p.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(windowSize, len(all))]
}

func (p *producing) write(to Partition, filler []byte) {
	size := p.rng.IntN(300)
	switch p.rng.IntN(100) {
	case 0:
		size = p.rng.IntN(maxFiller)
	case 1, 2, 3, 4, 5:
		size = p.rng.IntN(4000)
	}
	id := NewID(p.number, p.next[to]+1)
	record := &kgo.Record{Topic: to.Topic, Partition: to.Number, Value: appendValue(nil, id, to.Number, filler[:size])}
	p.next[to]++
	// Without a context: what was handed over is acknowledged, or fails, in the end.
	p.client.TryProduce(context.Background(), record, func(r *kgo.Record, err error) {
		switch {
		case err == nil:
			p.run.check.Acked(to, r.Offset, id)
		case errors.Is(err, kgo.ErrMaxBuffered), errors.Is(err, kgo.ErrClientClosed): // never sent, or told as not answered
		default:
			if p.failed.CompareAndSwap(false, true) {
				p.run.check.Violated(GivenUp, "%s: %s: %v", to, id, err)
			}
		}
	})
}

// pulse writes one record at a time to a partition and measures how long each takes.
func (r *run) pulse(ctx context.Context, client *kgo.Client, number int, to Partition) {
	for n := int64(1); ctx.Err() == nil; n++ {
		id := NewID(number, n)
		sent := time.Since(r.began)
		done := make(chan error, 1)
		client.Produce(context.Background(), &kgo.Record{Topic: to.Topic, Partition: to.Number, Value: appendValue(nil, id, to.Number, nil)},
			func(rec *kgo.Record, err error) {
				if err == nil {
					r.check.Acked(to, rec.Offset, id)
				}
				done <- err
			})
		err := <-done
		switch {
		case errors.Is(err, kgo.ErrClientClosed):
			return
		case err != nil:
			r.check.Violated(GivenUp, "%s: %s: %v", to, id, err)
			return
		}
		// The first one waits for a producer id and for the client to find the leader: that measures the client.
		if got := time.Since(r.began); n > 1 && got-sent >= outageLeast {
			r.slow(Span{sent, got})
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pulseEvery):
		}
	}
}

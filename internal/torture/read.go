package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/record"
)

const (
	askTimeout   = 3 * time.Second
	fetchWait    = 100 * time.Millisecond
	fetchBytes   = 4 << 20
	maxUnpacked  = 64 << 20
	latestEvery  = 50 * time.Millisecond
	leadersEvery = 500 * time.Millisecond
)

// leadership is who leads the partitions, as one node told it.
type leadership struct {
	at      time.Time
	leaders map[Partition]lead
	ids     map[string][16]byte
}

type lead struct {
	node     int32
	epoch    int32
	replicas []int32
	inSync   []int32
}

// metadata asks any node, or with a broker that one.
func metadata(ctx context.Context, from interface {
	Request(context.Context, kmsg.Request) (kmsg.Response, error)
}, topics []string,
) (*leadership, *kmsg.MetadataResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, t := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(t)
		req.Topics = append(req.Topics, rt)
	}
	answer, err := from.Request(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	resp := answer.(*kmsg.MetadataResponse)
	l := &leadership{at: time.Now(), leaders: map[Partition]lead{}, ids: map[string][16]byte{}}
	for _, t := range resp.Topics {
		if t.Topic == nil || t.ErrorCode != 0 {
			continue
		}
		l.ids[*t.Topic] = t.TopicID
		for _, p := range t.Partitions {
			l.leaders[Partition{*t.Topic, p.Partition}] = lead{p.Leader, p.LeaderEpoch, p.Replicas, p.ISR}
		}
	}
	return l, resp, nil
}

func topicsOf(parts []Partition) []string {
	set := map[string]bool{}
	for _, p := range parts {
		set[p.Topic] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// reader reads the partitions that one node leads, with requests of its own, so that it knows when each question was sent.
type reader struct {
	run    *run
	node   int32
	client *kgo.Client
	codecs *record.Codecs
	next   map[Partition]int64
	known  *leadership
	strays bool // now and then the question goes to a node that may not lead
	anyone bool // it does so now
}

func (r *run) newReader(name string, node int32) (*reader, error) {
	client, err := kgo.NewClient(append(clientOptions(r.seeds(), name), kgo.RequestRetries(0))...)
	if err != nil {
		return nil, err
	}
	r.keep(client)
	return &reader{run: r, node: node, client: client, codecs: record.NewCodecs(), next: map[Partition]int64{}}, nil
}

// refresh finds the leaders anew when what is known is old.
func (d *reader) refresh(ctx context.Context) bool {
	if d.known != nil && time.Since(d.known.at) < leadersEvery {
		return true
	}
	known, _, err := metadata(ctx, d.client, topicsOf(d.run.places.list()))
	if err != nil {
		return false
	}
	d.known = known
	return true
}

// led are the partitions of the run that the reader's node leads, as far as is known.
func (d *reader) led() []Partition {
	return slices.DeleteFunc(d.run.places.list(), func(p Partition) bool {
		l, ok := d.known.leaders[p]
		return !ok || l.node != d.node && !d.anyone
	})
}

// epoch is what is known of a partition's leader epoch, −1 when the answer must not depend on it.
func (d *reader) epoch(p Partition) int32 {
	if d.anyone {
		return -1
	}
	return d.known.leaders[p].epoch
}

// read fetches from the node until ctx is done, and tells every record and watermark.
func (d *reader) read(ctx context.Context) {
	d.loop(ctx, 0, func(parts []Partition) bool {
		asked := map[Partition]int64{}
		floors := map[Partition]int64{}
		for _, p := range parts {
			asked[p], floors[p] = d.next[p], d.run.check.Floor(p)
		}
		req := d.fetchRequest(parts, asked, true)
		resp, err := ask[*kmsg.FetchResponse](ctx, d.client.Broker(int(d.node)), req)
		if err != nil || resp.ErrorCode != 0 {
			return false
		}
		fine := true
		d.each(resp, func(p Partition, rp *kmsg.FetchResponseTopicPartition) {
			if rp.ErrorCode != 0 {
				fine = false
				return
			}
			d.run.check.End(p, floors[p], rp.HighWatermark, "watermark")
			next, err := d.records(p, asked[p], rp.RecordBatches, func(offset int64, id ID, ok bool) {
				if !ok {
					d.run.check.Violated(Strange, "%s offset %d: a reader was given a record that nobody wrote there", p, offset)
					return
				}
				d.run.check.Read(p, offset, id)
			})
			if err != nil {
				d.run.check.Violated(Damaged, "%s offset %d: a reader was given %v", p, next, err)
			}
			d.next[p] = next
		})
		return fine
	})
}

// latest asks for latest offsets until ctx is done.
func (d *reader) latest(ctx context.Context) {
	d.strays = true
	d.loop(ctx, latestEvery, func(parts []Partition) bool {
		floors := map[Partition]int64{}
		for _, p := range parts {
			floors[p] = d.run.check.Floor(p)
		}
		resp, err := ask[*kmsg.ListOffsetsResponse](ctx, d.client.Broker(int(d.node)), d.latestRequest(parts))
		if err != nil {
			return false
		}
		fine := true
		for _, t := range resp.Topics {
			for _, rp := range t.Partitions {
				p := Partition{t.Topic, rp.Partition}
				if rp.ErrorCode != 0 {
					fine = false
				} else if floor, ok := floors[p]; ok {
					d.run.check.End(p, floor, rp.Offset, "latest offset")
				}
			}
		}
		return fine
	})
}

// everyTurn is how often, in turns, a node is asked for the latest offsets of all partitions, without an epoch: one that led them and was
// left behind must not tell what it knows. A fetch is not for that: a follower answers it, and its watermark may lag.
const everyTurn = 3

// loop asks about what the node leads until ctx is done; what was refused makes it find the leaders anew.
func (d *reader) loop(ctx context.Context, pause time.Duration, asks func(parts []Partition) bool) {
	for turn := 1; ctx.Err() == nil; turn++ {
		wait := max(pause, 100*time.Millisecond)
		d.anyone = d.strays && turn%everyTurn == 0
		if d.refresh(ctx) {
			if parts := d.led(); len(parts) > 0 {
				if wait = pause; !asks(parts) && !d.anyone {
					d.known.at = time.Time{}
					wait = max(wait, 30*time.Millisecond)
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// ask sends one request to one broker, once.
func ask[R kmsg.Response](ctx context.Context, b *kgo.Broker, req kmsg.Request) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := b.Request(ctx, req)
	if err != nil {
		var none R
		return none, err
	}
	return answer.(R), nil
}

func (d *reader) fetchRequest(parts []Partition, from map[Partition]int64, leader bool) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(fetchWait.Milliseconds()), 1, fetchBytes
	if !leader {
		req.Rack = "torture" // KIP-392: with a rack any replica may answer
	}
	for _, p := range parts {
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = p.Number, from[p], fetchBytes, d.epoch(p)
		at := slices.IndexFunc(req.Topics, func(t kmsg.FetchRequestTopic) bool { return t.Topic == p.Topic })
		if at < 0 {
			rt := kmsg.NewFetchRequestTopic()
			rt.Topic, rt.TopicID = p.Topic, d.known.ids[p.Topic]
			req.Topics, at = append(req.Topics, rt), len(req.Topics)
		}
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, rp)
	}
	return req
}

func (d *reader) latestRequest(parts []Partition) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	for _, p := range parts {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = p.Number, -1, d.epoch(p)
		at := slices.IndexFunc(req.Topics, func(t kmsg.ListOffsetsRequestTopic) bool { return t.Topic == p.Topic })
		if at < 0 {
			rt := kmsg.NewListOffsetsRequestTopic()
			rt.Topic = p.Topic
			req.Topics, at = append(req.Topics, rt), len(req.Topics)
		}
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, rp)
	}
	return req
}

// each calls do for every partition of an answer, which from version 13 on names topics by id.
func (d *reader) each(resp *kmsg.FetchResponse, do func(Partition, *kmsg.FetchResponseTopicPartition)) {
	for _, t := range resp.Topics {
		name := t.Topic
		for known, id := range d.known.ids {
			if name == "" && id == t.TopicID {
				name = known
			}
		}
		for i := range t.Partitions {
			do(Partition{name, t.Partitions[i].Partition}, &t.Partitions[i])
		}
	}
}

// records walks whole batches, checks them, and tells the records from offset next on. It returns the offset behind them.
func (d *reader) records(p Partition, next int64, buf []byte, tell func(offset int64, id ID, ok bool)) (int64, error) {
	from := next
	for len(buf) > 0 {
		b, rest, err := record.Next(buf)
		if errors.Is(err, record.ErrTorn) {
			return next, nil // cut short by the limit of the answer
		}
		if err == nil {
			err = b.CheckCRC()
		}
		var unpacked []byte
		if err == nil {
			unpacked, err = d.codecs.Unpack(b, nil, maxUnpacked)
		}
		if err != nil {
			return next, err
		}
		it := record.Iterate(b, unpacked)
		for it.Next() {
			rec := it.Record()
			if int64(rec.Offset) < from || b.Control() {
				continue
			}
			id, number, ok := parseValue(rec.Value)
			tell(int64(rec.Offset), id, ok && number == p.Number)
		}
		if err := it.Err(); err != nil {
			return next, err
		}
		next = max(next, int64(b.NextOffset()))
		buf = rest
	}
	return next, nil
}

// consume reads everything as a real client does, again from the start when the client was told that its place is no more.
func (r *run) consume(ctx context.Context) {
	for ctx.Err() == nil {
		client, err := kgo.NewClient(append(clientOptions(r.seeds(), "consumer"),
			kgo.ConsumeTopics(topicsOf(r.places.list())...), kgo.FetchMaxWait(200*time.Millisecond),
			kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.ConsumeResetOffset(kgo.NoResetOffset()))...)
		if err != nil {
			r.check.Violated(NotHealed, "consumer: %v", err)
			return
		}
		r.consumeWith(ctx, client)
		client.Close()
	}
}

func (r *run) consumeWith(ctx context.Context, client *kgo.Client) {
	last := map[Partition]int64{}
	topics := topicsOf(r.places.list())
	for ctx.Err() == nil {
		if now := topicsOf(r.places.list()); len(now) > len(topics) {
			client.AddConsumeTopics(now...)
			topics = now
		}
		poll, cancel := context.WithTimeout(ctx, time.Second)
		fetches := client.PollFetches(poll)
		cancel()
		lost := false
		fetches.EachError(func(topic string, number int32, err error) {
			var loss *kgo.ErrDataLoss
			if errors.As(err, &loss) {
				lost = true
				r.check.Violated(WentBack, "%s-%d: a consumer at offset %d was told that the log had ended at %d", topic, number, loss.ConsumedTo, loss.ResetTo)
			}
		})
		fetches.EachRecord(func(rec *kgo.Record) {
			p := Partition{rec.Topic, rec.Partition}
			if before, ok := last[p]; ok && rec.Offset <= before {
				r.check.Violated(WentBack, "%s: a consumer was given offset %d after %d", p, rec.Offset, before)
			}
			last[p] = rec.Offset
			id, number, ok := parseValue(rec.Value)
			if !ok || number != p.Number {
				r.check.Violated(Strange, "%s offset %d: a consumer was given a record that nobody wrote there", p, rec.Offset)
				return
			}
			r.check.Read(p, rec.Offset, id)
		})
		if lost {
			return
		}
	}
}

// replicaOf reads the replicas of parts from their node, up to ends, and tells them to the checker when that has worked.
func (d *reader) replicaOf(ctx context.Context, node Node, ends map[Partition]int64, parts []Partition) error {
	direct, err := kgo.NewClient(append(clientOptions([]string{node.Address}, "replica"), kgo.RequestRetries(0))...)
	if err != nil {
		return err
	}
	defer direct.Close()
	broker := direct.SeedBrokers()[0]
	next := map[Partition]int64{}
	content := map[Partition]*Replica{}
	for _, p := range parts {
		content[p] = &Replica{Source: fmt.Sprintf("node %d", node.ID), Node: node.ID, part: p}
	}
	progress := time.Now()
	var refused error
	for {
		left := slices.DeleteFunc(slices.Clone(parts), func(p Partition) bool { return next[p] >= ends[p] })
		if len(left) == 0 {
			d.run.check.addReplicas(content)
			return nil
		}
		if errors.Is(refused, errNotServed) && time.Since(progress) > replicaTimeout/4 {
			return refused
		}
		if time.Since(progress) > replicaTimeout || ctx.Err() != nil {
			if refused == nil {
				refused = fmt.Errorf("it gives nothing of %s behind offset %d of %d", left[0], next[left[0]], ends[left[0]])
			}
			return refused
		}
		resp, err := ask[*kmsg.FetchResponse](ctx, broker, d.fetchRequest(left, next, false))
		if err == nil && resp.ErrorCode == 0 {
			d.each(resp, func(p Partition, rp *kmsg.FetchResponseTopicPartition) {
				if behind, rotten := d.run.check.rottenAt(p, node.ID, next[p]); rotten && rp.ErrorCode == codeCorrupt {
					next[p], progress, refused = behind, time.Now(), nil
					return
				}
				if rp.ErrorCode != 0 {
					refused = fmt.Errorf("%s: error code %d", p, rp.ErrorCode)
					if rp.ErrorCode == codeNotLeader && d.known.leaders[p].node != node.ID {
						refused = fmt.Errorf("%w: %s", errNotServed, p)
					}
					return
				}
				after, err := d.records(p, next[p], rp.RecordBatches, content[p].Record)
				if err != nil {
					refused = fmt.Errorf("%s offset %d: %w", p, after, err)
				}
				if after > next[p] {
					next[p], progress, refused = after, time.Now(), nil
				}
			})
		}
		if refused != nil || err != nil {
			_ = d.refresh(ctx)
			<-time.After(50 * time.Millisecond)
		}
	}
}

// errNotServed says that a node which does not lead a partition answers no reads of it.
var errNotServed = errors.New("a follower does not serve reads")

const (
	// replicaTimeout is how long reading a replica may make no progress.
	replicaTimeout = 20 * time.Second
	// codeNotLeader is NOT_LEADER_OR_FOLLOWER.
	codeNotLeader = 6
	// codeCorrupt is CORRUPT_MESSAGE.
	codeCorrupt = 2
)

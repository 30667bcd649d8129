package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/keeplog/keeplog/record"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"
)

const (
	fetchBytes     = 16 << 20 // of one answer
	partitionBytes = 4 << 20
	fetchWait      = 500 * time.Millisecond
	// maxUnpacked bounds one unpacked batch.
	maxUnpacked = 1 << 30
	retryPause  = 100 * time.Millisecond
	watchEach   = time.Second // how often it is asked who leads a partition that nobody led
)

// errMoved means that a partition has another leader than was thought.
var errMoved = errors.New("the leader has moved")

// chunk is what one fetch brought of one partition. The receiver owns it.
type chunk struct {
	part     *part
	from, to int64 // offsets to print
	batches  []byte
	aborted  []kmsg.FetchResponseTopicPartitionAbortedTransaction
}

// consuming is one run of consume.
//
//	broker ─► fetch (one goroutine a broker) ─► chunks ─► print (one goroutine) ─► stdout
//
// While one answer is printed the next one is asked for.
type consuming struct {
	app       *app
	session   *session
	plan      *consumePlan
	parts     []*part
	out       *printer
	committed bool
	waits     bool // for records that are not there yet
}

func (c *consuming) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	chunks := make(chan chunk, 2)
	group.Go(func() error {
		defer close(chunks)
		reading, ctx := errgroup.WithContext(ctx)
		reading.Go(func() error { return c.fetchAll(ctx, c.parts, chunks) })
		reading.Go(func() error { return c.readLate(ctx, reading, chunks) })
		return reading.Wait()
	})
	group.Go(func() error { return c.printAll(ctx, chunks) })
	err := group.Wait()
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// readLate reads the partitions whose leaders did not answer at first, as soon as they do, unless the command stops at the end.
func (c *consuming) readLate(ctx context.Context, reading *errgroup.Group, chunks chan<- chunk) error {
	if !c.waits {
		return nil
	}
	for late := c.plan.late; len(late) > 0; {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
		parts, still, err := c.plan.parts(ctx, late, c.app.flags.timeout/2)
		if err != nil {
			return err
		}
		if late = still; len(parts) > 0 {
			c.app.say("%s there again", isAre(len(parts), "partition"))
			reading.Go(func() error { return c.fetchAll(ctx, parts, chunks) })
		}
	}
	return nil
}

// printAll prints every chunk, and flushes whenever there is nothing more to do.
func (c *consuming) printAll(ctx context.Context, chunks <-chan chunk) error {
	for {
		var next chunk
		var ok bool
		select {
		case next, ok = <-chunks:
		default:
			if err := c.out.flush(); err != nil {
				return err
			}
			select {
			case next, ok = <-chunks:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if !ok {
			return nil
		}
		if err := c.out.chunk(&next); err != nil {
			return err
		}
	}
}

// fetchAll reads parts to their stops, finding their leaders anew whenever one has moved.
func (c *consuming) fetchAll(ctx context.Context, parts []*part, chunks chan<- chunk) error {
	var lastGood atomic.Int64
	lastGood.Store(time.Now().UnixNano())
	for {
		byLeader, left, err := c.leaders(ctx, parts)
		if err == nil {
			if len(byLeader) == 0 {
				return nil
			}
			err = c.fetchLed(ctx, byLeader, left, fetched{chunks, &lastGood})
		}
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !errors.Is(err, errMoved) {
			return err
		}
		// What cannot be reached is asked again until --timeout has passed without an answer.
		if since := time.Since(time.Unix(0, lastGood.Load())); since > c.app.flags.timeout {
			left := slices.DeleteFunc(slices.Clone(parts), (*part).done)
			if bad := slices.IndexFunc(left, func(p *part) bool { return p.why != nil }); bad > 0 {
				left = left[bad:]
			}
			return c.session.noLeader(ctx, left[0].tp, cmp.Or(left[0].why, err))
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// fetched is where answers go, and when the last one came.
type fetched struct {
	chunks   chan<- chunk
	lastGood *atomic.Int64
}

// fetchLed reads what somebody leads until all of it is done. errMoved means that a partition has another leader, or that one of left has one.
func (c *consuming) fetchLed(ctx context.Context, byLeader map[int32][]*part, left []*part, to fetched) error {
	group, ctx := errgroup.WithContext(ctx)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	group.Go(func() error {
		defer stop()
		fetching, ctx := errgroup.WithContext(ctx)
		for leader, led := range byLeader {
			fetching.Go(func() error { return c.fetch(ctx, leader, led, to) })
		}
		return fetching.Wait()
	})
	if len(left) > 0 {
		group.Go(func() error { return c.watch(watching, left) })
	}
	return group.Wait()
}

// watch waits until one of left has a leader, which is errMoved, or ctx ends.
func (c *consuming) watch(ctx context.Context, left []*part) error {
	for {
		select {
		case <-time.After(watchEach):
		case <-ctx.Done():
			return nil
		}
		led, _, err := c.leaders(ctx, left)
		switch {
		case ctx.Err() != nil:
			return nil
		case len(led) > 0:
			return errMoved
		case !errors.Is(err, errMoved):
			return err
		}
	}
}

// leaders groups the partitions that are not done by their leader; left are those that nobody leads. It is an error if nobody leads any.
func (c *consuming) leaders(ctx context.Context, parts []*part) (byLeader map[int32][]*part, left []*part, err error) {
	var topics []string
	for _, p := range parts {
		if !p.done() && !slices.Contains(topics, p.topic) {
			topics = append(topics, p.topic)
		}
	}
	if len(topics) == 0 {
		return nil, nil, nil
	}
	ask, cancel := context.WithTimeout(ctx, c.app.flags.timeout)
	defer cancel()
	m, err := c.session.admin.Metadata(ask, topics...)
	if err != nil {
		if isNetwork(err) || errors.Is(err, context.DeadlineExceeded) {
			return nil, nil, fmt.Errorf("%w: %w", errMoved, err)
		}
		return nil, nil, err
	}
	byLeader = map[int32][]*part{}
	for _, p := range parts {
		if p.done() {
			continue
		}
		detail := m.Topics[p.topic]
		switch {
		case errors.Is(detail.Err, kerr.UnknownTopicOrPartition), detail.Err == nil && [16]byte(detail.ID) != p.id:
			return nil, nil, kafkaError("topic "+p.topic, kerr.UnknownTopicOrPartition, "it was deleted")
		case detail.Err != nil && !kerr.IsRetriable(detail.Err):
			return nil, nil, c.session.answered("topic "+p.topic, detail.Err, "")
		}
		d, ok := detail.Partitions[p.partition]
		switch {
		case !ok || !isLed(d):
			c.fails(p, kerr.LeaderNotAvailable)
			left = append(left, p)
		case time.Now().Before(p.rest):
			left = append(left, p)
		default:
			byLeader[d.Leader] = append(byLeader[d.Leader], p)
		}
	}
	if len(byLeader) == 0 && len(left) > 0 {
		err = fmt.Errorf("%w: %s has no leader", errMoved, left[0])
	}
	return byLeader, left, err
}

// fails notes why p cannot be read now, and tells it once it has lasted.
func (c *consuming) fails(p *part, why error) {
	now := time.Now()
	if p.why == nil {
		p.since = now
	}
	p.why = why
	if now.Sub(p.since) <= c.app.flags.timeout {
		return
	}
	if p.rest = now.Add(watchEach); p.told {
		return
	}
	p.told = true
	reason := netReason(why)
	var ke *kerr.Error
	if errors.As(why, &ke) {
		reason = ke.Message
	}
	c.app.say("%s left out for now: %s", p, reason)
}

// heals notes that p was read.
func (c *consuming) heals(p *part) {
	if p.told {
		c.app.say("%s is there again", p)
	}
	p.trouble = trouble{}
}

// isLed says whether somebody leads a partition.
func isLed(d kadm.PartitionDetail) bool {
	return d.Leader >= 0 && !errors.Is(d.Err, kerr.LeaderNotAvailable)
}

// fetch reads parts from the broker leader until all are done.
func (c *consuming) fetch(ctx context.Context, leader int32, parts []*part, to fetched) error {
	broker := c.session.client.Broker(int(leader))
	for {
		parts = slices.DeleteFunc(parts, (*part).done)
		if len(parts) == 0 {
			return nil
		}
		answer, err := broker.Request(ctx, c.request(parts))
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			for _, p := range parts {
				c.fails(p, err)
			}
			return fmt.Errorf("%w: %w", errMoved, err)
		}
		resp := answer.(*kmsg.FetchResponse)
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return c.partitionError(ctx, parts[0], err)
		}
		if err := c.take(ctx, parts, resp, to); err != nil {
			return err
		}
		// Each partition in turn comes first, as a broker may fill an answer with the first ones alone.
		parts = append(parts[1:], parts[0])
	}
}

func (c *consuming) request(parts []*part) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = int32(fetchWait.Milliseconds())
	req.MinBytes, req.MaxBytes = 1, fetchBytes
	if c.committed {
		req.IsolationLevel = 1
	}
	for _, p := range parts {
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p.partition, p.next, partitionBytes
		if n := len(req.Topics); n > 0 && req.Topics[n-1].TopicID == p.id {
			req.Topics[n-1].Partitions = append(req.Topics[n-1].Partitions, rp)
			continue
		}
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic, rt.TopicID = p.topic, p.id
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
	}
	return req
}

// batchBytes is how many bytes of batches an answer has.
func batchBytes(resp *kmsg.FetchResponse) (total int) {
	for _, t := range resp.Topics {
		for i := range t.Partitions {
			total += len(t.Partitions[i].RecordBatches)
		}
	}
	return total
}

// answered finds the partition that a topic's answer is about, nil where it was not asked for.
func answered(parts []*part, t *kmsg.FetchResponseTopic, partition int32) *part {
	at := slices.IndexFunc(parts, func(p *part) bool {
		return p.partition == partition && (p.topic == t.Topic || t.Topic == "" && p.id == t.TopicID)
	})
	if at < 0 {
		return nil
	}
	return parts[at]
}

// take hands what came to the printer and moves the partitions on. Where some fail in a way that passes, the others are taken.
func (c *consuming) take(ctx context.Context, parts []*part, resp *kmsg.FetchResponse, to fetched) error {
	total := batchBytes(resp)
	var moved error
	for _, t := range resp.Topics {
		for i := range t.Partitions {
			rp := &t.Partitions[i]
			p := answered(parts, &t, rp.Partition)
			if p == nil {
				continue
			}
			why := kerr.ErrorForCode(rp.ErrorCode)
			var err error
			if why != nil {
				err = c.partitionError(ctx, p, why)
			} else {
				to.lastGood.Store(time.Now().UnixNano())
				c.heals(p)
				err = c.takePart(ctx, p, taken{rp, total}, to.chunks)
			}
			switch {
			case errors.Is(err, errMoved):
				c.fails(p, why)
				moved = err
			case err != nil:
				return err
			}
		}
	}
	return moved
}

// taken is an answer for one partition, and how many bytes came of all.
type taken struct {
	*kmsg.FetchResponseTopicPartition
	total int
}

func (c *consuming) takePart(ctx context.Context, p *part, rp taken, chunks chan<- chunk) error {
	end := rp.HighWatermark
	if c.committed {
		end = rp.LastStableOffset
	}
	next, whole, err := scan(rp.RecordBatches, p.next)
	if err != nil {
		return c.damaged(p, err)
	}
	switch {
	case len(whole) > 0:
		select {
		case chunks <- chunk{p, p.next, p.stop, whole, rp.AbortedTransactions}:
		case <-ctx.Done():
			return ctx.Err()
		}
		p.next = next
	case rp.total == 0 && p.toHere:
		p.stop = p.next // the leader has no more
	case rp.total == 0 && p.stop != math.MaxInt64 && end >= p.stop:
		p.next = p.stop // nothing is left below the stop: it was compacted away
	}
	return nil
}

// scan walks the headers of the batches and returns the offset after the last one and the bytes of the whole batches;
// a broker may cut the last one short.
func scan(buf []byte, next int64) (int64, []byte, error) {
	rest := buf
	for len(rest) > 0 {
		b, after, err := record.Next(rest)
		if errors.Is(err, record.ErrTorn) {
			break
		}
		if err != nil {
			return 0, nil, err
		}
		next = max(next, int64(b.NextOffset()))
		rest = after
	}
	return next, buf[:len(buf)-len(rest)], nil
}

// partitionError decides what an error of one partition means: errMoved, nil to go on, or the end.
func (c *consuming) partitionError(ctx context.Context, p *part, err error) error {
	switch {
	case errors.Is(err, kerr.CorruptMessage):
		return c.damaged(p, err)
	case errors.Is(err, kerr.OffsetOutOfRange):
		return c.outOfRange(ctx, p)
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.UnknownTopicOrPartition), kerr.IsRetriable(err):
		return fmt.Errorf("%w: %w", errMoved, err)
	}
	return c.session.answered(p.String(), err, "")
}

// outOfRange goes on at the start that retention or a trim has moved to.
func (c *consuming) outOfRange(ctx context.Context, p *part) error {
	b, err := c.session.bounds(ctx, []tp{p.tp}, boundsOptions{committed: c.committed, wantEnd: true, patience: c.app.flags.timeout})
	if err == nil {
		err = b.all(ctx, c.session, []tp{p.tp})
	}
	if err != nil {
		return err
	}
	start, end := b.start[p.tp], b.end[p.tp]
	if p.next >= start {
		e := failf("%s: OFFSET_OUT_OF_RANGE (offset %d, the log is %d to %d)", p.tp, p.next, start, end)
		e.code, e.try = "OFFSET_OUT_OF_RANGE", "-O end, or an offset of the log"
		return e
	}
	c.app.say("%s: offsets %d to %d were deleted before they were read", p.tp, p.next, start-1)
	p.next = start
	return nil
}

func (c *consuming) damaged(p *part, err error) error {
	what := lastPart(err)
	if errors.Is(err, kerr.CorruptMessage) {
		what = "the broker found the record batch damaged on its disk"
	}
	e := &cliError{
		msg: fmt.Sprintf("%s offset %d: CORRUPT_MESSAGE (%s)", p.tp, p.next, what), code: "CORRUPT_MESSAGE",
		try: "keeplog check DATA-DIR, where the broker runs; -O OFFSET reads on behind it", exit: exitDamaged,
	}
	if errors.Is(err, record.ErrOldVersion) || errors.Is(err, record.ErrNewerVersion) {
		e.code, e.exit = "UNSUPPORTED_FORMAT", exitFailed
		e.msg = fmt.Sprintf("%s offset %d: %s", p.tp, p.next, err)
	}
	return e
}

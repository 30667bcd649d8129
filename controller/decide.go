package controller

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/keeplog/keeplog/metadata"
)

// maxProposal is the most bytes of records that are proposed at once; one record may be larger.
const maxProposal = 256 << 10

// plan runs f in its turn against the newest image, proposes what it returns, and gives each record's refusal to report.
// index is that of the last entry, 0 when there was nothing to propose.
//
// The turn is held until it is known what became of the records, however long the caller waits: the next plan must see them. Only Raft
// bounds that time; where this node ceases to lead it ends, and the next plan is made by another leader, or in another term. A caller that
// leaves is told ErrNotCommitted of each record.
func (c *Controller) plan(ctx context.Context, f func(*planner) []metadata.Record, report func(i int, r metadata.Result, err error)) (index uint64, err error) {
	term, err := c.takeTurn(ctx)
	if err != nil {
		return 0, err
	}
	p := c.planner()
	records := f(p)
	if len(records) == 0 {
		<-c.turn
		return 0, nil
	}
	out := &outcome{term: term, planner: p, records: records, done: make(chan struct{})}
	if ctx.Done() == nil || ctx.Err() != nil { // who has no end waits; who has no time left has been let in, and waits too
		c.commit(context.WithoutCancel(ctx), out)
	} else {
		go c.commit(context.WithoutCancel(ctx), out)
	}
	if err = out.wait(ctx); err == nil {
		p.after = out.after
		err = c.applied(ctx, out.index)
	}
	if err != nil { // committed perhaps, and not known here
		for i := range records {
			report(i, metadata.Result{}, fmt.Errorf("%w: %w", ErrNotCommitted, err))
		}
		return 0, nil
	}
	for i := range records {
		if i < len(out.results) {
			report(i, out.results[i], refusal(out.results[i]))
		} else {
			report(i, metadata.Result{}, fmt.Errorf("%w: %w", ErrNotCommitted, out.err))
		}
	}
	return out.index, nil
}

// takeTurn waits for the turn, and says in which term this node leads. The turn is taken where there is no error.
func (c *Controller) takeTurn(ctx context.Context) (term uint64, err error) {
	if _, err := c.o.Proposer.Lead(); err != nil { // whoever has the turn may wait for long to learn what became of an entry
		return 0, fmt.Errorf("%w: %w", ErrNotController, err)
	}
	select {
	case c.turn <- struct{}{}: // a free turn is taken, whatever the time: what happens follows from the requests alone
	default:
		select {
		case c.turn <- struct{}{}:
		case <-ctx.Done():
			return 0, fmt.Errorf("%w: others were being decided: %w", ErrNotCommitted, context.Cause(ctx))
		}
	}
	if term, err = c.o.Proposer.Lead(); err != nil {
		<-c.turn
		return 0, fmt.Errorf("%w: %w", ErrNotController, err)
	}
	return term, nil
}

// outcome is what becomes of the records of a plan that was made in a term: the results of the first ones, the index of their last entry, and
// why there are no more. These are set before done is closed.
type outcome struct {
	term    uint64
	planner *planner
	records []metadata.Record

	index   uint64
	results []metadata.Result
	after   *metadata.Image // with them
	err     error
	done    chan struct{}
}

// wait waits until it is known what became of the records.
func (o *outcome) wait(ctx context.Context) error {
	select {
	case <-o.done: // known, whatever the time
		return nil
	default:
	}
	select {
	case <-o.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// commit proposes records, up to the first batch that fails, notes what became of them, and gives the turn back.
func (c *Controller) commit(ctx context.Context, out *outcome) {
	defer close(out.done)
	defer func() { <-c.turn }()
	img := out.planner.img
	c.inFlight(img, out.records, true)
	defer c.inFlight(img, out.records, false)
	defer func() { out.after = c.o.Proposer.Image() }()
	for len(out.results) < len(out.records) {
		batch := out.records[len(out.results):]
		batch = batch[:batchSize(batch)]
		index, results, err := c.o.Proposer.ProposeAt(ctx, out.term, batch)
		if err != nil { // it may have been committed
			out.err = err
			c.noteUnknown(img, batch)
			return
		}
		if len(results) != len(batch) {
			panic(fmt.Sprintf("controller: %d results of %d records", len(results), len(batch)))
		}
		for i, r := range results {
			c.noteCommitted(img, batch[i], r, index)
		}
		out.index, out.results = index, append(out.results, results...)
	}
}

// applied waits until what was decided has reached what follows the image on this node.
func (c *Controller) applied(ctx context.Context, index uint64) error {
	if c.o.Applied == nil || index == 0 {
		return nil
	}
	return c.o.Applied(ctx, index)
}

// planner looks at the newest image.
func (c *Controller) planner() *planner {
	p := &planner{img: c.o.Proposer.Image(), static: c.o.Static, rand: c.o.Rand, newID: c.topicID, live: c.running}
	p.heard, p.handed, p.known = c.hearing(p.img), c.handing(p.img), c.knowing()
	c.liveMu.Lock()
	defer c.liveMu.Unlock()
	p.orders, p.reported = c.live.orders(p.img), c.live.ticked
	return p
}

// inFlight notes that records, planned over img, are proposed, or that it is known what became of them.
func (c *Controller) inFlight(img *metadata.Image, records []metadata.Record, on bool) {
	c.liveMu.Lock()
	defer c.liveMu.Unlock()
	c.live.inFlight(img, records, on)
}

// noteCommitted takes note of a record that is in the log at an index, and was planned over img.
func (c *Controller) noteCommitted(img *metadata.Image, rec metadata.Record, r metadata.Result, index uint64) {
	c.liveMu.Lock()
	defer c.liveMu.Unlock()
	c.live.released(img, rec, r)
	c.live.replaced(img, rec, r, index)
}

// noteUnknown takes note of records, planned over img, of which it is not known whether they are committed. If they are, the newest image has
// them: else this node has lost the lead, and another term begins with nothing known.
func (c *Controller) noteUnknown(img *metadata.Image, records []metadata.Record) {
	index := c.o.Proposer.Image().Index()
	c.liveMu.Lock()
	defer c.liveMu.Unlock()
	for _, rec := range records {
		c.live.replaced(img, rec, metadata.Result{}, index)
	}
}

// handing is how a plan asks whether a shard may be given on.
func (c *Controller) handing(img *metadata.Image) func(int32) bool {
	c.liveMu.Lock()
	defer c.liveMu.Unlock()
	if !c.live.ticked {
		return nil
	}
	return func(shard int32) bool {
		c.liveMu.Lock()
		defer c.liveMu.Unlock()
		return c.live.handed(img, shard)
	}
}

// running says whether the process of a registered broker is, or may be, running when another wants its place.
func (c *Controller) running(b *metadata.Broker, r *Registration) bool {
	c.liveMu.Lock()
	defer c.liveMu.Unlock()
	return c.live.running(b, r)
}

// hearing is how a plan asks who has heard of a leader.
func (c *Controller) hearing(img *metadata.Image) func(PartitionRef, int32, []metadata.BrokerID) bool {
	c.liveMu.Lock()
	defer c.liveMu.Unlock()
	if !c.live.ticked {
		return nil
	}
	return func(ref PartitionRef, epoch int32, ids []metadata.BrokerID) bool {
		c.liveMu.Lock()
		defer c.liveMu.Unlock()
		return c.live.heard(img, leadership{ref, epoch}, ids)
	}
}

// batchSize says how many of the records go together.
func batchSize(records []metadata.Record) int {
	size := 0
	for i, rec := range records {
		if size += metadata.RecordSize(rec); size > maxProposal && i > 0 {
			return i
		}
	}
	return len(records)
}

// refusal turns what the state machine said into an answer.
func refusal(r metadata.Result) error {
	err := r.Err()
	var kind error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, metadata.ErrStaleTerm), errors.Is(err, metadata.ErrStaleSession):
		kind = ErrNotController
	case errors.Is(err, metadata.ErrExists):
		kind = ErrTopicExists
	case errors.Is(err, metadata.ErrUnknownTopic):
		kind = ErrUnknownTopic
	case errors.Is(err, metadata.ErrUnknownBroker):
		kind = ErrBrokerNotRegistered
	case errors.Is(err, metadata.ErrStalePartitionEpoch):
		kind = ErrInvalidUpdateVersion
	case errors.Is(err, metadata.ErrStaleBrokerEpoch):
		kind = ErrStaleBrokerEpoch
	default:
		kind = ErrInvalidRequest
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// topicID makes an id that no topic has and that is not one of Kafka's reserved ones, nor begins with a dash as text.
func (c *Controller) topicID() metadata.TopicID {
	if c.o.NewID != nil {
		return c.o.NewID()
	}
	for {
		var id metadata.TopicID
		binary.BigEndian.PutUint64(id[:], c.o.Rand.Uint64())
		binary.BigEndian.PutUint64(id[8:], c.o.Rand.Uint64())
		id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // UUID version 4
		if id.String()[0] != '-' {
			return id
		}
	}
}

// CreateTopics makes topics and answers when every live broker has applied them, as WaitApplied does. The error is of the request as a whole:
// ErrNotController.
func (c *Controller) CreateTopics(ctx context.Context, req CreateTopicsRequest) (answers []CreatedTopic, err error) {
	var of []int
	index, err := c.plan(ctx, func(p *planner) (records []metadata.Record) {
		answers, records, of = p.planCreate(req)
		return records
	}, func(i int, _ metadata.Result, err error) { answers[of[i]].Err = err })
	if index > 0 {
		c.WaitApplied(ctx, index)
	}
	return answers, err
}

// DeleteTopics takes topics away.
func (c *Controller) DeleteTopics(ctx context.Context, topics []TopicRef) (answers []DeletedTopic, err error) {
	var of []int
	index, err := c.plan(ctx, func(p *planner) (records []metadata.Record) {
		answers, records, of = p.planDelete(topics)
		return records
	}, func(i int, _ metadata.Result, err error) { answers[of[i]].Err = err })
	if index > 0 {
		c.WaitApplied(ctx, index)
	}
	return answers, err
}

// CreatePartitions grows topics.
func (c *Controller) CreatePartitions(ctx context.Context, req CreatePartitionsRequest) (answers []GrownTopic, err error) {
	var of []int
	index, err := c.plan(ctx, func(p *planner) (records []metadata.Record) {
		answers, records, of = p.planGrow(req)
		return records
	}, func(i int, _ metadata.Result, err error) { answers[of[i]].Err = err })
	if index > 0 {
		c.WaitApplied(ctx, index)
	}
	return answers, err
}

// IncrementalAlterConfigs changes single settings. Loggers are not among its resources: see [AlterLoggers].
func (c *Controller) IncrementalAlterConfigs(ctx context.Context, req AlterConfigsRequest) (answers []AlteredResource, err error) {
	var of []int
	_, err = c.plan(ctx, func(p *planner) (records []metadata.Record) {
		answers, records, of = p.planAlter(req)
		return records
	}, func(i int, _ metadata.Result, err error) { answers[of[i]].Err = err })
	return answers, err
}

// AlterConfigs replaces all settings of resources.
func (c *Controller) AlterConfigs(ctx context.Context, req ReplaceConfigsRequest) (answers []AlteredResource, err error) {
	var of []int
	_, err = c.plan(ctx, func(p *planner) (records []metadata.Record) {
		answers, records, of = p.planReplace(req)
		return records
	}, func(i int, _ metadata.Result, err error) { answers[of[i]].Err = err })
	return answers, err
}

// decided is what became of records of which each must be accepted: the log index of the last, 0 when there were none, and its
// result.
type decided struct {
	index uint64
	last  metadata.Result
}

// all plans records of which each must be accepted.
func (c *Controller) all(ctx context.Context, f func(*planner) ([]metadata.Record, error)) (d decided, err error) {
	var failed error
	d.index, err = c.plan(ctx, func(p *planner) []metadata.Record {
		records, err := f(p)
		if err != nil {
			failed = err
			return nil
		}
		return records
	}, func(_ int, r metadata.Result, err error) {
		d.last = r
		if err != nil && failed == nil {
			failed = err
		}
	})
	return d, errors.Join(err, failed)
}

// RegisterBroker registers a process as a broker, fenced, and returns its epoch: the log index of the registration. When it
// returns this node has applied that index.
func (c *Controller) RegisterBroker(ctx context.Context, r Registration) (epoch int64, err error) {
	d, err := c.all(ctx, func(p *planner) ([]metadata.Record, error) { return p.planRegister(r) })
	if err == nil {
		c.noteFeatures(r.ID, d.last.Value, r.Features)
	}
	return d.last.Value, err
}

// ReportLost says that a broker's replicas of these partitions miss data that they had: called between registration and
// Unfence.
func (c *Controller) ReportLost(ctx context.Context, id metadata.BrokerID, epoch int64, lost []PartitionRef) error {
	_, err := c.all(ctx, func(p *planner) ([]metadata.Record, error) { return p.planLost(id, epoch, lost) })
	return err
}

// Unfence says that a broker is ready.
func (c *Controller) Unfence(ctx context.Context, id metadata.BrokerID, epoch int64) error {
	_, err := c.all(ctx, func(p *planner) ([]metadata.Record, error) { return p.planUnfence(id, epoch) })
	return err
}

// Fence takes a broker for dead.
func (c *Controller) Fence(ctx context.Context, id metadata.BrokerID, epoch int64) error {
	return c.fence(ctx, id, epoch)
}

// AllocateProducerIDs gives a block of producer ids to a broker; no other gets them, ever.
func (c *Controller) AllocateProducerIDs(ctx context.Context, id metadata.BrokerID, epoch int64) (ProducerIDs, error) {
	d, err := c.all(ctx, func(p *planner) ([]metadata.Record, error) {
		if _, err := p.brokerAt(id, epoch); err != nil {
			return nil, err
		}
		return []metadata.Record{metadata.ProducerIDsGranted{Broker: id, Epoch: epoch, Count: ProducerIDBlock}}, nil
	})
	if err != nil {
		return ProducerIDs{}, err
	}
	return ProducerIDs{First: d.last.Value, Count: ProducerIDBlock}, nil
}

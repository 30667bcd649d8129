package api

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/replication/isr"
)

// keepParts is the number of partitions of a Produce request whose memory stays with its connection.
const keepParts = 1 << 12

// produceCall is the state of a Produce call, kept with the Call so that a connection reuses its memory.
type produceCall struct {
	req  kmsg.ProduceRequest
	resp kmsg.ProduceResponse
	// parts are the partitions in request order; parts[:n] are in use.
	parts []*producePart
	// open counts the partitions without a result, and one more until all are started. Whoever takes it to 0 answers.
	open atomic.Int32
	now  int64 // wall time in ms since 1970
}

// producePart is one partition of a Produce call.
type producePart struct {
	call   *Call
	part   Partition      // nil when it was not found
	leader isr.Leadership // where the partition is not here: who leads it
	result isr.ProduceResult
	done   func(isr.ProduceResult) // p.finish, made once
}

func (p *producePart) finish(r isr.ProduceResult) {
	p.result = r
	p.call.produceDone()
}

// produce starts the append of every partition in order; when it returns all are written or refused, though not all are acknowledged.
func (a *API) produce(c *Call, body []byte) {
	s := &c.produce
	s.req = kmsg.ProduceRequest{Version: c.Version, Topics: s.req.Topics[:0]}
	if err := a.protocol.DecodeProduce(&s.req, c.Version, body); err != nil {
		c.close(err)
		return
	}
	s.open.Store(1)
	n := 0
	for i := range s.req.Topics {
		n += len(s.req.Topics[i].Partitions)
	}
	s.open.Add(int32(n))
	s.grow(c, n)
	s.now = a.o.Now().UnixMilli()
	img := a.o.Images.Image()
	n = 0
	for i := range s.req.Topics {
		t := &s.req.Topics[i]
		topic, err := a.produceTopic(c, img, t)
		for j := range t.Partitions {
			part := s.parts[n]
			n++
			if err != nil {
				part.finish(isr.ProduceResult{Base: -1, AppendTimeMs: -1, LogStart: -1, Err: err})
				continue
			}
			a.producePartition(c, topic, &t.Partitions[j], part)
		}
	}
	c.produceDone()
}

// grow makes room for n partitions.
func (s *produceCall) grow(c *Call, n int) {
	for len(s.parts) < n {
		p := &producePart{call: c}
		p.done = p.finish
		s.parts = append(s.parts, p)
	}
	for _, p := range s.parts[:n] {
		p.part, p.leader = nil, isr.Leadership{Leader: -1, Epoch: -1}
	}
}

// produceTopic finds the topic of a request and says why nothing can be written to it.
func (a *API) produceTopic(c *Call, img *metadata.Image, t *kmsg.ProduceRequestTopic) (*metadata.Topic, error) {
	if acks := c.produce.req.Acks; acks < -1 || acks > 1 {
		return nil, isr.ErrInvalidAcks
	}
	if c.Version >= 13 {
		if topic, ok := img.TopicByID(t.TopicID); ok {
			return topic, nil
		}
		return nil, errUnknownTopicID
	}
	if topic, ok := img.TopicByName(t.Topic); ok {
		return topic, nil
	}
	return nil, errUnknownTopic
}

func (a *API) producePartition(c *Call, t *metadata.Topic, p *kmsg.ProduceRequestTopicPartition, part *producePart) {
	fail := func(err error) {
		part.finish(isr.ProduceResult{Base: -1, AppendTimeMs: -1, LogStart: -1, Err: err})
	}
	if p.Partition < 0 || int(p.Partition) >= len(t.Partitions) {
		fail(errUnknownTopic)
		return
	}
	records, err := oneBatch(p.Records)
	if err != nil {
		fail(err)
		return
	}
	r, err := a.o.Replicas.Partition(t.ID, p.Partition)
	if err != nil {
		part.leader = isr.Leadership{Leader: t.Partitions[p.Partition].Leader, Epoch: record.Epoch(t.Partitions[p.Partition].LeaderEpoch)}
		fail(a.misplaced(err))
		return
	}
	part.part = r
	r.Produce(isr.ProduceRequest{
		Records: records, Acks: c.produce.req.Acks, NowMs: c.produce.now, NoZstd: c.Version < 7,
		Timeout: time.Duration(max(c.produce.req.TimeoutMillis, 0)) * time.Millisecond,
	}, part.done)
}

// oneBatch wants exactly one batch of the current format and cuts off what follows it that is not a batch, as Kafka does.
func oneBatch(b []byte) ([]byte, error) {
	n, err := batchSize(b)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, fmt.Errorf("%w: none", errNotOneBatch)
	}
	if magic := b[batchMagicAt]; magic != 2 {
		return nil, fmt.Errorf("%w: one of format %d", errNotOneBatch, magic)
	}
	switch more, err := batchSize(b[n:]); {
	case err != nil:
		return nil, err
	case more > 0:
		return nil, fmt.Errorf("%w: several", errNotOneBatch)
	}
	return b[:n:n], nil
}

const (
	batchOverhead   = 12 // base offset and length, which the length does not count
	batchMagicAt    = 16
	smallestOfBatch = 14 // length of the smallest record of any format
)

// batchSize is the size in bytes of the batch at the start of b, 0 when there is no whole one.
func batchSize(b []byte) (int, error) {
	if len(b) < batchOverhead {
		return 0, nil
	}
	n := int(int32(binary.BigEndian.Uint32(b[8:])))
	if n < smallestOfBatch {
		return 0, fmt.Errorf("%w: length %d", errBatchFrame, n)
	}
	if len(b) <= batchMagicAt {
		return 0, nil
	}
	if magic := int8(b[batchMagicAt]); magic < 0 || magic > 2 {
		return 0, fmt.Errorf("%w: format %d", errBatchFrame, magic)
	}
	if n += batchOverhead; n > len(b) {
		return 0, nil
	}
	return n, nil
}

// misplaced turns "no such replica here" into the error for a partition that exists elsewhere, or is not open here yet.
func (a *API) misplaced(err error) error {
	if errors.Is(err, isr.ErrUnknownPartition) {
		return isr.ErrNotLeader
	}
	return err
}

// produceDone counts one partition off; the last one answers.
func (c *Call) produceDone() {
	if c.produce.open.Add(-1) == 0 {
		c.api.produceAnswer(c)
	}
}

func (a *API) produceAnswer(c *Call) {
	s := &c.produce
	if s.req.Acks == 0 {
		a.produceQuiet(c)
		return
	}
	resp := &s.resp
	*resp = kmsg.ProduceResponse{Version: c.Version, Topics: resp.Topics[:0]}
	moved := false
	n := 0
	for i := range s.req.Topics {
		t := &s.req.Topics[i]
		out := nextTopic(&resp.Topics)
		out.Topic, out.TopicID = t.Topic, t.TopicID
		for j := range t.Partitions {
			p := kmsg.ProduceResponseTopicPartition{Partition: t.Partitions[j].Partition}
			p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = -1, -1
			moved = a.produceResult(c, s.parts[n], &p) || moved
			n++
			out.Partitions = append(out.Partitions, p)
		}
	}
	if moved {
		a.produceNodes(c, resp)
	}
	b := resp.AppendTo(c.begin())
	s.shrink(n)
	c.send(b)
}

// shrink lets go of what a request of n partitions took, where that is too much to keep with the connection.
func (s *produceCall) shrink(n int) {
	if n > keepParts {
		s.parts, s.req, s.resp = nil, kmsg.ProduceRequest{}, kmsg.ProduceResponse{}
	}
}

// nextTopic lengthens a list of topics by one whose list of partitions is empty, reusing memory.
func nextTopic(l *[]kmsg.ProduceResponseTopic) *kmsg.ProduceResponseTopic {
	n := len(*l)
	if n < cap(*l) {
		*l = (*l)[:n+1]
		t := &(*l)[n]
		*t = kmsg.ProduceResponseTopic{Partitions: t.Partitions[:0]}
		return t
	}
	*l = append(*l, kmsg.ProduceResponseTopic{})
	return &(*l)[n]
}

// produceResult fills one partition of the answer in; moved says that the client should look for another leader.
func (a *API) produceResult(c *Call, part *producePart, p *kmsg.ProduceResponseTopicPartition) (moved bool) {
	r := &part.result
	if r.Err == nil {
		p.BaseOffset, p.LogAppendTime, p.LogStartOffset = int64(r.Base), r.AppendTimeMs, int64(r.LogStart)
		return false
	}
	p.ErrorCode = a.produceCode(r.Err)
	p.BaseOffset, p.LogAppendTime, p.LogStartOffset = -1, -1, -1
	if part.part != nil && judged(r.Err) {
		if e, ok := part.part.Ends(); ok {
			p.LogStartOffset = int64(e.LogStart)
		}
	}
	if errors.Is(r.Err, errBatchFrame) && c.Version >= 8 {
		p.ErrorMessage = text(withoutRooms(r.Err.Error()))
	}
	var each *record.RecordErrors
	if errors.As(r.Err, &each) && c.Version >= 8 {
		p.ErrorMessage = text(withoutRooms(r.Err.Error()))
		for _, e := range each.Records {
			cause := withoutRooms(e.Cause.Error())
			p.ErrorRecords = append(p.ErrorRecords, kmsg.ProduceResponseTopicPartitionErrorRecord{RelativeOffset: e.Index, ErrorMessage: &cause})
		}
	}
	if p.ErrorCode == codeNotLeader && c.Version >= 10 {
		l := part.leader
		if part.part != nil {
			l = part.part.Leadership()
		}
		p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = l.Leader, int32(l.Epoch)
		return true
	}
	return false
}

// produceNodes adds the addresses of the leaders that the answer names (KIP-951).
func (a *API) produceNodes(c *Call, resp *kmsg.ProduceResponse) {
	var ids []int32
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			if id := resp.Topics[i].Partitions[j].CurrentLeader.LeaderID; id >= 0 {
				ids = append(ids, id)
			}
		}
	}
	for _, n := range a.leaders(c, a.o.Images.Image(), ids) {
		resp.Brokers = append(resp.Brokers, kmsg.ProduceResponseBroker{NodeID: n.id, Host: n.host, Port: n.port, Rack: n.rack})
	}
}

// produceQuiet ends a call with acks=0: no answer, and an error closes the connection.
func (a *API) produceQuiet(c *Call) {
	n := 0
	for i := range c.produce.req.Topics {
		n += len(c.produce.req.Topics[i].Partitions)
	}
	var err error
	for _, p := range c.produce.parts[:n] {
		if err = p.result.Err; err != nil {
			break
		}
	}
	c.produce.shrink(n)
	if err != nil {
		c.close(err)
		return
	}
	c.none()
}

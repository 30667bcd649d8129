package api

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/replication/isr"
)

// maxFetchWait bounds the time a fetch is parked: a client that went away silently is noticed no later.
const maxFetchWait = 5 * time.Minute

// rackVersion is the first version whose clients know that they may read from followers (KIP-392).
const rackVersion = 11

// fetchCall is one Fetch from its request to its answer.
type fetchCall struct {
	api  *API
	call *Call
	req  *kmsg.FetchRequest
	// session is nil for a fetch without one; full says that every partition is answered, changed or not.
	session   *fetchSession
	sessionID int32
	full      bool
	parts     []fetchPart

	maxBytes, minBytes int
	committed          bool // isolation level read_committed
	wait               fetchWait
	replica            *replicaCall // a follower asks
}

// fetchPart is one partition of a fetch.
type fetchPart struct {
	fetch *fetchCall
	// in a session: its place there
	place *sessionPart

	name      string
	id        metadata.TopicID
	partition int32
	offset    record.Offset
	maxBytes  int
	epoch     record.Epoch // current leader epoch as the client knows it
	lastEpoch record.Epoch

	part  Partition       // nil when err says why
	other isr.Leadership  // who leads a partition of which no replica is here
	image *metadata.Image // part was found under it; nil outside of sessions
	err   error           // of the look-up
	res   FetchResult

	watch   isr.Watch
	watched watched // while parked
	pending int64   // bytes counted for this partition; guarded by fetch.wait.mu
}

// fetch answers with what is there, or parks the call until there is enough.
func (a *API) fetch(c *Call, body []byte) {
	req := kmsg.NewPtrFetchRequest()
	if err := a.protocol.DecodeFetch(req, c.Version, body); err != nil {
		c.close(err)
		return
	}
	f := &fetchCall{api: a, call: c, req: req, committed: req.IsolationLevel == 1, sessionID: 0, full: true}
	if a.fetchReplica(f) {
		return
	}
	if req.IsolationLevel != 0 && req.IsolationLevel != 1 {
		f.refuse(codeUnknownServerError)
		return
	}
	if code := a.openFetch(f); code != codeNone {
		c.reply(&kmsg.FetchResponse{ErrorCode: code})
		return
	}
	f.maxBytes = min(max(int(req.MaxBytes), 0), a.o.Settings.Live().Int("fetch.max.bytes"))
	f.minBytes = min(max(int(req.MinBytes), 0), f.maxBytes)
	a.resolve(f)
	read, now := f.read()
	wait := min(time.Duration(req.MaxWaitMillis)*time.Millisecond, maxFetchWait)
	if now || read >= f.minBytes || wait <= 0 || len(f.parts) == 0 {
		c.complete(f.answer())
		return
	}
	f.release()
	a.purgatory.park(f, wait)
}

// refuse answers a request that cannot be served at all: before topic ids, every partition carries the code too.
func (f *fetchCall) refuse(code int16) {
	resp := &kmsg.FetchResponse{ErrorCode: code}
	if f.call.Version < 13 {
		for i := range f.req.Topics {
			t := &f.req.Topics[i]
			rt := kmsg.FetchResponseTopic{Topic: t.Topic}
			for j := range t.Partitions {
				p := kmsg.NewFetchResponseTopicPartition()
				p.Partition, p.ErrorCode = t.Partitions[j].Partition, code
				p.HighWatermark, p.LastStableOffset, p.LogStartOffset = -1, -1, -1
				p.AbortedTransactions, p.RecordBatches = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}, []byte{}
				rt.Partitions = append(rt.Partitions, p)
			}
			resp.Topics = append(resp.Topics, rt)
		}
	}
	f.call.reply(resp)
}

// openFetch finds or makes the session and lists the partitions. The code is 0, or that of the whole answer.
func (a *API) openFetch(f *fetchCall) int16 {
	req, now := f.req, a.o.Now()
	if f.call.Version < 7 || req.SessionEpoch == finalEpoch {
		if req.SessionID != 0 && f.call.Version >= 7 {
			a.sessions.remove(req.SessionID)
		}
		f.listRequest()
		return codeNone
	}
	if req.SessionEpoch == 0 {
		if req.SessionID != 0 {
			a.sessions.remove(req.SessionID)
		}
		f.listRequest()
		if s := a.sessions.open(f.parts, f.call.Version >= 13, now); s != nil {
			f.session, f.sessionID = s, s.id
			s.begin(f, nil)
		}
		return codeNone
	}
	s, code := a.sessions.use(req.SessionID, req.SessionEpoch, f.call.Version >= 13, now)
	if code != codeNone {
		return code
	}
	f.session, f.sessionID, f.full = s, s.id, false
	s.begin(f, req)
	a.sessions.resize(s, len(f.parts))
	return codeNone
}

// replicaOf is the broker that fetches, negative for a client. Followers fetch elsewhere: whoever says here that it is one is refused, as
// Kafka refuses a replica that is none of the partition's.
func replicaOf(req *kmsg.FetchRequest) int32 {
	if req.Version >= 15 {
		return req.ReplicaState.ID
	}
	return req.ReplicaID
}

// listRequest takes the partitions from the request.
func (f *fetchCall) listRequest() {
	n := 0
	for i := range f.req.Topics {
		n += len(f.req.Topics[i].Partitions)
	}
	f.parts = make([]fetchPart, 0, n)
	for i := range f.req.Topics {
		t := &f.req.Topics[i]
		for j := range t.Partitions {
			f.parts = append(f.parts, requestPart(t, &t.Partitions[j]))
		}
	}
}

func requestPart(t *kmsg.FetchRequestTopic, p *kmsg.FetchRequestTopicPartition) fetchPart {
	return fetchPart{
		name: t.Topic, id: t.TopicID, partition: p.Partition, offset: record.Offset(p.FetchOffset), maxBytes: int(p.PartitionMaxBytes),
		epoch: record.Epoch(p.CurrentLeaderEpoch), lastEpoch: record.Epoch(p.LastFetchedEpoch),
	}
}

// resolve finds every partition of a fetch.
func (a *API) resolve(f *fetchCall) {
	img := a.o.Images.Image()
	for i := range f.parts {
		p := &f.parts[i]
		if p.fetch != f { // once: whoever has just been told that the partition moved may be reading it
			p.fetch = f
		}
		if f.call.Version < 9 {
			p.epoch = -1
		}
		if f.call.Version < 12 {
			p.lastEpoch = -1
		}
		if p.image == img {
			p.err = nil
			continue
		}
		p.image = nil
		p.part, p.err = a.resolvePart(f.call, img, p)
	}
	if f.session != nil {
		f.session.remember(f, img)
	}
}

func (a *API) resolvePart(c *Call, img *metadata.Image, p *fetchPart) (Partition, error) {
	var t *metadata.Topic
	var ok bool
	missing := errUnknownTopic
	if c.Version >= 13 {
		t, ok = img.TopicByID(p.id)
		missing = errUnknownTopicID
	} else {
		t, ok = img.TopicByName(p.name)
	}
	if !ok {
		return nil, missing
	}
	if p.partition < 0 || int(p.partition) >= len(t.Partitions) {
		return nil, errUnknownTopic
	}
	part, err := a.o.Replicas.Partition(t.ID, p.partition)
	if err != nil {
		p.other = isr.Leadership{Leader: t.Partitions[p.partition].Leader, Epoch: record.Epoch(t.Partitions[p.partition].LeaderEpoch)}
		return nil, a.misplaced(err)
	}
	return part, nil
}

// read reads every partition in order within the limits of the request. now says that the answer must not wait for more.
func (f *fetchCall) read() (total int, now bool) {
	left := f.maxBytes
	replica := replicaOf(f.req) >= 0
	for i := range f.parts {
		p := &f.parts[i]
		if replica && p.part != nil {
			p.res, now = FetchResult{Err: notAReplica(p.epoch), DivergingEpoch: -1, DivergingEnd: -1}, true
			continue
		}
		if p.part == nil {
			p.res = FetchResult{Err: p.err, DivergingEpoch: -1, DivergingEnd: -1}
			now = now || !missing(p.err)
			continue
		}
		p.res = p.part.Fetch(isr.FetchRequest{
			Offset: p.offset, MaxBytes: max(min(p.maxBytes, left), 0), AtLeastOne: total == 0,
			LeaderEpoch: p.epoch, LastFetchedEpoch: p.lastEpoch,
			AnyReplica: f.call.Version >= rackVersion, Rack: f.req.Rack, Abandon: f.call.Conn.Abandon,
		})
		if p.res.Err != nil || p.res.DivergingEpoch >= 0 || p.res.Redirect {
			now = true
		}
		if p.res.Span != nil {
			n := p.res.Span.Len()
			total += n
			left -= n
		}
	}
	return total, now
}

// notAReplica is what a broker gets that is no replica of the partition: with an epoch it seems to know newer metadata.
func notAReplica(epoch record.Epoch) error {
	if epoch >= 0 {
		return isr.ErrUnknownLeaderEpoch
	}
	return isr.ErrNotLeader
}

// missing says that a partition does not exist, as far as this broker knows: such a fetch waits, as in Kafka.
func missing(err error) bool {
	return errors.Is(err, errUnknownTopic) || errors.Is(err, errUnknownTopicID)
}

// release gives back the spans of a read.
func (f *fetchCall) release() {
	for i := range f.parts {
		if s := f.parts[i].res.Span; s != nil {
			s.Release()
			f.parts[i].res.Span = nil
		}
	}
}

// Build reads again and makes the answer of a fetch that was parked. It runs on the connection's goroutine.
func (f *fetchCall) Build() Answer {
	if f.replica != nil {
		return f.buildReplica()
	}
	for i := range f.parts {
		f.parts[i].watch.Stop()
	}
	f.api.resolve(f)
	f.read()
	return f.answer()
}

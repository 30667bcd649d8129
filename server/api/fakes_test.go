package api

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/replication/isr"
)

// world is an API with fakes below it: one broker, number 1, that leads everything.
type world struct {
	t     testing.TB
	api   *API
	index uint64

	mu    sync.Mutex
	image *metadata.Image
	parts map[metadata.TopicID][]*fakePartition
	live  *config.Broker
	now   time.Time

	groups    fakeGroups
	receiver  int32    // of the last change of settings
	internal  bool     // requests come in on the listener of brokers
	refuse    error    // what the controller answers to everything
	placed    []string // replicas that were asked to be in a data directory
	unplaced  error    // what they answer to that
	requests  []any    // what the controller was asked of the cluster's own affairs
	allocated int64
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, image: metadata.New(), parts: map[metadata.TopicID][]*fakePartition{}, live: config.Default(), now: time.UnixMilli(1_700_000_000_000)}
	w.apply(metadata.ClusterStarted{ClusterID: "AAAAAAAAAAAAAAAAAAAAAA"})
	w.apply(metadata.BrokerRegistered{ID: 1, Incarnation: [16]byte{1}, Listeners: []metadata.Endpoint{
		{Name: "PLAINTEXT", Host: "localhost", Port: 9092}, {Name: "OTHER", Host: "other", Port: 9093},
	}, Rack: "r1"})
	b, _ := w.image.Broker(1)
	w.apply(metadata.BrokerFenced{ID: 1, Epoch: b.Epoch})
	w.api = New(Options{
		NodeID: 1, Images: w, Replicas: w, Controller: w, Groups: &w.groups, Dirs: w, Settings: w, Loggers: w, Now: func() time.Time { return w.now },
		Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(w.api.Close)
	return w
}

func (w *world) apply(records ...metadata.Record) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.index++
	cmd := &metadata.Command{Session: metadata.Session{Epoch: metadata.NoEpoch}, Groups: []metadata.Group{{Records: records}}}
	img, _, out, err := metadata.Apply(w.image, nil, metadata.Entry{Index: w.index, Term: 1, Payload: metadata.AppendCommand(nil, cmd)})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range out.Results[0] {
		if err := r.Err(); err != nil {
			w.t.Fatalf("record refused: %v", err)
		}
	}
	w.image = img
}

// topic makes a topic that this broker leads.
func (w *world) topic(name string, partitions int) metadata.TopicID {
	w.t.Helper()
	id := metadata.TopicID{15: byte(len(name))}
	copy(id[:15], name)
	var l []metadata.Partition
	for range partitions {
		l = append(l, metadata.Partition{Replicas: []int32{1}, ISR: []int32{1}, Leader: 1})
	}
	w.apply(metadata.TopicCreated{Name: name, ID: id, Partitions: l})
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range partitions {
		w.parts[id] = append(w.parts[id], &fakePartition{name: name, number: int32(i)})
	}
	return id
}

func (w *world) part(id metadata.TopicID, n int) *fakePartition { return w.parts[id][n] }

func (w *world) Image() *metadata.Image {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.image
}

func (w *world) Partition(id metadata.TopicID, n int32) (Partition, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.parts[id]; n >= 0 && int(n) < len(l) && l[n] != nil {
		return l[n], nil
	}
	return nil, isr.ErrUnknownPartition
}

func (w *world) All(f func(log.Identity, Partition) bool) {
	for id, l := range w.parts {
		for i, p := range l {
			if !f(log.Identity{Topic: p.name, Partition: int32(i), TopicID: id}, p) {
				return
			}
		}
	}
}

// Place notes what it is asked; unplaced, where it is set, is its answer.
func (w *world) Place(topic string, id metadata.TopicID, n int32, dir string) error {
	w.mu.Lock()
	w.placed = append(w.placed, fmt.Sprintf("%s-%d in %s", topic, n, dir))
	refused := w.unplaced
	w.mu.Unlock()
	if refused != nil {
		return refused
	}
	_, err := w.Partition(id, n)
	return err
}

func (w *world) LogDirs() []LogDir {
	return []LogDir{{Path: "/data", Total: 1000, Usable: 500}, {Path: "/gone", Err: errors.New("EIO")}, {Path: "/data2", Total: 1000, Usable: 500}}
}
func (w *world) Static() *config.Broker { return config.Default() }
func (w *world) Live() *config.Broker   { return w.live }

func (w *world) Levels() map[string]string   { return map[string]string{"root": "INFO", "log": "DEBUG"} }
func (w *world) Has(name string) bool        { return w.Levels()[name] != "" }
func (w *world) SetLevel(name, level string) {}

// The controller.

func (w *world) CreateTopics(_ context.Context, req controller.CreateTopicsRequest) ([]controller.CreatedTopic, error) {
	if w.refuse != nil {
		return nil, w.refuse
	}
	var l []controller.CreatedTopic
	for _, t := range req.Topics {
		a := controller.CreatedTopic{Name: t.Name, Partitions: 1, Replicas: 1, Configs: map[string]string{}}
		if err := controller.CheckTopicName(t.Name); err != nil {
			a.Err = err
		} else if _, ok := w.image.TopicByName(t.Name); ok {
			a.Err = &controller.Answer{Kind: controller.ErrTopicExists, Text: "exists"}
		} else if !req.ValidateOnly {
			for _, s := range t.Configs {
				a.Configs[s.Key] = *s.Value
			}
			a.ID = w.topic(t.Name, 1)
		}
		l = append(l, a)
	}
	return l, nil
}

func (w *world) DeleteTopics(_ context.Context, refs []controller.TopicRef) ([]controller.DeletedTopic, error) {
	var l []controller.DeletedTopic
	for _, r := range refs {
		t, ok := w.image.TopicByName(r.Name)
		kind := controller.ErrUnknownTopic
		if r.Name == "" {
			t, ok = w.image.TopicByID(r.ID)
			kind = controller.ErrUnknownTopicID
		}
		if !ok {
			l = append(l, controller.DeletedTopic{Name: r.Name, ID: r.ID, Err: &controller.Answer{Kind: kind, Text: "no such topic"}})
			continue
		}
		w.apply(metadata.TopicDeleted{ID: t.ID})
		l = append(l, controller.DeletedTopic{Name: t.Name, ID: t.ID})
	}
	return l, w.refuse
}

func (w *world) CreatePartitions(_ context.Context, req controller.CreatePartitionsRequest) ([]controller.GrownTopic, error) {
	var l []controller.GrownTopic
	for _, t := range req.Topics {
		g := controller.GrownTopic{Name: t.Name}
		if t.Count < 2 {
			g.Err = &controller.Answer{Kind: controller.ErrInvalidPartitions, Text: "fewer"}
		}
		l = append(l, g)
	}
	return l, w.refuse
}

func (w *world) IncrementalAlterConfigs(_ context.Context, req controller.AlterConfigsRequest) ([]controller.AlteredResource, error) {
	w.receiver = req.Receiver
	var l []controller.AlteredResource
	for _, r := range req.Resources {
		a := controller.AlteredResource{Resource: r.Resource}
		for _, op := range r.Ops {
			if op.Op > config.OpSubtract {
				a.Err = &controller.Answer{Kind: controller.ErrUnknownOperation}
			}
		}
		l = append(l, a)
	}
	return l, w.refuse
}

func (w *world) AlterConfigs(_ context.Context, req controller.ReplaceConfigsRequest) ([]controller.AlteredResource, error) {
	w.receiver = req.Receiver
	var l []controller.AlteredResource
	for _, r := range req.Resources {
		l = append(l, controller.AlteredResource{Resource: r.Resource})
	}
	return l, w.refuse
}

func (w *world) AllocateProducerIDs(_ context.Context, id metadata.BrokerID, epoch int64) (controller.ProducerIDs, error) {
	if w.refuse != nil {
		return controller.ProducerIDs{}, w.refuse
	}
	first := w.allocated
	w.allocated += 3
	return controller.ProducerIDs{First: first, Count: 3}, nil
}

func (w *world) ElectLeaders(_ context.Context, req controller.ElectLeadersRequest) ([]controller.Elected, error) {
	w.requests = append(w.requests, req)
	var l []controller.Elected
	for _, p := range req.Partitions {
		e := controller.Elected{Topic: p.Topic, Partition: p.Partition}
		if p.Partition > 0 {
			e.Err = &controller.Answer{Kind: controller.ErrElectionNotNeeded}
		}
		l = append(l, e)
	}
	return l, w.refuse
}

func (w *world) Reassign(_ context.Context, req controller.ReassignRequest) ([]controller.Reassigned, error) {
	w.requests = append(w.requests, req)
	var l []controller.Reassigned
	for _, p := range req.Partitions {
		r := controller.Reassigned{Topic: p.Topic, Partition: p.Partition}
		if p.Replicas == nil {
			r.Err = &controller.Answer{Kind: controller.ErrNoReassignment}
		}
		l = append(l, r)
	}
	return l, w.refuse
}

func (w *world) ListReassignments(l []controller.TopicPartition) ([]controller.OngoingReassignment, error) {
	w.requests = append(w.requests, l)
	if w.refuse != nil {
		return nil, w.refuse
	}
	return []controller.OngoingReassignment{{Topic: "t", Partition: 3, Replicas: []int32{1, 2}, Adding: []int32{2}, Removing: []int32{1}}}, nil
}

func (w *world) UpdateFeatures(_ context.Context, req controller.UpdateFeaturesRequest) error {
	w.requests = append(w.requests, req)
	return w.refuse
}

func (w *world) UnregisterBroker(_ context.Context, id metadata.BrokerID) error {
	w.requests = append(w.requests, id)
	return w.refuse
}

func (w *world) RegisterBroker(_ context.Context, r controller.Registration) (int64, error) {
	w.requests = append(w.requests, r)
	return 71, w.refuse
}

func (w *world) Heartbeat(_ context.Context, now time.Duration, h controller.Heartbeat) (controller.HeartbeatAnswer, error) {
	w.requests = append(w.requests, h)
	return controller.HeartbeatAnswer{CaughtUp: true, Fenced: now == 0}, w.refuse
}

func (w *world) AlterPartition(_ context.Context, req controller.AlterPartitionRequest) ([]controller.ISRChanged, error) {
	w.requests = append(w.requests, req)
	var l []controller.ISRChanged
	for _, ch := range req.Changes {
		c := controller.ISRChanged{Topic: ch.Topic, Partition: ch.Partition, Leader: 1, LeaderEpoch: ch.LeaderEpoch, PartitionEpoch: ch.PartitionEpoch + 1, Unclean: !ch.Recovered}
		for _, m := range ch.ISR {
			c.ISR = append(c.ISR, m.ID)
		}
		if ch.Partition > 0 {
			c.Err = &controller.Answer{Kind: controller.ErrIneligibleReplica}
		}
		l = append(l, c)
	}
	return l, w.refuse
}

// fakePartition keeps "batches" of any bytes; the offset of each is its place.
type fakePartition struct {
	name   string
	number int32

	mu      sync.Mutex
	batches [][]byte
	start   int64
	err     error // of everything
	leader  isr.Leadership
	watch   map[*isr.Watch]isr.Watcher
	hold    []func() // acknowledgements that are held back
	holding bool
	spans   atomic.Int32 // given out and not released
	diverge record.Epoch
	lost    log.Lost
	future  isr.Future
	abandon func() // of the last fetch
}

func (p *fakePartition) Produce(r isr.ProduceRequest, done func(isr.ProduceResult)) {
	p.mu.Lock()
	res := isr.ProduceResult{Base: -1, AppendTimeMs: -1, LogStart: -1, Err: p.err}
	if p.err == nil {
		res = isr.ProduceResult{Base: record.Offset(len(p.batches)), AppendTimeMs: -1, LogStart: record.Offset(p.start)}
		p.batches = append(p.batches, bytes.Clone(r.Records))
	}
	if p.holding {
		p.hold = append(p.hold, func() { done(res) })
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	done(res)
	p.notify()
}

// release lets held acknowledgements go, the newest first.
func (p *fakePartition) release() {
	p.mu.Lock()
	l := p.hold
	p.hold, p.holding = nil, false
	p.mu.Unlock()
	for i := len(l) - 1; i >= 0; i-- {
		l[i]()
	}
}

func (p *fakePartition) add(batches ...string) {
	p.mu.Lock()
	for _, b := range batches {
		p.batches = append(p.batches, []byte(b))
	}
	p.mu.Unlock()
	p.notify()
}

func (p *fakePartition) notify() {
	p.mu.Lock()
	var l []isr.Watcher
	for _, w := range p.watch {
		l = append(l, w)
	}
	p.mu.Unlock()
	for _, w := range l {
		w.Progress()
	}
}

func (p *fakePartition) Fetch(r isr.FetchRequest) FetchResult {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.abandon = r.Abandon
	end := int64(len(p.batches))
	switch {
	case p.err != nil:
		return FetchResult{Err: p.err, DivergingEpoch: -1}
	case r.LeaderEpoch > 0:
		return FetchResult{Err: isr.ErrUnknownLeaderEpoch, DivergingEpoch: -1}
	case int64(r.Offset) > end || int64(r.Offset) < p.start:
		return FetchResult{Err: log.ErrOffsetOutOfRange, DivergingEpoch: -1}
	}
	res := FetchResult{HighWatermark: record.Offset(end), LastStable: record.Offset(end), LogStart: record.Offset(p.start), DivergingEpoch: -1, DivergingEnd: -1}
	if p.diverge > 0 && r.LastFetchedEpoch >= 0 {
		res.DivergingEpoch, res.DivergingEnd = p.diverge, 3
		return res
	}
	var data []byte
	for _, b := range p.batches[r.Offset:] {
		if len(data)+len(b) > r.MaxBytes && !(r.AtLeastOne && len(data) == 0) {
			break
		}
		data = append(data, b...)
	}
	if len(data) > 0 {
		p.spans.Add(1)
		res.Span = &fakeSpan{data: data, of: p}
	}
	return res
}

type fakeSpan struct {
	data []byte
	of   *fakePartition
	done bool
}

func (s *fakeSpan) Len() int { return len(s.data) }
func (s *fakeSpan) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(s.data).ReadAt(p, off)
}
func (s *fakeSpan) File() (uintptr, int64, bool) { return 0, 0, false }
func (s *fakeSpan) Release() {
	if s.done {
		panic("span released twice")
	}
	s.done = true
	s.of.spans.Add(-1)
}

func (p *fakePartition) Pending(offset record.Offset, _ record.Epoch) (n int64, now bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, true
	}
	for _, b := range p.batches[offset:] {
		n += int64(len(b))
	}
	return n, false
}

func (p *fakePartition) Watch(w *isr.Watch, watcher isr.Watcher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watch == nil {
		p.watch = map[*isr.Watch]isr.Watcher{}
	}
	p.watch[w] = watcher
}

func (p *fakePartition) ListOffset(ts int64, epoch record.Epoch) (log.TimeOffset, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.err != nil:
		return log.TimeOffset{}, p.err
	case epoch > 0:
		return log.TimeOffset{}, isr.ErrUnknownLeaderEpoch
	case ts == isr.Latest:
		return log.TimeOffset{Offset: record.Offset(len(p.batches)), Timestamp: -1}, nil
	case ts == isr.Earliest, ts == isr.EarliestLocal:
		return log.TimeOffset{Offset: record.Offset(p.start), Timestamp: -1}, nil
	case ts < -6:
		return log.TimeOffset{}, isr.ErrUnsupportedTimestamp
	}
	return log.TimeOffset{Offset: -1, Timestamp: -1, Epoch: -1}, nil
}

func (p *fakePartition) EndOffsetForEpoch(asked, current record.Epoch) (record.Epoch, record.Offset, error) {
	if current > 0 {
		return -1, -1, isr.ErrUnknownLeaderEpoch
	}
	if asked != 0 {
		return -1, -1, nil
	}
	return 0, record.Offset(len(p.batches)), nil
}

func (p *fakePartition) DeleteRecords(o record.Offset, _ time.Duration, done func(record.Offset, error)) {
	if int(o) > len(p.batches) {
		done(-1, log.ErrOffsetOutOfRange)
		return
	}
	p.start = max(p.start, int64(o))
	go done(record.Offset(p.start), nil)
}

func (p *fakePartition) Producers() ([]log.ProducerState, error) {
	return []log.ProducerState{{ID: 7, Epoch: 1, LastSequence: 9, LastTimestamp: 5, CoordinatorEpoch: -1, TxnStartOffset: -1}}, p.err
}

func (p *fakePartition) Leadership() isr.Leadership {
	if p.leader.Leader != 0 {
		return p.leader
	}
	return isr.Leadership{Leader: 1}
}

func (p *fakePartition) Ends() (isr.Ends, bool) {
	return isr.Ends{LogStart: record.Offset(p.start), HighWatermark: record.Offset(len(p.batches)), LogEnd: record.Offset(len(p.batches)), Size: 10, DataDir: "/data"}, true
}

func (p *fakePartition) Future() (isr.Future, bool) { return p.future, p.future.DataDir != "" }

func (p *fakePartition) Lost() (log.Lost, bool) { return p.lost, p.lost.Count > 0 }

// sink takes the answer of a call.
type sink struct {
	got  chan Answer
	once atomic.Int32
}

func (s *sink) Complete(a Answer) {
	if s.once.Add(1) > 1 {
		panic("call completed twice")
	}
	s.got <- a
}

var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("test"))

// begin starts a request as a connection would and gives the place its answer comes to.
func (w *world) begin(req kmsg.Request, version int16) (*Call, *sink) {
	req.SetVersion(version)
	return w.raw(formatter.AppendRequest(nil, req, 42)[4:])
}

func (w *world) raw(frame []byte) (*Call, *sink) {
	s := &sink{got: make(chan Answer, 1)}
	c := &Call{
		Key: int16(binary.BigEndian.Uint16(frame)), Version: int16(binary.BigEndian.Uint16(frame[2:])), Frame: frame,
		Conn: &Conn{Listener: "PLAINTEXT", Remote: "127.0.0.1:5", Internal: w.internal}, Ctx: context.Background(), To: s,
	}
	if _, ok := w.api.Plan(c.Conn, c.Key, c.Version); !ok {
		w.t.Fatalf("key %d version %d is not served", c.Key, c.Version)
	}
	w.api.Serve(c)
	return c, s
}

// wait waits for an answer.
func (s *sink) wait(t testing.TB) Answer {
	t.Helper()
	select {
	case a := <-s.got:
		if a.Later != nil {
			a = a.Later.Build()
		}
		return a
	case <-time.After(5 * time.Second):
		t.Fatal("no answer within 5 s")
		panic("unreachable")
	}
}

// flat is the frame that would be written; spans are released.
func flat(t testing.TB, a *Answer) []byte {
	t.Helper()
	b := bytes.Clone(a.Head)
	for _, p := range a.Parts {
		if p.Span == nil {
			b = append(b, p.Bytes...)
			continue
		}
		x := make([]byte, p.Span.Len())
		if _, err := p.Span.ReadAt(x, 0); err != nil {
			t.Fatal(err)
		}
		b = append(b, x...)
	}
	a.Release()
	return b
}

// parse reads an answer and checks that nothing is left over and that it encodes to the same bytes again.
func parse(t testing.TB, req kmsg.Request, a Answer) kmsg.Response {
	t.Helper()
	if a.Close != nil || a.None {
		t.Fatalf("no answer: none %v, close %v", a.None, a.Close)
	}
	b := flat(t, &a)
	if got := int(binary.BigEndian.Uint32(b)); got != len(b)-4 {
		t.Fatalf("size field %d of a frame of %d", got, len(b)-4)
	}
	if got := binary.BigEndian.Uint32(b[4:]); got != 42 {
		t.Fatalf("correlation id %d", got)
	}
	b = b[8:]
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if resp.IsFlexible() && req.Key() != 18 {
		if b[0] != 0 {
			t.Fatal("header without empty tags")
		}
		b = b[1:]
	}
	if err := resp.ReadFrom(b); err != nil {
		t.Fatalf("answer cannot be read: %v", err)
	}
	if again := resp.AppendTo(nil); !bytes.Equal(again, b) {
		t.Fatalf("answer\n%x\nreads and encodes as\n%x", b, again)
	}
	return resp
}

// ask sends a request and waits for the answer.
func ask[R kmsg.Response](w *world, req kmsg.Request, version int16) R {
	w.t.Helper()
	_, s := w.begin(req, version)
	return parse(w.t, req, s.wait(w.t)).(R)
}

func each(t *testing.T, key int16, f func(t *testing.T, w *world, version int16)) {
	t.Helper()
	tables, _ := newTables()
	api, _ := tables.Lookup(key)
	for v := api.Min; v <= api.Max; v++ {
		t.Run(fmt.Sprintf("v%d", v), func(t *testing.T) { f(t, newWorld(t), v) })
	}
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

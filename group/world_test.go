package group

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keeplog/keeplog/metadata"
)

// world is a log of metadata and the brokers that follow it, inside of one process and in virtual time. A bubble of
// testing/synctest is around it.
type world struct {
	t testing.TB
	// latency is the time that a proposal takes.
	latency atomic.Int64
	// ended is closed at the end: who is proposing hears nothing any more.
	ended chan struct{}
	end   sync.Once

	mu sync.Mutex
	// the state of the leader, and the log that every broker follows.
	img    *metadata.Image
	tables *metadata.Tables
	log    []metadata.Entry
	// fault, if set, decides over a proposal: an error before it is in the log (lost), or after (unknown).
	fault func(records []metadata.Record) (before, after error)
	ids   int
	nodes []*node
	// settings of all groups.
	settings Settings
}

// node is a broker.
type node struct {
	w  *world
	id metadata.BrokerID
	*Coordinator

	mu      sync.Mutex
	img     *metadata.Image
	tables  *metadata.Tables
	next    int
	applied atomic.Uint64
	moved   chan struct{}
	lag     atomic.Int64
	lease   atomic.Pointer[func() (time.Time, bool)]
	stopped bool
}

func defaults() Settings {
	return Settings{
		MinSessionTimeout: 6 * time.Second, MaxSessionTimeout: 30 * time.Minute, InitialRebalanceDelay: 3 * time.Second,
		MaxSize: 1 << 30, OffsetMetadataMax: 4096, OffsetRetention: 7 * 24 * time.Hour,
		Consumer: ConsumerSettings{
			Enabled: true, SessionTimeout: 45 * time.Second, HeartbeatInterval: 5 * time.Second, AssignmentInterval: time.Second,
			MaxSize: 1 << 30, Assignors: []string{"uniform", "range"}, Migration: "bidirectional", RegexRefreshInterval: 10 * time.Minute,
		},
	}
}

// newWorld has brokers 1 to n; the first owns all shards.
func newWorld(t testing.TB, n int) *world {
	w := &world{t: t, img: metadata.New(), tables: metadata.NewTables(), settings: defaults(), ended: make(chan struct{})}
	for i := range n {
		w.nodes = append(w.nodes, w.start(metadata.BrokerID(i+1)))
	}
	for _, node := range w.nodes {
		w.must(metadata.BrokerRegistered{ID: node.id, Incarnation: [16]byte{byte(node.id)}})
	}
	for s := range int32(metadata.Shards) {
		w.assign(s, 1)
	}
	synctest.Wait()
	return w
}

func (w *world) start(id metadata.BrokerID) *node {
	n := &node{w: w, id: id, img: metadata.New(), tables: metadata.NewTables(), moved: make(chan struct{})}
	n.setLease(func() (time.Time, bool) { return time.Now(), true })
	n.Coordinator = New(Options{
		Node: id, Log: n, Tables: n.tables, Clock: bubble{}, Limits: Limits{},
		Settings: func(string) *Settings { return &w.settings },
		Leased:   func() (time.Time, bool) { return (*n.lease.Load())() },
		NewID:    w.newID, ExpiryInterval: func() time.Duration { return 10 * time.Minute },
		CommitTimeout: func() time.Duration { return 5 * time.Second }, Logger: slog.New(slog.DiscardHandler),
	})
	return n
}

// close stops every broker; nothing may be left running.
func (w *world) close() {
	for _, n := range w.nodes {
		n.Close()
	}
	w.end.Do(func() { close(w.ended) })
}

func (w *world) newID() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids++
	var b [16]byte
	binary.BigEndian.PutUint64(b[8:], uint64(w.ids))
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// bubble is the clock of the bubble.
type bubble struct{}

func (bubble) Now() time.Time { return time.Now() }

func (bubble) After(d time.Duration, f func()) func() {
	t := time.AfterFunc(d, f)
	return func() { t.Stop() }
}

// commit puts records into the log and applies them as the leader.
func (w *world) commit(records ...metadata.Record) (uint64, []metadata.Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := metadata.Entry{
		Index: uint64(len(w.log) + 1), Term: 1,
		Payload: metadata.AppendCommand(nil, &metadata.Command{Session: metadata.Session{Epoch: metadata.NoEpoch}, Groups: []metadata.Group{{Records: records}}}),
	}
	img, _, out, err := metadata.Apply(w.img, w.tables, e)
	if err != nil {
		w.t.Errorf("entry %d: %v", e.Index, err)
		return 0, nil
	}
	w.img, w.log = img, append(w.log, e)
	for _, n := range w.nodes {
		if lag := time.Duration(n.lag.Load()); lag == 0 {
			go n.catchUp(e.Index)
		} else {
			time.AfterFunc(lag, func() { n.catchUp(e.Index) })
		}
	}
	if len(out.Results) == 0 {
		return e.Index, nil
	}
	return e.Index, out.Results[0]
}

// must commits what cannot be refused.
func (w *world) must(records ...metadata.Record) uint64 {
	w.t.Helper()
	index, results := w.commit(records...)
	for i, r := range results {
		if r.Err() != nil {
			w.t.Fatalf("record %d, %#v: %v", i, records[i], r.Err())
		}
	}
	return index
}

// assign gives a shard to a broker.
func (w *world) assign(shard int32, to metadata.BrokerID) {
	w.mu.Lock()
	epoch := w.img.Shard(shard).Epoch
	w.mu.Unlock()
	w.must(metadata.ShardAssigned{Shard: shard, Epoch: epoch, Owner: to})
}

// move gives all shards to a broker, as a controller does whose owner is dead.
func (w *world) move(to metadata.BrokerID) {
	for s := range int32(metadata.Shards) {
		w.assign(s, to)
	}
	synctest.Wait()
}

func (w *world) image() *metadata.Image {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.img
}

func topicNamed(name string) TopicID {
	var id TopicID
	copy(id[:], "topic:"+name)
	return id
}

func (w *world) topic(name string, partitions int) {
	record := metadata.TopicCreated{Name: name, ID: topicNamed(name)}
	for range partitions {
		record.Partitions = append(record.Partitions, metadata.Partition{
			Replicas: []metadata.BrokerID{1}, ISR: []metadata.BrokerID{1}, Leader: 1,
		})
	}
	w.must(record)
	synctest.Wait()
}

func (n *node) setLease(f func() (time.Time, bool)) { n.lease.Store(&f) }

// setLag is how far behind the log the broker is.
func (n *node) setLag(d time.Duration) { n.lag.Store(int64(d)) }

// catchUp applies the log up to an index.
func (n *node) catchUp(index uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for uint64(n.next) < index && !n.stopped {
		n.w.mu.Lock()
		e := n.w.log[n.next]
		n.w.mu.Unlock()
		img, delta, _, err := metadata.Apply(n.img, n.tables, e)
		if err != nil {
			n.w.t.Errorf("broker %d: %v", n.id, err)
			return
		}
		n.img = img
		n.next++
		n.applied.Store(e.Index)
		close(n.moved)
		n.moved = make(chan struct{})
		n.Changed(&delta, img)
	}
}

// ProposeOffsets implements [Proposer].
func (n *node) ProposeOffsets(records []metadata.Record, then func(uint64, []metadata.Result, error)) {
	go func() {
		select {
		case <-time.After(time.Duration(n.w.latency.Load())):
			then(n.propose(records))
		case <-n.w.ended:
		}
	}()
}

func (n *node) propose(records []metadata.Record) (uint64, []metadata.Result, error) {
	var before, after error
	if f := n.w.takeFault(); f != nil {
		before, after = f(records)
	}
	if before != nil {
		return 0, nil, before
	}
	if len(records) == 0 {
		n.w.mu.Lock()
		defer n.w.mu.Unlock()
		return uint64(len(n.w.log)), nil, after
	}
	index, results := n.w.commit(records...)
	if after != nil {
		return 0, nil, after
	}
	return index, results, nil
}

func (w *world) takeFault() func([]metadata.Record) (before, after error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fault
}

func (w *world) setFault(f func([]metadata.Record) (before, after error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = f
}

// Applied implements [Proposer].
func (n *node) Applied() uint64 {
	return n.applied.Load()
}

// WaitApplied implements [Proposer].
func (n *node) WaitApplied(ctx context.Context, index uint64) error {
	for {
		n.mu.Lock()
		moved, at := n.moved, uint64(n.next)
		n.mu.Unlock()
		if at >= index {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errLost = errors.New("nobody answered")

// codes are the names of the protocol's errors, as the server gives them.
var codes = []struct {
	err  error
	name string
}{
	{ErrInvalidGroupID, "INVALID_GROUP_ID"},
	{ErrNotCoordinator, "NOT_COORDINATOR"},
	{ErrLoading, "COORDINATOR_LOAD_IN_PROGRESS"},
	{ErrNotAvailable, "COORDINATOR_NOT_AVAILABLE"},
	{ErrUnknownMember, "UNKNOWN_MEMBER_ID"},
	{ErrMemberIDRequired, "MEMBER_ID_REQUIRED"},
	{ErrFencedInstance, "FENCED_INSTANCE_ID"},
	{ErrIllegalGeneration, "ILLEGAL_GENERATION"},
	{ErrInconsistentProtocol, "INCONSISTENT_GROUP_PROTOCOL"},
	{ErrInvalidSessionTimeout, "INVALID_SESSION_TIMEOUT"},
	{ErrRebalanceInProgress, "REBALANCE_IN_PROGRESS"},
	{ErrMaxSize, "GROUP_MAX_SIZE_REACHED"},
	{ErrGroupNotFound, "GROUP_ID_NOT_FOUND"},
	{ErrNonEmpty, "NON_EMPTY_GROUP"},
	{ErrSubscribedTopic, "GROUP_SUBSCRIBED_TO_TOPIC"},
	{ErrUnknownTopic, "UNKNOWN_TOPIC_OR_PARTITION"},
	{ErrMetadataTooLarge, "OFFSET_METADATA_TOO_LARGE"},
	{ErrTooLarge, "TOO_LARGE"},
	{ErrStaleMemberEpoch, "STALE_MEMBER_EPOCH"},
	{ErrUnsupportedVersion, "UNSUPPORTED_VERSION"},
	{ErrFencedMemberEpoch, "FENCED_MEMBER_EPOCH"},
}

func code(err error) string {
	if err == nil {
		return "ok"
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.name
		}
	}
	return fmt.Sprintf("?%v", err)
}

package isr

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// troupe is a few brokers in one process, on virtual time: real logs over file systems that can lose their power, real
// fetchers and sessions, a direct transport that can be cut, and a controller that does what the test says and checks
// changes of in-sync sets as the real one does. At the end every live replica must hold the same records, and every
// acknowledged one at its offset.
type troupe struct {
	t      *testing.T
	limits atomic.Pointer[Limits]
	// hook runs whenever a broker looks at the limits, which it does with no lock held.
	hook  atomic.Pointer[func(id int32)]
	topic atomic.Pointer[config.Topic]
	// fetches counts those of all followers.
	fetches atomic.Int64

	mu    sync.Mutex
	img   *metadata.Image
	cut   map[[2]int32]bool // fetches from the first to the second fail
	last  map[[2]int32]chan struct{}
	mute  bool // answers of the controller get lost
	asked []Change

	nodes map[int32]*player
	acked map[record.Offset]string
}

// player is one broker.
type player struct {
	id       int32
	fs       *vfs.CrashFS
	faults   *vfs.FaultyFS // over fs, of the running process
	dir      *log.Dir      // the first; a replica may move to the other
	other    *log.Dir
	replicas *Replicas
	epoch    int64
	apply    sync.Mutex
	up       atomic.Pointer[Replicas] // nil while it is down
	runs     byte
}

const partitionName = "orders"

// newTroupe starts brokers 1 to n with one partition on all of them; broker 1 leads.
func newTroupe(t *testing.T, n int) *troupe {
	t.Helper()
	c := &troupe{
		t: t, img: metadata.New(), cut: map[[2]int32]bool{}, last: map[[2]int32]chan struct{}{}, nodes: map[int32]*player{}, acked: map[record.Offset]string{},
	}
	limits, topic := DefaultLimits(), config.Layers{Static: config.Default(), Replicas: n, Brokers: n}.Effective()
	c.limits.Store(&limits)
	c.topic.Store(&topic)
	c.configure(func(o *config.Topic) { o.MinInsyncReplicas, o.MinInsyncSet = min(2, n), true })
	c.record(metadata.ClusterStarted{ClusterID: "AAAAAAAAAAAAAAAAAAAAAA"})
	var all []int32
	for id := int32(1); id <= int32(n); id++ {
		c.nodes[id] = &player{id: id, fs: vfs.NewCrash()}
		all = append(all, id)
	}
	for _, id := range all {
		c.start(id)
	}
	c.record(metadata.TopicCreated{Name: partitionName, ID: topicID, Partitions: []metadata.Partition{{Replicas: all, ISR: all, Leader: 1}}})
	t.Cleanup(c.end)
	return c
}

// configure changes the topic's settings, from the next image on, and tune the brokers' limits.
func (c *troupe) configure(f func(*config.Topic)) {
	o := *c.topic.Load()
	f(&o)
	c.topic.Store(&o)
}

func (c *troupe) tune(f func(*Limits)) {
	o := *c.limits.Load()
	f(&o)
	c.limits.Store(&o)
}

func (c *troupe) look(id int32) Limits {
	if hook := c.hook.Load(); hook != nil {
		(*hook)(id)
	}
	return *c.limits.Load()
}

// record applies one record everywhere.
func (c *troupe) record(r metadata.Record) {
	c.t.Helper()
	if err := c.try(r); err != nil {
		c.t.Fatalf("%T: %v", r, err)
	}
}

func (c *troupe) try(r metadata.Record) error {
	c.mu.Lock()
	payload := metadata.AppendCommand(nil, &metadata.Command{
		Session: metadata.Session{Epoch: metadata.NoEpoch}, Groups: []metadata.Group{{Records: []metadata.Record{r}}},
	})
	img, _, out, err := metadata.Apply(c.img, nil, metadata.Entry{Index: c.img.Index() + 1, Term: 1, Payload: payload})
	if err == nil {
		err = out.Results[0][0].Err()
	}
	if err == nil {
		c.img = img
	}
	nodes := slices.Collect(maps.Values(c.nodes))
	c.mu.Unlock()
	for _, n := range nodes {
		c.deliver(n)
	}
	return err
}

func (c *troupe) image() *metadata.Image {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.img
}

// deliver hands the newest image to a broker.
func (c *troupe) deliver(n *player) {
	n.apply.Lock()
	defer n.apply.Unlock()
	if r := n.up.Load(); r != nil {
		r.ApplyAll(c.image())
	}
}

// start opens a broker's directory, registers it and unfences it.
func (c *troupe) start(id int32) {
	c.t.Helper()
	n := c.nodes[id]
	codecs := record.NewCodecs()
	var err error
	n.faults = vfs.NewFaulty(n.fs)
	for path, dir := range map[string]**log.Dir{"/data": &n.dir, "/other": &n.other} {
		*dir, err = log.OpenDir(log.DirOptions{
			FS: n.faults, Path: path, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Codecs: codecs, Now: time.Now,
			Settings: log.Settings{Reserve: -1, TruncateWait: time.Second},
		})
		if err != nil {
			c.t.Fatal(err)
		}
	}
	if err := log.SettleMoves([]*log.Dir{n.dir, n.other}); err != nil {
		c.t.Fatal(err)
	}
	n.replicas = New(Options{
		BrokerID: id, Dirs: []*log.Dir{n.dir, n.other}, Codecs: codecs, Logger: slog.New(slog.NewTextHandler(c.t.Output(), nil)).With("node", id),
		Settings: func(*metadata.Image, *metadata.Topic) config.Topic { return *c.topic.Load() },
		Changer:  changer{c, id}, Cluster: transport{c, id}, Limits: func() Limits { return c.look(id) },
	})
	n.replicas.Recover(c.image())
	n.runs++
	c.record(metadata.BrokerRegistered{ID: id, Incarnation: [16]byte{byte(id), n.runs}})
	b, _ := c.image().Broker(id)
	n.epoch = b.Epoch
	n.replicas.SetBrokerEpoch(n.epoch)
	n.up.Store(n.replicas)
	c.record(metadata.BrokerFenced{ID: id, Epoch: n.epoch})
	c.elect()
}

// stop ends a broker: kill -9, or with a policy the loss of its power. The controller notices and elects.
func (c *troupe) stop(id int32, power *vfs.Policy) {
	c.t.Helper()
	c.halt(id, power)
	c.fence(id)
}

func (c *troupe) halt(id int32, power *vfs.Policy) {
	n := c.nodes[id]
	n.apply.Lock()
	n.up.Store(nil)
	n.apply.Unlock()
	old := n.fs
	if power != nil {
		n.fs = old.Crash(*power, 7)
	} else {
		n.fs = old.Kill()
	}
	n.replicas.Close()
	n.dir.Abandon()
	n.other.Abandon()
}

// fence takes a broker out of its leaderships and, unless it is the last one, out of the in-sync set.
func (c *troupe) fence(id int32) {
	b, _ := c.image().Broker(id)
	c.record(metadata.BrokerFenced{ID: id, Epoch: b.Epoch, Fenced: true})
	c.elect()
}

// elect takes fenced brokers out of the in-sync set and gives the partition a leader from it.
func (c *troupe) elect() {
	for {
		img := c.image()
		part, ok := img.Partition(topicID, 0)
		if !ok {
			return
		}
		live := slices.DeleteFunc(slices.Clone(part.ISR), func(id int32) bool { return !img.Alive(id) })
		if len(live) == 0 {
			live = part.ISR
		}
		r := metadata.PartitionChanged{TopicID: topicID, PartitionEpoch: part.PartitionEpoch}
		if !slices.Equal(live, part.ISR) {
			r.ISR = &live
		}
		if !slices.Contains(live, part.Leader) && img.Alive(live[0]) {
			r.Leader = &live[0]
		}
		if r.ISR == nil && r.Leader == nil || c.try(r) == nil {
			return
		}
	}
}

// changer is the controller as one broker's leaders see it.
type changer struct {
	c    *troupe
	from int32
}

func (x changer) ChangeISR(ch Change, done func(Changed, error)) {
	go func() {
		c, err := x.c.change(ch)
		x.c.mu.Lock()
		if x.c.asked = append(x.c.asked, ch); x.c.mute {
			err = errors.New("the answer got lost")
		}
		x.c.mu.Unlock()
		done(c, err)
	}()
}

func (c *troupe) change(ch Change) (Changed, error) {
	img := c.image()
	part, ok := img.Partition(ch.Topic, ch.Partition)
	if !ok || part.PartitionEpoch != ch.PartitionEpoch || part.LeaderEpoch != int32(ch.LeaderEpoch) {
		return Changed{}, errors.New("the partition has moved on")
	}
	var set []int32
	for _, m := range ch.InSync {
		set = append(set, m.ID)
		if b, ok := img.Broker(m.ID); !slices.Contains(part.ISR, m.ID) && (!ok || b.Fenced || b.Epoch != m.Epoch) {
			return Changed{}, fmt.Errorf("%w: broker %d", ErrIneligible, m.ID)
		}
	}
	clean := false
	if err := c.try(metadata.PartitionChanged{TopicID: ch.Topic, PartitionEpoch: ch.PartitionEpoch, ISR: &set, Unclean: &clean}); err != nil {
		return Changed{}, err
	}
	return Changed{Leader: part.Leader, LeaderEpoch: ch.LeaderEpoch, PartitionEpoch: ch.PartitionEpoch + 1, InSync: set}, nil
}

// transport carries fetches to the other brokers, and answers with bytes, as a connection does.
type transport struct {
	c    *troupe
	from int32
}

func (x transport) Fetch(leader int32, r *RemoteFetch, done func(*RemoteFetched, error)) {
	x.c.fetches.Add(1)
	to := x.c.nodes[leader].up.Load()
	if to == nil || x.c.severed(x.from, leader) {
		go done(nil, errors.New("no connection"))
		return
	}
	awake := make(chan struct{})
	poll, ready, err := to.ReplicaFetch(r, func() { close(awake) })
	if err != nil || ready {
		close(awake)
	}
	before, mine := x.c.turn([2]int32{x.from, leader})
	go func() {
		defer close(mine)
		t := time.NewTimer(r.MaxWait)
		defer t.Stop()
		select {
		case <-awake:
		case <-t.C:
		}
		out := &RemoteFetched{Err: err}
		if err == nil {
			out = x.answer(poll)
		}
		<-before
		if x.c.severed(x.from, leader) {
			done(nil, errors.New("the connection is lost"))
			return
		}
		done(out, nil)
	}()
}

// turn keeps the answers of a connection in order: one waits for before, and closes its own when it is through.
func (c *troupe) turn(link [2]int32) (before, mine chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, mine = c.last[link], make(chan struct{})
	if before == nil {
		before = make(chan struct{})
		close(before)
	}
	c.last[link] = mine
	return before, mine
}

func (x transport) answer(poll *ReplicaPoll) *RemoteFetched {
	out := &RemoteFetched{SessionID: poll.SessionID}
	for _, p := range poll.Answer() {
		r := RemoteRecords{
			PartitionRef: p.PartitionRef, Err: p.Err, HighWatermark: p.HighWatermark, LogStart: p.LogStart,
			DivergingEpoch: p.DivergingEpoch, DivergingEnd: p.DivergingEnd,
		}
		if p.Span != nil {
			r.Records = make([]byte, p.Span.Len())
			if _, err := p.Span.ReadAt(r.Records, 0); err != nil && !errors.Is(err, io.EOF) {
				r.Records, r.Err = nil, err
			}
			p.Span.Release()
		}
		out.Partitions = append(out.Partitions, r)
	}
	return out
}

// sever cuts fetches from a broker to another, and the answers to those under way, or lets them through again.
func (c *troupe) sever(from, to int32, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut[[2]int32{from, to}] = cut
}

func (c *troupe) severed(from, to int32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut[[2]int32{from, to}]
}

// isolate cuts everybody's fetches from a broker.
func (c *troupe) isolate(id int32, cut bool) {
	for from := range c.nodes {
		c.sever(from, id, cut)
	}
}

func (c *troupe) partition(id int32) *Partition {
	c.t.Helper()
	p, err := c.nodes[id].replicas.Partition(topicID, 0)
	if err != nil {
		c.t.Fatalf("node %d: %v", id, err)
	}
	return p
}

// leader is who leads, by the newest image.
func (c *troupe) leader() int32 {
	img := c.image()
	part, _ := img.Partition(topicID, 0)
	return img.LeaderOf(part)
}

func (c *troupe) inSync() []int32 {
	part, _ := c.image().Partition(topicID, 0)
	return slices.Sorted(slices.Values(part.ISR))
}

// produce writes one record with acks to the leader and waits for the answer.
func (c *troupe) produce(acks int16, value string) ProduceResult {
	c.t.Helper()
	return c.produceTo(c.leader(), acks, value)
}

func (c *troupe) produceTo(id int32, acks int16, value string) ProduceResult {
	c.t.Helper()
	ch := make(chan ProduceResult, 1)
	r := request(acks, value)
	r.Timeout = 5 * time.Second
	c.partition(id).Produce(r, func(r ProduceResult) { ch <- r })
	res := <-ch
	if res.Err == nil && acks == -1 {
		if was, ok := c.acked[res.Base]; ok && was != value {
			c.t.Errorf("offset %d was given to %q and to %q", res.Base, was, value)
		}
		c.acked[res.Base] = value
	}
	return res
}

// must is produce that has to be acknowledged.
func (c *troupe) must(acks int16, value string) record.Offset {
	c.t.Helper()
	r := c.produce(acks, value)
	if r.Err != nil {
		c.t.Fatalf("%q: %v", value, r.Err)
	}
	return r.Base
}

// eventually waits, in virtual time.
func (c *troupe) eventually(what string, ok func() bool) {
	c.t.Helper()
	for range 6000 {
		synctest.Wait()
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	for id, n := range c.nodes {
		if n.up.Load() != nil {
			e, _ := c.partition(id).Ends()
			c.t.Logf("node %d: %+v %v", id, e, c.partition(id).gone())
		}
	}
	c.t.Fatalf("not within a minute: %s; in sync %v, leader %d", what, c.inSync(), c.leader())
}

// allInSync waits until every live broker is in sync and has everything, watermark included.
func (c *troupe) allInSync() {
	c.t.Helper()
	c.eventually("all in sync", func() bool {
		lead := c.leader()
		if lead < 0 {
			return false
		}
		want, _ := c.partition(lead).Ends()
		live := 0
		for id, n := range c.nodes {
			if n.up.Load() == nil {
				continue
			}
			live++
			e, ok := c.partition(id).Ends()
			if !ok || e.LogEnd != want.LogEnd || e.StableEnd != want.LogEnd || e.HighWatermark != want.LogEnd || e.LogStart != want.LogStart {
				return false
			}
		}
		return len(c.inSync()) == live
	})
}

// values reads a replica from its log start to its end: value by offset.
func (c *troupe) values(id int32) map[record.Offset]string {
	c.t.Helper()
	l := c.partition(id).log
	out := map[record.Offset]string{}
	for at := l.StartOffset(); at < l.WrittenEnd(); {
		sp, err := l.Read(log.ReadRequest{Offset: at, Bound: l.WrittenEnd(), MaxBytes: 1 << 20, AtLeastOne: true})
		if err != nil {
			c.t.Fatalf("node %d at %d: %v", id, at, err)
		}
		if sp == nil {
			break
		}
		buf := make([]byte, sp.Len())
		sp.ReadAt(buf, 0)
		sp.Release()
		for len(buf) > 0 {
			b, rest, err := record.Next(buf)
			if err != nil || b == nil {
				break
			}
			buf, at = rest, b.NextOffset()
			it := record.Iterate(b, b.RecordsBytes())
			for it.Next() {
				r := it.Record()
				out[r.Offset] = string(bytes.Clone(r.Value))
			}
		}
	}
	return out
}

// verify compares all live replicas with each other and with what was acknowledged.
func (c *troupe) verify() {
	c.t.Helper()
	lead := c.leader()
	if lead < 0 {
		return
	}
	want := c.values(lead)
	start := c.partition(lead).log.StartOffset()
	for o, v := range c.acked {
		if o >= start && want[o] != v {
			c.t.Errorf("offset %d: %q was acknowledged, the leader has %q", o, v, want[o])
		}
	}
	for id, n := range c.nodes {
		if n.up.Load() == nil || id == lead {
			continue
		}
		if got := c.values(id); !maps.Equal(got, want) {
			c.t.Errorf("node %d differs from the leader: %s", id, firstDifference(got, want))
		}
	}
}

// firstDifference says where two replicas differ.
func firstDifference(got, want map[record.Offset]string) string {
	for at := record.Offset(0); ; at++ {
		g, mine := got[at]
		w, its := want[at]
		if mine != its || g != w {
			return fmt.Sprintf("at offset %d it has %q (%v), the leader %q (%v); %d records and %d", at, g, mine, w, its, len(got), len(want))
		}
	}
}

// cuts says that a truncation is under way.
func (w *follow) cuts() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.now.Load()
	return f != nil && f.cutting != nil
}

func (c *troupe) end() {
	for _, n := range c.nodes {
		if n.up.Load() != nil {
			n.apply.Lock()
			n.up.Store(nil)
			n.apply.Unlock()
			n.replicas.Close()
			n.dir.Close()
			n.other.Close()
		}
	}
}

package isr

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/internal/invariant"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
)

// Options are what the partitions of a broker need.
type Options struct {
	BrokerID metadata.BrokerID
	// Dirs are the data directories, open; a new partition goes to the one with the fewest. Replicas does not close them.
	Dirs []*log.Dir
	// Settings gives a topic's effective configuration under an image.
	Settings func(img *metadata.Image, t *metadata.Topic) config.Topic
	Codecs   *record.Codecs
	// SkipUnpack takes the records of compressed batches on trust.
	SkipUnpack bool
	Logger     *slog.Logger
	// Changer and Cluster reach the controller and the other brokers; both nil on a node alone.
	Changer Changer
	Cluster Cluster
	// Limits gives the settings of replication in force; nil is DefaultLimits.
	Limits func() Limits
	// MoveThreads is num.replica.alter.log.dirs.threads: how many replicas are copied to other data directories at a time; 0 is as many
	// as there are directories.
	MoveThreads int
}

// Replicas is every partition that this broker holds.
type Replicas struct {
	opts Options

	mu     sync.RWMutex // guards topics, counts and dead
	topics map[metadata.TopicID][]*Partition
	counts map[*log.Dir]int
	dead   bool

	born        time.Time    // the zero of the cores' clocks
	lease       atomic.Int64 // until when this broker may answer alone, after born; 0: there is no lease
	brokerEpoch atomic.Int64
	image       atomic.Pointer[metadata.Image] // the newest that was applied

	leaderThrottle, followerThrottle throttle
	held                             atomic.Bool // some partition is kept back by the follower's throttle

	sessions sessions // of the replicas that follow this broker
	fetchers fetchers // of the leaders that this broker follows
	moves    *moves

	waitMu sync.Mutex // guards waits
	waits  []*Partition
	wake   chan struct{}
	stop   chan struct{}
	done   sync.WaitGroup
}

// expireEvery is how exactly a produce request's timeout is kept.
const expireEvery = 50 * time.Millisecond

// New makes an empty set and starts the goroutine that watches over timeouts; Close ends it.
func New(o Options) *Replicas {
	if o.Limits == nil {
		o.Limits = DefaultLimits
	}
	r := &Replicas{
		born: time.Now(), opts: o, topics: map[metadata.TopicID][]*Partition{}, counts: map[*log.Dir]int{},
		wake: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	r.sessions.byReplica, r.sessions.last = map[metadata.BrokerID]*replicaSession{}, randomID()
	r.fetchers.byLeader = map[metadata.BrokerID]*fetcher{}
	if o.MoveThreads == 0 {
		o.MoveThreads = len(o.Dirs)
	}
	r.moves = newMoves(o.MoveThreads)
	r.done.Go(r.expireLoop)
	if o.Changer != nil {
		r.done.Go(r.tickLoop)
	}
	return r
}

// Partition finds a partition of a topic id.
func (r *Replicas) Partition(id metadata.TopicID, partition int32) (*Partition, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	ps := r.topics[id]
	if partition < 0 || int(partition) >= len(ps) || ps[partition] == nil {
		return nil, ErrUnknownPartition
	}
	return ps[partition], nil
}

// All calls f for each partition here, in no order, until it returns false.
func (r *Replicas) All(f func(id log.Identity, p *Partition) bool) {
	r.mu.RLock()
	n := 0
	for _, ps := range r.topics {
		n += len(ps)
	}
	all := make([]*Partition, 0, n)
	for _, ps := range r.topics {
		for _, p := range ps {
			if p != nil {
				all = append(all, p)
			}
		}
	}
	r.mu.RUnlock()
	for _, p := range all {
		if !f(p.id, p) {
			return
		}
	}
}

// Recover opens every log that this broker should hold under an image, without taking any role: an incarnation leads only
// in epochs that it received itself, which its registration brings.
func (r *Replicas) Recover(img *metadata.Image) {
	r.open(img, slices.Collect(img.Topics()), false)
}

// ApplyAll brings every partition in line with an image. The caller serialises calls of ApplyAll and Apply.
func (r *Replicas) ApplyAll(img *metadata.Image) {
	var ids []metadata.TopicID
	for t := range img.Topics() {
		ids = append(ids, t.ID)
	}
	r.mu.RLock()
	for id := range r.topics {
		if _, ok := img.TopicByID(id); !ok {
			ids = append(ids, id)
		}
	}
	r.mu.RUnlock()
	r.Apply(img, ids)
}

// Apply brings the partitions of some topics in line with an image: it opens what is new, drops what was deleted, and hands
// roles and settings on.
//
// The image counts for the brokers in it even where no topic is named: who is alive may join an in-sync set.
func (r *Replicas) Apply(img *metadata.Image, topics []metadata.TopicID) {
	r.image.Store(img)
	endMoves(r.leaving(img, topics))
	var there []*metadata.Topic
	for _, id := range topics {
		if t, ok := img.TopicByID(id); ok {
			there = append(there, t)
		} else {
			r.drop(id)
		}
	}
	r.open(img, there, true)
	for _, t := range there {
		settings := r.opts.Settings(img, t)
		for i := range t.Partitions {
			p, err := r.Partition(t.ID, int32(i))
			if err != nil {
				continue
			}
			if !slices.Contains(t.Partitions[i].Replicas, r.opts.BrokerID) {
				r.dropReplica(p)
				continue
			}
			if p.log != nil {
				p.configure(settings)
			}
			p.setRole(img, t.Partitions[i], settings)
		}
	}
}

// leaving lists the partitions of some topics that this broker is to hold no more under an image.
func (r *Replicas) leaving(img *metadata.Image, topics []metadata.TopicID) (out []*Partition) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, id := range topics {
		t, ok := img.TopicByID(id)
		for i, p := range r.topics[id] {
			if p != nil && (!ok || i < len(t.Partitions) && !slices.Contains(t.Partitions[i].Replicas, r.opts.BrokerID)) {
				out = append(out, p)
			}
		}
	}
	return out
}

// dropReplica ends a partition that a reassignment has taken from this broker, and deletes its log.
func (r *Replicas) dropReplica(p *Partition) {
	r.mu.Lock()
	r.topics[p.id.TopicID][p.id.Partition] = nil
	if p.dir != nil {
		r.counts[p.dir]--
	}
	r.mu.Unlock()
	r.opts.Logger.Info("this broker is no replica of a partition any more", "event", "replica.removed", "topic", p.id.Topic, "partition", p.id.Partition)
	r.end(p, ErrNotLeader)
}

// end ends a partition that is not listed any more, and deletes its log.
func (r *Replicas) end(p *Partition, why error) {
	p.shut(why).wait()
	var err error
	if p.log != nil {
		err = p.log.do((*log.Log).Delete) // wherever it is: a takeover may have been under way
	} else {
		err = p.directory().DeleteUnopened(p.id)
	}
	if err != nil {
		r.opts.Logger.Error("cannot delete a partition", "event", "partition.delete.failed", "topic", p.id.Topic,
			"partition", p.id.Partition, "error", err)
	}
}

// drop ends a topic's partitions and deletes their logs.
func (r *Replicas) drop(id metadata.TopicID) {
	r.mu.Lock()
	ps := r.topics[id]
	delete(r.topics, id)
	for _, p := range ps {
		if p != nil && p.dir != nil {
			r.counts[p.dir]--
		}
	}
	r.mu.Unlock()
	for _, p := range ps {
		if p == nil {
			continue
		}
		r.end(p, ErrUnknownPartition)
	}
}

// open makes the partitions that this broker should hold and does not, each in the directory that has it or the emptiest. Where the image is known
// to be current, a directory of another topic id gives way to them.
func (r *Replicas) open(img *metadata.Image, topics []*metadata.Topic, current bool) {
	found := r.found()
	reqs := map[*log.Dir][]log.OpenRequest{}
	for _, t := range topics {
		var settings config.Topic
		known := false
		for i, part := range t.Partitions {
			if !slices.Contains(part.Replicas, r.opts.BrokerID) {
				continue
			}
			if p, err := r.Partition(t.ID, int32(i)); err == nil {
				if !p.hasRoomAgain() && !(current && errors.Is(p.openErr, log.ErrTopicID)) {
					continue
				}
				r.forget(p)
			}
			if !known {
				settings, known = r.opts.Settings(img, t), true
			}
			id := log.Identity{Topic: t.Name, Partition: int32(i), TopicID: t.ID}
			dir := r.place(found, id)
			reqs[dir] = append(reqs[dir], log.OpenRequest{Identity: id, Config: settings})
		}
	}
	for dir, list := range reqs {
		dir.OpenLogs(list, func(o log.OpenResult) {
			if current && errors.Is(o.Err, log.ErrTopicID) {
				o = r.openInstead(dir, o.Identity, list)
			}
			r.opened(dir, o)
		})
	}
}

// openInstead opens a log after the directory of another topic id that stands in its place is put aside.
func (r *Replicas) openInstead(dir *log.Dir, id log.Identity, list []log.OpenRequest) log.OpenResult {
	if err := dir.SetAside(id); err != nil {
		return log.OpenResult{Identity: id, Err: err}
	}
	i := slices.IndexFunc(list, func(q log.OpenRequest) bool { return q.Identity == id })
	l, err := dir.OpenLog(id, list[i].Config)
	return log.OpenResult{Identity: id, Log: l, Err: err}
}

// found maps each partition that was on disk at the start to its directory.
func (r *Replicas) found() map[log.Identity]*log.Dir {
	if len(r.opts.Dirs) == 1 {
		return nil
	}
	m := map[log.Identity]*log.Dir{}
	for _, d := range r.opts.Dirs {
		for _, f := range d.Found() {
			m[f.Identity] = d
		}
	}
	return m
}

// place picks the directory of a partition and counts it there.
func (r *Replicas) place(found map[log.Identity]*log.Dir, id log.Identity) *log.Dir {
	r.mu.Lock()
	defer r.mu.Unlock()
	dir := found[id]
	for _, d := range r.opts.Dirs {
		if dir == nil && d.Marked(id) { // it was there, and its directory is gone
			dir = d
		}
	}
	if wanted := r.moves.take(id); dir == nil {
		dir = wanted
	}
	if dir == nil {
		for _, d := range r.opts.Dirs {
			if d.Writable() == nil && (dir == nil || r.counts[d] < r.counts[dir]) {
				dir = d
			}
		}
	}
	if dir == nil {
		dir = r.opts.Dirs[0]
	}
	r.counts[dir]++
	return dir
}

// opened takes a partition in whose log is open, or did not open: that is its own trouble and nobody else's.
func (r *Replicas) opened(dir *log.Dir, o log.OpenResult) {
	p := &Partition{id: o.Identity, replicas: r, lodging: lodging{openErr: o.Err, dir: dir}, moving: moving{turn: make(chan struct{}, 1)}}
	if o.Err != nil {
		r.opts.Logger.Error("a partition's log did not open", "event", "partition.open.failed", "topic", o.Topic,
			"partition", o.Partition, "error", o.Err)
	} else {
		p.log = newShelf(o.Log)
		if m, ok := p.log.MissingData(); ok {
			p.log.untold.Store(true)
			r.opts.Logger.Error("the disk has lost acknowledged records", "event", "partition.data.missing", "topic", o.Topic,
				"partition", o.Partition, "log_end", m.End, "durable_before", m.Mark)
		}
		// What begins below was committed. Retention is told before there is a role: a follower's tail may not be committed.
		hw := max(min(p.log.CheckpointedWatermark(), p.log.StableEnd()), p.log.StartOffset())
		p.highWatermark.Store(int64(hw))
		if !invariant.Seeded(invariant.RestartedRetention) {
			p.log.SetWatermark(hw)
		}
		p.log.OnProgress(p.progress)
	}
	r.mu.Lock()
	ps := r.topics[o.TopicID]
	for len(ps) <= int(o.Partition) {
		ps = append(ps, nil)
	}
	ps[o.Partition] = p
	r.topics[o.TopicID] = ps
	r.mu.Unlock()
	if p.log != nil && len(r.opts.Dirs) > 1 {
		p.resume()
	}
}

// forget takes out a partition whose log did not open, to open it again.
func (r *Replicas) forget(p *Partition) {
	p.shut(ErrNotLeader)
	if errors.Is(p.openErr, log.ErrInUse) { // where it was to begin
		r.moves.want(log.TopicPartition{Topic: p.id.Topic, Partition: p.id.Partition}, p.dir)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.topics[p.id.TopicID][p.id.Partition] = nil
	r.counts[p.dir]--
}

// hasRoomAgain says whether p's log did not open for want of space, and there is some now, or because the copy of another one of its name was
// still there, which is gone now.
func (p *Partition) hasRoomAgain() bool {
	if p.log == nil && errors.Is(p.openErr, log.ErrInUse) {
		_, inUse := p.dir.Log(p.id.Topic, p.id.Partition)
		return !inUse
	}
	return p.log == nil && errors.Is(p.openErr, log.ErrReserve) && p.dir.Writable() == nil
}

// Reopenable lists the topics with a partition that did not open, for want of space or of its name, and could now, or that was shut and has moved to a
// directory that is in order; the latter are listed once. The caller applies them.
func (r *Replicas) Reopenable() []metadata.TopicID {
	var out []metadata.TopicID
	r.All(func(id log.Identity, p *Partition) bool {
		if (p.hasRoomAgain() || p.moving.reopened.Swap(false)) && !slices.Contains(out, metadata.TopicID(id.TopicID)) {
			out = append(out, id.TopicID)
		}
		return true
	})
	return out
}

// Room is nil when a new partition can be placed in some directory, else why not: log.ErrReserve or log.ErrOffline.
func (r *Replicas) Room() error {
	var first error
	for _, d := range r.opts.Dirs {
		err := d.Writable()
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// waiting notes that p has someone who waits, for the timeouts. Called with p's mutex held, once until expire says that
// nobody is left.
func (r *Replicas) waiting(p *Partition) {
	r.waitMu.Lock()
	r.waits = append(r.waits, p)
	first := len(r.waits) == 1
	r.waitMu.Unlock()
	if first {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// expireLoop looks after timeouts while anybody waits, and sleeps otherwise.
func (r *Replicas) expireLoop() {
	timer := time.NewTimer(expireEvery)
	timer.Stop()
	for {
		select {
		case <-r.stop:
			timer.Stop()
			return
		case <-r.wake:
			timer.Reset(expireEvery)
		case <-timer.C:
			if r.expireAll(time.Now()) {
				timer.Reset(expireEvery)
			}
		}
	}
}

// expireAll answers those whose time is up and reports whether anyone is left to watch.
func (r *Replicas) expireAll(now time.Time) bool {
	r.waitMu.Lock()
	all := r.waits
	r.waits = nil
	r.waitMu.Unlock()
	kept := all[:0]
	for _, p := range all {
		if p.expire(now) {
			kept = append(kept, p)
		}
	}
	r.waitMu.Lock()
	defer r.waitMu.Unlock()
	r.waits = append(kept, r.waits...)
	return len(r.waits) > 0
}

// tickLoop has the leaders look at their followers now and then.
func (r *Replicas) tickLoop() {
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-t.C:
			lag := r.opts.Limits().LagTime
			r.All(func(_ log.Identity, p *Partition) bool {
				p.tick(lag)
				return true
			})
			r.closeSessions(false)
		}
	}
}

// Close answers everyone who waits and ends the goroutine. The logs stay open; their directories close them.
func (r *Replicas) Close() error {
	r.mu.Lock()
	if r.dead {
		r.mu.Unlock()
		return nil
	}
	r.dead = true
	r.mu.Unlock()
	r.fetchers.end()
	close(r.stop)
	r.closeSessions(true)
	r.done.Wait()
	r.All(func(_ log.Identity, p *Partition) bool {
		p.shut(fmt.Errorf("%w: the broker is stopping", ErrNotLeader))
		return true
	})
	return nil
}

// Problems lists the partitions that cannot be used here, with the cause.
func (r *Replicas) Problems() error {
	var errs []error
	r.All(func(id log.Identity, p *Partition) bool {
		if p.log == nil {
			errs = append(errs, fmt.Errorf("%s-%d: %w", id.Topic, id.Partition, p.openErr))
		}
		return true
	})
	return errors.Join(errs...)
}

// Missing lists the partitions whose disk lost data that was durable. Of a log that did not open nothing is known: see Untold.
func (r *Replicas) Missing() []log.Identity { return r.missing(false) }

// Untold is Missing of those that the controller has not been told of: logs that opened later than others. Told takes note that it has.
func (r *Replicas) Untold() []log.Identity { return r.missing(true) }

func (r *Replicas) missing(untold bool) []log.Identity {
	var lost []log.Identity
	r.All(func(id log.Identity, p *Partition) bool {
		if p.log != nil && (!untold || p.log.untold.Load()) {
			if _, missing := p.log.MissingData(); missing {
				lost = append(lost, id)
			}
		}
		return true
	})
	return lost
}

// Told takes note that the controller knows which data is missing.
func (r *Replicas) Told(lost []log.Identity) {
	for _, id := range lost {
		if p, err := r.Partition(metadata.TopicID(id.TopicID), id.Partition); err == nil && p.log != nil {
			p.log.untold.Store(false)
		}
	}
}

// Broken lists the partitions that cannot be led or followed from here, before a restart or before there is room: their log did not open, for
// another reason than that of its name, or its data directory has gone offline since. What was durable may all be there.
func (r *Replicas) Broken() []log.Identity {
	var out []log.Identity
	r.All(func(id log.Identity, p *Partition) bool {
		if p.broken() {
			out = append(out, id)
		}
		return true
	})
	return out
}

func (p *Partition) broken() bool {
	if p.log == nil {
		return !errors.Is(p.openErr, log.ErrInUse)
	}
	return errors.Is(p.log.Err(), log.ErrOffline)
}

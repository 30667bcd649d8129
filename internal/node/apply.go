package node

import (
	"context"
	"sync"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/replication/isr"
	"github.com/keeplog/keeplog/replication/quorum"
)

// applier hands new images to the partitions on a goroutine of its own, so that files are opened and removed without holding
// up the metadata log. Changes that arrive meanwhile are taken together.
type applier struct {
	self     metadata.BrokerID
	quorum   *quorum.Quorum
	replicas *isr.Replicas
	settings *settings

	mu      sync.Mutex
	topics  map[metadata.TopicID]struct{} // changed and not yet applied
	all     bool                          // everything may have changed
	applied uint64                        // index of the newest image that the partitions have
	moved   chan struct{}                 // closed and replaced when applied moves
	seen    uint64                        // index of the newest image that changed was told of
	busy    bool                          // apply is under way
	begun   bool                          // the partitions are kept up to date; before, nothing waits for them
	wake    chan struct{}
	// told is called when changes of topics were applied; nil on a node alone.
	told func()
}

func newApplier(self metadata.BrokerID, q *quorum.Quorum, r *isr.Replicas, s *settings) *applier {
	return &applier{
		self: self, quorum: q, replicas: r, settings: s, topics: map[metadata.TopicID]struct{}{}, moved: make(chan struct{}), wake: make(chan struct{}, 1),
	}
}

// changed is the metadata log's subscriber.
func (a *applier) changed(d metadata.Delta, img *metadata.Image) {
	if !d.Empty() {
		a.settings.update(img)
	}
	a.mu.Lock()
	a.seen = img.Index()
	if d.Empty() && !a.busy && !a.all && len(a.topics) == 0 {
		a.reached(img.Index()) // offsets are no business of the partitions
		a.mu.Unlock()
		return
	}
	for _, t := range d.Topics {
		a.topics[t.Topic().ID] = struct{}{}
	}
	for _, c := range d.Configs {
		switch c.Resource.Kind {
		case metadata.ResourceTopic:
			if t, ok := img.TopicByName(c.Resource.Name); ok {
				a.topics[t.ID] = struct{}{}
			}
		case metadata.ResourceBroker:
			a.all = true
		}
	}
	if len(d.Brokers) > 0 {
		a.all = true // defaults depend on the number of brokers, roles on who is fenced
	}
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// start begins to keep the partitions up to date.
func (a *applier) start() {
	a.mu.Lock()
	a.begun = true
	a.mu.Unlock()
	a.quorum.Subscribe(a.changed)
}

// index is that of the newest image whose changes the partitions have.
func (a *applier) index() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.busy && !a.all && len(a.topics) == 0 {
		return max(a.applied, a.seen)
	}
	return a.applied
}

// reopen has the partitions opened for which there was no room, and is now.
func (a *applier) reopen() {
	topics := a.replicas.Reopenable()
	if len(topics) == 0 {
		return
	}
	a.mu.Lock()
	for _, id := range topics {
		a.topics[id] = struct{}{}
	}
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// run applies until stop is closed.
func (a *applier) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-a.wake:
			a.apply()
		}
	}
}

func (a *applier) apply() {
	a.mu.Lock()
	topics, all, taken := a.topics, a.all, a.seen
	a.topics, a.all, a.busy = map[metadata.TopicID]struct{}{}, false, true
	a.mu.Unlock()
	img := a.quorum.Image() // at least as new as every change taken above; what else is new in it comes with the next call of changed
	if all {
		a.replicas.ApplyAll(img)
	}
	ids := make([]metadata.TopicID, 0, len(topics))
	for id := range topics {
		ids = append(ids, id)
	}
	a.replicas.Apply(img, ids)
	a.mu.Lock()
	a.busy = false
	if !a.all && len(a.topics) == 0 {
		taken = a.seen // what came meanwhile was no business of the partitions
	}
	a.reached(taken)
	a.mu.Unlock()
	if a.told != nil && (all || len(ids) > 0) {
		a.told()
	}
}

// reached notes the image that the partitions have. The lock is held.
func (a *applier) reached(index uint64) {
	a.applied = max(a.applied, index)
	close(a.moved)
	a.moved = make(chan struct{})
}

// wait returns when the partitions have an image of at least index, at once while they are not kept up to date yet: so what was decided has
// reached this broker's partitions when the controller answers, and a topic that was reported as created can be written to.
func (a *applier) wait(ctx context.Context, index uint64) error {
	for {
		a.mu.Lock()
		applied, moved := a.applied, a.moved
		if !a.begun {
			applied = index
		}
		a.mu.Unlock()
		if applied >= index {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// proposer is the metadata log as the controller sees it: new partitions are not proposed when no directory has room for them.
type proposer struct {
	*quorum.Quorum
	room func() error
}

// ProposeAt commits records planned in a term and waits until they are in the image.
func (p proposer) ProposeAt(ctx context.Context, term uint64, records []metadata.Record) (uint64, []metadata.Result, error) {
	for _, r := range records {
		switch r.(type) {
		case metadata.TopicCreated, metadata.PartitionsAdded:
			if err := p.room(); err != nil {
				return 0, nil, err
			}
		}
	}
	return p.Quorum.ProposeAt(ctx, term, records)
}

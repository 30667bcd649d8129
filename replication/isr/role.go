package isr

import (
	"slices"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
)

// role is what readers need to know of a replica's part, immutable.
type role struct {
	leads       bool
	follows     bool
	followed    bool // leads, and there are other replicas
	leader      metadata.BrokerID
	epoch       record.Epoch
	enough      bool // the in-sync set meets min.insync.replicas
	inSync      []metadata.BrokerID
	replicas    []metadata.BrokerID
	validations record.ValidateOptions
}

// setRole takes what the image says of the partition; the caller serialises calls. A new leader epoch starts a new
// leadership, on one node too.
func (p *Partition) setRole(img *metadata.Image, part *metadata.Partition, settings config.Topic) {
	p.settings.Store(&settings)
	epoch := record.Epoch(part.LeaderEpoch)
	self := p.replicas.opts.BrokerID
	leaderID := img.LeaderOf(part) // nobody while the leader is fenced
	leads := leaderID == self && p.log != nil
	if part.UncleanEpoch > 0 {
		p.follow.unclean(record.Epoch(part.UncleanEpoch))
	}
	switch {
	case leads && p.leadsIn() == epoch:
		p.stillLead(img, part, settings)
		return
	case leads:
		p.follow.end() // no batch of an earlier leader comes in any more
		leads = p.beginEpoch(epoch)
	}
	p.mu.Lock()
	if p.closed != nil {
		p.mu.Unlock()
		return
	}
	out, deletes := p.resign()
	if leads {
		p.elect(img, part, settings)
	}
	r := p.newRole(leaderID, part, settings)
	p.role.Store(r)
	p.mu.Unlock()
	dismiss(out, deletes, ErrNotLeader)
	if r.follows {
		p.follow.begin(p, part.Leader, epoch)
	} else if !leads {
		p.follow.end()
	}
	p.notifyAll()
	if leads {
		p.event(epoch, func(*leader, time.Duration) bool { return false }) // what is due at once: an unclean election's report
	}
}

// beginEpoch lets the log begin an epoch in which this broker leads.
func (p *Partition) beginEpoch(epoch record.Epoch) bool {
	err := p.log.StartEpoch(epoch)
	if err != nil {
		p.replicas.opts.Logger.Error("cannot lead", "event", "election.failed", "topic", p.id.Topic, "partition", p.id.Partition,
			"epoch", epoch, "error", err)
	}
	return err == nil
}

// stillLead takes a newer state of the epoch in which this broker leads.
func (p *Partition) stillLead(img *metadata.Image, part *metadata.Partition, settings config.Topic) {
	p.mu.Lock()
	if p.closed != nil || p.lead == nil {
		p.mu.Unlock()
		return
	}
	now := p.coreNow()
	p.members = img
	e, out := p.settle(p.lead.changed(stateOf(img, part, settings), now), now, nil)
	p.role.Store(p.newRole(p.lead.self, part, settings))
	p.askAgain()
	p.mu.Unlock()
	answerAll(out)
	p.perform(e)
	p.notifyAll()
}

// leadsIn is the epoch that this broker leads in, record.NoEpoch when it does not.
func (p *Partition) leadsIn() record.Epoch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lead == nil {
		return record.NoEpoch
	}
	return p.lead.epoch
}

// elect begins to lead. Called with mu held.
func (p *Partition) elect(img *metadata.Image, part *metadata.Partition, settings config.Topic) {
	p.members = img
	p.lead = newLeader(leaderConfig{
		self: p.replicas.opts.BrokerID, epoch: record.Epoch(part.LeaderEpoch), state: stateOf(img, part, settings),
		lag: p.replicas.opts.Limits().LagTime, epochStart: p.log.WrittenEnd(), highWatermark: record.Offset(p.highWatermark.Load()),
		stable: p.log.StableEnd(), logStart: p.log.StartOffset(), now: p.replicas.now(),
	})
	p.unsettled.Store(!p.lead.settled())
	p.publish(p.lead.highWatermark)
}

// newRole is the immutable view of the part that this replica plays. Called with mu held.
func (p *Partition) newRole(leader metadata.BrokerID, part *metadata.Partition, settings config.Topic) *role {
	self := p.replicas.opts.BrokerID
	r := &role{leads: p.lead != nil, leader: leader, epoch: record.Epoch(part.LeaderEpoch), replicas: part.Replicas, inSync: part.ISR}
	if p.lead != nil {
		r.enough, r.inSync, r.followed = p.lead.enough(), p.lead.inSync, len(part.Replicas) > 1
	} else {
		r.follows = p.log != nil && p.replicas.opts.Cluster != nil && part.Leader >= 0 && part.Leader != self && slices.Contains(part.Replicas, self)
	}
	r.validations = validations(settings, p.replicas.opts)
	return r
}

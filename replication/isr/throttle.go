package isr

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/keeplog/keeplog/metadata"
)

// throttle is a bucket of bytes for the replication of replicas that are not in sync (KIP-73).
type throttle struct {
	mu     sync.Mutex
	tokens float64 // may be below zero after a large batch
	last   time.Duration
}

// open says whether something may pass at a rate of bytes a second; 0 or less lets everything pass.
func (t *throttle) open(rate int64, now time.Duration) bool {
	if rate <= 0 {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tokens = min(t.tokens+(now-t.last).Seconds()*float64(rate), float64(rate))
	t.last = now
	return t.tokens > 0
}

func (t *throttle) spend(bytes int) {
	t.mu.Lock()
	t.tokens -= float64(bytes)
	t.mu.Unlock()
}

// throttled says whether a list of partition:broker pairs, or "*", names a replica.
func throttled(list []string, partition int32, broker metadata.BrokerID) bool {
	if len(list) == 0 {
		return false
	}
	return slices.Contains(list, "*") || slices.Contains(list, strconv.Itoa(int(partition))+":"+strconv.Itoa(int(broker)))
}

// leaderThrottled says whether a leader's throttle concerns a replica: those in sync never are.
func (p *Partition) leaderThrottled(role *role, id metadata.BrokerID) bool {
	s := p.settings.Load()
	return s != nil && throttled(s.LeaderThrottled, p.id.Partition, id) && !slices.Contains(role.inSync, id)
}

// mayServe says whether a replica may be sent records now.
func (r *Replicas) mayServe(p *Partition, role *role, id metadata.BrokerID) bool {
	return !p.leaderThrottled(role, id) || r.leaderThrottle.open(r.opts.Limits().LeaderRate, r.now())
}

// served counts what a throttled replica was sent.
func (r *Replicas) served(p *Partition, role *role, id metadata.BrokerID, bytes int) {
	if p.leaderThrottled(role, id) && r.opts.Limits().LeaderRate > 0 {
		r.leaderThrottle.spend(bytes)
	}
}

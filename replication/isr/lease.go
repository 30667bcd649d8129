package isr

import "time"

// SetLease says until when this broker may act as a leader on its own word: 2 s from the sending of the last heartbeat that
// the controller acknowledged. Past it, produce with acks 0 and 1 is refused with ErrNotLeader, latest-offset queries with
// ErrOffsetNotAvailable, and fetch replies show no high watermark: another leader may have been elected. acks=all needs the
// in-sync set anyway and goes on, and so do reads. Before the first call there is no lease, as on a node alone. until must
// carry a monotonic reading.
func (r *Replicas) SetLease(until time.Time) { r.lease.Store(max(int64(until.Sub(r.born)), 1)) }

// leased says whether the lease, if there is one, still runs.
func (r *Replicas) leased() bool {
	until := r.lease.Load()
	return until == 0 || int64(time.Since(r.born)) < until
}

// now is the clock of the cores: monotonic, from the start of the process on.
func (r *Replicas) now() time.Duration { return time.Since(r.born) }

// SetBrokerEpoch tells the epoch that the registration of this incarnation got: fetches from other brokers carry it, and
// none is sent before.
func (r *Replicas) SetBrokerEpoch(epoch int64) {
	r.brokerEpoch.Store(epoch)
	r.fetchers.mu.Lock()
	defer r.fetchers.mu.Unlock()
	for _, f := range r.fetchers.byLeader {
		f.post(func(*mail) {})
	}
}

package api

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/peer"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/replication/isr"
)

// A follower's Fetch, on the brokers' own listener. Its session, and what there is to tell, is the partitions' business; here the request is
// taken apart, waits, and is answered. Two of a follower are under way at once: the second has the first answered.

// followerVersion is the first version that a follower may use: it names topics by id and says which incarnation asks.
const followerVersion = 15

// replicaFetcher is what serves followers; the Replicas of FromISR do.
type replicaFetcher interface {
	ReplicaFetch(f *isr.RemoteFetch, wake func()) (*isr.ReplicaPoll, bool, error)
}

// ReplicaFetch implements replicaFetcher.
func (r replicas) ReplicaFetch(f *isr.RemoteFetch, wake func()) (*isr.ReplicaPoll, bool, error) {
	return r.r.ReplicaFetch(f, wake)
}

// replicaCall is what a fetchCall has beside when a follower asks.
type replicaCall struct {
	poll *isr.ReplicaPoll
	// armed: the call is parked, so that it may be fired; woken: it should have been before. Guarded by fetchWait.mu.
	armed, woken bool
}

// fetchReplica serves a follower; false where the request is none of a follower's, or came over another listener.
func (a *API) fetchReplica(f *fetchCall) bool {
	serves, ok := a.o.Replicas.(replicaFetcher)
	if !ok || !f.call.Conn.Internal || replicaOf(f.req) < 0 {
		return false
	}
	if f.call.Version < followerVersion {
		f.refuse(codeUnsupportedVersion)
		return true
	}
	r := remoteFetch(f.req)
	r.Abandon = f.call.Conn.Abandon
	f.replica = &replicaCall{}
	poll, ready, err := serves.ReplicaFetch(r, func() { a.wakeReplica(f) })
	if err != nil {
		f.call.reply(&kmsg.FetchResponse{ErrorCode: sessionCode(r, err)})
		return true
	}
	f.replica.poll, f.sessionID = poll, poll.SessionID
	if ready {
		f.call.complete(f.Build())
		return true
	}
	a.purgatory.park(f, min(r.MaxWait, maxFetchWait))
	f.wait.mu.Lock()
	f.replica.armed = true
	woken := f.replica.woken
	f.wait.mu.Unlock()
	if woken {
		a.purgatory.fire(f)
	}
	return true
}

// wakeReplica has a follower's fetch answered, now or as soon as it is parked.
func (a *API) wakeReplica(f *fetchCall) {
	f.wait.mu.Lock()
	armed := f.replica.armed
	f.replica.woken = true
	f.wait.mu.Unlock()
	if armed {
		a.purgatory.fire(f)
	}
}

// sessionCode tells a follower that its session is gone, or that its number is another.
func sessionCode(r *isr.RemoteFetch, err error) int16 {
	if !errors.Is(err, isr.ErrSession) {
		return code(err)
	}
	return codeFetchSessionIDNotFound
}

func remoteFetch(req *kmsg.FetchRequest) *isr.RemoteFetch {
	r := &isr.RemoteFetch{
		Replica: req.ReplicaState.ID, BrokerEpoch: req.ReplicaState.Epoch, SessionID: req.SessionID, SessionEpoch: req.SessionEpoch,
		MaxWait: time.Duration(max(req.MaxWaitMillis, 0)) * time.Millisecond, MinBytes: int(req.MinBytes), MaxBytes: max(int(req.MaxBytes), 0),
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			asked := isr.RemotePartition{
				PartitionRef: isr.PartitionRef{Topic: t.TopicID, Partition: p.Partition}, LeaderEpoch: record.Epoch(p.CurrentLeaderEpoch),
				Offset: record.Offset(p.FetchOffset), LastFetchedEpoch: record.Epoch(p.LastFetchedEpoch), Stable: -1,
				LogStart: record.Offset(p.LogStartOffset), MaxBytes: int(p.PartitionMaxBytes),
			}
			if end, ok := peer.StableEnd(p); ok {
				asked.Stable = end
			}
			r.Partitions = append(r.Partitions, asked)
		}
	}
	for i := range req.ForgottenTopics {
		t := &req.ForgottenTopics[i]
		for _, n := range t.Partitions {
			r.Forgotten = append(r.Forgotten, isr.PartitionRef{Topic: t.TopicID, Partition: n})
		}
	}
	return r
}

// buildReplica makes the answer to a follower.
func (f *fetchCall) buildReplica() Answer {
	told := f.replica.poll.Answer()
	slices.SortStableFunc(told, func(a, b isr.ReplicaPart) int {
		return cmp.Or(bytes.Compare(a.Topic[:], b.Topic[:]), cmp.Compare(a.Partition, b.Partition))
	})
	f.parts = make([]fetchPart, len(told))
	for i := range told {
		p := &told[i]
		f.parts[i] = fetchPart{
			fetch: f, id: p.Topic, partition: p.Partition, other: p.Leadership, res: FetchResult{
				HighWatermark: p.HighWatermark, LastStable: p.LastStable, LogStart: p.LogStart, DivergingEpoch: p.DivergingEpoch,
				DivergingEnd: p.DivergingEnd, Err: p.Err,
			},
		}
		if p.Span != nil {
			f.parts[i].res.Span = p.Span
		}
	}
	return f.answer()
}

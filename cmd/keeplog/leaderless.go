package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// toExplain is how long the questions may take that explain a failure.
const toExplain = 2 * time.Second

// failure is why a broker could not be reached, by this session or the one that it explains; nil when it could.
func (s *session) failure(broker int32) error {
	if err := s.reach.failure(broker); err != nil || s.explains == nil {
		return err
	}
	return s.explains.reach.failure(broker)
}

// noLeader says why the leader of a partition did not answer, after err.
func (s *session) noLeader(ctx context.Context, key tp, err error) *cliError {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), toExplain)
	defer cancel()
	e := &cliError{code: kerr.LeaderNotAvailable.Message, exit: exitUnreachable, try: "keeplog cluster health"}
	leaders, asked := s.leadersOf(ctx, []tp{key})
	leader, led := leaders[key]
	var ke *kerr.Error
	switch {
	case asked != nil:
		return failure(s.explain(asked, key.String()))
	case !led:
		e.msg = key.String() + ": LEADER_NOT_AVAILABLE (it has no leader)"
		e.why = "no replica that is in sync is up"
	case s.failure(leader) != nil:
		if only := s.reach.explain(err, len(s.client.DiscoveredBrokers())); only != nil && only.advertised {
			return only
		}
		e.msg = fmt.Sprintf("%s: LEADER_NOT_AVAILABLE (its leader, broker %d, does not answer)", key, leader)
		e.why = fmt.Sprintf("broker %d: %s", leader, netReason(s.failure(leader)))
	case errors.As(err, &ke) && ke == kerr.OffsetNotAvailable:
		e = kafkaError(key.String(), ke, "its leader does not know now what is committed")
		e.exit, e.try = exitUnreachable, "keeplog cluster health"
		e.why = fmt.Sprintf("broker %d has no word from a leader of the metadata, or has just begun to lead", leader)
	case errors.As(err, &ke):
		e = kafkaError(key.String(), ke, "")
	default:
		return failure(s.explain(err, key.String()))
	}
	return e
}

// refusing says why a topic takes no writes: who leads does not answer, or too few replicas are in sync. Nil where neither is so.
func (s *session) refusing(ctx context.Context, topic string, only int32) *cliError {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), toExplain)
	defer cancel()
	m, err := s.admin.Metadata(ctx, topic)
	if err != nil || m.Topics[topic].Err != nil {
		return nil
	}
	v := &clusterView{minISR: map[string]int{}, unset: map[string]bool{}, topics: m.Topics}
	s.viewMinISR(ctx, v)
	for _, p := range m.Topics[topic].Partitions.Sorted() {
		if only >= 0 && p.Partition != only {
			continue
		}
		key := tp{topic, p.Partition}
		if p.Leader < 0 || s.failure(p.Leader) != nil {
			return s.noLeader(ctx, key, kerr.LeaderNotAvailable)
		}
		if need, known := v.minOf(p); known && len(p.ISR) < need {
			return notEnough(key, p, need)
		}
	}
	if _, led := askQuorum(ctx, s.home); !led {
		return &cliError{
			msg: fmt.Sprintf("topic %s: nothing is acknowledged", topic), code: kerr.RequestTimedOut.Message, exit: exitUnreachable,
			why: "the metadata has no leader, so replicas that are down are still waited for: a majority of the nodes is down", try: "keeplog cluster health",
		}
	}
	return nil
}

func notEnough(key tp, p kadm.PartitionDetail, need int) *cliError {
	var out []int32
	for _, id := range p.Replicas {
		if !slices.Contains(p.ISR, id) {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	e := &cliError{
		msg:  fmt.Sprintf("%s: NOT_ENOUGH_REPLICAS (%d of %d needed in sync)", key, len(p.ISR), need),
		code: kerr.NotEnoughReplicas.Message, exit: exitFailed, try: "keeplog cluster health",
	}
	switch len(out) {
	case 0:
		e.why = fmt.Sprintf("it has %s, and min.insync.replicas asks for %d", count(int64(len(p.Replicas)), "replica"), need)
	case 1:
		e.why = "broker " + strconv.Itoa(int(out[0])) + " is down or behind"
	default:
		e.why = "brokers " + numbers(out) + " are down or behind"
	}
	return e
}

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Moves are slowed down as Kafka's tool for reassignments does it: each broker has a rate to send and one to take, in bytes a second, and each
// topic names the replicas that these hold for, PARTITION:BROKER on the sending and on the taking side.
const (
	leaderRate       = "leader.replication.throttled.rate"
	followerRate     = "follower.replication.throttled.rate"
	leaderReplicas   = "leader.replication.throttled.replicas"
	followerReplicas = "follower.replication.throttled.replicas"
)

// parseRate reads bytes a second: 1048576, 10MiB, 10MiB/s, 10MB.
func parseRate(word string) (int64, error) {
	number := strings.TrimSuffix(word, "/s")
	unit := strings.TrimLeft(number, "0123456789.")
	factor, ok := map[string]float64{
		"": 1, "B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
	}[unit]
	n, err := strconv.ParseFloat(strings.TrimSuffix(number, unit), 64)
	if err != nil || !ok || n < 0 || n*factor > math.MaxInt64/2 {
		e := usagef("--throttle %s: not a rate in bytes a second", word)
		e.try = "--throttle 20MiB, or --throttle 0 to take it away"
		return 0, e
	}
	return int64(n * factor), nil
}

// throttle is what is set before moves begin: values by key, of brokers and of topics.
type throttle struct {
	rate    string
	brokers []int32
	topics  map[string]map[string]string
}

// throttleOf is the throttle of moves at a rate: whoever has a replica sends, whoever gets one takes.
func throttleOf(moves []move, rate int64) *throttle {
	t := &throttle{rate: strconv.FormatInt(rate, 10), topics: map[string]map[string]string{}}
	send, take := map[string][]string{}, map[string][]string{}
	for _, m := range moves {
		for _, id := range m.from {
			send[m.topic] = append(send[m.topic], fmt.Sprintf("%d:%d", m.partition, id))
		}
		for _, id := range m.to {
			if !slices.Contains(m.from, id) {
				take[m.topic] = append(take[m.topic], fmt.Sprintf("%d:%d", m.partition, id))
			}
		}
		t.brokers = append(append(t.brokers, m.from...), m.to...)
		t.topics[m.topic] = nil
	}
	once := func(places []string) string {
		slices.Sort(places)
		return strings.Join(slices.Compact(places), ",")
	}
	for topic := range t.topics {
		t.topics[topic] = map[string]string{leaderReplicas: once(send[topic]), followerReplicas: once(take[topic])}
	}
	slices.Sort(t.brokers)
	t.brokers = slices.Compact(t.brokers)
	return t
}

// apply sets the throttle on the brokers that are alive.
func (t *throttle) apply(ctx context.Context, s *session, v *clusterView) error {
	var changes []configChange
	for _, id := range t.brokers {
		if v.alive(id) {
			changes = append(changes, configChange{kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(id)), map[string]string{leaderRate: t.rate, followerRate: t.rate}})
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(t.topics)) {
		changes = append(changes, configChange{kmsg.ConfigResourceTypeTopic, topic, t.topics[topic]})
	}
	return s.alter(ctx, changes)
}

// unthrottle takes every throttle of moves away, of the topics named and of all brokers that are alive.
func (s *session) unthrottle(ctx context.Context, v *clusterView, topics []string) error {
	var changes []configChange
	for i := range v.brokers {
		if id := v.brokers[i].id; v.alive(id) {
			changes = append(changes, configChange{kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(id)), map[string]string{leaderRate: "", followerRate: ""}})
		}
	}
	for _, topic := range topics {
		changes = append(changes, configChange{kmsg.ConfigResourceTypeTopic, topic, map[string]string{leaderReplicas: "", followerReplicas: ""}})
	}
	return s.alter(ctx, changes)
}

// endThrottle takes the throttle of moves that have ended away, unless others are under way: these have the same rates.
func (s *session) endThrottle(ctx context.Context, v *clusterView, topics []string) error {
	all, err := s.admin.ListTopicsWithInternal(ctx)
	if err != nil {
		return err
	}
	left, err := s.movesUnderWay(ctx, all)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		s.app.say("the throttle stays, because %s on the move still; to take it away when they are done: %s", isAre(len(left), "partition"), unthrottleCommand)
		return nil
	}
	return s.unthrottle(ctx, v, topics)
}

// configChange sets settings of one broker or topic; an empty value takes the setting back.
type configChange struct {
	kind   kmsg.ConfigResourceType
	name   string
	values map[string]string
}

// alter makes changes; the first that is refused is the error. What is gone meanwhile needs no change.
func (s *session) alter(ctx context.Context, changes []configChange) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	for _, change := range changes {
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = change.kind, change.name
		for _, key := range slices.Sorted(maps.Keys(change.values)) {
			c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			c.Name, c.Op = key, kmsg.IncrementalAlterConfigOpDelete
			if value := change.values[key]; value != "" {
				c.Op, c.Value = kmsg.IncrementalAlterConfigOpSet, &value
			}
			r.Configs = append(r.Configs, c)
		}
		req.Resources = append(req.Resources, r)
	}
	for _, shard := range s.client.RequestSharded(ctx, req) {
		if shard.Err != nil {
			return shard.Err
		}
		for _, r := range shard.Resp.(*kmsg.IncrementalAlterConfigsResponse).Resources {
			err := kerr.ErrorForCode(r.ErrorCode)
			if err == nil || errors.Is(err, kerr.UnknownTopicOrPartition) {
				continue
			}
			what := "broker " + r.ResourceName
			if r.ResourceType == kmsg.ConfigResourceTypeTopic {
				what = "topic " + r.ResourceName
			}
			return s.answered(what, err, orEmpty(r.ErrorMessage))
		}
	}
	return nil
}

// throttleOnly is --throttle without moves of its own: it is for those under way, or takes all throttles away.
func (a *app) throttleOnly(ctx context.Context, rate int64) error {
	return a.withView(ctx, true, func(ctx context.Context, s *session, v *clusterView) error {
		if rate == 0 {
			if err := s.unthrottle(ctx, v, slices.Sorted(maps.Keys(v.topics))); err != nil {
				return err
			}
			a.say("moves are not throttled any more")
			return a.showMoves(v.moving, "on the move")
		}
		if len(v.moving) == 0 {
			e := failf("no partition is on the move: nothing to throttle")
			e.try = "--throttle together with --to, --from, --factor or --replicas"
			return e
		}
		if err := throttleOf(v.moving, rate).apply(ctx, s, v); err != nil {
			return err
		}
		a.say("each broker sends and takes at most %s/s of them; when they are done: %s", size(rate), unthrottleCommand)
		return a.showMoves(v.moving, "on the move")
	})
}

const unthrottleCommand = "keeplog cluster reassign --throttle 0"

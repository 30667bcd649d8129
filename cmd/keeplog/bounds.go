package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The times that ListOffsets takes for the two ends of a partition.
const (
	atStart = -2
	atEnd   = -1
)

// bounds are the first offset and the end of partitions, as of when they were asked for.
type bounds struct {
	start, end map[tp]int64
	// failed are the partitions whose start, or end where it was wanted, is not known, and why.
	failed map[tp]error
	times  map[int64]map[tp]int64 // what was found for a time in ms; below 0: nothing so new
}

// listed is what a leader answered for one partition.
type listed struct {
	offset int64
	err    error
}

// boundsOptions say what to ask for.
type boundsOptions struct {
	committed bool // the end is the last stable offset
	wantEnd   bool // ask until the end is known too
	patience  time.Duration
}

// partitionsOf are the partitions of topics, sorted, of which there may be only some wanted.
func (s *session) partitionsOf(ctx context.Context, topics []string, only []int32) ([]tp, kadm.TopicDetails, error) {
	details, err := s.topics(ctx, topics...)
	if err != nil {
		return nil, nil, err
	}
	var out []tp
	for _, topic := range topics {
		parts := details[topic].Partitions
		for _, p := range only {
			if _, ok := parts[p]; !ok {
				e := failf("topic %s: UNKNOWN_TOPIC_OR_PARTITION (no partition %d)", topic, p)
				e.why, e.code = fmt.Sprintf("it has %s", count(int64(len(parts)), "partition")), "UNKNOWN_TOPIC_OR_PARTITION"
				return nil, nil, e
			}
		}
		for _, p := range parts.Sorted() {
			if len(only) == 0 || slices.Contains(only, p.Partition) {
				out = append(out, tp{topic, p.Partition})
			}
		}
	}
	return out, details, nil
}

// bounds asks the leaders of parts, and no others, for start and end, again and again while some do not answer and patience lasts.
func (s *session) bounds(ctx context.Context, parts []tp, o boundsOptions) (*bounds, error) {
	ctx, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	b := &bounds{start: map[tp]int64{}, end: map[tp]int64{}, failed: map[tp]error{}, times: map[int64]map[tp]int64{}}
	for missing := parts; len(missing) > 0; {
		starts := s.listOffsets(ctx, missing, atStart, false)
		ends := s.listOffsets(ctx, missing, atEnd, o.committed)
		var again []tp
		for _, key := range missing {
			start, end := starts[key], ends[key]
			if start.err == nil {
				b.start[key] = start.offset
			}
			if end.err == nil {
				b.end[key] = end.offset
			}
			err := start.err
			if err == nil && o.wantEnd {
				err = end.err
			}
			if err == nil {
				delete(b.failed, key)
				continue
			}
			if !passes(err) {
				return nil, s.answered(key.String(), err, "")
			}
			if b.failed[key] == nil || !errors.Is(err, context.DeadlineExceeded) {
				b.failed[key] = err
			}
			again = append(again, key)
		}
		if missing = again; len(missing) == 0 {
			break
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return b, nil
		}
	}
	return b, nil
}

// passes says whether an error of a leader may be over in a while.
func passes(err error) bool {
	var ke *kerr.Error
	return !errors.As(err, &ke) || ke.Retriable
}

// listOffsets asks the leader of each partition, once, for the offset of a time in ms, atStart or atEnd. Each gets an answer or an error.
func (s *session) listOffsets(ctx context.Context, parts []tp, at int64, committed bool) map[tp]listed {
	out := map[tp]listed{}
	byLeader := map[int32][]tp{}
	leaders, err := s.leadersOf(ctx, parts)
	for _, key := range parts {
		switch leader, ok := leaders[key]; {
		case err != nil:
			out[key] = listed{-1, err}
		case !ok:
			out[key] = listed{-1, kerr.LeaderNotAvailable}
		default:
			byLeader[leader] = append(byLeader[leader], key)
		}
	}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for leader, keys := range byLeader {
		asking.Go(func() {
			answers := s.askOffsets(ctx, leader, listOffsetsRequest(keys, at, committed))
			mu.Lock()
			defer mu.Unlock()
			for _, key := range keys {
				if answer, ok := answers[key]; ok {
					out[key] = answer
				} else {
					out[key] = listed{-1, answers[tp{}].err}
				}
			}
		})
	}
	asking.Wait()
	return out
}

// leadersOf are the brokers that lead parts, as one broker says; those that nobody leads are left out.
func (s *session) leadersOf(ctx context.Context, parts []tp) (map[tp]int32, error) {
	var topics []string
	for _, key := range parts {
		if !slices.Contains(topics, key.topic) {
			topics = append(topics, key.topic)
		}
	}
	m, err := s.admin.Metadata(ctx, topics...)
	if err != nil {
		return nil, err
	}
	out := map[tp]int32{}
	for _, key := range parts {
		if p, ok := m.Topics[key.topic].Partitions[key.partition]; ok && isLed(p) {
			out[key] = p.Leader
		}
	}
	return out, nil
}

func listOffsetsRequest(parts []tp, at int64, committed bool) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	if committed {
		req.IsolationLevel = 1
	}
	for _, key := range parts {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = key.partition, at
		if n := len(req.Topics); n > 0 && req.Topics[n-1].Topic == key.topic {
			req.Topics[n-1].Partitions = append(req.Topics[n-1].Partitions, rp)
			continue
		}
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic, rt.Partitions = key.topic, append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
	}
	return req
}

// askOffsets asks one broker. What is under the zero key is for partitions that it does not answer for.
func (s *session) askOffsets(ctx context.Context, broker int32, req *kmsg.ListOffsetsRequest) map[tp]listed {
	resp, err := req.RequestWith(ctx, s.client.Broker(int(broker)))
	if err != nil {
		return map[tp]listed{{}: {-1, err}}
	}
	out := map[tp]listed{{}: {-1, kerr.LeaderNotAvailable}}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			out[tp{t.Topic, p.Partition}] = listed{p.Offset, kerr.ErrorForCode(p.ErrorCode)}
		}
	}
	return out
}

// all returns an error if one of parts has no bounds.
func (b *bounds) all(ctx context.Context, s *session, parts []tp) error {
	for _, key := range parts {
		if err := b.failed[key]; err != nil {
			return s.noLeader(ctx, key, err)
		}
	}
	return nil
}

// endOf is the end of a partition, if its leader told it.
func (b *bounds) endOf(key tp) (int64, error) {
	if end, ok := b.end[key]; ok {
		return end, nil
	}
	return 0, kafkaError(key.String(), kerr.OffsetNotAvailable, "its leader does not know now what is committed")
}

// resolve turns p into an offset of partition key. It may lie outside of what is there. pointNone is the largest offset.
func (s *session) resolve(ctx context.Context, b *bounds, key tp, p point) (int64, error) {
	switch p.kind {
	case pointStart:
		return b.start[key], nil
	case pointOffset:
		return p.n, nil
	case pointNone:
		return math.MaxInt64, nil
	}
	end, err := b.endOf(key)
	if err != nil {
		return 0, err
	}
	switch p.kind {
	case pointEnd:
		return end, nil
	case pointAfter:
		return min(addUp(b.start[key], p.n), end), nil
	case pointBefore:
		return max(end-p.n, b.start[key]), nil
	}
	at, err := s.offsetFor(ctx, b, key, p.n)
	if err == nil && at < 0 {
		at = end
	}
	return at, err
}

// offsetFor is the first offset of a time in ms or later, below 0 for none. The leaders of all partitions are asked at once, and those that do
// not answer again and again for a while; only answers are kept.
func (s *session) offsetFor(ctx context.Context, b *bounds, key tp, ms int64) (int64, error) {
	known := b.times[ms]
	if known == nil {
		known = map[tp]int64{}
		b.times[ms] = known
	}
	for begun := time.Now(); ; {
		if at, ok := known[key]; ok {
			return at, nil
		}
		var ask []tp
		for k := range b.end {
			if _, ok := known[k]; !ok {
				ask = append(ask, k)
			}
		}
		slices.SortFunc(ask, tp.compare)
		answers := s.listOffsets(ctx, ask, ms, false)
		for k, at := range answers {
			if at.err == nil {
				known[k] = at.offset
			}
		}
		switch err := answers[key].err; {
		case err == nil:
			continue
		case errors.Is(ctx.Err(), context.Canceled):
			return 0, ctx.Err()
		case !passes(err):
			return 0, s.answered(key.String(), err, "")
		case ctx.Err() != nil || time.Since(begun) > s.app.flags.timeout/2:
			return 0, s.noLeader(ctx, key, err)
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
		}
	}
}

// addUp is a + b of numbers that are not below zero, or the largest there is.
func addUp(a, b int64) int64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

package group

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/keeplog/keeplog/metadata"
)

// CommitOffsets is answered when the offsets are committed. One that is committed again before that goes along: the newest
// counts.
func (c *Coordinator) CommitOffsets(r *CommitOffsetsRequest, done func(*CommitOffsetsResponse)) {
	w := waits(done, func(err error) *CommitOffsetsResponse { return &CommitOffsetsResponse{Err: err} })
	t, g, err := c.open(r.Group)
	if err != nil {
		w(nil, err)
		return
	}
	defer t.end()
	defer t.settle(g)
	if c.pending.Load() > c.o.Limits.Pending {
		t.fail(w, ErrNotAvailable)
		return
	}
	env := t.env(g)
	verdict := g.core.CheckCommit(r, env)
	if verdict.Err != nil {
		t.answer(g, w, &CommitOffsetsResponse{Err: verdict.Err})
		return
	}
	response, good := t.judge(r, verdict, env)
	size := 0
	for _, o := range good {
		size += offsetCost + len(o.Metadata)
	}
	switch {
	case size > maxStored:
		t.answer(g, w, &CommitOffsetsResponse{Err: ErrTooLarge})
		return
	case len(good) > 0:
		b := t.forming(g, size)
		if b.offsets == nil {
			b.offsets = make(map[metadata.GroupPartition]metadata.OffsetCommit, len(good))
		}
		for _, o := range good {
			b.offsets[o.GroupPartition] = o
			delete(b.dropped, o.GroupPartition)
		}
	}
	t.answer(g, w, response)
}

// judge looks at the partitions of a commit one by one; good are those that can be stored.
func (t *turn) judge(r *CommitOffsetsRequest, verdict Verdict, env Env) (*CommitOffsetsResponse, []metadata.OffsetCommit) {
	response := &CommitOffsetsResponse{}
	good := make([]metadata.OffsetCommit, 0, len(r.Offsets))
	committed, expires := t.now.UnixMilli(), int64(-1)
	if r.Retention >= 0 {
		expires = committed + r.Retention.Milliseconds()
	}
	for i := range r.Offsets {
		o := &r.Offsets[i]
		if err := judgeOne(o, verdict, env); err != nil {
			if response.Partitions == nil {
				response.Partitions = make([]error, len(r.Offsets))
			}
			response.Partitions[i] = err
			continue
		}
		good = append(good, metadata.OffsetCommit{
			GroupPartition: metadata.GroupPartition{Topic: o.TopicID, Partition: o.Partition},
			Offset:         o.Offset, LeaderEpoch: o.LeaderEpoch, Metadata: o.Metadata, Committed: committed, Expires: expires,
		})
	}
	return response, good
}

func judgeOne(o *CommitOffset, verdict Verdict, env Env) error {
	if o.Err != nil {
		return o.Err
	}
	_, partitions, ok := env.Topics.TopicName(o.TopicID)
	switch {
	case !ok || o.Partition < 0 || int(o.Partition) >= partitions:
		return ErrUnknownTopic
	case longer(o.Metadata, env.Settings.OffsetMetadataMax):
		return ErrMetadataTooLarge
	case verdict.Partition != nil:
		return verdict.Partition(o.TopicID, o.Partition)
	}
	return nil
}

// longer says whether a text has more than limit characters, as Java counts them.
func longer(s string, limit int) bool {
	if len(s) <= limit {
		return false
	}
	n := utf8.RuneCountInString(s)
	for _, r := range s {
		if r > 0xffff {
			n++
		}
	}
	return n > limit
}

// FetchOffsets reads committed offsets of one group. One that is not known has none, which is no error.
func (c *Coordinator) FetchOffsets(r *FetchOffsetsRequest, done func(*FetchOffsetsResponse)) {
	t, g, err := c.open(r.Group)
	if err != nil {
		done(&FetchOffsetsResponse{Err: err})
		return
	}
	defer t.end()
	response := &FetchOffsetsResponse{}
	switch response.Err = g.core.CheckFetch(r, t.env(g)); {
	case response.Err != nil:
	case r.All:
		response.Topics = t.fetchAll(g)
	default:
		response.Topics = g.fetch(r.Topics)
	}
	t.settle(g)
	t.out = append(t.out, func() { done(response) })
}

func (g *group) fetch(topics []FetchTopic) []FetchedTopic {
	all := make([]FetchedTopic, len(topics))
	for i, topic := range topics {
		all[i] = FetchedTopic{Topic: topic.Topic, TopicID: topic.TopicID, Partitions: make([]FetchedOffset, len(topic.Partitions))}
		for n, p := range topic.Partitions {
			o := FetchedOffset{Partition: p, Offset: -1, LeaderEpoch: -1}
			if c, ok := g.offset(metadata.GroupPartition{Topic: topic.TopicID, Partition: p}); ok {
				o.Offset, o.LeaderEpoch, o.Metadata = c.Offset, c.LeaderEpoch, c.Metadata
			}
			all[i].Partitions[n] = o
		}
	}
	return all
}

// fetchAll is everything that the group has, by topic name and partition.
func (t *turn) fetchAll(g *group) []FetchedTopic {
	img := topics{t.c.img.Load()}
	byTopic := map[TopicID]*FetchedTopic{}
	for _, c := range g.offsets() {
		f := byTopic[c.Topic]
		if f == nil {
			name, _, ok := img.TopicName(c.Topic)
			if !ok {
				continue
			}
			f = &FetchedTopic{Topic: name, TopicID: c.Topic}
			byTopic[c.Topic] = f
		}
		f.Partitions = append(f.Partitions, FetchedOffset{c.Partition, c.Offset, c.LeaderEpoch, c.Metadata})
	}
	all := make([]FetchedTopic, 0, len(byTopic))
	for _, f := range byTopic {
		slices.SortFunc(f.Partitions, func(a, b FetchedOffset) int { return cmp.Compare(a.Partition, b.Partition) })
		all = append(all, *f)
	}
	slices.SortFunc(all, func(a, b FetchedTopic) int { return strings.Compare(a.Topic, b.Topic) })
	return all
}

// DeleteOffsets forgets committed offsets, but not those of topics that a member reads.
func (c *Coordinator) DeleteOffsets(r *DeleteOffsetsRequest, done func(*DeleteOffsetsResponse)) {
	w := waits(done, func(err error) *DeleteOffsetsResponse { return &DeleteOffsetsResponse{Err: err} })
	t, g, err := c.open(r.Group)
	if err != nil {
		w(nil, err)
		return
	}
	defer t.end()
	defer t.settle(g)
	if !g.known() {
		t.answer(g, w, &DeleteOffsetsResponse{Err: ErrGroupNotFound})
		return
	}
	response := &DeleteOffsetsResponse{Partitions: make([][]error, len(r.Topics))}
	var drop []metadata.GroupPartition
	for i, topic := range r.Topics {
		response.Partitions[i] = make([]error, len(topic.Partitions))
		subscribed, known := g.core.Subscribed(topic.Topic)
		if !known {
			t.answer(g, w, &DeleteOffsetsResponse{Err: ErrNonEmpty})
			return
		}
		for n, p := range topic.Partitions {
			switch {
			case topic.TopicID == TopicID{}:
				response.Partitions[i][n] = ErrUnknownTopic
			case subscribed:
				response.Partitions[i][n] = ErrSubscribedTopic
			default:
				drop = append(drop, metadata.GroupPartition{Topic: topic.TopicID, Partition: p})
			}
		}
	}
	if _, known := g.core.Subscribed(""); !known {
		t.answer(g, w, &DeleteOffsetsResponse{Err: ErrNonEmpty})
		return
	}
	t.forgetOffsets(g, drop)
	t.answer(g, w, response)
}

// forgetOffsets asks for the removal of offsets.
func (t *turn) forgetOffsets(g *group, drop []metadata.GroupPartition) {
	for part := range slices.Chunk(drop, maxStored/offsetCost) {
		b := t.forming(g, len(part)*offsetCost)
		if b.dropped == nil {
			b.dropped = make(map[metadata.GroupPartition]bool, len(part))
		}
		for _, p := range part {
			b.dropped[p] = true
			delete(b.offsets, p)
		}
	}
}

package group

import (
	"iter"
	"slices"
	"strings"

	"github.com/keeplog/keeplog/metadata"
)

// DeleteGroup removes a group that has no members, with its offsets. One that cannot be read is removed, too: nobody is served there.
func (c *Coordinator) DeleteGroup(name string, done func(error)) {
	w := func(_ any, err error) { done(err) }
	t, g, err := c.openAny(name)
	if err != nil {
		done(err)
		return
	}
	defer t.end()
	defer t.settle(g)
	switch {
	case !g.known():
		err = ErrGroupNotFound
	case !g.core.Vacant():
		err = ErrNonEmpty
	default:
		t.removeGroup(g)
	}
	if len(g.batches) == 0 {
		t.fail(w, err)
		return
	}
	t.answer(g, func(_ any, failed error) {
		if failed != nil {
			err = failed
		}
		done(err)
	}, nil)
}

// removeGroup asks for the removal of everything that is stored of a group. It begins anew.
func (t *turn) removeGroup(g *group) {
	b := t.forming(g, entryCost)
	b.gone, b.entries, b.offsets, b.dropped = true, nil, nil, nil
	g.core, g.broken = newClassic(g.name), false
}

// ListGroups lists the groups of this broker. The list would not be whole while one of its shards is being loaded (ErrLoading), and past its
// lease, when they may be another's (ErrNotAvailable).
func (c *Coordinator) ListGroups(f Filter) *ListGroupsResponse {
	response := &ListGroupsResponse{}
	for i := range c.shards {
		t := c.shards[i].begin()
		switch err := t.serving(); {
		case err == nil:
			response.Groups = t.list(response.Groups, f)
		case t.epoch == 0: // another's
		case err == ErrLoading: //nolint:errorlint // ours, never wrapped
			response.Err = err
		default:
			response.Err = ErrNotAvailable
		}
		t.end()
	}
	if response.Err != nil {
		response.Groups = nil
	}
	return response
}

func (t *turn) list(all []Overview, f Filter) []Overview {
	add := func(o Overview) {
		if f.matches(o) {
			all = append(all, o)
		}
	}
	for _, g := range t.groups {
		if g.known() {
			add(g.core.Overview())
		}
	}
	for _, name := range t.c.o.Tables.Groups(t.number) {
		if t.groups[name] == nil {
			add(Overview{Group: name, State: classicEmpty.String(), Type: Classic})
		}
	}
	return all
}

func (f Filter) matches(o Overview) bool {
	in := func(list []string, s string) bool {
		return len(list) == 0 || slices.ContainsFunc(list, func(l string) bool { return strings.EqualFold(l, s) })
	}
	return in(f.States, o.State) && in(f.Types, o.Type.String())
}

// expire lets offsets go whose time is over, and groups that have nothing left. It is the shard's alarm.
func (s *shard) expire() {
	t := s.begin()
	defer t.end()
	if !t.loaded {
		return
	}
	t.c.timers.set(&s.expiry, t.now.Add(t.c.o.ExpiryInterval()))
	if t.serving() != nil {
		return
	}
	names := t.c.o.Tables.Groups(s.number)
	for name := range t.groups {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		g := t.group(name)
		// A group that is being written to is looked at the next time.
		if len(g.batches) == 0 && g.overlay.empty() && !g.broken {
			t.expireGroup(g)
		}
		t.settle(g)
	}
}

func (t *turn) expireGroup(g *group) {
	env := t.env(g)
	rule := g.core.Retains(env)
	if rule.Never {
		return
	}
	var over []metadata.GroupPartition
	kept := false
	for _, o := range g.offsets() {
		if rule.over(o, env) {
			over = append(over, o.GroupPartition)
		} else {
			kept = true
		}
	}
	switch {
	case !kept && g.core.Vacant() && g.known() && !expects(g.core):
		t.removeGroup(g)
	case len(over) > 0:
		t.forgetOffsets(g, over)
	}
}

// expects says that ids were given away that may still come back.
func expects(core Core) bool {
	c, ok := core.(*classic)
	return ok && len(c.pending) > 0
}

// over says whether an offset's time has come.
func (r Retention) over(o metadata.OffsetCommit, env Env) bool {
	if name, _, ok := env.Topics.TopicName(o.Topic); ok && r.Keeps != nil && r.Keeps(name) {
		return false
	}
	now := env.Now.UnixMilli()
	if o.Expires >= 0 {
		return now >= o.Expires
	}
	since := o.Committed
	if !r.Since.IsZero() {
		since = r.Since.UnixMilli()
	}
	return now-since >= env.Settings.OffsetRetention.Milliseconds()
}

// topics shows a core the image.
type topics struct{ img *metadata.Image }

func (t topics) Topic(name string) (TopicID, int, bool) {
	if topic, ok := t.img.TopicByName(name); ok {
		return topic.ID, len(topic.Partitions), true
	}
	return TopicID{}, 0, false
}

func (t topics) TopicName(id TopicID) (string, int, bool) {
	if topic, ok := t.img.TopicByID(id); ok {
		return topic.Name, len(topic.Partitions), true
	}
	return "", 0, false
}

func (t topics) Names() iter.Seq[string] {
	return func(yield func(string) bool) {
		for topic := range t.img.Topics() {
			if !yield(topic.Name) {
				return
			}
		}
	}
}

func (t topics) Racks(id TopicID, partition int32) []string {
	topic, ok := t.img.TopicByID(id)
	if !ok || partition < 0 || int(partition) >= len(topic.Partitions) {
		return nil
	}
	var racks []string
	for _, b := range topic.Partitions[partition].Replicas {
		if broker, ok := t.img.Broker(b); ok && broker.Rack != "" {
			racks = append(racks, broker.Rack)
		}
	}
	return racks
}

// Index leaves out the entries of the log that commit offsets or change groups: most of them do.
func (t topics) Index() uint64 { return t.img.Changed() }

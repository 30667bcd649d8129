package metadata

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Delta says what differs between two images. The order of its lists is the same on every node.
type Delta struct {
	// From and To are the indexes of the two images.
	From, To uint64
	// Cluster is true when the cluster id, a member or a feature changed.
	Cluster bool
	// Topics has deleted topics first, then the others, each part by name and id. A topic that was deleted and made again
	// is there twice, with two ids.
	Topics []TopicChange
	// Brokers is sorted by id.
	Brokers []BrokerChange
	// Configs is sorted by kind and name. The settings of a deleted topic are among them.
	Configs []ConfigChange
	// Shards is sorted by number.
	Shards []ShardChange
}

// ShardChange is who answered for a shard of groups before and after.
type ShardChange struct {
	Shard         int32
	Before, After Shard
}

// TopicChange is a topic before and after; nil where it does not exist.
type TopicChange struct {
	Before, After *Topic
}

// BrokerChange is a broker before and after; nil where it is not registered.
type BrokerChange struct {
	Before, After *Broker
}

// ConfigChange is the settings of a resource before and after; nil where it has none.
type ConfigChange struct {
	Resource      Resource
	Before, After map[string]string
}

// Empty says that nothing changed.
func (d *Delta) Empty() bool {
	return !d.Cluster && len(d.Topics) == 0 && len(d.Brokers) == 0 && len(d.Configs) == 0 && len(d.Shards) == 0
}

// Topic is the topic's newest state.
func (c TopicChange) Topic() *Topic {
	if c.After != nil {
		return c.After
	}
	return c.Before
}

// Partitions lists the partitions that are new or changed, or all of a deleted topic.
func (c TopicChange) Partitions() []int32 {
	t := c.Topic()
	var changed []int32
	for i, p := range t.Partitions {
		same := c.Before != nil && c.After != nil && i < len(c.Before.Partitions) && samePartition(c.Before.Partitions[i], p)
		if !same {
			changed = append(changed, int32(i))
		}
	}
	return changed
}

func (d *draft) delta() Delta {
	delta := Delta{From: d.from, To: d.img.index, Cluster: d.cluster || !sameMembers(d.before, d.img)}
	for id, before := range d.topics {
		if after, _ := d.img.ids.get(id); !sameTopic(before, after) {
			delta.Topics = append(delta.Topics, TopicChange{before, after})
		}
	}
	for id, before := range d.brokers {
		if after, _ := d.img.brokers.get(id); !sameBroker(before, after) {
			delta.Brokers = append(delta.Brokers, BrokerChange{before, after})
		}
	}
	for res, before := range d.configs {
		if after, _ := d.img.configs.get(res); !maps.Equal(before, after) {
			delta.Configs = append(delta.Configs, ConfigChange{res, before, after})
		}
	}
	if d.before.shards != d.img.shards {
		for i := range int32(Shards) {
			if before, after := d.before.Shard(i), d.img.Shard(i); before != after {
				delta.Shards = append(delta.Shards, ShardChange{i, before, after})
			}
		}
	}
	delta.sort()
	return delta
}

// Diff compares two images that need not be neighbours, as after a snapshot was installed.
func Diff(from, to *Image) Delta {
	d := newDraft(to, nil)
	d.from, d.before = from.index, from
	d.cluster = from.clusterID != to.clusterID || !slices.Equal(from.voters, to.voters) || !sameMembers(from, to) ||
		!maps.Equal(maps.Collect(from.Features()), maps.Collect(to.Features()))
	for id, t := range from.ids.all() {
		if now, ok := to.ids.get(id); !ok || !sameTopic(t, now) {
			d.topics[id] = t
		}
	}
	for id := range to.ids.all() {
		if _, ok := from.ids.get(id); !ok {
			d.topics[id] = nil
		}
	}
	for id, b := range from.brokers.all() {
		if now, ok := to.brokers.get(id); !ok || !sameBroker(b, now) {
			d.brokers[id] = b
		}
	}
	for id := range to.brokers.all() {
		if _, ok := from.brokers.get(id); !ok {
			d.brokers[id] = nil
		}
	}
	for res, c := range from.configs.all() {
		d.configs[res] = c
	}
	for res := range to.configs.all() {
		if _, ok := from.configs.get(res); !ok {
			d.configs[res] = nil
		}
	}
	return d.delta()
}

func sameTopic(a, b *Topic) bool {
	return a == b || a != nil && b != nil && a.Name == b.Name && slices.EqualFunc(a.Partitions, b.Partitions, samePartition)
}

func samePartition(a, b *Partition) bool {
	return a == b || a.PartitionEpoch == b.PartitionEpoch && a.LeaderEpoch == b.LeaderEpoch && a.Leader == b.Leader &&
		a.Unclean == b.Unclean && a.UncleanEpoch == b.UncleanEpoch && slices.Equal(a.Replicas, b.Replicas) && slices.Equal(a.ISR, b.ISR) &&
		slices.Equal(a.ELR, b.ELR) && slices.Equal(a.Adding, b.Adding) && slices.Equal(a.Removing, b.Removing) &&
		slices.Equal(a.Directories, b.Directories)
}

func sameBroker(a, b *Broker) bool {
	return a == b || a != nil && b != nil && a.Epoch == b.Epoch && a.Fenced == b.Fenced && a.ShuttingDown == b.ShuttingDown
}

func (d *Delta) sort() {
	slices.SortFunc(d.Topics, func(a, b TopicChange) int {
		x, y := a.Topic(), b.Topic()
		gone := func(c TopicChange) int {
			if c.After == nil {
				return 0
			}
			return 1
		}
		return cmp.Or(gone(a)-gone(b), strings.Compare(x.Name, y.Name), compareIDs(x.ID, y.ID))
	})
	slices.SortFunc(d.Brokers, func(a, b BrokerChange) int { return cmp.Compare(a.id(), b.id()) })
	slices.SortFunc(d.Configs, func(a, b ConfigChange) int { return compareResources(a.Resource, b.Resource) })
}

func (c BrokerChange) id() BrokerID {
	if c.After != nil {
		return c.After.ID
	}
	return c.Before.ID
}

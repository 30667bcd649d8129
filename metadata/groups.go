package metadata

import (
	"unicode/utf16"

	"github.com/keeplog/keeplog/internal/invariant"
)

// Shards is the number of shards of groups, as many as Kafka's topic of offsets has partitions.
const Shards = 50

// ShardOf is the shard of a group, computed as Kafka does: the absolute value of Java's hash of the name, modulo the number of shards.
func ShardOf(group string) int32 {
	var h int32
	for _, r := range group {
		if r > 0xffff {
			high, low := utf16.EncodeRune(r)
			h = 31*(31*h+high) + low
		} else {
			h = 31*h + r
		}
	}
	switch {
	case h == -1<<31:
		return 0
	case h < 0:
		h = -h
	}
	return h % Shards
}

// Shard says who answers for the groups of a shard.
type Shard struct {
	// Owner is the broker that does, NoLeader for none.
	Owner BrokerID
	// Epoch is the log index of the record that gave the shard to its owner or took it away, 0 at first. What is proposed for a group names it,
	// and is refused when it is not the current one.
	Epoch int64
}

// ShardAssigned gives a shard to a broker, or takes it away from everybody (Owner is NoLeader). Refused when Epoch is not the shard's
// current one, or the owner is not registered. Result: the new epoch.
type ShardAssigned struct {
	Shard int32
	Epoch int64
	Owner BrokerID
}

// GroupPartition names a partition of a topic.
type GroupPartition struct {
	Topic     TopicID
	Partition int32
}

// OffsetCommit is where a group is in a partition.
type OffsetCommit struct {
	GroupPartition
	Offset int64
	// LeaderEpoch is that of the last record that was read, −1 where it is not known.
	LeaderEpoch int32
	// Metadata is the client's text.
	Metadata string
	// Committed is when it was committed, Expires when it ends, both in ms since 1970. Expires is −1 where the server's rule says when.
	Committed, Expires int64
}

// OffsetsCommitted commits offsets of a group. Those of partitions that are not there are dropped. As the other records of groups it is
// refused unless (Shard, ShardEpoch) is the current one, the shard has an owner, and it is that of the group.
type OffsetsCommitted struct {
	Shard      int32
	ShardEpoch int64
	Group      string
	Offsets    []OffsetCommit
}

// OffsetsRemoved takes offsets of a group away.
type OffsetsRemoved struct {
	Shard      int32
	ShardEpoch int64
	Group      string
	Partitions []GroupPartition
}

// GroupEntry is a key of a group's small map; the value is its coordinator's business. In a record a nil Value takes the key away.
type GroupEntry struct {
	Key   string
	Value []byte
}

// GroupChanged sets and removes keys of a group's map.
type GroupChanged struct {
	Shard      int32
	ShardEpoch int64
	Group      string
	Entries    []GroupEntry
}

// GroupRemoved takes a group away, its keys and its offsets.
type GroupRemoved struct {
	Shard      int32
	ShardEpoch int64
	Group      string
}

// Kind is the number of the record's kind.
func (ShardAssigned) Kind() Kind { return KindShardAssigned }

// Kind is the number of the record's kind.
func (OffsetsCommitted) Kind() Kind { return KindOffsetsCommitted }

// Kind is the number of the record's kind.
func (OffsetsRemoved) Kind() Kind { return KindOffsetsRemoved }

// Kind is the number of the record's kind.
func (GroupChanged) Kind() Kind { return KindGroupChanged }

// Kind is the number of the record's kind.
func (GroupRemoved) Kind() Kind { return KindGroupRemoved }

func (s ShardAssigned) appendBody(w []byte) []byte {
	w = appendInt(append(w, recordVersion), int64(s.Shard))
	return appendInt(appendInt(w, s.Epoch), int64(s.Owner))
}

func appendShard(w []byte, shard int32, epoch int64, group string) []byte {
	w = appendInt(append(w, recordVersion), int64(shard))
	return appendText(appendInt(w, epoch), group)
}

func (o OffsetsCommitted) appendBody(w []byte) []byte {
	w = appendUint(appendShard(w, o.Shard, o.ShardEpoch, o.Group), uint64(len(o.Offsets)))
	for i := range o.Offsets {
		w = appendCommit(w, &o.Offsets[i])
	}
	return w
}

func (o OffsetsRemoved) appendBody(w []byte) []byte {
	w = appendUint(appendShard(w, o.Shard, o.ShardEpoch, o.Group), uint64(len(o.Partitions)))
	for _, p := range o.Partitions {
		w = appendInt(append(w, p.Topic[:]...), int64(p.Partition))
	}
	return w
}

func (g GroupChanged) appendBody(w []byte) []byte {
	w = appendUint(appendShard(w, g.Shard, g.ShardEpoch, g.Group), uint64(len(g.Entries)))
	for _, e := range g.Entries {
		w = appendEntry(w, e)
	}
	return w
}

func (g GroupRemoved) appendBody(w []byte) []byte {
	return appendShard(w, g.Shard, g.ShardEpoch, g.Group)
}

func appendCommit(w []byte, c *OffsetCommit) []byte {
	w = appendInt(append(w, c.Topic[:]...), int64(c.Partition))
	w = appendInt(appendInt(w, c.Offset), int64(c.LeaderEpoch))
	w = appendText(w, c.Metadata)
	return appendInt(appendInt(w, c.Committed), c.Expires)
}

// minCommit, minPartition and minEntry are the fewest bytes that these take.
const (
	minPartition = 16 + 1
	minCommit    = minPartition + 5
	minEntry     = 2
)

func readCommits(r *reader) []OffsetCommit {
	n := r.count(minCommit)
	if n == 0 {
		return nil
	}
	all := make([]OffsetCommit, n)
	for i := range all {
		all[i] = OffsetCommit{
			GroupPartition: readGroupPartition(r), Offset: r.int(), LeaderEpoch: r.int32(), Metadata: r.text(), Committed: r.int(), Expires: r.int(),
		}
	}
	return all
}

func readGroupPartition(r *reader) GroupPartition { return GroupPartition{r.id(), r.int32()} }

func readGroupPartitions(r *reader) []GroupPartition {
	n := r.count(minPartition)
	if n == 0 {
		return nil
	}
	all := make([]GroupPartition, n)
	for i := range all {
		all[i] = readGroupPartition(r)
	}
	return all
}

func appendEntry(w []byte, e GroupEntry) []byte {
	w = appendBool(appendText(w, e.Key), e.Value != nil)
	if e.Value != nil {
		w = append(appendUint(w, uint64(len(e.Value))), e.Value...)
	}
	return w
}

func readEntries(r *reader) []GroupEntry {
	n := r.count(minEntry)
	if n == 0 {
		return nil
	}
	all := make([]GroupEntry, n)
	for i := range all {
		all[i].Key = r.text()
		if r.bool() {
			all[i].Value = append([]byte{}, r.take(r.count(1))...)
		}
	}
	return all
}

// shardChange is a change of the shards' owners that an entry makes.
func (d *draft) setShard(i int32, owner BrokerID) {
	var next [Shards]Shard
	for n := range next {
		next[n] = d.img.Shard(int32(n))
	}
	next[i] = Shard{owner, int64(d.img.index)}
	d.img.shards = &next
}

// releaseShards takes a broker's shards away.
func (d *draft) releaseShards(id BrokerID) {
	for i := range int32(Shards) {
		if d.img.Shard(i).Owner == id {
			d.setShard(i, NoLeader)
		}
	}
}

func (d *draft) shardAssigned(r ShardAssigned) Result {
	switch {
	case r.Shard < 0 || r.Shard >= Shards || r.Owner < NoLeader:
		return refuse(RefusedInvalid)
	case d.img.Shard(r.Shard).Epoch != r.Epoch:
		return Result{Refusal: RefusedShardEpoch, Value: d.img.Shard(r.Shard).Epoch}
	}
	if _, ok := d.img.brokers.get(r.Owner); !ok && r.Owner != NoLeader {
		return refuse(RefusedUnknownBroker)
	}
	d.setShard(r.Shard, r.Owner)
	return Result{Value: int64(d.img.index)}
}

// owned says that who proposes for a group may: (shard, epoch) is the current one, somebody has it, and it is the group's.
func (d *draft) owned(shard int32, epoch int64, group string) bool {
	if shard < 0 || shard >= Shards || ShardOf(group) != shard {
		return false
	}
	s := d.img.Shard(shard)
	return s.Owner != NoLeader && (s.Epoch == epoch || invariant.Seeded(invariant.OldShardAccepted))
}

// The rules of groups depend on the image alone, so that results are the same where no tables are kept.

func (d *draft) offsetsCommitted(r OffsetsCommitted) Result {
	if !d.owned(r.Shard, r.ShardEpoch, r.Group) {
		return refuse(RefusedShardEpoch)
	}
	if d.tables != nil {
		d.tables.commit(r.Group, r.Offsets, func(p GroupPartition) bool {
			_, ok := d.img.Partition(p.Topic, p.Partition)
			return ok
		})
	}
	return Result{}
}

// inTables changes a group in the tables, if there are any, for the owner of its shard.
func (d *draft) inTables(shard int32, epoch int64, group string, change func(*Tables)) Result {
	if !d.owned(shard, epoch, group) {
		return refuse(RefusedShardEpoch)
	}
	if d.tables != nil {
		change(d.tables)
	}
	return Result{}
}

func (d *draft) offsetsRemoved(r OffsetsRemoved) Result {
	return d.inTables(r.Shard, r.ShardEpoch, r.Group, func(t *Tables) { t.removeOffsets(r.Group, r.Partitions) })
}

func (d *draft) groupChanged(r GroupChanged) Result {
	return d.inTables(r.Shard, r.ShardEpoch, r.Group, func(t *Tables) { t.change(r.Group, r.Entries) })
}

func (d *draft) groupRemoved(r GroupRemoved) Result {
	return d.inTables(r.Shard, r.ShardEpoch, r.Group, func(t *Tables) { t.remove(r.Group) })
}

package metadata

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/keeplog/keeplog/internal/invariant"
)

// Refusal says why a record changed nothing. The numbers are in snapshots and never reused.
type Refusal uint8

// The refusals.
const (
	Accepted              Refusal = 0
	RefusedSession        Refusal = 1
	RefusedTerm           Refusal = 2
	RefusedKind           Refusal = 3
	RefusedExists         Refusal = 4
	RefusedUnknownTopic   Refusal = 5
	RefusedPartition      Refusal = 6
	RefusedPartitionEpoch Refusal = 7
	RefusedBrokerEpoch    Refusal = 8
	RefusedUnknownBroker  Refusal = 9
	RefusedStarted        Refusal = 10
	RefusedExhausted      Refusal = 11
	RefusedInvalid        Refusal = 12
	RefusedMember         Refusal = 13
	RefusedShardEpoch     Refusal = 14
)

// The errors of refused records.
var (
	// ErrStaleSession: the command comes from an older incarnation of its broker, or repeats one before the last.
	ErrStaleSession = errors.New("metadata: proposed by an older session")
	// ErrStaleTerm: the records were planned by a leader of another term.
	ErrStaleTerm = errors.New("metadata: planned in another term")
	// ErrUnknownKind: the record's kind is not known here.
	ErrUnknownKind = errors.New("metadata: record of an unknown kind")
	// ErrExists: a topic of that name or id is there.
	ErrExists = errors.New("metadata: topic exists")
	// ErrUnknownTopic: no topic of that id or name.
	ErrUnknownTopic = errors.New("metadata: unknown topic")
	// ErrUnknownPartition: the topic has no such partition, or a record grows it from another number of partitions.
	ErrUnknownPartition = errors.New("metadata: unknown partition")
	// ErrStalePartitionEpoch: the partition has changed since.
	ErrStalePartitionEpoch = errors.New("metadata: partition epoch is not the current one")
	// ErrStaleBrokerEpoch: the broker has registered again since.
	ErrStaleBrokerEpoch = errors.New("metadata: broker epoch is not the current one")
	// ErrUnknownBroker: no broker of that id is registered.
	ErrUnknownBroker = errors.New("metadata: unknown broker")
	// ErrStarted: the cluster has its id.
	ErrStarted = errors.New("metadata: the cluster has started before")
	// ErrExhausted: there are no more ids of this kind.
	ErrExhausted = errors.New("metadata: ids are used up")
	// ErrStaleShard: the shard has another owner by now, or the group is of another shard.
	ErrStaleShard = errors.New("metadata: shard epoch is not the current one")
	// ErrInvalidRecord: the record makes no sense.
	ErrInvalidRecord = errors.New("metadata: invalid record")
)

var refusals = [...]error{
	nil, ErrStaleSession, ErrStaleTerm, ErrUnknownKind, ErrExists, ErrUnknownTopic, ErrUnknownPartition, ErrStalePartitionEpoch,
	ErrStaleBrokerEpoch, ErrUnknownBroker, ErrStarted, ErrExhausted, ErrInvalidRecord, ErrNoMember, ErrStaleShard,
}

// Err is the refusal as an error, nil when the record was accepted.
func (r Result) Err() error {
	if int(r.Refusal) < len(refusals) {
		return refusals[r.Refusal]
	}
	return fmt.Errorf("%w: refusal %d", ErrInvalidRecord, r.Refusal)
}

// Entry is one committed entry of the log.
type Entry struct {
	Index, Term uint64
	// Payload is what AppendCommand wrote. It is not kept.
	Payload []byte
}

// Outcome is what became of an entry.
type Outcome struct {
	// Index of the entry that was applied; of the first one when Duplicate.
	Index uint64
	// Duplicate says that the command had been applied before; Results are those of that time.
	Duplicate bool
	// Results has a result for each record of each group.
	Results [][]Result
	// Ignored are the kinds of the records that this version does not know: worth an alarm.
	Ignored []Kind
	// Checkpoints are those that the command carried.
	Checkpoints []ChainCheckpoint
}

// Apply makes the next image from a committed entry. It is deterministic and knows every input: records that do not fit are
// refused, unknown kinds ignored. An error (ErrCorrupt, ErrNewerVersion) means that this node cannot go on: its log is
// damaged, or a newer version wrote it. What the entry says of groups is written into the tables before Apply returns; nil keeps none
// of it, and gives the same image and outcome.
func Apply(img *Image, tables *Tables, e Entry) (*Image, Delta, Outcome, error) {
	if e.Index <= img.index {
		panic(fmt.Sprintf("metadata: entry %d applied at %d", e.Index, img.index))
	}
	c, err := DecodeCommand(e.Payload)
	if err != nil {
		return nil, Delta{}, Outcome{}, fmt.Errorf("entry %d, term %d: %w", e.Index, e.Term, err)
	}
	d := newDraft(img, tables)
	d.img.index, d.img.term = e.Index, e.Term
	d.img.chain = nextChain(img.chain, e)
	out, err := d.command(c)
	if err != nil {
		return nil, Delta{}, Outcome{}, fmt.Errorf("entry %d, term %d: %w", e.Index, e.Term, err)
	}
	delta := d.delta()
	if !delta.Empty() {
		d.img.changed = e.Index
	}
	return d.img, delta, out, nil
}

func nextChain(prev [32]byte, e Entry) [32]byte {
	h := sha256.New()
	h.Write(prev[:])
	var head [16]byte
	binary.BigEndian.PutUint64(head[:], e.Index)
	binary.BigEndian.PutUint64(head[8:], e.Term)
	h.Write(head[:])
	h.Write(e.Payload)
	var next [32]byte
	h.Sum(next[:0])
	return next
}

// draft is an image that is being made: its own until it is handed out. What the map of a kind holds is how the thing was
// before, nil when it was not there.
type draft struct {
	img, before *Image
	tables      *Tables
	topics      map[TopicID]*Topic
	brokers     map[BrokerID]*Broker
	configs     map[Resource]map[string]string
	cluster     bool
	from        uint64
	ignored     []Kind
	checkpoints []ChainCheckpoint
}

func newDraft(img *Image, tables *Tables) *draft {
	next := *img
	return &draft{
		img: &next, before: img, from: img.index, tables: tables,
		topics: map[TopicID]*Topic{}, brokers: map[BrokerID]*Broker{}, configs: map[Resource]map[string]string{},
	}
}

func (d *draft) command(c *Command) (Outcome, error) {
	s := c.Session
	key := laneKey{s.Broker, s.Lane}
	last, known := d.img.lanes.get(key)
	switch {
	case s.Epoch == NoEpoch || !known || invariant.Seeded(invariant.LaneRepeats):
	case s.Epoch == last.epoch && s.Sequence == last.sequence:
		results, err := readResults(last.results)
		return Outcome{Index: last.index, Duplicate: true, Results: results}, err
	case s.Epoch < last.epoch || s.Epoch == last.epoch && s.Sequence < last.sequence:
		return Outcome{Index: d.img.index, Results: refuseAll(c.Groups, RefusedSession)}, nil
	}
	results := make([][]Result, len(c.Groups))
	all := make([]Result, c.records())
	for i := range c.Groups {
		n := len(c.Groups[i].Records)
		results[i], all = all[:n:n], all[n:]
		d.group(&c.Groups[i], results[i])
	}
	if s.Epoch != NoEpoch {
		state := &laneState{epoch: s.Epoch, sequence: s.Sequence, index: d.img.index, results: appendResults(nil, results)}
		d.img.lanes = d.img.lanes.put(key, state)
	}
	return Outcome{Index: d.img.index, Results: results, Ignored: d.ignored, Checkpoints: d.checkpoints}, nil
}

func refuseAll(groups []Group, why Refusal) [][]Result {
	results := make([][]Result, len(groups))
	for i := range groups {
		results[i] = slices.Repeat([]Result{{Refusal: why}}, len(groups[i].Records))
	}
	return results
}

// records counts those of all groups.
func (c *Command) records() (n int) {
	for i := range c.Groups {
		n += len(c.Groups[i].Records)
	}
	return n
}

func (d *draft) group(g *Group, results []Result) {
	for i, rec := range g.Records {
		if g.Term != 0 && g.Term != d.img.term {
			results[i] = Result{Refusal: RefusedTerm}
		} else {
			results[i] = d.record(rec)
		}
	}
}

func (d *draft) record(rec Record) Result {
	switch r := rec.(type) {
	case ClusterStarted:
		return d.clusterStarted(r)
	case FeatureLevel:
		return d.featureLevel(r)
	case BrokerRegistered:
		return d.brokerRegistered(r)
	case BrokerFenced:
		return d.brokerFenced(r)
	case BrokerRemoved:
		return d.brokerRemoved(r)
	case TopicCreated:
		return d.topicCreated(r)
	case TopicDeleted:
		return d.topicDeleted(r)
	case PartitionsAdded:
		return d.partitionsAdded(r)
	case PartitionChanged:
		return d.partitionChanged(r)
	case ConfigChanged:
		return d.configChanged(r)
	case ProducerIDsGranted:
		return d.producerIDsGranted(r)
	case MemberChanged:
		return d.memberChanged(r)
	case ChainCheckpoint:
		d.checkpoints = append(d.checkpoints, r)
		return Result{}
	}
	return d.groupRecord(rec)
}

// groupRecord is record for those of groups.
func (d *draft) groupRecord(rec Record) Result {
	switch r := rec.(type) {
	case ShardAssigned:
		return d.shardAssigned(r)
	case OffsetsCommitted:
		return d.offsetsCommitted(r)
	case OffsetsRemoved:
		return d.offsetsRemoved(r)
	case GroupChanged:
		return d.groupChanged(r)
	case GroupRemoved:
		return d.groupRemoved(r)
	}
	d.ignored = append(d.ignored, rec.Kind())
	d.img.ignore(rec.Kind())
	return Result{Refusal: RefusedKind}
}

func refuse(why Refusal) Result { return Result{Refusal: why} }

func (d *draft) clusterStarted(r ClusterStarted) Result {
	switch {
	case d.img.clusterID != "":
		return refuse(RefusedStarted)
	case r.ClusterID == "":
		return refuse(RefusedInvalid)
	}
	d.img.clusterID, d.img.voters, d.cluster = r.ClusterID, r.Voters, true
	return Result{}
}

func (d *draft) featureLevel(r FeatureLevel) Result {
	if r.Name == "" || r.Level < 0 {
		return refuse(RefusedInvalid)
	}
	d.cluster = true
	if r.Level == 0 {
		d.img.features = d.img.features.without(r.Name)
	} else {
		d.img.features = d.img.features.put(r.Name, r.Level)
	}
	return Result{}
}

// setBroker puts b in, or takes id out when b is nil.
func (d *draft) setBroker(id BrokerID, b *Broker) {
	if _, seen := d.brokers[id]; !seen {
		d.brokers[id], _ = d.img.brokers.get(id)
	}
	if b == nil {
		d.img.brokers = d.img.brokers.without(id)
	} else {
		d.img.brokers = d.img.brokers.put(id, b)
	}
}

func (d *draft) brokerRegistered(r BrokerRegistered) Result {
	if r.ID < 0 {
		return refuse(RefusedInvalid)
	}
	if b, ok := d.img.brokers.get(r.ID); ok && b.Incarnation == r.Incarnation {
		return Result{Value: b.Epoch}
	}
	epoch := int64(d.img.index)
	d.setBroker(r.ID, &Broker{
		ID: r.ID, Epoch: epoch, Incarnation: r.Incarnation, Listeners: r.Listeners, Rack: r.Rack, Directories: r.Directories,
		Fenced: true,
	})
	for _, t := range d.img.ids.all() {
		for i, p := range t.Partitions {
			if p.Leader == r.ID && !invariant.Seeded(invariant.OldEpochResumed) {
				p := d.mutable(t.ID, i)
				p.LeaderEpoch++
				p.PartitionEpoch++
			}
		}
	}
	d.releaseShards(r.ID)
	return Result{Value: epoch}
}

func (d *draft) brokerFenced(r BrokerFenced) Result {
	b, why := d.brokerAt(r.ID, r.Epoch)
	if b == nil {
		return refuse(why)
	}
	if b.Fenced != r.Fenced || b.ShuttingDown != r.ShuttingDown {
		next := *b
		next.Fenced, next.ShuttingDown = r.Fenced, r.ShuttingDown
		d.setBroker(r.ID, &next)
	}
	return Result{}
}

func (d *draft) brokerAt(id BrokerID, epoch int64) (*Broker, Refusal) {
	b, ok := d.img.brokers.get(id)
	switch {
	case !ok:
		return nil, RefusedUnknownBroker
	case b.Epoch != epoch:
		return nil, RefusedBrokerEpoch
	}
	return b, Accepted
}

func (d *draft) brokerRemoved(r BrokerRemoved) Result {
	if b, why := d.brokerAt(r.ID, r.Epoch); b == nil {
		return refuse(why)
	}
	d.setBroker(r.ID, nil)
	d.releaseShards(r.ID)
	for _, lane := range []Lane{LaneMetadata, LaneOffsets} {
		d.img.lanes = d.img.lanes.without(laneKey{r.ID, lane})
	}
	return Result{}
}

// touch remembers how a topic was before.
func (d *draft) touch(id TopicID) {
	if _, seen := d.topics[id]; !seen {
		d.topics[id], _ = d.img.ids.get(id)
	}
}

func (d *draft) putTopic(t *Topic) {
	d.img.topics = d.img.topics.put(t.Name, t)
	d.img.ids = d.img.ids.put(t.ID, t)
}

// own gives a topic that belongs to the draft and may be changed. Partitions are still shared.
func (d *draft) own(id TopicID) *Topic {
	t, _ := d.img.ids.get(id)
	if before, seen := d.topics[id]; seen && before != t {
		return t
	}
	d.touch(id)
	t = &Topic{Name: t.Name, ID: t.ID, Partitions: slices.Clone(t.Partitions)}
	d.putTopic(t)
	return t
}

// mutable gives a fresh copy of a partition that the draft may change.
func (d *draft) mutable(id TopicID, partition int) *Partition {
	t := d.own(id)
	p := *t.Partitions[partition]
	t.Partitions[partition] = &p
	return &p
}

func (d *draft) topicCreated(r TopicCreated) Result {
	if r.Name == "" || r.ID.IsZero() || len(r.Partitions) == 0 {
		return refuse(RefusedInvalid)
	}
	_, named := d.img.topics.get(r.Name)
	_, known := d.img.ids.get(r.ID)
	if named || known {
		return refuse(RefusedExists)
	}
	d.touch(r.ID)
	d.putTopic(&Topic{Name: r.Name, ID: r.ID, Partitions: pointers(nil, r.Partitions)})
	d.img.partitions += len(r.Partitions)
	d.setConfigs(Resource{ResourceTopic, r.Name}, r.Configs)
	return Result{Value: int64(d.img.index)}
}

func pointers(to []*Partition, parts []Partition) []*Partition {
	to = slices.Grow(to, len(parts))
	for i := range parts {
		to = append(to, new(parts[i]))
	}
	return to
}

func (d *draft) topicDeleted(r TopicDeleted) Result {
	t, ok := d.img.ids.get(r.ID)
	if !ok {
		return refuse(RefusedUnknownTopic)
	}
	d.touch(r.ID)
	d.img.topics = d.img.topics.without(t.Name)
	d.img.ids = d.img.ids.without(t.ID)
	d.img.partitions -= len(t.Partitions)
	d.replaceConfigs(Resource{ResourceTopic, t.Name}, nil)
	if d.tables != nil {
		d.tables.dropTopic(t)
	}
	return Result{}
}

func (d *draft) partitionsAdded(r PartitionsAdded) Result {
	t, ok := d.img.ids.get(r.TopicID)
	switch {
	case !ok:
		return refuse(RefusedUnknownTopic)
	case int(r.First) != len(t.Partitions):
		return refuse(RefusedPartition)
	}
	t = d.own(r.TopicID)
	t.Partitions = pointers(t.Partitions, r.Partitions)
	d.img.partitions += len(r.Partitions)
	return Result{}
}

func (d *draft) partitionChanged(r PartitionChanged) Result {
	old, ok := d.img.Partition(r.TopicID, r.Partition)
	switch {
	case !ok:
		return refuse(RefusedPartition)
	case old.PartitionEpoch != r.PartitionEpoch:
		return Result{Refusal: RefusedPartitionEpoch, Value: int64(old.PartitionEpoch)}
	}
	p := d.mutable(r.TopicID, int(r.Partition))
	p.PartitionEpoch++
	if r.NewLeaderEpoch || r.Leader != nil && *r.Leader != p.Leader {
		p.LeaderEpoch++
	}
	if r.Leader != nil {
		p.Leader = *r.Leader
	}
	if r.ISR != nil {
		p.ISR = *r.ISR
	}
	if r.ELR != nil {
		p.ELR = *r.ELR
	}
	if a := r.Assignment; a != nil {
		p.Replicas, p.Adding, p.Removing, p.Directories = a.Replicas, a.Adding, a.Removing, a.Directories
	}
	if r.Unclean != nil {
		p.Unclean = *r.Unclean
		if p.Unclean {
			p.UncleanEpoch = p.LeaderEpoch
		}
	}
	return Result{Value: int64(p.PartitionEpoch)}
}

func (d *draft) configChanged(r ConfigChanged) Result {
	if r.Resource.Kind == ResourceTopic {
		if _, ok := d.img.topics.get(r.Resource.Name); !ok {
			return refuse(RefusedUnknownTopic)
		}
	}
	d.setConfigs(r.Resource, r.Settings)
	return Result{}
}

func (d *draft) setConfigs(res Resource, settings []Setting) {
	if len(settings) == 0 {
		return
	}
	old, _ := d.img.configs.get(res)
	next := maps.Clone(old)
	if next == nil {
		next = map[string]string{}
	}
	for _, s := range settings {
		if s.Value == nil {
			delete(next, s.Key)
		} else {
			next[s.Key] = *s.Value
		}
	}
	d.replaceConfigs(res, next)
}

func (d *draft) replaceConfigs(res Resource, next map[string]string) {
	old, had := d.img.configs.get(res)
	if !had && len(next) == 0 {
		return
	}
	if _, seen := d.configs[res]; !seen {
		d.configs[res] = old
	}
	if len(next) == 0 {
		d.img.configs = d.img.configs.without(res)
	} else {
		d.img.configs = d.img.configs.put(res, next)
	}
}

func (d *draft) producerIDsGranted(r ProducerIDsGranted) Result {
	if b, why := d.brokerAt(r.Broker, r.Epoch); b == nil {
		return refuse(why)
	}
	switch {
	case r.Count <= 0:
		return refuse(RefusedInvalid)
	case d.img.producerID > math.MaxInt64-int64(r.Count):
		return refuse(RefusedExhausted)
	}
	first := d.img.producerID
	d.img.producerID += int64(r.Count)
	return Result{Value: first}
}

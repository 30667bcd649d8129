package metadata

import (
	"cmp"
	"iter"
	"strings"
)

// Image is the state that all records up to one log index make. It never changes; what it returns must not be written to.
type Image struct {
	index, term uint64
	chain       [32]byte
	clusterID   string
	voters      []Voter
	features    tree[string, int16]
	topics      tree[string, *Topic]
	ids         tree[TopicID, *Topic]
	partitions  int
	brokers     tree[BrokerID, *Broker]
	configs     tree[Resource, map[string]string]
	producerID  int64
	lanes       tree[laneKey, *laneState]
	members     tree[BrokerID, *Member]
	// ignored counts the records of unknown kinds, ignoredKinds are those kinds, in order; none where an older version has counted.
	ignored      uint64
	ignoredKinds []Kind
	// shards is nil before the first one is assigned.
	shards *[Shards]Shard
	// changed is the index of the last entry of which a delta tells something.
	changed uint64
}

// Topic is one topic. Partitions[i] is partition i.
type Topic struct {
	Name       string
	ID         TopicID
	Partitions []*Partition
}

// ReplicationFactor is the number of replicas from which the topic's defaults follow: the most that a partition has, those
// that a reassignment is still bringing in not counted.
func (t *Topic) ReplicationFactor() int {
	n := 1
	for _, p := range t.Partitions {
		n = max(n, p.Settled())
	}
	return n
}

// Partition is what the cluster has agreed on about one partition.
type Partition struct {
	// Replicas are the assigned brokers, the preferred leader first. Adding and Removing are those that a reassignment brings
	// in and takes out; both are members of Replicas.
	Replicas, Adding, Removing []BrokerID
	// Directories names the data directory of each replica, in the order of Replicas; nil while unassigned.
	Directories []DirectoryID
	// ISR are the in-sync replicas; ELR (KIP-966) those that left it and have all that was committed.
	ISR, ELR []BrokerID
	// Leader is NoLeader where there is none. It may be a fenced broker: then nobody leads until that one is unfenced.
	Leader BrokerID
	// LeaderEpoch goes up with each change of leader or leader's incarnation; PartitionEpoch with every change.
	LeaderEpoch, PartitionEpoch int32
	// Unclean is true from an election outside ISR and ELR until the new leader has reported that it is done.
	Unclean bool
	// UncleanEpoch is the leader epoch of the newest election outside ISR and ELR, 0 for none. A replica whose last epoch is
	// older may have to cut its log below its high watermark, however long it was away; no other may.
	UncleanEpoch int32
}

// Settled is the number of replicas, those that a reassignment is still bringing in not counted. The least size of the in-sync
// set follows from it.
func (p *Partition) Settled() int { return len(p.Replicas) - len(p.Adding) }

// Voter is a member of the first quorum.
type Voter struct {
	ID        BrokerID
	Directory DirectoryID
}

// Endpoint is where a broker listens. Protocol is Kafka's number: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
type Endpoint struct {
	Name     string
	Host     string
	Port     uint16
	Protocol int16
}

// Broker is a registered broker, also while it is down.
type Broker struct {
	ID BrokerID
	// Epoch is the log index of the registration.
	Epoch int64
	// Incarnation is new at each start of the process.
	Incarnation [16]byte
	Listeners   []Endpoint
	// Rack is empty where none is set.
	Rack        string
	Directories []DirectoryID
	// Fenced is true from the registration until the broker is ready, and again when it is taken for dead.
	Fenced bool
	// ShuttingDown is true during a controlled shutdown.
	ShuttingDown bool
}

// Listener finds the endpoint of a listener by name.
func (b *Broker) Listener(name string) (Endpoint, bool) {
	for _, l := range b.Listeners {
		if strings.EqualFold(l.Name, name) {
			return l, true
		}
	}
	return Endpoint{}, false
}

// New is the image before the first record.
func New() *Image {
	return &Image{
		features: newTree[string, int16](strings.Compare),
		topics:   newTree[string, *Topic](strings.Compare),
		ids:      newTree[TopicID, *Topic](compareIDs),
		brokers:  newTree[BrokerID, *Broker](cmp.Compare[BrokerID]),
		configs:  newTree[Resource, map[string]string](compareResources),
		lanes:    newTree[laneKey, *laneState](compareLanes),
		members:  newTree[BrokerID, *Member](cmp.Compare[BrokerID]),
	}
}

// Index is the log index of the last command in the image, 0 before the first.
func (m *Image) Index() uint64 { return m.index }

// Changed is the index of the last command that changed anything of which a [Delta] tells; one that commits offsets does not. In an
// image that was read from a snapshot it is that image's index.
func (m *Image) Changed() uint64 { return m.changed }

// Shard says who answers for a shard of groups.
func (m *Image) Shard(i int32) Shard {
	if m.shards == nil {
		return Shard{Owner: NoLeader}
	}
	return m.shards[i]
}

// Term is the term of that command.
func (m *Image) Term() uint64 { return m.term }

// Chain is the running hash over index, term and payload of every command. Two nodes at one index have the same, or one of
// them is wrong.
func (m *Image) Chain() [32]byte { return m.chain }

// ClusterID is the cluster's id, empty before the first record.
func (m *Image) ClusterID() string { return m.clusterID }

// Voters are the members of the first quorum with their data directories.
func (m *Image) Voters() []Voter { return m.voters }

// Feature is the level of a feature, 0 when it is not set.
func (m *Image) Feature(name string) int16 {
	level, _ := m.features.get(name)
	return level
}

// Features goes through the feature levels by name.
func (m *Image) Features() iter.Seq2[string, int16] { return m.features.all() }

// TopicByName finds a topic.
func (m *Image) TopicByName(name string) (*Topic, bool) { return m.topics.get(name) }

// TopicByID finds a topic.
func (m *Image) TopicByID(id TopicID) (*Topic, bool) { return m.ids.get(id) }

// Topics goes through the topics by name.
func (m *Image) Topics() iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		m.topics.root.walk(func(_ string, t *Topic) bool { return yield(t) })
	}
}

// TopicCount is the number of topics.
func (m *Image) TopicCount() int { return m.topics.len() }

// PartitionCount is the number of partitions of all topics.
func (m *Image) PartitionCount() int { return m.partitions }

// Partition finds a partition.
func (m *Image) Partition(id TopicID, partition int32) (*Partition, bool) {
	t, ok := m.ids.get(id)
	if !ok || partition < 0 || int(partition) >= len(t.Partitions) {
		return nil, false
	}
	return t.Partitions[partition], true
}

// Broker finds a registered broker.
func (m *Image) Broker(id BrokerID) (*Broker, bool) { return m.brokers.get(id) }

// Brokers lists the registered brokers by id. The slice is the caller's.
func (m *Image) Brokers() []*Broker {
	all := make([]*Broker, 0, m.brokers.len())
	for _, b := range m.brokers.all() {
		all = append(all, b)
	}
	return all
}

// Alive says that the broker is registered and not fenced.
func (m *Image) Alive(id BrokerID) bool {
	b, ok := m.brokers.get(id)
	return ok && !b.Fenced
}

// LeaderOf is the partition's leader, or NoLeader when that one is fenced or gone.
func (m *Image) LeaderOf(p *Partition) BrokerID {
	if p.Leader == NoLeader || !m.Alive(p.Leader) {
		return NoLeader
	}
	return p.Leader
}

// Configs are the settings of a resource; nil when it has none.
func (m *Image) Configs(kind ResourceKind, name string) map[string]string {
	c, _ := m.configs.get(Resource{kind, name})
	return c
}

// AllConfigs goes through the resources that have settings, by kind and name.
func (m *Image) AllConfigs() iter.Seq2[Resource, map[string]string] { return m.configs.all() }

// NextProducerID is the first producer id that nobody has been given.
func (m *Image) NextProducerID() int64 { return m.producerID }

// Ignored counts the records of unknown kinds so far: those of a newer version, which this one could not apply.
func (m *Image) Ignored() uint64 { return m.ignored }

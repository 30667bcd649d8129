package metadata

// Kind is the number of a kind of record. Numbers are never reused.
type Kind uint64

// The kinds of record.
const (
	KindClusterStarted     Kind = 1
	KindFeatureLevel       Kind = 2
	KindBrokerRegistered   Kind = 3
	KindBrokerFenced       Kind = 4
	KindBrokerRemoved      Kind = 5
	KindTopicCreated       Kind = 6
	KindTopicDeleted       Kind = 7
	KindPartitionsAdded    Kind = 8
	KindPartitionChanged   Kind = 9
	KindConfigChanged      Kind = 10
	KindProducerIDsGranted Kind = 11
	KindMemberChanged      Kind = 12
	KindChainCheckpoint    Kind = 13
	KindShardAssigned      Kind = 14
	KindOffsetsCommitted   Kind = 15
	KindOffsetsRemoved     Kind = 16
	KindGroupChanged       Kind = 17
	KindGroupRemoved       Kind = 18
)

// Record is one fact. Records are values: what they hold must not change once they are proposed.
type Record interface {
	Kind() Kind
	appendBody(w []byte) []byte
}

// ClusterStarted is the first record: the cluster's id and who began it. A second one is refused.
type ClusterStarted struct {
	// ClusterID is 22 characters of URL-safe base64.
	ClusterID string
	Voters    []Voter
}

// FeatureLevel sets the level of a feature; level 0 removes it.
type FeatureLevel struct {
	Name  string
	Level int16
}

// BrokerRegistered says that a process has started as this broker. It is fenced, its epoch is the log index, and the leader
// epoch of every partition that it led goes up by one: an incarnation never leads in an epoch that it did not itself receive.
// The same incarnation again changes nothing. Result: the broker epoch.
type BrokerRegistered struct {
	ID          BrokerID
	Incarnation [16]byte
	Listeners   []Endpoint
	Rack        string
	Directories []DirectoryID
}

// BrokerFenced fences or unfences a broker, or marks its controlled shutdown. Refused when Epoch is not the broker's.
type BrokerFenced struct {
	ID           BrokerID
	Epoch        int64
	Fenced       bool
	ShuttingDown bool
}

// BrokerRemoved takes a broker out of the cluster.
type BrokerRemoved struct {
	ID    BrokerID
	Epoch int64
}

// TopicCreated makes a topic with its partitions and its settings. Refused when the name or the id exists.
type TopicCreated struct {
	Name       string
	ID         TopicID
	Partitions []Partition
	Configs    []Setting
}

// TopicDeleted takes a topic and its settings away.
type TopicDeleted struct {
	ID TopicID
}

// PartitionsAdded grows a topic. Refused when First is not the topic's number of partitions.
type PartitionsAdded struct {
	TopicID    TopicID
	First      int32
	Partitions []Partition
}

// PartitionChanged changes a partition. It is refused when PartitionEpoch is not the partition's current one. Nil fields stay.
// The leader epoch goes up when Leader differs from the current one or NewLeaderEpoch is set; the partition epoch always does.
// With Unclean true the new leader epoch becomes the partition's unclean one.
// Result: the new partition epoch.
type PartitionChanged struct {
	TopicID        TopicID
	Partition      int32
	PartitionEpoch int32
	Leader         *BrokerID
	NewLeaderEpoch bool
	ISR, ELR       *[]BrokerID
	Assignment     *Assignment
	Unclean        *bool
}

// Assignment is a partition's set of replicas.
type Assignment struct {
	Replicas, Adding, Removing []BrokerID
	Directories                []DirectoryID
}

// Setting is one key of a resource. A nil Value takes it away.
type Setting struct {
	Key   string
	Value *string
}

// ConfigChanged sets and removes settings of one resource. Refused for a topic that does not exist.
type ConfigChanged struct {
	Resource Resource
	Settings []Setting
}

// ProducerIDsGranted gives Count producer ids to a broker. Result: the first of them.
type ProducerIDsGranted struct {
	Broker BrokerID
	Epoch  int64
	Count  int32
}

// Unknown is a record of a kind that this version does not know. It is ignored, and counted.
type Unknown struct {
	Number Kind
	Body   []byte
}

// Kind is the number of the record's kind.
func (ClusterStarted) Kind() Kind { return KindClusterStarted }

// Kind is the number of the record's kind.
func (FeatureLevel) Kind() Kind { return KindFeatureLevel }

// Kind is the number of the record's kind.
func (BrokerRegistered) Kind() Kind { return KindBrokerRegistered }

// Kind is the number of the record's kind.
func (BrokerFenced) Kind() Kind { return KindBrokerFenced }

// Kind is the number of the record's kind.
func (BrokerRemoved) Kind() Kind { return KindBrokerRemoved }

// Kind is the number of the record's kind.
func (TopicCreated) Kind() Kind { return KindTopicCreated }

// Kind is the number of the record's kind.
func (TopicDeleted) Kind() Kind { return KindTopicDeleted }

// Kind is the number of the record's kind.
func (PartitionsAdded) Kind() Kind { return KindPartitionsAdded }

// Kind is the number of the record's kind.
func (PartitionChanged) Kind() Kind { return KindPartitionChanged }

// Kind is the number of the record's kind.
func (ConfigChanged) Kind() Kind { return KindConfigChanged }

// Kind is the number of the record's kind.
func (ProducerIDsGranted) Kind() Kind { return KindProducerIDsGranted }

// Kind is the number of the record's kind.
func (u Unknown) Kind() Kind { return u.Number }

// String names the kind.
func (k Kind) String() string {
	names := map[Kind]string{
		KindClusterStarted: "cluster started", KindFeatureLevel: "feature level", KindBrokerRegistered: "broker registered",
		KindBrokerFenced: "broker fenced", KindBrokerRemoved: "broker removed", KindTopicCreated: "topic created",
		KindTopicDeleted: "topic deleted", KindPartitionsAdded: "partitions added", KindPartitionChanged: "partition changed",
		KindConfigChanged: "config changed", KindProducerIDsGranted: "producer ids granted",
		KindMemberChanged: "member changed", KindChainCheckpoint: "chain checkpoint",
		KindShardAssigned: "shard assigned", KindOffsetsCommitted: "offsets committed", KindOffsetsRemoved: "offsets removed",
		KindGroupChanged: "group changed", KindGroupRemoved: "group removed",
	}
	if n, ok := names[k]; ok {
		return n
	}
	return "unknown kind"
}

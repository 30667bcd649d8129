package protocol

import (
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The shapes of the bodies, one function an API, in words that read like Kafka's message definitions.

func fixedWidth(n int) field { return field{kind: fixed, width: n, max: never, nullable: never} }

func bit() field  { return fixedWidth(1) }
func i8() field   { return fixedWidth(1) }
func i16() field  { return fixedWidth(2) }
func i32() field  { return fixedWidth(4) }
func i64() field  { return fixedWidth(8) }
func uuid() field { return fixedWidth(16) }

func str() field { return field{kind: text, max: never, nullable: never} }

// optStr is a string that may be null.
func optStr() field { return str().orNull(0).indirect() }

func records() field { return field{kind: blob, max: never} }

// blobs is a field of bytes that may not be null.
func blobs() field { return field{kind: blob, max: never, nullable: never} }

// each is an array of structs that kmsg decodes into values of type T.
func each[T any](items ...field) field {
	return field{kind: array, max: never, nullable: never, cost: int(reflect.TypeFor[T]().Size()), items: items}
}

// list is an array of a primitive.
func list[T any](item field) field {
	f := each[T](item)
	f.plain = true
	return f
}

// optional is a struct that may be null.
func optional[T any](items ...field) field {
	return field{kind: object, max: never, cost: int(reflect.TypeFor[T]().Size()), items: items}
}

// tagged is a known tag with one primitive in it.
func tagged(number uint32, item field) field {
	return field{kind: tag, number: number, max: never, items: []field{item}, plain: true}
}

// taggedStruct is a known tag with a struct in it.
func taggedStruct(number uint32, items ...field) field {
	return field{kind: tag, number: number, max: never, items: items}
}

func (f field) from(v int16) field   { f.min = v; return f }
func (f field) until(v int16) field  { f.max = v; return f }
func (f field) orNull(v int16) field { f.nullable = v; return f }
func (f field) indirect() field      { f.pointer = true; return f }

// serves says how many bytes answering takes for an element of an array.
func (f field) serves(n int) field { f.serving = n; return f }

// Served returns the APIs of a broker without transactions.
func Served() []API {
	return []API{
		{Key: KeyProduce, Name: "Produce", Min: 3, Max: 13, Flexible: 9, AdvertisedMin: 0, body: produce()},
		{Key: KeyFetch, Name: "Fetch", Min: 4, Max: 18, Flexible: 12, AdvertisedMin: 4, body: fetch()},
		{Key: KeyListOffsets, Name: "ListOffsets", Min: 1, Max: 11, Flexible: 6, AdvertisedMin: 1, body: listOffsets()},
		{Key: KeyMetadata, Name: "Metadata", Min: 0, Max: 13, Flexible: 9, body: metadata()},
		{Key: KeyOffsetCommit, Name: "OffsetCommit", Min: 2, Max: 10, Flexible: 8, AdvertisedMin: 2, body: offsetCommit()},
		{Key: KeyOffsetFetch, Name: "OffsetFetch", Min: 1, Max: 10, Flexible: 6, AdvertisedMin: 1, body: offsetFetch()},
		{Key: KeyFindCoordinator, Name: "FindCoordinator", Min: 0, Max: 6, Flexible: 3, body: findCoordinator()},
		{Key: KeyJoinGroup, Name: "JoinGroup", Min: 0, Max: 9, Flexible: 6, body: joinGroup()},
		{Key: KeyHeartbeat, Name: "Heartbeat", Min: 0, Max: 4, Flexible: 4, body: []field{str(), i32(), str(), optStr().from(3)}},
		{Key: KeyLeaveGroup, Name: "LeaveGroup", Min: 0, Max: 5, Flexible: 4, body: leaveGroup()},
		{Key: KeySyncGroup, Name: "SyncGroup", Min: 0, Max: 5, Flexible: 4, body: syncGroup()},
		{Key: KeyDescribeGroups, Name: "DescribeGroups", Min: 0, Max: 6, Flexible: 5, body: []field{list[string](str()).serves(400), bit().from(3)}},
		{Key: KeyListGroups, Name: "ListGroups", Min: 0, Max: 5, Flexible: 3, body: []field{list[string](str()).from(4), list[string](str()).from(5)}},
		{Key: KeyApiVersions, Name: "ApiVersions", Min: 0, Max: 5, Flexible: 3, body: apiVersions()},
		{Key: KeyCreateTopics, Name: "CreateTopics", Min: 2, Max: 7, Flexible: 5, AdvertisedMin: 2, body: createTopics()},
		{Key: KeyDeleteTopics, Name: "DeleteTopics", Min: 1, Max: 6, Flexible: 4, AdvertisedMin: 1, body: deleteTopics()},
		{Key: KeyDeleteRecords, Name: "DeleteRecords", Min: 0, Max: 2, Flexible: 2, body: deleteRecords()},
		{Key: KeyInitProducerID, Name: "InitProducerId", Min: 0, Max: 5, Flexible: 2, body: initProducerID()},
		{Key: KeyOffsetForLeaderEpoch, Name: "OffsetForLeaderEpoch", Min: 2, Max: 4, Flexible: 4, AdvertisedMin: 2, body: offsetForLeaderEpoch()},
		{Key: KeyDescribeConfigs, Name: "DescribeConfigs", Min: 1, Max: 4, Flexible: 4, AdvertisedMin: 1, body: describeConfigs()},
		{Key: KeyAlterConfigs, Name: "AlterConfigs", Min: 0, Max: 2, Flexible: 2, body: alterConfigs()},
		{Key: KeyAlterReplicaLogDirs, Name: "AlterReplicaLogDirs", Min: 1, Max: 2, Flexible: 2, AdvertisedMin: 1, body: alterReplicaLogDirs()},
		{Key: KeyDescribeLogDirs, Name: "DescribeLogDirs", Min: 1, Max: 5, Flexible: 2, AdvertisedMin: 1, body: describeLogDirs()},
		{Key: KeyCreatePartitions, Name: "CreatePartitions", Min: 0, Max: 3, Flexible: 2, body: createPartitions()},
		{Key: KeyDeleteGroups, Name: "DeleteGroups", Min: 0, Max: 3, Flexible: 2, body: []field{list[string](str()).serves(600)}},
		{Key: KeyElectLeaders, Name: "ElectLeaders", Min: 0, Max: 2, Flexible: 2, body: electLeaders()},
		{Key: KeyIncrementalAlterConfigs, Name: "IncrementalAlterConfigs", Min: 0, Max: 1, Flexible: 1, body: incrementalAlterConfigs()},
		{Key: KeyAlterReassignments, Name: "AlterPartitionReassignments", Min: 0, Max: 1, Flexible: 0, body: alterReassignments()},
		{Key: KeyListReassignments, Name: "ListPartitionReassignments", Min: 0, Max: 0, Flexible: 0, body: listReassignments()},
		{Key: KeyOffsetDelete, Name: "OffsetDelete", Min: 0, Max: 0, Flexible: never, body: offsetDelete()},
		{Key: KeyDescribeQuorum, Name: "DescribeQuorum", Min: 0, Max: 2, Flexible: 0, body: describeQuorum()},
		{Key: KeyUpdateFeatures, Name: "UpdateFeatures", Min: 0, Max: 2, Flexible: 0, body: updateFeatures()},
		{Key: KeyDescribeCluster, Name: "DescribeCluster", Min: 0, Max: 2, Flexible: 0, body: []field{bit(), i8().from(1), bit().from(2)}},
		{Key: KeyDescribeProducers, Name: "DescribeProducers", Min: 0, Max: 0, Flexible: 0, body: describeProducers()},
		{Key: KeyUnregisterBroker, Name: "UnregisterBroker", Min: 0, Max: 0, Flexible: 0, body: []field{i32()}},
		{Key: KeyConsumerGroupHeartbeat, Name: "ConsumerGroupHeartbeat", Min: 0, Max: 1, Flexible: 0, body: consumerGroupHeartbeat()},
		{Key: KeyConsumerGroupDescribe, Name: "ConsumerGroupDescribe", Min: 0, Max: 1, Flexible: 0, body: []field{list[string](str()).serves(500), bit()}},
		{Key: KeyListConfigResources, Name: "ListConfigResources", Min: 0, Max: 1, Flexible: 0, body: []field{list[int8](i8()).from(1)}},
		{Key: KeyDescribeTopicPartitions, Name: "DescribeTopicPartitions", Min: 0, Max: 0, Flexible: 0, body: describeTopicPartitions()},
		{Key: KeyAddRaftVoter, Name: "AddRaftVoter", Min: 0, Max: 1, Flexible: 0, body: addRaftVoter()},
		{Key: KeyRemoveRaftVoter, Name: "RemoveRaftVoter", Min: 0, Max: 0, Flexible: 0, body: []field{optStr(), i32(), uuid()}},
	}
}

// Internal returns the APIs that brokers serve each other, on their internal listener only.
func Internal() []API {
	return []API{
		{Key: KeyAlterPartition, Name: "AlterPartition", Min: 2, Max: 3, Flexible: 0, AdvertisedMin: 2, Internal: true, body: alterPartition()},
		{Key: KeyEnvelope, Name: "Envelope", Min: 0, Max: 0, Flexible: 0, Internal: true, body: []field{blobs(), records(), blobs()}},
		{Key: KeyBrokerRegistration, Name: "BrokerRegistration", Min: 0, Max: 4, Flexible: 0, Internal: true, body: brokerRegistration()},
		{Key: KeyBrokerHeartbeat, Name: "BrokerHeartbeat", Min: 0, Max: 1, Flexible: 0, Internal: true, body: brokerHeartbeat()},
		{Key: KeyAllocateProducerIDs, Name: "AllocateProducerIds", Min: 0, Max: 0, Flexible: 0, Internal: true, body: []field{i32(), i64()}},
	}
}

func produce() []field {
	return []field{
		optStr().from(3), i16(), i32(),
		each[kmsg.ProduceRequestTopic](str().until(12), uuid().from(13),
			each[kmsg.ProduceRequestTopicPartition](i32(), records()).serves(400)).serves(190),
	}
}

func fetch() []field {
	return []field{
		i32().until(14), i32(), i32(), i32().from(3), i8().from(4), i32().from(7), i32().from(7),
		each[kmsg.FetchRequestTopic](str().until(12), uuid().from(13),
			each[kmsg.FetchRequestTopicPartition](i32(), i32().from(9), i64(), i32().from(12), i64().from(5), i32(),
				tagged(0, uuid()), tagged(1, i64()))),
		each[kmsg.FetchRequestForgottenTopic](str().until(12), uuid().from(13), list[int32](i32())).from(7),
		str().from(11),
		tagged(0, optStr()), taggedStruct(1, i32(), i64()),
	}
}

func listOffsets() []field {
	return []field{
		i32(), i8().from(2),
		each[kmsg.ListOffsetsRequestTopic](str(),
			each[kmsg.ListOffsetsRequestTopicPartition](i32(), i32().from(4), i64()).serves(350)).serves(180),
		i32().from(10),
	}
}

func metadata() []field {
	return []field{
		each[kmsg.MetadataRequestTopic](uuid().from(10), str().orNull(10).indirect()).orNull(1).serves(400),
		bit().from(4), bit().from(8).until(10), bit().from(8),
	}
}

func apiVersions() []field {
	return []field{str().from(3), str().from(3), optStr().from(5), i32().from(5)}
}

func createTopics() []field {
	return []field{
		each[kmsg.CreateTopicsRequestTopic](str(), i32(), i16(),
			each[kmsg.CreateTopicsRequestTopicReplicaAssignment](i32(), list[int32](i32())),
			each[kmsg.CreateTopicsRequestTopicConfig](str(), optStr())).serves(1100),
		i32(), bit().from(1),
	}
}

func deleteTopics() []field {
	return []field{
		list[string](str()).until(5).serves(450),
		each[kmsg.DeleteTopicsRequestTopic](optStr(), uuid()).from(6).serves(900),
		i32(),
	}
}

func deleteRecords() []field {
	return []field{
		each[kmsg.DeleteRecordsRequestTopic](str(), each[kmsg.DeleteRecordsRequestTopicPartition](i32(), i64())),
		i32(),
	}
}

func initProducerID() []field { return []field{optStr(), i32(), i64().from(3), i16().from(3)} }

func offsetForLeaderEpoch() []field {
	return []field{
		i32().from(3),
		each[kmsg.OffsetForLeaderEpochRequestTopic](str(),
			each[kmsg.OffsetForLeaderEpochRequestTopicPartition](i32(), i32().from(2), i32())).serves(180),
	}
}

func describeConfigs() []field {
	return []field{
		each[kmsg.DescribeConfigsRequestResource](i8(), str(), list[string](str()).orNull(0)).serves(500),
		bit().from(1), bit().from(3),
	}
}

func alterConfigs() []field {
	return []field{
		each[kmsg.AlterConfigsRequestResource](i8(), str(), each[kmsg.AlterConfigsRequestResourceConfig](str(), optStr())).serves(650),
		bit(),
	}
}

func incrementalAlterConfigs() []field {
	return []field{
		each[kmsg.IncrementalAlterConfigsRequestResource](i8(), str(),
			each[kmsg.IncrementalAlterConfigsRequestResourceConfig](str(), i8(), optStr())).serves(1200),
		bit(),
	}
}

func describeLogDirs() []field {
	return []field{each[kmsg.DescribeLogDirsRequestTopic](str(), list[int32](i32())).orNull(0)}
}

func createPartitions() []field {
	return []field{
		each[kmsg.CreatePartitionsRequestTopic](str(), i32(),
			each[kmsg.CreatePartitionsRequestTopicAssignment](list[int32](i32())).orNull(0)).serves(480),
		i32(), bit(),
	}
}

func describeProducers() []field {
	return []field{each[kmsg.DescribeProducersRequestTopic](str(), list[int32](i32()).serves(280)).serves(150)}
}

func describeTopicPartitions() []field {
	return []field{
		each[kmsg.DescribeTopicPartitionsRequestTopic](str()).serves(420), i32(),
		optional[kmsg.DescribeTopicPartitionsRequestCursor](str(), i32()),
	}
}

func alterReplicaLogDirs() []field {
	return []field{
		each[kmsg.AlterReplicaLogDirsRequestDir](str(),
			each[kmsg.AlterReplicaLogDirsRequestDirTopic](str(), list[int32](i32()).serves(40)).serves(150)),
	}
}

func electLeaders() []field {
	return []field{
		i8().from(1),
		each[kmsg.ElectLeadersRequestTopic](str(), list[int32](i32()).serves(250)).orNull(0).serves(150),
		i32(),
	}
}

func alterReassignments() []field {
	return []field{
		i32(), bit().from(1),
		each[kmsg.AlterPartitionAssignmentsRequestTopic](str(),
			each[kmsg.AlterPartitionAssignmentsRequestTopicPartition](i32(), list[int32](i32()).orNull(0)).serves(400)).serves(150),
	}
}

func listReassignments() []field {
	return []field{i32(), each[kmsg.ListPartitionReassignmentsRequestTopic](str(), list[int32](i32()).serves(150)).orNull(0).serves(150)}
}

func describeQuorum() []field {
	return []field{
		each[kmsg.DescribeQuorumRequestTopic](str(), each[kmsg.DescribeQuorumRequestTopicPartition](i32()).serves(600)).serves(150),
	}
}

func updateFeatures() []field {
	return []field{
		i32(),
		each[kmsg.UpdateFeaturesRequestFeatureUpdate](str(), i16(), bit().until(0), i8().from(1)).serves(300),
		bit().from(1),
	}
}

func addRaftVoter() []field {
	return []field{
		optStr(), i32(), i32(), uuid(),
		each[kmsg.AddRaftVoterRequestListener](str(), str(), i16()),
		bit().from(1),
	}
}

func alterPartition() []field {
	return []field{
		i32(), i64(),
		each[kmsg.AlterPartitionRequestTopic](uuid(),
			each[kmsg.AlterPartitionRequestTopicPartition](i32(), i32(), list[int32](i32()).until(2),
				each[kmsg.AlterPartitionRequestTopicPartitionNewEpochISR](i32(), i64()).from(3), i8(), i32()).serves(300)).serves(100),
	}
}

func brokerRegistration() []field {
	return []field{
		i32(), str(), uuid(),
		each[kmsg.BrokerRegistrationRequestListener](str(), str(), i16(), i16()),
		each[kmsg.BrokerRegistrationRequestFeature](str(), i16(), i16()),
		optStr(), bit().from(1), list[[16]byte](uuid()).from(2), i64().from(3),
	}
}

func brokerHeartbeat() []field {
	return []field{i32(), i64(), i64(), bit(), bit(), tagged(0, list[[16]byte](uuid())).from(1)}
}

package main

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/protocol"
	"github.com/keeplog/keeplog/record"
)

// batch is two records at a fixed time.
func batch() []byte {
	b := record.NewBuilder(record.NewOptions())
	b.Append(1_700_000_000_000, []byte("key"), []byte("value"), record.Header{Key: "h", Value: []byte("v")})
	b.Append(1_700_000_000_001, nil, nil)
	made, err := b.Batch(nil)
	if err != nil {
		panic(err)
	}
	return made
}

// sample is a request that the broker can answer without an error where that is possible.
func (s *session) sample(key, version int16) kmsg.Request {
	if req := s.dataSample(key); req != nil {
		return req
	}
	if req := s.adminSample(key, version); req != nil {
		return req
	}
	if req := s.groupSample(key, version); req != nil {
		return req
	}
	return s.clusterSample(key, version)
}

func (s *session) dataSample(key int16) kmsg.Request {
	switch key {
	case protocol.KeyProduce:
		r := kmsg.NewPtrProduceRequest()
		r.Acks, r.TimeoutMillis = -1, 5000
		r.Topics = []kmsg.ProduceRequestTopic{{Topic: "golden", TopicID: s.topic, Partitions: []kmsg.ProduceRequestTopicPartition{
			{Partition: 0, Records: batch()}, {Partition: 9, Records: batch()},
		}}}
		return r
	case protocol.KeyFetch:
		r := kmsg.NewPtrFetchRequest()
		r.MaxBytes, r.MinBytes, r.SessionEpoch = 1000, 1, 0
		p := kmsg.NewFetchRequestTopicPartition()
		p.PartitionMaxBytes = 300
		unknown := p
		unknown.Partition = 9
		r.Topics = []kmsg.FetchRequestTopic{{Topic: "golden", TopicID: s.topic, Partitions: []kmsg.FetchRequestTopicPartition{p, unknown}}}
		return r
	case protocol.KeyListOffsets:
		r := kmsg.NewPtrListOffsetsRequest()
		for _, at := range []int64{-1, 1_700_000_000_001} {
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Timestamp = at
			r.Topics = append(r.Topics, kmsg.ListOffsetsRequestTopic{Topic: "golden", Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}})
		}
		r.Topics[1].Topic = "unknown"
		return r
	case protocol.KeyOffsetForLeaderEpoch:
		p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		r := kmsg.NewPtrOffsetForLeaderEpochRequest()
		r.ReplicaID = -1
		r.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "golden", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{p}}}
		return r
	case protocol.KeyInitProducerID:
		r := kmsg.NewPtrInitProducerIDRequest()
		r.TransactionTimeoutMillis = 60000
		return r
	case protocol.KeyDescribeProducers:
		return &kmsg.DescribeProducersRequest{Topics: []kmsg.DescribeProducersRequestTopic{{Topic: "golden", Partitions: []int32{0, 9}}}}
	case protocol.KeyDeleteRecords:
		r := kmsg.NewPtrDeleteRecordsRequest()
		r.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "golden", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: 1}, {Partition: 9}}}}
		return r
	}
	return nil
}

func (s *session) adminSample(key, version int16) kmsg.Request {
	golden, value := "golden", "100000"
	switch key {
	case protocol.KeyMetadata:
		r := kmsg.NewPtrMetadataRequest()
		r.Topics = []kmsg.MetadataRequestTopic{{Topic: &golden}}
		return r
	case protocol.KeyApiVersions:
		r := kmsg.NewPtrApiVersionsRequest()
		r.ClientSoftwareName, r.ClientSoftwareVersion = "golden", "1.0"
		return r
	case protocol.KeyCreateTopics:
		r := kmsg.NewPtrCreateTopicsRequest()
		assigned := kmsg.CreateTopicsRequestTopic{
			Topic: fmt.Sprintf("made-%d", version), NumPartitions: -1, ReplicationFactor: -1,
			ReplicaAssignment: []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Replicas: []int32{1}}},
			Configs:           []kmsg.CreateTopicsRequestTopicConfig{{Name: "segment.bytes", Value: &value}},
		}
		r.Topics = []kmsg.CreateTopicsRequestTopic{assigned, {Topic: golden, NumPartitions: 1, ReplicationFactor: 1}}
		r.ValidateOnly = true
		return r
	case protocol.KeyDeleteTopics:
		r := kmsg.NewPtrDeleteTopicsRequest()
		unknown := "unknown"
		r.TopicNames, r.Topics = []string{unknown}, []kmsg.DeleteTopicsRequestTopic{{Topic: &unknown}, {TopicID: [16]byte{1}}}
		return r
	case protocol.KeyDescribeConfigs:
		return &kmsg.DescribeConfigsRequest{
			Resources:       []kmsg.DescribeConfigsRequestResource{{ResourceType: 2, ResourceName: golden, ConfigNames: []string{"retention.ms", "segment.bytes"}}},
			IncludeSynonyms: true, IncludeDocumentation: true,
		}
	case protocol.KeyAlterConfigs:
		return &kmsg.AlterConfigsRequest{ValidateOnly: true, Resources: []kmsg.AlterConfigsRequestResource{
			{ResourceType: 2, ResourceName: golden, Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: "segment.bytes", Value: &value}}},
		}}
	case protocol.KeyIncrementalAlterConfigs:
		return &kmsg.IncrementalAlterConfigsRequest{ValidateOnly: true, Resources: []kmsg.IncrementalAlterConfigsRequestResource{
			{ResourceType: 2, ResourceName: golden, Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "segment.bytes", Value: &value}, {Name: "retention.ms", Op: 1}}},
		}}
	case protocol.KeyDescribeLogDirs:
		return &kmsg.DescribeLogDirsRequest{Topics: []kmsg.DescribeLogDirsRequestTopic{{Topic: golden, Partitions: []int32{0, 1}}}}
	case protocol.KeyCreatePartitions:
		r := kmsg.NewPtrCreatePartitionsRequest()
		r.ValidateOnly = true
		r.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: golden, Count: 3, Assignment: []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: []int32{1}}}}, {Topic: "unknown", Count: 3}}
		return r
	case protocol.KeyDescribeCluster:
		r := kmsg.NewPtrDescribeClusterRequest()
		r.IncludeFencedBrokers = true
		return r
	case protocol.KeyDescribeTopicPartitions:
		r := kmsg.NewPtrDescribeTopicPartitionsRequest()
		r.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: golden}, {Topic: "unknown"}}
		return r
	case protocol.KeyListConfigResources:
		return &kmsg.ListConfigResourcesRequest{ResourceTypes: []int8{2}}
	}
	return nil
}

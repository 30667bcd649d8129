package protocol

import "github.com/twmb/franz-go/pkg/kmsg"

// Response structs with the values that Kafka sends where there is nothing to tell. kmsg's own constructors leave some of
// them 0, and byte fields null.

// NewProducePartition returns an answer without offsets.
func NewProducePartition(partition int32, code int16) kmsg.ProduceResponseTopicPartition {
	p := kmsg.NewProduceResponseTopicPartition()
	p.Partition, p.ErrorCode = partition, code
	p.BaseOffset = -1
	return p
}

// NewFetchPartition returns an answer without records and offsets.
func NewFetchPartition(partition int32, code int16) kmsg.FetchResponseTopicPartition {
	p := kmsg.NewFetchResponseTopicPartition()
	p.Partition, p.ErrorCode = partition, code
	p.HighWatermark = -1
	p.RecordBatches = []byte{}
	return p
}

// NewListOffsetsPartition returns an answer without an offset.
func NewListOffsetsPartition(partition int32, code int16) kmsg.ListOffsetsResponseTopicPartition {
	p := kmsg.NewListOffsetsResponseTopicPartition()
	p.Partition, p.ErrorCode = partition, code
	return p
}

// NewEpochEndPartition returns an answer of OffsetForLeaderEpoch without an end.
func NewEpochEndPartition(partition int32, code int16) kmsg.OffsetForLeaderEpochResponseTopicPartition {
	p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
	p.Partition, p.ErrorCode = partition, code
	return p
}

// NewDeleteRecordsPartition returns an answer without a low watermark.
func NewDeleteRecordsPartition(partition int32, code int16) kmsg.DeleteRecordsResponseTopicPartition {
	p := kmsg.NewDeleteRecordsResponseTopicPartition()
	p.Partition, p.ErrorCode = partition, code
	p.LowWatermark = -1
	return p
}

// NewInitProducerID returns an answer without a producer.
func NewInitProducerID(code int16) kmsg.InitProducerIDResponse {
	r := kmsg.NewInitProducerIDResponse()
	r.ErrorCode = code
	r.ProducerID, r.ProducerEpoch = -1, -1
	return r
}

// FetchReplica tells which replica fetches, and its broker epoch; −1 for a consumer. From version 15 on they are in a
// tag, before in a field.
func FetchReplica(r *kmsg.FetchRequest) (id int32, epoch int64) {
	if r.Version >= 15 {
		return r.ReplicaState.ID, r.ReplicaState.Epoch
	}
	return r.ReplicaID, -1
}

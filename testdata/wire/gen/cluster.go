package main

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/protocol"
)

// clusterSample is a request about the cluster: its quorum, its brokers, its replicas.
func (s *session) clusterSample(key, version int16) kmsg.Request {
	golden := "golden"
	switch key {
	case protocol.KeyAlterReplicaLogDirs:
		return &kmsg.AlterReplicaLogDirsRequest{Dirs: []kmsg.AlterReplicaLogDirsRequestDir{
			{Dir: "/nowhere", Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: golden, Partitions: []int32{0}}, {Topic: "unknown", Partitions: []int32{0}}}},
		}}
	case protocol.KeyElectLeaders:
		r := kmsg.NewPtrElectLeadersRequest()
		r.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: golden, Partitions: []int32{0, 9}}}
		return r
	case protocol.KeyAlterReassignments:
		r := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		r.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: golden, Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{
			{Partition: 0}, {Partition: 1, Replicas: []int32{1, 7}}, {Partition: 9, Replicas: []int32{1}},
		}}}
		return r
	case protocol.KeyListReassignments:
		return kmsg.NewPtrListPartitionReassignmentsRequest()
	case protocol.KeyDescribeQuorum:
		return &kmsg.DescribeQuorumRequest{Topics: []kmsg.DescribeQuorumRequestTopic{
			{Topic: "__cluster_metadata", Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{Partition: 0}}},
		}}
	case protocol.KeyUpdateFeatures:
		r := kmsg.NewPtrUpdateFeaturesRequest()
		r.ValidateOnly = true
		r.FeatureUpdates = []kmsg.UpdateFeaturesRequestFeatureUpdate{{Feature: "unknown.version", MaxVersionLevel: 1, UpgradeType: 1}}
		return r
	case protocol.KeyUnregisterBroker:
		return &kmsg.UnregisterBrokerRequest{BrokerID: 99}
	case protocol.KeyAddRaftVoter:
		r := kmsg.NewPtrAddRaftVoterRequest()
		r.TimeoutMillis, r.VoterID, r.VoterDirectoryID, r.AckWhenCommitted = 1000, 9, [16]byte{1}, true
		r.Listeners = []kmsg.AddRaftVoterRequestListener{{Name: "CONTROLLER", Host: "localhost", Port: 9093}}
		return r
	case protocol.KeyRemoveRaftVoter:
		return &kmsg.RemoveRaftVoterRequest{VoterID: 9, VoterDirectoryID: [16]byte{1}}
	}
	return s.internalSample(key, version)
}

// internalSample is a request that brokers send to the controller.
func (s *session) internalSample(key, version int16) kmsg.Request {
	switch key {
	case protocol.KeyAlterPartition:
		p := kmsg.AlterPartitionRequestTopicPartition{NewISR: []int32{1}, PartitionEpoch: 3}
		p.NewEpochISR = []kmsg.AlterPartitionRequestTopicPartitionNewEpochISR{{BrokerID: 1, BrokerEpoch: 1}}
		r := &kmsg.AlterPartitionRequest{BrokerID: 1, BrokerEpoch: 1, Topics: []kmsg.AlterPartitionRequestTopic{{TopicID: [16]byte{1}}}}
		r.Topics[0].Partitions = []kmsg.AlterPartitionRequestTopicPartition{p}
		return r
	case protocol.KeyEnvelope:
		inner := kmsg.NewPtrListPartitionReassignmentsRequest()
		frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("inner")).AppendRequest(nil, inner, 77)
		principal := []byte("\x00\x00\x05User\x0aANONYMOUS\x00\x00")
		return &kmsg.EnvelopeRequest{RequestData: frame[4:], RequestPrincipal: principal, ClientHostAddress: []byte{127, 0, 0, 1}}
	case protocol.KeyBrokerRegistration:
		r := kmsg.NewPtrBrokerRegistrationRequest()
		r.BrokerID, r.ClusterID, r.IncarnationID, r.LogDirs = 7, "AAAAAAAAAAAAAAAAAAAAAA", [16]byte{7}, [][16]byte{{8}}
		r.Listeners = []kmsg.BrokerRegistrationRequestListener{{Name: "PLAINTEXT", Host: "localhost", Port: 9092}}
		r.Features = []kmsg.BrokerRegistrationRequestFeature{{Name: "metadata.version", MinSupportedVersion: 7, MaxSupportedVersion: 30}}
		return r
	case protocol.KeyBrokerHeartbeat:
		r := kmsg.NewPtrBrokerHeartbeatRequest()
		r.BrokerID, r.BrokerEpoch, r.CurrentMetadataOffset = 7, 1, 100
		if version > 0 {
			r.OfflineLogDirs = [][16]byte{{8}}
		}
		return r
	case protocol.KeyAllocateProducerIDs:
		return &kmsg.AllocateProducerIDsRequest{BrokerID: 7, BrokerEpoch: 1}
	}
	return nil
}

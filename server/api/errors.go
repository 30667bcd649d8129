package api

import (
	"context"
	"errors"
	"slices"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/group"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/protocol"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/replication/isr"
)

// The error codes of the protocol that this broker answers.
const (
	codeUnknownServerError       int16 = -1
	codeNone                     int16 = 0
	codeOffsetOutOfRange         int16 = 1
	codeCorruptMessage           int16 = 2
	codeUnknownTopicOrPartition  int16 = 3
	codeLeaderNotAvailable       int16 = 5
	codeNotLeader                int16 = 6
	codeRequestTimedOut          int16 = 7
	codeReplicaNotAvailable      int16 = 9
	codeMessageTooLarge          int16 = 10
	codeOffsetMetadataTooLarge   int16 = 12
	codeCoordinatorLoading       int16 = 14
	codeCoordinatorNotAvailable  int16 = 15
	codeNotCoordinator           int16 = 16
	codeInvalidTopic             int16 = 17
	codeRecordListTooLarge       int16 = 18
	codeNotEnoughReplicas        int16 = 19
	codeNotEnoughReplicasAfter   int16 = 20
	codeInvalidRequiredAcks      int16 = 21
	codeIllegalGeneration        int16 = 22
	codeInconsistentProtocol     int16 = 23
	codeInvalidGroupID           int16 = 24
	codeUnknownMemberID          int16 = 25
	codeInvalidSessionTimeout    int16 = 26
	codeRebalanceInProgress      int16 = 27
	codeInvalidCommitSize        int16 = 28
	codeInvalidTimestamp         int16 = 32
	codeUnsupportedVersion       int16 = 35
	codeTopicExists              int16 = 36
	codeInvalidPartitions        int16 = 37
	codeInvalidReplicationFactor int16 = 38
	codeInvalidReplicaAssignment int16 = 39
	codeInvalidConfig            int16 = 40
	codeNotController            int16 = 41
	codeInvalidRequest           int16 = 42
	codePolicyViolation          int16 = 44
	codeOutOfOrderSequence       int16 = 45
	codeInvalidProducerEpoch     int16 = 47
	codeTransactionalIDAuth      int16 = 53
	codeKafkaStorageError        int16 = 56
	codeLogDirNotFound           int16 = 57
	codeNonEmptyGroup            int16 = 68
	codeGroupNotFound            int16 = 69
	codeFetchSessionIDNotFound   int16 = 70
	codeInvalidFetchSessionEpoch int16 = 71
	codeListenerNotFound         int16 = 72
	codeTopicDeletionDisabled    int16 = 73
	codeFencedLeaderEpoch        int16 = 74
	codeUnknownLeaderEpoch       int16 = 75
	codeUnsupportedCompression   int16 = 76
	codeStaleBrokerEpoch         int16 = 77
	codeOffsetNotAvailable       int16 = 78
	codeMemberIDRequired         int16 = 79
	codePreferredNotAvailable    int16 = 80
	codeGroupMaxSize             int16 = 81
	codeFencedInstanceID         int16 = 82
	codeEligibleNotAvailable     int16 = 83
	codeElectionNotNeeded        int16 = 84
	codeNoReassignment           int16 = 85
	codeGroupSubscribed          int16 = 86
	codeInvalidRecord            int16 = 87
	codeInvalidUpdateVersion     int16 = 95
	codeUnknownTopicID           int16 = 100
	codeDuplicateBroker          int16 = 101
	codeBrokerNotRegistered      int16 = 102
	codeInconsistentTopicID      int16 = 103
	codeInconsistentClusterID    int16 = 104
	codeFetchSessionTopicIDError int16 = 106
	codeIneligibleReplica        int16 = 107
	codeNewLeaderElected         int16 = 108
	codeFencedMemberEpoch        int16 = 110
	codeUnreleasedInstanceID     int16 = 111
	codeInvalidRegistration      int16 = 119
	codeUnsupportedAssignor      int16 = 112
	codeStaleMemberEpoch         int16 = 113
	codeMismatchedEndpointType   int16 = 114
	codeUnsupportedEndpointType  int16 = 115
	codeDuplicateVoter           int16 = 126
	codeVoterNotFound            int16 = 127
	codeInvalidRegex             int16 = 128
	codeRebootstrapRequired      int16 = 129
)

var (
	errUnknownTopicID = errors.New("api: no topic of that id")
	errUnknownTopic   = errors.New("api: no topic of that name")
	errNotOneBatch    = errors.New("exactly one record batch is wanted")
	errBatchFrame     = errors.New("corrupt record batch")
)

// codes maps sentinels to error codes; the first match counts.
var codes = []struct {
	err  error
	code int16
}{
	{errUnknownTopicID, codeUnknownTopicID},
	{errUnknownTopic, codeUnknownTopicOrPartition},
	{errNotOneBatch, codeInvalidRecord},
	{errBatchFrame, codeCorruptMessage},

	{isr.ErrUnknownPartition, codeUnknownTopicOrPartition},
	{isr.ErrInconsistentTopicID, codeInconsistentTopicID},
	{isr.ErrNotLeader, codeNotLeader},
	{isr.ErrFencedLeaderEpoch, codeFencedLeaderEpoch},
	{isr.ErrUnknownLeaderEpoch, codeUnknownLeaderEpoch},
	{isr.ErrNotReplica, codeUnknownLeaderEpoch},
	{isr.ErrStaleReplica, codeStaleBrokerEpoch},
	{isr.ErrForgotten, codeReplicaNotAvailable},
	{isr.ErrNotEnoughReplicas, codeNotEnoughReplicas},
	{isr.ErrNotEnoughReplicasAfterAppend, codeNotEnoughReplicasAfter},
	{isr.ErrTimedOut, codeRequestTimedOut},
	{isr.ErrOffline, codeKafkaStorageError},
	{isr.ErrOffsetNotAvailable, codeOffsetNotAvailable},
	{isr.ErrInvalidAcks, codeInvalidRequiredAcks},
	{isr.ErrTransactional, codeTransactionalIDAuth},
	{isr.ErrDeletePolicy, codePolicyViolation},
	{isr.ErrUnsupportedTimestamp, codeUnsupportedVersion},

	{log.ErrOffsetOutOfRange, codeOffsetOutOfRange},
	{log.ErrCorruptBatch, codeCorruptMessage},
	{log.ErrBatchTooLarge, codeRecordListTooLarge},
	{log.ErrOutOfOrderSequence, codeOutOfOrderSequence},
	{log.ErrProducerFenced, codeInvalidProducerEpoch},
	{log.ErrEpochFenced, codeNotLeader},
	{log.ErrReserve, codeKafkaStorageError},
	{log.ErrOffline, codeKafkaStorageError},
	{log.ErrStorage, codeKafkaStorageError},
	{log.ErrClosed, codeNotLeader},
	{log.ErrTopicID, codeInconsistentTopicID},
	{log.ErrNewerVersion, codeKafkaStorageError},

	{record.ErrInvalidTimestamp, codeInvalidTimestamp},
	{record.ErrTorn, codeInvalidRecord},
	{record.ErrOldVersion, codeInvalidRecord},
	{record.ErrNewerVersion, codeCorruptMessage},
	{record.ErrUnsupportedCodec, codeUnsupportedCompression},
	{record.ErrTooLarge, codeMessageTooLarge},
	{record.ErrInvalidRecord, codeInvalidRecord},
	{record.ErrNullKey, codeInvalidRecord},
	{record.ErrCorrupt, codeCorruptMessage},

	{controller.ErrInvalidTopic, codeInvalidTopic},
	{controller.ErrTopicExists, codeTopicExists},
	{controller.ErrUnknownTopic, codeUnknownTopicOrPartition},
	{controller.ErrUnknownTopicID, codeUnknownTopicID},
	{controller.ErrInvalidPartitions, codeInvalidPartitions},
	{controller.ErrInvalidReplicationFactor, codeInvalidReplicationFactor},
	{controller.ErrInvalidReplicaAssignment, codeInvalidReplicaAssignment},
	{controller.ErrInvalidRequest, codeInvalidRequest},
	{controller.ErrInvalidConfig, codeInvalidConfig},
	{controller.ErrPolicyViolation, codePolicyViolation},
	{controller.ErrUnknownResource, codeInvalidRequest},
	{controller.ErrInconsistentClusterID, codeInconsistentClusterID},
	{controller.ErrDuplicateBroker, codeDuplicateBroker},
	{controller.ErrInvalidRegistration, codeInvalidRegistration},
	{controller.ErrStaleBrokerEpoch, codeStaleBrokerEpoch},
	{controller.ErrBrokerNotRegistered, codeBrokerNotRegistered},
	{controller.ErrElectionNotNeeded, codeElectionNotNeeded},
	{controller.ErrPreferredLeaderNotAvailable, codePreferredNotAvailable},
	{controller.ErrEligibleLeadersNotAvailable, codeEligibleNotAvailable},
	{controller.ErrFencedLeaderEpoch, codeFencedLeaderEpoch},
	{controller.ErrInvalidUpdateVersion, codeInvalidUpdateVersion},
	{controller.ErrIneligibleReplica, codeIneligibleReplica},
	{controller.ErrNewLeaderElected, codeNewLeaderElected},
	{controller.ErrNoReassignment, codeNoReassignment},
	{controller.ErrFeatureUpdateFailed, codeInvalidUpdateVersion},
	{controller.ErrUnsupportedFeature, codeUnsupportedVersion},
	{controller.ErrNotController, codeNotController},
	{controller.ErrNotCommitted, codeRequestTimedOut},

	{ErrDuplicateVoter, codeDuplicateVoter},
	{ErrVoterNotFound, codeVoterNotFound},

	{group.ErrInvalidGroupID, codeInvalidGroupID},
	{group.ErrNotCoordinator, codeNotCoordinator},
	{group.ErrLoading, codeCoordinatorLoading},
	{group.ErrNotAvailable, codeCoordinatorNotAvailable},
	{group.ErrUnknownMember, codeUnknownMemberID},
	{group.ErrMemberIDRequired, codeMemberIDRequired},
	{group.ErrFencedInstance, codeFencedInstanceID},
	{group.ErrUnreleasedInstance, codeUnreleasedInstanceID},
	{group.ErrIllegalGeneration, codeIllegalGeneration},
	{group.ErrFencedMemberEpoch, codeFencedMemberEpoch},
	{group.ErrStaleMemberEpoch, codeStaleMemberEpoch},
	{group.ErrInconsistentProtocol, codeInconsistentProtocol},
	{group.ErrInvalidSessionTimeout, codeInvalidSessionTimeout},
	{group.ErrRebalanceInProgress, codeRebalanceInProgress},
	{group.ErrMaxSize, codeGroupMaxSize},
	{group.ErrGroupNotFound, codeGroupNotFound},
	{group.ErrNonEmpty, codeNonEmptyGroup},
	{group.ErrSubscribedTopic, codeGroupSubscribed},
	{group.ErrUnknownTopic, codeUnknownTopicOrPartition},
	{group.ErrUnknownTopicID, codeUnknownTopicID},
	{group.ErrMetadataTooLarge, codeOffsetMetadataTooLarge},
	{group.ErrTooLarge, codeInvalidRequest},
	{group.ErrInvalidRequest, codeInvalidRequest},
	{group.ErrUnsupportedAssignor, codeUnsupportedAssignor},
	{group.ErrUnsupportedVersion, codeUnsupportedVersion},
	{group.ErrInvalidRegex, codeInvalidRegex},
	{group.ErrCorruptEntry, codeCoordinatorNotAvailable},
	{group.ErrNewerEntry, codeCoordinatorNotAvailable},

	{config.ErrUnknownKey, codeInvalidConfig},
	{config.ErrValue, codeInvalidConfig},
	{config.ErrNotList, codeInvalidConfig},
	{config.ErrRefused, codeInvalidConfig},
	{config.ErrReadOnly, codeInvalidRequest},

	{context.DeadlineExceeded, codeRequestTimedOut},
	{context.Canceled, codeRequestTimedOut},
}

// code is the error code for an error; an unknown error is logged by the caller.
func code(err error) int16 {
	if err == nil {
		return codeNone
	}
	var r *remoteError
	if errors.As(err, &r) {
		return r.code
	}
	for i := range codes {
		if errors.Is(err, codes[i].err) {
			return codes[i].code
		}
	}
	return codeUnknownServerError
}

// produceCode is code for one partition of a Produce answer; transient states of a partition that goes away are told apart.
func (a *API) produceCode(err error) int16 {
	c := code(err)
	if c == codeUnknownServerError {
		a.log.Error("produce failed", "cause", err)
	}
	return c
}

// judged says that a refused batch had reached the partition's own checks, where Kafka answers with the log start.
func judged(err error) bool {
	for _, s := range [...]error{record.ErrInvalidRecord, record.ErrInvalidTimestamp, log.ErrOutOfOrderSequence, log.ErrProducerFenced} {
		if errors.Is(err, s) {
			return true
		}
	}
	return false
}

// groupCodes lists, for each key that a group's coordinator answers, the codes that may leave. Clients know what to do at these, and no other:
// at most of the rest they end, or begin again for ever.
var groupCodes = map[int16][]int16{
	protocol.KeyOffsetCommit: {
		codeUnknownTopicOrPartition, codeOffsetMetadataTooLarge, codeIllegalGeneration, codeInvalidGroupID, codeUnknownMemberID,
		codeRebalanceInProgress, codeInvalidCommitSize, codeUnsupportedVersion, codeGroupNotFound, codeFencedInstanceID, codeUnknownTopicID,
		codeStaleMemberEpoch,
	},
	protocol.KeyOffsetFetch: {
		codeInvalidGroupID, codeUnknownMemberID, codeInvalidRequest, codeGroupNotFound, codeUnknownTopicID, codeStaleMemberEpoch,
	},
	protocol.KeyJoinGroup: {
		codeInconsistentProtocol, codeInvalidGroupID, codeUnknownMemberID, codeInvalidSessionTimeout, codeRebalanceInProgress, codeInvalidRequest,
		codeMemberIDRequired, codeGroupMaxSize, codeFencedInstanceID,
	},
	protocol.KeyHeartbeat: {
		codeIllegalGeneration, codeInvalidGroupID, codeUnknownMemberID, codeRebalanceInProgress, codeFencedInstanceID,
	},
	protocol.KeyLeaveGroup: {codeInvalidGroupID, codeUnknownMemberID, codeFencedInstanceID},
	protocol.KeySyncGroup: {
		codeIllegalGeneration, codeInconsistentProtocol, codeInvalidGroupID, codeUnknownMemberID, codeRebalanceInProgress, codeInvalidRequest,
		codeFencedInstanceID,
	},
	protocol.KeyDescribeGroups: {codeInvalidGroupID, codeInvalidRequest, codeGroupNotFound},
	protocol.KeyListGroups:     {},
	protocol.KeyDeleteGroups:   {codeInvalidGroupID, codeNonEmptyGroup, codeGroupNotFound},
	protocol.KeyOffsetDelete: {
		codeUnknownTopicOrPartition, codeInvalidGroupID, codeNonEmptyGroup, codeGroupNotFound, codeGroupSubscribed,
	},
	protocol.KeyConsumerGroupHeartbeat: {
		codeInvalidGroupID, codeUnknownMemberID, codeUnsupportedVersion, codeInvalidRequest, codeGroupNotFound, codeGroupMaxSize, codeFencedInstanceID,
		codeFencedMemberEpoch, codeUnreleasedInstanceID, codeUnsupportedAssignor, codeInvalidRegex,
	},
	protocol.KeyConsumerGroupDescribe: {codeInvalidGroupID, codeUnsupportedVersion, codeInvalidRequest, codeGroupNotFound},
}

// coordinatorCodes may leave with every key of groupCodes: they are about the coordinator, and clients look for it again.
var coordinatorCodes = []int16{codeNone, codeCoordinatorLoading, codeCoordinatorNotAvailable, codeNotCoordinator}

// groupCode is the code for an error of a group's coordinator. What the key has no code for is told as a coordinator that is not available.
func (a *API) groupCode(c *Call, err error) int16 {
	n := code(err)
	if c.Key == protocol.KeyOffsetCommit && errors.Is(err, group.ErrTooLarge) {
		n = codeInvalidCommitSize
	}
	if !slices.Contains(coordinatorCodes, n) && !slices.Contains(groupCodes[c.Key], n) {
		a.log.Error("a group's coordinator failed", "event", "group.failed", "key", c.Key, "cause", err)
		n = codeCoordinatorNotAvailable
	}
	return n
}

package peer

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// What the connection can say.
var (
	// ErrClosed: this client was closed.
	ErrClosed = errors.New("peer: closed")
	// ErrUnreachable: no connection, nothing was sent.
	ErrUnreachable = errors.New("peer: broker cannot be reached")
	// ErrRefused: nobody listens at the broker's address. It is ErrUnreachable too.
	ErrRefused = fmt.Errorf("%w: connection refused", ErrUnreachable)
	// ErrDisconnected: the connection broke after the request was sent, or while it was; it may have been carried out.
	ErrDisconnected = errors.New("peer: connection lost before the answer")
	// ErrProtocol: the answer is none.
	ErrProtocol = errors.New("peer: answer cannot be read")
	// ErrForeign: another cluster's broker, or another broker, answers at the address.
	ErrForeign = errors.New("peer: another broker answers there")
)

// What the other broker can say.
var (
	ErrUnknownTopicOrPartition = errors.New("peer: unknown topic or partition")
	ErrUnknownTopicID          = errors.New("peer: unknown topic id")
	ErrInconsistentTopicID     = errors.New("peer: topic id differs from the partition's")
	ErrOffsetOutOfRange        = errors.New("peer: offset out of range")
	ErrCorruptMessage          = errors.New("peer: the batch at that offset is damaged")
	ErrNotLeader               = errors.New("peer: not the leader")
	ErrFencedLeaderEpoch       = errors.New("peer: leader epoch is older than the leader's")
	ErrUnknownLeaderEpoch      = errors.New("peer: leader epoch is newer than the leader's")
	ErrStorage                 = errors.New("peer: the leader's storage failed")
	ErrNotController           = errors.New("peer: not the controller")
	ErrTimedOut                = errors.New("peer: request timed out")
	ErrInvalidRequest          = errors.New("peer: invalid request")
	// ErrFetchSession: the session is not known, or its number is another: open a new one.
	ErrFetchSession            = errors.New("peer: fetch session is lost")
	ErrInconsistentClusterID   = errors.New("peer: inconsistent cluster id")
	ErrDuplicateBroker         = errors.New("peer: broker id is in use")
	ErrBrokerNotRegistered     = errors.New("peer: broker is not registered")
	ErrStaleBrokerEpoch        = errors.New("peer: stale broker epoch")
	ErrInvalidRegistration     = errors.New("peer: invalid registration")
	ErrInvalidUpdateVersion    = errors.New("peer: partition epoch is behind")
	ErrIneligibleReplica       = errors.New("peer: a replica may not be in sync")
	ErrNewLeaderElected        = errors.New("peer: a new leader was elected")
	ErrOperationNotAttempted   = errors.New("peer: operation not attempted")
	ErrRemote                  = errors.New("peer: the broker answers with an error")
	ErrReassignmentInProgress  = errors.New("peer: a reassignment is in progress")
	ErrUnsupported             = errors.New("peer: unsupported version")
	ErrClusterAuthorization    = errors.New("peer: not allowed")
	ErrOffsetNotAvailable      = errors.New("peer: offset is not available")
	ErrReplicaNotAvailable     = errors.New("peer: replica is not available")
	ErrThrottlingQuotaExceeded = errors.New("peer: throttled")
)

// sentinels are the errors of codes.
var sentinels = map[int16]error{
	kerr.UnknownTopicOrPartition.Code:     ErrUnknownTopicOrPartition,
	kerr.UnknownTopicID.Code:              ErrUnknownTopicID,
	kerr.InconsistentTopicID.Code:         ErrInconsistentTopicID,
	kerr.OffsetOutOfRange.Code:            ErrOffsetOutOfRange,
	kerr.CorruptMessage.Code:              ErrCorruptMessage,
	kerr.NotLeaderForPartition.Code:       ErrNotLeader,
	kerr.FencedLeaderEpoch.Code:           ErrFencedLeaderEpoch,
	kerr.UnknownLeaderEpoch.Code:          ErrUnknownLeaderEpoch,
	kerr.KafkaStorageError.Code:           ErrStorage,
	kerr.NotController.Code:               ErrNotController,
	kerr.RequestTimedOut.Code:             ErrTimedOut,
	kerr.InvalidRequest.Code:              ErrInvalidRequest,
	kerr.FetchSessionIDNotFound.Code:      ErrFetchSession,
	kerr.InvalidFetchSessionEpoch.Code:    ErrFetchSession,
	kerr.FetchSessionTopicIDError.Code:    ErrFetchSession,
	kerr.InconsistentClusterID.Code:       ErrInconsistentClusterID,
	kerr.DuplicateBrokerRegistration.Code: ErrDuplicateBroker,
	kerr.BrokerIDNotRegistered.Code:       ErrBrokerNotRegistered,
	kerr.StaleBrokerEpoch.Code:            ErrStaleBrokerEpoch,
	kerr.InvalidUpdateVersion.Code:        ErrInvalidUpdateVersion,
	kerr.IneligibleReplica.Code:           ErrIneligibleReplica,
	kerr.NewLeaderElected.Code:            ErrNewLeaderElected,
	kerr.OperationNotAttempted.Code:       ErrOperationNotAttempted,
	kerr.ReassignmentInProgress.Code:      ErrReassignmentInProgress,
	kerr.UnsupportedVersion.Code:          ErrUnsupported,
	kerr.ClusterAuthorizationFailed.Code:  ErrClusterAuthorization,
	kerr.OffsetNotAvailable.Code:          ErrOffsetNotAvailable,
	kerr.ReplicaNotAvailable.Code:         ErrReplicaNotAvailable,
	kerr.ThrottlingQuotaExceeded.Code:     ErrThrottlingQuotaExceeded,
	kerr.InvalidRegistration.Code:         ErrInvalidRegistration,
}

// fromCode is the error of a code, nil for 0. One that has no sentinel here is ErrRemote with its name.
func fromCode(code int16) error {
	if code == 0 {
		return nil
	}
	if err := sentinels[code]; err != nil {
		return err
	}
	return fmt.Errorf("%w: %w", ErrRemote, kerr.ErrorForCode(code))
}

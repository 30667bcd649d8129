package controller

import (
	"errors"
	"fmt"
)

// The answers. Each comes wrapped in the text for the client.
var (
	// ErrInvalidTopic: the name is empty, too long, "." or "..", has other characters, or collides with another topic's.
	ErrInvalidTopic = errors.New("invalid topic")
	// ErrTopicExists: a topic of that name is there.
	ErrTopicExists = errors.New("topic already exists")
	// ErrUnknownTopic: no topic of that name.
	ErrUnknownTopic = errors.New("unknown topic")
	// ErrUnknownTopicID: no topic of that id.
	ErrUnknownTopicID = errors.New("unknown topic id")
	// ErrInvalidPartitions: the number of partitions is not possible.
	ErrInvalidPartitions = errors.New("invalid partitions")
	// ErrInvalidReplicationFactor: the number of replicas is not possible with the brokers there are.
	ErrInvalidReplicationFactor = errors.New("invalid replication factor")
	// ErrInvalidReplicaAssignment: a manual assignment makes no sense.
	ErrInvalidReplicaAssignment = errors.New("invalid replica assignment")
	// ErrInvalidRequest: the request contradicts itself.
	ErrInvalidRequest = errors.New("invalid request")
	// ErrInvalidConfig: a setting is unknown, or its value not allowed.
	ErrInvalidConfig = errors.New("invalid config")
	// ErrUnknownOperation: an operation on a setting that has no such number.
	ErrUnknownOperation = errors.New("unknown operation")
	// ErrPolicyViolation: the request is larger than the cluster takes at once.
	ErrPolicyViolation = errors.New("policy violation")
	// ErrUnknownResource: no such resource, or a kind that has no settings.
	ErrUnknownResource = errors.New("unknown resource")
	// ErrInconsistentClusterID: the process belongs to another cluster.
	ErrInconsistentClusterID = errors.New("inconsistent cluster id")
	// ErrDuplicateBroker: another live process has registered under this node id.
	ErrDuplicateBroker = errors.New("broker id is in use")
	// ErrInvalidRegistration: the process cannot be a broker as it is configured.
	ErrInvalidRegistration = errors.New("invalid registration")
	// ErrStaleBrokerEpoch: the broker has registered again since.
	ErrStaleBrokerEpoch = errors.New("stale broker epoch")
	// ErrBrokerNotRegistered: no broker of that id.
	ErrBrokerNotRegistered = errors.New("broker is not registered")
	// ErrElectionNotNeeded: the preferred replica leads.
	ErrElectionNotNeeded = errors.New("election is not needed")
	// ErrPreferredLeaderNotAvailable: the preferred replica is not in sync or not alive.
	ErrPreferredLeaderNotAvailable = errors.New("preferred leader is not available")
	// ErrEligibleLeadersNotAvailable: no replica may lead.
	ErrEligibleLeadersNotAvailable = errors.New("no eligible leader is available")
	// ErrFencedLeaderEpoch: the partition has had another leader, or another incarnation of it, since.
	ErrFencedLeaderEpoch = errors.New("fenced leader epoch")
	// ErrInvalidUpdateVersion: the partition has changed since the request was made.
	ErrInvalidUpdateVersion = errors.New("invalid update version")
	// ErrIneligibleReplica: a broker that may not join the in-sync set: not registered, fenced, shutting down, another epoch.
	ErrIneligibleReplica = errors.New("ineligible replica")
	// ErrNewLeaderElected: the change was made and moved the leadership away from the sender.
	ErrNewLeaderElected = errors.New("new leader elected")
	// ErrNoReassignment: there is no reassignment to cancel.
	ErrNoReassignment = errors.New("no reassignment in progress")
	// ErrFeatureUpdateFailed: the cluster can not have that level of a feature.
	ErrFeatureUpdateFailed = errors.New("feature update failed")
	// ErrUnsupportedFeature: a broker that does not know a level that a feature has.
	ErrUnsupportedFeature = errors.New("unsupported level of a feature")
	// ErrNotController: this node does not lead the metadata log, or lost it before the records were committed.
	ErrNotController = errors.New("this is not the controller")
	// ErrNotCommitted: the records were not committed in time, or it is not known whether they were.
	ErrNotCommitted = errors.New("not committed")
)

// Answer is an error with the text for the client. An empty text means that there is no more to say than the kind.
type Answer struct {
	Kind error
	Text string
}

// Error is the text, or that of the kind.
func (a *Answer) Error() string {
	if a.Text == "" {
		return a.Kind.Error()
	}
	return a.Text
}

// Unwrap is the kind: one of the errors of this package.
func (a *Answer) Unwrap() error { return a.Kind }

func answer(kind error, format string, args ...any) error {
	return &Answer{Kind: kind, Text: fmt.Sprintf(format, args...)}
}

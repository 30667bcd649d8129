package group

import (
	"time"
)

// JoinGroupRequest asks to become, or stay, a member of a classic group.
type JoinGroupRequest struct {
	Group, MemberID string
	// InstanceID is set for static members.
	InstanceID *string
	// ClientID and ClientHost are shown to those who describe the group; ClientHost is "/1.2.3.4" as in Kafka.
	ClientID, ClientHost string
	SessionTimeout       time.Duration
	// RebalanceTimeout of version 0 is the session timeout.
	RebalanceTimeout time.Duration
	ProtocolType     string
	// Protocols are in order of preference.
	Protocols []Protocol
	Reason    string
	// RequireKnownID (version 4 on): a new dynamic member is sent away with an id. CanSkipAssignment: version 9 on.
	RequireKnownID, CanSkipAssignment bool
}

// Protocol is a way of assigning that a member knows, and what it tells the others for it.
type Protocol struct {
	Name     string
	Metadata []byte
}

// JoinGroupResponse answers a JoinGroupRequest.
type JoinGroupResponse struct {
	Err error
	// Generation is -1 with an error.
	Generation int32
	// ProtocolType and Protocol are nil where the group has none.
	ProtocolType, Protocol *string
	Leader, MemberID       string
	// SkipAssignment tells a leader that came back that the assignment stays.
	SkipAssignment bool
	// Members is filled for the leader only.
	Members []JoinedMember
}

// JoinedMember is one member as the leader sees it.
type JoinedMember struct {
	MemberID   string
	InstanceID *string
	Metadata   []byte
}

// SyncGroupRequest asks for the member's part of the assignment; the leader's brings it.
type SyncGroupRequest struct {
	Group, MemberID string
	InstanceID      *string
	Generation      int32
	// ProtocolType and Protocol are nil before version 5.
	ProtocolType, Protocol *string
	Assignments            []Assigned
}

// Assigned is one member's part of an assignment.
type Assigned struct {
	MemberID   string
	Assignment []byte
}

// SyncGroupResponse answers a SyncGroupRequest.
type SyncGroupResponse struct {
	Err                    error
	ProtocolType, Protocol *string
	Assignment             []byte
}

// HeartbeatRequest says that a member is alive.
type HeartbeatRequest struct {
	Group, MemberID string
	InstanceID      *string
	Generation      int32
}

// HeartbeatResponse answers a HeartbeatRequest.
type HeartbeatResponse struct{ Err error }

// LeaveGroupRequest takes members out. Versions 0 to 2 have one member without an instance id.
type LeaveGroupRequest struct {
	Group   string
	Members []Leaver
}

// Leaver is a member that leaves, by its id, or by its instance id with an empty member id.
type Leaver struct {
	MemberID   string
	InstanceID *string
	Reason     string
}

// LeaveGroupResponse answers a LeaveGroupRequest. Members are in the order of the request.
type LeaveGroupResponse struct {
	Err     error
	Members []Left
}

// Left is the answer for one leaver.
type Left struct {
	MemberID   string
	InstanceID *string
	Err        error
}

// TopicPartitions are partitions of one topic.
type TopicPartitions struct {
	Topic      TopicID
	Partitions []int32
}

// ConsumerHeartbeatRequest is the one request of the consumer protocol (KIP-848).
type ConsumerHeartbeatRequest struct {
	Version         int16
	Group, MemberID string
	// MemberEpoch is 0 to join, -1 to leave, -2 to leave for a while (static members), else the member's epoch.
	MemberEpoch          int32
	InstanceID, RackID   *string
	ClientID, ClientHost string
	// RebalanceTimeoutMs is -1 when unchanged.
	RebalanceTimeoutMs int32
	// Nil fields are unchanged. SubscribedTopics and TopicPartitions tell nil from empty.
	SubscribedTopics      []string
	Regex, ServerAssignor *string
	TopicPartitions       []TopicPartitions
	// MayDescribe says whether the member may see a topic; regular expressions give it only what it may. Nil: everything.
	MayDescribe func(topic string) bool
}

// ConsumerHeartbeatResponse answers a ConsumerHeartbeatRequest.
type ConsumerHeartbeatResponse struct {
	Err                 error
	Message             string
	MemberID            string
	MemberEpoch         int32
	HeartbeatIntervalMs int32
	// Assignment is nil when it is as told before.
	Assignment *[]TopicPartitions
}

// CommitOffsetsRequest stores how far a group has read.
type CommitOffsetsRequest struct {
	// Version is the version on the wire: some errors have other names in old ones.
	Version         int16
	Group, MemberID string
	InstanceID      *string
	// Generation is the generation or the member epoch; -1 with an empty member id for a group without members.
	Generation int32
	// Retention is how long the offsets are kept from now on; negative: by the broker's rule.
	Retention time.Duration
	Offsets   []CommitOffset
}

// CommitOffset is one partition of a commit. The caller has put the topic's id and name together; an id of zero is a topic
// that does not exist.
type CommitOffset struct {
	Topic       string
	TopicID     TopicID
	Partition   int32
	Offset      int64
	LeaderEpoch int32
	Metadata    string
	// Err, if set by the caller, is the answer for this partition (no such topic, not allowed); it is not stored.
	Err error
}

// CommitOffsetsResponse answers a CommitOffsetsRequest.
type CommitOffsetsResponse struct {
	// Err holds for every partition.
	Err error
	// Partitions is in the order of the request; nil: all are stored.
	Partitions []error
}

// FetchOffsetsRequest asks how far one group has read.
type FetchOffsetsRequest struct {
	Group string
	// MemberID and MemberEpoch are checked when given: "" and -1 are not.
	MemberID    string
	MemberEpoch int32
	// All asks for everything the group has; else Topics are answered, in their order.
	All           bool
	Topics        []FetchTopic
	RequireStable bool
}

// FetchTopic is one topic of an offset fetch. The zero id is a topic that does not exist.
type FetchTopic struct {
	Topic      string
	TopicID    TopicID
	Partitions []int32
}

// FetchOffsetsResponse answers a FetchOffsetsRequest.
type FetchOffsetsResponse struct {
	Err    error
	Topics []FetchedTopic
}

// FetchedTopic is one topic of the answer.
type FetchedTopic struct {
	Topic      string
	TopicID    TopicID
	Partitions []FetchedOffset
}

// FetchedOffset is a committed offset; Offset and LeaderEpoch are -1 where nothing was committed.
type FetchedOffset struct {
	Partition   int32
	Offset      int64
	LeaderEpoch int32
	Metadata    string
}

// DeleteOffsetsRequest forgets committed offsets of one group.
type DeleteOffsetsRequest struct {
	Group  string
	Topics []FetchTopic
}

// DeleteOffsetsResponse answers it: an error for each partition in the order of the request.
type DeleteOffsetsResponse struct {
	Err        error
	Partitions [][]error
}

// Filter chooses groups for ListGroups; empty lists choose all. Names of states and types are compared without case.
type Filter struct{ States, Types []string }

// Overview is a line of ListGroups.
type Overview struct {
	Group, ProtocolType, State string
	Type                       Type
}

// ListGroupsResponse answers ListGroups.
type ListGroupsResponse struct {
	Err    error
	Groups []Overview
}

// GroupDescription answers DescribeGroups for one group.
type GroupDescription struct {
	Err                                  error
	Message                              string
	Group, State, ProtocolType, Protocol string
	Members                              []MemberDescription
}

// MemberDescription is one member of a classic group.
type MemberDescription struct {
	MemberID             string
	InstanceID           *string
	ClientID, ClientHost string
	Metadata, Assignment []byte
	// Awaited says that a rebalance waits for this member: to join again, or for the assignment that it makes as the leader.
	Awaited bool
}

// ConsumerGroupDescription answers ConsumerGroupDescribe for one group.
type ConsumerGroupDescription struct {
	Err                         error
	Message                     string
	Group, State, Assignor      string
	GroupEpoch, AssignmentEpoch int32
	Members                     []ConsumerMemberDescription
}

// ConsumerMemberDescription is one member of a consumer group.
type ConsumerMemberDescription struct {
	MemberID             string
	InstanceID, RackID   *string
	MemberEpoch          int32
	ClientID, ClientHost string
	SubscribedTopics     []string
	Regex                *string
	Assignment, Target   []TopicPartitions
	// Classic is true for a member that speaks the classic protocol (during a migration).
	Classic bool
}

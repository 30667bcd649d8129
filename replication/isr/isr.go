// Package isr gives each partition its role on this broker and decides when a record is kept.
//
// Nouns. [Replicas] is all partitions that this broker holds. A [Partition] is one of them: its log, and its part: leader,
// follower, or neither. Two pure cores decide: leader.go turns "which replica has what stable" into the high watermark and
// the in-sync set to ask for; follower.go turns a leader's answers into appends and cuts. A fetcher copies the partitions
// that one other broker leads, a session is a follower's place on its leader, a [ReplicaPoll] one fetch of it. A [Watch] is
// a reader's place in the list of those who are told when a partition moves.
//
// Who owns what. The log has one writer inside itself; a Partition's mutex guards its leadership and its queues and is
// never held across a write, a flush or a callback. High watermark and role are read with one atomic load. A follower's
// core belongs to its fetcher's goroutine; that it may still write is checked under follow.mu. The controller and the other
// brokers are reached through [Changer] and [Cluster].
//
//	produce ──validate──► log.Append ──written──► queue ──stable end──► leader core ──high watermark──► done(result)
//	                          │             (acks 1: stable end)       ▲  (acks all: high watermark)
//	                          └──► sessions of replicas ──batches──► follower ──stable end──┘
//
// A replica's stable end is its fsynced end where flush.messages is 1 and its written end elsewhere; nothing in this
// package looks at a page cache to answer a producer.
package isr

import "errors"

var (
	// ErrUnknownPartition says that this broker knows no such topic or partition, or holds no replica of it.
	ErrUnknownPartition = errors.New("isr: no such partition on this broker")
	// ErrInconsistentTopicID says that the partition on disk belongs to another topic of the same name.
	ErrInconsistentTopicID = errors.New("isr: topic id differs from the partition's")
	// ErrNotLeader says that this broker does not lead the partition (any more).
	ErrNotLeader = errors.New("isr: not the leader of this partition")
	// ErrFencedLeaderEpoch says that the caller named an older leader epoch than the current one.
	ErrFencedLeaderEpoch = errors.New("isr: leader epoch is older than the current one")
	// ErrUnknownLeaderEpoch says that the caller named a newer leader epoch than this broker knows.
	ErrUnknownLeaderEpoch = errors.New("isr: leader epoch is newer than the current one")
	// ErrNotEnoughReplicas says that the in-sync set is below min.insync.replicas; nothing was written.
	ErrNotEnoughReplicas = errors.New("isr: fewer in-sync replicas than min.insync.replicas")
	// ErrNotEnoughReplicasAfterAppend says that the in-sync set fell below min.insync.replicas after the write.
	ErrNotEnoughReplicasAfterAppend = errors.New("isr: written, then fewer in-sync replicas than min.insync.replicas")
	// ErrTimedOut says that the records are written and were not acknowledged by the in-sync set in time.
	ErrTimedOut = errors.New("isr: not acknowledged within the request's timeout")
	// ErrOffline says that the partition's log cannot be used: its disk failed, or its directory did not open.
	ErrOffline = errors.New("isr: the partition's log is offline")
	// ErrOffsetNotAvailable says that a new leader's high watermark has not yet reached the start of its epoch.
	ErrOffsetNotAvailable = errors.New("isr: high watermark is below the leader epoch's start")
	// ErrNotReplica says that the broker that fetches is no replica of the partition.
	ErrNotReplica = errors.New("isr: the broker is not a replica of this partition")
	// ErrStaleReplica says that a fetch comes from an older incarnation of its broker than the one that is registered.
	ErrStaleReplica = errors.New("isr: the replica's broker epoch is not the current one")
	// ErrForgotten says to a replica that the leader does not know any more what it has told of its log: it has to tell it again.
	ErrForgotten = errors.New("isr: the leader asks the replica again what it has")
	// ErrIneligible says that the controller refused an in-sync set because a member may not be in it.
	ErrIneligible = errors.New("isr: a replica may not join the in-sync set")
	// ErrSession says that the leader does not know a fetch session, or expects another epoch of it.
	ErrSession = errors.New("isr: fetch session is not known")
	// ErrBelowWatermark says that this replica's log leaves the leader's below the high watermark, which only an unclean
	// election explains: nothing is cut, and the partition is offline here.
	ErrBelowWatermark = errors.New("isr: refusing to truncate below the high watermark")
	// ErrInvalidAcks says that acks is none of -1, 0 and 1.
	ErrInvalidAcks = errors.New("isr: acks must be -1, 0 or 1")
	// ErrTransactional says that the batch is transactional; transactions are not served.
	ErrTransactional = errors.New("isr: transactional batches are not served")
	// ErrDeletePolicy says that records can not be deleted from a topic whose cleanup.policy is compact only.
	ErrDeletePolicy = errors.New("isr: cleanup.policy does not contain delete")
	// ErrUnsupportedTimestamp says that the asked timestamp is negative and names no special offset.
	ErrUnsupportedTimestamp = errors.New("isr: no such special timestamp")
)

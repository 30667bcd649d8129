// Package group coordinates consumers that share work: who is a member, who reads what, and how far each group has read.
//
// Nouns. A [Coordinator] serves the groups of the shards that the cluster gave to this broker. A shard is one of fifty
// parts of all group names. A [Core] is what one group is: classic (members choose the assignment) or consumer (the
// broker does, KIP-848); it is pure: an [Event] and the time go in, [Effects] come out. An entry is one key of what is
// stored of a group. A [Ticket] names a request that waits for its answer.
//
// Who owns what. A core belongs to its shard and is stepped under the shard's mutex, which is never held across a
// proposal. Whatever a step wants stored is proposed to the metadata log, one proposal of a group at a time, and what
// gathers meanwhile goes with the next. Answers leave in the order of the steps, and none before what it shows is
// committed. Time is an argument, and the one timer is asked for through [Clock].
//
//	request ──► shard ──► core.Step(event, now) ──► Effects{Entries, Replies, Deadline}
//	              │                                     │         │         └──► heap of deadlines ──► Wake
//	              │                                     ▼         ▼
//	              │                        forming batch of the group: entries, offsets, replies
//	              │                                     │ one proposal in flight
//	              ▼                                     ▼
//	        tables + overlay ◄──── index ──── metadata log ──► applied to the tables of every node
//
// What a core stores it could be made from again: a new coordinator folds the entries of its shard and goes on where the
// last one stood. Sessions are not stored; every member gets a new one then.
package group

import "errors"

var (
	// ErrInvalidGroupID says that the group's name is empty.
	ErrInvalidGroupID = errors.New("group: the group id is empty")
	// ErrNotCoordinator says that this broker does not coordinate the group (any more).
	ErrNotCoordinator = errors.New("group: not the coordinator of this group")
	// ErrLoading says that this broker is taking the group over and will serve it soon.
	ErrLoading = errors.New("group: the coordinator is loading the group")
	// ErrNotAvailable says that the coordinator can not store or answer now; the request may be sent again.
	ErrNotAvailable = errors.New("group: the coordinator is not available")
	// ErrUnknownMember says that the group has no such member.
	ErrUnknownMember = errors.New("group: no such member")
	// ErrMemberIDRequired says that a new member was given an id and is to join again with it.
	ErrMemberIDRequired = errors.New("group: join again with the member id given")
	// ErrFencedInstance says that another member has taken over the group instance id.
	ErrFencedInstance = errors.New("group: the group instance id belongs to another member now")
	// ErrUnreleasedInstance says that the group instance id is in use by a live member.
	ErrUnreleasedInstance = errors.New("group: the group instance id is still in use")
	// ErrIllegalGeneration says that the generation is not the group's.
	ErrIllegalGeneration = errors.New("group: not the current generation")
	// ErrFencedMemberEpoch says that the member's epoch is not the one that the coordinator knows.
	ErrFencedMemberEpoch = errors.New("group: not the member's epoch")
	// ErrStaleMemberEpoch says that an offset request carries another epoch than the member's current one.
	ErrStaleMemberEpoch = errors.New("group: the member epoch is stale")
	// ErrInconsistentProtocol says that the member shares no protocol with the group, or has another protocol type.
	ErrInconsistentProtocol = errors.New("group: the member's protocols do not fit the group's")
	// ErrInvalidSessionTimeout says that the session timeout is outside the broker's bounds.
	ErrInvalidSessionTimeout = errors.New("group: session timeout out of bounds")
	// ErrRebalanceInProgress says that the group is about to have a new generation.
	ErrRebalanceInProgress = errors.New("group: a rebalance is in progress")
	// ErrMaxSize says that the group has as many members as it may have.
	ErrMaxSize = errors.New("group: the group is full")
	// ErrGroupNotFound says that there is no such group, or not of the asked kind.
	ErrGroupNotFound = errors.New("group: no such group")
	// ErrNonEmpty says that the group has members.
	ErrNonEmpty = errors.New("group: the group has members")
	// ErrSubscribedTopic says that a live member of the group is subscribed to the topic.
	ErrSubscribedTopic = errors.New("group: a member is subscribed to the topic")
	// ErrUnknownTopic says that there is no such topic or partition.
	ErrUnknownTopic = errors.New("group: no such topic or partition")
	// ErrUnknownTopicID says that no topic has the id.
	ErrUnknownTopicID = errors.New("group: no topic has this id")
	// ErrMetadataTooLarge says that the metadata of a commit is longer than offset.metadata.max.bytes.
	ErrMetadataTooLarge = errors.New("group: offset metadata too large")
	// ErrTooLarge says that what would have to be stored is larger than a record of the metadata log may be.
	ErrTooLarge = errors.New("group: too large to be stored")
	// ErrInvalidRequest says that the request contradicts itself or what the protocol asks for.
	ErrInvalidRequest = errors.New("group: invalid request")
	// ErrUnsupportedAssignor says that the broker has no assignor of that name.
	ErrUnsupportedAssignor = errors.New("group: no such assignor")
	// ErrUnsupportedVersion says that the request's version can not be served for this group, or the protocol is off.
	ErrUnsupportedVersion = errors.New("group: not supported in this version")
	// ErrInvalidRegex says that the regular expression of a subscription does not compile.
	ErrInvalidRegex = errors.New("group: invalid regular expression")
	// ErrCorruptEntry says that a stored entry can not be read.
	ErrCorruptEntry = errors.New("group: damaged entry")
	// ErrNewerEntry says that a newer version of this program wrote an entry. It is not damaged.
	ErrNewerEntry = errors.New("group: an entry of a newer version")
)

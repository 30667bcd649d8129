package group

import (
	"time"
)

// Type is the kind of protocol that a group speaks.
type Type byte

// The types of group.
const (
	Classic  Type = 1
	Consumer Type = 2
)

// String names the type as Kafka's tools do.
func (t Type) String() string {
	if t == Consumer {
		return "consumer"
	}
	return "classic"
}

// Ticket names a request that waits for its answer at the coordinator. 0 is nobody.
type Ticket uint64

// Event is what happens to a group: one of *JoinGroupRequest, *SyncGroupRequest, *HeartbeatRequest, *LeaveGroupRequest,
// *ConsumerHeartbeatRequest, [Wake], [TopicsChanged], [SettingsChanged], [Gone]. What a request holds must not change after.
type Event any

type (
	// Wake says that the deadline of the last effects has come. A core may be woken early, and more often than it asked.
	Wake struct{}
	// TopicsChanged says that topics, their partitions or the racks of brokers differ from those of the last step.
	TopicsChanged struct{}
	// SettingsChanged says that Env.Settings differ from those of the last step.
	SettingsChanged struct{}
	// Gone says that the client of a waiting request has closed its connection: nobody will read that answer.
	Gone struct{ Ticket Ticket }
)

// Env is what a step may look at besides the event. It is valid during the step only.
type Env struct {
	// Now is the time of the step: for deadlines, and, as wall time, for what is stored. It never goes back.
	Now time.Time
	// Ticket is the one of the event's request; 0 for events without one.
	Ticket Ticket
	// Topics is the image of the topics.
	Topics Topics
	// Settings are those of this group.
	Settings *Settings
	// Known says that something is stored of the group, offsets among it. Where not, the core was made for this step.
	Known bool
	// NewID makes a member id, a random UUID in Kafka's text form of 22 characters.
	NewID func() string
}

// Effects are what a step asks for. The state of the core has moved already.
type Effects struct {
	// Entries are set (Value not nil) and removed, in one record, all or nothing.
	Entries []Entry
	// Replies are answered once Entries, and all that was asked for before, are committed.
	Replies []Reply
	// Become is the core that the group goes on with, nil for the same one. The coordinator asks it for its deadline.
	// Entries must turn what the old core had stored into what the new one has: see [Replacing].
	Become Core
}

// Reply answers one waiting request.
type Reply struct {
	Ticket Ticket
	// Response is a pointer to the response struct of the request's kind.
	Response any
}

// Core is what one group is at its coordinator. It is pure, and belongs to one caller at a time.
type Core interface {
	// Type is the protocol that the group speaks.
	Type() Type
	// Step takes an event in. Every ticket that comes in goes out in a reply exactly once, at once or later,
	// unless the core is dropped: then the coordinator answers. A *ConsumerHeartbeatRequest at a classic core and a *JoinGroupRequest at a
	// consumer core convert or refuse.
	Step(ev Event, env Env) Effects
	// Deadline is when the core wants to be woken; zero for never. It is exact or early, and may change with each Step
	// and CheckCommit. The coordinator reads it after every call.
	Deadline() time.Time
	// Vacant says that nobody is a member: the group can be deleted.
	Vacant() bool
	// Disposable says that the core is no different from one that was never there: nothing stored, no members, no ids that
	// wait for theirs.
	Disposable() bool
	// Size is about how many bytes of memory the members take; it need not be exact.
	Size() int
	// CheckCommit judges the member of an offset commit and extends its session. An error of the verdict holds for all
	// partitions.
	CheckCommit(r *CommitOffsetsRequest, env Env) Verdict
	// CheckFetch judges the member of an offset fetch; an empty member id and epoch -1 ask for no judgement.
	CheckFetch(r *FetchOffsetsRequest, env Env) error
	// Retains says what may expire.
	Retains(env Env) Retention
	// Subscribed says whether a live member reads the topic. Known is false when the group can not tell (other protocol
	// types than consumer).
	Subscribed(topic string) (subscribed, known bool)
	// Overview is a line of ListGroups.
	Overview() Overview
	// DescribeClassic answers DescribeGroups; DescribeConsumer answers ConsumerGroupDescribe. Each knows what it answers for
	// a group of the other type.
	DescribeClassic() *GroupDescription
	DescribeConsumer(env Env) *ConsumerGroupDescription
	// Stored is all that is stored of the group, by key: what the fold of every entry so far gives, and [Load] takes.
	Stored() []Entry
}

// Verdict is the judgement over an offset commit.
type Verdict struct {
	// Err refuses the whole commit.
	Err error
	// Partition, if not nil, judges one partition more.
	Partition func(topic TopicID, partition int32) error
}

// Retention says which committed offsets may expire, and from when on the time counts.
type Retention struct {
	// Never is true while the group keeps everything it has.
	Never bool
	// Since is when the time began to count for all offsets; zero: for each from its own commit on.
	Since time.Time
	// Keeps, if not nil, is true for topics whose offsets do not expire now.
	Keeps func(topic string) bool
}

// Load makes the core of a group from what is stored of it. A group that has offsets and no entries is a classic one
// without members. Every member begins a new session now. Entries are kept; their values must not change.
func Load(group string, entries []Entry, env Env) (Core, error) {
	head, ok := findEntry(entries, headKey)
	if !ok {
		return newClassic(group), nil
	}
	if len(head) < 2 {
		return nil, corruptEntry(group, headKey)
	}
	switch Type(head[1]) {
	case Classic:
		return loadClassic(group, entries, env)
	case Consumer:
		return loadConsumer(group, entries, env)
	}
	return nil, newerEntry(group, headKey)
}

// headKey is the key of a group's head. Its value begins with the version of its layout and the [Type] of the group.
const headKey = "g"

// Replacing are the entries that turn what is stored into what shall be stored: both sorted by key, equal ones left out.
func Replacing(before, after []Entry) []Entry {
	var changes []Entry
	i := 0
	for _, e := range after {
		for i < len(before) && before[i].Key < e.Key {
			changes = append(changes, Entry{Key: before[i].Key})
			i++
		}
		if i < len(before) && before[i].Key == e.Key {
			same := string(before[i].Value) == string(e.Value)
			i++
			if same {
				continue
			}
		}
		changes = append(changes, e)
	}
	for ; i < len(before); i++ {
		changes = append(changes, Entry{Key: before[i].Key})
	}
	return changes
}

func findEntry(entries []Entry, key string) ([]byte, bool) {
	for _, e := range entries {
		if e.Key == key {
			return e.Value, true
		}
	}
	return nil, false
}

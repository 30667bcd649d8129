// Package controller takes the decisions that the leader of the metadata log takes: request and image in, records and answers out.
//
// Nouns. A plan is a pure function from an [metadata.Image] and a request to records and one answer an item. [Controller] is
// the thin shell around the plans: it plans one request at a time against the newest image, proposes the records, and waits
// until it is known what became of them, so that every plan sees what the one before it did; whoever asked may leave before that.
//
//	request ──► turn ──► plan(image, request) ──► records ──► propose ──► in the image, or lost with the lead ──► turn given back
//	                      pure; ids and random order come from the shell                        └──► applied here ──► answers
//
// Around one partition the rules are in one place, an edit: a plan says what happened (a member left, a replica lost data,
// the assignment is another) and the rules give sets, leader and record. Liveness is a pure core of its own: reports and
// times in, who is dead out; it is forgotten with the term.
//
//	Heartbeat, Tick, Dropped ──► liveness (now is an argument) ──► fence, unfence, shut down ──► plan
//	AlterPartition, Reassign, ElectLeaders … ────────────────────────────────────────────────► plan ──► edit ──► PartitionChanged
//
// Who owns what. Nothing of the plans outlives a turn. The turn is held while records are proposed: it is the order of the
// decisions, and no reader needs it. Reports are taken under a lock of their own, so that none waits for a decision.
//
// Answers are sentinels with the text that the client is shown around them; Kafka's numbers for them are the business of
// server/api.
package controller

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/metadata"
)

// Proposer is the metadata log as a controller sees it.
type Proposer interface {
	// Image is the newest image that this node has applied.
	Image() *metadata.Image
	// Lead says in which term this node leads and has applied all earlier entries; an error when it does not lead.
	Lead() (term uint64, err error)
	// ProposeAt commits records that were planned in a term and waits until they are in Image. The results are in the order of the records,
	// and as many. It is called with a context that does not end: it returns when it is known what became of the records, or this node
	// does not lead any more and cannot know.
	ProposeAt(ctx context.Context, term uint64, records []metadata.Record) (index uint64, results []metadata.Result, err error)
}

// Options are what a controller needs.
type Options struct {
	Proposer Proposer
	// Static is the configuration that the process was started with.
	Static *config.Broker
	// Rand orders placements and makes topic ids (with NewID nil). It is used under the controller's lock only.
	Rand *rand.Rand
	// NewID makes topic ids; nil takes them from Rand, which must then be seeded from a cryptographic source.
	NewID func() metadata.TopicID
	// Verify asks a majority whether this node still leads; nil where there is no other. A heartbeat that renews a lease is
	// answered after it: else a controller that was cut off, and does not know it yet, would have a leader beside it go on
	// answering for up to half a second longer than its successor waits.
	Verify func(context.Context) error
	// Applied waits until what follows the image on this node, its partitions above all, has an index; whoever asked for a decision hears
	// of it after that. Nil where nothing does.
	Applied func(ctx context.Context, index uint64) error
	// Busy says that there are groups in a shard: without any it moves at once when that makes the brokers' parts even. Nil is always.
	Busy func(shard int32) bool
	// HeardFormer says, when this node has begun to lead, how long ago it last heard of the leader before it; nil where there is none. A leader
	// that hands over may have renewed a broker's lease a moment before.
	HeardFormer func() time.Duration
	// Node is the broker of this process: a proposal that is done has been applied here, so WaitApplied does not wait for it.
	Node   metadata.BrokerID
	Logger *slog.Logger
}

// Controller decides. Its methods are safe for concurrent use; each waits for its turn.
type Controller struct {
	o Options
	// turn is the order of decisions; see the package comment. It holds one token, of who decides; whoever waits for it watches its context
	// too. It is taken before liveMu.
	turn chan struct{}

	liveMu sync.Mutex // guards live, wake and waiting; never held across a proposal
	live   liveness
	// wake is closed and replaced when a broker has reported or was fenced.
	wake chan struct{}
	// waiting are changes of in-sync sets whose turn has not come.
	waiting []*inSyncCall
	// known is what the brokers say that they know. It is guarded by liveMu too.
	known map[metadata.BrokerID]knowledge
}

// New makes a controller.
func New(o Options) *Controller {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Controller{o: o, live: liveness{heardFormer: o.HeardFormer}, turn: make(chan struct{}, 1), wake: make(chan struct{})}
}

// CreateTopic asks for one topic.
type CreateTopic struct {
	Name string
	// Partitions is -1 for num.partitions. Replicas is -1 for the default replication factor. Both are -1 with Assignment.
	Partitions int32
	Replicas   int16
	Assignment []PartitionAssignment
	Configs    []metadata.Setting
}

// PartitionAssignment places one partition by hand.
type PartitionAssignment struct {
	Partition int32
	Brokers   []metadata.BrokerID
}

// CreateTopicsRequest asks for topics. The request's items stand or fall one by one.
type CreateTopicsRequest struct {
	Topics       []CreateTopic
	ValidateOnly bool
}

// CreatedTopic is the answer for one topic. Without Err the other fields are set; ID is zero with ValidateOnly.
type CreatedTopic struct {
	Name       string
	Err        error
	ID         metadata.TopicID
	Partitions int32
	Replicas   int16
	// Configs are the topic's own settings.
	Configs map[string]string
}

// TopicRef names a topic by name or, where Name is empty, by id.
type TopicRef struct {
	Name string
	ID   metadata.TopicID
}

// DeletedTopic is the answer for one topic. Name and ID are filled in where the topic is known.
type DeletedTopic struct {
	Name string
	ID   metadata.TopicID
	Err  error
}

// GrowTopic asks for more partitions. Assignments places each new one by hand, empty leaves it to the controller.
type GrowTopic struct {
	Name        string
	Count       int32
	Assignments [][]metadata.BrokerID
}

// CreatePartitionsRequest asks for more partitions of topics.
type CreatePartitionsRequest struct {
	Topics       []GrowTopic
	ValidateOnly bool
}

// GrownTopic is the answer for one topic.
type GrownTopic struct {
	Name string
	Err  error
}

// ConfigOp is one operation on one setting. Value is nil for DELETE.
type ConfigOp struct {
	Key   string
	Op    config.Op
	Value *string
}

// AlterResource is a list of operations on the settings of one resource.
type AlterResource struct {
	Resource metadata.Resource
	Ops      []ConfigOp
}

// AlterConfigsRequest changes settings. Each resource stands or falls as a whole.
type AlterConfigsRequest struct {
	Resources    []AlterResource
	ValidateOnly bool
	// Receiver is the broker that the client asked: settings of one broker must reach that one. AnyBroker takes any.
	Receiver metadata.BrokerID
}

// AnyBroker is the Receiver of a request that came from inside.
const AnyBroker metadata.BrokerID = -1

// ReplaceResource is the whole set of settings of one resource.
type ReplaceResource struct {
	Resource metadata.Resource
	Settings []metadata.Setting
}

// ReplaceConfigsRequest replaces settings: what it does not name is removed.
type ReplaceConfigsRequest struct {
	Resources    []ReplaceResource
	ValidateOnly bool
	// Receiver is as in AlterConfigsRequest.
	Receiver metadata.BrokerID
}

// AlteredResource is the answer for one resource.
type AlteredResource struct {
	Resource metadata.Resource
	Err      error
}

// ProducerIDs is a block of producer ids: First, First+1, … Count of them.
type ProducerIDs struct {
	First int64
	Count int32
}

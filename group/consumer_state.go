package group

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/keeplog/keeplog/internal/invariant"
)

// memberState says how far a member is on its way from one assignment to the next.
type memberState byte

const (
	// stable: the member has what its epoch's target gave it.
	stable memberState = 1
	// unrevoked: the member was told to give partitions up and has not said yet that it did.
	unrevoked memberState = 2
	// unreleased: the member has its new epoch, and waits for partitions that others still hold.
	unreleased memberState = 3
)

func (s memberState) String() string {
	return [...]string{"unknown", "stable", "unrevoked", "unreleased"}[s&3]
}

// grant is a partition and the member epoch in which the member got it.
type grant struct{ partition, epoch int32 }

// grants are what a member holds, by topic; lists are sorted by partition and not empty.
type grants map[TopicID][]grant

func compareGrants(a, b grant) int { return cmp.Compare(a.partition, b.partition) }

func (g grants) find(topic TopicID, partition int32) (epoch int32, ok bool) {
	list := g[topic]
	if i, found := slices.BinarySearchFunc(list, grant{partition: partition}, compareGrants); found {
		return list[i].epoch, true
	}
	return 0, false
}

// partitions are the same without the epochs.
func (g grants) partitions() Partitions {
	p := make(Partitions, len(g))
	for id, list := range g {
		for _, one := range list {
			p[id] = append(p[id], one.partition)
		}
	}
	return p
}

func (g grants) add(topic TopicID, one ...grant) {
	if len(one) == 0 {
		return
	}
	list := append(slices.Clip(g[topic]), one...)
	slices.SortFunc(list, compareGrants)
	g[topic] = list
}

func (g grants) topics() []TopicID { return slices.SortedFunc(maps.Keys(g), compareTopics) }

func sameGrants(a, b grants) bool { return maps.EqualFunc(a, b, slices.Equal[[]grant]) }

// samePartitions is sameGrants, epochs aside.
func samePartitions(a, b grants) bool {
	return maps.EqualFunc(a, b, func(x, y []grant) bool {
		return slices.EqualFunc(x, y, func(p, q grant) bool { return p.partition == q.partition })
	})
}

// consumerMember is one member. It never changes: a new value takes its place.
type consumerMember struct {
	id string
	// instance and rack are empty for none.
	instance, rack, clientID, clientHost string
	rebalanceTimeoutMs                   int32
	// topics are sorted; regex and assignor are empty for none.
	topics          []string
	regex, assignor string
	// classic is nil for members that speak the consumer protocol.
	classic *classicSide

	// epoch is leftForNow for a static member that is away. previous is the epoch before.
	epoch, previous int32
	state           memberState
	// assigned is what the member may use, revoking what it was told to give up. Both are its own: nobody else gets them.
	assigned, revoking grants
}

// classicSide is what a member told by JoinGroup.
type classicSide struct {
	sessionTimeoutMs int32
	protocols        []Protocol
}

// Member epochs with a meaning.
const (
	joining    = 0
	leaving    = -1
	leftForNow = -2
)

func newConsumerMember(id string) *consumerMember {
	return &consumerMember{id: id, state: stable, rebalanceTimeoutMs: -1}
}

// inEpoch moves to an epoch and remembers the one before.
func (m *consumerMember) inEpoch(epoch int32) {
	if m.epoch != epoch {
		m.previous, m.epoch = m.epoch, epoch
	}
}

func sameSubscription(a, b *consumerMember) bool {
	return a.instance == b.instance && a.rack == b.rack && a.clientID == b.clientID && a.clientHost == b.clientHost &&
		a.rebalanceTimeoutMs == b.rebalanceTimeoutMs && slices.Equal(a.topics, b.topics) && a.regex == b.regex &&
		a.assignor == b.assignor && sameClassicSide(a.classic, b.classic)
}

func sameClassicSide(a, b *classicSide) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.sessionTimeoutMs == b.sessionTimeoutMs && slices.EqualFunc(a.protocols, b.protocols, func(p, q Protocol) bool {
		return p.Name == q.Name && string(p.Metadata) == string(q.Metadata)
	})
}

func sameCurrent(a, b *consumerMember) bool {
	return a.epoch == b.epoch && a.previous == b.previous && a.state == b.state &&
		sameGrants(a.assigned, b.assigned) && sameGrants(a.revoking, b.revoking)
}

// resolvedRegex is what a regular expression stood for when it was last looked up.
type resolvedRegex struct {
	// topics are sorted.
	topics []string
	// index is that of the topics it was looked up in, atMs the time, in ms since 1970.
	index uint64
	atMs  int64
}

// consumerState is what is stored of a consumer group, and what follows from it. It is changed by set, remove and fold only,
// while the group is served and when it is loaded.
type consumerState struct {
	// epoch goes up when the target must be computed anew, assignmentEpoch is the one that target belongs to.
	epoch, assignmentEpoch int32
	// assignedMs is when the target was computed, in ms since 1970; 0 for never.
	assignedMs int64
	// hash stands for everything about the subscribed topics that an assignment depends on.
	hash    uint64
	members map[string]*consumerMember
	target  map[string]Partitions
	regexes map[string]resolvedRegex

	// What follows: who has an instance id, who holds a partition (assigned or revoking), how many use a regular expression,
	// how many members speak the classic protocol.
	statics  map[string]string
	holders  map[place]string
	patterns map[string]int
	classics int
}

func newConsumerState() consumerState {
	return consumerState{
		members: make(map[string]*consumerMember), target: make(map[string]Partitions), regexes: make(map[string]resolvedRegex),
		statics: make(map[string]string), holders: make(map[place]string), patterns: make(map[string]int),
	}
}

// set puts a member in, or in the place of its former value. It is false, and nothing changes, when another member holds one
// of its partitions.
func (s *consumerState) set(m *consumerMember) bool {
	if !invariant.Seeded(invariant.TwoOwners) && !invariant.Seeded(invariant.RevokedOnTrust) {
		for _, held := range []grants{m.assigned, m.revoking} {
			for id, list := range held {
				for _, g := range list {
					if who, taken := s.holders[place{id, g.partition}]; taken && who != m.id {
						return false
					}
				}
			}
		}
	}
	s.drop(m.id)
	s.members[m.id] = m
	for _, held := range []grants{m.assigned, m.revoking} {
		for id, list := range held {
			for _, g := range list {
				s.holders[place{id, g.partition}] = m.id
			}
		}
	}
	if m.instance != "" {
		s.statics[m.instance] = m.id
	}
	if m.regex != "" {
		s.patterns[m.regex]++
	}
	if m.classic != nil {
		s.classics++
	}
	return true
}

// drop takes a member out; its target stays.
func (s *consumerState) drop(id string) {
	m := s.members[id]
	if m == nil {
		return
	}
	delete(s.members, id)
	for _, held := range []grants{m.assigned, m.revoking} {
		for topic, list := range held {
			for _, g := range list {
				if s.holders[place{topic, g.partition}] == id {
					delete(s.holders, place{topic, g.partition})
				}
			}
		}
	}
	if m.instance != "" && s.statics[m.instance] == id {
		delete(s.statics, m.instance)
	}
	if m.regex != "" {
		if s.patterns[m.regex]--; s.patterns[m.regex] == 0 {
			delete(s.patterns, m.regex)
		}
	}
	if m.classic != nil {
		s.classics--
	}
}

// static is the member that has an instance id; nil for none.
func (s *consumerState) static(instance string) *consumerMember {
	if id, ok := s.statics[instance]; ok {
		return s.members[id]
	}
	return nil
}

// memberIDs lists the members by id.
func (s *consumerState) memberIDs() []string { return slices.Sorted(maps.Keys(s.members)) }

// reconciled says that a member has all that the target gives it.
func (s *consumerState) reconciled(m *consumerMember) bool {
	return m.state == stable && m.epoch == s.assignmentEpoch
}

// The states of a consumer group, as Kafka names them.
const (
	stateEmpty       = "Empty"
	stateAssigning   = "Assigning"
	stateReconciling = "Reconciling"
	stateStable      = "Stable"
	stateDead        = "Dead"
)

func (s *consumerState) state() string {
	switch {
	case len(s.members) == 0:
		return stateEmpty
	case s.epoch > s.assignmentEpoch:
		return stateAssigning
	}
	for _, m := range s.members {
		if !s.reconciled(m) {
			return stateReconciling
		}
	}
	return stateStable
}

// assignorName is the assignor that most members ask for; of several the first by name; empty where nobody asks.
func (s *consumerState) assignorName() string {
	votes := make(map[string]int)
	for _, m := range s.members {
		if m.assignor != "" {
			votes[m.assignor]++
		}
	}
	best := ""
	for name, n := range votes {
		if best == "" || n > votes[best] || n == votes[best] && name < best {
			best = name
		}
	}
	return best
}

// topicNames are all topics that members are subscribed to, sorted, by name or by a regular expression that was looked up.
func (s *consumerState) topicNames() []string {
	names := make(map[string]bool)
	for _, m := range s.members {
		for _, name := range m.topics {
			names[name] = true
		}
	}
	for pattern := range s.patterns {
		for _, name := range s.regexes[pattern].topics {
			names[name] = true
		}
	}
	return slices.SortedFunc(maps.Keys(names), strings.Compare)
}

// subscribed says whether a member is subscribed to a topic.
func (s *consumerState) subscribed(topic string) bool {
	for _, m := range s.members {
		if _, found := slices.BinarySearch(m.topics, topic); found {
			return true
		}
	}
	for pattern := range s.patterns {
		if _, found := slices.BinarySearch(s.regexes[pattern].topics, topic); found {
			return true
		}
	}
	return false
}

// subscription lists the ids of the existing topics that a member is subscribed to, sorted.
func (s *consumerState) subscription(m *consumerMember, topics Topics) []TopicID {
	var ids []TopicID
	for _, list := range [][]string{m.topics, s.regexes[m.regex].topics} {
		for _, name := range list {
			if id, _, ok := topics.Topic(name); ok {
				ids = append(ids, id)
			}
		}
	}
	slices.SortFunc(ids, compareTopics)
	return slices.Compact(ids)
}

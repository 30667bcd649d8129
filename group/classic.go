package group

import (
	"slices"
	"time"

	"github.com/keeplog/keeplog/internal/invariant"
)

// state is where a classic group is between two generations.
type classicState byte

const (
	// classicEmpty: no members; there may be offsets, and members that were given an id and have not come back with it.
	classicEmpty classicState = iota
	// classicPreparing: members are to join again, and are kept waiting until all have, or the time is over.
	classicPreparing
	// classicCompleting: the generation is known, its assignment is not.
	classicCompleting
	// classicStable: every member can ask for its assignment.
	classicStable
)

// String names the state as Kafka's tools do.
func (s classicState) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"}[s]
}

const (
	// consumerProtocol is the protocol type whose member metadata the coordinator understands.
	consumerProtocol = "consumer"
	// newMemberPatience is how long a member that nobody has told its id may wait for a generation.
	newMemberPatience = 5 * time.Minute
	// maxPending is the number of ids that a group gives away and waits for.
	maxPending = 10_000
	// pendingCost is about how many bytes such an id takes beside its own.
	pendingCost = 200
	// maxMetadata is the size of one protocol's metadata, maxProtocols that of all of a member, maxStored what one change of a
	// group may store. A record of the metadata log is not larger than 1 MiB.
	maxMetadata  = 512 << 10
	maxProtocols = 2 << 20
	maxStored    = 960 << 10
)

// classic is a group whose members choose the assignment among themselves: one of them, the leader, computes it.
//
//	         join                    all joined, or time over                leader's sync
//	empty ─────────► preparing ───────────────────────────► completing ────────────────► stable
//	  ▲                │  ▲                                     │                           │
//	  └────────────────┘  └─────── join, leave, session over ───┴───────────────────────────┘
//	     nobody is left
type classic struct {
	id    string
	state classicState
	// since is when the state was entered.
	since      time.Time
	generation int32
	// protocolType is nil until the first member joins; protocol is nil while the group is empty.
	protocolType, protocol *string
	leader                 string
	// members in the order in which they joined.
	members []*member
	byID    map[string]*member
	static  map[string]*member
	// pending are ids that were given away, with the time at which they are void; pendingSize is about how many bytes they take.
	pending     map[string]time.Time
	pendingSize int
	// topics are what the members subscribed to; nil when that is not known.
	topics map[string]bool

	join   joinTimer
	synced time.Time // when those that have not asked for their assignment are out; zero: all have, or none needs to
	next   time.Time // not after the first of all deadlines; zero: there is none
	stored []Entry
	size   int
}

// joinTimer ends the preparing state.
type joinTimer struct {
	at time.Time // zero: not running
	// initial is true for a group that was empty: more members are waited for in steps of the initial delay, step being the
	// last one and left what may be added. grown says that a member came since.
	initial, grown bool
	step, left     time.Duration
}

// member is one member of a classic group.
type member struct {
	id                   string
	instance             *string
	clientID, clientHost string
	session, rebalance   time.Duration
	protocols            []Protocol
	assignment           []byte
	// expires ends the session; zero: no timer runs, because the member waits for an answer.
	expires time.Time
	// fresh: nobody has told the member that it is one.
	fresh bool
	// joining and syncing are the tickets that wait; 0: none.
	joining, syncing Ticket
	// unsynced: in this generation it has not asked for its assignment.
	unsynced bool
	// anonymous: the member does not know its id before the join is answered.
	anonymous bool
}

// effects gathers what a step asks for.
type effects struct {
	Effects
	c   *classic
	env Env
}

func (f *effects) reply(t Ticket, response any) {
	if t != 0 {
		f.Replies = append(f.Replies, Reply{t, response})
	}
}

func newClassic(group string) *classic {
	return &classic{id: group, byID: map[string]*member{}, static: map[string]*member{}, pending: map[string]time.Time{}}
}

func (c *classic) Type() Type { return Classic }

// Step takes an event in.
func (c *classic) Step(ev Event, env Env) Effects {
	f := &effects{c: c, env: env}
	switch ev := ev.(type) {
	case *JoinGroupRequest:
		c.onJoin(ev, f)
	case *SyncGroupRequest:
		c.onSync(ev, f)
	case *HeartbeatRequest:
		f.reply(env.Ticket, &HeartbeatResponse{Err: c.onHeartbeat(ev, f)})
	case *LeaveGroupRequest:
		c.onLeave(ev, f)
	case *ConsumerHeartbeatRequest:
		return joinConsumer(c, ev, env)
	case Gone:
		c.onGone(ev.Ticket, f)
	}
	c.expire(f)
	return f.Effects
}

// Deadline is when the core wants to be woken.
func (c *classic) Deadline() time.Time { return c.next }

// expire does what is due, in the order of the deadlines.
func (c *classic) expire(f *effects) {
	now := f.env.Now
	for {
		if c.next.IsZero() || now.Before(c.next) {
			return
		}
		at, act := c.earliest()
		c.next = at
		if at.IsZero() || now.Before(at) {
			return
		}
		act(f)
	}
}

// earliest finds the first deadline and what is to be done then.
func (c *classic) earliest() (at time.Time, act func(*effects)) {
	offer := func(t time.Time, do func(*effects)) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at, act = t, do
		}
	}
	offer(c.join.at, c.joinTimeout)
	offer(c.synced, c.syncTimeout)
	var last *member
	for _, m := range c.members {
		if !m.expires.IsZero() && (last == nil || m.expires.Before(last.expires)) {
			last = m
		}
	}
	if last != nil {
		offer(last.expires, c.sessionsOver)
	}
	var void time.Time
	for _, t := range c.pending {
		if void.IsZero() || t.Before(void) {
			void = t
		}
	}
	offer(void, c.dropPending)
	return at, act
}

// wake makes sure that the core is woken at t.
func (c *classic) wake(t time.Time) {
	if c.next.IsZero() || t.Before(c.next) {
		c.next = t
	}
}

func (c *classic) extend(m *member, now time.Time) {
	m.expires = now.Add(m.session)
	c.wake(m.expires)
}

func (c *classic) enter(s classicState, now time.Time) {
	c.state, c.since = s, now
}

// sessionsOver: the time of members is up, of all whose is before the next thing that is due; there may be many. One that waits for an answer
// is alive; its session goes on with the answer. A fresh one that waits that long is not believed to be there any more, unless it
// waited for those that are out now.
func (c *classic) sessionsOver(f *effects) {
	limit := f.env.Now
	for _, t := range []time.Time{c.join.at, c.synced} {
		if !t.IsZero() && t.Before(limit) {
			limit = t
		}
	}
	out, fresh := map[*member]bool{}, map[*member]bool{}
	for _, m := range c.members {
		switch {
		case m.expires.IsZero() || m.expires.After(limit):
		case m.fresh:
			fresh[m] = true
		case m.joining != 0 || m.syncing != 0:
			m.expires = time.Time{}
		default:
			out[m] = true
		}
	}
	if len(out) == 0 {
		out = fresh
	}
	if len(out) > 0 {
		c.removeAll(out, f)
		c.afterRemoval(f)
	}
}

// dropPending forgets the ids whose time is up, all of them at once: there may be many.
func (c *classic) dropPending(f *effects) {
	for id, until := range c.pending {
		if !f.env.Now.Before(until) {
			c.forgetPending(id)
		}
	}
	c.completeIfJoined(f, false)
}

// forgetPending says whether an id was given away, which counts no more.
func (c *classic) forgetPending(id string) bool {
	_, ok := c.pending[id]
	if ok {
		delete(c.pending, id)
		c.pendingSize -= pendingCost + len(id)
	}
	return ok
}

// afterRemoval goes on when members are gone: a new generation, or the end of waiting for those that are gone.
func (c *classic) afterRemoval(f *effects) {
	switch c.state {
	case classicCompleting, classicStable:
		c.prepare(f)
	case classicPreparing:
		c.completeIfJoined(f, false)
	}
}

// remove takes a member out, and answers what it waits for.
func (c *classic) remove(m *member, f *effects) { c.removeAll(map[*member]bool{m: true}, f) }

// removeAll is remove for many, in the order in which they joined.
func (c *classic) removeAll(out map[*member]bool, f *effects) {
	c.members = slices.DeleteFunc(c.members, func(m *member) bool {
		if !out[m] {
			return false
		}
		f.reply(m.joining, &JoinGroupResponse{Err: ErrUnknownMember, Generation: -1})
		f.reply(m.syncing, &SyncGroupResponse{Err: ErrUnknownMember})
		m.joining, m.syncing = 0, 0
		c.size -= m.memory()
		delete(c.byID, m.id)
		if m.instance != nil && c.static[*m.instance] == m {
			delete(c.static, *m.instance)
		}
		return true
	})
	if c.byID[c.leader] == nil {
		c.leader = ""
		if len(c.members) > 0 {
			c.leader = c.members[0].id
		}
	}
}

// find checks that a request comes from a member: the instance first, then the member id.
func (c *classic) find(id string, instance *string) (*member, error) {
	if instance != nil {
		switch m := c.static[*instance]; {
		case m == nil:
			return nil, ErrUnknownMember
		case m.id != id && invariant.Seeded(invariant.OldIDServed):
			return m, nil
		case m.id != id:
			return nil, ErrFencedInstance
		}
	}
	m := c.byID[id]
	if m == nil {
		return nil, ErrUnknownMember
	}
	return m, nil
}

// rebalanceTimeout is the longest that a member asks for.
func (c *classic) rebalanceTimeout() time.Duration {
	var longest time.Duration
	for _, m := range c.members {
		longest = max(longest, m.rebalance)
	}
	return longest
}

func (c *classic) awaiting() int {
	n := 0
	for _, m := range c.members {
		if m.joining != 0 {
			n++
		}
	}
	return n
}

// metadata is what the member tells the others for a protocol.
func (m *member) metadata(protocol *string) []byte {
	if protocol == nil {
		return nil
	}
	for _, p := range m.protocols {
		if p.Name == *protocol {
			return p.Metadata
		}
	}
	return nil
}

func (m *member) speaks(protocol string) bool {
	return slices.ContainsFunc(m.protocols, func(p Protocol) bool { return p.Name == protocol })
}

func (m *member) same(protocols []Protocol) bool {
	return slices.EqualFunc(m.protocols, protocols, func(a, b Protocol) bool {
		return a.Name == b.Name && string(a.Metadata) == string(b.Metadata)
	})
}

func (m *member) memory() int {
	n := 512 + 3*len(m.id) + len(m.clientID) + len(m.clientHost) + 2*len(m.assignment)
	for _, p := range m.protocols {
		n += len(p.Name) + 2*len(p.Metadata) + 40
	}
	return n
}

// Size is about how many bytes the group takes.
func (c *classic) Size() int { return 1024 + c.size + c.pendingSize }

// Vacant says that nobody is a member or about to be one.
func (c *classic) Vacant() bool {
	return len(c.members) == 0 && len(c.pending) == 0 && c.state == classicEmpty
}

// Disposable says that nothing is stored and nobody is there.
func (c *classic) Disposable() bool { return c.Vacant() && len(c.stored) == 0 }

// Fail answers everybody who waits, because the group goes on as another core.
func (c *classic) Fail(err error) []Reply {
	f := &effects{}
	for _, m := range c.members {
		f.reply(m.joining, &JoinGroupResponse{Err: err, Generation: -1, MemberID: m.id})
		f.reply(m.syncing, &SyncGroupResponse{Err: err})
		m.joining, m.syncing = 0, 0
	}
	return f.Replies
}

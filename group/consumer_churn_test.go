package group

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// churner is a client: it heartbeats, takes in what it is told, gives up what it must after a while, and dies or leaves.
type churner struct {
	id, instance string
	topics       []string
	regex        string
	epoch        int32
	// owned is what it reads: given, and not reported as given up.
	owned map[place]bool
	// doomed is what it was told to give up and still reads, until at.
	doomed map[place]bool
	until  time.Time
	// full is set when an answer was lost: the next heartbeat tells everything.
	full bool
	next time.Time
	// classic members join, sync and heartbeat; lazy ones (eager protocol) give everything up before they join.
	classic, eager, joined, busy bool
	// index is that of the topics that a classic leader assigned; it joins again when they have changed. 0: not the leader.
	index uint64
	gone  bool
}

// churn is a group with clients that come and go, in virtual time. It stops at the first thing that must not be.
type churn struct {
	*bench
	rnd     *rand.Rand
	clients []*churner
	born    int
	fault   string
	// epoch is the highest group epoch seen; it never goes back while the group is a consumer group.
	epoch, assignment int32
	losing            bool
	// story is what was asked and answered.
	story []string
}

// tell keeps a line of the story.
func (c *churn) tell(format string, args ...any) {
	c.story = append(c.story, c.now.Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

// ask tells the story of a request and its answer.
func (c *churn) ask(request any, then func(any)) {
	c.tell("  > %s", c.brief(request))
	c.bench.ask(request, func(answer any) {
		c.tell("  < %s", c.brief(answer))
		then(answer)
	})
}

func (c *churn) brief(m any) string {
	switch r := m.(type) {
	case *ConsumerHeartbeatRequest:
		return fmt.Sprintf("heartbeat %s epoch=%d topics=%v owned=%s (%v)", r.MemberID, r.MemberEpoch, r.SubscribedTopics, showPartitions(r.TopicPartitions, c.topics), r.TopicPartitions != nil)
	case *ConsumerHeartbeatResponse:
		if r.Err != nil {
			return fmt.Sprintf("%s %v", r.MemberID, r.Err)
		}
		if r.Assignment == nil {
			return fmt.Sprintf("%s epoch=%d", r.MemberID, r.MemberEpoch)
		}
		return fmt.Sprintf("%s epoch=%d %s", r.MemberID, r.MemberEpoch, showPartitions(*r.Assignment, c.topics))
	case *JoinGroupRequest:
		s, _ := parseSubscription(r.Protocols[0].Metadata)
		return fmt.Sprintf("join %s topics=%v owned=%v", r.MemberID, s.topics, s.owned)
	case *JoinGroupResponse:
		return fmt.Sprintf("join %s generation=%d leader=%s %v", r.MemberID, r.Generation, r.Leader, r.Err)
	case *SyncGroupRequest:
		return fmt.Sprintf("sync %s generation=%d %d parts", r.MemberID, r.Generation, len(r.Assignments))
	case *SyncGroupResponse:
		parts, _ := parseAssignment(r.Assignment)
		return fmt.Sprintf("sync %v %v", parts, r.Err)
	case *HeartbeatRequest:
		return fmt.Sprintf("classic heartbeat %s generation=%d", r.MemberID, r.Generation)
	case *HeartbeatResponse:
		return fmt.Sprintf("classic heartbeat %v", r.Err)
	}
	return fmt.Sprintf("%T %+v", m, m)
}

func (c *churn) fail(format string, args ...any) {
	if c.fault == "" {
		c.fault = fmt.Sprintf(format, args...)
	}
}

func newChurn(t testing.TB, seed uint64) *churn {
	c := &churn{bench: newBench(t), rnd: rand.New(rand.NewPCG(seed, 848)), losing: true}
	c.topics.set("a", 6)
	c.topics.set("b", 3)
	c.topics.set("axe", 1)
	c.settings.Consumer.HeartbeatInterval = time.Second
	c.settings.Consumer.SessionTimeout = 10 * time.Second
	if c.rnd.IntN(2) == 0 {
		c.settings.Consumer.AssignmentInterval = 2 * time.Second
	}
	return c
}

func (c *churn) subscription() (topics []string, regex string) {
	switch c.rnd.IntN(4) {
	case 0:
		return nil, "a.*"
	case 1:
		return []string{"a"}, ""
	case 2:
		return []string{"b", "new"}, "ax?e?"
	}
	return []string{"a", "b", "new"}, ""
}

func (c *churn) spawn(instance string) {
	c.born++
	n := &churner{id: fmt.Sprintf("m%03d", c.born), instance: instance, owned: map[place]bool{}, doomed: map[place]bool{}, next: c.now}
	n.topics, n.regex = c.subscription()
	if c.rnd.IntN(3) == 0 {
		n.classic, n.eager, n.regex = true, c.rnd.IntN(2) == 0, ""
		n.id = ""
		if len(n.topics) == 0 {
			n.topics = []string{"a"}
		}
	}
	c.clients = append(c.clients, n)
}

// events is what may happen in one step besides heartbeats.
func (c *churn) event() {
	alive := c.living()
	switch n := c.rnd.IntN(40); {
	case n == 0 && len(alive) < 9:
		c.spawn("")
	case n == 1 && len(alive) < 9:
		c.spawnStatic()
	case n == 2 && len(alive) > 0:
		alive[c.rnd.IntN(len(alive))].gone = true // dies without a word
	case n == 3 && len(alive) > 0:
		c.leave(alive[c.rnd.IntN(len(alive))])
	case n == 4 && len(alive) > 0:
		x := alive[c.rnd.IntN(len(alive))]
		if !x.classic {
			x.topics, x.regex = c.subscription()
			x.full = true
		}
	case n == 5:
		c.topics.set([]string{"a", "b", "new", "axe2"}[c.rnd.IntN(4)], c.rnd.IntN(8))
	case n == 6:
		c.tell("another coordinator")
		c.reload()
	case n == 7 && len(alive) > 0:
		// A pause, perhaps longer than the session.
		x := alive[c.rnd.IntN(len(alive))]
		x.next = c.now.Add(time.Duration(c.rnd.IntN(20)) * time.Second)
	}
}

func (c *churn) living() []*churner {
	var alive []*churner
	for _, x := range c.clients {
		if !x.gone {
			alive = append(alive, x)
		}
	}
	return alive
}

// spawnStatic brings a static member back, or a new one. The one before has left for a while.
func (c *churn) spawnStatic() {
	instance := fmt.Sprintf("i%d", c.rnd.IntN(2))
	for _, x := range c.living() {
		if x.instance == instance {
			if x.classic {
				return
			}
			if x.epoch > 0 && !x.busy {
				c.heartbeat(x, leftForNow)
			}
			x.gone = true
		}
	}
	c.spawn(instance)
}

func (c *churn) leave(x *churner) {
	x.gone = true
	if x.epoch <= 0 || x.id == "" {
		return
	}
	if x.classic {
		leaver := Leaver{MemberID: x.id, InstanceID: optional(x.instance)}
		c.ask(&LeaveGroupRequest{Group: "g", Members: []Leaver{leaver}}, func(any) {})
		return
	}
	c.heartbeat(x, leaving)
}

func (x *churner) report() []TopicPartitions {
	held := make(Partitions)
	for p := range x.owned {
		held[p.topic] = append(held[p.topic], p.partition)
	}
	for id := range held {
		slices.Sort(held[id])
	}
	return toldPartitions(held)
}

func (x *churner) reset() {
	x.epoch, x.full, x.joined, x.busy = 0, true, false, false
	x.owned, x.doomed = map[place]bool{}, map[place]bool{}
}

// heartbeat sends the consumer protocol's request.
func (c *churn) heartbeat(x *churner, epoch int32) {
	r := &ConsumerHeartbeatRequest{
		Version: 1, Group: "g", MemberID: x.id, MemberEpoch: epoch, InstanceID: optional(x.instance), RebalanceTimeoutMs: -1,
		ClientID: "c", ClientHost: "/h",
	}
	if epoch == 0 || x.full || c.rnd.IntN(8) == 0 {
		r.RebalanceTimeoutMs, r.SubscribedTopics, r.Regex, r.TopicPartitions = 8000, slices.Clone(x.topics), &x.regex, x.report()
		if r.SubscribedTopics == nil {
			r.SubscribedTopics = []string{}
		}
	}
	if len(x.doomed) == 0 || c.rnd.IntN(3) > 0 {
		r.TopicPartitions = x.report()
	}
	if c.losing && c.rnd.IntN(20) == 0 {
		return // the request is lost
	}
	lost := c.losing && c.rnd.IntN(15) == 0
	c.ask(r, func(answer any) {
		response := answer.(*ConsumerHeartbeatResponse)
		switch {
		case epoch < 0 || x.gone:
		case lost:
			x.full = true
		case response.Err != nil:
			x.reset()
		default:
			x.full = false
			if response.MemberEpoch < x.epoch {
				c.fail("member %s goes from epoch %d back to %d", x.id, x.epoch, response.MemberEpoch)
			}
			x.epoch = response.MemberEpoch
			if response.Assignment != nil {
				c.take(x, *response.Assignment)
			}
		}
	})
}

// take is what a client does with an assignment: it reads what is new at once, and what is not its own any more a while longer.
func (c *churn) take(x *churner, list []TopicPartitions) {
	given := make(map[place]bool)
	for _, t := range list {
		for _, p := range t.Partitions {
			given[place{t.Topic, p}] = true
		}
	}
	x.doomed = make(map[place]bool)
	for p := range x.owned {
		if !given[p] {
			x.doomed[p] = true
		}
	}
	for p := range given {
		x.owned[p] = true
	}
	x.until = c.now.Add(time.Duration(c.rnd.IntN(3000)) * time.Millisecond)
}

// dropDoomed gives up what has been revoked, when the client is done with it.
func (c *churn) dropDoomed(x *churner) {
	if len(x.doomed) > 0 && !c.now.Before(x.until) {
		for p := range x.doomed {
			delete(x.owned, p)
		}
		clear(x.doomed)
	}
}

// act is a client's turn.
func (c *churn) act(x *churner) {
	x.next = c.now.Add(time.Second)
	switch {
	case x.busy:
	case x.classic && (!x.joined || x.index != 0 && x.index != c.topics.index):
		c.join(x)
	case x.classic:
		c.ask(&HeartbeatRequest{Group: "g", MemberID: x.id, InstanceID: optional(x.instance), Generation: x.epoch}, func(answer any) {
			switch err := answer.(*HeartbeatResponse).Err; err {
			case nil:
			case ErrRebalanceInProgress:
				x.joined = false
				x.next = c.now
			default:
				c.loseClassic(x, err)
			}
		})
	default:
		c.dropDoomed(x)
		c.heartbeat(x, x.epoch)
	}
}

// loseClassic is what a classic client does when the group does not know it: it gives up everything and joins anew.
func (c *churn) loseClassic(x *churner, err error) {
	x.reset()
	if err == ErrUnknownMember || err == ErrFencedInstance {
		x.id = ""
	}
}

func (c *churn) join(x *churner) {
	if x.eager {
		x.owned = map[place]bool{}
	}
	held := make(Partitions)
	for _, t := range x.report() {
		held[t.Topic] = t.Partitions
	}
	x.busy = true
	c.ask(&JoinGroupRequest{
		Group: "g", MemberID: x.id, InstanceID: optional(x.instance), ClientID: "c", ClientHost: "/h", SessionTimeout: 10 * time.Second,
		RebalanceTimeout: 8 * time.Second, ProtocolType: "consumer", RequireKnownID: true, CanSkipAssignment: true,
		Protocols: []Protocol{{"p", blobSubscription(x.topics, named(held, c.topics))}},
	}, func(answer any) {
		r := answer.(*JoinGroupResponse)
		x.busy = false
		x.next = c.now
		if x.gone {
			return
		}
		switch r.Err {
		case nil:
			x.id, x.epoch = r.MemberID, r.Generation
			c.sync(x, r)
		case ErrMemberIDRequired:
			x.id = r.MemberID
		case ErrRebalanceInProgress:
		default:
			c.loseClassic(x, r.Err)
		}
	})
}

func (c *churn) sync(x *churner, joined *JoinGroupResponse) {
	r := &SyncGroupRequest{Group: "g", MemberID: x.id, InstanceID: optional(x.instance), Generation: x.epoch}
	x.index = 0
	if joined.Leader == x.id {
		x.index = c.topics.index
	}
	if joined.Leader == x.id && !joined.SkipAssignment {
		r.Assignments = c.lead(joined.Members)
	}
	x.busy = true
	c.ask(r, func(answer any) {
		s := answer.(*SyncGroupResponse)
		x.busy = false
		x.next = c.now
		if x.gone {
			return
		}
		if s.Err != nil {
			if s.Err != ErrRebalanceInProgress {
				c.loseClassic(x, s.Err)
			}
			return
		}
		x.joined = true
		parts, err := parseAssignment(s.Assignment)
		if err != nil {
			c.fail("assignment of %s: %v", x.id, err)
		}
		// A cooperative client gives up what is not in the assignment, and joins again to say so.
		before := x.owned
		x.owned = make(map[place]bool)
		for _, t := range identified(parts, c.topics) {
			for _, p := range t.Partitions {
				x.owned[place{t.Topic, p}] = true
			}
		}
		for p := range before {
			if !x.owned[p] && !x.eager {
				x.joined = false
			}
		}
	})
}

// lead is the leader's part in a classic group: everything in turn, but, so that the test's own leader breaks no rule of
// cooperation, nothing that another member says it holds.
func (c *churn) lead(members []JoinedMember) []Assigned {
	held := make(map[string]map[string]bool)
	owner := make(map[string]string)
	told := make([]subscription, len(members))
	for i, m := range members {
		told[i], _ = parseSubscription(m.Metadata)
		held[m.MemberID] = make(map[string]bool)
		for _, t := range told[i].owned {
			for _, p := range t.partitions {
				owner[fmt.Sprint(t.topic, p)] = m.MemberID
			}
		}
	}
	var out []Assigned
	turn := 0
	parts := make([]map[string][]int32, len(members))
	for i := range parts {
		parts[i] = make(map[string][]int32)
	}
	for _, name := range slices.Sorted(maps.Keys(c.topics.ids)) {
		var subscribers []int
		for i := range members {
			if slices.Contains(told[i].topics, name) {
				subscribers = append(subscribers, i)
			}
		}
		for p := range c.topics.counts[name] {
			if len(subscribers) == 0 {
				break
			}
			turn++
			to := subscribers[turn%len(subscribers)]
			if who, taken := owner[fmt.Sprint(name, int32(p))]; taken && who != members[to].MemberID {
				continue
			}
			parts[to][name] = append(parts[to][name], int32(p))
		}
	}
	for i, m := range members {
		var list []namedPartitions
		for _, name := range slices.Sorted(maps.Keys(parts[i])) {
			list = append(list, namedPartitions{name, parts[i][name]})
		}
		out = append(out, Assigned{m.MemberID, appendAssignment(nil, 1, list)})
	}
	return out
}

// check looks at what must hold after every step.
func (c *churn) check() {
	k, isConsumer := c.core.(*consumer)
	if !isConsumer {
		c.epoch, c.assignment = 0, 0
		return
	}
	if k.epoch < c.epoch || k.assignmentEpoch < c.assignment || k.assignmentEpoch > k.epoch {
		c.fail("epochs went from %d/%d to %d/%d", c.epoch, c.assignment, k.epoch, k.assignmentEpoch)
	}
	c.epoch, c.assignment = k.epoch, k.assignmentEpoch
	owner := make(map[place]string)
	for _, x := range c.clients {
		if x.gone || k.members[x.id] == nil || x.epoch <= 0 {
			continue // whoever is not a member any more reads until it hears of it, and its commits are refused
		}
		if x.classic && x.epoch != k.members[x.id].epoch {
			continue // of an older generation, which a classic group went on from without it: its commits are refused too
		}
		for p := range x.owned {
			if other := owner[p]; other != "" {
				c.fail("partition %x-%d is read by %s and %s", p.topic[15], p.partition, other, x.id)
			}
			owner[p] = x.id
		}
	}
	held := make(map[place]string)
	for _, m := range k.members {
		for _, g := range []grants{m.assigned, m.revoking} {
			for id, list := range g {
				for _, one := range list {
					if other := held[place{id, one.partition}]; other != "" {
						c.fail("partition %x-%d is held by %s and %s", id[15], one.partition, other, m.id)
					}
					held[place{id, one.partition}] = m.id
				}
			}
		}
	}
}

func (c *churn) tick() {
	for _, x := range c.clients {
		if !x.gone && !c.now.Before(x.next) {
			c.act(x)
			c.check()
		}
	}
	c.wait(250 * time.Millisecond)
	c.check()
}

// settled says what is wrong when nothing has happened for a while: everything that somebody is subscribed to has one reader.
func (c *churn) settled() {
	readers := make(map[place]int)
	subscribed := make(map[string]bool)
	for _, x := range c.living() {
		for _, name := range x.topics {
			subscribed[name] = true
		}
		for _, name := range slices.Collect(c.topics.Names()) {
			if re, _, err := compilePattern(x.regex); err == nil && x.regex != "" && re.MatchString(name) {
				subscribed[name] = true
			}
		}
		for p := range x.owned {
			readers[p]++
		}
	}
	for name := range subscribed {
		id, partitions, _ := c.topics.Topic(name)
		for p := range partitions {
			if n := readers[place{id, int32(p)}]; n != 1 {
				c.fail("after quiet, %s-%d has %d readers; the group is %+v", name, p, n, c.core.Overview())
			}
		}
	}
	if state := c.core.Overview().State; len(c.living()) > 0 && state != "Stable" {
		c.fail("after quiet, the group is %s", state)
	}
}

// live is one life: trouble, quiet, and a look.
func (c *churn) live() string {
	for round := 0; round < 3 && c.fault == ""; round++ {
		c.losing = true
		for i := 0; i < 250 && c.fault == ""; i++ {
			c.event()
			c.tick()
		}
		c.losing = false
		for i := 0; i < 4*90 && c.fault == ""; i++ {
			c.tick()
		}
		if c.fault == "" {
			c.settled()
		}
	}
	return c.fault
}

func churnSeed() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("KEEPLOG_SEED"), 10, 64); err == nil {
		return n
	}
	return uint64(time.Now().UnixNano())
}

// churnFor is how long the churn goes on: KEEPLOG_HARNESS_SECONDS, else three seconds.
func churnFor() time.Duration {
	if n, err := strconv.Atoi(os.Getenv("KEEPLOG_HARNESS_SECONDS")); err == nil {
		return time.Duration(n) * time.Second
	}
	return 3 * time.Second
}

// TestConsumerChurn: members of both protocols join, leave, die, pause, change what they read, lose requests and answers, topics
// come, grow and go, and coordinators change. No partition is ever read by two members, epochs never go back, what is stored is
// always what the state is, and after quiet everything is read.
func TestConsumerChurn(t *testing.T) {
	first, until := churnSeed(), time.Now().Add(churnFor())
	lives := 0
	defer func() { t.Logf("KEEPLOG_SEED=%d, %d lives", first, lives) }()
	for seed := first; time.Now().Before(until); seed++ {
		lives++
		c := newChurn(t, seed)
		if fault := c.live(); fault != "" {
			for _, line := range c.story[max(0, len(c.story)-150):] {
				t.Log(line)
			}
			t.Fatalf("KEEPLOG_SEED=%d: %s", seed, fault)
		}
	}
}

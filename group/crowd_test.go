package group

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keeplog/keeplog/metadata"
)

// A crowd of consumers that join, leave and die, for ten minutes of virtual time, while coordinators change and proposals are
// slow, lost, or of unknown outcome. What must hold is looked at with every answer and each second.

const (
	crowdGroups     = 5
	crowdMembers    = 200
	crowdPartitions = 12
	crowdTime       = 10 * time.Minute
	// crowdRest is how long those that are left have in peace, to read to the end.
	crowdRest = 2 * time.Minute
	// recordEvery is the time between two records of a partition.
	recordEvery = 250 * time.Millisecond
)

type crowd struct {
	w     *world
	seed  uint64
	start time.Time
	topic TopicID

	mu    sync.Mutex
	found []string
	// parts are the partitions of each group, owners who has got one in a generation, lives the newest id of an instance.
	parts  map[string]*[crowdPartitions]part
	owners map[ownership]string
	lives  map[string]string
	fenced map[string]bool
	// what happened, so that a quiet run is seen.
	acked, generations, fences, fetched, moved int
}

// part is a partition as one group sees it: what it knows to be committed, what the tables have, and up to where
// every record was processed.
type part struct{ acked, stored, done int64 }

type ownership struct {
	group      string
	generation int32
	partition  int32
}

func (c *crowd) fault(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faultLocked(format, args...)
}

func (c *crowd) faultLocked(format string, args ...any) {
	if len(c.found) < 20 {
		c.found = append(c.found, fmt.Sprintf("%v: ", time.Since(c.start))+fmt.Sprintf(format, args...))
	}
}

// node is the coordinator of a group as everybody can look up.
func (c *crowd) node(group string) *node {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	owner := c.w.img.Shard(metadata.ShardOf(group)).Owner
	return c.w.nodes[max(int(owner)-1, 0)]
}

// ask waits for an answer, which must come once.
func asked[T any](c *crowd, call func(done func(*T))) *T {
	answer := make(chan *T, 1)
	var once sync.Once
	call(func(r *T) {
		first := false
		once.Do(func() { first = true; answer <- r })
		if !first {
			c.fault("%T answered twice", r)
		}
	})
	return <-answer
}

// consumer is a member of the crowd.
type crowdMember struct {
	c          *crowd
	r          *rand.Rand
	group      string
	instance   *string
	until      time.Time
	id         string
	generation int32
	leader     bool
	members    []JoinedMember
	own        []int32
	at         map[int32]int64
	dead       bool
	// steady ones do not vanish while they join.
	steady bool
}

func (m *crowdMember) alive() bool { return !m.dead && time.Now().Before(m.until) }

func (m *crowdMember) pause(least, most time.Duration) {
	time.Sleep(least + time.Duration(m.r.Int64N(int64(most-least))))
}

// failed does what a client does with an error; false: go on.
func (m *crowdMember) failed(err error) bool {
	switch err { //nolint:errorlint // errors of the core are never wrapped
	case nil:
		return false
	case ErrUnknownMember:
		m.id, m.generation = "", -1
	case ErrFencedInstance:
		m.dead = true
	case ErrNotCoordinator, ErrLoading, ErrNotAvailable:
		m.pause(20*time.Millisecond, 200*time.Millisecond)
	case ErrIllegalGeneration, ErrRebalanceInProgress, ErrMemberIDRequired:
	default:
		m.c.fault("member %s of %s: %v", m.id, m.group, err)
	}
	return true
}

// serves is asked before a request: what it gives is told that the coordinator has served it, which it must not for who was
// fenced before. (Heartbeats are another matter: while a group is being loaded everybody is welcome.)
func (m *crowdMember) serves(what string) (served func()) {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	id, fenced := m.id, m.c.fenced[m.id]
	return func() {
		if fenced {
			m.c.fault("%s of %s, whose instance had another member before, was served", what, id)
		}
	}
}

func (m *crowdMember) run() {
	for m.alive() {
		m.pause(time.Millisecond, 20*time.Millisecond)
		if m.join() && m.alive() && m.sync(m.assign()) {
			m.work()
		}
	}
	if !m.dead && m.id != "" && m.instance == nil && m.r.IntN(2) == 0 {
		asked(m.c, func(done func(*LeaveGroupResponse)) {
			m.c.node(m.group).LeaveGroup(&LeaveGroupRequest{Group: m.group, Members: []Leaver{{MemberID: m.id}}}, done)
		})
	}
}

func (m *crowdMember) join() bool {
	r := &JoinGroupRequest{
		Group: m.group, MemberID: m.id, InstanceID: m.instance, ClientID: "c", SessionTimeout: 10 * time.Second, RebalanceTimeout: 15 * time.Second,
		ProtocolType: "consumer", Protocols: []Protocol{{"range", []byte("x")}}, RequireKnownID: true, CanSkipAssignment: true,
	}
	resp := asked(m.c, func(done func(*JoinGroupResponse)) {
		gone := m.c.node(m.group).JoinGroup(r, done)
		if !m.steady && m.r.IntN(10) == 0 {
			gone()
		}
	})
	if resp.Err == ErrMemberIDRequired { //nolint:errorlint // as above
		m.id = resp.MemberID
		// Some never come back with their id.
		m.dead = !m.steady && m.r.IntN(10) == 0
		return false
	}
	if m.failed(resp.Err) {
		return false
	}
	m.id, m.generation, m.members = resp.MemberID, resp.Generation, nil
	m.leader = resp.Leader == m.id && !resp.SkipAssignment
	if m.leader {
		m.members = resp.Members
	}
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	m.c.generations = max(m.c.generations, int(m.generation))
	if m.instance != nil {
		key := m.group + "/" + *m.instance
		if last := m.c.lives[key]; last != "" && last != m.id {
			m.c.fenced[last] = true
			m.c.fences++
		}
		m.c.lives[key] = m.id
	}
	return true
}

// assign deals the partitions to the members.
func (m *crowdMember) assign() []Assigned {
	if !m.leader {
		return nil
	}
	ids := make([]string, len(m.members))
	for i, o := range m.members {
		ids[i] = o.MemberID
	}
	m.r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	parts := make([]string, len(ids))
	for p := range crowdPartitions {
		parts[p%len(ids)] += strconv.Itoa(p) + " "
	}
	all := make([]Assigned, len(ids))
	for i, id := range ids {
		all[i] = Assigned{id, []byte(parts[i])}
	}
	return all
}

func (m *crowdMember) sync(parts []Assigned) bool {
	served := m.serves("sync")
	resp := asked(m.c, func(done func(*SyncGroupResponse)) {
		m.c.node(m.group).SyncGroup(&SyncGroupRequest{
			Group: m.group, MemberID: m.id, InstanceID: m.instance, Generation: m.generation, Assignments: parts,
		}, done)
	})
	if m.failed(resp.Err) {
		return false
	}
	served()
	m.own = nil
	for _, word := range strings.Fields(string(resp.Assignment)) {
		p, err := strconv.Atoi(word)
		if err != nil {
			m.c.fault("assignment %q", resp.Assignment)
			return false
		}
		m.own = append(m.own, int32(p))
	}
	m.c.owns(m)
	return true
}

// owns: in one generation a partition has one owner; the next life of a static member may take it over.
func (c *crowd) owns(m *crowdMember) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range m.own {
		key := ownership{m.group, m.generation, p}
		if other := c.owners[key]; other != "" && other != m.id && !c.fenced[other] {
			c.faultLocked("group %s generation %d: partition %d belongs to %s and to %s", m.group, m.generation, p, other, m.id)
		}
		c.owners[key] = m.id
	}
}

// position reads where to go on. What was acknowledged before the question must be in the answer.
func (m *crowdMember) position() bool {
	want := map[int32]int64{}
	m.c.mu.Lock()
	for _, p := range m.own {
		want[p] = m.c.parts[m.group][p].acked
	}
	m.c.fetched++
	m.c.mu.Unlock()
	resp := asked(m.c, func(done func(*FetchOffsetsResponse)) {
		m.c.node(m.group).FetchOffsets(&FetchOffsetsRequest{
			Group: m.group, MemberEpoch: -1, Topics: []FetchTopic{{"work", m.c.topic, m.own}},
		}, done)
	})
	if m.failed(resp.Err) {
		return false
	}
	m.at = map[int32]int64{}
	for _, f := range resp.Topics[0].Partitions {
		m.at[f.Partition] = max(f.Offset, 0)
		if m.at[f.Partition] < want[f.Partition] {
			m.c.fault("group %s partition %d: %d was acknowledged, and %d is read", m.group, f.Partition, want[f.Partition], f.Offset)
		}
	}
	return true
}

func (m *crowdMember) work() {
	for m.alive() && !m.position() {
		m.pause(time.Millisecond, 20*time.Millisecond)
	}
	for tick := 1; m.alive(); tick++ {
		m.pause(900*time.Millisecond, 1100*time.Millisecond)
		m.process()
		var err error
		switch {
		case tick%5 == 0:
			err = m.commit()
		case tick%3 == 0:
			err = asked(m.c, func(done func(*HeartbeatResponse)) {
				m.c.node(m.group).Heartbeat(&HeartbeatRequest{Group: m.group, MemberID: m.id, InstanceID: m.instance, Generation: m.generation}, done)
			}).Err
		case m.leader && m.r.IntN(20) == 0:
			// A leader that has forgotten that it was answered, and deals again.
			if !m.sync(m.assign()) {
				return
			}
		}
		switch err { //nolint:errorlint // as above
		case nil, ErrNotCoordinator, ErrLoading, ErrNotAvailable:
		case ErrRebalanceInProgress:
			m.commit()
			return
		default:
			m.failed(err)
			return
		}
	}
}

// process reads on: no record may be left out.
func (m *crowdMember) process() {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	end := int64(time.Since(m.c.start) / recordEvery)
	for _, p := range m.own {
		from, to := m.at[p], min(m.at[p]+int64(m.r.IntN(40)), end)
		one := &m.c.parts[m.group][p]
		if from > one.done {
			m.c.faultLocked("group %s partition %d: records %d to %d were processed by nobody", m.group, p, one.done, from)
		}
		if to > from {
			m.at[p] = to
			one.done = max(one.done, to)
		}
	}
}

func (m *crowdMember) commit() error {
	r := &CommitOffsetsRequest{Version: 9, Group: m.group, MemberID: m.id, InstanceID: m.instance, Generation: m.generation, Retention: -1}
	for p, at := range m.at {
		r.Offsets = append(r.Offsets, CommitOffset{Topic: "work", TopicID: m.c.topic, Partition: p, Offset: at, LeaderEpoch: -1})
	}
	served := m.serves("commit")
	return asked(m.c, func(done func(*CommitOffsetsResponse)) {
		m.c.node(m.group).CommitOffsets(r, func(resp *CommitOffsetsResponse) {
			if resp.Err == nil {
				served()
				m.c.committed(r)
			}
			done(resp)
		})
	}).Err
}

func (c *crowd) committed(r *CommitOffsetsRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acked++
	for _, o := range r.Offsets {
		p := &c.parts[r.Group][o.Partition]
		if o.Offset < p.acked {
			c.faultLocked("group %s partition %d: the commit goes back from %d to %d", r.Group, o.Partition, p.acked, o.Offset)
		}
		p.acked = o.Offset
	}
}

// look compares the tables with what is known.
func (c *crowd) look() {
	for group, parts := range c.parts {
		c.w.mu.Lock()
		now := map[int32]int64{}
		c.w.tables.Offsets(group, func(o metadata.OffsetCommit) bool { now[o.Partition] = o.Offset; return true })
		c.w.mu.Unlock()
		c.mu.Lock()
		for p := range parts {
			at, one := now[int32(p)], &parts[p]
			if at < one.stored || at < one.acked {
				c.faultLocked("group %s partition %d: %d is stored, after %d was, and %d was acknowledged", group, p, at, one.stored, one.acked)
			}
			one.stored = at
		}
		c.mu.Unlock()
	}
}

// nemesis moves shards, and disturbs proposals.
func (c *crowd) nemesis(r *rand.Rand, until time.Time) {
	for time.Now().Before(until) {
		time.Sleep(time.Duration(5+r.IntN(25)) * time.Second)
		switch r.IntN(4) {
		case 0:
			to := metadata.BrokerID(1 + r.IntN(len(c.w.nodes)))
			for g := range c.parts {
				c.w.assign(metadata.ShardOf(g), to)
			}
			c.moved++
		case 1:
			lost := r.IntN(2) == 0
			c.w.setFault(func(records []metadata.Record) (error, error) {
				if lost {
					return errLost, nil
				}
				return nil, errLost
			})
			time.Sleep(time.Duration(100+r.IntN(400)) * time.Millisecond)
			c.w.setFault(nil)
		case 2:
			for _, n := range c.w.nodes {
				n.setLag(time.Duration(r.IntN(1500)) * time.Millisecond)
			}
		}
	}
	for _, n := range c.w.nodes {
		n.setLag(0)
	}
}

func runCrowd(t *testing.T, seed uint64) *crowd {
	c := &crowd{
		w: newWorld(t, 3), seed: seed, topic: topicNamed("work"), parts: map[string]*[crowdPartitions]part{}, owners: map[ownership]string{},
		lives: map[string]string{}, fenced: map[string]bool{},
	}
	c.w.topic("work", crowdPartitions)
	c.w.latency.Store(int64(5 * time.Millisecond))
	c.start = time.Now()
	end := c.start.Add(crowdTime)
	r := rand.New(rand.NewPCG(seed, 1))
	var all sync.WaitGroup
	add := func(group string, at, until time.Time, instance *string) {
		m := &crowdMember{c: c, r: rand.New(rand.NewPCG(seed, r.Uint64())), group: group, until: until, generation: -1, instance: instance, steady: until.After(end)}
		all.Go(func() {
			time.Sleep(time.Until(at))
			m.run()
		})
	}
	for g := range crowdGroups {
		group := fmt.Sprintf("crowd-%d", g)
		c.parts[group] = &[crowdPartitions]part{}
		for i := range crowdMembers / crowdGroups {
			at := c.start.Add(time.Duration(r.Int64N(int64(crowdTime))))
			until := at.Add(10*time.Second + time.Duration(r.Int64N(int64(4*time.Minute))))
			var instance *string
			if i%3 == 0 {
				// Lives of one instance may overlap: the newer one counts.
				name := fmt.Sprintf("static-%d", i%4)
				instance = &name
			}
			if until.After(end) {
				until = end
			}
			add(group, at, until, instance)
		}
		add(group, end.Add(-time.Minute), end.Add(crowdRest), nil)
	}
	all.Go(func() { c.nemesis(rand.New(rand.NewPCG(seed, 2)), end) })
	for time.Now().Before(end.Add(crowdRest)) {
		time.Sleep(time.Second)
		c.look()
	}
	produced := int64(time.Since(c.start)/recordEvery) - int64(20*time.Second/recordEvery)
	all.Wait()
	synctest.Wait()
	c.look()
	for group, parts := range c.parts {
		checkFold(t, c.node(group), c.w, group)
		for p := range parts {
			if parts[p].done < produced {
				c.fault("group %s partition %d: %d records of %d were processed", group, p, parts[p].done, produced)
			}
		}
	}
	c.w.close()
	return c
}

func seedOf(t testing.TB) uint64 {
	seed := rand.Uint64() >> 32
	if n, err := strconv.ParseUint(os.Getenv("KEEPLOG_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("KEEPLOG_SEED=%d", seed)
	return seed
}

// Catalogue 46, 49, 50 of what has gone wrong elsewhere, and whatever else may: see the crowd.
func TestCrowd(t *testing.T) {
	seed := seedOf(t)
	synctest.Test(t, func(t *testing.T) {
		c := runCrowd(t, seed)
		t.Logf("%d commits acknowledged, %d generations at most, %d static members replaced, %d times positions read, %d moves of the coordinator",
			c.acked, c.generations, c.fences, c.fetched, c.moved)
		slices.Sort(c.found)
		for _, f := range c.found {
			t.Error(f)
		}
		if c.acked < 1000 || c.generations < 10 || c.fences == 0 || c.moved == 0 {
			t.Error("too little has happened")
		}
	})
}

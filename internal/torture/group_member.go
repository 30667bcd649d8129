package torture

import (
	"context"
	"crypto/rand"
	"errors"
	mrand "math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	memberSession   = 6 * time.Second
	memberRebalance = 5 * time.Second
	// joinTimeout is how long a join may take: it waits for all others, and in a new group for more of them.
	joinTimeout = memberRebalance + 5*time.Second
	pollTimeout = 50 * time.Millisecond
	pollMost    = 500

	codeCoordinatorLoading = 14
	codeNotCoordinator     = 16
	codeUnknownMember      = 25
	codeRebalancing        = 27
	codeMemberIDRequired   = 79
)

// position is where a member reads a partition that it has.
type position struct {
	// begun says that the committed offset was asked for, and reading began there.
	begun bool
	// next is the offset behind the last record that was given, committed the one that was last acknowledged.
	next, committed int64
}

// member is one member of a group, with requests of its own, so that it knows when each was sent and what its answer was. One goroutine.
type member struct {
	groups   *Groups
	group    string
	rng      *mrand.Rand
	consumer bool // of the consumer protocol
	// client reads; its requests go to brokers that are named.
	client *kgo.Client
	known  *leadership
	// at is the coordinator, −1 when it must be looked for.
	at         int32
	id         string
	generation int32
	joined     bool
	topics     []string
	has        map[Partition]*position
	sent       time.Duration // when the last question was sent by which it holds what it has, since the beginning
}

// hold tells that it has what it has, by the answer to the question that was sent last.
func (m *member) hold() {
	now := time.Since(m.groups.began)
	for p := range m.has {
		m.groups.scene.Check.Holds(m.share(p), Hold{m.id, m.sent, now})
	}
}

// release tells that it has nothing any more, and goes without a word, or before it says so.
func (m *member) release() {
	for p := range m.has {
		m.groups.scene.Check.Released(m.share(p), m.id)
	}
}

func (m *member) open() error {
	client, err := kgo.NewClient(append(clientOptions(m.groups.scene.Brokers, "member"),
		kgo.RequestRetries(0), kgo.FetchMaxWait(200*time.Millisecond), kgo.ConsumeResetOffset(kgo.NoResetOffset()))...)
	m.client, m.at, m.has, m.known = client, -1, map[Partition]*position{}, &leadership{}
	m.begin()
	return err
}

// begin makes it a member that nobody knows.
func (m *member) begin() {
	m.id, m.generation, m.joined = "", -1, false
	if m.consumer {
		m.id, m.generation = rand.Text(), 0
	}
}

// live reads and commits for a while, and then leaves or vanishes; true when no other member is to come in its place.
func (m *member) live(ctx context.Context, span time.Duration) (last bool) {
	over, settle := time.After(span), m.groups.settle
	var beat time.Time
	for {
		select {
		case <-ctx.Done():
			return true
		case <-m.groups.leave:
			m.commit(ctx)
			m.release()
			m.goodbye(ctx)
			return true
		case <-settle:
			over, settle = nil, nil
		case <-over:
			if m.rng.IntN(3) > 0 {
				m.commit(ctx)
				m.release()
				m.goodbye(ctx)
			}
			return false
		default:
		}
		if time.Since(beat) >= memberTick && m.refresh(ctx) && m.find(ctx) {
			beat = time.Now()
			if m.consumer {
				m.beatConsumer(ctx)
			} else {
				m.beatClassic(ctx)
			}
			m.resume(ctx)
			m.commit(ctx)
		}
		m.poll(ctx)
	}
}

// refresh learns the ids of the topics; false when nobody tells.
func (m *member) refresh(ctx context.Context) bool {
	if topics := topicsOf(m.groups.scene.Partitions()); len(topics) == len(m.known.ids) && time.Since(m.known.at) < 5*time.Second {
		return true
	}
	l, _, err := metadata(ctx, m.client, topicsOf(m.groups.scene.Partitions()))
	if err == nil && len(l.ids) > 0 {
		m.known = l
	}
	return len(m.known.ids) > 0
}

// find looks for the coordinator when it is not known; false when nobody tells.
func (m *member) find(ctx context.Context) bool {
	if m.at >= 0 {
		return true
	}
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKey, req.CoordinatorKeys = m.group, []string{m.group}
	brokers := m.client.SeedBrokers()
	resp, err := ask[*kmsg.FindCoordinatorResponse](ctx, brokers[m.rng.IntN(len(brokers))], req)
	if err != nil || len(resp.Coordinators) != 1 || resp.Coordinators[0].ErrorCode != codeNone {
		return false
	}
	m.at = resp.Coordinators[0].NodeID
	return true
}

func (m *member) coordinator() *kgo.Broker { return m.client.Broker(int(m.at)) }

// failed says whether a question has no answer that means anything: the coordinator must be looked for.
func (m *member) failed(err error, code int16) bool {
	if err != nil || code >= codeCoordinatorLoading && code <= codeNotCoordinator {
		m.at = -1
		return true
	}
	return false
}

func (m *member) share(p Partition) Share { return Share{m.group, p} }

// give takes the partitions that it has from now on. Of those that go it commits what it was given, when it may.
func (m *member) give(ctx context.Context, parts []Partition, mayCommit bool) {
	gone := map[string][]int32{}
	for p := range m.has {
		if !slices.Contains(parts, p) {
			gone[p.Topic] = append(gone[p.Topic], p.Number)
		}
	}
	if len(gone) > 0 {
		if mayCommit {
			m.commit(ctx)
		}
		m.client.RemoveConsumePartitions(gone)
		for topic, numbers := range gone {
			for _, n := range numbers {
				delete(m.has, Partition{topic, n})
				m.groups.scene.Check.Released(m.share(Partition{topic, n}), m.id)
			}
		}
	}
	for _, p := range parts {
		m.groups.scene.Check.Owns(m.share(p), m.id, m.generation)
		if m.has[p] == nil {
			m.has[p] = &position{next: -1, committed: -1}
		}
	}
	m.hold()
}

// resume asks where to begin with what it has got, and begins there.
func (m *member) resume(ctx context.Context) {
	floors := map[Partition]CommitFloor{}
	for p, at := range m.has {
		if !at.begun {
			floors[p] = m.groups.scene.Check.CommitFloor(m.share(p))
		}
	}
	if len(floors) == 0 || m.at < 0 {
		return
	}
	epoch := int32(-1)
	if m.consumer {
		epoch = m.generation
	}
	offsets, err := fetchCommitted(ctx, m.coordinator(), fetchCommittedRequest(asker{m.group, m.id, epoch}, floors, m.known.ids))
	if code := codeError(codeNone); errors.As(err, &code) {
		m.failed(nil, int16(code))
		return
	}
	if m.failed(err, codeNone) {
		return
	}
	add := map[string]map[int32]kgo.Offset{}
	for p, floor := range floors {
		offset, ok := offsets(p, m.known.ids)
		if !ok {
			continue
		}
		m.groups.scene.Check.CommitShown(m.share(p), floor, offset)
		from := max(offset, 0)
		m.groups.scene.Check.Resumed(m.share(p), from)
		*m.has[p] = position{begun: true, next: from, committed: offset}
		if add[p.Topic] == nil {
			add[p.Topic] = map[int32]kgo.Offset{}
		}
		add[p.Topic][p.Number] = kgo.NewOffset().At(from)
	}
	m.client.AddConsumePartitions(add)
}

// poll reads what there is.
func (m *member) poll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	m.client.PollRecords(ctx, pollMost).EachRecord(func(r *kgo.Record) {
		p := Partition{r.Topic, r.Partition}
		if at := m.has[p]; at != nil && at.begun && r.Offset >= at.next {
			m.groups.scene.Check.Given(m.share(p), r.Offset)
			at.next = r.Offset + 1
		}
	})
}

// commit commits what it was given since it last did.
func (m *member) commit(ctx context.Context) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = m.group, m.id, m.generation
	at := map[string]int{}
	sent := map[Partition]int64{}
	for p, pos := range m.has {
		if !pos.begun || pos.next <= pos.committed {
			continue
		}
		i, ok := at[p.Topic]
		if !ok {
			rt := kmsg.NewOffsetCommitRequestTopic()
			rt.Topic, rt.TopicID = p.Topic, m.known.ids[p.Topic]
			i, at[p.Topic] = len(req.Topics), len(req.Topics)
			req.Topics = append(req.Topics, rt)
		}
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.LeaderEpoch = p.Number, pos.next, -1
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
		sent[p] = pos.next
	}
	if len(sent) == 0 || m.at < 0 {
		return
	}
	resp, err := ask[*kmsg.OffsetCommitResponse](ctx, m.coordinator(), req)
	if err == nil {
		for _, t := range resp.Topics {
			for _, rp := range t.Partitions {
				m.committed(sent, t, rp)
			}
		}
	}
	m.failed(err, codeNone)
	for p, offset := range sent { // without an answer that means anything
		m.groups.scene.Check.Unsure(m.share(p), Commit{m.id, m.generation, offset})
	}
}

// committed takes the answer for one partition, and forgets it where it says what became of it.
func (m *member) committed(sent map[Partition]int64, t kmsg.OffsetCommitResponseTopic, rp kmsg.OffsetCommitResponseTopicPartition) {
	for p, offset := range sent {
		if p.Number != rp.Partition || t.Topic != p.Topic && t.TopicID != m.known.ids[p.Topic] {
			continue
		}
		switch {
		case rp.ErrorCode == codeNone:
			m.has[p].committed = offset
			m.groups.scene.Check.Committed(m.share(p), Commit{m.id, m.generation, offset})
			delete(sent, p)
		case m.failed(nil, rp.ErrorCode):
		case refused(rp.ErrorCode):
			delete(sent, p)
		}
		return
	}
}

// refused says whether an error means that a commit was not and will not be carried out.
func refused(code int16) bool {
	return slices.Contains([]int16{codeIllegalGeneration, codeUnknownMember, codeRebalancing, codeFencedEpoch, codeStaleEpoch}, code)
}

const (
	codeIllegalGeneration = 22
	codeFencedEpoch       = 110
	codeStaleEpoch        = 113
)

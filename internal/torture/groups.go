package torture

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Groups is a workload of consumer groups, of the classic and of the consumer protocol in turn. Their members come, read, commit, and leave or
// vanish; what is committed is asked of every node all the time.
type Groups struct {
	// Count is how many groups there are, Members how many members each has at a time.
	Count, Members int
	// Patience is how long the groups may take, when the faults are over, to read everything.
	Patience time.Duration

	scene Scene
	name  string
	began time.Time
	stop  context.CancelFunc
	// settle is closed when members no longer come and go, leave when they are to commit and leave.
	settle, leave chan struct{}
	living        sync.WaitGroup
	asking        sync.WaitGroup
	clients       clientSet
}

// clientSet are clients that are closed in the end.
type clientSet struct {
	mu  sync.Mutex
	all []*kgo.Client
}

func (s *clientSet) open(seeds []string, name string, more ...kgo.Opt) (*kgo.Client, error) {
	c, err := kgo.NewClient(append(append(clientOptions(seeds, name), kgo.RequestRetries(0)), more...)...)
	if err == nil {
		s.mu.Lock()
		s.all = append(s.all, c)
		s.mu.Unlock()
	}
	return c, err
}

func (s *clientSet) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.all {
		c.Close()
	}
	s.all = nil
}

const (
	// memberLeast and memberMost are how long a member lives.
	memberLeast, memberMost = 4 * time.Second, 20 * time.Second
	// memberTick is how often a member sends a heartbeat and commits.
	memberTick = 250 * time.Millisecond
	// committedEvery is the pause between two questions for a group's offsets.
	committedEvery = 70 * time.Millisecond
	codeNone       = int16(0)
)

// Begin starts the groups.
func (g *Groups) Begin(ctx context.Context, s Scene) error {
	ctx, g.stop = context.WithCancel(ctx)
	g.began = time.Now()
	g.scene, g.name = s, fmt.Sprintf("torture-%x-%s", s.Seed, crand.Text()[:8]) // a cluster may be tortured twice with one seed
	g.settle, g.leave = make(chan struct{}), make(chan struct{})
	for i := range g.Count {
		group := g.groupName(i)
		for slot := range g.Members {
			g.living.Go(func() { g.members(ctx, group, i, slot) })
		}
		client, err := g.clients.open(s.Brokers, "committed")
		if err != nil {
			g.stop()
			return err
		}
		g.asking.Go(func() { g.ask(ctx, client, group) })
	}
	return nil
}

// members lets one member live after the other, until the members are to leave.
func (g *Groups) members(ctx context.Context, group string, number, slot int) {
	rng := rand.New(rand.NewPCG(g.scene.Seed, uint64(number)<<32|uint64(slot)))
	for ctx.Err() == nil {
		m := &member{groups: g, group: group, rng: rng, consumer: number%2 == 1}
		if err := m.open(); err != nil {
			g.scene.Check.Violated(NotHealed, "member of %s: %v", group, err)
			return
		}
		last := m.live(ctx, memberLeast+time.Duration(rng.Int64N(int64(memberMost-memberLeast))))
		m.release()
		m.client.Close()
		if last {
			return
		}
	}
}

// Finish lets the groups read what there is, and their members leave.
func (g *Groups) Finish(ctx context.Context) {
	began := time.Now()
	close(g.settle)
	g.catchUp(ctx)
	close(g.leave)
	g.living.Wait()
	g.scene.Say(fmt.Sprintf("        groups have read everything and left, after %.1fs", time.Since(began).Seconds()))
	for i := range g.Count {
		g.final(ctx, g.groupName(i))
	}
	g.stop()
	g.asking.Wait()
	g.clients.close()
}

func (g *Groups) groupName(i int) string {
	return fmt.Sprintf("%s-%s-%d", g.name, []string{"classic", "consumer"}[i%2], i)
}

// catchUp waits until every group has committed what was acknowledged when it began.
func (g *Groups) catchUp(ctx context.Context) {
	ends := g.scene.Check.sound()
	for deadline := time.Now().Add(g.Patience); ctx.Err() == nil; <-time.After(100 * time.Millisecond) {
		behind, which := 0, ""
		for i := range g.Count {
			group := g.groupName(i)
			for p, end := range ends {
				if f := g.scene.Check.CommitFloor(Share{group, p}); end > 0 && f.acked < end {
					behind++
					which = fmt.Sprintf("group %s, %s: %d of %d is committed", group, p, f.acked, end)
				}
			}
		}
		if behind == 0 {
			return
		}
		if time.Now().After(deadline) {
			g.scene.Check.Violated(NotHealed, "%s after the faults were over groups are behind in %d partitions; %s", g.Patience, behind, which)
			return
		}
	}
}

// ask asks every node in turn for what a group has committed. Whoever does not coordinate it must refuse.
func (g *Groups) ask(ctx context.Context, client *kgo.Client, group string) {
	known, nodes := &leadership{}, []int32(nil)
	for ctx.Err() == nil {
		if time.Since(known.at) > leadersEvery {
			if l, resp, err := metadata(ctx, client, topicsOf(g.scene.Partitions())); err == nil {
				known, nodes = l, nil
				for _, b := range resp.Brokers {
					nodes = append(nodes, b.NodeID)
				}
			}
		}
		for _, node := range nodes {
			g.committed(ctx, client.Broker(int(node)), group, known)
		}
		select {
		case <-ctx.Done():
		case <-time.After(committedEvery):
		}
	}
}

// committed asks one node, and tells what it answers; false when it does not.
func (g *Groups) committed(ctx context.Context, b *kgo.Broker, group string, known *leadership) bool {
	floors := map[Partition]CommitFloor{}
	for _, p := range g.scene.Partitions() {
		if _, ok := known.ids[p.Topic]; ok {
			floors[p] = g.scene.Check.CommitFloor(Share{group, p})
		}
	}
	offsets, err := fetchCommitted(ctx, b, fetchCommittedRequest(asker{group: group, epoch: -1}, floors, known.ids))
	if err != nil {
		return false
	}
	for p, floor := range floors {
		if offset, ok := offsets(p, known.ids); ok {
			g.scene.Check.CommitShown(Share{group, p}, floor, offset)
		}
	}
	return true
}

// final asks until somebody answers: what was acknowledged must be there when everything is over.
func (g *Groups) final(ctx context.Context, group string) {
	client, err := g.clients.open(g.scene.Brokers, "final")
	if err != nil {
		return
	}
	for deadline := time.Now().Add(g.Patience); ctx.Err() == nil; <-time.After(100 * time.Millisecond) {
		l, resp, err := metadata(ctx, client, topicsOf(g.scene.Partitions()))
		if err == nil {
			for _, b := range resp.Brokers {
				if g.committed(ctx, client.Broker(int(b.NodeID)), group, l) {
					return
				}
			}
		}
		if time.Now().After(deadline) {
			g.scene.Check.Violated(NotHealed, "%s after the faults were over nobody tells the offsets of group %s", g.Patience, group)
			return
		}
	}
}

// asker is who asks for the committed offsets of a group: a member or, with epoch −1, anybody.
type asker struct {
	group, member string
	epoch         int32
}

// fetchCommittedRequest asks for the committed offsets of partitions.
func fetchCommittedRequest[V any](who asker, parts map[Partition]V, ids map[string][16]byte) *kmsg.OffsetFetchRequest {
	rg := kmsg.NewOffsetFetchRequestGroup()
	rg.Group, rg.MemberEpoch = who.group, who.epoch
	if who.epoch >= 0 {
		rg.MemberID = &who.member
	}
	at := map[string]int{}
	for p := range parts {
		i, ok := at[p.Topic]
		if !ok {
			rt := kmsg.NewOffsetFetchRequestGroupTopic()
			rt.Topic, rt.TopicID = p.Topic, ids[p.Topic]
			i, at[p.Topic] = len(rg.Topics), len(rg.Topics)
			rg.Topics = append(rg.Topics, rt)
		}
		rg.Topics[i].Partitions = append(rg.Topics[i].Partitions, p.Number)
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Groups, req.RequireStable = append(req.Groups, rg), true
	return req
}

// fetchCommitted returns a function that finds the offset of a partition in the answer, −1 for none.
func fetchCommitted(ctx context.Context, b *kgo.Broker, req *kmsg.OffsetFetchRequest) (func(p Partition, ids map[string][16]byte) (int64, bool), error) {
	resp, err := ask[*kmsg.OffsetFetchResponse](ctx, b, req)
	if err != nil {
		return nil, err
	}
	if len(resp.Groups) != 1 {
		return nil, fmt.Errorf("%d groups in the answer", len(resp.Groups))
	}
	if code := resp.Groups[0].ErrorCode; code != codeNone {
		return nil, codeError(code)
	}
	return func(p Partition, ids map[string][16]byte) (int64, bool) {
		for _, t := range resp.Groups[0].Topics {
			if t.Topic != p.Topic && t.TopicID != ids[p.Topic] {
				continue
			}
			for _, rp := range t.Partitions {
				if rp.Partition == p.Number {
					return rp.Offset, rp.ErrorCode == codeNone
				}
			}
		}
		return 0, false
	}, nil
}

// codeError is an error that a node answered.
type codeError int16

func (e codeError) Error() string { return fmt.Sprintf("error code %d", int16(e)) }

package interop

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// groupClient is one implementation of a member of a group.
type groupClient struct {
	name string
	// kind is the protocol that it speaks: "classic" or "consumer".
	kind string
	// missing names what must be installed and is not; empty when the client can run.
	missing func() string
	// join starts a member that reads the topic from the beginning, or from where its group was, and tells the inbox all that it is
	// given. stop makes it commit what it was given and leave.
	join func(t *testing.T, topic, group string, in *inbox) (stop func())
}

// groupClients are the members that the tests of this package know; files with build tags add to them.
var groupClients = []groupClient{
	{name: "franz-go", kind: "classic", join: franzJoin()},
	{name: "franz-go 848", kind: "consumer", join: franzJoin(kgo.ServerSideBalancer())},
	{name: "sarama", kind: "classic", join: saramaJoin},
	{name: "kafka-go", kind: "classic", join: kafkaGoJoin},
	{name: "kcat", kind: "classic", missing: missingKcat, join: processJoin(kcatMember)},
	{name: "python3-kafka", kind: "classic", missing: missingPython("python3-kafka", "kafka"), join: processJoin(pythonMember("kafka_python_group.py"))},
	{name: "python3-confluent-kafka", kind: "classic", missing: missingPython("python3-confluent-kafka", "confluent_kafka"), join: processJoin(pythonMember("confluent_group.py"))},
	{name: "kafkajs", kind: "classic", missing: missingKafkaJS, join: processJoin(kafkaJSMember)},
	{name: "java classic", kind: "classic", missing: missingJava, join: processJoin(javaMember("classic"))},
	{name: "java consumer", kind: "consumer", missing: missingJava, join: processJoin(javaMember("consumer"))},
}

// delivery is a record that a member was given.
type delivery struct {
	partition int32
	offset    int64
}

// inbox is what a member was given.
type inbox struct {
	mu  sync.Mutex
	all map[delivery]int
	// moved is closed and made anew with each delivery.
	moved chan struct{}
}

func newInbox() *inbox { return &inbox{all: map[delivery]int{}, moved: make(chan struct{})} }

func (in *inbox) add(partition int32, offset int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.all[delivery{partition, offset}]++
	close(in.moved)
	in.moved = make(chan struct{})
}

// between are the deliveries with offsets from low to below high, sorted, and a channel that is closed when there may be more.
func (in *inbox) between(low, high int64) ([]delivery, <-chan struct{}) {
	in.mu.Lock()
	defer in.mu.Unlock()
	var out []delivery
	for d := range in.all {
		if d.offset >= low && d.offset < high {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b delivery) int {
		if a.partition != b.partition {
			return int(a.partition - b.partition)
		}
		return int(a.offset - b.offset)
	})
	return out, in.moved
}

const (
	// groupPartitions is how many partitions the topics of groups have.
	groupPartitions = 4
	// groupPatience is how long a group may take to do what it should; several rebalances of clients that notice them by heartbeats of 3 s.
	groupPatience = 60 * time.Second
)

// groupTest is a story of one client.
type groupTest struct {
	t            *testing.T
	c            groupClient
	topic, group string
	admin        *kadm.Client
	end          int64 // of each partition
}

// write adds n records to each partition.
func (g *groupTest) write(n int64) {
	g.t.Helper()
	c := franz(g.t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(g.topic), kgo.ProducerBatchCompression(kgo.NoCompression()))
	var rs []*kgo.Record
	for p := range int32(groupPartitions) {
		for i := range n {
			rs = append(rs, &kgo.Record{Partition: p, Value: fmt.Appendf(nil, "%d/%d", p, g.end+i)})
		}
	}
	if err := c.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
		g.t.Fatal(err)
	}
	g.end += n
}

func (g *groupTest) join() (*inbox, func()) {
	g.t.Helper()
	in := newInbox()
	return in, g.c.join(g.t, g.topic, g.group, in)
}

// await waits until these members together have everything from low to the end.
func (g *groupTest) await(what string, low int64, ins ...*inbox) {
	g.t.Helper()
	limit := time.After(groupPatience)
	for {
		got := map[delivery]bool{}
		var moved []<-chan struct{}
		for _, in := range ins {
			ds, more := in.between(low, g.end)
			moved = append(moved, more)
			for _, d := range ds {
				got[d] = true
			}
		}
		if len(got) == int(g.end-low)*groupPartitions {
			return
		}
		moved = append(moved, moved[0]) // two at least
		select {
		case <-moved[0]:
		case <-moved[1]:
		case <-limit:
			g.t.Fatalf("%s: members were given %d of %d records; the group: %s", what, len(got), int(g.end-low)*groupPartitions, g.members())
		}
	}
}

// owners is who has which partitions, by member id, and the state.
func (g *groupTest) owners() (state string, by map[string][]int32) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	by = map[string][]int32{}
	if g.c.kind == "consumer" {
		described, err := g.admin.DescribeConsumerGroups(ctx, g.group)
		if err != nil {
			return err.Error(), by
		}
		one := described[g.group]
		for _, m := range one.Members {
			by[m.MemberID] = slices.Sorted(maps.Keys(m.Assignment[g.topic]))
		}
		return one.State, by
	}
	described, err := g.admin.DescribeGroups(ctx, g.group)
	if err != nil {
		return err.Error(), by
	}
	one := described[g.group]
	for _, m := range one.Members {
		by[m.MemberID] = nil
		a, ok := m.Assigned.AsConsumer()
		if !ok {
			continue
		}
		for _, topic := range a.Topics {
			if topic.Topic == g.topic {
				by[m.MemberID] = slices.Sorted(slices.Values(topic.Partitions))
			}
		}
	}
	return one.State, by
}

func (g *groupTest) members() string {
	state, by := g.owners()
	return fmt.Sprintf("%s %v", state, by)
}

// settled waits until the group is stable, with that many members and all partitions among them, each with one of them.
func (g *groupTest) settled(members int) {
	g.t.Helper()
	for end := time.Now().Add(groupPatience); ; <-time.After(100 * time.Millisecond) {
		state, by := g.owners()
		var all []int32
		for _, ps := range by {
			all = append(all, ps...)
			if len(ps) == 0 {
				all = append(all, -1)
			}
		}
		slices.Sort(all)
		if state == "Stable" && len(by) == members && slices.Equal(all, []int32{0, 1, 2, 3}) {
			return
		}
		if time.Now().After(end) {
			g.t.Fatalf("the group does not settle with %d members: %s %v", members, state, by)
		}
	}
}

// committed waits until the group is empty, and demands its offsets.
func (g *groupTest) committed(want int64) {
	g.t.Helper()
	for end := time.Now().Add(groupPatience); ; <-time.After(50 * time.Millisecond) {
		state, by := g.owners()
		if state == "Empty" {
			break
		}
		if time.Now().After(end) {
			g.t.Fatalf("the group does not get empty: %s %v", state, by)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	offsets, err := g.admin.FetchOffsets(ctx, g.group)
	if err != nil {
		g.t.Fatal(err)
	}
	for p := range int32(groupPartitions) {
		o, ok := offsets.Lookup(g.topic, p)
		if !ok || o.Err != nil || o.At != want {
			g.t.Errorf("committed of partition %d: %d (%v), want %d", p, o.At, o.Err, want)
		}
	}
}

// parted demands that each partition's records from low to the end were given to one of two members, and that both had some.
func (g *groupTest) parted(low int64, a, b *inbox) {
	g.t.Helper()
	by := map[int32]int{}
	for i, in := range []*inbox{a, b} {
		ds, _ := in.between(low, g.end)
		if len(ds) == 0 {
			g.t.Errorf("one of two members was given nothing")
		}
		for _, d := range ds {
			if by[d.partition] |= 1 << i; by[d.partition] == 3 {
				g.t.Errorf("partition %d was given to both members of a settled group", d.partition)
				return
			}
		}
	}
}

// TestGroups lets each client read with a group: from the beginning; where it was, after a restart; two of them share; one leaves.
func TestGroups(t *testing.T) {
	for _, c := range groupClients {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			if c.missing != nil {
				if what := c.missing(); what != "" {
					need(t, what, false)
				}
			}
			t.Parallel() // they wait for the most part
			g := &groupTest{t: t, c: c, admin: kadm.NewClient(franz(t))}
			g.topic = fmt.Sprintf("groups.%s.%d", strings.ReplaceAll(c.name, " ", "-"), time.Now().UnixNano())
			g.group = g.topic + ".g"
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if _, err := g.admin.CreateTopic(ctx, groupPartitions, 1, nil, g.topic); err != nil {
				t.Fatal(err)
			}
			g.write(25)
			a, stopA := g.join()
			g.await("from the beginning", 0, a)
			stopA()
			g.committed(25)

			g.write(5)
			a, stopA = g.join()
			g.await("after a restart", 25, a)
			if old, _ := a.between(0, 25); len(old) > 0 {
				t.Errorf("after a restart it was given %d records again, the first %v", len(old), old[0])
			}
			b, stopB := g.join()
			g.settled(2)
			g.write(5)
			g.await("two members", 30, a, b)
			g.parted(30, a, b)

			stopA()
			g.settled(1)
			g.write(5)
			g.await("when one has left", 35, b)
			if old, _ := b.between(0, 25); len(old) > 0 {
				t.Errorf("the second member was given %d records that were committed long ago", len(old))
			}
			before, _ := b.between(30, 35)
			if len(before) != 10 {
				t.Errorf("the one that stays was given %d records of what both shared, want its half, 10: what the other had committed counts", len(before))
			}
			stopB()
			g.committed(40)
		})
	}
}

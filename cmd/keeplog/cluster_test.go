package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kadm"
)

// viewOf makes a view of three live brokers from lines such as "orders 0 leader 1 replicas 1,2,3 isr 1,2,3".
func viewOf(t *testing.T, lines ...string) *clusterView {
	t.Helper()
	v := &clusterView{id: "c", controller: 1, led: true, topics: kadm.TopicDetails{}, minISR: map[string]int{}}
	for id := int32(1); id <= 3; id++ {
		v.brokers = append(v.brokers, viewBroker{id: id, address: fmt.Sprintf("h:%d", id), dirs: []viewDir{{path: "/d", total: 100 << 30, free: 50 << 30}}})
	}
	v.quorum = &viewQuorum{leader: 1, voters: []quorumMember{{id: 1}, {id: 2}, {id: 3}}}
	for _, l := range lines {
		var p kadm.PartitionDetail
		var replicas, isr string
		if _, err := fmt.Sscanf(l, "%s %d leader %d replicas %s isr %s", &p.Topic, &p.Partition, &p.Leader, &replicas, &isr); err != nil {
			t.Fatalf("%s: %v", l, err)
		}
		var err error
		if p.Replicas, err = brokerList("replicas", replicas); err != nil {
			t.Fatal(err)
		}
		if isr != "-" {
			if p.ISR, err = brokerList("isr", isr); err != nil {
				t.Fatal(err)
			}
		}
		d, ok := v.topics[p.Topic]
		if !ok {
			d = kadm.TopicDetail{Topic: p.Topic, Partitions: kadm.PartitionDetails{}}
			v.minISR[p.Topic] = 2
		}
		d.Partitions[p.Partition] = p
		v.topics[p.Topic] = d
	}
	return v
}

const inSyncAll = "orders 0 leader 1 replicas 1,2,3 isr 1,2,3"

// What is wrong is named, the worst first, and nothing else.
func TestHealthNamesWhatIsWrong(t *testing.T) {
	for _, tc := range []struct {
		name  string
		lines []string
		plant func(*clusterView)
		want  []string // kind: beginning of the text
	}{
		{"well", []string{inSyncAll}, nil, nil},
		{"no controller", []string{inSyncAll}, func(v *clusterView) { v.controller = -1 }, []string{"no_controller: no leader of the metadata"}},
		{"nobody answers as the leader of the metadata", []string{inSyncAll}, func(v *clusterView) { v.led, v.quorum = false, nil }, []string{"no_controller: no leader"}},
		{"a replica that a reassignment brings in", []string{"orders 0 leader 1 replicas 1,2,3 isr 1,2"}, func(v *clusterView) {
			v.moving = []move{{"orders", 0, []int32{1, 2}, []int32{1, 2, 3}}}
		}, nil},
		{"a replica that was there before a reassignment", []string{"orders 0 leader 1 replicas 1,2,3 isr 1,2"}, func(v *clusterView) {
			v.moving = []move{{"orders", 0, []int32{1, 3}, []int32{1, 2, 3}}, {"orders", 1, []int32{1}, []int32{3}}}
		}, []string{"not_in_sync: broker 3 is behind: 1 of its 1 replicas is not in sync: orders-0"}},
		{"silent and not in sync", []string{"orders 0 leader 1 replicas 1,2,3 isr 1,3"}, func(v *clusterView) { v.brokers[1].silent = true }, []string{
			"broker_silent: broker 2 at h:2 does not answer; 1 of its 1 replicas is not in sync", "metadata_without_spare: 2 of 3",
		}},
		{"the quorum knows no leader", []string{inSyncAll}, func(v *clusterView) { v.quorum.leader = -1 }, []string{"no_controller: no leader"}},
		{"nobody leads", []string{inSyncAll, "orders 1 leader -1 replicas 2,3 isr 2"}, nil, []string{
			"offline_partitions: 1 partition has no leader, and can be neither written nor read: orders-1",
			"not_in_sync: broker 3 is behind: 1 of its 2 replicas is not in sync: orders-1",
		}},
		{"below min.insync.replicas", []string{"orders 0 leader 1 replicas 1,2,3 isr 1"}, func(v *clusterView) { v.brokers[1].fenced, v.brokers[2].fenced = true, true }, []string{
			"under_min_isr: 1 partition has fewer replicas in sync than min.insync.replicas asks for, and refuse",
			"broker_down: broker 2 is down: 1 of its 1 replicas is not in sync",
			"broker_down: broker 3 is down: 1 of its 1 replicas is not in sync",
			"metadata_without_spare: 1 of 3 voters",
		}},
		{"one node down", []string{"orders 0 leader 1 replicas 1,2,3 isr 1,2"}, func(v *clusterView) { v.brokers[2].fenced = true }, []string{
			"broker_down: broker 3 is down", "metadata_without_spare: 2 of 3 voters of the metadata log are well, and 2 are needed",
		}},
		{"behind", []string{"orders 0 leader 1 replicas 1,2,3 isr 1,2"}, nil, []string{"not_in_sync: broker 3 is behind: 1 of its 1 replicas is not in sync: orders-0"}},
		{"two replicas, nothing set", []string{"orders 0 leader 1 replicas 1,2 isr 1"}, func(v *clusterView) { v.unset = map[string]bool{"orders": true} }, []string{
			"not_in_sync: broker 2 is behind: 1 of its 1 replicas is not in sync: orders-0",
		}},
		{"gone", []string{"orders 0 leader 1 replicas 1,2,4 isr 1,2"}, nil, []string{"broker_gone: broker 4 is not registered, and has a replica of 1 partition: orders-0"}},
		{"silent", []string{inSyncAll}, func(v *clusterView) { v.brokers[1].silent = true }, []string{"broker_silent: broker 2 at h:2 does not answer", "metadata_without_spare: 2 of 3"}},
		{"a disk", []string{inSyncAll}, func(v *clusterView) { v.brokers[1].dirs[0].failed = true; v.brokers[2].dirs[0].free = 100 << 20 }, []string{
			"directory_failed: broker 2: the data directory /d has failed", "disk_low: broker 3: 100 MiB left for /d",
		}},
		{"lost", []string{inSyncAll}, func(v *clusterView) {
			v.brokers[0].dirs[0].lostRecords, v.brokers[0].dirs[0].lostPartOf = []lostRecords{{1, 5, 7, 2}}, []string{"orders-0"}
		}, []string{"lost_records: broker 1: the disk has lost 2 records of orders-0, offsets 5 to 6"}},
		{"a voter is behind", []string{inSyncAll}, func(v *clusterView) { v.quorum.voters[2].lag = 5000 }, []string{"metadata_behind: node 3 is 5000 entries behind"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := viewOf(t, tc.lines...)
			if tc.plant != nil {
				tc.plant(v)
			}
			got := v.problems()
			if len(got) != len(tc.want) {
				t.Fatalf("%d problems, want %d: %v", len(got), len(tc.want), got)
			}
			for i, p := range got {
				if line := p.Kind + ": " + p.What; !strings.HasPrefix(line, tc.want[i]) {
					t.Errorf("%d: %s, want %s", i, line, tc.want[i])
				}
				if p.Try == "" {
					t.Errorf("%s says nothing of what to do", p.Kind)
				}
			}
		})
	}
}

// Whatever the partitions and brokers: every partition gets distinct brokers that may hold it, as many as it must, nothing moves
// without need, and no broker gets more than its share by much.
func TestSpread(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 300 {
		brokers := 1 + rng.IntN(6)
		var all []int32
		for id := range brokers {
			all = append(all, int32(id+1))
		}
		parts := randomPartitions(rng, brokers)
		o := spreadOptions{brokers: all[:1+rng.IntN(brokers)], held: map[int32]int{}, factor: rng.IntN(4)}
		for _, p := range parts {
			for _, id := range p.Replicas {
				o.held[id]++
			}
		}
		moves, short := spread(parts, o)
		after := map[string][]int32{}
		for _, m := range moves {
			after[m.name()] = m.to
			if slices.Equal(m.from, m.to) {
				t.Fatalf("a move that moves nothing: %+v", m)
			}
		}
		for _, p := range parts {
			name := fmt.Sprintf("%s-%d", p.Topic, p.Partition)
			to, moved := after[name]
			if !moved {
				to = p.Replicas
			}
			checkSpread(t, spreadCase{p, to, slices.Contains(short, name)}, o)
		}
	}
}

func randomPartitions(rng *rand.Rand, brokers int) []kadm.PartitionDetail {
	var parts []kadm.PartitionDetail
	for n := range 1 + rng.IntN(20) {
		var ids []int32
		for _, id := range rng.Perm(brokers)[:1+rng.IntN(min(3, brokers))] {
			ids = append(ids, int32(id+1))
		}
		parts = append(parts, kadm.PartitionDetail{Topic: "t", Partition: int32(n), Replicas: ids})
	}
	return parts
}

// spreadCase is a partition, where it went, and whether it was said to be short of replicas.
type spreadCase struct {
	p     kadm.PartitionDetail
	to    []int32
	short bool
}

func checkSpread(t *testing.T, c spreadCase, o spreadOptions) {
	t.Helper()
	p, to, short := c.p, c.to, c.short
	want := o.factor
	if want == 0 {
		want = len(p.Replicas)
	}
	if (len(to) != want) != short || short && len(to) != len(o.brokers) {
		t.Fatalf("%v -> %v: want %d replicas on %v, short %v", p.Replicas, to, want, o.brokers, short)
	}
	sorted := slices.Sorted(slices.Values(to))
	if len(slices.Compact(sorted)) != len(to) {
		t.Fatalf("%v: a broker twice", to)
	}
	stayed := 0
	for _, id := range to {
		if !slices.Contains(o.brokers, id) {
			t.Fatalf("%v: broker %d may not hold it", to, id)
		}
		if slices.Contains(p.Replicas, id) {
			stayed++
		}
	}
	could := 0
	for _, id := range p.Replicas {
		if slices.Contains(o.brokers, id) {
			could++
		}
	}
	if stayed != min(could, want) {
		t.Fatalf("%v -> %v on %v: %d stayed, %d could", p.Replicas, to, o.brokers, stayed, could)
	}
}

func TestSpreadBalances(t *testing.T) {
	var parts []kadm.PartitionDetail
	for n := range int32(12) {
		parts = append(parts, kadm.PartitionDetail{Topic: "t", Partition: n, Replicas: []int32{4}})
	}
	o := spreadOptions{brokers: []int32{1, 2, 3}, held: map[int32]int{4: 12}, racks: map[int32]string{1: "a", 2: "a", 3: "b"}, factor: 2}
	moves, short := spread(parts, o)
	held, first := map[int32]int{}, map[int32]int{}
	for _, m := range moves {
		first[m.to[0]]++
		for _, id := range m.to {
			held[id]++
		}
		if !slices.Contains(m.to, 3) {
			t.Errorf("%v: both in one rack", m.to)
		}
	}
	if d := cmp.Diff(map[int32]int{1: 6, 2: 6, 3: 12}, held); d != "" || len(short) != 0 {
		t.Errorf("replicas: %s", d)
	}
	if d := cmp.Diff(map[int32]int{1: 4, 2: 4, 3: 4}, first); d != "" {
		t.Errorf("preferred leaders: %s", d)
	}
}

func TestPlanRemoval(t *testing.T) {
	// As many replicas as brokers: it cannot go without shrinking.
	v := viewOf(t, inSyncAll)
	if _, err := v.planRemoval(3, false); err == nil || !strings.Contains(err.Error(), "1 partition would have fewer replicas without broker 3: orders-0") {
		t.Errorf("%v", err)
	}
	r, err := v.planRemoval(3, true)
	if err != nil || len(r.moves) != 1 || !slices.Equal(r.moves[0].to, []int32{1, 2}) || !r.voter || !r.broker {
		t.Errorf("%+v, %v", r, err)
	}
	// A fourth takes what the third had, and what lies on a broker that is down stays there.
	v = viewOf(t, inSyncAll)
	v.brokers = append(v.brokers, viewBroker{id: 4, dirs: []viewDir{}})
	v.brokers[1].fenced = true
	r, err = v.planRemoval(3, false)
	if err != nil || len(r.moves) != 1 || !slices.Equal(r.moves[0].to, []int32{1, 2, 4}) {
		t.Errorf("%+v, %v", r, err)
	}
	// The only copy goes nowhere.
	v = viewOf(t, "orders 0 leader 3 replicas 3 isr 3")
	v.brokers = v.brokers[2:]
	if _, err := v.planRemoval(3, true); err == nil {
		t.Error("the only broker can be removed")
	}
	// What a broker had that was unregistered moves too.
	v = viewOf(t, "orders 0 leader 1 replicas 1,9 isr 1")
	if r, err := v.planRemoval(9, false); err != nil || len(r.moves) != 1 || r.broker || r.moves[0].to[0] != 1 || slices.Contains(r.moves[0].to, 9) {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := viewOf(t, inSyncAll).planRemoval(9, false); err == nil {
		t.Error("a node that is not there can be removed")
	}
}

func TestDependents(t *testing.T) {
	v := viewOf(t, inSyncAll, "orders 1 leader 2 replicas 2,1,3 isr 2,1", "orders 2 leader 2 replicas 2,3 isr 2,3", "orders 3 leader 2 replicas 2,1,3 isr 2,1,3")
	led, needed := v.dependents(1)
	if d := cmp.Diff([][]string{{"orders-0"}, {"orders-1"}}, [][]string{led, needed}); d != "" {
		t.Error(d)
	}
}

// With --to a broker that holds nothing gets its share of replicas and of leaders, and no more moves than that takes.
func TestSpreadEvenly(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	for range 300 {
		had := 1 + rng.IntN(4)
		parts := randomPartitions(rng, had)
		o := spreadOptions{brokers: []int32{1, 2, 3, 4, 5}[:had+1], held: map[int32]int{}, even: true}
		for _, p := range parts {
			for _, id := range p.Replicas {
				o.held[id]++
			}
		}
		moves, short := spread(parts, o)
		if len(short) > 0 {
			t.Fatalf("short: %v", short)
		}
		total, holds, leads := 0, map[int32]int{}, map[int32]int{}
		for _, p := range parts {
			to := p.Replicas
			if at := slices.IndexFunc(moves, func(m move) bool { return m.partition == p.Partition }); at >= 0 {
				to = moves[at].to
			}
			if len(to) != len(p.Replicas) || len(slices.Compact(slices.Sorted(slices.Values(to)))) != len(to) {
				t.Fatalf("%v -> %v", p.Replicas, to)
			}
			total += len(to)
			leads[to[0]]++
			for _, id := range to {
				holds[id]++
			}
		}
		for _, id := range o.brokers {
			if share := total / len(o.brokers); holds[id] < share-1 || holds[id] > share+2 {
				t.Fatalf("broker %d holds %d of %d replicas on %d brokers", id, holds[id], total, len(o.brokers))
			}
		}
		if joined := int32(had + 1); holds[joined] > 1 && len(parts) >= 4*len(o.brokers) && leads[joined] == 0 {
			t.Fatalf("broker %d leads nothing of %d: %v", joined, len(parts), leads)
		}
		if again, _ := spread(movedTo(parts, moves), spreadOptions{brokers: o.brokers, held: holds, even: true}); len(again) > 0 {
			t.Fatalf("a second time it moves on: %v", again)
		}
	}
}

func movedTo(parts []kadm.PartitionDetail, moves []move) []kadm.PartitionDetail {
	out := slices.Clone(parts)
	for i := range out {
		for _, m := range moves {
			if m.partition == out[i].Partition {
				out[i].Replicas = m.to
			}
		}
	}
	return out
}

// Only the disk of a node that is down can be forgotten.
func TestPlanReplacement(t *testing.T) {
	v := viewOf(t, inSyncAll)
	v.quorum.observers = []quorumMember{{id: 4, directory: [16]byte{7}}}
	for id, refusal := range map[int32]string{2: "broker 2 is up", 9: "node 9 is no member"} {
		if _, err := v.planReplacement(id); err == nil || !strings.Contains(err.Error(), refusal) {
			t.Errorf("%d: %v", id, err)
		}
	}
	v.brokers[1].fenced = true
	for _, id := range []int32{2, 4} {
		r, err := v.planReplacement(id)
		if err != nil || r.member == nil || r.member.id != id || r.broker || len(r.moves) > 0 {
			t.Errorf("%d: %+v, %v", id, r, err)
		}
	}
}

// What need not move stays: on brokers that are drained, down or silent too. They take nothing, and what is too much goes from them first.
func TestReassignLeavesWhatNeedNotMove(t *testing.T) {
	for _, tc := range []struct {
		name  string
		lines []string
		f     reassignFlags
		want  map[string]string
		short string
	}{
		{"a drained broker keeps what it has", []string{inSyncAll}, reassignFlags{factor: 3, from: -1}, nil, ""},
		{"and takes nothing", []string{"orders 0 leader 1 replicas 1,3 isr 1,3"}, reassignFlags{factor: 3, from: -1}, nil, "only the brokers 1,3 may take them"},
		{"another takes it", []string{"orders 0 leader 2 replicas 2 isr 2"}, reassignFlags{factor: 2, from: -1}, map[string]string{"orders-0": "2,1"}, ""},
		{"fewer", []string{"orders 0 leader 2 replicas 2,3,1 isr 1,2,3"}, reassignFlags{factor: 2, from: -1}, map[string]string{"orders-0": "3,1"}, ""},
		{"one", []string{"orders 0 leader 2 replicas 2,3,1 isr 1,2,3"}, reassignFlags{factor: 1, from: -1}, map[string]string{"orders-0": "3"}, ""},
		{"off another", []string{"orders 0 leader 3 replicas 3,2 isr 3,2"}, reassignFlags{from: 3}, map[string]string{"orders-0": "1,2"}, ""},
		{"off itself", []string{inSyncAll, "orders 1 leader 1 replicas 1,3 isr 1,3"}, reassignFlags{from: 2}, nil, "only the brokers 1,3 may take them"},
	} {
		for state, plant := range map[string]func(*viewBroker){
			"drained": func(b *viewBroker) { b.drained = true }, "down": func(b *viewBroker) { b.fenced = true }, "silent": func(b *viewBroker) { b.silent = true },
		} {
			v := viewOf(t, tc.lines...)
			plant(&v.brokers[1])
			moves, err := v.planReassign(tc.f, nil)
			if tc.short != "" {
				if err == nil || failure(err).why != tc.short {
					t.Errorf("%s, %s: %v, %v", tc.name, state, moves, err)
				}
				continue
			}
			got := map[string]string{}
			for _, m := range moves {
				got[m.name()] = numbers(m.to)
			}
			if d := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); d != "" || err != nil {
				t.Errorf("%s, %s: %v %s", tc.name, state, err, d)
			}
		}
	}
}

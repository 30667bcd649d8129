package torture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Options are what a run is made of.
type Options struct {
	// Seed decides what is done to whom and when, and what is written where.
	Seed uint64
	// Duration is how long faults are injected, above 0.
	Duration time.Duration
	// Interval is the mean time between the beginnings of two faults; 4 s when 0.
	Interval time.Duration
	// Faults are names of [FaultNames]; empty for none.
	Faults []string
	// Partitions is how many are written to, 8 when 0, 8 to 64. A third of them comes only in the course of the run.
	Partitions int
	// Producers is how many idempotent producers write at a time, 4 when 0; beside them one measures.
	Producers int
	// Rate is how many records a second they write together, 2,000 when 0.
	Rate int
	// Heal is how long the cluster may take to become whole when the faults are over, 60 s when 0.
	Heal time.Duration
	// Say is told what goes on, a line each time, from any goroutine; may be nil.
	Say func(string)
	// Topic is the beginning of the topics' names.
	Topic string
	// Network is what the nodes talk through; nil when they talk without gates: then there are no faults of the network.
	Network *Network
	// Workloads go on beside what is written and read here.
	Workloads []Workload
}

// Workload is something that clients do while the cluster is tortured. What it finds it tells to the Checker of the Scene.
type Workload interface {
	// Begin starts it; it goes on in its own goroutines until Finish. An error ends the run.
	Begin(ctx context.Context, s Scene) error
	// Finish is called when the faults are over and every node runs. It ends the workload and checks what only the end shows.
	Finish(ctx context.Context)
}

// Scene is where a workload plays.
type Scene struct {
	Seed uint64
	// Brokers are HOST:PORT of every node, for clients.
	Brokers []string
	Check   *Checker
	// Partitions are those that are written to now; they become more.
	Partitions func() []Partition
	// Say is told what goes on, a line each time.
	Say func(string)
}

func (o Options) withDefaults() Options {
	set := func(v *int, to int) {
		if *v == 0 {
			*v = to
		}
	}
	set(&o.Partitions, 12)
	set(&o.Producers, 4)
	set(&o.Rate, 2000)
	if o.Interval == 0 {
		o.Interval = 4 * time.Second
	}
	if o.Heal == 0 {
		o.Heal = 60 * time.Second
	}
	if o.Say == nil {
		o.Say = func(string) {}
	}
	if o.Topic == "" {
		o.Topic = fmt.Sprintf("torture-%x", o.Seed)
	}
	return o
}

// run is one run.
type run struct {
	o       Options
	cluster Cluster
	check   *Checker
	places  *places
	began   time.Time
	numbers atomic.Int64 // of producers

	mu      sync.Mutex
	clients []*kgo.Client
	spans   []Span // pulses that took long
	notes   []string

	planted []*rot
}

// topicsWanted is how the partitions are parted into topics: the first is there from the start.
func topicsWanted(partitions int) []int32 {
	rest := int32(partitions) / 3
	return []int32{int32(partitions) - rest, rest - rest/2, rest / 2}
}

// Run tortures a cluster whose nodes all run, and leaves its nodes stopped. The error is about the run itself: it could not be
// done, or ctx was cancelled. What the cluster did wrong is in the Verdict.
func Run(ctx context.Context, cluster Cluster, o Options) (Verdict, error) {
	r := &run{o: o.withDefaults(), cluster: cluster, check: NewChecker(), places: &places{}, began: time.Now()}
	defer r.closeClients()
	topics := topicsWanted(r.o.Partitions)
	if err := r.create(ctx, 0, topics[0]); err != nil {
		return Verdict{}, err
	}
	r.began = time.Now()
	n, err := r.nemesis()
	if err != nil {
		return Verdict{}, err
	}
	p := newPlan(planOptions{seed: r.o.Seed, duration: r.o.Duration, interval: r.o.Interval, nodes: r.nodeIDs(), faults: r.o.Faults})

	load, stopLoad := context.WithCancel(ctx)
	readers, stopReaders := context.WithCancel(ctx)
	defer stopReaders()
	defer stopLoad()
	var writing, reading sync.WaitGroup
	r.write(load, &writing, topics)
	if err := r.read(readers, &reading); err != nil {
		return Verdict{}, err
	}
	scene := Scene{Seed: r.o.Seed, Brokers: r.seeds(), Check: r.check, Partitions: r.places.list, Say: r.o.Say}
	for _, w := range r.o.Workloads {
		if err := w.Begin(ctx, scene); err != nil {
			return Verdict{}, err
		}
	}
	r.torment(ctx, n, p)
	r.o.Say(fmt.Sprintf("%6.1fs  the faults are over; waiting until every replica is in sync", time.Since(r.began).Seconds()))
	n.heal()
	for _, w := range r.o.Workloads {
		w.Finish(ctx)
	}
	stopLoad()
	r.finish(ctx, &writing)
	assigned := r.awaitWhole(ctx)
	stopReaders()
	reading.Wait()
	if ctx.Err() == nil {
		r.o.Say(fmt.Sprintf("%6.1fs  reading every replica", time.Since(r.began).Seconds()))
		r.readReplicas(ctx, assigned)
	}
	r.planted = n.rots
	r.closeClients()
	r.stopAll()
	if ctx.Err() != nil {
		return Verdict{}, context.Cause(ctx)
	}
	r.o.Say(fmt.Sprintf("%6.1fs  checking every file", time.Since(r.began).Seconds()))
	for _, node := range cluster.Nodes() {
		if err := r.offline(ctx, node, assigned); err != nil {
			return Verdict{}, fmt.Errorf("read the files of node %d: %w", node.ID, err)
		}
	}
	return r.verdict(n), nil
}

// nemesis is who carries the plan out.
func (r *run) nemesis() (*nemesis, error) {
	client, err := kgo.NewClient(clientOptions(r.seeds(), "operator")...)
	if err != nil {
		return nil, err
	}
	r.keep(client)
	n := &nemesis{
		cluster: r.cluster, network: r.o.Network, check: r.check, places: r.places, client: client, began: r.began, say: r.o.Say,
	}
	n.init()
	return n, nil
}

// torment carries the plan out and waits for the end of the duration.
func (r *run) torment(ctx context.Context, n *nemesis, p plan) {
	operators, cancel := context.WithDeadline(ctx, r.began.Add(r.o.Duration+r.o.Heal))
	context.AfterFunc(operators, cancel) // it lives until its deadline: heal waits for who works under it
	n.run(ctx, operators, p)
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(r.began.Add(r.o.Duration))):
	}
}

func (r *run) nodeIDs() []int32 {
	var ids []int32
	for _, n := range r.cluster.Nodes() {
		ids = append(ids, n.ID)
	}
	return ids
}

func (r *run) seeds() []string {
	var all []string
	for _, n := range r.cluster.Nodes() {
		all = append(all, n.Address)
	}
	return all
}

func (r *run) keep(c *kgo.Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients = append(r.clients, c)
}

// unkeep hands a client back to who closes it.
func (r *run) unkeep(c *kgo.Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients = slices.DeleteFunc(r.clients, func(have *kgo.Client) bool { return have == c })
}

func (r *run) closeClients() {
	r.mu.Lock()
	all := r.clients
	r.clients = nil
	r.mu.Unlock()
	for _, c := range all {
		c.Close()
	}
}

func (r *run) slow(s Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = append(r.spans, s)
}

func (r *run) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// create makes a topic, however often it must be tried, and hands its partitions to producers and readers.
func (r *run) create(ctx context.Context, number int, partitions int32) error {
	if partitions <= 0 {
		return nil
	}
	name := fmt.Sprintf("%s-%d", r.o.Topic, number)
	client, err := kgo.NewClient(clientOptions(r.seeds(), "admin")...)
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	segment := "1048576"
	deadline := time.Now().Add(r.o.Heal)
	for {
		ask, cancel := context.WithTimeout(ctx, askTimeout)
		_, err := admin.CreateTopic(ask, partitions, -1, map[string]*string{"segment.bytes": &segment}, name)
		cancel()
		// Whatever was answered, a topic that is there with all partitions is enough: an earlier try may have made it.
		l, _, merr := metadata(ctx, client, []string{name})
		if merr == nil && len(l.leaders) == int(partitions) {
			r.places.add(name, partitions)
			return nil
		}
		if err == nil {
			err = merr
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("create topic %s: %w", name, err)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// write starts producers, pulses, and the making of further topics.
func (r *run) write(ctx context.Context, wg *sync.WaitGroup, topics []int32) {
	for slot := range r.o.Producers {
		wg.Go(func() { r.producers(ctx, slot) })
	}
	client, err := kgo.NewClient(producerOptions(r.seeds(), "pulse")...)
	if err != nil {
		r.check.Violated(GivenUp, "pulses: %v", err)
		return
	}
	r.keep(client)
	number := int(r.numbers.Add(1)) - 1
	pulses := func() {
		for _, p := range r.places.list() {
			wg.Go(func() { r.pulse(ctx, client, number, p) })
		}
	}
	pulses()
	wg.Go(func() {
		for i, partitions := range topics[1:] {
			select {
			case <-ctx.Done():
				return
			case <-time.After(r.o.Duration / 4):
			}
			before := len(r.places.list())
			if err := r.create(ctx, i+1, partitions); err != nil {
				if ctx.Err() == nil {
					r.check.Violated(NotHealed, "%v", err)
				}
				return
			}
			for _, p := range r.places.list()[before:] {
				wg.Go(func() { r.pulse(ctx, client, number, p) })
			}
		}
	})
}

// read starts the readers.
func (r *run) read(ctx context.Context, wg *sync.WaitGroup) error {
	for _, id := range r.nodeIDs() {
		fetches, err := r.newReader("reader", id)
		if err != nil {
			return err
		}
		asks, err := r.newReader("latest", id)
		if err != nil {
			return err
		}
		wg.Go(func() { fetches.read(ctx) })
		wg.Go(func() { asks.latest(ctx) })
	}
	wg.Go(func() { r.consume(ctx) })
	return nil
}

// finish waits until everything that was handed over is acknowledged: every node runs again.
func (r *run) finish(ctx context.Context, writing *sync.WaitGroup) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Heal)
	defer cancel()
	done := make(chan struct{})
	go func() {
		writing.Wait()
		close(done)
	}()
	r.mu.Lock()
	clients := slices.Clone(r.clients)
	r.mu.Unlock()
	for _, c := range clients {
		if err := c.Flush(ctx); err != nil && ctx.Err() != nil {
			break
		}
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
	left := int64(0)
	for _, c := range clients {
		left += c.BufferedProduceRecords()
	}
	if left > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		r.check.Violated(NotHealed, "%d records have no answer %s after the faults were over", left, r.o.Heal)
	}
}

// awaitWhole waits until every node knows every node, and every replica is in sync. It returns who holds what.
func (r *run) awaitWhole(ctx context.Context) *leadership {
	deadline := time.Now().Add(r.o.Heal)
	best := &leadership{leaders: map[Partition]lead{}, ids: map[string][16]byte{}}
	for {
		var missing []string
		for _, node := range r.cluster.Nodes() {
			l, why := r.viewOf(ctx, node)
			if l != nil && len(l.leaders) >= len(best.leaders) {
				best = l
			}
			missing = append(missing, why...)
		}
		if len(missing) == 0 || ctx.Err() != nil {
			return best
		}
		if time.Now().After(deadline) {
			for _, m := range missing {
				r.check.Violated(NotHealed, "%s after the faults were over: %s", r.o.Heal, m)
			}
			return best
		}
		<-time.After(100 * time.Millisecond)
	}
}

// viewOf is what a node knows, and what is not yet as it should be in that.
func (r *run) viewOf(ctx context.Context, node Node) (*leadership, []string) {
	client, err := kgo.NewClient(append(clientOptions([]string{node.Address}, "view"), kgo.RequestRetries(0))...)
	if err != nil {
		return nil, []string{err.Error()}
	}
	defer client.Close()
	l, resp, err := metadata(ctx, client.SeedBrokers()[0], topicsOf(r.places.list()))
	if err != nil {
		return nil, []string{fmt.Sprintf("node %d does not answer (%v)", node.ID, err)}
	}
	var missing []string
	if have, want := len(resp.Brokers), len(r.cluster.Nodes()); have != want {
		missing = append(missing, fmt.Sprintf("node %d knows %d nodes of %d", node.ID, have, want))
	}
	for _, p := range r.places.list() {
		switch at, ok := l.leaders[p]; {
		case !ok || at.node < 0:
			missing = append(missing, fmt.Sprintf("%s has no leader, says node %d", p, node.ID))
		case len(at.inSync) < len(at.replicas):
			missing = append(missing, fmt.Sprintf("%s: in sync are %v of the replicas %v, says node %d", p, at.inSync, at.replicas, node.ID))
		}
	}
	return l, missing
}

// readReplicas reads every replica from its own node.
func (r *run) readReplicas(ctx context.Context, assigned *leadership) {
	ends := r.check.Ends()
	for _, node := range r.cluster.Nodes() {
		var parts []Partition
		for p, l := range assigned.leaders {
			if slices.Contains(l.replicas, node.ID) {
				parts = append(parts, p)
			}
		}
		d, err := r.newReader("replicas", node.ID)
		if err == nil {
			d.known = assigned
			err = d.replicaOf(ctx, node, ends, parts)
		}
		switch {
		case err == nil || ctx.Err() != nil:
		case errors.Is(err, errNotServed):
			r.note("node %d: %v; its files are read instead", node.ID, err)
		default:
			r.check.Violated(NotHealed, "node %d cannot be read: %v", node.ID, err)
		}
	}
}

// stopAll stops every node cleanly.
func (r *run) stopAll() {
	var wg sync.WaitGroup
	for _, id := range r.nodeIDs() {
		wg.Go(func() {
			if !r.cluster.Running(id) {
				r.check.Violated(Ended, "node %d: %s", id, r.cluster.LastWords(id))
				return
			}
			if err := r.cluster.Stop(id); err != nil {
				r.check.Violated(NotHealed, "stop node %d: %v", id, err)
			}
		})
	}
	wg.Wait()
}

func (r *run) verdict(n *nemesis) Verdict {
	v := r.check.Verdict()
	v.Seed, v.Nodes, v.Took, v.Faults, v.Notes = r.o.Seed, len(r.nodeIDs()), time.Since(r.began), n.done, r.notes
	for _, planted := range r.planted {
		if planted.found {
			v.Rotten++
		}
	}
	minority := union(append(Minorities(n.changes, r.nodeIDs(), v.Took), n.excused...))
	for _, s := range r.spans {
		if d := Outage(s, minority); d >= outageLeast {
			v.WithoutLeader = append(v.WithoutLeader, d)
		}
	}
	slices.Sort(v.WithoutLeader)
	if v.Acknowledged == 0 {
		v.Counts[NotHealed]++
		v.Told[NotHealed] = append(v.Told[NotHealed], "nothing was acknowledged in the whole run")
	}
	return v
}

// FaultText is what was done, as "3 kill, 1 pause".
func (v *Verdict) FaultText() string {
	var words []string
	for _, f := range FaultNames() {
		if n := v.Faults[f]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, f))
		}
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

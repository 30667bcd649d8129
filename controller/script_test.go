package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/metadata"
)

// world is a controller over an image in memory.
type world struct {
	img    *metadata.Image
	index  uint64
	ids    byte
	leader bool
	term   uint64
	c      *Controller
	// busy says that every shard has groups.
	busy bool
	// now is the controller's monotonic clock; commands set it with at=.
	now time.Duration
}

func (w *world) Image() *metadata.Image { return w.img }

func (w *world) Lead() (uint64, error) {
	if !w.leader {
		return 0, errors.New("node 2 is")
	}
	return w.term, nil
}

func (w *world) ProposeAt(_ context.Context, term uint64, records []metadata.Record) (uint64, []metadata.Result, error) {
	w.index++
	payload := metadata.AppendCommand(nil, &metadata.Command{
		Session: metadata.Session{Epoch: metadata.NoEpoch}, Groups: []metadata.Group{{Term: term, Records: records}},
	})
	next, _, out, err := metadata.Apply(w.img, nil, metadata.Entry{Index: w.index, Term: w.term, Payload: payload})
	if err != nil {
		return 0, nil, err
	}
	w.img = next
	return w.index, out.Results[0], nil
}

func newWorld() *world {
	w := &world{img: metadata.New(), leader: true, term: 1}
	w.c = New(Options{
		Proposer: w, Static: config.Default(), Rand: rand.New(rand.NewPCG(1, 2)),
		NewID: func() metadata.TopicID { w.ids++; return metadata.TopicID{w.ids} },
		Node:  -1,
		Busy:  func(int32) bool { return w.busy },
	})
	return w
}

// kinds names the answers' sentinels.
var kinds = []error{
	ErrInvalidTopic, ErrTopicExists, ErrUnknownTopic, ErrUnknownTopicID, ErrInvalidPartitions, ErrInvalidReplicationFactor,
	ErrInvalidReplicaAssignment, ErrInvalidRequest, ErrInvalidConfig, ErrUnknownOperation, ErrPolicyViolation, ErrUnknownResource,
	ErrInconsistentClusterID, ErrDuplicateBroker, ErrStaleBrokerEpoch, ErrBrokerNotRegistered, ErrElectionNotNeeded,
	ErrPreferredLeaderNotAvailable, ErrEligibleLeadersNotAvailable, ErrNotController, ErrNotCommitted,
	ErrFencedLeaderEpoch, ErrInvalidUpdateVersion, ErrIneligibleReplica, ErrNewLeaderElected, ErrNoReassignment, ErrFeatureUpdateFailed,
	ErrUnsupportedFeature,
}

func verdict(err error) string {
	if err == nil {
		return "ok"
	}
	for _, k := range kinds {
		if errors.Is(err, k) {
			if err.Error() == k.Error() {
				return "[" + k.Error() + "]"
			}
			return "[" + k.Error() + "] " + err.Error()
		}
	}
	return "[?] " + err.Error()
}

func numbers(s string) (ids []int32) {
	if s == "" {
		return []int32{}
	}
	for _, f := range strings.Split(s, ",") {
		n, err := strconv.Atoi(f)
		if err != nil {
			panic(err)
		}
		ids = append(ids, int32(n))
	}
	return ids
}

// words splits a line into its words; 'x y' is one word.
func words(line string) (out []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			out = append(out, part)
		} else {
			out = append(out, strings.Fields(part)...)
		}
	}
	return out
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// createLine is "NAME [partitions=N] [replicas=N] [assign=0:1,2;1:2,1] [KEY=VALUE …] [KEY=null]".
func createLine(line string) CreateTopic {
	f := words(line)
	t := CreateTopic{Name: f[0], Partitions: -1, Replicas: -1}
	for _, w := range f[1:] {
		k, v, _ := strings.Cut(w, "=")
		switch k {
		case "partitions":
			t.Partitions = int32(number(v))
		case "replicas":
			t.Replicas = int16(number(v))
		case "assign":
			for _, a := range strings.Split(v, ";") {
				p, ids, _ := strings.Cut(a, ":")
				t.Assignment = append(t.Assignment, PartitionAssignment{int32(number(p)), numbers(ids)})
			}
		default:
			t.Configs = append(t.Configs, setting(k, v))
		}
	}
	return t
}

func setting(k, v string) metadata.Setting {
	if v == "null" {
		return metadata.Setting{Key: k}
	}
	return metadata.Setting{Key: k, Value: &v}
}

// resource reads "topic:NAME", "broker:1", "broker:", "group:g", "metrics:m", "logger:1" or "kind99:x".
func resource(s string) metadata.Resource {
	k, name, _ := strings.Cut(s, ":")
	kind, ok := map[string]metadata.ResourceKind{
		"topic": metadata.ResourceTopic, "broker": metadata.ResourceBroker, "group": metadata.ResourceGroup,
		"metrics": metadata.ResourceClientMetrics, "logger": metadata.ResourceBrokerLogger,
	}[k]
	if !ok {
		kind = metadata.ResourceKind(number(strings.TrimPrefix(k, "kind")))
	}
	return metadata.Resource{Kind: kind, Name: name}
}

// opLine is "RESOURCE KEY=VALUE KEY+=VALUE KEY-=VALUE -KEY …".
func opLine(line string) AlterResource {
	f := words(line)
	r := AlterResource{Resource: resource(f[0])}
	for _, w := range f[1:] {
		if k, ok := strings.CutPrefix(w, "-"); ok {
			r.Ops = append(r.Ops, ConfigOp{Key: k, Op: config.OpDelete})
			continue
		}
		k, v, _ := strings.Cut(w, "=")
		op := ConfigOp{Op: config.OpSet}
		switch {
		case strings.HasSuffix(k, "+"):
			op.Op = config.OpAppend
		case strings.HasSuffix(k, "-"):
			op.Op = config.OpSubtract
		case strings.HasSuffix(k, "?"):
			op.Op = 9
		}
		s := setting(strings.TrimRight(k, "+-?"), v)
		op.Key, op.Value = s.Key, s.Value
		r.Ops = append(r.Ops, op)
	}
	return r
}

func lines(d *datadriven.TestData) []string {
	if d.Input == "" {
		return nil
	}
	return strings.Split(d.Input, "\n")
}

func (w *world) run(t *testing.T, d *datadriven.TestData) string {
	var b strings.Builder
	ctx := context.Background()
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(&b, verdict(err))
		}
	}
	dry := d.HasArg("validate")
	switch d.Cmd {
	case "create":
		req := CreateTopicsRequest{ValidateOnly: dry}
		for _, l := range lines(d) {
			req.Topics = append(req.Topics, createLine(l))
		}
		answers, err := w.c.CreateTopics(ctx, req)
		fail(err)
		for _, a := range answers {
			fmt.Fprintf(&b, "%s: %s", a.Name, verdict(a.Err))
			if a.Err == nil {
				fmt.Fprintf(&b, ", %d partitions, %d replicas, id %v", a.Partitions, a.Replicas, !a.ID.IsZero())
			}
			b.WriteByte('\n')
		}
	case "delete":
		var refs []TopicRef
		for _, l := range lines(d) {
			var r TopicRef
			for _, f := range words(l) {
				if id, ok := strings.CutPrefix(f, "id="); ok {
					r.ID = metadata.TopicID{byte(number(id))}
				} else {
					r.Name = f
				}
			}
			refs = append(refs, r)
		}
		answers, err := w.c.DeleteTopics(ctx, refs)
		fail(err)
		for _, a := range answers {
			fmt.Fprintf(&b, "%s id=%d: %s\n", a.Name, a.ID[0], verdict(a.Err))
		}
	case "grow":
		w.grow(d, &b, dry, fail)
	case "alter":
		req := AlterConfigsRequest{ValidateOnly: dry, Receiver: 1}
		for _, l := range lines(d) {
			req.Resources = append(req.Resources, opLine(l))
		}
		answers, err := w.c.IncrementalAlterConfigs(ctx, req)
		fail(err)
		for _, a := range answers {
			fmt.Fprintf(&b, "%v: %s\n", a.Resource, verdict(a.Err))
		}
	case "replace":
		req := ReplaceConfigsRequest{ValidateOnly: dry, Receiver: 1}
		for _, l := range lines(d) {
			r := opLine(l)
			rr := ReplaceResource{Resource: r.Resource}
			for _, op := range r.Ops {
				rr.Settings = append(rr.Settings, metadata.Setting{Key: op.Key, Value: op.Value})
			}
			req.Resources = append(req.Resources, rr)
		}
		answers, err := w.c.AlterConfigs(ctx, req)
		fail(err)
		for _, a := range answers {
			fmt.Fprintf(&b, "%v: %s\n", a.Resource, verdict(a.Err))
		}
	default:
		w.brokers(t, d, &b)
	}
	return b.String()
}

func (w *world) grow(d *datadriven.TestData, b *strings.Builder, dry bool, fail func(error)) {
	req := CreatePartitionsRequest{ValidateOnly: dry}
	for _, l := range lines(d) {
		f := words(l)
		g := GrowTopic{Name: f[0], Count: int32(number(f[1]))}
		for _, a := range f[2:] {
			g.Assignments = append(g.Assignments, numbers(strings.Trim(a, "[]")))
		}
		req.Topics = append(req.Topics, g)
	}
	answers, err := w.c.CreatePartitions(context.Background(), req)
	fail(err)
	for _, a := range answers {
		fmt.Fprintf(b, "%s: %s\n", a.Name, verdict(a.Err))
	}
}

// command is one line of a script with what its arguments mean.
type command struct {
	t *testing.T
	d *datadriven.TestData
	b *strings.Builder
}

func (c command) number(key string, otherwise int) int {
	if c.d.HasArg(key) {
		c.d.ScanArgs(c.t, key, &otherwise)
	}
	return otherwise
}

func (c command) text(key string) (v string) {
	if c.d.HasArg(key) {
		c.d.ScanArgs(c.t, key, &v)
	}
	return v
}

func (c command) say(format string, args ...any) { fmt.Fprintf(c.b, format+"\n", args...) }

// partition reads "TOPIC NUMBER".
func (w *world) partition(f []string) PartitionRef {
	topic, ok := w.img.TopicByName(f[0])
	if !ok {
		return PartitionRef{Partition: int32(number(f[1]))}
	}
	return PartitionRef{topic.ID, int32(number(f[1]))}
}

func (w *world) refs(d *datadriven.TestData) (refs []PartitionRef) {
	for _, l := range lines(d) {
		refs = append(refs, w.partition(strings.Fields(l)))
	}
	return refs
}

// brokers are the commands about brokers, and those that look.
func (w *world) brokers(t *testing.T, d *datadriven.TestData, b *strings.Builder) {
	ctx := context.Background()
	c := command{t, d, b}
	id := int32(c.number("id", 0))
	epoch := int64(c.number("epoch", 0))
	if known, ok := w.img.Broker(id); ok && epoch == 0 {
		epoch = known.Epoch
	}
	if at := c.text("at"); at != "" {
		var err error
		if w.now, err = time.ParseDuration(at); err != nil {
			t.Fatal(err)
		}
	}
	switch d.Cmd {
	case "register":
		r := Registration{
			ID: id, Incarnation: [16]byte{byte(c.number("incarnation", 0))}, Rack: c.text("rack"), ClusterID: c.text("cluster"),
			PreviousEpoch: int64(c.number("previous", -1)), Features: knownTo(d),
		}
		for _, v := range d.CmdArgs { // directory=1 or directory=(1,2)
			for _, n := range v.Vals {
				if v.Key == "directory" {
					r.Directories = append(r.Directories, metadata.DirectoryID{byte(number(n))})
				}
			}
		}
		e, err := w.c.RegisterBroker(ctx, r)
		c.say("%s, epoch %d", verdict(err), e)
	case "unfence":
		c.say("%s", verdict(w.c.Unfence(ctx, id, epoch)))
	case "fence":
		c.say("%s", verdict(w.c.Fence(ctx, id, epoch)))
	case "lost":
		c.say("%s", verdict(w.c.ReportLost(ctx, id, epoch, w.refs(d))))
	case "beat":
		w.beat(c, Heartbeat{ID: id, Epoch: epoch})
	case "tick":
		if err := w.c.Tick(ctx, w.now); err != nil {
			c.say("%s", verdict(err))
		}
	case "run":
		w.runTo(c)
	case "dropped":
		c.say("%s", verdict(w.c.Dropped(ctx, id, epoch)))
	case "ids":
		ids, err := w.c.AllocateProducerIDs(ctx, id, epoch)
		c.say("%s %+v", verdict(err), ids)
	case "drain":
		c.say("%s", verdict(w.c.Drain(ctx, id, !d.HasArg("off"))))
	case "unregister":
		c.say("%s", verdict(w.c.UnregisterBroker(ctx, id)))
	case "step-down":
		w.leader = false
	case "lead":
		w.leader, w.term = true, w.term+1
	case "feature":
		_, _, _ = w.ProposeAt(ctx, 0, []metadata.Record{metadata.FeatureLevel{Name: elrFeature, Level: int16(c.number("elr", 0))}})
	case "image":
		w.show(b)
	case "shards":
		w.showShards(b)
	case "new-controller": // in another process, with the next term
		o := w.c.o
		w.c, w.term = New(o), w.term+1
	case "levels":
		for name, level := range w.img.Features() {
			c.say("%s %d", name, level)
		}
	case "busy":
		w.busy = !d.HasArg("off")
	default:
		w.partitions(c)
	}
}

// knownTo is what the broker of a command knows: all, or with "before" what a version before levels knew, which does not say.
func knownTo(d *datadriven.TestData) []Feature {
	if d.HasArg("before") {
		return nil
	}
	return SupportedFeatures()
}

// runTo lets time pass: a tick each 100 ms, and each 500 ms a report of the brokers in beat=, that have applied everything, and
// of those in held=, that are not ready.
func (w *world) runTo(c command) {
	to, err := time.ParseDuration(c.text("to"))
	if err != nil {
		c.t.Fatal(err)
	}
	var ids []int32
	held := map[int32]bool{}
	for _, v := range c.d.CmdArgs {
		if v.Key == "beat" || v.Key == "held" {
			for _, id := range v.Vals {
				ids = append(ids, int32(number(id)))
				held[int32(number(id))] = v.Key == "held"
			}
		}
	}
	for ; w.now < to; w.now += 100 * time.Millisecond {
		for _, id := range ids {
			b, ok := w.img.Broker(id)
			if !ok || w.now%(500*time.Millisecond) != 0 {
				continue
			}
			h := Heartbeat{ID: id, Epoch: b.Epoch, Applied: w.img.Index(), WantFence: held[id], Features: knownTo(c.d)}
			if _, err := w.c.Heartbeat(context.Background(), w.now, h); err != nil {
				c.say("%v, broker %d: %s", w.now, id, verdict(err))
			}
		}
		was := w.img.Index()
		if err := w.c.Tick(context.Background(), w.now); err != nil {
			c.say("%v: %s", w.now, verdict(err))
		}
		if w.img.Index() > was {
			c.say("%v: the controller acted", w.now)
		}
	}
	w.now = to
}

// beat sends a heartbeat: what it lost, or what is out-of-order, are the lines, offline=N names a directory.
func (w *world) beat(c command, h Heartbeat) {
	h.Applied = uint64(c.number("applied", int(w.img.Index())))
	h.WantFence, h.WantShutdown = c.d.HasArg("want-fence"), c.d.HasArg("want-shutdown")
	h.Features = knownTo(c.d)
	for _, l := range lines(c.d) {
		f := strings.Fields(l)
		if ref := w.partition(f); len(f) > 2 && f[2] == "out-of-order" {
			h.OutOfOrder = append(h.OutOfOrder, ref)
		} else {
			h.Lost = append(h.Lost, ref)
		}
	}
	if n := c.number("offline", 0); n > 0 {
		h.Offline = []metadata.DirectoryID{{byte(n)}}
	}
	a, err := w.c.Heartbeat(context.Background(), w.now, h)
	if err != nil {
		c.say("%s", verdict(err))
		return
	}
	c.say("caught up %v, fenced %v, shut down %v", a.CaughtUp, a.Fenced, a.ShutDown)
}

// partitions are the commands about in-sync sets, leaders and replicas.
func (w *world) partitions(c command) {
	ctx := context.Background()
	switch c.d.Cmd {
	case "in-sync":
		w.inSync(c)
	case "elect":
		req := ElectLeadersRequest{Unclean: c.d.HasArg("unclean")}
		for _, l := range lines(c.d) {
			f := strings.Fields(l)
			req.Partitions = append(req.Partitions, TopicPartition{f[0], int32(number(f[1]))})
		}
		answers, err := w.c.ElectLeaders(ctx, req)
		if err != nil {
			c.say("%s", verdict(err))
		}
		for _, a := range answers {
			c.say("%s-%d: %s", a.Topic, a.Partition, verdict(a.Err))
		}
	case "reassign":
		req := ReassignRequest{KeepFactor: c.d.HasArg("keep-factor")}
		for _, l := range lines(c.d) {
			f := strings.Fields(l)
			r := Reassignment{Topic: f[0], Partition: int32(number(f[1]))}
			if f[2] != "cancel" {
				r.Replicas = numbers(strings.Trim(f[2], "[]"))
			}
			req.Partitions = append(req.Partitions, r)
		}
		answers, err := w.c.Reassign(ctx, req)
		if err != nil {
			c.say("%s", verdict(err))
		}
		for _, a := range answers {
			c.say("%s-%d: %s", a.Topic, a.Partition, verdict(a.Err))
		}
	case "reassignments":
		all, err := w.c.ListReassignments(nil)
		if err != nil {
			c.say("%s", verdict(err))
		}
		for _, r := range all {
			c.say("%s-%d replicas %v adding %v removing %v", r.Topic, r.Partition, r.Replicas, r.Adding, r.Removing)
		}
	case "features":
		var req UpdateFeaturesRequest
		for _, l := range lines(c.d) {
			f := strings.Fields(l)
			req.Updates = append(req.Updates, FeatureUpdate{f[0], int16(number(f[1])), FeatureChange(number(f[2]))})
		}
		c.say("%s", verdict(w.c.UpdateFeatures(ctx, req)))
	default:
		c.t.Fatalf("%s: unknown command %s", c.d.Pos, c.d.Cmd)
	}
}

// inSync sends a leader's wish. A line is "TOPIC NUMBER [ID,ID:EPOCH…] [leader-epoch=N] [partition-epoch=N] [recovering]"; epochs that are not
// given are the current ones.
func (w *world) inSync(c command) {
	req := AlterPartitionRequest{Broker: int32(c.number("id", 0)), Epoch: int64(c.number("epoch", 0))}
	if b, ok := w.img.Broker(req.Broker); ok && req.Epoch == 0 {
		req.Epoch = b.Epoch
	}
	for _, l := range lines(c.d) {
		f := strings.Fields(l)
		ref := w.partition(f)
		ch := ISRChange{Topic: ref.Topic, Partition: ref.Partition, Recovered: true}
		if part, ok := w.img.Partition(ref.Topic, ref.Partition); ok {
			ch.LeaderEpoch, ch.PartitionEpoch = part.LeaderEpoch, part.PartitionEpoch
		}
		for _, m := range strings.Split(strings.Trim(f[2], "[]"), ",") {
			id, epoch, given := strings.Cut(m, ":")
			member := InSyncMember{ID: int32(number(id)), Epoch: -1}
			if b, ok := w.img.Broker(member.ID); ok {
				member.Epoch = b.Epoch
			}
			if given {
				member.Epoch = int64(number(epoch))
			}
			ch.ISR = append(ch.ISR, member)
		}
		for _, o := range f[3:] {
			k, v, _ := strings.Cut(o, "=")
			switch k {
			case "leader-epoch":
				ch.LeaderEpoch = int32(number(v))
			case "partition-epoch":
				ch.PartitionEpoch = int32(number(v))
			case "recovering":
				ch.Recovered = false
			default:
				c.t.Fatal(o)
			}
		}
		req.Changes = append(req.Changes, ch)
	}
	answers, err := w.c.AlterPartition(context.Background(), req)
	if err != nil {
		c.say("%s", verdict(err))
	}
	for i, a := range answers {
		name := strings.Fields(lines(c.d)[i])[0]
		if a.Err != nil {
			c.say("%s-%d: %s", name, a.Partition, verdict(a.Err))
			continue
		}
		c.say("%s-%d: ok, isr %v leader %d epoch %d.%d unclean %v", name, a.Partition, a.ISR, a.Leader, a.LeaderEpoch, a.PartitionEpoch, a.Unclean)
	}
}

func (w *world) show(b *strings.Builder) {
	for _, k := range w.img.Brokers() {
		fmt.Fprintf(b, "broker %d epoch %d fenced %v", k.ID, k.Epoch, k.Fenced)
		if k.ShuttingDown {
			b.WriteString(" shutting down")
		}
		b.WriteByte('\n')
	}
	for t := range w.img.Topics() {
		for i, p := range t.Partitions {
			fmt.Fprintf(b, "%s-%d replicas %v isr %v leader %d epoch %d.%d", t.Name, i, p.Replicas, p.ISR, p.Leader, p.LeaderEpoch, p.PartitionEpoch)
			if len(p.ELR) > 0 {
				fmt.Fprintf(b, " elr %v", p.ELR)
			}
			if len(p.Adding)+len(p.Removing) > 0 {
				fmt.Fprintf(b, " adding %v removing %v", p.Adding, p.Removing)
			}
			if p.Unclean {
				b.WriteString(" unclean")
			}
			b.WriteByte('\n')
		}
	}
	for res, c := range w.img.AllConfigs() {
		keys := make([]string, 0, len(c))
		for k, v := range c {
			keys = append(keys, k+"="+v)
		}
		slices.Sort(keys)
		fmt.Fprintf(b, "%v %v\n", res, keys)
	}
}

// showShards tells how many shards each broker has, -1 being nobody, and at which epochs.
func (w *world) showShards(b *strings.Builder) {
	count, epochs := map[int32]int{}, map[int32]map[int64]bool{}
	for i := range int32(metadata.Shards) {
		s := w.img.Shard(i)
		count[s.Owner]++
		if epochs[s.Owner] == nil {
			epochs[s.Owner] = map[int64]bool{}
		}
		epochs[s.Owner][s.Epoch] = true
	}
	for _, id := range slices.Sorted(maps.Keys(count)) {
		fmt.Fprintf(b, "%d: %d shards, epochs %v\n", id, count[id], slices.Sorted(maps.Keys(epochs[id])))
	}
}

// TestScripts runs the scripts of testdata. The answers were compared with those of Apache Kafka 4.4.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		synctest.Test(t, func(t *testing.T) { // a creation may wait for a broker's report, for one second of virtual time
			w := newWorld()
			datadriven.RunTest(t, path, w.run)
		})
	})
}

package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

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
	c      *Controller
	live   map[int32]bool
}

func (w *world) Image() *metadata.Image { return w.img }

func (w *world) Lead() (uint64, error) {
	if !w.leader {
		return 0, errors.New("node 2 is")
	}
	return 1, nil
}

func (w *world) ProposeAt(_ context.Context, term uint64, records []metadata.Record) (uint64, []metadata.Result, error) {
	w.index++
	payload := metadata.AppendCommand(nil, &metadata.Command{
		Session: metadata.Session{Epoch: metadata.NoEpoch}, Groups: []metadata.Group{{Term: term, Records: records}},
	})
	next, _, out, err := metadata.Apply(w.img, metadata.Entry{Index: w.index, Term: 1, Payload: payload})
	if err != nil {
		return 0, nil, err
	}
	w.img = next
	return w.index, out.Results[0], nil
}

func newWorld() *world {
	w := &world{img: metadata.New(), leader: true, live: map[int32]bool{}}
	w.c = New(Options{
		Proposer: w, Static: config.Default(), Rand: rand.New(rand.NewPCG(1, 2)),
		NewID: func() metadata.TopicID { w.ids++; return metadata.TopicID{w.ids} },
		Live:  func(b *metadata.Broker) bool { return w.live[b.ID] },
	})
	return w
}

// kinds names the answers' sentinels.
var kinds = []error{
	ErrInvalidTopic, ErrTopicExists, ErrUnknownTopic, ErrUnknownTopicID, ErrInvalidPartitions, ErrInvalidReplicationFactor,
	ErrInvalidReplicaAssignment, ErrInvalidRequest, ErrInvalidConfig, ErrUnknownOperation, ErrPolicyViolation, ErrUnknownResource,
	ErrInconsistentClusterID, ErrDuplicateBroker, ErrStaleBrokerEpoch, ErrBrokerNotRegistered, ErrElectionNotNeeded,
	ErrPreferredLeaderNotAvailable, ErrEligibleLeadersNotAvailable, ErrNotController, ErrNotCommitted,
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

// brokers are the commands about brokers and elections, and those that look.
func (w *world) brokers(t *testing.T, d *datadriven.TestData, b *strings.Builder) {
	ctx := context.Background()
	arg := func(key string) (v int) {
		if d.HasArg(key) {
			d.ScanArgs(t, key, &v)
		}
		return v
	}
	id := int32(arg("id"))
	epoch := int64(arg("epoch"))
	if epoch == 0 {
		if known, ok := w.img.Broker(id); ok {
			epoch = known.Epoch
		}
	}
	switch d.Cmd {
	case "register":
		r := Registration{ID: id, Incarnation: [16]byte{byte(arg("incarnation"))}}
		if d.HasArg("rack") {
			d.ScanArgs(t, "rack", &r.Rack)
		}
		if d.HasArg("cluster") {
			d.ScanArgs(t, "cluster", &r.ClusterID)
		}
		e, err := w.c.RegisterBroker(ctx, r)
		fmt.Fprintf(b, "%s, epoch %d\n", verdict(err), e)
	case "unfence":
		fmt.Fprintln(b, verdict(w.c.Unfence(ctx, id, epoch)))
	case "fence":
		fmt.Fprintln(b, verdict(w.c.Fence(ctx, id, epoch)))
	case "lost":
		var refs []PartitionRef
		for _, l := range lines(d) {
			f := strings.Fields(l)
			topic, _ := w.img.TopicByName(f[0])
			refs = append(refs, PartitionRef{topic.ID, int32(number(f[1]))})
		}
		fmt.Fprintln(b, verdict(w.c.ReportLost(ctx, id, epoch, refs)))
	case "alive":
		w.live[id] = !d.HasArg("no")
	case "ids":
		ids, err := w.c.AllocateProducerIDs(ctx, id, epoch)
		fmt.Fprintf(b, "%s %+v\n", verdict(err), ids)
	case "elect":
		var name string
		d.ScanArgs(t, "topic", &name)
		fmt.Fprintln(b, verdict(w.c.ElectLeader(ctx, Elect{Topic: name, Partition: int32(arg("partition")), Unclean: d.HasArg("unclean")})))
	case "step-down":
		w.leader = false
	case "feature":
		_, _, _ = w.ProposeAt(ctx, 0, []metadata.Record{metadata.FeatureLevel{Name: elrFeature, Level: int16(arg("elr"))}})
	case "image":
		w.show(b)
	default:
		t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	}
}

func (w *world) show(b *strings.Builder) {
	for _, k := range w.img.Brokers() {
		fmt.Fprintf(b, "broker %d epoch %d fenced %v\n", k.ID, k.Epoch, k.Fenced)
	}
	for t := range w.img.Topics() {
		for i, p := range t.Partitions {
			fmt.Fprintf(b, "%s-%d replicas %v isr %v leader %d epoch %d.%d", t.Name, i, p.Replicas, p.ISR, p.Leader, p.LeaderEpoch, p.PartitionEpoch)
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

// TestScripts runs the scripts of testdata. The answers were compared with those of Apache Kafka 4.4.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := newWorld()
		datadriven.RunTest(t, path, w.run)
	})
}

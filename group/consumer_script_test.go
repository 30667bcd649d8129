package group

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/keeplog/keeplog/metadata"
)

// The scripts in testdata/consumer are the specification of consumer groups. Each step is a request, and what follows is the
// answer; those in testdata/consumer/kafka are asked of Apache Kafka too, where KEEPLOG_ORACLE names one (host:port), and the
// answers must agree. A member's id is its name. Of what is assigned, the scripts for Kafka show how many partitions, because
// which ones is free.
//
//	topic NAME partitions=N            create a topic; grow NAME partitions=N; delete-topic NAME
//	hb WHO GROUP [epoch=N] [v=N] [member=ID] [instance=I] [rack=R] [topics=(A,B)|topics=empty] [regex=R] [assignor=A]
//	   [rebalance=5m] [owned=none|all|told|A/0]
//	                                   a heartbeat of the consumer protocol. Epoch: the one last told. owned: what the member says
//	                                   it holds: nothing, all it was ever given, what it was told last, or partitions; without
//	                                   it, nothing is said. A join has rebalance=5m, owned=none where the step does not say more.
//	join, sync, heartbeat, leave WHO GROUP …   the classic protocol, with topics=, owned=, instance=, session=, rebalance=, v=
//	commit WHO GROUP A/0=N [epoch=N] [v=N]     fetch WHO GROUP A/0 [epoch=N]
//	describe GROUP                     as a consumer group; describe-classic GROUP
//	wait D                             failover: another broker takes over
//	config KEY=V                       a setting
type consumerScript struct {
	t       testing.TB
	side    coordinatorSide
	exact   bool
	suffix  string
	clients map[string]*scripted
	topics  map[string]TopicID
}

// scripted is a client of a script.
type scripted struct {
	id string
	// epoch is the epoch or generation that it was told last; told and held are what it was told last and all it was ever given.
	epoch      int32
	told, held map[place]bool
}

// coordinatorSide is who is asked: our coordinator, or Apache Kafka.
type coordinatorSide interface {
	topic(name string, partitions int) TopicID
	grow(name string, partitions int)
	deleteTopic(name string)
	config(key, value string) error
	wait(d time.Duration)
	failover()
	consumerHeartbeat(r *ConsumerHeartbeatRequest) *ConsumerHeartbeatResponse
	join(r *JoinGroupRequest, version int16) *JoinGroupResponse
	sync(r *SyncGroupRequest) *SyncGroupResponse
	heartbeat(r *HeartbeatRequest) *HeartbeatResponse
	leave(r *LeaveGroupRequest) *LeaveGroupResponse
	commit(r *CommitOffsetsRequest) *CommitOffsetsResponse
	fetch(r *FetchOffsetsRequest) *FetchOffsetsResponse
	describe(group string) *ConsumerGroupDescription
	describeClassic(group string) *GroupDescription
}

// TestConsumerScripts runs every script against the coordinator.
func TestConsumerScripts(t *testing.T) {
	for _, dir := range []string{"testdata/consumer/kafka", "testdata/consumer/here"} {
		files, err := filepath.Glob(dir + "/*.txt")
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, file := range files {
			t.Run(strings.TrimSuffix(strings.TrimPrefix(file, "testdata/consumer/"), ".txt"), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, 2)
					defer w.close()
					w.settings.InitialRebalanceDelay = 0
					here := &here{w: w, at: w.nodes[0]}
					s := newConsumerScript(t, here, strings.HasSuffix(dir, "here"))
					datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string { return s.run(d) })
					for _, group := range []string{"g", "h"} {
						checkFold(t, here.at, w, group)
					}
				})
			})
		}
	}
}

// TestConsumerOracle asks Apache Kafka the same.
func TestConsumerOracle(t *testing.T) {
	addr := os.Getenv("KEEPLOG_ORACLE")
	if addr == "" {
		t.Skip("KEEPLOG_ORACLE names no broker")
	}
	files, _ := filepath.Glob("testdata/consumer/kafka/*.txt")
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			s := newConsumerScript(t, newOracle(t, addr), false)
			s.suffix = "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string { return s.run(d) })
		})
	}
}

func newConsumerScript(t testing.TB, side coordinatorSide, exact bool) *consumerScript {
	return &consumerScript{t: t, side: side, exact: exact, clients: map[string]*scripted{}, topics: map[string]TopicID{}}
}

func (s *consumerScript) client(name string) *scripted {
	c := s.clients[name]
	if c == nil {
		c = &scripted{id: name, told: map[place]bool{}, held: map[place]bool{}}
		s.clients[name] = c
	}
	return c
}

func (s *consumerScript) real(name string) string { return name + s.suffix }

func (s *consumerScript) run(d *datadriven.TestData) string {
	a := args{d: d}
	for _, arg := range d.CmdArgs {
		if len(arg.Vals) == 0 {
			a.words = append(a.words, strings.Trim(arg.Key, `"`))
		}
	}
	text := s.step(d, a)
	if s.suffix != "" {
		text = strings.ReplaceAll(strings.ReplaceAll(text, ".*"+s.suffix, ""), s.suffix, "")
	}
	return text
}

func (s *consumerScript) step(d *datadriven.TestData, a args) string {
	switch d.Cmd {
	case "topic":
		s.topics[a.words[0]] = s.side.topic(s.real(a.words[0]), a.number("partitions", 1))
		return "created"
	case "grow":
		s.side.grow(s.real(a.words[0]), a.number("partitions", 1))
		return "grown"
	case "delete-topic":
		s.side.deleteTopic(s.real(a.words[0]))
		return "deleted"
	case "config":
		for _, arg := range d.CmdArgs {
			if err := s.side.config(arg.Key, arg.Vals[0]); err != nil {
				return err.Error()
			}
		}
		return "set"
	case "wait":
		s.side.wait(duration(a.words[0]))
		return "waited"
	case "failover":
		s.side.failover()
		return "another coordinator"
	case "hb":
		return s.hb(a)
	case "join":
		return s.join(a)
	case "sync":
		return s.sync(a)
	case "heartbeat":
		c := s.client(a.words[0])
		r := s.side.heartbeat(&HeartbeatRequest{Group: s.real(a.words[1]), MemberID: a.text("member", c.id), InstanceID: a.optional("instance"), Generation: int32(a.number("generation", int(c.epoch)))})
		return consumerCode(r.Err)
	case "leave":
		return s.leave(a)
	case "commit":
		return s.commit(a)
	case "fetch":
		return s.fetch(a)
	case "describe":
		return s.describe(a)
	case "describe-classic":
		g := s.side.describeClassic(s.real(a.words[0]))
		return fmt.Sprintf("%s %s %q %q, %d members", consumerCode(g.Err), g.State, g.ProtocolType, g.Protocol, len(g.Members))
	}
	d.Fatalf(s.t, "no step %q", d.Cmd)
	return ""
}

func (s *consumerScript) hb(a args) string {
	c := s.client(a.words[0])
	r := &ConsumerHeartbeatRequest{
		Version: int16(a.number("v", 1)), Group: s.real(a.words[1]), MemberID: a.text("member", c.id), MemberEpoch: int32(a.number("epoch", int(c.epoch))),
		InstanceID: a.optional("instance"), RackID: a.optional("rack"), ClientID: "c", ClientHost: "/127.0.0.1",
		Regex: a.optional("regex"), ServerAssignor: a.optional("assignor"), RebalanceTimeoutMs: -1,
	}
	for _, field := range []**string{&r.InstanceID, &r.RackID, &r.Regex} {
		if *field != nil && **field == "empty" {
			empty := ""
			*field = &empty
		}
	}
	if r.Regex != nil && s.suffix != "" && *r.Regex != "" {
		with := *r.Regex + ".*" + s.suffix
		r.Regex = &with
	}
	if r.MemberID == "none" {
		r.MemberID = ""
	}
	owned := ""
	if r.MemberEpoch == 0 {
		r.RebalanceTimeoutMs, owned = 300_000, "none"
	}
	if v, ok := a.list("rebalance"); ok {
		r.RebalanceTimeoutMs = -1
		if v[0] != "none" {
			r.RebalanceTimeoutMs = int32(duration(v[0]).Milliseconds())
		}
	}
	r.SubscribedTopics = s.topicList(a)
	r.TopicPartitions = s.owned(c, a, owned)
	answer := s.side.consumerHeartbeat(r)
	if answer.Err != nil {
		return strings.TrimSpace(consumerCode(answer.Err) + " " + answer.Message)
	}
	c.epoch, c.id = answer.MemberEpoch, answer.MemberID
	shown := fmt.Sprintf("epoch=%d", answer.MemberEpoch)
	if r.Version == 0 && r.MemberEpoch == 0 {
		shown += fmt.Sprintf(" member of %d characters", len(answer.MemberID))
	}
	if answer.MemberEpoch < 0 {
		return shown + fmt.Sprintf(" interval=%d", answer.HeartbeatIntervalMs)
	}
	if answer.Assignment == nil {
		return shown
	}
	c.told = placesOf(*answer.Assignment)
	for p := range c.told {
		c.held[p] = true
	}
	return shown + " assigned " + s.show(*answer.Assignment)
}

func placesOf(list []TopicPartitions) map[place]bool {
	all := make(map[place]bool)
	for _, t := range list {
		for _, p := range t.Partitions {
			all[place{t.Topic, p}] = true
		}
	}
	return all
}

func (s *consumerScript) topicList(a args) []string {
	names, ok := a.list("topics")
	if !ok {
		return nil
	}
	list := make([]string, 0, len(names))
	for _, name := range names {
		if name != "empty" {
			list = append(list, s.real(name))
		}
	}
	return list
}

// owned is what a member reports.
func (s *consumerScript) owned(c *scripted, a args, otherwise string) []TopicPartitions {
	words, ok := a.list("owned")
	if !ok {
		words = []string{otherwise}
	}
	places := make(map[place]bool)
	switch words[0] {
	case "":
		return nil
	case "none":
		c.held = make(map[place]bool)
	case "all":
		places = c.held
	case "told":
		places, c.held = c.told, c.told
	default:
		for _, word := range words {
			name, p := partition(word)
			places[place{s.topics[name], p}] = true
		}
	}
	held := make(Partitions)
	for p := range places {
		held[p.topic] = append(held[p.topic], p.partition)
	}
	for _, list := range held {
		slices.Sort(list)
	}
	return toldPartitions(held)
}

func (s *consumerScript) show(list []TopicPartitions) string {
	if len(list) == 0 {
		return "nothing"
	}
	var shown []string
	for _, t := range list {
		name := "?"
		for known, id := range s.topics {
			if id == t.Topic {
				name = known
			}
		}
		if s.exact {
			shown = append(shown, name+":"+showNumbers(t.Partitions))
		} else {
			shown = append(shown, fmt.Sprintf("%d of %s", len(t.Partitions), name))
		}
	}
	slices.Sort(shown)
	return strings.Join(shown, ", ")
}

func (s *consumerScript) join(a args) string {
	c, version := s.client(a.words[0]), int16(a.number("v", 9))
	var held []namedPartitions
	for _, t := range s.owned(c, a, "none") {
		for name, id := range s.topics {
			if id == t.Topic {
				held = append(held, namedPartitions{s.real(name), t.Partitions})
			}
		}
	}
	r := &JoinGroupRequest{
		Group: s.real(a.words[1]), MemberID: a.text("member", c.id), InstanceID: a.optional("instance"), ClientID: "c", ClientHost: "/127.0.0.1",
		SessionTimeout: a.time("session", "10s"), RebalanceTimeout: a.time("rebalance", "20s"), ProtocolType: a.text("type", "consumer"),
		RequireKnownID: version >= 4, CanSkipAssignment: version >= 9,
	}
	if r.MemberID == a.words[0] || r.MemberID == "none" {
		r.MemberID = ""
	}
	names, ok := a.list("protocols")
	if !ok {
		names = []string{"cooperative-sticky"}
	}
	for _, name := range names {
		r.Protocols = append(r.Protocols, Protocol{name, blobSubscription(s.topicList(a), held)})
	}
	answer := s.side.join(r, version)
	if answer == nil {
		return "waits"
	}
	if answer.MemberID != "" {
		c.id = answer.MemberID
	}
	if answer.Err != nil {
		shown := consumerCode(answer.Err)
		if errors.Is(answer.Err, ErrMemberIDRequired) {
			shown += fmt.Sprintf(" member of %d characters", len(answer.MemberID))
		}
		return shown
	}
	c.epoch = answer.Generation
	return fmt.Sprintf("generation=%d %s leader=%q, %d members", answer.Generation, text(answer.Protocol), s.leader(c, answer.Leader), len(answer.Members))
}

func (s *consumerScript) leader(c *scripted, id string) string {
	switch id {
	case "":
		return ""
	case c.id:
		return "itself"
	}
	return "another"
}

func (s *consumerScript) sync(a args) string {
	c := s.client(a.words[0])
	r := &SyncGroupRequest{
		Group: s.real(a.words[1]), MemberID: a.text("member", c.id), InstanceID: a.optional("instance"), Generation: int32(a.number("generation", int(c.epoch))),
	}
	kind, protocol := a.text("type", "consumer"), a.text("protocol", "cooperative-sticky")
	r.ProtocolType, r.Protocol = &kind, &protocol
	if topics, ok := a.list("assign"); ok {
		named := make([]namedPartitions, 1)
		for _, word := range topics {
			name, p := partition(word)
			named[0].topic = s.real(name)
			named[0].partitions = append(named[0].partitions, p)
		}
		r.Assignments = []Assigned{{c.id, appendAssignment(nil, 1, named)}}
	}
	answer := s.side.sync(r)
	if answer.Err != nil {
		return consumerCode(answer.Err)
	}
	parts, err := parseAssignment(answer.Assignment)
	if err != nil {
		return fmt.Sprintf("bad assignment %x", answer.Assignment)
	}
	list := make([]TopicPartitions, 0, len(parts))
	for _, t := range parts {
		list = append(list, TopicPartitions{s.topics[strings.TrimSuffix(t.topic, s.suffix)], t.partitions})
	}
	c.told = placesOf(list)
	for p := range c.told {
		c.held[p] = true
	}
	return "assigned " + s.show(list)
}

func (s *consumerScript) leave(a args) string {
	r := &LeaveGroupRequest{Group: s.real(a.words[1])}
	l := Leaver{MemberID: s.client(a.words[0]).id, InstanceID: a.optional("instance")}
	if a.text("member", "") == "none" {
		l.MemberID = ""
	}
	r.Members = append(r.Members, l)
	answer := s.side.leave(r)
	if answer.Err != nil || len(answer.Members) == 0 {
		return consumerCode(answer.Err)
	}
	return consumerCode(answer.Members[0].Err)
}

func (s *consumerScript) commit(a args) string {
	c := s.client(a.words[0])
	r := &CommitOffsetsRequest{
		Version: int16(a.number("v", 9)), Group: s.real(a.words[1]), MemberID: a.text("member", c.id), InstanceID: a.optional("instance"),
		Generation: int32(a.number("epoch", int(c.epoch))), Retention: -1,
	}
	if r.MemberID == "none" {
		r.MemberID = ""
	}
	for _, arg := range a.d.CmdArgs {
		if !strings.Contains(arg.Key, "/") {
			continue
		}
		name, p := partition(arg.Key)
		n, _ := strconv.ParseInt(arg.Vals[0], 10, 64)
		r.Offsets = append(r.Offsets, CommitOffset{Topic: s.real(name), TopicID: s.topics[name], Partition: p, Offset: n, LeaderEpoch: -1})
	}
	answer := s.side.commit(r)
	if answer.Err != nil || answer.Partitions == nil {
		return consumerCode(answer.Err)
	}
	var all []string
	for _, err := range answer.Partitions {
		all = append(all, consumerCode(err))
	}
	return strings.Join(slices.Compact(all), ", ")
}

func (s *consumerScript) fetch(a args) string {
	c := s.client(a.words[0])
	name, p := partition(a.words[2])
	r := &FetchOffsetsRequest{
		Group: s.real(a.words[1]), MemberID: a.text("member", c.id), MemberEpoch: int32(a.number("epoch", int(c.epoch))),
		Topics: []FetchTopic{{s.real(name), s.topics[name], []int32{p}}},
	}
	if r.MemberID == "none" {
		r.MemberID = ""
	}
	answer := s.side.fetch(r)
	if answer.Err != nil {
		return consumerCode(answer.Err)
	}
	return fmt.Sprint(answer.Topics[0].Partitions[0].Offset)
}

func (s *consumerScript) describe(a args) string {
	d := s.side.describe(s.real(a.words[0]))
	if d.Err != nil {
		return strings.TrimSpace(consumerCode(d.Err) + " " + d.Message)
	}
	lines := []string{fmt.Sprintf("%s epoch=%d assignment=%d assignor=%s", d.State, d.GroupEpoch, d.AssignmentEpoch, d.Assignor)}
	for _, m := range d.Members {
		name := "?"
		for known, c := range s.clients {
			if c.id == m.MemberID {
				name = known
			}
		}
		line := fmt.Sprintf("  %s%s epoch=%d topics=(%s)", name, instance(m.InstanceID), m.MemberEpoch, strings.Join(slices.Sorted(slices.Values(m.SubscribedTopics)), ","))
		if m.Regex != nil {
			shown := *m.Regex
			if s.suffix != "" {
				shown = strings.TrimSuffix(shown, ".*"+s.suffix)
			}
			line += fmt.Sprintf(" regex=%q", shown)
		}
		if m.RackID != nil {
			line += " rack=" + *m.RackID
		}
		if m.Classic {
			line += " classic"
		}
		lines = append(lines, line+" has "+s.show(m.Assignment)+"; target "+s.show(m.Target))
	}
	slices.Sort(lines[1:])
	return strings.Join(lines, "\n")
}

// consumerCode is the name of an error.
func consumerCode(err error) string {
	if said, ok := err.(oracleError); ok {
		return string(said)
	}
	for _, c := range []struct {
		err  error
		name string
	}{
		{ErrUnreleasedInstance, "UNRELEASED_INSTANCE_ID"},
		{ErrUnsupportedAssignor, "UNSUPPORTED_ASSIGNOR"},
		{ErrInvalidRegex, "INVALID_REGULAR_EXPRESSION"},
		{ErrInvalidRequest, "INVALID_REQUEST"},
	} {
		if errors.Is(err, c.err) {
			return c.name
		}
	}
	return code(err)
}

// here asks the coordinators of a world.
type here struct {
	w  *world
	at *node
}

func (h *here) topic(name string, partitions int) TopicID {
	h.w.topic(name, partitions)
	h.wait(1500 * time.Millisecond)
	return topicNamed(name)
}

func (h *here) grow(name string, partitions int) {
	topic, _ := h.w.img.TopicByName(name)
	record := metadata.PartitionsAdded{TopicID: topic.ID, First: int32(len(topic.Partitions))}
	for range partitions - len(topic.Partitions) {
		record.Partitions = append(record.Partitions, metadata.Partition{Replicas: []metadata.BrokerID{1}, ISR: []metadata.BrokerID{1}, Leader: 1})
	}
	h.w.must(record)
	h.wait(1500 * time.Millisecond)
}

func (h *here) deleteTopic(name string) {
	topic, _ := h.w.img.TopicByName(name)
	h.w.must(metadata.TopicDeleted{ID: topic.ID})
	h.wait(1500 * time.Millisecond)
}

func (h *here) config(key, value string) error {
	s := &h.w.settings.Consumer
	switch key {
	case "group.consumer.assignment.interval.ms":
		s.AssignmentInterval = duration(value + "ms")
	case "group.consumer.session.timeout.ms":
		s.SessionTimeout = duration(value + "ms")
	case "group.consumer.max.size":
		s.MaxSize, _ = strconv.Atoi(value)
	case "group.consumer.migration.policy":
		s.Migration = value
	case "group.initial.rebalance.delay.ms":
		h.w.settings.InitialRebalanceDelay = duration(value + "ms")
	case "group.coordinator.rebalance.protocols":
		s.Enabled = strings.Contains(value, "consumer")
	default:
		return fmt.Errorf("no setting %q", key)
	}
	return nil
}

func (h *here) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (h *here) failover() {
	h.at = h.w.nodes[2-h.at.id]
	h.w.move(h.at.id)
}

// answer waits for an answer; nil when there is none without time passing.
func answer[T any](ask func(done func(*T))) *T {
	var got *T
	ask(func(answer *T) { got = answer })
	synctest.Wait()
	return got
}

func (h *here) consumerHeartbeat(r *ConsumerHeartbeatRequest) *ConsumerHeartbeatResponse {
	return answer(func(done func(*ConsumerHeartbeatResponse)) { h.at.ConsumerHeartbeat(r, done) })
}

func (h *here) join(r *JoinGroupRequest, _ int16) *JoinGroupResponse {
	return answer(func(done func(*JoinGroupResponse)) { h.at.JoinGroup(r, done) })
}

func (h *here) sync(r *SyncGroupRequest) *SyncGroupResponse {
	return answer(func(done func(*SyncGroupResponse)) { h.at.SyncGroup(r, done) })
}

func (h *here) heartbeat(r *HeartbeatRequest) *HeartbeatResponse {
	return answer(func(done func(*HeartbeatResponse)) { h.at.Heartbeat(r, done) })
}

func (h *here) leave(r *LeaveGroupRequest) *LeaveGroupResponse {
	return answer(func(done func(*LeaveGroupResponse)) { h.at.LeaveGroup(r, done) })
}

func (h *here) commit(r *CommitOffsetsRequest) *CommitOffsetsResponse {
	return answer(func(done func(*CommitOffsetsResponse)) { h.at.CommitOffsets(r, done) })
}

func (h *here) fetch(r *FetchOffsetsRequest) *FetchOffsetsResponse {
	return answer(func(done func(*FetchOffsetsResponse)) { h.at.FetchOffsets(r, done) })
}

func (h *here) describe(group string) *ConsumerGroupDescription {
	return answer(func(done func(*ConsumerGroupDescription)) { h.at.DescribeConsumerGroup(group, done) })
}

func (h *here) describeClassic(group string) *GroupDescription {
	return answer(func(done func(*GroupDescription)) { h.at.DescribeGroup(group, done) })
}

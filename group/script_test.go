package group

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/keeplog/keeplog/metadata"
)

// The scripts are described in testdata/README.md.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(strings.TrimPrefix(file, "testdata/"), ".txt"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{t: t, w: newWorld(t, 2), clients: map[string]*client{}, names: map[string]string{}}
				s.at = s.w.nodes[0]
				defer s.w.close()
				datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string { return s.run(d) })
				s.checkStored()
			})
		})
	}
}

// script runs the steps of one file against the coordinators of a world.
type script struct {
	t       testing.TB
	w       *world
	at      *node
	kafka   *kafkaSide // who is asked in place of at, or nil
	clients map[string]*client
	// names are member ids with the client that got them first.
	names   map[string]string
	mu      sync.Mutex // guards answers, waiting, and what joins teach of clients
	answers []func() string
	waiting int
	groups  []string
}

// client is one member as the script names it.
type client struct {
	name, id   string
	generation int32
	gone       func()
}

func (s *script) run(d *datadriven.TestData) string {
	if steps[d.Cmd] == nil {
		d.Fatalf(s.t, "no step %q", d.Cmd)
	}
	s.settle()
	s.mu.Lock()
	s.answers = nil
	before := s.waiting
	s.mu.Unlock()
	if s.kafka != nil && d.Cmd != "wait" {
		s.kafka.due = time.Now()
	}
	text := steps[d.Cmd](s, d)
	s.settle()
	if s.kafka != nil {
		s.kafka.settle(d.Expected, func() int {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.answers)
		})
	}
	s.mu.Lock()
	answers, waiting := s.answers, s.waiting
	s.mu.Unlock()
	// An answer may name a member that learns its id from another one.
	var out []string
	for _, show := range answers {
		out = append(out, show())
	}
	slices.Sort(out)
	if text != "" {
		out = append(out, text)
	}
	if len(out) == 0 && waiting > before {
		return "waits"
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, "\n")
}

// settle lets everything run that is due, commits included.
func (s *script) settle() {
	if s.kafka == nil {
		synctest.Wait()
	}
}

// asked is who the script asks.
func (s *script) asked() coordinating {
	if s.kafka != nil {
		return s.kafka
	}
	return s.at
}

func (s *script) answer(name string, text func() string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = append(s.answers, func() string { return name + ": " + text() })
	s.waiting--
}

func (s *script) asks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting++
}

func said(text string) func() string { return func() string { return text } }

var steps = map[string]func(*script, *datadriven.TestData) string{
	"topic":          (*script).topic,
	"config":         (*script).config,
	"join":           (*script).join,
	"sync":           (*script).sync,
	"heartbeat":      (*script).heartbeat,
	"leave":          (*script).leave,
	"commit":         (*script).commit,
	"fetch":          (*script).fetch,
	"describe":       (*script).describe,
	"list":           (*script).list,
	"delete":         (*script).remove,
	"delete-offsets": (*script).removeOffsets,
	"wait":           (*script).wait,
	"gone":           (*script).disconnect,
	"failover":       (*script).failover,
	"delete-topic":   (*script).deleteTopic,
	"stored":         (*script).stored,
	"log":            (*script).faults,
}

// args reads the words behind a step: name=value, name=(a,b), and words alone.
type args struct {
	d     *datadriven.TestData
	words []string
}

func (s *script) args(d *datadriven.TestData, words int) args {
	a := args{d: d}
	for _, arg := range d.CmdArgs {
		if len(arg.Vals) == 0 {
			a.words = append(a.words, strings.Trim(arg.Key, `"`))
		}
	}
	if len(a.words) < words {
		d.Fatalf(s.t, "%s wants %d words", d.Cmd, words)
	}
	return a
}

func (a args) list(key string) ([]string, bool) {
	for _, arg := range a.d.CmdArgs {
		if arg.Key == key && len(arg.Vals) > 0 {
			return arg.Vals, true
		}
	}
	return nil, false
}

func (a args) text(key, otherwise string) string {
	if v, ok := a.list(key); ok {
		return v[0]
	}
	return otherwise
}

func (a args) number(key string, otherwise int) int {
	v, err := strconv.Atoi(a.text(key, strconv.Itoa(otherwise)))
	if err != nil {
		panic(err)
	}
	return v
}

func (a args) time(key, otherwise string) time.Duration { return duration(a.text(key, otherwise)) }

func duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}

// optional is nil where the word is missing, or "none".
func (a args) optional(key string) *string {
	if v, ok := a.list(key); ok && v[0] != "none" {
		return &v[0]
	}
	return nil
}

func (s *script) client(name string) *client {
	c := s.clients[name]
	if c == nil {
		c = &client{name: name, generation: -1}
		s.clients[name] = c
	}
	return c
}

// id is the member id that a step means: the client's own, or what member= says.
func (s *script) id(c *client, a args) string {
	switch v := a.text("member", ""); {
	case v == "":
		return c.id
	case v == "none":
		return ""
	case v[0] == '$':
		return s.client(v[1:]).id
	default:
		s.names[v] = v
		return v
	}
}

// show is a member id as scripts write it.
func (s *script) show(id string) string {
	if id == "" {
		return "none"
	}
	if name, ok := s.names[id]; ok {
		return name
	}
	return "?"
}

func (s *script) learn(c *client, resp *JoinGroupResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if resp.Err == nil {
		c.generation = resp.Generation
	}
	id := resp.MemberID
	if id == "" {
		return
	}
	c.id = id
	if _, ok := s.names[id]; !ok {
		name := c.name
		for n := 2; ; n++ {
			taken := false
			for _, known := range s.names {
				taken = taken || known == "$"+name
			}
			if !taken {
				break
			}
			name = fmt.Sprintf("%s.%d", c.name, n)
		}
		s.names[id] = "$" + name
	}
}

func (s *script) group(name string) string {
	if !slices.Contains(s.groups, name) {
		s.groups = append(s.groups, name)
	}
	return name
}

func (s *script) topic(d *datadriven.TestData) string {
	a := s.args(d, 1)
	if s.kafka != nil {
		s.kafka.topic(s.kafka.real(a.words[0]), a.number("partitions", 1))
		return "created"
	}
	s.w.topic(a.words[0], a.number("partitions", 1))
	return "created"
}

func (s *script) config(d *datadriven.TestData) string {
	a := s.args(d, 0)
	if s.kafka != nil {
		return "set" // it was started so
	}
	for _, arg := range d.CmdArgs {
		v := a.text(arg.Key, "")
		switch arg.Key {
		case "group.initial.rebalance.delay.ms":
			s.w.settings.InitialRebalanceDelay = duration(v + "ms")
		case "group.max.size":
			s.w.settings.MaxSize = a.number(arg.Key, 0)
		case "offsets.retention.minutes":
			s.w.settings.OffsetRetention = duration(v + "m")
		case "offset.metadata.max.bytes":
			s.w.settings.OffsetMetadataMax = a.number(arg.Key, 0)
		default:
			d.Fatalf(s.t, "no setting %q", arg.Key)
		}
	}
	return "set"
}

// metadata is what a member tells for each of its protocols: a subscription, or the bytes of data=.
func (s *script) metadata(a args) []byte {
	topics, ok := a.list("topics")
	if !ok {
		return []byte(huge(a.text("data", "")))
	}
	w := binary.BigEndian.AppendUint32([]byte{0, 0}, uint32(len(topics)))
	for _, topic := range topics {
		if s.kafka != nil {
			topic = s.kafka.real(topic)
		}
		w = append(binary.BigEndian.AppendUint16(w, uint16(len(topic))), topic...)
	}
	data := a.text("data", "")
	return append(binary.BigEndian.AppendUint32(w, uint32(len(data))), data...)
}

// huge makes 1 MiB of the word "huge".
func huge(s string) string {
	if s == "huge" {
		return strings.Repeat("x", 1<<20)
	}
	return s
}

func showMetadata(b []byte) string {
	sub, err := parseSubscription(b)
	if err != nil {
		return strconv.Quote(string(b))
	}
	return "topics(" + strings.Join(sub.topics, ",") + ")"
}

func (s *script) join(d *datadriven.TestData) string {
	a := s.args(d, 2)
	c, version := s.client(a.words[0]), a.number("v", 9)
	r := &JoinGroupRequest{
		Group: s.group(a.words[1]), MemberID: s.id(c, a), InstanceID: a.optional("instance"), ClientID: a.text("client", "c"),
		ClientHost: "/127.0.0.1", SessionTimeout: a.time("session", "10s"), RebalanceTimeout: a.time("rebalance", "20s"),
		ProtocolType: a.text("type", "consumer"), RequireKnownID: version >= 4, CanSkipAssignment: version >= 9,
	}
	protocols, ok := a.list("protocols")
	if !ok {
		protocols = []string{"range"}
	}
	for _, p := range protocols {
		if p != "none" {
			r.Protocols = append(r.Protocols, Protocol{p, s.metadata(a)})
		}
	}
	s.asks()
	if s.kafka != nil {
		s.kafka.joinVersion = int16(version)
	}
	c.gone = s.asked().JoinGroup(r, func(resp *JoinGroupResponse) {
		s.learn(c, resp)
		s.answer(c.name, func() string { return s.showJoined(resp) })
	})
	return ""
}

func (s *script) showJoined(resp *JoinGroupResponse) string {
	if resp.Err != nil {
		shown := code(resp.Err)
		if resp.MemberID != "" {
			shown += " member=" + s.show(resp.MemberID)
		}
		return shown
	}
	shown := fmt.Sprintf("generation=%d type=%s protocol=%s leader=%s member=%s", resp.Generation, text(resp.ProtocolType),
		text(resp.Protocol), s.show(resp.Leader), s.show(resp.MemberID))
	if resp.SkipAssignment {
		shown += " skip"
	}
	var members []string
	for _, m := range resp.Members {
		members = append(members, s.show(m.MemberID)+instance(m.InstanceID)+":"+showMetadata(m.Metadata))
	}
	slices.Sort(members)
	if len(members) > 0 {
		shown += " members=[" + strings.Join(members, " ") + "]"
	}
	return shown
}

func instance(i *string) string {
	if i == nil {
		return ""
	}
	return "/" + *i
}

func (s *script) sync(d *datadriven.TestData) string {
	a := s.args(d, 2)
	c := s.client(a.words[0])
	r := &SyncGroupRequest{
		Group: a.words[1], MemberID: s.id(c, a), InstanceID: a.optional("instance"), Generation: int32(a.number("generation", int(c.generation))),
		ProtocolType: a.optional("type"), Protocol: a.optional("protocol"),
	}
	parts, _ := a.list("assign")
	for _, p := range parts {
		name, data, _ := strings.Cut(p, ":")
		r.Assignments = append(r.Assignments, Assigned{s.client(strings.TrimPrefix(name, "$")).id, []byte(huge(data))})
	}
	s.asks()
	s.asked().SyncGroup(r, func(resp *SyncGroupResponse) {
		if resp.Err != nil {
			s.answer(c.name, said(code(resp.Err)))
			return
		}
		s.answer(c.name, said(fmt.Sprintf("assignment=%q type=%s protocol=%s", resp.Assignment, text(resp.ProtocolType), text(resp.Protocol))))
	})
	return ""
}

func (s *script) heartbeat(d *datadriven.TestData) string {
	a := s.args(d, 2)
	c := s.client(a.words[0])
	s.asks()
	s.asked().Heartbeat(&HeartbeatRequest{
		Group: a.words[1], MemberID: s.id(c, a), InstanceID: a.optional("instance"), Generation: int32(a.number("generation", int(c.generation))),
	}, func(resp *HeartbeatResponse) { s.answer(c.name, said(code(resp.Err))) })
	return ""
}

func (s *script) leave(d *datadriven.TestData) string {
	a := s.args(d, 1)
	r := &LeaveGroupRequest{Group: a.words[0]}
	members, _ := a.list("members")
	for _, m := range members {
		name, inst, ok := strings.Cut(m, "/")
		l := Leaver{MemberID: name}
		if name != "" && name[0] != '$' {
			s.names[name] = name
		}
		if cut, isName := strings.CutPrefix(name, "$"); isName {
			l.MemberID = s.client(cut).id
		}
		if ok {
			l.InstanceID = &inst
		}
		r.Members = append(r.Members, l)
	}
	s.asks()
	s.asked().LeaveGroup(r, func(resp *LeaveGroupResponse) {
		if errors.Is(resp.Err, ErrUnknownMember) { // no such group; the server tells it of each member
			resp = &LeaveGroupResponse{}
			for _, l := range r.Members {
				resp.Members = append(resp.Members, Left{l.MemberID, l.InstanceID, ErrUnknownMember})
			}
		}
		if resp.Err != nil {
			s.answer("leave", said(code(resp.Err)))
			return
		}
		var left []string
		for _, m := range resp.Members {
			left = append(left, s.show(m.MemberID)+instance(m.InstanceID)+" "+code(m.Err))
		}
		s.answer("leave", said(strings.Join(left, ", ")))
	})
	return ""
}

// partition reads topic/partition.
func partition(word string) (string, int32) {
	topic, number, _ := strings.Cut(word, "/")
	n, err := strconv.Atoi(number)
	if err != nil {
		panic(err)
	}
	return topic, int32(n)
}

func (s *script) topicID(name string) TopicID {
	if s.kafka != nil {
		return TopicID{} // asked by name
	}
	if _, ok := s.w.image().TopicByName(name); !ok {
		return TopicID{}
	}
	return topicNamed(name)
}

func (s *script) commit(d *datadriven.TestData) string {
	a := s.args(d, 2)
	c := s.client(a.words[0])
	r := &CommitOffsetsRequest{
		Version: int16(a.number("v", 9)), Group: s.group(a.words[1]), MemberID: s.id(c, a), InstanceID: a.optional("instance"),
		Generation: int32(a.number("generation", int(c.generation))), Retention: a.time("retention", "-1ms"),
	}
	for _, arg := range d.CmdArgs {
		if !strings.Contains(arg.Key, "/") {
			continue
		}
		topic, p := partition(arg.Key)
		o := CommitOffset{Topic: topic, TopicID: s.topicID(topic), Partition: p, LeaderEpoch: -1}
		offset, meta, _ := strings.Cut(arg.Vals[0], ":")
		n, err := strconv.ParseInt(offset, 10, 64)
		if err != nil {
			panic(err)
		}
		o.Offset, o.Metadata = n, meta
		if long, ok := strings.CutPrefix(meta, "long"); ok {
			size, _ := strconv.Atoi(long)
			o.Metadata = strings.Repeat("x", size)
		}
		r.Offsets = append(r.Offsets, o)
	}
	s.asks()
	s.asked().CommitOffsets(r, func(resp *CommitOffsetsResponse) {
		if resp.Err != nil || resp.Partitions == nil {
			s.answer(c.name, said(code(resp.Err)))
			return
		}
		var all []string
		for i, err := range resp.Partitions {
			all = append(all, fmt.Sprintf("%s/%d %s", r.Offsets[i].Topic, r.Offsets[i].Partition, code(err)))
		}
		s.answer(c.name, said(strings.Join(all, ", ")))
	})
	return ""
}

func (s *script) fetch(d *datadriven.TestData) string {
	a := s.args(d, 1)
	r := &FetchOffsetsRequest{Group: a.words[0], MemberEpoch: -1, All: len(a.words) == 1}
	for _, word := range a.words[1:] {
		topic, p := partition(word)
		r.Topics = append(r.Topics, FetchTopic{topic, s.topicID(topic), []int32{p}})
	}
	s.asks()
	s.asked().FetchOffsets(r, func(resp *FetchOffsetsResponse) {
		if resp.Err != nil {
			s.answer("fetch", said(code(resp.Err)))
			return
		}
		var all []string
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				one := fmt.Sprintf("%s/%d=%d", topic.Topic, p.Partition, p.Offset)
				switch {
				case len(p.Metadata) > 40:
					one += fmt.Sprintf(":long%d", len(p.Metadata))
				case p.Metadata != "":
					one += ":" + p.Metadata
				}
				all = append(all, one)
			}
		}
		if len(all) == 0 {
			all = []string{"no offsets"}
		}
		s.answer("fetch", said(strings.Join(all, " ")))
	})
	return ""
}

func (s *script) describe(d *datadriven.TestData) string {
	a := s.args(d, 1)
	s.asks()
	s.asked().DescribeGroup(a.words[0], func(g *GroupDescription) { s.answer("describe", func() string { return s.showGroup(g) }) })
	return ""
}

func (s *script) showGroup(g *GroupDescription) string {
	shown := fmt.Sprintf("state=%s type=%q protocol=%q", g.State, g.ProtocolType, g.Protocol)
	if g.Err != nil {
		shown = code(g.Err) + " " + shown
	}
	var members []string
	for _, m := range g.Members {
		members = append(members, fmt.Sprintf("\n  %s%s client=%s%s metadata=%s assignment=%q", s.show(m.MemberID), instance(m.InstanceID),
			m.ClientID, m.ClientHost, showMetadata(m.Metadata), m.Assignment))
	}
	slices.Sort(members)
	return shown + strings.Join(members, "")
}

func (s *script) list(d *datadriven.TestData) string {
	a := s.args(d, 0)
	var f Filter
	f.States, _ = a.list("states")
	f.Types, _ = a.list("types")
	resp := s.asked().ListGroups(f)
	if resp.Err != nil {
		return code(resp.Err)
	}
	slices.SortFunc(resp.Groups, func(a, b Overview) int { return cmp.Compare(a.Group, b.Group) })
	var lines []string
	for _, g := range resp.Groups {
		lines = append(lines, fmt.Sprintf("%s type=%q state=%s kind=%s", g.Group, g.ProtocolType, g.State, g.Type))
	}
	if len(lines) == 0 {
		return "no groups"
	}
	return strings.Join(lines, "\n")
}

func (s *script) remove(d *datadriven.TestData) string {
	s.asks()
	s.asked().DeleteGroup(s.args(d, 1).words[0], func(err error) { s.answer("delete", said(code(err))) })
	return ""
}

func (s *script) removeOffsets(d *datadriven.TestData) string {
	a := s.args(d, 1)
	r := &DeleteOffsetsRequest{Group: a.words[0]}
	for _, word := range a.words[1:] {
		topic, p := partition(word)
		r.Topics = append(r.Topics, FetchTopic{topic, s.topicID(topic), []int32{p}})
	}
	s.asks()
	s.asked().DeleteOffsets(r, func(resp *DeleteOffsetsResponse) {
		if resp.Err != nil {
			s.answer("delete-offsets", said(code(resp.Err)))
			return
		}
		var all []string
		for i, topic := range resp.Partitions {
			all = append(all, a.words[i+1]+" "+code(topic[0]))
		}
		s.answer("delete-offsets", said(strings.Join(all, ", ")))
	})
	return ""
}

func (s *script) wait(d *datadriven.TestData) string {
	after := duration(s.args(d, 1).words[0])
	if s.kafka != nil {
		s.kafka.wait(after)
		return ""
	}
	time.Sleep(after)
	return ""
}

func (s *script) disconnect(d *datadriven.TestData) string {
	s.client(s.args(d, 1).words[0]).gone()
	return ""
}

// failover gives all shards to the other broker, as when their owner has died.
func (s *script) failover(*datadriven.TestData) string {
	s.at = s.w.nodes[2-s.at.id]
	s.w.move(s.at.id)
	return ""
}

func (s *script) deleteTopic(d *datadriven.TestData) string {
	s.w.must(metadata.TopicDeleted{ID: topicNamed(s.args(d, 1).words[0])})
	return "deleted"
}

// stored shows the keys that are stored of a group, and its generation.
func (s *script) stored(d *datadriven.TestData) string {
	var all []string
	for _, e := range s.w.tables.Entries(s.args(d, 1).words[0]) {
		if id, ok := strings.CutPrefix(e.Key, memberPrefix); ok {
			all = append(all, "member "+s.show(id))
			continue
		}
		c := newClassic("")
		if err := c.decodeHead(e.Value); err != nil {
			return err.Error()
		}
		all = append(all, fmt.Sprintf("generation=%d type=%s protocol=%s leader=%s", c.generation, text(c.protocolType), text(c.protocol), s.show(c.leader)))
	}
	if len(all) == 0 {
		return "nothing is stored"
	}
	return strings.Join(all, "\n")
}

// faults sets what happens to proposals: slow TIME, lost, unknown, fine.
func (s *script) faults(d *datadriven.TestData) string {
	a := s.args(d, 1)
	s.w.latency.Store(int64(0))
	s.w.setFault(nil)
	switch a.words[0] {
	case "slow":
		s.w.latency.Store(int64(duration(a.words[1])))
	case "lost":
		s.w.setFault(func([]metadata.Record) (error, error) { return errLost, nil })
	case "unknown":
		s.w.setFault(func(r []metadata.Record) (error, error) { return nil, errLost })
	case "fine":
	default:
		d.Fatalf(s.t, "no fault %q", a.words[0])
	}
	return "set"
}

// checkStored compares what the coordinator has stored, by its own account, with the tables, and with what a load makes of it.
func (s *script) checkStored() {
	s.settle()
	for _, name := range s.groups {
		checkFold(s.t, s.at, s.w, name)
	}
}

package isr

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
)

// leaderScript runs testdata/leader*.txt: elections, stable ends, fetches, images and answers in; high watermark and wanted
// in-sync sets out. Broker n is registered with epoch n*10 unless "alive" says otherwise. The invariants of the core are
// checked after every step, and the change that is due is asked for.
//
//	elect  self= epoch= isr=() replicas=() min= start= hw= stable= [pe=] [alive=()] [unclean] [at=]
//	own    stable                            the leader's stable end
//	end    offset                            the leader's log end from here on
//	fetch  id written= stable= [start=] [broker=]
//	image  pe= isr=() [replicas=()] [min=] [alive=()] [unclean]
//	answer attempt pe= isr=() | answer attempt lost | answer attempt ineligible
//	tick
//
// Every step takes at=SECONDS, the time from there on.
type leaderScript struct {
	l     *leader
	now   time.Duration
	end   record.Offset
	state partitionState
}

func TestLeaderScript(t *testing.T) {
	for _, name := range []string{"leader", "leader_isr"} {
		t.Run(name, func(t *testing.T) {
			var s leaderScript
			datadriven.RunTest(t, "testdata/"+name+".txt", func(t *testing.T, d *datadriven.TestData) string {
				a := args(t, d)
				if a.has("at") {
					s.now = time.Duration(a.num("at") * int64(time.Second))
				}
				before := record.Offset(-1)
				if s.l != nil && d.Cmd != "elect" {
					before = s.l.highWatermark
				}
				out := s.step(t, d, a)
				s.check(t, d, before)
				out += s.propose(t, d)
				return out + "\n"
			})
		})
	}
}

func (s *leaderScript) step(t *testing.T, d *datadriven.TestData, a scriptArgs) string {
	switch d.Cmd {
	case "elect":
		s.state = partitionState{}
		s.take(a)
		s.end = record.Offset(a.num("start"))
		if a.has("end") {
			s.end = record.Offset(a.num("end"))
		}
		s.l = newLeader(leaderConfig{
			self: int32(a.num("self")), epoch: record.Epoch(a.num("epoch")), state: s.state, lag: 30 * time.Second,
			epochStart: record.Offset(a.num("start")), highWatermark: record.Offset(a.num("hw")), stable: record.Offset(a.num("stable")), now: s.now,
		})
		return fmt.Sprintf("hw=%d settled=%v enough=%v", s.l.highWatermark, s.l.settled(), s.l.enough())
	case "own":
		end := record.Offset(first(d))
		s.end = max(s.end, end)
		return s.moved(s.l.ownStable(end, s.now))
	case "end":
		s.end = record.Offset(first(d))
		return s.moved(false)
	case "fetch":
		return s.moved(s.l.replicaFetched(s.fetch(first(d), a), s.now))
	case "image":
		was := s.l.enough()
		s.take(a)
		out := s.moved(s.l.changed(s.state, s.now))
		if now := s.l.enough(); now != was {
			out += fmt.Sprintf(" enough=%v", now)
		}
		return out
	case "tick":
		return s.moved(s.l.tick(s.end, s.now))
	case "answer":
		return s.answer(first(d), a)
	}
	t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	return ""
}

// take reads what an image says; what is not given stays.
func (s *leaderScript) take(a scriptArgs) {
	if a.has("pe") {
		s.state.partitionEpoch = int32(a.num("pe"))
	}
	if a.has("isr") {
		s.state.inSync = a.ids("isr")
	}
	if a.has("replicas") {
		s.state.assigned = a.ids("replicas")
	}
	if a.has("min") {
		s.state.minInSync = int(a.num("min"))
	}
	s.state.unclean = a.has("unclean")
	alive := s.state.assigned
	if a.has("alive") {
		alive = a.ids("alive")
	} else if s.state.members != nil && !a.has("replicas") {
		return
	}
	s.state.members = []Member{}
	for _, id := range alive {
		s.state.members = append(s.state.members, Member{id, int64(id) * 10})
	}
}

func (s *leaderScript) fetch(id int64, a scriptArgs) fetched {
	f := fetched{
		id: int32(id), brokerEpoch: id * 10, written: record.Offset(a.num("written")), stable: record.Offset(a.num("stable")), logStart: -1,
		leaderEnd: s.end,
	}
	if a.has("broker") {
		f.brokerEpoch = a.num("broker")
	}
	if a.has("start") {
		f.logStart = record.Offset(a.num("start"))
	}
	return f
}

func (s *leaderScript) answer(attempt int64, a scriptArgs) string {
	switch {
	case a.has("lost"):
		return s.moved(s.l.answered(int(attempt), Changed{}, errors.New("connection lost"), s.now))
	case a.has("ineligible"):
		return s.moved(s.l.answered(int(attempt), Changed{}, fmt.Errorf("refused: %w", ErrIneligible), s.now))
	}
	c := Changed{Leader: s.l.self, LeaderEpoch: s.l.epoch, PartitionEpoch: int32(a.num("pe")), InSync: a.ids("isr")}
	out := s.moved(s.l.answered(int(attempt), c, nil, s.now))
	return out + " isr=" + ids(s.l.inSync)
}

func (s *leaderScript) moved(moved bool) string {
	out := fmt.Sprintf("hw=%d", s.l.highWatermark)
	if moved {
		out += " moved"
	}
	return out
}

// propose asks for the change that is due.
func (s *leaderScript) propose(t *testing.T, d *datadriven.TestData) string {
	flying := s.l.pending != nil && s.l.pending.inFlight
	p := s.l.propose(s.end, s.now)
	if p == nil {
		return ""
	}
	if flying {
		t.Errorf("%s: two changes in flight", d.Pos)
	}
	var set []metadata.BrokerID
	for _, m := range p.inSync {
		set = append(set, m.ID)
		o := s.l.other(m.ID)
		if o == nil || slices.Contains(s.l.inSync, m.ID) {
			continue
		}
		if o.stable < s.l.highWatermark || o.stable < s.l.epochStart || m.Epoch != s.l.registered(m.ID) {
			t.Errorf("%s: broker %d is asked to join with stable end %d, epoch %d", d.Pos, m.ID, o.stable, m.Epoch)
		}
	}
	out := fmt.Sprintf("\nask %d: isr=%s pe=%d", p.attempt, ids(set), p.partitionEpoch)
	if p.recovered {
		out += " recovered"
	}
	return out
}

func (s *leaderScript) check(t *testing.T, d *datadriven.TestData, before record.Offset) {
	t.Helper()
	l := s.l
	if l.highWatermark < before {
		t.Errorf("%s: the high watermark fell from %d to %d", d.Pos, before, l.highWatermark)
	}
	for _, id := range l.inSync {
		if !slices.Contains(l.maximal, id) {
			t.Errorf("%s: %v is not in the maximal set %v", d.Pos, id, l.maximal)
		}
	}
	if l.highWatermark == before || before < 0 {
		return
	}
	if !l.enough() {
		t.Errorf("%s: the high watermark moved below min.insync.replicas", d.Pos)
	}
	for _, id := range l.maximal {
		end := l.stable
		if o := l.other(id); o != nil {
			end = o.stable
		}
		if end < l.highWatermark {
			t.Errorf("%s: high watermark %d is above what replica %d has stable (%d)", d.Pos, l.highWatermark, id, end)
		}
	}
}

func ids(list []metadata.BrokerID) string {
	out := make([]string, len(list))
	for i, id := range list {
		out[i] = strconv.Itoa(int(id))
	}
	return "(" + strings.Join(out, ",") + ")"
}

func first(d *datadriven.TestData) int64 {
	n, err := strconv.ParseInt(d.CmdArgs[0].Key, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

type scriptArgs map[string]string

func args(t *testing.T, d *datadriven.TestData) scriptArgs {
	t.Helper()
	m := scriptArgs{}
	for _, a := range d.CmdArgs {
		m[a.Key] = strings.Join(a.Vals, ",")
	}
	return m
}

func (m scriptArgs) has(key string) bool {
	_, ok := m[key]
	return ok
}

func (m scriptArgs) num(key string) int64 {
	n, err := strconv.ParseInt(m[key], 10, 64)
	if err != nil {
		panic(fmt.Sprintf("argument %s: %v", key, err))
	}
	return n
}

func (m scriptArgs) ids(key string) (ids []int32) {
	for _, s := range strings.FieldsFunc(m[key], func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(s)
		if err != nil {
			panic(err)
		}
		ids = append(ids, int32(n))
	}
	return ids
}

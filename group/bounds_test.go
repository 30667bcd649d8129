package group

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keeplog/keeplog/metadata"
)

func bareEnv(now time.Time, s *Settings) Env {
	n := 0
	return Env{Now: now, Settings: s, Topics: topics{metadata.New()}, NewID: func() string { n++; return fmt.Sprintf("id-%020d", n) }}
}

// Ids that are given away and not taken, and members that all vanish at once, cost no more than their number: whoever sends
// many must not stop the coordinator.
func TestManyEndAtOnce(t *testing.T) {
	settings, now := defaults(), time.Unix(1e9, 0)
	env := bareEnv(now, &settings)
	c := newClassic("g")
	for range maxPending {
		c.Step(&JoinGroupRequest{
			Group: "g", ClientID: "c", SessionTimeout: 6 * time.Second, ProtocolType: "consumer", Protocols: []Protocol{{"range", nil}}, RequireKnownID: true,
		}, env)
	}
	began := time.Now()
	env.Now = now.Add(7 * time.Second)
	c.Step(Wake{}, env)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("%d ids end in %v", maxPending, took)
	}
	if len(c.pending) > 0 || !c.Disposable() {
		t.Errorf("%d ids are left", len(c.pending))
	}

	c = newClassic("g")
	for i := range 3000 {
		env.Ticket = Ticket(i + 1)
		c.Step(&JoinGroupRequest{
			Group: "g", ClientID: "c", SessionTimeout: 6 * time.Second, RebalanceTimeout: time.Minute, ProtocolType: "consumer", Protocols: []Protocol{{"range", nil}},
		}, env)
	}
	env.Now, env.Ticket = env.Now.Add(10*time.Minute), 0
	c.Step(Wake{}, env)
	began = time.Now()
	env.Now = env.Now.Add(10 * time.Minute)
	c.Step(Wake{}, env)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("3,000 members end in %v", took)
	}
	if len(c.members) > 0 {
		t.Errorf("%d members are left", len(c.members))
	}
}

// Members that bring many protocols, of which few are common, do not keep the coordinator busy.
func TestManyProtocols(t *testing.T) {
	settings := defaults()
	env := bareEnv(time.Unix(1e9, 0), &settings)
	c := newClassic("g")
	protocols := func(last bool) []Protocol {
		var all []Protocol
		for i := range 255 {
			if !last {
				all = append(all, Protocol{Name: fmt.Sprintf("%s-%d", strings.Repeat("p", 40), i)})
			}
		}
		return append(all, Protocol{Name: "common"})
	}
	began := time.Now()
	for i := range 200 {
		env.Ticket = Ticket(i + 1)
		c.Step(&JoinGroupRequest{
			Group: "g", ClientID: "c", SessionTimeout: time.Minute, RebalanceTimeout: time.Minute, ProtocolType: "consumer", Protocols: protocols(i == 199),
		}, env)
	}
	env.Ticket = 0
	for c.state == classicPreparing {
		env.Now = c.Deadline()
		c.Step(Wake{}, env)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the joins and the choice took %v", took)
	}
	if text(c.protocol) != "common" {
		t.Errorf("chosen: %q, state %v", text(c.protocol), c.state)
	}
}

// An id that is given away carries the client's name, which may be long: it counts.
func TestPromisedIDsCount(t *testing.T) {
	settings := defaults()
	env := bareEnv(time.Unix(1e9, 0), &settings)
	c := newClassic("g")
	empty := c.Size()
	r := &JoinGroupRequest{
		Group: "g", ClientID: strings.Repeat("x", 30_000), SessionTimeout: time.Minute, ProtocolType: "consumer", Protocols: []Protocol{{"range", nil}}, RequireKnownID: true,
	}
	for range 100 {
		c.Step(r, env)
	}
	if got := c.Size() - empty; got < 100*30_000 {
		t.Errorf("100 ids of 30,000 bytes count %d", got)
	}
	var ids []Leaver
	for id := range c.pending {
		ids = append(ids, Leaver{MemberID: id})
	}
	env.Known = true
	c.Step(&LeaveGroupRequest{Group: "g", Members: ids[:50]}, env)
	env.Now = env.Now.Add(time.Hour)
	c.Step(Wake{}, env)
	if c.Size() != empty {
		t.Errorf("%d bytes are left", c.Size()-empty)
	}
}

// What waits to be committed counts at least the bytes that are proposed, the group's name among them: the bound on it keeps the
// metadata log from refusing, after which a shard would have to be read again.
func TestPendingCountsWhatIsProposed(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		n := w.nodes[0]
		w.latency.Store(int64(time.Second))
		proposed := 0
		w.setFault(func(records []metadata.Record) (before, after error) {
			for _, r := range records {
				proposed += metadata.RecordSize(r)
			}
			return nil, nil
		})
		group := strings.Repeat("g", 30_000)
		r := oneCommit(group, 1)
		r.Offsets[0].Offset, r.Offsets[0].LeaderEpoch, r.Offsets[0].Metadata = 1<<62, 1<<30, strings.Repeat("m", 4096)
		for range 3 {
			n.CommitOffsets(r, func(r *CommitOffsetsResponse) { wantErr(t, "commit", r.Err, nil) })
			synctest.Wait()
		}
		counted := int(n.pending.Load())
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if proposed > counted || proposed == 0 {
			t.Errorf("%d bytes were proposed, %d counted", proposed, counted)
		}
		if left := n.pending.Load(); left != 0 {
			t.Errorf("%d bytes are left", left)
		}
	})
}

// A client that goes while its group is read again takes nobody else's request with it.
func TestGoneOfAnEarlierLife(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		n := w.nodes[0]
		join := func(done func(*JoinGroupResponse)) func() {
			return n.JoinGroup(&JoinGroupRequest{
				Group: "g", SessionTimeout: time.Minute, RebalanceTimeout: time.Minute, ProtocolType: "consumer", Protocols: []Protocol{{"range", nil}},
			}, done)
		}
		gone := join(func(*JoinGroupResponse) {})
		w.move(1) // the shard is taken anew
		var joined *JoinGroupResponse
		join(func(r *JoinGroupResponse) { joined = r })
		gone()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if joined == nil || joined.Err != nil {
			t.Errorf("who joined after it got %+v", joined)
		}
	})
}

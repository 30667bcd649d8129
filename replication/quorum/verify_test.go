package quorum

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// TestVerifySoon: a leader is told soon that it leads, at little cost; one that is cut off is never told so, from the moment on that
// it is.
func TestVerifySoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3).start().ready()
		ctx := context.Background()
		lead := c.leader()
		if err := c.other(lead).q.VerifySoon(ctx); !errors.Is(err, ErrNotLeader) {
			t.Error("a follower: ", err)
		}
		for range 50 {
			time.Sleep(37 * time.Millisecond)
			begin := time.Now()
			if err := lead.q.VerifySoon(ctx); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begin); took > 2*verifySoon {
				t.Errorf("verified after %v", took)
			}
		}
		// One that answers is enough; nobody is not.
		c.net.cut(host(lead.id), host(c.other(lead).id), true)
		if err := lead.q.VerifySoon(ctx); err != nil {
			t.Error(err)
		}
		c.isolate(lead.id, true)
		time.Sleep(time.Millisecond)
		if err := lead.q.VerifySoon(ctx); !errors.Is(err, ErrNotLeader) {
			t.Error("cut off: ", err)
		}
		c.isolate(lead.id, false)
		c.leader()
		c.close()
	})
}

// TestIdleMessages: with nothing to do, a leader sends each member a handful of messages a second, and keeps its lease.
func TestIdleMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3).start().ready()
		lead := c.leader()
		term, _ := lead.q.Lead()
		time.Sleep(5 * time.Second)
		id := serverID(c.other(lead).o.Node)
		const window = 60 * time.Second
		messages, longest := 0, time.Duration(0)
		last := lead.q.peers.seen.last(id).contact
		for end := time.Now().Add(window); time.Now().Before(end); {
			time.Sleep(time.Millisecond)
			if at := lead.q.peers.seen.last(id).contact; at != last {
				messages, longest, last = messages+1, max(longest, at.Sub(last)), at
			}
		}
		if n := float64(messages) / window.Seconds(); n > 7 || n < 3 {
			t.Errorf("%.1f messages a second", n)
		}
		if longest > lead.q.o.Timing.Lease*6/10 {
			t.Errorf("%v without a message", longest)
		}
		if now, err := lead.q.Lead(); err != nil || now != term {
			t.Error("it did not keep the lead: ", err)
		}
		c.close()
	})
}

// TestMajorityAnswered: this node and those that answered, voters only.
func TestMajorityAnswered(t *testing.T) {
	servers := []raft.Server{{ID: "1"}, {ID: "2"}, {ID: "3"}, {ID: "4", Suffrage: raft.Nonvoter}, {ID: "5"}}
	for _, k := range []struct {
		answered []raft.ServerID
		want     bool
	}{{nil, false}, {[]raft.ServerID{"2"}, false}, {[]raft.ServerID{"2", "4"}, false}, {[]raft.ServerID{"2", "9"}, false}, {[]raft.ServerID{"2", "5"}, true}} {
		if got := majority(servers, "1", k.answered); got != k.want {
			t.Error(k.answered, got)
		}
	}
	if !majority(servers[:1], "1", nil) {
		t.Error("one alone")
	}
}

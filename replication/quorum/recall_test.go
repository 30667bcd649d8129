package quorum

import (
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// TestAVoterThatWasRestartedRecallsItsLeader: nobody is elected within a heartbeat time-out of the moment in which a voter that elects it has
// heard the leader before, although that voter was killed and started again meanwhile.
func TestAVoterThatWasRestartedRecallsItsLeader(t *testing.T) {
	for round := range 16 {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 3).start().ready()
			old := c.leader()
			old.propose(topic(round))
			time.Sleep(time.Minute) // nothing is written any more, no checkpoint either
			c.same()
			candidate := c.other(old)
			voter := c.nodes[6-old.id-candidate.id]
			c.net.cut(host(old.id), host(candidate.id), true)
			c.net.cut(host(candidate.id), host(old.id), true)
			time.Sleep(900 * time.Millisecond) // the candidate is about to miss the leader; the voter hears it
			if err := old.q.VerifySoon(t.Context()); err != nil {
				t.Fatal(err)
			}
			heard := time.Now()
			voter.stop()
			c.isolate(old.id, true)
			time.Sleep(10 * time.Millisecond)
			voter.start()
			c.leader(old.id)
			if took := time.Since(heard); took < time.Second {
				t.Errorf("round %d: another leader %v after the voter had heard the old one", round, took)
			}
			c.isolate(old.id, false)
			c.ready().same()
			c.close()
		})
	}
}

// TestRecall: votes only, for a while, not in a hand-over, and not where no leader can have been.
func TestRecall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timing := Timing{Heartbeat: time.Second}
		vote, transfer := &raft.RequestVoteRequest{}, &raft.RequestVoteRequest{LeadershipTransfer: true}
		early := &raft.RequestPreVoteRequest{}
		r := newRecall(true, timing)
		for _, k := range []struct {
			message any
			want    bool
		}{{vote, true}, {early, true}, {transfer, false}, {&raft.AppendEntriesRequest{}, false}, {&raft.TimeoutNowRequest{}, false}} {
			if _, got := r.refuses(k.message); got != k.want {
				t.Errorf("%T: refused %v", k.message, got)
			}
			if _, got := newRecall(false, timing).refuses(k.message); got {
				t.Errorf("%T: refused by a member that has never known a term", k.message)
			}
		}
		time.Sleep(time.Second + 1)
		if _, got := r.refuses(vote); got {
			t.Error("refused for too long")
		}
	})
}

// TestRecallEndsWithItsTransport: Raft may be opened again and again while the member lives, with a new transport each time.
func TestRecallEndsWithItsTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{}) // of the member
		p := &port{ctx: t.Context(), raft: make(chan net.Conn)}
		w := newTransport(newStream(p), &Options{Logger: slog.New(slog.DiscardHandler)}, transport{recall: newRecall(true, Timing{Heartbeat: time.Hour}), done: done})
		w.Consumer()
		synctest.Wait()
		running := func() bool {
			stacks := make([]byte, 1<<20)
			return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "transport.Consumer.func")
		}
		if !running() {
			t.Error("nobody takes the messages")
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if running() {
			t.Error("the messages of a closed transport are still waited for")
		}
		close(done)
	})
}

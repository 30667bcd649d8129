package quorum

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/vfs"
)

// The election at the start of a node alone is no news; one that follows the loss of a leader is.
func TestFirstElectionIsNoNews(t *testing.T) {
	var out bytes.Buffer
	l := newRaftLogger(slog.New(slog.NewTextHandler(&out, nil)))
	const msg = "heartbeat timeout reached, starting election"
	l.Warn(msg, "last-leader-addr", raft.ServerAddress(""), "last-leader-id", raft.ServerID(""))
	if out.Len() > 0 {
		t.Errorf("the first election: %s", out.String())
	}
	l.Warn(msg, "last-leader-addr", raft.ServerAddress("2"), "last-leader-id", raft.ServerID("2"))
	if !strings.Contains(out.String(), "level=INFO") {
		t.Errorf("a leader was lost: %q", out.String())
	}
}

// A node alone says nothing of elections, at a start and at the next.
func TestStartOfANodeAloneIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		fs, store := vfs.NewMem(), bootstrapped(t)
		for range 2 {
			n := newNode(t, fs, "/", store)
			n.o.Logger = slog.New(slog.NewTextHandler(&out, nil))
			n.open()
			n.close()
		}
		if strings.Contains(out.String(), "election") {
			t.Error(out.String())
		}
	})
}

// A member that is down is told of when that begins and when it is over, however often it is tried; under the next leader again.
func TestAMemberThatIsDownIsToldOnce(t *testing.T) {
	var out bytes.Buffer
	var u unheard
	to := slog.New(slog.NewTextHandler(&out, nil))
	l := newMemberLogger(to, &u)
	fails := func(node metadata.BrokerID) {
		l.Error("failed to heartbeat to", "peer", identity{node, metadata.DirectoryID{1}}.address(), "backoff time", time.Second, "error", io.EOF)
	}
	lines := func() string {
		defer out.Reset()
		return out.String()
	}
	fails(2)
	if got := lines(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN") || !strings.Contains(got, "member=2") || !strings.Contains(got, "error=EOF") {
		t.Errorf("the first failure: %q", got)
	}
	fails(2)
	fails(2)
	if got := lines(); got != "" {
		t.Errorf("the next: %q", got)
	}
	fails(3)
	if got := lines(); !strings.Contains(got, "member=3") {
		t.Errorf("another member: %q", got)
	}
	for _, want := range []string{"member=2", ""} {
		u.observes(raft.ResumedHeartbeatObservation{PeerID: "2"}, to)
		if got := lines(); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("it answers: %q, want %q", got, want)
		}
	}
	u.observes(raft.LeaderObservation{}, to)
	fails(3)
	if got := lines(); !strings.Contains(got, "member=3") {
		t.Errorf("under the next leader: %q", got)
	}
	for _, want := range []int{1, 0} {
		l.Error("failed to make requestVote RPC", "target", raft.Server{ID: "2", Address: "2/x"}, "error", io.EOF, "term", 3)
		if got := lines(); strings.Count(got, "member=2") != want {
			t.Errorf("no vote: %q", got)
		}
	}
	l.Error("failed to take snapshot", "error", io.EOF)
	if got := lines(); !strings.Contains(got, "level=ERROR") {
		t.Errorf("another error: %q", got)
	}
}

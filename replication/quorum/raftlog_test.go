package quorum

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"

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

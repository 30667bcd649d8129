package quorum

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// raftLogger writes Raft's own log lines to the server's log. What is news to Raft is detail to the server: its levels go down
// by one, errors apart.
type raftLogger struct {
	hclog.Logger
	to      *slog.Logger
	unheard *unheard // nil: every line of a member that does not answer is written
}

func newRaftLogger(to *slog.Logger) hclog.Logger { return newMemberLogger(to, nil) }

// newMemberLogger is a logger that tells once of members that do not answer.
func newMemberLogger(to *slog.Logger, of *unheard) hclog.Logger {
	return raftLogger{hclog.NewNullLogger(), to.With("part", "raft"), of}
}

// unheard are the members that answer no heartbeat, or no request for a vote. They are tried twice a second: the log tells when that begins and,
// to a leader, when it is over.
type unheard struct {
	mu   sync.Mutex
	down map[raft.ServerID]bool
}

// begins says whether the member answered until now.
func (u *unheard) begins(member raft.ServerID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.down[member] {
		return false
	}
	if u.down == nil {
		u.down = make(map[raft.ServerID]bool)
	}
	u.down[member] = true
	return true
}

// over says whether the member did not answer until now.
func (u *unheard) over(member raft.ServerID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	was := u.down[member]
	delete(u.down, member)
	return was
}

// forget begins anew: another member leads.
func (u *unheard) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	clear(u.down)
}

// observes takes what Raft tells of heartbeats and leaders.
func (u *unheard) observes(data any, log *slog.Logger) {
	switch o := data.(type) {
	case raft.ResumedHeartbeatObservation:
		if u.over(o.PeerID) {
			log.Info("a member of the metadata log answers again", "member", o.PeerID)
		}
	case raft.LeaderObservation:
		u.forget()
	}
}

func (l raftLogger) put(level slog.Level, msg string, args []any) {
	l.to.Log(context.Background(), level, msg, args...)
}

// Log writes a line.
func (l raftLogger) Log(level hclog.Level, msg string, args ...any) {
	switch {
	case level >= hclog.Error:
		l.Error(msg, args...)
	case level >= hclog.Warn:
		l.Warn(msg, args...)
	default:
		l.Debug(msg, args...)
	}
}

// Trace drops the line.
func (l raftLogger) Trace(string, ...any) {}

// Debug writes a line.
func (l raftLogger) Debug(msg string, args ...any) { l.put(slog.LevelDebug, msg, args) }

// Info writes a line.
func (l raftLogger) Info(msg string, args ...any) { l.put(slog.LevelDebug, msg, args) }

// Warn writes a line. That nobody leads yet, as at every start of a node alone, is no news.
func (l raftLogger) Warn(msg string, args ...any) {
	level := slog.LevelInfo
	if first(msg, args) {
		level = slog.LevelDebug
	}
	l.put(level, msg, args)
}

// first says that a line is of an election before which there was no leader.
func first(msg string, args []any) bool {
	if !strings.HasPrefix(msg, "heartbeat timeout reached") {
		return false
	}
	for i := 0; i+1 < len(args); i += 2 {
		if args[i] == "last-leader-id" {
			return fmt.Sprint(args[i+1]) == ""
		}
	}
	return false
}

// Error writes a line. That a member answers no heartbeat is told once.
func (l raftLogger) Error(msg string, args ...any) {
	level := slog.LevelError
	if member, ok := unanswered(msg, args); ok && l.unheard != nil {
		if level = slog.LevelDebug; l.unheard.begins(member) {
			l.put(slog.LevelWarn, "a member of the metadata log does not answer", append([]any{"member", member}, args...))
		}
	}
	l.put(level, msg, args)
}

// unanswered finds the member that a line says answered no heartbeat, or no request for its vote.
func unanswered(msg string, args []any) (raft.ServerID, bool) {
	if !strings.HasPrefix(msg, "failed to heartbeat to") && !strings.HasPrefix(msg, "failed to make request") {
		return "", false
	}
	for i := 0; i+1 < len(args); i += 2 {
		switch to := args[i+1].(type) {
		case raft.ServerAddress:
			if who, err := parseAddress(to); err == nil && args[i] == "peer" {
				return serverID(who.id), true
			}
		case raft.Server:
			return to.ID, args[i] == "target"
		}
	}
	return "", false
}

// With adds to every line.
func (l raftLogger) With(args ...any) hclog.Logger {
	return raftLogger{l.Logger, l.to.With(args...), l.unheard}
}

// Named adds the name of a part.
func (l raftLogger) Named(name string) hclog.Logger {
	return raftLogger{l.Logger, l.to.With("of", name), l.unheard}
}

// ResetNamed is Named.
func (l raftLogger) ResetNamed(name string) hclog.Logger { return l.Named(name) }

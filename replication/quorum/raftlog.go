package quorum

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// raftLogger writes Raft's own log lines to the server's log. What is news to Raft is detail to the server: its levels go down
// by one, errors apart.
type raftLogger struct {
	hclog.Logger
	to *slog.Logger
}

func newRaftLogger(to *slog.Logger) hclog.Logger {
	return raftLogger{hclog.NewNullLogger(), to.With("part", "raft")}
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

// Error writes a line.
func (l raftLogger) Error(msg string, args ...any) { l.put(slog.LevelError, msg, args) }

// With adds to every line.
func (l raftLogger) With(args ...any) hclog.Logger { return raftLogger{l.Logger, l.to.With(args...)} }

// Named adds the name of a part.
func (l raftLogger) Named(name string) hclog.Logger {
	return raftLogger{l.Logger, l.to.With("of", name)}
}

// ResetNamed is Named.
func (l raftLogger) ResetNamed(name string) hclog.Logger { return l.Named(name) }

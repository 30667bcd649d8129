package node

import (
	"context"
	"log/slog"
	"math"
	"sync/atomic"
)

// rootLogger is the name of the level that every room without one of its own has.
const rootLogger = "root"

// roomNames are the loggers of this process beside root: one a room.
var roomNames = [...]string{"api", "controller", "group", "isr", "log", "node", "peer", "quorum", "server"}

// unset stands for a room's level that is root's.
const unset = math.MinInt64

// loggers are the loggers of this process, one a room, with levels that change while it runs. It is an [api.Loggers].
type loggers struct {
	to   slog.Handler
	root atomic.Int64
	own  map[string]*atomic.Int64 // by room; the map does not change
}

// newLoggers makes the loggers over to, which takes every level it is given.
func newLoggers(to slog.Handler, level slog.Level) *loggers {
	l := &loggers{to: to, own: map[string]*atomic.Int64{}}
	l.root.Store(int64(level))
	for _, name := range roomNames {
		own := &atomic.Int64{}
		own.Store(unset)
		l.own[name] = own
	}
	return l
}

// room is the logger of a room, which is one of roomNames; its lines say so.
func (l *loggers) room(name string) *slog.Logger {
	if l.own[name] == nil {
		panic("node: no logger " + name)
	}
	return slog.New(roomHandler{Handler: l.to, root: &l.root, own: l.own[name]}).With("logger", name)
}

// Has says whether there is a logger of that name.
func (l *loggers) Has(name string) bool { return name == rootLogger || l.own[name] != nil }

// levelNames are Kafka's names, the lowest level first.
var levelNames = [...]struct {
	name  string
	level slog.Level
}{
	{"TRACE", slog.LevelDebug - 4},
	{"DEBUG", slog.LevelDebug},
	{"INFO", slog.LevelInfo},
	{"WARN", slog.LevelWarn},
	{"ERROR", slog.LevelError},
	{"FATAL", slog.LevelError + 4},
}

// SetLevel sets the level of a logger; an empty one goes back to root's.
func (l *loggers) SetLevel(name, level string) {
	to := l.own[name]
	if name == rootLogger {
		to = &l.root
	}
	if to == nil {
		return
	}
	if level == "" && name != rootLogger {
		to.Store(unset)
	}
	for _, n := range levelNames {
		if n.name == level {
			to.Store(int64(n.level))
		}
	}
}

// Levels gives each logger's level, its own or root's.
func (l *loggers) Levels() map[string]string {
	levels := map[string]string{rootLogger: levelName(slog.Level(l.root.Load()))}
	for name, own := range l.own {
		levels[name] = levels[rootLogger]
		if v := own.Load(); v != unset {
			levels[name] = levelName(slog.Level(v))
		}
	}
	return levels
}

func levelName(level slog.Level) string {
	for _, n := range levelNames {
		if level <= n.level {
			return n.name
		}
	}
	return levelNames[len(levelNames)-1].name
}

// roomHandler lets through what a room's level lets through.
type roomHandler struct {
	slog.Handler
	root, own *atomic.Int64
}

// Enabled is asked before a line is made.
func (h roomHandler) Enabled(_ context.Context, level slog.Level) bool {
	at := h.own.Load()
	if at == unset {
		at = h.root.Load()
	}
	return int64(level) >= at
}

// WithAttrs keeps the room.
func (h roomHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

// WithGroup keeps the room.
func (h roomHandler) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}

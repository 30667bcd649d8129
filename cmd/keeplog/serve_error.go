package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/internal/node"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/replication/quorum"
	"github.com/keeplog/keeplog/vfs"
)

// startError explains why the broker did not start.
func (a *app) startError(cfg *config.Broker, err error) error {
	msg, advice, _ := strings.Cut(err.Error(), "\ntry: ")
	e := failf("cannot start: %s", withoutRooms(msg))
	e.code, e.try = "START_FAILED", advice
	dir := shellWord(cfg.LogDirs()[0])
	var listen *net.OpError
	switch {
	case errors.As(err, &listen) && listen.Op == "listen":
		a.listenError(e, cfg, msg, listen)
	case errors.Is(err, vfs.ErrLocked), errors.Is(err, quorum.ErrLocked):
		e.why = "another process is serving this data directory"
		e.try = "stop it, or give this one a directory of its own: keeplog serve --data-dir DIR"
	case errors.Is(err, quorum.ErrForeign) && strings.Contains(e.try, "--replace"):
		e.why = "an empty disk that voted could undo what was decided; the others must forget the old one first, then this one may join"
	case errors.Is(err, node.ErrForeign), errors.Is(err, quorum.ErrForeign):
		e.why = "a data directory belongs to one node of one cluster for ever"
		if e.try == "" {
			e.try = "start the node that it names, or give this one a directory of its own: keeplog serve --data-dir DIR"
		}
	case errors.Is(err, node.ErrDirectories):
		e.why = "starting without it would give offsets out again that were given out before"
	case errors.Is(err, node.ErrStrange):
		e.why = "a data directory is the broker's alone: in others' it would rename and remove what looks like its own"
		e.try = "keeplog serve --data-dir " + shellWord(filepath.Join(cfg.LogDirs()[0], "keeplog-data"))
	case errors.Is(err, quorum.ErrVoters), errors.Is(err, quorum.ErrRemoved), errors.Is(err, quorum.ErrAlone):
		e.why = "the members of a cluster must agree on who they are"
	case errors.Is(err, quorum.ErrMissing) && isKafkas(cfg.LogDirs()[0]):
		e.exit, e.why = exitFailed, "this is a data directory of Apache Kafka, whose metadata keeplog does not take over"
		e.try = "keeplog dump " + dir + " shows what is in it; to serve: keeplog serve --data-dir DIR"
	case errors.Is(err, quorum.ErrMissing), errors.Is(err, quorum.ErrDamaged), errors.Is(err, log.ErrBadFile):
		e.exit, e.why = exitDamaged, "a file that nothing can be made anew from is damaged or gone"
		if e.try == "" {
			e.try = "keeplog check " + dir
		}
	case errors.Is(err, node.ErrStorage):
		e.exit = exitStorage
	default:
		fileError(e, err)
	}
	const lost = "keeplog serve --set keeplog.lost.directories="
	if before, rest, ok := strings.Cut(e.try, lost); ok {
		value, more, _ := strings.Cut(rest, " ")
		e.try = strings.TrimSpace(before + a.again("--set", "keeplog.lost.directories="+value) + " " + more)
	}
	return e
}

// listenError is for an address that could not be taken. before is the text in front of the system's, which names the listener.
func (a *app) listenError(e *cliError, cfg *config.Broker, before string, err *net.OpError) {
	name := ""
	for _, l := range cfg.Listeners() {
		if strings.Contains(before, "listener "+l.Name+" on ") {
			name = l.Name
		}
	}
	// A node alone that was given no list of listeners takes --listen; else the list has to change.
	listed := len(cfg.Listeners()) > 1 && name != ""
	e.msg = "cannot start: cannot listen on " + err.Addr.String() + " (" + lastPart(err) + ")"
	if listed {
		e.msg = "cannot start: " + name + " cannot listen on " + err.Addr.String() + " (" + lastPart(err) + ")"
	}
	where := "listeners"
	if file := a.given("--config"); file != "" {
		where += " of " + shellWord(file)
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		e.why = "another program listens on this address"
		e.try = "keeplog serve --listen 127.0.0.1:0, which takes a free port"
		if listed {
			e.try = fmt.Sprintf("stop that one, or another port for %s in %s%s", name, where, alsoIn(cfg, name))
		}
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		e.why = "this machine has no such address"
		e.try = "keeplog serve --listen 0.0.0.0:PORT --advertise NAME:PORT"
		if listed {
			e.try = fmt.Sprintf("%s://0.0.0.0:PORT in %s, and in advertised.listeners the name that others reach it by", name, where)
		}
	case errors.Is(err, fs.ErrPermission):
		e.why = "ports below 1024 need a privilege"
		e.try = "keeplog serve --listen 127.0.0.1:9092"
		if listed {
			e.try = fmt.Sprintf("a port from 1024 on for %s in %s%s", name, where, alsoIn(cfg, name))
		}
	}
}

// alsoIn says where else the port of a listener stands.
func alsoIn(cfg *config.Broker, name string) string {
	controller, _ := cfg.Controller()
	switch {
	case name == controller.Name:
		return ", and the same port in controller.quorum.voters of every node"
	case slices.ContainsFunc(cfg.List("advertised.listeners"), func(s string) bool { return strings.HasPrefix(s, name+"://") }):
		return ", and in advertised.listeners"
	}
	return ""
}

// given is the value of a flag on the command line, empty without it.
func (a *app) given(flag string) string {
	for i, arg := range a.args {
		if value, ok := strings.CutPrefix(arg, flag+"="); ok {
			return value
		}
		if arg == flag && i+1 < len(a.args) {
			return a.args[i+1]
		}
	}
	return ""
}

// fileError is for what the file system answered.
func fileError(e *cliError, err error) {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrNotExist):
		e.why = "the broker must be able to make and write files there"
		e.try = "keeplog serve --data-dir DIR, a directory that this user may write to"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.exit, e.why = exitStorage, "the disk is full, the reserve for the broker's own files too"
		e.try = "make room on the disk, then start again"
	}
}

// withoutRooms takes the names of packages out of an error's text.
func withoutRooms(msg string) string {
	for _, room := range []string{"node: ", "quorum: ", "log: ", "vfs: ", "config: "} {
		msg = strings.ReplaceAll(msg, ": "+room, ": ")
		msg = strings.TrimPrefix(msg, room)
	}
	return msg
}

// isKafkas says whether Apache Kafka keeps its metadata in dir.
func isKafkas(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "__cluster_metadata-0"))
	return err == nil
}

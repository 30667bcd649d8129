package api

import (
	"errors"
	"strings"

	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/replication/isr"
)

// texts are what clients are told of errors that come from below and were not written for them: where it is known, then what to do.
var texts = []struct {
	err error
	// what is the sentence where the error has no detail; with is the one that the detail follows.
	what, with, try string
}{
	{log.ErrReserve, "The disk of a data directory is full", "The disk is full: ", "make room on it and the broker goes on by itself, or lower keeplog.disk.reserve.bytes"},
	{log.ErrOffline, "A data directory of the broker is offline", "A data directory of the broker is offline: ", "check the disk and start the broker again"},
	{isr.ErrOffline, "The partition's log is not open on the broker", "The partition's log is not open on the broker: ", "the broker's own log tells the cause; keeplog check DIR looks at the files"},
	{log.ErrNewerVersion, "A file of the partition was written by a newer version", "A file of the partition was written by a newer version: ", "run the newer version"},
	{controller.ErrNotController, "The broker does not lead the metadata log now, or lost it meanwhile", "", "try again"},
}

// errorText is the sentence that a client is told about an error; empty where the code says everything.
func errorText(err error) string {
	var answer *controller.Answer
	if errors.As(err, &answer) {
		return answer.Text
	}
	if r := (*remoteError)(nil); errors.As(err, &r) {
		return r.text
	}
	for _, t := range texts {
		if !errors.Is(err, t.err) {
			continue
		}
		s := t.what
		if _, detail, ok := strings.Cut(err.Error(), t.err.Error()+": "); ok && t.with != "" {
			s = t.with + withoutRooms(detail)
		}
		return s + "; " + t.try
	}
	if code(err) == codeRequestTimedOut {
		return ""
	}
	return withoutRooms(strings.TrimPrefix(err.Error(), controller.ErrNotCommitted.Error()+": "))
}

// rooms are the packages that errors come from; each begins its own with its name.
var rooms = []string{
	"api", "config", "controller", "group", "index", "isr", "log", "metadata", "node", "peer", "protocol", "quorum", "raft", "record", "segment", "server", "vfs",
}

// withoutRooms takes the names of packages out of an error's text.
func withoutRooms(s string) string {
	for again := true; again; {
		again = false
		for _, room := range rooms {
			if rest, ok := strings.CutPrefix(s, room+": "); ok {
				s, again = rest, true
			}
			if next := strings.ReplaceAll(s, ": "+room+": ", ": "); next != s {
				s, again = next, true
			}
		}
	}
	return s
}

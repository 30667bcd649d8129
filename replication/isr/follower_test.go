package isr

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/record"
)

// followerScript runs testdata/follower.txt: what a follower tells its leader, and what it does with the answers. Its log is
// a list of epochs with their starts. The invariants of the core are checked after every step.
//
//	follow  epoch= end= stable= hw= [start=] [unclean=] [epochs=(e:start,…)]
//	tell                                    the next fetch; nothing when there is nothing to tell
//	answer  fetch [hw=] [start=] [diverging=(epoch,end)] [records] [error=range|leader]
//	append  base= last= epoch= hw=           what became of the records
//	cut                                     the truncation is through
//	flush   stable
//	lose                                    the session ends
type followerScript struct {
	f      *follower
	log    ends
	epochs []log.EpochEntry
	at     record.Offset // where a cut goes
	all    bool
	seq    int64
	now    time.Duration
}

func TestFollowerScript(t *testing.T) {
	var s followerScript
	datadriven.RunTest(t, "testdata/follower.txt", func(t *testing.T, d *datadriven.TestData) string {
		a := args(t, d)
		if a.has("at") {
			s.now = time.Duration(a.num("at")) * time.Millisecond
		}
		var before follower
		if s.f != nil {
			before = *s.f
		}
		out := s.step(t, d, a)
		if s.f.highWatermark > s.f.end {
			t.Errorf("%s: the high watermark %d is above the end %d", d.Pos, s.f.highWatermark, s.f.end)
		}
		if d.Cmd != "follow" && d.Cmd != "cut" && s.f.highWatermark < before.highWatermark {
			t.Errorf("%s: the high watermark fell from %d to %d", d.Pos, before.highWatermark, s.f.highWatermark)
		}
		return out + "\n"
	})
}

func (s *followerScript) step(t *testing.T, d *datadriven.TestData, a scriptArgs) string {
	switch d.Cmd {
	case "follow":
		return s.follow(d, a)
	case "tell":
		if !s.f.due(s.now) {
			return "nothing"
		}
		s.seq++
		c := s.f.list(s.seq)
		if c.stable > c.offset {
			t.Errorf("%s: stable end %d above the end %d", d.Pos, c.stable, c.offset)
		}
		return fmt.Sprintf("fetch %d: offset=%d last epoch=%d stable=%d start=%d epoch=%d", s.seq, c.offset, c.lastEpoch, c.stable, c.start, c.epoch)
	case "answer":
		return s.answer(a, first(d))
	case "append":
		base := record.Offset(a.num("base"))
		if base == s.log.end {
			s.log.end, s.log.lastEpoch = record.Offset(a.num("last"))+1, record.Epoch(a.num("epoch"))
			if n := len(s.epochs); n == 0 || s.epochs[n-1].Epoch != s.log.lastEpoch {
				s.epochs = append(s.epochs, log.EpochEntry{Epoch: s.log.lastEpoch, Start: base})
			}
		}
		moved, intact := s.f.appended(base, s.log, record.Offset(a.num("hw")))
		return fmt.Sprintf("hw=%d moved=%v intact=%v", s.f.highWatermark, moved, intact)
	case "cut":
		return s.cut()
	case "flush":
		s.log.stable = record.Offset(first(d))
		return fmt.Sprintf("news=%v", s.f.flushed(s.log.stable))
	case "lose":
		s.f.unlist()
		return "lost"
	}
	t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	return ""
}

func (s *followerScript) follow(d *datadriven.TestData, a scriptArgs) string {
	unclean := record.NoEpoch
	if a.has("unclean") {
		unclean = record.Epoch(a.num("unclean"))
	}
	s.log = ends{end: record.Offset(a.num("end")), stable: record.Offset(a.num("stable")), lastEpoch: record.NoEpoch}
	if a.has("start") {
		s.log.start = record.Offset(a.num("start"))
	}
	s.epochs, s.seq = nil, 0
	for _, arg := range d.CmdArgs {
		if arg.Key != "epochs" {
			continue
		}
		for _, v := range arg.Vals {
			var e log.EpochEntry
			if _, err := fmt.Sscanf(v, "%d:%d", &e.Epoch, &e.Start); err != nil {
				panic(err)
			}
			s.epochs = append(s.epochs, e)
			s.log.lastEpoch = e.Epoch
		}
	}
	s.f = newFollower(record.Epoch(a.num("epoch")), unclean, s.log, record.Offset(a.num("hw")))
	return fmt.Sprintf("last epoch=%d", s.log.lastEpoch)
}

// endOf is what the log answers: −1 where the epoch is above all.
func (s *followerScript) endOf(asked record.Epoch) record.Offset {
	n := len(s.epochs)
	if n == 0 || asked > s.epochs[n-1].Epoch {
		return -1
	}
	if asked < s.epochs[0].Epoch {
		return s.epochs[0].Start
	}
	for i := n - 1; i >= 0; i-- {
		if s.epochs[i].Epoch <= asked {
			if i == n-1 {
				return s.log.end
			}
			return s.epochs[i+1].Start
		}
	}
	return -1
}

func (s *followerScript) answer(a scriptArgs, seq int64) string {
	in := answer{seq: seq, highWatermark: -1, logStart: -1, divergingEpoch: -1, divergingEnd: -1, records: a.has("records")}
	if a.has("hw") {
		in.highWatermark = record.Offset(a.num("hw"))
	}
	if a.has("start") {
		in.logStart = record.Offset(a.num("start"))
	}
	if a.has("diverging") {
		pair := a.ids("diverging")
		in.divergingEpoch, in.divergingEnd = record.Epoch(pair[0]), record.Offset(pair[1])
	}
	switch a["error"] {
	case "range":
		in.err = log.ErrOffsetOutOfRange
	case "leader":
		in.err = ErrNotLeader
	}
	r := s.f.answered(in, s.endOf, s.now)
	out := [...]string{"nothing", "append", "truncate", "restart", "halt"}[r.do]
	if r.do == truncate || r.do == restart {
		s.at, s.all = r.at, r.do == restart
		out += fmt.Sprintf(" to %d", r.at)
	}
	if r.start >= 0 {
		out += fmt.Sprintf(" start=%d", r.start)
	}
	if r.moved {
		out += fmt.Sprintf(" hw=%d", s.f.highWatermark)
	}
	if s.f.offline != nil && !errors.Is(s.f.offline, ErrBelowWatermark) {
		out += " " + s.f.offline.Error()
	}
	return out
}

func (s *followerScript) cut() string {
	if s.all {
		s.epochs, s.log = nil, ends{start: s.at, end: s.at, stable: s.at, lastEpoch: record.NoEpoch}
	}
	for n := len(s.epochs); n > 0 && s.epochs[n-1].Start >= s.at; n-- {
		s.epochs = s.epochs[:n-1]
	}
	s.log.end, s.log.stable, s.log.lastEpoch = s.at, min(s.log.stable, s.at), record.NoEpoch
	if n := len(s.epochs); n > 0 {
		s.log.lastEpoch = s.epochs[n-1].Epoch
	}
	s.f.cut(s.log)
	return fmt.Sprintf("hw=%d", s.f.highWatermark)
}

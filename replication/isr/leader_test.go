package isr

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/keeplog/keeplog/record"
)

// leaderScript runs testdata/leader.txt: elections, stable ends and changes in, high watermark out. The invariants of the
// core are checked after every step.
type leaderScript struct {
	l *leader
}

func TestLeaderScript(t *testing.T) {
	var s leaderScript
	datadriven.RunTest(t, "testdata/leader.txt", func(t *testing.T, d *datadriven.TestData) string {
		before := record.Offset(-1)
		if s.l != nil && d.Cmd != "elect" {
			before = s.l.highWatermark
		}
		out := s.step(t, d)
		s.check(t, d, before)
		return out + "\n"
	})
}

func (s *leaderScript) step(t *testing.T, d *datadriven.TestData) string {
	a := args(t, d)
	switch d.Cmd {
	case "elect":
		s.l = newLeader(leaderConfig{
			self: int32(a.num("self")), epoch: record.Epoch(a.num("epoch")), inSync: a.ids("isr"), replicas: int(a.num("replicas")),
			minInSync: int(a.num("min")), epochStart: record.Offset(a.num("start")), highWatermark: record.Offset(a.num("hw")),
			stable: record.Offset(a.num("stable")),
		})
		return fmt.Sprintf("hw=%d settled=%v enough=%v", s.l.highWatermark, s.l.settled(), s.l.enough())
	case "stable":
		id, _ := strconv.Atoi(d.CmdArgs[0].Key)
		end, _ := strconv.Atoi(d.CmdArgs[1].Key)
		return s.moved(s.l.replicaStable(int32(id), record.Offset(end)))
	case "change":
		was := s.l.enough()
		out := s.moved(s.l.changed(int32(a.num("epoch")), a.ids("isr"), int(a.num("replicas")), int(a.num("min"))))
		if now := s.l.enough(); now != was {
			out += fmt.Sprintf(" enough=%v", now)
		}
		return out
	}
	t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	return ""
}

func (s *leaderScript) moved(moved bool) string {
	out := fmt.Sprintf("hw=%d", s.l.highWatermark)
	if moved {
		out += " moved"
	}
	return out
}

func (s *leaderScript) check(t *testing.T, d *datadriven.TestData, before record.Offset) {
	t.Helper()
	if s.l.highWatermark < before {
		t.Errorf("%s: the high watermark fell from %d to %d", d.Pos, before, s.l.highWatermark)
	}
	if s.l.highWatermark == before || before < 0 {
		return
	}
	for _, id := range s.l.inSync {
		if end, ok := s.l.stable[id]; !ok || end < s.l.highWatermark {
			t.Errorf("%s: high watermark %d is above what replica %d has stable (%d)", d.Pos, s.l.highWatermark, id, end)
		}
	}
}

type scriptArgs map[string]string

func args(t *testing.T, d *datadriven.TestData) scriptArgs {
	t.Helper()
	m := scriptArgs{}
	for _, a := range d.CmdArgs {
		m[a.Key] = strings.Join(a.Vals, ",")
	}
	return m
}

func (m scriptArgs) num(key string) int64 {
	n, err := strconv.ParseInt(m[key], 10, 64)
	if err != nil {
		panic(fmt.Sprintf("argument %s: %v", key, err))
	}
	return n
}

func (m scriptArgs) ids(key string) (ids []int32) {
	for _, s := range strings.FieldsFunc(m[key], func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(s)
		if err != nil {
			panic(err)
		}
		ids = append(ids, int32(n))
	}
	return ids
}

package log

import (
	"context"
	"errors"
	"log/slog"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keeplog/keeplog/segment"
	"github.com/keeplog/keeplog/vfs"
)

// durableRig is a killed rig whose partition 0 has offsets 0 to 29, and a durable mark that says so.
func durableRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, vfs.NewCrash())
	l := r.log(0)
	r.fill(l, 10)
	r.dir.Tick(r.now)
	r.now = r.now.Add(time.Minute)
	r.dir.Tick(r.now)
	r.fs = r.fs.(*vfs.CrashFS).Kill()
	return r
}

// However much of a partition is gone, a segment's tail, all segments, or its directory: no offset is given again, and which ones were lost is
// known from then on, also after further starts, until the log start has passed them.
func TestNoOffsetTwiceWhateverIsGone(t *testing.T) {
	file := path.Join("/data", logName(0, segment.LogExt))
	for _, tc := range []struct {
		name string
		lose func(r *rig)
		want Lost
	}{
		{"the tail", func(r *rig) { r.overwrite(logName(0, segment.LogExt), r.file(logName(0, segment.LogExt))[:2500]) }, Lost{6, 30, 24}},
		{"all segments", func(r *rig) { must(t, r.fs.Remove(file)) }, Lost{0, 30, 30}},
		{"the directory", func(r *rig) { must(t, r.fs.RemoveAll(path.Dir(file))) }, Lost{0, 30, 30}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := durableRig(t)
			tc.lose(r)
			r.open()
			l := r.log(0)
			if m, missing := l.MissingData(); !missing || m.End != tc.want.From || m.Mark != 30 {
				t.Fatalf("%+v %v\n%s", m, missing, r.logs.String())
			}
			if _, lost := l.Lost(); lost {
				t.Fatal("the log has not gone on yet")
			}
			must(t, l.StartEpoch(1))
			if a := r.add(l, sent{}); a.Base != 30 {
				t.Fatalf("offset %d is given twice", a.Base)
			}
			for range 3 {
				if got, lost := l.Lost(); !lost || got != tc.want {
					t.Fatalf("lost: %v", cmp.Diff(tc.want, got))
				}
				r.fs = r.fs.(*vfs.CrashFS).Kill()
				r.open()
				l = r.log(0)
				if _, missing := l.MissingData(); missing || l.WrittenEnd() != 31 {
					t.Fatalf("after the next start: missing %v, end %d", missing, l.WrittenEnd())
				}
			}
			must(t, l.AdvanceStart(31))
			if _, lost := l.Lost(); lost {
				t.Fatal("the log start has passed what was lost")
			}
		})
	}
}

// What is lost a second time is added.
func TestLostTwice(t *testing.T) {
	var none Lost
	once := none.and(6, 30)
	for _, tc := range []struct {
		got, want Lost
	}{
		{none.and(5, 5), none},
		{once, Lost{6, 30, 24}},
		{once.and(40, 50), Lost{6, 50, 34}},
	} {
		if tc.got != tc.want {
			t.Errorf("%+v, want %+v", tc.got, tc.want)
		}
	}
	m := Mark{Segment: 3, Offset: 50, Lost: once}
	b := m.Encode()
	if got, _, err := DecodeMark(b[:]); err != nil || got.Lost != once {
		t.Errorf("%+v, %v", got, err)
	}
}

// An epoch does not begin in a log that goes away while it begins.
func TestEpochOfALogThatMoved(t *testing.T) {
	r := durableRig(t)
	r.overwrite(logName(0, segment.LogExt), r.file(logName(0, segment.LogExt))[:2500])
	r.open()
	l := r.log(0)
	r.dir.log = slog.New(onMessage{"going on behind a gap", func() { l.stop(ErrMoved) }})
	if err := l.StartEpoch(7); !errors.Is(err, ErrMoved) {
		t.Fatal(err)
	}
	if e := l.LatestEpoch(); e == 7 {
		t.Fatal("it has begun")
	}
}

// onMessage is a handler that does something when a message with a text comes.
type onMessage struct {
	text string
	do   func()
}

func (h onMessage) Enabled(context.Context, slog.Level) bool { return true }
func (h onMessage) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h onMessage) WithGroup(string) slog.Handler            { return h }
func (h onMessage) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, h.text) {
		h.do()
	}
	return nil
}

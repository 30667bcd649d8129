package main

import (
	"strings"
	"testing"
	"time"

	"github.com/keeplog/keeplog/lag"
	"github.com/keeplog/keeplog/record"
)

func TestParseSeek(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for s, want := range map[string]seekPoint{
		"start":                {point: point{pointStart, 0}},
		"end":                  {point: point{pointEnd, 0}},
		"17":                   {point: point{pointOffset, 17}},
		"+3":                   {point: point{pointAfter, 3}, shift: true},
		"-3":                   {point: point{pointBefore, 3}, shift: true},
		"start+3":              {point: point{pointAfter, 3}},
		"end-3":                {point: point{pointBefore, 3}},
		"-1h":                  {point: point{pointTime, now.Add(-time.Hour).UnixMilli()}},
		"@-1h":                 {point: point{pointTime, now.Add(-time.Hour).UnixMilli()}},
		"@1700000000000":       {point: point{pointTime, 1_700_000_000_000}},
		"2026-11-30T11:00:00Z": {point: point{pointTime, now.Add(-time.Hour).UnixMilli()}},
		"2026-11-30":           {point: point{pointTime, now.Add(-12 * time.Hour).UnixMilli()}},
	} {
		want.given = true
		if got, err := parseSeek(s, now); err != nil || got != want {
			t.Errorf("%s: %+v %v, want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "start+", "end-x", "+", "tomorrow", "1.5"} {
		if got, err := parseSeek(s, now); err == nil {
			t.Errorf("%q is taken as %+v", s, got)
		}
	}
}

func TestGroupTexts(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 42 * time.Second: "42s", 3 * time.Minute: "3m", 200 * time.Second: "3m20s", 125 * time.Minute: "2h5m", 76 * time.Hour: "3d4h",
	} {
		if got := shortTime(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	if got := ranges([]tp{{"a", 0}, {"a", 1}, {"a", 2}, {"a", 5}, {"b", 7}}); got != "a:0-2,5 b:7" {
		t.Error(got)
	}
	drain := 200.0
	if got := trendText("down", &drain); got != "down, 3m20s left" {
		t.Error(got)
	}
}

func TestAlert(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	all := []groupLag{
		{Group: "fine", Lag: n(10), Behind: n(1000), Partitions: []lagRow{{Committed: n(1), Lag: n(10), Behind: n(1000)}}},
		{Group: "late", Lag: n(11), Behind: n(31_000), Partitions: []lagRow{{Committed: n(1), Lag: n(11), Behind: n(31_000)}}},
	}
	member := &groupMember{ID: "1"}
	never := []groupLag{{Group: "never", Partitions: []lagRow{{Start: n(2), End: n(9), owner: member}}}}
	idle := []groupLag{{Group: "idle", Partitions: []lagRow{{Start: n(9), End: n(9), owner: member}, {Start: n(2), End: n(9)}}}}
	dark := append(all[:1:1], groupLag{Group: "dark", Partitions: []lagRow{{Committed: n(1)}}})
	for _, c := range []struct {
		limit  string
		groups []groupLag
		want   string
	}{
		{"10", all, "1 group is above 10: late (11)"},
		{"11", all, ""},
		{"30s", all, "1 group is above 30s: late (31s)"},
		{"31s", all, ""},
		{"11", dark, "not known whether above 11: dark"},
		{"", dark, ""},
		{"11", never, "not known whether above 11: never"},
		{"30s", never, "not known whether above 30s: never"},
		{"11", idle, ""},
	} {
		limit, err := parseAlert(c.limit)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := limit.check(&app{}, c.groups); err != nil {
			if got = err.Error(); failure(err).exit != exitPart {
				t.Errorf("%+v: exit code %d", c, failure(err).exit)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.limit, got, c.want)
		}
	}
	for _, s := range []string{"x", "-1", "-3s"} {
		if l, err := parseAlert(s); err == nil {
			t.Errorf("%s is taken as %+v", s, l)
		}
	}
}

// What explain says, state by state.
func TestExplain(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	line := func(p int32, committed, end int64, moved time.Duration) lagRow {
		return newLagRow("orders", &lag.Line{
			Partition: lag.Partition{Partition: p}, Committed: record.Offset(committed), Extent: lag.Extent{Start: 5, End: record.Offset(end)},
			CommittedAt: now.Add(-moved).UnixMilli(), Moved: now.Add(-moved).UnixMilli(), Behind: 9000, In: 2, Out: 1, Trend: lag.TrendUp,
		})
	}
	a, b := groupMember{ID: "1", ClientID: "a", Partitions: []tp{{"orders", 0}}}, groupMember{ID: "2", ClientID: "b"}
	waits := a
	waits.Awaited = true
	gives := groupMember{ID: "3", ClientID: "c", Partitions: []tp{{"orders", 0}, {"orders", 1}}, Target: []tp{{"orders", 0}}}
	for _, c := range []struct {
		name, state, kind string
		members           []groupMember
		row               lagRow
		want              []string
	}{
		{"empty", "Empty", "classic", nil, line(0, 10, 20, time.Minute), []string{"NO_MEMBERS nobody reads. The last commit was at 2026-11-30T11:59:00.000Z, 1m ago"}},
		{"joining", "PreparingRebalance", "classic", []groupMember{waits, b}, line(0, 10, 20, time.Hour), []string{"REBALANCING waits for a to join again"}},
		{"leading", "CompletingRebalance", "classic", []groupMember{waits, b}, line(0, 10, 20, time.Hour), []string{"REBALANCING waits for a to say who reads what"}},
		{"reconciling", "Reconciling", "consumer", []groupMember{gives, b}, line(0, 10, 20, time.Hour), []string{"REBALANCING waits for c to give up orders:1"}},
		{"stuck", "Stable", "classic", []groupMember{a, b}, line(0, 10, 20, time.Hour), []string{
			"IDLE_MEMBERS 1 member holds no partitions: b", "STUCK a has orders:0, and what is committed there has not moved for 1h, while 10 records wait",
		}},
		{"slow", "Stable", "classic", []groupMember{a}, line(0, 10, 200, time.Second), []string{"TOO_SLOW 2/s come in, 1/s are read"}},
		{"unread", "Stable", "classic", []groupMember{a}, line(3, 10, 20, time.Second), []string{"NOT_READ no member has orders:3, where 10 records are not read", "TOO_SLOW "}},
		{"gone", "Stable", "classic", []groupMember{a}, line(0, 2, 20, time.Second), []string{"OUT_OF_RANGE in orders:0 it is 2, and the log begins at 5", "TOO_SLOW "}},
		{"beyond", "Stable", "classic", []groupMember{a}, line(0, 30, 20, time.Second), []string{"OUT_OF_RANGE in orders:0 it is 30, and the log ends at 20", "UP_TO_DATE "}},
	} {
		v := &groupView{listedGroup: listedGroup{name: "g", kind: c.kind, state: c.state}, members: c.members, epoch: -1, assignedEpoch: -1}
		g := sumUp(v, map[tp]lagRow{c.row.key(): c.row})
		x := explaining{&explanation{}, &g, now, "g"}
		x.partitions()
		x.members()
		x.progress()
		if len(x.Findings) != len(c.want) {
			t.Errorf("%s: %+v", c.name, x.Findings)
			continue
		}
		for i, want := range c.want {
			code, text, _ := strings.Cut(want, " ")
			if f := x.Findings[i]; f.Code != code || !strings.Contains(f.Message, text) {
				t.Errorf("%s: %+v, want %s", c.name, f, want)
			}
		}
	}
}

// What explain says to try past a record that stops a member is taken by group seek: where nothing was committed +N has nothing to count from.
func TestExplainSeeksPast(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	n := func(v int64) *int64 { return &v }
	never := func(p int32) lagRow { return lagRow{Topic: "orders", Partition: p, Start: n(0), End: n(9)} }
	moved := func(p int32) lagRow {
		return lagRow{Topic: "orders", Partition: p, Committed: n(1), Start: n(0), End: n(9), Lag: n(8), moved: now.Add(-time.Hour)}
	}
	for _, c := range []struct {
		rows []lagRow
		says string
		try  string
	}{
		{[]lagRow{never(0), never(1)}, "a has orders:0-1, and nothing was ever committed there, while 18 records wait", "group seek g --to start+1 --topic orders:0,1 "},
		{[]lagRow{moved(0), moved(1)}, "a has orders:0-1, and what is committed there has not moved for 1h, while 16 records wait", "group seek g --to +1 --topic orders:0,1 "},
		{[]lagRow{never(0), moved(1)}, "a has orders:0-1, and what is committed there has not moved for 1h, while 17 records wait", "group seek g --to +1 --topic orders:1 "},
	} {
		member := groupMember{ID: "1", ClientID: "a"}
		rows := map[tp]lagRow{}
		for _, r := range c.rows {
			rows[r.key()] = r
			member.Partitions = append(member.Partitions, r.key())
		}
		g := sumUp(&groupView{listedGroup: listedGroup{name: "g", kind: "classic", state: "Stable"}, members: []groupMember{member}}, rows)
		x := explaining{explanation: &explanation{}, lag: &g, now: now, word: "g"}
		x.progress()
		if len(x.Findings) != 1 || x.Findings[0].Message != c.says || !strings.Contains(x.Findings[0].Try, c.try) {
			t.Errorf("%+v, want %s and %s", x.Findings, c.says, c.try)
		}
	}
}

// Nobody is called stuck of whom it is not known since when: a broker that computes no lags does not tell.
func TestExplainKnowsNotSinceWhen(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	n := func(v int64) *int64 { return &v }
	told := newLagRow("orders", &lag.Line{Committed: 1, Extent: lag.Extent{Start: 0, End: 9}, CommittedAt: lag.Unknown, Moved: lag.Unknown})
	for _, r := range []lagRow{{Topic: "orders", Committed: n(1), Start: n(0), End: n(9), Lag: n(8), pace: noPace}, told} {
		member := groupMember{ID: "1", ClientID: "a", Partitions: []tp{r.key()}}
		g := sumUp(&groupView{listedGroup: listedGroup{name: "g", kind: "classic", state: "Stable"}, members: []groupMember{member}}, map[tp]lagRow{r.key(): r})
		x := explaining{explanation: &explanation{}, lag: &g, now: now, word: "g"}
		x.progress()
		if len(x.Findings) != 0 {
			t.Errorf("%+v", x.Findings)
		}
	}
}

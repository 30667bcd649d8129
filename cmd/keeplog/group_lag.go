package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

type lagFlags struct {
	watch bool
	every time.Duration
	alert string
	by    string
}

func newGroupLagCommand(a *app) *cobra.Command {
	var flags lagFlags
	cmd := &cobra.Command{
		Use: "lag [GROUP...]", Short: "Show how far groups are behind, in records and in seconds",
		Long: `Show how far groups are behind: of named groups each partition, without a name each group, the worst first.

BEHIND is the age of the first record that was not read. TREND says whether the lag grew over the last minute, and how long it
takes at this pace until all is read. -o wide shows the records a second that come in and that are read.

--alert makes the exit code 3 when the lag of a group is above a number of records, or it is behind for longer than a time, or that
is not known: a leader does not tell, or a member has a partition with records and has committed nothing there.`,
		Example:           "  keeplog group lag billing\n  keeplog group lag --alert 30s -q || page-somebody\n  keeplog group lag billing --by member --watch",
		ValidArgsFunction: a.completeGroups(0),
	}
	cmd.RunE = a.run(func(ctx context.Context, names []string) error {
		slices.Sort(names)
		names = slices.Compact(names)
		limit, err := parseAlert(flags.alert)
		if err != nil {
			return err
		}
		if flags.by == "" {
			if flags.by = "partition"; len(names) == 0 {
				flags.by = "group"
			}
		}
		if !slices.Contains([]string{"partition", "member", "group"}, flags.by) {
			e := usagef("--by %s: it is partition, member or group", flags.by)
			e.try = "--by group"
			return e
		}
		if flags.every < 100*time.Millisecond {
			return usagef("--every %s: it must be at least 100ms", flags.every)
		}
		if !flags.watch {
			return a.ask(ctx, func(ctx context.Context, s *session) error { return s.showLag(ctx, names, &flags, limit) })
		}
		return a.watchLag(ctx, names, &flags, limit)
	})
	f := cmd.Flags()
	f.BoolVarP(&flags.watch, "watch", "w", false, "show it again and again, until --alert or Ctrl-C")
	f.DurationVar(&flags.every, "every", 2*time.Second, "how often with --watch, a `DURATION`")
	f.StringVar(&flags.alert, "alert", "", "exit with 3 above `LIMIT`: records, as 1000, or a time, as 30s")
	f.StringVar(&flags.by, "by", "", "a line for each partition, member or group: `WHAT` (default partition of named groups, else group)")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions([]string{"partition", "member", "group"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// unknownRounds is how often in a row --watch does not know whether --alert is to be told before it says so and ends.
const unknownRounds = 3

// watchLag shows the lag again and again with one session. What may pass is told, and it goes on.
func (a *app) watchLag(ctx context.Context, names []string, flags *lagFlags, limit *alertLimit) error {
	s, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	for unknown := 0; ; {
		if a.outTTY && (a.flags.output == "text" || a.flags.output == "wide") {
			fmt.Fprintf(a.out, "\x1b[H\x1b[2J%s  every %s\n\n", a.now().Format(time.RFC3339), flags.every)
		}
		once, cancel := context.WithTimeout(ctx, a.flags.timeout)
		err := s.explain(s.showLag(once, names, flags, limit), "")
		cancel()
		var ce *cliError
		errors.As(err, &ce)
		if unknown++; ce == nil || ce.code != lagUnknown {
			unknown = 0
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
		case ce != nil && (ce.code == "PARTIAL" || 0 < unknown && unknown < unknownRounds || mayPass(err)):
			a.say("%s", ce.msg)
		default:
			return err
		}
		select {
		case <-time.After(flags.every):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// showLag asks and prints once. That groups are above the limit is an error.
func (s *session) showLag(ctx context.Context, names []string, flags *lagFlags, limit *alertLimit) error {
	l, err := s.groups(ctx)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		names = l.names()
	}
	if len(l.failed) > 0 { // what was committed is known without the coordinator
		for _, name := range names {
			l.groups[name] = l.orUnknown(name)
		}
	}
	if _, err := l.find(s, names); err != nil {
		return err
	}
	all, failed, err := s.lags(ctx, l, names)
	if err != nil {
		return err
	}
	for i := range all {
		if g := &all[i]; g.State == "Unknown" && len(g.Partitions) == 0 {
			delete(l.groups, g.Group)
			return l.missing(s, g.Group)
		}
	}
	if err := s.app.showLags(all, flags.by); err != nil {
		return err
	}
	if err := limit.check(s.app, all); err != nil {
		return err
	}
	if err := leftOut(failed); err != nil {
		return err
	}
	if err := untold(all); err != nil {
		return err
	}
	return l.complain()
}

// untold says of which groups a part of the lag is not known, nil when all of it is.
func untold(all []groupLag) error {
	var names []string
	for i := range all {
		if n := all[i].untold(); n > 0 {
			names = append(names, fmt.Sprintf("%s (in %s)", all[i].Group, count(int64(n), "partition")))
		}
	}
	return lagNotKnown(names)
}

func lagNotKnown(names []string) error {
	if len(names) == 0 {
		return nil
	}
	return &cliError{
		msg: "the whole lag is not known of " + someOf(names), why: "some of their partitions have no leader, or one that does not know now where they end",
		code: "PARTIAL", exit: exitPart, try: "keeplog cluster health",
	}
}

// untold is the number of partitions that count and whose end nobody tells.
func (g *groupLag) untold() int {
	n := 0
	for i := range g.Partitions {
		if g.Partitions[i].untold() {
			n++
		}
	}
	return n
}

// untold says that the lag is not known for want of an answer, not because nothing was committed.
func (r *lagRow) untold() bool { return r.Lag == nil && (r.Committed != nil || r.End == nil) }

// lagText is the lag, "≥" before it where a part is not known.
func lagText(n *int64, untold int) string {
	if n != nil && untold > 0 {
		return "≥" + numberOr(n)
	}
	return numberOr(n)
}

// lagUnknown is the code of an alert that cannot be judged.
const lagUnknown = "LAG_UNKNOWN"

// alertLimit is what --alert says; one of both.
type alertLimit struct {
	records int64
	behind  time.Duration
}

func parseAlert(s string) (*alertLimit, error) {
	if s == "" {
		return nil, nil
	}
	if n, err := parseCount(s); err == nil {
		return &alertLimit{records: n, behind: -1}, nil
	}
	if d, err := parseDuration(s); err == nil && d >= 0 {
		return &alertLimit{records: -1, behind: d}, nil
	}
	e := usagef("--alert %s: neither a number of records nor a time", s)
	e.try = "--alert 1000 or --alert 30s"
	return nil, e
}

// check names the groups that are above the limit, or of which it is not known.
func (l *alertLimit) check(a *app, all []groupLag) error {
	if l == nil {
		return nil
	}
	var over, names, unsure []string
	for i := range all {
		g := &all[i]
		above := l.records >= 0 && g.Lag != nil && *g.Lag > l.records
		told := fmt.Sprintf("%s (%s)", g.Group, numberOr(g.Lag))
		if l.behind >= 0 {
			above = g.Behind != nil && *g.Behind > l.behind.Milliseconds()
			told = fmt.Sprintf("%s (%s)", g.Group, behindText(g.Behind))
		}
		switch {
		case above:
			over, names = append(over, told), append(names, shellWord(g.Group))
		case g.unsure(l):
			unsure = append(unsure, g.Group)
		}
	}
	limit := strconv.FormatInt(l.records, 10)
	if l.behind >= 0 {
		limit = l.behind.String()
	}
	switch {
	case len(over) > 0:
		e := &cliError{msg: fmt.Sprintf("%s above %s: %s", isAre(len(over), "group"), limit, someOf(over)), code: "LAG", exit: exitPart}
		e.try = "keeplog group explain " + names[0]
		if len(unsure) > 0 {
			e.why = "and not known: " + someOf(unsure)
		}
		return e
	case len(unsure) > 0:
		return &cliError{msg: "not known whether above " + limit + ": " + someOf(unsure), code: lagUnknown, exit: exitPart, try: "keeplog group explain " + shellWord(unsure[0])}
	}
	return nil
}

// unsure says that a part of what the limit is about is not known. Where a member has a partition and has committed nothing, only the member
// knows where it began to read.
func (g *groupLag) unsure(l *alertLimit) bool {
	return slices.ContainsFunc(g.Partitions, func(r lagRow) bool {
		if r.Committed == nil {
			return r.owner != nil && (r.Start == nil || r.End == nil || *r.End > *r.Start)
		}
		return r.Lag == nil || l.behind >= 0 && r.Behind == nil
	})
}

func (a *app) showLags(all []groupLag, by string) error {
	items := make([]any, len(all))
	for i := range all {
		items[i] = &all[i]
	}
	body := struct {
		Version int        `json:"version"`
		Groups  []groupLag `json:"groups"`
	}{1, all}
	return a.show(result{body: body, items: items, text: func(t *text) {
		if by == "group" {
			writeGroupLags(t, all)
			return
		}
		for i := range all {
			if i > 0 {
				t.line("")
			}
			if len(all) > 1 {
				t.line("group %s", all[i].Group)
			}
			if by == "member" {
				all[i].writeMembers(t)
			} else {
				all[i].writePartitions(t)
			}
		}
	}})
}

// writeGroupLags is a line for each group, the worst first.
func writeGroupLags(t *text, all []groupLag) {
	sorted := make([]*groupLag, len(all))
	for i := range all {
		sorted[i] = &all[i]
	}
	slices.SortStableFunc(sorted, func(x, y *groupLag) int { return -cmp.Compare(orZero(x.Lag), orZero(y.Lag)) })
	rows := make([][]string, 0, len(all))
	for _, g := range sorted {
		members := "-"
		if g.Members != nil {
			members = strconv.Itoa(*g.Members)
		}
		row := []string{g.Group, g.State, members, lagText(g.Lag, g.untold()), behindText(g.Behind), trendText(g.Trend, g.Drain)}
		if t.wide {
			row = append(row, rateText(g.In), rateText(g.Out))
		}
		rows = append(rows, row)
	}
	head := []string{"GROUP", "STATE", "MEMBERS", "LAG", "BEHIND", "TREND"}
	if t.wide {
		head = append(head, "IN/S", "OUT/S")
	}
	if len(rows) > 0 {
		t.table(head, rows)
	}
}

// writePartitions is a line for each partition, and the total.
func (g *groupLag) writePartitions(t *text) {
	if len(g.Partitions) == 0 {
		t.line("nothing is committed")
		return
	}
	rows := make([][]string, 0, len(g.Partitions)+1)
	for i := range g.Partitions {
		r := &g.Partitions[i]
		member := "-"
		if r.owner != nil {
			member = r.owner.name()
		}
		trend := trendText(r.Trend, r.Drain)
		if r.Error != "" {
			trend = r.Error
		}
		row := []string{r.Topic, strconv.Itoa(int(r.Partition)), numberOr(r.Committed), numberOr(r.End), numberOr(r.Lag), behindText(r.Behind), trend, member}
		if t.wide {
			id := "-"
			if r.owner != nil {
				id = r.owner.ID
			}
			row = append(row, rateText(r.In), rateText(r.Out), id)
		}
		rows = append(rows, row)
	}
	total := []string{"total", "", "", "", lagText(g.Lag, g.untold()), behindText(g.Behind), "", ""}
	head := []string{"TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "BEHIND", "TREND", "MEMBER"}
	if t.wide {
		total[6] = trendText(g.Trend, g.Drain)
		total, head = append(total, rateText(g.In), rateText(g.Out), ""), append(head, "IN/S", "OUT/S", "MEMBER-ID")
	}
	t.table(head, append(rows, total))
}

// writeMembers is a line for each member, one for what nobody has, and the total.
func (g *groupLag) writeMembers(t *text) {
	rows := make([][]string, 0, len(g.ByMember)+2)
	for i := range g.ByMember {
		m := &g.ByMember[i]
		row := []string{m.name(), strconv.Itoa(m.Count), lagText(m.Lag, m.untold), behindText(m.Behind)}
		if t.wide {
			row = append(row, m.ID)
		}
		rows = append(rows, row)
	}
	var free byOne
	for i := range g.Partitions {
		if r := &g.Partitions[i]; r.owner == nil {
			free.Count++
			free.add(r)
		}
	}
	if free.Count > 0 {
		rows = append(rows, []string{"(nobody)", strconv.Itoa(free.Count), lagText(free.Lag, free.untold), behindText(free.Behind)})
	}
	rows = append(rows, []string{"total", strconv.Itoa(len(g.Partitions)), lagText(g.Lag, g.untold()), behindText(g.Behind)})
	head := []string{"MEMBER", "PARTITIONS", "LAG", "BEHIND"}
	if t.wide {
		head = append(head, "MEMBER-ID")
		for i := range rows {
			for len(rows[i]) < len(head) {
				rows[i] = append(rows[i], "")
			}
		}
	}
	t.table(head, rows)
}

func orZero(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

func numberOr(n *int64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(*n, 10)
}

func behindText(ms *int64) string {
	if ms == nil {
		return "-"
	}
	return shortTime(time.Duration(*ms) * time.Millisecond)
}

// trendText is the trend, and how long it takes until all is read.
func trendText(trend string, drain *float64) string {
	switch {
	case trend == "unknown":
		return "-"
	case trend == "down" && drain != nil && *drain > 0:
		return "down, " + shortTime(time.Duration(min(*drain, math.MaxInt32)*float64(time.Second))) + " left"
	}
	return trend
}

func rateText(r *float64) string {
	if r == nil {
		return "-"
	}
	return strings.TrimSuffix(strconv.FormatFloat(*r, 'f', 1, 64), ".0")
}

// shortTime is a duration in at most two units, such as 42s, 3m20s, 2h5m, 3d4h.
func shortTime(d time.Duration) string {
	s := int64(d.Round(time.Second).Seconds())
	two := func(big int64, bigUnit string, small int64, smallUnit string) string {
		if small == 0 {
			return fmt.Sprintf("%d%s", big, bigUnit)
		}
		return fmt.Sprintf("%d%s%d%s", big, bigUnit, small, smallUnit)
	}
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return two(s/60, "m", s%60, "s")
	case s < 86400:
		return two(s/3600, "h", s%3600/60, "m")
	}
	return two(s/86400, "d", s%86400/3600, "h")
}

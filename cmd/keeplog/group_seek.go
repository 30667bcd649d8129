package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

type seekFlags struct {
	to, toGroup, toFile string
	topics              []string
	export              string
	dryRun              bool
}

func newGroupSeekCommand(a *app) *cobra.Command {
	var flags seekFlags
	cmd := &cobra.Command{
		Use: "seek GROUP", Short: "Move what a group has committed, after a preview", Args: wantsArgs(1, 1),
		Long: `Move the committed offsets of a group that has no members. The change is shown first; -y applies it without a question.

--to takes start, end, an OFFSET, +N and -N (from where the group is now), start+N, end-N, a TIME (RFC 3339, or @ and ms) and -1h (the
first record since then). Without --topic it is about everything that the group has committed. What lies outside of a log is moved to its
nearer end.

--export writes the offsets, as they would be with --to, else as they are, to a file or stdout, and changes nothing. Its lines are
TOPIC,PARTITION,OFFSET, as Kafka's own tool has them; --to-file takes them.`,
		Example: `  keeplog group seek billing --to -1h
  keeplog group seek billing --to +1 --topic orders:3
  keeplog group seek billing --export=before.csv && keeplog group seek billing --to-file before.csv -y`,
		ValidArgsFunction: a.completeGroups(1),
	}
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		p := &seekPlan{app: a, flags: &flags, group: args[0], exports: cmd.Flags().Changed("export")}
		if err := p.parse(); err != nil {
			return err
		}
		return p.run(ctx)
	})
	f := cmd.Flags()
	f.StringVar(&flags.to, "to", "", "`WHERE`: start, end, OFFSET, +N, -N, start+N, end-N, TIME or -1h")
	f.StringArrayVar(&flags.topics, "topic", nil, "only this `TOPIC[:PARTITION,...]` (repeatable)")
	f.StringVar(&flags.toGroup, "to-group", "", "to where another `GROUP` is")
	f.StringVar(&flags.toFile, "to-file", "", "to what --export wrote to `FILE` (-: stdin)")
	f.StringVar(&flags.export, "export", "", "write offsets to `FILE` (-: stdout) and change nothing")
	f.Lookup("export").NoOptDefVal = "-"
	f.BoolVar(&flags.dryRun, "dry-run", false, "only show the change")
	_ = cmd.RegisterFlagCompletionFunc("to-group", a.completeGroups(ofFlag))
	_ = cmd.RegisterFlagCompletionFunc("topic", a.completeTopics(ofFlag))
	return cmd
}

// seekPlan is one run of seek.
type seekPlan struct {
	app     *app
	flags   *seekFlags
	group   string
	exports bool
	to      seekPoint
	file    map[tp]int64
	rows    []seekRow
}

// seekPoint is where to; shift says that the point counts from what is committed.
type seekPoint struct {
	point
	shift bool
	given bool
}

// seekRow is one partition of the plan.
type seekRow struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      *int64 `json:"committed_offset"` // null: nothing is committed
	To        int64  `json:"new_offset"`
	Start     int64  `json:"start_offset"`
	End       int64  `json:"end_offset"`
	Lag       int64  `json:"new_lag"`
	Moved     bool   `json:"clamped"`         // what was asked for lies outside of the log
	Error     string `json:"error,omitempty"` // it was not moved
}

func (p *seekPlan) parse() error {
	given := 0
	for _, s := range []string{p.flags.to, p.flags.toGroup, p.flags.toFile} {
		if s != "" {
			given++
		}
	}
	switch {
	case given > 1:
		return usagef("only one of --to, --to-group and --to-file can be given")
	case given == 0 && !p.exports:
		e := usagef("group seek: where to?")
		e.try = p.app.again("--to", "start")
		return e
	}
	var err error
	if p.flags.to != "" {
		p.to, err = parseSeek(p.flags.to, p.app.now())
	}
	if p.flags.toFile != "" && err == nil {
		p.file, err = p.app.readOffsets(p.flags.toFile)
	}
	return err
}

func parseSeek(s string, now time.Time) (seekPoint, error) {
	bad := func() (seekPoint, error) {
		e := usagef("--to %s: not start, end, OFFSET, +N, -N, start+N, end-N, TIME or -1h", s)
		e.try = "--to start"
		return seekPoint{}, e
	}
	if rest, ok := strings.CutPrefix(s, "start+"); ok {
		if n, err := parseCount(rest); err == nil {
			return seekPoint{point: point{pointAfter, n}, given: true}, nil
		}
		return bad()
	}
	if rest, ok := strings.CutPrefix(s, "end-"); ok {
		if n, err := parseCount(rest); err == nil {
			return seekPoint{point: point{pointBefore, n}, given: true}, nil
		}
		return bad()
	}
	if at, err := parsePoint(s, now); err == nil {
		return seekPoint{point: at, shift: at.kind == pointAfter || at.kind == pointBefore, given: true}, nil
	}
	if ms, err := parseTime(s, now); err == nil {
		return seekPoint{point: point{pointTime, ms}, given: true}, nil
	}
	return bad()
}

// readOffsets reads lines of TOPIC,PARTITION,OFFSET.
func (a *app) readOffsets(name string) (map[tp]int64, error) {
	var in []byte
	var err error
	if name == "-" {
		in, err = io.ReadAll(io.LimitReader(a.in, 64<<20))
	} else {
		in, err = os.ReadFile(name)
	}
	if err != nil {
		e := failf("cannot read %s: %s", name, lastPart(err))
		e.try = "a file that --export wrote, or --to-file - for stdin"
		return nil, e
	}
	out := map[tp]int64{}
	for i, line := range strings.Split(string(in), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(line, ",")
		e := failf("%s:%d: not TOPIC,PARTITION,OFFSET", name, i+1)
		e.try = "lines as keeplog group seek GROUP --export writes them: orders,0,17"
		if len(f) != 3 {
			return nil, e
		}
		partition, err1 := strconv.ParseInt(strings.TrimSpace(f[1]), 10, 32)
		offset, err2 := parseCount(strings.TrimSpace(f[2]))
		if err1 != nil || err2 != nil || partition < 0 {
			return nil, e
		}
		out[tp{strings.Trim(strings.TrimSpace(f[0]), `"`), int32(partition)}] = offset
	}
	if len(out) == 0 {
		e := failf("%s: it has no offsets", name)
		e.try = "a file that --export wrote"
		return nil, e
	}
	return out, nil
}

func (p *seekPlan) run(ctx context.Context) error {
	err := p.app.ask(ctx, func(ctx context.Context, s *session) error { return p.make(ctx, s) })
	if err != nil {
		return err
	}
	if p.exports {
		return p.export()
	}
	if p.flags.dryRun {
		return p.show(false)
	}
	if !p.app.flags.yes {
		if err := p.show(false); err != nil {
			return err
		}
	}
	if err := p.app.confirm(ctx, fmt.Sprintf("move group %s in %s", p.group, count(int64(len(p.rows)), "partition"))); err != nil {
		return err
	}
	failed := p.app.ask(ctx, p.apply)
	var part *cliError
	switch {
	case failed != nil && !(errors.As(failed, &part) && part.exit == exitPart):
		return failed
	case p.app.flags.yes:
		if err := p.show(true); err != nil {
			return err
		}
	case failed == nil:
		p.app.say("moved")
	}
	return failed
}

// make works out the plan.
func (p *seekPlan) make(ctx context.Context, s *session) error {
	if !p.exports {
		if err := p.mustBeEmpty(ctx, s); err != nil {
			return err
		}
	}
	committed, err := s.committed(ctx, p.group)
	if err != nil {
		return err
	}
	wanted := p.file
	if p.flags.toGroup != "" {
		if wanted, err = s.committed(ctx, p.flags.toGroup); err != nil {
			return err
		}
		if len(wanted) == 0 {
			return failf("group %s has committed nothing", p.flags.toGroup)
		}
	}
	keys, err := p.partitions(ctx, s, committed, wanted)
	if err != nil {
		return err
	}
	if p.exports && !p.to.given && wanted == nil { // what is committed is known without the leaders
		for _, key := range keys {
			p.rows = append(p.rows, seekRow{Topic: key.topic, Partition: key.partition, To: committed[key]})
		}
		return nil
	}
	b, err := s.bounds(ctx, keys, boundsOptions{wantEnd: true, patience: s.app.flags.timeout / 2})
	if err == nil {
		err = b.all(ctx, s, keys)
	}
	if err != nil {
		return err
	}
	for _, key := range keys {
		r := seekRow{Topic: key.topic, Partition: key.partition, Start: b.start[key], End: b.end[key]}
		if at, ok := committed[key]; ok {
			r.From = &at
		}
		if at, ok := wanted[key]; ok {
			r.To = at
		} else if r.To, err = p.target(ctx, s, b, &r); err != nil {
			return err
		}
		if p.to.given || wanted != nil {
			fit := min(max(r.To, r.Start), r.End)
			r.Moved, r.To = fit != r.To, fit
		}
		r.Lag = max(0, r.End-max(r.To, r.Start))
		p.rows = append(p.rows, r)
	}
	return nil
}

// target is where --to says.
func (p *seekPlan) target(ctx context.Context, s *session, b *bounds, r *seekRow) (int64, error) {
	key := tp{r.Topic, r.Partition}
	switch {
	case p.to.shift && r.From == nil:
		e := failf("%s: group %s has committed nothing there to count from", key, p.group)
		e.try = "--to start, end or an offset"
		return 0, e
	case p.to.shift && p.to.kind == pointAfter:
		return addUp(*r.From, p.to.n), nil
	case p.to.shift:
		return *r.From - p.to.n, nil
	}
	return s.resolve(ctx, b, key, p.to.point)
}

// mustBeEmpty refuses a group with members. One that nobody knows is made by the commit.
func (p *seekPlan) mustBeEmpty(ctx context.Context, s *session) error {
	l, err := s.groups(ctx)
	if err != nil {
		return err
	}
	g := l.groups[p.group]
	switch {
	case g == nil && (len(l.failed) > 0 || len(p.flags.topics) == 0 && p.file == nil && p.flags.toGroup == ""):
		e := l.missing(s, p.group)
		if len(l.failed) == 0 {
			e.try += "\na new group: " + s.app.again("--topic", "TOPIC")
		}
		return e
	case g == nil || g.empty():
		return nil
	}
	return liveMembers(s.describeGroups(ctx, l, []string{p.group})[p.group])
}

// committed are the offsets that a group has committed.
func (s *session) committed(ctx context.Context, group string) (map[tp]int64, error) {
	all, err := s.admin.FetchOffsets(ctx, group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // then nothing is committed
		return nil, s.answered("group "+group, err, "")
	}
	out := map[tp]int64{}
	var failed error
	all.Each(func(o kadm.OffsetResponse) {
		switch {
		case o.Err != nil:
			failed = s.answered(tp{o.Topic, o.Partition}.String(), o.Err, "")
		case o.At >= 0:
			out[tp{o.Topic, o.Partition}] = o.At
		}
	})
	return out, failed
}

// partitions are those that the plan is about, sorted.
func (p *seekPlan) partitions(ctx context.Context, s *session, committed, wanted map[tp]int64) ([]tp, error) {
	base := committed
	if wanted != nil {
		base = wanted
	}
	var keys []tp
	if len(p.flags.topics) == 0 {
		for key := range base {
			keys = append(keys, key)
		}
	}
	for _, t := range p.flags.topics {
		topic, only, err := parseTopicPartitions(t)
		if err != nil {
			return nil, err
		}
		all, _, err := s.partitionsOf(ctx, []string{topic}, only)
		if err != nil {
			return nil, err
		}
		for _, key := range all {
			_, has := base[key]
			if has || wanted == nil && p.to.given {
				keys = append(keys, key)
			}
		}
	}
	slices.SortFunc(keys, tp.compare)
	keys = slices.Compact(keys)
	if err := s.mustExist(ctx, keys); err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		e := failf("group %s: there is nothing to move", p.group)
		if e.why = "it has committed nothing"; len(p.flags.topics) > 0 {
			e.why += " there"
		}
		e.try = p.app.again("--topic", "TOPIC")
		return nil, e
	}
	return keys, nil
}

// mustExist refuses partitions that there are not; keys are sorted.
func (s *session) mustExist(ctx context.Context, keys []tp) error {
	for len(keys) > 0 {
		topic, n := keys[0].topic, 0
		var only []int32
		for ; n < len(keys) && keys[n].topic == topic; n++ {
			only = append(only, keys[n].partition)
		}
		if _, _, err := s.partitionsOf(ctx, []string{topic}, only); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

// parseTopicPartitions reads TOPIC[:PARTITION,...].
func parseTopicPartitions(s string) (topic string, only []int32, err error) {
	topic, list, ok := strings.Cut(s, ":")
	if topic == "" {
		return "", nil, usagef("--topic %s: not TOPIC[:PARTITION,...]", s)
	}
	if !ok {
		return topic, nil, nil
	}
	for _, w := range strings.Split(list, ",") {
		n, err := strconv.ParseInt(w, 10, 32)
		if err != nil || n < 0 {
			return "", nil, usagef("--topic %s: %q is no partition", s, w)
		}
		only = append(only, int32(n))
	}
	return topic, only, nil
}

func (p *seekPlan) apply(ctx context.Context, s *session) error {
	os := kadm.Offsets{}
	for _, r := range p.rows {
		os.Add(kadm.Offset{Topic: r.Topic, Partition: r.Partition, At: r.To, LeaderEpoch: -1})
	}
	answers, err := s.admin.CommitOffsets(ctx, p.group, os)
	if err != nil {
		return s.answered("group "+p.group, err, "")
	}
	return p.judge(ctx, s, answers)
}

// judge finds what was not moved. Some partitions may have been, and others refused.
func (p *seekPlan) judge(ctx context.Context, s *session, answers kadm.OffsetResponses) error {
	var failed []string
	var first error
	for i := range p.rows {
		r := &p.rows[i]
		answer, ok := answers.Lookup(r.Topic, r.Partition)
		switch {
		case !ok:
			answer.Err = kerr.CoordinatorNotAvailable // it did not answer for this one
		case answer.Err == nil:
			continue
		}
		if failed, r.Error = append(failed, fmt.Sprintf("%s-%d", r.Topic, r.Partition)), whyShort(answer.Err); first == nil {
			first = answer.Err
		}
	}
	if first == nil {
		return nil
	}
	for _, live := range []error{kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.RebalanceInProgress, kerr.NonEmptyGroup} {
		if errors.Is(first, live) && len(failed) == len(p.rows) {
			if refused := p.mustBeEmpty(ctx, s); refused != nil {
				return refused
			}
		}
	}
	e := failure(s.answered(fmt.Sprintf("group %s in %s", p.group, someOf(failed)), first, ""))
	if len(failed) < len(p.rows) {
		e.why = fmt.Sprintf("%s moved, %d not", isAre(len(p.rows)-len(failed), "partition"), len(failed))
		e.exit, e.try = exitPart, "keeplog group seek "+shellWord(p.group)+" --export"
	}
	return e
}

func (p *seekPlan) show(applied bool) error {
	items := make([]any, len(p.rows))
	rows := make([][]string, len(p.rows))
	for i, r := range p.rows {
		items[i] = r
		change := "-"
		if r.From != nil {
			change = fmt.Sprintf("%+d", r.To-*r.From)
		}
		if r.Moved {
			change += map[bool]string{true: " (the log begins there)", false: " (the log ends there)"}[r.To == r.Start && r.Start < r.End]
		}
		if r.Error != "" {
			change = "not moved: " + r.Error
		}
		rows[i] = []string{r.Topic, strconv.Itoa(int(r.Partition)), numberOr(r.From), strconv.FormatInt(r.To, 10), strconv.FormatInt(r.Lag, 10), change}
	}
	body := struct {
		Version    int       `json:"version"`
		Group      string    `json:"group"`
		Applied    bool      `json:"applied"`
		Partitions []seekRow `json:"partitions"`
	}{1, p.group, applied, p.rows}
	return p.app.show(result{body: body, items: items, text: func(t *text) {
		t.table([]string{"TOPIC", "PARTITION", "COMMITTED", "NEW", "LAG", "CHANGE"}, rows)
	}})
}

func (p *seekPlan) export() error {
	var b strings.Builder
	for _, r := range p.rows {
		fmt.Fprintf(&b, "%s,%d,%d\n", r.Topic, r.Partition, r.To)
	}
	if p.flags.export == "-" {
		_, err := io.WriteString(p.app.out, b.String())
		return err
	}
	if err := os.WriteFile(p.flags.export, []byte(b.String()), 0o644); err != nil {
		e := failf("cannot write %s: %s", p.flags.export, lastPart(err))
		e.try = "another file, or --export alone: stdout"
		return e
	}
	p.app.say("wrote %s to %s", count(int64(len(p.rows)), "offset"), p.flags.export)
	return nil
}

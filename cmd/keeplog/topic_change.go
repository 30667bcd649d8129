package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/keeplog/keeplog/config"
)

type alterFlags struct {
	set, unset, add, subtract []string
	dryRun                    bool
}

func newTopicAlterCommand(a *app) *cobra.Command {
	var flags alterFlags
	cmd := &cobra.Command{
		Use: "alter TOPIC...", Short: "Change the configs of topics", Args: wantsArgs(1, -1),
		ValidArgsFunction: a.completeTopics(0),
		Example:           "  keeplog topic alter orders -c retention.ms=3600000 --unset segment.ms\n  keeplog topic alter orders --append cleanup.policy=compact",
		RunE: a.run(func(ctx context.Context, names []string) error {
			changes, err := flags.changes()
			if err != nil {
				return err
			}
			return a.ask(ctx, func(ctx context.Context, s *session) error { return s.alterTopics(ctx, changes, flags.dryRun, names) })
		}),
	}
	f := cmd.Flags()
	f.StringArrayVarP(&flags.set, "config", "c", nil, "set a config, `KEY=VALUE` (repeatable)")
	f.StringArrayVar(&flags.unset, "unset", nil, "go back to the default of `KEY` (repeatable)")
	f.StringArrayVar(&flags.add, "append", nil, "add to a list, `KEY=VALUE` (repeatable)")
	f.StringArrayVar(&flags.subtract, "subtract", nil, "take out of a list, `KEY=VALUE` (repeatable)")
	f.BoolVar(&flags.dryRun, "dry-run", false, "only ask whether it would work")
	completeKeys(cmd, config.ScopeTopic, "=", "config", "append", "subtract")
	completeKeys(cmd, config.ScopeTopic, "", "unset")
	return cmd
}

func (f *alterFlags) changes() ([]kadm.AlterConfig, error) {
	var out []kadm.AlterConfig
	for _, k := range f.unset {
		out = append(out, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: k})
	}
	for _, g := range []struct {
		flag  string
		pairs []string
		op    kadm.IncrementalOp
	}{{"-c", f.set, kadm.SetConfig}, {"--append", f.add, kadm.AppendConfig}, {"--subtract", f.subtract, kadm.SubtractConfig}} {
		pairs, err := keyValues(g.flag, g.pairs)
		if err != nil {
			return nil, err
		}
		for _, kv := range pairs {
			out = append(out, kadm.AlterConfig{Op: g.op, Name: kv[0], Value: &kv[1]})
		}
	}
	if len(out) == 0 {
		return nil, &cliError{msg: "nothing to change", try: "-c KEY=VALUE or --unset KEY", exit: exitUsage}
	}
	return out, nil
}

func (s *session) alterTopics(ctx context.Context, changes []kadm.AlterConfig, dryRun bool, names []string) error {
	if _, err := s.topics(ctx, names...); err != nil {
		return err
	}
	if err := s.mustBeLed(ctx); err != nil {
		return err
	}
	send, done := s.admin.AlterTopicConfigs, "altered"
	if dryRun {
		send, done = s.admin.ValidateAlterTopicConfigs, "would alter"
	}
	answers, err := send(ctx, changes, names...)
	if err != nil {
		return err
	}
	all := make([]outcome, 0, len(names))
	for _, r := range answers {
		o := outcome{Topic: r.Name, Done: done}
		if r.Err != nil {
			o.err = failure(s.answered("topic "+r.Name, r.Err, r.ErrMessage))
		}
		all = append(all, o)
	}
	if !dryRun && slices.ContainsFunc(changes, func(c kadm.AlterConfig) bool { return c.Name == "cleanup.policy" }) {
		s.sayNotCompacted(ctx, all)
	}
	return s.app.showOutcomes(all)
}

func newTopicDeleteCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "delete TOPIC...", Short: "Delete topics and all their records", Args: wantsArgs(1, -1),
		ValidArgsFunction: a.completeTopics(0),
		RunE: a.run(func(ctx context.Context, names []string) error {
			var preview []string
			err := a.ask(ctx, func(ctx context.Context, s *session) error {
				details, err := s.topics(ctx, names...)
				if err == nil {
					err = s.mustBeLed(ctx)
				}
				if err != nil {
					return err
				}
				preview, err = s.previewDelete(ctx, details, names)
				return err
			})
			if err != nil {
				return err
			}
			for _, line := range preview {
				a.say("%s", line)
			}
			// The person may think for longer than --timeout: the deadline starts again after the answer.
			if err := a.confirm(ctx, "delete "+count(int64(len(names)), "topic")); err != nil {
				return err
			}
			return a.ask(ctx, func(ctx context.Context, s *session) error { return s.deleteTopics(ctx, names) })
		}),
	}
}

func (s *session) previewDelete(ctx context.Context, details kadm.TopicDetails, names []string) ([]string, error) {
	var keys []tp
	for _, name := range names {
		for p := range details[name].Partitions {
			keys = append(keys, tp{name, p})
		}
	}
	b, err := s.bounds(ctx, keys, boundsOptions{wantEnd: true, patience: min(toExplain, s.app.flags.timeout/4)})
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, name := range names {
		var span int64
		more := ""
		for p := range details[name].Partitions {
			start, knownStart := b.start[tp{name, p}]
			end, knownEnd := b.end[tp{name, p}]
			if span += max(0, end-start); !knownStart || !knownEnd {
				more = " and those of partitions whose leader does not answer"
			}
		}
		lines = append(lines, fmt.Sprintf("topic %s: %s, %s%s", name, count(int64(len(details[name].Partitions)), "partition"), count(span, "offset"), more))
	}
	return lines, nil
}

func (s *session) deleteTopics(ctx context.Context, names []string) error {
	answers, err := s.admin.DeleteTopics(ctx, names...)
	if err != nil {
		return err
	}
	all := make([]outcome, 0, len(names))
	for _, name := range names {
		o := outcome{Topic: name, Done: "deleted"}
		if r := answers[name]; r.Err != nil {
			o.err = failure(s.answered("topic "+name, r.Err, r.ErrMessage))
		}
		all = append(all, o)
	}
	return s.app.showOutcomes(all)
}

func newTopicGrowCommand(a *app) *cobra.Command {
	var partitions int
	var dryRun bool
	cmd := &cobra.Command{
		Use: "grow TOPIC... -p N", Short: "Add partitions to topics, up to N", Args: wantsArgs(1, -1),
		ValidArgsFunction: a.completeTopics(0),
		RunE: a.run(func(ctx context.Context, names []string) error {
			if partitions < 1 {
				return &cliError{msg: "how many partitions should there be?", try: "-p N", exit: exitUsage}
			}
			return a.ask(ctx, func(ctx context.Context, s *session) error {
				if _, err := s.topics(ctx, names...); err != nil {
					return err
				}
				if err := s.mustBeLed(ctx); err != nil {
					return err
				}
				send, done := s.admin.UpdatePartitions, "grown"
				if dryRun {
					send, done = s.admin.ValidateUpdatePartitions, "would grow"
				}
				answers, err := send(ctx, partitions, names...)
				if err != nil {
					return err
				}
				all := make([]outcome, 0, len(names))
				for _, name := range names {
					o := outcome{Topic: name, Done: done}
					if r := answers[name]; r.Err != nil {
						o.err = failure(s.answered("topic "+name, r.Err, r.ErrMessage))
					}
					all = append(all, o)
				}
				return a.showOutcomes(all)
			})
		}),
	}
	cmd.Flags().IntVarP(&partitions, "partitions", "p", 0, "`NUMBER` of partitions afterwards")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only ask whether it would work")
	return cmd
}

type trimRow struct {
	Partition int32  `json:"partition"`
	Start     int64  `json:"start_offset"`
	NewStart  int64  `json:"new_start_offset"`
	Deleted   int64  `json:"offsets_deleted"`
	Message   string `json:"error,omitempty"`
}

func newTopicTrimCommand(a *app) *cobra.Command {
	var to string
	var partitions []int32
	var dryRun bool
	cmd := &cobra.Command{
		Use: "trim TOPIC --to OFFSET|@TIME|end", Short: "Delete the records below an offset or before a time", Args: wantsArgs(1, 1),
		Example:           "  keeplog topic trim orders --to @-24h\n  keeplog topic trim orders --to 1000 -p 0",
		ValidArgsFunction: a.completeTopics(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			if to == "" {
				return &cliError{msg: "which records should go?", why: "--to names the first offset to keep", try: a.again("--to", "@-24h", "--dry-run"), exit: exitUsage}
			}
			at, err := parsePoint(to, a.now())
			if err != nil {
				return &cliError{msg: fmt.Sprintf("--to %q: not an offset, @TIME or end", to), try: "--to end", exit: exitUsage}
			}
			var rows []trimRow
			err = a.ask(ctx, func(ctx context.Context, s *session) error {
				rows, err = s.planTrim(ctx, args[0], at, partitions)
				return err
			})
			if err != nil {
				return err
			}
			if dryRun || !slices.ContainsFunc(rows, func(r trimRow) bool { return r.Deleted > 0 }) {
				return a.showTrim(args[0], rows)
			}
			var total int64
			for _, r := range rows {
				a.say("topic %s partition %d: start %d → %d, %s", args[0], r.Partition, r.Start, r.NewStart, count(r.Deleted, "offset"))
				total += r.Deleted
			}
			if err := a.confirm(ctx, fmt.Sprintf("delete %s of topic %s", count(total, "offset"), args[0])); err != nil {
				return err
			}
			return a.ask(ctx, func(ctx context.Context, s *session) error { return s.trim(ctx, args[0], rows) })
		}),
	}
	cmd.Flags().StringVar(&to, "to", "", "the first offset to keep: `OFFSET`, +N, -N, @TIME or end")
	cmd.Flags().Int32SliceVarP(&partitions, "partition", "p", nil, "only these `PARTITIONS`, as 0,2")
	cmd.Flags().Lookup("partition").DefValue = ""
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would be deleted")
	return cmd
}

// planTrim says for each partition where its start would move.
func (s *session) planTrim(ctx context.Context, topic string, to point, only []int32) ([]trimRow, error) {
	keys, _, err := s.partitionsOf(ctx, []string{topic}, only)
	if err != nil {
		return nil, err
	}
	b, err := s.bounds(ctx, keys, boundsOptions{wantEnd: true, patience: s.app.flags.timeout / 2})
	if err == nil {
		err = b.all(ctx, s, keys)
	}
	if err != nil {
		return nil, err
	}
	rows := []trimRow{}
	for _, key := range keys {
		offset, err := s.resolve(ctx, b, key, to)
		if err != nil {
			return nil, err
		}
		p := key.partition
		start := b.start[tp{topic, p}]
		if offset > b.end[tp{topic, p}] {
			e := failf("topic %s partition %d: OFFSET_OUT_OF_RANGE (cannot trim to %d, its end is %d)", topic, p, offset, b.end[tp{topic, p}])
			e.code, e.try = "OFFSET_OUT_OF_RANGE", "-p with the partitions that reach so far, or --to @TIME, or --to end"
			return nil, e
		}
		offset = max(offset, start)
		rows = append(rows, trimRow{Partition: p, Start: start, NewStart: offset, Deleted: offset - start})
	}
	return rows, nil
}

func (s *session) trim(ctx context.Context, topic string, rows []trimRow) error {
	offsets := kadm.Offsets{}
	for _, r := range rows {
		if r.Deleted > 0 {
			offsets.Add(kadm.Offset{Topic: topic, Partition: r.Partition, At: r.NewStart})
		}
	}
	if len(offsets) == 0 {
		return s.app.showTrim(topic, rows)
	}
	answers, err := s.admin.DeleteRecords(ctx, offsets)
	if err != nil && len(answers) == 0 {
		return err
	}
	var first error
	for i := range rows {
		r, ok := answers.Lookup(topic, rows[i].Partition)
		switch {
		case !ok:
		case r.Err != nil:
			err := s.answered("topic "+topic+" partition "+strconv.Itoa(int(r.Partition)), r.Err, "")
			rows[i].Message, rows[i].NewStart, rows[i].Deleted = err.Error(), rows[i].Start, 0
			if first == nil {
				first = err
			}
		default:
			rows[i].NewStart = r.LowWatermark
			rows[i].Deleted = r.LowWatermark - rows[i].Start
		}
	}
	if err := s.app.showTrim(topic, rows); err != nil {
		return err
	}
	if first != nil {
		e := failure(first)
		e.exit = exitPart
		return e
	}
	return nil
}

func (a *app) showTrim(topic string, rows []trimRow) error {
	items, cells := make([]any, len(rows)), make([][]string, len(rows))
	for i, r := range rows {
		items[i] = r
		cells[i] = []string{topic, strconv.Itoa(int(r.Partition)), number(r.Start), number(r.NewStart), number(r.Deleted)}
	}
	body := struct {
		Version    int       `json:"version"`
		Topic      string    `json:"topic"`
		Partitions []trimRow `json:"partitions"`
	}{1, topic, rows}
	return a.show(result{body: body, items: items, text: func(t *text) {
		t.table([]string{"TOPIC", "PARTITION", "START", "NEW START", "DELETED"}, cells)
	}})
}

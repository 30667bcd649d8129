package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

type reassignFlags struct {
	to, replicas string
	from         int32
	factor       int
	cancel       bool
	wait, dryRun bool
	throttle     string
	rate         int64 // of throttle, bytes a second
}

func newClusterReassignCommand(a *app) *cobra.Command {
	var f reassignFlags
	cmd := &cobra.Command{
		Use: "reassign [TOPIC[:PARTITION,...]...]", Short: "Move replicas between brokers, or show what is on the move", Args: wantsArgs(0, -1),
		Long: "Without a flag it lists the partitions that are on the move. With one it shows the plan, asks, and begins the moves; --wait waits for\n" +
			"their end. No TOPIC means all topics. What need not move stays where it is; with --to what must for an even load moves as well.\n\n" +
			"--throttle slows the copying down. With --wait the throttle goes when the moves are done; else --throttle 0 takes it away. Alone it is\n" +
			"for the moves under way.",
		Example: "  keeplog cluster reassign\n  keeplog cluster reassign --to 1,2,4 orders\n  keeplog cluster reassign --from 3 --wait -y --timeout 10m --throttle 20MiB\n" +
			"  keeplog cluster reassign --factor 3\n  keeplog cluster reassign --replicas 4,1,2 orders:0",
		ValidArgsFunction: a.completeTopics(0),
	}
	cmd.RunE = a.run(func(ctx context.Context, words []string) error {
		switch {
		case cmd.Flags().Changed("factor") && f.factor < 1:
			return usagef("--factor %d: a partition has at least 1 replica", f.factor)
		case cmd.Flags().Changed("from") && f.from < 0:
			return usagef("--from %d: no broker has a number below 0", f.from)
		}
		return a.reassign(ctx, f, words)
	})
	fl := cmd.Flags()
	fl.StringVar(&f.to, "to", "", "spread the replicas evenly over these `BROKERS`, such as 1,2,4")
	fl.Int32Var(&f.from, "from", -1, "move every replica off this `BROKER`")
	fl.IntVar(&f.factor, "factor", 0, "give each partition this `NUMBER` of replicas")
	fl.StringVar(&f.replicas, "replicas", "", "exactly these `BROKERS`, the first the preferred leader")
	fl.BoolVar(&f.cancel, "cancel", false, "stop the moves under way")
	fl.BoolVar(&f.wait, "wait", false, "wait for the end of the moves, as long as --timeout")
	fl.BoolVar(&f.dryRun, "dry-run", false, "only show the plan")
	fl.StringVar(&f.throttle, "throttle", "", "let each broker send and take at most `RATE` bytes a second for the moves, such as 20MiB; 0 takes that away")
	_ = cmd.RegisterFlagCompletionFunc("from", a.completeBrokers(ofFlag))
	_ = cmd.RegisterFlagCompletionFunc("to", completeList(a.completeBrokers(ofFlag)))
	_ = cmd.RegisterFlagCompletionFunc("replicas", completeList(a.completeBrokers(ofFlag)))
	return cmd
}

func (f *reassignFlags) asked() int {
	n := 0
	for _, set := range []bool{f.to != "" || f.from >= 0 || f.factor > 0, f.replicas != "", f.cancel} {
		if set {
			n++
		}
	}
	return n
}

func (a *app) reassign(ctx context.Context, f reassignFlags, words []string) error {
	if f.asked() > 1 {
		return usagef("--cancel, --replicas, and --to, --from and --factor exclude each other")
	}
	if f.throttle != "" {
		var err error
		if f.rate, err = parseRate(f.throttle); err != nil {
			return err
		}
		switch {
		case f.cancel:
			return usagef("--cancel and --throttle exclude each other")
		case f.asked() == 0 && len(words) > 0:
			return usagef("--throttle alone is for all moves under way: without a TOPIC")
		case f.asked() == 0:
			return a.throttleOnly(ctx, f.rate)
		case f.rate == 0:
			return usagef("--throttle 0 takes throttles away, and moves nothing")
		}
	}
	var v *clusterView
	var moves []move
	err := a.withView(ctx, true, func(_ context.Context, _ *session, view *clusterView) (err error) {
		v = view
		moves, err = v.planReassign(f, words)
		return err
	})
	switch {
	case err != nil:
		return err
	case f.asked() == 0:
		return a.showMoves(v.moving, "on the move")
	case len(moves) == 0:
		a.say("nothing to move")
		return a.showMoves(nil, "")
	}
	return a.carryOut(ctx, v, moves, f)
}

// carryOut shows moves, asks, begins them, and waits for their end where that is wanted.
func (a *app) carryOut(ctx context.Context, v *clusterView, moves []move, f reassignFlags) error {
	a.previewMoves(moves)
	if f.rate > 0 {
		a.say("each broker sends and takes at most %s/s of them", size(f.rate))
		if len(v.moving) > 0 {
			a.say("so it is for what is on the move already: %s", count(int64(len(v.moving)), "partition"))
		}
	}
	words := f.words()
	if f.dryRun {
		return a.showMoves(moves, words.would)
	}
	if err := a.confirm(ctx, words.what+" of "+count(int64(len(moves)), "partition")); err != nil {
		return err
	}
	// A topic names all its replicas that are slowed down, so those of earlier moves are set again.
	slowed := throttleOf(slices.Concat(v.moving, moves), f.rate)
	err := a.ask(ctx, func(ctx context.Context, s *session) error {
		if f.rate > 0 {
			if err := slowed.apply(ctx, s, v); err != nil {
				return err
			}
		}
		return s.beginMoves(ctx, moves)
	})
	if err == nil && f.wait {
		err = a.awaitMoves(ctx, moves)
	}
	switch {
	case err != nil:
		if f.rate > 0 {
			a.say("the throttle stays; to take it away when the moves are done: %s", unthrottleCommand)
		}
		return err
	case !f.wait && !f.cancel:
		a.say("begun; to see what is left: keeplog cluster reassign")
		if f.rate > 0 {
			a.say("the throttle stays; to take it away when the moves are done: %s", unthrottleCommand)
		}
		return a.showMoves(moves, "begun")
	case f.rate > 0:
		err := a.ask(ctx, func(ctx context.Context, s *session) error {
			return s.endThrottle(ctx, v, slices.Sorted(maps.Keys(slowed.topics)))
		})
		if err != nil {
			return err
		}
	}
	return a.showMoves(moves, words.done)
}

// moveWords are the words for what is done to moves.
type moveWords struct{ would, what, done string }

func (f *reassignFlags) words() moveWords {
	if f.cancel {
		return moveWords{"would cancel", "stop the moves", "cancelled"}
	}
	return moveWords{"would move", "move the replicas", "moved"}
}

// planReassign turns flags into moves.
func (v *clusterView) planReassign(f reassignFlags, words []string) ([]move, error) {
	parts, err := v.selected(words)
	switch {
	case err != nil || f.asked() == 0:
		return nil, err
	case f.cancel:
		return v.cancels(parts), nil
	case f.replicas != "":
		return v.exactly(f.replicas, parts, words)
	}
	o := v.spreadOver()
	if f.to != "" {
		ids, err := brokerList("--to", f.to)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if _, err := v.brokerArg(fmt.Sprint(id)); err != nil {
				return nil, err
			}
		}
		o.brokers, o.holders, o.even = ids, nil, f.from < 0
	}
	if f.from >= 0 {
		if _, err := v.brokerArg(fmt.Sprint(f.from)); err != nil {
			return nil, err
		}
		goes := func(id int32) bool { return id == f.from }
		o.brokers, o.holders = slices.DeleteFunc(o.brokers, goes), slices.DeleteFunc(o.holders, goes)
		parts = slices.DeleteFunc(parts, func(p kadm.PartitionDetail) bool { return !slices.Contains(p.Replicas, f.from) })
	}
	o.factor = f.factor
	moves, short := spread(parts, o)
	if len(short) > 0 {
		e := failf("%s would have fewer replicas than it must: %s", count(int64(len(short)), "partition"), someOf(short))
		e.why = fmt.Sprintf("only the brokers %s may take them", numbers(o.brokers))
		e.code, e.try = "TOO_FEW_BROKERS", fmt.Sprintf("fewer replicas: the same with --factor %d; or a further node: keeplog cluster add", max(len(o.brokers), 1))
		return nil, e
	}
	return moves, nil
}

func (v *clusterView) cancels(parts []kadm.PartitionDetail) []move {
	var out []move
	for _, m := range v.moving {
		if slices.ContainsFunc(parts, func(p kadm.PartitionDetail) bool { return p.Topic == m.topic && p.Partition == m.partition }) {
			out = append(out, move{m.topic, m.partition, m.from, nil})
		}
	}
	return out
}

func (v *clusterView) exactly(list string, parts []kadm.PartitionDetail, words []string) ([]move, error) {
	if len(words) == 0 {
		return nil, usagef("--replicas: name the TOPIC or TOPIC:PARTITION that it is for")
	}
	ids, err := brokerList("--replicas", list)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if _, err := v.brokerArg(fmt.Sprint(id)); err != nil {
			return nil, err
		}
	}
	var out []move
	for _, p := range parts {
		if !slices.Equal(p.Replicas, ids) {
			out = append(out, move{p.Topic, p.Partition, p.Replicas, ids})
		}
	}
	return out, nil
}

// beginMoves asks for the moves; the first that is refused is the error.
func (s *session) beginMoves(ctx context.Context, moves []move) error {
	var req kadm.AlterPartitionAssignmentsReq
	for _, m := range moves {
		req.Assign(m.topic, m.partition, m.to)
	}
	answers, err := s.admin.AlterPartitionAssignments(ctx, req)
	if err != nil {
		return err
	}
	var failed []*cliError
	for _, r := range answers.Sorted() {
		if r.Err != nil {
			failed = append(failed, failure(s.answered(fmt.Sprintf("%s-%d", r.Topic, r.Partition), r.Err, r.ErrMessage)))
		}
	}
	if len(failed) == 0 {
		return nil
	}
	for _, e := range failed[1:] {
		s.app.printError(e)
	}
	if len(failed) < len(moves) {
		failed[0].exit = exitPart
	}
	return failed[0]
}

// movesUnderWay are the partitions on the move, from what they were to what they will be.
func (s *session) movesUnderWay(ctx context.Context, topics kadm.TopicDetails) ([]move, error) {
	all, err := s.admin.ListPartitionReassignments(ctx, topics.TopicsSet())
	if err != nil {
		return nil, err
	}
	var out []move
	for _, r := range all.Sorted() {
		if len(r.AddingReplicas)+len(r.RemovingReplicas) == 0 {
			continue
		}
		without := func(ids []int32) []int32 {
			return slices.DeleteFunc(slices.Clone(r.Replicas), func(id int32) bool { return slices.Contains(ids, id) })
		}
		out = append(out, move{r.Topic, r.Partition, without(r.AddingReplicas), without(r.RemovingReplicas)})
	}
	return out, nil
}

// awaitMoves waits until none of the moves is under way, as long as --timeout.
func (a *app) awaitMoves(ctx context.Context, moves []move) error {
	deadline := time.Now().Add(a.flags.timeout)
	wanted := map[string]bool{}
	for _, m := range moves {
		wanted[m.name()] = true
	}
	for {
		var left []string
		err := a.ask(ctx, func(ctx context.Context, s *session) error {
			topics, err := s.admin.ListTopicsWithInternal(ctx)
			if err != nil {
				return err
			}
			under, err := s.movesUnderWay(ctx, topics)
			for _, m := range under {
				if wanted[m.name()] {
					left = append(left, m.name())
				}
			}
			return err
		})
		if err == nil && len(left) == 0 {
			a.clearProgress()
			return nil
		}
		if time.Now().After(deadline) {
			a.clearProgress()
			if err != nil {
				return err
			}
			return &cliError{
				msg:  fmt.Sprintf("%s still on the move after %s: %s", isAre(len(left), "partition"), a.flags.timeout, someOf(left)),
				why:  "the moves go on by themselves",
				code: "TIMED_OUT", try: "keeplog cluster reassign", exit: exitPart,
			}
		}
		a.progress(func() string { return isAre(len(left), "partition") + " on the move" })
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(250 * time.Millisecond):
		}
	}
}

func (a *app) showMoves(moves []move, done string) error {
	rows := make([]moveRow, len(moves))
	for i, m := range moves {
		rows[i] = moveRow{Topic: m.topic, Partition: m.partition, From: m.from, To: m.to}
	}
	body := struct {
		Version int       `json:"version"`
		State   string    `json:"state"`
		Moves   []moveRow `json:"moves"`
	}{1, strings.ReplaceAll(done, " ", "_"), rows}
	return a.show(result{body: body, items: anys(rows), text: func(t *text) {
		switch {
		case len(moves) == 0 && done == "on the move":
			t.line("no partition is on the move")
		case done == "on the move":
			var cells [][]string
			for _, m := range moves {
				cells = append(cells, []string{m.topic, fmt.Sprint(m.partition), numbers(m.from), numbers(m.to)})
			}
			t.table([]string{"TOPIC", "PARTITION", "FROM", "TO"}, cells)
		case len(moves) > 0:
			t.line("%s %s", done, count(int64(len(moves)), "partition"))
		}
	}})
}

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func newClusterDrainCommand(a *app, on bool) *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use: "drain N", Short: "Move leaderships off a broker, so that it can be stopped", Args: wantsArgs(1, 1),
		Long: "The broker leads nothing any more that another one can lead, and is given no new replicas, until it is undrained. It keeps the\n" +
			"replicas that it has: keeplog cluster reassign --from N moves them. --wait waits until no partition depends on it: stopping it then\n" +
			"stops no write.",
		Example:           "  keeplog cluster drain 2 --wait --timeout 60s",
		ValidArgsFunction: a.completeBrokers(1),
		RunE:              a.run(func(ctx context.Context, words []string) error { return a.drain(ctx, words[0], wait) }),
	}
	if !on {
		cmd = &cobra.Command{
			Use: "undrain N", Short: "Let a drained broker lead and take replicas again", Args: wantsArgs(1, 1),
			ValidArgsFunction: a.completeBrokers(1),
			RunE:              a.run(func(ctx context.Context, words []string) error { return a.undrain(ctx, words[0]) }),
		}
		return cmd
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until no partition depends on it, as long as --timeout")
	return cmd
}

// dependents are the partitions that the broker leads, and those that would refuse acks=all without it.
func (v *clusterView) dependents(id int32) (led, needed []string) {
	v.each(func(p kadm.PartitionDetail) {
		name := fmt.Sprintf("%s-%d", p.Topic, p.Partition)
		if p.Leader == id {
			led = append(led, name)
			return
		}
		need, _ := v.minOf(p)
		if left := len(p.ISR) - 1; slices.Contains(p.ISR, id) && left < max(1, need) {
			needed = append(needed, name)
		}
	})
	return led, needed
}

// drainBody is what became of drain and undrain.
type drainBody struct {
	Version int      `json:"version"`
	Broker  int32    `json:"broker"`
	Drained bool     `json:"drained"`
	Leads   []string `json:"leads"`
	Needed  []string `json:"needed"`
}

func (a *app) drain(ctx context.Context, word string, wait bool) error {
	var id int32
	err := a.withView(ctx, true, func(ctx context.Context, s *session, v *clusterView) error {
		b, err := v.brokerArg(word)
		if err != nil {
			return err
		}
		if b.fenced {
			return &cliError{msg: fmt.Sprintf("broker %d is down: it leads nothing", b.id), code: "DOWN", exit: exitFailed, try: "keeplog cluster health"}
		}
		id = b.id
		led, _ := v.dependents(id)
		if len(led) > 0 {
			a.say("broker %d leads %s; others take over", id, count(int64(len(led)), "partition"))
		}
		return s.alterBroker(ctx, id, drainedKey, "true")
	})
	if err != nil {
		return err
	}
	deadline := time.Now().Add(a.flags.timeout)
	for {
		var led, needed []string
		err := a.withView(ctx, false, func(_ context.Context, _ *session, v *clusterView) error {
			led, needed = v.dependents(id)
			return nil
		})
		switch late := time.Now().After(deadline); {
		case err != nil && (late || ctx.Err() != nil || !mayPass(err)):
			return err
		case err != nil: // the brokers that were asked may be those that are just gone
		case !wait || len(led)+len(needed) == 0:
			return a.showDrain(drainBody{1, id, true, orNone(led), orNone(needed)})
		case late:
			e := &cliError{msg: fmt.Sprintf("after %s %s on broker %d", a.flags.timeout, depends(len(led)+len(needed)), id), code: "TIMED_OUT", exit: exitPart}
			e.why = "it is the only one that can lead: " + someOf(led)
			if len(led) == 0 {
				e.why = "without it fewer replicas than min.insync.replicas would be in sync: " + someOf(needed)
			}
			e.try = "keeplog cluster health"
			return e
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// depends is "1 partition depends", "2 partitions depend".
func depends(n int) string {
	if n == 1 {
		return "1 partition depends"
	}
	return count(int64(n), "partition") + " depend"
}

func orNone(names []string) []string {
	if names == nil {
		return []string{}
	}
	return names
}

func (a *app) showDrain(b drainBody) error {
	return a.show(result{body: b, text: func(t *text) {
		switch {
		case !b.Drained:
			t.line("broker %d is drained no more", b.Broker)
		case len(b.Leads)+len(b.Needed) == 0:
			t.line("broker %d is drained: no partition depends on it", b.Broker)
		default:
			t.line("broker %d is drained; %s on it for now", b.Broker, depends(len(b.Leads)+len(b.Needed)))
		}
	}})
}

func (a *app) undrain(ctx context.Context, word string) error {
	return a.withView(ctx, true, func(ctx context.Context, s *session, v *clusterView) error {
		b, err := v.brokerArg(word)
		if err != nil {
			return err
		}
		if err := s.alterBroker(ctx, b.id, drainedKey, ""); err != nil {
			return err
		}
		// It gets back what it should lead by the order of the replicas.
		var own kadm.TopicsSet
		v.each(func(p kadm.PartitionDetail) {
			if len(p.Replicas) > 0 && p.Replicas[0] == b.id && p.Leader != b.id && slices.Contains(p.ISR, b.id) {
				own.Add(p.Topic, p.Partition)
			}
		})
		if len(own) > 0 {
			if _, err := s.admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, own); err != nil {
				return err
			}
		}
		return a.showDrain(drainBody{1, b.id, false, []string{}, []string{}})
	})
}

func newClusterLeaderCommand(a *app) *cobra.Command {
	var unclean, dryRun bool
	cmd := &cobra.Command{
		Use: "leader [TOPIC[:PARTITION,...]...]", Short: "Give leadership back to the preferred replicas", Args: wantsArgs(0, -1),
		Long: "Each partition's first replica is its preferred leader; where another one leads and the first is in sync, it takes over. No TOPIC\n" +
			"means all topics.\n\n" +
			"--unclean is for partitions without a leader whose in-sync replicas are gone for ever: a replica that is not in sync leads, and what\n" +
			"only the others had is lost.",
		ValidArgsFunction: a.completeTopics(0),
		RunE:              a.run(func(ctx context.Context, words []string) error { return a.elect(ctx, words, unclean, dryRun) }),
	}
	cmd.Flags().BoolVar(&unclean, "unclean", false, "let a replica lead that is not in sync, where nobody leads; records may be lost")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would change")
	return cmd
}

// wantElection are the partitions whose leader would change.
func wantElection(parts []kadm.PartitionDetail, unclean bool) []kadm.PartitionDetail {
	return slices.DeleteFunc(parts, func(p kadm.PartitionDetail) bool {
		if unclean {
			return p.Leader >= 0
		}
		return len(p.Replicas) == 0 || p.Leader == p.Replicas[0] || !slices.Contains(p.ISR, p.Replicas[0])
	})
}

// electionRow is what became of one partition.
type electionRow struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int32  `json:"from"`
	To        int32  `json:"to"` // −1: whichever can
	Error     string `json:"error,omitempty"`
}

func (a *app) elect(ctx context.Context, words []string, unclean, dryRun bool) error {
	var parts []kadm.PartitionDetail
	err := a.withView(ctx, true, func(_ context.Context, _ *session, v *clusterView) (err error) {
		parts, err = v.selected(words)
		return err
	})
	if err != nil {
		return err
	}
	parts = wantElection(parts, unclean)
	rows := make([]electionRow, len(parts))
	for i, p := range parts {
		rows[i] = electionRow{Topic: p.Topic, Partition: p.Partition, From: p.Leader, To: -1}
		if !unclean {
			rows[i].To = p.Replicas[0]
			a.say("%s-%d: leader %s -> %d", p.Topic, p.Partition, number(int64(p.Leader)), p.Replicas[0])
		} else {
			a.say("%s-%d: one of %s leads; what only %s had is lost", p.Topic, p.Partition, numbers(p.Replicas), numbers(p.ISR))
		}
	}
	if len(rows) == 0 || dryRun {
		return a.showElections(rows, "would change")
	}
	what := "change the leader of " + count(int64(len(rows)), "partition")
	if unclean {
		what = "elect leaders that are not in sync, and lose what they do not have, for " + count(int64(len(rows)), "partition")
	}
	if unclean {
		if err := a.confirm(ctx, what); err != nil {
			return err
		}
	}
	return a.ask(ctx, func(ctx context.Context, s *session) error { return s.holdElections(ctx, rows, unclean) })
}

func (s *session) holdElections(ctx context.Context, rows []electionRow, unclean bool) error {
	how := kadm.ElectPreferredReplica
	if unclean {
		how = kadm.ElectLiveReplica
	}
	var set kadm.TopicsSet
	for _, r := range rows {
		set.Add(r.Topic, r.Partition)
	}
	answers, err := s.admin.ElectLeaders(ctx, how, set)
	if err != nil {
		return err
	}
	var first *cliError
	failed := 0
	for i := range rows {
		r := &rows[i]
		got := answers[r.Topic][r.Partition]
		if got.Err == nil || isNotNeeded(got.Err) {
			continue
		}
		e := failure(s.answered(fmt.Sprintf("%s-%d", r.Topic, r.Partition), got.Err, got.ErrMessage))
		r.Error = e.msg
		if failed++; first == nil {
			first = e
		}
	}
	if first != nil && failed < len(rows) {
		first.exit = exitPart
	}
	if err := s.app.showElections(rows, "changed"); err != nil || first == nil {
		return err
	}
	return first
}

func isNotNeeded(err error) bool {
	ke, ok := err.(*kerr.Error)
	return ok && ke == kerr.ElectionNotNeeded
}

func (a *app) showElections(rows []electionRow, done string) error {
	body := struct {
		Version   int           `json:"version"`
		Elections []electionRow `json:"elections"`
	}{1, rows}
	return a.show(result{body: body, items: anys(rows), text: func(t *text) {
		well := 0
		for _, r := range rows {
			if r.Error == "" {
				well++
			}
		}
		if len(rows) == 0 {
			t.line("nothing to change")
		} else {
			t.line("%s the leader of %s", done, count(int64(well), "partition"))
		}
	}})
}

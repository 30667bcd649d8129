package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	crand "crypto/rand"

	"github.com/spf13/cobra"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/internal/torture"
)

type localTortureFlags struct {
	localUpFlags
	duration, interval, heal    time.Duration
	seed                        uint64
	seedGiven, dirGiven, keep   bool
	faults                      string
	faultsGiven                 bool
	powerloss                   string
	partitions, producers, rate int
	groups                      int
}

func newLocalTortureCommand(a *app, dir *string) *cobra.Command {
	var f localTortureFlags
	cmd := &cobra.Command{
		Use: "torture", Short: "Write to a cluster, kill its nodes meanwhile, and check that nothing was lost", Args: wantsArgs(0, 0),
		Long: `Writes with several idempotent producers and acks=all, reads, also with consumer groups that commit, and meanwhile does to the nodes, their network, their disks and their
membership what --faults says. Then it lets the cluster heal, reads everything from every replica, stops the nodes, checks every file, and
says what was lost, stored twice, reordered, found at another offset, or is not the same on every replica; and of groups, which commits were
lost or went back, which partitions two members had in one generation, and what was committed and never read. The seed decides what is done to
whom and when.

It tortures a cluster of its own in --dir, or in a temporary directory, which is deleted unless something was found. Its nodes reach each
other, and clients reach them, through TCP proxies on loopback, in which links are cut and slowed. If the cluster in --dir is up it tortures
that one, and leaves it up; then faults of network, files and members are left out.

Faults:
` + faultsHelp() + `
Exit code 5: a promise was broken.`,
		Example: "  keeplog local torture --duration 60s\n  keeplog local torture -n 1 --duration 20s --faults kill --seed 7\n" +
			"  keeplog local torture --faults isolate,oneway,kill",
	}
	fl := cmd.Flags()
	fl.IntVarP(&f.nodes, "nodes", "n", 3, "number of nodes")
	fl.DurationVar(&f.duration, "duration", time.Minute, "how long faults go on")
	fl.DurationVar(&f.interval, "kill-every", 4*time.Second, "mean time between two faults")
	fl.DurationVar(&f.heal, "heal", time.Minute, "how long the cluster may take to heal in the end")
	fl.Uint64Var(&f.seed, "seed", 0, "`SEED` of an earlier run, to do the same again")
	fl.StringVar(&f.faults, "faults", "", "`LIST` of faults, all that are possible here unless given")
	fl.StringVar(&f.powerloss, "powerloss", "", "`PROGRAM` that mounts a directory which forgets what was not fsynced, for the power faults")
	fl.IntVar(&f.partitions, "partitions", 12, "partitions to write to, 8 to 64")
	fl.IntVar(&f.producers, "producers", 4, "producers that write at a time, 1 to 16")
	fl.IntVar(&f.rate, "rate", 2000, "records a second, all producers together")
	fl.IntVar(&f.groups, "groups", 2, "consumer groups of three members each, of the two protocols in turn, 0 to 16")
	fl.BoolVar(&f.keep, "keep", false, "do not delete the temporary directory")
	fl.StringArrayVar(&f.set, "set", nil, "a server property of all nodes, `KEY=VALUE` (repeatable)")
	completeKeys(cmd, config.ScopeBroker, "=", "set")
	_ = cmd.RegisterFlagCompletionFunc("faults", cobra.FixedCompletions(torture.FaultNames(), cobra.ShellCompDirectiveNoFileComp))
	cmd.PreRun = func(cmd *cobra.Command, _ []string) {
		f.nodesGiven, f.seedGiven = cmd.Flags().Changed("nodes"), cmd.Flags().Changed("seed")
		f.dirGiven, f.faultsGiven = cmd.Flags().Changed("dir"), cmd.Flags().Changed("faults")
	}
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error { return a.localTorture(ctx, *dir, f) })
	return cmd
}

// faultsHelp is a line for each fault.
func faultsHelp() string {
	var b strings.Builder
	for _, f := range torture.Faults() {
		fmt.Fprintf(&b, "  %-12s %s\n", f.Name, f.Doc)
	}
	return b.String()
}

// possible are the faults that can be done to the cluster. What was asked for and cannot be done is an error, what was not is left out.
func (a *app) possible(t *victim, o torture.Options, asked bool) ([]string, error) {
	var can []string
	for _, name := range o.Faults {
		switch why := torture.Lacks(name, t, o.Network); {
		case why == "":
			can = append(can, name)
		case asked:
			return nil, &cliError{msg: fmt.Sprintf("--faults: %s cannot be done: %s", name, why), exit: exitUsage, try: "the others, or without --faults: those that can"}
		default:
			a.say("no %s: %s", name, why)
		}
	}
	return can, nil
}

func (f *localTortureFlags) options() (torture.Options, error) {
	faults, err := torture.ParseFaults(f.faults)
	switch {
	case err != nil:
		return torture.Options{}, &cliError{msg: "--faults: " + err.Error(), try: "--faults " + strings.Join(torture.FaultNames(), ","), exit: exitUsage}
	case f.duration < time.Second || f.interval < 100*time.Millisecond || f.heal < time.Second:
		return torture.Options{}, usagef("--duration and --heal are at least 1s, --kill-every 100ms")
	case f.partitions < 8 || f.partitions > 64:
		return torture.Options{}, usagef("--partitions %d: 8 to 64", f.partitions)
	case f.producers < 1 || f.producers > 16:
		return torture.Options{}, usagef("--producers %d: 1 to 16", f.producers)
	case f.rate < 1 || f.rate > 100_000:
		return torture.Options{}, usagef("--rate %d: 1 to 100000", f.rate)
	case f.groups < 0 || f.groups > 16:
		return torture.Options{}, usagef("--groups %d: 0 to 16", f.groups)
	case f.nodes < 1 || f.nodes > localMaxNodes:
		return torture.Options{}, usagef("-n %d: 1 to %d nodes", f.nodes, localMaxNodes)
	}
	if !f.seedGiven {
		var b [4]byte
		_, _ = crand.Read(b[:])
		f.seed = uint64(binary.LittleEndian.Uint32(b[:]))
	}
	var work []torture.Workload
	if f.groups > 0 {
		work = append(work, &torture.Groups{Count: f.groups, Members: 3, Patience: f.heal})
	}
	return torture.Options{
		Workloads: work,
		Seed:      f.seed, Duration: f.duration, Interval: f.interval, Heal: f.heal, Faults: faults,
		Partitions: f.partitions, Producers: f.producers, Rate: f.rate,
	}, nil
}

func (a *app) localTorture(ctx context.Context, dir string, f localTortureFlags) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	o.Say = func(line string) { a.say("%s", line) }
	t, err := a.victim(ctx, dir, f)
	if err != nil {
		return err
	}
	o.Network = t.network
	if o.Faults, err = a.possible(t, o, f.faultsGiven); err != nil {
		_ = t.end(true)
		return err
	}
	// A topic of an earlier run with the same seed may be in the directory.
	o.Topic = fmt.Sprintf("torture-%x-%d", o.Seed, a.now().UnixMilli())
	a.say("seed %d, %s in %s, %s, faults: %s", o.Seed, count(int64(len(t.cluster.state.Nodes)), "node"), t.cluster.shown, f.duration, strings.Join(o.Faults, ", "))
	v, err := torture.Run(ctx, t, o)
	t.cluster.release()
	if end := t.end(err == nil && v.Violations() == 0); err == nil {
		err = end
	}
	if err != nil {
		return err
	}
	return a.showVerdict(v, t)
}

// verdictBody is a torture.Verdict for programs. Times are in milliseconds.
type verdictBody struct {
	Version      int                       `json:"version"`
	OK           bool                      `json:"ok"`
	Seed         uint64                    `json:"seed"`
	Nodes        int                       `json:"nodes"`
	Partitions   int                       `json:"partitions"`
	Took         int64                     `json:"took_ms"`
	Faults       map[string]int            `json:"faults"`
	Acknowledged int64                     `json:"acknowledged"`
	Read         int64                     `json:"read"`
	Commits      int64                     `json:"commits"`
	Rotten       int                       `json:"damaged_on_purpose"`
	Violations   map[torture.Kind]int      `json:"violations"`
	Told         map[torture.Kind][]string `json:"told,omitempty"`
	Leaderless   struct {
		Count int   `json:"count"`
		P50   int64 `json:"p50_ms"`
		P99   int64 `json:"p99_ms"`
		Max   int64 `json:"max_ms"`
	} `json:"without_leader"`
	Notes []string `json:"notes,omitempty"`
	Dir   string   `json:"dir,omitempty"`
}

func newVerdictBody(v torture.Verdict) verdictBody {
	b := verdictBody{
		Version: 1, OK: v.Violations() == 0, Seed: v.Seed, Nodes: v.Nodes, Partitions: v.Partitions, Took: v.Took.Milliseconds(),
		Faults: v.Faults, Acknowledged: v.Acknowledged, Read: v.Read, Commits: v.Commits, Rotten: v.Rotten, Violations: map[torture.Kind]int{}, Told: v.Told, Notes: v.Notes,
	}
	for _, k := range torture.Kinds() {
		b.Violations[k] = v.Counts[k]
	}
	b.Leaderless.Count = len(v.WithoutLeader)
	b.Leaderless.P50, b.Leaderless.P99 = v.Percentile(0.5).Milliseconds(), v.Percentile(0.99).Milliseconds()
	b.Leaderless.Max = v.Percentile(1).Milliseconds()
	return b
}

// showVerdict prints the verdict, the sums as the last line; violations are told before.
func (a *app) showVerdict(v torture.Verdict, t *victim) error {
	for _, k := range torture.Kinds() {
		for _, line := range v.Told[k] {
			a.say("%s: %s", strings.ToUpper(string(k)), line)
		}
		if more := v.Counts[k] - len(v.Told[k]); more > 0 {
			a.say("%s: and %d more", strings.ToUpper(string(k)), more)
		}
	}
	for _, note := range v.Notes {
		a.say("note: %s", note)
	}
	bad := v.Violations()
	var failed *cliError
	if bad > 0 {
		failed = &cliError{
			msg: fmt.Sprintf("%s with seed %d", count(int64(bad), "violation"), v.Seed), code: "VIOLATION", exit: exitDamaged, told: true,
			why: "a promise was broken", try: "the same again: " + a.torturedAgain(v.Seed, t),
		}
		a.printError(failed)
	}
	if v.Rotten > 0 {
		a.say("note: damaged on purpose, and found damaged as they must: %s", strings.Replace(count(int64(v.Rotten), "batch"), "batchs", "batches", 1))
	}
	body := newVerdictBody(v)
	if !t.temporary || t.keep || bad > 0 {
		body.Dir = t.cluster.shown
	}
	err := a.show(result{body: body, text: func(t *text) {
		t.line("seed %d: %s in %s on %s; faults: %s", v.Seed, count(v.Read, "read"), seconds(v.Took), count(int64(v.Partitions), "partition"), v.FaultText())
		t.line("%s", v.Sums())
	}})
	if err == nil && failed != nil {
		return failed
	}
	return err
}

// torturedAgain is the command line with the seed in it.
func (a *app) torturedAgain(seed uint64, t *victim) string {
	for _, arg := range a.args {
		if arg == "--seed" || strings.HasPrefix(arg, "--seed=") {
			return a.again()
		}
	}
	return a.again("--seed", fmt.Sprint(seed))
}

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
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
	partitions, producers, rate int
}

func newLocalTortureCommand(a *app, dir *string) *cobra.Command {
	var f localTortureFlags
	cmd := &cobra.Command{
		Use: "torture", Short: "Write to a cluster, kill its nodes meanwhile, and check that nothing was lost", Args: wantsArgs(0, 0),
		Long: `Writes with several idempotent producers and acks=all, reads, and meanwhile kills, pauses and restarts nodes, alone and all at once. Then
it lets the cluster heal, reads everything from every replica, stops the nodes, checks every file, and says what was lost, stored twice,
reordered, found at another offset, or is not the same on every replica. The seed decides what is done to whom and when.

It tortures the cluster in --dir if that one is up, and leaves it up; else a cluster of its own in --dir, or in a temporary directory,
which is deleted unless something was found.

Faults: kill and kill-all (kill -9), pause and pause-all (SIGSTOP for 0.5 to 15 s), restart and restart-all (a clean stop).
Exit code 5: a promise was broken.`,
		Example: "  keeplog local torture --duration 60s\n  keeplog local torture -n 1 --duration 20s --faults kill --seed 7",
	}
	fl := cmd.Flags()
	fl.IntVarP(&f.nodes, "nodes", "n", 3, "number of nodes")
	fl.DurationVar(&f.duration, "duration", time.Minute, "how long faults go on")
	fl.DurationVar(&f.interval, "kill-every", 4*time.Second, "mean time between two faults")
	fl.DurationVar(&f.heal, "heal", time.Minute, "how long the cluster may take to heal in the end")
	fl.Uint64Var(&f.seed, "seed", 0, "`SEED` of an earlier run, to do the same again")
	fl.StringVar(&f.faults, "faults", strings.Join(torture.FaultNames(), ","), "`LIST` of faults")
	fl.IntVar(&f.partitions, "partitions", 12, "partitions to write to, 8 to 64")
	fl.IntVar(&f.producers, "producers", 4, "producers that write at a time, 1 to 16")
	fl.IntVar(&f.rate, "rate", 2000, "records a second, all producers together")
	fl.BoolVar(&f.keep, "keep", false, "do not delete the temporary directory")
	fl.StringArrayVar(&f.set, "set", nil, "a server property of all nodes, `KEY=VALUE` (repeatable)")
	completeKeys(cmd, config.ScopeBroker, "=", "set")
	_ = cmd.RegisterFlagCompletionFunc("faults", cobra.FixedCompletions(torture.FaultNames(), cobra.ShellCompDirectiveNoFileComp))
	cmd.PreRun = func(cmd *cobra.Command, _ []string) {
		f.nodesGiven, f.seedGiven = cmd.Flags().Changed("nodes"), cmd.Flags().Changed("seed")
		f.dirGiven = cmd.Flags().Changed("dir")
	}
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error { return a.localTorture(ctx, *dir, f) })
	return cmd
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
	case f.nodes < 1 || f.nodes > localMaxNodes:
		return torture.Options{}, usagef("-n %d: 1 to %d nodes", f.nodes, localMaxNodes)
	}
	if !f.seedGiven {
		var b [4]byte
		_, _ = crand.Read(b[:])
		f.seed = uint64(binary.LittleEndian.Uint32(b[:]))
	}
	return torture.Options{
		Seed: f.seed, Duration: f.duration, Interval: f.interval, Heal: f.heal, Faults: faults,
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

// victim is the cluster of one torture.
type victim struct {
	cluster   *localCluster
	borrowed  bool // it was up before
	temporary bool
	keep      bool

	mu sync.Mutex // of cluster.state
}

// victim finds the cluster that is up, or starts one.
func (a *app) victim(ctx context.Context, dir string, f localTortureFlags) (*victim, error) {
	c, err := a.localDir(dir)
	if err != nil {
		return nil, err
	}
	found, err := c.load()
	if err != nil && f.dirGiven {
		return nil, err
	}
	if found {
		up := 0
		for _, n := range c.state.Nodes {
			if state, ok := c.running(n); ok && !state.paused() {
				up++
			}
		}
		if up == len(c.state.Nodes) && (!f.nodesGiven || up == f.nodes) {
			if len(f.set) > 0 {
				return nil, usagef("--set: the cluster in %s is up", c.shown)
			}
			return &victim{cluster: c, borrowed: true}, c.acquire()
		}
	}
	t := &victim{temporary: !f.dirGiven, keep: f.keep}
	if t.temporary {
		if dir, err = os.MkdirTemp("", "keeplog-torture-"); err != nil {
			return nil, failf("cannot make a temporary directory: %s", lastPart(err))
		}
	}
	up := f.localUpFlags
	up.anyPort = true
	if t.cluster, err = a.prepareLocal(dir, up); err == nil {
		_, err = t.cluster.up(ctx, up)
	}
	if err != nil {
		if t.cluster != nil {
			t.cluster.release()
		}
		return nil, err
	}
	return t, nil
}

// end leaves the cluster as it was found, and deletes a temporary one in which nothing was found.
func (t *victim) end(clean bool) error {
	c := t.cluster
	if t.borrowed {
		if err := c.acquire(); err != nil {
			return err
		}
		defer c.release()
		return c.startNodes(context.Background(), c.state.Nodes)
	}
	for _, n := range c.state.Nodes {
		if _, ok := c.running(n); ok {
			t.cluster.abandon(c.state.Nodes)
			break
		}
	}
	if t.temporary && clean && !t.keep {
		quiet := *c.app
		quiet.flags.quiet = true
		c.app = &quiet
		return c.remove()
	}
	c.app.say("the files stay in %s", c.shown)
	return nil
}

func (t *victim) node(id int32) *localNode { return t.cluster.state.Nodes[id-1] }

// Nodes implements torture.Cluster.
func (t *victim) Nodes() []torture.Node {
	var out []torture.Node
	for _, n := range t.cluster.state.Nodes {
		out = append(out, torture.Node{ID: n.ID, Address: n.address(), DataDir: t.cluster.dataDir(n)})
	}
	return out
}

// Start implements torture.Cluster.
func (t *victim) Start(id int32) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cluster.launch(t.node(id))
}

func (t *victim) signal(id int32, sig syscall.Signal) error {
	sent, err := t.cluster.signal(t.node(id), sig)
	if err == nil && !sent {
		return errors.New("it is not there")
	}
	return err
}

func (t *victim) signalAndWait(id int32, sig syscall.Signal, limit time.Duration) error {
	if err := t.signal(id, sig); err != nil {
		return err
	}
	if !t.cluster.ended(t.node(id), limit) {
		return fmt.Errorf("it has not ended after %s", limit)
	}
	return nil
}

// Kill implements torture.Cluster.
func (t *victim) Kill(id int32) error {
	return t.signalAndWait(id, syscall.SIGKILL, 10*time.Second)
}

// Stop implements torture.Cluster.
func (t *victim) Stop(id int32) error {
	err := t.signalAndWait(id, syscall.SIGTERM, localStopTimeout)
	if err != nil {
		_ = t.signal(id, syscall.SIGKILL)
	}
	return err
}

// Pause implements torture.Cluster.
func (t *victim) Pause(id int32) error { return t.signal(id, syscall.SIGSTOP) }

// Resume implements torture.Cluster.
func (t *victim) Resume(id int32) error { return t.signal(id, syscall.SIGCONT) }

// Running implements torture.Cluster.
func (t *victim) Running(id int32) bool {
	_, ok := t.cluster.running(t.node(id))
	return ok
}

// LastWords implements torture.Cluster.
func (t *victim) LastWords(id int32) string {
	msg, why, _ := lastError(readTail(t.cluster.logFile(t.node(id)), 0, 1<<20))
	if why != "" {
		msg += " (" + why + ")"
	}
	return msg
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
		Faults: v.Faults, Acknowledged: v.Acknowledged, Read: v.Read, Violations: map[torture.Kind]int{}, Told: v.Told, Notes: v.Notes,
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

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

// problem is something that is wrong with a cluster. It says what, and what to do.
type problem struct {
	Kind string `json:"kind"` // a stable name
	What string `json:"what"`
	Try  string `json:"try,omitempty"`
	// Partitions are those concerned, if it is about partitions.
	Partitions []string `json:"partitions,omitempty"`
}

// The kinds of problem, the worst first.
const (
	noController   = "no_controller"
	offlineParts   = "offline_partitions"
	underMinISR    = "under_min_isr"
	brokerDown     = "broker_down"
	brokerGone     = "broker_gone"
	brokerSilent   = "broker_silent"
	dirFailed      = "directory_failed"
	lostData       = "lost_records"
	notInSync      = "not_in_sync"
	diskLow        = "disk_low"
	quorumBehind   = "metadata_behind"
	quorumNoSpare  = "metadata_without_spare"
	quorumIdle     = 5000 // ms without a word after which a voter counts as gone
	quorumLag      = 1000 // entries behind which a voter that is heard counts as behind
	partitionsTold = 5
)

// problems are what the view shows to be wrong, the worst first.
func (v *clusterView) problems() []problem {
	var out []problem
	if !v.led || v.controller < 0 || v.quorum != nil && v.quorum.leader < 0 {
		out = append(out, problem{Kind: noController, What: "no leader of the metadata: nothing can be changed, and no partition gets a new leader", Try: "start the nodes that are down: a majority of the voters must run"})
	}
	out = append(out, v.partitionProblems()...)
	out = append(out, v.brokerProblems()...)
	out = append(out, v.goneProblems()...)
	out = append(out, v.quorumProblems()...)
	return out
}

// partitionProblems are partitions that nobody leads, or that take no writes with acks=all.
func (v *clusterView) partitionProblems() []problem {
	var dead, refusing []string
	v.each(func(p kadm.PartitionDetail) {
		name := fmt.Sprintf("%s-%d", p.Topic, p.Partition)
		need, known := v.minOf(p)
		switch {
		case p.Leader < 0:
			dead = append(dead, name)
		case known && len(p.ISR) < need:
			refusing = append(refusing, name)
		}
	})
	var out []problem
	if len(dead) > 0 {
		out = append(out, problem{
			Kind: offlineParts, Partitions: dead, Try: "start the nodes that are down; if their disks are gone for ever: keeplog cluster leader --unclean",
			What: fmt.Sprintf("%s no leader, and can be neither written nor read: %s", has(len(dead), "partition"), someOf(dead)),
		})
	}
	if len(refusing) > 0 {
		out = append(out, problem{
			Kind: underMinISR, Partitions: refusing, Try: "start the nodes that are down, or wait for those that catch up",
			What: fmt.Sprintf("%s fewer replicas in sync than min.insync.replicas asks for, and refuse acks=all: %s", has(len(refusing), "partition"), someOf(refusing)),
		})
	}
	return out
}

// has is "1 partition has", "2 partitions have".
func has(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " has"
	}
	return count(int64(n), noun) + " have"
}

// someOf is the beginning of a list.
func someOf(names []string) string {
	if len(names) <= partitionsTold {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:partitionsTold], ", "), len(names)-partitionsTold)
}

// brokerProblems say what is wrong with each broker.
func (v *clusterView) brokerProblems() []problem {
	var out []problem
	for i := range v.brokers {
		b := &v.brokers[i]
		var behind []string
		v.each(func(p kadm.PartitionDetail) {
			if slices.Contains(p.Replicas, b.id) && !slices.Contains(p.ISR, b.id) && !v.coming(p, b.id) {
				behind = append(behind, fmt.Sprintf("%s-%d", p.Topic, p.Partition))
			}
		})
		_, holds, _ := v.load(b.id)
		switch {
		case b.fenced:
			out = append(out, problem{
				Kind: brokerDown, Partitions: behind, Try: fmt.Sprintf("start node %d; if it is gone for ever: keeplog cluster remove %d", b.id, b.id),
				What: fmt.Sprintf("broker %d is down: %s not in sync", b.id, ofThem(len(behind), holds)),
			})
			continue
		case b.silent:
			p := problem{
				Kind: brokerSilent, Partitions: behind, Try: "look at what it logs, and at the network between here and " + b.address,
				What: fmt.Sprintf("broker %d at %s does not answer", b.id, b.address),
			}
			if len(behind) > 0 {
				p.What += fmt.Sprintf("; %s not in sync", ofThem(len(behind), holds))
			}
			out = append(out, p)
			continue
		}
		if len(behind) > 0 {
			out = append(out, problem{
				Kind: notInSync, Partitions: behind, Try: "wait for it to catch up: keeplog cluster health --wait",
				What: fmt.Sprintf("broker %d is behind: %s not in sync: %s", b.id, ofThem(len(behind), holds), someOf(behind)),
			})
		}
		for _, d := range b.dirs {
			out = append(out, dirProblems(b.id, d)...)
		}
	}
	return out
}

// coming says whether a reassignment is bringing the broker's replica in: it was not there before, so it is not behind.
func (v *clusterView) coming(p kadm.PartitionDetail, id int32) bool {
	return slices.ContainsFunc(v.moving, func(m move) bool {
		return m.topic == p.Topic && m.partition == p.Partition && slices.Contains(m.to, id) && !slices.Contains(m.from, id)
	})
}

// goneProblems are the replicas of brokers that are not registered.
func (v *clusterView) goneProblems() []problem {
	held := map[int32][]string{}
	v.each(func(p kadm.PartitionDetail) {
		for _, id := range p.Replicas {
			if _, ok := v.broker(id); !ok {
				held[id] = append(held[id], fmt.Sprintf("%s-%d", p.Topic, p.Partition))
			}
		}
	})
	var out []problem
	for _, id := range slices.Sorted(maps.Keys(held)) {
		out = append(out, problem{
			Kind: brokerGone, Partitions: held[id], Try: fmt.Sprintf("start node %d; if it is gone for ever: keeplog cluster remove %d", id, id),
			What: fmt.Sprintf("broker %d is not registered, and has a replica of %s: %s", id, count(int64(len(held[id])), "partition"), someOf(held[id])),
		})
	}
	return out
}

// ofThem is "3 of its 7 replicas are".
func ofThem(n, all int) string {
	if n == 1 {
		return fmt.Sprintf("1 of its %d replicas is", all)
	}
	return fmt.Sprintf("%d of its %d replicas are", n, all)
}

func dirProblems(broker int32, d viewDir) []problem {
	var out []problem
	if d.failed {
		out = append(out, problem{
			Kind: dirFailed, What: fmt.Sprintf("broker %d: the data directory %s has failed", broker, d.path),
			Try: "replace the disk, then start the node again: it copies what it held from the others",
		})
	}
	for i, l := range d.lostRecords {
		out = append(out, problem{
			Kind: lostData, Partitions: []string{d.lostPartOf[i]}, Try: "keeplog topic describe, and write them again if they matter",
			What: fmt.Sprintf("broker %d: the disk has lost %s of %s, offsets %d to %d", broker, count(l.Count, "record"), d.lostPartOf[i], l.From, l.To-1),
		})
	}
	if d.free >= 0 && d.total > 0 && d.free <= min(max(d.total/50, 256<<20), d.total/8) {
		out = append(out, problem{
			Kind: diskLow, What: fmt.Sprintf("broker %d: %s left for %s, below the reserve: writes are refused", broker, size(d.free), d.path),
			Try: "make room on its disk (keeplog topic delete, keeplog topic trim): it goes on by itself",
		})
	}
	return out
}

// quorumProblems say what is wrong with the metadata log.
func (v *clusterView) quorumProblems() []problem {
	q := v.quorum
	if q == nil || q.leader < 0 || len(q.voters) < 2 {
		return nil
	}
	var out []problem
	well := 0
	for _, m := range q.voters {
		gone := m.idle > quorumIdle || !v.alive(m.id)
		if !gone {
			well++
			if m.lag > quorumLag {
				out = append(out, problem{Kind: quorumBehind, What: fmt.Sprintf("node %d is %d entries behind in the metadata log", m.id, m.lag), Try: "wait for it to catch up: keeplog cluster health --wait"})
			}
		}
	}
	if need := len(q.voters)/2 + 1; well <= need && len(q.voters) > 2 && well < len(q.voters) {
		out = append(out, problem{
			Kind: quorumNoSpare, What: fmt.Sprintf("%d of %d voters of the metadata log are well, and %d are needed: one more loss stops every change", well, len(q.voters), need),
			Try: "start the nodes that are down",
		})
	}
	return out
}

type healthFlags struct{ wait, local bool }

func newClusterHealthCommand(a *app) *cobra.Command {
	var f healthFlags
	cmd := &cobra.Command{
		Use: "health", Short: "Say whether the cluster is well, and what to do if not", Args: wantsArgs(0, 0),
		Long: "Names what is wrong, the worst first: no leader of the metadata, partitions without a leader or below min.insync.replicas,\n" +
			"brokers that are down, behind, or out of disk. Exit code 3 when something is; 4 when nobody answers.",
		Example: "  keeplog cluster health --wait --timeout 60s\n  keeplog cluster health --local -b 127.0.0.1:9092",
		RunE:    a.run(func(ctx context.Context, _ []string) error { return a.clusterHealth(ctx, f) }),
	}
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait until it is well, as long as --timeout")
	cmd.Flags().BoolVar(&f.local, "local", false, "ask only the one broker of -b whether it serves: a container's health check")
	return cmd
}

func (a *app) clusterHealth(ctx context.Context, f healthFlags) error {
	if f.local {
		return a.localHealth(ctx)
	}
	var v *clusterView
	var problems []problem
	deadline := time.Now().Add(a.flags.timeout)
	for {
		err := a.withView(ctx, false, func(_ context.Context, _ *session, view *clusterView) error {
			v = view
			return nil
		})
		late := time.Now().After(deadline) || ctx.Err() != nil
		if err != nil {
			if !f.wait || late || !mayPass(err) {
				return err
			}
		} else if problems = v.problems(); len(problems) == 0 || !f.wait || late {
			return a.showHealth(v, problems)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// mayPass says that a view may work another time: nobody answered, or not in time.
func mayPass(err error) bool {
	var ce *cliError
	return !errors.As(err, &ce) || ce.exit == exitUnreachable
}

func (a *app) showHealth(v *clusterView, problems []problem) error {
	if problems == nil {
		problems = []problem{}
	}
	body := struct {
		Version    int       `json:"version"`
		Healthy    bool      `json:"healthy"`
		Problems   []problem `json:"problems"`
		Brokers    int       `json:"brokers"`
		Partitions int       `json:"partitions"`
		Controller int32     `json:"controller"`
		Moving     int       `json:"moving"`
	}{1, len(problems) == 0, problems, len(v.brokers), v.partitionCount(), v.controller, len(v.moving)}
	err := a.show(result{body: body, items: anys(problems), text: func(t *text) {
		for _, p := range problems {
			t.line("%s", p.What)
			if p.Try != "" {
				t.line("  try: %s", p.Try)
			}
		}
		if len(problems) == 0 {
			t.line("healthy: %s, %s, leader of metadata: node %d", count(int64(len(v.brokers)), "broker"), count(int64(body.Partitions), "partition"), v.controller)
		}
		if len(v.moving) > 0 {
			t.line("%s on the move (keeplog cluster reassign)", isAre(len(v.moving), "partition"))
		}
		for i := range v.brokers {
			if v.brokers[i].drained {
				t.line("broker %d is drained (keeplog cluster undrain %d)", v.brokers[i].id, v.brokers[i].id)
			}
		}
	}})
	if err != nil || len(problems) == 0 {
		return err
	}
	return &cliError{msg: "the cluster is not healthy: " + count(int64(len(problems)), "problem"), code: "UNHEALTHY", exit: exitPart}
}

// isAre is "1 partition is", "2 partitions are".
func isAre(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " is"
	}
	return count(int64(n), noun) + " are"
}

// localHealth asks one broker, and no other, whether it serves and knows a leader of the metadata.
func (a *app) localHealth(ctx context.Context) error {
	props, err := a.clientProperties()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, a.flags.timeout)
	defer cancel()
	probe := newLocalProbe()
	probe.tls = props.tls
	defer probe.close()
	addr := props.brokers[0]
	view, err := probe.ask(ctx, addr)
	if err != nil {
		return &cliError{msg: fmt.Sprintf("cannot reach %s (%s)", addr, netReason(err)), code: "UNREACHABLE", exit: exitUnreachable}
	}
	body := struct {
		Version    int   `json:"version"`
		Healthy    bool  `json:"healthy"`
		Controller int32 `json:"controller"`
	}{1, view.controller >= 0, view.controller}
	err = a.show(result{body: body, text: func(t *text) {
		if body.Healthy {
			t.line("healthy: %s serves", addr)
		}
	}})
	if err != nil || body.Healthy {
		return err
	}
	return &cliError{msg: addr + " serves, and knows no leader of the metadata", code: "UNHEALTHY", exit: exitPart}
}

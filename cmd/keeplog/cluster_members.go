package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const mostVoters = 5

func newClusterAddCommand(a *app) *cobra.Command {
	var controller string
	cmd := &cobra.Command{
		Use: "add [N]", Short: "Show how a node joins, or make one that has joined a voter", Args: wantsArgs(0, 1),
		Long: "A node joins by itself: it is started with --join. Without a number this prints how. With the number of a node that has joined it\n" +
			"becomes a voter of the metadata log, of which there are up to five.",
		ValidArgsFunction: a.completeBrokers(1),
		RunE:              a.run(func(ctx context.Context, words []string) error { return a.clusterAdd(ctx, words, controller) }),
	}
	cmd.Flags().StringVar(&controller, "controller", "", "`HOST:PORT` of the node's CONTROLLER listener, where the cluster does not tell it")
	return cmd
}

func (a *app) clusterAdd(ctx context.Context, words []string, controller string) error {
	var v *clusterView
	between := map[string]string{}
	err := a.withView(ctx, len(words) > 0, func(ctx context.Context, s *session, view *clusterView) error {
		v = view
		for i := range v.brokers {
			if len(words) == 0 && len(between) == 0 {
				between = s.settingsOf(ctx, v.brokers[i].id, controllerName, internalName)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(words) == 0 {
		return a.showJoin(v, between)
	}
	id, err := strconv.ParseInt(words[0], 10, 32)
	if err != nil || id < 0 {
		return usagef("%s: not the number of a node", words[0])
	}
	m, err := v.promotable(int32(id), controller)
	if err != nil {
		return err
	}
	a.say("node %d becomes a voter beside %s", id, numbers(v.voterIDs()))
	if err := a.confirm(ctx, fmt.Sprintf("make node %d a voter", id)); err != nil {
		return err
	}
	err = a.ask(ctx, func(ctx context.Context, s *session) error {
		req := kmsg.NewPtrAddRaftVoterRequest()
		req.ClusterID, req.VoterID, req.VoterDirectoryID = &v.id, m.id, m.directory
		req.TimeoutMillis = int32(a.flags.timeout.Milliseconds())
		l := kmsg.NewAddRaftVoterRequestListener()
		l.Name, l.Host, l.Port = "CONTROLLER", m.host, m.port
		req.Listeners = append(req.Listeners, l)
		resp, err := req.RequestWith(ctx, s.client)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
			return s.answered(fmt.Sprintf("node %d", id), err, orEmpty(resp.ErrorMessage))
		}
		return err
	})
	if err != nil {
		return err
	}
	return a.showMember("added", int32(id))
}

// voterIDs are the nodes that vote.
func (v *clusterView) voterIDs() []int32 {
	var out []int32
	if v.quorum != nil {
		for _, m := range v.quorum.voters {
			out = append(out, m.id)
		}
	}
	slices.Sort(out)
	return out
}

// member is the node in the metadata log; nil if it is not there.
func (v *clusterView) member(id int32) *quorumMember {
	if v.quorum == nil {
		return nil
	}
	for _, all := range [][]quorumMember{v.quorum.voters, v.quorum.observers} {
		for i := range all {
			if all[i].id == id {
				return &all[i]
			}
		}
	}
	return nil
}

// promotable finds the node that may become a voter.
func (v *clusterView) promotable(id int32, controller string) (quorumMember, error) {
	if v.quorum == nil {
		return quorumMember{}, failf("the brokers do not tell who keeps the metadata log")
	}
	if slices.Contains(v.voterIDs(), id) {
		return quorumMember{}, failf("node %d is a voter already", id)
	}
	if len(v.quorum.voters) >= mostVoters {
		e := failf("there are %d voters already, which is the most", len(v.quorum.voters))
		e.try = "nothing: the node serves as it is; a voter goes with keeplog cluster remove"
		return quorumMember{}, e
	}
	at := slices.IndexFunc(v.quorum.observers, func(m quorumMember) bool { return m.id == id })
	if at < 0 {
		e := failf("node %d has not joined", id)
		e.try = "keeplog cluster add, which prints how"
		return quorumMember{}, e
	}
	m := v.quorum.observers[at]
	if controller != "" {
		host, port, err := net.SplitHostPort(controller)
		n, perr := strconv.ParseUint(port, 10, 16)
		if err != nil || perr != nil {
			return m, usagef("--controller %s: not HOST:PORT", controller)
		}
		m.host, m.port = host, uint16(n)
	}
	if m.host == "" {
		return m, &cliError{
			msg: fmt.Sprintf("the cluster does not tell where node %d listens for the metadata log", id), exit: exitUsage,
			try: fmt.Sprintf("keeplog cluster add %d --controller HOST:PORT, its CONTROLLER listener", id),
		}
	}
	return m, nil
}

// The settings that name the listeners which no client uses: those of all brokers must have the same internal one.
const (
	controllerName = "controller.listener.names"
	internalName   = "inter.broker.listener.name"
)

// showJoin tells how a new node is started, with the names that the others have for the listeners between them.
func (a *app) showJoin(v *clusterView, between map[string]string) error {
	next := int32(1)
	for i := range v.brokers {
		next = max(next, v.brokers[i].id+1)
	}
	join := "HOST:PORT"
	if v.quorum != nil {
		for _, m := range v.quorum.voters {
			if m.host != "" {
				join = net.JoinHostPort(m.host, strconv.Itoa(int(m.port)))
				break
			}
		}
	}
	controller, _, _ := strings.Cut(cmp.Or(between[controllerName], "CONTROLLER"), ",")
	internal := cmp.Or(between[internalName], "REPLICATION")
	properties := []string{
		fmt.Sprintf("node.id=%d", next),
		fmt.Sprintf("listeners=PLAINTEXT://HOST:9092,%s://HOST:9093,%s://HOST:9094", controller, internal),
		controllerName + "=" + controller, internalName + "=" + internal, "log.dirs=DIR",
	}
	if controller != "CONTROLLER" || internal != "REPLICATION" {
		properties = append(properties, fmt.Sprintf("listener.security.protocol.map=PLAINTEXT:PLAINTEXT,%s:PLAINTEXT,%s:PLAINTEXT", controller, internal))
	}
	if len(v.brokers) == 1 && join == "HOST:PORT" {
		return a.showGrow(v.brokers[0].id, properties[1:])
	}
	command := fmt.Sprintf("keeplog serve --config node-%d.properties --join %s", next, join)
	body := joinBody{1, next, properties, []string{command}}
	return a.show(result{body: body, text: func(t *text) {
		t.line("On the new machine, node-%d.properties:", next)
		for _, p := range properties {
			t.line("  %s", p)
		}
		t.line("then: %s", command)
		t.line("It joins and holds nothing yet. To give it replicas: keeplog cluster reassign --to %s", numbers(append(brokerIDs(v), next)))
		t.line("To let it vote on the metadata: keeplog cluster add %d", next)
	}})
}

// joinBody is what is printed for programs: the properties of the new node's file, and the commands on it.
type joinBody struct {
	Version    int      `json:"version"`
	ID         int32    `json:"id"`
	Properties []string `json:"properties"`
	Commands   []string `json:"commands"`
}

// showGrow tells how a node that runs alone, where no other can reach it, becomes one of three.
func (a *app) showGrow(alone int32, common []string) error {
	voters := "controller.quorum.voters="
	var commands []string
	for i := range int32(3) {
		if i > 0 {
			voters += ","
		}
		voters += fmt.Sprintf("%d@HOST%d:9093", alone+i, alone+i)
		commands = append(commands, fmt.Sprintf("keeplog serve --config node-%d.properties", alone+i))
	}
	properties := append([]string{"node.id=N"}, append(slices.Clone(common), voters)...)
	return a.show(result{body: joinBody{1, alone + 1, properties, commands}, text: func(t *text) {
		t.line("Node %d runs alone, and no other node can reach it. Three nodes have the same list, each in its node-N.properties:", alone)
		for _, p := range properties {
			t.line("  %s", p)
		}
		t.line("Node %d keeps its data directory and is started again with that file, the others with empty ones:", alone)
		for _, c := range commands {
			t.line("  %s", c)
		}
		t.line("They hold nothing yet. To give every partition three replicas: keeplog cluster reassign --factor 3")
	}})
}

func brokerIDs(v *clusterView) []int32 {
	var out []int32
	for i := range v.brokers {
		out = append(out, v.brokers[i].id)
	}
	return out
}

type removeFlags struct{ shrink, replace bool }

func newClusterRemoveCommand(a *app) *cobra.Command {
	var f removeFlags
	cmd := &cobra.Command{
		Use: "remove N", Short: "Take a node out of the cluster for good", Args: wantsArgs(1, 1),
		Long: "Moves the replicas of the node to others, takes it out of the voters of the metadata log, and forgets it. Works for a node that runs and\n" +
			"for one that is gone for ever. What is done is shown first.\n\n" +
			"--replace is for a node whose disk was wiped or replaced, and which comes back with an empty one: only its old disk is forgotten.",
		Example:           "  keeplog cluster remove 4\n  keeplog cluster remove 3 --shrink -y --timeout 10m\n  keeplog cluster remove 2 --replace",
		ValidArgsFunction: a.completeBrokers(1),
		RunE:              a.run(func(ctx context.Context, words []string) error { return a.clusterRemove(ctx, words[0], f) }),
	}
	cmd.Flags().BoolVar(&f.shrink, "shrink", false, "let partitions have fewer replicas where there are too few other brokers")
	cmd.Flags().BoolVar(&f.replace, "replace", false, "forget only the disk that the node had: it comes back with an empty one")
	return cmd
}

// removal is the plan to take a node out.
type removal struct {
	id        int32
	member    *quorumMember // of the metadata log, if it is one
	voter     bool
	broker    bool
	moves     []move
	clusterID string
}

// planRemoval decides what must move before the node can go.
func (v *clusterView) planRemoval(id int32, shrink bool) (*removal, error) {
	r := &removal{id: id, clusterID: v.id}
	_, r.broker = v.broker(id)
	r.member, r.voter = v.member(id), slices.Contains(v.voterIDs(), id)
	var parts []kadm.PartitionDetail
	v.each(func(p kadm.PartitionDetail) {
		if slices.Contains(p.Replicas, id) {
			parts = append(parts, p)
		}
	})
	if !r.broker && r.member == nil && len(parts) == 0 {
		_, err := v.brokerArg(fmt.Sprint(id))
		return nil, err
	}
	if len(v.brokers) == 1 && r.broker {
		return nil, failf("broker %d is the only one", id)
	}
	o := v.spreadOver(id)
	moves, short := spread(parts, o)
	if len(short) > 0 && !shrink {
		e := failf("%s would have fewer replicas without broker %d: %s", count(int64(len(short)), "partition"), id, someOf(short))
		e.why = fmt.Sprintf("there are only the brokers %s to take them", numbers(o.brokers))
		e.code, e.try = "TOO_FEW_BROKERS", fmt.Sprintf("keeplog cluster remove %d --shrink, or add a node before: keeplog cluster add", id)
		return nil, e
	}
	for _, m := range moves {
		if len(m.to) == 0 {
			return nil, failf("%s: broker %d has the only replica, and no other broker can take it", m.name(), id)
		}
	}
	r.moves = moves
	return r, nil
}

// planReplacement finds the disk that is to be forgotten.
func (v *clusterView) planReplacement(id int32) (*removal, error) {
	r := &removal{id: id, clusterID: v.id, member: v.member(id)}
	switch b, ok := v.broker(id); {
	case r.member == nil:
		e := failf("node %d is no member of the metadata log: there is no disk to forget", id)
		e.try = "keeplog cluster info"
		return nil, e
	case ok && !b.fenced:
		e := failf("broker %d is up: its disk is there", id)
		e.try = fmt.Sprintf("keeplog cluster remove %d, if it is to go for good", id)
		return nil, e
	}
	return r, nil
}

// lostNotice is how long a broker may still count as up after its process ended: more than its session at the controller.
const lostNotice = 10 * time.Second

// replacement plans to forget the disk of a node. A process that ended a moment ago counts as up until its session is over, and the commands
// of its successor's refusal are there to be pasted at once: so a broker that is up gets the time to be missed.
func (s *session) replacement(ctx context.Context, v *clusterView, id int32) (*removal, error) {
	for end := time.Now().Add(lostNotice); time.Now().Before(end); {
		if b, ok := v.broker(id); !ok || b.fenced {
			break
		}
		select {
		case <-ctx.Done():
			return nil, notMissed(id)
		case <-time.After(200 * time.Millisecond):
		}
		switch next, err := s.ledView(ctx); {
		case ctx.Err() != nil:
			return nil, notMissed(id)
		case err != nil:
			return nil, err
		default:
			v = next
		}
	}
	return v.planReplacement(id)
}

func notMissed(id int32) *cliError {
	return &cliError{
		msg: fmt.Sprintf("broker %d counts as up still", id), code: "TIMED_OUT", exit: exitUnreachable,
		why: "a node that does not answer is missed after some seconds", try: "the same again, or a longer --timeout",
	}
}

func (a *app) clusterRemove(ctx context.Context, word string, f removeFlags) error {
	id, err := strconv.ParseInt(word, 10, 32)
	if err != nil || id < 0 {
		return usagef("%s: not the number of a node", word)
	}
	if f.shrink && f.replace {
		return usagef("--shrink and --replace exclude each other")
	}
	var plan *removal
	err = a.withView(ctx, true, func(ctx context.Context, s *session, v *clusterView) (err error) {
		if f.replace {
			plan, err = s.replacement(ctx, v, int32(id))
		} else {
			plan, err = v.planRemoval(int32(id), f.shrink)
		}
		return err
	})
	if err != nil {
		return err
	}
	a.previewMoves(plan.moves)
	what := fmt.Sprintf("remove node %d from the cluster", id)
	if f.replace {
		what = fmt.Sprintf("forget the disk that node %d had", id)
		a.say("the disk that node %d had is forgotten, and cannot be used in this cluster again; the node may come back with an empty one", id)
	} else {
		if plan.member != nil && plan.voter {
			a.say("node %d is no voter of the metadata log any more", id)
		}
		a.say("node %d is forgotten; its data directory stays where it is, and cannot be used in this cluster again", id)
	}
	if err := a.confirm(ctx, what); err != nil {
		return err
	}
	if len(plan.moves) > 0 {
		if err := a.ask(ctx, func(ctx context.Context, s *session) error { return s.beginMoves(ctx, plan.moves) }); err != nil {
			return err
		}
		if err := a.awaitMoves(ctx, plan.moves); err != nil {
			return err
		}
	}
	if err := a.ask(ctx, func(ctx context.Context, s *session) error { return s.forget(ctx, plan) }); err != nil {
		return err
	}
	return a.showMember("removed", int32(id))
}

// forget takes the node out of voters and brokers.
func (s *session) forget(ctx context.Context, plan *removal) error {
	what := fmt.Sprintf("node %d", plan.id)
	if plan.member != nil {
		req := kmsg.NewPtrRemoveRaftVoterRequest()
		req.ClusterID, req.VoterID, req.VoterDirectoryID = &plan.clusterID, plan.id, plan.member.directory
		resp, err := req.RequestWith(ctx, s.client)
		if err != nil {
			return err
		}
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return s.answered(what, err, orEmpty(resp.ErrorMessage))
		}
	}
	if !plan.broker {
		return nil
	}
	req := kmsg.NewPtrUnregisterBrokerRequest()
	req.BrokerID = plan.id
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return s.answered(what, err, orEmpty(resp.ErrorMessage))
	}
	return nil
}

func (a *app) showMember(done string, id int32) error {
	body := struct {
		Version int    `json:"version"`
		Node    int32  `json:"node"`
		Done    string `json:"done"`
	}{1, id, done}
	return a.show(result{body: body, text: func(t *text) { t.line("%s node %d", done, id) }})
}

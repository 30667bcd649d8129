package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func newGroupCommand(a *app) *cobra.Command {
	cmd := a.group("group", "List, describe, explain, move and delete consumer groups, and see how far behind they are",
		newGroupListCommand(a), newGroupDescribeCommand(a), newGroupLagCommand(a), newGroupExplainCommand(a),
		newGroupSeekCommand(a), newGroupDeleteCommand(a))
	a.clientFlags(cmd)
	return cmd
}

// listedGroup is a group as its coordinator lists it.
type listedGroup struct {
	name, kind, protocolType, state string
	coordinator                     int32
}

func (g *listedGroup) empty() bool { return g.state == "Empty" || g.state == "Dead" }

// groupList is what the brokers list. failed are those that did not: their groups are missing.
type groupList struct {
	groups map[string]*listedGroup
	failed map[int32]error
}

// withGroups is a command that begins with the list of groups.
func (a *app) withGroups(do func(ctx context.Context, s *session, l *groupList, names []string) error) func(*cobra.Command, []string) error {
	return a.run(func(ctx context.Context, names []string) error {
		return a.ask(ctx, func(ctx context.Context, s *session) error {
			l, err := s.groups(ctx)
			if err != nil {
				return err
			}
			return do(ctx, s, l, names)
		})
	})
}

// names are the groups by name.
func (l *groupList) names() []string { return slices.Sorted(maps.Keys(l.groups)) }

// groups asks every broker for its groups, again for a while where one is still loading them.
func (s *session) groups(ctx context.Context) (*groupList, error) {
	m, err := s.admin.BrokerMetadata(ctx)
	if err != nil {
		return nil, err
	}
	l := &groupList{groups: map[string]*listedGroup{}, failed: map[int32]error{}}
	limit(ctx, brokerAnswers, func(ctx context.Context) {
		var mu sync.Mutex
		var asking sync.WaitGroup
		for _, broker := range m.Brokers.NodeIDs() {
			asking.Go(func() {
				resp, err := s.listGroups(ctx, broker)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					l.failed[broker] = err
				} else {
					l.add(resp, broker)
				}
			})
		}
		asking.Wait()
	})
	if len(l.failed) == len(m.Brokers) {
		for _, broker := range slices.Sorted(maps.Keys(l.failed)) {
			if err := l.failed[broker]; !kerr.IsRetriable(err) { // else what was committed is known all the same
				return nil, err
			}
		}
	}
	return l, nil
}

// listGroups asks one broker, as long as it answers that it is loading them.
func (s *session) listGroups(ctx context.Context, broker int32) (*kmsg.ListGroupsResponse, error) {
	for {
		resp, err := kmsg.NewPtrListGroupsRequest().RequestWith(ctx, s.client.Broker(int(broker)))
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if !errors.Is(err, kerr.CoordinatorLoadInProgress) {
			return resp, err
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (l *groupList) add(resp *kmsg.ListGroupsResponse, broker int32) {
	for i := range resp.Groups {
		g := &resp.Groups[i]
		kind := g.GroupType
		if kind == "" {
			kind = "classic"
		}
		l.groups[g.Group] = &listedGroup{g.Group, kind, g.ProtocolType, g.GroupState, broker}
	}
}

// find gives the groups that were named. One that nobody has is an error that names the nearest, or says who could not be asked.
func (l *groupList) find(s *session, names []string) ([]*listedGroup, error) {
	found := make([]*listedGroup, 0, len(names))
	for _, name := range names {
		g := l.groups[name]
		if g == nil {
			return nil, l.missing(s, name)
		}
		found = append(found, g)
	}
	return found, nil
}

// orUnknown is a group, of unknown state where nobody lists it.
func (l *groupList) orUnknown(name string) *listedGroup {
	if g := l.groups[name]; g != nil {
		return g
	}
	return &listedGroup{name: name, kind: "classic", state: "Unknown", coordinator: -1}
}

func (l *groupList) missing(s *session, name string) *cliError {
	e := kafkaError("group "+name, kerr.GroupIDNotFound, "no such group")
	e.try = "keeplog group list"
	for _, broker := range slices.Sorted(maps.Keys(l.failed)) {
		e = &cliError{msg: "group " + name + ": its coordinator cannot be asked", code: "COORDINATOR_NOT_AVAILABLE", exit: exitUnreachable, try: "keeplog cluster health"}
		e.why = "broker " + strconv.Itoa(int(broker)) + " does not list its groups: " + whyShort(l.failed[broker])
		return e
	}
	if near := nearest(name, l.names()); near != "" {
		e.why, e.try = "there is a group "+near, s.app.instead(name, near)
	}
	return e
}

// whyShort is an error in a few words.
func whyShort(err error) string {
	var ke *kerr.Error
	switch {
	case errors.As(err, &ke):
		return ke.Message
	case errors.Is(err, context.DeadlineExceeded), isNetwork(err):
		return netReason(err)
	}
	return lastPart(err)
}

// complain says that a broker did not list its groups, nil when all did.
func (l *groupList) complain() error {
	if len(l.failed) == 0 {
		return nil
	}
	broker := slices.Min(slices.Collect(maps.Keys(l.failed)))
	e := &cliError{msg: "not all groups are listed", code: "PARTIAL", exit: exitPart, try: "keeplog cluster health"}
	e.why = "broker " + strconv.Itoa(int(broker)) + " does not list its groups: " + whyShort(l.failed[broker])
	if len(l.groups) == 0 {
		e.msg, e.code, e.exit = "no groups are listed", "COORDINATOR_NOT_AVAILABLE", exitUnreachable
	}
	return e
}

type groupRow struct {
	Group       string `json:"group"`
	State       string `json:"state"`
	Type        string `json:"type"`
	Protocol    string `json:"protocol_type"`
	Members     *int   `json:"members"` // null: its coordinator did not tell
	Coordinator int32  `json:"coordinator"`
	Lag         *int64 `json:"lag"` // null: it has committed nothing, or a leader did not tell
}

func newGroupListCommand(a *app) *cobra.Command {
	var states, kinds []string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the groups with state, members, coordinator and total lag", Args: wantsArgs(0, 0),
		RunE: a.withGroups(func(ctx context.Context, s *session, l *groupList, _ []string) error {
			maps.DeleteFunc(l.groups, func(_ string, g *listedGroup) bool {
				return len(states) > 0 && !containsFold(states, g.state) || len(kinds) > 0 && !containsFold(kinds, g.kind)
			})
			rows, sums, err := s.groupRows(ctx, l)
			if err != nil {
				return err
			}
			if err := a.showGroups(rows); err != nil {
				return err
			}
			if err := l.complain(); err != nil {
				return err
			}
			return sums.complain(l)
		}),
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "only groups in these `STATES`: Stable, Empty, PreparingRebalance, …")
	cmd.Flags().StringSliceVar(&kinds, "type", nil, "only groups of these `TYPES`: classic, consumer")
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions([]string{
		"Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Dead",
	}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions([]string{"classic", "consumer"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func containsFold(list []string, s string) bool {
	return slices.ContainsFunc(list, func(x string) bool { return strings.EqualFold(x, s) })
}

// groupRows adds the lags and the number of members: those without members need not be asked for them.
func (s *session) groupRows(ctx context.Context, l *groupList) ([]groupRow, *lagAnswers, error) {
	var views map[string]*groupView
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		views = s.describeGroups(ctx, l, l.names())
	}()
	sums, err := s.lagSums(ctx, l)
	<-asked
	if err != nil {
		return nil, nil, err
	}
	rows := []groupRow{}
	for _, name := range l.names() {
		g := l.groups[name]
		r := groupRow{Group: name, State: g.state, Type: g.kind, Protocol: g.protocolType, Coordinator: g.coordinator}
		if v := views[name]; v.err == nil {
			n := len(v.members)
			r.Members = &n
		}
		if sum, ok := sums.sums[name]; ok {
			r.Lag = &sum
		}
		rows = append(rows, r)
	}
	return rows, sums, nil
}

// complain says of which of the groups the lag is not known, nil when it is of all that have committed.
func (a *lagAnswers) complain(l *groupList) error {
	if err := leftOut(a.failed); err != nil {
		return err
	}
	var names []string
	for _, name := range l.names() {
		if a.missing[name] {
			names = append(names, name)
		}
	}
	return lagNotKnown(names)
}

func (a *app) showGroups(rows []groupRow) error {
	items := make([]any, len(rows))
	cells := make([][]string, len(rows))
	for i, r := range rows {
		items[i] = r
		members, lag := "-", "-"
		if r.Members != nil {
			members = strconv.Itoa(*r.Members)
		}
		if r.Lag != nil {
			lag = strconv.FormatInt(*r.Lag, 10)
		}
		cells[i] = []string{r.Group, r.State, r.Type, members, strconv.Itoa(int(r.Coordinator)), lag}
		if a.flags.output == "wide" {
			cells[i] = append(cells[i], r.Protocol)
		}
	}
	head := []string{"GROUP", "STATE", "TYPE", "MEMBERS", "COORDINATOR", "LAG"}
	if a.flags.output == "wide" {
		head = append(head, "PROTOCOL")
	}
	body := struct {
		Version int        `json:"version"`
		Groups  []groupRow `json:"groups"`
	}{1, rows}
	return a.show(result{body: body, items: items, text: func(t *text) {
		if len(rows) > 0 {
			t.table(head, cells)
		}
	}})
}

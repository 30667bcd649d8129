package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/keeplog/keeplog/lag"
)

// stuckAfter is how long a committed offset may stay while records wait before it counts as stuck.
const stuckAfter = 30 * time.Second

func newGroupExplainCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "explain GROUP...", Short: "Say why groups make no progress, and what to do", Args: wantsArgs(1, -1),
		ValidArgsFunction: a.completeGroups(0),
		RunE: a.withGroups(func(ctx context.Context, s *session, l *groupList, names []string) error {
			all := make([]explanation, 0, len(names))
			for _, name := range names {
				e, err := s.explainGroup(ctx, l, name)
				if err != nil {
					return err
				}
				all = append(all, *e)
			}
			return a.showExplanations(all)
		}),
	}
}

// explanation says how a group is.
type explanation struct {
	Group    string    `json:"group"`
	State    string    `json:"state"`
	Summary  string    `json:"summary"`
	Findings []finding `json:"findings"`
}

// finding is one thing that is wrong, or worth knowing.
type finding struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Try     string `json:"try,omitempty"`
}

func (e *explanation) add(code, try, format string, args ...any) {
	e.Findings = append(e.Findings, finding{code, fmt.Sprintf(format, args...), try})
}

func (a *app) showExplanations(all []explanation) error {
	items := make([]any, len(all))
	for i := range all {
		items[i] = all[i]
	}
	body := struct {
		Version int           `json:"version"`
		Groups  []explanation `json:"groups"`
	}{1, all}
	return a.show(result{body: body, items: items, text: func(t *text) {
		for i := range all {
			if i > 0 {
				t.line("")
			}
			t.line("group %s: %s", all[i].Group, all[i].Summary)
			for _, f := range all[i].Findings {
				t.line("- %s", f.Message)
				if f.Try != "" {
					t.line("  try: %s", strings.ReplaceAll(f.Try, "\n", "\n       "))
				}
			}
		}
	}})
}

// explainGroup looks at everything that holds a group up. A group whose coordinator does not answer is explained too.
func (s *session) explainGroup(ctx context.Context, l *groupList, name string) (*explanation, error) {
	e := &explanation{Group: name, Findings: []finding{}}
	whole := &groupList{groups: map[string]*listedGroup{name: l.orUnknown(name)}, failed: l.failed}
	all, failed, err := s.lags(ctx, whole, []string{name})
	if err != nil {
		return nil, err
	}
	x := explaining{e, &all[0], s.app.now(), shellWord(name)}
	unreachable := x.lag.view.unreachable()
	if v := x.lag.view; l.groups[name] == nil && (errors.Is(v.err, kerr.GroupIDNotFound) || v.err == nil && v.state == "Dead") {
		return nil, (&groupList{groups: l.groups}).missing(s, name) // the coordinator says so
	}
	if l.groups[name] == nil && (unreachable == nil || len(x.lag.Partitions) == 0 && len(l.failed) == 0) {
		return nil, l.missing(s, name)
	}
	if e.State = x.lag.State; unreachable != nil {
		e.State = "Unknown"
	}
	e.Summary = x.summary(unreachable)
	if unreachable != nil {
		e.add("COORDINATOR", "keeplog cluster health", "its coordinator cannot be reached (%s): members can neither join nor commit", whyShort(unreachable))
	}
	for _, broker := range slices.Sorted(maps.Keys(failed)) {
		e.add("BROKER", "keeplog cluster health", "broker %d does not answer (%s): nothing can be read from the partitions that it leads", broker, whyShort(failed[broker]))
	}
	x.partitions()
	if unreachable == nil {
		x.members()
		x.progress()
	}
	return e, nil
}

// unreachable is why nobody answers for the group, nil when somebody does.
func (v *groupView) unreachable() error {
	switch {
	case errors.Is(v.err, kerr.GroupIDNotFound): // an answer
		return nil
	case errors.Is(v.err, context.DeadlineExceeded):
		return kerr.CoordinatorNotAvailable
	}
	return v.err
}

// explaining is what is known of one group.
type explaining struct {
	*explanation
	lag  *groupLag
	now  time.Time
	word string // the group's name, for a shell
}

func (x *explaining) summary(unreachable error) string {
	parts := []string{}
	if unreachable == nil {
		parts = append(parts, x.lag.State, count(int64(len(x.lag.view.members)), "member"))
	}
	switch {
	case len(x.lag.Partitions) == 0:
		parts = append(parts, "nothing is committed")
	case x.lag.Lag == nil:
		parts = append(parts, "its lag is not known")
	case x.lag.untold() > 0:
		parts = append(parts, fmt.Sprintf("lag at least %d, not known in %s", *x.lag.Lag, count(int64(x.lag.untold()), "partition")))
	case *x.lag.Lag == 0:
		parts = append(parts, "all is read")
	default:
		parts = append(parts, "lag "+numberOr(x.lag.Lag), behindText(x.lag.Behind)+" behind")
	}
	return strings.Join(parts, ", ")
}

// partitions says what is wrong with the partitions that the group reads.
func (x *explaining) partitions() {
	var leaderless, gone, beyond []tp
	var start, end lagRow
	for i := range x.lag.Partitions {
		r := &x.lag.Partitions[i]
		switch {
		case r.Error == "no leader":
			leaderless = append(leaderless, r.key())
		case r.Committed == nil || r.End == nil || r.Start == nil:
		case *r.Committed < *r.Start:
			gone, start = append(gone, r.key()), *r
		case *r.Committed > *r.End:
			beyond, end = append(beyond, r.key()), *r
		}
	}
	if len(leaderless) > 0 {
		x.add("NO_LEADER", "keeplog cluster health", "%s without a leader, nobody can read there: %s", isAre(len(leaderless), "partition"), ranges(leaderless))
	}
	if len(gone) > 0 {
		x.add("OUT_OF_RANGE", "keeplog group seek "+x.word+" --to start --topic "+topicsOf(gone),
			"the committed offset is out of range in %s: in %s it is %d, and the log begins at %d; what lies between was deleted unread. A client goes on by its auto.offset.reset, or fails",
			ranges(gone), ranges([]tp{start.key()}), *start.Committed, *start.Start)
	}
	if len(beyond) > 0 {
		x.add("OUT_OF_RANGE", "keeplog group seek "+x.word+" --to end --topic "+topicsOf(beyond),
			"the committed offset is out of range in %s: in %s it is %d, and the log ends at %d; perhaps the topic was made anew", ranges(beyond), ranges([]tp{end.key()}), *end.Committed, *end.End)
	}
}

// topicsOf is the first of the topics, with its partitions, as --topic takes them.
func topicsOf(keys []tp) string {
	var numbers []string
	for _, key := range keys {
		if key.topic == keys[0].topic {
			numbers = append(numbers, strconv.Itoa(int(key.partition)))
		}
	}
	return shellWord(keys[0].topic + ":" + strings.Join(numbers, ","))
}

// members says what is wrong with the membership.
func (x *explaining) members() {
	v := x.lag.view
	switch {
	case len(v.members) == 0:
		x.empty()
		return
	case v.state == "PreparingRebalance":
		x.rebalancing("join again", "a client that is busy with records does not join: it is put out when its max.poll.interval.ms is over")
	case v.state == "CompletingRebalance":
		x.rebalancing("say who reads what, as the leader of the group", "it usually takes milliseconds; if it stays, restart that client")
	case v.kind == "consumer" && v.state != "Stable":
		x.reconciling()
	}
	if v.state == "Stable" {
		x.idle()
		x.unread()
	}
}

// empty says that nobody reads, and since when at least.
func (x *explaining) empty() {
	var last *lagRow
	topics := map[string]bool{}
	for i := range x.lag.Partitions {
		r := &x.lag.Partitions[i]
		topics[r.Topic] = true
		if r.CommittedAt != nil && (last == nil || *r.CommittedAt > *last.CommittedAt) {
			last = r
		}
	}
	try := "keeplog consume -g " + x.word
	for _, t := range slices.Sorted(maps.Keys(topics)) {
		try += " " + shellWord(t)
	}
	if len(topics) == 0 {
		try += " TOPIC"
	}
	if last == nil {
		x.add("NO_MEMBERS", try, "it has no members, and nobody has committed anything")
		return
	}
	at, _ := time.Parse(time.RFC3339, *last.CommittedAt)
	x.add("NO_MEMBERS", try, "it has no members: nobody reads. The last commit was at %s, %s ago", *last.CommittedAt, shortTime(x.now.Sub(at)))
}

func (x *explaining) rebalancing(what, note string) {
	var awaited []string
	v := x.lag.view
	for i := range v.members {
		if v.members[i].Awaited {
			awaited = append(awaited, v.members[i].name())
		}
	}
	try := "keeplog group explain " + x.word + "\nand look at those clients: " + note
	if len(awaited) == 0 {
		x.add("REBALANCING", "keeplog group explain "+x.word, "it is rebalancing and waits for more members (group.initial.rebalance.delay.ms), or for what was decided to be stored; nobody reads meanwhile")
		return
	}
	x.add("REBALANCING", try, "it is rebalancing and waits for %s to %s; nobody gets partitions meanwhile", someOf(awaited), what)
}

// reconciling says who has not got what it is to have.
func (x *explaining) reconciling() {
	v := x.lag.view
	var late []string
	for i := range v.members {
		m := &v.members[i]
		var give []tp
		for _, key := range m.Partitions {
			if !slices.Contains(m.Target, key) {
				give = append(give, key)
			}
		}
		switch {
		case len(give) > 0:
			late = append(late, m.name()+" to give up "+ranges(give))
		case m.Epoch != nil && *m.Epoch < v.assignedEpoch:
			late = append(late, m.name()+" to take its new partitions")
		}
	}
	if len(late) == 0 {
		x.add("REBALANCING", "keeplog group explain "+x.word, "it is rebalancing: a new assignment is being made")
		return
	}
	x.add("REBALANCING", "keeplog group describe "+x.word, "it is rebalancing and waits for %s", someOf(late))
}

// idle says which members have nothing to read.
func (x *explaining) idle() {
	v := x.lag.view
	var none []string
	has := 0
	for i := range v.members {
		m := &v.members[i]
		if has += len(m.Partitions); len(m.Partitions) == 0 && len(m.Target) == 0 {
			none = append(none, m.name())
		}
	}
	switch {
	case len(none) == 0:
	case has == 0:
		subscribed := map[string]bool{}
		for _, m := range v.members {
			for _, t := range m.Subscribed {
				subscribed[t] = true
			}
		}
		what := "no topics"
		if len(subscribed) > 0 {
			what = strings.Join(slices.Sorted(maps.Keys(subscribed)), ", ")
		}
		x.add("NO_PARTITIONS", "keeplog topic list", "no member has partitions: they subscribe to %s; the topics may not exist", what)
	default:
		x.add("IDLE_MEMBERS", "keeplog topic grow TOPIC --partitions N, or fewer consumers", "%s no partitions: %s; there are only %d, and each goes to one member",
			map[bool]string{true: "1 member holds", false: count(int64(len(none)), "member") + " hold"}[len(none) == 1], someOf(none), has)
	}
}

// unread says which topics with committed offsets nobody reads any more.
func (x *explaining) unread() {
	var nobody []tp
	var waits int64
	for i := range x.lag.Partitions {
		if r := &x.lag.Partitions[i]; r.owner == nil && r.Lag != nil && *r.Lag > 0 {
			nobody, waits = append(nobody, r.key()), waits+*r.Lag
		}
	}
	if len(nobody) > 0 && x.lag.State == "Stable" {
		x.add("NOT_READ", "keeplog group describe "+x.word, "no member has %s, where %s not read: the members do not subscribe to it", ranges(nobody), isAre(int(waits), "record"))
	}
}

// progress says which members commit nothing, and how the group goes on where all is well.
func (x *explaining) progress() {
	type stuck struct {
		keys  []tp // of which something is committed in those in moved
		moved []tp
		since time.Time
		waits int64
	}
	of := map[*groupMember]*stuck{}
	for i := range x.lag.Partitions {
		r := &x.lag.Partitions[i]
		if r.owner == nil || x.lag.State != "Stable" {
			continue
		}
		never := r.Committed == nil && r.End != nil && r.Start != nil && *r.End > *r.Start
		if !never && (r.Lag == nil || *r.Lag == 0 || r.moved.IsZero() || x.now.Sub(r.moved) < stuckAfter) {
			continue
		}
		m := of[r.owner]
		if m == nil {
			m = &stuck{}
			of[r.owner] = m
		}
		m.keys = append(m.keys, r.key())
		if !never {
			m.moved = append(m.moved, r.key())
			if r.moved.After(m.since) {
				m.since = r.moved
			}
		}
		m.waits += orZero(r.Lag)
		if never {
			m.waits += *r.End - *r.Start
		}
	}
	members := slices.SortedFunc(maps.Keys(of), func(a, b *groupMember) int { return cmp.Compare(a.name(), b.name()) })
	for _, m := range members {
		s := of[m]
		did, past := "nothing was ever committed there", "--to start+1 --topic "+topicsOf(s.keys)
		if len(s.moved) > 0 {
			did, past = "what is committed there has not moved for "+shortTime(x.now.Sub(s.since)), "--to +1 --topic "+topicsOf(s.moved)
		}
		x.add("STUCK", "look at what that client does with the record it is at; if it never comes past it: keeplog group seek "+x.word+" "+past+" when the group is stopped",
			"%s has %s, and %s, while %s", m.name(), ranges(s.keys), did, waitText(s.waits))
	}
	x.pace(len(of) > 0)
}

func waitText(n int64) string {
	if n == 1 {
		return "1 record waits"
	}
	return count(n, "record") + " wait"
}

// pace says how the group goes on as a whole.
func (x *explaining) pace(stuck bool) {
	g := x.lag
	in, out := g.In, g.Out
	switch {
	case len(g.view.members) == 0 || g.Lag == nil || stuck || g.State != "Stable":
	case *g.Lag == 0 && in != nil && *in == 0:
		x.add("NOTHING_NEW", "", "it has read everything, and nothing new comes in: the committed offsets stay because the ends do")
	case *g.Lag == 0:
		x.add("UP_TO_DATE", "", "it has read everything")
	case in == nil || out == nil:
	case *out > *in:
		if d, ok := lag.Drain(*g.Lag, *in, *out); ok {
			x.add("CATCHING_UP", "", "it catches up: %s/s come in, %s/s are read, all is read in about %s", rateText(in), rateText(out), shortTime(d))
		}
	case g.Trend == "up":
		x.add("TOO_SLOW", "more members, up to one for each partition, or faster ones", "it is too slow: %s/s come in, %s/s are read", rateText(in), rateText(out))
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/lag"
	"github.com/keeplog/keeplog/server/api"
)

// groupsAtOnce is how many groups one question about lag names.
const groupsAtOnce = 4000

// lagAnswers are what the brokers said. failed are those that did not.
type lagAnswers struct {
	lines  []lag.Line
	sums   map[string]int64
	failed map[int32]error
	// missing are the groups whose sums lack a partition that nobody tells of.
	missing map[string]bool
	// foreign says that a broker answered without knowing the question.
	foreign bool
	// more says that an answer about all groups, or about one, did not have room for everything.
	more bool
}

// askLag asks every broker once for each few thousand groups. One tells what was committed in the partitions of others as well, so that those are
// not left out whose leader does not answer, or is another one by now.
func (s *session) askLag(ctx context.Context, brokers []int32, q *lag.Query) *lagAnswers {
	out := &lagAnswers{sums: map[string]int64{}, failed: map[int32]error{}, missing: map[string]bool{}}
	if len(q.Groups) == 0 {
		s.askSome(ctx, brokers, q, out)
	}
	for groups := range slices.Chunk(q.Groups, groupsAtOnce) {
		s.askSome(ctx, brokers, &lag.Query{Sums: q.Sums, Groups: groups}, out)
	}
	return out
}

func (s *session) askSome(ctx context.Context, brokers []int32, q *lag.Query, out *lagAnswers) {
	var mu sync.Mutex
	var asking sync.WaitGroup
	var lines []lag.Line
	var sums []lag.Sum
	var missing []string
	more := false
	for i, broker := range brokers {
		asking.Go(func() {
			a, err := s.askOne(ctx, broker, &lag.Query{Sums: q.Sums, Others: i == 0 && !q.Sums, Groups: q.Groups})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				out.failed[broker] = err
			case a == nil:
				out.foreign = true
			default:
				lines, sums, more = append(lines, a.Lines...), append(sums, a.Sums...), more || a.More
				missing = slices.AppendSeq(missing, maps.Keys(a.Missing))
			}
		})
	}
	asking.Wait()
	if n := len(q.Groups); more && n > 1 {
		s.askSome(ctx, brokers, &lag.Query{Sums: q.Sums, Groups: q.Groups[:n/2]}, out)
		s.askSome(ctx, brokers, &lag.Query{Sums: q.Sums, Groups: q.Groups[n/2:]}, out)
		return
	} else if more && n == 1 {
		missing = append(missing, q.Groups[0])
	}
	out.more = out.more || more
	out.lines = append(out.lines, lines...)
	for _, sum := range sums {
		out.sums[sum.Group] += sum.Lag
	}
	for _, group := range missing {
		out.missing[group] = true
	}
	if len(brokers) > 0 && out.failed[brokers[0]] != nil && !q.Sums {
		s.askOthers(ctx, brokers, q, out)
	}
}

// askOthers is for when the one that was to tell of others' partitions did not answer.
func (s *session) askOthers(ctx context.Context, brokers []int32, q *lag.Query, out *lagAnswers) {
	for _, broker := range brokers {
		if out.failed[broker] != nil {
			continue
		}
		if a, err := s.askOne(ctx, broker, &lag.Query{Others: true, Groups: q.Groups}); err == nil && a != nil {
			out.lines = append(out.lines, a.Lines...)
			return
		}
	}
}

// askOne asks one broker; nil is the answer of one that does not know the question.
func (s *session) askOne(ctx context.Context, broker int32, q *lag.Query) (*lag.Answer, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.UnknownTags.Set(api.TagLag, lag.AppendQuery(nil, q))
	resp, err := req.RequestWith(ctx, s.client.Broker(int(broker)))
	if err != nil {
		return nil, err
	}
	var a *lag.Answer
	resp.UnknownTags.Each(func(key uint32, value []byte) {
		if key == api.TagLag {
			a, err = lag.ParseAnswer(value)
		}
	})
	return a, err
}

// lagSums are the total lags of the groups that have committed. Of a group there is no sum where a part of it is not known: so there is none at
// all while a broker does not answer, because nobody says which groups have committed there.
func (s *session) lagSums(ctx context.Context, l *groupList) (*lagAnswers, error) {
	m, err := s.admin.BrokerMetadata(ctx)
	if err != nil {
		return nil, err
	}
	q := &lag.Query{Sums: true}
	if len(l.groups) > lag.MaxLines/2 { // an answer may not have them all
		q.Groups = l.names()
	}
	answers := s.askLag(ctx, m.Brokers.NodeIDs(), q)
	if names := l.names(); answers.more && len(q.Groups) == 0 && len(names) > 0 {
		answers = s.askLag(ctx, m.Brokers.NodeIDs(), &lag.Query{Sums: true, Groups: names})
	}
	for group := range answers.missing {
		delete(answers.sums, group)
	}
	if len(answers.failed) > 0 {
		clear(answers.sums)
	}
	return answers, nil
}

// pace is how a group goes on.
type pace struct {
	In    *float64 `json:"rate_in"` // records a second
	Out   *float64 `json:"rate_out"`
	Trend string   `json:"trend"`
	Drain *float64 `json:"drain_seconds"` // until all is read; null: never at this pace
}

var noPace = pace{Trend: lag.TrendUnknown.String()}

// paceOf makes a pace of rates of which one below zero is not known.
func paceOf(behind int64, in, out float64, trend lag.Trend) pace {
	p := pace{In: known(in), Out: known(out), Trend: trend.String()}
	if d, ok := lag.Drain(behind, in, out); ok {
		seconds := d.Seconds()
		p.Drain = &seconds
	}
	return p
}

// lagRow is a group in a partition. What is not known is null.
type lagRow struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed *int64 `json:"committed_offset"`
	Start     *int64 `json:"start_offset"`
	End       *int64 `json:"end_offset"`
	Lag       *int64 `json:"lag"`
	Behind    *int64 `json:"behind_ms"`
	pace
	// CommittedAt is when the group committed last, Moved since when the offset is what it is.
	CommittedAt *string `json:"committed_at"`
	Moved       *string `json:"unchanged_since"`
	Member      *string `json:"member_id"`
	Client      *string `json:"client_id"`
	Host        *string `json:"host"`
	Error       string  `json:"error,omitempty"`

	moved time.Time // zero where it is not known, as from a broker that computes no lags
	owner *groupMember
}

func (r *lagRow) key() tp { return tp{r.Topic, r.Partition} }

func known[T int64 | float64](n T) *T {
	if n < 0 {
		return nil
	}
	return &n
}

func stamp(ms int64) *string {
	if ms < 0 {
		return nil
	}
	s := time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
	return &s
}

func newLagRow(topic string, l *lag.Line) lagRow {
	r := lagRow{
		Topic: topic, Partition: l.Partition.Partition, Committed: known(int64(l.Committed)), Start: known(int64(l.Start)), End: known(int64(l.End)),
		Lag: known(l.Lag()), Behind: known(l.Behind), pace: paceOf(l.Lag(), l.In, l.Out, l.Trend),
		CommittedAt: stamp(l.CommittedAt), Moved: stamp(l.Moved),
	}
	if l.Moved >= 0 {
		r.moved = time.UnixMilli(l.Moved)
	}
	switch {
	case l.Leaderless:
		r.Error = "no leader"
	case l.End < 0:
		r.Error = "its leader does not tell"
	}
	return r
}

// groupLag is how far one group is behind.
type groupLag struct {
	Group       string `json:"group"`
	State       string `json:"state"`
	Type        string `json:"type"`
	Coordinator int32  `json:"coordinator"`
	Members     *int   `json:"members"` // null: its coordinator did not tell
	Lag         *int64 `json:"lag"`     // null: nothing is known
	Unknown     int    `json:"unknown_partitions"`
	Behind      *int64 `json:"behind_ms"`
	pace
	ByMember   []byOne  `json:"by_member"`
	Partitions []lagRow `json:"partitions"`

	view *groupView
}

// byOne is the lag of the partitions of one member.
type byOne struct {
	groupMember
	Count  int    `json:"partitions"`
	Lag    *int64 `json:"lag"`
	Behind *int64 `json:"behind_ms"`

	untold int // partitions whose end nobody tells
}

func (o *byOne) add(r *lagRow) {
	addTo(&o.Lag, r.Lag)
	raise(&o.Behind, r.Behind)
	if r.untold() {
		o.untold++
	}
}

// lags are the lags of groups that are listed, in the order of names. failed are the brokers that did not answer.
func (s *session) lags(ctx context.Context, l *groupList, names []string) ([]groupLag, map[int32]error, error) {
	var views map[string]*groupView
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		views = s.describeGroups(ctx, l, names)
	}()
	m, err := s.admin.Metadata(ctx)
	if err != nil {
		<-asked
		return nil, nil, err
	}
	topics := map[[16]byte]string{}
	for name, d := range m.Topics {
		topics[d.ID] = name
	}
	answers := s.askLag(ctx, m.Brokers.NodeIDs(), &lag.Query{Groups: names})
	<-asked
	rows := map[string]map[tp]lagRow{}
	for i := range answers.lines {
		line := &answers.lines[i]
		topic, ok := topics[line.Topic]
		if !ok {
			continue
		}
		of := rows[line.Group]
		if of == nil {
			of = map[tp]lagRow{}
			rows[line.Group] = of
		}
		r := newLagRow(topic, line)
		if was, ok := of[r.key()]; !ok || was.End == nil {
			of[r.key()] = r
		}
	}
	if answers.foreign {
		if err := s.foreignLag(ctx, names, rows); err != nil {
			return nil, nil, err
		}
	}
	s.addUncommitted(ctx, views, rows)
	out := make([]groupLag, 0, len(names))
	for _, name := range names {
		out = append(out, sumUp(views[name], rows[name]))
	}
	return out, answers.failed, nil
}

// foreignLag is for brokers that do not compute lags: what can be told from offsets alone.
func (s *session) foreignLag(ctx context.Context, names []string, rows map[string]map[tp]lagRow) error {
	var fetched kadm.FetchOffsetsResponses
	limit(ctx, brokerAnswers, func(ctx context.Context) { fetched = s.admin.FetchManyOffsets(ctx, names...) })
	var keys []tp
	for _, name := range names {
		of, ok := fetched[name]
		if !ok {
			of.Err = kerr.CoordinatorNotAvailable
		}
		if of.Err == nil {
			of.Err = of.Fetched.Error()
		}
		if of.Err != nil {
			return s.answered("group "+name, of.Err, "")
		}
		rows[name] = map[tp]lagRow{}
		for _, o := range of.Fetched.Sorted() {
			if key := (tp{o.Topic, o.Partition}); o.At >= 0 {
				rows[name][key] = lagRow{Topic: o.Topic, Partition: o.Partition, Committed: known(o.At), pace: noPace}
				keys = append(keys, key)
			}
		}
	}
	slices.SortFunc(keys, tp.compare)
	b, err := s.bounds(ctx, slices.Compact(keys), boundsOptions{wantEnd: true, patience: min(toExplain, s.app.flags.timeout/4)})
	if err != nil {
		return err
	}
	for _, of := range rows {
		for key, r := range of {
			r.within(b)
			of[key] = r
		}
	}
	return nil
}

// within adds the bounds of the partition, and what follows from them.
func (r *lagRow) within(b *bounds) {
	end, ok := b.end[r.key()]
	if err := b.failed[r.key()]; err != nil || !ok {
		if r.Error = "its leader does not tell"; errors.Is(err, kerr.LeaderNotAvailable) {
			r.Error = "no leader"
		}
		return
	}
	start := b.start[r.key()]
	r.Start, r.End = known(start), known(end)
	if r.Committed == nil {
		return
	}
	r.Lag = known(max(0, end-max(*r.Committed, start)))
	if *r.Lag == 0 {
		r.Behind = new(int64)
	}
}

// addUncommitted adds rows for partitions that a member has and in which nothing is committed.
func (s *session) addUncommitted(ctx context.Context, views map[string]*groupView, rows map[string]map[tp]lagRow) {
	missing := map[tp]bool{}
	for name, v := range views {
		for key := range v.owners() {
			if _, ok := rows[name][key]; ok {
				continue
			}
			missing[key] = true
			if rows[name] == nil {
				rows[name] = map[tp]lagRow{}
			}
			rows[name][key] = lagRow{Topic: key.topic, Partition: key.partition, pace: noPace}
		}
	}
	if len(missing) == 0 {
		return
	}
	keys := slices.SortedFunc(maps.Keys(missing), tp.compare)
	b, err := s.bounds(ctx, keys, boundsOptions{wantEnd: true, patience: min(toExplain, s.app.flags.timeout/4)})
	if err != nil {
		return
	}
	for _, of := range rows {
		for key, r := range of {
			if missing[key] && r.Committed == nil {
				r.within(b)
				of[key] = r
			}
		}
	}
}

// sumUp adds members and totals.
func sumUp(v *groupView, rows map[tp]lagRow) groupLag {
	g := groupLag{
		Group: v.name, State: v.state, Type: v.kind, Coordinator: v.coordinator, pace: noPace,
		ByMember: []byOne{}, Partitions: []lagRow{}, view: v,
	}
	if v.err == nil {
		n := len(v.members)
		g.Members = &n
	}
	owners := v.owners()
	of := map[*groupMember]*byOne{}
	for i := range v.members {
		m := &v.members[i]
		of[m] = &byOne{groupMember: *m, Count: len(m.Partitions)}
	}
	var total lag.Rates
	for _, key := range slices.SortedFunc(maps.Keys(rows), tp.compare) {
		r := rows[key]
		if m := owners[key]; m != nil {
			r.owner, r.Member, r.Client, r.Host = m, &m.ID, &m.ClientID, &m.Host
			of[m].add(&r)
		}
		g.Partitions = append(g.Partitions, r)
		addTo(&g.Lag, r.Lag)
		raise(&g.Behind, r.Behind)
		if r.Lag == nil {
			g.Unknown++
			continue
		}
		total.Add(*r.Lag, r.In, r.Out)
	}
	for i := range v.members {
		g.ByMember = append(g.ByMember, *of[&v.members[i]])
	}
	if in, out, ok := total.Sum(); ok {
		g.pace = paceOf(*g.Lag, in, out, total.Trend())
	}
	return g
}

func addTo(sum **int64, n *int64) {
	if n == nil {
		return
	}
	if *sum == nil {
		*sum = new(int64)
	}
	**sum += *n
}

func raise(most **int64, n *int64) {
	if n != nil && (*most == nil || **most < *n) {
		v := *n
		*most = &v
	}
}

// leftOut says which brokers did not tell, as an error with exit code 3; nil when all did.
func leftOut(failed map[int32]error) error {
	for _, broker := range slices.Sorted(maps.Keys(failed)) {
		return &cliError{
			msg: fmt.Sprintf("broker %d does not answer: lags of the partitions that it leads are missing", broker), why: whyShort(failed[broker]),
			code: "PARTIAL", exit: exitPart, try: "keeplog cluster health",
		}
	}
	return nil
}

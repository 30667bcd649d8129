package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The commands about a whole cluster, "keeplog cluster". They speak the Kafka protocol and nothing else, so they say of Apache
// Kafka what it tells.
//
// The nouns: a clusterView is what brokers answered at one time; problems are what a view shows to be wrong; a move is a
// partition and its replicas before and after; each is shown before it is done.

func newClusterCommand(a *app) *cobra.Command {
	cmd := a.group("cluster", "Health, brokers, and moving work between them",
		newClusterInfoCommand(a), newClusterHealthCommand(a), newClusterBrokersCommand(a), newClusterDrainCommand(a, true),
		newClusterDrainCommand(a, false), newClusterAddCommand(a), newClusterRemoveCommand(a), newClusterLeaderCommand(a),
		newClusterReassignCommand(a))
	a.clientFlags(cmd)
	return cmd
}

// clusterView is what the cluster told about itself.
type clusterView struct {
	id         string
	controller int32 // −1: none is known
	brokers    []viewBroker
	topics     kadm.TopicDetails
	minISR     map[string]int
	unset      map[string]bool // topics whose min.insync.replicas nobody has set: it follows the replicas of each partition
	quorum     *viewQuorum     // nil when the brokers do not tell
	led        bool            // false: the metadata has no leader
	moving     []move          // reassignments under way
}

// viewBroker is one broker. Dirs is nil when it did not answer.
type viewBroker struct {
	id      int32
	address string
	rack    string
	fenced  bool // registered and not alive
	drained bool
	silent  bool // said to be alive, and does not answer us
	dirs    []viewDir
}

type viewDir struct {
	path         string
	failed       bool
	used         int64
	total, free  int64 // −1: not told
	lostRecords  []lostRecords
	lostPartOf   []string
	replicaCount int
}

// viewQuorum is who keeps the metadata log.
type viewQuorum struct {
	leader    int32
	term      int32
	committed int64
	voters    []quorumMember
	observers []quorumMember
}

// quorumMember is a node that keeps the metadata log. lag is in entries, idle in ms since it was last heard, −1 for not known.
type quorumMember struct {
	id        int32
	directory [16]byte
	lag       int64
	idle      int64
	host      string
	port      uint16
}

// A broker that does not answer, and a metadata log without a leader, may take so much of the time of a view.
const (
	brokerAnswers = 3 * time.Second
	leaderAnswers = 2 * time.Second
)

// view asks the cluster for everything that its commands need. What nobody answers is left out of it, and told by what is not there.
func (s *session) view(ctx context.Context) (*clusterView, error) {
	v := &clusterView{controller: -1, minISR: map[string]int{}, unset: map[string]bool{}}
	if err := s.viewCluster(ctx, v); err != nil {
		return nil, err
	}
	limit(ctx, brokerAnswers, func(ctx context.Context) { s.viewBrokers(ctx, v) }) // first: who is silent is known from then on
	topics, err := s.admin.ListTopicsWithInternal(ctx)
	if err != nil {
		return nil, err
	}
	v.topics = topics
	limit(ctx, brokerAnswers, func(ctx context.Context) { s.viewMinISR(ctx, v) })
	// Last what the leader of the metadata answers: a connection answers in order.
	limit(ctx, leaderAnswers, func(ctx context.Context) {
		switch v.quorum, v.led = askQuorum(ctx, s.home); {
		case v.quorum != nil:
			v.controller = v.quorum.leader // brokers name any of them as the one for administration
		case !v.led:
			v.controller = -1
		}
	})
	if v.led {
		limit(ctx, brokerAnswers, func(ctx context.Context) { v.moving, _ = s.movesUnderWay(ctx, v.topics) })
	}
	return v, nil
}

// ledView is a view that a change can be planned by: it waits until the metadata has a leader. That is asked first: without one, who is down
// may be what a view fails on.
func (s *session) ledView(ctx context.Context) (*clusterView, error) {
	for {
		if err := s.mustBeLed(ctx); err != nil {
			return nil, err
		}
		if v, err := s.view(ctx); err != nil || v.led {
			return v, err
		}
	}
}

// notLed says that no change can be made.
func notLed() *cliError {
	return &cliError{
		msg: "the metadata has no leader: nothing can be changed", code: kerr.NotController.Message, exit: exitUnreachable,
		why: "a majority of the nodes that vote must be up", try: "keeplog cluster health",
	}
}

// electionWait is how long a change waits for a leader of the metadata: as long as an election takes.
const electionWait = 4 * time.Second

// mustBeLed waits until the metadata has a leader. A change that is sent without one keeps the broker waiting for as long as --timeout.
func (s *session) mustBeLed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, electionWait)
	defer cancel()
	for {
		// Asked once for all that time, unless there is an answer: a connection answers in order, and the broker looks for a leader meanwhile.
		if _, led := askQuorum(ctx, s.home); led {
			return nil
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return notLed()
		}
	}
}

// withView does something with a view of the cluster, by which a change can be planned where change is set.
func (a *app) withView(ctx context.Context, change bool, do func(context.Context, *session, *clusterView) error) error {
	return a.ask(ctx, func(ctx context.Context, s *session) error {
		look := s.view
		if change {
			look = s.ledView
		}
		v, err := look(ctx)
		if err != nil {
			return err
		}
		return do(ctx, s, v)
	})
}

// limit gives do at most so much of the time that ctx has left, and at most half of it.
func limit(ctx context.Context, most time.Duration, do func(context.Context)) {
	if end, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(end)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	do(ctx)
}

// viewCluster finds the brokers, the fenced ones too where they are told.
func (s *session) viewCluster(ctx context.Context, v *clusterView) error {
	req := kmsg.NewPtrDescribeClusterRequest()
	req.IncludeFencedBrokers = true
	resp, err := req.RequestWith(ctx, s.home)
	if err != nil {
		if resp, err = req.RequestWith(ctx, s.client); err != nil {
			return err
		}
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return s.answered("cluster", err, orEmpty(resp.ErrorMessage))
	}
	v.id, v.controller = resp.ClusterID, resp.ControllerID
	for _, b := range resp.Brokers {
		vb := viewBroker{id: b.NodeID, address: fmt.Sprintf("%s:%d", b.Host, b.Port), fenced: b.IsFenced}
		if b.Rack != nil {
			vb.rack = *b.Rack
		}
		v.brokers = append(v.brokers, vb)
	}
	slices.SortFunc(v.brokers, func(a, b viewBroker) int { return int(a.id - b.id) })
	return nil
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// drainedKey is the broker setting that says that it is being emptied.
const drainedKey = "keeplog.broker.drained"

// viewMinISR finds min.insync.replicas of the topics; what is not told stays unknown.
func (s *session) viewMinISR(ctx context.Context, v *clusterView) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, name := range slices.Sorted(maps.Keys(v.topics)) {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, name, []string{"min.insync.replicas"}
		req.Resources = append(req.Resources, r)
	}
	for _, shard := range s.client.RequestSharded(ctx, req) {
		resp, ok := shard.Resp.(*kmsg.DescribeConfigsResponse)
		if shard.Err != nil || !ok {
			continue
		}
		for _, r := range resp.Resources {
			for _, c := range r.Configs {
				if n, err := strconv.Atoi(orEmpty(c.Value)); err == nil {
					v.minISR[r.ResourceName] = n
					v.unset[r.ResourceName] = c.Source == kmsg.ConfigSourceDefaultConfig
				}
			}
		}
	}
}

// minOf is min.insync.replicas of a partition; false where it is not known.
func (v *clusterView) minOf(p kadm.PartitionDetail) (int, bool) {
	need, known := v.minISR[p.Topic]
	if v.unset[p.Topic] && len(p.Replicas) < 3 {
		need = 1
	}
	return need, known
}

// isDrained asks the broker for the setting; no answer is no.
func (s *session) isDrained(ctx context.Context, id int32) bool {
	return s.settingsOf(ctx, id, drainedKey)[drainedKey] == "true"
}

// settingsOf asks a broker for settings of its own; what it does not tell is not there.
func (s *session) settingsOf(ctx context.Context, id int32, keys ...string) map[string]string {
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(id)), keys
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(ctx, s.client.Broker(int(id)))
	if err != nil {
		return nil
	}
	settings := map[string]string{}
	for _, r := range resp.Resources {
		for _, c := range r.Configs {
			if c.Value != nil {
				settings[c.Name] = *c.Value
			}
		}
	}
	return settings
}

// askQuorum asks who keeps the metadata log; q is nil when nobody says, and led is false when that is for want of a leader.
func askQuorum(ctx context.Context, r kmsg.Requestor) (q *viewQuorum, led bool) {
	req := kmsg.NewPtrDescribeQuorumRequest()
	t := kmsg.NewDescribeQuorumRequestTopic()
	t.Topic = "__cluster_metadata"
	t.Partitions = append(t.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, r)
	if err != nil || resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		return nil, !leaderless(err, resp)
	}
	p := &resp.Topics[0].Partitions[0]
	q = &viewQuorum{leader: p.LeaderID, term: p.LeaderEpoch, committed: p.HighWatermark}
	end, heard := int64(0), int64(0)
	for _, all := range [][]kmsg.DescribeQuorumResponseTopicPartitionReplicaState{p.CurrentVoters, p.Observers} {
		for _, r := range all {
			end, heard = max(end, r.LogEndOffset), max(heard, r.LastFetchTimestamp)
		}
	}
	members := func(all []kmsg.DescribeQuorumResponseTopicPartitionReplicaState) (out []quorumMember) {
		for _, r := range all {
			m := quorumMember{id: r.ReplicaID, directory: r.ReplicaDirectoryID, lag: -1, idle: -1}
			if r.LogEndOffset >= 0 {
				m.lag = end - r.LogEndOffset
			}
			if r.LastFetchTimestamp > 0 {
				m.idle = heard - r.LastFetchTimestamp
			}
			for _, n := range resp.Nodes {
				if n.NodeID == r.ReplicaID && len(n.Listeners) > 0 {
					m.host, m.port = n.Listeners[0].Host, n.Listeners[0].Port
				}
			}
			out = append(out, m)
		}
		return out
	}
	q.voters, q.observers = members(p.CurrentVoters), members(p.Observers)
	return q, true
}

// leaderless says that nobody answered as the leader of the metadata log in time; others may only not tell.
func leaderless(err error, resp *kmsg.DescribeQuorumResponse) bool {
	if err != nil {
		var late net.Error // also to a question before, on the same connection
		return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &late) && late.Timeout() || errors.Is(err, kerr.NotController) ||
			errors.Is(err, kerr.NotLeaderForPartition)
	}
	return slices.Contains([]int16{kerr.NotController.Code, kerr.NotLeaderForPartition.Code, kerr.RequestTimedOut.Code}, resp.ErrorCode)
}

// viewBrokers asks every live broker for its data directories and whether it is drained.
func (s *session) viewBrokers(ctx context.Context, v *clusterView) {
	var asking sync.WaitGroup
	for i := range v.brokers {
		if b := &v.brokers[i]; !b.fenced {
			asking.Go(func() {
				req := kmsg.NewPtrDescribeLogDirsRequest()
				req.Topics = nil // all
				resp, err := req.RequestWith(ctx, s.client.Broker(int(b.id)))
				if b.silent = err != nil || resp.ErrorCode != 0; !b.silent {
					b.dirs = dirsOf(b.id, resp)
					b.drained = s.isDrained(ctx, b.id)
				}
			})
		}
	}
	asking.Wait()
}

// dirsOf are the data directories that a broker told.
func dirsOf(id int32, resp *kmsg.DescribeLogDirsResponse) []viewDir {
	dirs := []viewDir{}
	for _, d := range resp.Dirs {
		vd := viewDir{path: d.Dir, failed: d.ErrorCode != 0, total: d.TotalBytes, free: d.UsableBytes}
		for _, t := range d.Topics {
			for i := range t.Partitions {
				vd.used += t.Partitions[i].Size
				vd.replicaCount++
				if l, ok := lostOn(id, &t.Partitions[i]); ok {
					vd.lostRecords = append(vd.lostRecords, l)
					vd.lostPartOf = append(vd.lostPartOf, fmt.Sprintf("%s-%d", t.Topic, t.Partitions[i].Partition))
				}
			}
		}
		dirs = append(dirs, vd)
	}
	return dirs
}

// each calls do with every partition, sorted.
func (v *clusterView) each(do func(p kadm.PartitionDetail)) {
	for _, t := range v.topics.Sorted() {
		for _, p := range t.Partitions.Sorted() {
			do(p)
		}
	}
}

func (v *clusterView) broker(id int32) (*viewBroker, bool) {
	for i := range v.brokers {
		if v.brokers[i].id == id {
			return &v.brokers[i], true
		}
	}
	return nil, false
}

// alive says whether a broker is there and not fenced.
func (v *clusterView) alive(id int32) bool {
	b, ok := v.broker(id)
	return ok && !b.fenced && !b.silent
}

// load counts the partitions that a broker leads, holds, and holds in sync.
func (v *clusterView) load(id int32) (leads, holds, inSync int) {
	v.each(func(p kadm.PartitionDetail) {
		if p.Leader == id {
			leads++
		}
		if slices.Contains(p.Replicas, id) {
			holds++
		}
		if slices.Contains(p.ISR, id) {
			inSync++
		}
	})
	return leads, holds, inSync
}

func (v *clusterView) partitionCount() int {
	n := 0
	v.each(func(kadm.PartitionDetail) { n++ })
	return n
}

// brokerArg reads a broker id and sees that there is one.
func (v *clusterView) brokerArg(word string) (*viewBroker, error) {
	id, err := strconv.ParseInt(word, 10, 32)
	if err != nil || id < 0 {
		return nil, usagef("%s: not the number of a broker", word)
	}
	if b, ok := v.broker(int32(id)); ok {
		return b, nil
	}
	ids := make([]int32, len(v.brokers))
	for i := range v.brokers {
		ids[i] = v.brokers[i].id
	}
	return nil, &cliError{
		msg: fmt.Sprintf("broker %d: BROKER_ID_NOT_REGISTERED (no such broker)", id), why: "there are " + numbers(ids),
		code: "BROKER_ID_NOT_REGISTERED", try: "keeplog cluster brokers", exit: exitFailed,
	}
}

// alterBroker sets a setting of one broker, or takes it back where value is empty.
func (s *session) alterBroker(ctx context.Context, id int32, key, value string) error {
	return s.alter(ctx, []configChange{{kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(id)), map[string]string{key: value}}})
}

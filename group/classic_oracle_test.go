package group

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// TestOracle asks Apache Kafka what the scripts in testdata/kafka ask. KEEPLOG_ORACLE names it (host:port), and KEEPLOG_ORACLE_CONFIG the
// settings that it was started with ("key=value key=value"), besides an initial rebalance delay of 3 s: a script that sets something else is
// left out, and so is one that sets nothing where something is set.
func TestOracle(t *testing.T) {
	addr := os.Getenv("KEEPLOG_ORACLE")
	if addr == "" {
		t.Skip("KEEPLOG_ORACLE names no broker")
	}
	files, err := filepath.Glob("testdata/kafka/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var wg sync.WaitGroup // they wait for the most part, and belong to groups of their own
	defer wg.Wait()
	for n, file := range files {
		if !slices.Equal(configured(t, file), strings.Fields(os.Getenv("KEEPLOG_ORACLE_CONFIG"))) {
			continue
		}
		wg.Go(func() {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
				k := &kafkaSide{oracle: newOracle(t, addr), ctx: t.Context(), suffix: "-" + strconv.FormatInt(time.Now().UnixNano(), 36) + strconv.Itoa(n)}
				s := &script{t: t, kafka: k, clients: map[string]*client{}, names: map[string]string{}}
				k.due, k.joined = time.Now(), map[string][2]*string{}
				datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
					return strings.ReplaceAll(s.run(d), k.suffix, "")
				})
			})
		})
	}
}

// configured are the settings of a script.
func configured(t *testing.T, file string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(b)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "config" {
			all = append(all, words[1:]...)
		}
	}
	return all
}

// coordinating is who a script asks: a coordinator, or Apache Kafka.
type coordinating interface {
	JoinGroup(r *JoinGroupRequest, done func(*JoinGroupResponse)) (gone func())
	SyncGroup(r *SyncGroupRequest, done func(*SyncGroupResponse))
	Heartbeat(r *HeartbeatRequest, done func(*HeartbeatResponse))
	LeaveGroup(r *LeaveGroupRequest, done func(*LeaveGroupResponse))
	CommitOffsets(r *CommitOffsetsRequest, done func(*CommitOffsetsResponse))
	FetchOffsets(r *FetchOffsetsRequest, done func(*FetchOffsetsResponse))
	DescribeGroup(group string, done func(*GroupDescription))
	ListGroups(f Filter) *ListGroupsResponse
	DeleteGroup(name string, done func(error))
	DeleteOffsets(r *DeleteOffsetsRequest, done func(*DeleteOffsetsResponse))
}

// kafkaSide asks Apache Kafka, each question on a connection of its own, because one that waits holds up those behind it.
type kafkaSide struct {
	*oracle
	ctx    context.Context
	suffix string
	// due is when the last step was sent, or ended if it was a wait.
	due time.Time
	// joinVersion is the version of the next join.
	joinVersion int16
	mu          sync.Mutex
	// joined are the protocol type and the protocol that members were told, by id.
	joined map[string][2]*string
}

const (
	// graceTime is how long a step waits for what should not come.
	graceTime = 200 * time.Millisecond
	// patientTime is how long it waits for what should.
	patientTime = 3 * time.Second
)

// settle waits for the answers that are expected of a step, and whether there are more.
func (k *kafkaSide) settle(expected string, came func() int) {
	want := 0
	for line := range strings.Lines(expected) {
		if text := strings.TrimSpace(line); !strings.HasPrefix(line, " ") && text != "waits" && text != "nothing" && strings.Contains(text, ": ") {
			want++
		}
	}
	for end := time.Now().Add(patientTime); time.Now().Before(end) && came() < want; {
		pass(10 * time.Millisecond)
	}
	pass(graceTime)
}

// wait lets the time go on, counted from when the last step was sent.
func (k *kafkaSide) wait(d time.Duration) {
	k.due = k.due.Add(d)
	pass(time.Until(k.due))
}

// topic makes a topic; steps that follow find it.
func (k *kafkaSide) topic(name string, partitions int) {
	r := kmsg.NewPtrCreateTopicsRequest()
	one := kmsg.NewCreateTopicsRequestTopic()
	one.Topic, one.NumPartitions, one.ReplicationFactor = name, int32(partitions), 1
	r.Topics, r.TimeoutMillis = append(r.Topics, one), 10_000
	if _, err := oracleAsk[*kmsg.CreateTopicsResponse](k, r, 7, "c"); err != nil {
		k.t.Error(err)
	}
	pass(graceTime)
}

func oracleAsk[T kmsg.Response](k *kafkaSide, r kmsg.Request, version int16, clientID string) (answer T, err error) {
	v := kversion.Stable()
	v.SetMaxKeyVersion(r.Key(), version)
	c, err := kgo.NewClient(kgo.SeedBrokers(k.addr), kgo.ClientID(clientID), kgo.MaxVersions(v), kgo.RequestRetries(0))
	if err != nil {
		return answer, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(k.ctx, 40*time.Second)
	defer cancel()
	a, err := c.Broker(1).Request(ctx, r)
	if err != nil {
		return answer, err
	}
	return a.(T), nil
}

// errorNamed is the error of a code, as the coordinator has it.
func errorNamed(code int16) error {
	e := kerr.TypedErrorForCode(code)
	if e == nil {
		return nil
	}
	for _, c := range codes {
		if c.name == e.Message {
			return c.err
		}
	}
	return oracleError(e.Message)
}

func (k *kafkaSide) JoinGroup(r *JoinGroupRequest, done func(*JoinGroupResponse)) func() {
	q := kmsg.NewPtrJoinGroupRequest()
	q.Group, q.MemberID, q.InstanceID, q.ProtocolType = k.real(r.Group), r.MemberID, r.InstanceID, r.ProtocolType
	q.SessionTimeoutMillis, q.RebalanceTimeoutMillis = int32(r.SessionTimeout.Milliseconds()), int32(r.RebalanceTimeout.Milliseconds())
	for _, p := range r.Protocols {
		q.Protocols = append(q.Protocols, kmsg.JoinGroupRequestProtocol{Name: p.Name, Metadata: p.Metadata})
	}
	version := k.joinVersion
	go func() {
		a, err := oracleAsk[*kmsg.JoinGroupResponse](k, q, version, r.ClientID)
		if err != nil {
			done(&JoinGroupResponse{Err: err})
			return
		}
		resp := &JoinGroupResponse{
			Err: errorNamed(a.ErrorCode), Generation: a.Generation, ProtocolType: a.ProtocolType, Protocol: a.Protocol, Leader: a.LeaderID,
			MemberID: a.MemberID, SkipAssignment: a.SkipAssignment,
		}
		for _, m := range a.Members {
			resp.Members = append(resp.Members, JoinedMember{m.MemberID, m.InstanceID, m.ProtocolMetadata})
		}
		if resp.Err == nil && version < 7 && resp.ProtocolType == nil {
			resp.ProtocolType = &r.ProtocolType // a field of later versions
		}
		k.mu.Lock()
		k.joined[resp.MemberID] = [2]*string{resp.ProtocolType, resp.Protocol}
		k.mu.Unlock()
		done(resp)
	}()
	return func() {}
}

func (k *kafkaSide) SyncGroup(r *SyncGroupRequest, done func(*SyncGroupResponse)) {
	q := kmsg.NewPtrSyncGroupRequest()
	q.Group, q.MemberID, q.InstanceID, q.Generation = k.real(r.Group), r.MemberID, r.InstanceID, r.Generation
	for _, p := range r.Assignments {
		q.GroupAssignment = append(q.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: p.MemberID, MemberAssignment: p.Assignment})
	}
	k.mu.Lock()
	told := k.joined[r.MemberID]
	k.mu.Unlock()
	q.ProtocolType, q.Protocol = cmp.Or(r.ProtocolType, told[0]), cmp.Or(r.Protocol, told[1])
	version := int16(5)
	if q.ProtocolType == nil || q.Protocol == nil {
		version = 4 // later ones must name both
	}
	go func() {
		a, err := oracleAsk[*kmsg.SyncGroupResponse](k, q, version, "c")
		if err != nil {
			done(&SyncGroupResponse{Err: err})
			return
		}
		done(&SyncGroupResponse{Err: errorNamed(a.ErrorCode), ProtocolType: a.ProtocolType, Protocol: a.Protocol, Assignment: a.MemberAssignment})
	}()
}

func (k *kafkaSide) Heartbeat(r *HeartbeatRequest, done func(*HeartbeatResponse)) {
	q := kmsg.NewPtrHeartbeatRequest()
	q.Group, q.MemberID, q.InstanceID, q.Generation = k.real(r.Group), r.MemberID, r.InstanceID, r.Generation
	go func() {
		a, err := oracleAsk[*kmsg.HeartbeatResponse](k, q, 4, "c")
		if err == nil {
			err = errorNamed(a.ErrorCode)
		}
		done(&HeartbeatResponse{Err: err})
	}()
}

func (k *kafkaSide) LeaveGroup(r *LeaveGroupRequest, done func(*LeaveGroupResponse)) {
	q := kmsg.NewPtrLeaveGroupRequest()
	q.Group = k.real(r.Group)
	for _, m := range r.Members {
		q.Members = append(q.Members, kmsg.LeaveGroupRequestMember{MemberID: m.MemberID, InstanceID: m.InstanceID})
	}
	go func() {
		a, err := oracleAsk[*kmsg.LeaveGroupResponse](k, q, 5, "c")
		if err != nil {
			done(&LeaveGroupResponse{Err: err})
			return
		}
		resp := &LeaveGroupResponse{Err: errorNamed(a.ErrorCode)}
		for _, m := range a.Members {
			resp.Members = append(resp.Members, Left{m.MemberID, m.InstanceID, errorNamed(m.ErrorCode)})
		}
		done(resp)
	}()
}

func (k *kafkaSide) CommitOffsets(r *CommitOffsetsRequest, done func(*CommitOffsetsResponse)) {
	q := kmsg.NewPtrOffsetCommitRequest()
	q.Group, q.MemberID, q.InstanceID, q.Generation, q.RetentionTimeMillis = k.real(r.Group), r.MemberID, r.InstanceID, r.Generation, r.Retention.Milliseconds()
	for _, c := range r.Offsets {
		q.Topics = append(q.Topics, kmsg.OffsetCommitRequestTopic{Topic: k.real(c.Topic), TopicID: c.TopicID, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{
			Partition: c.Partition, Offset: c.Offset, LeaderEpoch: c.LeaderEpoch, Metadata: &c.Metadata,
		}}})
	}
	go func() {
		a, err := oracleAsk[*kmsg.OffsetCommitResponse](k, q, r.Version, "c")
		if err != nil {
			done(&CommitOffsetsResponse{Err: err})
			return
		}
		done(committedBy(a, r, k))
	}()
}

// committedBy puts the answers in the order of the request. An error of the group stands at every partition.
func committedBy(a *kmsg.OffsetCommitResponse, r *CommitOffsetsRequest, k *kafkaSide) *CommitOffsetsResponse {
	resp := &CommitOffsetsResponse{Partitions: make([]error, len(r.Offsets))}
	for _, t := range a.Topics {
		for _, p := range t.Partitions {
			for i, o := range r.Offsets {
				if k.real(o.Topic) == t.Topic && o.Partition == p.Partition {
					resp.Partitions[i] = errorNamed(p.ErrorCode)
				}
			}
		}
	}
	if len(resp.Partitions) > 0 && wholeGroup(resp.Partitions[0]) {
		return &CommitOffsetsResponse{Err: resp.Partitions[0]}
	}
	if !slices.ContainsFunc(resp.Partitions, func(err error) bool { return err != nil }) {
		return &CommitOffsetsResponse{}
	}
	return resp
}

// wholeGroup says whether an error is about a group and not about a partition.
func wholeGroup(err error) bool {
	return err != nil && !slices.Contains([]error{ErrMetadataTooLarge, ErrUnknownTopic}, err)
}

func (k *kafkaSide) FetchOffsets(r *FetchOffsetsRequest, done func(*FetchOffsetsResponse)) {
	q := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.MemberEpoch = k.real(r.Group), r.MemberEpoch
	for _, t := range r.Topics {
		g.Topics = append(g.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: k.real(t.Topic), Partitions: t.Partitions})
	}
	q.Groups = append(q.Groups, g)
	go func() {
		a, err := oracleAsk[*kmsg.OffsetFetchResponse](k, q, 8, "c")
		if err != nil {
			done(&FetchOffsetsResponse{Err: err})
			return
		}
		resp := &FetchOffsetsResponse{Err: errorNamed(a.Groups[0].ErrorCode)}
		for _, t := range a.Groups[0].Topics {
			for _, p := range t.Partitions {
				one := FetchedOffset{Partition: p.Partition, Offset: p.Offset, Metadata: text(p.Metadata)}
				resp.Topics = append(resp.Topics, FetchedTopic{Topic: t.Topic, Partitions: []FetchedOffset{one}})
			}
		}
		// Kafka's order is that of a hash table.
		place := func(t FetchedTopic) int {
			return slices.IndexFunc(r.Topics, func(asked FetchTopic) bool {
				return k.real(asked.Topic) == t.Topic && slices.Contains(asked.Partitions, t.Partitions[0].Partition)
			})
		}
		slices.SortFunc(resp.Topics, func(a, b FetchedTopic) int {
			return cmp.Or(place(a)-place(b), strings.Compare(a.Topic, b.Topic), int(a.Partitions[0].Partition-b.Partitions[0].Partition))
		})
		done(resp)
	}()
}

func (k *kafkaSide) DescribeGroup(group string, done func(*GroupDescription)) {
	q := kmsg.NewPtrDescribeGroupsRequest()
	q.Groups = []string{k.real(group)}
	go func() {
		a, err := oracleAsk[*kmsg.DescribeGroupsResponse](k, q, 6, "c")
		if err != nil {
			done(&GroupDescription{Err: err})
			return
		}
		g := a.Groups[0]
		resp := &GroupDescription{Err: errorNamed(g.ErrorCode), State: g.State, ProtocolType: g.ProtocolType, Protocol: g.Protocol}
		for _, m := range g.Members {
			resp.Members = append(resp.Members, MemberDescription{
				MemberID: m.MemberID, InstanceID: m.InstanceID, ClientID: m.ClientID, ClientHost: m.ClientHost, Metadata: m.ProtocolMetadata, Assignment: m.MemberAssignment,
			})
		}
		done(resp)
	}()
}

func (k *kafkaSide) ListGroups(f Filter) *ListGroupsResponse {
	q := kmsg.NewPtrListGroupsRequest()
	q.StatesFilter, q.TypesFilter = f.States, f.Types
	a, err := oracleAsk[*kmsg.ListGroupsResponse](k, q, 5, "c")
	if err != nil {
		return &ListGroupsResponse{Err: err}
	}
	resp := &ListGroupsResponse{Err: errorNamed(a.ErrorCode)}
	for _, g := range a.Groups {
		name, mine := strings.CutSuffix(g.Group, k.suffix)
		if !mine {
			continue
		}
		kind := Classic
		if g.GroupType != kind.String() {
			kind = Consumer
		}
		resp.Groups = append(resp.Groups, Overview{name, g.ProtocolType, g.GroupState, kind})
	}
	return resp
}

func (k *kafkaSide) DeleteGroup(name string, done func(error)) {
	q := kmsg.NewPtrDeleteGroupsRequest()
	q.Groups = []string{k.real(name)}
	go func() {
		a, err := oracleAsk[*kmsg.DeleteGroupsResponse](k, q, 2, "c")
		if err == nil {
			err = errorNamed(a.Groups[0].ErrorCode)
		}
		done(err)
	}()
}

func (k *kafkaSide) DeleteOffsets(r *DeleteOffsetsRequest, done func(*DeleteOffsetsResponse)) {
	q := kmsg.NewPtrOffsetDeleteRequest()
	q.Group = k.real(r.Group)
	for _, t := range r.Topics {
		one := kmsg.NewOffsetDeleteRequestTopic()
		one.Topic = k.real(t.Topic)
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetDeleteRequestTopicPartition()
			rp.Partition = p
			one.Partitions = append(one.Partitions, rp)
		}
		q.Topics = append(q.Topics, one)
	}
	go func() {
		a, err := oracleAsk[*kmsg.OffsetDeleteResponse](k, q, 0, "c")
		if err != nil {
			done(&DeleteOffsetsResponse{Err: err})
			return
		}
		resp := &DeleteOffsetsResponse{Err: errorNamed(a.ErrorCode)}
		for _, want := range r.Topics {
			found := error(oracleError("no answer"))
			for _, t := range a.Topics {
				for _, p := range t.Partitions {
					if t.Topic == k.real(want.Topic) && p.Partition == want.Partitions[0] {
						found = errorNamed(p.ErrorCode)
					}
				}
			}
			resp.Partitions = append(resp.Partitions, []error{found})
		}
		done(resp)
	}()
}

func (k *kafkaSide) real(name string) string {
	if name == "" {
		return ""
	}
	return name + k.suffix
}

package node

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/metadata"
)

// roundTrip sends one request over a connection of its own and decodes the answer.
func roundTrip(t *testing.T, port int, req kmsg.Request) (kmsg.Response, error) {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(15 * time.Second))
	if _, err := conn.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("test")).AppendRequest(nil, req, 7)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(conn, b); err != nil {
		return nil, err
	}
	if id := binary.BigEndian.Uint32(b); id != 7 {
		return nil, fmt.Errorf("correlation id %d", id)
	}
	b = b[4:]
	if req.IsFlexible() && req.Key() != 18 {
		b = b[1:]
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	return resp, resp.ReadFrom(b)
}

func must[R kmsg.Response](t *testing.T, port int, req kmsg.Request) R {
	t.Helper()
	resp, err := roundTrip(t, port, req)
	if err != nil {
		t.Fatalf("key %d: %v", req.Key(), err)
	}
	return resp.(R)
}

// leading is a node that leads the metadata log, and one that does not.
func (c *trio) leading() (leader, other int) {
	leader, other = -1, -1
	for i, n := range c.nodes {
		if n.cluster.Leading() {
			leader = i
		} else {
			other = i
		}
	}
	return leader, other
}

// Whatever node a client asks, what the controller decides is decided and seen by all; clients are told of each other node's listener for
// clients and of no other.
func TestEveryNodeAnswers(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	for i := range c.nodes {
		t.Run(fmt.Sprintf("node %d", i+1), func(t *testing.T) { c.administer(t, i) })
	}
	t.Run("brokers", c.internalListener)
	t.Run("leaders", c.hints)
}

func (c *trio) administer(t *testing.T, i int) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cl := c.client(kgo.SeedBrokers(fmt.Sprintf("127.0.0.1:%d", c.ports[i][0])))
	adm := kadm.NewClient(cl)
	brokers, err := adm.ListBrokers(ctx)
	if err != nil || len(brokers) != 3 {
		t.Fatal(brokers, err)
	}
	for _, b := range brokers {
		if int(b.Port) != c.ports[b.NodeID-1][0] {
			t.Errorf("clients are told of broker %d at port %d", b.NodeID, b.Port)
		}
	}
	topic := fmt.Sprintf("admin-%d", i)
	if made, err := adm.CreateTopic(ctx, 2, 3, map[string]*string{"retention.ms": kadm.StringPtr("1000000")}, topic); err != nil {
		t.Fatal(made, err)
	}
	if _, err := adm.CreateTopic(ctx, 2, 3, nil, topic); err == nil || kindOf(err) != "TOPIC_ALREADY_EXISTS" {
		t.Errorf("made twice: %v", err)
	}
	if l, err := adm.UpdatePartitions(ctx, 4, topic); err != nil || l[topic].Err != nil {
		t.Errorf("grown: %v, %v", l, err)
	}
	if l, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: kadm.StringPtr("77000000")}}, topic); err != nil || l[0].Err != nil {
		t.Errorf("altered: %v, %v", l, err)
	}
	for j, n := range c.nodes { // what was answered, every node has applied, but for settings
		t1, ok := n.quorum.Image().TopicByName(topic)
		if !ok || len(t1.Partitions) != 4 {
			t.Errorf("node %d has not applied the topic", j+1)
		}
	}
	eventually(t, "settings", func() error {
		l, err := adm.DescribeTopicConfigs(ctx, topic)
		if err != nil {
			return err
		}
		for _, e := range l[0].Configs {
			if e.Key == "retention.ms" && e.Value != nil && *e.Value == "77000000" {
				return nil
			}
		}
		return errors.New("the old value")
	})
	eventually(t, "in sync", func() error { return c.inSync(i, topic, 3) })
	var moves kadm.AlterPartitionAssignmentsReq
	moves.Assign(topic, 0, []int32{int32(i + 1), int32((i+1)%3 + 1)})
	if l, err := adm.AlterPartitionAssignments(ctx, moves); err != nil || l.Error() != nil {
		t.Errorf("reassigned: %v, %v", l, err)
	}
	eventually(t, "reassigned", func() error {
		t1, _ := c.nodes[i].quorum.Image().TopicByName(topic)
		if p := t1.Partitions[0]; len(p.Replicas) != 2 || len(p.Adding)+len(p.Removing) > 0 || !slices.Contains(p.ISR, int32(i+1)) {
			return fmt.Errorf("replicas %v, adding %v, removing %v, in sync %v", p.Replicas, p.Adding, p.Removing, p.ISR)
		}
		return nil
	})
	if l, err := adm.ListPartitionReassignments(ctx, nil); err != nil || len(l) != 0 {
		t.Errorf("reassignments: %v, %v", l, err)
	}
	if l, err := adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, nil); err != nil {
		t.Errorf("elections: %v, %v", l, err)
	}
	c.quorumSeen(t, i)
	auto := c.client(kgo.SeedBrokers(fmt.Sprintf("127.0.0.1:%d", c.ports[i][0])), kgo.AllowAutoTopicCreation())
	if err := auto.ProduceSync(ctx, &kgo.Record{Topic: topic + "-auto", Value: []byte("x")}).FirstErr(); err != nil {
		t.Errorf("produced to a topic that the look makes: %v", err)
	}
	if l, err := adm.DeleteTopics(ctx, topic, topic+"-auto"); err != nil || l.Error() != nil {
		t.Errorf("deleted: %v, %v", l, err)
	}
	for j, n := range c.nodes {
		if _, ok := n.quorum.Image().TopicByName(topic); ok {
			t.Errorf("node %d still has the topic", j+1)
		}
	}
}

func kindOf(err error) string {
	var e interface{ Error() string } = err
	s := e.Error()
	for k := range s {
		if s[k] == ':' {
			return s[:k]
		}
	}
	return s
}

// quorumSeen asks for the quorum, which any node answers as its leader sees it.
func (c *trio) quorumSeen(t *testing.T, i int) {
	t.Helper()
	req := kmsg.NewPtrDescribeQuorumRequest()
	req.SetVersion(2)
	req.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: "__cluster_metadata", Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{}}}}
	eventually(t, "the quorum", func() error {
		leader, _ := c.leading()
		resp := must[*kmsg.DescribeQuorumResponse](t, c.ports[i][0], req)
		if resp.ErrorCode != 0 || len(resp.Nodes) != 3 {
			return fmt.Errorf("%+v", resp)
		}
		p := resp.Topics[0].Partitions[0]
		if int(p.LeaderID) != leader+1 || len(p.CurrentVoters) != 3 || len(p.Observers) != 0 {
			return fmt.Errorf("%+v", resp)
		}
		for j, v := range p.CurrentVoters {
			if n := resp.Nodes[j]; v.LogEndOffset <= 0 || v.LastCaughtUpTimestamp <= 0 || len(n.Listeners) != 1 || int(n.Listeners[0].Port) != c.ports[j][1] {
				return fmt.Errorf("voter %+v, node %+v", v, n)
			}
		}
		return nil
	})
}

// What brokers ask each other is served on their listener and ends the connection on the clients'; a replica's fetch is one only there.
func (c *trio) internalListener(t *testing.T) {
	leader, _ := c.leading()
	beat := kmsg.NewPtrBrokerHeartbeatRequest()
	beat.SetVersion(1)
	beat.BrokerID, beat.BrokerEpoch = 2, 1
	if resp := must[*kmsg.BrokerHeartbeatResponse](t, c.ports[leader][2], beat); resp.ErrorCode != 77 {
		t.Errorf("an old incarnation's heartbeat is answered with %d", resp.ErrorCode)
	}
	for _, req := range []kmsg.Request{beat, &kmsg.AllocateProducerIDsRequest{BrokerID: 1}, &kmsg.EnvelopeRequest{RequestData: []byte{}, ClientHostAddress: []byte{}}} {
		if _, err := roundTrip(t, c.ports[leader][0], req); !errors.Is(err, io.EOF) {
			t.Errorf("key %d on the listener of clients: %v", req.Key(), err)
		}
	}
	versions := func(port int) (keys []int16) {
		req := kmsg.NewPtrApiVersionsRequest()
		req.SetVersion(3)
		req.ClientSoftwareName, req.ClientSoftwareVersion = "test", "1"
		for _, k := range must[*kmsg.ApiVersionsResponse](t, port, req).ApiKeys {
			keys = append(keys, k.ApiKey)
		}
		return keys
	}
	for _, k := range []int16{56, 58, 62, 63, 67} {
		if slices.Contains(versions(c.ports[0][0]), k) || !slices.Contains(versions(c.ports[0][2]), k) {
			t.Errorf("key %d is told on the wrong listener", k)
		}
	}
}

// Who asks the wrong broker is told the right one, at the listener that he came over (KIP-951).
func (c *trio) hints(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	adm := kadm.NewClient(c.client())
	if _, err := adm.CreateTopic(ctx, 1, 2, nil, "hint"); err != nil {
		t.Fatal(err)
	}
	topic, _ := c.nodes[0].quorum.Image().TopicByName("hint")
	p := topic.Partitions[0]
	for i := range c.nodes {
		if int32(i+1) == p.Leader {
			continue
		}
		fetch := kmsg.NewPtrFetchRequest()
		fetch.SetVersion(17)
		fetch.MaxBytes, fetch.SessionEpoch = 1000, -1
		part := kmsg.NewFetchRequestTopicPartition()
		part.PartitionMaxBytes = 1000
		fetch.Topics = []kmsg.FetchRequestTopic{{TopicID: topic.ID, Partitions: []kmsg.FetchRequestTopicPartition{part}}}
		resp := must[*kmsg.FetchResponse](t, c.ports[i][0], fetch)
		got := resp.Topics[0].Partitions[0]
		if got.ErrorCode == 0 && slices.Contains(p.Replicas, int32(i+1)) {
			continue // a follower may be read from
		}
		if got.ErrorCode != 6 || got.CurrentLeader.LeaderID != p.Leader || got.CurrentLeader.LeaderEpoch != p.LeaderEpoch ||
			len(resp.Brokers) != 1 || int(resp.Brokers[0].Port) != c.ports[p.Leader-1][0] {
			t.Errorf("node %d: %+v, brokers %+v; leader %d", i+1, got, resp.Brokers, p.Leader)
		}
	}
}

// A cluster whose processes all end at once, without a word, has everything afterwards.
func TestAllKilled(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	cl := c.client()
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 6, 3, nil, "t"); err != nil {
		t.Fatal(err)
	}
	produce(t, cl, 0, 200)
	for i, n := range c.nodes {
		c.nodes[i] = nil
		n.abandon()
	}
	c.startAll()
	eventually(t, "all in sync", func() error { return c.inSync(0, "t", 3) })
	produce(t, cl, 200, 300)
	c.check(cl, 300)
}

// A broker that ends without a word is fenced as soon as nobody listens at its address any more, not only when its session ends; and when it
// is the controller that ends, the next one sees that at once.
func TestGoneIsFenced(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	leader, other := c.leading()
	begun := time.Now()
	n := c.nodes[other]
	c.nodes[other] = nil
	n.abandon()
	eventually(t, "fenced", func() error {
		if c.nodes[leader].quorum.Image().Alive(int32(other + 1)) {
			return errors.New("alive")
		}
		return nil
	})
	if took := time.Since(begun); took > 2500*time.Millisecond {
		t.Errorf("fenced after %s", took)
	}
	if b, _ := c.nodes[leader].quorum.Image().Broker(int32(other + 1)); b == (*metadata.Broker)(nil) {
		t.Error("the broker was forgotten")
	}
}

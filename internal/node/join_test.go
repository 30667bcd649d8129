package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/replication/quorum"
)

// A fourth node joins a running cluster, takes a replica over, and is taken out again: then it knows that it is no member.
func TestFourthNode(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	cl := c.client()
	adm, ctx := kadm.NewClient(cl), t.Context()
	if _, err := adm.CreateTopic(ctx, 6, 3, nil, "t"); err != nil {
		t.Fatal(err)
	}
	produce(t, cl, 0, 100)
	extra := freePorts(t)[0]
	cfg, _, err := config.Load(config.Input{Set: []string{
		"node.id=4", "log.dirs=" + filepath.Join(c.dir, "4"), "keeplog.disk.reserve.bytes=0",
		fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d,REPLICATION://127.0.0.1:%d", extra[0], extra[1], extra[2]),
		"controller.listener.names=CONTROLLER", "inter.broker.listener.name=REPLICATION", fmt.Sprintf("keeplog.join=127.0.0.1:%d", c.ports[1][1]),
	}})
	if err != nil {
		t.Fatal(err)
	}
	n, err := Open(ctx, Options{Config: cfg, Logger: slog.New(slog.NewTextHandler(c.log, nil)).With("n", 4), Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	stop := func() {
		if closed {
			return
		}
		closed = true
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	defer stop()
	if n.ClusterID() != c.nodes[0].ClusterID() {
		t.Fatalf("cluster %s, not %s", n.ClusterID(), c.nodes[0].ClusterID())
	}
	var moves kadm.AlterPartitionAssignmentsReq
	moves.Assign("t", 0, []int32{4, 1})
	if l, err := adm.AlterPartitionAssignments(ctx, moves); err != nil || l.Error() != nil {
		t.Fatal(l, err)
	}
	eventually(t, "the replica on the fourth node", func() error {
		topic, _ := n.quorum.Image().TopicByName("t")
		if p := topic.Partitions[0]; !slices.Equal(p.Replicas, []int32{4, 1}) || !slices.Contains(p.ISR, 4) {
			return fmt.Errorf("replicas %v, in sync %v", p.Replicas, p.ISR)
		}
		return nil
	})
	produce(t, cl, 100, 200)
	moves = kadm.AlterPartitionAssignmentsReq{}
	moves.Assign("t", 0, []int32{1, 2, 3})
	if l, err := adm.AlterPartitionAssignments(ctx, moves); err != nil || l.Error() != nil {
		t.Fatal(l, err)
	}
	eventually(t, "all on three nodes", func() error {
		topic, _ := c.nodes[1].quorum.Image().TopicByName("t")
		if p := topic.Partitions[0]; !slices.Equal(p.Replicas, []int32{1, 2, 3}) || len(p.ISR) != 3 {
			return fmt.Errorf("replicas %v, in sync %v", p.Replicas, p.ISR) // three in sync may be 4 and two of those that come
		}
		return nil
	})
	remove := &kmsg.RemoveRaftVoterRequest{VoterID: 4, VoterDirectoryID: n.dirs[0].id}
	if resp := must[*kmsg.RemoveRaftVoterResponse](t, c.ports[2][0], remove); resp.ErrorCode != 0 {
		t.Fatalf("removed: %d %v", resp.ErrorCode, resp.ErrorMessage)
	}
	select {
	case <-n.Refused():
	case <-time.After(20 * time.Second):
		t.Fatal("a removed node does not hear of it")
	}
	if err := n.Err(); !errors.Is(err, quorum.ErrRemoved) {
		t.Error(err)
	}
	stop()
	if resp := must[*kmsg.UnregisterBrokerResponse](t, c.ports[0][0], &kmsg.UnregisterBrokerRequest{BrokerID: 4}); resp.ErrorCode != 0 {
		t.Errorf("unregistered: %d %v", resp.ErrorCode, resp.ErrorMessage)
	}
	eventually(t, "three brokers", func() error {
		if n := len(c.nodes[1].quorum.Image().Brokers()); n != 3 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	c.check(cl, 200)
}

// A node that names the listener between brokers otherwise than the cluster is refused with the names that there are: no replica would ever
// be fetched from it, nor by it.
func TestNodeWithAnotherInternalListener(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	extra := freePorts(t)[0]
	cfg, _, err := config.Load(config.Input{Set: []string{
		"node.id=4", "log.dirs=" + filepath.Join(c.dir, "4"), "keeplog.disk.reserve.bytes=0",
		fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d,BETWEEN://127.0.0.1:%d", extra[0], extra[1], extra[2]),
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,BETWEEN:PLAINTEXT",
		"controller.listener.names=CONTROLLER", "inter.broker.listener.name=BETWEEN", fmt.Sprintf("keeplog.join=127.0.0.1:%d", c.ports[1][1]),
	}})
	if err != nil {
		t.Fatal(err)
	}
	n, err := Open(t.Context(), Options{Config: cfg, Logger: slog.New(slog.NewTextHandler(c.log, nil)).With("n", 4), Fatal: func(err error) { t.Error(err) }})
	if err == nil {
		_ = n.Close(t.Context())
		t.Fatal("it has joined")
	}
	if s := err.Error(); !strings.Contains(s, "inter.broker.listener.name=BETWEEN is none of the cluster's") || !strings.Contains(s, "REPLICATION") {
		t.Error(err)
	}
	if got := len(c.nodes[0].quorum.Image().Brokers()); got != 3 {
		t.Errorf("%d brokers", got)
	}
}

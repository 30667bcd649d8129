package node

import (
	"context"
	"testing"
	"time"

	"github.com/keeplog/keeplog/metadata"
)

// owned waits until every shard of groups has an owner that is one of the nodes that run, and their parts are even.
func (c *trio) owned(within time.Duration) {
	c.t.Helper()
	var seen map[metadata.BrokerID]int
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for end := time.Now().Add(within); time.Now().Before(end); <-t.C {
		running := 0
		for _, n := range c.nodes {
			if n == nil {
				continue
			}
			running++
			seen = map[metadata.BrokerID]int{}
			for s := range int32(metadata.Shards) {
				seen[n.quorum.Image().Shard(s).Owner]++
			}
		}
		even := len(seen) == running
		for id, count := range seen {
			even = even && id > 0 && c.nodes[id-1] != nil && count >= metadata.Shards/running
		}
		if even {
			return
		}
	}
	c.t.Fatalf("shards by owner: %v", seen)
}

// Every node commits offsets of the groups that it answers for, and all have them; the shards of a node that stops go to the others.
func TestOffsetsOverSockets(t *testing.T) {
	c := newTrio(t)
	c.owned(10 * time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for i, n := range c.nodes {
		group := groupOf(n)
		shard := metadata.ShardOf(group)
		a, err := n.quorum.ProposeOffsets(ctx, []metadata.Record{metadata.GroupChanged{
			Shard: shard, ShardEpoch: n.quorum.Image().Shard(shard).Epoch, Group: group, Entries: []metadata.GroupEntry{{Key: "k", Value: []byte("v")}},
		}})
		if err != nil || a.Results[0].Err() != nil {
			t.Fatalf("node %d: %+v %v", i+1, a, err)
		}
		for j, other := range c.nodes {
			if err := other.quorum.WaitIndex(ctx, a.Index); err != nil || !other.quorum.Tables().Has(group) {
				t.Errorf("node %d does not have what node %d committed: %v", j+1, i+1, err)
			}
		}
	}
	c.stop(1)
	c.owned(5 * time.Second)
}

// groupOf is the name of a group that a node answers for.
func groupOf(n *Node) string {
	for name := "g"; ; name += "g" {
		if n.quorum.Image().Shard(metadata.ShardOf(name)).Owner == n.cfg.NodeID() {
			return name
		}
	}
}

// A node alone answers for all groups as soon as it serves.
func TestShardsOfANodeAlone(t *testing.T) {
	n, err := start(t, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for s := range int32(metadata.Shards) {
		if got := n.quorum.Image().Shard(s); got.Owner != n.cfg.NodeID() || got.Epoch == 0 {
			t.Fatalf("shard %d: %+v", s, got)
		}
	}
}

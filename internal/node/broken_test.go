package node

import (
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/vfs"
)

// in lists the partitions of topic t that a node has in one of its data directories.
func (c *trio) in(i int, dir string) (list []int) {
	c.t.Helper()
	found, err := filepath.Glob(filepath.Join(c.dir, fmt.Sprint(i+1), dir, "t-?"))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, f := range found {
		list = append(list, int(f[len(f)-1]-'0'))
	}
	return list
}

// partitions are those of topic t as a node's image has them.
func (c *trio) partitions(at int) []*metadata.Partition {
	t, _ := c.nodes[at].quorum.Image().TopicByName("t")
	return t.Partitions
}

// One of two data directories fails, and a log does not open: the broker goes on with the rest, and what it could not lead any more is led by
// others within five seconds.
func TestBrokenReplicasAreNotLed(t *testing.T) {
	t.Parallel()
	var faulty [3]*vfs.FaultyFS
	c := &trio{t: t, dirs: []string{"a", "b"}}
	for i := range faulty {
		faulty[i] = vfs.NewFaulty(vfs.OS())
		c.fs[i] = faulty[i]
	}
	startTrio(c)
	cl := c.client()
	if made, err := kadm.NewClient(cl).CreateTopic(t.Context(), 6, 3, nil, "t"); err != nil || made.Err != nil {
		t.Fatal(err, made.Err)
	}
	eventually(t, "all in sync", func() error { return c.inSync(0, "t", 3) })
	produce(t, cl, 0, 60)

	failed, other := 1, 0
	gone := c.in(failed, "b")
	if len(gone) == 0 || len(gone) == 6 {
		t.Fatalf("partitions %v are in the second directory", gone)
	}
	if !slices.ContainsFunc(gone, func(p int) bool { return c.partitions(other)[p].Leader == int32(failed+1) }) {
		t.Fatalf("node %d leads none of %v", failed+1, gone)
	}
	faulty[failed].Inject(vfs.Fault{
		Ops: []vfs.Op{vfs.OpSync, vfs.OpSyncData}, Path: filepath.Join(c.dir, fmt.Sprint(failed+1), "b", "*", "*"), Sticky: true, Err: syscall.EIO,
	})
	begun := time.Now()
	produce(t, cl, 60, 120)
	taken := func() error {
		for i, p := range c.partitions(other) {
			if in := slices.Contains(p.ISR, int32(failed+1)); in == slices.Contains(gone, i) || p.Leader == metadata.NoLeader {
				return fmt.Errorf("partition %d: leader %d, in sync %v; %v have failed", i, p.Leader, p.ISR, gone)
			}
		}
		return nil
	}
	eventually(t, "the rest leads", taken)
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("that took %v", took)
	}
	if lost := c.nodes[failed].broken(); len(lost) > 0 {
		t.Errorf("%v are reported although everybody knows", lost)
	}

	// A log that does not open at a start.
	shut := 2
	c.stop(shut)
	at := c.in(shut, "a")[0] // which the one that has failed has in its first directory, too: two are in sync without it
	if slices.Contains(gone, at) {
		t.Fatalf("partition %d of %v", at, gone)
	}
	faulty[shut].Inject(vfs.Fault{
		Ops: []vfs.Op{vfs.OpOpen}, Path: filepath.Join(c.dir, fmt.Sprint(shut+1), "a", fmt.Sprintf("t-%d", at), "*.log"), Sticky: true, Err: syscall.EMFILE,
	})
	if err := c.start(shut); err != nil {
		t.Fatal(err)
	}
	if err := c.nodes[shut].replicas.Problems(); err == nil {
		t.Fatal("everything opened")
	}
	eventually(t, "the others are in sync", func() error {
		for i, p := range c.partitions(other) {
			if in := slices.Contains(p.ISR, int32(shut+1)); in == (i == at) || p.Leader == metadata.NoLeader {
				return fmt.Errorf("partition %d: leader %d, in sync %v; %d did not open", i, p.Leader, p.ISR, at)
			}
		}
		return nil
	})
	produce(t, cl, 120, 180)
	if err := c.nodes[failed].Close(t.Context()); err == nil { // what has failed cannot stop cleanly
		t.Error("no word of the directory that failed")
	}
	c.nodes[failed] = nil
}

// The last replica that has everything does not open, for want of file descriptors. That is no loss: nobody else leads, also when one is back
// that is behind, and when it opens again it leads with all that was acknowledged.
func TestLastReplicaThatDoesNotOpenStaysEligible(t *testing.T) {
	t.Parallel()
	faulty := vfs.NewFaulty(vfs.OS())
	c := startTrio(&trio{t: t, fs: [3]vfs.FS{1: faulty}})
	cl := c.client()
	one := "1"
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 10_000
	req.Topics = []kmsg.CreateTopicsRequestTopic{{
		Topic: "t", NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Replicas: []int32{1, 2}}},
		Configs: []kmsg.CreateTopicsRequestTopicConfig{{Name: "min.insync.replicas", Value: &one}},
	}}
	if made, err := req.RequestWith(t.Context(), cl); err != nil || made.Topics[0].ErrorCode != 0 {
		t.Fatal(err, made)
	}
	const behind, last, witness = 0, 1, 2
	is := func(leader int32, isr, elr []int32) func() error {
		return func() error {
			p := c.partitions(witness)[0]
			if p.Leader != leader || !slices.Equal(p.ISR, isr) || !slices.Equal(p.ELR, elr) || p.UncleanEpoch != 0 {
				return fmt.Errorf("%+v", *p)
			}
			return nil
		}
	}
	eventually(t, "both in sync", is(1, []int32{1, 2}, nil))
	produce(t, cl, 0, 20)
	c.stop(behind)
	eventually(t, "one in sync", is(2, []int32{2}, nil))
	produce(t, cl, 20, 40)
	c.stop(last)
	faulty.Inject(vfs.Fault{
		Ops: []vfs.Op{vfs.OpOpen}, Path: filepath.Join(c.dir, fmt.Sprint(last+1), "t-0", "*.log"), Sticky: true, Err: syscall.EMFILE,
	})
	for _, i := range []int{last, behind} {
		if err := c.start(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.nodes[last].replicas.Problems(); err == nil {
		t.Fatal("everything opened")
	}
	eventually(t, "nobody leads", is(metadata.NoLeader, []int32{}, []int32{2}))

	c.stop(last)
	faulty.Heal()
	if err := c.start(last); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it leads again", func() error {
		if p := c.partitions(witness)[0]; p.Leader != 2 || p.UncleanEpoch != 0 {
			return fmt.Errorf("%+v", *p)
		}
		return nil
	})
	rd := c.client(kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	seen := map[string]bool{}
	eventually(t, "everything is there", func() error {
		rd.PollFetches(t.Context()).EachRecord(func(r *kgo.Record) { seen[string(r.Value)] = true })
		if len(seen) < 40 {
			return fmt.Errorf("%d of 40 records", len(seen))
		}
		return nil
	})
}

package quorum

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/vfs"
)

// slowStore takes its time for each entry.
type slowStore struct {
	*MemStore
	delay atomic.Int64
}

func (s *slowStore) StoreLogs(l []*raft.Log) error {
	time.Sleep(time.Duration(s.delay.Load())) // virtual time
	return s.MemStore.StoreLogs(l)
}

// TestHangingDisk: a voter among others ends, a single one waits.
func TestHangingDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowStore{MemStore: &MemStore{}}
		n := newNode(t, vfs.NewMem(), "/", slow).open()
		slow.delay.Store(int64(20 * time.Second))
		n.propose(topic(1))
		n.close()
	})
}

// TestLeaderWhoseDiskHangs: a leader whose disk hangs still sends heartbeats (hashicorp/raft#503); it ends within seconds, and
// another leads.
func TestLeaderWhoseDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		slow := map[int]*slowStore{}
		for id, n := range c.nodes {
			n.wrap = func(s *MemStore) Store {
				slow[id] = &slowStore{MemStore: s}
				return slow[id]
			}
		}
		c.start().ready()
		time.Sleep(20 * time.Second) // virtual time: nothing is wrong
		lead := c.leader()
		slow[lead.id].delay.Store(int64(30 * time.Second))
		at := time.Now()
		hung := make(chan error, 1)
		go func() {
			_, err := lead.q.Propose(context.Background(), topics(1, 1))
			hung <- err
		}()
		err := <-lead.fatal
		if took := time.Since(at); took < 5*time.Second || took > 7*time.Second || !strings.Contains(err.Error(), "not answered") {
			t.Error(took, err)
		}
		if f, err := lead.o.FS.Stat("/" + canaryName); err != nil || f.Size() != 1 {
			t.Error(f, err)
		}
		c.isolate(lead.id, true) // the process is gone
		c.leader(lead.id).propose(topics(2, 1)...)
		if took := time.Since(at); took > 15*time.Second {
			t.Error("the others led after ", took)
		}
		slow[lead.id].delay.Store(0)
		time.Sleep(30 * time.Second) // virtual time: the call returns
		<-hung
		c.close()
	})
}

// TestDamagedEntryStops: a committed entry that cannot be applied ends the node before anything of it is seen.
func TestDamagedEntryStops(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "/", &MemStore{}).open()
	n.propose(topic(1))
	seen := n.q.Image()
	good := metadata.AppendCommand(nil, &metadata.Command{Session: metadata.Session{Epoch: metadata.NoEpoch}})
	good[len(good)-1] ^= 1
	f := n.q.raft().Apply(good, time.Second)
	if err := <-n.fatal; !errors.Is(err, metadata.ErrCorrupt) {
		t.Error(err)
	}
	if err := f.Error(); err != nil {
		t.Error(err)
	}
	if n.q.Image() != seen {
		t.Error("the image moved")
	}
	if err := n.q.Close(); err != nil {
		t.Error(err)
	}
}

// TestRestartUnderLoad closes while many propose: every answer is either true or says that it is not known.
func TestRestartUnderLoad(t *testing.T) {
	store := &MemStore{}
	fs := vfs.NewMem()
	n := newNode(t, fs, "/", store).open()
	n.q.SetBrokerEpoch(1)
	type answer struct {
		i   int
		err error
	}
	answers := make(chan answer, 1000)
	var stop atomic.Bool
	for w := range 8 {
		go func() {
			for i := w; ; i += 8 {
				if stop.Load() {
					answers <- answer{-1, nil}
					return
				}
				_, err := n.q.Propose(context.Background(), []metadata.Record{topic(i)})
				answers <- answer{i, err}
			}
		}()
	}
	var kept []int
	for len(kept) < 100 {
		a := <-answers
		if a.err != nil {
			t.Fatal(a.err)
		}
		kept = append(kept, a.i)
	}
	q := n.q
	done := make(chan error, 1)
	go func() { done <- q.Close() }()
	for left := 8; left > 0; {
		a := <-answers
		switch {
		case a.i < 0:
			left--
		case a.err == nil:
			kept = append(kept, a.i)
		case errors.Is(a.err, ErrClosed), errors.Is(a.err, ErrUnknownOutcome), errors.Is(a.err, ErrNotLeader):
			stop.Store(true)
		default:
			t.Error(a.err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	n.o.Store = store.Crash()
	n.open()
	for _, i := range kept {
		if _, ok := n.q.Image().TopicByName(topic(i).Name); !ok {
			t.Errorf("topic %d is lost", i)
		}
	}
	n.close()
}

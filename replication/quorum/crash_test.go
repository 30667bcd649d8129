package quorum

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/vfs"
)

// life is a node that works until something crashes.
type life struct {
	fs    *vfs.CrashFS
	store *MemStore
	// acked and sent are the topics whose proposals were answered, and made.
	acked, sent int
	// offsets says that it commits offsets instead.
	offsets bool
}

// start runs it on a goroutine of its own, which ends where a process would.
func (l *life) start(t *testing.T, rounds int) {
	var wg sync.WaitGroup
	wg.Go(func() { l.run(t, rounds) })
	wg.Wait()
}

// run proposes topics and takes snapshots now and then, until it fails or rounds are over.
func (l *life) run(t *testing.T, rounds int) {
	n := newNode(t, l.fs, "/", l.store)
	n.o.Fatal = func(err error) {
		select {
		case n.fatal <- err:
		default:
		}
		if l.store.CrashAfter > 0 {
			runtime.Goexit() // Raft panics when its store fails it and it goes on
		}
	}
	q, err := Open(n.o)
	if err != nil {
		return
	}
	defer q.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-n.fatal:
			cancel()
		case <-ctx.Done():
		}
	}()
	if q.WaitLeader(ctx) != nil {
		return
	}
	q.SetBrokerEpoch(1)
	work := func(i int) error {
		_, err := q.Propose(ctx, topics(i, 1))
		return err
	}
	if l.offsets {
		var err error
		if work, err = commitOffsets(ctx, q); err != nil {
			return
		}
	}
	for i := range rounds {
		l.sent++
		if work(l.sent) != nil {
			return
		}
		l.acked = l.sent
		if i%3 == 2 && q.Snapshot() != nil {
			return
		}
	}
}

// check opens what is left and wants every acknowledged topic, no other, and no other cluster.
func (l *life) check(t *testing.T, place string) {
	t.Helper()
	n := newNode(t, l.fs, "/", l.store)
	n.open()
	img := n.q.Image()
	if img.ClusterID() != testCluster {
		t.Errorf("%s: cluster %q", place, img.ClusterID())
	}
	for i := 1; i <= l.sent; i++ {
		if _, ok := img.TopicByName(topic(i).Name); !ok && i <= l.acked {
			t.Errorf("%s: topic %d of %d is lost", place, i, l.acked)
		}
	}
	if img.TopicCount() > l.sent {
		t.Errorf("%s: %d topics of %d", place, img.TopicCount(), l.sent)
	}
	n.propose(topics(5000, 1)...)
	n.close()
}

// bootstrapped is a store that has begun a cluster: a store's file is never seen before it has.
func bootstrapped(t *testing.T) *MemStore {
	store := &MemStore{}
	q := &Quorum{o: newNode(t, vfs.NewMem(), "/", nil).o, snaps: &snapshots{}}
	q.o.Timing = q.o.Timing.withDefaults(true)
	q.o.Logger = slog.New(slog.DiscardHandler)
	if err := q.bootstrap(store); err != nil {
		t.Fatal(err)
	}
	return store
}

// TestCatalogue19_CrashOfTheStore crashes at each call of the store, with and without what the call wrote.
func TestCatalogue19_CrashOfTheStore(t *testing.T) {
	for _, half := range []bool{false, true} {
		for at := 1; ; at++ {
			crashed := false
			synctest.Test(t, func(t *testing.T) {
				l := &life{fs: vfs.NewCrash(), store: bootstrapped(t)}
				l.store.CrashAfter, l.store.Half = l.store.Calls()+at, half
				l.start(t, 10)
				crashed = l.store.Calls() >= l.store.CrashAfter
				l.store, l.fs = l.store.Crash(), l.fs.Kill()
				l.check(t, fmt.Sprintf("call %d, half %v", at, half))
			})
			if !crashed || t.Failed() {
				t.Logf("half %v: %d calls", half, at-1)
				break
			}
		}
	}
}

// TestCrashOfSnapshots takes the power away before each call on the directory of the snapshots.
func TestCrashOfSnapshots(t *testing.T) {
	kinds := []vfs.PolicyKind{vfs.KeepNone, vfs.KeepAll, vfs.KeepNames, vfs.KeepSizes, vfs.UndoRenames, vfs.KeepRandom}
	for at := int64(1); ; at++ {
		crashed := false
		for i, kind := range kinds {
			synctest.Test(t, func(t *testing.T) {
				l := &life{fs: vfs.NewCrash(), store: &MemStore{}}
				l.fs.SetHook(func(e vfs.Event) {
					if e.Phase == vfs.Before && e.Index == at {
						crashed = true
						l.fs.PowerOff()
					}
				})
				l.start(t, 16)
				l.store, l.fs = l.store.Crash(), l.fs.Crash(vfs.Policy{Kind: kind}, uint64(at)*31+uint64(i))
				l.check(t, fmt.Sprintf("file call %d, %v", at, vfs.Policy{Kind: kind}))
			})
		}
		if !crashed || t.Failed() {
			t.Logf("%d calls", at-1)
			return
		}
	}
}

// exitGoroutine is a Fatal that ends the goroutine it is called on, as the process would end, and tells.
func exitGoroutine(told chan struct{}) func(error) {
	var once sync.Once
	return func(error) {
		once.Do(func() { close(told) })
		runtime.Goexit()
	}
}

// commitOffsets prepares a node for groups; what it returns commits an offset.
func commitOffsets(ctx context.Context, q *Quorum) (func(int) error, error) {
	a, err := q.Propose(ctx, []metadata.Record{metadata.BrokerRegistered{ID: 1, Incarnation: [16]byte{1}}, offsetsTopic})
	if err != nil {
		return nil, err
	}
	q.SetBrokerEpoch(a.Results[0].Value)
	shard := metadata.ShardOf("group")
	if a, err = q.Propose(ctx, []metadata.Record{metadata.ShardAssigned{Shard: shard, Epoch: q.Image().Shard(shard).Epoch, Owner: 1}}); err != nil {
		return nil, err
	}
	epoch := a.Results[0].Value
	return func(i int) error {
		a, err := q.ProposeOffsets(ctx, []metadata.Record{commitOf("group", epoch, 0, int64(i))})
		if err == nil {
			err = a.Results[0].Err()
		}
		return err
	}, nil
}

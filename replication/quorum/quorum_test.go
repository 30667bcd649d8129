package quorum

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a single voter under test.
type node struct {
	t     *testing.T
	q     *Quorum
	o     Options
	fatal chan error
}

var (
	testDirectory = metadata.DirectoryID{1, 2, 3}
	testCluster   = "abcdefghijklmnopqrstuv"
)

func newNode(t *testing.T, fsys vfs.FS, dir string, store Store) *node {
	n := &node{t: t, fatal: make(chan error, 1)}
	n.o = Options{
		FS: fsys, Dir: dir, Node: 1, Directory: testDirectory, NewClusterID: func() string { return testCluster }, Store: store,
		Fatal: func(err error) { n.fatal <- err },
	}
	return n
}

func (n *node) open() *node {
	n.t.Helper()
	q, err := Open(n.o)
	if err != nil {
		n.t.Fatal(err)
	}
	n.q = q
	n.t.Cleanup(func() { _ = q.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := q.WaitLeader(ctx); err != nil {
		n.t.Fatal(err)
	}
	return n
}

func (n *node) close() {
	n.t.Helper()
	if err := n.q.Close(); err != nil {
		n.t.Fatal(err)
	}
	select {
	case err := <-n.fatal:
		n.t.Fatal("fatal: ", err)
	default:
	}
}

func (n *node) propose(records ...metadata.Record) Applied {
	n.t.Helper()
	a, err := n.q.Propose(context.Background(), records)
	if err != nil {
		n.t.Fatal(err)
	}
	return a
}

func topic(i int) metadata.TopicCreated {
	return metadata.TopicCreated{
		Name: fmt.Sprintf("t%05d", i), ID: metadata.TopicID{byte(i >> 16), byte(i >> 8), byte(i), 1},
		Partitions: []metadata.Partition{{Replicas: []int32{1}, ISR: []int32{1}, Leader: 1}},
	}
}

func topics(from, count int) (records []metadata.Record) {
	for i := range count {
		records = append(records, topic(from+i))
	}
	return records
}

// TestSingleNode goes through a life on a real disk: first start, work, restart, snapshot, restart.
func TestSingleNode(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, vfs.OS(), dir, nil).open()
	if got := n.q.Image().ClusterID(); got != testCluster {
		t.Fatalf("cluster id %q", got)
	}
	var seen []string
	n.q.Subscribe(func(d metadata.Delta, img *metadata.Image) {
		for _, c := range d.Topics {
			seen = append(seen, c.After.Name)
		}
	})
	for i := range 20 {
		if a := n.propose(topic(i)); a.Results[0].Err() != nil || a.Index != n.q.Image().Index() {
			t.Fatalf("%+v at %d", a, n.q.Image().Index())
		}
	}
	if a := n.propose(topic(3), topic(99)); !errors.Is(a.Results[0].Err(), metadata.ErrExists) || a.Results[1].Err() != nil {
		t.Fatalf("%+v", a.Results)
	}
	if len(seen) != 21 || seen[20] != "t00099" {
		t.Fatalf("subscriber saw %v", seen)
	}
	chain := n.q.Image().Chain()
	n.close()

	n.o.ClusterID, n.o.NewClusterID = testCluster, nil
	n.open()
	if n.q.Image().TopicCount() != 21 || n.q.Image().Chain() != chain {
		t.Fatalf("after a restart: %d topics, chain %x, want %x", n.q.Image().TopicCount(), n.q.Image().Chain(), chain)
	}
	if err := n.q.Snapshot(); err != nil {
		t.Fatal(err)
	}
	n.propose(topic(100))
	chain = n.q.Image().Chain()
	n.close()
	n.open()
	if n.q.Image().TopicCount() != 22 || n.q.Image().Chain() != chain {
		t.Fatal("a snapshot and the entry after it do not make the image")
	}
	n.close()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Fatalf("%v %v", entries, err)
	}
}

// TestConcurrentProposals shares entries among many callers, and gives each its own results.
func TestConcurrentProposals(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "/", &MemStore{}).open()
	n.q.SetBrokerEpoch(1)
	before := n.q.Image().Index()
	// The first entry is held up where it is applied until all the others wait, so that they must travel together.
	waiting := func() (all int) {
		for _, l := range n.q.lanes {
			l.mu.Lock()
			all += len(l.waiting)
			l.mu.Unlock()
		}
		return all
	}
	n.q.Subscribe(func(d metadata.Delta, _ *metadata.Image) {
		for d.From == before && waiting() < 199 {
			runtime.Gosched()
		}
	})
	var wg sync.WaitGroup
	for i := range 200 {
		if i == 1 {
			for n.q.Image().Index() == before { // the first is on its way alone
				runtime.Gosched()
			}
		}
		wg.Go(func() {
			a, err := n.q.Propose(context.Background(), []metadata.Record{topic(i), topic(i)})
			if err != nil || a.Results[0].Err() != nil || !errors.Is(a.Results[1].Err(), metadata.ErrExists) {
				t.Error(a, err)
			}
		})
	}
	wg.Wait()
	if n.q.Image().TopicCount() != 200 {
		t.Fatal(n.q.Image().TopicCount())
	}
	if got := n.q.Image().Index() - before; got != 2 {
		t.Errorf("200 proposals took %d entries, want the first one's and one for all the others", got)
	}
	n.close()
}

func TestProposalLimits(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "/", &MemStore{}).open()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	big := metadata.TopicCreated{Name: strings.Repeat("x", MaxEntry)}
	if _, err := n.q.Propose(context.Background(), []metadata.Record{big}); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if _, err := n.q.Propose(ctx, []metadata.Record{topic(1)}); err != nil && !errors.Is(err, ErrNotProposed) && !errors.Is(err, ErrUnknownOutcome) {
		t.Error(err)
	}
	term, err := n.q.Lead()
	if err != nil {
		t.Fatal(err)
	}
	_, results, err := n.q.ProposeAt(context.Background(), term+1, []metadata.Record{topic(2)})
	if err != nil || !errors.Is(results[0].Err(), metadata.ErrStaleTerm) {
		t.Error(results, err)
	}
	if err := n.q.VerifyLeader(context.Background()); err != nil {
		t.Error(err)
	}
	n.close()
	if _, err := n.q.Propose(context.Background(), []metadata.Record{topic(1)}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// TestLocked says who has the store.
func TestLocked(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, vfs.OS(), dir, nil).open()
	if _, err := Open(n.o); !errors.Is(err, ErrLocked) {
		t.Fatal(err)
	}
	n.close()
}

// TestRefusals: a store that is gone, another's or damaged is never replaced by an empty one.
func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, vfs.OS(), dir, nil).open()
	for i := range 5 {
		n.propose(topics(i*10, 10)...)
	}
	n.close()
	refused := func(name string, want error, change func(o *Options)) {
		t.Helper()
		o := n.o
		o.NewClusterID = func() string { t.Error(name, ": began a new cluster"); return "" }
		change(&o)
		q, err := Open(o)
		if err == nil {
			_ = q.Close()
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
			return
		}
		t.Log(name, ": ", err)
	}
	refused("other cluster", ErrForeign, func(o *Options) { o.ClusterID = "vutsrqponmlkjihgfedcba" })
	refused("other directory", ErrForeign, func(o *Options) { o.Directory[0]++ })
	refused("other node", ErrForeign, func(o *Options) { o.Node = 7 })
	refused("wiped", ErrMissing, func(o *Options) { o.Dir, o.ClusterID = t.TempDir(), testCluster })
	data, err := os.ReadFile(filepath.Join(dir, storeName))
	if err != nil {
		t.Fatal(err)
	}
	damaged := func(name string, change func(b []byte) []byte) {
		t.Helper()
		other := t.TempDir()
		b := change(append([]byte(nil), data...))
		if err := os.WriteFile(filepath.Join(other, storeName), b, 0o600); err != nil {
			t.Fatal(err)
		}
		refused(name, ErrDamaged, func(o *Options) { o.Dir, o.ClusterID = other, testCluster })
	}
	damaged("empty", func([]byte) []byte { return nil })
	damaged("short", func(b []byte) []byte { return b[:100] })
	damaged("cut", func(b []byte) []byte { return b[:4*4096] })
	damaged("zeroes", func(b []byte) []byte { clear(b); return b })
	damaged("a bit of a command", func(b []byte) []byte {
		at := strings.LastIndex(string(b), "t00049")
		b[at] ^= 4
		return b
	})
}

// TestCatalogue19_RotInTheStore flips one byte after the other: the node either starts with the same image or refuses.
func TestCatalogue19_RotInTheStore(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, vfs.OS(), dir, nil).open()
	for i := range 10 {
		n.propose(topic(i))
	}
	chain := n.q.Image().Chain()
	n.close()
	data, err := os.ReadFile(filepath.Join(dir, storeName))
	if err != nil {
		t.Fatal(err)
	}
	n.o.ClusterID = testCluster
	refusals := 0
	for at := 13; at < len(data); at += len(data) / 12 {
		b := append([]byte(nil), data...)
		b[at] ^= 0x41
		n.o.Dir = t.TempDir()
		if err := os.WriteFile(filepath.Join(n.o.Dir, storeName), b, 0o600); err != nil {
			t.Fatal(err)
		}
		q, err := Open(n.o)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("byte %d: %v", at, err)
			}
			refusals++
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if err := q.WaitLeader(ctx); err != nil {
			t.Errorf("byte %d: %v", at, err)
		} else if img := q.Image(); img.TopicCount() != 10 || img.Chain() != chain {
			t.Errorf("byte %d: %d topics, another chain", at, img.TopicCount())
		}
		cancel()
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d refusals", refusals)
}

// TestSnapshots takes more than are kept, damages the newest, and goes on from an older one.
func TestSnapshots(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, vfs.OS(), dir, nil).open()
	for i := range 5 {
		for j := range 5 {
			n.propose(topics(i*100+j*20, 20)...)
		}
		if err := n.q.Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.q.Snapshot(); err != nil {
		t.Fatal("nothing new: ", err)
	}
	chain := n.q.Image().Chain()
	names, err := filepath.Glob(filepath.Join(dir, snapshotPrefix+"*"))
	if err != nil || len(names) != keptSnapshots {
		t.Fatal(names, err)
	}
	n.close()
	newest := filepath.Join(dir, n.q.snaps.all[0].name)
	data, err := os.ReadFile(newest)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(newest, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, snapshotPrefix+"9-9"+tempSuffix), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.open()
	if n.q.Image().TopicCount() != 500 || n.q.Image().Chain() != chain {
		t.Fatal("an older snapshot and the log do not make the image")
	}
	if _, err := os.Stat(newest + damagedSuffix); err != nil {
		t.Error(err)
	}
	n.close()
}

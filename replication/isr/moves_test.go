package isr

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// shelves is a broker with three data directories, /a, /b and /c, that flushes by itself.
type shelves struct {
	*stage
	disk *vfs.CrashFS
	dirs []*log.Dir
	rate atomic.Int64
}

var shelfNames = []string{"/a", "/b", "/c"}

func newShelves(t *testing.T) *shelves {
	t.Helper()
	s := &shelves{stage: &stage{t: t, img: metadata.New()}}
	s.settings = config.Layers{Static: config.Default(), Replicas: 1, Brokers: 1}.Effective()
	s.settings.Segment.Bytes = 8 << 10
	s.start(vfs.NewCrash())
	t.Cleanup(func() { s.stop() })
	s.apply(metadata.ClusterStarted{ClusterID: "AAAAAAAAAAAAAAAAAAAAAA"})
	s.apply(metadata.BrokerRegistered{ID: 1})
	s.epoch = int64(s.img.Index())
	s.apply(metadata.BrokerFenced{ID: 1, Epoch: s.epoch})
	s.apply(metadata.TopicCreated{Name: "orders", ID: topicID, Partitions: []metadata.Partition{
		{Replicas: []int32{1}, ISR: []int32{1}, Leader: 1},
	}})
	return s
}

// start opens what is on a disk.
func (s *shelves) start(disk *vfs.CrashFS) {
	s.t.Helper()
	s.disk, s.fs, s.dirs = disk, vfs.NewFaulty(disk), nil
	codecs := record.NewCodecs()
	for _, name := range shelfNames {
		d, err := log.OpenDir(log.DirOptions{
			FS: s.fs, Path: name, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Codecs: codecs,
			Now: func() time.Time { return time.UnixMilli(nowMs) }, Settings: log.Settings{Reserve: -1, TruncateWait: 50 * time.Millisecond},
		})
		if err != nil {
			s.t.Fatal(err)
		}
		s.dirs = append(s.dirs, d)
	}
	if err := log.SettleMoves(s.dirs); err != nil {
		s.t.Fatal(err)
	}
	s.replicas = New(Options{
		BrokerID: 1, Dirs: s.dirs, Codecs: codecs, Logger: slog.New(slog.NewTextHandler(s.t.Output(), nil)),
		Settings: func(*metadata.Image, *metadata.Topic) config.Topic { return s.settings },
		Limits: func() Limits {
			l := DefaultLimits()
			l.MoveRate = s.rate.Load()
			return l
		},
	})
	if s.img.Index() > 0 {
		s.replicas.ApplyAll(s.img)
	}
}

func (s *shelves) stop() {
	s.replicas.Close()
	for _, d := range s.dirs {
		_ = d.Abandon()
	}
}

func (s *shelves) eventually(what string, f func() bool) {
	s.t.Helper()
	for until := time.Now().Add(time.Minute); !f(); {
		if time.Now().After(until) {
			s.t.Fatalf("never: %s; there is %v", what, s.names())
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// names lists the partitions' directories, those on their way out left away.
func (s *shelves) names() (out []string) {
	for _, d := range shelfNames {
		entries, err := s.fs.ReadDir(d)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, e := range entries {
			if e.IsDir() && !strings.HasSuffix(e.Name(), "-delete") {
				name, hex, _ := strings.Cut(e.Name(), ".")
				if hex != "" {
					name += hex[32:]
				}
				out = append(out, d+"/"+name)
			}
		}
	}
	return out
}

func (s *shelves) place(dir string) error { return s.replicas.Place("orders", topicID, 0, dir) }

func (s *shelves) home() string {
	e, ok := s.partition().Ends()
	if !ok {
		s.t.Fatal("the log is not open")
	}
	return e.DataDir
}

// elsewhere are the directories that the replica is not in.
func (s *shelves) elsewhere() []string {
	return slices.DeleteFunc(slices.Clone(shelfNames), func(d string) bool { return d == s.home() })
}

// produce writes one record and waits for the acknowledgement.
func (s *shelves) produce(value string) ProduceResult {
	done := make(chan ProduceResult, 1)
	s.partition().Produce(ProduceRequest{Records: batch(value), Acks: -1, Timeout: 20 * time.Second, NowMs: nowMs}, func(r ProduceResult) { done <- r })
	return <-done
}

func (s *shelves) fill(n int) {
	s.t.Helper()
	for i := range n {
		if r := s.produce(fmt.Sprintf("%d %s", i, strings.Repeat("x", 200))); r.Err != nil {
			s.t.Fatal(r.Err)
		}
	}
}

func TestPlace(t *testing.T) { synctest.Test(t, place) }

func place(t *testing.T) {
	s := newShelves(t)
	s.fill(50)
	if err := s.place("/nowhere"); !errors.Is(err, ErrUnknownDirectory) {
		t.Fatal(err)
	}
	if err := s.place(s.home()); err != nil || s.partition().moving.now.Load() != nil {
		t.Fatal("where it is:", err)
	}
	if err := s.replicas.Place(strings.Repeat("x", 220), metadata.TopicID{9}, 0, "/a"); !errors.Is(err, log.ErrName) {
		t.Fatal(err)
	}
	from, to := s.home(), s.elsewhere()
	s.rate.Store(1) // the first step is let through, then no more
	if err := s.place(to[0]); err != nil {
		t.Fatal(err)
	}
	s.eventually("a copy", func() bool {
		f, ok := s.partition().Future()
		return ok && f.Size > 0
	})
	if f, _ := s.partition().Future(); f.DataDir != to[0] {
		t.Fatalf("%+v", f)
	}
	s.fill(5)
	if f, _ := s.partition().Future(); f.Lag < 5 {
		t.Fatalf("%+v", f)
	}
	if err := s.place(to[0]); err != nil { // asked again
		t.Fatal(err)
	}
	if got := s.names(); len(got) != 2 {
		t.Fatal(got)
	}
	if err := s.place(to[1]); err != nil { // another wish
		t.Fatal(err)
	}
	if got, want := s.names(), to[1]+"/orders-0-future"; len(got) != 2 || !slices.Contains(got, want) {
		t.Fatal(got)
	}
	if err := s.place(from); err != nil { // given up
		t.Fatal(err)
	}
	if got := fmt.Sprint(s.names()); got != "["+from+"/orders-0]" {
		t.Fatal(got)
	}
	if _, ok := s.partition().Future(); ok {
		t.Fatal("a copy is told of")
	}
	if err := s.place(to[1]); err != nil {
		t.Fatal(err)
	}
	s.rate.Store(0)
	s.eventually("it has moved", func() bool { return s.home() == to[1] })
	s.fill(5)
	if e, _ := s.partition().Ends(); e.LogEnd != 60 || e.HighWatermark != 60 {
		t.Fatalf("%+v", e)
	}
	s.eventually("the old one is gone", func() bool { return fmt.Sprint(s.names()) == "["+to[1]+"/orders-0]" })
	if n := s.replicas.counts; n[s.dirs[slices.Index(shelfNames, to[1])]] != 1 || n[s.dirs[slices.Index(shelfNames, from)]] != 0 {
		t.Fatalf("counts %v", n)
	}
}

// A replica that is not here yet begins where it was asked for.
func TestPlaceBeforeItIsThere(t *testing.T) { synctest.Test(t, placeBeforeItIsThere) }

func placeBeforeItIsThere(t *testing.T) {
	s := newShelves(t)
	for i, dir := range []string{"/c", "/c", "/a", "/b"} {
		name, id := fmt.Sprintf("later%d", i), metadata.TopicID{9, byte(i)}
		if err := s.replicas.Place(name, metadata.TopicID{}, 0, "/b"); !errors.Is(err, ErrUnknownPartition) {
			t.Fatal(err)
		}
		if err := s.replicas.Place(name, metadata.TopicID{}, 0, dir); !errors.Is(err, ErrUnknownPartition) {
			t.Fatal(err)
		}
		s.apply(metadata.TopicCreated{Name: name, ID: id, Partitions: []metadata.Partition{{Replicas: []int32{1}, ISR: []int32{1}, Leader: 1}}})
		if got := s.names(); !slices.Contains(got, dir+"/"+name+"-0") {
			t.Fatal(got)
		}
	}
}

// A topic that is deleted takes its copy along, and one that comes under its name begins anew.
func TestDeletedWhileItMoves(t *testing.T) { synctest.Test(t, deletedWhileItMoves) }

func deletedWhileItMoves(t *testing.T) {
	s := newShelves(t)
	s.fill(20)
	s.rate.Store(1)
	if err := s.place(s.elsewhere()[0]); err != nil {
		t.Fatal(err)
	}
	p := s.partition()
	s.apply(metadata.TopicDeleted{ID: topicID})
	if got := s.names(); len(got) != 0 {
		t.Fatal(got)
	}
	if err := p.moveTo(s.dirs[0]); !errors.Is(err, ErrUnknownPartition) {
		t.Fatal(err)
	}
	s.apply(metadata.TopicCreated{Name: "orders", ID: metadata.TopicID{7}, Partitions: []metadata.Partition{{Replicas: []int32{1}, ISR: []int32{1}, Leader: 1}}})
	if got := s.names(); len(got) != 1 {
		t.Fatal(got)
	}
}

// A target that is full or fails loses the copy; the replica stays as it is.
func TestMoveToABadDisk(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EIO, syscall.ENOSPC} {
		t.Run(errno.Error(), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { toABadDisk(t, errno) }) })
	}
}

func toABadDisk(t *testing.T, errno syscall.Errno) {
	s := newShelves(t)
	s.fill(50)
	from, to := s.home(), s.elsewhere()[0]
	ops := []vfs.Op{vfs.OpWrite}
	if errno == syscall.EIO {
		ops = append(ops, vfs.OpSyncData, vfs.OpSync)
	}
	fault := s.fs.Inject(vfs.Fault{Ops: ops, Path: to + "/*/*", Nth: 4, Sticky: true, Err: errno})
	if err := s.place(to); err != nil {
		t.Fatal(err)
	}
	s.eventually("the move is over", func() bool { return s.partition().moving.now.Load() == nil })
	if fault.Hits() == 0 || s.home() != from {
		t.Fatalf("%d faults, it is in %s", fault.Hits(), s.home())
	}
	s.fill(5)
	s.fs.Heal()
	if errno == syscall.EIO {
		if err := s.place(to); !errors.Is(err, ErrOffline) {
			t.Fatal("a directory that is offline:", err)
		}
		return
	}
	if got := fmt.Sprint(s.names()); got != "["+from+"/orders-0]" {
		t.Fatal(got)
	}
	if err := s.place(to); err != nil {
		t.Fatal(err)
	}
	s.eventually("it has moved", func() bool { return s.home() == to })
}

// The topic's settings reach the log wherever it is.
func TestSettingsOfALogThatMoves(t *testing.T) { synctest.Test(t, settingsOfALogThatMoves) }

func settingsOfALogThatMoves(t *testing.T) {
	s := newShelves(t)
	s.fill(10)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 1; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			c := s.settings
			c.Segment.Bytes = 8<<10 + i
			s.partition().configure(c)
			time.Sleep(100 * time.Microsecond)
		}
	}()
	for range 10 {
		to := s.elsewhere()[0]
		if err := s.place(to); err != nil {
			t.Fatal(err)
		}
		s.eventually("it has moved", func() bool { return s.home() == to && s.partition().moving.now.Load() == nil })
	}
	close(stop)
	<-done
	if p := s.partition(); p.log.Config().Segment.Bytes != p.moving.latest.Segment.Bytes {
		t.Fatal("the log has older settings")
	}
}

// kept is what producers were told.
type kept struct {
	mu      sync.Mutex
	records map[record.Offset]string
	start   record.Offset // DeleteRecords was answered
	asked   record.Offset
}

// check reads everything that was acknowledged at some time.
func (k *kept) check(s *shelves, records map[record.Offset]string, start, asked record.Offset) {
	s.t.Helper()
	p := s.partition()
	got := map[record.Offset]string{}
	from := p.log.StartOffset()
	if from < start || from > max(start, asked) {
		s.t.Fatalf("the log begins at %d, deleted was up to %d, asked for %d", from, start, asked)
	}
	for from < p.log.WrittenEnd() {
		span, err := p.log.Read(log.ReadRequest{Offset: from, Bound: p.log.WrittenEnd(), MaxBytes: 1 << 20, AtLeastOne: true})
		if err != nil || span == nil {
			s.t.Fatal(err)
		}
		b := make([]byte, span.Len())
		if _, err := span.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
			s.t.Fatal(err)
		}
		span.Release()
		for {
			next, rest, err := record.Next(b)
			if err != nil || next == nil {
				break
			}
			it := record.Iterate(next, next[record.HeaderSize:])
			for it.Next() {
				got[it.Record().Offset] = string(it.Record().Value)
			}
			from, b = next.NextOffset(), rest
		}
	}
	for o, v := range records {
		if o >= p.log.StartOffset() && got[o] != v {
			s.t.Fatalf("offset %d of %s has %.20q, acknowledged was %.20q; the log has %d to %d", o, p.log.Path(), got[o], v, p.log.StartOffset(), p.log.WrittenEnd())
		}
	}
}

// A broker moves its replica about, gives moves up, deletes records, is killed and loses its power, while producers write: everything that was
// acknowledged is there.
func TestMovesAtRandom(t *testing.T) { synctest.Test(t, movesAtRandom) }

func movesAtRandom(t *testing.T) {
	seed := chaosSeed()
	t.Logf("KEEPLOG_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	s := newShelves(t)
	k := &kept{records: map[record.Offset]string{}}
	moved := 0
	for life := range 5 {
		stop := make(chan struct{})
		var writers sync.WaitGroup
		for w := range 3 {
			writers.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					v := fmt.Sprintf("%d/%d/%d %s", life, w, i, strings.Repeat("y", 100))
					r := s.produce(v)
					if r.Err != nil {
						t.Errorf("life %d: %v", life, r.Err)
						return
					}
					k.mu.Lock()
					k.records[r.Base] = v
					k.mu.Unlock()
					time.Sleep(time.Millisecond)
				}
			})
		}
		for range 12 {
			dir := shelfNames[rng.IntN(3)]
			if err := s.place(dir); err != nil {
				t.Fatal(err)
			}
			switch rng.IntN(4) {
			case 0:
				s.eventually("it has moved", func() bool { return s.home() == dir })
				moved++
			case 1:
				k.mu.Lock()
				k.asked = s.partition().HighWatermark() / 2
				at := k.asked
				k.mu.Unlock()
				answered := make(chan error, 1)
				s.partition().DeleteRecords(at, time.Second, func(_ record.Offset, err error) { answered <- err })
				if err := <-answered; err != nil {
					t.Fatal(err)
				}
				k.mu.Lock()
				k.start = max(k.start, at)
				k.mu.Unlock()
			case 2:
				s.dirs[rng.IntN(3)].Tick(time.UnixMilli(nowMs + rng.Int64N(100_000)))
			default:
				time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
			}
		}
		k.mu.Lock()
		before := make(map[record.Offset]string, len(k.records))
		for o, v := range k.records {
			before[o] = v
		}
		start, asked := k.start, k.asked
		k.mu.Unlock()
		var left *vfs.CrashFS // what the disk has at some moment after that
		if rng.IntN(2) == 0 {
			left = s.disk.ForkKilled()
		} else {
			left = s.disk.Fork(vfs.Policy{Kind: []vfs.PolicyKind{vfs.KeepNone, vfs.KeepAll, vfs.KeepRandom}[rng.IntN(3)]}, rng.Uint64())
		}
		close(stop)
		writers.Wait()
		s.stop()
		s.start(left)
		k.check(s, before, start, asked)
		k.records = before
		if n := s.names(); len(n) == 0 || len(n) > 2 {
			t.Fatal(n)
		}
	}
	t.Logf("%d records, %d moves that were waited for", len(k.records), moved)
}

// A replica whose directory fails while it moves leaves its copy where it is; with the partition the copy goes, and its name is free.
func TestCopyOfAReplicaThatIsOffline(t *testing.T) { synctest.Test(t, copyOfAReplicaThatIsOffline) }

func copyOfAReplicaThatIsOffline(t *testing.T) {
	s := newShelves(t)
	s.fill(50)
	from, to := s.home(), s.elsewhere()
	s.rate.Store(1)
	if err := s.place(to[0]); err != nil {
		t.Fatal(err)
	}
	s.eventually("a copy", func() bool {
		f, ok := s.partition().Future()
		return ok && f.Size > 0
	})
	s.fs.Inject(vfs.Fault{Ops: []vfs.Op{vfs.OpSyncData, vfs.OpSync}, Path: from + "/*/*", Sticky: true, Err: syscall.EIO})
	if r := s.produce("more"); !errors.Is(r.Err, ErrOffline) {
		t.Fatal(r.Err)
	}
	p := s.partition()
	transfer := p.moving.now.Load()
	s.rate.Store(0)
	<-transfer.done
	for _, dir := range to {
		if err := s.place(dir); !errors.Is(err, ErrOffline) {
			t.Fatal(err)
		}
	}
	if got := s.names(); !slices.Contains(got, to[0]+"/orders-0-future") {
		t.Fatalf("the copy is gone: %v", got)
	}
	s.apply(metadata.TopicDeleted{ID: topicID})
	if got := s.names(); slices.Contains(got, to[0]+"/orders-0-future") {
		t.Fatalf("the copy is left: %v", got)
	}
	again := metadata.TopicID{7}
	if err := s.replicas.Place("orders", metadata.TopicID{}, 0, to[0]); !errors.Is(err, ErrUnknownPartition) {
		t.Fatal(err)
	}
	s.apply(metadata.TopicCreated{Name: "orders", ID: again, Partitions: []metadata.Partition{{Replicas: []int32{1}, ISR: []int32{1}, Leader: 1}}})
	p, err := s.replicas.Partition(again, 0)
	if err != nil || p.log == nil {
		t.Fatalf("%v, %v", err, p.openErr)
	}
	if e, _ := p.Ends(); e.DataDir != to[0] {
		t.Fatal(e.DataDir)
	}
}

// Who reads while the log moves reads.
func TestReadsOfALogThatMoves(t *testing.T) { synctest.Test(t, readsOfALogThatMoves) }

func readsOfALogThatMoves(t *testing.T) {
	s := newShelves(t)
	s.fill(60)
	p := s.partition()
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for i := range 4 {
		readers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				var err error
				if i%2 == 0 {
					var span *log.Span
					if span, err = p.log.Read(log.ReadRequest{Offset: record.Offset(n % 60), Bound: 60, MaxBytes: 3000, AtLeastOne: true}); err == nil {
						span.Release()
					}
				} else {
					_, _, err = p.log.MaxTimestamp(60)
				}
				if err != nil {
					t.Errorf("reading: %v", err)
					return
				}
				if n%5 == 0 {
					time.Sleep(100 * time.Microsecond)
				}
			}
		})
	}
	for range 20 {
		to := s.elsewhere()[0]
		if err := s.place(to); err != nil {
			t.Fatal(err)
		}
		s.eventually("it has moved", func() bool { return s.home() == to && p.moving.now.Load() == nil })
	}
	close(stop)
	readers.Wait()
}

// A move comes to its end however long it takes to catch up with producers whose records are not flushed one by one.
func TestMoveUnderLoad(t *testing.T) { synctest.Test(t, moveUnderLoad) }

func moveUnderLoad(t *testing.T) {
	s := newShelves(t)
	c := s.settings
	c.Segment.Bytes, c.Flush.Messages = 1<<30, 1<<40
	s.settings = c
	s.partition().configure(c)
	b := batch(strings.Repeat("z", 250_000))
	produce := func() {
		if _, err := s.partition().log.Append(log.Append{Batch: b, NowMs: nowMs}); err != nil {
			t.Error(err)
		}
	}
	for range 88 { // 22 MB
		produce()
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { // 5 MB/s
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
				produce()
			}
		}
	}()
	s.rate.Store(5_900_000)
	to := s.elsewhere()[0]
	if err := s.place(to); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	for s.home() != to && time.Since(begun) < 40*time.Second {
		time.Sleep(10 * time.Millisecond)
	}
	close(stop)
	<-done
	if s.home() != to {
		f, _ := s.partition().Future()
		t.Fatalf("it has not moved; the copy lags by %d records", f.Lag)
	}
	t.Logf("after %v", time.Since(begun))
}

// A directory that fails while the copy takes over does not take the replica along: the copy has everything.
func TestOutOfAFailingDirectory(t *testing.T) { synctest.Test(t, outOfAFailingDirectory) }

func outOfAFailingDirectory(t *testing.T) {
	s := newShelves(t)
	s.fill(50)
	from, to := s.home(), s.elsewhere()[0]
	other := metadata.TopicID{8}
	if err := s.replicas.Place("other", other, 0, from); !errors.Is(err, ErrUnknownPartition) {
		t.Fatal(err)
	}
	s.apply(metadata.TopicCreated{Name: "other", ID: other, Partitions: []metadata.Partition{{Replicas: []int32{1}, ISR: []int32{1}, Leader: 1}}})
	on := make(chan struct{})
	stalled := s.fs.Inject(vfs.Fault{Ops: []vfs.Op{vfs.OpRename}, Path: to + "/orders-0", Stall: on})
	if err := s.place(to); err != nil {
		t.Fatal(err)
	}
	s.eventually("it takes over", func() bool { return stalled.Hits() > 0 })
	s.fs.Inject(vfs.Fault{Ops: []vfs.Op{vfs.OpSyncData, vfs.OpSync}, Path: from + "/*/*", Sticky: true, Err: syscall.EIO})
	q, err := s.replicas.Partition(other, 0)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan ProduceResult, 1)
	q.Produce(ProduceRequest{Records: batch("x"), Acks: -1, Timeout: 20 * time.Second, NowMs: nowMs}, func(r ProduceResult) { failed <- r })
	if r := <-failed; !errors.Is(r.Err, ErrOffline) {
		t.Fatal(r.Err)
	}
	p := s.partition()
	s.eventually("it is shut", func() bool { return errors.Is(p.gone(), ErrOffline) })
	close(on)
	s.eventually("it has moved", func() bool { return s.home() == to && p.moving.now.Load() == nil })
	topics := s.replicas.Reopenable()
	if len(topics) != 1 || topics[0] != topicID || len(s.replicas.Reopenable()) != 0 {
		t.Fatal(topics)
	}
	s.replicas.Apply(s.img, topics)
	s.fill(5)
	if e, _ := p.Ends(); e.LogEnd != 55 || e.HighWatermark != 55 {
		t.Fatalf("%+v", e)
	}
}

// A target that hangs does not hold up the end of a partition; its copy goes when it answers.
func TestMoveToADiskThatHangs(t *testing.T) { synctest.Test(t, moveToADiskThatHangs) }

func moveToADiskThatHangs(t *testing.T) {
	s := newShelves(t)
	s.fill(50)
	to := s.elsewhere()[0]
	on := make(chan struct{})
	hung := s.fs.Inject(vfs.Fault{Ops: []vfs.Op{vfs.OpWrite}, Path: to + "/*/*.log", Stall: on, Sticky: true})
	if err := s.place(to); err != nil {
		t.Fatal(err)
	}
	s.eventually("it hangs", func() bool { return hung.Hits() > 0 })
	begun := time.Now()
	s.apply(metadata.TopicDeleted{ID: topicID})
	if took := time.Since(begun); took > 10*time.Second {
		t.Fatalf("it took %v", took)
	}
	if got, want := fmt.Sprint(s.names()), "["+to+"/orders-0-future]"; got != want {
		t.Fatalf("there is %v, want %v", got, want)
	}
	close(on)
	s.eventually("the copy is gone", func() bool { return len(s.names()) == 0 })
}

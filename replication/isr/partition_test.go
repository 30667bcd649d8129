package isr

import (
	"errors"
	"io"
	"log/slog"
	"sync"
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

const nowMs = 1_700_000_000_000

// stage is one broker's partitions over a file system in memory, with flushes that happen when the test says so.
type stage struct {
	t        *testing.T
	fs       *vfs.FaultyFS
	dir      *log.Dir
	steps    *log.Stepped
	replicas *Replicas
	img      *metadata.Image
	settings config.Topic
	epoch    int64
}

var topicID = metadata.TopicID{1, 2, 3}

// newStage is broker 1 of a cluster of one, registered and unfenced, with a topic of one partition.
func newStage(t *testing.T) *stage {
	t.Helper()
	return newStageReserving(t, -1)
}

// newStageReserving has a disk reserve, in bytes.
func newStageReserving(t *testing.T, reserve int64) *stage {
	t.Helper()
	s := &stage{t: t, fs: vfs.NewFaulty(vfs.NewMem()), img: metadata.New()}
	s.settings = config.Layers{Static: config.Default(), Replicas: 1, Brokers: 1}.Effective()
	s.open(reserve)
	t.Cleanup(s.close)
	s.apply(metadata.ClusterStarted{ClusterID: "AAAAAAAAAAAAAAAAAAAAAA"})
	s.apply(metadata.BrokerRegistered{ID: 1})
	s.epoch = int64(s.img.Index())
	s.apply(metadata.BrokerFenced{ID: 1, Epoch: s.epoch})
	s.apply(metadata.TopicCreated{Name: "orders", ID: topicID, Partitions: []metadata.Partition{
		{Replicas: []int32{1}, ISR: []int32{1}, Leader: 1},
	}})
	return s
}

// open opens the data directory, without partitions.
func (s *stage) open(reserve int64) {
	s.t.Helper()
	codecs := record.NewCodecs()
	s.steps = &log.Stepped{}
	var err error
	s.dir, err = log.OpenDir(log.DirOptions{
		FS: s.fs, Path: "/data", Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Codecs: codecs,
		Now: func() time.Time { return time.UnixMilli(nowMs) }, Committer: s.steps, Settings: log.Settings{Reserve: reserve},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.replicas = New(Options{
		BrokerID: 1, Dirs: []*log.Dir{s.dir}, Codecs: codecs, Logger: slog.New(slog.DiscardHandler),
		Settings: func(*metadata.Image, *metadata.Topic) config.Topic { return s.settings },
	})
}

func (s *stage) close() {
	s.replicas.Close()
	s.dir.Close()
}

// apply makes the next image from one record and hands it to the partitions.
func (s *stage) apply(r metadata.Record) {
	s.t.Helper()
	payload := metadata.AppendCommand(nil, &metadata.Command{
		Session: metadata.Session{Epoch: metadata.NoEpoch}, Groups: []metadata.Group{{Records: []metadata.Record{r}}},
	})
	img, _, out, err := metadata.Apply(s.img, nil, metadata.Entry{Index: s.img.Index() + 1, Term: 1, Payload: payload})
	if err != nil {
		s.t.Fatalf("%T: %v", r, err)
	}
	if res := out.Results[0][0]; res.Refusal != 0 {
		s.t.Fatalf("%T: refused: %v", r, res.Refusal)
	}
	s.img = img
	s.replicas.ApplyAll(img)
}

func (s *stage) partition() *Partition {
	s.t.Helper()
	p, err := s.replicas.Partition(topicID, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// flush makes durable what was written.
func (s *stage) flush() {
	s.t.Helper()
	if err := s.steps.Run(); err != nil {
		s.t.Fatal(err)
	}
}

func batch(values ...string) []byte {
	b := record.NewBuilder(record.NewOptions())
	for _, v := range values {
		b.Append(nowMs, nil, []byte(v))
	}
	out, err := b.Batch(nil)
	if err != nil {
		panic(err)
	}
	return out
}

// answers collects what producers were told.
type answers struct {
	mu  sync.Mutex
	got []ProduceResult
}

func (a *answers) done(r ProduceResult) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.got = append(a.got, r)
}

func (a *answers) take() []ProduceResult {
	a.mu.Lock()
	defer a.mu.Unlock()
	got := a.got
	a.got = nil
	return got
}

func request(acks int16, values ...string) ProduceRequest {
	return ProduceRequest{Records: batch(values...), Acks: acks, Timeout: time.Minute, NowMs: nowMs}
}

func TestAcknowledgedOnlyOnceStable(t *testing.T) {
	s := newStage(t)
	p := s.partition()
	var all, one, none answers
	p.Produce(request(-1, "a", "b"), all.done)
	p.Produce(request(1, "c"), one.done)
	p.Produce(request(0, "d"), none.done)
	if got := none.take(); len(got) != 1 || got[0].Err != nil || got[0].Base != 3 {
		t.Errorf("acks=0: %+v, want offset 3 at once", got)
	}
	if a, o := all.take(), one.take(); len(a)+len(o) != 0 {
		t.Errorf("answered before the flush: %+v %+v", a, o)
	}
	if hw := p.HighWatermark(); hw != 0 {
		t.Errorf("the high watermark is %d before the flush", hw)
	}
	s.flush()
	if got := all.take(); len(got) != 1 || got[0].Err != nil || got[0].Base != 0 {
		t.Errorf("acks=all after the flush: %+v", got)
	}
	if got := one.take(); len(got) != 1 || got[0].Err != nil || got[0].Base != 2 {
		t.Errorf("acks=1 after the flush: %+v", got)
	}
	if hw := p.HighWatermark(); hw != 4 {
		t.Errorf("the high watermark is %d, want 4", hw)
	}
}

func TestNotDurableOnAckWhereTheTopicSaysSo(t *testing.T) {
	s := newStage(t)
	s.settings.Flush.Messages = 1000
	s.replicas.ApplyAll(s.img)
	var a answers
	s.partition().Produce(request(-1, "a"), a.done)
	if got := a.take(); len(got) != 1 || got[0].Err != nil {
		t.Errorf("flush.messages=1000: %+v, want an answer after the write", got)
	}
}

func TestRefusedBeforeAnythingIsWritten(t *testing.T) {
	s := newStage(t)
	p := s.partition()
	bad := request(-1, "a")
	bad.Records[65] ^= 1
	for name, c := range map[string]struct {
		r    ProduceRequest
		want error
	}{
		"acks 2":   {request(2, "a"), ErrInvalidAcks},
		"bad crc":  {bad, record.ErrCorrupt},
		"no batch": {ProduceRequest{Acks: -1, NowMs: nowMs}, record.ErrInvalidRecord},
	} {
		var a answers
		p.Produce(c.r, a.done)
		if got := a.take(); len(got) != 1 || !errors.Is(got[0].Err, c.want) || got[0].Base != -1 || got[0].LogStart != -1 {
			t.Errorf("%s: %+v, want %v", name, got, c.want)
		}
	}
	s.settings.MinInsyncReplicas, s.settings.MinInsyncSet = 2, true
	s.img2(metadata.Partition{Replicas: []int32{1, 2}, ISR: []int32{1}, Leader: 1, LeaderEpoch: 0})
	var a answers
	p.Produce(request(-1, "a"), a.done)
	if got := a.take(); len(got) != 1 || !errors.Is(got[0].Err, ErrNotEnoughReplicas) {
		t.Errorf("one of two in sync: %+v", got)
	}
	p.Produce(request(1, "a"), a.done)
	s.flush()
	if got := a.take(); len(got) != 1 || got[0].Err != nil {
		t.Errorf("acks=1 does not ask for the in-sync set: %+v", got)
	}
	if hw := p.HighWatermark(); hw != 0 {
		t.Errorf("the high watermark moved to %d below min.insync.replicas", hw)
	}
}

// img2 gives the partition another state of the same image, as a later image would.
func (s *stage) img2(part metadata.Partition) {
	p := s.partition()
	p.setRole(s.img, &part, s.settings)
}

func TestStepDownAnswersEveryoneWhoWaits(t *testing.T) {
	s := newStage(t)
	p := s.partition()
	var a answers
	p.Produce(request(-1, "a"), a.done)
	p.Produce(request(1, "b"), a.done)
	s.img2(metadata.Partition{Replicas: []int32{1, 2}, ISR: []int32{2}, Leader: 2, LeaderEpoch: 1, PartitionEpoch: 1})
	got := a.take()
	if len(got) != 2 || !errors.Is(got[0].Err, ErrNotLeader) || !errors.Is(got[1].Err, ErrNotLeader) {
		t.Errorf("after the leader left: %+v, want two refusals", got)
	}
	p.Produce(request(-1, "c"), a.done)
	if got := a.take(); len(got) != 1 || !errors.Is(got[0].Err, ErrNotLeader) {
		t.Errorf("produce to a broker that does not lead: %+v", got)
	}
	if f := p.Fetch(FetchRequest{LeaderEpoch: -1, LastFetchedEpoch: -1, MaxBytes: 1000}); !errors.Is(f.Err, ErrNotLeader) {
		t.Errorf("fetch from a broker that does not lead: %v", f.Err)
	}
}

// A new incarnation registers again, which raises the leader epoch: nothing may be written under the old one.
func TestNewEpochForANewIncarnation(t *testing.T) {
	s := newStage(t)
	p := s.partition()
	var a answers
	p.Produce(request(-1, "a"), a.done)
	s.flush()
	s.apply(metadata.BrokerRegistered{ID: 1, Incarnation: [16]byte{9}})
	if l := p.Leadership(); l.Leader != -1 || l.Epoch != 1 {
		t.Errorf("while fenced: %+v, want no leader in epoch 1", l)
	}
	s.apply(metadata.BrokerFenced{ID: 1, Epoch: int64(s.img.Index())})
	p.Produce(request(-1, "b"), a.done)
	s.flush()
	a.take()
	for epoch, want := range map[record.Epoch]record.Offset{0: 1, 1: 2} {
		if e, end, err := p.EndOffsetForEpoch(epoch, -1); err != nil || e != epoch || end != want {
			t.Errorf("end of epoch %d: %d in epoch %d, %v; want %d", epoch, end, e, err, want)
		}
	}
	for epoch, want := range map[record.Epoch]error{0: ErrFencedLeaderEpoch, 1: nil, 2: ErrUnknownLeaderEpoch} {
		f := p.Fetch(FetchRequest{LeaderEpoch: epoch, LastFetchedEpoch: -1, MaxBytes: 1000})
		f.Span.Release()
		if !errors.Is(f.Err, want) {
			t.Errorf("fetch with leader epoch %d: %v, want %v", epoch, f.Err, want)
		}
	}
}

func TestFetchShowsNothingAboveTheHighWatermark(t *testing.T) {
	s := newStage(t)
	p := s.partition()
	var a answers
	p.Produce(request(-1, "a"), a.done)
	fetch := func(offset record.Offset) FetchResult {
		return p.Fetch(FetchRequest{Offset: offset, LeaderEpoch: -1, LastFetchedEpoch: -1, MaxBytes: 1 << 20, AtLeastOne: true})
	}
	if f := fetch(0); f.Err != nil || f.Span != nil || f.HighWatermark != 0 {
		t.Errorf("before the flush: %+v", f)
	}
	if n, now := p.Pending(0, -1); n != 0 || now {
		t.Errorf("pending before the flush: %d %v", n, now)
	}
	s.flush()
	p.Produce(request(-1, "b"), a.done) // written, not stable
	f := fetch(0)
	if f.Err != nil || f.Span == nil || f.HighWatermark != 1 {
		t.Fatalf("after the flush: %+v", f)
	}
	if next, err := f.Span.NextOffset(); err != nil || next != 1 {
		t.Errorf("the span ends before offset %d, %v; want 1", next, err)
	}
	f.Span.Release()
	if f := fetch(7); !errors.Is(f.Err, log.ErrOffsetOutOfRange) || f.HighWatermark != -1 {
		t.Errorf("above the end: %+v", f)
	}
}

func TestDeleteRecords(t *testing.T) {
	s := newStage(t)
	p := s.partition()
	var a answers
	p.Produce(request(-1, "a", "b", "c"), a.done)
	s.flush()
	for _, c := range []struct {
		offset, low record.Offset
		err         error
	}{{2, 2, nil}, {1, 2, nil}, {4, -1, log.ErrOffsetOutOfRange}, {-2, -1, log.ErrOffsetOutOfRange}, {-1, 3, nil}} {
		p.DeleteRecords(c.offset, time.Second, func(low record.Offset, err error) {
			if low != c.low || !errors.Is(err, c.err) {
				t.Errorf("delete before %d: %d, %v; want %d, %v", c.offset, low, err, c.low, c.err)
			}
		})
	}
	s.settings.Cleanup = config.Cleanup{Compact: true}
	s.replicas.ApplyAll(s.img)
	p.DeleteRecords(-1, time.Second, func(_ record.Offset, err error) {
		if !errors.Is(err, ErrDeletePolicy) {
			t.Errorf("a compacted topic: %v", err)
		}
	})
}

func TestTopicDeletionAnswersAndForgets(t *testing.T) {
	s := newStage(t)
	p := s.partition()
	var a answers
	var told counter
	var w Watch
	p.Watch(&w, &told)
	p.Produce(request(-1, "a"), a.done)
	s.apply(metadata.TopicDeleted{ID: topicID})
	if got := a.take(); len(got) != 1 || !errors.Is(got[0].Err, ErrUnknownPartition) {
		t.Errorf("a waiting producer was told %+v", got)
	}
	if told.n == 0 {
		t.Error("a waiting fetch was not told")
	}
	if _, err := s.replicas.Partition(topicID, 0); !errors.Is(err, ErrUnknownPartition) {
		t.Errorf("the partition is still there: %v", err)
	}
	if _, now := p.Pending(0, -1); !now {
		t.Error("a fetch that holds the partition must answer now")
	}
}

// A failed flush takes the log offline; whoever waits is told so, and nobody is acknowledged.
func TestFailedFlushAcknowledgesNobody(t *testing.T) {
	s := newStage(t)
	p := s.partition()
	var a answers
	p.Produce(request(-1, "a"), a.done)
	s.fs.Inject(vfs.Fault{Ops: []vfs.Op{vfs.OpSync, vfs.OpSyncData}, Path: "*.log", Err: syscall.EIO})
	if err := s.steps.Run(); !errors.Is(err, log.ErrOffline) {
		t.Fatalf("flush: %v, want ErrOffline", err)
	}
	if got := a.take(); len(got) != 1 || !errors.Is(got[0].Err, ErrOffline) {
		t.Errorf("the producer was told %+v", got)
	}
	p.Produce(request(-1, "b"), a.done)
	if got := a.take(); len(got) != 1 || got[0].Err == nil {
		t.Errorf("produce to a log that is offline: %+v", got)
	}
}

func TestTimedOutWhereNothingFlushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		p := s.partition()
		var a answers
		r := request(-1, "a")
		r.Timeout = 2 * time.Second
		p.Produce(r, a.done)
		time.Sleep(1900 * time.Millisecond)
		synctest.Wait()
		if got := a.take(); len(got) != 0 {
			t.Errorf("answered early: %+v", got)
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		if got := a.take(); len(got) != 1 || !errors.Is(got[0].Err, ErrTimedOut) {
			t.Errorf("after the timeout: %+v", got)
		}
		s.flush() // the data stays
		if hw := p.HighWatermark(); hw != 1 {
			t.Errorf("the high watermark is %d, want 1", hw)
		}
	})
}

// A partition for which there was no room is opened and led when there is some: nobody has to start the broker again.
func TestPartitionOpensWhenThereIsRoomAgain(t *testing.T) {
	s := newStageReserving(t, 1<<20)
	s.fs.SetFree(100 << 10)
	s.dir.Tick(time.UnixMilli(nowMs))
	if err := s.replicas.Room(); !errors.Is(err, log.ErrReserve) {
		t.Fatalf("room below the reserve: %v", err)
	}
	late := metadata.TopicID{9}
	s.apply(metadata.TopicCreated{Name: "late", ID: late, Partitions: []metadata.Partition{{Replicas: []int32{1}, ISR: []int32{1}, Leader: 1}}})
	p, err := s.replicas.Partition(late, 0)
	if err != nil || p.log != nil || !errors.Is(s.replicas.Problems(), log.ErrReserve) {
		t.Fatalf("partition %v, %v; problems %v", p, err, s.replicas.Problems())
	}
	if ids := s.replicas.Reopenable(); len(ids) != 0 {
		t.Fatalf("there is no room yet, and %v could be opened", ids)
	}
	if ids := s.replicas.Broken(); len(ids) != 1 || ids[0].TopicID != late {
		t.Fatalf("out of order are %v: nobody else may lead it meanwhile", ids)
	}
	s.fs.SetFree(64 << 20)
	s.dir.Tick(time.UnixMilli(nowMs))
	if ids := s.replicas.Reopenable(); len(ids) != 1 || ids[0] != late {
		t.Fatalf("reopenable: %v", ids)
	}
	s.replicas.Apply(s.img, []metadata.TopicID{late})
	p, err = s.replicas.Partition(late, 0)
	if err != nil || p.log == nil || s.replicas.Problems() != nil || s.replicas.Room() != nil {
		t.Fatalf("partition %v, %v; problems %v; room %v", p, err, s.replicas.Problems(), s.replicas.Room())
	}
	if role := p.role.Load(); role == nil || !role.leads {
		t.Fatal("it is not led")
	}
	if n := s.replicas.counts[s.dir]; n != 2 {
		t.Errorf("the directory counts %d partitions, and has 2", n)
	}
}

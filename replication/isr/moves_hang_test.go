package isr

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// hang lets calls wait until the disk answers, which it does at the end of the test at the latest.
func (s *shelves) hang(f vfs.Fault) (hung *vfs.Injection, answer func()) {
	on := make(chan struct{})
	answer = sync.OnceFunc(func() { close(on) })
	s.t.Cleanup(answer)
	f.Stall, f.Sticky = on, true
	return s.fs.Inject(f), answer
}

// soon calls f, which must return in less than two times the patience with one step.
func (s *shelves) soon(what string, f func()) {
	s.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(2*stepPatience - time.Second):
		s.t.Fatalf("%s takes for ever", what)
	}
}

// again makes a topic of the name of the one that was deleted, in a directory, and uses it.
func (s *shelves) again(dir string) {
	s.t.Helper()
	id := metadata.TopicID{7}
	if err := s.replicas.Place("orders", metadata.TopicID{}, 0, dir); !errors.Is(err, ErrUnknownPartition) {
		s.t.Fatal(err)
	}
	s.apply(metadata.TopicCreated{Name: "orders", ID: id, Partitions: []metadata.Partition{{Replicas: []int32{1}, ISR: []int32{1}, Leader: 1}}})
	s.eventually("its name is free", func() bool {
		s.replicas.Apply(s.img, s.replicas.Reopenable())
		p, err := s.replicas.Partition(id, 0)
		return err == nil && p.log != nil && !slices.Contains(s.replicas.Broken(), p.id)
	})
	s.eventually("the copy is gone", func() bool { return len(s.names()) == 1 })
	if got, want := fmt.Sprint(s.names()), "["+dir+"/orders-0]"; got != want {
		s.t.Fatalf("there is %s, want %s", got, want)
	}
	for _, d := range s.dirs {
		if n, want := s.replicas.counts[d], map[bool]int{true: 1}[d.Path() == dir]; n != want {
			s.t.Errorf("%s counts %d partitions, want %d", d.Path(), n, want)
		}
	}
}

// A partition that ends while its copy takes over on a disk that hangs is deleted when the disk answers, in both directories, and is counted
// in none.
func TestDeletedWhileItsTakeoverHangs(t *testing.T) { synctest.Test(t, deletedWhileItsTakeoverHangs) }

func deletedWhileItsTakeoverHangs(t *testing.T) {
	s := newShelves(t)
	s.fill(50)
	to := s.elsewhere()[0]
	hung, answer := s.hang(vfs.Fault{Ops: []vfs.Op{vfs.OpRename}, Path: to + "/orders-0"})
	if err := s.place(to); err != nil {
		t.Fatal(err)
	}
	s.eventually("it takes over", func() bool { return hung.Hits() > 0 })
	old := s.partition().log.current()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.apply(metadata.TopicDeleted{ID: topicID})
	}()
	time.Sleep(stepPatience) // no longer: who waits for a mutex stops the clock
	for old.Err() == nil {
		runtime.Gosched()
	}
	answer()
	<-ended
	s.eventually("it is gone", func() bool { return len(s.names()) == 0 })
	s.again(to)
}

// A takeover that is through a moment before the partition ends is not deleted twice, nor left.
func TestDeletedJustAfterItsTakeover(t *testing.T) { synctest.Test(t, deletedJustAfterItsTakeover) }

func deletedJustAfterItsTakeover(t *testing.T) {
	s := newShelves(t)
	s.fill(50)
	from, to := s.home(), s.elsewhere()[0]
	hung, answer := s.hang(vfs.Fault{Ops: []vfs.Op{vfs.OpRename}, Path: from + "/orders-0"}) // of the old directory
	if err := s.place(to); err != nil {
		t.Fatal(err)
	}
	s.eventually("it has taken over", func() bool { return hung.Hits() > 0 })
	s.soon("the end of the topic", func() { s.apply(metadata.TopicDeleted{ID: topicID}) })
	answer()
	s.eventually("it is gone", func() bool { return len(s.names()) == 0 })
	s.again(to)
}

// A takeover that is through between the moment in which a partition is not listed any more and that in which its log is deleted neither saves
// the partition nor counts it.
func TestTakeoverOfWhatIsNotListedAnyMore(t *testing.T) {
	synctest.Test(t, takeoverOfWhatIsNotListedAnyMore)
}

func takeoverOfWhatIsNotListedAnyMore(t *testing.T) {
	s := newShelves(t)
	s.fill(50)
	p, from, to := s.partition(), s.home(), s.elsewhere()[0]
	hung, answer := s.hang(vfs.Fault{Ops: []vfs.Op{vfs.OpRename}, Path: to + "/orders-0"})
	if err := s.place(to); err != nil {
		t.Fatal(err)
	}
	s.eventually("it takes over", func() bool { return hung.Hits() > 0 })
	r := s.replicas
	r.mu.Lock()
	delete(r.topics, topicID)
	r.counts[s.dirs[slices.Index(shelfNames, from)]]--
	r.mu.Unlock()
	answer()
	s.eventually("it has moved", func() bool { return p.moving.now.Load() == nil })
	for d, n := range r.counts {
		if n != 0 {
			t.Errorf("%s counts %d partitions", d.Path(), n)
		}
	}
	r.end(p, ErrUnknownPartition)
	if got := s.names(); len(got) != 0 {
		t.Errorf("there is %v", got)
	}
}

// Another wish waits for a target that hangs as long as the end of the partition does, and no lock is held meanwhile.
func TestAnotherWishWhileTheTargetHangs(t *testing.T) {
	synctest.Test(t, anotherWishWhileTheTargetHangs)
}

func anotherWishWhileTheTargetHangs(t *testing.T) {
	s := newShelves(t)
	s.fill(50)
	to := s.elsewhere()
	hung, answer := s.hang(vfs.Fault{Ops: []vfs.Op{vfs.OpWrite}, Path: to[0] + "/*/*.log"})
	if err := s.place(to[0]); err != nil {
		t.Fatal(err)
	}
	s.eventually("it hangs", func() bool { return hung.Hits() > 0 })
	for _, dir := range []string{to[1], to[0], to[1]} { // the same as before as well: it is being given up
		s.soon("another wish", func() {
			if err := s.place(dir); !errors.Is(err, ErrOffline) || !strings.Contains(err.Error(), to[0]+" does not answer") {
				t.Error(err)
			}
		})
	}
	if f, ok := s.partition().Future(); !ok || f.DataDir != to[0] {
		t.Errorf("the copy is not told of: %+v, %v", f, ok)
	}
	waits := make(chan error, 1)
	go func() { waits <- s.place(to[1]) }()
	synctest.Wait()
	s.soon("the end of the topic", func() { s.apply(metadata.TopicDeleted{ID: topicID}) })
	if err := <-waits; err == nil {
		t.Error("a wish for what is gone is answered well")
	}
	answer()
	s.eventually("it is gone", func() bool { return len(s.names()) == 0 })
	s.again(to[0])
}

// A wish that was refused because the copy before it could not be given up is possible when the disk answers.
func TestAnotherWishWhenTheTargetAnswers(t *testing.T) {
	synctest.Test(t, anotherWishWhenTheTargetAnswers)
}

func anotherWishWhenTheTargetAnswers(t *testing.T) {
	s := newShelves(t)
	s.fill(50)
	to := s.elsewhere()
	hung, answer := s.hang(vfs.Fault{Ops: []vfs.Op{vfs.OpWrite}, Path: to[0] + "/*/*.log"})
	if err := s.place(to[0]); err != nil {
		t.Fatal(err)
	}
	s.eventually("it hangs", func() bool { return hung.Hits() > 0 })
	s.soon("another wish", func() {
		if err := s.place(to[1]); !errors.Is(err, ErrOffline) {
			t.Error(err)
		}
	})
	answer()
	s.fs.Heal()
	s.eventually("the copy is gone", func() bool { return s.partition().moving.now.Load() == nil })
	if err := s.place(to[1]); err != nil {
		t.Fatal(err)
	}
	s.eventually("it has moved", func() bool { return fmt.Sprint(s.names()) == "["+to[1]+"/orders-0]" })
	s.fill(5)
}

// A move that does not begin, because the target hangs, holds up nobody, and does not begin later.
func TestTargetHangsAtTheBeginning(t *testing.T) { synctest.Test(t, targetHangsAtTheBeginning) }

func targetHangsAtTheBeginning(t *testing.T) {
	for _, delete := range []bool{false, true} {
		s := newShelves(t)
		s.fill(50)
		from, to := s.home(), s.elsewhere()
		hung, answer := s.hang(vfs.Fault{Ops: []vfs.Op{vfs.OpMkdir}, Path: to[0] + "/*"})
		for _, dir := range to {
			s.soon("a wish", func() {
				if err := s.place(dir); !errors.Is(err, ErrOffline) {
					t.Error(err)
				}
			})
		}
		if hung.Hits() != 1 {
			t.Errorf("%d moves begin", hung.Hits())
		}
		if delete {
			s.soon("the end of the topic", func() { s.apply(metadata.TopicDeleted{ID: topicID}) })
			answer()
			s.eventually("it is gone", func() bool { return len(s.names()) == 0 })
			s.again(to[0])
			continue
		}
		answer()
		time.Sleep(time.Second)
		if got := fmt.Sprint(s.names()); got != "["+from+"/orders-0]" {
			t.Errorf("there is %s", got)
		}
		if err := s.place(to[0]); err != nil {
			t.Fatal(err)
		}
		s.eventually("it has moved", func() bool { return fmt.Sprint(s.names()) == "["+to[0]+"/orders-0]" })
	}
}

// A topic of the name of one whose copy is still on a disk that hangs begins there when the copy is gone, without a restart.
func TestMadeAgainBesideACopyThatHangs(t *testing.T) { synctest.Test(t, madeAgainBesideACopyThatHangs) }

func madeAgainBesideACopyThatHangs(t *testing.T) {
	s := newShelves(t)
	s.fill(50)
	to := s.elsewhere()[0]
	hung, answer := s.hang(vfs.Fault{Ops: []vfs.Op{vfs.OpWrite}, Path: to + "/*future/*.log"})
	if err := s.place(to); err != nil {
		t.Fatal(err)
	}
	s.eventually("it hangs", func() bool { return hung.Hits() > 0 })
	s.soon("the end of the topic", func() { s.apply(metadata.TopicDeleted{ID: topicID}) })
	_ = s.replicas.Place("orders", metadata.TopicID{}, 0, to)
	id := metadata.TopicID{7}
	s.apply(metadata.TopicCreated{Name: "orders", ID: id, Partitions: []metadata.Partition{{Replicas: []int32{1}, ISR: []int32{1}, Leader: 1}}})
	if p, err := s.replicas.Partition(id, 0); err != nil || !errors.Is(p.openErr, log.ErrInUse) {
		t.Fatalf("%v, %v", err, p.openErr)
	}
	if n := len(s.replicas.Reopenable()) + len(s.replicas.Broken()); n != 0 {
		t.Errorf("%d too early", n)
	}
	answer()
	s.eventually("its name is free", func() bool { return len(s.replicas.Reopenable()) == 1 })
	s.replicas.Apply(s.img, s.replicas.Reopenable())
	if p, err := s.replicas.Partition(id, 0); err != nil || p.log == nil {
		t.Fatalf("%v, %v", err, p.openErr)
	}
}

// However many partitions end while their targets hang, the patience is one, of all topics together.
func TestManyMovesToADiskThatHangs(t *testing.T) { synctest.Test(t, manyMovesToADiskThatHangs) }

func manyMovesToADiskThatHangs(t *testing.T) {
	s := newShelves(t)
	ids := []metadata.TopicID{{21}, {22}, {23}}
	for i, id := range ids {
		name := fmt.Sprintf("many%d", i)
		if err := s.replicas.Place(name, id, 0, "/a"); !errors.Is(err, ErrUnknownPartition) {
			t.Fatal(err)
		}
		s.apply(metadata.TopicCreated{Name: name, ID: id, Partitions: []metadata.Partition{{Replicas: []int32{1}, ISR: []int32{1}, Leader: 1}}})
		p, err := s.replicas.Partition(id, 0)
		if err != nil {
			t.Fatal(err)
		}
		answered := make(chan ProduceResult, 1)
		p.Produce(ProduceRequest{Records: batch("x"), Acks: -1, Timeout: 20 * time.Second, NowMs: nowMs}, func(r ProduceResult) { answered <- r })
		if r := <-answered; r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	hung, answer := s.hang(vfs.Fault{Ops: []vfs.Op{vfs.OpWrite}, Path: "/b/*/*.log"})
	for i, id := range ids {
		if err := s.replicas.Place(fmt.Sprintf("many%d", i), id, 0, "/b"); err != nil {
			t.Fatal(err)
		}
	}
	s.eventually("they hang", func() bool { return hung.Hits() == int64(len(ids)) })
	var records []metadata.Record
	for _, id := range ids {
		records = append(records, metadata.TopicDeleted{ID: id})
	}
	payload := metadata.AppendCommand(nil, &metadata.Command{
		Session: metadata.Session{Epoch: metadata.NoEpoch}, Groups: []metadata.Group{{Records: records}},
	})
	img, _, _, err := metadata.Apply(s.img, nil, metadata.Entry{Index: s.img.Index() + 1, Term: 1, Payload: payload})
	if err != nil {
		t.Fatal(err)
	}
	s.img = img
	s.soon("the end of three topics", func() { s.replicas.Apply(img, ids) })
	answer()
	s.eventually("they are gone", func() bool {
		return !slices.ContainsFunc(s.names(), func(n string) bool { return strings.Contains(n, "many") })
	})
}

// A replica that was put offline because its committed records differ from the leader's stays so wherever it is moved.
func TestMoveOfAReplicaThatIsHalted(t *testing.T) { synctest.Test(t, moveOfAReplicaThatIsHalted) }

func moveOfAReplicaThatIsHalted(t *testing.T) {
	s := newShelves(t)
	s.fill(50)
	p, to := s.partition(), s.elsewhere()[0]
	(&following{partition: p, epoch: 1}).halt(ErrBelowWatermark, 10)
	if err := s.place(to); err != nil {
		t.Fatal(err)
	}
	s.eventually("it has moved", func() bool { return s.home() == to && p.moving.now.Load() == nil })
	if topics := s.replicas.Reopenable(); len(topics) != 0 {
		t.Error("it is to be opened again")
	}
	s.replicas.ApplyAll(s.img)
	if r := s.produce("x"); !errors.Is(r.Err, ErrBelowWatermark) {
		t.Errorf("it leads: %+v", r)
	}
}

// A replica that is opened again by its move has no role until the one that it has now is applied: it may have been taken from it meanwhile.
func TestNoRoleBeforeItIsApplied(t *testing.T) { synctest.Test(t, noRoleBeforeItIsApplied) }

func noRoleBeforeItIsApplied(t *testing.T) {
	s := newShelves(t)
	s.fill(50)
	p, from, to := s.partition(), s.home(), s.elsewhere()[0]
	hung, answer := s.hang(vfs.Fault{Ops: []vfs.Op{vfs.OpRename}, Path: to + "/orders-0"})
	if err := s.place(to); err != nil {
		t.Fatal(err)
	}
	s.eventually("it takes over", func() bool { return hung.Hits() > 0 })
	p.shut(fmt.Errorf("%w: %w: %s", ErrOffline, syscall.EIO, from)) // as when its directory fails
	answer()
	s.eventually("it has moved", func() bool { return s.home() == to && p.moving.now.Load() == nil })
	for _, acks := range []int16{0, 1, -1} {
		done := make(chan ProduceResult, 1)
		p.Produce(ProduceRequest{Records: batch("x"), Acks: acks, Timeout: time.Second, NowMs: nowMs}, func(r ProduceResult) { done <- r })
		if r := <-done; !errors.Is(r.Err, ErrNotLeader) {
			t.Errorf("acks=%d: %+v", acks, r)
		}
	}
	if r := p.Fetch(FetchRequest{Offset: 0, MaxBytes: 1000, LeaderEpoch: record.NoEpoch}); !errors.Is(r.Err, ErrNotLeader) {
		t.Errorf("a fetch: %+v", r)
	}
	if _, _, err := p.EndOffsetForEpoch(0, record.NoEpoch); !errors.Is(err, ErrNotLeader) {
		t.Errorf("an epoch's end: %v", err)
	}
	s.replicas.Apply(s.img, s.replicas.Reopenable())
	s.fill(5)
}

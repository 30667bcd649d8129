package isr

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
)

// names are the entries of the stage's data directory that begin with a topic's name.
func (s *stage) names(topic string) []string {
	s.t.Helper()
	entries, err := s.fs.ReadDir("/data")
	if err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), topic+"-") {
			out = append(out, e.Name())
		}
	}
	return out
}

// put makes a partition's directory as somebody else may have left it.
func (s *stage) put(dir string, files map[string][]byte, dirs ...string) {
	s.t.Helper()
	for _, d := range append([]string{"/data/" + dir}, dirs...) {
		if err := s.fs.Mkdir(d, 0o755); err != nil {
			s.t.Fatal(err)
		}
	}
	for name, content := range files {
		f, err := s.fs.OpenFile("/data/"+dir+"/"+name, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			s.t.Fatal(err)
		}
		if _, err := f.WriteAt(content, 0); err != nil {
			s.t.Fatal(err)
		}
		f.Close()
	}
}

func (s *stage) create(name string, id metadata.TopicID) *Partition {
	s.t.Helper()
	s.apply(metadata.TopicCreated{Name: name, ID: id, Partitions: []metadata.Partition{{Replicas: []int32{1}, ISR: []int32{1}, Leader: 1}}})
	p, err := s.replicas.Partition(id, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// works says that a partition takes a record.
func (s *stage) works(p *Partition) {
	s.t.Helper()
	var a answers
	p.Produce(request(-1, "a"), a.done)
	s.flush()
	if got := a.take(); len(got) != 1 || got[0].Err != nil {
		s.t.Fatalf("a producer was told %+v", got)
	}
}

// A topic whose log did not open is deleted like any other, and its name is free again.
func TestTopicThatDidNotOpenIsDeleted(t *testing.T) {
	first, second := metadata.TopicID{8}, metadata.TopicID{9}
	for name, files := range map[string]map[string][]byte{
		"its own":       {log.PartitionFile: log.EncodePartition(first)},
		"without an id": {},
		"damaged id":    {log.PartitionFile: []byte("?")},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.put("bad-0", files, "/data/bad-0/00000000000000000000.log")
			if p := s.create("bad", first); p.log != nil || p.openErr == nil {
				t.Fatal("the log opened")
			}
			s.apply(metadata.TopicDeleted{ID: first})
			if got := s.names("bad"); len(got) != 1 || !strings.HasSuffix(got[0], "-delete") {
				t.Fatalf("after the deletion there is %q", got)
			}
			p := s.create("bad", second)
			s.works(p)
			s.dir.Tick(time.UnixMilli(nowMs).Add(time.Hour))
			if got := s.names("bad"); !slices.Equal(got, []string{"bad-0"}) {
				t.Fatalf("in the end there is %q", got)
			}
		})
	}
}

// A directory of another topic id gives way to the topic that the metadata knows, and is kept. The deletion of a topic leaves it alone.
func TestDirectoryOfAnotherTopicGivesWay(t *testing.T) {
	s := newStage(t)
	s.put("late-0", map[string][]byte{log.PartitionFile: log.EncodePartition([16]byte{7})})
	s.replicas.Recover(s.img) // of which the image knows nothing
	s.works(s.create("late", metadata.TopicID{8}))
	got := s.names("late")
	if len(got) != 2 || !slices.Contains(got, "late-0") || !strings.HasSuffix(got[0], "-stray") && !strings.HasSuffix(got[1], "-stray") {
		t.Fatalf("there is %q", got)
	}
}

// While nobody knows whether the image is current, no directory gives way; nor is one deleted with a topic that is not its own.
func TestDirectoryOfAnotherTopicWaitsForTheImage(t *testing.T) {
	s := newStage(t)
	s.put("late-0", map[string][]byte{log.PartitionFile: log.EncodePartition([16]byte{7})})
	id := metadata.TopicID{8}
	payload := metadata.AppendCommand(nil, &metadata.Command{
		Session: metadata.Session{Epoch: metadata.NoEpoch},
		Groups: []metadata.Group{{Records: []metadata.Record{
			metadata.TopicCreated{Name: "late", ID: id, Partitions: []metadata.Partition{{Replicas: []int32{1}, ISR: []int32{1}, Leader: 1}}},
		}}},
	})
	img, _, _, err := metadata.Apply(s.img, nil, metadata.Entry{Index: s.img.Index() + 1, Term: 1, Payload: payload})
	if err != nil {
		t.Fatal(err)
	}
	s.replicas.Recover(img)
	if p, err := s.replicas.Partition(id, 0); err != nil || p.log != nil || !slices.Equal(s.names("late"), []string{"late-0"}) {
		t.Fatalf("%v, and there is %q", err, s.names("late"))
	}
	s.img = img
	s.apply(metadata.TopicDeleted{ID: id})
	if got := s.names("late"); !slices.Equal(got, []string{"late-0"}) {
		t.Fatalf("after the deletion there is %q", got)
	}
}

// A log that opens later than others, and has lost data, is told to the controller like theirs: it may count on the replica.
func TestLateLogTellsOfItsLoss(t *testing.T) {
	s := newStage(t)
	p := s.create("late", metadata.TopicID{9})
	for range 3 {
		s.works(p)
	}
	s.close()
	f, err := s.fs.OpenFile("/data/late-0/00000000000000000000.log", os.O_RDWR, 0)
	if err == nil {
		err = errors.Join(f.Truncate(0), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	s.open(-1)
	l, err := s.dir.OpenLog(p.id, s.settings)
	if err != nil {
		t.Fatal(err)
	}
	s.replicas.opened(s.dir, log.OpenResult{Identity: p.id, Log: l})
	lost := s.replicas.Untold()
	if len(lost) != 1 || lost[0] != p.id {
		t.Fatalf("to be told: %v", lost)
	}
	s.replicas.Told(lost)
	if again, all := s.replicas.Untold(), s.replicas.Missing(); len(again) != 0 || len(all) != 1 {
		t.Errorf("told again %v, missing %v", again, all)
	}
}

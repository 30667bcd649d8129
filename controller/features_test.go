package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keeplog/keeplog/metadata"
)

func (w *world) apply(t *testing.T, records ...metadata.Record) {
	t.Helper()
	_, results, err := w.ProposeAt(context.Background(), 0, records)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
	}
}

func (w *world) enter(t *testing.T, id int32, incarnation byte, features []Feature) {
	t.Helper()
	epoch, err := w.c.RegisterBroker(context.Background(), Registration{
		ID: id, Incarnation: [16]byte{byte(id), incarnation}, Directories: []metadata.DirectoryID{{byte(id)}}, PreviousEpoch: -1, Features: features,
	})
	if err == nil {
		err = w.c.Unfence(context.Background(), id, epoch)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A member of the quorum that is no broker yet gets every record of the log: the level waits for it, or for its removal.
func TestLevelWaitsForMembers(t *testing.T) {
	w := newWorld()
	w.apply(t, metadata.ClusterStarted{ClusterID: "c", Voters: []metadata.Voter{{ID: 1, Directory: metadata.DirectoryID{1}}, {ID: 2, Directory: metadata.DirectoryID{2}}}})
	w.enter(t, 1, 1, nil)
	w.enter(t, 1, 2, SupportedFeatures())
	tick := func(want int16) {
		t.Helper()
		w.now += 100 * time.Millisecond
		if err := w.c.Tick(context.Background(), w.now); err != nil {
			t.Fatal(err)
		}
		if got := w.img.Feature(metadata.LevelFeature); got != want {
			t.Fatalf("level %d, want %d", got, want)
		}
	}
	tick(0)
	err := w.c.UpdateFeatures(context.Background(), UpdateFeaturesRequest{Updates: []FeatureUpdate{{metadata.LevelFeature, 1, Upgrade}}})
	if err == nil || !strings.Contains(err.Error(), "Node 2 has not registered as a broker yet") {
		t.Fatal(err)
	}
	w.apply(t, metadata.MemberChanged{ID: 2, Directory: metadata.DirectoryID{2}, Removed: true})
	tick(1)
}

// A node alone has no ticks: its level goes up when it registers in a version that knows more. A cluster that begins has the highest at once.
func TestLevelOfANodeAlone(t *testing.T) {
	w := newWorld()
	w.enter(t, 1, 1, nil)
	w.apply(t, metadata.TopicCreated{Name: "t", ID: metadata.TopicID{1}, Partitions: []metadata.Partition{{Replicas: []int32{1}, ISR: []int32{1}, Leader: 1}}})
	if w.img.Level() != 0 || w.img.Shard(0).Owner != metadata.NoLeader {
		t.Fatal(w.img.Level(), w.img.Shard(0))
	}
	w.enter(t, 1, 2, SupportedFeatures())
	fresh := newWorld()
	fresh.enter(t, 1, 1, SupportedFeatures())
	for _, w := range []*world{w, fresh} {
		if w.img.Level() != metadata.MaxLevel || w.img.Feature(GroupFeature) != 1 || w.img.Feature(elrFeature) != 1 || w.img.Shard(0).Owner != 1 {
			t.Error(w.img.Level(), w.img.Feature(GroupFeature), w.img.Shard(0))
		}
	}
}

// A cluster that had groups before there were levels goes on giving shards to brokers. It takes none that does not say that it knows them: that may
// be one of a version before groups.
func TestGroupsBeforeLevels(t *testing.T) {
	w := newWorld()
	w.enter(t, 1, 1, nil)
	b, _ := w.img.Broker(1)
	var records []metadata.Record
	for i := range int32(metadata.Shards) {
		records = append(records, metadata.ShardAssigned{Shard: i, Owner: b.ID})
	}
	w.apply(t, append(records, metadata.FeatureLevel{Name: GroupFeature, Level: 1})...)
	r := Registration{ID: 2, Incarnation: [16]byte{2, 1}, Directories: []metadata.DirectoryID{{2}}, PreviousEpoch: -1}
	if _, err := w.c.RegisterBroker(context.Background(), r); !errors.Is(err, ErrUnsupportedFeature) || !strings.Contains(err.Error(), "version 1 of feature keeplog.metadata.version is in use") {
		t.Fatal(err)
	}
	w.enter(t, 2, 2, SupportedFeatures())
	if err := w.c.Fence(context.Background(), 1, b.Epoch); err != nil {
		t.Fatal(err)
	}
	if s := w.img.Shard(7); s.Owner != 2 || w.img.Level() != 1 || w.img.Feature(metadata.LevelFeature) != 0 {
		t.Fatal(s, w.img.Level())
	}
	w.enter(t, 1, 2, SupportedFeatures())
	if err := w.c.Tick(context.Background(), 0); err != nil || w.img.Feature(metadata.LevelFeature) != metadata.MaxLevel {
		t.Fatal(err, w.img.Feature(metadata.LevelFeature))
	}
}

package metadata

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every kind that this version knows has a level, up to the highest one.
func TestLevels(t *testing.T) {
	for k := range decoders {
		want := int16(0)
		if k >= KindShardAssigned {
			want = 1
		}
		if k > KindGroupRemoved {
			t.Errorf("kind %d: say here from which level on it is written", k)
		}
		if got := k.Level(); got != want || got > MaxLevel {
			t.Errorf("%v: level %d", k, got)
		}
	}
	img := New()
	if img.Level() != 0 {
		t.Error(img.Level())
	}
	img = apply(t, img, 1, FeatureLevel{Name: LevelFeature, Level: 1})
	if img.Level() != 1 {
		t.Error(img.Level())
	}
	img = apply(t, New(), 1, BrokerRegistered{ID: 1}, ShardAssigned{Shard: 3, Owner: 1})
	if img.Level() != 1 {
		t.Error("a shard was assigned, and the level is ", img.Level())
	}
}

// An image is complete unless a record was ignored that this version knows. Snapshots keep which those were.
func TestComplete(t *testing.T) {
	img := apply(t, New(), 1, Unknown{Number: 4711}, FeatureLevel{Name: "f", Level: 1}, Unknown{Number: 99}, Unknown{Number: 4711})
	if d := cmp.Diff([]Kind{99, 4711}, img.ignoredKinds); d != "" || img.Ignored() != 3 || img.Complete() != nil {
		t.Fatal(img.Ignored(), img.Complete(), d)
	}
	again := func(img *Image, version byte) *Image {
		t.Helper()
		var b bytes.Buffer
		if err := img.WriteSnapshot(&b, nil); err != nil {
			t.Fatal(err)
		}
		if v := b.Bytes()[len(snapshotMagic)]; v != version {
			t.Errorf("version %d, want %d", v, version)
		}
		img, _, err := ReadSnapshot(&b)
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	img = again(img, 4)
	if d := cmp.Diff([]Kind{99, 4711}, img.ignoredKinds); d != "" || img.Ignored() != 3 || img.Complete() != nil {
		t.Fatal(img.Ignored(), img.Complete(), d)
	}
	for _, older := range []*Image{
		{ignored: 2}, // by a version that only counted
		{ignored: 2, ignoredKinds: []Kind{KindOffsetsCommitted, 4711}},
	} {
		next := *img
		next.ignored, next.ignoredKinds = older.ignored, older.ignoredKinds
		version := byte(1)
		if older.ignoredKinds != nil {
			version = 4
		}
		if err := again(&next, version).Complete(); !errors.Is(err, ErrIncomplete) {
			t.Errorf("%v: %v", older.ignoredKinds, err)
		}
	}
}

package quorum

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/vfs"
)

// leaveOut makes a snapshot what a version would have written that did not know the records of groups: without them, and with a count of what
// it has ignored.
func leaveOut(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	fixed := len(snapshotMagic) + 5
	at := fixed + int(binary.BigEndian.Uint32(data[len(snapshotMagic)+1:]))
	img, _, err := metadata.ReadSnapshot(bytes.NewReader(data[at : len(data)-snapshotTail]))
	if err != nil {
		t.Fatal(err)
	}
	b := imageOfOlder(t, img)
	out := append(data[:at:at], b...)
	out = binary.BigEndian.AppendUint64(out, uint64(len(b)))
	out = binary.BigEndian.AppendUint32(out, crc32.Checksum(out, castagnoli))
	if err := os.WriteFile(file, out, 0o600); err != nil {
		t.Fatal(err)
	}
}

func imageOfOlder(t *testing.T, img *metadata.Image) []byte {
	t.Helper()
	var image bytes.Buffer
	if err := img.WriteSnapshot(&image, nil); err != nil { // no groups
		t.Fatal(err)
	}
	b := image.Bytes()
	size, n := binary.Uvarint(b[10:]) // behind "KLIMAGE\n", the version and the kind of the first frame, the head
	count := 10 + n + int(size) - 1
	if b[count] != 0 {
		t.Fatalf("the image counts %d records ignored", b[count])
	}
	b[count] = 7
	return binary.BigEndian.AppendUint32(b[:len(b)-4], crc32.Checksum(b[:len(b)-4], castagnoli))
}

// TestLeaderOfAnOlderVersion: the snapshot of a leader that has passed over records of groups is not taken; the member stays where it is.
func TestLeaderOfAnOlderVersion(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "/", &MemStore{}).open()
	n.propose(topics(0, 5)...)
	img := n.q.Image()
	f := newFSM(slog.New(slog.DiscardHandler), func(err error) { t.Error(err) })
	f.check = func(*metadata.Image) error { return nil }
	if err := f.Restore(io.NopCloser(bytes.NewReader(imageOfOlder(t, img)))); !errors.Is(err, metadata.ErrIncomplete) {
		t.Error(err)
	}
	if f.image.Load().Index() != 0 || f.stuck != nil {
		t.Error(f.image.Load().Index(), f.stuck)
	}
	var whole bytes.Buffer
	if err := img.WriteSnapshot(&whole, nil); err != nil {
		t.Fatal(err)
	}
	if err := f.Restore(io.NopCloser(&whole)); err != nil || f.image.Load().TopicCount() != 5 {
		t.Error(err, f.image.Load().TopicCount())
	}
	n.close()
}

// TestRefusedSnapshotLeavesNothing: of a leader's snapshot that cannot be used nothing stays on the disk, however often it comes, and no good one
// is removed for it: the next start goes on from what was there.
func TestRefusedSnapshotLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, vfs.OS(), dir, nil)
	n.o.Timing.Trailing = 1
	n.open()
	for i := range 3 {
		n.propose(topics(i*100, 20)...)
		if err := n.q.Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	n.propose(topic(999))
	want, img, chain := n.q.snaps.newest(), n.q.Image(), n.q.Image().Chain()
	var whole bytes.Buffer
	if err := img.WriteSnapshot(&whole, nil); err != nil {
		t.Fatal(err)
	}
	cut := bytes.Clone(whole.Bytes())
	cut[len(cut)/2] ^= 1
	for round := range 3 {
		for what, c := range map[string]struct {
			image []byte
			err   error
		}{"lacks records": {imageOfOlder(t, img), metadata.ErrIncomplete}, "is damaged": {cut, metadata.ErrCorrupt}} {
			w, err := n.q.snaps.Create(raft.SnapshotVersionMax, img.Index()+100+uint64(round), want.term+1, n.q.raft().GetConfiguration().Configuration(), 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(c.image); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); !errors.Is(err, c.err) {
				t.Errorf("a snapshot that %s: %v", what, err)
			}
		}
	}
	if got := n.q.snaps.newest(); *got != *want {
		t.Errorf("the newest is %+v, was %+v", got, want)
	}
	if files, err := filepath.Glob(filepath.Join(dir, snapshotPrefix+"*")); err != nil || len(files) != keptSnapshots {
		t.Error(files, err)
	}
	n.close()
	n.o.ClusterID, n.o.NewClusterID = testCluster, nil
	n.open()
	if n.q.Image().Chain() != chain {
		t.Errorf("the image ends at %d, was at %d", n.q.Image().Index(), img.Index())
	}
	n.close()
}

// TestSnapshotOfAnOlderVersion: a snapshot that was taken by a version which did not know the records of groups, although they were in the log
// already, is put aside and the log is read again. Where the log does not reach back any more the node does not start: what has been committed
// would be lost without a word.
func TestSnapshotOfAnOlderVersion(t *testing.T) {
	for name, c := range map[string]struct {
		older    int    // snapshots before it that have everything
		trailing uint64 // entries that stay behind a snapshot
		starts   bool
	}{
		"the log has everything":                  {0, 0, true},
		"the log has everything behind another":   {2, 1, true},
		"the log begins behind all that has more": {0, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			n := newNode(t, vfs.OS(), dir, nil)
			n.o.Timing.Trailing = c.trailing
			n.open()
			epoch := groupsOn(n, "group")
			var files []string
			for i := range 3 {
				n.propose(topics(i*100, 20)...)
				if _, err := n.q.ProposeOffsets(t.Context(), []metadata.Record{commitOf("group", epoch, 0, int64(i))}); err != nil {
					t.Fatal(err)
				}
				if err := n.q.Snapshot(); err != nil {
					t.Fatal(err)
				}
				files = append(files, filepath.Join(dir, n.q.snaps.newest().name))
			}
			n.propose(topic(999))
			want, chain := tablesOf(t, n.q), n.q.Image().Chain()
			n.close()
			for _, f := range files[c.older:] {
				leaveOut(t, f)
			}
			n.o.ClusterID, n.o.NewClusterID = testCluster, nil
			if !c.starts {
				for range 2 { // nothing has changed by the refusal
					_, err := Open(n.o)
					if !errors.Is(err, metadata.ErrIncomplete) || !strings.Contains(err.Error(), "start the version that took it") {
						t.Fatal(err)
					}
				}
				return
			}
			n.open()
			if !bytes.Equal(tablesOf(t, n.q), want) || n.q.Image().Chain() != chain || n.q.Image().Ignored() != 0 {
				t.Errorf("offset %d, %d ignored", committed(n.q, "group"), n.q.Image().Ignored())
			}
			for _, f := range files[c.older:] {
				if _, err := os.Stat(f + incompleteSuffix); err != nil {
					t.Error(err)
				}
			}
			if err := n.q.Snapshot(); err != nil {
				t.Fatal(err)
			}
			n.close()
			n.open()
			if !bytes.Equal(tablesOf(t, n.q), want) {
				t.Error("the snapshot after it lacks something")
			}
			n.close()
		})
	}
}

// TestSnapshotOfALaterVersionsRecords: what this version itself had to ignore is no reason not to use its own snapshot.
func TestSnapshotOfALaterVersionsRecords(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, vfs.OS(), dir, nil).open()
	a := n.propose(topic(1), metadata.Unknown{Number: 4711, Body: []byte("later")}, topic(2))
	if !errors.Is(a.Results[1].Err(), metadata.ErrUnknownKind) {
		t.Fatal(a)
	}
	if err := n.q.Snapshot(); err != nil {
		t.Fatal(err)
	}
	name := n.q.snaps.newest().name
	n.close()
	n.open()
	if got := n.q.snaps.newest(); got == nil || got.name != name || n.q.Image().Ignored() != 1 || n.q.Image().TopicCount() != 2 {
		t.Errorf("%+v, %d ignored", got, n.q.Image().Ignored())
	}
	n.close()
}

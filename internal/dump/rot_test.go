package dump

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/keeplog/keeplog/vfs"
)

// rotDir is a data directory in memory whose files can be changed.
type rotDir struct {
	t     testing.TB
	fs    vfs.FS
	files []string
	bytes map[string][]byte
}

// loadDir copies a directory into memory.
func loadDir(t testing.TB, dir string) *rotDir {
	t.Helper()
	r := &rotDir{t: t, fs: vfs.NewMem(), bytes: map[string][]byte{}}
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		to := filepath.Join("/data", rel)
		if parseName(p).typ == TypeRaftStore { // it is read through the operating system; see TestRotMetadataStore
			return nil
		}
		if e.IsDir() {
			return r.fs.MkdirAll(to, 0o755)
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		r.files = append(r.files, to)
		r.bytes[to] = b
		r.write(to, b)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rotDir) write(path string, b []byte) {
	r.t.Helper()
	f, err := r.fs.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err == nil && len(b) > 0 {
		_, err = f.WriteAt(b, 0)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		r.t.Fatal(err)
	}
}

// problems collects what was found.
type problems struct{ all []Problem }

func (p *problems) Close() error { return nil }

func (p *problems) Put(i Item) error {
	if x, ok := i.(*Problem); ok {
		p.all = append(p.all, *x)
	}
	return nil
}

// look dumps what is needed to judge the file: its partition, or itself.
func (r *rotDir) look(path string) (Total, []Problem) {
	r.t.Helper()
	where := path
	if dir := filepath.Dir(path); dir != "/data" || parseName(path).typ == TypeMarks {
		where = dir
	}
	var found problems
	total, err := Run(context.Background(), Options{FS: r.fs, Verify: true, Records: true}, &found, where)
	if err != nil {
		r.t.Fatal(err)
	}
	return total, found.all
}

// with changes a file, looks, and puts the file back.
func (r *rotDir) with(path string, b []byte) (Total, []Problem) {
	r.t.Helper()
	r.write(path, b)
	defer r.write(path, r.bytes[path])
	return r.look(path)
}

// unseen says that nothing in the format shows a change of this byte: it is a value without a checksum.
func unseen(path string, at int) bool {
	switch typ := parseName(path).typ; typ {
	case TypeTopicID, TypeOffsets, TypeProperties, TypeCleanStop, TypeKRaftVotes: // text
		return true
	case TypeTxnIndex: // the last stable offset, and first offsets whose data was compacted
		return at%abortEntrySize >= 26 || at%abortEntrySize >= 10 && at%abortEntrySize < 18
	case TypeKRaftSnap: // offset and epoch of its last batch
		return at >= 336 && at < 336+16
	case TypeSegment:
		switch filepath.Base(filepath.Dir(path)) {
		case "__cluster_metadata-0": // the offset of its last batch: its end is in no checkpoint
			return at >= 10127 && at < 10127+8
		case "deleted-0": // the epochs below the log start are in no checkpoint
			return at >= 12 && at < 16
		}
	}
	return false
}

// TestRotFlippedBits flips a bit in every file: it is reported, whatever stands there, and nothing panics.
func TestRotFlippedBits(t *testing.T) {
	for _, dir := range []string{"kafka-4.4", "keeplog-1"} {
		t.Run(dir, func(t *testing.T) { flippedBits(t, loadDir(t, filepath.Join(formats, dir))) })
	}
}

func flippedBits(t *testing.T, r *rotDir) {
	tried := map[string]int{}
	for _, path := range r.files {
		b := r.bytes[path]
		stride := 11
		if len(b) > 4096 {
			stride = 211
		}
		for at := 0; at < len(b); at += stride {
			bad := append([]byte(nil), b...)
			bad[at] ^= 1 << (at % 8)
			total, _ := r.with(path, bad)
			tried[parseName(path).typ]++
			if total.Damage+total.Unsupported == 0 && !unseen(path, at) {
				t.Errorf("%s: bit %d of byte %d flipped: nothing reported", path, at%8, at)
			}
		}
	}
	t.Log(tried)
}

// TestRotCutZeroedAndGrown cuts, zeroes and grows every file.
func TestRotCutZeroedAndGrown(t *testing.T) {
	for _, dir := range []string{"kafka-4.4", "keeplog-1"} {
		t.Run(dir, func(t *testing.T) { cutZeroedAndGrown(t, loadDir(t, filepath.Join(formats, dir))) })
	}
}

func cutZeroedAndGrown(t *testing.T, r *rotDir) {
	garbage := []byte("\x07garbage\xff\xfe behind the end\n\x01\x02")
	for _, path := range r.files {
		b, typ := r.bytes[path], parseName(path).typ
		for _, size := range []int{0, 1, len(b) / 3, len(b) / 2, len(b) - 12, len(b) - 8, len(b) - 1} {
			if size < 0 || size >= len(b) {
				continue
			}
			total, _ := r.with(path, b[:size])
			if total.Damage+total.Unsupported == 0 && !r.cutUnseen(path, b, size) {
				t.Errorf("%s: cut from %d to %d bytes: nothing reported", path, len(b), size)
			}
		}
		if total, _ := r.with(path, append(append([]byte(nil), b...), garbage...)); total.Damage+total.Unsupported == 0 {
			t.Errorf("%s: garbage behind the end: nothing reported", path)
		}
		for at := 0; at < len(b); at += 512 {
			bad := append([]byte(nil), b...)
			clear(bad[at:min(at+512, len(bad))])
			if total, _ := r.with(path, bad); total.Damage+total.Unsupported == 0 && !aheadOfTime(path) {
				t.Errorf("%s (%s): bytes %d.. zeroed: nothing reported", path, typ, at)
			}
		}
	}
}

// aheadOfTime says that the file is an index which Kafka leaves open at a clean stop: it may hold fewer entries, and zeros.
func aheadOfTime(path string) bool {
	typ := parseName(path).typ
	return filepath.Base(filepath.Dir(path)) == "__cluster_metadata-0" && (typ == TypeIndex || typ == TypeTimeIndex)
}

// active says that no segment of the partition follows the one of this file.
func (r *rotDir) active(path string) bool {
	for _, p := range r.files {
		if n := parseName(p); n.typ == TypeSegment && filepath.Dir(p) == filepath.Dir(path) && n.base > parseName(path).base {
			return false
		}
	}
	return true
}

// cutUnseen says that a file cut to size is as good as one that was written so.
func (r *rotDir) cutUnseen(path string, b []byte, size int) bool {
	if aheadOfTime(path) {
		return true
	}
	switch parseName(path).typ {
	case TypeIndex: // an index without its last entries is sparser; with its neighbours that shows only sometimes
		return size%offsetEntrySize == 0
	case TypeTimeIndex: // that of the active segment may miss its last entry
		return size%timeEntrySize == 0 && r.active(path)
	case TypeTxnIndex: // of transactions whose data was compacted
		return size%abortEntrySize == 0
	case TypeCleanStop: // of old versions
		return size == 0
	case TypeProperties: // the last line only, cluster.id, which is free text
		return len(b)-size <= 22
	case TypeSegment, TypeKRaftSnap: // at a batch border, where no checkpoint says where it ended
		return filepath.Base(filepath.Dir(path)) == "__cluster_metadata-0" && size == 0
	}
	return false
}

// TestRotMetadataStore changes bytes of the metadata store: nothing panics, whatever it does to the pages, and what it does to an entry is
// reported.
func TestRotMetadataStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(formats, "keeplog-1"))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "keeplog-raft.db")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	look := func(b []byte) Total {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		total, err := Run(context.Background(), Options{FS: vfs.OS(), Summary: true, Raft: true}, discard{}, path)
		if err != nil {
			t.Fatal(err)
		}
		return total
	}
	if total := look(good); total.Damage > 0 {
		t.Fatalf("the golden store: %+v", total)
	}
	reported := 0
	for at := 0; at < len(good); at += 61 {
		bad := bytes.Clone(good)
		bad[at] ^= 1 << (at % 8)
		if look(bad).Damage > 0 {
			reported++
		}
	}
	entry := bytes.Index(good, []byte("segment.ms"))
	bad := bytes.Clone(good)
	for at := entry; at >= 0 && at < len(bad); { // in every page that holds it, also in those that are free
		bad[at] ^= 1
		next := bytes.Index(bad[at:], []byte("segment.ms"))
		if next < 0 {
			break
		}
		at += next
	}
	if total := look(bad); entry < 0 || total.Damage == 0 {
		t.Errorf("a changed entry (at %d): %+v", entry, total)
	}
	for _, size := range []int{0, 1, 100, 4096, 8192, len(good) / 2} {
		if total := look(good[:size]); total.Damage == 0 {
			t.Errorf("cut to %d bytes: nothing reported", size)
		}
	}
	t.Logf("%d of %d flipped bits reported", reported, len(good)/61)
}

// memory is a file system with the directory of one partition.
func memory(t testing.TB) vfs.FS {
	t.Helper()
	files := vfs.NewMem()
	if err := files.MkdirAll("/data/t-0", 0o755); err != nil {
		t.Fatal(err)
	}
	return files
}

// Segments that are gone are damage when the mark says that they held acknowledged records, whatever is left beside them.
func TestCheckMissingSegments(t *testing.T) {
	for _, tc := range []struct {
		name, glob, want string
	}{
		{"the last one", "00000000000000000048.*", "keeplog-marks promises records up to offset 63 in the segment that begins at 48, and that file is missing"},
		{"all", "*.log", "keeplog-marks promises records up to offset 63 in the segment that begins at 48, and that file is missing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(filepath.Join("..", "..", "testdata", "format", "keeplog-1"))); err != nil {
				t.Fatal(err)
			}
			gone, err := filepath.Glob(filepath.Join(dir, "segments-0", tc.glob))
			if err != nil || len(gone) == 0 {
				t.Fatal(gone, err)
			}
			for _, p := range gone {
				if err := os.Remove(p); err != nil {
					t.Fatal(err)
				}
			}
			var found problems
			if _, err := Run(t.Context(), Options{FS: vfs.OS(), Verify: true, Summary: true}, &found, dir); err != nil {
				t.Fatal(err)
			}
			for _, p := range found.all {
				if p.Severity == Damage && p.Text == tc.want {
					return
				}
			}
			t.Errorf("%q is not among %d problems: %+v", tc.want, len(found.all), found.all)
		})
	}
}

package dump

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	plog "github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/record"
)

// slotBytes makes a slot of keeplog-marks, drawn at [plog.Mark].
func slotBytes(m plog.Mark) []byte {
	b := make([]byte, plog.MarkBytes)
	be := binary.BigEndian
	copy(b, m.TopicID[:])
	be.PutUint32(b[16:], uint32(m.Partition))
	be.PutUint32(b[20:], uint32(m.Epoch))
	be.PutUint64(b[24:], uint64(m.Segment))
	be.PutUint64(b[32:], uint64(m.Position))
	be.PutUint64(b[40:], uint64(m.Offset))
	be.PutUint64(b[48:], uint64(m.LogStart))
	be.PutUint32(b[56:], uint32(m.OffsetEntries))
	be.PutUint32(b[60:], uint32(m.TimeEntries))
	be.PutUint64(b[64:], m.Counter)
	be.PutUint32(b[72:], 1)
	be.PutUint32(b[124:], crc32.Checksum(b[:124], castagnoli))
	return b
}

func marksHead(version uint32) []byte {
	b := make([]byte, plog.MarkBytes)
	copy(b, "keeplogM")
	binary.BigEndian.PutUint32(b[8:], version)
	if version > 1 {
		binary.BigEndian.PutUint32(b[12:], 1)
	}
	binary.BigEndian.PutUint32(b[124:], crc32.Checksum(b[:124], castagnoli))
	return b
}

// killed makes a directory of ours out of the golden one, as a killed server leaves it: no clean stop marker, and a mark for the partition
// segments-0 in the middle of its last segment (offset 56, the fifth batch).
func killed(t *testing.T) (*rotDir, plog.Mark) {
	r := loadDir(t, filepath.Join(formats, "kafka-4.4"))
	id, err := parseTopicID(r.bytes["/data/segments-0/partition.metadata"])
	if err != nil {
		t.Fatal(err)
	}
	const batch = 381
	m := plog.Mark{TopicID: id, Segment: 48, Position: 4 * batch, Offset: 56, OffsetEntries: 1, TimeEntries: 1, Counter: 7}
	if err := r.fs.Remove("/data/.kafka_cleanshutdown"); err != nil {
		t.Fatal(err)
	}
	r.keep("/data/keeplog-marks", append(marksHead(1), slotBytes(m)...))
	return r, m
}

// keep writes a file that stays.
func (r *rotDir) keep(path string, b []byte) {
	r.bytes[path] = b
	r.write(path, b)
}

func flip(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 4
	return b
}

// TestTornTailIsNoDamage: what does not check above the mark is a note, below it damage.
func TestTornTailIsNoDamage(t *testing.T) {
	r, m := killed(t)
	const log = "/data/segments-0/00000000000000000048.log"
	b := r.bytes[log]
	const batch = 381
	for _, c := range []struct {
		name   string
		bytes  []byte
		damage int
		want   string
	}{
		{"as it was", b, 0, ""},
		{"cut in the last batch", b[:len(b)-7], 0, "torn tail"},
		{"cut at a batch border above the mark", b[:5*batch], 0, ""},
		{"garbage behind the end", append(bytes.Clone(b), "garbage garbage garbage garbage"...), 0, "torn tail"},
		{"zeros behind the end", append(bytes.Clone(b), make([]byte, 4096)...), 0, "torn tail"},
		{"a bit flipped above the mark, good batches behind", flip(b, 5*batch+70), 0, ".torn file"},
		{"a bit flipped below the mark", flip(b, 2*batch+70), 1, "1 bad batch at pos 762..1142; last good offset 51, next good batch at pos 1143 (offset 54)."},
		{"cut below the mark", b[:3*batch+50], 1, "bad bytes at pos 1143..1192"},
		{"cut at a batch border below the mark", b[:3*batch], 1, "the log ends at offset 54, the stable mark is at 56"},
	} {
		t.Run(c.name, func(t *testing.T) {
			total, found := r.with(log, c.bytes)
			if total.Damage != c.damage {
				t.Errorf("damage %d, want %d: %+v", total.Damage, c.damage, found)
			}
			var all strings.Builder
			for _, p := range found {
				all.WriteString(p.Text + "; " + p.Hint + "\n")
			}
			if !strings.Contains(all.String(), c.want) {
				t.Errorf("no %q in:\n%s", c.want, &all)
			}
		})
	}
	if m.Position != 4*batch || len(b) != 8*batch {
		t.Errorf("the golden segment has %d bytes, the mark is at %d", len(b), m.Position)
	}
}

// TestMarks reads the marks file, good and bad.
func TestMarks(t *testing.T) {
	r, m := killed(t)
	const path = "/data/keeplog-marks"
	b := r.bytes[path]
	older := m
	older.Counter, older.Offset, older.Position = m.Counter-1, m.Offset-2, m.Position-381
	two := slices.Concat(marksHead(2), marksHead(2), slotBytes(older), slotBytes(m))
	for _, c := range []struct {
		name                string
		bytes               []byte
		damage, unsupported int
	}{
		{"good", b, 0, 0},
		{"free slots", append(bytes.Clone(b), make([]byte, 3*plog.MarkBytes)...), 0, 0},
		{"bit in a slot", flip(b, plog.MarkBytes+33), 1, 0},
		{"bit in the head", flip(b, 9), 1, 0},
		{"newer version", append(marksHead(3), b[plog.MarkBytes:]...), 0, 1},
		{"empty", nil, 1, 0},
		{"cut", b[:len(b)-1], 1, 0},
		{"a slot that cannot be", append(marksHead(1), slotBytes(plog.Mark{TopicID: m.TopicID, Partition: -4, Segment: 9, Offset: 3})...), 1, 0},
		{"version 2", two, 0, 0},
		{"version 2, a bit in the mark that counts", flip(two, 3*plog.MarkBytes+33), 0, 0},
		{"version 2, a bit in the mark before", flip(two, 2*plog.MarkBytes+33), 0, 0},
		{"version 2, a bit in both", flip(flip(two, 3*plog.MarkBytes+33), 2*plog.MarkBytes+50), 1, 0},
		{"version 2, a bit in one head", flip(two, 9), 0, 0},
		{"version 2, a bit in both heads", flip(flip(two, 9), plog.MarkBytes+9), 2, 0}, // without a head each mark is a slot
		{"version 2, cut", two[:len(two)-1], 1, 0},
		{"version 2, cut to the head", two[:2*plog.MarkBytes], 0, 0},
	} {
		total, found := r.with(path, c.bytes)
		if total.Damage != c.damage || total.Unsupported != c.unsupported {
			t.Errorf("%s: damage %d, unsupported %d: %+v", c.name, total.Damage, total.Unsupported, found)
		}
	}
}

// repaired mends the directory and checks that nothing is damaged any more.
func (r *rotDir) repaired(steps ...string) {
	r.t.Helper()
	ctx := context.Background()
	rep, err := NewRepair(r.fs, "/data")
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() {
		if err := rep.Close(); err != nil {
			r.t.Error(err)
		}
	}()
	if _, err := rep.Look(ctx, Options{}, discard{}, "/data"); err != nil {
		r.t.Fatal(err)
	}
	got := rep.Steps()
	if len(got) != len(steps) {
		r.t.Errorf("steps: %q, want %q", got, steps)
	}
	for i := range min(len(got), len(steps)) {
		if !strings.Contains(got[i], steps[i]) {
			r.t.Errorf("step %d: %q, want %q", i, got[i], steps[i])
		}
	}
	if err := rep.Do(func(string) {}); err != nil {
		r.t.Fatal(err)
	}
	var found problems
	total, err := rep.Look(ctx, Options{}, &found, "/data")
	if err != nil || total.Damage > 0 {
		r.t.Errorf("after the repair: %v, %+v, %+v", err, total, found.all)
	}
}

func (r *rotDir) read(path string) []byte {
	r.t.Helper()
	f, err := r.fs.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	size, err := f.Size()
	if err != nil {
		r.t.Fatal(err)
	}
	b, err := readAll(f, size, 1<<20)
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// TestRepairBatch: a bad batch below the mark becomes an empty one, its bytes are kept, all other records stay where they were.
func TestRepairBatch(t *testing.T) {
	const batch = 381
	for _, log := range []string{"/data/segments-0/00000000000000000016.log", "/data/segments-0/00000000000000000048.log"} {
		r, m := killed(t)
		good := r.bytes[log]
		bad := flip(good, 2*batch+90)
		r.write(log, bad)
		base := parseName(log).base
		r.repaired("replace pos 762..1142 by an empty batch for offsets " + decimal(int64(base)+4) + ".." + decimal(int64(base)+5))

		if kept := r.read("/data/segments-0/762.bad"); !bytes.Equal(kept, bad[2*batch:3*batch]) {
			t.Errorf("%s: the kept bytes differ", log)
		}
		got := r.read(log)
		if !bytes.Equal(got[:2*batch], good[:2*batch]) || !bytes.Equal(got[2*batch+record.HeaderSize:], good[3*batch:]) {
			t.Errorf("%s: other batches changed", log)
		}
		empty := record.Batch(got[2*batch:][:record.HeaderSize])
		if empty.Count() != 0 || empty.BaseOffset() != base+4 || empty.LastOffset() != base+5 || empty.CheckCRC() != nil || empty.HasProducer() || empty.MaxTimestamp() != -1 {
			t.Errorf("%s: not an empty batch for %d..%d: %x", log, base+4, base+5, []byte(empty))
		}
		if _, err := r.fs.Stat(strings.TrimSuffix(log, "log") + "index"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: its index is still there: %v", log, err)
		}
		// the mark must not point into the middle of a batch
		table := newDump(context.Background(), Options{FS: r.fs}, discard{}).readMarks("/data/keeplog-marks")
		slot := table.find(m.TopicID, 0)
		if active := base == m.Segment; slot == nil || slot.offset != m.Offset || slot.unplaced != active || active && slot.position != 0 {
			t.Errorf("%s: mark %+v", log, slot)
		}
	}
}

// TestRepairKeepsTheEnd: a log that ends below its mark gets its end back.
func TestRepairKeepsTheEnd(t *testing.T) {
	r, m := killed(t)
	const log = "/data/segments-0/00000000000000000048.log"
	r.write(log, r.bytes[log][:3*381+50])
	for _, gone := range []string{".index", ".timeindex"} {
		if err := r.fs.Remove(strings.TrimSuffix(log, ".log") + gone); err != nil {
			t.Fatal(err)
		}
	}
	r.repaired("by an empty batch for offsets 54..55")
	got := r.read(log)
	if last := record.Batch(got[3*381:]); last.NextOffset() != m.Offset {
		t.Errorf("the log ends at %d, its mark was at %d", last.NextOffset(), m.Offset)
	}
}

// TestRepairRemovesCaches: what the server makes anew from the log is removed.
func TestRepairRemovesCaches(t *testing.T) {
	for _, path := range []string{
		"/data/segments-0/00000000000000000016.index", "/data/segments-0/00000000000000000016.timeindex", "/data/segments-0/00000000000000000016.snapshot",
		"/data/segments-0/leader-epoch-checkpoint", "/data/txn-0/00000000000000000003.txnindex", "/data/recovery-point-offset-checkpoint",
	} {
		r, _ := killed(t)
		r.write(path, append([]byte{0xff}, r.bytes[path]...))
		r.repaired(path + ": remove it")
		if _, err := r.fs.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
}

// TestRepairRefusesARunningServer: the lock of the directory is taken first.
func TestRepairRefusesARunningServer(t *testing.T) {
	r, _ := killed(t)
	lock, err := r.fs.Lock("/data/.lock")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewRepair(r.fs, "/data"); !errors.Is(err, ErrRunning) {
		t.Errorf("repair beside a server: %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	rep, err := NewRepair(r.fs, "/data/segments-0")
	if err != nil {
		t.Fatal(err)
	}
	if err := rep.Close(); err != nil {
		t.Error(err)
	}
}

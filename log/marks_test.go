package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path"
	"syscall"
	"testing"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

func openTestMarks(t *testing.T, fsys vfs.FS) (m *marks, bad int) {
	t.Helper()
	m, bad, err := openMarks(fsys, "/"+MarksFile)
	must(t, err)
	return m, bad
}

func marksBytes(t *testing.T, fsys vfs.FS) []byte {
	t.Helper()
	b, err := readFile(fsys, "/"+MarksFile)
	must(t, err)
	return b
}

func markOf(partition int32, offset record.Offset) Mark {
	return Mark{TopicID: testTopic, Partition: partition, Epoch: 3, Offset: offset, Position: 10 * record.Position(offset), LogStart: offset / 2}
}

// twoMarks is a complete file with two partitions, of which the first had three marks.
func twoMarks(t *testing.T, fsys vfs.FS) *marks {
	m, _ := openTestMarks(t, fsys)
	must(t, m.complete())
	for o := record.Offset(1); o <= 3; o++ {
		must(t, m.put(markOf(0, o)))
	}
	must(t, m.put(markOf(1, 9)))
	return m
}

// A write that is torn anywhere leaves the mark before it, whichever half it goes to, and the file complete.
func TestTornMarkLeavesTheOneBefore(t *testing.T) {
	writes := map[string]struct {
		do   func(m *marks) error
		left [3]record.Offset // of the partitions 0, 1, 2; −1: no mark
	}{
		"the next mark":          {func(m *marks) error { return m.put(markOf(0, 4)) }, [3]record.Offset{3, 9, -1}},
		"a cut":                  {func(m *marks) error { return m.putFirm(markOf(1, 2)) }, [3]record.Offset{3, 9, -1}},
		"a partition's first":    {func(m *marks) error { return m.put(markOf(2, 5)) }, [3]record.Offset{3, 9, -1}},
		"a slot that is freed":   {func(m *marks) error { return m.drop(markKey{testTopic, 1}) }, [3]record.Offset{3, 9, -1}},
		"the head, not complete": {func(m *marks) error { return m.putHead(false) }, [3]record.Offset{3, 9, -1}},
		"one after a freed slot's": {func(m *marks) error {
			if err := m.put(markOf(1, 11)); err != nil {
				return err
			}
			return m.put(markOf(1, 12))
		}, [3]record.Offset{3, 9, -1}},
	}
	for what, w := range writes {
		for cut := range MarkBytes {
			for again := range 2 { // the second write of the slot is torn at the same place
				mem := vfs.NewMem()
				faulty := vfs.NewFaulty(mem)
				m := twoMarks(t, faulty)
				in := faulty.Inject(vfs.Fault{Ops: []vfs.Op{vfs.OpWrite}, Path: MarksFile, Err: syscall.EIO, Short: &cut, Sticky: true})
				for range again + 1 {
					if err := w.do(m); !errors.Is(err, syscall.EIO) {
						t.Fatalf("%s: %v", what, err)
					}
				}
				faulty.Heal(in)
				found, _ := openTestMarks(t, mem)
				if found.partial {
					t.Fatalf("%s, torn after %d bytes: the file is not complete", what, cut)
				}
				for partition, want := range w.left {
					got := record.Offset(-1)
					if mark, ok := found.get(markKey{testTopic, int32(partition)}); ok {
						got = mark.Offset
					}
					if got != want {
						t.Fatalf("%s, torn after %d bytes: partition %d is marked at %d, want %d", what, cut, partition, got, want)
					}
				}
				// and what was torn can be written again, by the process that goes on and by the next one
				for _, m := range []*marks{m, found} {
					must(t, m.put(markOf(0, 50)))
					must(t, m.put(markOf(2, 60)))
					must(t, m.file.Close())
				}
				last, bad := openTestMarks(t, mem)
				zero, _ := last.get(markKey{testTopic, 0})
				two, _ := last.get(markKey{testTopic, 2})
				if zero.Offset != 50 || two.Offset != 60 || bad > 1 {
					t.Fatalf("%s, torn after %d bytes: then %+v, %+v, %d bad", what, cut, zero, two, bad)
				}
			}
		}
	}
}

// Every flipped bit of a mark leaves a mark: the last, or the one before; of a start that was confirmed only itself.
func TestRottenHalfOfAMark(t *testing.T) {
	mem := vfs.NewMem()
	m := twoMarks(t, mem)
	start := markOf(1, 30)
	must(t, m.putFirm(start))
	must(t, m.file.Close())
	was := marksBytes(t, mem)
	for at := range 6 * MarkBytes {
		b := append([]byte{}, was...)
		b[at] ^= 1 << (at % 8)
		found, err := DecodeMarks(b)
		must(t, err)
		if !found.Complete() {
			t.Fatalf("byte %d: not complete", at)
		}
		live := found.Live()
		if len(live) != 2 || live[0].Mark.Offset < 2 || live[1].Mark.LogStart != start.LogStart {
			t.Fatalf("byte %d: %+v", at, live)
		}
	}
	for at := 2 * MarkBytes; at < 4*MarkBytes; at++ { // both halves
		b := append([]byte{}, was...)
		b[at] ^= 1
		b[2*MarkBytes+(at+MarkBytes)%(2*MarkBytes)] ^= 1
		if found, err := DecodeMarks(b); err != nil || found.Complete() || len(found.Live()) != 1 {
			t.Fatalf("byte %d of both: %+v %v", at, found, err)
		}
	}
}

// A freed slot stays free, also when it is another partition's that is lost, and its partition can come back.
func TestFreedSlot(t *testing.T) {
	mem := vfs.NewMem()
	m := twoMarks(t, mem)
	must(t, m.drop(markKey{testTopic, 0}))
	must(t, m.file.Close())
	m, bad := openTestMarks(t, mem)
	if _, ok := m.get(markKey{testTopic, 0}); ok || bad > 0 || m.partial {
		t.Fatalf("it is there: %v, %d bad, partial %v", ok, bad, m.partial)
	}
	b := marksBytes(t, mem)
	clear(b[:2*MarkBytes]) // without a head each mark counts by itself
	if found, err := DecodeMarks(b); err != nil || len(found.Live()) != 1 || found.Live()[0].Mark.Partition != 1 {
		t.Fatalf("%+v %v", found, err)
	}
	must(t, m.put(markOf(5, 7)))
	must(t, m.put(markOf(0, 8)))
	for partition := int32(10); partition < 60; partition++ { // the file grows
		must(t, m.put(markOf(partition, record.Offset(partition))))
	}
	must(t, m.file.Close())
	m, _ = openTestMarks(t, mem)
	for partition, want := range map[int32]record.Offset{0: 8, 1: 9, 5: 7, 10: 10, 59: 59} {
		if mark, ok := m.get(markKey{testTopic, partition}); !ok || mark.Offset != want {
			t.Errorf("partition %d: %+v %v", partition, mark, ok)
		}
	}
}

// oldMarks is a file of version 1, as it was written then.
func oldMarks(head bool, all ...Mark) []byte {
	b := make([]byte, MarkBytes)
	if head {
		copy(b, "keeplogM\x00\x00\x00\x01")
		binary.BigEndian.PutUint32(b[124:], crc32.Checksum(b[:124], castagnoli))
	}
	for i, m := range all {
		m.Counter = uint64(i + 1)
		mark := m.Encode()
		b = append(b, mark[:]...)
	}
	return append(b, make([]byte, MarkBytes)...) // a free one
}

// A file of version 1 means what it meant, also where there is no room to replace it.
func TestMarksOfVersion1(t *testing.T) {
	for _, full := range []bool{false, true} {
		for _, head := range []bool{true, false} {
			if full && !head {
				continue
			}
			what := fmt.Sprintf("full %v, head %v", full, head)
			mem := vfs.NewMem()
			f, err := mem.OpenFile("/"+MarksFile, os.O_RDWR|os.O_CREATE, 0o644)
			must(t, err)
			was := oldMarks(head, markOf(0, 3), markOf(1, 9), markOf(0, 5))
			_, err = f.WriteAt(was, 0)
			must(t, err)
			must(t, f.Close())
			faulty := vfs.NewFaulty(mem)
			if full {
				faulty.SetFree(0)
			}
			m, bad := openTestMarks(t, faulty)
			if m.partial == head || bad != 0 || len(m.loaded) != 2 {
				t.Fatalf("%s: partial %v, %d bad, %+v", what, m.partial, bad, m.loaded)
			}
			must(t, m.put(markOf(1, 10)))
			must(t, m.put(markOf(2, 20)))
			must(t, m.drop(markKey{testTopic, 0}))
			must(t, m.complete())
			must(t, m.file.Close())
			found, err := DecodeMarks(marksBytes(t, mem))
			must(t, err)
			if version := found.Head.Version; (version == 1) != full {
				t.Errorf("%s: then version %d", what, version)
			}
			m, _ = openTestMarks(t, mem)
			one, _ := m.get(markKey{testTopic, 1})
			two, _ := m.get(markKey{testTopic, 2})
			if m.partial || len(m.loaded) != 2 || one.Offset != 10 || two.Offset != 20 {
				t.Errorf("%s: then partial %v, %+v", what, m.partial, m.loaded)
			}
			if names, err := mem.ReadDir("/"); err != nil || len(names) != 1 || path.Base(names[0].Name()) != MarksFile {
				t.Errorf("%s: %v %v", what, names, err)
			}
		}
	}
	newer := oldMarks(true)
	newer[11] = 3
	binary.BigEndian.PutUint32(newer[124:], crc32.Checksum(newer[:124], castagnoli))
	if _, err := DecodeMarks(newer); !errors.Is(err, ErrNewerVersion) {
		t.Error(err)
	}
}

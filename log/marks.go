package log

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/keeplog/keeplog/vfs"
)

type markKey struct {
	topic     [16]byte
	partition int32
}

func (m *Mark) key() markKey { return markKey{m.TopicID, m.Partition} }

// marks is the file, open.
type marks struct {
	file vfs.File
	// partial says that a partition without a slot may be older than the file, or have lost its slot: then Kafka's
	// checkpoints tell its start and recovery point. Otherwise they are of a deleted partition of the same name.
	partial bool
	// headless says that the head does not call the file complete: it comes once every partition that was there has a mark,
	// so that a crash in between leaves a file that is still partial.
	headless atomic.Bool
	halves   int64 // of a slot: 2; 1 in a file of version 1 that could not be replaced

	mu       sync.Mutex
	headHalf int64
	loaded   map[markKey]Mark // as found at the opening, until taken
	slots    map[markKey]*markPlace
	free     []*markPlace // the last is taken first
	counter  uint64

	growing sync.Mutex
	size    int64 // of the file; guarded by growing

	syncing sync.Mutex
	writes  uint64 // under mu
	synced  uint64 // under mu: writes that are durable
}

// markPlace is a slot. Its fields are the business of who puts the partition's marks; that is one at a time.
type markPlace struct {
	at, half int64 // half has the mark that counts
	fresh    bool  // the partition has no mark in it yet
}

// marksGrow is by how many bytes the file grows: a slot is there before it is written, so that no mark needs space.
const marksGrow = 4096

// openMarks opens or makes the file and reads all slots. Marks that do not check are counted. A file of another version, or
// without a head, is replaced.
func openMarks(fsys vfs.FS, name string) (m *marks, bad int, err error) {
	m = &marks{halves: 2}
	if err = m.open(fsys, name, &bad); err == nil && m.partial && !m.headless.Load() {
		// a slot that is lost may be taken by another partition before its own has a mark again
		m.headless.Store(true)
		if err = m.putHead(false); err == nil {
			err = m.file.SyncData()
		}
	}
	if err != nil {
		if m.file != nil {
			_ = m.file.Close()
		}
		return nil, bad, err
	}
	return m, bad, nil
}

func (m *marks) open(fsys vfs.FS, name string, bad *int) error {
	b, err := m.read(fsys, name)
	if err != nil {
		return err
	}
	found, err := DecodeMarks(b)
	if err != nil {
		return err
	}
	if found.Head.Torn || found.Head.Lost {
		*bad++
	}
	for i := range found.Slots {
		if found.Slots[i].Bad != nil {
			*bad++
		}
	}
	if found.Head.Version < marksVersion || found.Rest > 0 {
		b = found.again()
		err := replaceFile(fsys, name, b)
		switch {
		case err == nil:
			_ = m.file.Close()
			if b, err = m.read(fsys, name); err != nil {
				return err
			}
			if found, err = DecodeMarks(b); err != nil {
				return err
			}
		case isNoSpace(err) && found.Head.Version == 1 && found.Rest == 0: // it is as good as it was
			m.halves = 1
		default:
			return err
		}
	}
	m.load(found)
	return nil
}

// read opens the file and returns what the disk has of it.
func (m *marks) read(fsys vfs.FS, name string) ([]byte, error) {
	var err error
	if m.file, err = fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	// a killed process may have left in the page cache what the disk does not have, and after a failed flush never will
	if err = m.file.SyncData(); err != nil {
		return nil, err
	}
	_ = m.file.DropCache()
	if m.size, err = m.file.Size(); err != nil {
		return nil, err
	}
	if m.size > maxSmallFile {
		return nil, fmt.Errorf("%w: %s has %d bytes", ErrBadFile, MarksFile, m.size)
	}
	b := make([]byte, m.size)
	n, err := m.file.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b[:n], nil
}

func (m *marks) load(found *Marks) {
	m.partial = !found.Complete()
	m.headless.Store(!found.Head.Complete)
	m.headHalf, m.counter = found.Head.half, found.Head.counter
	m.loaded, m.slots = map[markKey]Mark{}, map[markKey]*markPlace{}
	taken := map[*MarksSlot]bool{}
	for _, s := range found.Live() {
		taken[s] = true
		m.loaded[s.Mark.key()], m.slots[s.Mark.key()] = s.Mark, &markPlace{at: s.At, half: s.Half}
	}
	for i := range slices.Backward(found.Slots) {
		s := &found.Slots[i]
		m.counter = max(m.counter, s.Mark.Counter)
		if !taken[s] {
			m.free = append(m.free, &markPlace{at: s.At, half: s.Half, fresh: true})
		}
	}
}

// complete says in the head, durably, that from now on a partition without a slot is new.
func (m *marks) complete() error {
	if !m.headless.Load() {
		return nil
	}
	err := m.putHead(true)
	if err == nil {
		err = m.sync()
	}
	if err != nil {
		return err
	}
	m.headless.Store(false)
	return nil
}

// putHead writes the heads. It has one caller at a time.
func (m *marks) putHead(complete bool) error {
	for range m.halves {
		m.mu.Lock()
		m.counter++
		h := MarksHead{Version: marksVersion, Complete: complete, counter: m.counter, half: m.halves - 1 - m.headHalf}
		m.mu.Unlock()
		var b [MarkBytes]byte
		if m.halves > 1 {
			b = h.encode()
		} else if h.Version = 1; complete {
			b = h.encode()
		}
		_, err := m.file.WriteAt(b[:], h.half*MarkBytes)
		m.mu.Lock()
		m.writes++
		if err == nil {
			m.headHalf = h.half
		}
		m.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// get is the mark of a partition as it was at the opening.
func (m *marks) get(key markKey) (Mark, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mark, ok := m.loaded[key]
	return mark, ok
}

// remember makes get answer with a mark that was put since the opening: its log is about to be opened again.
func (m *marks) remember(mark Mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loaded[mark.key()] = mark
}

// put writes a partition's mark to the page cache. Where that fails, the mark before it counts.
func (m *marks) put(mark Mark) error { return m.write(mark, flagUsed, 1) }

// putFirm is put over both halves of the slot: what the mark before said is not true any more.
func (m *marks) putFirm(mark Mark) error { return m.write(mark, flagUsed, m.halves) }

// drop frees a partition's slot.
func (m *marks) drop(key markKey) error {
	m.mu.Lock()
	p := m.slots[key]
	m.mu.Unlock()
	if p == nil {
		return nil
	}
	if err := m.write(Mark{TopicID: key.topic, Partition: key.partition}, 0, m.halves); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.slots, key)
	delete(m.loaded, key)
	p.fresh = true
	m.free = append(m.free, p)
	return nil
}

// write puts a mark in its slot, so many times; in a slot that the partition did not have before it fills both halves.
func (m *marks) write(mark Mark, used uint32, times int64) error {
	p, err := m.place(mark.key())
	if err != nil {
		return err
	}
	if p.fresh {
		times = m.halves
	}
	for range times {
		m.mu.Lock()
		m.counter++
		mark.Counter = m.counter
		m.mu.Unlock()
		b, half := mark.encode(used), m.halves-1-p.half
		_, err = m.file.WriteAt(b[:], p.at+half*MarkBytes)
		m.mu.Lock()
		m.writes++ // after the write: a flush that began before does not cover it
		m.mu.Unlock()
		if err != nil { // the next one is written over what is there now
			return err
		}
		p.half = half
	}
	p.fresh = false
	return nil
}

// place is the slot of a partition.
func (m *marks) place(key markKey) (*markPlace, error) {
	for {
		m.mu.Lock()
		p, n := m.slots[key], len(m.free)
		if p == nil && n > 0 {
			p, m.free = m.free[n-1], m.free[:n-1]
			m.slots[key] = p
		}
		m.mu.Unlock()
		if p != nil {
			return p, nil
		}
		if err := m.grow(); err != nil {
			return nil, err
		}
	}
}

// grow adds free slots at the end of the file.
func (m *marks) grow() error {
	m.growing.Lock()
	defer m.growing.Unlock()
	m.mu.Lock()
	n := len(m.free)
	m.mu.Unlock()
	if n > 0 { // somebody else did
		return nil
	}
	slot, grown := m.halves*MarkBytes, m.size+marksGrow
	err := m.file.Allocate(m.size, marksGrow, false)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		err = m.file.Truncate(grown)
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for at := grown - slot; at >= m.size; at -= slot {
		m.free = append(m.free, &markPlace{at: at, fresh: true})
	}
	m.size = grown
	return nil
}

// sync makes all marks that were put before the call durable. Callers that come together share one flush.
func (m *marks) sync() error {
	m.mu.Lock()
	want := m.writes
	m.mu.Unlock()
	m.syncing.Lock()
	defer m.syncing.Unlock()
	m.mu.Lock()
	now, done := m.writes, m.synced
	m.mu.Unlock()
	if done >= want {
		return nil
	}
	if err := m.file.SyncData(); err != nil {
		return err
	}
	m.mu.Lock()
	m.synced = max(m.synced, now)
	m.mu.Unlock()
	return nil
}

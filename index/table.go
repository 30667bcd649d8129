// Package index finds places in a segment: by offset, by time, and the aborted transactions of a range.
//
// Nouns. A table is a file of fixed-width entries that is read and written through a memory map. [OffsetIndex],
// [TimeIndex] and [TxnIndex] are Kafka's three kinds. An entry is sparse: the log has to be walked from where it points.
//
// Everything is big-endian and relative to the segment's base offset, which is the file's name.
//
//	.index      ┌────────────────────┬───────────────────┐
//	            │ last offset − base │ position of batch │   8 bytes: where the batch that ends at this offset begins
//	            │ i32                │ i32               │
//	            └────────────────────┴───────────────────┘
//	.timeindex  ┌──────────────────────┬─────────────────┐
//	            │ timestamp            │ offset − base   │   12 bytes: the largest timestamp so far, and the last offset of
//	            │ i64                  │ i32             │   the batch that has it
//	            └──────────────────────┴─────────────────┘
//	.txnindex   ┌─────────┬─────────────┬──────────────┬─────────────┬────────────────────┐
//	            │ version │ producer id │ first offset │ last offset │ last stable offset │   34 bytes: one aborted transaction
//	            │ i16 = 0 │ i64         │ i64          │ i64         │ i64                │
//	            └─────────┴─────────────┴──────────────┴─────────────┴────────────────────┘
//
// Who owns what. A table has one writer, the segment's; any number of readers. An index is a cache of its log file: its
// length proves nothing (an active index is longer than its entries and ends in zeros), so the owner says how many entries
// count, and checks them against the log.
package index

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

var (
	// ErrFull says that the index has reached segment.index.bytes: the segment must roll.
	ErrFull = errors.New("index is full")
	// ErrCorrupt says that entries are not what was written; the index must be rebuilt from the log.
	ErrCorrupt = errors.New("index is corrupt")
)

const (
	firstBytes = 64 << 10 // size of a file when it gets its first entry
	warmBytes  = 8 << 10  // the end of the index, searched first: its pages are warm
)

// Options say which file an index is.
type Options struct {
	FS   vfs.FS
	Name string        // path
	Base record.Offset // of the segment
	// MaxBytes is the largest size (segment.index.bytes); it is rounded down to whole entries, at least two.
	MaxBytes int
}

// view is a mapping that readers may be in.
type view struct {
	m    *vfs.Mapping
	data []byte
}

// table is the part that the offset and the time index share.
type table struct {
	opts  Options
	width int
	limit int // entries that fit in MaxBytes

	mu    sync.Mutex // guards what view points to, and the file's length
	view  atomic.Pointer[view]
	count atomic.Int64 // entries; stored by the writer after the entry's bytes
}

func (t *table) init(o Options, width int) {
	t.opts, t.width = o, width
	t.limit = max(o.MaxBytes/width, 2)
}

// create makes the file, empty. It gets its blocks with the first entry; without create, its name too.
func (t *table) create() error {
	f, err := t.opts.FS.OpenFile(t.opts.Name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// Name is the path of the file.
func (t *table) Name() string { return t.opts.Name }

// Len is the number of entries.
func (t *table) Len() int { return int(t.count.Load()) }

// full says that no entry fits any more, where reserved entries are kept free.
func (t *table) full(reserved int) bool { return int(t.count.Load())+reserved >= t.limit }

// open believes the first entries of an existing file, all that its length allows if entries is negative. The file is cut
// to them, since what follows is zeros or garbage. Nothing is mapped yet. A file that is missing has no entries.
func (t *table) open(entries int) error {
	f, err := t.opts.FS.OpenFile(t.opts.Name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) && entries <= 0 {
		t.count.Store(0)
		return nil
	}
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err == nil {
		have := int(size) / t.width
		if entries < 0 {
			entries = have
		}
		if entries > have {
			err = fmt.Errorf("%w: %s has %d entries, not %d", ErrCorrupt, t.opts.Name, have, entries)
		} else if want := int64(entries) * int64(t.width); want != size {
			err = f.Truncate(want)
		}
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		t.count.Store(int64(entries))
	}
	return err
}

// Load maps an index that is not mapped, read-only. It is idempotent, and needless for an index that is being written.
func (t *table) Load() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.count.Load()
	if t.view.Load() != nil || n == 0 {
		return nil
	}
	return t.mapFile(n*int64(t.width), false)
}

// mapFile maps the first length bytes and lets readers in. The caller holds mu.
func (t *table) mapFile(length int64, writable bool) error {
	flag := os.O_RDONLY
	if writable {
		flag = os.O_RDWR | os.O_CREATE
	}
	f, err := t.opts.FS.OpenFile(t.opts.Name, flag, 0o644)
	if err != nil {
		return err
	}
	var m *vfs.Mapping
	size, err := f.Size()
	if err == nil && size < length {
		if writable {
			err = f.Allocate(size, length-size, false)
		} else {
			err = fmt.Errorf("%w: %s has %d bytes, not %d", ErrCorrupt, t.opts.Name, size, length)
		}
	}
	if err == nil {
		m, err = f.Map(length, writable)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		if m != nil {
			err = errors.Join(err, m.Release())
		}
		return err
	}
	return t.swap(&view{m: m, data: m.Bytes()})
}

// swap lets readers into v (nil: none) and gives the old mapping to its last reader to unmap. The caller holds mu.
func (t *table) swap(v *view) error {
	if old := t.view.Swap(v); old != nil {
		return old.m.Release()
	}
	return nil
}

// Reserve makes sure that the next Append cannot fail for want of room. Only the writer calls it. Errors: ErrFull, or no
// space on the disk.
func (t *table) Reserve() error {
	_, err := t.room()
	return err
}

// room returns the bytes of the next entry, growing the file if it must. Only the writer calls it.
func (t *table) room() ([]byte, error) {
	at := int(t.count.Load()) * t.width
	v := t.view.Load()
	if v == nil || !v.m.Writable() || at+t.width > len(v.data) {
		if err := t.grow(at); err != nil {
			return nil, err
		}
		v = t.view.Load()
	}
	return v.data[at : at+t.width], nil
}

func (t *table) grow(used int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	size := firstBytes
	for size < used+t.width {
		size *= 2
	}
	size = min(size/t.width, t.limit) * t.width
	if size < used+t.width {
		return fmt.Errorf("%w: %s", ErrFull, t.opts.Name)
	}
	return t.mapFile(int64(size), true)
}

// enter lets a reader in. It returns the mapping, which the reader must Release, and the entries' bytes; nil where there
// is nothing to read.
func (t *table) enter() (*vfs.Mapping, []byte) {
	for {
		n := int(t.count.Load())
		v := t.view.Load()
		if v == nil || n == 0 {
			return nil, nil
		}
		if v.m.TryRetain() {
			n = min(n, len(v.data)/t.width)
			return v.m, v.data[:n*t.width]
		}
	}
}

// Cut drops all entries after the first n. Only the writer calls it, and no reader may be looking for what is cut.
func (t *table) Cut(n int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	have := int(t.count.Load())
	if n >= have {
		return nil
	}
	t.count.Store(int64(n))
	if v := t.view.Load(); v != nil && v.m.Writable() {
		clear(v.data[n*t.width : have*t.width])
		return nil
	}
	return t.trim(int64(n))
}

// Seal ends writing: the index is unmapped and its file cut to the entries. Load maps it again for readers.
func (t *table) Seal() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.view.Load()
	if v == nil || !v.m.Writable() {
		return t.swap(nil)
	}
	return t.trim(t.count.Load())
}

// trim unmaps and cuts the file to n entries. A mapped part must not be cut, so it waits for the readers that are inside:
// they only search. The caller holds mu.
func (t *table) trim(n int64) error {
	if v := t.view.Swap(nil); v != nil {
		if err := v.m.Release(); err != nil {
			return err
		}
		for v.m.TryRetain() {
			if err := v.m.Release(); err != nil {
				return err
			}
			runtime.Gosched()
		}
	}
	f, err := t.opts.FS.OpenFile(t.opts.Name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) && n == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	err = f.Truncate(n * int64(t.width))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// Unload unmaps without touching the file; the last reader that is inside does it.
func (t *table) Unload() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.swap(nil)
}

// Sync makes the entries and the file's length durable.
func (t *table) Sync() error {
	f, err := t.opts.FS.OpenFile(t.opts.Name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) && t.count.Load() == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	err = f.SyncData()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// Rename changes the path after the file was renamed by the owner.
func (t *table) Rename(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.opts.Name = name
}

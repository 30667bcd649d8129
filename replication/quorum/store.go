package quorum

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"github.com/keeplog/keeplog/metadata"
)

// storeName is the file of the store; a new one is made under a name of its own, and renamed when it is whole and durable.
const (
	storeName    = "keeplog-raft.db"
	newStoreName = "keeplog-raft.db.new"
)

// Store is where Raft keeps its log, its term and its vote. Every call that changes it is durable when it returns.
type Store interface {
	raft.LogStore
	raft.StableStore
	Close() error
}

// boltOptions are those of the store's file. The map is modest: bbolt maps again when the file outgrows it.
func boltOptions() *bbolt.Options {
	return &bbolt.Options{
		Timeout: time.Second, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType, InitialMmapSize: 16 << 20,
		NoStatistics: true,
	}
}

// openFile opens the store's file, or makes it at the first start. snapshots says that there are some.
func (q *Quorum) openFile(snapshots bool) (Store, error) {
	name, fresh := path.Join(q.o.Dir, storeName), path.Join(q.o.Dir, newStoreName)
	info, err := q.o.FS.Stat(name)
	if err == nil && info.Size() == 0 {
		return nil, fmt.Errorf("%w: %s is empty\n%s", ErrDamaged, name, q.advice())
	}
	if errors.Is(err, fs.ErrNotExist) {
		if q.o.ClusterID != "" || snapshots {
			return nil, q.missing()
		}
		err = q.makeFile(name, fresh)
	}
	if err != nil {
		return nil, err
	}
	if err := q.o.FS.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var store Store
	if err = preflight(q.o.FS, name); err == nil {
		store, err = openBolt(name)
	}
	if err == nil {
		return store, nil
	}
	if errors.Is(err, ErrDamaged) {
		err = fmt.Errorf("%w\n%s", err, q.advice())
	}
	return nil, err
}

// makeFile makes the store under another name, with what begins the cluster in it, and renames it when it is durable.
func (q *Quorum) makeFile(name, fresh string) error {
	if err := q.o.FS.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	store, err := openBolt(fresh)
	if err != nil {
		return err
	}
	if q.peers == nil {
		err = q.bootstrap(store)
	}
	if err = errors.Join(err, store.Close()); err != nil {
		return err
	}
	f, err := q.o.FS.OpenFile(fresh, 0, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := q.o.FS.Rename(fresh, name); err != nil {
		return err
	}
	return q.o.FS.SyncDir(q.o.Dir)
}

func openBolt(name string) (store Store, err error) {
	err = guard(func() error {
		s, err := raftboltdb.New(raftboltdb.Options{Path: name, BoltOptions: boltOptions()})
		if err == nil {
			store = s
		}
		return err
	})
	return store, openError(name, err)
}

// guard turns what bbolt does with damaged pages, a panic or a fault in its memory map, into an error.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("damaged page: %v", p)
		}
	}()
	return f()
}

// checkStore reads the whole log once: every entry must be there, under its index, and every command whole.
func (q *Quorum) checkStore(store Store, best *snapshotInfo) error {
	return guard(func() error {
		first, err := store.FirstIndex()
		if err != nil {
			return err
		}
		last, err := store.LastIndex()
		if err != nil {
			return err
		}
		switch {
		case best == nil && first > 1:
			return fmt.Errorf("the log begins at entry %d, and no readable snapshot covers what was before", first)
		case best != nil && first > best.index+1:
			return fmt.Errorf("the log begins at entry %d, and the newest readable snapshot %s ends at %d", first, best.name, best.index)
		}
		var l raft.Log
		for i := first; i <= last && i > 0; i++ {
			if err := store.GetLog(i, &l); err != nil {
				return fmt.Errorf("entry %d of %d: %w", i, last, err)
			}
			if err := q.checkEntry(i, &l); err != nil {
				return err
			}
		}
		return nil
	})
}

// readable says, where snapshots are incomplete, whether the log has everything behind best, or from the beginning: up to the newest of them at
// least, for this member has acknowledged all that it has.
func (q *Quorum) readable(best *snapshotInfo) error {
	if len(q.snaps.incomplete) == 0 {
		return nil
	}
	newest, from := q.snaps.incomplete[0], uint64(1)
	if best != nil {
		from = best.index + 1
	}
	first, err := q.store.FirstIndex()
	if err != nil {
		return fmt.Errorf("quorum: %w", err)
	}
	last, err := q.store.LastIndex()
	switch {
	case err != nil:
		return fmt.Errorf("quorum: %w", err)
	case first > 0 && first <= from && last >= newest.index:
		return nil
	}
	advice := "try: start the version that took it, or put the whole data directory back from a backup that is older than it"
	if q.peers != nil {
		advice = q.advice()
	}
	return fmt.Errorf("quorum: %s in %s cannot be used: %w; the log has entries %d to %d, and %d to %d would be needed\n%s",
		newest.name, q.o.Dir, q.snaps.why, first, last, from, newest.index, advice)
}

func (q *Quorum) checkEntry(at uint64, l *raft.Log) error {
	if l.Index != at {
		return fmt.Errorf("entry %d says that it is entry %d", at, l.Index)
	}
	if l.Type != raft.LogCommand {
		return nil
	}
	c, err := metadata.DecodeCommand(l.Data)
	if err != nil {
		return fmt.Errorf("entry %d: %w", at, err)
	}
	for _, g := range c.Groups {
		for _, rec := range g.Records {
			switch rec := rec.(type) {
			case metadata.ClusterStarted:
				if err := q.checkCluster(rec.ClusterID, rec.Voters); err != nil {
					return err
				}
			case metadata.MemberChanged:
				if q.peers != nil {
					q.peers.book.note(rec)
				}
			}
		}
	}
	return nil
}

// failStop ends the process when the store fails: what it holds is then not known, and asking again would lie. It also keeps
// the log that the older snapshots need.
type failStop struct {
	store Store
	fail  func(error)
	// keep is the index of the oldest snapshot that is kept, 0 when there is none: entries after it stay.
	keep func() uint64
	// covers are index and term of the newest snapshot, 0 when there is none.
	covers func() (index, term uint64)
	// since is when the call under way began, in nanoseconds of the watchdog's clock; 0 when there is none.
	since atomic.Int64
	clock time.Time
	// idle is told of entries.
	idle *idle
}

// IsMonotonic says that a snapshot that came from the leader takes the place of the whole log: it does when the log ends before
// it, else there would be a gap between what was there and what comes after the snapshot.
func (s *failStop) IsMonotonic() bool {
	last, err := s.store.LastIndex()
	index, _ := s.covers()
	return err == nil && last < index
}

// term is the term of an entry, 0 for one that is not there.
func (s *failStop) term(index uint64) uint64 {
	var l raft.Log
	if s.store.GetLog(index, &l) != nil {
		return 0
	}
	return l.Term
}

func (s *failStop) close() error { return s.store.Close() }

// during runs a call that changes the store.
func (s *failStop) during(what string, f func() error) error {
	s.since.Store(int64(time.Since(s.clock)) + 1)
	err := f()
	s.since.Store(0)
	if err != nil {
		err = fmt.Errorf("quorum: %s: %w", what, err)
		s.fail(err)
	}
	return err
}

// busy is how long the call under way has taken.
func (s *failStop) busy() time.Duration {
	if at := s.since.Load(); at != 0 {
		return time.Since(s.clock) - time.Duration(at)
	}
	return 0
}

// FirstIndex is the first entry's index.
func (s *failStop) FirstIndex() (uint64, error) { return s.store.FirstIndex() }

// LastIndex is the last entry's index.
func (s *failStop) LastIndex() (uint64, error) { return s.store.LastIndex() }

// GetLog reads an entry.
func (s *failStop) GetLog(index uint64, l *raft.Log) error {
	err := s.store.GetLog(index, l)
	if errors.Is(err, raft.ErrLogNotFound) {
		// The leader may ask whether it is the last entry of the snapshot that is before what it sends. The library looks for
		// that entry in the log only, where it is not when the log begins behind the snapshot, and is sent the snapshot again
		// and again. Only the term of this entry is looked at: a leader whose log begins behind it sends the snapshot instead.
		if at, term := s.covers(); at == index && index > 0 {
			*l = raft.Log{Index: index, Term: term, Type: raft.LogNoop}
			return nil
		}
	}
	return err
}

// Get reads a value.
func (s *failStop) Get(key []byte) ([]byte, error) { return s.store.Get(key) }

// GetUint64 reads a number.
func (s *failStop) GetUint64(key []byte) (uint64, error) { return s.store.GetUint64(key) }

// StoreLog stores an entry.
func (s *failStop) StoreLog(l *raft.Log) error {
	s.idle.store()
	return s.during("store an entry", func() error { return s.store.StoreLog(l) })
}

// StoreLogs stores entries.
func (s *failStop) StoreLogs(l []*raft.Log) error {
	s.idle.store()
	return s.during("store entries", func() error { return s.store.StoreLogs(l) })
}

// Set stores a value.
func (s *failStop) Set(key, value []byte) error {
	return s.during("store a vote", func() error { return s.store.Set(key, value) })
}

// SetUint64 stores a number.
func (s *failStop) SetUint64(key []byte, value uint64) error {
	return s.during("store a term", func() error { return s.store.SetUint64(key, value) })
}

// DeleteRange deletes entries. Of the log's beginning it leaves what the oldest kept snapshot needs.
func (s *failStop) DeleteRange(from, to uint64) error {
	last, err := s.store.LastIndex()
	if err == nil && to < last {
		to = min(to, s.keep())
	}
	if err == nil && to < from {
		return nil
	}
	return s.during("delete entries", func() error {
		if err != nil {
			return err
		}
		return s.store.DeleteRange(from, to)
	})
}

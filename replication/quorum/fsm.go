package quorum

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/keeplog/keeplog/metadata"
)

// fsm applies committed entries to the image. Raft calls it from one goroutine.
type fsm struct {
	image atomic.Pointer[metadata.Image]
	// tables are changed in place, before the image that goes with them is shown.
	tables *metadata.Tables
	log    *slog.Logger
	fail   func(error)
	// stuck is set after an entry could not be applied: nothing more is.
	stuck error
	// check looks at an image whose cluster changed.
	check func(*metadata.Image) error

	// order is held while subscribers are called, so that a new one misses nothing. Only applying and subscribing take it.
	order       sync.Mutex
	subscribers []func(metadata.Delta, *metadata.Image)

	// chain has the hashes of the newest images.
	chain chain

	// entries and bytes were applied since the last snapshot.
	entries, bytes atomic.Uint64

	// moved is closed and replaced when the image changes.
	movedMu sync.Mutex
	moved   chan struct{}
}

var errStuck = errors.New("quorum: an earlier entry could not be applied")

func newFSM(log *slog.Logger, fail func(error)) *fsm {
	f := &fsm{tables: metadata.NewTables(), log: log, fail: fail, moved: make(chan struct{})}
	f.image.Store(metadata.New())
	return f
}

var errApplied = errors.New("quorum: an entry that is applied came again")

// reply is what a proposal gets back from the state machine.
type reply struct {
	outcome metadata.Outcome
	err     error
}

// Apply applies one entry.
func (f *fsm) Apply(l *raft.Log) any {
	if f.stuck != nil {
		return reply{err: errStuck}
	}
	if l.Index <= f.image.Load().Index() {
		return reply{err: errApplied} // Raft was opened again
	}
	next, delta, out, err := metadata.Apply(f.image.Load(), f.tables, metadata.Entry{Index: l.Index, Term: l.Term, Payload: l.Data})
	if err != nil {
		f.stuck = err
		f.fail(fmt.Errorf("quorum: cannot apply: %w", err))
		return reply{err: err}
	}
	for _, kind := range out.Ignored {
		f.log.Error("a record of an unknown kind was ignored: a newer version wrote it", "index", l.Index, "kind", uint64(kind))
	}
	err = f.compare(out.Checkpoints)
	if err == nil && delta.Cluster {
		err = f.check(next)
	}
	if err != nil {
		f.stuck = err
		f.fail(err)
		return reply{err: err}
	}
	f.entries.Add(1)
	f.bytes.Add(uint64(len(l.Data)))
	f.publish(delta, next)
	return reply{outcome: out}
}

// compare looks at the leader's checkpoints.
func (f *fsm) compare(checkpoints []metadata.ChainCheckpoint) error {
	for _, c := range checkpoints {
		if err := f.chain.compare(c); err != nil {
			return err
		}
	}
	return nil
}

// ApplyBatch applies entries that were committed together.
func (f *fsm) ApplyBatch(logs []*raft.Log) []any {
	replies := make([]any, len(logs))
	for i, l := range logs {
		if l.Type == raft.LogCommand {
			replies[i] = f.Apply(l)
		}
	}
	return replies
}

func (f *fsm) publish(delta metadata.Delta, next *metadata.Image) {
	f.order.Lock()
	defer f.order.Unlock()
	f.chain.add(next)
	f.image.Store(next)
	for _, s := range f.subscribers {
		s(delta, next)
	}
	f.movedMu.Lock()
	defer f.movedMu.Unlock()
	close(f.moved)
	f.moved = make(chan struct{})
}

// moves is closed when the image changes next.
func (f *fsm) moves() <-chan struct{} {
	f.movedMu.Lock()
	defer f.movedMu.Unlock()
	return f.moved
}

func (f *fsm) subscribe(s func(metadata.Delta, *metadata.Image)) {
	f.order.Lock()
	defer f.order.Unlock()
	img := f.image.Load()
	s(metadata.Diff(metadata.New(), img), img)
	f.subscribers = append(f.subscribers, s)
}

// Snapshot takes the image, which nobody changes, and freezes the tables.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	if f.stuck != nil {
		return nil, errStuck
	}
	return &frozen{fsm: f, img: f.image.Load(), groups: f.tables.Freeze(), entries: f.entries.Load(), bytes: f.bytes.Load()}, nil
}

// Restore replaces image and tables by those of a snapshot.
func (f *fsm) Restore(r io.ReadCloser) error {
	img, tables, err := metadata.ReadSnapshot(r)
	if err != nil {
		return errors.Join(err, r.Close())
	}
	if img.Index() <= f.image.Load().Index() {
		return r.Close() // Raft was opened again
	}
	if err := img.Complete(); err != nil {
		f.log.Error("the leader's snapshot of the metadata cannot be used: update it first", "error", err)
		return errors.Join(err, r.Close())
	}
	f.entries.Store(0)
	f.bytes.Store(0)
	if err := f.check(img); err != nil {
		f.stuck = err
		f.fail(err)
		return errors.Join(err, r.Close())
	}
	f.tables.Replace(tables)
	f.publish(metadata.Diff(f.image.Load(), img), img)
	return r.Close()
}

// frozen are image and tables on their way into a snapshot.
type frozen struct {
	fsm            *fsm
	img            *metadata.Image
	groups         *metadata.Frozen
	entries, bytes uint64
}

// Persist writes them.
func (s *frozen) Persist(to raft.SnapshotSink) error {
	if w, ok := to.(*sink); ok {
		w.own = true
	}
	if err := s.img.WriteSnapshot(to, s.groups); err != nil {
		return errors.Join(err, to.Cancel())
	}
	if err := to.Close(); err != nil {
		return err
	}
	s.fsm.entries.Add(-s.entries)
	s.fsm.bytes.Add(-s.bytes)
	return nil
}

// Release lets the tables change in place again.
func (s *frozen) Release() { s.groups.Release() }

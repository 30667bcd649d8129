// Package quorum keeps the metadata log: replicated by Raft, applied to the image, the same on every node.
//
// Nouns. A [Quorum] is this node's member of the Raft group. A proposal is the records of one caller; proposals that wait
// while an entry is in flight travel in the next one together. The store is where Raft keeps log and votes, `keeplog-raft.db`;
// snapshots of the image are plain files beside it, `keeplog-snapshot-TERM-INDEX`. A member is an id and a data directory; the
// peers are the other members, the port takes and makes the connections between them, a hello is what one says of itself.
//
//	Propose ─► lane: forming entry ─► Raft ─► store (fsync, majority) ─► apply ─► image (atomic pointer)
//	   ▲        one in flight                                              │  └─► subscribers, in order
//	   └───────────────────────── index, results ◄─────────────────────────┘
//
//	ProposeOffsets (any node) ─► lane of offsets ─► Raft here, or Options.Remote ─► Submit at the leader ─► Raft ─► apply ─► tables
//
//	start ─► hello to all ─► begin the cluster · follow · join · be refused        (decide, in course.go)
//
// Who owns what. The state machine's goroutine alone makes images and calls subscribers. A lane's goroutine alone makes its
// entries; the greeter alone says hello and joins, and the leader's tend alone changes members by itself, one change at a time.
// Everybody may read the newest image, which is one atomic load.
//
// A failing disk ends the process: a store that could not write is never asked again (Options.Fatal). The network transport
// has no fast path for heartbeats: with it, the library lets a deposed leader store an entry under its successor's term.
//
// This is the only package that knows hashicorp/raft and raft-boltdb.
package quorum

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/vfs"
)

var (
	// ErrNotLeader: this node does not lead, or is not ready yet; nothing was proposed.
	ErrNotLeader = errors.New("quorum: not the leader")
	// ErrUnknownOutcome: the records may have been committed, or may yet be.
	ErrUnknownOutcome = errors.New("quorum: outcome unknown")
	// ErrNotProposed: the caller gave up before its records were proposed.
	ErrNotProposed = errors.New("quorum: not proposed")
	// ErrTooLarge: the records of one proposal do not fit in an entry.
	ErrTooLarge = errors.New("quorum: proposal is too large")
	// ErrAstray: this node's image is not what the others made of the same log.
	ErrAstray = errors.New("quorum: this node's metadata has gone astray")
	// ErrClosed: the quorum was closed or has failed.
	ErrClosed = errors.New("quorum: closed")
	// ErrLocked: another process uses the store.
	ErrLocked = errors.New("quorum: the metadata log is in use")
	// ErrDamaged: the store or all snapshots are damaged.
	ErrDamaged = errors.New("quorum: the metadata log is damaged")
	// ErrMissing: the directory belongs to a cluster but its metadata log is not there.
	ErrMissing = errors.New("quorum: the metadata log is missing")
	// ErrForeign: the store belongs to another cluster, node or directory.
	ErrForeign = errors.New("quorum: the metadata log belongs to another")
)

// MaxEntry is the largest entry in bytes; a proposal may not be larger.
const MaxEntry = 1 << 20

// Voter is an entry of controller.quorum.voters.
type Voter struct {
	ID metadata.BrokerID
	// Address is the HOST:PORT at which it listens for other members.
	Address string
}

// Options are what a member needs.
type Options struct {
	// FS holds the snapshots and, where it is the machine's, the store. Dir is the directory of both; it exists.
	FS  vfs.FS
	Dir string
	// Node is this node's id, Directory that of the data directory.
	Node      metadata.BrokerID
	Directory metadata.DirectoryID
	// ClusterID is the one that the data directory knows, empty at its first start. NewClusterID makes one for the first
	// record; it is called at the first start only.
	ClusterID    string
	NewClusterID func() string
	// Listener takes the connections of the other members; the quorum closes it. Nil is a node alone, which has no peers and
	// begins its cluster at the first start. Dial connects to another member; nil is TCP.
	Listener net.Listener
	Dial     func(ctx context.Context, address string) (net.Conn, error)
	// Voters are controller.quorum.voters, by which the nodes find each other and begin the cluster: the lowest one does when
	// every other has answered that it is empty and has the same list. Join are the addresses of members of a cluster that has
	// begun, which this node joins unless it is a member. Both are nil for a node alone.
	Voters []Voter
	Join   []string
	// Internal is where this broker listens for other brokers, Controller where this member listens for other members: what the
	// others are told. The name of Internal is that of the listener in a broker's registration.
	Internal, Controller metadata.Endpoint
	// Remote carries an encoded command of the lane of offsets to the broker that leads, which calls Submit with it; nil where nobody else is.
	// It is safe to repeat.
	Remote func(ctx context.Context, leader metadata.BrokerID, payload []byte) (metadata.Outcome, error)
	// Store replaces the file of the store, for tests.
	Store Store
	// Fatal is called when the node must not go on: a store that failed to write, a disk that hangs, a damaged entry. It is
	// called on the goroutine that must not go on, so it ends the process, with status 74; in tests, at least that goroutine.
	Fatal  func(error)
	Logger *slog.Logger
	// Timing is the zero value for the house's.
	Timing Timing

	// fastPath is for the test that shows what the library's fast path does.
	fastPath bool
}

// Timing is Raft's.
type Timing struct {
	Heartbeat, Election, Lease, Commit time.Duration
	// SnapshotEvery is how often to look whether a snapshot is due. It is when SnapshotEntries entries or SnapshotBytes bytes
	// were applied since the last one.
	SnapshotEvery   time.Duration
	SnapshotEntries uint64
	SnapshotBytes   uint64
	// Trailing is how many entries stay in the log behind a snapshot for members that are behind; 0 is as many as fit in 64 MiB,
	// at most 10,240. Checkpoint is how often the members compare their histories, when there is something new.
	Trailing   uint64
	Checkpoint time.Duration
}

func (t Timing) withDefaults(alone bool) Timing {
	def := func(d *time.Duration, single, many time.Duration) {
		if *d == 0 {
			*d = many
			if alone {
				*d = single
			}
		}
	}
	def(&t.Heartbeat, 50*time.Millisecond, time.Second)
	def(&t.Election, 50*time.Millisecond, time.Second)
	def(&t.Lease, 50*time.Millisecond, time.Second/2)
	def(&t.Commit, 20*time.Millisecond, 20*time.Millisecond)
	def(&t.SnapshotEvery, 30*time.Second, 30*time.Second)
	def(&t.Checkpoint, 10*time.Second, 10*time.Second)
	if t.SnapshotEntries == 0 {
		t.SnapshotEntries = 8192
	}
	if t.SnapshotBytes == 0 {
		t.SnapshotBytes = 32 << 20
	}
	return t
}

// Quorum is this node's member of the Raft group. Its methods are safe for concurrent use.
type Quorum struct {
	o Options
	// live is Raft, which is opened again after a snapshot that contradicts the log.
	live  atomic.Pointer[raft.Raft]
	store *failStop
	snaps *snapshots
	fsm   *fsm
	lanes [2]*lane

	// ready is the term that this node leads and in which it has applied all before; 0 when there is none.
	ready  atomic.Uint64
	epoch  atomic.Int64
	notify chan bool
	news
	// peers are the others; nil for a node alone.
	peers *peers
	// named says that the store names this member.
	named bool
	refusing

	ctx    context.Context
	cancel context.CancelFunc
	// inFlight are the goroutines that wait for Raft, work the others; gone is closed when Raft has shut down.
	inFlight, work sync.WaitGroup
	gone           chan struct{}
	closed         atomic.Bool
	failed         sync.Once
}

// news tells of changes of the leader.
type news struct {
	// changed is closed and replaced when ready or the leader changes.
	changedMu sync.Mutex
	changed   chan struct{}
	observed  chan raft.Observation
	unheard   unheard
}

// refusing is why this node can be no member.
type refusing struct {
	refuseOnce sync.Once
	refused    chan struct{}
	// refusal is set before refused is closed.
	refusal error
}

// Applied is what became of a proposal.
type Applied struct {
	// Index is the log index that this node has applied with the records.
	Index uint64
	// Results are those of the records, in order.
	Results []metadata.Result
}

// raft is the library's member.
func (q *Quorum) raft() *raft.Raft { return q.live.Load() }

// Image is the newest image that this node has applied.
func (q *Quorum) Image() *metadata.Image { return q.fsm.image.Load() }

// Tables are the groups that this node has applied: those of Image, or of an entry after it.
func (q *Quorum) Tables() *metadata.Tables { return q.fsm.tables }

// Subscribe calls f with all that is there, and then with each change, in the order of the log and after the subscribers
// that came before; Image shows the new image already. f holds up the state machine, so it must not wait for a proposal.
func (q *Quorum) Subscribe(f func(metadata.Delta, *metadata.Image)) { q.fsm.subscribe(f) }

// SetBrokerEpoch names the epoch that this node has registered with: from now on its proposals are remembered, and repeated
// when their outcome is unknown.
func (q *Quorum) SetBrokerEpoch(epoch int64) { q.epoch.Store(epoch) }

// Lead says in which term this node leads, all earlier entries applied. The error wraps ErrNotLeader.
func (q *Quorum) Lead() (term uint64, err error) {
	term = q.ready.Load()
	if term == 0 || q.raft().State() != raft.Leader || q.raft().CurrentTerm() != term {
		return 0, q.notLeader()
	}
	return term, nil
}

// Leader is the node that leads, as far as this one knows.
func (q *Quorum) Leader() (id metadata.BrokerID, ok bool) {
	_, server := q.raft().LeaderWithID()
	id, err := parseServerID(string(server))
	return id, err == nil
}

// Term is Raft's current term.
func (q *Quorum) Term() uint64 { return q.raft().CurrentTerm() }

// WaitLeader waits until this node leads and is ready, as a single voter soon does.
func (q *Quorum) WaitLeader(ctx context.Context) error {
	for {
		changed := q.changes()
		if _, err := q.Lead(); err == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", q.notLeader(), context.Cause(ctx))
		case <-q.ctx.Done():
			return ErrClosed
		}
	}
}

// wait waits for a future or the context.
func wait(ctx context.Context, f raft.Future, dress func(error) error) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		if err != nil {
			return dress(err)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Snapshot takes a snapshot now, unless nothing was applied since the last one.
func (q *Quorum) Snapshot() error {
	err := q.snapshot()
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil
	}
	return err
}

// closePatience bounds the wait for what is in flight when the quorum closes. Without a quorum Raft gives it up after the
// lease; only a disk that hangs takes longer.
const closePatience = 5 * time.Second

// Close stops this member: what is in flight is seen through, what waits ends with ErrClosed.
func (q *Quorum) Close() error {
	if q.closed.Swap(true) {
		return nil
	}
	q.cancel()
	// The library may never answer for an entry that it was applying when it shut down, so the entry comes first.
	drained := make(chan struct{})
	go func() {
		q.inFlight.Wait()
		close(drained)
	}()
	patience := time.NewTimer(closePatience)
	defer patience.Stop()
	select {
	case <-drained:
	case <-patience.C:
		q.o.Logger.Error("the metadata log closes with an entry in flight", "dir", q.o.Dir)
	}
	err := q.raft().Shutdown().Error()
	close(q.gone)
	if q.peers != nil {
		err = errors.Join(err, q.peers.wire.Load().Close(), q.peers.port.close())
	}
	q.work.Wait()
	err = errors.Join(err, q.raft().Shutdown().Error()) // it may have been opened again meanwhile
	return errors.Join(err, q.store.close())
}

// fail ends the node.
func (q *Quorum) fail(err error) {
	q.failed.Do(func() { q.o.Logger.Error("the metadata log failed; this node stops", "error", err) })
	q.cancel()
	q.o.Fatal(err)
}

func (q *Quorum) changes() <-chan struct{} {
	q.changedMu.Lock()
	defer q.changedMu.Unlock()
	return q.changed
}

func (q *Quorum) setReady(term uint64) {
	if q.peers != nil && term != 0 {
		q.peers.lead()
	}
	q.ready.Store(term)
	q.announce()
}

func serverID(id metadata.BrokerID) raft.ServerID {
	return raft.ServerID(strconv.Itoa(int(id)))
}

func parseServerID(s string) (metadata.BrokerID, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("quorum: %q is no node id", s)
	}
	return metadata.BrokerID(n), nil
}

func encodeUint64(v uint64) []byte { return binary.BigEndian.AppendUint64(nil, v) }

func decodeUint64(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

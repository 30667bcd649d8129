package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/hashicorp/raft"

	"github.com/keeplog/keeplog/metadata"
)

// Open opens this node's member, and begins the cluster at the first start. It refuses, with what to do, a store that is
// damaged, locked, another's, or gone. The image is that of the newest snapshot; the entries after it are applied once a
// leader is known: see WaitLeader.
func Open(o Options) (*Quorum, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Fatal == nil {
		return nil, errors.New("quorum: Options.Fatal is not set")
	}
	if o.Voters == nil {
		o.Voters, o.Bootstrap = []Voter{{o.Node, o.Directory}}, true
	}
	o.Timing = o.Timing.withDefaults(len(o.Voters))
	q := &Quorum{o: o, notify: make(chan bool, 16), changed: make(chan struct{}), gone: make(chan struct{})}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	q.epoch.Store(metadata.NoEpoch)
	if err := q.open(); err != nil {
		q.cancel()
		if q.store != nil {
			err = errors.Join(err, q.store.close())
		}
		return nil, err
	}
	return q, nil
}

func (q *Quorum) open() error {
	transport, err := q.transport()
	if err != nil {
		return err
	}
	q.snaps = &snapshots{fs: q.o.FS, dir: q.o.Dir, log: q.o.Logger, fail: q.fail}
	best, err := q.snaps.open()
	if err != nil {
		return err
	}
	store := q.o.Store
	if store == nil {
		if store, err = q.openFile(transport, best != nil); err != nil {
			return err
		}
	}
	q.store = &failStop{store: store, fail: q.fail, keep: q.snaps.oldest, clock: time.Now()}
	if err := q.begin(store, transport); err != nil {
		return err
	}
	switch err := q.checkStore(store, best); {
	case errors.Is(err, ErrForeign), errors.Is(err, metadata.ErrNewerVersion):
		return err
	case err != nil:
		return fmt.Errorf("%w: %s in %s: %w\n%s", ErrDamaged, storeName, q.o.Dir, err, q.advice())
	}
	return q.start(transport)
}

// begin bootstraps a store that has no state; stores in files come bootstrapped.
func (q *Quorum) begin(store Store, transport raft.Transport) error {
	has, err := raft.HasExistingState(store, store, q.snaps)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w\n%s", ErrDamaged, err, q.advice())
	case has || !q.o.Bootstrap:
		return nil
	case q.o.ClusterID != "":
		return q.missing()
	}
	return q.bootstrap(store, transport)
}

func (q *Quorum) missing() error {
	return fmt.Errorf("%w: %s belongs to cluster %s, and there is no %s in it\n%s", ErrMissing, q.o.Dir, q.o.ClusterID, storeName, q.advice())
}

// advice says what to do about a store that cannot be used.
func (q *Quorum) advice() string {
	if len(q.o.Voters) > 1 {
		return fmt.Sprintf("try: remove this member from another node, then let it join as a new one with an empty directory: keeplog cluster remove %d", q.o.Node)
	}
	return "try: put the whole data directory back from a backup. The records of the partitions are still in their files: keeplog dump " + q.o.Dir
}

func (q *Quorum) bootstrap(store Store, transport raft.Transport) error {
	var c raft.Configuration
	for _, v := range q.o.Voters {
		c.Servers = append(c.Servers, raft.Server{Suffrage: raft.Voter, ID: serverID(v.ID), Address: raft.ServerAddress(serverID(v.ID))})
	}
	if err := raft.BootstrapCluster(q.config(), store, store, q.snaps, transport, c); err != nil {
		return fmt.Errorf("quorum: begin the metadata log in %s: %w", q.o.Dir, err)
	}
	return nil
}

func (q *Quorum) config() *raft.Config {
	t := q.o.Timing
	c := raft.DefaultConfig()
	c.LocalID = serverID(q.o.Node)
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout, c.CommitTimeout = t.Heartbeat, t.Election, t.Lease, t.Commit
	c.MaxAppendEntries = 256
	// Snapshots are asked for by this package, by entries and by bytes.
	c.SnapshotThreshold, c.SnapshotInterval = math.MaxUint64, 24*time.Hour
	c.TrailingLogs = maxTrailing
	c.NotifyCh = q.notify
	c.Logger = newRaftLogger(q.o.Logger)
	c.NoLegacyTelemetry = true
	return c
}

func (q *Quorum) transport() (raft.Transport, error) {
	if q.o.Network != nil {
		return q.o.Network.transport(q.o), nil
	}
	if len(q.o.Voters) > 1 {
		return nil, errors.New("quorum: several voters need Options.Network")
	}
	_, t := raft.NewInmemTransport(raft.ServerAddress(serverID(q.o.Node)))
	return t, nil
}

// start runs Raft and what goes with it.
func (q *Quorum) start(transport raft.Transport) error {
	q.fsm = newFSM(q.o.Logger, q.fail)
	q.fsm.check = q.checkImage
	logs, err := raft.NewLogCache(128, q.store)
	if err != nil {
		return err
	}
	if q.raft, err = raft.NewRaft(q.config(), q.fsm, logs, q.store, q.snaps, transport); err != nil {
		return fmt.Errorf("quorum: start Raft in %s: %w", q.o.Dir, err)
	}
	if err := q.checkMember(); err != nil {
		return errors.Join(err, q.raft.Shutdown().Error())
	}
	for i := range q.lanes {
		q.lanes[i] = newLane(q, metadata.Lane(i))
		q.inFlight.Go(q.lanes[i].run)
	}
	q.inFlight.Go(q.leadership)
	q.inFlight.Go(q.snapshotLoop)
	q.work.Go(q.watchdog)
	return nil
}

// checkMember refuses a store in which this node is no member, and an image of another cluster.
func (q *Quorum) checkMember() error {
	f := q.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return err
	}
	servers := f.Configuration().Servers
	member := len(servers) == 0
	for _, s := range servers {
		member = member || s.ID == serverID(q.o.Node)
	}
	if !member {
		return fmt.Errorf("%w: %s in %s is that of node %s, not of node %d", ErrForeign, storeName, q.o.Dir, servers[0].ID, q.o.Node)
	}
	return q.checkImage(q.Image())
}

// checkImage compares what the image says of this node with what the data directory says.
func (q *Quorum) checkImage(img *metadata.Image) error {
	if img.ClusterID() == "" {
		return nil
	}
	return q.checkCluster(img.ClusterID(), img.Voters())
}

func (q *Quorum) checkCluster(id string, voters []metadata.Voter) error {
	if q.o.ClusterID != "" && q.o.ClusterID != id {
		return fmt.Errorf("%w: meta.properties in %s names cluster %s, the metadata log cluster %s", ErrForeign, q.o.Dir, q.o.ClusterID, id)
	}
	for _, v := range voters {
		if v.ID == q.o.Node && v.Directory != q.o.Directory {
			return fmt.Errorf("%w: cluster %s knows node %d with the directory %s, and this one is %s: its disk was wiped or replaced\n%s",
				ErrForeign, id, v.ID, v.Directory, q.o.Directory, q.advice())
		}
	}
	return nil
}

// leadership follows Raft's word on who leads: a new leader first applies all that is before it.
func (q *Quorum) leadership() {
	for {
		select {
		case <-q.notify:
		case <-q.ctx.Done():
			q.setReady(0)
			return
		}
		for len(q.notify) > 0 {
			<-q.notify
		}
		q.setReady(0)
		if q.raft.State() == raft.Leader {
			q.takeOver(q.raft.CurrentTerm())
		}
	}
}

func (q *Quorum) takeOver(term uint64) {
	if err := q.raft.Barrier(0).Error(); err != nil {
		q.o.Logger.Debug("lost the metadata log before it was read", "term", term, "error", err)
		return
	}
	if q.Image().ClusterID() == "" {
		if err := q.firstRecord(term); err != nil {
			q.o.Logger.Debug("first record of the cluster", "error", err)
			return
		}
	}
	if err := q.checkImage(q.Image()); err != nil {
		q.fail(err)
		return
	}
	if q.raft.State() == raft.Leader && q.raft.CurrentTerm() == term {
		q.setReady(term)
	}
}

// firstRecord names the cluster. It is safe to repeat: the second one is refused.
func (q *Quorum) firstRecord(term uint64) error {
	id := q.o.ClusterID
	if id == "" {
		id = q.o.NewClusterID()
	}
	rec := metadata.ClusterStarted{ClusterID: id}
	for _, v := range q.o.Voters {
		rec.Voters = append(rec.Voters, metadata.Voter(v))
	}
	payload := metadata.AppendCommand(nil, &metadata.Command{
		Session: metadata.Session{Broker: q.o.Node, Epoch: metadata.NoEpoch},
		Groups:  []metadata.Group{{Term: term, Records: []metadata.Record{rec}}},
	})
	return q.raft.Apply(payload, 0).Error()
}

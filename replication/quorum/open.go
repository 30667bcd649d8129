package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
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
	if err := checkOptions(&o); err != nil {
		return nil, err
	}
	o.Timing = o.Timing.withDefaults(o.Listener == nil)
	q := &Quorum{
		o: o, notify: make(chan bool, 16), news: news{changed: make(chan struct{}), observed: make(chan raft.Observation, 16)},
		gone: make(chan struct{}), refusing: refusing{refused: make(chan struct{})},
	}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	q.epoch.Store(metadata.NoEpoch)
	if err := q.open(); err != nil {
		q.cancel()
		if q.peers != nil {
			err = errors.Join(err, q.peers.port.close())
		}
		if q.store != nil {
			err = errors.Join(err, q.store.close())
		}
		return nil, err
	}
	return q, nil
}

// checkOptions wants what fits together.
func checkOptions(o *Options) error {
	seen := map[metadata.BrokerID]bool{}
	for _, v := range o.Voters {
		if seen[v.ID] {
			return fmt.Errorf("%w: node %d is listed twice", ErrVoters, v.ID)
		}
		seen[v.ID] = true
	}
	switch {
	case len(o.Voters) > maxVoters:
		return fmt.Errorf("%w: %d are listed, at most %d may be; let further nodes join with --join", ErrVoters, len(o.Voters), maxVoters)
	case o.Listener == nil && (len(o.Voters) > 0 || len(o.Join) > 0):
		return errors.New("quorum: other members need Options.Listener")
	case o.Listener != nil && len(o.Voters) == 0 && len(o.Join) == 0:
		return errors.New("quorum: Options.Listener needs Voters or Join")
	}
	if len(o.Voters) > 0 && !seen[o.Node] {
		for _, v := range o.Voters {
			o.Join = append(o.Join[:len(o.Join):len(o.Join)], v.Address)
		}
		o.Voters = nil
	}
	return nil
}

// self is this node's member.
func (q *Quorum) self() identity { return identity{q.o.Node, q.o.Directory} }

func (q *Quorum) open() error {
	if q.o.Listener != nil {
		q.peers = newPeers(q)
	}
	q.snaps = &snapshots{fs: q.o.FS, dir: q.o.Dir, log: q.o.Logger, fail: q.fail, contradicted: make(chan struct{}, 1)}
	best, err := q.snaps.open()
	if err != nil {
		return err
	}
	store := q.o.Store
	if store == nil {
		if store, err = q.openFile(best != nil || len(q.snaps.incomplete) > 0); err != nil {
			return err
		}
	}
	q.store = &failStop{store: store, fail: q.fail, keep: q.snaps.oldest, covers: q.snaps.covers, clock: time.Now(), idle: newIdle(q.o.Timing)}
	q.snaps.term = q.store.term
	if err := q.begin(store); err != nil {
		return err
	}
	if err := q.readable(best); err != nil {
		return err
	}
	if err := q.covered(best); err != nil {
		return err
	}
	switch err := q.checkStore(store, best); {
	case errors.Is(err, ErrForeign), errors.Is(err, metadata.ErrNewerVersion):
		return err
	case err != nil:
		return fmt.Errorf("%w: %s in %s: %w\n%s", ErrDamaged, storeName, q.o.Dir, err, q.advice())
	}
	if err := q.snaps.replaced(); err != nil {
		return err
	}
	return q.start()
}

// begin bootstraps the store of a node alone that has no state; stores in files come bootstrapped. A node among others begins
// or joins later, see decide; its store names it from the first start on.
func (q *Quorum) begin(store Store) error {
	has, err := raft.HasExistingState(store, store, q.snaps)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w\n%s", ErrDamaged, err, q.advice())
	case !has && q.o.ClusterID != "":
		return q.missing()
	case has || q.peers != nil:
		return q.claim(store, has)
	}
	return q.bootstrap(store)
}

// keyMember is under what the store names the member it belongs to.
const keyMember = "keeplog-member"

// claim checks whose the store is, and makes it this node's among others. A directory that a member brings in later is not
// among the first ones in the log, so the name in the store is what counts.
func (q *Quorum) claim(store Store, has bool) error {
	owner, err := store.Get([]byte(keyMember))
	if err != nil && err.Error() != errNotFound.Error() {
		return fmt.Errorf("%w: %w\n%s", ErrDamaged, err, q.advice())
	}
	if len(owner) > 0 {
		if string(owner) != q.self().String() {
			return fmt.Errorf("%w: %s in %s is that of member %s, and this node is %s", ErrForeign, storeName, q.o.Dir, owner, q.self())
		}
		q.named = true
	}
	if q.peers == nil {
		return nil
	}
	if err := q.interrupted(store, has); err != nil {
		return fmt.Errorf("quorum: %s in %s: %w", storeName, q.o.Dir, err)
	}
	if q.named || has {
		return nil
	}
	q.named = true
	return store.Set([]byte(keyMember), []byte(q.self().String()))
}

// interrupted takes back half a beginning of the cluster: Raft stores its term first, then the configuration.
func (q *Quorum) interrupted(store Store, has bool) error {
	last, err := store.LastIndex()
	if err != nil || !has || last > 0 || q.snaps.oldest() > 0 {
		return err
	}
	term, err := store.GetUint64([]byte(keyTerm))
	if err != nil || term != 1 {
		return err
	}
	if vote, err := store.GetUint64([]byte(keyVoteTerm)); err == nil && vote > 0 {
		return nil
	}
	return store.SetUint64([]byte(keyTerm), 0)
}

func (q *Quorum) missing() error {
	return fmt.Errorf("%w: %s belongs to cluster %s, and there is no %s in it\n%s", ErrMissing, q.o.Dir, q.o.ClusterID, storeName, q.advice())
}

// advice says what to do about a store that cannot be used.
func (q *Quorum) advice() string {
	if q.peers != nil {
		return replaceAdvice(q.o.Node, q.o.Directory, metadata.Endpoint{}) + " --data-dir DIR"
	}
	return "try: put the whole data directory back from a backup. The records of the partitions are still in their files: keeplog dump " + q.o.Dir
}

// bootstrap begins the cluster of a node alone.
func (q *Quorum) bootstrap(store Store) error {
	_, transport := raft.NewInmemTransport(q.self().address())
	if err := raft.BootstrapCluster(q.config(), store, store, q.snaps, transport, configuration([]identity{q.self()})); err != nil {
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
	c.Logger = newMemberLogger(q.o.Logger, &q.unheard)
	c.NoLegacyTelemetry = true
	return c
}

func (q *Quorum) transport() raft.Transport {
	if q.peers != nil {
		term, err := q.store.GetUint64([]byte("CurrentTerm")) // where the library keeps it
		t := newTransport(newStream(q.peers.port), &q.o, transport{
			seen: q.peers.seen, idle: q.store.idle, away: newAway(q.wanted), recall: newRecall(err == nil && term > 0, q.o.Timing), done: q.ctx.Done(),
		})
		q.peers.wire.Store(t.NetworkTransport)
		return t
	}
	_, t := raft.NewInmemTransport(q.self().address())
	return t
}

// start runs Raft and what goes with it.
func (q *Quorum) start() error {
	q.fsm = newFSM(q.o.Logger, q.fail)
	q.fsm.check = q.checkImage
	if err := q.startRaft(); err != nil {
		return err
	}
	if err := q.checkMember(); err != nil {
		return errors.Join(err, q.raft().Shutdown().Error())
	}
	for i := range q.lanes {
		q.lanes[i] = newLane(q, metadata.Lane(i))
		q.inFlight.Go(q.lanes[i].run)
	}
	q.inFlight.Go(q.leadership)
	q.inFlight.Go(q.snapshotLoop)
	q.work.Go(q.watchLeader)
	q.work.Go(q.watchdog)
	if q.peers != nil {
		q.peers.port.start()
		q.work.Go(q.peers.greet)
		q.work.Go(q.peers.tend)
		q.work.Go(q.reopen)
	}
	return nil
}

// startRaft opens the library's member on the store and the snapshots.
func (q *Quorum) startRaft() error {
	logs, err := raft.NewLogCache(128, q.store)
	if err != nil {
		return err
	}
	r, err := raft.NewRaft(q.config(), q.fsm, logs, q.store, q.snaps, q.transport())
	if err != nil {
		return fmt.Errorf("quorum: start Raft in %s: %w", q.o.Dir, err)
	}
	r.RegisterObserver(q.observer())
	q.live.Store(r)
	return nil
}

// checkMember refuses a store that does not name its member and in which this node is none, for a node alone one with other
// members, and an image of another cluster.
func (q *Quorum) checkMember() error {
	servers := q.servers()
	if len(servers) > 0 && !q.named {
		own := slices.ContainsFunc(servers, func(s raft.Server) bool { return s.ID == serverID(q.o.Node) })
		if !own {
			return fmt.Errorf("%w: %s in %s is that of node %s, not of node %d", ErrForeign, storeName, q.o.Dir, servers[0].ID, q.o.Node)
		}
	}
	if err := q.checkAlone(servers); err != nil {
		return err
	}
	return q.checkImage(q.Image())
}

// checkImage compares what the image says of this node with what the data directory says.
func (q *Quorum) checkImage(img *metadata.Image) error {
	if img.ClusterID() == "" {
		return nil
	}
	for _, m := range img.RemovedMembers() {
		if m.ID == q.o.Node && m.Directory == q.o.Directory {
			q.refuse(removedError(q.self(), img.ClusterID()))
		}
	}
	var known []metadata.Voter
	if m, ok := img.Member(q.o.Node); ok {
		known = []metadata.Voter{{ID: m.ID, Directory: m.Directory}}
	}
	return q.checkCluster(img.ClusterID(), known)
}

func (q *Quorum) checkCluster(id string, voters []metadata.Voter) error {
	if q.o.ClusterID != "" && q.o.ClusterID != id {
		return fmt.Errorf("%w: meta.properties in %s names cluster %s, the metadata log cluster %s", ErrForeign, q.o.Dir, q.o.ClusterID, id)
	}
	for _, v := range voters {
		if !q.named && v.ID == q.o.Node && v.Directory != q.o.Directory {
			return wipedError(q.self(), v.Directory, id, metadata.Endpoint{})
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
		if q.raft().State() == raft.Leader {
			q.takeOver(q.raft().CurrentTerm())
		}
	}
}

func (q *Quorum) takeOver(term uint64) {
	if err := q.raft().Barrier(0).Error(); err != nil {
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
	if q.raft().State() == raft.Leader && q.raft().CurrentTerm() == term {
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
	for _, server := range q.servers() {
		who, err := parseAddress(server.Address)
		if err != nil {
			return err
		}
		if who.id == q.o.Node {
			who = q.self()
		}
		rec.Voters = append(rec.Voters, metadata.Voter{ID: who.id, Directory: who.directory})
	}
	payload := metadata.AppendCommand(nil, &metadata.Command{
		Session: metadata.Session{Broker: q.o.Node, Epoch: metadata.NoEpoch},
		Groups:  []metadata.Group{{Term: term, Records: []metadata.Record{rec}}},
	})
	return q.raft().Apply(payload, 0).Error()
}

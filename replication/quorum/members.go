package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/keeplog/keeplog/metadata"
)

// maxVoters bounds the members that vote.
const maxVoters = 5

var (
	// ErrRemoved: this node was a member and was removed.
	ErrRemoved = errors.New("quorum: removed from the cluster")
	// ErrVoters: the nodes list different voters, or too many.
	ErrVoters = errors.New("quorum: controller.quorum.voters differ")
	// ErrMajority: the change would leave fewer voters alive than a majority.
	ErrMajority = errors.New("quorum: not enough voters would be alive")
	// ErrUnknownMember: there is no member of that id.
	ErrUnknownMember = errors.New("quorum: no such member")
	// ErrBehind: the member has not got the whole log yet.
	ErrBehind = errors.New("quorum: the member is behind")
	// ErrAlone: this node keeps the metadata log alone and has no listener for other members.
	ErrAlone = errors.New("quorum: this node is alone")
)

// Member is a node that joins.
type Member struct {
	ID        metadata.BrokerID
	Directory metadata.DirectoryID
	// Controller is where it listens for other members.
	Controller metadata.Endpoint
}

// MemberStatus is a member as this node knows it. What only a leader knows is unknown elsewhere: -1, and 0 for Match.
type MemberStatus struct {
	ID         metadata.BrokerID
	Directory  metadata.DirectoryID
	Controller metadata.Endpoint
	Voter      bool
	// Match is the last entry that the member is known to have.
	Match uint64
	// Contact is how long ago a message was sent that the member answered, CaughtUp how long ago it had all that was committed.
	Contact, CaughtUp time.Duration
}

// Status is the state of the quorum.
type Status struct {
	Term uint64
	// Leader is -1 when nobody is known to lead.
	Leader metadata.BrokerID
	// Last is the last entry of this node's log, Commit the last one that it knows to be committed, Applied the index of its image.
	Last, Commit, Applied uint64
	// Members are in the order of their ids.
	Members []MemberStatus
}

// Status is the state of the quorum as this node knows it.
func (q *Quorum) Status() Status {
	img := q.Image()
	s := Status{Term: q.Term(), Leader: -1, Last: q.raft().LastIndex(), Commit: q.raft().CommitIndex(), Applied: img.Index()}
	if id, ok := q.Leader(); ok {
		s.Leader = id
	}
	for _, server := range q.servers() {
		who, err := parseAddress(server.Address)
		if err != nil {
			continue
		}
		m := MemberStatus{ID: who.id, Directory: who.directory, Voter: server.Suffrage == raft.Voter, Contact: -1, CaughtUp: -1}
		if known, ok := img.Member(who.id); ok && !known.Removed {
			m.Directory, m.Controller = known.Directory, known.Controller
		}
		switch {
		case who.id == q.o.Node:
			m.Match, m.Contact, m.CaughtUp = s.Last, 0, 0
			if m.Controller.Port == 0 {
				m.Controller = q.o.Controller
			}
		case q.peers != nil && s.Leader == q.o.Node:
			q.peers.reachOf(&m, s.Term)
		}
		s.Members = append(s.Members, m)
	}
	slices.SortFunc(s.Members, func(a, b MemberStatus) int { return int(a.ID) - int(b.ID) })
	return s
}

func (s *peers) reachOf(m *MemberStatus, term uint64) {
	r := s.seen.get(m.ID)
	if r.term != term {
		return
	}
	m.Match = r.match
	if !r.contact.IsZero() {
		m.Contact = time.Since(r.contact)
	}
	if !r.caughtUp.IsZero() {
		m.CaughtUp = time.Since(r.caughtUp)
	}
}

// servers are the members in Raft's newest configuration.
func (q *Quorum) servers() []raft.Server {
	f := q.raft().GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	return f.Configuration().Servers
}

// alive says that the member answered lately.
func (q *Quorum) alive(m MemberStatus) bool {
	return m.Contact >= 0 && m.Contact < 3*q.o.Timing.Election
}

// current says that the member had all that was committed a moment ago.
func (q *Quorum) current(m MemberStatus) bool {
	return q.alive(m) && m.CaughtUp >= 0 && m.CaughtUp < q.o.Timing.Election
}

// AddMember makes a node a member, without a vote; with voter it waits until the node has the whole log and gives it one. A
// member of that id and directory is there already: then its endpoint is taken. The error wraps ErrForeign when another
// directory has the id, ErrRemoved when the directory was removed before. Only the leader can: NotLeader.
func (q *Quorum) AddMember(ctx context.Context, m Member, voter bool) error {
	err := q.change(ctx, func(term uint64) error {
		who := identity{m.ID, m.Directory}
		known, ok := q.Image().Member(m.ID)
		switch {
		case ok && known.Removed && known.Directory == m.Directory:
			return removedError(who, q.Image().ClusterID())
		case ok && !known.Removed && known.Directory != m.Directory:
			return wipedError(who, known.Directory, q.Image().ClusterID(), q.o.Internal)
		}
		next := metadata.Member{ID: m.ID, Directory: m.Directory, Controller: m.Controller, Voter: ok && !known.Removed && known.Voter}
		if m.Controller.Port == 0 && !known.Removed {
			next.Controller = known.Controller
		}
		return q.record(ctx, term, next)
	})
	if err != nil || !voter {
		return err
	}
	for err = q.Promote(ctx, m.ID); errors.Is(err, ErrBehind); {
		if waited := q.pause(ctx, q.changes()); waited != nil {
			return fmt.Errorf("%w: %w", err, waited)
		}
		if next := q.Promote(ctx, m.ID); ctx.Err() == nil || next == nil {
			err = next
		}
	}
	return err
}

// Promote gives a member a vote. It must have the whole log: ErrBehind.
func (q *Quorum) Promote(ctx context.Context, id metadata.BrokerID) error {
	return q.change(ctx, func(term uint64) error {
		s := q.Status()
		at := slices.IndexFunc(s.Members, func(m MemberStatus) bool { return m.ID == id })
		m, ok := q.Image().Member(id)
		switch {
		case at < 0 || !ok || m.Removed:
			return fmt.Errorf("%w: node %d", ErrUnknownMember, id)
		case s.Members[at].Voter:
			return nil
		case voters(s.Members) >= maxVoters:
			return fmt.Errorf("%w: there are %d voters, and no more than %d may be", ErrVoters, maxVoters, maxVoters)
		case !q.current(s.Members[at]):
			return fmt.Errorf("%w: node %d has entries up to %d of %d", ErrBehind, id, s.Members[at].Match, s.Commit)
		}
		m.Voter = true
		return q.record(ctx, term, m)
	})
}

// RemoveMember takes a member out; its directory never comes back. It refuses when no majority of the voters that stay is
// alive (ErrMajority). When the member leads, it gives the leadership up first and returns NotLeader: ask the new leader.
func (q *Quorum) RemoveMember(ctx context.Context, id metadata.BrokerID) error {
	return q.change(ctx, func(term uint64) error {
		s := q.Status()
		m, ok := q.Image().Member(id)
		if !ok || m.Removed {
			return fmt.Errorf("%w: node %d", ErrUnknownMember, id)
		}
		left, up := 0, 0
		for _, other := range s.Members {
			if other.ID == id || !other.Voter {
				continue
			}
			left++
			if q.alive(other) {
				up++
			}
		}
		if up <= left/2 {
			return fmt.Errorf("%w: without node %d, %d of %d voters are alive", ErrMajority, id, up, left)
		}
		if id == q.o.Node {
			if err := wait(ctx, q.raft().LeadershipTransfer(), func(err error) error { return fmt.Errorf("quorum: give up the leadership: %w", err) }); err != nil {
				return err
			}
			return q.notLeader()
		}
		m.Removed, m.Voter = true, false
		return q.record(ctx, term, m)
	})
}

func voters(all []MemberStatus) (n int) {
	for _, m := range all {
		if m.Voter {
			n++
		}
	}
	return n
}

// change runs a change of the members: one at a time, on a leader that is ready.
func (q *Quorum) change(ctx context.Context, f func(term uint64) error) error {
	if q.peers == nil {
		return fmt.Errorf("%w: it has no listener for other members", ErrAlone)
	}
	select {
	case q.peers.changing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("quorum: another change of the members is under way: %w", context.Cause(ctx))
	case <-q.ctx.Done():
		return ErrClosed
	}
	defer func() { <-q.peers.changing }()
	term, err := q.Lead()
	if err != nil {
		return err
	}
	return f(term)
}

// record writes how a member shall be, then makes Raft's configuration follow. What a crash interrupts is gone on with by the
// next leader.
func (q *Quorum) record(ctx context.Context, term uint64, m metadata.Member) error {
	if old, ok := q.Image().Member(m.ID); !ok || old != m {
		_, results, err := q.ProposeAt(ctx, term, []metadata.Record{metadata.MemberChanged(m)})
		if err != nil {
			return err
		}
		if err := results[0].Err(); err != nil {
			return err
		}
	}
	return q.configure(ctx)
}

// configure makes Raft's configuration that of the image, one step after the other.
func (q *Quorum) configure(ctx context.Context) error {
	for {
		s, ok := nextStep(q.Image(), q.servers())
		if !ok {
			return nil
		}
		var f raft.IndexFuture
		id, address := serverID(s.who.id), s.who.address()
		switch s.do {
		case stepRemove:
			f = q.raft().RemoveServer(id, 0, enqueueTimeout)
		case stepVoter:
			f = q.raft().AddVoter(id, address, 0, enqueueTimeout)
		case stepNonvoter:
			f = q.raft().AddNonvoter(id, address, 0, enqueueTimeout)
		}
		q.o.Logger.Info("the members change", "node", s.who.id, "to", s.do.String())
		if err := wait(ctx, f, func(err error) error { return fmt.Errorf("quorum: node %d to %s: %w", s.who.id, s.do, err) }); err != nil {
			return err
		}
	}
}

// step is one change of Raft's configuration.
type step struct {
	do  stepKind
	who identity
}

type stepKind byte

const (
	stepNonvoter stepKind = iota
	stepVoter
	stepRemove
)

func (k stepKind) String() string { return [...]string{"member", "voter", "removed"}[k] }

// nextStep is the change of Raft's configuration that comes next on the way to what the image says. It never takes a vote away.
func nextStep(img *metadata.Image, servers []raft.Server) (step, bool) {
	for _, m := range img.Members() {
		who := identity{m.ID, m.Directory}
		at := slices.IndexFunc(servers, func(s raft.Server) bool { return s.ID == serverID(m.ID) })
		switch {
		case at < 0:
			return step{stepNonvoter, who}, true
		case stale(servers[at], who):
			return step{stepRemove, who}, true
		case servers[at].Suffrage != raft.Voter && m.Voter:
			return step{stepVoter, who}, true
		case servers[at].Address != who.address() && servers[at].Suffrage == raft.Voter:
			return step{stepVoter, who}, true
		case servers[at].Address != who.address():
			return step{stepNonvoter, who}, true
		}
	}
	for _, m := range img.RemovedMembers() {
		if slices.ContainsFunc(servers, func(s raft.Server) bool { return s.ID == serverID(m.ID) }) {
			return step{stepRemove, identity{m.ID, m.Directory}}, true
		}
	}
	return step{}, false
}

// stale says that a server is an earlier member of the same id, which was removed.
func stale(s raft.Server, who identity) bool {
	now, err := parseAddress(s.Address)
	return err == nil && now.directory != metadata.DirectoryID{} && now.directory != who.directory
}

// promotion is the member that gets a vote by itself: the number of voters grows towards the largest odd one, at most 5, that
// those who vote and those who have the whole log make up.
func promotion(all []MemberStatus, current func(MemberStatus) bool) (metadata.BrokerID, bool) {
	have, next, found := voters(all), metadata.BrokerID(0), 0
	for _, m := range all {
		if !m.Voter && current(m) {
			if found == 0 {
				next = m.ID
			}
			found++
		}
	}
	most := min(maxVoters, have+found)
	if most%2 == 0 {
		most--
	}
	return next, found > 0 && have < most
}

// tend is the leader's care for the members: where they listen, what an earlier leader left undone, votes for those that have
// the whole log.
func (s *peers) tend() {
	q := s.q
	t := time.NewTicker(max(q.o.Timing.Election/2, 10*time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-q.ctx.Done():
			return
		}
		term, err := q.Lead()
		if err != nil {
			s.seenImage = nil
			continue
		}
		ctx, cancel := context.WithTimeout(q.ctx, enqueueTimeout)
		if err := s.care(ctx, term); err != nil && q.ctx.Err() == nil {
			q.o.Logger.Info("care for the members", "error", err)
		}
		cancel()
	}
}

func (s *peers) care(ctx context.Context, term uint64) error {
	q := s.q
	img := q.Image()
	s.watchInstalls(img)
	for _, m := range img.Members() {
		if e := s.controllerOf(m); e.Port != 0 && e != m.Controller {
			if err := q.change(ctx, func(uint64) error { return q.move(ctx, term, m.ID, e) }); err != nil {
				return err
			}
		}
	}
	if _, ok := nextStep(img, q.servers()); ok {
		if err := q.change(ctx, func(uint64) error { return q.configure(ctx) }); err != nil {
			return err
		}
	}
	if id, ok := promotion(q.Status().Members, q.current); ok {
		if err := q.Promote(ctx, id); err != nil && !errors.Is(err, ErrBehind) {
			return err
		}
	}
	return s.checkpoint(ctx, term)
}

// lead notes when this node became ready to lead.
func (s *peers) lead() {
	s.sinceMu.Lock()
	defer s.sinceMu.Unlock()
	s.since = time.Now()
}

// watchInstalls tells of members that are sent one snapshot after the other and accept nothing behind it.
func (s *peers) watchInstalls(img *metadata.Image) {
	for _, m := range img.Members() {
		if n := s.seen.get(m.ID).installs; n >= 3 && n != s.alarmed[m.ID] {
			s.alarmed[m.ID] = n
			s.q.o.Logger.Error("a member takes snapshots and follows none", "node", m.ID, "snapshots", n)
		}
	}
}

// move records where a member listens.
func (q *Quorum) move(ctx context.Context, term uint64, id metadata.BrokerID, e metadata.Endpoint) error {
	m, ok := q.Image().Member(id)
	if !ok || m.Removed {
		return nil
	}
	m.Controller = e
	return q.record(ctx, term, m)
}

// controllerOf is where a member says that it listens, if it has said so since this node leads: every member says hello to a
// new leader.
func (s *peers) controllerOf(m metadata.Member) metadata.Endpoint {
	if m.ID == s.q.o.Node {
		return s.q.o.Controller
	}
	s.sinceMu.Lock()
	since := s.since
	s.sinceMu.Unlock()
	last, ok := s.book.last(m.ID)
	if !ok || last.hello.who.directory != m.Directory || last.when.Before(since) {
		return metadata.Endpoint{}
	}
	return last.hello.controller
}

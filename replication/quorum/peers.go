package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/keeplog/keeplog/metadata"
)

// peers is what a member has that is not alone: the others, and what it says to them.
type peers struct {
	q    *Quorum
	port *port
	book *book
	seen *progress
	// wire is Raft's transport.
	wire atomic.Pointer[raft.NetworkTransport]
	// changing is held by who changes the members: one change at a time.
	changing chan struct{}

	// said is the last thing that the node waited for, so that it is logged once; told the leader that has had this node's
	// hello; silent are the addresses to join at that did not answer, with why. All are the greeter's own.
	said   string
	told   metadata.BrokerID
	silent []string
	// checked is the image up to which the members have compared their histories, lastCheck when; they are those of tend.
	checked   uint64
	lastCheck time.Time
	seenImage *metadata.Image
	// alarmed is at how many snapshots without progress an alarm was given.
	alarmed map[metadata.BrokerID]int
	// since is when this node became ready to lead.
	sinceMu sync.Mutex
	since   time.Time
}

func newPeers(q *Quorum) *peers {
	b := newBook(q.o.Voters)
	s := &peers{q: q, port: newPort(&q.o, b), book: b, seen: &progress{}, changing: make(chan struct{}, 1), told: -1, alarmed: map[metadata.BrokerID]int{}}
	s.port.cluster = func() string {
		if id := q.Image().ClusterID(); id != "" {
			return id
		}
		return q.o.ClusterID
	}
	s.port.image = q.Image
	s.port.answer = s.answer
	s.port.acceptRaw = func() bool { return q.raft().LastIndex() > 0 }
	return s
}

// self is what this node says of itself.
func (s *peers) self() *hello {
	q := s.q
	img := q.Image()
	servers := q.servers()
	h := &hello{
		who: identity{q.o.Node, q.o.Directory}, cluster: s.port.cluster(), term: q.Term(), leader: -1, applied: img.Index(),
		empty: q.raft().LastIndex() == 0 && q.Term() == 0, begun: len(servers) > 0, listed: listOf(q.o.Voters),
		internal: q.o.Internal, controller: q.o.Controller, members: members(img, servers),
	}
	if id, ok := q.Leader(); ok {
		h.leader = id
	}
	_, err := q.Lead()
	h.leading = err == nil
	return h
}

// members are those of the image, and those of Raft's configuration that the image does not know yet.
func members(img *metadata.Image, servers []raft.Server) []metadata.Member {
	all := append(img.Members(), img.RemovedMembers()...)
	for _, server := range servers {
		who, err := parseAddress(server.Address)
		if err == nil && !slices.ContainsFunc(all, func(m metadata.Member) bool { return m.ID == who.id }) {
			all = append(all, metadata.Member{ID: who.id, Directory: who.directory, Voter: server.Suffrage == raft.Voter})
		}
	}
	return all
}

// answer answers a hello or a join.
func (s *peers) answer(ctx context.Context, kind call, h *hello) ([]byte, error) {
	s.learn(h)
	if kind == callJoin {
		return s.admit(ctx, h).append(nil), nil
	}
	var verified error
	if h.verify {
		verified = s.q.VerifyLeader(ctx)
	}
	own := s.self()
	own.leading = own.leading && verified == nil
	own.about = h.about
	own.link, own.linked = s.q.fsm.chain.at(h.about)
	return own.append(nil), nil
}

// learn believes what a node says of itself, unless its id is that of another member.
func (s *peers) learn(h *hello) {
	img := s.q.Image()
	if h.who.id == s.q.o.Node {
		return
	}
	if m, ok := img.Member(h.who.id); ok && m.Directory != h.who.directory && !m.Removed {
		return
	}
	s.book.learn(h, img.Index())
}

// ask says hello to a member. With verify the leader makes sure that it leads before it answers.
func (s *peers) ask(ctx context.Context, who identity, verify bool) (*hello, error) {
	request := s.self()
	request.verify = verify
	return s.send(ctx, who, request)
}

func (s *peers) send(ctx context.Context, who identity, request *hello) (*hello, error) {
	c, err := s.port.dial(ctx, callHello, who)
	if err != nil {
		return nil, err
	}
	b, err := s.port.ask(ctx, c, request)
	if err != nil {
		return nil, err
	}
	h, err := readHello(b)
	if err == nil && who.id >= 0 && h.who.id != who.id {
		err = fmt.Errorf("%w: %s was meant, it is %s", errTarget, who, h.who)
	}
	if err != nil {
		return nil, err
	}
	s.learn(h)
	return h, nil
}

// askAt says hello to whoever is at an address.
func (s *peers) askAt(ctx context.Context, address string) (*hello, error) {
	c, err := s.port.dialAt(ctx, attempt{address, callHello, anyone, 1})
	if err != nil {
		return nil, err
	}
	b, err := s.port.ask(ctx, c, s.self())
	if err != nil {
		return nil, err
	}
	h, err := readHello(b)
	if err == nil {
		s.learn(h)
	}
	return h, err
}

// askAll says hello to all that this node knows of, and returns the answers.
func (s *peers) askAll(ctx context.Context) []*hello {
	q := s.q
	ctx, cancel := context.WithTimeout(ctx, max(q.o.Timing.Election, time.Second))
	defer cancel()
	var asks []func() (*hello, error)
	var ids []metadata.BrokerID
	add := func(who identity) {
		if who.id != q.o.Node && !slices.Contains(ids, who.id) {
			ids = append(ids, who.id)
			asks = append(asks, func() (*hello, error) { return s.ask(ctx, who, false) })
		}
	}
	for _, m := range q.Image().Members() {
		add(identity{m.ID, m.Directory})
	}
	for _, v := range q.o.Voters {
		add(identity{id: v.ID})
	}
	for _, a := range q.o.Join {
		asks = append(asks, func() (*hello, error) { return s.askAt(ctx, a) })
	}
	answers, silent := make([]*hello, len(asks)), make([]string, len(asks))
	var wg sync.WaitGroup
	for i, f := range asks {
		wg.Go(func() {
			h, err := f()
			if err == nil && h.who.id != q.o.Node {
				answers[i] = h
			} else if errors.Is(err, ErrForeign) {
				q.o.Logger.Warn("a listed node belongs to another cluster", "error", err)
			}
			if join := i - (len(asks) - len(q.o.Join)); err != nil && join >= 0 {
				silent[i] = fmt.Sprintf("%s: %v", q.o.Join[join], err)
			}
		})
	}
	wg.Wait()
	s.silent = slices.DeleteFunc(silent, func(why string) bool { return why == "" })
	return slices.DeleteFunc(answers, func(h *hello) bool { return h == nil })
}

// greet says hello: to all until this node is a member and knows who leads, then to each new leader.
func (s *peers) greet() {
	q := s.q
	for {
		changed := q.changes()
		pause := s.round(q.ctx)
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-changed:
		case <-q.ctx.Done():
			t.Stop()
			return
		}
		t.Stop()
	}
}

// settled is how long a member that has said its hello waits before it looks again.
const settled = 10 * time.Second

// round is one step of greet; it returns how long to wait for the next.
func (s *peers) round(ctx context.Context) time.Duration {
	q := s.q
	own := s.self()
	member := own.begun && slices.ContainsFunc(own.members, own.isMember)
	if member && own.leader >= 0 {
		return s.tell(ctx, own.leader)
	}
	s.told = -1
	answers := s.askAll(ctx)
	if ctx.Err() != nil {
		return settled
	}
	soon := max(q.o.Timing.Election/5, 10*time.Millisecond)
	for _, a := range answers {
		if slices.ContainsFunc(a.members, func(m metadata.Member) bool {
			return m.Removed && m.ID == own.who.id && m.Directory == own.who.directory
		}) {
			q.refuse(removedError(own.who, a.cluster))
			return settled
		}
	}
	if member {
		return q.o.Timing.Election
	}
	s.act(ctx, decide(s.self(), answers))
	return soon
}

// tell says hello to a leader once.
func (s *peers) tell(ctx context.Context, leader metadata.BrokerID) time.Duration {
	s.said = ""
	if leader == s.q.o.Node || leader == s.told {
		return settled
	}
	ctx, cancel := context.WithTimeout(ctx, max(s.q.o.Timing.Election, time.Second))
	defer cancel()
	if _, err := s.ask(ctx, identity{id: leader}, false); err != nil {
		return max(s.q.o.Timing.Election/2, 10*time.Millisecond)
	}
	s.told = leader
	s.q.announce()
	return settled
}

func (s *peers) act(ctx context.Context, c course) {
	q := s.q
	switch c.do {
	case actRefuse:
		q.refuse(c.refuse)
	case actBegin:
		q.o.Logger.Info("this node begins the cluster", "members", fmt.Sprint(c.begin))
		if err := q.raft().BootstrapCluster(configuration(c.begin)).Error(); err != nil && !errors.Is(err, raft.ErrCantBootstrap) {
			q.o.Logger.Error("the cluster could not be begun", "error", err)
		}
	case actJoin:
		s.join(ctx, c)
	case actWait:
		said := c.wait
		for _, why := range s.silent {
			address, _, _ := strings.Cut(why, ": ")
			said += " " + address
		}
		if said != s.said {
			s.said = said
			if len(s.silent) == 0 {
				q.o.Logger.Info("waiting for " + c.wait)
			} else {
				q.o.Logger.Warn("waiting for "+c.wait, "no_answer", s.silent)
			}
		}
	}
}

func configuration(members []identity) (c raft.Configuration) {
	for _, m := range members {
		c.Servers = append(c.Servers, raft.Server{Suffrage: raft.Voter, ID: serverID(m.id), Address: m.address()})
	}
	return c
}

// join asks the leader to take this node in.
func (s *peers) join(ctx context.Context, c course) {
	q := s.q
	to, where := c.via, endpointAddress(c.join)
	ctx, cancel := context.WithTimeout(ctx, 2*handshake)
	defer cancel()
	for range 3 {
		a, err := s.askToJoin(ctx, to, where)
		switch {
		case err != nil:
			q.o.Logger.Info("could not ask to join", "node", to.id, "error", err)
			return
		case a.status == joined:
			if s.said != "joined" {
				s.said = "joined"
				q.o.Logger.Info("this node joins the cluster", "leader", to.id)
			}
			return
		case a.status == joinRefused:
			q.refuse(fmt.Errorf("%w%s", ErrForeign, strings.TrimPrefix(a.text, ErrForeign.Error())))
			return
		case a.status == joinRemoved:
			q.refuse(fmt.Errorf("%w%s", ErrRemoved, strings.TrimPrefix(a.text, ErrRemoved.Error())))
			return
		case a.status != joinElsewhere || a.leader < 0:
			q.o.Logger.Info("cannot join yet", "node", to.id, "reason", a.text)
			return
		}
		to, where = identity{id: a.leader}, endpointAddress(a.controller)
	}
}

func (s *peers) askToJoin(ctx context.Context, to identity, where string) (a joinAnswer, err error) {
	c, err := s.port.dial(ctx, callJoin, to)
	if errors.Is(err, errNoMember) && where != "" {
		c, err = s.port.dialAt(ctx, attempt{where, callJoin, to, 1})
	}
	if err != nil {
		return a, err
	}
	b, err := s.port.ask(ctx, c, s.self())
	if err != nil {
		return a, err
	}
	return readJoinAnswer(b)
}

// admit answers a join: the leader makes the node a member without a vote.
func (s *peers) admit(ctx context.Context, h *hello) joinAnswer {
	q := s.q
	if _, err := q.Lead(); err != nil {
		a := joinAnswer{status: joinElsewhere, leader: -1, text: err.Error()}
		if id, ok := q.Leader(); ok && id != q.o.Node {
			a.leader = id
			if m, ok := q.Image().Member(id); ok {
				a.controller = m.Controller
			}
			if last, ok := s.book.last(id); ok {
				a.controller = last.hello.controller
			}
		}
		return a
	}
	err := q.AddMember(ctx, Member{h.who.id, h.who.directory, h.controller}, false)
	switch {
	case err == nil:
		return joinAnswer{status: joined, leader: q.o.Node}
	case errors.Is(err, ErrRemoved):
		return joinAnswer{status: joinRemoved, leader: q.o.Node, text: err.Error()}
	case errors.Is(err, ErrForeign):
		return joinAnswer{status: joinRefused, leader: q.o.Node, text: err.Error()}
	}
	return joinAnswer{status: joinLater, leader: -1, text: err.Error()}
}

package group

import (
	"sync"
	"time"

	"github.com/keeplog/keeplog/metadata"
)

// shard is one part of all groups. The mutex guards everything below it, the groups and their cores included.
//
//	             image: it is ours          loaded           a heartbeat sent after that is acknowledged
//	not ours ───────────────────► loading ─────────► loaded ─────────────────────────────────────────────► serves
//	   ▲                             ▲                  │
//	   │ image: not ours             └──────────────────┘ nobody knows what became of a proposal
//	   └── a proposal was refused ◄── (from anywhere)
type shard struct {
	c      *Coordinator
	number int32

	mu sync.Mutex
	// epoch is the one in which the shard is ours, 0 while it is not; lost is the newest one that is known to be over.
	epoch, lost int64
	// since is when this broker learned that the shard is its own.
	since  time.Time
	loaded bool
	// life counts takings, droppings and loadings: what began in an earlier one does not count.
	life   uint64
	groups map[string]*group
	// writing is the number of proposals that are under way, of all lives; idle is closed and nil when there are none.
	writing int
	idle    chan struct{}
	expiry  alarm
}

// turn is a hold of a shard's mutex, and what is to be done after it.
type turn struct {
	*shard
	now time.Time
	out []func()
}

func (s *shard) begin() *turn {
	s.mu.Lock()
	return &turn{shard: s, now: s.c.o.Clock.Now()}
}

func (t *turn) end() {
	t.mu.Unlock()
	for _, f := range t.out {
		f()
	}
}

// open finds a group on this broker, and holds its shard if there is no error.
func (c *Coordinator) open(name string) (*turn, *group, error) {
	t, g, err := c.openAny(name)
	if err == nil && g.broken {
		t.mu.Unlock()
		return nil, nil, ErrNotAvailable
	}
	return t, g, err
}

// openAny is open for what can be done with a group that cannot be read, too.
func (c *Coordinator) openAny(name string) (*turn, *group, error) {
	t := c.shards[metadata.ShardOf(name)].begin()
	if err := t.serving(); err != nil {
		t.mu.Unlock()
		return nil, nil, err
	}
	return t, t.group(name), nil
}

// serving says whether this broker may answer for the shard. A coordinator that was put aside is not asked by anybody else to
// stop, so it stops by itself when the controller has not heard of it for the time of its lease; and one that comes begins when
// it was heard of after it came.
func (t *turn) serving() error {
	if t.epoch == 0 {
		return ErrNotCoordinator
	}
	sent, held := t.c.o.Leased()
	switch {
	case !held:
		return ErrNotCoordinator
	case !t.loaded || sent.Before(t.since):
		return ErrLoading
	}
	return nil
}

// follow does what the image says of the shard's owner.
func (s *shard) follow(is metadata.Shard) {
	t := s.begin()
	defer t.end()
	ours := is.Owner == s.c.o.Node && is.Epoch > s.lost && s.c.ctx.Err() == nil
	switch {
	case ours && is.Epoch == s.epoch:
	case ours:
		t.drop(ErrNotCoordinator)
		s.epoch, s.since = is.Epoch, t.now
		t.load(false)
	case s.epoch != 0 && is.Epoch > s.epoch:
		t.drop(ErrNotCoordinator)
	}
}

// drop gives the shard up: everybody who waits is told.
func (t *turn) drop(err error) {
	t.lost = max(t.lost, t.epoch)
	t.epoch = 0
	t.forget(err)
}

// forget drops the groups. What is under way does not count any more.
func (t *turn) forget(err error) {
	t.loaded = false
	t.life++
	for _, g := range t.groups {
		t.forgetGroup(g, err)
	}
	t.groups = nil
	t.c.timers.cancel(&t.expiry)
}

func (t *turn) forgetGroup(g *group, err error) {
	t.c.members.Add(-int64(g.size))
	g.size = 0
	for _, w := range g.waiting {
		t.fail(w, err)
	}
	g.waiting = nil
	for _, b := range g.batches {
		for _, f := range b.replies {
			t.out = append(t.out, func() { f(err) })
		}
		b.replies = nil
		t.c.pending.Add(-int64(b.bytes))
		b.bytes = 0
	}
	t.c.timers.cancel(&g.alarm)
}

// load reads the shard's groups from the tables, on a goroutine. With settle, it waits until it is known what became of every
// proposal before: one may still be on its way into the tables.
func (t *turn) load(settle bool) {
	s, life := t.shard, t.life
	s.c.running.Add(1)
	go func() {
		defer s.c.running.Done()
		if settle && !s.settle(life) {
			return
		}
		groups := s.read()
		t := s.begin()
		defer t.end()
		if s.life != life {
			for _, g := range groups {
				s.c.members.Add(-int64(g.size))
			}
			return
		}
		s.groups, s.loaded = groups, true
		for _, g := range groups {
			t.schedule(g)
		}
		s.c.timers.set(&s.expiry, t.now.Add(s.c.o.ExpiryInterval()))
	}()
}

// settlePause is the time between two tries to learn what became of a proposal.
const settlePause = 100 * time.Millisecond

// settle waits until no proposal of the shard is under way and all have come to the tables. False: the shard is another's by now.
func (s *shard) settle(life uint64) bool {
	for {
		s.mu.Lock()
		idle := s.idle
		current := s.life == life
		s.mu.Unlock()
		switch {
		case !current:
			return false
		case idle != nil:
			select {
			case <-idle:
			case <-s.c.ctx.Done():
				return false
			}
			continue
		}
		if index, err := s.c.proposed(); err == nil && s.c.o.Log.WaitApplied(s.c.ctx, index) == nil {
			return true
		}
		if !s.c.pause(settlePause) {
			return false
		}
	}
}

// proposed waits for everything that this broker has proposed before, and gives an index that is behind it.
func (c *Coordinator) proposed() (uint64, error) {
	type answer struct {
		index uint64
		err   error
	}
	known := make(chan answer, 1)
	c.o.Log.ProposeOffsets(nil, func(index uint64, _ []metadata.Result, err error) { known <- answer{index, err} })
	select {
	case a := <-known:
		return a.index, a.err
	case <-c.ctx.Done():
		return 0, c.ctx.Err()
	}
}

// pause waits; false: the coordinator is closed.
func (c *Coordinator) pause(d time.Duration) bool {
	over := make(chan struct{})
	stop := c.o.Clock.After(d, func() { close(over) })
	defer stop()
	select {
	case <-over:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// read makes the groups of the tables that have entries. Others have offsets only, and are made when somebody asks.
func (s *shard) read() map[string]*group {
	groups := map[string]*group{}
	env := Env{Now: s.c.o.Clock.Now(), Topics: topics{s.c.img.Load()}, NewID: s.c.o.NewID, Known: true}
	for _, name := range s.c.o.Tables.Groups(s.number) {
		entries := s.c.o.Tables.Entries(name)
		if len(entries) == 0 {
			continue
		}
		g := s.newGroup(name)
		env.Settings = s.c.o.Settings(name)
		core, err := Load(name, entries, env)
		if err != nil {
			s.c.o.Logger.Error("a group can not be read, and is not served", "group", name, "shard", s.number, "error", err)
			g.broken = true
			core = newClassic(name)
		}
		g.core, g.size = core, core.Size()
		s.c.members.Add(int64(g.size))
		groups[name] = g
	}
	return groups
}

// nudge wakes the groups whose topics or settings have changed.
func (s *shard) nudge(topics bool, settings func(group string) bool) {
	t := s.begin()
	defer t.end()
	for name, g := range t.groups {
		changed := settings(name)
		if g.core.Type() != Consumer || !topics && !changed {
			continue
		}
		g.topics, g.settings = g.topics || topics, g.settings || changed
		t.c.timers.set(&g.alarm, t.now)
	}
}

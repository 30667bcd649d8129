package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/keeplog/keeplog/server/api"
)

// Handler knows the requests. *api.API is one.
type Handler interface {
	// Plan says how a request is treated, before its body is read. ok is false for a key or version that is not served there.
	Plan(c *api.Conn, key, version int16) (p api.Plan, ok bool)
	// Serve starts a call on the connection's goroutine; it returns when the ordered part is done. The call is completed exactly once.
	Serve(*api.Call)
	// Drain answers, from now on, at once what would wait for more data.
	Drain()
}

// Listen is one address to listen on.
type Listen struct {
	Name string
	Addr string // host:port
	// Internal says that only brokers connect there: what they alone may ask is served.
	Internal bool
}

// SendMode says how ranges of files get to the socket.
type SendMode int

const (
	// SendAuto takes sendfile on plain TCP from Options.SendfileMin bytes on, and copies below.
	SendAuto SendMode = iota
	// SendCopy always reads into a pooled buffer and writes that.
	SendCopy
)

// Options are the settings of a Server. Zero values take the defaults in brackets.
type Options struct {
	Handler Handler
	Logger  *slog.Logger
	// Listen opens a listener [net.Listen on tcp].
	Listen func(addr string) (net.Listener, error)
	// MaxFrame bounds Produce frames in bytes [socket.request.max.bytes, 100 MiB]; MaxOther the rest [8 MiB].
	MaxFrame, MaxOther int
	// Budget bounds the bytes of all frames in flight [256 MiB], at least one frame of MaxFrame. A quarter of it, if it is larger than that
	// frame by so much, is for small frames: large ones that arrive slowly do not stop everybody.
	Budget int64
	// KeepFree bounds the bytes of free buffers [64 MiB].
	KeepFree int64
	// MaxConns is the most connections [no limit]; above it the next one waits until another ends. MaxPerIP is the most of one address (an
	// IP, without port) [no limit]; one more is closed at once. Both are asked for each new connection, so that they may change.
	MaxConns func() int
	MaxPerIP func(ip string) int
	// Idle is the time after which a connection without requests is closed [10 min]; negative: never.
	Idle time.Duration
	// WriteTimeout and ReadTimeout end a connection whose answer, or half-read frame, makes no progress [30 s].
	WriteTimeout, ReadTimeout time.Duration
	// MaxPipelined and MaxPipelinedBytes bound what one connection may have outstanding [64 requests, 32 MiB beyond the first].
	MaxPipelined      int
	MaxPipelinedBytes int64
	Send              SendMode
	// SendfileMin is the size in bytes from which a span goes by sendfile [64 KiB].
	SendfileMin int
}

func (o *Options) fill() error {
	if o.Handler == nil {
		return errors.New("server: no handler")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Listen == nil {
		o.Listen = func(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }
	}
	o.MaxFrame = orInt(o.MaxFrame, 100<<20)
	o.MaxOther = min(orInt(o.MaxOther, 8<<20), o.MaxFrame)
	_, largest := sizeClass(o.MaxFrame)
	o.Budget = max(orInt(o.Budget, 256<<20), int64(largest))
	o.KeepFree = orInt(o.KeepFree, 64<<20)
	o.Idle = orInt(o.Idle, 10*time.Minute)
	o.WriteTimeout = orInt(o.WriteTimeout, 30*time.Second)
	o.ReadTimeout = orInt(o.ReadTimeout, 30*time.Second)
	o.MaxPipelined = orInt(o.MaxPipelined, 64)
	o.MaxPipelinedBytes = orInt(o.MaxPipelinedBytes, 32<<20)
	o.SendfileMin = orInt(o.SendfileMin, sendfileMin)
	return nil
}

func orInt[T int | int64 | time.Duration](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}

// ErrClosed is returned by a Server that was shut down.
var ErrClosed = errors.New("server: closed")

// Server accepts connections and serves them. Make one with New, then Start listeners, then Shutdown.
type Server struct {
	o      Options
	log    *slog.Logger
	pool   *Pool
	budget *semaphore.Weighted
	large  *semaphore.Weighted // the part of budget that frames of smallFrame and more may take
	copies *semaphore.Weighted // a quarter on top of budget, for copied spans: clients that do not read hold up no requests
	start  time.Time

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	draining atomic.Bool

	mu        sync.Mutex
	room      sync.Cond // a connection has left, a limit may have changed, or the server closes
	listeners []*listener
	conns     map[*conn]struct{}
	perIP     map[string]int
	closed    bool
	accepted  atomic.Int64
}

// New makes a server that does not listen yet.
func New(o Options) (*Server, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	s := &Server{
		o: o, log: o.Logger, pool: NewPool(o.KeepFree), budget: semaphore.NewWeighted(o.Budget), copies: semaphore.NewWeighted(o.Budget / 4), start: time.Now(),
		conns: map[*conn]struct{}{}, perIP: map[string]int{},
	}
	_, largest := sizeClass(o.MaxFrame)
	s.large = semaphore.NewWeighted(max(o.Budget-o.Budget/4, int64(largest)))
	s.room.L = &s.mu
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Go(s.sweep)
	return s, nil
}

// Start opens a listener and accepts from it. It returns the address it listens on, which names the port when the asked one was 0.
func (s *Server) Start(l Listen) (net.Addr, error) {
	nl, err := s.o.Listen(l.Addr)
	if err != nil {
		return nil, fmt.Errorf("listener %s: %w", l.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		nl.Close()
		return nil, ErrClosed
	}
	ln := &listener{srv: s, name: l.Name, internal: l.Internal, net: nl}
	s.listeners = append(s.listeners, ln)
	s.wg.Go(ln.accept)
	return nl.Addr(), nil
}

// Stats are figures for metrics.
type Stats struct {
	Connections int
	// Accepted counts connections since the start.
	Accepted int64
	// FrameBytes is the memory of frames in flight, in bytes.
	FrameBytes int64
}

// Stats returns the current figures.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{Connections: len(s.conns), Accepted: s.accepted.Load(), FrameBytes: s.pool.InUse()}
}

// Shutdown stops accepting, lets outstanding requests finish until ctx ends, and closes every connection. The error is that of ctx when
// requests were cut off.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.room.Broadcast()
	for _, l := range s.listeners {
		l.net.Close()
	}
	s.draining.Store(true)
	for c := range s.conns {
		c.stopReading()
	}
	s.mu.Unlock()
	s.o.Handler.Drain()

	done := make(chan struct{})
	go func() { s.waitConns(); close(done) }()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.cancel()
	s.closeConns()
	<-done
	s.wg.Wait()
	return err
}

func (s *Server) closeConns() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.fail(ErrClosed)
	}
}

// waitConns returns when the last connection has left.
func (s *Server) waitConns() {
	for {
		s.mu.Lock()
		var one *conn
		for c := range s.conns {
			one = c
			break
		}
		s.mu.Unlock()
		if one == nil {
			return
		}
		<-one.gone
	}
}

// clock is the monotonic time since the server was made.
func (s *Server) clock() time.Duration { return time.Since(s.start) }

// sweep closes what is idle or stuck, looks after clients that wait, and trims the pool.
func (s *Server) sweep() {
	tick := time.NewTicker(sweepEvery(&s.o))
	defer tick.Stop()
	trimmed := s.clock()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		now := s.clock()
		s.mu.Lock()
		s.room.Broadcast()
		for c := range s.conns {
			if err := c.stuck(now); err != nil {
				s.log.Debug("connection closed", "client", c.info.Remote, "listener", c.info.Listener, "cause", err)
				c.fail(err)
			}
			c.lookForClient(now)
		}
		s.mu.Unlock()
		if now-trimmed > 10*time.Second {
			trimmed = now
			s.pool.Trim()
		}
	}
}

// sweepEvery is a fraction of the shortest limit, at most a second.
func sweepEvery(o *Options) time.Duration {
	d := min(o.WriteTimeout, o.ReadTimeout)
	if o.Idle > 0 {
		d = min(d, o.Idle)
	}
	return max(min(d/4, time.Second), time.Millisecond)
}

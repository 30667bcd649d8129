package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/keeplog/keeplog/server/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a handler whose answers are written by the test. Key 0 overlaps, the others do not.
type fake struct {
	serve func(*api.Call)
	drain func()
}

func (f *fake) Plan(_ *api.Conn, key, version int16) (api.Plan, bool) {
	return api.Plan{Overlap: key == 0, Large: key == 0}, key >= 0 && key < 100 && version == 0
}
func (f *fake) Serve(c *api.Call) { f.serve(c) }

func (f *fake) Drain() {
	if f.drain != nil {
		f.drain()
	}
}

// answer is a frame that carries b.
func answer(b []byte) api.Answer {
	return api.Answer{Head: append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)}
}

// echo answers with the request's body, which lies in the frame's buffer: it must stay until the answer is written.
func echo(c *api.Call) { c.To.Complete(echoed(c)) }

func echoed(c *api.Call) api.Answer {
	b := body(c)
	return api.Answer{Head: binary.BigEndian.AppendUint32(nil, uint32(len(b))), Parts: []api.Part{{Bytes: b}}}
}

// later makes the answer of a call when it is about to be written.
type later struct {
	c     *api.Call
	built atomic.Int32
}

func (l *later) Build() api.Answer {
	l.built.Add(1)
	return echoed(l.c)
}

// An answer that is put off is made once, also when it comes from another goroutine.
func TestAnswerMadeLater(t *testing.T) {
	calls := make(chan *api.Call, 10)
	_, addr := start(t, Options{Handler: &fake{serve: func(c *api.Call) { calls <- c }}})
	c := dial(t, addr)
	for i := range 5 {
		c.send(frame(int16(i%2), fmt.Sprint(i)))
		l := &later{c: <-calls}
		l.c.To.Complete(api.Answer{Later: l})
		c.want(fmt.Sprint(i))
		if n := l.built.Load(); n != 1 {
			t.Fatalf("built %d times", n)
		}
	}
}

// Many connections send calls of both kinds at once; they are completed by other goroutines after a moment, some connections break.
func TestManyAtOnce(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	var pending []*api.Call
	var work sync.WaitGroup
	stop := make(chan struct{})
	s, addr := start(t, Options{MaxPipelined: 8, Handler: &fake{serve: func(c *api.Call) {
		if len(body(c))%3 == 0 {
			echo(c)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		pending = append(pending, c)
	}}})
	for i := range 3 {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		work.Go(func() {
			for {
				mu.Lock()
				var c *api.Call
				if n := len(pending); n > 0 {
					k := rnd.IntN(n)
					c = pending[k]
					pending = append(pending[:k], pending[k+1:]...)
				}
				mu.Unlock()
				switch {
				case c == nil:
					select {
					case <-stop:
						return
					case <-time.After(100 * time.Microsecond):
					}
				case rnd.IntN(2) == 0:
					c.To.Complete(api.Answer{Later: &later{c: c}})
				default:
					echo(c)
				}
			}
		})
	}
	var clients sync.WaitGroup
	for k := range 8 {
		n, breaks := 200, k%4 == 3
		keys, sizes := make([]int16, n), make([]int, n)
		for i := range n {
			keys[i], sizes[i] = int16(min(rnd.IntN(5), 1)^1), rnd.IntN(20000)
		}
		c := dial(t, addr)
		clients.Go(func() {
			for i := range n {
				if _, err := c.Write(frame(keys[i], strings.Repeat(string(rune('a'+i%26)), sizes[i]))); err != nil {
					return
				}
			}
		})
		clients.Go(func() {
			for i := range n {
				got, err := c.receive()
				if breaks && i == n/2 {
					c.Close()
					return
				}
				if err != nil || got != strings.Repeat(string(rune('a'+i%26)), sizes[i]) {
					t.Errorf("client %d, answer %d: %d bytes, %v", k, i, len(got), err)
					return
				}
			}
		})
	}
	clients.Wait()
	eventually(t, "the broken ones have left", func() bool { return s.Stats().Connections == 6 })
	close(stop)
	work.Wait()
}

func body(c *api.Call) []byte { return c.Frame[10:] }

func frame(key int16, body string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(10+len(body)))
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = append(b, 0, 0, 0, 0, 0, 1, 0xff, 0xff)
	return append(b, body...)
}

func start(t testing.TB, o Options) (*Server, string) {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	_, s.pool.poison = t.(*testing.T)
	addr, err := s.Start(Listen{Name: "PLAINTEXT", Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s.Shutdown(ctx)
		if n := s.pool.InUse(); n != 0 {
			t.Errorf("%d bytes of buffers were not given back", n)
		}
		if !s.budget.TryAcquire(s.o.Budget) {
			t.Error("a part of the budget was not given back")
		}
	})
	return s, addr.String()
}

type client struct {
	t testing.TB
	net.Conn
}

func dial(t testing.TB, addr string) *client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(10 * time.Second))
	return &client{t, c}
}

func (c *client) send(b []byte) {
	c.t.Helper()
	if _, err := c.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) receive() (string, error) {
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return "", err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(c, b)
	return string(b), err
}

func (c *client) want(s string) {
	c.t.Helper()
	got, err := c.receive()
	if err != nil || got != s {
		c.t.Fatalf("answer %.60q, %v; want %.60q", got, err, s)
	}
}

// wantClosed wants the end of the connection, not a timeout.
func (c *client) wantClosed() {
	c.t.Helper()
	got, err := c.receive()
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("answer %q, %v; want the connection closed", got, err)
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	limit, tick := time.After(5*time.Second), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("not within 5 s: " + what)
		}
	}
}

func TestFramesOfEverySize(t *testing.T) {
	_, addr := start(t, Options{Handler: &fake{serve: echo}, MaxFrame: 20 << 20})
	c := dial(t, addr)
	for _, n := range []int{0, 1, 4086, 4087, 5000, 64 << 10, 1<<20 - 10, 1 << 20, 3 << 20, 17 << 20} {
		s := strings.Repeat("x", n) + fmt.Sprint(n)
		c.send(frame(0, s))
		c.want(s)
	}
}

func TestBadFramesCloseTheConnection(t *testing.T) {
	_, addr := start(t, Options{Handler: &fake{serve: echo}, MaxFrame: 1 << 20, MaxOther: 1 << 16})
	for name, b := range map[string][]byte{
		"size 0":          {0, 0, 0, 0},
		"size -1":         {0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4},
		"size 3":          {0, 0, 0, 3, 0, 3, 0},
		"size 2^31-1":     {0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0},
		"too large":       frame(0, strings.Repeat("x", 1<<20)),
		"too large, kind": frame(1, strings.Repeat("x", 1<<16)),
		"unknown key":     frame(100, "x"),
		"unknown version": {0, 0, 0, 10, 0, 0, 0, 1, 0, 0, 0, 1, 0xff, 0xff},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, addr)
			c.Write(b)
			c.wantClosed()
		})
	}
}

// Overlapping calls are started one after the other, complete in any order, and are answered in order.
func TestPipelinedAnswersInOrder(t *testing.T) {
	started := make(chan *api.Call, 100)
	_, addr := start(t, Options{Handler: &fake{serve: func(c *api.Call) { started <- c }}})
	c := dial(t, addr)
	const n = 20
	for i := range n {
		c.send(frame(0, fmt.Sprint(i)))
	}
	var calls []*api.Call
	for i := range n {
		call := <-started
		if got := string(body(call)); got != fmt.Sprint(i) {
			t.Fatalf("call %d carries %q", i, got)
		}
		calls = append(calls, call)
	}
	for i := n - 1; i >= 0; i-- {
		echo(calls[i])
	}
	for i := range n {
		c.want(fmt.Sprint(i))
	}
}

// A call of another kind starts when all earlier ones are answered.
func TestOtherCallsWaitForTheirTurn(t *testing.T) {
	produce := make(chan *api.Call, 10)
	var other atomic.Int32
	_, addr := start(t, Options{Handler: &fake{serve: func(c *api.Call) {
		if c.Key == 0 {
			produce <- c
			return
		}
		other.Add(1)
		echo(c)
	}}})
	c := dial(t, addr)
	c.send(append(append(frame(0, "a"), frame(0, "b")...), frame(1, "offsets")...))
	first, second := <-produce, <-produce
	echo(second)
	if other.Load() != 0 {
		t.Fatal("a lookup started before the produces in front of it were answered")
	}
	echo(first)
	c.want("a")
	c.want("b")
	c.want("offsets")
	// and the next produce starts only after the lookup
	c.send(append(frame(1, "x"), frame(0, "y")...))
	c.want("x")
	echo(<-produce)
	c.want("y")
}

func TestCallWithoutAnswer(t *testing.T) {
	_, addr := start(t, Options{Handler: &fake{serve: func(c *api.Call) {
		switch string(body(c)) {
		case "quiet":
			c.To.Complete(api.Answer{None: true})
		case "bad":
			c.To.Complete(api.Answer{Close: errors.New("not written")})
		default:
			echo(c)
		}
	}}})
	c := dial(t, addr)
	for range 3 {
		c.send(frame(0, "quiet"))
	}
	c.send(frame(0, "loud"))
	c.want("loud")
	c.send(append(frame(0, "before"), frame(0, "bad")...))
	c.want("before")
	c.wantClosed()
}

func TestPipelineIsBounded(t *testing.T) {
	var n atomic.Int32
	calls := make(chan *api.Call, 100)
	_, addr := start(t, Options{MaxPipelined: 3, Handler: &fake{serve: func(c *api.Call) { n.Add(1); calls <- c }}})
	c := dial(t, addr)
	for range 10 {
		c.send(frame(0, "x"))
	}
	eventually(t, "3 started", func() bool { return n.Load() == 3 })
	for i := range 10 {
		if started := n.Load(); started > int32(3+i) {
			t.Fatalf("%d calls outstanding", started-int32(i))
		}
		echo(<-calls)
		c.want("x")
	}
}

// When the budget is used up, connections stop reading and go on when there is room again.
func TestBudget(t *testing.T) {
	calls := make(chan *api.Call, 100)
	s, addr := start(t, Options{MaxFrame: 1 << 20, Budget: 8 << 20 / 3, Handler: &fake{serve: func(c *api.Call) { calls <- c }}})
	big := strings.Repeat("x", 900<<10)
	var clients []*client
	for range 4 {
		c := dial(t, addr)
		clients = append(clients, c)
		go c.Write(frame(0, big))
	}
	first, second := <-calls, <-calls
	if got := s.Stats().FrameBytes; got != 2<<20 {
		t.Fatalf("%d bytes of frames in flight", got)
	}
	select {
	case <-calls:
		t.Fatal("a third frame was read above the budget")
	default:
	}
	echo(first)
	echo(second)
	echo(<-calls)
	echo(<-calls)
	for _, c := range clients {
		c.want(big)
	}
}

func TestMaxPerIP(t *testing.T) {
	s, addr := start(t, Options{MaxPerIP: func(string) int { return 2 }, Handler: &fake{serve: echo}})
	a, b := dial(t, addr), dial(t, addr)
	for _, c := range []*client{a, b} {
		c.send(frame(1, "x"))
		c.want("x")
	}
	third := dial(t, addr)
	third.wantClosed()
	a.Close()
	eventually(t, "the first has left", func() bool { return s.Stats().Connections == 1 })
	d := dial(t, addr)
	d.send(frame(1, "x"))
	d.want("x")
}

func TestMaxConnections(t *testing.T) {
	_, addr := start(t, Options{MaxConns: func() int { return 1 }, Handler: &fake{serve: echo}})
	a := dial(t, addr)
	a.send(frame(1, "x"))
	a.want("x")
	b := dial(t, addr) // waits in the backlog
	b.send(frame(1, "y"))
	a.Close()
	b.want("y")
}

// A limit that is raised lets those in who wait; a second listener shares it.
func TestMaxConnectionsChanges(t *testing.T) {
	var limit atomic.Int32
	limit.Store(1)
	s, addr := start(t, Options{MaxConns: func() int { return int(limit.Load()) }, ReadTimeout: 20 * time.Millisecond, Handler: &fake{serve: func(c *api.Call) {
		c.To.Complete(answer([]byte(c.Conn.Listener)))
	}}})
	other, err := s.Start(Listen{Name: "OTHER", Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	b := dial(t, other.String())
	b.send(frame(1, "x"))
	b.want("OTHER")
	a := dial(t, addr)
	a.send(frame(1, "x"))
	limit.Store(2)
	a.want("PLAINTEXT")
}

func TestIdleConnectionIsClosed(t *testing.T) {
	_, addr := start(t, Options{Idle: 50 * time.Millisecond, Handler: &fake{serve: echo}})
	c := dial(t, addr)
	c.send(frame(1, "x"))
	c.want("x")
	c.wantClosed()
}

// A connection with a call outstanding is not idle.
func TestWaitingConnectionIsNotIdle(t *testing.T) {
	calls := make(chan *api.Call, 1)
	_, addr := start(t, Options{Idle: 40 * time.Millisecond, Handler: &fake{serve: func(c *api.Call) { calls <- c }}})
	c := dial(t, addr)
	c.send(frame(0, "x"))
	call := <-calls
	<-time.After(120 * time.Millisecond) // three times the limit
	echo(call)
	c.want("x")
}

func TestHalfAFrame(t *testing.T) {
	s, addr := start(t, Options{ReadTimeout: 50 * time.Millisecond, Handler: &fake{serve: echo}})
	c := dial(t, addr)
	c.send(frame(0, strings.Repeat("x", 10000))[:5000])
	c.wantClosed()
	eventually(t, "memory is free", func() bool { return s.pool.InUse() == 0 })
}

func TestSlowReader(t *testing.T) {
	big := make([]byte, 8<<20)
	s, addr := start(t, Options{WriteTimeout: 100 * time.Millisecond, Handler: &fake{serve: func(c *api.Call) { c.To.Complete(answer(big)) }}})
	c := dial(t, addr)
	for range 4 {
		c.send(frame(0, "x"))
	}
	eventually(t, "the connection is gone", func() bool { return s.Stats().Connections == 0 })
	if n := s.pool.InUse(); n != 0 {
		t.Fatalf("%d bytes still held", n)
	}
}

// Answers of a connection that broke are released, not written.
func TestBrokenConnection(t *testing.T) {
	calls := make(chan *api.Call, 10)
	s, addr := start(t, Options{Handler: &fake{serve: func(c *api.Call) { calls <- c }}})
	c := dial(t, addr)
	c.send(append(frame(0, "a"), frame(0, "b")...))
	a, b := <-calls, <-calls
	c.Conn.(*net.TCPConn).SetLinger(0)
	c.Close()
	sp := &memSpan{data: []byte("span")}
	x := answer([]byte("b"))
	x.Parts = []api.Part{{Span: sp}}
	b.To.Complete(x)
	echo(a)
	eventually(t, "the connection is gone", func() bool { return s.Stats().Connections == 0 })
	if n := sp.released.Load(); n != 1 {
		t.Fatalf("span released %d times", n)
	}
}

// A connection that holds a span for too long is ended while it writes to a client that does not read: the span is given back.
func TestAbandonedWhileWriting(t *testing.T) {
	for _, mode := range []SendMode{SendAuto, SendCopy} {
		f, _ := tempFile(t, 0)
		if err := f.Truncate(256 << 20); err != nil { // more than the sockets take
			t.Fatal(err)
		}
		sp := &fileSpan{f: f, n: 256 << 20}
		conns := make(chan *api.Conn, 1)
		s, addr := start(t, Options{Send: mode, Handler: &fake{serve: func(c *api.Call) {
			conns <- c.Conn
			a, _ := spanAnswer(sp)
			c.To.Complete(a)
		}}})
		c := dial(t, addr)
		c.send(frame(1, "x"))
		if _, err := io.ReadFull(c, make([]byte, 6)); err != nil { // it has begun
			t.Fatal(err)
		}
		if n := sp.released.Load(); n != 0 {
			t.Fatalf("released %d times before the end", n)
		}
		(<-conns).Abandon()
		eventually(t, "the connection is gone", func() bool { return s.Stats().Connections == 0 })
		if n := sp.released.Load(); n != 1 {
			t.Fatalf("mode %v: span released %d times", mode, n)
		}
	}
}

// A connection whose span waits behind the answer to another call is ended too.
func TestAbandonedWhileWaiting(t *testing.T) {
	calls := make(chan *api.Call, 2)
	s, addr := start(t, Options{Handler: &fake{serve: func(c *api.Call) { calls <- c }}})
	c := dial(t, addr)
	c.send(append(frame(0, "a"), frame(0, "b")...))
	a, b := <-calls, <-calls
	sp := &memSpan{data: []byte("span")}
	x := answer([]byte("b"))
	x.Parts = []api.Part{{Span: sp}}
	b.To.Complete(x)
	b.Conn.Abandon()
	c.wantClosed()
	<-a.Ctx.Done()
	echo(a)
	eventually(t, "the connection is gone", func() bool { return s.Stats().Connections == 0 })
	if n := sp.released.Load(); n != 1 {
		t.Fatalf("span released %d times", n)
	}
}

// Large frames, of which nothing arrives, leave room for small ones.
func TestSmallFramesHaveRoom(t *testing.T) {
	_, addr := start(t, Options{MaxFrame: 4 << 20, Budget: 8 << 20, Handler: &fake{serve: echo}})
	for range 5 {
		c := dial(t, addr)
		c.send(frame(0, strings.Repeat("x", 2<<20))[:100])
	}
	c := dial(t, addr)
	for range 20 {
		c.send(frame(1, "small"))
		c.want("small")
	}
}

// What was asked before the client closed its side is still answered.
func TestHalfClosedConnection(t *testing.T) {
	calls := make(chan *api.Call, 10)
	_, addr := start(t, Options{Handler: &fake{serve: func(c *api.Call) { calls <- c }}})
	c := dial(t, addr)
	c.send(frame(0, "last"))
	c.Conn.(*net.TCPConn).CloseWrite()
	echo(<-calls)
	c.want("last")
	c.wantClosed()
}

func TestShutdownFinishesWhatIsOutstanding(t *testing.T) {
	calls := make(chan *api.Call, 10)
	s, addr := start(t, Options{Handler: &fake{serve: func(c *api.Call) { calls <- c }}})
	idle, busy := dial(t, addr), dial(t, addr)
	busy.send(frame(0, "a"))
	call := <-calls
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(context.Background()) }()
	idle.wantClosed()
	if _, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
		t.Error("a new connection was accepted")
	}
	echo(call)
	busy.want("a")
	busy.wantClosed()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestShutdownHasATimeLimit(t *testing.T) {
	calls := make(chan *api.Call, 10)
	s, addr := start(t, Options{Handler: &fake{serve: func(c *api.Call) { calls <- c }}})
	c := dial(t, addr)
	c.send(frame(0, "a"))
	call := <-calls
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(ctx) }()
	c.wantClosed()
	echo(call) // late
	if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

package server

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keeplog/keeplog/server/api"
)

// memSpan is a span without a file.
type memSpan struct {
	data     []byte
	released atomic.Int32
}

func (m *memSpan) Len() int { return len(m.data) }
func (m *memSpan) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(m.data).ReadAt(p, off)
}
func (m *memSpan) File() (uintptr, int64, bool) { return 0, 0, false }
func (m *memSpan) Release()                     { m.released.Add(1) }

// fileSpan is a range of a file.
type fileSpan struct {
	f        *os.File
	pos      int64
	n        int
	released atomic.Int32
}

func (s *fileSpan) Len() int                                { return s.n }
func (s *fileSpan) ReadAt(p []byte, off int64) (int, error) { return s.f.ReadAt(p, s.pos+off) }
func (s *fileSpan) File() (uintptr, int64, bool)            { return s.f.Fd(), s.pos, true }
func (s *fileSpan) Release()                                { s.released.Add(1) }

// tempFile has n bytes that differ by position.
func tempFile(t testing.TB, n int) (*os.File, []byte) {
	t.Helper()
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i * 7 >> (i % 5))
	}
	f, err := os.CreateTemp(t.TempDir(), "span")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	return f, data
}

// spanAnswer is a frame of the spans with a word before and after each.
func spanAnswer(spans ...api.Span) (api.Answer, int) {
	n := 0
	var parts []api.Part
	for _, s := range spans {
		parts = append(parts, api.Part{Span: s}, api.Part{Bytes: []byte("--")})
		n += s.Len() + 2
	}
	return api.Answer{Head: append(binary.BigEndian.AppendUint32(nil, uint32(n+2)), "--"...), Parts: parts}, n + 2
}

func TestSpans(t *testing.T) {
	f, data := tempFile(t, 6<<20)
	for _, mode := range []SendMode{SendAuto, SendCopy} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			var mu sync.Mutex
			var all []*fileSpan
			_, addr := start(t, Options{Send: mode, Handler: &fake{serve: func(c *api.Call) {
				small := &fileSpan{f: f, pos: 10, n: 100}
				large := &fileSpan{f: f, pos: 1000, n: 5 << 20}
				tail := &fileSpan{f: f, pos: 6<<20 - 70000, n: 70000}
				mu.Lock()
				all = append(all, small, large, tail)
				mu.Unlock()
				a, _ := spanAnswer(small, large, tail)
				c.To.Complete(a)
			}}})
			want := "--" + string(data[10:110]) + "--" + string(data[1000:1000+5<<20]) + "--" + string(data[6<<20-70000:]) + "--"
			var wg sync.WaitGroup
			for range 3 { // several connections share the descriptor
				c := dial(t, addr)
				wg.Go(func() {
					for range 3 {
						c.Write(frame(1, "x"))
						if got, err := c.receive(); err != nil || got != want {
							t.Errorf("wrong bytes: %d of %d, %v", len(got), len(want), err)
							return
						}
					}
				})
			}
			wg.Wait()
			mu.Lock()
			defer mu.Unlock()
			for _, s := range all {
				eventually(t, "released", func() bool { return s.released.Load() > 0 })
				if n := s.released.Load(); n != 1 {
					t.Errorf("span released %d times", n)
				}
			}
		})
	}
}

// An answer of more pieces than the kernel takes in one call, with a range for sendfile behind them.
func TestManySmallSpans(t *testing.T) {
	f, data := tempFile(t, 1<<20)
	for _, mode := range []SendMode{SendAuto, SendCopy} {
		const n = 3000
		spans, want := make([]api.Span, 0, n+1), []byte("--")
		for i := range n {
			spans = append(spans, &fileSpan{f: f, pos: int64(i), n: 10})
			want = append(append(want, data[i:i+10]...), "--"...)
		}
		spans = append(spans, &fileSpan{f: f, pos: 0, n: 100 << 10})
		want = append(append(want, data[:100<<10]...), "--"...)
		srv, addr := start(t, Options{Send: mode, Handler: &fake{serve: func(c *api.Call) {
			a, _ := spanAnswer(spans...)
			c.To.Complete(a)
		}}})
		c := dial(t, addr)
		c.send(frame(1, "x"))
		if got, err := c.receive(); err != nil || got != string(want) {
			t.Fatalf("mode %d: wrong bytes: %d of %d, %v", mode, len(got), len(want), err)
		}
		eventually(t, "buffers given back", func() bool { return srv.Stats().FrameBytes == 0 })
	}
}

// A file that became shorter than its span ends the connection: the size of the frame is already on its way.
func TestSpanBehindTheEndOfItsFile(t *testing.T) {
	f, _ := tempFile(t, 1000)
	for _, mode := range []SendMode{SendAuto, SendCopy} {
		sp := &fileSpan{f: f, pos: 0, n: 100_000}
		_, addr := start(t, Options{Send: mode, Handler: &fake{serve: func(c *api.Call) {
			a, _ := spanAnswer(sp)
			c.To.Complete(a)
		}}})
		c := dial(t, addr)
		c.send(frame(1, "x"))
		c.wantClosed()
		eventually(t, "released", func() bool { return sp.released.Load() == 1 })
	}
}

func TestPoolKeepsAndTrims(t *testing.T) {
	p := NewPool(1 << 20)
	a, b := p.Get(5000), p.Get(300<<10)
	if len(a.Bytes()) != 16<<10 || len(b.Bytes()) != 1<<20 || p.InUse() != 1<<20+16<<10 {
		t.Fatalf("buffers of %d and %d, %d in use", len(a.Bytes()), len(b.Bytes()), p.InUse())
	}
	a.Retain()
	a.Release()
	a.Release()
	b.Release() // above what is kept
	if p.kept != 16<<10 || p.InUse() != 0 {
		t.Fatalf("%d kept, %d in use", p.kept, p.InUse())
	}
	if c := p.Get(16 << 10); c != a {
		t.Fatal("the buffer was not used again")
	} else {
		c.Release()
	}
	p.Trim() // it was needed
	p.Trim() // it was not
	if p.kept != 0 {
		t.Fatalf("%d kept after it was not needed", p.kept)
	}
	defer func() {
		if recover() == nil {
			t.Fatal("releasing twice did not panic")
		}
	}()
	a.Release()
}

// A client that reads slowly and steadily, and one that writes so, are served.
func TestSteadySlowClients(t *testing.T) {
	big := make([]byte, 10<<20)
	_, addr := start(t, Options{WriteTimeout: 60 * time.Millisecond, ReadTimeout: 150 * time.Millisecond, Handler: &fake{serve: func(c *api.Call) {
		if len(c.Frame) > 10<<10 {
			echo(c)
			return
		}
		c.To.Complete(answer(big))
	}}})
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()

	c := dial(t, addr)
	c.Conn.(*net.TCPConn).SetReadBuffer(32 << 10)
	c.send(frame(0, "x"))
	b := make([]byte, 64<<10)
	for n := 0; n < len(big); <-pace.C {
		m, err := c.Conn.Read(b)
		if n += m; err != nil {
			t.Fatalf("the reader was cut off after %d bytes: %v", n, err)
		}
	}

	word := strings.Repeat("y", 400<<10)
	w := dial(t, addr)
	for f := frame(0, word); len(f) > 0; <-pace.C {
		n := min(len(f), 5000)
		w.send(f[:n])
		f = f[n:]
	}
	w.want(word)
}

// Clients that ask for many small spans and do not read hold one buffer each, all together no more than their part, and no request of others waits for that.
func TestSpansOfClientsThatDoNotRead(t *testing.T) {
	const clients, budget = 40, 1 << 20
	f, _ := tempFile(t, 1<<20)
	spans := make([]api.Span, 500)
	for i := range spans {
		spans[i] = &fileSpan{f: f, pos: int64(i), n: 17_000}
	}
	s, addr := start(t, Options{Send: SendCopy, Budget: budget, MaxFrame: 64 << 10, MaxOther: 64 << 10, Handler: &fake{serve: func(c *api.Call) {
		a, _ := spanAnswer(spans...)
		c.To.Complete(a)
	}}})
	for range clients {
		c := dial(t, addr)
		c.Conn.(*net.TCPConn).SetReadBuffer(8 << 10)
		c.send(frame(0, "x"))
	}
	eventually(t, "all are being written to", func() bool {
		n := 0
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			if c.writeSince.Load() != 0 {
				n++
			}
		}
		return n == clients
	})
	c := dial(t, addr)
	c.send(frame(1, "y"))
	if _, err := c.receive(); err != nil {
		t.Errorf("a client that reads: %v", err)
	}
	if held, most := s.pool.InUse(), int64(budget/4+clients*2*copyLeast); held > most {
		t.Errorf("%d bytes are held for clients that do not read, want at most %d", held, most)
	}
}

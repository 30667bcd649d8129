package server

import (
	"context"
	"sync"
	"sync/atomic"
)

// classes are the sizes that buffers come in. A frame above the largest class gets a buffer of its own, which is not kept.
var classes = [...]int{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20}

// Buffer is a piece of memory that holds one frame. It is reference-counted: whoever keeps a slice of it calls Retain, and each reference
// is given back once with Release. After the last Release the bytes belong to the pool again.
type Buffer struct {
	data  []byte
	pool  *Pool
	class int // index into classes, -1 when exact
	refs  atomic.Int32
}

// Bytes is the whole buffer, at least as long as was asked for.
func (b *Buffer) Bytes() []byte { return b.data }

// Retain adds a reference. Only a holder of a reference may call it.
func (b *Buffer) Retain() {
	if b.refs.Add(1) <= 1 {
		panic("server: buffer retained after its last release")
	}
}

// Release gives one reference back.
func (b *Buffer) Release() {
	switch n := b.refs.Add(-1); {
	case n == 0:
		b.pool.put(b)
	case n < 0:
		panic("server: buffer released too often")
	}
}

// Pool hands out buffers by size class and takes them back. It keeps at most limit free bytes. Safe for concurrent use.
type Pool struct {
	limit int64
	inUse atomic.Int64

	mu     sync.Mutex
	free   [len(classes)][]*Buffer // guarded by mu
	lowest [len(classes)]int       // fewest free buffers since the last Trim; guarded by mu
	kept   int64                   // bytes in free; guarded by mu
	poison bool                    // tests: overwrite what comes back
}

// NewPool makes a pool that keeps at most limit bytes of free buffers.
func NewPool(limit int64) *Pool { return &Pool{limit: limit} }

// sizeClass is the class for n bytes, and the bytes that a buffer of it takes. The class is -1 above the largest.
func sizeClass(n int) (class, size int) {
	for i, c := range classes {
		if n <= c {
			return i, c
		}
	}
	return -1, n
}

// Get returns a buffer of at least n bytes with one reference. The contents are undefined.
func (p *Pool) Get(n int) *Buffer {
	class, size := sizeClass(n)
	p.inUse.Add(int64(size))
	if class >= 0 {
		if b := p.take(class); b != nil {
			b.refs.Store(1)
			return b
		}
	}
	b := &Buffer{data: make([]byte, size), pool: p, class: class}
	b.refs.Store(1)
	return b
}

func (p *Pool) take(class int) *Buffer {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.free[class]
	if len(l) == 0 {
		return nil
	}
	b := l[len(l)-1]
	l[len(l)-1] = nil
	p.free[class] = l[:len(l)-1]
	p.lowest[class] = min(p.lowest[class], len(l)-1)
	p.kept -= int64(classes[class])
	return b
}

func (p *Pool) put(b *Buffer) {
	p.inUse.Add(-int64(len(b.data)))
	if p.poison {
		for i := range b.data {
			b.data[i] = 0xdb
		}
	}
	if b.class < 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept+int64(len(b.data)) > p.limit {
		return
	}
	p.kept += int64(len(b.data))
	p.free[b.class] = append(p.free[b.class], b)
}

// Trim drops the buffers that were not needed since the last Trim. The server calls it every few seconds.
func (p *Pool) Trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.free {
		l := p.free[c]
		drop := min(p.lowest[c], len(l))
		clear(l[len(l)-drop:])
		p.free[c] = l[:len(l)-drop]
		p.kept -= int64(drop) * int64(classes[c])
		p.lowest[c] = len(p.free[c])
	}
}

// InUse is the number of bytes in buffers that are handed out.
func (p *Pool) InUse() int64 { return p.inUse.Load() }

// smallFrame is the size in bytes from which a frame counts as large.
const smallFrame = 1 << 20

// charge takes n bytes from the server's budget; it waits until they are free.
func (s *Server) charge(ctx context.Context, n int64) error {
	if n >= smallFrame {
		if err := s.large.Acquire(ctx, n); err != nil {
			return err
		}
	}
	err := s.budget.Acquire(ctx, n)
	if err != nil && n >= smallFrame {
		s.large.Release(n)
	}
	return err
}

// discharge gives n bytes back that one call of charge took.
func (s *Server) discharge(n int64) {
	s.budget.Release(n)
	if n >= smallFrame {
		s.large.Release(n)
	}
}

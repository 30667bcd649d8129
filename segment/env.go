package segment

import (
	"container/list"
	"log/slog"
	"sync"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// Sizes of the buffers that walk files: small for a look at some headers, large for reading through.
const (
	smallBuffer = 8 << 10
	largeBuffer = 1 << 20
)

// Env is what the segments of a data directory share: the file system, the buffers, and the count of open files.
type Env struct {
	FS     vfs.FS
	Logger *slog.Logger
	// Room is how many bytes may be taken before the disk's reserve is touched; nil means enough. Blocks are allocated ahead
	// only in steps that are small beside it. It must be cheap: one system call.
	Room func() int64

	small, large sync.Pool

	mu    sync.Mutex
	limit int
	order *list.List // open sealed segments, the latest used first
	where map[*Segment]*list.Element
}

// NewEnv returns an environment that keeps at most open sealed segments open, besides those that are being read.
func NewEnv(fs vfs.FS, logger *slog.Logger, open int) *Env {
	e := &Env{FS: fs, Logger: logger, limit: max(open, 1), order: list.New(), where: map[*Segment]*list.Element{}}
	e.small.New = func() any { b := make([]byte, smallBuffer); return &b }
	e.large.New = func() any { b := make([]byte, largeBuffer); return &b }
	return e
}

// pool is where the buffers for reading n bytes are: a range that fits a small one does not cost a large one.
func (e *Env) pool(n record.Position) *sync.Pool {
	if n <= smallBuffer {
		return &e.small
	}
	return &e.large
}

// touch notes that a sealed segment is in use and closes the ones that were unused for longest, of whatever log: a close that
// hangs holds up whoever is here.
func (e *Env) touch(s *Segment) {
	e.mu.Lock()
	if at := e.where[s]; at != nil {
		e.order.MoveToFront(at)
	} else {
		e.where[s] = e.order.PushFront(s)
	}
	var extra []*Segment
	for e.order.Len() > e.limit && len(extra) < 4 {
		extra = append(extra, e.drop(e.order.Back()))
	}
	e.mu.Unlock()
	for _, old := range extra {
		if old == s || !old.closeIdle() { // being read: it counts as just used
			e.mu.Lock()
			if e.where[old] == nil {
				e.where[old] = e.order.PushFront(old)
			}
			e.mu.Unlock()
		}
	}
}

func (e *Env) drop(at *list.Element) *Segment {
	s := e.order.Remove(at).(*Segment)
	delete(e.where, s)
	return s
}

func (e *Env) forget(s *Segment) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if at := e.where[s]; at != nil {
		e.drop(at)
	}
}

// Open is the number of sealed segments that are open.
func (e *Env) Open() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.order.Len()
}

package peer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/metadata"
)

// call is one question on its way. Its frame is written once, by the lane; who asked may be gone by then.
type call struct {
	ctx   context.Context
	frame []byte // from its size field on
	// simple says that the answer's header has no tags.
	simple bool
	// deliver takes the answer, once. It does not block.
	deliver func(answer)
	// state makes sure that an answer has one owner: the caller, or nobody, then its buffer goes back.
	state atomic.Int32
	// link is where it was sent.
	link atomic.Pointer[link]
}

const (
	callOpen int32 = iota
	callAnswered
	callLeft
)

type answer struct {
	buf  *buffer
	body []byte
	err  error
}

func newCall(ctx context.Context, req kmsg.Request, deliver func(answer)) *call {
	return &call{ctx: ctx, frame: formatRequest(req), simple: !req.IsFlexible() || req.Key() == keyApiVersions, deliver: deliver}
}

// finish gives the answer, unless the caller has left.
func (k *call) finish(a answer) {
	if k.state.CompareAndSwap(callOpen, callAnswered) {
		k.deliver(a)
	} else if a.buf != nil {
		a.buf.release()
	}
}

func (k *call) left() bool { return k.state.Load() == callLeft }

// expire ends the link that a call was sent on when it is still in line there after its time.
func (k *call) expire() {
	if on := k.link.Load(); on != nil && errors.Is(k.ctx.Err(), context.DeadlineExceeded) {
		on.late(k)
	}
}

// lane is one kind of question to one broker. Fields without a note belong to its goroutine.
type lane struct {
	client *Client
	to     metadata.BrokerID
	limit  int // bytes of an answer
	queue  chan *call
	load   atomic.Int64 // calls queued or in flight

	link    *link
	backoff time.Duration
	wait    time.Time // no dial before

	start sync.Once
	ctx   context.Context
	close context.CancelFunc

	mu    sync.Mutex
	ended bool // guarded by mu: nothing is taken from the queue any more
}

func newLane(c *Client, to metadata.BrokerID, limit int) *lane {
	l := &lane{client: c, to: to, limit: limit, queue: make(chan *call, queued)}
	l.ctx, l.close = context.WithCancel(c.ctx)
	return l
}

// do asks and waits for the answer. The buffer holds the body, and is the caller's to release.
func (l *lane) do(ctx context.Context, req kmsg.Request) (*buffer, []byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, context.Cause(ctx)
	}
	l.begin()
	done := make(chan answer, 1)
	k := newCall(ctx, req, func(a answer) { done <- a })
	l.load.Add(1)
	defer l.load.Add(-1)
	select {
	case l.queue <- k:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	case <-l.ctx.Done():
		return nil, nil, ErrClosed
	}
	select {
	case a := <-done:
		return a.buf, a.body, a.err
	case <-ctx.Done():
	case <-l.ctx.Done():
	}
	if !k.state.CompareAndSwap(callOpen, callLeft) {
		a := <-done
		return a.buf, a.body, a.err
	}
	if ctx.Err() == nil {
		return nil, nil, ErrClosed
	}
	k.expire()
	return nil, nil, fmt.Errorf("%w: node %d: %w", ErrDisconnected, l.to, context.Cause(ctx))
}

// submit asks without waiting, not even for a place in the queue. deliver is called once, in the order of the calls; a context that ends by
// its deadline ends the link.
func (l *lane) submit(ctx context.Context, req kmsg.Request, deliver func(answer)) {
	l.begin()
	k := newCall(ctx, req, nil)
	stop := func() bool { return true }
	if _, limited := ctx.Deadline(); limited {
		stop = context.AfterFunc(ctx, k.expire)
	}
	k.deliver = func(a answer) {
		stop()
		deliver(a)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		go k.finish(answer{err: ErrClosed})
		return
	}
	select {
	case l.queue <- k:
	default:
		go k.finish(answer{err: fmt.Errorf("%w: node %d: %d calls wait", ErrUnreachable, l.to, queued)})
	}
}

func (l *lane) begin() {
	l.start.Do(func() {
		c := l.client
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.closed {
			c.work.Go(l.run)
		} else {
			l.mu.Lock()
			l.ended = true
			l.mu.Unlock()
		}
	})
}

// run sends what is queued until the lane is closed.
func (l *lane) run() {
	for {
		select {
		case <-l.ctx.Done():
			l.end()
			return
		case k := <-l.queue:
			l.send(k)
		}
	}
}

func (l *lane) end() {
	if l.link != nil {
		l.link.fail(ErrClosed)
	}
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	for {
		select {
		case k := <-l.queue:
			k.finish(answer{err: ErrClosed})
		default:
			return
		}
	}
}

// send writes one call, over a new connection where there is none. A call that cannot be sent is answered here.
func (l *lane) send(k *call) {
	if k.left() {
		return
	}
	if k.ctx.Err() != nil {
		k.finish(answer{err: fmt.Errorf("%w: node %d: %w", ErrUnreachable, l.to, context.Cause(k.ctx))})
		return
	}
	if l.link == nil || l.link.broken() {
		l.link = nil
		if err := l.connect(k.ctx); err != nil {
			k.finish(answer{err: err})
			return
		}
	}
	if err := l.link.send(k); err != nil {
		k.finish(answer{err: err})
	}
}

// connect dials, not sooner than the back-off allows and no longer than the call may wait.
func (l *lane) connect(ctx context.Context) error {
	if pause := time.Until(l.wait); pause > 0 {
		t := time.NewTimer(pause)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: node %d: %w", ErrUnreachable, l.to, context.Cause(ctx))
		case <-l.ctx.Done():
			return ErrClosed
		}
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	k, err := l.client.dial(ctx, l)
	if err != nil {
		l.backoff = min(max(2*l.backoff, firstBackoff), lastBackoff)
		l.wait = time.Now().Add(l.backoff)
		l.client.o.Logger.Debug("no connection", "event", "peer.dial.failed", "node", l.to, "error", err)
		return err
	}
	l.link, l.backoff, l.wait = k, 0, time.Time{}
	return nil
}

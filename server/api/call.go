package api

import (
	"context"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/protocol"
)

// Conn is what a handler may know about the connection a call came in on.
type Conn struct {
	// Listener is the name of the listener; endpoints in answers are those of this listener.
	Listener string
	// Internal says that the listener is the one of brokers.
	Internal bool
	// Remote is the client's address, host and port.
	Remote string
	// Abandon ends the connection at once, without an answer to what is under way: the bytes of a span that it holds are about to be cut away.
	// It may be called from any goroutine.
	Abandon func()
}

// Span is a range of a log file, as the log gives it out. Release is called exactly once; until then the bytes do not change.
type Span interface {
	Len() int
	ReadAt(p []byte, off int64) (int, error)
	// File is the descriptor and position for sendfile; ok is false when there is none.
	File() (fd uintptr, pos int64, ok bool)
	Release()
}

// Part is one piece of an answer after its head: either bytes or a span.
type Part struct {
	Bytes []byte
	Span  Span
}

// Answer is what goes back for a call. The zero Answer is not valid.
type Answer struct {
	// Head holds the frame from its size field on. The size counts the parts too.
	Head  []byte
	Parts []Part
	// None: the request has no answer (Produce with acks=0); the connection goes on.
	None bool
	// Close: no answer, the connection ends here, for this reason.
	Close error
	// Later makes the answer, on the goroutine that is about to write it. Nothing else is set beside it.
	Later Builder
}

// Builder makes an answer when it is needed.
type Builder interface{ Build() Answer }

// Release gives back the spans of an answer.
func (a *Answer) Release() {
	for i := range a.Parts {
		if a.Parts[i].Span != nil {
			a.Parts[i].Span.Release()
			a.Parts[i].Span = nil
		}
	}
}

// Completer takes the answer of a call, exactly once, from any goroutine; it does not block.
type Completer interface{ Complete(Answer) }

// Call is one request. It belongs to the handler until the answer is given; the frame's bytes (Frame, and whatever a decoded request points
// to) stay until the answer is written.
type Call struct {
	Key, Version int16
	// Frame is the request from its key field on.
	Frame []byte
	// ClientID is empty when the client sent none. It lies in Frame.
	ClientID []byte
	Conn     *Conn
	// Ctx ends when the connection does.
	Ctx context.Context
	// To takes the answer.
	To Completer
	// Scratch is memory to build the answer's head in, kept from call to call of a connection.
	Scratch []byte

	api    *API
	header protocol.Header
	weight int64 // what it holds of API.room
	// asked is the broker that the client asked: this one, unless the call came in an envelope.
	asked   int32
	produce produceCall
	parked  atomic.Pointer[fetchCall] // the last fetch of this call that was parked
}

// ClientGone tells a call that waits that nobody may be there to read the answer any more, or that the client sends nothing after it: a
// parked fetch is answered at once with what there is. It may be called at any time, also after the call is complete.
func (c *Call) ClientGone() {
	if f := c.parked.Load(); f != nil {
		f.api.purgatory.fire(f)
	}
}

// complete gives the answer, and the room that the call held.
func (c *Call) complete(a Answer) {
	c.lighten()
	c.To.Complete(a)
}

// lighten gives back the room that the call holds: at the end, or when it is about to wait for other clients, who may need it.
func (c *Call) lighten() {
	if n := c.weight; n > 0 {
		c.weight = 0
		c.api.room.Release(n)
	}
}

// reply answers with a message.
func (c *Call) reply(resp kmsg.Response) {
	resp.SetVersion(c.Version)
	b := resp.AppendTo(c.begin())
	c.send(b)
}

// begin is the start of an answer: room for the size, and the header.
func (c *Call) begin() []byte { return c.api.protocol.AppendResponseHeader(c.Scratch[:0], c.header) }

// send fills the size in and completes the call.
func (c *Call) send(head []byte) {
	c.Scratch = head
	if err := protocol.FinishFrame(head, 0, 0); err != nil {
		c.close(err)
		return
	}
	c.complete(Answer{Head: head})
}

// none completes a call that has no answer.
func (c *Call) none() { c.complete(Answer{None: true}) }

// close completes a call by ending its connection.
func (c *Call) close(why error) { c.complete(Answer{Close: why}) }

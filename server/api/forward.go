package api

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/controller"
)

// What the controller decides is asked of any node: where another one is the controller, the request goes there in an envelope as it came, and
// the answer comes back as it was made.
//
//	client ──► this node ── Envelope: the client's frame ──► controller: serves it ── Envelope: the answer's frame ──► this node ──► client

// leading says that this node takes the decisions.
func (a *API) leading() bool { return a.o.Cluster == nil || a.o.Cluster.Leading() }

// forwarded hands a call to the controller when another node is that, and says whether it is answered. Without an answer it is served here,
// which tells the client that this is not the controller.
func (a *API) forwarded(c *Call) bool {
	if a.leading() {
		return false
	}
	ctx, cancel := context.WithTimeout(c.Ctx, a.forwardWait(c))
	defer cancel()
	frame, err := a.o.Cluster.Forward(ctx, c.Conn, c.Frame)
	switch {
	case errors.Is(err, ErrLeading):
		return false
	case err != nil:
		a.log.Warn("a request did not reach the controller", "key", c.Key, "cause", err)
		return false
	case len(frame) < 4 || int32(binary.BigEndian.Uint32(frame)) != c.header.CorrelationID:
		c.close(fmt.Errorf("api: the controller's answer to key %d is not one to this request", c.Key))
		return true
	}
	c.send(append(append(c.Scratch[:0], 0, 0, 0, 0), frame...))
	return true
}

// forwardWait is how long a request may look for the controller and wait for it: as long as the client said that it waits, at most
// request.timeout.ms.
func (a *API) forwardWait(c *Call) time.Duration {
	most := a.o.Settings.Live().Duration("request.timeout.ms")
	req, err := a.protocol.Decode(c.Key, c.Version, c.header.Body)
	if err != nil {
		return most
	}
	if t, ok := req.(kmsg.TimeoutRequest); ok {
		return min(most, max(time.Duration(t.Timeout()), 1)*time.Millisecond)
	}
	return most
}

// ask asks the controller, another node, something of this node's own making.
func (a *API) ask(ctx context.Context, c *Call, req kmsg.Request) (kmsg.Response, error) {
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("keeplog")).AppendRequest(nil, req, 0)
	out, err := a.o.Cluster.Forward(ctx, c.Conn, frame[4:])
	if err != nil {
		if errors.Is(err, ErrLeading) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %w", controller.ErrNotController, err)
	}
	body := out[4:]
	if req.IsFlexible() {
		if len(body) == 0 || body[0] != 0 {
			return nil, fmt.Errorf("api: the controller's answer to key %d cannot be read", req.Key())
		}
		body = body[1:]
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("api: the controller's answer to key %d: %w", req.Key(), err)
	}
	return resp, nil
}

// remoteError is an error that another node has answered with: its code goes to the client as it is.
type remoteError struct {
	code int16
	text string
}

// Error is the text that came with the code.
func (e *remoteError) Error() string {
	if e.text == "" {
		return fmt.Sprintf("the controller answers with error %d", e.code)
	}
	return e.text
}

// remote is the error of a code and its text, nil for 0.
func remote(code int16, text *string) error {
	if code == codeNone {
		return nil
	}
	e := &remoteError{code: code}
	if text != nil {
		e.text = *text
	}
	return e
}

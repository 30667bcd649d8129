package peer

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A command arrives as one, on a connection that no client's request waits behind, and its outcome comes back.
func TestSubmit(t *testing.T) {
	conns := map[string]int{}
	answer := &kmsg.EnvelopeResponse{ResponseData: []byte("outcome")}
	b := newBroker(t, func(req kmsg.Request, conn int) kmsg.Response {
		env := req.(*kmsg.EnvelopeRequest)
		what := string(env.RequestData)
		if is := IsCommand(env); is != (what == "command") {
			t.Errorf("%q is a command: %v", what, is)
		}
		conns[what] = conn
		return answer
	})
	c := b.client()
	out, err := c.Submit(t.Context(), 2, []byte("command"))
	equal(t, "outcome", string(out), "outcome")
	equal(t, "error", err, error(nil))
	_, err = c.Forward(t.Context(), 2, &Envelope{Request: []byte("request"), ClientHost: []byte{}})
	equal(t, "error", err, error(nil))
	if conns["command"] == conns["request"] {
		t.Error("a command and a client's request share a connection")
	}
	answer = &kmsg.EnvelopeResponse{ErrorCode: 41}
	_, err = c.Submit(t.Context(), 2, []byte("command"))
	equal(t, "error", err, ErrNotController)
}

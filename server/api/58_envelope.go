package api

import (
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/peer"
)

// envelope serves a request that a client made to another node, as the controller. Only what the controller serves may be in it.
func (a *API) envelope(c *Call, req *kmsg.EnvelopeRequest) {
	if peer.IsCommand(req) {
		a.command(c, req)
		return
	}
	if !a.leading() {
		c.reply(&kmsg.EnvelopeResponse{ErrorCode: codeNotController})
		return
	}
	h, err := a.protocol.ParseHeader(req.RequestData)
	if err != nil || !a.rows[h.Key].forward {
		c.reply(&kmsg.EnvelopeResponse{ErrorCode: codeInvalidRequest})
		return
	}
	inner := &Call{
		Key: h.Key, Version: h.Version, Frame: req.RequestData, ClientID: h.ClientID, Ctx: c.Ctx, To: &envelopeAnswer{call: c},
		Conn: &Conn{Listener: c.Conn.Listener, Remote: net.IP(req.ClientHostAddress).String()}, api: a, header: h, asked: a.o.NodeID,
	}
	if id, ok := peer.Receiver(req); ok {
		inner.asked = id
	}
	if err := a.weigh(inner); err != nil {
		c.reply(&kmsg.EnvelopeResponse{ErrorCode: codeInvalidRequest})
		return
	}
	a.rows[h.Key].serve(a, inner, h.Body)
}

// envelopeAnswer puts the answer of the inner call into that of the outer one.
type envelopeAnswer struct{ call *Call }

// Complete takes the answer of the inner call.
func (e *envelopeAnswer) Complete(a Answer) {
	if a.Later != nil {
		a = a.Later.Build()
	}
	defer a.Release()
	if a.Close != nil || a.None || len(a.Parts) > 0 || len(a.Head) < sizeBytes {
		e.call.reply(&kmsg.EnvelopeResponse{ErrorCode: codeInvalidRequest})
		return
	}
	e.call.reply(&kmsg.EnvelopeResponse{ResponseData: a.Head[sizeBytes:]})
}

// sizeBytes is the size field of a frame.
const sizeBytes = 4

package api

import (
	"github.com/keeplog/keeplog/metadata"
)

// node is a broker as clients of one listener see it.
type node struct {
	id   int32
	host string
	port int32
	rack *string
}

// node finds a live broker's endpoint on the listener that the call came in on.
func (a *API) node(c *Call, img *metadata.Image, id int32) (node, bool) {
	b, ok := img.Broker(id)
	if !ok || b.Fenced {
		return node{}, false
	}
	e, ok := b.Listener(c.Conn.Listener)
	if !ok {
		return node{}, false
	}
	n := node{id: id, host: e.Host, port: int32(e.Port)}
	if b.Rack != "" {
		n.rack = &b.Rack
	}
	return n, true
}

// nodes lists the live brokers that have the call's listener, by id.
func (a *API) nodes(c *Call, img *metadata.Image) []node {
	var l []node
	for _, b := range img.Brokers() {
		if n, ok := a.node(c, img, b.ID); ok {
			l = append(l, n)
		}
	}
	return l
}

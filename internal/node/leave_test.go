package node

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/peer"
)

// A controller that stops hands the metadata log over: another node leads as soon as it has stopped, which the others would take a second or two
// to come to by themselves.
func TestControllerHandsOver(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	for range 2 {
		eventually(t, "one leads", c.led)
		leader, _ := c.leading()
		n := c.nodes[leader]
		c.nodes[leader] = nil
		ctx := t.Context()
		n.cluster.leave(ctx)
		begun := time.Now()
		n.cluster.handOver(ctx)
		if n.cluster.Leading() {
			t.Error("it leads still")
		}
		eventually(t, "another leads", c.led)
		if took := time.Since(begun); took > 900*time.Millisecond {
			t.Errorf("%v without a controller", took)
		}
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := c.start(leader); err != nil {
			t.Fatal(err)
		}
	}
}

// led says whether one of the nodes that run leads.
func (c *trio) led() error {
	for _, n := range c.nodes {
		if n != nil && n.cluster.Leading() {
			return nil
		}
	}
	return errors.New("nobody leads")
}

// A process that is killed can still be reached for a moment after its connections ended: it is tried again, until it is gone or reports.
func TestGoneAfterAMoment(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	eventually(t, "one leads", c.led)
	leader, _ := c.leading()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := peer.New(peer.Options{Address: func(context.Context, metadata.BrokerID) (string, error) { return l.Addr().String(), nil }})
	defer p.Close()
	look := &cluster{node: c.nodes[leader], peer: p, watched: map[metadata.BrokerID]context.Context{}}
	if look.gone(9) {
		t.Error("a broker that listens is taken for gone")
	}
	look.watched[9] = t.Context()
	begun := time.Now()
	if look.gone(9) {
		t.Error("a broker that reports is taken for gone")
	}
	if took := time.Since(begun); took > probeTime/2 {
		t.Errorf("%v to see that it reports", took)
	}
	delete(look.watched, 9)
	time.AfterFunc(5*probeEvery, func() { l.Close() })
	if !look.gone(9) {
		t.Error("a broker that listened for a moment longer is taken for alive")
	}
}

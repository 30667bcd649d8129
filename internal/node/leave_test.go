package node

import (
	"errors"
	"testing"
	"time"
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

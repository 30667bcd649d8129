package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// nodeView is what one node answers when it is asked about the cluster.
type nodeView struct {
	brokers    []int32
	controller int32 // −1: it knows of none
}

// whole says whether the node knows all brokers and a leader of the metadata.
func (v nodeView) whole(nodes int) bool { return len(v.brokers) == nodes && v.controller >= 0 }

// localProbe asks nodes, each over a connection of its own.
type localProbe struct {
	mu      sync.Mutex
	clients map[string]*kgo.Client
	tls     *tls.Config // nil: plain text
}

func newLocalProbe() *localProbe { return &localProbe{clients: map[string]*kgo.Client{}} }

func (p *localProbe) close() {
	for _, c := range p.clients {
		c.Close()
	}
}

func (p *localProbe) client(addr string) (*kgo.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.clients[addr]; c != nil {
		return c, nil
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(addr), kgo.DialTimeout(time.Second), kgo.RequestRetries(0), kgo.DisableClientMetrics(), kgo.ClientID("keeplog-local"),
	}
	if p.tls != nil {
		opts = append(opts, kgo.DialTLSConfig(p.tls))
	}
	c, err := kgo.NewClient(opts...)
	if err == nil {
		p.clients[addr] = c
	}
	return c, err
}

// ask asks the node at addr, and no other.
func (p *localProbe) ask(ctx context.Context, addr string) (nodeView, error) {
	c, err := p.client(addr)
	if err != nil {
		return nodeView{}, err
	}
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	answer, err := c.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return nodeView{}, err
	}
	resp := answer.(*kmsg.MetadataResponse)
	v := nodeView{controller: resp.ControllerID}
	for _, b := range resp.Brokers {
		v.brokers = append(v.brokers, b.NodeID)
	}
	return v, nil
}

// leader asks who leads the metadata log; a node that does not say so leaves it at what it called the controller.
func (p *localProbe) leader(ctx context.Context, addr string, otherwise int32) int32 {
	c, err := p.client(addr)
	if err != nil {
		return otherwise
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if q, _ := askQuorum(ctx, c.SeedBrokers()[0]); q != nil && q.leader >= 0 {
		return q.leader
	}
	return otherwise
}

// awaitReady waits until each of these nodes answers with all brokers of the cluster that run and a leader of the metadata,
// and returns that leader. A node that ends meanwhile is the error.
func (c *localCluster) awaitReady(ctx context.Context, nodes []*localNode, since map[int32]int64) (leader int32, err error) {
	probe := newLocalProbe()
	defer probe.close()
	deadline := time.Now().Add(localReadyTimeout)
	views := make(map[int32]nodeView)
	waiting := slices.Clone(nodes)
	for {
		up := 0
		for _, n := range c.state.Nodes {
			if state, ok := c.running(n); ok && !state.paused() {
				up++
			}
		}
		waiting = slices.DeleteFunc(waiting, func(n *localNode) bool {
			ask, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			v, err := probe.ask(ask, n.address())
			if err == nil {
				views[n.ID] = v
			}
			return err == nil && v.whole(up)
		})
		if len(waiting) == 0 {
			return probe.leader(ctx, nodes[0].address(), views[nodes[0].ID].controller), nil
		}
		for _, n := range waiting {
			if _, ok := c.running(n); !ok {
				return -1, c.startFailure(n, since[n.ID])
			}
		}
		if time.Now().After(deadline) {
			return -1, c.notReady(waiting, views, since)
		}
		select {
		case <-ctx.Done():
			return -1, context.Cause(ctx)
		case <-time.After(15 * time.Millisecond):
		}
	}
}

func (c *localCluster) notReady(waiting []*localNode, views map[int32]nodeView, since map[int32]int64) error {
	var words []string
	for _, n := range waiting {
		v, answered := views[n.ID]
		switch {
		case !answered:
			words = append(words, fmt.Sprintf("node %d does not answer", n.ID))
		case v.controller < 0:
			words = append(words, fmt.Sprintf("node %d knows no leader of the metadata", n.ID))
		default:
			words = append(words, fmt.Sprintf("node %d sees only the nodes %s", n.ID, numbers(v.brokers)))
		}
	}
	e := failf("the cluster is not ready after %s", localReadyTimeout)
	e.code, e.why = "NOT_READY", strings.Join(words, ", ")
	e.try = localCommand(c.shown, "logs", fmt.Sprint(waiting[0].ID))
	return e
}

// logSize is where the node's log ends now.
func (c *localCluster) logSize(n *localNode) int64 {
	info, err := os.Stat(c.logFile(n))
	if err != nil {
		return 0
	}
	return info.Size()
}

// startFailure tells why a node ended, in the words of its log from a position on.
func (c *localCluster) startFailure(n *localNode, from int64) error {
	e := failf("node %d has ended while it was starting", n.ID)
	e.code, e.try = "START_FAILED", localCommand(c.shown, "logs", fmt.Sprint(n.ID))
	msg, why, try := lastError(readTail(c.logFile(n), from, 1<<20))
	if msg == "" {
		return e
	}
	e.msg = fmt.Sprintf("node %d: %s", n.ID, msg)
	e.why = why
	if try != "" && !strings.Contains(try, " serve ") {
		e.try = try
	}
	return e
}

// readTail reads a file from a position on, at most its last limit bytes.
func readTail(path string, from, limit int64) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil {
		from = max(from, info.Size()-limit)
	}
	raw, _ := io.ReadAll(io.NewSectionReader(f, from, limit))
	return raw
}

// lastError finds the last error that a command told in its output, with what stands below it.
func lastError(output []byte) (msg, why, try string) {
	for _, line := range strings.Split(string(output), "\n") {
		switch {
		case strings.HasPrefix(line, "error: "):
			msg, why, try = strings.TrimPrefix(line, "error: "), "", ""
		case strings.HasPrefix(line, "panic: "), strings.HasPrefix(line, "fatal error: "):
			msg, why, try = line, "", ""
		case strings.HasPrefix(line, "why:   ") && msg != "":
			why = strings.TrimPrefix(line, "why:   ")
		case strings.HasPrefix(line, "try:   ") && msg != "":
			try = strings.TrimPrefix(line, "try:   ")
		}
	}
	return msg, why, try
}

// behind lists the partitions that have fewer replicas in sync than they have, as "orders-0".
func (p *localProbe) behind(ctx context.Context, addr string) ([]string, error) {
	c, err := p.client(addr)
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = nil // all
	answer, err := c.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, t := range answer.(*kmsg.MetadataResponse).Topics {
		for _, part := range t.Partitions {
			if len(part.ISR) < len(part.Replicas) && t.Topic != nil {
				out = append(out, fmt.Sprintf("%s-%d", *t.Topic, part.Partition))
			}
		}
	}
	return out, nil
}

// awaitInSync waits until every replica is in sync, before the next node is restarted.
func (c *localCluster) awaitInSync(ctx context.Context) {
	probe := newLocalProbe()
	defer probe.close()
	var behind []string
	err := error(nil)
	if !waitUntil(30*time.Second, func() bool {
		if ctx.Err() != nil {
			return true
		}
		ask, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		for _, n := range c.state.Nodes {
			if _, ok := c.running(n); ok {
				behind, err = probe.behind(ask, n.address())
				return err == nil && len(behind) == 0
			}
		}
		return true
	}) {
		c.app.say("warning: not every replica is in sync yet: %s", short(strings.Join(behind, ", "), 80))
	}
}

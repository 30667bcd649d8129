package isr

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/vfs"
)

// chaosSeed is that of KEEPLOG_SEED, else another one each time.
func chaosSeed() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("KEEPLOG_SEED"), 10, 64); err == nil {
		return n
	}
	return rand.Uint64()
}

// TestChaos lets producers write with acks=all while brokers are killed, lose their power, are cut off from each other and
// change roles, replicas move between their directories, and the controller's answers get lost; then everything heals, and nothing that was acknowledged is missing.
// It runs the real fetchers, sessions and logs; what the simulation does for the cores.
func TestChaos(t *testing.T) {
	seed := chaosSeed()
	t.Logf("KEEPLOG_SEED=%d", seed)
	patience := 2 * time.Second
	if n, err := strconv.Atoi(os.Getenv("KEEPLOG_HARNESS_SECONDS")); err == nil && n > 0 {
		patience = time.Duration(n) * time.Second
	}
	end := time.Now().Add(patience)
	runs := 0
	for i := uint64(0); runs < 3 || time.Now().Before(end); i++ {
		ok := t.Run(fmt.Sprint(seed+i), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { chaos(t, seed+i) })
		})
		if runs++; !ok {
			break
		}
	}
	t.Logf("%d runs", runs)
}

// producers write until they are stopped, each one record at a time.
type producers struct {
	c    *troupe
	mu   sync.Mutex
	next int
	stop chan struct{}
	done sync.WaitGroup
}

func (p *producers) run() {
	for {
		select {
		case <-p.stop:
			return
		default:
		}
		p.mu.Lock()
		value := fmt.Sprint("v", p.next)
		p.next++
		p.mu.Unlock()
		pause := 20 * time.Millisecond
		if !p.write(value) {
			pause *= 5
		}
		time.Sleep(pause)
	}
}

// write sends one record to whoever leads.
func (p *producers) write(value string) bool {
	id := p.c.leader()
	if id < 0 {
		return false
	}
	r := p.c.nodes[id].up.Load()
	if r == nil {
		return false
	}
	part, err := r.Partition(topicID, 0)
	if err != nil {
		return false
	}
	got := make(chan ProduceResult, 1)
	req := request(-1, value)
	req.Timeout = time.Second
	part.Produce(req, func(res ProduceResult) { got <- res })
	res := <-got
	if res.Err != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if was, ok := p.c.acked[res.Base]; ok {
		p.c.t.Errorf("offset %d was acknowledged for %q and for %q", res.Base, was, value)
	}
	p.c.acked[res.Base] = value
	return true
}

func chaos(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	c := newTroupe(t, 3)
	p := &producers{c: c, stop: make(chan struct{})}
	for range 3 {
		p.done.Go(p.run)
	}
	for range 30 {
		c.disturb(rnd)
		time.Sleep(time.Duration(rnd.IntN(1500)) * time.Millisecond)
	}
	c.mu.Lock()
	clear(c.cut)
	c.mute = false
	c.mu.Unlock()
	for id, n := range c.nodes {
		if n.up.Load() == nil {
			c.start(id)
		}
	}
	c.eventually("a leader", func() bool { return c.leader() >= 0 })
	close(p.stop)
	p.done.Wait()
	c.allInSync()
	c.verify()
	if len(c.acked) < 50 {
		t.Errorf("only %d records were acknowledged", len(c.acked))
	}
	c.end()
}

// disturb does one thing to the cluster.
func (c *troupe) disturb(rnd *rand.Rand) {
	id := int32(rnd.IntN(3) + 1)
	switch rnd.IntN(9) {
	case 0:
		c.down(id, nil)
	case 1:
		kinds := []vfs.PolicyKind{vfs.KeepNone, vfs.KeepAll, vfs.KeepRandom, vfs.TearLastSized, vfs.KeepSizes}
		c.down(id, &vfs.Policy{Kind: kinds[rnd.IntN(len(kinds))], N: rnd.IntN(3)})
	case 2:
		c.sever(id, int32(rnd.IntN(3)+1), true)
	case 3:
		c.mu.Lock()
		clear(c.cut)
		c.mute = !c.mute
		c.mu.Unlock()
	case 4:
		c.move(id)
	case 5, 6:
		c.place(id, []string{"/data", "/other"}[rnd.IntN(2)])
	default:
		if c.nodes[id].up.Load() == nil {
			c.start(id)
		}
	}
}

// place has a broker's replica moved to one of its directories, if it is up.
func (c *troupe) place(id int32, dir string) {
	if r := c.nodes[id].up.Load(); r != nil {
		if err := r.Place(partitionName, topicID, 0, dir); err != nil {
			c.t.Logf("node %d does not move its replica: %v", id, err)
		}
	}
}

// down stops a broker, unless it is down.
func (c *troupe) down(id int32, power *vfs.Policy) {
	if c.nodes[id].up.Load() != nil {
		c.stop(id, power)
	}
}

// move gives the leadership to a broker, if it is alive and in sync.
func (c *troupe) move(id int32) {
	img := c.image()
	part, _ := img.Partition(topicID, 0)
	if part.Leader != id && slices.Contains(part.ISR, id) && img.Alive(id) {
		_ = c.try(metadata.PartitionChanged{TopicID: topicID, PartitionEpoch: part.PartitionEpoch, Leader: &id})
	}
}

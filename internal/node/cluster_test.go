package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/vfs"
)

// trio is three nodes over loopback, each with its own data directory.
type trio struct {
	t     testing.TB
	dir   string
	ports [3][3]int // of PLAINTEXT, CONTROLLER and REPLICATION
	nodes [3]*Node
	log   io.Writer
	// fs are the nodes' file systems, the real one where there is none; dirs are the names of several data directories of each node.
	fs   [3]vfs.FS
	dirs []string
}

// freePorts picks ports that nobody listens on, below those that the system gives to connections that go out: a node that is down keeps its
// port.
func freePorts(t testing.TB) (ports [3][3]int) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("ports from seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for i := range ports {
		for j := range ports[i] {
			for ports[i][j] == 0 {
				l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rnd.IntN(22_000)))
				if err != nil {
					continue
				}
				defer l.Close() // the others of this cluster get different ones
				ports[i][j] = l.Addr().(*net.TCPAddr).Port
			}
		}
	}
	return ports
}

func newTrio(t testing.TB) *trio {
	t.Helper()
	return startTrio(&trio{t: t})
}

// startTrio starts the three nodes, and stops them when the test ends.
func startTrio(c *trio) *trio {
	c.t.Helper()
	c.dir, c.ports, c.log = c.t.TempDir(), freePorts(c.t), c.t.Output()
	c.startAll()
	c.t.Cleanup(func() {
		for i := range c.nodes {
			c.stop(i)
		}
	})
	return c
}

// logDirs is log.dirs of a node.
func (c *trio) logDirs(i int) string {
	base := filepath.Join(c.dir, fmt.Sprint(i+1))
	if len(c.dirs) == 0 {
		return base
	}
	var list []string
	for _, d := range c.dirs {
		list = append(list, filepath.Join(base, d))
	}
	return strings.Join(list, ",")
}

func (c *trio) config(i int) *config.Broker {
	c.t.Helper()
	var voters []string
	for j := range c.ports {
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", j+1, c.ports[j][1]))
	}
	cfg, _, err := config.Load(config.Input{Set: []string{
		fmt.Sprintf("node.id=%d", i+1), "log.dirs=" + c.logDirs(i),
		fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d,REPLICATION://127.0.0.1:%d", c.ports[i][0], c.ports[i][1], c.ports[i][2]),
		"controller.listener.names=CONTROLLER", "inter.broker.listener.name=REPLICATION", "controller.quorum.voters=" + strings.Join(voters, ","),
		"keeplog.disk.reserve.bytes=0",
	}})
	if err != nil {
		c.t.Fatal(err)
	}
	return cfg
}

func (c *trio) start(i int) error {
	logger := slog.New(slog.NewTextHandler(c.log, nil)).With("n", i+1)
	n, err := Open(c.t.Context(), Options{Config: c.config(i), FS: c.fs[i], Logger: logger, Level: slog.LevelInfo, Fatal: func(err error) { c.t.Error(err) }})
	c.nodes[i] = n
	return err
}

func (c *trio) startAll() {
	c.t.Helper()
	errs := make(chan error)
	for i := range c.nodes {
		go func() { errs <- c.start(i) }()
	}
	for range c.nodes {
		if err := <-errs; err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *trio) stop(i int) {
	if n := c.nodes[i]; n != nil {
		c.nodes[i] = nil
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			c.t.Error(err)
		}
	}
}

func (c *trio) client(o ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	var seeds []string
	for i := range c.ports {
		seeds = append(seeds, fmt.Sprintf("127.0.0.1:%d", c.ports[i][0]))
	}
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(seeds...), kgo.MetadataMinAge(50 * time.Millisecond), kgo.RecordDeliveryTimeout(30 * time.Second)}, o...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(cl.Close)
	return cl
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// inSync says which partitions of a topic have fewer than n replicas in sync, as a node's image has it.
func (c *trio) inSync(at int, topic string, n int) error {
	t, ok := c.nodes[at].quorum.Image().TopicByName(topic)
	if !ok {
		return errors.New("no topic")
	}
	for i, p := range t.Partitions {
		if len(p.ISR) != n || p.Leader == metadata.NoLeader {
			return fmt.Errorf("partition %d: leader %d, in sync %v", i, p.Leader, p.ISR)
		}
	}
	return nil
}

// produce writes the numbers from one to another, the last one not, to topic t.
func produce(t *testing.T, cl *kgo.Client, from, to int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var list []*kgo.Record
	for i := from; i < to; i++ {
		list = append(list, &kgo.Record{Topic: "t", Value: []byte(fmt.Sprint(i)), Key: []byte(fmt.Sprint(i))})
	}
	if err := cl.ProduceSync(ctx, list...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// Three nodes find each other, make a topic, keep what is acknowledged while one of them is away, and are all in sync again when it is back:
// through each node in turn, the one that leads the metadata log included.
func TestThreeNodes(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	cl := c.client()
	adm := kadm.NewClient(cl)
	ctx := t.Context()
	made, err := adm.CreateTopic(ctx, 6, 3, nil, "t")
	if err != nil || made.Err != nil {
		t.Fatal(err, made.Err)
	}
	for i := range c.nodes {
		if _, ok := c.nodes[i].quorum.Image().TopicByName("t"); !ok {
			t.Errorf("node %d has not applied a topic that was reported as created", i+1)
		}
	}
	eventually(t, "all in sync", func() error { return c.inSync(0, "t", 3) })
	at := 0
	for i := range c.nodes {
		produce(t, cl, at, at+100)
		c.stop(i)
		produce(t, cl, at+100, at+200)
		if err := c.start(i); err != nil {
			t.Fatal(err)
		}
		at += 200
		produce(t, cl, at, at+100)
		at += 100
		eventually(t, "all in sync", func() error { return c.inSync((i+1)%3, "t", 3) })
	}
	c.check(cl, at)
}

// check reads everything back, and compares the replicas.
func (c *trio) check(cl *kgo.Client, want int) {
	t := c.t
	t.Helper()
	rd := c.client(kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	seen := map[string]int{}
	for len(seen) < want {
		f := rd.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d of %d records came back", len(seen), want)
		}
		f.EachRecord(func(r *kgo.Record) { seen[string(r.Value)]++ })
	}
	for v, n := range seen {
		if n != 1 {
			t.Errorf("record %s came %d times", v, n)
		}
	}
	for p := range 6 {
		eventually(t, "replicas alike", func() error {
			var ends []int64
			for i := range c.nodes {
				topic, _ := c.nodes[i].quorum.Image().TopicByName("t")
				part, err := c.nodes[i].replicas.Partition(topic.ID, int32(p))
				if err != nil {
					return err
				}
				e, _ := part.Ends()
				ends = append(ends, int64(e.LogEnd), int64(e.HighWatermark))
			}
			if slices.Min(ends) != slices.Max(ends) {
				return fmt.Errorf("partition %d: ends and watermarks %v", p, ends)
			}
			return nil
		})
	}
	for p := range 6 {
		var files [][]byte
		for i := range c.nodes {
			b, err := os.ReadFile(filepath.Join(c.dir, fmt.Sprint(i+1), fmt.Sprintf("t-%d", p), "00000000000000000000.log"))
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, b)
		}
		if string(files[0]) != string(files[1]) || string(files[0]) != string(files[2]) {
			t.Errorf("partition %d: files of %d, %d and %d bytes differ", p, len(files[0]), len(files[1]), len(files[2]))
		}
	}
}

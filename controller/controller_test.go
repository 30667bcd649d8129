package controller

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/replication/quorum"
	"github.com/keeplog/keeplog/vfs"
)

// The longest name is 249 bytes; every character is tried.
func TestTopicNames(t *testing.T) {
	if err := CheckTopicName(strings.Repeat("n", 249)); err != nil {
		t.Error(err)
	}
	if err := CheckTopicName(strings.Repeat("n", 250)); !errors.Is(err, ErrInvalidTopic) {
		t.Error(err)
	}
	const good = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	for c := range 256 {
		name := "x" + string([]byte{byte(c)})
		if err := CheckTopicName(name); (err == nil) != strings.Contains(good, name[1:]) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

type loggers map[string]string

func (l loggers) Has(name string) bool        { _, ok := l[name]; return ok }
func (l loggers) SetLevel(name, level string) { l[name] = level }

func TestAlterLoggers(t *testing.T) {
	l := loggers{"isr": "INFO"}
	op := func(key string, op config.Op, value string) ConfigOp { return ConfigOp{key, op, &value} }
	for _, c := range []struct {
		node string
		op   ConfigOp
		want string
	}{
		{"1", op("isr", config.OpSet, "DEBUG"), ""},
		{"1", op("root", config.OpSet, "WARN"), ""},
		{"1", ConfigOp{"isr", config.OpDelete, nil}, ""},
		{"1", op("isr", config.OpSet, "FOO"), "not a supported log level"},
		{"1", op("no.such", config.OpSet, "DEBUG"), "Logger no.such does not exist!"},
		{"7", op("isr", config.OpSet, "DEBUG"), "Unexpected node id. Expected 1, but received 7"},
		{"", op("isr", config.OpSet, "DEBUG"), "Node id must be an integer, but it is: "},
		{"1", op("isr", config.OpAppend, "DEBUG"), "APPEND operation is not allowed for the BROKER_LOGGER resource"},
		{"1", ConfigOp{"root", config.OpDelete, nil}, "Removing the log level of the root logger is not allowed"},
		{"1", ConfigOp{"isr", config.OpSet, nil}, "Null value not supported for : isr"},
	} {
		r := AlterResource{Resource: metadata.Resource{Kind: metadata.ResourceBrokerLogger, Name: c.node}, Ops: []ConfigOp{c.op}}
		err := AlterLoggers(r, 1, l, false)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.op.Key, err)
		}
	}
	if l["isr"] != "" || l["root"] != "WARN" {
		t.Error(l)
	}
}

// TestOverQuorum runs the controller on a real metadata log: concurrent requests are decided one after the other.
func TestOverQuorum(t *testing.T) {
	q, err := quorum.Open(quorum.Options{
		FS: vfs.NewMem(), Dir: "/", Node: 1, Store: &quorum.MemStore{}, NewClusterID: func() string { return "abcdefghijklmnopqrstuv" },
		Fatal: func(err error) { t.Error(err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	ctx := context.Background()
	if err := q.WaitLeader(ctx); err != nil {
		t.Fatal(err)
	}
	c := New(Options{Proposer: q, Static: config.Default(), Rand: rand.New(rand.NewPCG(1, 1))})
	epoch, err := c.RegisterBroker(ctx, Registration{ID: 1, Incarnation: [16]byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	q.SetBrokerEpoch(epoch)
	if err := c.Unfence(ctx, 1, epoch); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for range 20 {
		wg.Go(func() {
			answers, err := c.CreateTopics(ctx, CreateTopicsRequest{Topics: []CreateTopic{{Name: "same", Partitions: 3, Replicas: 1}}})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			switch err := answers[0].Err; {
			case err == nil:
				made++
			case !errors.Is(err, ErrTopicExists):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	topic, ok := q.Image().TopicByName("same")
	if made != 1 || !ok || len(topic.Partitions) != 3 || topic.ID.IsZero() {
		t.Errorf("made %d times, %+v", made, topic)
	}
	// 10,000 partitions in one request go in, whatever entries that takes.
	answers, err := c.CreateTopics(ctx, CreateTopicsRequest{Topics: []CreateTopic{{Name: "wide", Partitions: 9_999, Replicas: 1}, {Name: "thin", Partitions: 1, Replicas: 1}}})
	if err != nil || answers[0].Err != nil || answers[1].Err != nil || q.Image().PartitionCount() != 10_003 {
		t.Error(answers, err, q.Image().PartitionCount())
	}
	a, err := c.AllocateProducerIDs(ctx, 1, epoch)
	if err != nil || a.Count != 1000 {
		t.Error(a, err)
	}
	if b, err := c.AllocateProducerIDs(ctx, 1, epoch); err != nil || b.First != a.First+1000 {
		t.Error(b, err)
	}
}

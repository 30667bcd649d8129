package group

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// fakeTopics are the topics of a test.
type fakeTopics struct {
	index  uint64
	next   int
	ids    map[string]TopicID
	names  map[TopicID]string
	counts map[string]int
	racks  []string
}

func newFakeTopics() *fakeTopics {
	return &fakeTopics{ids: make(map[string]TopicID), names: make(map[TopicID]string), counts: make(map[string]int)}
}

func (f *fakeTopics) set(name string, partitions int) {
	f.index++
	if partitions == 0 {
		delete(f.names, f.ids[name])
		delete(f.ids, name)
		delete(f.counts, name)
		return
	}
	if _, ok := f.ids[name]; !ok {
		f.next++
		f.ids[name] = TopicID{0: 0xAB, 1: byte(f.next >> 8), 15: byte(f.next)}
		f.names[f.ids[name]] = name
	}
	f.counts[name] = partitions
}

func (f *fakeTopics) Topic(name string) (TopicID, int, bool) {
	id, ok := f.ids[name]
	return id, f.counts[name], ok
}

func (f *fakeTopics) TopicName(id TopicID) (string, int, bool) {
	name, ok := f.names[id]
	return name, f.counts[name], ok
}

func (f *fakeTopics) Names() iter.Seq[string] {
	return slices.Values(slices.Sorted(maps.Keys(f.ids)))
}

func (f *fakeTopics) Racks(_ TopicID, partition int32) []string {
	if len(f.racks) == 0 {
		return nil
	}
	return []string{f.racks[int(partition)%len(f.racks)]}
}

func (f *fakeTopics) Index() uint64 { return f.index }

// asker is a request without an answer, and what to do with that.
type asker struct {
	request any
	then    func(any)
}

// bench is one group's core and what its coordinator would keep for it.
type bench struct {
	t        testing.TB
	core     Core
	now      time.Time
	topics   *fakeTopics
	settings *Settings
	ids      int
	tickets  Ticket
	// waiting are the tickets without an answer.
	waiting map[Ticket]asker
	entries map[string][]byte
	// written are the keys that the last step changed, lastSize their bytes.
	written  []string
	lastSize int
	// quick leaves out the comparison of what is stored after each step.
	quick bool
}

func newBench(t testing.TB) *bench {
	return &bench{
		t: t, core: newClassic("g"), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), topics: newFakeTopics(),
		waiting: make(map[Ticket]asker), entries: make(map[string][]byte),
		settings: &Settings{
			MinSessionTimeout: 6 * time.Second, MaxSessionTimeout: 30 * time.Minute, InitialRebalanceDelay: 0, MaxSize: 1000,
			Consumer: ConsumerSettings{
				Enabled: true, SessionTimeout: 45 * time.Second, HeartbeatInterval: 5 * time.Second, MaxSize: 1000,
				Assignors: []string{"uniform", "range"}, Migration: migrationBidirectional, RegexRefreshInterval: 10 * time.Minute,
			},
		},
	}
}

func (b *bench) env(ticket Ticket) Env {
	return Env{Now: b.now, Ticket: ticket, Topics: b.topics, Settings: b.settings, NewID: func() string {
		b.ids++
		return fmt.Sprintf("id%d", b.ids)
	}}
}

// ask steps the core with a request; then takes its answer, now or later.
func (b *bench) ask(request any, then func(any)) {
	b.tickets++
	b.waiting[b.tickets] = asker{request, then}
	b.step(request, b.tickets)
}

func (b *bench) step(ev Event, ticket Ticket) {
	effects := b.core.Step(ev, b.env(ticket))
	if effects.Become != nil {
		b.core = effects.Become
	}
	b.written, b.lastSize = nil, 0
	for _, e := range effects.Entries {
		mark := "+"
		if e.Value == nil {
			mark = "-"
			delete(b.entries, e.Key)
		} else {
			b.entries[e.Key] = e.Value
		}
		b.written = append(b.written, mark+e.Key)
		b.lastSize += len(e.Key) + len(e.Value)
	}
	slices.Sort(b.written)
	if !b.quick {
		b.compare()
	}
	for _, reply := range effects.Replies {
		w, ok := b.waiting[reply.Ticket]
		if !ok {
			b.t.Fatalf("ticket %d is answered and does not wait", reply.Ticket)
		}
		delete(b.waiting, reply.Ticket)
		w.then(reply.Response)
	}
}

// compare fails when what was written is not what the core would be loaded from.
func (b *bench) compare() {
	stored := b.core.Stored()
	if len(stored) != len(b.entries) {
		b.t.Fatalf("stored %d entries, the core says %d", len(b.entries), len(stored))
	}
	for _, e := range stored {
		if !bytes.Equal(b.entries[e.Key], e.Value) {
			b.t.Fatalf("entry %q was stored as %x, the core says %x", e.Key, b.entries[e.Key], e.Value)
		}
	}
}

// wait lets time pass and wakes the core when it asked for it.
func (b *bench) wait(d time.Duration) {
	end := b.now.Add(d)
	for range 100_000 {
		at := b.core.Deadline()
		if at.IsZero() || at.After(end) {
			break
		}
		if at.After(b.now) {
			b.now = at
		}
		b.step(Wake{}, 0)
	}
	b.now = end
}

// reload replaces the core by one that is made from what is stored, as a new coordinator does.
func (b *bench) reload() {
	for _, ticket := range slices.Sorted(maps.Keys(b.waiting)) {
		w := b.waiting[ticket]
		delete(b.waiting, ticket)
		switch w.request.(type) {
		case *JoinGroupRequest:
			w.then(&JoinGroupResponse{Err: ErrRebalanceInProgress, Generation: -1})
		case *SyncGroupRequest:
			w.then(&SyncGroupResponse{Err: ErrRebalanceInProgress})
		}
	}
	entries := make([]Entry, 0, len(b.entries))
	for _, key := range slices.Sorted(maps.Keys(b.entries)) {
		entries = append(entries, Entry{Key: key, Value: b.entries[key]})
	}
	core, err := Load("g", entries, b.env(0))
	if err != nil {
		b.t.Fatal(err)
	}
	b.core = core
	b.compare()
}

// blobSubscription is what a classic member tells in version 1 of the consumer protocol.
func blobSubscription(topics []string, owned []namedPartitions) []byte {
	b := []byte{0, 1}
	b = append(b, 0, 0, 0, byte(len(topics)))
	for _, name := range topics {
		b = append(append(b, 0, byte(len(name))), name...)
	}
	b = append(b, 0xff, 0xff, 0xff, 0xff)
	tail := appendAssignment(nil, 0, owned)
	return append(b, tail[2:len(tail)-4]...)
}

func showPartitions(list []TopicPartitions, topics *fakeTopics) string {
	var parts []string
	for _, t := range list {
		name, _, ok := topics.TopicName(t.Topic)
		if !ok {
			name = fmt.Sprintf("deleted-%d", t.Topic[15])
		}
		parts = append(parts, name+"="+showNumbers(t.Partitions))
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

func showNumbers(list []int32) string {
	text := make([]string, len(list))
	for i, n := range list {
		text[i] = fmt.Sprint(n)
	}
	return strings.Join(text, ",")
}

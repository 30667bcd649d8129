package group

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// heartbeatOf is a join, or a later heartbeat, of a member by name.
func heartbeatOf(id string, epoch int32, topics ...string) *ConsumerHeartbeatRequest {
	r := &ConsumerHeartbeatRequest{Version: 1, Group: "g", MemberID: id, MemberEpoch: epoch, RebalanceTimeoutMs: -1, ClientID: "c", ClientHost: "/h"}
	if epoch == 0 {
		r.RebalanceTimeoutMs, r.SubscribedTopics, r.TopicPartitions = 300_000, topics, []TopicPartitions{}
	}
	return r
}

func (b *bench) beat(r *ConsumerHeartbeatRequest) *ConsumerHeartbeatResponse {
	b.t.Helper()
	var got *ConsumerHeartbeatResponse
	b.ask(r, func(answer any) { got = answer.(*ConsumerHeartbeatResponse) })
	if got == nil {
		b.t.Fatal("a heartbeat is answered at once")
	}
	return got
}

// TestConsumerLargeTarget: a target that does not fit into one record is written in parts, each small enough, and counts once
// it is whole. A coordinator that takes over in between begins again.
func TestConsumerLargeTarget(t *testing.T) {
	b := newBench(t)
	var topics []string
	for n := range 850 {
		topics = append(topics, fmt.Sprintf("t%04d", n))
		b.topics.set(topics[n], 20)
	}
	b.settings.Consumer.AssignmentInterval = time.Hour
	b.quick = true
	for m := range 25 {
		b.beat(heartbeatOf(fmt.Sprintf("m%03d", m), 0, topics...))
	}
	b.now = b.now.Add(time.Hour)
	k := b.core.(*consumer)
	b.beat(heartbeatOf("m000", k.members["m000"].epoch))
	if k.assignmentEpoch == k.epoch || len(k.rest) == 0 {
		t.Fatal("the whole target was written at once")
	}
	if size := b.lastSize; size > maxStored {
		t.Errorf("%d bytes in one record", size)
	}
	b.reload()
	k = b.core.(*consumer)
	if k.assignmentEpoch == k.epoch {
		t.Fatal("half a target counts as a whole one")
	}
	b.beat(heartbeatOf("m000", k.members["m000"].epoch))
	b.wait(time.Millisecond)
	if k.assignmentEpoch != k.epoch || len(k.rest) != 0 {
		t.Fatalf("the target for epoch %d is not finished: %d", k.epoch, k.assignmentEpoch)
	}
	owner := make(map[place]string)
	for id, p := range k.target {
		for topic, list := range p {
			for _, one := range list {
				if owner[place{topic, one}] != "" {
					t.Fatalf("partition of %x twice", topic)
				}
				owner[place{topic, one}] = id
			}
		}
	}
	if len(owner) != 850*20 {
		t.Errorf("%d partitions assigned", len(owner))
	}
}

// TestConsumerTooLarge: what could not be stored is refused, and changes nothing.
func TestConsumerTooLarge(t *testing.T) {
	b := newBench(t)
	var topics []string
	for n := range 200_000 {
		topics = append(topics, fmt.Sprintf("t%07d", n))
	}
	if got := b.beat(heartbeatOf("m", 0, topics...)); !errors.Is(got.Err, ErrTooLarge) {
		t.Errorf("answered %v", got.Err)
	}
	if len(b.entries) != 0 || !b.core.Disposable() {
		t.Error("something stays")
	}
}

// TestPatterns: the whole name must match; bounds hold; a look-up is cut into slices.
func TestPatterns(t *testing.T) {
	for pattern, names := range map[string]string{
		"a": "a", "a.*": "a ab abc", ".*b": "ab b", "a|abc": "a abc", "(?i)AB": "ab", "[^a].*": "b", "": "", "a$": "a", "^ab": "ab", "a|^b": "a b",
	} {
		re, _, err := compilePattern(pattern)
		if err != nil {
			t.Errorf("%q: %v", pattern, err)
			continue
		}
		var got []string
		for _, name := range []string{"a", "ab", "abc", "b"} {
			if re.MatchString(name) {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != names {
			t.Errorf("%q matches %v, want %s", pattern, got, names)
		}
	}
	for _, pattern := range []string{
		"[", "a)(b", "(?<", `\`, "a{1001}", strings.Repeat("(a{10}){10}", 4), strings.Repeat("a", maxPatternBytes+1), "a**", `\8`,
	} {
		if _, _, err := compilePattern(pattern); !errors.Is(err, ErrInvalidRegex) {
			t.Errorf("%.40q: %v", pattern, err)
		}
	}
	topics := newFakeTopics()
	for n := range 5000 {
		topics.set(fmt.Sprintf("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa%04d", n), 1)
	}
	l := beginLookup([]string{"(a?){40}[0-9]*", "none"}, topics, func(topic string) bool { return strings.HasSuffix(topic, "7") })
	slices := 1
	for ; !l.run(); slices++ {
	}
	if slices < 3 || len(l.found["(a?){40}[0-9]*"]) != 500 || len(l.found["none"]) != 0 {
		t.Errorf("%d slices, %d found", slices, len(l.found["(a?){40}[0-9]*"]))
	}
}

// TestConsumerBlobs: what clients write is read back, and whatever else they send neither panics nor allocates.
func TestConsumerBlobs(t *testing.T) {
	whole := blobSubscription([]string{"a", "bc"}, []namedPartitions{{"a", []int32{1, 2}}, {"bc", nil}})
	s, err := parseSubscription(whole)
	if err != nil || s.version != 1 || !slices.Equal(s.topics, []string{"a", "bc"}) || len(s.owned) != 2 || !slices.Equal(s.owned[0].partitions, []int32{1, 2}) {
		t.Fatalf("%+v %v", s, err)
	}
	newest := append([]byte{0, 9}, whole[2:]...)
	newest = append(newest, 0, 0, 0, 7, 0, 1, 'r', 1, 2, 3)
	if s, err := parseSubscription(newest); err != nil || s.rack != "r" {
		t.Errorf("a newer layout: %+v %v", s, err)
	}
	assignment := appendAssignment(nil, 1, []namedPartitions{{"a", []int32{0, 5}}})
	if got, err := parseAssignment(assignment); err != nil || len(got) != 1 || !slices.Equal(got[0].partitions, []int32{0, 5}) {
		t.Errorf("%v %v", got, err)
	}
	for _, b := range [][]byte{whole, assignment, newest} {
		for i := range b {
			if _, err := parseSubscription(b[:i]); err == nil && i < 10 {
				t.Errorf("%x cut to %d is read", b, i)
			}
			_, _ = parseAssignment(b[:i])
		}
	}
	rnd := rand.New(rand.NewPCG(churnSeed(), 3))
	for range 20_000 {
		b := slices.Clone([][]byte{whole, assignment, newest}[rnd.IntN(3)])
		for range 1 + rnd.IntN(4) {
			b[rnd.IntN(len(b))] = byte(rnd.Uint32())
		}
		_, _ = parseSubscription(b)
		_, _ = parseAssignment(b)
	}
	huge := []byte{0, 0, 0x7f, 0xff, 0xff, 0xff}
	if n := testing.AllocsPerRun(10, func() { _, _ = parseSubscription(huge) }); n > 5 {
		t.Errorf("%v allocations", n)
	}
}

// TestConsumerEntries: damaged entries are refused and never panic; newer ones are told apart.
func TestConsumerEntries(t *testing.T) {
	b := newBench(t)
	b.topics.set("a", 5)
	b.beat(heartbeatOf("m", 0, "a"))
	join := heartbeatOf("n", 0)
	pattern := "a.*"
	join.Regex, join.SubscribedTopics = &pattern, nil
	b.beat(join)
	b.wait(time.Second)
	b.beat(heartbeatOf("n", b.core.(*consumer).members["n"].epoch))
	var entries []Entry
	for _, key := range slices.Sorted(maps.Keys(b.entries)) {
		entries = append(entries, Entry{Key: key, Value: b.entries[key]})
	}
	if len(entries) != 8 {
		t.Fatalf("%d entries", len(entries))
	}
	load := func(change func(list []Entry) []Entry) error {
		_, err := Load("g", change(slices.Clone(entries)), b.env(0))
		return err
	}
	if err := load(func(list []Entry) []Entry { return list }); err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		err := load(func(list []Entry) []Entry {
			list[i].Value = bytes.Clone(list[i].Value)
			list[i].Value[0] = 9
			return list
		})
		if !errors.Is(err, ErrNewerEntry) && !errors.Is(err, ErrCorruptEntry) || entries[i].Key != headKey && !errors.Is(err, ErrNewerEntry) {
			t.Errorf("newer %s: %v", entries[i].Key, err)
		}
		for size := range len(entries[i].Value) {
			err := load(func(list []Entry) []Entry { list[i].Value = list[i].Value[:size]; return list })
			if !errors.Is(err, ErrCorruptEntry) {
				t.Errorf("%s cut to %d of %d: %v", entries[i].Key, size, len(entries[i].Value), err)
			}
		}
		if key := entries[i].Key; strings.HasPrefix(key, memberKey) || strings.HasPrefix(key, currentKey) {
			// Half of a member is one that was being put out.
			core, err := Load("g", slices.Delete(slices.Clone(entries), i, i+1), b.env(0))
			if err != nil {
				t.Fatalf("without %s: %v", key, err)
			}
			if c := core.(*consumer); c.members[key[len(memberKey):]] != nil || c.epoch == c.assignmentEpoch {
				t.Errorf("without %s the member is there, or its partitions stay where they are", key)
			}
		}
	}
	rnd := rand.New(rand.NewPCG(churnSeed(), 4))
	for range 20_000 {
		_ = load(func(list []Entry) []Entry {
			i := rnd.IntN(len(list))
			list[i].Value = bytes.Clone(list[i].Value)
			list[i].Value[rnd.IntN(len(list[i].Value))] = byte(rnd.Uint32())
			return list
		})
	}
	if err := load(func(list []Entry) []Entry { return append(list, Entry{Key: "z", Value: []byte{1}}) }); !errors.Is(err, ErrCorruptEntry) {
		t.Errorf("an unknown key: %v", err)
	}
}

// TestConsumerRacks: a change of racks is a reason to assign anew (KIP-1101), another broker's address is not.
func TestConsumerRacks(t *testing.T) {
	b := newBench(t)
	b.topics.set("a", 4)
	first := b.beat(heartbeatOf("m", 0, "a"))
	b.topics.index++
	if got := b.beat(heartbeatOf("m", first.MemberEpoch)); got.MemberEpoch != first.MemberEpoch {
		t.Errorf("epoch %d after a change that says nothing", got.MemberEpoch)
	}
	b.topics.racks = []string{"x", "y"}
	b.topics.index++
	if got := b.beat(heartbeatOf("m", first.MemberEpoch)); got.MemberEpoch != first.MemberEpoch+1 {
		t.Errorf("epoch %d after a change of racks", got.MemberEpoch)
	}
}

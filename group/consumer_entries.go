package group

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/keeplog/keeplog/internal/invariant"
)

// What is stored of a consumer group. Numbers are varints (unsigned; signed ones zig-zag), strings and lists begin with their
// length, topic ids are 16 bytes. Partitions of a topic are sorted and stored as the distance to the one before.
//
//	g            1 │ type 2 │ epoch │ assignment epoch │ assigned at ms │ hash 8 bytes
//	m/MEMBER     1 │ instance │ rack │ client id │ host │ rebalance timeout ms │ topics [string] │ regex │ assignor │
//	             0, or 1 │ session timeout ms │ protocols [name │ metadata]
//	c/MEMBER     1 │ epoch │ epoch before │ state │ assigned grants │ revoking grants
//	t/MEMBER     1 │ partitions
//	r/REGEX      1 │ index │ at ms │ topics [string]
//
//	partitions   [topic id │ [distance]]              grants   [topic id │ [distance │ epoch]]
//
// g is the group's epochs, m what a member told, c what it holds, t what it should hold, r what a regular expression stands
// for. A member has m and c, t once a target was computed with it; one with half of it is being put out.
const (
	memberKey  = "m/"
	currentKey = "c/"
	targetKey  = "t/"
	regexKey   = "r/"
)

const consumerLayout = 1

func (s *consumerState) appendHead(b []byte) []byte {
	b = append(b, consumerLayout, byte(Consumer))
	b = binary.AppendVarint(b, int64(s.epoch))
	b = binary.AppendVarint(b, int64(s.assignmentEpoch))
	b = binary.AppendVarint(b, s.assignedMs)
	return binary.BigEndian.AppendUint64(b, s.hash)
}

func appendMember(b []byte, m *consumerMember) []byte {
	b = append(b, consumerLayout)
	for _, field := range []string{m.instance, m.rack, m.clientID, m.clientHost} {
		b = appendText(b, field)
	}
	b = binary.AppendVarint(b, int64(m.rebalanceTimeoutMs))
	b = appendTexts(b, m.topics)
	b = appendText(b, m.regex)
	b = appendText(b, m.assignor)
	if m.classic == nil {
		return append(b, 0)
	}
	b = append(b, 1)
	b = binary.AppendVarint(b, int64(m.classic.sessionTimeoutMs))
	b = binary.AppendUvarint(b, uint64(len(m.classic.protocols)))
	for _, p := range m.classic.protocols {
		b = appendText(b, p.Name)
		b = appendText(b, string(p.Metadata))
	}
	return b
}

func appendCurrent(b []byte, m *consumerMember) []byte {
	b = append(b, consumerLayout)
	b = binary.AppendVarint(b, int64(m.epoch))
	b = binary.AppendVarint(b, int64(m.previous))
	b = append(b, byte(m.state))
	b = appendGrants(b, m.assigned)
	if invariant.Seeded(invariant.ForgetRevoking) {
		return appendGrants(b, nil)
	}
	return appendGrants(b, m.revoking)
}

func appendTarget(b []byte, p Partitions) []byte {
	b = append(b, consumerLayout)
	b = binary.AppendUvarint(b, uint64(len(p)))
	for _, id := range p.topics() {
		b = append(b, id[:]...)
		b = binary.AppendUvarint(b, uint64(len(p[id])))
		last := int32(0)
		for _, one := range p[id] {
			b = binary.AppendUvarint(b, uint64(one-last))
			last = one
		}
	}
	return b
}

func appendRegex(b []byte, r resolvedRegex) []byte {
	b = append(b, consumerLayout)
	b = binary.AppendUvarint(b, r.index)
	b = binary.AppendVarint(b, r.atMs)
	return appendTexts(b, r.topics)
}

func appendGrants(b []byte, g grants) []byte {
	b = binary.AppendUvarint(b, uint64(len(g)))
	for _, id := range g.topics() {
		b = append(b, id[:]...)
		b = binary.AppendUvarint(b, uint64(len(g[id])))
		last := int32(0)
		for _, one := range g[id] {
			b = binary.AppendUvarint(b, uint64(one.partition-last))
			b = binary.AppendVarint(b, int64(one.epoch))
			last = one.partition
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendTexts(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendText(b, s)
	}
	return b
}

// stored are all entries of the group, by key; none of a group that never was.
func (s *consumerState) stored() []Entry {
	if s.epoch == 0 {
		return nil
	}
	entries := []Entry{{Key: headKey, Value: s.appendHead(nil)}}
	for _, m := range s.members {
		entries = append(entries, Entry{Key: memberKey + m.id, Value: appendMember(nil, m)}, Entry{Key: currentKey + m.id, Value: appendCurrent(nil, m)})
	}
	for id, p := range s.target {
		entries = append(entries, Entry{Key: targetKey + id, Value: appendTarget(nil, p)})
	}
	for pattern, r := range s.regexes {
		entries = append(entries, Entry{Key: regexKey + pattern, Value: appendRegex(nil, r)})
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Key, b.Key) })
	return entries
}

// errLayout is what fold says of a value; the caller adds the place.
var errLayout = errors.New("bad layout")

// foldConsumer makes a state from all entries of a group. Where many members went at once their entries may be gone in part: what is
// left of them is no member, and its keys are left over.
func foldConsumer(group string, entries []Entry) (s consumerState, left []string, err error) {
	s = newConsumerState()
	members := make(map[string]*consumerMember)
	halves := make(map[string]int)
	for _, e := range entries {
		var err error
		r := entryReader{rest: e.Value}
		switch version := r.byte(); {
		case version > consumerLayout:
			return s, nil, newerEntry(group, e.Key)
		case e.Key == headKey:
			s.foldHead(&r)
		default:
			err = s.foldKey(e.Key, &r, members, halves)
		}
		if err != nil || r.bad || len(r.rest) > 0 {
			return s, nil, corruptEntry(group, e.Key)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(members)) {
		switch {
		case halves[id] != 2:
			left = append(left, memberKey+id, currentKey+id)
		case !s.set(members[id]):
			return s, nil, corruptEntry(group, currentKey+id)
		}
	}
	for id := range s.target {
		if s.members[id] == nil {
			delete(s.target, id)
			left = append(left, targetKey+id)
		}
	}
	return s, left, nil
}

func (s *consumerState) foldHead(r *entryReader) {
	r.byte()
	s.epoch, s.assignmentEpoch, s.assignedMs = int32(r.signed()), int32(r.signed()), r.signed()
	if b := r.take(8); b != nil {
		s.hash = binary.BigEndian.Uint64(b)
	}
}

func (s *consumerState) foldKey(key string, r *entryReader, members map[string]*consumerMember, halves map[string]int) error {
	kind, name := key[:min(2, len(key))], key[min(2, len(key)):]
	switch kind {
	case targetKey:
		s.target[name] = r.partitions()
	case regexKey:
		s.regexes[name] = resolvedRegex{index: r.unsigned(), atMs: r.signed(), topics: r.texts()}
	case memberKey, currentKey:
		m := members[name]
		if m == nil {
			m = newConsumerMember(name)
			members[name] = m
		}
		halves[name]++
		if kind == memberKey {
			r.member(m)
		} else {
			m.epoch, m.previous, m.state = int32(r.signed()), int32(r.signed()), memberState(r.byte())
			m.assigned, m.revoking = r.grants(), r.grants()
			if m.state < stable || m.state > unreleased {
				return errLayout
			}
		}
	default:
		return errLayout
	}
	return nil
}

// entryReader reads fields off the front of an entry. After the first one that does not fit it only gives zeroes.
type entryReader struct {
	rest []byte
	bad  bool
}

func (r *entryReader) fail() { r.bad, r.rest = true, nil }

func (r *entryReader) take(n int) []byte {
	if r.bad || n > len(r.rest) {
		r.fail()
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *entryReader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *entryReader) unsigned() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *entryReader) signed() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// count reads the number of elements of at least size bytes each; it never says more than the bytes left could hold.
func (r *entryReader) count(size int) int {
	n := r.unsigned()
	if n > uint64(len(r.rest)/size) {
		r.fail()
		return 0
	}
	return int(n)
}

func (r *entryReader) text() string { return string(r.take(r.count(1))) }

func (r *entryReader) texts() []string {
	var list []string
	for range r.count(1) {
		list = append(list, r.text())
	}
	return list
}

func (r *entryReader) topic() (id TopicID) {
	copy(id[:], r.take(len(id)))
	return id
}

// next is a partition that is d after last, and fails beyond what a partition number can be.
func (r *entryReader) next(last int32) int32 {
	d := r.unsigned()
	if d > 1<<31-1 || int64(last)+int64(d) > 1<<31-1 {
		r.fail()
		return 0
	}
	return last + int32(d)
}

func (r *entryReader) partitions() Partitions {
	n := r.count(17)
	p := make(Partitions, n)
	for range n {
		id, last := r.topic(), int32(0)
		for range r.count(1) {
			last = r.next(last)
			p[id] = append(p[id], last)
		}
	}
	return p
}

func (r *entryReader) grants() grants {
	n := r.count(17)
	g := make(grants, n)
	for range n {
		id, last := r.topic(), int32(0)
		for range r.count(2) {
			last = r.next(last)
			g[id] = append(g[id], grant{last, int32(r.signed())})
		}
	}
	return g
}

func (r *entryReader) member(m *consumerMember) {
	m.instance, m.rack, m.clientID, m.clientHost = r.text(), r.text(), r.text(), r.text()
	m.rebalanceTimeoutMs = int32(r.signed())
	m.topics, m.regex, m.assignor = r.texts(), r.text(), r.text()
	if r.byte() == 0 {
		return
	}
	m.classic = &classicSide{sessionTimeoutMs: int32(r.signed())}
	for range r.count(2) {
		m.classic.protocols = append(m.classic.protocols, Protocol{Name: r.text(), Metadata: []byte(r.text())})
	}
}

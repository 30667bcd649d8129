package group

import (
	"slices"
	"strings"
	"time"
)

// What is stored of a classic group, when a generation has got its assignment, when a static member has taken its place again,
// and when the group has become empty:
//
//	"g"            ┌─────────┬──────┬────────────┬───────────────┬──────────┬────────┬──────────┐
//	               │ version │ type │ generation │ protocol type │ protocol │ leader │ since ms │
//	               │ 1 byte  │ 1    │ varint     │ optional text │ opt.     │ text   │ varint   │
//	               └─────────┴──────┴────────────┴───────────────┴──────────┴────────┴──────────┘
//	"m/" member id ┌─────────┬───────┬───────────┬──────┬──────────┬─────────┬───────────┬──────────┬────────────┐
//	               │ version │ place │ client id │ host │ instance │ session │ rebalance │ metadata │ assignment │
//	               │ 1 byte  │ uvar. │ text      │ text │ opt.     │ ms      │ ms        │ bytes    │ bytes      │
//	               └─────────┴───────┴───────────┴──────┴──────────┴─────────┴───────────┴──────────┴────────────┘
//
// The metadata is that of the chosen protocol. The place is the member's in the order of joining.
const (
	entryVersion = 1
	memberPrefix = "m/"
)

// store asks for what differs from what is stored. False: it is too large, and nothing is asked for.
func (c *classic) store(f *effects) bool {
	after := c.entries()
	changes := Replacing(c.stored, after)
	size := 0
	for _, e := range changes {
		size += storedSize(e)
	}
	if size > maxStored {
		return false
	}
	c.stored = after
	f.Entries = append(f.Entries, changes...)
	return true
}

// Stored is what is stored of the group.
func (c *classic) Stored() []Entry { return slices.Clone(c.stored) }

func (c *classic) entries() []Entry {
	w := []byte{entryVersion, byte(Classic)}
	w = putInt(w, int64(c.generation))
	w = putOptional(putOptional(w, c.protocolType), c.protocol)
	w = putInt(putText(w, c.leader), c.since.UnixMilli())
	entries := make([]Entry, 0, len(c.members)+1)
	entries = append(entries, Entry{Key: headKey, Value: w})
	for i, m := range c.members {
		entries = append(entries, Entry{Key: memberPrefix + m.id, Value: m.encode(i, c.protocol)})
	}
	return sortEntries(entries)
}

func (m *member) encode(place int, protocol *string) []byte {
	metadata := m.metadata(protocol)
	w := make([]byte, 0, 64+len(m.clientID)+len(m.clientHost)+len(metadata)+len(m.assignment))
	w = putUint(append(w, entryVersion), uint64(place))
	w = putOptional(putText(putText(w, m.clientID), m.clientHost), m.instance)
	w = putInt(putInt(w, m.session.Milliseconds()), m.rebalance.Milliseconds())
	return putBytes(putBytes(w, metadata), m.assignment)
}

// loadClassic folds entries into the group that stored them. Its members have a new session each.
func loadClassic(group string, entries []Entry, env Env) (*classic, error) {
	c := newClassic(group)
	head, _ := findEntry(entries, headKey)
	if err := c.decodeHead(head); err != nil {
		return nil, err
	}
	places := map[*member]uint64{}
	for _, e := range entries {
		id, ok := strings.CutPrefix(e.Key, memberPrefix)
		if !ok {
			continue
		}
		m, place, err := c.decodeMember(id, e)
		if err != nil {
			return nil, err
		}
		places[m] = place
		c.members = append(c.members, m)
		c.byID[id] = m
		if m.instance != nil {
			c.static[*m.instance] = m
		}
		c.size += m.memory()
		c.extend(m, env.Now)
	}
	slices.SortStableFunc(c.members, func(a, b *member) int { return int(places[a]) - int(places[b]) })
	if len(c.members) > 0 {
		c.state = classicStable
	}
	if c.byID[c.leader] == nil && len(c.members) > 0 {
		c.leader = c.members[0].id
	}
	c.learnTopics()
	c.stored = slices.Clone(entries)
	return c, nil
}

func (c *classic) decodeHead(value []byte) error {
	r := &reader{rest: value}
	if v := r.byte(); v > entryVersion {
		return newerEntry(c.id, headKey)
	}
	r.byte()
	c.generation = r.int32()
	c.protocolType, c.protocol = r.optional(), r.optional()
	c.leader = r.text()
	c.since = time.UnixMilli(r.int())
	return r.end(c.id, headKey)
}

func (c *classic) decodeMember(id string, e Entry) (*member, uint64, error) {
	r := &reader{rest: e.Value}
	if v := r.byte(); v > entryVersion {
		return nil, 0, newerEntry(c.id, e.Key)
	}
	place := r.uint()
	m := &member{id: id, clientID: r.text(), clientHost: r.text(), instance: r.optional()}
	m.session, m.rebalance = time.Duration(r.int())*time.Millisecond, time.Duration(r.int())*time.Millisecond
	metadata := r.bytes()
	m.assignment = r.bytes()
	if c.protocol != nil {
		m.protocols = []Protocol{{*c.protocol, metadata}}
	}
	return m, place, r.end(c.id, e.Key)
}

// learnTopics reads what the members subscribe to. Nil when that is not known: no consumers, or metadata that cannot be read.
func (c *classic) learnTopics() {
	c.topics = nil
	if !c.consumers() || c.protocol == nil && len(c.members) > 0 {
		return
	}
	topics := map[string]bool{}
	for _, m := range c.members {
		if !readTopics(m.metadata(c.protocol), topics) {
			return
		}
	}
	c.topics = topics
}

func (c *classic) consumers() bool {
	return c.protocolType != nil && *c.protocolType == consumerProtocol
}

// readTopics reads the topics out of what a consumer tells for its protocol: a version, and an array of names, as in all
// versions. All numbers are big-endian, a name has its length in two bytes before it.
func readTopics(metadata []byte, topics map[string]bool) bool {
	if len(metadata) < 6 {
		return false
	}
	version := int16(metadata[0])<<8 | int16(metadata[1])
	n := int32(metadata[2])<<24 | int32(metadata[3])<<16 | int32(metadata[4])<<8 | int32(metadata[5])
	rest := metadata[6:]
	if version < 0 || n < 0 || int64(n) > int64(len(rest)/2) {
		return false
	}
	for range n {
		if len(rest) < 2 {
			return false
		}
		size := int(rest[0])<<8 | int(rest[1])
		if size > 0x7fff || size > len(rest)-2 {
			return false
		}
		topics[string(rest[2:2+size])] = true
		rest = rest[2+size:]
	}
	return true
}

package dump

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"

	"github.com/keeplog/keeplog/record"
)

// controlEntry says what a control record means. What it holds of Kafka's metadata log is shown by its name alone.
func controlEntry(r *record.Record) (*Entry, error) {
	c, err := record.ParseControl(r)
	if err != nil {
		return nil, err
	}
	e := &Entry{What: c.Type.String()}
	switch c.Type {
	case record.ControlAbort, record.ControlCommit:
		e.Fields = []Field{{"marker", c.Type.String()}, {"coordinator_epoch", c.CoordinatorEpoch}}
	case record.ControlLeaderChange:
		e.Fields = []Field{{"marker", c.Type.String()}}
		if len(r.Value) >= 6 { // version, then leader id
			e.Fields = append(e.Fields, Field{"leader", int32(binary.BigEndian.Uint32(r.Value[2:]))})
		}
	default:
		e.Fields = []Field{{"marker", c.Type.String()}}
	}
	return e, nil
}

// decodeInternal reads a record of Kafka's topics __consumer_offsets ("offsets") and __transaction_state ("txn").
func decodeInternal(kind string, r *record.Record) (*Entry, error) {
	k := reader{b: r.Key}
	version := k.int16()
	if k.bad {
		return nil, fmt.Errorf("key of %d bytes", len(r.Key))
	}
	v := reader{b: r.Value}
	var e *Entry
	switch {
	case kind == "txn" && version == 0:
		e = transactionState(&k, &v, r.Value == nil)
	case kind == "txn":
		return nil, fmt.Errorf("key version %d", version)
	case version == 0 || version == 1:
		e = offsetCommit(&k, &v, r.Value == nil)
	case version == 2:
		e = classicGroup(&k, &v, r.Value == nil)
	case version >= 3 && version <= 8 || version == 16:
		e = consumerGroup(version, &k, &v, r.Value == nil)
	default:
		return &Entry{What: fmt.Sprintf("record type %d", version), Fields: []Field{{"type", fmt.Sprintf("record type %d", version)}}}, nil
	}
	if k.bad || v.bad {
		return e, fmt.Errorf("type %d: it ends too early or has a length that cannot be", version)
	}
	return e, nil
}

func made(what string, tombstone bool, fields ...Field) *Entry {
	e := &Entry{What: what, Fields: append([]Field{{"type", what}}, fields...)}
	if tombstone {
		e.add("tombstone", true)
	}
	return e
}

func (e *Entry) add(name string, value any) { e.Fields = append(e.Fields, Field{name, value}) }

func offsetCommit(k, v *reader, tombstone bool) *Entry {
	e := made("offset commit", tombstone, Field{"group", k.string()}, Field{"topic", k.string()}, Field{"partition", k.int32()})
	if tombstone {
		return e
	}
	version := v.int16()
	v.flexible = version >= 4
	e.add("version", version)
	e.add("offset", v.int64())
	if version >= 3 {
		e.add("leader_epoch", v.int32())
	}
	e.add("metadata", v.string())
	e.add("commit_timestamp", v.int64())
	if version == 1 {
		e.add("expire_timestamp", v.int64())
	}
	v.tags(func(tag uint64, t *reader) {
		if tag == 0 {
			e.add("topic_id", t.uuid())
		}
	})
	return e
}

func classicGroup(k, v *reader, tombstone bool) *Entry {
	e := made("group metadata", tombstone, Field{"group", k.string()})
	if tombstone {
		return e
	}
	version := v.int16()
	v.flexible = version >= 4
	e.add("version", version)
	e.add("protocol_type", v.string())
	e.add("generation", v.int32())
	e.add("protocol", v.nullable())
	e.add("leader", v.nullable())
	if version >= 2 {
		e.add("state_timestamp", v.int64())
	}
	members := []any{}
	for range v.array(10) {
		m := &Entry{}
		m.add("member", v.string())
		if version >= 3 {
			m.add("instance", v.nullable())
		}
		m.add("client", v.string())
		m.add("host", v.string())
		if version >= 1 {
			m.add("rebalance_timeout", v.int32())
		}
		m.add("session_timeout", v.int32())
		m.add("subscription_bytes", v.bytes())
		m.add("assignment_bytes", v.bytes())
		v.tags(nil)
		members = append(members, m)
	}
	e.add("members", members)
	v.tags(nil)
	return e
}

var consumerGroupTypes = map[int16]string{
	3: "consumer group", 4: "consumer group partitions", 5: "consumer group member", 6: "target assignment", 7: "target assignment of member",
	8: "current assignment of member", 16: "regular expression",
}

// consumerGroup reads the records of KIP-848. Their keys are of the old layout, their values flexible.
func consumerGroup(version int16, k, v *reader, tombstone bool) *Entry {
	e := made(consumerGroupTypes[version], tombstone, Field{"group", k.string()})
	switch version {
	case 5, 7, 8:
		e.add("member", k.string())
	case 16:
		e.add("regex", k.string())
	}
	if tombstone {
		return e
	}
	e.add("version", v.int16())
	v.flexible = true
	switch version {
	case 3:
		e.add("epoch", v.int32())
	case 4:
		e.add("topics", v.array(4))
		return e
	case 5:
		e.add("instance", v.nullable())
		e.add("rack", v.nullable())
		e.add("client", v.string())
		e.add("host", v.string())
		e.add("topics", v.strings())
		e.add("topic_regex", v.nullable())
		e.add("rebalance_timeout", v.int32())
		e.add("assignor", v.nullable())
	case 6:
		e.add("assignment_epoch", v.int32())
	case 7:
		e.add("partitions", v.assignment())
	case 8:
		e.add("member_epoch", v.int32())
		e.add("previous_member_epoch", v.int32())
		e.add("state", v.int8())
		e.add("partitions", v.assignment())
		e.add("pending_revocation", v.assignment())
	case 16:
		e.add("topics", v.strings())
		e.add("resolved_version", v.int64())
		e.add("resolved_timestamp", v.int64())
	}
	v.tags(nil)
	return e
}

var transactionStates = [...]string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"}

func transactionState(k, v *reader, tombstone bool) *Entry {
	e := made("transaction", tombstone, Field{"transactional_id", k.string()})
	if tombstone {
		return e
	}
	version := v.int16()
	v.flexible = version >= 1
	e.add("version", version)
	e.add("producer_id", v.int64())
	e.add("producer_epoch", v.int16())
	e.add("timeout", v.int32())
	state := v.int8()
	if state >= 0 && int(state) < len(transactionStates) {
		e.add("state", transactionStates[state])
	} else {
		e.add("state", fmt.Sprintf("unknown %d", state))
	}
	partitions := []any{}
	for range v.arrayNullable(3) {
		t := &Entry{}
		t.add("topic", v.string())
		t.add("partitions", v.int32s())
		v.tags(nil)
		partitions = append(partitions, t)
	}
	e.add("partitions", partitions)
	e.add("last_update", v.int64())
	e.add("start", v.int64())
	v.tags(func(tag uint64, t *reader) {
		switch tag {
		case 0:
			e.add("previous_producer_id", t.int64())
		case 1:
			e.add("next_producer_id", t.int64())
		case 2:
			e.add("client_transaction_version", t.int16())
		case 3:
			e.add("next_producer_epoch", t.int16())
		}
	})
	return e
}

// reader takes values off the front of a message of Kafka's. A value that is not there sets bad and gives zero.
type reader struct {
	b        []byte
	flexible bool
	bad      bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n < 0 || n > len(r.b) {
		r.bad = true
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) int8() int8 {
	if v := r.take(1); v != nil {
		return int8(v[0])
	}
	return 0
}

func (r *reader) int16() int16 {
	if v := r.take(2); v != nil {
		return int16(binary.BigEndian.Uint16(v))
	}
	return 0
}

func (r *reader) int32() int32 {
	if v := r.take(4); v != nil {
		return int32(binary.BigEndian.Uint32(v))
	}
	return 0
}

func (r *reader) int64() int64 {
	if v := r.take(8); v != nil {
		return int64(binary.BigEndian.Uint64(v))
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.take(n)
	return v
}

// length reads the length of a text or byte string, −1 for null.
func (r *reader) length(wide bool) int {
	switch {
	case r.flexible:
		n := r.uvarint()
		if n > uint64(len(r.b))+1 {
			r.bad = true
			return 0
		}
		return int(n) - 1
	case wide:
		return int(r.int32())
	}
	return int(r.int16())
}

func (r *reader) string() string {
	n := r.length(false)
	if n < 0 {
		return ""
	}
	return string(r.take(n))
}

func (r *reader) nullable() any {
	n := r.length(false)
	if n < 0 {
		return nil
	}
	return string(r.take(n))
}

// bytes reads a byte string and returns its length.
func (r *reader) bytes() int {
	n := r.length(true)
	if n < 0 {
		return 0
	}
	return len(r.take(n))
}

// array reads the count of an array whose elements have at least size bytes.
func (r *reader) array(size int) int {
	n := int64(0)
	if r.flexible {
		u := r.uvarint()
		if u > uint64(len(r.b))+1 {
			r.bad = true
			return 0
		}
		n = int64(u) - 1
	} else {
		n = int64(r.int32())
	}
	if n < -1 || n*int64(size) > int64(len(r.b)) {
		r.bad = true
		return 0
	}
	return int(max(n, 0))
}

func (r *reader) arrayNullable(size int) int { return r.array(size) }

func (r *reader) strings() []string {
	all := []string{}
	for range r.array(1) {
		all = append(all, r.string())
	}
	return all
}

func (r *reader) int32s() []int32 {
	all := []int32{}
	for range r.array(4) {
		all = append(all, r.int32())
	}
	return all
}

func (r *reader) uuid() string {
	v := r.take(16)
	if v == nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(v)
}

// assignment reads topic ids with their partitions.
func (r *reader) assignment() []any {
	all := []any{}
	for range r.array(18) {
		e := &Entry{}
		e.add("topic_id", r.uuid())
		e.add("partitions", r.int32s())
		r.tags(nil)
		all = append(all, e)
	}
	return all
}

// tags reads the tagged fields at the end of a flexible struct.
func (r *reader) tags(each func(tag uint64, value *reader)) {
	if !r.flexible || r.bad {
		return
	}
	n := r.uvarint()
	if n*2 > uint64(len(r.b)) {
		r.bad = true
		return
	}
	for range n {
		tag, size := r.uvarint(), r.uvarint()
		if size > uint64(len(r.b)) {
			r.bad = true
			return
		}
		value := reader{b: r.take(int(size)), flexible: true}
		if each != nil && !r.bad {
			each(tag, &value)
			r.bad = r.bad || value.bad
		}
	}
}

package group

import (
	"encoding/binary"
	"errors"
)

// What classic members of protocol type "consumer" tell each other, in Kafka's ConsumerProtocol layout. The broker reads it
// only to serve such members inside of a consumer group, and to know what a group is subscribed to. All numbers are big-endian.
//
//	subscription  version i16 │ topics [string] │ user data bytes │ 1: owned [string, [i32]] │ 2: generation i32 │ 3: rack string
//	assignment    version i16 │ [topic string, partitions [i32]] │ user data bytes
//
//	string  length i16 │ bytes     (−1: null)         [x]  count i32 │ x …         bytes  length i32 │ bytes    (−1: null)

// errProtocolBlob says that a member's bytes are not what the consumer protocol asks for.
var errProtocolBlob = errors.New("group: malformed consumer protocol")

// maxSubscriptionVersion is the newest layout known. A newer one begins in the same way.
const maxSubscriptionVersion = 3

// namedPartitions are partitions of a topic that is named, not identified.
type namedPartitions struct {
	topic      string
	partitions []int32
}

type subscription struct {
	version int16
	topics  []string
	owned   []namedPartitions
	rack    string
}

// parseSubscription reads a member's metadata.
func parseSubscription(b []byte) (subscription, error) {
	r := blob{rest: b}
	s := subscription{version: r.i16()}
	for range r.count(2) {
		s.topics = append(s.topics, r.str())
	}
	r.bytes()
	if s.version >= 1 {
		s.owned = r.named()
	}
	if s.version >= 2 {
		r.i32()
	}
	if s.version >= 3 {
		s.rack = r.str()
	}
	if r.bad || s.version < 0 {
		return subscription{}, errProtocolBlob
	}
	return s, nil
}

// parseAssignment reads a member's assignment. No bytes at all are an empty one.
func parseAssignment(b []byte) ([]namedPartitions, error) {
	if len(b) == 0 {
		return nil, nil
	}
	r := blob{rest: b}
	version := r.i16()
	named := r.named()
	if r.bad || version < 0 {
		return nil, errProtocolBlob
	}
	return named, nil
}

// appendAssignment writes an assignment in the layout that a member of this subscription version reads.
func appendAssignment(b []byte, version int16, named []namedPartitions) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(min(version, maxSubscriptionVersion)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(named)))
	for _, t := range named {
		b = binary.BigEndian.AppendUint16(b, uint16(len(t.topic)))
		b = append(b, t.topic...)
		b = binary.BigEndian.AppendUint32(b, uint32(len(t.partitions)))
		for _, p := range t.partitions {
			b = binary.BigEndian.AppendUint32(b, uint32(p))
		}
	}
	return binary.BigEndian.AppendUint32(b, ^uint32(0))
}

// blob reads fields off the front of bytes that others wrote. After the first one that does not fit it only gives zeroes.
type blob struct {
	rest []byte
	bad  bool
}

func (r *blob) take(n int) []byte {
	if r.bad || n < 0 || n > len(r.rest) {
		r.bad, r.rest = true, nil
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *blob) i16() int16 {
	if b := r.take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *blob) i32() int32 {
	if b := r.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

// count reads the number of elements of at least size bytes each; it never says more than the bytes left could hold.
func (r *blob) count(size int) int {
	n := int(r.i32())
	if n < -1 || n > len(r.rest)/size {
		r.bad, r.rest = true, nil
		return 0
	}
	return max(n, 0)
}

func (r *blob) str() string {
	n := r.i16()
	if n == -1 {
		return ""
	}
	return string(r.take(int(n)))
}

func (r *blob) bytes() []byte {
	n := r.i32()
	if n == -1 {
		return nil
	}
	return r.take(int(n))
}

func (r *blob) named() []namedPartitions {
	var named []namedPartitions
	for range r.count(6) {
		t := namedPartitions{topic: r.str()}
		n := r.count(4)
		t.partitions = make([]int32, 0, n)
		for range n {
			t.partitions = append(t.partitions, r.i32())
		}
		named = append(named, t)
	}
	return named
}

package api

import (
	"encoding/binary"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/protocol"
)

// The answer to a Fetch is laid out by hand, so that record batches stay where they are: spans of log files between pieces of this head.

// answer makes the answer of a fetch and takes its spans over.
func (f *fetchCall) answer() Answer {
	list := make([]int, 0, len(f.parts))
	if f.session != nil {
		f.session.settle(f, func(i int) { list = append(list, i) })
	} else {
		for i := range f.parts {
			list = append(list, i)
		}
	}
	e := fetchEncoder{f: f, version: f.call.Version, flexible: f.call.Version >= 12, b: f.call.begin()}
	e.encode(list)
	return e.finish()
}

// fetchEncoder builds the head, and notes where in it the spans go.
type fetchEncoder struct {
	f        *fetchCall
	version  int16
	flexible bool
	b        []byte
	cuts     []int // offsets in b, one for each span
	spans    []Span
	nodes    []int32 // leaders to name at the end
}

func (e *fetchEncoder) encode(list []int) {
	be := binary.BigEndian
	e.b = be.AppendUint32(e.b, 0) // throttle time
	if e.version >= 7 {
		e.b = be.AppendUint16(e.b, 0)
		e.b = be.AppendUint32(e.b, uint32(e.f.sessionID))
	}
	e.array(e.topics(list))
	for i := 0; i < len(list); {
		j := i + 1
		for j < len(list) && e.same(list[i], list[j]) {
			j++
		}
		e.topic(list[i:j])
		i = j
	}
	e.tail()
}

// same says that two partitions stand under one topic entry.
func (e *fetchEncoder) same(i, j int) bool {
	a, b := &e.f.parts[i], &e.f.parts[j]
	if e.version >= 13 {
		return a.id == b.id
	}
	return a.name == b.name
}

func (e *fetchEncoder) topics(list []int) int {
	n := 0
	for i := range list {
		if i == 0 || !e.same(list[i-1], list[i]) {
			n++
		}
	}
	return n
}

func (e *fetchEncoder) topic(list []int) {
	p := &e.f.parts[list[0]]
	if e.version >= 13 {
		e.b = append(e.b, p.id[:]...)
	} else {
		e.text(p.name)
	}
	e.array(len(list))
	for _, i := range list {
		e.partition(&e.f.parts[i])
	}
	e.noTags()
}

func (e *fetchEncoder) partition(p *fetchPart) {
	be, r := binary.BigEndian, &p.res
	hw, lso, start := int64(r.HighWatermark), int64(r.LastStable), int64(r.LogStart)
	errorCode := code(r.Err)
	if r.Err != nil {
		hw, lso = -1, -1
		if e.f.replica == nil { // a follower out of range goes on there
			start = -1
		}
		if errorCode == codeUnknownServerError {
			e.f.api.log.Error("fetch failed", "topic", p.name, "partition", p.partition, "cause", r.Err)
		}
	}
	e.b = be.AppendUint32(e.b, uint32(p.partition))
	e.b = be.AppendUint16(e.b, uint16(errorCode))
	e.b = be.AppendUint64(e.b, uint64(hw))
	e.b = be.AppendUint64(e.b, uint64(lso))
	if e.version >= 5 {
		e.b = be.AppendUint64(e.b, uint64(start))
	}
	// No transaction is ever aborted here: an empty list for those who ask, null for the others.
	if missing(r.Err) || e.f.committed && r.Err == nil {
		e.array(0)
	} else {
		e.null()
	}
	if e.version >= 11 {
		preferred := int32(-1)
		if r.Redirect && r.Err == nil {
			preferred = r.Preferred
		}
		e.b = be.AppendUint32(e.b, uint32(preferred))
	}
	n := 0
	if r.Span != nil && r.Err == nil && r.DivergingEpoch < 0 {
		n = r.Span.Len()
	}
	if e.flexible {
		e.b = binary.AppendUvarint(e.b, uint64(n)+1)
	} else {
		e.b = be.AppendUint32(e.b, uint32(n))
	}
	switch {
	case n > 0:
		e.cuts = append(e.cuts, len(e.b))
		e.spans = append(e.spans, r.Span)
	case r.Span != nil:
		r.Span.Release()
	}
	r.Span = nil
	e.partitionTags(p, errorCode)
}

// partitionTags writes the tagged fields: 0 diverging epoch, 1 current leader.
func (e *fetchEncoder) partitionTags(p *fetchPart, errorCode int16) {
	if !e.flexible {
		return
	}
	be, r := binary.BigEndian, &p.res
	diverging := r.Err == nil && r.DivergingEpoch >= 0
	leader := e.version >= 16 && (errorCode == codeNotLeader || errorCode == codeFencedLeaderEpoch)
	n := byte(0)
	if diverging {
		n++
	}
	if leader {
		n++
	}
	e.b = append(e.b, n)
	if diverging {
		e.b = append(e.b, 0, 13)
		e.b = be.AppendUint32(e.b, uint32(r.DivergingEpoch))
		e.b = be.AppendUint64(e.b, uint64(r.DivergingEnd))
		e.b = append(e.b, 0)
	}
	if leader {
		l := p.other
		if p.part != nil {
			l = p.part.Leadership()
		}
		e.b = append(e.b, 1, 9)
		e.b = be.AppendUint32(e.b, uint32(l.Leader))
		e.b = be.AppendUint32(e.b, uint32(l.Epoch))
		e.b = append(e.b, 0)
		e.nodes = append(e.nodes, l.Leader)
	}
}

// tail writes the tagged fields of the whole: 0 the endpoints of the leaders that were named.
func (e *fetchEncoder) tail() {
	if !e.flexible {
		return
	}
	nodes := e.f.api.leaders(e.f.call, e.f.api.o.Images.Image(), e.nodes)
	if len(nodes) == 0 {
		e.b = append(e.b, 0)
		return
	}
	body := binary.AppendUvarint(nil, uint64(len(nodes))+1)
	for _, n := range nodes {
		body = binary.BigEndian.AppendUint32(body, uint32(n.id))
		body = compactText(body, &n.host)
		body = binary.BigEndian.AppendUint32(body, uint32(n.port))
		body = compactText(body, n.rack)
		body = append(body, 0)
	}
	e.b = append(e.b, 1, 0)
	e.b = binary.AppendUvarint(e.b, uint64(len(body)))
	e.b = append(e.b, body...)
}

// leaders are the endpoints of brokers, each once.
func (a *API) leaders(c *Call, img *metadata.Image, ids []int32) []node {
	var l []node
next:
	for i, id := range ids {
		for _, o := range ids[:i] {
			if o == id {
				continue next
			}
		}
		if n, ok := a.node(c, img, id); ok {
			l = append(l, n)
		}
	}
	return l
}

// finish cuts the head where the spans go and fills the size in.
func (e *fetchEncoder) finish() Answer {
	c := e.f.call
	c.Scratch = e.b
	if len(e.cuts) == 0 {
		if err := protocol.FinishFrame(e.b, 0, 0); err != nil {
			return Answer{Close: err}
		}
		return Answer{Head: e.b}
	}
	var more int64
	parts := make([]Part, 0, 2*len(e.cuts))
	for i, s := range e.spans {
		more += int64(s.Len())
		parts = append(parts, Part{Span: s})
		end := len(e.b)
		if i+1 < len(e.cuts) {
			end = e.cuts[i+1]
		}
		parts = append(parts, Part{Bytes: e.b[e.cuts[i]:end]})
	}
	if err := protocol.FinishFrame(e.b, 0, more); err != nil {
		return Answer{Parts: parts, Close: err}
	}
	return Answer{Head: e.b[:e.cuts[0]], Parts: parts}
}

func (e *fetchEncoder) array(n int) {
	if e.flexible {
		e.b = binary.AppendUvarint(e.b, uint64(n)+1)
		return
	}
	e.b = binary.BigEndian.AppendUint32(e.b, uint32(n))
}

func (e *fetchEncoder) null() {
	if e.flexible {
		e.b = append(e.b, 0)
		return
	}
	e.b = binary.BigEndian.AppendUint32(e.b, 0xffff_ffff)
}

func (e *fetchEncoder) text(s string) {
	if e.flexible {
		e.b = compactText(e.b, &s)
		return
	}
	e.b = binary.BigEndian.AppendUint16(e.b, uint16(len(s)))
	e.b = append(e.b, s...)
}

func (e *fetchEncoder) noTags() {
	if e.flexible {
		e.b = append(e.b, 0)
	}
}

// compactText appends a string of a flexible version; nil is null.
func compactText(b []byte, s *string) []byte {
	if s == nil {
		return append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(*s))+1)
	return append(b, *s...)
}

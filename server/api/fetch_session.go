package api

import (
	"crypto/rand"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
)

// Fetch sessions (KIP-227): a client names its partitions once and later only what changed; the broker answers only what changed.

const (
	finalEpoch int32 = -1
	// maxSessionParts bounds the partitions of all sessions together, some 250 bytes each. A client that would need more goes on without.
	maxSessionParts = 1 << 20
	// evictAfter is how long a session may lie unused before it can be evicted, and how old it must be before a larger one may take its
	// place.
	evictAfter = 2 * time.Minute
)

// partKey names a partition in a session: by name, or by id.
type partKey struct {
	name      string
	id        metadata.TopicID
	partition int32
}

// sessionPart is one partition of a session. It is guarded by its session's mu.
type sessionPart struct {
	next, prev *sessionPart // order of service, a ring through the session's root
	key        partKey

	offset    record.Offset
	maxBytes  int
	epoch     record.Epoch
	lastEpoch record.Epoch

	// What the client has been told; -1 is nothing yet.
	highWatermark, logStart record.Offset

	// part was found under image.
	image *metadata.Image
	part  Partition
}

// fetchSession is one session.
type fetchSession struct {
	id      int32
	ids     bool // partitions are named by topic id
	created time.Time

	// Guarded by the cache's mu.
	epoch int32 // that the next request must carry
	used  time.Time
	size  int // number of partitions

	mu    sync.Mutex
	root  sessionPart
	parts map[partKey]*sessionPart
}

// sessionCache holds the sessions of a broker, at most slots with maxParts partitions.
type sessionCache struct {
	slots, maxParts int

	mu    sync.Mutex
	byID  map[int32]*fetchSession // guarded by mu
	parts int                     // of all sessions; guarded by mu
}

func newSessionCache(slots int) *sessionCache {
	return &sessionCache{slots: slots, maxParts: maxSessionParts, byID: map[int32]*fetchSession{}}
}

// open makes a session for the partitions of a full fetch. It returns nil when there is no slot: the client goes on without a session.
func (c *sessionCache) open(parts []fetchPart, ids bool, now time.Time) *fetchSession {
	if len(parts) == 0 {
		return nil
	}
	s := &fetchSession{ids: ids, created: now, used: now, epoch: 1, parts: make(map[partKey]*sessionPart, len(parts)), size: len(parts)}
	s.root.next, s.root.prev = &s.root, &s.root
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.parts+s.size > c.maxParts {
		if !c.evictStale(now) {
			return nil
		}
	}
	if len(c.byID) >= c.slots && !c.evictStale(now) && !c.evictSmaller(s, now) {
		return nil
	}
	for s.id == 0 || c.byID[s.id] != nil {
		s.id = randomID()
	}
	c.byID[s.id] = s
	for i := range parts {
		s.put(&parts[i])
	}
	s.size = len(s.parts)
	c.parts += s.size
	return s
}

func randomID() int32 {
	var b [4]byte
	rand.Read(b[:])
	return int32(binary.BigEndian.Uint32(b[:]) >> 1)
}

// evictStale ends the session that lay unused for longest, if that is long enough. mu is held.
func (c *sessionCache) evictStale(now time.Time) bool {
	var stale *fetchSession
	for _, o := range c.byID {
		if stale == nil || o.used.Before(stale.used) {
			stale = o
		}
	}
	if stale == nil || now.Sub(stale.used) <= evictAfter {
		return false
	}
	c.drop(stale)
	return true
}

// evictSmaller ends the smallest of the sessions that are no longer young, if s is larger. mu is held.
func (c *sessionCache) evictSmaller(s *fetchSession, now time.Time) bool {
	var least *fetchSession
	for _, o := range c.byID {
		if now.Sub(o.created) > evictAfter && (least == nil || o.size < least.size) {
			least = o
		}
	}
	if least == nil || least.size >= s.size {
		return false
	}
	c.drop(least)
	return true
}

// drop ends a session; mu is held.
func (c *sessionCache) drop(s *fetchSession) {
	delete(c.byID, s.id)
	c.parts -= s.size
}

func (c *sessionCache) remove(id int32) {
	c.mu.Lock()
	if s := c.byID[id]; s != nil {
		c.drop(s)
	}
	c.mu.Unlock()
}

// resize counts a session anew after a request has changed it. A session that no longer fits ends; its client is told so by its next request.
func (c *sessionCache) resize(s *fetchSession, parts int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID[s.id] != s {
		return
	}
	c.parts += parts - s.size
	s.size = parts
	if c.parts > c.maxParts {
		c.drop(s)
	}
}

// use finds the session of an incremental fetch and takes its epoch on.
func (c *sessionCache) use(id, epoch int32, ids bool, now time.Time) (*fetchSession, int16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[id]
	switch {
	case s == nil:
		return nil, codeFetchSessionIDNotFound
	case s.ids != ids:
		return nil, codeFetchSessionTopicIDError
	case s.epoch != epoch:
		return nil, codeInvalidFetchSessionEpoch
	}
	if s.epoch++; s.epoch <= 0 {
		s.epoch = 1
	}
	s.used = now
	return s, codeNone
}

// len is the number of sessions.
func (c *sessionCache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byID)
}

func (s *fetchSession) keyOf(p *fetchPart) partKey {
	if s.ids {
		return partKey{id: p.id, partition: p.partition}
	}
	return partKey{name: p.name, partition: p.partition}
}

// put adds or updates a partition; mu is held, or s is not shared yet.
func (s *fetchSession) put(p *fetchPart) {
	key := s.keyOf(p)
	sp := s.parts[key]
	if sp == nil {
		key.name = strings.Clone(key.name) // the request's strings go with its frame
		sp = &sessionPart{key: key, highWatermark: -1, logStart: -1}
		s.parts[key] = sp
		s.pushBack(sp)
	}
	sp.offset, sp.maxBytes, sp.epoch, sp.lastEpoch = p.offset, p.maxBytes, p.epoch, p.lastEpoch
}

func (s *fetchSession) pushBack(sp *sessionPart) {
	sp.prev, sp.next = s.root.prev, &s.root
	sp.prev.next, s.root.prev = sp, sp
}

func (s *fetchSession) unlink(sp *sessionPart) {
	sp.prev.next, sp.next.prev = sp.next, sp.prev
	sp.prev, sp.next = nil, nil
}

// begin applies what a request changes (nil for the one that opened the session) and lists the session's partitions in order of service.
func (s *fetchSession) begin(f *fetchCall, req *kmsg.FetchRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if req != nil {
		for i := range req.Topics {
			t := &req.Topics[i]
			for j := range t.Partitions {
				p := requestPart(t, &t.Partitions[j])
				s.put(&p)
			}
		}
		s.forget(req)
	}
	f.parts = slices.Grow(f.parts[:0], len(s.parts))
	for sp := s.root.next; sp != &s.root; sp = sp.next {
		f.parts = append(f.parts, fetchPart{
			place: sp, name: sp.key.name, id: sp.key.id, partition: sp.key.partition, offset: sp.offset, maxBytes: sp.maxBytes,
			epoch: sp.epoch, lastEpoch: sp.lastEpoch, image: sp.image, part: sp.part,
		})
	}
}

func (s *fetchSession) forget(req *kmsg.FetchRequest) {
	for i := range req.ForgottenTopics {
		t := &req.ForgottenTopics[i]
		for _, n := range t.Partitions {
			key := partKey{name: t.Topic, partition: n}
			if s.ids {
				key = partKey{id: t.TopicID, partition: n}
			}
			if sp := s.parts[key]; sp != nil {
				s.unlink(sp)
				delete(s.parts, key)
			}
		}
	}
}

// remember keeps what the partitions of a session were resolved to.
func (s *fetchSession) remember(f *fetchCall, img *metadata.Image) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range f.parts {
		if p := &f.parts[i]; p.image != img && p.err == nil {
			p.image = img
			p.place.image, p.place.part = img, p.part
		}
	}
}

// settle decides for every partition whether it goes into the answer, notes what the client is told, and moves what had data to the end of
// the order. Partitions that are left out have skip set.
func (s *fetchSession) settle(f *fetchCall, include func(i int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range f.parts {
		p := &f.parts[i]
		sp := p.place
		data := p.res.Span != nil && p.res.Span.Len() > 0
		hw, start := p.res.HighWatermark, p.res.LogStart
		if p.res.Err != nil {
			hw, start = -1, -1
		}
		changed := f.full || data || p.res.Err != nil || p.res.DivergingEpoch >= 0 || p.res.Redirect || hw != sp.highWatermark || start != sp.logStart
		if p.res.Err != nil { // told again, until it works
			sp.highWatermark, sp.logStart = -1, -1
		} else {
			sp.highWatermark, sp.logStart = hw, start
		}
		if data && sp.next != nil {
			s.unlink(sp)
			s.pushBack(sp)
		}
		if changed {
			include(i)
		}
	}
}

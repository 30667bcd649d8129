package quorum

import (
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/keeplog/keeplog/metadata"
)

// book knows where the members are. Ids are stable, addresses are not: a member may be tried at several addresses, and the
// preamble tells whether it is the one that was meant.
type book struct {
	mu sync.Mutex
	// configured are the addresses of controller.quorum.voters.
	configured map[metadata.BrokerID]string
	heard      map[metadata.BrokerID]*heard
	// noted are the addresses in the log, whose entries may not be applied yet.
	noted map[metadata.BrokerID]string
	// good is the address at which a member was reached last.
	good map[metadata.BrokerID]string
}

// maxHeard bounds the nodes that are remembered.
const maxHeard = 1024

// heard is what a member said of itself.
type heard struct {
	hello *hello
	// at is the index of this node's image when it was said, when the time.
	at   uint64
	when time.Time
}

func newBook(voters []Voter) *book {
	b := &book{
		configured: map[metadata.BrokerID]string{}, heard: map[metadata.BrokerID]*heard{}, good: map[metadata.BrokerID]string{},
		noted: map[metadata.BrokerID]string{},
	}
	for _, v := range voters {
		b.configured[v.ID] = v.Address
	}
	return b
}

// learn remembers a hello.
func (b *book) learn(h *hello, index uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.heard[h.who.id] == nil && len(b.heard) >= maxHeard {
		return
	}
	b.heard[h.who.id] = &heard{h, index, time.Now()}
	if a := endpointAddress(h.controller); a != "" && a != b.good[h.who.id] {
		delete(b.good, h.who.id)
	}
}

// note remembers what an entry of the log says of where a member is.
func (b *book) note(m metadata.MemberChanged) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := endpointAddress(m.Controller); a != "" && !m.Removed {
		b.noted[m.ID] = a
	}
}

// last is what a member said last.
func (b *book) last(id metadata.BrokerID) (heard, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.heard[id]; h != nil {
		return *h, true
	}
	return heard{}, false
}

// reached remembers where a member was reached; an empty address forgets it.
func (b *book) reached(id metadata.BrokerID, address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if address == "" {
		delete(b.good, id)
	} else {
		b.good[id] = address
	}
}

// addresses are those at which to try a member, the likeliest first.
func (b *book) addresses(who identity, img *metadata.Image) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	add := func(a string) {
		if a != "" && !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	add(b.good[who.id])
	if h := b.heard[who.id]; h != nil && (who.directory == metadata.DirectoryID{} || h.hello.who.directory == who.directory) {
		add(endpointAddress(h.hello.controller))
	}
	add(b.configured[who.id])
	if m, ok := img.Member(who.id); ok && !m.Removed {
		add(endpointAddress(m.Controller))
	}
	add(b.noted[who.id])
	return all
}

// endpointAddress is HOST:PORT, empty for an endpoint that is not known.
func endpointAddress(e metadata.Endpoint) string {
	if e.Port == 0 {
		return ""
	}
	return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
}

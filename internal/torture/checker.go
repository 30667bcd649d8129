package torture

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Kind is a kind of violation.
type Kind string

// The kinds of violation.
const (
	// Lost: acknowledged, or shown to a reader, and then gone.
	Lost Kind = "lost"
	// Duplicated: stored twice although its producer is idempotent.
	Duplicated Kind = "duplicated"
	// Reordered: behind a later record of the same producer.
	Reordered Kind = "reordered"
	// Reused: an offset named one record, and then another; or a record was acknowledged at one offset and stands at another.
	Reused Kind = "offset reused"
	// Differs: a replica whose batches are not those of the others.
	Differs Kind = "replicas differ"
	// WentBack: a latest offset or a watermark below one that was told earlier, or a reader that was sent back.
	WentBack Kind = "went back"
	// Strange: a record that nobody wrote to that partition.
	Strange Kind = "strange"
	// GivenUp: a producer was told that a record failed, in a way that forbids to try again.
	GivenUp Kind = "given up"
	// NotHealed: after the faults were over the cluster did not become whole by itself.
	NotHealed Kind = "not healed"
	// Ended: a process ended that nobody had ended.
	Ended Kind = "ended by itself"
	// Damaged: the offline check of the files found damage.
	Damaged Kind = "damaged"
)

// Kinds are all kinds, in the order in which they are told.
func Kinds() []Kind {
	return append([]Kind{Lost, Duplicated, Reordered, Reused, Differs, WentBack, Strange, GivenUp, NotHealed, Ended, Damaged}, groupKinds()...)
}

// maxTold is how many violations of a kind are told in words.
const maxTold = 10

// maxOffset bounds the memory of a partition's history.
const maxOffset = 1 << 28

// Checker is told what was seen, from any goroutine, and finds what must not be. It has no clock: of two answers the later one is
// the one whose question was sent after the other answer had come, and callers say so with Floor.
type Checker struct {
	mu     sync.Mutex
	parts  map[Partition]*history
	counts map[Kind]int
	told   map[Kind][]string
	acked  int64
	read   int64
	shares map[Share]*shareHistory
	// commits counts acknowledged offsets of groups.
	commits int64
}

// history is what is known of one partition. Guarded by Checker.mu.
type history struct {
	// given holds at each offset the record that was first seen there, 0 for none.
	given []ID
	how   []seen
	// floor is the highest end that was told: latest offsets, watermarks, and the ends of acknowledged records.
	floor int64
	// unplaced were acknowledged without an offset.
	unplaced []ID
	replicas []*Replica
	rotten   []rottenRange
}

// seen says how an offset came to be known.
type seen uint8

const (
	seenAcked seen = 1 << iota
	seenRead
	seenBad // a violation was counted for it
)

// NewChecker returns a Checker that has seen nothing.
func NewChecker() *Checker {
	return &Checker{parts: map[Partition]*history{}, counts: map[Kind]int{}, told: map[Kind][]string{}, shares: map[Share]*shareHistory{}}
}

// Violated counts a violation that was seen elsewhere.
func (c *Checker) Violated(k Kind, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.violated(k, format, args...)
}

func (c *Checker) violated(k Kind, format string, args ...any) {
	if c.counts[k]++; len(c.told[k]) < maxTold {
		c.told[k] = append(c.told[k], fmt.Sprintf(format, args...))
	}
}

func (c *Checker) history(p Partition) *history {
	h := c.parts[p]
	if h == nil {
		h = &history{}
		c.parts[p] = h
	}
	return h
}

// Acked says that record id was acknowledged at offset, −1 when that was not told.
func (c *Checker) Acked(p Partition, offset int64, id ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acked++
	if offset < 0 { // acknowledged as one that was there already, without saying where
		c.history(p).unplaced = append(c.history(p).unplaced, id)
		return
	}
	if c.saw(p, offset, id, seenAcked) {
		h := c.history(p)
		h.floor = max(h.floor, offset+1)
	}
}

// Read says that a reader was given record id at offset: it is committed.
func (c *Checker) Read(p Partition, offset int64, id ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read++
	c.saw(p, offset, id, seenRead)
}

func (c *Checker) saw(p Partition, offset int64, id ID, how seen) bool {
	h := c.history(p)
	if offset < 0 || offset >= maxOffset {
		c.violated(Strange, "%s: %s has the offset %d", p, id, offset)
		return false
	}
	h.reach(offset)
	switch h.given[offset] {
	case 0:
		h.given[offset] = id
	case id:
	default:
		if h.how[offset]&seenBad == 0 {
			c.violated(Reused, "%s offset %d: %s (%s), and then %s (%s)", p, offset, h.given[offset], h.how[offset], id, how)
		}
		h.how[offset] |= seenBad
	}
	h.how[offset] |= how
	return true
}

func (h *history) reach(offset int64) {
	if n := int(offset) + 1; n > len(h.given) {
		h.given = append(h.given, make([]ID, n-len(h.given))...)
		h.how = append(h.how, make([]seen, n-len(h.how))...)
	}
}

func (s seen) String() string {
	var words []string
	if s&seenAcked != 0 {
		words = append(words, "acknowledged")
	}
	if s&seenRead != 0 {
		words = append(words, "read")
	}
	return strings.Join(words, " and ")
}

// Floor is the end that an answer must reach whose question is sent after this call returns.
func (c *Checker) Floor(p Partition) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.history(p).floor
}

// End says that a question sent when the floor was floor was answered with end; below 0 the answer was "not known now".
// what names the question: "latest offset", "watermark".
func (c *Checker) End(p Partition, floor, end int64, what string) {
	if end < 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if end < floor {
		c.violated(WentBack, "%s: the %s is %d after %d was told", p, what, end, floor)
	}
	h := c.history(p)
	h.floor = max(h.floor, end)
}

// Ends are the ends of all partitions that were told of, the lowest that a whole log must have.
func (c *Checker) Ends() map[Partition]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[Partition]int64, len(c.parts))
	for p, h := range c.parts {
		out[p] = max(h.floor, int64(len(h.given)))
	}
	return out
}

// partitions are those that something was told of, sorted.
func (c *Checker) partitions() []Partition {
	out := make([]Partition, 0, len(c.parts))
	for p := range c.parts {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Partition) int {
		if d := strings.Compare(a.Topic, b.Topic); d != 0 {
			return d
		}
		return int(a.Number - b.Number)
	})
	return out
}

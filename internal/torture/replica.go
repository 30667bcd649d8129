package torture

import (
	"fmt"
	"hash/fnv"
	"slices"
)

// Replica is what one replica of a partition holds in the end, told in the order of its offsets by one goroutine.
type Replica struct {
	// Source says which: "node 2, files".
	Source string
	// Node is whose it is; 0 where that does not matter.
	Node int32

	part    Partition
	ids     []ID
	strange []int64
	batches []batchHash
	end     int64
}

// batchHash is the place of a batch and a hash over what must be the same on every replica.
type batchHash struct {
	base int64
	hash uint64
}

// Replica begins the final content of a replica of p.
func (c *Checker) Replica(p Partition, source string) *Replica {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &Replica{Source: source, part: p}
	h := c.history(p)
	h.replicas = append(h.replicas, r)
	return r
}

// Rotten says that a batch of one replica was damaged on purpose, from the offset base to before next.
func (c *Checker) Rotten(p Partition, node int32, base, next int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.history(p)
	h.rotten = append(h.rotten, rottenRange{node, base, next})
}

// Mended says that the replica has been made anew since: it is as good as any.
func (c *Checker) Mended(p Partition, node int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.history(p)
	h.rotten = slices.DeleteFunc(h.rotten, func(r rottenRange) bool { return r.node == node })
}

// rottenAt is the offset behind the damage of a replica that offset lies in; false when it lies in none.
func (c *Checker) rottenAt(p Partition, node int32, offset int64) (int64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.history(p).rottenAt(node, offset)
}

// rottenRange is the damage of a replica.
type rottenRange struct {
	node       int32
	base, next int64
}

func (h *history) rottenAt(node int32, offset int64) (int64, bool) {
	for _, r := range h.rotten {
		if node != 0 && r.node == node && offset >= r.base && offset < r.next {
			return r.next, true
		}
	}
	return 0, false
}

// addReplicas adds replicas that were read whole.
func (c *Checker) addReplicas(all map[Partition]*Replica) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, r := range all {
		h := c.history(p)
		h.replicas = append(h.replicas, r)
	}
}

// Record adds the record at offset; ok is false when its value is none that a producer of the run wrote to this partition.
func (r *Replica) Record(offset int64, id ID, ok bool) {
	switch {
	case offset < 0 || offset >= maxOffset || !ok:
		r.strange = append(r.strange, offset)
	default:
		if n := int(offset) + 1; n > len(r.ids) {
			r.ids = append(r.ids, make([]ID, n-len(r.ids))...)
		}
		r.ids[offset] = id
	}
	r.end = max(r.end, offset+1)
}

// Batch adds a batch: where it begins, and what must be the same in every copy of it.
func (r *Replica) Batch(base int64, same ...uint64) {
	h := fnv.New64a()
	var b [8]byte
	for _, v := range append([]uint64{uint64(base)}, same...) {
		for i := range b {
			b[i] = byte(v >> (8 * i))
		}
		h.Write(b[:])
	}
	r.batches = append(r.batches, batchHash{base, h.Sum64()})
}

// End says where the replica ends, where that is behind its last record.
func (r *Replica) End(end int64) { r.end = max(r.end, end) }

// judge compares every replica with what was seen, and the replicas with each other.
func (c *Checker) judge(p Partition, h *history) {
	bad := map[int64]bool{} // offsets for which a violation was counted: each once, not once a replica
	lostIDs := map[ID]bool{}
	for _, r := range h.replicas {
		c.compare(p, h, r, found{bad, lostIDs})
		c.order(p, r, bad)
	}
	c.alike(p, h)
	if len(h.replicas) == 0 && len(h.given) > 0 {
		c.violated(NotHealed, "%s: no replica could be read", p)
	}
}

// found is what was counted already.
type found struct {
	bad  map[int64]bool
	lost map[ID]bool
}

// compare finds what the replica has lost or changed.
func (c *Checker) compare(p Partition, h *history, r *Replica, f found) {
	bad, lostIDs := f.bad, f.lost
	var where map[ID]int64
	for offset, want := range h.given {
		at := int64(offset)
		var got ID
		if offset < len(r.ids) {
			got = r.ids[offset]
		}
		if want == 0 || got == want || bad[at] || h.how[offset]&seenBad != 0 {
			continue
		}
		if _, rotten := h.rottenAt(r.Node, at); rotten && got == 0 {
			continue // it is right to give nothing instead
		}
		bad[at] = true
		if where == nil {
			where = r.places()
		}
		elsewhere, moved := where[want]
		switch {
		case moved:
			c.violated(Reused, "%s offset %d: %s (%s) stands at offset %d on %s", p, at, want, h.how[offset], elsewhere, r.Source)
		case got != 0:
			c.violated(Reused, "%s offset %d: %s (%s), and %s on %s", p, at, want, h.how[offset], got, r.Source)
			if h.how[offset]&seenAcked != 0 {
				c.violated(Lost, "%s offset %d: %s (%s) is not on %s", p, at, want, h.how[offset], r.Source)
			}
		default:
			c.violated(Lost, "%s offset %d: %s (%s) is not on %s, which ends at %d", p, at, want, h.how[offset], r.Source, r.end)
		}
	}
	for _, id := range h.unplaced {
		if slices.ContainsFunc(h.rotten, func(x rottenRange) bool { return x.node == r.Node }) {
			break // it may be in the damage; the other replicas tell
		}
		if where == nil {
			where = r.places()
		}
		if _, ok := where[id]; !ok && !lostIDs[id] {
			lostIDs[id] = true
			c.violated(Lost, "%s: %s (acknowledged without an offset) is not on %s", p, id, r.Source)
		}
	}
	if r.end < h.floor && int64(len(h.given)) < h.floor && !bad[h.floor-1] {
		bad[h.floor-1] = true
		c.violated(WentBack, "%s: %s ends at %d after the end %d was told", p, r.Source, r.end, h.floor)
	}
	for _, offset := range r.strange {
		if !bad[offset] {
			bad[offset] = true
			c.violated(Strange, "%s offset %d: on %s is a record that nobody wrote there", p, offset, r.Source)
		}
	}
}

func (r *Replica) places() map[ID]int64 {
	m := make(map[ID]int64, len(r.ids))
	for offset, id := range r.ids {
		if _, twice := m[id]; id != 0 && !twice {
			m[id] = int64(offset)
		}
	}
	return m
}

// order finds records that are stored twice or behind later ones of their producer.
func (c *Checker) order(p Partition, r *Replica, bad map[int64]bool) {
	last := map[int]int64{}
	met := map[int][]uint64{} // a bit for each sequence of a producer
	for offset, id := range r.ids {
		if id == 0 {
			continue
		}
		who, n := id.Producer(), id.Sequence()
		word, bit := int(n/64), uint64(1)<<(n%64)
		bits := met[who]
		if word >= len(bits) && n < maxOffset {
			bits = append(bits, make([]uint64, word+1-len(bits))...)
			met[who] = bits
		}
		at := int64(offset)
		switch {
		case word < len(bits) && bits[word]&bit != 0:
			if !bad[at] {
				bad[at] = true
				c.violated(Duplicated, "%s offset %d: %s is there before, on %s", p, at, id, r.Source)
			}
		case n < last[who]:
			if !bad[at] {
				bad[at] = true
				c.violated(Reordered, "%s offset %d: %s comes after its record %d, on %s", p, at, id, last[who], r.Source)
			}
		}
		if word < len(bits) {
			bits[word] |= bit
		}
		last[who] = max(last[who], n)
	}
}

// alike compares the batches of the replicas whose files were read. The one with the highest end is the measure.
func (c *Checker) alike(p Partition, h *history) {
	var files []*Replica
	for _, r := range h.replicas {
		if len(r.batches) > 0 {
			files = append(files, r)
		}
	}
	for _, r := range h.replicas {
		if len(r.batches) == 0 && len(r.ids) == 0 && len(files) > 0 {
			files = append(files, r) // a replica without anything differs from one with something
		}
	}
	if len(files) < 2 {
		return
	}
	measure := slices.MaxFunc(files, func(a, b *Replica) int { return int(a.end - b.end) })
	for _, r := range files {
		if a, b := h.sound(r, measure), h.sound(measure, r); r != measure && !slices.Equal(a, b) {
			c.violated(Differs, "%s: %s and %s differ %s", p, r.Source, measure.Source, firstDifference(a, b))
		}
	}
}

// sound are the batches of a replica without those that are damaged in it or in the other one.
func (h *history) sound(r, other *Replica) []batchHash {
	if len(h.rotten) == 0 {
		return r.batches
	}
	return slices.DeleteFunc(slices.Clone(r.batches), func(b batchHash) bool {
		_, here := h.rottenAt(r.Node, b.base)
		_, there := h.rottenAt(other.Node, b.base)
		return here || there
	})
}

func firstDifference(a, b []batchHash) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("in the batch at offset %d", min(a[i].base, b[i].base))
		}
	}
	longer := a
	if len(b) > len(a) {
		longer = b
	}
	return fmt.Sprintf("from the batch at offset %d on, which only one of them has", longer[min(len(a), len(b))].base)
}

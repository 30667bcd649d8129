package vfs

import (
	"fmt"
	"math/rand/v2"
)

// PolicyKind is a way to lose power.
type PolicyKind uint8

// The kinds. "Changes" are the unsynced ones, in order; what is synced always survives.
const (
	KeepNone      PolicyKind = iota + 1 // no change survives
	KeepAll                             // every change survives
	KeepPrefix                          // the first N do
	KeepAllBut                          // all but number N (from 0) do
	KeepRandom                          // a subset by seed: changes, their sizes, and single sectors of them
	TearLast                            // all; of the last write the first N sectors, and the file ends there
	TearLastSized                       // the same, and the file has its new size: zeros or old bytes behind the tear
	KeepSizes                           // sizes and names do, bytes do not: files end in zeros
	KeepNames                           // names do, bytes and sizes do not
	KeepData                            // bytes and sizes do, names do not
	UndoRenames                         // all but the renames do
	policyEnd
)

var policyNames = [policyEnd]string{
	KeepNone: "none", KeepAll: "all", KeepPrefix: "prefix", KeepAllBut: "all-but", KeepRandom: "random", TearLast: "tear",
	TearLastSized: "tear-sized", KeepSizes: "sizes-only", KeepNames: "names-only", KeepData: "no-names",
	UndoRenames: "renames-undone",
}

// Policy says what a crash leaves of the unsynced changes.
type Policy struct {
	Kind PolicyKind
	N    int
}

func (p Policy) String() string {
	if p.Kind == 0 || p.Kind >= policyEnd {
		return fmt.Sprintf("Policy(%d)", p.Kind)
	}
	switch p.Kind {
	case KeepPrefix, KeepAllBut, TearLast, TearLastSized:
		return fmt.Sprintf("%s(%d)", policyNames[p.Kind], p.N)
	}
	return policyNames[p.Kind]
}

// Policies lists every policy that may make a difference now, KeepRandom once: none, all, each prefix, each one missing,
// each tear of the last write, sizes or names or data alone, renames undone.
func (c *CrashFS) Policies() []Policy {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.journal
	c.scanLive()
	out := []Policy{{Kind: KeepNone}}
	n := len(j.pending)
	if n == 0 {
		return out
	}
	out = append(out, Policy{Kind: KeepAll})
	for i := 1; i < n; i++ {
		out = append(out, Policy{KeepPrefix, i})
	}
	for i := range n - 1 { // all but the last is a prefix
		out = append(out, Policy{KeepAllBut, i})
	}
	if last := j.lastWrite(); last >= 0 {
		for k := range len(j.pending[last].data) / sectorSize {
			out = append(out, Policy{TearLast, k}, Policy{TearLastSized, k})
		}
	}
	out = append(out, Policy{Kind: KeepSizes}, Policy{Kind: KeepNames}, Policy{Kind: KeepData}, Policy{Kind: KeepRandom})
	for _, ch := range j.pending {
		if ch.op == OpRename {
			return append(out, Policy{Kind: UndoRenames})
		}
	}
	return out
}

// lastWrite is the index of the last pending change with bytes; -1 if there is none.
func (j *journal) lastWrite() int {
	for i := len(j.pending) - 1; i >= 0; i-- {
		if len(j.pending[i].data) > 0 {
			return i
		}
	}
	return -1
}

// fate is what survives of one change.
type fate struct {
	names   bool
	size    bool
	sectors func(i int) bool // which sectors; nil: all
	limit   int64            // no growth past this position; -1: no limit
}

var (
	wholly  = fate{names: true, size: true, limit: -1}
	nothing = fate{sectors: noSector, limit: -1}
)

func noSector(int) bool { return false }

func when(keep bool) fate {
	if keep {
		return wholly
	}
	return nothing
}

// fate decides on change number i; torn says that it is the one to tear.
func (p Policy) fate(i int, torn bool, ch *change, rng *rand.Rand) fate {
	switch p.Kind {
	case KeepNone:
		return nothing
	case KeepAll:
		return wholly
	case KeepPrefix:
		return when(i < p.N)
	case KeepAllBut:
		return when(i != p.N)
	case KeepRandom:
		return randomFate(ch, rng)
	case TearLast, TearLastSized:
		if !torn {
			return wholly
		}
		f := fate{size: true, sectors: func(s int) bool { return s < p.N }, limit: -1}
		if p.Kind == TearLast {
			f.limit = ch.off + int64(p.N)*sectorSize
		}
		return f
	case KeepSizes:
		return fate{names: true, size: true, sectors: noSector, limit: -1}
	case KeepNames:
		return fate{names: true, sectors: noSector, limit: -1}
	case KeepData:
		return fate{size: true, limit: -1}
	case UndoRenames:
		return when(ch.op != OpRename)
	}
	panic("vfs: unknown crash policy " + p.String())
}

// randomFate keeps half of the changes whole, a quarter not at all; of the last quarter each sector by itself.
func randomFate(ch *change, rng *rand.Rand) fate {
	f := fate{names: rng.IntN(2) == 0, size: rng.IntN(4) != 0, limit: -1}
	switch rng.IntN(4) {
	case 0:
		f.sectors = noSector
	case 1:
		mask := make([]bool, len(ch.data)/sectorSize)
		for i := range mask {
			mask[i] = rng.IntN(2) == 0
		}
		f.sectors = func(i int) bool { return mask[i] }
	}
	return f
}

// apply brings what survives of c to a file's content, sizes before bytes.
func (c *change) apply(to *content, alloc *int64, f fate) {
	if f.size {
		size := c.size
		if f.limit >= 0 {
			size = min(size, f.limit)
		}
		if c.cut || size > to.size {
			to.resize(size)
		}
		if c.alloc >= 0 {
			*alloc = c.alloc
		}
	}
	if f.sectors == nil {
		to.write(c.data, c.off)
		return
	}
	for i := range len(c.data) / sectorSize {
		if f.sectors(i) {
			to.write(c.data[i*sectorSize:(i+1)*sectorSize], c.off+int64(i)*sectorSize)
		}
	}
}

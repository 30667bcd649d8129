package lag

import (
	"sync"
	"time"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
)

// slots is how many samples are kept: a minute of them.
const slots = 7

// Sampler is safe for concurrent use.
type Sampler struct {
	tables      Tables
	source      Source
	mostVisited int // in one question: maxVisited, but in tests

	// asking lets one question be answered at a time: an answer may take much memory.
	asking sync.Mutex

	mu sync.Mutex
	// times are when the last samples were taken, that of sample n at n modulo slots. taken is the number of the newest, 0 before the first.
	times [slots]time.Time
	taken uint32
	// committed is the tables' counter at the last look at all offsets.
	committed uint64
	ends      map[Partition]*ended
	groups    map[member]*progress
	copied    []commit
}

// member is a group in a partition.
type member struct {
	group string
	Partition
}

// commit is what was copied out of the tables.
type commit struct {
	group string
	metadata.OffsetCommit
}

// ended is the end of a partition, seen in sample seen.
type ended struct {
	series
	seen uint32
}

// progress is how a group goes on in a partition.
type progress struct {
	series
	seen uint32
	// moved is since when the offset is what it is, in ms.
	moved int64
	// timeFor is the offset whose record has the time time, in ms; −1: none was read.
	timeFor record.Offset
	time    int64
}

// series are the values of a number in the last samples. That of sample n is at n modulo slots up to last; after it nothing has changed.
type series struct {
	first, last uint32
	values      [slots]int64
}

// put notes the value of sample n, which is the newest, and says whether it is another one than before.
func (s *series) put(n uint32, v int64) bool {
	if s.first == 0 {
		s.first, s.last = n, n
		s.values[n%slots] = v
		return true
	}
	was := s.values[s.last%slots]
	if v == was {
		return false
	}
	for i := max(s.last+1, n-min(n, slots-1)); i < n; i++ {
		s.values[i%slots] = was
	}
	s.values[n%slots], s.last = v, n
	return true
}

// at is the value in sample n, which is one of the newest, not before the first.
func (s *series) at(n uint32) int64 { return s.values[min(n, s.last)%slots] }

// oldest is the oldest sample that counts, of those up to taken.
func (s *series) oldest(taken uint32) uint32 {
	if taken < slots {
		return max(s.first, 1)
	}
	return max(s.first, taken-slots+1)
}

// New makes a sampler without samples.
func New(t Tables, s Source) *Sampler {
	return &Sampler{tables: t, source: s, mostVisited: maxVisited, ends: map[Partition]*ended{}, groups: map[member]*progress{}}
}

// Tick takes a sample when it is time for one; it is to be called about each second.
func (s *Sampler) Tick(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken > 0 && now.Sub(s.times[s.taken%slots]) < Interval {
		return
	}
	s.taken++
	s.times[s.taken%slots] = now
	s.sampleEnds()
	if moved := s.tables.Committed(); moved != s.committed || s.taken == 1 {
		s.committed = moved
		s.sampleGroups(now)
	}
}

func (s *Sampler) sampleEnds() {
	seen := 0
	s.source.Led(func(p Partition, e Extent) bool {
		end := s.ends[p]
		if end == nil {
			if len(s.ends) >= MaxKept {
				return true
			}
			end = &ended{}
			s.ends[p] = end
			s.committed = ^uint64(0) // groups may have committed here
		}
		end.put(s.taken, int64(e.End))
		end.seen = s.taken
		seen++
		return true
	})
	if seen == len(s.ends) {
		return
	}
	for p, end := range s.ends {
		if end.seen != s.taken {
			delete(s.ends, p)
			s.committed = ^uint64(0)
		}
	}
}

func (s *Sampler) sampleGroups(now time.Time) {
	seen := 0
	for shard := range int32(metadata.Shards) {
		s.copied = s.copied[:0]
		s.tables.EachOffset(shard, func(group string, c metadata.OffsetCommit) bool {
			s.copied = append(s.copied, commit{group, c})
			return true
		})
		for i := range s.copied {
			c := &s.copied[i]
			if c.Offset < 0 || s.ends[c.GroupPartition] == nil {
				continue
			}
			key := member{c.group, c.GroupPartition}
			g := s.groups[key]
			if g == nil {
				if len(s.groups) >= MaxKept {
					continue
				}
				g = &progress{timeFor: Unknown, moved: c.Committed}
				s.groups[key] = g
			}
			fresh := g.first == 0
			if g.put(s.taken, c.Offset) && !fresh {
				g.moved = min(c.Committed, now.UnixMilli())
			}
			g.seen = s.taken
			seen++
		}
		clear(s.copied)
	}
	if cap(s.copied) > 1<<14 {
		s.copied = nil
	}
	if seen == len(s.groups) {
		return
	}
	for key, g := range s.groups {
		if g.seen != s.taken {
			delete(s.groups, key)
		}
	}
}

// Ask answers a question as of now.
func (s *Sampler) Ask(q *Query, now time.Time) *Answer {
	s.asking.Lock()
	defer s.asking.Unlock()
	a := &Answer{}
	if q.Sums {
		s.sum(q, a)
	} else {
		s.collect(q, a)
		s.rate(a, now)
		s.age(a, now)
	}
	a.sort()
	return a
}

// each goes through the offsets of the groups that are asked for, with what is known of their partitions, until f says false, or there were too
// many; all says that there was neither. A negative offset, which clients may commit, stands for none.
func (s *Sampler) each(q *Query, f func(c *commit, e Extent, where Place) bool) (all bool) {
	type found struct {
		Extent
		Place
	}
	known := map[Partition]found{}
	var copied []commit
	visited := 0
	take := func(group string, c metadata.OffsetCommit) bool {
		if visited++; visited > s.mostVisited {
			return false
		}
		copied = append(copied, commit{group, c})
		return true
	}
	tell := func() bool {
		for i := range copied {
			p := copied[i].GroupPartition
			if copied[i].Offset < 0 {
				continue
			}
			at, ok := known[p]
			if !ok {
				at.Extent, at.Place = s.source.Find(p)
				known[p] = at
			}
			if !f(&copied[i], at.Extent, at.Place) {
				return false
			}
		}
		copied = copied[:0]
		return visited <= s.mostVisited
	}
	if len(q.Groups) == 0 {
		for shard := range int32(metadata.Shards) {
			s.tables.EachOffset(shard, take)
			if !tell() {
				return false
			}
		}
		return true
	}
	for _, group := range q.Groups {
		s.tables.Offsets(group, func(c metadata.OffsetCommit) bool { return take(group, c) })
		if !tell() {
			return false
		}
	}
	return true
}

func (s *Sampler) sum(q *Query, a *Answer) {
	a.More = !s.each(q, func(c *commit, e Extent, where Place) bool {
		switch {
		case where == Elsewhere:
			return true
		case where == Nowhere, e.End < 0:
			a.missing(c.group)
			return true
		}
		if n := len(a.Sums); n == 0 || a.Sums[n-1].Group != c.group {
			if n == MaxLines {
				return false
			}
			a.Sums = append(a.Sums, Sum{Group: c.group})
		}
		l := Line{Committed: record.Offset(c.Offset), Extent: e}
		sum := &a.Sums[len(a.Sums)-1]
		sum.Lag += l.Lag()
		sum.Partitions++
		return true
	})
}

// missing counts an offset of a group in a partition whose end is not known. Groups beyond MaxLines are not named.
func (a *Answer) missing(group string) {
	a.Nowhere++
	if a.Missing == nil {
		a.Missing = map[string]int{}
	}
	if _, ok := a.Missing[group]; ok || len(a.Missing) < MaxLines {
		a.Missing[group]++
	}
}

func (s *Sampler) collect(q *Query, a *Answer) {
	a.More = !s.each(q, func(c *commit, e Extent, where Place) bool {
		l := Line{
			Group: c.group, Partition: c.GroupPartition, Committed: record.Offset(c.Offset), CommittedAt: c.Committed,
			Extent: e, Leaderless: where == Nowhere, Behind: Unknown, In: Unknown, Out: Unknown, Moved: c.Committed,
		}
		switch {
		case where == Elsewhere && !q.Others:
			return true
		case where != Here:
			l.Extent = Extent{Unknown, Unknown}
		}
		if len(a.Lines) == MaxLines {
			return false
		}
		if where == Nowhere || where == Here && e.End < 0 {
			a.Nowhere++
		}
		a.Lines = append(a.Lines, l)
		return true
	})
}

// rate adds what the samples tell.
func (s *Sampler) rate(a *Answer, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range a.Lines {
		l := &a.Lines[i]
		end, g := s.ends[l.Partition], s.groups[member{l.Group, l.Partition}]
		if end == nil || l.End < 0 {
			continue
		}
		l.In = s.rateOf(&end.series, end.oldest(s.taken), int64(l.End), now)
		if g == nil {
			continue
		}
		if g.at(s.taken) == int64(l.Committed) {
			l.Moved = g.moved
		}
		from := max(g.oldest(s.taken), end.oldest(s.taken))
		if l.Out = s.rateOf(&g.series, from, int64(l.Committed), now); l.Out >= 0 && l.In >= 0 {
			then := Line{Committed: record.Offset(g.at(from)), Extent: Extent{l.Start, record.Offset(end.at(from))}}
			l.Trend = trend(then.Lag(), l.Lag(), l.In)
		}
	}
}

func (s *Sampler) rateOf(v *series, from uint32, value int64, now time.Time) float64 {
	return rate(v.at(from), value, now.Sub(s.times[from%slots]))
}

// at is where in a log a time is looked up.
type at struct {
	Partition
	offset record.Offset
}

// age adds the times of the records that were not read.
func (s *Sampler) age(a *Answer, now time.Time) {
	times := map[at]int64{} // Unknown: could not be read
	lookups := 0
	for i := range a.Lines {
		l := &a.Lines[i]
		switch l.Lag() {
		case Unknown:
			continue
		case 0:
			l.Behind = 0
			continue
		}
		ms, ok := s.known(l)
		if !ok {
			place := at{l.Partition, max(l.Committed, l.Start)}
			if ms, ok = times[place]; !ok {
				if lookups++; lookups > maxLookups {
					continue
				}
				ms = s.lookUp(place)
				times[place] = ms
			}
			s.keep(l, ms)
		}
		if ms != Unknown {
			l.Behind = max(0, now.UnixMilli()-ms)
		}
	}
}

func (s *Sampler) lookUp(p at) int64 {
	ms, ok, err := s.source.TimeOf(p.Partition, p.offset)
	if err != nil || !ok || ms < 0 {
		return Unknown
	}
	return ms
}

// known is the time of the record at a line's offset where it was read before.
func (s *Sampler) known(l *Line) (ms int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[member{l.Group, l.Partition}]
	if g == nil || g.timeFor != max(l.Committed, l.Start) {
		return 0, false
	}
	return g.time, true
}

func (s *Sampler) keep(l *Line, ms int64) {
	if ms == Unknown {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.groups[member{l.Group, l.Partition}]; g != nil {
		g.timeFor, g.time = max(l.Committed, l.Start), ms
	}
}

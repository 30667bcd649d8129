package segment

import (
	"errors"
	"io"
	"math"
	"slices"
	"sync/atomic"

	"github.com/keeplog/keeplog/record"
)

// Damage is a range of the log file that holds no sound batch. It is empty where batches are missing at the end of the file.
type Damage struct {
	From, To record.Position
	// Next is the offset of the first sound batch after it; unknown (MaxInt64) where none follows. Offsets from the last
	// batch before it up to Next cannot be read.
	Next record.Offset
}

type extent struct{ from, to record.Position }

// examined says for which ranges the checksums were compared, all beginning and ending at batches. Guarded by Segment.mu.
type examined struct {
	fresh   record.Position // everything from here on: it was written or scanned by this process
	ranges  []extent        // below fresh; sorted, apart from each other
	damage  []Damage        // sorted
	damaged atomic.Bool     // damage is not empty
}

// maxRanges bounds what is remembered of a segment that is read here and there.
const maxRanges = 64

// trusted says that this process wrote or examined all of the segment and found no damage.
func (s *Segment) trusted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fresh == 0 && len(s.damage) == 0
}

func (s *Segment) isExamined(at record.Position) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.passLocked(at) > at || at >= s.fresh
}

// passLocked is the end of the examined range that holds at, or at.
func (s *Segment) passLocked(at record.Position) record.Position {
	for _, r := range s.ranges {
		if r.from <= at && at < r.to {
			return r.to
		}
	}
	return at
}

// gap is the first range in [from, to) that is not examined.
func (s *Segment) gap(from, to record.Position) (extent, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fresh == 0 || from >= s.fresh {
		return extent{}, false
	}
	for {
		next := s.passLocked(from)
		if next == from {
			break
		}
		from = next
	}
	if from >= min(to, s.fresh) {
		return extent{}, false
	}
	end := s.fresh
	for _, r := range s.ranges {
		if r.from > from {
			end = min(end, r.from)
			break
		}
	}
	return extent{from, end}, true
}

func (s *Segment) addDamage(found ...Damage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addDamageLocked(found)
}

func (s *Segment) addDamageLocked(found []Damage) {
	for _, d := range found {
		if !slices.ContainsFunc(s.damage, func(o Damage) bool { return o.From == d.From }) {
			s.damage = append(s.damage, d)
		}
	}
	slices.SortFunc(s.damage, func(a, b Damage) int { return int(a.From - b.From) })
	s.damaged.Store(len(s.damage) > 0)
}

// SetBound tells where the log goes on. Call it before readers and the writer come.
func (s *Segment) SetBound(b Bound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bound = b
	for i := range s.damage {
		if d := &s.damage[i]; d.Next == math.MaxInt64 && d.To >= b.At {
			d.Next = b.End
		}
	}
}

// forgetFrom is called after the file was cut at end: other batches will stand there. What is at fresh and above was read.
func (s *Segment) forgetFrom(fresh, end record.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fresh, s.bound.At = fresh, min(s.bound.At, end)
	s.ranges = slices.DeleteFunc(s.ranges, func(e extent) bool { return e.to > fresh })
	s.damage = slices.DeleteFunc(s.damage, func(d Damage) bool { return d.From >= end })
	s.damaged.Store(len(s.damage) > 0)
}

func (s *Segment) addExamined(e extent, found []Damage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addDamageLocked(found)
	s.ranges = append(s.ranges, e)
	slices.SortFunc(s.ranges, func(a, b extent) int { return int(a.from - b.from) })
	merged := s.ranges[:1]
	for _, r := range s.ranges[1:] {
		if last := &merged[len(merged)-1]; r.from <= last.to {
			last.to = max(last.to, r.to)
		} else {
			merged = append(merged, r)
		}
	}
	s.ranges = merged
	if last := s.ranges[len(s.ranges)-1]; last.to >= s.fresh {
		s.fresh, s.ranges = min(s.fresh, last.from), s.ranges[:len(s.ranges)-1]
	}
	if len(s.ranges) > maxRanges {
		s.ranges = slices.Delete(s.ranges, 0, 1)
	}
}

// beyondDamage is the end of the damage that holds a position.
func (s *Segment) beyondDamage(at record.Position) (record.Position, bool) {
	if !s.damaged.Load() {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.damage {
		if d.From <= at && at < d.To {
			return d.To, true
		}
	}
	return 0, false
}

// damageHolding is the damage within [from, to] that swallowed the batch of an offset, for a walk that did not meet it.
func (s *Segment) damageHolding(o record.Offset, from, to record.Position) (Damage, bool) {
	if !s.damaged.Load() {
		return Damage{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.damage {
		if d.From >= from && d.From < to && o < d.Next {
			return d, true
		}
	}
	return Damage{}, false
}

// firstDamage is where the first damage in [from, to) begins.
func (s *Segment) firstDamage(from, to record.Position) (record.Position, bool) {
	if !s.damaged.Load() {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.damage {
		if d.From >= from && d.From < to {
			return d.From, true
		}
	}
	return 0, false
}

// Damages lists what was found so far.
func (s *Segment) Damages() []Damage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.damage)
}

// examine compares the checksums in [from, to) that were not compared yet, and returns to, moved to the end of a batch
// where one reaches over it, but not beyond limit. from must be the start of a batch. Damage is no error: it is remembered.
func (s *Segment) examine(from, to, limit record.Position) (record.Position, error) {
	if _, any := s.gap(from, to); !any {
		return s.alignUp(from, to, limit), nil
	}
	s.examining.Lock()
	defer s.examining.Unlock()
	for {
		g, any := s.gap(from, to)
		if !any {
			return s.alignUp(from, to, limit), nil
		}
		if err := s.examineGap(g, to); err != nil {
			return to, err
		}
	}
}

// alignUp moves to the end of the batch that reaches over a position.
func (s *Segment) alignUp(from, to, limit record.Position) record.Position {
	if to >= limit {
		return limit
	}
	end := to
	_ = s.walk(from, limit, func(h header) bool {
		end = h.end()
		return end < to
	})
	return max(end, to)
}

func (s *Segment) examineGap(g extent, to record.Position) error {
	pool := s.env.pool(g.to - g.from)
	pooled := pool.Get().(*[]byte)
	defer pool.Put(pooled)
	scan := func(from record.Position) *record.Scanner {
		return record.NewScanner(s.file, record.ScanOptions{File: s.name(LogExt), Start: from, End: g.to, Buffer: *pooled, CRC: true})
	}
	sc, done := scan(g.from), g.from
	next, known := s.nextAt(g.from)
	leap, leapAt := record.Offset(-1), record.Position(0) // before the last batch, if that left a gap in the offsets
	var found []Damage
	for done < min(to, g.to) {
		ok := sc.Scan()
		if ok && leap >= 0 && sc.Batch().BaseOffset() < next && sc.Batch().BaseOffset() >= leap {
			// no checksum covers the base offset: the batch before leapt ahead of its successor
			found = append(found, s.damage1(leapAt, done, sc.Batch().BaseOffset(), ErrDamaged))
			next = leap
		}
		if ok && sc.Batch().BaseOffset() >= next && s.plausible(sc.Batch(), done) {
			if leap = -1; known && sc.Batch().BaseOffset() > next {
				leap, leapAt = next, done
			}
			known = true
			next, done = sc.Batch().NextOffset(), sc.Next()
			continue
		}
		err := sc.Err()
		if err != nil && !IsDamage(err) {
			return err
		}
		beyond, base, rerr := s.resync(done, g.to, next)
		if rerr == nil && base == math.MaxInt64 && beyond < record.Position(s.size.Load()) { // up to what was read before
			base, rerr = s.baseFrom(beyond)
		}
		if rerr != nil {
			return rerr
		}
		found = append(found, s.damage1(done, beyond, base, err))
		done, leap = beyond, -1
		sc = scan(done)
	}
	if leap >= 0 && done < record.Position(s.size.Load()) { // its successor was read before, or is to be read later
		base, err := s.baseFrom(done)
		if err != nil {
			return err
		}
		if leap <= base && base < next {
			found = append(found, s.damage1(leapAt, done, base, ErrDamaged))
		}
	}
	s.addExamined(extent{g.from, done}, found)
	return nil
}

// nextAt is the smallest base offset that a batch at a position may have, as far as what was read before it tells; known
// says that the batch before it ends there.
func (s *Segment) nextAt(at record.Position) (next record.Offset, known bool) {
	if at == 0 {
		return s.base, true
	}
	next = s.base
	if e := s.offsets.LookupPosition(at - 1); s.isExamined(e.Position) {
		_ = s.walk(e.Position, at, func(h header) bool {
			next, known = max(next, h.next()), h.end() == at
			return true
		})
	}
	return next, known
}

// baseFrom is the base offset of the first sound batch from the start of an examined range on; MaxInt64 where none follows.
func (s *Segment) baseFrom(at record.Position) (record.Offset, error) {
	base := record.Offset(math.MaxInt64)
	err := s.walk(at, record.Position(s.size.Load()), func(h header) bool {
		base = h.base
		return false
	})
	if err != nil && IsDamage(err) {
		err = nil
	}
	return base, err
}

// damage1 reports a damaged range.
func (s *Segment) damage1(from, to record.Position, next record.Offset, err error) Damage {
	s.env.Logger.Error("damaged batch", "segment", s.name(LogExt), "position", from, "until", to, "err", err)
	if next == math.MaxInt64 && s.bound.At > 0 && to >= s.bound.At { // what follows is appended later
		next = s.bound.End
	}
	return Damage{From: from, To: to, Next: next}
}

// plausible tests what no checksum covers: the base offset of a batch at a position.
func (s *Segment) plausible(b record.Batch, at record.Position) bool {
	upper := record.Offset(s.upper.Load())
	return b.BaseOffset() >= s.base && int64(b.LastOffset()-s.base) <= math.MaxInt32 && (upper == 0 || b.LastOffset() < upper) &&
		(at >= s.bound.At || b.LastOffset() < s.bound.End)
}

// resync finds the first sound batch after the damage that begins at a position, and its base offset; limit and MaxInt64
// where there is none. next is the smallest base offset it may have.
func (s *Segment) resync(at, limit record.Position, next record.Offset) (record.Position, record.Offset, error) {
	r := resync{s: s, limit: limit, next: next}
	if size, ok := r.announced(at); ok { // the length may be right
		if at+size == limit {
			return limit, math.MaxInt64, nil
		}
		if base, ok, err := r.sound(at + size); ok || err != nil {
			return at + size, base, err
		}
	}
	fence, fenceBase := limit, record.Offset(math.MaxInt64)
	for i := s.offsets.CountTo(at + 1); ; i++ {
		e, ok := s.offsets.Entry(i)
		if !ok || e.Position >= limit {
			break
		}
		base, ok, err := r.sound(e.Position)
		if err != nil {
			return 0, 0, err
		}
		if ok {
			fence, fenceBase = e.Position, base
			break
		}
	}
	p, base, err := r.search(at+1, fence)
	if err != nil || p < fence {
		return p, base, err
	}
	return fence, fenceBase, nil
}

// resync is a search for sound batches behind damage.
type resync struct {
	s     *Segment
	limit record.Position
	next  record.Offset
}

func (r resync) announced(at record.Position) (record.Position, bool) {
	var b [record.HeaderSize]byte
	if at+record.HeaderSize > r.limit {
		return 0, false
	}
	if _, err := r.s.file.ReadAt(b[:], int64(at)); err != nil {
		return 0, false
	}
	size, err := record.ParseHeader(b[:], 0)
	return record.Position(size), err == nil && at+record.Position(size) <= r.limit
}

// sound says that a batch whose checksum and offsets are right begins at a position, and its base offset.
func (r resync) sound(at record.Position) (record.Offset, bool, error) {
	size, ok := r.announced(at)
	if !ok {
		return 0, false, nil
	}
	err := r.s.checkBatch(header{at: at, size: size})
	if err != nil {
		if IsDamage(err) {
			err = nil
		}
		return 0, false, err
	}
	var b [record.HeaderSize]byte
	if _, err := r.s.file.ReadAt(b[:], int64(at)); err != nil {
		return 0, false, err
	}
	batch := record.Batch(b[:])
	return batch.BaseOffset(), batch.BaseOffset() >= r.next && r.s.plausible(batch, at), nil
}

// search tries every byte in [from, fence) as the start of a batch; those that look like one must be sound and lead, batch
// by batch, exactly to the fence, or to at least one more sound batch or the limit.
func (r resync) search(from, fence record.Position) (record.Position, record.Offset, error) {
	buf := make([]byte, 256<<10)
	for from+record.HeaderSize <= fence {
		n, err := r.s.file.ReadAt(buf[:min(int64(len(buf)), int64(fence-from))], int64(from))
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, 0, err
		}
		if n < record.HeaderSize {
			break
		}
		for i := 0; i+record.HeaderSize <= n; i++ {
			b := record.Batch(buf[i : i+record.HeaderSize])
			at := from + record.Position(i)
			if b[16] != record.Magic || b.BaseOffset() < r.next || !r.s.plausible(b, at) {
				continue
			}
			if base, ok, err := r.sound(at); err != nil || (ok && r.leads(at, fence)) {
				return at, base, err
			}
		}
		from += record.Position(n - record.HeaderSize + 1)
	}
	return fence, math.MaxInt64, nil
}

// leads follows the lengths from a batch to the fence.
func (r resync) leads(at, fence record.Position) bool {
	for range 1 << 16 {
		size, ok := r.announced(at)
		if !ok {
			return false
		}
		if at += size; at >= fence {
			return at == fence
		}
		if fence == r.limit { // nothing is known of the end: one sound successor is enough
			if _, ok, _ := r.sound(at); ok {
				return true
			}
		}
	}
	return true
}

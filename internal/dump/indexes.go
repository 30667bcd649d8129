package dump

import (
	"encoding/binary"
	"strings"

	"github.com/keeplog/keeplog/record"
)

// Sizes of index entries in bytes.
const (
	offsetEntrySize = 8
	timeEntrySize   = 12
	abortEntrySize  = 34
)

// maxHeld bounds the problems that are held back for one index; the rest is counted.
const maxHeld = 100

// place is a batch as the indexes see it.
type place struct {
	pos           int64
	base, last    record.Offset
	time, maxTime int64 // of the batch, and of the segment so far
	blind         bool  // something before it could not be read
}

// segmentChecks are the other files of a segment that are compared during the pass; nil where a file is missing.
type segmentChecks struct {
	offsets *offsetCheck
	times   *timeCheck
	aborted *abortCheck
}

// held is a problem of an index file, found while its segment was read and told when its own turn comes.
type held struct {
	promised bool
	from, to int64
	text     string
}

// entries reads an index file forward.
type entries struct {
	f       *file
	size    int64 // of an entry
	win     window
	n       int64 // next entry
	used    int64 // entries up to the first zero one
	trusted int64 // entries below this are promised, whatever the offset; −1: not known
	stable  stable
	last    bool // of the segment that is written to
	grows   bool // stays allocated ahead after a clean stop
	held    []held
	dropped int
	cut     bool // the zeros after the used part have been looked at
}

func newEntries(f *file, size int64) entries {
	e := entries{f: f, size: size, trusted: -1}
	e.win.buf = make([]byte, min(64<<10, max(f.size, 64)))
	e.win.reset(f, f.size)
	return e
}

// peek returns the next entry; nil at the end. An entry of zeros after the first ends the used part.
func (e *entries) peek() []byte {
	at := e.n * e.size
	if at+e.size > e.f.size || e.cut {
		return nil
	}
	b, err := e.win.view(at, int(e.size))
	if err != nil {
		e.hold(true, at, at+e.size, "cannot be read: "+err.Error())
		e.cut = true
		return nil
	}
	if int64(len(b)) < e.size || allZero(b) {
		e.cut = true
		return nil
	}
	return b
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// behind are the entries that lie past the end of their segment: one problem for all of them.
type behind struct {
	promised    bool
	count       int64
	from        int64 // of the first one, in bytes
	first, last string
}

func (x *behind) add(e *entries, promised bool, entry string) {
	if x.count == 0 {
		x.from, x.first = e.n*e.size, entry
	}
	x.count, x.last = x.count+1, entry
	x.promised = x.promised || promised
}

// tell holds the problem; end says where the segment ends.
func (x *behind) tell(e *entries, end string) {
	switch x.count {
	case 0:
	case 1:
		e.hold(x.promised, x.from, e.n*e.size, x.first+" "+end)
	default:
		verb, rest, _ := strings.Cut(end, "s past ")
		e.hold(x.promised, x.from, e.n*e.size, decimal(x.count)+" entries, from "+x.first+" to "+x.last+", "+verb+" past "+rest)
	}
}

func (e *entries) hold(promised bool, from, to int64, text string) {
	if len(e.held) >= maxHeld {
		e.dropped++
		return
	}
	e.held = append(e.held, held{promised, from, to, text})
}

// promised says whether the next entry, for offset o, must be right.
func (e *entries) promised(o record.Offset) bool {
	if !e.last {
		return true
	}
	if e.trusted >= 0 {
		return e.n < e.trusted
	}
	return e.stable.promised(o)
}

// sealed says that the index was closed: it is cut to its entries, and the last time is in it.
func (e *entries) sealed() bool {
	return !e.last || e.stable.known && e.stable.offset == everything && !e.grows
}

// tail checks what lies behind the used part.
func (e *entries) tail() {
	at := e.n * e.size
	if at >= e.f.size {
		return
	}
	sealed := e.sealed()
	for pos := at; pos < e.f.size; {
		b, err := e.win.view(pos, 4<<10)
		if err != nil || len(b) == 0 {
			return
		}
		if !allZero(b) {
			e.hold(sealed || e.n < e.trusted, at, e.f.size, "entries go on after entry "+decimal(e.n)+", which is zero or cut short")
			return
		}
		pos += int64(len(b))
	}
	if sealed || e.n < e.trusted {
		e.hold(true, at, e.f.size, decimal(e.f.size-at)+" bytes of zeros after the last entry of a closed index")
	}
}

// tell reports what was held back.
func (e *entries) tell() {
	for _, h := range e.held {
		e.f.judge(h.promised, extent{h.from, h.to}, h.text)
	}
	if e.dropped > 0 {
		e.f.note(-1, -1, "%d more problems like these", e.dropped)
	}
}

// offsetCheck compares an offset index with its segment.
//
//	│ i32 last offset of a batch − base │ i32 position of that batch │ …
type offsetCheck struct {
	entries
	prevOffset record.Offset
	prevPos    int64
}

func (c *offsetCheck) parse(b []byte) (record.Offset, int64) {
	return c.f.name.base + record.Offset(int32(binary.BigEndian.Uint32(b))), int64(int32(binary.BigEndian.Uint32(b[4:])))
}

// batch compares the entries up to this batch.
func (c *offsetCheck) batch(p place) {
	for {
		b := c.peek()
		if b == nil {
			return
		}
		offset, pos := c.parse(b)
		if c.n > 0 && (offset <= c.prevOffset || pos <= c.prevPos) || offset < c.f.name.base || pos < 0 {
			c.wrong(offset, "is not above the entry before it", pos)
		} else if pos > p.pos {
			return
		} else if pos < p.pos {
			c.wrong(offset, "points to no batch", pos)
		} else if offset != p.last {
			c.wrong(offset, "does not agree with the log, which has offset "+decimal(int64(p.last))+" there", pos)
		} else {
			c.prevOffset, c.prevPos = offset, pos
		}
		c.n++
	}
}

func (c *offsetCheck) wrong(offset record.Offset, what string, pos int64) {
	at := c.n * c.size
	c.hold(c.promised(offset), at, at+c.size, c.name(offset, pos)+" "+what)
}

// name is the next entry in words.
func (c *offsetCheck) name(offset record.Offset, pos int64) string {
	return "entry " + decimal(c.n) + " (offset " + decimal(int64(offset)) + ", pos " + decimal(pos) + ")"
}

// skip passes over entries that point into bytes that could not be read.
func (c *offsetCheck) skip(next int64) {
	for b := c.peek(); b != nil; b = c.peek() {
		offset, pos := c.parse(b)
		if pos >= next || pos < c.prevPos {
			return
		}
		c.prevOffset, c.prevPos, c.n = max(c.prevOffset, offset), pos, c.n+1
	}
}

func (c *offsetCheck) ends(s *pass) {
	var past behind
	for b := c.peek(); b != nil; b = c.peek() {
		offset, pos := c.parse(b)
		past.add(&c.entries, c.promised(offset), c.name(offset, pos))
		c.n++
	}
	past.tell(&c.entries, "points past the end of the log at "+decimal(s.d.win.size))
	c.used = c.n
	c.tail()
}

// timeCheck compares a time index with its segment.
//
//	│ i64 largest timestamp so far │ i32 last offset of the batch that has it − base │ …
type timeCheck struct {
	entries
	prevTime   int64
	prevOffset record.Offset
}

func (c *timeCheck) parse(b []byte) (int64, record.Offset) {
	return int64(binary.BigEndian.Uint64(b)), c.f.name.base + record.Offset(int32(binary.BigEndian.Uint32(b[8:])))
}

func (c *timeCheck) batch(p place) {
	for {
		b := c.peek()
		if b == nil {
			return
		}
		ts, offset := c.parse(b)
		if c.n > 0 && (ts <= c.prevTime || offset <= c.prevOffset) || offset < c.f.name.base {
			c.wrong(ts, offset, "is not above the entry before it")
		} else if offset > p.last {
			return
		} else if p.blind && offset < p.base {
			// its batch could not be read
		} else if offset < p.base {
			c.wrong(ts, offset, "names an offset that the log does not have")
		} else if ts != p.time || ts < p.maxTime {
			c.wrong(ts, offset, "does not agree with the log, where the largest timestamp up to there is "+decimal(p.maxTime)+" and the batch has "+decimal(p.time))
		} else {
			c.prevTime, c.prevOffset = ts, offset
		}
		c.n++
	}
}

func (c *timeCheck) wrong(ts int64, offset record.Offset, what string) {
	at := c.n * c.size
	c.hold(c.promised(offset), at, at+c.size, c.name(ts, offset)+" "+what)
}

// name is the next entry in words.
func (c *timeCheck) name(ts int64, offset record.Offset) string {
	return "entry " + decimal(c.n) + " (timestamp " + decimal(ts) + ", offset " + decimal(int64(offset)) + ")"
}

func (c *timeCheck) ends(s *pass) {
	var past behind
	for b := c.peek(); b != nil; b = c.peek() {
		ts, offset := c.parse(b)
		if !s.blind || offset > s.prev {
			past.add(&c.entries, c.promised(offset), c.name(ts, offset))
		}
		c.prevTime = max(c.prevTime, ts)
		c.n++
	}
	past.tell(&c.entries, "lies past the end of the log at offset "+decimal(int64(s.prev)))
	c.used = c.n
	if c.sealed() && s.maxTime >= 0 && !s.blind && (c.n == 0 || c.prevTime < s.maxTime) { // the active one gets its last entry when it is sealed
		c.hold(!c.last, -1, -1, "the last entry does not reach the segment's largest timestamp "+decimal(s.maxTime))
	}
	c.tail()
}

// abortMarker is an ABORT control batch.
type abortMarker struct {
	pos      int64
	producer record.ProducerID
	offset   record.Offset
	start    record.Offset // of the transaction, −1 when the data was not seen
}

// abortCheck compares the index of aborted transactions with its segment.
//
//	│ i16 version 0 │ i64 producer id │ i64 first offset │ i64 last offset (the marker's) │ i64 last stable offset then │ …
type abortCheck struct {
	entries
	prevLast record.Offset
	// segment is told when there is no index file at all; indexed says that it has an offset index, so that the server will not rebuild it.
	segment *file
	indexed bool
}

type abortEntry struct {
	version             int16
	producer            record.ProducerID
	first, last, stable record.Offset
}

func parseAbort(b []byte) abortEntry {
	return abortEntry{
		version: int16(binary.BigEndian.Uint16(b)), producer: record.ProducerID(binary.BigEndian.Uint64(b[2:])),
		first: record.Offset(binary.BigEndian.Uint64(b[10:])), last: record.Offset(binary.BigEndian.Uint64(b[18:])),
		stable: record.Offset(binary.BigEndian.Uint64(b[26:])),
	}
}

// abort compares the entries up to this marker.
func (c *abortCheck) abort(m abortMarker) {
	found := false
	for c.f != nil {
		b := c.peek()
		if b == nil {
			break
		}
		e := parseAbort(b)
		if e.last > m.offset && c.sane(e) {
			break
		}
		switch {
		case !c.sane(e):
			c.wrong(e, "is not plausible")
		case e.last < m.offset: // its marker is no longer in the log, or was not readable
		case e.producer != m.producer:
			c.wrong(e, "names another producer than the marker at offset "+decimal(int64(m.offset))+", which is of "+decimal(int64(m.producer)))
		case m.start >= 0 && e.first != m.start:
			c.wrong(e, "names another first offset than the transaction in the log has, "+decimal(int64(m.start)))
		default:
			found = true
		}
		c.prevLast = max(c.prevLast, e.last)
		found = found || e.last == m.offset
		c.n++
	}
	if found || m.start < 0 {
		return
	}
	text := "the aborted transaction of producer " + decimal(int64(m.producer)) + ", offsets " + decimal(int64(m.start)) + ".." + decimal(int64(m.offset)) + ", is not in the transaction index"
	if c.f == nil {
		c.segment.judge(c.indexed, extent{m.pos, -1}, text)
		return
	}
	c.hold(!c.last || c.stable.promised(m.offset), -1, -1, text)
}

func (c *abortCheck) sane(e abortEntry) bool {
	return e.version == 0 && e.producer >= 0 && e.first >= 0 && e.first < e.last && e.last > c.prevLast && e.stable >= 0 && e.stable <= e.last+1 && e.last >= c.f.name.base
}

func (c *abortCheck) wrong(e abortEntry, what string) {
	at := c.n * c.size
	if e.version > 0 && e.version < 16 {
		what = "is of version " + decimal(int64(e.version))
	}
	c.hold(!c.last || c.stable.promised(e.last), at, at+c.size, "entry "+decimal(c.n)+" (producer "+decimal(int64(e.producer))+", offsets "+decimal(int64(e.first))+".."+decimal(int64(e.last))+") "+what)
}

func (c *abortCheck) ends(s *pass) {
	if c.f == nil {
		return
	}
	for b := c.peek(); b != nil; b = c.peek() {
		e := parseAbort(b)
		switch {
		case !c.sane(e):
			c.wrong(e, "is not plausible")
		case e.last > s.prev && !s.blind:
			c.wrong(e, "lies past the end of the log at offset "+decimal(int64(s.prev)))
		}
		c.prevLast = max(c.prevLast, e.last)
		c.n++
	}
	c.used = c.n
	if c.n*c.size < c.f.size {
		c.hold(true, c.n*c.size, c.f.size, decimal(c.f.size-c.n*c.size)+" bytes after the last entry")
	}
}

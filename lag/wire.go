package lag

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"

	"github.com/keeplog/keeplog/record"
)

// Questions and answers travel as values of tagged fields; numbers are variable-length, "u" without sign, "i" zig-zag; a text is its length (u) and
// its bytes.
//
//	query      │ u8 flags: 1 sums, 2 others │ u n │ n × text group │
//
//	answer     │ u8 flags: 1 more │ u n │ n × text group │ u n │ n × topic │ u n │ n × sum │ u nowhere │ u n │ n × missing │
//	topic      │ 16 bytes id │ u n │ n × partition │
//	partition  │ u number │ u8 flags: 1 leaderless │ i start │ i end │ u n │ n × line │
//	line       │ u group, by its place in the list │ u committed │ i committed at │ i moved │ i behind │ i in │ i out │ u8 trend │
//	sum        │ u group, by its place in the list │ u lag │ u partitions │
//	missing    │ u group, by its place in the list │ u offsets │
//
// Rates are in thousandths, −1 where they are not known. Bytes behind the last field are of a later version, and skipped. An answer may end
// behind its sums: it is of a version before nowhere, and counts none.

// ErrMalformed says that bytes are no question or no answer.
var ErrMalformed = errors.New("lag: malformed")

const (
	flagSums   = 1
	flagOthers = 2
	flagMore   = 1
	flagNobody = 1
)

// AppendQuery appends a question.
func AppendQuery(b []byte, q *Query) []byte {
	flags := byte(0)
	if q.Sums {
		flags |= flagSums
	}
	if q.Others {
		flags |= flagOthers
	}
	b = binary.AppendUvarint(append(b, flags), uint64(len(q.Groups)))
	for _, g := range q.Groups {
		b = appendText(b, g)
	}
	return b
}

// ParseQuery reads a question. It keeps no part of b. The groups are sorted, and each is there once.
func ParseQuery(b []byte) (*Query, error) {
	r := reader{b: b}
	flags := r.byte()
	q := &Query{Sums: flags&flagSums != 0, Others: flags&flagOthers != 0}
	n := r.count(1)
	if n > MaxGroups {
		return nil, ErrMalformed
	}
	for range n {
		q.Groups = append(q.Groups, r.text())
	}
	if r.bad {
		return nil, ErrMalformed
	}
	slices.Sort(q.Groups)
	q.Groups = slices.Compact(q.Groups)
	return q, nil
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// AppendAnswer appends an answer of Ask.
func AppendAnswer(b []byte, a *Answer) []byte {
	flags := byte(0)
	if a.More {
		flags = flagMore
	}
	names, at := a.names()
	b = binary.AppendUvarint(append(b, flags), uint64(len(names)))
	for _, g := range names {
		b = appendText(b, g)
	}
	topics := runs(a.Lines, func(x, y *Line) bool { return x.Topic == y.Topic })
	b = binary.AppendUvarint(b, uint64(len(topics)))
	for _, lines := range topics {
		partitions := runs(lines, func(x, y *Line) bool { return x.Partition == y.Partition })
		b = binary.AppendUvarint(append(b, lines[0].Topic[:]...), uint64(len(partitions)))
		for _, lines := range partitions {
			b = appendPartition(b, lines, at)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(a.Sums)))
	for _, s := range a.Sums {
		b = binary.AppendUvarint(b, at[s.Group])
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(s.Lag)), uint64(s.Partitions))
	}
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(a.Nowhere)), uint64(len(a.Missing)))
	for _, g := range slices.Sorted(maps.Keys(a.Missing)) {
		b = binary.AppendUvarint(binary.AppendUvarint(b, at[g]), uint64(a.Missing[g]))
	}
	return b
}

// names are the groups of an answer, and where each is in the list.
func (a *Answer) names() (names []string, at map[string]uint64) {
	at = map[string]uint64{}
	add := func(g string) {
		if _, ok := at[g]; !ok {
			at[g] = uint64(len(names))
			names = append(names, g)
		}
	}
	for i := range a.Lines {
		add(a.Lines[i].Group)
	}
	for i := range a.Sums {
		add(a.Sums[i].Group)
	}
	for _, g := range slices.Sorted(maps.Keys(a.Missing)) {
		add(g)
	}
	return names, at
}

// runs cuts lines where neighbours are not the same.
func runs(lines []Line, same func(x, y *Line) bool) (out [][]Line) {
	for len(lines) > 0 {
		n := 1
		for n < len(lines) && same(&lines[0], &lines[n]) {
			n++
		}
		out = append(out, lines[:n])
		lines = lines[n:]
	}
	return out
}

func appendPartition(b []byte, lines []Line, at map[string]uint64) []byte {
	flags := byte(0)
	if lines[0].Leaderless {
		flags = flagNobody
	}
	b = append(binary.AppendUvarint(b, uint64(lines[0].Partition.Partition)), flags)
	b = binary.AppendVarint(binary.AppendVarint(b, int64(lines[0].Start)), int64(lines[0].End))
	b = binary.AppendUvarint(b, uint64(len(lines)))
	for i := range lines {
		l := &lines[i]
		b = binary.AppendUvarint(binary.AppendUvarint(b, at[l.Group]), uint64(l.Committed))
		b = binary.AppendVarint(binary.AppendVarint(b, l.CommittedAt), l.Moved)
		b = binary.AppendVarint(b, l.Behind)
		b = appendRate(appendRate(b, l.In), l.Out)
		b = append(b, byte(l.Trend))
	}
	return b
}

func appendRate(b []byte, r float64) []byte {
	if r < 0 {
		return binary.AppendVarint(b, Unknown)
	}
	return binary.AppendVarint(b, int64(min(r, 1e12)*1000))
}

// ParseAnswer reads an answer. It keeps no part of b.
func ParseAnswer(b []byte) (*Answer, error) {
	r := reader{b: b}
	a := &Answer{More: r.byte()&flagMore != 0}
	names := make([]string, r.count(1))
	for i := range names {
		names[i] = r.text()
	}
	for range r.count(17) {
		var p Partition
		copy(p.Topic[:], r.take(16))
		for range r.count(5) {
			if !r.bad {
				a.Lines = r.partition(a.Lines, p, names)
			}
		}
	}
	for range r.count(3) {
		s := Sum{Group: r.name(names), Lag: r.uint(), Partitions: int(r.uint())}
		if !r.bad {
			a.Sums = append(a.Sums, s)
		}
	}
	if len(r.b) > 0 {
		r.missing(a, names)
	}
	if r.bad {
		return nil, ErrMalformed
	}
	return a, nil
}

func (r *reader) missing(a *Answer, names []string) {
	a.Nowhere = int(r.uint())
	for range r.count(2) {
		group, n := r.name(names), int(r.uint())
		if r.bad {
			return
		}
		if a.Missing == nil {
			a.Missing = map[string]int{}
		}
		a.Missing[group] = n
	}
}

func (r *reader) partition(lines []Line, p Partition, names []string) []Line {
	p.Partition = int32(min(r.uint(), math.MaxInt32))
	leaderless := r.byte()&flagNobody != 0
	e := Extent{record.Offset(r.int()), record.Offset(r.int())}
	for range r.count(8) {
		l := Line{Group: r.name(names), Partition: p, Extent: e, Leaderless: leaderless, Committed: record.Offset(r.uint())}
		l.CommittedAt, l.Moved, l.Behind = r.int(), r.int(), r.int()
		l.In, l.Out, l.Trend = r.rate(), r.rate(), Trend(min(r.byte(), byte(TrendFlat)))
		if r.bad {
			return lines
		}
		lines = append(lines, l)
	}
	return lines
}

// reader reads from b; bad is set for good when it does not go on.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) fail() { r.b, r.bad = nil, true }

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.fail()
		return nil
	}
	taken := r.b[:n]
	r.b = r.b[n:]
	return taken
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint() int64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > math.MaxInt64 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return int64(v)
}

func (r *reader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count is the number of things that take at least least bytes each.
func (r *reader) count(least int) int {
	n := r.uint()
	if n > int64(len(r.b)/least) {
		r.fail()
		return 0
	}
	return int(n)
}

func (r *reader) text() string { return string(r.take(r.count(1))) }

func (r *reader) name(names []string) string {
	if n := r.uint(); n < int64(len(names)) {
		return names[n]
	}
	r.fail()
	return ""
}

func (r *reader) rate() float64 {
	if n := r.int(); n >= 0 {
		return float64(n) / 1000
	}
	return Unknown
}

// Package lag tells how far each group is behind: in records and in seconds, how fast it goes, and whether it gains.
//
// Nouns. A group has committed an offset in a partition; what it has not read yet is its lag. A [Sampler] computes it for the partitions that
// this broker leads, because the leader alone has the end and the records; every broker has the committed offsets of all groups. A sample is
// what the ends and the offsets were at one moment; from a few of them, a minute back at most, come the rates. Seconds behind are the age of
// the first record that the group has not read: its time is read from the log once, and kept while the offset stays.
//
// Who owns what. The Sampler's mutex guards the samples. Offsets are copied out of the tables, and the log is read, without any lock. Time is
// an argument. Nothing is written for what does not move: a value counts for all samples behind the last one in which it changed.
//
//	tables: what groups have committed ─┐
//	                                    ├─► Tick: a sample each ten seconds ─► rates, trend ─┐
//	replicas: ends of what is led here ─┘                                                     ├─► Ask ─► Answer (wire.go)
//	                     log: the time of the record at the offset ─► kept by (group, partition) ┘
package lag

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
)

// Partition names a partition of a topic.
type Partition = metadata.GroupPartition

// Unknown stands for an offset, a time or a rate that is not known.
const Unknown = -1

// Bounds.
const (
	// Interval is the time between samples.
	Interval = 10 * time.Second
	// MaxKept is for how many (group, partition) samples and times are kept. Beyond it there are no rates.
	MaxKept = 100_000
	// MaxLines is the number of lines in one answer.
	MaxLines = 100_000
	// MaxGroups is the number of groups that one question may name.
	MaxGroups = 20_000
	// maxVisited is the number of committed offsets that one question goes through, told or not: what stands behind them is More.
	maxVisited = 1 << 20
	// maxLookups is how many times are read from logs for one question.
	maxLookups = 16_384
)

// Extent is what of a partition's log can be read: from Start on, and below End.
type Extent struct{ Start, End record.Offset }

// Place says who leads a partition.
type Place uint8

// Places.
const (
	Here Place = iota
	Elsewhere
	// Nowhere is a partition without a leader.
	Nowhere
)

// Source is what this broker knows of partitions.
type Source interface {
	// Led goes through the partitions that this broker leads until f says false.
	Led(f func(p Partition, e Extent) bool)
	// Find says who leads a partition, and its extent where it is this broker: of Unknown while this broker cannot tell it.
	Find(p Partition) (Extent, Place)
	// TimeOf is the time, in ms since 1970, of the first record at or behind an offset and below the end; ok is false where there is none.
	TimeOf(p Partition, o record.Offset) (ms int64, ok bool, err error)
}

// Tables are the committed offsets; *metadata.Tables are some.
type Tables interface {
	Committed() uint64
	Offsets(group string, f func(metadata.OffsetCommit) bool)
	EachOffset(shard int32, f func(group string, c metadata.OffsetCommit) bool)
}

// Trend is whether a lag grows.
type Trend uint8

// Trends.
const (
	TrendUnknown Trend = iota
	TrendUp
	TrendDown
	TrendFlat
)

// String is unknown, up, down or flat.
func (t Trend) String() string {
	return []string{"unknown", "up", "down", "flat"}[min(t, TrendFlat)]
}

// Line is one group in one partition.
type Line struct {
	Group string
	Partition
	// Committed is the offset that the group has committed, CommittedAt when it did, in ms since 1970.
	Committed   record.Offset
	CommittedAt int64
	// Extent is of −1 where this broker does not lead the partition, or leads it and cannot tell; Leaderless says that nobody leads.
	Extent
	Leaderless bool
	// Behind is the age, in ms, of the first record that the group has not read: 0 where it has read all, Unknown where it could not be read.
	Behind int64
	// In and Out are records a second that came in, and that the group committed, over the last minute or what is known of it.
	In, Out float64
	Trend   Trend
	// Moved is since when the committed offset is what it is, as far as is known, in ms since 1970.
	Moved int64
}

// Lag is how many records the group has not read. Unknown without an end.
func (l *Line) Lag() int64 {
	if l.End < 0 {
		return Unknown
	}
	return int64(max(0, l.End-max(l.Committed, l.Start)))
}

// Sum is the lag of a group over the partitions that this broker leads and knows the ends of.
type Sum struct {
	Group      string
	Lag        int64
	Partitions int
}

// Query asks about groups.
type Query struct {
	// Sums asks for sums instead of lines: no log is read.
	Sums bool
	// Others asks for lines of partitions that other brokers lead too: without extent.
	Others bool
	// Groups are those that are meant, each once; none: all.
	Groups []string
}

// Answer is what is known. It is the caller's.
type Answer struct {
	// More says that there were more lines than an answer may have, or more offsets than a question may go through.
	More  bool
	Lines []Line
	Sums  []Sum
	// Nowhere counts the offsets whose partition's end nobody can tell as far as this broker knows: nobody leads the partition, or this broker
	// does and cannot tell. Every broker counts those without a leader: the brokers' numbers do not add up, the largest is what is known.
	Nowhere int
	// Missing has the groups that Nowhere is of, each with its part, in an answer with sums: what the sums of such a group make is the least
	// that it is behind.
	Missing map[string]int
}

// sort brings lines in the order of the wire: by topic, partition, group.
func (a *Answer) sort() {
	slices.SortFunc(a.Lines, func(x, y Line) int {
		return cmp.Or(bytes.Compare(x.Topic[:], y.Topic[:]), cmp.Compare(x.Partition.Partition, y.Partition.Partition), strings.Compare(x.Group, y.Group))
	})
	slices.SortFunc(a.Sums, func(x, y Sum) int { return strings.Compare(x.Group, y.Group) })
}

// rate is how many a second went by between two samples; Unknown where they are too near. What went back counts as nothing.
func rate(from, to int64, elapsed time.Duration) float64 {
	if elapsed < time.Second {
		return Unknown
	}
	return float64(max(0, to-from)) / elapsed.Seconds()
}

// trend compares a lag with that of before. What the partition takes in a second, and two in a hundred, are noise.
func trend(before, now int64, in float64) Trend {
	noise := max(in, float64(max(before, now))/50)
	switch moved := float64(now - before); {
	case moved > noise:
		return TrendUp
	case -moved > noise:
		return TrendDown
	}
	return TrendFlat
}

// Drain is how long it takes until all is read, at the rates of now: 0 where all is read, ok is false where it will not be.
func Drain(lag int64, in, out float64) (d time.Duration, ok bool) {
	switch {
	case lag == 0:
		return 0, true
	case in < 0 || out <= in || lag < 0:
		return 0, false
	}
	const longest = 100 * 365 * 24 * time.Hour
	if s := float64(lag) / (out - in); s < longest.Seconds() {
		return time.Duration(s * float64(time.Second)), true
	}
	return longest, true
}

// Rates add up partitions.
type Rates struct {
	lag     int64
	in, out float64
	known   int
	unknown bool
}

// Add takes a partition in; rates are nil where they are not known.
func (r *Rates) Add(lag int64, in, out *float64) {
	r.lag += lag
	if in == nil || out == nil {
		r.unknown = true
		return
	}
	r.in, r.out, r.known = r.in+*in, r.out+*out, r.known+1
}

// Sum is the rates of all; ok is false where one is not known.
func (r *Rates) Sum() (in, out float64, ok bool) { return r.in, r.out, r.known > 0 && !r.unknown }

// Trend is that of all together.
func (r *Rates) Trend() Trend {
	if r.known == 0 || r.unknown {
		return TrendUnknown
	}
	const window = 60
	return trend(max(0, r.lag-int64((r.in-r.out)*window)), r.lag, r.in)
}

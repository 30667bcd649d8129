package main

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// tp is one partition of a topic.
type tp struct {
	topic     string
	partition int32
}

func (t tp) String() string { return fmt.Sprintf("topic %s partition %d", t.topic, t.partition) }

func (t tp) compare(o tp) int {
	return cmp.Or(cmp.Compare(t.topic, o.topic), cmp.Compare(t.partition, o.partition))
}

// point is a place in a partition, as a person writes it.
type point struct {
	kind pointKind
	n    int64 // an offset, a number of offsets, or ms since 1970
}

type pointKind int

const (
	pointStart  pointKind = iota
	pointEnd              // the end as of now
	pointOffset           // N
	pointAfter            // +N: N offsets after the start
	pointBefore           // -N: N offsets before the end
	pointTime             // @TIME: the first record at or after it
	pointNone             // no bound
)

// span is where reading begins and where it stops (the offset or time at stop is not read; pointNone: never).
type span struct{ from, to point }

// parseSpan reads start, end, N, +N, -N, N-M, @TIME, @-1h, @TIME-TIME. N-M takes in M; a time range does not take in its end.
func parseSpan(s string, now time.Time) (span, error) {
	if p, err := parsePoint(s, now); err == nil {
		return span{p, point{kind: pointNone}}, nil
	}
	if rest, ok := strings.CutPrefix(s, "@"); ok {
		// A time holds dashes itself: the range is cut where both sides are times.
		for i := range len(rest) {
			if rest[i] != '-' {
				continue
			}
			from, err1 := parseTime(rest[:i], now)
			to, err2 := parseTime(rest[i+1:], now)
			if err1 == nil && err2 == nil && from < to {
				return span{point{pointTime, from}, point{pointTime, to}}, nil
			}
		}
	} else if a, b, ok := strings.Cut(s, "-"); ok {
		from, err1 := parseCount(a)
		to, err2 := parseCount(b)
		if err1 == nil && err2 == nil && from <= to && to < math.MaxInt64 {
			return span{point{pointOffset, from}, point{pointOffset, to + 1}}, nil
		}
	}
	e := usagef("offset %q: not start, end, N, +N, -N, N-M, @TIME, @-1h or @TIME-TIME", s)
	e.try = "-O start"
	return span{}, e
}

func parsePoint(s string, now time.Time) (point, error) {
	switch {
	case s == "start" || s == "end":
		return point{kind: map[string]pointKind{"start": pointStart, "end": pointEnd}[s]}, nil
	case strings.HasPrefix(s, "@"):
		ms, err := parseTime(s[1:], now)
		return point{pointTime, ms}, err
	case strings.HasPrefix(s, "+"):
		n, err := parseCount(s[1:])
		return point{pointAfter, n}, err
	case strings.HasPrefix(s, "-"):
		n, err := parseCount(s[1:])
		return point{pointBefore, n}, err
	}
	n, err := parseCount(s)
	return point{pointOffset, n}, err
}

func parseCount(s string) (int64, error) {
	if s == "" || s[0] < '0' || s[0] > '9' {
		return 0, usagef("%q is no number", s)
	}
	return strconv.ParseInt(s, 10, 64)
}

// timeLayouts are RFC 3339 and what is left when parts of it are left out; without a zone a time is UTC.
var timeLayouts = []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02T15:04", "2006-01-02"}

// parseTime reads RFC 3339, ms since 1970, or a time before now ("-1h"), and returns ms since 1970.
func parseTime(s string, now time.Time) (int64, error) {
	if n, err := parseCount(s); err == nil {
		return n, nil
	}
	if ago, ok := strings.CutPrefix(s, "-"); ok {
		d, err := parseDuration(ago)
		if err != nil {
			return 0, err
		}
		return now.Add(-d).UnixMilli(), nil
	}
	if s == "now" {
		return now.UnixMilli(), nil
	}
	for _, layout := range timeLayouts {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UnixMilli(), nil
		}
	}
	return 0, usagef("%q is no time", s)
}

// parseDuration is time.ParseDuration, and days.
func parseDuration(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := parseCount(days)
		if err != nil || n > 36500 {
			return 0, usagef("%q is no duration", s)
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	return time.ParseDuration(s)
}

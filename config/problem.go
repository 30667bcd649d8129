package config

import (
	"fmt"
	"strings"
)

// Problem is one thing wrong, or doubtful, with a setting.
type Problem struct {
	// Where names the place: "server.properties:12", "KAFKA_NODE_ID", "--set". Empty where no place is to blame.
	Where string
	// Key is the setting, empty where it is about none.
	Key string
	// What says what is wrong, in one line.
	What string
	// Why and Try are empty or one line each: the reason, and what to do.
	Why, Try string
}

// Message is the first line: place and fault.
func (p Problem) Message() string {
	if p.Where == "" {
		return p.What
	}
	return p.Where + ": " + p.What
}

// String gives the lines as the terminal shows them, without the leading "error:".
func (p Problem) String() string {
	s := p.Message()
	if p.Why != "" {
		s += "\nwhy:   " + p.Why
	}
	if p.Try != "" {
		s += "\ntry:   " + p.Try
	}
	return s
}

// Error is returned by Load when settings are wrong. It holds all that was found, in the order of the input.
type Error struct{ Problems []Problem }

// Error joins the problems, one paragraph each.
func (e *Error) Error() string {
	parts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		parts[i] = p.String()
	}
	return strings.Join(parts, "\n")
}

// Suggest finds the known key of a scope that is nearest to name, at most two edits away (an insertion, a deletion, a replacement or a
// swap of neighbours is one edit). Empty when none is that near.
func Suggest(scope Scope, name string) string {
	best, dist := "", 3
	for _, k := range registry.sorted[scope] {
		if n := len(k.Name) - len(name); n > 2 || n < -2 {
			continue
		}
		if d := editDistance(k.Name, name); d < dist {
			best, dist = k.Name, d
		}
	}
	return best
}

// editDistance is the optimal string alignment distance of Damerau and Levenshtein, in bytes.
func editDistance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// unknownKey describes a name that no key has.
func unknownKey(where string, scope Scope, name string) Problem {
	p := Problem{Where: where, Key: name, What: "unknown property " + name}
	if s := Suggest(scope, name); s != "" {
		p.Try = fmt.Sprintf("%s   (keeplog config explain %s)", s, s)
	} else {
		p.Try = "keeplog config list"
	}
	return p
}
